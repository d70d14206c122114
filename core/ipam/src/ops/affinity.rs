//! The life of one affinity and its block: claim, confirm, use, release.

use std::sync::Arc;

use calico_model::ipam::{AffinityState, BlockAffinity};
use calico_model::{Key, KvPair, Value};
use calico_net::Cidr;

use super::{Attempt, Held, Trouble, affinity_value, entry_name};
use crate::block::{Block, HostReserved, Owner};
use crate::error::{Failure, IpamError};
use crate::machine::{Cx, Fault};

/// What holds for every block that an operation touches.
pub(super) struct Rules<'a> {
    pub(super) owner: &'a Owner,
    pub(super) reserved: Option<&'a HostReserved>,
    pub(super) cooldown: u32,
}

/// How to release an affinity.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ReleaseRules {
    /// Only if no address is in use.
    pub(super) must_be_empty: bool,
    /// Only if the block has this sequence number.
    pub(super) sequence: Option<u64>,
    /// Seconds for which released addresses cool down.
    pub(super) cooldown: u32,
}

fn state_of(row: &KvPair) -> Result<AffinityState, IpamError> {
    // An empty state is how very old releases wrote a confirmed one.
    Ok(affinity_value(row)?.state.unwrap_or(AffinityState::Confirmed))
}

fn affinity_in(state: AffinityState) -> Value {
    Value::BlockAffinity(BlockAffinity { state: Some(state), deleted: false })
}

fn with_state(row: &KvPair, state: AffinityState) -> KvPair {
    KvPair { value: Some(affinity_in(state)), ..row.clone() }
}

/// The owner's affinity for `cidr`, at least pending. `stored` is the affinity as just read. A confirmed one stays
/// as it is if its block is there.
pub(super) async fn pending(
    cx: &Cx,
    owner: &Owner,
    cidr: Cidr,
    stored: Option<KvPair>,
    block_is_there: bool,
) -> Attempt<KvPair> {
    match stored {
        None => {
            let kv = KvPair::new(owner.affinity_key(cidr), affinity_in(AffinityState::Pending));
            Ok(cx.create(kv).await?)
        }
        Some(row) if block_is_there && state_of(&row)? == AffinityState::Confirmed => Ok(row),
        Some(row) => Ok(cx.update(with_state(&row, AffinityState::Pending)).await?),
    }
}

/// Makes the block of a pending affinity, or finds it made already, and confirms the affinity.
pub(super) async fn claim(cx: &Cx, rules: &Rules<'_>, cidr: Cidr, row: KvPair) -> Attempt<Held> {
    let block = Block::new(cidr, rules.owner, rules.reserved, cx.now())
        .ok_or(IpamError::TooManyBlocks { cidr, limit: super::MAX_CLAIM_BLOCKS })?;
    let kv = KvPair::new(Key::Block(cidr), Value::Block(Arc::new(block.raw().clone())));
    match cx.create(kv).await {
        Ok(kv) => {
            confirm(cx, row).await?;
            Ok(Held { block, kv })
        }
        Err(Fault::Exists) => {
            let stored = cx.get(Key::Block(cidr)).await?.ok_or(Trouble::Retry)?;
            let held = Held::new(stored, rules.cooldown, cx.now())?;
            if held.block.owned_by(rules.owner) {
                confirm(cx, row).await?;
                return Ok(held);
            }
            forget_row(cx, row).await?;
            Err(Trouble::Claimed)
        }
        Err(fault) => Err(fault.into()),
    }
}

/// The block of an affinity, ready for use. `stored` is the block as read after `row`.
///
/// An affinity that is not confirmed may be one that somebody is about to release. Storing the block once more
/// makes that release fail, and only then does the affinity count as confirmed.
pub(super) async fn block_of(
    cx: &Cx,
    rules: &Rules<'_>,
    row: KvPair,
    stored: Option<KvPair>,
) -> Attempt<Held> {
    let Key::BlockAffinity { cidr, .. } = row.key else {
        return Err(super::wrong_value(&row.key).into());
    };
    let Some(kv) = stored else {
        let row = cx.update(with_state(&row, AffinityState::Pending)).await?;
        return claim(cx, rules, cidr, row).await;
    };
    let mut held = Held::new(kv, rules.cooldown, cx.now())?;
    if !held.block.owned_by(rules.owner) {
        forget_row(cx, row).await?;
        return Err(Trouble::Stale);
    }
    if state_of(&row)? != AffinityState::Confirmed {
        confirm_again(cx, row, &mut held).await?;
    }
    Ok(held)
}

