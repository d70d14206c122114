//! YAML streams as JSON values.
//!
//! In: the text of a file, YAML or JSON. Out: its documents in order, each as a JSON value with the place where it
//! begins. The words of YAML 1.1 count (`yes` is true), anchors, aliases and merge keys work, keys become texts,
//! and a key that stands twice in one mapping is an error. Every error has its line and column.
//!
//! Invariant: work and memory grow with the input only; aliases cannot blow a small file up.

use std::collections::{BTreeMap, HashMap};

use granit_parser::{ErrorKind, Event, Marker, Options, Parser, ScalarStyle, Span, StrInput, Tag};
use serde_json::{Map, Value};

use super::scalar;

/// Most values that aliases may add to one stream.
const MAX_COPIED: usize = 200_000;

/// Deepest nesting.
const MAX_DEPTH: usize = 128;

/// A place in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position {
    /// Line, from 1.
    pub(crate) line: usize,
    /// Column, from 1.
    pub(crate) column: usize,
}

/// One document of a stream.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct YamlDocument {
    /// Its content; null if it holds nothing but comments.
    pub(crate) value: Value,
    /// Number in the stream, from 1.
    pub(crate) number: usize,
    /// Where its content begins.
    pub(crate) position: Position,
}

/// What is wrong with a stream, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{fault}")]
pub(crate) struct YamlError {
    /// Where.
    pub(crate) position: Position,
    /// In which document, from 1.
    pub(crate) document: usize,
    /// What.
    pub(crate) fault: YamlFault,
}

/// What can be wrong with a stream.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum YamlFault {
    /// The parser's report.
    #[error("broken YAML: {0}")]
    Syntax(String),
    /// A key stands twice in one mapping.
    #[error("key \"{key}\" is set twice (first in line {first})")]
    DuplicateKey {
        /// Key.
        key: String,
        /// Line of its first use.
        first: usize,
    },
    /// A list or mapping as key.
    #[error("a key must be a single word")]
    ComplexKey,
    /// A number that JSON cannot hold.
    #[error("{0} is no number that can be stored")]
    NotFinite(String),
    /// A tag that says the word is something that it is not, or a tag that means nothing here.
    #[error("the tag {tag} does not fit here")]
    Tag {
        /// Tag.
        tag: String,
    },
    /// A merge key with something else than a mapping.
    #[error("only mappings can be merged with \"<<\"")]
    Merge,
    /// An anchor used inside itself.
    #[error("an alias stands inside of what it stands for")]
    Recursive,
    /// Aliases that multiply.
    #[error("aliases make the document too large")]
    TooLarge,
    /// Nesting without end.
    #[error("nested more than {MAX_DEPTH} deep")]
    TooDeep,
}

/// All documents of a stream.
pub(crate) fn read(text: &str) -> Result<Vec<YamlDocument>, YamlError> {
    let mut reader = Reader::new(text, None);
    let mut documents = Vec::new();
    while let Some(document) = reader.document()? {
        documents.push(document);
    }
    Ok(documents)
}

/// Where the value at `path` (as in `spec.ingress[0].action`) of a document stands. Slow: made for the one error
/// that is told.
pub(crate) fn locate(text: &str, document: usize, path: &str) -> Option<Position> {
    let mut reader = Reader::new(text, Some(Vec::new()));
    while let Ok(Some(found)) = reader.document() {
        let places = reader.places.replace(Vec::new()).unwrap_or_default();
        if found.number == document {
            return places
                .into_iter()
                .find(|(at, _)| at.eq_ignore_ascii_case(path))
                .map(|(_, position)| position);
        }
    }
    None
}

struct Reader<'t> {
    parser: Parser<'t, StrInput<'t>>,
    number: usize,
    /// Anchored values of this document with their sizes; `None` while still being read.
    anchors: HashMap<usize, Option<(Value, usize)>>,
    copied: usize,
    /// Paths and places of the document's values, if wanted.
    places: Option<Vec<(String, Position)>>,
}

/// A value, the number of values in it, and where it stands.
struct Node {
    value: Value,
    size: usize,
    position: Position,
    /// A plain or quoted word, if it is one: keys need it.
    word: Option<Word>,
}

enum Word {
    Plain(String),
    Quoted,
}

