//! From files to objects.
//!
//! Owns: finding the files that `-f` names (files, directories, standard input), cutting them into documents
//! (YAML, JSON, lists of either kind) and decoding each document strictly. In: paths. Out: [`Item`]s in order, with
//! the place each came from.
//!
//! Invariant: everything is read and decoded before anything is done with the first object, so that input that
//! does not parse changes nothing.

use std::fmt;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use calico_api::decode::{self, DecodeError};
use calico_api::k8s::{self, NETWORKING_V1};
use calico_api::{API_VERSION, AnyResource, Kind};
use calico_model::kubernetes::{self, StoredPolicyError};
use serde_json::Value;

use crate::kinds;

mod scalar;
mod yaml;

pub(crate) use scalar::{Resolved, resolve};
use yaml::{Position, YamlDocument, YamlError};

#[cfg(test)]
mod tests;

/// Endings of the files that are read in a directory.
const ENDINGS: [&str; 3] = ["yaml", "yml", "json"];

/// An object to act on.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Item {
    /// The object.
    pub(crate) object: AnyResource,
    /// Where it came from.
    pub(crate) origin: Origin,
}

/// Where an object came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Kind and name on the command line.
    Words,
    /// A document.
    Document,
    /// A document of `networking.k8s.io/v1`, already translated.
    Kubernetes,
}

/// Where in the input something stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    /// File, or `-` for standard input.
    pub(crate) file: Arc<str>,
    /// Line and column, from 1.
    pub(crate) position: (usize, usize),
    /// Number of the document in the file, from 1.
    pub(crate) document: usize,
    /// Kind and name of the object, as far as known.
    pub(crate) object: String,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (line, column) = self.position;
        write!(f, "{}:{line}:{column} (document {}", self.file, self.document)?;
        if !self.object.is_empty() {
            write!(f, ", {}", self.object)?;
        }
        f.write_str(")")
    }
}

/// Why input was refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InputError {
    /// A file or directory cannot be read.
    #[error("open {}: {}", .path.display(), system_words(.error))]
    Open {
        /// Path.
        path: PathBuf,
        /// The system's report.
        error: io::Error,
    },
    /// A file is no text.
    #[error("{file}: not UTF-8 text (line {line})")]
    NotText {
        /// File.
        file: String,
        /// Line of the first bad byte.
        line: usize,
    },
    /// A document does not say what it should.
    #[error("{place}: {fault}")]
    Document {
        /// Where.
        place: Box<Place>,
        /// What is wrong.
        fault: Box<Fault>,
    },
    /// There are no objects.
    #[error("no resources specified{}", in_place(.place))]
    Empty {
        /// ` in file x`, ` in directory x`, or nothing.
        place: String,
    },
}

/// What is wrong with a document.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    /// It is not YAML or JSON as it should be.
    #[error(transparent)]
    Yaml(YamlError),
    /// It is a list of things or a single word.
    #[error("not an object with kind, apiVersion and metadata")]
    NotAnObject,
    /// A list without items.
    #[error("a list has its objects under \"items\"")]
    NoItems,
    /// Unknown fields.
    #[error("field in document is not recognized or is in the wrong location: {0}")]
    UnknownFields(String),
    /// Unknown kind, wrong type of a field.
    #[error(transparent)]
    Decode(DecodeError),
    /// A Kubernetes policy that cannot be translated.
    #[error(transparent)]
    Policy(StoredPolicyError),
}

// === impl InputError ===

impl InputError {
    fn document(place: Place, fault: Fault) -> Self {
        Self::Document { place: Box::new(place), fault: Box::new(fault) }
    }
}

fn in_place(place: &str) -> String {
    if place.is_empty() { String::new() } else { format!(" in {place}") }
}

/// A report of the system in Go's spelling: lower case, without a number.
pub(crate) fn system_words(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut letters = text.chars();
    letters.next().map(|c| c.to_lowercase().chain(letters).collect()).unwrap_or_default()
}

/// Which files to read and how.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sources<'a> {
    /// Files, directories, or `-`.
    pub(crate) names: &'a [String],
    /// Whether directories are read with everything below them.
    pub(crate) recursive: bool,
    /// Whether no objects is no error.
    pub(crate) skip_empty: bool,
}

