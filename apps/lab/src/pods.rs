//! Pods: a namespace, wired by the real CNI plugin, and a server process in it.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::IpAddr;
use std::path::Path;
use std::process::{Command, Stdio};

use calico_net::Cidr;
use serde_json::json;

use crate::LabError;
use crate::fabric;
use crate::plan::Machine;
use crate::probe::Probe;
use crate::scenario::{NamedPort, Pod, Scenario};
use crate::state::{Recorded, RunningPod, State};
use crate::store::{self, Kind};

/// Starts a pod: namespace, CNI ADD, server. The state is saved at each step, so that nothing is lost track of.
pub fn start(
    state: &mut State,
    scenario: &Scenario,
    machines: &[Machine],
    pod: &Pod,
    ports: &[Probe],
) -> Result<(), LabError> {
    let prepared = prepare(state, scenario, machines, pod)?;
    let added = add(&prepared);
    finish(state, prepared, added, ports)
}

/// A pod whose namespace is there and whose CNI call is ready to be made.
pub struct Prepared {
    id: String,
    node: String,
    container: String,
    config: String,
    command: Command,
    node_ns: calico_host::NetNs,
}

/// Makes a pod's namespace and its CNI call.
pub fn prepare(
    state: &mut State,
    scenario: &Scenario,
    machines: &[Machine],
    pod: &Pod,
) -> Result<Prepared, LabError> {
    let id = pod.id();
    let ns = state.add_netns(&id)?;
    fabric::prepare(&ns)?;
    let container = format!("{}-{}-{}", state.cluster, pod.namespace, pod.name);
    let config = network_config(state, scenario, machines, pod)?;
    let running = RunningPod {
        node: pod.node.clone(),
        container: container.clone(),
        addresses: Vec::new(),
        config: config.clone(),
    };
    // Known before the plugin runs, so that an interruption still finds it.
    state.pods.insert(id.clone(), running);
    state.save()?;
    let command = cni_command(state, "ADD", &container, &id)?;
    Ok(Prepared { id, node: pod.node.clone(), container, config, command, node_ns: state.netns(&pod.node)? })
}

/// Makes the CNI call; several may run at once.
pub fn add(prepared: &Prepared) -> Result<Vec<IpAddr>, LabError> {
    let mut command = clone_command(&prepared.command);
    let text = call(&mut command, &prepared.node_ns, &prepared.config).map_err(|reason| LabError::Cni {
        call: "ADD",
        pod: prepared.id.clone(),
        reason,
    })?;
    addresses(&text).map_err(|reason| LabError::Cni { call: "ADD", pod: prepared.id.clone(), reason })
}

/// Takes note of what the CNI call gave and starts the pod's server.
pub fn finish(
    state: &mut State,
    prepared: Prepared,
    added: Result<Vec<IpAddr>, LabError>,
    ports: &[Probe],
) -> Result<(), LabError> {
    let addresses = added?;
    let Prepared { id, node, container, config, .. } = prepared;
    state.pods.insert(id.clone(), RunningPod { node, container, addresses, config });
    state.save()?;
    serve(state, &id, ports)
}

/// Stops a pod: server, CNI DEL, namespace.
pub fn stop(state: &mut State, id: &str) -> Result<(), LabError> {
    if let Some(server) = state.processes.remove(&format!("server {id}")) {
        server.end(std::time::Duration::ZERO);
    }
    let pod = state.pods.get(id).cloned().ok_or_else(|| LabError::NoSuch(id.to_owned()))?;
    let mut command = cni_command(state, "DEL", &pod.container, id)?;
    call(&mut command, &state.netns(&pod.node)?, &pod.config).map_err(|reason| LabError::Cni {
        call: "DEL",
        pod: id.to_owned(),
        reason,
    })?;
    state.pods.remove(id);
    state.remove_netns(id)
}

/// Starts the server of a pod or machine, which answers probes on `ports`, and waits until they are open.
pub fn serve(state: &mut State, owner: &str, ports: &[Probe]) -> Result<(), LabError> {
    let what = format!("server {owner}");
    let fail = |reason: String| LabError::Start { what: what.clone(), reason };
    let mut command = Command::new(own_binary()?);
    command.args(["lab", "serve"]).args(ports.iter().map(Probe::to_string));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let ns = state.netns(owner)?;
    let mut child = ns.run(|| command.spawn())?.map_err(|e| fail(e.to_string()))?;
    let mut ready = String::new();
    if let Some(out) = child.stdout.take() {
        BufReader::new(out).read_line(&mut ready).map_err(|e| fail(e.to_string()))?;
    }
    state.processes.insert(what.clone(), Recorded::of(child));
    state.save()?;
    if ready.trim() == "ready" { Ok(()) } else { Err(fail("it could not open its ports".into())) }
}

/// Path of this very program.
pub fn own_binary() -> Result<std::path::PathBuf, LabError> {
    std::env::current_exe().map_err(|e| LabError::io("find", Path::new("/proc/self/exe"), &e))
}

fn cni_command(state: &State, verb: &str, container: &str, pod: &str) -> Result<Command, LabError> {
    let mut command = Command::new(own_binary()?);
    command
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("CNI_COMMAND", verb)
        .env("CNI_CONTAINERID", container)
        .env("CNI_NETNS", state.netns_path(pod)?)
        .env("CNI_IFNAME", "eth0")
        .env("CNI_PATH", "/opt/cni/bin:/usr/lib/cni");
    Ok(command)
}

