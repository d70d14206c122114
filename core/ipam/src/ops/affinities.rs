//! Claiming and releasing blocks as such: by CIDR, by owner, by pool; and freeing what has cooled down.

use std::collections::BTreeSet;

use calico_model::{AffinityType, Key, ListOptions};
use calico_net::{Cidr, IpVersion};
use smol_str::SmolStr;

use super::affinity::{self, ReleaseRules, Rules};
use super::{
    Attempt, Held, MAX_CLAIM_BLOCKS, Patience, Trouble, block_value, config_and_pools, config_value,
    entry_name, operation,
};
use crate::block::Owner;
use crate::error::IpamError;
use crate::machine::{Cx, Fault, Operation};
use crate::pools::{Pool, enabled_pool_of};
use crate::walk::BlockWalk;

/// Blocks that were asked for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AffinityOutcome {
    /// Those that the owner has now.
    pub claimed: Vec<Cidr>,
    /// Those that another owner has.
    pub failed: Vec<Cidr>,
}

/// Claims every block of `cidr`, which must lie in an enabled pool and hold at most [`MAX_CLAIM_BLOCKS`].
pub fn claim_affinity(cidr: Cidr, owner: Owner) -> Operation<Result<AffinityOutcome, IpamError>> {
    operation(move |cx| async move {
        if owner.name.is_empty() {
            return Err(IpamError::OwnerRequired);
        }
        let (config, pools) = config_and_pools(&cx).await?;
        let pool = pool_for(&pools, &cidr)?;
        let walk = BlockWalk::new(cidr, pool.block_len, "", 0);
        if walk.total() > u128::from(MAX_CLAIM_BLOCKS) {
            return Err(IpamError::TooManyBlocks { cidr, limit: MAX_CLAIM_BLOCKS });
        }
        let blocks: BTreeSet<Cidr> = walk.collect();
        let rules = Rules { owner: &owner, reserved: None, cooldown: config.ip_cooldown_seconds };
        let mut outcome = AffinityOutcome::default();
        for block in blocks {
            let mut patience = Patience(0);
            loop {
                match claim_once(&cx, &rules, block).await {
                    Ok(()) => {
                        outcome.claimed.push(block);
                        break;
                    }
                    Err(Trouble::Claimed) => {
                        outcome.failed.push(block);
                        break;
                    }
                    Err(Trouble::Fatal(error)) => return Err(error),
                    Err(_) => patience.lost(&cx).await?,
                }
            }
        }
        Ok(outcome)
    })
}

async fn claim_once(cx: &Cx, rules: &Rules<'_>, block: Cidr) -> Attempt<()> {
    let (row, stored) = cx.get_in_order(rules.owner.affinity_key(block), Key::Block(block)).await?;
    let row = affinity::pending(cx, rules.owner, block, row, stored.is_some()).await?;
    match stored {
        // An affinity that was not confirmed may be about to be released; using it settles that.
        Some(kv) if Held::new(kv.clone(), rules.cooldown, cx.now())?.block.owned_by(rules.owner) => {
            affinity::block_of(cx, rules, row, Some(kv)).await?;
        }
        _ => {
            affinity::claim(cx, rules, block, row).await?;
        }
    }
    Ok(cx.commit().await?)
}

/// Releases the owner's blocks in `cidr`, which must lie in an enabled pool. Blocks that it does not have are
/// passed over.
pub fn release_affinity(cidr: Cidr, owner: Owner, must_be_empty: bool) -> Operation<Result<(), IpamError>> {
    operation(move |cx| async move {
        let (config, pools) = config_and_pools(&cx).await?;
        let pool = pool_for(&pools, &cidr)?;
        let rules = ReleaseRules { must_be_empty, sequence: None, cooldown: config.ip_cooldown_seconds };
        // What is listed or has just one name; not every block of a large CIDR.
        let mut blocks: BTreeSet<Cidr> = owned_rows(&cx, &owner, Some(cidr.version())).await?;
        blocks.retain(|block| cidr.covers(block));
        if cidr.prefix_len() == pool.block_len {
            blocks.insert(cidr.masked());
        }
        for block in blocks {
            ignore_absent(release_until(&cx, &owner, block, rules).await)?;
        }
        Ok(())
    })
}

