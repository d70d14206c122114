//! Permanent neighbours (ARP, NDP) and forwarding entries on links that are ours.
//!
//! In: per link name, which address has which hardware address, and for tunnel devices which hardware address is
//! behind which node. Out: the fewest changes that make the kernel hold them. Neighbours are kept by address and
//! forwarding entries by hardware address, so that several addresses may share one.
//!
//! Always holds: on a link with wishes, permanent entries that nobody wants go; entries that the kernel learned, and
//! other links' entries, are never touched.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;

use calico_net::{IpVersion, Mac};
use calico_netfilter::DeltaTracker;
use calico_netlink::{FdbEntry, Neighbour, NetlinkError};
use smol_str::SmolStr;

use super::net::{Change, NetKernel};

/// Wishes for one link.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Wishes {
    neighbours: BTreeMap<IpAddr, Mac>,
    /// Present for devices with a forwarding table: hardware address to node.
    fdb: Option<BTreeMap<Mac, IpAddr>>,
}

/// Entries of one link that is up.
#[derive(Debug, Default)]
struct Entries {
    neighbours: DeltaTracker<IpAddr, Mac>,
    fdb: DeltaTracker<Mac, IpAddr>,
    has_fdb: bool,
}

/// What an apply did.
#[derive(Debug, Default)]
pub(crate) struct NeighbourReport {
    /// Changes that the kernel carried out.
    pub(crate) written: usize,
    /// Changes that failed and stay pending.
    pub(crate) failures: Vec<NetlinkError>,
}

/// Neighbours and forwarding entries of both families.
#[derive(Debug)]
pub(crate) struct Neighbours {
    wishes: BTreeMap<SmolStr, Wishes>,
    /// Links that are up.
    links: HashMap<SmolStr, u32>,
    /// Entries of links that are up and have, or had, wishes.
    entries: BTreeMap<u32, Entries>,
    /// Links whose wishes or state changed.
    dirty: BTreeSet<SmolStr>,
    /// The kernel's entries must be read.
    stale: bool,
}

// === impl Neighbours ===

impl Neighbours {
    /// Nothing is wanted, and nothing known.
    pub(crate) fn new() -> Self {
        Self {
            wishes: BTreeMap::new(),
            links: HashMap::new(),
            entries: BTreeMap::new(),
            dirty: BTreeSet::new(),
            stale: true,
        }
    }

    /// Wants exactly these neighbours on a link.
    pub(crate) fn set_neighbours(&mut self, link: &SmolStr, neighbours: BTreeMap<IpAddr, Mac>) {
        let wishes = self.wishes.entry(link.clone()).or_default();
        if wishes.neighbours != neighbours {
            wishes.neighbours = neighbours;
            self.dirty.insert(link.clone());
        }
    }

    /// Wants exactly these forwarding entries on a link.
    pub(crate) fn set_fdb(&mut self, link: &SmolStr, fdb: BTreeMap<Mac, IpAddr>) {
        let wishes = self.wishes.entry(link.clone()).or_default();
        if wishes.fdb.as_ref() != Some(&fdb) {
            wishes.fdb = Some(fdb);
            self.dirty.insert(link.clone());
        }
    }

    /// Wants nothing on a link any more.
    pub(crate) fn remove(&mut self, link: &SmolStr) {
        if self.wishes.remove(link).is_some() {
            self.dirty.insert(link.clone());
        }
    }

    /// Takes in a link's state. `interrupted` says that it was down or away since the last call.
    pub(crate) fn on_link(&mut self, name: &SmolStr, up: Option<u32>, interrupted: bool) {
        let before = match up {
            Some(index) => self.links.insert(name.clone(), index),
            None => self.links.remove(name),
        };
        if before != up || interrupted {
            // Its entries went with it.
            if let Some(old) = before {
                self.entries.remove(&old);
            }
            self.dirty.insert(name.clone());
        }
    }

    /// Reads the kernel's entries before the next apply.
    pub(crate) fn resync(&mut self) {
        self.stale = true;
    }

    /// Makes the kernel's entries equal to the wishes.
    ///
    /// # Errors
    /// If they cannot be read or written at all; what was not done stays to be done.
    pub(crate) fn apply(&mut self, net: &mut impl NetKernel) -> Result<NeighbourReport, NetlinkError> {
        self.decide();
        if self.stale {
            self.read(net)?;
        }
        let result = self.write(net);
        self.stale |= result.is_err();
        result
    }

