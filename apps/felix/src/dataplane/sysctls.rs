//! Kernel parameters of the node and of workloads' interfaces.
//!
//! Always holds: a parameter that has its value is not written; one that the kernel does not have, and that only
//! matters where it has, is no error.

use calico_host::{Sysctl, SysctlError};

/// Value where the kernel does not say how it checks return paths: strictly.
const STRICT: &str = "1";

/// How the node checks return paths of interfaces that come up.
pub(crate) fn default_rp_filter(sysctl: &Sysctl) -> String {
    sysctl.read("net/ipv4/conf/default/rp_filter").unwrap_or_else(|_| STRICT.to_owned())
}

/// Sets up the node: forwarding of the families in use, counters of tracked connections. Returns how many parameters
/// were written.
///
/// # Errors
/// The first parameter that could not be set; the rest was tried all the same.
pub(crate) fn node(sysctl: &Sysctl, forwarding: bool, ipv6: bool) -> Result<usize, SysctlError> {
    let mut written = Writes::new(sysctl);
    written.optional("net/netfilter/nf_conntrack_acct", "1");
    if forwarding {
        written.set("net/ipv4/ip_forward", "1");
        if ipv6 {
            written.set("net/ipv6/conf/all/forwarding", "1");
        }
    }
    written.end()
}

/// Sets up a workload's interface for the families in use.
///
/// # Errors
/// The first parameter that could not be set; the rest was tried all the same.
pub(crate) fn workload(
    sysctl: &Sysctl,
    iface: &str,
    ipv6: bool,
    rp_filter: &str,
) -> Result<usize, SysctlError> {
    let mut written = Writes::new(sysctl);
    // A workload must not configure its host by router advertisements, whatever families are in use.
    written.optional(&format!("net/ipv6/conf/{iface}/accept_ra"), "0");
    // Packets to loopback addresses, which policy may allow, are routed and not dropped unseen.
    written.set(&format!("net/ipv4/conf/{iface}/route_localnet"), "1");
    written.optional(&format!("net/ipv4/neigh/{iface}/proxy_delay"), "0");
    written.set(&format!("net/ipv4/conf/{iface}/proxy_arp"), "1");
    written.set(&format!("net/ipv4/conf/{iface}/forwarding"), "1");
    written.set(&format!("net/ipv4/conf/{iface}/rp_filter"), rp_filter);
    if ipv6 {
        written.set(&format!("net/ipv6/conf/{iface}/proxy_ndp"), "1");
        written.set(&format!("net/ipv6/conf/{iface}/forwarding"), "1");
    }
    written.end()
}

struct Writes<'a> {
    sysctl: &'a Sysctl,
    count: usize,
    first: Option<SysctlError>,
}

impl<'a> Writes<'a> {
    fn new(sysctl: &'a Sysctl) -> Self {
        Self { sysctl, count: 0, first: None }
    }

    fn set(&mut self, name: &str, value: &str) {
        if let Err(e) = self.try_set(name, value) {
            self.first.get_or_insert(e);
        }
    }

    /// A parameter that may be missing.
    fn optional(&mut self, name: &str, value: &str) {
        match self.try_set(name, value) {
            Err(e) if !e.is_missing() => {
                self.first.get_or_insert(e);
            }
            _ => {}
        }
    }

    fn try_set(&mut self, name: &str, value: &str) -> Result<(), SysctlError> {
        if self.sysctl.read(name)? != value {
            self.sysctl.write(name, value)?;
            self.count += 1;
        }
        Ok(())
    }

    fn end(self) -> Result<usize, SysctlError> {
        self.first.map_or(Ok(self.count), Err)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn put(root: &Path, name: &str, value: &str) {
        let path = root.join(name);
        std::fs::create_dir_all(path.parent().expect("folder")).expect("folder");
        std::fs::write(path, value).expect("parameter");
    }

    #[test]
    fn only_differences_are_written() {
        let dir = tempfile::tempdir().expect("directory");
        for (name, value) in [
            ("net/ipv4/conf/cali1/route_localnet", "0"),
            ("net/ipv4/conf/cali1/proxy_arp", "0"),
            ("net/ipv4/conf/cali1/forwarding", "1"),
            ("net/ipv4/conf/cali1/rp_filter", "0"),
        ] {
            put(dir.path(), name, value);
        }
        let sysctl = Sysctl::under(dir.path());
        assert_eq!(workload(&sysctl, "cali1", false, "0").expect("set"), 2);
        assert_eq!(workload(&sysctl, "cali1", false, "0").expect("set"), 0);
        assert_eq!(workload(&sysctl, "cali1", false, "1").expect("set"), 1);
        assert!(workload(&sysctl, "cali1", true, "1").expect_err("no IPv6 here").is_missing());
        assert!(workload(&sysctl, "gone", false, "1").expect_err("no such link").is_missing());
        assert_eq!(default_rp_filter(&sysctl), "1");
    }
}
