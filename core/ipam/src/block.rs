//! Arithmetic of one allocation block.
//!
//! Owns: the meaning of a stored [`AllocationBlock`]: which addresses are free, in which order they are handed
//! out, what a release does, when a released address may be handed out again, and the numbers that tell two
//! allocations of the same address apart. In: a stored block and the time. Out: a changed block to be stored.
//!
//! Invariants, whatever was stored:
//! - an address that somebody holds, or that cools down, is never handed out;
//! - free addresses are handed out in the order in which they became free;
//! - a loaded block lists each free ordinal once, and only attributes that are in use after a change.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use calico_api::Timestamp;
use calico_model::ipam::{AllocationAttribute, AllocationBlock};
use calico_model::{AffinityType, Key};
use calico_net::Cidr;
use smol_str::{SmolStr, format_smolstr};

use crate::error::Mismatch;
use crate::reservation::Reservations;

/// Handle under which addresses are set aside that a Windows host cannot give to workloads.
pub const WINDOWS_RESERVED_HANDLE: &str = "windows-reserved-ipam-handle";

/// Most addresses of one block.
pub const MAX_BLOCK_SIZE: u32 = 1 << 16;

/// Who owns blocks.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Owner {
    /// Kind of owner.
    pub affinity: AffinityType,
    /// Name; for [`AffinityType::Host`] the node's.
    pub name: SmolStr,
}

/// Addresses at the ends of each new block that no workload gets.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HostReserved {
    /// How many at the start.
    pub start_of_block: u32,
    /// How many at the end.
    pub end_of_block: u32,
    /// Handle that holds them.
    pub handle: SmolStr,
    /// Kept as attribute `note`.
    pub note: SmolStr,
}

/// What is wrong with a stored block.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BlockDefect {
    /// The list of allocations does not cover the block.
    #[error("{found} allocations for {expected} addresses")]
    Size {
        /// Addresses in the block.
        expected: u128,
        /// Entries.
        found: usize,
    },
    /// An allocation names an attribute that is not there.
    #[error("allocation {ordinal} names attribute {index}, which does not exist")]
    NoAttribute {
        /// Ordinal.
        ordinal: u32,
        /// Index of the attribute.
        index: u32,
    },
    /// An attribute that no allocation names.
    #[error("attribute {index} is not in use")]
    UnusedAttribute {
        /// Index.
        index: u32,
    },
    /// A free list entry beyond the block.
    #[error("free list names ordinal {ordinal}, which is outside the block")]
    FreeOutside {
        /// Ordinal.
        ordinal: u32,
    },
    /// A free list entry that occurs twice.
    #[error("free list names ordinal {ordinal} twice")]
    FreeTwice {
        /// Ordinal.
        ordinal: u32,
    },
    /// A free list entry that is allocated.
    #[error("ordinal {ordinal} is both free and allocated")]
    FreeAndAllocated {
        /// Ordinal.
        ordinal: u32,
    },
    /// Neither free nor allocated.
    #[error("ordinal {ordinal} is neither free nor allocated")]
    Lost {
        /// Ordinal.
        ordinal: u32,
    },
    /// A release time that is still to come.
    #[error("ordinal {ordinal} was released in the future, at {at}")]
    FutureRelease {
        /// Ordinal.
        ordinal: u32,
        /// Time as stored.
        at: SmolStr,
    },
}

/// Who holds an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holding<'a> {
    /// Nobody; it may be handed out.
    Free,
    /// Nobody, but it may not be handed out yet.
    Cooling(&'a AllocationAttribute),
    /// Somebody.
    Held(&'a AllocationAttribute),
}

/// One address to be released from a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReleaseRequest {
    /// Ordinal in the block.
    pub ordinal: u32,
    /// Only if it is held under this handle.
    pub handle: Option<SmolStr>,
    /// Only if the allocation has this number.
    pub sequence: Option<u64>,
}

