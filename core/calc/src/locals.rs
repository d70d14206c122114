//! Endpoints of this node: which policies match them, and what the dataplane was told about them.
//!
//! In: workload and host endpoints, label changes, settled policies. Out, at a flush: endpoint updates and
//! removals. Invariant after a flush: each endpoint's matches are those of its labels now, and the dataplane's
//! tiers list them in order.

use std::collections::BTreeMap;
use std::sync::Arc;

use calico_dpmsg::{self as dp, EndpointId, Message, PolicyId, TierInfo};
use calico_model::policy as model;
use rustc_hash::FxHashMap;
use smol_str::SmolStr;

use crate::idset::IdSet;
use crate::items::{ItemId, Items};
use crate::nets::diff;
use crate::policies::{Policies, PolicyNo};
use crate::rules::RuleStore;

/// An endpoint as it came in.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Endpoint {
    /// A workload's.
    Workload(Arc<model::WorkloadEndpoint>),
    /// The host's.
    Host(Arc<model::HostEndpoint>),
}

#[derive(Debug)]
struct Local {
    item: ItemId,
    /// `None` once it is gone.
    endpoint: Option<Endpoint>,
    policies: IdSet,
    rematch: bool,
    render: bool,
    sent: Option<(Endpoint, Arc<Lists>)>,
}

/// The tiers of an endpoint, with policies by number.
#[derive(Debug, Default, PartialEq, Eq)]
struct Lists {
    normal: Vec<TierList>,
    untracked: Vec<TierList>,
    pre_dnat: Vec<TierList>,
    forward: Vec<TierList>,
}

#[derive(Debug, PartialEq, Eq)]
struct TierList {
    name: SmolStr,
    pass: bool,
    ingress: Vec<PolicyNo>,
    egress: Vec<PolicyNo>,
}

/// All endpoints of this node.
#[derive(Debug, Default)]
pub(crate) struct Locals {
    locals: BTreeMap<EndpointId, Local>,
    by_item: FxHashMap<ItemId, EndpointId>,
}

// === impl Locals: inputs ===

impl Locals {
    /// Adds or replaces an endpoint; returns the one before.
    pub(crate) fn put(&mut self, id: EndpointId, item: ItemId, endpoint: Endpoint) -> Option<Endpoint> {
        let local = self.locals.entry(id.clone()).or_insert_with(|| Local {
            item,
            endpoint: None,
            policies: IdSet::EMPTY,
            rematch: true,
            render: true,
            sent: None,
        });
        local.item = item;
        local.rematch = true;
        local.render = true;
        self.by_item.insert(item, id);
        local.endpoint.replace(endpoint)
    }

    /// Removes an endpoint; returns what it was.
    pub(crate) fn remove(&mut self, id: &EndpointId) -> Option<Endpoint> {
        let local = self.locals.get_mut(id)?;
        let was = local.endpoint.take()?;
        self.by_item.remove(&local.item);
        local.rematch = true;
        Some(was)
    }

    /// Notes that an item's labels may have changed, in case it is an endpoint of this node.
    pub(crate) fn relabelled(&mut self, item: ItemId) {
        if let Some(local) = self.by_item.get(&item).and_then(|id| self.locals.get_mut(id)) {
            local.rematch = true;
        }
    }

    /// Notes that tiers changed.
    pub(crate) fn tiers_changed(&mut self) {
        self.locals.values_mut().for_each(|l| l.render = true);
    }

    /// Number of endpoints.
    pub(crate) fn len(&self) -> usize {
        self.by_item.len()
    }
}

// === impl Locals: matching ===

impl Locals {
    /// Finds the matches of endpoints that changed, and of the policies in `changed` with all endpoints.
    pub(crate) fn rematch(
        &mut self,
        items: &Items,
        policies: &mut Policies,
        store: &mut RuleStore,
        changed: &[PolicyNo],
    ) {
        // Many policies at once, as at start: go by endpoint, where filing helps. Few: by policy.
        let all = changed.len() > 64;
        let mut wanted = Vec::new();
        for local in self.locals.values_mut() {
            if !(all || std::mem::take(&mut local.rematch)) {
                continue;
            }
            local.rematch = false;
            match local.endpoint {
                Some(_) => policies.matching(items, local.item, store, &mut wanted),
                None => wanted.clear(),
            }
            let mut any = false;
            diff(local.policies.to_vec(), wanted.iter().copied(), |no, comes| {
                policies.count_match(no, comes);
                any = true;
            });
            if any {
                local.policies = IdSet::from_sorted(&wanted);
                local.render = true;
            }
        }
        if all {
            return;
        }
        for &no in changed {
            let selector = policies.selector(no, store);
            for local in self.locals.values_mut() {
                let matches = local.endpoint.is_some()
                    && selector.as_ref().is_some_and(|s| items.selects(s, local.item));
                let turned = if matches { local.policies.insert(no) } else { local.policies.remove(no) };
                if turned {
                    policies.count_match(no, matches);
                    local.render = true;
                }
            }
        }
    }
}

// === impl Locals: output ===

