//! Rendered chains mean what the policy says: random policies and packets, one evaluator for the policy as the
//! calculation graph gives it and one for the rendered rules, both families.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use calico_dpmsg as dp;
use calico_net::{Cidr, IpVersion, PortRange, Protocol};
use calico_rules::{Action, Chain, Layer, Match, Renderer, Rule, RuleConfig, Side, names};
use proptest::prelude::*;
use smol_str::SmolStr;

#[derive(Debug, Clone)]
struct Packet {
    src: IpAddr,
    dst: IpAddr,
    protocol: u8,
    sport: u16,
    dport: u16,
    icmp: (u8, u8),
}

impl Packet {
    fn at(&self, side: Side) -> (IpAddr, u16) {
        match side {
            Side::Src => (self.src, self.sport),
            Side::Dst => (self.dst, self.dport),
        }
    }
}

/// The sets that rules may name: address sets hold addresses with an even, or a small, last byte; port sets
/// hold ports below a bound.
fn in_addr_set(id: &str, addr: IpAddr) -> bool {
    match id {
        "s:even" => last_byte(addr).is_multiple_of(2),
        _ => last_byte(addr) < 3,
    }
}

fn in_port_set(id: &str, protocol: u8, port: u16) -> bool {
    match id {
        "n:tcp" => protocol == 6 && port < 5,
        _ => port > 5,
    }
}

fn last_byte(addr: IpAddr) -> u8 {
    match addr {
        IpAddr::V4(a) => a.octets()[3],
        IpAddr::V6(a) => a.octets()[15],
    }
}

// === the policy as it was given ===

fn rule_matches(rule: &dp::Rule, p: &Packet, version: IpVersion) -> bool {
    if rule.ip_version.is_some_and(|v| v != version) {
        return false;
    }
    let number = |p: &Protocol| p.to_number().unwrap();
    let icmp_of = |m: &dp::IcmpMatch| m.icmp_type == p.icmp.0 && m.code.is_none_or(|c| c == p.icmp.1);
    rule.protocol.as_ref().is_none_or(|x| number(x) == p.protocol)
        && rule.not_protocol.as_ref().is_none_or(|x| number(x) != p.protocol)
        && rule.icmp.as_ref().is_none_or(icmp_of)
        && rule.not_icmp.as_ref().is_none_or(|m| !icmp_of(m))
        && side_matches(&rule.src, p.protocol, p.at(Side::Src), version)
        && side_matches(&rule.dst, p.protocol, p.at(Side::Dst), version)
}

fn side_matches(side: &dp::RuleSide, protocol: u8, (addr, port): (IpAddr, u16), version: IpVersion) -> bool {
    let other_family_only = |nets: &[Cidr]| !nets.is_empty() && nets.iter().all(|n| n.version() != version);
    if other_family_only(&side.nets) || other_family_only(&side.not_nets) {
        return false;
    }
    let within = |nets: &[Cidr]| nets.iter().any(|n| n.contains(addr));
    let port_in = |ports: &[PortRange]| ports.iter().any(|r| (r.first..=r.last).contains(&port));
    let named = |ids: &[SmolStr]| ids.iter().any(|id| in_port_set(id, protocol, port));
    let asks_port = !side.ports.is_empty() || !side.named_port_sets.is_empty();
    (side.nets.is_empty() || within(&side.nets))
        && !within(&side.not_nets)
        && (!asks_port || port_in(&side.ports) || named(&side.named_port_sets))
        && !port_in(&side.not_ports)
        && !named(&side.not_named_port_sets)
        && side.sets.iter().all(|id| in_addr_set(id, addr))
        && side.not_sets.iter().all(|id| !in_addr_set(id, addr))
        && side.ip_port_sets.iter().all(|id| in_port_set(id, protocol, port))
}

fn verdict(tiers: &[Vec<Vec<dp::Rule>>], profile: &[dp::Rule], p: &Packet, v: IpVersion) -> bool {
    let decide = |rules: &[dp::Rule]| {
        rules.iter().find(|r| r.action != dp::Action::Log && rule_matches(r, p, v)).map(|r| r.action)
    };
    for tier in tiers.iter().filter(|t| !t.is_empty()) {
        match tier.iter().find_map(|policy| decide(policy)) {
            Some(dp::Action::Allow) => return true,
            Some(dp::Action::Pass) => {}
            _ => return false,
        }
    }
    decide(profile) == Some(dp::Action::Allow)
}

