//! Chains and verdict maps as they should be and as they are.
//!
//! A chain is wanted if someone gave it *and* something leads to it: a base chain, a wanted chain, or a
//! verdict. So policies can be given to layers where no endpoint of theirs is, at no cost in the kernel.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use calico_rules::nft::{BaseHook, NftBaseChain, NftChain};
use hashbrown::{HashMap, HashSet};
use smol_str::SmolStr;

use crate::delta::DeltaTracker;
use crate::kernel::{SeenChain, SeenMap};
use crate::op::{Family, Op};
use crate::seen_hook;

/// Who gave a chain; any text of the caller's, such as `policy/<id>`.
pub type Owner = SmolStr;

/// One thing to write; later things may need earlier ones.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Item {
    Map(SmolStr),
    Chain(SmolStr),
    Verdict(SmolStr, SmolStr),
}

/// Why an item cannot be written now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Lack {
    Chain(SmolStr),
    Set(SmolStr),
    Map(SmolStr),
}

#[derive(Debug, Clone, Default)]
struct MapState {
    exists: bool,
    flush: bool,
    tracker: DeltaTracker<SmolStr, SmolStr>,
}

/// Chains and maps of a table.
#[derive(Debug, Clone)]
pub(crate) struct Chains {
    family: Family,
    /// Chains by name and owner. Two owners give the same chain as a rule; else the first owner's counts.
    given: HashMap<SmolStr, BTreeMap<Owner, Arc<NftChain>>>,
    owners: HashMap<Owner, BTreeSet<SmolStr>>,
    bases: BTreeMap<SmolStr, BaseHook>,
    /// What leads to each chain, counted.
    leads: HashMap<SmolStr, usize>,
    tracker: DeltaTracker<SmolStr, Arc<SeenChain>>,
    maps: BTreeMap<SmolStr, MapState>,
    doomed_maps: BTreeSet<SmolStr>,
    /// Content that the kernel refused, with its words.
    refused: HashMap<Item, (Option<Arc<SeenChain>>, String)>,
    rules: HashMap<SmolStr, usize>,
}

impl Chains {
    pub(crate) fn new(family: Family) -> Self {
        Self {
            family,
            given: HashMap::new(),
            owners: HashMap::new(),
            bases: BTreeMap::new(),
            leads: HashMap::new(),
            tracker: DeltaTracker::default(),
            maps: BTreeMap::new(),
            doomed_maps: BTreeSet::new(),
            refused: HashMap::new(),
            rules: HashMap::new(),
        }
    }

    /// Sets the chains that the kernel calls; others of their kind go.
    pub(crate) fn set_bases(&mut self, bases: Vec<NftBaseChain>) {
        const BASE_OWNER: &str = "\0base";
        let old: Vec<SmolStr> = self.bases.keys().cloned().collect();
        let mut chains = Vec::new();
        for base in bases {
            let name = base.chain.name.clone();
            let is_new = self.bases.insert(name.clone(), base.hook).is_none();
            chains.push(base.chain);
            if is_new {
                self.lead(&name);
            }
        }
        let kept: HashSet<SmolStr> = chains.iter().map(|c| c.name.clone()).collect();
        self.give(BASE_OWNER.into(), chains);
        for name in old.iter().filter(|n| !kept.contains(*n)) {
            self.bases.remove(name);
            self.unlead(name);
        }
    }

    /// Makes `owner`'s chains exactly these.
    pub(crate) fn give(&mut self, owner: Owner, chains: Vec<NftChain>) {
        let new: BTreeSet<SmolStr> = chains.iter().map(|c| c.name.clone()).collect();
        let old = self.owners.remove(&owner).unwrap_or_default();
        for chain in chains {
            let name = chain.name.clone();
            let before = self.content(&name).cloned();
            self.given.entry(name.clone()).or_default().insert(owner.clone(), Arc::new(chain));
            self.changed(&name, before);
        }
        for name in old.difference(&new) {
            let before = self.content(name).cloned();
            if let Some(by) = self.given.get_mut(name) {
                by.remove(&owner);
                if by.is_empty() {
                    self.given.remove(name);
                }
            }
            self.changed(name, before);
        }
        if !new.is_empty() {
            self.owners.insert(owner, new);
        }
    }

    fn content(&self, name: &SmolStr) -> Option<&Arc<NftChain>> {
        self.given.get(name)?.values().next()
    }

