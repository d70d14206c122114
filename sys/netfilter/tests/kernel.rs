//! The driver against the kernel, each test in a network namespace of its own thread, which goes with it.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use std::collections::BTreeSet;
use std::io::Write as _;
use std::net::UdpSocket;
use std::process::Command;
use std::sync::Arc;

use calico_dpmsg as dp;
use calico_dpmsg::Member;
use calico_net::{Cidr, IpVersion, PortRange, Protocol};
use calico_netfilter::{Family, NftDataplane, NftKernel as _, RealNft, Transaction, delete_table};
use calico_rules::nft::{self, SetKey};
use calico_rules::{
    Action, Chain, FloatingIp, Hook, HostDispatch, KernelChain, Layer, Match, Renderer, Rule, RuleConfig,
    Side, config, names,
};
use nix::sched::{CloneFlags, unshare};
use smol_str::SmolStr;

const V4: Family = Family::Ip(IpVersion::V4);
type Dataplane = NftDataplane<RealNft>;

/// Runs `test` on a thread with a network namespace of its own.
fn in_namespace(test: impl FnOnce() + Send + 'static) {
    if !nix::unistd::geteuid().is_root() {
        return skip("needs root to make a network namespace");
    }
    if Command::new("nft").arg("--version").output().is_err() {
        return skip("nft is not installed");
    }
    let thread = std::thread::spawn(|| {
        unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace");
        run("ip", &["link", "set", "lo", "up"]);
        test();
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

fn skip(reason: &str) {
    let _ = writeln!(std::io::stderr(), "skipped: {reason}");
}

fn run(program: &str, args: &[&str]) -> String {
    let out = Command::new(program).args(args).output().expect("the program runs");
    assert!(out.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).into_owned()
}

fn nft(text: &str) -> String {
    run("nft", &[text])
}

fn new(family: Family) -> Dataplane {
    NftDataplane::new(RealNft::new().unwrap(), family, "calico")
}

fn net(text: &str) -> Member {
    Member::Net(Cidr::parse(text).unwrap())
}

fn port(addr: &str, protocol: u8, port: u16) -> Member {
    Member::IpPort { addr: addr.parse().unwrap(), protocol, port }
}

fn chain(name: &str, rules: Vec<Rule>) -> nft::NftChain {
    nft::chain(IpVersion::V4, &Chain { layer: Layer::Filter, name: name.into(), rules })
}

fn from_set(set: &str) -> Rule {
    Rule::new([Match::Set { side: Side::Dst, set: set.into(), negate: false }], Action::Drop)
}

/// An output hook that jumps to chain `root`.
fn output_base() -> Vec<nft::NftBaseChain> {
    let jump = Rule::new([], Action::Jump("root".into()));
    let hook =
        Hook { layer: Layer::Filter, chain: KernelChain::Output, inserted: vec![jump], appended: vec![] };
    nft::base_chains(&[hook])
}

fn seen_members(d: &mut Dataplane, set: &str) -> BTreeSet<Member> {
    let family = d.family();
    let t = d.kernel_mut().read(family, "calico").unwrap().unwrap();
    assert!(!t.sets[set].odd);
    t.sets[set].members.iter().copied().collect()
}

// === a whole node ===

fn rule(action: dp::Action) -> dp::Rule {
    dp::Rule {
        action,
        ip_version: None,
        protocol: None,
        not_protocol: None,
        icmp: None,
        not_icmp: None,
        src: dp::RuleSide::default(),
        dst: dp::RuleSide::default(),
        metadata: None,
        rule_id: "".into(),
    }
}

/// A rule of every kind that the renderer knows.
fn rules_of_all_kinds() -> Vec<dp::Rule> {
    let nets = |ts: &[&str]| ts.iter().map(|t| Cidr::parse(t).unwrap()).collect::<Vec<_>>();
    let all = |change: &dyn Fn(&mut dp::Rule)| {
        let mut r = rule(dp::Action::Deny);
        change(&mut r);
        r
    };
    let icmp = |icmp_type, code| Some(dp::IcmpMatch { icmp_type, code });
    let mut out = vec![
        rule(dp::Action::Log),
        all(&|r| {
            r.protocol = Some(Protocol::Name("tcp".into()));
            r.src.ports = (1..40).map(PortRange::single).collect();
            r.dst.ports = vec![PortRange { first: 80, last: 90 }, PortRange::single(443)];
            r.dst.named_port_sets = vec!["n:ports".into()];
            r.src.nets = nets(&["10.0.0.0/8", "192.168.0.0/16", "fd00::/8", "fd01::/16"]);
            r.src.not_nets = nets(&["10.1.0.0/16", "10.2.0.0/16", "fd00:1::/32", "fd00:2::/32"]);
        }),
        all(&|r| {
            r.protocol = Some(Protocol::Name("sctp".into()));
            r.dst.not_ports = vec![PortRange::single(7)];
            r.src.not_named_port_sets = vec!["n:ports".into()];
            r.src.sets = vec!["s:nets".into()];
            r.dst.not_sets = vec!["s:nets".into()];
            r.dst.ip_port_sets = vec!["n:ports".into()];
        }),
        all(&|r| r.not_protocol = Some(Protocol::Name("udplite".into()))),
        all(&|r| r.protocol = Some(Protocol::Num(41))),
        all(&|r| {
            r.action = dp::Action::Pass;
            r.src.nets = nets(&["10.0.0.1/32", "fd00::1/128"]);
        }),
        rule(dp::Action::Allow),
        rule(dp::Action::Deny),
    ];
    for (name, version) in [("icmp", IpVersion::V4), ("icmpv6", IpVersion::V6)] {
        for (yes, no) in [
            (icmp(8, None), None),
            (icmp(3, Some(4)), None),
            (None, icmp(8, None)),
            (None, icmp(8, Some(0))),
            (icmp(3, Some(4)), icmp(5, Some(1))),
        ] {
            out.push(all(&|r| {
                r.protocol = Some(Protocol::Name(name.into()));
                r.ip_version = Some(version);
                r.icmp = yes;
                r.not_icmp = no;
            }));
        }
    }
    out
}

fn node(version: IpVersion) -> Dataplane {
    let mut c = RuleConfig {
        vxlan_v4: config::Tunnel { enabled: true, address: Some([10, 0, 0, 1].into()) },
        vxlan_v6: config::Tunnel { enabled: true, address: Some("fd00::1".parse().unwrap()) },
        ipip: config::Tunnel { enabled: true, address: Some([10, 0, 0, 2].into()) },
        nat_port_range: Some(PortRange { first: 32768, last: 65535 }),
        nat_interface_filter: Some("eth+".into()),
        nat_exclusions: config::NatExclusions::IpPoolsAndHosts,
        filter_deny: config::DenyAction::Reject,
        log_limit: Some(("5/minute".into(), 5)),
        flow_logs: true,
        openstack: Some(config::OpenStack {
            metadata_addr: Some([127, 0, 0, 1].into()),
            metadata_port: 8775,
        }),
        ..RuleConfig::default()
    };
    c.failsafe_inbound[0].net = Some(Cidr::parse("10.0.0.0/8").unwrap());
    let r = Renderer::new(Arc::new(c), version).unwrap();
    let selector = |_: &dp::PolicyId| SmolStr::from("all()");
    let id = |name: &str| dp::PolicyId {
        kind: "KubernetesNetworkPolicy".into(),
        namespace: "shop".into(),
        name: name.into(),
    };
    let tier = |names: &[&str]| dp::TierInfo {
        name: "default".into(),
        ingress: names.iter().map(|n| id(n)).collect(),
        egress: names.iter().map(|n| id(n)).collect(),
        default_pass: false,
    };
    let mut chains = r.static_chains();
    let policy = dp::Policy {
        tier: "default".into(),
        inbound: rules_of_all_kinds(),
        outbound: rules_of_all_kinds(),
        ..Default::default()
    };
    for name in ["a", "b", "c", "d", "e", "f"] {
        let out = r.policy_chains(&id(name), &policy);
        assert_eq!(out.problems, []);
        chains.extend(out.chains);
    }
    let untracked = dp::Policy { untracked: true, ..policy.clone() };
    let pre_dnat = dp::Policy { pre_dnat: true, ..policy };
    chains.extend(r.policy_chains(&id("raw"), &untracked).chains);
    chains.extend(r.policy_chains(&id("pre"), &pre_dnat).chains);
    let profile = dp::Profile { inbound: rules_of_all_kinds(), outbound: vec![] };
    chains.extend(r.profile_chains("kns.shop", &profile).chains);
    let workload = dp::WorkloadEndpoint {
        active: true,
        interface_name: "cali1".into(),
        profile_ids: vec!["kns.shop".into()],
        tiers: vec![tier(&["a", "b", "c", "d", "e", "f"])],
        ..Default::default()
    };
    chains.extend(r.workload_chains(&workload, &selector).chains);
    let host = dp::HostEndpoint {
        profile_ids: vec!["kns.shop".into()],
        tiers: vec![tier(&["a"])],
        untracked_tiers: vec![tier(&["raw"])],
        pre_dnat_tiers: vec![tier(&["pre"])],
        forward_tiers: vec![tier(&["a", "b", "c"])],
        ..Default::default()
    };
    let mut hosts = HostDispatch { any: true, any_pre_dnat: true, ..Default::default() };
    for iface in ["eth0", "eth1", "tcp"] {
        chains.extend(r.host_endpoint_chains(iface, &host, &selector).chains);
        hosts.normal.insert(iface.into());
        hosts.untracked.insert(iface.into());
        hosts.pre_dnat.insert(iface.into());
    }
    chains.extend(r.host_endpoint_chains(names::ANY_INTERFACE, &host, &selector).chains);
    chains.extend(r.host_dispatch_chains(&hosts));
    let services = ["10.96.0.0/12", "fd00:96::/108"].map(|t| Cidr::parse(t).unwrap());
    chains.push(r.service_loop_chain(&services));
    chains.push(r.nat_outgoing_chain(true));
    let ip = |t: &str| t.parse().unwrap();
    chains.extend(r.floating_ip_chains(&[
        FloatingIp { external: ip("203.0.113.1"), internal: ip("10.0.0.9") },
        FloatingIp { external: ip("2001:db8::1"), internal: ip("fd00::9") },
    ]));
    let spoof = ["203.0.113.0/28", "2001:db8::/64"].map(|t| Cidr::parse(t).unwrap());
    chains.push(r.rpf_skip_chain([("cali1", &spoof[..])]));

    let mut d = new(Family::Ip(version));
    d.set_base_chains(nft::base_chains(&r.hooks()));
    d.update_chains("all", chains.iter().map(|c| nft::chain(version, c)).collect());
    for map in nft::workload_maps() {
        d.add_map(&map);
    }
    for entry in r.workload_entries("cali1") {
        let (map, iface, chain) = nft::map_entry(&entry);
        d.set_verdict(&map, &iface, Some(chain));
    }
    for set in r.static_set_ids() {
        d.set_members(&names::set(version, set), nft::SetKey::of_static(set), []);
    }
    d.set_members(
        &names::set(version, "s:nets"),
        SetKey::Net,
        [net("10.0.0.0/8"), net("10.1.0.0/16"), net("fd00::/8"), net("fd00:1::/32")],
    );
    d.set_members(
        &names::set(version, "n:ports"),
        SetKey::AddrProtoPort,
        [port("10.0.0.1", 6, 80), port("fd00::1", 132, 65535)],
    );
    d
}

#[test]
fn a_whole_node_is_programmed_and_found_again() {
    in_namespace(|| {
        for version in IpVersion::BOTH {
            let mut d = node(version);
            let report = d.apply().unwrap();
            assert_eq!(report.pending, []);
            assert!(d.dangling_chains().is_empty(), "{:?}", d.dangling_chains());
            // A restart finds everything as it should be.
            let mut again = node(version);
            let report = again.apply().unwrap();
            assert_eq!((report.pending, report.transactions), (vec![], 0));
            assert_eq!(again.sizes(), d.sizes());
            // The people's program reads what we wrote.
            let family = Family::Ip(version).name();
            let listing = nft(&format!("list table {family} calico"));
            assert!(listing.contains("oifname \"tcp\" counter packets 0 bytes 0 goto filter-cali-th-tcp"));
            assert!(listing.contains("\"cali1\" : goto filter-cali-fw-cali1"));
        }
    });
}

#[test]
fn arp_table() {
    in_namespace(|| {
        let build = || {
            let mut d = NftDataplane::new(RealNft::new().unwrap(), Family::Arp, nft::ARP_TABLE);
            let (base, dispatch) = nft::arp_base_chains();
            d.set_base_chains(vec![base]);
            let own = nft::arp_chain("cali1", &[[10, 0, 0, 1].into(), [10, 0, 0, 2].into()]).unwrap();
            d.set_verdict(&nft::arp_map(), &"cali1".into(), Some(own.name.clone()));
            d.update_chains("arp", vec![dispatch, own]);
            d
        };
        let mut d = build();
        assert_eq!(d.apply().unwrap().pending, []);
        assert!(nft("list table arp calico-arp").contains("arp saddr ip 10.0.0.2"));
        assert_eq!(build().apply().unwrap().transactions, 0);
    });
}

#[test]
fn tampering_is_repaired() {
    in_namespace(|| {
        let mut d = node(IpVersion::V4);
        d.apply().unwrap();
        let good = listing();
        for tamper in [
            "flush chain ip calico filter-FORWARD",
            "insert rule ip calico filter-cali-FORWARD accept",
            "add rule ip calico filter-cali-tw-cali1 accept",
            "flush chain ip calico filter-cali-pi-knp/shop/a",
            "add chain ip calico stranger { type filter hook forward priority 5; policy drop; }",
            "add element ip calico cali40s-nets { 192.0.2.0/24 }",
            "add element ip calico cali40s-nets { 172.16.0.1-172.16.0.6 }",
            "delete element ip calico cali40s-nets { 10.0.0.0/8 }",
            "flush map ip calico filter-cali-from-wl-dispatch",
            "add element ip calico filter-cali-from-wl-dispatch { \"cali9\" : accept }",
            "add set ip calico stranger { type inet_service; }",
            "delete table ip calico",
            "flush ruleset",
        ] {
            nft(tamper);
            assert_ne!(listing(), good, "{tamper}");
            d.resync();
            let report = d.apply().unwrap();
            assert_eq!(report.pending, [], "{tamper}");
            assert!(report.repaired > 0, "{tamper}");
            assert_eq!(listing(), good, "{tamper}");
        }
        // Nothing changed: nothing is read.
        d.resync();
        assert!(!d.apply().unwrap().read);
        // Another program's change elsewhere: read, and found right.
        nft("add table ip other");
        d.resync();
        let report = d.apply().unwrap();
        assert_eq!((report.read, report.repaired, report.transactions), (true, 0, 0));
    });
}

/// The table without counters, its lines sorted; none if it is not there.
fn listing() -> Option<Vec<String>> {
    let out = Command::new("nft").args(["-s", "list", "table", "ip", "calico"]).output().unwrap();
    let mut lines: Vec<String> = String::from_utf8_lossy(&out.stdout).lines().map(str::to_owned).collect();
    lines.sort();
    out.status.success().then_some(lines)
}

#[test]
fn sets_at_their_edges() {
    in_namespace(|| {
        for (family, nets) in [
            (
                V4,
                &[
                    &["0.0.0.0/0"][..],
                    &["0.0.0.0/1", "128.0.0.0/1"],
                    &["0.0.0.0/32", "255.255.255.255/32"],
                    &["10.0.0.0/25", "10.0.0.128/25", "10.0.1.0/24", "10.0.2.1/32", "10.0.2.2/32"],
                    &["10.0.0.0/8", "10.0.0.0/16", "10.0.0.1/32", "192.0.2.0/24"],
                    &[],
                ][..],
            ),
            (
                Family::Ip(IpVersion::V6),
                &[
                    &["::/0"][..],
                    &["::/1", "8000::/1"],
                    &["::/128", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128"],
                    &["fd00::/8", "fd00::1/128", "fe00::/8"],
                ],
            ),
        ] {
            let mut d = new(family);
            let set: SmolStr = "s".into();
            for nets in nets {
                let members: Vec<Member> = nets.iter().map(|n| net(n)).collect();
                d.set_members(&set, SetKey::Net, members.iter().copied());
                assert_eq!(d.apply().unwrap().pending, [], "{nets:?}");
                let exposed: BTreeSet<Member> = members
                    .iter()
                    .filter(|m| !members.iter().any(|o| o != *m && covers(o, m)))
                    .copied()
                    .collect();
                assert_eq!(seen_members(&mut d, "s"), exposed);
                // The same set as `nft` itself would have filled it.
                let mut tx = Transaction::new(family, "calico".into());
                tx.ops.push(calico_netfilter::Op::FlushSet { set: set.clone() });
                if !exposed.is_empty() {
                    tx.ops.push(calico_netfilter::Op::AddMembers {
                        set: set.clone(),
                        key: SetKey::Net,
                        members: exposed.iter().copied().collect(),
                    });
                }
                let ours = nft(&format!("list set {} calico s", family.name()));
                run_script(&tx.script());
                assert_eq!(nft(&format!("list set {} calico s", family.name())), ours);
                d.resync();
                assert_eq!(d.apply().unwrap().transactions, 0);
            }
        }
    });
}

fn covers(a: &Member, b: &Member) -> bool {
    matches!((a, b), (Member::Net(a), Member::Net(b)) if a.covers(b))
}

fn run_script(script: &str) {
    let mut child =
        Command::new("nft").args(["-f", "-"]).stdin(std::process::Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success(), "{script}");
}

#[test]
fn many_members_of_each_kind() {
    const COUNT: u32 = 30_000;
    in_namespace(|| {
        let mut d = new(V4);
        let addr = |n: u32| std::net::Ipv4Addr::from_bits(0x0a00_0000 + n * 3);
        let host = |n| Member::Net(Cidr::host(addr(n).into()));
        let ports = |n: u32| Member::IpPort { addr: addr(n).into(), protocol: 17, port: n as u16 };
        let (a, b, c): (SmolStr, SmolStr, SmolStr) = ("a".into(), "b".into(), "c".into());
        d.set_members(&a, SetKey::Addr, (0..COUNT).map(host));
        d.set_members(&b, SetKey::Net, (0..COUNT).map(host));
        d.set_members(&c, SetKey::AddrProtoPort, (0..COUNT).map(ports));
        assert_eq!(d.apply().unwrap().pending, []);
        assert_eq!(d.sizes().members, 3 * COUNT as usize);
        for (set, make) in [("a", &host as &dyn Fn(u32) -> Member), ("b", &host), ("c", &ports)] {
            assert_eq!(seen_members(&mut d, set), (0..COUNT).map(make).collect(), "{set}");
        }
        // Half of them move, at once.
        d.set_members(&a, SetKey::Addr, (COUNT / 2..COUNT * 3 / 2).map(host));
        d.set_members(&b, SetKey::Net, (COUNT / 2..COUNT * 3 / 2).map(host));
        assert_eq!(d.apply().unwrap().transactions, 1);
        assert_eq!(seen_members(&mut d, "b"), (COUNT / 2..COUNT * 3 / 2).map(host).collect());
        d.resync_fully();
        let report = d.apply().unwrap();
        assert_eq!((report.transactions, report.repaired), (0, 0));
    });
}

#[test]
fn random_networks_come_and_go() {
    use proptest::prelude::*;
    use proptest::test_runner::{Config, TestRunner};
    in_namespace(|| {
        let member = || {
            (0u8..4, 0u8..8, prop::sample::select(vec![8u8, 14, 16, 23, 24, 30, 32]))
                .prop_map(|(a, b, len)| Member::Net(Cidr::new([10, a, b, 0].into(), len).unwrap().masked()))
        };
        let step = (prop::collection::vec(member(), 0..8), prop::collection::vec(member(), 0..8));
        let mut d = new(V4);
        let set: SmolStr = "s".into();
        let mut runner =
            TestRunner::new(Config { cases: 20, failure_persistence: None, ..Config::default() });
        let d = std::cell::RefCell::new(&mut d);
        runner
            .run(&prop::collection::vec(step, 1..12), |steps| {
                let mut d = d.borrow_mut();
                d.set_members(&set, SetKey::Net, []);
                let mut all = BTreeSet::new();
                for (added, removed) in steps {
                    d.delta_members(&set, &added, &removed);
                    removed.iter().for_each(|m| {
                        all.remove(m);
                    });
                    all.extend(added);
                    let report = d.apply().unwrap();
                    prop_assert_eq!(report.pending, vec![]);
                    let exposed: BTreeSet<Member> = all
                        .iter()
                        .filter(|m| !all.iter().any(|o| o != *m && covers(o, m)))
                        .copied()
                        .collect();
                    prop_assert_eq!(seen_members(&mut d, "s"), exposed);
                }
                Ok(())
            })
            .unwrap();
    });
}

#[test]
fn verdicts_follow_members_at_once() {
    in_namespace(|| {
        let mut d = new(V4);
        let set: SmolStr = "blocked".into();
        d.set_base_chains(output_base());
        d.update_chains("static", vec![chain("root", vec![from_set("blocked")])]);
        d.set_members(&set, SetKey::Net, []);
        assert_eq!(d.apply().unwrap().pending, []);
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let passes = |to: &str| socket.send_to(b"x", (to, 9)).is_ok();
        assert!(passes("127.0.0.2"));
        for (add, remove, two, three) in [
            (Some("127.0.0.2/32"), None, false, true),
            (Some("127.0.0.0/24"), None, false, false),
            (None, Some("127.0.0.0/24"), false, true),
            (None, Some("127.0.0.2/32"), true, true),
        ] {
            let one = |t: Option<&str>| t.map(net).into_iter().collect::<Vec<_>>();
            d.delta_members(&set, &one(add), &one(remove));
            assert_eq!(d.apply().unwrap().transactions, 1);
            assert_eq!((passes("127.0.0.2"), passes("127.0.0.3")), (two, three), "{add:?} {remove:?}");
        }
    });
}

#[test]
fn what_the_kernel_refuses_holds_up_nothing_else() {
    in_namespace(|| {
        let mut d = new(V4);
        d.set_base_chains(output_base());
        let jump = |to: &str| Rule::new([], Action::Jump(to.into()));
        let mut broken = chain("broken", vec![from_set("s")]);
        broken.rules[0].text = "no such words".into();
        // Two chains that call each other.
        let ring = [chain("x", vec![jump("y")]), chain("y", vec![jump("x")])];
        d.update_chains(
            "good",
            vec![chain("root", vec![from_set("s"), jump("fine")]), chain("fine", vec![])],
        );
        d.update_chains("broken", vec![broken]);
        d.update_chains("ring", ring.to_vec());
        for chain in ["broken", "x", "fine"] {
            d.set_verdict(&"m".into(), &format!("if-{chain}").into(), Some(format!("filter-{chain}").into()));
        }
        d.set_members(&"s".into(), SetKey::Net, [net("127.0.0.9/32")]);
        let report = d.apply().unwrap();
        let what: BTreeSet<&str> = report.pending.iter().map(|p| p.what.as_str()).collect();
        assert!(what.contains("chain filter-broken"), "{what:?}");
        assert!(what.contains("element if-x of map m"), "{what:?}");
        assert!(!what.iter().any(|w| w.contains("fine") || w.contains("root")), "{what:?}");
        let map = nft("list map ip calico m");
        assert!(map.contains("if-fine") && !map.contains("if-broken"), "{map}");
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(socket.send_to(b"x", "127.0.0.9:9").is_err(), "the good rule is in force");
        assert!(socket.send_to(b"x", "127.0.0.8:9").is_ok());
    });
}

#[test]
fn set_of_another_type_and_wrong_base_chain_are_replaced() {
    in_namespace(|| {
        nft("add table ip calico; add set ip calico blocked { type inet_service; }");
        nft("add chain ip calico filter-OUTPUT { type filter hook output priority 7; }");
        nft("add rule ip calico filter-OUTPUT udp dport @blocked drop");
        let mut d = new(V4);
        d.set_base_chains(output_base());
        d.update_chains("static", vec![chain("root", vec![from_set("blocked")])]);
        d.set_members(&"blocked".into(), SetKey::Net, [net("127.0.0.2/32")]);
        let report = d.apply().unwrap();
        assert!(report.recreated && report.is_complete(), "{report:?}");
        assert!(nft("list chain ip calico filter-OUTPUT").contains("priority filter"));
        // The hook alone is mended in place.
        nft("flush chain ip calico filter-OUTPUT; delete chain ip calico filter-OUTPUT");
        nft("add chain ip calico filter-OUTPUT { type filter hook output priority 7; }");
        d.resync();
        let report = d.apply().unwrap();
        assert!(!report.recreated && report.is_complete(), "{report:?}");
        assert!(nft("list chain ip calico filter-OUTPUT").contains("priority filter"));
        assert!(delete_table(d.kernel_mut(), V4, "calico").unwrap());
        assert!(!delete_table(d.kernel_mut(), V4, "calico").unwrap());
    });
}
