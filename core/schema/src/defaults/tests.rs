use calico_api::{
    FelixConfiguration, GlobalNetworkPolicy, IPPool, Kind, NetworkPolicy, Resource, Tier, WorkloadEndpoint,
};
use serde_json::json;

use super::*;

fn defaulted<R: Resource>(spec: serde_json::Value) -> R {
    let value = json!({"metadata": {"name": "x", "namespace": "ns"}, "spec": spec});
    let mut object = AnyResource::from_value_strict(R::KIND, &value).unwrap();
    apply(&mut object, Op::Create);
    let once = object.clone();
    apply(&mut object, Op::Update);
    assert_eq!(object, once, "defaults applied twice");
    R::from_any(object).unwrap()
}

#[test]
fn policies_get_types_tier_and_label() {
    use PolicyType::{Egress, Ingress};
    for (spec, want) in [
        (json!({}), vec![Ingress]),
        (json!({"ingress": [{"action": "Allow"}]}), vec![Ingress]),
        (json!({"egress": [{"action": "Allow"}]}), vec![Egress]),
        (json!({"ingress": [{"action": "Allow"}], "egress": [{"action": "Allow"}]}), vec![Ingress, Egress]),
        (json!({"types": ["Egress", "Ingress"]}), vec![Egress, Ingress]),
    ] {
        let policy: NetworkPolicy = defaulted(spec.clone());
        assert_eq!(policy.spec.types, want);
        assert_eq!(policy.spec.tier, "default");
        assert_eq!(policy.metadata.labels[TIER_LABEL], "default");
        let policy: GlobalNetworkPolicy = defaulted(spec);
        assert_eq!(policy.spec.types, want);
    }
    let policy: GlobalNetworkPolicy = defaulted(json!({"tier": "web"}));
    assert_eq!((policy.spec.tier.as_str(), policy.metadata.labels[TIER_LABEL].as_str()), ("web", "web"));
}

#[test]
fn tiers_get_order_and_action() {
    let tier: Tier = defaulted(json!({}));
    assert_eq!((tier.spec.order, tier.spec.default_action), (Some(1e6), Some(DefaultAction::Deny)));
    let tier: Tier = defaulted(json!({"order": 0, "defaultAction": "Pass"}));
    assert_eq!((tier.spec.order, tier.spec.default_action), (Some(0.0), Some(DefaultAction::Pass)));
}

#[test]
fn pools_get_everything_but_their_addresses() {
    let pool: IPPool = defaulted(json!({"cidr": "fd00:0::/64"}));
    assert_eq!(
        calico_api::gojson::to_string(&pool.spec).unwrap(),
        r#"{"cidr":"fd00::/64","vxlanMode":"Never","ipipMode":"Never","blockSize":122,"nodeSelector":"all()","allowedUses":["Workload","Tunnel"],"assignmentMode":"Automatic"}"#
    );
    let pool: IPPool = defaulted(json!({"cidr": "::ffff:10.9.0.0/112"}));
    assert_eq!((pool.spec.cidr.as_str(), pool.spec.block_size), ("10.9.0.0/16", 26));
    let pool: IPPool = defaulted(json!({"cidr": "10.9.0.1/16", "blockSize": 28, "ipipMode": "Always"}));
    assert_eq!((pool.spec.cidr.as_str(), pool.spec.block_size), ("10.9.0.1/16", 28));
    assert_eq!(pool.spec.ipip_mode, EncapMode::Always);
}

#[test]
fn the_deprecated_load_balancing_switch_decides() {
    for (spec, mode, nat) in [
        (json!({}), "TCP", "Enabled"),
        (json!({"bpfConnectTimeLoadBalancing": "Enabled"}), "Enabled", "Enabled"),
        (json!({"bpfConnectTimeLoadBalancingEnabled": true}), "Enabled", "Disabled"),
        (
            json!({"bpfConnectTimeLoadBalancingEnabled": false, "bpfConnectTimeLoadBalancing": "TCP"}),
            "Disabled",
            "Disabled",
        ),
    ] {
        let config: FelixConfiguration = defaulted(spec);
        assert_eq!(config.spec.bpf_connect_time_load_balancing, mode);
        assert_eq!(config.spec.bpf_host_networked_nat_without_ctlb, nat);
        assert_eq!(config.spec.floating_ips, "Disabled");
        assert_eq!(config.spec.nftables_mode, "Auto");
        assert_eq!(config.spec.nftables_flow_table_offload, "Disabled");
    }
}

#[test]
fn workload_endpoints_get_their_labels() {
    let endpoint: WorkloadEndpoint = defaulted(json!({"orchestrator": "cni"}));
    assert_eq!(endpoint.metadata.labels[NAMESPACE_LABEL], "ns");
    assert_eq!(endpoint.metadata.labels[ORCHESTRATOR_LABEL], "cni");
}

#[test]
fn reading_only_fills_gaps() {
    let read = |kind, value: serde_json::Value| {
        let mut object = AnyResource::from_value(kind, &value).unwrap();
        apply_on_read(&mut object);
        object
    };
    let policy = read(Kind::NetworkPolicy, json!({"spec": {"tier": "web"}}));
    assert_eq!(policy.metadata().labels[TIER_LABEL], "default");
    let policy = read(Kind::NetworkPolicy, json!({"metadata": {"labels": {TIER_LABEL: "web"}}}));
    assert_eq!(policy.metadata().labels[TIER_LABEL], "web");
    let pool = IPPool::from_any(read(Kind::IPPool, json!({"spec": {"cidr": "10.9.0.0/16"}}))).unwrap();
    assert_eq!(pool.spec.block_size, 26);
    let tier = Tier::from_any(read(Kind::Tier, json!({}))).unwrap();
    assert_eq!(tier.spec.order, Some(DEFAULT_TIER_ORDER));
}
