//! A reference-counting interner.
