//! calico-selector.
