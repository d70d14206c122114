//! The graph: takes changes of the datastore, keeps what follows from them, and tells the dataplane at a flush.
//!
//! Owns: the wiring of the parts and the order of messages. In: [`Update`]s and [`SyncStatus`]. Out: [`Message`]s
//! in upstream's order (sets, policies and profiles, endpoints; removals the other way round; then routes,
//! tunnels, nodes, pools). Invariants: nothing leaves before everything was read once; what the dataplane holds
//! after a flush depends only on the last value of each key, not on the way there.

use std::collections::BTreeMap;
use std::net::IpAddr;

use calico_api::{Kind, Node, Resource as _};
use calico_dpmsg::{EndpointId, HostEndpointId, Message, WorkloadEndpointId};
use calico_model::policy as model;
use calico_model::{Key, SyncStatus, Update, Value, WorkloadEndpointKey};
use calico_net::{Cidr, IpVersion, Mac};
use smol_str::SmolStr;

use crate::hosts::{Hosts, NodeFacts};
use crate::items::{Change, ItemInput, ItemName, Items, hosts};
use crate::locals::{Endpoint, Locals};
use crate::policies::Policies;
use crate::pools::{EncapSettings, Pools, facts};
use crate::problem::{Findings, Problem, Reason};
use crate::profiles::Profiles;
use crate::routes::{RouteSource, Routes, Use};
use crate::rules::RuleStore;
use crate::sets::Sets;

/// What a graph must know of its node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CalcConfig {
    /// Name of this node.
    pub hostname: SmolStr,
    /// The dataplane's sets take members that overlap (`ipset` does, nftables does not). Where false, a member
    /// inside another one is not told.
    pub overlapping_members: bool,
    /// Workloads may ask for source addresses beyond their own (`WorkloadSourceSpoofing: Any`).
    pub source_spoofing: bool,
    /// Where workload routes come from; `None` if nobody needs routes.
    pub routes: Option<RouteSource>,
    /// Tell of VXLAN tunnel endpoints.
    pub vxlan: bool,
    /// Settings about encapsulation.
    pub encap: EncapSettings,
}

impl CalcConfig {
    /// The defaults for a node: no overlaps, no spoofing, routes from allocation blocks, tunnel endpoints.
    pub fn new(hostname: impl Into<SmolStr>) -> Self {
        Self {
            hostname: hostname.into(),
            overlapping_members: false,
            source_spoofing: false,
            routes: Some(RouteSource::CalicoIpam),
            vxlan: true,
            encap: EncapSettings::default(),
        }
    }
}

/// Sizes of what a graph holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Endpoints of all nodes and network sets.
    pub items: usize,
    /// Endpoints of this node.
    pub local_endpoints: usize,
    /// Policies of the cluster.
    pub policies: usize,
    /// Tiers.
    pub tiers: usize,
    /// Policies that apply here.
    pub active_policies: usize,
    /// Profiles that endpoints of this node name.
    pub active_profiles: usize,
    /// IP sets.
    pub ip_sets: usize,
    /// Nodes.
    pub nodes: usize,
}

/// From datastore changes to dataplane messages; see the crate's documentation.
#[derive(Debug)]
pub struct CalcGraph {
    config: CalcConfig,
    items: Items,
    store: RuleStore,
    sets: Sets,
    policies: Policies,
    profiles: Profiles,
    locals: Locals,
    routes: Option<Routes>,
    hosts: Hosts,
    pools: Pools,
    problems: BTreeMap<Key, Vec<Problem>>,
    in_sync: bool,
    told_in_sync: bool,
    ready: Option<bool>,
    told_not_ready: bool,
}

// === impl CalcGraph ===

impl CalcGraph {
    /// An empty graph.
    pub fn new(config: CalcConfig) -> Self {
        Self {
            items: Items::default(),
            store: RuleStore::default(),
            sets: Sets::new(config.overlapping_members),
            policies: Policies::default(),
            profiles: Profiles::default(),
            locals: Locals::default(),
            routes: config.routes.map(|source| Routes::new(config.hostname.clone(), source)),
            hosts: Hosts::new(config.vxlan),
            pools: Pools::new(config.encap),
            problems: BTreeMap::new(),
            in_sync: false,
            told_in_sync: false,
            ready: None,
            told_not_ready: false,
            config,
        }
    }

    /// Notes how far the syncer has got. Once in sync, a graph stays so: a syncer that starts over sends what
    /// changed meanwhile.
    pub fn on_status(&mut self, status: SyncStatus) {
        self.in_sync |= status == SyncStatus::InSync;
    }

