//! ClusterInformation: the identity and state of the cluster.

resource! {
    /// The identity and state of the cluster; the only object is named `default`.
    ClusterInformation { spec: ClusterInformationSpec }
}

go_struct! {
    /// What [`ClusterInformation`] says.
    pub struct ClusterInformationSpec {
        /// Identity of the cluster, 32 hexadecimal digits.
        pub cluster_guid: String = "clusterGUID", "crate::is_default";
        /// Words about the kind of cluster, separated by commas, such as `k8s,bgp`.
        pub cluster_type: String = "clusterType", "crate::is_default";
        /// Version that last set up the datastore.
        pub calico_version: String = "calicoVersion", "crate::is_default";
        /// False while the datastore must not be used; unset counts as false until it is set up.
        pub datastore_ready: Option<bool> = "datastoreReady", "Option::is_none";
        /// Variant of the product.
        pub variant: String = "variant", "crate::is_default";
    }
}
