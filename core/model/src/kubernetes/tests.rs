use std::collections::BTreeMap;

use calico_api::k8s;
use calico_api::{NetworkPolicy, Profile, Resource};
use serde_json::{Value as Json, json};

use super::*;
use crate::key::Key;
use crate::kv::KvPair;
use crate::process::processor_for;
use crate::value::Value;

const PODS: &str = "projectcalico.org/orchestrator == 'k8s'";

fn object<R: Resource>(entry: &KvPair) -> R {
    match &entry.value {
        Some(Value::Resource(any)) => R::from_any((**any).clone()).expect("the kind"),
        other => panic!("{other:?}"),
    }
}

fn kubernetes_policy(spec: Json) -> k8s::NetworkPolicy {
    let metadata = json!({
        "name": "np", "namespace": "shop", "resourceVersion": "731", "labels": {"a": "b"},
        "uid": "41cb1fde-57e7-42c1-a73b-0acaf38c7737", "creationTimestamp": "2026-01-02T03:04:05Z",
        "annotations": {"c": "d", "kubectl.kubernetes.io/last-applied-configuration": "{}"},
    });
    serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).expect("a policy")
}

/// The converted spec as JSON, and the number of faults.
fn converted(spec: Json) -> (Json, usize) {
    let (entry, faults) = network_policy(&kubernetes_policy(spec)).expect("a UID");
    let policy: NetworkPolicy = object(&entry);
    (serde_json::to_value(policy.spec).expect("JSON"), faults.len())
}

#[test]
fn identity_of_a_policy_from_kubernetes() {
    let (entry, faults) = network_policy(&kubernetes_policy(json!({}))).expect("a UID");
    assert_eq!(
        entry.key.to_path(),
        "/calico/resources/v3/projectcalico.org/kubernetesnetworkpolicies/shop/np"
    );
    assert_eq!(entry.revision.to_string(), "731");
    assert_eq!(entry.uid.as_deref(), Some("82d3f87b-eae7-4283-a7dc-5053cf31eeec"));
    assert!(faults.is_empty());
    let policy: NetworkPolicy = object(&entry);
    assert_eq!(policy.metadata.uid, "82d3f87b-eae7-4283-a7dc-5053cf31eeec");
    assert_eq!(policy.metadata.resource_version, "731");
    assert!(policy.metadata.labels.is_empty() && policy.metadata.annotations.is_empty());
    assert!(policy.metadata.creation_timestamp.is_some());

    let mut bad = kubernetes_policy(json!({}));
    bad.metadata.uid = "abc".into();
    assert!(network_policy(&bad).is_err());
    bad.metadata.uid.clear();
    assert_eq!(network_policy(&bad).map(|(entry, _)| entry.uid), Ok(None));
}

#[test]
fn types_and_selectors() {
    let spec = |types: Json, selector: Json| {
        let (spec, faults) =
            converted(json!({ "podSelector": selector, "policyTypes": types, "egress": [{}] }));
        assert_eq!(faults, 0);
        assert_eq!((&spec["tier"], &spec["order"]), (&json!("default"), &json!(1000.0)));
        (spec["types"].clone(), spec["selector"].clone())
    };
    assert_eq!(spec(json!(null), json!({})), (json!(["Ingress"]), json!(PODS)));
    assert_eq!(spec(json!(["Egress", "Ingress"]), json!({})).0, json!(["Ingress", "Egress"]));
    assert_eq!(spec(json!(["Egress"]), json!({})).0, json!(["Egress"]));
    let rich = json!({
        "matchLabels": {"b": "2", "a": "1"},
        "matchExpressions": [
            {"key": "z", "operator": "In", "values": ["q", "p"]},
            {"key": "y", "operator": "NotIn", "values": ["o"]},
            {"key": "x", "operator": "Exists"},
            {"key": "w", "operator": "DoesNotExist"},
            {"key": "v", "operator": "In"},
        ],
    });
    let want = format!(
        "{PODS} && a == '1' && b == '2' && z in {{ 'q', 'p' }} && y not in {{ 'o' }} && has(x) && ! has(w) \
         && v in {{ '' }}"
    );
    assert_eq!(spec(json!(null), rich).1, json!(want));
}

