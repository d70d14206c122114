//! What every long-running component has: logs, metrics, health and signals.
//!
//! Owns no decision of any component: it takes levels, ports and reporters as arguments.

pub mod health;
pub mod http;
pub mod log;
pub mod signal;
pub mod summary;

pub use health::Health;
