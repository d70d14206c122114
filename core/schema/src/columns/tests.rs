use serde_json::{Value, json};

use super::*;

fn row(kind: Kind, value: &Value, columns: &[Column]) -> String {
    let object = AnyResource::from_value(kind, value).unwrap();
    let context = ColumnContext { as_number: AsNumber(65_001) };
    let cells: Vec<String> =
        columns.iter().map(|c| format!("{}={}", c.heading, (c.cell)(&object, &context))).collect();
    cells.join(" ")
}

#[test]
fn cells_of_every_kind() {
    let n = json!({"name": "x"});
    let rows = [
        (
            Kind::NetworkPolicy,
            json!({"order": 12.5, "selector": "has(a)"}),
            "TIER=default",
            " ORDER=12.5 SELECTOR=has(a)",
        ),
        (Kind::GlobalNetworkPolicy, json!({"tier": "t"}), "TIER=t", " ORDER=<nil> SELECTOR="),
        (
            Kind::Node,
            json!({"bgp": {"ipv4Address": "192.0.2.1/24"}}),
            "",
            "ASN=(65001) IPV4=192.0.2.1/24 IPV6=",
        ),
        (Kind::Node, json!({"bgp": {"asNumber": 7}}), "", "ASN=7 IPV4= IPV6="),
        (Kind::Node, json!({}), "", "ASN= IPV4= IPV6="),
        (Kind::Profile, json!({"labelsToApply": {"b": "2", "a": "1"}}), "", "LABELS=a=1,b=2"),
        (Kind::NetworkSet, json!({"nets": ["10.0.0.0/8", "::1"]}), "", "NETS=10.0.0.0/8,::1"),
        (Kind::IPReservation, json!({"reservedCIDRs": ["10.0.0.0/8"]}), "", "CIDRS=10.0.0.0/8"),
        (
            Kind::HostEndpoint,
            json!({"node": "n", "interfaceName": "e", "expectedIPs": ["::1", "::2"], "profiles": ["p"]}),
            "NODE=n",
            " INTERFACE=e IPS=::1,::2 PROFILES=p",
        ),
        (
            Kind::IPAMConfiguration,
            json!({"strictAffinity": true, "maxBlocksPerHost": 3}),
            "STRICTAFFINITY=true AUTOALLOCATEBLOCKS=false",
            " MAXBLOCKSPERHOST=3",
        ),
        (Kind::Tier, json!({"order": 1e6}), "ORDER=1e+06", ""),
    ];
    for (kind, spec, default, more) in rows {
        let value = json!({"metadata": n, "spec": spec});
        let table = table(kind);
        let line = |text: &str| format!("NAME=x {text}").trim_end().to_owned();
        assert_eq!(row(kind, &value, table.default).trim_end(), line(default), "{kind}");
        assert_eq!(row(kind, &value, table.wide).trim_end(), line(&format!("{default}{more}")), "{kind}");
    }
}

#[test]
fn pools_show_modes_even_if_unset() {
    let value = json!({"metadata": {"name": "x"}, "spec": {"cidr": "10.0.0.0/8", "nodeSelector": "all()"}});
    let table = table(Kind::IPPool);
    assert_eq!(row(Kind::IPPool, &value, table.default), "NAME=x CIDR=10.0.0.0/8 SELECTOR=all()");
    assert_eq!(
        row(Kind::IPPool, &value, table.wide),
        "NAME=x CIDR=10.0.0.0/8 NAT=false IPIPMODE=Never VXLANMODE=Never DISABLED=false DISABLEBGPEXPORT=false \
         SELECTOR=all() ASSIGNMENTMODE="
    );
}

#[test]
fn workloads_show_pod_or_workload() {
    let value = json!({"metadata": {"name": "x"}, "spec": {
        "orchestrator": "k8s", "pod": "p", "node": "n", "ipNetworks": ["10.0.0.1/32"], "interfaceName": "cali1",
        "profiles": ["a", "b"], "ipNATs": [{"internalIP": "10.0.0.1", "externalIP": "192.0.2.1"}],
    }});
    let table = table(Kind::WorkloadEndpoint);
    let common = "WORKLOAD=p NODE=n NETWORKS=10.0.0.1/32 INTERFACE=cali1";
    assert_eq!(row(Kind::WorkloadEndpoint, &value, table.default), common);
    let wide = format!("NAME=x {common} PROFILES=a,b NATS=192.0.2.1->10.0.0.1");
    assert_eq!(row(Kind::WorkloadEndpoint, &value, table.wide), wide);
    assert!(
        table.column("orchestrator").is_some()
            && table.column("Nats").is_some()
            && table.column("x").is_none()
    );
}

#[test]
fn orders_as_go_prints_them() {
    for (value, want) in [
        (0.0, "0"),
        (-7.0, "-7"),
        (0.5, "0.5"),
        (0.0001, "0.0001"),
        (0.00001, "1e-05"),
        (100_000.0, "100000"),
        (123_456.75, "123456.75"),
        (1_000_000.0, "1e+06"),
        (123_456_789_012.0, "1.23456789012e+11"),
        (-2.5e100, "-2.5e+100"),
    ] {
        assert_eq!(order(Some(value)), want);
    }
    assert_eq!(order(None), "<nil>");
}

#[test]
fn long_lists_are_cut() {
    let items: Vec<String> = (0..9).map(|i| format!("10.0.{i}.0/24")).collect();
    assert_eq!(shortened(&items[..6]).len(), 71);
    let text = shortened(&items);
    assert_eq!((text.len(), text.ends_with("...")), (80, true));
    assert_eq!(shortened(&[]), "");
}

#[test]
fn every_kind_has_columns_with_unique_headings() {
    for info in Kind::all() {
        let table = table(info.kind);
        let headings: Vec<&str> = table.all().map(|c| c.heading).collect();
        let mut unique = headings.clone();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), headings.len(), "{}", info.kind);
        assert!(table.default.iter().all(|c| headings.contains(&c.heading)));
    }
}
