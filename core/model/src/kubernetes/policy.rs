//! `networking.k8s.io/v1` NetworkPolicy as NetworkPolicy of `projectcalico.org/v3`.
//!
//! One rule of Kubernetes becomes one rule per protocol and peer. Pods are selected by their labels and the
//! label of their orchestrator; a peer without namespace selector stays in the policy's namespace because
//! namespaced policies do.

use std::collections::BTreeMap;

use calico_api::k8s::{
    self, IntOrString, IpBlock, LabelSelector, NETWORKING_V1, NetworkPolicyPeer, NetworkPolicyPort,
};
use calico_api::{Action, EntityRule, Kind, NetworkPolicy, NetworkPolicySpec, ObjectMeta, PolicyType, Rule};
use calico_net::{Cidr, Port, PortRange, Protocol};

use crate::key::Key;
use crate::kv::{KvPair, Revision};
use crate::names::{DEFAULT_TIER, LABEL_ORCHESTRATOR, ORCHESTRATOR_KUBERNETES, UidError};
use crate::value::Value;

/// Annotation of stored policies that were written as Kubernetes policies; the value is the API version.
pub const CONVERTED_FROM_ANNOTATION: &str = "projectcalico.org/converted-from";

/// What the names of stored policies that were written as Kubernetes policies start with.
pub const STORED_PREFIX: &str = "k8s-";

/// Annotation in which kubectl keeps what was applied; it belongs to the Kubernetes object.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Place of Kubernetes policies in the default tier.
const ORDER: f64 = 1000.0;

/// A part of a Kubernetes policy that cannot be converted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {reason}")]
pub struct PolicyFault {
    /// Path of the field, for example `spec.ingress[0].ports[1]`.
    pub field: String,
    /// What is wrong with it.
    pub reason: String,
}

/// Why a Kubernetes policy cannot be stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("NetworkPolicy {name}: {}", .faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
pub struct StoredPolicyError {
    /// Name of the Kubernetes policy.
    pub name: String,
    /// Everything that is wrong with it.
    pub faults: Vec<PolicyFault>,
}

/// A policy read from Kubernetes, of kind KubernetesNetworkPolicy. Rules that cannot be converted are left out
/// and told.
///
/// Errors: the UID is none.
pub fn network_policy(source: &k8s::NetworkPolicy) -> Result<(KvPair, Vec<PolicyFault>), UidError> {
    let meta = &source.metadata;
    let uid = super::profile::uid(meta)?;
    let (spec, faults) = convert(&source.spec);
    let metadata = ObjectMeta {
        name: meta.name.clone(),
        namespace: meta.namespace.clone(),
        uid: uid.clone(),
        resource_version: meta.resource_version.clone(),
        creation_timestamp: meta.creation_timestamp,
        ..ObjectMeta::default()
    };
    let entry = KvPair {
        key: Key::resource(Kind::KubernetesNetworkPolicy, meta.namespace.as_str(), meta.name.as_str()),
        value: Some(Value::resource(NetworkPolicy { metadata, spec })),
        revision: Revision::from(meta.resource_version.as_str()),
        uid: (!uid.is_empty()).then(|| uid.into()),
        ttl: None,
    };
    Ok((entry, faults))
}

/// The policy to be stored, outside Kubernetes, for one that a user wrote for Kubernetes.
///
/// It keeps namespace, labels and annotations, is named `k8s-<name>` and carries
/// [`CONVERTED_FROM_ANNOTATION`]. Errors: any part that cannot be converted.
pub fn stored_policy(source: &k8s::NetworkPolicy) -> Result<NetworkPolicy, StoredPolicyError> {
    let meta = &source.metadata;
    let (spec, faults) = convert(&source.spec);
    if !faults.is_empty() {
        return Err(StoredPolicyError { name: meta.name.clone(), faults });
    }
    let mut annotations = meta.annotations.clone();
    annotations.remove(LAST_APPLIED);
    annotations.insert(CONVERTED_FROM_ANNOTATION.to_owned(), NETWORKING_V1.to_owned());
    let metadata = ObjectMeta {
        name: if meta.name.is_empty() { String::new() } else { stored_policy_name(&meta.name) },
        namespace: meta.namespace.clone(),
        labels: meta.labels.clone(),
        annotations,
        ..ObjectMeta::default()
    };
    Ok(NetworkPolicy { metadata, spec })
}

/// Name under which the Kubernetes policy `name` is stored outside Kubernetes.
pub fn stored_policy_name(name: &str) -> String {
    format!("{STORED_PREFIX}{name}")
}

/// True if a stored policy was written as a Kubernetes policy.
pub fn is_converted(metadata: &ObjectMeta) -> bool {
    metadata.annotations.get(CONVERTED_FROM_ANNOTATION).is_some_and(|from| from == NETWORKING_V1)
}

