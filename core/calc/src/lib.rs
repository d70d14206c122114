//! calico-calc.
