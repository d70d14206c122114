//! What is particular about etcd: reaching it, being let in, losing it and finding it again.

#![allow(clippy::unwrap_used, reason = "test code")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use calico_datastore::syncer::Batch;
use calico_datastore::{
    Backend, CalicoApiConfig, DedupeBuffer, EtcdOptions, EtcdRaw, Fallback, ResourceSource, Store,
    StoreError, Surroundings, Syncer, Watch, WatchEvent, connect,
};
use calico_model::ipam::IpamHandle;
use calico_model::{Key, KvPair, ListOptions, SyncStatus, Value};
use calico_testkit::etcd::{Etcd, Settings, certificates, free_port};

const DEADLINE: Duration = Duration::from_secs(30);

fn handle(name: &str, count: u64) -> KvPair {
    let mut handle = IpamHandle::default();
    handle.block.insert("10.0.0.0/26".into(), count);
    KvPair::new(Key::IpamHandle(name.into()), Value::IpamHandle(handle.into()))
}

fn store(options: EtcdOptions) -> Store<EtcdRaw> {
    Store::new(EtcdRaw::new(options, "because the test says so").unwrap())
}

async fn next(watch: &mut Watch) -> WatchEvent {
    tokio::time::timeout(DEADLINE, watch.next()).await.expect("an event in time").expect("no end")
}

