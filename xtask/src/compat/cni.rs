//! The CNI plugin: the real binary, called as a container runtime calls it, in namespaces of its own.
//!
//! The store is a SQLite file in place of etcd. What is compared after each call: exit code, result, what is
//! stored, links, routes and kernel parameters of host and containers. Messages of errors are a case of their own
//! (`cni-words`). Blocks are named as in the scenarios of address management.

mod host;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::{Value, json};

use super::Context;
use super::case::Case;
use super::ctl::{Server, State, Store, binary};
use super::ipam::{Blocks, Sequences};
use super::text::{field, names, pretty, read_json};
use host::Host;

/// Runs every scenario.
pub(crate) fn run(context: &Context) -> anyhow::Result<Vec<Case>> {
    let mut cases = Vec::new();
    let mut lab = None;
    for name in names(&context.path("cni"), |file| file.strip_suffix(".json"))? {
        if !context.wants_any("cni", &name) {
            continue;
        }
        let scenario = read_json(&context.path("cni").join(format!("{name}.json")))?;
        if let Some(why) = missing_part(&scenario) {
            cases.push(Case::not_yet(format!("cni/{name}"), why));
            continue;
        }
        if lab.is_none() {
            lab = Some((binary(context)?, Server::new()?));
        }
        if let Some((binary, server)) = &lab {
            cases.extend(case(&name, &scenario, binary, server).with_context(|| name.clone())?);
        }
    }
    Ok(cases)
}

/// What a scenario needs that the product lacks.
fn missing_part(scenario: &Value) -> Option<&'static str> {
    for step in scenario["steps"].as_array().into_iter().flatten() {
        let configuration = &step["stdin"];
        if field(&configuration["policy"], "type") == "k8s" || configuration.get("kubernetes").is_some() {
            return Some("the Kubernetes datastore");
        }
        if !matches!(field(configuration, "datastore_type"), "etcdv3" | "") {
            return Some("the Kubernetes datastore");
        }
    }
    None
}

/// A scenario in progress.
struct Run<'r> {
    server: &'r Server,
    store: Store,
    host: Host,
    work: PathBuf,
    plugins: PathBuf,
    blocks: Blocks,
}

fn case(name: &str, scenario: &Value, binary: &Path, server: &Server) -> anyhow::Result<Vec<Case>> {
    let folder = tempfile::tempdir()?;
    let work = folder.path().join("work");
    let plugins = folder.path().join("bin");
    std::fs::create_dir(&work)?;
    std::fs::create_dir(&plugins)?;
    for plugin in ["calico", "calico-ipam"] {
        std::os::unix::fs::symlink(binary, plugins.join(plugin))?;
    }
    for plugin in ["host-local", "portmap"] {
        let installed = Path::new("/usr/lib/cni").join(plugin);
        if installed.exists() {
            std::os::unix::fs::symlink(installed, plugins.join(plugin))?;
        }
    }
    let store_folder = folder.path().join("store");
    std::fs::create_dir(&store_folder)?;
    let store = server.sqlite(&store_folder, &State::new())?;
    let state = &scenario["state"];
    server.objects(&store, field(state, "yaml"), state["initialized"] == true)?;
    let mut blocks = Blocks::default();
    blocks.pools_of(field(state, "yaml"))?;
    let mut run = Run { server, store, host: Host::new()?, work, plugins, blocks };
    for pair in state["raw"].as_array().into_iter().flatten() {
        let path = pair[0].as_str().unwrap_or_default();
        run.server.put(&run.store, path, pair[1].as_str())?;
    }
    run.blocks.known(server.dump(&run.store)?.keys());
    for netns in state["netns"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        run.host.shell(&format!("ip netns add {netns}; ip netns exec {netns} ip link set lo up"))?;
    }
    for (path, text) in state["files"].as_object().into_iter().flatten() {
        let path = run.real(path);
        run.host.file(&path, text.as_str().unwrap_or_default())?;
    }
    for command in state["hostCommands"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        run.host.shell(command)?;
    }
    let (mut expected, mut ours) = (Vec::new(), Vec::new());
    let (mut their_words, mut our_words) = (Vec::new(), Vec::new());
    let (mut theirs, mut own) = (Sequences::default(), Sequences::default());
    for step in scenario["steps"].as_array().into_iter().flatten() {
        let (exit, out) = run.call(step)?;
        let stored = server.dump(&run.store)?;
        let result = result(&out);
        run.blocks.pair(&json!({"etcd": step["etcd"], "result": step["stdoutJSON"]}), &result, &stored);
        let seen = run.look(step)?;
        let (left, words) = split(result_of(step));
        their_words.extend(words);
        let (right, words) = split(run.blocks.named(&result));
        our_words.extend(words);
        expected.push(comparable(json!({
            "exit": step["exitCode"], "result": left, "stored": entries(&mut theirs, &texts(&step["etcd"])),
            "containers": step["containers"], "host": step["host"],
        })));
        ours.push(comparable(json!({
            "exit": exit, "result": right, "stored": entries(&mut own, &run.blocks.named_state(&stored)),
            "containers": run.blocks.named(&seen["containers"]), "host": run.blocks.named(&seen["host"]),
        })));
    }
    server.close(&run.store);
    let calls: Vec<Value> = scenario["steps"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|step| json!({"env": step["env"], "stdin": step["stdin"], "prep": step["prep"]}))
        .collect();
    let input = format!("{}\n{}\n{}", field(scenario, "title"), pretty(state), pretty(&json!(calls)));
    let mut cases = vec![Case::json(format!("cni/{name}"), input.clone(), &json!(expected), &json!(ours))];
    if !their_words.is_empty() || !our_words.is_empty() {
        let id = format!("cni-words/{name}");
        cases.push(Case::json(id, input, &json!(their_words), &json!(our_words)));
    }
    Ok(cases)
}

