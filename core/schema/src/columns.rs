//! The columns in which tools show objects.

use calico_api::{
    AnyResource, AsNumber, ClusterInformation, EncapMode, GlobalNetworkPolicy, GlobalNetworkSet,
    HostEndpoint, IPAMConfiguration, IPPool, IPReservation, Kind, NetworkPolicy, NetworkSet, Node, Profile,
    Resource, Tier, WorkloadEndpoint,
};

use crate::defaults::DEFAULT_TIER;

/// Longest text of a list of addresses in a column; what is longer ends in `...`.
const MAX_LIST: usize = 80;

/// What a column may need to know beyond the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ColumnContext {
    /// AS number of nodes that have none of their own.
    pub as_number: AsNumber,
}

impl Default for ColumnContext {
    fn default() -> Self {
        Self { as_number: AsNumber(64_512) }
    }
}

/// One column of a table.
#[derive(Debug, Clone, Copy)]
pub struct Column {
    /// Heading, upper case.
    pub heading: &'static str,
    /// Text of the cell; empty for an object of another kind.
    pub cell: fn(&AnyResource, &ColumnContext) -> String,
}

/// The columns of a kind.
#[derive(Debug, Clone, Copy)]
pub struct Table {
    /// Columns shown if nothing else is asked for.
    pub default: &'static [Column],
    /// Columns of the wide form.
    pub wide: &'static [Column],
    /// Columns shown only if asked for by heading.
    pub extra: &'static [Column],
}

// === impl Table ===

impl Table {
    /// Every column once: those of the wide form, then those of the default form and the extra ones that are not
    /// among them.
    pub fn all(&self) -> impl Iterator<Item = &'static Column> {
        let wide = self.wide;
        let more = self.default.iter().chain(self.extra);
        wide.iter().chain(more.filter(move |column| !wide.iter().any(|w| w.heading == column.heading)))
    }

    /// The column with this heading, in any case.
    pub fn column(&self, heading: &str) -> Option<&'static Column> {
        self.all().find(|column| column.heading.eq_ignore_ascii_case(heading))
    }
}

/// The columns of objects of `kind`. The namespace is not among them.
pub fn table(kind: Kind) -> &'static Table {
    match kind {
        Kind::ClusterInformation => &CLUSTER_INFORMATION,
        Kind::GlobalNetworkPolicy => &GLOBAL_NETWORK_POLICY,
        Kind::GlobalNetworkSet => &GLOBAL_NETWORK_SET,
        Kind::HostEndpoint => &HOST_ENDPOINT,
        Kind::IPAMConfiguration => &IPAM_CONFIGURATION,
        Kind::IPPool => &IP_POOL,
        Kind::IPReservation => &IP_RESERVATION,
        Kind::NetworkPolicy => &NETWORK_POLICY,
        Kind::NetworkSet => &NETWORK_SET,
        Kind::Node => &NODE,
        Kind::Profile => &PROFILE,
        Kind::Tier => &TIER,
        Kind::WorkloadEndpoint => &WORKLOAD_ENDPOINT,
        _ => &NAME_ONLY,
    }
}

/// Columns of one kind: heading and cell.
macro_rules! columns {
    ($ty:ty; $($heading:literal => $cell:expr),* $(,)?) => {
        &[NAME, $(column!($ty, $heading, $cell)),*]
    };
}

macro_rules! column {
    ($ty:ty, $heading:literal, $cell:expr) => {
        Column {
            heading: $heading,
            cell: |object, context| {
                let cell: fn(&$ty, &ColumnContext) -> String = $cell;
                <$ty>::from_any_ref(object).map(|object| cell(object, context)).unwrap_or_default()
            },
        }
    };
}

const NAME: Column = Column { heading: "NAME", cell: |object, _| object.name().to_owned() };

static NAME_ONLY: Table = Table { default: &[NAME], wide: &[NAME], extra: &[] };

