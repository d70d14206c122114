//! Stores of Calico's configuration and state behind one contract ([`Backend`]).
//!
//! Owns: the choice of a store from configuration, the SQLite and etcd backends, and the syncer that turns
//! lists and watches into one stream of changes.

mod backend;
mod error;

pub use backend::{Backend, Condition, KvList, Transactions, Txn, TxnOutcome, Watch, WatchEvent, Write};
pub use error::StoreError;
