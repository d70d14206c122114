//! rtnetlink in memory, for tests: what it holds, a record of what was written, and faults to order.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use calico_net::{Cidr, IpVersion};
use calico_netlink::{
    Address, Errno, Event, FdbEntry, Link, Neighbour, NetlinkError, Object, OperState, Route, RouteFilter,
    RouteKind, VxlanInfo,
};

use super::{Change, NetKernel, VxlanDevice};

/// Flags of a link that is up and has a carrier (`IFF_UP`, `IFF_RUNNING`).
const UP: u32 = 0x41;

/// The kernel.
#[derive(Debug, Clone, Default)]
pub(crate) struct MemoryNet {
    pub(crate) links: BTreeMap<u32, Link>,
    pub(crate) addresses: Vec<Address>,
    pub(crate) routes: Vec<Route>,
    pub(crate) neighbours: Vec<Neighbour>,
    pub(crate) fdb: Vec<FdbEntry>,
    /// Writes that succeeded, in order.
    pub(crate) log: Vec<Change>,
    /// Tunnel devices that were made.
    pub(crate) made: Vec<VxlanDevice>,
    /// Links that were deleted, by name.
    pub(crate) deleted: Vec<String>,
    /// Addresses whose connections were forgotten, with the length of the log at that moment.
    pub(crate) forgotten: Vec<(usize, IpAddr)>,
    /// Full and partial listings of routes.
    pub(crate) route_reads: usize,
    /// Routes that are refused.
    pub(crate) refuse: BTreeSet<Cidr>,
    /// The socket is broken.
    pub(crate) broken: bool,
    last_index: u32,
}

pub(crate) fn refusal(errno: Errno) -> NetlinkError {
    NetlinkError::Kernel { call: "replace", object: Object::Routes, errno, detail: None }
}

// === impl MemoryNet ===

impl MemoryNet {
    /// Adds a link that is up.
    pub(crate) fn add_link(&mut self, name: &str) -> u32 {
        self.last_index += 1;
        let link = Link {
            index: self.last_index,
            name: name.to_owned(),
            kind: "veth".to_owned(),
            mac: None,
            mtu: 1500,
            flags: UP,
            oper_state: OperState::Up,
            master: None,
            parent: None,
            peer_netns_id: None,
            tx_queues: 1,
            rx_queues: 1,
            vxlan: None,
        };
        self.links.insert(link.index, link);
        self.last_index
    }

    pub(crate) fn add_address(&mut self, name: &str, addr: &str) {
        let index = self.index(name);
        self.addresses.push(Address::new(index, addr.parse().expect("cidr")));
    }

    pub(crate) fn index(&self, name: &str) -> u32 {
        self.links.values().find(|l| l.name == name).map(|l| l.index).expect("link")
    }

    /// Sets a link up or down; what hangs on a link that goes down is lost. Returns the event.
    pub(crate) fn set_up(&mut self, name: &str, up: bool) -> Event {
        let index = self.index(name);
        if !up {
            self.flush(index);
        }
        let link = self.links.get_mut(&index).expect("link");
        link.flags = if up { UP } else { 0 };
        Event::Link(link.clone())
    }

    /// Removes a link. Returns the event.
    pub(crate) fn remove_link(&mut self, name: &str) -> Event {
        let index = self.index(name);
        self.flush(index);
        self.addresses.retain(|a| a.index != index);
        Event::LinkRemoved(self.links.remove(&index).expect("link"))
    }

    pub(crate) fn link_event(&self, name: &str) -> Event {
        Event::Link(self.links[&self.index(name)].clone())
    }

    /// Destinations of all routes, with the names of their links.
    pub(crate) fn table(&self) -> Vec<String> {
        let mut out: Vec<String> = self
            .routes
            .iter()
            .map(|r| {
                let dev = r.oif.and_then(|i| self.links.get(&i)).map_or("-", |l| l.name.as_str());
                let via = r.gateway.map(|g| format!(" via {g}")).unwrap_or_default();
                let kind = if r.kind == RouteKind::Blackhole { " blackhole" } else { "" };
                format!("{}{via} dev {dev} proto {}{kind}", r.dst, r.protocol.0)
            })
            .collect();
        out.sort();
        out
    }

    fn flush(&mut self, index: u32) {
        self.routes.retain(|r| r.oif != Some(index));
        self.neighbours.retain(|n| n.index != index);
        self.fdb.retain(|f| f.index != index);
    }

