//! WorkloadEndpoint and HostEndpoint.

use calico_api::{HostEndpointSpec, WorkloadEndpointSpec};
use calico_net::cidr::parse_ip;
use calico_net::{Cidr, IpVersion, Protocol};

use super::{Checker, format, node, rule};

const MAX_NODE_NAME: usize = 253;

pub(super) fn workload(c: &mut Checker, spec: &WorkloadEndpointSpec) {
    for (field, value) in [
        ("orchestrator", &spec.orchestrator),
        ("workload", &spec.workload),
        ("node", &spec.node),
        ("pod", &spec.pod),
        ("endpoint", &spec.endpoint),
        ("serviceAccountName", &spec.service_account_name),
    ] {
        if !value.is_empty() && !format::is_name(value) {
            c.fail(format_args!("spec.{field}"), value, "is not a valid name");
        }
    }
    if !spec.container_id.is_empty() && !format::is_container_id(&spec.container_id) {
        let reason = "must consist of letters, digits and '-', with a letter or digit at both ends";
        c.fail("spec.containerID", &spec.container_id, reason);
    }
    addresses(c, spec);
    node::ip(c, "spec.ipv4Gateway", &spec.ipv4_gateway, IpVersion::V4);
    node::ip(c, "spec.ipv6Gateway", &spec.ipv6_gateway, IpVersion::V6);
    profiles(c, &spec.profiles);
    if !format::is_interface_name(&spec.interface_name) {
        c.fail("spec.interfaceName", &spec.interface_name, INTERFACE);
    }
    node::mac(c, "spec.mac", &spec.mac);
    for (i, item) in spec.ports.iter().enumerate() {
        let path = format!("spec.ports[{i}]");
        port(c, &path, item.protocol.as_ref(), item.port);
        if item.name.is_empty() {
            if item.host_port == 0 {
                c.fail_field(format_args!("{path}.name"), "must be set unless hostPort is");
            }
        } else {
            port_name(c, &path, &item.name);
        }
        let masked = |text: &str| Cidr::parse(text).is_ok_and(|cidr| cidr.is_masked());
        if !item.host_ip.is_empty() && !masked(&item.host_ip) {
            c.fail(format_args!("{path}.hostIP"), &item.host_ip, "must be an IP address");
        }
    }
    for (i, prefix) in spec.allow_spoofed_source_prefixes.iter().enumerate() {
        if !format::is_cidr(prefix, None) {
            let field = format!("spec.allowSpoofedSourcePrefixes[{i}]");
            c.fail(field, prefix, "must be a CIDR or an IP address");
        }
    }
}

fn addresses(c: &mut Checker, spec: &WorkloadEndpointSpec) {
    let mut networks = Vec::new();
    for (i, text) in spec.ip_networks.iter().enumerate() {
        let field = format!("spec.ipNetworks[{i}]");
        match Cidr::parse(text) {
            Ok(cidr) if !cidr.is_host() => c.fail(field, text, "must be a single address"),
            Ok(cidr) => networks.push(cidr),
            Err(_) => c.fail(field, text, "must be an IP address, perhaps with prefix length"),
        }
    }
    for (i, nat) in spec.ip_nats.iter().enumerate() {
        let path = format!("spec.ipNATs[{i}]");
        let mut address = |field: &str, text: &str| {
            let ip = parse_ip(text);
            if ip.is_none() {
                c.fail(format_args!("{path}.{field}"), text, "must be an IP address");
            }
            ip
        };
        let internal = address("internalIP", &nat.internal_ip);
        let external = address("externalIP", &nat.external_ip);
        let (Some(internal), Some(external)) = (internal, external) else { continue };
        if IpVersion::of(internal) != IpVersion::of(external) {
            let reason = "internalIP and externalIP must be of the same family";
            c.fail(format_args!("{path}.externalIP"), external, reason);
        }
        if !networks.iter().any(|network| network.contains(internal)) {
            c.fail(format_args!("{path}.internalIP"), internal, "is not one of ipNetworks");
        }
    }
}

pub(super) fn host(c: &mut Checker, spec: &HostEndpointSpec) {
    if spec.node.is_empty() {
        c.fail_field("spec.node", "must be set");
    } else if !format::is_name(&spec.node) {
        c.fail("spec.node", &spec.node, "is not a valid name");
    }
    c.max_chars("spec.node", &spec.node, MAX_NODE_NAME);
    if !spec.interface_name.is_empty() && !format::is_interface_name(&spec.interface_name) {
        c.fail("spec.interfaceName", &spec.interface_name, INTERFACE);
    }
    if spec.interface_name.is_empty() && spec.expected_ips.is_empty() {
        c.fail_field("spec", "needs interfaceName or expectedIPs");
    }
    for (i, ip) in spec.expected_ips.iter().enumerate() {
        if !format::is_ip(ip, None) {
            c.fail(format_args!("spec.expectedIPs[{i}]"), ip, "must be an IP address");
        }
    }
    profiles(c, &spec.profiles);
    for (i, item) in spec.ports.iter().enumerate() {
        let path = format!("spec.ports[{i}]");
        port_name(c, &path, &item.name);
        port(c, &path, item.protocol.as_ref(), item.port);
    }
}

const INTERFACE: &str = "must be '*' or 1 to 15 letters, digits, '_', '.' and '-'";

fn profiles(c: &mut Checker, profiles: &[String]) {
    for (i, profile) in profiles.iter().enumerate() {
        if !format::is_name(profile) {
            c.fail(format_args!("spec.profiles[{i}]"), profile, "is not a valid name");
        }
    }
}

fn port_name(c: &mut Checker, path: &str, name: &str) {
    if !format::is_port_name(name) {
        let reason = "must be 1 to 15 lower case letters, digits and single '-', with at least one letter";
        c.fail(format_args!("{path}.name"), name, reason);
    }
}

fn port(c: &mut Checker, path: &str, protocol: Option<&Protocol>, port: u16) {
    match protocol {
        None => c.fail_field(format_args!("{path}.protocol"), "must be set"),
        Some(protocol) => {
            rule::protocol(c, format_args!("{path}.protocol"), protocol);
            if !protocol.supports_ports() {
                c.fail(format_args!("{path}.protocol"), protocol, "must be TCP, UDP or SCTP");
            }
        }
    }
    if port == 0 {
        c.fail(format_args!("{path}.port"), port, "must be from 1 to 65535");
    }
}
