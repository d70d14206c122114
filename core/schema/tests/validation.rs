//! Accepted and refused objects, as tables.
//!
//! A line of a table is `+ KIND DOCUMENT` for an object that must pass, or `- KIND FIELD DOCUMENT` for one that must
//! be refused because of FIELD (blanks in FIELD are written as `_`). DOCUMENT is JSON: the object with short keys
//! `n` name, `ns` namespace, `l` labels, `a` annotations, `s` spec, `st` status; what is left out gets a good
//! value. Lines that begin with `#` are headings.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use calico_api::{AnyResource, Kind, gojson};
use calico_schema::{Op, validate};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

fn object(kind: Kind, document: &Value) -> AnyResource {
    let part = |key: &str, default: Value| document.get(key).cloned().unwrap_or(default);
    let mut metadata = Map::new();
    let name = match kind {
        Kind::ClusterInformation | Kind::IPAMConfiguration => "default",
        _ => "probe",
    };
    metadata.insert("name".to_owned(), part("n", json!(name)));
    if kind.namespaced() {
        metadata.insert("namespace".to_owned(), part("ns", json!("shop")));
    }
    metadata.insert("labels".to_owned(), part("l", json!({})));
    metadata.insert("annotations".to_owned(), part("a", json!({})));
    let mut value = json!({ "metadata": metadata, "spec": part("s", json!({})) });
    if let Some(status) = document.get("st") {
        value["status"] = status.clone();
    }
    AnyResource::from_value_strict(kind, &value).unwrap_or_else(|e| panic!("{kind} {document}: {e}"))
}

fn run(table: &str) -> usize {
    let mut count = 0;
    for line in table.lines().filter(|l| !l.trim().is_empty() && !l.starts_with('#')) {
        count += 1;
        let mut words = line.splitn(3, ' ');
        let (sign, kind, mut rest) = (words.next().unwrap(), words.next().unwrap(), words.next().unwrap());
        let kind = Kind::from_name(kind).unwrap();
        let mut field = String::new();
        if sign == "-" {
            let (f, document) = rest.split_once(' ').unwrap();
            (field, rest) = (f.replace('_', " "), document);
        }
        let mut object = object(kind, &serde_json::from_str(rest).unwrap_or_else(|e| panic!("{line}: {e}")));
        let verdict = validate::prepare(&mut object, Op::Create);
        match (sign, verdict) {
            ("+", Ok(())) => stays_valid(&object),
            ("+", Err(errors)) => panic!("{line}\nmust pass, but: {errors}"),
            (_, Ok(())) => panic!("{line}\nmust be refused"),
            (_, Err(errors)) => {
                let fields: Vec<&str> = errors.0.iter().map(|e| e.field.as_str()).collect();
                assert!(
                    fields.contains(&field.as_str()),
                    "{line}\nmust be refused for {field}, but: {errors}"
                );
                assert!(errors.0.iter().all(|e| !e.reason.is_empty()), "{line}: a fault without reason");
            }
        }
    }
    count
}

/// What passed validation passes again after a trip through a store.
fn stays_valid(object: &AnyResource) {
    let stored = gojson::to_vec(object).unwrap();
    let mut read = AnyResource::from_json(object.kind(), &stored).unwrap();
    assert_eq!(validate::prepare(&mut read, Op::Create), Ok(()), "{object:?}");
    assert_eq!(&read, object);
}

/// Puts `text` in place of the `at`-th text in the value.
fn replace_text(value: &mut Value, at: &mut usize, text: &str) {
    match value {
        Value::String(old) => {
            if *at == 0 {
                text.clone_into(old);
            }
            *at = at.wrapping_sub(1);
        }
        Value::Array(items) => items.iter_mut().for_each(|item| replace_text(item, at, text)),
        Value::Object(fields) => fields.values_mut().for_each(|field| replace_text(field, at, text)),
        _ => {}
    }
}

const TABLES: [&str; 5] = [
    include_str!("cases/metadata.txt"),
    include_str!("cases/policies.txt"),
    include_str!("cases/ipam.txt"),
    include_str!("cases/endpoints.txt"),
    include_str!("cases/felix.txt"),
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    /// Whatever text stands in whatever field: no panic, and a verdict that holds.
    #[test]
    fn any_text_in_any_field(
        table in 0..TABLES.len(),
        line in any::<prop::sample::Index>(),
        at in 0usize..12,
        text in prop_oneof![
            "[a-z0-9:/.%*+-]{0,20}",
            "[ -~]{0,12}",
            any::<String>(),
            Just("global(".to_owned()),
            Just("::/0".to_owned()),
        ],
    ) {
        let lines: Vec<&str> = TABLES[table].lines().filter(|l| l.starts_with(['+', '-'])).collect();
        let line = line.get(&lines);
        let kind = Kind::from_name(line.split(' ').nth(1).unwrap()).unwrap();
        let mut document: Value = serde_json::from_str(&line[line.find('{').unwrap()..]).unwrap();
        replace_text(&mut document, &mut at.clone(), &text);
        let value = json!({
            "metadata": {"name": "probe", "namespace": "shop", "labels": document["l"], "annotations": document["a"]},
            "spec": document["s"], "status": document["st"],
        });
        if let Ok(mut object) = AnyResource::from_value_strict(kind, &value)
            && validate::prepare(&mut object, Op::Create).is_ok()
        {
            stays_valid(&object);
        }
    }
}

#[test]
fn metadata() {
    assert!(run(TABLES[0]) > 40);
}

