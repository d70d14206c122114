//! Deletion of an object together with what is below it.
//!
//! Only tiers have something below them: the policies, staged or not, that name them. Where all of it fits into
//! one transaction it goes at once; else the policies go first, so that a deletion which is cut short leaves no
//! policy without a tier.

use calico_api::Kind;
use calico_model::{Key, KvPair, ListOptions, ResourceKey};
use serde::Deserialize;

use super::{Store, id, lenient};
use crate::error::StoreError;
use crate::raw::{RawCondition, RawEntry, RawOutcome, RawStore, RawTxn, RawWrite};

/// Kinds that name a tier.
const POLICIES: [Kind; 4] = [
    Kind::NetworkPolicy,
    Kind::GlobalNetworkPolicy,
    Kind::StagedNetworkPolicy,
    Kind::StagedGlobalNetworkPolicy,
];

/// Tier of a policy that names none.
const DEFAULT_TIER: &str = "default";

/// How often to start again when policies change meanwhile.
const ATTEMPTS: usize = 20;

pub(super) async fn delete<R: RawStore>(store: &Store<R>, key: &Key) -> Result<Vec<KvPair>, StoreError> {
    let mut gone = Vec::new();
    for _ in 0..ATTEMPTS {
        let children = match key {
            Key::Resource(ResourceKey { kind: Kind::Tier, name, .. }) => policies_of(store, name).await?,
            _ => Vec::new(),
        };
        let (parent, _) = store.raw.get(&[key.to_path()], None).await?;
        let Some(parent) = parent.into_iter().flatten().next() else {
            return if gone.is_empty() { Err(StoreError::DoesNotExist { id: id(key) }) } else { Ok(gone) };
        };
        let mut doomed = children;
        doomed.push((key.clone(), parent));
        let last = doomed.len() <= store.raw.max_operations();
        doomed.truncate(store.raw.max_operations());
        let txn = RawTxn {
            conditions: doomed
                .iter()
                .map(|(_, e)| RawCondition::Revision(e.path.clone(), e.modified))
                .collect(),
            writes: doomed.iter().map(|(_, e)| RawWrite::Delete(e.path.clone())).collect(),
            report_conflict: false,
        };
        if let RawOutcome::Committed { .. } = store.raw.commit(txn).await? {
            gone.extend(doomed.into_iter().map(|(key, entry)| lenient(key, &entry)));
            if last {
                return Ok(gone);
            }
        }
    }
    Err(StoreError::UpdateConflict { id: id(key), existing: None })
}

async fn policies_of<R: RawStore>(store: &Store<R>, tier: &str) -> Result<Vec<(Key, RawEntry)>, StoreError> {
    let mut found = Vec::new();
    for kind in POLICIES {
        let options = ListOptions::kind(kind);
        let (entries, _) = store.raw.range(&options.range(), None).await?;
        for entry in entries.into_iter().filter(|entry| names_tier(entry, tier)) {
            if let Some(key) = Key::parse_path(&entry.path).filter(|key| options.matches(key)) {
                found.push((key, entry));
            }
        }
    }
    Ok(found)
}

/// True if a stored policy belongs to `tier`; also of policies that are faulty elsewhere.
fn names_tier(entry: &RawEntry, tier: &str) -> bool {
    #[derive(Deserialize)]
    struct Policy {
        #[serde(default)]
        spec: Spec,
    }
    #[derive(Deserialize, Default)]
    struct Spec {
        #[serde(default)]
        tier: String,
    }
    let Ok(policy) = serde_json::from_slice::<Policy>(&entry.value) else { return false };
    let named = if policy.spec.tier.is_empty() { DEFAULT_TIER } else { &policy.spec.tier };
    named == tier
}
