//! A vector with holes: stable 32-bit indexes, freed ones are reused, growth never copies what is there.

/// Entries per page.
const PAGE: usize = 512;

/// Values under indexes that stay until the value is removed.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    pages: Vec<Vec<Option<T>>>,
    free: Vec<u32>,
    len: usize,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { pages: Vec::new(), free: Vec::new(), len: 0 }
    }
}

impl<T> Slab<T> {
    /// Stores a value. The lowest fresh index is used unless one is free.
    pub(crate) fn insert(&mut self, value: T) -> u32 {
        self.len += 1;
        if let Some(index) = self.free.pop() {
            if let Some(slot) = self.slot_mut(index) {
                *slot = Some(value);
            }
            return index;
        }
        if self.pages.last().is_none_or(|page| page.len() == PAGE) {
            // The first page grows by itself, so that a small slab stays small.
            self.pages.push(if self.pages.is_empty() { Vec::new() } else { Vec::with_capacity(PAGE) });
        }
        let before = (self.pages.len() - 1) * PAGE;
        match self.pages.last_mut() {
            Some(page) => {
                page.push(Some(value));
                u32::try_from(before + page.len() - 1).expect("fewer than 2^32 values are alive at once")
            }
            None => 0,
        }
    }

    /// Takes a value out.
    pub(crate) fn remove(&mut self, index: u32) -> Option<T> {
        let value = self.slot_mut(index)?.take()?;
        self.free.push(index);
        self.len -= 1;
        Some(value)
    }

    /// The value of an index.
    pub(crate) fn get(&self, index: u32) -> Option<&T> {
        let at = index as usize;
        self.pages.get(at / PAGE)?.get(at % PAGE)?.as_ref()
    }

    /// The value of an index, to change it.
    pub(crate) fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        self.slot_mut(index)?.as_mut()
    }

    /// Number of values.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// All values with their indexes, ascending.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        let slots = self.pages.iter().flatten().enumerate();
        slots.filter_map(|(index, slot)| Some((index as u32, slot.as_ref()?)))
    }

    fn slot_mut(&mut self, index: u32) -> Option<&mut Option<T>> {
        let at = index as usize;
        self.pages.get_mut(at / PAGE)?.get_mut(at % PAGE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_are_stable_and_reused() {
        let mut slab = Slab::default();
        let ids: Vec<u32> = (0..2000).map(|n| slab.insert(n)).collect();
        assert_eq!(ids, (0..2000).collect::<Vec<_>>());
        assert_eq!((slab.remove(700), slab.remove(700), slab.get(700)), (Some(700), None, None));
        assert_eq!(slab.len(), 1999);
        assert_eq!(slab.insert(7), 700);
        *slab.get_mut(700).unwrap() += 1;
        assert_eq!(slab.get(700), Some(&8));
        assert_eq!(slab.insert(1), 2000);
        assert_eq!(slab.iter().count(), 2001);
        assert!(slab.get(9999).is_none() && slab.remove(9999).is_none());
    }
}
