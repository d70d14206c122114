//! calico-rules.