// === the rendered chains ===

#[derive(Debug, PartialEq, Eq)]
enum End {
    Accept,
    Drop,
    Return,
}

struct Machine<'a> {
    chains: &'a BTreeMap<SmolStr, Chain>,
    packet: &'a Packet,
    version: IpVersion,
    mark: u32,
}

impl Machine<'_> {
    fn run(&mut self, chain: &str) -> End {
        for rule in &self.chains[chain].rules {
            if !self.all(rule) {
                continue;
            }
            match &rule.action {
                None | Some(Action::Log { .. }) => {}
                Some(Action::SetMark(m)) => self.mark |= m,
                Some(Action::ClearMark(m)) => self.mark &= !m,
                Some(Action::SetMaskedMark { value, mask }) => self.mark = (self.mark & !mask) ^ value,
                Some(Action::Return) => return End::Return,
                Some(Action::Drop) => return End::Drop,
                Some(Action::Accept) => return End::Accept,
                Some(Action::Jump(to)) => match self.run(to) {
                    End::Return => {}
                    end => return end,
                },
                other => panic!("no such action in a policy: {other:?}"),
            }
        }
        End::Return
    }

    fn all(&self, rule: &Rule) -> bool {
        rule.matches.iter().all(|m| self.one(m))
    }

    fn one(&self, m: &Match) -> bool {
        let p = self.packet;
        match m {
            Match::MarkSet(bits) => self.mark & bits == *bits,
            Match::MarkClear(bits) => self.mark & bits == 0,
            Match::MarkNotClear(bits) => self.mark & bits != 0,
            Match::Protocol { protocol, negate } => (protocol.to_number() == Some(p.protocol)) != *negate,
            Match::Net { side, net, negate } => net.contains(p.at(*side).0) != *negate,
            Match::Set { side, set, negate } => in_addr_set(self.plain(set), p.at(*side).0) != *negate,
            Match::IpPortSet { side, set, negate } => {
                in_port_set(self.plain(set), p.protocol, p.at(*side).1) != *negate
            }
            Match::Ports { side, protocol, ports, negate } => {
                assert!(!ports.is_empty());
                let number = Protocol::Name(protocol.name().into()).to_number();
                // Naming a port names the protocol, negated or not.
                number == Some(p.protocol)
                    && ports.iter().any(|r| (r.first..=r.last).contains(&p.at(*side).1)) != *negate
            }
            Match::Icmp { icmp_type, code, negate } => {
                let own = if self.version == IpVersion::V4 { 1 } else { 58 };
                let same = *icmp_type == p.icmp.0 && code.is_none_or(|c| c == p.icmp.1);
                p.protocol == own && same != *negate
            }
            Match::CtEstablished | Match::CtInvalid => false,
            other => panic!("no such match in a policy: {other:?}"),
        }
    }

    fn plain(&self, set: &str) -> &'static str {
        ["s:even", "s:small", "n:tcp", "n:high"]
            .into_iter()
            .find(|id| names::set(self.version, id) == set)
            .unwrap()
    }
}

// === inputs ===

fn addr(version: IpVersion) -> impl Strategy<Value = IpAddr> {
    (0u8..3, 0u8..6).prop_map(move |(net, host)| match version {
        IpVersion::V4 => Ipv4Addr::new(10, net, 0, host).into(),
        IpVersion::V6 => Ipv6Addr::new(0xfd00, net.into(), 0, 0, 0, 0, 0, host.into()).into(),
    })
}

fn net() -> impl Strategy<Value = Cidr> {
    (prop::bool::ANY, 0u8..3, 0u8..6, 0usize..3).prop_map(|(six, net, host, size)| {
        if six {
            let a = Ipv6Addr::new(0xfd00, net.into(), 0, 0, 0, 0, 0, host.into());
            Cidr::new(a.into(), [32, 126, 128][size]).unwrap().masked()
        } else {
            let a = Ipv4Addr::new(10, net, 0, host);
            Cidr::new(a.into(), [16, 30, 32][size]).unwrap().masked()
        }
    })
}

