//! One source of a syncer: lists, watches, and knows what the receiver was told.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use calico_api::Kind;
use calico_model::process::Processor;
use calico_model::{Key, KvPair, ListOptions, Revision, SyncStatus, Update, UpdateType, Value};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::{ParseFailure, Report, ResourceSource, SyncerOptions};
use crate::{Backend, StoreError, WatchEvent};

/// Changes that are put into one report while listing.
const LIST_CHUNK: usize = 500;

/// A source at work.
pub(super) struct Cache {
    number: usize,
    list: ListOptions,
    processor: Option<Box<dyn Processor>>,
    backend: Arc<dyn Backend>,
    options: SyncerOptions,
    reports: mpsc::Sender<Report>,
    status: SyncStatus,
    /// What the receiver knows.
    known: HashMap<Key, Known>,
    /// Where a watch goes on; `None` if a list is due.
    revision: Option<Revision>,
    last_list: Option<Instant>,
    /// When the store last answered.
    last_answer: Option<Instant>,
    errors: u32,
    /// Whether the store cannot watch this.
    polling: bool,
    /// Whether outputs of one revision may differ, see [`Known`].
    compare_values: bool,
}

/// The last state of an entry that the receiver was told.
struct Known {
    revision: Revision,
    /// Kept for kinds of which several objects can mean the same entry: two such objects may come from one
    /// transaction and then have the same revision.
    value: Option<Value>,
}

/// Why a cache stops.
struct Stopped;

/// What follows a watch.
enum Next {
    Watch,
    List,
    /// Watching is impossible here.
    Poll,
}

// === impl Cache ===

impl Cache {
    pub(super) fn new(
        number: usize,
        source: ResourceSource,
        backend: Arc<dyn Backend>,
        options: SyncerOptions,
        reports: mpsc::Sender<Report>,
    ) -> Self {
        let compare_values = matches!(
            &source.list,
            ListOptions::Resource { kind: Kind::IPPool | Kind::HostEndpoint | Kind::GlobalNetworkSet, .. }
        );
        Self {
            number,
            list: source.list,
            processor: source.processor,
            backend,
            options,
            reports,
            status: SyncStatus::WaitForDatastore,
            known: HashMap::new(),
            revision: None,
            last_list: None,
            last_answer: None,
            errors: 0,
            polling: false,
            compare_values,
        }
    }

    pub(super) async fn run(mut self, mut stop: watch::Receiver<bool>) {
        let stopped = async move {
            // A vanished sender is a stop too.
            let _ = stop.wait_for(|stop| *stop).await;
        };
        tokio::select! {
            biased;
            () = stopped => {}
            _ = self.follow() => {}
        }
        // An error means that there is no receiver any more.
        let _ = self.forget_all().await;
    }

    async fn follow(&mut self) -> Result<(), Stopped> {
        loop {
            let Some(revision) = self.revision.clone() else {
                self.list_all().await?;
                continue;
            };
            let started = Instant::now();
            match self.watch(&revision).await? {
                // Not in a busy loop, should the store end every watch at once.
                Next::Watch => tokio::time::sleep_until(started + self.options.min_resync).await,
                Next::List => self.revision = None,
                Next::Poll => {
                    self.polling = true;
                    tokio::time::sleep(self.options.poll).await;
                    self.revision = None;
                }
            }
        }
    }

    /// Lists, tells what differs from before, and is in sync then. Leaves `revision` empty if it fails.
    async fn list_all(&mut self) -> Result<(), Stopped> {
        if let Some(last) = self.last_list {
            tokio::time::sleep_until(last + self.options.min_resync).await;
        }
        self.last_list = Some(Instant::now());
        // A source that has to list all the time is in sync in between and meanwhile.
        if self.status == SyncStatus::InSync && !self.polling {
            self.set_status(SyncStatus::ResyncInProgress).await?;
        }
        let list = match self.backend.list(&self.list, None).await {
            Ok(list) => list,
            Err(error) => {
                self.failed(error).await?;
                tokio::time::sleep(self.options.retry).await;
                return Ok(());
            }
        };
        self.answered();
        if let Some(processor) = &mut self.processor {
            processor.on_syncer_starting();
        }
        if self.status == SyncStatus::WaitForDatastore {
            self.set_status(SyncStatus::ResyncInProgress).await?;
        }
        let mut old: BTreeSet<Key> = self.known.keys().cloned().collect();
        let mut updates = Vec::new();
        for kv in list.items {
            let (outputs, failure) = self.process(kv);
            for output in outputs {
                // An output without a value deletes, now or at the end.
                if output.value.is_some() {
                    old.remove(&output.key);
                }
                updates.extend(self.update(output));
            }
            if let Some(failure) = failure {
                self.send_updates(&mut updates).await?;
                self.send(Report::ParseFailed(failure)).await?;
            } else if updates.len() >= LIST_CHUNK {
                self.send_updates(&mut updates).await?;
            }
        }
        let gone = old.into_iter().map(KvPair::tombstone);
        updates.extend(gone.filter_map(|kv| self.update(kv)));
        self.send_updates(&mut updates).await?;
        self.set_status(SyncStatus::InSync).await?;
        self.revision = Some(list.revision);
        self.errors = 0;
        Ok(())
    }

