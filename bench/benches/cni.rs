//! ADD and DEL of the release binary as a CNI plugin, beside the plugins `bridge` and `host-local`.
//!
//! `cargo bench -p calico-bench --bench cni` (with `CALICO_BINARY`) measures all in one run; `-- NAME...` some of
//! `bridge`, `sqlite`, `etcd`. A time is that of the plugin's process, which a runtime waits for; the container's
//! namespace is made beforehand, and 100 endpoints of the node exist. The kinds take turns, round by round, so that
//! what else the machine does falls on all of them. Stores wait for the disk.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::Context as _;
use calico_bench::cluster::{Stand, furnish};
use calico_bench::isolate::{self, delete_namespace, namespace};
use calico_bench::measure::{Samples, accounted, accounted_for, arguments, binary, complaint, feed};
use calico_bench::table::{faster, head, row, slashed};

const NODE: &str = "node-1";
/// Endpoints of the node before anything is measured.
const PRESENT: usize = 100;
const ROUNDS: usize = 3;
/// Containers of one round.
const CONTAINERS: usize = 50;
/// Containers that are added at the same time.
const AT_ONCE: usize = 16;

fn main() -> anyhow::Result<()> {
    if accounted_for()? {
        return Ok(());
    }
    let binary = binary()?;
    isolate::machine()?;
    let wanted = arguments();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::fs::write("/var/lib/calico/nodename", NODE)?;
    let directory = tempfile::tempdir()?;
    let mut contenders = Vec::new();
    for kind in ["bridge", "sqlite", "etcd"] {
        if wanted.is_empty() || wanted.iter().any(|w| w == kind) {
            contenders.push(runtime.block_on(Contender::new(kind, &binary, directory.path()))?);
        }
    }
    head(&format!("CNI, {PRESENT} endpoints present, {ROUNDS} rounds of {CONTAINERS}"));
    for contender in &mut contenders {
        for n in 0..PRESENT {
            contender.add(&format!("present-{n}"))?;
        }
    }
    for round in 0..ROUNDS {
        for contender in &mut contenders {
            contender.round(round)?;
        }
    }
    for contender in &mut contenders {
        contender.at_once()?;
    }
    let bridge = contenders.iter().find(|c| c.kind == "bridge").map(|c| (c.adds.p50(), c.dels.p50()));
    for contender in &mut contenders {
        contender.report(bridge)?;
    }
    Ok(())
}

/// A plugin with its configuration, and what was measured of it.
struct Contender {
    kind: &'static str,
    program: PathBuf,
    path: String,
    config: String,
    adds: Samples,
    dels: Samples,
    together: Samples,
    all_together: f64,
    /// The store ends with the value.
    _stand: Option<Stand>,
}

impl Contender {
    async fn new(kind: &'static str, binary: &Path, directory: &Path) -> anyhow::Result<Self> {
        let (program, path, config, stand) = if kind == "bridge" {
            let plugins =
                ["/usr/lib/cni", "/opt/cni/bin"].into_iter().find(|d| Path::new(d).join(kind).exists());
            let plugins = plugins.context("the plugin bridge (Debian: containernetworking-plugins)")?;
            let config = serde_json::json!({
                "cniVersion": "1.0.0", "name": "bridged", "type": "bridge", "bridge": "bench0", "isGateway": true,
                "ipam": {"type": "host-local", "subnet": "10.66.0.0/16", "routes": [{"dst": "0.0.0.0/0"}]},
            });
            (Path::new(plugins).join(kind), plugins.to_owned(), config, None)
        } else {
            for name in ["calico", "calico-ipam"] {
                if !directory.join(name).exists() {
                    symlink(binary, directory.join(name))?;
                }
            }
            let stand = Stand::start(kind).await?;
            furnish(&stand.connect()?, &[NODE.to_owned()], "10.65.0.0/16").await?;
            let mut config = serde_json::json!({
                "cniVersion": "1.0.0", "name": format!("calico-{kind}"), "type": "calico", "nodename": NODE,
                "log_level": "error", "ipam": {"type": "calico-ipam"},
            });
            if let (Some(config), Some(store)) = (config.as_object_mut(), stand.cni().as_object()) {
                config.extend(store.clone());
            }
            (directory.join("calico"), directory.to_string_lossy().into_owned(), config, Some(stand))
        };
        Ok(Self {
            kind,
            program,
            path,
            config: config.to_string(),
            adds: Samples::default(),
            dels: Samples::default(),
            together: Samples::default(),
            all_together: f64::NAN,
            _stand: stand,
        })
    }

