//! Numbers that the API also takes as text: AS numbers and DSCP values.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use smol_str::SmolStr;

/// A BGP autonomous system number.
///
/// JSON: a number, or text in decimal or `high.low` form (RFC 5396). Always written as a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct AsNumber(pub u32);

/// A text or number that is not an AS number.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid AS Number format ({0})")]
pub struct AsNumberError(pub String);

impl FromStr for AsNumber {
    type Err = AsNumberError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
        let number = match text.split_once('.') {
            None if digits(text) => text.parse().ok(),
            Some((high, low)) if digits(high) && digits(low) => {
                let halves = high.parse::<u16>().ok().zip(low.parse::<u16>().ok());
                halves.map(|(high, low)| u32::from(high) << 16 | u32::from(low))
            }
            _ => None,
        };
        number.map(Self).ok_or_else(|| AsNumberError(text.to_owned()))
    }
}

impl fmt::Display for AsNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for AsNumber {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_u32(self.0)
    }
}

impl<'de> Deserialize<'de> for AsNumber {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = AsNumber;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an AS number from 0 to 4294967295 or in the form \"high.low\"")
            }

            fn visit_u64<E: de::Error>(self, v: u64) -> Result<AsNumber, E> {
                u32::try_from(v).map(AsNumber).map_err(|_| E::custom(AsNumberError(v.to_string())))
            }

            fn visit_i64<E: de::Error>(self, v: i64) -> Result<AsNumber, E> {
                u32::try_from(v).map(AsNumber).map_err(|_| E::custom(AsNumberError(v.to_string())))
            }

            fn visit_str<E: de::Error>(self, v: &str) -> Result<AsNumber, E> {
                v.parse().map_err(E::custom)
            }
        }
        d.deserialize_any(Visitor)
    }
}

/// A differentiated services code point (RFC 2474): a number or a name, kept as written.
///
/// JSON: a number 0 to 255, or a string; a string of digits that fits 8 bits becomes a number.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Dscp {
    /// The value.
    Value(u8),
    /// A name such as `AF21`.
    Name(SmolStr),
}

/// A number that is no DSCP value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid DSCP value: {0}")]
pub struct DscpError(pub String);

// === impl Dscp ===

impl Dscp {
    /// Known names with their values (RFC 2474, RFC 2597, RFC 3246).
    pub const NAMES: [(&'static str, u8); 21] = [
        ("DF", 0),
        ("EF", 46),
        ("AF11", 10),
        ("AF12", 12),
        ("AF13", 14),
        ("AF21", 18),
        ("AF22", 20),
        ("AF23", 22),
        ("AF31", 26),
        ("AF32", 28),
        ("AF33", 30),
        ("AF41", 34),
        ("AF42", 36),
        ("AF43", 38),
        ("CS0", 0),
        ("CS1", 8),
        ("CS2", 16),
        ("CS3", 24),
        ("CS4", 32),
        ("CS5", 40),
        ("CS6", 48),
    ];

    /// Reads a text: digits that fit 8 bits are a value, all else is a name.
    pub fn parse(text: &str) -> Self {
        match text.parse::<u8>() {
            Ok(value) if text.bytes().all(|b| b.is_ascii_digit()) => Self::Value(value),
            _ => Self::Name(text.into()),
        }
    }

    /// The code point, 0 to 63; `None` if the value is out of range or the name is not known. Names match in any
    /// case, blanks around them are ignored.
    pub fn code_point(&self) -> Option<u8> {
        match self {
            Self::Value(value) => (*value <= 63).then_some(*value),
            Self::Name(name) => {
                Self::NAMES.iter().find(|(n, _)| n.eq_ignore_ascii_case(name.trim())).map(|&(_, value)| value)
            }
        }
    }
}

impl fmt::Display for Dscp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value(value) => value.fmt(f),
            Self::Name(name) => f.write_str(name),
        }
    }
}

impl Serialize for Dscp {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Value(value) => s.serialize_u8(*value),
            Self::Name(name) => s.serialize_str(name),
        }
    }
}

impl<'de> Deserialize<'de> for Dscp {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Dscp;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a DSCP value or name")
            }

            fn visit_u64<E: de::Error>(self, v: u64) -> Result<Dscp, E> {
                u8::try_from(v).map(Dscp::Value).map_err(|_| E::custom(DscpError(v.to_string())))
            }

            fn visit_i64<E: de::Error>(self, v: i64) -> Result<Dscp, E> {
                u8::try_from(v).map(Dscp::Value).map_err(|_| E::custom(DscpError(v.to_string())))
            }

            fn visit_str<E: de::Error>(self, v: &str) -> Result<Dscp, E> {
                Ok(Dscp::parse(v))
            }
        }
        d.deserialize_any(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_numbers_in_both_forms() {
        for (json, want) in [
            ("4294967295", Some(u32::MAX)),
            ("\"1.10\"", Some(65_546)),
            ("\"00.01\"", Some(1)),
            ("\"65535.65535\"", Some(u32::MAX)),
            ("\"64512\"", Some(64_512)),
            ("\"1.1.1\"", None),
            ("\"65536.65536\"", None),
            ("\"0.-1\"", None),
            ("\"\"", None),
            ("\"+1\"", None),
            ("-1", None),
            ("4294967296", None),
        ] {
            let got: Option<AsNumber> = serde_json::from_str(json).ok();
            assert_eq!(got.map(|n| n.0), want, "{json}");
        }
    }

    #[test]
    fn dscp_by_value_and_name() {
        for (json, code, text) in [
            ("26", Some(26), "26"),
            ("\"26\"", Some(26), "26"),
            ("\"AF21\"", Some(18), "\"AF21\""),
            ("\" ef \"", Some(46), "\" ef \""),
            ("64", None, "64"),
            ("\"CS9\"", None, "\"CS9\""),
            ("\"\"", None, "\"\""),
        ] {
            let dscp: Dscp = serde_json::from_str(json).unwrap();
            assert_eq!(dscp.code_point(), code, "{json}");
            assert_eq!(serde_json::to_string(&dscp).unwrap(), text);
        }
        assert!(serde_json::from_str::<Dscp>("256").is_err());
    }
}
