//! The operations of address management, each as an [`Operation`].
//!
//! Owns: the protocol by which many clients share pools through a store that knows nothing of addresses, and no
//! locks. Its rules:
//! - A block says who owns it; storing it (by revision) decides every race. An affinity is an index by owner and
//!   a note of intent: it is written as pending before a block is made and as pending deletion before a block is
//!   given up, so that whoever finds it can finish the work.
//! - A handle counts addresses per block. It is counted up before the block is stored and down after, so it may
//!   say too much after a crash, and never too little: a release by handle finds every address.
//! - Every write names the revision it was computed from. A lost race means reading again, at most
//!   [`RETRIES`] times in a row.

mod affinities;
mod affinity;
mod assign;
mod auto;
mod config;
mod handle;
mod query;
mod release;
mod utilization;

use std::sync::Arc;

use calico_model::ipam::{AllocationBlock, BlockAffinity, IpamConfig, IpamHandle};
use calico_model::{Key, KvPair, ListOptions, Value};
use calico_net::Cidr;
use smol_str::SmolStr;

use crate::block::Block;
use crate::error::{Failure, IpamError};
use crate::machine::{Cx, Fault, Operation, ReadSet};
use crate::pools::Pool;

pub use affinities::{
    AffinityOutcome, claim_affinity, collect_cold, release_affinity, release_block_affinity,
    release_host_affinities, release_pool_affinities, remove_host,
};
pub use assign::{AssignArgs, assign};
pub use auto::{
    Assignments, AutoAssignArgs, AutoAssigned, EnsuredBlocks, auto_assign, auto_assign_reads, ensure_blocks,
};
pub use config::{get_config, set_config};
pub use query::{Assignment, assignment, ips_by_handle};
pub use release::{ReleaseOptions, ReleaseOutcome, release_by_handle, release_by_handle_reads, release_ips};
pub use utilization::{BlockUtilization, ORPHANS, PoolUtilization, utilization};

/// Most attempts in a row that may be lost to others.
pub const RETRIES: u32 = 100;

/// Most blocks of one owner and family, unless configured.
pub const DEFAULT_MAX_BLOCKS: u32 = 20;

/// Seconds after its claim before an empty block may be taken from its owner.
pub const RECLAIM_AGE_SECONDS: i64 = 60;

/// Most blocks of one claim.
pub const MAX_CLAIM_BLOCKS: u32 = 1 << 16;

/// Most handles that one group of writes counts down, so that it fits a transaction of 128 operations.
const HANDLES_PER_COMMIT: usize = 24;

/// Entries that are read side by side.
const READ_BATCH: usize = 16;

/// Why an attempt did not succeed.
#[derive(Debug)]
enum Trouble {
    /// Somebody else was faster; the same may work now.
    Retry,
    /// Another owner holds the block.
    Claimed,
    /// The affinity was left over from a block that is not ours any more.
    Stale,
    /// No use in trying again.
    Fatal(IpamError),
}

type Attempt<T> = Result<T, Trouble>;

/// A stored block, in use, with the entry it came from.
#[derive(Debug, Clone)]
struct Held {
    block: Block,
    kv: KvPair,
}

impl From<Fault> for Trouble {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Exists | Fault::Missing | Fault::Conflict => Self::Retry,
            Fault::Failed(failure) => Self::Fatal(IpamError::Store(failure)),
        }
    }
}

impl From<IpamError> for Trouble {
    fn from(error: IpamError) -> Self {
        Self::Fatal(error)
    }
}

impl Held {
    fn new(kv: KvPair, cooldown: u32, now: jiff::Timestamp) -> Result<Self, IpamError> {
        let raw = block_value(&kv)?;
        let block = Block::load(AllocationBlock::clone(raw), cooldown, now)
            .map_err(|defect| IpamError::CorruptBlock { block: raw.cidr, defect })?;
        Ok(Self { block, kv })
    }

    fn cidr(&self) -> Cidr {
        self.block.cidr()
    }

    /// Stores the block as it is now, as its next version.
    async fn store(&mut self, cx: &Cx) -> Result<(), Fault> {
        self.block.bump();
        let kv = KvPair { value: Some(Value::Block(Arc::new(self.block.raw().clone()))), ..self.kv.clone() };
        self.kv = cx.update(kv).await?;
        Ok(())
    }