/// What a release did to a block.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Released {
    /// Ordinals that were held and are no more.
    pub ordinals: Vec<u32>,
    /// Ordinals that nobody held.
    pub unallocated: Vec<u32>,
    /// How many of them each handle held.
    pub handles: BTreeMap<SmolStr, u64>,
}

/// An allocation block in use. Build with [`Block::new`] or [`Block::load`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    raw: AllocationBlock,
}

// === impl Owner ===

impl Owner {
    /// A node.
    pub fn host(name: impl Into<SmolStr>) -> Self {
        Self { affinity: AffinityType::Host, name: name.into() }
    }

    /// Something that is no node.
    pub fn virtual_(name: impl Into<SmolStr>) -> Self {
        Self { affinity: AffinityType::Virtual, name: name.into() }
    }

    /// Reads the form `host:<name>` or `virtual:<name>` that blocks hold.
    pub fn parse(text: &str) -> Option<Self> {
        let (kind, name) = text.split_once(':')?;
        let affinity = match kind {
            "host" => AffinityType::Host,
            "virtual" => AffinityType::Virtual,
            _ => return None,
        };
        Some(Self { affinity, name: name.into() })
    }

    /// The form that blocks hold.
    pub fn text(&self) -> SmolStr {
        format_smolstr!("{}:{}", self.affinity.as_str(), self.name)
    }

    /// Key of this owner's affinity for `block`.
    pub fn affinity_key(&self, block: Cidr) -> Key {
        Key::affinity(self.affinity, self.name.clone(), block)
    }
}

// === impl HostReserved ===

impl HostReserved {
    /// Addresses of each block that are set aside.
    pub fn count(&self) -> u64 {
        u64::from(self.start_of_block) + u64::from(self.end_of_block)
    }
}

// === impl Block ===

impl Block {
    /// A new block of `owner` in which nothing is assigned, except the addresses that `reserved` sets aside.
    /// Its sequence number is the time in nanoseconds, so that a block that is deleted and made again never
    /// repeats one. `None` if the block has more than [`MAX_BLOCK_SIZE`] addresses.
    pub fn new(
        cidr: Cidr,
        owner: &Owner,
        reserved: Option<&HostReserved>,
        now: jiff::Timestamp,
    ) -> Option<Self> {
        let cidr = cidr.masked();
        let size = block_size(&cidr)?;
        let mut raw = AllocationBlock {
            cidr,
            affinity: Some(owner.text()),
            affinity_claim_time: Some(format_smolstr!("{}", Timestamp::from(now))),
            host_affinity: None,
            allocations: vec![None; size as usize],
            unallocated: (0..size).collect(),
            attributes: Vec::new(),
            sequence_number: u64::try_from(now.as_nanosecond()).unwrap_or(0),
            sequence_number_for_allocation: BTreeMap::new(),
            deleted: false,
        };
        if let Some(reserved) = reserved.filter(|r| r.count() > 0) {
            let start = reserved.start_of_block.min(size);
            let end = size.saturating_sub(reserved.end_of_block).max(start);
            let note = (SmolStr::new_static("note"), reserved.note.clone());
            raw.attributes.push(AllocationAttribute {
                handle_id: Some(reserved.handle.clone()),
                active_owner_attrs: BTreeMap::from([note]),
                ..AllocationAttribute::default()
            });
            for (ordinal, slot) in (0..size).zip(&mut raw.allocations) {
                if ordinal < start || ordinal >= end {
                    *slot = Some(0);
                }
            }
            raw.unallocated = (start..end).collect();
        }
        Some(Self { raw })
    }

    /// Takes a stored block into use. Addresses whose time of `cooldown` seconds is over become free, and a
    /// free list that contradicts the allocations is set right (the allocations hold).
    pub fn load(raw: AllocationBlock, cooldown: u32, now: jiff::Timestamp) -> Result<Self, BlockDefect> {
        let expected = raw.cidr.size().unwrap_or(u128::MAX);
        if expected != raw.allocations.len() as u128 {
            return Err(BlockDefect::Size { expected, found: raw.allocations.len() });
        }
        for (ordinal, index) in allocated(&raw) {
            if index as usize >= raw.attributes.len() {
                return Err(BlockDefect::NoAttribute { ordinal, index });
            }
        }
        let mut block = Self { raw };
        block.repair_free_list();
        block.free_cold(cooldown, now);
        Ok(block)
    }

