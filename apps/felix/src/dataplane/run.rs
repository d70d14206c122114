//! The loop around the dataplane: what wakes it, how often it works, what it reports.
//!
//! In: batches of messages, and events about links that a thread of their own waits for; both come through one bounded
//! queue. Work is throttled; failures are tried again at a slow tick; each part is compared with the kernel at its
//! interval, with some jitter so that the nodes of a cluster do not do it at once.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use calico_daemon::Health;
use calico_dpmsg::Message;
use calico_netlink::{Event, Monitor, MonitorGroups};
use prometheus::Registry;

use super::metrics::DataplaneMetrics;
use super::report::ApplyReport;
use super::{Dataplane, DataplaneError};
use crate::bucket::Bucket;
use crate::config::Params;

/// Name under which the loop reports its health.
pub const HEALTH_REPORTER: &str = "InternalDataplaneMainLoop";

/// Things in the queue, at most.
const QUEUE: usize = 100;
/// Messages that are taken in before work is done, at least.
const AT_ONCE: usize = 100;
/// Applies that may follow one another at once, and the time that brings one more.
const BURST: u32 = 10;
const PACE: Duration = Duration::from_millis(100);
/// Time between a failure and the next try.
const RETRY: Duration = Duration::from_secs(10);
/// Time between reports of health.
const HEALTH_INTERVAL: Duration = Duration::from_secs(10);
/// How often the waiting threads look whether they should end.
const END_POLL: Duration = Duration::from_secs(1);

/// What wakes the loop.
enum Input {
    Messages(Vec<Message>),
    Links(Vec<Event>),
    /// Nothing comes from the calculation graph any more.
    End,
}

/// Something that is due again and again.
struct Timer {
    interval: Duration,
    at: Instant,
}

// === impl Timer ===

impl Timer {
    fn new(interval: Duration, now: Instant) -> Self {
        let mut timer = Self { interval, at: now };
        timer.restart(now);
        timer
    }

    /// True if it is due; then it starts anew. An interval of nothing is never due.
    fn fires(&mut self, now: Instant) -> bool {
        let due = !self.interval.is_zero() && now >= self.at;
        if due {
            self.restart(now);
        }
        due
    }

    fn restart(&mut self, now: Instant) {
        // A tenth of jitter.
        let spread = u64::try_from(self.interval.as_millis() / 10).unwrap_or(u64::MAX);
        let random = RandomState::new().hash_one(now);
        self.at = now + self.interval + Duration::from_millis(random % spread.max(1));
    }

    fn next(&self) -> Option<Instant> {
        (!self.interval.is_zero()).then_some(self.at)
    }
}

/// Runs the dataplane of the calling thread's network namespace until `stop` is set or no message can come any more.
/// What it programmed stays in the kernel.
///
/// `health` gets a reporter of the name [`HEALTH_REPORTER`], which is ready once the first apply has done all, and
/// `registry` gets the metrics.
///
/// # Errors
/// If it cannot start.
pub fn run(
    params: Arc<Params>,
    messages: Receiver<Vec<Message>>,
    health: &Health,
    registry: &Registry,
    stop: &Arc<AtomicBool>,
) -> Result<(), DataplaneError> {
    let started = Instant::now();
    let metrics = DataplaneMetrics::new(registry)?;
    health.register(HEALTH_REPORTER, true, Some(params.watchdog), started);
    let groups = MonitorGroups { links: true, addresses: true, routes: false };
    // Before the first listing, so that nothing is missed in between.
    let monitor = Monitor::new(groups)?;
    let dataplane = Dataplane::new(Arc::clone(&params))?;
    let (out, inputs) = sync_channel(QUEUE);
    let from_graph = out.clone();
    spawn("dataplane-in", move || forward_messages(&messages, &from_graph))?;
    let ends = Arc::clone(stop);
    spawn("links", move || forward_events(monitor, &out, &ends))?;
    let mut main = Loop {
        dataplane,
        metrics,
        health: health.clone(),
        bucket: Bucket::new(BURST, PACE, started),
        pending: true,
        retry: None,
        due: None,
        started,
        programmed: false,
        failing: false,
        tables: Timer::new(params.table_refresh, started),
        routes: Timer::new(params.route_refresh, started),
        links: Timer::new(params.interface_refresh, started),
        beat: Timer::new(HEALTH_INTERVAL, started),
    };
    main.beat();
    while !stop.load(Ordering::Acquire) && main.step(&inputs) {}
    // The other threads end by themselves: one when the graph does, one at its next look at the flag.
    Ok(())
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), DataplaneError> {
    std::thread::Builder::new().name(name.to_owned()).spawn(work).map_err(DataplaneError::Loop)?;
    Ok(())
}

fn forward_messages(messages: &Receiver<Vec<Message>>, out: &SyncSender<Input>) {
    while let Ok(batch) = messages.recv() {
        if out.send(Input::Messages(batch)).is_err() {
            return;
        }
    }
    // If nobody listens any more, there is nothing to say.
    let _ = out.send(Input::End);
}

