use std::sync::Arc;

use calico_api::NodeBgpSpec;
use calico_dpmsg::{self as dp, IpSetType, Member};
use calico_model::policy::{Action, EntityMatch, HostEndpoint, NetworkSet, Policy, Rule, Tier};
use calico_model::policy::{EndpointPort, Labels, WorkloadEndpoint};
use calico_model::{KvPair, PolicyKey, UpdateType};
use calico_net::{Port, Protocol};

use super::*;

struct Fixture {
    graph: CalcGraph,
}

impl Fixture {
    fn new() -> Self {
        Self::with(CalcConfig { routes: None, ..CalcConfig::new("me") })
    }

    fn with(config: CalcConfig) -> Self {
        let mut f = Self { graph: CalcGraph::new(config) };
        f.put(Key::Tier("default".into()), Value::Tier(Tier { order: Some(1e6), default_pass: false }));
        f.put(profile_key("p"), Value::ProfileRules(Arc::default()));
        f.graph.on_status(SyncStatus::InSync);
        f.graph.flush();
        f
    }

    fn put(&mut self, key: Key, value: Value) {
        self.graph.on_update(&Update { kv: KvPair::new(key, value), kind: UpdateType::New });
    }

    fn delete(&mut self, key: Key) {
        self.graph.on_update(&Update { kv: KvPair::tombstone(key), kind: UpdateType::Deleted });
    }

    /// Messages in short: kind and id.
    fn flush(&mut self) -> Vec<String> {
        self.graph.flush().iter().map(show).collect()
    }

    fn messages(&mut self) -> Vec<Message> {
        self.graph.flush()
    }

    fn problems(&self) -> Vec<String> {
        self.graph.problems().iter().map(Problem::to_string).collect()
    }
}

fn show(message: &Message) -> String {
    let list = |members: &[Member]| members.iter().map(|m| m.to_string()).collect::<Vec<_>>().join(" ");
    match message {
        Message::IpSetUpdate { members, .. } => format!("set = {}", list(members)),
        Message::IpSetDelta { added, removed, .. } => format!("set + {} - {}", list(added), list(removed)),
        Message::IpSetRemove(_) => "set gone".into(),
        Message::PolicyUpdate(id, _) => format!("policy {}", id.name),
        Message::PolicyRemove(id) => format!("policy {} gone", id.name),
        Message::ProfileUpdate(id, _) => format!("profile {id}"),
        Message::ProfileRemove(id) => format!("profile {id} gone"),
        Message::WorkloadEndpointUpdate(id, e) => format!("workload {} {}", id.workload, tiers(&e.tiers)),
        Message::WorkloadEndpointRemove(id) => format!("workload {} gone", id.workload),
        Message::HostEndpointUpdate(id, e) => format!("host {} {}", id.0, tiers(&e.tiers)),
        Message::HostEndpointRemove(id) => format!("host {} gone", id.0),
        other => format!("{other:?}"),
    }
}

fn tiers(tiers: &[dp::TierInfo]) -> String {
    let names = |ids: &[dp::PolicyId]| ids.iter().map(|p| p.name.as_str()).collect::<Vec<_>>().join(",");
    let end = |t: &dp::TierInfo| if t.default_pass { "pass" } else { "deny" };
    let one = |t: &dp::TierInfo| format!("{}[{}|{}]{}", t.name, names(&t.ingress), names(&t.egress), end(t));
    tiers.iter().map(one).collect::<Vec<_>>().join(" ")
}

fn labels(list: &[(&str, &str)]) -> Labels {
    list.iter().map(|&(k, v)| (k.into(), v.into())).collect()
}

fn profile_key(name: &str) -> Key {
    Key::ProfileRules(name.into())
}

fn workload_key(node: &str, name: &str) -> Key {
    Key::WorkloadEndpoint(WorkloadEndpointKey {
        host: node.into(),
        orchestrator: "k8s".into(),
        workload: name.into(),
        endpoint: "eth0".into(),
    })
}

fn endpoint(own: &[(&str, &str)], addr: &str) -> WorkloadEndpoint {
    WorkloadEndpoint {
        interface_name: "cali1".into(),
        profile_ids: vec!["p".into()],
        ipv4_nets: vec![addr.parse().unwrap()],
        labels: labels(own),
        ports: vec![EndpointPort { name: "http".into(), protocol: Protocol::Name("tcp".into()), port: 8080 }],
        ..WorkloadEndpoint::default()
    }
}

