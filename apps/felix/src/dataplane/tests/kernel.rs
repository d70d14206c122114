//! Real packets through what one node programs.

use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use calico_dpmsg::{Action, HostEndpoint, Message};

use super::node::*;
use super::objects::*;

const A: &str = "10.0.0.1";
const B: &str = "10.0.0.2";
const A6: &str = "fd00::1";
const B6: &str = "fd00::2";

fn nets(addrs: &[&str]) -> Vec<String> {
    addrs.iter().map(|a| format!("{a}/{}", if a.contains(':') { 128 } else { 32 })).collect()
}

fn pod_message(name: &str, iface: &str, addrs: &[&str], tiers: Vec<calico_dpmsg::TierInfo>) -> Message {
    let nets = nets(addrs);
    workload(name, endpoint(iface, &nets.iter().map(String::as_str).collect::<Vec<_>>(), tiers))
}

/// Two pods; b is guarded by `tiers`.
fn two_pods(tiers: Vec<calico_dpmsg::TierInfo>) -> Vec<Message> {
    vec![
        profile("open", Action::Allow),
        pod_message("a", "calia", &[A, A6], vec![]),
        pod_message("b", "calib", &[B, B6], tiers),
        node("here", Some("172.16.5.1/24"), None),
        pool("10.0.0.0/16", false),
        Message::InSync,
    ]
}

fn start(dir: &std::path::Path) -> Node {
    let mut node = Node::new(params("here", dir, &[]));
    node.add_pod("a", "calia", &[A, A6]);
    node.add_pod("b", "calib", &[B, B6]);
    node
}

#[test]
fn policy_decides_about_real_packets() {
    on_node(|dir| {
        let mut node = start(dir);
        node.send(&two_pods(vec![]));
        node.settle();
        let default = || tier("default", &["web"], &[], false);
        for to in [B, B6] {
            node.pod("a").opens(to, 80);
        }
        // By port and by set.
        let web = |set: &str| {
            let mut allow = from_set(Action::Allow, set);
            (allow.protocol, allow.dst) =
                (to_port(Action::Allow, 80).protocol, to_port(Action::Allow, 80).dst);
            policy("web", "default", vec![allow], vec![])
        };
        node.send(&[set("s:friends", &["10.0.0.1/32", "fd00::/120"]), web("s:friends")]);
        node.send(&[pod_message("b", "calib", &[B, B6], vec![default()])]);
        node.settle();
        for to in [B, B6] {
            node.pod("a").opens(to, 80);
            node.pod("a").is_denied(to, 81);
        }
        node.pod("b").opens(A, 81);
        // The set changes.
        node.send(&[set_delta("s:friends", &[], &["10.0.0.1/32"])]);
        node.settle();
        node.pod("a").is_denied(B, 80);
        node.pod("a").opens(B6, 80);
        node.send(&[set_delta("s:friends", &["10.0.0.0/24"], &[])]);
        node.settle();
        node.pod("a").opens(B, 80);
        // A tier before: it passes what it does not deny.
        node.send(&[
            policy("guard", "first", vec![to_port(Action::Deny, 80), to_port(Action::Pass, 81)], vec![]),
            policy("web", "default", vec![to_port(Action::Allow, 81)], vec![]),
            pod_message("b", "calib", &[B, B6], vec![tier("first", &["guard"], &[], false), default()]),
        ]);
        node.settle();
        node.pod("a").is_denied(B, 80);
        node.pod("a").opens(B, 81);
        node.pod("a").asks(A, B, false);
        // Its default becomes to pass, and the next tier knows nothing of UDP.
        node.send(&[
            policy("web", "default", vec![rule(Action::Allow)], vec![]),
            pod_message("b", "calib", &[B, B6], vec![tier("first", &["guard"], &[], true), default()]),
        ]);
        node.settle();
        node.pod("a").asks(A, B, true);
        node.pod("a").is_denied(B, 80);
        // Egress of the sender counts as well.
        node.send(&[
            policy("out", "default", vec![], vec![to_port(Action::Deny, 81), rule(Action::Allow)]),
            pod_message("a", "calia", &[A, A6], vec![tier("default", &[], &["out"], false)]),
        ]);
        node.settle();
        node.pod("a").is_denied(B, 81);
        node.pod("a").asks(A, B, true);
    });
}

