use std::io::Write as _;
use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::raw::{RawCondition, RawWrite};

fn store(directory: &Path) -> SqliteRaw {
    SqliteRaw::new(&directory.join("x.db"), "for a test", SqliteOptions::default())
}

fn put(path: &str, value: &str) -> RawTxn {
    let write = RawWrite::Put { path: path.into(), value: value.into(), ttl: None };
    RawTxn { writes: vec![write], ..RawTxn::default() }
}

async fn reason(store: &SqliteRaw) -> String {
    match store.get(&["/a".into()], None).await {
        Err(StoreError::Unreachable { store: name, reason }) => {
            assert!(name.contains("x.db") && name.contains("for a test"), "{name}");
            assert!(reason.contains("x.db"), "{reason}");
            reason
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn faulty_files_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.db");
    assert!(reason(&store(directory.path())).await.contains("does not exist"));
    let missing = SqliteRaw::new(&directory.path().join("none/x.db"), "for a test", SqliteOptions::default());
    assert!(reason(&missing).await.contains("does not exist"));
    let error = missing.commit(put("/a", "1")).await.unwrap_err();
    assert!(error.to_string().contains("none/x.db"), "{error}");

    std::fs::File::create(&path).unwrap();
    assert!(reason(&store(directory.path())).await.contains("does not exist"));
    std::fs::write(&path, "no database at all, but long enough to be looked at".repeat(100)).unwrap();
    assert!(reason(&store(directory.path())).await.contains("is not a database"));
    assert!(store(directory.path()).initialize().await.is_err());

    std::fs::remove_file(&path).unwrap();
    Connection::open(&path).unwrap().execute_batch("CREATE TABLE theirs (a)").unwrap();
    assert!(reason(&store(directory.path())).await.contains("of another program"));
    assert!(store(directory.path()).initialize().await.is_err());

    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    assert!(reason(&store(directory.path())).await.contains("cannot be opened"));
    std::fs::remove_dir(&path).unwrap();

    store(directory.path()).initialize().await.unwrap();
    Connection::open(&path).unwrap().pragma_update(None, "user_version", 99).unwrap();
    assert!(reason(&store(directory.path())).await.contains("newer version of this program (format 99"));
}

#[tokio::test]
async fn damage_is_reported_and_nothing_panics() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.db");
    let first = store(directory.path());
    first.initialize().await.unwrap();
    for n in 0..200 {
        first.commit(put(&format!("/key/{n}"), &"x".repeat(500))).await.unwrap();
    }
    first.close().await;
    drop(first);
    Connection::open(&path).unwrap().query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    let mut file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    std::io::Seek::seek(&mut file, std::io::SeekFrom::Start(4096)).unwrap();
    file.write_all(&vec![0xee; 100_000]).unwrap();
    drop(file);
    let damaged = store(directory.path());
    let range = KeyRange::Prefix("/key/".into());
    let error = damaged.range(&range, None).await.unwrap_err().to_string();
    assert!(error.contains("damaged") && error.contains("x.db"), "{error}");
    let error = damaged.commit(put("/key/1", "")).await.unwrap_err().to_string();
    assert!(error.contains("damaged") && error.contains("x.db"), "{error}");
}

#[test]
fn system_errors_are_put_in_words() {
    let files = Files::new(Path::new("/x.db"), "");
    let explain = |code| {
        let error = rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(code), None);
        files.explain(error.into()).to_string()
    };
    assert!(explain(rusqlite::ffi::SQLITE_FULL).ends_with("no space left for the database /x.db"));
    assert!(explain(rusqlite::ffi::SQLITE_READONLY).contains("/x.db or its directory cannot be written"));
    assert!(explain(rusqlite::ffi::SQLITE_BUSY).contains("another program keeps the database /x.db locked"));
}

