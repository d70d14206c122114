//! Against the running kernel. Each test's thread gets a network namespace of its own, which ends with the thread.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write as _;
use std::net::{IpAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use calico_net::{Cidr, IpVersion, Mac};
use calico_netlink::{
    Address, Conntrack, Errno, Event, FdbEntry, LinkChange, Monitor, MonitorGroups, MonitorStream, Neighbour,
    Netlink, NetlinkError, NextHop, Object, PeerSpec, Route, RouteFilter, RouteKind, RouteProtocol,
    RouteScope, VethSpec, VxlanSpec,
};
use nix::sched::{CloneFlags, unshare};

fn skip(reason: &str) {
    let _ = writeln!(std::io::stderr(), "skipped: {reason}");
}

/// Moves the test's thread into a new namespace; `None` (with a reason printed) if that is not allowed.
fn isolated() -> Option<Netlink> {
    if let Err(e) = unshare(CloneFlags::CLONE_NEWNET) {
        skip(&format!("no new network namespace: {e}"));
        return None;
    }
    Some(Netlink::new().expect("socket"))
}

/// A namespace that lives as long as the file is open.
fn other_namespace() -> File {
    std::thread::spawn(|| {
        unshare(CloneFlags::CLONE_NEWNET).expect("unshare");
        File::open("/proc/thread-self/ns/net").expect("own namespace")
    })
    .join()
    .expect("thread")
}

fn cidr(text: &str) -> Cidr {
    text.parse().expect("cidr")
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("address")
}

fn mac(last: u8) -> Mac {
    Mac([0x02, 0, 0, 0, 0, last])
}

fn index(nl: &mut Netlink, name: &str) -> u32 {
    nl.link_by_name(name).expect("read link").expect("link is there").index
}

/// A veth pair `a`-`b`, both up.
fn veth(nl: &mut Netlink) -> (u32, u32) {
    let spec = VethSpec {
        end: PeerSpec { name: "a", mac: Some(mac(1)), ..Default::default() },
        peer: PeerSpec { name: "b", mac: Some(mac(2)), ..Default::default() },
        ..Default::default()
    };
    nl.create_veth(&spec).expect("veth");
    let ends = (index(nl, "a"), index(nl, "b"));
    nl.set_link_up(ends.0, true).expect("up");
    nl.set_link_up(ends.1, true).expect("up");
    ends
}

fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !condition() {
        assert!(Instant::now() < deadline, "{what} did not happen");
        std::thread::yield_now();
    }
}

#[test]
fn veth_comes_into_being_across_namespaces() {
    let Some(mut nl) = isolated() else { return };
    let other = other_namespace();
    let spec = VethSpec {
        end: PeerSpec { name: "cali0", mac: Some(mac(0xee)), ..Default::default() },
        peer: PeerSpec { name: "eth0", mac: Some(mac(0x0a)), netns: Some(other.as_fd()) },
        mtu: Some(1430),
        queues: Some(2),
    };
    nl.create_veth(&spec).expect("create");
    let host = nl.link_by_name("cali0").expect("read").expect("there");
    let mut there = Netlink::in_ns(&other).expect("socket in the other namespace");
    let pod = there.link_by_name("eth0").expect("read").expect("there");
    assert_eq!((host.mac, host.mtu, host.tx_queues, host.rx_queues), (Some(mac(0xee)), 1430, 2, 2));
    assert_eq!((pod.mac, pod.mtu, pod.tx_queues, pod.kind.as_str()), (Some(mac(0x0a)), 1430, 2, "veth"));
    assert_eq!((host.parent, pod.parent), (Some(pod.index), Some(host.index)));
    assert!(host.peer_netns_id.is_some(), "the peer is known to be elsewhere");
    there.set_link_up(pod.index, true).expect("up");
    let pod = there.link_by_index(pod.index).expect("read").expect("there");
    assert!(pod.is_up() && !pod.is_running() && !host.is_up(), "no carrier without the other end");
    assert!(nl.link_by_name("eth0").expect("read").is_none());
    assert!(nl.create_veth(&spec).expect_err("name in use").is_exists());

    assert!(there.delete_link_by_name("eth0").expect("delete"));
    assert!(nl.link_by_index(host.index).expect("read").is_none(), "the other end went along");
    assert!(!nl.delete_link(host.index).expect("delete again"));
    assert!(!nl.delete_link_by_name("cali0").expect("delete again"));
}

