use calico_api::{AllowedUse, Condition, IPPoolSpec, IPPoolStatus};

use super::*;

fn object(name: &str, cidr: &str, change: impl FnOnce(&mut IPPool)) -> AnyResource {
    let mut pool = IPPool::default();
    pool.metadata.name = name.to_owned();
    pool.spec = IPPoolSpec { cidr: cidr.to_owned(), ..IPPoolSpec::default() };
    change(&mut pool);
    pool.into_any()
}

fn labels(pairs: &[(&str, &str)]) -> Labels {
    pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
}

fn names(result: Result<Vec<&Pool>, IpamError>) -> Result<Vec<&str>, String> {
    result.map(|pools| pools.into_iter().map(|p| p.name.as_str()).collect()).map_err(|e| e.to_string())
}

fn wishes<'a>(node: &'a Labels, namespace: &'a Labels, requested: &'a [Cidr]) -> PoolWishes<'a> {
    PoolWishes {
        version: IpVersion::V4,
        node: "n1",
        node_labels: node,
        namespace_labels: namespace,
        requested,
        reserved_per_block: 0,
    }
}

#[test]
fn defaults_hold_where_nothing_is_said() {
    let pool = Pool::from_resource(&object("a", "10.0.0.7/16", |_| {})).unwrap();
    assert_eq!((pool.cidr.to_string().as_str(), pool.block_len), ("10.0.0.0/16", 26));
    assert!(pool.enabled && pool.automatic && pool.allows("Workload") && pool.allows("Tunnel"));
    assert!(!pool.allows("LoadBalancer"));
    assert_eq!(Pool::from_resource(&object("b", "fd00::/64", |_| {})).unwrap().block_len, 122);
    assert_eq!(Pool::from_resource(&object("c", "what", |_| {})), None);
    assert_eq!(Pool::from_resource(&object("d", "10.0.0.0/16", |p| p.spec.block_size = 40)), None);
}

#[test]
fn what_disables_a_pool() {
    let enabled =
        |change: fn(&mut IPPool)| Pool::from_resource(&object("a", "10.0.0.0/16", change)).unwrap().enabled;
    assert!(!enabled(|p| p.spec.disabled = true));
    assert!(!enabled(|p| p.metadata.deletion_timestamp = calico_api::Timestamp::from_second(1)));
    let condition = |status: &str| IPPoolStatus {
        conditions: vec![Condition {
            condition_type: "Allocatable".to_owned(),
            status: status.to_owned(),
            ..Condition::default()
        }],
    };
    let with = |status: &str| {
        let object = object("a", "10.0.0.0/16", |p| p.status = Some(condition(status)));
        Pool::from_resource(&object).unwrap().enabled
    };
    assert!(with("True") && with("Unknown") && !with("False"));
}

#[test]
fn selectors_and_mode_decide_unless_a_pool_is_named() {
    let objects = [
        object("east", "10.0.0.0/16", |p| p.spec.node_selector = "zone == 'east'".to_owned()),
        object("manual", "10.1.0.0/16", |p| p.spec.assignment_mode = Some(AssignmentMode::Manual)),
        object("red", "10.2.0.0/16", |p| p.spec.namespace_selector = "team == 'red'".to_owned()),
        object("six", "fd00::/64", |_| {}),
        object("off", "10.3.0.0/16", |p| p.spec.disabled = true),
    ];
    let pools = Pool::from_resources(&objects);
    let (east, west) = (labels(&[("zone", "east")]), labels(&[("zone", "west")]));
    let (red, none) = (labels(&[("team", "red")]), Labels::new());
    assert_eq!(names(select(&pools, &wishes(&east, &red, &[]))), Ok(vec!["east", "red"]));
    assert_eq!(names(select(&pools, &wishes(&east, &none, &[]))), Ok(vec!["east"]));
    assert_eq!(
        names(select(&pools, &wishes(&west, &none, &[]))),
        Err("no configured Calico pools for node n1".to_owned())
    );
    let named: Vec<Cidr> = vec!["10.1.0.0/16".parse().unwrap(), "10.2.0.0/16".parse().unwrap()];
    assert_eq!(names(select(&pools, &wishes(&west, &none, &named))), Ok(vec!["manual", "red"]));
    let off: Vec<Cidr> = vec!["10.3.0.0/16".parse().unwrap()];
    assert_eq!(
        names(select(&pools, &wishes(&west, &none, &off))),
        Err("the given pool (10.3.0.0/16) does not exist, or is not enabled".to_owned())
    );
    let none_enabled = Pool::from_resources(&objects[4..]);
    assert_eq!(
        names(select(&none_enabled, &wishes(&west, &none, &[]))),
        Err("cannot find a qualified ippool".to_owned())
    );
}

#[test]
fn reserved_addresses_need_room_in_each_block() {
    let objects = [
        object("small", "10.0.0.0/16", |p| p.spec.block_size = 30),
        object("large", "10.1.0.0/16", |p| p.spec.block_size = 29),
    ];
    let pools = Pool::from_resources(&objects);
    let none = Labels::new();
    let wishes = PoolWishes { reserved_per_block: 4, ..wishes(&none, &none, &[]) };
    assert_eq!(names(select(&pools, &wishes)), Ok(vec!["large"]));
}

#[test]
fn uses_filter_and_bad_selectors_name_the_pool() {
    let objects = [
        object("tunnels", "10.0.0.0/16", |p| p.spec.allowed_uses = vec![AllowedUse::Tunnel]),
        object("bad", "10.1.0.0/16", |p| p.spec.node_selector = "zone ==".to_owned()),
    ];
    let pools = Pool::from_resources(&objects);
    let all: Vec<&Pool> = pools.iter().take(1).collect();
    assert_eq!(names(filter_use(&all, "Tunnel")), Ok(vec!["tunnels"]));
    assert_eq!(
        names(filter_use(&all, "Workload")),
        Err("cannot find a qualified ippool, no pools match the required use (Workload)".to_owned())
    );
    let none = Labels::new();
    let text = names(select(&pools, &wishes(&none, &none, &[]))).unwrap_err();
    assert!(text.starts_with("IP pool \"bad\" has a selector that cannot be read: zone ==:"), "{text}");
}
