//! What the types of the API mean before anything acts on them: defaults, validation, table columns.
//!
//! Inputs: objects of [`calico_api`]. Outputs: the same objects with defaults filled in ([`defaults`]), a verdict
//! that names every bad field ([`validate`]), and the columns in which tools show objects ([`columns`]).
//!
//! Invariants: nothing here looks at other objects or at a store; defaults are idempotent; an object that passed
//! validation still passes after it was stored and read back.

pub mod columns;
pub mod defaults;
mod error;
pub mod validate;

pub use columns::{Column, ColumnContext, Table};
pub use error::{FieldError, ValidationErrors};

/// What is about to happen to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Op {
    /// It will be created.
    Create,
    /// It will replace the stored object of its name.
    Update,
    /// It is only looked at; metadata that a store fills in is not asked for.
    Check,
}
