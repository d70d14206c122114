//! Times of repeated work, and what a process used.

use std::ffi::{OsStr, OsString};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use nix::sys::resource::{UsageWho, getrusage};

use crate::table::slashed;

/// First argument of a bench that is to run and account for one program; see [`accounted`].
const ACCOUNT: &str = "account-for-child";

/// Measured values; of times in milliseconds.
#[derive(Debug, Clone, Default)]
pub struct Samples(Vec<f64>);

impl Samples {
    /// Adds a time.
    pub fn add(&mut self, time: Duration) {
        self.0.push(time.as_secs_f64() * 1e3);
    }

    /// Adds a value.
    pub fn add_value(&mut self, value: f64) {
        self.0.push(value);
    }

    /// Adds what `work` takes.
    pub fn time<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let out = work();
        self.add(start.elapsed());
        out
    }

    /// The value below which a share of the values lies; not a number if there are none.
    pub fn at(&self, share: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let rank = (share * sorted.len().saturating_sub(1) as f64).round() as usize;
        sorted.get(rank).copied().unwrap_or(f64::NAN)
    }

    /// The middle value.
    pub fn p50(&self) -> f64 {
        self.at(0.5)
    }

    /// The value that one in twenty exceeds.
    pub fn p95(&self) -> f64 {
        self.at(0.95)
    }

    /// The smallest value.
    pub fn min(&self) -> f64 {
        self.at(0.0)
    }

    /// Smallest, middle and largest value.
    pub fn range(&self, digits: usize) -> String {
        slashed([self.min(), self.p50(), self.at(1.0)], digits)
    }
}

/// What a program used.
#[derive(Debug, Clone, Copy)]
pub struct Usage {
    /// Most resident memory, MiB.
    pub peak_rss: f64,
    /// CPU time in user and system mode, milliseconds.
    pub cpu: f64,
}

/// Every bench's `main` calls this first: true if the process only had to account for another program, and did.
///
/// # Errors
/// If the program cannot be run.
pub fn accounted_for() -> anyhow::Result<bool> {
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    let [mode, file, program, rest @ ..] = args.as_slice() else { return Ok(false) };
    if mode != ACCOUNT {
        return Ok(false);
    }
    let status = Command::new(program).args(rest).status()?;
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let time = |t: nix::sys::time::TimeVal| t.tv_sec() as f64 * 1e3 + t.tv_usec() as f64 / 1e3;
    let cpu = time(usage.user_time()) + time(usage.system_time());
    std::fs::write(file, format!("{} {cpu}", usage.max_rss()))?;
    if !status.success() {
        bail!("{} ended with {status}", program.display());
    }
    Ok(true)
}

/// Runs a program by way of a small process, so that its own use is known.
///
/// # Errors
/// If it cannot be run or fails.
pub fn accounted(command: &Command, input: &str) -> anyhow::Result<Usage> {
    let file = tempfile::NamedTempFile::new()?;
    let mut outer = Command::new(std::env::current_exe()?);
    outer.arg(ACCOUNT).arg(file.path()).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => outer.env(name, value),
            None => outer.env_remove(name),
        };
    }
    let out = feed(&mut outer, input)?;
    if !out.status.success() {
        bail!("{}", complaint(&out));
    }
    let text = std::fs::read_to_string(file.path())?;
    let (rss, cpu) = text.split_once(' ').context("the account")?;
    Ok(Usage { peak_rss: rss.parse::<f64>()? / 1024.0, cpu: cpu.parse()? })
}

/// Instructions that a program executes in user mode, by valgrind; none where valgrind is not installed.
///
/// # Errors
/// If valgrind fails.
pub fn instructions(program: &Path, args: &[&str]) -> anyhow::Result<Option<u64>> {
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]).arg(program).args(args);
    let out = match command.stdin(Stdio::null()).output() {
        Ok(out) => out,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e.into()),
    };
    let text = String::from_utf8_lossy(&out.stderr);
    let count = text.lines().find_map(|l| l.split_once("Collected : ")?.1.trim().parse().ok());
    Ok(Some(count.with_context(|| complaint(&out))?))
}

/// Runs a command with text on standard input to its end.
///
/// # Errors
/// If it cannot be run.
pub fn feed(command: &mut Command, input: &str) -> anyhow::Result<Output> {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("running {}", command.get_program().display()))?;
    if let Some(mut stdin) = child.stdin.take() {
        // Whoever does not read it all ends early, and says so in its status.
        let _ = stdin.write_all(input.as_bytes());
    }
    Ok(child.wait_with_output()?)
}

/// What a program said about its failure.
pub fn complaint(out: &Output) -> String {
    let text = |b: &[u8]| String::from_utf8_lossy(b).trim().to_owned();
    format!("{}: {} {}", out.status, text(&out.stdout), text(&out.stderr))
}

/// A process of the product's agent kind as `/proc` shows it: memory now and at most in MiB, CPU in milliseconds.
///
/// # Errors
/// If there is no such process.
pub fn process(pid: u32) -> anyhow::Result<(f64, f64, f64)> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let field = |name: &str| -> anyhow::Result<f64> {
        let line = status.lines().find_map(|l| l.strip_prefix(name)).context("memory of a process")?;
        Ok(line.split_whitespace().next().context("memory of a process")?.parse::<f64>()? / 1024.0)
    };
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let rest = stat.rsplit_once(')').context("CPU of a process")?.1;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    // User and system time are the 14th and 15th field of the line, in ticks of 10 ms.
    let ticks = |n: usize| -> anyhow::Result<f64> { Ok(fields.get(n).context("CPU of a process")?.parse()?) };
    Ok((field("VmRSS:")?, field("VmHWM:")?, (ticks(11)? + ticks(12)?) * 10.0))
}

/// The `calico` binary to measure: `CALICO_BINARY`, which `bench/run` sets.
///
/// # Errors
/// If it is not set or there is no such file.
pub fn binary() -> anyhow::Result<PathBuf> {
    let path = std::env::var_os("CALICO_BINARY")
        .map(PathBuf::from)
        .context("CALICO_BINARY names no binary (bench/run builds one and sets it)")?;
    path.canonicalize().with_context(|| format!("the binary {}", path.display()))
}

/// Arguments that are no options, which cargo adds.
pub fn arguments() -> Vec<String> {
    std::env::args_os()
        .skip(1)
        .filter_map(|a: OsString| a.to_str().map(str::to_owned))
        .filter(|a| !OsStr::new(a).to_string_lossy().starts_with("--"))
        .collect()
}
