//! From lists and watches of many kinds to one stream of changes with a status.
//!
//! Owns: one task per source (`cache`), which lists, watches, and lists again whenever it has to; one task that
//! brings the results of all into one order and calls the receiver; the sources that Felix needs (`sources`); a
//! buffer for receivers that are slow (`dedupe`).
//!
//! Invariants: the receiver gets a status first, [`SyncStatus::WaitForDatastore`]; it gets no changes while that is
//! the status; all that was listed comes before [`SyncStatus::InSync`]; a status comes only when it changes. Whatever
//! happens between, once in sync the receiver knows what is in the store.

use std::sync::Arc;
use std::time::Duration;

use calico_model::process::Processor;
use calico_model::{ListOptions, SyncStatus, Update};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use crate::{Backend, StoreError};

mod cache;
mod dedupe;
mod sources;

#[cfg(test)]
mod tests;

pub use dedupe::{Batch, DedupeBuffer};
pub use sources::felix_sources;

use cache::Cache;

/// Results that may wait for the receiver before the sources wait too.
const QUEUE: usize = 2000;

/// Most results that are handed over in one call.
const COALESCE: usize = 1000;

/// One kind of entries to follow.
pub struct ResourceSource {
    /// Which entries.
    pub list: ListOptions,
    /// What makes them into the receiver's model; `None` passes them on as they are.
    pub processor: Option<Box<dyn Processor>>,
}

/// An entry that cannot be used. It counts as absent until it changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseFailure {
    /// Path of the entry.
    pub path: String,
    /// Its content, as far as it is known and cut to a readable length.
    pub value: String,
    /// What is wrong.
    pub reason: String,
}

/// The receiver of a stream of changes. Calls come one at a time and hold the stream up while they last; a receiver
/// that needs longer takes a [`DedupeBuffer`].
pub trait SyncerCallbacks: Send + 'static {
    /// The status changed.
    fn on_status(&mut self, status: SyncStatus);

    /// Entries changed, in this order.
    fn on_updates(&mut self, updates: Vec<Update>);

    /// An entry, or a part of it, cannot be used.
    fn parse_failed(&mut self, failure: ParseFailure) {
        tracing::warn!(
            path = failure.path,
            reason = failure.reason,
            "an object in the datastore is not used"
        );
    }

    /// The store cannot be read, for so long that what is known may be outdated.
    fn sync_failed(&mut self, error: &StoreError) {
        tracing::warn!(%error, "cannot read the datastore");
    }
}

/// How patient a syncer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SyncerOptions {
    /// Shortest time between two lists of one source.
    pub min_resync: Duration,
    /// Pause after a list or watch that failed.
    pub retry: Duration,
    /// How often to list what cannot be watched.
    pub poll: Duration,
    /// How long the store may be away before the status says so.
    pub disconnect_after: Duration,
    /// Failures of a watch after which the source lists again.
    pub max_errors: u32,
}

impl Default for SyncerOptions {
    fn default() -> Self {
        Self {
            min_resync: Duration::from_millis(500),
            retry: Duration::from_secs(1),
            poll: Duration::from_secs(5),
            disconnect_after: Duration::from_secs(600),
            max_errors: 5,
        }
    }
}

/// A syncer, ready to start.
pub struct Syncer<C> {
    backend: Arc<dyn Backend>,
    sources: Vec<ResourceSource>,
    callbacks: C,
    options: SyncerOptions,
}

/// A running syncer. Dropping it ends the stream without another call of the receiver.
#[derive(Debug)]
pub struct RunningSyncer {
    stop: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
    merge: JoinHandle<()>,
}

/// What a source tells.
enum Report {
    Status { source: usize, status: SyncStatus },
    Updates(Vec<Update>),
    ParseFailed(ParseFailure),
    SyncFailed(StoreError),
}

// === impl ResourceSource ===

impl ResourceSource {
    /// Entries as they are stored.
    pub fn raw(list: ListOptions) -> Self {
        Self { list, processor: None }
    }
}

