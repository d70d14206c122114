//! Reading and writing single entries, and lists.

use std::time::Duration;

use calico_api::Kind;
use calico_datastore::StoreError;
use calico_model::ipam::{AffinityState, BlockAffinity};
use calico_model::{AffinityType, Key, KvPair, ListOptions, Revision, Value};

use super::Subject;
use super::support::{DEADLINE, counter, names, policy, put_bytes, set, tier};

pub(super) async fn create_stores_once(subject: Subject) {
    let store = subject.backend;
    let made = store.create(tier("a", 1.0)).await.unwrap();
    assert!(made.revision.as_u64().unwrap() > 0);
    assert_eq!(made.value, tier("a", 1.0).value);
    assert_eq!(store.get(&made.key, None).await.unwrap(), made);
    match store.create(tier("a", 2.0)).await {
        Err(StoreError::AlreadyExists { id, existing }) => {
            assert_eq!(id, "Tier(a)");
            assert_eq!(*existing.unwrap(), made);
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(store.get(&made.key, None).await.unwrap(), made);
}

pub(super) async fn update_needs_the_current_revision(subject: Subject) {
    let store = subject.backend;
    let made = store.create(tier("a", 1.0)).await.unwrap();
    let changed = store.update(tier("a", 2.0).at(made.revision.clone())).await.unwrap();
    assert!(changed.revision.as_u64() > made.revision.as_u64());
    assert_eq!(store.get(&made.key, None).await.unwrap(), changed);
    match store.update(tier("a", 3.0).at(made.revision.clone())).await {
        Err(StoreError::UpdateConflict { id, existing }) => {
            assert_eq!(id, "Tier(a)");
            assert_eq!(*existing.unwrap(), changed);
        }
        other => panic!("{other:?}"),
    }
    let missing = store.update(tier("b", 3.0).at(made.revision)).await;
    assert_eq!(missing, Err(StoreError::DoesNotExist { id: "Tier(b)".into() }));
    let blind = store.update(tier("a", 3.0)).await;
    assert!(matches!(blind, Err(StoreError::Invalid { field, .. }) if field == "ResourceVersion"));
}

pub(super) async fn apply_replaces_whatever_is_there(subject: Subject) {
    let store = subject.backend;
    let first = store.apply(set("ns", "a", "10.0.0.0/8").at("99999".into())).await.unwrap();
    let second = store.apply(set("ns", "a", "11.0.0.0/8")).await.unwrap();
    assert!(second.revision.as_u64() > first.revision.as_u64());
    assert_eq!(store.get(&first.key, None).await.unwrap(), second);
}

pub(super) async fn delete_compares_the_revision_if_one_is_given(subject: Subject) {
    let store = subject.backend;
    let first = store.create(tier("a", 1.0)).await.unwrap();
    let second = store.apply(tier("a", 2.0)).await.unwrap();
    match store.delete(&first.key, Some(&first.revision)).await {
        Err(StoreError::UpdateConflict { existing, .. }) => assert_eq!(*existing.unwrap(), second),
        other => panic!("{other:?}"),
    }
    assert_eq!(store.delete(&first.key, Some(&second.revision)).await.unwrap(), second);
    let gone = Err(StoreError::DoesNotExist { id: "Tier(a)".into() });
    assert_eq!(store.get(&first.key, None).await, gone);
    assert_eq!(store.delete(&first.key, None).await, gone);
    assert_eq!(store.delete(&first.key, Some(&second.revision)).await, gone);
    let third = store.create(tier("a", 3.0)).await.unwrap();
    assert_eq!(store.delete(&first.key, None).await.unwrap(), third);
    assert_eq!(
        store.delete_recursive(&first.key).await,
        Err(StoreError::DoesNotExist { id: "Tier(a)".into() })
    );
}

pub(super) async fn lists_select_by_kind_namespace_name_and_prefix(subject: Subject) {
    let store = subject.backend;
    for (namespace, name) in [("ns1", "ab"), ("ns1", "a"), ("ns", "b"), ("ns2", "ab"), ("ns1", "b")] {
        store.create(set(namespace, name, "10.0.0.0/8")).await.unwrap();
    }
    store.create(tier("ab", 1.0)).await.unwrap();
    let last = store.create(tier("a", 1.0)).await.unwrap();
    let list = async |namespace: Option<&str>, name: Option<&str>, prefix: bool| {
        let options = ListOptions::Resource {
            kind: Kind::NetworkSet,
            namespace: namespace.map(Into::into),
            name: name.map(Into::into),
            prefix,
        };
        names(&store.list(&options, None).await.unwrap().items)
    };
    assert_eq!(list(None, None, false).await, ["ns/b", "ns1/a", "ns1/ab", "ns1/b", "ns2/ab"]);
    assert_eq!(list(Some("ns1"), None, false).await, ["ns1/a", "ns1/ab", "ns1/b"]);
    assert_eq!(list(Some("ns1"), Some("a"), false).await, ["ns1/a"]);
    assert_eq!(list(Some("ns1"), Some("a"), true).await, ["ns1/a", "ns1/ab"]);
    assert_eq!(list(None, Some("ab"), false).await, ["ns1/ab", "ns2/ab"]);
    assert_eq!(list(None, Some("a"), true).await, ["ns1/a", "ns1/ab", "ns2/ab"]);
    assert_eq!(list(Some("none"), None, false).await, [""; 0]);
    let tiers = store.list(&ListOptions::kind(Kind::Tier), None).await.unwrap();
    assert_eq!(names(&tiers.items), ["a", "ab"]);
    assert_eq!(tiers.items[0], last);
    assert_eq!(tiers.revision, last.revision);
}

pub(super) async fn lists_of_ipam_entries_keep_types_apart(subject: Subject) {
    let store = subject.backend;
    let affinity = |affinity: AffinityType, owner: &str, cidr: &str| {
        let value = BlockAffinity { state: Some(AffinityState::Confirmed), deleted: false };
        KvPair::new(Key::affinity(affinity, owner, cidr.parse().unwrap()), Value::BlockAffinity(value))
    };
    store.create(affinity(AffinityType::Host, "node", "10.0.0.0/26")).await.unwrap();
    store.create(affinity(AffinityType::Host, "node", "fd00::/122")).await.unwrap();
    store.create(affinity(AffinityType::Host, "node1", "10.0.1.0/26")).await.unwrap();
    store.create(affinity(AffinityType::Virtual, "node", "10.0.2.0/26")).await.unwrap();
    store.create(counter("h", 1)).await.unwrap();
    let list = async |options: ListOptions| store.list(&options, None).await.unwrap().items.len();
    let of = |affinity, owner: Option<&str>, version| ListOptions::BlockAffinities {
        affinity,
        owner: owner.map(Into::into),
        version,
    };
    let v6 = Some(calico_net::IpVersion::V6);
    assert_eq!(list(of(AffinityType::Host, None, None)).await, 3);
    assert_eq!(list(of(AffinityType::Host, Some("node"), None)).await, 2);
    assert_eq!(list(of(AffinityType::Host, Some("node"), v6)).await, 1);
    assert_eq!(list(of(AffinityType::Host, None, v6)).await, 1);
    assert_eq!(list(of(AffinityType::Virtual, None, None)).await, 1);
    assert_eq!(list(ListOptions::Handles).await, 1);
    assert_eq!(list(ListOptions::Blocks { version: None }).await, 0);
}

pub(super) async fn reads_of_the_past(subject: Subject) {
    let store = subject.backend;
    let a1 = store.create(tier("a", 1.0)).await.unwrap();
    let b1 = store.create(tier("b", 1.0)).await.unwrap();
    let a2 = store.update(tier("a", 2.0).at(a1.revision.clone())).await.unwrap();
    store.delete(&b1.key, None).await.unwrap();
    let c1 = store.create(tier("c", 1.0)).await.unwrap();
    let get = async |key: &Key, at: &Revision| store.get(key, Some(at)).await;
    assert_eq!(get(&a1.key, &a1.revision).await.unwrap(), a1);
    assert_eq!(get(&a1.key, &b1.revision).await.unwrap(), a1);
    assert_eq!(get(&a1.key, &a2.revision).await.unwrap(), a2);
    assert_eq!(get(&b1.key, &a2.revision).await.unwrap(), b1);
    assert!(matches!(get(&b1.key, &a1.revision).await, Err(StoreError::DoesNotExist { .. })));
    assert!(matches!(get(&b1.key, &c1.revision).await, Err(StoreError::DoesNotExist { .. })));
    let options = ListOptions::kind(Kind::Tier);
    let list = async |at: &Revision| store.list(&options, Some(at)).await.unwrap().items;
    assert_eq!(list(&a1.revision).await, std::slice::from_ref(&a1));
    assert_eq!(list(&b1.revision).await, [a1, b1.clone()]);
    assert_eq!(list(&a2.revision).await, [a2.clone(), b1]);
    assert_eq!(list(&c1.revision).await, [a2, c1]);
}

pub(super) async fn compaction_forgets_the_past(subject: Subject) {
    let (store, Some(raw)) = (subject.backend, subject.raw) else { return };
    let a1 = store.create(tier("a", 1.0)).await.unwrap();
    let a2 = store.apply(tier("a", 2.0)).await.unwrap();
    let a3 = store.apply(tier("a", 3.0)).await.unwrap();
    raw.compact(a2.revision.as_u64().unwrap()).await.unwrap();
    assert_eq!(store.get(&a1.key, None).await.unwrap(), a3);
    assert_eq!(store.get(&a1.key, Some(&a2.revision)).await.unwrap(), a2);
    let old = store.get(&a1.key, Some(&a1.revision)).await;
    assert!(matches!(old, Err(StoreError::Compacted { .. })), "{old:?}");
    let old = store.list(&ListOptions::kind(Kind::Tier), Some(&a1.revision)).await;
    assert!(matches!(old, Err(StoreError::Compacted { .. })), "{old:?}");
}

pub(super) async fn revisions_that_are_none(subject: Subject) {
    let store = subject.backend;
    let made = store.create(tier("a", 1.0)).await.unwrap();
    let options = ListOptions::kind(Kind::Tier);
    let odd = Revision::from("12/34");
    let invalid = |error: Option<StoreError>| match error {
        Some(StoreError::Invalid { field, value, .. }) => (field, value),
        other => panic!("{other:?}"),
    };
    let expected = ("ResourceVersion".to_owned(), "12/34".to_owned());
    assert_eq!(invalid(store.get(&made.key, Some(&odd)).await.err()), expected);
    assert_eq!(invalid(store.list(&options, Some(&odd)).await.err()), expected);
    assert_eq!(invalid(store.watch(&options, Some(&odd)).await.err()), expected);
    assert_eq!(invalid(store.delete(&made.key, Some(&odd)).await.err()), expected);
    assert_eq!(invalid(store.update(made.clone().at(odd)).await.err()), expected);
    let empty = Revision::default();
    assert_eq!(store.get(&made.key, Some(&empty)).await.unwrap(), made);
    let future = Revision::from(made.revision.as_u64().unwrap() + 1_000_000);
    assert!(store.get(&made.key, Some(&future)).await.is_err());
}

pub(super) async fn odd_names_and_big_values(subject: Subject) {
    let store = subject.backend;
    let mut keys = Vec::new();
    for name in ["with.dots", "knp.default.a-b", "käse", "%2f", "a'b\"c", "zz\u{10ffff}"] {
        keys.push(store.create(tier(name, 1.0)).await.unwrap());
    }
    for made in &keys {
        assert_eq!(store.get(&made.key, None).await.unwrap(), *made);
    }
    let list = store.list(&ListOptions::kind(Kind::Tier), None).await.unwrap();
    assert_eq!(list.items.len(), keys.len());
    let prefix = ListOptions::Resource {
        kind: Kind::Tier,
        namespace: None,
        name: Some("zz\u{10ffff}".into()),
        prefix: true,
    };
    assert_eq!(store.list(&prefix, None).await.unwrap().items.len(), 1);
    let mut big = tier("big", 1.0);
    if let Some(Value::Resource(object)) = &mut big.value {
        let object = std::sync::Arc::make_mut(object);
        object.metadata_mut().annotations.insert("note".into(), "x".repeat(500_000));
    }
    let made = store.create(big.clone()).await.unwrap();
    assert_eq!(made.value, big.value);
    assert_eq!(store.get(&made.key, None).await.unwrap(), made);
}

pub(super) async fn long_lists_come_whole(subject: Subject) {
    let store = subject.backend;
    let many = 2500;
    let transactions = store.transactions().expect("transactions");
    let names: Vec<String> = (0..many).map(|n| format!("handle-{n:05}")).collect();
    for chunk in names.chunks(transactions.max_operations().min(100)) {
        let writes = chunk.iter().map(|name| calico_datastore::Write::Put(counter(name, 1))).collect();
        transactions.commit(calico_datastore::Txn { conditions: vec![], writes }).await.unwrap();
    }
    let list = store.list(&ListOptions::Handles, None).await.unwrap();
    let found: Vec<String> = list.items.iter().map(|kv| kv.key.to_path()).collect();
    let wanted: Vec<String> = names.iter().map(|name| Key::IpamHandle(name.into()).to_path()).collect();
    assert_eq!(found, wanted);
}

pub(super) async fn broken_values_are_skipped_in_lists_and_reported_by_get(subject: Subject) {
    let store = subject.backend.clone();
    let good = store.create(tier("good", 1.0)).await.unwrap();
    let bad = tier("bad", 1.0).key;
    if !put_bytes(&subject, &bad.to_path(), b"{not json").await {
        return;
    }
    put_bytes(&subject, "/calico/resources/v3/projectcalico.org/tiers/a/b/c", b"{}").await;
    let list = store.list(&ListOptions::kind(Kind::Tier), None).await.unwrap();
    assert_eq!(list.items, [good]);
    match store.get(&bad, None).await {
        Err(StoreError::Parse { key, path, value, .. }) => {
            assert_eq!(*key.unwrap(), bad);
            assert_eq!(path, bad.to_path());
            assert_eq!(value, "{not json");
        }
        other => panic!("{other:?}"),
    }
    // It can be replaced and deleted, and a conflict over it is one.
    assert!(matches!(store.create(tier("bad", 1.0)).await, Err(StoreError::AlreadyExists { .. })));
    let deleted = store.delete(&bad, None).await.unwrap();
    assert_eq!((deleted.key, deleted.value), (bad, None));
}

pub(super) async fn entries_with_a_life_time_expire(subject: Subject) {
    let store = subject.backend;
    let mut short = counter("short", 1);
    short.ttl = Some(Duration::from_secs(1));
    let mut kept = counter("kept", 1);
    kept.ttl = Some(Duration::from_secs(1));
    let short = store.create(short).await.unwrap();
    let kept = store.create(kept).await.unwrap();
    assert_eq!(store.get(&short.key, None).await.unwrap(), short);
    // A write without a life time takes the old one away.
    store.update(counter("kept", 2).at(kept.revision)).await.unwrap();
    let gone = async {
        while store.get(&short.key, None).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(DEADLINE, gone).await.unwrap();
    let list = store.list(&ListOptions::Handles, None).await.unwrap();
    assert_eq!(list.items.iter().map(|kv| &kv.key).collect::<Vec<_>>(), [&kept.key]);
    let again = store.create(counter("short", 3)).await.unwrap();
    assert_eq!(store.get(&short.key, None).await.unwrap(), again);
}

pub(super) async fn clean_removes_everything(subject: Subject) {
    let store = subject.backend;
    store.create(tier("a", 1.0)).await.unwrap();
    store.create(set("ns", "a", "10.0.0.0/8")).await.unwrap();
    store.create(counter("a", 1)).await.unwrap();
    store.clean().await.unwrap();
    for options in [ListOptions::kind(Kind::Tier), ListOptions::kind(Kind::NetworkSet), ListOptions::Handles]
    {
        assert_eq!(store.list(&options, None).await.unwrap().items, []);
    }
    store.clean().await.unwrap();
}

pub(super) async fn the_built_in_profile_is_there(subject: Subject) {
    let store = subject.backend;
    let key = Key::resource(Kind::Profile, "", "projectcalico-default-allow");
    let profile = store.get(&key, None).await.unwrap();
    assert_eq!(profile.revision, "1".into());
    assert_eq!(store.list(&ListOptions::kind(Kind::Profile), None).await.unwrap().items, [profile]);
}

pub(super) async fn deleting_a_tier_with_its_policies(subject: Subject) {
    let store = subject.backend;
    store.create(tier("a", 1.0)).await.unwrap();
    store.create(tier("b", 2.0)).await.unwrap();
    for (namespace, name, tier) in [("ns", "p", "a"), ("ns", "q", "b"), ("other", "r", "a"), ("ns", "s", "")]
    {
        store.create(policy(namespace, name, tier)).await.unwrap();
    }
    let gone = store.delete_recursive(&Key::resource(Kind::Tier, "", "a")).await.unwrap();
    assert_eq!(names(&gone), ["ns/p", "other/r", "a"]);
    assert!(gone.iter().all(|kv| kv.value.is_some()));
    let left = store.list(&ListOptions::kind(Kind::NetworkPolicy), None).await.unwrap();
    assert_eq!(names(&left.items), ["ns/q", "ns/s"]);
    assert_eq!(names(&store.list(&ListOptions::kind(Kind::Tier), None).await.unwrap().items), ["b"]);
}
