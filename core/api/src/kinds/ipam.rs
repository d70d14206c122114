//! IPAM's own kinds: settings, blocks, handles and affinities.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::meta::ObjectMeta;
use crate::resource::API_VERSION;
use crate::time::Timestamp;

open_enum! {
    /// Whether a KubeVirt machine keeps its addresses over restarts and migrations.
    pub enum VmAddressPersistence {
        /// It does.
        Enabled = "Enabled",
        /// It does not.
        Disabled = "Disabled",
    }
}

resource! {
    /// Settings of IPAM; the only object is named `default`.
    IPAMConfiguration { spec: IPAMConfigurationSpec }
}

go_struct! {
    /// What an [`IPAMConfiguration`] says.
    pub struct IPAMConfigurationSpec {
        /// Give addresses of a block only to the node that owns it. Default: false.
        pub strict_affinity: bool = "strictAffinity";
        /// Most blocks that a node may own, 0 to 1000000; 0 means no limit. Default: 0.
        pub max_blocks_per_host: i64 = "maxBlocksPerHost", "crate::is_default";
        /// Let nodes claim blocks by themselves. Default: true.
        pub auto_allocate_blocks: bool = "autoAllocateBlocks";
        /// Whether KubeVirt machines keep their addresses. Default: `Enabled`.
        pub kubevirt_vm_address_persistence: Option<VmAddressPersistence> =
            "kubeVirtVMAddressPersistence", "Option::is_none";
        /// Seconds for which a released address is not given out again, 0 to 1200. Default: 0.
        pub ip_cooldown_seconds: i64 = "ipCooldownSeconds", "crate::is_default";
    }
}

resource! {
    /// A block of addresses with its allocations, as a Kubernetes object.
    IPAMBlock { spec: IPAMBlockSpec }
}

go_struct! {
    /// What an [`IPAMBlock`] says.
    pub struct IPAMBlockSpec {
        /// CIDR of the block.
        pub cidr: String = "cidr";
        /// Owner: `host:<name>` or `virtual:<name>`; unset if none.
        pub affinity: Option<String> = "affinity", "Option::is_none";
        /// Time at which the owner claimed the block.
        pub affinity_claim_time: Option<Timestamp> = "affinityClaimTime", "Option::is_none";
        /// For each address its index in `attributes`; unset if it is free.
        pub allocations: Option<Vec<Option<i64>>> = "allocations";
        /// Free addresses by place in the block, the next to be used first.
        pub unallocated: Option<Vec<i64>> = "unallocated";
        /// Attributes of allocated addresses.
        pub attributes: Option<Vec<AllocationAttribute>> = "attributes";
        /// Counts changes of the block.
        pub sequence_number: u64 = "sequenceNumber";
        /// Sequence number at the allocation of an address, by place in the block.
        pub sequence_number_for_allocation: Option<BTreeMap<String, u64>> = "sequenceNumberForAllocation";
        /// True while the block is being deleted.
        pub deleted: bool = "deleted";
        /// Without effect; kept for old readers.
        pub strict_affinity: bool = "strictAffinity";
    }
}

go_struct! {
    /// Who holds an address.
    pub struct AllocationAttribute {
        /// Handle of the holder.
        pub handle_id: Option<String> = "handle_id", "Option::is_none";
        /// Details of the holder.
        pub secondary: BTreeMap<String, String> = "secondary", "crate::is_default";
        /// Details of a second holder, during a migration.
        pub alternate_owner_attrs: BTreeMap<String, String> = "alternateOwnerAttrs", "crate::is_default";
        /// Time of release, while the address cools down.
        pub released_at: Option<Timestamp> = "releasedAt", "Option::is_none";
    }
}

resource! {
    /// The addresses of one holder, as a Kubernetes object.
    IPAMHandle { spec: IPAMHandleSpec }
}

go_struct! {
    /// What an [`IPAMHandle`] says.
    pub struct IPAMHandleSpec {
        /// The handle.
        pub handle_id: String = "handleID";
        /// Number of addresses per block CIDR.
        pub block: Option<BTreeMap<String, i64>> = "block";
        /// True while the handle is being deleted.
        pub deleted: bool = "deleted";
    }
}

