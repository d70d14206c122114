use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use super::*;

struct World {
    vars: BTreeMap<&'static str, &'static str>,
    files: BTreeMap<&'static str, &'static str>,
}

fn world(vars: &[(&'static str, &'static str)], files: &[(&'static str, &'static str)]) -> World {
    World { vars: vars.iter().copied().collect(), files: files.iter().copied().collect() }
}

impl World {
    fn with<T>(&self, f: impl FnOnce(&Surroundings<'_>) -> T) -> T {
        let read = |path: &Path| match self.files.get(path.to_str().unwrap()) {
            Some(text) => Ok((*text).to_owned()),
            None => Err(io::Error::from(io::ErrorKind::NotFound)),
        };
        f(&Surroundings {
            env: &|name| self.vars.get(name).map(|v| (*v).to_owned()),
            read: &read,
            exists: &|path| self.files.contains_key(path.to_str().unwrap()),
        })
    }

    fn env(&self) -> Result<CalicoApiConfig, ConfigError> {
        self.with(|s| CalicoApiConfig::load(None, s))
    }

    fn choose(&self, fallback: Fallback) -> (CalicoApiConfig, StoreChoice) {
        self.with(|s| {
            let mut config = CalicoApiConfig::load(None, s).unwrap();
            let choice = config.choose(fallback, s).unwrap();
            (config, choice)
        })
    }
}

#[test]
fn variables_count_with_and_without_prefix() {
    let config = world(
        &[
            ("CALICO_DATASTORE_TYPE", "etcdv3"),
            ("DATASTORE_TYPE", "kubernetes"),
            ("ETCD_ENDPOINTS", "http://a:2379,http://b:2379"),
            ("CALICO_ETCD_PASSWORD", ""),
            ("ETCD_PASSWORD", "shadowed"),
            ("CALICO_API_GROUP", "projectcalico.org/v3"),
            ("K8SAPITOKEN", "not this one"),
            ("SQLITE_PATH", "nor this"),
            ("CALICO_K8S_INSECURE_SKIP_TLS_VERIFY", "T"),
            ("USE_POD_CIDR", "1"),
            ("K8S_CLIENT_QPS", "12.5"),
            ("CALICO_K8S_CLIENT_BURST", "0x10"),
        ],
        &[],
    )
    .env()
    .unwrap();
    assert_eq!(config.datastore_type, "etcdv3");
    assert_eq!(config.etcd_endpoints, "http://a:2379,http://b:2379");
    assert_eq!(config.etcd_password, "");
    assert_eq!(config.calico_api_group, "projectcalico.org/v3");
    assert_eq!(config.k8s_api_token, "");
    assert_eq!(config.sqlite_path, "");
    assert!(config.k8s_insecure_skip_tls_verify && config.use_pod_cidr && !config.k8s_disable_node_poll);
    assert_eq!((config.k8s_client_qps, config.k8s_client_burst), (12.5, 16));
    let config = world(&[("CALICO_K8SAPITOKEN", "t"), ("CALICO_SQLITE_PATH", "/x.db")], &[]).env().unwrap();
    assert_eq!((config.k8s_api_token.as_str(), config.sqlite_path.as_str()), ("t", "/x.db"));
}

#[test]
fn variables_of_the_wrong_type_are_errors() {
    let error = |name, value| world(&[(name, value)], &[]).env().unwrap_err().to_string();
    assert_eq!(
        error("CALICO_K8S_CLIENT_QPS", ""),
        "failed to load config from env vars: envconfig.Process: assigning CALICO_K8S_CLIENT_QPS to K8sClientQPS: \
         converting '' to type float32. details: strconv.ParseFloat: parsing \"\": invalid syntax"
    );
    for (name, value) in [
        ("K8S_INSECURE_SKIP_TLS_VERIFY", "yes"),
        ("K8S_DISABLE_NODE_POLL", ""),
        ("USE_POD_CIDR", "tRUE"),
        ("K8S_CLIENT_QPS", "1e400"),
        ("K8S_CLIENT_BURST", "1.5"),
        ("K8S_CLIENT_BURST", "99999999999999999999"),
        ("K8S_CLIENT_BURST", "1_0_"),
    ] {
        assert!(error(name, value).contains(&format!("assigning CALICO_{name} to ")), "{name}={value}");
    }
    for (value, number) in
        [("010", 8), ("0b11", 3), ("0o17", 15), ("-5", -5), ("+5", 5), ("0x_f", 15), ("0", 0)]
    {
        assert_eq!(
            world(&[("K8S_CLIENT_BURST", value)], &[]).env().unwrap().k8s_client_burst,
            number,
            "{value}"
        );
    }
}

const HEAD: &str = "apiVersion: projectcalico.org/v3\nkind: CalicoAPIConfig\nmetadata:\n  name: x\nspec:\n";

#[test]
fn documents_are_read_strictly() {
    let read = |spec: &str| CalicoApiConfig::parse(&format!("{HEAD}{spec}"));
    let config = read(
        "  datastoreType: 7\n  ETCDendpoints: http://a:1\n  etcdPassword: \"12345\"\n  usePodCIDR: yes\n  \
         k8sClientQPS: 3\n  k8sClientBurst: 7\n  sqlitePath: /a.db\n  kubeconfig: null\n---\nnot: looked at\n",
    )
    .unwrap();
    assert_eq!(config.datastore_type, "7");
    assert_eq!(config.etcd_endpoints, "http://a:1");
    assert_eq!(config.etcd_password, "12345");
    assert!(config.use_pod_cidr);
    assert_eq!((config.k8s_client_qps, config.k8s_client_burst), (3.0, 7));
    assert_eq!(config.sqlite_path, "/a.db");
    let json =
        r#"{"apiVersion":"projectcalico.org/v3","kind":"CalicoAPIConfig","spec":{"datastoreType":"etcdv3"}}"#;
    assert_eq!(CalicoApiConfig::parse(json).unwrap().datastore_type, "etcdv3");
    for (spec, line, words) in [
        ("  etcdEndpoint: x\n", 6, vec!["unknown field", "spec.etcdEndpoint"]),
        (
            "  datastoreType: etcdv3\n  etcdPassword: 12345\n",
            7,
            vec!["12345", "a text for spec.etcdPassword"],
        ),
        (
            "  k8sInsecureSkipTLSVerify: \"true\"\n",
            6,
            vec!["true or false for spec.k8sInsecureSkipTLSVerify"],
        ),
        ("  k8sClientBurst: many\n", 6, vec!["a whole number for spec.k8sClientBurst"]),
        ("  etcdUsername: [a]\n", 6, vec!["a text for spec.etcdUsername"]),
        ("  kubeconfig: a\n  kubeconfig: b\n", 7, vec!["kubeconfig"]),
        ("  kubeconfig: \"a\n", 6, vec![]),
    ] {
        match read(spec) {
            Err(FileError::Parse { line: found, reason, .. }) => {
                assert_eq!(found, line, "{spec}: {reason}");
                for word in words {
                    assert!(reason.contains(word), "{spec}: {reason}");
                }
            }
            other => panic!("{spec}: {other:?}"),
        }
    }
    let unknown = CalicoApiConfig::parse("apiVersion: projectcalico.org/v3\nmetadata:\n  nam: x\n");
    assert!(unknown.unwrap_err().to_string().contains("metadata.nam"));
}

#[test]
fn documents_of_another_kind_are_refused() {
    let error = |text| CalicoApiConfig::parse(text).unwrap_err().to_string();
    assert_eq!(error(""), "invalid config file: unknown APIVersion ''");
    assert_eq!(error("apiVersion: v1\nkind: Node\n"), "invalid config file: unknown APIVersion 'v1'");
    assert_eq!(
        error("apiVersion: projectcalico.org/v3\nkind: Node\n"),
        "invalid config file: expected kind 'CalicoAPIConfig', got 'Node'"
    );
    assert!(error("- a\n- b\n").starts_with("failed to parse config as YAML/JSON: "));
}

#[test]
fn a_file_is_named_and_nothing_else_is_looked_at() {
    let world = world(&[("ETCD_ENDPOINTS", "http://env:1")], &[("/c", "kind: [")]);
    let load = |path: &str| world.with(|s| CalicoApiConfig::load(Some(Path::new(path)), s));
    assert!(load("/c").unwrap_err().to_string().starts_with("syntax error in /c: failed to parse config"));
    assert!(load("/none").unwrap_err().to_string().starts_with("/none: "));
    let text: &'static str = "apiVersion: projectcalico.org/v3\nkind: CalicoAPIConfig\n";
    let world = World { files: [("/c", text)].into(), ..world };
    assert_eq!(
        world.with(|s| CalicoApiConfig::load(Some(Path::new("/c")), s)).unwrap(),
        CalicoApiConfig::default()
    );
}

#[test]
fn the_choice_follows_the_settings() {
    let kube = ("/root/.kube/config", "");
    let db = (DEFAULT_SQLITE_PATH, "");
    let home = ("HOME", "/root");
    let sqlite = || StoreKind::Sqlite(DEFAULT_SQLITE_PATH.into());
    type Case<'a> =
        (&'a [(&'static str, &'static str)], &'a [(&'static str, &'static str)], StoreKind, StoreKind);
    let cases: [Case<'_>; 11] = [
        (&[], &[], StoreKind::Kubernetes, StoreKind::Kubernetes),
        (&[("DATASTORE_TYPE", "sqlite")], &[], sqlite(), sqlite()),
        (&[("DATASTORE_TYPE", "etcdv3")], &[db], StoreKind::Etcd, StoreKind::Etcd),
        (&[("ETCD_ENDPOINTS", "http://a:1")], &[db], StoreKind::Etcd, StoreKind::Etcd),
        (&[("ETCD_DISCOVERY_SRV", "example.com")], &[], StoreKind::Kubernetes, StoreKind::Kubernetes),
        (&[], &[db], StoreKind::Kubernetes, sqlite()),
        (&[home], &[db, kube], StoreKind::Kubernetes, StoreKind::Kubernetes),
        (&[home], &[db], StoreKind::Kubernetes, sqlite()),
        (&[("KUBERNETES_SERVICE_HOST", "10.0.0.1")], &[db], StoreKind::Kubernetes, StoreKind::Kubernetes),
        (&[("KUBECONFIG", "/k")], &[db], StoreKind::Kubernetes, StoreKind::Kubernetes),
        (&[("K8S_API_ENDPOINT", "https://x")], &[db], StoreKind::Kubernetes, StoreKind::Kubernetes),
    ];
    for (vars, files, daemon, tool) in cases {
        let world = world(vars, files);
        assert_eq!(world.choose(Fallback::Never).1.kind, daemon, "{vars:?} {files:?}");
        assert_eq!(world.choose(Fallback::ExistingSqlite).1.kind, tool, "{vars:?} {files:?}");
    }
    let (config, choice) = world(&[home], &[kube]).choose(Fallback::Never);
    assert_eq!(config.kubeconfig, "/root/.kube/config");
    assert_eq!(choice.to_string(), "kubernetes, because neither datastoreType nor etcdEndpoints are set");
    let (_, choice) =
        world(&[("DATASTORE_TYPE", "sqlite"), ("CALICO_SQLITE_PATH", "/x.db")], &[]).choose(Fallback::Never);
    assert_eq!(choice.to_string(), "sqlite (/x.db), because datastoreType is sqlite");
    let mut config = CalicoApiConfig { datastore_type: "consul".into(), ..CalicoApiConfig::default() };
    let error = world(&[], &[]).with(|s| config.choose(Fallback::Never, s)).unwrap_err();
    assert_eq!(error.to_string(), "unknown datastore type: consul");
}
