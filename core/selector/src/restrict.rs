//! What a selector demands of single labels, for indexes.
//!
//! Contract: if a selector matches, each of its restrictions holds (necessary, not sufficient). An index
//! that skips a selector whose restrictions fail never misses a match.

use std::collections::BTreeMap;

use smol_str::SmolStr;

use crate::expr::{Comparison, Expr, Node, Values};

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

    /// One of them must hold; `None` if that demands nothing.
    fn or(mut self, other: &Self) -> Option<Self> {
        self.must_be_present &= other.must_be_present;
        self.must_be_absent &= other.must_be_absent;
        self.must_have_one_of = match (self.must_have_one_of, &other.must_have_one_of) {
            (Some(mut mine), Some(theirs)) => {
                mine.extend(theirs.iter().cloned());
                mine.sort_unstable();
                mine.dedup();
                Some(mine)
            }
            _ => None,
        };
        (self.must_be_present || self.must_be_absent).then_some(self)
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

type ByLabel<'a> = BTreeMap<&'a str, LabelRestriction>;

fn collect(expr: Expr<'_>) -> ByLabel<'_> {
    let one = |label, restriction| ByLabel::from([(label, restriction)]);
    match expr.node() {
        Node::Has { label } => one(label, LabelRestriction::present(None)),
        Node::Compare { label, comparison, value } => match comparison {
            Comparison::Eq => one(label, LabelRestriction::present(Some(vec![value.into()]))),
            Comparison::Ne => ByLabel::new(),
            Comparison::Contains | Comparison::StartsWith | Comparison::EndsWith => {
                one(label, LabelRestriction::present(None))
            }
        },
        Node::In { label, values } => one(label, LabelRestriction::present(limit(values))),
        Node::Not(inner) => match inner.node() {
            Node::Has { label } => {
                one(label, LabelRestriction { must_be_absent: true, ..LabelRestriction::default() })
            }
            _ => ByLabel::new(),
        },
        Node::And(operands) => {
            let mut all = ByLabel::new();
            for (label, restriction) in operands.flat_map(collect) {
                all.entry(label).or_default().and(restriction);
            }
            all
        }
        Node::Or(mut operands) => {
            let mut common = operands.next().map(collect).unwrap_or_default();
            for operand in operands {
                if common.is_empty() {
                    break;
                }
                let other = collect(operand);
                common = common
                    .into_iter()
                    .filter_map(|(label, mine)| Some((label, mine.or(other.get(label)?)?)))
                    .collect();
            }
            common
        }
        Node::All | Node::Global | Node::NotIn { .. } => ByLabel::new(),
    }
}

/// The values of a set as a limit. The empty set, which matches nothing, sets none: indexes then file the
/// selector by the label name as upstream's do.
fn limit(values: Values<'_>) -> Option<Vec<SmolStr>> {
    (values.len() > 0).then(|| values.map(SmolStr::new).collect())
}
