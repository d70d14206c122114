//! Text form of keys: the paths under `/calico` in etcd and SQLite, which are also the keys on Typha's wire.
//!
//! Owns: writing a [`Key`] as a path, reading a path back, the ranges of keys that a list covers
//! ([`KeyRange`]), and the upgrade of policy paths that releases before 3.32 wrote.
//! Invariants: reading never panics, whatever the text; for keys whose names hold no `/` the path of a key
//! parses back to that key; a path with an empty name is no key.
//!
//! Escaping: endpoint, orchestrator, workload, profile and network-set names write `%` as `%25` and `/` as
//! `%2f`. Node names, handles and names of v3 objects are written as they are.

use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::net::IpAddr;

use calico_api::Kind;
use calico_net::{Cidr, IpVersion, cidr::parse_ip};
use smol_str::SmolStr;

use crate::key::{AffinityType, Key, ListOptions, PolicyKey, ResourceKey, WorkloadEndpointKey};

#[cfg(test)]
mod tests;

/// Root of everything that is stored.
pub const ROOT: &str = "/calico";

/// Root of the v3 objects.
pub const RESOURCES_ROOT: &str = "/calico/resources/v3/projectcalico.org/";

/// Port of a BGP peer whose path names none.
pub const DEFAULT_BGP_PORT: u16 = 179;

/// The stored keys that a list or a watch covers.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum KeyRange {
    /// One key.
    Exact(String),
    /// Every key that starts so.
    Prefix(String),
}

// === impl Key ===

impl Key {
    /// The path of this key. Names go in unchecked; see [`Key::missing_identifier`].
    pub fn to_path(&self) -> String {
        let mut out = String::with_capacity(96);
        // Writing to a String cannot fail.
        let _ = self.write_path(&mut out);
        out
    }

    /// What a deletion of this key removes: its path, or for a tier of Felix's model the folder of the tier.
    pub fn delete_path(&self) -> String {
        match self {
            Self::Tier(name) => format!("{ROOT}/v1/policy/tier/{name}"),
            other => other.to_path(),
        }
    }

    /// The first identifier that is needed for a path of its own and is empty, by its field name.
    pub fn missing_identifier(&self) -> Option<&'static str> {
        let first = |fields: &[(&'static str, &SmolStr)]| {
            fields.iter().find(|(_, value)| value.is_empty()).map(|(name, _)| *name)
        };
        let endpoint = |k: &WorkloadEndpointKey| {
            first(&[
                ("node", &k.host),
                ("orchestrator", &k.orchestrator),
                ("workload", &k.workload),
                ("name", &k.endpoint),
            ])
        };
        match self {
            Self::Resource(ResourceKey { kind, namespace, name })
            | Self::Policy(PolicyKey { kind, namespace, name }) => {
                if kind.namespaced() {
                    first(&[("name", name), ("namespace", namespace)])
                } else {
                    first(&[("name", name)])
                }
            }
            Self::Block(_)
            | Self::IpamConfig
            | Self::ReadyFlag
            | Self::IpPool(_)
            | Self::GlobalBgpPeer { .. } => None,
            Self::BlockAffinity { owner, .. } => first(&[("host", owner)]),
            Self::IpamHandle(id) => first(&[("id", id)]),
            Self::IpamHost(host) | Self::HostIp(host) | Self::OrchRefs(host) | Self::Wireguard(host) => {
                first(&[("host", host)])
            }
            Self::NodeBgpPeer { host, .. } => first(&[("host", host)]),
            Self::HostEndpointStatus { host, endpoint } | Self::HostEndpoint { host, endpoint } => {
                first(&[("node", host), ("name", endpoint)])
            }
            Self::WorkloadEndpointStatus { region, endpoint: key } => {
                first(&[("region", region)]).or_else(|| endpoint(key))
            }
            Self::ActiveStatusReport { region, host } | Self::LastStatusReport { region, host } => {
                first(&[("region", region), ("node", host)])
            }
            Self::HostConfig { host, name } | Self::NodeBgpConfig { host, name } => {
                first(&[("node", host), ("name", name)])
            }
            Self::WorkloadEndpoint(key) => endpoint(key),
            Self::GlobalConfig(name)
            | Self::NetworkSet(name)
            | Self::Tier(name)
            | Self::ProfileRules(name)
            | Self::ProfileLabels(name)
            | Self::GlobalBgpConfig(name) => first(&[("name", name)]),
        }
    }

