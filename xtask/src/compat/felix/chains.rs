//! Chains and verdict maps of the nftables tables: what was seen and what the product renders.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use calico_dpmsg as dp;
use calico_net::{Cidr, IpVersion};
use calico_rules::config::Tunnel;
use calico_rules::nft::{self, NftChain};
use calico_rules::{FloatingIp, HostDispatch, Renderer, names};
use serde_json::{Value, json};
use smol_str::SmolStr;

use super::super::text::field;
use super::world::World;

/// The tables that are compared.
const TABLES: [&str; 2] = ["calico", "calico-arp"];

/// Rules of chains and elements of maps, by name of the chain or map.
#[derive(Default)]
struct Table {
    chains: BTreeMap<String, Vec<String>>,
    maps: BTreeMap<String, BTreeSet<String>>,
}

impl Table {
    fn to_json(&self) -> Value {
        json!({"chains": self.chains, "maps": self.maps})
    }

    fn add(&mut self, chain: &NftChain) {
        let comments = chain.rules.iter().map(|rule| rule.comment.clone()).collect();
        self.chains.insert(chain.name.to_string(), comments);
    }
}

/// What a dump of the kernel's tables holds, by family.
pub(super) fn seen(dump: &Value) -> Value {
    let mut tables: BTreeMap<String, Table> = BTreeMap::new();
    for item in dump["nftables"].as_array().into_iter().flatten() {
        for (what, object) in item.as_object().into_iter().flatten() {
            if !TABLES.contains(&field(object, "table")) {
                continue;
            }
            let table = tables.entry(field(object, "family").to_owned()).or_default();
            match what.as_str() {
                "chain" => drop(table.chains.entry(field(object, "name").to_owned()).or_default()),
                "rule" => {
                    let rules = table.chains.entry(field(object, "chain").to_owned()).or_default();
                    rules.push(field(object, "comment").to_owned());
                }
                "map" => {
                    let elements = object["elem"].as_array().into_iter().flatten().map(element).collect();
                    table.maps.insert(field(object, "name").to_owned(), elements);
                }
                _ => {}
            }
        }
    }
    tables
        .iter()
        .map(|(family, table)| (family.clone(), table.to_json()))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

fn element(pair: &Value) -> String {
    format!("{} {}", pair[0].as_str().unwrap_or_default(), pair[1])
}

/// What the product renders for the families of `expected`.
pub(super) fn made(world: &World, meta: &Value, expected: &Value) -> anyhow::Result<Value> {
    let mut out = serde_json::Map::new();
    for family in expected.as_object().into_iter().flatten().map(|(family, _)| family) {
        let table = match family.as_str() {
            "ip" => main_table(world, meta, IpVersion::V4)?,
            "ip6" => main_table(world, meta, IpVersion::V6)?,
            _ => arp_table(world),
        };
        out.insert(family.clone(), table.to_json());
    }
    Ok(out.into())
}

fn main_table(world: &World, meta: &Value, version: IpVersion) -> anyhow::Result<Table> {
    let mut config = world.params.rules.clone();
    config.vxlan_v4 = tunnel(world.encapsulation.vxlan, world.vtep.as_ref().and_then(|v| v.v4.as_ref()));
    config.vxlan_v6 = tunnel(world.encapsulation.vxlan_v6, world.vtep.as_ref().and_then(|v| v.v6.as_ref()));
    let renderer = Renderer::new(Arc::new(config), version)?;
    let selector = |id: &dp::PolicyId| {
        world.policies.get(id).map(|policy| policy.original_selector.clone()).unwrap_or_default()
    };
    let mut chains = renderer.static_chains();
    for (id, policy) in &world.policies {
        chains.extend(renderer.policy_chains(id, policy).chains);
    }
    for (name, profile) in &world.profiles {
        chains.extend(renderer.profile_chains(name, profile).chains);
    }
    for endpoint in world.workloads.values() {
        chains.extend(renderer.workload_chains(endpoint, &selector).chains);
    }
    let mut dispatch = HostDispatch::default();
    for endpoint in world.hosts.values().filter(|endpoint| endpoint.interface_name == "*") {
        dispatch.any = true;
        dispatch.any_pre_dnat = !endpoint.pre_dnat_tiers.is_empty();
        chains.extend(renderer.host_endpoint_chains(names::ANY_INTERFACE, endpoint, &selector).chains);
    }
    for (interface, endpoint) in host_interfaces(world, meta) {
        dispatch.normal.insert(interface.clone());
        if !endpoint.untracked_tiers.is_empty() {
            dispatch.untracked.insert(interface.clone());
        }
        if !endpoint.pre_dnat_tiers.is_empty() {
            dispatch.pre_dnat.insert(interface.clone());
        }
        chains.extend(renderer.host_endpoint_chains(&interface, endpoint, &selector).chains);
    }
    chains.extend(renderer.host_dispatch_chains(&dispatch));
    chains.push(renderer.service_loop_chain(&[]));
    let masquerade = |pool: &Arc<dp::IpPool>| pool.masquerade && pool.cidr.version() == version;
    chains.push(renderer.nat_outgoing_chain(world.pools.values().any(masquerade)));
    chains.extend(renderer.floating_ip_chains(&floating_ips(world)));
    let spoofing: Vec<(&str, &[Cidr])> = world
        .workloads
        .values()
        .filter(|_| world.params.source_spoofing)
        .map(|endpoint| (endpoint.interface_name.as_str(), endpoint.allow_spoofed_source_prefixes.as_slice()))
        .collect();
    chains.push(renderer.rpf_skip_chain(spoofing));

    let mut by_name: BTreeMap<SmolStr, NftChain> = chains
        .iter()
        .map(|chain| nft::chain(version, chain))
        .map(|chain| (chain.name.clone(), chain))
        .collect();
    let base: Vec<SmolStr> = nft::base_chains(&renderer.hooks())
        .into_iter()
        .map(|base| {
            let name = base.chain.name.clone();
            by_name.insert(name.clone(), base.chain);
            name
        })
        .collect();
    let mut elements: BTreeMap<SmolStr, Vec<(SmolStr, SmolStr)>> =
        nft::workload_maps().into_iter().map(|map| (map, Vec::new())).collect();
    for endpoint in world.workloads.values() {
        for entry in renderer.workload_entries(&endpoint.interface_name) {
            let (map, interface, chain) = nft::map_entry(&entry);
            elements.entry(map).or_default().push((interface, chain));
        }
    }
    Ok(reachable(base, &by_name, &elements))
}

/// Chains that the kernel can come to; nothing else is programmed.
fn reachable(
    base: Vec<SmolStr>,
    chains: &BTreeMap<SmolStr, NftChain>,
    maps: &BTreeMap<SmolStr, Vec<(SmolStr, SmolStr)>>,
) -> Table {
    let mut table = Table::default();
    let mut todo = base;
    while let Some(name) = todo.pop() {
        let Some(chain) = chains.get(&name).filter(|_| !table.chains.contains_key(name.as_str())) else {
            continue;
        };
        table.add(chain);
        todo.extend(chain.refs.chains.iter().cloned());
        for map in &chain.refs.maps {
            let elements = maps.get(map).map(Vec::as_slice).unwrap_or_default();
            todo.extend(elements.iter().map(|(_, chain)| chain.clone()));
            let seen = elements.iter().map(|(interface, chain)| goto(interface, chain)).collect();
            table.maps.insert(map.to_string(), seen);
        }
    }
    table
}

fn goto(interface: &str, chain: &str) -> String {
    format!("{interface} {}", json!({"goto": {"target": chain}}))
}

fn arp_table(world: &World) -> Table {
    let mut table = Table::default();
    let (base, dispatch) = nft::arp_base_chains();
    table.add(&base.chain);
    table.add(&dispatch);
    let mut elements = BTreeSet::new();
    for endpoint in world.workloads.values() {
        let addresses: Vec<_> = endpoint
            .ipv4_nets
            .iter()
            .filter_map(|net| match net.addr() {
                IpAddr::V4(address) => Some(address),
                IpAddr::V6(_) => None,
            })
            .collect();
        if let Some(chain) = nft::arp_chain(&endpoint.interface_name, &addresses) {
            elements.insert(goto(&endpoint.interface_name, &chain.name));
            table.add(&chain);
        }
    }
    table.maps.insert(nft::arp_map().to_string(), elements);
    table
}

fn tunnel(enabled: bool, addresses: Option<&dp::VtepAddrs>) -> Tunnel {
    Tunnel { enabled, address: addresses.map(|addresses| addresses.tunnel) }
}

/// Host interfaces with the endpoint that is for them: by name, else by one of its addresses.
fn host_interfaces<'w>(world: &'w World, meta: &Value) -> Vec<(SmolStr, &'w dp::HostEndpoint)> {
    let mut out = Vec::new();
    for interface in meta["hostInterfaces"].as_array().into_iter().flatten() {
        let name = field(interface, "name");
        let addresses: Vec<IpAddr> = interface["addrs"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|address| Cidr::parse(address.as_str()?).ok())
            .map(|cidr| cidr.addr())
            .collect();
        let fits = |endpoint: &&Arc<dp::HostEndpoint>| {
            endpoint.interface_name == name
                || (endpoint.interface_name.is_empty()
                    && endpoint.expected_ips.iter().any(|ip| addresses.contains(ip)))
        };
        if let Some(endpoint) = world.hosts.values().find(fits) {
            out.push((name.into(), &**endpoint));
        }
    }
    out
}

fn floating_ips(world: &World) -> Vec<FloatingIp> {
    let served = world.workloads.values().filter(|_| world.params.floating_ips);
    let pairs = served.flat_map(|endpoint| endpoint.nats.iter());
    pairs.map(|&(external, internal)| FloatingIp { external, internal }).collect()
}
