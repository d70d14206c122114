//! Several nodes on one fabric: tunnels, plain routes, source NAT.

use std::path::Path;

use calico_dpmsg::{Action, Encapsulation, Message, PoolType};
use calico_host::{NetNs, Sysctl};
use calico_netlink::Netlink;

use super::node::*;
use super::objects::*;

/// A node of the fabric: number, which is also its segment's for the third, and pod.
struct Member {
    name: &'static str,
    ns: NetNs,
    segment: u8,
    n: u8,
    pod: Option<Machine>,
    dir: tempfile::TempDir,
}

impl Member {
    fn addr(&self) -> String {
        format!("172.16.{}.{}", self.segment, self.n)
    }

    fn addr6(&self) -> String {
        format!("fd16:{}::{}", self.segment, self.n)
    }

    fn pod_addr(&self) -> String {
        format!("10.1.{}.5", self.n)
    }

    fn pod_addr6(&self) -> String {
        format!("fd01:{}::5", self.n)
    }

    fn vtep(&self) -> Message {
        let (v4, v6) = (format!("10.1.{}.0", self.n), format!("fd01:{}::", self.n));
        vtep(self.name, Some((&v4, &self.addr())), Some((&v6, &self.addr6())), self.n)
    }

    fn pod(&self) -> &Machine {
        self.pod.as_ref().expect("pod")
    }
}

/// Two segments with a router between them, which is also the world outside.
struct Fabric {
    router: Machine,
    members: Vec<Member>,
}

