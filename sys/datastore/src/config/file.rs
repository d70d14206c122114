//! Settings from a document, YAML or JSON, read strictly.
//!
//! Upstream's rules: the first document of the file counts; keys are found in any case; an unknown key, a key that
//! stands twice and a value of the wrong type are errors; only `datastoreType` takes a bare number for a text.

use std::fmt;

use serde::Deserialize;
use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};

use super::{API_VERSION, CalicoApiConfig, FLAGS, KIND, TEXTS};

/// What is wrong with a document.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    /// The text is no YAML, or a key or a value is not what it should be.
    #[error("failed to parse config as YAML/JSON: {}{reason}", place(*.line, *.column))]
    Parse {
        /// Line, from 1; 0 if unknown.
        line: u64,
        /// Column, from 1; 0 if unknown.
        column: u64,
        /// What is wrong, with the key.
        reason: String,
    },
    /// The document is of another version.
    #[error("invalid config file: unknown APIVersion '{0}'")]
    ApiVersion(String),
    /// The document is of another kind.
    #[error("invalid config file: expected kind '{KIND}', got '{0}'")]
    Kind(String),
}

fn place(line: u64, column: u64) -> String {
    if line == 0 { String::new() } else { format!("line {line}, column {column}: ") }
}

pub(super) fn parse(text: &str) -> Result<CalicoApiConfig, FileError> {
    let mut bytes = text.as_bytes();
    let first = serde_saphyr::read::<_, Document>(&mut bytes).next();
    let document = match first {
        None => Document::default(),
        Some(Ok(document)) => document,
        Some(Err(error)) => {
            let (line, column) = error.location().map_or((0, 0), |at| (at.line(), at.column()));
            // The place stands apart from the reason.
            let text = error.without_snippet().to_string();
            let reason = text.split(" at line ").next().unwrap_or_default().trim().to_owned();
            return Err(FileError::Parse { line, column, reason });
        }
    };
    if document.api_version != API_VERSION {
        return Err(FileError::ApiVersion(document.api_version));
    }
    if document.kind != KIND {
        return Err(FileError::Kind(document.kind));
    }
    Ok(document.spec)
}

/// The document.
#[derive(Default)]
struct Document {
    api_version: String,
    kind: String,
    spec: CalicoApiConfig,
}

impl<'de> Deserialize<'de> for Document {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut document = Self::default();
        deserializer.deserialize_map(Object { path: "", fields: &mut document })?;
        Ok(document)
    }
}

/// Something with keys.
trait Fields {
    /// Reads the value of `key`; false if there is no such key.
    fn read<'de, A: MapAccess<'de>>(&mut self, key: &str, path: &str, map: &mut A) -> Result<bool, A::Error>;
}

/// Reads a mapping into `fields`.
struct Object<'a, F> {
    path: &'a str,
    fields: &'a mut F,
}

impl<'de, F: Fields> DeserializeSeed<'de> for Object<'_, F> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, F: Fields> Visitor<'de> for Object<'_, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.path {
            "" => f.write_str("a document with keys"),
            path => write!(f, "keys below {path}"),
        }
    }

    fn visit_unit<E: de::Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            let path = match self.path {
                "" => key.clone(),
                parent => format!("{parent}.{key}"),
            };
            if !self.fields.read(&key, &path, &mut map)? {
                return Err(de::Error::custom(format_args!("unknown field {path:?}")));
            }
        }
        Ok(())
    }
}

