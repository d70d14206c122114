//! The table against a kernel in memory: what moved, not only where it ended.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::dataplane::net::memory::MemoryNet;

fn cidr(text: &str) -> Cidr {
    text.parse().expect("cidr")
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("address")
}

fn owner() -> Ownership {
    Ownership::new(vec!["cali".into()], 3, true)
}

fn table() -> RouteTable {
    RouteTable::new(IpVersion::V4, owner(), None)
}

fn workload(dst: &str) -> Target {
    Target { dst: cidr(dst), priority: 1024, hop: Hop::Link, mtu: None, exclusive: false }
}

fn remote(dst: &str, via: &str) -> Target {
    Target { dst: cidr(dst), priority: 0, hop: Hop::Router(ip(via)), mtu: None, exclusive: true }
}

fn blackhole(dst: &str) -> Target {
    Target { dst: cidr(dst), priority: 0, hop: Hop::Blackhole, mtu: None, exclusive: true }
}

/// A table, a kernel, and a clock that stands still unless told.
struct Bed {
    table: RouteTable,
    net: MemoryNet,
    now: Instant,
}

impl Bed {
    fn new(links: &[&str]) -> Self {
        let mut bed = Self { table: table(), net: MemoryNet::default(), now: Instant::now() };
        for name in links {
            bed.net.add_link(name);
            bed.tell(name);
        }
        bed
    }

    /// Tells the table what the kernel's link is like.
    fn tell(&mut self, name: &str) {
        let link = self.net.links.values().find(|l| l.name == name);
        let state = link.map(|l| (l.index, l.is_up() && l.is_running(), self.now));
        self.table.on_link(&name.into(), state, true);
    }

    fn apply(&mut self) -> RouteReport {
        self.table.apply(&mut self.net, self.now).expect("apply")
    }

    fn writes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.net.log)
    }

    /// A new table over the same kernel, as after a restart.
    fn restart(&mut self) {
        self.table = table();
        let names: Vec<String> = self.net.links.values().map(|l| l.name.clone()).collect();
        names.iter().for_each(|n| self.tell(n));
    }
}

#[test]
fn a_restart_writes_nothing_and_a_leftover_goes_after_its_time() {
    let mut bed = Bed::new(&["cali1", "eth0"]);
    let link = SmolStr::new("cali1");
    bed.table.replace(Class::LocalWorkload, Some(&link), [workload("10.0.0.1/32"), workload("10.0.0.2/32")]);
    bed.table.replace(Class::NoEncap, Some(&"eth0".into()), [remote("10.1.0.0/26", "192.168.0.2")]);
    bed.table.replace(Class::BlackholeNoEncap, None, [blackhole("10.0.0.0/26")]);
    assert_eq!(bed.apply().written, 4);
    let wanted = [
        "10.0.0.0/26 dev - proto 80 blackhole",
        "10.0.0.1/32 dev cali1 proto 3",
        "10.0.0.2/32 dev cali1 proto 3",
        "10.1.0.0/26 via 192.168.0.2 dev eth0 proto 80",
    ];
    assert_eq!(bed.net.table(), wanted);
    bed.writes();

    bed.restart();
    bed.table.replace(Class::LocalWorkload, Some(&link), [workload("10.0.0.1/32"), workload("10.0.0.2/32")]);
    bed.table.replace(Class::NoEncap, Some(&"eth0".into()), [remote("10.1.0.0/26", "192.168.0.2")]);
    bed.table.replace(Class::BlackholeNoEncap, None, [blackhole("10.0.0.0/26")]);
    bed.apply();
    assert_eq!(bed.writes(), []);
    assert_eq!(bed.net.forgotten, []);

    // After another restart one address is gone: its route goes, and its connections after it.
    bed.restart();
    bed.table.replace(Class::LocalWorkload, Some(&link), [workload("10.0.0.1/32")]);
    bed.table.replace(Class::NoEncap, Some(&"eth0".into()), [remote("10.1.0.0/26", "192.168.0.2")]);
    bed.apply();
    let gone = bed.writes();
    assert_eq!(gone.len(), 2, "the blackhole and the address: {gone:?}");
    assert!(gone.iter().all(|c| matches!(c, Change::DeleteRoute(_))));
    assert_eq!(bed.net.forgotten, [(2, ip("10.0.0.2"))]);
}

