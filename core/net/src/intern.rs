//! A reference-counting interner: equal values share one small id.
//!
//! Owns: the values, their counts and the free list of ids. In: borrowed values. Out: [`Id`]s, four bytes
//! each (`Option<Id>` too). Invariants: two live ids differ exactly if their values differ; an id stays
//! valid until its last reference is released and may be handed out again after that.

use std::borrow::Borrow;
use std::fmt;
use std::hash::{BuildHasher, BuildHasherDefault, Hash};
use std::num::NonZeroU32;

use hashbrown::HashTable;
use rustc_hash::FxHasher;
use smol_str::SmolStr;

/// An interner of strings, the common case.
pub type StrInterner = Interner<SmolStr>;

/// The id of an interned value, meaningful to the interner that made it.
///
/// Ids are small and dense (0, 1, 2, ... with gaps refilled first), so they can index an array.
/// Their order says nothing about the order of the values.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id(NonZeroU32);

impl Id {
    /// The id as an array index.
    pub fn index(self) -> usize {
        self.0.get() as usize - 1
    }

    /// The id of array index `index`; `None` above `u32::MAX - 1`.
    pub fn from_index(index: usize) -> Option<Self> {
        u32::try_from(index).ok()?.checked_add(1).and_then(NonZeroU32::new).map(Self)
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.index())
    }
}

enum Slot<K> {
    Used { key: K, refs: u32 },
    Free { next: Option<Id> },
}

/// Gives equal values one id and counts the references to it.
pub struct Interner<K> {
    slots: Vec<Slot<K>>,
    table: HashTable<Id>,
    free: Option<Id>,
    hasher: BuildHasherDefault<FxHasher>,
}

impl<K> Default for Interner<K> {
    fn default() -> Self {
        Self { slots: Vec::new(), table: HashTable::new(), free: None, hasher: BuildHasherDefault::default() }
    }
}

impl<K: Hash + Eq> Interner<K> {
    /// An empty interner; allocates nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// The id of `key`, with one more reference to it. The value is copied only when it is new.
    ///
    /// Every call must be matched by one [`Interner::release`].
    pub fn acquire<Q>(&mut self, key: &Q) -> Id
    where
        K: Borrow<Q> + for<'a> From<&'a Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.acquire_with(key, |key| K::from(key))
    }

    /// As [`Interner::acquire`], with the way to make an owned value given by the caller.
    pub fn acquire_with<Q>(&mut self, key: &Q, own: impl FnOnce(&Q) -> K) -> Id
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        if let Some(id) = self.find(key) {
            self.retain(id);
            return id;
        }
        let hash = self.hasher.hash_one(key);
        let used = Slot::Used { key: own(key), refs: 1 };
        let id = match self.free {
            Some(id) => {
                if let Slot::Free { next } = self.slots[id.index()] {
                    self.free = next;
                }
                self.slots[id.index()] = used;
                id
            }
            None => {
                let id = Id::from_index(self.slots.len()).expect("fewer than 2^32 values are alive at once");
                self.slots.push(used);
                id
            }
        };
        let (slots, hasher) = (&self.slots, &self.hasher);
        self.table.insert_unique(hash, id, |&id| match &slots[id.index()] {
            Slot::Used { key, .. } => hasher.hash_one(key.borrow()),
            Slot::Free { .. } => 0,
        });
        id
    }

    /// The id of `key` if it is interned; takes no reference.
    pub fn find<Q>(&self, key: &Q) -> Option<Id>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let hash = self.hasher.hash_one(key);
        self.table.find(hash, |&id| self.get(id).is_some_and(|k| k.borrow() == key)).copied()
    }

    /// The value of a live id.
    pub fn get(&self, id: Id) -> Option<&K> {
        match self.slots.get(id.index())? {
            Slot::Used { key, .. } => Some(key),
            Slot::Free { .. } => None,
        }
    }

    /// Takes one more reference to a live id; false if the id is not live.
    pub fn retain(&mut self, id: Id) -> bool {
        match self.slots.get_mut(id.index()) {
            Some(Slot::Used { refs, .. }) => {
                // A count that reaches the top stays there: the value then lives as long as the interner.
                *refs = refs.saturating_add(1);
                true
            }
            _ => false,
        }
    }

    /// Gives one reference back. Returns the value if that was the last one; its id is then free to be
    /// reused. `None` if references remain or the id is not live.
    pub fn release(&mut self, id: Id) -> Option<K> {
        match self.slots.get_mut(id.index())? {
            Slot::Used { refs: u32::MAX, .. } | Slot::Free { .. } => return None,
            Slot::Used { refs, .. } if *refs > 1 => {
                *refs -= 1;
                return None;
            }
            Slot::Used { .. } => {}
        }
        let slot = std::mem::replace(&mut self.slots[id.index()], Slot::Free { next: self.free });
        self.free = Some(id);
        let Slot::Used { key, .. } = slot else { return None };
        if let Ok(entry) = self.table.find_entry(self.hasher.hash_one(&key), |&other| other == id) {
            entry.remove();
        }
        Some(key)
    }

    /// Number of references to an id; 0 if it is not live.
    pub fn references(&self, id: Id) -> u32 {
        match self.slots.get(id.index()) {
            Some(Slot::Used { refs, .. }) => *refs,
            _ => 0,
        }
    }

    /// Number of live values.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// True if nothing is interned.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }
}

