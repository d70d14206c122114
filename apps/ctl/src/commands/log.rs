//! Log lines on standard error.

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt;
use tracing_subscriber::prelude::*;

use crate::cli::{Args, UsageError};

/// Starts logging at the level that is asked for. Unless told otherwise, warnings of our own parts are shown, for
/// example about stored objects that cannot be read.
pub(super) fn start(args: &Args) -> Result<(), UsageError> {
    let filter = match args.text("log-level").map(str::to_ascii_lowercase).as_deref() {
        None => ours(LevelFilter::WARN),
        Some("panic" | "fatal") => return Ok(()),
        Some("error") => ours(LevelFilter::ERROR),
        Some("warn" | "warning") => Targets::new().with_default(LevelFilter::WARN),
        Some("info") => Targets::new().with_default(LevelFilter::INFO),
        Some("debug" | "trace") => Targets::new().with_default(LevelFilter::DEBUG),
        Some(_) => {
            let given = args.text("log-level").unwrap_or_default();
            return Err(UsageError::Refused(format!(
                "unknown log level: {given}, expected one of: panic, fatal, error, warn, info, debug"
            )));
        }
    };
    let lines = fmt::layer().with_writer(std::io::stderr).with_ansi(false).without_time().with_target(false);
    // A second start in one process keeps the first logger.
    let _ = tracing_subscriber::registry().with(lines.with_filter(filter)).try_init();
    Ok(())
}

fn ours(level: LevelFilter) -> Targets {
    Targets::new().with_target("calico", level)
}
