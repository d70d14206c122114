//! Workload endpoints of this node.
//!
//! In: endpoints, the state of links, selectors of policies. Out: for each interface the chains, the verdicts that
//! lead to them, routes, neighbours, kernel parameters and whether it is up. Of several endpoints that name one
//! interface, the one with the lowest identity is in force, the others wait in its shadow.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use calico_dpmsg::{PolicyId, WorkloadEndpoint, WorkloadEndpointId};
use calico_host::{Sysctl, SysctlError};
use calico_net::{Cidr, IpVersion, Mac};
use calico_netfilter::{NftDataplane, NftKernel};
use calico_rules::nft;
use calico_rules::{FloatingIp, names};
use smol_str::{SmolStr, format_smolstr};

use super::links::{LinkChanges, Links};
use super::neighbours::Neighbours;
use super::plane::Plane;
use super::policies::Policies;
use super::routes::{Class, Hop, Target};
use super::status::StatusFiles;
use super::sysctls;
use crate::config::Params;

/// Orchestrator whose floating addresses are always served.
const OPENSTACK: &str = "openstack";

/// The endpoint in force on an interface.
#[derive(Debug, Clone, PartialEq)]
struct Active {
    id: WorkloadEndpointId,
    endpoint: Arc<WorkloadEndpoint>,
}

/// The manager.
#[derive(Debug)]
pub(crate) struct Workloads {
    params: Arc<Params>,
    /// How return paths are checked on interfaces whose workloads may not spoof.
    rp_filter: String,
    /// IPv6 is in use.
    ipv6: bool,
    endpoints: BTreeMap<WorkloadEndpointId, Arc<WorkloadEndpoint>>,
    by_iface: HashMap<SmolStr, BTreeSet<WorkloadEndpointId>>,
    active: HashMap<SmolStr, Active>,
    /// Interfaces whose endpoint, or what its chains depend on, changed.
    dirty: BTreeSet<SmolStr>,
    /// Interfaces with sources that their workloads may use beyond their own.
    spoofing: BTreeMap<SmolStr, Vec<Cidr>>,
    floating: BTreeMap<SmolStr, Vec<FloatingIp>>,
    /// The chains that serve all workloads must be rendered.
    shared_dirty: bool,
    /// Interfaces whose kernel parameters are to be set.
    unset: BTreeSet<SmolStr>,
    /// Interfaces whose kernel parameters are set, by index.
    set: HashMap<SmolStr, u32>,
    /// Interfaces whose state is to be reported.
    unreported: BTreeSet<SmolStr>,
    /// Those of them that only lack routes; they come without another event.
    unrouted: BTreeSet<SmolStr>,
    reported: HashMap<SmolStr, WorkloadEndpointId>,
}

// === impl Workloads ===

impl Workloads {
    pub(crate) fn new(params: Arc<Params>, rp_filter: String, ipv6: bool) -> Self {
        Self {
            params,
            rp_filter,
            ipv6,
            endpoints: BTreeMap::new(),
            by_iface: HashMap::new(),
            active: HashMap::new(),
            dirty: BTreeSet::new(),
            spoofing: BTreeMap::new(),
            floating: BTreeMap::new(),
            shared_dirty: true,
            unset: BTreeSet::new(),
            set: HashMap::new(),
            unreported: BTreeSet::new(),
            unrouted: BTreeSet::new(),
            reported: HashMap::new(),
        }
    }

    /// Takes in an endpoint, or that there is none.
    pub(crate) fn set(&mut self, id: &WorkloadEndpointId, endpoint: Option<&Arc<WorkloadEndpoint>>) {
        let before = match endpoint {
            Some(endpoint) => self.endpoints.insert(id.clone(), Arc::clone(endpoint)),
            None => self.endpoints.remove(id),
        };
        if let Some(old) = before {
            let iface = &old.interface_name;
            if let Some(ids) = self.by_iface.get_mut(iface) {
                ids.remove(id);
                if ids.is_empty() {
                    self.by_iface.remove(iface);
                }
            }
            self.dirty.insert(iface.clone());
        }
        if let Some(new) = endpoint {
            self.by_iface.entry(new.interface_name.clone()).or_default().insert(id.clone());
            self.dirty.insert(new.interface_name.clone());
        }
    }

    /// Takes in which policies' selectors changed.
    pub(crate) fn on_selectors(&mut self, changed: &HashSet<PolicyId>) {
        for endpoint in self.endpoints.values() {
            let mut ids = endpoint.tiers.iter().flat_map(|t| t.ingress.iter().chain(&t.egress));
            if ids.any(|id| changed.contains(id)) {
                self.dirty.insert(endpoint.interface_name.clone());
            }
        }
    }

    /// Takes in that a link changed.
    pub(crate) fn on_link(&mut self, name: &SmolStr, changes: LinkChanges) {
        if !changes.state {
            return;
        }
        if changes.interrupted {
            self.set.remove(name);
        }
        self.unset.insert(name.clone());
        self.unreported.insert(name.clone());
    }

