//! calico-host.
