//! Routes, tunnels and pools.

use std::net::IpAddr;

use calico_net::{Cidr, Mac};
use smol_str::SmolStr;

/// What a destination is, as a set of facts that may hold together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct RouteTypes {
    /// Workloads of another node.
    pub remote_workload: bool,
    /// Another node.
    pub remote_host: bool,
    /// Workloads of this node.
    pub local_workload: bool,
    /// This node.
    pub local_host: bool,
    /// A tunnel address of another node.
    pub remote_tunnel: bool,
    /// A tunnel address of this node.
    pub local_tunnel: bool,
}

impl RouteTypes {
    /// True if no fact holds: the destination only describes a pool.
    pub fn is_cidr_info(&self) -> bool {
        *self == Self::default()
    }
}

/// How a pool's traffic travels between nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum PoolType {
    /// No pool, or one of load-balancer addresses only.
    #[default]
    None,
    /// Plain routes.
    NoEncap,
    /// VXLAN.
    Vxlan,
    /// IP-in-IP.
    Ipip,
}

/// Which tunnel an address belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct TunnelKind {
    /// IP-in-IP.
    pub ipip: bool,
    /// VXLAN.
    pub vxlan: bool,
    /// WireGuard.
    pub wireguard: bool,
}

/// A destination and everything that a dataplane must know to reach it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Route {
    /// Destination.
    pub dst: Cidr,
    /// What it is.
    pub types: RouteTypes,
    /// Kind of pool that it lies in.
    pub pool_type: PoolType,
    /// Node that it is on; empty if none.
    pub dst_node_name: SmolStr,
    /// That node's address.
    pub dst_node_ip: Option<IpAddr>,
    /// The pool is cross-subnet and the node is on this node's subnet.
    pub same_subnet: bool,
    /// Traffic from here to outside is source-NATed.
    pub nat_outgoing: bool,
    /// The destination is a workload endpoint of this node.
    pub local_workload: bool,
    /// The address is used on another node than its block's.
    pub borrowed: bool,
    /// Tunnel that the address belongs to.
    pub tunnel: TunnelKind,
}

/// A node's VXLAN tunnel endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Vtep {
    /// Node.
    pub node: SmolStr,
    /// IPv4: tunnel address, node address and MAC.
    pub v4: Option<VtepAddrs>,
    /// IPv6: tunnel address, node address and MAC.
    pub v6: Option<VtepAddrs>,
}

/// One family of a tunnel endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct VtepAddrs {
    /// Address of the VXLAN device.
    pub tunnel: IpAddr,
    /// Address of the node, where the outer packets go.
    pub parent: IpAddr,
    /// MAC of the VXLAN device.
    pub mac: Mac,
}

/// An IP pool.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct IpPool {
    /// The pool.
    pub cidr: Cidr,
    /// Source NAT for traffic that leaves the cluster's pools.
    pub masquerade: bool,
    /// Mode texts `""`, `always` or `cross-subnet`.
    pub ipip_mode: SmolStr,
    /// Mode texts `""`, `always` or `cross-subnet`.
    pub vxlan_mode: SmolStr,
    /// Serves load-balancer addresses only, so no workload of it needs routes.
    pub load_balancer_only: bool,
}

/// Which encapsulations some pool needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Encapsulation {
    /// IP-in-IP.
    pub ipip: bool,
    /// VXLAN over IPv4.
    pub vxlan: bool,
    /// VXLAN over IPv6.
    pub vxlan_v6: bool,
    /// Plain routes that Felix programs.
    pub no_encap: bool,
}