impl Run<'_> {
    /// Makes the call of a step: exit code and standard output.
    fn call(&mut self, step: &Value) -> anyhow::Result<(Option<i32>, String)> {
        for prep in step["prep"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            match prep.strip_prefix("etcd-del:") {
                Some(path) => self.server.put(&self.store, path, None)?,
                None => drop(self.host.shell(prep)?),
            }
        }
        let mut env = BTreeMap::new();
        for (name, value) in step["env"].as_object().into_iter().flatten() {
            let value = self.real(value.as_str().unwrap_or_default());
            let value = if name == "CNI_ARGS" { self.arguments(&value) } else { value };
            env.insert(name.clone(), value);
        }
        let stdin = match &step["stdin"] {
            Value::String(text) => self.raw_configuration(text),
            configuration => self.configuration(configuration).to_string(),
        };
        let plugin = self.plugins.join(field(step, "plugin"));
        let args: Vec<&str> =
            step["argv"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        self.host.run(&plugin, &args, &env, &stdin)
    }

    /// The text of a network configuration that must stay as it was written, with our store in place of etcd.
    fn raw_configuration(&self, text: &str) -> String {
        if !text.contains("$ETCD") {
            return self.real(text);
        }
        let path = json!(self.store.path());
        self.real(
            &text
                .replacen('{', &format!("{{\"sqlite_path\": {path}, "), 1)
                .replace("\"etcdv3\"", "\"sqlite\""),
        )
    }

    /// Addresses that a runtime asks for, as ours.
    fn arguments(&mut self, text: &str) -> String {
        let rename = |pair: &str| match pair.split_once('=') {
            Some(("IP", address)) => format!("IP={}", self.blocks.address(address)),
            _ => pair.to_owned(),
        };
        text.split(';').map(rename).collect::<Vec<_>>().join(";")
    }

    /// The network configuration with our store in place of etcd.
    fn configuration(&self, value: &Value) -> Value {
        match value {
            Value::Object(fields) => {
                let mut out = serde_json::Map::new();
                for (name, value) in fields {
                    match (name.to_lowercase().as_str(), value.as_str()) {
                        ("datastore_type", Some("etcdv3")) => {
                            let dead =
                                fields.values().any(|v| v.as_str().is_some_and(|v| v.contains("$DEAD")));
                            out.insert(name.clone(), if dead { "etcdv3" } else { "sqlite" }.into());
                        }
                        ("etcd_endpoints", Some("$ETCD")) => {
                            out.insert("sqlite_path".into(), self.store.path().into());
                        }
                        _ => drop(out.insert(name.clone(), self.configuration(value))),
                    }
                }
                out.into()
            }
            Value::Array(items) => items.iter().map(|item| self.configuration(item)).collect(),
            Value::String(text) => self.real(text).into(),
            other => other.clone(),
        }
    }

    fn real(&self, text: &str) -> String {
        text.replace("$WORK", &self.work.to_string_lossy())
            .replace("$BIN", &self.plugins.to_string_lossy())
            .replace("$DEADHOSTPORT", "127.0.0.1:9")
    }

    /// What the kernel shows of the namespaces that a step has records of.
    fn look(&self, step: &Value) -> anyhow::Result<Value> {
        let mut containers = serde_json::Map::new();
        for (name, record) in step["containers"].as_object().into_iter().flatten() {
            let seen = if record.is_null() { Value::Null } else { self.host.look(Some(name), record)? };
            containers.insert(name.clone(), seen);
        }
        Ok(json!({"containers": containers, "host": self.host.look(None, &step["host"])?}))
    }
}

