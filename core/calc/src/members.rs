//! Members of an IP set with the number of items that contribute each, and which of them to program.
//!
//! Owns: reference counts and, where a dataplane cannot hold overlapping networks, the choice of members to
//! program: those that no other member covers. In: contributions that come and go. Out: members that become or
//! cease to be programmed. Invariant: a member is programmed exactly if its count is positive and (with overlap
//! suppression) no less specific member's is.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use calico_dpmsg::Member;
use calico_net::Cidr;

/// An address with a protocol and a port.
type PortKey = (IpAddr, u8, u16);

/// The members of one set.
#[derive(Debug)]
pub(crate) enum Members {
    /// Networks.
    Nets { v4: Family<Key4>, v6: Family<Key6> },
    /// Addresses with protocol and port.
    Ports(BTreeMap<PortKey, u32>),
}

/// One family's networks.
#[derive(Debug)]
pub(crate) struct Family<K> {
    refs: BTreeMap<K, u32>,
    /// Prefix lengths in use, ascending, with the number of networks of each.
    lengths: Vec<(u8, u32)>,
}

/// A network as a key that sorts by address, then length.
pub(crate) trait NetKey: Ord + Copy {
    /// The network.
    fn cidr(self) -> Cidr;
    /// Prefix length.
    fn length(self) -> u8;
    /// The network of the first `length` bits.
    fn widened(self, length: u8) -> Self;
    /// The lowest key after all networks inside this one; `None` if there is no later address.
    fn after(self) -> Option<Self>;
}

/// Address in the upper bits, length in the lowest byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key4(u64);

/// Address in network order, then length: 17 bytes without padding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key6([u8; 16], u8);

impl Key4 {
    fn new(addr: Ipv4Addr, length: u8) -> Self {
        Self(u64::from(addr.to_bits()) << 8 | u64::from(length))
    }

    fn bits(self) -> u32 {
        (self.0 >> 8) as u32
    }
}

impl NetKey for Key4 {
    fn cidr(self) -> Cidr {
        let addr = IpAddr::V4(Ipv4Addr::from_bits(self.bits()));
        Cidr::new(addr, self.length()).unwrap_or(Cidr::host(addr))
    }

    fn length(self) -> u8 {
        self.0 as u8
    }

    fn widened(self, length: u8) -> Self {
        let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
        Self::new(Ipv4Addr::from_bits(self.bits() & mask), length)
    }

    fn after(self) -> Option<Self> {
        let last = self.bits() | u32::MAX.checked_shr(u32::from(self.length())).unwrap_or(0);
        last.checked_add(1).map(|next| Self::new(Ipv4Addr::from_bits(next), 0))
    }
}

impl Key6 {
    fn bits(self) -> u128 {
        u128::from_be_bytes(self.0)
    }
}

impl NetKey for Key6 {
    fn cidr(self) -> Cidr {
        let addr = IpAddr::V6(Ipv6Addr::from(self.0));
        Cidr::new(addr, self.1).unwrap_or(Cidr::host(addr))
    }

    fn length(self) -> u8 {
        self.1
    }

    fn widened(self, length: u8) -> Self {
        let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
        Self((self.bits() & mask).to_be_bytes(), length)
    }

    fn after(self) -> Option<Self> {
        let last = self.bits() | u128::MAX.checked_shr(u32::from(self.1)).unwrap_or(0);
        last.checked_add(1).map(|next| Self(next.to_be_bytes(), 0))
    }
}

// === impl Family ===

impl<K: NetKey> Family<K> {
    fn new() -> Self {
        Self { refs: BTreeMap::new(), lengths: Vec::new() }
    }

    /// Replaces everything by these contributions. Building at once is faster than one by one and packs tighter.
    fn fill(&mut self, mut keys: Vec<K>) {
        keys.sort_unstable();
        let mut lengths: BTreeMap<u8, u32> = BTreeMap::new();
        for group in keys.chunk_by(|a, b| a == b) {
            *lengths.entry(group[0].length()).or_insert(0) += 1;
        }
        self.refs = keys.chunk_by(|a, b| a == b).map(|group| (group[0], group.len() as u32)).collect();
        self.lengths = lengths.into_iter().collect();
    }

    /// Counts one more contribution; true if the member is new.
    fn add(&mut self, key: K) -> bool {
        let refs = self.refs.entry(key).or_insert(0);
        *refs += 1;
        if *refs > 1 {
            return false;
        }
        match self.lengths.binary_search_by_key(&key.length(), |l| l.0) {
            Ok(at) => self.lengths[at].1 += 1,
            Err(at) => self.lengths.insert(at, (key.length(), 1)),
        }
        true
    }

    /// Counts one contribution less; true if the member is gone.
    fn remove(&mut self, key: K) -> bool {
        let Some(refs) = self.refs.get_mut(&key) else { return false };
        *refs -= 1;
        if *refs > 0 {
            return false;
        }
        self.refs.remove(&key);
        if let Ok(at) = self.lengths.binary_search_by_key(&key.length(), |l| l.0) {
            self.lengths[at].1 -= 1;
            if self.lengths[at].1 == 0 {
                self.lengths.remove(at);
            }
        }
        true
    }

