//! Longest-prefix-match maps keyed by CIDR.
//!
//! Owns: [`LpmMap`], a map from CIDR blocks of both families to values that answers which entries cover an
//! address or a block and which lie inside a block. Keys are masked on the way in, so `10.1.2.3/8` and
//! `10.0.0.0/8` are the same entry; the families never mix. All iteration is in order: IPv4 before IPv6,
//! then by address, then shorter prefixes first (that of [`Cidr`]'s `Ord`).
//!
//! Each family is a path-compressed binary trie in one vector: an entry costs one node, and a branching
//! point without an entry of its own another (fewer of them than entries). Freed nodes are reused.

mod tree;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::cidr::Cidr;
use tree::{Covering, Tree, Within};

/// A map from CIDRs to values with longest-prefix matching.
#[derive(Clone)]
pub struct LpmMap<T> {
    v4: Tree<u32, T>,
    v6: Tree<u128, T>,
}

/// Runs `$body` with `$tree` bound to the family's tree and `$key` to the address bits of `$addr`.
macro_rules! by_family {
    ($map:expr, $addr:expr, |$tree:ident, $key:ident| $body:expr) => {
        match $addr {
            IpAddr::V4(a) => {
                let ($tree, $key) = (&$map.v4, a.to_bits());
                $body
            }
            IpAddr::V6(a) => {
                let ($tree, $key) = (&$map.v6, a.to_bits());
                $body
            }
        }
    };
    (mut $map:expr, $addr:expr, |$tree:ident, $key:ident| $body:expr) => {
        match $addr {
            IpAddr::V4(a) => {
                let ($tree, $key) = (&mut $map.v4, a.to_bits());
                $body
            }
            IpAddr::V6(a) => {
                let ($tree, $key) = (&mut $map.v6, a.to_bits());
                $body
            }
        }
    };
}

impl<T> Default for LpmMap<T> {
    fn default() -> Self {
        Self { v4: Tree::new(), v6: Tree::new() }
    }
}

impl<T> LpmMap<T> {
    /// An empty map; allocates nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of entries of both families.
    pub fn len(&self) -> usize {
        self.v4.len() + self.v6.len()
    }

    /// True if there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Removes every entry and gives the memory back.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Sets the value of `cidr` and returns the one it replaces.
    pub fn insert(&mut self, cidr: Cidr, value: T) -> Option<T> {
        by_family!(mut self, cidr.addr(), |tree, key| tree.insert(key, cidr.prefix_len(), value))
    }

    /// Removes the entry of exactly `cidr` and returns its value.
    pub fn remove(&mut self, cidr: &Cidr) -> Option<T> {
        by_family!(mut self, cidr.addr(), |tree, key| tree.remove(key, cidr.prefix_len()))
    }

    /// The value of exactly `cidr`.
    pub fn get(&self, cidr: &Cidr) -> Option<&T> {
        by_family!(self, cidr.addr(), |tree, key| tree.get(key, cidr.prefix_len()))
    }

    /// The value of exactly `cidr`, to change it.
    pub fn get_mut(&mut self, cidr: &Cidr) -> Option<&mut T> {
        by_family!(mut self, cidr.addr(), |tree, key| tree.get_mut(key, cidr.prefix_len()))
    }

    /// The value of `cidr`, made by `make` if there is none yet.
    pub fn get_or_insert_with(&mut self, cidr: Cidr, make: impl FnOnce() -> T) -> &mut T {
        by_family!(mut self, cidr.addr(), |tree, key| tree.get_or_insert_with(key, cidr.prefix_len(), make))
    }

    /// True if there is an entry of exactly `cidr`.
    pub fn contains(&self, cidr: &Cidr) -> bool {
        self.get(cidr).is_some()
    }

    /// The most specific entry that contains `addr`.
    pub fn longest_match(&self, addr: IpAddr) -> Option<(Cidr, &T)> {
        self.longest_cover(&Cidr::host(addr))
    }

    /// The most specific entry that covers the whole of `cidr`, `cidr` itself included.
    pub fn longest_cover(&self, cidr: &Cidr) -> Option<(Cidr, &T)> {
        by_family!(self, cidr.addr(), |tree, key| {
            tree.longest_cover(key, cidr.prefix_len()).map(|(key, len, value)| (key.cidr(len), value))
        })
    }

