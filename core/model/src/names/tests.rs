use proptest::prelude::*;
use smol_str::SmolStr;

use super::*;
use crate::key::WorkloadEndpointKey;

fn cidr(text: &str) -> Cidr {
    text.parse().expect("a CIDR")
}

#[test]
fn names_of_ipam_resources() {
    for (text, name) in [
        ("10.7.0.0/26", "10-7-0-0-26"),
        ("10.7.0.9/26", "10-7-0-0-26"),
        ("fd07::/122", "fd07---122"),
        ("fd07:1:2:3:4:5:6:0/124", "fd07-1-2-3-4-5-6-0-124"),
    ] {
        assert_eq!(cidr_name(&cidr(text)), name);
    }
    assert_eq!(block_affinity_name("node1", &cidr("192.168.1.0/30")), "node1-192-168-1-0-30");
    assert_eq!(handle_name("Net.ABC"), "net.abc");
}

#[test]
fn long_affinity_names_are_cut_and_stay_unique() {
    let block = cidr("10.7.0.0/26");
    // Owner, dash and block just fit in 252 characters.
    let fits = "n".repeat(252 - 1 - "10-7-0-0-26".len());
    assert_eq!(block_affinity_name(&fits, &block), format!("{fits}-10-7-0-0-26"));
    let long = format!("{fits}x");
    let name = block_affinity_name(&long, &block);
    assert_eq!(name.len(), 252);
    assert_eq!(&name[..240], format!("{}-10-7-0-0-26", &long[..228]));
    assert_ne!(name, block_affinity_name(&format!("{fits}y"), &block));
    assert!(block_affinity_name(&"é".repeat(300), &block).len() <= 252);
}

#[test]
fn hashes_of_owners() {
    assert_eq!(hostname_hash("node-a"), "PY3TQE2E3XMTETLM2MJO3UITKPFB27YUJ4T4E5XGPEJON3SM4QAA");
    assert_eq!(hostname_hash("node1"), "7DS2CCNJGGLTHBDQLLFO6SX24SY2YDDEG3W2VN556FA2W4DLLV5A");
}

#[test]
fn names_of_interfaces() {
    assert_eq!(pod_interface("", "default", "mypod"), "cali4e199eba087");
    assert_eq!(pod_interface("eni,veth,foo", "namespace", "podname"), "eni82111e10a96");
    assert_eq!(pod_interface(",x", "default", "mypod"), "cali4e199eba087");
    assert_eq!(container_interface("0123456789abcdef"), "cali0123456789a");
    assert_eq!(container_interface("c1"), "calic1");
}

#[test]
fn handles() {
    assert_eq!(pod_handle("k8s-pod-network", "c0ffee"), "k8s-pod-network.c0ffee");
    assert_eq!(legacy_pod_handle("shop", "cart"), "shop.cart");
    assert_eq!(Tunnel::VxlanV6.handle("n1"), "vxlan-v6-tunnel-addr-n1");
    assert_eq!(Tunnel::Ipip.handle("n1"), "ipip-tunnel-addr-n1");
    assert_eq!(Tunnel::Wireguard.attribute(), "wireguardTunnelAddress");
}

#[test]
fn vxlan_macs_come_from_the_name() {
    // SHA-1 of "a" is 86f7e437fa...
    assert_eq!(vxlan_mac("a").to_string(), "66:86:f7:e4:37:fa");
    assert_ne!(vxlan_mac_v6("a"), vxlan_mac("a"));
    assert_eq!(vxlan_mac_v6("a"), vxlan_mac("a-v6"));
}

