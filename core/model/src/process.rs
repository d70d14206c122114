//! Update processors: what is stored (v3 objects) becomes what Felix works on.
//!
//! Owns: for each kind of object a [`Processor`] that turns one change of an object into changes of the
//! model. Input: a stream of changes of one kind, from one store, in order. Output: changes of the model;
//! deletions have a key and no value.
//! Invariants: an object that cannot be converted counts as deleted and is reported; nothing panics; the
//! revision of the object is that of its parts, except where an object takes the place of another one that
//! meant the same.

use calico_api::Kind;
use smol_str::SmolStr;

use crate::key::{Key, ResourceKey};
use crate::kv::KvPair;
use crate::value::Value;

mod conflict;
mod endpoint;
mod felix_config;
mod network;
mod node;
mod policy;
mod rule;

#[cfg(test)]
mod tests;

pub use felix_config::felix_parameters;

use conflict::ConflictResolver;

/// Why a change has no counterpart in the model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProcessError {
    /// The change is not about an object of the kind that the processor is for.
    #[error("{key} is no object of kind {expected}")]
    WrongKind {
        /// Key of the change.
        key: String,
        /// The processor's kind.
        expected: Kind,
    },
    /// The object's value is of another type than its key says.
    #[error("{key} holds a value of another type")]
    WrongValue {
        /// The object.
        key: ResourceKey,
    },
    /// The object is deleted but was not there.
    #[error("{key} was deleted but is not known")]
    UnknownDeleted {
        /// The object.
        key: ResourceKey,
    },
    /// A field of the object cannot be read; the object counts as deleted.
    #[error("{key}: {field}: cannot read {value:?}; the object is not used")]
    Unreadable {
        /// The object.
        key: ResourceKey,
        /// Path of the field.
        field: &'static str,
        /// What it holds.
        value: String,
    },
    /// Rules of the object hold parts that cannot be read: those that deny are used without them, the others
    /// not at all.
    #[error("{key}: {direction} rule {number}: {reason}; the rule is used only if it denies")]
    UnreadableRule {
        /// The object.
        key: ResourceKey,
        /// `ingress` or `egress`.
        direction: &'static str,
        /// Place of the first such rule in its list, from 0.
        number: usize,
        /// What cannot be read.
        reason: String,
    },
    /// The object's name does not say what it stands for.
    #[error("{key}: {reason}")]
    BadName {
        /// The object.
        key: ResourceKey,
        /// What is wrong.
        reason: String,
    },
    /// Kubernetes rules could not be converted.
    #[error("{key}: {reason}")]
    Conversion {
        /// The object.
        key: ResourceKey,
        /// What is wrong.
        reason: String,
    },
}

/// Turns changes of objects of one kind into changes of the model.
pub trait Processor: Send {
    /// What one change of an object means. Some outputs may come with an error.
    fn process(&mut self, kv: KvPair) -> (Vec<KvPair>, Option<ProcessError>);

    /// Called before a syncer lists from the beginning: forgets what was sent before.
    fn on_syncer_starting(&mut self);
}

/// A new processor for objects of `kind`; `None` for kinds that reach Felix as they are.
pub fn processor_for(kind: Kind) -> Option<Box<dyn Processor>> {
    let simple =
        |key, convert| -> Option<Box<dyn Processor>> { Some(Box::new(Simple { kind, key, convert })) };
    match kind {
        Kind::NetworkPolicy
        | Kind::GlobalNetworkPolicy
        | Kind::StagedNetworkPolicy
        | Kind::StagedGlobalNetworkPolicy
        | Kind::StagedKubernetesNetworkPolicy
        | Kind::KubernetesNetworkPolicy
        | Kind::KubernetesClusterNetworkPolicy => simple(policy::key, policy::policy),
        Kind::Tier => simple(policy::tier_key, policy::tier),
        Kind::NetworkSet => simple(network::set_key, network::namespaced_set),
        Kind::WorkloadEndpoint => simple(endpoint::workload_key, endpoint::workload),
        Kind::GlobalNetworkSet => Some(Box::new(ConflictResolver::new(kind, network::global_set))),
        Kind::IPPool => Some(Box::new(ConflictResolver::new(kind, network::pool))),
        Kind::HostEndpoint => Some(Box::new(ConflictResolver::new(kind, endpoint::host))),
        Kind::Profile => Some(Box::new(FanOut { kind, convert: policy::profile })),
        Kind::Node => Some(Box::new(FanOut { kind, convert: node::node })),
        Kind::ClusterInformation => Some(Box::new(FanOut { kind, convert: node::cluster_information })),
        Kind::FelixConfiguration => Some(Box::<felix_config::FelixConfigProcessor>::default()),
        _ => None,
    }
}

