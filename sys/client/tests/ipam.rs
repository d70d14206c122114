//! Addresses on real stores: many clients at once, of both forms, on memory, SQLite and etcd.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use calico_api::{IPPool, Kind, Node};
use calico_client::ipam::{
    AssignArgs, Assignments, AutoAssignArgs, Form, IpamClient, IpamError, Owner, ReleaseOptions,
};
use calico_datastore::{
    Backend, EtcdRaw, MemoryRaw, RawStore, RawTxn, RawWrite, SqliteOptions, SqliteRaw, Store, StoreError,
};
use calico_model::ipam::AffinityState;
use calico_model::{AffinityType, Key, KvPair, ListOptions, Value};
use calico_net::Cidr;
use calico_testkit::etcd::{Etcd, Settings};

/// Clients of one cluster's hosts.
#[derive(Clone)]
struct Cluster {
    backend: Arc<dyn Backend>,
}

impl Cluster {
    async fn new(backend: Arc<dyn Backend>, hosts: usize, pools: &[(&str, i64)]) -> Self {
        backend.ensure_initialized().await.unwrap();
        for i in 0..hosts {
            let mut node = Node::default();
            node.metadata.name = host(i);
            let key = Key::resource(Kind::Node, "", host(i));
            backend.create(KvPair::new(key, Value::resource(node))).await.unwrap();
        }
        for (i, (cidr, block)) in pools.iter().enumerate() {
            let mut pool = IPPool::default();
            pool.metadata.name = format!("pool{i}");
            pool.spec.cidr = (*cidr).to_owned();
            pool.spec.block_size = *block;
            let key = Key::resource(Kind::IPPool, "", pool.metadata.name.clone());
            backend.create(KvPair::new(key, Value::resource(pool))).await.unwrap();
        }
        Self { backend }
    }

    /// The client of host `i`; every second one goes step by step.
    fn client(&self, i: usize) -> IpamClient {
        let form = if i % 2 == 1 { Form::Steps } else { Form::Best };
        IpamClient::new(self.backend.clone()).with_host(host(i)).with_form(form)
    }

    async fn list(&self, options: ListOptions) -> Vec<KvPair> {
        self.backend.list(&options, None).await.unwrap().items
    }
}

fn host(i: usize) -> String {
    format!("host-{i:02}")
}

fn wish(handle: String) -> AutoAssignArgs {
    AutoAssignArgs {
        num4: 1,
        handle: Some(handle.into()),
        intended_use: "Workload".into(),
        ..AutoAssignArgs::default()
    }
}

fn addresses(got: &Assignments) -> Vec<IpAddr> {
    got.ips.iter().map(Cidr::addr).collect()
}

