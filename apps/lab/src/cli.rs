//! The commands of `calico lab`.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::{Parser, Subcommand};

use crate::LabError;
use crate::cluster::Cluster;
use crate::expect::Expectation;
use crate::fabric::ROUTER;
use crate::probe::{self, Probe};
use crate::report::{Format, Report};
use crate::run as steps;
use crate::scenario::{Scenario, Step};
use crate::state::State;
use crate::store::Kind;
use crate::wait::Patience;

/// Most time to wait for any one thing.
const LIMIT: Duration = Duration::from_secs(60);

/// A cluster on this machine, out of network namespaces, without Kubernetes.
#[derive(Debug, Parser)]
#[command(name = "calico lab", disable_version_flag = true)]
struct Args {
    #[command(subcommand)]
    command: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Build a scenario's cluster, run its steps, take it down.
    Run {
        /// Scenario file.
        file: PathBuf,
        #[command(flatten)]
        options: BuildOptions,
        /// What to print.
        #[arg(long, value_enum, default_value_t)]
        output: Format,
        /// Print only what went wrong.
        #[arg(short, long)]
        quiet: bool,
        /// Leave the cluster up.
        #[arg(long)]
        keep: bool,
    },
    /// Build a scenario's cluster and leave it up.
    Up {
        /// Scenario file.
        file: PathBuf,
        #[command(flatten)]
        options: BuildOptions,
    },
    /// Run a command in a pod (namespace/name), node or host of a cluster that is up.
    Exec {
        #[command(flatten)]
        which: Which,
        /// Pod, node or host.
        target: String,
        /// Command and arguments.
        #[arg(trailing_var_arg = true, required = true, allow_hyphen_values = true)]
        command: Vec<OsString>,
    },
    /// Run calicoctl against a cluster that is up.
    Ctl {
        #[command(flatten)]
        which: Which,
        /// calicoctl's arguments.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Try all connections in a cluster that is up and print who reaches whom.
    Probe {
        #[command(flatten)]
        which: Which,
        /// Expected connectivity, for example "deny * -> default/db tcp:5432"; the last line that fits decides.
        #[arg(long = "expect")]
        expect: Vec<String>,
        /// Other probes than the scenario's: tcp:PORT, udp:PORT, icmp.
        #[arg(long = "probe")]
        probes: Vec<String>,
        /// What to print.
        #[arg(long, value_enum, default_value_t)]
        output: Format,
    },
    /// Take a cluster down.
    Down {
        /// The cluster; the only one if there is one.
        name: Option<String>,
        /// All clusters.
        #[arg(long)]
        all: bool,
    },
    /// List the clusters that are up.
    List,
    /// Answer probes (what the lab runs in each pod).
    #[command(hide = true)]
    Serve {
        /// Ports.
        ports: Vec<String>,
    },
}

#[derive(Debug, clap::Args)]
struct BuildOptions {
    /// Datastore of the cluster.
    #[arg(long, value_enum, default_value = "sqlite")]
    datastore: Kind,
    /// Name of the cluster instead of the scenario's.
    #[arg(long)]
    name: Option<String>,
}

#[derive(Debug, clap::Args)]
struct Which {
    /// The cluster; the only one if there is one.
    #[arg(long)]
    name: Option<String>,
}

/// Runs a command of `calico lab` and returns its exit code: 0 as expected, 1 not, 2 for a wrong command line.
pub fn run(args: &[OsString]) -> ExitCode {
    let words = std::iter::once(OsString::from("calico lab")).chain(args.iter().cloned());
    let args = match Args::try_parse_from(words) {
        Ok(args) => args,
        Err(error) => {
            // A closed pipe is the reader's choice.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    match act(args.command) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            let _ = writeln!(io::stderr(), "calico lab: {error}");
            ExitCode::FAILURE
        }
    }
}

fn act(verb: Verb) -> Result<bool, LabError> {
    if !matches!(verb, Verb::Serve { .. } | Verb::List) && !nix::unistd::geteuid().is_root() {
        return Err(LabError::NotRoot);
    }
    match verb {
        Verb::Run { file, options, output, quiet, keep } => {
            build_and(file, options, Report::new(output, quiet), keep, true)
        }
        Verb::Up { file, options } => build_and(file, options, Report::new(Format::Text, false), true, false),
        Verb::Exec { which, target, command } => {
            let state = find(which.name)?;
            let (program, rest) = command.split_first().ok_or_else(|| LabError::NoSuch("command".into()))?;
            let mut command = Command::new(program);
            command.args(rest);
            replace(&state, &target, command)
        }
        Verb::Ctl { which, args } => {
            let state = find(which.name)?;
            let command = crate::ctl::command(&state, &args)?;
            replace(&state, ROUTER, command)
        }
        Verb::Probe { which, expect, probes, output } => probe_all(which.name, &expect, &probes, output),
        Verb::Down { name, all } => {
            let names = if all { State::clusters() } else { vec![find(name)?.cluster] };
            for name in names {
                down(&name)?;
            }
            Ok(true)
        }
        Verb::List => {
            let mut out = io::stdout();
            for name in State::clusters() {
                let pods = State::load(&name).map(|s| s.pods.len()).unwrap_or_default();
                let _ = writeln!(out, "{name}  {pods} pods");
            }
            Ok(true)
        }
        Verb::Serve { ports } => serve(&ports),
    }
}

/// Builds a cluster in a thread of the router's namespace, and runs the scenario's steps there if asked to.
fn build_and(
    file: PathBuf,
    options: BuildOptions,
    mut report: Report,
    keep: bool,
    with_steps: bool,
) -> Result<bool, LabError> {
    let mut scenario = Scenario::load(&file)?;
    if let Some(name) = options.name {
        scenario.rename(name)?;
    }
    let path = file.canonicalize().map_err(|e| LabError::io("find", &file, &e))?;
    if State::folder(&scenario.name).exists() {
        return Err(LabError::Exists(scenario.name));
    }
    let patience = Patience { limit: LIMIT, interrupted: interruptions()? };
    let name = scenario.name.clone();
    report.say(&format!("{name}: {}", scenario.about));
    let state = State {
        cluster: name.clone(),
        scenario_path: path,
        store: options.datastore.name().into(),
        ..State::default()
    };
    state.save()?;
    let (state, machines) = Cluster::build(state, scenario.clone(), patience.clone(), &mut report);
    let (state, outcome) = match machines {
        Err(error) => (state, Err(error)),
        Ok(_) if !with_steps => (state, Ok(true)),
        Ok(machines) => {
            let router = state.netns(ROUTER)?;
            let mut cluster = Cluster { state, scenario, machines, patience: patience.clone() };
            let outcome = router.run(|| steps::steps(&mut cluster, &mut report))?;
            (cluster.state, outcome)
        }
    };
    let failed = outcome.is_err();
    let words = match &outcome {
        Ok(ok) => Ok(*ok),
        Err(error) => Err(error.to_string()),
    };
    if with_steps || failed {
        report.finish(&name, &words);
    }
    if keep && !failed {
        report.say(&format!(
            "\nthe cluster is up; try:\n  calico lab probe --name {name}\n  calico lab ctl --name {name} get networkpolicies -A\n  \
             calico lab exec --name {name} POD COMMAND\n  calico lab down {name}"
        ));
        // Children of this process go on without it.
        std::mem::forget(state);
    } else {
        state.tear_down()?;
    }
    // What went wrong has been said.
    Ok(words.unwrap_or(false))
}

/// A flag that SIGINT and SIGTERM set.
fn interruptions() -> Result<Arc<AtomicBool>, LabError> {
    let flag = Arc::new(AtomicBool::new(false));
    let fail = |e: io::Error| LabError::Start { what: "the signal handler".into(), reason: e.to_string() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(fail)?;
    let set = flag.clone();
    let (ready_tx, ready_rx) = std::sync::mpsc::channel();
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            runtime.block_on(async {
                use tokio::signal::unix::{SignalKind, signal};
                let both = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()));
                let (Ok(mut int), Ok(mut term)) = both else { return };
                let _ = ready_tx.send(());
                loop {
                    tokio::select! { _ = int.recv() => {}, _ = term.recv() => {} }
                    set.store(true, Ordering::Release);
                }
            });
        })
        .map_err(fail)?;
    // An error means that the thread ended without handlers.
    ready_rx.recv().map_err(|_| LabError::Start {
        what: "the signal handler".into(),
        reason: "the system refused it".into(),
    })?;
    Ok(flag)
}