/// What an object's value means: nothing if it is to be left out on purpose. A value may come with an error.
type Converted = Result<(Option<Value>, Option<ProcessError>), ProcessError>;

/// One object, one entry of the model, whose key follows from the object's key.
struct Simple {
    kind: Kind,
    key: fn(&ResourceKey) -> Result<Key, ProcessError>,
    convert: fn(&ResourceKey, &Value) -> Converted,
}

impl Processor for Simple {
    fn process(&mut self, kv: KvPair) -> (Vec<KvPair>, Option<ProcessError>) {
        let source = match expect_kind(&kv.key, self.kind) {
            Ok(source) => source,
            Err(error) => return (Vec::new(), Some(error)),
        };
        let key = match (self.key)(source) {
            Ok(key) => key,
            Err(error) => return (Vec::new(), Some(error)),
        };
        let (value, error) = match &kv.value {
            None => (None, None),
            Some(value) => (self.convert)(source, value).unwrap_or_else(|error| (None, Some(error))),
        };
        (vec![KvPair { key, value, revision: kv.revision, uid: kv.uid, ttl: None }], error)
    }

    fn on_syncer_starting(&mut self) {}
}

/// The entries that an object stands for; absent values are deletions.
type Parts = Vec<(Key, Option<Value>)>;

/// One object, a fixed set of entries. The function gets no value for a deletion and then lists the keys.
struct FanOut {
    kind: Kind,
    convert: fn(&ResourceKey, Option<&Value>) -> (Parts, Option<ProcessError>),
}

impl Processor for FanOut {
    fn process(&mut self, kv: KvPair) -> (Vec<KvPair>, Option<ProcessError>) {
        let source = match expect_kind(&kv.key, self.kind) {
            Ok(source) => source,
            Err(error) => return (Vec::new(), Some(error)),
        };
        let (parts, error) = (self.convert)(source, kv.value.as_ref());
        (entries(parts, &kv), error)
    }

    fn on_syncer_starting(&mut self) {}
}

fn entries(parts: Parts, kv: &KvPair) -> Vec<KvPair> {
    parts
        .into_iter()
        .map(|(key, value)| KvPair {
            key,
            value,
            revision: kv.revision.clone(),
            uid: kv.uid.clone(),
            ttl: None,
        })
        .collect()
}

fn expect_kind(key: &Key, kind: Kind) -> Result<&ResourceKey, ProcessError> {
    match key {
        Key::Resource(source) if source.kind == kind => Ok(source),
        other => Err(ProcessError::WrongKind { key: other.to_string(), expected: kind }),
    }
}

/// The object as one of type `R`.
fn object<'v, R: calico_api::Resource>(
    source: &ResourceKey,
    value: &'v Value,
) -> Result<&'v R, ProcessError> {
    match value {
        Value::Resource(any) => R::from_any_ref(any),
        _ => None,
    }
    .ok_or_else(|| ProcessError::WrongValue { key: source.clone() })
}

fn unreadable(source: &ResourceKey, field: &'static str, value: &str) -> ProcessError {
    ProcessError::Unreadable { key: source.clone(), field, value: value.to_owned() }
}

fn words<T: AsRef<str>>(texts: &[T]) -> Vec<SmolStr> {
    texts.iter().map(|text| text.as_ref().into()).collect()
}
