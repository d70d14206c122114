//! Watches.

use std::collections::BTreeMap;
use std::time::Duration;

use calico_api::Kind;
use calico_datastore::{StoreError, WatchEvent};
use calico_model::{KvPair, ListOptions, Revision};

use super::Subject;
use super::support::{DEADLINE, brief, count, counter, next, put_bytes, set, tier};

pub(super) async fn watch_from_nothing_lists_first(subject: Subject) {
    let store = subject.backend;
    let a = store.create(tier("a", 1.0)).await.unwrap();
    let b = store.create(tier("b", 1.0)).await.unwrap();
    let options = ListOptions::kind(Kind::Tier);
    for from in [None, Some(Revision::from("0")), Some(Revision::default())] {
        let mut watch = store.watch(&options, from.as_ref()).await.unwrap();
        assert_eq!(next(&mut watch).await, WatchEvent::Added(a.clone()));
        assert_eq!(next(&mut watch).await, WatchEvent::Added(b.clone()));
        let c = store.create(tier("c", 1.0)).await.unwrap();
        assert_eq!(next(&mut watch).await, WatchEvent::Added(c.clone()));
        let gone = store.delete(&c.key, None).await.unwrap();
        assert_eq!(next(&mut watch).await, WatchEvent::Deleted(gone));
    }
}

pub(super) async fn watch_from_a_revision_sees_what_came_after(subject: Subject) {
    let store = subject.backend;
    let a1 = store.create(tier("a", 1.0)).await.unwrap();
    let a2 = store.apply(tier("a", 2.0)).await.unwrap();
    let b1 = store.create(tier("b", 1.0)).await.unwrap();
    let a3 = store.apply(tier("a", 3.0)).await.unwrap();
    store.delete(&a1.key, None).await.unwrap();
    let a4 = store.create(tier("a", 4.0)).await.unwrap();
    let mut watch = store.watch(&ListOptions::kind(Kind::Tier), Some(&a1.revision)).await.unwrap();
    let modified =
        |new: &KvPair, old: &KvPair| WatchEvent::Modified { new: new.clone(), old: Some(old.clone()) };
    assert_eq!(next(&mut watch).await, modified(&a2, &a1));
    assert_eq!(next(&mut watch).await, WatchEvent::Added(b1));
    assert_eq!(next(&mut watch).await, modified(&a3, &a2));
    // The revision is that of the last value, not of the deletion.
    assert_eq!(next(&mut watch).await, WatchEvent::Deleted(a3));
    assert_eq!(next(&mut watch).await, WatchEvent::Added(a4.clone()));
    let a5 = store.apply(tier("a", 5.0)).await.unwrap();
    assert_eq!(next(&mut watch).await, modified(&a5, &a4));
}

pub(super) async fn watch_sees_only_what_it_asked_for(subject: Subject) {
    let store = subject.backend;
    let start = store.create(tier("start", 1.0)).await.unwrap().revision;
    let options = ListOptions::Resource {
        kind: Kind::NetworkSet,
        namespace: Some("ns1".into()),
        name: None,
        prefix: false,
    };
    let mut in_namespace = store.watch(&options, Some(&start)).await.unwrap();
    let options = ListOptions::Resource {
        kind: Kind::NetworkSet,
        namespace: None,
        name: Some("a".into()),
        prefix: true,
    };
    let mut by_prefix = store.watch(&options, Some(&start)).await.unwrap();
    let options =
        ListOptions::Resource { kind: Kind::Tier, namespace: None, name: Some("t".into()), prefix: false };
    let mut one = store.watch(&options, Some(&start)).await.unwrap();
    for (namespace, name) in [("ns10", "a"), ("ns1", "b"), ("ns", "a"), ("ns1", "ab")] {
        store.create(set(namespace, name, "10.0.0.0/8")).await.unwrap();
    }
    store.create(tier("ta", 1.0)).await.unwrap();
    store.create(tier("t", 1.0)).await.unwrap();
    assert_eq!(brief(&next(&mut in_namespace).await), "+NetworkSet(ns1/b)");
    assert_eq!(brief(&next(&mut in_namespace).await), "+NetworkSet(ns1/ab)");
    assert_eq!(brief(&next(&mut by_prefix).await), "+NetworkSet(ns10/a)");
    assert_eq!(brief(&next(&mut by_prefix).await), "+NetworkSet(ns/a)");
    assert_eq!(brief(&next(&mut by_prefix).await), "+NetworkSet(ns1/ab)");
    assert_eq!(brief(&next(&mut one).await), "+Tier(t)");
}

pub(super) async fn watch_passes_broken_values(subject: Subject) {
    let store = subject.backend.clone();
    let start = store.create(tier("start", 1.0)).await.unwrap().revision;
    let mut watch = store.watch(&ListOptions::kind(Kind::Tier), Some(&start)).await.unwrap();
    let bad = tier("bad", 1.0).key;
    if !put_bytes(&subject, &bad.to_path(), b"5").await {
        return;
    }
    match next(&mut watch).await {
        WatchEvent::Error(StoreError::Parse { key, path, .. }) => {
            assert_eq!(*key.unwrap(), bad);
            assert_eq!(path, bad.to_path());
        }
        other => panic!("{other:?}"),
    }
    put_bytes(&subject, "/calico/resources/v3/projectcalico.org/tiers/a/b", b"{}").await;
    let good = store.apply(tier("bad", 2.0)).await.unwrap();
    match next(&mut watch).await {
        WatchEvent::Modified { new, old: None } => assert_eq!(new, good),
        other => panic!("{other:?}"),
    }
    put_bytes(&subject, &bad.to_path(), b"5").await;
    assert!(matches!(next(&mut watch).await, WatchEvent::Error(StoreError::Parse { .. })));
    store.delete(&bad, None).await.unwrap();
    match next(&mut watch).await {
        WatchEvent::Deleted(KvPair { key, value: None, .. }) => assert_eq!(key, bad),
        other => panic!("{other:?}"),
    }
    // A watch that begins with what is there leaves the broken value out.
    put_bytes(&subject, &bad.to_path(), b"5").await;
    let mut watch = store.watch(&ListOptions::kind(Kind::Tier), None).await.unwrap();
    assert_eq!(brief(&next(&mut watch).await), "+Tier(start)");
    store.create(tier("z", 1.0)).await.unwrap();
    assert_eq!(brief(&next(&mut watch).await), "+Tier(z)");
}

