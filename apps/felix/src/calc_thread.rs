//! The thread that runs the calculation graph: takes what the syncer tells, flushes at a bounded pace, and hands
//! batches of messages to the dataplane.

use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

use calico_calc::{CalcGraph, Problem};
use calico_datastore::DedupeBuffer;
use calico_datastore::syncer::Batch;
use calico_dpmsg::Message;
use calico_model::{SyncStatus, Update};
use tokio::runtime::Handle;

use crate::bucket::Bucket;
use crate::metrics::CalcMetrics;
use crate::tracker::ConfigTracker;
use crate::verdict::{Verdict, Verdicts};

/// Most batches of changes taken in before the next flush is considered.
const BATCHES: usize = 100;
/// Pace of flushes: one per interval, this many at once after a pause.
const FLUSH_INTERVAL: Duration = Duration::from_millis(10);
const FLUSH_BURST: u32 = 10;
/// How often a thread without work says that it lives.
const HEARTBEAT: Duration = Duration::from_secs(5);

/// Everything that the thread works with.
pub struct CalcThread {
    /// The graph.
    pub graph: CalcGraph,
    /// Settings, as they come from the store.
    pub tracker: ConfigTracker,
    /// Where messages go. A full channel makes this thread wait, and then the syncer.
    pub out: SyncSender<Vec<Message>>,
    /// How the process is told to start again or end.
    pub verdicts: Verdicts,
    /// Counters.
    pub metrics: CalcMetrics,
    /// Called at each sign of life with whether the store is in sync.
    pub alive: Box<dyn Fn(bool) + Send>,
}

// === impl CalcThread ===

impl CalcThread {
    /// Runs until the buffer or the dataplane's end of the channel is closed. `first` came out of the buffer before;
    /// the settings that it left are those that the process runs with. `runtime` is where the syncer runs.
    pub fn run(mut self, first: Vec<Batch>, buffer: &DedupeBuffer, runtime: &Handle) {
        let running = self.tracker.params();
        let mut bucket = Bucket::new(FLUSH_BURST, FLUSH_INTERVAL, Instant::now());
        let (mut dirty, mut in_sync, mut was_in_sync) = (false, false, false);
        let mut problems: Vec<Problem> = Vec::new();
        for batch in first {
            dirty = true;
            self.batch(batch, &mut in_sync);
        }
        loop {
            let wait = if dirty { bucket.wait(Instant::now()) } else { HEARTBEAT };
            match runtime.block_on(async { tokio::time::timeout(wait, buffer.next()).await }) {
                Ok(Some(first)) => {
                    dirty = true;
                    self.batch(first, &mut in_sync);
                    for _ in 0..BATCHES {
                        let Some(batch) = buffer.try_next() else { break };
                        self.batch(batch, &mut in_sync);
                    }
                }
                Ok(None) => return,
                Err(_) => {}
            }
            (self.alive)(in_sync);
            let first_snapshot = in_sync && !was_in_sync;
            was_in_sync |= in_sync;
            if !dirty || !(bucket.take(Instant::now()) || first_snapshot) {
                continue;
            }
            dirty = false;
            if was_in_sync
                && let Some(params) = self.tracker.changed()
                && params != running
            {
                tracing::info!("the settings changed; starting again with the new ones");
                self.verdicts.say(Verdict::Restart);
            }
            let messages = self.graph.flush();
            self.metrics.flushed(&messages, &self.graph.counts());
            self.report(&mut problems);
            if messages.contains(&Message::DatastoreNotReady) {
                tracing::warn!("the datastore says that it is not ready; starting again to wait for it");
                self.verdicts.say(Verdict::Restart);
            }
            if !messages.is_empty() && self.out.send(messages).is_err() {
                return;
            }
        }
    }

    fn batch(&mut self, batch: Batch, in_sync: &mut bool) {
        let updates: Vec<Update> = match batch {
            Batch::Status(status) => {
                *in_sync = status == SyncStatus::InSync;
                self.metrics.status(status);
                self.graph.on_status(status);
                return;
            }
            Batch::Updates(updates) => updates,
        };
        for update in &updates {
            self.metrics.update(update);
            self.tracker.on_update(update);
            let start = Instant::now();
            self.graph.on_update(update);
            self.metrics.took(start.elapsed());
        }
    }

    /// Logs what is wrong with the inputs, each thing once.
    fn report(&self, known: &mut Vec<Problem>) {
        let now = self.graph.problems();
        if now == *known {
            return;
        }
        for problem in now.iter().filter(|p| !known.contains(p)) {
            tracing::warn!(error = %problem, "an object cannot be used as it is");
        }
        *known = now;
    }
}