fn workload(own: &[(&str, &str)], addr: &str) -> Value {
    Value::WorkloadEndpoint(Arc::new(endpoint(own, addr)))
}

fn network_set(own: &[(&str, &str)], nets: &[&str]) -> Value {
    let nets = nets.iter().map(|n| n.parse().unwrap()).collect();
    Value::NetworkSet(Arc::new(NetworkSet { nets, labels: labels(own), profile_ids: vec![] }))
}

fn policy_key(name: &str) -> Key {
    Key::Policy(PolicyKey {
        kind: Kind::GlobalNetworkPolicy,
        namespace: SmolStr::default(),
        name: name.into(),
    })
}

fn rule(action: Action, source: &str) -> Rule {
    Rule {
        action,
        ip_version: None,
        protocol: None,
        not_protocol: None,
        icmp: None,
        not_icmp: None,
        src: EntityMatch { selector: source.into(), ..EntityMatch::default() },
        dst: EntityMatch::default(),
        http: None,
        metadata: None,
    }
}

fn policy(selector: &str, inbound: Vec<Rule>) -> Policy {
    Policy {
        tier: "default".into(),
        order: Some(1.0),
        namespace: SmolStr::default(),
        selector: selector.into(),
        ingress: true,
        egress: false,
        inbound_rules: inbound,
        outbound_rules: vec![],
        untracked: false,
        pre_dnat: false,
        apply_on_forward: false,
        staged_action: None,
        performance_hints: vec![],
    }
}

fn policy_value(selector: &str, inbound: Vec<Rule>) -> Value {
    Value::Policy(Arc::new(policy(selector, inbound)))
}

fn rules_of(messages: &[Message], name: &str) -> Vec<dp::Rule> {
    let found = messages.iter().find_map(|m| match m {
        Message::PolicyUpdate(id, policy) if id.name == name => Some(policy.inbound.clone()),
        _ => None,
    });
    found.unwrap()
}

#[test]
fn nothing_is_told_before_everything_was_read() {
    let mut graph = CalcGraph::new(CalcConfig::new("me"));
    let put = |key, value| Update { kv: KvPair::new(key, value), kind: UpdateType::New };
    graph.on_update(&put(workload_key("me", "w"), workload(&[], "10.0.0.1/32")));
    graph.on_status(SyncStatus::ResyncInProgress);
    assert!(graph.flush().is_empty());
    graph.on_update(&put(Key::ReadyFlag, Value::Bool(false)));
    assert_eq!(graph.flush(), [Message::DatastoreNotReady]);
    assert!(graph.flush().is_empty());
    graph.on_update(&put(Key::ReadyFlag, Value::Bool(true)));
    graph.on_status(SyncStatus::InSync);
    let messages = graph.flush();
    assert_eq!(messages.last(), Some(&Message::InSync));
    assert_eq!(
        messages.iter().map(show).collect::<Vec<_>>()[..2],
        ["profile p".to_owned(), "workload w ".to_owned()]
    );
    // A syncer that starts over does not close the gate.
    graph.on_status(SyncStatus::ResyncInProgress);
    graph.on_update(&Update { kv: KvPair::tombstone(Key::ReadyFlag), kind: UpdateType::Deleted });
    graph.on_update(&Update { kv: KvPair::tombstone(workload_key("me", "w")), kind: UpdateType::Deleted });
    assert_eq!(
        graph.flush().iter().map(show).collect::<Vec<_>>(),
        ["DatastoreNotReady", "workload w gone", "profile p gone", "RouteRemove(10.0.0.1/32)"]
    );
}

#[test]
fn sets_come_first_and_go_last() {
    let mut f = Fixture::new();
    f.put(workload_key("me", "w"), workload(&[("app", "web")], "10.0.0.1/32"));
    f.put(workload_key("you", "v"), workload(&[("app", "db")], "10.0.0.2/32"));
    assert_eq!(f.flush(), ["profile p", "workload w "]);
    f.put(policy_key("a"), policy_value("app == 'web'", vec![rule(Action::Allow, "app == 'db'")]));
    assert_eq!(f.flush(), ["set = 10.0.0.2/32", "policy a", "workload w default[a|]deny"]);
    f.put(workload_key("you", "v"), workload(&[("app", "db")], "10.0.0.3/32"));
    assert_eq!(f.flush(), ["set + 10.0.0.3/32 - 10.0.0.2/32"]);
    f.put(workload_key("me", "w"), workload(&[("app", "none")], "10.0.0.1/32"));
    assert_eq!(f.flush(), ["workload w ", "policy a gone", "set gone"]);
    f.delete(workload_key("me", "w"));
    assert_eq!(f.flush(), ["workload w gone", "profile p gone"]);
}

