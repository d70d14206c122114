//! Addresses that auto-assign must leave alone.
//!
//! In: the CIDRs of all IPReservations. Out: answers about single addresses and whole blocks.
//! Invariant: the ranges are sorted, disjoint and not adjacent, per family.

use std::net::IpAddr;

use calico_api::{AnyResource, IPReservation, Resource};
use calico_net::{Cidr, IpVersion};

/// The union of all reserved CIDRs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reservations {
    v4: Vec<(u128, u128)>,
    v6: Vec<(u128, u128)>,
}

// === impl Reservations ===

impl Reservations {
    /// The union of `cidrs`.
    pub fn new(cidrs: impl IntoIterator<Item = Cidr>) -> Self {
        let mut out = Self::default();
        for cidr in cidrs {
            let range = range_of(&cidr);
            match cidr.version() {
                IpVersion::V4 => out.v4.push(range),
                IpVersion::V6 => out.v6.push(range),
            }
        }
        merge(&mut out.v4);
        merge(&mut out.v6);
        out
    }

    /// The union of what the objects among `objects` that are IPReservations say. Entries that are no CIDR or
    /// address are passed over.
    pub fn from_resources<'a>(objects: impl IntoIterator<Item = &'a AnyResource>) -> Self {
        let specs = objects.into_iter().filter_map(IPReservation::from_any_ref);
        Self::new(
            specs.flat_map(|r| r.spec.reserved_cidrs.iter()).filter_map(|text| Cidr::parse(text.trim()).ok()),
        )
    }

    /// True if `ip` is reserved.
    pub fn contains(&self, ip: IpAddr) -> bool {
        let n = number(ip);
        self.at(IpVersion::of(ip), n).is_some_and(|(start, end)| start <= n && n <= end)
    }

    /// True if every address of `cidr` is reserved.
    pub fn covers(&self, cidr: &Cidr) -> bool {
        self.covering_end(cidr).is_some()
    }

    /// True if some address of `cidr` is reserved.
    pub fn overlaps(&self, cidr: &Cidr) -> bool {
        let (first, last) = range_of(cidr);
        self.at(cidr.version(), last).is_some_and(|(_, end)| end >= first)
    }

    /// Number of reserved addresses in `cidr`, at most `u128::MAX`.
    pub fn count(&self, cidr: &Cidr) -> u128 {
        let (first, last) = range_of(cidr);
        let shared =
            self.ranges(cidr.version()).iter().filter(|(start, end)| *start <= last && *end >= first);
        shared.fold(0u128, |sum, (start, end)| {
            sum.saturating_add(((*end).min(last) - (*start).max(first)).saturating_add(1))
        })
    }

    /// The last address, as a number, of the reserved range around the whole of `cidr`.
    pub(crate) fn covering_end(&self, cidr: &Cidr) -> Option<u128> {
        let (first, last) = range_of(cidr);
        let (start, end) = self.at(cidr.version(), first)?;
        (start <= first && last <= end).then_some(end)
    }

    /// The last range that starts at or before `n`.
    fn at(&self, version: IpVersion, n: u128) -> Option<(u128, u128)> {
        let ranges = self.ranges(version);
        let after = ranges.partition_point(|(start, _)| *start <= n);
        after.checked_sub(1).and_then(|i| ranges.get(i)).copied()
    }

    fn ranges(&self, version: IpVersion) -> &[(u128, u128)] {
        match version {
            IpVersion::V4 => &self.v4,
            IpVersion::V6 => &self.v6,
        }
    }
}

/// An address as a number.
pub(crate) fn number(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(a) => u128::from(a.to_bits()),
        IpAddr::V6(a) => a.to_bits(),
    }
}

/// First and last address of a CIDR.
pub(crate) fn range_of(cidr: &Cidr) -> (u128, u128) {
    let first = number(cidr.masked().addr());
    (first, first + (cidr.size().unwrap_or(0).wrapping_sub(1)))
}

fn merge(ranges: &mut Vec<(u128, u128)>) {
    ranges.sort_unstable();
    let mut merged: Vec<(u128, u128)> = Vec::with_capacity(ranges.len());
    for (start, end) in ranges.drain(..) {
        match merged.last_mut() {
            Some((_, last)) if start <= last.saturating_add(1) => *last = (*last).max(end),
            _ => merged.push((start, end)),
        }
    }
    *ranges = merged;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(texts: &[&str]) -> Reservations {
        Reservations::new(texts.iter().map(|t| t.parse().unwrap()))
    }

    #[test]
    fn neighbours_together_cover_a_block() {
        let r = set(&["10.0.0.0/25", "10.0.0.128/25", "10.0.0.7", "fd00::/64"]);
        assert!(r.covers(&"10.0.0.0/24".parse().unwrap()));
        assert!(!r.covers(&"10.0.0.0/23".parse().unwrap()));
        assert!(r.contains("10.0.0.255".parse().unwrap()));
        assert!(!r.contains("10.0.1.0".parse().unwrap()));
        assert!(!r.contains("fcff::1".parse().unwrap()));
        assert!(r.overlaps(&"10.0.0.0/8".parse().unwrap()));
        assert!(!r.overlaps(&"10.0.1.0/24".parse().unwrap()));
        assert_eq!(r.count(&"10.0.0.0/8".parse().unwrap()), 256);
        assert_eq!(r.count(&"10.0.0.64/26".parse().unwrap()), 64);
        assert_eq!(r.count(&"fd00::/48".parse().unwrap()), 1 << 64);
        assert_eq!(set(&["::/0"]).count(&"::/0".parse().unwrap()), u128::MAX);
    }
}
