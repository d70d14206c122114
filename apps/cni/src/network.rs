//! The container's network device: a veth pair, its addresses and routes on both sides.
//!
//! Owns: what ADD does to the kernel, its undoing, and the comparison that CHECK makes.
//! In: the container's namespace and addresses. Out: the container end's hardware address.
//!
//! Invariants:
//! - The host end always has the same hardware address, so that its IPv6 link-local address, the container's
//!   gateway, is known beforehand.
//! - The container sends everything to a gateway that is nowhere: 169.254.1.1, which the host answers for by proxy
//!   ARP, and the host end's link-local address.
//! - A device is deleted only if its host end has the name that this container's host end must have, and its other
//!   end is in the container or gone.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd;

use calico_host::{NetNs, Sysctl, SysctlError};
use calico_net::{Cidr, IpVersion, Mac};
use calico_netlink::{
    Address, Link, LinkChange, Netlink, NetlinkError, PeerSpec, Route, RouteFilter, RouteScope, VethSpec,
};

use crate::error::PluginError;

/// Hardware address of every host end.
pub const HOST_MAC: Mac = Mac([0xee; 6]);
/// The containers' IPv4 gateway.
pub const GATEWAY_V4: Ipv4Addr = Ipv4Addr::new(169, 254, 1, 1);
/// The containers' IPv6 gateway: link-local address made from [`HOST_MAC`] (RFC 4291, appendix A).
pub const GATEWAY_V6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0xecee, 0xeeff, 0xfeee, 0xeeee);

/// What to wire.
#[derive(Debug, Clone)]
pub struct Wiring<'a> {
    /// Name of the host end.
    pub host_name: &'a str,
    /// Name of the container end.
    pub container_name: &'a str,
    /// Addresses of the container.
    pub ips: &'a [IpAddr],
    /// Destinations that the container reaches through its gateway.
    pub routes: &'a [Cidr],
    /// MTU of both ends; 0 for the kernel's default.
    pub mtu: u32,
    /// Queues of both ends.
    pub queues: u32,
    /// Whether the container may forward packets.
    pub allow_forwarding: bool,
}

// === impl Wiring ===

