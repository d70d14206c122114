//! The calculation graph on the shapes of `docs/performance.md`.
//!
//! `cargo bench -p calico-bench --bench calc` runs every shape, each in a process of its own so that memory
//! figures do not mix; `-- SHAPE...` runs some (`-- list` names them). Times are of the graph alone: inputs are made
//! in batches outside the clock. Live heap is what the graph holds after its messages were dropped.

use std::alloc::System;
use std::error::Error;
use std::io::Write as _;
use std::net::Ipv6Addr;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use calico_api::Kind;
use calico_calc::{CalcConfig, CalcGraph};
use calico_dpmsg::Message;
use calico_model::policy::{
    Action, EntityMatch, Labels, NetworkSet, Policy, ProfileRules, Rule, Tier, WorkloadEndpoint,
};
use calico_model::{Key, KvPair, PolicyKey, SyncStatus, Update, UpdateType, Value, WorkloadEndpointKey};
use calico_net::{Cidr, Port, Protocol};
use smol_str::SmolStr;
use stats_alloc::{INSTRUMENTED_SYSTEM, Stats, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const ME: &str = "node-0";
const BATCH: usize = 1000;

type Made = (Key, Option<Value>);

/// Makes the text of the n-th selector.
type Make = fn(usize) -> String;

fn main() -> Result<(), Box<dyn Error>> {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
    let mut out = std::io::stdout();
    match wanted.as_slice() {
        [one] if one == "list" => {
            for (name, _) in SHAPES {
                writeln!(out, "{name}")?;
            }
        }
        [one] if one != "all" => match SHAPES.iter().find(|(name, _)| name == one) {
            Some((_, run)) => run(),
            None => return Err(format!("no shape {one}; `list` names them").into()),
        },
        _ => {
            let chosen = SHAPES
                .iter()
                .filter(|(n, _)| wanted.is_empty() || wanted.iter().any(|w| w == n || w == "all"));
            for (name, _) in chosen {
                Command::new(std::env::current_exe()?).arg(name).status()?;
            }
        }
    }
    Ok(())
}

/// Every shape by name.
const SHAPES: &[(&str, fn())] = &[
    ("snapshot-10k-endpoints-1k-set-policies", || snapshot(10_000, 1_000, Policies::Sets)),
    ("snapshot-10k-endpoints-10k-set-policies", || snapshot(10_000, 10_000, Policies::Sets)),
    ("snapshot-250k-endpoints-10k-tag-policies", || snapshot(250_000, 10_000, Policies::Tags)),
    ("isolated-customers-1k", || isolated(1_000)),
    ("isolated-customers-10k", || isolated(10_000)),
    ("isolated-customers-100k", || isolated(100_000)),
    ("index-workload-update", index_workload),
    ("index-parent-update", index_parent),
    ("index-selector-added", index_selector),
];

// === measuring ===

/// A graph with a clock around it.
struct Meter {
    graph: CalcGraph,
    batch: Vec<Update>,
    spent: Duration,
    /// Processor time, nanoseconds.
    cpu: u64,
    messages: usize,
    members: usize,
    start: Stats,
}

impl Meter {
    fn new() -> Self {
        let start = ALLOCATOR.stats();
        let graph = CalcGraph::new(CalcConfig { routes: None, vxlan: false, ..CalcConfig::new(ME) });
        let batch = Vec::with_capacity(BATCH);
        Self { graph, batch, spent: Duration::ZERO, cpu: 0, messages: 0, members: 0, start }
    }

    fn put(&mut self, (key, value): Made) {
        let kind = if value.is_some() { UpdateType::New } else { UpdateType::Deleted };
        self.batch.push(Update { kv: KvPair { value, ..KvPair::tombstone(key) }, kind });
        if self.batch.len() == BATCH {
            self.feed();
        }
    }

    fn feed(&mut self) {
        let (cpu, begin) = (cpu_time(), Instant::now());
        for update in &self.batch {
            self.graph.on_update(update);
        }
        self.spent += begin.elapsed();
        self.cpu += cpu_time() - cpu;
        self.batch.clear();
    }

    fn flush(&mut self) {
        self.feed();
        self.graph.on_status(SyncStatus::InSync);
        let (mut messages, mut members) = (0, 0);
        let (cpu, begin) = (cpu_time(), Instant::now());
        self.graph.flush_into(&mut |message| {
            messages += 1;
            match message {
                Message::IpSetUpdate { members: m, .. } => members += m.len(),
                Message::IpSetDelta { added, removed, .. } => members += added.len() + removed.len(),
                _ => {}
            }
        });
        self.spent += begin.elapsed();
        self.cpu += cpu_time() - cpu;
        self.messages += messages;
        self.members += members;
    }

    fn live(&self) -> usize {
        let now = ALLOCATOR.stats();
        // Growth and shrinking by reallocation is counted in both sums.
        let live = |s: &Stats| s.bytes_allocated.wrapping_sub(s.bytes_deallocated);
        live(&now).wrapping_sub(live(&self.start))
    }

    fn report(&self, what: &str) {
        let now = ALLOCATOR.stats();
        let allocated = (now.bytes_allocated - self.start.bytes_allocated) as f64 / 1e6;
        let calls = (now.allocations + now.reallocations - self.start.allocations - self.start.reallocations)
            as f64
            / 1e6;
        let (rss, peak) = process_memory();
        let counts = self.graph.counts();
        line(&format!(
            "{what:<44} {:>7.3} s  cpu {:>7.3} s  heap {:>6.1} MB  rss {rss:>4} peak {peak:>4} MiB  allocated {allocated:>7.1} MB {calls:>6.2} M  \
             messages {} members {} sets {} policies {}",
            self.spent.as_secs_f64(),
            self.cpu as f64 / 1e9,
            self.live() as f64 / 1e6,
            self.messages,
            self.members,
            counts.ip_sets,
            counts.active_policies,
        ));
    }
}

fn line(text: &str) {
    // A closed pipe ends the output, not the measurement.
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// Processor time of this process so far, nanoseconds.
fn cpu_time() -> u64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    text.split_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or(0)
}

/// Resident memory now and at most, MiB.
fn process_memory() -> (u64, u64) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = |name: &str| {
        let line = status.lines().find_map(|l| l.strip_prefix(name));
        line.and_then(|l| l.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) / 1024
    };
    (field("VmRSS:"), field("VmHWM:"))
}

