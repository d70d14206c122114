use proptest::prelude::*;

use super::*;

fn resource(kind: Kind, namespace: &str, name: &str) -> Key {
    Key::resource(kind, namespace, name)
}

fn cidr(text: &str) -> Cidr {
    text.parse().expect("a CIDR")
}

fn wep(host: &str, orchestrator: &str, workload: &str, endpoint: &str) -> WorkloadEndpointKey {
    WorkloadEndpointKey {
        host: host.into(),
        orchestrator: orchestrator.into(),
        workload: workload.into(),
        endpoint: endpoint.into(),
    }
}

fn policy(kind: Kind, namespace: &str, name: &str) -> PolicyKey {
    PolicyKey { kind, namespace: namespace.into(), name: name.into() }
}

/// Every form of key with its path; the path parses back to the key.
fn table() -> Vec<(Key, &'static str)> {
    let host = || SmolStr::new_static("n1");
    vec![
        (
            resource(Kind::NetworkPolicy, "shop", "p.1"),
            "/calico/resources/v3/projectcalico.org/networkpolicies/shop/p.1",
        ),
        (resource(Kind::Tier, "", "blue"), "/calico/resources/v3/projectcalico.org/tiers/blue"),
        (
            resource(Kind::WorkloadEndpoint, "shop", "a-k8s-b-c"),
            "/calico/resources/v3/projectcalico.org/workloadendpoints/shop/a-k8s-b-c",
        ),
        (
            resource(Kind::IPAMConfiguration, "", "default"),
            "/calico/resources/v3/projectcalico.org/ipamconfigurations/default",
        ),
        (
            resource(Kind::GlobalNetworkSet, "", "100%"),
            "/calico/resources/v3/projectcalico.org/globalnetworksets/100%",
        ),
        (Key::Block(cidr("10.7.0.0/26")), "/calico/ipam/v2/assignment/ipv4/block/10.7.0.0-26"),
        (Key::Block(cidr("fd07::/122")), "/calico/ipam/v2/assignment/ipv6/block/fd07::-122"),
        (
            Key::affinity(AffinityType::Host, "n1", cidr("10.7.0.0/26")),
            "/calico/ipam/v2/host/n1/ipv4/block/10.7.0.0-26",
        ),
        (
            Key::affinity(AffinityType::Virtual, "load-balancer", cidr("fd07::40/122")),
            "/calico/ipam/v2/virtual/load-balancer/ipv6/block/fd07::40-122",
        ),
        (Key::IpamHandle("net.c0ffee".into()), "/calico/ipam/v2/handle/net.c0ffee"),
        (Key::IpamConfig, "/calico/ipam/v2/config"),
        (Key::IpamHost(host()), "/calico/ipam/v2/host/n1"),
        (
            Key::HostEndpointStatus { host: host(), endpoint: "a/b".into() },
            "/calico/felix/v1/host/n1/endpoint/a%2fb",
        ),
        (
            Key::WorkloadEndpointStatus {
                region: "region-eu".into(),
                endpoint: wep("n1", "k8s", "shop/cart", "eth0"),
            },
            "/calico/felix/v2/region-eu/host/n1/workload/k8s/shop%2fcart/endpoint/eth0",
        ),
        (
            Key::ActiveStatusReport { region: "no-region".into(), host: host() },
            "/calico/felix/v2/no-region/host/n1/status",
        ),
        (
            Key::LastStatusReport { region: "no-region".into(), host: host() },
            "/calico/felix/v2/no-region/host/n1/last_reported_status",
        ),
        (Key::ReadyFlag, "/calico/v1/Ready"),
        (Key::GlobalConfig("A/B".into()), "/calico/v1/config/A/B"),
        (Key::HostConfig { host: host(), name: "A/B/C".into() }, "/calico/v1/host/n1/config/A/B/C"),
        (Key::HostIp(host()), "/calico/v1/host/n1/metadata"),
        (Key::OrchRefs(host()), "/calico/v1/host/n1/orchestrator_refs"),
        (Key::Wireguard(host()), "/calico/v1/host/n1/wireguard"),
        (Key::HostEndpoint { host: host(), endpoint: "e%1".into() }, "/calico/v1/host/n1/endpoint/e%251"),
        (
            Key::WorkloadEndpoint(wep("n1", "k8s", "shop/cart", "eth0")),
            "/calico/v1/host/n1/workload/k8s/shop%2fcart/endpoint/eth0",
        ),
        (Key::IpPool(cidr("10.7.0.0/16")), "/calico/v1/ipam/v4/pool/10.7.0.0-16"),
        (Key::NetworkSet("shop/nets".into()), "/calico/v1/netset/shop%2fnets"),
        (Key::Tier("blue".into()), "/calico/v1/policy/tier/blue/metadata"),
        (Key::ProfileRules("kns.shop".into()), "/calico/v1/policy/profile/kns.shop/rules"),
        (Key::ProfileLabels("a/b%".into()), "/calico/v1/policy/profile/a%2fb%25/labels"),
        (Key::Policy(policy(Kind::NetworkPolicy, "shop", "p1")), "/calico/v1/policy/NetworkPolicy/shop/p1"),
        (
            Key::Policy(policy(Kind::GlobalNetworkPolicy, "", "p1")),
            "/calico/v1/policy/GlobalNetworkPolicy//p1",
        ),
        (Key::GlobalBgpConfig("as_num".into()), "/calico/bgp/v1/global/as_num"),
        (Key::NodeBgpConfig { host: host(), name: "ip_addr_v4".into() }, "/calico/bgp/v1/host/n1/ip_addr_v4"),
        (
            Key::GlobalBgpPeer { ip: [10, 0, 0, 1].into(), port: 179 },
            "/calico/bgp/v1/global/peer_v4/10.0.0.1",
        ),
        (
            Key::NodeBgpPeer { host: host(), ip: "fd00::1".parse().expect("an address"), port: 1179 },
            "/calico/bgp/v1/host/n1/peer_v6/fd00::1-1179",
        ),
    ]
}

