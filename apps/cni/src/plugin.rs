//! The verbs of `calico` and `calico-ipam`.
//!
//! Owns: the order of steps of each verb and what is undone when one fails. In: a request with its configuration.
//! Out: the text for standard output.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use calico_api::WorkloadEndpoint;
use calico_client::Select;
use calico_host::NetNs;
use calico_model::names::{status_file_name, workload_endpoint_key};

use crate::PluginKind;
use crate::config::{DeviceType, HostPaths, NetConf};
use crate::delegate::Delegate;
use crate::error::{CniError, PluginError};
use crate::ipam::Ipam;
use crate::node;
use crate::request::{Args, Request, Verb};
use crate::result::{AddResult, IpConfig, RouteConfig};
use crate::store::Store;
use crate::version::SpecVersion;
use crate::workload::Workload;

mod add;
mod check;
mod del;

/// The address manager that is part of this program.
const OWN_IPAM: &str = "calico-ipam";
/// Limit for the test of the store's connection.
const TEST_LIMIT: Duration = Duration::from_secs(2);

/// Everything that one call works with.
pub(crate) struct Call<'a> {
    pub request: &'a Request,
    pub conf: &'a NetConf,
    pub version: SpecVersion,
    pub paths: &'a HostPaths,
    pub env: &'a dyn Fn(&str) -> Option<String>,
}