    /// The block's addresses.
    pub fn cidr(&self) -> Cidr {
        self.raw.cidr
    }

    /// The stored form.
    pub fn raw(&self) -> &AllocationBlock {
        &self.raw
    }

    /// The stored form, by value.
    pub fn into_raw(self) -> AllocationBlock {
        self.raw
    }

    /// Who owns the block.
    pub fn owner(&self) -> Option<Owner> {
        self.raw.affinity.as_deref().and_then(Owner::parse)
    }

    /// True if `owner` owns the block.
    pub fn owned_by(&self, owner: &Owner) -> bool {
        self.raw.affinity.as_deref() == Some(owner.text().as_str())
    }

    /// Number of the block's next change.
    pub fn sequence(&self) -> u64 {
        self.raw.sequence_number
    }

    /// When the present owner claimed the block; `None` if unknown, which means long ago.
    pub fn claimed_at(&self) -> Option<jiff::Timestamp> {
        parse_time(self.raw.affinity_claim_time.as_deref()?)
    }

    /// True if no address is in use. Those set aside on Windows do not count; those that cool down do.
    pub fn is_empty(&self) -> bool {
        allocated(&self.raw).all(|(_, index)| {
            let handle = self.raw.attributes[index as usize].handle_id.as_deref();
            handle.is_some_and(|h| h.eq_ignore_ascii_case(WINDOWS_RESERVED_HANDLE))
        })
    }

    /// Number of addresses that auto-assign could hand out.
    pub fn free(&self, reservations: &Reservations) -> usize {
        if !reservations.overlaps(&self.raw.cidr) {
            return self.raw.unallocated.len();
        }
        self.raw.unallocated.iter().filter(|o| !self.is_reserved(**o, reservations)).count()
    }

    /// Address of an ordinal.
    pub fn address(&self, ordinal: u32) -> Option<IpAddr> {
        self.raw.cidr.nth(u128::from(ordinal)).filter(|a| self.raw.cidr.contains(*a))
    }

    /// Ordinal of an address; `None` if it is outside the block.
    pub fn ordinal(&self, ip: IpAddr) -> Option<u32> {
        u32::try_from(self.raw.cidr.ordinal(ip)?).ok()
    }

