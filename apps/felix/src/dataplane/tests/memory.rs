//! Against a kernel in memory: order, restarts, what each event moves.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use calico_dpmsg::{Action, Encapsulation, HostEndpoint, Message, PoolType, WorkloadEndpoint};
use calico_host::Sysctl;
use calico_net::IpVersion;
use calico_netfilter::{Family, MemoryNft, MemoryTable};
use proptest::prelude::*;

use super::objects::*;
use crate::config::Params;
use crate::dataplane::engine::Core;
use crate::dataplane::net::Change;
use crate::dataplane::net::memory::MemoryNet;
use crate::dataplane::report::ApplyReport;

/// A dataplane over memory, with kernel parameters as files.
struct Bed {
    core: Core<MemoryNft, MemoryNet>,
    params: Arc<Params>,
    dir: tempfile::TempDir,
    now: Instant,
}

impl Bed {
    /// Links: `eth0` with 172.16.5.1/24, and the workload links named.
    fn new(links: &[&str], settings: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().expect("directory");
        let params = params("here", dir.path(), settings);
        let mut net = MemoryNet::default();
        net.add_link("lo");
        net.add_link("eth0");
        net.add_address("eth0", "172.16.5.1/24");
        for name in links {
            net.add_link(name);
        }
        let mut bed = Self {
            core: core(&params, net, dir.path(), MemoryNft::default),
            params,
            dir,
            now: Instant::now(),
        };
        bed.make_parameters();
        // What IPv6 needs is there before the start.
        let net = bed.core.net_mut().clone();
        bed.core = core(&bed.params, net, bed.dir.path(), MemoryNft::default);
        bed
    }

    fn make_parameters(&mut self) {
        let put = |name: String| {
            let path = self.dir.path().join("sys").join(name);
            std::fs::create_dir_all(path.parent().expect("folder")).expect("folder");
            if !path.exists() {
                std::fs::write(path, "0").expect("parameter");
            }
        };
        for name in ["net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding", "net/ipv4/conf/default/rp_filter"]
        {
            put(name.to_owned());
        }
        let names: Vec<String> = self.core.net_mut().links.values().map(|l| l.name.clone()).collect();
        for link in names {
            for name in ["route_localnet", "proxy_arp", "forwarding", "rp_filter"] {
                put(format!("net/ipv4/conf/{link}/{name}"));
            }
            for name in ["proxy_ndp", "forwarding", "accept_ra"] {
                put(format!("net/ipv6/conf/{link}/{name}"));
            }
        }
    }

    fn send(&mut self, messages: &[Message]) {
        messages.iter().for_each(|m| self.core.on_message(m));
    }

    fn apply(&mut self) -> ApplyReport {
        let mut report = self.core.apply(self.now);
        // What the work brought along is done too.
        if report.due.is_some_and(|d| d <= self.now) {
            let more = self.core.apply(self.now);
            report.writes.transactions += more.writes.transactions;
            report.writes.routes += more.writes.routes;
            report.writes.neighbours += more.writes.neighbours;
            report.failures.extend(more.failures);
        }
        assert!(report.failures.is_empty(), "{:?}", report.failures);
        assert_eq!(report.refused, [""; 0]);
        report
    }

    /// A new process over the same kernel.
    fn restart(&mut self) {
        let net = self.core.net_mut().clone();
        let kernels: Vec<MemoryNft> = self.core.filters_mut().map(|f| f.kernel_mut().clone()).collect();
        let left = std::cell::RefCell::new(kernels.into_iter());
        let next = || left.borrow_mut().next().expect("kernel");
        self.core = core(&self.params, net, self.dir.path(), next);
    }

    fn tables(&mut self) -> BTreeMap<(Family, String), MemoryTable> {
        let mut out = BTreeMap::new();
        for filter in self.core.filters_mut() {
            let tables = filter.kernel_mut().tables.clone();
            out.extend(tables.into_iter().map(|((f, name), t)| ((f, name.to_string()), t)));
        }
        out
    }

    fn table(&mut self, family: Family) -> MemoryTable {
        self.tables().remove(&(family, "calico".to_owned())).expect("table")
    }

    fn verdict(&mut self, iface: &str) -> Option<String> {
        let table = self.table(V4);
        table.maps["filter-cali-to-wl-dispatch"].get(iface).map(ToString::to_string)
    }

