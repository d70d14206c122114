//! Routes.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use calico_net::{Cidr, IpVersion};
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::route::{
    RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteMetric, RouteNextHop, RouteNextHopFlags,
};
use nix::errno::Errno;

use crate::Netlink;
use crate::error::{NetlinkError, Object};
use crate::link::found;
use crate::socket::Request;
use crate::wire::{attributes, family_of, ip_of, u32_of, version_of};

/// Length of a route message's header (`struct rtmsg`).
const HEADER: usize = 12;
/// Length of a next hop's header (`struct rtnexthop`).
const NEXT_HOP_HEADER: usize = 8;
/// Metric number of the MTU (`RTAX_MTU`).
const METRIC_MTU: u16 = 2;
/// Flag of a gateway that needs no route to it (`RTNH_F_ONLINK`).
const ONLINK: u32 = 4;

/// Number of a routing table.
pub type RouteTable = u32;

/// Who made a route (`RTPROT_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct RouteProtocol(pub u8);

// === impl RouteProtocol ===

impl RouteProtocol {
    /// Not said; in a deletion: any.
    pub const UNSPEC: Self = Self(0);
    /// The kernel, for addresses.
    pub const KERNEL: Self = Self(2);
    /// Set up at boot; what `ip route add` uses.
    pub const BOOT: Self = Self(3);
    /// An administrator.
    pub const STATIC: Self = Self(4);
    /// BIRD.
    pub const BIRD: Self = Self(12);
    /// Felix, for routes that it alone owns.
    pub const FELIX: Self = Self(80);
}

/// How far away a destination is (`RT_SCOPE_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct RouteScope(pub u8);

// === impl RouteScope ===

impl RouteScope {
    /// Anywhere.
    pub const UNIVERSE: Self = Self(0);
    /// On this link.
    pub const LINK: Self = Self(253);
    /// On this host.
    pub const HOST: Self = Self(254);
    /// Nowhere; in a deletion: any.
    pub const NOWHERE: Self = Self(255);
}

/// What happens to packets (`RTN_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum RouteKind {
    /// In a deletion: any.
    Unspec,
    /// Sent on.
    #[default]
    Unicast,
    /// Taken in.
    Local,
    /// Taken in as broadcast, sent as broadcast.
    Broadcast,
    /// Taken in as broadcast, sent as unicast.
    Anycast,
    /// Multicast.
    Multicast,
    /// Dropped without notice.
    Blackhole,
    /// Dropped, the sender gets "unreachable".
    Unreachable,
    /// Dropped, the sender gets "prohibited".
    Prohibit,
    /// As if this table had no route.
    Throw,
    /// Another kind.
    Other(u8),
}

// === impl RouteKind ===

impl RouteKind {
    /// The kernel's number.
    pub fn number(self) -> u8 {
        match self {
            Self::Unspec => 0,
            Self::Unicast => 1,
            Self::Local => 2,
            Self::Broadcast => 3,
            Self::Anycast => 4,
            Self::Multicast => 5,
            Self::Blackhole => 6,
            Self::Unreachable => 7,
            Self::Prohibit => 8,
            Self::Throw => 9,
            Self::Other(number) => number,
        }
    }
}

impl From<u8> for RouteKind {
    fn from(number: u8) -> Self {
        match number {
            0 => Self::Unspec,
            1 => Self::Unicast,
            2 => Self::Local,
            3 => Self::Broadcast,
            4 => Self::Anycast,
            5 => Self::Multicast,
            6 => Self::Blackhole,
            7 => Self::Unreachable,
            8 => Self::Prohibit,
            9 => Self::Throw,
            other => Self::Other(other),
        }
    }
}

impl fmt::Display for RouteKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unspec => "unspec",
            Self::Unicast => "unicast",
            Self::Local => "local",
            Self::Broadcast => "broadcast",
            Self::Anycast => "anycast",
            Self::Multicast => "multicast",
            Self::Blackhole => "blackhole",
            Self::Unreachable => "unreachable",
            Self::Prohibit => "prohibit",
            Self::Throw => "throw",
            Self::Other(number) => return write!(f, "{number}"),
        })
    }
}

