//! What a selector demands of single labels, for indexes.
//!
//! Contract: if a selector matches, each of its restrictions holds (necessary, not sufficient). An index
//! that skips a selector whose restrictions fail never misses a match.

use smol_str::SmolStr;

use crate::expr::{Comparison, Expr, Node, Operands, Values};

/// What one label must look like.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelRestriction {
    /// The label must exist.
    pub must_be_present: bool,
    /// The label must not exist.
    pub must_be_absent: bool,
    /// The label's value must be one of these (sorted, unique); `None`: any value. Some empty list: no
    /// value is left.
    pub must_have_one_of: Option<Vec<SmolStr>>,
}

impl LabelRestriction {
    /// True if some value, or the absence of the label, satisfies the restriction.
    pub fn is_satisfiable(&self) -> bool {
        !(self.must_be_present && self.must_be_absent)
            && self.must_have_one_of.as_ref().is_none_or(|values| !values.is_empty())
    }

    /// True if the label's value, or its absence, satisfies the restriction.
    pub fn allows(&self, value: Option<&str>) -> bool {
        match value {
            None => !self.must_be_present,
            Some(value) => {
                let listed =
                    |values: &Vec<SmolStr>| values.binary_search_by(|v| v.as_str().cmp(value)).is_ok();
                !self.must_be_absent && self.must_have_one_of.as_ref().is_none_or(listed)
            }
        }
    }

    fn present(values: Option<Vec<SmolStr>>) -> Self {
        Self { must_be_present: true, must_be_absent: false, must_have_one_of: values }
    }

    /// Both must hold.
    fn and(&mut self, other: Self) {
        self.must_be_present |= other.must_be_present;
        self.must_be_absent |= other.must_be_absent;
        match (&mut self.must_have_one_of, other.must_have_one_of) {
            (Some(mine), Some(theirs)) => mine.retain(|v| theirs.binary_search(v).is_ok()),
            (mine @ None, theirs) => *mine = theirs,
            (Some(_), None) => {}
        }
    }

    /// One of them must hold; false if that demands nothing.
    fn or(&mut self, other: &Self) -> bool {
        self.must_be_present &= other.must_be_present;
        self.must_be_absent &= other.must_be_absent;
        match (&mut self.must_have_one_of, &other.must_have_one_of) {
            (Some(mine), Some(theirs)) => {
                mine.extend(theirs.iter().cloned());
                mine.sort_unstable();
                mine.dedup();
            }
            (mine, _) => *mine = None,
        }
        self.must_be_present || self.must_be_absent
    }
}

/// The restrictions of a selector by label name; labels that are free are not listed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelRestrictions(Box<[(SmolStr, LabelRestriction)]>);

impl LabelRestrictions {
    /// Restrictions of an expression: `==` and `in` demand a value, `has`, `contains`, `starts with` and
    /// `ends with` a label, `!has` its absence; `&&` demands what any operand does, `||` what all do.
    pub(crate) fn of(expr: Expr<'_>) -> Self {
        Self(collect(expr).into_iter().map(|(label, r)| (label.into(), r)).collect())
    }

    /// The restriction of a label; `None` if it is free.
    pub fn get(&self, label: &str) -> Option<&LabelRestriction> {
        let at = self.0.binary_search_by(|(l, _)| l.as_str().cmp(label)).ok()?;
        self.0.get(at).map(|(_, restriction)| restriction)
    }

    /// All restrictions, by label name in byte order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&SmolStr, &LabelRestriction)> {
        self.0.iter().map(|(label, restriction)| (label, restriction))
    }

    /// Number of restricted labels.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if no label is restricted.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// False if the selector certainly matches nothing.
    pub fn is_satisfiable(&self) -> bool {
        self.0.iter().all(|(_, restriction)| restriction.is_satisfiable())
    }
}

/// Sorted by label, each label once.
type ByLabel<'a> = Vec<(&'a str, LabelRestriction)>;

// `collect`, `all_of` and `any_of` call one another as deep as the selector is nested; what needs room on the
// stack is in functions of its own.

fn collect(expr: Expr<'_>) -> ByLabel<'_> {
    match expr.node() {
        Node::And(operands) => all_of(operands),
        Node::Or(operands) => any_of(operands),
        leaf => of_leaf(leaf),
    }
}

fn all_of(operands: Operands<'_>) -> ByLabel<'_> {
    let mut all = ByLabel::new();
    for operand in operands {
        all.append(&mut collect(operand));
    }
    all.sort_by_key(|(label, _)| *label);
    all.dedup_by(|(label, restriction), (kept, into)| {
        let same = label == kept;
        if same {
            into.and(std::mem::take(restriction));
        }
        same
    });
    all
}

fn any_of(mut operands: Operands<'_>) -> ByLabel<'_> {
    let mut common = operands.next().map(collect).unwrap_or_default();
    for operand in operands {
        if common.is_empty() {
            break;
        }
        keep_common(&mut common, &collect(operand));
    }
    common
}

fn keep_common(mine: &mut ByLabel<'_>, other: &ByLabel<'_>) {
    mine.retain_mut(|(label, restriction)| {
        let theirs = other.binary_search_by_key(label, |(l, _)| *l).ok().and_then(|at| other.get(at));
        theirs.is_some_and(|(_, theirs)| restriction.or(theirs))
    });
}

/// Restrictions of anything but `&&` and `||`.
fn of_leaf(node: Node<'_>) -> ByLabel<'_> {
    match node {
        Node::Has { label } => vec![(label, LabelRestriction::present(None))],
        Node::Compare { label, comparison: Comparison::Eq, value } => {
            vec![(label, LabelRestriction::present(Some(vec![value.into()])))]
        }
        Node::Compare { label, comparison, .. } if comparison != Comparison::Ne => {
            vec![(label, LabelRestriction::present(None))]
        }
        Node::In { label, values } => vec![(label, LabelRestriction::present(limit(values)))],
        Node::Not(inner) => match inner.node() {
            Node::Has { label } => {
                vec![(label, LabelRestriction { must_be_absent: true, ..LabelRestriction::default() })]
            }
            _ => ByLabel::new(),
        },
        _ => ByLabel::new(),
    }
}

/// The values of a set as a limit. The empty set, which matches nothing, sets none: indexes then file the
/// selector by the label name as upstream's do.
fn limit(values: Values<'_>) -> Option<Vec<SmolStr>> {
    (values.len() > 0).then(|| values.map(SmolStr::new).collect())
}