open_enum! {
    /// How firm a claim on a block is.
    pub enum AffinityState {
        /// The block is owned.
        Confirmed = "confirmed",
        /// The block is being claimed.
        Pending = "pending",
        /// The block is being given up.
        PendingDeletion = "pendingDeletion",
    }
}

resource! {
    /// A claim of a node on a block.
    BlockAffinity { spec: BlockAffinitySpec }
}

go_struct! {
    /// What a [`BlockAffinity`] says.
    pub struct BlockAffinitySpec {
        /// How firm the claim is.
        pub state: AffinityState = "state";
        /// Name of the node or virtual owner.
        pub node: String = "node";
        /// `host` (also if empty) or `virtual`.
        pub affinity_type: String = "type", "crate::is_default";
        /// CIDR of the block.
        pub cidr: String = "cidr";
        /// True while the claim is being deleted; users may not set it.
        pub deleted: Flag = "deleted";
    }
}

/// A truth value that stores other than Kubernetes' `projectcalico.org/v3` keep as text.
///
/// Reads `true`, `false`, `"true"` and `"false"` (and `""` as false); writes a truth value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Flag(pub bool);

impl Serialize for Flag {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_bool(self.0)
    }
}

impl<'de> Deserialize<'de> for Flag {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Flag;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("true or false")
            }

            fn visit_bool<E: de::Error>(self, v: bool) -> Result<Flag, E> {
                Ok(Flag(v))
            }

            fn visit_str<E: de::Error>(self, v: &str) -> Result<Flag, E> {
                match v {
                    "true" => Ok(Flag(true)),
                    "false" | "" => Ok(Flag(false)),
                    _ => Err(E::invalid_value(de::Unexpected::Str(v), &self)),
                }
            }
        }
        d.deserialize_any(Visitor)
    }
}

/// A [`BlockAffinity`] in the form that etcd holds: `deleted` is a text.
#[derive(Debug, Clone, Copy)]
pub struct StoredBlockAffinity<'a>(pub &'a BlockAffinity);

impl Serialize for StoredBlockAffinity<'_> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Spec<'a> {
            state: &'a AffinityState,
            node: &'a str,
            #[serde(rename = "type", skip_serializing_if = "str::is_empty")]
            affinity_type: &'a str,
            cidr: &'a str,
            deleted: &'static str,
        }
        #[derive(Serialize)]
        struct Stored<'a> {
            kind: &'static str,
            #[serde(rename = "apiVersion")]
            api_version: &'static str,
            metadata: &'a ObjectMeta,
            spec: Spec<'a>,
        }
        let BlockAffinity { metadata, spec } = self.0;
        Stored {
            kind: "BlockAffinity",
            api_version: API_VERSION,
            metadata,
            spec: Spec {
                state: &spec.state,
                node: &spec.node,
                affinity_type: &spec.affinity_type,
                cidr: &spec.cidr,
                deleted: if spec.deleted.0 { "true" } else { "false" },
            },
        }
        .serialize(s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gojson;

    #[test]
    fn affinities_are_stored_with_a_text_and_shown_with_a_truth_value() {
        let stored = r#"{"kind":"BlockAffinity","apiVersion":"projectcalico.org/v3","metadata":{"name":"x"},"spec":{"state":"confirmed","node":"n","type":"host","cidr":"10.0.0.0/26","deleted":"true"}}"#;
        let affinity: BlockAffinity = serde_json::from_str(stored).unwrap();
        assert!(affinity.spec.deleted.0);
        assert_eq!(gojson::to_string(&StoredBlockAffinity(&affinity)).unwrap(), stored);
        assert_eq!(gojson::to_string(&affinity).unwrap(), stored.replace("\"true\"", "true"));
        for (text, want) in
            [("true", Some(true)), ("\"false\"", Some(false)), ("\"\"", Some(false)), ("\"x\"", None)]
        {
            assert_eq!(serde_json::from_str::<Flag>(text).ok().map(|f| f.0), want);
        }
    }

    #[test]
    fn empty_settings_name_both_switches() {
        let text = gojson::to_string(&IPAMConfigurationSpec::default()).unwrap();
        assert_eq!(text, r#"{"strictAffinity":false,"autoAllocateBlocks":false}"#);
    }
}
