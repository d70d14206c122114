//! Changes of a part of an object.
//!
//! Three forms: strategic merge (objects are merged, `null` removes, lists are replaced except those that
//! Kubernetes merges by element, `$patch` directs), JSON merge patch (RFC 7396) and JSON patch (RFC 6902).

use serde_json::{Map, Value};

/// Form of a patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PatchType {
    /// Kubernetes' own.
    Strategic,
    /// RFC 7396.
    Merge,
    /// RFC 6902.
    Json,
}

/// Why a patch was not applied.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PatchError {
    /// Not a form.
    #[error("unknown patch type '{0}'; use strategic, merge or json")]
    UnknownType(String),
    /// The patch is no JSON, or no object where one is needed.
    #[error("performing {form} patch: invalid JSON document{reason}")]
    Document {
        /// Form.
        form: &'static str,
        /// What is wrong; may be empty.
        reason: String,
    },
    /// A directive that is none.
    #[error("performing strategic merge patch: unknown directive $patch: {0}")]
    Directive(String),
    /// An operation of a JSON patch that fails.
    #[error("performing JSON patch: {0}")]
    Operation(#[source] json_patch::PatchError),
}

// === impl PatchType ===

impl PatchType {
    /// The form that `-t` names.
    pub(crate) fn parse(text: Option<&str>) -> Result<Self, PatchError> {
        match text {
            None | Some("" | "strategic") => Ok(Self::Strategic),
            Some("merge") => Ok(Self::Merge),
            Some("json") => Ok(Self::Json),
            Some(other) => Err(PatchError::UnknownType(other.to_owned())),
        }
    }

    /// Changes `object` as `patch` says.
    pub(crate) fn apply(self, object: &mut Value, patch: &str) -> Result<(), PatchError> {
        let form = match self {
            Self::Strategic => "strategic merge",
            Self::Merge => "merge",
            Self::Json => "JSON",
        };
        let document = |error: serde_json::Error| PatchError::Document {
            form,
            reason: if patch.trim().is_empty() { String::new() } else { format!(": {error}") },
        };
        if self == Self::Json {
            let patch: json_patch::Patch = serde_json::from_str(patch).map_err(document)?;
            return json_patch::patch(object, &patch).map_err(PatchError::Operation);
        }
        let Value::Object(patch) = serde_json::from_str(patch).map_err(document)? else {
            return Err(PatchError::Document { form, reason: String::new() });
        };
        if self == Self::Merge {
            json_patch::merge(object, &Value::Object(patch));
            return Ok(());
        }
        merge(object, &patch, "")
    }
}

/// Merges `patch` into `target`, which stands at `path`.
fn merge(target: &mut Value, patch: &Map<String, Value>, path: &str) -> Result<(), PatchError> {
    match patch.get("$patch").map(|directive| directive.as_str().unwrap_or_default()) {
        None | Some("merge") => {}
        Some("replace") => {
            let kept = patch.iter().filter(|(key, _)| *key != "$patch");
            *target = Value::Object(kept.map(|(key, value)| (key.clone(), value.clone())).collect());
            return Ok(());
        }
        Some("delete") => {
            *target = Value::Object(Map::new());
            return Ok(());
        }
        Some(other) => return Err(PatchError::Directive(other.to_owned())),
    }
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(fields) = target else { return Ok(()) };
    for (key, value) in patch {
        if key == "$patch" {
            continue;
        }
        let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        match value {
            Value::Null => {
                fields.remove(key);
            }
            Value::Object(inner) => merge(fields.entry(key).or_insert(Value::Null), inner, &path)?,
            Value::Array(items) => {
                let list = fields.entry(key).or_insert(Value::Null);
                match path.as_str() {
                    "metadata.ownerReferences" => merge_list(list, items, Some("uid")),
                    "metadata.finalizers" => merge_list(list, items, None),
                    _ => *list = value.clone(),
                }
            }
            scalar => {
                fields.insert(key.clone(), scalar.clone());
            }
        }
    }
    Ok(())
}

/// Adds items to a list; one with the same key replaces, one that is there stays.
fn merge_list(list: &mut Value, items: &[Value], key: Option<&str>) {
    let mut merged = match list.take() {
        Value::Array(items) => items,
        _ => Vec::new(),
    };
    for item in items {
        let same = |other: &Value| match key {
            Some(key) => other.get(key).is_some() && other.get(key) == item.get(key),
            None => other == item,
        };
        match merged.iter_mut().find(|other| same(other)) {
            Some(other) => *other = item.clone(),
            None => merged.push(item.clone()),
        }
    }
    *list = Value::Array(merged);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn patched(kind: &str, patch: &str) -> Result<Value, String> {
        let mut object = json!({
            "metadata": {"labels": {"a": "1", "b": "2"}, "finalizers": ["x"], "ownerReferences": [{"uid": "u", "name": "n"}]},
            "spec": {"order": 1, "nets": ["a", "b"]},
        });
        let result = PatchType::parse(Some(kind)).and_then(|kind| kind.apply(&mut object, patch));
        result.map(|()| object).map_err(|error| error.to_string())
    }

    #[test]
    fn strategic_merges_follow_kubernetes() {
        let patch = r#"{"metadata":{"labels":{"a":null,"c":"3"},"finalizers":["x","y"],
            "ownerReferences":[{"uid":"u","name":"m"},{"uid":"v"}]},"spec":{"order":null,"nets":["c"]}}"#;
        assert_eq!(
            patched("strategic", patch).unwrap(),
            json!({
                "metadata": {"labels": {"b": "2", "c": "3"}, "finalizers": ["x", "y"],
                    "ownerReferences": [{"uid": "u", "name": "m"}, {"uid": "v"}]},
                "spec": {"nets": ["c"]},
            })
        );
        let replaced = patched("strategic", r#"{"spec":{"$patch":"replace","order":5}}"#).unwrap();
        assert_eq!(replaced["spec"], json!({"order": 5}));
        let removed = patched("", r#"{"spec":{"$patch":"delete"}}"#).unwrap();
        assert_eq!(removed["spec"], json!({}));
        assert_eq!(patched("", r#"{"new":{"x":{"y":1}}}"#).unwrap()["new"], json!({"x": {"y": 1}}));
    }

    #[test]
    fn other_forms_are_those_of_the_rfcs() {
        let merged = patched("merge", r#"{"metadata":{"finalizers":["y"]}}"#).unwrap();
        assert_eq!(merged["metadata"]["finalizers"], json!(["y"]));
        let done = patched(
            "json",
            r#"[{"op":"replace","path":"/spec/order","value":3},{"op":"remove","path":"/spec/nets/0"}]"#,
        );
        assert_eq!(done.unwrap()["spec"], json!({"order": 3, "nets": ["b"]}));
    }

    #[test]
    fn bad_patches_are_refused() {
        assert_eq!(patched("", "").unwrap_err(), "performing strategic merge patch: invalid JSON document");
        assert_eq!(patched("", "[]").unwrap_err(), "performing strategic merge patch: invalid JSON document");
        assert!(
            patched("merge", "{").unwrap_err().starts_with("performing merge patch: invalid JSON document: ")
        );
        assert_eq!(
            patched("bogus", "{}").unwrap_err(),
            "unknown patch type 'bogus'; use strategic, merge or json"
        );
        assert_eq!(
            patched("", r#"{"spec":{"$patch":"x"}}"#).unwrap_err(),
            "performing strategic merge patch: unknown directive $patch: x"
        );
        let error = patched("json", r#"[{"op":"test","path":"/spec/order","value":9}]"#).unwrap_err();
        assert!(error.starts_with("performing JSON patch: "), "{error}");
    }
}
