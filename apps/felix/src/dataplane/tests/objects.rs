//! Messages made by hand.

use std::net::IpAddr;
use std::sync::Arc;

use calico_dpmsg::{
    Action, HostEndpoint, HostEndpointId, HostMetadata, IpPool, IpSetType, Member, Message, Policy, PolicyId,
    PoolType, Profile, Route, RouteTypes, Rule, RuleSide, TierInfo, TunnelKind, Vtep, VtepAddrs,
    WorkloadEndpoint, WorkloadEndpointId,
};
use calico_net::{Cidr, Mac, Port, PortRange, Protocol};

use crate::config::{Params, RawSettings, Source};

pub(super) fn cidr(text: &str) -> Cidr {
    text.parse().expect("cidr")
}

pub(super) fn ip(text: &str) -> IpAddr {
    text.parse().expect("address")
}

/// Settings of a node, with files under `dir`.
pub(super) fn params(hostname: &str, dir: &std::path::Path, settings: &[(&str, &str)]) -> Arc<Params> {
    let mut raw = RawSettings::default();
    let dir = dir.to_str().expect("path");
    raw.set(Source::File, "EndpointStatusPathPrefix", Some(dir.into()));
    raw.set(Source::File, "MTUFile", Some(format!("{dir}/mtu").into()));
    for (name, value) in settings {
        raw.set(Source::Environment, name, Some((*value).into()));
    }
    let (params, bad) = Params::read(&raw, hostname);
    assert_eq!(bad, []);
    Arc::new(params)
}

pub(super) fn rule(action: Action) -> Rule {
    Rule {
        action,
        ip_version: None,
        protocol: None,
        not_protocol: None,
        icmp: None,
        not_icmp: None,
        src: RuleSide::default(),
        dst: RuleSide::default(),
        metadata: None,
        rule_id: "id".into(),
    }
}

/// The rule, for TCP to one port.
pub(super) fn to_port(action: Action, port: u16) -> Rule {
    let range = match Port::number(port) {
        Port::Range(range) => range,
        Port::Named(_) => PortRange::single(port),
    };
    Rule {
        protocol: Some(Protocol::Name("tcp".into())),
        dst: RuleSide { ports: vec![range], ..RuleSide::default() },
        ..rule(action)
    }
}

/// The rule, for sources in a set.
pub(super) fn from_set(action: Action, set: &str) -> Rule {
    Rule { src: RuleSide { sets: vec![set.into()], ..RuleSide::default() }, ..rule(action) }
}

pub(super) fn policy_id(name: &str) -> PolicyId {
    PolicyId { kind: "GlobalNetworkPolicy".into(), namespace: "".into(), name: name.into() }
}

pub(super) fn policy(name: &str, tier: &str, inbound: Vec<Rule>, outbound: Vec<Rule>) -> Message {
    let policy = Policy { tier: tier.into(), inbound, outbound, ..Policy::default() };
    Message::PolicyUpdate(policy_id(name), Arc::new(policy))
}

pub(super) fn profile(name: &str, action: Action) -> Message {
    let profile = Profile { inbound: vec![rule(action)], outbound: vec![rule(action)] };
    Message::ProfileUpdate(name.into(), Arc::new(profile))
}

pub(super) fn tier(name: &str, ingress: &[&str], egress: &[&str], default_pass: bool) -> TierInfo {
    let ids = |names: &[&str]| names.iter().map(|n| policy_id(n)).collect();
    TierInfo { name: name.into(), ingress: ids(ingress), egress: ids(egress), default_pass }
}

pub(super) fn workload_id(name: &str) -> WorkloadEndpointId {
    WorkloadEndpointId {
        orchestrator: "k8s".into(),
        workload: format!("default/{name}").into(),
        endpoint: "eth0".into(),
    }
}

/// MAC of the workloads' own ends.
pub(super) const INSIDE: Mac = Mac([0x02, 0xaa, 0, 0, 0, 1]);

pub(super) fn endpoint(iface: &str, nets: &[&str], tiers: Vec<TierInfo>) -> WorkloadEndpoint {
    let (v6, v4) = nets.iter().map(|n| cidr(n)).partition(|c: &Cidr| c.addr().is_ipv6());
    WorkloadEndpoint {
        active: true,
        interface_name: iface.into(),
        mac: Some(INSIDE),
        profile_ids: vec!["open".into()],
        ipv4_nets: v4,
        ipv6_nets: v6,
        tiers,
        ..WorkloadEndpoint::default()
    }
}

pub(super) fn workload(name: &str, endpoint: WorkloadEndpoint) -> Message {
    Message::WorkloadEndpointUpdate(workload_id(name), Arc::new(endpoint))
}

pub(super) fn no_workload(name: &str) -> Message {
    Message::WorkloadEndpointRemove(workload_id(name))
}

pub(super) fn host(name: &str, endpoint: HostEndpoint) -> Message {
    Message::HostEndpointUpdate(HostEndpointId(name.into()), Arc::new(endpoint))
}

fn members(nets: &[&str]) -> Vec<Member> {
    nets.iter().map(|n| Member::Net(cidr(n))).collect()
}

pub(super) fn set(id: &str, nets: &[&str]) -> Message {
    Message::IpSetUpdate { id: id.into(), kind: IpSetType::Net, members: members(nets) }
}

pub(super) fn set_delta(id: &str, added: &[&str], removed: &[&str]) -> Message {
    Message::IpSetDelta { id: id.into(), added: members(added), removed: members(removed) }
}

pub(super) fn node(name: &str, v4: Option<&str>, v6: Option<&str>) -> Message {
    Message::HostMetadataUpdate(Arc::new(HostMetadata {
        hostname: name.into(),
        ipv4: v4.map(cidr),
        ipv6: v6.map(cidr),
        as_number: "".into(),
        labels: Default::default(),
    }))
}

pub(super) fn pool(net: &str, masquerade: bool) -> Message {
    Message::IpPoolUpdate(Arc::new(IpPool {
        cidr: cidr(net),
        masquerade,
        ipip_mode: "".into(),
        vxlan_mode: "".into(),
        load_balancer_only: false,
    }))
}

/// A block of another node, or with `node_ip` of none, of this one.
pub(super) fn block(
    dst: &str,
    pool_type: PoolType,
    node: &str,
    node_ip: Option<&str>,
    near: bool,
) -> Message {
    let types = match node_ip {
        Some(_) => RouteTypes { remote_workload: true, ..RouteTypes::default() },
        None => RouteTypes { local_workload: true, ..RouteTypes::default() },
    };
    Message::RouteUpdate(Arc::new(Route {
        dst: cidr(dst),
        types,
        pool_type,
        dst_node_name: node.into(),
        dst_node_ip: node_ip.map(ip),
        same_subnet: near,
        nat_outgoing: false,
        local_workload: false,
        borrowed: false,
        tunnel: TunnelKind::default(),
    }))
}

/// Tunnel address and node address, per family.
pub(super) fn vtep(node: &str, v4: Option<(&str, &str)>, v6: Option<(&str, &str)>, last: u8) -> Message {
    let addrs = |family: u8| {
        move |(tunnel, parent): (&str, &str)| VtepAddrs {
            tunnel: ip(tunnel),
            parent: ip(parent),
            mac: Mac([0x66, 0, 0, 0, family, last]),
        }
    };
    Message::VtepUpdate(Arc::new(Vtep { node: node.into(), v4: v4.map(addrs(4)), v6: v6.map(addrs(6)) }))
}
