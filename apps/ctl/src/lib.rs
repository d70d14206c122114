//! calico-ctl.
