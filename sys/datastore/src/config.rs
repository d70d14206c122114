//! Which store to use and how to reach it: `CalicoAPIConfig`.
//!
//! Owns: reading the settings from a file (`file`) or from environment variables (`env`), and the choice of a
//! store from them ([`CalicoApiConfig::choose`]). Files and variables are reached through [`Surroundings`], so that
//! tests bring their own.
//! Invariants: a file and the environment are never mixed; an error names the variable, or the file with line and
//! key; a [`StoreChoice`] says why it was made.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::StoreError;

mod env;
mod file;

#[cfg(test)]
mod tests;

pub use env::EnvError;
pub use file::FileError;

/// `apiVersion` of the document.
pub const API_VERSION: &str = "projectcalico.org/v3";

/// `kind` of the document.
pub const KIND: &str = "CalicoAPIConfig";

/// The embedded database, unless the settings name another file.
pub const DEFAULT_SQLITE_PATH: &str = "/var/lib/calico/datastore.db";

/// Settings for reaching a store. Field names follow the document's.
#[derive(Debug, Clone, PartialEq, Default)]
#[allow(missing_docs, reason = "the fields are the settings of the document, described in its reference")]
pub struct CalicoApiConfig {
    /// `etcdv3`, `kubernetes` or `sqlite`; empty if it is to be found out.
    pub datastore_type: String,
    /// Comma-separated URLs.
    pub etcd_endpoints: String,
    /// Domain whose SRV records name the servers.
    pub etcd_discovery_srv: String,
    pub etcd_username: String,
    pub etcd_password: String,
    pub etcd_key_file: String,
    pub etcd_cert_file: String,
    pub etcd_ca_cert_file: String,
    /// Inline PEM.
    pub etcd_key: String,
    /// Inline PEM.
    pub etcd_cert: String,
    /// Inline PEM.
    pub etcd_ca_cert: String,
    /// One path, or several separated by colons.
    pub kubeconfig: String,
    /// Text of a kubeconfig.
    pub kubeconfig_inline: String,
    pub k8s_api_endpoint: String,
    pub k8s_key_file: String,
    pub k8s_cert_file: String,
    pub k8s_ca_file: String,
    pub k8s_api_token: String,
    pub k8s_insecure_skip_tls_verify: bool,
    pub k8s_disable_node_poll: bool,
    pub use_pod_cidr: bool,
    /// 0 is the client's default.
    pub k8s_client_qps: f32,
    /// 0 is the client's default.
    pub k8s_client_burst: i64,
    pub k8s_current_context: String,
    pub calico_api_group: String,
    /// Our extension: the embedded database's file; empty is [`DEFAULT_SQLITE_PATH`].
    pub sqlite_path: String,
}

/// What the settings are read from, so that nothing here touches the process's own surroundings.
#[derive(Clone, Copy)]
pub struct Surroundings<'a> {
    /// Value of an environment variable, if it is set (perhaps to nothing).
    pub env: &'a dyn Fn(&str) -> Option<String>,
    /// Content of a file.
    pub read: &'a dyn Fn(&Path) -> io::Result<String>,
    /// Whether a file exists.
    pub exists: &'a dyn Fn(&Path) -> bool,
}

/// Whether the embedded database may be chosen without being asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fallback {
    /// Daemons and the CNI plugin: never.
    Never,
    /// calicoctl and the lab: if nothing else is configured and the database file exists.
    ExistingSqlite,
}

/// A kind of store with what tells it from others of its kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreKind {
    /// The embedded database in this file.
    Sqlite(PathBuf),
    /// etcd.
    Etcd,
    /// A Kubernetes API server.
    Kubernetes,
}

/// The store to use and the reason, which every message about a failed connection repeats.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreChoice {
    /// The store.
    pub kind: StoreKind,
    /// Why this one, as the end of a sentence: `datastoreType is set`.
    pub why: String,
}

/// Why settings could not be read.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ConfigError {
    /// From the environment.
    #[error("failed to load config from env vars: {0}")]
    Env(#[from] EnvError),
    /// The file cannot be read.
    #[error("{}: {reason}", .path.display())]
    Unreadable {
        /// File.
        path: PathBuf,
        /// The system's report.
        reason: String,
    },
    /// The file does not say what it should.
    #[error("syntax error in {}: {error}", .path.display())]
    File {
        /// File.
        path: PathBuf,
        /// What is wrong.
        error: FileError,
    },
}

impl From<ConfigError> for StoreError {
    fn from(error: ConfigError) -> Self {
        Self::Config(error.to_string())
    }
}

