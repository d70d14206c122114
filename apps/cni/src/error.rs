//! What goes wrong, and how a runtime is told: a code of the CNI specification, a sentence, perhaps details.

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;

use calico_client::ClientError;
use calico_datastore::StoreError;
use calico_host::{InterfaceNameError, NetNsError, SysctlError};
use calico_ipam::IpamError;
use calico_model::names::WorkloadNameError;
use calico_netlink::NetlinkError;
use serde::Serialize;

/// An error as the CNI specification prints it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CniError {
    /// Number; see the specification, and [`CniError::PLUGIN`].
    pub code: u32,
    /// One sentence.
    pub msg: String,
    /// More, if there is more to say.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub details: String,
}

// === impl CniError ===

impl CniError {
    /// The configuration's version is not served.
    pub const INCOMPATIBLE_VERSION: u32 = 1;
    /// An environment variable is missing or wrong.
    pub const INVALID_ENVIRONMENT: u32 = 4;
    /// Standard input cannot be read.
    pub const IO_FAILURE: u32 = 5;
    /// The configuration is not JSON.
    pub const DECODING_FAILURE: u32 = 6;
    /// The configuration has no usable name.
    pub const INVALID_CONFIG: u32 = 7;
    /// The network namespace is the plugin's own.
    pub const INVALID_NETNS: u32 = 8;
    /// The plugin cannot serve ADD now.
    pub const NOT_AVAILABLE: u32 = 50;
    /// Upstream's code for a failed test of the store's connection.
    pub const CONNECTION_TEST: u32 = 100;
    /// Everything that the plugin itself could not do.
    pub const PLUGIN: u32 = 999;

    /// An error without details.
    pub fn new(code: u32, msg: impl Into<String>) -> Self {
        Self { code, msg: msg.into(), details: String::new() }
    }

    /// The same with details.
    pub fn with_details(mut self, details: impl Into<String>) -> Self {
        self.details = details.into();
        self
    }
}

impl From<PluginError> for CniError {
    fn from(error: PluginError) -> Self {
        match error {
            PluginError::Cni(error) => *error,
            other => Self::new(Self::PLUGIN, other.to_string()),
        }
    }
}

