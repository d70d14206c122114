//! calico-testkit.