#[test]
fn paths_of_all_keys() {
    for (key, path) in table() {
        assert_eq!(key.to_path(), path);
        assert_eq!(Key::parse_path(path).as_ref(), Some(&key), "{path}");
        assert_eq!(key.missing_identifier(), None, "{path}");
        assert!(!key.to_string().is_empty());
    }
}

#[test]
fn the_leading_slash_is_optional_except_for_objects() {
    for (key, path) in table() {
        let bare = Key::parse_path(&path[1..]);
        match key {
            Key::Resource(_) | Key::ReadyFlag => assert_eq!(bare, None, "{path}"),
            key => assert_eq!(bare, Some(key), "{path}"),
        }
    }
}

#[test]
fn what_is_no_key() {
    for path in [
        "",
        "/",
        "garbage",
        "/calico",
        "/calico/",
        "/calico/resources/v3/projectcalico.org/tiers",
        "/calico/resources/v3/projectcalico.org/tiers/",
        "/calico/resources/v3/projectcalico.org/widgets/w",
        "/calico/resources/v3/projectcalico.org/Tiers/blue",
        "/calico/resources/v3/projectcalico.org/networkpolicies/p1",
        "/calico/resources/v3/projectcalico.org/networkpolicies//p1",
        "/calico/resources/v3/projectcalico.org/globalnetworkpolicies/a/b",
        "/calico/resources/v3/other/tiers/blue",
        "/calico/ipam/v2/assignment/ipv4/block/10.7.0.0",
        "/calico/ipam/v2/assignment/ipv4/block/10.7.0.0-33",
        "/calico/ipam/v2/assignment/ipv4/block/10.7.0.1-26",
        "/calico/ipam/v2/assignment/ipv6/block/10.7.0.0-26",
        "/calico/ipam/v2/assignment/ipv4/block/10.7.0.0-+6",
        "/calico/ipam/v2/handle/",
        "/calico/ipam/v2/handle/a/b",
        "/calico/ipam/v2/host//ipv4/block/10.7.0.0-26",
        "/calico/v1/policy",
        "/calico/v1/policy/profile/x",
        "/calico/v1/policy/tier/blue",
        "/calico/v1/policy/NetworkPolicy/shop",
        "/calico/v1/policy/Odd/shop/p1",
        "/calico/v1/policy/Node//p1",
        "/calico/v1/config/",
        "/calico/bgp/v1/global/peer_v6/10.0.0.1",
        "/calico/bgp/v1/global/peer_v4/10.0.0.1-x",
        "/calico/felix/v2//host/n1/status",
    ] {
        assert_eq!(Key::parse_path(path), None, "{path}");
    }
}

