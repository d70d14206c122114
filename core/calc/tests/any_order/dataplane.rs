//! A dataplane that folds messages into a state and checks each against the contract.

use std::collections::{BTreeMap, BTreeSet};

use calico_dpmsg::{
    Encapsulation, EndpointId, HostEndpoint, HostEndpointId, HostMetadata, IpPool, IpSetId, IpSetType,
    Member, Message, Policy, PolicyId, Profile, ProfileId, Route, Rule, TierInfo, Vtep, WorkloadEndpoint,
    WorkloadEndpointId,
};
use calico_net::Cidr;
use smol_str::SmolStr;

/// What a dataplane knows.
#[derive(Debug, Default, PartialEq)]
pub struct State {
    pub sets: BTreeMap<IpSetId, (IpSetType, BTreeSet<Member>)>,
    pub policies: BTreeMap<PolicyId, Policy>,
    pub profiles: BTreeMap<ProfileId, Profile>,
    pub workloads: BTreeMap<WorkloadEndpointId, WorkloadEndpoint>,
    pub hosts: BTreeMap<HostEndpointId, HostEndpoint>,
    pub routes: BTreeMap<Cidr, Route>,
    pub vteps: BTreeMap<SmolStr, Vtep>,
    pub metadata: BTreeMap<SmolStr, HostMetadata>,
    pub pools: BTreeMap<Cidr, IpPool>,
    pub encap: Option<Encapsulation>,
    pub in_sync: bool,
}

/// Place of a message's kind in a flush, and its place within the kind.
fn place(message: &Message) -> (u8, String) {
    let text = |t: &dyn std::fmt::Debug| format!("{t:?}");
    // The text of a CIDR does not sort as CIDRs do; numbers of fixed width do.
    let cidr = |c: &Cidr| {
        let bits = match c.addr() {
            std::net::IpAddr::V4(a) => format!("4{:032x}", a.to_bits()),
            std::net::IpAddr::V6(a) => format!("6{:032x}", a.to_bits()),
        };
        format!("{bits}/{:03}", c.prefix_len())
    };
    let endpoint = |id: EndpointId| match id {
        EndpointId::Workload(w) => format!("0{}\0{}\0{}", w.orchestrator, w.workload, w.endpoint),
        EndpointId::Host(h) => format!("1{}", h.0),
    };
    let policy = |p: &PolicyId| format!("{}\0{}\0{}", p.kind, p.namespace, p.name);
    match message {
        Message::DatastoreNotReady => (0, String::new()),
        Message::ConfigUpdate(c) => (1, text(c)),
        Message::IpSetUpdate { id, .. } => (2, id.to_string()),
        Message::IpSetDelta { id, .. } => (3, id.to_string()),
        Message::PolicyUpdate(id, _) => (4, policy(id)),
        Message::ProfileUpdate(id, _) => (5, id.to_string()),
        Message::WorkloadEndpointUpdate(id, _) => (6, endpoint(EndpointId::Workload(id.clone()))),
        Message::HostEndpointUpdate(id, _) => (6, endpoint(EndpointId::Host(id.clone()))),
        Message::WorkloadEndpointRemove(id) => (7, endpoint(EndpointId::Workload(id.clone()))),
        Message::HostEndpointRemove(id) => (7, endpoint(EndpointId::Host(id.clone()))),
        Message::ProfileRemove(id) => (8, id.to_string()),
        Message::PolicyRemove(id) => (9, policy(id)),
        Message::IpSetRemove(id) => (10, id.to_string()),
        Message::RouteRemove(c) => (11, cidr(c)),
        Message::VtepRemove(n) => (12, n.to_string()),
        Message::VtepUpdate(v) => (13, v.node.to_string()),
        Message::RouteUpdate(r) => (14, cidr(&r.dst)),
        Message::HostMetadataRemove(n) => (15, n.to_string()),
        Message::HostMetadataUpdate(m) => (16, m.hostname.to_string()),
        Message::IpPoolRemove(c) => (17, cidr(c)),
        Message::IpPoolUpdate(p) => (18, cidr(&p.cidr)),
        Message::Encapsulation(_) => (19, String::new()),
        Message::InSync => (20, String::new()),
    }
}

