use std::collections::BTreeMap;
use std::sync::Arc;

use calico_api::{AnyResource, FelixConfiguration};
use proptest::prelude::*;
use serde_json::{Value as Json, json};

use super::*;
use crate::policy::{Action, EncapMode, Policy, ProfileRules};

fn source(kind: Kind, namespace: &str, name: &str) -> Key {
    Key::resource(kind, namespace, name)
}

fn change(key: &Key, revision: u64, body: Option<Json>) -> KvPair {
    let Key::Resource(k) = key else { panic!("{key}") };
    let value = body.map(|mut body| {
        body["metadata"]["name"] = json!(k.name);
        let kind = if k.kind.info().served { k.kind } else { Kind::NetworkPolicy };
        Value::Resource(AnyResource::from_value(kind, &body).expect("an object").into())
    });
    KvPair { key: key.clone(), value, revision: revision.into(), uid: None, ttl: None }
}

/// What a fresh processor makes of one object.
fn made(kind: Kind, namespace: &str, name: &str, body: Json) -> (Vec<KvPair>, Option<ProcessError>) {
    let mut processor = processor_for(kind).expect("a processor");
    processor.process(change(&source(kind, namespace, name), 5, Some(body)))
}

fn policy(kind: Kind, namespace: &str, spec: Json) -> Policy {
    match made(kind, namespace, "p", json!({ "spec": spec })) {
        (out, None) => match (&*out, &out[0].value) {
            ([one], Some(Value::Policy(policy))) => {
                assert_eq!(one.revision, 5.into());
                (**policy).clone()
            }
            other => panic!("{other:?}"),
        },
        (_, Some(error)) => panic!("{error}"),
    }
}

#[test]
fn kinds_with_processors() {
    for info in Kind::all() {
        let raw = processor_for(info.kind).is_none();
        let passed_on = matches!(
            info.name,
            "BGPConfiguration"
                | "BGPFilter"
                | "BGPPeer"
                | "BlockAffinity"
                | "CalicoNodeStatus"
                | "IPAMBlock"
                | "IPAMConfiguration"
                | "IPAMHandle"
                | "IPReservation"
                | "KubeControllersConfiguration"
                | "LiveMigration"
                | "KubernetesEndpointSlice"
                | "KubernetesService"
        );
        assert_eq!(raw, passed_on, "{}", info.name);
    }
}

#[test]
fn changes_of_other_kinds_are_errors() {
    for info in Kind::all() {
        let Some(mut processor) = processor_for(info.kind) else { continue };
        let (out, error) = processor.process(KvPair::tombstone(Key::IpamConfig));
        assert!(out.is_empty());
        assert!(matches!(error, Some(ProcessError::WrongKind { .. })), "{}", info.name);
    }
}

#[test]
fn selectors_of_namespaced_policies() {
    let np = |selector: &str, accounts: &str| {
        let spec = json!({ "selector": selector, "serviceAccountSelector": accounts });
        policy(Kind::NetworkPolicy, "shop", spec).selector
    };
    assert_eq!(np("", ""), "projectcalico.org/namespace == 'shop'");
    assert_eq!(np("a == 'b'", ""), "(a == 'b') && projectcalico.org/namespace == 'shop'");
    assert_eq!(
        np("a == 'b'", "team == 'x' && has(y)"),
        "((a == 'b') && projectcalico.org/namespace == 'shop') && (pcsa.team == \"x\" && has(pcsa.y))"
    );
}

#[test]
fn selectors_of_global_policies() {
    let gnp = |selector: &str, namespaces: &str, accounts: &str| {
        let spec = json!({
            "selector": selector, "namespaceSelector": namespaces, "serviceAccountSelector": accounts,
        });
        policy(Kind::GlobalNetworkPolicy, "", spec).selector
    };
    assert_eq!(gnp("all()", "", ""), "all()");
    assert_eq!(gnp("", "has(x)", ""), "has(pcns.x)");
    assert_eq!(gnp("all()", "n == 'a'", ""), "(has(projectcalico.org/namespace)) && pcns.n == \"a\"");
    assert_eq!(gnp("", "all()", ""), "has(projectcalico.org/namespace)");
    assert_eq!(
        gnp("has(k)", "all()", "all()"),
        "((has(k)) && has(projectcalico.org/namespace)) && has(projectcalico.org/serviceaccount)"
    );
}

