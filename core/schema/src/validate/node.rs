//! Node.

use calico_api::{NodeBgpSpec, NodeSpec, NodeStatus};
use calico_net::IpVersion;

use super::{Checker, format};

pub(super) fn check(c: &mut Checker, spec: &NodeSpec, status: &NodeStatus) {
    use IpVersion::{V4, V6};
    if let Some(bgp) = &spec.bgp {
        if *bgp == NodeBgpSpec::default() {
            c.fail_field("spec.bgp", "must not be empty");
        }
        for (field, value, version) in
            [("ipv4Address", &bgp.ipv4_address, V4), ("ipv6Address", &bgp.ipv6_address, V6)]
        {
            if !value.is_empty() && !format::is_cidr(value, Some(version)) {
                let reason =
                    format!("must be an IPv{} address, perhaps with prefix length", version.number());
                c.fail(format_args!("spec.bgp.{field}"), value, reason);
            }
        }
        ip(c, "spec.bgp.ipv4IPIPTunnelAddr", &bgp.ipv4_ipip_tunnel_addr, V4);
        ip(c, "spec.bgp.routeReflectorClusterID", &bgp.route_reflector_cluster_id, V4);
    }
    ip(c, "spec.ipv4VXLANTunnelAddr", &spec.ipv4_vxlan_tunnel_addr, V4);
    mac(c, "spec.vxlanTunnelMACAddr", &spec.vxlan_tunnel_mac_addr);
    ip(c, "spec.ipv6VXLANTunnelAddr", &spec.ipv6_vxlan_tunnel_addr, V6);
    mac(c, "spec.vxlanTunnelMACAddrV6", &spec.vxlan_tunnel_mac_addr_v6);
    if let Some(wireguard) = &spec.wireguard {
        ip(c, "spec.wireguard.interfaceIPv4Address", &wireguard.interface_ipv4_address, V4);
        ip(c, "spec.wireguard.interfaceIPv6Address", &wireguard.interface_ipv6_address, V6);
    }
    for (field, key) in [
        ("wireguardPublicKey", &status.wireguard_public_key),
        ("wireguardPublicKeyV6", &status.wireguard_public_key_v6),
    ] {
        if !key.is_empty() && !format::is_wireguard_key(key) {
            c.fail(format_args!("status.{field}"), key, "must be 32 bytes in base64");
        }
    }
}

/// An address of the family, or nothing.
pub(super) fn ip(c: &mut Checker, field: &str, value: &str, version: IpVersion) {
    if !value.is_empty() && !format::is_ip(value, Some(version)) {
        c.fail(field, value, format!("must be an IPv{} address", version.number()));
    }
}

/// A hardware address, or nothing.
pub(super) fn mac(c: &mut Checker, field: &str, value: &str) {
    if !value.is_empty() && !format::is_mac(value) {
        c.fail(field, value, "must be a MAC address");
    }
}
