//! Names that are computed from other names: Kubernetes object names of IPAM resources, workload endpoints,
//! host interfaces, IPAM handles, UIDs, labels, and names of policies, tiers and profiles.
//!
//! Inputs and outputs are texts; the results must equal upstream's to the letter, because both sides find
//! their objects by them.

use std::fmt::Write as _;

use calico_net::{Cidr, Mac};
use sha1::{Digest as _, Sha1};
use sha2::Sha256;
use sha3::Sha3_256;

mod uid;
mod workload;

pub use uid::{UidError, convert_uid};
pub use workload::{
    WorkloadEndpointIds, WorkloadNameError, split_name, status_file_name, workload_endpoint_key,
};

#[cfg(test)]
mod tests;

/// Label of the namespace of an endpoint or a network set.
pub const LABEL_NAMESPACE: &str = "projectcalico.org/namespace";
/// Label of the orchestrator of a workload endpoint.
pub const LABEL_ORCHESTRATOR: &str = "projectcalico.org/orchestrator";
/// Label of the service account of a workload endpoint.
pub const LABEL_SERVICE_ACCOUNT: &str = "projectcalico.org/serviceaccount";
/// Label of the tier of a policy.
pub const LABEL_TIER: &str = "projectcalico.org/tier";
/// Name of a namespace or a service account as a label, behind [`NAMESPACE_LABEL_PREFIX`] or
/// [`SERVICE_ACCOUNT_LABEL_PREFIX`].
pub const LABEL_NAME: &str = "projectcalico.org/name";
/// Label of a block affinity: hash of the owner, see [`hostname_hash`].
pub const LABEL_HOSTNAME_HASH: &str = "projectcalico.org/hostname-hash";
/// Label of a block affinity: `host` or `virtual`.
pub const LABEL_AFFINITY_TYPE: &str = "projectcalico.org/affinity-type";
/// Label of a block affinity: `4` or `6`.
pub const LABEL_IP_VERSION: &str = "projectcalico.org/ip-version";

/// Prefix of labels that endpoints inherit from their namespace.
pub const NAMESPACE_LABEL_PREFIX: &str = "pcns.";
/// Prefix of labels that endpoints inherit from their service account.
pub const SERVICE_ACCOUNT_LABEL_PREFIX: &str = "pcsa.";
/// Prefix of profiles that stand for namespaces.
pub const NAMESPACE_PROFILE_PREFIX: &str = "kns.";
/// Prefix of profiles that stand for service accounts.
pub const SERVICE_ACCOUNT_PROFILE_PREFIX: &str = "ksa.";
/// The profile that every store has without storing it: everything is allowed.
pub const DEFAULT_ALLOW_PROFILE: &str = "projectcalico-default-allow";

/// Orchestrator of Kubernetes pods.
pub const ORCHESTRATOR_KUBERNETES: &str = "k8s";
/// Orchestrator of containers that the CNI plugin wires outside Kubernetes.
pub const ORCHESTRATOR_CNI: &str = "cni";
/// Orchestrator of Docker's libnetwork.
pub const ORCHESTRATOR_LIBNETWORK: &str = "libnetwork";

/// The tier of policies that name none.
pub const DEFAULT_TIER: &str = "default";
/// Tiers that always exist and cannot be deleted.
pub const BUILT_IN_TIERS: [&str; 3] = [DEFAULT_TIER, "kube-admin", "kube-baseline"];

/// Prefix of host interfaces of workloads unless configured otherwise.
pub const DEFAULT_INTERFACE_PREFIX: &str = "cali";

/// Longest name of a Kubernetes object, plus one.
const NAME_LIMIT: usize = 253;

/// Name of the resource of an IPAM block: the masked CIDR with `-` for `.`, `:` and `/`.
pub fn cidr_name(cidr: &Cidr) -> String {
    cidr.masked().to_string().replace(['.', ':', '/'], "-")
}

/// Name of the resource of a block affinity: owner and block; a name that would be too long for Kubernetes is
/// shortened and made unique by a hash.
pub fn block_affinity_name(owner: &str, cidr: &Cidr) -> String {
    let block = cidr_name(cidr);
    let name = format!("{owner}-{block}");
    if name.len() < NAME_LIMIT {
        return name;
    }
    let hash = hex(&Sha256::digest(format!("{owner}+{block}")));
    let room = (NAME_LIMIT - 1).saturating_sub(block.len() + 13);
    let owner = &owner[..owner.floor_char_boundary(room)];
    format!("{owner}-{block}-{}", &hash[..11])
}

/// Name of the resource of an IPAM handle.
pub fn handle_name(handle: &str) -> String {
    handle.to_lowercase()
}

/// Value of [`LABEL_HOSTNAME_HASH`]: SHA3-256 of the owner in base32 (RFC 4648) without padding.
pub fn hostname_hash(owner: &str) -> String {
    base32(&Sha3_256::digest(owner))
}

/// Host end of a pod's interface: a prefix and 11 hex digits of a hash of namespace and pod.
///
/// `prefixes` is a comma-separated list of which the first entry counts; empty means `cali`.
pub fn pod_interface(prefixes: &str, namespace: &str, pod: &str) -> String {
    let hash = hex(&Sha1::digest(format!("{namespace}.{pod}")));
    format!("{}{}", interface_prefix(prefixes), &hash[..11])
}