#[test]
fn what_changes_and_changes_back_is_not_told() {
    let mut f = Fixture::new();
    let web = || workload(&[("app", "web")], "10.0.0.1/32");
    let allow = || policy_value("app == 'web'", vec![rule(Action::Allow, "app == 'db'")]);
    f.put(workload_key("me", "w"), web());
    f.put(workload_key("you", "v"), workload(&[("app", "db")], "10.0.0.2/32"));
    f.put(policy_key("a"), allow());
    f.flush();
    for key in [workload_key("me", "w"), workload_key("you", "v"), policy_key("a"), profile_key("p")] {
        f.delete(key);
    }
    f.put(policy_key("a"), policy_value("app == 'web'", vec![rule(Action::Deny, "all()")]));
    f.put(workload_key("you", "v"), workload(&[("app", "db")], "10.0.0.9/32"));
    f.put(policy_key("a"), allow());
    f.put(workload_key("you", "v"), workload(&[("app", "db")], "10.0.0.2/32"));
    f.put(profile_key("p"), Value::ProfileRules(Arc::default()));
    f.put(workload_key("me", "w"), web());
    assert_eq!(f.flush(), Vec::<String>::new());
}

#[test]
fn a_policy_with_a_bad_selector_applies_to_nothing_and_is_named() {
    let mut f = Fixture::new();
    f.put(workload_key("me", "w"), workload(&[("app", "web")], "10.0.0.1/32"));
    f.put(policy_key("a"), policy_value("app = 'web'", vec![]));
    f.put(policy_key("b"), policy_value("app == 'web'", vec![]));
    assert_eq!(f.flush(), ["policy b", "profile p", "workload w default[b|]deny"]);
    let problems = f.problems();
    assert_eq!(problems.len(), 1);
    assert!(problems[0].contains("selector: the selector does not parse (byte 4"), "{problems:?}");
    f.put(policy_key("a"), policy_value("app == 'web'", vec![]));
    assert_eq!(f.flush(), ["policy a", "workload w default[a,b|]deny"]);
    assert!(f.problems().is_empty());
}

#[test]
fn a_rule_with_a_bad_selector_fails_closed() {
    let mut f = Fixture::new();
    f.put(workload_key("me", "w"), workload(&[("app", "web")], "10.0.0.1/32"));
    let mut deny = rule(Action::Deny, "has(");
    deny.dst.selector = "app == 'web'".into();
    let mut service = rule(Action::Allow, "");
    service.dst.service = Some(("ns".into(), "web".into()));
    let rules =
        vec![rule(Action::Allow, "has("), deny, rule(Action::Pass, "has("), service, rule(Action::Log, "")];
    f.put(policy_key("a"), policy_value("all()", rules));
    let told = rules_of(&f.messages(), "a");
    let actions: Vec<_> = told.iter().map(|r| (r.action, r.src.sets.len(), r.dst.sets.len())).collect();
    assert_eq!(actions, [(dp::Action::Deny, 0, 1), (dp::Action::Log, 0, 0)]);
    let fields: Vec<_> = f.graph.problems().into_iter().map(|p| p.field).collect();
    let wanted = ["ingress[0].source.selector", "ingress[1].source.selector", "ingress[2].source.selector"];
    assert_eq!(fields, [wanted[0], wanted[1], wanted[2], "ingress[3].destination.services"]);
}