// === inputs ===

/// A text of its own allocation where it is long, as decoding makes it.
fn text(t: String) -> SmolStr {
    SmolStr::from(t)
}

fn host(n: usize) -> Cidr {
    Cidr::host([10, (n >> 16) as u8, (n >> 8) as u8, n as u8].into())
}

fn rule(action: Action, src: EntityMatch, dst: EntityMatch) -> Rule {
    Rule {
        action,
        ip_version: None,
        protocol: None,
        not_protocol: None,
        icmp: None,
        not_icmp: None,
        src,
        dst,
        http: None,
        metadata: None,
    }
}

fn selecting(selector: impl Into<SmolStr>) -> EntityMatch {
    EntityMatch { selector: selector.into(), ..EntityMatch::default() }
}

fn policy(name: String, namespace: &str, selector: String, inbound: Vec<Rule>, outbound: Vec<Rule>) -> Made {
    let kind = if namespace.is_empty() { Kind::GlobalNetworkPolicy } else { Kind::NetworkPolicy };
    let key = PolicyKey { kind, namespace: namespace.into(), name: text(name) };
    let policy = Policy {
        tier: "default".into(),
        order: Some(1000.0),
        namespace: namespace.into(),
        selector: text(selector),
        ingress: true,
        egress: true,
        inbound_rules: inbound,
        outbound_rules: outbound,
        untracked: false,
        pre_dnat: false,
        apply_on_forward: false,
        staged_action: None,
        performance_hints: vec![],
    };
    (Key::Policy(key), Some(Value::Policy(Arc::new(policy))))
}

