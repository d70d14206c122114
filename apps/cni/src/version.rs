//! Versions of the CNI specification.

use std::fmt;

/// A version of the CNI specification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SpecVersion {
    major: u16,
    minor: u16,
    patch: u16,
}

// === impl SpecVersion ===

impl SpecVersion {
    const fn new(major: u16, minor: u16, patch: u16) -> Self {
        Self { major, minor, patch }
    }

    /// What a configuration without a version means.
    pub const V0_1_0: Self = Self::new(0, 1, 0);
    /// The last version with one address per family.
    pub const V0_2_0: Self = Self::new(0, 2, 0);
    /// The first version with lists of interfaces and addresses.
    pub const V0_3_0: Self = Self::new(0, 3, 0);
    /// The first version with CHECK.
    pub const V0_4_0: Self = Self::new(0, 4, 0);
    /// The first version whose addresses do not tell their family.
    pub const V1_0_0: Self = Self::new(1, 0, 0);
    /// The first version with STATUS and GC, and the newest one.
    pub const V1_1_0: Self = Self::new(1, 1, 0);

    /// The versions that the plugin serves, oldest first.
    pub const SUPPORTED: [Self; 7] = [
        Self::V0_1_0,
        Self::V0_2_0,
        Self::V0_3_0,
        Self::new(0, 3, 1),
        Self::V0_4_0,
        Self::V1_0_0,
        Self::V1_1_0,
    ];

    /// Reads `major[.minor[.patch]]`; an empty text is 0.1.0.
    pub fn parse(text: &str) -> Option<Self> {
        if text.is_empty() {
            return Some(Self::V0_1_0);
        }
        let mut numbers = [0u16; 3];
        let mut parts = text.split('.');
        for (i, number) in numbers.iter_mut().enumerate() {
            match parts.next() {
                Some(part) if !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()) => {
                    *number = part.parse().ok()?;
                }
                None if i > 0 => {}
                _ => return None,
            }
        }
        let [major, minor, patch] = numbers;
        parts.next().is_none().then_some(Self { major, minor, patch })
    }

    /// True if the plugin serves this version.
    pub fn is_supported(self) -> bool {
        Self::SUPPORTED.contains(&self)
    }
}

impl fmt::Display for SpecVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_parse_and_print() {
        for (text, want) in [
            ("", Some("0.1.0")),
            ("0.3.1", Some("0.3.1")),
            ("1.1.0", Some("1.1.0")),
            ("1", Some("1.0.0")),
            ("1.1", Some("1.1.0")),
            ("1.1.0.0", None),
            ("v1.0.0", None),
            ("1..0", None),
            (".", None),
            ("1.0.0-rc1", None),
            ("99999999.0.0", None),
            ("+1.0.0", None),
        ] {
            assert_eq!(SpecVersion::parse(text).map(|v| v.to_string()).as_deref(), want, "{text:?}");
        }
        assert!(SpecVersion::SUPPORTED.is_sorted());
        assert!(!SpecVersion::new(9, 9, 9).is_supported());
    }
}
