//! The order in which an owner looks through the blocks of a pool.
//!
//! Each owner starts at a block of its own, drawn from its name, and goes on from there to the end and around,
//! so that owners seldom want the same block and one owner's blocks lie side by side. Pools of single-address
//! blocks start at a block drawn from the time, since one owner needs many of those at once.

use calico_net::{Cidr, IpVersion};

use crate::reservation::{Reservations, number, range_of};

/// Walks every block of a pool exactly once.
#[derive(Debug, Clone)]
pub struct BlockWalk {
    pool: Cidr,
    block_len: u8,
    count: u128,
    next: u128,
    left: u128,
}

// === impl BlockWalk ===

impl BlockWalk {
    /// The walk of `owner` through `pool`, whose blocks have prefix length `block_len`. `nanos` is the time,
    /// which matters for single-address blocks alone. Empty if a block is larger than the pool.
    pub fn new(pool: Cidr, block_len: u8, owner: &str, nanos: u64) -> Self {
        let pool = pool.masked();
        let bits = pool.version().bits();
        let len = pool.prefix_len();
        let count = match block_len.checked_sub(len) {
            Some(extra) if block_len <= bits => 1u128.checked_shl(u32::from(extra)).unwrap_or(u128::MAX),
            _ => 0,
        };
        let seed = if block_len == bits { nanos } else { u64::from(fnv1(owner.as_bytes())) };
        let next = if count == 0 { 0 } else { spread(seed) % count };
        Self { pool, block_len, count, next, left: count }
    }

    /// Number of blocks in the pool.
    pub fn total(&self) -> u128 {
        self.count
    }

    /// The next block that is not reserved as a whole. Steps over a reserved range at once, however long.
    pub fn next_unreserved(&mut self, reservations: &Reservations) -> Option<Cidr> {
        loop {
            let block = self.next()?;
            let Some(end) = reservations.covering_end(&block) else { return Some(block) };
            let last = number(block.addr()).wrapping_add(self.block_size() - 1);
            let skip = ((end - last) / self.block_size()).min(self.left);
            let to_end = self.count - self.next;
            // Not across the end of the pool: what is reserved behind it says nothing about its start.
            self.advance(skip.min(if self.next == 0 { 0 } else { to_end }));
        }
    }

    /// Places of this walk at which `block` comes: what sorts blocks as the walk would. `None` for a block that
    /// is not of this pool and size.
    pub fn distance(&self, block: &Cidr) -> Option<u128> {
        if block.prefix_len() != self.block_len || !self.pool.covers(block) {
            return None;
        }
        let index = (range_of(block).0 - range_of(&self.pool).0) / self.block_size();
        Some(if index >= self.next { index - self.next } else { self.count - self.next + index })
    }

    fn block_size(&self) -> u128 {
        1u128.checked_shl(u32::from(self.pool.version().bits() - self.block_len)).unwrap_or(u128::MAX)
    }

    fn advance(&mut self, steps: u128) {
        self.left -= steps;
        self.next = if steps >= self.count - self.next {
            steps - (self.count - self.next)
        } else {
            self.next + steps
        };
    }
}

impl Iterator for BlockWalk {
    type Item = Cidr;

    fn next(&mut self) -> Option<Cidr> {
        if self.left == 0 {
            return None;
        }
        let addr = self.pool.nth(self.next.checked_mul(self.block_size())?)?;
        self.advance(1);
        Cidr::new(addr, self.block_len)
    }
}

/// FNV-1 of 32 bits: multiply, then xor.
fn fnv1(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash: u32, byte| hash.wrapping_mul(0x0100_0193) ^ u32::from(*byte))
}

/// Spreads a seed over 128 bits (two rounds of splitmix64).
fn spread(seed: u64) -> u128 {
    let round = |n: u64| {
        let mut z = seed.wrapping_add(n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    (u128::from(round(1)) << 64) | u128::from(round(2))
}

/// Largest number that fits a family's block prefix for `reserved` addresses of each block and at least one
/// to hand out.
pub fn max_block_len(version: IpVersion, reserved: u64) -> u8 {
    version.bits().saturating_sub((u64::BITS - reserved.leading_zeros()) as u8)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn seed_of_a_known_name() {
        assert_eq!(fnv1(b"host-a"), 1_258_779_341);
    }

    #[test]
    fn single_address_blocks_follow_the_time() {
        let pool: Cidr = "10.0.0.0/16".parse().unwrap();
        let first = |owner: &str, nanos| BlockWalk::new(pool, 32, owner, nanos).next().unwrap();
        assert_eq!(first("a", 1), first("b", 1));
        assert_ne!(first("a", 1), first("a", 2));
        let first = |owner: &str, nanos| BlockWalk::new(pool, 26, owner, nanos).next().unwrap();
        assert_eq!(first("a", 1), first("a", 2));
        assert_ne!(first("a", 1), first("b", 1));
    }

    #[test]
    fn odd_pools() {
        assert_eq!(BlockWalk::new("10.0.0.0/28".parse().unwrap(), 26, "a", 0).total(), 0);
        assert_eq!(BlockWalk::new("10.0.0.0/26".parse().unwrap(), 26, "a", 0).total(), 1);
        assert!(BlockWalk::new("::/0".parse().unwrap(), 128, "a", 7).next().is_some());
    }

    #[test]
    fn a_huge_reserved_range_takes_no_time() {
        let pool: Cidr = "fd00::/64".parse().unwrap();
        let reserved =
            Reservations::new(["fd00::/65".parse().unwrap(), "fd00:0:0:0:8000::/66".parse().unwrap()]);
        let mut walk = BlockWalk::new(pool, 122, "node", 0);
        let block = walk.next_unreserved(&reserved).unwrap();
        assert!(!reserved.overlaps(&block));
        let all = Reservations::new([pool]);
        assert_eq!(BlockWalk::new(pool, 122, "node", 0).next_unreserved(&all), None);
    }

    #[test]
    fn room_for_reserved_addresses() {
        assert_eq!(max_block_len(IpVersion::V4, 0), 32);
        assert_eq!(max_block_len(IpVersion::V4, 4), 29);
        assert_eq!(max_block_len(IpVersion::V6, 4), 125);
    }

    proptest! {
        #[test]
        fn each_block_once(len in 0u8..8, owner in "[a-z]{1,8}", reserved in proptest::collection::vec(0u32..256, 0..6)) {
            let pool = Cidr::new("10.1.0.0".parse().unwrap(), 24).unwrap();
            let block_len = 24 + len;
            let seen: Vec<Cidr> = BlockWalk::new(pool, block_len, &owner, 5).collect();
            prop_assert_eq!(seen.len() as u128, BlockWalk::new(pool, block_len, &owner, 5).total());
            prop_assert_eq!(seen.iter().collect::<BTreeSet<_>>().len(), seen.len());
            let whole = BlockWalk::new(pool, block_len, &owner, 5);
            for (place, block) in seen.iter().enumerate() {
                prop_assert_eq!(whole.distance(block), Some(place as u128));
            }
            let reserved = Reservations::new(
                reserved.into_iter().map(|n| Cidr::new(pool.nth(u128::from(n)).unwrap(), 27).unwrap()),
            );
            let mut walk = whole;
            let mut left = Vec::new();
            while let Some(block) = walk.next_unreserved(&reserved) {
                left.push(block);
            }
            let expected: Vec<Cidr> = seen.into_iter().filter(|b| !reserved.covers(b)).collect();
            prop_assert_eq!(left, expected);
        }
    }
}
