//! Scenario files: what a cluster consists of, what happens in it and what must be reachable then.
//!
//! Every name is checked when the file is read, so that a run never fails half-way over a typing mistake.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use calico_net::Cidr;
use serde::Deserialize;

use crate::expect::{ExpectError, Expectation};
use crate::probe::Probe;

/// A scenario as its file says it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Scenario {
    /// Name; names the cluster too. Lower-case letters, digits and dashes, at most 20.
    pub name: String,
    /// What it shows, in one line.
    #[serde(default)]
    pub about: String,
    /// Seconds in which each step must have taken effect.
    #[serde(default = "default_settle")]
    pub settle: u64,
    /// Layer-2 segments; a router joins them.
    pub segments: Vec<Segment>,
    /// Nodes of the cluster.
    pub nodes: Vec<Node>,
    /// Hosts that are not part of the cluster.
    #[serde(default)]
    pub hosts: Vec<Host>,
    /// IP pools: `name` and the fields of an IPPool's spec.
    pub pools: Vec<Pool>,
    /// Spec of the FelixConfiguration `default`.
    #[serde(default)]
    pub felix: serde_json::Map<String, serde_json::Value>,
    /// Namespaces of pods.
    #[serde(default)]
    pub namespaces: Vec<Namespace>,
    /// Pods that run from the beginning.
    #[serde(default)]
    pub pods: Vec<Pod>,
    /// What each pair of participants tries: `tcp:PORT`, `udp:PORT` or `icmp`.
    #[serde(default = "default_probes")]
    pub probes: Vec<Probe>,
    /// What happens, in order.
    #[serde(default)]
    pub steps: Vec<Step>,
    /// Folder of the file; files that steps name are looked up from here.
    #[serde(skip)]
    pub folder: PathBuf,
}

/// A layer-2 segment.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Segment {
    /// Name.
    pub name: String,
    /// Its subnets, at most one per family. The router has the first address of each.
    pub cidrs: Vec<Cidr>,
}

/// A node.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// Name.
    pub name: String,
    /// Segment that its interface is on.
    pub segment: String,
    /// Labels of the Node.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}

/// A host outside the cluster.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// Name.
    pub name: String,
    /// Segment that its interface is on.
    pub segment: String,
}

/// An IP pool.
#[derive(Debug, Clone, Deserialize)]
pub struct Pool {
    /// Name.
    pub name: String,
    /// The fields of an IPPool's spec.
    #[serde(flatten)]
    pub spec: serde_json::Map<String, serde_json::Value>,
}

/// A namespace.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Namespace {
    /// Name.
    pub name: String,
    /// Labels, for namespace selectors.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}

/// A pod.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pod {
    /// Name.
    pub name: String,
    /// Namespace.
    #[serde(default = "default_namespace")]
    pub namespace: String,
    /// Node that it runs on.
    pub node: String,
    /// Labels.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Named ports.
    #[serde(default)]
    pub ports: Vec<NamedPort>,
    /// Pools (names or CIDRs) that its addresses come from; all that allow it if empty.
    #[serde(default)]
    pub pools: Vec<String>,
}

/// A named port of a pod.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, serde::Serialize)]
#[serde(deny_unknown_fields)]
pub struct NamedPort {
    /// Name.
    pub name: String,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
    /// Number.
    pub port: u16,
}

/// One step: actions in the order of these fields, then what must be reachable.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct Step {
    /// What it does, in plain words.
    pub name: String,
    /// Starts a stream of packets.
    pub flood: Option<Flood>,
    /// YAML for `calicoctl apply -f -`.
    pub apply: Option<String>,
    /// A file for `calicoctl apply -f`.
    pub apply_file: Option<PathBuf>,
    /// YAML for `calicoctl delete -f -`.
    pub delete: Option<String>,
    /// A file for `calicoctl delete -f`.
    pub delete_file: Option<PathBuf>,
    /// Any other calicoctl command.
    pub ctl: Option<Ctl>,
    /// Changes labels of running pods; an empty value removes the label.
    pub label: BTreeMap<String, BTreeMap<String, String>>,
    /// Pods to remove.
    pub delete_pods: Vec<String>,
    /// Pods to start.
    pub add_pods: Vec<Pod>,
    /// Nodes whose Felix is killed at once, without a chance to clean up.
    pub kill_felix: Vec<String>,
    /// Nodes whose Felix is started again; the step goes on when it reports ready.
    pub start_felix: Vec<String>,
    /// Stops the store's server and starts it again (etcd only; nothing to do with SQLite).
    pub restart_store: bool,
    /// Ends the stream of packets and says how many may have been lost.
    pub end_flood: Option<EndFlood>,
    /// What must be reachable now; see [`Expectation`]. No line: nothing is probed.
    pub expect: Vec<String>,
    /// Which source address the target must see.
    pub source: Vec<Source>,
    /// Other probes than the scenario's.
    pub probes: Vec<Probe>,
}

