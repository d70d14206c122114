//! The managers together, independent of what the kernel is.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use calico_dpmsg::{Encapsulation, Message, Vtep, VtepAddrs};
use calico_host::Sysctl;
use calico_net::{IpVersion, Mac};
use calico_netfilter::{Family, NftDataplane, NftKernel, Sizes};
use calico_netlink::Event;
use calico_rules::RuleConfig;
use calico_rules::config::Tunnel as RuleTunnel;
use calico_rules::nft;
use regex::Regex;
use smol_str::SmolStr;

use super::hosts::Hosts;
use super::links::Links;
use super::neighbours::Neighbours;
use super::net::NetKernel;
use super::plane::Plane;
use super::policies::Policies;
use super::remote::{Local, RemoteRoutes};
use super::report::{ApplyReport, Failure};
use super::routes::{Ownership, RouteTable};
use super::sets::{FixedSets, PolicySets};
use super::status::StatusFiles;
use super::tunnel::Tunnel;
use super::workloads::Workloads;
use super::{DataplaneError, mtu, sysctls};
use crate::config::Params;

/// All managers and what they share.
pub(crate) struct Core<N, R> {
    params: Arc<Params>,
    sysctl: Sysctl,
    net: R,
    links: Links,
    planes: Vec<Plane<N>>,
    arp: NftDataplane<N>,
    neighbours: Neighbours,
    tunnels: Vec<Tunnel>,
    remote: Vec<RemoteRoutes>,
    policy_sets: PolicySets,
    fixed: FixedSets,
    policies: Policies,
    workloads: Workloads,
    hosts: Hosts,
    status: Option<StatusFiles>,
    /// Which links belong to workloads.
    owner: Ownership,
    mtu_pattern: Regex,
    mtu_file: Option<PathBuf>,
    mtu_published: Option<u32>,
    rules: Arc<RuleConfig>,
    encapsulation: Encapsulation,
    own_vteps: BTreeMap<IpVersion, VtepAddrs>,
    peers: BTreeMap<IpVersion, BTreeMap<SmolStr, VtepAddrs>>,
    in_sync: bool,
    relist: bool,
    /// What tunnels and remote routes depend on changed.
    surroundings_dirty: bool,
    fixed_chains_dirty: bool,
    node_set_up: bool,
    /// Refusals that were logged: table, and what.
    refused: HashSet<(&'static str, String)>,
}

// === impl Core ===

impl<N: NftKernel + Send, R: NetKernel> Core<N, R> {
    pub(crate) fn new(
        params: Arc<Params>,
        nft_kernel: impl Fn() -> Result<N, DataplaneError>,
        net: R,
        sysctl: Sysctl,
    ) -> Result<Self, DataplaneError> {
        let has_ipv6 = params.ipv6 && sysctl.read("net/ipv6/conf/all/forwarding").is_ok();
        let versions: Vec<IpVersion> =
            IpVersion::BOTH.into_iter().filter(|v| *v == IpVersion::V4 || has_ipv6).collect();
        let rules = Arc::new(params.rules.clone());
        let prefixes = rules.workload_prefixes.clone();
        let owner = Ownership::new(prefixes, params.route_protocol, params.remove_external_routes);
        let mut planes = Vec::new();
        let mut tunnels = Vec::new();
        for &version in &versions {
            let source = match version {
                IpVersion::V4 => params.route_source_address.0,
                IpVersion::V6 => params.route_source_address.1,
            };
            let routes = RouteTable::new(version, owner.clone(), source);
            planes.push(Plane::new(nft_kernel()?, &rules, routes, version)?);
            let device = RuleConfig::VXLAN_DEVICES.iter().find(|(_, v)| *v == version);
            tunnels.extend(
                device.map(|(name, _)| Tunnel::new(version, name, params.vxlan_vni, rules.vxlan_port)),
            );
        }
        let mut arp = NftDataplane::new(nft_kernel()?, Family::Arp, nft::ARP_TABLE);
        let (base, dispatch) = nft::arp_base_chains();
        arp.set_base_chains(vec![base]);
        arp.update_chains("arp", vec![dispatch]);
        arp.add_map(&nft::arp_map());
        let rp_filter = sysctls::default_rp_filter(&sysctl);
        let status = (!params.status_prefix.is_empty()).then(|| StatusFiles::new(&params.status_prefix));
        let mtu_file = (!params.mtu_file.is_empty()).then(|| PathBuf::from(&params.mtu_file));
        Ok(Self {
            sysctl,
            net,
            links: Links::default(),
            planes,
            arp,
            neighbours: Neighbours::new(),
            tunnels,
            remote: versions.iter().map(|v| RemoteRoutes::new(*v)).collect(),
            policy_sets: PolicySets::default(),
            fixed: FixedSets::new(params.external_nodes.clone()),
            policies: Policies::default(),
            workloads: Workloads::new(Arc::clone(&params), rp_filter, has_ipv6),
            hosts: Hosts::new(),
            status,
            owner,
            mtu_pattern: Regex::new(&params.mtu_iface_pattern)?,
            mtu_file,
            mtu_published: None,
            rules,
            encapsulation: Encapsulation::default(),
            own_vteps: BTreeMap::new(),
            peers: BTreeMap::new(),
            in_sync: false,
            relist: true,
            surroundings_dirty: true,
            fixed_chains_dirty: true,
            node_set_up: false,
            refused: HashSet::new(),
            params,
        })
    }