impl Wiring<'_> {
    fn has(&self, version: IpVersion) -> bool {
        self.ips.iter().any(|ip| IpVersion::of(*ip) == version)
    }

    /// Makes the pair and everything on it; returns the hardware address of the container end. The calling thread is in the
    /// host's namespace. On failure nothing of the pair is left.
    pub fn set_up(&self, container: &NetNs) -> Result<Mac, PluginError> {
        let mut host = Netlink::new().map_err(PluginError::netlink("cannot reach the host's network"))?;
        let host_ns = NetNs::current()?;
        if host.delete_link_by_name(self.host_name).map_err(PluginError::netlink("old interface"))? {
            tracing::info!(interface = self.host_name, "Old host interface deleted");
        }
        let result = self.make(&mut host, &host_ns, container);
        if result.is_err()
            && let Err(error) = host.delete_link_by_name(self.host_name)
        {
            tracing::error!(interface = self.host_name, %error, "Half made interface could not be deleted");
        }
        result
    }

    fn make(&self, host: &mut Netlink, host_ns: &NetNs, container: &NetNs) -> Result<Mac, PluginError> {
        let inside = container.run(|| self.create(host_ns))??;
        let host_link = self.prepare_host_end(host)?;
        let mac = container.run(move || self.configure_container(inside))??;
        self.finish_host_end(host, &host_link)?;
        Ok(mac)
    }

    /// In the container: makes the pair. Returns the socket for the next step, so that it is opened once.
    fn create(&self, host_ns: &NetNs) -> Result<(Netlink, Link), PluginError> {
        let mut nl = Netlink::new().map_err(PluginError::netlink("cannot reach the container's network"))?;
        let spec = VethSpec {
            end: PeerSpec { name: self.container_name, ..PeerSpec::default() },
            peer: PeerSpec { name: self.host_name, mac: Some(HOST_MAC), netns: Some(host_ns.as_fd()) },
            mtu: (self.mtu != 0).then_some(self.mtu),
            queues: Some(self.queues),
        };
        if let Err(error) = nl.create_veth(&spec) {
            let taken =
                error.is_exists() && nl.link_by_name(self.container_name).is_ok_and(|link| link.is_some());
            return Err(if taken {
                PluginError::InterfaceExists(self.container_name.to_owned())
            } else {
                PluginError::Netlink { context: "cannot make the veth pair", source: error }
            });
        }
        let link = link_named(&mut nl, self.container_name)?;
        let sysctl = Sysctl::default();
        if self.has(IpVersion::V6) {
            for place in ["all", "default", "lo"] {
                ensure(&sysctl, &format!("net/ipv6/conf/{place}/disable_ipv6"), "0")?;
            }
            ensure(&sysctl, &format!("net/ipv6/conf/{}/disable_ipv6", self.container_name), "0")?;
            ensure(&sysctl, &format!("net/ipv6/conf/{}/accept_dad", self.container_name), "0")?;
        }
        Ok((nl, link))
    }

    fn prepare_host_end(&self, host: &mut Netlink) -> Result<Link, PluginError> {
        let link = link_named(host, self.host_name)?;
        let name = self.host_name;
        let sysctl = Sysctl::default();
        let v6 = |key: &str| format!("net/ipv6/conf/{name}/{key}");
        if self.has(IpVersion::V4) {
            let v4 = |key: &str| format!("net/ipv4/conf/{name}/{key}");
            ensure(&sysctl, &v4("route_localnet"), "1")?;
            warn_only(ensure(&sysctl, &format!("net/ipv4/neigh/{name}/proxy_delay"), "0"));
            ensure(&sysctl, &v4("proxy_arp"), "1")?;
            ensure(&sysctl, &v4("forwarding"), "1")?;
        }
        if self.has(IpVersion::V6) {
            ensure(&sysctl, &v6("accept_dad"), "0")?;
            ensure(&sysctl, &v6("disable_ipv6"), "0")?;
            ensure(&sysctl, &v6("proxy_ndp"), "1")?;
            ensure(&sysctl, &v6("forwarding"), "1")?;
        }
        warn_only(ensure(&sysctl, &v6("accept_ra"), "0"));
        // A device manager may have put its own address on the new link.
        let mac = (link.mac != Some(HOST_MAC)).then_some(HOST_MAC);
        host.change_link(link.index, &LinkChange { up: Some(true), mac, ..LinkChange::default() })
            .map_err(PluginError::netlink("cannot set the host interface up"))?;
        Ok(link)
    }

    /// In the container: link up, routes, addresses.
    fn configure_container(&self, inside: (Netlink, Link)) -> Result<Mac, PluginError> {
        let (mut nl, link) = inside;
        nl.set_link_up(link.index, true).map_err(PluginError::netlink("cannot set the interface up"))?;
        let context = "cannot add route inside the container";
        let mut routes = Vec::new();
        if self.has(IpVersion::V4) {
            routes.push(on_link(Cidr::host(GATEWAY_V4.into()), link.index).add());
        }
        for dst in self.routes.iter().filter(|dst| self.has(dst.version())) {
            let gateway = match dst.version() {
                IpVersion::V4 => IpAddr::V4(GATEWAY_V4),
                IpVersion::V6 => IpAddr::V6(GATEWAY_V6),
            };
            routes.push(Route { gateway: Some(gateway), oif: Some(link.index), ..Route::new(*dst) }.add());
        }
        all(&mut nl, &routes, context)?;
        let addresses: Vec<_> = self.ips.iter().map(|ip| container_address(link.index, *ip).add()).collect();
        all(&mut nl, &addresses, "cannot add address inside the container")?;
        let sysctl = Sysctl::default();
        let forwarding = if self.allow_forwarding { "1" } else { "0" };
        if self.has(IpVersion::V4) {
            ensure(&sysctl, "net/ipv4/ip_forward", forwarding)?;
        }
        if self.has(IpVersion::V6) {
            ensure(&sysctl, "net/ipv6/conf/all/forwarding", forwarding)?;
        }
        link.mac.ok_or_else(|| PluginError::InterfaceVanished(self.container_name.to_owned()))
    }

    fn finish_host_end(&self, host: &mut Netlink, link: &Link) -> Result<(), PluginError> {
        if self.has(IpVersion::V6) {
            // The kernel makes this address by itself, a moment later and only where it is not told otherwise.
            let gateway = Address {
                scope: RouteScope::LINK,
                flags: Address::NO_DAD,
                ..Address::new(
                    link.index,
                    Cidr::new(GATEWAY_V6.into(), 64).unwrap_or(Cidr::host(GATEWAY_V6.into())),
                )
            };
            match host.add_address(&gateway) {
                Err(error) if !error.is_exists() => {
                    return Err(PluginError::netlink("cannot set the gateway's address")(error));
                }
                _ => {}
            }
        }
        let routes: Vec<Route> = self.ips.iter().map(|ip| on_link(Cidr::host(*ip), link.index)).collect();
        let requests: Vec<_> = routes.iter().map(Route::add).collect();
        let results =
            host.batch(&requests).map_err(PluginError::netlink("cannot add route to the container"))?;
        for (route, result) in routes.iter().zip(results) {
            match result {
                Ok(()) => {}
                Err(error) if error.is_exists() => self.accept_route(host, route)?,
                Err(error) => return Err(PluginError::netlink("cannot add route to the container")(error)),
            }
        }
        Ok(())
    }

    /// A route to the address is there: fine if Felix was faster, a conflict if it leads elsewhere.
    fn accept_route(&self, host: &mut Netlink, wanted: &Route) -> Result<(), PluginError> {
        let failed = PluginError::netlink("cannot read the host's routes");
        let present = host.routes(&RouteFilter::main(wanted.dst.version())).map_err(failed)?;
        let same_dst: Vec<&Route> = present.iter().filter(|r| r.dst == wanted.dst).collect();
        if same_dst.iter().any(|r| r.oif == wanted.oif) {
            return Ok(());
        }
        let other = same_dst.first().and_then(|r| r.oif).unwrap_or(0);
        let name = host.link_by_index(other).ok().flatten().map_or_else(|| other.to_string(), |l| l.name);
        Err(PluginError::RouteConflict {
            ip: wanted.dst.addr(),
            other: name,
            ours: self.host_name.to_owned(),
        })
    }

    /// Deletes the pair that [`Wiring::set_up`] made.
    pub fn remove(&self) -> Result<(), PluginError> {
        tear_down(self.host_name, None).map(drop)
    }

    /// Compares what is there with what [`Wiring::set_up`] makes. The error says what is missing first.
    pub fn check(&self, container: &NetNs, mac: Option<Mac>) -> Result<(), PluginError> {
        let mut host = Netlink::new().map_err(PluginError::netlink("cannot reach the host's network"))?;
        let found = host
            .link_by_name(self.host_name)
            .map_err(PluginError::netlink("cannot read the host's interfaces"))?;
        let Some(host_link) = found else {
            return missing(format!("host interface {} is not there", self.host_name));
        };
        if !host_link.is_up() {
            return missing(format!("host interface {} is down", self.host_name));
        }
        for ip in self.ips {
            let filter = RouteFilter::main(IpVersion::of(*ip)).via(host_link.index);
            let routes =
                host.routes(&filter).map_err(PluginError::netlink("cannot read the host's routes"))?;
            if !routes.iter().any(|r| r.dst == Cidr::host(*ip)) {
                return missing(format!("the host has no route to {ip} on interface {}", self.host_name));
            }
        }
        container.run(|| self.check_inside(&host_link, mac))?
    }

    fn check_inside(&self, host_link: &Link, mac: Option<Mac>) -> Result<(), PluginError> {
        let mut nl = Netlink::new().map_err(PluginError::netlink("cannot reach the container's network"))?;
        let name = self.container_name;
        let found =
            nl.link_by_name(name).map_err(PluginError::netlink("cannot read the container's interfaces"))?;
        let Some(link) = found else { return missing(format!("interface {name} is not in the container")) };
        if link.parent != Some(host_link.index) {
            return missing(format!("interface {name} is not the other end of {}", self.host_name));
        }
        if !link.is_up() {
            return missing(format!("interface {name} is down"));
        }
        if mac.is_some() && link.mac != mac {
            return missing(format!("interface {name} has another hardware address"));
        }
        let addresses = nl
            .addresses(Some(link.index), None)
            .map_err(PluginError::netlink("cannot read the container's addresses"))?;
        for ip in self.ips {
            if !addresses.iter().any(|a| a.addr == Cidr::host(*ip)) {
                return missing(format!("interface {name} has no address {ip}"));
            }
        }
        for version in IpVersion::BOTH.into_iter().filter(|v| self.has(*v)) {
            let routes = nl
                .routes(&RouteFilter::main(version).via(link.index))
                .map_err(PluginError::netlink("cannot read the container's routes"))?;
            for dst in self.routes.iter().filter(|dst| dst.version() == version) {
                if !routes.iter().any(|r| r.dst == *dst) {
                    return missing(format!("the container has no route to {dst} on interface {name}"));
                }
            }
        }
        Ok(())
    }
}