#[test]
fn a_route_that_nobody_wants_yet_is_spared_for_a_while() {
    let mut bed = Bed::new(&["cali1"]);
    let mut early = Route::new(cidr("10.0.0.9/32"));
    early.oif = Some(bed.net.index("cali1"));
    early.scope = RouteScope::LINK;
    bed.net.routes.push(early.clone());
    let due = bed.apply().due.expect("due later");
    assert_eq!((due - bed.now, bed.writes()), (GRACE, vec![]));
    bed.now = due;
    assert_eq!(bed.apply().due, None);
    assert_eq!(bed.writes(), [Change::DeleteRoute(early.clone())]);
    // Where the endpoint is known, the time is over at once.
    let mut bed = Bed::new(&["cali1"]);
    bed.net.routes.push(early.clone());
    bed.table.update(Class::LocalWorkload, Some(&"cali1".into()), workload("10.0.0.1/32"));
    bed.apply();
    assert!(bed.writes().contains(&Change::DeleteRoute(early)));
}

#[test]
fn nobody_elses_routes_are_touched() {
    let mut bed = Bed::new(&["eth0"]);
    let eth0 = Some(bed.net.index("eth0"));
    let mut foreign = Route::new(cidr("10.9.0.0/24"));
    foreign.oif = eth0;
    let mut default = Route::new(cidr("0.0.0.0/0"));
    (default.oif, default.gateway) = (eth0, Some(ip("192.168.0.1")));
    let mut stale = Route::new(cidr("10.8.0.0/26"));
    (stale.oif, stale.gateway, stale.protocol) = (eth0, Some(ip("192.168.0.9")), owner().exclusive());
    bed.net.routes = vec![foreign.clone(), default.clone(), stale.clone()];
    bed.apply();
    assert_eq!(bed.writes(), [Change::DeleteRoute(stale)]);
    // A foreign route of the same identity gives way to ours, in one step.
    bed.table.update(Class::NoEncap, Some(&"eth0".into()), remote("10.9.0.0/24", "192.168.0.3"));
    bed.apply();
    let writes = bed.writes();
    let [Change::ReplaceRoute(ours)] = &writes[..] else { panic!("not replaced: {writes:?}") };
    assert_eq!(ours.gateway, Some(ip("192.168.0.3")));
    assert!(bed.net.routes.contains(&default));
}

#[test]
fn the_lowest_class_wins_then_the_newer_link_and_who_is_down_waits() {
    let mut bed = Bed::new(&["eth0", "vxlan.calico", "cali1", "cali2"]);
    let name = |n: &str| Some(SmolStr::new(n));
    let tunnel =
        Target { priority: 0, mtu: Some(1450), exclusive: false, ..remote("10.1.0.0/26", "10.1.0.0") };
    bed.table.update(Class::VxlanTunnel, name("vxlan.calico").as_ref(), tunnel);
    bed.table.update(Class::VxlanSameSubnet, name("eth0").as_ref(), remote("10.1.0.0/26", "192.168.0.2"));
    bed.table.update(Class::LocalWorkload, name("cali1").as_ref(), workload("10.0.0.1/32"));
    bed.table.update(Class::LocalWorkload, name("cali2").as_ref(), workload("10.0.0.1/32"));
    bed.apply();
    assert_eq!(
        bed.net.table(),
        ["10.0.0.1/32 dev cali2 proto 3", "10.1.0.0/26 via 192.168.0.2 dev eth0 proto 80"]
    );
    bed.net.set_up("eth0", false);
    bed.net.set_up("cali2", false);
    bed.tell("eth0");
    bed.tell("cali2");
    bed.apply();
    assert_eq!(
        bed.net.table(),
        ["10.0.0.1/32 dev cali1 proto 3", "10.1.0.0/26 via 10.1.0.0 dev vxlan.calico proto 3"]
    );
    bed.table.remove(Class::VxlanTunnel, name("vxlan.calico").as_ref(), cidr("10.1.0.0/26"));
    bed.apply();
    assert_eq!(bed.net.table(), ["10.0.0.1/32 dev cali1 proto 3"]);
}