    fn write_path(&self, out: &mut String) -> fmt::Result {
        match self {
            Self::Resource(k) => {
                out.push_str(RESOURCES_ROOT);
                out.push_str(k.kind.plural());
                if k.kind.namespaced() {
                    write!(out, "/{}", k.namespace)?;
                }
                write!(out, "/{}", k.name)
            }
            Self::Block(cidr) => {
                let version = cidr.version().number();
                write!(out, "{ROOT}/ipam/v2/assignment/ipv{version}/block/")?;
                write_cidr(out, cidr)
            }
            Self::BlockAffinity { affinity, owner, cidr } => {
                let (kind, version) = (affinity.as_str(), cidr.version().number());
                write!(out, "{ROOT}/ipam/v2/{kind}/{owner}/ipv{version}/block/")?;
                write_cidr(out, cidr)
            }
            Self::IpamHandle(id) => write!(out, "{ROOT}/ipam/v2/handle/{id}"),
            Self::IpamConfig => write!(out, "{ROOT}/ipam/v2/config"),
            Self::IpamHost(host) => write!(out, "{ROOT}/ipam/v2/host/{host}"),
            Self::HostEndpointStatus { host, endpoint } => {
                write!(out, "{ROOT}/felix/v1/host/{host}/endpoint/{}", escape(endpoint))
            }
            Self::WorkloadEndpointStatus { region, endpoint: k } => {
                write!(out, "{ROOT}/felix/v2/{region}/host/{}", k.host)?;
                write_workload(out, k)
            }
            Self::ActiveStatusReport { region, host } => {
                write!(out, "{ROOT}/felix/v2/{region}/host/{host}/status")
            }
            Self::LastStatusReport { region, host } => {
                write!(out, "{ROOT}/felix/v2/{region}/host/{host}/last_reported_status")
            }
            Self::ReadyFlag => write!(out, "{ROOT}/v1/Ready"),
            Self::GlobalConfig(name) => write!(out, "{ROOT}/v1/config/{name}"),
            Self::HostConfig { host, name } => write!(out, "{ROOT}/v1/host/{host}/config/{name}"),
            Self::HostIp(host) => write!(out, "{ROOT}/v1/host/{host}/metadata"),
            Self::OrchRefs(host) => write!(out, "{ROOT}/v1/host/{host}/orchestrator_refs"),
            Self::Wireguard(host) => write!(out, "{ROOT}/v1/host/{host}/wireguard"),
            Self::HostEndpoint { host, endpoint } => {
                write!(out, "{ROOT}/v1/host/{host}/endpoint/{}", escape(endpoint))
            }
            Self::WorkloadEndpoint(k) => {
                write!(out, "{ROOT}/v1/host/{}", k.host)?;
                write_workload(out, k)
            }
            Self::IpPool(cidr) => {
                write!(out, "{ROOT}/v1/ipam/v{}/pool/", cidr.version().number())?;
                write_cidr(out, cidr)
            }
            Self::NetworkSet(name) => write!(out, "{ROOT}/v1/netset/{}", escape(name)),
            Self::Tier(name) => write!(out, "{ROOT}/v1/policy/tier/{name}/metadata"),
            Self::ProfileRules(name) => write!(out, "{ROOT}/v1/policy/profile/{}/rules", escape(name)),
            Self::ProfileLabels(name) => write!(out, "{ROOT}/v1/policy/profile/{}/labels", escape(name)),
            Self::Policy(k) => {
                write!(out, "{ROOT}/v1/policy/{}/{}/{}", k.kind.name(), k.namespace, k.name)
            }
            Self::GlobalBgpConfig(name) => write!(out, "{ROOT}/bgp/v1/global/{name}"),
            Self::NodeBgpConfig { host, name } => write!(out, "{ROOT}/bgp/v1/host/{host}/{name}"),
            Self::GlobalBgpPeer { ip, port } => {
                write!(out, "{ROOT}/bgp/v1/global/")?;
                write_peer(out, *ip, *port)
            }
            Self::NodeBgpPeer { host, ip, port } => {
                write!(out, "{ROOT}/bgp/v1/host/{host}/")?;
                write_peer(out, *ip, *port)
            }
        }
    }

