//! What should be and what is, side by side, with the difference kept up to date.

use std::hash::Hash;

use hashbrown::{HashMap, HashSet};

#[derive(Debug, Clone)]
struct Entry<V> {
    desired: Option<V>,
    actual: Option<V>,
}

/// Desired and actual values by key; changes on either side keep the set of differing keys current, so that
/// finding the difference costs what the difference is, not what the whole is.
#[derive(Debug, Clone)]
pub struct DeltaTracker<K, V> {
    entries: HashMap<K, Entry<V>>,
    dirty: HashSet<K>,
}

impl<K, V> Default for DeltaTracker<K, V> {
    fn default() -> Self {
        Self { entries: HashMap::new(), dirty: HashSet::new() }
    }
}

impl<K: Eq + Hash + Clone + Ord, V: PartialEq + Clone> DeltaTracker<K, V> {
    /// Wants `key` to have `value`.
    pub fn set(&mut self, key: K, value: V) {
        self.entry(key, |e| e.desired = Some(value));
    }

    /// Wants `key` to be absent.
    pub fn remove(&mut self, key: &K) {
        if self.entries.contains_key(key) {
            self.entry(key.clone(), |e| e.desired = None);
        }
    }

    /// Learns that `key` now has `value`.
    pub fn saw(&mut self, key: K, value: V) {
        self.entry(key, |e| e.actual = Some(value));
    }

    /// Learns that `key` is absent.
    pub fn saw_absent(&mut self, key: &K) {
        if self.entries.contains_key(key) {
            self.entry(key.clone(), |e| e.actual = None);
        }
    }

    /// Replaces all that was known to be there.
    pub fn saw_all(&mut self, actual: impl IntoIterator<Item = (K, V)>) {
        self.saw_nothing();
        for (key, value) in actual {
            self.saw(key, value);
        }
    }

    /// Learns that nothing is there.
    pub fn saw_nothing(&mut self) {
        self.dirty.clear();
        self.entries.retain(|_, e| {
            e.actual = None;
            e.desired.is_some()
        });
        self.dirty.extend(self.entries.keys().cloned());
    }

    /// Learns that all wishes were carried out.
    pub fn done_all(&mut self) {
        for key in self.dirty.drain() {
            let gone = self.entries.get_mut(&key).is_some_and(|e| {
                e.actual.clone_from(&e.desired);
                e.desired.is_none()
            });
            if gone {
                self.entries.remove(&key);
            }
        }
    }

    /// Learns that the wish for `key` was carried out.
    pub fn done(&mut self, key: &K) {
        if let Some(e) = self.entries.get(key) {
            let desired = e.desired.clone();
            self.entry(key.clone(), |e| e.actual = desired);
        }
    }

    fn entry(&mut self, key: K, change: impl FnOnce(&mut Entry<V>)) {
        let e = self.entries.entry(key.clone()).or_insert(Entry { desired: None, actual: None });
        change(e);
        if e.desired == e.actual {
            if e.desired.is_none() {
                self.entries.remove(&key);
            }
            self.dirty.remove(&key);
        } else {
            self.dirty.insert(key);
        }
    }

    /// The desired value.
    pub fn desired(&self, key: &K) -> Option<&V> {
        self.entries.get(key)?.desired.as_ref()
    }

    /// The actual value.
    pub fn actual(&self, key: &K) -> Option<&V> {
        self.entries.get(key)?.actual.as_ref()
    }

    /// Keys and values that are wanted.
    pub fn all_desired(&self) -> impl Iterator<Item = (&K, &V)> {
        self.entries.iter().filter_map(|(k, e)| Some((k, e.desired.as_ref()?)))
    }

    /// Keys and values that are there.
    pub fn all_actual(&self) -> impl Iterator<Item = (&K, &V)> {
        self.entries.iter().filter_map(|(k, e)| Some((k, e.actual.as_ref()?)))
    }

    /// True if nothing differs.
    pub fn is_clean(&self) -> bool {
        self.dirty.is_empty()
    }

    /// Number of keys that differ.
    pub fn dirty_len(&self) -> usize {
        self.dirty.len()
    }

    /// Number of keys that are there.
    pub fn actual_len(&self) -> usize {
        self.entries.values().filter(|e| e.actual.is_some()).count()
    }

    /// Keys to be written, with their values, sorted.
    pub fn updates(&self) -> Vec<(&K, &V)> {
        let mut out: Vec<_> =
            self.dirty.iter().filter_map(|k| Some((k, self.entries.get(k)?.desired.as_ref()?))).collect();
        out.sort_unstable_by(|a, b| a.0.cmp(b.0));
        out
    }

    /// Keys to be deleted, sorted.
    pub fn deletes(&self) -> Vec<&K> {
        let mut out: Vec<_> = self.dirty.iter().filter(|k| self.desired(k).is_none()).collect();
        out.sort_unstable();
        out
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, Clone)]
    enum Step {
        Set(u8, u8),
        Remove(u8),
        Saw(u8, u8),
        Absent(u8),
        All(BTreeMap<u8, u8>),
        Done(u8),
        DoneAll,
    }

    fn step() -> impl Strategy<Value = Step> {
        let k = 0u8..6;
        let v = 0u8..3;
        prop_oneof![
            (k.clone(), v.clone()).prop_map(|(k, v)| Step::Set(k, v)),
            k.clone().prop_map(Step::Remove),
            (k.clone(), v.clone()).prop_map(|(k, v)| Step::Saw(k, v)),
            k.clone().prop_map(Step::Absent),
            prop::collection::btree_map(k.clone(), v, 0..6).prop_map(Step::All),
            k.prop_map(Step::Done),
            Just(Step::DoneAll),
        ]
    }

    proptest! {
        #[test]
        fn difference_is_always_the_difference(steps in prop::collection::vec(step(), 0..60)) {
            let mut t = DeltaTracker::default();
            let (mut want, mut have) = (BTreeMap::new(), BTreeMap::new());
            for s in steps {
                match s {
                    Step::Set(k, v) => { t.set(k, v); want.insert(k, v); }
                    Step::Remove(k) => { t.remove(&k); want.remove(&k); }
                    Step::Saw(k, v) => { t.saw(k, v); have.insert(k, v); }
                    Step::Absent(k) => { t.saw_absent(&k); have.remove(&k); }
                    Step::All(m) => { t.saw_all(m.clone()); have = m; }
                    Step::Done(k) => {
                        t.done(&k);
                        match want.get(&k) {
                            Some(v) => have.insert(k, *v),
                            None => have.remove(&k),
                        };
                    }
                    Step::DoneAll => { t.done_all(); have = want.clone(); }
                }
                let updates: Vec<_> =
                    want.iter().filter(|(k, v)| have.get(k) != Some(v)).map(|(k, v)| (*k, *v)).collect();
                let deletes: Vec<_> = have.keys().filter(|k| !want.contains_key(k)).copied().collect();
                prop_assert_eq!(t.updates().into_iter().map(|(k, v)| (*k, *v)).collect::<Vec<_>>(), updates.clone());
                prop_assert_eq!(t.deletes().into_iter().copied().collect::<Vec<_>>(), deletes.clone());
                prop_assert_eq!(t.dirty_len(), updates.len() + deletes.len());
                prop_assert_eq!(t.actual_len(), have.len());
            }
        }
    }
}