#[test]
fn old_policy_paths_are_upgraded() {
    let rows = [
        ("blue/policy/p1", Kind::GlobalNetworkPolicy, "", "p1", "blue"),
        ("blue/policy/shop%2fp1", Kind::NetworkPolicy, "shop", "p1", "blue"),
        ("default/policy/shop%2fa%2fb", Kind::NetworkPolicy, "shop", "a/b", "default"),
        ("default/policy/shop%2fknp.default.p", Kind::KubernetesNetworkPolicy, "shop", "p", "default"),
        (
            "default/policy/shop%2fstaged:knp.default.p",
            Kind::StagedKubernetesNetworkPolicy,
            "shop",
            "p",
            "default",
        ),
        ("default/policy/shop%2fstaged:p", Kind::StagedNetworkPolicy, "shop", "p", "default"),
        ("default/policy/staged:p", Kind::StagedGlobalNetworkPolicy, "", "p", "default"),
        ("kube-admin/policy/kcnp.p", Kind::KubernetesClusterNetworkPolicy, "", "p", "kube-admin"),
        ("default/policy/default.p", Kind::GlobalNetworkPolicy, "", "default.p", "default"),
    ];
    for (rest, kind, namespace, name, tier) in rows {
        let path = format!("/calico/v1/policy/tier/{rest}");
        let key = policy(kind, namespace, name);
        assert_eq!(parse_legacy_policy(&path), Some((key.clone(), tier.into())), "{path}");
        assert_eq!(Key::parse_path(&path), Some(Key::Policy(key)), "{path}");
    }
    for path in
        ["/calico/v1/policy/tier/a/b/policy/p", "/calico/v1/policy/tier/a/policy/", "/calico/v1/policy/p"]
    {
        assert_eq!(parse_legacy_policy(path), None, "{path}");
    }
}

#[test]
fn a_tier_is_deleted_as_a_folder() {
    assert_eq!(Key::Tier("blue".into()).delete_path(), "/calico/v1/policy/tier/blue");
    assert_eq!(Key::ReadyFlag.delete_path(), "/calico/v1/Ready");
}

#[test]
fn identifiers_that_are_missing() {
    let rows = [
        (resource(Kind::NetworkPolicy, "", "p"), Some("namespace")),
        (resource(Kind::NetworkPolicy, "shop", ""), Some("name")),
        (resource(Kind::Tier, "", ""), Some("name")),
        (Key::Policy(policy(Kind::NetworkPolicy, "", "p")), Some("namespace")),
        (Key::IpamHandle("".into()), Some("id")),
        (Key::WorkloadEndpoint(wep("n", "", "w", "e")), Some("orchestrator")),
        (Key::IpamConfig, None),
    ];
    for (key, missing) in rows {
        assert_eq!(key.missing_identifier(), missing, "{key}");
    }
}

