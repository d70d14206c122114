//! What a dataplane must know, found the slow way: every selector on every item, every destination on its own.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use calico_api::{Kind, Node, NodeAddressType, Resource as _};
use calico_calc::{CalcConfig, RouteSource};
use calico_dpmsg::{self as dp, IpSetId, Member, PolicyId, PoolType, Route, TierInfo};
use calico_model::policy::{self as model, Action, EncapMode, EndpointPort, Labels};
use calico_model::{Key, PolicyKey, Value};
use calico_net::{Cidr, IpVersion, Port, Protocol};
use calico_selector::{Selector, unique_id};
use smol_str::SmolStr;

use crate::dataplane::State;
use crate::world::{ME, World};

/// Compares a dataplane's state with the world.
pub fn check(world: &World, config: &CalcConfig, state: &State) {
    let view = View::of(world);
    let mut want_sets = BTreeMap::new();
    let mut active = BTreeSet::new();
    for (key, policy) in &view.policies {
        let everywhere = !policy.performance_hints.is_empty();
        let matches = view.items.iter().any(|i| i.local.is_some() && view.selects(&policy.selector, i));
        if !(everywhere || matches) {
            continue;
        }
        active.insert(id_of(key));
        let told = state.policies.get(&id_of(key)).unwrap_or_else(|| panic!("{key:?} was not told"));
        view.check_rules(&policy.inbound_rules, &told.inbound, config, &mut want_sets);
        view.check_rules(&policy.outbound_rules, &told.outbound, config, &mut want_sets);
        assert_eq!((told.untracked, told.pre_dnat), (policy.untracked, policy.pre_dnat));
    }
    assert_eq!(active, state.policies.keys().cloned().collect());

    let mut profiles = BTreeSet::new();
    for item in view.items.iter().filter(|i| i.local.is_some()) {
        profiles.extend(item.profiles.iter().cloned());
    }
    for name in &profiles {
        let told = state.profiles.get(name).unwrap_or_else(|| panic!("profile {name} was not told"));
        match world.get(&Key::ProfileRules(name.clone())) {
            Some(Value::ProfileRules(rules)) => {
                view.check_rules(&rules.inbound_rules, &told.inbound, config, &mut want_sets);
                view.check_rules(&rules.outbound_rules, &told.outbound, config, &mut want_sets);
            }
            _ => {
                for rules in [&told.inbound, &told.outbound] {
                    assert!(matches!(&rules[..], [only] if only.action == dp::Action::Deny), "{rules:?}");
                }
            }
        }
    }
    assert_eq!(profiles, state.profiles.keys().cloned().collect());
    let told: BTreeMap<IpSetId, BTreeSet<Member>> =
        state.sets.iter().map(|(id, (_, members))| (id.clone(), members.clone())).collect();
    assert_eq!(told, want_sets);

    check_endpoints(&view, state);
    check_routes(world, config, state);
}

/// An endpoint or a network set.
struct Item {
    labels: Labels,
    profiles: Vec<SmolStr>,
    nets: Vec<Cidr>,
    ports: Vec<EndpointPort>,
    /// Its name in messages, for endpoints of this node.
    local: Option<String>,
    is_host: bool,
}

struct View {
    items: Vec<Item>,
    policies: BTreeMap<PolicyKey, model::Policy>,
    tiers: BTreeMap<SmolStr, model::Tier>,
}