fn nets() -> impl Strategy<Value = Vec<Cidr>> {
    prop_oneof![3 => Just(vec![]), 2 => prop::collection::vec(net(), 1..4)]
}

fn ports() -> impl Strategy<Value = Vec<PortRange>> {
    let range = (0u16..10, 0u16..3).prop_map(|(first, n)| PortRange { first, last: first + n });
    prop_oneof![3 => Just(vec![]), 2 => prop::collection::vec(range.clone(), 1..4), 1 => prop::collection::vec(range, 14..20)]
}

fn ids(names: [&'static str; 2]) -> impl Strategy<Value = Vec<SmolStr>> {
    let one = prop::sample::select(names.to_vec()).prop_map(SmolStr::from);
    prop_oneof![4 => Just(vec![]), 1 => prop::collection::vec(one, 1..3)]
}

fn side(with_ports: bool) -> impl Strategy<Value = dp::RuleSide> {
    let named = || ids(["n:tcp", "n:high"]);
    let addrs = || ids(["s:even", "s:small"]);
    let numeric = move || {
        if with_ports { ports().boxed() } else { Just(vec![]).boxed() }
    };
    (nets(), nets(), numeric(), numeric(), named(), named(), addrs(), addrs(), named()).prop_map(
        |(nets, not_nets, ports, not_ports, named_port_sets, not_named, sets, not_sets, ip_port_sets)| {
            dp::RuleSide {
                nets,
                not_nets,
                ports,
                not_ports,
                named_port_sets,
                not_named_port_sets: not_named,
                sets,
                not_sets,
                ip_port_sets,
                ..Default::default()
            }
        },
    )
}

fn rule() -> impl Strategy<Value = dp::Rule> {
    let action =
        prop::sample::select(vec![dp::Action::Allow, dp::Action::Deny, dp::Action::Pass, dp::Action::Log]);
    let shape = prop_oneof![
        Just((Some(Protocol::Name("tcp".into())), true)),
        Just((Some(Protocol::Num(17)), true)),
        Just((Some(Protocol::Name("icmp".into())), false)),
        Just((Some(Protocol::Name("icmpv6".into())), false)),
        Just((None, false)),
    ];
    shape.prop_flat_map(move |(protocol, with_ports)| {
        let icmp_ok = matches!(protocol.as_ref().and_then(Protocol::to_number), Some(1 | 58));
        let icmp = || {
            if icmp_ok {
                prop::option::of(
                    (7u8..9, prop::option::of(0u8..2))
                        .prop_map(|(icmp_type, code)| dp::IcmpMatch { icmp_type, code }),
                )
                .boxed()
            } else {
                Just(None).boxed()
            }
        };
        let not_protocol = prop_oneof![4 => Just(None), 1 => Just(Some(Protocol::Num(17)))];
        (action.clone(), side(with_ports), side(with_ports), icmp(), icmp(), not_protocol).prop_map(
            move |(action, src, dst, icmp, not_icmp, not_protocol)| dp::Rule {
                action,
                ip_version: match &protocol {
                    Some(Protocol::Name(n)) if n == "icmp" => Some(IpVersion::V4),
                    Some(Protocol::Name(n)) if n == "icmpv6" => Some(IpVersion::V6),
                    _ => None,
                },
                protocol: protocol.clone(),
                not_protocol,
                icmp,
                not_icmp,
                src,
                dst,
                metadata: None,
                rule_id: "".into(),
            },
        )
    })
}

fn packet(version: IpVersion) -> impl Strategy<Value = Packet> {
    let icmp = if version == IpVersion::V4 { 1 } else { 58 };
    let protocol = prop::sample::select(vec![6, 6, 17, icmp, 132]);
    (addr(version), addr(version), protocol, 0u16..12, 0u16..12, (7u8..9, 0u8..2)).prop_map(
        |(src, dst, protocol, sport, dport, icmp)| Packet { src, dst, protocol, sport, dport, icmp },
    )
}

/// A rule that asks for as much as a rule can: four positive lists and two negated ones.
fn many_blocks() -> dp::Rule {
    let cidr = |t: &str| Cidr::parse(t).unwrap();
    let wide = dp::RuleSide {
        nets: vec![cidr("10.0.0.0/16"), cidr("10.1.0.0/16")],
        not_nets: vec![cidr("10.0.0.4/30")],
        ports: (0..10).chain(100..110).map(PortRange::single).collect(),
        ..Default::default()
    };
    dp::Rule {
        action: dp::Action::Allow,
        ip_version: None,
        protocol: Some(Protocol::Name("tcp".into())),
        not_protocol: None,
        icmp: None,
        not_icmp: None,
        src: wide.clone(),
        dst: wide,
        metadata: None,
        rule_id: "".into(),
    }
}

fn check(tiers: &[Vec<Vec<dp::Rule>>], profile: &[dp::Rule], packets: &[Packet], v: IpVersion) {
    let r = Renderer::new(Arc::new(RuleConfig::default()), v).unwrap();
    let mut chains = Vec::new();
    let mut ep = dp::WorkloadEndpoint {
        active: true,
        interface_name: "cali1".into(),
        profile_ids: vec!["prof".into()],
        ..Default::default()
    };
    for (t, policies) in tiers.iter().enumerate() {
        let mut ids = Vec::new();
        for (n, rules) in policies.iter().enumerate() {
            let id = dp::PolicyId {
                kind: "GlobalNetworkPolicy".into(),
                namespace: "".into(),
                name: format!("t{t}.p{n}").into(),
            };
            let policy = dp::Policy { inbound: rules.clone(), ..Default::default() };
            let out = r.policy_chains(&id, &policy);
            assert_eq!(out.problems, []);
            chains.extend(out.chains);
            ids.push(id);
        }
        ep.tiers.push(dp::TierInfo {
            name: format!("t{t}").into(),
            ingress: ids,
            egress: vec![],
            default_pass: false,
        });
    }
    let prof = dp::Profile { inbound: profile.to_vec(), outbound: vec![] };
    chains.extend(r.profile_chains("prof", &prof).chains);
    chains.extend(r.workload_chains(&ep, &|_| "all()".into()).chains);
    let chains: BTreeMap<SmolStr, Chain> =
        chains.into_iter().filter(|c| c.layer == Layer::Filter).map(|c| (c.name.clone(), c)).collect();
    let known: BTreeSet<_> = chains.keys().collect();
    for c in chains.values() {
        assert!(c.references().chains.iter().all(|to| known.contains(to)), "dangling jump in {}", c.name);
    }
    for packet in packets {
        let dirty = r.marks().all();
        let mut machine = Machine { chains: &chains, packet, version: v, mark: dirty };
        let end = machine.run("cali-tw-cali1");
        let allowed = end == End::Return && machine.mark & r.marks().accept != 0;
        assert_eq!(allowed, verdict(tiers, profile, packet, v), "{packet:?} {v:?}");
    }
}

#[test]
fn every_block_of_a_wide_rule_counts() {
    let packet = |src: [u8; 4], dst: [u8; 4], sport, dport| Packet {
        src: Ipv4Addr::from(src).into(),
        dst: Ipv4Addr::from(dst).into(),
        protocol: 6,
        sport,
        dport,
        icmp: (0, 0),
    };
    let packets = [
        packet([10, 0, 0, 1], [10, 1, 0, 1], 1, 1),
        packet([10, 2, 0, 1], [10, 1, 0, 1], 1, 1),
        packet([10, 0, 0, 1], [10, 2, 0, 1], 1, 1),
        packet([10, 0, 0, 1], [10, 1, 0, 1], 50, 1),
        packet([10, 0, 0, 1], [10, 1, 0, 1], 1, 50),
        packet([10, 0, 0, 5], [10, 1, 0, 1], 1, 1),
        packet([10, 0, 0, 1], [10, 0, 0, 5], 1, 1),
    ];
    check(&[vec![vec![many_blocks()]]], &[], &packets, IpVersion::V4);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn chains_mean_what_the_policy_says(
        tiers in prop::collection::vec(prop::collection::vec(prop::collection::vec(rule(), 0..4), 0..8), 0..3),
        profile in prop::collection::vec(rule(), 0..3),
        four in prop::collection::vec(packet(IpVersion::V4), 30),
        six in prop::collection::vec(packet(IpVersion::V6), 30),
    ) {
        check(&tiers, &profile, &four, IpVersion::V4);
        check(&tiers, &profile, &six, IpVersion::V6);
    }
}
