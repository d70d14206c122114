//! Contents of stored and synchronised things.

use std::sync::Arc;

use calico_api::{AnyResource, Resource};
use smol_str::SmolStr;

use crate::ipam::{AllocationBlock, BlockAffinity, IpamConfig, IpamHandle};
use crate::policy::{
    HostEndpoint, IpPool, Labels, NetworkSet, Policy, ProfileRules, Tier, Wireguard, WorkloadEndpoint,
};

/// The content that belongs to a [`crate::Key`]. Cheap to clone.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A v3 object.
    Resource(Arc<AnyResource>),
    /// An allocation block.
    Block(Arc<AllocationBlock>),
    /// A block affinity.
    BlockAffinity(BlockAffinity),
    /// An IPAM handle.
    IpamHandle(Arc<IpamHandle>),
    /// The IPAM configuration.
    IpamConfig(IpamConfig),
    /// A bare text: configuration parameters, addresses.
    Text(SmolStr),
    /// The ready flag.
    Bool(bool),
    /// JSON that is passed on as it is: status reports.
    Json(Arc<serde_json::Value>),
    /// A host endpoint.
    HostEndpoint(Arc<HostEndpoint>),
    /// A workload endpoint.
    WorkloadEndpoint(Arc<WorkloadEndpoint>),
    /// An IP pool.
    IpPool(Arc<IpPool>),
    /// A network set.
    NetworkSet(Arc<NetworkSet>),
    /// A tier.
    Tier(Tier),
    /// Rules of a profile.
    ProfileRules(Arc<ProfileRules>),
    /// Labels of a profile.
    ProfileLabels(Arc<Labels>),
    /// A policy.
    Policy(Arc<Policy>),
    /// A node's WireGuard interface.
    Wireguard(Arc<Wireguard>),
}

impl Value {
    /// Wraps a v3 object.
    pub fn resource(r: impl Resource) -> Self {
        Self::Resource(Arc::new(r.into_any()))
    }
}
