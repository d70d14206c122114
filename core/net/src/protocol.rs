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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde::de::IntoDeserializer;
    use serde::de::value::Error as ValueError;

    use super::*;

    #[test]
    fn texts() {
        let name = |n: &str| Protocol::Name(n.into());
        let table = [
            ("6", Protocol::Num(6), Some(6), true),
            ("006", Protocol::Num(6), Some(6), true),
            ("255", Protocol::Num(255), Some(255), false),
            ("256", name("256"), None, false),
            ("+6", name("+6"), None, false),
            ("-1", name("-1"), None, false),
            ("", name(""), None, false),
            ("TCP", name("TCP"), Some(6), true),
            ("tcp", name("tcp"), Some(6), true),
            ("Tcp", name("Tcp"), Some(6), false),
            ("ICMPv6", name("ICMPv6"), Some(58), false),
            ("icmpv6", name("icmpv6"), Some(58), false),
            ("UDPLite", name("UDPLite"), Some(136), false),
            ("sctp", name("sctp"), Some(132), true),
            ("tcpfoo", name("tcpfoo"), None, false),
        ];
        for (text, expect, number, ports) in table {
            let got = Protocol::parse(text);
            assert_eq!(got, expect, "{text:?}");
            assert_eq!((got.to_number(), got.supports_ports()), (number, ports), "{text:?}");
        }
        assert_eq!(Protocol::parse("ICMPv6").to_lower(), name("icmpv6"));
        assert_eq!(Protocol::Num(6).to_lower(), Protocol::Num(6));
    }

    #[test]
    fn numbers() {
        let read = |n: u64| Protocol::deserialize(IntoDeserializer::<ValueError>::into_deserializer(n));
        assert_eq!(read(0), Ok(Protocol::Num(0)));
        assert_eq!(read(255), Ok(Protocol::Num(255)));
        assert!(read(256).is_err());
    }

    proptest! {
        #[test]
        fn display_reads_back(text in any::<String>()) {
            let protocol = Protocol::parse(&text);
            prop_assert_eq!(Protocol::parse(&protocol.to_string()), protocol);
        }
    }
}
