//! Everything in the cluster that carries labels and addresses: endpoints of all nodes and network sets.
//!
//! Owns: the items, the labels that profiles lend to them, and the posting lists that find items by label.
//! In: model values. Out: numbers of items, their labels and networks.
//! Invariants: an item's labels, lists and postings agree at all times; an item is found under each of its own
//! pairs and, through its list, under each pair of its profiles.

use std::hash::{BuildHasher, BuildHasherDefault};
use std::net::IpAddr;

use calico_model::WorkloadEndpointKey;
use calico_model::policy::{EndpointPort, Labels};
use calico_net::Cidr;
use calico_net::intern::{Id, Interner, StrInterner};
use calico_selector::Selector;
use hashbrown::HashTable;
use rustc_hash::{FxHashMap, FxHasher};
use smol_str::SmolStr;

use crate::idset::IdSet;
use crate::labels::{LabelTable, PairId};
use crate::nets::Nets;
use crate::slab::Slab;

/// Number of an item.
pub(crate) type ItemId = u32;

/// Which item is meant.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ItemName<'a> {
    Workload(&'a WorkloadEndpointKey),
    Host { host: &'a SmolStr, endpoint: &'a SmolStr },
    Set(&'a SmolStr),
}

/// What an item is made of.
#[derive(Debug)]
pub(crate) struct ItemInput<'a> {
    pub(crate) labels: &'a Labels,
    pub(crate) profiles: &'a [SmolStr],
    pub(crate) nets: Vec<Cidr>,
    pub(crate) ports: &'a [EndpointPort],
}

/// An item's identity with the parts that many share interned.
#[derive(Debug, PartialEq, Eq, Hash)]
enum ItemKey {
    Workload { workload: SmolStr, host: Id, orchestrator: Id, endpoint: Id },
    Host { endpoint: SmolStr, host: Id },
    Set(SmolStr),
}

#[derive(Debug)]
struct Item {
    key: ItemKey,
    /// Own labels, ascending by pair number.
    labels: Box<[PairId]>,
    nets: Nets,
    /// Numbers of the IP sets that select this item.
    matched: IdSet,
    list: u32,
    ports: Option<Id>,
}

/// A distinct sequence of profiles and the items that have it.
#[derive(Debug)]
struct List {
    profiles: Box<[u32]>,
    items: IdSet,
}

#[derive(Debug)]
struct Profile {
    name: SmolStr,
    labels: Box<[PairId]>,
    /// Lists that name it.
    lists: IdSet,
}

/// What contributed to IP sets before a change.
#[derive(Debug)]
pub(crate) struct Before {
    pub(crate) nets: Nets,
    pub(crate) ports: Option<Id>,
}

/// What a change of an item did.
#[derive(Debug)]
pub(crate) enum Change {
    /// Nothing.
    Same,
    /// The item is there, new or with other content; its previous networks and ports if these changed.
    Put(ItemId, Option<Before>),
}

/// All items.
#[derive(Debug, Default)]
pub(crate) struct Items {
    pub(crate) labels: LabelTable,
    items: Slab<Item>,
    table: HashTable<ItemId>,
    texts: StrInterner,
    ports: Interner<Box<[EndpointPort]>>,
    lists: Slab<List>,
    list_ids: FxHashMap<Box<[u32]>, u32>,
    profiles: Slab<Profile>,
    profile_ids: FxHashMap<SmolStr, u32>,
    /// Items by own pair.
    postings: Vec<IdSet>,
    /// Profiles by pair.
    profile_postings: FxHashMap<PairId, IdSet>,
    hasher: BuildHasherDefault<FxHasher>,
}

// === impl Items: changes ===