impl View {
    fn of(world: &World) -> Self {
        let mut view = Self { items: vec![], policies: BTreeMap::new(), tiers: BTreeMap::new() };
        for (key, value) in world {
            let item = match (key, value) {
                (Key::WorkloadEndpoint(key), Value::WorkloadEndpoint(e)) if !e.interface_name.is_empty() => {
                    Item {
                        labels: e.labels.clone(),
                        profiles: e.profile_ids.clone(),
                        nets: e.ipv4_nets.iter().chain(&e.ipv6_nets).copied().collect(),
                        ports: e.ports.clone(),
                        local: (key.host == ME).then(|| key.workload.to_string()),
                        is_host: false,
                    }
                }
                (Key::HostEndpoint { host, endpoint }, Value::HostEndpoint(e)) => Item {
                    labels: e.labels.clone(),
                    profiles: e.profile_ids.clone(),
                    nets: e.expected_ips.iter().map(|&ip| Cidr::host(ip)).collect(),
                    ports: e.ports.clone(),
                    local: (host == ME).then(|| endpoint.to_string()),
                    is_host: true,
                },
                (Key::NetworkSet(_), Value::NetworkSet(s)) => {
                    let halves =
                        |c: &Cidr| if c.is_default() { c.halves().unwrap().to_vec() } else { vec![*c] };
                    Item {
                        labels: s.labels.clone(),
                        profiles: s.profile_ids.clone(),
                        nets: s.nets.iter().flat_map(halves).collect(),
                        ports: vec![],
                        local: None,
                        is_host: false,
                    }
                }
                (Key::Policy(key), Value::Policy(p)) => {
                    view.policies.insert(key.clone(), (**p).clone());
                    continue;
                }
                (Key::Tier(name), Value::Tier(t)) => {
                    view.tiers.insert(name.clone(), t.clone());
                    continue;
                }
                _ => continue,
            };
            view.items.push(item);
        }
        for item in &mut view.items {
            for name in &item.profiles {
                if let Some(Value::ProfileLabels(lent)) = world.get(&Key::ProfileLabels(name.clone())) {
                    for (name, value) in lent.iter() {
                        item.labels.entry(name.clone()).or_insert_with(|| value.clone());
                    }
                }
            }
        }
        view
    }

    fn selects(&self, selector: &str, item: &Item) -> bool {
        Selector::parse(selector).is_ok_and(|s| s.matches(&item.labels))
    }

    /// Compares told rules with the model's and notes the sets that they must name.
    fn check_rules(
        &self,
        rules: &[model::Rule],
        told: &[dp::Rule],
        config: &CalcConfig,
        sets: &mut BTreeMap<IpSetId, BTreeSet<Member>>,
    ) {
        let bad = |side: &model::EntityMatch| {
            let broken = |text: &str| !text.is_empty() && Selector::parse(text).is_err();
            broken(&side.selector) || broken(&side.not_selector) || side.service.is_some()
        };
        let kept: Vec<&model::Rule> =
            rules.iter().filter(|r| r.action == Action::Deny || !(bad(&r.src) || bad(&r.dst))).collect();
        assert_eq!(kept.len(), told.len());
        for (rule, told) in kept.into_iter().zip(told) {
            assert_eq!(rule.protocol, told.protocol);
            for (side, told) in [(&rule.src, &told.src), (&rule.dst, &told.dst)] {
                let parse = |text: &str| if text.is_empty() { None } else { Selector::parse(text).ok() };
                let (mut with, mut without) = (parse(&side.selector), parse(&side.not_selector));
                if let (Some(p), Some(n)) = (&with, &without) {
                    with = Some(
                        Selector::parse(&format!("({}) && (!({}))", p.canonical(), n.canonical())).unwrap(),
                    );
                    without = None;
                }
                let mut named = |ports: &[Port]| -> Vec<IpSetId> {
                    let names =
                        ports.iter().filter_map(|p| if let Port::Named(n) = p { Some(n) } else { None });
                    names
                        .map(|name| {
                            let over = with.clone().unwrap_or_else(Selector::all);
                            let protocol = rule.protocol.as_ref();
                            let text = match protocol {
                                None => "any".to_owned(),
                                Some(Protocol::Num(6)) => "tcp".to_owned(),
                                Some(p) => p.to_string(),
                            };
                            let id = unique_id("n", &format!("{},{text},{name}", over.unique_id()));
                            sets.insert(id.as_str().into(), self.port_members(&over, protocol, name));
                            id.into()
                        })
                        .collect()
                };
                assert_eq!(told.named_port_sets, named(&side.ports));
                assert_eq!(told.not_named_port_sets, named(&side.not_ports));
                let numbers = side.ports.iter().filter(|p| matches!(p, Port::Range(_))).count();
                assert_eq!(told.ports.len(), numbers);
                let implied = side.ports.len() > numbers && numbers == 0;
                let mut of = |selector: Option<&Selector>| -> Vec<IpSetId> {
                    selector
                        .map(|s| {
                            sets.insert(s.unique_id().into(), self.net_members(s, config));
                            s.unique_id().into()
                        })
                        .into_iter()
                        .collect()
                };
                assert_eq!(told.sets, of(with.as_ref().filter(|_| !implied)));
                assert_eq!(told.not_sets, of(without.as_ref()));
                assert_eq!((&told.nets, &told.not_nets), (&side.nets, &side.not_nets));
            }
        }
    }

