use super::*;

fn parse(text: &str) -> NetConf {
    NetConf::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"))
}

#[test]
fn defaults() {
    let conf = parse(r#"{"name": "net", "ipam": {"type": "calico-ipam"}}"#);
    assert_eq!((conf.mtu, conf.num_queues, conf.nodename_file_optional), (0, 1, false));
    assert_eq!((conf.ipam.assign_v4, conf.ipam.assign_v6), (true, false));
    assert_eq!((conf.log.max_size, conf.log.max_age, conf.log.max_count), (100, 30, 10));
    assert_eq!(conf.device().ok(), Some(DeviceType::Veth));
    assert_eq!(conf.version().map(|v| v.to_string()), Ok("0.1.0".to_owned()));
    assert!(conf.workload.is_none() && conf.dataplane.is_none() && conf.prev_result.is_none());
}

#[test]
fn every_key() {
    let conf = parse(
        r#"{
        "cniVersion": "1.0.0", "name": "net", "type": "calico", "mtu": 1400, "require_mtu_file": true,
        "num_queues": 4, "device_type": "veth", "nodename": "n1", "nodename_file": "/x", "nodename_file_optional": true,
        "hostname": "old", "datastore_type": "etcdv3", "etcd_endpoints": "http://a:1", "etcd_discovery_srv": "srv",
        "etcd_key_file": "k", "etcd_cert_file": "c", "etcd_ca_cert_file": "ca", "sqlite_path": "/db",
        "calico_api_group": "projectcalico.org/v3", "qps": 7, "burst": 9,
        "kubernetes": {"kubeconfig": "/kc", "k8s_api_root": "https://k:6443/api/v1"},
        "policy": {"type": "k8s", "k8s_auth_token": "t"},
        "ipam": {"type": "host-local", "assign_ipv4": "false", "assign_ipv6": "true", "ipv4_pools": ["a", "10.0.0.0/8"],
                 "ipv6_pools": ["b"], "ranges": [[{"subnet": "usepodcidr"}]]},
        "ipam_lock_file": "/lock", "container_settings": {"allow_ip_forwarding": true},
        "feature_control": {"ip_addrs_no_ipam": true, "floating_ips": true},
        "log_level": "debug", "log_file_path": "/log", "log_file_max_size": 1, "log_file_max_age": 2,
        "log_file_max_count": 3, "readiness_gates": ["http://x"], "policy_setup_timeout_seconds": -1,
        "endpoint_status_dir": "/status", "dataplane_options": {"type": "grpc", "socket": "s"},
        "prevResult": {"ips": []}, "windows_use_single_network": true, "unknown": {"x": 1}}"#,
    );
    assert_eq!((conf.mtu, conf.num_queues, conf.require_mtu_file), (1400, 4, true));
    assert_eq!(
        (conf.nodename.as_str(), conf.nodename_file.as_str(), conf.hostname.as_str()),
        ("n1", "/x", "old")
    );
    let store: Vec<(&str, &str)> = conf.store.iter().map(|(k, v)| (*k, v.as_str())).collect();
    assert_eq!(
        store,
        [
            ("CALICO_API_GROUP", "projectcalico.org/v3"),
            ("DATASTORE_TYPE", "etcdv3"),
            ("ETCD_CA_CERT_FILE", "ca"),
            ("ETCD_CERT_FILE", "c"),
            ("ETCD_DISCOVERY_SRV", "srv"),
            ("ETCD_ENDPOINTS", "http://a:1"),
            ("ETCD_KEY_FILE", "k"),
            ("K8S_API_ENDPOINT", "https://k:6443"),
            ("K8S_CLIENT_BURST", "9"),
            ("K8S_CLIENT_QPS", "7"),
            ("KUBECONFIG", "/kc"),
        ]
    );
    assert_eq!((conf.policy_type.as_str(), conf.sqlite_path.as_str()), ("k8s", "/db"));
    assert_eq!((conf.ipam.assign_v4, conf.ipam.assign_v6, conf.ipam.uses_pod_cidr), (false, true, true));
    assert_eq!((conf.ipam.pools_v4.len(), conf.ipam.pools_v6.len()), (2, 1));
    assert!(conf.allow_ip_forwarding && conf.ip_addrs_no_ipam);
    assert_eq!((conf.log.level.as_str(), conf.log.max_size, conf.log.max_count), ("debug", 1, 3));
    assert_eq!((conf.policy_setup_timeout_seconds, conf.dataplane.as_deref()), (-1, Some("grpc")));
    assert!(conf.prev_result.is_some());
}