    /// Removes the block, or stores it if it has an owner or is in use.
    async fn store_or_remove(&mut self, cx: &Cx) -> Result<(), Fault> {
        if self.block.is_empty() && self.block.raw().affinity.is_none() {
            cx.delete(self.kv.clone()).await.map(drop)
        } else {
            self.store(cx).await
        }
    }
}

/// How messages name an entry that is no object.
fn entry_name(key: &Key) -> String {
    match key {
        Key::Block(cidr) => format!("BlockKey(cidr={cidr})"),
        Key::BlockAffinity { affinity, owner, cidr } => {
            format!("BlockAffinityKey(cidr={cidr}, host={owner}, affinityType={})", affinity.as_str())
        }
        Key::IpamHandle(handle) => format!("IPAMHandleKey(id={handle})"),
        Key::IpamConfig => "IPAMConfigKey()".to_owned(),
        Key::IpamHost(host) => format!("IPAMHostKey(host={host})"),
        Key::Resource(resource) => resource.to_string(),
        other => format!("{other:?}"),
    }
}

fn wrong_value(key: &Key) -> IpamError {
    IpamError::WrongValue { id: entry_name(key) }
}

fn block_value(kv: &KvPair) -> Result<&AllocationBlock, IpamError> {
    match &kv.value {
        Some(Value::Block(block)) => Ok(block),
        _ => Err(wrong_value(&kv.key)),
    }
}

fn affinity_value(kv: &KvPair) -> Result<&BlockAffinity, IpamError> {
    match &kv.value {
        Some(Value::BlockAffinity(affinity)) => Ok(affinity),
        _ => Err(wrong_value(&kv.key)),
    }
}

fn handle_value(kv: &KvPair) -> Result<&IpamHandle, IpamError> {
    match &kv.value {
        Some(Value::IpamHandle(handle)) => Ok(handle),
        _ => Err(wrong_value(&kv.key)),
    }
}

fn config_value(kv: Option<&KvPair>) -> Result<IpamConfig, IpamError> {
    match kv.map(|kv| (&kv.value, &kv.key)) {
        None => Ok(IpamConfig::default()),
        Some((Some(Value::IpamConfig(config)), _)) => Ok(config.clone()),
        Some((_, key)) => Err(wrong_value(key)),
    }
}

fn pools_of(items: &[KvPair]) -> Vec<Pool> {
    Pool::from_resources(objects(items))
}

fn objects(items: &[KvPair]) -> impl Iterator<Item = &calico_api::AnyResource> {
    items.iter().filter_map(|kv| match &kv.value {
        Some(Value::Resource(object)) => Some(&**object),
        _ => None,
    })
}

fn pool_list() -> ListOptions {
    ListOptions::kind(calico_api::Kind::IPPool)
}

fn reservation_list() -> ListOptions {
    ListOptions::kind(calico_api::Kind::IPReservation)
}

fn node_key(name: &SmolStr) -> Key {
    Key::resource(calico_api::Kind::Node, "", name.clone())
}

/// Reads the configuration and the pools.
async fn config_and_pools(cx: &Cx) -> Result<(IpamConfig, Vec<Pool>), IpamError> {
    let set = ReadSet { keys: vec![Key::IpamConfig], lists: vec![pool_list()], ordered: false };
    let answers = cx.read(set).await;
    let config = config_value(one(answers.keys)?.as_ref())?;
    Ok((config, pools_of(&one(answers.lists)?)))
}

/// The only answer.
fn one<A>(answers: Vec<Result<A, Failure>>) -> Result<A, IpamError> {
    match answers.into_iter().next() {
        Some(answer) => answer.map_err(IpamError::Store),
        None => Err(IpamError::Store(Failure::new(crate::machine::WrongReply))),
    }
}

/// Counts lost attempts and waits between them.
struct Patience(u32);

impl Patience {
    /// Waits, or gives up after [`RETRIES`] attempts in a row.
    async fn lost(&mut self, cx: &Cx) -> Result<(), IpamError> {
        self.0 += 1;
        if self.0 >= RETRIES {
            return Err(IpamError::Contention);
        }
        cx.pause(self.0).await;
        Ok(())
    }

    fn won(&mut self) {
        self.0 = 0;
    }
}

fn operation<T, F>(body: impl FnOnce(Cx) -> F) -> Operation<T>
where
    F: Future<Output = T> + Send + 'static,
{
    Operation::new(body)
}
