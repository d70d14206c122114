//! Metadata of objects and lists, with the fields of Kubernetes' `meta/v1`.

use std::collections::BTreeMap;

use crate::time::Timestamp;

go_struct! {
    /// Metadata that every object carries.
    pub struct ObjectMeta {
        /// Name, unique within kind and namespace.
        pub name: String = "name", "crate::is_default";
        /// Prefix for a name made by a Kubernetes API server; not supported by other stores.
        pub generate_name: String = "generateName", "crate::is_default";
        /// Namespace; empty for cluster-wide kinds.
        pub namespace: String = "namespace", "crate::is_default";
        /// Legacy link; never stored.
        pub self_link: String = "selfLink", "crate::is_default";
        /// Unique identity in time and space, set at creation.
        pub uid: String = "uid", "crate::is_default";
        /// Opaque revision of the stored object; kept outside the stored value.
        pub resource_version: String = "resourceVersion", "crate::is_default";
        /// Counter of changes of the desired state, kept by Kubernetes.
        pub generation: i64 = "generation", "crate::is_default";
        /// Time of creation.
        pub creation_timestamp: Option<Timestamp> = "creationTimestamp", "Option::is_none";
        /// Time from which the object is being deleted; set by Kubernetes.
        pub deletion_timestamp: Option<Timestamp> = "deletionTimestamp", "Option::is_none";
        /// Seconds that a graceful deletion may take.
        pub deletion_grace_period_seconds: Option<i64> = "deletionGracePeriodSeconds", "Option::is_none";
        /// Labels, by which selectors choose objects.
        pub labels: BTreeMap<String, String> = "labels", "crate::is_default";
        /// Annotations: free data for tools.
        pub annotations: BTreeMap<String, String> = "annotations", "crate::is_default";
        /// Objects whose deletion takes this one along.
        pub owner_references: Vec<OwnerReference> = "ownerReferences", "crate::is_default";
        /// Names of controllers that must agree before the object disappears.
        pub finalizers: Vec<String> = "finalizers", "crate::is_default";
        /// Which writer owns which fields; kept by Kubernetes.
        pub managed_fields: Vec<ManagedFieldsEntry> = "managedFields", "crate::is_default";
    }
}

go_struct! {
    /// Metadata of a list.
    pub struct ListMeta {
        /// Legacy link.
        pub self_link: String = "selfLink", "crate::is_default";
        /// Opaque revision at which the list was read.
        pub resource_version: String = "resourceVersion", "crate::is_default";
        /// Token to read the next page.
        pub continue_token: String = "continue", "crate::is_default";
        /// Number of objects beyond this page.
        pub remaining_item_count: Option<i64> = "remainingItemCount", "Option::is_none";
    }
}

go_struct! {
    /// A reference to an owning object.
    pub struct OwnerReference {
        /// API version of the owner.
        pub api_version: String = "apiVersion";
        /// Kind of the owner.
        pub kind: String = "kind";
        /// Name of the owner.
        pub name: String = "name";
        /// UID of the owner.
        pub uid: String = "uid";
        /// True for the one owner that manages this object.
        pub controller: Option<bool> = "controller", "Option::is_none";
        /// True if the owner cannot go before this object has gone.
        pub block_owner_deletion: Option<bool> = "blockOwnerDeletion", "Option::is_none";
    }
}

go_struct! {
    /// One writer's set of fields.
    pub struct ManagedFieldsEntry {
        /// Name of the writer.
        pub manager: String = "manager", "crate::is_default";
        /// `Apply` or `Update`.
        pub operation: String = "operation", "crate::is_default";
        /// API version that the set of fields is written in.
        pub api_version: String = "apiVersion", "crate::is_default";
        /// Time of the writer's last change.
        pub time: Option<Timestamp> = "time", "Option::is_none";
        /// Form of `fieldsV1`; always `FieldsV1`.
        pub fields_type: String = "fieldsType", "crate::is_default";
        /// The fields.
        pub fields_v1: Option<serde_json::Value> = "fieldsV1", "Option::is_none";
        /// Subresource through which the change came.
        pub subresource: String = "subresource", "crate::is_default";
    }
}

go_struct! {
    /// One observed condition of an object (Kubernetes' `meta/v1` Condition).
    pub struct Condition {
        /// What is observed.
        pub condition_type: String = "type";
        /// `True`, `False` or `Unknown`.
        pub status: String = "status";
        /// Generation of the object that the condition speaks of.
        pub observed_generation: i64 = "observedGeneration", "crate::is_default";
        /// Time of the last change of `status`.
        pub last_transition_time: Option<Timestamp> = "lastTransitionTime";
        /// Machine-readable reason, one word.
        pub reason: String = "reason";
        /// Explanation for people.
        pub message: String = "message";
    }
}
