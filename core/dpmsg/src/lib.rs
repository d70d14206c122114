//! calico-dpmsg.
