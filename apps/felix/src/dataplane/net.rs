//! What stands between the dataplane and rtnetlink: reading tables, carrying out changes.
//!
//! Owns: [`NetKernel`] with the real one ([`RealNet`]); tests have a twin in memory.
//! Always holds: every write to links, addresses, routes and neighbours is one [`Change`], so that what an apply
//! moved can be counted.

#[cfg(test)]
pub(crate) mod memory;

use std::collections::BTreeSet;
use std::net::IpAddr;

use calico_net::{Cidr, IpVersion, Mac};
use calico_netlink::{
    Address, Conntrack, FdbEntry, Link, LinkChange, Neighbour, Netlink, NetlinkError, Request, Route,
    RouteFilter, VxlanSpec,
};

/// A VXLAN device as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct VxlanDevice {
    pub(crate) name: &'static str,
    pub(crate) vni: u32,
    pub(crate) port: u16,
    pub(crate) local: IpAddr,
    pub(crate) parent: u32,
    pub(crate) mac: Mac,
    pub(crate) mtu: u32,
}

/// One write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change {
    /// Adds the route, or replaces the one with its identity.
    ReplaceRoute(Route),
    /// Removes this very route.
    DeleteRoute(Route),
    /// Adds or replaces a neighbour.
    ReplaceNeighbour(Neighbour),
    /// Removes a neighbour.
    DeleteNeighbour(Neighbour),
    /// Adds or replaces a forwarding entry.
    ReplaceFdb(FdbEntry),
    /// Removes a forwarding entry.
    DeleteFdb(FdbEntry),
    /// Adds an address, or changes its flags.
    ReplaceAddress(Address),
    /// Removes an address.
    DeleteAddress(Address),
    /// Sets a link up, and its largest packet.
    SetLink { index: u32, up: Option<bool>, mtu: Option<u32> },
}

/// rtnetlink, and connection tracking, of one network namespace.
pub(crate) trait NetKernel {
    /// All links.
    fn links(&mut self) -> Result<Vec<Link>, NetlinkError>;
    /// The link of this name.
    fn link(&mut self, name: &str) -> Result<Option<Link>, NetlinkError>;
    /// Addresses of one link, or of all.
    fn addresses(&mut self, index: Option<u32>) -> Result<Vec<Address>, NetlinkError>;
    /// Routes that the filter lets through.
    fn routes(&mut self, filter: &RouteFilter) -> Result<Vec<Route>, NetlinkError>;
    /// Neighbours of all links, in every state.
    fn neighbours(&mut self, version: IpVersion) -> Result<Vec<Neighbour>, NetlinkError>;
    /// Forwarding entries of a link.
    fn fdb(&mut self, index: u32) -> Result<Vec<FdbEntry>, NetlinkError>;
    /// Makes a VXLAN device, down.
    fn create_vxlan(&mut self, device: &VxlanDevice) -> Result<(), NetlinkError>;
    /// Deletes a link; false if there was none.
    fn delete_link(&mut self, index: u32) -> Result<bool, NetlinkError>;
    /// Carries out changes in order, all of them; one result each.
    fn write(&mut self, changes: &[Change]) -> Result<Vec<Result<(), NetlinkError>>, NetlinkError>;
    /// Makes connection tracking forget what the addresses take part in.
    fn forget_connections(&mut self, addrs: &BTreeSet<IpAddr>) -> Result<usize, NetlinkError>;
}

/// The kernel's.
#[derive(Debug)]
pub(crate) struct RealNet {
    netlink: Netlink,
    /// Opened at first use: not every kernel has connection tracking loaded at start.
    conntrack: Option<Conntrack>,
}

// === impl RealNet ===

impl RealNet {
    /// Opens a socket in the calling thread's network namespace.
    pub(crate) fn new() -> Result<Self, NetlinkError> {
        Ok(Self { netlink: Netlink::new()?, conntrack: None })
    }

    /// A socket that failed may hold answers to old questions; a new one does not.
    fn renew<T>(&mut self, result: Result<T, NetlinkError>) -> Result<T, NetlinkError> {
        if let Err(NetlinkError::Socket { .. } | NetlinkError::Decode { .. }) = &result
            && let Ok(fresh) = Netlink::new()
        {
            self.netlink = fresh;
        }
        result
    }
}

impl NetKernel for RealNet {
    fn links(&mut self) -> Result<Vec<Link>, NetlinkError> {
        let result = self.netlink.links();
        self.renew(result)
    }

    fn link(&mut self, name: &str) -> Result<Option<Link>, NetlinkError> {
        let result = self.netlink.link_by_name(name);
        self.renew(result)
    }

    fn addresses(&mut self, index: Option<u32>) -> Result<Vec<Address>, NetlinkError> {
        let result = self.netlink.addresses(index, None);
        self.renew(result)
    }

    fn routes(&mut self, filter: &RouteFilter) -> Result<Vec<Route>, NetlinkError> {
        let result = self.netlink.routes(filter);
        self.renew(result)
    }

    fn neighbours(&mut self, version: IpVersion) -> Result<Vec<Neighbour>, NetlinkError> {
        let result = self.netlink.neighbours(version, None);
        self.renew(result)
    }

    fn fdb(&mut self, index: u32) -> Result<Vec<FdbEntry>, NetlinkError> {
        let result = self.netlink.fdb(index);
        self.renew(result)
    }

    fn create_vxlan(&mut self, device: &VxlanDevice) -> Result<(), NetlinkError> {
        let spec = VxlanSpec {
            name: device.name,
            vni: device.vni,
            port: device.port,
            local: Some(device.local),
            parent: Some(device.parent),
            mac: Some(device.mac),
            mtu: Some(device.mtu),
        };
        let result = self.netlink.create_vxlan(&spec);
        self.renew(result)
    }

    fn delete_link(&mut self, index: u32) -> Result<bool, NetlinkError> {
        let result = self.netlink.delete_link(index);
        self.renew(result)
    }

    fn write(&mut self, changes: &[Change]) -> Result<Vec<Result<(), NetlinkError>>, NetlinkError> {
        let requests: Vec<Request> = changes.iter().map(request).collect();
        let result = self.netlink.batch(&requests);
        self.renew(result)
    }

    fn forget_connections(&mut self, addrs: &BTreeSet<IpAddr>) -> Result<usize, NetlinkError> {
        let conntrack = match &mut self.conntrack {
            Some(open) => open,
            None => self.conntrack.insert(Conntrack::new()?),
        };
        let result = conntrack.delete_of(addrs);
        if result.is_err() {
            self.conntrack = None;
        }
        result
    }
}

fn request(change: &Change) -> Request {
    match change {
        Change::ReplaceRoute(route) => route.replace(),
        Change::DeleteRoute(route) => route.delete(),
        Change::ReplaceNeighbour(entry) => entry.replace(),
        Change::DeleteNeighbour(entry) => entry.delete(),
        Change::ReplaceFdb(entry) => entry.replace(),
        Change::DeleteFdb(entry) => entry.delete(),
        Change::ReplaceAddress(address) => address.replace(),
        Change::DeleteAddress(address) => address.delete(),
        Change::SetLink { index, up, mtu } => {
            LinkChange { up: *up, mtu: *mtu, ..Default::default() }.request(*index)
        }
    }
}

/// An address that makes no route by itself, for a tunnel device.
pub(crate) fn tunnel_address(index: u32, addr: IpAddr) -> Address {
    let mut address = Address::new(index, Cidr::host(addr));
    if addr.is_ipv6() {
        address.flags = Address::NO_DAD | Address::NO_PREFIX_ROUTE;
    }
    address
}