    pub(crate) fn on_message(&mut self, message: &Message) {
        match message {
            // The daemon acts on these.
            Message::DatastoreNotReady | Message::ConfigUpdate(_) => {}
            Message::IpSetUpdate { id, kind, members } => {
                self.policy_sets.replace(&mut self.planes, id, *kind, members);
            }
            Message::IpSetDelta { id, added, removed } => {
                self.policy_sets.change(&mut self.planes, id, added, removed);
            }
            Message::IpSetRemove(id) => self.policy_sets.remove(&mut self.planes, id),
            Message::PolicyUpdate(id, policy) => self.policies.set_policy(id, Some(policy)),
            Message::PolicyRemove(id) => self.policies.set_policy(id, None),
            Message::ProfileUpdate(id, profile) => self.policies.set_profile(id, Some(profile)),
            Message::ProfileRemove(id) => self.policies.set_profile(id, None),
            Message::WorkloadEndpointUpdate(id, endpoint) => self.workloads.set(id, Some(endpoint)),
            Message::WorkloadEndpointRemove(id) => self.workloads.set(id, None),
            Message::HostEndpointUpdate(id, endpoint) => self.hosts.set(id, Some(endpoint)),
            Message::HostEndpointRemove(id) => self.hosts.set(id, None),
            Message::RouteUpdate(route) => self.remote.iter_mut().for_each(|r| r.update(route)),
            Message::RouteRemove(dst) => self.remote.iter_mut().for_each(|r| r.remove(*dst)),
            Message::VtepUpdate(vtep) => self.set_vtep(&vtep.node, Some(vtep)),
            Message::VtepRemove(node) => self.set_vtep(node, None),
            Message::HostMetadataUpdate(host) => {
                self.fixed.set_host(&host.hostname, Some(host));
                self.surroundings_dirty |= host.hostname == self.params.hostname;
            }
            Message::HostMetadataRemove(name) => {
                self.fixed.set_host(name, None);
                self.surroundings_dirty |= *name == self.params.hostname;
            }
            Message::IpPoolUpdate(pool) => self.fixed.set_pool(pool.cidr, Some(pool)),
            Message::IpPoolRemove(cidr) => self.fixed.set_pool(*cidr, None),
            Message::Encapsulation(encapsulation) => {
                self.encapsulation = *encapsulation;
                self.surroundings_dirty = true;
            }
            Message::InSync => self.in_sync = true,
        }
    }

    fn set_vtep(&mut self, node: &SmolStr, vtep: Option<&Arc<Vtep>>) {
        self.surroundings_dirty = true;
        for remote in &mut self.remote {
            let version = remote.version();
            let addrs = vtep.and_then(|v| match version {
                IpVersion::V4 => v.v4,
                IpVersion::V6 => v.v6,
            });
            if *node == self.params.hostname {
                match addrs {
                    Some(addrs) => self.own_vteps.insert(version, addrs),
                    None => self.own_vteps.remove(&version),
                };
                continue;
            }
            remote.set_vtep(node, addrs);
            self.fixed.set_vtep(node, version, addrs);
            let peers = self.peers.entry(version).or_default();
            match addrs {
                Some(addrs) => peers.insert(node.clone(), addrs),
                None => peers.remove(node),
            };
        }
    }

    pub(crate) fn on_link_event(&mut self, event: Event, now: Instant) {
        self.relist |= self.links.on_event(event, now);
    }

