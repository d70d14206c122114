//! Reading of JSON objects key by key, in the order in which they are written.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserializer as _, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::error::PluginError;

/// One key of an object with its value, not yet decoded.
#[derive(Debug, Clone)]
pub(super) struct Field<'a> {
    path: String,
    key: String,
    raw: &'a RawValue,
}

/// The fields of an object; those that are `null` are left out.
pub(super) fn fields<'a>(path: &str, raw: &'a RawValue) -> Result<Vec<Field<'a>>, PluginError> {
    struct Collect<'p>(&'p str);

    impl<'de> Visitor<'de> for Collect<'_> {
        type Value = Vec<Field<'de>>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut list = Vec::new();
            while let Some((key, raw)) = map.next_entry::<String, &'de RawValue>()? {
                if raw.get() == "null" {
                    continue;
                }
                let path = if self.0.is_empty() { key.clone() } else { format!("{}.{key}", self.0) };
                list.push(Field { path, key: key.to_lowercase(), raw });
            }
            Ok(list)
        }
    }

    serde_json::Deserializer::from_str(raw.get())
        .deserialize_map(Collect(path))
        .map_err(|_| wrong(path, "an object", raw))
}

// === impl Field ===

impl<'a> Field<'a> {
    /// Key in lower case.
    pub(super) fn key(&self) -> &str {
        &self.key
    }

    /// Key as written, behind the keys of the objects around it.
    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// A text.
    pub(super) fn text(&self) -> Result<String, PluginError> {
        serde_json::from_str(self.raw.get()).map_err(|_| wrong(&self.path, "a string", self.raw))
    }

    /// True or false.
    pub(super) fn flag(&self) -> Result<bool, PluginError> {
        serde_json::from_str(self.raw.get()).map_err(|_| wrong(&self.path, "true or false", self.raw))
    }

    /// A whole number within the type's limits.
    pub(super) fn number<N: TryFrom<i64>>(&self) -> Result<N, PluginError> {
        let number: i64 = serde_json::from_str(self.raw.get())
            .map_err(|_| wrong(&self.path, "a whole number", self.raw))?;
        N::try_from(number).map_err(|_| PluginError::config(&self.path, format!("{number} is out of range")))
    }

    /// The text of a switch, which people also write as true or false.
    pub(super) fn switch(&self) -> Result<String, PluginError> {
        match serde_json::from_str::<bool>(self.raw.get()) {
            Ok(flag) => Ok(flag.to_string()),
            Err(_) => self.text(),
        }
    }

    /// A list of texts.
    pub(super) fn texts(&self) -> Result<Vec<String>, PluginError> {
        serde_json::from_str(self.raw.get()).map_err(|_| wrong(&self.path, "a list of strings", self.raw))
    }

    /// An object of texts; its keys count as written.
    pub(super) fn text_map(&self) -> Result<BTreeMap<String, String>, PluginError> {
        serde_json::from_str(self.raw.get()).map_err(|_| wrong(&self.path, "an object of strings", self.raw))
    }

    /// The fields of an object.
    pub(super) fn fields(&self) -> Result<Vec<Field<'a>>, PluginError> {
        fields(&self.path, self.raw)
    }

    /// The items of a list.
    pub(super) fn items(&self) -> Result<Vec<Field<'a>>, PluginError> {
        let items: Vec<&'a RawValue> =
            serde_json::from_str(self.raw.get()).map_err(|_| wrong(&self.path, "a list", self.raw))?;
        let item = |(i, raw)| Field { path: format!("{}[{i}]", self.path), key: String::new(), raw };
        Ok(items.into_iter().enumerate().map(item).collect())
    }

    /// Any value.
    pub(super) fn value(&self) -> Result<serde_json::Value, PluginError> {
        serde_json::from_str(self.raw.get()).map_err(|e| PluginError::config(&self.path, e.to_string()))
    }
}

fn wrong(path: &str, wanted: &str, raw: &RawValue) -> PluginError {
    let found = match raw.get().as_bytes().first() {
        Some(b'{') => "an object",
        Some(b'[') => "a list",
        Some(b'"') => "a string",
        Some(b't' | b'f') => "true or false",
        Some(b'n') => "null",
        _ => "a number",
    };
    let found = if wanted == found || (wanted.starts_with("a list") && found == "a list") {
        "one with other contents"
    } else {
        found
    };
    let path = if path.is_empty() { "the configuration" } else { path };
    PluginError::config(path, format!("must be {wanted}, is {found}"))
}
