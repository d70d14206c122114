//! The rules of the typed client, one body of tests for every store.

use std::sync::Arc;

use calico_api::{
    AnyResource, GlobalNetworkPolicy, IPPool, Kind, NetworkPolicy, Node, NodeBgpSpec, Profile, Resource as _,
    Tier, WorkloadEndpoint,
};
use calico_client::{Client, ClientError, DeleteOptions, Event, Select};
use calico_datastore::{Backend, MemoryRaw, SqliteOptions, SqliteRaw, Store, StoreError};

/// Runs the body on a client of each store.
fn on_every_store<F: Future<Output = ()>>(body: impl Fn(Client) -> F) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("runtime");
    runtime.block_on(async {
        let memory: Arc<dyn Backend> = Arc::new(Store::new(MemoryRaw::new()));
        let folder = tempfile::tempdir().expect("folder");
        let raw =
            SqliteRaw::new(&folder.path().join("store.db"), "the test says so", SqliteOptions::default());
        let sqlite: Arc<dyn Backend> = Arc::new(Store::new(raw));
        for backend in [memory, sqlite] {
            backend.ensure_initialized().await.expect("initialise");
            body(Client::from_backend(backend.clone())).await;
            backend.close().await;
        }
    });
}

fn object<R: calico_api::Resource>(yaml: &str) -> R {
    let value: serde_json::Value = serde_saphyr::from_str(yaml).expect("YAML");
    R::from_any(AnyResource::from_value_strict(R::KIND, &value).expect("object")).expect("kind")
}

fn policy(name: &str, spec: &str) -> NetworkPolicy {
    object(&format!("{{metadata: {{name: {name}, namespace: shop}}, spec: {{{spec}}}}}"))
}

fn pool(name: &str, spec: &str) -> IPPool {
    object(&format!("{{metadata: {{name: {name}}}, spec: {{{spec}}}}}"))
}

#[test]
fn initialising_twice_writes_once_and_racing_callers_agree() {
    on_every_store(|client| async move {
        let racing: Vec<_> = (0..4)
            .map(|_| {
                let client = client.clone();
                tokio::spawn(async move { client.ensure_initialized("v0.1.0", "lab").await })
            })
            .collect();
        for task in racing {
            task.await.expect("task").expect("initialise");
        }
        let first = client.cluster_information().get("", "default").await.expect("information");
        assert_eq!(first.spec.cluster_guid.len(), 32);
        assert_eq!(first.spec.datastore_ready, Some(true));
        client.ensure_initialized("", "lab,bgp").await.expect("again");
        let second = client.cluster_information().get("", "default").await.expect("information");
        assert_eq!(second.spec.cluster_type, "lab,bgp");
        client.ensure_initialized("v0.1.0", "bgp").await.expect("unchanged");
        let third = client.cluster_information().get("", "default").await.expect("information");
        assert_eq!(third.metadata.resource_version, second.metadata.resource_version);
        let mut tiers: Vec<String> = client
            .tiers()
            .list(&Select::default())
            .await
            .expect("tiers")
            .items
            .into_iter()
            .map(|t| t.metadata.name)
            .collect();
        tiers.sort();
        assert_eq!(tiers, ["default", "kube-admin", "kube-baseline"]);
    });
}

#[test]
fn metadata_rules_have_upstreams_texts() {
    on_every_store(|client| async move {
        client.ensure_initialized("", "").await.expect("initialise");
        let text = |e: ClientError| e.to_string();
        let mut p = policy("p", "");
        p.metadata.name.clear();
        let error = client.network_policies().create(p.clone()).await.map_err(text);
        assert_eq!(
            error,
            Err("error with field Metadata.Name = '' (field must be set for a Create request)".into())
        );
        p.metadata.generate_name = "x-".into();
        let error = client.network_policies().create(p).await.map_err(text).unwrap_err();
        assert!(error.contains("GenerateName is not supported"), "{error}");
        let mut p = policy("p", "");
        p.metadata.resource_version = "7".into();
        let error = client.network_policies().create(p).await.map_err(text).unwrap_err();
        assert_eq!(
            error,
            "error with field Metadata.ResourceVersion = '7' (field must not be set for a Create request)"
        );
        let mut p = policy("p", "");
        p.metadata.namespace.clear();
        let error = client.network_policies().create(p).await.map_err(text).unwrap_err();
        assert_eq!(
            error,
            "error with field Metadata.Namespace (namespace is not specified on namespaced resource)"
        );

        let stored = client.network_policies().create(policy("p", "selector: all()")).await.expect("create");
        assert!(!stored.metadata.uid.is_empty() && stored.metadata.creation_timestamp.is_some());
        assert_eq!(stored.metadata.labels["projectcalico.org/tier"], "default");
        for (what, change) in [
            ("ResourceVersion", (|p: &mut NetworkPolicy| p.metadata.resource_version.clear()) as fn(&mut _)),
            ("CreationTimestamp", |p| p.metadata.creation_timestamp = None),
            ("UID", |p| p.metadata.uid.clear()),
        ] {
            let mut p = stored.clone();
            change(&mut p);
            let error = client.network_policies().update(p).await.map_err(text).unwrap_err();
            assert!(error.starts_with(&format!("error with field Metadata.{what} = ")), "{error}");
        }
        let error = client.network_policies().create(policy("p", "")).await.unwrap_err();
        assert!(
            error.is_already_exists()
                && error.to_string().starts_with("resource already exists: NetworkPolicy(shop/p)")
        );
        let mut stale = stored.clone();
        client.network_policies().update(stored).await.expect("update");
        stale.spec.selector = "has(x)".into();
        let error = client.network_policies().update(stale).await.unwrap_err();
        assert!(
            error.is_conflict() && error.to_string() == "update conflict: NetworkPolicy(shop/p)",
            "{error}"
        );
    });
}