    pub(crate) fn resync_links(&mut self) {
        self.relist = true;
    }

    pub(crate) fn resync_routes(&mut self) {
        self.planes.iter_mut().for_each(|p| p.routes.resync());
        self.tunnels.iter_mut().for_each(Tunnel::resync);
        self.neighbours.resync();
    }

    pub(crate) fn resync_tables(&mut self) {
        self.planes.iter_mut().for_each(|p| p.filter.resync());
        self.arp.resync();
    }

    /// The kernel as the dataplane reaches it.
    #[cfg(test)]
    pub(crate) fn net_mut(&mut self) -> &mut R {
        &mut self.net
    }

    /// The tables as the dataplane reaches them, and the ARP table.
    #[cfg(test)]
    pub(crate) fn filters_mut(&mut self) -> impl Iterator<Item = &mut NftDataplane<N>> {
        self.planes.iter_mut().map(|p| &mut p.filter).chain([&mut self.arp])
    }

    /// What is programmed: family, tables' sizes, routes, links that are up.
    pub(crate) fn sizes(&self) -> impl Iterator<Item = (IpVersion, Sizes, usize, usize)> {
        self.planes.iter().map(|p| (p.version, p.filter.sizes(), p.routes.len(), p.routes.links_len()))
    }

    pub(crate) fn apply(&mut self, now: Instant) -> ApplyReport {
        let mut report = ApplyReport::default();
        if self.relist {
            self.list_links(now, &mut report);
        }
        if !self.in_sync || !self.links.is_listed() {
            return report;
        }
        report.ran = true;
        self.share_link_changes();
        self.look_around(&mut report);
        self.resolve();
        // A device that is not needed goes while the rules that guard it stand, a new one comes after them.
        self.apply_tunnels(now, false, &mut report);
        self.apply_filters(&mut report);
        self.set_up_node(&mut report);
        self.apply_tunnels(now, true, &mut report);
        let mut refused_parameters = Vec::new();
        report.writes.sysctls += self.workloads.configure(&self.sysctl, &self.links, &mut refused_parameters);
        report.failures.extend(refused_parameters.into_iter().map(Failure::from));
        if !self.params.route_sync_disabled {
            self.apply_routes(now, &mut report);
        }
        self.tell(&mut report);
        if self.links.has_changes() || self.surroundings_dirty {
            report.is_due(now);
        }
        report
    }

    fn list_links(&mut self, now: Instant, report: &mut ApplyReport) {
        let listed = self.net.links().and_then(|links| Ok((links, self.net.addresses(None)?)));
        match listed {
            Ok((links, addresses)) => {
                self.links.list(links, addresses, now);
                self.relist = false;
            }
            Err(e) => report.failures.push(Failure::Links(e)),
        }
    }

    /// Tells everybody whom links concern.
    fn share_link_changes(&mut self) {
        let changes = self.links.take_changes();
        if changes.is_empty() {
            return;
        }
        for (name, change) in &changes {
            let link = self.links.get(name);
            let state = link.map(|l| (l.link.index, l.is_up(), l.since));
            if change.state {
                for plane in &mut self.planes {
                    plane.routes.on_link(name, state, change.interrupted);
                }
                let up = link.filter(|l| l.is_up()).map(|l| l.link.index);
                self.neighbours.on_link(name, up, change.interrupted);
                self.workloads.on_link(name, *change);
            }
            if !self.owner.is_workload(name) {
                self.surroundings_dirty = true;
                if change.state || change.addrs {
                    self.hosts.on_links();
                }
                let tunnel = self.tunnels.iter_mut().find(|t| t.name() == name.as_str());
                if let Some(tunnel) = tunnel {
                    tunnel.resync();
                }
            }
        }
    }