fn workload(node: &str, name: String, labels: Labels, profile: SmolStr, net: Cidr) -> Made {
    let key = WorkloadEndpointKey {
        host: node.into(),
        orchestrator: "k8s".into(),
        workload: text(name),
        endpoint: "eth0".into(),
    };
    let endpoint = WorkloadEndpoint {
        interface_name: "cali12345678901".into(),
        profile_ids: vec![profile],
        ipv4_nets: vec![net],
        labels,
        ..WorkloadEndpoint::default()
    };
    (Key::WorkloadEndpoint(key), Some(Value::WorkloadEndpoint(Arc::new(endpoint))))
}

fn default_tier() -> Made {
    (Key::Tier("default".into()), Some(Value::Tier(Tier { order: Some(1e6), default_pass: false })))
}

fn profile(name: &str, labels: Labels) -> [Made; 2] {
    let allow = || vec![rule(Action::Allow, EntityMatch::default(), EntityMatch::default())];
    let rules = ProfileRules { inbound_rules: allow(), outbound_rules: allow() };
    [
        (Key::ProfileRules(name.into()), Some(Value::ProfileRules(Arc::new(rules)))),
        (Key::ProfileLabels(name.into()), Some(Value::ProfileLabels(Arc::new(labels)))),
    ]
}

// === snapshots ===

#[derive(Clone, Copy, PartialEq)]
enum Policies {
    Sets,
    Tags,
}

const MARKERS: usize = 31;

fn marker(n: usize) -> String {
    // 31 names, 28 of them distinct.
    format!("marker-label-{}", n % MARKERS % 28)
}

fn snapshot_endpoint(n: usize, node: &str) -> Made {
    let mut labels = Labels::new();
    for modulus in [10, 11, 20, 30, 40] {
        labels.insert(text(format!("one-in-{modulus}")), text(format!("{}", n % modulus)));
    }
    labels.insert(text(marker(n)), "true".into());
    let namespace = n % 100;
    workload(
        node,
        format!("namespace-{namespace}/pod-{n}"),
        labels,
        text(format!("kns.namespace-{namespace}")),
        host(n),
    )
}

fn snapshot(endpoints: usize, policies: usize, kind: Policies) {
    const LOCAL: usize = 200;
    const SIZES: [usize; 10] = [1, 1, 1, 1, 2, 3, 4, 5, 100, 1000];
    let mut m = Meter::new();
    m.put(default_tier());
    if kind == Policies::Tags {
        for n in 0..policies {
            let rules = (0..5).map(|i| {
                let source = selecting(text(format!("has({})", marker(n * 5 + i))));
                rule(Action::Allow, source, EntityMatch::default())
            });
            m.put(policy(format!("policy-{n}"), "", format!("has({})", marker(n)), rules.collect(), vec![]));
        }
    }
    for n in 0..100 {
        let labels = Labels::from([("pcns.projectcalico.org/name".into(), text(format!("namespace-{n}")))]);
        profile(&format!("kns.namespace-{n}"), labels).into_iter().for_each(|made| m.put(made));
    }
    for n in LOCAL..endpoints {
        m.put(snapshot_endpoint(n, &format!("node-{}", 1 + n / LOCAL)));
    }
    if kind == Policies::Sets {
        let mut next = 0u128;
        for n in 0..policies {
            let name = format!("network-set-{n}");
            let nets = (0..SIZES[n % 10])
                .map(|_| {
                    next += 1;
                    Cidr::host(Ipv6Addr::from_bits(0xfd00 << 112 | next).into())
                })
                .collect();
            let labels = Labels::from([("network-set-name".into(), text(name.clone()))]);
            let set = NetworkSet { nets, labels, profile_ids: vec![] };
            m.put((Key::NetworkSet(text(name.clone())), Some(Value::NetworkSet(Arc::new(set)))));
            let source = selecting(text(format!("network-set-name == '{name}'")));
            let rules = vec![rule(Action::Allow, source, EntityMatch::default())];
            m.put(policy(format!("policy-{n}"), "", "all()".into(), rules, vec![]));
        }
    }
    for n in 0..LOCAL {
        m.put(snapshot_endpoint(n, ME));
    }
    m.flush();
    let what = match kind {
        Policies::Sets => "set",
        Policies::Tags => "tag",
    };
    m.report(&format!("{endpoints} endpoints, {policies} {what} policies"));
    for n in 0..LOCAL {
        let (key, _) = snapshot_endpoint(n, ME);
        m.put((key, None));
    }
    m.flush();
    m.report("  then delete");
}

