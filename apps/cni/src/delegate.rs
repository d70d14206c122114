//! Other address managers: programs in `CNI_PATH` that get the same configuration and answer with a result.

use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde::Deserialize;

use crate::error::{CniError, PluginError};
use crate::request::Request;
use crate::result::AddResult;

/// Another plugin, found.
#[derive(Debug, Clone)]
pub struct Delegate<'a> {
    name: &'a str,
    program: PathBuf,
    request: &'a Request,
}

// === impl Delegate ===

impl<'a> Delegate<'a> {
    /// Looks for the plugin `name` in the directories of `CNI_PATH`.
    pub fn find(name: &'a str, request: &'a Request) -> Result<Self, PluginError> {
        if name.is_empty() {
            return Err(PluginError::NoIpamType);
        }
        let missing = || PluginError::DelegateMissing {
            name: name.to_owned(),
            path: request.path_text.replace(':', " "),
        };
        // A name with a slash would leave the directories.
        if name.contains('/') {
            return Err(missing());
        }
        let executable = |path: &PathBuf| {
            std::fs::metadata(path).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
        };
        let program = request.path.iter().map(|dir| dir.join(name)).find(executable).ok_or_else(missing)?;
        Ok(Self { name, program, request })
    }

    /// Asks for addresses.
    pub fn add(&self, config: &str) -> Result<AddResult, PluginError> {
        let output = self.call("ADD", config)?;
        let value = serde_json::from_slice(&output)
            .map_err(|e| self.failed(format!("its result is no JSON: {e}")))?;
        AddResult::parse(&value).map_err(|reason| self.failed(format!("its result: {reason}")))
    }

    /// Gives addresses back.
    pub fn del(&self, config: &str) -> Result<(), PluginError> {
        self.call("DEL", config).map(drop)
    }

    /// Asks whether addresses are still held.
    pub fn check(&self, config: &str) -> Result<(), PluginError> {
        self.call("CHECK", config).map(drop)
    }

    fn call(&self, verb: &str, config: &str) -> Result<Vec<u8>, PluginError> {
        let request = self.request;
        let mut child = Command::new(&self.program)
            .env("CNI_COMMAND", verb)
            .env("CNI_CONTAINERID", &request.container_id)
            .env("CNI_NETNS", &request.netns)
            .env("CNI_IFNAME", &request.ifname)
            .env("CNI_PATH", &request.path_text)
            .env("CNI_ARGS", format!("IgnoreUnknown=1;{}", request.args).trim_end_matches(';'))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .map_err(|e| self.failed(format!("cannot be started: {e}")))?;
        if let Some(mut stdin) = child.stdin.take() {
            match stdin.write_all(config.as_bytes()) {
                // It may answer without reading all.
                Err(e) if e.kind() != io::ErrorKind::BrokenPipe => {
                    let _ = child.kill();
                    let _ = child.wait();
                    return Err(self.failed(format!("cannot be given its configuration: {e}")));
                }
                _ => {}
            }
        }
        let output =
            child.wait_with_output().map_err(|e| self.failed(format!("cannot be waited for: {e}")))?;
        if output.status.success() {
            return Ok(output.stdout);
        }
        Err(match serde_json::from_slice::<Failure>(&output.stdout) {
            Ok(failure) => CniError { code: failure.code, msg: failure.msg, details: failure.details }.into(),
            Err(_) => self.failed(format!("ended with {}", output.status)),
        })
    }

    fn failed(&self, reason: String) -> PluginError {
        PluginError::Delegate { name: self.name.to_owned(), reason }
    }
}

/// An error as other plugins print it.
#[derive(Deserialize)]
struct Failure {
    code: u32,
    msg: String,
    #[serde(default)]
    details: String,
}