#[test]
fn a_missing_profile_denies_and_a_missing_tier_denies_last() {
    let mut f = Fixture::new();
    let mut w = endpoint(&[], "10.0.0.1/32");
    w.profile_ids = vec!["ghost".into()];
    f.put(workload_key("me", "w"), Value::WorkloadEndpoint(Arc::new(w)));
    let in_tier =
        |tier: &str| Value::Policy(Arc::new(Policy { tier: tier.into(), ..policy("all()", vec![]) }));
    f.put(policy_key("a"), in_tier("nowhere"));
    f.put(policy_key("b"), in_tier("zone"));
    f.put(Key::Tier("zone".into()), Value::Tier(Tier { order: None, default_pass: true }));
    let messages = f.messages();
    let ghost = messages.iter().find_map(|m| match m {
        Message::ProfileUpdate(id, p) if id == "ghost" => Some(p.clone()),
        _ => None,
    });
    let ghost = ghost.unwrap();
    for rules in [&ghost.inbound, &ghost.outbound] {
        assert_eq!((rules.len(), rules[0].action), (1, dp::Action::Deny));
    }
    assert_eq!(show(messages.last().unwrap()), "workload w zone[b|]pass nowhere[a|]deny");
    let reasons: Vec<_> = f.graph.problems().into_iter().map(|p| p.reason).collect();
    assert_eq!(reasons, [Reason::ProfileMissing, Reason::TierMissing]);
    f.put(profile_key("ghost"), Value::ProfileRules(Arc::default()));
    f.put(Key::Tier("nowhere".into()), Value::Tier(Tier { order: Some(1.0), default_pass: false }));
    assert_eq!(f.flush(), ["profile ghost", "workload w nowhere[a|]deny zone[b|]pass"]);
    assert!(f.problems().is_empty());
}

#[test]
fn an_endpoint_that_may_not_be_used_counts_as_gone() {
    let mut f = Fixture::new();
    f.put(workload_key("me", "w"), workload(&[], "10.0.0.1/32"));
    f.flush();
    let mut spoofing = endpoint(&[], "10.0.0.1/32");
    spoofing.allow_spoofed_source_prefixes = vec!["192.0.2.0/24".parse().unwrap()];
    let spoofing = Value::WorkloadEndpoint(Arc::new(spoofing));
    f.put(workload_key("me", "w"), spoofing.clone());
    assert_eq!(f.flush(), ["workload w gone", "profile p gone"]);
    assert_eq!(f.graph.problems()[0].reason, Reason::SpoofingForbidden);
    let mut nameless = endpoint(&[], "10.0.0.1/32");
    nameless.interface_name = SmolStr::default();
    f.put(workload_key("me", "w"), Value::WorkloadEndpoint(Arc::new(nameless)));
    f.put(policy_key("a"), Value::Bool(true));
    assert!(f.flush().is_empty());
    let reasons: Vec<_> = f.graph.problems().into_iter().map(|p| p.reason).collect();
    assert_eq!(reasons, [Reason::InterfaceMissing, Reason::WrongValue]);

    let mut f = Fixture::with(CalcConfig { source_spoofing: true, routes: None, ..CalcConfig::new("me") });
    f.put(workload_key("me", "w"), spoofing);
    assert_eq!(f.flush(), ["profile p", "workload w "]);
}

#[test]
fn members_that_others_cover_are_held_back_unless_overlaps_are_fine() {
    let run = |overlapping_members| {
        let mut f = Fixture::with(CalcConfig { overlapping_members, routes: None, ..CalcConfig::new("me") });
        f.put(workload_key("me", "w"), workload(&[("x", "1")], "10.0.0.5/32"));
        f.put(policy_key("a"), policy_value("all()", vec![rule(Action::Allow, "has(x)")]));
        f.put(Key::NetworkSet("s".into()), network_set(&[("x", "1")], &["10.0.0.0/24", "0.0.0.0/0"]));
        let first = f.flush().swap_remove(0);
        f.put(Key::NetworkSet("s".into()), network_set(&[("x", "1")], &["10.0.0.0/24"]));
        let second = f.flush().swap_remove(0);
        f.delete(Key::NetworkSet("s".into()));
        [first, second, f.flush().swap_remove(0)]
    };
    assert_eq!(
        run(false),
        [
            "set = 0.0.0.0/1 128.0.0.0/1",
            "set + 10.0.0.0/24 - 0.0.0.0/1 128.0.0.0/1",
            "set + 10.0.0.5/32 - 10.0.0.0/24",
        ]
    );
    assert_eq!(
        run(true),
        [
            "set = 0.0.0.0/1 10.0.0.0/24 10.0.0.5/32 128.0.0.0/1",
            "set +  - 0.0.0.0/1 128.0.0.0/1",
            "set +  - 10.0.0.0/24",
        ]
    );
}

