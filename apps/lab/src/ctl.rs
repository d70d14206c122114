//! The real calicoctl, run against a cluster's store.

use std::io::Write as _;
use std::process::{Command, Stdio};

use crate::LabError;
use crate::pods::own_binary;
use crate::state::State;
use crate::store;

/// What calicoctl said.
#[derive(Debug, Clone)]
pub struct Answer {
    /// Exit code.
    pub code: i32,
    /// Standard output and standard error, one after the other.
    pub text: String,
}

/// A calicoctl command for the cluster, to be run in the router's namespace (where the caller is).
pub fn command(state: &State, args: &[String]) -> Result<Command, LabError> {
    let mut command = Command::new(own_binary()?);
    command.arg("ctl").args(args).envs(store::environment(state, None));
    Ok(command)
}

/// Runs calicoctl with `stdin` and collects what it says.
pub fn run(state: &State, args: &[String], stdin: &str) -> Result<Answer, LabError> {
    let fail = |reason: String| LabError::Start { what: "calicoctl".into(), reason };
    let mut command = command(state, args)?;
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|e| fail(e.to_string()))?;
    if let Some(mut pipe) = child.stdin.take() {
        // A command that does not read its input is no failure of ours.
        let _ = pipe.write_all(stdin.as_bytes());
    }
    let out = child.wait_with_output().map_err(|e| fail(e.to_string()))?;
    let mut text = String::from_utf8_lossy(&out.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&out.stderr));
    Ok(Answer { code: out.status.code().unwrap_or(-1), text })
}

/// Runs calicoctl and expects success; its words.
pub fn must(state: &State, args: &[&str], stdin: &str) -> Result<String, LabError> {
    let args: Vec<String> = args.iter().map(|&a| a.to_owned()).collect();
    let answer = run(state, &args, stdin)?;
    if answer.code == 0 {
        return Ok(answer.text.trim().to_owned());
    }
    Err(LabError::Ctl { args: args.join(" "), code: answer.code, text: answer.text.trim().to_owned() })
}