impl Items {
    /// Adds or replaces an item.
    pub(crate) fn put(&mut self, name: ItemName<'_>, input: ItemInput<'_>) -> Change {
        let mut labels: Box<[PairId]> =
            input.labels.iter().map(|(name, value)| self.labels.acquire(name, value)).collect();
        labels.sort_unstable();
        let nets = Nets::new(input.nets);
        let ports = (!input.ports.is_empty()).then(|| self.ports.acquire_with(input.ports, |p| p.into()));
        let list = self.list_of(input.profiles);
        let id = match self.find(name) {
            Some(id) => id,
            None => self.add(name, list),
        };
        let Some(item) = self.items.get_mut(id) else { return Change::Same };
        let old_labels = std::mem::replace(&mut item.labels, labels);
        let old_nets = std::mem::replace(&mut item.nets, nets);
        let old_ports = std::mem::replace(&mut item.ports, ports);
        let old_list = std::mem::replace(&mut item.list, list);
        let moved = old_list != list;
        let relabelled = item.labels != old_labels;
        let contributes_else = item.nets != old_nets || item.ports != old_ports;

        if relabelled {
            let new = &item.labels;
            for &pair in new.iter().filter(|&p| old_labels.binary_search(p).is_err()) {
                posting(&mut self.postings, pair).insert(id);
            }
            for &pair in old_labels.iter().filter(|&p| new.binary_search(p).is_err()) {
                posting(&mut self.postings, pair).remove(id);
            }
        }
        if moved {
            self.leave(old_list, id);
        }
        if let Some(list) = self.lists.get_mut(list) {
            list.items.insert(id);
        }
        old_labels.iter().for_each(|&p| self.labels.release(p));
        // The caller may still ask for the old ports; they are given back when it is done.
        let before = contributes_else.then_some(Before { nets: old_nets, ports: old_ports });
        match before {
            None => {
                self.release_ports(old_ports);
                if moved || relabelled { Change::Put(id, None) } else { Change::Same }
            }
            some => Change::Put(id, some),
        }
    }

    /// The item's labels, profiles and lists are taken back; it stays, without any, until [`Items::drop_item`].
    pub(crate) fn clear(&mut self, name: ItemName<'_>) -> Option<(ItemId, Before)> {
        let id = self.find(name)?;
        let item = self.items.get_mut(id)?;
        let labels = std::mem::take(&mut item.labels);
        let before = Before { nets: std::mem::take(&mut item.nets), ports: item.ports.take() };
        let list = item.list;
        for &pair in &labels {
            posting(&mut self.postings, pair).remove(id);
            self.labels.release(pair);
        }
        self.leave(list, id);
        Some((id, before))
    }

    /// Forgets an item that was cleared.
    pub(crate) fn drop_item(&mut self, id: ItemId) {
        let Some(item) = self.items.remove(id) else { return };
        let hash = self.hasher.hash_one(&item.key);
        if let Ok(entry) = self.table.find_entry(hash, |&i| i == id) {
            entry.remove();
        }
        match item.key {
            ItemKey::Workload { host, orchestrator, endpoint, .. } => {
                [host, orchestrator, endpoint].into_iter().for_each(|t| drop(self.texts.release(t)));
            }
            ItemKey::Host { host, .. } => drop(self.texts.release(host)),
            ItemKey::Set(_) => {}
        }
    }

    /// Gives back what [`Change::Put`] or [`Items::clear`] left for the caller to read.
    pub(crate) fn release_ports(&mut self, ports: Option<Id>) {
        if let Some(ports) = ports {
            self.ports.release(ports);
        }
    }

    /// Sets the labels that a profile lends. Returns the items whose labels may have changed.
    pub(crate) fn set_profile_labels(&mut self, name: &SmolStr, labels: Option<&Labels>) -> Vec<ItemId> {
        let mut pairs: Box<[PairId]> =
            labels.into_iter().flatten().map(|(name, value)| self.labels.acquire(name, value)).collect();
        pairs.sort_unstable();
        if pairs.is_empty() && !self.profile_ids.contains_key(name) {
            return Vec::new();
        }
        let id = self.profile_of(name);
        let Some(profile) = self.profiles.get_mut(id) else { return Vec::new() };
        let old = std::mem::replace(&mut profile.labels, pairs);
        let changed = profile.labels != old;
        for &pair in &profile.labels {
            self.profile_postings.entry(pair).or_default().insert(id);
        }
        let new = &profile.labels;
        for &pair in old.iter().filter(|&p| new.binary_search(p).is_err()) {
            if let Some(profiles) = self.profile_postings.get_mut(&pair) {
                profiles.remove(id);
                if profiles.is_empty() {
                    self.profile_postings.remove(&pair);
                }
            }
        }
        old.iter().for_each(|&p| self.labels.release(p));
        let mut affected = Vec::new();
        if changed && let Some(profile) = self.profiles.get(id) {
            self.children(profile, &mut affected);
        }
        self.drop_profile_if_unused(id);
        affected
    }

