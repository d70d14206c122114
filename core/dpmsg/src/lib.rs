//! What the calculation graph tells a dataplane: plain types, one enum of messages.
//!
//! The contract (orders, coalescing) is that of upstream's `felixbackend.proto`: within one flush sets come
//! before the policies that name them, policies and profiles before endpoints, removals the other way round;
//! before the first [`Message::InSync`] a dataplane must not touch the kernel.

mod endpoint;
mod policy;
mod route;

pub use endpoint::{
    EndpointId, HostEndpoint, HostEndpointId, TierInfo, WorkloadEndpoint, WorkloadEndpointId,
};
pub use policy::{
    Action, HostMetadata, IcmpMatch, IpSetId, IpSetType, Member, Policy, PolicyId, Profile, ProfileId, Rule,
    RuleId, RuleSide,
};
pub use route::{Encapsulation, IpPool, PoolType, Route, RouteTypes, TunnelKind, Vtep, VtepAddrs};

use std::collections::BTreeMap;
use std::sync::Arc;

use calico_net::Cidr;
use smol_str::SmolStr;

/// One message from the calculation graph to the dataplane.
#[derive(Debug, Clone, PartialEq)]
pub enum Message {
    /// The store says that it is not ready; the agent stops.
    DatastoreNotReady,
    /// The resolved configuration changed: parameter name to text.
    ConfigUpdate(Arc<BTreeMap<SmolStr, SmolStr>>),
    /// A set and all its members; replaces what was there.
    IpSetUpdate {
        /// Set.
        id: IpSetId,
        /// What its members are.
        kind: IpSetType,
        /// Members.
        members: Vec<Member>,
    },
    /// Members that come and go. A member stands in one list at most.
    IpSetDelta {
        /// Set.
        id: IpSetId,
        /// New members.
        added: Vec<Member>,
        /// Members that went.
        removed: Vec<Member>,
    },
    /// The set is not used any more.
    IpSetRemove(IpSetId),
    /// A policy that applies to a local endpoint.
    PolicyUpdate(PolicyId, Arc<Policy>),
    /// The policy applies to nothing here any more.
    PolicyRemove(PolicyId),
    /// A profile that a local endpoint names.
    ProfileUpdate(ProfileId, Arc<Profile>),
    /// No local endpoint names the profile any more.
    ProfileRemove(ProfileId),
    /// A workload endpoint of this node.
    WorkloadEndpointUpdate(WorkloadEndpointId, Arc<WorkloadEndpoint>),
    /// It is gone.
    WorkloadEndpointRemove(WorkloadEndpointId),
    /// A host endpoint of this node.
    HostEndpointUpdate(HostEndpointId, Arc<HostEndpoint>),
    /// It is gone.
    HostEndpointRemove(HostEndpointId),
    /// A destination.
    RouteUpdate(Arc<Route>),
    /// The destination has no meaning any more.
    RouteRemove(Cidr),
    /// A node's VXLAN tunnel endpoint.
    VtepUpdate(Arc<Vtep>),
    /// The node (by name) has none any more.
    VtepRemove(SmolStr),
    /// A node's addresses.
    HostMetadataUpdate(Arc<HostMetadata>),
    /// The node (by name) is gone.
    HostMetadataRemove(SmolStr),
    /// An IP pool.
    IpPoolUpdate(Arc<IpPool>),
    /// The pool is gone.
    IpPoolRemove(Cidr),
    /// Which encapsulations some pool needs.
    Encapsulation(Encapsulation),
    /// Everything that the store held has been sent once.
    InSync,
}