    /// Takes a change. Duplicates, deletions of unknown keys and values that are of no use are all fine; the
    /// latter count as deletions and are listed in [`CalcGraph::problems`].
    pub fn on_update(&mut self, update: &Update) {
        let key = &update.kv.key;
        let mut found = Findings::default();
        self.dispatch(key, update.kv.value.as_ref(), &mut found);
        if found.0.is_empty() {
            if !self.problems.is_empty() {
                self.problems.remove(key);
            }
        } else {
            let problem = |(field, reason)| Problem { object: key.clone(), field, reason };
            self.problems.insert(key.clone(), found.0.into_iter().map(problem).collect());
        }
    }

    fn dispatch(&mut self, key: &Key, value: Option<&Value>, found: &mut Findings) {
        /// Takes the value out if it is of the kind that belongs to the key.
        macro_rules! take {
            ($variant:ident) => {
                match value {
                    Some(Value::$variant(v)) => Some(v),
                    Some(_) => {
                        found.add("", Reason::WrongValue);
                        None
                    }
                    None => None,
                }
            };
        }
        match key {
            Key::WorkloadEndpoint(id) => {
                let endpoint = take!(WorkloadEndpoint).filter(|e| self.usable(e, found));
                self.put_workload(id, endpoint);
            }
            Key::HostEndpoint { host, endpoint } => {
                let value = take!(HostEndpoint);
                self.put_host_endpoint(host, endpoint, value);
            }
            Key::NetworkSet(name) => {
                let value = take!(NetworkSet);
                self.put_network_set(name, value.map(|v| &**v));
            }
            Key::Policy(id) => {
                let value = take!(Policy);
                self.policies.put(id, value.map(|v| &**v), &mut self.store, found);
            }
            Key::Tier(name) => {
                let value = take!(Tier);
                if self.policies.put_tier(name, value, found) {
                    self.locals.tiers_changed();
                }
            }
            Key::ProfileRules(name) => {
                let value = take!(ProfileRules);
                self.profiles.put(name, value.map(|v| &**v), &mut self.store, found);
            }
            Key::ProfileLabels(name) => {
                let value = take!(ProfileLabels);
                for item in self.items.set_profile_labels(name, value.map(|v| &**v)) {
                    self.sets.item_changed(&mut self.items, item, None);
                    self.locals.relabelled(item);
                }
            }
            Key::IpPool(cidr) => {
                let value = take!(IpPool);
                self.pools.put(*cidr, value.map(|v| &**v));
                if let Some(routes) = &mut self.routes {
                    routes.put_pool(*cidr, value.map(|v| facts(v)));
                }
            }
            Key::Block(cidr) => {
                let value = take!(Block);
                if let Some(routes) = &mut self.routes {
                    routes.put_block(*cidr, value.map(|v| &**v));
                }
            }
            Key::Resource(id) if id.kind == Kind::Node => {
                let node = take!(Resource).and_then(|any| {
                    let node = Node::from_any_ref(any);
                    if node.is_none() {
                        found.add("", Reason::WrongValue);
                    }
                    node
                });
                self.put_node(&id.name, node, found);
            }
            Key::HostConfig { host, name } => {
                let value = take!(Text);
                self.put_host_setting(host, name, value, found);
            }
            Key::HostIp(host) => {
                let addr = take!(Text).and_then(|text| address(text, "", found));
                self.hosts.put_legacy(host, addr);
            }
            Key::Wireguard(host) => {
                let value = take!(Wireguard);
                if let Some(routes) = &mut self.routes {
                    let (v4, v6) = value.map_or((None, None), |w| (w.interface_ipv4, w.interface_ipv6));
                    routes.put_tunnel(host, Use::Wireguard, IpVersion::V4, v4);
                    routes.put_tunnel(host, Use::Wireguard, IpVersion::V6, v6);
                }
            }
            Key::ReadyFlag => match take!(Bool) {
                Some(ready) => self.ready = Some(*ready),
                // Gone counts as not ready, never seen as not known.
                None => self.ready = self.ready.map(|_| false),
            },
            _ => {}
        }
    }

    /// What is wrong with the inputs as they are now, in order of keys. Missing profiles and tiers are those that
    /// mattered at the last flush.
    pub fn problems(&self) -> Vec<Problem> {
        let missing = |object, reason| Problem { object, field: SmolStr::default(), reason };
        let profiles = self.profiles.missing().cloned();
        let profiles = profiles.map(|name| missing(Key::ProfileRules(name), Reason::ProfileMissing));
        let tiers = self.policies.missing_tiers().into_iter();
        let tiers = tiers.map(|name| missing(Key::Tier(name), Reason::TierMissing));
        self.problems.values().flatten().cloned().chain(profiles).chain(tiers).collect()
    }