    /// True if another, less specific member contains this one.
    fn covered(&self, key: K) -> bool {
        let shorter = self.lengths.iter().take_while(|l| l.0 < key.length());
        shorter.into_iter().any(|&(length, _)| self.refs.contains_key(&key.widened(length)))
    }

    /// Members strictly inside `key` with no other member between, ascending.
    fn closest_inside(&self, key: K, mut f: impl FnMut(K)) {
        if self.lengths.last().is_none_or(|longest| longest.0 <= key.length()) {
            return;
        }
        let end = key.after();
        let mut from = key;
        loop {
            let mut later = self.refs.range((std::ops::Bound::Excluded(from), std::ops::Bound::Unbounded));
            let Some((&found, _)) = later.next() else { return };
            if end.is_some_and(|end| found >= end) {
                return;
            }
            f(found);
            // No member is skipped: one of length 0 can only stand at the first address of all.
            let Some(next) = found.after() else { return };
            from = next;
        }
    }

    /// Members that no other covers (all with `overlaps`), ascending.
    fn programmed(&self, overlaps: bool, out: &mut Vec<Member>) {
        let mut cover: Option<Cidr> = None;
        for &key in self.refs.keys() {
            let cidr = key.cidr();
            if !overlaps && cover.is_some_and(|c| c.covers(&cidr)) {
                continue;
            }
            cover = Some(cidr);
            out.push(Member::Net(cidr));
        }
    }

    fn change(&mut self, key: K, add: bool, overlaps: bool, out: &mut impl FnMut(Member, bool)) {
        let turned = if add { self.add(key) } else { self.remove(key) };
        if !turned {
            return;
        }
        if overlaps {
            out(Member::Net(key.cidr()), add);
        } else if !self.covered(key) {
            out(Member::Net(key.cidr()), add);
            self.closest_inside(key, |inside| out(Member::Net(inside.cidr()), !add));
        }
    }
}

// === impl Members ===

impl Members {
    /// No networks.
    pub(crate) fn nets() -> Self {
        Self::Nets { v4: Family::new(), v6: Family::new() }
    }

    /// No addresses with ports.
    pub(crate) fn ports() -> Self {
        Self::Ports(BTreeMap::new())
    }

    /// Counts a contribution that comes (`add`) or goes, and tells `out` each member that is now to be
    /// programmed (true) or not any more (false).
    pub(crate) fn change(
        &mut self,
        member: Member,
        add: bool,
        overlaps: bool,
        out: &mut impl FnMut(Member, bool),
    ) {
        match (self, member) {
            (Self::Nets { v4, v6 }, Member::Net(cidr)) => {
                let cidr = cidr.masked();
                match cidr.addr() {
                    IpAddr::V4(a) => v4.change(Key4::new(a, cidr.prefix_len()), add, overlaps, out),
                    IpAddr::V6(a) => v6.change(Key6(a.octets(), cidr.prefix_len()), add, overlaps, out),
                }
            }
            (Self::Ports(refs), Member::IpPort { addr, protocol, port }) => {
                let key = (addr, protocol, port);
                if add {
                    let count = refs.entry(key).or_insert(0);
                    *count += 1;
                    if *count == 1 {
                        out(member, true);
                    }
                } else if let Some(count) = refs.get_mut(&key) {
                    *count -= 1;
                    if *count == 0 {
                        refs.remove(&key);
                        out(member, false);
                    }
                }
            }
            _ => {}
        }
    }

    /// Fills an empty set with contributions.
    pub(crate) fn fill(&mut self, contributions: impl Iterator<Item = Member>) {
        match self {
            Self::Nets { v4, v6 } => {
                let (mut keys4, mut keys6) = (Vec::new(), Vec::new());
                for member in contributions {
                    let Member::Net(cidr) = member else { continue };
                    let cidr = cidr.masked();
                    match cidr.addr() {
                        IpAddr::V4(a) => keys4.push(Key4::new(a, cidr.prefix_len())),
                        IpAddr::V6(a) => keys6.push(Key6(a.octets(), cidr.prefix_len())),
                    }
                }
                v4.fill(keys4);
                v6.fill(keys6);
            }
            Self::Ports(refs) => {
                for member in contributions {
                    if let Member::IpPort { addr, protocol, port } = member {
                        *refs.entry((addr, protocol, port)).or_insert(0) += 1;
                    }
                }
            }
        }
    }

    /// All members to program, ascending.
    pub(crate) fn programmed(&self, overlaps: bool) -> Vec<Member> {
        let mut out = Vec::new();
        match self {
            Self::Nets { v4, v6 } => {
                out.reserve_exact(v4.refs.len() + v6.refs.len());
                v4.programmed(overlaps, &mut out);
                v6.programmed(overlaps, &mut out);
            }
            Self::Ports(refs) => {
                out.extend(refs.keys().map(|&(addr, protocol, port)| Member::IpPort {
                    addr,
                    protocol,
                    port,
                }));
            }
        }
        out
    }
}

#[cfg(test)]
mod tests;
