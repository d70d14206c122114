use serde_json::json;

use super::*;
use crate::kinds::NetworkPolicy;
use crate::resource::Resource as _;

fn strict_error(value: Value) -> String {
    from_value_strict(Kind::NetworkPolicy, &value).unwrap_err().to_string()
}

#[test]
fn unknown_fields_are_listed_with_the_nearest_name() {
    let value = json!({
        "kind": "NetworkPolicy", "apiVersion": "projectcalico.org/v3",
        "metadata": {"name": "a", "labls": {"x": "y"}},
        "spec": {"ingress": [{"action": "Allow", "sorce": {}, "zzz": 1}], "tier": "t"},
    });
    let DecodeError::UnknownFields(fields) = from_value_strict(Kind::NetworkPolicy, &value).unwrap_err()
    else {
        panic!("want unknown fields");
    };
    let got: Vec<_> = fields.iter().map(|f| (f.path.as_str(), f.suggestion)).collect();
    assert_eq!(
        got,
        [
            ("metadata.labls", Some("labels")),
            ("spec.ingress[0].sorce", Some("source")),
            ("spec.ingress[0].zzz", None),
        ]
    );
    assert!(from_value(Kind::NetworkPolicy, &value).is_ok(), "a store is read leniently");
}

#[test]
fn wrong_types_name_their_path() {
    for (value, want) in [
        (json!({"spec": {"order": "x"}}), "spec.order: invalid type: string \"x\", expected a number"),
        (
            json!({"spec": {"ingress": [{"action": []}]}}),
            "spec.ingress[0].action: invalid type: list, expected a string",
        ),
        (json!({"spec": {"ingress": {}}}), "spec.ingress: invalid type: object, expected a list"),
        (json!({"spec": {"ingress": [7]}}), "spec.ingress[0]: invalid type: number, expected an object"),
        (json!({"metadata": []}), "metadata: invalid type: list, expected an object"),
        (
            json!({"metadata": {"labels": {"a": {}}}}),
            "metadata.labels.a: invalid type: object, expected a string",
        ),
        (json!(5), ".: invalid type: number, expected an object"),
    ] {
        assert_eq!(strict_error(value), want);
    }
}

#[test]
fn people_may_write_numbers_for_texts() {
    let value = json!({"metadata": {"labels": {"a": 1, "b": true, "c": 1.5}}, "spec": {"selector": 7}});
    let object = from_value_strict(Kind::NetworkPolicy, &value).unwrap();
    let labels: Vec<&str> = object.metadata().labels.values().map(String::as_str).collect();
    assert_eq!(labels, ["1", "true", "1.5"]);
    let DecodeError::WrongType { path, .. } = from_value(Kind::NetworkPolicy, &value).unwrap_err() else {
        panic!("a store holds no such thing");
    };
    assert_eq!(path, "metadata.labels.a");
}

#[test]
fn null_is_absence_and_case_is_forgiven() {
    let value = json!({"METADATA": {"Name": "a", "labels": null}, "spec": {"Ingress": null, "Tier": "x"}});
    let object = from_value_strict(Kind::NetworkPolicy, &value).unwrap();
    let policy = NetworkPolicy::from_any(object).unwrap();
    assert_eq!((policy.metadata.name.as_str(), policy.spec.tier.as_str()), ("a", "x"));
    assert!(from_value_strict(Kind::NetworkPolicy, &json!({"spec": null})).is_ok());
}

#[test]
fn slices_report_syntax_and_path() {
    let error = from_slice(Kind::NetworkPolicy, b"{").unwrap_err();
    assert!(matches!(error, DecodeError::Syntax(_)), "{error}");
    let error = from_slice(Kind::NetworkPolicy, br#"{"spec":{"selector":[]}}"#).unwrap_err();
    assert!(matches!(&error, DecodeError::WrongType { path, .. } if path == "spec.selector"), "{error}");
    let error = from_slice(Kind::NetworkPolicy, b"{} x").unwrap_err();
    assert!(matches!(error, DecodeError::Syntax(_)), "{error}");
}

#[test]
fn kinds_are_recognised() {
    let of = |kind: &str, version: &str| kind_of(&json!({"kind": kind, "apiVersion": version}));
    assert_eq!(of("Tier", API_VERSION).unwrap(), Kind::Tier);
    for (kind, version) in [("tier", API_VERSION), ("Tier", "v1"), ("", ""), ("Pod", "v1")] {
        let error = of(kind, version).unwrap_err().to_string();
        assert_eq!(error, format!("unknown resource type ({kind}) and/or version ({version})"));
    }
    assert!(matches!(
        from_value(Kind::KubernetesService, &json!({})).unwrap_err(),
        DecodeError::Unserved(Kind::KubernetesService)
    ));
}