#[test]
fn policies_need_their_tier_and_tiers_keep_their_policies() {
    on_every_store(|client| async move {
        client.ensure_initialized("", "").await.expect("initialise");
        let error = client.network_policies().create(policy("p", "tier: sec")).await.unwrap_err();
        assert!(error.is_not_found() && error.to_string().contains("Tier(sec)"), "{error}");
        let tier: Tier = object("{metadata: {name: sec}, spec: {order: 5}}");
        let tier = client.tiers().create(tier).await.expect("tier");
        assert_eq!(tier.spec.default_action, Some(calico_api::DefaultAction::Deny));
        client.network_policies().create(policy("p", "tier: sec")).await.expect("policy");
        let global: GlobalNetworkPolicy = object("{metadata: {name: g}, spec: {tier: sec}}");
        client.global_network_policies().create(global).await.expect("policy");
        let none = DeleteOptions::default();
        let error = client.tiers().delete("", "sec", &none).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "operation delete is not supported on Tier(sec): Cannot delete a non-empty tier"
        );
        let error = client.tiers().delete("", "default", &none).await.unwrap_err();
        assert!(error.to_string().ends_with("Cannot delete default tier"), "{error}");
        let recursive = DeleteOptions { recursive: true, ..none };
        client.tiers().delete("", "sec", &recursive).await.expect("recursive");
        assert!(client.network_policies().get("shop", "p").await.unwrap_err().is_not_found());
        assert!(client.global_network_policies().get("", "g").await.unwrap_err().is_not_found());
    });
}

#[test]
fn pools_do_not_overlap_nor_change_their_blocks() {
    on_every_store(|client| async move {
        client.ensure_initialized("", "").await.expect("initialise");
        let stored = client.ip_pools().create(pool("a", "cidr: 10.0.0.0/16")).await.expect("create");
        assert_eq!((stored.spec.block_size, stored.spec.node_selector.as_str()), (26, "all()"));
        let error = client.ip_pools().create(pool("b", "cidr: 10.0.128.0/17")).await.unwrap_err().to_string();
        assert!(error.contains("IPPool(b) CIDR overlaps with IPPool(a) CIDR 10.0.0.0/16"), "{error}");
        let error = client.ip_pools().create(pool("b", "cidr: 10.1.0.1/16")).await.unwrap_err().to_string();
        assert!(error.contains("10.1.0.0/16"), "{error}");
        let error = client.ip_pools().create(pool("b", "cidr: ''")).await.unwrap_err().to_string();
        assert!(error.contains("CIDR must be specified"), "{error}");
        client.unsafe_create_pool(pool("c", "cidr: 10.0.64.0/18")).await.expect("unsafe creation overlaps");
        let mut changed = stored.clone();
        changed.spec.block_size = 27;
        let error = client.ip_pools().update(changed).await.unwrap_err().to_string();
        assert!(error.contains("BlockSize cannot be modified"), "{error}");
        let mut changed = stored;
        changed.spec.cidr = "10.9.0.0/16".into();
        let error = client.ip_pools().update(changed).await.unwrap_err().to_string();
        assert!(error.contains("CIDR cannot be modified"), "{error}");
        let gone = client.ip_pools().delete("", "a", &DeleteOptions::default()).await.expect("delete");
        assert!(gone.spec.disabled);
        assert!(client.ip_pools().get("", "a").await.unwrap_err().is_not_found());
    });
}