impl<'t> Reader<'t> {
    fn new(text: &'t str, places: Option<Vec<(String, Position)>>) -> Self {
        let options = granit_parser::options! { emit_comments: false };
        let _: &Options = &options;
        Self {
            parser: Parser::new_from_str_with_options(text, options),
            number: 0,
            anchors: HashMap::new(),
            copied: 0,
            places,
        }
    }

    fn fail(&self, position: Position, fault: YamlFault) -> YamlError {
        YamlError { position, document: self.number.max(1), fault }
    }

    fn next(&mut self) -> Result<Option<(Event<'t>, Span)>, YamlError> {
        match self.parser.next() {
            None => Ok(None),
            Some(Ok(event)) => Ok(Some(event)),
            Some(Err(error)) => {
                let fault = match error.kind() {
                    ErrorKind::RecursionLimitExceeded => YamlFault::TooDeep,
                    _ => YamlFault::Syntax(error.info()),
                };
                Err(self.fail(place(error.marker()), fault))
            }
        }
    }

    fn document(&mut self) -> Result<Option<YamlDocument>, YamlError> {
        loop {
            let Some((event, span)) = self.next()? else { return Ok(None) };
            match event {
                Event::StreamEnd => return Ok(None),
                Event::DocumentStart(..) => {
                    self.number += 1;
                    self.anchors.clear();
                    let start = place(&span.start);
                    let Some((event, span)) = self.next()? else { return Ok(None) };
                    let node = self.node(event, &span, &Path::Root, 0)?;
                    let position = if node.value.is_null() { start } else { node.position };
                    return Ok(Some(YamlDocument { value: node.value, number: self.number, position }));
                }
                _ => {}
            }
        }
    }

    fn node(
        &mut self,
        event: Event<'t>,
        span: &Span,
        path: &Path<'_>,
        depth: usize,
    ) -> Result<Node, YamlError> {
        let position = place(&span.start);
        if depth > MAX_DEPTH {
            return Err(self.fail(position, YamlFault::TooDeep));
        }
        if let Some(places) = &mut self.places {
            places.push((path.to_string(), position));
        }
        let (anchor, node) = match event {
            Event::Scalar(text, style, anchor, tag) => {
                let plain = style == ScalarStyle::Plain;
                let value = self.scalar(&text, plain, tag.as_deref(), position)?;
                let word = if plain { Word::Plain(text.into_owned()) } else { Word::Quoted };
                (anchor, Node { value, size: 1, position, word: Some(word) })
            }
            Event::SequenceStart(_, anchor, tag) => {
                self.collection_tag(tag.as_deref(), "seq", position)?;
                self.begin(anchor);
                let (value, size) = self.sequence(path, depth)?;
                (anchor, Node { value, size, position, word: None })
            }
            Event::MappingStart(_, anchor, tag) => {
                self.collection_tag(tag.as_deref(), "map", position)?;
                self.begin(anchor);
                let (value, size) = self.mapping(path, depth)?;
                (anchor, Node { value, size, position, word: None })
            }
            Event::Alias(anchor) => {
                let found = match self.anchors.get(&anchor) {
                    Some(Some(found)) => found.clone(),
                    Some(None) => return Err(self.fail(position, YamlFault::Recursive)),
                    None => return Err(self.fail(position, YamlFault::Syntax("unknown anchor".into()))),
                };
                self.copied += found.1;
                if self.copied > MAX_COPIED {
                    return Err(self.fail(position, YamlFault::TooLarge));
                }
                return Ok(Node { value: found.0, size: found.1, position, word: Some(Word::Quoted) });
            }
            _ => (0, Node { value: Value::Null, size: 1, position, word: None }),
        };
        if anchor != 0 {
            self.anchors.insert(anchor, Some((node.value.clone(), node.size)));
        }
        Ok(node)
    }

    fn begin(&mut self, anchor: usize) {
        if anchor != 0 {
            self.anchors.insert(anchor, None);
        }
    }

    fn sequence(&mut self, path: &Path<'_>, depth: usize) -> Result<(Value, usize), YamlError> {
        let mut items = Vec::new();
        let mut size = 1;
        while let Some((event, span)) = self.next()? {
            if matches!(event, Event::SequenceEnd) {
                break;
            }
            let node = self.node(event, &span, &Path::Item(path, items.len()), depth + 1)?;
            size += node.size;
            items.push(node.value);
        }
        Ok((Value::Array(items), size))
    }

