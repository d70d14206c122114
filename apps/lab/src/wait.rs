//! Waiting for a condition, with a deadline and an ear for interruptions.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::LabError;

/// How often a condition is looked at.
const POLL: Duration = Duration::from_millis(10);

/// How long to wait for things, and whether to give up at once.
#[derive(Debug, Clone)]
pub struct Patience {
    /// Most time for one condition.
    pub limit: Duration,
    /// Set when the user interrupts.
    pub interrupted: Arc<AtomicBool>,
}

impl Patience {
    /// Waits until `condition` holds. Its error ends the waiting.
    pub fn until(
        &self,
        what: &str,
        mut condition: impl FnMut() -> Result<bool, LabError>,
    ) -> Result<(), LabError> {
        let start = Instant::now();
        loop {
            self.check()?;
            if condition()? {
                return Ok(());
            }
            if start.elapsed() > self.limit {
                return Err(LabError::Timeout { what: what.to_owned(), after: self.limit });
            }
            std::thread::sleep(POLL);
        }
    }

    /// An error if the user interrupted.
    pub fn check(&self) -> Result<(), LabError> {
        if self.interrupted.load(Ordering::Acquire) { Err(LabError::Interrupted) } else { Ok(()) }
    }
}
