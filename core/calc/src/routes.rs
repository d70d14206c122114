//! Routes: what each destination in the cluster is, and on which node.
//!
//! Owns: one map of CIDRs per family that holds pools, allocation blocks, addresses of nodes, tunnels and
//! workloads. In: changes of those. Out, at a flush: routes that changed and destinations that lost their meaning.
//! A destination's route is made from the entries on the way from the shortest prefix to its own: pools say how
//! traffic travels, a block names the node, an entry of the very CIDR decides.
//! Invariant after a flush: the dataplane has exactly the routes that a fresh look at the map gives.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use calico_dpmsg::{Message, PoolType, Route, RouteTypes, TunnelKind};
use calico_model::ipam::AllocationBlock;
use calico_net::intern::{Id, StrInterner};
use calico_net::lpm::LpmMap;
use calico_net::{Cidr, IpVersion};
use rustc_hash::{FxHashMap, FxHashSet};
use smol_str::SmolStr;

use crate::items::ItemId;
use crate::nets::{Nets, diff};

/// Where workload routes come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum RouteSource {
    /// Allocation blocks, and the workloads of this node.
    #[default]
    CalicoIpam,
    /// The workloads of all nodes.
    WorkloadIps,
}

/// Why a node is named at a CIDR. The order decides among several of one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Use {
    Block,
    Host,
    Workload,
    Wireguard,
    Ipip,
    Vxlan,
}

/// A pool as routes see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PoolFacts {
    pub(crate) kind: PoolType,
    pub(crate) nat_outgoing: bool,
    pub(crate) cross_subnet: bool,
}

/// A node as routes see it: address with prefix length per family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct NodeAddresses {
    pub(crate) v4: Option<Cidr>,
    pub(crate) v6: Option<Cidr>,
}

impl NodeAddresses {
    fn of(&self, version: IpVersion) -> Option<Cidr> {
        match version {
            IpVersion::V4 => self.v4,
            IpVersion::V6 => self.v6,
        }
    }
}

#[derive(Debug, Default)]
struct Entry {
    pool: Option<PoolFacts>,
    uses: Vec<NodeUse>,
}

#[derive(Debug)]
struct NodeUse {
    node: Id,
    what: Use,
    count: u32,
}

/// The resolver.
#[derive(Debug)]
pub(crate) struct Routes {
    source: RouteSource,
    me: SmolStr,
    map: LpmMap<Entry>,
    names: StrInterner,
    nodes: FxHashMap<SmolStr, NodeAddresses>,
    /// Host routes of each node.
    hosts: FxHashMap<SmolStr, BTreeSet<IpAddr>>,
    /// CIDRs whose entries name a node, to look at again when its address changes.
    named: FxHashMap<Id, BTreeMap<Cidr, u32>>,
    blocks: FxHashMap<Cidr, BTreeSet<(Cidr, SmolStr)>>,
    workloads: FxHashMap<ItemId, (SmolStr, Nets)>,
    tunnels: FxHashMap<(SmolStr, Use, IpVersion), IpAddr>,
    dirty: FxHashSet<Cidr>,
    all_dirty: bool,
    sent: FxHashMap<Cidr, Arc<Route>>,
}

// === impl Routes: inputs ===

impl Routes {
    /// An empty resolver for the node `me`.
    pub(crate) fn new(me: SmolStr, source: RouteSource) -> Self {
        Self {
            source,
            me,
            map: LpmMap::new(),
            names: StrInterner::new(),
            nodes: FxHashMap::default(),
            hosts: FxHashMap::default(),
            named: FxHashMap::default(),
            blocks: FxHashMap::default(),
            workloads: FxHashMap::default(),
            tunnels: FxHashMap::default(),
            dirty: FxHashSet::default(),
            all_dirty: false,
            sent: FxHashMap::default(),
        }
    }

