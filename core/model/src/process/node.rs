//! Nodes and the cluster's information: settings of Felix that are made from them.

use std::sync::Arc;

use calico_api as api;
use calico_net::{Mac, cidr::parse_ip};
use smol_str::SmolStr;

use super::{Parts, ProcessError, object};
use crate::key::{Key, ResourceKey};
use crate::policy::Wireguard;
use crate::value::Value;

/// Prefix of the names of objects that are for one node.
pub(super) const PER_NODE_PREFIX: &str = "node.";

/// Name of the object that is for all nodes.
pub(super) const GLOBAL_NAME: &str = "default";

pub(super) fn node(source: &ResourceKey, value: Option<&Value>) -> (Parts, Option<ProcessError>) {
    let (node, error) = match value.map(|value| object::<api::Node>(source, value)) {
        None => (None, None),
        Some(Ok(node)) => (Some(node), None),
        Some(Err(error)) => (None, Some(error)),
    };
    let ip = |pick: fn(&api::Node) -> Option<&String>| {
        node.and_then(pick).and_then(|text| parse_ip(text)).map(|ip| text(&ip.to_string()))
    };
    let mac = |pick: fn(&api::Node) -> Option<&String>| {
        node.and_then(pick).and_then(|t| t.parse::<Mac>().ok()).map(|mac| text(&mac.to_string()))
    };
    let settings = [
        ("IpInIpTunnelAddr", ip(|n| n.spec.bgp.as_ref().map(|bgp| &bgp.ipv4_ipip_tunnel_addr))),
        ("IPv4VXLANTunnelAddr", ip(|n| Some(&n.spec.ipv4_vxlan_tunnel_addr))),
        ("VXLANTunnelMACAddr", mac(|n| Some(&n.spec.vxlan_tunnel_mac_addr))),
        ("IPv6VXLANTunnelAddr", ip(|n| Some(&n.spec.ipv6_vxlan_tunnel_addr))),
        ("VXLANTunnelMACAddrV6", mac(|n| Some(&n.spec.vxlan_tunnel_mac_addr_v6))),
    ];
    let host = &source.name;
    let mut parts: Parts = settings
        .into_iter()
        .map(|(name, value)| (Key::HostConfig { host: host.clone(), name: SmolStr::new_static(name) }, value))
        .collect();
    parts.push((Key::Resource(source.clone()), node.and(value).cloned()));
    let wireguard = node.and_then(wireguard).map(|w| Value::Wireguard(Arc::new(w)));
    parts.push((Key::Wireguard(host.clone()), wireguard));
    (parts, error)
}

pub(super) fn cluster_information(
    source: &ResourceKey,
    value: Option<&Value>,
) -> (Parts, Option<ProcessError>) {
    let (spec, error) = match value.map(|value| object::<api::ClusterInformation>(source, value)) {
        None => (None, None),
        Some(Ok(info)) => (Some(&info.spec), None),
        Some(Err(error)) => (None, Some(error)),
    };
    let settings = [
        ("ClusterGUID", spec.map(|s| &s.cluster_guid)),
        ("ClusterType", spec.map(|s| &s.cluster_type)),
        ("CalicoVersion", spec.map(|s| &s.calico_version)),
        ("Variant", spec.map(|s| &s.variant)),
    ]
    .into_iter()
    .map(|(name, value)| {
        (SmolStr::new_static(name), value.filter(|value| !value.is_empty()).map(|value| text(value)))
    });
    if source.name == GLOBAL_NAME {
        let ready = spec.and_then(|spec| spec.datastore_ready).map(Value::Bool);
        let mut parts: Parts = settings.map(|(name, value)| (Key::GlobalConfig(name), value)).collect();
        parts.push((Key::ReadyFlag, ready));
        (parts, error)
    } else if let Some(host) = source.name.strip_prefix(PER_NODE_PREFIX) {
        let host = SmolStr::from(host);
        (settings.map(|(name, value)| (Key::HostConfig { host: host.clone(), name }, value)).collect(), error)
    } else {
        let reason = "neither default nor of a node".to_owned();
        (Vec::new(), error.or_else(|| Some(ProcessError::BadName { key: source.clone(), reason })))
    }
}

fn wireguard(node: &api::Node) -> Option<Wireguard> {
    let spec = node.spec.wireguard.as_ref();
    let made = Wireguard {
        interface_ipv4: spec.and_then(|s| parse_ip(&s.interface_ipv4_address)),
        interface_ipv6: spec.and_then(|s| parse_ip(&s.interface_ipv6_address)),
        public_key: (&node.status.wireguard_public_key).into(),
        public_key_v6: (&node.status.wireguard_public_key_v6).into(),
    };
    (made != Wireguard::default()).then_some(made)
}

fn text(value: &str) -> Value {
    Value::Text(value.into())
}
