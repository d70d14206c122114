//! What is left out of texts before they are compared: what differs from run to run, and the words of reasons.

use std::time::{Duration, SystemTime};

use calico_api::Kind;
use serde_json::Value;

use super::super::text::field;

/// Version and commit that upstream's tool reported.
const THEIR_BUILD: [(&str, &str); 2] = [
    ("v3.34.0-0.dev-67-g87c15906f20c", "<version>"),
    ("87c15906f20c4ca1fda55af92295e7678b0cc0b2", "<commit>"),
];

/// What a run of ours makes that no other run makes.
pub(super) struct Ours<'a> {
    /// Texts from before the run: UIDs in them stay.
    pub(super) known: &'a str,
    /// When the run began: times after it are its own.
    pub(super) begun: SystemTime,
    /// Version that the tool reports.
    pub(super) version: &'a str,
    /// Commit that the tool reports.
    pub(super) commit: &'a str,
    /// Folders and addresses with their marks.
    pub(super) places: Vec<(String, &'static str)>,
}

impl Ours<'_> {
    /// Output of the tool.
    pub(super) fn output(&self, text: &str) -> String {
        let mut text = self.stored(text);
        for (place, mark) in &self.places {
            if !place.is_empty() {
                text = text.replace(place, mark);
            }
        }
        if !self.version.is_empty() {
            text = text.replace(self.version, "<version>");
        }
        if !self.commit.is_empty() {
            text =
                text.replace(&format!("Git commit:        {}", self.commit), "Git commit:        <commit>");
        }
        revisions(&text)
    }

    /// A stored value.
    pub(super) fn stored(&self, text: &str) -> String {
        words(text, |word| {
            if is_uid(word) && !self.known.contains(word) {
                Some("<uid>")
            } else if self.is_own_time(word) && !self.known.contains(word) {
                Some("<time>")
            } else if word.len() == 32
                && word.bytes().all(|b| b.is_ascii_hexdigit())
                && !self.known.contains(word)
            {
                Some("<clusterGUID>")
            } else {
                None
            }
        })
    }

    fn is_own_time(&self, word: &str) -> bool {
        let Ok(time) = word.parse::<jiff::Timestamp>() else { return false };
        let from = self.begun - Duration::from_secs(5);
        let to = SystemTime::now() + Duration::from_secs(5);
        (from..to).contains(&SystemTime::from(time))
    }
}

/// A text of upstream's record with what was marked as volatile replaced.
pub(super) fn theirs(text: &str, volatile: &Value) -> String {
    let mut text = text.to_owned();
    for entry in volatile.as_array().into_iter().flatten() {
        let (what, value) = (field(entry, "what"), field(entry, "value"));
        if matches!(what, "uid" | "time" | "clusterGUID") && !value.is_empty() {
            text = text.replace(value, &format!("<{what}>"));
        }
    }
    for (own, mark) in THEIR_BUILD {
        text = text.replace(own, mark);
    }
    revisions(&text)
}

/// The same lines and words in sorted order, for output whose order is open.
pub(super) fn unordered(text: &str) -> String {
    let mut words: Vec<&str> = text.split(|c: char| c.is_whitespace() || c == ',').collect();
    words.retain(|word| !word.is_empty());
    words.sort_unstable();
    words.join("\n")
}

/// Replaces the numbers of `resourceVersion`.
fn revisions(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("resourceVersion") {
        let (before, after) = rest.split_at(at + "resourceVersion".len());
        out.push_str(before);
        let lead = after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len());
        let digits = after[lead..].find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len() - lead);
        if digits > 0 && after[..lead].chars().all(|c| matches!(c, '"' | ':' | ' ')) {
            out.push_str(&after[..lead]);
            out.push_str("<resourceVersion>");
            rest = &after[lead + digits..];
        } else {
            rest = after;
        }
    }
    out.push_str(rest);
    out
}

/// Replaces words of letters, digits, `-`, `:`, `.` and `+`.
fn words(text: &str, rename: impl Fn(&str) -> Option<&'static str>) -> String {
    let in_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | ':' | '.' | '+');
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find(in_word) {
        out.push_str(&rest[..start]);
        let end = rest[start..].find(|c| !in_word(c)).map_or(rest.len(), |len| start + len);
        let word = &rest[start..end];
        out.push_str(rename(word).unwrap_or(word));
        rest = &rest[end..];
    }
    out.push_str(rest);
    out
}

fn is_uid(word: &str) -> bool {
    let parts: Vec<usize> = word.split('-').map(str::len).collect();
    parts == [8, 4, 4, 4, 12] && word.bytes().all(|b| b == b'-' || b.is_ascii_hexdigit())
}

/// Beginnings of texts whose rest, up to the end of the error, is in the tool's own words: which field is at
/// fault and why, what a parser of YAML or JSON says, why there is no connection.
const REASONS: [&str; 6] = [
    "error with field ",
    "error with the following fields:\n",
    "failed to execute command: ",
    "field in document is not recognized or is in the wrong location: ",
    "Failed to create Calico API client: ",
    "invalid selector: ",
];

/// Stands where a name was taken out, and so ends the reason before it.
const CUT: char = '\u{1}';