    /// Works out what tunnels, and all that depends on them, should be.
    fn look_around(&mut self, report: &mut ApplyReport) {
        if !std::mem::take(&mut self.surroundings_dirty) {
            return;
        }
        let own: BTreeSet<IpAddr> = self
            .links
            .iter()
            .filter(|(name, _)| !self.owner.is_workload(name))
            .flat_map(|(_, l)| &l.addrs)
            // All of the loopback network is local; its own address stands for the rest.
            .flat_map(|c| [c.addr(), if c.addr().is_loopback() { c.masked().addr() } else { c.addr() }])
            .collect();
        self.fixed.set_own_addrs(own);
        let node_mtu = mtu::of_node(&self.links, &self.mtu_pattern);
        let mut smallest = node_mtu;
        let mut rules = (*self.rules).clone();
        for ((tunnel, remote), plane) in self.tunnels.iter_mut().zip(&mut self.remote).zip(&self.planes) {
            let version = plane.version;
            let (enabled, configured) = match version {
                IpVersion::V4 => {
                    (self.params.vxlan_enabled.unwrap_or(self.encapsulation.vxlan), self.params.vxlan_mtu.0)
                }
                IpVersion::V6 => (self.encapsulation.vxlan_v6, self.params.vxlan_mtu.1),
            };
            let vxlan_mtu = mtu::of_vxlan(node_mtu, version, configured);
            let own = self.own_vteps.get(&version).copied();
            tunnel.set(enabled, own, vxlan_mtu);
            let device = SmolStr::new_static(tunnel.name());
            let node_addr =
                own.map(|v| v.parent).or_else(|| self.fixed.host_addr(&self.params.hostname, version));
            let parent = node_addr.and_then(|a| self.links.with_address(a)).map(|(name, _)| name.clone());
            remote.set_local(Local {
                parent,
                vxlan: enabled.then(|| device.clone()),
                vxlan_mtu,
                no_encap: self.params.program_routes.no_encap,
            });
            let in_rules = match version {
                IpVersion::V4 => &mut rules.vxlan_v4,
                IpVersion::V6 => &mut rules.vxlan_v6,
            };
            *in_rules = RuleTunnel { enabled, address: own.map(|v| v.tunnel) };
            if enabled {
                smallest = smallest.min(vxlan_mtu);
                let peers = self.peers.get(&version).into_iter().flat_map(|p| p.values());
                let neighbours: BTreeMap<IpAddr, Mac> = peers.clone().map(|v| (v.tunnel, v.mac)).collect();
                self.neighbours.set_neighbours(&device, neighbours);
                self.neighbours.set_fdb(&device, peers.map(|v| (v.mac, v.parent)).collect());
            } else {
                self.neighbours.remove(&device);
            }
        }
        self.publish_mtu(smallest);
        if rules != *self.rules {
            let rules = Arc::new(rules);
            for plane in &mut self.planes {
                if let Err(e) = plane.reconfigure(&rules) {
                    report.failures.push(e.into());
                }
            }
            self.rules = rules;
            self.fixed_chains_dirty = true;
            self.fixed.chains_changed();
        }
    }

    fn publish_mtu(&mut self, mtu: u32) {
        let Some(path) = self.mtu_file.as_ref().filter(|_| self.mtu_published != Some(mtu)) else { return };
        if mtu::publish(path, mtu) {
            self.mtu_published = Some(mtu);
        } else {
            tracing::debug!(file = %path.display(), "The MTU for workloads cannot be written there");
            self.mtu_file = None;
        }
    }

    /// Hands wishes to tables.
    fn resolve(&mut self) {
        let planes = &mut self.planes;
        if std::mem::take(&mut self.fixed_chains_dirty) {
            for plane in planes.iter_mut() {
                let mut chains = plane.renderer.static_chains();
                chains.push(plane.renderer.service_loop_chain(&[]));
                plane.give(&SmolStr::new_static("fixed"), &chains, &[]);
                plane.filter.set_base_chains(nft::base_chains(&plane.renderer.hooks()));
            }
        }
        if self.fixed.resolve(planes) {
            for plane in planes.iter_mut() {
                let chain = plane.renderer.nat_outgoing_chain(self.fixed.needs_nat(plane.version));
                plane.give(&SmolStr::new_static("nat-outgoing"), &[chain], &[]);
            }
        }
        let selectors = self.policies.take_new_selectors();
        if !selectors.is_empty() {
            self.workloads.on_selectors(&selectors);
            self.hosts.on_selectors(&selectors);
        }
        self.policies.resolve(planes);
        self.workloads.resolve(planes, &mut self.arp, &mut self.neighbours, &self.policies);
        self.hosts.resolve(planes, &self.links, &self.policies, &|name| self.owner.is_workload(name));
        for (remote, plane) in self.remote.iter_mut().zip(planes) {
            remote.resolve(&mut plane.routes);
        }
    }

