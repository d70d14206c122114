//! A cluster on one machine: nodes are network namespaces, everything in them is real.
//!
//! Owns: scenarios ([`scenario`]), the wires between machines ([`fabric`]), the cluster's processes and objects
//! ([`cluster`]), probes and streams of packets, and the comparison of what is reachable with what should be.
//! In: a scenario file. Out: a matrix per step and an exit code: 0 if all went as expected, 1 if not.
//! Always holds: what a run makes is written down before it is made, and gone when the run ends, however it ends.

mod cli;
mod cluster;
mod ctl;
mod error;
mod expect;
mod fabric;
mod flood;
mod matrix;
mod plan;
mod pods;
mod probe;
mod report;
mod run;
mod scenario;
mod state;
mod store;
mod wait;

pub use cli::run;
pub(crate) use error::LabError;