#[test]
fn rules_per_protocol_and_peer() {
    let rules = |rule: Json| {
        let (spec, faults) = converted(json!({ "ingress": [rule] }));
        assert_eq!(faults, 0);
        spec["ingress"].clone()
    };
    let allow = |rest: Json| {
        let mut rule = json!({ "action": "Allow" });
        for (name, value) in rest.as_object().expect("an object") {
            rule[name] = value.clone();
        }
        rule
    };
    let ports = |ports: Json| allow(json!({ "protocol": "TCP", "destination": { "ports": ports } }));
    let rows = [
        (json!({}), json!([allow(json!({}))])),
        (json!({"from": [{}]}), json!([allow(json!({"source": {"selector": PODS}}))])),
        (
            json!({"from": [{"namespaceSelector": {}}]}),
            json!([allow(json!({"source": {"selector": PODS, "namespaceSelector": "all()"}}))]),
        ),
        (
            json!({"from": [{"namespaceSelector": {"matchLabels": {"n": "1"}}, "podSelector": {"matchLabels": {"a": "b"}}}]}),
            json!([allow(
                json!({"source": {"selector": format!("{PODS} && a == 'b'"), "namespaceSelector": "n == '1'"}})
            )]),
        ),
        (
            json!({"from": [{"ipBlock": {"cidr": "10.8.3.1/16", "except": ["10.8.4.0/24"]}}]}),
            json!([allow(json!({"source": {"nets": ["10.8.0.0/16"], "notNets": ["10.8.4.0/24"]}}))]),
        ),
        (json!({"ports": [{"port": 80}]}), json!([ports(json!([80]))])),
        (json!({"ports": [{"port": "8080"}]}), json!([ports(json!([8080]))])),
        (json!({"ports": [{"port": 80, "endPort": 90}]}), json!([ports(json!(["80:90"]))])),
        (json!({"ports": [{"port": 80}, {"port": 80}]}), json!([ports(json!([80]))])),
        (
            json!({"ports": [{"port": 82}, {"port": 9}, {"port": "x"}, {"port": 80, "endPort": 81}]}),
            json!([ports(json!(["x", 9, "80:82"]))]),
        ),
        (
            json!({"ports": [{"port": "b"}, {"port": 80}, {"port": "a"}]}),
            json!([ports(json!(["b", 80, "a"]))]),
        ),
        (json!({"ports": [{"port": 65535}, {"port": 65534}]}), json!([ports(json!(["65534:65535"]))])),
        (json!({"ports": [{"port": 80}, {}]}), json!([allow(json!({"protocol": "TCP"}))])),
        (json!({"ports": [{"endPort": 80}]}), json!([allow(json!({"protocol": "TCP"}))])),
        (
            json!({"from": [{"podSelector": {}}, {"ipBlock": {"cidr": "10.0.0.0/8"}}],
                   "ports": [{"port": 53, "protocol": "udp"}, {"protocol": "SCTP"}]}),
            json!([
                allow(json!({"protocol": "SCTP", "source": {"selector": PODS}})),
                allow(json!({"protocol": "SCTP", "source": {"nets": ["10.0.0.0/8"]}})),
                allow(
                    json!({"protocol": "UDP", "source": {"selector": PODS}, "destination": {"ports": [53]}})
                ),
                allow(
                    json!({"protocol": "UDP", "source": {"nets": ["10.0.0.0/8"]}, "destination": {"ports": [53]}})
                ),
            ]),
        ),
    ];
    for (rule, want) in rows {
        assert_eq!(rules(rule.clone()), want, "{rule}");
    }
    let (spec, _) = converted(json!({"egress": [{"to": [{"podSelector": {}}], "ports": [{"port": 5432}]}]}));
    assert_eq!(
        spec["egress"],
        json!([allow(json!({"protocol": "TCP", "destination": {"selector": PODS, "ports": [5432]}}))])
    );
}

