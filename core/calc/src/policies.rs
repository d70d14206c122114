//! Policies: which of them apply on this node, their rules for the dataplane, and their order.
//!
//! In: policies and tiers, and (from the local endpoints) how many of them a policy matches. Out, at a flush:
//! updates and removals, and the order of the active ones. A policy is active if it matches a local endpoint or
//! asks to be needed on every node. Invariants after a flush: the dataplane has exactly the active policies;
//! `ranked` lists them in order; every policy with a usable selector is filed under it.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, BuildHasherDefault};
use std::sync::Arc;

use calico_dpmsg::{Message, PolicyId};
use calico_model::PolicyKey;
use calico_model::policy::{self as model, Tier};
use calico_net::intern::Id;
use calico_selector::Selector;
use hashbrown::HashTable;
use rustc_hash::{FxHashMap, FxHasher};
use smol_str::SmolStr;

use crate::filing::{Filing, Place};
use crate::items::{ItemId, Items};
use crate::order::{TierPlace, by_order, by_tie};
use crate::problem::{Findings, Reason};
use crate::rules::{RuleList, RuleStore};
use crate::scan::scan;
use crate::sets::{SetId, Sets};
use crate::slab::Slab;

/// Number of a policy.
pub(crate) type PolicyNo = u32;

/// The hint that makes a policy active without a match.
const EVERYWHERE: &str = "AssumeNeededOnEveryNode";

/// What matters of a policy here.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Data {
    pub(crate) tier: SmolStr,
    order: Option<f64>,
    rules: RuleList,
    selector: Id,
    pub(crate) ingress: bool,
    pub(crate) egress: bool,
    pub(crate) untracked: bool,
    pub(crate) pre_dnat: bool,
    pub(crate) apply_on_forward: bool,
    everywhere: bool,
}

#[derive(Debug)]
struct Slot {
    key: PolicyKey,
    now: Option<Data>,
    /// The text under whose selector it is filed; holds a reference.
    filed: Option<Id>,
    place: Place,
    /// Local endpoints that it matches.
    matches: u32,
    rank: u32,
    dirty: bool,
    sent: Option<Box<Sent>>,
}

/// What the dataplane has; holds references of its own.
#[derive(Debug)]
struct Sent {
    data: Data,
    sets: Vec<SetId>,
}

/// What a flush changed, for the local endpoints.
#[derive(Debug, Default)]
pub(crate) struct Settled {
    pub(crate) updates: Vec<Message>,
    pub(crate) removes: Vec<Message>,
    /// Active policies whose place or kind changed: endpoints that they match are to be looked at again.
    pub(crate) moved: Vec<PolicyNo>,
    /// Slots to free once no endpoint refers to them.
    dead: Vec<PolicyNo>,
}

/// All policies and tiers.
#[derive(Debug, Default)]
pub(crate) struct Policies {
    slots: Slab<Slot>,
    table: HashTable<PolicyNo>,
    tiers: FxHashMap<SmolStr, Tier>,
    filing: Filing,
    dirty: Vec<PolicyNo>,
    ranked: Vec<PolicyNo>,
    unsorted: bool,
    hasher: BuildHasherDefault<FxHasher>,
}

// === impl Policies: inputs ===

impl Policies {
    /// Sets or removes a policy.
    pub(crate) fn put(
        &mut self,
        key: &PolicyKey,
        policy: Option<&model::Policy>,
        store: &mut RuleStore,
        findings: &mut Findings,
    ) {
        let now = policy.map(|p| acquire(p, store, findings));
        let no = match (self.find(key), &now) {
            (Some(no), _) => no,
            (None, Some(_)) => self.add(key),
            (None, None) => return,
        };
        let Some(slot) = self.slots.get_mut(no) else { return };
        let old = std::mem::replace(&mut slot.now, now);
        if slot.now != old {
            self.touch(no);
        }
        if let Some(old) = old {
            release(&old, store);
        }
    }

