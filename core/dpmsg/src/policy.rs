//! Policies, profiles, rules and the sets that rules name.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use calico_net::{Cidr, IpVersion, PortRange, Protocol};
use smol_str::SmolStr;

/// Name of a set, `s:…`, `n:…`, `svc:…` or `svcnoport:…` with a digest of what it holds.
pub type IpSetId = SmolStr;

/// Name of a profile.
pub type ProfileId = SmolStr;

/// Digest that names a rule across restarts.
pub type RuleId = SmolStr;

/// What the members of a set are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum IpSetType {
    /// Single addresses.
    Ip,
    /// Address, protocol and port.
    IpPort,
    /// Networks.
    Net,
}

/// A member of a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Member {
    /// A network, or a single address as a host CIDR.
    Net(Cidr),
    /// An address with a protocol number and a port.
    IpPort {
        /// Address.
        addr: IpAddr,
        /// Protocol number (6, 17 or 132).
        protocol: u8,
        /// Port.
        port: u16,
    },
}

impl Member {
    /// Family of the member's address.
    pub fn version(&self) -> IpVersion {
        match self {
            Self::Net(c) => c.version(),
            Self::IpPort { addr, .. } => IpVersion::of(*addr),
        }
    }
}

impl fmt::Display for Member {
    /// `10.0.0.0/8`, or `10.0.0.1,tcp:80`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Net(c) => c.fmt(f),
            Self::IpPort { addr, protocol, port } => match protocol {
                6 => write!(f, "{addr},tcp:{port}"),
                17 => write!(f, "{addr},udp:{port}"),
                132 => write!(f, "{addr},sctp:{port}"),
                n => write!(f, "{addr},{n}:{port}"),
            },
        }
    }
}

/// Identity of a policy: kind, namespace and name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PolicyId {
    /// Kind as the API spells it, for example `NetworkPolicy`.
    pub kind: SmolStr,
    /// Namespace; empty for global kinds.
    pub namespace: SmolStr,
    /// Name.
    pub name: SmolStr,
}

impl fmt::Display for PolicyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            write!(f, "{}({})", self.kind, self.name)
        } else {
            write!(f, "{}({}/{})", self.kind, self.namespace, self.name)
        }
    }
}

/// What a rule does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Action {
    /// Accept.
    Allow,
    /// Drop or reject.
    Deny,
    /// Go to the next tier.
    Pass,
    /// Log and go on.
    Log,
}

/// ICMP type and possibly code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct IcmpMatch {
    /// Type.
    pub icmp_type: u8,
    /// Code.
    pub code: Option<u8>,
}

/// What one side of a packet must match: all non-empty fields.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct RuleSide {
    /// Networks, any of which must hold the address.
    pub nets: Vec<Cidr>,
    /// Networks, none of which may.
    pub not_nets: Vec<Cidr>,
    /// Port ranges; with `named_port_sets`, either may match.
    pub ports: Vec<PortRange>,
    /// Port ranges that must not match.
    pub not_ports: Vec<PortRange>,
    /// Sets of address, protocol and port; an alternative to `ports`.
    pub named_port_sets: Vec<IpSetId>,
    /// Such sets that must not match.
    pub not_named_port_sets: Vec<IpSetId>,
    /// Sets of addresses, all of which must hold the address.
    pub sets: Vec<IpSetId>,
    /// Sets, none of which may.
    pub not_sets: Vec<IpSetId>,
    /// Sets of address, protocol and port, all of which must match (Kubernetes Services).
    pub ip_port_sets: Vec<IpSetId>,
    /// Selector as the user wrote it, for reporting.
    pub original_selector: SmolStr,
    /// Negated selector as the user wrote it.
    pub original_not_selector: SmolStr,
    /// Namespace selector as the user wrote it.
    pub original_namespace_selector: SmolStr,
}

/// A rule with selectors and named ports resolved to sets.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Rule {
    /// What happens on a match.
    pub action: Action,
    /// Only this family.
    pub ip_version: Option<IpVersion>,
    /// Only this protocol.
    pub protocol: Option<Protocol>,
    /// Not this protocol.
    pub not_protocol: Option<Protocol>,
    /// ICMP match.
    pub icmp: Option<IcmpMatch>,
    /// Negated ICMP match (the pair as a whole).
    pub not_icmp: Option<IcmpMatch>,
    /// Source.
    pub src: RuleSide,
    /// Destination.
    pub dst: RuleSide,
    /// Annotations of the rule.
    pub metadata: Option<Arc<Vec<(String, String)>>>,
    /// Digest that names the rule.
    pub rule_id: RuleId,
}

/// A policy as one node needs it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Policy {
    /// Tier.
    pub tier: SmolStr,
    /// Namespace; empty for global ones.
    pub namespace: SmolStr,
    /// Inbound rules.
    pub inbound: Vec<Rule>,
    /// Outbound rules.
    pub outbound: Vec<Rule>,
    /// Runs before connection tracking.
    pub untracked: bool,
    /// Runs before destination NAT.
    pub pre_dnat: bool,
    /// Selector of the endpoints, for reporting.
    pub original_selector: SmolStr,
    /// Program it even where no endpoint needs it.
    pub assume_needed_on_every_node: bool,
}

/// A profile as one node needs it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Profile {
    /// Inbound rules.
    pub inbound: Vec<Rule>,
    /// Outbound rules.
    pub outbound: Vec<Rule>,
}

/// A node's addresses.
#[derive(Debug, Clone, PartialEq)]
pub struct HostMetadata {
    /// Node.
    pub hostname: SmolStr,
    /// IPv4 address with its subnet's length, if it has one.
    pub ipv4: Option<Cidr>,
    /// IPv6 address with its subnet's length.
    pub ipv6: Option<Cidr>,
    /// AS number text; empty if the default holds.
    pub as_number: SmolStr,
    /// Labels.
    pub labels: std::collections::BTreeMap<SmolStr, SmolStr>,
}