    /// Follows a watch until it ends.
    async fn watch(&mut self, revision: &Revision) -> Result<Next, Stopped> {
        let mut watch = match self.backend.watch(&self.list, Some(revision)).await {
            Ok(watch) => watch,
            Err(error) => return self.watch_failed(error).await,
        };
        self.polling = false;
        self.answered();
        while let Some(event) = watch.next().await {
            match event {
                WatchEvent::Added(kv) | WatchEvent::Modified { new: kv, .. } => {
                    self.advance(&kv.revision);
                    self.feed(kv).await?;
                }
                // Its revision is that of the last value and does not count.
                WatchEvent::Deleted(kv) => self.feed(KvPair { value: None, ..kv }).await?,
                WatchEvent::Bookmark(revision) => self.advance(&revision),
                WatchEvent::Error(StoreError::Parse { key, path, value, reason }) => {
                    // As in a list, an entry that cannot be read is not there.
                    if let Some(key) = key {
                        // It need not have been there before.
                        let (outputs, _) = self.process(KvPair::tombstone(*key));
                        self.pass_on(outputs).await?;
                    }
                    self.send(Report::ParseFailed(ParseFailure { path, value, reason })).await?;
                }
                WatchEvent::Error(error) => return self.watch_failed(error).await,
            }
            self.answered();
        }
        Ok(Next::Watch)
    }

    /// What to do after an error of a watch.
    async fn watch_failed(&mut self, error: StoreError) -> Result<Next, Stopped> {
        match error {
            StoreError::Compacted { .. } => return Ok(Next::List),
            StoreError::NotSupported { .. } | StoreError::DoesNotExist { .. } => return Ok(Next::Poll),
            error => {
                tracing::debug!(%error, list = ?self.list, "a watch of the datastore failed");
                self.errors += 1;
                self.failed(error).await?;
                tokio::time::sleep(self.options.retry).await;
            }
        }
        let list_again =
            self.errors >= self.options.max_errors || self.status == SyncStatus::WaitForDatastore;
        Ok(if list_again { Next::List } else { Next::Watch })
    }

    /// The store did not answer; after a while the status says so.
    async fn failed(&mut self, error: StoreError) -> Result<(), Stopped> {
        let patient = self.last_answer.is_some_and(|last| last.elapsed() < self.options.disconnect_after);
        if patient {
            return Ok(());
        }
        self.set_status(SyncStatus::WaitForDatastore).await?;
        self.send(Report::SyncFailed(error)).await
    }

    fn answered(&mut self) {
        self.last_answer = Some(Instant::now());
    }

    fn advance(&mut self, revision: &Revision) {
        // Never backwards; a revision that is no number is the store's own business.
        let newer = match (revision.as_u64(), self.revision.as_ref().and_then(Revision::as_u64)) {
            (Some(new), Some(old)) => new > old,
            _ => !revision.0.is_empty(),
        };
        if newer {
            self.revision = Some(revision.clone());
            self.errors = 0;
        }
    }

    /// Passes one change on.
    async fn feed(&mut self, kv: KvPair) -> Result<(), Stopped> {
        let (outputs, failure) = self.process(kv);
        self.pass_on(outputs).await?;
        match failure {
            Some(failure) => self.send(Report::ParseFailed(failure)).await,
            None => Ok(()),
        }
    }

    async fn pass_on(&mut self, outputs: Vec<KvPair>) -> Result<(), Stopped> {
        let mut updates: Vec<Update> = outputs.into_iter().filter_map(|output| self.update(output)).collect();
        self.send_updates(&mut updates).await
    }

    fn process(&mut self, kv: KvPair) -> (Vec<KvPair>, Option<ParseFailure>) {
        let Some(processor) = &mut self.processor else { return (vec![kv], None) };
        let path = kv.key.to_path();
        let (outputs, error) = processor.process(kv);
        let failure =
            error.map(|error| ParseFailure { path, value: String::new(), reason: error.to_string() });
        (outputs, failure)
    }

    /// The update that takes the receiver to `kv`, if it is not there already.
    fn update(&mut self, kv: KvPair) -> Option<Update> {
        let Some(value) = &kv.value else {
            self.known.remove(&kv.key)?;
            return Some(Update { kv: KvPair::tombstone(kv.key), kind: UpdateType::Deleted });
        };
        let kept = self.compare_values.then(|| value.clone());
        let kind = match self.known.get(&kv.key) {
            Some(known) if known.revision == kv.revision && known.value == kept => return None,
            Some(_) => UpdateType::Updated,
            None => UpdateType::New,
        };
        self.known.insert(kv.key.clone(), Known { revision: kv.revision.clone(), value: kept });
        Some(Update { kv, kind })
    }

    /// Deletes all that the receiver knows.
    async fn forget_all(&mut self) -> Result<(), Stopped> {
        let kind = UpdateType::Deleted;
        let mut updates: Vec<Update> =
            self.known.drain().map(|(key, _)| Update { kv: KvPair::tombstone(key), kind }).collect();
        updates.sort_unstable_by(|a, b| a.kv.key.cmp(&b.kv.key));
        self.send_updates(&mut updates).await
    }

    async fn set_status(&mut self, status: SyncStatus) -> Result<(), Stopped> {
        if self.status == status {
            return Ok(());
        }
        self.status = status;
        self.send(Report::Status { source: self.number, status }).await
    }

    async fn send_updates(&mut self, updates: &mut Vec<Update>) -> Result<(), Stopped> {
        if updates.is_empty() {
            return Ok(());
        }
        if self.status == SyncStatus::WaitForDatastore {
            self.set_status(SyncStatus::ResyncInProgress).await?;
        }
        self.send(Report::Updates(std::mem::take(updates))).await
    }

    async fn send(&mut self, report: Report) -> Result<(), Stopped> {
        self.reports.send(report).await.map_err(|_| Stopped)
    }
}