    fn mapping(&mut self, path: &Path<'_>, depth: usize) -> Result<(Value, usize), YamlError> {
        let mut entries = Map::new();
        let mut lines: BTreeMap<String, usize> = BTreeMap::new();
        let mut merged = Vec::new();
        let mut size = 1;
        while let Some((event, span)) = self.next()? {
            if matches!(event, Event::MappingEnd) {
                break;
            }
            let places = self.places.take();
            let key = self.node(event, &span, &Path::Root, depth + 1);
            self.places = places;
            let key = key?;
            let Some((event, span)) = self.next()? else { break };
            if matches!(&key.word, Some(Word::Plain(word)) if word == "<<") {
                let node = self.node(event, &span, &Path::Field(path, "<<"), depth + 1)?;
                size += node.size;
                merged.push((node.value, node.position));
                continue;
            }
            let name = self.key(&key)?;
            let node = self.node(event, &span, &Path::Field(path, &name), depth + 1)?;
            // The key is what an error about the field points at.
            if let Some(places) = &mut self.places {
                let own = Path::Field(path, &name).to_string();
                if let Some(entry) = places.iter_mut().rev().find(|(at, _)| *at == own) {
                    entry.1 = key.position;
                }
            }
            size += node.size;
            if let Some(first) = lines.insert(name.clone(), key.position.line) {
                return Err(self.fail(key.position, YamlFault::DuplicateKey { key: name, first }));
            }
            entries.insert(name, node.value);
        }
        for (value, position) in merged {
            let sources = match value {
                Value::Array(items) => items,
                single => vec![single],
            };
            for source in sources {
                let Value::Object(source) = source else { return Err(self.fail(position, YamlFault::Merge)) };
                for (name, value) in source {
                    entries.entry(name).or_insert(value);
                }
            }
        }
        Ok((Value::Object(entries), size))
    }

    /// The text of a key: numbers and truth values as JSON writes them.
    fn key(&self, key: &Node) -> Result<String, YamlError> {
        match (&key.value, &key.word) {
            (Value::String(text), _) => Ok(text.clone()),
            (Value::Bool(value), _) => Ok(value.to_string()),
            (Value::Number(number), _) => Ok(number.to_string()),
            (Value::Null, Some(_)) => Ok("null".to_owned()),
            _ => Err(self.fail(key.position, YamlFault::ComplexKey)),
        }
    }

    fn scalar(&self, text: &str, plain: bool, tag: Option<&Tag>, at: Position) -> Result<Value, YamlError> {
        let Some(tag) = tag else {
            if !plain {
                return Ok(Value::String(text.to_owned()));
            }
            return scalar::value(text).ok_or_else(|| self.fail(at, YamlFault::NotFinite(text.to_owned())));
        };
        let value = match (tag.core_suffix(), tag.handle(), tag.suffix()) {
            (Some("str"), ..) => Some(Value::String(text.to_owned())),
            (Some("int"), ..) => scalar::value(text).filter(|v| v.is_i64() || v.is_u64()),
            (Some("float"), ..) => scalar::value(text).filter(Value::is_number),
            (Some("bool"), ..) => scalar::value(text).filter(Value::is_boolean),
            (Some("null"), ..) => scalar::value(text).filter(Value::is_null),
            // The tag that only says "not plain".
            (None, "!" | "", "" | "!") => Some(Value::String(text.to_owned())),
            (None, "tag:yaml.org,2002:", "timestamp") => Some(Value::String(text.to_owned())),
            _ => None,
        };
        value.ok_or_else(|| {
            self.fail(at, YamlFault::Tag { tag: format!("{}{}", tag.original_handle(), tag.suffix()) })
        })
    }

    fn collection_tag(&self, tag: Option<&Tag>, fits: &str, at: Position) -> Result<(), YamlError> {
        match tag {
            Some(tag) if tag.core_suffix() != Some(fits) => {
                Err(self
                    .fail(at, YamlFault::Tag { tag: format!("{}{}", tag.original_handle(), tag.suffix()) }))
            }
            _ => Ok(()),
        }
    }
}

fn place(marker: &Marker) -> Position {
    Position { line: marker.line().max(1), column: marker.col() + 1 }
}

/// A place in a document, linked to its parents.
enum Path<'p> {
    Root,
    Field(&'p Path<'p>, &'p str),
    Item(&'p Path<'p>, usize),
}

