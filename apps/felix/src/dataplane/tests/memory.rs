//! Against a kernel in memory: restarts, and what each event moves.

use calico_dpmsg::{Action, Encapsulation, HostEndpoint, Message, PoolType, WorkloadEndpoint};
use calico_net::IpVersion;
use calico_netfilter::Family;

use super::bed::{Bed, V4};
use super::objects::*;
use crate::dataplane::net::Change;

fn basics() -> Vec<Message> {
    vec![
        profile("open", Action::Allow),
        set("s:friends", &["10.0.0.0/24", "fd00::/64"]),
        policy("web", "default", vec![from_set(Action::Allow, "s:friends")], vec![rule(Action::Allow)]),
        workload(
            "a",
            endpoint(
                "cali1",
                &["10.0.0.1/32", "fd00::1/128"],
                vec![tier("default", &["web"], &["web"], false)],
            ),
        ),
        node("here", Some("172.16.5.1/24"), None),
        pool("10.0.0.0/16", true),
    ]
}

#[test]
fn nothing_moves_before_in_sync_and_nothing_after_a_restart() {
    let mut bed = Bed::new(&["cali1"], &[]);
    bed.send(&basics());
    let report = bed.core.apply(bed.now);
    assert!(!report.ran);
    assert_eq!((report.writes.total(), bed.tables().len(), bed.moved()), (0, 0, vec![]));
    bed.send(&[Message::InSync]);
    let report = bed.apply();
    assert!(report.is_complete() && report.writes.transactions > 0 && report.writes.sysctls > 0);
    assert_eq!(bed.verdict("cali1").as_deref(), Some("filter-cali-tw-cali1"));
    assert_eq!(
        bed.core.net_mut().table(),
        ["10.0.0.1/32 dev cali1 proto 3", "fd00::1/128 dev cali1 proto 3"]
    );
    assert_eq!(bed.status(), ["k8s default%2Fa eth0"]);
    assert_eq!(std::fs::read_to_string(bed.dir.path().join("mtu")).expect("file"), "1500");
    let before = bed.world();
    bed.moved();
    assert_eq!(bed.apply().writes.total(), 0, "and nothing again");

    bed.restart();
    bed.send(&basics());
    bed.send(&[Message::InSync]);
    assert_eq!(bed.apply().writes.total(), 0);
    assert_eq!(bed.world(), before);
    assert_eq!(bed.moved(), []);
}

#[test]
fn routes_lead_to_workloads_only_once_there_are_rules() {
    let mut bed = Bed::new(&["cali1"], &[]);
    bed.send(&basics());
    bed.send(&[Message::InSync]);
    for filter in bed.core.filters_mut() {
        filter.kernel_mut().poison.push("add table".into());
    }
    let report = bed.core.apply(bed.now);
    assert!(!report.failures.is_empty());
    assert_eq!((bed.core.net_mut().table(), bed.status()), (vec![], vec![]));
    let forwarding =
        || std::fs::read_to_string(bed.dir.path().join("sys/net/ipv4/ip_forward")).expect("parameter");
    assert_eq!(forwarding(), "0");
    for filter in bed.core.filters_mut() {
        filter.kernel_mut().poison.clear();
    }
    bed.apply();
    assert_eq!(bed.core.net_mut().table().len(), 2);
    assert_eq!(
        std::fs::read_to_string(bed.dir.path().join("sys/net/ipv4/ip_forward")).expect("parameter"),
        "1"
    );
}

#[test]
fn the_lowest_identity_has_the_interface_and_the_next_one_takes_over() {
    let mut bed = Bed::new(&["cali1"], &[]);
    bed.send(&basics());
    bed.send(&[Message::InSync, workload("b", endpoint("cali1", &["10.0.0.2/32"], vec![]))]);
    bed.apply();
    assert_eq!(
        bed.core.net_mut().table(),
        ["10.0.0.1/32 dev cali1 proto 3", "fd00::1/128 dev cali1 proto 3"]
    );
    assert_eq!(bed.status(), ["k8s default%2Fa eth0"]);
    bed.send(&[no_workload("a")]);
    bed.apply();
    assert_eq!(bed.core.net_mut().table(), ["10.0.0.2/32 dev cali1 proto 3"]);
    assert_eq!(bed.status(), ["k8s default%2Fb eth0"]);
    assert_eq!(bed.core.net_mut().forgotten.len(), 2, "connections of both of its addresses");
    let neighbours: Vec<_> = bed.core.net_mut().neighbours.iter().map(|n| n.addr).collect();
    assert_eq!(neighbours, [ip("10.0.0.2")]);
    bed.send(&[no_workload("b")]);
    bed.apply();
    assert_eq!((bed.core.net_mut().table(), bed.status(), bed.verdict("cali1")), (vec![], vec![], None));
    assert!(!bed.table(V4).chains.keys().any(|c| c.contains("cali1")));
}