impl<'a> Surroundings<'a> {
    /// Those of this process.
    pub fn of_process() -> Surroundings<'static> {
        Surroundings {
            env: &|name| std::env::var(name).ok(),
            read: &|path| std::fs::read_to_string(path),
            exists: &|path| path.exists(),
        }
    }

    fn var(&self, name: &str) -> Option<String> {
        (self.env)(name)
    }

    /// True if the variable is set to something.
    fn has(&self, name: &str) -> bool {
        self.var(name).is_some_and(|value| !value.is_empty())
    }

    /// The kubeconfig that kubectl would use, if it is there.
    fn home_kubeconfig(&self) -> Option<PathBuf> {
        let home = self.var("HOME").filter(|home| !home.is_empty())?;
        let path = Path::new(&home).join(".kube/config");
        (self.exists)(&path).then_some(path)
    }
}

impl fmt::Debug for Surroundings<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Surroundings")
    }
}

// === impl CalicoApiConfig ===

impl CalicoApiConfig {
    /// Reads the settings from the file at `path`, or from the environment if there is no path. The two are never
    /// mixed.
    pub fn load(path: Option<&Path>, surroundings: &Surroundings<'_>) -> Result<Self, ConfigError> {
        match path {
            Some(path) => Self::load_file(path, surroundings),
            None => Ok(env::load(surroundings.env)?),
        }
    }

    fn load_file(path: &Path, surroundings: &Surroundings<'_>) -> Result<Self, ConfigError> {
        let text = (surroundings.read)(path)
            .map_err(|error| ConfigError::Unreadable { path: path.to_owned(), reason: error.to_string() })?;
        file::parse(&text).map_err(|error| ConfigError::File { path: path.to_owned(), error })
    }

    /// Reads the settings from the text of a document.
    pub fn parse(text: &str) -> Result<Self, FileError> {
        file::parse(text)
    }

    /// The store that these settings mean, and why. Fills in the kubeconfig of the user's home if Kubernetes is
    /// meant and nothing says how to reach it.
    pub fn choose(
        &mut self,
        fallback: Fallback,
        surroundings: &Surroundings<'_>,
    ) -> Result<StoreChoice, StoreError> {
        let sqlite = self.sqlite_file();
        let choice = |kind, why: &str| StoreChoice { kind, why: why.to_owned() };
        let choice = match self.datastore_type.as_str() {
            "etcdv3" => choice(StoreKind::Etcd, "because datastoreType is etcdv3"),
            "kubernetes" => choice(StoreKind::Kubernetes, "because datastoreType is kubernetes"),
            "sqlite" => choice(StoreKind::Sqlite(sqlite), "because datastoreType is sqlite"),
            "" if !self.etcd_endpoints.is_empty() => {
                choice(StoreKind::Etcd, "because etcdEndpoints are set and datastoreType is not")
            }
            "" if fallback == Fallback::ExistingSqlite
                && !self.points_to_kubernetes(surroundings)
                && (surroundings.exists)(&sqlite) =>
            {
                let why = "because its file exists and no datastoreType, etcdEndpoints, kubeconfig or cluster is set";
                choice(StoreKind::Sqlite(sqlite), why)
            }
            "" => choice(StoreKind::Kubernetes, "because neither datastoreType nor etcdEndpoints are set"),
            other => return Err(StoreError::Config(format!("unknown datastore type: {other}"))),
        };
        if choice.kind == StoreKind::Kubernetes
            && self.kubeconfig.is_empty()
            && self.k8s_api_endpoint.is_empty()
            && let Some(path) = surroundings.home_kubeconfig()
        {
            self.kubeconfig = path.to_string_lossy().into_owned();
        }
        Ok(choice)
    }

    /// The embedded database's file.
    pub fn sqlite_file(&self) -> PathBuf {
        PathBuf::from(if self.sqlite_path.is_empty() { DEFAULT_SQLITE_PATH } else { &self.sqlite_path })
    }

    fn points_to_kubernetes(&self, surroundings: &Surroundings<'_>) -> bool {
        !self.kubeconfig.is_empty()
            || !self.kubeconfig_inline.is_empty()
            || !self.k8s_api_endpoint.is_empty()
            || surroundings.home_kubeconfig().is_some()
            || surroundings.has("KUBERNETES_SERVICE_HOST")
            || surroundings.has("KUBERNETES_MASTER")
    }
}

// === impl StoreChoice ===

