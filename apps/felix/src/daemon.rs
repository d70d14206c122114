//! The process: settings, the store, the threads, and the end.
//!
//! Threads: tokio's workers run the syncer and the small HTTP servers; `calc` runs the calculation graph; `dataplane`
//! programs the kernel. Data flows one way, through bounded channels. A changed setting starts the process anew in
//! its place, which changes nothing in the kernel but what the setting changes.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use calico_calc::{CalcConfig, CalcGraph};
use calico_client::Client;
use calico_daemon::{Health, http, log, signal};
use calico_datastore::syncer::Batch;
use calico_datastore::{
    Backend, CalicoApiConfig, DedupeBuffer, Fallback, StoreError, Surroundings, Syncer, connect,
    felix_sources,
};
use prometheus::Registry;
use tokio::runtime::Runtime;

use crate::calc_thread::CalcThread;
use crate::config::{Params, RawSettings};
use crate::dataplane;
use crate::metrics::CalcMetrics;
use crate::tracker::ConfigTracker;
use crate::verdict::{Verdict, Verdicts};

const USAGE: &str = "\
usage: calico component felix [--config-file FILE]

Felix, the agent of a node. Settings come from FELIX_* variables, from FILE (default /etc/calico/felix.cfg) and from
the FelixConfigurations in the datastore; the datastore from CALICO_* variables or a CalicoAPIConfig.
";

/// Exit code that asks a supervisor to start the process again.
const EXIT_RESTART: u8 = 129;
/// Batches of messages that may wait for the dataplane.
const QUEUE: usize = 100;
/// How often a store that is not ready is asked again.
const READY_POLL: Duration = Duration::from_millis(500);
/// Longest time for threads to end.
const GRACE: Duration = Duration::from_secs(10);

const CALC_GRAPH: &str = "CalculationGraph";
const STARTUP: &str = "FelixStartup";

