//! Addresses: assigning, releasing and asking about them, over any store.
//!
//! Owns: [`IpamClient`], which carries out the operations of `calico-ipam`: it makes their reads and conditional
//! writes on a backend, gives them the time, and waits by random times where clients get in each other's way. On a
//! store with transactions an operation is a read and one transaction, else upstream's protocol step by step.
//! In: requests. Out: addresses and answers.
//! Always holds: what `calico-ipam` promises, whichever form runs, and whatever other clients do.

mod run;

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use calico_datastore::{Backend, StoreError};
use calico_ipam::ops;
use calico_ipam::{Atomic, Operation, ReadSet};
use calico_model::ipam::IpamConfig;
use calico_net::{Cidr, IpVersion};
use smol_str::SmolStr;

use crate::ClientError;

pub use calico_ipam::ops::{
    AffinityOutcome, AssignArgs, Assignment, Assignments, AutoAssignArgs, AutoAssigned, BlockUtilization,
    EnsuredBlocks, PoolUtilization, ReleaseOptions, ReleaseOutcome,
};
pub use calico_ipam::{HostReserved, IpamError, Labels, Mismatch, Owner};

/// How operations are carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Form {
    /// In whole transactions where the store has them.
    #[default]
    Best,
    /// Step by step, even if the store has transactions.
    Steps,
}

/// Smallest transaction that an operation can be sure to fit in.
const SMALLEST_TRANSACTION: usize = 64;

/// Tells the time.
type Clock = dyn Fn() -> jiff::Timestamp + Send + Sync;

/// Address management on one store. Cheap to clone; clones share what they learn.
#[derive(Clone)]
pub struct IpamClient {
    backend: Arc<dyn Backend>,
    clock: Arc<Clock>,
    host: SmolStr,
    form: Form,
    hosts: Arc<Mutex<HashMap<SmolStr, Arc<HostState>>>>,
}

/// What is known of one host.
#[derive(Default)]
struct HostState {
    /// Held while addresses are assigned: two tasks of one process would only make each other try again.
    turn: tokio::sync::Mutex<()>,
    /// The blocks that served last, per family.
    served: Mutex<HashMap<IpVersion, Cidr>>,
}

impl fmt::Debug for IpamClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IpamClient")
            .field("backend", &self.backend.description())
            .field("host", &self.host)
            .field("form", &self.form)
            .finish_non_exhaustive()
    }
}

// === impl IpamClient ===

impl IpamClient {
    /// A client on `backend`. Requests that name no host are for this machine, by its name in lower case.
    pub fn new(backend: Arc<dyn Backend>) -> Self {
        Self {
            backend,
            clock: Arc::new(jiff::Timestamp::now),
            host: local_host_name(),
            form: Form::default(),
            hosts: Arc::default(),
        }
    }

