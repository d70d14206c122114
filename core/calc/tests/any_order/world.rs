//! Random worlds: changes of a small number of keys with values that collide as often as they can.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use calico_api::{Kind, Node, NodeAddress, NodeAddressType, NodeBgpSpec};
use calico_model::ipam::{AllocationAttribute, AllocationBlock};
use calico_model::policy::{
    Action, EncapMode, EndpointPort, EntityMatch, HostEndpoint, IcmpMatch, IpPool, Labels, NetworkSet,
    Policy, ProfileRules, Rule, Tier, WorkloadEndpoint,
};
use calico_model::{Key, KvPair, PolicyKey, Update, UpdateType, Value, WorkloadEndpointKey};
use calico_net::{Cidr, Port, PortRange, Protocol};
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use smol_str::SmolStr;

/// This node.
pub const ME: &str = "me";

/// A change of a key.
pub type Step = (Key, Option<Value>);

/// The last value of each key.
pub type World = BTreeMap<Key, Value>;

/// The update of a step.
pub fn update((key, value): &Step) -> Update {
    let kind = if value.is_some() { UpdateType::New } else { UpdateType::Deleted };
    Update { kv: KvPair { value: value.clone(), ..KvPair::tombstone(key.clone()) }, kind }
}

/// What remains after all steps.
pub fn last(steps: &[Step]) -> World {
    let mut world = World::new();
    for (key, value) in steps {
        match value {
            Some(value) => drop(world.insert(key.clone(), value.clone())),
            None => drop(world.remove(key)),
        }
    }
    world
}

/// Selectors, two of which do not parse.
const SELECTORS: [&str; 18] = [
    "all()",
    "a == '1'",
    "a == '2'",
    "a != '1'",
    "has(b)",
    "!has(b)",
    "a == '1' && b == '1'",
    "a in {'1', '2'} || has(c)",
    "b not in {'1'} && has(a)",
    "pcns.x == '1'",
    "has(a) && pcns.x == '1'",
    "c starts with '1'",
    "a == \"1\"",
    "a == '1' && a == '2'",
    "(a == '1' || a == '2') && (b == '1' || b == '2')",
    "has(pcns.x)",
    "a = '1'",
    "has(",
];

fn text(values: &'static [&'static str]) -> impl Strategy<Value = SmolStr> + Clone {
    select(values).prop_map(SmolStr::new_static)
}

fn selector() -> impl Strategy<Value = SmolStr> + Clone {
    prop_oneof![8 => text(&SELECTORS[..16]), 1 => text(&SELECTORS[16..])]
}

fn labels() -> impl Strategy<Value = Labels> {
    btree_map(text(&["a", "b", "c", "pcns.x"]), text(&["1", "2"]), 0..4)
}

fn profiles() -> impl Strategy<Value = Vec<SmolStr>> {
    vec(text(&["p", "q", "ghost"]), 0..3)
}

fn addr() -> impl Strategy<Value = IpAddr> {
    let v4 = (select(vec![0u8, 1, 2, 64]), select(vec![0u8, 1, 5, 64, 65]))
        .prop_map(|(c, d)| [10, 1, c, d].into());
    let v6 = select(vec![1u16, 2, 0x41]).prop_map(|n| [0xfd00, 0, 0, 0, 0, 0, 0, n].into());
    prop_oneof![4 => v4, 1 => v6]
}

fn net() -> impl Strategy<Value = Cidr> {
    (addr(), select(vec![0u8, 8, 16, 24, 26, 30, 31, 32, 64, 122, 128])).prop_map(|(addr, len)| {
        let bits = if addr.is_ipv4() { 32 } else { 128 };
        Cidr::new(addr, len.min(bits)).unwrap().masked()
    })
}

fn ports() -> impl Strategy<Value = Vec<EndpointPort>> {
    let port = (text(&["http", "dns"]), select(vec!["tcp", "udp"]), select(vec![53u16, 80, 8080]));
    vec(
        port.prop_map(|(name, p, port)| EndpointPort { name, protocol: Protocol::Name(p.into()), port }),
        0..3,
    )
}

