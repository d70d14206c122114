//! The kinds that calicoctl knows, and which of their objects it leaves alone.

use calico_api::Kind;

/// Kinds that exist for machinery only.
const INTERNAL: [Kind; 4] = [Kind::BlockAffinity, Kind::IPAMBlock, Kind::IPAMHandle, Kind::LiveMigration];

/// Kinds whose objects belong to a tier.
pub(crate) const TIERED: [Kind; 4] = [
    Kind::NetworkPolicy,
    Kind::GlobalNetworkPolicy,
    Kind::StagedNetworkPolicy,
    Kind::StagedGlobalNetworkPolicy,
];

/// Start of the names of policies that Kubernetes' controllers write to etcd.
const KUBERNETES_POLICY: &str = "knp.default.";

/// True if users read or write objects of this kind.
pub(crate) fn is_known(kind: Kind) -> bool {
    let info = kind.info();
    info.public && info.served && !INTERNAL.contains(&kind)
}

/// The kind that a word on the command line names.
pub(crate) fn lookup(word: &str) -> Result<Kind, UnknownKind> {
    Kind::lookup(word).filter(|kind| is_known(*kind)).ok_or_else(|| UnknownKind(word.to_owned()))
}

/// A word that names no kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("resource type '{0}' is not supported")]
pub(crate) struct UnknownKind(pub(crate) String);

/// True for policies that Kubernetes' own API is the place to change.
pub(crate) fn is_kubernetes_policy(kind: Kind, name: &str) -> bool {
    kind == Kind::NetworkPolicy && name.starts_with(KUBERNETES_POLICY)
}