/// Host end of a container's interface outside Kubernetes: `cali` and up to 11 characters of the container.
pub fn container_interface(container: &str) -> String {
    let start: String = container.chars().take(11).collect();
    format!("{DEFAULT_INTERFACE_PREFIX}{start}")
}

/// The first entry of a comma-separated list of interface prefixes; `cali` if there is none.
pub fn interface_prefix(prefixes: &str) -> &str {
    match prefixes.split(',').next() {
        Some(first) if !first.is_empty() => first,
        _ => DEFAULT_INTERFACE_PREFIX,
    }
}

/// Handle of a pod's addresses: network name and container.
pub fn pod_handle(network: &str, container: &str) -> String {
    format!("{network}.{container}")
}

/// Handle that very old plugins gave a Kubernetes pod's addresses.
pub fn legacy_pod_handle(namespace: &str, pod: &str) -> String {
    format!("{namespace}.{pod}")
}

/// Which tunnel device an address is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Tunnel {
    /// IP-in-IP.
    Ipip,
    /// VXLAN over IPv4.
    Vxlan,
    /// VXLAN over IPv6.
    VxlanV6,
    /// WireGuard over IPv4.
    Wireguard,
    /// WireGuard over IPv6.
    WireguardV6,
}

// === impl Tunnel ===

impl Tunnel {
    /// Handle of the tunnel address of `node`.
    pub fn handle(self, node: &str) -> String {
        let tunnel = match self {
            Self::Ipip => "ipip",
            Self::Vxlan => "vxlan",
            Self::VxlanV6 => "vxlan-v6",
            Self::Wireguard => "wireguard",
            Self::WireguardV6 => "wireguard-v6",
        };
        format!("{tunnel}-tunnel-addr-{node}")
    }

    /// Value of the allocation attribute `type`.
    pub fn attribute(self) -> &'static str {
        match self {
            Self::Ipip => "ipipTunnelAddress",
            Self::Vxlan => "vxlanTunnelAddress",
            Self::VxlanV6 => "vxlanV6TunnelAddress",
            Self::Wireguard => "wireguardTunnelAddress",
            Self::WireguardV6 => "wireguardV6TunnelAddress",
        }
    }
}

/// MAC address of a node's VXLAN device over IPv4 unless its Node sets one: `66` and a hash of the name.
pub fn vxlan_mac(node: &str) -> Mac {
    let hash = Sha1::digest(node);
    Mac([0x66, hash[0], hash[1], hash[2], hash[3], hash[4]])
}

/// As [`vxlan_mac`], of the device over IPv6.
pub fn vxlan_mac_v6(node: &str) -> Mac {
    vxlan_mac(&format!("{node}-v6"))
}

/// The tier that a policy with this `spec.tier` is in.
pub fn tier_or_default(tier: &str) -> &str {
    if tier.is_empty() { DEFAULT_TIER } else { tier }
}

/// True for a tier that cannot be deleted.
pub fn is_built_in_tier(tier: &str) -> bool {
    BUILT_IN_TIERS.contains(&tier)
}

/// The name that users see of a policy stored without its own name: releases before 3.32 stored policies of
/// the default tier with the tier as a prefix.
pub fn shown_policy_name<'a>(stored: &'a str, tier: &str) -> &'a str {
    if tier_or_default(tier) == DEFAULT_TIER {
        stored.strip_prefix("default.").unwrap_or(stored)
    } else {
        stored
    }
}

/// Profile of a Kubernetes namespace.
pub fn namespace_profile(namespace: &str) -> String {
    format!("{NAMESPACE_PROFILE_PREFIX}{namespace}")
}

/// Profile of a Kubernetes service account; an empty namespace means `default`.
pub fn service_account_profile(namespace: &str, account: &str) -> String {
    let namespace = if namespace.is_empty() { "default" } else { namespace };
    format!("{SERVICE_ACCOUNT_PROFILE_PREFIX}{namespace}.{account}")
}

/// The namespace that a profile stands for; `None` for other profiles.
pub fn profile_namespace(profile: &str) -> Option<&str> {
    profile.strip_prefix(NAMESPACE_PROFILE_PREFIX)
}

/// Namespace and name of the service account that a profile stands for; `None` for other profiles.
/// The account's name may hold dots.
pub fn profile_service_account(profile: &str) -> Option<(&str, &str)> {
    profile.strip_prefix(SERVICE_ACCOUNT_PROFILE_PREFIX)?.split_once('.')
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        // Writing to a String cannot fail.
        let _ = write!(out, "{byte:02x}");
    }
    out
}

fn base32(bytes: &[u8]) -> String {
    const ALPHABET: [u8; 32] = *b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
    let mut out = String::with_capacity(bytes.len() * 8 / 5 + 1);
    let (mut buffer, mut bits) = (0u32, 0u32);
    for byte in bytes {
        buffer = buffer << 8 | u32::from(*byte);
        bits += 8;
        while bits >= 5 {
            bits -= 5;
            out.push(char::from(ALPHABET[(buffer >> bits & 31) as usize]));
        }
        buffer &= (1 << bits) - 1;
    }
    if bits > 0 {
        out.push(char::from(ALPHABET[(buffer << (5 - bits) & 31) as usize]));
    }
    out
}
