//! Validation of single objects.
//!
//! [`validate`] expects defaults to be filled in. It checks names and other metadata, the form of every field, and
//! the rules between fields of one object; rules between objects (a policy's tier exists, pools do not overlap)
//! are the client's. [`transition`] checks what may change in an update.
//!
//! Every fault is reported, in the order of the fields.

mod endpoint;
mod felix;
mod format;
mod ipam;
mod meta;
mod node;
mod policy;
mod pool;
mod rule;

use std::fmt;

use calico_api::AnyResource;
use calico_selector::Selector;

use crate::error::{FieldError, ValidationErrors};
use crate::{Op, defaults};

pub use format::{is_dns_label, is_interface_name, is_label_key, is_label_value, is_name};

/// Most rules of one direction of a policy.
pub const MAX_RULES: usize = 1024;
/// Most characters of a selector.
pub const MAX_SELECTOR: usize = 1024;

/// Checks an object before it is written.
pub fn validate(object: &AnyResource, op: Op) -> Result<(), ValidationErrors> {
    let mut checker = Checker::default();
    let c = &mut checker;
    meta::check(c, object.kind(), object.metadata(), op);
    match object {
        AnyResource::BlockAffinity(o) => ipam::affinity(c, &o.spec),
        AnyResource::ClusterInformation(o) => meta::only_default(c, &o.metadata, op),
        AnyResource::FelixConfiguration(o) => felix::check(c, &o.metadata.name, &o.spec),
        AnyResource::GlobalNetworkPolicy(o) => policy::global(c, &o.spec),
        AnyResource::GlobalNetworkSet(o) => policy::network_set(c, &o.metadata, &o.spec.nets),
        AnyResource::HostEndpoint(o) => endpoint::host(c, &o.spec),
        AnyResource::IPAMBlock(o) => ipam::block(c, &o.spec),
        AnyResource::IPAMConfiguration(o) => {
            meta::only_default(c, &o.metadata, op);
            ipam::configuration(c, &o.spec);
        }
        AnyResource::IPPool(o) => pool::pool(c, &o.spec),
        AnyResource::IPReservation(o) => pool::reservation(c, &o.spec),
        AnyResource::NetworkPolicy(o) => policy::namespaced(c, &o.spec),
        AnyResource::NetworkSet(o) => policy::network_set(c, &o.metadata, &o.spec.nets),
        AnyResource::Node(o) => node::check(c, &o.spec, &o.status),
        AnyResource::Profile(o) => policy::profile(c, &o.spec),
        AnyResource::Tier(o) => policy::tier(c, &o.metadata.name, &o.spec),
        AnyResource::WorkloadEndpoint(o) => endpoint::workload(c, &o.spec),
        _ => {}
    }
    checker.finish()
}

/// Checks what an update changes; `old` is the stored object, `new` the one to replace it, with defaults.
pub fn transition(old: &AnyResource, new: &AnyResource) -> Result<(), ValidationErrors> {
    let mut checker = Checker::default();
    if let (AnyResource::IPPool(old), AnyResource::IPPool(new)) = (old, new) {
        pool::transition(&mut checker, &old.spec, &new.spec);
    }
    checker.finish()
}

/// Fills in defaults, then checks: what every write does.
pub fn prepare(object: &mut AnyResource, op: Op) -> Result<(), ValidationErrors> {
    defaults::apply(object, op);
    validate(object, op)
}

/// Collects faults.
#[derive(Default)]
pub(crate) struct Checker {
    errors: Vec<FieldError>,
}

impl Checker {
    fn finish(self) -> Result<(), ValidationErrors> {
        if self.errors.is_empty() { Ok(()) } else { Err(ValidationErrors(self.errors)) }
    }

    /// Notes a fault with its value.
    fn fail(&mut self, field: impl fmt::Display, value: impl fmt::Display, reason: impl Into<String>) {
        self.errors.push(FieldError::new(field, value, reason));
    }

    /// Notes a fault of a field as a whole.
    fn fail_field(&mut self, field: impl fmt::Display, reason: impl Into<String>) {
        self.errors.push(FieldError::without_value(field, reason));
    }

    /// `value` must be one of `words`.
    fn word(&mut self, field: impl fmt::Display, value: &str, words: &[&str]) {
        if !words.contains(&value) {
            self.fail(field, value, format!("must be one of {}", words.join(", ")));
        }
    }

    /// `value` must lie between the two bounds.
    fn range(&mut self, field: impl fmt::Display, value: i64, min: i64, max: i64) {
        if !(min..=max).contains(&value) {
            let reason = match (min, max) {
                (_, i64::MAX) => format!("must be at least {min}"),
                _ => format!("must be from {min} to {max}"),
            };
            self.fail(field, value, reason);
        }
    }

    fn max_items(&mut self, field: impl fmt::Display, len: usize, max: usize) {
        if len > max {
            self.fail_field(field, format!("has {len} items, at most {max} are allowed"));
        }
    }

    fn max_chars(&mut self, field: impl fmt::Display, value: &str, max: usize) {
        if value.len() > max && value.chars().count() > max {
            self.fail_field(field, format!("is longer than {max} characters"));
        }
    }

    /// A selector of up to [`MAX_SELECTOR`] characters; empty is allowed.
    fn selector(&mut self, field: impl fmt::Display, text: &str) {
        self.max_chars(&field, text, MAX_SELECTOR);
        self.selector_syntax(field, text);
    }

    /// A selector of any length; empty is allowed.
    fn selector_syntax(&mut self, field: impl fmt::Display, text: &str) {
        if !text.is_empty()
            && let Err(error) = Selector::parse(text)
        {
            self.fail(field, text, format!("invalid selector: {error}"));
        }
    }

    /// A selector in which `global()` has no meaning.
    fn selector_without_global(&mut self, field: impl fmt::Display, text: &str) {
        self.selector(&field, text);
        if text.contains("global(") {
            self.fail(field, text, "global() is only valid as the whole namespaceSelector of a rule");
        }
    }
}
