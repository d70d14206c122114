//! Objects of different names that mean the same thing to Felix, for example two IP pools of one CIDR.
//!
//! Invariant: at each moment the entry of the lexically smallest name is the one that has been sent.

use std::collections::{BTreeMap, HashMap};

use smol_str::SmolStr;

use super::{ProcessError, Processor, expect_kind};
use crate::key::{Key, ResourceKey};
use crate::kv::{KvPair, Revision};
use crate::value::Value;

/// Makes Felix's key and value of an object, or says why it cannot.
pub(super) type Convert = fn(&ResourceKey, &Value) -> Result<(Key, Value), ProcessError>;

/// Processor for a kind whose objects may clash.
pub(super) struct ConflictResolver {
    kind: calico_api::Kind,
    convert: Convert,
    by_key: HashMap<Key, BTreeMap<SmolStr, KvPair>>,
    key_of: HashMap<SmolStr, Key>,
}

impl ConflictResolver {
    pub(super) fn new(kind: calico_api::Kind, convert: Convert) -> Self {
        Self { kind, convert, by_key: HashMap::new(), key_of: HashMap::new() }
    }

    /// Takes the entry of `name` away at `revision`; what has to be sent for that. `None` if there is no such
    /// entry.
    fn remove(&mut self, name: &str, revision: &Revision) -> Option<Vec<KvPair>> {
        let key = self.key_of.remove(name)?;
        let entries = self.by_key.get_mut(&key)?;
        let was_sent = entries.keys().next().is_some_and(|first| first == name);
        entries.remove(name);
        let next = entries.values().next().cloned();
        if next.is_none() {
            self.by_key.remove(&key);
        }
        Some(match (was_sent, next) {
            (true, Some(next)) => vec![next],
            (true, None) => vec![KvPair::tombstone(key).at(revision.clone())],
            (false, _) => Vec::new(),
        })
    }

    fn insert(&mut self, name: SmolStr, entry: KvPair) -> Option<KvPair> {
        self.key_of.insert(name.clone(), entry.key.clone());
        let entries = self.by_key.entry(entry.key.clone()).or_default();
        entries.insert(name.clone(), entry.clone());
        let is_first = entries.keys().next().is_some_and(|first| *first == name);
        is_first.then_some(entry)
    }
}

impl Processor for ConflictResolver {
    fn process(&mut self, kv: KvPair) -> (Vec<KvPair>, Option<ProcessError>) {
        let source = match expect_kind(&kv.key, self.kind) {
            Ok(source) => source.clone(),
            Err(error) => return (Vec::new(), Some(error)),
        };
        let name = &source.name;
        let (entry, fault) = match &kv.value {
            None => (None, None),
            Some(value) => match (self.convert)(&source, value) {
                Ok((key, value)) => {
                    let (revision, uid) = (kv.revision.clone(), kv.uid.clone());
                    let made = KvPair { key, value: Some(value), revision, uid, ttl: None };
                    (Some(made), None)
                }
                Err(error) => (None, Some(error)),
            },
        };
        let Some(entry) = entry else {
            return match self.remove(name, &kv.revision) {
                Some(out) => (out, fault),
                None => (Vec::new(), fault.or(Some(ProcessError::UnknownDeleted { key: source }))),
            };
        };
        let mut out = match self.key_of.get(name) {
            Some(key) if *key != entry.key => self.remove(name, &kv.revision).unwrap_or_default(),
            _ => Vec::new(),
        };
        out.extend(self.insert(name.clone(), entry));
        (out, None)
    }

    fn on_syncer_starting(&mut self) {
        self.by_key.clear();
        self.key_of.clear();
    }
}