/// Sets that rules name.
pub fn named(rules: &[Rule]) -> impl Iterator<Item = &IpSetId> {
    rules.iter().flat_map(|r| [&r.src, &r.dst]).flat_map(|s| {
        [&s.sets, &s.not_sets, &s.named_port_sets, &s.not_named_port_sets, &s.ip_port_sets]
            .into_iter()
            .flatten()
    })
}

impl State {
    /// Takes in one flush.
    pub fn fold(&mut self, messages: Vec<Message>, overlaps: bool) {
        let places: Vec<_> = messages.iter().map(place).collect();
        for pair in places.windows(2) {
            assert!(pair[0] < pair[1], "{:?} does not come before {:?}", pair[0], pair[1]);
        }
        for message in messages {
            self.apply(message, overlaps);
        }
        let used: BTreeSet<&IpSetId> = self.used_sets().collect();
        assert_eq!(used, self.sets.keys().collect(), "sets that nothing names, or names without sets");
        let active: BTreeSet<&PolicyId> = self.used_policies().collect();
        let told = self.policies.iter().filter(|(_, p)| !p.assume_needed_on_every_node);
        // A policy may match a workload and yet stand in no list of it: untracked ones do.
        let lists = |p: &Policy| !p.untracked && !p.pre_dnat;
        let told: BTreeSet<&PolicyId> = told.filter(|(_, p)| lists(p)).map(|(id, _)| id).collect();
        assert!(told.is_subset(&active), "policies that no endpoint names: {told:?} {active:?}");
    }

    fn used_sets(&self) -> impl Iterator<Item = &IpSetId> {
        let policies = self.policies.values().flat_map(|p| named(&p.inbound).chain(named(&p.outbound)));
        policies.chain(self.profiles.values().flat_map(|p| named(&p.inbound).chain(named(&p.outbound))))
    }

    fn used_policies(&self) -> impl Iterator<Item = &PolicyId> {
        let hosts = self.hosts.values().flat_map(|h| {
            [&h.tiers, &h.untracked_tiers, &h.pre_dnat_tiers, &h.forward_tiers].into_iter().flatten()
        });
        let tiers = self.workloads.values().flat_map(|w| &w.tiers).chain(hosts);
        tiers.flat_map(|t: &TierInfo| t.ingress.iter().chain(&t.egress))
    }

    fn used_profiles(&self) -> BTreeSet<&ProfileId> {
        let hosts = self.hosts.values().flat_map(|h| &h.profile_ids);
        self.workloads.values().flat_map(|w| &w.profile_ids).chain(hosts).collect()
    }

    fn check_rules(&self, inbound: &[Rule], outbound: &[Rule]) {
        for id in named(inbound).chain(named(outbound)) {
            assert!(self.sets.contains_key(id), "a rule names {id}, which was not told");
        }
    }

    fn check_tiers(&self, tiers: &[TierInfo]) {
        for tier in tiers {
            assert!(!(tier.ingress.is_empty() && tier.egress.is_empty()), "tier {} is empty", tier.name);
            for id in tier.ingress.iter().chain(&tier.egress) {
                let policy = self.policies.get(id).unwrap_or_else(|| panic!("{id} was not told"));
                assert_eq!(policy.tier, tier.name);
            }
        }
    }

    fn check_profiles(&self, ids: &[ProfileId]) {
        for id in ids {
            assert!(self.profiles.contains_key(id), "profile {id} was not told");
        }
    }

    fn check_members(members: &BTreeSet<Member>, overlaps: bool) {
        let nets: Vec<&Cidr> =
            members.iter().filter_map(|m| if let Member::Net(c) = m { Some(c) } else { None }).collect();
        for pair in nets.windows(2) {
            // Sorted, so a covering network stands before what it covers.
            assert!(overlaps || !pair[0].covers(pair[1]), "{} covers {}", pair[0], pair[1]);
        }
    }