fn convert(source: &k8s::NetworkPolicySpec) -> (NetworkPolicySpec, Vec<PolicyFault>) {
    let mut faults = Vec::new();
    let mut note = |field: String, reason: String| faults.push(PolicyFault { field, reason });
    let selector = match pod_selector(Some(&source.pod_selector)) {
        Ok(selector) => selector,
        Err(reason) => {
            note("spec.podSelector".to_owned(), reason);
            // All pods of the namespace: those that the policy was meant for are among them.
            orchestrator()
        }
    };
    let mut ingress = Vec::new();
    for (i, rule) in source.ingress.iter().enumerate() {
        match combine(&rule.ports, &rule.from, "from") {
            Ok(parts) => ingress.extend(parts.into_iter().map(|(protocol, ports, peer)| Rule {
                action: Action::Allow,
                protocol,
                source: peer,
                destination: EntityRule { ports, ..EntityRule::default() },
                ..Rule::default()
            })),
            Err(fault) => note(format!("spec.ingress[{i}].{}", fault.field), fault.reason),
        }
    }
    let mut egress = Vec::new();
    for (i, rule) in source.egress.iter().enumerate() {
        match combine(&rule.ports, &rule.to, "to") {
            Ok(parts) => egress.extend(parts.into_iter().map(|(protocol, ports, peer)| Rule {
                action: Action::Allow,
                protocol,
                destination: EntityRule { ports, ..peer },
                ..Rule::default()
            })),
            Err(fault) => note(format!("spec.egress[{i}].{}", fault.field), fault.reason),
        }
    }
    let named = |word: &str| source.policy_types.iter().any(|t| t == word);
    let mut types = Vec::new();
    if named("Ingress") || source.policy_types.is_empty() {
        types.push(PolicyType::Ingress);
    }
    if named("Egress") {
        types.push(PolicyType::Egress);
    }
    let spec = NetworkPolicySpec {
        tier: DEFAULT_TIER.to_owned(),
        order: Some(ORDER),
        ingress,
        egress,
        selector,
        types,
        ..NetworkPolicySpec::default()
    };
    (spec, faults)
}

/// A protocol, if any is named, with its ports.
type ProtocolPorts = (Option<Protocol>, Vec<Port>);

/// One rule per protocol and peer: protocol, ports of the receiver, peer.
type RuleParts = Vec<(Option<Protocol>, Vec<Port>, EntityRule)>;

fn combine(
    ports: &[NetworkPolicyPort],
    peers: &[NetworkPolicyPeer],
    peers_field: &str,
) -> Result<RuleParts, PolicyFault> {
    let peers = if peers.is_empty() {
        vec![EntityRule::default()]
    } else {
        let convert = |(i, source)| {
            peer(source).map_err(|reason| PolicyFault { field: format!("{peers_field}[{i}]"), reason })
        };
        peers.iter().enumerate().map(convert).collect::<Result<_, _>>()?
    };
    let mut out = Vec::new();
    for (protocol, ports) in by_protocol(ports)? {
        for peer in &peers {
            out.push((protocol.clone(), ports.clone(), peer.clone()));
        }
    }
    Ok(out)
}

/// Ports by protocol, sorted by its name; no ports of a protocol means all of them. No entry at all is one
/// group of any protocol.
fn by_protocol(ports: &[NetworkPolicyPort]) -> Result<Vec<ProtocolPorts>, PolicyFault> {
    if ports.is_empty() {
        return Ok(vec![(None, Vec::new())]);
    }
    let mut groups: BTreeMap<String, (Protocol, Option<Vec<Port>>)> = BTreeMap::new();
    for (i, entry) in ports.iter().enumerate() {
        let protocol = protocol(entry.protocol.as_deref());
        let port = port(entry).map_err(|reason| PolicyFault { field: format!("ports[{i}]"), reason })?;
        let group = groups.entry(protocol.to_string()).or_insert_with(|| (protocol, Some(Vec::new())));
        match port {
            // All ports of the protocol, whatever else is listed.
            None => group.1 = None,
            Some(port) => {
                if let Some(list) = &mut group.1 {
                    list.push(port);
                }
            }
        }
    }
    Ok(groups
        .into_values()
        .map(|(protocol, ports)| (Some(protocol), ports.map(simplify).unwrap_or_default()))
        .collect())
}

fn protocol(text: Option<&str>) -> Protocol {
    let text = text.filter(|text| !text.is_empty()).unwrap_or("TCP");
    match Protocol::NAMES.iter().find(|(name, _)| name.eq_ignore_ascii_case(text)) {
        Some((name, _)) => Protocol::Name((*name).into()),
        None => Protocol::parse(text),
    }
}

