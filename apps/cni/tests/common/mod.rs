//! A host of its own for each test: network namespace, datastore, files.
#![allow(dead_code, reason = "each test file uses a part")]

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use calico_api::{AllowedUse, IPPool, Node, WorkloadEndpoint};
use calico_client::{Client, Select};
use calico_cni::{HostPaths, Invocation, Outcome, PluginKind};
use calico_datastore::{CalicoApiConfig, Fallback, Surroundings, connect};
use calico_host::NetNs;
use calico_netlink::Netlink;
use serde_json::{Value, json};

/// Name of the node.
pub const NODE: &str = "larch";
/// Name of the network.
pub const NETWORK: &str = "orchard";

/// One host with its store.
pub struct Host {
    pub dir: tempfile::TempDir,
    pub ns: NetNs,
    pub paths: HostPaths,
    pub client: Client,
    pub runtime: tokio::runtime::Runtime,
    pub env: BTreeMap<String, String>,
}

/// A container: its namespace is mounted where the plugin looks for it.
pub struct Container {
    pub id: String,
    pub path: PathBuf,
    dir: PathBuf,
}

impl Drop for Container {
    fn drop(&mut self) {
        let _ = NetNs::delete_named(&self.dir, &self.id);
    }
}

impl Container {
    pub fn ns(&self) -> NetNs {
        NetNs::open(&self.path).expect("container namespace")
    }

    /// Removes the namespace, as a runtime may do before DEL.
    pub fn destroy(&self) {
        NetNs::delete_named(&self.dir, &self.id).expect("delete");
    }
}

impl Host {
    /// `None`, with the reason printed, where namespaces cannot be made.
    pub fn new(pools: &[(&str, &str, i64)]) -> Option<Self> {
        let ns = match NetNs::new() {
            Ok(ns) => ns,
            Err(error) => {
                let _ = writeln!(std::io::stderr(), "skipped: {error}");
                return None;
            }
        };
        let dir = tempfile::tempdir().expect("directory");
        let paths = HostPaths {
            nodename: dir.path().join("nodename"),
            mtu: dir.path().join("mtu"),
            ipam_lock: dir.path().join("ipam.lock"),
            endpoint_status: dir.path().join("status"),
        };
        std::fs::write(&paths.nodename, NODE).expect("write");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
        let mut config = CalicoApiConfig {
            datastore_type: "sqlite".into(),
            sqlite_path: dir.path().join("store/datastore.db").display().to_string(),
            ..CalicoApiConfig::default()
        };
        let choice = config.choose(Fallback::Never, &Surroundings::of_process()).expect("choice");
        let backend = runtime.block_on(async { connect(&config, &choice) }).expect("store");
        let client = Client::from_backend(backend);
        runtime.block_on(async {
            client.ensure_initialized("v0", "").await.expect("initialise");
            let mut node = Node::default();
            node.metadata.name = NODE.into();
            client.nodes().create(node).await.expect("node");
            for (name, cidr, block_size) in pools {
                let mut pool = IPPool::default();
                pool.metadata.name = (*name).into();
                pool.spec.cidr = (*cidr).into();
                pool.spec.block_size = *block_size;
                pool.spec.allowed_uses = vec![AllowedUse::Workload, AllowedUse::Tunnel];
                client.ip_pools().create(pool).await.expect("pool");
            }
        });
        let host = Self { dir, ns, paths, client, runtime, env: BTreeMap::new() };
        host.links(|nl| {
            let lo = nl.link_by_name("lo").expect("read").expect("lo").index;
            nl.set_link_up(lo, true).expect("lo up");
        });
        Some(host)
    }

    /// Host with a small pool of each family.
    pub fn dual() -> Option<Self> {
        Self::new(&[("amber", "10.93.0.0/24", 28), ("azure", "fd93::/112", 122)])
    }

    pub fn container(&self, id: &str) -> Container {
        let dir = self.dir.path().join("netns");
        NetNs::create_named(&dir, id).expect("container namespace");
        Container { id: id.to_owned(), path: dir.join(id), dir }
    }

    /// The usual configuration.
    pub fn conf(&self) -> Value {
        json!({
            "name": NETWORK,
            "cniVersion": "1.0.0",
            "type": "calico",
            "datastore_type": "sqlite",
            "sqlite_path": self.dir.path().join("store/datastore.db"),
            "ipam": { "type": "calico-ipam" },
        })
    }