#[test]
fn selectors_of_rules() {
    let side = |namespace: &str, side: Json| {
        let kind = if namespace.is_empty() { Kind::GlobalNetworkPolicy } else { Kind::NetworkPolicy };
        let spec = json!({ "ingress": [{ "action": "Allow", "source": side }] });
        policy(kind, namespace, spec).inbound_rules[0].src.clone()
    };
    let own = "projectcalico.org/namespace == 'shop'";
    let names = "projectcalico.org/serviceaccount in {\"a\", \"b\"}";
    let rows = [
        ("shop", json!({}), ""),
        ("shop", json!({"nets": ["10.0.0.1/8"]}), ""),
        ("shop", json!({"selector": "r == 'w'"}), "(projectcalico.org/namespace == 'shop') && (r == 'w')"),
        ("shop", json!({"notSelector": "has(r)"}), own),
        ("shop", json!({"namespaceSelector": "stage == 'test'"}), "pcns.stage == \"test\""),
        (
            "shop",
            json!({"namespaceSelector": "global()", "selector": "has(k)"}),
            "(!has(projectcalico.org/namespace)) && (has(k))",
        ),
        ("shop", json!({"namespaceSelector": "all()"}), "has(projectcalico.org/namespace)"),
        ("shop", json!({"serviceAccounts": {"names": ["b", "a"]}}), &format!("({own}) && ({names})")),
        (
            "shop",
            json!({"serviceAccounts": {"names": ["a", "b"], "selector": "t == 'x'"}, "selector": "has(k)"}),
            &format!("({own}) && (((pcsa.t == \"x\") && ({names})) && (has(k)))"),
        ),
        ("", json!({"selector": "r == 'w'"}), "r == 'w'"),
        ("", json!({"notSelector": "has(r)"}), ""),
        ("", json!({"serviceAccounts": {"selector": "t == 'x'"}}), "pcsa.t == \"x\""),
        ("", json!({"namespaceSelector": "has(x)", "selector": "r == 'w'"}), "(has(pcns.x)) && (r == 'w')"),
    ];
    for (namespace, entity, want) in rows {
        let made = side(namespace, entity.clone());
        assert_eq!(made.selector, want, "{entity}");
        let not = entity["notSelector"].as_str().unwrap_or_default();
        assert_eq!(made.not_selector, not, "{entity}");
        let reported = made.original.as_ref().map(|o| o.selector.to_string()).unwrap_or_default();
        assert_eq!(reported, entity["selector"].as_str().unwrap_or_default(), "{entity}");
    }
}

#[test]
fn fields_of_policies_and_rules() {
    let spec = json!({
        "tier": "blue", "order": 7.5, "types": ["Egress"], "doNotTrack": true, "applyOnForward": true,
        "performanceHints": ["AssumeNeededOnEveryNode"],
        "egress": [
            {"action": "Pass", "ipVersion": 6, "protocol": "TCP", "notProtocol": "UDPLite",
             "source": {"notNets": ["fd00::1/64"], "ports": [80, "a"]},
             "destination": {"nets": ["fd01::1"], "notPorts": ["1:2"], "services": {"name": "s", "namespace": "n"}},
             "http": {"methods": ["GET"], "paths": [{"exact": "/a"}, {"prefix": "/b"}]},
             "metadata": {"annotations": {"k": "v"}}},
            {"action": "Log", "protocol": 58, "icmp": {"type": 1, "code": 2}, "notICMP": {"type": 3}},
        ],
    });
    let made = policy(Kind::GlobalNetworkPolicy, "", spec);
    assert_eq!((made.tier.as_str(), made.order), ("blue", Some(7.5)));
    assert!(!made.ingress && made.egress && made.untracked && made.apply_on_forward && !made.pre_dnat);
    assert_eq!(made.performance_hints, ["AssumeNeededOnEveryNode"]);
    let [pass, log] = &made.outbound_rules[..] else { panic!("{made:?}") };
    assert_eq!((pass.action, log.action), (Action::Pass, Action::Log));
    assert_eq!(pass.protocol.as_ref().map(ToString::to_string).as_deref(), Some("tcp"));
    assert_eq!(pass.not_protocol.as_ref().map(ToString::to_string).as_deref(), Some("udplite"));
    assert_eq!(pass.src.not_nets[0].to_string(), "fd00::/64");
    assert_eq!(pass.dst.nets[0].to_string(), "fd01::1/128");
    assert_eq!(pass.dst.service, Some(("n".into(), "s".into())));
    let http = pass.http.as_ref().expect("http");
    assert_eq!(http.paths, [(true, "/a".into()), (false, "/b".into())]);
    assert_eq!(pass.metadata.as_deref(), Some(&BTreeMap::from([("k".into(), "v".into())])));
    assert_eq!(log.icmp.map(|m| (m.icmp_type, m.code)), Some((Some(1), Some(2))));
    assert_eq!(log.not_icmp.map(|m| (m.icmp_type, m.code)), Some((Some(3), None)));

    let made = policy(
        Kind::NetworkPolicy,
        "shop",
        json!({
            "egress": [{"action": "Allow", "destination": {"services": {"name": "s"}}}],
        }),
    );
    assert_eq!((made.tier.as_str(), made.ingress, made.egress), ("default", true, true));
    assert_eq!(made.outbound_rules[0].dst.service, Some(("shop".into(), "s".into())));
}

