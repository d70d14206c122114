//! The cluster's datastore: one SQLite file, or an etcd server in the router's namespace.

use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use calico_datastore::Backend;
use calico_datastore::config::{CalicoApiConfig, Fallback, Surroundings};

use crate::LabError;
use crate::fabric::ROUTER;
use crate::state::{Recorded, State};
use crate::wait::Patience;

const PORT: u16 = 2379;

/// Which store a cluster uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    /// One file that all nodes share.
    Sqlite,
    /// An etcd server.
    Etcd,
}

// === impl Kind ===

impl Kind {
    /// `sqlite` or `etcd`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Etcd => "etcd",
        }
    }
}

/// The kind that a running cluster uses.
pub fn kind_of(state: &State) -> Kind {
    if state.store == Kind::Etcd.name() { Kind::Etcd } else { Kind::Sqlite }
}

/// The SQLite file of a cluster.
pub fn sqlite_path(state: &State) -> PathBuf {
    State::folder(&state.cluster).join("store").join("datastore.db")
}

/// Opens the store from inside the router's namespace.
pub fn open(state: &State) -> Result<Arc<dyn Backend>, LabError> {
    let mut config = CalicoApiConfig::default();
    match kind_of(state) {
        Kind::Sqlite => {
            config.datastore_type = "sqlite".into();
            config.sqlite_path = sqlite_path(state).display().to_string();
        }
        Kind::Etcd => {
            config.datastore_type = "etcdv3".into();
            config.etcd_endpoints = endpoint(None);
        }
    }
    let choice = config.choose(Fallback::Never, &Surroundings::of_process())?;
    Ok(calico_datastore::connect(&config, &choice)?)
}

/// Environment variables by which a component finds the store from where `machine` is.
pub fn environment(state: &State, gateway: Option<IpAddr>) -> Vec<(&'static str, String)> {
    match kind_of(state) {
        Kind::Sqlite => vec![
            ("CALICO_DATASTORE_TYPE", "sqlite".into()),
            ("CALICO_SQLITE_PATH", sqlite_path(state).display().to_string()),
        ],
        Kind::Etcd => {
            vec![("CALICO_DATASTORE_TYPE", "etcdv3".into()), ("CALICO_ETCD_ENDPOINTS", endpoint(gateway))]
        }
    }
}

/// URL of the etcd server: by the router's address on a segment, or from inside the router.
pub fn endpoint(gateway: Option<IpAddr>) -> String {
    let ip = gateway.unwrap_or(IpAddr::from([127, 0, 0, 1]));
    format!("http://{}", SocketAddr::new(ip, PORT))
}

/// Starts the store's server, if it has one, and waits until it answers.
pub fn start(state: &mut State, patience: &Patience) -> Result<(), LabError> {
    let folder = State::folder(&state.cluster).join("store");
    std::fs::create_dir_all(&folder).map_err(|e| LabError::io("make", &folder, &e))?;
    if kind_of(state) == Kind::Sqlite {
        return Ok(());
    }
    let log_path = folder.join("etcd.log");
    let log = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(&log_path)
        .map_err(|e| LabError::io("open", &log_path, &e))?;
    let err = log.try_clone().map_err(|e| LabError::io("open", &log_path, &e))?;
    let mut command = Command::new("etcd");
    command
        .arg("--name=lab")
        .arg(format!("--data-dir={}", folder.join("data").display()))
        .arg(format!("--listen-client-urls=http://[::]:{PORT}"))
        .arg(format!("--advertise-client-urls=http://127.0.0.1:{PORT}"))
        .arg("--listen-peer-urls=http://127.0.0.1:2380")
        .arg("--initial-advertise-peer-urls=http://127.0.0.1:2380")
        .arg("--initial-cluster=lab=http://127.0.0.1:2380")
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(err);
    let router = state.netns(ROUTER)?;
    let child = router
        .run(|| command.spawn())?
        .map_err(|e| LabError::Start { what: "etcd".into(), reason: e.to_string() })?;
    state.processes.insert("etcd".into(), Recorded::of(child));
    state.save()?;
    let at = SocketAddr::from(([127, 0, 0, 1], PORT));
    patience.until("etcd answers", || {
        let answers = router.run(|| TcpStream::connect_timeout(&at, Duration::from_millis(200)).is_ok())?;
        let alive = state.processes.get_mut("etcd").is_some_and(Recorded::is_running);
        if !alive {
            let reason = format!("it ended at once, see {}", log_path.display());
            return Err(LabError::Start { what: "etcd".into(), reason });
        }
        Ok(answers)
    })
}

/// Stops the store's server and starts it again on its data. Nothing happens where there is no server.
pub fn restart(state: &mut State, patience: &Patience) -> Result<(), LabError> {
    if let Some(etcd) = state.processes.remove("etcd") {
        etcd.end(Duration::ZERO);
        start(state, patience)?;
    }
    Ok(())
}