#[test]
fn uids_are_turned_and_back() {
    for (one, other) in [
        ("41cb1fde-57e7-42c1-a73b-0acaf38c7737", "82d3f87b-eae7-4283-a7dc-5053cf31eeec"),
        ("30316465-6365-4463-ad63-3564622d3638", "0c8c26a6-c6a6-44c6-adc6-ac2646b46c1c"),
    ] {
        assert_eq!(convert_uid(one).as_deref(), Ok(other));
        assert_eq!(convert_uid(other).as_deref(), Ok(one));
        for spelling in [
            one.to_uppercase(),
            one.replace('-', ""),
            format!("{{{one}}}"),
            format!("urn:uuid:{one}"),
            format!("URN:UUID:{one}"),
        ] {
            assert_eq!(convert_uid(&spelling).as_deref(), Ok(other), "{spelling}");
        }
    }
    assert_eq!(convert_uid("5a17c0de"), Err(UidError::Length(8)));
    assert_eq!(convert_uid(""), Err(UidError::Length(0)));
    for bad in [
        "0c17c0de-0001-4b1d-9e02-c0ffee00000z",
        "0c17c0de00001-4b1d-9e02-c0ffee000001",
        "(41cb1fde-57e7-42c1-a73b-0acaf38c7737)",
        "xyz:uuid:41cb1fde-57e7-42c1-a73b-0acaf38c7737",
        "ééééééééééééééééééé",
    ] {
        assert_eq!(convert_uid(bad), Err(UidError::Format), "{bad}");
    }
}

#[test]
fn tiers_and_shown_names() {
    assert_eq!(tier_or_default(""), "default");
    assert_eq!(tier_or_default("blue"), "blue");
    assert!(is_built_in_tier("kube-admin") && !is_built_in_tier("") && !is_built_in_tier("Default"));
    for (stored, tier, shown) in [
        ("default.p", "", "p"),
        ("default.p", "default", "p"),
        ("default.default.p", "", "default.p"),
        ("default.p", "blue", "default.p"),
        ("p", "", "p"),
    ] {
        assert_eq!(shown_policy_name(stored, tier), shown);
    }
}

#[test]
fn profiles_and_what_they_stand_for() {
    assert_eq!(namespace_profile("shop"), "kns.shop");
    assert_eq!(service_account_profile("", "buyer"), "ksa.default.buyer");
    assert_eq!(profile_namespace("kns.a.b"), Some("a.b"));
    assert_eq!(profile_namespace("KNS.a"), None);
    assert_eq!(profile_service_account("ksa.shop.a.b.c"), Some(("shop", "a.b.c")));
    assert_eq!(profile_service_account("ksa.shop."), Some(("shop", "")));
    assert_eq!(profile_service_account("kns.shop"), None);
}

fn ids(node: &str, orchestrator: &str, third: &str, endpoint: &str) -> WorkloadEndpointIds {
    let mut ids = WorkloadEndpointIds {
        node: node.into(),
        orchestrator: orchestrator.into(),
        endpoint: endpoint.into(),
        ..WorkloadEndpointIds::default()
    };
    match orchestrator {
        "k8s" => ids.pod = third.into(),
        "cni" => ids.container_id = third.into(),
        _ => ids.workload = third.into(),
    }
    ids
}

#[test]
fn names_of_workload_endpoints() {
    for (ids, name) in [
        (ids("rack1", "k8s", "cart", "eth0"), "rack1-k8s-cart-eth0"),
        (ids("rack-1", "k8s", "cart-0-x", "eth-0"), "rack--1-k8s-cart--0--x-eth--0"),
        (ids("rack1", "cni", "c0ffee", "eth0"), "rack1-cni-c0ffee-eth0"),
        (ids("rack1", "libnetwork", "w", "ep9"), "rack1-libnetwork-libnetwork-ep9"),
        (ids("rack1", "my-orch", "ns.w-1", "e"), "rack1-my--orch-ns.w--1-e"),
    ] {
        assert_eq!(ids.name().as_deref(), Ok(name));
        assert_eq!(ids.name_prefix().as_deref(), Ok(name));
        assert!(ids.matches(name));
    }
    let rows = [
        (ids("", "k8s", "p", "e"), WorkloadNameError::NoNode),
        (ids("n", "", "p", "e"), WorkloadNameError::Missing("orchestrator")),
        (ids("n", "cni", "", "e"), WorkloadNameError::Missing("containerID")),
        (ids("n", "k8s", "p", ""), WorkloadNameError::Missing("endpoint")),
        (ids("-n", "k8s", "p", "e"), WorkloadNameError::LeadingDash { field: "node", value: "-n".into() }),
        (ids("n", "k8s", "p-", "e"), WorkloadNameError::TrailingDash { field: "pod", value: "p-".into() }),
    ];
    for (ids, error) in rows {
        assert_eq!(ids.name(), Err(error));
    }
}