/// Runs the body on each store, with nodes and pools in it.
async fn on_every_store<F: Future<Output = ()>>(
    hosts: usize,
    pools: &[(&str, i64)],
    body: impl Fn(Cluster) -> F,
) {
    body(Cluster::new(Arc::new(Store::new(MemoryRaw::new())), hosts, pools).await).await;
    let folder = tempfile::tempdir().unwrap();
    let sqlite = SqliteRaw::new(&folder.path().join("store.db"), "a test", SqliteOptions::default());
    let sqlite: Arc<dyn Backend> = Arc::new(Store::new(sqlite));
    body(Cluster::new(sqlite.clone(), hosts, pools).await).await;
    sqlite.close().await;
    if let Some(etcd) = Etcd::start(Settings::default()).await {
        let raw = EtcdRaw::new(etcd.options(), "a test").unwrap();
        body(Cluster::new(Arc::new(Store::new(raw)), hosts, pools).await).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_hosts_at_once_share_a_pool() {
    on_every_store(12, &[("10.0.0.0/22", 28), ("fd00::/112", 122)], |cluster| async move {
        let mut tasks = Vec::new();
        for i in 0..12 {
            let client = cluster.client(i);
            tasks.push(tokio::spawn(async move {
                let mut ips = Vec::new();
                for j in 0..20 {
                    let both = AutoAssignArgs { num6: u32::from(j % 4 == 0), ..wish(format!("net.{i}-{j}")) };
                    let got = client.auto_assign(both).await;
                    assert!(got.error.is_none(), "{:?}", got.error);
                    ips.extend(got.v4.iter().chain(&got.v6).flat_map(addresses));
                }
                ips
            }));
        }
        let mut all = Vec::new();
        for task in tasks {
            all.extend(task.await.unwrap());
        }
        assert_eq!(all.len(), 12 * 25);
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len(), "no address twice");
        let mut tasks = Vec::new();
        for i in 0..12 {
            let client = cluster.client(i + 1);
            tasks.push(tokio::spawn(async move {
                for j in 0..20 {
                    client.release_by_handle(&format!("net.{i}-{j}")).await.unwrap();
                }
                client.remove_host(Owner::host(host(i))).await.unwrap();
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
        for left in [ListOptions::Blocks { version: None }, ListOptions::Handles] {
            assert_eq!(cluster.list(left).await, []);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_hosts_than_blocks() {
    on_every_store(32, &[("10.0.0.0/22", 26)], |cluster| async move {
        let tasks: Vec<_> = (0..32)
            .map(|i| {
                let client = cluster.client(i);
                tokio::spawn(async move { client.auto_assign(wish(format!("net.{i}"))).await })
            })
            .collect();
        let mut ips = BTreeSet::new();
        for task in tasks {
            let got = task.await.unwrap();
            assert!(got.error.is_none(), "{:?}", got.error);
            ips.extend(got.v4.iter().flat_map(addresses));
        }
        assert_eq!(ips.len(), 32);
        let rows = ListOptions::BlockAffinities { affinity: AffinityType::Host, owner: None, version: None };
        let confirmed = |kv: &KvPair| {
            matches!(&kv.value, Some(Value::BlockAffinity(a)) if a.state == Some(AffinityState::Confirmed))
        };
        let rows = cluster.list(rows).await;
        assert_eq!((rows.len(), rows.iter().filter(|kv| confirmed(kv)).count()), (16, 16));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_processes_of_one_host() {
    on_every_store(1, &[("10.0.0.0/24", 26)], |cluster| async move {
        // A client each, as processes have.
        let tasks: Vec<_> = (0..16)
            .map(|i| {
                let client = cluster.client(i).with_host(host(0));
                tokio::spawn(async move { client.auto_assign(wish(format!("net.{i}"))).await })
            })
            .collect();
        let mut ips = BTreeSet::new();
        for task in tasks {
            let got = task.await.unwrap();
            assert!(got.error.is_none(), "{:?}", got.error);
            ips.extend(got.v4.iter().flat_map(addresses));
        }
        assert_eq!(ips.len(), 16);
        // One client for many tasks: one after the other, so in one block.
        let client = cluster.client(0).with_host(host(0));
        let tasks: Vec<_> = (0..16)
            .map(|i| {
                let client = client.clone();
                tokio::spawn(async move { client.auto_assign(wish(format!("task.{i}"))).await })
            })
            .collect();
        for task in tasks {
            assert_eq!(task.await.unwrap().v4.unwrap().ips.len(), 1);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_address_and_what_is_known_of_it() {
    on_every_store(2, &[("10.0.0.0/24", 26)], |cluster| async move {
        for i in 0..2 {
            let client = cluster.client(i);
            let ip: IpAddr = "10.0.0.77".parse().unwrap();
            let mut args = AssignArgs { handle: Some("net.pod".into()), ..AssignArgs::new(ip, "") };
            args.attributes.insert("node".into(), host(i).into());
            client.assign_ip(args.clone()).await.unwrap();
            assert!(matches!(client.assign_ip(args).await, Err(IpamError::AlreadyAssigned { .. })));
            let found = client.get_assignment(ip).await.unwrap();
            assert_eq!(found.attribute.active_owner_attrs["node"], host(i));
            assert_eq!(client.ips_by_handle("net.pod").await.unwrap(), [ip]);
            let full = client.utilization(Vec::new()).await.unwrap();
            assert_eq!((full[0].in_use, full[0].available), (1, 255));
            let wrong = ReleaseOptions { handle: "other".into(), ..ReleaseOptions::address(ip) };
            let error = client.release_ips(vec![wrong]).await.into_result().unwrap_err();
            assert_eq!(error.to_string(), "update conflict: 10.0.0.77");
            let right = ReleaseOptions { sequence: Some(found.sequence), ..ReleaseOptions::address(ip) };
            assert_eq!(client.release_ips(vec![right]).await.into_result().unwrap(), [] as [IpAddr; 0]);
            assert!(client.get_assignment(ip).await.unwrap_err().is_not_found());
            assert!(client.release_by_handle("net.pod").await.unwrap_err().is_not_found());
        }
    })
    .await;
}

#[tokio::test]
async fn a_block_that_cannot_be_read_stops_nobody() {
    let raw = MemoryRaw::new();
    let cluster = Cluster::new(Arc::new(Store::new(raw.clone())), 2, &[("10.0.0.0/29", 30)]).await;
    for i in 0..2 {
        let client = cluster.client(i);
        client.claim_affinity("10.0.0.0/30".parse().unwrap(), Owner::host(host(i))).await.unwrap();
        let path = Key::Block("10.0.0.0/30".parse().unwrap()).to_path();
        let broken = RawWrite::Put { path, value: b"{oops".to_vec(), ttl: None };
        let writes = vec![broken.clone()];
        raw.commit(RawTxn { writes, ..RawTxn::default() }).await.unwrap();
        let got = client.auto_assign(wish("net.pod".to_owned())).await;
        assert!(got.error.is_none(), "{:?}", got.error);
        assert_eq!(addresses(&got.v4.unwrap()), ["10.0.0.4".parse::<IpAddr>().unwrap()]);
        let named = client.assign_ip(AssignArgs::new("10.0.0.1".parse().unwrap(), "")).await.unwrap_err();
        let IpamError::Store(failure) = &named else { panic!("{named}") };
        assert!(matches!(failure.downcast_ref(), Some(StoreError::Parse { .. })), "{named}");
        client.release_by_handle("net.pod").await.unwrap();
        client.remove_host(Owner::host(host(i))).await.unwrap_err();
        let writes = vec![RawWrite::Delete(broken.path().to_owned())];
        raw.commit(RawTxn { writes, ..RawTxn::default() }).await.unwrap();
        client.remove_host(Owner::host(host(i))).await.unwrap();
    }
}

#[tokio::test]
async fn a_closed_store_is_an_error_that_keeps_its_kind() {
    let cluster = Cluster::new(Arc::new(Store::new(MemoryRaw::new())), 1, &[("10.0.0.0/24", 26)]).await;
    let client = cluster.client(0);
    cluster.backend.close().await;
    let got = client.auto_assign(wish("net.pod".to_owned())).await;
    let Some(IpamError::Store(failure)) = got.error else { panic!("{:?}", got.error) };
    assert!(failure.downcast_ref::<StoreError>().is_some());
    assert!(got.v4.is_none());
}
