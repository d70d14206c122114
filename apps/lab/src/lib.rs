//! calico-lab.