    fn moved(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.core.net_mut().log)
    }

    /// Everything that is programmed. Neighbours on links that no endpoint has are without effect, and left out.
    fn world(&mut self) -> World {
        let tables = self.tables();
        let net = self.core.net_mut();
        let name = |i: u32| net.links.get(&i).map(|l| l.name.clone()).unwrap_or_default();
        let counts = |i: u32| name(i).starts_with("vxlan") || net.routes.iter().any(|r| r.oif == Some(i));
        let mut neighbours: Vec<String> = net
            .neighbours
            .iter()
            .filter(|n| counts(n.index))
            .map(|n| format!("{} {:?} {}", n.addr, n.mac, name(n.index)))
            .chain(net.fdb.iter().map(|f| format!("{} {:?} {}", f.mac, f.dst, name(f.index))))
            .collect();
        neighbours.sort();
        let mut links: Vec<String> =
            net.links.values().map(|l| format!("{} {} {}", l.name, l.mtu, l.flags)).collect();
        links.sort();
        World { tables, routes: net.table(), neighbours, links }
    }

    fn status(&self) -> Vec<String> {
        let Ok(list) = std::fs::read_dir(self.dir.path().join("endpoint-status")) else { return Vec::new() };
        let mut names: Vec<_> =
            list.map(|e| e.expect("entry").file_name().into_string().expect("name")).collect();
        names.sort();
        names
    }
}

/// Everything that is programmed, as texts where indexes may differ.
#[derive(Debug, PartialEq)]
struct World {
    tables: BTreeMap<(Family, String), MemoryTable>,
    routes: Vec<String>,
    neighbours: Vec<String>,
    links: Vec<String>,
}

const V4: Family = Family::Ip(IpVersion::V4);

fn core(
    params: &Arc<Params>,
    net: MemoryNet,
    dir: &std::path::Path,
    kernel: impl Fn() -> MemoryNft,
) -> Core<MemoryNft, MemoryNet> {
    let sysctl = Sysctl::under(dir.join("sys"));
    Core::new(Arc::clone(params), || Ok(kernel()), net, sysctl).expect("core")
}

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

/// The first objects of [`versions`], which others name.
const NAMED: usize = 4;

/// One object, what it may become, and what takes it away.
fn versions() -> Vec<(Vec<Message>, Option<Message>)> {
    let tiers = |names: &[&str]| vec![tier("default", names, names, false)];
    let selector = |name: &str, selector: &str| {
        let policy = calico_dpmsg::Policy {
            tier: "default".into(),
            original_selector: selector.into(),
            inbound: vec![rule(Action::Allow)],
            ..Default::default()
        };
        Message::PolicyUpdate(policy_id(name), Arc::new(policy))
    };
    let hep = |iface: &str| HostEndpoint {
        interface_name: iface.into(),
        tiers: tiers(&["p1"]),
        ..HostEndpoint::default()
    };
    vec![
        (
            vec![set("s:one", &["10.0.0.0/24"]), set("s:one", &["10.0.0.0/16", "10.0.1.0/24"])],
            Some(Message::IpSetRemove("s:one".into())),
        ),
        (
            vec![
                selector("p1", "a"),
                selector("p1", "b"),
                policy("p1", "default", vec![rule(Action::Deny)], vec![]),
            ],
            Some(Message::PolicyRemove(policy_id("p1"))),
        ),
        (vec![selector("p2", "a"), selector("p2", "b")], Some(Message::PolicyRemove(policy_id("p2")))),
        (
            vec![profile("open", Action::Allow), profile("open", Action::Deny)],
            Some(Message::ProfileRemove("open".into())),
        ),
        (
            vec![
                workload("a", endpoint("cali1", &["10.0.0.1/32", "fd00::1/128"], tiers(&["p1", "p2"]))),
                workload("a", endpoint("cali2", &["10.0.0.1/32"], tiers(&["p2"]))),
            ],
            Some(no_workload("a")),
        ),
        (
            vec![
                workload("b", endpoint("cali1", &["10.0.0.2/32"], vec![])),
                workload("b", endpoint("cali2", &["10.0.0.1/32"], tiers(&["p1", "p2"]))),
            ],
            Some(no_workload("b")),
        ),
        (
            vec![host("h", hep("eth0")), host("h", hep("*"))],
            Some(Message::HostEndpointRemove(calico_dpmsg::HostEndpointId("h".into()))),
        ),
        (
            vec![pool("10.0.0.0/16", true), pool("10.0.0.0/16", false)],
            Some(Message::IpPoolRemove(cidr("10.0.0.0/16"))),
        ),
        (
            vec![
                block("10.1.2.0/26", PoolType::Vxlan, "far", Some("172.16.6.2"), false),
                block("10.1.2.0/26", PoolType::Vxlan, "near", Some("172.16.5.3"), true),
                block("10.1.2.0/26", PoolType::NoEncap, "near", Some("172.16.5.3"), false),
                block("10.1.2.0/26", PoolType::Vxlan, "here", None, false),
            ],
            Some(Message::RouteRemove(cidr("10.1.2.0/26"))),
        ),
        (
            vec![
                vtep("far", Some(("10.1.2.0", "172.16.6.2")), None, 2),
                vtep("far", Some(("10.1.3.0", "172.16.6.3")), None, 3),
            ],
            Some(Message::VtepRemove("far".into())),
        ),
        (
            vec![
                vtep("here", Some(("10.1.1.0", "172.16.5.1")), None, 1),
                vtep("here", Some(("10.1.1.1", "172.16.5.1")), None, 9),
            ],
            // A device stays while it is not known what it should be.
            None,
        ),
        (
            vec![
                Message::Encapsulation(Encapsulation { vxlan: true, ..Default::default() }),
                Message::Encapsulation(Encapsulation::default()),
            ],
            None,
        ),
        (
            vec![node("here", Some("172.16.5.1/24"), None), node("here", Some("172.16.5.9/24"), None)],
            Some(Message::HostMetadataRemove("here".into())),
        ),
    ]
}

