//! calico-felix.
