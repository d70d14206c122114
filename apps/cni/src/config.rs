//! The network configuration that a runtime hands over on standard input.
//!
//! Keys match in any case, unknown keys are ignored, of several spellings of one key the last one wins, and `null`
//! leaves a key as if it were absent: what upstream's decoder does. A value of the wrong type is an error that names
//! the key.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::value::RawValue;

use crate::error::{CniError, PluginError};
use crate::request::is_identifier;
use crate::version::SpecVersion;

mod json;

#[cfg(test)]
mod tests;

use json::{Field, fields};

/// Where this host's files are; tests put them elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPaths {
    /// Name of the node, written by the node's agent.
    pub nodename: PathBuf,
    /// MTU for containers, written by Felix.
    pub mtu: PathBuf,
    /// Lock that address managers of this host share.
    pub ipam_lock: PathBuf,
    /// Where Felix says which endpoints are ready.
    pub endpoint_status: PathBuf,
}

impl Default for HostPaths {
    fn default() -> Self {
        Self {
            nodename: "/var/lib/calico/nodename".into(),
            mtu: "/var/lib/calico/mtu".into(),
            ipam_lock: "/var/run/calico/ipam.lock".into(),
            endpoint_status: "/var/run/calico/endpoint-status".into(),
        }
    }
}

/// The kind of network device of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DeviceType {
    /// A veth pair.
    #[default]
    Veth,
    /// A netkit pair; the plugin makes a veth pair where the kernel has no netkit.
    Netkit,
}

/// `ipam`: who manages addresses, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IpamConf {
    /// Plugin; `calico-ipam` is a part of this program.
    pub kind: String,
    /// Whether containers get an IPv4 address. On unless `"false"`.
    pub assign_v4: bool,
    /// Whether containers get an IPv6 address. Off unless `"true"`.
    pub assign_v6: bool,
    /// IPv4 pools to choose from: CIDRs or names; empty for any.
    pub pools_v4: Vec<String>,
    /// IPv6 pools to choose from: CIDRs or names; empty for any.
    pub pools_v6: Vec<String>,
    /// Whether a subnet is to be taken from the Kubernetes node.
    pub uses_pod_cidr: bool,
}

impl Default for IpamConf {
    fn default() -> Self {
        Self {
            kind: String::new(),
            assign_v4: true,
            assign_v6: false,
            pools_v4: Vec::new(),
            pools_v6: Vec::new(),
            uses_pod_cidr: false,
        }
    }
}

/// A named port of a workload, from the arguments.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PortArg {
    /// Name.
    pub name: String,
    /// `TCP`, `UDP` or `SCTP`; TCP if empty.
    pub protocol: String,
    /// Number.
    pub port: u16,
    /// Port of the host that is forwarded here; 0 for none.
    pub host_port: u16,
    /// Address of the host that `host_port` is limited to; empty for all.
    pub host_ip: String,
}

/// `args."projectcalico.org"`: what Kubernetes would tell about a pod, told by whoever calls the plugin without
/// Kubernetes. Upstream's plugin ignores it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WorkloadArgs {
    /// Orchestrator; `k8s` makes endpoints that policies converted from Kubernetes select.
    pub orchestrator: String,
    /// Namespace.
    pub namespace: String,
    /// Pod, or name of the workload for other orchestrators.
    pub pod: String,
    /// Node; wins over every other source of the node's name.
    pub node: String,
    /// Service account.
    pub service_account: String,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Named ports.
    pub ports: Vec<PortArg>,
    /// Profiles, in order; `None` if not given.
    pub profiles: Option<Vec<String>>,
}

/// Where log lines go.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LogConf {
    /// `debug`, `info` or `error`; anything else is `info`.
    pub level: String,
    /// File besides standard error; empty for none.
    pub path: String,
    /// Size in MB from which a new file is begun.
    pub max_size: u64,
    /// Days that old files are kept.
    pub max_age: u64,
    /// Old files that are kept.
    pub max_count: u64,
}