// === isolated customers ===

/// Letters that look random and are the same in every run.
fn random(seed: usize, len: usize) -> SmolStr {
    let mut state = (seed as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let letter = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        char::from(b'a' + (state % 26) as u8)
    };
    text((0..len).map(letter).collect())
}

fn isolated(customers: usize) {
    const LOCAL: usize = 100;
    let mut m = Meter::new();
    m.put(default_tier());
    let every = customers / LOCAL;
    for n in 0..customers {
        let namespace = format!("customer-{n}");
        let labels = Labels::from([
            ("pcns.projectcalico.org/name".into(), text(namespace.clone())),
            ("pcns.customer-id".into(), random(n, 20)),
            ("pcns.paying".into(), text((n % 2 == 0).to_string())),
        ]);
        profile(&format!("kns.{namespace}"), labels).into_iter().for_each(|made| m.put(made));
        let own = format!("projectcalico.org/namespace == '{namespace}'");
        let mut dns = rule(Action::Allow, EntityMatch::default(), EntityMatch::default());
        dns.protocol = Some(Protocol::Name("udp".into()));
        dns.dst.ports = vec![Port::number(53)];
        dns.dst.nets = vec![host(10)];
        let inbound = vec![rule(Action::Allow, selecting(text(own.clone())), EntityMatch::default())];
        let outbound = vec![rule(Action::Allow, EntityMatch::default(), selecting(text(own.clone()))), dns];
        m.put(policy("isolate".into(), &namespace, format!("(all()) && {own}"), inbound, outbound));
        let mut labels = Labels::from([
            ("projectcalico.org/namespace".into(), text(namespace.clone())),
            ("projectcalico.org/orchestrator".into(), "k8s".into()),
            ("pod-uid".into(), random(n * 7 + 1, 20)),
            ("revision".into(), random(n * 7 + 2, 20)),
            ("hash".into(), random(n * 7 + 3, 10)),
            ("tenant".into(), random(n * 7 + 4, 20)),
            ("short".into(), random(n * 7 + 5, 8)),
            ("build".into(), text(format!("build-{}", n % 5000))),
        ]);
        for i in 0..4 {
            labels.insert(text(format!("bit-{i}")), text((n >> i & 1).to_string()));
        }
        for i in 0..3 {
            labels.insert(text(format!("few-{i}")), text(format!("value-{}", n % (3 + i))));
        }
        let node = if n % every == 0 { ME.to_owned() } else { format!("node-{}", 1 + n / LOCAL) };
        m.put(workload(
            &node,
            format!("{namespace}/pod-{n}"),
            labels,
            text(format!("kns.{namespace}")),
            host(n),
        ));
    }
    m.flush();
    m.report(&format!("{customers} isolated customers"));
}

// === index ===

/// Runs `change` with growing counters, flushing after each, and returns microseconds per round: least and median.
fn rounds(m: &mut Meter, count: usize, mut change: impl FnMut(usize) -> Made) -> (f64, f64) {
    let mut times = Vec::new();
    for round in 0..count {
        let made = change(round);
        m.spent = Duration::ZERO;
        m.put(made);
        m.flush();
        times.push(m.spent.as_secs_f64() * 1e6);
    }
    times.sort_by(f64::total_cmp);
    (times[0], times[times.len() / 2])
}

