use serde_json::json;

use super::*;

fn cidr(text: &str) -> Cidr {
    Cidr::parse_strict(text).expect("cidr")
}

fn dual() -> AddResult {
    AddResult {
        interfaces: vec![
            Interface { name: "cali0".into(), ..Interface::default() },
            Interface {
                name: "eth0".into(),
                mac: "02:00:00:00:00:01".into(),
                mtu: 1450,
                sandbox: "/run/netns/x".into(),
            },
        ],
        ips: vec![
            IpConfig { address: cidr("10.0.0.5/32"), gateway: None, interface: Some(1) },
            IpConfig {
                address: cidr("fd00::5/128"),
                gateway: Some("fd00::1".parse().expect("address")),
                interface: Some(1),
            },
        ],
        routes: vec![
            RouteConfig { dst: cidr("10.0.0.5/26"), gw: None },
            RouteConfig { dst: cidr("fd00::5/122"), gw: Some("fd00::1".parse().expect("address")) },
        ],
    }
}

#[test]
fn one_address_per_family_up_to_0_2_0() {
    let want = r#"{
    "cniVersion": "0.2.0",
    "ip4": {
        "ip": "10.0.0.5/32",
        "routes": [
            {
                "dst": "10.0.0.5/26"
            }
        ]
    },
    "ip6": {
        "ip": "fd00::5/128",
        "gateway": "fd00::1",
        "routes": [
            {
                "dst": "fd00::5/122",
                "gw": "fd00::1"
            }
        ]
    },
    "dns": {}
}"#;
    assert_eq!(dual().render(SpecVersion::V0_2_0, "0.2.0"), want);
}

#[test]
fn lists_with_families_up_to_0_4_0() {
    let want = r#"{
    "cniVersion": "0.3.1",
    "interfaces": [
        {
            "name": "cali0"
        },
        {
            "name": "eth0",
            "mac": "02:00:00:00:00:01",
            "sandbox": "/run/netns/x"
        }
    ],
    "ips": [
        {
            "version": "4",
            "interface": 1,
            "address": "10.0.0.5/32"
        },
        {
            "version": "6",
            "interface": 1,
            "address": "fd00::5/128",
            "gateway": "fd00::1"
        }
    ],
    "routes": [
        {
            "dst": "10.0.0.5/26"
        },
        {
            "dst": "fd00::5/122",
            "gw": "fd00::1"
        }
    ],
    "dns": {}
}"#;
    assert_eq!(dual().render(SpecVersion::V0_3_0, "0.3.1"), want);
    assert_eq!(dual().render(SpecVersion::V0_4_0, "0.3.1"), want);
}

#[test]
fn sorted_keys_from_1_0_0() {
    let want = r#"{
    "cniVersion": "1.0.0",
    "interfaces": [
        {
            "name": "cali0"
        },
        {
            "mac": "02:00:00:00:00:01",
            "mtu": 1450,
            "name": "eth0",
            "sandbox": "/run/netns/x"
        }
    ],
    "ips": [
        {
            "address": "10.0.0.5/32",
            "interface": 1
        },
        {
            "address": "fd00::5/128",
            "gateway": "fd00::1",
            "interface": 1
        }
    ],
    "routes": [
        {
            "dst": "10.0.0.5/26"
        },
        {
            "dst": "fd00::5/122",
            "gw": "fd00::1"
        }
    ]
}"#;
    assert_eq!(dual().render(SpecVersion::V1_0_0, "1.0.0"), want);
    assert_eq!(dual().render(SpecVersion::V1_1_0, "1.0.0"), want);
}

#[test]
fn every_form_reads_back() {
    for version in SpecVersion::SUPPORTED {
        let text = dual().render(version, &version.to_string());
        let value: Value = serde_json::from_str(&text).expect("JSON");
        let read = AddResult::parse(&value).expect("own text");
        let addresses = |r: &AddResult| r.ips.iter().map(|ip| ip.address).collect::<Vec<_>>();
        assert_eq!(addresses(&read), addresses(&dual()), "{version}");
        assert_eq!(read.routes, dual().routes, "{version}");
        if version >= SpecVersion::V1_0_0 {
            assert_eq!(read, dual());
        }
    }
}

#[test]
fn broken_results_are_refused() {
    for (value, want) in [
        (json!({"ips": 1}), "ips is no list"),
        (json!({"ips": [{"address": "10.0.0.1"}]}), "ips[0].address is no CIDR"),
        (json!({"interfaces": [{}]}), "interfaces[0] has no name"),
        (json!({"ip4": {"ip": "x"}}), "ip4.ip is no CIDR"),
        (json!({"ip4": {"ip": "10.0.0.1/8", "routes": [{}]}}), "ip4.routes[0].dst is no CIDR"),
    ] {
        assert_eq!(AddResult::parse(&value).expect_err("broken"), want);
    }
    assert_eq!(AddResult::parse(&json!({})), Ok(AddResult::default()));
}