const CLUSTER_COLUMNS: &[Column] = columns! { ClusterInformation;
    "CLUSTERGUID" => |o, _| o.spec.cluster_guid.clone(),
    "CLUSTERTYPE" => |o, _| o.spec.cluster_type.clone(),
    "CALICOVERSION" => |o, _| o.spec.calico_version.clone(),
    "DATASTOREREADY" => |o, _| o.spec.datastore_ready.map_or_else(|| "<nil>".to_owned(), |ready| ready.to_string()),
};

static CLUSTER_INFORMATION: Table = Table { default: CLUSTER_COLUMNS, wide: CLUSTER_COLUMNS, extra: &[] };

static GLOBAL_NETWORK_POLICY: Table = Table {
    default: columns! { GlobalNetworkPolicy; "TIER" => |o, _| tier(&o.spec.tier) },
    wide: columns! { GlobalNetworkPolicy;
        "TIER" => |o, _| tier(&o.spec.tier),
        "ORDER" => |o, _| order(o.spec.order),
        "SELECTOR" => |o, _| o.spec.selector.clone(),
    },
    extra: &[],
};

static NETWORK_POLICY: Table = Table {
    default: columns! { NetworkPolicy; "TIER" => |o, _| tier(&o.spec.tier) },
    wide: columns! { NetworkPolicy;
        "TIER" => |o, _| tier(&o.spec.tier),
        "ORDER" => |o, _| order(o.spec.order),
        "SELECTOR" => |o, _| o.spec.selector.clone(),
    },
    extra: &[],
};

static GLOBAL_NETWORK_SET: Table = Table {
    default: &[NAME],
    wide: columns! { GlobalNetworkSet; "NETS" => |o, _| shortened(&o.spec.nets) },
    extra: &[],
};

static NETWORK_SET: Table = Table {
    default: &[NAME],
    wide: columns! { NetworkSet; "NETS" => |o, _| shortened(&o.spec.nets) },
    extra: &[],
};

static HOST_ENDPOINT: Table = Table {
    default: columns! { HostEndpoint; "NODE" => |o, _| o.spec.node.clone() },
    wide: columns! { HostEndpoint;
        "NODE" => |o, _| o.spec.node.clone(),
        "INTERFACE" => |o, _| o.spec.interface_name.clone(),
        "IPS" => |o, _| o.spec.expected_ips.join(","),
        "PROFILES" => |o, _| o.spec.profiles.join(","),
    },
    extra: &[],
};

static IPAM_CONFIGURATION: Table = Table {
    default: columns! { IPAMConfiguration;
        "STRICTAFFINITY" => |o, _| o.spec.strict_affinity.to_string(),
        "AUTOALLOCATEBLOCKS" => |o, _| o.spec.auto_allocate_blocks.to_string(),
    },
    wide: columns! { IPAMConfiguration;
        "STRICTAFFINITY" => |o, _| o.spec.strict_affinity.to_string(),
        "AUTOALLOCATEBLOCKS" => |o, _| o.spec.auto_allocate_blocks.to_string(),
        "MAXBLOCKSPERHOST" => |o, _| o.spec.max_blocks_per_host.to_string(),
    },
    extra: &[],
};

static IP_POOL: Table = Table {
    default: columns! { IPPool;
        "CIDR" => |o, _| o.spec.cidr.clone(),
        "SELECTOR" => |o, _| o.spec.node_selector.clone(),
    },
    wide: columns! { IPPool;
        "CIDR" => |o, _| o.spec.cidr.clone(),
        "NAT" => |o, _| o.spec.nat_outgoing.to_string(),
        "IPIPMODE" => |o, _| mode(&o.spec.ipip_mode),
        "VXLANMODE" => |o, _| mode(&o.spec.vxlan_mode),
        "DISABLED" => |o, _| o.spec.disabled.to_string(),
        "DISABLEBGPEXPORT" => |o, _| o.spec.disable_bgp_export.to_string(),
        "SELECTOR" => |o, _| o.spec.node_selector.clone(),
        "ASSIGNMENTMODE" => |o, _| o.spec.assignment_mode.as_ref().map(ToString::to_string).unwrap_or_default(),
    },
    extra: &[],
};