#[test]
fn selectors_and_named_ports_become_sets() {
    let mut f = Fixture::new();
    f.put(workload_key("me", "w"), workload(&[("app", "web")], "10.0.0.1/32"));
    let named = |ports: &[&str]| ports.iter().map(|p| p.parse::<Port>().unwrap()).collect::<Vec<_>>();
    let with = |selector: &str, not_selector: &str, ports: &[&str], not_ports: &[&str]| {
        let mut r = rule(Action::Allow, "");
        r.protocol = Some(Protocol::Name("tcp".into()));
        r.dst = EntityMatch {
            selector: selector.into(),
            not_selector: not_selector.into(),
            ports: named(ports),
            not_ports: named(not_ports),
            ..EntityMatch::default()
        };
        r
    };
    let web = "app == 'web'";
    let rules = vec![
        with(web, "", &["http"], &[]),
        with(web, "", &["http", "9000"], &[]),
        with(web, "has(old)", &[], &[]),
        with("", "has(old)", &["http"], &[]),
        with(web, "", &["80"], &["http"]),
    ];
    f.put(policy_key("a"), policy_value("all()", rules));
    let messages = f.messages();
    let told: Vec<_> = rules_of(&messages, "a")
        .into_iter()
        .map(|r| {
            let d = r.dst;
            [
                d.sets.len(),
                d.not_sets.len(),
                d.ports.len(),
                d.named_port_sets.len(),
                d.not_named_port_sets.len(),
            ]
        })
        .collect();
    assert_eq!(told, [[0, 0, 0, 1, 0], [1, 0, 1, 1, 0], [1, 0, 0, 0, 0], [0, 1, 0, 1, 0], [1, 0, 1, 0, 1]]);
    let sets: Vec<_> = messages
        .iter()
        .filter_map(|m| match m {
            Message::IpSetUpdate { id, kind, members } => Some((id.as_str(), *kind, members.len())),
            _ => None,
        })
        .collect();
    assert_eq!(sets.iter().filter(|s| s.1 == IpSetType::IpPort).count(), 2);
    // A named port of everything: the id that upstream gives to it.
    assert!(sets.contains(&("n:cl9_Kgeu4H0OGLbhovVR3NBLUOZscKeMK1Mu4A", IpSetType::IpPort, 1)), "{sets:?}");
}

/// The digests were made by hand from the protobuf bytes of the rules.
#[test]
fn rules_are_named_by_a_chain_of_digests() {
    let mut f = Fixture::new();
    f.put(workload_key("me", "w"), workload(&[], "10.0.0.1/32"));
    let mut tcp = rule(Action::Allow, "");
    tcp.protocol = Some(Protocol::Name("tcp".into()));
    f.put(policy_key("web-in"), policy_value("all()", vec![tcp, rule(Action::Deny, "")]));
    let rules = rules_of(&f.messages(), "web-in");
    let names: Vec<_> = rules.iter().map(|r| r.rule_id.as_str()).collect();
    assert_eq!(names, ["tfWLREjSXiJny1jg", "0sg__Z-8iZX7a18x"]);
}

#[test]
fn varieties_of_policy_go_into_lists_of_their_own() {
    let mut f = Fixture::new();
    let host = HostEndpoint {
        interface_name: "eth0".into(),
        expected_ips: vec!["192.0.2.1".parse().unwrap()],
        ..HostEndpoint::default()
    };
    let key = Key::HostEndpoint { host: "me".into(), endpoint: "eth0".into() };
    f.put(key, Value::HostEndpoint(Arc::new(host)));
    f.put(workload_key("me", "w"), workload(&[], "10.0.0.1/32"));
    f.put(Key::Tier("default".into()), Value::Tier(Tier { order: Some(1e6), default_pass: false }));
    let both = Policy { egress: true, ..policy("all()", vec![]) };
    for (name, p) in [
        ("normal", both.clone()),
        ("forward", Policy { apply_on_forward: true, ..both.clone() }),
        ("raw", Policy { untracked: true, apply_on_forward: true, ..both.clone() }),
        ("before", Policy { pre_dnat: true, apply_on_forward: true, ..both }),
    ] {
        f.put(policy_key(name), Value::Policy(Arc::new(p)));
    }
    let messages = f.messages();
    let told = messages.iter().find_map(|m| match m {
        Message::HostEndpointUpdate(_, e) => Some(e.clone()),
        _ => None,
    });
    let told = told.unwrap();
    assert_eq!(tiers(&told.tiers), "default[forward,normal|forward,normal]deny");
    assert_eq!(tiers(&told.forward_tiers), "default[forward|forward]deny");
    assert_eq!(tiers(&told.untracked_tiers), "default[raw|raw]pass");
    assert_eq!(tiers(&told.pre_dnat_tiers), "default[before|]pass");
    let shown: Vec<_> = messages.iter().map(show).collect();
    assert!(shown.contains(&"workload w default[forward,normal|forward,normal]deny".to_owned()), "{shown:?}");
}