#[derive(Debug, Clone)]
enum Step {
    /// Object, and which version; past the last one it goes.
    Send(usize, usize),
    Link(u8, bool),
    Apply,
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0usize..13, 0usize..5).prop_map(|(o, v)| Step::Send(o, v)),
        1 => (0u8..2, any::<bool>()).prop_map(|(l, up)| Step::Link(l, up)),
        2 => Just(Step::Apply),
        1 => Just(Step::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]
    /// Whatever happened in whatever order, with restarts in between: the kernel ends like one that was told the last
    /// word on each object, once.
    #[test]
    fn any_order_gives_the_same_kernel(steps in prop::collection::vec(step(), 1..50)) {
        let objects = versions();
        let settings = [("ProgramClusterRoutes", "Enabled")];
        let mut bed = Bed::new(&["cali1", "cali2"], &settings);
        let mut last: BTreeMap<usize, Option<Message>> = BTreeMap::new();
        bed.send(&[Message::InSync]);
        for s in steps {
            match s {
                Step::Send(o, v) => {
                    let (updates, remove) = &objects[o];
                    let message = updates.get(v);
                    if let Some(m) = message.or(remove.as_ref()) {
                        bed.send(std::slice::from_ref(m));
                        last.insert(o, message.cloned());
                    }
                }
                Step::Link(l, up) => {
                    let name = ["cali1", "cali2"][usize::from(l)];
                    let event = bed.core.net_mut().set_up(name, up);
                    bed.core.on_link_event(event, bed.now);
                }
                Step::Apply => { bed.core.apply(bed.now); }
                Step::Restart => {
                    bed.restart();
                    let known: Vec<Message> = last.values().flatten().cloned().collect();
                    bed.send(&known);
                    bed.send(&[Message::InSync]);
                }
            }
        }
        for link in ["cali1", "cali2"] {
            let event = bed.core.net_mut().set_up(link, true);
            bed.core.on_link_event(event, bed.now);
        }
        // What endpoints name is there in the end, whenever it came.
        for (o, (updates, _)) in objects.iter().enumerate().take(NAMED) {
            if last.get(&o).is_none_or(Option::is_none) {
                bed.send(&updates[..1]);
                last.insert(o, Some(updates[0].clone()));
            }
        }
        bed.now += Duration::from_secs(60);
        bed.core.resync_tables();
        bed.core.apply(bed.now);
        bed.core.apply(bed.now);

        let mut fresh = Bed::new(&["cali1", "cali2"], &settings);
        let known: Vec<Message> = last.into_values().flatten().collect();
        fresh.send(&known);
        fresh.send(&[Message::InSync]);
        fresh.core.apply(fresh.now);
        fresh.core.apply(fresh.now);
        prop_assert_eq!(bed.world(), fresh.world());
        prop_assert_eq!(bed.status(), fresh.status());
        bed.moved();
        prop_assert_eq!(bed.core.apply(bed.now).writes.total(), 0);
    }
}
