//! Routes to other nodes' workloads, and to nowhere for the unused addresses of this node's blocks, of one family.
//!
//! In: routes of the calculation graph, tunnel endpoints of other nodes, and what this node is like ([`Local`]). Out:
//! wishes for the routing table. A route of a pool without encapsulation, or to a node on this subnet, goes straight
//! to that node; others go through the tunnel; one whose node has no tunnel endpoint (yet) is held back.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use calico_dpmsg::{PoolType, Route, VtepAddrs};
use calico_net::{Cidr, IpVersion};
use smol_str::SmolStr;

use super::routes::{Class, Hop, RouteTable, Target};

/// What this node is like.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Local {
    /// Link that carries the node's address.
    pub(crate) parent: Option<SmolStr>,
    /// Tunnel device, if VXLAN is on.
    pub(crate) vxlan: Option<SmolStr>,
    /// Its MTU.
    pub(crate) vxlan_mtu: u32,
    /// Felix programs routes of pools without encapsulation.
    pub(crate) no_encap: bool,
}

/// Where a wish was placed.
type Place = (Class, Option<SmolStr>);

/// The manager.
#[derive(Debug)]
pub(crate) struct RemoteRoutes {
    version: IpVersion,
    local: Local,
    routes: HashMap<Cidr, Arc<Route>>,
    by_node: HashMap<SmolStr, BTreeSet<Cidr>>,
    vteps: HashMap<SmolStr, VtepAddrs>,
    placed: HashMap<Cidr, Place>,
    dirty: BTreeSet<Cidr>,
}

// === impl RemoteRoutes ===

impl RemoteRoutes {
    pub(crate) fn new(version: IpVersion) -> Self {
        Self {
            version,
            local: Local::default(),
            routes: HashMap::new(),
            by_node: HashMap::new(),
            vteps: HashMap::new(),
            placed: HashMap::new(),
            dirty: BTreeSet::new(),
        }
    }

    /// The family.
    pub(crate) fn version(&self) -> IpVersion {
        self.version
    }

    /// Takes in a route.
    pub(crate) fn update(&mut self, route: &Arc<Route>) {
        if route.dst.version() != self.version {
            return;
        }
        self.remove(route.dst);
        self.by_node.entry(route.dst_node_name.clone()).or_default().insert(route.dst);
        self.routes.insert(route.dst, Arc::clone(route));
    }

    /// Takes in that a destination has no meaning any more.
    pub(crate) fn remove(&mut self, dst: Cidr) {
        if let Some(old) = self.routes.remove(&dst) {
            self.dirty.insert(dst);
            if let Some(of_node) = self.by_node.get_mut(&old.dst_node_name) {
                of_node.remove(&dst);
                if of_node.is_empty() {
                    self.by_node.remove(&old.dst_node_name);
                }
            }
        } else if dst.version() == self.version {
            self.dirty.insert(dst);
        }
    }

    /// Takes in the tunnel endpoint of another node, or that there is none.
    pub(crate) fn set_vtep(&mut self, node: &SmolStr, vtep: Option<VtepAddrs>) {
        let before = match vtep {
            Some(vtep) => self.vteps.insert(node.clone(), vtep),
            None => self.vteps.remove(node),
        };
        if before != vtep {
            self.dirty.extend(self.by_node.get(node).into_iter().flatten().copied());
        }
    }

    /// Takes in what this node is like.
    pub(crate) fn set_local(&mut self, local: Local) {
        if self.local != local {
            self.local = local;
            self.dirty.extend(self.routes.keys().copied());
        }
    }

    /// Hands the wishes that changed to the table.
    pub(crate) fn resolve(&mut self, table: &mut RouteTable) {
        for dst in std::mem::take(&mut self.dirty) {
            let wish = self.routes.get(&dst).and_then(|r| self.decide(r));
            let place = wish.as_ref().map(|(place, _)| place.clone());
            let before = match place.clone() {
                Some(place) => self.placed.insert(dst, place),
                None => self.placed.remove(&dst),
            };
            if let Some((class, link)) = before.filter(|b| Some(b) != place.as_ref()) {
                table.remove(class, link.as_ref(), dst);
            }
            if let Some(((class, link), target)) = wish {
                table.update(class, link.as_ref(), target);
            }
        }
    }

    fn decide(&self, route: &Route) -> Option<(Place, Target)> {
        let types = route.types;
        let target = |hop, mtu, exclusive| Target { dst: route.dst, priority: 0, hop, mtu, exclusive };
        // A tunnel address out of its node's own block is reached by the block's route.
        let stray_tunnel = types.remote_tunnel && route.tunnel.vxlan && route.borrowed;
        if types.remote_workload || stray_tunnel {
            return self.decide_remote(route, &target);
        }
        let block = types.local_workload && !route.local_workload && !route.dst.is_host();
        let class = match route.pool_type {
            PoolType::Vxlan => Class::BlackholeVxlan,
            PoolType::NoEncap if self.local.no_encap => Class::BlackholeNoEncap,
            _ => return None,
        };
        block.then(|| ((class, None), target(Hop::Blackhole, None, true)))
    }

    fn decide_remote(
        &self,
        route: &Route,
        target: &dyn Fn(Hop, Option<u32>, bool) -> Target,
    ) -> Option<(Place, Target)> {
        let straight = || {
            let parent = self.local.parent.clone()?;
            let node: IpAddr = route.dst_node_ip.filter(|a| IpVersion::of(*a) == self.version)?;
            Some((parent, Hop::Router(node)))
        };
        match route.pool_type {
            PoolType::NoEncap if self.local.no_encap => {
                let (parent, hop) = straight()?;
                Some(((Class::NoEncap, Some(parent)), target(hop, None, true)))
            }
            PoolType::Vxlan => {
                let device = self.local.vxlan.clone()?;
                if route.same_subnet
                    && let Some((parent, hop)) = straight()
                {
                    return Some(((Class::VxlanSameSubnet, Some(parent)), target(hop, None, true)));
                }
                let vtep = self.vteps.get(&route.dst_node_name)?;
                // The tunnel's own address is on the device; all else is behind it.
                let own = route.dst == Cidr::host(vtep.tunnel);
                let hop = if own { Hop::Link } else { Hop::Router(vtep.tunnel) };
                let mtu = Some(self.local.vxlan_mtu);
                Some(((Class::VxlanTunnel, Some(device)), target(hop, mtu, false)))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
