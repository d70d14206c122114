//! Ports as policy rules name them: a number, a range, or the name of a port of the endpoint.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use smol_str::SmolStr;

/// An inclusive range of port numbers, `first <= last`.
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
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last { write!(f, "{}", self.first) } else { write!(f, "{}:{}", self.first, self.last) }
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
        let num = |s: &str| s.parse::<u16>().map_err(|_| PortError::OutOfRange(text.to_owned()));
        if digits(text) {
            return num(text).map(Self::number);
        }
        if let Some((first, last)) = text.split_once(':')
            && digits(first)
            && digits(last)
        {
            let (first, last) = (num(first)?, num(last)?);
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
                u16::try_from(v).map(Port::number).map_err(|_| E::custom(PortError::OutOfRange(v.to_string())))
            }

            fn visit_i64<E: de::Error>(self, v: i64) -> Result<Port, E> {
                u16::try_from(v).map(Port::number).map_err(|_| E::custom(PortError::OutOfRange(v.to_string())))
            }

            fn visit_str<E: de::Error>(self, v: &str) -> Result<Port, E> {
                v.parse().map_err(E::custom)
            }
        }
        d.deserialize_any(Visitor)
    }
}