impl std::fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Field(Self::Root, name) => f.write_str(name),
            Self::Field(parent, name) => write!(f, "{parent}.{name}"),
            Self::Item(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn values(text: &str) -> Vec<Value> {
        read(text).unwrap().into_iter().map(|d| d.value).collect()
    }

    fn error(text: &str) -> (usize, usize, usize, String) {
        let e = read(text).unwrap_err();
        (e.document, e.position.line, e.position.column, e.to_string())
    }

    #[test]
    fn streams_become_values() {
        for (text, want) in [
            ("", vec![]),
            ("# only a comment\n", vec![]),
            ("a: 1\n---\nb: [x, y, \"y\"]\n", vec![json!({"a": 1}), json!({"b": ["x", true, "y"]})]),
            (
                "---\na: 1\n---\n---\nb: 2\n---\n# end\n",
                vec![json!({"a": 1}), json!(null), json!({"b": 2}), json!(null)],
            ),
            ("{\"a\": [1, 2.5, null, \"x\\u0041\"]}", vec![json!({"a": [1, 2.5, null, "xA"]})]),
            (
                "a: &x {p: 1}\nb: *x\nc: {<<: *x, q: 2, p: 3}\n",
                vec![json!({"a": {"p": 1}, "b": {"p": 1}, "c": {"p": 3, "q": 2}})],
            ),
            (
                "a: &x {p: 1}\nb: &y {p: 2, r: 4}\nc:\n  <<: [*x, *y]\n",
                vec![json!({"a": {"p": 1}, "b": {"p": 2, "r": 4}, "c": {"p": 1, "r": 4}})],
            ),
            (
                "1: a\nyes: b\n~: c\n\"yes\": d\n",
                vec![json!({"1": "a", "true": "b", "null": "c", "yes": "d"})],
            ),
            (
                "t: 2026-11-30\nm: 0777\ns: !!str 5\ni: !!int \"5\"\n",
                vec![json!({"t": "2026-11-30", "m": 511, "s": "5", "i": 5})],
            ),
            ("l: |\n  one\n  two\nf: >-\n  one\n  two\n", vec![json!({"l": "one\ntwo\n", "f": "one two"})]),
            ("a:\r\n  b: 1\r\n", vec![json!({"a": {"b": 1}})]),
            ("\u{feff}a: 1\n", vec![json!({"a": 1})]),
        ] {
            assert_eq!(values(text), want, "{text:?}");
        }
    }

    #[test]
    fn faults_have_their_place() {
        let (document, line, _, text) = error("a: [");
        assert_eq!((document, line), (1, 1), "{text}");
        let (document, line, _, text) = error("a: 1\n---\nkind:\tX\n\tb: c\n");
        assert_eq!((document, line), (2, 3), "{text}");
        let (document, line, column, text) = error("a: 1\n---\nm:\n  k: 1\n  j: 2\n  k: 3\n");
        assert_eq!((document, line, column), (2, 6, 3));
        assert_eq!(text, "key \"k\" is set twice (first in line 4)");
        for (text, want) in [
            ("? [a]\n: b\n", "a key must be a single word"),
            ("a: .inf\n", ".inf is no number that can be stored"),
            ("a: !!int x\n", "the tag !!int does not fit here"),
            ("a: !own x\n", "the tag !own does not fit here"),
            ("a: {<<: 5}\n", "only mappings can be merged with \"<<\""),
            ("a: &x [*x]\n", "an alias stands inside of what it stands for"),
        ] {
            assert_eq!(error(text).3, want, "{text:?}");
        }
        assert!(error("a: *gone\n").3.starts_with("broken YAML: "));
        assert!(read(&"[".repeat(5000)).is_err() && read(&"- ".repeat(5000)).is_err());
    }

    #[test]
    fn aliases_cannot_blow_up() {
        let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for i in 1..12 {
            let refs = vec![format!("*a{}", i - 1); 10].join(", ");
            text.push_str(&format!("a{i}: &a{i} [{refs}]\n"));
        }
        assert_eq!(error(&text).3, "aliases make the document too large");
    }

    #[test]
    fn values_are_found_again() {
        let text = "a: 1\n---\nspec:\n  list:\n  - x: 1\n    Why: 2\n  - z: 3\n";
        for (path, want) in [
            ("spec.list[0].why", Some((6, 5))),
            ("spec.list[1]", Some((7, 5))),
            ("spec", Some((3, 1))),
            ("no", None),
        ] {
            let found = locate(text, 2, path).map(|p| (p.line, p.column));
            assert_eq!(found, want, "{path}");
        }
    }
}