    fn net_members(&self, selector: &Selector, config: &CalcConfig) -> BTreeSet<Member> {
        let selected = self.items.iter().filter(|i| selector.matches(&i.labels));
        let nets: BTreeSet<Cidr> = selected.flat_map(|i| i.nets.iter().copied()).collect();
        let covered = |c: &Cidr| nets.iter().any(|o| o != c && o.covers(c));
        nets.iter().filter(|c| config.overlapping_members || !covered(c)).map(|&c| Member::Net(c)).collect()
    }

    fn port_members(&self, selector: &Selector, protocol: Option<&Protocol>, name: &str) -> BTreeSet<Member> {
        let mut members = BTreeSet::new();
        for item in self.items.iter().filter(|i| selector.matches(&i.labels)) {
            for port in item.ports.iter().filter(|p| p.name == name) {
                let number = port.protocol.to_number().unwrap();
                if protocol.is_none_or(|p| p.to_number() == Some(number)) {
                    let members_of =
                        |n: &Cidr| Member::IpPort { addr: n.addr(), protocol: number, port: port.port };
                    members.extend(item.nets.iter().map(members_of));
                }
            }
        }
        members
    }

    /// Policies that match an item, in order.
    fn ordered(&self, item: &Item) -> Vec<(&PolicyKey, &model::Policy)> {
        let mut list: Vec<_> =
            self.policies.iter().filter(|(_, p)| self.selects(&p.selector, item)).collect();
        let order = |o: Option<f64>| o.filter(|o| !o.is_nan()).unwrap_or(f64::INFINITY);
        list.sort_by(|(ka, a), (kb, b)| {
            let tier = |p: &model::Policy| {
                let tier = self.tiers.get(&p.tier);
                (tier.is_none(), order(tier.and_then(|t| t.order)))
            };
            let tie = |k: &PolicyKey| format!("{}/{}/{}", k.name, k.namespace, k.kind.name());
            let tiers = tier(a).partial_cmp(&tier(b)).unwrap().then_with(|| a.tier.cmp(&b.tier));
            tiers.then(order(a.order).total_cmp(&order(b.order))).then(tie(ka).cmp(&tie(kb)))
        });
        list
    }
}

fn id_of(key: &PolicyKey) -> PolicyId {
    PolicyId { kind: key.kind.name().into(), namespace: key.namespace.clone(), name: key.name.clone() }
}

fn check_endpoints(view: &View, state: &State) {
    let (mut workloads, mut hosts) = (0, 0);
    for item in &view.items {
        let Some(name) = &item.local else { continue };
        let policies = view.ordered(item);
        let lists = |wanted: &dyn Fn(&model::Policy) -> bool, egress: bool, pass: Option<bool>| {
            let mut tiers: Vec<TierInfo> = vec![];
            for (key, policy) in policies.iter().filter(|(_, p)| wanted(p)) {
                let (out, inn) = (policy.egress || !policy.ingress, policy.ingress || !policy.egress);
                if !(inn || out && egress) {
                    continue;
                }
                if tiers.last().is_none_or(|t| t.name != policy.tier) {
                    let own = view.tiers.get(&policy.tier).is_some_and(|t| t.default_pass);
                    let default_pass = pass.unwrap_or(own);
                    tiers.push(TierInfo {
                        name: policy.tier.clone(),
                        ingress: vec![],
                        egress: vec![],
                        default_pass,
                    });
                }
                let tier = tiers.last_mut().unwrap();
                tier.ingress.extend(inn.then(|| id_of(key)));
                tier.egress.extend((out && egress).then(|| id_of(key)));
            }
            tiers
        };
        let normal = lists(&|p| !p.untracked && !p.pre_dnat, true, None);
        if item.is_host {
            hosts += 1;
            let told = &state.hosts[&dp::HostEndpointId(name.as_str().into())];
            assert_eq!(told.tiers, normal);
            assert_eq!(told.untracked_tiers, lists(&|p| p.untracked, true, Some(true)));
            assert_eq!(told.pre_dnat_tiers, lists(&|p| p.pre_dnat && !p.untracked, false, Some(true)));
            let forward = |p: &model::Policy| p.apply_on_forward && !p.untracked && !p.pre_dnat;
            assert_eq!(told.forward_tiers, lists(&forward, true, None));
        } else {
            workloads += 1;
            let id = dp::WorkloadEndpointId {
                orchestrator: "k8s".into(),
                workload: name.as_str().into(),
                endpoint: "eth0".into(),
            };
            assert_eq!(state.workloads[&id].tiers, normal);
        }
    }
    assert_eq!((workloads, hosts), (state.workloads.len(), state.hosts.len()));
}