/// What became of a host interface that was to be deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removal {
    /// Deleted.
    Deleted,
    /// There was none.
    Absent,
    /// Left alone: its other end is not in the container's namespace.
    Elsewhere,
}

/// Deletes the pair whose host end is `host_name`.
///
/// With `container`, only if the other end is in that namespace, under whatever name: two containers whose IDs begin
/// alike have the same name for their host ends, and the later one took it.
pub fn tear_down(host_name: &str, container: Option<&NetNs>) -> Result<Removal, PluginError> {
    let mut host = Netlink::new().map_err(PluginError::netlink("cannot reach the host's network"))?;
    let found =
        host.link_by_name(host_name).map_err(PluginError::netlink("cannot read the host's interfaces"))?;
    let Some(host_link) = found else { return Ok(Removal::Absent) };
    if let Some(container) = container {
        let inside = container.run(|| Netlink::new()?.links())?;
        let inside = inside.map_err(PluginError::netlink("cannot read the container's interfaces"))?;
        let is_other_end =
            |link: &Link| link.parent == Some(host_link.index) && host_link.parent == Some(link.index);
        if !inside.iter().any(is_other_end) {
            return Ok(Removal::Elsewhere);
        }
    }
    let deleted =
        host.delete_link(host_link.index).map_err(PluginError::netlink("cannot delete the interface"))?;
    Ok(if deleted { Removal::Deleted } else { Removal::Absent })
}

