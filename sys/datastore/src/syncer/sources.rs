//! Which entries a component follows.

use calico_api::Kind;
use calico_model::ListOptions;
use calico_model::process::processor_for;

use super::ResourceSource;

/// Kinds that Felix follows on every store, in upstream's order.
const FELIX: [Kind; 18] = [
    Kind::ClusterInformation,
    Kind::FelixConfiguration,
    Kind::GlobalNetworkPolicy,
    Kind::StagedGlobalNetworkPolicy,
    Kind::GlobalNetworkSet,
    Kind::IPPool,
    Kind::Node,
    Kind::Profile,
    Kind::WorkloadEndpoint,
    Kind::NetworkPolicy,
    Kind::StagedNetworkPolicy,
    Kind::StagedKubernetesNetworkPolicy,
    Kind::NetworkSet,
    Kind::Tier,
    Kind::HostEndpoint,
    Kind::BGPConfiguration,
    Kind::BGPPeer,
    Kind::LiveMigration,
];

/// What Felix follows on a store that is not Kubernetes: every kind that this version has types for, in Felix's model
/// where there is one; and IPAM's blocks, unless addresses come from the nodes' pod CIDRs.
pub fn felix_sources(use_pod_cidr: bool) -> Vec<ResourceSource> {
    let served = FELIX.into_iter().filter(|kind| kind.info().served);
    let mut sources: Vec<ResourceSource> = served
        .map(|kind| ResourceSource { list: ListOptions::kind(kind), processor: processor_for(kind) })
        .collect();
    if !use_pod_cidr {
        sources.push(ResourceSource::raw(ListOptions::Blocks { version: None }));
    }
    sources
}
