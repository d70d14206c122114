//! Network value types that every other crate shares.
//!
//! Owns: addresses with a family ([`Cidr`], [`IpVersion`]), ports and protocols as Calico's API spells
//! them ([`Port`], [`Protocol`]), hardware addresses ([`Mac`]), longest-prefix-match maps ([`lpm`]) and a
//! reference-counting interner ([`intern`]). Nothing here reads the clock, a file or a socket.
//!
//! Text forms follow Go's `net` package, since stored data and error messages were made by it.

pub mod cidr;
pub mod intern;
pub mod lpm;
pub mod mac;
pub mod port;
pub mod protocol;

pub use cidr::{Cidr, CidrError, IpVersion};
pub use mac::{Mac, MacError};
pub use port::{Port, PortError, PortRange};
pub use protocol::{Protocol, ProtocolError};