fn missing(what: String) -> Result<(), PluginError> {
    Err(PluginError::Check(what))
}

fn on_link(dst: Cidr, index: u32) -> Route {
    let scope = match dst.version() {
        IpVersion::V4 => RouteScope::LINK,
        IpVersion::V6 => RouteScope::UNIVERSE,
    };
    Route { oif: Some(index), scope, ..Route::new(dst) }
}

fn container_address(index: u32, ip: IpAddr) -> Address {
    let flags = if ip.is_ipv6() { Address::NO_DAD } else { 0 };
    Address { flags, ..Address::new(index, Cidr::host(ip)) }
}

fn all(
    nl: &mut Netlink,
    requests: &[calico_netlink::Request],
    context: &'static str,
) -> Result<(), PluginError> {
    let failed = |source: NetlinkError| PluginError::Netlink { context, source };
    nl.batch(requests).map_err(failed)?.into_iter().collect::<Result<(), _>>().map_err(failed)
}

fn link_named(nl: &mut Netlink, name: &str) -> Result<Link, PluginError> {
    nl.link_by_name(name)
        .map_err(PluginError::netlink("cannot read interfaces"))?
        .ok_or_else(|| PluginError::InterfaceVanished(name.to_owned()))
}

/// Writes a kernel parameter unless it has the value: writing takes a lock of the whole kernel.
fn ensure(sysctl: &Sysctl, name: &str, value: &str) -> Result<(), SysctlError> {
    if sysctl.read(name)? == value { Ok(()) } else { sysctl.write(name, value) }
}

fn warn_only(result: Result<(), SysctlError>) {
    if let Err(error) = result {
        tracing::warn!(%error, "Kernel parameter could not be set");
    }
}