    /// Sets or removes a tier; true if that changed anything.
    pub(crate) fn put_tier(&mut self, name: &SmolStr, tier: Option<&Tier>, findings: &mut Findings) -> bool {
        if tier.is_some_and(|t| t.order.is_some_and(f64::is_nan)) {
            findings.add("order", Reason::Order);
        }
        let changed = match tier {
            Some(tier) => self.tiers.insert(name.clone(), tier.clone()).as_ref() != Some(tier),
            None => self.tiers.remove(name).is_some(),
        };
        self.unsorted |= changed;
        changed
    }

    fn find(&self, key: &PolicyKey) -> Option<PolicyNo> {
        let hash = self.hasher.hash_one(key);
        self.table.find(hash, |&no| self.slots.get(no).is_some_and(|s| s.key == *key)).copied()
    }

    fn add(&mut self, key: &PolicyKey) -> PolicyNo {
        let no = self.slots.insert(Slot {
            key: key.clone(),
            now: None,
            filed: None,
            place: Place::Nowhere,
            matches: 0,
            rank: 0,
            dirty: false,
            sent: None,
        });
        let (slots, hasher) = (&self.slots, &self.hasher);
        self.table.insert_unique(hasher.hash_one(key), no, |&no| {
            slots.get(no).map_or(0, |slot| hasher.hash_one(&slot.key))
        });
        no
    }

    fn touch(&mut self, no: PolicyNo) {
        if let Some(slot) = self.slots.get_mut(no)
            && !slot.dirty
        {
            slot.dirty = true;
            self.dirty.push(no);
        }
    }
}

// === impl Policies: matching ===

impl Policies {
    /// Files policies whose selectors changed. Returns those whose matches must be found anew.
    pub(crate) fn refile(&mut self, items: &mut Items, store: &mut RuleStore) -> Vec<PolicyNo> {
        let mut changed = Vec::new();
        for &no in &self.dirty {
            let Some(slot) = self.slots.get_mut(no) else { continue };
            let wanted = slot.now.as_ref().map(|d| d.selector);
            if wanted == slot.filed {
                continue;
            }
            changed.push(no);
            self.filing.unfile(items, std::mem::take(&mut slot.place), no);
            if let Some(wanted) = wanted {
                store.retain_text(wanted);
                if let Some(selector) = store.selector_once(wanted) {
                    slot.place = self.filing.file(items, &selector, no);
                }
            }
            if let Some(old) = std::mem::replace(&mut slot.filed, wanted) {
                store.release_text(old);
            }
        }
        changed
    }

    /// Replaces `out` by the policies that match a local endpoint, ascending.
    pub(crate) fn matching(
        &self,
        items: &Items,
        item: ItemId,
        store: &mut RuleStore,
        out: &mut Vec<PolicyNo>,
    ) {
        self.filing.candidates(items, item, out);
        out.retain(|&no| self.selector(no, store).is_some_and(|s| items.selects(&s, item)));
    }

    /// The selector of a policy; `None` if it is gone or matches nothing because it does not parse.
    pub(crate) fn selector(&self, no: PolicyNo, store: &mut RuleStore) -> Option<Selector> {
        store.selector(self.slots.get(no)?.now.as_ref()?.selector)
    }

    /// Counts a local endpoint that a policy begins or ceases to match.
    pub(crate) fn count_match(&mut self, no: PolicyNo, comes: bool) {
        if let Some(slot) = self.slots.get_mut(no) {
            slot.matches = if comes { slot.matches + 1 } else { slot.matches.saturating_sub(1) };
            if slot.matches <= 1 {
                self.touch(no);
            }
        }
    }
}

// === impl Policies: output ===

