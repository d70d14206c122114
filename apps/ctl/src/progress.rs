//! A bar for long input, on a terminal only.

use std::io::IsTerminal as _;

use indicatif::{ProgressBar, ProgressStyle};

/// Fewer objects than this need no bar.
const WORTH_A_BAR: usize = 100;

/// Shows how far an action is.
pub(crate) struct Progress(Option<ProgressBar>);

// === impl Progress ===

impl Progress {
    /// Shows nothing.
    pub(crate) fn none() -> Self {
        Self(None)
    }

    /// A bar for `total` objects, if there are many and standard error is a terminal.
    pub(crate) fn of(total: usize) -> Self {
        if total < WORTH_A_BAR || !std::io::stderr().is_terminal() {
            return Self::none();
        }
        let bar = ProgressBar::new(total as u64);
        if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} {eta} {wide_msg}") {
            bar.set_style(style);
        }
        Self(Some(bar))
    }

    /// The next object's turn.
    pub(crate) fn step(&mut self, id: &str) {
        if let Some(bar) = &self.0 {
            bar.set_message(id.to_owned());
            bar.inc(1);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}
