//! IP sets: which are needed, what is in them, and what of that the dataplane was told.
//!
//! Owns: the sets that active rules name, with reference counts; their selectors, filed; their members. In: sets
//! that rules acquire and release, items that change. Out, at a flush: new sets whole, known sets as deltas, and
//! afterwards removals. Invariants: a set is filled only once it is needed and stays filled; an item lists
//! exactly the filled sets that select it; a delta names members that the dataplane has (removals) or lacks
//! (additions), never both.

use calico_dpmsg::{IpSetId, IpSetType, Member, Message};
use calico_model::policy::EndpointPort;
use calico_net::{Cidr, Protocol};
use calico_selector::{Selector, unique_id};
use rustc_hash::FxHashMap;
use smol_str::SmolStr;

use crate::filing::{Filing, Place};
use crate::idset::IdSet;
use crate::items::{Before, ItemId, Items};
use crate::members::Members;
use crate::nets::{Nets, diff};
use crate::slab::Slab;

/// Number of a set.
pub(crate) type SetId = u32;

/// Which of an item's addresses a set holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Content {
    /// Its networks.
    Nets,
    /// Its addresses with each of its ports of this name (and protocol, unless any will do).
    Ports {
        /// Protocol number; `None` for any.
        protocol: Option<u8>,
        /// Name of the port.
        name: SmolStr,
    },
}

#[derive(Debug)]
struct Set {
    id: IpSetId,
    content: Content,
    selector: Selector,
    place: Place,
    refs: u32,
    members: Members,
    filled: bool,
    sent: bool,
    /// Differences from what the dataplane has: true to add, false to remove. Only for sets that were sent.
    pending: FxHashMap<Member, bool>,
}

/// All sets.
#[derive(Debug)]
pub(crate) struct Sets {
    sets: Slab<Set>,
    by_id: FxHashMap<IpSetId, SetId>,
    filing: Filing,
    /// The dataplane takes members that overlap.
    overlaps: bool,
    /// Sets without members yet.
    fresh: Vec<SetId>,
    /// Sets that were sent and have pending changes.
    changed: IdSet,
    /// Sets whose last reference went.
    unused: Vec<SetId>,
    scratch: Vec<u32>,
}

// === impl Sets: references ===

impl Sets {
    /// No sets. With `overlaps`, members may overlap; else covered ones are held back.
    pub(crate) fn new(overlaps: bool) -> Self {
        Self {
            sets: Slab::default(),
            by_id: FxHashMap::default(),
            filing: Filing::default(),
            overlaps,
            fresh: Vec::new(),
            changed: IdSet::EMPTY,
            unused: Vec::new(),
            scratch: Vec::new(),
        }
    }

    /// The set of all networks of what the selector matches, with one more reference.
    pub(crate) fn acquire_nets(&mut self, selector: &Selector) -> (SetId, IpSetId) {
        self.acquire(selector.unique_id(), selector, || Content::Nets)
    }

    /// The set of a named port of what the selector matches, with one more reference.
    pub(crate) fn acquire_ports(
        &mut self,
        selector: &Selector,
        protocol: Option<&Protocol>,
        name: &SmolStr,
    ) -> (SetId, IpSetId) {
        let number = protocol.and_then(Protocol::to_number);
        let text = match (protocol, number) {
            (None, _) => SmolStr::new_static("any"),
            (_, Some(6)) => SmolStr::new_static("tcp"),
            (_, Some(17)) => SmolStr::new_static("udp"),
            (_, Some(132)) => SmolStr::new_static("sctp"),
            (Some(other), _) => smol_str::format_smolstr!("{other}"),
        };
        let id = unique_id("n", &format!("{},{text},{name}", selector.unique_id()));
        // A protocol that has no number has no ports either.
        let protocol = protocol.map(|_| number.unwrap_or(0));
        self.acquire(&id, selector, || Content::Ports { protocol, name: name.clone() })
    }

    fn acquire(
        &mut self,
        id: &str,
        selector: &Selector,
        content: impl FnOnce() -> Content,
    ) -> (SetId, IpSetId) {
        if let Some(&set) = self.by_id.get(id)
            && let Some(slot) = self.sets.get_mut(set)
        {
            slot.refs += 1;
            return (set, slot.id.clone());
        }
        let (id, content) = (IpSetId::from(id), content());
        let members = match content {
            Content::Nets => Members::nets(),
            Content::Ports { .. } => Members::ports(),
        };
        let set = self.sets.insert(Set {
            id: id.clone(),
            content,
            selector: selector.clone(),
            place: Place::Nowhere,
            refs: 1,
            members,
            filled: false,
            sent: false,
            pending: FxHashMap::default(),
        });
        self.by_id.insert(id.clone(), set);
        self.fresh.push(set);
        (set, id)
    }