#[test]
fn rules_that_cannot_be_read_never_open() {
    let faulty = [
        json!({"source": {"nets": ["x"]}}),
        json!({"source": {"notNets": ["10.0.0.0/8", "x"]}}),
        json!({"destination": {"namespaceSelector": "((("}}),
        json!({"source": {"serviceAccounts": {"selector": "((("}}}),
        json!({"source": {"serviceAccounts": {"names": ["a'"]}}}),
        json!({"ipVersion": 5}),
        json!({"icmp": {"type": 300}}),
        json!({"notICMP": {"type": 3, "code": -1}}),
    ];
    for rule in faulty {
        for (action, kept) in [("Allow", 0), ("Pass", 0), ("Log", 0), ("Deny", 1)] {
            let mut rule = rule.clone();
            rule["action"] = json!(action);
            let (out, error) = made(
                Kind::NetworkPolicy,
                "shop",
                "p",
                json!({ "spec": { "ingress": [{"action": "Allow"}, rule] } }),
            );
            let Some(Value::Policy(policy)) = &out[0].value else { panic!("{out:?}") };
            assert_eq!(policy.inbound_rules.len(), 1 + kept, "{action} {rule}");
            assert!(matches!(error, Some(ProcessError::UnreadableRule { number: 1, .. })), "{rule}");
        }
    }
    // One bad network among good ones narrows the rule; it stays.
    let (out, error) = made(
        Kind::NetworkPolicy,
        "shop",
        "p",
        json!({
            "spec": { "ingress": [{"action": "Allow", "source": {"nets": ["x", "10.0.0.0/8"]}}] }
        }),
    );
    let Some(Value::Policy(policy)) = &out[0].value else { panic!("{out:?}") };
    assert_eq!(policy.inbound_rules[0].src.nets.len(), 1);
    assert_eq!(error, None);
    let odd =
        made(Kind::NetworkPolicy, "shop", "p", json!({ "spec": { "ingress": [{"action": "Alow"}] } })).0;
    let Some(Value::Policy(policy)) = &odd[0].value else { panic!("{odd:?}") };
    assert_eq!(policy.inbound_rules[0].action, Action::Deny);
}

#[test]
fn policies_that_cannot_be_read_are_deleted_and_told() {
    for (kind, namespace, spec) in [
        (Kind::NetworkPolicy, "shop", json!({"serviceAccountSelector": "((("})),
        (Kind::GlobalNetworkPolicy, "", json!({"namespaceSelector": "((("})),
    ] {
        let (out, error) = made(kind, namespace, "p", json!({ "spec": spec }));
        assert_eq!(out.len(), 1);
        assert_eq!(out[0].value, None);
        assert!(matches!(error, Some(ProcessError::Unreadable { .. })));
    }
}