    fn changed(&mut self, name: &SmolStr, before: Option<Arc<NftChain>>) {
        if !self.leads.contains_key(name) {
            return;
        }
        let now = self.content(name).cloned();
        // New references first, so that what both name does not go in between.
        if let Some(chain) = &now {
            chain.refs.chains.iter().for_each(|c| self.lead(c));
        }
        if let Some(chain) = before {
            chain.refs.chains.iter().for_each(|c| self.unlead(c));
        }
        self.want(name);
    }

    /// Puts the chain's wish into the tracker.
    fn want(&mut self, name: &SmolStr) {
        let wish = match self.content(name) {
            Some(chain) if self.leads.contains_key(name) => Some(SeenChain {
                hook: self.bases.get(name).map(|h| seen_hook(self.family, h)),
                hashes: chain.rules.iter().map(|r| Some(r.hash.clone())).collect(),
            }),
            _ => None,
        };
        let item = Item::Chain(name.clone());
        if self.refused.get(&item).is_some_and(|(bad, _)| bad.as_deref() != wish.as_ref()) {
            self.refused.remove(&item);
        }
        match wish {
            Some(wish) => self.tracker.set(name.clone(), Arc::new(wish)),
            None => self.tracker.remove(name),
        }
    }

    /// One more thing leads to the chain.
    fn lead(&mut self, name: &SmolStr) {
        let mut todo = vec![name.clone()];
        while let Some(name) = todo.pop() {
            let count = self.leads.entry(name.clone()).or_insert(0);
            *count += 1;
            if *count == 1 {
                if let Some(chain) = self.content(&name) {
                    todo.extend(chain.refs.chains.iter().cloned());
                }
                self.want(&name);
            }
        }
    }

    fn unlead(&mut self, name: &SmolStr) {
        let mut todo = vec![name.clone()];
        while let Some(name) = todo.pop() {
            let Some(count) = self.leads.get_mut(&name) else { continue };
            *count -= 1;
            if *count == 0 {
                self.leads.remove(&name);
                if let Some(chain) = self.content(&name) {
                    todo.extend(chain.refs.chains.iter().cloned());
                }
                self.want(&name);
            }
        }
    }

    pub(crate) fn add_map(&mut self, map: &SmolStr) {
        if !self.maps.contains_key(map) {
            let exists = self.doomed_maps.remove(map);
            let state = MapState { exists, flush: exists, tracker: DeltaTracker::default() };
            self.maps.insert(map.clone(), state);
        }
    }

    pub(crate) fn remove_map(&mut self, map: &SmolStr) {
        let Some(state) = self.maps.remove(map) else { return };
        let chains: Vec<SmolStr> = state.tracker.all_desired().map(|(_, c)| c.clone()).collect();
        chains.iter().for_each(|c| self.unlead(c));
        if state.exists {
            self.doomed_maps.insert(map.clone());
        }
    }

    /// Sets or removes one verdict; makes the map if need be.
    pub(crate) fn set_verdict(&mut self, map: &SmolStr, iface: &SmolStr, chain: Option<SmolStr>) {
        self.add_map(map);
        let Some(state) = self.maps.get_mut(map) else { return };
        let before = state.tracker.desired(iface).cloned();
        match &chain {
            Some(c) => state.tracker.set(iface.clone(), c.clone()),
            None => state.tracker.remove(iface),
        }
        if before != chain {
            self.refused.remove(&Item::Verdict(map.clone(), iface.clone()));
        }
        chain.iter().for_each(|c| self.lead(c));
        before.iter().for_each(|c| self.unlead(c));
    }

    /// Learns what is there. True if a map of another type than wanted is there, which only a new table mends.
    pub(crate) fn saw(
        &mut self,
        chains: HashMap<SmolStr, SeenChain>,
        mut maps: HashMap<SmolStr, SeenMap>,
    ) -> bool {
        self.refused.clear();
        self.rules = chains.iter().map(|(n, c)| (n.clone(), c.hashes.len())).collect();
        self.tracker.saw_all(chains.into_iter().map(|(n, c)| (n, Arc::new(c))));
        let mut wrong = false;
        for (name, state) in &mut self.maps {
            match maps.remove(name) {
                Some(seen) => {
                    wrong |= seen.wrong_type;
                    state.exists = true;
                    state.flush = seen.odd;
                    if seen.odd {
                        state.tracker.saw_nothing();
                    } else {
                        state.tracker.saw_all(seen.entries);
                    }
                }
                None => {
                    state.exists = false;
                    state.flush = false;
                    state.tracker.saw_nothing();
                }
            }
        }
        self.doomed_maps = maps.into_keys().collect();
        wrong
    }

