//! What the datastore holds, as typed keys and values, and how the pieces convert into one another.
//!
//! Owns: the identity of everything stored or synchronised ([`Key`]), its content ([`Value`]), their texts in
//! etcd and SQLite ([`path`], [`codec`]), the update processors that turn `projectcalico.org/v3` objects into
//! the model which Felix works on ([`process`]), and the conversion of Kubernetes objects ([`kubernetes`]).
//! Pure: bytes and typed values in, bytes and typed values out.

pub mod codec;
pub mod ipam;
pub mod key;
pub mod kubernetes;
pub mod kv;
pub mod names;
pub mod path;
pub mod policy;
pub mod process;
pub mod value;

pub use codec::{CodecError, decode_value, encode_value};
pub use key::{AffinityType, Key, ListOptions, PolicyKey, ResourceKey, WorkloadEndpointKey};
pub use kv::{KvPair, Revision, SyncStatus, Update, UpdateType};
pub use path::KeyRange;
pub use process::{ProcessError, Processor, processor_for};
pub use value::Value;