impl fmt::Display for StoreChoice {
    /// `etcd, because datastoreType is etcdv3`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            StoreKind::Sqlite(path) => write!(f, "sqlite ({})", path.display())?,
            StoreKind::Etcd => f.write_str("etcd")?,
            StoreKind::Kubernetes => f.write_str("kubernetes")?,
        }
        write!(f, ", {}", self.why)
    }
}

/// A setting that holds a text.
struct TextSetting {
    /// Key in the document.
    key: &'static str,
    /// Name of the variable without prefix; `None` if only a file can set it.
    env: Option<&'static str>,
    /// Whether the variable also counts without the prefix.
    bare: bool,
    field: fn(&mut CalicoApiConfig) -> &mut String,
}

/// A setting that is true or false.
struct FlagSetting {
    key: &'static str,
    env: &'static str,
    /// How upstream's messages name it.
    name: &'static str,
    field: fn(&mut CalicoApiConfig) -> &mut bool,
}

const fn text(
    key: &'static str,
    env: &'static str,
    field: fn(&mut CalicoApiConfig) -> &mut String,
) -> TextSetting {
    TextSetting { key, env: Some(env), bare: true, field }
}

const fn inline(key: &'static str, field: fn(&mut CalicoApiConfig) -> &mut String) -> TextSetting {
    TextSetting { key, env: None, bare: false, field }
}

const fn prefixed(
    key: &'static str,
    env: &'static str,
    field: fn(&mut CalicoApiConfig) -> &mut String,
) -> TextSetting {
    TextSetting { key, env: Some(env), bare: false, field }
}

/// All text settings.
const TEXTS: &[TextSetting] = &[
    text("datastoreType", "DATASTORE_TYPE", |c| &mut c.datastore_type),
    text("etcdEndpoints", "ETCD_ENDPOINTS", |c| &mut c.etcd_endpoints),
    text("etcdDiscoverySrv", "ETCD_DISCOVERY_SRV", |c| &mut c.etcd_discovery_srv),
    text("etcdUsername", "ETCD_USERNAME", |c| &mut c.etcd_username),
    text("etcdPassword", "ETCD_PASSWORD", |c| &mut c.etcd_password),
    text("etcdKeyFile", "ETCD_KEY_FILE", |c| &mut c.etcd_key_file),
    text("etcdCertFile", "ETCD_CERT_FILE", |c| &mut c.etcd_cert_file),
    text("etcdCACertFile", "ETCD_CA_CERT_FILE", |c| &mut c.etcd_ca_cert_file),
    inline("etcdKey", |c| &mut c.etcd_key),
    inline("etcdCert", |c| &mut c.etcd_cert),
    inline("etcdCACert", |c| &mut c.etcd_ca_cert),
    text("kubeconfig", "KUBECONFIG", |c| &mut c.kubeconfig),
    inline("kubeconfigInline", |c| &mut c.kubeconfig_inline),
    text("k8sAPIEndpoint", "K8S_API_ENDPOINT", |c| &mut c.k8s_api_endpoint),
    text("k8sKeyFile", "K8S_KEY_FILE", |c| &mut c.k8s_key_file),
    text("k8sCertFile", "K8S_CERT_FILE", |c| &mut c.k8s_cert_file),
    text("k8sCAFile", "K8S_CA_FILE", |c| &mut c.k8s_ca_file),
    // Upstream means it to have no variable; by a slip it has this one, and only with the prefix.
    prefixed("k8sAPIToken", "K8SAPITOKEN", |c| &mut c.k8s_api_token),
    text("k8sCurrentContext", "K8S_CURRENT_CONTEXT", |c| &mut c.k8s_current_context),
    text("calicoAPIGroup", "CALICO_API_GROUP", |c| &mut c.calico_api_group),
    prefixed("sqlitePath", "SQLITE_PATH", |c| &mut c.sqlite_path),
];

/// All settings that are true or false.
const FLAGS: &[FlagSetting] = &[
    FlagSetting {
        key: "k8sInsecureSkipTLSVerify",
        env: "K8S_INSECURE_SKIP_TLS_VERIFY",
        name: "K8sInsecureSkipTLSVerify",
        field: |c| &mut c.k8s_insecure_skip_tls_verify,
    },
    FlagSetting {
        key: "k8sDisableNodePoll",
        env: "K8S_DISABLE_NODE_POLL",
        name: "K8sDisableNodePoll",
        field: |c| &mut c.k8s_disable_node_poll,
    },
    FlagSetting {
        key: "usePodCIDR",
        env: "USE_POD_CIDR",
        name: "K8sUsePodCIDR",
        field: |c| &mut c.use_pod_cidr,
    },
];