fn clone_command(command: &Command) -> Command {
    let mut copy = Command::new(command.get_program());
    copy.env_clear();
    copy.envs(command.get_envs().filter_map(|(k, v)| Some((k, v?))));
    copy
}

/// Runs the plugin in the node's namespace; its standard output, or what went wrong.
fn call(command: &mut Command, node: &calico_host::NetNs, config: &str) -> Result<String, String> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = node.run(|| command.spawn()).map_err(|e| e.to_string())?.map_err(|e| e.to_string())?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(config.as_bytes()).map_err(|e| e.to_string())?;
    }
    let out = child.wait_with_output().map_err(|e| e.to_string())?;
    let stdout = String::from_utf8_lossy(&out.stdout).into_owned();
    if out.status.success() {
        return Ok(stdout);
    }
    let message = serde_json::from_str::<serde_json::Value>(&stdout).ok().and_then(|v| {
        let msg = v.get("msg")?.as_str()?.to_owned();
        let details = v.get("details").and_then(|d| d.as_str()).unwrap_or_default();
        Some(if details.is_empty() { msg } else { format!("{msg}: {details}") })
    });
    Err(message.unwrap_or_else(|| format!("{stdout}{}", String::from_utf8_lossy(&out.stderr))))
}

fn addresses(result: &str) -> Result<Vec<IpAddr>, String> {
    let value: serde_json::Value =
        serde_json::from_str(result).map_err(|e| format!("the result is no JSON: {e}"))?;
    let ips = value.get("ips").and_then(|v| v.as_array()).cloned().unwrap_or_default();
    ips.iter()
        .map(|ip| {
            let text = ip.get("address").and_then(|a| a.as_str()).unwrap_or_default();
            Cidr::parse(text).map(|c| c.addr()).map_err(|e| e.to_string())
        })
        .collect()
}

/// The network configuration that a container runtime would hand to the plugin on `pod`'s node.
fn network_config(
    state: &State,
    scenario: &Scenario,
    machines: &[Machine],
    pod: &Pod,
) -> Result<String, LabError> {
    let folder = State::folder(&state.cluster);
    let pools = |version: u8| -> Vec<String> {
        let family = |cidr: &str| Cidr::parse(cidr).is_ok_and(|c| c.version().number() == version);
        scenario
            .pools
            .iter()
            .filter(|p| {
                let cidr = p.spec.get("cidr").and_then(|c| c.as_str()).unwrap_or_default();
                family(cidr) && pod.pools.iter().any(|wanted| *wanted == p.name || wanted == cidr)
            })
            .map(|p| p.name.clone())
            .collect()
    };
    let has = |version: u8| {
        scenario.pools.iter().any(|p| {
            let cidr = p.spec.get("cidr").and_then(|c| c.as_str()).unwrap_or_default();
            Cidr::parse(cidr).is_ok_and(|c| c.version().number() == version)
        })
    };
    let (v4, v6) = (pools(4), pools(6));
    let wants = |version: u8, chosen: &[String]| has(version) && (pod.pools.is_empty() || !chosen.is_empty());
    let mut ipam = json!({
        "type": "calico-ipam",
        "assign_ipv4": wants(4, &v4).to_string(),
        "assign_ipv6": wants(6, &v6).to_string(),
    });
    if !v4.is_empty() {
        ipam["ipv4_pools"] = json!(v4);
    }
    if !v6.is_empty() {
        ipam["ipv6_pools"] = json!(v6);
    }
    let gateway = machines.iter().find(|m| m.name == pod.node).and_then(|m| m.gateways.first().copied());
    let tunnel = |p: &&crate::scenario::Pool| p.spec.get("vxlanMode").is_some_and(|mode| mode != "Never");
    // Nodes of a lab share the host's files, so the MTU is said here: what VXLAN leaves of 1500.
    let mtu = match (scenario.pools.iter().any(|p| tunnel(&p)), has(6)) {
        (true, true) => 1430,
        (true, false) => 1450,
        (false, _) => 1500,
    };
    let mut config = json!({
        "cniVersion": "1.0.0",
        "mtu": mtu,
        "name": "calico-lab",
        "type": "calico",
        "nodename": pod.node,
        "nodename_file_optional": true,
        "log_level": "info",
        "log_file_path": folder.join(format!("cni-{}.log", pod.node)),
        "ipam": ipam,
        "args": { "projectcalico.org": {
            "orchestrator": "k8s",
            "namespace": pod.namespace,
            "pod": pod.name,
            "node": pod.node,
            "labels": pod.labels,
            "ports": pod.ports.iter().map(port).collect::<Vec<_>>(),
            "profiles": [format!("kns.{}", pod.namespace)],
        }},
    });
    match store::kind_of(state) {
        Kind::Sqlite => {
            config["datastore_type"] = json!("sqlite");
            config["sqlite_path"] = json!(store::sqlite_path(state));
        }
        Kind::Etcd => config["etcd_endpoints"] = json!(store::endpoint(gateway)),
    }
    serde_json::to_string(&config).map_err(|e| LabError::Cni {
        call: "ADD",
        pod: pod.id(),
        reason: e.to_string(),
    })
}

fn port(port: &NamedPort) -> serde_json::Value {
    json!({"name": port.name, "protocol": port.protocol, "port": port.port})
}
