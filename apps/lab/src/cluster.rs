//! Building a cluster from its scenario: store, objects, agents, pods.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use calico_api::{FelixConfiguration, IPPool, NodeBgpSpec};
use calico_client::Client;
use calico_client::ipam::{AutoAssignArgs, IpamClient};
use calico_model::kubernetes::namespace_profile;
use calico_model::names::Tunnel;
use calico_net::{Cidr, IpVersion};
use serde_json::json;

use crate::LabError;
use crate::fabric;
use crate::plan::{Machine, machines};
use crate::pods;
use crate::probe::Probe;
use crate::report::Report;
use crate::scenario::{Pod, Scenario};
use crate::state::{Recorded, State};
use crate::store::{self, Kind};
use crate::wait::Patience;

const HEALTH_PORT: u16 = 9099;

/// A running cluster with everything needed to act in it. Made and used by threads in the router's namespace.
pub struct Cluster {
    /// What is known on disk.
    pub state: State,
    /// The scenario.
    pub scenario: Scenario,
    /// Nodes and outside hosts.
    pub machines: Vec<Machine>,
    /// Limits of waiting.
    pub patience: Patience,
}

// === impl Cluster ===

impl Cluster {
    /// A cluster that runs already.
    pub fn open(state: State, patience: Patience) -> Result<Self, LabError> {
        let scenario = Scenario::load(&state.scenario_path)?;
        let machines = machines(&scenario);
        Ok(Self { state, scenario, machines, patience })
    }

    /// Builds everything; what was made is in the state also if this fails.
    pub fn build(
        mut state: State,
        scenario: Scenario,
        patience: Patience,
        report: &mut Report,
    ) -> (State, Result<Vec<Machine>, LabError>) {
        let result = build(&mut state, &scenario, &patience, report);
        (state, result)
    }

    /// Names of everything that runs: pods, outside hosts, nodes.
    pub fn running(&self) -> Vec<String> {
        let machines = self.machines.iter().map(|m| m.name.clone());
        self.state.pods.keys().cloned().chain(machines).collect()
    }

    /// Addresses of a pod or machine.
    pub fn addresses(&self, name: &str) -> Vec<IpAddr> {
        let pod = self.state.pods.get(name).map(|p| p.addresses.clone());
        pod.or_else(|| self.state.addresses.get(name).cloned()).unwrap_or_default()
    }

    /// Every port that some probe of the scenario needs.
    pub fn ports(&self) -> Vec<Probe> {
        ports(&self.scenario)
    }

    /// Starts pods, their CNI calls side by side.
    pub fn add_pods(&mut self, pods: &[Pod]) -> Result<(), LabError> {
        let ports = self.ports();
        add_pods(&mut self.state, &self.scenario, &self.machines, pods, &ports)
    }

    /// Kills a node's Felix at once.
    pub fn kill_felix(&mut self, node: &str) -> Result<(), LabError> {
        if let Some(felix) = self.state.processes.remove(&format!("felix {node}")) {
            felix.end(Duration::ZERO);
        }
        self.state.save()
    }

    /// Starts a node's Felix.
    pub fn start_felix(&mut self, node: &str) -> Result<(), LabError> {
        start_felix(&mut self.state, &self.machines, node)
    }

    /// Waits until the Felix of each node has programmed everything that it knows of.
    pub fn felix_ready(&mut self, nodes: &[String]) -> Result<(), LabError> {
        felix_ready(&mut self.state, nodes, &self.patience)
    }
}

fn ports(scenario: &Scenario) -> Vec<Probe> {
    let mut all: BTreeSet<Probe> = scenario.probes.iter().copied().collect();
    for step in &scenario.steps {
        all.extend(&step.probes);
        all.extend(step.source.iter().map(|s| s.probe));
        all.extend(step.flood.iter().map(|f| f.probe));
    }
    all.into_iter().filter(|p| *p != Probe::Icmp).collect()
}

