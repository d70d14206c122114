//! What an apply did, and what it could not do.

use std::time::{Duration, Instant};

use calico_host::SysctlError;
use calico_net::IpVersion;
use calico_netfilter::KernelError;
use calico_netlink::NetlinkError;
use calico_rules::ConfigError;

use super::status::StatusError;
use super::tunnel::TunnelWait;

/// Something that an apply could not do; it is tried again.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// nftables.
    #[error("nftables of {table}: {source}")]
    Nft {
        /// Family of the table.
        table: &'static str,
        /// Why.
        #[source]
        source: KernelError,
    },
    /// Links could not be listed.
    #[error("links: {0}")]
    Links(#[source] NetlinkError),
    /// Routes.
    #[error("routes of IPv{}: {source}", version.number())]
    Routes {
        /// Family.
        version: IpVersion,
        /// Why.
        #[source]
        source: NetlinkError,
    },
    /// Neighbours or forwarding entries.
    #[error("neighbours: {0}")]
    Neighbours(#[source] NetlinkError),
    /// A tunnel device.
    #[error("tunnel device {device}: {source}")]
    Tunnel {
        /// Name.
        device: &'static str,
        /// Why.
        #[source]
        source: NetlinkError,
    },
    /// A kernel parameter.
    #[error(transparent)]
    Sysctl(#[from] SysctlError),
    /// Endpoint status.
    #[error(transparent)]
    Status(#[from] StatusError),
    /// Settings that changed make no rules.
    #[error("settings cannot be used: {0}")]
    Config(#[from] ConfigError),
}

/// How much an apply wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Writes {
    /// Transactions of nftables.
    pub transactions: usize,
    /// Routes made, replaced or removed.
    pub routes: usize,
    /// Neighbours and forwarding entries made, replaced or removed.
    pub neighbours: usize,
    /// Devices and addresses made, changed or removed.
    pub devices: usize,
    /// Kernel parameters set.
    pub sysctls: usize,
    /// Status files written or removed.
    pub files: usize,
}

impl Writes {
    /// All of them.
    pub fn total(&self) -> usize {
        self.transactions + self.routes + self.neighbours + self.devices + self.sysctls + self.files
    }
}

/// What an apply did.
#[derive(Debug, Default)]
pub struct ApplyReport {
    /// It did its work; false while it must wait for the calculation graph or for links.
    pub ran: bool,
    /// How much was written.
    pub writes: Writes,
    /// What could not be done.
    pub failures: Vec<Failure>,
    /// Parts that nftables refused, by name; they hold up nothing else and are tried again at each resync.
    pub refused: Vec<String>,
    /// Tunnel devices that wait for something.
    pub waiting: Vec<TunnelWait>,
    /// Differences that somebody else made, repaired.
    pub repaired: usize,
    /// When something becomes due by time alone; now, if the work brought more work.
    pub due: Option<Instant>,
    /// Times for metrics.
    pub(crate) times: Times,
}

impl ApplyReport {
    /// True if all work was done and nothing failed.
    pub fn is_complete(&self) -> bool {
        self.ran && self.failures.is_empty()
    }

    pub(crate) fn nft_failures(&self) -> usize {
        self.failures.iter().filter(|f| matches!(f, Failure::Nft { .. })).count()
    }

    pub(crate) fn is_due(&mut self, at: Instant) {
        self.due = Some(self.due.map_or(at, |d| d.min(at)));
    }
}

/// How long parts took, where they took place.
#[derive(Debug, Clone, Default)]
pub(crate) struct Times {
    pub(crate) full_reads: Vec<Duration>,
    pub(crate) partial_reads: Vec<Duration>,
    pub(crate) conntrack: Vec<Duration>,
}
