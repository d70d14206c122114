//! Stored form of IPAM's blocks, affinities, handles and configuration.

use std::collections::BTreeMap;

use calico_net::Cidr;
use serde::ser::{SerializeMap as _, SerializeStruct as _};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use smol_str::SmolStr;

use super::read;
use crate::ipam::{
    AffinityState, AllocationAttribute, AllocationBlock, BlockAffinity, IpamConfig, IpamHandle,
};

/// Writes a block. A block without attributes has `null` in their place.
pub(super) struct Block<'a>(pub(super) &'a AllocationBlock);

impl Serialize for Block<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let block = self.0;
        let mut s = serializer.serialize_struct("AllocationBlock", 10)?;
        s.serialize_field("cidr", &block.cidr)?;
        s.serialize_field("affinity", &block.affinity)?;
        if let Some(time) = &block.affinity_claim_time {
            s.serialize_field("affinity_claim_time", time)?;
        }
        s.serialize_field("allocations", &block.allocations)?;
        s.serialize_field("unallocated", &block.unallocated)?;
        if block.attributes.is_empty() {
            s.serialize_field("attributes", &())?;
        } else {
            s.serialize_field("attributes", &Attributes(&block.attributes))?;
        }
        s.serialize_field("sequenceNumber", &block.sequence_number)?;
        s.serialize_field("sequenceNumberForAllocation", &Sequences(&block.sequence_number_for_allocation))?;
        s.serialize_field("deleted", &block.deleted)?;
        if let Some(host) = &block.host_affinity {
            s.serialize_field("hostAffinity", host)?;
        }
        s.end()
    }
}

struct Attributes<'a>(&'a [AllocationAttribute]);

impl Serialize for Attributes<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(AttributeWire::from))
    }
}

/// Ordinals are texts in JSON, and texts is how the encoder sorts them: `10` stands before `2`.
struct Sequences<'a>(&'a BTreeMap<u32, u64>);

impl Serialize for Sequences<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut entries: Vec<(String, u64)> =
            self.0.iter().map(|(ordinal, number)| (ordinal.to_string(), *number)).collect();
        entries.sort_unstable();
        let mut map = serializer.serialize_map(Some(entries.len()))?;
        for (ordinal, number) in &entries {
            map.serialize_entry(ordinal, number)?;
        }
        map.end()
    }
}

#[derive(Serialize, Deserialize, Default)]
#[serde(default)]
struct AttributeWire<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    handle_id: Option<SmolStr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    secondary: Option<Attrs<'a>>,
    #[serde(rename = "alternateOwnerAttrs", skip_serializing_if = "Option::is_none")]
    alternate_owner_attrs: Option<Attrs<'a>>,
    #[serde(rename = "releasedAt", skip_serializing_if = "Option::is_none")]
    released_at: Option<SmolStr>,
}

/// Borrowed for writing, owned after reading.
enum Attrs<'a> {
    Borrowed(&'a BTreeMap<SmolStr, SmolStr>),
    Owned(BTreeMap<SmolStr, SmolStr>),
}

impl Serialize for Attrs<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Borrowed(map) => map.serialize(serializer),
            Self::Owned(map) => map.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Attrs<'_> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        BTreeMap::deserialize(deserializer).map(Self::Owned)
    }
}

impl<'a> Attrs<'a> {
    fn of(map: &'a BTreeMap<SmolStr, SmolStr>) -> Option<Self> {
        (!map.is_empty()).then_some(Self::Borrowed(map))
    }

    fn into_map(this: Option<Self>) -> BTreeMap<SmolStr, SmolStr> {
        match this {
            Some(Self::Owned(map)) => map,
            Some(Self::Borrowed(map)) => map.clone(),
            None => BTreeMap::new(),
        }
    }
}

impl<'a> From<&'a AllocationAttribute> for AttributeWire<'a> {
    fn from(a: &'a AllocationAttribute) -> Self {
        Self {
            handle_id: a.handle_id.clone(),
            secondary: Attrs::of(&a.active_owner_attrs),
            alternate_owner_attrs: Attrs::of(&a.alternate_owner_attrs),
            released_at: a.released_at.clone(),
        }
    }
}

impl From<AttributeWire<'_>> for AllocationAttribute {
    fn from(wire: AttributeWire<'_>) -> Self {
        Self {
            handle_id: wire.handle_id,
            active_owner_attrs: Attrs::into_map(wire.secondary),
            alternate_owner_attrs: Attrs::into_map(wire.alternate_owner_attrs),
            released_at: wire.released_at,
        }
    }
}

#[derive(Deserialize)]
struct BlockWire {
    cidr: Cidr,
    #[serde(default)]
    affinity: Option<SmolStr>,
    #[serde(default)]
    affinity_claim_time: Option<SmolStr>,
    #[serde(default)]
    allocations: Option<Vec<Option<u32>>>,
    #[serde(default)]
    unallocated: Option<Vec<u32>>,
    #[serde(default)]
    attributes: Option<Vec<AttributeWire<'static>>>,
    #[serde(default, rename = "sequenceNumber")]
    sequence_number: Option<u64>,
    #[serde(default, rename = "sequenceNumberForAllocation")]
    sequence_number_for_allocation: Option<BTreeMap<u32, u64>>,
    #[serde(default)]
    deleted: Option<bool>,
    #[serde(default, rename = "hostAffinity")]
    host_affinity: Option<SmolStr>,
}

