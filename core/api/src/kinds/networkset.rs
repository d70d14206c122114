//! NetworkSet and GlobalNetworkSet: named sets of CIDRs with labels.

resource! {
    /// CIDRs that selectors of policies can match by label, in one namespace.
    NetworkSet { spec: NetworkSetSpec }
}

go_struct! {
    /// What a [`NetworkSet`] says.
    pub struct NetworkSetSpec {
        /// CIDRs or single addresses.
        pub nets: Vec<String> = "nets", "crate::is_default";
    }
}

resource! {
    /// CIDRs that selectors of policies can match by label, without namespace.
    GlobalNetworkSet { spec: GlobalNetworkSetSpec }
}

go_struct! {
    /// What a [`GlobalNetworkSet`] says.
    pub struct GlobalNetworkSetSpec {
        /// CIDRs or single addresses.
        pub nets: Vec<String> = "nets", "crate::is_default";
    }
}