impl Policies {
    /// Brings what the dataplane has in line with what is active. Messages are sorted by id.
    pub(crate) fn settle(&mut self, store: &mut RuleStore, sets: &mut Sets) -> Settled {
        let mut out = Settled::default();
        let (mut updates, mut removes) = (Vec::new(), Vec::new());
        for no in std::mem::take(&mut self.dirty) {
            let Some(slot) = self.slots.get_mut(no) else { continue };
            slot.dirty = false;
            let active = slot.now.as_ref().filter(|d| d.everywhere || slot.matches > 0);
            let before = slot.sent.take();
            let old = before.as_ref().map(|b| &b.data);
            if active == old {
                slot.sent = before;
            } else {
                if placed_otherwise(old, active) {
                    self.unsorted = true;
                    out.moved.push(no);
                }
                if let Some(data) = active {
                    retain(data, store);
                    let sets = if old.is_some_and(|old| same_content(old, data)) {
                        // Only its place changed; the sets stay as they are.
                        before.as_ref().map(|b| b.sets.clone()).unwrap_or_default()
                    } else {
                        let (policy, used) = render(&slot.key, data, store, sets);
                        updates.push((id_of(&slot.key), policy));
                        if let Some(before) = &before {
                            before.sets.iter().for_each(|&set| sets.release(set));
                        }
                        used
                    };
                    slot.sent = Some(Box::new(Sent { data: data.clone(), sets }));
                } else if let Some(before) = &before {
                    before.sets.iter().for_each(|&set| sets.release(set));
                    removes.push(id_of(&slot.key));
                }
                if let Some(before) = before {
                    release(&before.data, store);
                }
            }
            if slot.now.is_none() {
                out.dead.push(no);
            }
        }
        updates.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        removes.sort_unstable();
        out.updates = updates.into_iter().map(|(id, policy)| Message::PolicyUpdate(id, policy)).collect();
        out.removes = removes.into_iter().map(Message::PolicyRemove).collect();
        self.sort();
        out
    }

    /// Frees the slots of policies that are gone; endpoints must not refer to them any more.
    pub(crate) fn bury(&mut self, settled: &Settled) {
        for &no in &settled.dead {
            // It may have come back since.
            if self.slots.get(no).is_none_or(|s| s.now.is_some() || s.sent.is_some()) {
                continue;
            }
            if let Some(slot) = self.slots.remove(no) {
                let hash = self.hasher.hash_one(&slot.key);
                if let Ok(entry) = self.table.find_entry(hash, |&n| n == no) {
                    entry.remove();
                }
            }
        }
    }

    fn sort(&mut self) {
        if !std::mem::take(&mut self.unsorted) {
            return;
        }
        let mut ranked: Vec<(PolicyNo, &PolicyKey, &Data)> = self
            .slots
            .iter()
            .filter_map(|(no, slot)| Some((no, &slot.key, &slot.sent.as_ref()?.data)))
            .collect();
        let mut tiers: Vec<SmolStr> = ranked.iter().map(|(.., d)| d.tier.clone()).collect();
        tiers.sort_unstable();
        tiers.dedup();
        tiers.sort_by(|a, b| self.tier_place(a).compare(&self.tier_place(b)));
        let tier_no: FxHashMap<SmolStr, usize> = tiers.into_iter().enumerate().map(|(i, t)| (t, i)).collect();
        ranked.sort_unstable_by(|(_, ka, a), (_, kb, b)| {
            let tiers = tier_no.get(&a.tier).cmp(&tier_no.get(&b.tier));
            tiers.then_with(|| by_order(a.order, b.order)).then_with(|| by_tie(ka, kb))
        });
        let ranked: Vec<PolicyNo> = ranked.into_iter().map(|(no, ..)| no).collect();
        for (rank, &no) in ranked.iter().enumerate() {
            if let Some(slot) = self.slots.get_mut(no) {
                slot.rank = rank as u32;
            }
        }
        self.ranked = ranked;
    }