    /// Reads a path. `None` for anything that is no key of ours.
    ///
    /// Policy paths of releases before 3.32 give the policy's key of today; [`parse_legacy_policy`] tells the
    /// tier that they carry. The leading slash may be missing except for v3 objects and the ready flag.
    pub fn parse_path(path: &str) -> Option<Self> {
        let (rooted, rest) = match path.strip_prefix('/') {
            Some(rest) => (true, rest),
            None => (false, path),
        };
        let rest = rest.strip_prefix("calico/")?;
        let mut parts = [""; MAX_SEGMENTS];
        let mut count = 0;
        for part in rest.split('/') {
            if count == MAX_SEGMENTS {
                return None;
            }
            parts[count] = part;
            count += 1;
        }
        match parts.get(..count)? {
            ["resources", "v3", "projectcalico.org", plural, name @ ..] if rooted => {
                parse_resource(plural, name)
            }
            ["ipam", "v2", ipam @ ..] => parse_ipam(ipam),
            ["felix", "v1", "host", host, "endpoint", endpoint] => {
                Some(Self::HostEndpointStatus { host: unescaped(host)?, endpoint: unescaped(endpoint)? })
            }
            ["felix", "v2", region, "host", host, report @ ..] => parse_report(region, host, report),
            ["v1", "Ready"] => rooted.then_some(Self::ReadyFlag),
            ["v1", "config", ..] => Some(Self::GlobalConfig(raw(tail(rest, 2)?)?)),
            ["v1", "host", host, "config", _, ..] => {
                Some(Self::HostConfig { host: unescaped(host)?, name: raw(tail(rest, 4)?)? })
            }
            ["v1", "host", host, what @ ..] => parse_host(host, what),
            ["v1", "ipam", version @ ("v4" | "v6"), "pool", cidr] => {
                Some(Self::IpPool(parse_cidr(&version[1..], cidr)?))
            }
            ["v1", "netset", name] => Some(Self::NetworkSet(unescaped(name)?)),
            ["v1", "policy", policy @ ..] => parse_policy(policy),
            ["bgp", "v1", "global", peer @ ("peer_v4" | "peer_v6"), addr] => {
                let (ip, port) = parse_peer(&peer["peer_v".len()..], addr)?;
                Some(Self::GlobalBgpPeer { ip, port })
            }
            ["bgp", "v1", "host", host, peer @ ("peer_v4" | "peer_v6"), addr] => {
                let (ip, port) = parse_peer(&peer["peer_v".len()..], addr)?;
                Some(Self::NodeBgpPeer { host: unescaped(host)?, ip, port })
            }
            ["bgp", "v1", "global", ..] => Some(Self::GlobalBgpConfig(raw(tail(rest, 3)?)?)),
            ["bgp", "v1", "host", host, _, ..] => {
                Some(Self::NodeBgpConfig { host: unescaped(host)?, name: raw(tail(rest, 4)?)? })
            }
            _ => None,
        }
    }
}

