//! Host endpoints: which one guards which interface of the node, and their chains.
//!
//! In: host endpoints, links with their addresses, selectors of policies. Out: chains per interface, and the chains
//! that find them. An endpoint matches the interface that it names, or, if it names none, an interface with one of its
//! addresses; `*` stands for all interfaces that no other one matches. The lowest identity wins.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use calico_dpmsg::{HostEndpoint, HostEndpointId, PolicyId, TierInfo};
use calico_netfilter::NftKernel;
use calico_rules::{HostDispatch, names};
use smol_str::{SmolStr, format_smolstr};

use super::links::Links;
use super::plane::Plane;
use super::policies::Policies;

/// Name of the endpoint for all interfaces.
const ALL: &str = "*";

/// Endpoints in force, by interface; the one for all interfaces under its pseudo-interface.
type Assigned = BTreeMap<SmolStr, Arc<HostEndpoint>>;

/// The manager.
#[derive(Debug, Default)]
pub(crate) struct Hosts {
    endpoints: BTreeMap<HostEndpointId, Arc<HostEndpoint>>,
    assigned: Assigned,
    /// Interfaces whose chains must be rendered even if their endpoint is the same.
    stale: bool,
    dirty: bool,
}

// === impl Hosts ===

impl Hosts {
    pub(crate) fn new() -> Self {
        Self { dirty: true, ..Self::default() }
    }

    /// Takes in an endpoint, or that there is none.
    pub(crate) fn set(&mut self, id: &HostEndpointId, endpoint: Option<&Arc<HostEndpoint>>) {
        match endpoint {
            Some(endpoint) => self.endpoints.insert(id.clone(), Arc::clone(endpoint)),
            None => self.endpoints.remove(id),
        };
        self.dirty = true;
    }

    /// Takes in which policies' selectors changed.
    pub(crate) fn on_selectors(&mut self, changed: &HashSet<PolicyId>) {
        let names = |tiers: &[TierInfo]| {
            tiers.iter().flat_map(|t| t.ingress.iter().chain(&t.egress)).any(|id| changed.contains(id))
        };
        let touched = self.endpoints.values().any(|e| {
            [&e.tiers, &e.untracked_tiers, &e.pre_dnat_tiers, &e.forward_tiers].iter().any(|t| names(t))
        });
        self.stale |= touched;
        self.dirty |= touched;
    }

    /// Takes in that links or their addresses changed.
    pub(crate) fn on_links(&mut self) {
        self.dirty |= !self.endpoints.is_empty() || !self.assigned.is_empty();
    }

    /// Renders what changed and hands it on.
    pub(crate) fn resolve<N: NftKernel>(
        &mut self,
        planes: &mut [Plane<N>],
        links: &Links,
        policies: &Policies,
        is_workload: &dyn Fn(&str) -> bool,
    ) {
        if !std::mem::take(&mut self.dirty) {
            return;
        }
        let assigned = self.assign(links, is_workload);
        let stale = std::mem::take(&mut self.stale);
        let before = std::mem::replace(&mut self.assigned, assigned);
        for iface in before.keys().filter(|i| !self.assigned.contains_key(*i)) {
            planes.iter_mut().for_each(|p| p.filter.remove_chains(owner(iface)));
        }
        for (iface, endpoint) in &self.assigned {
            if !stale && before.get(iface) == Some(endpoint) {
                continue;
            }
            for plane in planes.iter_mut() {
                let rendered =
                    plane.renderer.host_endpoint_chains(iface, endpoint, &|id| policies.selector(id));
                plane.give(&owner(iface), &rendered.chains, &rendered.problems);
            }
        }
        let dispatch = self.dispatch();
        for plane in planes {
            let chains = plane.renderer.host_dispatch_chains(&dispatch);
            plane.give(&SmolStr::new_static("hosts"), &chains, &[]);
        }
    }

    fn assign(&self, links: &Links, is_workload: &dyn Fn(&str) -> bool) -> Assigned {
        let mut assigned = Assigned::new();
        for (iface, link) in links.iter().filter(|(name, _)| !is_workload(name) && names::is_interface(name))
        {
            let found = self.endpoints.values().find(|e| match e.interface_name.as_str() {
                "" => e.expected_ips.iter().any(|ip| link.addrs.iter().any(|c| c.addr() == *ip)),
                name => name == iface,
            });
            if let Some(endpoint) = found {
                assigned.insert(iface.clone(), Arc::clone(endpoint));
            }
        }
        if let Some(all) = self.endpoints.values().find(|e| e.interface_name == ALL) {
            assigned.insert(SmolStr::new_static(names::ANY_INTERFACE), Arc::clone(all));
        }
        assigned
    }

    fn dispatch(&self) -> HostDispatch {
        let mut out = HostDispatch::default();
        for (iface, endpoint) in &self.assigned {
            if iface == names::ANY_INTERFACE {
                out.any = true;
                out.any_pre_dnat = !endpoint.pre_dnat_tiers.is_empty();
                continue;
            }
            out.normal.insert(iface.clone());
            if !endpoint.untracked_tiers.is_empty() {
                out.untracked.insert(iface.clone());
            }
            if !endpoint.pre_dnat_tiers.is_empty() {
                out.pre_dnat.insert(iface.clone());
            }
        }
        out
    }
}

fn owner(iface: &str) -> SmolStr {
    format_smolstr!("host/{iface}")
}
