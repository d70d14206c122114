use calico_model::ipam::AllocationAttribute;

use super::*;

const VXLAN: PoolFacts = PoolFacts { kind: PoolType::Vxlan, nat_outgoing: false, cross_subnet: false };

fn cidr(text: &str) -> Cidr {
    text.parse().unwrap()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// A block; each allocation is an ordinal and the node that has it.
fn block(at: &str, affine: Option<&str>, allocations: &[(usize, &str)]) -> AllocationBlock {
    let mut block = AllocationBlock {
        cidr: cidr(at),
        affinity: affine.map(|n| format!("host:{n}").into()),
        affinity_claim_time: None,
        host_affinity: None,
        allocations: vec![None; 64],
        unallocated: vec![],
        attributes: vec![],
        sequence_number: 0,
        sequence_number_for_allocation: BTreeMap::new(),
        deleted: false,
    };
    for (i, &(ordinal, node)) in allocations.iter().enumerate() {
        block.allocations[ordinal] = Some(i as u32);
        let attrs = BTreeMap::from([("node".into(), node.into())]);
        block.attributes.push(AllocationAttribute { active_owner_attrs: attrs, ..Default::default() });
    }
    block
}

fn node(r: &mut Routes, name: &str, v4: &str) {
    let addresses = NodeAddresses { v4: Some(cidr(v4)), v6: None };
    r.put_node(&name.into(), Some((addresses, BTreeSet::from([cidr(v4).addr()]))));
}

fn new(source: RouteSource) -> Routes {
    Routes::new("me".into(), source)
}

/// One line per route: destination, facts in short, node, its address, flags.
fn show(route: &Route) -> String {
    let t = &route.types;
    let mut facts: Vec<&str> = [
        (t.local_workload, "lw"),
        (t.remote_workload, "rw"),
        (t.local_host, "lh"),
        (t.remote_host, "rh"),
        (t.local_tunnel, "lt"),
        (t.remote_tunnel, "rt"),
        (route.local_workload, "workload"),
        (route.borrowed, "borrowed"),
        (route.same_subnet, "same-subnet"),
        (route.nat_outgoing, "nat"),
        (route.tunnel.ipip, "ipip"),
        (route.tunnel.vxlan, "vxlan"),
        (route.tunnel.wireguard, "wireguard"),
    ]
    .into_iter()
    .filter_map(|(holds, name)| holds.then_some(name))
    .collect();
    let ip = route.dst_node_ip.map(|ip| ip.to_string());
    let node = format!("{}@{}", route.dst_node_name, ip.as_deref().unwrap_or("-"));
    if !route.dst_node_name.is_empty() {
        facts.push(&node);
    }
    format!("{} {:?} {}", route.dst, route.pool_type, facts.join(" "))
}

fn flush(r: &mut Routes) -> Vec<String> {
    let (removes, updates) = r.flush();
    let text = |message| match message {
        Message::RouteRemove(cidr) => format!("-{cidr}"),
        Message::RouteUpdate(route) => show(&route).trim_end().to_owned(),
        other => panic!("{other:?}"),
    };
    removes.into_iter().chain(updates).map(text).collect()
}

#[test]
fn blocks_hosts_tunnels_and_workloads() {
    let mut r = new(RouteSource::CalicoIpam);
    r.put_pool(cidr("10.1.0.0/20"), Some(PoolFacts { nat_outgoing: true, ..VXLAN }));
    node(&mut r, "me", "172.16.0.1/24");
    node(&mut r, "you", "172.16.0.2/24");
    r.put_block(
        cidr("10.1.1.0/26"),
        Some(&block("10.1.1.0/26", Some("me"), &[(0, "me"), (5, "me"), (7, "you")])),
    );
    r.put_block(cidr("10.1.2.0/26"), Some(&block("10.1.2.0/26", Some("you"), &[(3, "they")])));
    r.put_tunnel(&"me".into(), Use::Vxlan, IpVersion::V4, Some(ip("10.1.1.0")));
    r.put_tunnel(&"you".into(), Use::Vxlan, IpVersion::V4, Some(ip("10.1.2.0")));
    r.put_workload(1, &"me".into(), [cidr("10.1.1.5/32")].into_iter());
    r.put_workload(2, &"you".into(), [cidr("10.1.2.9/32")].into_iter());
    assert_eq!(
        flush(&mut r),
        [
            "10.1.0.0/20 Vxlan nat",
            "10.1.1.0/26 Vxlan lw nat me@172.16.0.1",
            "10.1.1.0/32 Vxlan lt nat vxlan me@172.16.0.1",
            "10.1.1.5/32 Vxlan lw workload nat me@172.16.0.1",
            "10.1.1.7/32 Vxlan lw rw borrowed nat you@172.16.0.2",
            "10.1.2.0/26 Vxlan rw nat you@172.16.0.2",
            "10.1.2.0/32 Vxlan rt nat vxlan you@172.16.0.2",
            "10.1.2.3/32 Vxlan rw borrowed nat they@-",
            "172.16.0.1/32 None lh me@172.16.0.1",
            "172.16.0.2/32 None rh you@172.16.0.2",
        ]
    );
    assert!(flush(&mut r).is_empty());

    r.put_workload(1, &"me".into(), std::iter::empty());
    r.put_block(cidr("10.1.2.0/26"), None);
    r.put_node(&"you".into(), None);
    assert_eq!(
        flush(&mut r),
        [
            "-10.1.1.5/32",
            "-10.1.2.0/26",
            "-10.1.2.3/32",
            "-172.16.0.2/32",
            "10.1.1.7/32 Vxlan lw rw borrowed nat you@-",
            "10.1.2.0/32 Vxlan rt nat vxlan you@-",
        ]
    );
    r.put_pool(cidr("10.1.0.0/20"), None);
    r.put_block(cidr("10.1.1.0/26"), None);
    r.put_tunnel(&"me".into(), Use::Vxlan, IpVersion::V4, None);
    r.put_tunnel(&"you".into(), Use::Vxlan, IpVersion::V4, None);
    r.put_node(&"me".into(), None);
    flush(&mut r);
    assert!(r.map.is_empty() && r.sent.is_empty() && r.named.is_empty() && r.names.is_empty());
}

#[test]
fn a_block_without_owner_gives_its_addresses_and_a_tunnel_address_keeps_an_exact_block() {
    let mut r = new(RouteSource::CalicoIpam);
    node(&mut r, "me", "172.16.0.1/24");
    r.put_block(cidr("10.1.2.0/26"), Some(&block("10.1.2.0/26", None, &[(0, "you"), (1, "me")])));
    r.put_tunnel(&"you".into(), Use::Vxlan, IpVersion::V4, Some(ip("10.1.2.0")));
    assert_eq!(
        flush(&mut r),
        [
            "10.1.2.0/32 None rw rt vxlan you@-",
            "10.1.2.1/32 None lw me@172.16.0.1",
            "172.16.0.1/32 None lh me@172.16.0.1",
        ]
    );
}

#[test]
fn a_host_address_inside_a_block_is_no_workload() {
    let mut r = new(RouteSource::CalicoIpam);
    r.put_block(cidr("10.1.2.0/26"), Some(&block("10.1.2.0/26", Some("you"), &[])));
    node(&mut r, "you", "10.1.2.1/24");
    assert_eq!(flush(&mut r), ["10.1.2.0/26 None rw you@10.1.2.1", "10.1.2.1/32 None rh you@10.1.2.1"]);
}

#[test]
fn same_subnet_needs_the_pool_the_family_and_our_subnet() {
    let mut r = new(RouteSource::CalicoIpam);
    r.put_pool(cidr("10.1.0.0/20"), Some(PoolFacts { cross_subnet: true, ..VXLAN }));
    r.put_pool(cidr("fd00::/64"), Some(PoolFacts { cross_subnet: true, ..VXLAN }));
    let both = |v4: Option<&str>, v6: &str| {
        let addresses = NodeAddresses { v4: v4.map(cidr), v6: Some(cidr(v6)) };
        Some((addresses, BTreeSet::new()))
    };
    // No node has an IPv4 address: that must not count as one subnet.
    r.put_node(&"me".into(), both(None, "abcd::1/32"));
    r.put_node(&"near".into(), both(None, "abcd:0:1::2/32"));
    r.put_node(&"far".into(), both(None, "abce::2/32"));
    for (at, name) in [("10.1.1.0/26", "near"), ("fd00::/122", "near"), ("fd00::40/122", "far")] {
        r.put_block(cidr(at), Some(&block(at, Some(name), &[])));
    }
    assert_eq!(
        flush(&mut r),
        [
            "10.1.0.0/20 Vxlan",
            "10.1.1.0/26 Vxlan rw near@-",
            "fd00::/64 Vxlan",
            "fd00::/122 Vxlan rw same-subnet near@abcd:0:1::2",
            "fd00::40/122 Vxlan rw far@abce::2",
        ]
    );
    // Our own address moves: every route is judged again.
    r.put_node(&"me".into(), both(None, "abce::1/32"));
    assert_eq!(
        flush(&mut r),
        ["fd00::/122 Vxlan rw near@abcd:0:1::2", "fd00::40/122 Vxlan rw same-subnet far@abce::2"]
    );
    // The pool stops being cross-subnet.
    r.put_pool(cidr("fd00::/64"), Some(VXLAN));
    assert_eq!(flush(&mut r), ["fd00::40/122 Vxlan rw far@abce::2"]);
}

#[test]
fn workload_addresses_as_the_source() {
    let mut r = new(RouteSource::WorkloadIps);
    r.put_block(cidr("10.1.1.0/26"), Some(&block("10.1.1.0/26", Some("you"), &[])));
    r.put_workload(1, &"me".into(), [cidr("10.1.1.5/32")].into_iter());
    r.put_workload(2, &"you".into(), [cidr("10.1.1.6/32"), cidr("fd00::6/128")].into_iter());
    // Two nodes claim one address: the first name has it, until it goes.
    r.put_workload(3, &"a".into(), [cidr("10.1.1.5/32")].into_iter());
    assert_eq!(
        flush(&mut r),
        ["10.1.1.5/32 None rw a@-", "10.1.1.6/32 None rw you@-", "fd00::6/128 None rw you@-"]
    );
    r.put_workload(3, &"a".into(), std::iter::empty());
    r.put_workload(2, &"you".into(), [cidr("10.1.1.6/32")].into_iter());
    assert_eq!(flush(&mut r), ["-fd00::6/128", "10.1.1.5/32 None lw workload me@-"]);
    // The unspecified address is nobody's.
    r.put_workload(4, &"you".into(), [cidr("0.0.0.0/32"), cidr("::/128")].into_iter());
    assert!(flush(&mut r).is_empty());
}

#[test]
fn several_tunnels_may_share_an_address() {
    let mut r = new(RouteSource::CalicoIpam);
    for what in [Use::Wireguard, Use::Ipip, Use::Vxlan] {
        r.put_tunnel(&"you".into(), what, IpVersion::V4, Some(ip("10.1.1.0")));
    }
    r.put_tunnel(&"zed".into(), Use::Ipip, IpVersion::V4, Some(ip("10.1.1.0")));
    assert_eq!(flush(&mut r), ["10.1.1.0/32 None rt ipip vxlan wireguard you@-"]);
    r.put_tunnel(&"you".into(), Use::Ipip, IpVersion::V4, Some(ip("10.1.1.1")));
    assert_eq!(
        flush(&mut r),
        ["10.1.1.0/32 None rt vxlan wireguard you@-", "10.1.1.1/32 None rt ipip you@-"]
    );
}
