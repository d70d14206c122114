//! Felix as a process, on an empty cluster and on one with work for it.
//!
//! `cargo bench -p calico-bench --bench agent` (with `CALICO_BINARY`); `-- empty` or `-- full` for one shape, and
//! `-- STORE` (`sqlite`, `etcd`) for one store. *Full* is 1,000 global policies and 1,000 local endpoints with 10 of
//! the policies each, whose rules speak of 100 selectors. Times count from the start of the process: *in sync* until
//! its metrics say that it has read the store, *programmed* until it says that it is ready and the kernel's table
//! leads every endpoint to its chains. Idle CPU is that of the minute after.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use calico_api::{GlobalNetworkPolicy, WorkloadEndpoint};
use calico_bench::cluster::{Stand, furnish};
use calico_bench::isolate;
use calico_bench::measure::{Samples, accounted_for, arguments, binary, feed, process};
use calico_bench::table::{faster, head, row};
use calico_client::Client;
use serde_json::json;

const NODE: &str = "node-1";
const ENDPOINTS: usize = 1000;
const POLICIES: usize = 1000;
/// Policies of one endpoint; every group of so many policies selects every hundredth endpoint.
const EACH: usize = 10;
const SETS: usize = 100;
const ROUNDS: usize = 3;
const IDLE: Duration = Duration::from_secs(60);
const LIMIT: Duration = Duration::from_secs(120);
const HEALTH: u16 = 9099;
const METRICS: u16 = 9091;

