//! A backend of typed values on a store of bytes.
//!
//! Owns: what the bytes mean. Keys become paths, values become JSON, revisions become text; what cannot be read
//! is left out, reported or passed on as the contract says; the profile that allows everything is there without
//! being stored. One implementation serves every database, so that none of this depends on which it is.

use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use calico_api::{Action, Kind, Profile, ProfileSpec, Rule};
use calico_model::codec::{self, CodecError};
use calico_model::names::DEFAULT_ALLOW_PROFILE;
use calico_model::path::{KeyRange, ROOT};
use calico_model::{Key, KvPair, ListOptions, ResourceKey, Revision, Value};
use tokio::sync::mpsc;

use crate::backend::{Backend, Condition, KvList, Transactions, Txn, TxnOutcome, Watch, WatchEvent, Write};
use crate::error::StoreError;
use crate::raw::{RawCondition, RawEntry, RawEvent, RawEvents, RawOutcome, RawStore, RawTxn, RawWrite};

mod recursive;

/// Revision of the profile that allows everything.
const BUILT_IN_REVISION: &str = "1";

/// A backend on the database `R`.
#[derive(Debug)]
pub struct Store<R> {
    raw: Arc<R>,
}

// === impl Store ===

impl<R: RawStore> Store<R> {
    /// A backend on `raw`.
    pub fn new(raw: R) -> Self {
        Self { raw: Arc::new(raw) }
    }

    /// The database below, for what the contract of backends does not offer.
    pub fn raw(&self) -> &Arc<R> {
        &self.raw
    }

    /// Commits one write under one condition.
    async fn write(
        &self,
        condition: Option<RawCondition>,
        write: RawWrite,
    ) -> Result<RawOutcome, StoreError> {
        let conditions = condition.into_iter().collect();
        self.raw.commit(RawTxn { conditions, writes: vec![write], report_conflict: true }).await
    }
}

#[async_trait]
impl<R: RawStore> Backend for Store<R> {
    fn description(&self) -> String {
        self.raw.description()
    }

    async fn create(&self, kv: KvPair) -> Result<KvPair, StoreError> {
        let (path, bytes, put) = encode(&kv)?;
        match self.write(Some(RawCondition::Absent(path)), put).await? {
            RawOutcome::Committed { revision, .. } => written(kv.key, &bytes, revision),
            RawOutcome::Conflict { current } => {
                let existing = current_pair(&kv.key, current).map(Box::new);
                Err(StoreError::AlreadyExists { id: id(&kv.key), existing })
            }
        }
    }

    async fn update(&self, kv: KvPair) -> Result<KvPair, StoreError> {
        let wanted = parse_revision(&kv.revision)?;
        let (path, bytes, put) = encode(&kv)?;
        match self.write(Some(RawCondition::Revision(path, wanted)), put).await? {
            RawOutcome::Committed { revision, .. } => written(kv.key, &bytes, revision),
            RawOutcome::Conflict { current } => Err(conflict(&kv.key, current)),
        }
    }

    async fn apply(&self, kv: KvPair) -> Result<KvPair, StoreError> {
        let (_, bytes, put) = encode(&kv)?;
        match self.write(None, put).await? {
            RawOutcome::Committed { revision, .. } => written(kv.key, &bytes, revision),
            RawOutcome::Conflict { current } => Err(conflict(&kv.key, current)),
        }
    }

    async fn delete(&self, key: &Key, revision: Option<&Revision>) -> Result<KvPair, StoreError> {
        let path = key.to_path();
        let condition = match given(revision) {
            Some(revision) => Some(RawCondition::Revision(path.clone(), parse_revision(revision)?)),
            None => None,
        };
        match self.write(condition, RawWrite::Delete(path)).await? {
            RawOutcome::Committed { removed, .. } => match removed.into_iter().flatten().next() {
                Some(old) => Ok(lenient(key.clone(), &old)),
                None => Err(StoreError::DoesNotExist { id: id(key) }),
            },
            RawOutcome::Conflict { current } => Err(conflict(key, current)),
        }
    }

    async fn delete_recursive(&self, key: &Key) -> Result<Vec<KvPair>, StoreError> {
        recursive::delete(self, key).await
    }

    async fn get(&self, key: &Key, revision: Option<&Revision>) -> Result<KvPair, StoreError> {
        if is_default_allow(key) {
            return Ok(default_allow());
        }
        let at = given(revision).map(parse_revision).transpose()?;
        let (found, _) = self.raw.get(&[key.to_path()], at).await?;
        match found.into_iter().flatten().next() {
            Some(entry) => decode(key.clone(), &entry),
            None => Err(StoreError::DoesNotExist { id: id(key) }),
        }
    }

    async fn list(&self, options: &ListOptions, revision: Option<&Revision>) -> Result<KvList, StoreError> {
        let at = given(revision).map(parse_revision).transpose()?;
        let (entries, revision) = self.raw.range(&options.range(), at).await?;
        let mut items = readable(options, entries);
        if lists_default_allow(options) {
            let built_in = default_allow();
            let place = items.partition_point(|item| item.key < built_in.key);
            items.insert(place, built_in);
        }
        Ok(KvList { items, revision: revision.into() })
    }

