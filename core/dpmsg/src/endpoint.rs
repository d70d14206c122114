//! Endpoints of this node, with the policies that apply to them in order.

use std::net::IpAddr;

use calico_net::{Cidr, Mac};
use smol_str::SmolStr;

use crate::{PolicyId, ProfileId};

/// Identity of a workload endpoint on this node.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WorkloadEndpointId {
    /// Orchestrator.
    pub orchestrator: SmolStr,
    /// Workload; for Kubernetes `namespace/pod`.
    pub workload: SmolStr,
    /// Endpoint.
    pub endpoint: SmolStr,
}

/// Identity of a host endpoint on this node.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostEndpointId(pub SmolStr);

/// Either kind of endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EndpointId {
    /// A workload's.
    Workload(WorkloadEndpointId),
    /// The host's.
    Host(HostEndpointId),
}

/// The policies of one tier that apply to an endpoint, in order.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TierInfo {
    /// Tier.
    pub name: SmolStr,
    /// Policies for inbound traffic.
    pub ingress: Vec<PolicyId>,
    /// Policies for outbound traffic.
    pub egress: Vec<PolicyId>,
    /// What happens to packets that no policy here decided: pass to the next tier if true, else deny.
    pub default_pass: bool,
}

/// A workload endpoint of this node.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct WorkloadEndpoint {
    /// Whether it is administratively up.
    pub active: bool,
    /// Host end of its interface.
    pub interface_name: SmolStr,
    /// MAC address inside the workload.
    pub mac: Option<Mac>,
    /// Profiles in order; they decide where no tier applies.
    pub profile_ids: Vec<ProfileId>,
    /// IPv4 addresses.
    pub ipv4_nets: Vec<Cidr>,
    /// IPv6 addresses.
    pub ipv6_nets: Vec<Cidr>,
    /// Floating addresses: (external, internal).
    pub nats: Vec<(IpAddr, IpAddr)>,
    /// Tiers in order.
    pub tiers: Vec<TierInfo>,
    /// Sources beyond its own addresses that it may use.
    pub allow_spoofed_source_prefixes: Vec<Cidr>,
}

/// A host endpoint of this node.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct HostEndpoint {
    /// Interface; `*` for all; empty to match by address.
    pub interface_name: SmolStr,
    /// Profiles in order.
    pub profile_ids: Vec<ProfileId>,
    /// Tiers for traffic to and from the host itself.
    pub tiers: Vec<TierInfo>,
    /// Tiers run before connection tracking.
    pub untracked_tiers: Vec<TierInfo>,
    /// Tiers run before destination NAT.
    pub pre_dnat_tiers: Vec<TierInfo>,
    /// Tiers for forwarded traffic.
    pub forward_tiers: Vec<TierInfo>,
    /// Addresses that it is known by.
    pub expected_ips: Vec<IpAddr>,
}
