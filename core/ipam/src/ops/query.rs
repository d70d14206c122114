//! Questions about addresses that are assigned.

use std::net::IpAddr;

use calico_model::Key;
use calico_model::ipam::AllocationAttribute;
use calico_net::Cidr;
use smol_str::SmolStr;

use super::{Held, READ_BATCH, config_and_pools, config_value, entry_name, handle_value, operation};
use crate::block::{Block, Holding};
use crate::error::IpamError;
use crate::machine::{Cx, Operation};
use crate::pools::Pool;

/// Who holds an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    /// Handle and attributes.
    pub attribute: AllocationAttribute,
    /// Number of the allocation; a release that names it frees this allocation and no later one.
    pub sequence: u64,
}

/// Who holds `ip`. [`IpamError::Unassigned`] or [`IpamError::DoesNotExist`] if nobody does,
/// [`IpamError::InCooldown`] if nobody may yet.
pub fn assignment(ip: IpAddr) -> Operation<Result<Assignment, IpamError>> {
    operation(move |cx| async move {
        let (config, pools) = config_and_pools(&cx).await?;
        let cidr = block_around(&pools, ip).ok_or(IpamError::NotInPool { ip })?;
        let key = Key::Block(cidr);
        let kv =
            cx.get(key.clone()).await?.ok_or_else(|| IpamError::DoesNotExist { id: entry_name(&key) })?;
        let held = Held::new(kv, config.ip_cooldown_seconds, cx.now())?;
        let ordinal = held.block.ordinal(ip).ok_or(IpamError::Unassigned { ip })?;
        match held.block.holding(ordinal) {
            Holding::Free => Err(IpamError::Unassigned { ip }),
            Holding::Cooling(_) => Err(IpamError::InCooldown { ip }),
            Holding::Held(attribute) => Ok(Assignment {
                attribute: attribute.clone(),
                sequence: held.block.allocation_sequence(ordinal),
            }),
        }
    })
}

/// All addresses held under `handle`, sorted by block. [`IpamError::DoesNotExist`] if there is no such handle.
pub fn ips_by_handle(handle: SmolStr) -> Operation<Result<Vec<IpAddr>, IpamError>> {
    operation(|cx| async move { held_ips(&cx, &handle).await })
}

pub(super) async fn held_ips(cx: &Cx, handle: &SmolStr) -> Result<Vec<IpAddr>, IpamError> {
    let mut answers = cx.get_all(vec![Key::IpamHandle(handle.clone()), Key::IpamConfig]).await.into_iter();
    let mut next = || answers.next().unwrap_or(Ok(None)).map_err(IpamError::Store);
    let (stored, config) = (next()?, config_value(next()?.as_ref())?);
    let key = Key::IpamHandle(handle.clone());
    let stored = stored.ok_or_else(|| IpamError::DoesNotExist { id: entry_name(&key) })?;
    let blocks = handle_blocks(handle_value(&stored)?);
    let mut ips = Vec::new();
    for batch in blocks.chunks(READ_BATCH) {
        for answer in cx.get_all(batch.iter().copied().map(Key::Block).collect()).await {
            let Some(kv) = answer.map_err(IpamError::Store)? else { continue };
            let held = Held::new(kv, config.ip_cooldown_seconds, cx.now())?;
            ips.extend(addresses(&held.block, handle));
        }
    }
    Ok(ips)
}

fn addresses(block: &Block, handle: &str) -> Vec<IpAddr> {
    block.held_by(handle).into_iter().filter_map(|o| block.address(o)).collect()
}

/// Blocks that a handle names. A name that is no CIDR names no block.
pub(super) fn handle_blocks(handle: &calico_model::ipam::IpamHandle) -> Vec<Cidr> {
    handle.block.keys().filter_map(|text| Cidr::parse_strict(text).ok()).map(|c| c.masked()).collect()
}

/// The block in which an address lies, by the first pool around it, enabled or not.
pub(super) fn block_around(pools: &[Pool], ip: IpAddr) -> Option<Cidr> {
    pools.iter().find_map(|p| p.block_of(ip))
}
