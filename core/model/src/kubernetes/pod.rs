//! What a pod gives to its workload endpoint: labels, profiles, named ports.

use std::collections::BTreeMap;

use calico_api::WorkloadEndpointPort;
use calico_api::k8s::PodSpec;
use calico_net::Protocol;

use crate::names::{
    LABEL_NAMESPACE, LABEL_ORCHESTRATOR, LABEL_SERVICE_ACCOUNT, namespace_profile, service_account_profile,
};

/// Longest value of a label.
const MAX_LABEL_VALUE: usize = 63;

/// Labels of the endpoint: the pod's own, and those that Calico adds, which win.
///
/// The service account's label is left out if the name would be too long for a label of Kubernetes; rules that
/// name service accounts still work, because Felix adds it.
pub fn pod_labels(
    labels: &BTreeMap<String, String>,
    orchestrator: &str,
    namespace: &str,
    service_account: &str,
) -> BTreeMap<String, String> {
    let mut out = labels.clone();
    out.insert(LABEL_NAMESPACE.to_owned(), namespace.to_owned());
    out.insert(LABEL_ORCHESTRATOR.to_owned(), orchestrator.to_owned());
    if !service_account.is_empty() && service_account.len() < MAX_LABEL_VALUE {
        out.insert(LABEL_SERVICE_ACCOUNT.to_owned(), service_account.to_owned());
    }
    out
}

/// Profiles of the endpoint: that of the namespace, then that of the service account if there is one.
pub fn pod_profiles(namespace: &str, service_account: &str) -> Vec<String> {
    let mut out = vec![namespace_profile(namespace)];
    if !service_account.is_empty() {
        out.push(service_account_profile(namespace, service_account));
    }
    out
}

/// Ports that the containers declare and that have a name or a port of the host; containers first, then init
/// containers. Entries that Kubernetes itself would refuse (bad number, unknown protocol) are left out.
pub fn pod_ports(spec: &PodSpec) -> Vec<WorkloadEndpointPort> {
    spec.containers
        .iter()
        .chain(&spec.init_containers)
        .flat_map(|container| &container.ports)
        .filter_map(|port| {
            let protocol = match port.protocol.as_str() {
                "" | "TCP" => "TCP",
                "UDP" => "UDP",
                "SCTP" => "SCTP",
                _ => return None,
            };
            let number = u16::try_from(port.container_port).ok().filter(|number| *number != 0)?;
            let host_port = u16::try_from(port.host_port).ok()?;
            (host_port != 0 || !port.name.is_empty()).then(|| WorkloadEndpointPort {
                name: port.name.clone(),
                protocol: Some(Protocol::Name(protocol.into())),
                port: number,
                host_port,
                host_ip: port.host_ip.clone(),
            })
        })
        .collect()
}