    fn carry_out(&mut self, change: &Change) -> Result<(), NetlinkError> {
        let same = |a: &Route, b: &Route| (a.dst, a.tos, a.priority) == (b.dst, b.tos, b.priority);
        match change {
            Change::ReplaceRoute(route) => {
                if self.refuse.contains(&route.dst) {
                    return Err(refusal(Errno::EINVAL));
                }
                if route.kind != RouteKind::Blackhole {
                    let link = route.oif.and_then(|i| self.links.get(&i)).ok_or(refusal(Errno::ENODEV))?;
                    if !link.is_up() {
                        return Err(refusal(Errno::ENETDOWN));
                    }
                }
                self.routes.retain(|r| !same(r, route));
                self.routes.push(route.clone());
            }
            Change::DeleteRoute(route) => remove(&mut self.routes, |r| r == route)?,
            Change::ReplaceNeighbour(n) => {
                self.neighbours.retain(|o| (o.index, o.addr) != (n.index, n.addr));
                self.neighbours.push(*n);
            }
            Change::DeleteNeighbour(n) => {
                remove(&mut self.neighbours, |o| (o.index, o.addr) == (n.index, n.addr))?;
            }
            Change::ReplaceFdb(f) => {
                self.fdb.retain(|o| (o.index, o.mac) != (f.index, f.mac));
                self.fdb.push(*f);
            }
            Change::DeleteFdb(f) => remove(&mut self.fdb, |o| o == f)?,
            Change::ReplaceAddress(a) => {
                self.addresses.retain(|o| (o.index, o.addr) != (a.index, a.addr));
                self.addresses.push(*a);
            }
            Change::DeleteAddress(a) => {
                remove(&mut self.addresses, |o| (o.index, o.addr) == (a.index, a.addr))?;
            }
            Change::SetLink { index, up, mtu } => {
                let link = self.links.get_mut(index).ok_or(refusal(Errno::ENODEV))?;
                link.mtu = mtu.unwrap_or(link.mtu);
                link.flags = up.map_or(link.flags, |up| if up { UP } else { 0 });
            }
        }
        Ok(())
    }
}

fn remove<T>(list: &mut Vec<T>, is: impl Fn(&T) -> bool) -> Result<(), NetlinkError> {
    let at = list.iter().position(is).ok_or(refusal(Errno::ESRCH))?;
    list.remove(at);
    Ok(())
}

impl NetKernel for MemoryNet {
    fn links(&mut self) -> Result<Vec<Link>, NetlinkError> {
        Ok(self.links.values().cloned().collect())
    }

    fn link(&mut self, name: &str) -> Result<Option<Link>, NetlinkError> {
        Ok(self.links.values().find(|l| l.name == name).cloned())
    }

    fn addresses(&mut self, index: Option<u32>) -> Result<Vec<Address>, NetlinkError> {
        Ok(self.addresses.iter().filter(|a| index.is_none_or(|i| a.index == i)).copied().collect())
    }

    fn routes(&mut self, filter: &RouteFilter) -> Result<Vec<Route>, NetlinkError> {
        self.route_reads += 1;
        if self.broken {
            return Err(refusal(Errno::ENOBUFS));
        }
        let fits =
            |r: &&Route| r.dst.version() == filter.version && filter.oif.is_none_or(|i| r.oif == Some(i));
        Ok(self.routes.iter().filter(fits).cloned().collect())
    }

    fn neighbours(&mut self, version: IpVersion) -> Result<Vec<Neighbour>, NetlinkError> {
        Ok(self.neighbours.iter().filter(|n| IpVersion::of(n.addr) == version).copied().collect())
    }

    fn fdb(&mut self, index: u32) -> Result<Vec<FdbEntry>, NetlinkError> {
        Ok(self.fdb.iter().filter(|f| f.index == index).copied().collect())
    }

    fn create_vxlan(&mut self, device: &VxlanDevice) -> Result<(), NetlinkError> {
        let index = self.add_link(device.name);
        let link = self.links.get_mut(&index).expect("link");
        link.kind = "vxlan".to_owned();
        link.mac = Some(device.mac);
        link.mtu = device.mtu;
        link.flags = 0;
        link.vxlan = Some(VxlanInfo {
            vni: device.vni,
            port: device.port,
            parent: Some(device.parent),
            local: Some(device.local),
            ..Default::default()
        });
        self.made.push(device.clone());
        Ok(())
    }

    fn delete_link(&mut self, index: u32) -> Result<bool, NetlinkError> {
        self.flush(index);
        self.addresses.retain(|a| a.index != index);
        let gone = self.links.remove(&index);
        self.deleted.extend(gone.iter().map(|l| l.name.clone()));
        Ok(gone.is_some())
    }

    fn write(&mut self, changes: &[Change]) -> Result<Vec<Result<(), NetlinkError>>, NetlinkError> {
        if self.broken {
            return Err(refusal(Errno::ENOBUFS));
        }
        let mut results = Vec::new();
        for change in changes {
            let result = self.carry_out(change);
            if result.is_ok() {
                self.log.push(change.clone());
            }
            results.push(result);
        }
        Ok(results)
    }

    fn forget_connections(&mut self, addrs: &BTreeSet<IpAddr>) -> Result<usize, NetlinkError> {
        let at = self.log.len();
        self.forgotten.extend(addrs.iter().map(|a| (at, *a)));
        Ok(addrs.len())
    }
}