#[test]
fn deletions_follow_from_the_key() {
    let rows = [
        (source(Kind::NetworkPolicy, "shop", "p"), "/calico/v1/policy/NetworkPolicy/shop/p"),
        (
            source(Kind::KubernetesNetworkPolicy, "shop", "p"),
            "/calico/v1/policy/KubernetesNetworkPolicy/shop/p",
        ),
        (source(Kind::StagedGlobalNetworkPolicy, "", "p"), "/calico/v1/policy/StagedGlobalNetworkPolicy//p"),
        (source(Kind::Tier, "", "t"), "/calico/v1/policy/tier/t/metadata"),
        (source(Kind::NetworkSet, "shop", "s"), "/calico/v1/netset/shop%2fs"),
        (
            source(Kind::WorkloadEndpoint, "shop", "n--1-k8s-p-e"),
            "/calico/v1/host/n-1/workload/k8s/shop%2fp/endpoint/e",
        ),
    ];
    for (key, path) in rows {
        let Key::Resource(k) = &key else { panic!("{key}") };
        let mut processor = processor_for(k.kind).expect("a processor");
        let (out, error) = processor.process(change(&key, 9, None));
        assert_eq!(error, None);
        assert_eq!(out.iter().map(|kv| kv.key.to_path()).collect::<Vec<_>>(), [path]);
        assert_eq!((&out[0].value, &out[0].revision), (&None, &9.into()));
    }
    let (out, error) = made(Kind::WorkloadEndpoint, "shop", "odd", json!({}));
    assert!(out.is_empty() && matches!(error, Some(ProcessError::BadName { .. })));
}

#[test]
fn tiers() {
    for (action, pass) in
        [(json!("Pass"), true), (json!("Deny"), false), (json!(null), false), (json!("x"), false)]
    {
        let (out, error) =
            made(Kind::Tier, "", "t", json!({ "spec": { "order": 3, "defaultAction": action } }));
        assert_eq!(error, None);
        let want = crate::policy::Tier { order: Some(3.0), default_pass: pass };
        assert_eq!(out[0].value, Some(Value::Tier(want)));
    }
}

#[test]
fn profiles_come_apart() {
    let spec = json!({ "ingress": [{"action": "Allow"}], "labelsToApply": {"pcns.a": "b"} });
    let (out, error) = made(Kind::Profile, "", "kns.shop", json!({ "spec": spec }));
    assert_eq!(error, None);
    let paths: Vec<_> = out.iter().map(|kv| kv.key.to_path()).collect();
    assert_eq!(
        paths,
        [
            "/calico/v1/policy/profile/kns.shop/labels",
            "/calico/v1/policy/profile/kns.shop/rules",
            "/calico/resources/v3/projectcalico.org/profiles/kns.shop",
        ]
    );
    let labels = BTreeMap::from([("pcns.a".into(), "b".into())]);
    assert_eq!(out[0].value, Some(Value::ProfileLabels(Arc::new(labels))));
    assert!(matches!(&out[1].value, Some(Value::ProfileRules(r)) if r.inbound_rules.len() == 1));
    assert!(matches!(&out[2].value, Some(Value::Resource(_))));

    let (out, _) = made(Kind::Profile, "", "x", json!({}));
    assert_eq!(out[0].value, None);
    assert_eq!(out[1].value, Some(Value::ProfileRules(Arc::new(ProfileRules::default()))));
    let key = source(Kind::Profile, "", "x");
    let (out, _) = processor_for(Kind::Profile).expect("a processor").process(change(&key, 6, None));
    assert_eq!(out.len(), 3);
    assert!(out.iter().all(|kv| kv.value.is_none()));
}

#[test]
fn network_sets() {
    let body =
        json!({ "metadata": {"labels": {"a": "b"}}, "spec": {"nets": ["10.0.0.1/8", "x", "", "fd00::1"]} });
    let (out, _) = made(Kind::NetworkSet, "shop", "s", body.clone());
    let Some(Value::NetworkSet(set)) = &out[0].value else { panic!("{out:?}") };
    assert_eq!(set.nets.iter().map(ToString::to_string).collect::<Vec<_>>(), ["10.0.0.0/8", "fd00::1/128"]);
    assert_eq!(set.labels["projectcalico.org/namespace"], "shop");
    assert_eq!(set.profile_ids, ["kns.shop"]);
    let (out, _) = made(Kind::GlobalNetworkSet, "", "s", body);
    assert_eq!(out[0].key, Key::NetworkSet("s".into()));
    let Some(Value::NetworkSet(set)) = &out[0].value else { panic!("{out:?}") };
    assert_eq!((set.labels.len(), set.profile_ids.len()), (1, 0));
}

