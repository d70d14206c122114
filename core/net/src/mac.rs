//! Ethernet hardware addresses.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A 48-bit MAC address; text form `ee:ee:ee:ee:ee:ee`, lower case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Mac(pub [u8; 6]);

/// Why a text is not a MAC address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("address {0}: invalid MAC address")]
pub struct MacError(pub String);

impl FromStr for Mac {
    type Err = MacError;

    /// Accepts six octets of two hex digits, all separated by `:` or all by `-`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let fail = || MacError(text.to_owned());
        let sep = if text.contains('-') { '-' } else { ':' };
        let mut out = [0u8; 6];
        let mut parts = text.split(sep);
        for octet in &mut out {
            let part = parts.next().ok_or_else(fail)?;
            if part.len() != 2 || !part.bytes().all(|b| b.is_ascii_hexdigit()) {
                return Err(fail());
            }
            *octet = u8::from_str_radix(part, 16).map_err(|_| fail())?;
        }
        if parts.next().is_some() { Err(fail()) } else { Ok(Self(out)) }
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl Serialize for Mac {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Mac {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(d)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}