fn build(
    state: &mut State,
    scenario: &Scenario,
    patience: &Patience,
    report: &mut Report,
) -> Result<Vec<Machine>, LabError> {
    let machines = fabric::build(state, scenario)?;
    report.done(&format!(
        "built the network: {} and a router between them",
        list(scenario.segments.iter().map(|s| format!("segment {} ({})", s.name, join(&s.cidrs))))
    ));
    patience.check()?;
    store::start(state, patience)?;
    let router = state.netns(fabric::ROUTER)?;
    // A server of the store is reached from the router's namespace only.
    router.run(|| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|e| LabError::Start { what: "the async runtime".into(), reason: e.to_string() })?;
        runtime.block_on(async {
            let client = connect(state).await?;
            objects(&client, scenario, &machines).await
        })
    })??;
    let what = match store::kind_of(state) {
        Kind::Sqlite => "an embedded SQLite datastore",
        Kind::Etcd => "an etcd server",
    };
    report.done(&format!(
        "set up {what}: {} nodes, {}",
        scenario.nodes.len(),
        list(scenario.pools.iter().map(|p| format!("pool {} ({})", p.name, pool_words(&p.spec))))
    ));
    let nodes: Vec<String> = scenario.nodes.iter().map(|n| n.name.clone()).collect();
    for node in &nodes {
        patience.check()?;
        start_felix(state, &machines, node)?;
    }
    felix_ready(state, &nodes, patience)?;
    report.done(&format!("started Felix on {}", list(nodes.iter().cloned())));
    let ports = ports(scenario);
    for machine in &machines {
        pods::serve(state, &machine.name, &ports)?;
    }
    patience.check()?;
    add_pods(state, scenario, &machines, &scenario.pods, &ports)?;
    report.done(&format!(
        "wired {} pods with the CNI plugin: {}",
        scenario.pods.len(),
        list(scenario.pods.iter().map(|p| {
            let ips = state.pods.get(&p.id()).map(|r| join(&r.addresses)).unwrap_or_default();
            format!("{p} ({ips})")
        }))
    ));
    Ok(machines)
}

fn add_pods(
    state: &mut State,
    scenario: &Scenario,
    machines: &[Machine],
    pods: &[Pod],
    ports: &[Probe],
) -> Result<(), LabError> {
    if let [pod] = pods {
        return pods::start(state, scenario, machines, pod, ports);
    }
    let mut prepared = Vec::new();
    for pod in pods {
        prepared.push(pods::prepare(state, scenario, machines, pod)?);
    }
    let added: Vec<_> = std::thread::scope(|scope| {
        let calls: Vec<_> = prepared.iter().map(|p| scope.spawn(move || pods::add(p))).collect();
        calls.into_iter().map(|call| call.join().unwrap_or(Err(LabError::Interrupted))).collect()
    });
    prepared.into_iter().zip(added).try_for_each(|(p, a)| pods::finish(state, p, a, ports))
}

/// Connects to a cluster's store from inside the router's namespace.
pub async fn connect(state: &State) -> Result<Client, LabError> {
    let backend = store::open(state)?;
    backend.ensure_initialized().await?;
    Ok(Client::from_backend(backend))
}

/// Makes what a cluster's operator and the node component would make.
async fn objects(client: &Client, scenario: &Scenario, machines: &[Machine]) -> Result<(), LabError> {
    client.ensure_initialized(concat!("v", env!("CARGO_PKG_VERSION")), "lab").await?;
    let mut felix = scenario.felix.clone();
    // No BGP here, so Felix programs the routes between nodes.
    felix.entry("programClusterRoutes").or_insert_with(|| json!("Enabled"));
    let mut config: FelixConfiguration = from_spec("FelixConfiguration", "default", felix)?;
    config.metadata.name = "default".into();
    client.felix_configurations().create(config).await?;
    for pool in &scenario.pools {
        client.ip_pools().create(from_spec::<IPPool>("IPPool", &pool.name, pool.spec.clone())?).await?;
    }
    let mut namespaces: Vec<_> =
        scenario.namespaces.iter().map(|n| (n.name.as_str(), n.labels.clone())).collect();
    if !namespaces.iter().any(|(name, _)| *name == "default") {
        namespaces.push(("default", Default::default()));
    }
    for (name, mut labels) in namespaces {
        labels.entry("kubernetes.io/metadata.name".into()).or_insert_with(|| name.to_owned());
        client.profiles().create(namespace_profile(name, &labels)).await?;
    }
    for machine in machines.iter().filter(|m| m.is_node) {
        let mut node = calico_api::Node::default();
        node.metadata.name = machine.name.clone();
        node.metadata.labels = scenario
            .nodes
            .iter()
            .find(|n| n.name == machine.name)
            .map(|n| n.labels.clone())
            .unwrap_or_default();
        let of = |version: IpVersion| {
            let found = machine.addresses.iter().find(|a| a.version() == version);
            found.map(Cidr::to_string).unwrap_or_default()
        };
        node.spec.bgp = Some(NodeBgpSpec {
            ipv4_address: of(IpVersion::V4),
            ipv6_address: of(IpVersion::V6),
            ..NodeBgpSpec::default()
        });
        client.nodes().create(node).await?;
        tunnel_addresses(client, scenario, &machine.name).await?;
    }
    Ok(())
}

