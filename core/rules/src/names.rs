//! Names of chains and sets.
//!
//! Chains are named by what they are for and whom they serve; a name that is too long, or that a packet filter
//! could not read, has the second part replaced by a digest.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use calico_dpmsg::PolicyId;
use calico_net::IpVersion;
use sha2::{Digest, Sha256};
use smol_str::{SmolStr, format_smolstr};

use crate::ir::{Direction, Layer};

/// Longest chain name, without the layer, of iptables; nftables allows more.
pub const IPTABLES_MAX: usize = 28;
/// Longest chain name that nftables takes, layer included.
pub const NFT_MAX: usize = 256;
/// Longest set name.
pub const SET_MAX: usize = 31;

/// To a workload.
pub const TO_WORKLOAD: &str = "cali-tw-";
/// From a workload.
pub const FROM_WORKLOAD: &str = "cali-fw-";
/// To what lies behind a host interface.
pub const TO_HOST_ENDPOINT: &str = "cali-th-";
/// From what lies behind a host interface.
pub const FROM_HOST_ENDPOINT: &str = "cali-fh-";
/// Forwarded out of a host interface.
pub const TO_HOST_FORWARD: &str = "cali-thfw-";
/// Forwarded, came in on a host interface.
pub const FROM_HOST_FORWARD: &str = "cali-fhfw-";
/// Pseudo-interface of the host endpoint that stands for all interfaces.
pub const ANY_INTERFACE: &str = "any-interface-at-all";

/// `prefix` and `suffix`, or `prefix`, `_` and a digest of `suffix` if the name would be longer than `max`.
///
/// An empty suffix counts as `_`. A name of exactly `max` characters whose suffix begins with `_` is digested
/// too, so that no plain name can equal a digested one.
pub fn limit(prefix: &str, suffix: &str, max: usize) -> SmolStr {
    let suffix = if suffix.is_empty() { "_" } else { suffix };
    let len = prefix.len() + suffix.len();
    if len > max || (len == max && suffix.starts_with('_')) {
        return digested(prefix, suffix, max);
    }
    format_smolstr!("{prefix}{suffix}")
}

fn digested(prefix: &str, suffix: &str, max: usize) -> SmolStr {
    let digest = URL_SAFE_NO_PAD.encode(Sha256::digest(suffix.as_bytes()));
    let keep = max.saturating_sub(1 + prefix.len()).min(digest.len());
    format_smolstr!("{prefix}_{}", &digest[..keep])
}

/// Name of a chain in nftables, without the layer.
///
/// Differs from upstream: a suffix with a character that nft cannot read in an identifier is digested, where
/// upstream's transaction would fail.
pub fn chain(prefix: &str, suffix: &str) -> SmolStr {
    // Room for the longest layer name and its dash.
    let max = NFT_MAX - "mangle-".len();
    if suffix.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'/' | b'-' | b'_' | b'.')) {
        limit(prefix, suffix, max)
    } else {
        digested(prefix, suffix, max)
    }
}

/// Short form of a policy kind; the kind itself if it is not known.
pub fn short_kind(kind: &str) -> &str {
    match kind {
        "NetworkPolicy" => "np",
        "GlobalNetworkPolicy" => "gnp",
        "KubernetesNetworkPolicy" => "knp",
        "KubernetesClusterNetworkPolicy" => "kcnp",
        "StagedNetworkPolicy" => "snp",
        "StagedGlobalNetworkPolicy" => "sgnp",
        "StagedKubernetesNetworkPolicy" => "sknp",
        other => other,
    }
}

/// True if policies of this kind are only reported, never enforced.
pub fn is_staged(id: &PolicyId) -> bool {
    id.kind.starts_with("Staged")
}

/// `<short kind>/<name>` or `<short kind>/<namespace>/<name>`.
pub fn policy_part(id: &PolicyId) -> SmolStr {
    let kind = short_kind(&id.kind);
    if id.namespace.is_empty() {
        format_smolstr!("{kind}/{}", id.name)
    } else {
        format_smolstr!("{kind}/{}/{}", id.namespace, id.name)
    }
}

