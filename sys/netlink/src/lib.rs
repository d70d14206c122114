//! Links, addresses, routes and neighbours of the Linux kernel, over synchronous netlink sockets.
//!
//! Owns: the messages of rtnetlink that Calico needs ([`Netlink`]), a stream of changes ([`Monitor`],
//! [`MonitorStream`]) and the deletion of tracked connections ([`Conntrack`]).
//!
//! In: requests as plain structs ([`Route`], [`VethSpec`], ...). Out: the kernel's objects as the same structs,
//! and typed errors that name the call, the object and the error number.
//!
//! Invariants:
//! - A socket belongs for ever to the network namespace it was opened in; [`Netlink::in_ns`] opens it on a thread
//!   of its own, so that the calling thread never changes namespace.
//! - Attributes that this crate does not use are never decoded, so an unknown or odd one can not hide an object.
//! - Dumps are whole: one that the kernel marks as interrupted is repeated, then reported as an error.
//! - A batch stops at no failure: every request is tried and has its own result.
//!
//! Requests are built with the types of `netlink-packet-route`; replies are decoded by attribute number (rtnetlink(7)
//! and the kernel's `uapi/linux/rtnetlink.h`).

mod address;
mod conntrack;
mod error;
mod link;
mod monitor;
mod neighbour;
mod route;
mod socket;
mod wire;

use std::os::fd::AsFd;

pub use nix::errno::Errno;

pub use address::{Address, AddressScope};
pub use conntrack::Conntrack;
pub use error::{NetlinkError, Object};
pub use link::{Link, LinkChange, OperState, PeerSpec, VethSpec, VxlanInfo, VxlanSpec};
pub use monitor::{Event, Monitor, MonitorGroups, MonitorStream};
pub use neighbour::{FdbEntry, Neighbour, NeighbourState};
pub use route::{NextHop, Route, RouteFilter, RouteKind, RouteProtocol, RouteScope, RouteTable};
pub use socket::Request;

use socket::Channel;

/// A socket for rtnetlink requests in one network namespace.
///
/// Calls block until the kernel has answered, which it does within the system call; no call waits for other
/// processes. Not for concurrent use: give each thread its own.
#[derive(Debug)]
pub struct Netlink {
    channel: Channel,
}

impl Netlink {
    /// Opens a socket in the calling thread's network namespace.
    pub fn new() -> Result<Self, NetlinkError> {
        Ok(Self { channel: Channel::open(netlink_sys::protocols::NETLINK_ROUTE)? })
    }

    /// Opens a socket in the network namespace that `ns` refers to (a file of `/proc/<pid>/ns/net` or a bind mount
    /// of one).
    pub fn in_ns(ns: impl AsFd) -> Result<Self, NetlinkError> {
        let ns = ns.as_fd();
        Ok(Self { channel: Channel::open_in(ns, netlink_sys::protocols::NETLINK_ROUTE)? })
    }

    /// Carries out `request`.
    pub fn execute(&mut self, request: Request) -> Result<(), NetlinkError> {
        self.channel.execute(std::slice::from_ref(&request))?.pop().unwrap_or(Ok(()))
    }

    /// Carries out many requests in order with few system calls: 5,000 routes take some tens of milliseconds.
    ///
    /// The outer error is one of the socket: what was done by then is unknown, so read the state back. Otherwise there is one
    /// result per request; a failed request does not stop those after it.
    pub fn batch(&mut self, requests: &[Request]) -> Result<Vec<Result<(), NetlinkError>>, NetlinkError> {
        self.channel.execute(requests)
    }
}