    fn apply(&mut self, message: Message, overlaps: bool) {
        /// Puts a value and checks that it differs from the one before.
        macro_rules! put {
            ($map:expr, $key:expr, $value:expr) => {{
                let (key, value) = ($key, $value);
                let old = $map.insert(key.clone(), value.clone());
                assert!(old.as_ref() != Some(&value), "{key:?} told without a change");
            }};
        }
        /// Removes a value that must be there.
        macro_rules! remove {
            ($map:expr, $key:expr) => {
                assert!($map.remove(&$key).is_some(), "{:?} removed but never told", $key)
            };
        }
        match message {
            Message::DatastoreNotReady | Message::ConfigUpdate(_) => {}
            Message::IpSetUpdate { id, kind, members } => {
                let set: BTreeSet<Member> = members.iter().copied().collect();
                assert!(members.is_sorted() && set.len() == members.len(), "members of {id} repeat");
                Self::check_members(&set, overlaps);
                assert!(self.sets.insert(id.clone(), (kind, set)).is_none(), "{id} told twice");
            }
            Message::IpSetDelta { id, added, removed } => {
                let (_, set) = self.sets.get_mut(&id).unwrap_or_else(|| panic!("delta of unknown {id}"));
                assert!(!(added.is_empty() && removed.is_empty()), "empty delta of {id}");
                for member in &removed {
                    assert!(set.remove(member), "{member} of {id} removed but not there");
                }
                for member in added {
                    assert!(!removed.contains(&member), "{member} of {id} in both lists");
                    assert!(set.insert(member), "{member} of {id} added but there");
                }
                Self::check_members(set, overlaps);
            }
            Message::IpSetRemove(id) => {
                assert!(!self.used_sets().any(|u| *u == id), "{id} removed while named");
                remove!(self.sets, id);
            }
            Message::PolicyUpdate(id, policy) => {
                self.check_rules(&policy.inbound, &policy.outbound);
                // May be told again unchanged: rules that are left out can differ.
                self.policies.insert(id, (*policy).clone());
            }
            Message::PolicyRemove(id) => {
                assert!(!self.used_policies().any(|u| *u == id), "{id} removed while named");
                remove!(self.policies, id);
            }
            Message::ProfileUpdate(id, profile) => {
                self.check_rules(&profile.inbound, &profile.outbound);
                self.profiles.insert(id, (*profile).clone());
            }
            Message::ProfileRemove(id) => {
                assert!(!self.used_profiles().contains(&id), "{id} removed while named");
                remove!(self.profiles, id);
            }
            Message::WorkloadEndpointUpdate(id, endpoint) => {
                self.check_tiers(&endpoint.tiers);
                self.check_profiles(&endpoint.profile_ids);
                put!(self.workloads, id, (*endpoint).clone());
            }
            Message::WorkloadEndpointRemove(id) => remove!(self.workloads, id),
            Message::HostEndpointUpdate(id, e) => {
                for tiers in [&e.tiers, &e.untracked_tiers, &e.pre_dnat_tiers, &e.forward_tiers] {
                    self.check_tiers(tiers);
                }
                self.check_profiles(&e.profile_ids);
                put!(self.hosts, id, (*e).clone());
            }
            Message::HostEndpointRemove(id) => remove!(self.hosts, id),
            Message::RouteUpdate(route) => put!(self.routes, route.dst, (*route).clone()),
            Message::RouteRemove(cidr) => remove!(self.routes, cidr),
            Message::VtepUpdate(vtep) => put!(self.vteps, vtep.node.clone(), (*vtep).clone()),
            Message::VtepRemove(node) => remove!(self.vteps, node),
            Message::HostMetadataUpdate(m) => put!(self.metadata, m.hostname.clone(), (*m).clone()),
            Message::HostMetadataRemove(node) => remove!(self.metadata, node),
            Message::IpPoolUpdate(pool) => put!(self.pools, pool.cidr, (*pool).clone()),
            Message::IpPoolRemove(cidr) => remove!(self.pools, cidr),
            Message::Encapsulation(encap) => {
                assert_ne!(self.encap, Some(encap), "encapsulation told without a change");
                self.encap = Some(encap);
            }
            Message::InSync => {
                assert!(!self.in_sync, "in sync told twice");
                self.in_sync = true;
            }
        }
    }
}