/// Why the plugin did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum PluginError {
    /// Already in the specification's form; also errors of other plugins, passed on.
    #[error("{}", .0.msg)]
    Cni(Box<CniError>),
    /// A key of the network configuration has a value that cannot be used.
    #[error("network configuration: {key}: {reason}")]
    Config {
        /// Key, with dots for keys inside objects.
        key: String,
        /// What is wrong.
        reason: String,
    },
    /// `CNI_ARGS` cannot be used.
    #[error("ARGS: {0}")]
    Args(#[from] ArgsError),
    /// `device_type` is none of those known.
    #[error("unknown device_type \"{0}\" in CNI config (supported: \"veth\", \"netkit\")")]
    DeviceType(String),
    /// `dataplane_options.type` is none of those known.
    #[error("invalid dataplane type: {0}")]
    Dataplane(String),
    /// Something that this version does not do.
    #[error("{feature} is not supported by this version: {hint}")]
    Unsupported {
        /// What was asked for.
        feature: String,
        /// What to do instead.
        hint: &'static str,
    },
    /// The runtime asks for something that only Kubernetes has.
    #[error("requested feature is not supported for this runtime: {0}")]
    UnsupportedFeature(&'static str),
    /// The nodename file is not there.
    #[error(
        "node name file {path} cannot be read: {source}; check that Calico runs on this node and shares this directory, or set nodename_file_optional"
    )]
    NodenameFile {
        /// File.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// No name for this node.
    #[error("the name of this node is not known: {0}")]
    Nodename(io::Error),
    /// The MTU file cannot be used.
    #[error("MTU file {path}: {reason}")]
    MtuFile {
        /// File.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The store cannot be chosen or made.
    #[error("error creating calico client: {0}")]
    Client(#[source] StoreError),
    /// The cluster information cannot be read.
    #[error("error getting ClusterInformation: {0}")]
    ClusterInformation(#[source] ClientError),
    /// An upgrade or a migration holds the cluster.
    #[error("Calico is currently not ready to process requests")]
    NotReady,
    /// The store did not answer in time.
    #[error("the datastore ({store}) did not answer within {seconds} seconds: {action}")]
    Timeout {
        /// Store.
        store: String,
        /// Limit.
        seconds: u64,
        /// What was asked of it.
        action: &'static str,
    },
    /// The store's answer to something else.
    #[error("cannot {action} {object}: {source}")]
    Store {
        /// What was tried, a verb.
        action: &'static str,
        /// On what.
        object: String,
        /// Why.
        source: ClientError,
    },
    /// The endpoint has no sound name.
    #[error("cannot name the workload endpoint: {0}")]
    EndpointName(#[from] WorkloadNameError),
    /// Another program keeps changing the endpoint.
    #[error("workload endpoint {0} changes too often to be deleted")]
    EndpointContention(String),
    /// No address could be had.
    #[error(transparent)]
    Ipam(#[from] IpamError),
    /// Fewer addresses of a family than asked for.
    #[error("failed to request IPv{version} addresses: {reason}")]
    Shortage {
        /// 4 or 6.
        version: u8,
        /// Why, from address management.
        reason: String,
    },
    /// A pool of the configuration is neither a CIDR nor the name of a pool.
    #[error("error parsing pool \"{pool}\": invalid CIDR address: {pool}")]
    Pool {
        /// As written.
        pool: String,
    },
    /// A pool of the other family.
    #[error("\"{ip}\" isn't a IPv{version} address")]
    PoolFamily {
        /// The pool's address.
        ip: IpAddr,
        /// Family wanted: 4 or 6.
        version: u8,
    },
    /// The address manager gave nothing.
    #[error("IPAM plugin returned no IP addresses in result")]
    NoAddresses,
    /// No `ipam.type`.
    #[error("no plugin name provided")]
    NoIpamType,
    /// Another plugin is not in `CNI_PATH`.
    #[error("failed to find plugin \"{name}\" in path [{path}]")]
    DelegateMissing {
        /// Plugin.
        name: String,
        /// Directories.
        path: String,
    },
    /// Another plugin could not be run or its answer not be understood.
    #[error("plugin {name}: {reason}")]
    Delegate {
        /// Plugin.
        name: String,
        /// What happened.
        reason: String,
    },
    /// The namespace.
    #[error(transparent)]
    NetNs(#[from] NetNsError),
    /// The kernel, about links, addresses and routes.
    #[error("{context}: {source}")]
    Netlink {
        /// What the plugin was doing.
        context: &'static str,
        /// What the kernel said.
        source: NetlinkError,
    },
    /// The kernel, about its parameters.
    #[error(transparent)]
    Sysctl(#[from] SysctlError),
    /// A link of this name is in the container already.
    #[error("the container has an interface {0} already")]
    InterfaceExists(String),
    /// A link that was just made is gone again.
    #[error("interface {0} vanished while it was set up")]
    InterfaceVanished(String),
    /// The pod's route on the host clashes with another.
    #[error("route to {ip} is on interface {other} already, not on {ours}")]
    RouteConflict {
        /// Address.
        ip: IpAddr,
        /// Interface of the route that is there.
        other: String,
        /// The pod's interface.
        ours: String,
    },
    /// CHECK found something else than ADD made.
    #[error("check failed: {0}")]
    Check(String),
    /// Several steps of a clean-up failed.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Several(Vec<PluginError>),
    /// The async runtime could not be started.
    #[error("cannot start the runtime of the datastore client: {0}")]
    Runtime(io::Error),
}

// === impl PluginError ===

impl PluginError {
    /// A function that puts an error of the kernel into its context.
    pub fn netlink(context: &'static str) -> impl FnOnce(NetlinkError) -> Self {
        move |source| Self::Netlink { context, source }
    }

    /// An error about a key of the configuration.
    pub fn config(key: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Config { key: key.into(), reason: reason.into() }
    }
}

impl From<CniError> for PluginError {
    fn from(error: CniError) -> Self {
        Self::Cni(Box::new(error))
    }
}

/// What is wrong with `CNI_ARGS`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ArgsError {
    /// Not `key=value`.
    #[error("invalid pair \"{0}\"")]
    Pair(String),
    /// A key that is not known, and unknown ones were not allowed.
    #[error("unknown args {0:?}")]
    Unknown(Vec<String>),
    /// A value that cannot be read.
    #[error("error parsing value of pair \"{pair}\": {reason}")]
    Value {
        /// Key and value.
        pair: String,
        /// What is wrong.
        reason: String,
    },
}

/// An interface name of the runtime that the kernel would not take.
pub(crate) fn interface_name(error: InterfaceNameError) -> CniError {
    let text = error.to_string();
    let (msg, details) = text.split_once("; ").unwrap_or((&text, ""));
    CniError::new(CniError::INVALID_ENVIRONMENT, msg).with_details(details)
}