// === impl Sources ===

impl Sources<'_> {
    /// Reads and decodes everything.
    pub(crate) fn read(&self) -> Result<Vec<Item>, InputError> {
        let mut items = Vec::new();
        for name in self.names {
            if name == "-" {
                let mut bytes = Vec::new();
                let fail = |error| InputError::Open { path: "-".into(), error };
                io::stdin().lock().read_to_end(&mut bytes).map_err(fail)?;
                self.take("-", bytes, &mut items)?;
                continue;
            }
            let path = Path::new(name);
            let fail = |error| InputError::Open { path: path.to_owned(), error };
            if !path.metadata().map_err(fail)?.is_dir() {
                self.take(name, std::fs::read(path).map_err(fail)?, &mut items)?;
                continue;
            }
            let mut files = Vec::new();
            list(path, self.recursive, &mut files)?;
            if files.is_empty() && !self.skip_empty {
                return Err(InputError::Empty { place: format!("directory {name}") });
            }
            for file in files {
                let bytes =
                    std::fs::read(&file).map_err(|error| InputError::Open { path: file.clone(), error })?;
                self.take(&file.to_string_lossy(), bytes, &mut items)?;
            }
        }
        Ok(items)
    }

    fn take(&self, file: &str, bytes: Vec<u8>, items: &mut Vec<Item>) -> Result<(), InputError> {
        let text = String::from_utf8(bytes).map_err(|error| {
            let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
            let line = good.iter().filter(|b| **b == b'\n').count() + 1;
            InputError::NotText { file: file.to_owned(), line }
        })?;
        let found = decode_text(file, &text)?;
        if found.is_empty() && !self.skip_empty {
            return Err(InputError::Empty { place: format!("file {file}") });
        }
        items.extend(found);
        Ok(())
    }
}

/// The files of a directory that hold objects, sorted.
fn list(directory: &Path, recursive: bool, files: &mut Vec<PathBuf>) -> Result<(), InputError> {
    let fail = |error| InputError::Open { path: directory.to_owned(), error };
    let entries = std::fs::read_dir(directory).map_err(fail)?;
    let mut paths =
        entries.map(|entry| entry.map(|e| e.path())).collect::<Result<Vec<_>, _>>().map_err(fail)?;
    paths.sort();
    for path in paths {
        // A link to a directory is not followed: it may lead back here.
        if path.symlink_metadata().is_ok_and(|meta| meta.is_dir()) {
            if recursive {
                list(&path, recursive, files)?;
            }
        } else if path.extension().and_then(|e| e.to_str()).is_some_and(|e| ENDINGS.contains(&e)) {
            files.push(path);
        }
    }
    Ok(())
}

/// The objects of a text; `file` names it in errors.
pub(crate) fn decode_text(file: &str, text: &str) -> Result<Vec<Item>, InputError> {
    let file: Arc<str> = file.into();
    let documents = yaml::read(text).map_err(|error| {
        let place = Place {
            file: Arc::clone(&file),
            position: (error.position.line, error.position.column),
            document: error.document,
            object: String::new(),
        };
        InputError::document(place, Fault::Yaml(error))
    })?;
    let mut items = Vec::new();
    for document in documents {
        if document.value.is_null() {
            continue;
        }
        let context = Context { file: &file, text, document: &document };
        context.take(&document.value, "", None, &mut items)?;
    }
    Ok(items)
}

/// A document while it is being decoded.
struct Context<'a> {
    file: &'a Arc<str>,
    text: &'a str,
    document: &'a YamlDocument,
}

// === impl Context ===

