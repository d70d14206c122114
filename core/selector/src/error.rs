//! Why a text is not a selector.

use std::fmt;

use smol_str::SmolStr;

use crate::parse::{MAX_DEPTH, MAX_LABEL_BYTES, MAX_TEXT_BYTES};

/// Where and why parsing stopped.
///
/// `byte 7: expected a quoted string, found web` is the message for `app == web`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("byte {position}: {reason}, found {}", Shown(token))]
pub struct ParseError {
    /// Offset into the text in bytes, from 0; the length of the text where more was expected.
    pub position: usize,
    /// The text at `position`, cut to a few characters; empty at the end of the text.
    pub token: SmolStr,
    /// What is wrong there.
    pub reason: Reason,
}

/// What the parser wanted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// Something that selects: a comparison, `has(...)`, `all()`, `global()` or a group in parentheses.
    #[error("expected a condition such as app == 'web'")]
    Condition,
    /// An operator after a label.
    #[error(
        "expected an operator after the label {label} (==, !=, in, not in, contains, starts with, ends with)"
    )]
    Operator {
        /// The label.
        label: SmolStr,
    },
    /// A value.
    #[error("expected a quoted string")]
    String,
    /// A set after `in` or `not in`.
    #[error("expected a set such as {{'a', 'b'}}")]
    Set,
    /// The next value of a set or its end.
    #[error("expected a comma or }} after a value of the set")]
    SetSeparator,
    /// A value of a set or its end.
    #[error("expected a quoted string or }} in the set")]
    SetValue,
    /// The label inside `has(...)`.
    #[error("expected a label name")]
    Label,
    /// The end of `has(...)`, `all()` or `global()`.
    #[error("expected ) to end {call}(")]
    CallEnd {
        /// The word before the parenthesis.
        call: &'static str,
    },
    /// What may follow a complete condition inside parentheses.
    #[error("expected &&, || or )")]
    GroupEnd,
    /// What may follow a complete condition outside parentheses.
    #[error("expected &&, || or the end")]
    End,
    /// A string whose closing quote is missing; the position is that of the opening one.
    #[error("a string without closing quote")]
    Unterminated,
    /// A label name above the limit.
    #[error("a label name of more than {MAX_LABEL_BYTES} bytes")]
    LabelTooLong,
    /// Parentheses nested above the limit.
    #[error("more than {MAX_DEPTH} nested parentheses")]
    TooDeep,
    /// A text above the limit.
    #[error("a selector of more than {MAX_TEXT_BYTES} bytes")]
    TooLong,
}

/// A token on one line: what does not print is escaped.
struct Shown<'a>(&'a str);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("the end");
        }
        for c in self.0.chars() {
            match c {
                '\'' | '"' | '\\' => write!(f, "{c}")?,
                _ => write!(f, "{}", c.escape_debug())?,
            }
        }
        Ok(())
    }
}
