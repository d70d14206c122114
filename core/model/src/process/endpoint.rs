//! Workload endpoints and host endpoints.

use std::net::IpAddr;
use std::sync::Arc;

use calico_api as api;
use calico_net::{Cidr, IpVersion, Mac, cidr::parse_ip};
use smol_str::SmolStr;

use super::network::labels;
use super::{Converted, ProcessError, object, unreadable, words};
use crate::key::{Key, ResourceKey};
use crate::names::{
    LABEL_SERVICE_ACCOUNT, NAMESPACE_LABEL_PREFIX, SERVICE_ACCOUNT_LABEL_PREFIX, workload_endpoint_key,
};
use crate::policy::{EndpointPort, HostEndpoint, QosControls, WorkloadEndpoint};
use crate::value::Value;

/// Annotation that sets the DSCP value of packets that leave the cluster.
const DSCP_ANNOTATION: &str = "qos.projectcalico.org/dscp";

pub(super) fn workload_key(source: &ResourceKey) -> Result<Key, ProcessError> {
    match workload_endpoint_key(&source.namespace, &source.name) {
        Ok(key) => Ok(Key::WorkloadEndpoint(key)),
        Err(error) => Err(ProcessError::BadName { key: source.clone(), reason: error.to_string() }),
    }
}

pub(super) fn workload(source: &ResourceKey, value: &Value) -> Converted {
    let endpoint = object::<api::WorkloadEndpoint>(source, value)?;
    let spec = &endpoint.spec;
    if spec.ip_networks.is_empty() {
        // The workload has no address yet, or no longer.
        return Ok((None, None));
    }
    let bad = |field, text: &str| unreadable(source, field, text);
    let (mut ipv4_nets, mut ipv6_nets) = (Vec::new(), Vec::new());
    for text in &spec.ip_networks {
        let net = Cidr::parse(text).map_err(|_| bad("spec.ipNetworks", text))?.masked();
        match net.version() {
            IpVersion::V4 => ipv4_nets.push(net),
            IpVersion::V6 => ipv6_nets.push(net),
        }
    }
    let ip = |field, text: &str| parse_ip(text).ok_or_else(|| bad(field, text));
    let mut nats: Vec<(IpAddr, IpAddr)> = Vec::with_capacity(spec.ip_nats.len());
    for nat in &spec.ip_nats {
        let external = ip("spec.ipNATs.externalIP", &nat.external_ip)?;
        nats.push((external, ip("spec.ipNATs.internalIP", &nat.internal_ip)?));
    }
    for (field, gateway) in
        [("spec.ipv4Gateway", &spec.ipv4_gateway), ("spec.ipv6Gateway", &spec.ipv6_gateway)]
    {
        if !gateway.is_empty() {
            ip(field, gateway)?;
        }
    }
    let mac = match spec.mac.as_str() {
        "" => None,
        text => Some(text.parse::<Mac>().map_err(|_| bad("spec.mac", text))?),
    };
    let mut labels = labels(&endpoint.metadata);
    // Only profiles may give these labels: a workload must not pretend to be of another namespace or account.
    labels.retain(|name, _| {
        !name.starts_with(NAMESPACE_LABEL_PREFIX) && !name.starts_with(SERVICE_ACCOUNT_LABEL_PREFIX)
    });
    if !spec.service_account_name.is_empty() {
        labels.insert(LABEL_SERVICE_ACCOUNT.into(), (&spec.service_account_name).into());
    }
    let ports = spec.ports.iter().filter_map(|p| named_port(&p.name, p.protocol.as_ref(), p.port)).collect();
    let prefixes = spec.allow_spoofed_source_prefixes.iter();
    let made = WorkloadEndpoint {
        interface_name: (&spec.interface_name).into(),
        mac,
        profile_ids: words(&spec.profiles),
        ipv4_nets,
        ipv6_nets,
        nats,
        labels,
        ports,
        allow_spoofed_source_prefixes: prefixes
            .filter_map(|text| Cidr::parse(text).ok())
            .map(|cidr| cidr.masked())
            .collect(),
        qos: spec.qos_controls.as_ref().and_then(qos).map(Box::new),
        annotations: endpoint
            .metadata
            .annotations
            .iter()
            .map(|(name, value)| (SmolStr::from(name), SmolStr::from(value)))
            .collect(),
    };
    Ok((Some(Value::WorkloadEndpoint(Arc::new(made))), None))
}

pub(super) fn host(source: &ResourceKey, value: &Value) -> Result<(Key, Value), ProcessError> {
    let endpoint = object::<api::HostEndpoint>(source, value)?;
    let spec = &endpoint.spec;
    if spec.node.is_empty() {
        return Err(unreadable(source, "spec.node", ""));
    }
    let mut expected_ips = Vec::with_capacity(spec.expected_ips.len());
    for text in &spec.expected_ips {
        expected_ips.push(parse_ip(text).ok_or_else(|| unreadable(source, "spec.expectedIPs", text))?);
    }
    let dscp = endpoint.metadata.annotations.get(DSCP_ANNOTATION);
    let made = HostEndpoint {
        interface_name: (&spec.interface_name).into(),
        expected_ips,
        labels: labels(&endpoint.metadata),
        profile_ids: words(&spec.profiles),
        ports: spec.ports.iter().filter_map(|p| named_port(&p.name, p.protocol.as_ref(), p.port)).collect(),
        dscp: dscp.and_then(|text| api::Dscp::parse(text).code_point()),
    };
    let key = Key::HostEndpoint { host: (&spec.node).into(), endpoint: source.name.clone() };
    Ok((key, Value::HostEndpoint(Arc::new(made))))
}

/// Rules find ports by name: ports without a name, or without a protocol, are of no use to them.
fn named_port(name: &str, protocol: Option<&calico_net::Protocol>, port: u16) -> Option<EndpointPort> {
    let protocol = protocol?.to_lower();
    (!name.is_empty()).then(|| EndpointPort { name: name.into(), protocol, port })
}

fn qos(q: &api::QosControls) -> Option<QosControls> {
    let made = QosControls {
        bandwidth: (q.ingress_bandwidth, q.egress_bandwidth),
        burst: (q.ingress_burst, q.egress_burst),
        peak_rate: (q.ingress_peakrate, q.egress_peakrate),
        min_burst: (q.ingress_minburst, q.egress_minburst),
        packet_rate: (q.ingress_packet_rate, q.egress_packet_rate),
        packet_burst: (q.ingress_packet_burst, q.egress_packet_burst),
        max_connections: (q.ingress_max_connections, q.egress_max_connections),
        dscp: q.dscp.as_ref().and_then(|dscp| dscp.code_point()),
    };
    (made != QosControls::default()).then_some(made)
}