impl Fabric {
    fn new(members: &[(&'static str, u8, u8)]) -> Option<Self> {
        let ns = namespace()?;
        let mut nl = Netlink::in_ns(&ns).expect("socket");
        for segment in [5, 6] {
            let addrs = [format!("172.16.{segment}.254/24"), format!("fd16:{segment}::254/64")];
            make_bridge(&mut nl, &format!("br{segment}"), &[&addrs[0], &addrs[1]]);
        }
        ns.run(|| {
            Sysctl::default().write("net/ipv4/ip_forward", "1").expect("forwarding");
            Sysctl::default().write("net/ipv6/conf/all/forwarding", "1").expect("forwarding");
        })
        .expect("namespace");
        let mut list = Vec::new();
        for &(name, segment, n) in members {
            let own = namespace()?;
            let mut member =
                Member { name, ns: own, segment, n, pod: None, dir: tempfile::tempdir().expect("directory") };
            let (v4, v6) = (format!("{}/24", member.addr()), format!("{}/64", member.addr6()));
            member.pod = Some(
                member
                    .ns
                    .run(|| {
                        let mut nl = Netlink::new().expect("socket");
                        plug(&mut nl, &ns, &format!("br{segment}"), "eth0", &format!("p{n}"), &[&v4, &v6]);
                        route_via(&mut nl, "0.0.0.0/0", &format!("172.16.{segment}.254"), "eth0");
                        route_via(&mut nl, "::/0", &format!("fd16:{segment}::254"), "eth0");
                        make_pod(&mut nl, "calip", &[&member.pod_addr(), &member.pod_addr6()])
                    })
                    .expect("namespace"),
            );
            list.push(member);
        }
        let router = Machine::new(ns, vec![ip("172.16.5.254"), ip("172.16.6.254")]);
        Some(Self { router, members: list })
    }

    /// What the calculation graph would tell one node.
    fn messages(&self, me: &Member, kind: PoolType, encapsulation: Encapsulation, nat: bool) -> Vec<Message> {
        let nets = [format!("{}/32", me.pod_addr()), format!("{}/128", me.pod_addr6())];
        let mut out = vec![
            profile("open", Action::Allow),
            workload("p", endpoint("calip", &[&nets[0], &nets[1]], vec![])),
            pool("10.1.0.0/16", nat),
            pool("fd01::/16", nat),
            Message::Encapsulation(encapsulation),
        ];
        for other in &self.members {
            let (v4, v6) = (format!("{}/24", other.addr()), format!("{}/64", other.addr6()));
            out.push(node(other.name, Some(&v4), Some(&v6)));
            let mine = other.name == me.name;
            let near = other.segment == me.segment;
            for (dst, addr) in [
                (format!("10.1.{}.0/26", other.n), other.addr()),
                (format!("fd01:{}::/122", other.n), other.addr6()),
            ] {
                out.push(block(&dst, kind, other.name, (!mine).then_some(&addr), near));
            }
            if kind == PoolType::Vxlan {
                out.push(other.vtep());
            }
        }
        out.push(Message::InSync);
        out
    }

    /// Programs every node as a new process would.
    fn program(
        &self,
        kind: PoolType,
        encapsulation: Encapsulation,
        nat: bool,
        look: impl Fn(&mut Node, &Member) + Sync,
    ) {
        for member in &self.members {
            let messages = self.messages(member, kind, encapsulation, nat);
            let dir: &Path = member.dir.path();
            member
                .ns
                .run(|| {
                    let mut node =
                        Node::new(params(member.name, dir, &[("ProgramClusterRoutes", "Enabled")]));
                    node.send(&messages);
                    node.settle();
                    look(&mut node, member);
                })
                .expect("namespace");
        }
    }

    fn all_reach_all(&self) {
        for from in &self.members {
            for to in self.members.iter().filter(|m| m.name != from.name) {
                from.pod().opens(&to.pod_addr(), 80);
                from.pod().opens(&to.pod_addr6(), 80);
            }
        }
    }
}

const VXLAN: Encapsulation = Encapsulation { ipip: false, vxlan: true, vxlan_v6: true, no_encap: false };

#[test]
fn vxlan_where_it_must_and_straight_where_it_can() {
    let Some(fabric) = Fabric::new(&[("one", 5, 1), ("two", 5, 2), ("three", 6, 3)]) else { return };
    fabric.program(PoolType::Vxlan, VXLAN, false, |node, me| {
        let routes = node.routes();
        let has = |text: String| assert!(routes.contains(&text), "{text} is not in {routes:#?}");
        match me.name {
            "one" => {
                has("10.1.2.0/26 unicast eth0".into());
                has("10.1.3.0/26 unicast vxlan.calico".into());
                has("fd01:2::/122 unicast eth0".into());
                has("fd01:3::/122 unicast vxlan-v6.calico".into());
                has("10.1.1.0/26 blackhole ".into());
                has("fd01:1::/122 blackhole lo".into());
            }
            "three" => has("10.1.1.0/26 unicast vxlan.calico".into()),
            _ => {}
        }
        assert_eq!(std::fs::read_to_string(me.dir.path().join("mtu")).expect("file"), "1430");
        let device = node.nl.link_by_name("vxlan.calico").expect("read").expect("device");
        assert_eq!(device.mtu, 1450);
        // A new process finds all in place.
        let messages = fabric.messages(me, PoolType::Vxlan, VXLAN, false);
        node.restart();
        node.send(&messages);
        let report = node.apply();
        assert_eq!(report.writes.total(), 0, "{report:?}");
    });
    fabric.all_reach_all();
    // Foreign VXLAN is dropped, that of nodes is not; a packet from outside to the port gets no answer.
    let counters =
        fabric.members[2].ns.run(|| shell("nft", &["list", "chain", "ip", "calico", "filter-cali-INPUT"]));
    assert!(counters.expect("namespace").contains("Allow IPv4 VXLAN packets from allowed hosts"));
    // Off again: the devices go, and with them the way to the other segment.
    fabric.program(PoolType::NoEncap, Encapsulation::default(), false, |node, _| {
        for name in ["vxlan.calico", "vxlan-v6.calico"] {
            assert!(node.nl.link_by_name(name).expect("read").is_none(), "{name} is still there");
        }
    });
    let [one, two, three] = &fabric.members[..] else { panic!("three nodes") };
    one.pod().opens(&two.pod_addr(), 80);
    one.pod().opens(&two.pod_addr6(), 80);
    one.pod().is_denied(&three.pod_addr(), 80);
}

#[test]
fn source_nat_hides_pods_from_the_outside_only() {
    let Some(fabric) = Fabric::new(&[("one", 5, 1), ("two", 5, 2)]) else { return };
    let plain = Encapsulation { no_encap: true, ..Encapsulation::default() };
    fabric.program(PoolType::NoEncap, plain, true, |_, _| {});
    let [one, two] = &fabric.members[..] else { panic!("two nodes") };
    assert_eq!(one.pod().seen_as("172.16.5.254", 80), one.addr());
    assert_eq!(one.pod().seen_as("fd16:5::254", 80), one.addr6());
    assert_eq!(one.pod().seen_as(&two.pod_addr(), 80), one.pod_addr());
    assert_eq!(one.pod().seen_as(&two.pod_addr6(), 80), one.pod_addr6());
    // Without it the answers do not find back.
    fabric.program(PoolType::NoEncap, plain, false, |_, _| {});
    one.pod().is_denied("172.16.5.254", 80);
    one.pod().opens(&two.pod_addr(), 80);
    fabric.router.is_denied(&one.pod_addr(), 80);
}