    /// Number of differences.
    pub(crate) fn differences(&self) -> usize {
        let maps: usize = self
            .maps
            .values()
            .map(|m| m.tracker.dirty_len() + usize::from(!m.exists) + usize::from(m.flush))
            .sum();
        self.tracker.dirty_len() + maps + self.doomed_maps.len()
    }

    /// Everything to write, each thing after those that it needs; what the kernel refused before is left out.
    pub(crate) fn items(&self) -> Vec<Item> {
        let mut out: Vec<Item> = self
            .maps
            .iter()
            .filter(|(_, s)| !s.exists || s.flush)
            .map(|(n, _)| Item::Map(n.clone()))
            .collect();
        let dirty: BTreeSet<&SmolStr> = self.tracker.updates().into_iter().map(|(n, _)| n).collect();
        let mut done = HashSet::new();
        for name in &dirty {
            self.visit(name, &dirty, &mut done, &mut out);
        }
        for (map, state) in &self.maps {
            let updates = state.tracker.updates().into_iter().map(|(k, _)| k);
            let mut ifaces: Vec<&SmolStr> = updates.chain(state.tracker.deletes()).collect();
            ifaces.sort_unstable();
            out.extend(ifaces.into_iter().map(|i| Item::Verdict(map.clone(), i.clone())));
        }
        out.retain(|i| !self.refused.contains_key(i));
        out
    }

