//! Neighbours against a kernel in memory.

use calico_netlink::NeighbourState;

use super::*;
use crate::dataplane::net::memory::MemoryNet;

fn ip(text: &str) -> IpAddr {
    text.parse().expect("address")
}

fn mac(last: u8) -> Mac {
    Mac([0x66, 0, 0, 0, 0, last])
}

fn bed() -> (Neighbours, MemoryNet, SmolStr, u32) {
    let mut net = MemoryNet::default();
    let index = net.add_link("vxlan.calico");
    let name = SmolStr::new("vxlan.calico");
    let mut neighbours = Neighbours::new();
    neighbours.on_link(&name, Some(index), false);
    (neighbours, net, name, index)
}

#[test]
fn addresses_may_share_a_hardware_address_and_only_stale_entries_go() {
    let (mut neighbours, mut net, name, index) = bed();
    // As an earlier run left them: one hardware address, three addresses; one node behind three hardware addresses.
    for n in 1..4 {
        net.neighbours.push(Neighbour::permanent(index, ip(&format!("10.0.0.{n}")), mac(1)));
        net.fdb.push(FdbEntry::permanent(index, mac(n), ip("192.168.0.9")));
    }
    // One that the kernel learned, and one that is not resolved: neither is ours.
    let learned =
        Neighbour { state: NeighbourState::REACHABLE, ..Neighbour::permanent(index, ip("10.0.0.8"), mac(8)) };
    let incomplete = Neighbour { mac: None, ..Neighbour::permanent(index, ip("10.0.0.9"), mac(9)) };
    net.neighbours.extend([learned, incomplete]);
    neighbours.set_neighbours(&name, [(ip("10.0.0.1"), mac(1)), (ip("10.0.0.2"), mac(2))].into());
    neighbours.set_fdb(&name, [(mac(1), ip("192.168.0.9"))].into());
    assert_eq!(neighbours.apply(&mut net).expect("apply").written, 4);
    let expected = [
        Change::DeleteNeighbour(Neighbour::permanent(index, ip("10.0.0.3"), mac(1))),
        Change::ReplaceNeighbour(Neighbour::permanent(index, ip("10.0.0.2"), mac(2))),
        Change::DeleteFdb(FdbEntry::permanent(index, mac(2), ip("192.168.0.9"))),
        Change::DeleteFdb(FdbEntry::permanent(index, mac(3), ip("192.168.0.9"))),
    ];
    assert_eq!(std::mem::take(&mut net.log), expected);
    // Nothing moves again, with and without a look at the kernel.
    for _ in 0..2 {
        assert_eq!(neighbours.apply(&mut net).expect("apply").written, 0);
        neighbours.resync();
    }
    // What somebody else took away comes back.
    net.fdb.clear();
    neighbours.resync();
    assert_eq!(neighbours.apply(&mut net).expect("apply").written, 1);
}

#[test]
fn a_link_without_wishes_is_left_alone_and_one_that_returns_is_filled_again() {
    let (mut neighbours, mut net, name, _) = bed();
    let other = net.add_link("eth0");
    neighbours.on_link(&"eth0".into(), Some(other), false);
    net.neighbours.push(Neighbour::permanent(other, ip("192.168.0.1"), mac(9)));
    neighbours.set_neighbours(&name, [(ip("10.0.0.1"), mac(1))].into());
    neighbours.apply(&mut net).expect("apply");
    assert_eq!(net.log.len(), 1);
    // It goes and comes, with another index.
    net.remove_link("vxlan.calico");
    neighbours.on_link(&name, None, true);
    assert_eq!(neighbours.apply(&mut net).expect("apply").written, 0);
    let again = net.add_link("vxlan.calico");
    neighbours.on_link(&name, Some(again), true);
    assert_eq!(neighbours.apply(&mut net).expect("apply").written, 1);
    // Down and up between two applies: the kernel forgot, so do we.
    net.set_up("vxlan.calico", false);
    net.set_up("vxlan.calico", true);
    neighbours.on_link(&name, Some(again), true);
    assert_eq!(neighbours.apply(&mut net).expect("apply").written, 1);
    neighbours.remove(&name);
    assert_eq!(neighbours.apply(&mut net).expect("apply").written, 1);
    let left: Vec<_> = net.neighbours.iter().map(|n| n.index).collect();
    assert_eq!(left, [other]);
}
