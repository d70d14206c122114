//! What can go wrong in address management, with the texts that callers and users know.

use std::error::Error;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use calico_net::{Cidr, IpVersion};
use smol_str::SmolStr;

use crate::block::BlockDefect;

/// An error of the store, kept as it is. It may or may not have carried out the request.
#[derive(Debug, Clone)]
pub struct Failure(pub Arc<dyn Error + Send + Sync>);

/// Why an operation of address management failed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum IpamError {
    /// Auto-assign was not told what the addresses are for.
    #[error("must specify the intended use when assigning an IP")]
    UseRequired,
    /// No enabled pool of the family qualifies.
    #[error("cannot find a qualified ippool{}", use_suffix(.intended_use))]
    NoQualifiedPool {
        /// The use that no pool allows, if that was the reason.
        intended_use: Option<SmolStr>,
    },
    /// No pool selects the node and namespace.
    #[error("no configured Calico pools for node {node}")]
    NoPoolForNode {
        /// Node.
        node: SmolStr,
    },
    /// A pool was asked for that does not exist, is disabled or has blocks that are too small.
    #[error("the given pool ({pool}) does not exist, or is not enabled")]
    UnknownPool {
        /// The pool as asked for.
        pool: Cidr,
    },
    /// A pool of the other family was asked for.
    #[error(
        "provided IPv{} IPPools list contains one or more IPv{} IPPools",
        .wanted.number(), other(*.wanted).number()
    )]
    PoolOfOtherFamily {
        /// Family of the request.
        wanted: IpVersion,
    },
    /// A pool's selector does not parse.
    #[error("IP pool \"{pool}\" has a selector that cannot be read: {selector}: {reason}")]
    BadSelector {
        /// Pool.
        pool: String,
        /// The selector.
        selector: String,
        /// What is wrong.
        reason: String,
    },
    /// The node has as many blocks as it may have.
    #[error("cannot allocate new block due to per host block limit")]
    BlockLimit,
    /// The node has no free address and may not claim a block.
    #[error("failed to find or claim a block")]
    NoBlock,
    /// Others changed the same entries again and again.
    #[error("Max retries hit - excessive concurrent IPAM requests")]
    Contention,
    /// The handle has as many addresses of the family as it may have, but they are not all visible.
    #[error(
        "handle {handle} has reached its limit of {limit} addresses, and fewer than asked for are assigned"
    )]
    HandleLimit {
        /// Handle.
        handle: SmolStr,
        /// Most addresses of one family.
        limit: u32,
    },
    /// The address is in no enabled pool.
    #[error("The provided IP address is not in a configured pool\n")]
    NotInPool {
        /// Address.
        ip: IpAddr,
    },
    /// The address's pool is not for this use.
    #[error(
        "IP address {ip} is in IP pool \"{pool}\", which is not allowed for use \"{intended_use}\" (allowedUses: [{allowed}])"
    )]
    UseNotAllowed {
        /// Address.
        ip: IpAddr,
        /// Name of the pool.
        pool: String,
        /// The use asked for.
        intended_use: SmolStr,
        /// Uses that the pool allows, separated by blanks.
        allowed: String,
    },
    /// The address is held already, or was released so short ago that it is not handed out yet.
    #[error("resource already exists: {ip} with error: Address already assigned in block")]
    AlreadyAssigned {
        /// Address.
        ip: IpAddr,
    },
    /// Strict affinity is on and the block belongs to another owner.
    #[error("Block host affinity does not match")]
    OtherOwner {
        /// Block.
        block: Cidr,
    },
    /// The affinity cannot be released, since addresses of the block are in use.
    #[error("block '{block}' is not empty")]
    BlockNotEmpty {
        /// Block.
        block: Cidr,
    },
    /// Another owner holds the block.
    #[error("block '{block}' is claimed by another owner")]
    ClaimedByOther {
        /// Block.
        block: Cidr,
    },
    /// The block was changed after the caller looked at it.
    #[error("IPAM block updated since we last read it")]
    BlockChanged {
        /// Block.
        block: Cidr,
    },
    /// The CIDR is in no enabled pool.
    #[error("The requested CIDR ({cidr}) is not within any configured pools.")]
    OutsidePools {
        /// CIDR.
        cidr: Cidr,
    },
    /// The CIDR is smaller than one block of its pool.
    #[error("The requested CIDR ({cidr}) is smaller than the minimum.")]
    SmallerThanBlock {
        /// CIDR.
        cidr: Cidr,
    },
    /// The CIDR has more blocks than one call may claim.
    #[error("The requested CIDR ({cidr}) has more than {limit} blocks.")]
    TooManyBlocks {
        /// CIDR.
        cidr: Cidr,
        /// Most blocks of one call.
        limit: u32,
    },
    /// An owner without a name.
    #[error("an owner of blocks needs a name")]
    OwnerRequired,
    /// An entry is not there; `id` names it.
    #[error("resource does not exist: {id} with error: <nil>")]
    DoesNotExist {
        /// Entry.
        id: String,
    },
    /// Nobody holds the address.
    #[error("resource does not exist: {ip} with error: IP is unassigned")]
    Unassigned {
        /// Address.
        ip: IpAddr,
    },
    /// The address was released so short ago that it is not handed out yet.
    #[error("address {ip} is in cooldown")]
    InCooldown {
        /// Address.
        ip: IpAddr,
    },
    /// The address is held in another way than the caller believes. Must not be retried.
    #[error("update conflict: {ip}")]
    ReleaseMismatch {
        /// Address.
        ip: IpAddr,
        /// What differs.
        #[source]
        reason: Mismatch,
    },
    /// A release names no address.
    #[error("No IP address specified in options: {{Address: Handle:{handle} SequenceNumber:{}}}", seq_text(.sequence))]
    AddressRequired {
        /// The handle of the same request.
        handle: SmolStr,
        /// The sequence number of the same request.
        sequence: Option<u64>,
    },
    /// A release names something that is no address.
    #[error("failed to parse IP: {text}")]
    BadAddress {
        /// Text.
        text: SmolStr,
    },
    /// A configuration under which no address could be assigned.
    #[error("Cannot disable 'StrictAffinity' and 'AutoAllocateBlocks' at the same time")]
    ConfigWithoutBlocks,
    /// A limit of blocks without strict affinity would be no limit.
    #[error("MaxBlocksPerHost requires StrictAffinity to be enabled")]
    ConfigLimitNotStrict,
    /// A reservation of addresses at the ends of a block that reserves none.
    #[error("HostReservedAttr has wrong parameters")]
    BadHostReserved,
    /// A stored block contradicts itself so that it cannot be used.
    #[error("stored block {block} cannot be used: {defect}")]
    CorruptBlock {
        /// Block.
        block: Cidr,
        /// What is wrong.
        #[source]
        defect: BlockDefect,
    },
    /// A stored entry holds something of another kind.
    #[error("stored entry {id} holds another kind of value")]
    WrongValue {
        /// Entry.
        id: String,
    },
    /// The store failed.
    #[error(transparent)]
    Store(Failure),
}