    /// Callees first. Chains that call each other in a ring are cut somewhere; the kernel refuses them.
    fn visit<'a>(
        &'a self,
        name: &'a SmolStr,
        dirty: &BTreeSet<&'a SmolStr>,
        done: &mut HashSet<&'a SmolStr>,
        out: &mut Vec<Item>,
    ) {
        let mut stack = vec![(name, false)];
        while let Some((name, finished)) = stack.pop() {
            if finished {
                out.push(Item::Chain(name.clone()));
                continue;
            }
            if !dirty.contains(name) || !done.insert(name) {
                continue;
            }
            stack.push((name, true));
            if let Some(chain) = self.content(name) {
                stack.extend(chain.refs.chains.iter().rev().map(|c| (c, false)));
            }
        }
    }

    /// The changes that write `items`, which come in [`Chains::items`]' order. Items that need what is not
    /// there, and will not be, are given back with what they lack.
    pub(crate) fn ops(
        &self,
        items: &[Item],
        has_set: &dyn Fn(&str) -> bool,
    ) -> (Vec<Op>, Vec<Item>, Vec<(Item, Lack)>) {
        let mut maps = Vec::new();
        let (mut chains, mut rules) = (Vec::new(), Vec::new());
        let (mut gone, mut come): (BTreeMap<&SmolStr, Vec<_>>, BTreeMap<&SmolStr, Vec<_>>) =
            Default::default();
        let mut coming: HashSet<&SmolStr> = HashSet::new();
        let (mut fine, mut lacking) = (Vec::new(), Vec::new());
        let has_chain =
            |coming: &HashSet<&SmolStr>, c: &SmolStr| coming.contains(c) || self.tracker.actual(c).is_some();
        for item in items {
            match item {
                Item::Map(map) => {
                    let flush = self.maps.get(map).is_some_and(|m| m.exists);
                    let map = map.clone();
                    maps.push(if flush { Op::FlushMap { map } } else { Op::AddMap { map } });
                }
                Item::Chain(name) => {
                    let Some(content) = self.content(name) else { continue };
                    let refs = &content.refs;
                    let lack =
                        (refs.chains.iter().find(|c| !has_chain(&coming, c)).cloned().map(Lack::Chain))
                            .or_else(|| refs.sets.iter().find(|s| !has_set(s)).cloned().map(Lack::Set))
                            .or_else(|| {
                                refs.maps.iter().find(|m| !self.maps.contains_key(*m)).cloned().map(Lack::Map)
                            });
                    if let Some(lack) = lack {
                        lacking.push((item.clone(), lack));
                        continue;
                    }
                    self.chain_ops(name, &mut chains);
                    rules.extend(
                        content.rules.iter().map(|r| Op::AddRule { chain: name.clone(), rule: r.clone() }),
                    );
                    coming.insert(name);
                }
                Item::Verdict(map, iface) => {
                    let Some(state) = self.maps.get(map) else { continue };
                    if let Some(old) = state.tracker.actual(iface) {
                        gone.entry(map).or_default().push((iface.clone(), old.clone()));
                    }
                    if let Some(chain) = state.tracker.desired(iface) {
                        if !has_chain(&coming, chain) {
                            // The old verdict goes all the same: no verdict means denied.
                            lacking.push((item.clone(), Lack::Chain(chain.clone())));
                            continue;
                        }
                        come.entry(map).or_default().push((iface.clone(), chain.clone()));
                    }
                }
            }
            fine.push(item.clone());
        }
        let mut ops = maps;
        ops.extend(chains);
        ops.extend(gone.into_iter().map(|(m, entries)| Op::DeleteVerdicts { map: m.clone(), entries }));
        ops.extend(rules);
        ops.extend(come.into_iter().map(|(m, entries)| Op::AddVerdicts { map: m.clone(), entries }));
        (ops, fine, lacking)
    }

    /// Makes the chain, or empties it.
    fn chain_ops(&self, name: &SmolStr, out: &mut Vec<Op>) {
        let chain = name.clone();
        let hook = self.bases.get(name);
        match self.tracker.actual(name) {
            Some(seen) if seen.hook == hook.map(|h| seen_hook(self.family, h)) => {
                out.push(Op::FlushChain { chain });
                return;
            }
            Some(_) => {
                out.push(Op::FlushChain { chain: chain.clone() });
                out.push(Op::DeleteChain { chain: chain.clone() });
            }
            None => {}
        }
        out.push(match hook {
            Some(hook) => Op::AddBaseChain { chain, hook: *hook },
            None => Op::AddChain { chain },
        });
    }

    /// The items were written; those that lacked something only lost their old verdicts.
    pub(crate) fn done(&mut self, fine: &[Item], lacking: &[(Item, Lack)]) {
        for item in fine {
            match item {
                Item::Map(map) => {
                    if let Some(m) = self.maps.get_mut(map) {
                        m.exists = true;
                        m.flush = false;
                    }
                }
                Item::Chain(name) => {
                    self.tracker.done(name);
                    let rules = self.content(name).map_or(0, |c| c.rules.len());
                    self.rules.insert(name.clone(), rules);
                }
                Item::Verdict(map, iface) => {
                    if let Some(m) = self.maps.get_mut(map) {
                        m.tracker.done(iface);
                    }
                }
            }
        }
        for (item, _) in lacking {
            if let Item::Verdict(map, iface) = item
                && let Some(m) = self.maps.get_mut(map)
            {
                m.tracker.saw_absent(iface);
            }
        }
    }

    /// The kernel refused the item as it is wanted now.
    pub(crate) fn refuse(&mut self, item: &Item, reason: &str) {
        let wish = match item {
            Item::Chain(name) => self.tracker.desired(name).cloned(),
            _ => None,
        };
        self.refused.insert(item.clone(), (wish, reason.to_owned()));
    }

    pub(crate) fn refusals(&self) -> Vec<(Item, String)> {
        let mut out: Vec<_> = self.refused.iter().map(|(i, (_, r))| (i.clone(), r.clone())).collect();
        out.sort_unstable();
        out
    }

    /// Chains to delete: those that something still leads to, though nobody gives them any more, are kept.
    pub(crate) fn doomed_chains(&self) -> Vec<SmolStr> {
        self.tracker.deletes().into_iter().filter(|n| !self.leads.contains_key(*n)).cloned().collect()
    }

    pub(crate) fn doomed_maps(&self) -> Vec<SmolStr> {
        self.doomed_maps.iter().cloned().collect()
    }

    pub(crate) fn deleted_chain(&mut self, name: &SmolStr) {
        self.tracker.saw_absent(name);
        self.rules.remove(name);
    }

    pub(crate) fn deleted_map(&mut self, map: &SmolStr) {
        self.doomed_maps.remove(map);
    }

    /// True if all chains that the kernel calls are there.
    pub(crate) fn hooks_stand(&self) -> bool {
        self.bases.keys().all(|n| self.tracker.actual(n).is_some())
    }

    /// Wanted chains that nobody gives.
    pub(crate) fn dangling(&self) -> Vec<SmolStr> {
        let mut out: Vec<SmolStr> =
            self.leads.keys().filter(|n| !self.given.contains_key(*n)).cloned().collect();
        out.sort_unstable();
        out
    }

    /// Forgets what is there, for a new table.
    pub(crate) fn saw_nothing(&mut self) {
        self.saw(HashMap::new(), HashMap::new());
    }

    /// Chains and rules in the kernel.
    pub(crate) fn len(&self) -> (usize, usize) {
        (self.tracker.actual_len(), self.rules.values().sum())
    }

    pub(crate) fn maps_len(&self) -> usize {
        self.maps.values().filter(|m| m.exists).count()
    }
}
