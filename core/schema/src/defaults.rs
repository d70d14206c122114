//! Defaults that are stored with an object.
//!
//! They are what upstream's client fills in on every write and what the schemas of the custom resource
//! definitions fill in. Applying them twice changes nothing. Names, UIDs and times are not defaults; the client
//! makes them, and the names of WorkloadEndpoints.

use calico_api::{
    AllowedUse, AnyResource, AssignmentMode, DefaultAction, EncapMode, FelixConfigurationSpec, IPPoolSpec,
    ObjectMeta, PolicyType, Rule, TierSpec,
};
use calico_net::{Cidr, IpVersion};

use crate::Op;

/// Tier of policies that name none.
pub const DEFAULT_TIER: &str = "default";
/// Order of a tier that has none.
pub const DEFAULT_TIER_ORDER: f64 = 1_000_000.0;
/// Label that holds the tier of a policy.
pub const TIER_LABEL: &str = "projectcalico.org/tier";
/// Label that holds the namespace of an endpoint.
pub const NAMESPACE_LABEL: &str = "projectcalico.org/namespace";
/// Label that holds the orchestrator of an endpoint.
pub const ORCHESTRATOR_LABEL: &str = "projectcalico.org/orchestrator";

/// Fills in the defaults of `object` before it is validated and written.
pub fn apply(object: &mut AnyResource, _op: Op) {
    match object {
        AnyResource::NetworkPolicy(policy) => {
            let spec = &mut policy.spec;
            tier(&mut policy.metadata, &mut spec.tier);
            types(&mut spec.types, &spec.ingress, &spec.egress);
        }
        AnyResource::GlobalNetworkPolicy(policy) => {
            let spec = &mut policy.spec;
            tier(&mut policy.metadata, &mut spec.tier);
            types(&mut spec.types, &spec.ingress, &spec.egress);
        }
        AnyResource::Tier(tier) => tier_spec(&mut tier.spec),
        AnyResource::IPPool(pool) => pool_spec(&mut pool.spec),
        AnyResource::FelixConfiguration(config) => felix_spec(&mut config.spec),
        AnyResource::WorkloadEndpoint(endpoint) => {
            let metadata = &mut endpoint.metadata;
            metadata.labels.insert(NAMESPACE_LABEL.to_owned(), metadata.namespace.clone());
            metadata.labels.insert(ORCHESTRATOR_LABEL.to_owned(), endpoint.spec.orchestrator.clone());
        }
        _ => {}
    }
}

/// Fills in what readers may rely on in an object from a store, whoever wrote it.
pub fn apply_on_read(object: &mut AnyResource) {
    let metadata = match object {
        AnyResource::IPPool(pool) => return pool_spec(&mut pool.spec),
        AnyResource::Tier(tier) => return tier_spec(&mut tier.spec),
        AnyResource::NetworkPolicy(policy) => &mut policy.metadata,
        AnyResource::GlobalNetworkPolicy(policy) => &mut policy.metadata,
        _ => return,
    };
    metadata.labels.entry(TIER_LABEL.to_owned()).or_insert_with(|| DEFAULT_TIER.to_owned());
}

fn tier(metadata: &mut ObjectMeta, tier: &mut String) {
    if tier.is_empty() {
        *tier = DEFAULT_TIER.to_owned();
    }
    metadata.labels.insert(TIER_LABEL.to_owned(), tier.clone());
}

fn types(types: &mut Vec<PolicyType>, ingress: &[Rule], egress: &[Rule]) {
    if !types.is_empty() {
        return;
    }
    if !ingress.is_empty() || egress.is_empty() {
        types.push(PolicyType::Ingress);
    }
    if !egress.is_empty() {
        types.push(PolicyType::Egress);
    }
}

fn tier_spec(spec: &mut TierSpec) {
    spec.order.get_or_insert(DEFAULT_TIER_ORDER);
    spec.default_action.get_or_insert(DefaultAction::Deny);
}

fn pool_spec(spec: &mut IPPoolSpec) {
    if let Ok(cidr) = Cidr::parse_strict(&spec.cidr) {
        if cidr.is_masked() {
            spec.cidr = cidr.to_string();
        }
        if spec.block_size == 0 {
            spec.block_size = match cidr.version() {
                IpVersion::V4 => 26,
                IpVersion::V6 => 122,
            };
        }
    }
    for mode in [&mut spec.ipip_mode, &mut spec.vxlan_mode] {
        if mode.is_unset() {
            *mode = EncapMode::Never;
        }
    }
    if spec.node_selector.is_empty() {
        spec.node_selector = "all()".to_owned();
    }
    if spec.allowed_uses.is_empty() {
        spec.allowed_uses = vec![AllowedUse::Workload, AllowedUse::Tunnel];
    }
    spec.assignment_mode.get_or_insert(AssignmentMode::Automatic);
}

fn felix_spec(spec: &mut FelixConfigurationSpec) {
    let fill = |field: &mut String, value: &str| {
        if field.is_empty() {
            *field = value.to_owned();
        }
    };
    // The deprecated switch decides both of the settings that replaced it.
    if let Some(enabled) = spec.bpf_connect_time_load_balancing_enabled {
        let mode = if enabled { "Enabled" } else { "Disabled" };
        spec.bpf_connect_time_load_balancing = mode.to_owned();
        spec.bpf_host_networked_nat_without_ctlb = "Disabled".to_owned();
    }
    fill(&mut spec.bpf_connect_time_load_balancing, "TCP");
    fill(&mut spec.bpf_host_networked_nat_without_ctlb, "Enabled");
    fill(&mut spec.floating_ips, "Disabled");
    fill(&mut spec.nftables_mode, "Auto");
    fill(&mut spec.nftables_flow_table_offload, "Disabled");
}

#[cfg(test)]
mod tests;