fn texts(state: &Value) -> State {
    let entries = state.as_object().into_iter().flatten();
    entries.map(|(path, value)| (path.clone(), value.as_str().unwrap_or_default().to_owned())).collect()
}

fn result(out: &str) -> Value {
    if out.is_empty() { json!("") } else { serde_json::from_str(out).unwrap_or_else(|_| json!(out)) }
}

fn result_of(step: &Value) -> Value {
    if step["stdoutJSON"].is_null() { step["stdout"].clone() } else { step["stdoutJSON"].clone() }
}

/// A result, and the words of an error in it.
fn split(mut result: Value) -> (Value, Option<Value>) {
    match result.as_object_mut() {
        Some(fields) if fields.contains_key("code") => {
            let words = json!({"msg": fields.remove("msg"), "details": fields.remove("details")});
            (result, Some(words))
        }
        _ => (result, None),
    }
}

/// Stored entries that the plugin is about.
fn entries(sequences: &mut Sequences, state: &State) -> Value {
    let about = |path: &&String| {
        [
            "/calico/ipam/",
            "/calico/resources/v3/projectcalico.org/workloadendpoints/",
            "/calico/resources/v3/projectcalico.org/profiles/",
        ]
        .iter()
        .any(|root| path.starts_with(root))
    };
    let kept = state.iter().filter(|(path, _)| about(path)).map(|(path, text)| (path.clone(), text.clone()));
    sequences.comparable(&kept.collect())
}

/// The same without what differs from run to run: addresses of interfaces and what is made of them, UIDs, times.
fn comparable(mut value: Value) -> Value {
    scrub(&mut value);
    value
}

fn scrub(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            // The kernel tells a while later that both ends of a pair are up.
            fields.remove("operstate");
            for (name, value) in fields.iter_mut() {
                let varies = match name.as_str() {
                    "mac" | "address" => {
                        value.as_str().is_some_and(|text| text.len() == 17 && !text.starts_with("ee:ee"))
                    }
                    "uid" | "creationTimestamp" | "timestamp" => value.is_string(),
                    _ => false,
                };
                if varies {
                    *value = "varies".into();
                } else {
                    scrub(value);
                }
            }
        }
        Value::Array(items) => {
            let own = |item: &Value| {
                field(item, "local").starts_with("fe80:") && !field(item, "local").contains("ecee:eeff")
            };
            items.retain(|item| !own(item) && item != "NO-CARRIER" && item != "LOWER_UP");
            items.iter_mut().for_each(scrub);
            // Links, routes and neighbours come in the order in which they were made.
            if items.iter().all(|item| item.get("dev").is_some() || item.get("ifname").is_some()) {
                items.sort_by_key(Value::to_string);
            }
        }
        _ => {}
    }
}