/// A network configuration.
#[derive(Debug, Clone, Default)]
pub struct NetConf {
    /// Version of the CNI specification as written; may be empty.
    pub cni_version: String,
    /// Name of the network.
    pub name: String,
    /// MTU of containers; 0 for the MTU file's.
    pub mtu: u32,
    /// Whether an absent MTU file is an error.
    pub require_mtu_file: bool,
    /// Queues of the device; at least 1.
    pub num_queues: u32,
    /// `device_type` as written.
    pub device_type: String,
    /// Name of the node.
    pub nodename: String,
    /// File with the name of the node; empty for the default one.
    pub nodename_file: String,
    /// Whether the file may be absent.
    pub nodename_file_optional: bool,
    /// Name of the node, old key.
    pub hostname: String,
    /// Settings of the store by the name of the environment variable that they override.
    pub store: BTreeMap<&'static str, String>,
    /// The embedded database's file, for `datastore_type: sqlite`. Our extension.
    pub sqlite_path: String,
    /// `policy.type`.
    pub policy_type: String,
    /// `ipam`.
    pub ipam: IpamConf,
    /// Lock file of address managers; empty for the default one.
    pub ipam_lock_file: String,
    /// Whether containers may forward packets.
    pub allow_ip_forwarding: bool,
    /// `feature_control.ip_addrs_no_ipam`.
    pub ip_addrs_no_ipam: bool,
    /// Log settings.
    pub log: LogConf,
    /// URLs that must answer before ADD goes on.
    pub readiness_gates: Vec<String>,
    /// Seconds to wait until Felix has programmed policy; negative is an error.
    pub policy_setup_timeout_seconds: i64,
    /// Directory of Felix's status files; empty for the default one.
    pub endpoint_status_dir: String,
    /// `dataplane_options.type`; `None` without the key.
    pub dataplane: Option<String>,
    /// Mesos labels of `args."org.apache.mesos"`.
    pub mesos_labels: Vec<(String, String)>,
    /// `args."projectcalico.org"`.
    pub workload: Option<WorkloadArgs>,
    /// `prevResult`.
    pub prev_result: Option<serde_json::Value>,
    /// The configuration as it came, for other plugins.
    pub raw: String,
}

// === impl NetConf ===

impl NetConf {
    /// Reads a configuration.
    ///
    /// Errors of syntax and of the network's name have codes of their own in the CNI specification; errors of other keys
    /// are the plugin's.
    pub fn parse(text: &str) -> Result<Self, PluginError> {
        let raw: &RawValue = serde_json::from_str(text).map_err(not_json)?;
        let list = fields("", raw).map_err(|e| not_json_object(&e))?;
        let mut conf = Self {
            num_queues: 1,
            log: LogConf { max_size: 100, max_age: 30, max_count: 10, ..LogConf::default() },
            raw: text.to_owned(),
            ..Self::default()
        };
        for field in &list {
            conf.take(field)?;
        }
        conf.check_name()?;
        Ok(conf)
    }

    fn take(&mut self, field: &Field<'_>) -> Result<(), PluginError> {
        if let Some(variable) = store_variable(field.key()) {
            self.store.insert(variable, field.text()?);
            return Ok(());
        }
        match field.key() {
            "cniversion" => self.cni_version = field.text()?,
            "name" => self.name = field.text()?,
            // Below zero is the default too.
            "mtu" => self.mtu = u32::try_from(field.number::<i64>()?.max(0)).unwrap_or(u32::MAX),
            "require_mtu_file" => self.require_mtu_file = field.flag()?,
            "num_queues" => {
                let wanted: i64 = field.number()?;
                self.num_queues = u32::try_from(wanted.max(1)).unwrap_or(u32::MAX);
            }
            "device_type" => self.device_type = field.text()?,
            "nodename" => self.nodename = field.text()?,
            "nodename_file" => self.nodename_file = field.text()?,
            "nodename_file_optional" => self.nodename_file_optional = field.flag()?,
            "hostname" => self.hostname = field.text()?,
            "sqlite_path" => self.sqlite_path = field.text()?,
            "qps" | "burst" => {
                let variable = if field.key() == "qps" { "K8S_CLIENT_QPS" } else { "K8S_CLIENT_BURST" };
                let number: i64 = field.number()?;
                if number != 0 {
                    self.store.insert(variable, number.to_string());
                }
            }
            "kubernetes" => self.take_kubernetes(field)?,
            "policy" => {
                for key in field.fields()? {
                    if key.key() == "type" {
                        self.policy_type = key.text()?;
                    }
                }
            }
            "ipam" => self.ipam = IpamConf::read(field)?,
            "ipam_lock_file" => self.ipam_lock_file = field.text()?,
            "container_settings" => {
                for key in field.fields()? {
                    if key.key() == "allow_ip_forwarding" {
                        self.allow_ip_forwarding = key.flag()?;
                    }
                }
            }
            "feature_control" => {
                for key in field.fields()? {
                    if key.key() == "ip_addrs_no_ipam" {
                        self.ip_addrs_no_ipam = key.flag()?;
                    }
                }
            }
            "log_level" => self.log.level = field.text()?,
            "log_file_path" => self.log.path = field.text()?,
            "log_file_max_size" => self.log.max_size = field.number()?,
            "log_file_max_age" => self.log.max_age = field.number()?,
            "log_file_max_count" => self.log.max_count = field.number()?,
            "readiness_gates" => self.readiness_gates = field.texts()?,
            "policy_setup_timeout_seconds" => self.policy_setup_timeout_seconds = field.number()?,
            "endpoint_status_dir" => self.endpoint_status_dir = field.text()?,
            "dataplane_options" => {
                self.dataplane = Some(String::new());
                for key in field.fields()? {
                    if key.key() == "type" {
                        self.dataplane = Some(key.text()?);
                    }
                }
            }
            "args" => self.take_args(field)?,
            "prevresult" => self.prev_result = Some(field.value()?),
            _ => {}
        }
        Ok(())
    }

