//! The contract suite on every backend.

use calico_datastore::{Backend, EtcdRaw, MemoryRaw, SqliteOptions, SqliteRaw, Store};
use calico_testkit::contract::{self, Subject};
use calico_testkit::etcd::{Etcd, Settings};

#[tokio::test(flavor = "multi_thread")]
async fn memory() {
    contract::run_all(async || Subject::new(Store::new(MemoryRaw::new()))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sqlite() {
    let directory = tempfile::tempdir().unwrap();
    contract::run_all(async || {
        let path = directory.path().join("sub/datastore.db");
        let store = Store::new(SqliteRaw::new(&path, "", SqliteOptions::default()));
        store.ensure_initialized().await.unwrap();
        Subject::new(store)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn etcd() {
    let Some(etcd) = Etcd::start(Settings::default()).await else { return };
    contract::run_all(async || Subject::new(Store::new(EtcdRaw::new(etcd.options(), "").unwrap()))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn etcd_with_tls() {
    let Some(etcd) = Etcd::start(Settings { tls: true, ..Settings::default() }).await else { return };
    contract::run_all(async || Subject::new(Store::new(EtcdRaw::new(etcd.options(), "").unwrap()))).await;
}