#[test]
fn an_endpoint_that_is_down_denies_and_has_no_route() {
    let mut bed = Bed::new(&["cali1"], &[]);
    bed.send(&basics());
    let down = WorkloadEndpoint { active: false, ..endpoint("cali1", &["10.0.0.1/32"], vec![]) };
    bed.send(&[Message::InSync, workload("a", down)]);
    bed.apply();
    assert_eq!((bed.core.net_mut().table(), bed.status()), (vec![], vec![]));
    let chain = bed.table(V4).chains["filter-cali-tw-cali1"].clone();
    assert_eq!(chain.rules.len(), 1);
    assert!(chain.rules[0].0.contains("drop"), "{chain:?}");
    // A name that cannot be an interface's gives nothing at all.
    bed.send(&[workload("c", endpoint("cali/../x", &["10.0.0.3/32"], vec![]))]);
    bed.apply();
    assert_eq!(bed.core.net_mut().table(), [""; 0]);
}

#[test]
fn a_link_that_comes_later_is_set_up_then() {
    let mut bed = Bed::new(&[], &[]);
    bed.send(&basics());
    bed.send(&[Message::InSync]);
    bed.apply();
    assert_eq!(bed.verdict("cali1").as_deref(), Some("filter-cali-tw-cali1"), "rules are there first");
    assert_eq!((bed.core.net_mut().table(), bed.status()), (vec![], vec![]));
    bed.core.net_mut().add_link("cali1");
    bed.make_parameters();
    let event = bed.core.net_mut().link_event("cali1");
    bed.core.on_link_event(event, bed.now);
    let report = bed.apply();
    assert_eq!((report.writes.transactions, report.writes.routes, report.writes.neighbours), (0, 2, 1));
    assert_eq!(bed.status(), ["k8s default%2Fa eth0"]);
    // It goes: the kernel took its routes, the file goes at once.
    let event = bed.core.net_mut().remove_link("cali1");
    bed.core.on_link_event(event, bed.now);
    bed.apply();
    assert_eq!((bed.core.net_mut().table(), bed.status()), (vec![], vec![]));
    bed.core.net_mut().add_link("cali1");
    let event = bed.core.net_mut().link_event("cali1");
    bed.core.on_link_event(event, bed.now);
    bed.apply();
    assert_eq!(bed.core.net_mut().table().len(), 2);
}

#[test]
fn a_change_moves_only_what_it_must() {
    let mut bed = Bed::new(&["cali1", "cali2"], &[]);
    bed.send(&basics());
    bed.send(&[Message::InSync]);
    bed.apply();
    bed.moved();
    bed.send(&[set_delta("s:friends", &["10.9.0.0/24"], &["fd00::/64"])]);
    let report = bed.apply();
    assert_eq!((report.writes.transactions, report.writes.total()), (2, 2), "one set per family");
    // The same again, and what does not change anything.
    bed.send(&basics()[1..]);
    bed.send(&[set_delta("s:friends", &["10.9.0.0/24"], &["fd00::/64"])]);
    assert_eq!(bed.apply().writes.total(), 0);
    bed.send(&[set_delta("s:stranger", &["10.9.0.0/24"], &[]), Message::IpSetRemove("s:stranger".into())]);
    assert_eq!(bed.apply().writes.total(), 0);
    // A new address: one route more, one less.
    let moved =
        endpoint("cali1", &["10.0.0.7/32", "fd00::1/128"], vec![tier("default", &["web"], &["web"], false)]);
    bed.send(&[workload("a", moved)]);
    let report = bed.apply();
    assert_eq!((report.writes.routes, report.writes.neighbours, report.writes.transactions), (2, 2, 1));
}

