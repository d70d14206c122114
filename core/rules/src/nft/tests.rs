use std::sync::Arc;

use calico_net::{Cidr, PortRange, Protocol};

use super::*;
use crate::ir::{Action, Match, ProtoPorts, Side};
use crate::{FloatingIp, RuleConfig, config};

fn renderer(change: impl FnOnce(&mut RuleConfig), version: IpVersion) -> Renderer {
    let mut config = RuleConfig::default();
    change(&mut config);
    Renderer::new(Arc::new(config), version).unwrap()
}

fn plain4() -> Renderer {
    renderer(|_| {}, IpVersion::V4)
}

fn one(layer: Layer, version: IpVersion, rule: Rule) -> NftRule {
    let c = Chain::with(layer, "c", vec![rule]);
    chain(version, &c).rules.remove(0)
}

fn text(rule: Rule) -> String {
    one(Layer::Filter, IpVersion::V4, rule).text
}

fn text6(rule: Rule) -> String {
    one(Layer::Filter, IpVersion::V6, rule).text
}

fn hashes(chain: &NftChain) -> Vec<&str> {
    chain.rules.iter().map(|r| r.hash.as_str()).collect()
}

#[test]
fn base_chains_have_upstream_digests_and_places() {
    let chains = base_chains(&plain4().hooks());
    let find = |name: &str| chains.iter().find(|c| c.chain.name == name).unwrap();
    let forward = find("filter-FORWARD");
    assert_eq!(hashes(&forward.chain), ["dpfqBgJrpRwlrqw1", "yp7iNUYNEhDmKF6E", "fXaqbwKfGHq5dvHP"]);
    assert_eq!(forward.chain.rules[1].comment, "cali:yp7iNUYNEhDmKF6E; Policy explicitly accepted packet.");
    assert_eq!(forward.hook, BaseHook { kind: "filter", hook: "forward", priority: 0 });
    assert_eq!(find("nat-OUTPUT").hook.priority, 110);
    assert_eq!(find("mangle-OUTPUT").hook.kind, "route");
    assert_eq!(hashes(&find("nat-POSTROUTING").chain), ["z057H0Z77Fcko47w"]);
    assert_eq!(hashes(&find("raw-OUTPUT").chain), ["VPZUYaZDz-FnULU0"]);
    assert_eq!(chains.len(), 14);
    let six = base_chains(&renderer(|_| {}, IpVersion::V6).hooks());
    assert_eq!(chains, six);
}

#[test]
fn static_chains_have_upstream_digests() {
    let r = plain4();
    let chains: Vec<NftChain> = r.static_chains().iter().map(|c| chain(r.version(), c)).collect();
    let find = |name: &str| chains.iter().find(|c| c.name == name).unwrap();
    assert_eq!(hashes(find("filter-cali-from-wl-dispatch")), ["Lui9n9_J-BlSLUtk", "KMISEjprqaGFiicp"]);
    assert_eq!(
        hashes(find("raw-cali-PREROUTING")).last().copied(),
        Some("QnDZrrYRirW4glFe"),
        "covers all rules before it"
    );
    assert_eq!(hashes(find("filter-cali-INPUT")).last().copied(), Some("ijboK_pMXERJZMMx"));
    assert_eq!(hashes(find("filter-cali-failsafe-in")).last().copied(), Some("p6aeCSMRv8GG7f8u"));
    assert!(find("filter-cali-from-wl-dispatch").refs.maps.contains("filter-cali-from-wl-dispatch"));
    assert!(find("mangle-cali-POSTROUTING").refs.sets.contains("cali40this-host"));
}

#[test]
fn vxlan_and_icmpv6_rules_have_upstream_digests() {
    let tunnel = config::Tunnel { enabled: true, address: None };
    let r = renderer(|c| c.vxlan_v4 = tunnel, IpVersion::V4);
    let chains = r.static_chains();
    let input = chains.iter().find(|c| c.name == "cali-INPUT").unwrap();
    let input = chain(IpVersion::V4, input);
    assert_eq!(input.rules[0].hash, "Gtn781KKHXqD1ZWy");
    assert!(input.rules[1].text.ends_with("drop"));
    let r = renderer(|_| {}, IpVersion::V6);
    let chains = r.static_chains();
    let to_host = chains.iter().find(|c| c.name == "cali-wl-to-host").unwrap();
    assert_eq!(chain(IpVersion::V6, to_host).rules[7].hash, "DDpL7PsXxz_F_U0-");
}

