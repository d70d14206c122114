//! Address management: which addresses are free, who gets one, and how many clients agree on it.
//!
//! Owns: the arithmetic of one block ([`block`]), the choice of pools ([`pools`]) and of blocks ([`walk`]), the
//! operations ([`ops`]) as state machines that ask for one step at a time ([`machine`]), and the form of the same
//! operations for stores that write many keys at once ([`atomic`]).
//! In: requests, answers of a store, the time. Out: reads and conditional writes to be carried out, results.
//! Nothing here touches a store, reads a clock or draws a random number.
//!
//! Invariants, under any interleaving of any number of clients, of either form, any of which may stop for ever
//! between any two of its steps:
//! - an address that an assignment returned is held by that assignment until it is released, and by no other;
//! - a handle counts, for every block, at least as many addresses as the block holds for it;
//! - what a stopped client left behind is brought in order by the next operation that meets it.
//!
//! The stored states are those that upstream's clients make and understand.

pub mod atomic;
pub mod block;
pub mod error;
pub mod machine;
pub mod ops;
pub mod pools;
pub mod reservation;
pub mod walk;

pub use atomic::{Atomic, AtomicReply, AtomicStep, Plan};
pub use block::{Block, HostReserved, Owner};
pub use error::{Failure, IpamError, Mismatch};
pub use machine::{Answers, Fault, Operation, ReadSet, Reply, Step};
pub use pools::{Labels, Pool};
pub use reservation::Reservations;