    /// The same, with further keys.
    pub fn conf_with(&self, more: Value) -> Value {
        let mut conf = self.conf();
        for (key, value) in more.as_object().expect("object") {
            conf[key] = value.clone();
        }
        conf
    }

    pub fn call(
        &self,
        kind: PluginKind,
        verb: &str,
        id: &str,
        netns: &Path,
        ifname: &str,
        conf: &Value,
    ) -> Outcome {
        let mut env: BTreeMap<String, String> = self.env.clone();
        env.extend(
            [
                ("CNI_COMMAND", verb),
                ("CNI_CONTAINERID", id),
                ("CNI_NETNS", &netns.display().to_string()),
                ("CNI_IFNAME", ifname),
            ]
            .map(|(k, v)| (k.to_owned(), v.to_owned())),
        );
        env.entry("CNI_PATH".into()).or_insert_with(|| "/usr/lib/cni".into());
        let stdin = conf.to_string();
        let invoke = || {
            let lookup = |name: &str| env.get(name).cloned();
            Invocation { kind, args: &[], env: &lookup, stdin: &stdin, paths: &self.paths }.execute()
        };
        self.ns.run(invoke).expect("host namespace")
    }

    pub fn plugin(&self, verb: &str, container: &Container, conf: &Value) -> Outcome {
        self.call(PluginKind::Calico, verb, &container.id, &container.path, "eth0", conf)
    }

    /// ADD that must succeed; its result.
    pub fn add(&self, container: &Container, conf: &Value) -> Value {
        let outcome = self.plugin("ADD", container, conf);
        assert_eq!(outcome.code, 0, "{}", outcome.stdout);
        serde_json::from_str(&outcome.stdout).expect("JSON")
    }

    /// DEL that must succeed.
    pub fn del(&self, container: &Container, conf: &Value) {
        let outcome = self.plugin("DEL", container, conf);
        assert_eq!((outcome.code, outcome.stdout.as_str()), (0, ""));
    }

    /// A call that must fail; code, message and details.
    pub fn refused(&self, verb: &str, container: &Container, conf: &Value) -> (u64, String) {
        let outcome = self.plugin(verb, container, conf);
        assert_eq!(outcome.code, 1, "{}", outcome.stdout);
        let error: Value = serde_json::from_str(&outcome.stdout).expect("JSON");
        (error["code"].as_u64().expect("code"), error["msg"].as_str().expect("msg").to_owned())
    }

    pub fn endpoints(&self) -> Vec<WorkloadEndpoint> {
        let client = self.client.workload_endpoints();
        self.runtime.block_on(client.list(&Select::default())).expect("list").items
    }

    /// Addresses that are assigned, with their handles.
    pub fn assigned(&self) -> Vec<(String, String)> {
        let list = self
            .runtime
            .block_on(self.client.backend().list(&calico_model::ListOptions::Blocks { version: None }, None))
            .expect("blocks");
        let mut assigned = Vec::new();
        for kv in list.items {
            let Some(calico_model::Value::Block(block)) = kv.value else { continue };
            for (i, allocation) in block.allocations.iter().enumerate() {
                let Some(index) = allocation else { continue };
                let handle = block.attributes[*index as usize].handle_id.clone().unwrap_or_default();
                let address = block.cidr.nth(i as u128).expect("in the block");
                assigned.push((address.to_string(), handle.to_string()));
            }
        }
        assigned.sort();
        assigned
    }

    pub fn links<T: Send>(&self, f: impl FnOnce(&mut Netlink) -> T + Send) -> T {
        within(&self.ns, f)
    }

    /// Names of the host's links but `lo`.
    pub fn link_names(&self) -> Vec<String> {
        let mut names: Vec<String> =
            self.links(|nl| nl.links().expect("list").into_iter().map(|l| l.name).collect());
        names.retain(|name| name != "lo");
        names
    }

    /// Nothing of any container is left.
    pub fn assert_clean(&self) {
        assert_eq!(self.endpoints(), vec![]);
        assert_eq!(self.assigned(), vec![]);
        assert_eq!(self.link_names(), Vec::<String>::new());
    }
}

/// Runs `f` with a socket in `ns`.
pub fn within<T: Send>(ns: &NetNs, f: impl FnOnce(&mut Netlink) -> T + Send) -> T {
    ns.run(|| f(&mut Netlink::new().expect("socket"))).expect("namespace")
}
