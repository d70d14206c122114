//! Pools and which of them a request may draw from.
//!
//! In: IPPool objects, a request's wishes, the labels of node and namespace. Out: pools in the order in which they
//! are to be tried, or the reason why there is none.

use std::collections::BTreeMap;

use calico_api::{AnyResource, AssignmentMode, IPPool, Resource};
use calico_net::{Cidr, IpVersion};
use calico_selector::Selector;
use smol_str::SmolStr;

use crate::error::IpamError;
use crate::walk::max_block_len;

/// Labels of a node or namespace.
pub type Labels = BTreeMap<String, String>;

/// One pool, defaults applied.
#[derive(Debug, Clone, PartialEq)]
pub struct Pool {
    /// Name of the object.
    pub name: String,
    /// Addresses (masked).
    pub cidr: Cidr,
    /// Prefix length of its blocks.
    pub block_len: u8,
    /// Gives out addresses: neither disabled, nor being deleted, nor marked as not allocatable.
    pub enabled: bool,
    /// Gives out addresses without being asked for by name or address.
    pub automatic: bool,
    /// What its addresses may be used for.
    pub allowed_uses: Vec<SmolStr>,
    /// Selector over nodes, as written.
    pub node_selector: String,
    /// Selector over namespaces, as written.
    pub namespace_selector: String,
}

/// A request's part that decides about pools.
#[derive(Debug, Clone)]
pub struct PoolWishes<'a> {
    /// Family.
    pub version: IpVersion,
    /// Node, for messages.
    pub node: &'a str,
    /// Labels of the node.
    pub node_labels: &'a Labels,
    /// Labels of the namespace; none without one.
    pub namespace_labels: &'a Labels,
    /// Pools asked for; empty leaves the choice.
    pub requested: &'a [Cidr],
    /// Addresses that each block sets aside.
    pub reserved_per_block: u64,
}

// === impl Pool ===

impl Pool {
    /// Reads an object; `None` if it is no IPPool or its CIDR cannot be read.
    pub fn from_resource(object: &AnyResource) -> Option<Self> {
        let pool = IPPool::from_any_ref(object)?;
        let cidr = Cidr::parse_strict(&pool.spec.cidr).ok()?.masked();
        let default_len = match cidr.version() {
            IpVersion::V4 => 26,
            IpVersion::V6 => 122,
        };
        let block_len = match pool.spec.block_size {
            0 => default_len,
            n => u8::try_from(n).ok().filter(|n| *n <= cidr.version().bits())?,
        };
        let allocatable = pool.status.as_ref().is_none_or(|status| {
            !status.conditions.iter().any(|c| c.condition_type == "Allocatable" && c.status == "False")
        });
        let allowed_uses = match pool.spec.allowed_uses.as_slice() {
            [] => vec![SmolStr::new_static("Workload"), SmolStr::new_static("Tunnel")],
            uses => uses.iter().map(|u| u.as_str().into()).collect(),
        };
        let mode = pool.spec.assignment_mode.as_ref();
        Some(Self {
            name: pool.metadata.name.clone(),
            cidr,
            block_len,
            enabled: !pool.spec.disabled && pool.metadata.deletion_timestamp.is_none() && allocatable,
            automatic: mode.is_none_or(|m| matches!(m, AssignmentMode::Automatic | AssignmentMode::Unset)),
            allowed_uses,
            node_selector: pool.spec.node_selector.clone(),
            namespace_selector: pool.spec.namespace_selector.clone(),
        })
    }

    /// All pools among `objects`, in their order.
    pub fn from_resources<'a>(objects: impl IntoIterator<Item = &'a AnyResource>) -> Vec<Self> {
        objects.into_iter().filter_map(Self::from_resource).collect()
    }

    /// True if addresses of this pool may be used for `intended_use`.
    pub fn allows(&self, intended_use: &str) -> bool {
        self.allowed_uses.iter().any(|u| u == intended_use)
    }

    /// True if the pool's node selector matches.
    pub fn selects_node(&self, labels: &Labels) -> Result<bool, IpamError> {
        self.selects(&self.node_selector, labels)
    }

    /// True if the pool's namespace selector matches.
    pub fn selects_namespace(&self, labels: &Labels) -> Result<bool, IpamError> {
        self.selects(&self.namespace_selector, labels)
    }

    /// The block of this pool around an address that is in it.
    pub fn block_of(&self, ip: std::net::IpAddr) -> Option<Cidr> {
        Cidr::new(ip, self.block_len).map(|c| c.masked()).filter(|_| self.cidr.contains(ip))
    }

    fn selects(&self, selector: &str, labels: &Labels) -> Result<bool, IpamError> {
        if selector.trim().is_empty() || selector == "all()" {
            return Ok(true);
        }
        match Selector::parse(selector) {
            Ok(parsed) => Ok(parsed.matches(labels)),
            Err(error) => Err(IpamError::BadSelector {
                pool: self.name.clone(),
                selector: selector.to_owned(),
                reason: error.to_string(),
            }),
        }
    }
}

/// The first enabled pool around `cidr`.
pub fn enabled_pool_of<'p>(pools: &'p [Pool], cidr: &Cidr) -> Option<&'p Pool> {
    pools.iter().find(|p| p.enabled && p.cidr.covers(cidr))
}

/// Pools that a request may draw from, before its intended use is looked at.
///
/// Pools asked for are taken as they are: selectors and assignment mode say nothing about them.
pub fn select<'p>(pools: &'p [Pool], wishes: &PoolWishes<'_>) -> Result<Vec<&'p Pool>, IpamError> {
    let max_len = max_block_len(wishes.version, wishes.reserved_per_block);
    let usable = |p: &&Pool| p.enabled && p.cidr.version() == wishes.version && p.block_len <= max_len;
    if !pools.iter().any(|p| usable(&p)) {
        return Err(IpamError::NoQualifiedPool { intended_use: None });
    }
    if !wishes.requested.is_empty() {
        return wishes
            .requested
            .iter()
            .map(|cidr| {
                let wanted = cidr.masked();
                let found = pools.iter().find(|p| usable(p) && p.cidr == wanted);
                found.ok_or(IpamError::UnknownPool { pool: *cidr })
            })
            .collect();
    }
    let mut chosen = Vec::new();
    for pool in pools.iter().filter(usable).filter(|p| p.automatic) {
        if pool.selects_node(wishes.node_labels)? && pool.selects_namespace(wishes.namespace_labels)? {
            chosen.push(pool);
        }
    }
    if chosen.is_empty() {
        return Err(IpamError::NoPoolForNode { node: wishes.node.into() });
    }
    Ok(chosen)
}

/// Those of `chosen` that may be used for `intended_use`.
pub fn filter_use<'p>(chosen: &[&'p Pool], intended_use: &str) -> Result<Vec<&'p Pool>, IpamError> {
    let allowed: Vec<&Pool> = chosen.iter().copied().filter(|p| p.allows(intended_use)).collect();
    if allowed.is_empty() {
        return Err(IpamError::NoQualifiedPool { intended_use: Some(intended_use.into()) });
    }
    Ok(allowed)
}

#[cfg(test)]
mod tests;