/// Confirms an affinity whose block is there.
async fn confirm_again(cx: &Cx, row: KvPair, held: &mut Held) -> Attempt<()> {
    let row = cx.update(with_state(&row, AffinityState::Pending)).await?;
    held.store(cx).await?;
    confirm(cx, row).await
}

/// Gives up the owner's claim of `cidr`: the block goes if no address is in use, else it stays without owner.
///
/// The block is the truth: an owner whose affinity is gone (a process stopped half way) can be released too. Then
/// an affinity is made for the time of the release, so that the owner cannot confirm one meanwhile.
pub(super) async fn release(cx: &Cx, owner: &Owner, cidr: Cidr, rules: ReleaseRules) -> Attempt<()> {
    if owner.name.is_empty() {
        return Err(IpamError::OwnerRequired.into());
    }
    let key = owner.affinity_key(cidr);
    let (row, kv) = cx.get_in_order(key.clone(), Key::Block(cidr)).await?;
    let Some(kv) = kv else {
        return match row {
            // The block went and its release stopped short.
            Some(row) => Ok(forget_row(cx, row).await?),
            None => Err(IpamError::DoesNotExist { id: entry_name(&key) }.into()),
        };
    };
    let mut held = Held::new(kv, rules.cooldown, cx.now())?;
    let unowned = held.block.raw().affinity.is_none();
    if !unowned && !held.block.owned_by(owner) {
        if let Some(row) = row {
            forget_row(cx, row).await?;
        }
        return Err(Trouble::Claimed);
    }
    let refused = if rules.sequence.is_some_and(|wanted| wanted != held.block.sequence()) {
        Some(IpamError::BlockChanged { block: cidr })
    } else if rules.must_be_empty && !held.block.is_empty() {
        Some(IpamError::BlockNotEmpty { block: cidr })
    } else {
        None
    };
    if let Some(error) = refused {
        // A release of ours, or of somebody who stopped, had begun; the owner keeps the block after all.
        if let Some(row) = row.filter(|_| !unowned)
            && state_of(&row)? == AffinityState::PendingDeletion
        {
            confirm_again(cx, row, &mut held).await?;
            cx.commit().await?;
        }
        return Err(error.into());
    }
    let row = match row {
        Some(row) => cx.update(with_state(&row, AffinityState::PendingDeletion)).await?,
        None => cx.create(KvPair::new(key, affinity_in(AffinityState::PendingDeletion))).await?,
    };
    if held.block.is_empty() {
        match cx.delete(held.kv).await {
            Ok(_) | Err(Fault::Missing) => {}
            Err(fault) => return Err(fault.into()),
        }
    } else if !unowned {
        held.block.disown();
        held.store(cx).await?;
    }
    Ok(forget_row(cx, row).await?)
}

/// Removes a block that nobody owns and nobody uses.
pub(super) async fn remove_unowned(cx: &Cx, cidr: Cidr, sequence: u64, cooldown: u32) -> Attempt<()> {
    let Some(kv) = cx.get(Key::Block(cidr)).await? else { return Ok(()) };
    let held = Held::new(kv, cooldown, cx.now())?;
    if held.block.sequence() != sequence || !held.block.is_empty() || held.block.raw().affinity.is_some() {
        return Err(IpamError::BlockChanged { block: cidr }.into());
    }
    match cx.delete(held.kv).await {
        Ok(_) | Err(Fault::Missing) => Ok(()),
        Err(fault) => Err(fault.into()),
    }
}

/// Confirms a pending affinity. If it was changed meanwhile it may still be confirmed, by another process of the
/// same owner; otherwise the claim must be driven again, which makes the affinity anew if it is gone.
async fn confirm(cx: &Cx, row: KvPair) -> Attempt<()> {
    if state_of(&row)? == AffinityState::Confirmed {
        return Ok(());
    }
    let key = row.key.clone();
    match cx.update(with_state(&row, AffinityState::Confirmed)).await {
        Ok(_) => Ok(()),
        Err(Fault::Failed(failure)) => Err(Trouble::Fatal(IpamError::Store(failure))),
        Err(_) => match cx.get(key).await? {
            Some(now) if state_of(&now)? == AffinityState::Confirmed => Ok(()),
            _ => Err(Trouble::Retry),
        },
    }
}

/// Removes an affinity. One that has changed meanwhile is in use again and stays.
async fn forget_row(cx: &Cx, row: KvPair) -> Result<(), IpamError> {
    match cx.delete(row).await {
        Err(Fault::Failed(failure)) => Err(IpamError::Store(failure)),
        _ => Ok(()),
    }
}

/// Whether an error of the store was met, as opposed to a state of the entries.
pub(super) fn is_store_failure(error: &IpamError) -> Option<&Failure> {
    match error {
        IpamError::Store(failure) => Some(failure),
        _ => None,
    }
}
