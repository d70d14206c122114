//! Decoding of objects with exact places of errors.
//!
//! Stores are read leniently: unknown fields are skipped. Input of people is read strictly: every unknown field
//! is listed with its path and the nearest known name, and a number or truth value where a text is wanted counts as
//! the text it was written as (`labels: {stage: 1}`). Field names match as in Go: exactly, else in any case (only
//! when decoding from a [`Value`]).

use std::cell::RefCell;
use std::fmt;

use serde::de::value::StrDeserializer;
use serde::de::{self, DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, SeqAccess, Visitor};
use serde::forward_to_deserialize_any;
use serde_json::{Map, Value};

use crate::kind::Kind;
use crate::registry::AnyResource;
use crate::resource::API_VERSION;

/// Why an object could not be decoded.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// The text is not JSON.
    #[error("invalid JSON: {0}")]
    Syntax(#[source] serde_json::Error),
    /// `kind` or `apiVersion` is missing or not a known one.
    #[error("unknown resource type ({kind}) and/or version ({api_version})")]
    UnknownType {
        /// `kind` as found; empty if absent.
        kind: String,
        /// `apiVersion` as found; empty if absent.
        api_version: String,
    },
    /// This version has no types for the kind.
    #[error("{0} is not served by this version")]
    Unserved(Kind),
    /// A field holds a value of the wrong type.
    #[error("{path}: {reason}")]
    WrongType {
        /// Path of the field, such as `spec.ingress[0].action`; `.` for the whole object.
        path: String,
        /// What is wrong with the value.
        reason: String,
    },
    /// Fields that the kind does not have.
    #[error("unknown field{}: {}", if .0.len() == 1 { "" } else { "s" }, Joined(.0))]
    UnknownFields(Vec<UnknownField>),
}

/// A field that the type does not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownField {
    /// Path of the field, such as `spec.ingress[0].sourc`.
    pub path: String,
    /// The known field of the same struct with the nearest name, if one is near.
    pub suggestion: Option<&'static str>,
}

impl fmt::Display for UnknownField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.suggestion {
            Some(name) => write!(f, "{} (did you mean \"{name}\"?)", self.path),
            None => f.write_str(&self.path),
        }
    }
}

struct Joined<'a>(&'a [UnknownField]);

impl fmt::Display for Joined<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, field) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str(", ")?;
            }
            fmt::Display::fmt(field, f)?;
        }
        Ok(())
    }
}

/// The kind that an object claims to be.
///
/// Errors: `kind` or `apiVersion` is absent, not a string, or not one of ours.
pub fn kind_of(value: &Value) -> Result<Kind, DecodeError> {
    let text = |key| value.get(key).and_then(Value::as_str).unwrap_or_default();
    let (kind, api_version) = (text("kind"), text("apiVersion"));
    match Kind::from_name(kind) {
        Some(found) if api_version == API_VERSION => Ok(found),
        _ => Err(DecodeError::UnknownType { kind: kind.to_owned(), api_version: api_version.to_owned() }),
    }
}

/// Decodes a stored object of `kind`; unknown fields are ignored.
pub fn from_slice(kind: Kind, json: &[u8]) -> Result<AnyResource, DecodeError> {
    let mut reader = serde_json::Deserializer::from_slice(json);
    match AnyResource::decode(kind, &mut reader)? {
        Ok(object) => {
            reader.end().map_err(DecodeError::Syntax)?;
            Ok(object)
        }
        // The slow way finds the path of the fault.
        Err(error) => {
            let value: Value = serde_json::from_slice(json).map_err(DecodeError::Syntax)?;
            from_value(kind, &value).and(Err(DecodeError::Syntax(error)))
        }
    }
}

/// Decodes an object of `kind`; unknown fields are ignored.
pub fn from_value(kind: Kind, value: &Value) -> Result<AnyResource, DecodeError> {
    let tracker = Tracker::default();
    tracker.finish(AnyResource::decode(kind, Node { value, path: Path::Root, tracker: &tracker })?)
}

/// Decodes an object of `kind` that a person wrote; unknown fields are errors.
pub fn from_value_strict(kind: Kind, value: &Value) -> Result<AnyResource, DecodeError> {
    let tracker = Tracker { forgiving: true, ..Tracker::default() };
    let object =
        tracker.finish(AnyResource::decode(kind, Node { value, path: Path::Root, tracker: &tracker })?)?;
    let unknown = tracker.unknown.into_inner();
    if unknown.is_empty() { Ok(object) } else { Err(DecodeError::UnknownFields(unknown)) }
}

