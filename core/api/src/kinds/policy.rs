//! NetworkPolicy and GlobalNetworkPolicy.

use super::rule::Rule;

open_enum! {
    /// A direction that a policy governs, seen from the selected endpoint.
    pub enum PolicyType {
        /// Traffic to the endpoint.
        Ingress = "Ingress",
        /// Traffic from the endpoint.
        Egress = "Egress",
    }
}

open_enum! {
    /// A hint to the dataplane, without effect on verdicts.
    pub enum PerformanceHint {
        /// Program the policy on every node before an endpoint needs it.
        AssumeNeededOnEveryNode = "AssumeNeededOnEveryNode",
    }
}

resource! {
    /// Rules for the endpoints of one namespace.
    NetworkPolicy { spec: NetworkPolicySpec }
}

go_struct! {
    /// What a [`NetworkPolicy`] says.
    pub struct NetworkPolicySpec {
        /// Tier that the policy belongs to. Default: `default`.
        pub tier: String = "tier", "crate::is_default";
        /// Place in the tier, lower first. Default: after all policies with an order.
        pub order: Option<f64> = "order", "Option::is_none";
        /// Rules for traffic to the selected endpoints, first match decides; up to 1024.
        pub ingress: Vec<Rule> = "ingress", "crate::is_default";
        /// Rules for traffic from the selected endpoints, first match decides; up to 1024.
        pub egress: Vec<Rule> = "egress", "crate::is_default";
        /// Selector over the namespace's endpoints. Default: all of them.
        pub selector: String = "selector", "crate::is_default";
        /// Directions governed. Default: ingress, and egress if there are egress rules; only egress if there are
        /// egress rules and no ingress rules.
        pub types: Vec<PolicyType> = "types", "crate::is_default";
        /// Selector over the service accounts of the endpoints.
        pub service_account_selector: String = "serviceAccountSelector", "crate::is_default";
        /// Hints to the dataplane.
        pub performance_hints: Vec<PerformanceHint> = "performanceHints", "crate::is_default";
    }
}

resource! {
    /// Rules for endpoints of all namespaces and for hosts.
    GlobalNetworkPolicy { spec: GlobalNetworkPolicySpec }
}

go_struct! {
    /// What a [`GlobalNetworkPolicy`] says.
    pub struct GlobalNetworkPolicySpec {
        /// Tier that the policy belongs to. Default: `default`.
        pub tier: String = "tier", "crate::is_default";
        /// Place in the tier, lower first. Default: after all policies with an order.
        pub order: Option<f64> = "order", "Option::is_none";
        /// Rules for traffic to the selected endpoints, first match decides; up to 1024.
        pub ingress: Vec<Rule> = "ingress", "crate::is_default";
        /// Rules for traffic from the selected endpoints, first match decides; up to 1024.
        pub egress: Vec<Rule> = "egress", "crate::is_default";
        /// Selector over endpoints. Default: all of them.
        pub selector: String = "selector", "crate::is_default";
        /// Directions governed. Default: as for [`NetworkPolicySpec::types`].
        pub types: Vec<PolicyType> = "types", "crate::is_default";
        /// Apply before connection tracking; needs `applyOnForward`. Default: false.
        pub do_not_track: bool = "doNotTrack", "crate::is_default";
        /// Apply before destination translation; ingress only, needs `applyOnForward`. Default: false.
        pub pre_dnat: bool = "preDNAT", "crate::is_default";
        /// Apply also to traffic that a host forwards. Default: false.
        pub apply_on_forward: bool = "applyOnForward", "crate::is_default";
        /// Selector over the service accounts of the endpoints.
        pub service_account_selector: String = "serviceAccountSelector", "crate::is_default";
        /// Selector over the namespaces of the endpoints.
        pub namespace_selector: String = "namespaceSelector", "crate::is_default";
        /// Hints to the dataplane.
        pub performance_hints: Vec<PerformanceHint> = "performanceHints", "crate::is_default";
    }
}