fn port(entry: &NetworkPolicyPort) -> Result<Option<Port>, String> {
    let Some(first) = &entry.port else { return Ok(None) };
    let text = match entry.end_port {
        Some(last) => format!("{first}:{last}"),
        None => first.to_string(),
    };
    if matches!(first, IntOrString::Int(number) if *number < 0) {
        return Err(format!("invalid port: {text}"));
    }
    text.parse().map(Some).map_err(|error: calico_net::PortError| error.to_string())
}

/// Names first, then the fewest ranges that cover the numbers, in order. A list with at most one number stays
/// as written.
fn simplify(ports: Vec<Port>) -> Vec<Port> {
    let mut ranges: Vec<PortRange> = ports
        .iter()
        .filter_map(|port| match port {
            Port::Range(range) => Some(*range),
            Port::Named(_) => None,
        })
        .collect();
    let numbers: u32 = ranges.iter().map(|range| u32::from(range.last - range.first) + 1).sum();
    if numbers <= 1 {
        return ports;
    }
    ranges.sort_unstable();
    let mut merged: Vec<PortRange> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match merged.last_mut() {
            Some(last) if range.first <= last.last.saturating_add(1) => last.last = last.last.max(range.last),
            _ => merged.push(range),
        }
    }
    let names = ports.into_iter().filter(|port| matches!(port, Port::Named(_)));
    names.chain(merged.into_iter().map(Port::Range)).collect()
}

fn peer(source: &NetworkPolicyPeer) -> Result<EntityRule, String> {
    if let Some(block) = &source.ip_block {
        return ip_block(block);
    }
    Ok(EntityRule {
        selector: pod_selector(source.pod_selector.as_ref())?,
        namespace_selector: match &source.namespace_selector {
            Some(selector) => namespace_selector(selector)?,
            None => String::new(),
        },
        ..EntityRule::default()
    })
}

fn ip_block(block: &IpBlock) -> Result<EntityRule, String> {
    let cidr = |text: &String| {
        Cidr::parse_strict(text).map(|cidr| cidr.masked().to_string()).map_err(|error| error.to_string())
    };
    Ok(EntityRule {
        nets: vec![cidr(&block.cidr)?],
        not_nets: block.except.iter().map(cidr).collect::<Result<_, _>>()?,
        ..EntityRule::default()
    })
}

fn orchestrator() -> String {
    format!("{LABEL_ORCHESTRATOR} == '{ORCHESTRATOR_KUBERNETES}'")
}

fn pod_selector(selector: Option<&LabelSelector>) -> Result<String, String> {
    let mut terms = vec![orchestrator()];
    if let Some(selector) = selector {
        terms.extend(conditions(selector)?);
    }
    Ok(terms.join(" && "))
}

fn namespace_selector(selector: &LabelSelector) -> Result<String, String> {
    let terms = conditions(selector)?;
    Ok(if terms.is_empty() { "all()".to_owned() } else { terms.join(" && ") })
}

fn conditions(selector: &LabelSelector) -> Result<Vec<String>, String> {
    let mut out = Vec::with_capacity(selector.match_labels.len() + selector.match_expressions.len());
    for (label, value) in &selector.match_labels {
        out.push(format!("{} == {}", checked(label)?, quoted(value)?));
    }
    for condition in &selector.match_expressions {
        let label = checked(&condition.key)?;
        let set = || -> Result<String, String> {
            let values: Vec<String> = match condition.values.as_slice() {
                [] => vec![quoted("")?],
                values => values.iter().map(|value| quoted(value)).collect::<Result<_, _>>()?,
            };
            Ok(format!("{{ {} }}", values.join(", ")))
        };
        out.push(match condition.operator.as_str() {
            "In" => format!("{label} in {}", set()?),
            "NotIn" => format!("{label} not in {}", set()?),
            "Exists" => format!("has({label})"),
            "DoesNotExist" => format!("! has({label})"),
            other => return Err(format!("unknown operator {other:?} for label {label}")),
        });
    }
    Ok(out)
}

/// The label, if it is one: anything else would change what the selector says.
fn checked(label: &str) -> Result<&str, String> {
    let fits = |b: u8| b.is_ascii_alphanumeric() || b"_./-".contains(&b);
    if !label.is_empty() && label.bytes().all(fits) {
        Ok(label)
    } else {
        Err(format!("invalid label {label:?}"))
    }
}

fn quoted(value: &str) -> Result<String, String> {
    match (value.contains('\''), value.contains('"')) {
        (false, _) => Ok(format!("'{value}'")),
        (true, false) => Ok(format!("\"{value}\"")),
        (true, true) => Err(format!("label value {value:?} holds both kinds of quotes")),
    }
}