#[test]
fn lists_cover_their_keys() {
    let object = |kind, namespace: Option<&str>, name: Option<&str>, prefix| ListOptions::Resource {
        kind,
        namespace: namespace.map(Into::into),
        name: name.map(Into::into),
        prefix,
    };
    let np = Kind::NetworkPolicy;
    let root = |rest: &str| format!("{RESOURCES_ROOT}{rest}");
    let rows = [
        (ListOptions::kind(Kind::Tier), KeyRange::Prefix(root("tiers/"))),
        (object(Kind::Tier, None, Some("a"), false), KeyRange::Exact(root("tiers/a"))),
        (object(Kind::Tier, None, Some("a"), true), KeyRange::Prefix(root("tiers/a"))),
        (object(Kind::Tier, Some("x"), Some("a"), false), KeyRange::Exact(root("tiers/a"))),
        (ListOptions::kind(np), KeyRange::Prefix(root("networkpolicies/"))),
        (object(np, Some("shop"), None, false), KeyRange::Prefix(root("networkpolicies/shop/"))),
        (object(np, Some("shop"), Some("a"), false), KeyRange::Exact(root("networkpolicies/shop/a"))),
        (object(np, Some("shop"), Some("a"), true), KeyRange::Prefix(root("networkpolicies/shop/a"))),
        (object(np, None, Some("a"), true), KeyRange::Prefix(root("networkpolicies/"))),
        (object(np, Some(""), Some("a"), false), KeyRange::Prefix(root("networkpolicies/"))),
        (
            ListOptions::Blocks { version: Some(IpVersion::V6) },
            KeyRange::Prefix("/calico/ipam/v2/assignment/ipv6/block/".into()),
        ),
        (
            ListOptions::BlockAffinities { affinity: AffinityType::Host, owner: None, version: None },
            KeyRange::Prefix("/calico/ipam/v2/host/".into()),
        ),
        (
            ListOptions::BlockAffinities {
                affinity: AffinityType::Virtual,
                owner: Some("lb".into()),
                version: Some(IpVersion::V4),
            },
            KeyRange::Prefix("/calico/ipam/v2/virtual/lb/ipv4/block/".into()),
        ),
        (ListOptions::Handles, KeyRange::Prefix("/calico/ipam/v2/handle/".into())),
        (ListOptions::IpamConfig, KeyRange::Exact("/calico/ipam/v2/config".into())),
        (
            ListOptions::FelixStatus { region: "no-region".into(), host: Some("n1".into()) },
            KeyRange::Prefix("/calico/felix/v2/no-region/host/n1/".into()),
        ),
    ];
    for (options, range) in rows {
        assert_eq!(options.range(), range);
        assert_eq!(options.root_path(), range.start());
        for (key, path) in table() {
            assert!(!options.matches(&key) || range.contains(path), "{options:?} {path}");
        }
    }
    let all = object(np, None, Some("a"), true);
    assert!(all.matches(&resource(np, "x", "ab")));
    assert!(!all.matches(&resource(np, "x", "b")));
    assert!(!object(np, Some("y"), None, false).matches(&resource(np, "x", "ab")));
    let v6 = ListOptions::BlockAffinities {
        affinity: AffinityType::Host,
        owner: None,
        version: Some(IpVersion::V6),
    };
    assert!(!v6.matches(&Key::affinity(AffinityType::Host, "n", cidr("10.0.0.0/26"))));
    assert!(v6.matches(&Key::affinity(AffinityType::Host, "n", cidr("fd00::/122"))));
}

#[test]
fn ends_of_ranges() {
    assert_eq!(KeyRange::Prefix("/a/".into()).end(), Some(b"/a0".to_vec()));
    assert_eq!(KeyRange::Exact("/a".into()).end(), Some(b"/a\0".to_vec()));
    assert_eq!(KeyRange::Prefix(String::new()).end(), None);
}

/// Names without `/`, and without what looks like an escape where names are written as they are.
fn plain() -> impl Strategy<Value = SmolStr> {
    "[a-zA-Z0-9._: -]{1,12}".prop_map(SmolStr::from)
}

/// Names of the escaped kind: anything.
fn free() -> impl Strategy<Value = SmolStr> {
    proptest::collection::vec(
        prop_oneof![Just("%".to_owned()), Just("/".to_owned()), Just("%2f25F".to_owned()), "[a-z.é]"],
        1..8,
    )
    .prop_map(|parts| parts.concat().into())
}

