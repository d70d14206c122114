//! IPAM's stored values. Field names and shapes follow what upstream writes; see the JSON of each type.

use std::collections::BTreeMap;

use calico_net::Cidr;
use smol_str::SmolStr;

/// One block of addresses and who holds each of them.
///
/// Invariants of a sound block: every number in `allocations` indexes `attributes`; `unallocated` holds each
/// free ordinal once, in the order in which they will be handed out; the two together cover the block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllocationBlock {
    /// The block (masked).
    pub cidr: Cidr,
    /// `host:<node>` or `virtual:<name>`; `None` if nobody owns the block.
    pub affinity: Option<SmolStr>,
    /// When the affinity was claimed, RFC 3339 with seconds.
    pub affinity_claim_time: Option<SmolStr>,
    /// Affinity of very old releases; kept as read.
    pub host_affinity: Option<SmolStr>,
    /// Per ordinal the index into `attributes`; `None` is free.
    pub allocations: Vec<Option<u32>>,
    /// Free ordinals, next one first.
    pub unallocated: Vec<u32>,
    /// Attributes that allocations share.
    pub attributes: Vec<AllocationAttribute>,
    /// Grows by one with each update; a new block starts at the wall clock in nanoseconds.
    pub sequence_number: u64,
    /// Per allocated ordinal the block's sequence number before the write that allocated it.
    pub sequence_number_for_allocation: BTreeMap<u32, u64>,
    /// Set while the Kubernetes store deletes the block in two steps.
    pub deleted: bool,
}

/// Who holds addresses, or when they were released.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AllocationAttribute {
    /// Handle that the addresses were assigned under.
    pub handle_id: Option<SmolStr>,
    /// Attributes of the owner (JSON name `secondary`), for example `pod`, `namespace`, `node`, `timestamp`.
    pub active_owner_attrs: BTreeMap<SmolStr, SmolStr>,
    /// Attributes of a second owner while a virtual machine migrates.
    pub alternate_owner_attrs: BTreeMap<SmolStr, SmolStr>,
    /// Release time, RFC 3339 with seconds; set only on addresses in cool-down.
    pub released_at: Option<SmolStr>,
}

/// State of an affinity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AffinityState {
    /// Claimed and usable; an empty stored state means this too.
    Confirmed,
    /// A claim has begun.
    Pending,
    /// A release has begun.
    PendingDeletion,
}

/// An owner's claim of a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockAffinity {
    /// State; `None` is the empty text of old data.
    pub state: Option<AffinityState>,
    /// Set while the Kubernetes store deletes the affinity in two steps.
    pub deleted: bool,
}

/// Which blocks a handle has addresses in, and how many.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct IpamHandle {
    /// Count by block CIDR text.
    pub block: BTreeMap<SmolStr, u64>,
    /// Set while the Kubernetes store deletes the handle in two steps.
    pub deleted: bool,
}

/// IPAM settings of the cluster. [`Default`] is what holds when nothing is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IpamConfig {
    /// Addresses come only from blocks that the node owns.
    pub strict_affinity: bool,
    /// Nodes may claim blocks by themselves.
    pub auto_allocate_blocks: bool,
    /// Most blocks per node; 0 is no limit of its own.
    pub max_blocks_per_host: u32,
    /// `Enabled` or `Disabled`; `None` means enabled.
    pub kubevirt_vm_address_persistence: Option<SmolStr>,
    /// Seconds for which a released address is not handed out again.
    pub ip_cooldown_seconds: u32,
}

impl Default for IpamConfig {
    fn default() -> Self {
        Self {
            strict_affinity: false,
            auto_allocate_blocks: true,
            max_blocks_per_host: 0,
            kubevirt_vm_address_persistence: None,
            ip_cooldown_seconds: 0,
        }
    }
}