    /// Sets or removes a pool.
    pub(crate) fn put_pool(&mut self, cidr: Cidr, pool: Option<PoolFacts>) {
        let cidr = cidr.masked();
        let had = self.map.get(&cidr).and_then(|e| e.pool);
        if had == pool {
            return;
        }
        self.map.get_or_insert_with(cidr, Entry::default).pool = pool;
        self.soil_inside(cidr);
        self.drop_if_empty(cidr);
    }

    /// Sets or removes an allocation block.
    pub(crate) fn put_block(&mut self, cidr: Cidr, block: Option<&AllocationBlock>) {
        if self.source != RouteSource::CalicoIpam {
            return;
        }
        let cidr = cidr.masked();
        let new = block.map(|b| block_routes(cidr, b)).unwrap_or_default();
        let old = self.blocks.remove(&cidr).unwrap_or_default();
        let mut turned = Vec::new();
        diff(&old, &new, |(cidr, node), comes| turned.push((*cidr, node.clone(), comes)));
        for (cidr, node, comes) in turned {
            self.count(cidr, &node, Use::Block, comes);
            self.soil_inside(cidr);
        }
        if !new.is_empty() {
            self.blocks.insert(cidr, new);
        }
    }

    /// Sets or removes a node's addresses: those that others reach it by, and all that it has.
    pub(crate) fn put_node(&mut self, name: &SmolStr, node: Option<(NodeAddresses, BTreeSet<IpAddr>)>) {
        let (addresses, hosts) = node.map_or((None, BTreeSet::new()), |(a, h)| (Some(a), h));
        let old = match addresses {
            Some(addresses) => self.nodes.insert(name.clone(), addresses),
            None => self.nodes.remove(name),
        };
        if old.unwrap_or_default() != addresses.unwrap_or_default() {
            if *name == self.me {
                // Whether any other node is on our subnet may have changed.
                self.all_dirty = true;
            }
            if let Some(named) = self.names.find(name.as_str()).and_then(|id| self.named.get(&id)) {
                self.dirty.extend(named.keys());
            }
        }
        let old = self.hosts.remove(name).unwrap_or_default();
        diff(&old, &hosts, |&addr, comes| self.count(Cidr::host(addr), name, Use::Host, comes));
        if !hosts.is_empty() {
            self.hosts.insert(name.clone(), hosts);
        }
    }

    /// Sets or removes a node's tunnel address of one kind and family.
    pub(crate) fn put_tunnel(&mut self, name: &SmolStr, what: Use, version: IpVersion, addr: Option<IpAddr>) {
        let key = (name.clone(), what, version);
        let old = match addr {
            Some(addr) => self.tunnels.insert(key, addr),
            None => self.tunnels.remove(&key),
        };
        if old == addr {
            return;
        }
        if let Some(addr) = addr {
            self.count(Cidr::host(addr), name, what, true);
        }
        if let Some(old) = old {
            self.count(Cidr::host(old), name, what, false);
        }
    }

    /// Sets or removes a workload's addresses. Workloads of other nodes count only where routes come from them.
    pub(crate) fn put_workload(&mut self, item: ItemId, node: &SmolStr, nets: impl Iterator<Item = Cidr>) {
        let wanted = self.source == RouteSource::WorkloadIps || *node == self.me;
        let new = if wanted { Nets::new(nets.collect()) } else { Nets::None };
        let (old_node, old) = self.workloads.remove(&item).unwrap_or_else(|| (node.clone(), Nets::None));
        new.iter().for_each(|cidr| self.count(cidr, node, Use::Workload, true));
        old.iter().for_each(|cidr| self.count(cidr, &old_node, Use::Workload, false));
        if new != Nets::None {
            self.workloads.insert(item, (node.clone(), new));
        }
    }