    fn apply_filters(&mut self, report: &mut ApplyReport) {
        // The first time there may be much to do, so that the families do it side by side. The threads are in this
        // one's network namespace.
        let at_once = self.planes.iter().any(|p| !p.guarded);
        let filters = self.planes.iter_mut().map(|p| &mut p.filter).chain([&mut self.arp]);
        let results: Vec<_> = if at_once {
            std::thread::scope(|scope| {
                let threads: Vec<_> = filters.map(|f| scope.spawn(|| (f.family(), f.apply()))).collect();
                let joined = threads.into_iter().map(std::thread::ScopedJoinHandle::join);
                joined.map(|r| r.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
            })
        } else {
            filters.map(|f| (f.family(), f.apply())).collect()
        };
        let mut refused = HashSet::new();
        for (family, result) in results {
            let table = family.name();
            match result {
                Ok(done) => {
                    if let Some(plane) = self.planes.iter_mut().find(|p| Family::Ip(p.version) == family) {
                        plane.guarded = true;
                    }
                    report.writes.transactions += done.transactions;
                    report.repaired += done.repaired;
                    for pending in done.pending {
                        report.refused.push(pending.what.clone());
                        let key = (table, pending.what);
                        if !self.refused.contains(&key) {
                            tracing::warn!(table, what = %key.1, reason = %pending.reason, "nftables refused a part");
                        }
                        refused.insert(key);
                    }
                }
                Err(source) => report.failures.push(Failure::Nft { table, source }),
            }
        }
        self.refused = refused;
    }

    /// The node forwards packets only once there are rules.
    fn set_up_node(&mut self, report: &mut ApplyReport) {
        if self.node_set_up || self.planes.iter().any(|p| !p.guarded) {
            return;
        }
        let ipv6 = self.planes.iter().any(|p| p.version == IpVersion::V6);
        match sysctls::node(&self.sysctl, self.params.ip_forwarding, ipv6) {
            Ok(count) => {
                report.writes.sysctls += count;
                self.node_set_up = true;
            }
            Err(e) => report.failures.push(e.into()),
        }
    }

    /// Looks after the tunnel devices that should be there, or after those that should not.
    fn apply_tunnels(&mut self, now: Instant, enabled: bool, report: &mut ApplyReport) {
        if self.params.route_sync_disabled || (enabled && self.planes.iter().any(|p| !p.guarded)) {
            return;
        }
        for tunnel in self.tunnels.iter_mut().filter(|t| t.is_enabled() == enabled) {
            match tunnel.apply(&mut self.net, &mut self.links, now) {
                Ok(done) => {
                    report.writes.devices += done.written;
                    report.waiting.extend(done.waits);
                }
                Err(source) => report.failures.push(Failure::Tunnel { device: tunnel.name(), source }),
            }
        }
        // Routes and neighbours need to know the devices now.
        self.share_link_changes();
    }

    fn apply_routes(&mut self, now: Instant, report: &mut ApplyReport) {
        match self.neighbours.apply(&mut self.net) {
            Ok(done) => {
                report.writes.neighbours += done.written;
                report.failures.extend(done.failures.into_iter().map(Failure::Neighbours));
            }
            Err(e) => report.failures.push(Failure::Neighbours(e)),
        }
        for plane in self.planes.iter_mut().filter(|p| p.guarded) {
            let version = plane.version;
            match plane.routes.apply(&mut self.net, now) {
                Ok(done) => {
                    report.writes.routes += done.written;
                    report.repaired += done.repaired;
                    if let Some(at) = done.due {
                        report.is_due(at);
                    }
                    report.times.full_reads.extend(done.full_read);
                    report.times.partial_reads.extend(done.partial_read);
                    report.times.conntrack.extend(done.conntrack);
                    let failures = done.failures.into_iter();
                    report.failures.extend(failures.map(|source| Failure::Routes { version, source }));
                }
                Err(source) => report.failures.push(Failure::Routes { version, source }),
            }
        }
    }

    /// Tells the CNI plugin.
    fn tell(&mut self, report: &mut ApplyReport) {
        let Some(files) = &mut self.status else { return };
        if self.planes.iter().any(|p| !p.guarded) {
            return;
        }
        let refused: HashSet<String> = report
            .refused
            .iter()
            .map(|what| what.strip_prefix("chain ").unwrap_or(what).to_owned())
            .collect();
        self.workloads.report(&self.links, &self.planes, &refused, files);
        match files.apply() {
            Ok(count) => report.writes.files += count,
            Err(e) => report.failures.push(e.into()),
        }
    }
}
