//! Releasing addresses.

use std::collections::BTreeMap;
use std::net::IpAddr;

use calico_model::{AffinityType, Key, KvPair, ListOptions};
use calico_net::Cidr;
use calico_net::cidr::parse_ip;
use smol_str::SmolStr;

use super::affinity::{self, ReleaseRules};
use super::query::{block_around, handle_blocks};
use super::{
    Attempt, Held, Patience, READ_BATCH, Trouble, block_value, config_and_pools, config_value, entry_name,
    handle, handle_value, node_key, objects, one, operation, pool_list, pools_of,
};
use crate::block::ReleaseRequest;
use crate::error::{Failure, IpamError};
use crate::machine::{Cx, Operation, ReadSet};
use crate::pools::{Pool, enabled_pool_of};

/// One address to be released.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReleaseOptions {
    /// Address as text.
    pub address: SmolStr,
    /// Only if it is held under this handle; empty is not checked.
    pub handle: SmolStr,
    /// Only if the allocation has this number.
    pub sequence: Option<u64>,
}

/// What became of a release.
#[derive(Debug, Clone, Default)]
pub struct ReleaseOutcome {
    /// Addresses that nobody held, in order of their blocks.
    pub unallocated: Vec<IpAddr>,
    /// Requests that were carried out or had nothing to do, except those for addresses that are in no block.
    pub released: Vec<ReleaseOptions>,
    /// The first error. The requests of other blocks were carried out all the same.
    pub error: Option<IpamError>,
}

impl ReleaseOutcome {
    /// The addresses that nobody held, or the error.
    pub fn into_result(self) -> Result<Vec<IpAddr>, IpamError> {
        match self.error {
            Some(error) => Err(error),
            None => Ok(self.unallocated),
        }
    }
}

impl ReleaseOptions {
    /// Releases `ip` whoever holds it.
    pub fn address(ip: IpAddr) -> Self {
        Self { address: smol_str::format_smolstr!("{ip}"), ..Self::default() }
    }
}

/// Releases addresses. The requests of one block are carried out together or, if one of them does not fit what
/// is stored, not at all.
pub fn release_ips(requests: Vec<ReleaseOptions>) -> Operation<ReleaseOutcome> {
    operation(|cx| async move {
        let mut outcome = ReleaseOutcome::default();
        if let Err(error) = release_all(&cx, requests, &mut outcome).await {
            outcome.error.get_or_insert(error);
        }
        outcome
    })
}

async fn release_all(
    cx: &Cx,
    requests: Vec<ReleaseOptions>,
    outcome: &mut ReleaseOutcome,
) -> Result<(), IpamError> {
    let mut parsed = Vec::with_capacity(requests.len());
    for request in requests {
        if request.address.is_empty() {
            return Err(IpamError::AddressRequired { handle: request.handle, sequence: request.sequence });
        }
        let ip = parse_ip(&request.address)
            .ok_or_else(|| IpamError::BadAddress { text: request.address.clone() })?;
        parsed.push((ip, request));
    }
    let (config, pools) = config_and_pools(cx).await?;
    let mut scanned: Option<Vec<Cidr>> = None;
    let mut by_block: BTreeMap<Cidr, Vec<(IpAddr, ReleaseOptions)>> = BTreeMap::new();
    for (ip, request) in parsed {
        let block = match block_around(&pools, ip) {
            Some(block) => Some(block),
            None => {
                let blocks = match scanned.take() {
                    Some(blocks) => blocks,
                    None => all_blocks(cx).await?,
                };
                let found = blocks.iter().find(|b| b.contains(ip)).copied();
                scanned = Some(blocks);
                found
            }
        };
        match block {
            Some(block) => by_block.entry(block).or_default().push((ip, request)),
            None => outcome.unallocated.push(ip),
        }
    }
    let blocks: Vec<Cidr> = by_block.keys().copied().collect();
    for batch in blocks.chunks(READ_BATCH) {
        let stored = cx.get_all(batch.iter().copied().map(Key::Block).collect()).await;
        for (block, stored) in batch.iter().zip(stored) {
            let Some(requests) = by_block.remove(block) else { continue };
            match release_from(cx, *block, stored, &requests, config.ip_cooldown_seconds).await {
                Ok((unallocated, held)) => {
                    outcome.unallocated.extend(unallocated);
                    outcome.released.extend(requests.into_iter().map(|(_, request)| request));
                    if let Some(held) = held {
                        keep_consistent(cx, &held, Some(&pools), config.ip_cooldown_seconds).await;
                    }
                }
                Err(error) => drop(outcome.error.get_or_insert(error)),
            }
        }
    }
    Ok(())
}

async fn all_blocks(cx: &Cx) -> Result<Vec<Cidr>, IpamError> {
    let items = cx.list(ListOptions::Blocks { version: None }).await?;
    items.iter().map(|kv| block_value(kv).map(|b| b.cidr)).collect()
}

/// Releases addresses of one block: those that nobody held, and the block if it was stored.
async fn release_from(
    cx: &Cx,
    cidr: Cidr,
    stored: Result<Option<KvPair>, Failure>,
    requests: &[(IpAddr, ReleaseOptions)],
    cooldown: u32,
) -> Result<(Vec<IpAddr>, Option<Held>), IpamError> {
    let mut stored = stored.map_err(IpamError::Store)?;
    let mut patience = Patience(0);
    loop {
        match try_release_from(cx, cidr, stored, requests, cooldown).await {
            Ok(done) => return Ok(done),
            Err(Trouble::Fatal(error)) => return Err(error),
            Err(_) => patience.lost(cx).await?,
        }
        stored = cx.get(Key::Block(cidr)).await?;
    }
}

