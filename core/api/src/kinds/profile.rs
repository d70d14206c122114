//! Profile: rules and labels that endpoints take by name.

use std::collections::BTreeMap;

use super::rule::Rule;

resource! {
    /// Rules and labels for the endpoints that name it.
    Profile { spec: ProfileSpec }
}

go_struct! {
    /// What a [`Profile`] says.
    pub struct ProfileSpec {
        /// Rules for traffic to the endpoint, used if no policy selects it for ingress; up to 1024.
        pub ingress: Vec<Rule> = "ingress", "crate::is_default";
        /// Rules for traffic from the endpoint, used if no policy selects it for egress; up to 1024.
        pub egress: Vec<Rule> = "egress", "crate::is_default";
        /// Labels that the endpoints inherit; their own labels win.
        pub labels_to_apply: BTreeMap<String, String> = "labelsToApply", "crate::is_default";
    }
}