    async fn watch(&self, options: &ListOptions, revision: Option<&Revision>) -> Result<Watch, StoreError> {
        let range = options.range();
        // Zero is upstream's word for "from what there is now".
        let after = given(revision).map(parse_revision).transpose()?.filter(|after| *after > 0);
        let (existing, after) = match after {
            Some(after) => (Vec::new(), after),
            None => self.raw.range(&range, None).await?,
        };
        let events = self.raw.watch(&range, after).await?;
        let (sender, receiver) = mpsc::channel(Watch::BUFFER);
        tokio::spawn(pump(options.clone(), existing, events, sender));
        Ok(Watch::new(receiver, None))
    }

    async fn ensure_initialized(&self) -> Result<(), StoreError> {
        self.raw.initialize().await
    }

    async fn clean(&self) -> Result<(), StoreError> {
        self.raw.delete_range(&KeyRange::Prefix(format!("{ROOT}/"))).await
    }

    async fn close(&self) {
        self.raw.close().await;
    }

    fn transactions(&self) -> Option<&dyn Transactions> {
        Some(self)
    }
}

#[async_trait]
impl<R: RawStore> Transactions for Store<R> {
    fn max_operations(&self) -> usize {
        self.raw.max_operations()
    }

    async fn get_many(&self, keys: &[Key]) -> Result<(Vec<Option<KvPair>>, Revision), StoreError> {
        let paths: Vec<String> = keys.iter().map(Key::to_path).collect();
        let (entries, revision) = self.raw.get(&paths, None).await?;
        let pairs = keys.iter().zip(entries).map(|(key, entry)| match entry {
            _ if is_default_allow(key) => Ok(Some(default_allow())),
            Some(entry) => decode(key.clone(), &entry).map(Some),
            None => Ok(None),
        });
        Ok((pairs.collect::<Result<_, _>>()?, revision.into()))
    }

    async fn commit(&self, txn: Txn) -> Result<TxnOutcome, StoreError> {
        let condition = |condition| match condition {
            Condition::Absent(key) => Ok(RawCondition::Absent(key.to_path())),
            Condition::Revision(key, revision) => {
                Ok(RawCondition::Revision(key.to_path(), parse_revision(&revision)?))
            }
        };
        let write = |write| match write {
            Write::Put(kv) => encode(&kv).map(|(_, _, put)| put),
            Write::Delete(key) => Ok(RawWrite::Delete(key.to_path())),
        };
        let raw = RawTxn {
            conditions: txn.conditions.into_iter().map(condition).collect::<Result<_, StoreError>>()?,
            writes: txn.writes.into_iter().map(write).collect::<Result<_, StoreError>>()?,
            report_conflict: false,
        };
        match self.raw.commit(raw).await? {
            RawOutcome::Committed { revision, .. } => Ok(TxnOutcome::Committed(revision.into())),
            RawOutcome::Conflict { .. } => Ok(TxnOutcome::Conflict),
        }
    }
}

// === watching ===

/// Sends what exists and then what changes, until the receiver is gone or the stream ends.
async fn pump(
    options: ListOptions,
    existing: Vec<RawEntry>,
    mut events: Box<dyn RawEvents>,
    sender: mpsc::Sender<WatchEvent>,
) {
    for kv in readable(&options, existing) {
        if sender.send(WatchEvent::Added(kv)).await.is_err() {
            return;
        }
    }
    loop {
        let changes = tokio::select! {
            changes = events.next() => changes,
            () = sender.closed() => return,
        };
        match changes {
            Ok(changes) => {
                for event in changes.into_iter().filter_map(|change| watch_event(&options, change)) {
                    if sender.send(event).await.is_err() {
                        return;
                    }
                }
            }
            Err(error) => {
                // A receiver that is gone does not need to know.
                let _ = sender.send(WatchEvent::Error(error)).await;
                return;
            }
        }
    }
}

fn watch_event(options: &ListOptions, change: RawEvent) -> Option<WatchEvent> {
    let key = Key::parse_path(&change.path).filter(|key| options.matches(key))?;
    let event = match (change.new, change.old) {
        (Some(new), old) => match decode(key.clone(), &new) {
            Ok(kv) if new.created == new.modified => WatchEvent::Added(kv),
            Ok(kv) => {
                let old = old.and_then(|old| decode(key, &old).ok());
                WatchEvent::Modified { new: kv, old }
            }
            Err(error) => WatchEvent::Error(error),
        },
        (None, Some(old)) => WatchEvent::Deleted(lenient(key, &old)),
        (None, None) => WatchEvent::Deleted(KvPair::tombstone(key)),
    };
    Some(event)
}

// === keys, values, revisions ===

/// The entries of a list that can be read. The others are logged and left out.
fn readable(options: &ListOptions, entries: Vec<RawEntry>) -> Vec<KvPair> {
    let read = |entry: RawEntry| {
        let key = Key::parse_path(&entry.path).filter(|key| options.matches(key))?;
        match decode(key, &entry) {
            Ok(kv) => Some(kv),
            Err(error) => {
                tracing::warn!(%error, "skipping a stored value that cannot be read");
                None
            }
        }
    };
    entries.into_iter().filter_map(read).collect()
}

