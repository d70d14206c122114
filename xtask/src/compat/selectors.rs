//! Selectors: canonical text, id, evaluation, refusals.

use std::collections::BTreeMap;

use calico_selector::{Selector, normalise};
use serde_json::{Value, json};

use super::Context;
use super::case::Case;
use super::text::{field, read_lines};

/// Runs every selector. Refusals count as equal if both refuse; their texts are our own.
pub(crate) fn run(context: &Context) -> anyhow::Result<Vec<Case>> {
    let rows = read_lines(&context.path("ctl/selectors.jsonl"))?;
    Ok(rows.iter().map(case).collect())
}

fn case(row: &Value) -> Case {
    let text = field(row, "sel");
    let mut expected = row.clone();
    if let Some(expected) = expected.as_object_mut() {
        for name in ["id", "sel", "error"] {
            expected.remove(name);
        }
    }
    let ours = match Selector::parse(text) {
        Ok(selector) => {
            let eval: Vec<Value> =
                row["eval"].as_array().into_iter().flatten().map(|e| match_one(&selector, e)).collect();
            json!({
                "ok": true,
                "canonical": selector.canonical(),
                "uid": selector.unique_id(),
                "normalised": normalise(text),
                "eval": eval,
            })
        }
        Err(_) => json!({"ok": false, "normalised": normalise(text)}),
    };
    Case::json(format!("ctl/selectors/{}", field(row, "id")), text.to_owned(), &expected, &ours)
}

fn match_one(selector: &Selector, row: &Value) -> Value {
    let labels: BTreeMap<&str, &str> = row["labels"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(label, value)| (label.as_str(), value.as_str().unwrap_or_default()))
        .collect();
    json!({"labels": row["labels"], "match": selector.matches(&labels)})
}