#[test]
fn reverse_path_exemptions_stay_in_their_family() {
    let nets = ["203.0.113.0/28", "2001:db8::/64"].map(|t| Cidr::parse(t).unwrap());
    let c = chain(IpVersion::V4, &plain4().rpf_skip_chain([("calibox01", &nets[..])]));
    assert_eq!(hashes(&c), ["LYn8WAi0C8qMn_z_"]);
    let c = chain(IpVersion::V6, &renderer(|_| {}, IpVersion::V6).rpf_skip_chain([("calibox01", &nets[..])]));
    assert_eq!(c.rules[0].text, "iifname \"calibox01\" ip6 saddr 2001:db8::/64 counter accept");
}

#[test]
fn arp_has_upstream_digests() {
    let (base, dispatch) = arp_base_chains();
    assert_eq!(hashes(&base.chain), ["M5ZyLTwdpKLA5dzX"]);
    assert_eq!(hashes(&dispatch), ["mNoxCVnxd-GKMMeq"]);
    let c = arp_chain("calibox01", &["10.91.1.5".parse().unwrap()]).unwrap();
    assert_eq!(hashes(&c), ["W1Pei3XmpB5oFM-E"]);
    assert_eq!(arp_chain("a\"b", &[]), None);
}

#[test]
fn texts() {
    let net = |t: &str| Match::Net { side: Side::Src, net: Cidr::parse(t).unwrap(), negate: false };
    let set = Match::IpPortSet { side: Side::Dst, set: "s".into(), negate: true };
    let ports = Match::Ports {
        side: Side::Dst,
        protocol: ProtoPorts::Tcp,
        ports: vec![PortRange::single(80), PortRange { first: 90, last: 100 }],
        negate: true,
    };
    let udp = Match::Protocol { protocol: Protocol::Name("udp".into()), negate: true };
    for (rule, want) in [
        (Rule::new([net("10.0.0.0/8")], Action::Drop), "ip saddr 10.0.0.0/8 counter drop"),
        (Rule::new([set], Action::Drop), "ip daddr . meta l4proto . th dport != @s counter drop"),
        (Rule::new([ports], Action::Accept), "tcp dport != { 80, 90-100 } counter accept"),
        // A number, so that no file of names is needed.
        (Rule::new([udp], Action::Return), "meta l4proto != 17 counter return"),
        (
            Rule::new([], Action::SetMaskedMark { value: 0x8, mask: 0x18 }),
            "counter meta mark set mark & 0xffffffe7 ^ 0x8",
        ),
        (Rule::new([Match::MarkNotClear(3)], Action::NoTrack), "meta mark & 0x3 != 0 counter notrack"),
        (
            Rule::new([Match::in_prefix("cali")], Action::Jump("x".into())),
            "iifname \"cali*\" counter jump filter-x",
        ),
        (Rule::default(), "continue"),
    ] {
        assert_eq!(text(rule), want);
    }
    assert_eq!(text6(Rule::new([net("fd00::/8")], Action::Drop)), "ip6 saddr fd00::/8 counter drop");
}

#[test]
fn icmp_texts() {
    let icmp = |code, negate| Rule::new([Match::Icmp { icmp_type: 3, code, negate }], Action::Drop);
    assert_eq!(text(icmp(None, true)), "icmp type != 3 counter drop");
    assert_eq!(text(icmp(Some(4), false)), "icmp type 3 icmp code 4 counter drop");
    assert_eq!(text(icmp(Some(4), true)), "icmp type . icmp code != { 3 . 4 } counter drop");
    assert_eq!(text6(icmp(Some(4), false)), "icmpv6 type 3 icmpv6 code 4 counter drop");
}

#[test]
fn nat_texts() {
    let nat = |addr: Option<&str>, ports: Option<(u16, u16)>, random| {
        let ports = ports.map(|(first, last)| PortRange { first, last });
        let to = crate::NatTo { addr: addr.map(|a| a.parse().unwrap()), ports, random };
        Rule::new([], Action::SourceNat(to))
    };
    let range = Some((32768, 65535));
    assert_eq!(text(nat(None, range, true)), "counter masquerade to :32768-65535 fully-random");
    assert_eq!(text(nat(None, range, false)), "counter masquerade to :32768-65535");
    assert_eq!(text(nat(Some("192.0.2.1"), range, false)), "counter snat to 192.0.2.1:32768-65535");
    assert_eq!(text6(nat(Some("2001:db8::1"), range, false)), "counter snat to [2001:db8::1]:32768-65535");
    assert_eq!(text6(nat(Some("2001:db8::1"), None, true)), "counter snat to 2001:db8::1 fully-random");
    let dnat = |port| Action::DestNat { addr: "2001:db8::1".parse().unwrap(), port };
    assert_eq!(text6(Rule::new([], dnat(Some(80)))), "counter dnat to [2001:db8::1]:80");
    assert_eq!(text6(Rule::new([], dnat(None))), "counter dnat to 2001:db8::1");
}

