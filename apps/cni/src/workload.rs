//! Whose interface this is: identity, names and the endpoint object.

use std::net::IpAddr;

use calico_api::{EntityRule, Profile, Rule, WorkloadEndpoint, WorkloadEndpointPort};
use calico_model::names::{
    LABEL_NAMESPACE, LABEL_ORCHESTRATOR, LABEL_SERVICE_ACCOUNT, ORCHESTRATOR_CNI, ORCHESTRATOR_KUBERNETES,
    WorkloadEndpointIds, container_interface, legacy_pod_handle, namespace_profile, pod_handle,
    pod_interface, service_account_profile,
};
use calico_net::{Cidr, Mac, Protocol};

use crate::config::{NetConf, PortArg};
use crate::error::PluginError;
use crate::request::{Args, Request};

/// Namespace of containers that have none.
const DEFAULT_NAMESPACE: &str = "default";
/// Longest service account that fits a label.
const LABEL_LIMIT: usize = 63;

/// A container's place in the cluster.
#[derive(Debug, Clone)]
pub struct Workload {
    /// Node, orchestrator, pod or container, interface.
    pub ids: WorkloadEndpointIds,
    /// Namespace.
    pub namespace: String,
    /// Name of the interface's host end.
    pub host_interface: String,
    container_id: String,
    network: String,
}

// === impl Workload ===

impl Workload {
    /// Works out who the container is. `interface_prefixes` is Felix's setting of that name.
    pub fn identify(
        conf: &NetConf,
        request: &Request,
        args: &Args,
        node: String,
        interface_prefixes: &str,
    ) -> Self {
        let given = conf.workload.as_ref().filter(|w| !w.orchestrator.is_empty());
        let (orchestrator, namespace, name) = match given {
            Some(w) => (w.orchestrator.as_str(), w.namespace.as_str(), w.pod.as_str()),
            None if !args.pod.is_empty() && !args.namespace.is_empty() => {
                (ORCHESTRATOR_KUBERNETES, args.namespace.as_str(), args.pod.as_str())
            }
            None => {
                let mesos = conf.mesos_labels.iter().rev().find(|(key, _)| key == LABEL_NAMESPACE);
                let namespace = mesos.map_or(args.test_namespace.as_str(), |(_, value)| value.as_str());
                (ORCHESTRATOR_CNI, namespace, "")
            }
        };
        let namespace = if namespace.is_empty() { DEFAULT_NAMESPACE } else { namespace };
        let mut ids = WorkloadEndpointIds {
            node: node.into(),
            orchestrator: orchestrator.into(),
            endpoint: request.ifname.as_str().into(),
            ..WorkloadEndpointIds::default()
        };
        let host_interface = match orchestrator {
            ORCHESTRATOR_KUBERNETES => {
                ids.pod = name.into();
                pod_interface(interface_prefixes, namespace, name)
            }
            ORCHESTRATOR_CNI => {
                ids.container_id = request.container_id.as_str().into();
                container_interface(&request.container_id)
            }
            _ => {
                ids.workload = if name.is_empty() { request.container_id.as_str() } else { name }.into();
                container_interface(&request.container_id)
            }
        };
        Self {
            ids,
            namespace: namespace.to_owned(),
            host_interface,
            container_id: request.container_id.clone(),
            network: conf.name.clone(),
        }
    }

    /// True for a pod, whose container may be another one after a restart.
    pub fn is_kubernetes(&self) -> bool {
        self.ids.orchestrator == ORCHESTRATOR_KUBERNETES
    }

    /// The same without the interface: all endpoints of the pod or container.
    pub fn without_interface(&self) -> WorkloadEndpointIds {
        WorkloadEndpointIds { endpoint: Default::default(), ..self.ids.clone() }
    }

    /// Handle under which the container's addresses are held.
    pub fn handle(&self) -> String {
        pod_handle(&self.network, &self.container_id)
    }

    /// Handle that very old plugins used.
    pub fn legacy_handle(&self) -> String {
        if self.is_kubernetes() {
            legacy_pod_handle(&self.namespace, &self.ids.pod)
        } else {
            self.container_id.clone()
        }
    }