#[test]
fn links_change() {
    let Some(mut nl) = isolated() else { return };
    let (a, _) = veth(&mut nl);
    nl.create_bridge("br0").expect("bridge");
    let br = index(&mut nl, "br0");
    let change = LinkChange {
        up: Some(false),
        mtu: Some(1400),
        mac: Some(mac(9)),
        name: Some("renamed"),
        master: Some(br),
        netns: None,
    };
    nl.change_link(a, &change).expect("change");
    let link = nl.link_by_index(a).expect("read").expect("there");
    assert_eq!(
        (link.name.as_str(), link.mtu, link.mac, link.master),
        ("renamed", 1400, Some(mac(9)), Some(br))
    );
    assert!(!link.is_up());
    nl.set_link_master(a, 0).expect("take out");
    assert_eq!(nl.link_by_index(a).expect("read").expect("there").master, None);

    let other = other_namespace();
    nl.move_link(a, other.as_fd()).expect("move");
    assert!(nl.link_by_name("renamed").expect("read").is_none());
    let mut there = Netlink::in_ns(&other).expect("socket");
    assert!(there.links().expect("list").iter().any(|l| l.name == "renamed"));

    let error = nl.set_link_up(4711, true).expect_err("no such link");
    assert_eq!(error.errno(), Some(Errno::ENODEV));
    assert_eq!(error.to_string(), "cannot change link with index 4711: No such device");
}

#[test]
fn vxlan_with_forwarding_entries() {
    let Some(mut nl) = isolated() else { return };
    let (a, _) = veth(&mut nl);
    let mut spec = VxlanSpec {
        name: "vxlan.calico",
        vni: 4096,
        port: 4789,
        local: Some(ip("10.0.0.1")),
        parent: Some(a),
        mac: Some(mac(7)),
        mtu: Some(1450),
    };
    nl.create_vxlan(&spec).expect("vxlan");
    let link = nl.link_by_name("vxlan.calico").expect("read").expect("there");
    let info = link.vxlan.clone().expect("vxlan settings");
    assert_eq!((info.vni, info.port, info.local, info.parent), (4096, 4789, Some(ip("10.0.0.1")), Some(a)));
    assert!(!info.learning && !info.l2_miss && !info.group_policy && !info.external && info.group.is_none());
    assert_eq!((link.mac, link.mtu), (Some(mac(7)), 1450));
    nl.set_link_up(link.index, true).expect("up");

    let entry = FdbEntry::permanent(link.index, mac(1), ip("10.0.0.2"));
    nl.replace_fdb(&entry).expect("add");
    let moved = FdbEntry::permanent(link.index, mac(1), ip("10.0.0.3"));
    nl.replace_fdb(&moved).expect("replace");
    assert_eq!(nl.fdb(link.index).expect("list"), vec![moved]);
    assert_eq!(nl.fdb(a).expect("list").iter().filter(|e| e.index != a).count(), 0);
    assert!(nl.delete_fdb(&moved).expect("delete"));
    assert!(!nl.delete_fdb(&moved).expect("delete again"));

    spec.name = "vxlan-v6.calico";
    spec.port = 4790;
    spec.local = Some(ip("fd00::1"));
    nl.create_vxlan(&spec).expect("vxlan over v6");
    let v6 = nl.link_by_name("vxlan-v6.calico").expect("read").expect("there");
    assert_eq!(v6.vxlan.expect("settings").local, Some(ip("fd00::1")));
    nl.set_link_up(v6.index, true).expect("up");
    let entry = FdbEntry::permanent(v6.index, mac(3), ip("fd00::2"));
    nl.replace_fdb(&entry).expect("add v6");
    assert_eq!(nl.fdb(v6.index).expect("list"), vec![entry]);
}

#[test]
fn neighbours_of_both_families() {
    let Some(mut nl) = isolated() else { return };
    let (a, b) = veth(&mut nl);
    for (version, addr) in [(IpVersion::V4, ip("10.1.0.9")), (IpVersion::V6, ip("fd00::9"))] {
        let first = Neighbour::permanent(a, addr, mac(4));
        let second = Neighbour::permanent(a, addr, mac(5));
        nl.replace_neighbour(&first).expect("add");
        nl.replace_neighbour(&second).expect("replace");
        let permanent = |nl: &mut Netlink, link| {
            let mut list = nl.neighbours(version, Some(link)).expect("list");
            list.retain(|n| n.state.is_permanent());
            list
        };
        assert_eq!(permanent(&mut nl, a), vec![second]);
        assert_eq!(permanent(&mut nl, b), vec![]);
        assert!(nl.delete_neighbour(&second).expect("delete"));
        assert!(!nl.delete_neighbour(&second).expect("delete again"));
        assert_eq!(permanent(&mut nl, a), vec![]);
    }
}