    /// Sizes of what the graph holds now.
    pub fn counts(&self) -> Counts {
        let (policies, tiers) = self.policies.counts();
        Counts {
            items: self.items.len(),
            local_endpoints: self.locals.len(),
            policies,
            tiers,
            active_policies: self.policies.ranked().len(),
            active_profiles: self.profiles.active(),
            ip_sets: self.sets.len(),
            nodes: self.hosts.len(),
        }
    }
}

// === impl CalcGraph: inputs ===

impl CalcGraph {
    fn usable(&self, endpoint: &model::WorkloadEndpoint, found: &mut Findings) -> bool {
        if endpoint.interface_name.is_empty() {
            found.add("interfaceName", Reason::InterfaceMissing);
            return false;
        }
        if !endpoint.allow_spoofed_source_prefixes.is_empty() && !self.config.source_spoofing {
            found.add("allowSpoofedSourcePrefixes", Reason::SpoofingForbidden);
            return false;
        }
        true
    }

    fn put_workload(
        &mut self,
        id: &WorkloadEndpointKey,
        endpoint: Option<&std::sync::Arc<model::WorkloadEndpoint>>,
    ) {
        let name = ItemName::Workload(id);
        let nets = || {
            let e = endpoint.into_iter();
            e.flat_map(|e| e.ipv4_nets.iter().chain(&e.ipv6_nets)).map(|net| Cidr::host(net.addr()))
        };
        let input = endpoint.map(|e| ItemInput {
            labels: &e.labels,
            profiles: &e.profile_ids,
            nets: nets().collect(),
            ports: &e.ports,
        });
        if let Some(routes) = &mut self.routes
            && endpoint.is_none()
            && let Some(item) = self.items.find(name)
        {
            routes.put_workload(item, &id.host, std::iter::empty());
        }
        let item = self.put_item(name, input);
        if let (Some(routes), Some(item)) = (&mut self.routes, item) {
            routes.put_workload(item, &id.host, nets());
        }
        if id.host == self.config.hostname {
            let local = EndpointId::Workload(WorkloadEndpointId {
                orchestrator: id.orchestrator.clone(),
                workload: id.workload.clone(),
                endpoint: id.endpoint.clone(),
            });
            self.put_local(local, item, endpoint.cloned().map(Endpoint::Workload));
        }
    }

    fn put_host_endpoint(
        &mut self,
        host: &SmolStr,
        endpoint: &SmolStr,
        value: Option<&std::sync::Arc<model::HostEndpoint>>,
    ) {
        let input = value.map(|e| ItemInput {
            labels: &e.labels,
            profiles: &e.profile_ids,
            nets: hosts(&e.expected_ips),
            ports: &e.ports,
        });
        let item = self.put_item(ItemName::Host { host, endpoint }, input);
        if *host == self.config.hostname {
            let local = EndpointId::Host(HostEndpointId(endpoint.clone()));
            self.put_local(local, item, value.cloned().map(Endpoint::Host));
        }
    }

    fn put_network_set(&mut self, name: &SmolStr, value: Option<&model::NetworkSet>) {
        // A whole family does not fit into one member of every kind of set; its two halves do.
        let halves = |net: &Cidr| match net.halves() {
            Some(halves) if net.is_default() => halves.to_vec(),
            _ => vec![net.masked()],
        };
        let input = value.map(|s| ItemInput {
            labels: &s.labels,
            profiles: &s.profile_ids,
            nets: s.nets.iter().flat_map(halves).collect(),
            ports: &[],
        });
        self.put_item(ItemName::Set(name), input);
    }

    /// Puts or removes an item. Returns its number if it is there.
    fn put_item(&mut self, name: ItemName<'_>, input: Option<ItemInput<'_>>) -> Option<u32> {
        match input {
            Some(input) => {
                if let Change::Put(item, before) = self.items.put(name, input) {
                    self.sets.item_changed(&mut self.items, item, before);
                    self.locals.relabelled(item);
                }
                self.items.find(name)
            }
            None => {
                let (item, before) = self.items.clear(name)?;
                self.sets.item_gone(&mut self.items, item, before);
                self.items.drop_item(item);
                None
            }
        }
    }

    fn put_local(&mut self, id: EndpointId, item: Option<u32>, endpoint: Option<Endpoint>) {
        fn profiles(e: &Endpoint) -> &[SmolStr] {
            match e {
                Endpoint::Workload(e) => &e.profile_ids,
                Endpoint::Host(e) => &e.profile_ids,
            }
        }
        for name in endpoint.as_ref().map(profiles).unwrap_or_default() {
            self.profiles.mention(name, true);
        }
        let old = match (item, endpoint) {
            (Some(item), Some(endpoint)) => self.locals.put(id, item, endpoint),
            _ => self.locals.remove(&id),
        };
        for name in old.as_ref().map(profiles).unwrap_or_default() {
            self.profiles.mention(name, false);
        }
    }

