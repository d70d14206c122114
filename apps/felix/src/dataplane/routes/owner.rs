//! Which routes of the main table are ours, so that nobody else's are ever removed.

use calico_net::Cidr;
use calico_netlink::{Route, RouteProtocol};
use calico_rules::RuleConfig;
use smol_str::SmolStr;

/// The rules of ownership.
#[derive(Debug, Clone)]
pub(crate) struct Ownership {
    /// Beginnings of workload links' names.
    workload_prefixes: Vec<SmolStr>,
    /// Protocol that the configuration names.
    configured: RouteProtocol,
    /// On workload links, all routes are ours.
    all_on_workloads: bool,
}

// === impl Ownership ===

impl Ownership {
    pub(crate) fn new(workload_prefixes: Vec<SmolStr>, protocol: u8, all_on_workloads: bool) -> Self {
        Self { workload_prefixes, configured: RouteProtocol(protocol), all_on_workloads }
    }

    /// Protocol of routes that no other program makes: our own number, unless one is configured.
    pub(crate) fn exclusive(&self) -> RouteProtocol {
        if self.configured == RouteProtocol::BOOT { RouteProtocol::FELIX } else { self.configured }
    }

    /// Protocol of routes to workloads and through tunnels, which other programs make too.
    pub(crate) fn device_protocol(&self) -> RouteProtocol {
        self.configured
    }

    /// True if the name is that of a workload's link.
    pub(crate) fn is_workload(&self, link: &str) -> bool {
        self.workload_prefixes.iter().any(|p| link.starts_with(p.as_str()))
    }

    pub(crate) fn is_exclusive(&self, route: &Route) -> bool {
        route.protocol == self.exclusive()
    }

    /// True if the route is ours; `link` is the name of its link, if it has one that is known.
    pub(crate) fn owns(&self, route: &Route, link: Option<&str>) -> bool {
        if self.is_exclusive(route) {
            return true;
        }
        let Some(link) = link else { return false };
        if is_link_local(&route.dst) {
            return false;
        }
        if self.is_workload(link) {
            return self.all_on_workloads
                || route.protocol == self.configured
                || route.protocol == RouteProtocol::FELIX;
        }
        RuleConfig::VXLAN_DEVICES.iter().any(|(name, _)| *name == link)
    }
}

/// `fe80::/64`, which the kernel makes on every link.
fn is_link_local(dst: &Cidr) -> bool {
    matches!(dst.addr(), std::net::IpAddr::V6(a) if a.is_unicast_link_local()) && dst.prefix_len() == 64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(dst: &str, protocol: RouteProtocol) -> Route {
        let mut route = Route::new(dst.parse().expect("cidr"));
        route.protocol = protocol;
        route
    }

    #[test]
    fn what_is_ours() {
        let all = Ownership::new(vec!["cali".into()], 3, true);
        let some = Ownership::new(vec!["cali".into()], 3, false);
        let configured = Ownership::new(vec!["cali".into()], 99, false);
        let (boot, bird, felix) = (RouteProtocol::BOOT, RouteProtocol::BIRD, RouteProtocol::FELIX);
        for (owner, protocol, link, ours) in [
            (&all, felix, None, true),
            (&all, boot, None, false),
            (&all, boot, Some("eth0"), false),
            (&all, felix, Some("eth0"), true),
            (&all, bird, Some("cali1"), true),
            (&some, bird, Some("cali1"), false),
            (&some, boot, Some("cali1"), true),
            (&some, bird, Some("vxlan.calico"), true),
            (&configured, boot, Some("cali1"), false),
            (&configured, RouteProtocol(99), Some("eth0"), true),
            (&configured, felix, Some("cali1"), true),
            (&configured, felix, Some("eth0"), false),
            (&all, bird, Some("tunl0"), false),
        ] {
            assert_eq!(
                owner.owns(&route("10.0.0.0/26", protocol), link),
                ours,
                "{owner:?} {protocol:?} {link:?}"
            );
        }
        assert!(!all.owns(&route("fe80::/64", RouteProtocol::KERNEL), Some("cali1")));
        assert!(all.owns(&route("fd00::1/128", RouteProtocol::KERNEL), Some("cali1")));
    }
}
