//! What the benches share: isolation, clusters to measure on, measuring, and tables.
//!
//! Nothing here is part of the product. Benches print what they measured beside upstream's figure for the same
//! shape and never fail over a time; `docs/performance.md` says what each figure means.

pub mod cluster;
pub mod isolate;
pub mod measure;
pub mod table;
