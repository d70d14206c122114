//! A view of a selector's expression for code that looks into it: explainers, indexes, converters.

use std::fmt;

use crate::build::quote_for;
use crate::eval::{self, Labels};
use crate::ops::{Kind, Op, extent};

/// A selector or a part of one. Small; copy it.
#[derive(Clone, Copy)]
pub struct Expr<'a> {
    text: &'a str,
    /// This expression and nothing else.
    ops: &'a [Op],
}

/// What an [`Expr`] is.
#[derive(Clone, Debug)]
pub enum Node<'a> {
    /// `all()`: always true.
    All,
    /// `global()`: always true by itself; in a rule's namespace selector it means "not in any namespace".
    Global,
    /// `has(label)`.
    Has {
        /// Label name.
        label: &'a str,
    },
    /// A comparison with one value.
    Compare {
        /// Label name.
        label: &'a str,
        /// The operator.
        comparison: Comparison,
        /// The value to compare with.
        value: &'a str,
    },
    /// `label in {...}`.
    In {
        /// Label name.
        label: &'a str,
        /// The set.
        values: Values<'a>,
    },
    /// `label not in {...}`; true where the label is missing.
    NotIn {
        /// Label name.
        label: &'a str,
        /// The set.
        values: Values<'a>,
    },
    /// `!`.
    Not(Expr<'a>),
    /// Two or more expressions that must all hold.
    And(Operands<'a>),
    /// Two or more expressions of which one must hold.
    Or(Operands<'a>),
}

/// An operator between a label and one value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Comparison {
    /// `==`.
    Eq,
    /// `!=`; true where the label is missing.
    Ne,
    /// `contains`.
    Contains,
    /// `starts with`.
    StartsWith,
    /// `ends with`.
    EndsWith,
}

impl Comparison {
    /// The operator as canonical text writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Eq => "==",
            Self::Ne => "!=",
            Self::Contains => "contains",
            Self::StartsWith => "starts with",
            Self::EndsWith => "ends with",
        }
    }
}

// === impl Expr ===

impl<'a> Expr<'a> {
    pub(crate) fn new(text: &'a str, ops: &'a [Op]) -> Self {
        Self { text, ops }
    }

    /// What this expression is, with its parts.
    pub fn node(self) -> Node<'a> {
        // An expression has at least one element.
        let op = self.ops[0];
        let rest = Self { text: self.text, ops: &self.ops[1..] };
        let label = op.label(self.text);
        let comparison = |comparison| Node::Compare { label, comparison, value: op.value(self.text) };
        match op.kind {
            Kind::All => Node::All,
            Kind::Global => Node::Global,
            Kind::Has => Node::Has { label },
            Kind::Eq | Kind::Item => comparison(Comparison::Eq),
            Kind::Ne => comparison(Comparison::Ne),
            Kind::Contains => comparison(Comparison::Contains),
            Kind::StartsWith => comparison(Comparison::StartsWith),
            Kind::EndsWith => comparison(Comparison::EndsWith),
            Kind::In => Node::In { label, values: Values(rest) },
            Kind::NotIn => Node::NotIn { label, values: Values(rest) },
            Kind::Not => Node::Not(rest),
            Kind::And => Node::And(Operands { rest, left: op.b }),
            Kind::Or => Node::Or(Operands { rest, left: op.b }),
        }
    }

    /// True if this expression holds for the labels. Allocates nothing.
    pub fn matches<L: Labels + ?Sized>(self, labels: &L) -> bool {
        eval::eval(self.text, self.ops, labels)
    }

    /// Calls `visit` with this expression and each one inside it, outer before inner, left before right.
    pub fn walk(self, visit: &mut impl FnMut(Expr<'a>)) {
        visit(self);
        match self.node() {
            Node::Not(inner) => inner.walk(visit),
            Node::And(operands) | Node::Or(operands) => operands.for_each(|inner| inner.walk(visit)),
            _ => {}
        }
    }

    /// Canonical text with `prefix` put before each label name.
    pub(crate) fn prefixed(self, prefix: &str) -> String {
        let mut out = String::with_capacity(self.text.len() + prefix.len() * self.ops.len());
        // Writing to a string cannot fail.
        let _ = self.write(prefix, &mut out);
        out
    }

    fn write(self, prefix: &str, out: &mut dyn fmt::Write) -> fmt::Result {
        let quoted = |out: &mut dyn fmt::Write, value: &str| {
            let quote = quote_for(value);
            write!(out, "{quote}{value}{quote}")
        };
        let set = |out: &mut dyn fmt::Write, label: &str, operator: &str, values: Values<'_>| {
            write!(out, "{prefix}{label} {operator} {{")?;
            for (i, value) in values.enumerate() {
                out.write_str(if i > 0 { ", " } else { "" })?;
                quoted(out, value)?;
            }
            out.write_char('}')
        };
        let list = |out: &mut dyn fmt::Write, separator: &str, operands: Operands<'_>| {
            out.write_char('(')?;
            for (i, operand) in operands.enumerate() {
                out.write_str(if i > 0 { separator } else { "" })?;
                operand.write(prefix, out)?;
            }
            out.write_char(')')
        };
        match self.node() {
            Node::All => out.write_str("all()"),
            Node::Global => out.write_str("global()"),
            Node::Has { label } => write!(out, "has({prefix}{label})"),
            Node::Compare { label, comparison, value } => {
                write!(out, "{prefix}{label} {} ", comparison.as_str())?;
                quoted(out, value)
            }
            Node::In { label, values } => set(out, label, "in", values),
            Node::NotIn { label, values } => set(out, label, "not in", values),
            Node::Not(inner) => {
                out.write_char('!')?;
                inner.write(prefix, out)
            }
            Node::And(operands) => list(out, " && ", operands),
            Node::Or(operands) => list(out, " || ", operands),
        }
    }
}

impl fmt::Display for Expr<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write("", f)
    }
}

impl fmt::Debug for Expr<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{self}`")
    }
}

/// The operands of `&&` or `||`, left to right.
#[derive(Clone, Debug)]
pub struct Operands<'a> {
    rest: Expr<'a>,
    left: u32,
}

impl<'a> Iterator for Operands<'a> {
    type Item = Expr<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let Expr { text, ops } = self.rest;
        let (first, rest) = ops.split_at(extent(ops));
        self.rest.ops = rest;
        Some(Expr { text, ops: first })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left as usize, Some(self.left as usize))
    }
}

impl ExactSizeIterator for Operands<'_> {}

/// The values of a set: sorted by bytes, unique, possibly none.
#[derive(Clone)]
pub struct Values<'a>(Expr<'a>);

impl<'a> Iterator for Values<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<Self::Item> {
        let (first, rest) = self.0.ops.split_first()?;
        self.0.ops = rest;
        Some(first.value(self.0.text))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.0.ops.len(), Some(self.0.ops.len()))
    }
}

impl ExactSizeIterator for Values<'_> {}

impl fmt::Debug for Values<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.clone()).finish()
    }
}
