//! How full the pools are.

use std::collections::BTreeMap;

use calico_model::ListOptions;
use calico_net::Cidr;

use super::{block_value, objects, one, operation, pool_list, pools_of, reservation_list};
use crate::error::IpamError;
use crate::machine::{Operation, ReadSet};
use crate::reservation::Reservations;

/// Name of the entry that gathers blocks of no pool.
pub const ORPHANS: &str = "orphaned allocation blocks";

/// How full a block is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockUtilization {
    /// Block.
    pub cidr: Cidr,
    /// Addresses.
    pub capacity: u128,
    /// Addresses that are not free; those that cool down count.
    pub in_use: u128,
    /// Addresses that are reserved, in use or not.
    pub reserved: u128,
    /// Addresses that are free and not reserved.
    pub available: u128,
}

/// How full a pool is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolUtilization {
    /// Name of the pool, or [`ORPHANS`].
    pub name: String,
    /// Addresses of the pool.
    pub cidr: Cidr,
    /// Number of addresses; at most `u128::MAX`.
    pub capacity: u128,
    /// Addresses in use, in all blocks.
    pub in_use: u128,
    /// Reserved addresses of the whole pool.
    pub reserved: u128,
    /// Addresses that auto-assign could still hand out.
    pub available: u128,
    /// Blocks, sorted by address.
    pub blocks: Vec<BlockUtilization>,
}

/// How full pools are: those named (by name or CIDR), or with no names all, followed by an entry [`ORPHANS`] for
/// blocks that are in no pool. Names of no pool are passed over.
pub fn utilization(wanted: Vec<String>) -> Operation<Result<Vec<PoolUtilization>, IpamError>> {
    operation(move |cx| async move {
        let lists = vec![pool_list(), reservation_list(), ListOptions::Blocks { version: None }];
        let mut answers =
            cx.read(ReadSet { keys: Vec::new(), lists, ordered: false }).await.lists.into_iter();
        let mut next = || one(answers.next().into_iter().collect());
        let (pools, reservations, blocks) = (pools_of(&next()?), next()?, next()?);
        let reservations = Reservations::from_resources(objects(&reservations));
        let mut out: Vec<PoolUtilization> = pools
            .iter()
            .map(|pool| PoolUtilization {
                name: pool.name.clone(),
                cidr: pool.cidr,
                capacity: size(&pool.cidr),
                in_use: 0,
                reserved: reservations.count(&pool.cidr),
                available: 0,
                blocks: Vec::new(),
            })
            .collect();
        let mut orphans = BTreeMap::new();
        for kv in &blocks {
            let Ok(raw) = block_value(kv) else { continue };
            let entry = block_utilization(raw, &reservations);
            match out.iter_mut().find(|pool| pool.cidr.overlaps(&raw.cidr)) {
                Some(pool) => pool.blocks.push(entry),
                None => drop(orphans.insert(raw.cidr, entry)),
            }
        }
        for pool in &mut out {
            finish(pool, &reservations);
        }
        if wanted.is_empty() {
            if let Some(everything) = Cidr::new([0, 0, 0, 0].into(), 0) {
                out.push(PoolUtilization {
                    name: ORPHANS.to_owned(),
                    cidr: everything,
                    capacity: 0,
                    in_use: 0,
                    reserved: 0,
                    available: 0,
                    blocks: orphans.into_values().collect(),
                });
            }
        } else {
            out.retain(|pool| {
                wanted
                    .iter()
                    .any(|w| *w == pool.name || w.parse::<Cidr>().is_ok_and(|c| c.masked() == pool.cidr))
            });
        }
        Ok(out)
    })
}

fn finish(pool: &mut PoolUtilization, reservations: &Reservations) {
    pool.blocks.sort_by_key(|b| b.cidr);
    // Of an unclaimed part of the pool everything is available that is not reserved.
    let mut unclaimed = pool.capacity.saturating_sub(pool.reserved);
    let mut available = 0u128;
    let mut counted: Option<Cidr> = None;
    for block in &pool.blocks {
        pool.in_use = pool.in_use.saturating_add(block.in_use);
        available = available.saturating_add(block.available);
        // Blocks of two sizes may lie over one another; their addresses exist once.
        if pool.cidr.covers(&block.cidr) && !counted.is_some_and(|c| c.covers(&block.cidr)) {
            let unreserved = block.capacity.saturating_sub(reservations.count(&block.cidr));
            unclaimed = unclaimed.saturating_sub(unreserved);
            counted = Some(block.cidr);
        }
    }
    pool.available = unclaimed.saturating_add(available);
}

fn block_utilization(
    raw: &calico_model::ipam::AllocationBlock,
    reservations: &Reservations,
) -> BlockUtilization {
    let capacity = size(&raw.cidr);
    let free = raw.unallocated.len() as u128;
    let free_and_reserved = raw
        .unallocated
        .iter()
        .filter_map(|o| raw.cidr.nth(u128::from(*o)))
        .filter(|ip| reservations.contains(*ip))
        .count() as u128;
    BlockUtilization {
        cidr: raw.cidr,
        capacity,
        in_use: capacity.saturating_sub(free),
        reserved: reservations.count(&raw.cidr),
        available: free - free_and_reserved,
    }
}

fn size(cidr: &Cidr) -> u128 {
    cidr.size().unwrap_or(u128::MAX)
}
