//! Messages of the calculation graph in the JSON form of upstream's protobuf.

use std::collections::BTreeMap;

use calico_dpmsg as dp;
use calico_net::{IpVersion, PortRange, Protocol};
use serde_json::{Map, Value, json};

use super::super::text::sorted;

/// Messages to other receivers than the dataplane: settings, which have a path of their own here, and what the
/// policy-sync API needs.
const OTHERS: [&str; 6] = [
    "configUpdate",
    "serviceAccountUpdate",
    "serviceAccountRemove",
    "namespaceUpdate",
    "namespaceRemove",
    "globalBgpConfigUpdate",
];

/// Fields of rules for the policy-sync API: the dataplane uses the sets made from them.
const SYNC_FIELDS: [&str; 3] = ["srcServiceAccountMatch", "dstServiceAccountMatch", "httpMatch"];

/// Messages to the dataplane, as a sorted list: order within a flush is checked by the graph's own tests.
pub(super) fn comparable(messages: impl Iterator<Item = Value>) -> Vec<Value> {
    let mut out: Vec<Value> = messages
        .filter(|message| OTHERS.iter().all(|other| message.get(*other).is_none()))
        .map(|message| sorted(&normal(message)))
        .collect();
    out.sort_by_key(Value::to_string);
    out
}

/// One spelling for what the protobuf leaves open: order of members, route types as bits or words.
fn normal(mut message: Value) -> Value {
    for (set, lists) in
        [("ipsetUpdate", ["members", ""]), ("ipsetDeltaUpdate", ["addedMembers", "removedMembers"])]
    {
        for list in lists {
            if let Some(members) =
                message.pointer_mut(&format!("/{set}/{list}")).and_then(Value::as_array_mut)
            {
                members.sort_by_key(Value::to_string);
            }
        }
    }
    for list in ["inboundRules", "outboundRules"] {
        let rules = message.pointer_mut(&format!("/activePolicyUpdate/policy/{list}"));
        for rule in rules.and_then(Value::as_array_mut).into_iter().flatten().filter_map(Value::as_object_mut)
        {
            for name in SYNC_FIELDS {
                rule.remove(name);
            }
        }
    }
    if let Some(types) = message.pointer_mut("/routeUpdate/types") {
        let bits = match types.as_str() {
            Some("REMOTE_WORKLOAD") => Some(1),
            Some("REMOTE_HOST") => Some(2),
            Some("LOCAL_WORKLOAD") => Some(4),
            Some("LOCAL_HOST") => Some(8),
            Some("REMOTE_TUNNEL") => Some(16),
            Some("LOCAL_TUNNEL") => Some(32),
            _ => None,
        };
        if let Some(bits) = bits {
            *types = json!(bits);
        }
    }
    message
}

/// An object without empty fields.
#[derive(Default)]
struct Object(Map<String, Value>);

impl Object {
    fn text(mut self, name: &str, text: impl Into<String>) -> Self {
        let text = text.into();
        if !text.is_empty() {
            self.0.insert(name.into(), text.into());
        }
        self
    }

    fn flag(mut self, name: &str, on: bool) -> Self {
        if on {
            self.0.insert(name.into(), true.into());
        }
        self
    }

    fn list(mut self, name: &str, items: Vec<Value>) -> Self {
        if !items.is_empty() {
            self.0.insert(name.into(), items.into());
        }
        self
    }

    fn value(mut self, name: &str, value: Option<Value>) -> Self {
        if let Some(value) = value {
            self.0.insert(name.into(), value);
        }
        self
    }

    fn done(self) -> Value {
        Value::Object(self.0)
    }
}

fn texts<T: ToString>(items: &[T]) -> Vec<Value> {
    items.iter().map(|item| item.to_string().into()).collect()
}

fn text<T: ToString>(value: Option<&T>) -> String {
    value.map(ToString::to_string).unwrap_or_default()
}

fn policy_id(id: &dp::PolicyId) -> Value {
    Object::default()
        .text("name", id.name.as_str())
        .text("namespace", id.namespace.as_str())
        .text("kind", id.kind.as_str())
        .done()
}