#[test]
fn addresses_of_both_families() {
    let Some(mut nl) = isolated() else { return };
    let (a, b) = veth(&mut nl);
    let v4 = Address::new(a, cidr("10.1.2.3/24"));
    let v6 = Address { flags: Address::NO_DAD, ..Address::new(a, cidr("fd00::3/64")) };
    nl.add_address(&v4).expect("v4");
    nl.add_address(&v6).expect("v6");
    assert!(nl.add_address(&v4).expect_err("again").is_exists());
    let on = |nl: &mut Netlink, i, v| -> Vec<Cidr> {
        let list = nl.addresses(Some(i), v).expect("list");
        list.into_iter().filter(|x| x.scope == RouteScope::UNIVERSE).map(|x| x.addr).collect()
    };
    assert_eq!(on(&mut nl, a, None), vec![v4.addr, v6.addr]);
    assert_eq!(on(&mut nl, a, Some(IpVersion::V6)), vec![v6.addr]);
    assert_eq!(on(&mut nl, b, None), vec![]);
    let listed = nl.addresses(Some(a), Some(IpVersion::V6)).expect("list");
    let stored = listed.iter().find(|x| x.addr == v6.addr).expect("v6");
    assert_eq!(stored.flags & Address::TENTATIVE, 0);
    assert!(nl.delete_address(&v4).expect("delete") && nl.delete_address(&v6).expect("delete"));
    assert!(!nl.delete_address(&v4).expect("delete again"));
    assert!(!nl.delete_address(&v6).expect("delete again"));
    assert_eq!(nl.addresses(Some(4711), None).expect("no such link"), vec![]);
}

/// One route of each shape that Felix programs.
fn shapes(version: IpVersion, a: u32, lo: u32) -> Vec<Route> {
    let v6 = version == IpVersion::V6;
    let pick = |v4: &'static str, v6_text: &'static str| if v6 { v6_text } else { v4 };
    // The kernel gives every IPv6 route universe scope and a priority.
    let scope = |s| if v6 { RouteScope::UNIVERSE } else { s };
    let priority = if v6 { 1024 } else { 0 };
    let base = |dst: &str| Route { priority, ..Route::new(cidr(dst)) };
    vec![
        Route { oif: Some(a), scope: scope(RouteScope::LINK), ..base(pick("10.65.0.2/32", "fd65::2/128")) },
        Route {
            oif: Some(a),
            gateway: Some(ip(pick("10.9.9.9", "fd99::9"))),
            onlink: true,
            mtu: Some(1450),
            src: Some(ip(pick("10.1.0.1", "fd01::1"))),
            protocol: RouteProtocol::FELIX,
            priority: 512,
            ..base(pick("10.65.1.0/26", "fd65:1::/122"))
        },
        Route {
            kind: RouteKind::Blackhole,
            oif: v6.then_some(lo),
            protocol: RouteProtocol::FELIX,
            ..base(pick("10.65.2.0/26", "fd65:2::/122"))
        },
        Route {
            kind: RouteKind::Throw,
            oif: v6.then_some(lo),
            table: 1000,
            ..base(pick("10.65.3.0/26", "fd65:3::/122"))
        },
        Route {
            oif: Some(a),
            gateway: Some(ip(pick("10.1.0.254", "fd01::254"))),
            protocol: RouteProtocol::BIRD,
            ..base(pick("0.0.0.0/0", "::/0"))
        },
        Route {
            next_hops: vec![
                NextHop { gateway: Some(ip(pick("10.1.0.7", "fd01::7"))), oif: a, weight: 1, onlink: false },
                NextHop { gateway: Some(ip(pick("10.1.0.8", "fd01::8"))), oif: a, weight: 3, onlink: false },
            ],
            ..base(pick("10.65.4.0/26", "fd65:4::/122"))
        },
    ]
}