#[test]
fn a_hint_makes_a_policy_active_without_endpoints() {
    let mut f = Fixture::new();
    let hint = |hints: &[&str]| {
        let performance_hints = hints.iter().map(|&h| h.into()).collect();
        let rules = vec![rule(Action::Allow, "has(x)")];
        Value::Policy(Arc::new(Policy { performance_hints, ..policy("has(nothing)", rules) }))
    };
    f.put(policy_key("a"), hint(&["AssumeNeededOnEveryNode"]));
    assert_eq!(f.flush(), ["set = ", "policy a"]);
    f.put(policy_key("a"), hint(&[]));
    assert_eq!(f.flush(), ["policy a gone", "set gone"]);
}

#[test]
fn nodes_give_metadata_and_tunnel_endpoints() {
    let mut f = Fixture::new();
    let setting = |name: &'static str| Key::HostConfig { host: "n1".into(), name: SmolStr::new_static(name) };
    let mut node = Node::default();
    node.spec.bgp = Some(NodeBgpSpec { ipv4_address: "192.0.2.7/24".into(), ..NodeBgpSpec::default() });
    f.put(Key::resource(Kind::Node, "", "n1"), Value::resource(node));
    f.put(setting("IPv4VXLANTunnelAddr"), Value::Text("10.1.0.0".into()));
    let messages = f.messages();
    let [Message::VtepUpdate(vtep), Message::HostMetadataUpdate(metadata)] = &messages[..] else {
        panic!("{messages:?}")
    };
    let v4 = vtep.v4.unwrap();
    assert_eq!((v4.tunnel.to_string(), v4.parent.to_string()), ("10.1.0.0".into(), "192.0.2.7".into()));
    assert_eq!(v4.mac.to_string(), "66:40:b3:ea:b6:3f");
    assert_eq!(crate::derived_mac("n1", IpVersion::V6).to_string(), "66:46:32:55:72:28");
    assert_eq!(metadata.ipv4.unwrap().to_string(), "192.0.2.7/24");
    f.put(setting("VXLANTunnelMACAddr"), Value::Text("66:00:00:00:00:01".into()));
    f.put(setting("IPv6VXLANTunnelAddr"), Value::Text("not one".into()));
    assert_eq!(f.flush().len(), 1);
    assert_eq!(f.graph.problems()[0].reason, Reason::Address("not one".into()));
    f.delete(setting("IPv4VXLANTunnelAddr"));
    assert_eq!(f.flush(), ["VtepRemove(\"n1\")"]);
    f.put(Key::HostIp("n1".into()), Value::Text("192.0.2.9".into()));
    assert!(f.flush().is_empty());
    f.delete(Key::resource(Kind::Node, "", "n1"));
    let messages = f.messages();
    let [Message::HostMetadataUpdate(metadata)] = &messages[..] else { panic!("{messages:?}") };
    assert_eq!(metadata.ipv4.unwrap().to_string(), "192.0.2.9/32");
}

#[test]
fn nothing_stays_behind_when_everything_went() {
    let mut f = Fixture::new();
    f.put(workload_key("me", "w"), workload(&[("app", "web")], "10.0.0.1/32"));
    f.put(Key::ProfileLabels("p".into()), Value::ProfileLabels(Arc::new(labels(&[("l", "1")]))));
    let rules =
        vec![rule(Action::Allow, "app == 'web'"), rule(Action::Deny, "has(l)"), rule(Action::Deny, "bad(")];
    f.put(policy_key("a"), policy_value("app == 'web'", rules));
    f.flush();
    f.put(policy_key("a"), policy_value("has(app)", vec![rule(Action::Allow, "app == 'web'")]));
    f.flush();
    for key in [
        policy_key("a"),
        workload_key("me", "w"),
        profile_key("p"),
        Key::ProfileLabels("p".into()),
        Key::Tier("default".into()),
    ] {
        f.delete(key);
    }
    f.flush();
    assert_eq!(f.graph.counts(), Counts::default());
    assert_eq!(f.graph.store.sizes(), (0, 0));
    assert_eq!((f.graph.items.labels.len(), f.graph.problems().len()), (0, 0));
}
