//! calico-daemon.