/// The cluster of that name, or the only one.
fn find(name: Option<String>) -> Result<State, LabError> {
    match name {
        Some(name) => State::load(&name),
        None => {
            let names = State::clusters();
            match names.as_slice() {
                [one] => State::load(one),
                [] => Err(LabError::NoCluster(String::new())),
                many => Err(LabError::Unexpected(format!(
                    "several clusters are up ({}); choose one with --name",
                    many.join(", ")
                ))),
            }
        }
    }
}

fn down(name: &str) -> Result<(), LabError> {
    match State::load(name) {
        Ok(state) => state.tear_down(),
        // Nothing but a folder is left of it.
        Err(_) => State { cluster: name.to_owned(), ..State::default() }.tear_down(),
    }
}

/// Becomes `command` in the namespace of `target`.
fn replace(state: &State, target: &str, mut command: Command) -> Result<bool, LabError> {
    let program = command.get_program().to_string_lossy().into_owned();
    command.stdin(Stdio::inherit());
    let error = state.netns(target)?.run(|| command.exec())?;
    Err(LabError::Start { what: program, reason: error.to_string() })
}

fn probe_all(
    name: Option<String>,
    expect: &[String],
    probes: &[String],
    output: Format,
) -> Result<bool, LabError> {
    let patience = Patience { limit: LIMIT, interrupted: interruptions()? };
    let cluster = Cluster::open(find(name)?, patience)?;
    let wrong = |e: &dyn std::fmt::Display| LabError::Unexpected(e.to_string());
    let mut lines = vec!["allow * -> *".parse::<Expectation>().map_err(|e| wrong(&e))?];
    for line in expect {
        lines.push(line.parse().map_err(|e| wrong(&e))?);
    }
    let probes: Vec<Probe> = probes
        .iter()
        .map(|p| p.parse())
        .collect::<Result<_, _>>()
        .map_err(|e: probe::ProbeError| wrong(&e))?;
    let step = Step { probes, ..Step::default() };
    let matrix = steps::round(&cluster, &step, &lines)?;
    // Without expectations the matrix is only shown.
    let failed: Vec<String> = match expect {
        [] => Vec::new(),
        _ => matrix
            .surprises()
            .iter()
            .map(|s| format!("{} -> {}: {}", s.pair.from, s.pair.to, s.outcome))
            .collect(),
    };
    let mut report = Report::new(output, false);
    report.step(1, &format!("who reaches whom in {}", cluster.state.cluster), &[], &matrix, &failed);
    if output == Format::Json {
        report.finish(&cluster.state.cluster, &Ok(failed.is_empty()));
    }
    Ok(failed.is_empty())
}

/// Answers probes until killed; says `ready` once every port is open.
fn serve(ports: &[String]) -> Result<bool, LabError> {
    let probes: Vec<Probe> = ports
        .iter()
        .map(|p| p.parse())
        .collect::<Result<_, _>>()
        .map_err(|e: probe::ProbeError| LabError::Unexpected(e.to_string()))?;
    probe::serve(&probes).map_err(|e| LabError::Start { what: "server".into(), reason: e.to_string() })?;
    // The starter waits for this line.
    let _ = writeln!(io::stdout(), "ready");
    loop {
        std::thread::park();
    }
}
