//! Tier: an ordered group of policies.

use crate::meta::Condition;

open_enum! {
    /// What happens to traffic that a tier's policies select but do not decide.
    pub enum DefaultAction {
        /// Go on with the next tier.
        Pass = "Pass",
        /// Drop it.
        Deny = "Deny",
    }
}

resource! {
    /// An ordered group of policies.
    Tier { spec: TierSpec, status: TierStatus }
}

go_struct! {
    /// What a [`Tier`] says.
    pub struct TierSpec {
        /// Place among the tiers, lower first. Default: 1000000.
        pub order: Option<f64> = "order", "Option::is_none";
        /// Verdict at the end of the tier for endpoints that one of its policies selects. Default: `Deny`.
        pub default_action: Option<DefaultAction> = "defaultAction", "Option::is_none";
    }
}

go_struct! {
    /// What was observed of a [`Tier`].
    pub struct TierStatus {
        /// Conditions; `Ready` is the one in use.
        pub conditions: Vec<Condition> = "conditions", "crate::is_default";
    }
}
