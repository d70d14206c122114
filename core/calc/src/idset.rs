//! Sets of small integers that stay small in memory.
//!
//! Owns: [`IdSet`], used for posting lists (which items carry a label), filings (which selectors ask for one)
//! and matches. Most such sets hold few numbers, some hold a third of all items; each size has its own form: up to
//! three numbers take no memory of their own, and in the large ones a number costs between two bytes and a bit.
//! Invariant: iteration is in ascending order.

const FEW_MAX: usize = 3;
const SMALL_MAX: usize = 32;
const ARRAY_MAX: usize = 4096;
const BITS_MIN: u32 = 2048;
const WORDS: usize = 1024;

/// A set of `u32`.
#[derive(Debug)]
pub(crate) enum IdSet {
    /// The first `len` of `ids`, sorted.
    Few {
        len: u8,
        ids: [u32; FEW_MAX],
    },
    /// Sorted; more than [`FEW_MAX`], at most [`SMALL_MAX`] numbers. A box around the vector keeps the enum at 16
    /// bytes.
    #[expect(clippy::box_collection, reason = "a bare vector would double the size of every set")]
    Small(Box<Vec<u32>>),
    Large(Box<Large>),
}

impl Default for IdSet {
    fn default() -> Self {
        Self::EMPTY
    }
}

/// Numbers grouped by their upper half.
#[derive(Debug)]
pub(crate) struct Large {
    len: usize,
    chunks: Vec<Chunk>,
}

#[derive(Debug)]
struct Chunk {
    high: u16,
    body: Body,
}

#[derive(Debug)]
enum Body {
    Array(Vec<u16>),
    Bits { words: Box<[u64; WORDS]>, len: u32 },
}

fn split(id: u32) -> (u16, u16) {
    ((id >> 16) as u16, id as u16)
}

fn join(high: u16, low: u16) -> u32 {
    u32::from(high) << 16 | u32::from(low)
}

/// Pushes at `at`, growing by a quarter rather than by doubling: these vectors are many and long-lived.
fn insert_tight<T>(v: &mut Vec<T>, at: usize, value: T) {
    if v.len() == v.capacity() {
        v.reserve_exact((v.len() / 4).max(2));
    }
    v.insert(at, value);
}

// === impl IdSet ===

impl IdSet {
    /// The set without members.
    pub(crate) const EMPTY: Self = Self::Few { len: 0, ids: [0; FEW_MAX] };

