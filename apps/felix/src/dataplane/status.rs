//! Files that tell the CNI plugin which workload endpoints are programmed.
//!
//! One file per endpoint that is up, named by its identity. In: the endpoints that are up. Out: the folder holds
//! exactly their files; those of an earlier run that no longer hold are removed. A failure is reported and tried again.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use calico_dpmsg::{WorkloadEndpoint, WorkloadEndpointId};
use serde::Serialize;

/// Why the files could not be made right.
#[derive(Debug, thiserror::Error)]
#[error("cannot {call} endpoint status at {path}: {source}")]
pub struct StatusError {
    /// What was tried, a verb.
    pub call: &'static str,
    /// Where.
    pub path: PathBuf,
    /// Why.
    #[source]
    pub source: io::Error,
}

/// What a file says.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Content {
    iface_name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    mac: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ipv4_nets: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ipv6_nets: Vec<String>,
}

/// The files.
#[derive(Debug)]
pub(crate) struct StatusFiles {
    dir: PathBuf,
    desired: BTreeMap<String, String>,
    written: BTreeMap<String, String>,
    /// The folder was compared with what is desired.
    known: bool,
    dirty: bool,
}

// === impl StatusFiles ===

impl StatusFiles {
    /// Files under `<prefix>/endpoint-status`.
    pub(crate) fn new(prefix: &str) -> Self {
        Self {
            dir: Path::new(prefix).join("endpoint-status"),
            desired: BTreeMap::new(),
            written: BTreeMap::new(),
            known: false,
            dirty: true,
        }
    }

    /// Says whether an endpoint is up.
    pub(crate) fn set(&mut self, id: &WorkloadEndpointId, up: Option<&WorkloadEndpoint>) {
        let name = file_name(id);
        match up.and_then(|e| serde_json::to_string(&content(e)).ok()) {
            Some(text) => {
                self.dirty |= self.desired.get(&name) != Some(&text);
                self.desired.insert(name, text);
            }
            None => self.dirty |= self.desired.remove(&name).is_some(),
        }
    }

    /// Makes the folder right; returns how many files were written or removed.
    ///
    /// # Errors
    /// The first failure; the rest was tried all the same.
    pub(crate) fn apply(&mut self) -> Result<usize, StatusError> {
        if !self.dirty {
            return Ok(0);
        }
        if !self.known {
            self.read()?;
        }
        let mut moved = 0;
        let mut first = None;
        let gone: Vec<String> =
            self.written.keys().filter(|n| !self.desired.contains_key(*n)).cloned().collect();
        for name in gone {
            let path = self.dir.join(&name);
            match std::fs::remove_file(&path) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => {
                    first.get_or_insert(StatusError { call: "remove", path, source: e });
                }
                _ => {
                    moved += 1;
                    self.written.remove(&name);
                }
            }
        }
        for (name, text) in &self.desired {
            if self.written.get(name) == Some(text) {
                continue;
            }
            match self.write(name, text) {
                Ok(()) => {
                    moved += 1;
                    self.written.insert(name.clone(), text.clone());
                }
                Err(e) => {
                    first.get_or_insert(e);
                }
            }
        }
        match first {
            None => {
                self.dirty = false;
                Ok(moved)
            }
            // Maybe somebody took the folder away.
            Some(e) => {
                self.known = false;
                Err(e)
            }
        }
    }

    fn read(&mut self) -> Result<(), StatusError> {
        let failed = |call| {
            let path = self.dir.clone();
            move |source| StatusError { call, path, source }
        };
        std::fs::create_dir_all(&self.dir).map_err(failed("make the folder of"))?;
        self.written.clear();
        for entry in std::fs::read_dir(&self.dir).map_err(failed("list"))? {
            let entry = entry.map_err(failed("list"))?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            let text = std::fs::read_to_string(entry.path()).unwrap_or_default();
            self.written.insert(name, text);
        }
        self.known = true;
        Ok(())
    }

    /// Readers see the whole file or none.
    fn write(&self, name: &str, text: &str) -> Result<(), StatusError> {
        let path = self.dir.join(name);
        // Beside the folder, which its readers watch.
        let partial = self.dir.with_extension("partial");
        std::fs::write(&partial, text)
            .and_then(|()| std::fs::rename(&partial, &path))
            .map_err(|source| StatusError { call: "write", path, source })
    }
}