/// How an allocation differs from what a release says about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    /// Another handle.
    #[error("the given handle ({given}) does not match ({stored}) when attempting to release IP")]
    Handle {
        /// As given.
        given: SmolStr,
        /// As stored; empty if none.
        stored: SmolStr,
    },
    /// Another sequence number, so another allocation.
    #[error("the given sequence number ({given}) does not match ({stored}) when attempting to release IP")]
    Sequence {
        /// As given.
        given: u64,
        /// As stored; 0 if none.
        stored: u64,
    },
}

// === impl Failure ===

impl Failure {
    /// Wraps an error of the store.
    pub fn new(error: impl Error + Send + Sync + 'static) -> Self {
        Self(Arc::new(error))
    }

    /// The error, if it is of type `E`.
    pub fn downcast_ref<E: Error + 'static>(&self) -> Option<&E> {
        self.0.downcast_ref()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Error for Failure {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source()
    }
}

// === impl IpamError ===

impl IpamError {
    /// Something asked for is not there. Callers that delete take this for success.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::DoesNotExist { .. } | Self::Unassigned { .. })
    }
}

fn use_suffix(intended_use: &Option<SmolStr>) -> String {
    match intended_use {
        Some(word) => format!(", no pools match the required use ({word})"),
        None => String::new(),
    }
}

fn seq_text(sequence: &Option<u64>) -> String {
    sequence.map_or_else(|| "<nil>".to_owned(), |n| n.to_string())
}

fn other(version: IpVersion) -> IpVersion {
    match version {
        IpVersion::V4 => IpVersion::V6,
        IpVersion::V6 => IpVersion::V4,
    }
}