impl fmt::Display for Key {
    /// How logs and errors name a key, in upstream's words.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let workload = |f: &mut fmt::Formatter<'_>, what: &str, node: &str, k: &WorkloadEndpointKey| {
            let WorkloadEndpointKey { host, orchestrator, workload, endpoint } = k;
            write!(
                f,
                "{what}({node}={host}, orchestrator={orchestrator}, workload={workload}, name={endpoint})"
            )
        };
        match self {
            Self::Resource(k) => k.fmt(f),
            Self::Block(cidr) => write!(f, "BlockKey(cidr={cidr})"),
            Self::BlockAffinity { affinity, owner, cidr } => {
                let kind = affinity.as_str();
                write!(f, "BlockAffinityKey(cidr={cidr}, host={owner}, affinityType={kind})")
            }
            Self::IpamHandle(id) => write!(f, "IPAMHandleKey(id={id})"),
            Self::IpamConfig => f.write_str("IPAMConfigKey()"),
            Self::IpamHost(host) => write!(f, "IPAMHostKey(host={host})"),
            Self::HostEndpointStatus { host, endpoint } => {
                write!(f, "HostEndpointStatus(hostname={host}, name={endpoint})")
            }
            Self::WorkloadEndpointStatus { endpoint, .. } => {
                workload(f, "WorkloadEndpointStatus", "hostname", endpoint)
            }
            Self::ActiveStatusReport { host, .. } => write!(f, "StatusReport(hostname={host})"),
            Self::LastStatusReport { host, .. } => write!(f, "LastStatusReport(hostname={host})"),
            Self::ReadyFlag => f.write_str("ReadyFlagKey()"),
            Self::GlobalConfig(name) => write!(f, "GlobalFelixConfig(name={name})"),
            Self::HostConfig { host, name } => write!(f, "HostConfig(node={host},name={name})"),
            Self::HostIp(host) => write!(f, "HostIP(node={host})"),
            Self::OrchRefs(host) => write!(f, "OrchRefs(node={host})"),
            Self::Wireguard(host) => write!(f, "Wireguard(node={host})"),
            Self::HostEndpoint { host, endpoint } => write!(f, "HostEndpoint(node={host}, name={endpoint})"),
            Self::WorkloadEndpoint(k) => workload(f, "WorkloadEndpoint", "node", k),
            Self::IpPool(cidr) => write!(f, "IPPool(cidr={cidr})"),
            Self::NetworkSet(name) => write!(f, "NetworkSet(name={name})"),
            Self::Tier(name) => write!(f, "Tier(name={name})"),
            Self::ProfileRules(name) => write!(f, "ProfileRules(name={name})"),
            Self::ProfileLabels(name) => write!(f, "ProfileLabels(name={name})"),
            Self::Policy(k) => {
                write!(f, "Policy(Name={}, Namespace={}, Kind={})", k.name, k.namespace, k.kind.name())
            }
            Self::GlobalBgpConfig(name) => write!(f, "GlobalBGPConfig(name={name})"),
            Self::NodeBgpConfig { host, name } => write!(f, "HostBGPConfig(node={host}, name={name})"),
            Self::GlobalBgpPeer { ip, port } => write!(f, "BGPPeer(global, ip={ip}, port={port})"),
            Self::NodeBgpPeer { host, ip, port } => {
                write!(f, "BGPPeer(node={host}, ip={ip}, port={port})")
            }
        }
    }
}

// === impl ListOptions ===

impl ListOptions {
    /// The stored keys that may match. Keys in the range still go through [`ListOptions::matches`].
    pub fn range(&self) -> KeyRange {
        match self {
            Self::Resource { kind, namespace, name, prefix } => {
                let mut root = format!("{RESOURCES_ROOT}{}/", kind.plural());
                if kind.namespaced() {
                    match given(namespace) {
                        Some(namespace) => {
                            root.push_str(namespace);
                            root.push('/');
                        }
                        // Names lie behind the namespace: all namespaces are read and filtered.
                        None => return KeyRange::Prefix(root),
                    }
                }
                match given(name) {
                    Some(name) if *prefix => KeyRange::Prefix(root + name),
                    Some(name) => KeyRange::Exact(root + name),
                    None => KeyRange::Prefix(root),
                }
            }
            Self::Blocks { version } => KeyRange::Prefix(match version {
                Some(v) => format!("{ROOT}/ipam/v2/assignment/ipv{}/block/", v.number()),
                None => format!("{ROOT}/ipam/v2/assignment/"),
            }),
            Self::BlockAffinities { affinity, owner, version } => {
                let mut root = format!("{ROOT}/ipam/v2/{}/", affinity.as_str());
                if let Some(owner) = given(owner) {
                    root.push_str(owner);
                    root.push('/');
                    if let Some(v) = version {
                        root.push_str(match v {
                            IpVersion::V4 => "ipv4/block/",
                            IpVersion::V6 => "ipv6/block/",
                        });
                    }
                }
                KeyRange::Prefix(root)
            }
            Self::Handles => KeyRange::Prefix(format!("{ROOT}/ipam/v2/handle/")),
            Self::IpamConfig => KeyRange::Exact(Key::IpamConfig.to_path()),
            Self::FelixStatus { region, host } => {
                let mut root = format!("{ROOT}/felix/v2/{region}/host/");
                if let Some(host) = given(host) {
                    root.push_str(host);
                    root.push('/');
                }
                KeyRange::Prefix(root)
            }
        }
    }