pub(super) fn read_block(bytes: &[u8]) -> Result<AllocationBlock, String> {
    let wire: BlockWire = read(bytes)?;
    Ok(AllocationBlock {
        cidr: wire.cidr.masked(),
        affinity: wire.affinity,
        affinity_claim_time: wire.affinity_claim_time,
        host_affinity: wire.host_affinity,
        allocations: wire.allocations.unwrap_or_default(),
        unallocated: wire.unallocated.unwrap_or_default(),
        attributes: wire.attributes.unwrap_or_default().into_iter().map(Into::into).collect(),
        sequence_number: wire.sequence_number.unwrap_or_default(),
        sequence_number_for_allocation: wire.sequence_number_for_allocation.unwrap_or_default(),
        deleted: wire.deleted.unwrap_or_default(),
    })
}

/// An affinity as stored: an empty state is that of very old data.
#[derive(Serialize, Deserialize, Default)]
#[serde(default)]
pub(super) struct AffinityWire {
    state: Option<SmolStr>,
    deleted: Option<bool>,
}

impl From<&BlockAffinity> for AffinityWire {
    fn from(affinity: &BlockAffinity) -> Self {
        let state = match affinity.state {
            Some(AffinityState::Confirmed) => "confirmed",
            Some(AffinityState::Pending) => "pending",
            Some(AffinityState::PendingDeletion) => "pendingDeletion",
            None => "",
        };
        Self { state: Some(state.into()), deleted: Some(affinity.deleted) }
    }
}

pub(super) fn read_affinity(bytes: &[u8]) -> Result<BlockAffinity, String> {
    let wire: AffinityWire = if bytes.is_empty() { AffinityWire::default() } else { read(bytes)? };
    let state = match wire.state.as_deref() {
        None | Some("") => None,
        Some("confirmed") => Some(AffinityState::Confirmed),
        Some("pending") => Some(AffinityState::Pending),
        Some("pendingDeletion") => Some(AffinityState::PendingDeletion),
        Some(other) => return Err(format!("unknown affinity state {other:?}")),
    };
    Ok(BlockAffinity { state, deleted: wire.deleted.unwrap_or_default() })
}

#[derive(Serialize, Deserialize, Default)]
#[serde(default)]
pub(super) struct HandleWire {
    block: Option<BTreeMap<SmolStr, u64>>,
    deleted: Option<bool>,
}

impl From<&IpamHandle> for HandleWire {
    fn from(handle: &IpamHandle) -> Self {
        Self { block: Some(handle.block.clone()), deleted: Some(handle.deleted) }
    }
}

pub(super) fn read_handle(bytes: &[u8]) -> Result<IpamHandle, String> {
    let wire: HandleWire = read(bytes)?;
    Ok(IpamHandle { block: wire.block.unwrap_or_default(), deleted: wire.deleted.unwrap_or_default() })
}

/// The configuration as stored: absent means off, which is not what holds when nothing is stored at all.
#[derive(Serialize, Deserialize, Default)]
#[serde(default)]
pub(super) struct ConfigWire {
    #[serde(skip_serializing_if = "Option::is_none")]
    strict_affinity: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    auto_allocate_blocks: Option<bool>,
    #[serde(rename = "maxBlocksPerHost", skip_serializing_if = "Option::is_none")]
    max_blocks_per_host: Option<u32>,
    #[serde(rename = "kubeVirtVMAddressPersistence", skip_serializing_if = "Option::is_none")]
    kubevirt_vm_address_persistence: Option<SmolStr>,
    #[serde(rename = "ipCooldownSeconds", skip_serializing_if = "Option::is_none")]
    ip_cooldown_seconds: Option<u32>,
}

impl From<&IpamConfig> for ConfigWire {
    fn from(config: &IpamConfig) -> Self {
        let flag = |on: bool| on.then_some(true);
        let number = |n: u32| (n > 0).then_some(n);
        Self {
            strict_affinity: flag(config.strict_affinity),
            auto_allocate_blocks: flag(config.auto_allocate_blocks),
            max_blocks_per_host: number(config.max_blocks_per_host),
            kubevirt_vm_address_persistence: config.kubevirt_vm_address_persistence.clone(),
            ip_cooldown_seconds: number(config.ip_cooldown_seconds),
        }
    }
}

pub(super) fn read_config(bytes: &[u8]) -> Result<IpamConfig, String> {
    let wire: ConfigWire = read(bytes)?;
    Ok(IpamConfig {
        strict_affinity: wire.strict_affinity.unwrap_or_default(),
        auto_allocate_blocks: wire.auto_allocate_blocks.unwrap_or_default(),
        max_blocks_per_host: wire.max_blocks_per_host.unwrap_or_default(),
        kubevirt_vm_address_persistence: wire.kubevirt_vm_address_persistence.filter(|p| !p.is_empty()),
        ip_cooldown_seconds: wire.ip_cooldown_seconds.unwrap_or_default(),
    })
}
