//! calico-api.
