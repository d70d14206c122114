//! The protocol with container runtimes: versions, errors, results, other address managers.

mod common;

use std::collections::BTreeMap;
use std::path::Path;

use calico_cni::{HostPaths, Invocation, Outcome, PluginKind};
use common::Host;
use serde_json::{Value, json};

/// A call that reaches neither kernel nor store.
fn call(kind: PluginKind, args: &[&str], env: &[(&str, &str)], stdin: &str) -> Outcome {
    let env: BTreeMap<&str, &str> = env.iter().copied().collect();
    let args: Vec<String> = args.iter().map(ToString::to_string).collect();
    let lookup = |name: &str| env.get(name).map(ToString::to_string);
    let paths = HostPaths { nodename: "/proc/no/nodename".into(), ..HostPaths::default() };
    Invocation { kind, args: &args, env: &lookup, stdin, paths: &paths }.execute()
}

fn with_verb(verb: &'static str) -> Vec<(&'static str, &'static str)> {
    vec![
        ("CNI_COMMAND", verb),
        ("CNI_CONTAINERID", "boxa"),
        ("CNI_NETNS", "/run/netns/nowhere"),
        ("CNI_IFNAME", "eth0"),
        ("CNI_PATH", "/opt/cni/bin"),
    ]
}

#[test]
fn version_and_about() {
    let want = "{\"cniVersion\":\"1.1.0\",\"supportedVersions\":[\"0.1.0\",\"0.2.0\",\"0.3.0\",\"0.3.1\",\"0.4.0\",\"1.0.0\",\"1.1.0\"]}\n";
    for kind in [PluginKind::Calico, PluginKind::CalicoIpam] {
        let outcome = call(kind, &[], &[("CNI_COMMAND", "VERSION")], "");
        assert_eq!((outcome.stdout.as_str(), outcome.code), (want, 0));
        let about = call(kind, &[], &[("CNI_COMMAND", "")], "");
        assert_eq!((about.stdout.as_str(), about.code), ("", 0));
        assert!(
            about.stderr.ends_with(
                "CNI protocol versions supported: 0.1.0, 0.2.0, 0.3.0, 0.3.1, 0.4.0, 1.0.0, 1.1.0\n"
            )
        );
        assert!(!call(kind, &["-v"], &[], "").stdout.trim().is_empty());
    }
    assert_eq!(PluginKind::from_program("calico"), Some(PluginKind::Calico));
    assert_eq!(PluginKind::from_program("calico-ipam"), Some(PluginKind::CalicoIpam));
    assert_eq!(PluginKind::from_program("calicoctl"), None);
}

