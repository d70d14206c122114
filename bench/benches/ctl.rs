//! calicoctl as a process, on SQLite and on etcd.
//!
//! `cargo bench -p calico-bench --bench ctl` (with `CALICO_BINARY`); `-- STORE` on one store. Both wait for the disk
//! with each write.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use calico_bench::cluster::{Stand, furnish};
use calico_bench::isolate;
use calico_bench::measure::{Samples, accounted, accounted_for, arguments, binary, complaint, feed};
use calico_bench::table::{faster, head, row};

/// Objects that are applied.
const OBJECTS: usize = 1000;
const ROUNDS: usize = 5;
/// Runs of the small command.
const GETS: usize = 50;

fn main() -> anyhow::Result<()> {
    if accounted_for()? {
        return Ok(());
    }
    let binary = binary()?;
    isolate::machine()?;
    let wanted = arguments();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    head("calicoctl");
    for kind in Stand::KINDS {
        if wanted.is_empty() || wanted.iter().any(|w| w == kind) {
            on(kind, &binary, &runtime)?;
        }
    }
    Ok(())
}

fn on(kind: &str, binary: &Path, runtime: &tokio::runtime::Runtime) -> anyhow::Result<()> {
    let (mut new, mut again, mut list, mut nodes) =
        (Samples::default(), Samples::default(), Samples::default(), Samples::default());
    let mut memory = Samples::default();
    let text = objects();
    for round in 0..ROUNDS {
        let stand = runtime.block_on(Stand::start(kind))?;
        runtime.block_on(async { furnish(&stand.connect()?, &["node-1".into()], "10.0.0.0/16").await })?;
        let ctl = |args: &[&str]| {
            let mut command = Command::new(binary);
            command.arg("ctl").args(args).envs(stand.environment());
            command
        };
        let run = |samples: &mut Samples, args: &[&str], input: &str| {
            let out = samples.time(|| feed(&mut ctl(args), input))?;
            anyhow::ensure!(out.status.success(), "{}: {}", args.join(" "), complaint(&out));
            anyhow::Ok(())
        };
        run(&mut new, &["apply", "-f", "-"], &text)?;
        run(&mut again, &["apply", "-f", "-"], &text)?;
        run(&mut list, &["get", "globalnetworksets", "-o", "yaml"], "")?;
        for _ in 0..GETS {
            run(&mut nodes, &["get", "nodes"], "")?;
        }
        if round == 0 {
            let out = std::process::Stdio::null();
            memory.add_value(accounted(ctl(&["get", "nodes"]).stdout(out), "")?.peak_rss);
        }
    }
    let line = |what: &str, ours: &Samples, upstream: &str, middle: f64| {
        let figures = format!("{} ms", ours.range(1));
        row(
            &format!("{kind}: {what}"),
            &figures,
            &format!("upstream on etcd {upstream}"),
            &faster(ours.p50(), middle),
        );
    };
    line("get nodes", &nodes, "36/47/58 ms", 47.0);
    line("apply 1,000 new GlobalNetworkSets", &new, "1.53/1.63/1.76 s", 1630.0);
    line("apply them again, unchanged", &again, "3.36/3.64/3.88 s", 3640.0);
    line("get globalnetworksets -o yaml, 1,000", &list, "0.17/0.18/0.22 s", 180.0);
    row(
        &format!("{kind}: get nodes, peak memory"),
        &format!("{:.1} MiB", memory.p50()),
        "upstream on etcd 45 MiB",
        &faster(memory.p50(), 45.0),
    );
    Ok(())
}

/// A file with all objects.
fn objects() -> String {
    let mut out = String::new();
    for n in 0..OBJECTS {
        let (a, b) = (n / 250, n % 250);
        // Writing to a string does not fail.
        let _ = write!(
            out,
            "apiVersion: projectcalico.org/v3\nkind: GlobalNetworkSet\nmetadata:\n  name: set-{n}\n  labels:\n    \
             set: n-{n}\nspec:\n  nets:\n  - 10.{a}.{b}.0/24\n  - 192.0.2.{b}/32\n---\n"
        );
    }
    out
}