#[test]
fn pools() {
    let (out, _) = made(
        Kind::IPPool,
        "",
        "p",
        json!({ "spec": {
            "cidr": "10.1.2.3/16", "ipipMode": "CrossSubnet", "vxlanMode": "Never", "natOutgoing": true,
            "assignmentMode": "Manual", "allowedUses": ["Workload"], "disabled": true, "disableBGPExport": true,
        }}),
    );
    assert_eq!(out[0].key.to_path(), "/calico/v1/ipam/v4/pool/10.1.0.0-16");
    let Some(Value::IpPool(pool)) = &out[0].value else { panic!("{out:?}") };
    assert_eq!((pool.ipip, pool.vxlan), (EncapMode::CrossSubnet, EncapMode::Never));
    assert!(pool.masquerade && pool.disabled && pool.disable_bgp_export && !pool.automatic);
    assert_eq!(pool.allowed_uses, ["Workload"]);
    let (out, error) = made(Kind::IPPool, "", "p", json!({ "spec": { "cidr": "odd" } }));
    assert!(out.is_empty() && matches!(error, Some(ProcessError::Unreadable { .. })));
}

#[test]
fn workload_endpoints() {
    let body = |spec: Json| {
        let mut whole = json!({
            "node": "n", "orchestrator": "k8s", "interfaceName": "cali1", "ipNetworks": ["10.0.0.1/32", "fd00::1"],
            "mac": "ee:ee:ee:ee:ee:ee", "profiles": ["kns.shop"], "serviceAccountName": "s".repeat(80),
            "ipNATs": [{"internalIP": "10.0.0.1", "externalIP": "192.0.2.1"}],
            "ports": [{"name": "web", "protocol": "TCP", "port": 80}, {"name": "", "protocol": "UDP", "port": 53}],
            "allowSpoofedSourcePrefixes": ["10.9.9.9/16"], "ipv4Gateway": "10.0.0.254",
            "qosControls": {"ingressBandwidth": 1000, "egressPacketRate": 7, "dscp": "EF"},
        });
        for (name, value) in spec.as_object().expect("an object") {
            whole[name] = value.clone();
        }
        let labels = json!({"app": "cart", "pcns.team": "x", "pcsa.role": "y"});
        json!({ "metadata": {"labels": labels, "annotations": {"k": "v"}}, "spec": whole })
    };
    let (out, error) = made(Kind::WorkloadEndpoint, "shop", "n-k8s-cart-eth0", body(json!({})));
    assert_eq!(error, None);
    let Some(Value::WorkloadEndpoint(wep)) = &out[0].value else { panic!("{out:?}") };
    assert_eq!((wep.ipv4_nets.len(), wep.ipv6_nets.len()), (1, 1));
    assert_eq!(wep.nats, [([192, 0, 2, 1].into(), [10, 0, 0, 1].into())]);
    assert_eq!(wep.labels.len(), 2);
    assert_eq!(wep.labels["projectcalico.org/serviceaccount"].len(), 80);
    assert_eq!(wep.ports.iter().map(|p| (p.name.as_str(), p.port)).collect::<Vec<_>>(), [("web", 80)]);
    assert_eq!(wep.ports[0].protocol.to_string(), "tcp");
    assert_eq!(wep.allow_spoofed_source_prefixes[0].to_string(), "10.9.0.0/16");
    let qos = wep.qos.as_ref().expect("limits");
    assert_eq!((qos.bandwidth, qos.packet_rate, qos.dscp), ((1000, 0), (0, 7), Some(46)));
    assert_eq!(wep.annotations["k"], "v");

    for (spec, fault) in [
        (json!({"ipNetworks": []}), false),
        (json!({"ipNetworks": ["x"]}), true),
        (json!({"mac": "x"}), true),
        (json!({"ipv6Gateway": "x"}), true),
        (json!({"ipNATs": [{"internalIP": "x", "externalIP": "192.0.2.1"}]}), true),
    ] {
        let (out, error) = made(Kind::WorkloadEndpoint, "shop", "n-k8s-cart-eth0", body(spec.clone()));
        assert_eq!((out.len(), &out[0].value, error.is_some()), (1, &None, fault), "{spec}");
    }
}