#[test]
fn routes_read_back_as_written() {
    let Some(mut nl) = isolated() else { return };
    let lo = index(&mut nl, "lo");
    nl.set_link_up(lo, true).expect("lo up");
    let (a, b) = veth(&mut nl);
    nl.add_address(&Address::new(a, cidr("10.1.0.1/24"))).expect("v4");
    nl.add_address(&Address { flags: Address::NO_DAD, ..Address::new(a, cidr("fd01::1/64")) }).expect("v6");
    for version in IpVersion::BOTH {
        let everything = RouteFilter { table: None, ..RouteFilter::main(version) };
        let before = nl.routes(&everything).expect("list");
        for route in shapes(version, a, lo) {
            nl.replace_route(&route).unwrap_or_else(|e| panic!("{route:?}: {e}"));
            let filter = RouteFilter { table: Some(route.table), ..everything };
            let found: Vec<Route> =
                nl.routes(&filter).expect("list").into_iter().filter(|r| r.dst == route.dst).collect();
            assert_eq!(found, vec![route.clone()]);
            let strict = RouteFilter { kind: Some(route.kind), protocol: Some(route.protocol), ..filter };
            assert!(nl.routes(&strict).expect("list").contains(&route));
            assert!(!nl.routes(&filter.via(b)).expect("list").contains(&route));
            if route.oif.is_some() {
                assert!(nl.routes(&filter.via(route.oif.unwrap_or(0))).expect("list").contains(&route));
            }
            assert!(nl.add_route(&route).expect_err("is there").is_exists());
            // Whatever has the same key is found by a deletion that does not know the rest.
            nl.execute(route.delete_any()).unwrap_or_else(|e| panic!("{route:?}: {e}"));
            nl.replace_route(&route).expect("again");
            assert!(nl.delete_route(&route).expect("delete"), "{route:?}");
            assert!(!nl.delete_route(&route).expect("delete again"));
        }
        assert_eq!(nl.routes(&everything).expect("list"), before);
        let none = RouteFilter { table: Some(77777), ..everything };
        assert_eq!(nl.routes(&none).expect("no such table"), vec![]);
    }
}

#[test]
fn replacing_keeps_one_route_per_key() {
    let Some(mut nl) = isolated() else { return };
    let (a, b) = veth(&mut nl);
    let first = Route { oif: Some(a), scope: RouteScope::LINK, ..Route::new(cidr("10.65.0.2/32")) };
    let second = Route { oif: Some(b), ..first.clone() };
    nl.replace_route(&first).expect("add");
    nl.replace_route(&second).expect("replace");
    let found = nl.routes(&RouteFilter::main(IpVersion::V4)).expect("list");
    assert_eq!(found, vec![second.clone()]);
    // The old one is another route: deleting it by all its properties must not touch the new one.
    assert!(!nl.delete_route(&first).expect("delete"));
    assert_eq!(nl.routes(&RouteFilter::main(IpVersion::V4)).expect("list"), vec![second]);
}

#[test]
fn batches_report_each_failure_and_go_on() {
    let Some(mut nl) = isolated() else { return };
    let (a, _) = veth(&mut nl);
    let route = |n: u32, oif| Route {
        oif: Some(oif),
        scope: RouteScope::LINK,
        ..Route::new(Cidr::host(cidr("10.64.0.0/12").nth(n.into()).expect("in range")))
    };
    // Every seventh names a link that is not there.
    let wanted: Vec<Route> = (0..5000).map(|n| route(n, if n % 7 == 0 { 4711 } else { a })).collect();
    let requests: Vec<_> = wanted.iter().map(Route::replace).collect();
    let results = nl.batch(&requests).expect("batch");
    assert_eq!(results.len(), 5000);
    for (n, result) in results.iter().enumerate() {
        match result {
            Ok(()) => assert_ne!(n % 7, 0),
            Err(NetlinkError::Kernel { errno, object, .. }) => {
                assert_eq!((n % 7, *errno), (0, Errno::ENODEV));
                assert_eq!(*object, Object::Route { dst: wanted[n].dst, table: Route::MAIN });
            }
            Err(e) => panic!("{e}"),
        }
    }
    let present = nl.routes(&RouteFilter::main(IpVersion::V4)).expect("list");
    assert_eq!(present.len(), results.iter().filter(|r| r.is_ok()).count());
    let deletes: Vec<_> = present.iter().map(Route::delete).collect();
    assert!(nl.batch(&deletes).expect("batch").iter().all(Result::is_ok));
    assert_eq!(nl.routes(&RouteFilter::main(IpVersion::V4)).expect("list"), vec![]);
    assert_eq!(nl.batch(&[]).expect("empty").len(), 0);
}

