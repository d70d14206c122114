//! calico-tests.