pub(super) async fn watch_from_a_forgotten_revision_ends(subject: Subject) {
    let (store, Some(raw)) = (subject.backend, subject.raw) else { return };
    let a1 = store.create(tier("a", 1.0)).await.unwrap();
    store.apply(tier("a", 2.0)).await.unwrap();
    store.apply(tier("a", 3.0)).await.unwrap();
    let a4 = store.apply(tier("a", 4.0)).await.unwrap();
    raw.compact(a4.revision.as_u64().unwrap()).await.unwrap();
    let options = ListOptions::kind(Kind::Tier);
    let error = match store.watch(&options, Some(&a1.revision)).await {
        Ok(mut watch) => match next(&mut watch).await {
            WatchEvent::Error(error) => {
                assert!(tokio::time::timeout(DEADLINE, watch.next()).await.unwrap().is_none());
                error
            }
            other => panic!("{other:?}"),
        },
        Err(error) => error,
    };
    assert!(matches!(error, StoreError::Compacted { .. }), "{error:?}");
    let mut watch = store.watch(&options, Some(&a4.revision)).await.unwrap();
    store.apply(tier("a", 5.0)).await.unwrap();
    assert_eq!(brief(&next(&mut watch).await), "~Tier(a)");
}

pub(super) async fn watch_sees_expiry(subject: Subject) {
    let store = subject.backend;
    let mut short = counter("short", 1);
    short.ttl = Some(Duration::from_secs(1));
    let made = store.create(short).await.unwrap();
    let mut watch = store.watch(&ListOptions::Handles, Some(&made.revision)).await.unwrap();
    assert_eq!(next(&mut watch).await, WatchEvent::Deleted(made));
}

pub(super) async fn a_slow_receiver_loses_nothing(subject: Subject) {
    let store = subject.backend;
    let start = store.create(counter("a", 0)).await.unwrap().revision;
    let mut watch = store.watch(&ListOptions::Handles, Some(&start)).await.unwrap();
    for n in 1..=1200 {
        store.apply(counter("a", n)).await.unwrap();
    }
    for n in 1..=1200 {
        match next(&mut watch).await {
            WatchEvent::Modified { new, old } => assert_eq!((count(&new), count(&old.unwrap())), (n, n - 1)),
            other => panic!("{other:?}"),
        }
    }
}

pub(super) async fn every_change_comes_once_and_in_order(subject: Subject) {
    let store = subject.backend;
    let writers: Vec<_> = (0..8)
        .map(|writer| {
            let store = store.clone();
            tokio::spawn(async move {
                for n in 0..60 {
                    let name = format!("h{}", (writer * 7 + n) % 13);
                    if n % 5 == 4 {
                        // Somebody else may have deleted it already.
                        let _ = store.delete(&counter(&name, 0).key, None).await;
                    } else {
                        store.apply(counter(&name, writer * 1000 + n)).await.unwrap();
                    }
                }
            })
        })
        .collect();
    // Watches that begin at different moments all end up with what is stored.
    let mut watches = Vec::new();
    for _ in 0..5 {
        let list = store.list(&ListOptions::Handles, None).await.unwrap();
        let watch = store.watch(&ListOptions::Handles, Some(&list.revision)).await.unwrap();
        watches.push((list, watch));
        tokio::task::yield_now().await;
    }
    for writer in writers {
        writer.await.unwrap();
    }
    let end = store.apply(counter("end", 1)).await.unwrap();
    let stored = store.list(&ListOptions::Handles, None).await.unwrap().items;
    for (list, mut watch) in watches {
        let mut seen: BTreeMap<String, KvPair> =
            list.items.into_iter().map(|kv| (kv.key.to_path(), kv)).collect();
        let mut revision = list.revision.as_u64().unwrap();
        loop {
            match next(&mut watch).await {
                WatchEvent::Added(kv) => {
                    assert!(kv.revision.as_u64().unwrap() > revision);
                    revision = kv.revision.as_u64().unwrap();
                    let before = seen.insert(kv.key.to_path(), kv.clone());
                    assert_eq!(before, None);
                    if kv == end {
                        break;
                    }
                }
                WatchEvent::Modified { new, old } => {
                    assert!(new.revision.as_u64().unwrap() > revision);
                    revision = new.revision.as_u64().unwrap();
                    let before = seen.insert(new.key.to_path(), new);
                    assert_eq!(before, old);
                }
                WatchEvent::Deleted(old) => {
                    assert_eq!(seen.remove(&old.key.to_path()), Some(old));
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(seen.into_values().collect::<Vec<_>>(), stored);
    }
}