#[test]
fn verbs_by_version_of_the_configuration() {
    let config = |version: &str| format!(r#"{{"name": "net", "cniVersion": "{version}"}}"#);
    for (verb, version, code, msg) in [
        ("CHECK", "0.3.1", 1, "config version does not allow CHECK"),
        ("CHECK", "", 1, "config version does not allow CHECK"),
        ("STATUS", "1.0.0", 1, "config version does not allow STATUS"),
        ("GC", "1.0.0", 1, "config version does not allow GC"),
        ("GC", "1.1.0", 1, "plugin version does not allow GC"),
        ("STATUS", "1.1.0", 50, "Calico cannot wire containers now"),
        ("ADD", "9.9.9", 1, "incompatible CNI versions"),
        ("DEL", "9.9.9", 1, "incompatible CNI versions"),
        ("CHECK", "9.9.9", 1, "incompatible CNI versions"),
    ] {
        for kind in [PluginKind::Calico, PluginKind::CalicoIpam] {
            let outcome = call(kind, &[], &with_verb(verb), &config(version));
            let error: Value = serde_json::from_str(&outcome.stdout).expect("JSON");
            assert_eq!(
                (outcome.code, &error["code"], &error["msg"]),
                (1, &json!(code), &json!(msg)),
                "{verb}"
            );
        }
    }
}

#[test]
fn errors_are_printed_as_the_specification_says() {
    let outcome = call(PluginKind::Calico, &[], &with_verb("ADD"), r#"{"name": "a b"}"#);
    let want = "{\n    \"code\": 7,\n    \"msg\": \"invalid characters found in network name\",\n    \"details\": \"a b\"\n}";
    assert_eq!((outcome.stdout.as_str(), outcome.stderr.as_str(), outcome.code), (want, "", 1));
    let outcome = call(PluginKind::Calico, &[], &with_verb("ADD"), "{}");
    assert_eq!(outcome.stdout, "{\n    \"code\": 7,\n    \"msg\": \"missing network name\"\n}");
    let mut env = with_verb("DEL");
    env.push(("CNI_ARGS", "COLOUR"));
    let config = r#"{"name": "net", "nodename_file_optional": true}"#;
    let outcome = call(PluginKind::Calico, &[], &env, config);
    assert!(outcome.stdout.contains(r#""msg": "ARGS: invalid pair \"COLOUR\"""#), "{}", outcome.stdout);
}

#[test]
fn what_is_wrong_with_the_configuration_comes_before_any_change() {
    let Some(host) = Host::dual() else { return };
    let pod = host.container("boxa");
    let k8s_args = "IgnoreUnknown=1;K8S_POD_NAME=p;K8S_POD_NAMESPACE=n";
    for (more, args, want) in [
        (json!({ "nodename_file": "/no/file" }), "", "node name file /no/file cannot be read"),
        (json!({ "device_type": "tap" }), "", "unknown device_type \"tap\""),
        (json!({ "dataplane_options": { "type": "teleport" } }), "", "invalid dataplane type: teleport"),
        (
            json!({ "dataplane_options": { "type": "grpc" } }),
            "",
            "dataplane_options.type grpc is not supported",
        ),
        (
            json!({ "ipam": { "type": "host-local", "subnet": "usePodCidr" } }),
            "",
            "usePodCidr is not supported",
        ),
        (json!({ "readiness_gates": ["http://x"] }), "", "readiness_gates is not supported"),
        (json!({ "policy": { "type": "k8s" } }), k8s_args, "policy.type k8s is not supported"),
        (
            json!({ "feature_control": { "ip_addrs_no_ipam": true } }),
            "",
            "not supported for this runtime: ip_addrs_no_ipam",
        ),
        (
            json!({ "policy_setup_timeout_seconds": -1 }),
            k8s_args,
            "policy_setup_timeout_seconds: must not be negative",
        ),
        (json!({ "require_mtu_file": true }), "", "MTU file"),
        (json!({ "mtu": 70000000 }), "", "cannot make the veth pair: cannot create link eth0"),
        (json!({ "datastore_type": "parchment" }), "", "unknown datastore type: parchment"),
        (json!({ "datastore_type": "kubernetes" }), "", "has no Kubernetes datastore"),
        (json!({ "datastore_type": "", "sqlite_path": "" }), "", "has no Kubernetes datastore"),
        (json!({ "ipam": {} }), "", "no plugin name provided"),
        (
            json!({ "ipam": { "type": "no-such" } }),
            "",
            "failed to find plugin \"no-such\" in path [/usr/lib/cni]",
        ),
        (json!({ "ipam": { "type": "../evil" } }), "", "failed to find plugin \"../evil\""),
        (
            json!({ "ipam": { "type": "calico-ipam", "assign_ipv4": "false" } }),
            "",
            "IPAM plugin returned no IP addresses",
        ),
        (
            json!({ "ipam": { "type": "calico-ipam", "ipv4_pools": ["fd93::/112"] } }),
            "",
            "\"fd93::\" isn't a IPv4 address",
        ),
        (
            json!({ "ipam": { "type": "calico-ipam", "ipv4_pools": ["10.50.0.0/16"] } }),
            "",
            "the given pool (10.50.0.0/16) does not exist",
        ),
        (json!({}), "IP=192.0.2.7", "The provided IP address is not in a configured pool"),
        (json!({}), "IP=bad", "invalid IP address: bad"),
        (json!({ "nodename": "elm" }), "", "Node(elm)"),
    ] {
        let mut host_env = BTreeMap::new();
        host_env.insert("CNI_ARGS".to_owned(), args.to_owned());
        let conf = host.conf_with(more);
        let outcome = call_on(&host, "ADD", &pod.id, &pod.path, &conf, &host_env);
        assert_eq!(outcome.code, 1, "{conf}");
        let error: Value = serde_json::from_str(&outcome.stdout).expect("JSON");
        let message = error["msg"].as_str().expect("msg");
        assert!(message.contains(want), "{conf}: {message}");
        assert_eq!(error["code"], 999, "{conf}");
        host.assert_clean();
    }
}

fn call_on(
    host: &Host,
    verb: &str,
    id: &str,
    netns: &Path,
    conf: &Value,
    more: &BTreeMap<String, String>,
) -> Outcome {
    let mut env = more.clone();
    for (key, value) in [
        ("CNI_COMMAND", verb),
        ("CNI_CONTAINERID", id),
        ("CNI_NETNS", &netns.display().to_string()),
        ("CNI_IFNAME", "eth0"),
        ("CNI_PATH", "/usr/lib/cni"),
    ] {
        env.insert(key.to_owned(), value.to_owned());
    }
    let stdin = conf.to_string();
    let work = || {
        let lookup = |name: &str| env.get(name).cloned();
        let kind = PluginKind::Calico;
        Invocation { kind, args: &[], env: &lookup, stdin: &stdin, paths: &host.paths }.execute()
    };
    host.ns.run(work).expect("host namespace")
}

#[test]
fn clusters_that_are_not_ready() {
    let Some(host) = Host::dual() else { return };
    let pod = host.container("boxa");
    let conf = host.conf_with(json!({ "cniVersion": "1.1.0" }));
    let status = |want: u8| {
        for kind in [PluginKind::Calico, PluginKind::CalicoIpam] {
            let outcome = host.call(kind, "STATUS", "", Path::new(""), "", &conf);
            assert_eq!(outcome.code, want, "{}", outcome.stdout);
        }
        let stdin = conf.to_string();
        let args = ["-t".to_owned()];
        let test = Invocation {
            kind: PluginKind::Calico,
            args: &args,
            env: &|_| None,
            stdin: &stdin,
            paths: &host.paths,
        };
        let outcome = test.execute();
        assert_eq!((outcome.code, outcome.stdout.contains("\"code\": 100")), (want, want == 1));
    };
    status(0);
    let info = host.client.cluster_information();
    let set_ready = |ready| {
        host.runtime
            .block_on(info.modify("", "default", |i| i.spec.datastore_ready = Some(ready)))
            .expect("set");
    };
    host.add(&pod, &conf);
    set_ready(false);
    status(1);
    for verb in ["ADD", "CHECK", "DEL"] {
        let (code, message) = host.refused(verb, &pod, &conf);
        assert_eq!(
            (code, message.as_str()),
            (999, "Calico is currently not ready to process requests"),
            "{verb}"
        );
    }
    assert_eq!((host.endpoints().len(), host.assigned().len()), (1, 1), "kept for the next try");
    set_ready(true);
    host.del(&pod, &conf);
    host.assert_clean();
    let key = calico_model::Key::resource(calico_api::Kind::ClusterInformation, "", "default");
    host.runtime.block_on(host.client.backend().delete(&key, None)).expect("delete");
    let (_, message) = host.refused("ADD", &pod, &conf);
    assert!(message.starts_with("error getting ClusterInformation: resource does not exist"), "{message}");
}

#[test]
fn an_unreachable_store_is_named() {
    let Some(host) = Host::dual() else { return };
    let pod = host.container("boxa");
    let conf = host.conf_with(json!({ "datastore_type": "etcdv3", "etcd_endpoints": "http://127.0.0.1:1" }));
    let (code, message) = host.refused("ADD", &pod, &conf);
    assert_eq!(code, 999);
    assert!(message.contains("http://127.0.0.1:1") && message.contains("etcd"), "{message}");
    host.assert_clean();
}

#[test]
fn results_by_version() {
    let Some(host) = Host::dual() else { return };
    let both = json!({ "type": "calico-ipam", "assign_ipv6": "true" });
    for (written, version) in [
        ("", "0.2.0"),
        ("0.1.0", "0.1.0"),
        ("0.2.0", "0.2.0"),
        ("0.3.0", "0.3.0"),
        ("0.4.0", "0.4.0"),
        ("1.0.0", "1.0.0"),
        ("1.1.0", "1.1.0"),
    ] {
        let pod = host.container(&format!("box{}", written.replace('.', "")));
        let conf = host.conf_with(json!({ "cniVersion": written, "ipam": both }));
        let outcome = host.plugin("ADD", &pod, &conf);
        assert_eq!(outcome.code, 0, "{}", outcome.stdout);
        assert!(
            outcome.stdout.starts_with(&format!("{{\n    \"cniVersion\": \"{version}\"")),
            "{}",
            outcome.stdout
        );
        let result: Value = serde_json::from_str(&outcome.stdout).expect("JSON");
        match version {
            "0.1.0" | "0.2.0" => {
                assert!(result["ip4"]["ip"].as_str().is_some_and(|t| t.ends_with("/32")), "{result}");
                assert!(result["ip6"]["ip"].as_str().is_some_and(|t| t.ends_with("/128")), "{result}");
            }
            "0.3.0" | "0.4.0" => {
                assert_eq!((&result["ips"][1]["version"], &result["dns"]), (&json!("6"), &json!({})))
            }
            _ => assert_eq!((result["ips"][1].get("version"), result.get("dns")), (None, None)),
        }
        host.del(&pod, &conf);
    }
    host.assert_clean();
}

#[test]
fn the_address_manager_as_a_program_of_its_own() {
    let Some(mut host) = Host::dual() else { return };
    let conf = host.conf_with(json!({ "ipam": { "type": "calico-ipam", "assign_ipv6": "true" } }));
    let nowhere = Path::new("/run/netns/nowhere");
    let ipam = |host: &Host, verb: &str, id: &str, conf: &Value| {
        host.call(PluginKind::CalicoIpam, verb, id, nowhere, "eth0", conf)
    };
    let added = ipam(&host, "ADD", "boxa", &conf);
    assert_eq!(added.code, 0, "{}", added.stdout);
    let result: Value = serde_json::from_str(&added.stdout).expect("JSON");
    let ips: Vec<&str> =
        result["ips"].as_array().expect("ips").iter().filter_map(|i| i["address"].as_str()).collect();
    assert!(ips[0].ends_with("/28") && ips[1].ends_with("/122"), "{result}");
    assert_eq!(result["routes"], json!([{ "dst": ips[0] }, { "dst": ips[1] }]));
    assert_eq!(result.get("interfaces"), None);
    let mut checked = conf.clone();
    checked["prevResult"] = result.clone();
    assert_eq!(ipam(&host, "CHECK", "boxa", &checked), Outcome::default());
    assert_eq!(ipam(&host, "CHECK", "boxb", &checked).code, 1);
    // A chosen address comes alone and as such.
    host.env.insert("CNI_ARGS".into(), "IP=10.93.0.77".into());
    let chosen = ipam(&host, "ADD", "boxb", &conf);
    let chosen: Value = serde_json::from_str(&chosen.stdout).expect("JSON");
    assert_eq!(chosen["ips"], json!([{ "address": "10.93.0.77/32" }]));
    let taken = ipam(&host, "ADD", "boxc", &conf);
    assert!(taken.stdout.contains("already exists: 10.93.0.77"), "{}", taken.stdout);
    host.env.clear();
    let old = ipam(&host, "ADD", "boxd", &host.conf_with(json!({ "cniVersion": "" })));
    assert!(old.stdout.starts_with("{\n    \"cniVersion\": \"0.1.0\",\n    \"ip4\""), "{}", old.stdout);
    for id in ["boxa", "boxb", "boxd", "never"] {
        assert_eq!(ipam(&host, "DEL", id, &conf), Outcome::default());
    }
    host.assert_clean();
}

#[test]
fn pools_by_name_and_by_cidr() {
    let Some(host) = Host::new(&[("amber", "10.93.0.0/24", 28), ("beech", "10.94.0.0/24", 28)]) else {
        return;
    };
    for (n, pool, want) in
        [(1, "beech", "10.94.0."), (2, "10.94.0.0/24", "10.94.0."), (3, "amber", "10.93.0.")]
    {
        let pod = host.container(&format!("box{n}"));
        let conf = host.conf_with(json!({ "ipam": { "type": "calico-ipam", "ipv4_pools": [pool] } }));
        let result = host.add(&pod, &conf);
        let address = result["ips"][0]["address"].as_str().expect("address");
        assert!(address.starts_with(want), "{pool}: {address}");
        host.del(&pod, &conf);
    }
    host.assert_clean();
}

#[test]
fn another_address_manager() {
    let Some(host) = Host::new(&[]) else { return };
    if !Path::new("/usr/lib/cni/host-local").exists() {
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), "skipped: no host-local here");
        return;
    }
    let conf = host.conf_with(json!({ "ipam": {
        "type": "host-local",
        "dataDir": host.dir.path().join("networks"),
        "ranges": [[{ "subnet": "10.95.1.0/29", "rangeStart": "10.95.1.3", "rangeEnd": "10.95.1.3" }], [{ "subnet": "fd95::/124" }]],
        "routes": [{ "dst": "198.18.0.0/15" }],
    }}));
    let pod = host.container("boxa");
    let result = host.add(&pod, &conf);
    assert_eq!(
        result["ips"],
        json!([{ "address": "10.95.1.3/32", "interface": 1 }, { "address": "fd95::2/128", "interface": 1 }])
    );
    assert_eq!(result["routes"], json!([{ "dst": "198.18.0.0/15" }]));
    assert_eq!(host.plugin("CHECK", &pod, &conf).stdout, "OK\n");
    assert_eq!(host.assigned(), vec![]);
    // Its own errors reach the runtime.
    let full = host.container("boxb");
    let (code, message) = host.refused("ADD", &full, &conf);
    assert_eq!(code, 999);
    assert!(message.contains("no IP addresses available"), "{message}");
    assert_eq!(host.endpoints().len(), 1);
    host.del(&pod, &conf);
    // What a failed ADD got was given back, so the address is free again.
    let broken = host.container("boxc");
    common::within(&broken.ns(), |nl| nl.create_bridge("eth0").expect("bridge"));
    host.refused("ADD", &broken, &conf);
    host.add(&full, &conf);
    host.del(&full, &conf);
    host.assert_clean();
}