/// Kinds of uses in the order in which they decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Use {
    Workload,
    Ipip,
    Vxlan,
}

#[derive(Default)]
struct Facts {
    blocks: Vec<(Cidr, SmolStr)>,
    hosts: Vec<(Cidr, SmolStr)>,
    refs: Vec<(Cidr, SmolStr, Use)>,
    addresses: BTreeMap<SmolStr, (Option<Cidr>, Option<Cidr>)>,
    pools: Vec<model::IpPool>,
}

fn check_routes(world: &World, config: &CalcConfig, state: &State) {
    let facts = gather(world, config.routes == Some(RouteSource::WorkloadIps));
    let mut all: BTreeSet<Cidr> = facts.pools.iter().map(|p| p.cidr).collect();
    all.extend(facts.blocks.iter().chain(&facts.hosts).map(|b| b.0));
    all.extend(facts.refs.iter().map(|r| r.0));
    let want: BTreeMap<Cidr, Route> = all.into_iter().map(|cidr| (cidr, route(&facts, cidr))).collect();
    assert_eq!(state.routes, want);
}

fn gather(world: &World, by_workload: bool) -> Facts {
    let mut facts = Facts::default();
    let ip = |text: &str| text.parse::<IpAddr>().ok();
    for (key, value) in world {
        match (key, value) {
            (Key::IpPool(_), Value::IpPool(pool)) => facts.pools.push((**pool).clone()),
            (Key::Block(cidr), Value::Block(block)) if !by_workload => {
                let affine = block.affinity.as_ref().map(|a| SmolStr::from(a.strip_prefix("host:").unwrap()));
                facts.blocks.extend(affine.clone().map(|node| (*cidr, node)));
                for (ordinal, index) in block.allocations.iter().enumerate() {
                    let Some(attribute) = index.map(|i| &block.attributes[i as usize]) else { continue };
                    let addr = cidr.nth(ordinal as u128).filter(|a| cidr.contains(*a));
                    let node =
                        attribute.active_owner_attrs.get("node").filter(|n| Some(*n) != affine.as_ref());
                    facts.blocks.extend(addr.zip(node).map(|(addr, node)| (Cidr::host(addr), node.clone())));
                }
            }
            (Key::WorkloadEndpoint(key), Value::WorkloadEndpoint(e))
                if (by_workload || key.host == ME) && !e.interface_name.is_empty() =>
            {
                let nets = e.ipv4_nets.iter().chain(&e.ipv6_nets);
                facts.refs.extend(nets.map(|net| (*net, key.host.clone(), Use::Workload)));
            }
            (Key::HostConfig { host, name }, Value::Text(text)) => {
                let (what, v4) = match name.as_str() {
                    "IpInIpTunnelAddr" => (Use::Ipip, true),
                    "IPv4VXLANTunnelAddr" => (Use::Vxlan, true),
                    "IPv6VXLANTunnelAddr" => (Use::Vxlan, false),
                    _ => continue,
                };
                let addr = ip(text).filter(|a| a.is_ipv4() == v4);
                facts.refs.extend(addr.map(|a| (Cidr::host(a), host.clone(), what)));
            }
            (Key::Resource(id), Value::Resource(any)) if id.kind == Kind::Node => {
                let node = Node::from_any_ref(any).unwrap();
                let bgp = node.spec.bgp.clone().unwrap_or_default();
                let of = |text: &str, v4: bool| {
                    let own = Cidr::parse(text).ok();
                    let typed = |wanted: NodeAddressType| {
                        let mut all = node.spec.addresses.iter().filter(|a| a.address_type == wanted);
                        all.find_map(|a| ip(&a.address).filter(|a| a.is_ipv4() == v4)).map(Cidr::host)
                    };
                    own.or_else(|| typed(NodeAddressType::InternalIP))
                        .or_else(|| typed(NodeAddressType::ExternalIP))
                };
                let addresses = (of(&bgp.ipv4_address, true), of(&bgp.ipv6_address, false));
                facts.addresses.insert(id.name.clone(), addresses);
                let own =
                    [&bgp.ipv4_address, &bgp.ipv6_address].into_iter().filter_map(|t| Cidr::parse(t).ok());
                let listed = node.spec.addresses.iter().filter_map(|a| ip(&a.address));
                for addr in own.map(|c| c.addr()).chain(listed) {
                    facts.hosts.push((Cidr::host(addr), id.name.clone()));
                }
            }
            _ => {}
        }
    }
    facts
}