static IP_RESERVATION: Table = Table {
    default: &[NAME],
    wide: columns! { IPReservation; "CIDRS" => |o, _| shortened(&o.spec.reserved_cidrs) },
    extra: &[],
};

static NODE: Table = Table {
    default: &[NAME],
    wide: columns! { Node;
        "ASN" => |o, context| match &o.spec.bgp {
            None => String::new(),
            Some(bgp) => bgp.as_number.map_or_else(|| format!("({})", context.as_number), |asn| asn.to_string()),
        },
        "IPV4" => |o, _| o.spec.bgp.as_ref().map(|bgp| bgp.ipv4_address.clone()).unwrap_or_default(),
        "IPV6" => |o, _| o.spec.bgp.as_ref().map(|bgp| bgp.ipv6_address.clone()).unwrap_or_default(),
    },
    extra: &[],
};

static PROFILE: Table = Table {
    default: &[NAME],
    wide: columns! { Profile;
        "LABELS" => |o, _| {
            let labels: Vec<String> = o.spec.labels_to_apply.iter().map(|(k, v)| format!("{k}={v}")).collect();
            labels.join(",")
        },
    },
    extra: &[],
};

const TIER_COLUMNS: &[Column] = columns! { Tier; "ORDER" => |o, _| order(o.spec.order) };

static TIER: Table = Table { default: TIER_COLUMNS, wide: TIER_COLUMNS, extra: &[] };

static WORKLOAD_ENDPOINT: Table = Table {
    default: &[
        column!(WorkloadEndpoint, "WORKLOAD", |o, _| workload(o)),
        column!(WorkloadEndpoint, "NODE", |o, _| o.spec.node.clone()),
        column!(WorkloadEndpoint, "NETWORKS", |o, _| o.spec.ip_networks.join(",")),
        column!(WorkloadEndpoint, "INTERFACE", |o, _| o.spec.interface_name.clone()),
    ],
    wide: columns! { WorkloadEndpoint;
        "WORKLOAD" => |o, _| workload(o),
        "NODE" => |o, _| o.spec.node.clone(),
        "NETWORKS" => |o, _| o.spec.ip_networks.join(","),
        "INTERFACE" => |o, _| o.spec.interface_name.clone(),
        "PROFILES" => |o, _| o.spec.profiles.join(","),
        "NATS" => |o, _| {
            let nats = o.spec.ip_nats.iter().map(|nat| format!("{}->{}", nat.external_ip, nat.internal_ip));
            nats.collect::<Vec<_>>().join(",")
        },
    },
    extra: &[column!(WorkloadEndpoint, "ORCHESTRATOR", |o, _| o.spec.orchestrator.clone())],
};

fn workload(endpoint: &WorkloadEndpoint) -> String {
    let spec = &endpoint.spec;
    if spec.workload.is_empty() { spec.pod.clone() } else { spec.workload.clone() }
}

fn tier(tier: &str) -> String {
    if tier.is_empty() { DEFAULT_TIER.to_owned() } else { tier.to_owned() }
}

fn mode(mode: &EncapMode) -> String {
    if mode.is_unset() { "Never".to_owned() } else { mode.to_string() }
}

fn shortened(items: &[String]) -> String {
    let text = items.join(",");
    match text.char_indices().nth(MAX_LIST) {
        None => text,
        Some(_) => {
            let kept: String = text.chars().take(MAX_LIST - 3).collect();
            format!("{kept}...")
        }
    }
}

/// An order as Go's shortest general form: an exponent from 1e+06 on and below 1e-04.
fn order(order: Option<f64>) -> String {
    let Some(value) = order else { return "<nil>".to_owned() };
    let scientific = format!("{value:e}");
    let exponent =
        scientific.split_once('e').and_then(|(digits, exp)| Some((digits, exp.parse::<i32>().ok()?)));
    match exponent {
        Some((digits, exp)) if value != 0.0 && !(-4..6).contains(&exp) => {
            let sign = if exp < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exp.abs())
        }
        _ => value.to_string(),
    }
}

#[cfg(test)]
mod tests;