fn forward_events(mut monitor: Monitor, out: &SyncSender<Input>, stop: &AtomicBool) {
    while !stop.load(Ordering::Acquire) {
        let mut events = Vec::new();
        match monitor.wait(END_POLL) {
            Ok(Some(event)) => events.push(event),
            Ok(None) => continue,
            Err(error) => {
                tracing::error!(%error, "The kernel's events about links cannot be read");
                events.push(Event::Overrun);
                std::thread::sleep(END_POLL);
            }
        }
        while let Ok(Some(event)) = monitor.try_next() {
            events.push(event);
        }
        if out.send(Input::Links(events)).is_err() {
            return;
        }
    }
}

struct Loop {
    dataplane: Dataplane,
    metrics: DataplaneMetrics,
    health: Health,
    bucket: Bucket,
    /// There is work.
    pending: bool,
    /// When what failed is tried again.
    retry: Option<Instant>,
    /// When something becomes due by time alone.
    due: Option<Instant>,
    started: Instant,
    /// Everything was programmed once.
    programmed: bool,
    failing: bool,
    tables: Timer,
    routes: Timer,
    links: Timer,
    beat: Timer,
}

// === impl Loop ===

impl Loop {
    /// Waits, takes in what came, works. False at the end.
    fn step(&mut self, inputs: &Receiver<Input>) -> bool {
        let mut taken = 0;
        let mut next = inputs.recv_timeout(self.wait(Instant::now()));
        loop {
            match next {
                Ok(Input::End) | Err(RecvTimeoutError::Disconnected) => return false,
                Err(RecvTimeoutError::Timeout) => break,
                Ok(Input::Messages(batch)) => {
                    taken += batch.len();
                    self.take_messages(&batch);
                }
                Ok(Input::Links(events)) => {
                    taken += events.len();
                    self.take_events(events);
                }
            }
            if taken >= AT_ONCE {
                break;
            }
            next = inputs.recv_timeout(Duration::ZERO);
        }
        let now = Instant::now();
        self.fire_timers(now);
        if self.pending && self.bucket.take(now) {
            self.apply(now);
        }
        true
    }

    /// How long nothing is due.
    fn wait(&mut self, now: Instant) -> Duration {
        if self.pending {
            return self.bucket.wait(now);
        }
        let timers = [self.tables.next(), self.routes.next(), self.links.next(), self.beat.next()];
        let first = timers.into_iter().chain([self.retry, self.due]).flatten().min();
        // The flag that ends the loop does not wake it.
        first.map_or(END_POLL, |at| at.saturating_duration_since(now)).min(END_POLL)
    }

    fn take_messages(&mut self, batch: &[Message]) {
        self.metrics.took_messages(batch.len());
        for message in batch {
            self.metrics.took_message(message);
            self.dataplane.on_message(message);
        }
        self.pending |= !batch.is_empty();
    }

    fn take_events(&mut self, events: Vec<Event>) {
        let addresses =
            events.iter().filter(|e| matches!(e, Event::Address(_) | Event::AddressRemoved(_))).count();
        self.metrics.took_events(events.len() - addresses, addresses);
        let now = Instant::now();
        for event in events {
            self.dataplane.on_link_event(event, now);
        }
        self.pending = true;
    }

    fn fire_timers(&mut self, now: Instant) {
        if self.beat.fires(now) {
            self.beat();
        }
        if self.tables.fires(now) {
            self.dataplane.resync_tables();
            self.pending = true;
        }
        if self.routes.fires(now) {
            self.dataplane.resync_routes();
            self.pending = true;
        }
        if self.links.fires(now) {
            self.dataplane.resync_links();
            self.pending = true;
        }
        for at in [&mut self.retry, &mut self.due] {
            if at.is_some_and(|at| now >= at) {
                *at = None;
                self.pending = true;
            }
        }
    }

    fn apply(&mut self, now: Instant) {
        self.pending = false;
        let report = self.dataplane.apply(now);
        let took = now.elapsed();
        self.due = report.due;
        self.retry = (!report.failures.is_empty()).then(|| now + RETRY);
        self.log(&report, took);
        if report.ran {
            self.metrics.applied(&report, took, self.dataplane.core.sizes());
        }
        if report.is_complete() && !self.programmed {
            self.programmed = true;
            self.metrics.programmed_first(self.started.elapsed());
            tracing::info!(seconds = self.started.elapsed().as_secs_f64(), "The node is programmed");
        }
        self.beat();
    }

    fn log(&mut self, report: &ApplyReport, took: Duration) {
        for failure in &report.failures {
            tracing::warn!(%failure, "A part could not be programmed and is tried again");
        }
        let failing = !report.failures.is_empty();
        if self.failing && !failing {
            tracing::info!("What could not be programmed now is");
        }
        self.failing = failing;
        if report.repaired > 0 {
            tracing::warn!(
                differences = report.repaired,
                "Somebody else changed what is ours, it is repaired"
            );
        }
        if report.writes.total() > 0 {
            let w = report.writes;
            tracing::debug!(
                milliseconds = took.as_millis(),
                transactions = w.transactions,
                routes = w.routes,
                neighbours = w.neighbours,
                devices = w.devices,
                sysctls = w.sysctls,
                "Applied"
            );
        }
    }

    fn beat(&self) {
        self.health.report(HEALTH_REPORTER, true, self.programmed, "", Instant::now());
    }
}

#[cfg(test)]
mod tests;
