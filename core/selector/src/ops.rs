//! How an expression is laid out in memory: one flat list in prefix order.
//!
//! Invariants: an operand of [`Kind::Not`], [`Kind::And`] and [`Kind::Or`] follows its operator; the values
//! of a set follow it as [`Kind::Item`]s, sorted by bytes and unique; offsets point at whole characters of
//! the text that goes with the list (the source while parsing, the canonical text afterwards).

/// What an [`Op`] is and how its fields are used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// `all()`.
    All,
    /// `global()`.
    Global,
    /// `has(label)`.
    Has,
    /// `label == value`; `a` and `b` are start and length of the value, as in the next four.
    Eq,
    /// `label != value`.
    Ne,
    /// `label contains value`.
    Contains,
    /// `label starts with value`.
    StartsWith,
    /// `label ends with value`.
    EndsWith,
    /// `label in {...}`; `a` items follow, as in the next one.
    In,
    /// `label not in {...}`.
    NotIn,
    /// A value of a set; `a` and `b` are its start and length.
    Item,
    /// `!`; one operand follows.
    Not,
    /// `&&`; the operator and its `b` operands take `a` places.
    And,
    /// `||`; as `&&`.
    Or,
}

/// One element of an expression: 16 bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Op {
    pub(crate) kind: Kind,
    /// Length of the label in bytes.
    pub(crate) label_len: u16,
    /// Start of the label; of the expression's text where there is no label.
    pub(crate) at: u32,
    pub(crate) a: u32,
    pub(crate) b: u32,
}

impl Op {
    /// An element without label and operands.
    pub(crate) fn bare(kind: Kind) -> Self {
        Self { kind, label_len: 0, at: 0, a: 0, b: 0 }
    }

    /// The label, out of the text of this list.
    pub(crate) fn label(self, text: &str) -> &str {
        slice(text, self.at, u32::from(self.label_len))
    }

    /// The value of a comparison or an item, out of the text of this list.
    pub(crate) fn value(self, text: &str) -> &str {
        slice(text, self.a, self.b)
    }
}

/// Places taken by the expression that starts the list.
pub(crate) fn extent(ops: &[Op]) -> usize {
    let mut places = 0;
    while let Some(op) = ops.get(places) {
        match op.kind {
            Kind::Not => places += 1,
            Kind::In | Kind::NotIn => return places + 1 + op.a as usize,
            Kind::And | Kind::Or => return places + op.a as usize,
            _ => return places + 1,
        }
    }
    places
}

fn slice(text: &str, start: u32, len: u32) -> &str {
    &text[start as usize..][..len as usize]
}