/// A stream of packets.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Flood {
    /// Who sends.
    pub from: String,
    /// Who answers.
    pub to: String,
    /// How; only `udp:PORT`.
    pub probe: Probe,
    /// Packets per second.
    #[serde(default = "default_rate")]
    pub per_second: u32,
}

/// The end of a stream of packets.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EndFlood {
    /// Most packets without an answer.
    #[serde(default)]
    pub lost: u64,
}

/// A calicoctl command with what it must answer.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ctl {
    /// Arguments.
    pub args: Vec<String>,
    /// Standard input.
    #[serde(default)]
    pub stdin: String,
    /// Exit code.
    #[serde(default)]
    pub exit: i32,
    /// Text that must stand in its output (standard output and error).
    #[serde(default)]
    pub output: String,
}

/// Which source address a target must see.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// Who connects.
    pub from: String,
    /// Who looks.
    pub to: String,
    /// How.
    pub probe: Probe,
    /// Whose address: a participant's name.
    pub seen: String,
}

/// What is wrong with a scenario.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// The file cannot be read.
    #[error("{path}: {source}")]
    Read {
        /// File.
        path: String,
        /// What happened.
        #[source]
        source: std::io::Error,
    },
    /// The text is not a scenario.
    #[error("{path}: {reason}")]
    Parse {
        /// File.
        path: String,
        /// Place and reason.
        reason: String,
    },
    /// A value is wrong or names something that is not there.
    #[error("scenario {scenario}: {field}: {reason}")]
    Value {
        /// Scenario.
        scenario: String,
        /// Place in the scenario.
        field: String,
        /// What is wrong.
        reason: String,
    },
}

fn default_settle() -> u64 {
    15
}

fn default_rate() -> u32 {
    500
}

fn default_namespace() -> String {
    "default".into()
}

fn default_probes() -> Vec<Probe> {
    vec![Probe::Tcp(8080)]
}

// === impl Pod ===

