//! What the operating system offers besides netlink and netfilter: network namespaces, kernel parameters, file
//! locks, child processes, names.
//!
//! Owns: [`NetNs`], [`Sysctl`], [`FileLock`], [`Process`], [`hostname`] and [`check_interface_name`].
//!
//! Invariants:
//! - No call leaves the calling thread in another namespace than before: work in a namespace happens on threads of
//!   its own.
//! - Errors name the path or the object.
//! - No unsafe code: a child gets into a namespace by being started from a thread that is in it.

mod lock;
mod name;
mod netns;
mod process;
mod sysctl;

pub use lock::{FileLock, LockError};
pub use name::{InterfaceNameError, check_interface_name, hostname};
pub use netns::{NETNS_DIR, NetNs, NetNsError};
pub use process::{Process, ProcessError};
pub use sysctl::{Sysctl, SysctlError};
