//! Key-value pairs with a revision, and the stream of changes that syncers make of them.

use std::fmt;
use std::time::Duration;

use smol_str::SmolStr;

use crate::{Key, Value};

/// A store's opaque version of one entry or of a whole list. For etcd and SQLite it is a decimal number.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Revision(pub SmolStr);

impl Revision {
    /// The number, if the text is one.
    pub fn as_u64(&self) -> Option<u64> {
        self.0.parse().ok()
    }
}

impl From<u64> for Revision {
    fn from(n: u64) -> Self {
        Self(smol_str::format_smolstr!("{n}"))
    }
}

impl From<&str> for Revision {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One stored entry.
#[derive(Debug, Clone, PartialEq)]
pub struct KvPair {
    /// Identity.
    pub key: Key,
    /// Content; `None` marks a deletion in a stream of changes.
    pub value: Option<Value>,
    /// Version of this entry; empty where unknown.
    pub revision: Revision,
    /// The object's UID, where the store has one.
    pub uid: Option<SmolStr>,
    /// Life time of the entry; `None` lives until deleted. Whole seconds count.
    pub ttl: Option<Duration>,
}

impl KvPair {
    /// An entry to be written: no revision, no UID, no life time.
    pub fn new(key: Key, value: Value) -> Self {
        Self { key, value: Some(value), revision: Revision::default(), uid: None, ttl: None }
    }

    /// A deletion of `key` for a stream of changes.
    pub fn tombstone(key: Key) -> Self {
        Self { key, value: None, revision: Revision::default(), uid: None, ttl: None }
    }

    /// The same with `revision`.
    pub fn at(mut self, revision: Revision) -> Self {
        self.revision = revision;
        self
    }
}

/// How far a syncer has got. The numbers are those of Typha's wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SyncStatus {
    /// No connection to the store yet.
    WaitForDatastore = 0,
    /// Listing; what was sent so far is a part.
    ResyncInProgress = 1,
    /// Everything that was in the store at some moment has been sent.
    InSync = 2,
}

impl fmt::Display for SyncStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::WaitForDatastore => "wait-for-ready",
            Self::ResyncInProgress => "resync",
            Self::InSync => "in-sync",
        })
    }
}

/// What a change did. The numbers are those of Typha's wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum UpdateType {
    /// Not said.
    Unknown = 0,
    /// The key was not there before.
    New = 1,
    /// The key was there with another value.
    Updated = 2,
    /// The key is gone.
    Deleted = 3,
}

/// One change in a syncer's stream. Receivers must bear duplicates and deletions of unknown keys.
#[derive(Debug, Clone, PartialEq)]
pub struct Update {
    /// The entry; its value is `None` for a deletion.
    pub kv: KvPair,
    /// What happened to it.
    pub kind: UpdateType,
}
