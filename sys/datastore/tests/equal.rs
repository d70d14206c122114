//! The SQLite store against the simple one in memory: the same requests get the same answers, and the same history.

#![allow(clippy::unwrap_used, reason = "test code")]

use calico_datastore::{
    MemoryRaw, RawCondition, RawEvent, RawStore, RawTxn, RawWrite, SqliteOptions, SqliteRaw, StoreError,
};
use calico_model::path::KeyRange;
use proptest::prelude::*;

const PATHS: [&str; 6] = ["/a", "/a/1", "/a/2", "/a0", "/b/1", "/b/\u{10ffff}"];

#[derive(Debug, Clone)]
enum Step {
    Commit(RawTxn),
    DeleteRange(KeyRange),
    /// Compact to so many revisions before the newest.
    Compact(u64),
}

fn range() -> impl Strategy<Value = KeyRange> {
    prop_oneof![
        proptest::sample::select(&PATHS[..]).prop_map(|path| KeyRange::Exact(path.into())),
        proptest::sample::select(&["/", "/a", "/a/", "/b/", "/b/\u{10ffff}", "/c"][..])
            .prop_map(|path| KeyRange::Prefix(path.into())),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let path = || proptest::sample::select(&PATHS[..]).prop_map(str::to_owned);
    let condition = prop_oneof![
        path().prop_map(RawCondition::Absent),
        (path(), 0..12u64).prop_map(|(path, revision)| RawCondition::Revision(path, revision)),
    ];
    let write = prop_oneof![
        3 => (path(), any::<u8>()).prop_map(|(path, n)| RawWrite::Put { path, value: vec![n], ttl: None }),
        1 => path().prop_map(RawWrite::Delete),
    ];
    let txn =
        (proptest::collection::vec(condition, 0..2), proptest::collection::vec(write, 0..4), any::<bool>())
            .prop_map(|(conditions, writes, report_conflict)| RawTxn { conditions, writes, report_conflict });
    prop_oneof![
        12 => txn.prop_map(Step::Commit),
        1 => range().prop_map(Step::DeleteRange),
        1 => (0..6u64).prop_map(Step::Compact),
    ]
}

/// Changes after a revision, up to the newest.
async fn changes(
    store: &dyn RawStore,
    range: &KeyRange,
    after: u64,
    count: usize,
) -> Result<Vec<RawEvent>, StoreError> {
    let mut stream = store.watch(range, after).await?;
    let mut all = Vec::new();
    // Nothing to come cannot be waited for; that the history is kept is still asked for elsewhere.
    while all.len() < count {
        all.extend(stream.next().await?);
    }
    Ok(all)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(48) })]

    #[test]
    fn same_requests_same_answers_same_history(
        steps in proptest::collection::vec(step(), 1..30),
        range in range(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let directory = tempfile::tempdir().unwrap();
            let sqlite = SqliteRaw::new(&directory.path().join("x.db"), "", SqliteOptions::default());
            sqlite.initialize().await.unwrap();
            let memory = MemoryRaw::new();
            let everything = KeyRange::Prefix("/".into());
            let mut compacted = 1;
            for step in steps {
                match step {
                    Step::Commit(txn) => {
                        assert_eq!(sqlite.commit(txn.clone()).await, memory.commit(txn).await);
                    }
                    Step::DeleteRange(range) => {
                        sqlite.delete_range(&range).await.unwrap();
                        memory.delete_range(&range).await.unwrap();
                    }
                    Step::Compact(back) => {
                        let (_, revision) = memory.range(&everything, None).await.unwrap();
                        let revision = revision.saturating_sub(back);
                        let results = (sqlite.compact(revision).await, memory.compact(revision).await);
                        assert_eq!(results.0, results.1);
                        compacted = compacted.max(revision);
                    }
                }
            }
            let now = sqlite.range(&everything, None).await.unwrap();
            assert_eq!(now, memory.range(&everything, None).await.unwrap());
            let paths: Vec<String> = PATHS.iter().map(|path| (*path).to_owned()).collect();
            for revision in 0..=now.1 {
                let at = Some(revision);
                assert_eq!(sqlite.range(&range, at).await, memory.range(&range, at).await);
                assert_eq!(sqlite.get(&paths, at).await, memory.get(&paths, at).await);
                if revision < compacted {
                    let gone = sqlite.watch(&range, revision).await.unwrap().next().await;
                    assert_eq!(gone, Err(StoreError::Compacted { revision: revision.to_string() }));
                    continue;
                }
                // The memory has its changes at hand, all at once.
                let mut stream = memory.watch(&range, revision).await.unwrap();
                let pause = std::time::Duration::from_millis(1);
                let wanted = match tokio::time::timeout(pause, stream.next()).await {
                    Ok(changes) => changes.unwrap(),
                    Err(_) => Vec::new(),
                };
                assert_eq!(changes(&sqlite, &range, revision, wanted.len()).await.unwrap(), wanted);
            }
        });
    }
}