fn entity() -> impl Strategy<Value = EntityMatch> {
    let range = select(vec![(80u16, 80u16), (1, 1024)])
        .prop_map(|(first, last)| Port::Range(PortRange { first, last }));
    let port = prop_oneof![range, text(&["http", "dns"]).prop_map(Port::Named)];
    let maybe = || prop_oneof![2 => Just(SmolStr::default()), 3 => selector()];
    let service = option::weighted(0.05, Just((SmolStr::new_static("ns"), SmolStr::new_static("web"))));
    (vec(net(), 0..2), vec(net(), 0..2), vec(port.clone(), 0..3), vec(port, 0..2), maybe(), maybe(), service)
        .prop_map(|(nets, not_nets, ports, not_ports, selector, not_selector, service)| EntityMatch {
            nets,
            not_nets,
            ports,
            not_ports,
            selector,
            not_selector,
            service,
            original: None,
        })
}

fn side() -> impl Strategy<Value = EntityMatch> {
    prop_oneof![Just(EntityMatch::default()), entity()]
}

fn rule() -> impl Strategy<Value = Rule> {
    let action = select(vec![Action::Allow, Action::Deny, Action::Pass, Action::Log]);
    let protocol = option::of(select(vec![
        Protocol::Name("tcp".into()),
        Protocol::Name("udp".into()),
        Protocol::Num(6),
    ]));
    let icmp = option::weighted(0.1, Just(IcmpMatch { icmp_type: Some(8), code: Some(0) }));
    (action, protocol, icmp, side(), side()).prop_map(|(action, protocol, icmp, src, dst)| Rule {
        action,
        ip_version: None,
        protocol,
        not_protocol: None,
        icmp,
        not_icmp: None,
        src,
        dst,
        http: None,
        metadata: None,
    })
}

fn rules() -> impl Strategy<Value = Vec<Rule>> {
    vec(rule(), 0..3)
}

/// A policy of which nothing changes but its order.
fn ordered_policy() -> impl Strategy<Value = Policy> {
    select(vec![None, Some(1.0), Some(2.0), Some(3.0)]).prop_map(|order| Policy {
        tier: "t1".into(),
        order,
        namespace: SmolStr::default(),
        selector: "all()".into(),
        ingress: true,
        egress: false,
        inbound_rules: vec![],
        outbound_rules: vec![],
        untracked: false,
        pre_dnat: false,
        apply_on_forward: false,
        staged_action: None,
        performance_hints: vec![],
    })
}

/// A node of which nothing changes but its address.
fn addressed_node() -> impl Strategy<Value = Node> {
    select(vec!["10.9.0.1/24", "10.9.0.2/24", "10.9.1.1/24"]).prop_map(|address| {
        let mut node = Node::default();
        node.spec.bgp = Some(NodeBgpSpec { ipv4_address: address.into(), ..NodeBgpSpec::default() });
        node
    })
}

fn policy() -> impl Strategy<Value = Policy> {
    let order = select(vec![None, Some(1.0), Some(2.0), Some(f64::NAN)]);
    let flags =
        (any::<bool>(), any::<bool>(), prop::bool::weighted(0.1), prop::bool::weighted(0.1), any::<bool>());
    let hints =
        prop_oneof![9 => Just(vec![]), 1 => Just(vec![SmolStr::new_static("AssumeNeededOnEveryNode")])];
    (text(&["t1", "t2", "default"]), order, selector(), flags, rules(), rules(), hints).prop_map(
        |(
            tier,
            order,
            selector,
            (ingress, egress, untracked, pre_dnat, apply_on_forward),
            inbound,
            outbound,
            hints,
        )| {
            Policy {
                tier,
                order,
                namespace: SmolStr::default(),
                selector,
                ingress,
                egress,
                inbound_rules: inbound,
                outbound_rules: outbound,
                untracked,
                pre_dnat,
                apply_on_forward,
                staged_action: None,
                performance_hints: hints,
            }
        },
    )
}

