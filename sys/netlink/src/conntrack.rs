//! Deletion of tracked connections, so that traffic of an address that moved or went is judged anew.
//!
//! Messages of nfnetlink's conntrack subsystem (`uapi/linux/netfilter/nfnetlink_conntrack.h`).

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::os::fd::AsFd;

use calico_net::IpVersion;
use netlink_packet_core::{DefaultNla, Emitable, NLA_F_NESTED};
use netlink_sys::protocols::NETLINK_NETFILTER;

use crate::error::{NetlinkError, Object};
use crate::socket::{Channel, Request};
use crate::wire::{attributes, ip_of};

/// Length of a message's header (`struct nfgenmsg`).
const HEADER: usize = 4;
/// Message types: subsystem conntrack, get and delete.
const GET: u16 = (1 << 8) | 1;
const DELETE: u16 = (1 << 8) | 2;
/// Attributes (`CTA_*`).
const TUPLE_ORIG: u16 = 1;
const TUPLE_REPLY: u16 = 2;
const ID: u16 = 12;
const ZONE: u16 = 18;
/// Attributes of a tuple.
const TUPLE_IP: u16 = 1;

/// A socket for tracked connections in one network namespace.
#[derive(Debug)]
pub struct Conntrack {
    channel: Channel,
}

/// What identifies a connection for its deletion, as the kernel wrote it.
struct Connection {
    identity: Vec<DefaultNla>,
    family: u8,
}

// === impl Conntrack ===

impl Conntrack {
    /// Opens a socket in the calling thread's network namespace.
    pub fn new() -> Result<Self, NetlinkError> {
        Ok(Self { channel: Channel::open(NETLINK_NETFILTER)? })
    }

    /// Opens a socket in the network namespace that `ns` refers to.
    pub fn in_ns(ns: impl AsFd) -> Result<Self, NetlinkError> {
        Ok(Self { channel: Channel::open_in(ns.as_fd(), NETLINK_NETFILTER)? })
    }

    /// Deletes every connection that has one of `addrs` as source or destination, in either direction. Reads the
    /// table once per family. Returns how many were deleted; those that ended meanwhile do not count.
    pub fn delete_of(&mut self, addrs: &BTreeSet<IpAddr>) -> Result<usize, NetlinkError> {
        let mut deleted = 0;
        for version in IpVersion::BOTH {
            if !addrs.iter().any(|a| IpVersion::of(*a) == version) {
                continue;
            }
            let family = match version {
                IpVersion::V4 => libc::AF_INET as u8,
                IpVersion::V6 => libc::AF_INET6 as u8,
            };
            let list = request("list", GET, family, &[]);
            let found = self.channel.dump(&list, |payload| Ok(Connection::of(payload, family, addrs)))?;
            let deletes: Vec<Request> =
                found.iter().map(|c| request("delete", DELETE, c.family, &c.identity)).collect();
            for result in self.channel.execute(&deletes)? {
                match result {
                    Ok(()) => deleted += 1,
                    Err(e) if e.is_not_found() => {}
                    Err(e) => return Err(e),
                }
            }
        }
        Ok(deleted)
    }
}

// === impl Connection ===

impl Connection {
    /// The connection in `payload`, if one of `addrs` takes part in it.
    fn of(payload: &[u8], family: u8, addrs: &BTreeSet<IpAddr>) -> Option<Self> {
        let mut identity = Vec::new();
        let mut matches = false;
        let _ = attributes(payload, HEADER, |kind, value| {
            match kind {
                TUPLE_ORIG => {
                    matches |= tuple_has(value, addrs);
                    identity.push(DefaultNla::new(TUPLE_ORIG | NLA_F_NESTED, value.to_vec()));
                }
                TUPLE_REPLY => matches |= tuple_has(value, addrs),
                ID | ZONE => identity.push(DefaultNla::new(kind, value.to_vec())),
                _ => {}
            }
            Ok::<(), ()>(())
        });
        matches.then_some(Self { identity, family })
    }
}

/// True if the tuple's source or destination is one of `addrs`.
fn tuple_has(tuple: &[u8], addrs: &BTreeSet<IpAddr>) -> bool {
    let mut has = false;
    let _ = attributes(tuple, 0, |kind, ips| {
        if kind == TUPLE_IP {
            // Source and destination of either family, nothing else.
            attributes(ips, 0, |_, value| {
                has |= ip_of(value).is_ok_and(|a| addrs.contains(&a));
                Ok::<(), ()>(())
            })?;
        }
        Ok::<(), ()>(())
    });
    has
}

fn request(call: &'static str, kind: u16, family: u8, attributes: &[DefaultNla]) -> Request {
    let mut payload = vec![0; HEADER + attributes.buffer_len()];
    payload[0] = family;
    attributes.emit(&mut payload[HEADER..]);
    Request { call, object: Object::Connections, kind, flags: 0, payload }
}

#[cfg(test)]
pub(crate) fn takes_part(payload: &[u8], addrs: &BTreeSet<IpAddr>) -> bool {
    Connection::of(payload, 0, addrs).is_some()
}