impl<K: fmt::Debug> fmt::Debug for Interner<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let used = self.slots.iter().enumerate().filter_map(|(i, slot)| match slot {
            Slot::Used { key, refs } => Some((i, (key, refs))),
            Slot::Free { .. } => None,
        });
        f.debug_map().entries(used).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn equal_values_share_an_id() {
        let mut i = StrInterner::new();
        let a = i.acquire("a");
        let b = i.acquire("b");
        assert_ne!(a, b);
        assert_eq!(i.acquire("a"), a);
        assert_eq!(i.get(a).map(SmolStr::as_str), Some("a"));
        assert_eq!((i.references(a), i.references(b), i.len()), (2, 1, 2));
        assert_eq!(format!("{a:?} {b:?}"), "#0 #1");
    }

    #[test]
    fn the_last_release_frees_and_the_id_is_reused() {
        let mut i = StrInterner::new();
        let a = i.acquire("a");
        i.acquire("a");
        assert_eq!(i.release(a), None);
        assert_eq!(i.release(a).as_deref(), Some("a"));
        assert_eq!((i.retain(a), i.release(a)), (false, None));
        assert_eq!((i.find("a"), i.get(a), i.references(a)), (None, None, 0));
        assert_eq!(i.acquire("c"), a);
        assert_eq!(i.get(a).map(SmolStr::as_str), Some("c"));
    }

    #[test]
    fn other_key_types() {
        let mut i: Interner<Vec<u8>> = Interner::new();
        let id = i.acquire_with(&b"xy"[..], <[u8]>::to_vec);
        assert_eq!(i.find(&b"xy"[..]), Some(id));
        assert_eq!(size_of::<Option<Id>>(), 4);
        assert_eq!(Id::from_index(u32::MAX as usize), None);
    }

    proptest! {
        /// Against a map of counts: same liveness, same counts, one id per value.
        #[test]
        fn behaves_like_a_map_of_counts(steps in proptest::collection::vec((0u8..12, any::<bool>()), 0..200)) {
            let mut interner = StrInterner::new();
            let mut model: BTreeMap<String, (Id, u32)> = BTreeMap::new();
            for (n, take) in steps {
                let key = format!("key-{n}");
                if take {
                    let id = interner.acquire(key.as_str());
                    let entry = model.entry(key).or_insert((id, 0));
                    prop_assert_eq!(entry.0, id);
                    entry.1 += 1;
                } else if let Some((id, refs)) = model.get_mut(&key) {
                    *refs -= 1;
                    let last = *refs == 0;
                    prop_assert_eq!(interner.release(*id).is_some(), last);
                    if last {
                        model.remove(&key);
                    }
                } else {
                    prop_assert_eq!(interner.find(key.as_str()), None);
                }
                prop_assert_eq!(interner.len(), model.len());
                prop_assert!(interner.slots.len() <= 12, "ids are reused");
                for (key, (id, refs)) in &model {
                    prop_assert_eq!(interner.find(key.as_str()), Some(*id));
                    prop_assert_eq!(interner.references(*id), *refs);
                }
            }
        }
    }
}