    fn decide(&mut self) {
        let none = Wishes::default();
        for name in std::mem::take(&mut self.dirty) {
            let Some(&index) = self.links.get(&name) else { continue };
            let wishes = self.wishes.get(&name);
            let entries = match self.entries.entry(index) {
                std::collections::btree_map::Entry::Occupied(known) => known.into_mut(),
                std::collections::btree_map::Entry::Vacant(new) => {
                    if wishes.is_none() {
                        continue;
                    }
                    // What is on the link is not known.
                    self.stale = true;
                    new.insert(Entries::default())
                }
            };
            let wishes = wishes.unwrap_or(&none);
            want(&mut entries.neighbours, &wishes.neighbours);
            want(&mut entries.fdb, wishes.fdb.as_ref().unwrap_or(&BTreeMap::new()));
            entries.has_fdb |= wishes.fdb.is_some();
        }
    }

    fn read(&mut self, net: &mut impl NetKernel) -> Result<(), NetlinkError> {
        let mut by_link: HashMap<u32, Vec<(IpAddr, Mac)>> = HashMap::new();
        if !self.entries.is_empty() {
            for version in IpVersion::BOTH {
                for entry in net.neighbours(version)? {
                    if let Some(mac) = entry.mac.filter(|_| entry.state.is_permanent()) {
                        by_link.entry(entry.index).or_default().push((entry.addr, mac));
                    }
                }
            }
        }
        for (index, entries) in &mut self.entries {
            entries.neighbours.saw_all(by_link.remove(index).unwrap_or_default());
            if entries.has_fdb {
                let fdb = net.fdb(*index)?;
                let permanent = fdb.into_iter().filter(|e| e.state.is_permanent());
                entries.fdb.saw_all(permanent.filter_map(|e| Some((e.mac, e.dst?))));
            }
        }
        self.stale = false;
        Ok(())
    }

    fn write(&mut self, net: &mut impl NetKernel) -> Result<NeighbourReport, NetlinkError> {
        let mut changes = Vec::new();
        for (&index, entries) in &self.entries {
            for addr in entries.neighbours.deletes() {
                let Some(mac) = entries.neighbours.actual(addr) else { continue };
                changes.push(Change::DeleteNeighbour(Neighbour::permanent(index, *addr, *mac)));
            }
            for (addr, mac) in entries.neighbours.updates() {
                changes.push(Change::ReplaceNeighbour(Neighbour::permanent(index, *addr, *mac)));
            }
            for mac in entries.fdb.deletes() {
                let Some(dst) = entries.fdb.actual(mac) else { continue };
                changes.push(Change::DeleteFdb(FdbEntry::permanent(index, *mac, *dst)));
            }
            for (mac, dst) in entries.fdb.updates() {
                changes.push(Change::ReplaceFdb(FdbEntry::permanent(index, *mac, *dst)));
            }
        }
        let mut report = NeighbourReport::default();
        if !changes.is_empty() {
            for (change, result) in changes.iter().zip(net.write(&changes)?) {
                match result {
                    Ok(()) => {
                        report.written += 1;
                        self.done(change);
                    }
                    // Already gone, or the link is and its event comes.
                    Err(e) if e.is_not_found() => self.done(change),
                    Err(e) => report.failures.push(e),
                }
            }
        }
        let wished: BTreeSet<u32> = self.wishes.keys().filter_map(|n| self.links.get(n)).copied().collect();
        self.entries
            .retain(|index, e| wished.contains(index) || !e.neighbours.is_clean() || !e.fdb.is_clean());
        Ok(report)
    }

    fn done(&mut self, change: &Change) {
        let (Change::ReplaceNeighbour(Neighbour { index, .. })
        | Change::DeleteNeighbour(Neighbour { index, .. })
        | Change::ReplaceFdb(FdbEntry { index, .. })
        | Change::DeleteFdb(FdbEntry { index, .. })) = change
        else {
            return;
        };
        let Some(entries) = self.entries.get_mut(index) else { return };
        match change {
            Change::ReplaceNeighbour(n) | Change::DeleteNeighbour(n) => entries.neighbours.done(&n.addr),
            Change::ReplaceFdb(f) | Change::DeleteFdb(f) => entries.fdb.done(&f.mac),
            _ => {}
        }
    }
}

/// Makes what is desired exactly `wishes`.
fn want<K: Ord + Clone + std::hash::Hash, V: Clone + PartialEq>(
    tracker: &mut DeltaTracker<K, V>,
    wishes: &BTreeMap<K, V>,
) {
    let gone: Vec<K> =
        tracker.all_desired().map(|(k, _)| k).filter(|k| !wishes.contains_key(k)).cloned().collect();
    for key in gone {
        tracker.remove(&key);
    }
    for (key, value) in wishes {
        tracker.set(key.clone(), value.clone());
    }
}

#[cfg(test)]
mod tests;
