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

#[cfg(test)]
mod tests;

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
