//! Felix's model of policies, endpoints and sets: what update processors make of the v3 objects.

use std::collections::BTreeMap;
use std::net::IpAddr;

use calico_net::{Cidr, IpVersion, Mac, Port, Protocol};
use smol_str::SmolStr;

/// Labels, sorted by name.
pub type Labels = BTreeMap<SmolStr, SmolStr>;

/// What a rule does with a packet that it matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Action {
    /// Accept; no later policy is asked.
    Allow,
    /// Drop or reject.
    Deny,
    /// Leave this tier; the next one decides (`next-tier` on the wire, `Pass` in the v3 API).
    Pass,
    /// Log and go on with the next rule.
    Log,
}

/// One side of a rule. Every set field must match; entries of one list are alternatives.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct EntityMatch {
    /// Networks (masked); empty matches any address.
    pub nets: Vec<Cidr>,
    /// Networks that must not match.
    pub not_nets: Vec<Cidr>,
    /// Ports; empty matches any.
    pub ports: Vec<Port>,
    /// Ports that must not match.
    pub not_ports: Vec<Port>,
    /// Effective selector with namespace and service-account parts folded in; empty is no restriction.
    pub selector: SmolStr,
    /// Effective negated selector; empty is no restriction.
    pub not_selector: SmolStr,
    /// Kubernetes Service (namespace, name) whose endpoints must match.
    pub service: Option<(SmolStr, SmolStr)>,
    /// What the user wrote, for reporting.
    pub original: Option<Box<OriginalMatch>>,
}

/// The parts of an entity rule as the user wrote them.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct OriginalMatch {
    /// Selector.
    pub selector: SmolStr,
    /// Namespace selector.
    pub namespace_selector: SmolStr,
    /// Negated selector.
    pub not_selector: SmolStr,
    /// Service account names.
    pub service_account_names: Vec<SmolStr>,
    /// Service account selector.
    pub service_account_selector: SmolStr,
}

/// ICMP match: a type, and possibly a code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct IcmpMatch {
    /// Type, 0 to 254; absent in a rule that only names ICMP.
    pub icmp_type: Option<u8>,
    /// Code; only with a type.
    pub code: Option<u8>,
}

/// HTTP match, honoured only by application-layer policy.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct HttpMatch {
    /// Methods.
    pub methods: Vec<SmolStr>,
    /// Exact paths (`true`) and path prefixes (`false`).
    pub paths: Vec<(bool, SmolStr)>,
}

/// A rule of a policy or profile.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Rule {
    /// What happens on a match.
    pub action: Action,
    /// Only this family.
    pub ip_version: Option<IpVersion>,
    /// Only this protocol; names in lower case.
    pub protocol: Option<Protocol>,
    /// Not this protocol.
    pub not_protocol: Option<Protocol>,
    /// ICMP match.
    pub icmp: Option<IcmpMatch>,
    /// Negated ICMP match, negated as a whole.
    pub not_icmp: Option<IcmpMatch>,
    /// Where the packet comes from.
    pub src: EntityMatch,
    /// Where it goes to.
    pub dst: EntityMatch,
    /// HTTP match.
    pub http: Option<Box<HttpMatch>>,
    /// Annotations of the rule.
    pub metadata: Option<Box<BTreeMap<String, String>>>,
}

/// A policy of any kind.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    /// Tier; never empty.
    pub tier: SmolStr,
    /// Place in the tier; `None` comes last.
    pub order: Option<f64>,
    /// Namespace; empty for global ones.
    pub namespace: SmolStr,
    /// Effective selector of the endpoints it applies to.
    pub selector: SmolStr,
    /// Applies to inbound traffic.
    pub ingress: bool,
    /// Applies to outbound traffic.
    pub egress: bool,
    /// Inbound rules, first match wins.
    pub inbound_rules: Vec<Rule>,
    /// Outbound rules.
    pub outbound_rules: Vec<Rule>,
    /// Rules run before connection tracking.
    pub untracked: bool,
    /// Rules run before destination NAT.
    pub pre_dnat: bool,
    /// Applies to forwarded traffic of host endpoints too.
    pub apply_on_forward: bool,
    /// Staged action (`Set`, ...) of a staged policy.
    pub staged_action: Option<SmolStr>,
    /// Performance hints, as written.
    pub performance_hints: Vec<SmolStr>,
}

/// A tier.
#[derive(Debug, Clone, PartialEq)]
pub struct Tier {
    /// Place among tiers; `None` comes last.
    pub order: Option<f64>,
    /// What happens to a packet that the tier's policies leave undecided: pass if true, else deny.
    pub default_pass: bool,
}