#[test]
fn keys_match_in_any_case_and_the_last_one_wins() {
    let conf =
        parse(r#"{"NAME": "net", "MTU": 1310, "IPAM": {"Type": "calico-ipam", "ASSIGN_IPV6": "true"}}"#);
    assert_eq!((conf.mtu, conf.ipam.assign_v6), (1310, true));
    assert_eq!(parse(r#"{"name": "net", "mtu": 1290, "MTU": 1295}"#).mtu, 1295);
    assert_eq!(parse(r#"{"name": "net", "MTU": 1295, "mtu": 1290}"#).mtu, 1290);
    assert_eq!(parse(r#"{"name": "net", "mtu": 1290, "mtu": null}"#).mtu, 1290);
    assert_eq!(parse(r#"{"name": "net", "num_queues": -3}"#).num_queues, 1);
}

#[test]
fn switches_of_address_families() {
    for (v4, v6, want) in [
        (r#""true""#, r#""false""#, (true, false)),
        (r#""false""#, r#""true""#, (false, true)),
        (r#""maybe""#, r#""True""#, (true, false)),
        ("false", "true", (false, true)),
        ("null", "null", (true, false)),
    ] {
        let conf = parse(&format!(r#"{{"name":"n","ipam":{{"assign_ipv4":{v4},"assign_ipv6":{v6}}}}}"#));
        assert_eq!((conf.ipam.assign_v4, conf.ipam.assign_v6), want, "{v4} {v6}");
    }
}

#[test]
fn workloads_without_kubernetes() {
    let conf = parse(
        r#"{"name": "n", "args": {"projectcalico.org": {
            "orchestrator": "k8s", "namespace": "shop", "pod": "web-1", "node": "n1", "serviceAccount": "sa",
            "labels": {"App": "web", "app": "x"}, "profiles": ["kns.shop"],
            "ports": [{"name": "http", "protocol": "TCP", "port": 80, "hostPort": 8080, "hostIP": "10.0.0.1"}]}}}"#,
    );
    let args = conf.workload.expect("arguments");
    assert_eq!(
        (args.orchestrator.as_str(), args.namespace.as_str(), args.pod.as_str()),
        ("k8s", "shop", "web-1")
    );
    assert_eq!(args.labels.len(), 2, "labels keep their case");
    assert_eq!(args.profiles, Some(vec!["kns.shop".to_owned()]));
    assert_eq!((args.ports[0].port, args.ports[0].host_port), (80, 8080));
    let mesos = parse(
        r#"{"name": "n", "args": {"org.apache.mesos": {"network_info": {"labels": {"labels": [
            {"key": "a", "value": "b"}, {"key": "c"}]}}}}}"#,
    );
    assert_eq!(mesos.mesos_labels, vec![("a".into(), "b".into()), ("c".into(), String::new())]);
}

#[test]
fn wrong_configurations_name_the_key() {
    for (text, code, message) in [
        ("{nope", 6, "the network configuration is not JSON: key must be a string at line 1 column 2"),
        ("", 6, "the network configuration is not JSON: EOF while parsing a value at line 1 column 0"),
        ("[1]", 6, "network configuration: the configuration: must be an object, is a list"),
        ("{}", 7, "missing network name"),
        (r#"{"name": "a b"}"#, 7, "invalid characters found in network name"),
        (
            r#"{"name": "n", "mtu": "big"}"#,
            999,
            "network configuration: mtu: must be a whole number, is a string",
        ),
        (
            r#"{"name": "n", "log_file_max_size": -1}"#,
            999,
            "network configuration: log_file_max_size: -1 is out of range",
        ),
        (
            r#"{"name": "n", "mtu": 1.5}"#,
            999,
            "network configuration: mtu: must be a whole number, is a number",
        ),
        (
            r#"{"name": "n", "nodename": 7}"#,
            999,
            "network configuration: nodename: must be a string, is a number",
        ),
        (r#"{"name": "n", "ipam": []}"#, 999, "network configuration: ipam: must be an object, is a list"),
        (
            r#"{"name": "n", "ipam": {"ipv4_pools": "x"}}"#,
            999,
            "network configuration: ipam.ipv4_pools: must be a list of strings, is a string",
        ),
        (
            r#"{"name": "n", "ipam": {"ranges": [[{"subnet": 4}]]}}"#,
            999,
            "network configuration: ipam.ranges[0][0].subnet: must be a string, is a number",
        ),
        (
            r#"{"name": "n", "nodename_file_optional": "true"}"#,
            999,
            "network configuration: nodename_file_optional: must be true or false, is a string",
        ),
        (
            r#"{"name": "n", "args": {"projectcalico.org": {"lables": {}}}}"#,
            999,
            "network configuration: args.projectcalico.org.lables: unknown key lables",
        ),
        (
            r#"{"name": "n", "args": {"projectcalico.org": {"orchestrator": "k8s", "pod": "p"}}}"#,
            999,
            "network configuration: args.projectcalico.org.namespace: is needed for orchestrator k8s",
        ),
        (
            r#"{"name": "n", "args": {"projectcalico.org": {"ports": [{"name": "x", "port": 70000}]}}}"#,
            999,
            "network configuration: args.projectcalico.org.ports[0].port: 70000 is out of range",
        ),
        (
            r#"{"name": "n", "args": {"projectcalico.org": {"labels": {"a": 1}}}}"#,
            999,
            "network configuration: args.projectcalico.org.labels: must be an object of strings, is an object",
        ),
    ] {
        let error = CniError::from(NetConf::parse(text).expect_err(text));
        assert_eq!((error.code, error.msg.as_str()), (code, message), "{text}");
    }
    let device = parse(r#"{"name": "n", "device_type": "tap"}"#).device().expect_err("device");
    assert!(device.to_string().contains("unknown device_type \"tap\""), "{device}");
    for version in ["9.9.9", "x"] {
        let error =
            parse(&format!(r#"{{"name": "n", "cniVersion": "{version}"}}"#)).version().expect_err(version);
        assert_eq!((error.code, error.msg.as_str()), (1, "incompatible CNI versions"));
        let details = format!(
            "config is \"{version}\", plugin supports [\"0.1.0\" \"0.2.0\" \"0.3.0\" \"0.3.1\" \"0.4.0\" \"1.0.0\" \"1.1.0\"]"
        );
        assert_eq!(error.details, details);
    }
}
