//! calico-cni.
