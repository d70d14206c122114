//! calico-netlink.
