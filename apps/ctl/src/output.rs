//! Writing to the terminal, a pipe or a file, and the forms that objects are shown in.
//!
//! Owns: [`Out`], which takes every text that a command prints; tables, YAML and JSON as texts.
//! Invariant: a reader that has gone away is no error and no panic; what a command was asked to do goes on.

use std::io::{self, Write};

mod json;
mod table;
mod yaml;

pub(crate) use json::indented;
pub(crate) use table::{Align, boxed, columns};
pub(crate) use yaml::to_yaml;

/// The two streams of a command.
pub(crate) struct Out {
    stdout: Stream,
    stderr: Stream,
}

/// One stream, and whether its reader is gone.
struct Stream {
    to: Box<dyn Write>,
    closed: bool,
}

// === impl Out ===

impl Out {
    /// The streams of this process.
    pub(crate) fn of_process() -> Self {
        Self::new(Box::new(io::stdout()), Box::new(io::stderr()))
    }

    /// Other streams; tests use it.
    pub(crate) fn new(stdout: Box<dyn Write>, stderr: Box<dyn Write>) -> Self {
        Self { stdout: Stream { to: stdout, closed: false }, stderr: Stream { to: stderr, closed: false } }
    }

    /// Prints a text as it is.
    pub(crate) fn print(&mut self, text: &str) -> io::Result<()> {
        self.stdout.write(text)
    }

    /// Prints a line for people, beside the result.
    pub(crate) fn tell(&mut self, line: &str) {
        // Where this cannot be written, nothing else can be told either.
        let _ = self.stderr.write(&format!("{line}\n"));
    }

    /// True once the reader of standard output has gone.
    pub(crate) fn is_closed(&self) -> bool {
        self.stdout.closed
    }
}

// === impl Stream ===

impl Stream {
    fn write(&mut self, text: &str) -> io::Result<()> {
        if self.closed {
            return Ok(());
        }
        match self.to.write_all(text.as_bytes()).and_then(|()| self.to.flush()) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.closed = true;
                Ok(())
            }
            other => other,
        }
    }
}
