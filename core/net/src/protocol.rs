//! IP protocols by number or name.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use smol_str::SmolStr;

/// An IP protocol (upstream's `numorstring.Protocol`): a number, or a name kept exactly as written.
///
/// JSON: a number 0 to 255, or a string; a string of digits that fits 8 bits becomes a number.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Protocol {
    /// Protocol number.
    Num(u8),
    /// Protocol name, case kept (`TCP` in the v3 API, `tcp` in the internal model).
    Name(SmolStr),
}

/// A number that is not a protocol number.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid protocol number: {0} (must be between 0 and 255)")]
pub struct ProtocolError(pub String);

impl Protocol {
    /// Names that the v3 API accepts, with their numbers.
    pub const NAMES: [(&'static str, u8); 6] =
        [("TCP", 6), ("UDP", 17), ("ICMP", 1), ("ICMPv6", 58), ("SCTP", 132), ("UDPLite", 136)];

    /// Reads a text: digits that fit 8 bits are a number, all else is a name.
    pub fn parse(text: &str) -> Self {
        match text.parse::<u8>() {
            Ok(n) if text.bytes().all(|b| b.is_ascii_digit()) => Self::Num(n),
            _ => Self::Name(text.into()),
        }
    }

    /// The protocol number, if the name is known (in any case).
    pub fn to_number(&self) -> Option<u8> {
        match self {
            Self::Num(n) => Some(*n),
            Self::Name(name) => {
                Self::NAMES.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|&(_, num)| num)
            }
        }
    }

    /// True if rules with this protocol may carry ports: TCP, UDP and SCTP by number, or by name in all
    /// upper or all lower case.
    pub fn supports_ports(&self) -> bool {
        match self {
            Self::Num(n) => matches!(n, 6 | 17 | 132),
            Self::Name(n) => matches!(n.as_str(), "TCP" | "UDP" | "SCTP" | "tcp" | "udp" | "sctp"),
        }
    }

    /// The internal model's form: names in lower case.
    pub fn to_lower(&self) -> Self {
        match self {
            Self::Num(n) => Self::Num(*n),
            Self::Name(n) => Self::Name(n.to_lowercase().into()),
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Num(n) => n.fmt(f),
            Self::Name(n) => f.write_str(n),
        }
    }
}

impl Serialize for Protocol {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Num(n) => s.serialize_u8(*n),
            Self::Name(n) => s.serialize_str(n),
        }
    }
}

impl<'de> Deserialize<'de> for Protocol {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Protocol;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a protocol number or name")
            }

            fn visit_u64<E: de::Error>(self, v: u64) -> Result<Protocol, E> {
                u8::try_from(v).map(Protocol::Num).map_err(|_| E::custom(ProtocolError(v.to_string())))
            }

            fn visit_i64<E: de::Error>(self, v: i64) -> Result<Protocol, E> {
                u8::try_from(v).map(Protocol::Num).map_err(|_| E::custom(ProtocolError(v.to_string())))
            }

            fn visit_str<E: de::Error>(self, v: &str) -> Result<Protocol, E> {
                Ok(Protocol::parse(v))
            }
        }
        d.deserialize_any(Visitor)
    }
}
