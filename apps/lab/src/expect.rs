//! Expected connectivity: lines such as `deny * -> shop/backend tcp:8080`, of which the last that fits decides.

use std::fmt;
use std::str::FromStr;

use calico_net::IpVersion;

use crate::probe::Probe;

/// A name, `namespace/*` or `*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern(String);

/// One line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expectation {
    allow: bool,
    from: Vec<Pattern>,
    to: Vec<Pattern>,
    probes: Vec<Probe>,
    version: Option<IpVersion>,
}

/// Why a line cannot be understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{line:?}: {reason}; write for example `allow shop/web, shop/api -> shop/db tcp:5432 v4`")]
pub struct ExpectError {
    line: String,
    reason: String,
}

// === impl Pattern ===

impl Pattern {
    /// True if the pattern fits `name`.
    pub fn matches(&self, name: &str) -> bool {
        match self.0.strip_suffix('*') {
            Some(start) => name.starts_with(start),
            None => self.0 == name,
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

// === impl Expectation ===

impl Expectation {
    /// Whether the connection must work, if this line speaks of it.
    pub fn says(&self, from: &str, to: &str, probe: Probe, version: IpVersion) -> Option<bool> {
        let fits = self.from.iter().any(|p| p.matches(from))
            && self.to.iter().any(|p| p.matches(to))
            && (self.probes.is_empty() || self.probes.contains(&probe))
            && self.version.is_none_or(|v| v == version);
        fits.then_some(self.allow)
    }

    /// All patterns of the line.
    pub fn patterns(&self) -> impl Iterator<Item = &Pattern> {
        self.from.iter().chain(&self.to)
    }
}

impl FromStr for Expectation {
    type Err = ExpectError;

    fn from_str(line: &str) -> Result<Self, Self::Err> {
        let fail = |reason: String| ExpectError { line: line.to_owned(), reason };
        let (verb, rest) =
            line.trim().split_once(char::is_whitespace).ok_or_else(|| fail("too short".into()))?;
        let allow = match verb {
            "allow" => true,
            "deny" => false,
            other => return Err(fail(format!("starts with {other:?}, not with allow or deny"))),
        };
        let (from, rest) = rest.split_once("->").ok_or_else(|| fail("has no ->".into()))?;
        // Targets are separated by commas, probes follow after blanks.
        let mut to = String::new();
        let mut words = rest.split_whitespace().peekable();
        while let Some(word) = words.next() {
            to.push_str(word);
            let more = word.ends_with(',') || words.peek().is_some_and(|next| next.starts_with(','));
            if !more {
                break;
            }
        }
        let (mut probes, mut version) = (Vec::new(), None);
        for word in words {
            match word {
                "v4" => version = Some(IpVersion::V4),
                "v6" => version = Some(IpVersion::V6),
                word => probes.push(word.parse().map_err(|e| fail(format!("{e}")))?),
            }
        }
        let patterns = |text: &str| -> Result<Vec<Pattern>, ExpectError> {
            text.split(',')
                .map(str::trim)
                .map(|name| match name {
                    "" => Err(fail("an empty name".into())),
                    name => Ok(Pattern(name.to_owned())),
                })
                .collect()
        };
        Ok(Self { allow, from: patterns(from)?, to: patterns(&to)?, probes, version })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn says(line: &str, from: &str, to: &str) -> Option<bool> {
        let e: Expectation = line.parse().expect(line);
        e.says(from, to, Probe::Tcp(80), IpVersion::V4)
    }

    #[test]
    fn lines_speak_of_the_pairs_they_name() {
        assert_eq!(says("allow * -> *", "a/x", "b/y"), Some(true));
        assert_eq!(says("deny a/* -> b/y", "a/x", "b/y"), Some(false));
        assert_eq!(says("deny a/* -> b/y", "c/x", "b/y"), None);
        assert_eq!(says("allow a/x, a/z -> b/y , b/w tcp:80", "a/z", "b/w"), Some(true));
        assert_eq!(says("allow a/x -> b/y udp:53", "a/x", "b/y"), None);
        assert_eq!(says("allow a/x -> b/y v6", "a/x", "b/y"), None);
        assert_eq!(says("deny a/x -> b/y tcp:80 udp:53 v4", "a/x", "b/y"), Some(false));
    }

    #[test]
    fn bad_lines_are_refused() {
        for line in
            ["allow", "permit a -> b", "allow a b", "allow a -> ", "allow , -> b", "allow a -> b tcp:99999"]
        {
            assert!(line.parse::<Expectation>().is_err(), "{line}");
        }
    }
}
