use std::collections::BTreeMap;

use calico_model::{Key, KvPair, SyncStatus, Update, UpdateType};
use proptest::prelude::*;

use super::tier;
use crate::syncer::{Batch, DedupeBuffer, SyncerCallbacks};

fn put(name: &str, order: f64) -> Update {
    Update { kv: tier(name, order), kind: UpdateType::Unknown }
}

fn delete(name: &str) -> Update {
    Update { kv: KvPair::tombstone(tier(name, 0.0).key), kind: UpdateType::Deleted }
}

fn texts(batch: Option<Batch>) -> Vec<String> {
    match batch {
        None => vec!["nothing".into()],
        Some(Batch::Status(status)) => vec![status.to_string()],
        Some(Batch::Updates(updates)) => updates
            .iter()
            .map(|u| {
                let sign = match u.kind {
                    UpdateType::New => '+',
                    UpdateType::Updated => '~',
                    UpdateType::Deleted => '-',
                    UpdateType::Unknown => '?',
                };
                format!("{sign}{}", u.kv.key)
            })
            .collect(),
    }
}

#[test]
fn one_change_per_key_waits_at_the_place_of_the_first() {
    let mut buffer = DedupeBuffer::new();
    buffer.on_status(SyncStatus::WaitForDatastore);
    buffer.on_status(SyncStatus::ResyncInProgress);
    buffer.on_updates(vec![
        put("a", 1.0),
        put("b", 1.0),
        put("a", 2.0),
        put("c", 1.0),
        delete("c"),
        delete("x"),
    ]);
    buffer.on_status(SyncStatus::InSync);
    buffer.on_updates(vec![put("b", 2.0), put("d", 1.0)]);
    assert_eq!(buffer.len(), 5);
    assert_eq!(texts(buffer.try_next()), ["resync"]);
    match buffer.try_next() {
        Some(Batch::Updates(updates)) => {
            let kvs: Vec<_> = updates.into_iter().map(|u| u.kv).collect();
            assert_eq!(kvs, [tier("a", 2.0), tier("b", 2.0)]);
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(texts(buffer.try_next()), ["in-sync"]);
    assert_eq!(texts(buffer.try_next()), ["+Tier(d)"]);
    buffer.on_updates(vec![put("a", 3.0), delete("b"), delete("d"), put("d", 2.0)]);
    assert_eq!(texts(buffer.try_next()), ["~Tier(a)", "-Tier(b)", "~Tier(d)"]);
    assert_eq!(texts(buffer.try_next()), ["nothing"]);
    assert!(buffer.is_empty());
}

#[test]
fn batches_are_bounded() {
    let mut buffer = DedupeBuffer::new();
    buffer.on_updates((0..250).map(|n| put(&format!("t{n}"), 1.0)).collect());
    let sizes: Vec<usize> = (0..3).map(|_| texts(buffer.try_next()).len()).collect();
    assert_eq!(sizes, [100, 100, 50]);
}

#[test]
fn after_a_restart_what_is_not_named_again_goes() {
    let mut buffer = DedupeBuffer::new();
    buffer.on_updates(vec![put("a", 1.0), put("b", 1.0), put("c", 1.0)]);
    buffer.on_status(SyncStatus::InSync);
    texts(buffer.try_next());
    texts(buffer.try_next());
    buffer.on_updates(vec![put("lost", 1.0), delete("c")]);
    buffer.restart();
    buffer.on_status(SyncStatus::ResyncInProgress);
    buffer.on_updates(vec![put("b", 1.0), put("d", 1.0)]);
    buffer.on_status(SyncStatus::InSync);
    assert_eq!(texts(buffer.try_next()), ["resync"]);
    assert_eq!(texts(buffer.try_next()), ["~Tier(b)", "+Tier(d)", "-Tier(a)", "-Tier(c)"]);
    assert_eq!(texts(buffer.try_next()), ["in-sync"]);
}

#[tokio::test]
async fn the_receiver_is_woken_and_sees_the_end() {
    let buffer = DedupeBuffer::new();
    let receiver = buffer.clone();
    let task = tokio::spawn(async move {
        let mut seen = Vec::new();
        while let Some(batch) = receiver.next().await {
            seen.extend(texts(Some(batch)));
        }
        seen
    });
    tokio::task::yield_now().await;
    let mut producer = buffer.clone();
    producer.on_status(SyncStatus::InSync);
    tokio::task::yield_now().await;
    producer.on_updates(vec![put("a", 1.0)]);
    buffer.close();
    assert_eq!(task.await.unwrap(), ["in-sync", "+Tier(a)"]);
}

#[derive(Debug, Clone)]
enum Step {
    Put(u8, u8),
    Delete(u8),
    Take,
    /// The producer starts anew and names everything again.
    Restart,
}

proptest! {
    #[test]
    fn the_receiver_ends_up_with_what_the_producer_has(
        steps in proptest::collection::vec(
            prop_oneof![
                5 => (0..8u8, any::<u8>()).prop_map(|(n, v)| Step::Put(n, v)),
                3 => (0..8u8).prop_map(Step::Delete),
                3 => Just(Step::Take),
                1 => Just(Step::Restart),
            ],
            0..80,
        )
    ) {
        let mut buffer = DedupeBuffer::new();
        let mut produced: BTreeMap<Key, KvPair> = BTreeMap::new();
        let mut received: BTreeMap<Key, KvPair> = BTreeMap::new();
        let mut take = |buffer: &DedupeBuffer| {
            let batch = buffer.try_next()?;
            if let Batch::Updates(updates) = &batch {
                for update in updates {
                    let kv = update.kv.clone();
                    let before = match kv.value {
                        Some(_) => received.insert(kv.key.clone(), kv),
                        None => received.remove(&kv.key),
                    };
                    let wanted = match (before.is_some(), update.kv.value.is_some()) {
                        (false, true) => UpdateType::New,
                        (true, true) => UpdateType::Updated,
                        _ => UpdateType::Deleted,
                    };
                    assert!(before.is_some() || update.kv.value.is_some(), "deletion of something unknown");
                    assert_eq!(update.kind, wanted);
                }
            }
            Some(())
        };
        for step in steps {
            match step {
                Step::Put(n, v) => {
                    let kv = tier(&format!("t{n}"), f64::from(v));
                    produced.insert(kv.key.clone(), kv.clone());
                    buffer.on_updates(vec![Update { kv, kind: UpdateType::Unknown }]);
                }
                Step::Delete(n) => {
                    produced.remove(&tier(&format!("t{n}"), 0.0).key);
                    buffer.on_updates(vec![delete(&format!("t{n}"))]);
                }
                Step::Take => drop(take(&buffer)),
                Step::Restart => {
                    buffer.restart();
                    let all = produced.values().cloned().map(|kv| Update { kv, kind: UpdateType::New }).collect();
                    buffer.on_updates(all);
                    buffer.on_status(SyncStatus::InSync);
                }
            }
        }
        while take(&buffer).is_some() {}
        prop_assert_eq!(&received, &produced);
    }
}