/// Why Felix cannot run.
#[derive(Debug, thiserror::Error)]
enum FelixError {
    #[error("{what}: {reason}")]
    Start { what: &'static str, reason: String },
    #[error(transparent)]
    Log(#[from] log::LogError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("metrics: {0}")]
    Metrics(#[from] prometheus::Error),
    #[error("configuration file {path}: {reason}")]
    File { path: PathBuf, reason: String },
}

/// Runs Felix until it is told to end. Exit codes: 0 after a signal, 1 for what cannot be helped by trying again, 2 for
/// a wrong command line.
pub fn run(args: &[OsString]) -> ExitCode {
    let file = match arguments(args) {
        Ok(Some(file)) => file,
        Ok(None) => {
            // A closed pipe is the reader's choice.
            let _ = io::stdout().write_all(USAGE.as_bytes());
            return ExitCode::SUCCESS;
        }
        Err(bad) => {
            let _ = writeln!(io::stderr(), "felix: unknown argument {bad:?}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match live(&file) {
        Ok(Verdict::Exit(code)) => ExitCode::from(code),
        Ok(Verdict::Restart) => start_again(args),
        Err(error) => {
            let _ = writeln!(io::stderr(), "felix: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The configuration file to read; `None` if only help was asked for.
fn arguments(args: &[OsString]) -> Result<Option<PathBuf>, OsString> {
    let mut file = PathBuf::from("/etc/calico/felix.cfg");
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let text = arg.to_string_lossy();
        match text.as_ref() {
            "-h" | "--help" => return Ok(None),
            "-c" | "--config-file" => file = args.next().ok_or_else(|| arg.clone())?.into(),
            _ => match text.strip_prefix("--config-file=") {
                Some(path) => file = path.into(),
                None => return Err(arg.clone()),
            },
        }
    }
    Ok(Some(file))
}

/// Becomes the same program again, with the same process number.
fn start_again(args: &[OsString]) -> ExitCode {
    let mut command = Command::new("/proc/self/exe");
    command.args(["component", "felix"]).args(args);
    let error = command.exec();
    tracing::error!(%error, "cannot start again in place; leaving it to the supervisor");
    ExitCode::from(EXIT_RESTART)
}

fn live(file: &Path) -> Result<Verdict, FelixError> {
    let mut raw = RawSettings::default();
    raw.read_environment(
        std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?))),
    );
    let bad_lines = match std::fs::read_to_string(file) {
        Ok(text) => raw.read_file(&text),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(e) => return Err(FelixError::File { path: file.to_owned(), reason: e.to_string() }),
    };
    let machine = calico_host::hostname()
        .map_err(|e| FelixError::Start { what: "the machine's name", reason: e.to_string() })?
        .to_lowercase();
    let (local, _) = Params::read(&raw, &machine);
    log::to_stderr(log::level(&local.log_level).unwrap_or(tracing::level_filters::LevelFilter::INFO))?;
    for line in bad_lines {
        tracing::warn!(file = %file.display(), line, "not a setting; skipped");
    }
    tracing::info!(version = env!("CARGO_PKG_VERSION"), node = %local.hostname, "Felix starts");

    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|e| FelixError::Start { what: "the async runtime", reason: e.to_string() })?;
    let backend = open_store(&raw)?;
    let health = Health::default();
    health.register(STARTUP, true, None, Instant::now());
    let outcome = serve(&runtime, &backend, raw, &machine, &health);
    runtime.block_on(backend.close());
    runtime.shutdown_timeout(Duration::from_secs(1));
    outcome
}

/// The store that the environment names; Felix's own settings for it win, as upstream's do.
fn open_store(raw: &RawSettings) -> Result<Arc<dyn Backend>, FelixError> {
    let surroundings = Surroundings::of_process();
    let mut config = CalicoApiConfig::load(None, &surroundings).map_err(StoreError::from)?;
    let own = |name: &str| raw.get(name).map(ToString::to_string);
    if let Some(kind) = own("DatastoreType") {
        config.datastore_type = kind;
    }
    let address =
        own("EtcdAddr").map(|a| format!("{}://{a}", own("EtcdScheme").unwrap_or_else(|| "http".into())));
    if let Some(endpoints) = own("EtcdEndpoints").or(address) {
        config.etcd_endpoints = endpoints;
        config.datastore_type = "etcdv3".into();
    }
    for (name, field) in [
        ("EtcdKeyFile", &mut config.etcd_key_file),
        ("EtcdCertFile", &mut config.etcd_cert_file),
        ("EtcdCaFile", &mut config.etcd_ca_cert_file),
    ] {
        if let Some(path) = own(name) {
            *field = path;
        }
    }
    let choice = config.choose(Fallback::Never, &surroundings)?;
    Ok(connect(&config, &choice)?)
}

fn serve(
    runtime: &Runtime,
    backend: &Arc<dyn Backend>,
    raw: RawSettings,
    machine: &str,
    health: &Health,
) -> Result<Verdict, FelixError> {
    let verdicts = Verdicts::default();
    runtime.spawn(heed_signals(verdicts.clone()));
    let mut tracker = ConfigTracker::new(raw, machine);
    // The servers are wanted early; what the store says about them counts from the first complete read.
    let early = tracker.params();
    let _health_server = start_server(runtime, early.health.as_ref(), http::health_handler(health.clone()))?;
    let end = runtime.block_on(async {
        tokio::select! {
            verdict = verdicts.wait() => Some(verdict),
            () = wait_until_ready(backend) => None,
        }
    });
    if let Some(verdict) = end {
        return Ok(verdict);
    }

    // One pass over everything gives the settings to start with; the same buffer then goes on.
    let buffer = DedupeBuffer::new();
    let syncer = {
        let _inside = runtime.enter();
        Syncer::new(backend.clone(), felix_sources(false), buffer.clone()).start()
    };
    let first = runtime.block_on(async {
        tokio::select! {
            verdict = verdicts.wait() => Err(verdict),
            batches = first_snapshot(&buffer) => Ok(batches),
        }
    });
    let first = match first {
        Ok(batches) => batches,
        Err(verdict) => return Ok(verdict),
    };
    for batch in &first {
        if let Batch::Updates(updates) = batch {
            updates.iter().for_each(|update| tracker.on_update(update));
        }
    }
    let params = Arc::new(tracker.params());
    let _late_health_server = if early.health.is_none() {
        start_server(runtime, params.health.as_ref(), http::health_handler(health.clone()))?
    } else {
        None
    };
    let registry = Registry::new();
    let metrics = CalcMetrics::new(&registry, &params.hostname)?;
    let _metrics_server =
        start_server(runtime, params.metrics.as_ref(), http::metrics_handler(registry.clone()))?;

    let mut config = CalcConfig::new(params.hostname.clone());
    config.source_spoofing = params.source_spoofing;
    config.routes = Some(params.route_source);
    config.encap.vxlan = params.vxlan_enabled;
    config.encap.programs_no_encap = params.program_routes.no_encap;
    health.register(CALC_GRAPH, true, Some(Duration::from_secs(30)), Instant::now());
    health.report(STARTUP, true, true, "", Instant::now());
    let (out, messages) = sync_channel(QUEUE);
    let calc = CalcThread {
        graph: CalcGraph::new(config),
        tracker,
        out,
        verdicts: verdicts.clone(),
        metrics,
        alive: {
            let health = health.clone();
            Box::new(move |in_sync| health.report(CALC_GRAPH, true, in_sync, "", Instant::now()))
        },
    };
    let stop = Arc::new(AtomicBool::new(false));
    let handle = runtime.handle().clone();
    let calc_buffer = buffer.clone();
    let calc_thread = spawn("calc", &verdicts, move || calc.run(first, &calc_buffer, &handle))?;
    let dataplane_thread = {
        let (params, health, stop) = (params.clone(), health.clone(), stop.clone());
        let registry = registry.clone();
        let last_word = verdicts.clone();
        spawn("dataplane", &verdicts, move || {
            if let Err(error) = dataplane::run(params, messages, &health, &registry, &stop) {
                tracing::error!(%error, "the dataplane cannot start");
                last_word.say(Verdict::Exit(1));
            }
        })?
    };

    let verdict = runtime.block_on(verdicts.wait());
    tracing::info!(?verdict, "Felix ends; what it programmed stays in force");
    stop.store(true, Ordering::Release);
    drop(syncer);
    buffer.close();
    join(calc_thread);
    join(dataplane_thread);
    Ok(verdict)
}

/// Waits until the store answers and says that it is ready.
async fn wait_until_ready(backend: &Arc<dyn Backend>) {
    let client = Client::from_backend(backend.clone());
    let mut said = String::new();
    loop {
        let why = match client.cluster_information().get("", "default").await {
            Ok(info) if info.spec.datastore_ready == Some(true) => return,
            Ok(_) => "ClusterInformation(default) says that the datastore is not ready".to_owned(),
            Err(error) => error.to_string(),
        };
        if why != said {
            tracing::warn!(reason = why, "waiting for the datastore");
            said = why;
        }
        tokio::time::sleep(READY_POLL).await;
    }
}

/// Takes batches until the syncer is in sync. They hold everything that the store held at some moment.
async fn first_snapshot(buffer: &DedupeBuffer) -> Vec<Batch> {
    let mut batches = Vec::new();
    while let Some(batch) = buffer.next().await {
        let done = batch == Batch::Status(calico_model::SyncStatus::InSync);
        batches.push(batch);
        if done {
            break;
        }
    }
    batches
}

/// Turns the first signal into a verdict.
async fn heed_signals(verdicts: Verdicts) {
    match signal::asked().await {
        Ok(signal::Asked::Stop) => verdicts.say(Verdict::Exit(0)),
        Ok(signal::Asked::Reload) => verdicts.say(Verdict::Restart),
        Err(error) => tracing::error!(%error, "signals cannot be caught; the system's defaults hold"),
    }
}

/// Stops the server when dropped.
struct Server(tokio::task::JoinHandle<()>);

impl Drop for Server {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn start_server(
    runtime: &Runtime,
    at: Option<&(String, u16)>,
    handler: http::Handler,
) -> Result<Option<Server>, FelixError> {
    let Some((host, port)) = at else { return Ok(None) };
    let started = runtime.block_on(http::serve(host, *port, handler));
    let (addr, task) = started
        .map_err(|e| FelixError::Start { what: "an HTTP server", reason: format!("{host}:{port}: {e}") })?;
    tracing::info!(%addr, "serving HTTP");
    Ok(Some(Server(task)))
}

/// Starts a thread whose panic ends the process, so that a supervisor starts it again.
fn spawn(
    name: &'static str,
    verdicts: &Verdicts,
    work: impl FnOnce() + Send + 'static,
) -> Result<std::thread::JoinHandle<()>, FelixError> {
    let verdicts = verdicts.clone();
    let guarded = move || {
        if std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).is_err() {
            tracing::error!(thread = name, "a thread broke down");
            verdicts.say(Verdict::Restart);
        }
    };
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(guarded)
        .map_err(|e| FelixError::Start { what: name, reason: e.to_string() })
}

/// Waits for a thread, but not for ever: the process ends anyway.
fn join(thread: std::thread::JoinHandle<()>) {
    let deadline = Instant::now() + GRACE;
    while !thread.is_finished() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
    if thread.is_finished() {
        // Panics were caught and reported inside.
        let _ = thread.join();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_names_a_file_or_is_refused() {
        let args = |words: &[&str]| arguments(&words.iter().map(OsString::from).collect::<Vec<_>>());
        assert_eq!(args(&[]), Ok(Some("/etc/calico/felix.cfg".into())));
        assert_eq!(args(&["--config-file", "x"]), Ok(Some("x".into())));
        assert_eq!(args(&["--config-file=x"]), Ok(Some("x".into())));
        assert_eq!(args(&["--help"]), Ok(None));
        assert_eq!(args(&["--what"]), Err("--what".into()));
        assert!(args(&["-c"]).is_err());
    }
}