    /// The text that [`ListOptions::range`] starts with.
    pub fn root_path(&self) -> String {
        match self.range() {
            KeyRange::Exact(path) | KeyRange::Prefix(path) => path,
        }
    }

    /// True if the list holds `key`.
    pub fn matches(&self, key: &Key) -> bool {
        let is = |want: &Option<SmolStr>, got: &SmolStr| given(want).is_none_or(|w| w == got);
        match (self, key) {
            (Self::Resource { kind, namespace, name, prefix }, Key::Resource(k)) => {
                k.kind == *kind
                    && (!kind.namespaced() || is(namespace, &k.namespace))
                    && match given(name) {
                        Some(name) if *prefix => k.name.starts_with(name),
                        Some(name) => k.name == *name,
                        None => true,
                    }
            }
            (Self::Blocks { version }, Key::Block(cidr)) => version.is_none_or(|v| v == cidr.version()),
            (
                Self::BlockAffinities { affinity, owner, version },
                Key::BlockAffinity { affinity: a, owner: o, cidr },
            ) => affinity == a && is(owner, o) && version.is_none_or(|v| v == cidr.version()),
            (Self::Handles, Key::IpamHandle(_)) | (Self::IpamConfig, Key::IpamConfig) => true,
            (Self::FelixStatus { region, host }, Key::WorkloadEndpointStatus { region: r, endpoint }) => {
                region == r && is(host, &endpoint.host)
            }
            (
                Self::FelixStatus { region, host },
                Key::ActiveStatusReport { region: r, host: h } | Key::LastStatusReport { region: r, host: h },
            ) => region == r && is(host, h),
            _ => false,
        }
    }
}

// === impl KeyRange ===

impl KeyRange {
    /// True if `path` is in the range.
    pub fn contains(&self, path: &str) -> bool {
        match self {
            Self::Exact(exact) => path == exact,
            Self::Prefix(prefix) => path.starts_with(prefix.as_str()),
        }
    }

    /// First key of the range.
    pub fn start(&self) -> &str {
        match self {
            Self::Exact(path) | Self::Prefix(path) => path,
        }
    }

    /// The smallest byte string behind all keys of the range; `None` if there is none.
    pub fn end(&self) -> Option<Vec<u8>> {
        match self {
            Self::Exact(path) => {
                let mut end = path.clone().into_bytes();
                end.push(0);
                Some(end)
            }
            Self::Prefix(path) => {
                let mut end = path.clone().into_bytes();
                while let Some(last) = end.pop() {
                    if last < u8::MAX {
                        end.push(last + 1);
                        return Some(end);
                    }
                }
                None
            }
        }
    }
}

/// Reads a policy path of releases before 3.32: the policy's key of today, and the tier that the path names.
///
/// The tier belongs into the policy's value, because those releases kept it only in the path.
pub fn parse_legacy_policy(path: &str) -> Option<(PolicyKey, SmolStr)> {
    let rest = path.strip_prefix('/').unwrap_or(path).strip_prefix("calico/v1/policy/tier/")?;
    let (tier, name) = rest.split_once("/policy/")?;
    if tier.contains('/') || name.contains('/') {
        return None;
    }
    Some((upgrade_policy(name)?, unescape(tier).into()))
}