async fn try_release_from(
    cx: &Cx,
    cidr: Cidr,
    stored: Option<KvPair>,
    requests: &[(IpAddr, ReleaseOptions)],
    cooldown: u32,
) -> Attempt<(Vec<IpAddr>, Option<Held>)> {
    let Some(kv) = stored else {
        return Ok((requests.iter().map(|(ip, _)| *ip).collect(), None));
    };
    let mut held = Held::new(kv, cooldown, cx.now())?;
    let wanted: Vec<ReleaseRequest> = requests
        .iter()
        .filter_map(|(ip, request)| {
            let handle = Some(request.handle.clone()).filter(|h| !h.is_empty());
            Some(ReleaseRequest { ordinal: held.block.ordinal(*ip)?, handle, sequence: request.sequence })
        })
        .collect();
    let released = held.block.release(&wanted, cooldown, cx.now()).map_err(|(ordinal, reason)| {
        let ip = held.block.address(ordinal).unwrap_or_else(|| cidr.addr());
        IpamError::ReleaseMismatch { ip, reason }
    })?;
    let unallocated = released.unallocated.iter().filter_map(|o| held.block.address(*o)).collect();
    if released.ordinals.is_empty() {
        return Ok((unallocated, None));
    }
    held.store_or_remove(cx).await?;
    handle::commit_release(cx, cidr, &released.handles).await?;
    Ok((unallocated, Some(held)))
}

/// What [`release_by_handle`] will read first, for [`crate::Atomic::new`]. `host` is a guess at the node that owns
/// the blocks.
pub fn release_by_handle_reads(handle: &SmolStr, host: &SmolStr) -> ReadSet {
    ReadSet {
        keys: vec![Key::IpamConfig, Key::IpamHandle(handle.clone()), node_key(host)],
        lists: vec![pool_list()],
        ordered: true,
    }
}

/// Releases every address held under `handle`. [`IpamError::DoesNotExist`] if there is no such handle.
///
/// A block that holds no address of the handle leaves the handle as it is: somebody may be about to store one.
pub fn release_by_handle(handle: SmolStr) -> Operation<Result<(), IpamError>> {
    operation(|cx| async move {
        let key = Key::IpamHandle(handle.clone());
        let mut answers = cx.get_all(vec![key.clone(), Key::IpamConfig]).await.into_iter();
        let mut next = || answers.next().unwrap_or(Ok(None)).map_err(IpamError::Store);
        let (stored, config) = (next()?, config_value(next()?.as_ref())?);
        let stored = stored.ok_or_else(|| IpamError::DoesNotExist { id: entry_name(&key) })?;
        let blocks = handle_blocks(handle_value(&stored)?);
        let cooldown = config.ip_cooldown_seconds;
        for batch in blocks.chunks(READ_BATCH) {
            let stored = cx.get_all(batch.iter().copied().map(Key::Block).collect()).await;
            for (block, stored) in batch.iter().zip(stored) {
                let mut stored = stored.map_err(IpamError::Store)?;
                let mut patience = Patience(0);
                let held = loop {
                    match try_release_handle(&cx, *block, stored, &handle, cooldown).await {
                        Ok(held) => break held,
                        Err(Trouble::Fatal(error)) => return Err(error),
                        Err(_) => patience.lost(&cx).await?,
                    }
                    stored = cx.get(Key::Block(*block)).await?;
                };
                if let Some(held) = held {
                    keep_consistent(&cx, &held, None, cooldown).await;
                }
            }
        }
        Ok(())
    })
}

async fn try_release_handle(
    cx: &Cx,
    block: Cidr,
    stored: Option<KvPair>,
    handle: &SmolStr,
    cooldown: u32,
) -> Attempt<Option<Held>> {
    let Some(kv) = stored else { return Ok(None) };
    let mut held = Held::new(kv, cooldown, cx.now())?;
    let released = held.block.release_handle(handle, cooldown, cx.now());
    if released.is_empty() {
        return Ok(None);
    }
    held.store_or_remove(cx).await?;
    let counts = BTreeMap::from([(handle.clone(), released.len() as u64)]);
    handle::commit_release(cx, block, &counts).await?;
    Ok(Some(held))
}

/// Releases an empty block whose pool does not select its node any more. A failure leaves the block as it is,
/// for the next one who looks.
async fn keep_consistent(cx: &Cx, held: &Held, pools: Option<&[Pool]>, cooldown: u32) {
    let Some(owner) = held.block.owner().filter(|o| o.affinity == AffinityType::Host) else { return };
    if !held.block.is_empty() {
        return;
    }
    let lists = if pools.is_some() { Vec::new() } else { vec![pool_list()] };
    let answers = cx.read(ReadSet { keys: vec![node_key(&owner.name)], lists, ordered: false }).await;
    let read;
    let pools = match pools {
        Some(pools) => pools,
        None => {
            let Ok(items) = one(answers.lists) else { return };
            read = pools_of(&items);
            &read
        }
    };
    let Ok(Some(node)) = one(answers.keys) else { return };
    let Some(node) = objects(std::slice::from_ref(&node)).next() else { return };
    let selects = enabled_pool_of(pools, &held.cidr()).map(|p| p.selects_node(&node.metadata().labels));
    if matches!(selects, Some(Ok(false))) {
        let rules = ReleaseRules { must_be_empty: true, sequence: None, cooldown };
        let mut patience = Patience(0);
        loop {
            let result = match affinity::release(cx, &owner, held.cidr(), rules).await {
                Ok(()) => cx.commit().await.map_err(Trouble::from),
                Err(trouble) => Err(trouble),
            };
            match result {
                Err(Trouble::Retry) if patience.lost(cx).await.is_ok() => {}
                _ => return,
            }
        }
    }
}