/// Releases one block, whoever owns it; one that nobody owns is left alone.
pub fn release_block_affinity(block: Cidr, must_be_empty: bool) -> Operation<Result<(), IpamError>> {
    operation(move |cx| async move {
        let mut patience = Patience(0);
        loop {
            let config = config_value(cx.get(Key::IpamConfig).await?.as_ref())?;
            let key = Key::Block(block.masked());
            let stored = cx.get(key.clone()).await?;
            let stored = stored.ok_or_else(|| IpamError::DoesNotExist { id: entry_name(&key) })?;
            let Some(owner) = block_value(&stored)?.affinity.as_deref().and_then(Owner::parse) else {
                return Ok(());
            };
            let rules = ReleaseRules { must_be_empty, sequence: None, cooldown: config.ip_cooldown_seconds };
            match release_once(&cx, &owner, block.masked(), rules).await {
                Ok(()) => return Ok(()),
                Err(Trouble::Fatal(error)) => return Err(error),
                Err(_) => patience.lost(&cx).await?,
            }
        }
    })
}

/// Releases every block of `owner`, those included that its affinities do not name. Goes on past blocks that
/// cannot be released and returns the last error.
pub fn release_host_affinities(owner: Owner, must_be_empty: bool) -> Operation<Result<(), IpamError>> {
    operation(move |cx| async move { release_owner(&cx, &owner, must_be_empty).await })
}

/// Forgets a node: releases all its blocks, in use or not, and removes its marker of old releases.
pub fn remove_host(owner: Owner) -> Operation<Result<(), IpamError>> {
    operation(|cx| async move {
        release_owner(&cx, &owner, false).await?;
        if owner.affinity == AffinityType::Host
            && let Some(kv) = cx.get(Key::IpamHost(owner.name.clone())).await?
        {
            match cx.delete(kv).await {
                Ok(_) | Err(Fault::Missing) => {}
                Err(Fault::Failed(failure)) => return Err(IpamError::Store(failure)),
                Err(_) => return Err(IpamError::Contention),
            }
            if let Err(Fault::Failed(failure)) = cx.commit().await {
                return Err(IpamError::Store(failure));
            }
        }
        Ok(())
    })
}

async fn release_owner(cx: &Cx, owner: &Owner, must_be_empty: bool) -> Result<(), IpamError> {
    if owner.name.is_empty() {
        return Err(IpamError::OwnerRequired);
    }
    let config = config_value(cx.get(Key::IpamConfig).await?.as_ref())?;
    let rules = ReleaseRules { must_be_empty, sequence: None, cooldown: config.ip_cooldown_seconds };
    let text = owner.text();
    let mut last = Ok(());
    for version in IpVersion::BOTH {
        let mut blocks = owned_rows(cx, owner, Some(version)).await?;
        let listed = cx.list(ListOptions::Blocks { version: Some(version) }).await?;
        let ours = listed
            .iter()
            .filter_map(|kv| block_value(kv).ok())
            .filter(|b| b.affinity.as_ref() == Some(&text));
        blocks.extend(ours.map(|b| b.cidr));
        for block in blocks {
            if let Err(error) = ignore_absent(release_until(cx, owner, block, rules).await) {
                last = Err(error);
            }
        }
    }
    last
}

