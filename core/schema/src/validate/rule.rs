//! Policy rules.

use std::fmt;

use calico_api::{Action, EntityRule, HttpMatch, IcmpFields, Rule};
use calico_net::{Cidr, IpVersion, Port, Protocol};

use super::{Checker, format, meta};

const MAX_NETS: usize = 256;
const MAX_PORTS: usize = 50;
const MAX_HTTP_ITEMS: usize = 20;
const MAX_HTTP_PATH: usize = 1024;
const MAX_SERVICE_NAME: usize = 253;

/// Which way the traffic of a rule goes, seen from the selected endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    Ingress,
    Egress,
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ingress => "ingress",
            Self::Egress => "egress",
        })
    }
}

/// What kind of object a rule belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    Namespaced,
    Global,
    Profile,
}

/// One end of the rule: which field it is and what it says.
struct Entity<'a> {
    path: String,
    rule: &'a EntityRule,
}

pub(super) fn check(c: &mut Checker, path: &str, rule: &Rule, direction: Direction, owner: Owner) {
    c.word(format_args!("{path}.action"), rule.action.as_str(), Action::WORDS);
    if let Some(version) = rule.ip_version
        && !matches!(version, 4 | 6)
    {
        c.fail(format_args!("{path}.ipVersion"), version, "must be 4 or 6");
    }
    for (field, value) in [("protocol", &rule.protocol), ("notProtocol", &rule.not_protocol)] {
        let Some(protocol) = value else { continue };
        self::protocol(c, format_args!("{path}.{field}"), protocol);
        match (protocol.to_number(), rule.ip_version) {
            (Some(1), Some(6)) => c.fail_field(format_args!("{path}.{field}"), "ICMP needs ipVersion 4"),
            (Some(58), Some(4)) => c.fail_field(format_args!("{path}.{field}"), "ICMPv6 needs ipVersion 6"),
            _ => {}
        }
    }
    if rule.icmp.is_some() && !rule.protocol.as_ref().is_some_and(is_icmp) {
        c.fail_field(format_args!("{path}.icmp"), "needs protocol ICMP or ICMPv6");
    }
    for (field, value) in [("icmp", &rule.icmp), ("notICMP", &rule.not_icmp)] {
        if let Some(icmp) = value {
            self::icmp(c, &format!("{path}.{field}"), icmp);
        }
    }
    let source = Entity { path: format!("{path}.source"), rule: &rule.source };
    let destination = Entity { path: format!("{path}.destination"), rule: &rule.destination };
    for end in [&source, &destination] {
        entity(c, end, rule.protocol.as_ref());
    }
    nets(c, &source, &destination, rule.ip_version);
    services(c, &source, &destination, direction, owner);
    if let Some(http) = &rule.http {
        self::http(c, &format!("{path}.http"), rule, http);
        if direction == Direction::Egress && owner != Owner::Profile {
            c.fail_field(format_args!("{path}.http"), "is not possible in egress rules");
        }
    }
    if let Some(metadata) = &rule.metadata {
        meta::annotations(c, &format!("{path}.metadata.annotations"), metadata.annotations.iter());
    }
}

fn is_icmp(protocol: &Protocol) -> bool {
    match protocol {
        Protocol::Num(n) => matches!(n, 1 | 58),
        Protocol::Name(name) => matches!(name.as_str(), "ICMP" | "ICMPv6"),
    }
}

/// A number from 1, or one of the known names in their exact case.
pub(super) fn protocol(c: &mut Checker, field: impl fmt::Display, protocol: &Protocol) {
    let ok = match protocol {
        Protocol::Num(n) => *n != 0,
        Protocol::Name(name) => Protocol::NAMES.iter().any(|(known, _)| known == name),
    };
    if !ok {
        let names = Protocol::NAMES.map(|(name, _)| name).join(", ");
        c.fail(field, protocol, format!("must be a number from 1 to 255 or one of {names}"));
    }
}

fn icmp(c: &mut Checker, path: &str, icmp: &IcmpFields) {
    if let Some(number) = icmp.icmp_type {
        c.range(format_args!("{path}.type"), number, 0, 254);
    }
    if let Some(code) = icmp.code {
        c.range(format_args!("{path}.code"), code, 0, 255);
        if icmp.icmp_type.is_none() {
            c.fail_field(format_args!("{path}.code"), "needs a type");
        }
    }
}

