//! Address management under every kind of interleaving: several clients, of both forms, run operations on one
//! store; a scheduler decides who makes the next request; any client may stop between any two requests, and any
//! answer may be lost. After each write, and at the end, what was promised must hold.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod choose;
mod client;
mod exhaustive;
mod random;
mod store;
mod world;
