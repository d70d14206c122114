//! Rules of profiles: those that endpoints of this node name are told to the dataplane.
//!
//! In: rules by profile name, and how many local endpoints name a profile. Out, at a flush: updates and removals.
//! A profile that is named but does not exist denies everything. Invariant: exactly the named profiles are known
//! to the dataplane after a flush.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use calico_dpmsg::{Message, Profile};
use calico_model::policy::ProfileRules;
use smol_str::SmolStr;

use crate::problem::Findings;
use crate::rules::{RuleList, RuleStore};
use crate::scan::{deny_all, scan};
use crate::sets::{SetId, Sets};

#[derive(Debug, Default)]
struct Slot {
    rules: Option<RuleList>,
    /// Local endpoints that name the profile, counted per mention.
    uses: u32,
    sent: Option<Box<Sent>>,
}

/// What the dataplane has; holds references of its own to the rules and sets.
#[derive(Debug)]
struct Sent {
    /// `None`: deny all.
    rules: Option<RuleList>,
    sets: Vec<SetId>,
}

/// All profiles.
#[derive(Debug, Default)]
pub(crate) struct Profiles {
    slots: BTreeMap<SmolStr, Slot>,
    dirty: BTreeSet<SmolStr>,
}

// === impl Profiles ===

impl Profiles {
    /// Sets or removes the rules of a profile.
    pub(crate) fn put(
        &mut self,
        name: &SmolStr,
        rules: Option<&ProfileRules>,
        store: &mut RuleStore,
        findings: &mut Findings,
    ) {
        let rules = rules.map(|r| store.acquire_rules(&r.inbound_rules, &r.outbound_rules, findings));
        let slot = match rules {
            Some(_) => self.slots.entry(name.clone()).or_default(),
            None => match self.slots.get_mut(name) {
                Some(slot) => slot,
                None => return,
            },
        };
        let old = std::mem::replace(&mut slot.rules, rules);
        if let Some(old) = old {
            store.release_rules(&old);
        }
        self.touch(name);
    }

    /// Counts a mention by a local endpoint that comes or goes.
    pub(crate) fn mention(&mut self, name: &SmolStr, comes: bool) {
        let slot = self.slots.entry(name.clone()).or_default();
        slot.uses = if comes { slot.uses + 1 } else { slot.uses.saturating_sub(1) };
        self.touch(name);
    }

    fn touch(&mut self, name: &SmolStr) {
        let Some(slot) = self.slots.get(name) else { return };
        if slot.uses > 0 || slot.sent.is_some() {
            self.dirty.insert(name.clone());
        } else if slot.rules.is_none() {
            self.slots.remove(name);
        }
    }

    /// Scans what changed. Returns the updates and the removals, each sorted by name.
    pub(crate) fn flush(&mut self, store: &mut RuleStore, sets: &mut Sets) -> (Vec<Message>, Vec<Message>) {
        let (mut updates, mut removes) = (Vec::new(), Vec::new());
        for name in std::mem::take(&mut self.dirty) {
            let Some(slot) = self.slots.get_mut(&name) else { continue };
            let before = slot.sent.take();
            if slot.uses == 0 {
                if before.is_some() {
                    removes.push(Message::ProfileRemove(name.clone()));
                }
            } else if before.as_ref().is_some_and(|b| b.rules == slot.rules) {
                slot.sent = before;
                continue;
            } else {
                let seeds = [format!("prof-in-{name}"), format!("prof-out-{name}")];
                let seeds = [seeds[0].as_str(), seeds[1].as_str()];
                let scanned = match &slot.rules {
                    Some(rules) => scan(rules, seeds, store, sets),
                    None => deny_all(seeds, store),
                };
                if let Some(rules) = &slot.rules {
                    store.retain_rules(rules);
                }
                slot.sent = Some(Box::new(Sent { rules: slot.rules.clone(), sets: scanned.sets }));
                let profile = Profile { inbound: scanned.inbound, outbound: scanned.outbound };
                updates.push(Message::ProfileUpdate(name.clone(), Arc::new(profile)));
            }
            // After the new ones were taken, so that what both name never goes to zero.
            if let Some(before) = before {
                before.sets.iter().for_each(|&set| sets.release(set));
                if let Some(rules) = &before.rules {
                    store.release_rules(rules);
                }
            }
            if slot.uses == 0 && slot.rules.is_none() {
                self.slots.remove(&name);
            }
        }
        (updates, removes)
    }

    /// Names of profiles that local endpoints name and that do not exist.
    pub(crate) fn missing(&self) -> impl Iterator<Item = &SmolStr> {
        self.slots.iter().filter(|(_, s)| s.uses > 0 && s.rules.is_none()).map(|(name, _)| name)
    }

    /// Number of profiles that the dataplane has.
    pub(crate) fn active(&self) -> usize {
        self.slots.values().filter(|s| s.sent.is_some()).count()
    }
}