/// One of several ways to a destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NextHop {
    /// Router.
    pub gateway: Option<IpAddr>,
    /// Link.
    pub oif: u32,
    /// Share of the traffic, from 1.
    pub weight: u8,
    /// Whether the router is reachable on the link without a route to it.
    pub onlink: bool,
}

/// A route. In one table, the kernel tells routes apart by `dst`, `tos` and `priority` (IPv6 also by next hop).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Route {
    /// Destination, masked.
    pub dst: Cidr,
    /// Table.
    pub table: RouteTable,
    /// Type of service.
    pub tos: u8,
    /// Metric; the lowest wins. The kernel turns 0 into 1024 for IPv6.
    pub priority: u32,
    /// What happens to packets.
    pub kind: RouteKind,
    /// How far away the destination is. The kernel reports [`RouteScope::UNIVERSE`] for every IPv6 route.
    pub scope: RouteScope,
    /// Who made it.
    pub protocol: RouteProtocol,
    /// Router.
    pub gateway: Option<IpAddr>,
    /// Link; the kernel reports `lo` for IPv6 routes that drop.
    pub oif: Option<u32>,
    /// Whether the router is reachable on the link without a route to it.
    pub onlink: bool,
    /// Preferred source address.
    pub src: Option<IpAddr>,
    /// Largest packet in bytes.
    pub mtu: Option<u32>,
    /// Several ways, instead of `gateway` and `oif`.
    pub next_hops: Vec<NextHop>,
}

// === impl Route ===

impl Route {
    /// Number of the main table.
    pub const MAIN: RouteTable = 254;
    /// Number of the table of the host's own addresses.
    pub const LOCAL: RouteTable = 255;

    /// A unicast route of protocol boot in the main table, with neither link nor router.
    pub fn new(dst: Cidr) -> Self {
        Self {
            dst: dst.masked(),
            table: Self::MAIN,
            tos: 0,
            priority: 0,
            kind: RouteKind::Unicast,
            scope: RouteScope::UNIVERSE,
            protocol: RouteProtocol::BOOT,
            gateway: None,
            oif: None,
            onlink: false,
            src: None,
            mtu: None,
            next_hops: Vec::new(),
        }
    }

    fn object(&self) -> Object {
        Object::Route { dst: self.dst, table: self.table }
    }

    fn message(&self) -> RouteMessage {
        let mut message = RouteMessage::default();
        message.header = RouteHeader {
            address_family: family_of(self.dst.version()),
            destination_prefix_length: self.dst.prefix_len(),
            source_prefix_length: 0,
            tos: self.tos,
            table: u8::try_from(self.table).unwrap_or(RouteHeader::RT_TABLE_UNSPEC),
            protocol: self.protocol.0.into(),
            scope: self.scope.0.into(),
            kind: self.kind.number().into(),
            flags: if self.onlink { RouteFlags::Onlink } else { RouteFlags::empty() },
        };
        let list = &mut message.attributes;
        if !self.dst.is_default() {
            list.push(RouteAttribute::Destination(self.dst.masked().addr().into()));
        }
        list.push(RouteAttribute::Table(self.table));
        if self.priority != 0 {
            list.push(RouteAttribute::Priority(self.priority));
        }
        if let Some(gateway) = self.gateway {
            list.push(RouteAttribute::Gateway(gateway.into()));
        }
        if let Some(oif) = self.oif {
            list.push(RouteAttribute::Oif(oif));
        }
        if let Some(src) = self.src {
            list.push(RouteAttribute::PrefSource(src.into()));
        }
        if let Some(mtu) = self.mtu {
            list.push(RouteAttribute::Metrics(vec![RouteMetric::Mtu(mtu)]));
        }
        if !self.next_hops.is_empty() {
            list.push(RouteAttribute::MultiPath(self.next_hops.iter().map(NextHop::message).collect()));
        }
        message
    }