    fn add(&mut self, name: ItemName<'_>, list: u32) -> ItemId {
        let key = match name {
            ItemName::Workload(k) => ItemKey::Workload {
                workload: k.workload.clone(),
                host: self.texts.acquire(k.host.as_str()),
                orchestrator: self.texts.acquire(k.orchestrator.as_str()),
                endpoint: self.texts.acquire(k.endpoint.as_str()),
            },
            ItemName::Host { host, endpoint } => {
                ItemKey::Host { endpoint: endpoint.clone(), host: self.texts.acquire(host.as_str()) }
            }
            ItemName::Set(name) => ItemKey::Set(name.clone()),
        };
        let hash = self.hasher.hash_one(&key);
        let id = self.items.insert(Item {
            key,
            labels: Box::default(),
            nets: Nets::None,
            matched: IdSet::EMPTY,
            list,
            ports: None,
        });
        let (items, hasher) = (&self.items, &self.hasher);
        self.table.insert_unique(hash, id, |&i| items.get(i).map_or(0, |item| hasher.hash_one(&item.key)));
        id
    }

    fn list_of(&mut self, profiles: &[SmolStr]) -> u32 {
        let ids: Box<[u32]> = profiles.iter().map(|name| self.profile_of(name)).collect();
        if let Some(&list) = self.list_ids.get(&ids) {
            return list;
        }
        let list = self.lists.insert(List { profiles: ids.clone(), items: IdSet::EMPTY });
        for &profile in &ids {
            if let Some(profile) = self.profiles.get_mut(profile) {
                profile.lists.insert(list);
            }
        }
        self.list_ids.insert(ids, list);
        list
    }

    fn leave(&mut self, list: u32, item: ItemId) {
        let Some(slot) = self.lists.get_mut(list) else { return };
        slot.items.remove(item);
        if !slot.items.is_empty() {
            return;
        }
        let Some(slot) = self.lists.remove(list) else { return };
        self.list_ids.remove(&slot.profiles);
        for &id in &slot.profiles {
            if let Some(profile) = self.profiles.get_mut(id) {
                profile.lists.remove(list);
            }
            self.drop_profile_if_unused(id);
        }
    }

    fn profile_of(&mut self, name: &SmolStr) -> u32 {
        if let Some(&id) = self.profile_ids.get(name) {
            return id;
        }
        let profile = Profile { name: name.clone(), labels: Box::default(), lists: IdSet::EMPTY };
        let id = self.profiles.insert(profile);
        self.profile_ids.insert(name.clone(), id);
        id
    }

    fn drop_profile_if_unused(&mut self, id: u32) {
        if self.profiles.get(id).is_some_and(|p| p.labels.is_empty() && p.lists.is_empty())
            && let Some(profile) = self.profiles.remove(id)
        {
            self.profile_ids.remove(&profile.name);
        }
    }
}

// === impl Items: questions ===

impl Items {
    /// The number of an item, if it is there.
    pub(crate) fn find(&self, name: ItemName<'_>) -> Option<ItemId> {
        let key = match name {
            ItemName::Workload(k) => ItemKey::Workload {
                workload: k.workload.clone(),
                host: self.texts.find(k.host.as_str())?,
                orchestrator: self.texts.find(k.orchestrator.as_str())?,
                endpoint: self.texts.find(k.endpoint.as_str())?,
            },
            ItemName::Host { host, endpoint } => {
                ItemKey::Host { endpoint: endpoint.clone(), host: self.texts.find(host.as_str())? }
            }
            ItemName::Set(name) => ItemKey::Set(name.clone()),
        };
        let hash = self.hasher.hash_one(&key);
        self.table.find(hash, |&i| self.items.get(i).is_some_and(|item| item.key == key)).copied()
    }

    /// Number of items.
    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    /// Networks and ports of an item.
    pub(crate) fn contribution(&self, id: ItemId) -> Option<(&Nets, &[EndpointPort])> {
        let item = self.items.get(id)?;
        Some((&item.nets, self.ports(item.ports)))
    }

    /// Ports by their number.
    pub(crate) fn ports(&self, id: Option<Id>) -> &[EndpointPort] {
        id.and_then(|id| self.ports.get(id)).map_or(&[], |ports| ports)
    }

    /// The IP sets that select an item, to change them.
    pub(crate) fn matched_mut(&mut self, id: ItemId) -> Option<&mut IdSet> {
        self.items.get_mut(id).map(|item| &mut item.matched)
    }

    /// True if the selector matches the item's labels.
    pub(crate) fn selects(&self, selector: &Selector, id: ItemId) -> bool {
        self.items.get(id).is_some_and(|item| selector.matches(&View { items: self, item }))
    }

    /// Calls `f` with each pair of the item, own and lent, hidden ones and duplicates included.
    pub(crate) fn each_pair(&self, id: ItemId, mut f: impl FnMut(PairId)) {
        let Some(item) = self.items.get(id) else { return };
        item.labels.iter().for_each(|&p| f(p));
        for profile in self.lent(item) {
            profile.labels.iter().for_each(|&p| f(p));
        }
    }