impl Locals {
    /// Tells of endpoints that came or changed, then of those that went; both sorted by id.
    pub(crate) fn emit(&mut self, policies: &Policies, moved: &[PolicyNo], out: &mut dyn FnMut(Message)) {
        let mut shared: FxHashMap<Vec<PolicyNo>, Arc<Lists>> = FxHashMap::default();
        let mut gone = Vec::new();
        for (id, local) in &mut self.locals {
            let Some(endpoint) = &local.endpoint else {
                gone.push(id.clone());
                continue;
            };
            if !(local.render || moved.iter().any(|&no| local.policies.contains(no))) {
                continue;
            }
            local.render = false;
            let order = ordered(policies, &local.policies);
            let lists = match shared.get(&order) {
                Some(lists) => lists.clone(),
                None => {
                    let lists = Arc::new(arrange(policies, &order));
                    shared.insert(order, lists.clone());
                    lists
                }
            };
            if let Some((was, had)) = &local.sent
                && same_lists(endpoint, had, &lists)
                && same_for_dataplane(was, endpoint)
            {
                continue;
            }
            out(message(policies, id, endpoint, &lists));
            local.sent = Some((endpoint.clone(), lists));
        }
        for id in gone {
            if self.locals.remove(&id).is_some_and(|l| l.sent.is_some()) {
                out(match id {
                    EndpointId::Workload(id) => Message::WorkloadEndpointRemove(id),
                    EndpointId::Host(id) => Message::HostEndpointRemove(id),
                });
            }
        }
    }
}

/// The policies of a set in the order in which they apply.
fn ordered(policies: &Policies, set: &IdSet) -> Vec<PolicyNo> {
    let ranked = policies.ranked();
    if set.len() > ranked.len() / 8 {
        return ranked.iter().copied().filter(|&no| set.contains(no)).collect();
    }
    let mut order = set.to_vec();
    order.sort_unstable_by_key(|&no| policies.rank(no));
    order
}

/// Puts policies into the lists that an endpoint has for them.
fn arrange(policies: &Policies, order: &[PolicyNo]) -> Lists {
    let mut lists = Lists::default();
    for &no in order {
        let Some(data) = policies.active(no) else { continue };
        let pass = policies.passes(&data.tier);
        let into = |tiers: &mut Vec<TierList>, pass: bool, egress: bool| {
            if !(data.ingress || data.egress && egress) {
                return;
            }
            if tiers.last().is_none_or(|t| t.name != data.tier) {
                let name = data.tier.clone();
                tiers.push(TierList { name, pass, ingress: Vec::new(), egress: Vec::new() });
            }
            if let Some(tier) = tiers.last_mut() {
                if data.ingress {
                    tier.ingress.push(no);
                }
                if data.egress && egress {
                    tier.egress.push(no);
                }
            }
        };
        if data.untracked {
            into(&mut lists.untracked, true, true);
        } else if data.pre_dnat {
            into(&mut lists.pre_dnat, true, false);
        } else {
            into(&mut lists.normal, pass, true);
            if data.apply_on_forward {
                into(&mut lists.forward, pass, true);
            }
        }
    }
    lists
}

/// True if the lists that the endpoint's message carries are equal.
fn same_lists(endpoint: &Endpoint, a: &Lists, b: &Lists) -> bool {
    match endpoint {
        Endpoint::Workload(_) => a.normal == b.normal,
        Endpoint::Host(_) => a == b,
    }
}

/// True if messages about the two would not differ.
fn same_for_dataplane(a: &Endpoint, b: &Endpoint) -> bool {
    match (a, b) {
        (Endpoint::Workload(a), Endpoint::Workload(b)) => {
            Arc::ptr_eq(a, b) || workload(a, Vec::new()) == workload(b, Vec::new())
        }
        (Endpoint::Host(a), Endpoint::Host(b)) => {
            Arc::ptr_eq(a, b)
                || host(a, &Lists::default(), &|_| Vec::new()) == host(b, &Lists::default(), &|_| Vec::new())
        }
        _ => false,
    }
}

fn message(policies: &Policies, id: &EndpointId, endpoint: &Endpoint, lists: &Lists) -> Message {
    let ids =
        |list: &[PolicyNo]| -> Vec<PolicyId> { list.iter().filter_map(|&no| policies.id(no)).collect() };
    let tiers = |tiers: &[TierList]| -> Vec<TierInfo> {
        tiers
            .iter()
            .map(|t| TierInfo {
                name: t.name.clone(),
                ingress: ids(&t.ingress),
                egress: ids(&t.egress),
                default_pass: t.pass,
            })
            .collect()
    };
    match (id, endpoint) {
        (EndpointId::Workload(id), Endpoint::Workload(e)) => {
            Message::WorkloadEndpointUpdate(id.clone(), Arc::new(workload(e, tiers(&lists.normal))))
        }
        (EndpointId::Host(id), Endpoint::Host(e)) => {
            Message::HostEndpointUpdate(id.clone(), Arc::new(host(e, lists, &tiers)))
        }
        // An id and its endpoint are made together; a mismatch would be told as a removal.
        (EndpointId::Workload(id), _) => Message::WorkloadEndpointRemove(id.clone()),
        (EndpointId::Host(id), _) => Message::HostEndpointRemove(id.clone()),
    }
}

fn workload(e: &model::WorkloadEndpoint, tiers: Vec<TierInfo>) -> dp::WorkloadEndpoint {
    dp::WorkloadEndpoint {
        active: true,
        interface_name: e.interface_name.clone(),
        mac: e.mac,
        profile_ids: e.profile_ids.clone(),
        ipv4_nets: e.ipv4_nets.clone(),
        ipv6_nets: e.ipv6_nets.clone(),
        nats: e.nats.clone(),
        tiers,
        allow_spoofed_source_prefixes: e.allow_spoofed_source_prefixes.clone(),
    }
}

fn host(
    e: &model::HostEndpoint,
    lists: &Lists,
    tiers: &dyn Fn(&[TierList]) -> Vec<TierInfo>,
) -> dp::HostEndpoint {
    dp::HostEndpoint {
        interface_name: e.interface_name.clone(),
        profile_ids: e.profile_ids.clone(),
        tiers: tiers(&lists.normal),
        untracked_tiers: tiers(&lists.untracked),
        pre_dnat_tiers: tiers(&lists.pre_dnat),
        forward_tiers: tiers(&lists.forward),
        expected_ips: e.expected_ips.clone(),
    }
}
