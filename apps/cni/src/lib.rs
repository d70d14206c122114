//! The CNI plugin `calico` and its address manager `calico-ipam`.
//!
//! Owns: the CNI protocol (environment, standard input, results and errors per version of the specification) and the
//! wiring of one container: address, interface, routes, endpoint. Container runtimes start it once per change.
//!
//! In: `CNI_*` variables and a network configuration. Out: a result or an error as JSON on standard output, an exit
//! code, log lines on standard error and in a file.
//!
//! Invariants:
//! - Standard output carries nothing but the result or the error.
//! - ADD that fails leaves nothing behind; ADD that is repeated repairs and changes nothing else.
//! - DEL succeeds if there is nothing to undo, and touches nothing that another container or network owns.
//! - Nothing is started before it is needed: the datastore's client and its runtime come after all checks that need
//!   neither.

mod config;
mod delegate;
mod error;
mod ipam;
mod logging;
mod network;
mod node;
mod plugin;
mod request;
mod result;
mod store;
mod version;
mod workload;

use std::io::{self, Read as _, Write as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

pub use config::HostPaths;
pub use error::CniError;
pub use network::{GATEWAY_V4, GATEWAY_V6, HOST_MAC};
pub use request::Verb;
pub use version::SpecVersion;

use config::NetConf;
use request::Request;

/// Which of the two plugins the program is called as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PluginKind {
    /// `calico`: wires containers.
    Calico,
    /// `calico-ipam`: manages addresses for other plugins.
    CalicoIpam,
}

/// What a call leads to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Outcome {
    /// For standard output.
    pub stdout: String,
    /// For standard error, besides log lines.
    pub stderr: String,
    /// Exit code.
    pub code: u8,
}

/// A call of the plugin, apart from the process it runs in.
#[derive(Clone, Copy)]
pub struct Invocation<'a> {
    /// As which plugin.
    pub kind: PluginKind,
    /// Arguments without the program's name.
    pub args: &'a [String],
    /// Environment.
    pub env: &'a dyn Fn(&str) -> Option<String>,
    /// Standard input.
    pub stdin: &'a str,
    /// Places of the host's files.
    pub paths: &'a HostPaths,
}

// === impl PluginKind ===

impl PluginKind {
    /// The plugin that a program of this file name is.
    pub fn from_program(name: &str) -> Option<Self> {
        match name {
            "calico" => Some(Self::Calico),
            "calico-ipam" => Some(Self::CalicoIpam),
            _ => None,
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Calico => "Calico CNI plugin",
            Self::CalicoIpam => "Calico CNI IPAM",
        }
    }
}

// === impl Outcome ===

impl Outcome {
    fn failed(error: &CniError) -> Self {
        let stdout = result::pretty(error).unwrap_or_default();
        Self { stdout, code: 1, ..Self::default() }
    }

    fn printed(text: String) -> Self {
        Self { stdout: text, ..Self::default() }
    }
}

// === impl Invocation ===

impl Invocation<'_> {
    /// Carries the call out. Must be called on a thread in the host's network namespace.
    pub fn execute(&self) -> Outcome {
        match self.args.first().map(String::as_str) {
            Some("-v" | "--version") => return Outcome::printed(format!("{}\n", env!("CARGO_PKG_VERSION"))),
            Some("-t") => {
                return match plugin::test_connection(self.stdin, self.env) {
                    Ok(()) => Outcome::default(),
                    Err(error) => Outcome::failed(&error),
                };
            }
            _ => {}
        }
        let request = match Request::from_env(self.env) {
            Ok(Some(request)) => request,
            Ok(None) => return Outcome { stderr: self.about(), ..Outcome::default() },
            Err(error) => return Outcome::failed(&error),
        };
        let work =
            AssertUnwindSafe(|| plugin::carry_out(self.kind, &request, self.stdin, self.paths, self.env));
        match catch_unwind(work) {
            Ok(Ok(text)) => Outcome::printed(text),
            Ok(Err(error)) => {
                let error = CniError::from(error);
                tracing::error!(
                    verb = ?request.verb,
                    container = request.container_id,
                    code = error.code,
                    error = error.msg,
                    details = error.details,
                    "Request failed"
                );
                Outcome::failed(&error)
            }
            Err(panic) => {
                let what = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
                let what = what.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
                Outcome::failed(&CniError::new(CniError::PLUGIN, format!("the plugin panicked: {what}")))
            }
        }
    }

    fn about(&self) -> String {
        let served: Vec<String> = SpecVersion::SUPPORTED.iter().map(ToString::to_string).collect();
        format!(
            "{} {}\nCNI protocol versions supported: {}\n",
            self.kind.title(),
            env!("CARGO_PKG_VERSION"),
            served.join(", ")
        )
    }
}

/// Runs the plugin as this process: with its environment, standard input and output. `args` are those after the
/// program's name.
pub fn run(kind: PluginKind, args: &[String]) -> ExitCode {
    let env = |name: &str| std::env::var(name).ok();
    let needs_input = args.first().is_some_and(|a| a == "-t")
        || env("CNI_COMMAND").is_some_and(|verb| !verb.is_empty() && verb != "VERSION");
    let mut stdin = String::new();
    let read = if needs_input { io::stdin().read_to_string(&mut stdin) } else { Ok(0) };
    let outcome = match read {
        Ok(_) => {
            if let Ok(conf) = NetConf::parse(&stdin) {
                logging::start(&conf.log);
            }
            let paths = HostPaths::default();
            Invocation { kind, args, env: &env, stdin: &stdin, paths: &paths }.execute()
        }
        Err(error) => {
            let text = format!("error reading from stdin: {error}");
            Outcome::failed(&CniError::new(CniError::IO_FAILURE, text))
        }
    };
    let _ = io::stderr().write_all(outcome.stderr.as_bytes());
    let printed = io::stdout().write_all(outcome.stdout.as_bytes()).and_then(|()| io::stdout().flush());
    // A result that nobody could read is no success.
    if printed.is_err() { ExitCode::FAILURE } else { ExitCode::from(outcome.code) }
}