fn protocol(protocol: Option<&Protocol>) -> Option<Value> {
    protocol.map(|protocol| match protocol {
        Protocol::Num(number) => json!({"number": number}),
        Protocol::Name(name) => json!({"name": name.as_str()}),
    })
}

fn number(object: Object, name: &str, number: u64) -> Object {
    object.value(name, (number > 0).then(|| number.into()))
}

fn ports(ranges: &[PortRange]) -> Vec<Value> {
    ranges
        .iter()
        .map(|range| {
            let object = number(Object::default(), "first", range.first.into());
            number(object, "last", range.last.into()).done()
        })
        .collect()
}

fn rules(rules: &[dp::Rule]) -> Vec<Value> {
    rules.iter().map(rule).collect()
}

fn rule(rule: &dp::Rule) -> Value {
    let action = match rule.action {
        dp::Action::Allow => "allow",
        dp::Action::Deny => "deny",
        dp::Action::Pass => "next-tier",
        dp::Action::Log => "log",
    };
    let version = match rule.ip_version {
        None => "",
        Some(IpVersion::V4) => "IPV4",
        Some(IpVersion::V6) => "IPV6",
    };
    let mut out = Object::default()
        .text("action", action)
        .text("ipVersion", version)
        .value("protocol", protocol(rule.protocol.as_ref()))
        .value("notProtocol", protocol(rule.not_protocol.as_ref()));
    for (side, (plain, not), original) in
        [(&rule.src, ("src", "notSrc"), "Src"), (&rule.dst, ("dst", "notDst"), "Dst")]
    {
        out = out
            .list(&format!("{plain}Net"), texts(&side.nets))
            .list(&format!("{not}Net"), texts(&side.not_nets))
            .list(&format!("{plain}Ports"), ports(&side.ports))
            .list(&format!("{not}Ports"), ports(&side.not_ports))
            .list(&format!("{plain}NamedPortIpSetIds"), texts(&side.named_port_sets))
            .list(&format!("{not}NamedPortIpSetIds"), texts(&side.not_named_port_sets))
            .list(&format!("{plain}IpSetIds"), texts(&side.sets))
            .list(&format!("{not}IpSetIds"), texts(&side.not_sets))
            .text(&format!("original{original}Selector"), side.original_selector.as_str())
            .text(&format!("originalNot{original}Selector"), side.original_not_selector.as_str())
            .text(&format!("original{original}NamespaceSelector"), side.original_namespace_selector.as_str());
    }
    for (kind, with_code, icmp) in
        [("icmpType", "icmpTypeCode", &rule.icmp), ("notIcmpType", "notIcmpTypeCode", &rule.not_icmp)]
    {
        out = match icmp {
            None => out,
            Some(dp::IcmpMatch { icmp_type, code: None }) => out.value(kind, Some(json!(icmp_type))),
            Some(dp::IcmpMatch { icmp_type, code: Some(code) }) => {
                let pair = number(Object::default(), "type", (*icmp_type).into());
                out.value(with_code, Some(number(pair, "code", (*code).into()).done()))
            }
        };
    }
    let metadata = rule.metadata.as_ref().map(|annotations| {
        let annotations: BTreeMap<_, _> = annotations.iter().cloned().collect();
        json!({"annotations": annotations})
    });
    out.value("metadata", metadata).text("ruleId", rule.rule_id.as_str()).done()
}

fn tiers(tiers: &[dp::TierInfo]) -> Vec<Value> {
    tiers
        .iter()
        .map(|tier| {
            Object::default()
                .text("name", tier.name.as_str())
                .list("ingressPolicies", tier.ingress.iter().map(policy_id).collect())
                .list("egressPolicies", tier.egress.iter().map(policy_id).collect())
                .text("defaultAction", if tier.default_pass { "Pass" } else { "Deny" })
                .done()
        })
        .collect()
}

fn workload_id(id: &dp::WorkloadEndpointId) -> Value {
    json!({"orchestratorId": id.orchestrator, "workloadId": id.workload, "endpointId": id.endpoint})
}