#[test]
fn a_workload_that_moves_is_cut_off_before_its_connections_are_forgotten() {
    let mut bed = Bed::new(&["cali1", "cali2"]);
    let (one, two) = (SmolStr::new("cali1"), SmolStr::new("cali2"));
    bed.table.update(Class::LocalWorkload, Some(&one), workload("10.0.0.1/32"));
    bed.apply();
    bed.writes();
    bed.table.replace(Class::LocalWorkload, Some(&one), []);
    bed.table.update(Class::LocalWorkload, Some(&two), workload("10.0.0.1/32"));
    bed.apply();
    let writes = bed.writes();
    assert!(matches!(writes[..], [Change::DeleteRoute(_), Change::ReplaceRoute(_)]), "{writes:?}");
    assert_eq!(bed.net.forgotten, [(1, ip("10.0.0.1"))], "between the two");
}

#[test]
fn a_link_that_flaps_gets_its_routes_back_and_keeps_its_connections() {
    let mut bed = Bed::new(&["cali1"]);
    bed.table.update(Class::LocalWorkload, Some(&"cali1".into()), workload("10.0.0.1/32"));
    bed.apply();
    let before = bed.net.table();
    // Both changes come before the next apply.
    bed.net.set_up("cali1", false);
    bed.net.set_up("cali1", true);
    bed.tell("cali1");
    bed.apply();
    assert_eq!(bed.net.table(), before);
    bed.net.set_up("cali1", false);
    bed.tell("cali1");
    bed.apply();
    assert_eq!(bed.net.table(), [""; 0]);
    bed.net.set_up("cali1", true);
    bed.tell("cali1");
    bed.apply();
    assert_eq!(bed.net.table(), before);
    assert_eq!(bed.net.forgotten, []);
    // Another link of the same name is another workload.
    bed.net.remove_link("cali1");
    bed.tell("cali1");
    bed.net.add_link("cali1");
    bed.tell("cali1");
    bed.apply();
    assert_eq!(bed.net.table(), before);
    assert_eq!(bed.net.forgotten.len(), 1);
}

#[test]
fn what_fails_stays_pending_and_holds_up_nothing_else() {
    let mut bed = Bed::new(&["cali1"]);
    let link = SmolStr::new("cali1");
    bed.net.refuse.insert(cidr("10.0.0.2/32"));
    let all = ["10.0.0.1/32", "10.0.0.2/32", "10.0.0.3/32"].map(workload);
    bed.table.replace(Class::LocalWorkload, Some(&link), all);
    let report = bed.apply();
    assert_eq!((report.written, report.failures.len()), (2, 1));
    bed.writes();
    bed.net.refuse.clear();
    assert_eq!(bed.apply().written, 1);
    assert_eq!(bed.writes().len(), 1);
    // A broken socket loses nothing either.
    bed.table.update(Class::LocalWorkload, Some(&link), workload("10.0.0.4/32"));
    bed.net.broken = true;
    bed.table.apply(&mut bed.net, bed.now).expect_err("broken");
    bed.net.broken = false;
    bed.apply();
    assert_eq!(bed.net.table().len(), 4);
}