#[tokio::test]
async fn files_are_private_and_initialising_again_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let one = store(directory.path());
    one.initialize().await.unwrap();
    one.commit(put("/a", "1")).await.unwrap();
    let two = store(directory.path());
    two.initialize().await.unwrap();
    let (read, _) = two.get(&["/a".into()], None).await.unwrap();
    assert_eq!(read[0].as_ref().unwrap().value, b"1");
    for name in ["x.db", "x.db-wal", "x.db-shm", "x.db.lock", "x.db.notify"] {
        let mode = std::fs::metadata(directory.path().join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
}

#[tokio::test]
async fn two_at_once_may_initialise() {
    let directory = tempfile::tempdir().unwrap();
    let tasks: Vec<_> = (0..8)
        .map(|n| {
            let store = store(directory.path());
            tokio::spawn(async move {
                store.initialize().await.unwrap();
                store.commit(put(&format!("/{n}"), "")).await.unwrap();
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let all = store(directory.path()).range(&KeyRange::Prefix("/".into()), None).await.unwrap();
    assert_eq!((all.0.len(), all.1), (8, 9));
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_of_one_group_keep_their_own_results() {
    let directory = tempfile::tempdir().unwrap();
    let store = store(directory.path());
    store.initialize().await.unwrap();
    // Everything that is sent while the turn is taken is committed together.
    let turn = store.inner.files.lock_writers().unwrap();
    let mut tasks = Vec::new();
    for n in 0..100 {
        let store = store.clone();
        tasks.push(tokio::spawn(async move {
            let mut txn = put("/same", &n.to_string());
            txn.conditions.push(RawCondition::Absent("/same".into()));
            let first = store.commit(txn).await.unwrap();
            let second = store.commit(put(&format!("/own/{n}"), "")).await.unwrap();
            (first, second)
        }));
    }
    drop(turn);
    let mut revisions = std::collections::BTreeSet::new();
    let mut winners = 0;
    for task in tasks {
        let (first, second) = task.await.unwrap();
        match first {
            RawOutcome::Committed { revision, .. } => {
                winners += 1;
                revisions.insert(revision);
            }
            RawOutcome::Conflict { .. } => {}
        }
        let RawOutcome::Committed { revision, .. } = second else { panic!("conflict") };
        revisions.insert(revision);
    }
    assert_eq!(winners, 1);
    assert_eq!(revisions.into_iter().collect::<Vec<_>>(), (2..=102).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn one_bad_request_does_not_spoil_its_group() {
    let directory = tempfile::tempdir().unwrap();
    let store = store(directory.path());
    store.initialize().await.unwrap();
    let refuse = "CREATE TRIGGER refuse BEFORE INSERT ON entries WHEN new.path = '/bad'
                  BEGIN SELECT RAISE(ABORT, 'no'); END";
    Connection::open(store.path()).unwrap().execute_batch(refuse).unwrap();
    let turn = store.inner.files.lock_writers().unwrap();
    let good: Vec<_> = (0..10)
        .map(|n| {
            let store = store.clone();
            tokio::spawn(async move { store.commit(put(&format!("/{n}"), "")).await })
        })
        .collect();
    let bad = {
        let store = store.clone();
        tokio::spawn(async move { store.commit(put("/bad", "")).await })
    };
    drop(turn);
    assert!(bad.await.unwrap().is_err());
    for task in good {
        assert!(matches!(task.await.unwrap(), Ok(RawOutcome::Committed { .. })));
    }
}

#[tokio::test]
async fn old_changes_go_by_number_and_by_age() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.db");
    let kept = |store: &SqliteRaw| {
        let inner = Arc::clone(&store.inner);
        inner
            .read(|db| Ok(db.query_row("SELECT count(*) FROM changes", [], |row| row.get::<_, u64>(0))?))
            .unwrap()
    };
    let options = SqliteOptions { keep_revisions: 300, ..SqliteOptions::default() };
    let store = SqliteRaw::new(&path, "", options);
    store.initialize().await.unwrap();
    let write = async |store: &SqliteRaw, count: u64| {
        let write = |n: u64| {
            let store = store.clone();
            tokio::spawn(async move { store.commit(put("/a", &n.to_string())).await })
        };
        let writes: Vec<_> = (0..count).map(write).collect();
        let mut last = 0;
        for write in writes {
            if let RawOutcome::Committed { revision, .. } = write.await.unwrap().unwrap() {
                last = last.max(revision);
            }
        }
        last
    };
    let last = write(&store, 3000).await;
    assert!((300..1500).contains(&kept(&store)), "{}", kept(&store));
    let past = store.get(&["/a".into()], Some(last - 200)).await.unwrap();
    assert_eq!(past.0[0].as_ref().unwrap().modified, last - 200);
    assert_eq!(store.get(&["/a".into()], Some(2)).await, Err(raw::compacted(2)));
    let old =
        SqliteRaw::new(&path, "", SqliteOptions { keep_age: Duration::ZERO, ..SqliteOptions::default() });
    write(&old, 2000).await;
    assert!(kept(&old) < 1100, "{}", kept(&old));
}

#[tokio::test]
async fn a_stream_that_fell_behind_ends_and_others_do_not() {
    let directory = tempfile::tempdir().unwrap();
    let store = store(directory.path());
    store.initialize().await.unwrap();
    let RawOutcome::Committed { revision, .. } = store.commit(put("/a/1", "")).await.unwrap() else {
        panic!()
    };
    let mut slow = store.watch(&KeyRange::Prefix("/a/".into()), revision).await.unwrap();
    let mut quiet = store.watch(&KeyRange::Prefix("/b/".into()), revision).await.unwrap();
    for n in 0..5 {
        store.commit(put(&format!("/a/{n}"), "")).await.unwrap();
    }
    store.compact(revision + 5).await.unwrap();
    store.commit(put("/b/1", "")).await.unwrap();
    assert_eq!(slow.next().await, Err(raw::compacted(revision)));
    // Depending on when the thread looked, this one either knows that it missed nothing or has to assume that it
    // did. It may not stay silent.
    match quiet.next().await {
        Ok(events) => assert_eq!(events.len(), 1),
        Err(error) => assert_eq!(error, raw::compacted(revision)),
    }
}

#[tokio::test]
async fn changes_are_seen_without_a_notify_file() {
    let directory = tempfile::tempdir().unwrap();
    let options = SqliteOptions { poll: Duration::from_millis(20), ..SqliteOptions::default() };
    let store = SqliteRaw::new(&directory.path().join("x.db"), "", options);
    store.initialize().await.unwrap();
    let mut events = store.watch(&KeyRange::Prefix("/".into()), 1).await.unwrap();
    store.commit(put("/a", "")).await.unwrap();
    assert_eq!(events.next().await.unwrap().len(), 1);
    // Another writer, which touches a file that nobody watches.
    std::fs::remove_file(directory.path().join("x.db.notify")).unwrap();
    let other = SqliteRaw::new(&directory.path().join("x.db"), "", options);
    other.commit(put("/b", "")).await.unwrap();
    assert_eq!(events.next().await.unwrap()[0].path, "/b");
}