    /// Number of members.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Few { len, .. } => usize::from(*len),
            Self::Small(v) => v.len(),
            Self::Large(large) => large.len,
        }
    }

    /// True if nothing is in it.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// True if `id` is in it.
    pub(crate) fn contains(&self, id: u32) -> bool {
        match self {
            Self::Few { len, ids } => ids[..usize::from(*len)].contains(&id),
            Self::Small(v) => v.binary_search(&id).is_ok(),
            Self::Large(large) => large.contains(id),
        }
    }

    /// Adds `id`; false if it was there.
    pub(crate) fn insert(&mut self, id: u32) -> bool {
        match self {
            Self::Few { len, ids } => {
                let used = usize::from(*len);
                let Err(at) = ids[..used].binary_search(&id) else { return false };
                if used < FEW_MAX {
                    ids.copy_within(at..used, at + 1);
                    ids[at] = id;
                    *len += 1;
                } else {
                    let mut v = Vec::with_capacity(FEW_MAX + 1);
                    v.extend_from_slice(ids);
                    v.insert(at, id);
                    *self = Self::Small(Box::new(v));
                }
            }
            Self::Small(v) => match v.binary_search(&id) {
                Ok(_) => return false,
                Err(at) if v.len() < SMALL_MAX => insert_tight(v, at, id),
                Err(_) => {
                    let mut large = Large { len: 0, chunks: Vec::new() };
                    for &old in v.iter() {
                        large.insert(old);
                    }
                    large.insert(id);
                    *self = Self::Large(Box::new(large));
                }
            },
            Self::Large(large) => return large.insert(id),
        }
        true
    }

    /// Takes `id` out; false if it was not there.
    pub(crate) fn remove(&mut self, id: u32) -> bool {
        match self {
            Self::Few { len, ids } => {
                let used = usize::from(*len);
                let Ok(at) = ids[..used].binary_search(&id) else { return false };
                ids.copy_within(at + 1..used, at);
                *len -= 1;
            }
            Self::Small(v) => {
                let Ok(at) = v.binary_search(&id) else { return false };
                v.remove(at);
                if v.len() <= FEW_MAX {
                    *self = Self::from_sorted(&std::mem::take(&mut **v));
                }
            }
            Self::Large(large) => {
                if !large.remove(id) {
                    return false;
                }
                if large.len <= SMALL_MAX / 2 {
                    let mut all = Vec::with_capacity(large.len);
                    large.for_each(&mut |id| all.push(id));
                    *self = Self::from_sorted(&all);
                }
            }
        }
        true
    }

    /// Calls `f` with each member in ascending order.
    pub(crate) fn for_each(&self, mut f: impl FnMut(u32)) {
        match self {
            Self::Few { len, ids } => ids[..usize::from(*len)].iter().for_each(|&id| f(id)),
            Self::Small(v) => v.iter().for_each(|&id| f(id)),
            Self::Large(large) => large.for_each(&mut f),
        }
    }

    /// Appends the members in ascending order.
    pub(crate) fn append_to(&self, out: &mut Vec<u32>) {
        out.reserve(self.len());
        self.for_each(|id| out.push(id));
    }

    /// The members in ascending order.
    pub(crate) fn to_vec(&self) -> Vec<u32> {
        let mut out = Vec::new();
        self.append_to(&mut out);
        out
    }

    /// The set of ascending, unique `ids`.
    pub(crate) fn from_sorted(list: &[u32]) -> Self {
        match list.len() {
            0..=FEW_MAX => {
                let mut ids = [0; FEW_MAX];
                ids[..list.len()].copy_from_slice(list);
                Self::Few { len: list.len() as u8, ids }
            }
            len if len <= SMALL_MAX => Self::Small(Box::new(list.to_vec())),
            _ => {
                let mut large = Large { len: 0, chunks: Vec::new() };
                for &id in list {
                    large.insert(id);
                }
                Self::Large(Box::new(large))
            }
        }
    }
}

// === impl Large ===

impl Large {
    fn find(&self, high: u16) -> Result<usize, usize> {
        match self.chunks.last() {
            // Ids are handed out in ascending order, so the last chunk is the common one.
            Some(last) if last.high == high => Ok(self.chunks.len() - 1),
            _ => self.chunks.binary_search_by_key(&high, |c| c.high),
        }
    }

    fn contains(&self, id: u32) -> bool {
        let (high, low) = split(id);
        self.find(high).is_ok_and(|at| self.chunks[at].body.contains(low))
    }

    fn insert(&mut self, id: u32) -> bool {
        let (high, low) = split(id);
        let at = match self.find(high) {
            Ok(at) => at,
            Err(at) => {
                insert_tight(&mut self.chunks, at, Chunk { high, body: Body::Array(Vec::new()) });
                at
            }
        };
        let new = self.chunks[at].body.insert(low);
        self.len += usize::from(new);
        new
    }

    fn remove(&mut self, id: u32) -> bool {
        let (high, low) = split(id);
        let Ok(at) = self.find(high) else { return false };
        let body = &mut self.chunks[at].body;
        if !body.remove(low) {
            return false;
        }
        if body.is_empty() {
            self.chunks.remove(at);
        }
        self.len -= 1;
        true
    }

    fn for_each(&self, f: &mut impl FnMut(u32)) {
        for chunk in &self.chunks {
            match &chunk.body {
                Body::Array(v) => v.iter().for_each(|&low| f(join(chunk.high, low))),
                Body::Bits { words, .. } => {
                    for (i, &word) in words.iter().enumerate() {
                        let mut word = word;
                        while word != 0 {
                            f(join(chunk.high, (i * 64) as u16 + word.trailing_zeros() as u16));
                            word &= word - 1;
                        }
                    }
                }
            }
        }
    }
}

// === impl Body ===

