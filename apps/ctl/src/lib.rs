//! calicoctl: reads and writes Calico's objects and addresses.
//!
//! Owns: the command line ([`cli`]), reading objects from files ([`input`]), what is done with them
//! ([`actions`]) and how it is told ([`report`], [`format`], [`output`]). In: arguments, files, standard input and
//! the environment. Out: text and an exit code; changes of the datastore go through the typed client.
//!
//! Invariants: nothing is written before all input has been understood; nothing is started that a command does
//! not need (the version of the tool needs no runtime); a reader that goes away is no failure.

mod actions;
mod cli;
mod commands;
mod connect;
mod format;
mod input;
mod kinds;
mod output;
mod patch;
mod progress;
mod report;
mod scope;

use std::ffi::OsString;
use std::process::ExitCode;

use commands::CommandError;
use output::Out;

/// Runs calicoctl with `args`, those behind the name of the program. `name` is how the program was called, as
/// in `calicoctl` or `calico ctl`; help texts and errors use it.
///
/// The exit code is 0 on success and 1 after any error, whose text goes to standard error.
pub fn run(name: &str, args: &[OsString]) -> ExitCode {
    let mut out = Out::of_process();
    match execute(name, args, &mut out) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            out.tell(&error.to_string());
            ExitCode::FAILURE
        }
    }
}

fn execute(name: &str, args: &[OsString], out: &mut Out) -> Result<(), CommandError> {
    match cli::parse(&cli::tree::ROOT, name, args)? {
        cli::Call::Help(text) => Ok(out.print(&text)?),
        cli::Call::Run(verb, args) => commands::run(verb, &args, out),
    }
}
