//! How parts of the process ask for its end.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

/// Why the process should end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// To start again: settings changed.
    Restart,
    /// For good, with this exit code.
    Exit(u8),
}

/// The first verdict counts; clones share it.
#[derive(Debug, Clone, Default)]
pub struct Verdicts(Arc<(Mutex<Option<Verdict>>, Notify)>);

// === impl Verdicts ===

impl Verdicts {
    /// Asks for the end.
    pub fn say(&self, verdict: Verdict) {
        self.0.0.lock().get_or_insert(verdict);
        self.0.1.notify_waiters();
        self.0.1.notify_one();
    }

    /// Waits for a verdict.
    pub async fn wait(&self) -> Verdict {
        loop {
            let notified = self.0.1.notified();
            if let Some(verdict) = *self.0.0.lock() {
                return verdict;
            }
            notified.await;
        }
    }
}
