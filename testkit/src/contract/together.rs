//! Transactions, and many callers at once.

use calico_datastore::{Condition, StoreError, Txn, TxnOutcome, WatchEvent, Write};
use calico_model::{ListOptions, Revision};

use super::Subject;
use super::support::{brief, count, counter, next, tier};

pub(super) async fn transactions_are_all_or_nothing(subject: Subject) {
    let store = subject.backend;
    let transactions = store.transactions().expect("transactions");
    let a = store.create(counter("a", 1)).await.unwrap();
    let b = store.create(counter("b", 1)).await.unwrap();
    let txn = |conditions: Vec<Condition>| Txn {
        conditions,
        writes: vec![Write::Put(counter("a", 2)), Write::Delete(b.key.clone()), Write::Put(counter("c", 1))],
    };
    let c = counter("c", 1).key;
    let stale = Revision::from(a.revision.as_u64().unwrap() - 1);
    for conditions in [
        vec![Condition::Absent(a.key.clone())],
        vec![Condition::Revision(a.key.clone(), a.revision.clone()), Condition::Absent(b.key.clone())],
        vec![Condition::Revision(a.key.clone(), stale)],
        vec![Condition::Revision(c.clone(), a.revision.clone())],
    ] {
        assert_eq!(transactions.commit(txn(conditions)).await.unwrap(), TxnOutcome::Conflict);
        let (read, _) = transactions.get_many(&[a.key.clone(), b.key.clone(), c.clone()]).await.unwrap();
        assert_eq!(read, [Some(a.clone()), Some(b.clone()), None]);
    }
    let conditions = vec![
        Condition::Revision(a.key.clone(), a.revision.clone()),
        Condition::Revision(b.key.clone(), b.revision.clone()),
        Condition::Absent(c.clone()),
    ];
    let TxnOutcome::Committed(revision) = transactions.commit(txn(conditions)).await.unwrap() else {
        panic!("conflict")
    };
    let (read, at) = transactions.get_many(&[a.key.clone(), b.key.clone(), c.clone()]).await.unwrap();
    assert_eq!(at, revision);
    let wanted = [Some(counter("a", 2).at(revision.clone())), None, Some(counter("c", 1).at(revision))];
    assert_eq!(read, wanted);
    assert_eq!(transactions.commit(Txn::default()).await.unwrap(), TxnOutcome::Committed(at));
}

pub(super) async fn transactions_have_one_revision(subject: Subject) {
    let store = subject.backend;
    let transactions = store.transactions().expect("transactions");
    let start = store.create(counter("b", 1)).await.unwrap();
    let mut watch = store.watch(&ListOptions::Handles, Some(&start.revision)).await.unwrap();
    let writes = vec![
        Write::Put(counter("c", 1)),
        Write::Put(counter("a", 1)),
        Write::Delete(start.key.clone()),
        Write::Delete(counter("never", 1).key),
    ];
    let outcome = transactions.commit(Txn { conditions: vec![], writes }).await.unwrap();
    let TxnOutcome::Committed(revision) = outcome else { panic!("conflict") };
    let mut seen = vec![next(&mut watch).await, next(&mut watch).await, next(&mut watch).await];
    for event in &seen {
        match event {
            WatchEvent::Added(kv) => assert_eq!(kv.revision, revision),
            WatchEvent::Deleted(kv) => assert_eq!(kv.revision, start.revision),
            other => panic!("{other:?}"),
        }
    }
    seen.sort_by_key(brief);
    let seen: Vec<String> = seen.iter().map(brief).collect();
    let name = |sign: &str, name: &str| format!("{sign}{}", counter(name, 1).key);
    assert_eq!(seen, [name("+", "a"), name("+", "c"), name("-", "b")]);
}

pub(super) async fn transactions_refuse_what_is_too_much(subject: Subject) {
    let store = subject.backend;
    let transactions = store.transactions().expect("transactions");
    let most = transactions.max_operations();
    let puts = |count: usize| Txn {
        conditions: vec![],
        writes: (0..count).map(|n| Write::Put(counter(&format!("h{n}"), 1))).collect(),
    };
    assert!(matches!(transactions.commit(puts(most)).await.unwrap(), TxnOutcome::Committed(_)));
    let refused = transactions.commit(puts(most + 1)).await;
    assert!(matches!(refused, Err(StoreError::Invalid { .. })), "{refused:?}");
    let twice =
        Txn { conditions: vec![], writes: vec![Write::Put(counter("x", 1)), Write::Put(counter("x", 2))] };
    let refused = transactions.commit(twice).await;
    assert!(matches!(refused, Err(StoreError::Invalid { .. })), "{refused:?}");
    let keys: Vec<_> = (0..most).map(|n| counter(&format!("h{n}"), 1).key).collect();
    let (read, _) = transactions.get_many(&keys).await.unwrap();
    assert!(read.iter().all(Option::is_some));
}

pub(super) async fn concurrent_updates_lose_nothing(subject: Subject) {
    let store = subject.backend;
    let made = store.create(counter("n", 0)).await.unwrap();
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let (store, key) = (store.clone(), made.key.clone());
            tokio::spawn(async move {
                for _ in 0..10 {
                    loop {
                        let now = store.get(&key, None).await.unwrap();
                        match store.update(counter("n", count(&now) + 1).at(now.revision)).await {
                            Ok(_) => break,
                            Err(StoreError::UpdateConflict { .. }) => {}
                            Err(other) => panic!("{other}"),
                        }
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(count(&store.get(&made.key, None).await.unwrap()), 80);
}

pub(super) async fn one_of_many_creates_wins(subject: Subject) {
    let store = subject.backend;
    let tasks: Vec<_> = (0..16)
        .map(|n| {
            let store = store.clone();
            tokio::spawn(async move { store.create(counter("n", n)).await })
        })
        .collect();
    let mut winners = Vec::new();
    for task in tasks {
        match task.await.unwrap() {
            Ok(made) => winners.push(made),
            Err(StoreError::AlreadyExists { existing, .. }) => assert!(existing.is_some()),
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!(winners.len(), 1);
    assert_eq!(store.get(&winners[0].key, None).await.unwrap(), winners[0]);
}

pub(super) async fn calls_after_close_fail(subject: Subject) {
    let store = subject.backend;
    let made = store.create(tier("a", 1.0)).await.unwrap();
    let mut watch = store.watch(&ListOptions::Handles, Some(&made.revision)).await.unwrap();
    store.close().await;
    assert!(store.get(&made.key, None).await.is_err());
    assert!(store.create(tier("b", 1.0)).await.is_err());
    assert!(store.watch(&ListOptions::Handles, None).await.is_err());
    assert!(matches!(next(&mut watch).await, WatchEvent::Error(_)));
    assert!(watch.next().await.is_none());
}
