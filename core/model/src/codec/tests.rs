use std::collections::BTreeMap;
use std::sync::Arc;

use calico_api::{BlockAffinity as AffinityResource, Flag, NetworkPolicy, Resource, Tier};
use proptest::prelude::*;
use smol_str::SmolStr;

use super::*;
use crate::ipam::{
    AffinityState, AllocationAttribute, AllocationBlock, BlockAffinity, IpamConfig, IpamHandle,
};
use crate::key::AffinityType;

fn key(path: &str) -> Key {
    Key::parse_path(path).expect("a key")
}

fn decode(path: &str, text: &str) -> Result<Value, CodecError> {
    decode_value(&key(path), text.as_bytes())
}

fn encode(path: &str, value: &Value) -> String {
    String::from_utf8(encode_value(&key(path), value).expect("encodes")).expect("text")
}

fn reason(result: Result<Value, CodecError>) -> String {
    match result {
        Err(CodecError::ParsingDatastoreEntry { reason, .. }) => reason,
        other => panic!("{other:?}"),
    }
}

const RESOURCES: &str = "/calico/resources/v3/projectcalico.org";

/// What is stored under a path reads and writes back to the same bytes.
const GOLDEN: &[(&str, &str)] = &[
    (
        "networkpolicies/shop/web",
        r#"{"kind":"NetworkPolicy","apiVersion":"projectcalico.org/v3","metadata":{"name":"web","namespace":"shop","uid":"0d0c","creationTimestamp":"2026-01-02T03:04:05Z","labels":{"projectcalico.org/tier":"default"},"annotations":{"projectcalico.org/metadata":"{\"name\":\"web\"}"}},"spec":{"tier":"default","order":100,"ingress":[{"action":"Allow","protocol":"TCP","source":{"selector":"role == 'fe' \u0026\u0026 x \u003c= 'b'"},"destination":{"ports":[80,"8000:8100","http"]}},{"action":"Deny"}],"selector":"app == 'web'","types":["Ingress"]}}"#,
    ),
    (
        "globalnetworkpolicies/g",
        r#"{"kind":"GlobalNetworkPolicy","apiVersion":"projectcalico.org/v3","metadata":{"name":"g","annotations":{"a":"b","projectcalico.org/metadata":"{\"name\":\"g\"}"}},"spec":{"tier":"blue","order":0.5,"egress":[{"action":"Pass","ipVersion":4,"protocol":17,"source":{},"destination":{"nets":["10.0.0.0/8"],"notPorts":[53]}}],"types":["Egress"],"applyOnForward":true}}"#,
    ),
    (
        "tiers/default",
        r#"{"kind":"Tier","apiVersion":"projectcalico.org/v3","metadata":{"name":"default","uid":"0d0c","creationTimestamp":"2026-01-02T03:04:05Z"},"spec":{"order":1000000,"defaultAction":"Deny"},"status":{}}"#,
    ),
    (
        "clusterinformations/default",
        r#"{"kind":"ClusterInformation","apiVersion":"projectcalico.org/v3","metadata":{"name":"default"},"spec":{"clusterGUID":"9f0c","clusterType":"k8s,bgp","calicoVersion":"v3.32.0","datastoreReady":true}}"#,
    ),
    (
        "ippools/pool-a",
        r#"{"kind":"IPPool","apiVersion":"projectcalico.org/v3","metadata":{"name":"pool-a"},"spec":{"cidr":"192.168.0.0/16","vxlanMode":"Never","ipipMode":"Always","natOutgoing":true,"blockSize":26,"nodeSelector":"all()","allowedUses":["Workload","Tunnel"],"assignmentMode":"Automatic"}}"#,
    ),
    (
        "nodes/node1",
        r#"{"kind":"Node","apiVersion":"projectcalico.org/v3","metadata":{"name":"node1"},"spec":{"bgp":{"asNumber":64512,"ipv4Address":"10.0.0.1/24","ipv4IPIPTunnelAddr":"192.168.1.1"},"ipv4VXLANTunnelAddr":"192.168.1.2","vxlanTunnelMACAddr":"66:00:11:22:33:44","orchRefs":[{"nodeName":"node1","orchestrator":"k8s"}],"wireguard":{"interfaceIPv4Address":"192.168.1.3"},"addresses":[{"address":"10.0.0.1/24","type":"CalicoNodeIP"}]},"status":{"wireguardPublicKey":"a2V5"}}"#,
    ),
    (
        "workloadendpoints/shop/node1-k8s-cart-eth0",
        r#"{"kind":"WorkloadEndpoint","apiVersion":"projectcalico.org/v3","metadata":{"name":"node1-k8s-cart-eth0","namespace":"shop","labels":{"projectcalico.org/namespace":"shop","projectcalico.org/orchestrator":"k8s"}},"spec":{"orchestrator":"k8s","node":"node1","containerID":"8d","pod":"cart","endpoint":"eth0","serviceAccountName":"default","ipNetworks":["192.168.1.2/32"],"profiles":["kns.shop","ksa.shop.default"],"interfaceName":"cali18582a65b10","mac":"ee:ee:ee:ee:ee:ee","ports":[{"name":"http","protocol":"TCP","port":80,"hostPort":0,"hostIP":""}]}}"#,
    ),
    (
        "blockaffinities/node1-10-0-0-0-26",
        r#"{"kind":"BlockAffinity","apiVersion":"projectcalico.org/v3","metadata":{"name":"node1-10-0-0-0-26"},"spec":{"state":"confirmed","node":"node1","type":"host","cidr":"10.0.0.0/26","deleted":"false"}}"#,
    ),
    (
        "/calico/ipam/v2/assignment/ipv4/block/192.168.1.0-30",
        r#"{"cidr":"192.168.1.0/30","affinity":"host:node1","affinity_claim_time":"2026-01-02T03:04:05Z","allocations":[null,0,null,null],"unallocated":[0,2,3],"attributes":[{"handle_id":"net.8d","secondary":{"namespace":"shop","node":"node1","pod":"cart"},"alternateOwnerAttrs":{"pod":"b"},"releasedAt":"2026-01-02T03:04:06Z"}],"sequenceNumber":1767323045000000001,"sequenceNumberForAllocation":{"1":1767323045000000000},"deleted":false}"#,
    ),
    (
        "/calico/ipam/v2/assignment/ipv6/block/fd00::-126",
        r#"{"cidr":"fd00::/126","affinity":null,"allocations":[null,null,null,null],"unallocated":[0,1,2,3],"attributes":null,"sequenceNumber":18446744073709551615,"sequenceNumberForAllocation":{},"deleted":false,"hostAffinity":"node1"}"#,
    ),
    (
        "/calico/ipam/v2/assignment/ipv4/block/10.0.0.0-28",
        r#"{"cidr":"10.0.0.0/28","affinity":"virtual:lb","allocations":[null,null,1,null,null,null,null,null,null,null,0,null,null,null,null,null],"unallocated":[],"attributes":[{},{"handle_id":"a\u0026b"}],"sequenceNumber":7,"sequenceNumberForAllocation":{"10":5,"2":6},"deleted":true}"#,
    ),
    ("/calico/ipam/v2/host/node1/ipv4/block/192.168.1.0-26", r#"{"state":"confirmed","deleted":false}"#),
    ("/calico/ipam/v2/virtual/lb/ipv6/block/fd00::-122", r#"{"state":"pendingDeletion","deleted":true}"#),
    ("/calico/ipam/v2/handle/net.8d", r#"{"block":{"192.168.1.0/26":1,"fd00::/122":2},"deleted":false}"#),
    ("/calico/ipam/v2/config", r#"{"auto_allocate_blocks":true,"kubeVirtVMAddressPersistence":"Enabled"}"#),
    (
        "/calico/ipam/v2/config",
        r#"{"strict_affinity":true,"auto_allocate_blocks":true,"maxBlocksPerHost":3,"ipCooldownSeconds":600}"#,
    ),
    ("/calico/ipam/v2/config", "{}"),
    ("/calico/ipam/v2/host/node1", "{}"),
    (
        "/calico/felix/v2/no-region/host/node1/status",
        r#"{"first_update":false,"time":"2026-01-02T03:04:05Z","uptime":12.3}"#,
    ),
    ("/calico/felix/v2/no-region/host/node1/workload/k8s/shop%2fcart/endpoint/eth0", r#"{"status":"up"}"#),
    ("/calico/v1/Ready", "true"),
    ("/calico/v1/config/LogSeverityScreen", "Info <raw>"),
];

#[test]
fn stored_values_read_and_write_back() {
    for (path, text) in GOLDEN {
        let path = if path.starts_with('/') { (*path).to_owned() } else { format!("{RESOURCES}/{path}") };
        let value = decode(&path, text).unwrap_or_else(|error| panic!("{error}"));
        let want = text.replace(r#","source":{},"#, ","); // an empty side of a rule is left out
        assert_eq!(encode(&path, &value), want, "{path}");
    }
}

#[test]
fn what_readers_accept() {
    let affinity = "/calico/ipam/v2/host/node1/ipv4/block/192.168.1.0-26";
    let empty = BlockAffinity { state: None, deleted: false };
    for text in ["", "{}", r#"{"state":"","deleted":false,"later":[1]}"#, r#"{"state":null,"deleted":null}"#]
    {
        assert_eq!(decode(affinity, text), Ok(Value::BlockAffinity(empty.clone())), "{text}");
    }
    assert_eq!(encode(affinity, &Value::BlockAffinity(empty)), r#"{"state":"","deleted":false}"#);

    let block = r#" { "cidr" : "10.85.0.1/30", "attributes": [{"handle_id": null, "secondary": null, "x": 1}],
        "allocations": null, "sequenceNumber": 1000, "sequenceNumberForAllocation": null, "y": {} }"#;
    let Ok(Value::Block(block)) = decode("/calico/ipam/v2/assignment/ipv4/block/10.85.0.0-30", block) else {
        panic!("no block")
    };
    assert_eq!(block.cidr.to_string(), "10.85.0.0/30");
    assert_eq!(block.sequence_number, 1000);
    assert_eq!(block.attributes, [AllocationAttribute::default()]);
    assert_eq!(block.affinity, None);

    let handle = decode("/calico/ipam/v2/handle/h", r#"{"block":null}"#);
    assert_eq!(handle, Ok(Value::IpamHandle(Arc::default())));
    let tier = decode(&format!("{RESOURCES}/tiers/t"), r#"{"metadata":{"name":"t"},"spec":{"later":1}}"#);
    let want = Tier { metadata: ObjectMeta { name: "t".into(), ..ObjectMeta::default() }, ..Tier::default() };
    assert_eq!(tier, Ok(Value::resource(want)));
}

#[test]
fn faults_name_key_and_reason() {
    for (path, text) in [
        ("/calico/ipam/v2/host/node1/ipv4/block/192.168.1.0-26", r#"{"state":"odd"}"#),
        (
            "/calico/ipam/v2/assignment/ipv4/block/10.85.0.0-30",
            r#"{"cidr":"10.85.0.0/30","allocations":[-1]}"#,
        ),
        ("/calico/ipam/v2/assignment/ipv4/block/10.85.0.0-30", "{oops"),
        ("/calico/ipam/v2/assignment/ipv4/block/10.85.0.0-30", ""),
        ("/calico/ipam/v2/config", "7"),
        ("/calico/v1/Ready", "maybe"),
        ("/calico/resources/v3/projectcalico.org/tiers/blue", "7"),
        ("/calico/resources/v3/projectcalico.org/tiers/blue", r#"{"spec":{"order":"x"}}"#),
        ("/calico/resources/v3/projectcalico.org/blockaffinities/b", r#"{"spec":{"deleted":"odd"}}"#),
    ] {
        let result = decode(path, text);
        let Err(CodecError::ParsingDatastoreEntry { key, value, reason }) = &result else {
            panic!("{path} {text}: {result:?}")
        };
        assert_eq!((key.as_str(), value.as_str()), (path, text));
        assert!(!reason.is_empty());
    }
    let long = "x".repeat(5000);
    let Err(CodecError::ParsingDatastoreEntry { value, .. }) = decode("/calico/ipam/v2/config", &long) else {
        panic!("no error")
    };
    assert_eq!(value.len(), SHOWN_VALUE);
    assert!(decode_value(&Key::IpamConfig, &[0xff, 0xfe]).is_err());
}

#[test]
fn values_under_wrong_keys_are_refused() {
    let config = Value::IpamConfig(IpamConfig::default());
    let tier = Value::resource(Tier::default());
    let wrong = |key: &Key, value: &Value| {
        assert!(matches!(encode_value(key, value), Err(CodecError::WrongType { .. })), "{key}");
    };
    wrong(&Key::ReadyFlag, &config);
    wrong(&Key::resource(Kind::Node, "", "t"), &tier);
    wrong(&Key::Tier("t".into()), &tier);
    wrong(&Key::IpamConfig, &tier);
    let never = decode_value(&Key::Tier("t".into()), b"{}");
    assert!(matches!(never, Err(CodecError::WrongType { .. })));
}

#[test]
fn metadata_that_lives_elsewhere_is_not_stored() {
    let mut tier = Tier::default();
    let metadata = tier.metadata_mut();
    metadata.name = "t".into();
    metadata.resource_version = "12".into();
    metadata.self_link = "/x".into();
    let text = encode(&format!("{RESOURCES}/tiers/t"), &Value::resource(tier));
    assert_eq!(
        text,
        r#"{"kind":"Tier","apiVersion":"projectcalico.org/v3","metadata":{"name":"t"},"spec":{},"status":{}}"#
    );
}

#[test]
fn names_of_policies_come_from_the_annotation() {
    let name = |stored: &str, tier: &str, note: Option<&str>| {
        let annotations = match note {
            Some(note) => serde_json::json!({ METADATA_ANNOTATION: note, "x": "y" }),
            None => serde_json::json!({ "x": "y" }),
        };
        let json = serde_json::json!({
            "metadata": { "name": stored, "namespace": "shop", "annotations": annotations },
            "spec": { "tier": tier },
        });
        match decode(&format!("{RESOURCES}/networkpolicies/shop/{stored}"), &json.to_string()) {
            Ok(Value::Resource(object)) => {
                assert_eq!(object.metadata().annotations, BTreeMap::from([("x".into(), "y".into())]));
                object.metadata().name.clone()
            }
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(name("default.p1", "", None), "p1");
    assert_eq!(name("default.p1", "default", None), "p1");
    assert_eq!(name("default.default.p1", "", None), "default.p1");
    assert_eq!(name("default.p1", "blue", None), "default.p1");
    assert_eq!(name("default.p1", "", Some(r#"{"name":"default.p1"}"#)), "default.p1");
    assert_eq!(name("p1", "", Some(r#"{"name":"other","labels":{"a":"b"}}"#)), "other");
    assert_eq!(name("default.p1", "", Some("{}")), "p1");
    let broken = decode(
        &format!("{RESOURCES}/globalnetworkpolicies/p"),
        r#"{"metadata":{"annotations":{"projectcalico.org/metadata":"{"}}}"#,
    );
    assert!(
        reason(broken).starts_with(r#"CRD annotation "projectcalico.org/metadata" contained invalid JSON"#)
    );
}

#[test]
fn a_policy_is_written_with_its_name_twice() {
    let mut policy = NetworkPolicy::default();
    policy.metadata.name = "default.p".into();
    let path = format!("{RESOURCES}/networkpolicies/shop/default.p");
    let text = encode(&path, &Value::resource(policy.clone()));
    assert!(
        text.contains(r#""annotations":{"projectcalico.org/metadata":"{\"name\":\"default.p\"}"}"#),
        "{text}"
    );
    assert_eq!(decode(&path, &text), Ok(Value::resource(policy)));
}

#[test]
fn deleted_affinities_are_told_by_a_word() {
    let mut affinity = AffinityResource::default();
    affinity.metadata.name = "a".into();
    affinity.spec.deleted = Flag(true);
    let path = format!("{RESOURCES}/blockaffinities/a");
    let text = encode(&path, &Value::resource(affinity.clone()));
    assert!(text.contains(r#""deleted":"true""#), "{text}");
    assert_eq!(decode(&path, &text), Ok(Value::resource(affinity.clone())));
    assert_eq!(decode(&path, &text.replace(r#""true""#, "true")), Ok(Value::resource(affinity)));
}

fn any_map() -> impl Strategy<Value = BTreeMap<SmolStr, SmolStr>> {
    let text = || ".{0,6}".prop_map(SmolStr::from);
    proptest::collection::btree_map(text(), text(), 0..3)
}

fn any_block() -> impl Strategy<Value = AllocationBlock> {
    let text = || proptest::option::of("[^\u{0}]{0,8}".prop_map(SmolStr::from));
    let attribute = (text(), any_map(), any_map(), text()).prop_map(
        |(handle_id, active_owner_attrs, alternate_owner_attrs, released_at)| AllocationAttribute {
            handle_id,
            active_owner_attrs,
            alternate_owner_attrs,
            released_at,
        },
    );
    (
        any::<u32>(),
        (text(), text(), text()),
        proptest::collection::vec(proptest::option::of(any::<u32>()), 0..20),
        proptest::collection::vec(any::<u32>(), 0..20),
        proptest::collection::vec(attribute, 0..4),
        any::<u64>(),
        proptest::collection::btree_map(any::<u32>(), any::<u64>(), 0..20),
        any::<bool>(),
    )
        .prop_map(|(ip, texts, allocations, unallocated, attributes, sequence, numbers, deleted)| {
            AllocationBlock {
                cidr: calico_net::Cidr::host(std::net::IpAddr::from(ip.to_be_bytes())),
                affinity: texts.0,
                affinity_claim_time: texts.1,
                host_affinity: texts.2,
                allocations,
                unallocated,
                attributes,
                sequence_number: sequence,
                sequence_number_for_allocation: numbers,
                deleted,
            }
        })
}

proptest! {
    #[test]
    fn blocks_survive_storage(block in any_block()) {
        let key = Key::Block(block.cidr);
        let value = Value::Block(block.into());
        let bytes = encode_value(&key, &value).expect("encodes");
        prop_assert_eq!(decode_value(&key, &bytes), Ok(value));
    }

    #[test]
    fn small_values_survive_storage(
        blocks in proptest::collection::btree_map(".{0,8}".prop_map(SmolStr::from), any::<u64>(), 0..4),
        deleted in any::<bool>(),
        state in proptest::option::of(prop_oneof![
            Just(AffinityState::Confirmed), Just(AffinityState::Pending), Just(AffinityState::PendingDeletion),
        ]),
        (strict, auto, most, cool) in (any::<bool>(), any::<bool>(), any::<u32>(), any::<u32>()),
        persistence in proptest::option::of("[A-Z]{1,5}".prop_map(SmolStr::from)),
    ) {
        let cidr = "10.0.0.0/26".parse().expect("a CIDR");
        let pairs = [
            (Key::IpamHandle("h".into()), Value::IpamHandle(Arc::new(IpamHandle { block: blocks, deleted }))),
            (Key::affinity(AffinityType::Host, "n", cidr), Value::BlockAffinity(BlockAffinity { state, deleted })),
            (Key::IpamConfig, Value::IpamConfig(IpamConfig {
                strict_affinity: strict,
                auto_allocate_blocks: auto,
                max_blocks_per_host: most,
                kubevirt_vm_address_persistence: persistence,
                ip_cooldown_seconds: cool,
            })),
        ];
        for (key, value) in pairs {
            let bytes = encode_value(&key, &value).expect("encodes");
            prop_assert_eq!(decode_value(&key, &bytes), Ok(value));
        }
    }

    #[test]
    fn policies_survive_storage(name in "(default\\.)?[a-z]{1,5}", tier in "|default|blue", note in ".{0,9}") {
        let mut policy = NetworkPolicy::default();
        policy.metadata.name.clone_from(&name);
        policy.metadata.annotations.insert("note".into(), note);
        policy.spec.tier = tier;
        let key = Key::resource(Kind::NetworkPolicy, "ns", name);
        let value = Value::resource(policy);
        let bytes = encode_value(&key, &value).expect("encodes");
        prop_assert_eq!(decode_value(&key, &bytes), Ok(value));
    }

    #[test]
    fn any_bytes_are_a_value_or_an_error(
        which in 0..GOLDEN.len(),
        at in any::<prop::sample::Index>(),
        put in proptest::collection::vec(any::<u8>(), 0..4),
    ) {
        let (path, text) = GOLDEN[which];
        let path = if path.starts_with('/') { path.to_owned() } else { format!("{RESOURCES}/{path}") };
        let mut bytes = text.as_bytes().to_vec();
        let start = at.index(bytes.len());
        let end = (start + put.len()).min(bytes.len());
        bytes.splice(start..end, put);
        let key = key(&path);
        if let Ok(value) = decode_value(&key, &bytes) {
            prop_assert!(encode_value(&key, &value).is_ok());
        }
    }
}
