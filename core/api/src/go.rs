//! How Go's encoder treats values, as helpers and macros for the types of this crate.
//!
//! Invariants: every field accepts `null` as "absent"; a field is left out of the output only where upstream's
//! declaration says so; an enumeration keeps words it does not know.

use serde::{Deserialize, Deserializer};

/// True for the default value: what Go's `omitempty` and `omitzero` leave out for the types used here.
pub fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Decodes a field, taking `null` for the default value.
pub fn nullable<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

/// Declares a struct that is encoded as Go encodes its counterpart.
///
/// Each field names its JSON key. `"omitempty"` behind the key leaves the field out while it has its default
/// value; without it the field is always written.
macro_rules! go_struct {
    ($(#[$meta:meta])* pub struct $name:ident {
        $($(#[$fmeta:meta])* pub $field:ident : $ty:ty = $key:literal $(, $omit:literal)? ;)*
    }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Default, serde::Serialize, serde::Deserialize)]
        #[serde(default)]
        pub struct $name {
            $(
                $(#[$fmeta])*
                #[serde(rename = $key, deserialize_with = "crate::go::nullable")]
                $(#[serde(skip_serializing_if = $omit)])?
                pub $field: $ty,
            )*
        }
    };
}

/// Declares an enumeration of words that keeps unknown words and has an unset state (the empty word).
macro_rules! open_enum {
    ($(#[$meta:meta])* pub enum $name:ident { $($(#[$vmeta:meta])* $variant:ident = $word:literal),* $(,)? }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
        pub enum $name {
            /// Not set (the empty word).
            #[default]
            Unset,
            $($(#[$vmeta])* $variant,)*
            /// A word that this version does not know; validation refuses it.
            Other(smol_str::SmolStr),
        }

        impl $name {
            /// Every known word, in declaration order.
            pub const WORDS: &'static [&'static str] = &[$($word),*];

            /// The word as written in JSON; empty if unset.
            pub fn as_str(&self) -> &str {
                match self {
                    Self::Unset => "",
                    $(Self::$variant => $word,)*
                    Self::Other(word) => word,
                }
            }

            /// True unless the word is one that this version does not know.
            pub fn is_known(&self) -> bool {
                !matches!(self, Self::Other(_))
            }

            /// True if no word is set.
            pub fn is_unset(&self) -> bool {
                matches!(self, Self::Unset)
            }
        }

        impl From<&str> for $name {
            /// Exact match of the known words, case included.
            fn from(word: &str) -> Self {
                match word {
                    "" => Self::Unset,
                    $($word => Self::$variant,)*
                    other => Self::Other(other.into()),
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.serialize_str(self.as_str())
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                struct Visitor;
                impl serde::de::Visitor<'_> for Visitor {
                    type Value = $name;

                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str("a string")
                    }

                    fn visit_str<E: serde::de::Error>(self, word: &str) -> Result<$name, E> {
                        Ok($name::from(word))
                    }
                }
                d.deserialize_str(Visitor)
            }
        }
    };
}
