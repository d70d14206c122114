//! Running a scenario's steps in a cluster that is up.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::{Duration, Instant};

use calico_model::names::WorkloadEndpointIds;

use crate::LabError;
use crate::cluster::Cluster;
use crate::ctl;
use crate::expect::Expectation;
use crate::flood::Flood;
use crate::matrix::{Matrix, Pair};
use crate::pods;
use crate::probe::{Outcome, Probe, Try, run as try_all};
use crate::report::Report;
use crate::scenario::{Source, Step};
use crate::store;

/// Runs all steps; true if all went as expected. Goes on after a surprise, stops at a failure of the lab itself.
pub fn steps(cluster: &mut Cluster, report: &mut Report) -> Result<bool, LabError> {
    let mut flood: Option<Flood> = None;
    let mut good = true;
    let all = cluster.scenario.steps.clone();
    for (i, step) in all.iter().enumerate() {
        cluster.patience.check()?;
        let mut failed = Vec::new();
        let actions = act(cluster, step, &mut flood, &mut failed)?;
        let matrix = settle(cluster, step, &mut failed)?;
        good &= failed.is_empty();
        report.step(i + 1, &step.name, &actions, &matrix, &failed);
    }
    Ok(good)
}

/// Does what a step says, in order; the words for it.
fn act(
    cluster: &mut Cluster,
    step: &Step,
    flood: &mut Option<Flood>,
    failed: &mut Vec<String>,
) -> Result<Vec<String>, LabError> {
    let mut said = Vec::new();
    if let Some(f) = &step.flood {
        let to = cluster.addresses(&f.to).first().copied().ok_or_else(|| LabError::NoSuch(f.to.clone()))?;
        let port = if let Probe::Udp(port) = f.probe { port } else { 0 };
        let ns = cluster.state.netns(&f.from)?;
        let started = ns.run(|| Flood::start(SocketAddr::new(to, port), f.per_second))?;
        *flood =
            Some(started.map_err(|e| LabError::Start {
                what: "the stream of packets".into(),
                reason: e.to_string(),
            })?);
        said.push(format!("{} sends {} packets per second to {} {}", f.from, f.per_second, f.to, f.probe));
    }
    if !step.kill_felix.is_empty() {
        for node in &step.kill_felix {
            cluster.kill_felix(node)?;
        }
        said.push(format!("killed Felix on {}", step.kill_felix.join(", ")));
    }
    for (verb, text, file) in
        [("apply", &step.apply, &step.apply_file), ("delete", &step.delete, &step.delete_file)]
    {
        if let Some(text) = text {
            said.push(calicoctl(cluster, &[verb, "-f", "-"], text)?);
        }
        if let Some(file) = file {
            let path = cluster.scenario.folder.join(file);
            said.push(calicoctl(cluster, &[verb, "-f", &path.display().to_string()], "")?);
        }
    }
    if let Some(c) = &step.ctl {
        let answer = ctl::run(&cluster.state, &c.args, &c.stdin)?;
        said.push(format!("calicoctl {}\n{}", c.args.join(" "), answer.text.trim()));
        if answer.code != c.exit {
            failed.push(format!("calicoctl ended with {} instead of {}", answer.code, c.exit));
        }
        if !answer.text.contains(&c.output) {
            failed.push(format!("calicoctl did not say {:?}", c.output));
        }
    }
    for (pod, labels) in &step.label {
        let running = cluster.state.pods.get(pod).ok_or_else(|| LabError::NoSuch(pod.clone()))?;
        let (namespace, name) = pod.split_once('/').unwrap_or(("default", pod));
        let ids = WorkloadEndpointIds {
            node: running.node.as_str().into(),
            orchestrator: "k8s".into(),
            pod: name.into(),
            endpoint: "eth0".into(),
            ..WorkloadEndpointIds::default()
        };
        let endpoint = ids.name().map_err(|e| LabError::Unexpected(format!("{pod}: {e}")))?;
        for (key, value) in labels {
            let (change, flag) = match value.as_str() {
                "" => (key.clone(), "--remove"),
                value => (format!("{key}={value}"), "--overwrite"),
            };
            let args = ["label", "workloadendpoint", &endpoint, &change, flag, "-n", namespace];
            said.push(calicoctl(cluster, &args, "")?);
        }
    }
    for pod in &step.delete_pods {
        pods::stop(&mut cluster.state, pod)?;
        said.push(format!("deleted pod {pod}"));
    }
    if !step.add_pods.is_empty() {
        cluster.add_pods(&step.add_pods)?;
        for pod in &step.add_pods {
            let addresses: Vec<String> = cluster.addresses(&pod.id()).iter().map(IpAddr::to_string).collect();
            said.push(format!("started pod {pod} on {} ({})", pod.node, addresses.join(" ")));
        }
    }
    if step.restart_store {
        store::restart(&mut cluster.state, &cluster.patience)?;
        said.push("restarted the store".into());
    }
    if !step.start_felix.is_empty() {
        for node in &step.start_felix {
            cluster.start_felix(node)?;
        }
        cluster.felix_ready(&step.start_felix)?;
        said.push(format!("started Felix on {}", step.start_felix.join(", ")));
    }
    if let Some(end) = &step.end_flood {
        let tally = match flood.take() {
            Some(flood) => flood.end().map_err(|e| LabError::Unexpected(e.to_string()))?,
            None => return Err(LabError::Unexpected("endFlood: no stream of packets runs".into())),
        };
        said.push(format!(
            "the stream ended: {} sent, {} lost (longest gap {} ms), {} refused by the kernel",
            tally.sent,
            tally.lost,
            tally.longest_gap.as_millis(),
            tally.refused
        ));
        if tally.lost > end.lost {
            failed.push(format!("{} packets lost, at most {} may be", tally.lost, end.lost));
        }
    }
    Ok(said)
}