    fn take_kubernetes(&mut self, field: &Field<'_>) -> Result<(), PluginError> {
        for key in field.fields()? {
            let variable = match key.key() {
                "kubeconfig" => "KUBECONFIG",
                "k8s_api_root" => "K8S_API_ENDPOINT",
                _ => continue,
            };
            let text = key.text()?;
            // What comes after the host is the API's path, which the client adds itself.
            let text = text.split("/api/").next().unwrap_or_default().to_owned();
            self.store.insert(variable, text);
        }
        Ok(())
    }

    fn take_args(&mut self, field: &Field<'_>) -> Result<(), PluginError> {
        for key in field.fields()? {
            match key.key() {
                "projectcalico.org" => self.workload = Some(WorkloadArgs::read(&key)?),
                "org.apache.mesos" => {
                    self.mesos_labels = mesos_labels(&key)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn check_name(&self) -> Result<(), CniError> {
        if self.name.is_empty() {
            return Err(CniError::new(CniError::INVALID_CONFIG, "missing network name"));
        }
        if !is_identifier(&self.name) {
            let error = CniError::new(CniError::INVALID_CONFIG, "invalid characters found in network name");
            return Err(error.with_details(&self.name));
        }
        Ok(())
    }

    /// The version of the specification that the configuration follows.
    pub fn version(&self) -> Result<SpecVersion, CniError> {
        let version = SpecVersion::parse(&self.cni_version).filter(|v| v.is_supported());
        version.ok_or_else(|| {
            let served: Vec<String> = SpecVersion::SUPPORTED.iter().map(|v| format!("\"{v}\"")).collect();
            CniError::new(CniError::INCOMPATIBLE_VERSION, "incompatible CNI versions").with_details(format!(
                "config is \"{}\", plugin supports [{}]",
                self.cni_version,
                served.join(" ")
            ))
        })
    }

    /// The kind of device.
    pub fn device(&self) -> Result<DeviceType, PluginError> {
        match self.device_type.as_str() {
            "" | "veth" => Ok(DeviceType::Veth),
            "netkit" => Ok(DeviceType::Netkit),
            other => Err(PluginError::DeviceType(other.to_owned())),
        }
    }
}

// === impl IpamConf ===

impl IpamConf {
    fn read(field: &Field<'_>) -> Result<Self, PluginError> {
        let mut conf = Self::default();
        for key in field.fields()? {
            match key.key() {
                "type" => conf.kind = key.text()?,
                "assign_ipv4" => conf.assign_v4 = key.switch()? != "false",
                "assign_ipv6" => conf.assign_v6 = key.switch()? == "true",
                "ipv4_pools" => conf.pools_v4 = key.texts()?,
                "ipv6_pools" => conf.pools_v6 = key.texts()?,
                "subnet" => conf.uses_pod_cidr |= is_pod_cidr(&key.text()?),
                "ranges" => {
                    for set in key.items()? {
                        for range in set.items()? {
                            for part in range.fields()? {
                                if part.key() == "subnet" {
                                    conf.uses_pod_cidr |= is_pod_cidr(&part.text()?);
                                }
                            }
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(conf)
    }
}

fn is_pod_cidr(subnet: &str) -> bool {
    subnet.eq_ignore_ascii_case("usePodCidr") || subnet.eq_ignore_ascii_case("usePodCidrIPv6")
}

// === impl WorkloadArgs ===

impl WorkloadArgs {
    fn read(field: &Field<'_>) -> Result<Self, PluginError> {
        let mut args = Self::default();
        for key in field.fields()? {
            match key.key() {
                "orchestrator" => args.orchestrator = key.text()?,
                "namespace" => args.namespace = key.text()?,
                "pod" => args.pod = key.text()?,
                "node" => args.node = key.text()?,
                "serviceaccount" => args.service_account = key.text()?,
                "labels" => args.labels = key.text_map()?,
                "ports" => args.ports = key.items()?.iter().map(PortArg::read).collect::<Result<_, _>>()?,
                "profiles" => args.profiles = Some(key.texts()?),
                other => {
                    // A misspelt key here would silently leave a workload without policy.
                    return Err(PluginError::config(key.path(), format!("unknown key {other}")));
                }
            }
        }
        for (name, value) in [("namespace", &args.namespace), ("pod", &args.pod)] {
            if value.is_empty() && args.orchestrator == calico_model::names::ORCHESTRATOR_KUBERNETES {
                return Err(PluginError::config(
                    format!("{}.{name}", field.path()),
                    "is needed for orchestrator k8s",
                ));
            }
        }
        Ok(args)
    }
}

// === impl PortArg ===

impl PortArg {
    fn read(field: &Field<'_>) -> Result<Self, PluginError> {
        let mut port = Self::default();
        for key in field.fields()? {
            match key.key() {
                "name" => port.name = key.text()?,
                "protocol" => port.protocol = key.text()?,
                "port" => port.port = key.number()?,
                "hostport" => port.host_port = key.number()?,
                "hostip" => port.host_ip = key.text()?,
                other => return Err(PluginError::config(key.path(), format!("unknown key {other}"))),
            }
        }
        if port.port == 0 {
            return Err(PluginError::config(format!("{}.port", field.path()), "must be from 1 to 65535"));
        }
        Ok(port)
    }
}

fn mesos_labels(field: &Field<'_>) -> Result<Vec<(String, String)>, PluginError> {
    let mut labels = Vec::new();
    for info in field.fields()?.iter().filter(|f| f.key() == "network_info") {
        for outer in info.fields()?.iter().filter(|f| f.key() == "labels") {
            for inner in outer.fields()?.iter().filter(|f| f.key() == "labels") {
                for label in inner.items()? {
                    let (mut key, mut value) = (String::new(), String::new());
                    for part in label.fields()? {
                        match part.key() {
                            "key" => key = part.text()?,
                            "value" => value = part.text()?,
                            _ => {}
                        }
                    }
                    labels.push((key, value));
                }
            }
        }
    }
    Ok(labels)
}

/// The environment variable that a key of the configuration overrides.
fn store_variable(key: &str) -> Option<&'static str> {
    Some(match key {
        "datastore_type" => "DATASTORE_TYPE",
        "etcd_endpoints" => "ETCD_ENDPOINTS",
        "etcd_discovery_srv" => "ETCD_DISCOVERY_SRV",
        "etcd_scheme" => "ETCD_SCHEME",
        "etcd_authority" => "ETCD_AUTHORITY",
        "etcd_key_file" => "ETCD_KEY_FILE",
        "etcd_cert_file" => "ETCD_CERT_FILE",
        "etcd_ca_cert_file" => "ETCD_CA_CERT_FILE",
        "calico_api_group" => "CALICO_API_GROUP",
        _ => return None,
    })
}

fn not_json(error: serde_json::Error) -> CniError {
    CniError::new(CniError::DECODING_FAILURE, format!("the network configuration is not JSON: {error}"))
}

fn not_json_object(error: &PluginError) -> CniError {
    CniError::new(CniError::DECODING_FAILURE, error.to_string())
}
