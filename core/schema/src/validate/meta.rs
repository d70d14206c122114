//! Metadata of all kinds.

use calico_api::{Kind, ObjectMeta};

use super::{Checker, format};
use crate::Op;

/// Longest name of most kinds.
const MAX_NAME: usize = 253;
/// Longest name of a tier.
const MAX_TIER_NAME: usize = 63;
/// Most bytes of all annotations together.
const MAX_ANNOTATIONS: usize = 256 * 1024;

pub(super) fn check(c: &mut Checker, kind: Kind, metadata: &ObjectMeta, op: Op) {
    lifecycle(c, metadata, op);
    // A missing name of an object to be created has its own fault; WorkloadEndpoints get theirs computed.
    let nameless = metadata.name.is_empty() && (op == Op::Create || kind == Kind::WorkloadEndpoint);
    if !nameless {
        name(c, kind, &metadata.name);
    }
    if kind.namespaced() && metadata.namespace.is_empty() && op != Op::Check {
        c.fail_field("Metadata.Namespace", "namespace is not specified on namespaced resource");
    }
    for (key, value) in &metadata.labels {
        if !format::is_label_key(key) {
            c.fail("Metadata.Labels (label)", key, LABEL_KEY);
        }
        if !format::is_label_value(value) {
            c.fail("Metadata.Labels (value)", value, LABEL_VALUE);
        }
    }
    annotations(c, "Metadata.Annotations", metadata.annotations.iter());
}

pub(super) const LABEL_KEY: &str = "must be a name of at most 63 letters, digits, '-', '_' and '.', perhaps behind \
    a lower case DNS name and a '/'";
pub(super) const LABEL_VALUE: &str = "must be empty or at most 63 letters, digits, '-', '_' and '.', with a letter \
    or digit at both ends";

/// Rules for annotations, of objects and of policy rules.
pub(super) fn annotations<'a>(
    c: &mut Checker,
    field: &str,
    annotations: impl Iterator<Item = (&'a String, &'a String)>,
) {
    let mut size = 0;
    for (key, value) in annotations {
        size += key.len() + value.len();
        if !format::is_label_key(&key.to_lowercase()) {
            c.fail(format_args!("{field} (key)"), key, LABEL_KEY);
        }
    }
    if size > MAX_ANNOTATIONS {
        c.fail_field(field, format!("hold {size} bytes, at most {MAX_ANNOTATIONS} are allowed"));
    }
}

/// The kind has one object only.
pub(super) fn only_default(c: &mut Checker, metadata: &ObjectMeta, op: Op) {
    if op != Op::Check && metadata.name != "default" && !metadata.name.is_empty() {
        c.fail("Metadata.Name", &metadata.name, "the only object of this kind is named \"default\"");
    }
}

/// What a store needs to know, or may not be told, before a write.
fn lifecycle(c: &mut Checker, metadata: &ObjectMeta, op: Op) {
    const REQUIRED: &str = "field must be set for an Update request";
    match op {
        Op::Create => {
            if metadata.name.is_empty() {
                let reason = if metadata.generate_name.is_empty() {
                    "field must be set for a Create request"
                } else {
                    "field must be set for a Create request (GenerateName is not supported)"
                };
                c.fail("Metadata.Name", "", reason);
            }
            if !metadata.resource_version.is_empty() {
                let reason = "field must not be set for a Create request";
                c.fail("Metadata.ResourceVersion", &metadata.resource_version, reason);
            }
        }
        Op::Update => {
            if metadata.resource_version.is_empty() {
                c.fail("Metadata.ResourceVersion", "", REQUIRED);
            }
            if metadata.creation_timestamp.is_none() {
                c.fail("Metadata.CreationTimestamp", "0001-01-01 00:00:00 +0000 UTC", REQUIRED);
            }
            if metadata.uid.is_empty() {
                c.fail("Metadata.UID", "", REQUIRED);
            }
        }
        Op::Check => {}
    }
}

fn name(c: &mut Checker, kind: Kind, name: &str) {
    const FIELD: &str = "Metadata.Name";
    let max = if kind == Kind::Tier { MAX_TIER_NAME } else { MAX_NAME };
    if name.len() > max {
        c.fail(FIELD, name, format!("name is too long by {} bytes", name.len() - max));
    }
    if !format::is_name(name) {
        let reason = "name must consist of lower case letters, digits, '-' and '.', with a letter or digit at both \
            ends of each part";
        c.fail(FIELD, name, reason);
        return;
    }
    let reason = match kind {
        Kind::Tier if !format::is_dns_label(name) => "name of a tier must not contain '.'",
        Kind::NetworkPolicy if !format::is_policy_name(name) => {
            "name of a policy may contain one '.', or more behind knp.default. or ossg.default."
        }
        Kind::GlobalNetworkPolicy if !format::is_global_policy_name(name) => {
            "name of a global policy may contain one '.'"
        }
        _ => return,
    };
    c.fail(FIELD, name, reason);
}