    /// Gives a reference back. The set stays until the end of the flush, in case it is needed again.
    pub(crate) fn release(&mut self, set: SetId) {
        if let Some(slot) = self.sets.get_mut(set) {
            slot.refs -= 1;
            if slot.refs == 0 {
                self.unused.push(set);
            }
        }
    }

    /// Number of sets.
    pub(crate) fn len(&self) -> usize {
        self.sets.len()
    }
}

// === impl Sets: items ===

impl Sets {
    /// Brings the sets in line with an item that was put. `before` is what it contributed, if that changed.
    pub(crate) fn item_changed(&mut self, items: &mut Items, item: ItemId, before: Option<Before>) {
        let mut wanted = std::mem::take(&mut self.scratch);
        if self.filing.is_empty() {
            wanted.clear();
        } else {
            self.filing.candidates(items, item, &mut wanted);
            let sets = &self.sets;
            wanted.retain(|&s| sets.get(s).is_some_and(|set| items.selects(&set.selector, item)));
        }
        self.rematch(items, item, &wanted, before);
        self.scratch = wanted;
    }

    /// Takes an item that was cleared out of all sets.
    pub(crate) fn item_gone(&mut self, items: &mut Items, item: ItemId, before: Before) {
        self.rematch(items, item, &[], Some(before));
    }

    fn rematch(&mut self, items: &mut Items, item: ItemId, wanted: &[SetId], before: Option<Before>) {
        let Some(matched) = items.matched_mut(item) else { return };
        let had = std::mem::take(matched).to_vec();
        *matched = IdSet::from_sorted(wanted);
        if !(had.is_empty() && wanted.is_empty())
            && let Some((nets, ports)) = items.contribution(item)
        {
            let (old_nets, old_ports) = match &before {
                Some(before) => (&before.nets, items.ports(before.ports)),
                None => (nets, ports),
            };
            let (mut left, mut come) = (Vec::new(), Vec::new());
            diff(had.iter().copied(), wanted.iter().copied(), |set, new| {
                if new { come.push(set) } else { left.push(set) }
            });
            // What comes, before what goes: a member that merely moves is never without a reference.
            for &set in &come {
                self.contribute(set, nets, ports, true);
            }
            if before.is_some() {
                for &set in had.iter().filter(|s| left.binary_search(s).is_err()) {
                    self.replace(set, (old_nets, old_ports), (nets, ports));
                }
            }
            for &set in &left {
                self.contribute(set, old_nets, old_ports, false);
            }
        }
        if let Some(before) = before {
            items.release_ports(before.ports);
        }
    }

    fn contribute(&mut self, set: SetId, nets: &Nets, ports: &[EndpointPort], add: bool) {
        let Some(slot) = self.sets.get_mut(set) else { return };
        let content = slot.content.clone();
        each_member(&content, nets, ports, |member| slot.change(member, add, self.overlaps));
        if !slot.pending.is_empty() {
            self.changed.insert(set);
        }
    }

    fn replace(&mut self, set: SetId, old: (&Nets, &[EndpointPort]), new: (&Nets, &[EndpointPort])) {
        let Some(slot) = self.sets.get_mut(set) else { return };
        let overlaps = self.overlaps;
        let (mut gone, mut come) = (Vec::new(), Vec::new());
        let mut sort = |member, new| if new { come.push(member) } else { gone.push(member) };
        if slot.content == Content::Nets {
            diff(old.0.iter(), new.0.iter(), |cidr, new| sort(Member::Net(cidr), new));
        } else {
            let members = |(nets, ports): (&Nets, &[EndpointPort])| {
                let mut all = Vec::new();
                each_member(&slot.content, nets, ports, |m| all.push(m));
                all.sort_unstable();
                all
            };
            diff(members(old), members(new), sort);
        }
        come.into_iter().for_each(|m| slot.change(m, true, overlaps));
        gone.into_iter().for_each(|m| slot.change(m, false, overlaps));
        if !slot.pending.is_empty() {
            self.changed.insert(set);
        }
    }