fn main() -> anyhow::Result<()> {
    if accounted_for()? {
        return Ok(());
    }
    let binary = binary()?;
    isolate::machine()?;
    let wanted = arguments();
    let is_wanted = |names: &[&str], name: &str| {
        let chosen: Vec<_> = wanted.iter().filter(|w| names.contains(&w.as_str())).collect();
        chosen.is_empty() || chosen.into_iter().any(|w| w == name)
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    head("Felix as a process");
    for kind in Stand::KINDS.into_iter().filter(|k| is_wanted(&Stand::KINDS, k)) {
        let stand = runtime.block_on(Stand::start(kind))?;
        let client =
            runtime.block_on(async { furnish(&stand.connect()?, &[NODE.into()], "10.0.0.0/16").await })?;
        if is_wanted(&["empty", "full"], "empty") {
            measure(&format!("{kind}, empty"), &binary, &stand, 0, [f64::NAN, 260.0, 70.5, 1030.0])?;
        }
        if is_wanted(&["empty", "full"], "full") {
            links(|n| {
                format!("link add {} up type veth peer name peer{n}\nlink set peer{n} up\n", interface(n))
            })?;
            runtime.block_on(fill(&client))?;
            measure(&format!("{kind}, full"), &binary, &stand, ENDPOINTS, [1850.0, 4510.0, 117.0, f64::NAN])?;
            links(|n| format!("link delete {}\n", interface(n)))?;
        }
    }
    Ok(())
}

/// Does something to the interface of each endpoint.
fn links(order: impl Fn(usize) -> String) -> anyhow::Result<()> {
    let orders: String = (0..ENDPOINTS).map(order).collect();
    let out = feed(Command::new("ip").args(["-batch", "-"]), &orders)?;
    anyhow::ensure!(out.status.success(), "interfaces: {}", String::from_utf8_lossy(&out.stderr));
    Ok(())
}

fn interface(n: usize) -> String {
    format!("cali{n}")
}

async fn fill(client: &Client) -> anyhow::Result<()> {
    for n in 0..ENDPOINTS {
        let endpoint: WorkloadEndpoint = serde_json::from_value(json!({
            "apiVersion": "projectcalico.org/v3", "kind": "WorkloadEndpoint",
            "metadata": {
                "name": format!("node--1-cni-{n}-eth0"), "namespace": "default",
                "labels": {"group": format!("g{}", n % (POLICIES / EACH)), "set": format!("s{}", n % SETS)},
            },
            "spec": {
                "orchestrator": "cni", "node": NODE, "containerID": format!("{n}"), "endpoint": "eth0",
                "interfaceName": interface(n), "ipNetworks": [format!("10.0.{}.{}/32", n / 250, n % 250 + 1)],
            },
        }))?;
        client.workload_endpoints().create(endpoint).await?;
    }
    for n in 0..POLICIES {
        let policy: GlobalNetworkPolicy = serde_json::from_value(json!({
            "apiVersion": "projectcalico.org/v3", "kind": "GlobalNetworkPolicy",
            "metadata": {"name": format!("policy-{n}")},
            "spec": {
                "order": n, "selector": format!("group == 'g{}'", n % (POLICIES / EACH)), "types": ["Ingress", "Egress"],
                "ingress": [
                    {"action": "Allow", "protocol": "TCP", "source": {"selector": format!("set == 's{}'", n % SETS)},
                     "destination": {"ports": [80, 443]}},
                ],
                "egress": [{"action": "Allow"}],
            },
        }))?;
        client.global_network_policies().create(policy).await?;
    }
    Ok(())
}

/// Upstream's figures: in sync and programmed in ms, memory in MiB, CPU of the idle minute in ms.
fn measure(
    what: &str,
    binary: &Path,
    stand: &Stand,
    endpoints: usize,
    upstream: [f64; 4],
) -> anyhow::Result<()> {
    let (mut in_sync, mut programmed) = (Samples::default(), Samples::default());
    let (mut memory, mut peak) = (Samples::default(), Samples::default());
    let mut idle = f64::NAN;
    for round in 0..ROUNDS {
        // Nothing is left of an earlier round; there may be nothing to delete.
        let _ = isolate::run("nft", &["flush", "ruleset"]);
        let start = Instant::now();
        let agent = Agent::start(binary, stand)?;
        in_sync.add(agent.wait(start, in_sync_now)?);
        programmed.add(agent.wait(start, || ready() && programmed_endpoints() >= endpoints)?);
        let (rss, most, before) = process(agent.0.id())?;
        memory.add_value(rss);
        peak.add_value(most);
        if round + 1 == ROUNDS {
            std::thread::sleep(IDLE);
            idle = process(agent.0.id())?.2 - before;
        }
    }
    let [up_sync, up_programmed, up_memory, up_idle] = upstream;
    let other = |value: f64, unit: &str| {
        if value.is_nan() { String::new() } else { format!("upstream {value} {unit}") }
    };
    for (name, ours, upstream) in [("in sync", &in_sync, up_sync), ("programmed", &programmed, up_programmed)]
    {
        row(
            &format!("{what}: start to {name}"),
            &format!("{} ms", ours.range(0)),
            &other(upstream, "ms"),
            &faster(ours.p50(), upstream),
        );
    }
    row(
        &format!("{what}: memory then"),
        &format!("{:.1} MiB, peak {:.1}", memory.p50(), peak.p50()),
        &other(up_memory, "MiB"),
        &faster(memory.p50(), up_memory),
    );
    row(
        &format!("{what}: CPU of the next {} s", IDLE.as_secs()),
        &format!("{idle:.0} ms"),
        &other(up_idle, "ms"),
        &faster(idle, up_idle),
    );
    Ok(())
}

/// A running Felix, which ends with the value.
struct Agent(Child);

impl Agent {
    fn start(binary: &Path, stand: &Stand) -> anyhow::Result<Self> {
        let child = Command::new(binary)
            .args(["component", "felix"])
            .envs(stand.environment())
            .envs([
                ("FELIX_FELIXHOSTNAME", NODE),
                ("FELIX_HEALTHENABLED", "true"),
                ("FELIX_HEALTHHOST", "127.0.0.1"),
                ("FELIX_PROMETHEUSMETRICSENABLED", "true"),
                ("FELIX_PROMETHEUSMETRICSHOST", "127.0.0.1"),
                ("FELIX_LOGSEVERITYSCREEN", "Error"),
            ])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()?;
        Ok(Self(child))
    }

    fn wait(&self, start: Instant, done: impl Fn() -> bool) -> anyhow::Result<Duration> {
        loop {
            if done() {
                return Ok(start.elapsed());
            }
            anyhow::ensure!(start.elapsed() < LIMIT, "Felix is not there after {} s", LIMIT.as_secs());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn in_sync_now() -> bool {
    let text = get(METRICS, "/metrics").unwrap_or_default();
    let value =
        text.lines().find_map(|l| l.strip_prefix("felix_resync_state")?.rsplit(' ').next()?.parse().ok());
    // Upstream's number for a syncer that is in sync.
    value == Some(3.0)
}

fn ready() -> bool {
    get(HEALTH, "/readiness").is_ok_and(|answer| answer.split(' ').nth(1) == Some("200"))
}

/// Elements of the map by which packets to endpoints find their chains.
fn programmed_endpoints() -> usize {
    let out =
        Command::new("nft").args(["list", "map", "ip", "calico", "filter-cali-to-wl-dispatch"]).output();
    out.map_or(0, |out| String::from_utf8_lossy(&out.stdout).matches(": goto ").count())
}

fn get(port: u16, path: &str) -> anyhow::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).context("an answer")?;
    Ok(answer)
}