#[test]
fn foreign_changes_are_repaired_by_a_resync() {
    let mut bed = Bed::new(&["cali1"]);
    let link = SmolStr::new("cali1");
    bed.table.replace(Class::LocalWorkload, Some(&link), ["10.0.0.1/32", "10.0.0.2/32"].map(workload));
    bed.apply();
    let right = bed.net.routes.clone();
    bed.net.routes[0].src = Some(ip("10.0.0.77"));
    bed.net.routes.remove(1);
    let mut more = Route::new(cidr("10.0.0.3/32"));
    more.oif = Some(bed.net.index("cali1"));
    bed.net.routes.push(more);
    bed.writes();
    bed.apply();
    assert_eq!(bed.writes(), [], "nothing is looked at unasked");
    bed.table.resync();
    let report = bed.apply();
    assert_eq!((report.repaired, bed.writes().len()), (3, 3));
    let mut routes = bed.net.routes.clone();
    routes.sort_by_key(|r| r.dst);
    assert_eq!(routes, right);
}

#[test]
fn few_links_are_read_one_by_one_many_at_once() {
    let mut bed = Bed::new(&["cali1"]);
    bed.apply();
    assert_eq!(bed.net.route_reads, 1);
    bed.net.add_link("cali2");
    bed.tell("cali2");
    let report = bed.apply();
    assert!(report.partial_read.is_some() && report.full_read.is_none());
    for n in 10..30 {
        let name = format!("cali{n}");
        bed.net.add_link(&name);
        bed.tell(&name);
    }
    let before = bed.net.route_reads;
    assert!(bed.apply().full_read.is_some());
    assert_eq!(bed.net.route_reads, before + 1);
}

#[test]
fn ipv6_routes_look_as_the_kernel_shows_them() {
    let mut table = RouteTable::new(IpVersion::V6, owner(), None);
    let mut net = MemoryNet::default();
    net.add_link("lo");
    let index = net.add_link("cali1");
    table.on_link(&"cali1".into(), Some((index, true, Instant::now())), true);
    table.update(Class::LocalWorkload, Some(&"cali1".into()), workload("fd00::1/128"));
    table.replace(Class::BlackholeVxlan, None, [blackhole("fd00::/122")]);
    table.apply(&mut net, Instant::now()).expect("apply");
    let mut routes = net.routes.clone();
    routes.sort_by_key(|r| r.dst);
    assert_eq!((routes[0].priority, routes[0].oif, routes[0].scope), (1024, Some(1), RouteScope::UNIVERSE));
    assert_eq!(
        (routes[1].priority, routes[1].oif, routes[1].scope),
        (1024, Some(index), RouteScope::UNIVERSE)
    );
}

/// Steps of a life with links, wishes, foreign hands and failures.
#[derive(Debug, Clone)]
enum Step {
    Replace(u8, u8, BTreeSet<u8>),
    Update(u8, u8, u8),
    Remove(u8, u8, u8),
    Link(u8, bool),
    Away(u8),
    Steal(u8),
    Refuse(u8, bool),
    Resync,
    Apply,
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let (class, link, dst) = (0u8..3, 0u8..3, 0u8..5);
    prop_oneof![
        (class.clone(), link.clone(), prop::collection::btree_set(dst.clone(), 0..4))
            .prop_map(|(c, l, d)| Step::Replace(c, l, d)),
        (class.clone(), link.clone(), dst.clone()).prop_map(|(c, l, d)| Step::Update(c, l, d)),
        (class, link.clone(), dst.clone()).prop_map(|(c, l, d)| Step::Remove(c, l, d)),
        (link.clone(), any::<bool>()).prop_map(|(l, up)| Step::Link(l, up)),
        link.prop_map(Step::Away),
        dst.clone().prop_map(Step::Steal),
        (dst, any::<bool>()).prop_map(|(d, r)| Step::Refuse(d, r)),
        Just(Step::Resync),
        Just(Step::Apply),
        Just(Step::Restart),
    ]
}