fn route(facts: &Facts, dst: Cidr) -> Route {
    let mut types = dp::RouteTypes::default();
    let mut tunnel = dp::TunnelKind::default();
    let (mut node, mut borrowed, mut local_workload): (Option<SmolStr>, bool, bool) = (None, false, false);
    // At most one pool covers a destination, since pools do not overlap.
    let pool = facts.pools.iter().find(|p| p.cidr.covers(&dst));
    let balancer = |p: &model::IpPool| p.allowed_uses == ["LoadBalancer"];
    let pool_type = match pool {
        None => PoolType::None,
        Some(p) if balancer(p) => PoolType::None,
        Some(p) if p.vxlan != EncapMode::Never => PoolType::Vxlan,
        Some(p) if p.ipip != EncapMode::Never => PoolType::Ipip,
        Some(_) => PoolType::NoEncap,
    };
    let mut path: Vec<&(Cidr, SmolStr)> = facts.blocks.iter().filter(|b| b.0.covers(&dst)).collect();
    path.sort_by_key(|b| (b.0.prefix_len(), b.1.clone()));
    path.dedup_by_key(|b| b.0);
    for (_, owner) in path.iter().copied() {
        borrowed |= node.as_ref().is_some_and(|n| n != owner);
        node = Some(owner.clone());
        if owner == ME { types.local_workload = true } else { types.remote_workload = true }
    }
    let block = node.clone();
    let exact = path.last().is_some_and(|b| b.0 == dst);
    if let Some((_, owner)) = facts.hosts.iter().filter(|h| h.0 == dst).min_by_key(|h| h.1.clone()) {
        node = Some(owner.clone());
        types = dp::RouteTypes { local_host: owner == ME, remote_host: owner != ME, ..Default::default() };
    }
    let refs: Vec<_> = facts.refs.iter().filter(|r| r.0 == dst).collect();
    if let Some((_, owner, what)) = refs.iter().min_by_key(|r| (r.1.clone(), r.2)) {
        borrowed |= block.as_ref().is_some_and(|b| b != owner);
        node = Some(owner.clone());
        match what {
            Use::Workload => {
                local_workload = owner == ME;
                if owner == ME { types.local_workload = true } else { types.remote_workload = true }
            }
            _ => {
                if !exact {
                    (types.local_workload, types.remote_workload) = (false, false);
                }
                if owner == ME { types.local_tunnel = true } else { types.remote_tunnel = true }
            }
        }
        let has = |what| refs.iter().any(|r| r.1 == *owner && r.2 == what);
        tunnel = dp::TunnelKind { ipip: has(Use::Ipip), vxlan: has(Use::Vxlan), wireguard: false };
    }
    let address = |name: &str| {
        let (v4, v6) = facts.addresses.get(name).copied().unwrap_or_default();
        if dst.version() == IpVersion::V4 { v4 } else { v6 }
    };
    let node_ip = node.as_ref().and_then(|n| address(n)).map(|c| c.addr());
    let cross = pool.is_some_and(|p| {
        let mode = if p.vxlan != EncapMode::Never { p.vxlan } else { p.ipip };
        mode == EncapMode::CrossSubnet
    });
    Route {
        dst,
        types,
        pool_type,
        dst_node_name: node.unwrap_or_default(),
        dst_node_ip: node_ip,
        same_subnet: cross && node_ip.is_some_and(|ip| address(ME).is_some_and(|mine| mine.contains(ip))),
        nat_outgoing: pool.is_some_and(|p| p.masquerade),
        local_workload,
        borrowed,
        tunnel,
    }
}