#[test]
fn host_endpoints() {
    let body = json!({
        "metadata": {"labels": {"a": "b"}, "annotations": {"qos.projectcalico.org/dscp": "AF11"}},
        "spec": {"node": "n", "interfaceName": "eth0", "expectedIPs": ["10.0.0.1"], "profiles": ["p"],
                 "ports": [{"name": "ssh", "protocol": "TCP", "port": 22}]},
    });
    let (out, error) = made(Kind::HostEndpoint, "", "h", body);
    assert_eq!(error, None);
    assert_eq!(out[0].key.to_path(), "/calico/v1/host/n/endpoint/h");
    let Some(Value::HostEndpoint(hep)) = &out[0].value else { panic!("{out:?}") };
    assert_eq!((hep.dscp, hep.ports.len(), hep.expected_ips.len()), (Some(10), 1, 1));
    for spec in [json!({}), json!({"node": "n", "expectedIPs": ["x"]})] {
        let (out, error) = made(Kind::HostEndpoint, "", "h", json!({ "spec": spec }));
        assert!(out.is_empty() && error.is_some());
    }
}

fn texts(out: &[KvPair]) -> BTreeMap<String, String> {
    out.iter()
        .filter_map(|kv| match &kv.value {
            Some(Value::Text(text)) => Some((kv.key.to_path(), text.to_string())),
            Some(Value::Bool(flag)) => Some((kv.key.to_path(), flag.to_string())),
            _ => None,
        })
        .collect()
}

#[test]
fn nodes() {
    let body = json!({
        "spec": {"bgp": {"ipv4IPIPTunnelAddr": "192.168.1.1"}, "ipv4VXLANTunnelAddr": "192.168.1.2",
                 "vxlanTunnelMACAddr": "66:00:11:22:33:44", "ipv6VXLANTunnelAddr": "odd",
                 "wireguard": {"interfaceIPv4Address": "192.168.1.3"}},
        "status": {"wireguardPublicKey": "a2V5"},
    });
    let (out, error) = made(Kind::Node, "", "n1", body);
    assert_eq!((out.len(), error), (7, None));
    let want = [
        ("/calico/v1/host/n1/config/IPv4VXLANTunnelAddr", "192.168.1.2"),
        ("/calico/v1/host/n1/config/IpInIpTunnelAddr", "192.168.1.1"),
        ("/calico/v1/host/n1/config/VXLANTunnelMACAddr", "66:00:11:22:33:44"),
    ];
    assert_eq!(texts(&out), want.map(|(k, v)| (k.to_owned(), v.to_owned())).into());
    let wireguard = out.iter().find_map(|kv| match &kv.value {
        Some(Value::Wireguard(w)) => Some((w.public_key.to_string(), w.interface_ipv6)),
        _ => None,
    });
    assert_eq!(wireguard, Some(("a2V5".to_owned(), None)));
    let (out, _) = made(Kind::Node, "", "n1", json!({}));
    assert_eq!(out.iter().filter(|kv| kv.value.is_some()).count(), 1);
    let key = source(Kind::Node, "", "n1");
    let (out, _) = processor_for(Kind::Node).expect("a processor").process(change(&key, 6, None));
    assert_eq!((out.len(), out.iter().filter(|kv| kv.value.is_some()).count()), (7, 0));
}

