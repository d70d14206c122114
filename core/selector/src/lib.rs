//! The selector language: expressions over labels that pick endpoints, network sets and nodes.
//!
//! Owns: parsing ([`Selector::parse`]), the canonical text and the id made from it, evaluation over any
//! [`Labels`], the restrictions that let an index skip most selectors ([`LabelRestrictions`]), a view of
//! the expression for other crates ([`Expr`], [`Node`]) and the text rewrites of the internal model
//! ([`Selector::prefixed`], [`replace_all`], [`replace_global`]).
//!
//! In: text from the API or the datastore. Out: values; nothing here reads the outside world.
//!
//! Invariants: canonical text is always accepted by the parser and means the same as its source; selectors
//! with equal canonical text are equal; evaluation allocates nothing; any input, however deep or long,
//! ends in a value or a [`ParseError`].
//!
//! The language in short:
//!
//! ```text
//! selector  = [ or ] ;                                         (nothing at all means all())
//! or        = and { "||" and } ;
//! and       = unary { "&&" unary } ;
//! unary     = { "!" } ( "(" or ")" | condition ) ;
//! condition = "all()" | "global()" | "has(" label ")"
//!           | label ( "==" | "!=" | "contains" | "starts with" | "ends with" ) string
//!           | label ( "in" | "not in" ) "{" [ string { "," string } [ "," ] ] "}" ;
//! ```
//!
//! A label is 1 to 512 of `A-Z a-z 0-9 _ . / -`; a string stands in `'` or `"` and has no escapes; only
//! blanks and tabs separate tokens. Operator words are words only after a label, so a label may be called
//! `in` or `has`.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;
use std::sync::{Arc, LazyLock, OnceLock};

mod build;
mod error;
mod eval;
mod expr;
mod id;
mod ops;
mod parse;
mod restrict;
mod rewrite;

pub use error::{ParseError, Reason};
pub use eval::Labels;
pub use expr::{Comparison, Expr, Node, Operands, Values};
pub use id::{length_limited_id, unique_id};
pub use parse::{MAX_DEPTH, MAX_LABEL_BYTES, MAX_TEXT_BYTES};
pub use restrict::{LabelRestriction, LabelRestrictions};
pub use rewrite::{replace_all, replace_global};

use ops::Op;

/// A parsed selector. Cloning is cheap; equality, order and hash are those of the canonical text.
#[derive(Clone)]
pub struct Selector(Arc<Inner>);

struct Inner {
    /// Canonical text; every label and value of `ops` is a slice of it.
    text: Box<str>,
    ops: Box<[Op]>,
    id: OnceLock<Box<str>>,
    restrictions: OnceLock<Box<LabelRestrictions>>,
}

impl Selector {
    /// Reads a selector. An empty or blank text is `all()`.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let source = parse::parse(text)?;
        let (text, ops) = build::build(text, &source);
        Ok(Self(Arc::new(Inner { text, ops, id: OnceLock::new(), restrictions: OnceLock::new() })))
    }

    /// The selector that matches everything.
    pub fn all() -> Self {
        static ALL: LazyLock<Selector> = LazyLock::new(|| {
            let (text, ops) = build::build("", &parse::all());
            Selector(Arc::new(Inner { text, ops, id: OnceLock::new(), restrictions: OnceLock::new() }))
        });
        ALL.clone()
    }

    /// The canonical text: one spelling for all texts of the same structure.
    ///
    /// `&&` and `||` stand in parentheses even at the top, comparisons are written `label op "value"`, the
    /// values of a set are sorted and unique, needless parentheses are gone. Nesting is kept as written:
    /// `(a && b) && c` differs from `a && b && c`, although both mean the same.
    pub fn canonical(&self) -> &str {
        &self.0.text
    }

    /// The id that names this selector in IP sets: `s:` and 38 characters from a hash of the canonical text
    /// (see [`unique_id`]). Made on first use.
    pub fn unique_id(&self) -> &str {
        self.0.id.get_or_init(|| unique_id("s", self.canonical()).into_boxed_str())
    }

    /// True if something with these labels is selected. Allocates nothing.
    pub fn matches<L: Labels + ?Sized>(&self, labels: &L) -> bool {
        self.expr().matches(labels)
    }

    /// The expression, to look into.
    pub fn expr(&self) -> Expr<'_> {
        Expr::new(&self.0.text, &self.0.ops)
    }

    /// What labels must look like for this selector to match, for an index to narrow by. Made on first use.
    pub fn restrictions(&self) -> &LabelRestrictions {
        self.0.restrictions.get_or_init(|| Box::new(LabelRestrictions::of(self.expr())))
    }

    /// Canonical text of this selector with `prefix` put before every label name, as the internal model
    /// does with the labels of namespaces (`pcns.`) and service accounts (`pcsa.`).
    ///
    /// The result is text because it goes into larger selectors; it fails to parse if a label exceeds
    /// [`MAX_LABEL_BYTES`] with its prefix.
    pub fn prefixed(&self, prefix: &str) -> String {
        self.expr().prefixed(prefix)
    }
}

impl FromStr for Selector {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.canonical())
    }
}

impl fmt::Debug for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Selector").field(&self.canonical()).finish()
    }
}

impl PartialEq for Selector {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.canonical() == other.canonical()
    }
}

impl Eq for Selector {}

impl Hash for Selector {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.canonical().hash(state);
    }
}

impl PartialOrd for Selector {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Selector {
    fn cmp(&self, other: &Self) -> Ordering {
        self.canonical().cmp(other.canonical())
    }
}

/// Checks that a text is a selector, without building one.
pub fn validate(text: &str) -> Result<(), ParseError> {
    parse::parse(text).map(drop)
}

/// The canonical text of a selector, after Unicode white space around it is trimmed; the trimmed text itself
/// if it is not a selector.
pub fn normalise(text: &str) -> String {
    let text = text.trim();
    match parse::parse(text) {
        Ok(source) => build::build(text, &source).0.into(),
        Err(_) => text.to_owned(),
    }
}

#[cfg(test)]
mod tests;