#[test]
fn what_is_not_the_pods_own_is_dropped() {
    on_node(|dir| {
        let mut node = start(dir);
        node.add_pod("stranger", "calix", &["10.0.0.66"]);
        shell("ip", &["route", "add", "10.0.0.66/32", "dev", "calix"]);
        node.send(&two_pods(vec![]));
        node.settle();
        node.pod("a").asks(A, B, true);
        // A source of nobody's, and another pod's.
        let mut inside = calico_netlink::Netlink::in_ns(&node.pod("a").ns).expect("socket");
        let eth0 = up(&mut inside, "eth0");
        for spoofed in ["10.9.9.9/32", "10.0.0.77/32"] {
            inside.add_address(&calico_netlink::Address::new(eth0, cidr(spoofed))).expect("address");
        }
        node.pod("a").asks("10.9.9.9", B, false);
        node.pod("a").asks("10.0.0.77", B, false);
        // A link without endpoint is dead in both directions; the host is closed to pods, pods are open to it.
        node.pod("stranger").is_denied(B, 80);
        node.pod("a").is_denied("10.0.0.66", 80);
        let host = calico_host::NetNs::current().expect("namespace");
        let mut own = calico_netlink::Netlink::new().expect("socket");
        let lo = up(&mut own, "lo");
        own.add_address(&calico_netlink::Address::new(lo, cidr("172.16.5.1/32"))).expect("address");
        let host = Machine::new(host, vec![ip("172.16.5.1")]);
        host.opens(B, 80);
        node.pod("a").is_denied("172.16.5.1", 80);
        // The endpoint goes: so does everything of it.
        node.send(&[no_workload("b")]);
        node.settle();
        node.pod("a").is_denied(B, 80);
        assert!(!shell("nft", &["list", "ruleset"]).contains("calib"));
        assert_eq!(node.routes().len(), 3, "{:?}", node.routes());
    });
}

#[test]
fn kernel_parameters_neighbours_and_status_of_a_workload() {
    on_node(|dir| {
        let mut node = start(dir);
        node.send(&two_pods(vec![]));
        node.settle();
        for (name, value) in [
            ("net/ipv4/conf/calia/route_localnet", "1"),
            ("net/ipv4/conf/calia/proxy_arp", "1"),
            ("net/ipv4/conf/calia/forwarding", "1"),
            ("net/ipv4/neigh/calia/proxy_delay", "0"),
            ("net/ipv6/conf/calia/proxy_ndp", "1"),
            ("net/ipv6/conf/calia/forwarding", "1"),
            ("net/ipv6/conf/calia/accept_ra", "0"),
            ("net/ipv4/ip_forward", "1"),
            ("net/ipv6/conf/all/forwarding", "1"),
        ] {
            assert_eq!(node.parameter(name), value, "{name}");
        }
        let neighbours = shell("ip", &["neigh", "show", "dev", "calia", "nud", "permanent"]);
        assert!(neighbours.contains("10.0.0.1 lladdr 02:aa:00:00:00:01"), "{neighbours}");
        assert_eq!(
            node.routes(),
            [
                "10.0.0.1/32 unicast calia",
                "10.0.0.2/32 unicast calib",
                "fd00::1/128 unicast calia",
                "fd00::2/128 unicast calib"
            ]
        );
        let file = std::fs::read_to_string(dir.join("endpoint-status/k8s default%2Fa eth0")).expect("file");
        assert!(file.contains("\"ifaceName\":\"calia\""), "{file}");
    });
}

/// Round trips of one socket, until told to stop; each must be answered.
fn flood(socket: &std::net::UdpSocket, stop: &AtomicBool, count: &AtomicUsize) {
    let mut buffer = [0; 16];
    for n in 0u64.. {
        if stop.load(Ordering::Acquire) {
            return;
        }
        socket.send(&n.to_be_bytes()).expect("send");
        socket.recv(&mut buffer).expect("an answer to each packet");
        assert_eq!(buffer[..8], n.to_be_bytes(), "no packet is lost or late");
        count.fetch_add(1, Ordering::Release);
    }
}

