//! Several processes on one SQLite file: this test binary starts itself as writer.

#![allow(clippy::unwrap_used, reason = "test code")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use calico_datastore::{
    Backend, SqliteOptions, SqliteRaw, SqliteStore, Store, StoreError, Txn, TxnOutcome, Watch, WatchEvent,
    Write,
};
use calico_model::ipam::IpamHandle;
use calico_model::{Key, KvPair, ListOptions, Value};

const DEADLINE: Duration = Duration::from_secs(60);

/// Tells a child what to do: `JOB NAME COUNT`.
const JOB: &str = "CALICO_TEST_JOB";
const DATABASE: &str = "CALICO_TEST_DATABASE";

fn handle(name: &str, count: u64) -> KvPair {
    let mut handle = IpamHandle::default();
    handle.block.insert("10.0.0.0/26".into(), count);
    KvPair::new(Key::IpamHandle(name.into()), Value::IpamHandle(handle.into()))
}

fn count(kv: &KvPair) -> u64 {
    match &kv.value {
        Some(Value::IpamHandle(handle)) => handle.block.values().sum(),
        other => panic!("no counter: {other:?}"),
    }
}

fn open(path: &Path) -> SqliteStore {
    Store::new(SqliteRaw::new(path, "", SqliteOptions::default()))
}

async fn next(watch: &mut Watch) -> WatchEvent {
    tokio::time::timeout(DEADLINE, watch.next()).await.expect("an event in time").expect("no end")
}

fn spawn(path: &Path, job: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--ignored", "--nocapture", "--test-threads=1"])
        .env(JOB, job)
        .env(DATABASE, path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

fn finish(mut child: Child) {
    assert!(child.wait().unwrap().success());
}

/// The other side of the tests below.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "started by the other tests"]
async fn child() {
    let Ok(job) = std::env::var(JOB) else { return };
    let store = open(Path::new(&std::env::var(DATABASE).unwrap()));
    let words: Vec<&str> = job.split(' ').collect();
    let (name, wanted) = (words[1], words[2].parse::<u64>().unwrap());
    match words[0] {
        "apply" => {
            for n in 1..=wanted {
                store.apply(handle(name, n)).await.unwrap();
            }
        }
        "increment" => {
            let key = Key::IpamHandle(name.into());
            for _ in 0..wanted {
                loop {
                    let now = store.get(&key, None).await.unwrap();
                    match store.update(handle(name, count(&now) + 1).at(now.revision)).await {
                        Ok(_) => break,
                        Err(StoreError::UpdateConflict { .. }) => {}
                        Err(other) => panic!("{other}"),
                    }
                }
            }
        }
        "triples" => {
            for n in wanted.. {
                let writes = ["a", "b", "c"].map(|x| Write::Put(handle(&format!("{name}-{x}"), n))).into();
                store.transactions().unwrap().commit(Txn { conditions: vec![], writes }).await.unwrap();
                writeln!(std::io::stdout(), "wrote {n}").unwrap();
            }
        }
        other => panic!("{other}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_of_other_processes_come_once_and_in_order() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.db");
    let store = open(&path);
    store.ensure_initialized().await.unwrap();
    let start = store.create(handle("start", 0)).await.unwrap();
    let mut watch = store.watch(&ListOptions::Handles, Some(&start.revision)).await.unwrap();
    let children: Vec<_> =
        ["a", "b", "c"].iter().map(|name| spawn(&path, &format!("apply {name} 300"))).collect();
    for n in 1..=300 {
        store.apply(handle("own", n)).await.unwrap();
    }
    let mut last: BTreeMap<String, u64> = BTreeMap::new();
    let mut revision = start.revision.as_u64().unwrap();
    for _ in 0..1200 {
        let kv = match next(&mut watch).await {
            WatchEvent::Added(kv) | WatchEvent::Modified { new: kv, .. } => kv,
            other => panic!("{other:?}"),
        };
        revision += 1;
        assert_eq!(kv.revision.as_u64(), Some(revision));
        let before = last.insert(kv.key.to_path(), count(&kv));
        assert_eq!(before.unwrap_or(0) + 1, count(&kv));
    }
    children.into_iter().for_each(finish);
    // Nothing further: the next event is that of the next write.
    let end = store.create(handle("end", 1)).await.unwrap();
    assert_eq!(next(&mut watch).await, WatchEvent::Added(end));
}

#[tokio::test(flavor = "multi_thread")]
async fn updates_of_several_processes_lose_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.db");
    let store = open(&path);
    store.ensure_initialized().await.unwrap();
    store.create(handle("n", 0)).await.unwrap();
    let children: Vec<_> = (0..4).map(|_| spawn(&path, "increment n 50")).collect();
    children.into_iter().for_each(finish);
    let end = store.get(&Key::IpamHandle("n".into()), None).await.unwrap();
    assert_eq!(count(&end), 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_writer_leaves_nothing_half_written_and_loses_nothing_promised() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.db");
    let store = open(&path);
    store.ensure_initialized().await.unwrap();
    let mut promised = 0;
    for round in 0..12 {
        let mut child = spawn(&path, &format!("triples n {}", promised + 1));
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut seen = 0;
        for line in lines {
            // Other lines come from the test harness.
            if let Some(n) = line.unwrap().strip_prefix("wrote ") {
                promised = n.parse().unwrap();
                seen += 1;
                // At another moment each time, with a write under way.
                if seen == 3 + round * 2 {
                    child.kill().unwrap();
                }
            }
        }
        child.wait().unwrap();
        let keys = ["n-a", "n-b", "n-c"].map(|name| Key::IpamHandle(name.into()));
        let (read, _) = store.transactions().unwrap().get_many(&keys).await.unwrap();
        let counts: Vec<u64> = read.iter().map(|kv| count(kv.as_ref().unwrap())).collect();
        assert!(counts.iter().all(|n| *n == counts[0]), "{counts:?}");
        // One more than promised may be there: the promise was cut short.
        assert!(counts[0] >= promised, "{counts:?} {promised}");
        promised = counts[0];
        // The next writer does not wait for the dead one.
        tokio::time::timeout(DEADLINE, store.apply(handle("next", round))).await.expect("a turn").unwrap();
    }
    let writes = vec![Write::Put(handle("after", 1))];
    let outcome = store.transactions().unwrap().commit(Txn { conditions: vec![], writes }).await.unwrap();
    assert!(matches!(outcome, TxnOutcome::Committed(_)));
}