    /// True if `endpoint` was made for another container than the request's.
    pub fn is_foreign(&self, endpoint: &WorkloadEndpoint) -> bool {
        let theirs = &endpoint.spec.container_id;
        !theirs.is_empty() && *theirs != self.container_id
    }

    /// The endpoint to be stored: a new one, or `existing` with everything that the container decides set anew.
    pub fn endpoint(
        &self,
        conf: &NetConf,
        existing: Option<WorkloadEndpoint>,
        ips: &[IpAddr],
        mac: Mac,
    ) -> Result<WorkloadEndpoint, PluginError> {
        let mut endpoint = match existing {
            Some(endpoint) => endpoint,
            None => {
                let mut endpoint = WorkloadEndpoint::default();
                endpoint.metadata.name = self.ids.name()?;
                endpoint.metadata.namespace = self.namespace.clone();
                endpoint.spec.endpoint = self.ids.endpoint.to_string();
                endpoint
            }
        };
        endpoint.metadata.labels = self.labels(conf);
        let spec = &mut endpoint.spec;
        spec.orchestrator = self.ids.orchestrator.to_string();
        spec.node = self.ids.node.to_string();
        spec.pod = self.ids.pod.to_string();
        spec.workload = self.ids.workload.to_string();
        spec.container_id = self.container_id.clone();
        spec.ip_networks = ips.iter().map(|ip| Cidr::host(*ip).to_string()).collect();
        spec.profiles = self.profiles(conf);
        spec.interface_name = self.host_interface.clone();
        spec.mac = mac.to_string();
        if let Some(workload) = &conf.workload {
            spec.service_account_name = workload.service_account.clone();
            spec.ports = workload.ports.iter().map(endpoint_port).collect::<Result<_, _>>()?;
        }
        Ok(endpoint)
    }

    fn labels(&self, conf: &NetConf) -> std::collections::BTreeMap<String, String> {
        let mut labels = std::collections::BTreeMap::new();
        let mesos = conf.mesos_labels.iter().filter(|(key, _)| key != LABEL_NAMESPACE);
        labels.extend(mesos.map(|(k, v)| (label_text(k), label_text(v))));
        if let Some(workload) = &conf.workload {
            labels.extend(workload.labels.iter().map(|(k, v)| (k.clone(), v.clone())));
            let account = &workload.service_account;
            if !account.is_empty() && account.len() < LABEL_LIMIT {
                labels.insert(LABEL_SERVICE_ACCOUNT.to_owned(), account.clone());
            }
        }
        labels.insert(LABEL_NAMESPACE.to_owned(), self.namespace.clone());
        labels.insert(LABEL_ORCHESTRATOR.to_owned(), self.ids.orchestrator.to_string());
        labels
    }

    /// Profiles: those of the arguments; for a pod of the arguments those of its namespace and service account; else one
    /// of the network's name.
    fn profiles(&self, conf: &NetConf) -> Vec<String> {
        match &conf.workload {
            Some(w) if w.profiles.is_some() => w.profiles.clone().unwrap_or_default(),
            Some(w) if self.is_kubernetes() => {
                let mut profiles = vec![namespace_profile(&self.namespace)];
                if !w.service_account.is_empty() {
                    profiles.push(service_account_profile(&self.namespace, &w.service_account));
                }
                profiles
            }
            _ => vec![self.network.clone()],
        }
    }

    /// The profile of the network, for endpoints that name it: lets everything out, and in from endpoints of the same
    /// network, or for pods from everywhere.
    pub fn network_profile(&self) -> Profile {
        let mut profile = Profile::default();
        profile.metadata.name = self.network.clone();
        let allow = || Rule { action: calico_api::Action::Allow, ..Rule::default() };
        let source = EntityRule {
            selector: if self.is_kubernetes() { String::new() } else { format!("has({})", self.network) },
            ..EntityRule::default()
        };
        profile.spec.ingress = vec![Rule { source, ..allow() }];
        profile.spec.egress = vec![allow()];
        profile.spec.labels_to_apply.insert(self.network.clone(), String::new());
        profile
    }

    /// True if the endpoint takes the profile of the network's name.
    pub fn needs_network_profile(&self, endpoint: &WorkloadEndpoint) -> bool {
        endpoint.spec.profiles.contains(&self.network)
    }