    fn put_node(&mut self, name: &SmolStr, node: Option<&Node>, found: &mut Findings) {
        let node =
            node.map(|n| NodeFacts::of(n, |field, text| found.add(field, Reason::Address(text.into()))));
        if let Some(routes) = &mut self.routes {
            routes.put_node(name, node.as_ref().map(|n| (n.addresses, n.all.clone())));
        }
        self.hosts.put_node(name, node);
    }

    fn put_host_setting(
        &mut self,
        host: &SmolStr,
        name: &SmolStr,
        value: Option<&SmolStr>,
        found: &mut Findings,
    ) {
        let (version, tunnel) = match name.as_str() {
            "IpInIpTunnelAddr" => (IpVersion::V4, Some(Use::Ipip)),
            "IPv4VXLANTunnelAddr" => (IpVersion::V4, Some(Use::Vxlan)),
            "IPv6VXLANTunnelAddr" => (IpVersion::V6, Some(Use::Vxlan)),
            "VXLANTunnelMACAddr" => (IpVersion::V4, None),
            "VXLANTunnelMACAddrV6" => (IpVersion::V6, None),
            // The agent's own settings are not the graph's.
            _ => return,
        };
        let value = value.filter(|text| !text.is_empty());
        let Some(tunnel) = tunnel else {
            let mac = value.and_then(|text| match text.parse::<Mac>() {
                Ok(mac) => Some(mac),
                Err(_) => {
                    found.add("", Reason::Address(text.clone()));
                    None
                }
            });
            self.hosts.put_vxlan_mac(host, version, mac);
            return;
        };
        let addr = value.and_then(|text| address(text, "", found)).filter(|a| IpVersion::of(*a) == version);
        if let Some(routes) = &mut self.routes {
            routes.put_tunnel(host, tunnel, version, addr);
        }
        if tunnel == Use::Vxlan {
            self.hosts.put_vxlan_addr(host, version, addr);
        }
    }
}

fn address(text: &SmolStr, field: &str, found: &mut Findings) -> Option<IpAddr> {
    match Cidr::parse(text) {
        Ok(cidr) => Some(cidr.addr()),
        Err(_) => {
            found.add(field, Reason::Address(text.clone()));
            None
        }
    }
}

// === impl CalcGraph: output ===

impl CalcGraph {
    /// Tells what changed since the last flush. Nothing before the syncer was in sync, except that the store says
    /// that it is not ready.
    pub fn flush(&mut self) -> Vec<Message> {
        let mut messages = Vec::new();
        self.flush_into(&mut |message| messages.push(message));
        messages
    }

    /// As [`CalcGraph::flush`], one message at a time: large clusters make large messages.
    pub fn flush_into(&mut self, out: &mut dyn FnMut(Message)) {
        let not_ready = self.ready == Some(false);
        if not_ready && !self.told_not_ready {
            out(Message::DatastoreNotReady);
        }
        self.told_not_ready = not_ready;
        if !self.in_sync {
            return;
        }

        let changed = self.policies.refile(&mut self.items, &mut self.store);
        self.locals.rematch(&self.items, &mut self.policies, &mut self.store, &changed);
        let mut settled = self.policies.settle(&mut self.store, &mut self.sets);
        let (profile_updates, profile_removes) = self.profiles.flush(&mut self.store, &mut self.sets);
        self.sets.fill(&mut self.items);

        self.sets.emit_updates(out);
        std::mem::take(&mut settled.updates).into_iter().for_each(&mut *out);
        profile_updates.into_iter().for_each(&mut *out);
        self.locals.emit(&self.policies, &settled.moved, out);
        profile_removes.into_iter().for_each(&mut *out);
        std::mem::take(&mut settled.removes).into_iter().for_each(&mut *out);
        self.sets.emit_removes(&mut self.items, out);
        self.policies.bury(&settled);

        let (route_removes, route_updates) = self.routes.as_mut().map(Routes::flush).unwrap_or_default();
        let hosts = self.hosts.flush();
        let (pool_removes, pool_updates, encap) = self.pools.flush();
        let lists = [
            route_removes,
            hosts.vtep_removes,
            hosts.vtep_updates,
            route_updates,
            hosts.metadata_removes,
            hosts.metadata_updates,
            pool_removes,
            pool_updates,
        ];
        lists.into_iter().flatten().chain(encap).for_each(&mut *out);
        if !std::mem::replace(&mut self.told_in_sync, true) {
            out(Message::InSync);
        }
    }
}

#[cfg(test)]
mod tests;
