//! Sets of addresses: those that policies name, and those that the fixed chains name.
//!
//! In: sets and their changes from the calculation graph; pools, nodes, tunnel endpoints and the node's own addresses.
//! Out: the sets of each family.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use calico_dpmsg::{HostMetadata, IpPool, IpSetId, IpSetType, Member, VtepAddrs};
use calico_net::{Cidr, IpVersion};
use calico_netfilter::NftKernel;
use calico_rules::names;
use calico_rules::nft::SetKey;
use smol_str::SmolStr;

use super::plane::Plane;

/// Sets that policies name. They go straight to the families, which keep what is wanted.
#[derive(Debug, Default)]
pub(crate) struct PolicySets {
    known: HashMap<IpSetId, SetKey>,
}

// === impl PolicySets ===

impl PolicySets {
    /// Takes in a set with all its members.
    pub(crate) fn replace<N: NftKernel>(
        &mut self,
        planes: &mut [Plane<N>],
        id: &IpSetId,
        kind: IpSetType,
        members: &[Member],
    ) {
        if !names::is_set_id(id) {
            tracing::warn!(set = %id, "A set's name cannot be written; rules that name it fail closed");
            return;
        }
        let key = SetKey::of(kind);
        self.known.insert(id.clone(), key);
        for plane in planes {
            let name = names::set(plane.version, id);
            let useless = plane.filter.set_members(&name, key, members.iter().copied());
            report_useless(id, &useless);
        }
    }

    /// Takes in a change of a set.
    pub(crate) fn change<N: NftKernel>(
        &self,
        planes: &mut [Plane<N>],
        id: &IpSetId,
        added: &[Member],
        removed: &[Member],
    ) {
        if !self.known.contains_key(id) {
            tracing::warn!(set = %id, "A change of a set that is not known is ignored");
            return;
        }
        for plane in planes {
            let name = names::set(plane.version, id);
            let useless = plane.filter.delta_members(&name, added, removed);
            report_useless(id, &useless);
        }
    }

    /// Takes in that no rule needs a set.
    pub(crate) fn remove<N: NftKernel>(&mut self, planes: &mut [Plane<N>], id: &IpSetId) {
        if self.known.remove(id).is_some() {
            for plane in planes {
                plane.filter.remove_set(&names::set(plane.version, id));
            }
        }
    }
}

fn report_useless(id: &IpSetId, members: &[Member]) {
    if let Some(first) = members.first() {
        tracing::warn!(set = %id, count = members.len(), %first, "Members that do not fit their set are left out");
    }
}

/// What the sets of the fixed chains are made of.
#[derive(Debug, Default)]
pub(crate) struct FixedSets {
    pools: BTreeMap<Cidr, Arc<IpPool>>,
    hosts: BTreeMap<SmolStr, Arc<HostMetadata>>,
    /// Other nodes' tunnel endpoints, where the outer packets come from.
    vteps: BTreeMap<(SmolStr, IpVersion), VtepAddrs>,
    own_addrs: BTreeSet<IpAddr>,
    external: Vec<Cidr>,
    dirty: bool,
    /// Sets that exist, by family, so that those that are needed no more go.
    made: HashMap<IpVersion, BTreeSet<&'static str>>,
}

// === impl FixedSets ===

impl FixedSets {
    pub(crate) fn new(external: Vec<Cidr>) -> Self {
        Self { external, dirty: true, ..Self::default() }
    }

    pub(crate) fn set_pool(&mut self, cidr: Cidr, pool: Option<&Arc<IpPool>>) {
        match pool {
            Some(pool) => self.pools.insert(cidr, Arc::clone(pool)),
            None => self.pools.remove(&cidr),
        };
        self.dirty = true;
    }

    pub(crate) fn set_host(&mut self, name: &SmolStr, host: Option<&Arc<HostMetadata>>) {
        match host {
            Some(host) => self.hosts.insert(name.clone(), Arc::clone(host)),
            None => self.hosts.remove(name),
        };
        self.dirty = true;
    }

    pub(crate) fn set_vtep(&mut self, node: &SmolStr, version: IpVersion, vtep: Option<VtepAddrs>) {
        let key = (node.clone(), version);
        match vtep {
            Some(vtep) => self.vteps.insert(key, vtep),
            None => self.vteps.remove(&key),
        };
        self.dirty = true;
    }

    /// Takes in the addresses of the node's own interfaces, workloads' left out.
    pub(crate) fn set_own_addrs(&mut self, addrs: BTreeSet<IpAddr>) {
        if self.own_addrs != addrs {
            self.own_addrs = addrs;
            self.dirty = true;
        }
    }

    /// The fixed chains changed, and maybe name other sets.
    pub(crate) fn chains_changed(&mut self) {
        self.dirty = true;
    }

    /// A node's address of one family.
    pub(crate) fn host_addr(&self, name: &str, version: IpVersion) -> Option<IpAddr> {
        let host = self.hosts.get(name)?;
        match version {
            IpVersion::V4 => host.ipv4,
            IpVersion::V6 => host.ipv6,
        }
        .map(|c| c.addr())
    }

    /// True if some pool of the family asks for source NAT.
    pub(crate) fn needs_nat(&self, version: IpVersion) -> bool {
        self.pools.values().any(|p| p.masquerade && p.cidr.version() == version)
    }

    /// Hands the sets to the families if something changed; true if so.
    pub(crate) fn resolve<N: NftKernel>(&mut self, planes: &mut [Plane<N>]) -> bool {
        if !std::mem::take(&mut self.dirty) {
            return false;
        }
        for plane in planes {
            let wanted: BTreeSet<&'static str> = plane.renderer.static_set_ids().into_iter().collect();
            let before = self.made.insert(plane.version, wanted.clone()).unwrap_or_default();
            for id in before.difference(&wanted) {
                plane.filter.remove_set(&names::set(plane.version, id));
            }
            for id in wanted {
                let members = self.members(id, plane.version).into_iter().map(Member::Net);
                plane.filter.set_members(&names::set(plane.version, id), SetKey::of_static(id), members);
            }
        }
        true
    }

    fn members(&self, id: &str, version: IpVersion) -> BTreeSet<Cidr> {
        let external = || self.external.iter().copied().filter(|c| c.version() == version);
        let of_version = |a: &IpAddr| IpVersion::of(*a) == version;
        match id {
            "masq-ipam-pools" => self.pools_where(version, |p| p.masquerade),
            "network-ip-pools" => self.pools_where(version, |p| !p.load_balancer_only),
            "all-hosts-net" => {
                let hosts = self.hosts.keys().filter_map(|n| self.host_addr(n, version)).map(Cidr::host);
                hosts.chain(external()).collect()
            }
            "all-vxlan-net" => {
                let peers = self.vteps.iter().filter(|((_, v), _)| *v == version);
                peers.map(|(_, vtep)| Cidr::host(vtep.parent)).chain(external()).collect()
            }
            "this-host" => self.own_addrs.iter().filter(|a| of_version(a)).map(|a| Cidr::host(*a)).collect(),
            // Endpoints whose packets are marked for their way: no message carries them yet.
            _ => BTreeSet::new(),
        }
    }

    fn pools_where(&self, version: IpVersion, holds: impl Fn(&IpPool) -> bool) -> BTreeSet<Cidr> {
        let pools = self.pools.values().filter(|p| p.cidr.version() == version && holds(p));
        pools.map(|p| p.cidr).collect()
    }
}