#[test]
fn bad_rules_are_left_out_and_told() {
    for rule in [
        json!({"from": [{"ipBlock": {"cidr": "10.8.3.1/160"}}]}),
        json!({"from": [{"ipBlock": {"cidr": "10.8.3.1"}}]}),
        json!({"from": [{"ipBlock": {"cidr": "10.8.0.0/16", "except": ["x"]}}]}),
        json!({"ports": [{"port": 70000}]}),
        json!({"ports": [{"port": -1}]}),
        json!({"ports": [{"port": "We_b!"}, {"port": 80}]}),
        json!({"ports": [{"port": 90, "endPort": 80}]}),
        json!({"from": [{"podSelector": {"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]}}]}),
        json!({"from": [{"podSelector": {"matchLabels": {"a == 'b' || c": "d"}}}]}),
        json!({"from": [{"podSelector": {"matchLabels": {"a": "'\""}}}]}),
    ] {
        let (spec, faults) = converted(json!({ "ingress": [rule, {"ports": [{"port": 80}]}] }));
        assert_eq!(faults, 1, "{rule}");
        assert_eq!(spec["ingress"].as_array().map(Vec::len), Some(1), "{rule}");
        let error = stored_policy(&kubernetes_policy(json!({ "ingress": [rule] }))).expect_err("refused");
        assert!(error.to_string().starts_with("NetworkPolicy np: spec.ingress[0]."), "{error}");
    }
    let (spec, faults) = converted(json!({"podSelector": {"matchLabels": {"": "x"}}}));
    assert_eq!((&spec["selector"], faults), (&json!(PODS), 1));
}

#[test]
fn quotes_in_values_stay_values() {
    let (spec, faults) = converted(json!({"podSelector": {"matchLabels": {"a": "x' || all() || b == 'y"}}}));
    assert_eq!(faults, 0);
    let selector = spec["selector"].as_str().expect("a text");
    let parsed = calico_selector::Selector::parse(selector).expect("a selector");
    assert!(
        !parsed.matches(&BTreeMap::from([("projectcalico.org/orchestrator".to_owned(), "k8s".to_owned())]))
    );
}

#[test]
fn a_stored_policy_is_an_ordinary_one() {
    let source = kubernetes_policy(json!({
        "podSelector": {"matchLabels": {"app": "backend"}},
        "policyTypes": ["Ingress"],
        "ingress": [{"from": [{"podSelector": {"matchLabels": {"app": "frontend"}}}]}],
    }));
    let policy = stored_policy(&source).expect("converts");
    assert!(is_converted(&policy.metadata));
    let json = serde_json::to_value(&policy).expect("JSON");
    assert_eq!(
        json,
        json!({
            "kind": "NetworkPolicy",
            "apiVersion": "projectcalico.org/v3",
            "metadata": {
                "name": "k8s-np",
                "namespace": "shop",
                "labels": {"a": "b"},
                "annotations": {"c": "d", "projectcalico.org/converted-from": "networking.k8s.io/v1"},
            },
            "spec": {
                "tier": "default",
                "order": 1000.0,
                "ingress": [
                    {"action": "Allow", "source": {"selector": format!("{PODS} && app == 'frontend'")}},
                ],
                "selector": format!("{PODS} && app == 'backend'"),
                "types": ["Ingress"],
            },
        })
    );
    // Felix takes both conversions for the same policy, apart from the name.
    let felix = |kv: KvPair| {
        let Key::Resource(key) = &kv.key else { panic!("{}", kv.key) };
        let mut processor = processor_for(key.kind).expect("a processor");
        let (mut out, error) = processor.process(kv);
        assert_eq!(error, None);
        out.remove(0).value
    };
    let stored = felix(KvPair::new(
        Key::resource(calico_api::Kind::NetworkPolicy, "shop", "k8s-np"),
        Value::resource(policy),
    ));
    let synced = felix(network_policy(&source).expect("a UID").0);
    assert!(stored.is_some());
    assert_eq!(stored, synced);
}

#[test]
fn namespaces_and_accounts_become_profiles() {
    let metadata = json!({
        "name": "shop", "labels": {"team": "a", "projectcalico.org/name": "spoof"}, "resourceVersion": "7",
        "uid": "41cb1fde-57e7-42c1-a73b-0acaf38c7737", "annotations": {"x": "y"},
    });
    let source = serde_json::from_value(json!({ "metadata": metadata })).expect("a namespace");
    let entry = namespace(&source).expect("a UID");
    assert_eq!(entry.revision.to_string(), "7/");
    assert_eq!(entry.key, Key::resource(calico_api::Kind::Profile, "", "kns.shop"));
    let profile: Profile = object(&entry);
    assert_eq!(
        serde_json::to_value(&profile.spec).expect("JSON"),
        json!({
            "ingress": [{"action": "Allow"}],
            "egress": [{"action": "Allow"}],
            "labelsToApply": {"pcns.team": "a", "pcns.projectcalico.org/name": "shop"},
        })
    );
    assert_eq!(profile.metadata.uid, "82d3f87b-eae7-4283-a7dc-5053cf31eeec");
    assert!(profile.metadata.annotations.is_empty());

    let metadata = json!({"name": "a.b", "namespace": "shop", "labels": {"r": "x"}, "resourceVersion": "9"});
    let source = serde_json::from_value(json!({ "metadata": metadata })).expect("an account");
    let entry = service_account(&source).expect("no UID is fine");
    assert_eq!((entry.revision.to_string(), entry.uid.clone()), ("/9".to_owned(), None));
    let profile: Profile = object(&entry);
    assert_eq!(profile.metadata.name, "ksa.shop.a.b");
    assert_eq!(
        serde_json::to_value(&profile.spec).expect("JSON"),
        json!({"labelsToApply": {"pcsa.r": "x", "pcsa.projectcalico.org/name": "a.b"}})
    );
}

#[test]
fn revisions_of_profiles() {
    assert_eq!(split_profile_revision("7/9"), Ok(("7", "9")));
    assert_eq!(split_profile_revision("/9"), Ok(("", "9")));
    assert_eq!(split_profile_revision("0"), Ok(("", "")));
    assert_eq!(split_profile_revision(""), Ok(("", "")));
    for bad in ["1", "1/2/3"] {
        assert_eq!(split_profile_revision(bad), Err(ProfileRevisionError(bad.into())));
    }
}

#[test]
fn what_a_pod_gives_its_endpoint() {
    let own = BTreeMap::from([
        ("app".to_owned(), "cart".to_owned()),
        ("projectcalico.org/namespace".to_owned(), "evil".to_owned()),
    ]);
    let labels = pod_labels(&own, "k8s", "shop", "buyer");
    let want = [
        ("app", "cart"),
        ("projectcalico.org/namespace", "shop"),
        ("projectcalico.org/orchestrator", "k8s"),
        ("projectcalico.org/serviceaccount", "buyer"),
    ];
    assert_eq!(labels, want.map(|(k, v)| (k.to_owned(), v.to_owned())).into());
    assert_eq!(pod_labels(&own, "k8s", "shop", &"s".repeat(63)).len(), 3);
    assert_eq!(pod_labels(&own, "k8s", "shop", &"s".repeat(62)).len(), 4);
    assert_eq!(pod_profiles("shop", ""), ["kns.shop"]);
    assert_eq!(pod_profiles("shop", "buyer"), ["kns.shop", "ksa.shop.buyer"]);

    let spec = json!({
        "initContainers": [{"name": "i", "ports": [{"name": "init", "containerPort": 7}]}],
        "containers": [{"name": "c", "ports": [
            {"name": "web", "containerPort": 80, "protocol": "UDP"},
            {"containerPort": 81},
            {"containerPort": 82, "hostPort": 8082, "hostIP": "10.0.0.1"},
            {"name": "odd", "containerPort": 83, "protocol": "ICMP"},
            {"name": "none"},
            {"name": "high", "containerPort": 70000},
        ]}],
    });
    let ports = pod_ports(&serde_json::from_value(spec).expect("a pod"));
    let got: Vec<_> =
        ports.iter().map(|p| (p.name.as_str(), p.port, p.host_port, p.host_ip.as_str())).collect();
    assert_eq!(got, [("web", 80, 0, ""), ("", 82, 8082, "10.0.0.1"), ("init", 7, 0, "")]);
    assert_eq!(serde_json::to_value(&ports[0].protocol).expect("JSON"), json!("UDP"));
    assert_eq!(serde_json::to_value(&ports[2].protocol).expect("JSON"), json!("TCP"));
}