fn labels(list: &[(&str, String)]) -> Labels {
    list.iter().map(|(k, v)| ((*k).into(), text(v.clone()))).collect()
}

/// A policy on the local endpoint whose rules name the selectors.
fn ask_for(selectors: impl Iterator<Item = String>) -> Made {
    let rules = selectors.map(|s| rule(Action::Allow, selecting(text(s)), EntityMatch::default())).collect();
    policy("asks".into(), "", "all()".into(), rules, vec![])
}

fn small_world(endpoints: usize, per_parent: usize) -> Meter {
    let mut m = Meter::new();
    m.put(default_tier());
    m.put(workload(ME, "here/pod".into(), labels(&[("local", "yes".into())]), "kns.none".into(), host(1)));
    for n in 0..endpoints {
        let own = labels(&[
            ("app", format!("app-{}", n % 100)),
            ("tier", format!("tier-{}", n % 10)),
            ("pod", format!("pod-{n}")),
        ]);
        let profile = text(format!("kns.parent-{}", n / per_parent));
        m.put(workload("node-1", format!("ns/pod-{n}"), own, profile, host(1000 + n)));
    }
    m
}

fn index_workload() {
    for selectors in [10, 100, 1_000, 10_000] {
        let kinds: [(&str, Make); 3] = [
            ("label == value", |i| format!("app == 'app-{i}'")),
            ("two labels", |i| format!("app == 'app-{i}' && tier in {{'tier-1', 'tier-2'}}")),
            ("not to be filed", |i| format!("!has(absent-{i})")),
        ];
        for (kind, make) in kinds {
            let mut m = small_world(0, 1);
            m.put(ask_for((0..selectors).map(make)));
            m.flush();
            let (least, time) = rounds(&mut m, 200, |round| {
                let own =
                    labels(&[("app", format!("app-{}", round % 7)), ("tier", format!("tier-{}", round % 3))]);
                workload("node-1", "ns/changing".into(), own, "kns.none".into(), host(7))
            });
            line(&format!(
                "workload's labels change, {selectors:>6} selectors ({kind:<15}) {least:>9.1} / {time:>9.1} us"
            ));
        }
    }
}

fn index_parent() {
    for endpoints in [100, 1_000, 10_000, 100_000] {
        let mut m = small_world(endpoints, 10);
        m.put(ask_for((0..100).map(|i| format!("pcns.zone == 'zone-{i}'"))));
        m.flush();
        let (least, time) = rounds(&mut m, 200, |round| {
            let lent = labels(&[("pcns.zone", format!("zone-{}", round % 50))]);
            (Key::ProfileLabels("kns.parent-3".into()), Some(Value::ProfileLabels(Arc::new(lent))))
        });
        line(&format!(
            "parent of 10 changes, {endpoints:>6} endpoints, 100 selectors       {least:>9.1} / {time:>9.1} us"
        ));
    }
}

fn index_selector() {
    for endpoints in [100, 1_000, 10_000, 100_000] {
        let kinds: [(&str, Make); 3] = [
            ("one in 100", |i| format!("app == 'app-{}' && !has(absent-{i})", i % 100)),
            ("one in 10", |i| format!("tier == 'tier-{}' && !has(absent-{i})", i % 10)),
            ("all, by evaluation", |i| format!("!has(absent-{i})")),
        ];
        for (kind, make) in kinds {
            let mut m = small_world(endpoints, 10);
            m.flush();
            let (least, time) = rounds(&mut m, 21, |round| ask_for(std::iter::once(make(round))));
            line(&format!(
                "selector added and one gone, {endpoints:>6} endpoints ({kind:<18}) {least:>9.1} / {time:>9.1} us"
            ));
        }
    }
}