fn content(endpoint: &WorkloadEndpoint) -> Content {
    Content {
        iface_name: endpoint.interface_name.to_string(),
        mac: endpoint.mac.map(|m| m.to_string()).unwrap_or_default(),
        ipv4_nets: endpoint.ipv4_nets.iter().map(ToString::to_string).collect(),
        ipv6_nets: endpoint.ipv6_nets.iter().map(ToString::to_string).collect(),
    }
}

/// Orchestrator, workload and endpoint, each escaped as part of a URL's path, with blanks in between.
fn file_name(id: &WorkloadEndpointId) -> String {
    let mut out = String::new();
    for (n, part) in [&id.orchestrator, &id.workload, &id.endpoint].into_iter().enumerate() {
        if n > 0 {
            out.push(' ');
        }
        for byte in part.bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => out.push(byte.into()),
                b'-' | b'_' | b'.' | b'~' | b'$' | b'&' | b'+' | b'=' | b':' | b'@' => out.push(byte.into()),
                other => out.push_str(&format!("%{other:02X}")),
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(workload: &str) -> WorkloadEndpointId {
        WorkloadEndpointId { orchestrator: "k8s".into(), workload: workload.into(), endpoint: "eth0".into() }
    }

    fn endpoint() -> WorkloadEndpoint {
        WorkloadEndpoint {
            active: true,
            interface_name: "cali1".into(),
            mac: Some("ee:ee:ee:ee:ee:ee".parse().expect("mac")),
            ipv4_nets: vec!["10.0.0.1/32".parse().expect("cidr")],
            ..Default::default()
        }
    }

    #[test]
    fn names_are_escaped() {
        assert_eq!(file_name(&id("default/my pod")), "k8s default%2Fmy%20pod eth0");
    }

    #[test]
    fn the_folder_holds_what_is_up_and_nothing_else() {
        let dir = tempfile::tempdir().expect("directory");
        let prefix = dir.path().to_str().expect("path");
        let names = || {
            let list = std::fs::read_dir(dir.path().join("endpoint-status")).expect("folder");
            let mut names: Vec<_> =
                list.map(|e| e.expect("entry").file_name().into_string().expect("name")).collect();
            names.sort();
            names
        };
        std::fs::create_dir_all(dir.path().join("endpoint-status")).expect("folder");
        std::fs::write(dir.path().join("endpoint-status/k8s old eth0"), "{}").expect("file");
        let mut files = StatusFiles::new(prefix);
        files.set(&id("default/a"), Some(&endpoint()));
        assert_eq!(files.apply().expect("apply"), 2);
        assert_eq!(names(), ["k8s default%2Fa eth0"]);
        let text =
            std::fs::read_to_string(dir.path().join("endpoint-status/k8s default%2Fa eth0")).expect("file");
        assert_eq!(text, r#"{"ifaceName":"cali1","mac":"ee:ee:ee:ee:ee:ee","ipv4Nets":["10.0.0.1/32"]}"#);
        // Again, as after a restart: nothing moves.
        let mut files = StatusFiles::new(prefix);
        files.set(&id("default/a"), Some(&endpoint()));
        assert_eq!(files.apply().expect("apply"), 0);
        files.set(&id("default/a"), None);
        assert_eq!(files.apply().expect("apply"), 1);
        assert_eq!(names(), [""; 0]);
    }

    #[test]
    fn a_failure_is_tried_again() {
        let dir = tempfile::tempdir().expect("directory");
        let prefix = dir.path().join("blocked");
        std::fs::write(&prefix, "").expect("file");
        let mut files = StatusFiles::new(prefix.to_str().expect("path"));
        files.set(&id("default/a"), Some(&endpoint()));
        assert_eq!(files.apply().expect_err("refused").call, "make the folder of");
        std::fs::remove_file(&prefix).expect("file");
        assert_eq!(files.apply().expect("apply"), 1);
        // The folder is taken away behind our back.
        std::fs::remove_dir_all(&prefix).expect("folder");
        files.set(&id("default/b"), Some(&endpoint()));
        files.apply().expect_err("no folder");
        assert_eq!(files.apply().expect("apply"), 2);
    }
}
