use super::*;

fn conf(extra: &str) -> NetConf {
    NetConf::parse(&format!(r#"{{"name": "net"{extra}}}"#)).expect("configuration")
}

fn workload(conf: &NetConf, args: &str) -> Workload {
    let env = [
        ("CNI_COMMAND", "ADD"),
        ("CNI_CONTAINERID", "0123456789abcdef"),
        ("CNI_NETNS", "/n"),
        ("CNI_IFNAME", "eth0"),
        ("CNI_PATH", "/p"),
    ];
    let request =
        Request::from_env(&|name| env.iter().find(|(k, _)| *k == name).map(|(_, v)| (*v).to_owned()));
    let request = request.expect("sound").expect("a verb");
    let args = Args::parse(args, true).expect("args");
    Workload::identify(conf, &request, &args, "node-1".into(), "")
}

const K8S: &str = r#", "args": {"projectcalico.org": {"orchestrator": "k8s", "namespace": "shop", "pod": "web-1",
        "serviceAccount": "sa", "labels": {"app": "web", "projectcalico.org/namespace": "lies"},
        "ports": [{"name": "http", "port": 80}, {"name": "dns", "protocol": "UDP", "port": 53}]}}"#;

#[test]
fn identities() {
    for (conf_text, args, name, namespace, interface, handle, legacy) in [
        (
            "",
            "",
            "node--1-cni-0123456789abcdef-eth0",
            "default",
            "cali0123456789a",
            "net.0123456789abcdef",
            "0123456789abcdef",
        ),
        (
            "",
            "CNI_TEST_NAMESPACE=lab;K8S_POD_NAMESPACE=x",
            "node--1-cni-0123456789abcdef-eth0",
            "lab",
            "cali0123456789a",
            "net.0123456789abcdef",
            "0123456789abcdef",
        ),
        (
            "",
            "K8S_POD_NAME=mypod;K8S_POD_NAMESPACE=default",
            "node--1-k8s-mypod-eth0",
            "default",
            "cali4e199eba087",
            "net.0123456789abcdef",
            "default.mypod",
        ),
        (
            r#", "args": {"org.apache.mesos": {"network_info": {"labels": {"labels": [
                    {"key": "projectcalico.org/namespace", "value": "shop"}]}}}}"#,
            "",
            "node--1-cni-0123456789abcdef-eth0",
            "shop",
            "cali0123456789a",
            "net.0123456789abcdef",
            "0123456789abcdef",
        ),
        (K8S, "", "node--1-k8s-web--1-eth0", "shop", "cali751425ce827", "net.0123456789abcdef", "shop.web-1"),
        (
            r#", "args": {"projectcalico.org": {"orchestrator": "nomad", "pod": "job"}}"#,
            "",
            "node--1-nomad-job-eth0",
            "default",
            "cali0123456789a",
            "net.0123456789abcdef",
            "0123456789abcdef",
        ),
    ] {
        let conf = conf(conf_text);
        let w = workload(&conf, args);
        assert_eq!(w.ids.name().expect("name"), name);
        assert_eq!(w.namespace, namespace, "{name}");
        assert_eq!(w.host_interface, interface, "{name}");
        assert_eq!((w.handle(), w.legacy_handle()), (handle.to_owned(), legacy.to_owned()), "{name}");
        assert!(w.without_interface().matches(name), "{name}");
    }
}

#[test]
fn endpoints_of_pods_told_by_arguments() {
    let conf = conf(K8S);
    let w = workload(&conf, "");
    let ips = ["10.0.0.5".parse().expect("v4"), "fd00::5".parse().expect("v6")];
    let endpoint = w.endpoint(&conf, None, &ips, Mac([2, 0, 0, 0, 0, 1])).expect("endpoint");
    let labels: Vec<_> = endpoint.metadata.labels.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    assert_eq!(
        labels,
        [
            ("app", "web"),
            ("projectcalico.org/namespace", "shop"),
            ("projectcalico.org/orchestrator", "k8s"),
            ("projectcalico.org/serviceaccount", "sa"),
        ]
    );
    let spec = &endpoint.spec;
    assert_eq!(spec.profiles, ["kns.shop", "ksa.shop.sa"]);
    assert_eq!(spec.ip_networks, ["10.0.0.5/32", "fd00::5/128"]);
    assert_eq!((spec.pod.as_str(), spec.container_id.as_str()), ("web-1", "0123456789abcdef"));
    let ports: Vec<_> = spec.ports.iter().map(|p| (p.name.as_str(), p.port, p.protocol.clone())).collect();
    assert_eq!(
        ports,
        [("http", 80, Some(Protocol::parse("TCP"))), ("dns", 53, Some(Protocol::parse("UDP")))]
    );
    assert!(!w.needs_network_profile(&endpoint));
    let bad = conf_with_protocol();
    let error = workload(&bad, "").endpoint(&bad, None, &ips, Mac([0; 6])).expect_err("protocol");
    assert!(error.to_string().contains("protocol carrier pigeon has no ports"), "{error}");
}

fn conf_with_protocol() -> NetConf {
    conf(
        r#", "args": {"projectcalico.org": {"orchestrator": "k8s", "namespace": "a", "pod": "b",
                "ports": [{"name": "x", "protocol": "carrier pigeon", "port": 1}]}}"#,
    )
}

#[test]
fn endpoints_and_profiles_of_plain_containers() {
    let conf = conf("");
    let w = workload(&conf, "");
    let ips = ["10.0.0.5".parse().expect("v4")];
    let endpoint = w.endpoint(&conf, None, &ips, Mac([2, 0, 0, 0, 0, 1])).expect("endpoint");
    assert_eq!(endpoint.spec.profiles, ["net"]);
    assert!(w.needs_network_profile(&endpoint));
    let profile = w.network_profile();
    assert_eq!(profile.spec.ingress[0].source.selector, "has(net)");
    assert!(profile.spec.labels_to_apply.contains_key("net"));
    let pod = workload(&conf, "K8S_POD_NAME=p;K8S_POD_NAMESPACE=n");
    assert_eq!(pod.network_profile().spec.ingress[0].source.selector, "");
    let mut other = endpoint;
    assert!(!w.is_foreign(&other));
    other.spec.container_id = "another".into();
    assert!(w.is_foreign(&other));
    other.spec.container_id.clear();
    assert!(!w.is_foreign(&other));
}

#[test]
fn labels_of_mesos() {
    for (text, want) in [
        ("plain", "plain"),
        ("com.example/app", "com.example.app"),
        ("a b", "a-b"),
        ("a-/-b", "a.b"),
        ("a--b", "a--b"),
        ("/a/", "a"),
        ("_a_", "a"),
        ("ü", ""),
    ] {
        assert_eq!(label_text(text), want, "{text}");
    }
}
