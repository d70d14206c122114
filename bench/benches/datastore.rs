//! Writing objects, and noticing that others wrote.
//!
//! `cargo bench -p calico-bench --bench datastore` runs it on SQLite and on etcd, which both wait for the disk with
//! each write. Objects are GlobalNetworkSets of four networks, created through the typed client, which validates
//! them. The delay is from the answer to a writer in one process until a watcher in another holds the object.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use calico_api::GlobalNetworkSet;
use calico_bench::cluster::Stand;
use calico_bench::isolate;
use calico_bench::measure::{Samples, accounted_for, arguments};
use calico_bench::table::{head, row, slashed};
use calico_client::{Client, Event, Select};
use calico_datastore::{Fallback, Surroundings};

/// Writers at once, and objects of each.
const WRITERS: [(usize, usize); 3] = [(1, 1000), (16, 250), (64, 100)];
const ROUNDS: usize = 3;
/// Changes that a watcher waits for.
const CHANGES: usize = 200;

fn main() -> anyhow::Result<()> {
    if accounted_for()? {
        return Ok(());
    }
    let wanted = arguments();
    let is_writer = wanted.first().is_some_and(|w| w == "writer");
    if !is_writer {
        isolate::machine()?;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    if is_writer {
        return runtime.block_on(writer());
    }
    head("datastore");
    for kind in Stand::KINDS {
        if wanted.is_empty() || wanted.iter().any(|w| w == kind) {
            runtime.block_on(on(kind))?;
        }
    }
    Ok(())
}

async fn on(kind: &str) -> anyhow::Result<()> {
    for (writers, objects) in WRITERS {
        let mut rates = Samples::default();
        for _ in 0..ROUNDS {
            let stand = Stand::start(kind).await?;
            let client = Client::from_backend(stand.connect()?);
            client.ensure_initialized("", "").await?;
            let start = Instant::now();
            let tasks: Vec<_> = (0..writers)
                .map(|writer| {
                    let client = client.clone();
                    tokio::spawn(async move {
                        for n in 0..objects {
                            client.global_network_sets().create(set(&format!("set-{writer}-{n}"))).await?;
                        }
                        anyhow::Ok(())
                    })
                })
                .collect();
            for task in tasks {
                task.await??;
            }
            rates.add_value((writers * objects) as f64 / start.elapsed().as_secs_f64());
        }
        let other =
            if kind == "etcd" && writers == 64 { "etcd itself, at best: 4,268 small writes/s" } else { "" };
        let writers = if writers == 1 { "1 writer".into() } else { format!("{writers} writers at once") };
        row(&format!("{kind}: objects created, {writers}"), &format!("{} /s", rates.range(0)), other, "");
    }
    let delays = delays(kind).await?;
    row(
        &format!("{kind}: delay of a watch in another process"),
        &format!("p50/p95 {} ms", slashed([delays.p50(), delays.p95()], 2)),
        "",
        "",
    );
    Ok(())
}

fn set(name: &str) -> GlobalNetworkSet {
    let mut set = GlobalNetworkSet::default();
    set.metadata.name = name.into();
    set.spec.nets = (0..4).map(|n| format!("10.{n}.0.0/16")).collect();
    set
}

fn now() -> anyhow::Result<u128> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos())
}

/// Watches while another process writes one object after the other, and waits for each to be seen.
async fn delays(kind: &str) -> anyhow::Result<Samples> {
    let stand = Stand::start(kind).await?;
    let client = Client::from_backend(stand.connect()?);
    client.ensure_initialized("", "").await?;
    let mut watch = client.global_network_sets().watch(&Select::default()).await?;
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("writer").stdin(Stdio::piped()).stdout(Stdio::piped());
    command.envs(stand.environment());
    let mut child = command.spawn()?;
    let mut orders = child.stdin.take().context("the writer's input")?;
    let mut answers = BufReader::new(child.stdout.take().context("the writer's output")?);
    let mut delays = Samples::default();
    for n in 0..CHANGES {
        writeln!(orders, "{n}")?;
        loop {
            match watch.next().await.context("the watch ended")? {
                Event::Added(set) if set.metadata.name == format!("set-{n}") => break,
                Event::Error(error) => return Err(error.into()),
                _ => {}
            }
        }
        let seen = now()?;
        let mut line = String::new();
        answers.read_line(&mut line)?;
        let answered: u128 = line.trim().parse().context("the writer's answer")?;
        // The watcher may be faster than the answer.
        delays.add_value(seen.saturating_sub(answered) as f64 / 1e6);
    }
    drop(orders);
    anyhow::ensure!(child.wait()?.success(), "the writer failed");
    Ok(delays)
}

/// The other process: creates an object for each line, and says when that was answered.
async fn writer() -> anyhow::Result<()> {
    let client = Client::load(None, Fallback::Never, &Surroundings::of_process())?;
    for order in std::io::stdin().lock().lines() {
        client.global_network_sets().create(set(&format!("set-{}", order?))).await?;
        let mut out = std::io::stdout();
        writeln!(out, "{}", now()?)?;
        out.flush()?;
    }
    Ok(())
}