/// What can be said of one end alone, given the rule's protocol.
fn entity(c: &mut Checker, end: &Entity<'_>, protocol: Option<&Protocol>) {
    let Entity { path, rule } = end;
    for (field, nets) in [("nets", &rule.nets), ("notNets", &rule.not_nets)] {
        c.max_items(format_args!("{path}.{field}"), nets.len(), MAX_NETS);
        for (i, net) in nets.iter().enumerate() {
            match Cidr::parse_strict(net) {
                Ok(cidr) if !cidr.is_masked() => {
                    let reason = format!("has host bits set; did you mean {}?", cidr.masked());
                    c.fail(format_args!("{path}.{field}[{i}]"), net, reason);
                }
                Ok(cidr) if cidr.is_default() && field == "notNets" => {
                    c.fail(format_args!("{path}.{field}[{i}]"), net, "would match no traffic at all");
                }
                Ok(_) => {}
                Err(_) => {
                    c.fail(format_args!("{path}.{field}[{i}]"), net, "must be a CIDR with prefix length")
                }
            }
        }
    }
    c.selector_without_global(format_args!("{path}.selector"), &rule.selector);
    c.selector(format_args!("{path}.notSelector"), &rule.not_selector);
    namespace_selector(c, path, &rule.namespace_selector);
    for (field, ports) in [("ports", &rule.ports), ("notPorts", &rule.not_ports)] {
        c.max_items(format_args!("{path}.{field}"), ports.len(), MAX_PORTS);
        self::ports(c, &format!("{path}.{field}"), ports, protocol);
    }
    if let Some(accounts) = &rule.service_accounts {
        c.selector_syntax(format_args!("{path}.serviceAccounts.selector"), &accounts.selector);
    }
}

fn namespace_selector(c: &mut Checker, path: &str, selector: &str) {
    c.selector(format_args!("{path}.namespaceSelector"), selector);
    if selector.contains("global(") {
        // Blanks inside the parentheses are the selector's business; everything else around is not allowed.
        let inner = selector.trim().strip_prefix("global(").and_then(|rest| rest.strip_suffix(')'));
        if !inner.is_some_and(|inner| inner.trim().is_empty()) {
            let reason = "global() cannot be combined with other selectors";
            c.fail(format_args!("{path}.namespaceSelector"), selector, reason);
        }
    }
}

fn ports(c: &mut Checker, path: &str, ports: &[Port], protocol: Option<&Protocol>) {
    const WANTED: &str = "TCP, UDP or SCTP";
    let named = |port: &Port| matches!(port, Port::Named(_));
    match protocol {
        Some(protocol) if !ports.is_empty() && !protocol.supports_ports() => {
            c.fail_field(path, format!("ports need protocol {WANTED}, not {protocol}"));
        }
        None if !ports.iter().all(named) => {
            c.fail_field(path, format!("numbers of ports need a protocol: {WANTED}"));
        }
        _ => {}
    }
    for (i, port) in ports.iter().enumerate() {
        match port {
            Port::Range(range) if range.first == 0 => {
                c.fail(format_args!("{path}[{i}]"), port, "ports must be from 1 to 65535");
            }
            Port::Named(name) if !format::is_port_name(name) => {
                let reason =
                    "must be at most 15 lower case letters, digits and single '-', with at least one letter";
                c.fail(format_args!("{path}[{i}]"), name, reason);
            }
            _ => {}
        }
    }
}

/// All CIDRs of a rule must be of one family, and of that of the rule.
fn nets(c: &mut Checker, source: &Entity<'_>, destination: &Entity<'_>, version: Option<i64>) {
    let wanted = match version {
        Some(4) => Some(IpVersion::V4),
        Some(6) => Some(IpVersion::V6),
        _ => None,
    };
    let mut seen = None;
    for end in [source, destination] {
        for (field, nets) in [("nets", &end.rule.nets), ("notNets", &end.rule.not_nets)] {
            for net in nets {
                let Ok(cidr) = Cidr::parse_strict(net) else { continue };
                let family = cidr.version();
                if wanted.is_some_and(|wanted| wanted != family) {
                    let reason = format!("is not of the rule's ipVersion {}", version.unwrap_or_default());
                    c.fail(format_args!("{}.{field}", end.path), net, reason);
                    return;
                }
                if *seen.get_or_insert(family) != family {
                    let reason = "a rule cannot have both IPv4 and IPv6 CIDRs";
                    c.fail(format_args!("{}.{field}", end.path), net, reason);
                    return;
                }
            }
        }
    }
}

