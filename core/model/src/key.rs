//! Identities of stored and synchronised things.

use std::fmt;
use std::net::IpAddr;

use calico_api::Kind;
use calico_net::{Cidr, IpVersion};
use smol_str::SmolStr;

/// Identity of a `projectcalico.org/v3` object.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ResourceKey {
    /// Kind.
    pub kind: Kind,
    /// Namespace; empty for cluster-scoped kinds.
    pub namespace: SmolStr,
    /// Name.
    pub name: SmolStr,
}

impl fmt::Display for ResourceKey {
    /// `Kind(name)` or `Kind(namespace/name)`: how errors name an object.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.kind.name();
        if self.kind.namespaced() {
            write!(f, "{kind}({}/{})", self.namespace, self.name)
        } else {
            write!(f, "{kind}({})", self.name)
        }
    }
}

/// Identity of a policy in Felix's model. Two kinds never clash.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PolicyKey {
    /// Kind: NetworkPolicy, GlobalNetworkPolicy, a staged kind or a Kubernetes one.
    pub kind: Kind,
    /// Namespace; empty for cluster-scoped kinds.
    pub namespace: SmolStr,
    /// Name.
    pub name: SmolStr,
}

/// Identity of a workload endpoint in Felix's model.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WorkloadEndpointKey {
    /// Node that runs the workload.
    pub host: SmolStr,
    /// Orchestrator, for example `k8s`.
    pub orchestrator: SmolStr,
    /// Workload; for Kubernetes `namespace/pod`.
    pub workload: SmolStr,
    /// Endpoint within the workload, for example `eth0`.
    pub endpoint: SmolStr,
}

/// Who holds an affinity for a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum AffinityType {
    /// A node.
    #[default]
    Host,
    /// Something that is no node, for example the load-balancer allocator.
    Virtual,
}

impl AffinityType {
    /// `host` or `virtual`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Virtual => "virtual",
        }
    }
}

/// Identity of everything in a store or in a syncer's stream.
///
/// The text form ([`crate::path`]) is the etcd path. Variants marked *wire only* never reach a store: they name
/// what update processors make for Felix.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Key {
    /// A v3 object.
    Resource(ResourceKey),
    /// An IPAM allocation block (masked CIDR).
    Block(Cidr),
    /// An owner's claim of a block.
    BlockAffinity {
        /// Kind of owner.
        affinity: AffinityType,
        /// Owner, for [`AffinityType::Host`] the node's name.
        owner: SmolStr,
        /// The block (masked).
        cidr: Cidr,
    },
    /// An IPAM handle.
    IpamHandle(SmolStr),
    /// The IPAM configuration.
    IpamConfig,
    /// The per-host IPAM marker of old releases.
    IpamHost(SmolStr),
    /// Status of a host endpoint, written by Felix.
    HostEndpointStatus {
        /// Node.
        host: SmolStr,
        /// Endpoint.
        endpoint: SmolStr,
    },
    /// Status of a workload endpoint, written by Felix.
    WorkloadEndpointStatus {
        /// Region segment: `no-region` or `region-<name>`.
        region: SmolStr,
        /// Endpoint.
        endpoint: WorkloadEndpointKey,
    },
    /// Felix's live report of a node (with a life time).
    ActiveStatusReport {
        /// Region segment.
        region: SmolStr,
        /// Node.
        host: SmolStr,
    },
    /// Felix's last report of a node.
    LastStatusReport {
        /// Region segment.
        region: SmolStr,
        /// Node.
        host: SmolStr,
    },
    /// Wire only: whether the store is ready for use.
    ReadyFlag,
    /// Wire only: a Felix parameter for all nodes.
    GlobalConfig(SmolStr),
    /// Wire only: a Felix parameter for one node.
    HostConfig {
        /// Node.
        host: SmolStr,
        /// Parameter.
        name: SmolStr,
    },
    /// Wire only: a node's address, from very old components.
    HostIp(SmolStr),
    /// Wire only: OpenStack's references of a node.
    OrchRefs(SmolStr),
    /// Wire only: a node's WireGuard interface.
    Wireguard(SmolStr),
    /// Wire only: a host endpoint.
    HostEndpoint {
        /// Node.
        host: SmolStr,
        /// Endpoint.
        endpoint: SmolStr,
    },
    /// Wire only: a workload endpoint.
    WorkloadEndpoint(WorkloadEndpointKey),
    /// Wire only: an IP pool, by its CIDR.
    IpPool(Cidr),
    /// Wire only: a network set; `namespace/name` for namespaced ones.
    NetworkSet(SmolStr),
    /// Wire only: a tier.
    Tier(SmolStr),
    /// Wire only: rules of a profile.
    ProfileRules(SmolStr),
    /// Wire only: labels that a profile gives to its endpoints.
    ProfileLabels(SmolStr),
    /// Wire only: a policy.
    Policy(PolicyKey),
    /// Wire only: a BGP setting for all nodes.
    GlobalBgpConfig(SmolStr),
    /// Wire only: a BGP setting of one node.
    NodeBgpConfig {
        /// Node.
        host: SmolStr,
        /// Setting.
        name: SmolStr,
    },
    /// Wire only: a BGP peer of all nodes.
    GlobalBgpPeer {
        /// Address.
        ip: IpAddr,
        /// Port; 179 unless set.
        port: u16,
    },
    /// Wire only: a BGP peer of one node.
    NodeBgpPeer {
        /// Node.
        host: SmolStr,
        /// Address.
        ip: IpAddr,
        /// Port; 179 unless set.
        port: u16,
    },
}

impl Key {
    /// Key of a v3 object.
    pub fn resource(kind: Kind, namespace: impl Into<SmolStr>, name: impl Into<SmolStr>) -> Self {
        Self::Resource(ResourceKey { kind, namespace: namespace.into(), name: name.into() })
    }

    /// Key of a block affinity.
    pub fn affinity(affinity: AffinityType, owner: impl Into<SmolStr>, cidr: Cidr) -> Self {
        Self::BlockAffinity { affinity, owner: owner.into(), cidr }
    }
}

/// Which entries a list or a watch is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ListOptions {
    /// Objects of a kind.
    Resource {
        /// Kind.
        kind: Kind,
        /// Only this namespace.
        namespace: Option<SmolStr>,
        /// Only this name; with `prefix`, names that start so.
        name: Option<SmolStr>,
        /// Whether `name` is a prefix.
        prefix: bool,
    },
    /// Allocation blocks.
    Blocks {
        /// Only this family.
        version: Option<IpVersion>,
    },
    /// Block affinities of one type of owner.
    BlockAffinities {
        /// Kind of owner.
        affinity: AffinityType,
        /// Only this owner.
        owner: Option<SmolStr>,
        /// Only this family.
        version: Option<IpVersion>,
    },
    /// IPAM handles.
    Handles,
    /// The IPAM configuration (one entry).
    IpamConfig,
    /// Felix's reports about endpoints and nodes under one region segment, for one node or all.
    FelixStatus {
        /// Region segment.
        region: SmolStr,
        /// Only this node.
        host: Option<SmolStr>,
    },
}

impl ListOptions {
    /// All objects of `kind`.
    pub fn kind(kind: Kind) -> Self {
        Self::Resource { kind, namespace: None, name: None, prefix: false }
    }
}
