//! Kubernetes objects as Calico's.
//!
//! Inputs are the parts of Kubernetes' types that matter here ([`calico_api::k8s`]). Outputs are v3 objects.
//! A NetworkPolicy converts in two ways: for a syncer that reads Kubernetes ([`network_policy`]: a kind of its
//! own, tolerant of single bad rules) and for a store without Kubernetes ([`stored_policy`]: an ordinary
//! NetworkPolicy, refused if any part is bad).
//!
//! Invariant: nothing that cannot be converted ever allows more than what was written.

mod pod;
mod policy;
mod profile;

#[cfg(test)]
mod tests;

pub use pod::{pod_labels, pod_ports, pod_profiles};
pub use policy::{
    CONVERTED_FROM_ANNOTATION, PolicyFault, STORED_PREFIX, StoredPolicyError, is_converted, network_policy,
    stored_policy, stored_policy_name,
};
pub use profile::{
    ProfileRevisionError, namespace, namespace_profile, service_account, service_account_profile,
    split_profile_revision,
};