#[test]
fn vxlan_comes_and_goes_while_the_node_runs() {
    let mut bed = Bed::new(&["cali1"], &[]);
    bed.send(&basics());
    bed.send(&[
        block("10.1.2.0/26", PoolType::Vxlan, "far", Some("172.16.6.2"), false),
        block("10.1.1.0/26", PoolType::Vxlan, "here", None, false),
        vtep("far", Some(("10.1.2.0", "172.16.6.2")), None, 2),
        vtep("here", Some(("10.1.1.0", "172.16.5.1")), None, 1),
        Message::Encapsulation(Encapsulation::default()),
        Message::InSync,
    ]);
    bed.apply();
    assert!(bed.core.net_mut().made.is_empty());
    let rules = |bed: &mut Bed| bed.table(V4).chains["filter-cali-INPUT"].rules.len();
    let plain = rules(&mut bed);
    let on = Encapsulation { vxlan: true, ..Default::default() };
    bed.send(&[Message::Encapsulation(on)]);
    bed.apply();
    let [device] = bed.core.net_mut().made.clone().try_into().expect("one device");
    assert_eq!((device.name, device.mtu, device.parent), ("vxlan.calico", 1450, 2));
    assert_eq!(rules(&mut bed), plain + 2);
    assert!(
        bed.core.net_mut().table().contains(&"10.1.2.0/26 via 10.1.2.0 dev vxlan.calico proto 3".to_owned())
    );
    let members = bed.table(V4).sets["cali40all-vxlan-net"].1.clone();
    assert_eq!(members.iter().map(ToString::to_string).collect::<Vec<_>>(), ["172.16.6.2/32"]);
    let net = bed.core.net_mut();
    assert_eq!((net.fdb.len(), net.neighbours.len()), (1, 2));
    assert_eq!(std::fs::read_to_string(bed.dir.path().join("mtu")).expect("file"), "1450");

    // After a restart nothing moves.
    let before = bed.world();
    bed.moved();
    bed.restart();
    bed.send(&basics());
    bed.send(&[
        block("10.1.2.0/26", PoolType::Vxlan, "far", Some("172.16.6.2"), false),
        block("10.1.1.0/26", PoolType::Vxlan, "here", None, false),
        vtep("far", Some(("10.1.2.0", "172.16.6.2")), None, 2),
        vtep("here", Some(("10.1.1.0", "172.16.5.1")), None, 1),
        Message::Encapsulation(on),
        Message::InSync,
    ]);
    assert_eq!(bed.apply().writes.total(), 0);
    assert_eq!((bed.world() == before, bed.moved()), (true, vec![]));

    // Another MTU below, another device that somebody spoilt, then off.
    bed.core.net_mut().links.get_mut(&2).expect("link").mtu = 1400;
    bed.core.resync_links();
    bed.apply();
    assert!(bed.moved().contains(&Change::SetLink { index: 4, up: None, mtu: Some(1350) }));
    bed.core.net_mut().links.get_mut(&4).and_then(|l| l.vxlan.as_mut()).expect("device").vni = 7;
    bed.core.resync_links();
    bed.apply();
    assert_eq!((bed.core.net_mut().made.len(), bed.core.net_mut().deleted.len()), (2, 1));
    assert!(
        bed.core.net_mut().table().contains(&"10.1.2.0/26 via 10.1.2.0 dev vxlan.calico proto 3".to_owned())
    );
    bed.send(&[Message::Encapsulation(Encapsulation::default())]);
    bed.apply();
    assert_eq!(bed.core.net_mut().deleted.len(), 2);
    assert_eq!(rules(&mut bed), plain);
    assert!(!bed.table(V4).sets.contains_key("cali40all-vxlan-net"));
}

#[test]
fn a_tunnel_waits_for_the_nodes_address() {
    let mut bed = Bed::new(&[], &[]);
    let on = Encapsulation { vxlan: true, ..Default::default() };
    bed.send(&[Message::Encapsulation(on), Message::InSync]);
    assert_eq!(bed.apply().waiting.len(), 1);
    bed.send(&[vtep("here", Some(("10.1.1.0", "172.16.7.1")), None, 1)]);
    assert_eq!(bed.apply().waiting.len(), 1);
    bed.core.net_mut().add_address("eth0", "172.16.7.1/24");
    bed.core.resync_links();
    assert_eq!(bed.apply().waiting.len(), 0);
    assert_eq!(bed.core.net_mut().made.len(), 1);
}