impl Pod {
    /// `namespace/name`.
    pub fn id(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

impl fmt::Display for Pod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

// === impl Scenario ===

impl Scenario {
    /// Reads and checks a scenario file.
    pub fn load(path: &Path) -> Result<Self, ScenarioError> {
        let shown = path.display().to_string();
        let text = std::fs::read_to_string(path)
            .map_err(|source| ScenarioError::Read { path: shown.clone(), source })?;
        let mut scenario = Self::parse(&text, &shown)?;
        scenario.folder = path.parent().map(Path::to_path_buf).unwrap_or_default();
        Ok(scenario)
    }

    /// Reads and checks a scenario; `origin` names it in messages.
    pub fn parse(text: &str, origin: &str) -> Result<Self, ScenarioError> {
        let scenario: Self = serde_saphyr::from_str(text)
            .map_err(|e| ScenarioError::Parse { path: origin.into(), reason: e.to_string() })?;
        scenario.check()?;
        Ok(scenario)
    }

    /// Gives the cluster another name.
    pub fn rename(&mut self, name: String) -> Result<(), ScenarioError> {
        self.name = name;
        self.check()
    }

    fn fail(&self, field: impl Into<String>, reason: impl Into<String>) -> ScenarioError {
        ScenarioError::Value { scenario: self.name.clone(), field: field.into(), reason: reason.into() }
    }

    fn check(&self) -> Result<(), ScenarioError> {
        let dns = |s: &str| {
            !s.is_empty()
                && s.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
                && !s.starts_with('-')
                && !s.ends_with('-')
        };
        if !dns(&self.name) || self.name.len() > 20 {
            return Err(self.fail("name", "must be 1 to 20 lower-case letters, digits or dashes"));
        }
        if self.nodes.is_empty() {
            return Err(self.fail("nodes", "at least one is needed"));
        }
        let mut seen = std::collections::BTreeSet::new();
        for (i, segment) in self.segments.iter().enumerate() {
            let field = format!("segments[{i}]");
            if !dns(&segment.name) || !seen.insert(format!("segment {}", segment.name)) {
                return Err(self.fail(field, format!("bad or repeated name {:?}", segment.name)));
            }
            for cidr in &segment.cidrs {
                if !cidr.is_masked() || cidr.size().is_some_and(|n| n < 16) {
                    return Err(self.fail(field, format!("{cidr} has host bits or is too small")));
                }
            }
            for (j, cidr) in segment.cidrs.iter().enumerate() {
                if segment.cidrs[..j].iter().any(|c| c.version() == cidr.version()) {
                    return Err(self.fail(field, "more than one subnet of a family"));
                }
            }
        }
        let on_segment = |name: &str| self.segments.iter().any(|s| s.name == name);
        let machines = self
            .nodes
            .iter()
            .map(|n| ("nodes", &n.name, &n.segment))
            .chain(self.hosts.iter().map(|h| ("hosts", &h.name, &h.segment)));
        for (field, name, segment) in machines {
            if !dns(name) || !seen.insert(name.clone()) {
                return Err(self.fail(field, format!("bad or repeated name {name:?}")));
            }
            if !on_segment(segment) {
                return Err(self.fail(format!("{field}: {name}"), format!("no segment named {segment:?}")));
            }
        }
        for namespace in &self.namespaces {
            if !dns(&namespace.name) {
                return Err(self.fail("namespaces", format!("bad name {:?}", namespace.name)));
            }
        }
        for pod in &self.pods {
            self.check_pod("pods", pod)?;
            if !seen.insert(pod.id()) {
                return Err(self.fail("pods", format!("{pod} is there twice")));
            }
        }
        self.steps.iter().enumerate().try_for_each(|(i, step)| self.check_step(i, step))
    }

    fn check_pod(&self, field: &str, pod: &Pod) -> Result<(), ScenarioError> {
        if !self.nodes.iter().any(|n| n.name == pod.node) {
            return Err(self.fail(format!("{field}: {pod}"), format!("no node named {:?}", pod.node)));
        }
        if pod.namespace != "default" && !self.namespaces.iter().any(|n| n.name == pod.namespace) {
            let reason = format!("no namespace named {:?}", pod.namespace);
            return Err(self.fail(format!("{field}: {pod}"), reason));
        }
        Ok(())
    }

    fn check_step(&self, i: usize, step: &Step) -> Result<(), ScenarioError> {
        let field = |what: &str| format!("steps[{i}] ({}).{what}", step.name);
        for node in step.kill_felix.iter().chain(&step.start_felix) {
            if !self.nodes.iter().any(|n| n.name == *node) {
                return Err(self.fail(field("killFelix/startFelix"), format!("no node named {node:?}")));
            }
        }
        for pod in &step.add_pods {
            self.check_pod(&field("addPods"), pod)?;
        }
        let known = self.all_names();
        let check = |what: &str, name: &str| {
            if known.iter().any(|k| k == name) {
                Ok(())
            } else {
                Err(self.fail(field(what), format!("nothing is named {name:?}")))
            }
        };
        if let Some(flood) = &step.flood {
            check("flood.from", &flood.from)?;
            check("flood.to", &flood.to)?;
            if !matches!(flood.probe, Probe::Udp(_)) {
                return Err(self.fail(field("flood.probe"), "only udp:PORT can be counted"));
            }
        }
        for name in step.label.keys() {
            check("label", name)?;
        }
        for name in &step.delete_pods {
            check("deletePods", name)?;
        }
        for source in &step.source {
            for name in [&source.from, &source.to, &source.seen] {
                check("source", name)?;
            }
        }
        for line in &step.expect {
            let expectation: Expectation =
                line.parse().map_err(|e: ExpectError| self.fail(field("expect"), e.to_string()))?;
            for pattern in expectation.patterns() {
                if !known.iter().any(|name| pattern.matches(name)) {
                    return Err(self.fail(field("expect"), format!("nothing is named {pattern}")));
                }
            }
        }
        Ok(())
    }

    /// Names of everything that can send and receive, now or after a later step.
    fn all_names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.pods.iter().map(Pod::id).collect();
        names.extend(self.steps.iter().flat_map(|s| s.add_pods.iter().map(Pod::id)));
        names.extend(self.hosts.iter().map(|h| h.name.clone()));
        names.extend(self.nodes.iter().map(|n| n.name.clone()));
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINIMAL: &str = "
name: tiny
segments: [{name: lan, cidrs: [172.30.0.0/24]}]
nodes: [{name: n1, segment: lan}]
pools: [{name: p, cidr: 10.1.0.0/16, natOutgoing: true}]
namespaces: [{name: shop}]
pods: [{name: a, namespace: shop, node: n1}]
steps: [{name: look, expect: [allow * -> shop/a]}]
";

    #[test]
    fn a_small_scenario_is_read_with_its_defaults() {
        let s = Scenario::parse(MINIMAL, "tiny.yaml").expect("valid");
        assert_eq!(s.probes, [Probe::Tcp(8080)]);
        assert_eq!(s.settle, 15);
        assert_eq!(s.pools[0].spec["natOutgoing"], true);
        assert_eq!(s.pods[0].id(), "shop/a");
    }

    #[test]
    fn mistakes_are_named_with_their_place() {
        let cases = [
            ("name: tiny", "name: Tiny", "scenario Tiny: name: must be"),
            ("segment: lan}", "segment: wan}", "nodes: n1: no segment named \"wan\""),
            ("172.30.0.0/24", "172.30.0.1/24", "172.30.0.1/24 has host bits"),
            ("namespace: shop, node: n1", "namespace: shop, node: n2", "pods: shop/a: no node named \"n2\""),
            ("namespace: shop,", "namespace: web,", "no namespace named \"web\""),
            ("shop/a]", "shop/b]", "nothing is named shop/b"),
            ("allow * ->", "permit * ->", "expect"),
            ("pods:", "podz:", "podz"),
        ];
        for (from, to, want) in cases {
            let text = MINIMAL.replacen(from, to, 1);
            let error = Scenario::parse(&text, "x.yaml").expect_err(to).to_string();
            assert!(error.contains(want), "{to}: {error}");
        }
    }
}