fn decode(key: Key, entry: &RawEntry) -> Result<KvPair, StoreError> {
    written(key, &entry.value, entry.modified)
}

/// The entry as a later read would return it.
fn written(key: Key, bytes: &[u8], revision: u64) -> Result<KvPair, StoreError> {
    let value = codec::decode_value(&key, bytes).map_err(|e| unreadable(&key, bytes, &e))?;
    Ok(KvPair { key, value: Some(value), revision: revision.into(), uid: None, ttl: None })
}

/// As [`decode`], but a value that cannot be read is left out.
fn lenient(key: Key, entry: &RawEntry) -> KvPair {
    let value = codec::decode_value(&key, &entry.value).ok();
    KvPair { key, value, revision: entry.modified.into(), uid: None, ttl: None }
}

/// Path, content and write of an entry.
fn encode(kv: &KvPair) -> Result<(String, Vec<u8>, RawWrite), StoreError> {
    if let Some(missing) = kv.key.missing_identifier() {
        return Err(StoreError::Invalid {
            field: missing.into(),
            value: String::new(),
            reason: "the key needs it".into(),
        });
    }
    let not_stored =
        |reason: String| StoreError::NotSupported { operation: "write".into(), id: id(&kv.key), reason };
    let value = kv.value.as_ref().ok_or_else(|| not_stored("there is no value".into()))?;
    let bytes = codec::encode_value(&kv.key, value).map_err(|error| not_stored(error.to_string()))?;
    let path = kv.key.to_path();
    // Whole seconds, as upstream counts them, but never none.
    let ttl = kv.ttl.filter(|ttl| !ttl.is_zero()).map(|ttl| ttl.as_secs().max(1));
    let put = RawWrite::Put { path: path.clone(), value: bytes.clone(), ttl };
    Ok((path, bytes, put))
}

fn unreadable(key: &Key, bytes: &[u8], error: &CodecError) -> StoreError {
    let (value, reason) = match error {
        CodecError::ParsingDatastoreEntry { value, reason, .. } => (value.clone(), reason.clone()),
        other => (String::from_utf8_lossy(bytes).into_owned(), other.to_string()),
    };
    StoreError::Parse { key: Some(Box::new(key.clone())), path: key.to_path(), value, reason }
}

/// How errors name an object: v3 objects by kind and name, everything else by path.
fn id(key: &Key) -> String {
    match key {
        Key::Resource(key) => key.to_string(),
        other => other.to_path(),
    }
}

fn parse_revision(revision: &Revision) -> Result<u64, StoreError> {
    revision.as_u64().ok_or_else(|| StoreError::Invalid {
        field: "ResourceVersion".into(),
        value: revision.to_string(),
        reason: "not a revision of this datastore".into(),
    })
}

fn given(revision: Option<&Revision>) -> Option<&Revision> {
    revision.filter(|revision| !revision.0.is_empty())
}

fn current_pair(key: &Key, current: Vec<Option<RawEntry>>) -> Option<KvPair> {
    current.into_iter().flatten().next().map(|entry| lenient(key.clone(), &entry))
}

/// Why a write on a certain revision did not happen.
fn conflict(key: &Key, current: Vec<Option<RawEntry>>) -> StoreError {
    match current_pair(key, current) {
        Some(existing) => StoreError::UpdateConflict { id: id(key), existing: Some(Box::new(existing)) },
        None => StoreError::DoesNotExist { id: id(key) },
    }
}

// === the profile that allows everything ===

fn is_default_allow(key: &Key) -> bool {
    matches!(key, Key::Resource(ResourceKey { kind: Kind::Profile, name, .. }) if name == DEFAULT_ALLOW_PROFILE)
}

fn lists_default_allow(options: &ListOptions) -> bool {
    let ListOptions::Resource { kind: Kind::Profile, name, prefix, .. } = options else { return false };
    match name.as_ref().filter(|name| !name.is_empty()) {
        None => true,
        Some(name) if *prefix => DEFAULT_ALLOW_PROFILE.starts_with(name.as_str()),
        Some(name) => name == DEFAULT_ALLOW_PROFILE,
    }
}

fn default_allow() -> KvPair {
    static PROFILE: OnceLock<Value> = OnceLock::new();
    let value = PROFILE.get_or_init(|| {
        let allow = || vec![Rule { action: Action::Allow, ..Rule::default() }];
        let spec = ProfileSpec { ingress: allow(), egress: allow(), ..ProfileSpec::default() };
        let mut profile = Profile { spec, ..Profile::default() };
        profile.metadata.name = DEFAULT_ALLOW_PROFILE.into();
        Value::resource(profile)
    });
    let key = Key::resource(Kind::Profile, "", DEFAULT_ALLOW_PROFILE);
    KvPair::new(key, value.clone()).at(BUILT_IN_REVISION.into())
}
