//! A store in memory with the full contract, for tests and trials. It is gone with the process.
//!
//! Owns: the entries, and every change since the last compaction. Life times follow tokio's clock, so that tests
//! can pause and advance it.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use calico_model::path::KeyRange;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::StoreError;
use crate::raw::{self, RawCondition, RawEntry, RawEvent, RawEvents, RawOutcome, RawStore, RawTxn, RawWrite};

/// The store. Clones share their content.
#[derive(Debug, Clone)]
pub struct MemoryRaw {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Newest revision; tells streams to look.
    revision: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct State {
    revision: u64,
    compacted: u64,
    entries: BTreeMap<String, Stored>,
    log: Vec<RawEvent>,
    closed: bool,
}

#[derive(Debug, Clone)]
struct Stored {
    entry: RawEntry,
    expires: Option<Instant>,
}

// === impl MemoryRaw ===

impl MemoryRaw {
    /// Most conditions or writes in one transaction.
    pub const MAX_OPERATIONS: usize = 4096;

    /// An empty store.
    pub fn new() -> Self {
        let state = State { revision: 1, compacted: 1, ..State::default() };
        Self { shared: Arc::new(Shared { state: Mutex::new(state), revision: watch::Sender::new(1) }) }
    }

    /// Runs `f` on the state after expired entries are gone, and wakes streams if it changed.
    fn with<T>(&self, f: impl FnOnce(&mut State) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let mut state = self.shared.state.lock();
        if state.closed {
            return Err(raw::closed("memory"));
        }
        state.expire();
        let result = f(&mut state);
        let revision = state.revision;
        drop(state);
        self.shared.revision.send_if_modified(|r| std::mem::replace(r, revision) != revision);
        result
    }
}

impl Default for MemoryRaw {
    fn default() -> Self {
        Self::new()
    }
}

// === impl State ===

impl State {
    fn expire(&mut self) {
        let now = Instant::now();
        let due: Vec<RawWrite> = self
            .entries
            .iter()
            .filter(|(_, stored)| stored.expires.is_some_and(|at| at <= now))
            .map(|(path, _)| RawWrite::Delete(path.clone()))
            .collect();
        self.write(due);
    }

    fn next_expiry(&self) -> Option<Instant> {
        self.entries.values().filter_map(|stored| stored.expires).min()
    }

    fn entry(&self, path: &str) -> Option<RawEntry> {
        self.entries.get(path).map(|stored| stored.entry.clone())
    }

    fn holds(&self, condition: &RawCondition) -> bool {
        match condition {
            RawCondition::Absent(path) => !self.entries.contains_key(path),
            RawCondition::Revision(path, revision) => {
                self.entries.get(path).is_some_and(|stored| stored.entry.modified == *revision)
            }
        }
    }

    /// Writes everything at one new revision; returns what was removed.
    fn write(&mut self, writes: Vec<RawWrite>) -> Vec<Option<RawEntry>> {
        let revision = self.revision + 1;
        let mut removed = Vec::with_capacity(writes.len());
        for write in writes {
            match write {
                RawWrite::Put { path, value, ttl } => {
                    let old = self.entry(&path);
                    let created = old.as_ref().map_or(revision, |old| old.created);
                    let new = RawEntry { path: path.clone(), value, created, modified: revision };
                    let expires = ttl.map(|seconds| Instant::now() + Duration::from_secs(seconds));
                    self.entries.insert(path.clone(), Stored { entry: new.clone(), expires });
                    self.log.push(RawEvent { path, revision, new: Some(new), old });
                    removed.push(None);
                }
                RawWrite::Delete(path) => {
                    let old = self.entries.remove(&path).map(|stored| stored.entry);
                    if old.is_some() {
                        self.log.push(RawEvent { path, revision, new: None, old: old.clone() });
                    }
                    removed.push(old);
                }
            }
        }
        if self.log.last().is_some_and(|event| event.revision == revision) {
            self.revision = revision;
        }
        removed
    }

    /// The revision to read at, checked.
    fn at(&self, at: Option<u64>) -> Result<u64, StoreError> {
        match at {
            None => Ok(self.revision),
            Some(at) if at < self.compacted => Err(raw::compacted(at)),
            Some(at) if at > self.revision => Err(raw::future_revision(at, self.revision)),
            Some(at) => Ok(at),
        }
    }

