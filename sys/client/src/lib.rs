//! The typed client: every kind with upstream's rules, over any store.
//!
//! Owns: [`Client`] with [`Resources`] for each type and [`Objects`] for kinds known at run time, the rules that
//! need the store ([`rules`]: a policy's tier must exist, pools must not overlap), making a store ready
//! ([`Client::ensure_initialized`]) and IPAM ([`ipam`]).
//! In: objects as users write them. Out: stored objects, with defaults, UID, creation time and resource version.
//! Always holds: nothing is stored that its kind's rules refuse.

mod error;
mod init;
pub mod ipam;
mod objects;
mod rules;
mod typed;

use std::fmt;
use std::sync::Arc;

use calico_api as api;
use calico_api::{Kind, Resource, Timestamp};
use calico_datastore::config::{CalicoApiConfig, Fallback, Surroundings};
use calico_datastore::{Backend, StoreError, connect};

pub use error::ClientError;
pub use objects::{DeleteOptions, ObjectEvent, ObjectList, ObjectWatch, Objects, Select};
pub use typed::{Event, List, Resources, TypedWatch};

/// Access to a cluster's objects. Cheap to clone.
#[derive(Clone)]
pub struct Client {
    backend: Arc<dyn Backend>,
    clock: fn() -> Timestamp,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("backend", &self.backend.description()).finish()
    }
}

macro_rules! accessors {
    ($($(#[$doc:meta])* $name:ident: $type:ident;)*) => {
        impl Client {
            $($(#[$doc])* pub fn $name(&self) -> Resources<'_, api::$type> { self.resources() })*
        }
    };
}

accessors! {
    /// Nodes.
    nodes: Node;
    /// Network policies.
    network_policies: NetworkPolicy;
    /// Global network policies.
    global_network_policies: GlobalNetworkPolicy;
    /// Tiers.
    tiers: Tier;
    /// Network sets.
    network_sets: NetworkSet;
    /// Global network sets.
    global_network_sets: GlobalNetworkSet;
    /// Host endpoints.
    host_endpoints: HostEndpoint;
    /// Workload endpoints.
    workload_endpoints: WorkloadEndpoint;
    /// Profiles.
    profiles: Profile;
    /// IP pools.
    ip_pools: IPPool;
    /// IP reservations.
    ip_reservations: IPReservation;
    /// Felix configurations.
    felix_configurations: FelixConfiguration;
    /// Cluster information.
    cluster_information: ClusterInformation;
    /// IPAM configuration.
    ipam_configurations: IPAMConfiguration;
    /// Block affinities as v3 objects.
    block_affinities: BlockAffinity;
}

impl Client {
    /// A client over an existing store; tests pass an in-memory one.
    pub fn from_backend(backend: Arc<dyn Backend>) -> Self {
        Self { backend, clock: system_clock }
    }

    /// A client to the store that a configuration file names, or without a file the environment.
    pub fn load(
        file: Option<&std::path::Path>,
        fallback: Fallback,
        surroundings: &Surroundings<'_>,
    ) -> Result<Self, ClientError> {
        let config = CalicoApiConfig::load(file, surroundings).map_err(StoreError::from)?;
        Self::from_config(&config, fallback, surroundings)
    }

    /// A client to the store that `config` names.
    pub fn from_config(
        config: &CalicoApiConfig,
        fallback: Fallback,
        surroundings: &Surroundings<'_>,
    ) -> Result<Self, ClientError> {
        let mut config = config.clone();
        let choice = config.choose(fallback, surroundings)?;
        Ok(Self::from_backend(connect(&config, &choice)?))
    }

    /// The same client with another clock for creation times.
    pub fn with_clock(mut self, clock: fn() -> Timestamp) -> Self {
        self.clock = clock;
        self
    }

    /// The store below.
    pub fn backend(&self) -> &Arc<dyn Backend> {
        &self.backend
    }

    /// Objects of a Rust type.
    pub fn resources<R: Resource>(&self) -> Resources<'_, R> {
        Resources::new(self)
    }

    /// Objects of a kind known only at run time.
    pub fn objects(&self, kind: Kind) -> Objects<'_> {
        Objects::new(self, kind)
    }

    /// IP pools beyond the ordinary rules: creation without checks against other pools and stored blocks.
    pub async fn unsafe_create_pool(&self, pool: api::IPPool) -> Result<api::IPPool, ClientError> {
        rules::pool::unsafe_create(self, pool).await
    }

    /// Disables and deletes a pool without releasing the blocks that nodes hold of it.
    pub async fn unsafe_delete_pool(&self, name: &str) -> Result<api::IPPool, ClientError> {
        rules::pool::unsafe_delete(self, name).await
    }

    fn now(&self) -> Timestamp {
        (self.clock)()
    }
}

fn system_clock() -> Timestamp {
    let seconds = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |d| i64::try_from(d.as_secs()).unwrap_or(i64::MAX));
    Timestamp::from_second(seconds).unwrap_or(Timestamp(jiff::Timestamp::UNIX_EPOCH))
}
