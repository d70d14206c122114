//! Errors of the typed client.

use calico_datastore::StoreError;
use calico_schema::{FieldError, ValidationErrors};

/// Why the client did not do what it was asked.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ClientError {
    /// The store's answer.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The object breaks a rule; every broken rule is named.
    #[error(transparent)]
    Validation(#[from] ValidationErrors),
    /// The store holds something else than the key promises.
    #[error("{id}: the store holds an object of another kind")]
    WrongKind {
        /// Object.
        id: String,
    },
}

impl ClientError {
    /// A single broken rule.
    pub fn field(name: &str, value: Option<&str>, reason: &str) -> Self {
        let error = match value {
            Some(value) => FieldError::new(name, value, reason),
            None => FieldError::without_value(name, reason),
        };
        Self::Validation(error.into())
    }

    /// True if the object is not there.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Store(StoreError::DoesNotExist { .. }))
    }

    /// True if the object was there already.
    pub fn is_already_exists(&self) -> bool {
        matches!(self, Self::Store(StoreError::AlreadyExists { .. }))
    }

    /// True if another writer was faster; read again and retry.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Store(StoreError::UpdateConflict { .. }))
    }

    /// True if the store or the client does not do this at all.
    pub fn is_not_supported(&self) -> bool {
        matches!(self, Self::Store(StoreError::NotSupported { .. }))
    }
}
