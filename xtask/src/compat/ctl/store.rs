//! Stores that a tool is run on: a SQLite file, or an etcd server.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use calico_api::{AnyResource, decode};
use calico_client::Client;
use calico_datastore::{Backend, EtcdRaw, RawStore, RawTxn, RawWrite, SqliteOptions, SqliteRaw};
use calico_model::path::KeyRange;
use calico_testkit::etcd::{Etcd, Settings};
use tokio::runtime::Runtime;

use super::super::text::yaml;

/// Everything that is stored: text by path.
pub(crate) type State = BTreeMap<String, String>;

/// Writes of one transaction.
const BATCH: usize = 32;

/// An etcd server, started when it is first needed.
pub(crate) struct Server {
    runtime: Runtime,
    etcd: Option<Etcd>,
}

/// A store with a start state.
pub(crate) struct Store {
    raw: Arc<dyn RawStore>,
    backend: Arc<dyn Backend>,
    /// The SQLite file, if it is one.
    file: Option<PathBuf>,
    /// URL of the etcd server, if it is one.
    endpoint: Option<String>,
}

// === impl Server ===

impl Server {
    /// Nothing is started yet.
    pub(crate) fn new() -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        Ok(Self { runtime, etcd: None })
    }

    /// A SQLite file in `folder` that holds `state`.
    pub(crate) fn sqlite(&self, folder: &Path, state: &State) -> anyhow::Result<Store> {
        let file = folder.join("datastore.db");
        let raw = SqliteRaw::new(&file, "the start state", SqliteOptions::default());
        let backend = Arc::new(calico_datastore::Store::new(raw.clone()));
        let store = Store { raw: Arc::new(raw), backend, file: Some(file), endpoint: None };
        self.runtime.block_on(store.fill(state))?;
        Ok(store)
    }

    /// The etcd server with nothing but `state` below `/calico`.
    pub(crate) fn etcd(&mut self, state: &State) -> anyhow::Result<Store> {
        if self.etcd.is_none() {
            self.etcd = self.runtime.block_on(Etcd::start(Settings::default()));
        }
        let etcd = self.etcd.as_ref().context("etcd is not installed (Debian's etcd-server)")?;
        let endpoint = etcd.endpoint();
        let options = etcd.options();
        let _context = self.runtime.enter();
        let raw = EtcdRaw::new(options, "the start state")?;
        let backend = Arc::new(calico_datastore::Store::new(raw.clone()));
        let store = Store { raw: Arc::new(raw), backend, file: None, endpoint: Some(endpoint) };
        self.runtime.block_on(store.fill(state))?;
        Ok(store)
    }

    /// Everything that the store holds.
    pub(crate) fn dump(&self, store: &Store) -> anyhow::Result<State> {
        let (entries, _) =
            self.runtime.block_on(store.raw.range(&KeyRange::Prefix("/calico/".into()), None))?;
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ok(entries.into_iter().map(|entry| (entry.path, text(entry.value))).collect())
    }

    /// Creates the objects of YAML documents through the client, after making the store ready if `ready` is set.
    pub(crate) fn objects(&self, store: &Store, documents: &str, ready: bool) -> anyhow::Result<()> {
        let client = Client::from_backend(store.backend.clone());
        self.runtime.block_on(async {
            if ready {
                client.ensure_initialized("", "").await?;
            }
            for document in yaml(documents)? {
                let kind = decode::kind_of(&document)?;
                let object = AnyResource::from_value_strict(kind, &document)?;
                client.objects(kind).create(object).await?;
            }
            anyhow::Ok(())
        })
    }

    /// Writes or removes the text under a path, past every rule.
    pub(crate) fn put(&self, store: &Store, path: &str, value: Option<&str>) -> anyhow::Result<()> {
        let write = match value {
            Some(value) => RawWrite::Put { path: path.into(), value: value.as_bytes().to_vec(), ttl: None },
            None => RawWrite::Delete(path.into()),
        };
        let txn = RawTxn { writes: vec![write], ..RawTxn::default() };
        self.runtime.block_on(store.raw.commit(txn))?;
        Ok(())
    }

    /// Ends the store.
    pub(crate) fn close(&self, store: &Store) {
        self.runtime.block_on(store.raw.close());
    }
}

// === impl Store ===

impl Store {
    async fn fill(&self, state: &State) -> anyhow::Result<()> {
        self.raw.initialize().await?;
        self.raw.delete_range(&KeyRange::Prefix("/calico/".into())).await?;
        let puts: Vec<RawWrite> = state
            .iter()
            .map(|(path, value)| RawWrite::Put {
                path: path.clone(),
                value: value.clone().into_bytes(),
                ttl: None,
            })
            .collect();
        for writes in puts.chunks(BATCH) {
            self.raw.commit(RawTxn { writes: writes.to_vec(), ..RawTxn::default() }).await?;
        }
        Ok(())
    }

    /// The SQLite file; empty for etcd.
    pub(crate) fn path(&self) -> String {
        self.file.as_deref().map(|file| file.to_string_lossy().into_owned()).unwrap_or_default()
    }

    /// URL of the etcd server; empty for SQLite.
    pub(crate) fn endpoint(&self) -> &str {
        self.endpoint.as_deref().unwrap_or_default()
    }

    /// Variables that lead a tool here.
    pub(crate) fn variables(&self) -> Vec<(String, String)> {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        match (&self.file, &self.endpoint) {
            (Some(file), _) => {
                vec![pair("DATASTORE_TYPE", "sqlite"), pair("CALICO_SQLITE_PATH", &file.to_string_lossy())]
            }
            (_, Some(endpoint)) => vec![pair("DATASTORE_TYPE", "etcdv3"), pair("ETCD_ENDPOINTS", endpoint)],
            _ => Vec::new(),
        }
    }
}
