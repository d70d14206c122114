//! Which way remote routes go.

use calico_dpmsg::{RouteTypes, TunnelKind};
use calico_net::Mac;

use super::*;
use crate::dataplane::net::memory::MemoryNet;
use crate::dataplane::routes::Ownership;

fn ip(text: &str) -> IpAddr {
    text.parse().expect("address")
}

fn route(dst: &str, pool_type: PoolType, types: RouteTypes, node: &str, node_ip: &str) -> Arc<Route> {
    Arc::new(Route {
        dst: dst.parse().expect("cidr"),
        types,
        pool_type,
        dst_node_name: node.into(),
        dst_node_ip: Some(ip(node_ip)),
        same_subnet: false,
        nat_outgoing: false,
        local_workload: false,
        borrowed: false,
        tunnel: TunnelKind::default(),
    })
}

fn vtep(tunnel: &str, parent: &str, last: u8) -> VtepAddrs {
    VtepAddrs { tunnel: ip(tunnel), parent: ip(parent), mac: Mac([0x66, 0, 0, 0, 0, last]) }
}

const REMOTE: RouteTypes = RouteTypes {
    remote_workload: true,
    remote_host: false,
    local_workload: false,
    local_host: false,
    remote_tunnel: false,
    local_tunnel: false,
};

struct Bed {
    remote: RemoteRoutes,
    table: RouteTable,
    net: MemoryNet,
}

impl Bed {
    fn new() -> Self {
        let mut net = MemoryNet::default();
        let now = std::time::Instant::now();
        let owner = Ownership::new(vec!["cali".into()], 3, true);
        let mut table = RouteTable::new(IpVersion::V4, owner, None);
        for name in ["eth0", "vxlan.calico"] {
            let index = net.add_link(name);
            table.on_link(&name.into(), Some((index, true, now)), false);
        }
        let mut remote = RemoteRoutes::new(IpVersion::V4);
        remote.set_local(Local {
            parent: Some("eth0".into()),
            vxlan: Some("vxlan.calico".into()),
            vxlan_mtu: 1450,
            no_encap: true,
        });
        Self { remote, table, net }
    }

    fn table(&mut self) -> Vec<String> {
        self.remote.resolve(&mut self.table);
        self.table.apply(&mut self.net, std::time::Instant::now()).expect("apply");
        self.net.table()
    }
}

#[test]
fn vxlan_waits_for_the_tunnel_endpoint_and_goes_straight_on_the_same_subnet() {
    let mut bed = Bed::new();
    let far = route("10.1.2.0/26", PoolType::Vxlan, REMOTE, "far", "172.16.6.2");
    let mut near = (*route("10.1.3.0/26", PoolType::Vxlan, REMOTE, "near", "172.16.5.3")).clone();
    near.same_subnet = true;
    let near = Arc::new(near);
    bed.remote.update(&far);
    bed.remote.update(&near);
    assert_eq!(bed.table(), ["10.1.3.0/26 via 172.16.5.3 dev eth0 proto 80"]);
    bed.remote.set_vtep(&"far".into(), Some(vtep("10.1.2.0", "172.16.6.2", 2)));
    assert_eq!(
        bed.table(),
        ["10.1.2.0/26 via 10.1.2.0 dev vxlan.calico proto 3", "10.1.3.0/26 via 172.16.5.3 dev eth0 proto 80"]
    );
    assert_eq!(bed.net.routes.iter().find(|r| r.mtu.is_some()).and_then(|r| r.mtu), Some(1450));
    // The node's own link is not known any more: the same subnet is reached through the tunnel, once it can be.
    bed.remote.set_local(Local { parent: None, ..bed.remote.local.clone() });
    assert_eq!(bed.table(), ["10.1.2.0/26 via 10.1.2.0 dev vxlan.calico proto 3"]);
    bed.remote.set_vtep(&"near".into(), Some(vtep("10.1.3.0", "172.16.5.3", 3)));
    assert_eq!(bed.table().len(), 2);
    bed.remote.set_vtep(&"far".into(), None);
    bed.remote.remove(near.dst);
    assert_eq!(bed.table(), [""; 0]);
    // VXLAN off: everything of it goes.
    bed.remote.set_vtep(&"far".into(), Some(vtep("10.1.2.0", "172.16.6.2", 2)));
    assert_eq!(bed.table().len(), 1);
    bed.remote.set_local(Local { vxlan: None, ..bed.remote.local.clone() });
    assert_eq!(bed.table(), [""; 0]);
}

