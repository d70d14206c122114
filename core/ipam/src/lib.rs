//! calico-ipam.
