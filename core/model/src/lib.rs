//! calico-model.