/// Gives a node an address for its VXLAN device from each family's VXLAN pools.
async fn tunnel_addresses(client: &Client, scenario: &Scenario, node: &str) -> Result<(), LabError> {
    let ipam = IpamClient::new(client.backend().clone());
    let mut found: Vec<(IpVersion, IpAddr)> = Vec::new();
    for version in IpVersion::BOTH {
        let pools: Vec<Cidr> = scenario
            .pools
            .iter()
            .filter(|p| p.spec.get("vxlanMode").is_some_and(|mode| mode != "Never"))
            .filter_map(|p| Cidr::parse(p.spec.get("cidr")?.as_str()?).ok())
            .filter(|c| c.version() == version)
            .collect();
        if pools.is_empty() {
            continue;
        }
        let tunnel = match version {
            IpVersion::V4 => Tunnel::Vxlan,
            IpVersion::V6 => Tunnel::VxlanV6,
        };
        let v4 = version == IpVersion::V4;
        let args = AutoAssignArgs {
            num4: u32::from(v4),
            num6: u32::from(!v4),
            handle: Some(tunnel.handle(node).into()),
            attributes: [("node".into(), node.into()), ("type".into(), tunnel.attribute().into())].into(),
            host: node.into(),
            pools4: if v4 { pools.clone() } else { Vec::new() },
            pools6: if v4 { Vec::new() } else { pools },
            intended_use: "Tunnel".into(),
            ..AutoAssignArgs::default()
        };
        let assigned = ipam.auto_assign(args).await;
        if let Some(error) = assigned.error {
            return Err(error.into());
        }
        let family = if v4 { assigned.v4 } else { assigned.v6 };
        let ip = family.and_then(|f| f.ips.first().map(Cidr::addr));
        let ip = ip.ok_or_else(|| LabError::Unexpected(format!("no tunnel address left for {node}")))?;
        found.push((version, ip));
    }
    if found.is_empty() {
        return Ok(());
    }
    client
        .nodes()
        .modify("", node, |n| {
            for (version, ip) in &found {
                match version {
                    IpVersion::V4 => n.spec.ipv4_vxlan_tunnel_addr = ip.to_string(),
                    IpVersion::V6 => n.spec.ipv6_vxlan_tunnel_addr = ip.to_string(),
                }
            }
        })
        .await?;
    Ok(())
}

/// An object from the fields of its spec, read as strictly as calicoctl reads files.
fn from_spec<R: calico_api::Resource>(
    kind: &str,
    name: &str,
    spec: serde_json::Map<String, serde_json::Value>,
) -> Result<R, LabError> {
    let text = json!({
        "kind": kind, "apiVersion": calico_api::API_VERSION, "metadata": {"name": name}, "spec": spec,
    });
    let fail = |reason: String| LabError::Unexpected(format!("{kind}({name}): {reason}"));
    let object =
        calico_api::AnyResource::from_value_strict(R::KIND, &text).map_err(|e| fail(e.to_string()))?;
    R::from_any(object).ok_or_else(|| fail("another kind".into()))
}

