//! What a run says: plain lines with times for people, one JSON object for programs.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::Instant;

use serde_json::{Value, json};

use crate::matrix::{Matrix, Paint};

/// How a run reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Format {
    /// Lines for people.
    #[default]
    Text,
    /// One JSON object at the end.
    Json,
}

/// The report of a run.
#[derive(Debug)]
pub struct Report {
    format: Format,
    paint: Paint,
    quiet: bool,
    since: Instant,
    steps: Vec<Value>,
    setup: Vec<Value>,
}

// === impl Report ===

impl Report {
    /// A report to standard output; `quiet` leaves out everything but what went wrong.
    pub fn new(format: Format, quiet: bool) -> Self {
        let colour = io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        Self {
            format,
            paint: if colour { Paint::Colour } else { Paint::Plain },
            quiet,
            since: Instant::now(),
            steps: Vec::new(),
            setup: Vec::new(),
        }
    }

    /// A line without a time.
    pub fn say(&self, text: &str) {
        if self.format == Format::Text && !self.quiet {
            // A closed pipe is the reader's choice.
            let _ = writeln!(io::stdout(), "{text}");
        }
    }

    /// A piece of work is done; its time is the time since the one before.
    pub fn done(&mut self, text: &str) {
        let seconds = self.lap();
        self.setup.push(json!({"what": text, "seconds": seconds}));
        self.say(&format!("[{seconds:6.2} s] {text}"));
    }

    /// A step is done.
    pub fn step(
        &mut self,
        number: usize,
        name: &str,
        actions: &[String],
        matrix: &Matrix,
        failed: &[String],
    ) {
        let seconds = self.lap();
        self.steps.push(json!({
            "step": number, "name": name, "seconds": seconds, "actions": actions,
            "connections": matrix.report(), "failed": failed, "ok": failed.is_empty(),
        }));
        if self.format != Format::Text || (self.quiet && failed.is_empty()) {
            return;
        }
        let mut out = format!("\n{number}. {name}\n");
        for action in actions {
            for line in action.lines() {
                out.push_str(&format!("    > {line}\n"));
            }
        }
        if !matrix.is_empty() {
            out.push_str(&matrix.render(self.paint));
        }
        for line in failed {
            out.push_str(&format!("    WRONG: {line}\n"));
        }
        let verdict = match (failed.is_empty(), matrix.len()) {
            (true, 0) => "done".to_owned(),
            (true, n) => format!("all {n} connections as expected"),
            (false, _) => format!("{} surprises", failed.len()),
        };
        out.push_str(&format!("[{seconds:6.2} s] {verdict}\n"));
        let _ = io::stdout().write_all(out.as_bytes());
    }

    /// The run is over.
    pub fn finish(&self, scenario: &str, outcome: &Result<bool, String>) {
        let (ok, error) = match outcome {
            Ok(ok) => (*ok, None),
            Err(e) => (false, Some(e)),
        };
        match self.format {
            Format::Json => {
                let all = json!({
                    "scenario": scenario, "ok": ok, "error": error, "setup": self.setup, "steps": self.steps,
                });
                let _ = writeln!(io::stdout(), "{all:#}");
            }
            Format::Text if !self.quiet || !ok => {
                let steps = self.steps.len();
                let line = match (ok, error) {
                    (_, Some(e)) => format!("\n{scenario}: {e}"),
                    (true, None) => format!("\n{scenario}: all {steps} steps as expected"),
                    (false, None) => {
                        let bad = self.steps.iter().filter(|s| s["ok"] == false).count();
                        format!("\n{scenario}: {bad} of {steps} steps went otherwise than expected")
                    }
                };
                let _ = writeln!(io::stdout(), "{line}");
            }
            Format::Text => {}
        }
    }

    fn lap(&mut self) -> f64 {
        let seconds = self.since.elapsed().as_secs_f64();
        self.since = Instant::now();
        (seconds * 1000.0).round() / 1000.0
    }
}
