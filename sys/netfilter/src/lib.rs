//! calico-netfilter.