fn calicoctl(cluster: &Cluster, args: &[&str], stdin: &str) -> Result<String, LabError> {
    let words: Vec<&str> = args
        .iter()
        .map(|a| {
            Path::new(a).file_name().and_then(|n| n.to_str()).filter(|_| a.starts_with('/')).unwrap_or(a)
        })
        .collect();
    Ok(format!("calicoctl {}\n{}", words.join(" "), ctl::must(&cluster.state, args, stdin)?))
}

/// How long after a step's actions its last look must begin: what was true before them must not count.
const QUIET: Duration = Duration::from_millis(400);

/// Probes until everything is as the step expects, or the time is over.
fn settle(cluster: &Cluster, step: &Step, failed: &mut Vec<String>) -> Result<Matrix, LabError> {
    let expectations: Vec<Expectation> = step.expect.iter().filter_map(|line| line.parse().ok()).collect();
    if expectations.is_empty() && step.source.is_empty() {
        return Ok(Matrix::default());
    }
    let deadline = Instant::now() + Duration::from_secs(cluster.scenario.settle);
    let earliest = Instant::now() + QUIET;
    loop {
        cluster.patience.check()?;
        let begun = Instant::now();
        let matrix = round(cluster, step, &expectations)?;
        let sources = wrong_sources(cluster, &step.source)?;
        let surprises = matrix.surprises();
        if begun < earliest {
            std::thread::sleep(earliest.saturating_duration_since(Instant::now()));
            continue;
        }
        if (surprises.is_empty() && sources.is_empty()) || Instant::now() > deadline {
            failed.extend(surprises.iter().map(|s| {
                let should = if s.expected { "should reach" } else { "should not reach" };
                let p = &s.pair;
                format!("{} {should} {} by {} (IPv{}): {}", p.from, p.to, p.probe, p.version, s.outcome)
            }));
            failed.extend(sources);
            return Ok(matrix);
        }
    }
}

/// Tries every connection that an expectation speaks of, all senders at once.
pub fn round(cluster: &Cluster, step: &Step, expectations: &[Expectation]) -> Result<Matrix, LabError> {
    let probes = if step.probes.is_empty() { &cluster.scenario.probes } else { &step.probes };
    let names = cluster.running();
    let mut matrix = Matrix::default();
    let work: Vec<(String, Vec<(Pair, Try)>)> = names
        .iter()
        .map(|from| (from.clone(), tries(cluster, from, &names, probes, expectations)))
        .filter(|(_, tries)| !tries.is_empty())
        .collect();
    let outcomes: Vec<Result<Vec<Outcome>, LabError>> = std::thread::scope(|scope| {
        let threads: Vec<_> = work
            .iter()
            .map(|(from, tries)| {
                let only: Vec<Try> = tries.iter().map(|(_, t)| *t).collect();
                scope.spawn(move || -> Result<Vec<Outcome>, LabError> {
                    Ok(cluster.state.netns(from)?.run(|| try_all(&only))?)
                })
            })
            .collect();
        threads.into_iter().map(|t| t.join().unwrap_or(Err(LabError::Interrupted))).collect()
    });
    for ((_, tries), outcomes) in work.into_iter().zip(outcomes) {
        for ((pair, _), outcome) in tries.into_iter().zip(outcomes?) {
            matrix.add(pair, outcome, expectations);
        }
    }
    Ok(matrix)
}

fn tries(
    cluster: &Cluster,
    from: &str,
    names: &[String],
    probes: &[Probe],
    expectations: &[Expectation],
) -> Vec<(Pair, Try)> {
    let mine = cluster.addresses(from);
    let mut tries = Vec::new();
    // A node takes part only where a line names it: `*` means pods and outside hosts.
    let named = |name: &str| {
        let node = cluster.machines.iter().any(|m| m.is_node && m.name == name);
        !node || expectations.iter().any(|e| e.patterns().any(|p| p.to_string() == name))
    };
    for to in names.iter().filter(|to| *to != from && named(from) && named(to)) {
        for ip in cluster.addresses(to) {
            if !mine.iter().any(|m| m.is_ipv4() == ip.is_ipv4()) {
                continue;
            }
            let family = calico_net::IpVersion::of(ip);
            for &probe in probes {
                if expectations.iter().any(|e| e.says(from, to, probe, family).is_some()) {
                    let pair = Pair { from: from.into(), to: to.clone(), probe, version: family.number() };
                    tries.push((pair, Try { to: ip, probe }));
                }
            }
        }
    }
    tries
}

/// Checks whose address each target sees; a line for each that sees another.
fn wrong_sources(cluster: &Cluster, sources: &[Source]) -> Result<Vec<String>, LabError> {
    let mut wrong = Vec::new();
    for s in sources {
        let expected = cluster.addresses(&s.seen);
        for ip in cluster.addresses(&s.to) {
            let Some(want) = expected.iter().find(|e| e.is_ipv4() == ip.is_ipv4()) else { continue };
            let outcome = cluster.state.netns(&s.from)?.run(|| try_all(&[Try { to: ip, probe: s.probe }]))?;
            match outcome.first() {
                Some(Outcome::Reached(Some(seen))) if seen == want => {}
                Some(Outcome::Reached(Some(seen))) => {
                    wrong.push(format!("{} sees {} as {seen}, not as {} ({want})", s.to, s.from, s.seen));
                }
                other => {
                    let what = other.map(Outcome::to_string).unwrap_or_default();
                    wrong.push(format!("{} does not reach {} by {}: {what}", s.from, s.to, s.probe));
                }
            }
        }
    }
    Ok(wrong)
}