fn workload() -> impl Strategy<Value = WorkloadEndpoint> {
    let name = prop_oneof![9 => Just("cali1"), 1 => Just("")];
    (name, vec(addr(), 0..3), labels(), profiles(), ports()).prop_map(
        |(name, addrs, labels, profile_ids, ports)| {
            let of = |v4: bool| addrs.iter().filter(|a| a.is_ipv4() == v4).map(|&a| Cidr::host(a)).collect();
            WorkloadEndpoint {
                interface_name: name.into(),
                profile_ids,
                ipv4_nets: of(true),
                ipv6_nets: of(false),
                labels,
                ports,
                ..WorkloadEndpoint::default()
            }
        },
    )
}

fn host() -> impl Strategy<Value = HostEndpoint> {
    (vec(addr(), 0..3), labels(), profiles(), ports()).prop_map(
        |(expected_ips, labels, profile_ids, ports)| HostEndpoint {
            interface_name: "eth0".into(),
            expected_ips,
            labels,
            profile_ids,
            ports,
            dscp: None,
        },
    )
}

fn set() -> impl Strategy<Value = NetworkSet> {
    (vec(net(), 0..5), labels(), profiles()).prop_map(|(nets, labels, profile_ids)| NetworkSet {
        nets,
        labels,
        profile_ids,
    })
}

fn pool() -> impl Strategy<Value = (Key, Option<Value>)> {
    use EncapMode::{Always, CrossSubnet, Never};
    let mode = || select(vec![Never, Always, CrossSubnet, CrossSubnet]);
    let cidr = select(vec!["10.1.0.0/16", "10.2.0.0/16", "fd00::/64"]);
    let uses = select(vec![vec!["Workload", "Tunnel"], vec!["LoadBalancer"]]);
    (cidr, mode(), mode(), any::<bool>(), uses, any::<bool>()).prop_map(
        |(cidr, ipip, vxlan, masquerade, uses, there)| {
            let cidr: Cidr = cidr.parse().unwrap();
            let pool = IpPool {
                cidr,
                ipip,
                vxlan,
                masquerade,
                disabled: false,
                disable_bgp_export: false,
                automatic: true,
                allowed_uses: uses.into_iter().map(SmolStr::new_static).collect(),
            };
            (Key::IpPool(cidr), there.then(|| Value::IpPool(Arc::new(pool))))
        },
    )
}

fn block() -> impl Strategy<Value = (Key, Option<Value>)> {
    let node = || select(vec![None, Some(ME), Some("n2"), Some("n3")]);
    let cidr = select(vec!["10.1.0.0/26", "10.1.0.64/26", "10.1.1.5/32", "fd00::/122"]);
    (cidr, node(), vec((0usize..70, node()), 0..4), prop::bool::weighted(0.8)).prop_map(
        |(cidr, affine, taken, there)| {
            let cidr: Cidr = cidr.parse().unwrap();
            let mut block = AllocationBlock {
                cidr,
                affinity: affine.map(|n| format!("host:{n}").into()),
                affinity_claim_time: None,
                host_affinity: None,
                allocations: vec![None; 70],
                unallocated: vec![],
                attributes: vec![],
                sequence_number: 0,
                sequence_number_for_allocation: BTreeMap::new(),
                deleted: false,
            };
            for (i, (ordinal, node)) in taken.into_iter().enumerate() {
                block.allocations[ordinal] = Some(i as u32);
                let attrs = node.map(|n| (SmolStr::new_static("node"), n.into())).into_iter().collect();
                block.attributes.push(AllocationAttribute {
                    active_owner_attrs: attrs,
                    ..AllocationAttribute::default()
                });
            }
            (Key::Block(cidr), there.then(|| Value::Block(Arc::new(block))))
        },
    )
}