#[test]
fn tunnel_addresses_need_routes_of_their_own_only_out_of_place() {
    let mut bed = Bed::new();
    bed.remote.set_vtep(&"far".into(), Some(vtep("10.1.2.0", "172.16.6.2", 2)));
    let tunnel = RouteTypes { remote_tunnel: true, ..RouteTypes::default() };
    let of_vxlan = |route: Arc<Route>, borrowed| {
        let kind = TunnelKind { vxlan: true, ..TunnelKind::default() };
        Arc::new(Route { tunnel: kind, borrowed, ..(*route).clone() })
    };
    let plain = route("10.1.2.0/32", PoolType::Vxlan, tunnel, "far", "172.16.6.2");
    bed.remote.update(&of_vxlan(plain.clone(), false));
    assert_eq!(bed.table(), [""; 0], "its block's route serves it");
    bed.remote.update(&of_vxlan(plain.clone(), true));
    assert_eq!(bed.table(), ["10.1.2.0/32 dev vxlan.calico proto 3"]);
    let both = RouteTypes { remote_workload: true, ..tunnel };
    bed.remote.update(&of_vxlan(Arc::new(Route { types: both, ..(*plain).clone() }), false));
    assert_eq!(bed.table(), ["10.1.2.0/32 dev vxlan.calico proto 3"]);
}

#[test]
fn plain_routes_and_blackholes_are_ours_only_if_we_program_them() {
    let mut bed = Bed::new();
    let local = RouteTypes { local_workload: true, ..RouteTypes::default() };
    bed.remote.update(&route("10.2.2.0/26", PoolType::NoEncap, REMOTE, "far", "172.16.6.2"));
    bed.remote.update(&route("10.2.1.0/26", PoolType::NoEncap, local, "me", "172.16.5.1"));
    bed.remote.update(&route("10.1.1.0/26", PoolType::Vxlan, local, "me", "172.16.5.1"));
    // Workloads themselves, single addresses and other kinds of pools have none.
    let mut workload = (*route("10.2.1.5/32", PoolType::NoEncap, local, "me", "172.16.5.1")).clone();
    workload.local_workload = true;
    bed.remote.update(&Arc::new(workload));
    bed.remote.update(&route("10.3.1.0/26", PoolType::Ipip, local, "me", "172.16.5.1"));
    bed.remote.update(&route("10.3.2.0/26", PoolType::Ipip, REMOTE, "far", "172.16.6.2"));
    bed.remote.update(&route("fd00::/122", PoolType::NoEncap, REMOTE, "far", "fd01::1"));
    assert_eq!(
        bed.table(),
        [
            "10.1.1.0/26 dev - proto 80 blackhole",
            "10.2.1.0/26 dev - proto 80 blackhole",
            "10.2.2.0/26 via 172.16.6.2 dev eth0 proto 80",
        ]
    );
    bed.remote.set_local(Local { no_encap: false, ..bed.remote.local.clone() });
    assert_eq!(bed.table(), ["10.1.1.0/26 dev - proto 80 blackhole"]);
    // A node that moves, and a block that becomes this node's own.
    bed.remote.set_local(Local { no_encap: true, ..bed.remote.local.clone() });
    bed.remote.update(&route("10.2.2.0/26", PoolType::NoEncap, REMOTE, "other", "172.16.6.9"));
    bed.remote.update(&route("10.2.1.0/26", PoolType::NoEncap, REMOTE, "other", "172.16.6.9"));
    assert_eq!(
        bed.table(),
        [
            "10.1.1.0/26 dev - proto 80 blackhole",
            "10.2.1.0/26 via 172.16.6.9 dev eth0 proto 80",
            "10.2.2.0/26 via 172.16.6.9 dev eth0 proto 80",
        ]
    );
}
