//! The release binary: size, start, memory at start.
//!
//! `cargo bench -p calico-bench --bench binary` (with `CALICO_BINARY`). The start is the smallest of many runs, since
//! anything else measures the machine's other work; the count of instructions (by valgrind's callgrind, where it is
//! installed) does not depend on that at all. Two limits are gates: the process fails if the binary is 30 MB or
//! larger, or if `calicoctl version --client` never takes less than 10 ms.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

use calico_bench::measure::{Samples, accounted, accounted_for, binary, complaint, instructions};
use calico_bench::table::{faster, head, row};

/// Largest size in bytes, exclusive.
const SIZE_LIMIT: u64 = 30_000_000;
/// Longest start of `calicoctl version --client` in milliseconds, exclusive.
const START_LIMIT: f64 = 10.0;
const RUNS: usize = 200;

/// Name to call the binary by, arguments, upstream's start in ms, upstream's memory at start in MiB.
const CALLS: [(&str, &[&str], f64, f64); 4] = [
    ("calicoctl", &["version", "--client"], 34.0, 42.0),
    ("calico", &["version"], 74.0, 77.0),
    ("calico", &["-v"], 30.0, 41.0),
    ("calico", &["component", "felix", "--help"], 45.0, 57.0),
];

fn main() -> anyhow::Result<()> {
    if accounted_for()? {
        return Ok(());
    }
    let binary = binary()?;
    let directory = tempfile::tempdir()?;
    for (name, ..) in CALLS {
        if !directory.path().join(name).exists() {
            symlink(&binary, directory.path().join(name))?;
        }
    }
    head("binary");
    let size = std::fs::metadata(&binary)?.len();
    let megabytes = |bytes: f64| bytes / 1e6;
    row(
        "size of everything in one file",
        &format!("{:.1} MB", megabytes(size as f64)),
        "upstream's combined binary 126 MB",
        &faster(megabytes(size as f64), 126.0),
    );
    let mut client_start = f64::NAN;
    for (name, args, upstream_start, upstream_memory) in CALLS {
        let program = directory.path().join(name);
        let what = format!("{name} {}", args.join(" "));
        let mut starts = Samples::default();
        for _ in 0..RUNS {
            let status = starts.time(|| quiet(&program, args).status())?;
            anyhow::ensure!(status.success(), "{what}: {status}");
        }
        if args.contains(&"--client") {
            client_start = starts.min();
        }
        let count = match instructions(&program, args)? {
            Some(count) => format!(", {:.2} M instructions", count as f64 / 1e6),
            None => String::new(),
        };
        row(
            &format!("{what}: start"),
            &format!("min {:.2} p50 {:.2} ms{count}", starts.min(), starts.p50()),
            &format!("upstream {upstream_start} ms"),
            &faster(starts.min(), upstream_start),
        );
        let usage = accounted(&quiet(&program, args), "")?;
        row(
            &format!("{what}: peak memory"),
            &format!("{:.1} MiB", usage.peak_rss),
            &format!("upstream {upstream_memory} MiB"),
            &faster(usage.peak_rss, upstream_memory),
        );
    }
    let out = Command::new(&binary).arg("version").output()?;
    anyhow::ensure!(out.status.success(), "{}", complaint(&out));
    anyhow::ensure!(size < SIZE_LIMIT, "the binary has {size} bytes; the limit is {SIZE_LIMIT}");
    anyhow::ensure!(
        client_start < START_LIMIT,
        "calicoctl version --client takes {client_start:.2} ms at least; the limit is {START_LIMIT} ms"
    );
    Ok(())
}

fn quiet(program: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}
