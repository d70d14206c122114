//! Namespaces and service accounts as profiles.

use std::collections::BTreeMap;

use calico_api::k8s;
use calico_api::{Action, Kind, ObjectMeta, Profile, ProfileSpec, Rule};
use smol_str::{SmolStr, format_smolstr};

use crate::key::Key;
use crate::kv::{KvPair, Revision};
use crate::names::{self, UidError, convert_uid};
use crate::value::Value;

/// A revision of a profile that is not made of two parts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("ResourceVersion is not valid: {0}")]
pub struct ProfileRevisionError(pub SmolStr);

/// The profile of a namespace: allows everything in both directions and hands the namespace's labels on.
pub fn namespace_profile(name: &str, labels: &BTreeMap<String, String>) -> Profile {
    let allow = || vec![Rule { action: Action::Allow, ..Rule::default() }];
    let spec = ProfileSpec {
        ingress: allow(),
        egress: allow(),
        labels_to_apply: inherited(names::NAMESPACE_LABEL_PREFIX, labels, name),
    };
    Profile { metadata: ObjectMeta { name: names::namespace_profile(name), ..ObjectMeta::default() }, spec }
}

/// The profile of a service account: no rules, only labels. An empty namespace means `default`.
pub fn service_account_profile(namespace: &str, name: &str, labels: &BTreeMap<String, String>) -> Profile {
    let spec = ProfileSpec {
        labels_to_apply: inherited(names::SERVICE_ACCOUNT_LABEL_PREFIX, labels, name),
        ..ProfileSpec::default()
    };
    let name = names::service_account_profile(namespace, name);
    Profile { metadata: ObjectMeta { name, ..ObjectMeta::default() }, spec }
}

/// A namespace read from Kubernetes. Its revision becomes the first part of the profile's.
///
/// Errors: the UID is none.
pub fn namespace(source: &k8s::Namespace) -> Result<KvPair, UidError> {
    let profile = namespace_profile(&source.metadata.name, &source.metadata.labels);
    entry(profile, &source.metadata, format_smolstr!("{}/", source.metadata.resource_version))
}

/// A service account read from Kubernetes. Its revision becomes the second part of the profile's.
///
/// Errors: the UID is none.
pub fn service_account(source: &k8s::ServiceAccount) -> Result<KvPair, UidError> {
    let meta = &source.metadata;
    let profile = service_account_profile(&meta.namespace, &meta.name, &meta.labels);
    entry(profile, meta, format_smolstr!("/{}", meta.resource_version))
}

/// The revisions of namespaces and of service accounts in a revision of profiles. Empty and `0` mean "from the
/// beginning" for both.
pub fn split_profile_revision(revision: &str) -> Result<(&str, &str), ProfileRevisionError> {
    if matches!(revision, "" | "0") {
        return Ok(("", ""));
    }
    match revision.split_once('/') {
        Some((namespaces, accounts)) if !accounts.contains('/') => Ok((namespaces, accounts)),
        _ => Err(ProfileRevisionError(revision.into())),
    }
}

fn inherited(prefix: &str, labels: &BTreeMap<String, String>, name: &str) -> BTreeMap<String, String> {
    let own = (format!("{prefix}{}", names::LABEL_NAME), name.to_owned());
    labels.iter().map(|(label, value)| (format!("{prefix}{label}"), value.clone())).chain([own]).collect()
}

fn entry(mut profile: Profile, source: &ObjectMeta, revision: SmolStr) -> Result<KvPair, UidError> {
    let uid = uid(source)?;
    profile.metadata.uid.clone_from(&uid);
    profile.metadata.creation_timestamp = source.creation_timestamp;
    let key = Key::resource(Kind::Profile, "", profile.metadata.name.as_str());
    Ok(KvPair {
        key,
        value: Some(Value::resource(profile)),
        revision: Revision(revision),
        uid: (!uid.is_empty()).then(|| uid.into()),
        ttl: None,
    })
}

/// The v3 object's UID; empty if the Kubernetes object has none.
pub(super) fn uid(source: &ObjectMeta) -> Result<String, UidError> {
    if source.uid.is_empty() { Ok(String::new()) } else { convert_uid(&source.uid) }
}