    /// The request that adds the route; one with the same identity is an error.
    pub fn add(&self) -> Request {
        let message = RouteNetlinkMessage::NewRoute(self.message());
        Request::new("add", self.object(), NLM_F_CREATE | NLM_F_EXCL, &message)
    }

    /// The request that adds the route or, in one step, replaces the one with the same identity, whoever made it.
    pub fn replace(&self) -> Request {
        let message = RouteNetlinkMessage::NewRoute(self.message());
        Request::new("replace", self.object(), NLM_F_CREATE | NLM_F_REPLACE, &message)
    }

    /// The request that removes this very route: destination, table, priority, kind, scope, protocol, router and link
    /// must match, as far as they are set.
    pub fn delete(&self) -> Request {
        let mut message = self.message();
        message.attributes.retain(|a| !matches!(a, RouteAttribute::Metrics(_)));
        Request::new("delete", self.object(), 0, &RouteNetlinkMessage::DelRoute(message))
    }

    /// The request that removes whatever route has this one's destination, table, type of service and priority.
    pub fn delete_any(&self) -> Request {
        let any = Self {
            table: self.table,
            tos: self.tos,
            priority: self.priority,
            kind: RouteKind::Unspec,
            scope: RouteScope::NOWHERE,
            protocol: RouteProtocol::UNSPEC,
            ..Self::new(self.dst)
        };
        any.delete()
    }

    /// `None` for families other than IP and for copies that the kernel made for single destinations.
    pub(crate) fn decode(payload: &[u8]) -> Result<Option<Self>, String> {
        let header = RouteHeader::parse(payload).map_err(|e| e.to_string())?;
        let Some(version) = version_of(header.address_family) else { return Ok(None) };
        if header.flags.contains(RouteFlags::Cloned) {
            return Ok(None);
        }
        let any = match version {
            IpVersion::V4 => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            IpVersion::V6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        let mut dst = any;
        let mut route = Self::new(Cidr::host(any));
        route.table = u32::from(header.table);
        route.tos = header.tos;
        route.kind = RouteKind::from(u8::from(header.kind));
        route.scope = RouteScope(header.scope.into());
        route.protocol = RouteProtocol(header.protocol.into());
        route.onlink = header.flags.bits() & ONLINK != 0;
        attributes(payload, HEADER, |kind, value| {
            match kind {
                libc::RTA_DST => dst = ip_of(value)?,
                libc::RTA_TABLE => route.table = u32_of(value)?,
                libc::RTA_PRIORITY => route.priority = u32_of(value)?,
                libc::RTA_GATEWAY => route.gateway = Some(ip_of(value)?),
                libc::RTA_VIA => route.gateway = value.get(2..).map(ip_of).transpose()?,
                libc::RTA_OIF => route.oif = Some(u32_of(value)?),
                libc::RTA_PREFSRC => route.src = Some(ip_of(value)?),
                libc::RTA_METRICS => attributes(value, 0, |metric, number| {
                    if metric == METRIC_MTU {
                        route.mtu = Some(u32_of(number)?);
                    }
                    Ok::<(), String>(())
                })?,
                libc::RTA_MULTIPATH => route.next_hops = NextHop::decode_all(value)?,
                _ => {}
            }
            Ok::<(), String>(())
        })?;
        route.dst =
            Cidr::new(dst, header.destination_prefix_length).ok_or("a prefix longer than the address")?;
        Ok(Some(route))
    }
}

// === impl NextHop ===

impl NextHop {
    fn message(&self) -> RouteNextHop {
        let mut hop = RouteNextHop::default();
        hop.flags = if self.onlink { RouteNextHopFlags::Onlink } else { RouteNextHopFlags::empty() };
        hop.hops = self.weight.saturating_sub(1);
        hop.interface_index = self.oif;
        hop.attributes = self.gateway.map(|g| RouteAttribute::Gateway(g.into())).into_iter().collect();
        hop
    }

