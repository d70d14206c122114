//! The stream of changes that the kernel reports.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

use netlink_sys::Socket;
use netlink_sys::protocols::NETLINK_ROUTE;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::error::NetlinkError;
use crate::socket::{in_namespace, open_socket, receive};
use crate::wire::messages;
use crate::{Address, Link, Route};

/// What to be told about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MonitorGroups {
    /// Links.
    pub links: bool,
    /// Addresses of both families.
    pub addresses: bool,
    /// Routes of both families.
    pub routes: bool,
}

// === impl MonitorGroups ===

impl MonitorGroups {
    /// Everything.
    pub const ALL: Self = Self { links: true, addresses: true, routes: true };

    /// The bit mask of `RTMGRP_*`.
    fn mask(self) -> u32 {
        let group = |wanted: bool, mask: i32| if wanted { mask.cast_unsigned() } else { 0 };
        group(self.links, libc::RTMGRP_LINK)
            | group(self.addresses, libc::RTMGRP_IPV4_IFADDR | libc::RTMGRP_IPV6_IFADDR)
            | group(self.routes, libc::RTMGRP_IPV4_ROUTE | libc::RTMGRP_IPV6_ROUTE)
    }
}

/// A change in the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A link is new or changed.
    Link(Link),
    /// A link is gone.
    LinkRemoved(Link),
    /// An address is new or changed.
    Address(Address),
    /// An address is gone.
    AddressRemoved(Address),
    /// A route is new or changed.
    Route(Route),
    /// A route is gone.
    RouteRemoved(Route),
    /// Events were lost: read everything anew.
    Overrun,
}

/// Changes in one network namespace, from the moment it was made; list after making it, so that nothing is missed.
///
/// Not blocking by itself: [`Monitor::try_next`] returns what is there, [`Monitor::wait`] and [`MonitorStream`] wait.
#[derive(Debug)]
pub struct Monitor {
    socket: Socket,
    buffer: Vec<u8>,
    pending: std::collections::VecDeque<Event>,
}

// === impl Monitor ===

impl Monitor {
    /// Watches the calling thread's namespace.
    pub fn new(groups: MonitorGroups) -> Result<Self, NetlinkError> {
        let socket = open_socket(NETLINK_ROUTE, groups.mask())?;
        socket.set_non_blocking(true).map_err(|source| NetlinkError::Socket { call: "configure", source })?;
        Ok(Self { socket, buffer: Vec::new(), pending: std::collections::VecDeque::new() })
    }

    /// Watches the namespace that `ns` refers to.
    pub fn in_ns(ns: impl AsFd, groups: MonitorGroups) -> Result<Self, NetlinkError> {
        in_namespace(ns.as_fd(), || Self::new(groups))
    }

    /// The next event, if one is there.
    pub fn try_next(&mut self) -> Result<Option<Event>, NetlinkError> {
        loop {
            if let Some(event) = self.pending.pop_front() {
                return Ok(Some(event));
            }
            match receive(&self.socket, &mut self.buffer, 0) {
                Ok(()) => self.decode(),
                Err(NetlinkError::Socket { source, .. }) if source.kind() == io::ErrorKind::WouldBlock => {
                    return Ok(None);
                }
                Err(NetlinkError::Socket { source, .. })
                    if source.raw_os_error() == Some(Errno::ENOBUFS as i32) =>
                {
                    return Ok(Some(Event::Overrun));
                }
                Err(e) => return Err(e),
            }
        }
    }

    /// The next event; waits for it at most `timeout`, then `None`.
    pub fn wait(&mut self, timeout: Duration) -> Result<Option<Event>, NetlinkError> {
        let deadline = std::time::Instant::now() + timeout;
        loop {
            if let Some(event) = self.try_next()? {
                return Ok(Some(event));
            }
            let left = deadline.saturating_duration_since(std::time::Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            let wait = PollTimeout::try_from(left.max(Duration::from_millis(1))).unwrap_or(PollTimeout::MAX);
            match poll(&mut [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)], wait) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(e) => return Err(NetlinkError::Socket { call: "wait on", source: e.into() }),
            }
        }
    }

    /// Decodes what is in the buffer. A message that cannot be understood counts as lost.
    fn decode(&mut self) {
        for message in messages(&self.buffer) {
            let decoded = match message.kind {
                libc::RTM_NEWLINK => Link::decode(message.payload).map(|l| Some(Event::Link(l))),
                libc::RTM_DELLINK => Link::decode(message.payload).map(|l| Some(Event::LinkRemoved(l))),
                libc::RTM_NEWADDR => Address::decode(message.payload).map(|a| a.map(Event::Address)),
                libc::RTM_DELADDR => Address::decode(message.payload).map(|a| a.map(Event::AddressRemoved)),
                libc::RTM_NEWROUTE => Route::decode(message.payload).map(|r| r.map(Event::Route)),
                libc::RTM_DELROUTE => Route::decode(message.payload).map(|r| r.map(Event::RouteRemoved)),
                _ => Ok(None),
            };
            match decoded {
                Ok(event) => self.pending.extend(event),
                Err(reason) => {
                    tracing::warn!(kind = message.kind, %reason, "Kernel event was not understood");
                    self.pending.push_back(Event::Overrun);
                }
            }
        }
    }
}

impl AsFd for Monitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for Monitor {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

/// A [`Monitor`] for async code.
#[derive(Debug)]
pub struct MonitorStream {
    monitor: AsyncFd<Monitor>,
}

// === impl MonitorStream ===

impl MonitorStream {
    /// Registers `monitor` with the tokio runtime that the caller runs in.
    pub fn new(monitor: Monitor) -> Result<Self, NetlinkError> {
        #[expect(
            unsafe_code,
            reason = "tokio wants a promise that the file descriptor outlives its registration"
        )]
        // SAFETY: the monitor owns its socket, always reports the same one, and lives inside the `AsyncFd`.
        let registered = unsafe { AsyncFd::register_with_interest(monitor, Interest::READABLE) };
        let monitor = registered.map_err(|e| NetlinkError::Socket { call: "register", source: e.into() })?;
        Ok(Self { monitor })
    }

    /// The next event. Safe to drop while it waits.
    pub async fn next(&mut self) -> Result<Event, NetlinkError> {
        loop {
            if let Some(event) = self.monitor.get_mut().try_next()? {
                return Ok(event);
            }
            let mut guard = self
                .monitor
                .readable_mut()
                .await
                .map_err(|source| NetlinkError::Socket { call: "wait on", source })?;
            match guard.get_inner_mut().try_next()? {
                Some(event) => return Ok(event),
                None => guard.clear_ready(),
            }
        }
    }
}