#[test]
fn policies() {
    assert!(run(TABLES[1]) > 90);
}

#[test]
fn pools_and_ipam() {
    assert!(run(TABLES[2]) > 40);
}

#[test]
fn endpoints_and_nodes() {
    assert!(run(TABLES[3]) > 60);
}

#[test]
fn felix() {
    assert!(run(TABLES[4]) > 60);
}

#[test]
fn long_lists_and_texts_are_refused() {
    let policy = |spec: Value| object(Kind::GlobalNetworkPolicy, &json!({ "s": spec }));
    let rules = |n: usize| vec![json!({"action": "Log"}); n];
    let selector = |n: usize| format!("k == '{}'", "v".repeat(n - 7));
    let nets = |n: usize| (0..n).map(|i| format!("10.{}.{}.0/24", i / 256, i % 256)).collect::<Vec<_>>();
    for (good, bad, field) in [
        (json!({"egress": rules(1024)}), json!({"egress": rules(1025)}), "spec.egress"),
        (json!({"selector": selector(1024)}), json!({"selector": selector(1025)}), "spec.selector"),
        (
            json!({"ingress": [{"action": "Deny", "source": {"nets": nets(256)}}]}),
            json!({"ingress": [{"action": "Deny", "source": {"nets": nets(257)}}]}),
            "spec.ingress[0].source.nets",
        ),
    ] {
        assert_eq!(validate::prepare(&mut policy(good), Op::Create), Ok(()), "{field}");
        let errors = validate::prepare(&mut policy(bad), Op::Create).unwrap_err();
        assert_eq!(errors.0[0].field, field);
    }
    let mut object = object(Kind::Tier, &json!({"a": {"k": "x".repeat(256 * 1024)}}));
    let errors = validate::prepare(&mut object, Op::Create).unwrap_err();
    assert_eq!(errors.0[0].field, "Metadata.Annotations");
}

#[test]
fn what_a_store_fills_in_is_asked_for_at_the_right_time() {
    let mut tier = object(Kind::Tier, &json!({}));
    assert_eq!(validate::prepare(&mut tier, Op::Create), Ok(()));
    assert_eq!(
        validate::validate(&tier, Op::Update).unwrap_err().to_string(),
        "error with the following fields:\n\
         -  Metadata.ResourceVersion = '' (field must be set for an Update request)\n\
         -  Metadata.CreationTimestamp = '0001-01-01 00:00:00 +0000 UTC' (field must be set for an Update request)\n\
         -  Metadata.UID = '' (field must be set for an Update request)\n"
    );
    tier.metadata_mut().resource_version = "7".to_owned();
    assert_eq!(
        validate::validate(&tier, Op::Create).unwrap_err().to_string(),
        "error with field Metadata.ResourceVersion = '7' (field must not be set for a Create request)"
    );
    assert_eq!(validate::validate(&tier, Op::Check), Ok(()));
    tier.metadata_mut().uid = "u".to_owned();
    tier.metadata_mut().creation_timestamp = calico_api::Timestamp::from_second(0);
    assert_eq!(validate::validate(&tier, Op::Update), Ok(()));

    let mut nameless = object(Kind::Tier, &json!({"n": ""}));
    assert_eq!(
        validate::prepare(&mut nameless, Op::Create).unwrap_err().to_string(),
        "error with field Metadata.Name = '' (field must be set for a Create request)"
    );
    nameless.metadata_mut().generate_name = "t-".to_owned();
    let text = validate::validate(&nameless, Op::Create).unwrap_err().to_string();
    assert!(
        text.ends_with("(field must be set for a Create request (GenerateName is not supported))"),
        "{text}"
    );

    let homeless = object(Kind::NetworkSet, &json!({"ns": ""}));
    assert_eq!(
        validate::validate(&homeless, Op::Create).unwrap_err().to_string(),
        "error with field Metadata.Namespace (namespace is not specified on namespaced resource)"
    );
    assert_eq!(validate::validate(&homeless, Op::Check), Ok(()));
}

#[test]
fn pools_keep_their_addresses() {
    let pool = |spec: Value| {
        let mut pool = object(Kind::IPPool, &json!({ "s": spec }));
        validate::prepare(&mut pool, Op::Create).unwrap();
        pool
    };
    let old = pool(json!({"cidr": "10.8.0.0/20"}));
    let lb = pool(json!({"cidr": "10.8.0.0/20", "allowedUses": ["LoadBalancer"]}));
    let cases = [
        (&old, pool(json!({"cidr": "10.8.0.0/20", "natOutgoing": true})), None),
        (&old, pool(json!({"cidr": "10.8.0.0/21"})), Some("IPPool.Spec.CIDR")),
        (&old, pool(json!({"cidr": "10.8.0.0/20", "blockSize": 27})), Some("IPPool.Spec.BlockSize")),
        (&lb, old.clone(), Some("IPPool.Spec.AllowedUses")),
        (&old, lb.clone(), None),
    ];
    for (old, new, field) in cases {
        let verdict = validate::transition(old, &new);
        assert_eq!(verdict.err().map(|e| e.0[0].field.clone()).as_deref(), field);
    }
    // An old pool that is stored in another spelling may be written back in the canonical one.
    let mut spelled = pool(json!({"cidr": "fd00:8::/64"}));
    if let AnyResource::IPPool(pool) = &mut spelled {
        pool.spec.cidr = "fd00:8:0::/64".to_owned();
    }
    assert_eq!(validate::transition(&spelled, &pool(json!({"cidr": "fd00:8::/64"}))), Ok(()));
}
