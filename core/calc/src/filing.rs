//! Selectors, filed so that an item's labels lead to the few that can match it.
//!
//! Owns: for each filed selector one place: under the pairs that it demands of one label, under a label that it
//! demands, or with the rest. Invariant: a selector that matches an item is among the item's candidates.

use std::cmp::Reverse;

use calico_net::intern::Id;
use calico_selector::Selector;
use rustc_hash::FxHashMap;

use crate::idset::IdSet;
use crate::items::{ItemId, Items};
use crate::labels::PairId;

/// Where a selector is filed.
#[derive(Debug, Default)]
pub(crate) enum Place {
    /// Nowhere: it matches nothing, or is not filed yet.
    #[default]
    Nowhere,
    /// It demands nothing that an index could use.
    Rest,
    /// Under a label that must be there.
    Label(Id),
    /// Under the only values that one label may have.
    Pairs(Box<[PairId]>),
}

/// Filed selectors by the numbers that their owner gave them.
#[derive(Debug, Default)]
pub(crate) struct Filing {
    by_pair: FxHashMap<PairId, IdSet>,
    by_label: FxHashMap<Id, IdSet>,
    rest: IdSet,
}

// === impl Filing ===

impl Filing {
    /// Files a selector. The place must be kept, to take it out again.
    pub(crate) fn file(&mut self, items: &mut Items, selector: &Selector, id: u32) -> Place {
        let restrictions = selector.restrictions();
        if !restrictions.is_satisfiable() {
            return Place::Nowhere;
        }
        // The rarest value known now, then the fewest values, then the last name (a namespace's comes late).
        let demands = restrictions.iter().filter(|(_, r)| r.must_be_present);
        let best = demands.min_by_key(|(name, r)| {
            let values = r.must_have_one_of.as_deref();
            let label = items.labels.find_label(name);
            let weigh = |value: &str| {
                label.and_then(|l| items.labels.find_pair(l, value)).map_or(0, |pair| items.weight(pair))
            };
            let weight = values.map_or(usize::MAX, |v| v.iter().map(|v| weigh(v)).sum());
            (weight, values.map_or(usize::MAX, <[_]>::len), Reverse(name.as_str()))
        });
        let Some((name, restriction)) = best else {
            self.rest.insert(id);
            return Place::Rest;
        };
        match &restriction.must_have_one_of {
            Some(values) => {
                let pairs: Box<[PairId]> = values.iter().map(|v| items.labels.acquire(name, v)).collect();
                for &pair in &pairs {
                    self.by_pair.entry(pair).or_default().insert(id);
                }
                Place::Pairs(pairs)
            }
            None => {
                let label = items.labels.acquire_label(name);
                self.by_label.entry(label).or_default().insert(id);
                Place::Label(label)
            }
        }
    }

    /// Takes a selector out.
    pub(crate) fn unfile(&mut self, items: &mut Items, place: Place, id: u32) {
        match place {
            Place::Nowhere => {}
            Place::Rest => drop(self.rest.remove(id)),
            Place::Label(label) => {
                if let Some(set) = self.by_label.get_mut(&label) {
                    set.remove(id);
                    if set.is_empty() {
                        self.by_label.remove(&label);
                    }
                }
                items.labels.release_label(label);
            }
            Place::Pairs(pairs) => {
                for &pair in &pairs {
                    if let Some(set) = self.by_pair.get_mut(&pair) {
                        set.remove(id);
                        if set.is_empty() {
                            self.by_pair.remove(&pair);
                        }
                    }
                    items.labels.release(pair);
                }
            }
        }
    }

    /// Replaces `out` by the selectors that may match the item, ascending.
    pub(crate) fn candidates(&self, items: &Items, item: ItemId, out: &mut Vec<u32>) {
        out.clear();
        self.rest.append_to(out);
        let before = out.len();
        if !(self.by_pair.is_empty() && self.by_label.is_empty()) {
            items.each_pair(item, |pair| {
                if let Some(set) = self.by_pair.get(&pair) {
                    set.append_to(out);
                }
                if let Some(set) = items.labels.label_of(pair).and_then(|l| self.by_label.get(&l)) {
                    set.append_to(out);
                }
            });
        }
        if out.len() > before {
            out.sort_unstable();
            out.dedup();
        }
    }

    /// True if nothing is filed.
    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty() && self.by_pair.is_empty() && self.by_label.is_empty()
    }
}