const CLASSES: [Class; 3] = [Class::LocalWorkload, Class::VxlanTunnel, Class::NoEncap];
const LINKS: [&str; 3] = ["cali1", "cali2", "vxlan.calico"];

fn some_target(class: Class, n: u8) -> Target {
    let dst = Cidr::new(IpAddr::from([10, 0, 0, n]), 32).expect("cidr");
    let hop = match class {
        Class::LocalWorkload => Hop::Link,
        _ => Hop::Router(IpAddr::from([192, 168, 0, n])),
    };
    Target { dst, priority: 0, hop, mtu: None, exclusive: class == Class::NoEncap }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]
    /// However it came about: after a last resync the kernel holds what a fresh table over an empty kernel would
    /// make of the same wishes and links, and a further apply moves nothing.
    #[test]
    fn any_way_leads_to_the_same_table(steps in prop::collection::vec(step(), 1..60)) {
        let mut bed = Bed::new(&LINKS);
        let mut wishes: BTreeMap<(Class, &str), BTreeMap<Cidr, Target>> = BTreeMap::new();
        for s in steps {
            match s {
                Step::Replace(c, l, dsts) => {
                    let (class, link) = (CLASSES[usize::from(c)], LINKS[usize::from(l)]);
                    let targets: Vec<Target> = dsts.into_iter().map(|d| some_target(class, d)).collect();
                    bed.table.replace(class, Some(&link.into()), targets.clone());
                    wishes.insert((class, link), targets.into_iter().map(|t| (t.dst, t)).collect());
                }
                Step::Update(c, l, d) => {
                    let (class, link) = (CLASSES[usize::from(c)], LINKS[usize::from(l)]);
                    let target = some_target(class, d);
                    bed.table.update(class, Some(&link.into()), target.clone());
                    wishes.entry((class, link)).or_default().insert(target.dst, target);
                }
                Step::Remove(c, l, d) => {
                    let (class, link) = (CLASSES[usize::from(c)], LINKS[usize::from(l)]);
                    let dst = some_target(class, d).dst;
                    bed.table.remove(class, Some(&link.into()), dst);
                    wishes.entry((class, link)).or_default().remove(&dst);
                }
                Step::Link(l, up) => {
                    let name = LINKS[usize::from(l)];
                    bed.net.set_up(name, up);
                    bed.tell(name);
                }
                Step::Away(l) => {
                    let name = LINKS[usize::from(l)];
                    bed.net.remove_link(name);
                    bed.tell(name);
                    bed.net.add_link(name);
                    bed.tell(name);
                }
                Step::Steal(d) => {
                    let dst = some_target(Class::NoEncap, d).dst;
                    bed.net.routes.retain(|r| r.dst != dst);
                }
                Step::Refuse(d, refuse) => {
                    let dst = some_target(Class::NoEncap, d).dst;
                    if refuse { bed.net.refuse.insert(dst); } else { bed.net.refuse.remove(&dst); }
                }
                Step::Resync => bed.table.resync(),
                Step::Apply => { bed.apply(); }
                Step::Restart => {
                    bed.restart();
                    for ((class, link), targets) in &wishes {
                        bed.table.replace(*class, Some(&(*link).into()), targets.values().cloned());
                    }
                }
            }
        }
        bed.net.refuse.clear();
        bed.table.resync();
        bed.now += GRACE * 2;
        let report = bed.apply();
        prop_assert!(report.failures.is_empty());

        let mut fresh = Bed { table: table(), net: bed.net.clone(), now: bed.now };
        fresh.net.routes.clear();
        LINKS.iter().for_each(|n| fresh.tell(n));
        for ((class, link), targets) in wishes {
            fresh.table.replace(class, Some(&link.into()), targets.into_values());
        }
        fresh.apply();
        prop_assert_eq!(bed.net.table(), fresh.net.table());
        bed.writes();
        bed.table.resync();
        bed.apply();
        prop_assert_eq!(bed.writes(), vec![]);
    }
}