fn workload(endpoint: &dp::WorkloadEndpoint) -> Value {
    let nats = |v4: bool| {
        let pairs = endpoint.nats.iter().filter(|(external, _)| external.is_ipv4() == v4);
        pairs.map(|(external, internal)| json!({"extIp": external, "intIp": internal})).collect()
    };
    Object::default()
        .text("state", if endpoint.active { "active" } else { "inactive" })
        .text("name", endpoint.interface_name.as_str())
        .text("mac", text(endpoint.mac.as_ref()))
        .list("profileIds", texts(&endpoint.profile_ids))
        .list("ipv4Nets", texts(&endpoint.ipv4_nets))
        .list("ipv6Nets", texts(&endpoint.ipv6_nets))
        .list("ipv4Nat", nats(true))
        .list("ipv6Nat", nats(false))
        .list("tiers", tiers(&endpoint.tiers))
        .list("allowSpoofedSourcePrefixes", texts(&endpoint.allow_spoofed_source_prefixes))
        .done()
}

fn host(endpoint: &dp::HostEndpoint) -> Value {
    let addresses = |v4: bool| {
        let ours = endpoint.expected_ips.iter().filter(|ip| ip.is_ipv4() == v4);
        ours.map(|ip| ip.to_string().into()).collect()
    };
    Object::default()
        .text("name", endpoint.interface_name.as_str())
        .list("profileIds", texts(&endpoint.profile_ids))
        .list("tiers", tiers(&endpoint.tiers))
        .list("untrackedTiers", tiers(&endpoint.untracked_tiers))
        .list("preDnatTiers", tiers(&endpoint.pre_dnat_tiers))
        .list("forwardTiers", tiers(&endpoint.forward_tiers))
        .list("expectedIpv4Addrs", addresses(true))
        .list("expectedIpv6Addrs", addresses(false))
        .done()
}

fn route(route: &dp::Route) -> Value {
    let types = &route.types;
    let bits = [
        types.remote_workload,
        types.remote_host,
        types.local_workload,
        types.local_host,
        types.remote_tunnel,
        types.local_tunnel,
    ];
    let bits = bits.iter().enumerate().map(|(i, on)| u64::from(*on) << i).sum();
    let pool = match route.pool_type {
        dp::PoolType::None => "",
        dp::PoolType::NoEncap => "NO_ENCAP",
        dp::PoolType::Vxlan => "VXLAN",
        dp::PoolType::Ipip => "IPIP",
    };
    let tunnel = Object::default()
        .flag("ipip", route.tunnel.ipip)
        .flag("vxlan", route.tunnel.vxlan)
        .flag("wireguard", route.tunnel.wireguard)
        .done();
    number(Object::default(), "types", bits)
        .text("ipPoolType", pool)
        .text("dst", route.dst.to_string())
        .text("dstNodeName", route.dst_node_name.as_str())
        .text("dstNodeIp", text(route.dst_node_ip.as_ref()))
        .flag("sameSubnet", route.same_subnet)
        .flag("natOutgoing", route.nat_outgoing)
        .flag("localWorkload", route.local_workload)
        .flag("borrowed", route.borrowed)
        .value("tunnelType", (tunnel != json!({})).then_some(tunnel))
        .done()
}

fn vtep(vtep: &dp::Vtep) -> Value {
    let mut out = Object::default().text("node", vtep.node.as_str());
    if let Some(v4) = &vtep.v4 {
        out = out
            .text("mac", v4.mac.to_string())
            .text("ipv4Addr", v4.tunnel.to_string())
            .text("parentDeviceIp", v4.parent.to_string());
    }
    if let Some(v6) = &vtep.v6 {
        out = out
            .text("macV6", v6.mac.to_string())
            .text("ipv6Addr", v6.tunnel.to_string())
            .text("parentDeviceIpv6", v6.parent.to_string());
    }
    out.done()
}

fn metadata(host: &dp::HostMetadata) -> Value {
    Object::default()
        .text("hostname", host.hostname.as_str())
        .text("ipv4Addr", text(host.ipv4.as_ref()))
        .text("ipv6Addr", text(host.ipv6.as_ref()))
        .text("asnumber", host.as_number.as_str())
        .value("labels", (!host.labels.is_empty()).then(|| json!(host.labels)))
        .done()
}