#[test]
fn cluster_information() {
    let spec =
        json!({"clusterGUID": "g", "clusterType": "k8s", "calicoVersion": "", "datastoreReady": false});
    let (out, error) = made(Kind::ClusterInformation, "", "default", json!({ "spec": spec }));
    assert_eq!((out.len(), error), (5, None));
    let want = [
        ("/calico/v1/Ready", "false"),
        ("/calico/v1/config/ClusterGUID", "g"),
        ("/calico/v1/config/ClusterType", "k8s"),
    ];
    assert_eq!(texts(&out), want.map(|(k, v)| (k.to_owned(), v.to_owned())).into());
    let (out, _) = made(Kind::ClusterInformation, "", "node.n1", json!({ "spec": spec }));
    assert_eq!(out.len(), 4);
    assert!(texts(&out).contains_key("/calico/v1/host/n1/config/ClusterGUID"));
    let (out, error) = made(Kind::ClusterInformation, "", "odd", json!({}));
    assert!(out.is_empty() && error.is_some());
}

#[test]
fn parameters_of_felix_as_texts() {
    let config: FelixConfiguration = serde_json::from_value(json!({
        "metadata": {"name": "default", "annotations": {
            "config.projectcalico.org/logseverityscreen": "Debug", "config.projectcalico.org/Future": "1", "x": "y",
        }},
        "spec": {
            "nodeSelector": "all()",
            "ipv6Support": true,
            "routeRefreshInterval": "12.345s",
            "iptablesRefreshInterval": "24h",
            "ipsetsRefreshInterval": "1000000s",
            "netlinkTimeout": "0s",
            "iptablesLockProbeInterval": "50ms",
            "iptablesPostWriteCheckInterval": "5s",
            "vxlanMTU": 1410,
            "logSeverityScreen": "Info",
            "externalNodesList": ["10.0.0.0/8", "192.0.2.1"],
            "failsafeInboundHostPorts": [
                {"protocol": "TCP", "port": 22}, {"protocol": "udp", "port": 53, "net": "10.0.0.0/8"},
                {"protocol": "tcp", "port": 80, "net": "fd00::/8"}],
            "failsafeOutboundHostPorts": [],
            "routeTableRanges": [{"min": 1, "max": 2}, {"min": 5, "max": 6}],
            "healthTimeoutOverrides": [{"name": "A", "timeout": "20s"}, {"name": "B", "timeout": "1m30s"}],
            "bpfConntrackTimeouts": {"tcpSynSent": "20s", "udpTimeout": "Auto"},
        },
    }))
    .expect("a configuration");
    let got = felix_parameters(&config);
    let want = [
        ("BPFConntrackTimeouts", "TCPSynSent=20s,UDPTimeout=Auto"),
        ("ExternalNodesCIDRList", "10.0.0.0/8,192.0.2.1"),
        ("FailsafeInboundHostPorts", "tcp:22,udp:10.0.0.0/8:53,tcp:[fd00::/8]:80"),
        ("FailsafeOutboundHostPorts", "none"),
        ("Future", "1"),
        ("HealthTimeoutOverrides", "A=20s,B=1m30s"),
        ("IpsetsRefreshInterval", "1e+06"),
        ("IptablesLockProbeIntervalMillis", "50"),
        ("IptablesPostWriteCheckIntervalSecs", "5"),
        ("IptablesRefreshInterval", "86400"),
        ("LogSeverityScreen", "Debug"),
        ("NetlinkTimeoutSecs", "0"),
        ("RouteRefreshInterval", "12.345"),
        ("RouteTableRanges", "1-2,5-6"),
    ];
    for (name, value) in want {
        assert_eq!(got.get(name).map(|v| v.as_str()), Some(value), "{name}");
    }
    assert!(!got.contains_key("NodeSelector"));
}

