//! Interned labels: each distinct (name, value) pair is stored once and known by a number.
//!
//! Owns: label names, pairs and their reference counts. Invariant: a pair that is referenced keeps its number;
//! numbers are reused after the last release.

use std::hash::{BuildHasher, BuildHasherDefault};

use calico_net::intern::{Id, StrInterner};
use hashbrown::HashTable;
use rustc_hash::FxHasher;
use smol_str::SmolStr;

use crate::idset::IdSet;
use crate::slab::Slab;

/// Number of a (name, value) pair.
pub(crate) type PairId = u32;

#[derive(Debug)]
struct Pair {
    value: SmolStr,
    label: Id,
    refs: u32,
}

/// All labels that items, profiles and filed selectors mention.
#[derive(Debug, Default)]
pub(crate) struct LabelTable {
    names: StrInterner,
    pairs: Slab<Pair>,
    table: HashTable<PairId>,
    /// Label of each pair, apart from the pairs because searches read nothing else.
    label_of: Vec<Option<Id>>,
    /// Live pairs of each label, by the label's index.
    pairs_of: Vec<IdSet>,
    hasher: BuildHasherDefault<FxHasher>,
}

impl LabelTable {
    /// The number of a pair, with one more reference.
    pub(crate) fn acquire(&mut self, name: &str, value: &SmolStr) -> PairId {
        if let Some(label) = self.names.find(name)
            && let Some(pair) = self.find_pair(label, value)
        {
            if let Some(slot) = self.pairs.get_mut(pair) {
                slot.refs += 1;
            }
            return pair;
        }
        // One reference to the name per live pair.
        let label = self.names.acquire(name);
        let hash = self.hasher.hash_one((label, value.as_str()));
        let pair = self.pairs.insert(Pair { value: value.clone(), label, refs: 1 });
        let (pairs, hasher) = (&self.pairs, &self.hasher);
        self.table.insert_unique(hash, pair, |&p| match pairs.get(p) {
            Some(p) => hasher.hash_one((p.label, p.value.as_str())),
            None => 0,
        });
        let at = pair as usize;
        if at >= self.label_of.len() {
            self.label_of.resize(at + 1, None);
        }
        self.label_of[at] = Some(label);
        if label.index() >= self.pairs_of.len() {
            self.pairs_of.resize_with(label.index() + 1, IdSet::default);
        }
        self.pairs_of[label.index()].insert(pair);
        pair
    }

    /// Gives a reference back.
    pub(crate) fn release(&mut self, pair: PairId) {
        let Some(slot) = self.pairs.get_mut(pair) else { return };
        slot.refs -= 1;
        if slot.refs > 0 {
            return;
        }
        let hash = self.hasher.hash_one((slot.label, slot.value.as_str()));
        if let Ok(entry) = self.table.find_entry(hash, |&p| p == pair) {
            entry.remove();
        }
        if let Some(slot) = self.pairs.remove(pair) {
            self.pairs_of[slot.label.index()].remove(pair);
            self.label_of[pair as usize] = None;
            self.names.release(slot.label);
        }
    }

    /// The number of a label, with one more reference.
    pub(crate) fn acquire_label(&mut self, name: &str) -> Id {
        let label = self.names.acquire(name);
        if label.index() >= self.pairs_of.len() {
            self.pairs_of.resize_with(label.index() + 1, IdSet::default);
        }
        label
    }

    /// Gives a reference back.
    pub(crate) fn release_label(&mut self, label: Id) {
        self.names.release(label);
    }

    /// The label of that name, if anything mentions it.
    pub(crate) fn find_label(&self, name: &str) -> Option<Id> {
        self.names.find(name)
    }

    /// The pair, if anything mentions it.
    pub(crate) fn find_pair(&self, label: Id, value: &str) -> Option<PairId> {
        let hash = self.hasher.hash_one((label, value));
        let same = |p: &Pair| p.label == label && p.value == value;
        self.table.find(hash, |&p| self.pairs.get(p).is_some_and(same)).copied()
    }

    /// Label of a live pair.
    pub(crate) fn label_of(&self, pair: PairId) -> Option<Id> {
        self.label_of.get(pair as usize).copied().flatten()
    }

    /// Value of a live pair.
    pub(crate) fn value(&self, pair: PairId) -> Option<&str> {
        self.pairs.get(pair).map(|p| p.value.as_str())
    }

    /// Live pairs of a label.
    pub(crate) fn pairs_of(&self, label: Id) -> Option<&IdSet> {
        self.pairs_of.get(label.index())
    }

    /// Number of live pairs.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.pairs.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_shared_and_go_with_their_last_reference() {
        let mut t = LabelTable::default();
        let a = t.acquire("app", &"web".into());
        let b = t.acquire("app", &"db".into());
        assert_eq!(t.acquire("app", &"web".into()), a);
        assert_ne!(a, b);
        assert_eq!(t.value(b), Some("db"));
        let label = t.find_label("app").unwrap();
        assert_eq!((t.label_of(a), t.find_pair(label, "db")), (Some(label), Some(b)));
        assert_eq!(t.pairs_of(label).unwrap().to_vec(), vec![a, b]);
        t.release(a);
        assert_eq!(t.find_pair(label, "web"), Some(a));
        t.release(a);
        assert_eq!(t.find_pair(label, "web"), None);
        t.release(b);
        assert_eq!((t.find_label("app"), t.len()), (None, 0));
        let c = t.acquire_label("zone");
        assert_eq!(t.find_label("zone"), Some(c));
        t.release_label(c);
        assert_eq!(t.find_label("zone"), None);
    }
}