/// Releases every block of `pool`, whoever owns it and whether in use or not.
pub fn release_pool_affinities(pool: Cidr) -> Operation<Result<(), IpamError>> {
    operation(move |cx| async move {
        let config = config_value(cx.get(Key::IpamConfig).await?.as_ref())?;
        let rules = ReleaseRules { cooldown: config.ip_cooldown_seconds, ..ReleaseRules::default() };
        let mut patience = Patience(0);
        loop {
            let version = Some(pool.version());
            let mut work: BTreeSet<(Owner, Cidr)> = BTreeSet::new();
            for affinity in [AffinityType::Host, AffinityType::Virtual] {
                let rows = cx.list(ListOptions::BlockAffinities { affinity, owner: None, version }).await?;
                work.extend(rows.into_iter().filter_map(|kv| match kv.key {
                    Key::BlockAffinity { affinity, owner, cidr } => {
                        Some((Owner { affinity, name: owner }, cidr))
                    }
                    _ => None,
                }));
            }
            let blocks = cx.list(ListOptions::Blocks { version }).await?;
            work.extend(blocks.iter().filter_map(|kv| {
                let block = block_value(kv).ok()?;
                Some((Owner::parse(block.affinity.as_deref()?)?, block.cidr))
            }));
            let mut again = false;
            for (owner, block) in work.into_iter().filter(|(_, block)| pool.covers(block)) {
                match release_until(&cx, &owner, block, rules).await {
                    Err(Trouble::Claimed) => again = true,
                    other => ignore_absent(other)?,
                }
            }
            if !again {
                return Ok(());
            }
            patience.lost(&cx).await?;
        }
    })
}

/// Stores a block from which addresses were released longer ago than the cool-down, so that they are free for
/// all to see. True if there were any.
pub fn collect_cold(block: Cidr) -> Operation<Result<bool, IpamError>> {
    operation(move |cx| async move {
        let mut patience = Patience(0);
        loop {
            let config = config_value(cx.get(Key::IpamConfig).await?.as_ref())?;
            let key = Key::Block(block.masked());
            let stored = cx.get(key.clone()).await?;
            let stored = stored.ok_or_else(|| IpamError::DoesNotExist { id: entry_name(&key) })?;
            let mut held = Held::new(stored.clone(), config.ip_cooldown_seconds, cx.now())?;
            if held.block.raw() == block_value(&stored)? {
                return Ok(false);
            }
            let result = match held.store(&cx).await {
                Ok(()) => cx.commit().await,
                Err(fault) => Err(fault),
            };
            match result {
                Ok(()) => return Ok(true),
                Err(Fault::Failed(failure)) => return Err(IpamError::Store(failure)),
                Err(_) => patience.lost(&cx).await?,
            }
        }
    })
}

fn pool_for<'p>(pools: &'p [Pool], cidr: &Cidr) -> Result<&'p Pool, IpamError> {
    let pool = enabled_pool_of(pools, cidr).ok_or(IpamError::OutsidePools { cidr: *cidr })?;
    if cidr.prefix_len() > pool.block_len {
        return Err(IpamError::SmallerThanBlock { cidr: *cidr });
    }
    Ok(pool)
}

async fn owned_rows(cx: &Cx, owner: &Owner, version: Option<IpVersion>) -> Result<BTreeSet<Cidr>, IpamError> {
    let name: Option<SmolStr> = Some(owner.name.clone());
    let rows =
        cx.list(ListOptions::BlockAffinities { affinity: owner.affinity, owner: name, version }).await?;
    Ok(rows
        .into_iter()
        .filter_map(|kv| match kv.key {
            Key::BlockAffinity { cidr, .. } => Some(cidr),
            _ => None,
        })
        .collect())
}

async fn release_once(cx: &Cx, owner: &Owner, block: Cidr, rules: ReleaseRules) -> Attempt<()> {
    match affinity::release(cx, owner, block, rules).await {
        Ok(()) => Ok(cx.commit().await?),
        Err(Trouble::Claimed) => {
            cx.commit().await?;
            Err(Trouble::Claimed)
        }
        Err(trouble) => Err(trouble),
    }
}

async fn release_until(cx: &Cx, owner: &Owner, block: Cidr, rules: ReleaseRules) -> Attempt<()> {
    let mut patience = Patience(0);
    loop {
        match release_once(cx, owner, block, rules).await {
            Err(Trouble::Retry | Trouble::Stale) => patience.lost(cx).await?,
            other => return other,
        }
    }
}

fn ignore_absent(result: Attempt<()>) -> Result<(), IpamError> {
    match result {
        Err(Trouble::Fatal(IpamError::DoesNotExist { .. })) => Ok(()),
        Err(Trouble::Fatal(error)) => Err(error),
        _ => Ok(()),
    }
}
