//! What is wrong with the inputs: values that name an object, a field and a reason.

use std::fmt;

use calico_model::Key;
use calico_selector::ParseError;
use smol_str::SmolStr;

/// Something in the inputs that could not be used as it is.
#[derive(Debug, Clone, PartialEq)]
pub struct Problem {
    /// Key of the object. For something missing, the key that it would have.
    pub object: Key,
    /// Path of the field, for example `ingress[2].source.selector`; empty for the object as a whole.
    pub field: SmolStr,
    /// What is wrong with it, and what was done about it.
    pub reason: Reason,
}

/// Why something could not be used. Each text ends with what holds instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// A policy's own selector does not parse: which endpoints it means is unknown, so it applies to none.
    #[error("the selector does not parse ({0}); the policy applies to nothing")]
    PolicySelector(#[source] ParseError),
    /// A rule's selector does not parse: an allow or pass rule matches nothing, a deny rule matches without it.
    #[error("the selector does not parse ({0}); an allow rule is left out, a deny rule matches without it")]
    RuleSelector(#[source] ParseError),
    /// A rule names a Kubernetes Service, which this graph does not follow: as for a rule's selector.
    #[error("services are not followed here; an allow rule is left out, a deny rule matches without it")]
    Service,
    /// The order of a policy or tier is not a number: it comes last.
    #[error("the order is not a number; it comes last")]
    Order,
    /// A workload endpoint has no interface name: it is as if absent.
    #[error("the endpoint has no interface name; it is ignored")]
    InterfaceMissing,
    /// A workload endpoint may use foreign source addresses, which this node forbids: it is as if absent.
    #[error("source spoofing is not allowed on this node; the endpoint is ignored")]
    SpoofingForbidden,
    /// The value is of another kind than the key: it is as if absent.
    #[error("the value does not belong to such a key; it is ignored")]
    WrongValue,
    /// A text that must be an address or a hardware address is not: it is as if absent.
    #[error("{0:?} is not an address; it is ignored")]
    Address(SmolStr),
    /// Endpoints of this node name a profile that does not exist: it denies everything.
    #[error("the profile does not exist; endpoints that name it are denied by it")]
    ProfileMissing,
    /// Active policies name a tier that does not exist: it comes after all others and denies at its end.
    #[error("the tier does not exist; it comes last and denies what its policies leave undecided")]
    TierMissing,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.object)?;
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        self.reason.fmt(f)
    }
}

/// Problems found while an object is taken apart, as field and reason.
#[derive(Debug, Default)]
pub(crate) struct Findings(pub(crate) Vec<(SmolStr, Reason)>);

impl Findings {
    pub(crate) fn add(&mut self, field: impl Into<SmolStr>, reason: Reason) {
        self.0.push((field.into(), reason));
    }
}
