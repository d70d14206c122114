//! Errors of stores, with upstream's texts.

use calico_model::{Key, KvPair};

/// Why a store did not do what it was asked.
///
/// `id` names the object: `Kind(name)`, `Kind(namespace/name)`, or a path for entries that are no v3 objects.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum StoreError {
    /// A create found the key in use.
    #[error("resource already exists: {id} with error: <nil>")]
    AlreadyExists {
        /// Object.
        id: String,
        /// What is stored.
        existing: Option<Box<KvPair>>,
    },
    /// The key is not there.
    #[error("resource does not exist: {id} with error: <nil>")]
    DoesNotExist {
        /// Object.
        id: String,
    },
    /// The key has another revision than the caller knows.
    #[error("update conflict: {id}")]
    UpdateConflict {
        /// Object.
        id: String,
        /// What is stored.
        existing: Option<Box<KvPair>>,
    },
    /// The request itself is wrong, for example a revision that is no number.
    #[error("error with field {field} = '{value}' ({reason})")]
    Invalid {
        /// Field.
        field: String,
        /// Its value.
        value: String,
        /// What is wrong.
        reason: String,
    },
    /// The store does not do this.
    #[error("operation {operation} is not supported on {id}{}", reason_suffix(.reason))]
    NotSupported {
        /// Operation.
        operation: String,
        /// Object or kind.
        id: String,
        /// Why; may be empty.
        reason: String,
    },
    /// The revision asked for is not kept any more; list again.
    #[error("revision {revision} has been compacted")]
    Compacted {
        /// What was asked.
        revision: String,
    },
    /// A stored value cannot be read.
    #[error("failed to parse datastore entry key={path}; value={value}: {reason}")]
    Parse {
        /// Key, if the path was understood.
        key: Option<Box<Key>>,
        /// Path.
        path: String,
        /// The value, cut to a readable length.
        value: String,
        /// What is wrong.
        reason: String,
    },
    /// No access with these credentials.
    #[error("connection is unauthorized: {0}")]
    Unauthorized(String),
    /// The store cannot be reached. Names which store was chosen and why.
    #[error("cannot reach the datastore {store}: {reason}")]
    Unreachable {
        /// Store.
        store: String,
        /// What happened.
        reason: String,
    },
    /// Anything else that the store or its driver reported.
    #[error("{reason}")]
    Other {
        /// Object or path, if one was concerned.
        id: String,
        /// What happened.
        reason: String,
    },
    /// The configuration does not lead to a store.
    #[error("{0}")]
    Config(String),
}

fn reason_suffix(reason: &str) -> String {
    if reason.is_empty() { String::new() } else { format!(": {reason}") }
}