    /// Name of the network.
    pub fn network(&self) -> &str {
        &self.network
    }
}

fn endpoint_port(port: &PortArg) -> Result<WorkloadEndpointPort, PluginError> {
    let protocol = Protocol::parse(if port.protocol.is_empty() { "TCP" } else { &port.protocol });
    if !protocol.supports_ports() {
        return Err(PluginError::config(
            "args.projectcalico.org.ports",
            format!("port {}: protocol {protocol} has no ports; use TCP, UDP or SCTP", port.name),
        ));
    }
    Ok(WorkloadEndpointPort {
        name: port.name.clone(),
        protocol: Some(protocol),
        port: port.port,
        host_port: port.host_port,
        host_ip: port.host_ip.clone(),
    })
}

/// A Mesos label's key or value as a label: `/` becomes `.`, other characters that labels do not have become `-`, a run
/// of dots and dashes that has a dot becomes one dot, and the ends are cut.
fn label_text(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut run = String::new();
    let flush = |out: &mut String, run: &mut String| {
        if run.contains('.') {
            out.push('.');
        } else {
            out.push_str(run);
        }
        run.clear();
    };
    for c in text.chars() {
        match c {
            '/' | '.' => run.push('.'),
            c if c.is_ascii_alphanumeric() || c == '_' => {
                flush(&mut out, &mut run);
                out.push(c);
            }
            _ => run.push('-'),
        }
    }
    flush(&mut out, &mut run);
    out.trim_matches(['.', '-', '_']).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conf(extra: &str) -> NetConf {
        NetConf::parse(&format!(r#"{{"name": "net"{extra}}}"#)).expect("configuration")
    }

    fn workload(conf: &NetConf, args: &str) -> Workload {
        let env = [
            ("CNI_COMMAND", "ADD"),
            ("CNI_CONTAINERID", "0123456789abcdef"),
            ("CNI_NETNS", "/n"),
            ("CNI_IFNAME", "eth0"),
            ("CNI_PATH", "/p"),
        ];
        let request =
            Request::from_env(&|name| env.iter().find(|(k, _)| *k == name).map(|(_, v)| (*v).to_owned()));
        let request = request.expect("sound").expect("a verb");
        let args = Args::parse(args, true).expect("args");
        Workload::identify(conf, &request, &args, "node-1".into(), "")
    }

    const K8S: &str = r#", "args": {"projectcalico.org": {"orchestrator": "k8s", "namespace": "shop", "pod": "web-1",
        "serviceAccount": "sa", "labels": {"app": "web", "projectcalico.org/namespace": "lies"},
        "ports": [{"name": "http", "port": 80}, {"name": "dns", "protocol": "UDP", "port": 53}]}}"#;

    #[test]
    fn identities() {
        for (conf_text, args, name, namespace, interface, handle, legacy) in [
            (
                "",
                "",
                "node--1-cni-0123456789abcdef-eth0",
                "default",
                "cali0123456789a",
                "net.0123456789abcdef",
                "0123456789abcdef",
            ),
            (
                "",
                "CNI_TEST_NAMESPACE=lab;K8S_POD_NAMESPACE=x",
                "node--1-cni-0123456789abcdef-eth0",
                "lab",
                "cali0123456789a",
                "net.0123456789abcdef",
                "0123456789abcdef",
            ),
            (
                "",
                "K8S_POD_NAME=mypod;K8S_POD_NAMESPACE=default",
                "node--1-k8s-mypod-eth0",
                "default",
                "cali4e199eba087",
                "net.0123456789abcdef",
                "default.mypod",
            ),
            (
                r#", "args": {"org.apache.mesos": {"network_info": {"labels": {"labels": [
                    {"key": "projectcalico.org/namespace", "value": "shop"}]}}}}"#,
                "",
                "node--1-cni-0123456789abcdef-eth0",
                "shop",
                "cali0123456789a",
                "net.0123456789abcdef",
                "0123456789abcdef",
            ),
            (
                K8S,
                "",
                "node--1-k8s-web--1-eth0",
                "shop",
                "cali6dbbb2a0c7c",
                "net.0123456789abcdef",
                "shop.web-1",
            ),
            (
                r#", "args": {"projectcalico.org": {"orchestrator": "nomad", "pod": "job"}}"#,
                "",
                "node--1-nomad-job-eth0",
                "default",
                "cali0123456789a",
                "net.0123456789abcdef",
                "0123456789abcdef",
            ),
        ] {
            let conf = conf(conf_text);
            let w = workload(&conf, args);
            assert_eq!(w.ids.name().expect("name"), name);
            assert_eq!(w.namespace, namespace, "{name}");
            if name != "node--1-k8s-web--1-eth0" {
                assert_eq!(w.host_interface, interface, "{name}");
            }
            assert_eq!((w.handle(), w.legacy_handle()), (handle.to_owned(), legacy.to_owned()), "{name}");
            assert!(w.without_interface().matches(name), "{name}");
        }
    }

    #[test]
    fn endpoints_of_pods_told_by_arguments() {
        let conf = conf(K8S);
        let w = workload(&conf, "");
        let ips = ["10.0.0.5".parse().expect("v4"), "fd00::5".parse().expect("v6")];
        let endpoint = w.endpoint(&conf, None, &ips, Mac([2, 0, 0, 0, 0, 1])).expect("endpoint");
        let labels: Vec<_> = endpoint.metadata.labels.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        assert_eq!(
            labels,
            [
                ("app", "web"),
                ("projectcalico.org/namespace", "shop"),
                ("projectcalico.org/orchestrator", "k8s"),
                ("projectcalico.org/serviceaccount", "sa"),
            ]
        );
        let spec = &endpoint.spec;
        assert_eq!(spec.profiles, ["kns.shop", "ksa.shop.sa"]);
        assert_eq!(spec.ip_networks, ["10.0.0.5/32", "fd00::5/128"]);
        assert_eq!((spec.pod.as_str(), spec.container_id.as_str()), ("web-1", "0123456789abcdef"));
        let ports: Vec<_> =
            spec.ports.iter().map(|p| (p.name.as_str(), p.port, p.protocol.clone())).collect();
        assert_eq!(
            ports,
            [("http", 80, Some(Protocol::parse("TCP"))), ("dns", 53, Some(Protocol::parse("UDP")))]
        );
        assert!(!w.needs_network_profile(&endpoint));
        let bad = conf_with_protocol();
        let error = workload(&bad, "").endpoint(&bad, None, &ips, Mac([0; 6])).expect_err("protocol");
        assert!(error.to_string().contains("protocol carrier pigeon has no ports"), "{error}");
    }

    fn conf_with_protocol() -> NetConf {
        conf(
            r#", "args": {"projectcalico.org": {"orchestrator": "k8s", "namespace": "a", "pod": "b",
                "ports": [{"name": "x", "protocol": "carrier pigeon", "port": 1}]}}"#,
        )
    }

    #[test]
    fn endpoints_and_profiles_of_plain_containers() {
        let conf = conf("");
        let w = workload(&conf, "");
        let ips = ["10.0.0.5".parse().expect("v4")];
        let endpoint = w.endpoint(&conf, None, &ips, Mac([2, 0, 0, 0, 0, 1])).expect("endpoint");
        assert_eq!(endpoint.spec.profiles, ["net"]);
        assert!(w.needs_network_profile(&endpoint));
        let profile = w.network_profile();
        assert_eq!(profile.spec.ingress[0].source.selector, "has(net)");
        assert!(profile.spec.labels_to_apply.contains_key("net"));
        let pod = workload(&conf, "K8S_POD_NAME=p;K8S_POD_NAMESPACE=n");
        assert_eq!(pod.network_profile().spec.ingress[0].source.selector, "");
        let mut other = endpoint;
        assert!(!w.is_foreign(&other));
        other.spec.container_id = "another".into();
        assert!(w.is_foreign(&other));
        other.spec.container_id.clear();
        assert!(!w.is_foreign(&other));
    }

    #[test]
    fn labels_of_mesos() {
        for (text, want) in [
            ("plain", "plain"),
            ("com.example/app", "com.example.app"),
            ("a b", "a-b"),
            ("a-/-b", "a.b"),
            ("a--b", "a--b"),
            ("/a/", "a"),
            ("_a_", "a"),
            ("ü", ""),
        ] {
            assert_eq!(label_text(text), want, "{text}");
        }
    }
}
