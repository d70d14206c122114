//! Figures of the stores, printed. Run with `--release --ignored --nocapture`.

#![allow(clippy::unwrap_used, reason = "test code")]

use std::io::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use calico_datastore::{Backend, EtcdRaw, SqliteOptions, SqliteRaw, Store, WatchEvent};
use calico_model::ipam::IpamHandle;
use calico_model::{Key, KvPair, ListOptions, Value};
use calico_testkit::etcd::{Etcd, Settings};

fn handle(name: &str, count: u64) -> KvPair {
    let mut handle = IpamHandle::default();
    handle.block.insert("10.0.0.0/26".into(), count);
    KvPair::new(Key::IpamHandle(name.into()), Value::IpamHandle(handle.into()))
}

fn print(line: &str) {
    std::io::stderr().write_all(line.as_bytes()).unwrap();
}

fn say(what: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let (half, most) = (times[times.len() / 2], times[times.len() * 95 / 100]);
    print(&format!("{what}: p50 {half:?}, p95 {most:?} of {}\n", times.len()));
}

async fn measure(name: &str, store: Arc<dyn Backend>) {
    let mut times = Vec::new();
    for n in 0..500 {
        let started = Instant::now();
        store.apply(handle(&format!("h{n}"), 1)).await.unwrap();
        times.push(started.elapsed());
    }
    say(&format!("{name}: one write"), times);
    let mut times = Vec::new();
    for n in 0..500 {
        let started = Instant::now();
        store.get(&handle(&format!("h{n}"), 1).key, None).await.unwrap();
        times.push(started.elapsed());
    }
    say(&format!("{name}: one read"), times);
    let started = Instant::now();
    let list = store.list(&ListOptions::Handles, None).await.unwrap();
    say(&format!("{name}: list of {}", list.items.len()), vec![started.elapsed()]);
    let mut watch = store.watch(&ListOptions::Handles, Some(&list.revision)).await.unwrap();
    let mut times = Vec::new();
    for n in 0..200 {
        let started = Instant::now();
        store.apply(handle("watched", n)).await.unwrap();
        let event = watch.next().await.unwrap();
        assert!(matches!(event, WatchEvent::Added(_) | WatchEvent::Modified { .. }));
        times.push(started.elapsed());
    }
    say(&format!("{name}: write until the watch has it"), times);
    for writers in [4, 16, 64] {
        let started = Instant::now();
        let tasks: Vec<_> = (0..writers)
            .map(|writer| {
                let store = store.clone();
                tokio::spawn(async move {
                    for n in 0..50 {
                        store.apply(handle(&format!("w{writer}"), n)).await.unwrap();
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        let rate = f64::from(writers * 50) / started.elapsed().as_secs_f64();
        print(&format!("{name}: {writers} writers: {rate:.0} writes/s\n"));
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "prints figures"]
async fn sqlite() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.db");
    let open = || Store::new(SqliteRaw::new(&path, "", SqliteOptions::default()));
    let store = open();
    store.ensure_initialized().await.unwrap();
    let warm_up = || async {
        for n in 0..2000 {
            store.apply(handle(&format!("h{n}"), 1)).await.unwrap();
        }
    };
    warm_up().await;
    let mut times = Vec::new();
    for _ in 0..200 {
        let started = Instant::now();
        let other = open();
        other.get(&handle("h1", 1).key, None).await.unwrap();
        times.push(started.elapsed());
        other.close().await;
    }
    say("sqlite: open and read, while others have it open", times);
    drop(store);
    let (mut opens, mut writes, mut closes) = (Vec::new(), Vec::new(), Vec::new());
    for n in 0..100 {
        let started = Instant::now();
        let other = open();
        other.get(&handle("h1", 1).key, None).await.unwrap();
        opens.push(started.elapsed());
        let started = Instant::now();
        other.apply(handle("h1", n)).await.unwrap();
        writes.push(started.elapsed());
        let started = Instant::now();
        other.close().await;
        drop(other);
        closes.push(started.elapsed());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    say("sqlite: open and read, alone", opens);
    say("sqlite: first write after it", writes);
    say("sqlite: close", closes);
    measure("sqlite", Arc::new(open())).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "prints figures"]
async fn etcd() {
    let Some(etcd) = Etcd::start(Settings { durable: true, ..Settings::default() }).await else { return };
    measure("etcd", Arc::new(Store::new(EtcdRaw::new(etcd.options(), "").unwrap()))).await;
}