/// `%` and `/` of a name as `%25` and `%2f`, so that it fits in one segment.
pub fn escape(name: &str) -> Cow<'_, str> {
    if name.bytes().any(|b| matches!(b, b'%' | b'/')) {
        Cow::Owned(name.replace('%', "%25").replace('/', "%2f"))
    } else {
        Cow::Borrowed(name)
    }
}

/// The name that [`escape`] wrote.
pub fn unescape(segment: &str) -> Cow<'_, str> {
    if segment.contains('%') {
        Cow::Owned(segment.replace("%2f", "/").replace("%25", "%"))
    } else {
        Cow::Borrowed(segment)
    }
}

/// The longest fixed path has ten segments below the root; configuration names may hold a few slashes more.
const MAX_SEGMENTS: usize = 16;

fn given(option: &Option<SmolStr>) -> Option<&str> {
    option.as_deref().filter(|text| !text.is_empty())
}

fn raw(segment: &str) -> Option<SmolStr> {
    (!segment.is_empty()).then(|| segment.into())
}

fn unescaped(segment: &str) -> Option<SmolStr> {
    raw(&unescape(segment))
}

/// What follows the first `segments` segments of `rest`.
fn tail(rest: &str, segments: usize) -> Option<&str> {
    rest.splitn(segments + 1, '/').nth(segments)
}

fn write_cidr(out: &mut String, cidr: &Cidr) -> fmt::Result {
    let cidr = cidr.masked();
    write!(out, "{}-{}", cidr.addr(), cidr.prefix_len())
}

fn write_workload(out: &mut String, k: &WorkloadEndpointKey) -> fmt::Result {
    let (orchestrator, workload, endpoint) =
        (escape(&k.orchestrator), escape(&k.workload), escape(&k.endpoint));
    write!(out, "/workload/{orchestrator}/{workload}/endpoint/{endpoint}")
}

fn write_peer(out: &mut String, ip: IpAddr, port: u16) -> fmt::Result {
    write!(out, "peer_v{}/{ip}", IpVersion::of(ip).number())?;
    if port != 0 && port != DEFAULT_BGP_PORT { write!(out, "-{port}") } else { Ok(()) }
}

fn parse_cidr(version: &str, segment: &str) -> Option<Cidr> {
    let (addr, len) = segment.rsplit_once('-')?;
    let len: u8 = if len.bytes().all(|b| b.is_ascii_digit()) { len.parse().ok()? } else { return None };
    let cidr = Cidr::new(parse_ip(addr)?, len)?;
    let family = match version {
        "4" => IpVersion::V4,
        "6" => IpVersion::V6,
        _ => return None,
    };
    (cidr.version() == family && cidr.is_masked()).then_some(cidr)
}

fn parse_resource(plural: &str, name: &[&str]) -> Option<Key> {
    let kind = Kind::from_plural(plural)?;
    match (kind.namespaced(), name) {
        (true, [namespace, name]) => Some(Key::resource(kind, raw(namespace)?, raw(name)?)),
        (false, [name]) => Some(Key::resource(kind, "", raw(name)?)),
        _ => None,
    }
}

fn parse_ipam(parts: &[&str]) -> Option<Key> {
    match parts {
        ["config"] => Some(Key::IpamConfig),
        ["handle", id] => Some(Key::IpamHandle(raw(id)?)),
        ["host", host] => Some(Key::IpamHost(raw(host)?)),
        ["assignment", version, "block", cidr] => {
            Some(Key::Block(parse_cidr(version.strip_prefix("ipv")?, cidr)?))
        }
        [affinity @ ("host" | "virtual"), owner, version, "block", cidr] => {
            let affinity = if *affinity == "host" { AffinityType::Host } else { AffinityType::Virtual };
            Some(Key::affinity(affinity, raw(owner)?, parse_cidr(version.strip_prefix("ipv")?, cidr)?))
        }
        _ => None,
    }
}

fn parse_report(region: &str, host: &str, report: &[&str]) -> Option<Key> {
    let region = raw(region)?;
    match report {
        ["status"] => Some(Key::ActiveStatusReport { region, host: unescaped(host)? }),
        ["last_reported_status"] => Some(Key::LastStatusReport { region, host: unescaped(host)? }),
        ["workload", o, w, "endpoint", e] => {
            Some(Key::WorkloadEndpointStatus { region, endpoint: workload_key(host, o, w, e)? })
        }
        _ => None,
    }
}