    /// Counts a use of `cidr` by a node that comes or goes.
    fn count(&mut self, cidr: Cidr, node: &SmolStr, what: Use, comes: bool) {
        let cidr = cidr.masked();
        if cidr.is_host() && cidr.addr().is_unspecified() {
            return;
        }
        self.dirty.insert(cidr);
        if comes {
            let id = self.names.acquire(node.as_str());
            *self.named.entry(id).or_default().entry(cidr).or_insert(0) += 1;
            let uses = &mut self.map.get_or_insert_with(cidr, Entry::default).uses;
            match uses.iter_mut().find(|u| u.node == id && u.what == what) {
                Some(u) => u.count += 1,
                None => uses.push(NodeUse { node: id, what, count: 1 }),
            }
            return;
        }
        let Some(id) = self.names.find(node.as_str()) else { return };
        let Some(entry) = self.map.get_mut(&cidr) else { return };
        let Some(at) = entry.uses.iter().position(|u| u.node == id && u.what == what) else { return };
        entry.uses[at].count -= 1;
        if entry.uses[at].count == 0 {
            entry.uses.swap_remove(at);
        }
        if let Some(named) = self.named.get_mut(&id) {
            if let Some(count) = named.get_mut(&cidr) {
                *count -= 1;
                if *count == 0 {
                    named.remove(&cidr);
                }
            }
            if named.is_empty() {
                self.named.remove(&id);
            }
        }
        self.names.release(id);
        self.drop_if_empty(cidr);
    }

    fn soil_inside(&mut self, cidr: Cidr) {
        self.dirty.insert(cidr);
        self.dirty.extend(self.map.within(&cidr).map(|(inside, _)| inside));
    }

    fn drop_if_empty(&mut self, cidr: Cidr) {
        if self.map.get(&cidr).is_some_and(|e| e.pool.is_none() && e.uses.is_empty()) {
            self.map.remove(&cidr);
        }
    }
}

// === impl Routes: output ===

impl Routes {
    /// What changed: removals and updates, each in order of CIDRs.
    pub(crate) fn flush(&mut self) -> (Vec<Message>, Vec<Message>) {
        if std::mem::take(&mut self.all_dirty) {
            self.dirty.extend(self.map.keys());
        }
        let mut dirty: Vec<Cidr> = std::mem::take(&mut self.dirty).into_iter().collect();
        dirty.sort_unstable();
        let (mut removes, mut updates) = (Vec::new(), Vec::new());
        for cidr in dirty {
            match self.resolve(cidr) {
                None => {
                    if self.sent.remove(&cidr).is_some() {
                        removes.push(Message::RouteRemove(cidr));
                    }
                }
                Some(route) => {
                    if self.sent.get(&cidr).is_some_and(|sent| **sent == route) {
                        continue;
                    }
                    let route = Arc::new(route);
                    self.sent.insert(cidr, route.clone());
                    updates.push(Message::RouteUpdate(route));
                }
            }
        }
        (removes, updates)
    }

    /// The route of a destination; `None` if it has no entry of its own.
    fn resolve(&self, cidr: Cidr) -> Option<Route> {
        self.map.get(&cidr)?;
        let mut found = Resolution {
            routes: self,
            node: None,
            block: None,
            exact_block: false,
            cross: false,
            route: blank(cidr),
        };
        for (at, entry) in self.map.covering(&cidr) {
            found.step(entry, at == cidr);
        }
        Some(found.finish())
    }

    fn name(&self, id: Id) -> &str {
        self.names.get(id).map_or("", SmolStr::as_str)
    }
}

/// A route in the making.
struct Resolution<'a> {
    routes: &'a Routes,
    node: Option<Id>,
    block: Option<Id>,
    exact_block: bool,
    cross: bool,
    route: Route,
}

// === impl Resolution ===

