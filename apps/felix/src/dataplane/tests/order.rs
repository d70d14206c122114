//! Any order, any number of restarts: the same kernel in the end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use calico_dpmsg::{Action, Encapsulation, HostEndpoint, Message, PoolType};
use proptest::prelude::*;

use super::bed::Bed;
use super::objects::*;

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
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]
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