/// Carries out one verb; returns what belongs on standard output.
pub(crate) fn carry_out(
    kind: PluginKind,
    request: &Request,
    stdin: &str,
    paths: &HostPaths,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<String, PluginError> {
    if request.verb == Verb::Version {
        return Ok(version_text());
    }
    let conf = NetConf::parse(stdin)?;
    request.check_names()?;
    let version = verb_version(request.verb, &conf)?;
    let call = Call { request, conf: &conf, version, paths, env };
    match (kind, request.verb) {
        (PluginKind::Calico, Verb::Add) => call.add(),
        (PluginKind::Calico, Verb::Check) => call.check().map(|()| "OK\n".to_owned()),
        (PluginKind::Calico, Verb::Del) => call.del().map(|()| String::new()),
        (PluginKind::CalicoIpam, Verb::Add) => call.ipam_add(),
        (PluginKind::CalicoIpam, Verb::Check) => call.ipam_check().map(|()| String::new()),
        (PluginKind::CalicoIpam, Verb::Del) => call.ipam_del().map(|()| String::new()),
        (_, Verb::Status) => call.status().map(|()| String::new()),
        (_, Verb::Gc | Verb::Version) => Err(not_allowed("plugin", request.verb).into()),
    }
}

/// What `-t` does: fails unless the store of the configuration on standard input is there and ready.
pub(crate) fn test_connection(stdin: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<(), CniError> {
    let attempt = || Store::open(&NetConf::parse(stdin)?, env)?.require_ready_within(TEST_LIMIT);
    attempt().map_err(|error| {
        CniError::new(CniError::CONNECTION_TEST, "data store connection failed")
            .with_details(error.to_string())
    })
}

/// The answer to VERSION.
fn version_text() -> String {
    let served: Vec<String> = SpecVersion::SUPPORTED.iter().map(|v| format!("\"{v}\"")).collect();
    let newest = SpecVersion::V1_1_0;
    format!("{{\"cniVersion\":\"{newest}\",\"supportedVersions\":[{}]}}\n", served.join(","))
}

/// The configuration's version, if it is served and has the verb.
fn verb_version(verb: Verb, conf: &NetConf) -> Result<SpecVersion, CniError> {
    let since = match verb {
        Verb::Check => SpecVersion::V0_4_0,
        Verb::Status | Verb::Gc => SpecVersion::V1_1_0,
        _ => SpecVersion::V0_1_0,
    };
    let version = conf.version()?;
    if version < since {
        return Err(not_allowed("config", verb));
    }
    Ok(version)
}

fn not_allowed(who: &str, verb: Verb) -> CniError {
    let verb = match verb {
        Verb::Add => "ADD",
        Verb::Check => "CHECK",
        Verb::Del => "DEL",
        Verb::Status => "STATUS",
        Verb::Gc => "GC",
        Verb::Version => "VERSION",
    };
    CniError::new(CniError::INCOMPATIBLE_VERSION, format!("{who} version does not allow {verb}"))
}

// === impl Call ===

impl Call<'_> {
    /// Checks what can be checked without the store, and works out who the container is.
    fn identify(&self) -> Result<Workload, PluginError> {
        let conf = self.conf;
        node::require_nodename_file(conf, self.paths)?;
        let node = node::node_name(conf, self.paths)?;
        let args = self.args()?;
        let prefixes = (self.env)("FELIX_INTERFACEPREFIX").unwrap_or_default();
        Ok(Workload::identify(conf, self.request, &args, node, &prefixes))
    }

    fn args(&self) -> Result<Args, PluginError> {
        Ok(Args::parse(&self.request.args, true)?)
    }

    /// Refuses what this version does not do, rather than to leave it out silently.
    fn refuse_unsupported(&self, workload: &Workload) -> Result<(), PluginError> {
        let conf = self.conf;
        let unsupported =
            |feature: &str, hint| Err(PluginError::Unsupported { feature: feature.to_owned(), hint });
        match conf.dataplane.as_deref() {
            None | Some("" | "linux") => {}
            Some("grpc") => return unsupported("dataplane_options.type grpc", "leave dataplane_options out"),
            Some(other) => return Err(PluginError::Dataplane(other.to_owned())),
        }
        if conf.device()? == DeviceType::Netkit {
            tracing::warn!("Device type netkit is not served, a veth pair takes its place");
        }
        if conf.ipam.uses_pod_cidr {
            return unsupported("usePodCidr", "write the subnet, or use calico-ipam");
        }
        if !conf.readiness_gates.is_empty() {
            return unsupported("readiness_gates", "leave the key out");
        }
        if conf.policy_type == "k8s" && conf.workload.is_none() {
            return unsupported(
                "policy.type k8s",
                "there is no Kubernetes API client; pass the pod in args.\"projectcalico.org\", or leave policy out",
            );
        }
        if conf.ip_addrs_no_ipam && !workload.is_kubernetes() {
            return Err(PluginError::UnsupportedFeature("ip_addrs_no_ipam"));
        }
        if conf.policy_setup_timeout_seconds < 0 && workload.is_kubernetes() {
            return Err(PluginError::config("policy_setup_timeout_seconds", "must not be negative"));
        }
        Ok(())
    }

    /// The store, ready for use.
    fn open_store(&self) -> Result<Store, PluginError> {
        let store = Store::open(self.conf, self.env)?;
        store.require_ready()?;
        Ok(store)
    }

    fn ipam<'c>(&'c self, store: &'c Store, workload: &'c Workload) -> Ipam<'c> {
        Ipam { store, conf: self.conf, paths: self.paths, workload }
    }

    fn delegate(&self) -> Result<Delegate<'_>, PluginError> {
        Delegate::find(&self.conf.ipam.kind, self.request)
    }

    fn uses_own_ipam(&self) -> bool {
        self.conf.ipam.kind == OWN_IPAM
    }

    /// Opens the container's namespace and refuses the plugin's own, before anything is changed.
    fn container(&self) -> Result<NetNs, PluginError> {
        let ns = NetNs::open(&self.request.netns)?;
        self.refuse_own(&ns)?;
        Ok(ns)
    }

    fn refuse_own(&self, ns: &NetNs) -> Result<(), PluginError> {
        if !self.request.allow_own_netns && ns.is_same(&NetNs::current()?)? {
            let text = "plugin's netns and netns from CNI_NETNS should not be the same";
            return Err(CniError::new(CniError::INVALID_NETNS, text).into());
        }
        Ok(())
    }

    /// Endpoints of the pod or container, whatever their interface.
    fn endpoints(&self, store: &Store, workload: &Workload) -> Result<Vec<WorkloadEndpoint>, PluginError> {
        let ids = workload.without_interface();
        let prefix = ids.name_prefix()?;
        let select = Select { namespace: &workload.namespace, name: &prefix, prefix: true, revision: None };
        let client = store.client().workload_endpoints();
        let list = store.run("list", "WorkloadEndpoints", client.list(&select))?;
        Ok(list.items.into_iter().filter(|endpoint| ids.matches(&endpoint.metadata.name)).collect())
    }

    /// Waits until Felix says that the endpoint is programmed. Being late is only logged.
    fn await_policy(&self, endpoint: &WorkloadEndpoint) {
        let Ok(seconds) = u64::try_from(self.conf.policy_setup_timeout_seconds) else { return };
        if seconds == 0 {
            return;
        }
        let meta = &endpoint.metadata;
        let Ok(key) = workload_endpoint_key(&meta.namespace, &meta.name) else { return };
        let dir = match self.conf.endpoint_status_dir.as_str() {
            "" => self.paths.endpoint_status.clone(),
            dir => PathBuf::from(dir),
        };
        let file = dir.join(status_file_name(&key));
        let deadline = Instant::now() + Duration::from_secs(seconds);
        while !file.exists() {
            if Instant::now() >= deadline {
                tracing::warn!(file = %file.display(), "Policy was not programmed in time");
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// STATUS: whether ADD could be served.
    fn status(&self) -> Result<(), PluginError> {
        let attempt = || {
            node::require_nodename_file(self.conf, self.paths)?;
            self.open_store().map(drop)
        };
        attempt().map_err(|error: PluginError| {
            let text = "Calico cannot wire containers now";
            CniError::new(CniError::NOT_AVAILABLE, text).with_details(error.to_string()).into()
        })
    }

    /// ADD of `calico-ipam`.
    fn ipam_add(&self) -> Result<String, PluginError> {
        let workload = self.identify()?;
        let store = self.open_store()?;
        let ips = self.ipam(&store, &workload).assign(self.args()?.ip)?;
        let result = ipam_result(&ips);
        let written = if self.conf.cni_version.is_empty() { "0.1.0" } else { &self.conf.cni_version };
        Ok(result.render(self.version, written))
    }

    /// CHECK of `calico-ipam`: every address of the earlier result is still held.
    fn ipam_check(&self) -> Result<(), PluginError> {
        let workload = self.identify()?;
        let store = self.open_store()?;
        let ips: Vec<_> = self.previous()?.ips.iter().map(|ip| ip.address.addr()).collect();
        self.ipam(&store, &workload).check(&ips)
    }

    /// DEL of `calico-ipam`.
    fn ipam_del(&self) -> Result<(), PluginError> {
        let workload = self.identify()?;
        let store = self.open_store()?;
        self.ipam(&store, &workload).release()
    }

    /// The result of the container's ADD, as the runtime hands it over; empty if it does not.
    fn previous(&self) -> Result<AddResult, PluginError> {
        match &self.conf.prev_result {
            None => Ok(AddResult::default()),
            Some(value) => {
                AddResult::parse(value).map_err(|reason| PluginError::config("prevResult", reason))
            }
        }
    }
}

/// Addresses as `calico-ipam` tells them: each with a route to its block.
fn ipam_result(ips: &[calico_net::Cidr]) -> AddResult {
    AddResult {
        ips: ips.iter().map(|ip| IpConfig { address: *ip, gateway: None, interface: None }).collect(),
        routes: ips.iter().map(|ip| RouteConfig { dst: *ip, gw: None }).collect(),
        ..AddResult::default()
    }
}