    fn tier_place<'a>(&self, name: &'a SmolStr) -> TierPlace<'a> {
        TierPlace { order: self.tiers.get(name).map(|t| t.order), name }
    }

    /// Active policies in the order in which they apply.
    pub(crate) fn ranked(&self) -> &[PolicyNo] {
        &self.ranked
    }

    /// Place of an active policy.
    pub(crate) fn rank(&self, no: PolicyNo) -> u32 {
        self.slots.get(no).map_or(u32::MAX, |s| s.rank)
    }

    /// What the dataplane has of an active policy.
    pub(crate) fn active(&self, no: PolicyNo) -> Option<&Data> {
        self.slots.get(no)?.sent.as_ref().map(|s| &s.data)
    }

    /// Identity of a policy in messages.
    pub(crate) fn id(&self, no: PolicyNo) -> Option<PolicyId> {
        self.slots.get(no).map(|s| id_of(&s.key))
    }

    /// True if packets that a tier leaves undecided go to the next one.
    pub(crate) fn passes(&self, tier: &SmolStr) -> bool {
        self.tiers.get(tier).is_some_and(|t| t.default_pass)
    }

    /// Tiers that active policies name and that do not exist.
    pub(crate) fn missing_tiers(&self) -> BTreeSet<SmolStr> {
        let active = self.ranked.iter().filter_map(|&no| self.active(no));
        active.filter(|d| !self.tiers.contains_key(&d.tier)).map(|d| d.tier.clone()).collect()
    }

    /// Numbers of policies by tier, and of tiers.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.slots.len(), self.tiers.len())
    }
}

fn acquire(policy: &model::Policy, store: &mut RuleStore, findings: &mut Findings) -> Data {
    if policy.order.is_some_and(f64::is_nan) {
        findings.add("order", Reason::Order);
    }
    let (selector, error) = store.acquire_selector(&policy.selector);
    if let Some(error) = error {
        findings.add("selector", Reason::PolicySelector(error.clone()));
    }
    Data {
        tier: if policy.tier.is_empty() { SmolStr::new_static("default") } else { policy.tier.clone() },
        order: policy.order.filter(|o| !o.is_nan()),
        rules: store.acquire_rules(&policy.inbound_rules, &policy.outbound_rules, findings),
        selector,
        ingress: policy.ingress || !policy.egress,
        egress: policy.egress || !policy.ingress,
        untracked: policy.untracked,
        pre_dnat: policy.pre_dnat,
        apply_on_forward: policy.apply_on_forward,
        everywhere: policy.performance_hints.iter().any(|h| h == EVERYWHERE),
    }
}

fn retain(data: &Data, store: &mut RuleStore) {
    store.retain_text(data.selector);
    store.retain_rules(&data.rules);
}

fn release(data: &Data, store: &mut RuleStore) {
    store.release_text(data.selector);
    store.release_rules(&data.rules);
}

/// True if an endpoint's lists may differ because of the change.
fn placed_otherwise(old: Option<&Data>, new: Option<&Data>) -> bool {
    let (Some(a), Some(b)) = (old, new) else { return true };
    let kind = |d: &Data| (d.ingress, d.egress, d.untracked, d.pre_dnat, d.apply_on_forward);
    a.tier != b.tier || by_order(a.order, b.order).is_ne() || kind(a) != kind(b)
}

/// True if the dataplane's policy is the same.
fn same_content(a: &Data, b: &Data) -> bool {
    a.rules == b.rules
        && a.tier == b.tier
        && a.selector == b.selector
        && (a.untracked, a.pre_dnat, a.everywhere) == (b.untracked, b.pre_dnat, b.everywhere)
}

fn id_of(key: &PolicyKey) -> PolicyId {
    PolicyId {
        kind: SmolStr::new_static(key.kind.name()),
        namespace: key.namespace.clone(),
        name: key.name.clone(),
    }
}

fn render(
    key: &PolicyKey,
    data: &Data,
    store: &mut RuleStore,
    sets: &mut Sets,
) -> (Arc<calico_dpmsg::Policy>, Vec<SetId>) {
    let seeds = [format!("pol-in-default/{}", key.name), format!("pol-out-default/{}", key.name)];
    let scanned = scan(&data.rules, [&seeds[0], &seeds[1]], store, sets);
    let selector = store.selector(data.selector).map(|s| s.canonical().into()).unwrap_or_default();
    let policy = calico_dpmsg::Policy {
        tier: data.tier.clone(),
        namespace: key.namespace.clone(),
        inbound: scanned.inbound,
        outbound: scanned.outbound,
        untracked: data.untracked,
        pre_dnat: data.pre_dnat,
        original_selector: selector,
        assume_needed_on_every_node: data.everywhere,
    };
    (Arc::new(policy), scanned.sets)
}
