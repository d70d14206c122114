//! calico-bench.
