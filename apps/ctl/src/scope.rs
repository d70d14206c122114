//! Which namespace an object or a list is in, from the command line and from the object itself.

use calico_api::Kind;

use crate::cli::Args;
use crate::input::Item;

/// Namespace of objects that say none.
const DEFAULT_NAMESPACE: &str = "default";

/// What the command line says about namespaces.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Scope {
    /// `--namespace`; empty if not given.
    pub(crate) namespace: String,
    /// `--all-namespaces`.
    pub(crate) all: bool,
}

/// A namespace that does not fit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ScopeError {
    /// Two options that exclude one another.
    #[error("cannot use both --namespace and --all-namespaces flags at the same time")]
    Both,
    /// A name does not say in which of all namespaces.
    #[error("cannot use --all-namespace flag for getting a single resource")]
    AllForOne,
    /// The object and the command line name different ones.
    #[error("resource namespace does not match client namespace. {object} != {wanted}")]
    Differs {
        /// In the object.
        object: String,
        /// On the command line.
        wanted: String,
    },
    /// An object of a cluster-wide kind names one.
    #[error(
        "namespace should not be specified for a non-namespaced resource. {0} is not a namespaced resource"
    )]
    InClusterWide(Kind),
    /// The command line names one for a cluster-wide kind.
    #[error("{0} is not namespaced")]
    NotNamespaced(Kind),
}

// === impl Scope ===

impl Scope {
    /// What a call says.
    pub(crate) fn of(args: &Args) -> Result<Self, ScopeError> {
        let scope = Self {
            namespace: args.text("namespace").unwrap_or_default().to_owned(),
            all: args.is_set("all-namespaces") || args.is_set("all-namespaces-old"),
        };
        if scope.all && !scope.namespace.is_empty() {
            return Err(ScopeError::Both);
        }
        Ok(scope)
    }

    /// True if objects are shown with their namespaces.
    pub(crate) fn is_given(&self) -> bool {
        self.all || !self.namespace.is_empty()
    }

    /// Gives an object the namespace that it is meant to be in.
    pub(crate) fn settle(&self, item: &mut Item) -> Result<(), ScopeError> {
        let kind = item.object.kind();
        let own = &mut item.object.metadata_mut().namespace;
        if !kind.namespaced() {
            if !own.is_empty() {
                return Err(ScopeError::InClusterWide(kind));
            }
            return if self.is_given() { Err(ScopeError::NotNamespaced(kind)) } else { Ok(()) };
        }
        if own.is_empty() {
            *own =
                if self.namespace.is_empty() { DEFAULT_NAMESPACE.to_owned() } else { self.namespace.clone() };
        } else if !self.namespace.is_empty() && *own != self.namespace {
            return Err(ScopeError::Differs { object: own.clone(), wanted: self.namespace.clone() });
        }
        Ok(())
    }

    /// The namespace whose objects of `kind` are listed; empty means all.
    pub(crate) fn of_list(&self, kind: Kind) -> Result<&str, ScopeError> {
        match (kind.namespaced(), self.is_given()) {
            (false, true) => Err(ScopeError::NotNamespaced(kind)),
            (false, false) => Ok(""),
            (true, _) if self.all => Ok(""),
            (true, true) => Ok(&self.namespace),
            (true, false) => Ok(DEFAULT_NAMESPACE),
        }
    }
}

#[cfg(test)]
mod tests {
    use calico_api::AnyResource;

    use super::*;
    use crate::input::Origin;

    #[test]
    fn namespaces_are_settled() {
        let scope = |namespace: &str, all| Scope { namespace: namespace.into(), all };
        for (kind, own, scope, want) in [
            (Kind::NetworkSet, "", scope("", false), Ok("default")),
            (Kind::NetworkSet, "a", scope("", false), Ok("a")),
            (Kind::NetworkSet, "", scope("b", false), Ok("b")),
            (Kind::NetworkSet, "b", scope("b", false), Ok("b")),
            (
                Kind::NetworkSet,
                "a",
                scope("b", false),
                Err("resource namespace does not match client namespace. a != b"),
            ),
            (Kind::Tier, "", scope("", false), Ok("")),
            (
                Kind::Tier,
                "a",
                scope("", false),
                Err(
                    "namespace should not be specified for a non-namespaced resource. Tier is not a namespaced resource",
                ),
            ),
            (Kind::Tier, "", scope("b", false), Err("Tier is not namespaced")),
        ] {
            let mut object = AnyResource::empty(kind).unwrap();
            object.metadata_mut().namespace = own.to_owned();
            let mut item = Item { object, origin: Origin::Document };
            let got = scope.settle(&mut item).map(|()| item.object.namespace().to_owned());
            assert_eq!(
                got.map_err(|e| e.to_string()),
                want.map(str::to_owned).map_err(str::to_owned),
                "{kind} {own}"
            );
        }
        assert_eq!(scope("", true).of_list(Kind::NetworkSet), Ok(""));
        assert_eq!(scope("", false).of_list(Kind::NetworkSet), Ok("default"));
        assert_eq!(scope("x", false).of_list(Kind::NetworkSet), Ok("x"));
        assert_eq!(scope("", false).of_list(Kind::Tier), Ok(""));
        assert_eq!(scope("", true).of_list(Kind::Tier), Err(ScopeError::NotNamespaced(Kind::Tier)));
    }
}
