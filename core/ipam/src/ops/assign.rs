//! Assigning one given address, and the write that every assignment ends with.

use std::collections::BTreeMap;
use std::net::IpAddr;

use calico_model::Key;
use calico_net::Cidr;
use smol_str::SmolStr;

use super::affinity::{self, Rules};
use super::handle::{self, LimitReached};
use super::{Attempt, Held, Patience, Trouble, config_and_pools, operation};
use crate::block::{Holding, HostReserved, Owner, handle_name};
use crate::error::IpamError;
use crate::machine::{Cx, Fault, Operation};
use crate::pools::{Pool, enabled_pool_of};

/// The use that load balancers ask for; their blocks belong to no node.
pub(super) const LOAD_BALANCER: &str = "LoadBalancer";

/// One address to be assigned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AssignArgs {
    /// Address.
    pub ip: IpAddr,
    /// Handle to assign it under.
    pub handle: Option<SmolStr>,
    /// Kept with the address.
    pub attributes: BTreeMap<SmolStr, SmolStr>,
    /// Node that claims the block if nobody has; the node's name.
    pub host: SmolStr,
    /// Addresses that a block made on the way sets aside.
    pub reserved: Option<HostReserved>,
    /// What the address is for; empty is not checked.
    pub intended_use: SmolStr,
    /// Most addresses of one family under the handle; 0 is no limit. With a limit, an address that the handle
    /// holds already is no error.
    pub max_per_handle: u32,
}

impl AssignArgs {
    /// A request for `ip` on `host` with nothing else set.
    pub fn new(ip: IpAddr, host: impl Into<SmolStr>) -> Self {
        Self {
            ip,
            handle: None,
            attributes: BTreeMap::new(),
            host: host.into(),
            reserved: None,
            intended_use: SmolStr::default(),
            max_per_handle: 0,
        }
    }
}

/// Assigns one address; makes its block if nobody has. Selectors, reservations and the limit of blocks do not
/// apply.
pub fn assign(args: AssignArgs) -> Operation<Result<(), IpamError>> {
    operation(|cx| async move {
        let (config, pools) = config_and_pools(&cx).await?;
        let pool =
            enabled_pool_of(&pools, &Cidr::host(args.ip)).ok_or(IpamError::NotInPool { ip: args.ip })?;
        if !args.intended_use.is_empty() && !pool.allows(&args.intended_use) {
            return Err(use_not_allowed(&args, pool));
        }
        let cidr = pool.block_of(args.ip).ok_or(IpamError::NotInPool { ip: args.ip })?;
        let owner = owner_for(&args.intended_use, &args.host);
        let rules =
            Rules { owner: &owner, reserved: args.reserved.as_ref(), cooldown: config.ip_cooldown_seconds };
        let mut patience = Patience(0);
        loop {
            match attempt(&cx, &args, cidr, &rules, config.strict_affinity).await {
                Ok(()) => return Ok(()),
                Err(Trouble::Fatal(error)) => return Err(error),
                Err(_) => patience.lost(&cx).await?,
            }
        }
    })
}

async fn attempt(cx: &Cx, args: &AssignArgs, cidr: Cidr, rules: &Rules<'_>, strict: bool) -> Attempt<()> {
    let mut held = match cx.get(Key::Block(cidr)).await? {
        Some(kv) => Held::new(kv, rules.cooldown, cx.now())?,
        None => {
            let stored = cx.get(rules.owner.affinity_key(cidr)).await?;
            let row = affinity::pending(cx, rules.owner, cidr, stored, false).await?;
            affinity::claim(cx, rules, cidr, row).await?
        }
    };
    if strict && !held.block.owned_by(rules.owner) {
        return Err(IpamError::OtherOwner { block: cidr }.into());
    }
    if !held.block.assign(args.ip, args.handle.as_ref(), &args.attributes) {
        let ordinal = held.block.ordinal(args.ip);
        let ours = ordinal.is_some_and(|o| match held.block.holding(o) {
            Holding::Held(a) => a.handle_id.as_deref().map(handle_name) == args.handle.as_deref(),
            _ => false,
        });
        return match args.handle {
            Some(_) if args.max_per_handle > 0 && ours => Ok(()),
            _ => Err(IpamError::AlreadyAssigned { ip: args.ip }.into()),
        };
    }
    match write_assignment(cx, &mut held, args.handle.as_ref(), 1, args.max_per_handle).await? {
        Ok(()) => Ok(()),
        Err(LimitReached) => {
            let handle = args.handle.clone().unwrap_or_default();
            Err(IpamError::HandleLimit { handle, limit: args.max_per_handle }.into())
        }
    }
}

/// Stores a block in which `n` addresses were just assigned under `handle`.
pub(super) async fn write_assignment(
    cx: &Cx,
    held: &mut Held,
    handle: Option<&SmolStr>,
    n: u64,
    limit: u32,
) -> Attempt<Result<(), LimitReached>> {
    if let Some(handle) = handle
        && handle::count_up(cx, handle, held.cidr(), n, limit).await?.is_err()
    {
        return Ok(Err(LimitReached));
    }
    match held.store(cx).await {
        Ok(()) => {}
        // Whether the block was stored is unknown: the handle must go on to count its addresses.
        Err(Fault::Failed(failure)) => return Err(IpamError::Store(failure).into()),
        Err(fault) => {
            if let Some(handle) = handle {
                handle::count_down_surely(cx, handle, held.cidr(), n).await?;
            }
            return Err(fault.into());
        }
    }
    cx.commit().await?;
    Ok(Ok(()))
}

/// Who owns the blocks from which `host` takes addresses for `intended_use`.
pub(super) fn owner_for(intended_use: &str, host: &SmolStr) -> Owner {
    if intended_use == LOAD_BALANCER { Owner::virtual_(host.clone()) } else { Owner::host(host.clone()) }
}

fn use_not_allowed(args: &AssignArgs, pool: &Pool) -> IpamError {
    IpamError::UseNotAllowed {
        ip: args.ip,
        pool: pool.name.clone(),
        intended_use: args.intended_use.clone(),
        allowed: pool.allowed_uses.join(" "),
    }
}