/// Decodes any type strictly: as [`from_value_strict`] for types that are not resources.
pub fn strict<T: de::DeserializeOwned>(value: &Value) -> Result<T, DecodeError> {
    let tracker = Tracker { forgiving: true, ..Tracker::default() };
    let object = tracker.finish(T::deserialize(Node { value, path: Path::Root, tracker: &tracker }))?;
    let unknown = tracker.unknown.into_inner();
    if unknown.is_empty() { Ok(object) } else { Err(DecodeError::UnknownFields(unknown)) }
}

/// What decoding notes on its way.
#[derive(Default)]
struct Tracker {
    unknown: RefCell<Vec<UnknownField>>,
    fault: RefCell<Option<String>>,
    /// Take numbers and truth values for texts.
    forgiving: bool,
}

impl Tracker {
    fn finish<T>(&self, result: Result<T, serde_json::Error>) -> Result<T, DecodeError> {
        result.map_err(|error| DecodeError::WrongType {
            path: self.fault.borrow().clone().unwrap_or_else(|| ".".to_owned()),
            reason: plain_words(error.to_string()),
        })
    }
}

/// Names of types as a user of the API knows them.
fn plain_words(reason: String) -> String {
    let Some((found, wanted)) = reason.rsplit_once("expected ") else { return reason };
    let wanted = match wanted {
        "f64" => "a number",
        "i64" | "u64" | "u16" | "u32" => "a whole number",
        "a sequence" => "a list",
        "a boolean" => "true or false",
        other => other,
    };
    let found =
        found.replace("sequence", "list").replace("boolean", "truth value").replace("map,", "object,");
    format!("{found}expected {wanted}")
}

/// A place in the object, linked to its parents.
#[derive(Clone, Copy)]
enum Path<'p> {
    Root,
    Field(&'p Path<'p>, &'p str),
    Item(&'p Path<'p>, usize),
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Path::Root => Ok(()),
            Path::Field(Path::Root, name) => f.write_str(name),
            Path::Field(parent, name) => write!(f, "{parent}.{name}"),
            Path::Item(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

/// A value with its place; the deserializer.
#[derive(Clone, Copy)]
struct Node<'v, 'p> {
    value: &'v Value,
    path: Path<'p>,
    tracker: &'p Tracker,
}

impl<'v> Node<'v, '_> {
    /// Notes the place of the innermost failure.
    fn note<T>(&self, result: Result<T, serde_json::Error>) -> Result<T, serde_json::Error> {
        if result.is_err() {
            let mut fault = self.tracker.fault.borrow_mut();
            if fault.is_none() {
                let path = self.path.to_string();
                *fault = Some(if path.is_empty() { ".".to_owned() } else { path });
            }
        }
        result
    }

    /// The text that a person meant who wrote a number or truth value.
    fn meant_text(&self) -> Option<String> {
        match self.value {
            Value::Bool(value) if self.tracker.forgiving => Some(value.to_string()),
            Value::Number(value) if self.tracker.forgiving => Some(value.to_string()),
            _ => None,
        }
    }

    fn visit_object<V: Visitor<'v>>(
        self,
        object: &'v Map<String, Value>,
        fields: Option<&'static [&'static str]>,
        visitor: V,
    ) -> Result<V::Value, serde_json::Error> {
        self.note(visitor.visit_map(Entries { iter: object.iter(), fields, current: None, node: self }))
    }
}

