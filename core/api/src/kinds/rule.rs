//! Policy rules.

use std::collections::BTreeMap;

use calico_net::{Port, Protocol};

open_enum! {
    /// What a rule does with a matching packet.
    pub enum Action {
        /// Let it through; no further policy is looked at.
        Allow = "Allow",
        /// Drop it.
        Deny = "Deny",
        /// Write a log line and go on with the next rule.
        Log = "Log",
        /// Skip the rest of the tier and go on with the next one.
        Pass = "Pass",
    }
}

go_struct! {
    /// One rule of a policy or profile. All fields that are set must match; entries of a list are alternatives.
    pub struct Rule {
        /// What to do with a matching packet. Required.
        pub action: Action = "action";
        /// IP version to match, 4 or 6. Default: both.
        pub ip_version: Option<i64> = "ipVersion", "Option::is_none";
        /// Protocol to match: number 1 to 255, or `TCP`, `UDP`, `ICMP`, `ICMPv6`, `SCTP`, `UDPLite`.
        pub protocol: Option<Protocol> = "protocol", "Option::is_none";
        /// ICMP type and code to match; needs protocol ICMP or ICMPv6.
        pub icmp: Option<IcmpFields> = "icmp", "Option::is_none";
        /// Protocol that must not match.
        pub not_protocol: Option<Protocol> = "notProtocol", "Option::is_none";
        /// ICMP type and code that must not match.
        pub not_icmp: Option<IcmpFields> = "notICMP", "Option::is_none";
        /// Matches on the sender.
        pub source: EntityRule = "source", "crate::is_default";
        /// Matches on the receiver.
        pub destination: EntityRule = "destination", "crate::is_default";
        /// Matches on the HTTP request; only in ingress rules that allow.
        pub http: Option<HttpMatch> = "http", "Option::is_none";
        /// Annotations of the rule, without effect on matching.
        pub metadata: Option<RuleMetadata> = "metadata", "Option::is_none";
    }
}

go_struct! {
    /// ICMP message type and code.
    pub struct IcmpFields {
        /// Type, 0 to 254.
        pub icmp_type: Option<i64> = "type", "Option::is_none";
        /// Code, 0 to 255; needs a type.
        pub code: Option<i64> = "code", "Option::is_none";
    }
}

go_struct! {
    /// Matches on one end of a connection.
    pub struct EntityRule {
        /// CIDRs, with prefix length and without host bits, up to 256.
        pub nets: Vec<String> = "nets", "crate::is_default";
        /// Selector over endpoints and network sets. In a namespaced policy it sees only the policy's own
        /// namespace unless `namespaceSelector` is set.
        pub selector: String = "selector", "crate::is_default";
        /// Selector over namespaces; `global()` means objects without namespace.
        pub namespace_selector: String = "namespaceSelector", "crate::is_default";
        /// A Kubernetes service whose endpoints (and ports, as a destination) match.
        pub services: Option<ServiceMatch> = "services", "Option::is_none";
        /// Ports: numbers, ranges `min:max`, or names of ports; up to 50. Needs a protocol with ports, except names.
        pub ports: Vec<Port> = "ports", "crate::is_default";
        /// CIDRs that must not match.
        pub not_nets: Vec<String> = "notNets", "crate::is_default";
        /// Selector that must not match. Addresses that belong to no endpoint do match the rule.
        pub not_selector: String = "notSelector", "crate::is_default";
        /// Ports that must not match.
        pub not_ports: Vec<Port> = "notPorts", "crate::is_default";
        /// Service accounts under which the workload must run.
        pub service_accounts: Option<ServiceAccountMatch> = "serviceAccounts", "Option::is_none";
    }
}

go_struct! {
    /// A match on a Kubernetes service.
    pub struct ServiceMatch {
        /// Name of the service. Required.
        pub name: String = "name", "crate::is_default";
        /// Namespace of the service. Default: that of the policy; required in global policies.
        pub namespace: String = "namespace", "crate::is_default";
    }
}

go_struct! {
    /// A match on service accounts; both fields must match.
    pub struct ServiceAccountMatch {
        /// Names of service accounts.
        pub names: Vec<String> = "names", "crate::is_default";
        /// Selector over the labels of service accounts.
        pub selector: String = "selector", "crate::is_default";
    }
}

go_struct! {
    /// A match on an HTTP request.
    pub struct HttpMatch {
        /// Methods, such as `GET`; up to 20, without repetition.
        pub methods: Vec<String> = "methods", "crate::is_default";
        /// Paths; up to 20.
        pub paths: Vec<HttpPath> = "paths", "crate::is_default";
    }
}

go_struct! {
    /// A match on the path of an HTTP request: exactly one of the two fields.
    pub struct HttpPath {
        /// The whole path.
        pub exact: String = "exact", "crate::is_default";
        /// The beginning of the path.
        pub prefix: String = "prefix", "crate::is_default";
    }
}

go_struct! {
    /// Data of a rule that does not take part in matching.
    pub struct RuleMetadata {
        /// Annotations.
        pub annotations: BTreeMap<String, String> = "annotations", "crate::is_default";
    }
}
