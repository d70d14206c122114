//! A view of a selector's expression for code that looks into it: explainers, indexes, converters.

use std::fmt;

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

    /// This expression and each one inside it, outer before inner, left before right.
    pub fn parts(self) -> impl Iterator<Item = Expr<'a>> {
        let starts = (0..self.ops.len()).filter(move |&at| self.ops[at].kind != Kind::Item);
        starts.map(move |at| {
            let ops = &self.ops[at..];
            Self { text: self.text, ops: &ops[..extent(ops)] }
        })
    }

    /// Canonical text of this expression.
    pub fn canonical(self) -> &'a str {
        &self.text[self.start()..self.end()]
    }

    /// Canonical text with `prefix` put before each label name.
    pub(crate) fn prefixed(self, prefix: &str) -> String {
        let mut out = String::with_capacity(self.text.len() + prefix.len() * self.ops.len());
        let mut written = self.start();
        for op in self.ops.iter().filter(|op| op.label_len > 0) {
            let label = op.at as usize;
            out.push_str(&self.text[written..label]);
            out.push_str(prefix);
            written = label;
        }
        out.push_str(&self.text[written..self.end()]);
        out
    }

    fn start(self) -> usize {
        let op = self.ops[0];
        op.at as usize - if op.kind == Kind::Has { "has(".len() } else { 0 }
    }

    /// Where the text ends: after the last part of the last part, plus a parenthesis for each level.
    fn end(self) -> usize {
        let (mut last, mut parentheses) = (self, 0);
        loop {
            match last.node() {
                Node::Not(inner) => last = inner,
                Node::And(operands) | Node::Or(operands) => {
                    parentheses += ")".len();
                    last = operands.last().unwrap_or(last);
                }
                _ => break,
            }
        }
        let op = last.ops[0];
        let (start, label_end) = (op.at as usize, (op.at + u32::from(op.label_len)) as usize);
        let end = match op.kind {
            Kind::All => start + "all()".len(),
            Kind::Global => start + "global()".len(),
            Kind::Has => label_end + ")".len(),
            Kind::In | Kind::NotIn => match &last.ops[1..] {
                [.., item] => (item.a + item.b) as usize + "'}".len(),
                [] if op.kind == Kind::In => label_end + " in {}".len(),
                [] => label_end + " not in {}".len(),
            },
            _ => (op.a + op.b) as usize + "'".len(),
        };
        end + parentheses
    }
}

impl fmt::Display for Expr<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.canonical())
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