#[test]
fn endpoints_are_named_by_their_spec() {
    on_every_store(|client| async move {
        let yaml =
            "{metadata: {namespace: shop}, spec: {node: node-1, orchestrator: k8s, pod: web, endpoint: eth0,
            interfaceName: cali1, ipNetworks: [10.0.0.1/32]}}";
        let endpoint: WorkloadEndpoint = object(yaml);
        let stored = client.workload_endpoints().create(endpoint.clone()).await.expect("create");
        assert_eq!(stored.metadata.name, "node--1-k8s-web-eth0");
        assert_eq!(stored.metadata.labels["projectcalico.org/namespace"], "shop");
        assert_eq!(stored.metadata.labels["projectcalico.org/orchestrator"], "k8s");
        let mut other = endpoint;
        other.metadata.name = "another".into();
        let error = client.workload_endpoints().create(other).await.unwrap_err().to_string();
        assert!(error.contains("expected name node--1-k8s-web-eth0"), "{error}");
    });
}

#[test]
fn the_built_in_profile_cannot_be_touched() {
    on_every_store(|client| async move {
        let mut profile = Profile::default();
        profile.metadata.name = "projectcalico-default-allow".into();
        assert!(client.profiles().create(profile).await.unwrap_err().is_already_exists());
        let shown = client.profiles().get("", "projectcalico-default-allow").await.expect("synthetic");
        assert_eq!(shown.spec.ingress.len(), 1);
        let gone =
            client.profiles().delete("", "projectcalico-default-allow", &DeleteOptions::default()).await;
        assert!(gone.unwrap_err().is_not_supported());
    });
}

#[test]
fn a_deleted_node_takes_its_endpoints_along() {
    on_every_store(|client| async move {
        let mut node = Node::default();
        node.metadata.name = "node-1".into();
        node.spec.bgp = Some(NodeBgpSpec { ipv4_address: "172.16.0.1/24".into(), ..NodeBgpSpec::default() });
        client.nodes().create(node).await.expect("node");
        assert!(client.tiers().get("", "default").await.is_ok(), "creating a node initialises the store");
        let endpoint = |node: &str, pod: &str| -> WorkloadEndpoint {
            object(&format!(
                "{{metadata: {{namespace: shop}}, spec: {{node: {node}, orchestrator: k8s, pod: {pod}, endpoint: eth0,
                interfaceName: cali1, ipNetworks: [10.0.0.1/32]}}}}"
            ))
        };
        for (node, pod) in [("node-1", "a"), ("node-1", "b"), ("node-10", "c")] {
            client.workload_endpoints().create(endpoint(node, pod)).await.expect("endpoint");
        }
        client.nodes().delete("", "node-1", &DeleteOptions::default()).await.expect("delete");
        let left = client.workload_endpoints().list(&Select::default()).await.expect("list").items;
        let left: Vec<&str> = left.iter().map(|e| e.spec.pod.as_str()).collect();
        assert_eq!(left, ["c"]);
        let again = client.nodes().delete("", "node-1", &DeleteOptions::default()).await;
        assert!(again.unwrap_err().is_not_found());
    });
}

#[test]
fn lists_watches_and_preconditions() {
    on_every_store(|client| async move {
        client.ensure_initialized("", "").await.expect("initialise");
        for name in ["web-a", "web-b", "db"] {
            client.network_policies().create(policy(name, "")).await.expect("create");
        }
        let select = Select { namespace: "shop", name: "web-", prefix: true, revision: None };
        let list = client.network_policies().list(&select).await.expect("list");
        assert_eq!(list.items.iter().map(|p| p.name().to_owned()).collect::<Vec<_>>(), ["web-a", "web-b"]);
        let mut watch = client
            .network_policies()
            .watch(&Select { namespace: "shop", revision: Some(list.revision), ..Select::default() })
            .await
            .expect("watch");
        let uid = Some("not-this".to_owned());
        let error = client
            .network_policies()
            .delete("shop", "db", &DeleteOptions { uid, ..DeleteOptions::default() })
            .await;
        assert!(error.unwrap_err().is_conflict());
        client.network_policies().modify("shop", "db", |p| p.spec.order = Some(1.0)).await.expect("modify");
        client.network_policies().delete("shop", "db", &DeleteOptions::default()).await.expect("delete");
        match watch.next().await {
            Some(Event::Modified(new, _)) => assert_eq!(new.spec.order, Some(1.0)),
            other => panic!("{other:?}"),
        }
        assert!(matches!(watch.next().await, Some(Event::Deleted(p)) if p.name() == "db"));
        let error = client.objects(Kind::Tier).create(policy("x", "").into_any()).await.unwrap_err();
        assert!(error.to_string().contains("must be Tier"), "{error}");
        let error = client.objects(Kind::NetworkPolicy).get("shop", "absent").await.unwrap_err();
        assert!(
            matches!(&error, ClientError::Store(StoreError::DoesNotExist { id }) if id == "NetworkPolicy(shop/absent)")
        );
    });
}