#[test]
fn a_restart_under_load_writes_nothing_loses_nothing_and_opens_nothing() {
    on_node(|dir| {
        let mut node = start(dir);
        let mut state = two_pods(vec![tier("default", &["web"], &[], false)]);
        let udp = calico_dpmsg::Rule {
            protocol: Some(calico_net::Protocol::Name("udp".into())),
            ..rule(Action::Allow)
        };
        state.insert(0, policy("web", "default", vec![to_port(Action::Allow, 80), udp], vec![]));
        state.insert(0, set("s:many", &["10.0.0.0/16", "10.0.1.0/24", "fd00::/64"]));
        node.send(&state);
        node.settle();
        let (stop, count, opened) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
        let (a, b) = (node.pod("a"), ip(B));
        let talker = a.talker(B);
        let client = &a.ns;
        let (restarts, writes) = std::thread::scope(|scope| {
            scope.spawn(|| flood(&talker, &stop, &count));
            scope.spawn(|| {
                let connect = |port, wait| TcpStream::connect_timeout(&(b, port).into(), wait);
                client
                    .run(|| {
                        while !stop.load(Ordering::Acquire) {
                            connect(80, Duration::from_secs(5)).expect("new connections that policy allows");
                            opened.fetch_add(1, Ordering::Release);
                            assert!(connect(81, Duration::from_millis(60)).is_err(), "what policy denies");
                        }
                    })
                    .expect("namespace");
            });
            let mut params_of = Node::new(params("here", dir, &[]));
            let mut restarts = 0;
            let mut writes = 0;
            let deadline = Instant::now() + Duration::from_secs(60);
            while (restarts < 5 || opened.load(Ordering::Acquire) < 10) && Instant::now() < deadline {
                params_of.restart();
                // Half of the state, then all: nothing is done with the half.
                params_of.send(&state[..2]);
                writes += params_of.apply().writes.total();
                params_of.send(&state);
                let report = params_of.apply();
                assert!(report.is_complete(), "{report:?}");
                writes += report.writes.total();
                restarts += 1;
            }
            stop.store(true, Ordering::Release);
            (restarts, writes)
        });
        assert!(restarts >= 5 && count.load(Ordering::Acquire) > 100, "{restarts} {count:?}");
        assert_eq!(writes, 0);
    });
}

#[test]
fn a_link_goes_and_comes_back() {
    on_node(|dir| {
        let mut node = start(dir);
        node.send(&two_pods(vec![]));
        node.settle();
        let status = dir.join("endpoint-status/k8s default%2Fb eth0");
        assert!(status.exists());
        node.pods.remove("b");
        node.nl.delete_link_by_name("calib").expect("delete");
        eventually("the end of the link", || {
            node.apply();
            !status.exists()
        });
        assert_eq!(node.routes().len(), 2);
        node.add_pod("b", "calib", &[B, B6]);
        eventually("the return of the link", || {
            node.apply();
            status.exists()
        });
        node.settle();
        node.pod("a").opens(B, 80);
        node.pod("a").opens(B6, 80);
        assert_eq!(node.parameter("net/ipv4/conf/calib/proxy_arp"), "1");
        // Down and up in between two looks: the kernel lost the routes.
        for state in ["down", "up"] {
            shell("ip", &["link", "set", "calib", state]);
        }
        assert!(node.routes().len() < 4);
        eventually("the return of the routes", || {
            node.apply();
            node.routes().len() == 4
        });
        node.pod("a").opens(B, 80);
        node.pod("a").opens(B6, 80);
    });
}

#[test]
fn foreign_changes_are_repaired() {
    on_node(|dir| {
        let mut node = start(dir);
        let mut state = two_pods(vec![tier("default", &["web"], &[], false)]);
        state.insert(0, policy("web", "default", vec![to_port(Action::Allow, 80)], vec![]));
        node.send(&state);
        node.settle();
        let before = node.routes();
        shell("nft", &["flush", "chain", "ip", "calico", "filter-FORWARD"]);
        shell("nft", &["flush", "chain", "ip", "calico", "filter-cali-tw-calib"]);
        shell("ip", &["route", "del", "10.0.0.2/32"]);
        shell(
            "ip",
            &["route", "replace", "10.0.0.1/32", "dev", "calia", "metric", "1024", "src", "127.0.0.1"],
        );
        shell("ip", &["route", "add", "10.0.0.99/32", "dev", "calia"]);
        shell("ip", &["-6", "route", "del", "fd00::2/128"]);
        shell("ip", &["neigh", "del", "10.0.0.2", "dev", "calib"]);
        node.dataplane.resync_tables();
        node.dataplane.resync_routes();
        let report = node.apply();
        assert!(report.repaired >= 5, "{report:?}");
        assert_eq!((report.writes.routes, report.writes.neighbours), (4, 1), "{report:?}");
        node.settle();
        assert_eq!(node.routes(), before);
        node.pod("a").opens(B, 80);
        node.pod("a").is_denied(B, 81);
        node.pod("a").opens(B6, 80);
        // The whole table away.
        shell("nft", &["delete", "table", "ip", "calico"]);
        node.dataplane.resync_tables();
        node.settle();
        node.pod("a").opens(B, 80);
        node.pod("a").is_denied(B, 81);
    });
}

