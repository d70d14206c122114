//! The order in which tiers and policies apply.
//!
//! Tiers that exist come before those that are only named by policies, then lower orders first, no order last,
//! then by name. Policies of a tier: lower orders first, no order last, then the text `name/namespace/kind` byte
//! by byte, as upstream breaks ties.

use std::cmp::Ordering;

use calico_model::PolicyKey;

/// An order as a number that can be compared: absent and not-a-number come last, zero has no sign.
pub(crate) fn rank_of(order: Option<f64>) -> f64 {
    match order {
        Some(order) if !order.is_nan() => order + 0.0,
        _ => f64::INFINITY,
    }
}

/// Compares two orders.
pub(crate) fn by_order(a: Option<f64>, b: Option<f64>) -> Ordering {
    rank_of(a).total_cmp(&rank_of(b))
}

/// Compares the texts that break ties between policies.
pub(crate) fn by_tie(a: &PolicyKey, b: &PolicyKey) -> Ordering {
    tie_bytes(a).cmp(tie_bytes(b))
}

fn tie_bytes(key: &PolicyKey) -> impl Iterator<Item = u8> + '_ {
    let parts = [key.name.as_str(), "/", key.namespace.as_str(), "/", key.kind.name()];
    parts.into_iter().flat_map(str::bytes)
}

/// What decides the place of a tier.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TierPlace<'a> {
    /// `None` if the tier does not exist.
    pub(crate) order: Option<Option<f64>>,
    pub(crate) name: &'a str,
}

impl TierPlace<'_> {
    /// Compares two tiers.
    pub(crate) fn compare(&self, other: &Self) -> Ordering {
        let exists = other.order.is_some().cmp(&self.order.is_some());
        exists
            .then_with(|| by_order(self.order.flatten(), other.order.flatten()))
            .then(self.name.cmp(other.name))
    }
}

#[cfg(test)]
mod tests {
    use calico_api::Kind;

    use super::*;

    #[test]
    fn orders_compare_with_none_last() {
        assert_eq!(by_order(Some(1.0), Some(2.0)), Ordering::Less);
        assert_eq!(by_order(None, Some(f64::MAX)), Ordering::Greater);
        assert_eq!(by_order(Some(f64::NAN), None), Ordering::Equal);
        assert_eq!(by_order(Some(-0.0), Some(0.0)), Ordering::Equal);
    }

    #[test]
    fn ties_compare_the_joined_text() {
        let key = |name: &str, namespace: &str, kind| PolicyKey {
            kind,
            namespace: namespace.into(),
            name: name.into(),
        };
        let sorted = [
            key("a-b", "z", Kind::NetworkPolicy),
            key("a", "", Kind::GlobalNetworkPolicy),
            key("a", "", Kind::StagedGlobalNetworkPolicy),
            key("a", "n", Kind::NetworkPolicy),
            key("a0", "", Kind::GlobalNetworkPolicy),
        ];
        for pair in sorted.windows(2) {
            assert_eq!(by_tie(&pair[0], &pair[1]), Ordering::Less, "{pair:?}");
        }
    }

    #[test]
    fn missing_tiers_come_last() {
        let tier = |order, name| TierPlace { order, name };
        let sorted = [
            tier(Some(Some(1.0)), "z"),
            tier(Some(Some(2.0)), "a"),
            tier(Some(None), "a"),
            tier(Some(None), "b"),
            tier(None, "a"),
            tier(None, "b"),
        ];
        for pair in sorted.windows(2) {
            assert_eq!(pair[0].compare(&pair[1]), Ordering::Less, "{pair:?}");
        }
    }
}