/// The text without its reasons, and the reasons. The names of objects before single errors are reasons too.
pub(super) fn without_words(text: &str) -> (String, Vec<String>) {
    let mut reasons = Vec::new();
    let text = without_names(text, &mut reasons);
    let mut out = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while let Some((at, lead)) = REASONS.iter().filter_map(|r| rest.find(r).map(|at| (at, *r))).min() {
        out.push_str(&rest[..at]);
        let after = &rest[at + lead.len()..];
        let end = end_of_reason(lead, after, out.trim_end_matches(CUT).ends_with('['));
        reasons.push(after[..end].replace(CUT, "").trim_end().to_owned());
        out.push_str(match lead {
            lead if lead.starts_with("error with") => "error with <fields>",
            // An unknown field is told in place of the whole error.
            lead if lead.starts_with("field in") => "failed to execute command: <reason>\n",
            "Failed to create Calico API client: " => "Failed to create Calico API client: <reason>\n",
            "failed to execute command: " => "failed to execute command: <reason>\n",
            _ => "<reason>",
        });
        rest = &after[end..];
    }
    out.push_str(rest);
    (out.replace(CUT, ""), reasons)
}

/// The text without `Kind(name): ` at the start of a single error in a list.
fn without_names(text: &str, names: &mut Vec<String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((at, end)) = next_name(rest, &out) {
        out.push_str(&rest[..at]);
        out.push(CUT);
        names.push(rest[at..end].trim_end_matches([':', ' ']).to_owned());
        rest = &rest[end..];
    }
    out.push_str(rest);
    out
}

fn next_name(rest: &str, before: &str) -> Option<(usize, usize)> {
    let starts = rest.match_indices(|c: char| c.is_ascii_uppercase());
    for (at, _) in starts {
        let lead = if at == 0 { before.trim_end_matches(CUT) } else { &rest[..at] };
        if !(lead.ends_with('[') || lead.ends_with(' ')) || lead.ends_with("on ") {
            continue;
        }
        let word = &rest[at..];
        let open = word.find('(')?;
        let len = word.find("): ")?;
        let is_kind = Kind::from_name(&word[..open]).is_some();
        if is_kind && open < len && !word[..len].contains(['\n', ']']) {
            return Some((at, at + len + "): ".len()));
        }
    }
    None
}

/// Where a reason ends that began in a list or alone.
fn end_of_reason(lead: &str, text: &str, in_list: bool) -> usize {
    if !lead.starts_with("error with") && lead != "invalid selector: " {
        return text.len();
    }
    if lead.ends_with('\n') {
        // One fault per line; a list closes on a line of its own.
        let mut end = 0;
        for line in text.split_inclusive('\n') {
            if !line.starts_with("-  ") {
                break;
            }
            end += line.len();
        }
        return end;
    }
    let line = text.find('\n').unwrap_or(text.len());
    let next = text.find(") error with ").map_or(line, |at| at + 1).min(line);
    let cut = text.find(CUT).map_or(line, |at| text[..at].trim_end().len());
    let next = next.min(cut);
    if next < line {
        return next;
    }
    if in_list || text[..line].ends_with(")]") { text[..line].rfind(']').unwrap_or(line) } else { line }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_taken_out() {
        for (text, want, reasons) in [
            (
                "failed to create 'Tier' resource: [error with field spec.order = 'x' (bad [a])]\n",
                "failed to create 'Tier' resource: [error with <fields>]\n",
                vec!["spec.order = 'x' (bad [a])"],
            ),
            (
                "hit error: [error with the following fields:\n-  a (b)\n-  c (d)\n]\n",
                "hit error: [error with <fields>]\n",
                vec!["-  a (b)\n-  c (d)"],
            ),
            (
                "failed: [error with field a (b) error with field c (d)]\n",
                "failed: [error with <fields> error with <fields>]\n",
                vec!["a (b)", "c (d)"],
            ),
            (
                "failed to execute command: yaml: x\n  line 2\n",
                "failed to execute command: <reason>\n",
                vec!["yaml: x\n  line 2"],
            ),
            ("resource does not exist: Node(a)\n", "resource does not exist: Node(a)\n", vec![]),
            (
                "failed: [IPPool(a): error with field b (c) Node(d): conflict]\n",
                "failed: [error with <fields> conflict]\n",
                vec!["IPPool(a)", "Node(d)", "b (c)"],
            ),
            ("not supported on Tier(a): no\n", "not supported on Tier(a): no\n", vec![]),
        ] {
            assert_eq!(
                without_words(text),
                (want.to_owned(), reasons.iter().map(|r| r.to_string()).collect())
            );
        }
    }

    #[test]
    fn revisions_and_uids_get_marks() {
        assert_eq!(
            revisions("a\n  resourceVersion: \"75\"\n"),
            "a\n  resourceVersion: \"<resourceVersion>\"\n"
        );
        assert_eq!(revisions("\"resourceVersion\": \"7\","), "\"resourceVersion\": \"<resourceVersion>\",");
        assert_eq!(revisions("resourceVersion of 7"), "resourceVersion of 7");
        assert!(is_uid("0a17c0de-0001-4b1d-9e02-c0ffee000001"));
        assert!(!is_uid("0a17c0de-0001-4b1d-9e02"));
    }
}