fn any_cidr() -> impl Strategy<Value = Cidr> {
    prop_oneof![
        (any::<u32>(), 0u8..=32).prop_map(|(bits, len)| (IpAddr::from(bits.to_be_bytes()), len)),
        (any::<u128>(), 0u8..=128)
            .prop_map(|(bits, len)| (IpAddr::from(bits.to_be_bytes()).to_canonical(), len)),
    ]
    .prop_filter_map("length fits", |(ip, len)| Cidr::new(ip, len).map(|cidr| cidr.masked()))
    .prop_filter("canonical family", |cidr| cidr.addr() == cidr.addr().to_canonical())
}

fn any_key() -> impl Strategy<Value = Key> {
    let kind = (0..Kind::all().len()).prop_map(|i| Kind::all()[i].kind);
    let policy_kind = kind.clone().prop_filter("policy", |kind| is_policy(*kind));
    let workload = || (plain(), free(), free(), free()).prop_map(|(h, o, w, e)| wep(&h, &o, &w, &e));
    prop_oneof![
        (kind, plain(), plain()).prop_map(|(kind, namespace, name)| {
            Key::resource(kind, if kind.namespaced() { namespace } else { SmolStr::default() }, name)
        }),
        (policy_kind, plain(), plain())
            .prop_map(|(kind, namespace, name)| { Key::Policy(PolicyKey { kind, namespace, name }) }),
        any_cidr().prop_map(Key::Block),
        any_cidr().prop_map(Key::IpPool),
        (any::<bool>(), plain(), any_cidr()).prop_map(|(host, owner, cidr)| {
            Key::affinity(if host { AffinityType::Host } else { AffinityType::Virtual }, owner, cidr)
        }),
        workload().prop_map(Key::WorkloadEndpoint),
        (plain(), workload()).prop_map(|(region, endpoint)| Key::WorkloadEndpointStatus { region, endpoint }),
        (plain(), free()).prop_map(|(host, endpoint)| Key::HostEndpoint { host, endpoint }),
        (plain(), plain()).prop_map(|(host, name)| Key::HostConfig { host, name }),
        free().prop_map(Key::NetworkSet),
        free().prop_map(Key::ProfileRules),
        plain().prop_map(Key::IpamHandle),
    ]
}

proptest! {
    #[test]
    fn keys_survive_their_paths(key in any_key()) {
        prop_assert_eq!(Key::parse_path(&key.to_path()), Some(key));
    }

    #[test]
    fn escapes_are_undone(name in free()) {
        let escaped = escape(&name);
        prop_assert!(!escaped.contains('/'));
        let back = unescape(&escaped);
        prop_assert_eq!(&*back, name.as_str());
    }

    #[test]
    fn any_text_is_a_key_or_none(text in ".{0,80}") {
        let _ = Key::parse_path(&text);
        let _ = parse_legacy_policy(&text);
    }

    #[test]
    fn paths_of_parsed_texts_are_stable(
        parts in proptest::collection::vec(
            prop_oneof![
                Just("v1"), Just("v2"), Just("v3"), Just("policy"), Just("tier"), Just("host"), Just("ipam"),
                Just("felix"), Just("bgp"), Just("config"), Just("endpoint"), Just("workload"), Just("block"),
                Just("ipv4"), Just("10.0.0.0-26"), Just("assignment"), Just("profile"), Just("rules"), Just(""),
                Just("resources"), Just("projectcalico.org"), Just("tiers"), Just("a%2fb"), Just("peer_v4"),
                Just("NetworkPolicy"), Just("global"), Just("virtual"), Just("status"), Just("netset"),
            ],
            0..18,
        )
    ) {
        let text = format!("/calico/{}", parts.join("/"));
        if let Some(key) = Key::parse_path(&text) {
            prop_assert!(!key.to_path().is_empty());
        }
    }
}
