//! One module per resource kind, or per family of kinds that share types.

mod cluster;
mod endpoint;
mod felix;
mod ipam;
mod networkset;
mod node;
mod policy;
mod pool;
mod profile;
mod rule;
mod tier;

pub use cluster::{ClusterInformation, ClusterInformationSpec};
pub use endpoint::{
    EndpointPort, HostEndpoint, HostEndpointSpec, IpNat, QosControls, WorkloadEndpoint, WorkloadEndpointPort,
    WorkloadEndpointSpec,
};
pub use felix::{
    BpfConntrackTimeouts, FelixConfiguration, FelixConfigurationSpec, FelixParam, HealthTimeoutOverride,
    ParamType, ParamValue, ProtoPort, RouteTableRange,
};
pub use ipam::{
    AffinityState, AllocationAttribute, BlockAffinity, BlockAffinitySpec, Flag, IPAMBlock, IPAMBlockSpec,
    IPAMConfiguration, IPAMConfigurationSpec, IPAMHandle, IPAMHandleSpec, StoredBlockAffinity,
    VmAddressPersistence,
};
pub use networkset::{GlobalNetworkSet, GlobalNetworkSetSpec, NetworkSet, NetworkSetSpec};
pub use node::{
    Node, NodeAddress, NodeAddressType, NodeBgpSpec, NodeInterface, NodeSpec, NodeStatus, NodeWireguardSpec,
    OrchRef,
};
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
