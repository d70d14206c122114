//! The parts of Kubernetes' own types that conversion into Calico's reads.
//!
//! Field names follow Kubernetes; fields that conversion does not look at are left out, so decoding a whole
//! object must be lenient. [`NetworkPolicy`] is complete and can be decoded strictly.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::meta::ObjectMeta;

/// `apiVersion` of [`NetworkPolicy`].
pub const NETWORKING_V1: &str = "networking.k8s.io/v1";

go_struct! {
    /// A selector by labels; all conditions must hold, none selects everything.
    pub struct LabelSelector {
        /// Labels with their values.
        pub match_labels: BTreeMap<String, String> = "matchLabels", "crate::is_default";
        /// Further conditions.
        pub match_expressions: Vec<LabelSelectorRequirement> = "matchExpressions", "crate::is_default";
    }
}

go_struct! {
    /// One condition on a label.
    pub struct LabelSelectorRequirement {
        /// The label.
        pub key: String = "key";
        /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
        pub operator: String = "operator";
        /// Values, for `In` and `NotIn`.
        pub values: Vec<String> = "values", "crate::is_default";
    }
}

go_struct! {
    /// A NetworkPolicy of `networking.k8s.io/v1`.
    pub struct NetworkPolicy {
        /// `NetworkPolicy`.
        pub kind: String = "kind", "crate::is_default";
        /// `networking.k8s.io/v1`.
        pub api_version: String = "apiVersion", "crate::is_default";
        /// Metadata.
        pub metadata: ObjectMeta = "metadata";
        /// What the policy says.
        pub spec: NetworkPolicySpec = "spec";
    }
}

go_struct! {
    /// What a [`NetworkPolicy`] says.
    pub struct NetworkPolicySpec {
        /// Pods that the policy is for.
        pub pod_selector: LabelSelector = "podSelector";
        /// Allowed traffic to the pods.
        pub ingress: Vec<NetworkPolicyIngressRule> = "ingress", "crate::is_default";
        /// Allowed traffic from the pods.
        pub egress: Vec<NetworkPolicyEgressRule> = "egress", "crate::is_default";
        /// `Ingress`, `Egress` or both.
        pub policy_types: Vec<String> = "policyTypes", "crate::is_default";
    }
}

go_struct! {
    /// Allowed traffic to pods.
    pub struct NetworkPolicyIngressRule {
        /// Ports of the pods; none means all.
        pub ports: Vec<NetworkPolicyPort> = "ports", "crate::is_default";
        /// Senders; none means all.
        pub from: Vec<NetworkPolicyPeer> = "from", "crate::is_default";
    }
}

go_struct! {
    /// Allowed traffic from pods.
    pub struct NetworkPolicyEgressRule {
        /// Ports of the receivers; none means all.
        pub ports: Vec<NetworkPolicyPort> = "ports", "crate::is_default";
        /// Receivers; none means all.
        pub to: Vec<NetworkPolicyPeer> = "to", "crate::is_default";
    }
}

go_struct! {
    /// A port or range of ports.
    pub struct NetworkPolicyPort {
        /// `TCP` (default), `UDP` or `SCTP`.
        pub protocol: Option<String> = "protocol", "Option::is_none";
        /// Number or name of the port; unset means all ports.
        pub port: Option<IntOrString> = "port", "Option::is_none";
        /// Last port of a range that begins with `port`.
        pub end_port: Option<i64> = "endPort", "Option::is_none";
    }
}

go_struct! {
    /// The other end of allowed traffic.
    pub struct NetworkPolicyPeer {
        /// Pods, of the policy's namespace or of those that `namespaceSelector` selects.
        pub pod_selector: Option<LabelSelector> = "podSelector", "Option::is_none";
        /// Namespaces.
        pub namespace_selector: Option<LabelSelector> = "namespaceSelector", "Option::is_none";
        /// Addresses.
        pub ip_block: Option<IpBlock> = "ipBlock", "Option::is_none";
    }
}

go_struct! {
    /// A CIDR without some of its parts.
    pub struct IpBlock {
        /// The CIDR.
        pub cidr: String = "cidr";
        /// Parts that do not belong.
        pub except: Vec<String> = "except", "crate::is_default";
    }
}

go_struct! {
    /// A namespace.
    pub struct Namespace {
        /// Metadata.
        pub metadata: ObjectMeta = "metadata";
    }
}

go_struct! {
    /// A service account.
    pub struct ServiceAccount {
        /// Metadata.
        pub metadata: ObjectMeta = "metadata";
    }
}