fn workload_key(
    host: &str,
    orchestrator: &str,
    workload: &str,
    endpoint: &str,
) -> Option<WorkloadEndpointKey> {
    Some(WorkloadEndpointKey {
        host: unescaped(host)?,
        orchestrator: unescaped(orchestrator)?,
        workload: unescaped(workload)?,
        endpoint: unescaped(endpoint)?,
    })
}

fn parse_host(host: &str, what: &[&str]) -> Option<Key> {
    let node = unescaped(host)?;
    match what {
        ["metadata"] => Some(Key::HostIp(node)),
        ["wireguard"] => Some(Key::Wireguard(node)),
        ["orchestrator_refs"] => Some(Key::OrchRefs(node)),
        ["endpoint", endpoint] => Some(Key::HostEndpoint { host: node, endpoint: unescaped(endpoint)? }),
        ["workload", o, w, "endpoint", e] => Some(Key::WorkloadEndpoint(workload_key(host, o, w, e)?)),
        _ => None,
    }
}

fn parse_policy(parts: &[&str]) -> Option<Key> {
    match parts {
        ["tier", name, "metadata"] => Some(Key::Tier(unescaped(name)?)),
        ["tier", _, "policy", name] => Some(Key::Policy(upgrade_policy(name)?)),
        ["profile", name, "rules"] => Some(Key::ProfileRules(unescaped(name)?)),
        ["profile", name, "labels"] => Some(Key::ProfileLabels(unescaped(name)?)),
        [kind, namespace, name] => {
            let kind = Kind::from_name(kind).filter(|kind| is_policy(*kind))?;
            let namespace = unescape(namespace).into();
            Some(Key::Policy(PolicyKey { kind, namespace, name: unescaped(name)? }))
        }
        _ => None,
    }
}

fn is_policy(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::NetworkPolicy
            | Kind::GlobalNetworkPolicy
            | Kind::StagedNetworkPolicy
            | Kind::StagedGlobalNetworkPolicy
            | Kind::StagedKubernetesNetworkPolicy
            | Kind::KubernetesNetworkPolicy
            | Kind::KubernetesClusterNetworkPolicy
    )
}

/// The kind was told by a prefix of the name, the namespace stood before the first slash of it.
fn upgrade_policy(segment: &str) -> Option<PolicyKey> {
    const NAMESPACED: [(&str, Kind); 4] = [
        ("staged:knp.default.", Kind::StagedKubernetesNetworkPolicy),
        ("staged:", Kind::StagedNetworkPolicy),
        ("knp.default.", Kind::KubernetesNetworkPolicy),
        ("", Kind::NetworkPolicy),
    ];
    const GLOBAL: [(&str, Kind); 3] = [
        ("staged:", Kind::StagedGlobalNetworkPolicy),
        ("kcnp.", Kind::KubernetesClusterNetworkPolicy),
        ("", Kind::GlobalNetworkPolicy),
    ];
    let full = unescape(segment);
    let (namespace, rest, prefixes): (_, _, &[_]) = match full.split_once('/') {
        Some((namespace, rest)) => (namespace, rest, &NAMESPACED),
        None => ("", &*full, &GLOBAL),
    };
    let (name, kind) =
        prefixes.iter().find_map(|(prefix, kind)| rest.strip_prefix(prefix).map(|name| (name, *kind)))?;
    Some(PolicyKey { kind, namespace: namespace.into(), name: raw(name)? })
}

fn parse_peer(version: &str, segment: &str) -> Option<(IpAddr, u16)> {
    let (addr, port) = match segment.split_once('-') {
        Some((addr, port)) if port.bytes().all(|b| b.is_ascii_digit()) => (addr, port.parse().ok()?),
        Some(_) => return None,
        None => (segment, DEFAULT_BGP_PORT),
    };
    let ip = parse_ip(addr)?;
    let family = if ip.is_ipv4() { "4" } else { "6" };
    (family == version).then_some((ip, port))
}