/// Rules of a profile.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ProfileRules {
    /// Inbound rules.
    pub inbound_rules: Vec<Rule>,
    /// Outbound rules.
    pub outbound_rules: Vec<Rule>,
}

/// A named port of an endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EndpointPort {
    /// Name.
    pub name: SmolStr,
    /// Protocol, lower case.
    pub protocol: Protocol,
    /// Port number.
    pub port: u16,
}

/// Limits on a workload's traffic; zero or absent is no limit. Rates per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QosControls {
    /// Bits per second, inbound and outbound.
    pub bandwidth: (i64, i64),
    /// Burst in bits.
    pub burst: (i64, i64),
    /// Peak rate in bits per second.
    pub peak_rate: (i64, i64),
    /// Least burst in bytes.
    pub min_burst: (i64, i64),
    /// Packets per second.
    pub packet_rate: (i64, i64),
    /// Burst in packets.
    pub packet_burst: (i64, i64),
    /// Most simultaneous connections.
    pub max_connections: (i64, i64),
    /// DSCP of packets that leave the cluster.
    pub dscp: Option<u8>,
}

/// A workload endpoint.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct WorkloadEndpoint {
    /// Host end of its interface.
    pub interface_name: SmolStr,
    /// MAC address inside the workload, if known.
    pub mac: Option<Mac>,
    /// Profiles, in order of precedence for labels.
    pub profile_ids: Vec<SmolStr>,
    /// IPv4 addresses (host CIDRs).
    pub ipv4_nets: Vec<Cidr>,
    /// IPv6 addresses (host CIDRs).
    pub ipv6_nets: Vec<Cidr>,
    /// Floating addresses: (external, internal).
    pub nats: Vec<(IpAddr, IpAddr)>,
    /// Labels of its own.
    pub labels: Labels,
    /// Named ports.
    pub ports: Vec<EndpointPort>,
    /// Sources beyond its own addresses that it may use.
    pub allow_spoofed_source_prefixes: Vec<Cidr>,
    /// Traffic limits.
    pub qos: Option<Box<QosControls>>,
    /// Annotations.
    pub annotations: BTreeMap<SmolStr, SmolStr>,
}

/// A host endpoint.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct HostEndpoint {
    /// Interface; `*` for all; empty to match by address.
    pub interface_name: SmolStr,
    /// Addresses that it is known by.
    pub expected_ips: Vec<IpAddr>,
    /// Labels of its own.
    pub labels: Labels,
    /// Profiles, in order of precedence for labels.
    pub profile_ids: Vec<SmolStr>,
    /// Named ports.
    pub ports: Vec<EndpointPort>,
    /// DSCP of packets that leave the cluster.
    pub dscp: Option<u8>,
}

/// A network set.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct NetworkSet {
    /// Networks (masked).
    pub nets: Vec<Cidr>,
    /// Labels.
    pub labels: Labels,
    /// Profiles (`kns.<namespace>` for namespaced sets).
    pub profile_ids: Vec<SmolStr>,
}

/// How traffic to a pool's addresses on other nodes is wrapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum EncapMode {
    /// Not at all.
    #[default]
    Never,
    /// Always.
    Always,
    /// Only to nodes on another subnet.
    CrossSubnet,
}

/// An IP pool.
#[derive(Debug, Clone, PartialEq)]
pub struct IpPool {
    /// The pool (masked).
    pub cidr: Cidr,
    /// IP-in-IP mode.
    pub ipip: EncapMode,
    /// VXLAN mode.
    pub vxlan: EncapMode,
    /// Source NAT for traffic that leaves the cluster's pools.
    pub masquerade: bool,
    /// Taken out of use for new addresses.
    pub disabled: bool,
    /// Not exported by BGP.
    pub disable_bgp_export: bool,
    /// False for `Manual` pools, which only serve explicit requests.
    pub automatic: bool,
    /// Uses: `Workload`, `Tunnel`, `LoadBalancer`.
    pub allowed_uses: Vec<SmolStr>,
}

/// A node's WireGuard interface.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Wireguard {
    /// IPv4 address of the interface.
    pub interface_ipv4: Option<IpAddr>,
    /// IPv6 address of the interface.
    pub interface_ipv6: Option<IpAddr>,
    /// Public key for IPv4 (base64).
    pub public_key: SmolStr,
    /// Public key for IPv6 (base64).
    pub public_key_v6: SmolStr,
}