    /// The entries that cover the whole of `cidr`, from the shortest prefix to the longest, `cidr` itself
    /// included.
    pub fn covering(&self, cidr: &Cidr) -> impl Iterator<Item = (Cidr, &T)> + use<'_, T> {
        match cidr.addr() {
            IpAddr::V4(a) => Either::V4(self.v4.covering(a.to_bits(), cidr.prefix_len())),
            IpAddr::V6(a) => Either::V6(self.v6.covering(a.to_bits(), cidr.prefix_len())),
        }
    }

    /// The entries that lie inside `cidr`, `cidr` itself included, in order.
    pub fn within(&self, cidr: &Cidr) -> impl Iterator<Item = (Cidr, &T)> + use<'_, T> {
        self.inside(cidr, false)
    }

    /// The entries strictly inside `cidr` that have no other entry between themselves and `cidr`, in order.
    /// `cidr` need not be an entry.
    pub fn closest_descendants(&self, cidr: &Cidr) -> impl Iterator<Item = (Cidr, &T)> + use<'_, T> {
        self.inside(cidr, true)
    }

    fn inside(&self, cidr: &Cidr, closest: bool) -> impl Iterator<Item = (Cidr, &T)> + use<'_, T> {
        match cidr.addr() {
            IpAddr::V4(a) => EitherWithin::V4(self.v4.within(a.to_bits(), cidr.prefix_len(), closest)),
            IpAddr::V6(a) => EitherWithin::V6(self.v6.within(a.to_bits(), cidr.prefix_len(), closest)),
        }
    }

    /// True if an entry shares an address with `cidr`.
    pub fn overlaps(&self, cidr: &Cidr) -> bool {
        self.longest_cover(cidr).is_some() || self.within(cidr).next().is_some()
    }

    /// All entries in order.
    pub fn iter(&self) -> impl Iterator<Item = (Cidr, &T)> + use<'_, T> {
        EitherWithin::V4(self.v4.within(0, 0, false)).chain(EitherWithin::V6(self.v6.within(0, 0, false)))
    }

    /// All CIDRs in order.
    pub fn keys(&self) -> impl Iterator<Item = Cidr> + use<'_, T> {
        self.iter().map(|(cidr, _)| cidr)
    }
}

impl<T: fmt::Debug> fmt::Debug for LpmMap<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl<T: PartialEq> PartialEq for LpmMap<T> {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().eq(other.iter())
    }
}

impl<T: Eq> Eq for LpmMap<T> {}

impl<T> FromIterator<(Cidr, T)> for LpmMap<T> {
    fn from_iter<I: IntoIterator<Item = (Cidr, T)>>(iter: I) -> Self {
        let mut map = Self::new();
        map.extend(iter);
        map
    }
}

impl<T> Extend<(Cidr, T)> for LpmMap<T> {
    fn extend<I: IntoIterator<Item = (Cidr, T)>>(&mut self, iter: I) {
        for (cidr, value) in iter {
            self.insert(cidr, value);
        }
    }
}

/// Address bits of one family.
trait Bits: Copy + Eq {
    /// Bits of an address.
    const WIDTH: u8;
    /// Bit `at`, counted from the most significant one; `at < WIDTH`.
    fn bit(self, at: u8) -> usize;
    /// Number of leading bits in common.
    fn common(self, other: Self) -> u8;
    /// The first `len` bits, the rest cleared.
    fn mask(self, len: u8) -> Self;
    /// The CIDR of `len` bits of this key.
    fn cidr(self, len: u8) -> Cidr;
}

macro_rules! impl_bits {
    ($ty:ty, $addr:ty) => {
        impl Bits for $ty {
            const WIDTH: u8 = <$ty>::BITS as u8;

            fn bit(self, at: u8) -> usize {
                (self >> (Self::WIDTH - 1 - at) & 1) as usize
            }

            fn common(self, other: Self) -> u8 {
                (self ^ other).leading_zeros() as u8
            }

            fn mask(self, len: u8) -> Self {
                self & <$ty>::MAX.checked_shl(u32::from(Self::WIDTH - len)).unwrap_or(0)
            }

            fn cidr(self, len: u8) -> Cidr {
                let addr = IpAddr::from(<$addr>::from_bits(self));
                Cidr::new(addr, len).unwrap_or(Cidr::host(addr))
            }
        }
    };
}

impl_bits!(u32, Ipv4Addr);
impl_bits!(u128, Ipv6Addr);

enum Either<'a, T> {
    V4(Covering<'a, u32, T>),
    V6(Covering<'a, u128, T>),
}

impl<'a, T> Iterator for Either<'a, T> {
    type Item = (Cidr, &'a T);

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Self::V4(i) => i.next().map(|(key, len, value)| (key.cidr(len), value)),
            Self::V6(i) => i.next().map(|(key, len, value)| (key.cidr(len), value)),
        }
    }
}

enum EitherWithin<'a, T> {
    V4(Within<'a, u32, T>),
    V6(Within<'a, u128, T>),
}

impl<'a, T> Iterator for EitherWithin<'a, T> {
    type Item = (Cidr, &'a T);

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Self::V4(i) => i.next().map(|(key, len, value)| (key.cidr(len), value)),
            Self::V6(i) => i.next().map(|(key, len, value)| (key.cidr(len), value)),
        }
    }
}

#[cfg(test)]
mod tests;