fn pool(pool: &dp::IpPool) -> Value {
    let uses: &[&str] = if pool.load_balancer_only { &["LoadBalancer"] } else { &["Workload", "Tunnel"] };
    let cidr = pool.cidr.to_string();
    json!({
        "id": cidr.replace('/', "-"),
        "pool": Object::default()
            .text("cidr", cidr)
            .flag("masquerade", pool.masquerade)
            .text("ipipMode", pool.ipip_mode.as_str())
            .text("vxlanMode", pool.vxlan_mode.as_str())
            .list("allowedUses", texts(uses))
            .done(),
    })
}

/// The message; `None` if upstream's stream does not have it there.
pub(super) fn to_json(message: &dp::Message) -> Option<Value> {
    use dp::Message as M;
    Some(match message {
        M::IpSetUpdate { id, kind, members } => {
            let kind = match kind {
                dp::IpSetType::Ip => "",
                dp::IpSetType::IpPort => "IP_AND_PORT",
                dp::IpSetType::Net => "NET",
            };
            let set =
                Object::default().text("id", id.as_str()).list("members", texts(members)).text("type", kind);
            json!({"ipsetUpdate": set.done()})
        }
        M::IpSetDelta { id, added, removed } => {
            let set = Object::default()
                .text("id", id.as_str())
                .list("addedMembers", texts(added))
                .list("removedMembers", texts(removed));
            json!({"ipsetDeltaUpdate": set.done()})
        }
        M::IpSetRemove(id) => json!({"ipsetRemove": {"id": id}}),
        M::PolicyUpdate(id, p) => {
            let policy = Object::default()
                .text("namespace", p.namespace.as_str())
                .list("inboundRules", rules(&p.inbound))
                .list("outboundRules", rules(&p.outbound))
                .flag("untracked", p.untracked)
                .flag("preDnat", p.pre_dnat)
                .text("originalSelector", p.original_selector.as_str())
                .text("tier", p.tier.as_str());
            json!({"activePolicyUpdate": {"id": policy_id(id), "policy": policy.done()}})
        }
        M::PolicyRemove(id) => json!({"activePolicyRemove": {"id": policy_id(id)}}),
        M::ProfileUpdate(id, p) => {
            let profile = Object::default()
                .list("inboundRules", rules(&p.inbound))
                .list("outboundRules", rules(&p.outbound));
            json!({"activeProfileUpdate": {"id": {"name": id}, "profile": profile.done()}})
        }
        M::ProfileRemove(id) => json!({"activeProfileRemove": {"id": {"name": id}}}),
        M::WorkloadEndpointUpdate(id, e) => {
            json!({"workloadEndpointUpdate": {"id": workload_id(id), "endpoint": workload(e)}})
        }
        M::WorkloadEndpointRemove(id) => json!({"workloadEndpointRemove": {"id": workload_id(id)}}),
        M::HostEndpointUpdate(id, e) => {
            json!({"hostEndpointUpdate": {"id": {"endpointId": id.0}, "endpoint": host(e)}})
        }
        M::HostEndpointRemove(id) => json!({"hostEndpointRemove": {"id": {"endpointId": id.0}}}),
        M::RouteUpdate(r) => json!({"routeUpdate": route(r)}),
        M::RouteRemove(cidr) => json!({"routeRemove": {"dst": cidr.to_string()}}),
        M::VtepUpdate(v) => json!({"vtepUpdate": vtep(v)}),
        M::VtepRemove(node) => json!({"vtepRemove": {"node": node}}),
        M::HostMetadataUpdate(h) => json!({"hostMetadataUpdate": metadata(h)}),
        M::HostMetadataRemove(node) => json!({"hostMetadataRemove": {"hostname": node}}),
        M::IpPoolUpdate(p) => json!({"ipamPoolUpdate": pool(p)}),
        M::IpPoolRemove(cidr) => json!({"ipamPoolRemove": {"id": cidr.to_string().replace('/', "-")}}),
        M::Encapsulation(e) => {
            let encapsulation = Object::default()
                .flag("ipipEnabled", e.ipip)
                .flag("vxlanEnabled", e.vxlan)
                .flag("vxlanEnabledV6", e.vxlan_v6)
                .flag("noEncapEnabled", e.no_encap);
            json!({"encapsulation": encapsulation.done()})
        }
        M::InSync => return None,
        other => json!({"unexpected": format!("{other:?}")}),
    })
}