    /// Number of items that have this pair as a label of their own.
    pub(crate) fn weight(&self, pair: PairId) -> usize {
        self.postings.get(pair as usize).map_or(0, IdSet::len)
    }

    /// The items that the selector matches, ascending.
    pub(crate) fn search(&self, selector: &Selector) -> Vec<ItemId> {
        let mut found = Vec::new();
        match self.narrowest(selector) {
            Narrowed::Nothing => {}
            Narrowed::Everything => found.extend(self.items.iter().map(|(id, _)| id)),
            Narrowed::Pairs(pairs) => {
                for pair in pairs {
                    if let Some(items) = self.postings.get(pair as usize) {
                        items.append_to(&mut found);
                    }
                    for profile in self.profiles_with(pair) {
                        self.children(profile, &mut found);
                    }
                }
                found.sort_unstable();
                found.dedup();
            }
        }
        found.retain(|&id| self.selects(selector, id));
        found
    }

    /// The label restriction that leaves the fewest items.
    fn narrowest(&self, selector: &Selector) -> Narrowed {
        let (mut best, mut least) = (None, self.items.len());
        for (label, restriction) in selector.restrictions().iter() {
            if !restriction.is_satisfiable() {
                return Narrowed::Nothing;
            }
            if !restriction.must_be_present {
                continue;
            }
            let Some(label) = self.labels.find_label(label) else { return Narrowed::Nothing };
            let pairs = match &restriction.must_have_one_of {
                Some(values) => values.iter().filter_map(|v| self.labels.find_pair(label, v)).collect(),
                // Nearly every pair has an item, so a label with more pairs than the best so far is no better.
                None => match self.labels.pairs_of(label) {
                    Some(pairs) if best.is_some() && pairs.len() > least => continue,
                    Some(pairs) => pairs.to_vec(),
                    None => Vec::new(),
                },
            };
            let mut count = 0;
            for &pair in &pairs {
                count += self.weight(pair);
                count += self.profiles_with(pair).map(|p| self.child_count(p)).sum::<usize>();
                if count > least {
                    break;
                }
            }
            if count <= least {
                (best, least) = (Some(pairs), count);
            }
        }
        best.map_or(Narrowed::Everything, Narrowed::Pairs)
    }

    fn profiles_with(&self, pair: PairId) -> impl Iterator<Item = &Profile> {
        let ids = self.profile_postings.get(&pair).map(IdSet::to_vec).unwrap_or_default();
        ids.into_iter().filter_map(|id| self.profiles.get(id))
    }

    fn children(&self, profile: &Profile, out: &mut Vec<ItemId>) {
        profile.lists.for_each(|list| {
            if let Some(list) = self.lists.get(list) {
                list.items.append_to(out);
            }
        });
    }

    fn child_count(&self, profile: &Profile) -> usize {
        let mut count = 0;
        profile.lists.for_each(|list| count += self.lists.get(list).map_or(0, |l| l.items.len()));
        count
    }

    fn lent<'a>(&'a self, item: &Item) -> impl Iterator<Item = &'a Profile> + use<'a> {
        let list = self.lists.get(item.list);
        list.into_iter().flat_map(|l| l.profiles.iter()).filter_map(|&p| self.profiles.get(p))
    }
}

enum Narrowed {
    Nothing,
    Everything,
    Pairs(Vec<PairId>),
}

fn posting(postings: &mut Vec<IdSet>, pair: PairId) -> &mut IdSet {
    let at = pair as usize;
    if at >= postings.len() {
        postings.resize_with(at + 1, IdSet::default);
    }
    &mut postings[at]
}

/// An item's labels: its own, else those of the first profile that has the name.
struct View<'a> {
    items: &'a Items,
    item: &'a Item,
}

impl calico_selector::Labels for View<'_> {
    fn get(&self, name: &str) -> Option<&str> {
        let table = &self.items.labels;
        let label = table.find_label(name);
        label?;
        let of = |pairs: &[PairId]| pairs.iter().copied().find(|&p| table.label_of(p) == label);
        let own = of(&self.item.labels);
        let pair = own.or_else(|| self.items.lent(self.item).find_map(|profile| of(&profile.labels)))?;
        table.value(pair)
    }
}

/// Host networks of plain addresses.
pub(crate) fn hosts<'a>(addresses: impl IntoIterator<Item = &'a IpAddr>) -> Vec<Cidr> {
    addresses.into_iter().map(|&a| Cidr::host(a)).collect()
}

#[cfg(test)]
mod tests;