fn unreachable(result: Result<KvPair, StoreError>) -> String {
    match result {
        Err(error @ StoreError::Unreachable { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn nobody_there_is_said_at_once_with_address_and_reason() {
    let port = free_port();
    let nobody =
        store(EtcdOptions::new([format!("http://127.0.0.1:{port}"), format!("http://[::1]:{port}")]));
    let error = unreachable(nobody.get(&Key::IpamConfig, None).await);
    assert!(error.starts_with(&format!(
        "cannot reach the datastore etcd (http://127.0.0.1:{port},http://[::1]:{port}; because the test says so): "
    )));
    assert!(error.contains(&format!("http://127.0.0.1:{port}: ")) && error.contains("refused"), "{error}");
    assert!(error.contains(&format!("http://[::1]:{port}: ")), "{error}");
    assert!(unreachable(nobody.create(handle("a", 1)).await).contains("refused"));
    assert!(matches!(nobody.watch(&ListOptions::Handles, None).await, Err(StoreError::Unreachable { .. })));
    let unknown = store(EtcdOptions::new(["http://does-not-exist.invalid:2379"]));
    let error = unreachable(unknown.get(&Key::IpamConfig, None).await);
    assert!(error.contains("cannot resolve does-not-exist.invalid"), "{error}");
}

#[tokio::test]
async fn somebody_who_never_answers_is_given_up() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", silent.local_addr().unwrap());
    for user in [None, Some(("u".to_owned(), "p".to_owned()))] {
        let store = store(EtcdOptions {
            timeout: Duration::from_millis(300),
            user,
            ..EtcdOptions::new([endpoint.clone()])
        });
        let error = unreachable(store.get(&Key::IpamConfig, None).await);
        assert!(error.ends_with(&format!("{endpoint}: no answer within 0.3 s")), "{error}");
        unreachable(store.create(handle("a", 1)).await);
    }
}

#[tokio::test]
async fn addresses_that_are_none() {
    for endpoint in ["", "http://", "http://a b:1", "http://a:1/path"] {
        let error = EtcdRaw::new(EtcdOptions::new([endpoint]), "").unwrap_err();
        assert!(matches!(error, StoreError::Config(_)), "{endpoint}: {error}");
    }
    assert!(EtcdRaw::new(EtcdOptions::new([""; 0]), "").is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn users_are_let_in_and_others_are_not() {
    let Some(etcd) = Etcd::start(Settings { auth: true, ..Settings::default() }).await else { return };
    let calico = store(etcd.options());
    let made = calico.create(handle("a", 1)).await.unwrap();
    assert_eq!(calico.get(&made.key, None).await.unwrap(), made);
    let mut watch = calico.watch(&ListOptions::Handles, None).await.unwrap();
    assert_eq!(next(&mut watch).await, WatchEvent::Added(made.clone()));
    let wrong = EtcdOptions { user: Some(("calico".into(), "wrong".into())), ..etcd.options() };
    let nobody = EtcdOptions { user: None, ..etcd.options() };
    for options in [wrong, nobody] {
        let error = store(options).get(&made.key, None).await.unwrap_err();
        assert!(matches!(error, StoreError::Unauthorized(_)), "{error:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_by_the_document_by_both_families_and_refused() {
    let Some(etcd) = Etcd::start(Settings { tls: true, ..Settings::default() }).await else { return };
    let certs = etcd.certificates().unwrap().clone();
    let path = |name: &str, text: &str| etcd.file(name, text).to_string_lossy().into_owned();
    let files = CalicoApiConfig {
        // Without a scheme, which means TLS.
        etcd_endpoints: etcd.endpoint().replace("https://", ""),
        etcd_ca_cert_file: path("client-ca.pem", &certs.ca),
        etcd_cert_file: path("client.pem", &certs.client.0),
        etcd_key_file: path("client-key.pem", &certs.client.1),
        ..CalicoApiConfig::default()
    };
    let inline = CalicoApiConfig {
        etcd_endpoints: etcd.endpoint_v6(),
        etcd_ca_cert: certs.ca.clone(),
        etcd_cert: certs.client.0.clone(),
        etcd_key: certs.client.1.clone(),
        ..CalicoApiConfig::default()
    };
    let open = |mut config: CalicoApiConfig| {
        let choice = config.choose(Fallback::Never, &Surroundings::of_process()).unwrap();
        connect(&config, &choice).unwrap()
    };
    let named = CalicoApiConfig {
        etcd_endpoints: etcd.endpoint().replace("127.0.0.1", "localhost"),
        ..inline.clone()
    };
    for (name, config) in [("files", files.clone()), ("inline", inline.clone()), ("named", named)] {
        open(config).create(handle(name, 1)).await.unwrap();
    }
    let other = certificates();
    let cases = [
        CalicoApiConfig { etcd_ca_cert: other.ca.clone(), ..inline.clone() },
        CalicoApiConfig { etcd_ca_cert: String::new(), ..inline.clone() },
        CalicoApiConfig {
            etcd_cert: other.client.0.clone(),
            etcd_key: other.client.1.clone(),
            ..inline.clone()
        },
        CalicoApiConfig { etcd_cert_file: String::new(), etcd_key_file: String::new(), ..files.clone() },
        CalicoApiConfig { etcd_endpoints: etcd.endpoint().replace("https", "http"), ..files },
    ];
    for (number, config) in cases.into_iter().enumerate() {
        let endpoint = config.etcd_endpoints.clone();
        let error = unreachable(open(config).get(&Key::IpamConfig, None).await);
        assert!(
            error.contains(&endpoint) && error.contains("because etcdEndpoints are set"),
            "{number}: {error}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_server_is_passed_over() {
    let Some(etcd) = Etcd::start(Settings::default()).await else { return };
    let dead = format!("http://127.0.0.1:{}", free_port());
    let store = store(EtcdOptions::new([dead.clone(), etcd.endpoint(), dead]));
    for n in 0..20 {
        store.apply(handle("a", n)).await.unwrap();
    }
    let mut watch = store.watch(&ListOptions::Handles, None).await.unwrap();
    assert!(matches!(next(&mut watch).await, WatchEvent::Added(_)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_loses_no_event_and_delays_requests() {
    let Some(mut etcd) = Etcd::start(Settings::default()).await else { return };
    let store = store(etcd.options());
    let start = store.create(handle("n", 0)).await.unwrap();
    let mut watch = store.watch(&ListOptions::Handles, Some(&start.revision)).await.unwrap();
    let mut quiet = store.watch(&ListOptions::IpamConfig, Some(&start.revision)).await.unwrap();
    let mut count = 0;
    for _ in 0..3 {
        for _ in 0..10 {
            count += 1;
            store.apply(handle("n", count)).await.unwrap();
        }
        etcd.kill();
        // Asked while nobody is there, answered when somebody is.
        let reader = store.raw().clone();
        let waiting = tokio::spawn(async move {
            Store::new((*reader).clone()).get(&Key::IpamHandle("n".into()), None).await
        });
        etcd.run().await;
        let read = waiting.await.unwrap().unwrap();
        assert_eq!(read.value, handle("n", count).value);
    }
    for n in 1..=count {
        match next(&mut watch).await {
            WatchEvent::Modified { new, old } => {
                assert_eq!(new.value, handle("n", n).value);
                assert_eq!(old.unwrap().value, handle("n", n - 1).value);
            }
            other => panic!("{other:?}"),
        }
    }
    let config = KvPair::new(Key::IpamConfig, Value::IpamConfig(Default::default()));
    let made = store.create(config).await.unwrap();
    assert_eq!(next(&mut quiet).await, WatchEvent::Added(made));
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_during_a_restart_are_never_done_twice() {
    let Some(mut etcd) = Etcd::start(Settings::default()).await else { return };
    let store = Arc::new(store(etcd.options()));
    let first = store.create(handle("n", 0)).await.unwrap();
    let mut watch = store.watch(&ListOptions::Handles, Some(&first.revision)).await.unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let writer = tokio::spawn({
        let (store, stop) = (store.clone(), stop.clone());
        async move {
            let mut count = 0;
            while !stop.load(Ordering::Relaxed) {
                match store.apply(handle("n", count + 1)).await {
                    Ok(_) => count += 1,
                    // It may have happened: the next write is the same one again.
                    Err(StoreError::Unreachable { .. }) => {}
                    Err(other) => panic!("{other}"),
                }
            }
            store.apply(handle("end", 0)).await.unwrap();
            count
        }
    });
    for _ in 0..3 {
        etcd.kill();
        etcd.run().await;
    }
    stop.store(true, Ordering::Relaxed);
    let count = writer.await.unwrap();
    let mut seen = Vec::new();
    loop {
        match next(&mut watch).await {
            WatchEvent::Modified { new, .. } => seen.push(new.value.unwrap()),
            WatchEvent::Added(_) => break,
            other => panic!("{other:?}"),
        }
    }
    seen.dedup();
    let wanted: Vec<Value> = (1..=count).map(|n| handle("n", n).value.unwrap()).collect();
    // The last write may have failed and have happened.
    assert!(seen == wanted || seen[..seen.len() - 1] == wanted[..], "{} {}", seen.len(), wanted.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn other_data_on_the_same_address_end_a_watch() {
    let Some(mut etcd) = Etcd::start(Settings::default()).await else { return };
    let store = store(etcd.options());
    for n in 0..20 {
        store.apply(handle("n", n)).await.unwrap();
    }
    let list = store.list(&ListOptions::Handles, None).await.unwrap();
    let mut watch = store.watch(&ListOptions::Handles, Some(&list.revision)).await.unwrap();
    etcd.kill();
    etcd.forget();
    etcd.run().await;
    assert!(matches!(next(&mut watch).await, WatchEvent::Error(StoreError::Compacted { .. })));
    assert!(watch.next().await.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_syncer_stays_in_sync_over_restarts_and_new_data() {
    let Some(mut etcd) = Etcd::start(Settings::default()).await else { return };
    let backend: Arc<dyn Backend> = Arc::new(store(etcd.options()));
    backend.apply(handle("old", 1)).await.unwrap();
    let buffer = DedupeBuffer::new();
    let sources =
        vec![ResourceSource::raw(ListOptions::Handles), ResourceSource::raw(ListOptions::IpamConfig)];
    let _syncer = Syncer::new(backend.clone(), sources, buffer.clone()).start();
    let mut mirror: BTreeMap<Key, KvPair> = BTreeMap::new();
    let mut statuses = Vec::new();
    // Follows the stream until `name` has `wanted`.
    let mut follow = async |name: &str, wanted: Option<KvPair>| {
        let key = Key::IpamHandle(name.into());
        while mirror.get(&key).map(|kv| &kv.value) != wanted.as_ref().map(|kv| &kv.value) {
            match tokio::time::timeout(DEADLINE, buffer.next()).await.expect("a change in time") {
                Some(Batch::Status(status)) => statuses.push(status),
                Some(Batch::Updates(updates)) => {
                    for update in updates {
                        match update.kv.value {
                            Some(_) => mirror.insert(update.kv.key.clone(), update.kv),
                            None => mirror.remove(&update.kv.key),
                        };
                    }
                }
                None => panic!("the stream ended"),
            }
        }
        (mirror.clone(), statuses.clone())
    };
    follow("old", Some(handle("old", 1))).await;
    for round in 0..3 {
        etcd.kill();
        etcd.run().await;
        backend.apply(handle("n", round)).await.unwrap();
        follow("n", Some(handle("n", round))).await;
    }
    etcd.kill();
    etcd.forget();
    etcd.run().await;
    for n in 0..3 {
        backend.apply(handle("fresh", n)).await.unwrap();
    }
    follow("old", None).await;
    let (mirror, statuses) = follow("fresh", Some(handle("fresh", 2))).await;
    assert_eq!(
        mirror.into_values().collect::<Vec<_>>(),
        backend.list(&ListOptions::Handles, None).await.unwrap().items
    );
    let waits = statuses.iter().filter(|status| **status == SyncStatus::WaitForDatastore).count();
    assert!(waits <= 1, "{statuses:?}");
}