#[test]
fn prefixes_of_names_match_whole_parts() {
    let name = "rack--1-k8s-cart--0-eth0";
    for (ids, prefix, matches) in [
        (ids("rack-1", "", "", ""), "rack--1-", true),
        (ids("rack-1", "k8s", "", ""), "rack--1-k8s-", true),
        (ids("rack-1", "k8s", "cart-0", ""), "rack--1-k8s-cart--0-", true),
        (ids("rack-1", "k8s", "cart", ""), "rack--1-k8s-cart-", false),
        (ids("rack", "", "", ""), "rack-", false),
        (ids("rack-1", "k8s", "cart-0", "eth1"), "rack--1-k8s-cart--0-eth1", false),
    ] {
        assert_eq!(ids.name_prefix().as_deref(), Ok(prefix));
        assert_eq!(ids.matches(name), matches, "{prefix}");
        assert!(!ids.matches(""));
    }
}

#[test]
fn names_are_read_back() {
    for (name, want) in [
        ("rack--1-k8s-cart--0-eth--0", ids("rack-1", "k8s", "cart-0", "eth-0")),
        ("rack1-k8s", ids("rack1", "k8s", "", "")),
        ("rack1-openstack-vm--1-port", ids("rack1", "openstack", "vm-1", "port")),
        ("a-libnetwork-libnetwork-c", ids("a", "libnetwork", "", "c")),
        ("-a-b-c-d", ids("-a", "b", "c", "d")),
        ("a---b", ids("a-", "b", "", "")),
        ("--", ids("-", "", "", "")),
    ] {
        let mut want = want;
        if want.orchestrator == "libnetwork" {
            want.workload = SmolStr::default();
        }
        assert_eq!(WorkloadEndpointIds::parse(name), Ok(want), "{name}");
    }
    assert_eq!(WorkloadEndpointIds::parse(""), Err(WorkloadNameError::Empty));
    assert_eq!(
        WorkloadEndpointIds::parse("a-k8s-b-c-"),
        Err(WorkloadNameError::Malformed("a-k8s-b-c-".into()))
    );
}

#[test]
fn identity_in_the_model() {
    let key = workload_endpoint_key("shop", "rack.1-k8s-b---c").expect("a full name");
    let want = WorkloadEndpointKey {
        host: "rack.1".into(),
        orchestrator: "k8s".into(),
        workload: "shop/b-".into(),
        endpoint: "c".into(),
    };
    assert_eq!(key, want);
    assert_eq!(status_file_name(&key), "k8s shop%2Fb- c");
    for name in ["", "-", "rack1-k8s-cart", "a-k8s-b-c-", "rack1-k8s-cart-eth0-more", "a-k8s-b-"] {
        assert_eq!(workload_endpoint_key("shop", name), Err(WorkloadNameError::Incomplete), "{name}");
    }
    assert_eq!(workload_endpoint_key("", "a-b-c-d"), Err(WorkloadNameError::Incomplete));
}

proptest! {
    #[test]
    fn any_identifiers_survive_their_name(
        node in "[a-z.]([a-z.-]{0,6}[a-z.])?",
        orchestrator in prop_oneof![Just("k8s".to_owned()), Just("cni".to_owned()), "[a-z]{4,6}"],
        third in "[a-z.]([a-z.-]{0,6}[a-z.])?",
        endpoint in "[a-z.]([a-z.-]{0,6}[a-z.])?",
    ) {
        let ids = ids(&node, &orchestrator, &third, &endpoint);
        let name = ids.name().expect("complete");
        prop_assert_eq!(WorkloadEndpointIds::parse(&name), Ok(ids));
        prop_assert!(workload_endpoint_key("ns", &name).is_ok());
    }

    #[test]
    fn any_text_may_be_a_name(text in "[-aé]{0,12}|.{0,20}") {
        let _ = WorkloadEndpointIds::parse(&text);
        let _ = workload_endpoint_key(&text, &text);
        let _ = convert_uid(&text);
        let _ = pod_interface(&text, &text, &text);
        prop_assert!(split_name(&text).concat().len() <= text.len());
    }
}
