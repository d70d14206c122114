//! calico-client.
