//! Addresses on links.

use std::net::IpAddr;

use calico_net::{Cidr, IpVersion};
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{
    AddressAttribute, AddressFlags, AddressHeader, AddressHeaderFlags, AddressMessage,
};

use crate::error::{NetlinkError, Object};
use crate::link::found;
use crate::socket::Request;
use crate::wire::{attributes, family_of, ip_of, u32_of, version_of};
use crate::{Netlink, RouteScope};

/// Length of an address message's header (`struct ifaddrmsg`).
const HEADER: usize = 8;

/// Scope of an address; the same numbers as for routes.
pub type AddressScope = RouteScope;

/// An address on a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Address {
    /// Link.
    pub index: u32,
    /// Address with the length of its network's prefix.
    pub addr: Cidr,
    /// Scope.
    pub scope: AddressScope,
    /// The kernel's `IFA_F_*` flags, for example [`Address::NO_DAD`].
    pub flags: u32,
}

// === impl Address ===

impl Address {
    /// IPv6: use at once, without duplicate address detection (`IFA_F_NODAD`).
    pub const NO_DAD: u32 = libc::IFA_F_NODAD;
    /// IPv6: duplicate address detection still runs (`IFA_F_TENTATIVE`).
    pub const TENTATIVE: u32 = libc::IFA_F_TENTATIVE;
    /// No route to the prefix is made (`IFA_F_NOPREFIXROUTE`).
    pub const NO_PREFIX_ROUTE: u32 = libc::IFA_F_NOPREFIXROUTE;

    /// An address of global scope without flags.
    pub fn new(index: u32, addr: Cidr) -> Self {
        Self { index, addr, scope: RouteScope::UNIVERSE, flags: 0 }
    }

    fn object(&self) -> Object {
        Object::Address { addr: self.addr, index: self.index }
    }

    fn message(&self) -> AddressMessage {
        let mut message = AddressMessage::default();
        message.header = AddressHeader {
            family: family_of(self.addr.version()),
            prefix_len: self.addr.prefix_len(),
            flags: AddressHeaderFlags::empty(),
            scope: self.scope.0.into(),
            index: self.index,
        };
        message.attributes.push(AddressAttribute::Local(self.addr.addr()));
        message.attributes.push(AddressAttribute::Address(self.addr.addr()));
        if self.flags != 0 {
            message.attributes.push(AddressAttribute::Flags(AddressFlags::from_bits_retain(self.flags)));
        }
        message
    }

    /// The request that adds the address; one that is there already is an error.
    pub fn add(&self) -> Request {
        let message = RouteNetlinkMessage::NewAddress(self.message());
        Request::new("add", self.object(), NLM_F_CREATE | NLM_F_EXCL, &message)
    }

    /// The request that adds the address or changes the flags of the one that is there.
    pub fn replace(&self) -> Request {
        let message = RouteNetlinkMessage::NewAddress(self.message());
        Request::new("replace", self.object(), NLM_F_CREATE | NLM_F_REPLACE, &message)
    }

    /// The request that removes the address.
    pub fn delete(&self) -> Request {
        let mut message = self.message();
        message.attributes.retain(|a| !matches!(a, AddressAttribute::Flags(_)));
        Request::new("delete", self.object(), 0, &RouteNetlinkMessage::DelAddress(message))
    }

    /// `None` for families other than IP.
    pub(crate) fn decode(payload: &[u8]) -> Result<Option<Self>, String> {
        let header = AddressHeader::parse(payload).map_err(|e| e.to_string())?;
        if version_of(header.family).is_none() {
            return Ok(None);
        }
        let mut local: Option<IpAddr> = None;
        let mut address: Option<IpAddr> = None;
        let mut flags = u32::from(header.flags.bits());
        attributes(payload, HEADER, |kind, value| {
            match kind {
                libc::IFA_LOCAL => local = Some(ip_of(value)?),
                libc::IFA_ADDRESS => address = Some(ip_of(value)?),
                libc::IFA_FLAGS => flags = u32_of(value)?,
                _ => {}
            }
            Ok::<(), String>(())
        })?;
        // On a point-to-point link `address` is the other side's.
        let addr = local.or(address).ok_or("an address message without address")?;
        let addr = Cidr::new(addr, header.prefix_len).ok_or("a prefix longer than the address")?;
        Ok(Some(Self { index: header.index, addr, scope: RouteScope(header.scope.into()), flags }))
    }
}

impl Netlink {
    /// Addresses of one link or all, of one family or both.
    pub fn addresses(
        &mut self,
        index: Option<u32>,
        version: Option<IpVersion>,
    ) -> Result<Vec<Address>, NetlinkError> {
        let mut message = AddressMessage::default();
        message.header.index = index.unwrap_or(0);
        if let Some(version) = version {
            message.header.family = family_of(version);
        }
        let request = Request::new("list", Object::Addresses, 0, &RouteNetlinkMessage::GetAddress(message));
        let wanted =
            |a: &Address| index.is_none_or(|i| a.index == i) && version.is_none_or(|v| a.addr.version() == v);
        let listed = self.channel.dump(&request, |payload| Ok(Address::decode(payload)?.filter(wanted)));
        match listed {
            // The link that was asked for is gone.
            Err(e) if e.is_not_found() => Ok(Vec::new()),
            other => other,
        }
    }

    /// Adds an address; one that is there already is an error for which [`NetlinkError::is_exists`] holds.
    pub fn add_address(&mut self, address: &Address) -> Result<(), NetlinkError> {
        self.execute(address.add())
    }

    /// Removes an address. False if it was not there.
    pub fn delete_address(&mut self, address: &Address) -> Result<bool, NetlinkError> {
        found(self.execute(address.delete()))
    }
}