#[test]
fn host_endpoints_match_by_name_then_by_address_then_everything() {
    let mut bed = Bed::new(&[], &[]);
    let named = |iface: &str| HostEndpoint { interface_name: iface.into(), ..HostEndpoint::default() };
    let by_ip = HostEndpoint { expected_ips: vec![ip("172.16.5.1")], ..HostEndpoint::default() };
    bed.send(&[Message::InSync, host("b", by_ip.clone()), host("all", named("*"))]);
    bed.apply();
    let goes = |bed: &mut Bed| {
        let table = bed.table(V4);
        let rules = &table.chains["filter-cali-from-hep-forward"].rules;
        rules.iter().map(|(text, _)| text.rsplit(' ').next().expect("word").to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(goes(&mut bed), ["filter-cali-fhfw-eth0", "filter-cali-fhfw-any-interface-at-all"]);
    // The lower identity wins, and a name is not matched by address.
    bed.send(&[host("a", HostEndpoint { expected_ips: by_ip.expected_ips.clone(), ..named("eth7") })]);
    bed.apply();
    assert_eq!(goes(&mut bed).len(), 2);
    bed.send(&[Message::HostEndpointRemove(calico_dpmsg::HostEndpointId("b".into()))]);
    bed.apply();
    assert_eq!(goes(&mut bed), ["filter-cali-fhfw-any-interface-at-all"]);
    // The link gets the name's turn, another one the address.
    bed.core.net_mut().add_link("eth7");
    bed.core.resync_links();
    bed.apply();
    assert_eq!(goes(&mut bed), ["filter-cali-fhfw-eth7", "filter-cali-fhfw-any-interface-at-all"]);
    bed.send(&[
        Message::HostEndpointRemove(calico_dpmsg::HostEndpointId("a".into())),
        Message::HostEndpointRemove(calico_dpmsg::HostEndpointId("all".into())),
    ]);
    bed.apply();
    assert_eq!(goes(&mut bed), [""; 0]);
}

#[test]
fn source_nat_follows_the_pools() {
    let mut bed = Bed::new(&[], &[("NATOutgoingExclusions", "IPPoolsAndHostIPs")]);
    bed.send(&[Message::InSync, node("here", Some("172.16.5.1/24"), None), pool("10.0.0.0/16", false)]);
    bed.apply();
    let nat = |bed: &mut Bed| bed.table(V4).chains.get("nat-cali-nat-outgoing").map_or(0, |c| c.rules.len());
    assert_eq!(nat(&mut bed), 0);
    bed.send(&[pool("10.1.0.0/16", true)]);
    bed.apply();
    assert_eq!(nat(&mut bed), 1);
    let members = |bed: &mut Bed, set: &str| {
        bed.table(V4).sets[set].1.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(members(&mut bed, "cali40masq-ipam-pools"), ["10.1.0.0/16"]);
    assert_eq!(members(&mut bed, "cali40network-ip-pools"), ["10.0.0.0/16", "10.1.0.0/16"]);
    assert_eq!(members(&mut bed, "cali40all-hosts-net"), ["172.16.5.1/32"]);
    assert_eq!(members(&mut bed, "cali40this-host"), ["172.16.5.1/32"]);
    bed.send(&[Message::IpPoolRemove(cidr("10.1.0.0/16"))]);
    bed.apply();
    assert_eq!((nat(&mut bed), members(&mut bed, "cali40masq-ipam-pools").len()), (0, 0));
}

#[test]
fn spoofing_and_floating_addresses_need_permission() {
    let spoofing = WorkloadEndpoint {
        allow_spoofed_source_prefixes: vec![cidr("8.8.8.8/32"), cidr("2001:db8::/64")],
        nats: vec![(ip("172.16.5.99"), ip("10.0.0.1"))],
        ..endpoint("cali1", &["10.0.0.1/32"], vec![])
    };
    let skip = |bed: &mut Bed, family| bed.table(family).chains["raw-cali-rpf-skip"].rules.len();
    let rp_filter = |bed: &Bed| {
        std::fs::read_to_string(bed.dir.path().join("sys/net/ipv4/conf/cali1/rp_filter")).expect("parameter")
    };
    let mut bed = Bed::new(&["cali1"], &[]);
    std::fs::write(bed.dir.path().join("sys/net/ipv4/conf/default/rp_filter"), "1").expect("parameter");
    bed.restart();
    bed.send(&[profile("open", Action::Allow), Message::InSync, workload("a", spoofing.clone())]);
    bed.apply();
    assert_eq!((skip(&mut bed, V4), rp_filter(&bed).as_str()), (0, "1"));
    assert_eq!(bed.core.net_mut().table().len(), 1);
    let mut bed = Bed::new(&["cali1"], &[("WorkloadSourceSpoofing", "Any"), ("FloatingIPs", "Enabled")]);
    bed.send(&[profile("open", Action::Allow), Message::InSync, workload("a", spoofing)]);
    bed.apply();
    assert_eq!((skip(&mut bed, V4), skip(&mut bed, Family::Ip(IpVersion::V6))), (1, 1), "each in its family");
    assert_eq!(rp_filter(&bed), "0");
    assert_eq!(bed.core.net_mut().table().len(), 2);
    assert_eq!(bed.table(V4).chains["nat-cali-fip-dnat"].rules.len(), 1);
}

#[test]
fn a_refused_rule_holds_up_only_its_endpoint() {
    let mut bed = Bed::new(&["cali1", "cali2"], &[]);
    for filter in bed.core.filters_mut() {
        filter.kernel_mut().poison.push("add rule ip calico filter-cali-tw-cali2".into());
    }
    bed.send(&basics());
    bed.send(&[Message::InSync, workload("b", endpoint("cali2", &["10.0.0.2/32"], vec![]))]);
    let report = bed.core.apply(bed.now);
    assert!(report.failures.is_empty() && !report.refused.is_empty(), "{report:?}");
    assert_eq!(bed.status(), ["k8s default%2Fa eth0"]);
    assert_eq!((bed.verdict("cali1").is_some(), bed.verdict("cali2")), (true, None));
    for filter in bed.core.filters_mut() {
        filter.kernel_mut().poison.clear();
    }
    bed.core.resync_tables();
    bed.apply();
    assert_eq!(bed.status().len(), 2);
}

#[test]
fn an_endpoint_counts_as_up_only_with_its_parameters_and_routes() {
    let mut bed = Bed::new(&["cali1", "cali2"], &[]);
    bed.send(&basics());
    bed.send(&[workload("b", endpoint("cali2", &["10.0.0.2/32"], vec![])), Message::InSync]);
    // One link has a parameter that cannot be set, the other's route is refused.
    let parameter = bed.dir.path().join("sys/net/ipv4/conf/cali1/proxy_arp");
    std::fs::remove_file(&parameter).expect("file");
    std::fs::create_dir(&parameter).expect("folder");
    bed.core.net_mut().refuse.insert(cidr("10.0.0.2/32"));
    let report = bed.core.apply(bed.now);
    assert_eq!((report.failures.len(), report.writes.routes), (2, 2), "{:?}", report.failures);
    assert_eq!(bed.status(), [""; 0]);
    std::fs::remove_dir(&parameter).expect("folder");
    std::fs::write(&parameter, "0").expect("file");
    assert_eq!(bed.core.apply(bed.now).failures.len(), 1);
    assert_eq!(bed.status(), ["k8s default%2Fa eth0"]);
    bed.core.net_mut().refuse.clear();
    bed.apply();
    assert_eq!(bed.status(), ["k8s default%2Fa eth0", "k8s default%2Fb eth0"]);
}

#[test]
fn a_tunnel_device_has_one_address_of_its_family() {
    let mut bed = Bed::new(&[], &[]);
    let on = Encapsulation { vxlan: true, vxlan_v6: true, ..Default::default() };
    bed.core.net_mut().add_address("eth0", "fd16::1/64");
    let own = |v4| vtep("here", Some((v4, "172.16.5.1")), Some(("fd01::", "fd16::1")), 1);
    bed.send(&[Message::Encapsulation(on), own("10.1.1.0"), Message::InSync]);
    bed.apply();
    let addresses = |bed: &mut Bed, link: &str| {
        let index = bed.core.net_mut().index(link);
        let of_link = bed.core.net_mut().addresses.iter().filter(|a| a.index == index);
        of_link.map(|a| a.addr.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(addresses(&mut bed, "vxlan.calico"), ["10.1.1.0/32"]);
    assert_eq!(addresses(&mut bed, "vxlan-v6.calico"), ["fd01::/128"]);
    assert_eq!(bed.core.net_mut().made.iter().map(|d| d.mtu).collect::<Vec<_>>(), [1450, 1430]);
    // It moves; what others added goes, the kernel's own link-local one stays.
    for (link, addr) in [
        ("vxlan-v6.calico", "fe80::5/64"),
        ("vxlan-v6.calico", "fd99::1/64"),
        ("vxlan.calico", "10.9.9.9/24"),
    ] {
        bed.core.net_mut().add_address(link, addr);
    }
    bed.send(&[own("10.1.1.1")]);
    bed.core.resync_links();
    bed.apply();
    assert_eq!(addresses(&mut bed, "vxlan.calico"), ["10.1.1.1/32"]);
    assert_eq!(addresses(&mut bed, "vxlan-v6.calico"), ["fd01::/128", "fe80::5/64"]);
    assert_eq!(bed.core.net_mut().made.len(), 2, "no device was made anew");
    let members = bed.table(V4).sets["cali40this-host"].1.clone();
    assert_eq!(members.len(), 2, "{members:?}");
}