fn node() -> impl Strategy<Value = Node> {
    let bgp = option::of((
        select(vec!["", "10.9.0.1/24", "10.9.0.2/24", "10.9.1.1/24", "bad"]),
        select(vec!["", "fd09::1/64"]),
    ));
    let address = (select(vec!["10.9.0.7", "10.1.0.1", "fd09::7"]), any::<bool>());
    (bgp, vec(address, 0..3)).prop_map(|(bgp, addresses)| {
        let mut node = Node::default();
        node.spec.bgp = bgp.map(|(v4, v6)| NodeBgpSpec {
            ipv4_address: v4.into(),
            ipv6_address: v6.into(),
            ..NodeBgpSpec::default()
        });
        let kind =
            |internal| if internal { NodeAddressType::InternalIP } else { NodeAddressType::ExternalIP };
        node.spec.addresses = addresses
            .into_iter()
            .map(|(address, internal)| NodeAddress { address: address.into(), address_type: kind(internal) })
            .collect();
        node
    })
}

fn setting() -> impl Strategy<Value = (Key, Option<Value>)> {
    let texts = select(vec!["10.1.0.0", "10.1.1.5", "fd00::1", "66:00:00:00:00:01", "bad", ""]);
    let names = text(&[
        "IpInIpTunnelAddr",
        "IPv4VXLANTunnelAddr",
        "IPv6VXLANTunnelAddr",
        "VXLANTunnelMACAddr",
        "Other",
    ]);
    (text(&[ME, "n2"]), names, option::of(texts)).prop_map(|(host, name, value)| {
        (Key::HostConfig { host, name }, value.map(|v| Value::Text(v.into())))
    })
}

/// Any one change.
pub fn step() -> impl Strategy<Value = Step> {
    /// A key of a kind, put or deleted.
    macro_rules! change {
        ($key:expr, $value:expr, $variant:ident) => {
            ($key, option::weighted(0.8, $value))
                .prop_map(|(key, value)| (key, value.map(|v| Value::$variant(Arc::new(v)))))
        };
    }
    let nodes = || text(&[ME, ME, "n2"]);
    let workload_key = (nodes(), text(&["w1", "w2", "w3"])).prop_map(|(host, workload)| {
        Key::WorkloadEndpoint(WorkloadEndpointKey {
            host,
            orchestrator: "k8s".into(),
            workload,
            endpoint: "eth0".into(),
        })
    });
    let host_key =
        (nodes(), text(&["h1", "h2"])).prop_map(|(host, endpoint)| Key::HostEndpoint { host, endpoint });
    let policy_key = (text(&["p1", "p2", "p3", "p4"]), any::<bool>()).prop_map(|(name, namespaced)| {
        let (kind, namespace) = match namespaced {
            true => (Kind::NetworkPolicy, SmolStr::new_static("ns")),
            false => (Kind::GlobalNetworkPolicy, SmolStr::default()),
        };
        Key::Policy(PolicyKey { kind, namespace, name })
    });
    let profile = || text(&["p", "q"]);
    let profile_rules =
        (rules(), rules()).prop_map(|(i, o)| ProfileRules { inbound_rules: i, outbound_rules: o });
    let tier = (
        text(&["t1", "t2", "default"]),
        option::of((select(vec![None, Some(1.0), Some(2.0)]), any::<bool>())),
    )
        .prop_map(|(name, tier)| {
            (Key::Tier(name), tier.map(|(order, default_pass)| Value::Tier(Tier { order, default_pass })))
        });
    let node = (nodes(), option::weighted(0.8, prop_oneof![node(), addressed_node()]))
        .prop_map(|(name, node)| (Key::resource(Kind::Node, "", name), node.map(Value::resource)));
    let wrong = policy_key.clone().prop_map(|key| (key, Some(Value::Bool(true))));
    prop_oneof![
        8 => change!(workload_key, workload(), WorkloadEndpoint),
        3 => change!(host_key, host(), HostEndpoint),
        4 => change!(text(&["s1", "s2", "ns/s3"]).prop_map(Key::NetworkSet), set(), NetworkSet),
        8 => change!(policy_key, prop_oneof![policy(), ordered_policy()], Policy),
        3 => change!(profile().prop_map(Key::ProfileLabels), labels(), ProfileLabels),
        3 => change!(profile().prop_map(Key::ProfileRules), profile_rules, ProfileRules),
        2 => tier,
        2 => pool(),
        3 => block(),
        4 => node,
        2 => setting(),
        1 => wrong,
    ]
}
