//! Counting the addresses of a handle.

use std::collections::BTreeMap;
use std::sync::Arc;

use calico_model::ipam::IpamHandle;
use calico_model::{Key, KvPair, Value};
use calico_net::{Cidr, IpVersion};
use smol_str::{SmolStr, ToSmolStr};

use super::{Attempt, HANDLES_PER_COMMIT, Patience, Trouble, handle_value};
use crate::error::IpamError;
use crate::machine::{Cx, Fault};

/// A handle's limit was met; nothing was written.
pub(super) struct LimitReached;

/// Addresses of one family that a handle counts.
pub(super) fn count_of(handle: &IpamHandle, version: IpVersion) -> u64 {
    let of_family = |block: &str| block.contains(':') == (version == IpVersion::V6);
    let counts = handle.block.iter().filter(|(block, _)| of_family(block)).map(|(_, n)| *n);
    counts.fold(0u64, u64::saturating_add)
}

/// Counts `n` more addresses in `block`, unless the family then had more than `limit` (0 is no limit).
pub(super) async fn count_up(
    cx: &Cx,
    handle: &SmolStr,
    block: Cidr,
    n: u64,
    limit: u32,
) -> Result<Result<(), LimitReached>, IpamError> {
    let mut patience = Patience(0);
    loop {
        let key = Key::IpamHandle(handle.clone());
        let stored = cx.get(key.clone()).await?;
        let mut value = match &stored {
            Some(kv) => handle_value(kv)?.clone(),
            None => IpamHandle::default(),
        };
        if limit > 0 && count_of(&value, block.version()).saturating_add(n) > u64::from(limit) {
            return Ok(Err(LimitReached));
        }
        let count = value.block.entry(block.to_smolstr()).or_insert(0);
        *count = count.saturating_add(n);
        let value = Value::IpamHandle(Arc::new(value));
        let result = match stored {
            Some(kv) => cx.update(KvPair { value: Some(value), ..kv }).await,
            None => cx.create(KvPair::new(key, value)).await,
        };
        match result {
            Ok(_) => return Ok(Ok(())),
            Err(Fault::Failed(failure)) => return Err(IpamError::Store(failure)),
            Err(_) => patience.lost(cx).await?,
        }
    }
}

/// Counts `n` addresses in `block` less; `stored` is the handle as just read. A handle that says too little
/// already is left alone: what it says was set by hand, and its addresses are gone either way.
async fn count_down(cx: &Cx, block: Cidr, n: u64, stored: Option<KvPair>) -> Attempt<()> {
    let Some(stored) = stored else { return Ok(()) };
    let mut value = handle_value(&stored)?.clone();
    let name = block.to_smolstr();
    match value.block.get_mut(&name) {
        Some(count) if *count > n => *count -= n,
        Some(count) if *count == n => drop(value.block.remove(&name)),
        _ => return Ok(()),
    }
    let result = if value.block.is_empty() {
        cx.delete(stored).await
    } else {
        cx.update(KvPair { value: Some(Value::IpamHandle(Arc::new(value))), ..stored }).await
    };
    match result {
        Ok(_) | Err(Fault::Missing) => Ok(()),
        Err(fault) => Err(fault.into()),
    }
}

/// Counts down until it succeeds.
pub(super) async fn count_down_surely(
    cx: &Cx,
    handle: &SmolStr,
    block: Cidr,
    n: u64,
) -> Result<(), IpamError> {
    let stored = cx.get(Key::IpamHandle(handle.clone())).await?;
    count_down_from(cx, handle, block, n, stored).await
}

async fn count_down_from(
    cx: &Cx,
    handle: &SmolStr,
    block: Cidr,
    n: u64,
    mut stored: Option<KvPair>,
) -> Result<(), IpamError> {
    let mut patience = Patience(0);
    loop {
        match count_down(cx, block, n, stored).await {
            Err(Trouble::Fatal(error)) => return Err(error),
            Err(_) => patience.lost(cx).await?,
            Ok(()) => return Ok(()),
        }
        stored = cx.get(Key::IpamHandle(handle.clone())).await?;
    }
}

/// Ends the write of a block from which the addresses in `counts` were released, and counts their handles down.
///
/// The first commit holds the block and as many handles as fit; a conflict there undoes the block too and is
/// [`Trouble::Retry`]. What comes later is tried until it succeeds. A handle that cannot be counted down says too
/// much from then on, which is harmless, so that is no error.
pub(super) async fn commit_release(cx: &Cx, block: Cidr, counts: &BTreeMap<SmolStr, u64>) -> Attempt<()> {
    let counts: Vec<(&SmolStr, u64)> = counts.iter().map(|(handle, n)| (handle, *n)).collect();
    let mut chunks = counts.chunks(HANDLES_PER_COMMIT);
    if let Some(first) = chunks.next() {
        count_down_all(cx, block, first).await;
    }
    cx.commit().await?;
    for chunk in chunks {
        let mut patience = Patience(0);
        loop {
            count_down_all(cx, block, chunk).await;
            match cx.commit().await {
                Ok(()) | Err(Fault::Failed(_)) => break,
                Err(_) if patience.lost(cx).await.is_err() => break,
                Err(_) => {}
            }
        }
    }
    Ok(())
}

async fn count_down_all(cx: &Cx, block: Cidr, counts: &[(&SmolStr, u64)]) {
    let keys = counts.iter().map(|(handle, _)| Key::IpamHandle((*handle).clone())).collect();
    for ((handle, n), stored) in counts.iter().zip(cx.get_all(keys).await) {
        if let Ok(stored) = stored {
            let _over_counted = count_down_from(cx, handle, block, *n, stored).await;
        }
    }
}