fn start_felix(state: &mut State, machines: &[Machine], node: &str) -> Result<(), LabError> {
    let what = format!("felix {node}");
    let fail = |reason: String| LabError::Start { what: what.clone(), reason };
    let log_path = felix_log(state, node);
    let log = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(&log_path)
        .map_err(|e| LabError::io("open", &log_path, &e))?;
    let gateway = machines.iter().find(|m| m.name == node).and_then(|m| m.gateways.first().copied());
    let mut command = Command::new(pods::own_binary()?);
    command
        .args(["component", "felix"])
        .envs(store::environment(state, gateway))
        .env("FELIX_FELIXHOSTNAME", node)
        .env("FELIX_HEALTHENABLED", "true")
        .env("FELIX_HEALTHHOST", "127.0.0.1")
        .env("FELIX_HEALTHPORT", HEALTH_PORT.to_string())
        .env("FELIX_PROMETHEUSMETRICSENABLED", "true")
        .env("FELIX_NFTABLESMODE", "Enabled")
        .env("FELIX_MTUIFACEPATTERN", "^eth0$")
        .env("FELIX_MTUFILE", State::folder(&state.cluster).join(format!("mtu-{node}")))
        .env("FELIX_ENDPOINTSTATUSPATHPREFIX", State::folder(&state.cluster).join(format!("run-{node}")))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log);
    let ns = state.netns(node)?;
    let child = ns.run(|| command.spawn())?.map_err(|e| fail(e.to_string()))?;
    state.processes.insert(what, Recorded::of(child));
    state.save()
}

/// The log of a node's Felix.
pub fn felix_log(state: &State, node: &str) -> PathBuf {
    State::folder(&state.cluster).join(format!("felix-{node}.log"))
}

fn felix_ready(state: &mut State, nodes: &[String], patience: &Patience) -> Result<(), LabError> {
    for node in nodes {
        let ns = state.netns(node)?;
        let what = format!("felix {node}");
        let log = felix_log(state, node);
        patience.until(&format!("Felix of {node} is ready (its log: {})", log.display()), || {
            if ns.run(ready)? {
                return Ok(true);
            }
            if state.processes.get_mut(&what).is_some_and(|p| !p.is_running()) {
                let reason = format!("it ended, see {}\n{}", log.display(), tail(&log));
                return Err(LabError::Start { what: what.clone(), reason });
            }
            Ok(false)
        })?;
    }
    Ok(())
}

/// Asks the health endpoint of the namespace that the calling thread is in.
fn ready() -> bool {
    use std::io::{Read as _, Write as _};
    let at = SocketAddr::from(([127, 0, 0, 1], HEALTH_PORT));
    let Ok(mut stream) = TcpStream::connect_timeout(&at, Duration::from_millis(200)) else { return false };
    let _ = stream.set_read_timeout(Some(Duration::from_secs(1)));
    let mut answer = String::new();
    let asked = stream.write_all(b"GET /readiness HTTP/1.1\r\nHost: felix\r\n\r\n");
    asked.is_ok()
        && stream.read_to_string(&mut answer).is_ok()
        && (answer.starts_with("HTTP/1.1 200") || answer.starts_with("HTTP/1.1 204"))
}

/// The last lines of a log.
pub fn tail(path: &std::path::Path) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(10)..].join("\n")
}

fn pool_words(spec: &serde_json::Map<String, serde_json::Value>) -> String {
    let word = |name: &str| spec.get(name).and_then(|v| v.as_str()).unwrap_or_default().to_owned();
    let mut words = vec![word("cidr")];
    match word("vxlanMode").as_str() {
        "Always" => words.push("VXLAN".into()),
        "CrossSubnet" => words.push("VXLAN between segments".into()),
        _ => words.push("no encapsulation".into()),
    }
    if spec.get("natOutgoing").is_some_and(|v| v == true) {
        words.push("source NAT to the outside".into());
    }
    words.join(", ")
}

fn list(words: impl IntoIterator<Item = String>) -> String {
    words.into_iter().collect::<Vec<_>>().join(", ")
}

fn join<T: ToString>(items: &[T]) -> String {
    items.iter().map(T::to_string).collect::<Vec<_>>().join(" ")
}
