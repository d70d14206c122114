//! Neighbours (ARP, NDP) and forwarding entries (FDB) of bridges and VXLAN links.

use std::net::IpAddr;

use calico_net::{IpVersion, Mac};
use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourHeader, NeighbourMessage,
};
use netlink_packet_route::route::RouteType;
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use crate::Netlink;
use crate::error::{NetlinkError, Object};
use crate::link::found;
use crate::socket::Request;
use crate::wire::{attributes, family_of, ip_of, mac_of, version_of};

/// Length of a neighbour message's header (`struct ndmsg`).
const HEADER: usize = 12;
/// Attribute numbers (`NDA_*`).
const DST: u16 = 1;
const LLADDR: u16 = 2;

/// State of an entry (`NUD_*`, a bit mask).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct NeighbourState(pub u16);

// === impl NeighbourState ===

impl NeighbourState {
    /// An answer is awaited.
    pub const INCOMPLETE: Self = Self(0x01);
    /// Confirmed recently.
    pub const REACHABLE: Self = Self(0x02);
    /// To be confirmed at the next use.
    pub const STALE: Self = Self(0x04);
    /// No answer came.
    pub const FAILED: Self = Self(0x20);
    /// Needs no resolution.
    pub const NOARP: Self = Self(0x40);
    /// Set by an administrator, never expires.
    pub const PERMANENT: Self = Self(0x80);

    /// True if the entry never expires.
    pub fn is_permanent(self) -> bool {
        self.0 & Self::PERMANENT.0 != 0
    }
}

/// Which hardware address an address has on a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Neighbour {
    /// Link.
    pub index: u32,
    /// Address.
    pub addr: IpAddr,
    /// Hardware address; `None` while it is not known.
    pub mac: Option<Mac>,
    /// State.
    pub state: NeighbourState,
}

// === impl Neighbour ===

impl Neighbour {
    /// A permanent entry.
    pub fn permanent(index: u32, addr: IpAddr, mac: Mac) -> Self {
        Self { index, addr, mac: Some(mac), state: NeighbourState::PERMANENT }
    }

    fn object(&self) -> Object {
        Object::Neighbour { addr: self.addr, index: self.index }
    }

    fn message(&self) -> NeighbourMessage {
        let mut message = NeighbourMessage::default();
        message.header = NeighbourHeader {
            family: family_of(IpVersion::of(self.addr)),
            ifindex: self.index,
            state: self.state.0.into(),
            flags: NeighbourFlags::empty(),
            kind: RouteType::Unspec,
        };
        message.attributes.push(NeighbourAttribute::Destination(address(self.addr)));
        if let Some(mac) = self.mac {
            message.attributes.push(NeighbourAttribute::LinkLayerAddress(mac.0.to_vec()));
        }
        message
    }

    /// The request that adds the entry or replaces the one of the same address and link.
    pub fn replace(&self) -> Request {
        let message = RouteNetlinkMessage::NewNeighbour(self.message());
        Request::new("replace", self.object(), NLM_F_CREATE | NLM_F_REPLACE, &message)
    }

    /// The request that removes the entry of this address and link.
    pub fn delete(&self) -> Request {
        Request::new("delete", self.object(), 0, &RouteNetlinkMessage::DelNeighbour(self.message()))
    }

    fn decode(payload: &[u8]) -> Result<Option<Self>, String> {
        let header = NeighbourHeader::parse(payload).map_err(|e| e.to_string())?;
        if version_of(header.family).is_none() {
            return Ok(None);
        }
        let mut addr = None;
        let mut mac = None;
        attributes(payload, HEADER, |kind, value| {
            match kind {
                DST => addr = Some(ip_of(value)?),
                LLADDR => mac = mac_of(value),
                _ => {}
            }
            Ok::<(), String>(())
        })?;
        let Some(addr) = addr else { return Ok(None) };
        let state = NeighbourState(header.state.into());
        Ok(Some(Self { index: header.ifindex, addr, mac, state }))
    }
}

/// Where a bridge or VXLAN link sends frames for a hardware address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FdbEntry {
    /// Link.
    pub index: u32,
    /// Hardware address.
    pub mac: Mac,
    /// For VXLAN the remote node's address.
    pub dst: Option<IpAddr>,
    /// State.
    pub state: NeighbourState,
}

// === impl FdbEntry ===

impl FdbEntry {
    /// A permanent entry of a VXLAN link.
    pub fn permanent(index: u32, mac: Mac, dst: IpAddr) -> Self {
        Self { index, mac, dst: Some(dst), state: NeighbourState::PERMANENT }
    }

