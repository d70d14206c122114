//! calico-schema.
