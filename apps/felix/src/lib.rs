//! Felix, the agent of a node: makes the kernel enforce what the datastore says.
//!
//! Owns: the settings ([`config`]), the path from the store through the calculation graph ([`daemon`]) and the
//! dataplane ([`dataplane`]), which programs nftables, routes, neighbours and devices.
//! Always holds: nothing touches the kernel before the store's content is complete; an end or a crash takes nothing
//! out of the kernel; a start changes only what differs.

mod bucket;
mod calc_thread;
pub mod config;
mod daemon;
pub mod dataplane;
mod metrics;
mod tracker;
mod verdict;

pub use daemon::run;
