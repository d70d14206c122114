//! What is known of a running cluster on disk, so that a later command can use it or take it down.
//!
//! One folder per cluster holds everything: this state, the store's files, logs. Processes are remembered with the
//! time of their start, so that a number that the system gave to another process meanwhile is left alone.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use calico_host::{NETNS_DIR, NetNs};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use crate::LabError;

/// Where clusters are kept.
pub const BASE: &str = "/run/calico-lab";

/// A running cluster.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct State {
    /// Name of the cluster.
    pub cluster: String,
    /// The scenario's file.
    pub scenario_path: PathBuf,
    /// `sqlite` or `etcd`.
    pub store: String,
    /// Named network namespaces, by machine or pod.
    pub netns: BTreeMap<String, String>,
    /// Processes by role: `etcd`, `felix node-1`, `server default/web`.
    pub processes: BTreeMap<String, Recorded>,
    /// Running pods by `namespace/name`.
    pub pods: BTreeMap<String, RunningPod>,
    /// Addresses of machines.
    pub addresses: BTreeMap<String, Vec<IpAddr>>,
}

/// A pod that runs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RunningPod {
    /// Node.
    pub node: String,
    /// Container id that its CNI calls use.
    pub container: String,
    /// Addresses.
    pub addresses: Vec<IpAddr>,
    /// The network configuration of its ADD; DEL needs the same.
    pub config: String,
}

/// A process, by number and time of start.
#[derive(Debug, Serialize, Deserialize)]
pub struct Recorded {
    /// Number.
    pub pid: u32,
    /// Start in clock ticks since boot, from `/proc/<pid>/stat`.
    pub start: u64,
    /// The handle, where this process started it.
    #[serde(skip)]
    pub child: Option<Child>,
}

// === impl Recorded ===

impl Recorded {
    /// Takes note of a child.
    pub fn of(child: Child) -> Self {
        let pid = child.id();
        Self { pid, start: start_time(pid).unwrap_or_default(), child: Some(child) }
    }

    /// True while it runs.
    pub fn is_running(&mut self) -> bool {
        if let Some(child) = &mut self.child {
            return matches!(child.try_wait(), Ok(None));
        }
        start_time(self.pid) == Some(self.start)
    }

    /// Ends it: asks, and kills after `grace`; a `grace` of zero kills at once.
    pub fn end(mut self, grace: Duration) {
        let pid = Pid::from_raw(self.pid.cast_signed());
        if grace.is_zero() || !self.is_running() {
            self.kill();
            return;
        }
        // A process that ended in between is what we want.
        let _ = kill(pid, Signal::SIGTERM);
        let deadline = Instant::now() + grace;
        while self.is_running() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        self.kill();
    }

    fn kill(&mut self) {
        if self.is_running() {
            let _ = kill(Pid::from_raw(self.pid.cast_signed()), Signal::SIGKILL);
        }
        if let Some(child) = &mut self.child {
            let _ = child.wait();
        } else {
            let deadline = Instant::now() + Duration::from_secs(2);
            while self.is_running() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(2));
            }
        }
    }
}

/// Start time of a process in clock ticks since boot; `None` if it is not there or only waits to be collected.
fn start_time(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything; fields are counted after it (proc(5): state is field 3).
    let rest = stat.rsplit_once(')')?.1;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    if fields.first() == Some(&"Z") {
        return None;
    }
    fields.get(19)?.parse().ok()
}

// === impl State ===

impl State {
    /// The folder of a cluster.
    pub fn folder(cluster: &str) -> PathBuf {
        Path::new(BASE).join(cluster)
    }

    /// Names of all clusters.
    pub fn clusters() -> Vec<String> {
        let entries = fs::read_dir(BASE).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries.filter_map(|e| e.file_name().into_string().ok()).collect();
        names.sort();
        names
    }

    /// Reads the state of a cluster.
    pub fn load(cluster: &str) -> Result<Self, LabError> {
        let path = Self::folder(cluster).join("state.json");
        let text = fs::read_to_string(&path).map_err(|_| LabError::NoCluster(cluster.to_owned()))?;
        serde_json::from_str(&text).map_err(|e| LabError::State { path, reason: e.to_string() })
    }

    /// Writes the state, whole or not at all.
    pub fn save(&self) -> Result<(), LabError> {
        let folder = Self::folder(&self.cluster);
        let path = folder.join("state.json");
        let fail = |e: io::Error| LabError::State { path: path.clone(), reason: e.to_string() };
        let text = serde_json::to_string_pretty(self)
            .map_err(|e| LabError::State { path: path.clone(), reason: e.to_string() })?;
        fs::create_dir_all(&folder).map_err(fail)?;
        let temporary = folder.join("state.json.new");
        fs::write(&temporary, text).map_err(fail)?;
        fs::rename(&temporary, &path).map_err(fail)
    }

    /// Makes a namespace for a machine or pod.
    pub fn add_netns(&mut self, owner: &str) -> Result<NetNs, LabError> {
        let name = format!("lab-{}-{}", self.cluster, owner.replace('/', "-"));
        self.netns.insert(owner.to_owned(), name.clone());
        self.save()?;
        Ok(NetNs::create_named(NETNS_DIR, &name)?)
    }

    /// Opens the namespace of a machine or pod.
    pub fn netns(&self, owner: &str) -> Result<NetNs, LabError> {
        let name = self.netns.get(owner).ok_or_else(|| LabError::NoSuch(owner.to_owned()))?;
        Ok(NetNs::open(Path::new(NETNS_DIR).join(name))?)
    }

    /// Path of a namespace, for the CNI plugin.
    pub fn netns_path(&self, owner: &str) -> Result<PathBuf, LabError> {
        let name = self.netns.get(owner).ok_or_else(|| LabError::NoSuch(owner.to_owned()))?;
        Ok(Path::new(NETNS_DIR).join(name))
    }

    /// Removes the namespace of a machine or pod.
    pub fn remove_netns(&mut self, owner: &str) -> Result<(), LabError> {
        if let Some(name) = self.netns.remove(owner) {
            NetNs::delete_named(NETNS_DIR, &name)?;
        }
        self.save()
    }

    /// Ends every process, removes every namespace and the folder. Goes on past failures and returns the first.
    pub fn tear_down(mut self) -> Result<(), LabError> {
        let mut first: Option<LabError> = None;
        // Agents first and the store last, so that nobody complains about a store that is gone.
        let processes = std::mem::take(&mut self.processes);
        let (last, others): (Vec<_>, Vec<_>) = processes.into_iter().partition(|(role, _)| role == "etcd");
        std::thread::scope(|scope| {
            for (role, process) in others {
                let grace = if role.starts_with("felix") { Duration::from_secs(3) } else { Duration::ZERO };
                scope.spawn(move || process.end(grace));
            }
        });
        for (_, process) in last {
            process.end(Duration::from_secs(3));
        }
        for name in self.netns.values() {
            if let Err(e) = NetNs::delete_named(NETNS_DIR, name) {
                first.get_or_insert(e.into());
            }
        }
        let folder = Self::folder(&self.cluster);
        if let Err(e) = fs::remove_dir_all(&folder)
            && e.kind() != io::ErrorKind::NotFound
        {
            first.get_or_insert(LabError::State { path: folder, reason: e.to_string() });
        }
        first.map_or(Ok(()), Err)
    }
}