#[test]
fn host_endpoints_guard_the_node() {
    on_node(|dir| {
        let fabric = namespace().expect("namespace");
        let mut outside = calico_netlink::Netlink::in_ns(&fabric).expect("socket");
        make_bridge(&mut outside, "br5", &["172.16.5.9/24"]);
        let mut node = start(dir);
        plug(&mut node.nl, &fabric, "br5", "eth0", "p1", &["172.16.5.1/24"]);
        let own = Machine::new(calico_host::NetNs::current().expect("namespace"), vec![ip("172.16.5.1")]);
        let outside = Machine::new(fabric, vec![ip("172.16.5.9")]);
        node.send(&two_pods(vec![]));
        node.settle();
        outside.opens("172.16.5.1", 80);
        outside.opens("172.16.5.1", 81);
        let guarded = HostEndpoint {
            expected_ips: vec![ip("172.16.5.1")],
            tiers: vec![tier("default", &["in"], &["in"], false)],
            ..HostEndpoint::default()
        };
        node.send(&[
            policy("in", "default", vec![to_port(Action::Allow, 80)], vec![to_port(Action::Allow, 81)]),
            host("h", guarded),
        ]);
        node.settle();
        outside.opens("172.16.5.1", 80);
        outside.is_denied("172.16.5.1", 81);
        own.opens("172.16.5.9", 81);
        own.is_denied("172.16.5.9", 80);
        // Forwarded traffic is not concerned, and another address ends the match.
        outside
            .ns
            .run(|| shell("ip", &["route", "add", "10.0.0.0/24", "via", "172.16.5.1"]))
            .expect("namespace");
        outside.opens(B, 81);
        shell("ip", &["addr", "del", "172.16.5.1/24", "dev", "eth0"]);
        shell("ip", &["addr", "add", "172.16.5.7/24", "dev", "eth0"]);
        node.settle();
        outside.opens("172.16.5.7", 81);
    });
}

/// A thousand policies and as many endpoints, ten policies each, a hundred sets: how long the kernel takes.
#[test]
#[ignore = "a measurement, to be read by a person"]
fn a_thousand_policies_and_endpoints() {
    use std::io::Write as _;
    on_node(|dir| {
        let mut node = Node::new(params("here", dir, &[]));
        for n in 0..1000 {
            let pair = calico_netlink::VethSpec {
                end: calico_netlink::PeerSpec { name: &format!("cali{n}"), ..Default::default() },
                peer: calico_netlink::PeerSpec { name: &format!("peer{n}"), ..Default::default() },
                ..Default::default()
            };
            node.nl.create_veth(&pair).expect("veth");
            up(&mut node.nl, &format!("cali{n}"));
            up(&mut node.nl, &format!("peer{n}"));
        }
        let mut messages = vec![profile("open", Action::Allow)];
        messages.extend((0..100).map(|n| {
            let nets: Vec<String> = (0..100).map(|m| format!("10.{n}.{m}.0/24")).collect();
            set(&format!("s:set{n}"), &nets.iter().map(String::as_str).collect::<Vec<_>>())
        }));
        messages.extend((0..1000).map(|n| {
            let mut allow = from_set(Action::Allow, &format!("s:set{}", n % 100));
            (allow.protocol, allow.dst) =
                (to_port(Action::Allow, 80).protocol, to_port(Action::Allow, 80).dst);
            policy(&format!("p{n}"), "default", vec![allow.clone(), to_port(Action::Deny, 81)], vec![allow])
        }));
        messages.extend((0..1000).map(|n| {
            let names: Vec<String> = (0..10).map(|m| format!("p{}", (n * 7 + m * 100) % 1000)).collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let addr = format!("10.200.{}.{}", n / 250, n % 250);
            pod_message(
                &format!("w{n}"),
                &format!("cali{n}"),
                &[&addr],
                vec![tier("default", &names, &names, false)],
            )
        }));
        messages.push(Message::InSync);
        let begin = Instant::now();
        node.send(&messages);
        let report = node.apply();
        let took = begin.elapsed();
        let again = Instant::now();
        let idle = node.apply();
        let restarted = Instant::now();
        node.restart();
        node.send(&messages);
        let after = node.apply();
        let _ = writeln!(
            std::io::stderr(),
            "first {took:?} {:?}, again {:?} {:?}, restart {:?} {:?}, failures {:?}",
            report.writes,
            restarted - again,
            idle.writes,
            restarted.elapsed(),
            after.writes,
            report.failures,
        );
        assert_eq!(after.writes.total(), 0);
    });
}
