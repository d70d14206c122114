//! process.