/// Chain of a policy.
pub fn policy_chain(id: &PolicyId, direction: Direction) -> SmolStr {
    let prefix = match direction {
        Direction::Ingress => "cali-pi-",
        Direction::Egress => "cali-po-",
    };
    chain(prefix, &policy_part(id))
}

/// Chain of a profile.
pub fn profile_chain(name: &str, direction: Direction) -> SmolStr {
    let prefix = match direction {
        Direction::Ingress => "cali-pri-",
        Direction::Egress => "cali-pro-",
    };
    chain(prefix, name)
}

/// Name of a set of `version`, at most [`SET_MAX`] characters, in nftables' spelling.
pub fn set(version: IpVersion, id: &str) -> SmolStr {
    let name = format!("cali{}0{id}", version.number());
    name.chars().take(SET_MAX).map(|c| if c == ':' { '-' } else { c }).collect()
}

/// True if `id` gives a name that packet filters can read.
pub fn is_set_id(id: &str) -> bool {
    !id.is_empty() && id.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b':' | b'-' | b'_' | b'.'))
}

/// True if `name` can be the name of a network interface and be written in a rule: 1 to 15 visible ASCII
/// characters, none of which ends a text or stands for other names.
pub fn is_interface(name: &str) -> bool {
    (1..=15).contains(&name.len())
        && !matches!(name, "." | "..")
        && name.bytes().all(|b| {
            b.is_ascii_graphic()
                && !matches!(b, b'/' | b':' | b'"' | b'\\' | b'*' | b'+' | b'$' | b'\'' | b';')
        })
}

/// A chain or map name with its layer, as nftables has it.
pub fn layered(layer: Layer, name: &str) -> SmolStr {
    format_smolstr!("{}-{name}", layer.name())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits() {
        for (prefix, suffix, max, want) in [
            ("cali-pi-", "gnp/default.allow-all", 28, "cali-pi-_CCdt78kWMcedCsqGIo6"),
            ("cali-pi-", "knp/default/deny-all", 28, "cali-pi-knp/default/deny-all"),
            ("cali-pri-", "projectcalico-default-allow", 28, "cali-pri-_TI1Jm4dJqQzYb0Rx3u"),
            ("cali-tw-", ANY_INTERFACE, 28, "cali-tw-any-interface-at-all"),
            ("cali-thfw-", ANY_INTERFACE, 28, "cali-thfw-_Nqh4HyA73udmyanQI"),
            ("felix", "_2345", 10, "felix_kMQI"),
            ("felix", "12345678910", 13, "felix_Y2QCZIS"),
            ("felix", "", 10, "felix_"),
        ] {
            assert_eq!(limit(prefix, suffix, max), want);
        }
    }

    #[test]
    fn unreadable_suffixes_are_digested() {
        let name = chain("cali-pri-", "a\"; flush ruleset; \"");
        assert!(name.starts_with("cali-pri-_"), "{name}");
        assert!(name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_')));
        assert_eq!(chain("cali-pri-", "kns.shop"), "cali-pri-kns.shop");
        assert!(chain("cali-pri-", &"x".repeat(400)).len() <= 249);
    }

    #[test]
    fn sets() {
        let id = "s:5y5I3VdRZfDU01O--xXAPx2yxCQQqMf0M6IWug";
        assert_eq!(set(IpVersion::V4, id), "cali40s-5y5I3VdRZfDU01O--xXAPx2");
        assert_eq!(set(IpVersion::V6, "this-host"), "cali60this-host");
        assert!(is_set_id(id) && !is_set_id("") && !is_set_id("a b") && !is_set_id("a}"));
    }

    #[test]
    fn interfaces() {
        for good in ["cali0123456789a", "eth0.100", "br-lan", "lo", "6in4-wan", "ppp@x"] {
            assert!(is_interface(good), "{good}");
        }
        for bad in ["", ".", "..", "cali*", "eth+", "a b", "a\"b", "a/b", "0123456789abcdef", "é"] {
            assert!(!is_interface(bad), "{bad}");
        }
    }
}
