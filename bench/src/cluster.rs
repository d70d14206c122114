//! Stores with what a cluster has in them before its first workload.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use calico_api::{IPPool, Node};
use calico_client::Client;
use calico_datastore::{Backend, EtcdRaw, EtcdStore, SqliteOptions, SqliteRaw, SqliteStore};
use calico_testkit::etcd::{Etcd, Settings};
use tempfile::TempDir;

/// A store on the disk; its files and its server end with the value.
pub enum Stand {
    /// A SQLite file.
    Sqlite(TempDir),
    /// A server of Debian's package, which waits for the disk with each write.
    Etcd(Box<Etcd>),
}

impl Stand {
    /// Names of the kinds, as the tables have them.
    pub const KINDS: [&'static str; 2] = ["sqlite", "etcd"];

    /// Starts a store of a kind.
    ///
    /// # Errors
    /// If there is no such kind or etcd is not installed.
    pub async fn start(kind: &str) -> anyhow::Result<Self> {
        match kind {
            "sqlite" => Ok(Self::Sqlite(tempfile::tempdir()?)),
            "etcd" => {
                let settings = Settings { durable: true, ..Settings::default() };
                Ok(Self::Etcd(Box::new(Etcd::start(settings).await.context("etcd is not installed")?)))
            }
            _ => anyhow::bail!("no store {kind}"),
        }
    }

    /// A connection of its own.
    ///
    /// # Errors
    /// If the settings are wrong.
    pub fn connect(&self) -> anyhow::Result<Arc<dyn Backend>> {
        Ok(match self {
            Self::Sqlite(directory) => {
                let file = directory.path().join("datastore.db");
                Arc::new(SqliteStore::new(SqliteRaw::new(&file, "of the bench", SqliteOptions::default())))
            }
            Self::Etcd(etcd) => Arc::new(EtcdStore::new(EtcdRaw::new(etcd.options(), "of the bench")?)),
        })
    }

    /// Variables that lead a program of the product to the store.
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        match self {
            Self::Sqlite(directory) => {
                vec![("DATASTORE_TYPE", "sqlite".into()), ("CALICO_SQLITE_PATH", file_of(directory.path()))]
            }
            Self::Etcd(etcd) => {
                vec![("DATASTORE_TYPE", "etcdv3".into()), ("ETCD_ENDPOINTS", etcd.endpoint())]
            }
        }
    }

    /// Keys of a CNI configuration that lead to the store.
    pub fn cni(&self) -> serde_json::Value {
        match self {
            Self::Sqlite(directory) => {
                serde_json::json!({"datastore_type": "sqlite", "sqlite_path": file_of(directory.path())})
            }
            Self::Etcd(etcd) => {
                serde_json::json!({"datastore_type": "etcdv3", "etcd_endpoints": etcd.endpoint()})
            }
        }
    }
}

fn file_of(directory: &Path) -> String {
    directory.join("datastore.db").to_string_lossy().into_owned()
}

/// Initialises a store and puts nodes and one IPv4 pool with blocks of 64 addresses into it.
///
/// # Errors
/// If the store refuses something.
pub async fn furnish(backend: &Arc<dyn Backend>, nodes: &[String], pool: &str) -> anyhow::Result<Client> {
    let client = Client::from_backend(backend.clone());
    client.ensure_initialized("", "").await?;
    for name in nodes {
        let mut node = Node::default();
        node.metadata.name = name.as_str().into();
        client.nodes().create(node).await?;
    }
    let mut object = IPPool::default();
    object.metadata.name = "pool".into();
    object.spec.cidr = pool.into();
    client.ip_pools().create(object).await?;
    Ok(client)
}
