//! What stands between the driver and nf_tables: reading a table, committing a transaction.

use std::io;

use calico_dpmsg::Member;
use calico_rules::nft::SetKey;
use hashbrown::{HashMap, HashSet};
use smol_str::SmolStr;

use crate::op::{Family, Transaction};

/// Why the kernel, or the program in between, did not do what it was asked to.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// The transaction was refused; nothing of it happened.
    #[error("nf_tables refused the change: {reason}")]
    Refused {
        /// What it said.
        reason: String,
    },
    /// The program could not be started.
    #[error("{program} could not be run")]
    Run {
        /// Program.
        program: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The program did not end in time; whether the transaction happened is not known.
    #[error("{program} did not end within {seconds} s")]
    Timeout {
        /// Program.
        program: String,
        /// Time that it had.
        seconds: u64,
    },
    /// The netlink socket failed.
    #[error("netlink: {doing}")]
    Netlink {
        /// What was tried.
        doing: &'static str,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// The kernel sent what cannot be read.
    #[error("netlink: malformed message while reading {what}")]
    Malformed {
        /// What was read.
        what: &'static str,
    },
    /// The table changed again and again while it was read.
    #[error("the table kept changing while it was read")]
    Unstable,
}

impl KernelError {
    /// True if the transaction itself is at fault, so that a part of it may succeed.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Refused { .. })
    }
}

/// Where the kernel calls a chain, as it says it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenHook {
    /// `filter`, `nat` or `route`.
    pub kind: SmolStr,
    /// Number of the hook, 0 (prerouting) to 4 (postrouting); of ARP, 0 (in) and 1 (out).
    pub number: u32,
    /// Priority.
    pub priority: i32,
}

/// A chain as it is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SeenChain {
    /// Hook, if the kernel calls it.
    pub hook: Option<SeenHook>,
    /// Digest of each rule; none for a rule that is not ours.
    pub hashes: Vec<Option<SmolStr>>,
}

/// A set as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenSet {
    /// Type; none if it is not one that the driver makes.
    pub key: Option<SetKey>,
    /// Members.
    pub members: HashSet<Member>,
    /// There are members that are no member of ours could be.
    pub odd: bool,
}

/// A map from interface to verdict as it is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SeenMap {
    /// It maps something else.
    pub wrong_type: bool,
    /// Chain by interface.
    pub entries: HashMap<SmolStr, SmolStr>,
    /// There are elements that do not go to a chain.
    pub odd: bool,
}

/// A table as it is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SeenTable {
    /// Chains.
    pub chains: HashMap<SmolStr, SeenChain>,
    /// Sets that have names.
    pub sets: HashMap<SmolStr, SeenSet>,
    /// Maps that have names.
    pub maps: HashMap<SmolStr, SeenMap>,
}

/// nf_tables of one network namespace.
pub trait NftKernel {
    /// The table, or none if it does not exist.
    ///
    /// # Errors
    /// If it cannot be read, or does not hold still.
    fn read(&mut self, family: Family, table: &str) -> Result<Option<SeenTable>, KernelError>;

    /// Carries out a transaction, all of it or nothing.
    ///
    /// # Errors
    /// [`KernelError::Refused`] if it is at fault; then nothing happened.
    fn commit(&mut self, transaction: &Transaction) -> Result<(), KernelError>;

    /// Number that grows by one with each committed transaction, whoever commits it; none if unknown.
    fn generation(&mut self) -> Option<u32>;
}
