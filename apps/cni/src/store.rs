//! The datastore, for code that is not async.
//!
//! The runtime is made with the store, not before: calls that fail early never pay for it.

use std::future::Future;
use std::time::Duration;

use calico_client::ipam::IpamClient;
use calico_client::{Client, ClientError};
use calico_datastore::{CalicoApiConfig, Fallback, StoreError, Surroundings, connect};
use tokio::runtime::{Builder, Runtime};

use crate::config::NetConf;
use crate::error::PluginError;

/// Limit for single reads and writes.
const OPERATION: Duration = Duration::from_secs(20);

/// A client and the runtime it runs on.
#[derive(Debug)]
pub struct Store {
    runtime: Runtime,
    client: Client,
    description: String,
}

// === impl Store ===

impl Store {
    /// Makes a client from the environment, over which the configuration wins. Nothing is connected yet.
    ///
    /// Never falls to the embedded database by itself: whoever wants it says `datastore_type: sqlite`.
    pub fn open(conf: &NetConf, env: &dyn Fn(&str) -> Option<String>) -> Result<Self, PluginError> {
        let overlay = |name: &str| match conf.store.get(name).filter(|value| !value.is_empty()) {
            Some(value) => Some(value.clone()),
            None => env(name),
        };
        let surroundings = Surroundings { env: &overlay, ..Surroundings::of_process() };
        let failed = PluginError::Client;
        let mut config =
            CalicoApiConfig::load(None, &surroundings).map_err(|e| failed(StoreError::from(e)))?;
        if !conf.sqlite_path.is_empty() {
            config.sqlite_path = conf.sqlite_path.clone();
        }
        let choice = config.choose(Fallback::Never, &surroundings).map_err(failed)?;
        let runtime = Builder::new_current_thread().enable_all().build().map_err(PluginError::Runtime)?;
        // Some backends start tasks when they are made.
        let backend = runtime.block_on(async { connect(&config, &choice) }).map_err(failed)?;
        let description = backend.description();
        Ok(Self { runtime, client: Client::from_backend(backend), description })
    }

    /// The client.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The manager of addresses.
    pub fn ipam(&self) -> IpamClient {
        IpamClient::new(self.client.backend().clone())
    }

    /// Waits for `work` at most `limit`.
    pub fn run_for<T>(
        &self,
        limit: Duration,
        action: &'static str,
        work: impl Future<Output = T>,
    ) -> Result<T, PluginError> {
        self.runtime.block_on(async { tokio::time::timeout(limit, work).await }).map_err(|_| {
            PluginError::Timeout { store: self.description.clone(), seconds: limit.as_secs(), action }
        })
    }

    /// Waits for a read or write of `object`.
    pub fn run<T>(
        &self,
        action: &'static str,
        object: impl Into<String>,
        work: impl Future<Output = Result<T, ClientError>>,
    ) -> Result<T, PluginError> {
        self.run_for(OPERATION, action, work)?.map_err(|source| PluginError::Store {
            action,
            object: object.into(),
            source,
        })
    }

    /// Fails unless the cluster is ready for use.
    pub fn require_ready(&self) -> Result<(), PluginError> {
        self.require_ready_within(OPERATION)
    }

    /// The same with a limit.
    pub fn require_ready_within(&self, limit: Duration) -> Result<(), PluginError> {
        let client = self.client.cluster_information();
        let info = self
            .run_for(limit, "read ClusterInformation", client.get("", "default"))?
            .map_err(PluginError::ClusterInformation)?;
        if info.spec.datastore_ready == Some(true) { Ok(()) } else { Err(PluginError::NotReady) }
    }
}