#[test]
fn nat_outgoing() {
    let r = renderer(|c| c.nat_interface_filter = Some("eth+".into()), IpVersion::V4);
    let c = chain(IpVersion::V4, &r.nat_outgoing_chain(true));
    assert!(c.rules[0].text.contains("oifname \"eth*\" counter masquerade"), "{}", c.rules[0].text);
    assert!(r.nat_outgoing_chain(false).rules.is_empty());
    let r = renderer(
        |c| {
            c.nat_port_range = Some(PortRange { first: 40000, last: 50000 });
            c.nat_outgoing_address = Some("192.0.2.200".parse().unwrap());
        },
        IpVersion::V6,
    );
    let c = chain(IpVersion::V6, &r.nat_outgoing_chain(true));
    assert_eq!(c.rules.len(), 5);
    assert!(c.rules.iter().all(|r| !r.text.contains("192.0.2.200")), "another family's address");
}

#[test]
fn floating_addresses() {
    let ip = |e: &str, i: &str| FloatingIp { external: e.parse().unwrap(), internal: i.parse().unwrap() };
    let mut ips = vec![
        ip("203.0.113.70", "10.91.1.5"),
        ip("203.0.113.71", "10.91.1.5"),
        ip("203.0.113.71", "10.91.1.4"),
        ip("fd00::1", "fd00::2"),
    ];
    let [dnat, snat] = plain4().floating_ip_chains(&ips);
    assert_eq!(chain(IpVersion::V4, &dnat).rules[0].hash, "9VkXZIt0Gg3_nodP");
    assert_eq!(chain(IpVersion::V4, &dnat).rules[1].text, "ip daddr 203.0.113.71 counter dnat to 10.91.1.4");
    assert_eq!(snat.rules.len(), 2);
    ips.reverse();
    assert_eq!(plain4().floating_ip_chains(&ips), [dnat, snat], "order does not matter");
}

#[test]
fn comments_fit() {
    let long = "x".repeat(200);
    let r =
        one(Layer::Filter, IpVersion::V4, Rule::new([], Action::Drop).comment(&*long).comment(long.clone()));
    assert!(r.comment.len() <= 128, "{}", r.comment.len());
    assert!(r.comment.len() > 100);
    let r = one(Layer::Filter, IpVersion::V4, Rule::new([], Action::Drop).comment("a\"b\nc\u{e9}"));
    assert!(r.comment.ends_with("; a_b_c_"), "{}", r.comment);
    assert_eq!(hash_of_comment(&r.comment), Some(r.hash.as_str()));
    assert_eq!(hash_of_comment("cali:short;"), None);
    assert_eq!(hash_of_comment("hello"), None);
}

#[test]
fn log_prefixes_cannot_end_their_quotes() {
    let log = |prefix: &str| text(Rule::new([], Action::Log { prefix: prefix.into(), limit: None }));
    assert_eq!(log("calico-packet"), "counter log prefix \"calico-packet: \" level info");
    assert_eq!(log("a\" drop $x\n"), "counter log prefix \"a_ drop _x_: \" level info");
    assert!(log(&"y".repeat(300)).len() < 170);
    let limited = Action::Log { prefix: "p".into(), limit: Some(("5/minute; drop".into(), 7)) };
    assert_eq!(
        text(Rule::new([], limited)),
        "limit rate 5/minutedrop burst 7 packets counter log prefix \"p: \" level info"
    );
}

#[test]
fn settings_that_cannot_be_written_are_refused() {
    let check = |change: fn(&mut RuleConfig)| {
        let mut c = RuleConfig::default();
        change(&mut c);
        Renderer::new(Arc::new(c), IpVersion::V4).map(|_| ())
    };
    assert!(check(|c| c.workload_prefixes.clear()).is_err());
    assert!(check(|c| c.workload_prefixes = vec!["cali*".into()]).is_err());
    assert!(check(|c| c.nat_interface_filter = Some("e\" accept".into())).is_err());
    assert!(check(|c| c.nat_interface_filter = Some("eth+".into())).is_ok());
    assert!(check(|c| c.mark_mask = 0xf).is_err());
}
