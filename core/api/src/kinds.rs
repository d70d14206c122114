//! One module per resource kind, or per family of kinds that share types.

mod networkset;
mod policy;
mod pool;
mod profile;
mod rule;
mod tier;

pub use networkset::{GlobalNetworkSet, GlobalNetworkSetSpec, NetworkSet, NetworkSetSpec};
pub use policy::{
    GlobalNetworkPolicy, GlobalNetworkPolicySpec, NetworkPolicy, NetworkPolicySpec, PerformanceHint,
    PolicyType,
};
pub use pool::{
    AllowedUse, AssignmentMode, EncapMode, IPPool, IPPoolSpec, IPPoolStatus, IPReservation, IPReservationSpec,
};
pub use profile::{Profile, ProfileSpec};
pub use rule::{
    Action, EntityRule, HttpMatch, HttpPath, IcmpFields, Rule, RuleMetadata, ServiceAccountMatch,
    ServiceMatch,
};
pub use tier::{DefaultAction, Tier, TierSpec, TierStatus};