    /// Fills the sets that were acquired since the last flush.
    pub(crate) fn fill(&mut self, items: &mut Items) {
        for set in std::mem::take(&mut self.fresh) {
            let Some(slot) = self.sets.get_mut(set) else { continue };
            if slot.refs == 0 || slot.filled {
                continue;
            }
            slot.filled = true;
            slot.place = self.filing.file(items, &slot.selector, set);
            let mut contributions = Vec::new();
            for item in items.search(&slot.selector) {
                if let Some(matched) = items.matched_mut(item) {
                    matched.insert(set);
                }
                if let Some((nets, ports)) = items.contribution(item) {
                    each_member(&slot.content, nets, ports, |member| contributions.push(member));
                }
            }
            slot.members.fill(contributions.into_iter());
            self.changed.insert(set);
        }
    }
}

// === impl Sets: messages ===

impl Sets {
    /// Tells of new sets and of changes in known ones, sorted by id; new ones first.
    pub(crate) fn emit_updates(&mut self, out: &mut dyn FnMut(Message)) {
        let changed = std::mem::take(&mut self.changed).to_vec();
        let mut order: Vec<(IpSetId, SetId)> = changed
            .into_iter()
            .filter_map(|set| self.sets.get(set).filter(|s| s.refs > 0).map(|s| (s.id.clone(), set)))
            .collect();
        order.sort_unstable();
        let (new, known): (Vec<_>, Vec<_>) =
            order.into_iter().partition(|&(_, set)| self.sets.get(set).is_some_and(|s| !s.sent));
        for (id, set) in new {
            if let Some(slot) = self.sets.get_mut(set) {
                slot.sent = true;
                let kind = match slot.content {
                    Content::Nets => IpSetType::Net,
                    Content::Ports { .. } => IpSetType::IpPort,
                };
                out(Message::IpSetUpdate { id, kind, members: slot.members.programmed(self.overlaps) });
            }
        }
        for (id, set) in known {
            let Some(slot) = self.sets.get_mut(set) else { continue };
            let (mut added, mut removed) = (Vec::new(), Vec::new());
            for (member, add) in std::mem::take(&mut slot.pending) {
                if add { added.push(member) } else { removed.push(member) }
            }
            if added.is_empty() && removed.is_empty() {
                continue;
            }
            added.sort_unstable();
            removed.sort_unstable();
            out(Message::IpSetDelta { id, added, removed });
        }
    }

    /// Forgets the sets that nothing names any more and tells of those that the dataplane has, sorted by id.
    pub(crate) fn emit_removes(&mut self, items: &mut Items, out: &mut dyn FnMut(Message)) {
        let mut gone = Vec::new();
        for set in std::mem::take(&mut self.unused) {
            if self.sets.get(set).is_none_or(|s| s.refs > 0) {
                continue;
            }
            let Some(slot) = self.sets.remove(set) else { continue };
            self.by_id.remove(&slot.id);
            self.changed.remove(set);
            if slot.filled {
                self.filing.unfile(items, slot.place, set);
                for item in items.search(&slot.selector) {
                    if let Some(matched) = items.matched_mut(item) {
                        matched.remove(set);
                    }
                }
            }
            if slot.sent {
                gone.push(slot.id);
            }
        }
        gone.sort_unstable();
        gone.into_iter().for_each(|id| out(Message::IpSetRemove(id)));
    }
}

// === impl Set ===

impl Set {
    fn change(&mut self, member: Member, add: bool, overlaps: bool) {
        let (pending, sent) = (&mut self.pending, self.sent);
        self.members.change(member, add, overlaps, &mut |member, on| {
            // What was not sent yet goes out whole at the flush.
            if sent && pending.insert(member, on) == Some(!on) {
                pending.remove(&member);
            }
        });
    }
}

fn each_member(content: &Content, nets: &Nets, ports: &[EndpointPort], mut f: impl FnMut(Member)) {
    match content {
        Content::Nets => nets.iter().for_each(|cidr| f(Member::Net(cidr))),
        Content::Ports { protocol, name } => {
            for port in ports.iter().filter(|p| p.name == *name) {
                let number = port.protocol.to_number().unwrap_or(0);
                // Ports of protocol 0 or of an unknown one only serve rules without a protocol.
                if protocol.is_some_and(|wanted| wanted != number || wanted == 0) {
                    continue;
                }
                for cidr in nets.iter().filter(Cidr::is_host) {
                    f(Member::IpPort { addr: cidr.addr(), protocol: number, port: port.port });
                }
            }
        }
    }
}
