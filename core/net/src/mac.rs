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

    /// Accepts what Go's `net.ParseMAC` accepts of six octets: `00:00:5e:00:53:01`, the same with `-`, and
    /// `0000.5e00.5301`, in either case. Longer hardware addresses are refused.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let fail = || MacError(text.to_owned());
        let bytes = text.as_bytes();
        let (separator, digits) = match bytes.get(2) {
            Some(&c @ (b':' | b'-')) => (c, 2),
            _ => (b'.', 4),
        };
        if bytes.len() != 12 + 12 / digits - 1 {
            return Err(fail());
        }
        let mut out = [0u8; 6];
        let mut octets = out.iter_mut();
        for group in bytes.chunks(digits + 1) {
            let (hex, rest) = group.split_at_checked(digits).ok_or_else(fail)?;
            if !matches!(rest, [] | [_]) || rest.first().is_some_and(|&c| c != separator) {
                return Err(fail());
            }
            for (pair, octet) in hex.chunks_exact(2).zip(&mut octets) {
                *octet =
                    hex_digit(pair[0]).zip(hex_digit(pair[1])).map(|(h, l)| h << 4 | l).ok_or_else(fail)?;
            }
        }
        Ok(Self(out))
    }
}

fn hex_digit(c: u8) -> Option<u8> {
    char::from(c).to_digit(16).and_then(|d| u8::try_from(d).ok())
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn texts() {
        let mac = Mac([0xaa, 0xbb, 0xcc, 0x0d, 0xee, 0x0f]);
        for text in ["aa:bb:cc:0d:ee:0f", "AA-BB-CC-0D-EE-0F", "aabb.cc0d.ee0f", "Aa:bB:cc:0d:ee:0f"] {
            assert_eq!(text.parse(), Ok(mac), "{text}");
        }
        assert_eq!(mac.to_string(), "aa:bb:cc:0d:ee:0f");
        for text in [
            "",
            "x",
            "aa:bb:cc:dd:ee",
            "aa:bb:cc:dd:ee:ff:00",
            "aa:bb:cc:dd:ee:ff:",
            "aa:bb-cc:dd:ee:ff",
            "aa:bb:cc:dd:ee:fg",
            "a:bb:cc:dd:ee:ff0",
            "aabbccddeeff",
            "aabb-ccdd-eeff",
            "aabb.ccdd:eeff",
            "02:00:5e:10:00:00:00:01",
            "+a:bb:cc:dd:ee:ff",
            "aa:bb:cc:dd:eé:f",
        ] {
            assert_eq!(text.parse::<Mac>(), Err(MacError(text.into())));
        }
    }

    proptest! {
        #[test]
        fn display_reads_back(octets in any::<[u8; 6]>()) {
            prop_assert_eq!(Mac(octets).to_string().parse(), Ok(Mac(octets)));
        }

        #[test]
        fn any_text_is_judged_without_panic(text in "[0-9a-fé:.-]{0,20}") {
            let _ = text.parse::<Mac>();
        }
    }
}