impl Fields for Document {
    fn read<'de, A: MapAccess<'de>>(&mut self, key: &str, path: &str, map: &mut A) -> Result<bool, A::Error> {
        match key.to_ascii_lowercase().as_str() {
            "apiversion" => {
                map.next_value_seed(Text { path, numbers: false, into: &mut self.api_version })?
            }
            "kind" => map.next_value_seed(Text { path, numbers: false, into: &mut self.kind })?,
            "metadata" => map.next_value_seed(Object { path, fields: &mut Metadata })?,
            "spec" => map.next_value_seed(Object { path, fields: &mut self.spec })?,
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// Metadata is checked for its keys; nothing uses it.
struct Metadata;

impl Fields for Metadata {
    fn read<'de, A: MapAccess<'de>>(&mut self, key: &str, _: &str, map: &mut A) -> Result<bool, A::Error> {
        const KEYS: [&str; 15] = [
            "name",
            "generateName",
            "namespace",
            "selfLink",
            "uid",
            "resourceVersion",
            "generation",
            "creationTimestamp",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "labels",
            "annotations",
            "ownerReferences",
            "finalizers",
            "managedFields",
        ];
        let known = KEYS.iter().any(|known| known.eq_ignore_ascii_case(key));
        if known {
            map.next_value::<IgnoredAny>()?;
        }
        Ok(known)
    }
}

impl Fields for CalicoApiConfig {
    fn read<'de, A: MapAccess<'de>>(&mut self, key: &str, path: &str, map: &mut A) -> Result<bool, A::Error> {
        if let Some(setting) = TEXTS.iter().find(|setting| setting.key.eq_ignore_ascii_case(key)) {
            let numbers = setting.key == "datastoreType";
            map.next_value_seed(Text { path, numbers, into: (setting.field)(self) })?;
        } else if let Some(setting) = FLAGS.iter().find(|setting| setting.key.eq_ignore_ascii_case(key)) {
            map.next_value_seed(Flag { path, into: (setting.field)(self) })?;
        } else if key.eq_ignore_ascii_case("k8sClientQPS") {
            map.next_value_seed(Float { path, into: &mut self.k8s_client_qps })?;
        } else if key.eq_ignore_ascii_case("k8sClientBurst") {
            map.next_value_seed(Int { path, into: &mut self.k8s_client_burst })?;
        } else {
            return Ok(false);
        }
        Ok(true)
    }
}

/// Makes a type that reads one value and takes nothing for something else.
macro_rules! scalar {
    ($name:ident { $($field:ident: $type:ty),* } as $expected:literal { $($body:tt)* }) => {
        struct $name<'a> {
            path: &'a str,
            $($field: $type,)*
        }

        impl<'de> DeserializeSeed<'de> for $name<'_> {
            type Value = ();

            fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
                deserializer.deserialize_any(self)
            }
        }

        impl<'de> Visitor<'de> for $name<'_> {
            type Value = ();

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($expected, " for {}"), self.path)
            }

            fn visit_unit<E: de::Error>(self) -> Result<(), E> {
                Ok(())
            }

            $($body)*
        }
    };
}

scalar!(Text { numbers: bool, into: &'a mut String } as "a text" {
    fn visit_str<E: de::Error>(self, value: &str) -> Result<(), E> {
        value.clone_into(self.into);
        Ok(())
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<(), E> {
        if !self.numbers {
            return Err(de::Error::invalid_type(de::Unexpected::Signed(value), &self));
        }
        *self.into = value.to_string();
        Ok(())
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<(), E> {
        if !self.numbers {
            return Err(de::Error::invalid_type(de::Unexpected::Unsigned(value), &self));
        }
        *self.into = value.to_string();
        Ok(())
    }
});

scalar!(Flag { into: &'a mut bool } as "true or false" {
    fn visit_bool<E: de::Error>(self, value: bool) -> Result<(), E> {
        *self.into = value;
        Ok(())
    }
});

scalar!(Float { into: &'a mut f32 } as "a number" {
    fn visit_f64<E: de::Error>(self, value: f64) -> Result<(), E> {
        // As precise as upstream's field.
        *self.into = value as f32;
        Ok(())
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<(), E> {
        *self.into = value as f32;
        Ok(())
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<(), E> {
        *self.into = value as f32;
        Ok(())
    }
});

scalar!(Int { into: &'a mut i64 } as "a whole number" {
    fn visit_i64<E: de::Error>(self, value: i64) -> Result<(), E> {
        *self.into = value;
        Ok(())
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<(), E> {
        match i64::try_from(value) {
            Ok(value) => *self.into = value,
            Err(_) => return Err(de::Error::invalid_value(de::Unexpected::Unsigned(value), &self)),
        }
        Ok(())
    }
});
