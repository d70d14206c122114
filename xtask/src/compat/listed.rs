//! The list of wanted differences and the globs in it.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

use super::text::read;

/// A pattern of case names; `*` stands for any text.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Glob(String);

/// The differences that a user may read about, with the cases that show them.
#[derive(Debug, Default)]
pub(crate) struct Differences {
    entries: Vec<(String, Glob)>,
}

/// Globs that have matched no differing case so far.
#[derive(Debug)]
pub(crate) struct Unused(BTreeSet<(String, Glob)>);

// === impl Glob ===

impl Glob {
    /// A pattern.
    pub(crate) fn new(text: &str) -> Self {
        Self(text.trim_end_matches('/').to_owned())
    }

    /// True if `name` matches from end to end.
    pub(crate) fn matches(&self, name: &str) -> bool {
        let mut parts = self.0.split('*');
        let first = parts.next().unwrap_or_default();
        let Some(mut rest) = name.strip_prefix(first) else { return false };
        let mut last = None;
        for part in parts {
            if let Some(middle) = last.replace(part) {
                match rest.find(middle) {
                    Some(at) => rest = &rest[at + middle.len()..],
                    None => return false,
                }
            }
        }
        last.map_or(rest.is_empty(), |end| rest.ends_with(end))
    }

    /// True if the pattern matches `name` or a folder of it.
    pub(crate) fn covers(&self, name: &str) -> bool {
        self.matches(name) || name.match_indices('/').any(|(at, _)| self.matches(&name[..at]))
    }

    /// True if something in `folder` may be covered.
    pub(crate) fn may_cover_below(&self, folder: &str) -> bool {
        let fixed = self.0.split('*').next().unwrap_or_default();
        self.covers(folder) || fixed.starts_with(folder) || (fixed != self.0 && folder.starts_with(fixed))
    }
}

impl fmt::Display for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

// === impl Differences ===

impl Differences {
    /// Reads the page; a missing one lists nothing.
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        if path.exists() { Ok(Self::parse(&read(path)?)) } else { Ok(Self::default()) }
    }

    /// Takes the lines `cases: GLOB, GLOB` under headings `## slug`.
    fn parse(page: &str) -> Self {
        let mut entries = Vec::new();
        let mut slug = "";
        for line in page.lines() {
            if let Some(heading) = line.strip_prefix("## ") {
                slug = heading.trim();
            } else if let Some(globs) = line.strip_prefix("cases:") {
                let globs = globs.split(',').map(|glob| glob.trim().trim_matches('`'));
                entries.extend(globs.filter(|g| !g.is_empty()).map(|g| (slug.to_owned(), Glob::new(g))));
            }
        }
        Self { entries }
    }

    /// The first entry that names the case.
    pub(crate) fn lists(&self, id: &str) -> Option<(&str, &Glob)> {
        self.entries.iter().find(|(_, glob)| glob.matches(id)).map(|(slug, glob)| (slug.as_str(), glob))
    }

    /// Every entry, to be crossed off.
    pub(crate) fn unused(&self) -> Unused {
        Unused(self.entries.iter().cloned().collect())
    }
}

// === impl Unused ===

impl Unused {
    /// Crosses an entry off.
    pub(crate) fn used(&mut self, slug: &str, glob: &Glob) {
        self.0.remove(&(slug.to_owned(), glob.clone()));
    }

    /// What is left.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &(String, Glob)> {
        self.0.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_match_from_end_to_end() {
        for (glob, name, want) in [
            ("a/b", "a/b", true),
            ("a/b", "a/bc", false),
            ("a/*", "a/bc", true),
            ("a/*-x", "a/b-x-x", true),
            ("a/*-x", "a/x", false),
            ("*", "", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "acb", false),
            ("aa*aa", "aaa", false),
        ] {
            assert_eq!(Glob::new(glob).matches(name), want, "{glob} {name}");
        }
    }

    #[test]
    fn globs_cover_what_is_in_a_folder() {
        assert!(Glob::new("ctl/").covers("ctl/cli/get-1"));
        assert!(Glob::new("ctl/cli/get-*").may_cover_below("ctl/cli"));
        assert!(Glob::new("*/cli").may_cover_below("ctl/cli"));
        assert!(!Glob::new("ctl/cli").may_cover_below("ctl/names"));
    }

    #[test]
    fn pages_list_cases_under_their_slug() {
        let page = "# Title\n\n## one\ntext\n\ncases: a/*, `b/c`\n\n## two\ncases: d\n";
        let differences = Differences::parse(page);
        assert_eq!(differences.lists("a/x").map(|(slug, _)| slug), Some("one"));
        assert_eq!(differences.lists("b/c").map(|(slug, _)| slug), Some("one"));
        assert_eq!(differences.lists("d").map(|(slug, _)| slug), Some("two"));
        assert!(differences.lists("e").is_none());
        let mut unused = differences.unused();
        unused.used("one", &Glob::new("a/*"));
        assert_eq!(unused.iter().map(|(_, glob)| glob.to_string()).collect::<Vec<_>>(), ["b/c", "d"]);
    }
}