    fn object(&self) -> Object {
        Object::Fdb { mac: self.mac, index: self.index }
    }

    fn message(&self) -> NeighbourMessage {
        let mut message = NeighbourMessage::default();
        message.header = NeighbourHeader {
            family: AddressFamily::Bridge,
            ifindex: self.index,
            state: self.state.0.into(),
            // The link's own table; the kernel would ask for a bridge above it otherwise.
            flags: NeighbourFlags::Own,
            kind: RouteType::Unspec,
        };
        message.attributes.push(NeighbourAttribute::LinkLayerAddress(self.mac.0.to_vec()));
        if let Some(dst) = self.dst {
            message.attributes.push(NeighbourAttribute::Destination(address(dst)));
        }
        message
    }

    /// The request that adds the entry or replaces the one of the same hardware address and link.
    pub fn replace(&self) -> Request {
        let message = RouteNetlinkMessage::NewNeighbour(self.message());
        Request::new("replace", self.object(), NLM_F_CREATE | NLM_F_REPLACE, &message)
    }

    /// The request that removes the entry of this hardware address, destination and link.
    pub fn delete(&self) -> Request {
        Request::new("delete", self.object(), 0, &RouteNetlinkMessage::DelNeighbour(self.message()))
    }

    fn decode(payload: &[u8]) -> Result<Option<Self>, String> {
        let header = NeighbourHeader::parse(payload).map_err(|e| e.to_string())?;
        let mut dst = None;
        let mut mac = None;
        attributes(payload, HEADER, |kind, value| {
            match kind {
                DST => dst = Some(ip_of(value)?),
                LLADDR => mac = mac_of(value),
                _ => {}
            }
            Ok::<(), String>(())
        })?;
        let Some(mac) = mac else { return Ok(None) };
        let state = NeighbourState(header.state.into());
        Ok(Some(Self { index: header.ifindex, mac, dst, state }))
    }
}

fn address(addr: IpAddr) -> NeighbourAddress {
    match addr {
        IpAddr::V4(a) => NeighbourAddress::Inet(a),
        IpAddr::V6(a) => NeighbourAddress::Inet6(a),
    }
}

impl Netlink {
    /// Neighbours of one family on one link or all, in every state.
    pub fn neighbours(
        &mut self,
        version: IpVersion,
        index: Option<u32>,
    ) -> Result<Vec<Neighbour>, NetlinkError> {
        let mut message = NeighbourMessage::default();
        message.header.family = family_of(version);
        if let Some(index) = index {
            message.attributes.push(NeighbourAttribute::IfIndex(index));
        }
        let request =
            Request::new("list", Object::Neighbours, 0, &RouteNetlinkMessage::GetNeighbour(message));
        self.channel.dump(&request, |payload| {
            Ok(Neighbour::decode(payload)?.filter(|n| index.is_none_or(|i| n.index == i)))
        })
    }

    /// Adds a neighbour or replaces the one of the same address and link.
    pub fn replace_neighbour(&mut self, neighbour: &Neighbour) -> Result<(), NetlinkError> {
        self.execute(neighbour.replace())
    }

    /// Removes a neighbour. False if it was not there.
    pub fn delete_neighbour(&mut self, neighbour: &Neighbour) -> Result<bool, NetlinkError> {
        found(self.execute(neighbour.delete()))
    }

    /// Forwarding entries of the link with `index`.
    pub fn fdb(&mut self, index: u32) -> Result<Vec<FdbEntry>, NetlinkError> {
        let mut message = NeighbourMessage::default();
        message.header.family = AddressFamily::Bridge;
        message.header.ifindex = index;
        let request =
            Request::new("list", Object::Neighbours, 0, &RouteNetlinkMessage::GetNeighbour(message));
        self.channel.dump(&request, |payload| Ok(FdbEntry::decode(payload)?.filter(|e| e.index == index)))
    }

    /// Adds a forwarding entry or replaces the one of the same hardware address and link.
    pub fn replace_fdb(&mut self, entry: &FdbEntry) -> Result<(), NetlinkError> {
        self.execute(entry.replace())
    }

    /// Removes a forwarding entry. False if it was not there.
    pub fn delete_fdb(&mut self, entry: &FdbEntry) -> Result<bool, NetlinkError> {
        found(self.execute(entry.delete()))
    }
}

#[cfg(test)]
pub(crate) fn decode_either(payload: &[u8]) -> Result<(Option<Neighbour>, Option<FdbEntry>), String> {
    Ok((Neighbour::decode(payload)?, FdbEntry::decode(payload)?))
}
