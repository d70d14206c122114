//! The contract of a store: what every backend does in the same way.
//!
//! One suite of tests runs over every implementation (`calico-testkit`), so that behaviour never depends on
//! which store a cluster uses.

use async_trait::async_trait;
use calico_model::{Key, KvPair, ListOptions, Revision};
use tokio::sync::mpsc;

use crate::StoreError;

/// Result of a list: the entries, sorted by path, and the version of the whole store they were read at.
#[derive(Debug, Clone, PartialEq)]
pub struct KvList {
    /// Entries.
    pub items: Vec<KvPair>,
    /// Where a watch goes on from.
    pub revision: Revision,
}

/// One event of a watch.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "events live for a moment; a box per event costs more")]
pub enum WatchEvent {
    /// The key was not there before.
    Added(KvPair),
    /// The key has a new value; the old one, where the store knows it.
    Modified {
        /// The entry now.
        new: KvPair,
        /// The entry before.
        old: Option<KvPair>,
    },
    /// The key is gone; the entry before, as far as the store knows it. Its revision is that of the last
    /// value, as upstream's etcd driver reports it.
    Deleted(KvPair),
    /// Nothing changed up to this revision.
    Bookmark(Revision),
    /// One entry could not be read ([`StoreError::Parse`]; the watch goes on) or the watch broke (any other
    /// error; it is the last event).
    Error(StoreError),
}

/// A running watch. Dropping it ends the watch.
#[derive(Debug)]
pub struct Watch {
    events: mpsc::Receiver<WatchEvent>,
    _stop: Option<tokio::sync::oneshot::Sender<()>>,
}

impl Watch {
    /// Most events that wait for a slow receiver before the store's reader waits too.
    pub const BUFFER: usize = 100;

    /// Makes a watch from its event channel; `stop` is dropped, and so signals, when the watch is.
    pub fn new(events: mpsc::Receiver<WatchEvent>, stop: Option<tokio::sync::oneshot::Sender<()>>) -> Self {
        Self { events, _stop: stop }
    }

    /// The next event; `None` once the watch has ended.
    pub async fn next(&mut self) -> Option<WatchEvent> {
        self.events.recv().await
    }
}

/// What must hold for one key when a transaction commits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Condition {
    /// The key is not there.
    Absent(Key),
    /// The key is there at just this revision.
    Revision(Key, Revision),
}

/// One write of a transaction.
#[derive(Debug, Clone, PartialEq)]
pub enum Write {
    /// Create or replace.
    Put(KvPair),
    /// Remove; nothing happens if the key is not there.
    Delete(Key),
}

/// Several writes that happen all or not at all.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Txn {
    /// All must hold.
    pub conditions: Vec<Condition>,
    /// Happen in one new revision if they do. No key stands twice.
    pub writes: Vec<Write>,
}

/// What became of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TxnOutcome {
    /// Committed at this revision, which every written key now has.
    Committed(Revision),
    /// A condition did not hold; nothing was written.
    Conflict,
}

/// A store that can read and write many keys at one revision.
#[async_trait]
pub trait Transactions: Send + Sync {
    /// Most conditions plus writes in one transaction.
    fn max_operations(&self) -> usize;

    /// Reads `keys` at one revision; absent or unreadable keys give `None` and an error respectively.
    async fn get_many(&self, keys: &[Key]) -> Result<(Vec<Option<KvPair>>, Revision), StoreError>;

    /// Commits `txn`.
    async fn commit(&self, txn: Txn) -> Result<TxnOutcome, StoreError>;
}

/// A store of key-value pairs with revisions.
///
/// Values returned from writes are what a later read would return. All methods may be called concurrently.
#[async_trait]
pub trait Backend: Send + Sync + 'static {
    /// How messages name this store, for example `etcd (https://10.0.0.1:2379)`.
    fn description(&self) -> String;

    /// Stores a new entry. [`StoreError::AlreadyExists`] (with the stored entry) if the key is there.
    async fn create(&self, kv: KvPair) -> Result<KvPair, StoreError>;

    /// Replaces an entry whose revision is `kv.revision` (which is mandatory).
    /// [`StoreError::DoesNotExist`] if it is gone, [`StoreError::UpdateConflict`] (with the stored entry) if
    /// its revision is another.
    async fn update(&self, kv: KvPair) -> Result<KvPair, StoreError>;

    /// Creates or replaces; the revision is ignored.
    async fn apply(&self, kv: KvPair) -> Result<KvPair, StoreError>;

    /// Removes an entry and returns what it was. With a revision only if it still has that revision.
    async fn delete(&self, key: &Key, revision: Option<&Revision>) -> Result<KvPair, StoreError>;

    /// Removes an entry and everything below it: a tier takes the policies along that name it (staged ones
    /// included). Returns what was removed, children first. For kinds without children the same as `delete`.
    async fn delete_recursive(&self, key: &Key) -> Result<Vec<KvPair>, StoreError>;

    /// Reads one entry; with a revision as it was then ([`StoreError::Compacted`] if that is too long ago).
    async fn get(&self, key: &Key, revision: Option<&Revision>) -> Result<KvPair, StoreError>;

    /// Reads entries. Those whose stored text cannot be read are left out and logged.
    async fn list(&self, options: &ListOptions, revision: Option<&Revision>) -> Result<KvList, StoreError>;

    /// Watches entries: events after `revision`, or with `None` an [`WatchEvent::Added`] for everything there
    /// is and then events.
    async fn watch(&self, options: &ListOptions, revision: Option<&Revision>) -> Result<Watch, StoreError>;

    /// Prepares the store itself (files, tables); safe to call again.
    async fn ensure_initialized(&self) -> Result<(), StoreError>;

    /// Removes everything under `/calico`. For tests.
    async fn clean(&self) -> Result<(), StoreError>;

    /// Ends connections; later calls fail.
    async fn close(&self);

    /// Writes of many keys at once, where the store has them.
    fn transactions(&self) -> Option<&dyn Transactions> {
        None
    }
}