    /// Renders what changed and hands the wishes on.
    pub(crate) fn resolve<N: NftKernel>(
        &mut self,
        planes: &mut [Plane<N>],
        arp: &mut NftDataplane<N>,
        neighbours: &mut Neighbours,
        policies: &Policies,
    ) {
        for iface in std::mem::take(&mut self.dirty) {
            let winner = self.by_iface.get(&iface).and_then(BTreeSet::first).filter(|_| {
                let sound = names::is_interface(&iface);
                if !sound {
                    tracing::warn!(interface = %iface, "An endpoint's interface name is not usable, its traffic is denied");
                }
                sound
            });
            let winner = winner.and_then(|id| {
                Some(Active { id: id.clone(), endpoint: Arc::clone(self.endpoints.get(id)?) })
            });
            match &winner {
                Some(active) => self.program(&iface, active, planes, arp, neighbours, policies),
                None => self.unprogram(&iface, planes, arp, neighbours),
            }
            self.note_shared(&iface, winner.as_ref());
            self.unreported.insert(iface.clone());
            self.unset.insert(iface.clone());
            let before = match winner {
                Some(active) => self.active.insert(iface.clone(), active),
                None => self.active.remove(&iface),
            };
            let spoofs = |a: Option<&Active>| a.map(|a| self.may_spoof(&a.endpoint));
            if spoofs(before.as_ref()) != spoofs(self.active.get(&iface)) {
                self.set.remove(&iface);
            }
        }
        if std::mem::take(&mut self.shared_dirty) {
            self.give_shared(planes);
        }
    }

    fn program<N: NftKernel>(
        &self,
        iface: &SmolStr,
        active: &Active,
        planes: &mut [Plane<N>],
        arp: &mut NftDataplane<N>,
        neighbours: &mut Neighbours,
        policies: &Policies,
    ) {
        let endpoint = &active.endpoint;
        for plane in planes {
            let rendered = plane.renderer.workload_chains(endpoint, &|id| policies.selector(id));
            plane.give(&owner(iface), &rendered.chains, &rendered.problems);
            plane.dispatch(iface, true);
            let targets = self.targets(active, plane.version);
            plane.routes.replace(Class::LocalWorkload, Some(iface), targets);
        }
        let addrs: Vec<Ipv4Addr> = endpoint.ipv4_nets.iter().filter_map(single_v4).collect();
        if endpoint.active && !addrs.is_empty() {
            let chain = nft::arp_chain(iface, &addrs);
            arp.set_verdict(&nft::arp_map(), iface, chain.as_ref().map(|c| c.name.clone()));
            arp.update_chains(owner(iface), chain.into_iter().collect());
        } else {
            unprogram_arp(iface, arp);
        }
        let entries: BTreeMap<IpAddr, Mac> = match endpoint.mac.filter(|_| endpoint.active) {
            Some(mac) => addrs.iter().map(|a| (IpAddr::V4(*a), mac)).collect(),
            None => BTreeMap::new(),
        };
        neighbours.set_neighbours(iface, entries);
    }

    fn unprogram<N: NftKernel>(
        &self,
        iface: &SmolStr,
        planes: &mut [Plane<N>],
        arp: &mut NftDataplane<N>,
        neighbours: &mut Neighbours,
    ) {
        for plane in planes {
            plane.dispatch(iface, false);
            plane.filter.remove_chains(owner(iface));
            plane.routes.replace(Class::LocalWorkload, Some(iface), []);
        }
        unprogram_arp(iface, arp);
        neighbours.remove(iface);
    }

    fn targets(&self, active: &Active, version: IpVersion) -> Vec<Target> {
        let endpoint = &active.endpoint;
        if !endpoint.active {
            return Vec::new();
        }
        let (nets, priority) = match version {
            IpVersion::V4 => (&endpoint.ipv4_nets, self.params.route_priority.0),
            IpVersion::V6 => (&endpoint.ipv6_nets, self.params.route_priority.1),
        };
        let floating = self.floating_of(active).into_iter().map(|ip| Cidr::host(ip.external));
        let all = nets.iter().copied().chain(floating).filter(|c| c.version() == version);
        all.map(|dst| Target { dst: dst.masked(), priority, hop: Hop::Link, mtu: None, exclusive: false })
            .collect()
    }

    fn floating_of(&self, active: &Active) -> Vec<FloatingIp> {
        if !self.params.floating_ips && active.id.orchestrator != OPENSTACK {
            return Vec::new();
        }
        let pair = |&(external, internal): &(IpAddr, IpAddr)| FloatingIp { external, internal };
        active.endpoint.nats.iter().map(pair).collect()
    }

    fn may_spoof(&self, endpoint: &WorkloadEndpoint) -> bool {
        self.params.source_spoofing && !endpoint.allow_spoofed_source_prefixes.is_empty()
    }

    /// Notes what an interface adds to the chains that serve all workloads.
    fn note_shared(&mut self, iface: &SmolStr, active: Option<&Active>) {
        let nets = active.filter(|a| self.may_spoof(&a.endpoint));
        let nets = nets.map(|a| a.endpoint.allow_spoofed_source_prefixes.clone()).unwrap_or_default();
        self.shared_dirty |= put(&mut self.spoofing, iface, nets);
        let floating = active.filter(|a| a.endpoint.active).map(|a| self.floating_of(a)).unwrap_or_default();
        self.shared_dirty |= put(&mut self.floating, iface, floating);
    }