    fn command(&self, verb: &str, container: &str) -> Command {
        let mut command = Command::new(&self.program);
        command
            .env("CNI_COMMAND", verb)
            .env("CNI_CONTAINERID", container)
            .env("CNI_NETNS", format!("/run/netns/{}", self.namespace(container)))
            .env("CNI_IFNAME", "eth0")
            .env("CNI_PATH", &self.path);
        command
    }

    fn namespace(&self, container: &str) -> String {
        format!("{}-{container}", self.kind)
    }

    /// Runs the plugin; what it takes counts from before the start of the process to its end.
    fn run(&self, verb: &str, container: &str) -> anyhow::Result<std::time::Duration> {
        let mut command = self.command(verb, container);
        let start = Instant::now();
        let out = feed(&mut command, &self.config)?;
        let time = start.elapsed();
        anyhow::ensure!(out.status.success(), "{} {verb} {container}: {}", self.kind, complaint(&out));
        Ok(time)
    }

    fn add(&self, container: &str) -> anyhow::Result<std::time::Duration> {
        namespace(&self.namespace(container))?;
        self.run("ADD", container)
    }

    fn round(&mut self, round: usize) -> anyhow::Result<()> {
        let names: Vec<String> = (0..CONTAINERS).map(|n| format!("r{round}-{n}")).collect();
        for name in &names {
            let time = self.add(name)?;
            self.adds.add(time);
        }
        for name in &names {
            let time = self.run("DEL", name)?;
            self.dels.add(time);
            delete_namespace(&self.namespace(name))?;
        }
        Ok(())
    }

    fn at_once(&mut self) -> anyhow::Result<()> {
        let names: Vec<String> = (0..AT_ONCE).map(|n| format!("together-{n}")).collect();
        for name in &names {
            namespace(&self.namespace(name))?;
        }
        let this = &*self;
        let start = Instant::now();
        let times: Vec<anyhow::Result<std::time::Duration>> = std::thread::scope(|scope| {
            let threads: Vec<_> =
                names.iter().map(|name| scope.spawn(move || this.run("ADD", name))).collect();
            let panicked = |_| Err(anyhow::anyhow!("a thread panicked"));
            threads.into_iter().map(|t| t.join().unwrap_or_else(panicked)).collect()
        });
        let all = start.elapsed();
        for time in times {
            self.together.add(time?);
        }
        self.all_together = all.as_secs_f64() * 1e3;
        for name in &names {
            self.run("DEL", name)?;
            delete_namespace(&self.namespace(name))?;
        }
        Ok(())
    }

    /// Prints what was measured; `bridge` has that plugin's medians.
    fn report(&mut self, bridge: Option<(f64, f64)>) -> anyhow::Result<()> {
        namespace(&self.namespace("accounted"))?;
        let usage = accounted(self.command("ADD", "accounted").stdout(Stdio::null()), &self.config)?;
        self.run("DEL", "accounted")?;
        delete_namespace(&self.namespace("accounted"))?;
        let kind = self.kind;
        let figures = |s: &Samples| format!("p50/p95 {} ms", slashed([s.p50(), s.p95()], 1));
        let against = |upstream: &str, bridge: Option<f64>, ours: f64| match bridge {
            _ if kind == "bridge" => String::new(),
            Some(t) => format!("{upstream}; bridge here {t:.1} ({:.2} of it)", ours / t),
            None => upstream.to_owned(),
        };
        let better = |ours: f64, upstream: f64| match kind {
            "bridge" => String::new(),
            _ => faster(ours, upstream),
        };
        row(
            &format!("{kind}: ADD"),
            &figures(&self.adds),
            &against("upstream 167/204", bridge.map(|b| b.0), self.adds.p50()),
            &better(self.adds.p50(), 167.0),
        );
        row(
            &format!("{kind}: DEL"),
            &figures(&self.dels),
            &against("upstream 115", bridge.map(|b| b.1), self.dels.p50()),
            &better(self.dels.p50(), 115.0),
        );
        row(
            &format!("{kind}: {AT_ONCE} ADDs at once"),
            &format!("{}, all {:.0}", figures(&self.together), self.all_together),
            &against("upstream 1450/1620, all 1650", None, 0.0),
            &better(self.all_together, 1650.0),
        );
        row(
            &format!("{kind}: one ADD, memory and CPU"),
            &format!("peak {:.1} MiB, {:.0} ms of CPU", usage.peak_rss, usage.cpu),
            &against("upstream 53-55 MiB", None, 0.0),
            &better(usage.peak_rss, 54.0),
        );
        Ok(())
    }
}
