//! Waiting for the signals that end or reload a component.

use std::io;

use tokio::signal::unix::{SignalKind, signal};

/// What the process was asked to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// Stop (SIGTERM or SIGINT).
    Stop,
    /// Read the configuration again (SIGHUP).
    Reload,
}

/// Waits for the next such signal.
pub async fn asked() -> io::Result<Asked> {
    let mut term = signal(SignalKind::terminate())?;
    let mut int = signal(SignalKind::interrupt())?;
    let mut hup = signal(SignalKind::hangup())?;
    Ok(tokio::select! {
        _ = term.recv() => Asked::Stop,
        _ = int.recv() => Asked::Stop,
        _ = hup.recv() => Asked::Reload,
    })
}
