//! The tool: finding or building it, and running it in a folder of its own.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::SystemTime;

use anyhow::{Context as _, bail};

use super::super::Context;
use super::normal::Ours;
use super::store::{Server, State, Store};

/// The tool with what it reports about itself.
pub(super) struct Tool {
    binary: PathBuf,
    version: String,
    commit: String,
}

/// What a call gave.
pub(super) struct Output {
    /// Exit code; `None` if a signal ended it.
    pub(super) exit: Option<i32>,
    /// Standard output.
    pub(super) stdout: String,
    /// Standard error.
    pub(super) stderr: String,
}

/// A folder with input files, a home, and a store.
pub(super) struct Bench<'t> {
    tool: &'t Tool,
    folder: tempfile::TempDir,
    store: Store,
    start: State,
    /// Texts that were there before: their UIDs are not made by the run.
    known: String,
    begun: SystemTime,
}

// === impl Tool ===

impl Tool {
    /// The binary that was named, or the one built from this tree.
    pub(super) fn find(context: &Context) -> anyhow::Result<Self> {
        let binary = binary(context)?;
        let mut tool = Self { binary, version: String::new(), commit: String::new() };
        let out = tool.command(Path::new("/")).args(["version", "--client"]).output()?;
        for line in String::from_utf8_lossy(&out.stdout).lines() {
            let value = line.split_once(':').map(|(_, value)| value.trim().to_owned());
            match (line.split(':').next(), value) {
                (Some("Client Version"), Some(value)) => tool.version = value,
                (Some("Git commit"), Some(value)) => tool.commit = value,
                _ => {}
            }
        }
        Ok(tool)
    }

    fn command(&self, folder: &Path) -> Command {
        let mut command = Command::new(&self.binary);
        command.arg0("calicoctl").current_dir(folder).env_clear().stdin(Stdio::null());
        command
    }
}

/// The binary that was named, or the one built from this tree.
pub(crate) fn binary(context: &Context) -> anyhow::Result<PathBuf> {
    match &context.binary {
        Some(binary) => std::fs::canonicalize(binary).with_context(|| binary.display().to_string()),
        None => build(),
    }
}

/// Builds the binary; the path of it.
fn build() -> anyhow::Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(&cargo).args(["build", "--quiet", "--package", "calico"]).status()?;
    if !status.success() {
        bail!("cargo build --package calico failed");
    }
    let out = Command::new(&cargo).args(["metadata", "--format-version", "1", "--no-deps"]).output()?;
    let metadata: serde_json::Value = serde_json::from_slice(&out.stdout).context("cargo metadata")?;
    let folder = metadata["target_directory"].as_str().context("no target directory")?;
    Ok(Path::new(folder).join("debug/calico"))
}

// === impl Bench ===

impl<'t> Bench<'t> {
    /// A bench whose store holds `start`: etcd if `etcd` is set, else SQLite.
    pub(super) fn new(
        tool: &'t Tool,
        server: &mut Server,
        start: &State,
        etcd: bool,
    ) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        for name in ["home", "work", "store"] {
            std::fs::create_dir(folder.path().join(name))?;
        }
        let store =
            if etcd { server.etcd(start)? } else { server.sqlite(&folder.path().join("store"), start)? };
        let known = start.values().cloned().collect::<Vec<_>>().join("\n");
        Ok(Self { tool, folder, store, start: start.clone(), known, begun: SystemTime::now() })
    }

    /// The folder in which the tool runs.
    pub(super) fn work(&self) -> PathBuf {
        self.folder.path().join("work")
    }

    /// Writes an input file; marks of machine values become ours.
    pub(super) fn file(&mut self, name: &str, text: &str) -> anyhow::Result<()> {
        let path = self.work().join(name);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        let text = self.real(text);
        self.known.push_str(&text);
        std::fs::write(&path, text).with_context(|| path.display().to_string())
    }

    /// Runs the tool. `only` replaces the variables that lead to the store, `more` is added.
    pub(super) fn run(
        &mut self,
        args: &[String],
        stdin: Option<&str>,
        only: Option<&BTreeMap<String, String>>,
        more: &BTreeMap<String, String>,
    ) -> anyhow::Result<Output> {
        let home = self.folder.path().join("home");
        let mut command = self.tool.command(&self.work());
        command.env("HOME", &home).env("PATH", std::env::var_os("PATH").unwrap_or_default());
        match only {
            Some(only) => command.envs(only.iter().map(|(name, value)| (name, self.real(value)))),
            None => command.envs(self.store.variables()),
        };
        command.envs(more.iter().map(|(name, value)| (name, self.real(value))));
        command.args(args.iter().map(|arg| self.real(arg)));
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        if stdin.is_some() {
            command.stdin(Stdio::piped());
        }
        let mut child = command.spawn().with_context(|| self.tool.binary.display().to_string())?;
        if let (Some(text), Some(mut pipe)) = (stdin, child.stdin.take()) {
            self.known.push_str(text);
            // A tool that does not read its input closes the pipe.
            let _ = pipe.write_all(text.as_bytes());
        }
        let out = child.wait_with_output()?;
        let text = |bytes: Vec<u8>| self.marks().output(&String::from_utf8_lossy(&bytes));
        Ok(Output { exit: out.status.code(), stdout: text(out.stdout), stderr: text(out.stderr) })
    }

    /// Entries that are new or changed since the start, and paths that are gone.
    pub(super) fn changes(&self, server: &Server) -> anyhow::Result<(State, Vec<String>)> {
        let now = server.dump(&self.store)?;
        let marks = self.marks();
        let changed = now
            .iter()
            .filter(|(path, value)| self.start.get(*path) != Some(*value))
            .map(|(path, value)| (path.clone(), marks.stored(value)))
            .collect();
        let removed = self.start.keys().filter(|path| !now.contains_key(*path)).cloned().collect();
        Ok((changed, removed))
    }

    /// The whole store, with what the run made replaced by marks.
    pub(super) fn everything(&self, server: &Server) -> anyhow::Result<State> {
        let marks = self.marks();
        let now = server.dump(&self.store)?;
        Ok(now.into_iter().map(|(path, value)| (path, marks.stored(&value))).collect())
    }

    /// Ends the store.
    pub(super) fn close(self, server: &Server) {
        server.close(&self.store);
    }

    fn marks(&self) -> Ours<'_> {
        Ours {
            known: &self.known,
            begun: self.begun,
            version: &self.tool.version,
            commit: &self.tool.commit,
            places: vec![
                (self.work().to_string_lossy().into_owned(), "<CWD>"),
                (self.folder.path().join("home").to_string_lossy().into_owned(), "<HOME>"),
                (self.store.endpoint().to_owned(), "<ETCD>"),
            ],
        }
    }

    fn real(&self, text: &str) -> String {
        text.replace("<ETCD>", self.store.endpoint())
            .replace("<CWD>", &self.work().to_string_lossy())
            .replace("<HOME>", &self.folder.path().join("home").to_string_lossy())
    }
}