    /// What the paths in `range` held at `at`.
    fn snapshot(&self, range: &KeyRange, at: u64) -> BTreeMap<String, RawEntry> {
        let start = (Bound::Included(range.start().to_owned()), Bound::Unbounded);
        let mut found: BTreeMap<String, RawEntry> = self
            .entries
            .range(start)
            .take_while(|(path, _)| range.contains(path))
            .map(|(path, stored)| (path.clone(), stored.entry.clone()))
            .collect();
        let later = self.log.iter().rev().take_while(|event| event.revision > at);
        for event in later.filter(|event| range.contains(&event.path)) {
            match &event.old {
                Some(old) => found.insert(event.path.clone(), old.clone()),
                None => found.remove(&event.path),
            };
        }
        found
    }
}

#[async_trait]
impl RawStore for MemoryRaw {
    fn description(&self) -> String {
        "memory".into()
    }

    fn max_operations(&self) -> usize {
        Self::MAX_OPERATIONS
    }

    async fn commit(&self, txn: RawTxn) -> Result<RawOutcome, StoreError> {
        raw::check_txn(&txn, Self::MAX_OPERATIONS)?;
        self.with(|state| {
            if !txn.conditions.iter().all(|condition| state.holds(condition)) {
                let paths = txn.conditions.iter().filter(|_| txn.report_conflict).map(RawCondition::path);
                return Ok(RawOutcome::Conflict { current: paths.map(|path| state.entry(path)).collect() });
            }
            let removed = state.write(txn.writes);
            Ok(RawOutcome::Committed { revision: state.revision, removed })
        })
    }

    async fn get(
        &self,
        paths: &[String],
        at: Option<u64>,
    ) -> Result<(Vec<Option<RawEntry>>, u64), StoreError> {
        self.with(|state| {
            let at = state.at(at)?;
            let read = |path: &String| state.snapshot(&KeyRange::Exact(path.clone()), at).remove(path);
            Ok((paths.iter().map(read).collect(), at))
        })
    }

    async fn range(&self, range: &KeyRange, at: Option<u64>) -> Result<(Vec<RawEntry>, u64), StoreError> {
        self.with(|state| {
            let at = state.at(at)?;
            Ok((state.snapshot(range, at).into_values().collect(), at))
        })
    }

    async fn watch(&self, range: &KeyRange, after: u64) -> Result<Box<dyn RawEvents>, StoreError> {
        self.with(|_| Ok(()))?;
        let wake = self.shared.revision.subscribe();
        Ok(Box::new(Changes { store: self.clone(), range: range.clone(), after, wake }))
    }

    async fn delete_range(&self, range: &KeyRange) -> Result<(), StoreError> {
        self.with(|state| {
            let paths = state.snapshot(range, state.revision).into_keys();
            let writes = paths.map(RawWrite::Delete).collect();
            state.write(writes);
            Ok(())
        })
    }

    async fn compact(&self, revision: u64) -> Result<(), StoreError> {
        self.with(|state| {
            let revision = state.at(Some(revision))?;
            state.compacted = revision;
            state.log.retain(|event| event.revision > revision);
            Ok(())
        })
    }

    async fn initialize(&self) -> Result<(), StoreError> {
        self.with(|_| Ok(()))
    }

    async fn close(&self) {
        self.shared.state.lock().closed = true;
        self.shared.revision.send_modify(|_| ());
    }
}

/// A stream of changes.
struct Changes {
    store: MemoryRaw,
    range: KeyRange,
    after: u64,
    wake: watch::Receiver<u64>,
}

#[async_trait]
impl RawEvents for Changes {
    async fn next(&mut self) -> Result<Vec<RawEvent>, StoreError> {
        loop {
            self.wake.borrow_and_update();
            let (events, expiry) = self.store.with(|state| {
                if self.after < state.compacted {
                    return Err(raw::compacted(self.after));
                }
                let first = state.log.partition_point(|event| event.revision <= self.after);
                let events: Vec<RawEvent> =
                    state.log[first..].iter().filter(|e| self.range.contains(&e.path)).cloned().collect();
                self.after = self.after.max(state.revision);
                Ok((events, state.next_expiry()))
            })?;
            if !events.is_empty() {
                return Ok(events);
            }
            let expired = async {
                match expiry {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                // The sender lives in `self.store`, so this never fails.
                _ = self.wake.changed() => {}
                () = expired => {}
            }
        }
    }
}
