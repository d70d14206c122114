//! Ports as policy rules name them: a number, a range, or the name of a port of the endpoint.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use smol_str::SmolStr;

/// An inclusive range of port numbers, `first <= last`. Text form: `80` or `80:90`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PortRange {
    /// Lowest port.
    pub first: u16,
    /// Highest port.
    pub last: u16,
}

impl PortRange {
    /// The range of one port.
    pub fn single(port: u16) -> Self {
        Self { first: port, last: port }
    }

    /// True if `port` lies in the range.
    pub fn contains(&self, port: u16) -> bool {
        (self.first..=self.last).contains(&port)
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last {
            write!(f, "{}", self.first)
        } else {
            write!(f, "{}:{}", self.first, self.last)
        }
    }
}

/// A port of a policy rule (upstream's `numorstring.Port`).
///
/// JSON: a number, `"min:max"`, or a name. A range of one port is written as a number.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Port {
    /// Numbers.
    Range(PortRange),
    /// The name of a port that the endpoint declares.
    Named(SmolStr),
}

/// Why a text is not a port.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PortError {
    /// The number is outside 0 to 65535.
    #[error("invalid port: {0} (must be between 0 and 65535)")]
    OutOfRange(String),
    /// The first number of a range is outside 0 to 65535.
    #[error("invalid minimum port number in range ({0})")]
    RangeMin(String),
    /// The last number of a range is outside 0 to 65535.
    #[error("invalid maximum port number in range ({0})")]
    RangeMax(String),
    /// A range whose first port is above its last.
    #[error("minimum port number ({0}) is greater than maximum port number ({1}) in port range")]
    Reversed(u16, u16),
    /// Neither a number, a range nor a port name.
    #[error("invalid name for named port ({0})")]
    Name(String),
}

impl Port {
    /// One port number.
    pub fn number(port: u16) -> Self {
        Self::Range(PortRange::single(port))
    }
}

impl FromStr for Port {
    type Err = PortError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
        let num = |s: &str, error: fn(String) -> PortError| s.parse().map_err(|_| error(text.to_owned()));
        if digits(text) {
            return num(text, PortError::OutOfRange).map(Self::number);
        }
        if let Some((first, last)) = text.split_once(':')
            && digits(first)
            && digits(last)
        {
            let (first, last) = (num(first, PortError::RangeMin)?, num(last, PortError::RangeMax)?);
            if first > last {
                return Err(PortError::Reversed(first, last));
            }
            return Ok(Self::Range(PortRange { first, last }));
        }
        let ok = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-');
        if (1..=128).contains(&text.len()) && text.bytes().all(ok) {
            Ok(Self::Named(text.into()))
        } else {
            Err(PortError::Name(text.to_owned()))
        }
    }
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Range(r) => r.fmt(f),
            Self::Named(n) => f.write_str(n),
        }
    }
}

impl Serialize for Port {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Range(r) if r.first == r.last => s.serialize_u16(r.first),
            other => s.collect_str(other),
        }
    }
}

impl<'de> Deserialize<'de> for Port {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Port;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a port number, a range \"min:max\" or a port name")
            }

            fn visit_u64<E: de::Error>(self, v: u64) -> Result<Port, E> {
                u16::try_from(v)
                    .map(Port::number)
                    .map_err(|_| E::custom(PortError::OutOfRange(v.to_string())))
            }

            fn visit_i64<E: de::Error>(self, v: i64) -> Result<Port, E> {
                u16::try_from(v)
                    .map(Port::number)
                    .map_err(|_| E::custom(PortError::OutOfRange(v.to_string())))
            }

            fn visit_str<E: de::Error>(self, v: &str) -> Result<Port, E> {
                v.parse().map_err(E::custom)
            }
        }
        d.deserialize_any(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde::de::IntoDeserializer;
    use serde::de::value::Error as ValueError;

    use super::*;

    #[test]
    fn texts() {
        let range = |first, last| Ok(Port::Range(PortRange { first, last }));
        let table: [(&str, Result<Port, PortError>); 16] = [
            ("0", range(0, 0)),
            ("80", range(80, 80)),
            ("0080", range(80, 80)),
            ("65535", range(65535, 65535)),
            ("65536", Err(PortError::OutOfRange("65536".into()))),
            ("1:65535", range(1, 65535)),
            ("7:7", range(7, 7)),
            ("5:1", Err(PortError::Reversed(5, 1))),
            ("1:65536", Err(PortError::RangeMax("1:65536".into()))),
            ("65536:1", Err(PortError::RangeMin("65536:1".into()))),
            ("http", Ok(Port::Named("http".into()))),
            ("-1", Ok(Port::Named("-1".into()))),
            ("1-2", Ok(Port::Named("1-2".into()))),
            ("", Err(PortError::Name("".into()))),
            (" 80", Err(PortError::Name(" 80".into()))),
            ("a:b", Err(PortError::Name("a:b".into()))),
        ];
        for (text, expect) in table {
            assert_eq!(text.parse::<Port>(), expect, "{text:?}");
        }
        assert!("n".repeat(128).parse::<Port>().is_ok());
        assert!("n".repeat(129).parse::<Port>().is_err());
    }

    #[test]
    fn numbers() {
        let read = |n: u64| Port::deserialize(IntoDeserializer::<ValueError>::into_deserializer(n));
        assert_eq!(read(65535), Ok(Port::number(65535)));
        assert!(read(65536).is_err());
        let negative: Result<Port, ValueError> = Port::deserialize((-1i64).into_deserializer());
        assert!(negative.is_err());
        assert!(PortRange { first: 3, last: 5 }.contains(5) && !PortRange::single(3).contains(4));
    }

    proptest! {
        #[test]
        fn display_reads_back(first in any::<u16>(), last in any::<u16>(), name in "[a-z][a-z0-9-]{0,14}") {
            let range = Port::Range(PortRange { first: first.min(last), last: first.max(last) });
            prop_assert_eq!(range.to_string().parse::<Port>(), Ok(range));
            prop_assert_eq!(name.parse::<Port>(), Ok(Port::Named(name.into())));
        }

        #[test]
        fn any_text_is_judged_without_panic(text in any::<String>()) {
            if let Ok(port) = text.parse::<Port>() {
                prop_assert_eq!(port.to_string().parse::<Port>(), Ok(port));
            }
        }
    }
}
