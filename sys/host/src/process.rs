//! Child processes that end with their owner.

use std::io;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::{NetNs, NetNsError};

/// How often an ending process is looked at.
const POLL: Duration = Duration::from_millis(5);

/// Why a process could not be started or ended.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// The namespace could not be entered.
    #[error(transparent)]
    NetNs(#[from] NetNsError),
    /// The operating system refused.
    #[error("cannot {call} {program}: {source}")]
    System {
        /// What was tried, a verb.
        call: &'static str,
        /// The program.
        program: String,
        /// Why.
        source: io::Error,
    },
}

/// A child process. Dropping it kills it and waits for its end, so that no zombie stays.
#[derive(Debug)]
pub struct Process {
    child: Child,
    program: String,
    status: Option<ExitStatus>,
}

// === impl Process ===

impl Process {
    /// Starts `command`, in `ns` if given.
    ///
    /// Do not ask the kernel to kill it when its parent dies (`PR_SET_PDEATHSIG`): the parent is a short-lived thread.
    pub fn spawn(command: &mut Command, ns: Option<&NetNs>) -> Result<Self, ProcessError> {
        let program = command.get_program().to_string_lossy().into_owned();
        let spawned = match ns {
            Some(ns) => ns.run(|| command.spawn())?,
            None => command.spawn(),
        };
        match spawned {
            Ok(child) => Ok(Self { child, program, status: None }),
            Err(source) => Err(ProcessError::System { call: "start", program, source }),
        }
    }

    /// Process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The child itself, for its pipes.
    pub fn child_mut(&mut self) -> &mut Child {
        &mut self.child
    }

    /// How it ended, if it has.
    pub fn try_wait(&mut self) -> Result<Option<ExitStatus>, ProcessError> {
        if self.status.is_none() {
            self.status = self.child.try_wait().map_err(|e| self.failed("look at", e))?;
        }
        Ok(self.status)
    }

    /// Waits for its end at most `timeout`; `None` if it still runs then.
    pub fn wait(&mut self, timeout: Duration) -> Result<Option<ExitStatus>, ProcessError> {
        let deadline = Instant::now() + timeout;
        loop {
            if let Some(status) = self.try_wait()? {
                return Ok(Some(status));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            std::thread::sleep(left.min(POLL));
        }
    }

    /// Sends `signal`; nothing happens if it has ended.
    pub fn signal(&mut self, signal: Signal) -> Result<(), ProcessError> {
        // Not yet waited for, so the number still is this process's.
        if self.try_wait()?.is_some() {
            return Ok(());
        }
        let pid = Pid::from_raw(self.child.id().cast_signed());
        kill(pid, signal).map_err(|e| self.failed("signal", e.into()))
    }

    /// Asks it to end (SIGTERM), and kills it after `grace`. Returns how it ended.
    pub fn stop(&mut self, grace: Duration) -> Result<ExitStatus, ProcessError> {
        self.signal(Signal::SIGTERM)?;
        match self.wait(grace)? {
            Some(status) => Ok(status),
            None => self.kill(),
        }
    }

    /// Kills it (SIGKILL) and waits for its end.
    pub fn kill(&mut self) -> Result<ExitStatus, ProcessError> {
        if let Some(status) = self.try_wait()? {
            return Ok(status);
        }
        self.child.kill().map_err(|e| self.failed("kill", e))?;
        let status = self.child.wait().map_err(|e| self.failed("wait for", e))?;
        self.status = Some(status);
        Ok(status)
    }

    fn failed(&self, call: &'static str, source: io::Error) -> ProcessError {
        ProcessError::System { call, program: self.program.clone(), source }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Err(error) = self.kill() {
            tracing::warn!(program = %self.program, %error, "Child process could not be ended");
        }
    }
}