    fn give_shared<N: NftKernel>(&self, planes: &mut [Plane<N>]) {
        let floating: Vec<FloatingIp> = self.floating.values().flatten().copied().collect();
        for plane in planes {
            let spoofing = self.spoofing.iter().map(|(iface, nets)| (iface.as_str(), nets.as_slice()));
            let mut chains = vec![plane.renderer.rpf_skip_chain(spoofing)];
            chains.extend(plane.renderer.floating_ip_chains(&floating));
            plane.give(&SmolStr::new_static("workloads"), &chains, &[]);
        }
    }

    /// Sets the kernel parameters of interfaces that came up; returns how many were written.
    pub(crate) fn configure(
        &mut self,
        sysctl: &Sysctl,
        links: &Links,
        failures: &mut Vec<SysctlError>,
    ) -> usize {
        let mut written = 0;
        for iface in std::mem::take(&mut self.unset) {
            let Some(active) = self.active.get(&iface) else { continue };
            let Some(link) = links.get(&iface).filter(|l| l.is_up()) else { continue };
            let index = link.link.index;
            if self.set.get(&iface) == Some(&index) {
                continue;
            }
            let rp_filter = if self.may_spoof(&active.endpoint) { "0" } else { &self.rp_filter };
            match sysctls::workload(sysctl, &iface, self.ipv6, rp_filter) {
                Ok(count) => {
                    written += count;
                    self.set.insert(iface.clone(), index);
                    self.unreported.insert(iface);
                }
                // The link went a moment ago; its event comes. Else it is tried again.
                Err(e) => {
                    if links.get(&iface).is_some() && !e.is_missing() {
                        failures.push(e);
                    }
                    self.unreported.insert(iface.clone());
                    self.unset.insert(iface);
                }
            }
        }
        written
    }

    /// Says which endpoints are up: their link is, and their rules, parameters and routes are in the kernel. `refused`
    /// holds what the packet filter would not take, by its name.
    pub(crate) fn report<N: NftKernel>(
        &mut self,
        links: &Links,
        planes: &[Plane<N>],
        refused: &HashSet<String>,
        files: &mut StatusFiles,
    ) {
        if !refused.is_empty() {
            self.unreported.extend(self.active.keys().cloned());
        }
        for iface in std::mem::take(&mut self.unreported) {
            let link = links.get(&iface).filter(|l| l.is_up());
            let ready = self.active.get(&iface).filter(|active| {
                active.endpoint.active
                    && link.is_some_and(|l| self.set.get(&iface) == Some(&l.link.index))
                    && !is_refused(&iface, refused)
            });
            let routed = self.params.route_sync_disabled
                || planes.iter().all(|p| p.routes.is_programmed(Class::LocalWorkload, &iface));
            let up = ready.filter(|_| routed);
            if ready.is_some() && !routed {
                self.unrouted.insert(iface.clone());
            }
            let before = match up {
                Some(active) => self.reported.insert(iface.clone(), active.id.clone()),
                None => self.reported.remove(&iface),
            };
            if let Some(old) = before.filter(|old| up.is_none_or(|a| a.id != *old)) {
                files.set(&old, None);
            }
            if let Some(active) = up {
                files.set(&active.id, Some(&active.endpoint));
            }
        }
        self.unreported.append(&mut self.unrouted);
        if !refused.is_empty() {
            // They may be taken later, without any change on our side.
            self.unreported.extend(self.active.keys().filter(|i| is_refused(i, refused)).cloned());
        }
    }
}

fn owner(iface: &str) -> SmolStr {
    format_smolstr!("workload/{iface}")
}

fn unprogram_arp<N: NftKernel>(iface: &SmolStr, arp: &mut NftDataplane<N>) {
    arp.set_verdict(&nft::arp_map(), iface, None);
    arp.remove_chains(owner(iface));
}

fn single_v4(net: &Cidr) -> Option<Ipv4Addr> {
    match net.addr() {
        IpAddr::V4(addr) if net.is_host() => Some(addr),
        _ => None,
    }
}

/// Puts a list in, or takes the entry out if the list is empty; true if that changed something.
fn put<T: PartialEq>(map: &mut BTreeMap<SmolStr, Vec<T>>, key: &SmolStr, list: Vec<T>) -> bool {
    if list.is_empty() {
        return map.remove(key).is_some();
    }
    if map.get(key) == Some(&list) {
        return false;
    }
    map.insert(key.clone(), list);
    true
}

/// True if some part of an interface's rules was refused.
fn is_refused(iface: &str, refused: &HashSet<String>) -> bool {
    !refused.is_empty()
        && [names::TO_WORKLOAD, names::FROM_WORKLOAD].iter().any(|prefix| {
            let chain = names::chain(prefix, iface);
            refused.contains(names::layered(calico_rules::Layer::Filter, &chain).as_str())
        })
}