impl std::fmt::Debug for ResourceSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ResourceSource")
            .field("list", &self.list)
            .field("processor", &self.processor.is_some())
            .finish()
    }
}

// === impl Syncer ===

impl<C: SyncerCallbacks> Syncer<C> {
    /// Follows `sources` in `backend` and calls `callbacks`.
    pub fn new(backend: Arc<dyn Backend>, sources: Vec<ResourceSource>, callbacks: C) -> Self {
        Self { backend, sources, callbacks, options: SyncerOptions::default() }
    }

    /// The same with other times.
    pub fn with_options(mut self, options: SyncerOptions) -> Self {
        self.options = options;
        self
    }

    /// Starts the tasks on tokio's current runtime.
    pub fn start(self) -> RunningSyncer {
        let (stop, stopped) = watch::channel(false);
        let (reports, queue) = mpsc::channel(QUEUE);
        let count = self.sources.len();
        let start = |(number, source): (usize, ResourceSource)| {
            let cache = Cache::new(number, source, Arc::clone(&self.backend), self.options, reports.clone());
            tokio::spawn(cache.run(stopped.clone()))
        };
        let tasks = self.sources.into_iter().enumerate().map(start).collect();
        let merge = Merge {
            callbacks: self.callbacks,
            statuses: vec![SyncStatus::WaitForDatastore; count],
            published: None,
            pending: Vec::new(),
        };
        RunningSyncer { stop, tasks, merge: tokio::spawn(merge.run(queue)) }
    }
}

impl<C> std::fmt::Debug for Syncer<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Syncer").field("sources", &self.sources).finish_non_exhaustive()
    }
}

// === impl RunningSyncer ===

impl RunningSyncer {
    /// Ends the stream with a deletion of everything that the receiver knows. Returns when the receiver has it.
    pub async fn stop(mut self) {
        self.stop.send_replace(true);
        for task in &mut self.tasks {
            // A task that panicked has nothing to tell any more.
            let _ = task.await;
        }
        let _ = (&mut self.merge).await;
    }
}

impl Drop for RunningSyncer {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
        self.merge.abort();
    }
}

/// Brings the reports of all sources into one order.
struct Merge<C> {
    callbacks: C,
    /// Of each source.
    statuses: Vec<SyncStatus>,
    published: Option<SyncStatus>,
    /// Changes that are not handed over yet.
    pending: Vec<Update>,
}

// === impl Merge ===

impl<C: SyncerCallbacks> Merge<C> {
    async fn run(mut self, mut queue: mpsc::Receiver<Report>) {
        self.publish(SyncStatus::WaitForDatastore);
        if self.statuses.is_empty() {
            self.publish(SyncStatus::InSync);
        }
        let mut reports = Vec::with_capacity(COALESCE);
        while queue.recv_many(&mut reports, COALESCE).await > 0 {
            for report in reports.drain(..) {
                self.take(report);
            }
            self.flush();
        }
    }

    fn take(&mut self, report: Report) {
        match report {
            Report::Updates(updates) => self.pending.extend(updates),
            Report::ParseFailed(failure) => {
                self.flush();
                self.callbacks.parse_failed(failure);
            }
            Report::SyncFailed(error) => self.callbacks.sync_failed(&error),
            Report::Status { source, status } => {
                if let Some(known) = self.statuses.get_mut(source) {
                    *known = status;
                }
                let all = |status| self.statuses.iter().all(|s| *s == status);
                let status = if all(SyncStatus::InSync) {
                    SyncStatus::InSync
                } else if all(SyncStatus::WaitForDatastore) {
                    SyncStatus::WaitForDatastore
                } else {
                    SyncStatus::ResyncInProgress
                };
                if self.published != Some(status) {
                    self.flush();
                    self.publish(status);
                }
            }
        }
    }

    fn flush(&mut self) {
        if !self.pending.is_empty() {
            self.callbacks.on_updates(std::mem::take(&mut self.pending));
        }
    }

    fn publish(&mut self, status: SyncStatus) {
        self.published = Some(status);
        self.callbacks.on_status(status);
    }
}
