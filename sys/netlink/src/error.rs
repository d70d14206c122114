//! Errors: which call, on which object, and what the kernel said.

use std::fmt;
use std::io;
use std::net::IpAddr;

use calico_net::{Cidr, Mac};
use nix::errno::Errno;

/// What a request was about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Object {
    /// A link, by name.
    Link(String),
    /// A link, by index.
    LinkIndex(u32),
    /// All links.
    Links,
    /// An address on a link.
    Address {
        /// Address with prefix length.
        addr: Cidr,
        /// Link.
        index: u32,
    },
    /// Addresses.
    Addresses,
    /// A route.
    Route {
        /// Destination.
        dst: Cidr,
        /// Table.
        table: u32,
    },
    /// Routes.
    Routes,
    /// A neighbour.
    Neighbour {
        /// Address.
        addr: IpAddr,
        /// Link.
        index: u32,
    },
    /// A forwarding entry.
    Fdb {
        /// Hardware address.
        mac: Mac,
        /// Link.
        index: u32,
    },
    /// Neighbours or forwarding entries.
    Neighbours,
    /// Tracked connections.
    Connections,
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Link(name) => write!(f, "link {name}"),
            Self::LinkIndex(index) => write!(f, "link with index {index}"),
            Self::Links => f.write_str("links"),
            Self::Address { addr, index } => write!(f, "address {addr} on link with index {index}"),
            Self::Addresses => f.write_str("addresses"),
            Self::Route { dst, table } => write!(f, "route {dst} in table {table}"),
            Self::Routes => f.write_str("routes"),
            Self::Neighbour { addr, index } => write!(f, "neighbour {addr} on link with index {index}"),
            Self::Fdb { mac, index } => write!(f, "forwarding entry {mac} on link with index {index}"),
            Self::Neighbours => f.write_str("neighbours"),
            Self::Connections => f.write_str("tracked connections"),
        }
    }
}

/// Why a request was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum NetlinkError {
    /// The kernel refused.
    #[error("cannot {call} {object}: {}{}", errno.desc(), detail_suffix(.detail))]
    Kernel {
        /// What was asked, a verb, for example `replace`.
        call: &'static str,
        /// On what.
        object: Object,
        /// The kernel's error number.
        errno: Errno,
        /// The kernel's own explanation, if it gave one.
        detail: Option<String>,
    },
    /// The socket could not be opened or used. What became of the request is unknown.
    #[error("cannot {call} netlink socket: {source}")]
    Socket {
        /// Which operation on the socket.
        call: &'static str,
        /// Why.
        source: io::Error,
    },
    /// The network namespace could not be entered.
    #[error("cannot enter network namespace: {}", .0.desc())]
    Namespace(Errno),
    /// The kernel's answer does not follow the protocol.
    #[error("cannot understand the kernel's answer to {call} {object}: {reason}")]
    Decode {
        /// What was asked.
        call: &'static str,
        /// On what.
        object: Object,
        /// What is wrong.
        reason: String,
    },
    /// The table changed during each of several attempts to read it.
    #[error("cannot {call} {object}: they kept changing while being read")]
    Interrupted {
        /// What was asked.
        call: &'static str,
        /// On what.
        object: Object,
    },
}

impl NetlinkError {
    /// The kernel's error number, if it refused.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::Kernel { errno, .. } => Some(*errno),
            _ => None,
        }
    }

    /// True if the object, or the link it belongs to, is not there: no such device, file, route or address.
    pub fn is_not_found(&self) -> bool {
        matches!(self.errno(), Some(Errno::ENODEV | Errno::ENOENT | Errno::ESRCH | Errno::EADDRNOTAVAIL))
    }

    /// True if the object is there already.
    pub fn is_exists(&self) -> bool {
        self.errno() == Some(Errno::EEXIST)
    }
}

fn detail_suffix(detail: &Option<String>) -> String {
    detail.as_ref().map(|d| format!(" ({d})")).unwrap_or_default()
}