#[test]
fn felix_configurations_by_name() {
    let mut processor = processor_for(Kind::FelixConfiguration).expect("a processor");
    let global = source(Kind::FelixConfiguration, "", "default");
    let body = json!({
        "metadata": {"annotations": {"config.projectcalico.org/Future": "1"}}, "spec": {"logSeverityScreen": "Info"},
    });
    let (out, error) = processor.process(change(&global, 5, Some(body)));
    assert_eq!(error, None);
    let all = out.len();
    assert_eq!(texts(&out).len(), 2);
    assert_eq!(texts(&out)["/calico/v1/config/LogSeverityScreen"], "Info");
    assert_eq!(texts(&out)["/calico/v1/config/Future"], "1");
    // The parameter that only an annotation named is deleted with it, until the next full listing.
    let (out, _) = processor.process(change(&global, 6, None));
    assert_eq!((out.len(), texts(&out).len()), (all, 0));
    processor.on_syncer_starting();
    let (out, _) = processor.process(change(&global, 6, None));
    assert_eq!(out.len(), all - 1);

    let node = source(Kind::FelixConfiguration, "", "node.n1");
    let (out, _) = processor.process(change(&node, 7, Some(json!({ "spec": {"ipv6Support": false} }))));
    assert_eq!(texts(&out).into_keys().collect::<Vec<_>>(), ["/calico/v1/host/n1/config/IPv6Support"]);

    let scoped = change(&source(Kind::FelixConfiguration, "", "rack"), 8, Some(json!({})));
    assert_eq!(processor.process(scoped.clone()), (vec![scoped], None));
}

#[test]
fn pools_of_one_cidr_show_the_first_name() {
    let mut processor = processor_for(Kind::IPPool).expect("a processor");
    let mut step = |name: &str, revision: u64, cidr: Option<&str>| {
        let body = cidr.map(|cidr| json!({ "spec": { "cidr": cidr } }));
        let (out, error) = processor.process(change(&source(Kind::IPPool, "", name), revision, body));
        let sent: Vec<String> = out
            .iter()
            .map(|kv| {
                let state = if kv.value.is_some() { "set" } else { "gone" };
                format!("{state} {}@{}", kv.key.to_path().trim_start_matches("/calico/v1/ipam/"), kv.revision)
            })
            .collect();
        (sent, error)
    };
    let (a, b) = ("10.0.0.0/16", "10.1.0.0/16");
    assert_eq!(step("m", 1, Some(a)).0, ["set v4/pool/10.0.0.0-16@1"]);
    assert!(step("x", 2, Some(a)).0.is_empty());
    assert_eq!(step("c", 3, Some(a)).0, ["set v4/pool/10.0.0.0-16@3"]);
    assert_eq!(step("c", 4, Some(b)).0, ["set v4/pool/10.0.0.0-16@1", "set v4/pool/10.1.0.0-16@4"]);
    assert!(step("x", 5, None).0.is_empty());
    assert_eq!(step("m", 6, None).0, ["gone v4/pool/10.0.0.0-16@6"]);
    assert!(matches!(step("m", 7, None).1, Some(ProcessError::UnknownDeleted { .. })));
    let (sent, error) = step("c", 8, Some("odd"));
    assert_eq!(sent, ["gone v4/pool/10.1.0.0-16@8"]);
    assert!(matches!(error, Some(ProcessError::Unreadable { .. })));
}

proptest! {
    /// Whatever the order of changes, what Felix knows in the end is the first name of each key.
    #[test]
    fn clashing_sets_end_as_the_first_name(
        steps in proptest::collection::vec((0usize..4, proptest::option::of(0u8..3)), 0..40)
    ) {
        let mut processor = processor_for(Kind::IPPool).expect("a processor");
        let mut stored: BTreeMap<usize, (u8, u64)> = BTreeMap::new();
        let mut known: BTreeMap<String, u64> = BTreeMap::new();
        for (revision, (name, cidr)) in (1u64..).zip(steps) {
            let body = cidr.map(|n| json!({ "spec": { "cidr": format!("10.{n}.0.0/16") } }));
            let key = source(Kind::IPPool, "", &format!("pool-{name}"));
            let (out, error) = processor.process(change(&key, revision, body));
            match cidr {
                Some(cidr) => { stored.insert(name, (cidr, revision)); }
                None => prop_assert_eq!(stored.remove(&name).is_none(), error.is_some()),
            }
            for kv in out {
                match kv.value {
                    Some(_) => { known.insert(kv.key.to_path(), kv.revision.as_u64().expect("a number")); }
                    None => { known.remove(&kv.key.to_path()); }
                }
            }
            let mut want = BTreeMap::new();
            for (cidr, revision) in stored.values() {
                want.entry(format!("/calico/v1/ipam/v4/pool/10.{cidr}.0.0-16")).or_insert(*revision);
            }
            prop_assert_eq!(&known, &want);
        }
    }
}