impl Resolution<'_> {
    fn step(&mut self, entry: &Entry, exact: bool) {
        if let Some(pool) = entry.pool {
            if pool.kind != PoolType::None {
                self.route.pool_type = pool.kind;
            }
            self.route.nat_outgoing |= pool.nat_outgoing;
            self.cross |= pool.cross_subnet;
        }
        if let Some(u) = self.first(entry, |what| what == Use::Block) {
            self.settle_on(u.node);
            self.block = Some(u.node);
            self.exact_block |= exact;
            self.add_workload(u.node);
        }
        if !exact {
            return;
        }
        if let Some(u) = self.first(entry, |what| what == Use::Host) {
            self.node = Some(u.node);
            let types = RouteTypes::default();
            self.route.types = match self.local(u.node) {
                true => RouteTypes { local_host: true, ..types },
                false => RouteTypes { remote_host: true, ..types },
            };
        }
        if let Some(u) = self.first(entry, |what| what > Use::Host) {
            self.settle_on(u.node);
            let local = self.local(u.node);
            if u.what == Use::Workload {
                self.add_workload(u.node);
                self.route.local_workload = local;
            } else {
                if !self.exact_block {
                    self.route.types.local_workload = false;
                    self.route.types.remote_workload = false;
                }
                match local {
                    true => self.route.types.local_tunnel = true,
                    false => self.route.types.remote_tunnel = true,
                }
            }
            let has = |what| entry.uses.iter().any(|other| other.node == u.node && other.what == what);
            self.route.tunnel =
                TunnelKind { ipip: has(Use::Ipip), vxlan: has(Use::Vxlan), wireguard: has(Use::Wireguard) };
        }
    }

    fn finish(mut self) -> Route {
        let Some(node) = self.node else { return self.route };
        let version = self.route.dst.version();
        let name = self.routes.name(node);
        self.route.dst_node_name = name.into();
        let of = |name: &str| self.routes.nodes.get(name).and_then(|a| a.of(version));
        let usable = |c: &Cidr| !c.addr().is_unspecified();
        self.route.dst_node_ip = of(name).filter(usable).map(|c| c.addr());
        let subnet = of(&self.routes.me).filter(usable);
        self.route.same_subnet = self.cross
            && self.route.dst_node_ip.is_some_and(|ip| subnet.is_some_and(|subnet| subnet.contains(ip)));
        self.route
    }

    /// Two nodes may claim one address: the one whose name comes first has it.
    fn first<'e>(&self, entry: &'e Entry, wanted: impl Fn(Use) -> bool) -> Option<&'e NodeUse> {
        let uses = entry.uses.iter().filter(|u| wanted(u.what));
        uses.min_by_key(|u| (self.routes.name(u.node), u.what))
    }

    fn settle_on(&mut self, node: Id) {
        self.route.borrowed |= self.block.is_some_and(|block| block != node);
        self.node = Some(node);
    }

    fn add_workload(&mut self, node: Id) {
        match self.local(node) {
            true => self.route.types.local_workload = true,
            false => self.route.types.remote_workload = true,
        }
    }

    fn local(&self, node: Id) -> bool {
        self.routes.name(node) == self.routes.me
    }
}

fn blank(dst: Cidr) -> Route {
    Route {
        dst,
        types: RouteTypes::default(),
        pool_type: PoolType::None,
        dst_node_name: SmolStr::default(),
        dst_node_ip: None,
        same_subnet: false,
        nat_outgoing: false,
        local_workload: false,
        borrowed: false,
        tunnel: TunnelKind::default(),
    }
}

/// The block itself if a node has it, and each address that is allocated to another node.
fn block_routes(cidr: Cidr, block: &AllocationBlock) -> BTreeSet<(Cidr, SmolStr)> {
    let affine = match &block.affinity {
        Some(affinity) => affinity.strip_prefix("host:"),
        None => block.host_affinity.as_deref(),
    };
    let affine = affine.filter(|node| !node.is_empty());
    let mut routes = BTreeSet::new();
    if let Some(node) = affine {
        routes.insert((cidr, node.into()));
    }
    for (ordinal, index) in block.allocations.iter().enumerate() {
        let attribute = index.and_then(|i| block.attributes.get(i as usize));
        let Some(node) = attribute.and_then(|a| a.active_owner_attrs.get("node")) else { continue };
        if Some(node.as_str()) != affine
            && let Some(addr) = cidr.nth(ordinal as u128).filter(|&a| cidr.contains(a))
        {
            routes.insert((Cidr::host(addr), node.clone()));
        }
    }
    routes
}

#[cfg(test)]
mod tests;