    /// Who holds an ordinal; free outside the block.
    pub fn holding(&self, ordinal: u32) -> Holding<'_> {
        let index = self.raw.allocations.get(ordinal as usize).copied().flatten();
        match index.and_then(|i| self.raw.attributes.get(i as usize)) {
            None => Holding::Free,
            Some(attribute) if attribute.released_at.is_some() => Holding::Cooling(attribute),
            Some(attribute) => Holding::Held(attribute),
        }
    }

    /// The number of the allocation of an ordinal; 0 if none is kept.
    pub fn allocation_sequence(&self, ordinal: u32) -> u64 {
        self.raw.sequence_number_for_allocation.get(&ordinal).copied().unwrap_or(0)
    }

    /// Ordinals held under `handle`, ascending.
    pub fn held_by(&self, handle: &str) -> Vec<u32> {
        let ours: Vec<bool> = self
            .raw
            .attributes
            .iter()
            .map(|a| {
                a.released_at.is_none() && a.handle_id.as_deref().is_some_and(|h| handle_name(h) == handle)
            })
            .collect();
        if !ours.contains(&true) {
            return Vec::new();
        }
        allocated(&self.raw).filter(|(_, index)| ours[*index as usize]).map(|(ordinal, _)| ordinal).collect()
    }

    /// Earliest time at which a cooling address was released.
    pub fn oldest_release(&self) -> Option<jiff::Timestamp> {
        self.raw.attributes.iter().filter_map(|a| parse_time(a.released_at.as_deref()?)).min()
    }

    /// Hands out up to `count` free addresses that `reservations` leave, all with the same attributes.
    /// Fewer, even none, is no error.
    pub fn auto_assign(
        &mut self,
        count: usize,
        handle: Option<&SmolStr>,
        attributes: &BTreeMap<SmolStr, SmolStr>,
        reservations: &Reservations,
    ) -> Vec<IpAddr> {
        let all = !reservations.overlaps(&self.raw.cidr);
        let mut taken: Vec<u32> = Vec::new();
        let free = std::mem::take(&mut self.raw.unallocated);
        let mut kept = Vec::with_capacity(free.len());
        for ordinal in free {
            if taken.len() < count && (all || !self.is_reserved(ordinal, reservations)) {
                taken.push(ordinal);
            } else {
                kept.push(ordinal);
            }
        }
        self.raw.unallocated = kept;
        if taken.is_empty() {
            return Vec::new();
        }
        let index = self.attribute_index(handle, attributes);
        for ordinal in &taken {
            self.raw.allocations[*ordinal as usize] = Some(index);
            self.raw.sequence_number_for_allocation.insert(*ordinal, self.raw.sequence_number);
        }
        taken.into_iter().filter_map(|o| self.address(o)).collect()
    }

    /// Hands out one given address, reserved or not. False if it is not free or outside the block.
    pub fn assign(
        &mut self,
        ip: IpAddr,
        handle: Option<&SmolStr>,
        attributes: &BTreeMap<SmolStr, SmolStr>,
    ) -> bool {
        let Some(ordinal) = self.ordinal(ip) else { return false };
        if !matches!(self.holding(ordinal), Holding::Free) {
            return false;
        }
        let index = self.attribute_index(handle, attributes);
        self.raw.unallocated.retain(|o| *o != ordinal);
        self.raw.allocations[ordinal as usize] = Some(index);
        self.raw.sequence_number_for_allocation.insert(ordinal, self.raw.sequence_number);
        true
    }

    /// Releases addresses: all or, if one of them is held in another way than its request says, none.
    /// They become free once `cooldown` seconds have passed; with 0 at once.
    pub fn release(
        &mut self,
        requests: &[ReleaseRequest],
        cooldown: u32,
        now: jiff::Timestamp,
    ) -> Result<Released, (u32, Mismatch)> {
        let mut outcome = Released::default();
        let mut seen = BTreeSet::new();
        for request in requests {
            let ordinal = request.ordinal;
            if !seen.insert(ordinal) {
                continue;
            }
            let stored = self.allocation_sequence(ordinal);
            if let Some(given) = request.sequence.filter(|given| *given != stored) {
                return Err((ordinal, Mismatch::Sequence { given, stored }));
            }
            let Holding::Held(attribute) = self.holding(ordinal) else {
                outcome.unallocated.push(ordinal);
                continue;
            };
            let holder = attribute.handle_id.as_deref().map(handle_name);
            if let Some(given) = request.handle.as_ref().filter(|given| holder != Some(given.as_str())) {
                let stored = holder.unwrap_or_default().into();
                return Err((ordinal, Mismatch::Handle { given: given.clone(), stored }));
            }
            if let Some(holder) = holder {
                *outcome.handles.entry(holder.into()).or_insert(0) += 1;
            }
            outcome.ordinals.push(ordinal);
        }
        for ordinal in &outcome.ordinals {
            self.raw.sequence_number_for_allocation.insert(*ordinal, self.raw.sequence_number);
        }
        self.put_to_cool(&outcome.ordinals, cooldown, now);
        Ok(outcome)
    }

    /// Releases every address held under `handle`. While they cool down they keep the numbers of their allocations,
    /// as upstream has it.
    pub fn release_handle(&mut self, handle: &str, cooldown: u32, now: jiff::Timestamp) -> Vec<u32> {
        let ordinals = self.held_by(handle);
        self.put_to_cool(&ordinals, cooldown, now);
        ordinals
    }

    /// Takes the block from its owner; the addresses in use stay with their holders.
    pub fn disown(&mut self) {
        self.raw.affinity = None;
        self.raw.affinity_claim_time = None;
    }

    /// Counts one more change; to be called for each update that is stored.
    pub fn bump(&mut self) {
        self.raw.sequence_number = self.raw.sequence_number.wrapping_add(1);
    }

    /// Everything that contradicts itself in the block, as stored now.
    pub fn check(&self, now: jiff::Timestamp) -> Vec<BlockDefect> {
        check(&self.raw, now)
    }

    fn is_reserved(&self, ordinal: u32, reservations: &Reservations) -> bool {
        self.address(ordinal).is_some_and(|ip| reservations.contains(ip))
    }

    fn attribute_index(&mut self, handle: Option<&SmolStr>, attributes: &BTreeMap<SmolStr, SmolStr>) -> u32 {
        let wanted = |a: &AllocationAttribute| {
            a.released_at.is_none()
                && a.handle_id.as_ref() == handle
                && a.active_owner_attrs == *attributes
                && a.alternate_owner_attrs.is_empty()
        };
        if let Some(index) = self.raw.attributes.iter().position(wanted) {
            return index as u32;
        }
        self.raw.attributes.push(AllocationAttribute {
            handle_id: handle.cloned(),
            active_owner_attrs: attributes.clone(),
            ..AllocationAttribute::default()
        });
        (self.raw.attributes.len() - 1) as u32
    }

    fn put_to_cool(&mut self, ordinals: &[u32], cooldown: u32, now: jiff::Timestamp) {
        if ordinals.is_empty() {
            return;
        }
        let index = self.raw.attributes.len() as u32;
        self.raw.attributes.push(AllocationAttribute {
            released_at: Some(format_smolstr!("{}", Timestamp::from(now))),
            ..AllocationAttribute::default()
        });
        for ordinal in ordinals {
            self.raw.allocations[*ordinal as usize] = Some(index);
        }
        if !self.free_cold(cooldown, now) {
            self.compact();
        }
    }

    /// Frees what has cooled down. True if something changed.
    fn free_cold(&mut self, cooldown: u32, now: jiff::Timestamp) -> bool {
        if self.raw.attributes.iter().all(|a| a.released_at.is_none()) {
            return false;
        }
        let cold: Vec<bool> =
            self.raw.attributes.iter().map(|a| is_cold(a.released_at.as_deref(), cooldown, now)).collect();
        if !cold.contains(&true) {
            return false;
        }
        for (ordinal, slot) in (0u32..).zip(&mut self.raw.allocations) {
            if slot.is_some_and(|index| cold[index as usize]) {
                *slot = None;
                self.raw.unallocated.push(ordinal);
                self.raw.sequence_number_for_allocation.remove(&ordinal);
            }
        }
        self.compact();
        true
    }

    /// Drops attributes that no allocation names; the others keep their order.
    fn compact(&mut self) {
        let mut used = vec![false; self.raw.attributes.len()];
        for (_, index) in allocated(&self.raw) {
            used[index as usize] = true;
        }
        if used.iter().all(|u| *u) {
            return;
        }
        let mut moved = Vec::with_capacity(used.len());
        let mut next = 0u32;
        for in_use in &used {
            moved.push(next);
            next += u32::from(*in_use);
        }
        let mut keep = used.iter();
        self.raw.attributes.retain(|_| keep.next().copied().unwrap_or(false));
        for index in self.raw.allocations.iter_mut().flatten() {
            *index = moved[*index as usize];
        }
    }

    /// Makes the free list name each free ordinal once: wrong entries go, lost ordinals come last.
    fn repair_free_list(&mut self) {
        let free = self.raw.allocations.iter().filter(|a| a.is_none()).count();
        let mut listed = vec![false; self.raw.allocations.len()];
        let mut sound = self.raw.unallocated.len() == free;
        for ordinal in &self.raw.unallocated {
            match listed.get_mut(*ordinal as usize) {
                Some(seen) if !*seen && self.raw.allocations[*ordinal as usize].is_none() => *seen = true,
                _ => sound = false,
            }
        }
        if sound {
            return;
        }
        let mut left = listed.clone();
        self.raw.unallocated.retain(|o| left.get_mut(*o as usize).is_some_and(std::mem::take));
        let lost = (0u32..).zip(&self.raw.allocations).filter(|(o, a)| a.is_none() && !listed[*o as usize]);
        self.raw.unallocated.extend(lost.map(|(ordinal, _)| ordinal));
    }
}