impl Body {
    fn is_empty(&self) -> bool {
        match self {
            Self::Array(v) => v.is_empty(),
            Self::Bits { len, .. } => *len == 0,
        }
    }

    fn contains(&self, low: u16) -> bool {
        match self {
            Self::Array(v) => v.binary_search(&low).is_ok(),
            Self::Bits { words, .. } => words[usize::from(low / 64)] >> (low % 64) & 1 == 1,
        }
    }

    fn insert(&mut self, low: u16) -> bool {
        match self {
            Self::Array(v) => {
                let at = match v.last() {
                    Some(&last) if last < low => v.len(),
                    _ => match v.binary_search(&low) {
                        Ok(_) => return false,
                        Err(at) => at,
                    },
                };
                if v.len() < ARRAY_MAX {
                    insert_tight(v, at, low);
                    return true;
                }
                let mut words = Box::new([0u64; WORDS]);
                for &old in v.iter().chain([&low]) {
                    words[usize::from(old / 64)] |= 1 << (old % 64);
                }
                *self = Self::Bits { words, len: ARRAY_MAX as u32 + 1 };
                true
            }
            Self::Bits { words, len } => {
                let word = &mut words[usize::from(low / 64)];
                let bit = 1u64 << (low % 64);
                let new = *word & bit == 0;
                *word |= bit;
                *len += u32::from(new);
                new
            }
        }
    }

    fn remove(&mut self, low: u16) -> bool {
        match self {
            Self::Array(v) => match v.binary_search(&low) {
                Ok(at) => {
                    v.remove(at);
                    true
                }
                Err(_) => false,
            },
            Self::Bits { words, len } => {
                let word = &mut words[usize::from(low / 64)];
                let bit = 1u64 << (low % 64);
                if *word & bit == 0 {
                    return false;
                }
                *word &= !bit;
                *len -= 1;
                if *len <= BITS_MIN {
                    let mut v = Vec::with_capacity(*len as usize);
                    for (i, &word) in words.iter().enumerate() {
                        let mut word = word;
                        while word != 0 {
                            v.push((i * 64) as u16 + word.trailing_zeros() as u16);
                            word &= word - 1;
                        }
                    }
                    *self = Self::Array(v);
                }
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn check(set: &IdSet, model: &BTreeSet<u32>) {
        assert_eq!(set.len(), model.len());
        assert_eq!(set.is_empty(), model.is_empty());
        assert_eq!(set.to_vec(), model.iter().copied().collect::<Vec<_>>());
        assert_eq!(IdSet::from_sorted(&set.to_vec()).to_vec(), set.to_vec());
    }

    #[test]
    fn a_set_takes_two_words() {
        assert_eq!(size_of::<IdSet>(), 16);
    }

    #[test]
    fn dense_sets_become_bits_and_back() {
        let (mut set, mut model) = (IdSet::default(), BTreeSet::new());
        for id in (0..30_000).rev().chain(70_000..71_000) {
            assert!(set.insert(id));
            model.insert(id);
        }
        assert!(!set.insert(12) && set.contains(70_500) && !set.contains(69_999));
        check(&set, &model);
        for id in (0..30_000).step_by(1).filter(|n| n % 16 != 3) {
            assert!(set.remove(id) && !set.remove(id));
            model.remove(&id);
        }
        check(&set, &model);
        for id in model.clone() {
            assert!(set.remove(id));
            model.remove(&id);
            if model.len() < 50 {
                check(&set, &model);
            }
        }
        assert!(matches!(set, IdSet::Few { len: 0, .. }));
    }

    proptest! {
        #[test]
        fn behaves_as_a_tree_set(
            ops in proptest::collection::vec((any::<bool>(), prop_oneof![0u32..80, 65_500..65_600u32, any::<u32>()]), 0..300)
        ) {
            let (mut set, mut model) = (IdSet::default(), BTreeSet::new());
            for (add, id) in ops {
                if add {
                    prop_assert_eq!(set.insert(id), model.insert(id));
                } else {
                    prop_assert_eq!(set.remove(id), model.remove(&id));
                }
                prop_assert!(set.contains(id) == add);
            }
            check(&set, &model);
        }
    }
}
