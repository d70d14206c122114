//! Stores of bytes: what a concrete database has to do so that [`crate::Store`] can make a backend of it.
//!
//! Owns: the small contract below the typed one. Paths and bytes go in and out; everything that depends on
//! what the bytes mean is done once, in [`crate::Store`].
//! Invariants every implementation keeps: revisions grow by one with each change; all writes of one
//! transaction share one revision; reads of several entries see one revision; a stream of changes holds each
//! change after its start once, in order.

use async_trait::async_trait;
use calico_model::path::KeyRange;

use crate::StoreError;

/// One stored entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawEntry {
    /// Path.
    pub path: String,
    /// Content.
    pub value: Vec<u8>,
    /// Revision that made the entry.
    pub created: u64,
    /// Revision that last wrote it.
    pub modified: u64,
}

/// One change of one path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawEvent {
    /// Path.
    pub path: String,
    /// Revision of the change.
    pub revision: u64,
    /// The entry now; `None` if it was removed.
    pub new: Option<RawEntry>,
    /// The entry before, where there was one and the store still has it.
    pub old: Option<RawEntry>,
}

/// What must hold for a transaction to commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RawCondition {
    /// The path is not there.
    Absent(String),
    /// The path is there and was last written at this revision.
    Revision(String, u64),
}

impl RawCondition {
    /// The path that the condition is about.
    pub fn path(&self) -> &str {
        match self {
            Self::Absent(path) | Self::Revision(path, _) => path,
        }
    }
}

/// One write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RawWrite {
    /// Create or replace.
    Put {
        /// Path.
        path: String,
        /// Content.
        value: Vec<u8>,
        /// Life time in seconds, at least 1; `None` lives until deleted.
        ttl: Option<u64>,
    },
    /// Remove, if it is there.
    Delete(String),
}

impl RawWrite {
    /// The path that is written.
    pub fn path(&self) -> &str {
        match self {
            Self::Put { path, .. } | Self::Delete(path) => path,
        }
    }
}

/// Writes that happen all or not at all. No path is written twice.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RawTxn {
    /// All must hold.
    pub conditions: Vec<RawCondition>,
    /// Happen at one new revision if they do.
    pub writes: Vec<RawWrite>,
    /// Whether a conflict reports what is stored under the paths of the conditions.
    pub report_conflict: bool,
}

/// What became of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RawOutcome {
    /// Done.
    Committed {
        /// The new revision; the old one if nothing changed.
        revision: u64,
        /// Per write the entry that it removed; `None` for puts and where nothing was.
        removed: Vec<Option<RawEntry>>,
    },
    /// A condition did not hold.
    Conflict {
        /// Per condition what is stored; empty unless asked for.
        current: Vec<Option<RawEntry>>,
    },
}

/// A stream of changes.
#[async_trait]
pub trait RawEvents: Send {
    /// The next changes, at least one. An error ends the stream; it is [`StoreError::Compacted`] if changes
    /// that the stream still owes are not kept any more.
    ///
    /// Dropping the future loses no change.
    async fn next(&mut self) -> Result<Vec<RawEvent>, StoreError>;
}

/// A database of paths, bytes and revisions.
#[async_trait]
pub trait RawStore: Send + Sync + 'static {
    /// How messages name this store.
    fn description(&self) -> String;

    /// Most conditions, and most writes, of one transaction.
    fn max_operations(&self) -> usize;

    /// Commits a transaction.
    async fn commit(&self, txn: RawTxn) -> Result<RawOutcome, StoreError>;

    /// Reads paths at one revision, the newest or a kept one, and says which.
    async fn get(
        &self,
        paths: &[String],
        at: Option<u64>,
    ) -> Result<(Vec<Option<RawEntry>>, u64), StoreError>;

    /// Reads a range, sorted by path, at one revision, and says which.
    async fn range(&self, range: &KeyRange, at: Option<u64>) -> Result<(Vec<RawEntry>, u64), StoreError>;

    /// Changes in a range at revisions greater than `after`.
    async fn watch(&self, range: &KeyRange, after: u64) -> Result<Box<dyn RawEvents>, StoreError>;

    /// Removes everything in a range.
    async fn delete_range(&self, range: &KeyRange) -> Result<(), StoreError>;

    /// Forgets how things were before `revision`.
    async fn compact(&self, revision: u64) -> Result<(), StoreError>;

    /// Prepares the store; safe to call again.
    async fn initialize(&self) -> Result<(), StoreError>;

    /// Ends connections and streams; later calls fail.
    async fn close(&self);
}

/// The error of a read or watch before the oldest kept revision.
pub(crate) fn compacted(revision: u64) -> StoreError {
    StoreError::Compacted { revision: revision.to_string() }
}

/// The error of a read at a revision that does not exist yet.
pub(crate) fn future_revision(revision: u64, current: u64) -> StoreError {
    StoreError::Other {
        id: String::new(),
        reason: format!("revision {revision} does not exist yet; the store is at {current}"),
    }
}

/// The error of any use after [`RawStore::close`].
pub(crate) fn closed(store: &str) -> StoreError {
    StoreError::Other { id: String::new(), reason: format!("the connection to {store} is closed") }
}

/// Refuses a transaction that writes a path twice or is too long.
pub(crate) fn check_txn(txn: &RawTxn, max: usize) -> Result<(), StoreError> {
    let longest = txn.conditions.len().max(txn.writes.len());
    if longest > max {
        return Err(StoreError::Invalid {
            field: "transaction".into(),
            value: longest.to_string(),
            reason: format!("more than {max} operations"),
        });
    }
    let mut paths: Vec<&str> = txn.writes.iter().map(RawWrite::path).collect();
    paths.sort_unstable();
    match paths.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(StoreError::Invalid {
            field: "transaction".into(),
            value: pair[0].to_owned(),
            reason: "written twice in one transaction".into(),
        }),
        None => Ok(()),
    }
}
