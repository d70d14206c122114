//! The wires: one bridge per segment in a namespace that routes between them, and a veth to each machine.

use std::net::IpAddr;

use calico_host::{NetNs, Sysctl};
use calico_net::{Cidr, IpVersion};
use calico_netlink::{Address, Netlink, PeerSpec, Route, VethSpec};

use crate::LabError;
use crate::plan::{Machine, machines, router_addresses};
use crate::scenario::Scenario;
use crate::state::State;

/// Owner under which the router's namespace is kept.
pub const ROUTER: &str = "fabric";

/// Settings that every namespace of the lab gets.
const EVERYWHERE: [(&str, &str); 4] = [
    // Anyone may send echo requests.
    ("net/ipv4/ping_group_range", "0 2147483647"),
    // Addresses are ours alone; waiting for duplicates would only cost time.
    ("net/ipv6/conf/all/accept_dad", "0"),
    ("net/ipv6/conf/default/accept_dad", "0"),
    ("net/ipv6/conf/default/router_solicitations", "0"),
];

/// Builds router, segments and machines.
pub fn build(state: &mut State, scenario: &Scenario) -> Result<Vec<Machine>, LabError> {
    let router = state.add_netns(ROUTER)?;
    prepare(&router)?;
    set(&router, &[("net/ipv4/ip_forward", "1"), ("net/ipv6/conf/all/forwarding", "1")])?;
    let mut link = Netlink::in_ns(&router)?;
    for (i, segment) in scenario.segments.iter().enumerate() {
        let name = bridge_name(i);
        link.create_bridge(&name)?;
        let index = index_of(&mut link, &name)?;
        for addr in router_addresses(segment) {
            link.add_address(&address(index, addr))?;
        }
        link.set_link_up(index, true)?;
    }
    let machines = machines(scenario);
    for (i, machine) in machines.iter().enumerate() {
        attach(state, &router, &mut link, i, machine)?;
    }
    Ok(machines)
}

fn attach(
    state: &mut State,
    router: &NetNs,
    link: &mut Netlink,
    i: usize,
    machine: &Machine,
) -> Result<(), LabError> {
    use std::os::fd::AsFd as _;

    let ns = state.add_netns(&machine.name)?;
    prepare(&ns)?;
    let port = format!("port{i}");
    link.create_veth(&VethSpec {
        end: PeerSpec { name: &port, netns: Some(router.as_fd()), ..PeerSpec::default() },
        peer: PeerSpec { name: "eth0", netns: Some(ns.as_fd()), ..PeerSpec::default() },
        ..VethSpec::default()
    })?;
    let bridge = index_of(link, &bridge_name(machine.segment))?;
    let index = index_of(link, &port)?;
    link.set_link_master(index, bridge)?;
    link.set_link_up(index, true)?;
    let mut inside = Netlink::in_ns(&ns)?;
    let eth0 = index_of(&mut inside, "eth0")?;
    for addr in &machine.addresses {
        inside.add_address(&address(eth0, *addr))?;
    }
    inside.set_link_up(eth0, true)?;
    for gateway in &machine.gateways {
        let mut route = Route::new(default_of(*gateway));
        route.gateway = Some(*gateway);
        route.oif = Some(eth0);
        inside.add_route(&route)?;
    }
    let addresses = machine.addresses.iter().map(Cidr::addr).collect();
    state.addresses.insert(machine.name.clone(), addresses);
    state.save()
}

/// Brings `lo` up and makes the settings that every namespace of the lab gets.
pub fn prepare(ns: &NetNs) -> Result<(), LabError> {
    let mut link = Netlink::in_ns(ns)?;
    let lo = index_of(&mut link, "lo")?;
    link.set_link_up(lo, true)?;
    set(ns, &EVERYWHERE)
}

fn set(ns: &NetNs, settings: &[(&str, &str)]) -> Result<(), LabError> {
    ns.run(|| {
        let sysctl = Sysctl::default();
        for (name, value) in settings {
            match sysctl.write(name, value) {
                Err(e) if e.is_missing() => {}
                other => other?,
            }
        }
        Ok(())
    })?
}

fn bridge_name(segment: usize) -> String {
    format!("segment{segment}")
}

fn address(index: u32, addr: Cidr) -> Address {
    let flags = if addr.version() == IpVersion::V6 { Address::NO_DAD } else { 0 };
    Address { flags, ..Address::new(index, addr) }
}

fn default_of(gateway: IpAddr) -> Cidr {
    // A length of zero fits every address.
    Cidr::new(gateway, 0).unwrap_or_else(|| Cidr::host(gateway)).masked()
}

fn index_of(link: &mut Netlink, name: &str) -> Result<u32, LabError> {
    match link.link_by_name(name)? {
        Some(l) => Ok(l.index),
        None => Err(LabError::NoSuch(format!("link {name}"))),
    }
}
