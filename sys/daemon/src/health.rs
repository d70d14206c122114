//! Health of a process as the sum of its parts.
//!
//! Each part registers under a name, says whether it can become unready and how long its reports last, and
//! reports now and then. A part whose last report is too old is not live. Time is passed in, so that tests
//! need not wait.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// The health of one process; clones share it.
#[derive(Debug, Clone, Default)]
pub struct Health {
    parts: Arc<Mutex<BTreeMap<String, Part>>>,
}

#[derive(Debug)]
struct Part {
    reports_ready: bool,
    timeout: Option<Duration>,
    live: bool,
    ready: bool,
    detail: String,
    at: Instant,
}

/// An answer to "are you live?" or "are you ready?".
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Yes or no.
    pub ok: bool,
    /// One line per part that has something to say; empty if all is well and nobody has.
    pub detail: String,
}

impl Answer {
    /// The HTTP status: 200 with detail, 204 without, 503 for no.
    pub fn status(&self) -> u16 {
        match (self.ok, self.detail.is_empty()) {
            (true, false) => 200,
            (true, true) => 204,
            (false, _) => 503,
        }
    }
}

impl Health {
    /// Adds a part. It is live and not ready until it reports.
    pub fn register(&self, name: &str, reports_ready: bool, timeout: Option<Duration>, now: Instant) {
        let part = Part { reports_ready, timeout, live: true, ready: false, detail: String::new(), at: now };
        self.parts.lock().insert(name.to_owned(), part);
    }

    /// Takes a report; one from a part that never registered is ignored.
    pub fn report(&self, name: &str, live: bool, ready: bool, detail: &str, now: Instant) {
        if let Some(part) = self.parts.lock().get_mut(name) {
            part.live = live;
            part.ready = ready;
            part.at = now;
            detail.clone_into(&mut part.detail);
        }
    }

    /// Whether every part is live and in time.
    pub fn live(&self, now: Instant) -> Answer {
        self.answer(now, "live", |_| true, |part| part.live)
    }

    /// Whether every part that reports readiness is ready and in time.
    pub fn ready(&self, now: Instant) -> Answer {
        self.answer(now, "ready", |part| part.reports_ready, |part| part.ready)
    }

    fn answer(
        &self,
        now: Instant,
        what: &str,
        counts: impl Fn(&Part) -> bool,
        holds: impl Fn(&Part) -> bool,
    ) -> Answer {
        let mut ok = true;
        let mut detail = String::new();
        for (name, part) in self.parts.lock().iter().filter(|(_, part)| counts(part)) {
            let late = part.timeout.is_some_and(|t| now.saturating_duration_since(part.at) > t);
            let good = holds(part) && !late;
            ok &= good;
            let state = match (good, late) {
                (true, _) => what.to_owned(),
                (false, true) => "reporting timed out".to_owned(),
                (false, false) => format!("not {what}"),
            };
            if !good || !part.detail.is_empty() {
                let sep = if part.detail.is_empty() { "" } else { ": " };
                // Writing to a String does not fail.
                let _ = writeln!(detail, "{name}: {state}{sep}{}", part.detail);
            }
        }
        Answer { ok, detail }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_or_unready_part_is_named() {
        let health = Health::default();
        let t0 = Instant::now();
        health.register("loop", true, Some(Duration::from_secs(90)), t0);
        health.register("startup", false, None, t0);
        assert!(health.live(t0).ok);
        let answer = health.ready(t0);
        assert_eq!((answer.ok, answer.status()), (false, 503));
        assert_eq!(answer.detail, "loop: not ready\n");
        health.report("loop", true, true, "", t0);
        assert_eq!(health.ready(t0).status(), 204);
        health.report("loop", true, true, "resyncing", t0);
        assert_eq!(health.ready(t0).status(), 200);
        let later = t0 + Duration::from_secs(91);
        assert_eq!(health.live(later).detail, "loop: reporting timed out: resyncing\n");
        assert_eq!(health.ready(later).status(), 503);
        health.report("nobody", false, false, "", later);
        assert!(!health.live(later).ok);
    }
}