go_struct! {
    /// A pod.
    pub struct Pod {
        /// Metadata.
        pub metadata: ObjectMeta = "metadata";
        /// What the pod is made of.
        pub spec: PodSpec = "spec";
        /// What was observed of it.
        pub status: PodStatus = "status";
    }
}

go_struct! {
    /// What a pod is made of.
    pub struct PodSpec {
        /// Containers that run before the others.
        pub init_containers: Vec<Container> = "initContainers", "crate::is_default";
        /// Containers.
        pub containers: Vec<Container> = "containers", "crate::is_default";
        /// Service account that the pod runs under.
        pub service_account_name: String = "serviceAccountName", "crate::is_default";
        /// Node that the pod runs on.
        pub node_name: String = "nodeName", "crate::is_default";
        /// True if the pod uses the network of its node.
        pub host_network: bool = "hostNetwork", "crate::is_default";
    }
}

go_struct! {
    /// A container of a pod.
    pub struct Container {
        /// Name.
        pub name: String = "name";
        /// Ports that the container declares.
        pub ports: Vec<ContainerPort> = "ports", "crate::is_default";
    }
}

go_struct! {
    /// A declared port of a container.
    pub struct ContainerPort {
        /// Name.
        pub name: String = "name", "crate::is_default";
        /// Port of the host that is forwarded here; 0 for none.
        pub host_port: i64 = "hostPort", "crate::is_default";
        /// Port number in the pod.
        pub container_port: i64 = "containerPort";
        /// `TCP` (default), `UDP` or `SCTP`.
        pub protocol: String = "protocol", "crate::is_default";
        /// Address of the host that `hostPort` is limited to.
        pub host_ip: String = "hostIP", "crate::is_default";
    }
}

go_struct! {
    /// What was observed of a pod.
    pub struct PodStatus {
        /// `Pending`, `Running`, `Succeeded`, `Failed` or `Unknown`.
        pub phase: String = "phase", "crate::is_default";
        /// First address.
        pub pod_ip: String = "podIP", "crate::is_default";
        /// All addresses.
        pub pod_ips: Vec<PodIp> = "podIPs", "crate::is_default";
    }
}

go_struct! {
    /// An address of a pod.
    pub struct PodIp {
        /// The address.
        pub ip: String = "ip", "crate::is_default";
    }
}

/// A number or a name, as Kubernetes writes ports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IntOrString {
    /// A number.
    Int(i64),
    /// A name.
    String(String),
}

impl Default for IntOrString {
    fn default() -> Self {
        Self::Int(0)
    }
}

impl fmt::Display for IntOrString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(number) => number.fmt(f),
            Self::String(text) => f.write_str(text),
        }
    }
}

impl Serialize for IntOrString {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Int(number) => s.serialize_i64(*number),
            Self::String(text) => s.serialize_str(text),
        }
    }
}

impl<'de> Deserialize<'de> for IntOrString {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = IntOrString;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number or a string")
            }

            fn visit_i64<E: de::Error>(self, v: i64) -> Result<IntOrString, E> {
                Ok(IntOrString::Int(v))
            }

            fn visit_u64<E: de::Error>(self, v: u64) -> Result<IntOrString, E> {
                i64::try_from(v).map(IntOrString::Int).map_err(E::custom)
            }

            fn visit_str<E: de::Error>(self, v: &str) -> Result<IntOrString, E> {
                Ok(IntOrString::String(v.to_owned()))
            }
        }
        d.deserialize_any(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::decode;

    #[test]
    fn network_policies_decode_strictly() {
        let policy: NetworkPolicy = decode::strict(&json!({
            "apiVersion": NETWORKING_V1, "kind": "NetworkPolicy",
            "metadata": {"name": "web", "namespace": "shop"},
            "spec": {
                "podSelector": {"matchLabels": {"app": "web"}},
                "ingress": [{
                    "from": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}}, {"podSelector": {}}],
                    "ports": [{"protocol": "TCP", "port": 80, "endPort": 90}, {"port": "metrics"}],
                }],
                "policyTypes": ["Ingress"],
            },
        }))
        .unwrap();
        let rule = &policy.spec.ingress[0];
        assert_eq!(rule.ports[0].port, Some(IntOrString::Int(80)));
        assert_eq!(rule.ports[1].port, Some(IntOrString::String("metrics".to_owned())));
        assert_eq!(rule.from[1].pod_selector, Some(LabelSelector::default()));
        assert_eq!(rule.from[1].namespace_selector, None);

        let error = decode::strict::<NetworkPolicy>(&json!({"spec": {"podSelecter": {}}})).unwrap_err();
        assert_eq!(error.to_string(), "unknown field: spec.podSelecter (did you mean \"podSelector\"?)");
    }
}
