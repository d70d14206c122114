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
        (json!({"spec": {"order": "x"}}), "spec.order: invalid type: string \"x\", expected f64"),
        (
            json!({"spec": {"ingress": [{"action": 5}]}}),
            "spec.ingress[0].action: invalid type: integer `5`, expected a string",
        ),
        (json!({"spec": {"ingress": {}}}), "spec.ingress: invalid type: map, expected a sequence"),
        (json!({"metadata": []}), "metadata: invalid type: sequence, expected an object"),
        (
            json!({"metadata": {"labels": {"a": 1}}}),
            "metadata.labels.a: invalid type: integer `1`, expected a string",
        ),
        (json!(5), ".: invalid type: integer `5`, expected struct Wire"),
    ] {
        assert_eq!(strict_error(value), want);
    }
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
