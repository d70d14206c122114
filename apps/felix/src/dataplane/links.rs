//! The node's links and their addresses, as the kernel last told.
//!
//! In: events of the monitor, and full listings. Out: the state, and which links changed since they were last asked
//! for. Always holds: a link that went and came back between two questions counts as changed even if it looks the
//! same, because the kernel dropped its routes and neighbours in between.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Instant;

use calico_net::Cidr;
use calico_netlink::{Address, Event, Link};
use smol_str::SmolStr;

/// A link.
#[derive(Debug, Clone)]
pub(crate) struct LinkState {
    /// As the kernel has it.
    pub(crate) link: Link,
    /// Its addresses.
    pub(crate) addrs: BTreeSet<Cidr>,
    /// When its index was first seen.
    pub(crate) since: Instant,
}

impl LinkState {
    /// Set up and with a carrier.
    pub(crate) fn is_up(&self) -> bool {
        self.link.is_up() && self.link.is_running()
    }
}

/// What happened to a link of some name since the last question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct LinkChanges {
    /// It came, went, went up or down, or has another index.
    pub(crate) state: bool,
    /// It was down or away at some time, so that the kernel dropped what hung on it.
    pub(crate) interrupted: bool,
    /// Its addresses changed.
    pub(crate) addrs: bool,
    /// Anything else about it changed, for example its MTU.
    pub(crate) other: bool,
}

/// All links of the namespace.
#[derive(Debug, Default)]
pub(crate) struct Links {
    by_index: BTreeMap<u32, LinkState>,
    by_name: BTreeMap<SmolStr, u32>,
    /// Addresses of links that are not known yet.
    early: BTreeMap<u32, BTreeSet<Cidr>>,
    changed: BTreeMap<SmolStr, LinkChanges>,
    listed: bool,
}

// === impl Links ===

impl Links {
    /// True once all links were listed.
    pub(crate) fn is_listed(&self) -> bool {
        self.listed
    }

    /// The link of this name.
    pub(crate) fn get(&self, name: &str) -> Option<&LinkState> {
        self.by_name.get(name).and_then(|i| self.by_index.get(i))
    }

    /// All links, by name.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&SmolStr, &LinkState)> {
        self.by_name.iter().filter_map(|(name, i)| Some((name, self.by_index.get(i)?)))
    }

    /// The link that has this address.
    pub(crate) fn with_address(&self, addr: IpAddr) -> Option<(&SmolStr, &LinkState)> {
        self.iter().find(|(_, l)| l.addrs.iter().any(|c| c.addr() == addr))
    }

    /// Changes since the last call.
    pub(crate) fn take_changes(&mut self) -> BTreeMap<SmolStr, LinkChanges> {
        std::mem::take(&mut self.changed)
    }

    /// True if there are changes that nobody took.
    pub(crate) fn has_changes(&self) -> bool {
        !self.changed.is_empty()
    }

    /// Takes an event. True if events were lost, so that all must be listed anew.
    pub(crate) fn on_event(&mut self, event: Event, now: Instant) -> bool {
        match event {
            Event::Link(link) => self.observe(link, now),
            Event::LinkRemoved(link) => self.remove(link.index),
            Event::Address(address) => self.address(&address, true),
            Event::AddressRemoved(address) => self.address(&address, false),
            Event::Route(_) | Event::RouteRemoved(_) => {}
            Event::Overrun => return true,
        }
        false
    }

    /// Replaces everything by a full listing.
    pub(crate) fn list(&mut self, links: Vec<Link>, addresses: Vec<Address>, now: Instant) {
        let there: BTreeSet<u32> = links.iter().map(|l| l.index).collect();
        let gone: Vec<u32> = self.by_index.keys().filter(|i| !there.contains(i)).copied().collect();
        gone.into_iter().for_each(|index| self.remove(index));
        for link in links {
            self.observe(link, now);
        }
        let mut by_link: BTreeMap<u32, BTreeSet<Cidr>> = BTreeMap::new();
        for address in addresses {
            by_link.entry(address.index).or_default().insert(address.addr);
        }
        self.early.clear();
        for (index, state) in &mut self.by_index {
            let addrs = by_link.remove(index).unwrap_or_default();
            if state.addrs != addrs {
                state.addrs = addrs;
                self.changed.entry(SmolStr::new(&state.link.name)).or_default().addrs = true;
            }
        }
        self.listed = true;
    }

    /// Takes in a link that is new or changed.
    pub(crate) fn observe(&mut self, link: Link, now: Instant) {
        let name = SmolStr::new(&link.name);
        // A name that moved to another index: the old link is gone or was renamed.
        if let Some(&old) = self.by_name.get(&name)
            && old != link.index
        {
            self.remove(old);
        }
        match self.by_index.get_mut(&link.index) {
            Some(known) if known.link.name == link.name => {
                if known.link == link {
                    return;
                }
                let was_up = known.is_up();
                known.link = link;
                let changes = self.changed.entry(name).or_default();
                changes.other = true;
                if was_up != known.is_up() {
                    changes.state = true;
                    changes.interrupted |= was_up;
                }
            }
            known => {
                let (addrs, since) = match known {
                    Some(renamed) => {
                        let old = SmolStr::new(&renamed.link.name);
                        self.by_name.remove(&old);
                        let changes = self.changed.entry(old).or_default();
                        (changes.state, changes.interrupted) = (true, true);
                        (std::mem::take(&mut renamed.addrs), renamed.since)
                    }
                    None => (self.early.remove(&link.index).unwrap_or_default(), now),
                };
                let changes = self.changed.entry(name.clone()).or_default();
                (changes.state, changes.addrs, changes.other) = (true, true, true);
                self.by_name.insert(name, link.index);
                self.by_index.insert(link.index, LinkState { link, addrs, since });
            }
        }
    }

    /// Takes in the addresses of a link, as they are.
    pub(crate) fn observe_addresses(&mut self, index: u32, addrs: BTreeSet<Cidr>) {
        if let Some(state) = self.by_index.get_mut(&index)
            && state.addrs != addrs
        {
            state.addrs = addrs;
            self.changed.entry(SmolStr::new(&state.link.name)).or_default().addrs = true;
        }
    }

    /// Takes in that a link is gone.
    pub(crate) fn remove(&mut self, index: u32) {
        self.early.remove(&index);
        let Some(state) = self.by_index.remove(&index) else { return };
        let name = SmolStr::new(&state.link.name);
        if self.by_name.get(&name) == Some(&index) {
            self.by_name.remove(&name);
        }
        let changes = self.changed.entry(name).or_default();
        *changes = LinkChanges { state: true, interrupted: true, addrs: true, other: true };
    }

    fn address(&mut self, address: &Address, there: bool) {
        let addrs = match self.by_index.get_mut(&address.index) {
            Some(state) => {
                let known = state.addrs.contains(&address.addr);
                if known != there {
                    self.changed.entry(SmolStr::new(&state.link.name)).or_default().addrs = true;
                }
                &mut state.addrs
            }
            None => self.early.entry(address.index).or_default(),
        };
        if there {
            addrs.insert(address.addr);
        } else {
            addrs.remove(&address.addr);
        }
    }
}
