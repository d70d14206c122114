//! Evaluation of an expression over labels.

use std::borrow::Borrow;
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, Hash};

use crate::ops::{Kind, Op, extent};

/// Sets up to this size are searched from front to back.
const SMALL_SET: usize = 8;

/// Something that has labels.
pub trait Labels {
    /// The value of a label; `None` if there is no such label.
    fn get(&self, name: &str) -> Option<&str>;
}

impl<L: Labels + ?Sized> Labels for &L {
    fn get(&self, name: &str) -> Option<&str> {
        (**self).get(name)
    }
}

impl<K: Borrow<str> + Ord, V: AsRef<str>> Labels for BTreeMap<K, V> {
    fn get(&self, name: &str) -> Option<&str> {
        BTreeMap::get(self, name).map(V::as_ref)
    }
}

impl<K: Borrow<str> + Hash + Eq, V: AsRef<str>, S: BuildHasher> Labels for HashMap<K, V, S> {
    fn get(&self, name: &str) -> Option<&str> {
        HashMap::get(self, name).map(V::as_ref)
    }
}

/// The first pair with the name counts.
impl<K: AsRef<str>, V: AsRef<str>> Labels for [(K, V)] {
    fn get(&self, name: &str) -> Option<&str> {
        self.iter().find(|(key, _)| key.as_ref() == name).map(|(_, value)| value.as_ref())
    }
}

impl<K: AsRef<str>, V: AsRef<str>, const N: usize> Labels for [(K, V); N] {
    fn get(&self, name: &str) -> Option<&str> {
        Labels::get(&self[..], name)
    }
}

impl<K: AsRef<str>, V: AsRef<str>> Labels for Vec<(K, V)> {
    fn get(&self, name: &str) -> Option<&str> {
        Labels::get(&self[..], name)
    }
}

/// Evaluates the expression that starts the list.
pub(crate) fn eval<L: Labels + ?Sized>(text: &str, mut ops: &[Op], labels: &L) -> bool {
    let mut negated = false;
    while let [Op { kind: Kind::Not, .. }, rest @ ..] = ops {
        negated = !negated;
        ops = rest;
    }
    let Some((op, rest)) = ops.split_first() else { return negated };
    let label = || labels.get(op.label(text));
    let value = || op.value(text);
    let holds = match op.kind {
        Kind::All | Kind::Global => true,
        Kind::Has => label().is_some(),
        Kind::Eq | Kind::Item => label() == Some(value()),
        Kind::Ne => label() != Some(value()),
        Kind::Contains => label().is_some_and(|l| l.contains(value())),
        Kind::StartsWith => label().is_some_and(|l| l.starts_with(value())),
        Kind::EndsWith => label().is_some_and(|l| l.ends_with(value())),
        Kind::In => label().is_some_and(|l| has_value(text, &rest[..op.a as usize], l)),
        Kind::NotIn => !label().is_some_and(|l| has_value(text, &rest[..op.a as usize], l)),
        Kind::Not => false,
        Kind::And => !any_is(false, text, rest, op.b, labels),
        Kind::Or => any_is(true, text, rest, op.b, labels),
    };
    holds != negated
}

/// True if one of the operands evaluates to `wanted`; stops at the first.
fn any_is<L: Labels + ?Sized>(wanted: bool, text: &str, mut ops: &[Op], count: u32, labels: &L) -> bool {
    for _ in 0..count {
        let (operand, rest) = ops.split_at(extent(ops));
        if eval(text, operand, labels) == wanted {
            return true;
        }
        ops = rest;
    }
    false
}

fn has_value(text: &str, items: &[Op], value: &str) -> bool {
    if items.len() <= SMALL_SET {
        items.iter().any(|item| item.value(text) == value)
    } else {
        items.binary_search_by(|item| item.value(text).cmp(value)).is_ok()
    }
}
