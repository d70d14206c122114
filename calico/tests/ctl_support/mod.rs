//! A place of its own for calicoctl: a directory with an embedded datastore.

#![allow(dead_code, reason = "each test binary uses its part")]

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use rusqlite::Connection;
use tempfile::TempDir;

pub const SET: &str = "apiVersion: projectcalico.org/v3\nkind: GlobalNetworkSet\nmetadata: {name: nets}\nspec: {nets: [10.31.0.0/16]}\n";
pub const TIER: &str =
    "apiVersion: projectcalico.org/v3\nkind: Tier\nmetadata: {name: t}\nspec: {order: 5}\n";
pub const NETWORK_POLICY: &str = "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata:\n  name: web\n  \
    namespace: shop\nspec:\n  podSelector:\n    matchLabels:\n      app: web\n  policyTypes:\n  - Ingress\n  ingress:\n  \
    - from:\n    - podSelector:\n        matchLabels:\n          app: front\n    ports:\n    - port: 80\n";

/// What a call said.
#[derive(Debug)]
pub struct Said {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

pub struct Ctl {
    directory: TempDir,
}

impl Ctl {
    /// With an initialised datastore.
    pub fn new() -> Self {
        let ctl = Self::bare();
        let said = ctl.run(&["datastore", "init"], "");
        assert_eq!((said.code, said.stderr.as_str()), (0, ""), "{}", said.stdout);
        ctl
    }

    /// Without a datastore.
    pub fn bare() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    pub fn database(&self) -> PathBuf {
        self.directory.path().join("calico.db")
    }

    /// A call of the tool with this place as its surroundings.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_calico"));
        command
            .arg("ctl")
            .args(args)
            .current_dir(self.directory.path())
            .env_clear()
            .env("HOME", self.directory.path())
            .env("DATASTORE_TYPE", "sqlite")
            .env("CALICO_SQLITE_PATH", self.database());
        command
    }

    pub fn run(&self, args: &[&str], stdin: &str) -> Said {
        talk(self.command(args), stdin)
    }

    /// Expects success and these words; with no words expected the caller looks itself.
    pub fn ok(&self, args: &[&str], stdin: &str, stdout: &str) {
        let said = self.run(args, stdin);
        assert_eq!((said.code, said.stdout.as_str(), said.stderr.as_str()), (0, stdout, ""), "{args:?}");
    }

    /// Expects failure and these words.
    pub fn fails(&self, args: &[&str], stdin: &str, stderr: &str) {
        let said = self.run(args, stdin);
        assert_eq!((said.code, said.stdout.as_str(), said.stderr.as_str()), (1, "", stderr), "{args:?}");
    }

    pub fn write(&self, name: &str, text: &str) {
        let path = self.directory.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// Puts something into the datastore that no client would write.
    pub fn corrupt(&self, key: &str, value: &str) {
        let database = Connection::open(self.database()).unwrap();
        let changed = database
            .execute("UPDATE entries SET value = CAST(?2 AS BLOB) WHERE path = ?1", (key, value))
            .unwrap();
        assert_eq!(changed, 1, "{key}");
    }

    /// Changes a stored value behind the tool's back.
    pub fn edit(&self, key: &str, change: impl Fn(&str) -> String) {
        let database = Connection::open(self.database()).unwrap();
        let old: Vec<u8> =
            database.query_row("SELECT value FROM entries WHERE path = ?1", [key], |row| row.get(0)).unwrap();
        drop(database);
        self.corrupt(key, &change(&String::from_utf8(old).unwrap()));
    }
}

/// Runs a command with this input.
pub fn talk(mut command: Command, stdin: &str) -> Said {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // A command that does not read its input closes the pipe.
    let _ = child.stdin.take().unwrap().write_all(stdin.as_bytes());
    let out = child.wait_with_output().unwrap();
    Said {
        code: out.status.code().unwrap_or(-1),
        stdout: String::from_utf8(out.stdout).unwrap(),
        stderr: String::from_utf8(out.stderr).unwrap(),
    }
}