fn services(
    c: &mut Checker,
    source: &Entity<'_>,
    destination: &Entity<'_>,
    direction: Direction,
    owner: Owner,
) {
    let (own, peer) = match direction {
        Direction::Ingress => (destination, source),
        Direction::Egress => (source, destination),
    };
    if own.rule.services.is_some() && owner != Owner::Profile {
        let reason = format!("is only possible at the other end of an {direction} rule");
        c.fail_field(format_args!("{}.services", own.path), reason);
    }
    let ends_on_service = &destination.rule;
    if ends_on_service.services.is_some()
        && !(ends_on_service.ports.is_empty() && ends_on_service.not_ports.is_empty())
    {
        let reason = "cannot be combined with ports and notPorts: the service names them";
        c.fail_field(format_args!("{}.services", destination.path), reason);
    }
    for end in [peer, own] {
        let Some(service) = &end.rule.services else { continue };
        let path = format!("{}.services", end.path);
        if service.name.is_empty() {
            c.fail_field(format_args!("{path}.name"), "must be set");
        }
        if service.namespace.is_empty() && owner == Owner::Global {
            c.fail_field(format_args!("{path}.namespace"), "must be set in a global policy");
        }
        for (field, value) in [("name", &service.name), ("namespace", &service.namespace)] {
            c.max_chars(format_args!("{path}.{field}"), value, MAX_SERVICE_NAME);
            if !value.is_empty() && !format::is_name(value) {
                c.fail(format_args!("{path}.{field}"), value, "is not a valid name");
            }
        }
        let rule = end.rule;
        let others = [
            ("namespaceSelector", rule.namespace_selector.is_empty()),
            ("selector", rule.selector.is_empty()),
            ("notSelector", rule.not_selector.is_empty()),
            ("nets", rule.nets.is_empty()),
            ("notNets", rule.not_nets.is_empty()),
            ("serviceAccounts", rule.service_accounts.is_none()),
        ];
        for (field, _) in others.iter().filter(|(_, unset)| !unset) {
            c.fail_field(&path, format!("cannot be combined with {field}"));
        }
    }
}

fn http(c: &mut Checker, path: &str, rule: &Rule, http: &HttpMatch) {
    if rule.action != Action::Allow {
        c.fail_field(path, "is only possible in rules with action Allow");
    }
    if !rule.protocol.as_ref().is_none_or(|p| matches!(p, Protocol::Num(6)) || p.to_string() == "TCP") {
        c.fail_field(path, "needs protocol TCP");
    }
    c.max_items(format_args!("{path}.methods"), http.methods.len(), MAX_HTTP_ITEMS);
    c.max_items(format_args!("{path}.paths"), http.paths.len(), MAX_HTTP_ITEMS);
    for (i, method) in http.methods.iter().enumerate() {
        if http.methods[..i].contains(method) {
            c.fail(format_args!("{path}.methods[{i}]"), method, "is given more than once");
        }
    }
    for (i, item) in http.paths.iter().enumerate() {
        let field = format!("{path}.paths[{i}]");
        let value = match (item.exact.as_str(), item.prefix.as_str()) {
            ("", "") => {
                c.fail_field(field, "needs one of exact and prefix");
                continue;
            }
            (exact, "") => exact,
            ("", prefix) => prefix,
            _ => {
                c.fail_field(field, "cannot have both exact and prefix");
                continue;
            }
        };
        c.max_chars(&field, value, MAX_HTTP_PATH);
        if !value.starts_with('/') || value.contains([' ', '?', '#']) {
            c.fail(field, value, "must begin with '/' and contain no blank, '?' or '#'");
        }
    }
}