    /// The same with another clock.
    pub fn with_clock(mut self, clock: impl Fn() -> jiff::Timestamp + Send + Sync + 'static) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// The same with another name for requests that name no host.
    pub fn with_host(mut self, host: impl Into<SmolStr>) -> Self {
        self.host = host.into();
        self
    }

    /// The same in another form.
    pub fn with_form(mut self, form: Form) -> Self {
        self.form = form;
        self
    }

    /// Assigns addresses that the client chooses; see [`ops::auto_assign`]. What was assigned counts also beside
    /// an error.
    pub async fn auto_assign(&self, mut args: AutoAssignArgs) -> AutoAssigned {
        args.host = self.host_or_local(args.host);
        let state = self.host_state(&args.host);
        let _turn = state.turn.lock().await;
        if args.hints.is_empty() {
            args.hints = lock(&state.served).values().copied().collect();
        }
        let reads = ops::auto_assign_reads(&args);
        let outcome = self.run(ops::auto_assign(args), reads).await;
        for version in IpVersion::BOTH {
            if let Some(ip) = outcome.family(version).and_then(|got| got.ips.last())
                && !ip.is_host()
            {
                lock(&state.served).insert(version, ip.masked());
            }
        }
        outcome
    }

    /// Assigns one given address; see [`ops::assign`].
    pub async fn assign_ip(&self, mut args: AssignArgs) -> Result<(), IpamError> {
        args.host = self.host_or_local(args.host);
        let state = self.host_state(&args.host);
        let _turn = state.turn.lock().await;
        self.run(ops::assign(args), ReadSet::default()).await
    }

    /// Releases addresses; see [`ops::release_ips`].
    pub async fn release_ips(&self, requests: Vec<ReleaseOptions>) -> ReleaseOutcome {
        self.run(ops::release_ips(requests), ReadSet::default()).await
    }

    /// Releases every address held under `handle`; [`IpamError::DoesNotExist`] if there is no such handle.
    pub async fn release_by_handle(&self, handle: &str) -> Result<(), IpamError> {
        let handle = SmolStr::new(handle);
        let reads = ops::release_by_handle_reads(&handle, &self.host);
        self.run(ops::release_by_handle(handle), reads).await
    }

    /// Every address held under `handle`; [`IpamError::DoesNotExist`] if there is no such handle.
    pub async fn ips_by_handle(&self, handle: &str) -> Result<Vec<IpAddr>, IpamError> {
        self.run(ops::ips_by_handle(handle.into()), ReadSet::default()).await
    }

    /// Who holds `ip`.
    pub async fn get_assignment(&self, ip: IpAddr) -> Result<Assignment, IpamError> {
        self.run(ops::assignment(ip), ReadSet::default()).await
    }

    /// Makes sure that a host has a block with a free address; see [`ops::ensure_blocks`].
    pub async fn ensure_blocks(&self, mut args: AutoAssignArgs) -> Result<EnsuredBlocks, IpamError> {
        args.host = self.host_or_local(args.host);
        let state = self.host_state(&args.host);
        let _turn = state.turn.lock().await;
        let reads = ops::auto_assign_reads(&args);
        self.run(ops::ensure_blocks(args), reads).await
    }

    /// Claims every block of `cidr` for `owner`.
    pub async fn claim_affinity(&self, cidr: Cidr, owner: Owner) -> Result<AffinityOutcome, IpamError> {
        self.run(ops::claim_affinity(cidr, owner), ReadSet::default()).await
    }

    /// Releases the blocks of `owner` in `cidr`.
    pub async fn release_affinity(
        &self,
        cidr: Cidr,
        owner: Owner,
        must_be_empty: bool,
    ) -> Result<(), IpamError> {
        self.run(ops::release_affinity(cidr, owner, must_be_empty), ReadSet::default()).await
    }

    /// Releases one block, whoever owns it.
    pub async fn release_block_affinity(&self, block: Cidr, must_be_empty: bool) -> Result<(), IpamError> {
        self.run(ops::release_block_affinity(block, must_be_empty), ReadSet::default()).await
    }

    /// Releases every block of `owner`.
    pub async fn release_host_affinities(&self, owner: Owner, must_be_empty: bool) -> Result<(), IpamError> {
        self.run(ops::release_host_affinities(owner, must_be_empty), ReadSet::default()).await
    }

    /// Releases every block of the pool `cidr`, whoever owns it.
    pub async fn release_pool_affinities(&self, cidr: Cidr) -> Result<(), IpamError> {
        self.run(ops::release_pool_affinities(cidr), ReadSet::default()).await
    }

    /// Forgets a host: releases all its blocks, in use or not, and what old releases noted about it.
    pub async fn remove_host(&self, owner: Owner) -> Result<(), IpamError> {
        self.run(ops::remove_host(owner), ReadSet::default()).await
    }

    /// Stores a block anew if addresses of it have cooled down; true if so.
    pub async fn collect_cold(&self, block: Cidr) -> Result<bool, IpamError> {
        self.run(ops::collect_cold(block), ReadSet::default()).await
    }

    /// The settings of address management.
    pub async fn get_config(&self) -> Result<IpamConfig, IpamError> {
        self.run(ops::get_config(), ReadSet::default()).await
    }

    /// Stores the settings of address management.
    pub async fn set_config(&self, config: IpamConfig) -> Result<(), IpamError> {
        self.run(ops::set_config(config), ReadSet::default()).await
    }

    /// How full pools are; see [`ops::utilization`].
    pub async fn utilization(&self, pools: Vec<String>) -> Result<Vec<PoolUtilization>, IpamError> {
        self.run(ops::utilization(pools), ReadSet::default()).await
    }

    /// Carries out an operation. `reads` is what it will most likely ask for first.
    pub async fn run<T>(&self, operation: Operation<T>, reads: ReadSet) -> T {
        let transactions = self
            .backend
            .transactions()
            .filter(|t| self.form == Form::Best && t.max_operations() >= SMALLEST_TRANSACTION);
        match transactions {
            Some(transactions) => {
                let atomic = Atomic::new(operation, reads);
                run::atomic(atomic, &*self.backend, transactions, &*self.clock).await
            }
            None => run::steps(operation, &*self.backend, &*self.clock).await,
        }
    }

    fn host_or_local(&self, host: SmolStr) -> SmolStr {
        if host.is_empty() { self.host.clone() } else { host }
    }

    fn host_state(&self, host: &SmolStr) -> Arc<HostState> {
        lock(&self.hosts).entry(host.clone()).or_default().clone()
    }
}

impl From<IpamError> for ClientError {
    /// Keeps an error of the store as it is and what it says about absence; the rest by its text.
    fn from(error: IpamError) -> Self {
        let reason = error.to_string();
        Self::Store(match error {
            IpamError::Store(failure) => match failure.downcast_ref::<StoreError>() {
                Some(error) => error.clone(),
                None => StoreError::Other { id: String::new(), reason },
            },
            IpamError::DoesNotExist { id } => StoreError::DoesNotExist { id },
            IpamError::Unassigned { ip } => StoreError::DoesNotExist { id: ip.to_string() },
            _ => StoreError::Other { id: String::new(), reason },
        })
    }
}

/// The machine's name, trimmed and in lower case; empty if it cannot be read.
fn local_host_name() -> SmolStr {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    SmolStr::new(name.trim().to_lowercase())
}

/// No code panics while it holds one of these locks, and hints may be anything.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
