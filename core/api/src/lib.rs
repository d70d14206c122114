//! Calico's public API in Rust: the types of `projectcalico.org/v3` and of the few Kubernetes objects that
//! are translated into them.
//!
//! Owns: one serde type per resource kind ([`kinds`]), object metadata ([`meta`]), the list of all kinds with
//! their names and aliases ([`Kind`], [`KindInfo`]), an object of any kind ([`AnyResource`]), decoding with
//! exact error places ([`decode`]) and the writer of the stored form ([`gojson`]).
//! It holds no defaults, no validation and no client.
//!
//! Invariants:
//! - What the types write equals, byte for byte, what Go's encoder writes for upstream's types: fields in
//!   declaration order, maps sorted, upstream's rules on which empty fields are left out.
//! - Decoding from a store never fails on unknown fields or unknown words of an enumeration; both survive as
//!   far as the types can hold them, so that validation can name them.
//! - `null` and an absent field mean the same, as in Go.

#[macro_use]
mod go;
#[macro_use]
pub mod resource;

pub mod decode;
pub mod gojson;
pub mod k8s;
pub mod kind;
pub mod kinds;
pub mod meta;
pub mod numorstring;
mod registry;
pub mod time;

pub use decode::{DecodeError, UnknownField};
pub use kind::{Kind, KindInfo, Scope};
pub use kinds::*;
pub use meta::{Condition, ListMeta, ObjectMeta, OwnerReference};
pub use numorstring::{AsNumber, Dscp};
pub use registry::AnyResource;
pub use resource::{API_GROUP, API_VERSION, Resource};
pub use time::{GoDuration, Timestamp};

use go::is_default;
