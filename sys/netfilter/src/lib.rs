//! nf_tables, kept equal to what it should be.
//!
//! Owns: one table per family ([`NftDataplane`]), with its sets, chains, base chains and verdict maps as wished
//! and as they are ([`DeltaTracker`]); the way to the kernel ([`NftKernel`]: [`RealNft`] by the program `nft` and
//! netlink, [`MemoryNft`] for tests).
//! In: chains as `calico-rules` renders them, sets and their members. Out: transactions, and a [`Report`].
//!
//! Invariants:
//! - Each change of the kernel is a transaction; members of sets come before rules that name the sets, rules
//!   before verdicts that lead to them, deletions last.
//! - A start reads the table and applies the difference; a table that is right is not written. Own rules are
//!   known by the digest in their comments.
//! - In between, a change costs what it is: members, verdicts and deletions go by netlink in one message, a chain
//!   by one run of `nft`; neither reads rules or elements first.
//! - A part that the kernel refuses holds up no other, is reported with its name, and is tried again. An
//!   endpoint whose chain was refused keeps its old chain, or has no verdict and so is denied.

mod chains;
mod dataplane;
mod delta;
mod kernel;
mod memory;
mod netlink;
mod op;
mod overlap;
mod real;
mod sets;

pub use chains::Owner;
pub use dataplane::{NftDataplane, Pending, PendingReason, Report, Sizes, delete_table};
pub use delta::DeltaTracker;
pub use kernel::{KernelError, NftKernel, SeenChain, SeenHook, SeenMap, SeenSet, SeenTable};
pub use memory::{MemoryChain, MemoryNft, MemoryTable};
pub use op::{Family, Op, Transaction};
pub use real::RealNft;

use calico_rules::nft::BaseHook;

/// A hook as the kernel says it.
pub(crate) fn seen_hook(family: Family, hook: &BaseHook) -> SeenHook {
    let number = match (family, hook.hook) {
        (Family::Arp, "input") => 0,
        (Family::Arp, _) => 1,
        (_, "prerouting") => 0,
        (_, "input") => 1,
        (_, "forward") => 2,
        (_, "output") => 3,
        _ => 4,
    };
    SeenHook { kind: hook.kind.into(), number, priority: hook.priority }
}