/// Everything that contradicts itself in a stored block.
pub fn check(raw: &AllocationBlock, now: jiff::Timestamp) -> Vec<BlockDefect> {
    let mut defects = Vec::new();
    let expected = raw.cidr.size().unwrap_or(u128::MAX);
    if expected != raw.allocations.len() as u128 {
        defects.push(BlockDefect::Size { expected, found: raw.allocations.len() });
    }
    let mut used = vec![false; raw.attributes.len()];
    for (ordinal, index) in allocated(raw) {
        match raw.attributes.get(index as usize) {
            None => defects.push(BlockDefect::NoAttribute { ordinal, index }),
            Some(attribute) => {
                used[index as usize] = true;
                let at = attribute.released_at.as_ref();
                if let Some(at) = at.filter(|at| parse_time(at).is_some_and(|t| t > now)) {
                    defects.push(BlockDefect::FutureRelease { ordinal, at: at.clone() });
                }
            }
        }
    }
    let unused = (0u32..).zip(&used).filter(|(_, used)| !**used);
    defects.extend(unused.map(|(index, _)| BlockDefect::UnusedAttribute { index }));
    let mut listed = vec![false; raw.allocations.len()];
    for ordinal in raw.unallocated.iter().copied() {
        match listed.get_mut(ordinal as usize) {
            None => defects.push(BlockDefect::FreeOutside { ordinal }),
            Some(seen) if *seen => defects.push(BlockDefect::FreeTwice { ordinal }),
            Some(seen) => *seen = true,
        }
    }
    for ((ordinal, slot), listed) in (0u32..).zip(&raw.allocations).zip(listed) {
        match (slot, listed) {
            (Some(_), true) => defects.push(BlockDefect::FreeAndAllocated { ordinal }),
            (None, false) => defects.push(BlockDefect::Lost { ordinal }),
            _ => {}
        }
    }
    defects
}

/// A handle as it counts: handles of a past migration carry a tail behind a carriage return.
pub fn handle_name(stored: &str) -> &str {
    stored.split('\r').next().unwrap_or_default()
}

fn allocated(raw: &AllocationBlock) -> impl Iterator<Item = (u32, u32)> {
    (0u32..).zip(&raw.allocations).filter_map(|(ordinal, slot)| slot.map(|index| (ordinal, index)))
}

fn block_size(cidr: &Cidr) -> Option<u32> {
    let size = cidr.size().and_then(|n| u32::try_from(n).ok())?;
    (size <= MAX_BLOCK_SIZE).then_some(size)
}

/// A time that cannot be read counts as long past: an address must not be lost to a typing error.
fn is_cold(released_at: Option<&str>, cooldown: u32, now: jiff::Timestamp) -> bool {
    let Some(text) = released_at else { return false };
    let Some(at) = parse_time(text) else { return true };
    cooldown == 0 || now.as_nanosecond() - at.as_nanosecond() > i128::from(cooldown) * 1_000_000_000
}

fn parse_time(text: &str) -> Option<jiff::Timestamp> {
    text.parse::<Timestamp>().ok().map(|t| t.0)
}

#[cfg(test)]
mod tests;
