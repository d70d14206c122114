//! Node: a host of the cluster.

use crate::numorstring::AsNumber;

open_enum! {
    /// What an address of a node is.
    pub enum NodeAddressType {
        /// The address that Calico uses between nodes.
        CalicoNodeIP = "CalicoNodeIP",
        /// An address inside the cluster's network.
        InternalIP = "InternalIP",
        /// An address reachable from outside.
        ExternalIP = "ExternalIP",
    }
}

resource! {
    /// A host of the cluster.
    Node { spec: NodeSpec, status: NodeStatus }
}

go_struct! {
    /// What a [`Node`] says.
    pub struct NodeSpec {
        /// BGP settings; unset if the node runs no BGP.
        pub bgp: Option<NodeBgpSpec> = "bgp", "Option::is_none";
        /// IPv4 address of the VXLAN device.
        pub ipv4_vxlan_tunnel_addr: String = "ipv4VXLANTunnelAddr", "crate::is_default";
        /// MAC address of the IPv4 VXLAN device.
        pub vxlan_tunnel_mac_addr: String = "vxlanTunnelMACAddr", "crate::is_default";
        /// IPv6 address of the VXLAN device.
        pub ipv6_vxlan_tunnel_addr: String = "ipv6VXLANTunnelAddr", "crate::is_default";
        /// MAC address of the IPv6 VXLAN device.
        pub vxlan_tunnel_mac_addr_v6: String = "vxlanTunnelMACAddrV6", "crate::is_default";
        /// Names that orchestrators know the node by.
        pub orch_refs: Vec<OrchRef> = "orchRefs", "crate::is_default";
        /// WireGuard settings.
        pub wireguard: Option<NodeWireguardSpec> = "wireguard", "Option::is_none";
        /// Addresses of the node.
        pub addresses: Vec<NodeAddress> = "addresses", "crate::is_default";
        /// Interfaces of the node with their addresses.
        pub interfaces: Vec<NodeInterface> = "interfaces", "crate::is_default";
    }
}

go_struct! {
    /// BGP settings of a node.
    pub struct NodeBgpSpec {
        /// AS number. Default: that of the cluster.
        pub as_number: Option<AsNumber> = "asNumber", "Option::is_none";
        /// IPv4 address with prefix length of its subnet.
        pub ipv4_address: String = "ipv4Address", "crate::is_default";
        /// IPv6 address with prefix length of its subnet.
        pub ipv6_address: String = "ipv6Address", "crate::is_default";
        /// IPv4 address of the IPIP device.
        pub ipv4_ipip_tunnel_addr: String = "ipv4IPIPTunnelAddr", "crate::is_default";
        /// Cluster identifier that makes the node a route reflector; in the form of an IPv4 address.
        pub route_reflector_cluster_id: String = "routeReflectorClusterID", "crate::is_default";
    }
}

go_struct! {
    /// A name that an orchestrator knows a node by.
    pub struct OrchRef {
        /// The name.
        pub node_name: String = "nodeName", "crate::is_default";
        /// The orchestrator, such as `k8s`.
        pub orchestrator: String = "orchestrator";
    }
}

go_struct! {
    /// WireGuard settings of a node.
    pub struct NodeWireguardSpec {
        /// Address of the IPv4 WireGuard interface.
        pub interface_ipv4_address: String = "interfaceIPv4Address", "crate::is_default";
        /// Address of the IPv6 WireGuard interface.
        pub interface_ipv6_address: String = "interfaceIPv6Address", "crate::is_default";
    }
}

go_struct! {
    /// An address of a node.
    pub struct NodeAddress {
        /// The address, with or without prefix length.
        pub address: String = "address";
        /// What the address is.
        pub address_type: NodeAddressType = "type", "crate::is_default";
    }
}

go_struct! {
    /// An interface of a node.
    pub struct NodeInterface {
        /// Name of the interface.
        pub name: String = "name", "crate::is_default";
        /// Addresses with prefix length.
        pub addresses: Vec<String> = "addresses", "crate::is_default";
    }
}

go_struct! {
    /// What was observed of a [`Node`].
    pub struct NodeStatus {
        /// Public key of the IPv4 WireGuard interface, base64 of 32 bytes.
        pub wireguard_public_key: String = "wireguardPublicKey", "crate::is_default";
        /// Public key of the IPv6 WireGuard interface, base64 of 32 bytes.
        pub wireguard_public_key_v6: String = "wireguardPublicKeyV6", "crate::is_default";
        /// Pod CIDRs that Kubernetes gave to the node.
        pub pod_cidrs: Vec<String> = "podCIDRs", "crate::is_default";
    }
}
