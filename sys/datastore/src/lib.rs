//! Stores of Calico's configuration and state behind one contract ([`Backend`]).
//!
//! Owns: the choice of a store from configuration ([`config`], [`connect`]), the backends (SQLite, etcd and
//! memory, each a [`RawStore`] below [`Store`]), and the syncer that turns lists and watches into one stream of
//! changes.

mod backend;
pub mod config;
mod connect;
mod error;
mod etcd;
mod memory;
mod raw;
mod sqlite;
mod store;
pub mod syncer;

pub use backend::{Backend, Condition, KvList, Transactions, Txn, TxnOutcome, Watch, WatchEvent, Write};
pub use config::{CalicoApiConfig, Fallback, StoreChoice, StoreKind, Surroundings};
pub use connect::connect;
pub use error::StoreError;
pub use etcd::{EtcdOptions, EtcdRaw, EtcdTls};
pub use memory::MemoryRaw;
pub use raw::{RawCondition, RawEntry, RawEvent, RawEvents, RawOutcome, RawStore, RawTxn, RawWrite};
pub use sqlite::{SqliteOptions, SqliteRaw};
pub use store::Store;
pub use syncer::{DedupeBuffer, ResourceSource, Syncer, SyncerCallbacks, felix_sources};

/// A backend in memory.
pub type MemoryStore = Store<MemoryRaw>;

/// A backend in a SQLite file.
pub type SqliteStore = Store<SqliteRaw>;

/// A backend on etcd.
pub type EtcdStore = Store<EtcdRaw>;