    fn decode_all(mut list: &[u8]) -> Result<Vec<Self>, String> {
        let mut hops = Vec::new();
        while let Some(header) = list.first_chunk::<NEXT_HOP_HEADER>() {
            let [l0, l1, flags, weight, i0, i1, i2, i3] = *header;
            let length = usize::from(u16::from_ne_bytes([l0, l1]));
            let one = list.get(..length).filter(|_| length >= NEXT_HOP_HEADER);
            let one = one.ok_or("a next hop of wrong length")?;
            let mut hop = Self {
                gateway: None,
                oif: u32::from_ne_bytes([i0, i1, i2, i3]),
                weight: weight.saturating_add(1),
                onlink: u32::from(flags) & ONLINK != 0,
            };
            attributes(one, NEXT_HOP_HEADER, |kind, value| {
                match kind {
                    libc::RTA_GATEWAY => hop.gateway = Some(ip_of(value)?),
                    libc::RTA_VIA => hop.gateway = value.get(2..).map(ip_of).transpose()?,
                    _ => {}
                }
                Ok::<(), String>(())
            })?;
            hops.push(hop);
            list = list.get(length.next_multiple_of(4)..).unwrap_or_default();
        }
        Ok(hops)
    }
}

/// Which routes to list; the kernel does the filtering.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RouteFilter {
    /// Family.
    pub version: IpVersion,
    /// Only this table.
    pub table: Option<RouteTable>,
    /// Only via this link.
    pub oif: Option<u32>,
    /// Only of this maker.
    pub protocol: Option<RouteProtocol>,
    /// Only of this kind.
    pub kind: Option<RouteKind>,
}

// === impl RouteFilter ===

impl RouteFilter {
    /// All routes of the main table.
    pub fn main(version: IpVersion) -> Self {
        Self { version, table: Some(Route::MAIN), oif: None, protocol: None, kind: None }
    }

    /// The same, only via this link.
    pub fn via(mut self, oif: u32) -> Self {
        self.oif = Some(oif);
        self
    }

    fn matches(&self, route: &Route) -> bool {
        self.table.is_none_or(|t| t == route.table)
            && self.protocol.is_none_or(|p| p == route.protocol)
            && self.kind.is_none_or(|k| k == route.kind)
            && self.oif.is_none_or(|i| route.oif == Some(i) || route.next_hops.iter().any(|hop| hop.oif == i))
    }
}

impl Netlink {
    /// Routes that `filter` lets through. A table that does not exist is empty.
    pub fn routes(&mut self, filter: &RouteFilter) -> Result<Vec<Route>, NetlinkError> {
        let mut message = RouteMessage::default();
        message.header.address_family = family_of(filter.version);
        message.header.protocol = filter.protocol.unwrap_or(RouteProtocol::UNSPEC).0.into();
        message.header.kind = filter.kind.unwrap_or(RouteKind::Unspec).number().into();
        if let Some(table) = filter.table {
            message.attributes.push(RouteAttribute::Table(table));
        }
        if let Some(oif) = filter.oif {
            message.attributes.push(RouteAttribute::Oif(oif));
        }
        let request = Request::new("list", Object::Routes, 0, &RouteNetlinkMessage::GetRoute(message));
        let listed = self
            .channel
            .dump(&request, |payload| Ok(Route::decode(payload)?.filter(|route| filter.matches(route))));
        match listed {
            Err(e) if matches!(e.errno(), Some(Errno::ENOENT | Errno::ENODEV)) => Ok(Vec::new()),
            other => other,
        }
    }

    /// Adds a route; one with the same identity is an error for which [`NetlinkError::is_exists`] holds.
    pub fn add_route(&mut self, route: &Route) -> Result<(), NetlinkError> {
        self.execute(route.add())
    }

    /// Adds a route or replaces the one with the same identity.
    pub fn replace_route(&mut self, route: &Route) -> Result<(), NetlinkError> {
        self.execute(route.replace())
    }

    /// Removes this very route. False if it was not there.
    pub fn delete_route(&mut self, route: &Route) -> Result<bool, NetlinkError> {
        found(self.execute(route.delete()))
    }
}