#[test]
fn monitor_sees_links_addresses_and_routes() {
    let Some(mut nl) = isolated() else { return };
    let mut monitor = Monitor::new(MonitorGroups::ALL).expect("monitor");
    let (a, _) = veth(&mut nl);
    let address = Address::new(a, cidr("10.1.2.3/32"));
    let route = Route { oif: Some(a), scope: RouteScope::LINK, ..Route::new(cidr("10.65.0.2/32")) };
    nl.add_address(&address).expect("address");
    nl.add_route(&route).expect("route");
    nl.delete_route(&route).expect("delete route");
    nl.delete_address(&address).expect("delete address");
    nl.delete_link(a).expect("delete link");
    type Matcher = Box<dyn Fn(&Event) -> bool>;
    let mut expected: Vec<(&str, Matcher)> = vec![
        ("link", Box::new(|e| matches!(e, Event::Link(l) if l.name == "a" && l.is_up()))),
        ("address", Box::new(|e| matches!(e, Event::Address(x) if x.addr == cidr("10.1.2.3/32")))),
        ("route", Box::new(|e| matches!(e, Event::Route(r) if r.dst == cidr("10.65.0.2/32")))),
        ("no route", Box::new(|e| matches!(e, Event::RouteRemoved(r) if r.dst == cidr("10.65.0.2/32")))),
        ("no address", Box::new(|e| matches!(e, Event::AddressRemoved(x) if x.addr == cidr("10.1.2.3/32")))),
        ("no link", Box::new(|e| matches!(e, Event::LinkRemoved(l) if l.name == "a"))),
    ];
    expected.reverse();
    while let Some((what, matches)) = expected.last() {
        let event = monitor.wait(Duration::from_secs(10)).expect("monitor");
        let event = event.unwrap_or_else(|| panic!("no event: {what}"));
        if matches(&event) {
            expected.pop();
        }
    }
}

#[test]
fn monitor_says_when_it_lost_events() {
    let Some(mut nl) = isolated() else { return };
    let groups = MonitorGroups { routes: true, ..Default::default() };
    let mut monitor = Monitor::new(groups).expect("monitor");
    let small = 2048usize;
    nix::sys::socket::setsockopt(&monitor.as_fd(), nix::sys::socket::sockopt::RcvBuf, &small)
        .expect("buffer");
    let (a, _) = veth(&mut nl);
    let routes: Vec<_> = (0..200u32)
        .map(|n| Route {
            oif: Some(a),
            scope: RouteScope::LINK,
            ..Route::new(Cidr::host(cidr("10.64.0.0/16").nth(n.into()).expect("in range")))
        })
        .collect();
    let requests: Vec<_> = routes.iter().map(Route::add).collect();
    assert!(nl.batch(&requests).expect("batch").iter().all(Result::is_ok));
    let mut overrun = false;
    while let Some(event) = monitor.try_next().expect("monitor") {
        overrun |= event == Event::Overrun;
    }
    assert!(overrun);
}

#[test]
fn monitor_as_a_stream() {
    let Some(mut nl) = isolated() else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
    runtime.block_on(async {
        let groups = MonitorGroups { links: true, ..Default::default() };
        let mut stream = MonitorStream::new(Monitor::new(groups).expect("monitor")).expect("stream");
        nl.create_bridge("br7").expect("bridge");
        let name = tokio::time::timeout(Duration::from_secs(10), async {
            loop {
                if let Event::Link(link) = stream.next().await.expect("event") {
                    return link.name;
                }
            }
        })
        .await
        .expect("in time");
        assert_eq!(name, "br7");
    });
}

#[test]
fn connections_of_an_address_are_deleted() {
    let Some(mut nl) = isolated() else { return };
    let lo = index(&mut nl, "lo");
    nl.set_link_up(lo, true).expect("lo up");
    // Tracking starts with the first rule that asks for a connection's state.
    let rules = "table ip t { chain c { type filter hook input priority 0; ct state established accept; } }";
    let nft = std::process::Command::new("nft").arg(rules).status();
    if !nft.is_ok_and(|s| s.success()) {
        skip("nft is not usable here");
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").expect("listen");
    let _client = TcpStream::connect(listener.local_addr().expect("address")).expect("connect");
    let mut conntrack = Conntrack::new().expect("socket");
    let of = |addrs: &[&str]| addrs.iter().map(|a| ip(a)).collect::<BTreeSet<_>>();
    assert_eq!(conntrack.delete_of(&of(&["10.0.0.1", "fd00::1"])).expect("delete"), 0);
    eventually("a tracked connection", || conntrack.delete_of(&of(&["127.0.0.1"])).expect("delete") > 0);
    assert_eq!(conntrack.delete_of(&of(&["127.0.0.1"])).expect("delete"), 0);
    assert_eq!(conntrack.delete_of(&BTreeSet::new()).expect("delete"), 0);
}

#[test]
fn a_file_that_is_no_namespace_is_refused() {
    let file = File::open("/dev/null").expect("open");
    let error = Netlink::in_ns(&file).expect_err("not a namespace");
    assert!(matches!(error, NetlinkError::Namespace(Errno::EINVAL)), "{error}");
}
