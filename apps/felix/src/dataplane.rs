//! Everything from messages to the kernel of one node.
//!
//! In: messages of the calculation graph, events about links. Out: nftables, routes, neighbours, tunnel devices, kernel
//! parameters, status files. One thread, no locks: messages and events only mark what changed, [`Dataplane::apply`]
//! does all of the work, [`run`] is the loop around both.
//!
//! Always holds:
//! - Nothing is written before [`Message::InSync`] and before the node's links were listed once.
//! - An apply writes sets before the rules that name them, rules before the verdicts, devices and routes that lead
//!   packets to them; deletions go the other way round.
//! - What failed stays pending and is tried again; an end or a crash takes nothing out of the kernel; a start reads
//!   the kernel back and writes only what differs.
//! - Both families run through the same code.

mod engine;
mod hosts;
mod links;
mod metrics;
mod mtu;
mod neighbours;
mod net;
mod plane;
mod policies;
mod remote;
mod report;
mod routes;
mod run;
mod sets;
mod status;
mod sysctls;
mod tunnel;
mod workloads;

use std::sync::Arc;
use std::time::Instant;

use calico_dpmsg::Message;
use calico_host::Sysctl;
use calico_netfilter::{KernelError, RealNft};
use calico_netlink::{Event, NetlinkError};
use calico_rules::ConfigError;

use self::engine::Core;
use self::net::RealNet;
use crate::config::Params;

pub use report::{ApplyReport, Failure, Writes};
pub use run::{HEALTH_REPORTER, run};
pub use status::StatusError;
pub use tunnel::TunnelWait;

/// Why the dataplane cannot start.
#[derive(Debug, thiserror::Error)]
pub enum DataplaneError {
    /// Settings make no rules.
    #[error("settings cannot be used: {0}")]
    Config(#[from] ConfigError),
    /// The pattern of host interfaces cannot be read.
    #[error("pattern of host interfaces for the MTU: {0}")]
    MtuPattern(#[from] regex::Error),
    /// No socket to nf_tables.
    #[error("nf_tables cannot be reached: {0}")]
    Nft(#[from] KernelError),
    /// No socket to rtnetlink.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// A metric could not be registered.
    #[error("metrics: {0}")]
    Metrics(#[from] prometheus::Error),
    /// The loop could not be set up.
    #[error("the event loop cannot start: {0}")]
    Loop(#[source] std::io::Error),
}

/// The dataplane of the network namespace that it was made in. Use it on one thread only.
pub struct Dataplane {
    core: Core<RealNft, RealNet>,
}

// === impl Dataplane ===

impl Dataplane {
    /// A dataplane that knows nothing yet; touches nothing.
    ///
    /// # Errors
    /// If the settings cannot be used or the kernel cannot be reached.
    pub fn new(params: Arc<Params>) -> Result<Self, DataplaneError> {
        let net = RealNet::new()?;
        Ok(Self { core: Core::new(params, || Ok(RealNft::new()?), net, Sysctl::default())? })
    }

    /// Takes a message in.
    pub fn on_message(&mut self, message: &Message) {
        self.core.on_message(message);
    }

    /// Takes an event about links in.
    pub fn on_link_event(&mut self, event: Event, now: Instant) {
        self.core.on_link_event(event, now);
    }

    /// Asks for all links to be listed anew at the next apply.
    pub fn resync_links(&mut self) {
        self.core.resync_links();
    }

    /// Asks for routes, neighbours and devices to be compared with the kernel at the next apply.
    pub fn resync_routes(&mut self) {
        self.core.resync_routes();
    }

    /// Asks for nftables to be compared with the kernel at the next apply.
    pub fn resync_tables(&mut self) {
        self.core.resync_tables();
    }

    /// Does all work that is due.
    pub fn apply(&mut self, now: Instant) -> ApplyReport {
        self.core.apply(now)
    }
}

#[cfg(test)]
mod tests;
