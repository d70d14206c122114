//! What can go wrong in a lab.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use calico_client::ClientError;
use calico_client::ipam::IpamError;
use calico_datastore::StoreError;
use calico_host::{NetNsError, SysctlError};
use calico_netlink::NetlinkError;

use crate::scenario::ScenarioError;

/// Why a lab did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The scenario is wrong.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// A namespace could not be made or entered.
    #[error(transparent)]
    NetNs(#[from] NetNsError),
    /// The kernel refused a link, address or route.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// The kernel refused a setting.
    #[error(transparent)]
    Sysctl(#[from] SysctlError),
    /// The store refused.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The client refused.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// No address could be assigned.
    #[error("IPAM: {0}")]
    Ipam(#[from] IpamError),
    /// A file could not be used.
    #[error("cannot {call} {path}: {reason}")]
    Io {
        /// What was tried, a verb.
        call: &'static str,
        /// File.
        path: PathBuf,
        /// What happened.
        reason: String,
    },
    /// The state on disk is unusable.
    #[error("state of the cluster, {path}: {reason}")]
    State {
        /// File.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A process did not come up.
    #[error("{what} did not start: {reason}")]
    Start {
        /// Process.
        what: String,
        /// What happened.
        reason: String,
    },
    /// The CNI plugin failed.
    #[error("CNI {call} of pod {pod}: {reason}")]
    Cni {
        /// Verb.
        call: &'static str,
        /// Pod.
        pod: String,
        /// The plugin's message.
        reason: String,
    },
    /// calicoctl failed.
    #[error("calicoctl {args}: exit code {code}: {text}")]
    Ctl {
        /// Arguments.
        args: String,
        /// Exit code.
        code: i32,
        /// What it said.
        text: String,
    },
    /// Something took too long.
    #[error("after {} s still waiting: {what}", after.as_secs())]
    Timeout {
        /// Condition.
        what: String,
        /// Limit.
        after: Duration,
    },
    /// The user interrupted.
    #[error("interrupted")]
    Interrupted,
    /// No cluster of that name runs.
    #[error("no cluster named {0:?} is up (see `calico lab list`)")]
    NoCluster(String),
    /// A cluster of that name runs already.
    #[error(
        "a cluster named {0:?} is up already; take it down with `calico lab down {0}` or choose another with --name"
    )]
    Exists(String),
    /// A name that nothing has.
    #[error("nothing here is named {0:?}")]
    NoSuch(String),
    /// The lab needs rights that the user has not.
    #[error("a lab makes network namespaces and needs root")]
    NotRoot,
    /// Something did not happen as the scenario says.
    #[error("{0}")]
    Unexpected(String),
}

impl LabError {
    /// A failed use of a file.
    pub fn io(call: &'static str, path: &Path, error: &io::Error) -> Self {
        Self::Io { call, path: path.to_owned(), reason: error.to_string() }
    }
}