impl Context<'_> {
    /// Decodes a value of the document: an object, a list of objects, or an array. `path` leads to the value, and
    /// `outer` is the type that the items of a typed list have.
    fn take(
        &self,
        value: &Value,
        path: &str,
        outer: Option<(&str, &str)>,
        items: &mut Vec<Item>,
    ) -> Result<(), InputError> {
        if let Value::Array(elements) = value {
            return self.take_all(elements, path, None, items);
        }
        let Value::Object(object) = value else {
            return Err(self.fault(value, path, "", Fault::NotAnObject));
        };
        let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default();
        let (mut kind, mut version) = (text("kind"), text("apiVersion"));
        if let (true, Some((outer_kind, outer_version))) = (kind.is_empty(), outer) {
            kind = outer_kind;
            version = if version.is_empty() { outer_version } else { version };
        }
        if let Some(inner) = kind.strip_suffix("List")
            && (version == API_VERSION || version == NETWORKING_V1 || (inner.is_empty() && version == "v1"))
        {
            return match object.get("items") {
                Some(Value::Array(elements)) => {
                    let outer = (!inner.is_empty()).then_some((inner, version));
                    self.take_all(elements, &joined(path, "items"), outer, items)
                }
                Some(Value::Null) => Ok(()),
                _ => Err(self.fault(value, path, "", Fault::NoItems)),
            };
        }
        items.push(self.object(value, path, kind, version)?);
        Ok(())
    }

    fn take_all(
        &self,
        elements: &[Value],
        path: &str,
        outer: Option<(&str, &str)>,
        items: &mut Vec<Item>,
    ) -> Result<(), InputError> {
        for (i, element) in elements.iter().enumerate() {
            self.take(element, &format!("{path}[{i}]"), outer, items)?;
        }
        Ok(())
    }

    fn object(&self, value: &Value, path: &str, kind: &str, version: &str) -> Result<Item, InputError> {
        if kind == "NetworkPolicy" && version == NETWORKING_V1 {
            let policy: k8s::NetworkPolicy =
                decode::strict(value).map_err(|e| self.refused(value, path, e))?;
            let object = kubernetes::stored_policy(&policy)
                .map_err(|error| self.fault(value, path, "", Fault::Policy(error)))?;
            return Ok(Item { object: object.into(), origin: Origin::Kubernetes });
        }
        let known = Kind::from_name(kind).filter(|k| version == API_VERSION && kinds::is_known(*k));
        let object = match known {
            Some(kind) => AnyResource::from_value_strict(kind, value),
            None => Err(DecodeError::UnknownType { kind: kind.to_owned(), api_version: version.to_owned() }),
        };
        let object = object.map_err(|error| self.refused(value, path, error))?;
        Ok(Item { object, origin: Origin::Document })
    }

    fn refused(&self, value: &Value, path: &str, error: DecodeError) -> InputError {
        match error {
            DecodeError::UnknownFields(fields) => {
                let at = fields.first().map(|field| field.path.clone()).unwrap_or_default();
                let names: Vec<String> = fields.iter().map(ToString::to_string).collect();
                self.fault(value, path, &at, Fault::UnknownFields(names.join(", ")))
            }
            DecodeError::WrongType { path: ref at, .. } => {
                let at = at.clone();
                self.fault(value, path, at.trim_start_matches('.'), Fault::Decode(error))
            }
            error => self.fault(value, path, "kind", Fault::Decode(error)),
        }
    }

    /// An error about the field `field` of the object `value`, which stands at `path`.
    fn fault(&self, value: &Value, path: &str, field: &str, fault: Fault) -> InputError {
        let wanted = if field.is_empty() { path.to_owned() } else { joined(path, field) };
        let found = |path: &str| yaml::locate(self.text, self.document.number, path);
        let position: Position = found(&wanted).or_else(|| found(path)).unwrap_or(self.document.position);
        let place = Place {
            file: Arc::clone(self.file),
            position: (position.line, position.column),
            document: self.document.number,
            object: describe(value),
        };
        InputError::document(place, fault)
    }
}

fn joined(path: &str, field: &str) -> String {
    if path.is_empty() { field.to_owned() } else { format!("{path}.{field}") }
}

/// `Kind namespace/name` of what may be an object, as far as it says.
fn describe(value: &Value) -> String {
    let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
    let kind = text(value.get("kind"));
    let meta = value.get("metadata");
    let field = |name: &str| text(meta.and_then(|meta| meta.get(name)));
    let name = match (field("namespace"), field("name")) {
        (namespace, name) if namespace.is_empty() => name,
        (namespace, name) => format!("{namespace}/{name}"),
    };
    [kind, name].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
}

/// The values of a YAML stream; tests of the writer use it.
#[cfg(test)]
pub(crate) fn read_yaml(text: &str) -> Result<Vec<Value>, YamlError> {
    Ok(yaml::read(text)?.into_iter().map(|document| document.value).collect())
}
