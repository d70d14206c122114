//! One case of seen behaviour and what the product made of it.

use serde_json::Value;

use super::text::pretty;

/// Aspects of a record that are compared apart from the rest, as cases of `AREA-ASPECT`: words of reasons, `null` for
/// an object that is not there, the note that nothing changed, the stream on which an error is told, the counts that
/// handles hold.
pub(crate) const ASPECTS: [&str; 5] = ["words", "null", "unchanged", "streams", "counts"];

/// A case.
#[derive(Debug)]
pub(crate) struct Case {
    /// Area and name, such as `ctl/names/veth-001`.
    pub(crate) id: String,
    /// What went in, for `--show`.
    pub(crate) input: String,
    /// What came out.
    pub(crate) seen: Seen,
}

/// What came out of a case.
#[derive(Debug)]
pub(crate) enum Seen {
    /// Both sides as text, with everything removed that varies from run to run.
    Compared {
        /// Upstream's.
        expected: String,
        /// Ours.
        ours: String,
    },
    /// The product lacks a part that the case needs.
    NotYet(&'static str),
}

// === impl Case ===

impl Case {
    /// A case of which both sides are JSON; the order of fields does not count.
    pub(crate) fn json(id: String, input: String, expected: &Value, ours: &Value) -> Self {
        Self::text(id, input, pretty(expected), pretty(ours))
    }

    /// A case of which both sides are text.
    pub(crate) fn text(id: String, input: String, expected: String, ours: String) -> Self {
        Self { id, input, seen: Seen::Compared { expected, ours } }
    }

    /// A case that needs a part which the product does not have.
    pub(crate) fn not_yet(id: String, why: &'static str) -> Self {
        Self { id, input: String::new(), seen: Seen::NotYet(why) }
    }
}