impl<'v, 'p> Deserializer<'v> for Node<'v, 'p> {
    type Error = serde_json::Error;

    fn deserialize_any<V: Visitor<'v>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        match self.value {
            Value::Object(object) => self.visit_object(object, None, visitor),
            Value::Array(items) => {
                self.note(visitor.visit_seq(Items { iter: items.iter(), next: 0, node: self }))
            }
            scalar => self.note(scalar.deserialize_any(visitor)),
        }
    }

    fn deserialize_option<V: Visitor<'v>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        match self.value {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'v>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_struct<V: Visitor<'v>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        let unexpected = match self.value {
            Value::Object(object) => return self.visit_object(object, Some(fields), visitor),
            Value::Null => {
                let nothing = std::iter::empty::<(&str, &str)>();
                return visitor.visit_map(de::value::MapDeserializer::<_, Self::Error>::new(nothing));
            }
            // A derived visitor would take a list as the fields in order; Go does not.
            Value::Array(_) => de::Unexpected::Seq,
            Value::Bool(value) => de::Unexpected::Bool(*value),
            Value::String(value) => de::Unexpected::Str(value),
            Value::Number(_) => de::Unexpected::Other("number"),
        };
        self.note(Err(de::Error::invalid_type(unexpected, &"an object")))
    }

    fn deserialize_str<V: Visitor<'v>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        match self.meant_text() {
            Some(text) => self.note(visitor.visit_string(text)),
            None => self.deserialize_any(visitor),
        }
    }

    fn deserialize_string<V: Visitor<'v>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'v>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        <W: Visitor<'v>>
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char bytes byte_buf unit unit_struct
        seq tuple tuple_struct map enum identifier
    }
}

struct Entries<'v, 'p> {
    iter: serde_json::map::Iter<'v>,
    /// Known field names, for a struct.
    fields: Option<&'static [&'static str]>,
    current: Option<(&'v str, &'v Value)>,
    node: Node<'v, 'p>,
}

impl<'v> MapAccess<'v> for Entries<'v, '_> {
    type Error = serde_json::Error;

    fn next_key_seed<K: DeserializeSeed<'v>>(&mut self, seed: K) -> Result<Option<K::Value>, Self::Error> {
        for (key, value) in self.iter.by_ref() {
            let Some(fields) = self.fields else {
                self.current = Some((key, value));
                let key: de::value::BorrowedStrDeserializer<'v, Self::Error> =
                    de::value::BorrowedStrDeserializer::new(key);
                return seed.deserialize(key).map(Some);
            };
            let known = fields.iter().find(|f| *f == key);
            match known.or_else(|| fields.iter().find(|f| f.eq_ignore_ascii_case(key))) {
                Some(name) => {
                    self.current = Some((name, value));
                    let key: StrDeserializer<'_, Self::Error> = name.into_deserializer();
                    return seed.deserialize(key).map(Some);
                }
                None => self.node.tracker.unknown.borrow_mut().push(UnknownField {
                    path: Path::Field(&self.node.path, key).to_string(),
                    suggestion: nearest(key, fields),
                }),
            }
        }
        Ok(None)
    }

    fn next_value_seed<T: DeserializeSeed<'v>>(&mut self, seed: T) -> Result<T::Value, Self::Error> {
        let Some((key, value)) = self.current.take() else {
            return Err(de::Error::custom("a value was asked for before its key"));
        };
        let path = Path::Field(&self.node.path, key);
        let node = Node { value, path, tracker: self.node.tracker };
        let result = seed.deserialize(node);
        node.note(result)
    }
}

struct Items<'v, 'p> {
    iter: std::slice::Iter<'v, Value>,
    next: usize,
    node: Node<'v, 'p>,
}

impl<'v> SeqAccess<'v> for Items<'v, '_> {
    type Error = serde_json::Error;

    fn next_element_seed<T: DeserializeSeed<'v>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Self::Error> {
        let Some(value) = self.iter.next() else { return Ok(None) };
        let path = Path::Item(&self.node.path, self.next);
        self.next += 1;
        let node = Node { value, path, tracker: self.node.tracker };
        let result = seed.deserialize(node);
        node.note(result).map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.iter.len())
    }
}

/// The known name nearest to `word`: at most a third of its letters differ.
fn nearest(word: &str, fields: &'static [&'static str]) -> Option<&'static str> {
    let limit = (word.len() / 3).clamp(1, 3);
    fields
        .iter()
        .map(|field| (distance(&word.to_ascii_lowercase(), &field.to_ascii_lowercase()), *field))
        .filter(|(d, _)| *d <= limit)
        .min()
        .map(|(_, field)| field)
}

/// Edits (insert, delete, replace a byte) between two words.
fn distance(a: &str, b: &str) -> usize {
    let b = b.as_bytes();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let above = row[j + 1];
            row[j + 1] = (diagonal + usize::from(x != *y)).min(above + 1).min(row[j] + 1);
            diagonal = above;
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests;
