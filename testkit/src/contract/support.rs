//! Objects to store and ways to wait.

use std::time::Duration;

use calico_api::{Kind, NetworkPolicy, NetworkSet, Tier};
use calico_datastore::{RawOutcome, RawTxn, RawWrite, Watch, WatchEvent};
use calico_model::ipam::IpamHandle;
use calico_model::{Key, KvPair, Value};

use super::Subject;

/// Longest wait for anything that has to happen.
pub(super) const DEADLINE: Duration = Duration::from_secs(20);

/// A tier with an order.
pub(super) fn tier(name: &str, order: f64) -> KvPair {
    let mut tier = Tier::default();
    tier.metadata.name = name.into();
    tier.spec.order = Some(order);
    KvPair::new(Key::resource(Kind::Tier, "", name), Value::resource(tier))
}

/// A network set with one net.
pub(super) fn set(namespace: &str, name: &str, net: &str) -> KvPair {
    let mut set = NetworkSet::default();
    set.metadata.name = name.into();
    set.metadata.namespace = namespace.into();
    set.spec.nets = vec![net.into()];
    KvPair::new(Key::resource(Kind::NetworkSet, namespace, name), Value::resource(set))
}

/// A policy in a tier.
pub(super) fn policy(namespace: &str, name: &str, tier: &str) -> KvPair {
    let mut policy = NetworkPolicy::default();
    policy.metadata.name = name.into();
    policy.metadata.namespace = namespace.into();
    policy.spec.tier = tier.into();
    KvPair::new(Key::resource(Kind::NetworkPolicy, namespace, name), Value::resource(policy))
}

/// A handle with a count, for tests that need a number in an entry.
pub(super) fn counter(name: &str, count: u64) -> KvPair {
    let mut handle = IpamHandle::default();
    handle.block.insert("10.0.0.0/26".into(), count);
    KvPair::new(Key::IpamHandle(name.into()), Value::IpamHandle(handle.into()))
}

/// The number in a [`counter`].
pub(super) fn count(kv: &KvPair) -> u64 {
    match &kv.value {
        Some(Value::IpamHandle(handle)) => handle.block.values().sum(),
        other => panic!("no counter: {other:?}"),
    }
}

/// Puts bytes that need not mean anything; false if the store under test cannot.
pub(super) async fn put_bytes(subject: &Subject, path: &str, bytes: &[u8]) -> bool {
    let Some(raw) = &subject.raw else { return false };
    let write = RawWrite::Put { path: path.into(), value: bytes.to_vec(), ttl: None };
    let txn = RawTxn { writes: vec![write], ..RawTxn::default() };
    assert!(matches!(raw.commit(txn).await, Ok(RawOutcome::Committed { .. })));
    true
}

/// The next event that is no bookmark.
pub(super) async fn next(watch: &mut Watch) -> WatchEvent {
    loop {
        match tokio::time::timeout(DEADLINE, watch.next()).await {
            Ok(Some(WatchEvent::Bookmark(_))) => {}
            Ok(Some(event)) => return event,
            Ok(None) => panic!("the watch ended"),
            Err(_) => panic!("no event came"),
        }
    }
}

/// A short text of an event: type and key.
pub(super) fn brief(event: &WatchEvent) -> String {
    match event {
        WatchEvent::Added(kv) => format!("+{}", kv.key),
        WatchEvent::Modified { new, .. } => format!("~{}", new.key),
        WatchEvent::Deleted(kv) => format!("-{}", kv.key),
        WatchEvent::Bookmark(revision) => format!("@{revision}"),
        WatchEvent::Error(error) => format!("!{error}"),
    }
}

/// Names of v3 objects in a list.
pub(super) fn names(items: &[KvPair]) -> Vec<String> {
    items
        .iter()
        .map(|kv| match &kv.key {
            Key::Resource(key) if key.namespace.is_empty() => key.name.to_string(),
            Key::Resource(key) => format!("{}/{}", key.namespace, key.name),
            other => other.to_path(),
        })
        .collect()
}
