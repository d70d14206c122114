//! Facts about resource kinds that need no object: names, scope, aliases.

use std::fmt;
use std::str::FromStr;

pub use crate::registry::Kind;

/// Where the names of a kind are unique.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scope {
    /// In the whole cluster.
    Cluster,
    /// In a namespace.
    Namespaced,
}

/// What is known about a kind.
#[derive(Debug, PartialEq, Eq)]
pub struct KindInfo {
    /// The kind.
    pub kind: Kind,
    /// Name as in `kind:` of an object.
    pub name: &'static str,
    /// Plural, lower case: segment of URLs and of datastore paths.
    pub plural: &'static str,
    /// Scope of names.
    pub scope: Scope,
    /// Short names of the custom resource definition.
    pub short_names: &'static [&'static str],
    /// Further names that calicoctl understands.
    pub ctl_aliases: &'static [&'static str],
    /// True if `status` is a subresource of its own in Kubernetes.
    pub status_subresource: bool,
    /// True if users can read or write the kind; false for kinds that exist only inside the syncer.
    pub public: bool,
    /// True if this version has types for the kind, so that [`crate::AnyResource`] can hold it.
    pub served: bool,
}

// === impl KindInfo ===

impl KindInfo {
    /// True if names are unique per namespace only.
    pub fn namespaced(&self) -> bool {
        self.scope == Scope::Namespaced
    }

    /// Singular, lower case, as in messages and in custom resource definitions.
    pub fn singular(&self) -> String {
        self.name.to_ascii_lowercase()
    }

    /// True if `word` names this kind: kind, plural, singular, short name or alias, in any case.
    pub fn answers_to(&self, word: &str) -> bool {
        [self.name, self.plural]
            .iter()
            .chain(self.short_names)
            .chain(self.ctl_aliases)
            .any(|name| name.eq_ignore_ascii_case(word))
    }
}

/// A word that names no kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("resource type '{0}' is not supported")]
pub struct UnknownKind(pub String);

// === impl Kind ===

impl Kind {
    /// Facts about this kind.
    pub fn info(self) -> &'static KindInfo {
        &Self::TABLE[self as usize]
    }

    /// Facts about every kind, in declaration order.
    pub fn all() -> &'static [KindInfo] {
        Self::TABLE
    }

    /// Name as in `kind:` of an object.
    pub fn name(self) -> &'static str {
        self.info().name
    }

    /// Plural, lower case.
    pub fn plural(self) -> &'static str {
        self.info().plural
    }

    /// True if names are unique per namespace only.
    pub fn namespaced(self) -> bool {
        self.info().namespaced()
    }

    /// Finds the kind that `word` names: kind, plural, singular, short name or alias, in any case.
    pub fn lookup(word: &str) -> Option<Self> {
        Self::TABLE.iter().find(|info| info.answers_to(word)).map(|info| info.kind)
    }

    /// Finds a kind by its exact name, as in `kind:` of an object.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::TABLE.iter().find(|info| info.name == name).map(|info| info.kind)
    }

    /// Finds a kind by its exact plural, as in a datastore path.
    pub fn from_plural(plural: &str) -> Option<Self> {
        Self::TABLE.iter().find(|info| info.plural == plural).map(|info| info.kind)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Kind {
    type Err = UnknownKind;

    /// As [`Kind::lookup`].
    fn from_str(word: &str) -> Result<Self, Self::Err> {
        Self::lookup(word).ok_or_else(|| UnknownKind(word.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn table_is_indexed_by_kind_and_names_are_unique() {
        let mut seen = BTreeMap::new();
        for info in Kind::all() {
            assert_eq!(info.kind.info(), info);
            let names = [info.name, info.plural].into_iter().chain(info.short_names.iter().copied());
            for name in names.chain(info.ctl_aliases.iter().copied()) {
                let name = name.to_lowercase();
                let other = seen.insert(name.clone(), info.kind);
                assert!(other.is_none_or(|o| o == info.kind), "{name} names {other:?} and {}", info.kind);
            }
        }
    }

    #[test]
    fn lookup_takes_any_spelling() {
        for (word, want) in [
            ("networkpolicy", Some(Kind::NetworkPolicy)),
            ("NetworkPolicies", Some(Kind::NetworkPolicy)),
            ("NP", Some(Kind::NetworkPolicy)),
            ("pool", Some(Kind::IPPool)),
            ("wep", Some(Kind::WorkloadEndpoint)),
            ("no", Some(Kind::Node)),
            ("kcc", Some(Kind::KubeControllersConfiguration)),
            ("bf", Some(Kind::BGPFilter)),
            ("", None),
            ("pods", None),
        ] {
            assert_eq!(Kind::lookup(word), want, "{word}");
        }
    }

    #[test]
    fn plurals_are_those_of_stored_paths() {
        // One kind has no plural of its own: paths spell it like the singular.
        assert_eq!(Kind::KubernetesService.plural(), "kubernetesservice");
        assert_eq!(Kind::from_plural("kubernetesservices"), None);
        assert_eq!(Kind::from_plural("kubernetesendpointslices"), Some(Kind::KubernetesEndpointSlice));
    }
}
