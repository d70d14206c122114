//! Reading of files and comparable texts.

use std::path::Path;

use anyhow::Context as _;
use serde_json::{Map, Value};

/// Reads a file of text.
pub(crate) fn read(path: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(path).with_context(|| path.display().to_string())
}

/// Reads a file of JSON.
pub(crate) fn read_json(path: &Path) -> anyhow::Result<Value> {
    serde_json::from_str(&read(path)?).with_context(|| path.display().to_string())
}

/// Reads a file that holds one JSON object per line.
pub(crate) fn read_lines(path: &Path) -> anyhow::Result<Vec<Value>> {
    let parse =
        |(i, line)| serde_json::from_str(line).with_context(|| format!("{}:{}", path.display(), i + 1));
    read(path)?.lines().enumerate().map(parse).collect()
}

/// The names in a folder that `keep` makes something of, sorted.
pub(crate) fn names(folder: &Path, keep: impl Fn(&str) -> Option<&str>) -> anyhow::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        if let Some(name) = keep(&entry?.file_name().to_string_lossy()) {
            names.push(name.to_owned());
        }
    }
    names.sort();
    Ok(names)
}

/// The documents of a YAML stream.
pub(crate) fn yaml(text: &str) -> anyhow::Result<Vec<Value>> {
    let documents: Vec<Value> =
        serde_saphyr::from_multiple_with_options(text, serde_saphyr::options! { budget: None })?;
    Ok(documents.into_iter().filter(|document| !document.is_null()).collect())
}

/// A text field of an object; empty if it is not there.
pub(crate) fn field<'a>(object: &'a Value, name: &str) -> &'a str {
    object.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// Indented JSON with sorted fields.
pub(crate) fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(&sorted(value)).unwrap_or_default()
}

/// The same value with the fields of all objects sorted, and whole numbers written as such.
pub(crate) fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(object) => {
            let mut fields: Vec<(&String, &Value)> = object.iter().collect();
            fields.sort_by_key(|(name, _)| *name);
            Value::Object(
                fields.into_iter().map(|(name, v)| (name.clone(), sorted(v))).collect::<Map<_, _>>(),
            )
        }
        Value::Array(items) => Value::Array(items.iter().map(sorted).collect()),
        other => other.clone(),
    }
}
