//! From stored rules to the dataplane's: selectors and named ports become sets.
//!
//! In: the rules of one policy or profile. Out: rules with set ids and names, and the sets that they hold
//! references to. Failing closed: a rule with a selector that does not parse, or with a Service, matches too
//! little if it allows (it is left out) and too much if it denies (that criterion is dropped).

use std::sync::Arc;

use calico_dpmsg::{self as dp, RuleSide};
use calico_model::policy::{Action, IcmpMatch};
use calico_net::intern::Id;
use calico_net::{IpVersion, Port, PortRange, Protocol};
use calico_selector::Selector;
use smol_str::SmolStr;

use crate::ruleid::Chain;
use crate::rules::{RuleList, RuleStore, Side, StoredRule};
use crate::sets::{SetId, Sets};

/// The dataplane's form of a rule list.
#[derive(Debug, Default)]
pub(crate) struct Scanned {
    pub(crate) inbound: Vec<dp::Rule>,
    pub(crate) outbound: Vec<dp::Rule>,
    /// Sets that the rules name, with repetitions: one reference each.
    pub(crate) sets: Vec<SetId>,
}

/// Makes the dataplane's rules. The seeds start the chains of digests that name the rules.
pub(crate) fn scan(list: &RuleList, seeds: [&str; 2], store: &mut RuleStore, sets: &mut Sets) -> Scanned {
    let mut used = Vec::new();
    let mut direction = |rules: &[Id], seed: &str| {
        let mut chain = Chain::new(seed);
        let mut out = Vec::with_capacity(rules.len());
        for &id in rules {
            // The store cannot be lent while selectors are parsed into it; a rule is small.
            let Some(stored) = store.rule(id).cloned() else { continue };
            let Some(mut rule) = convert(&stored, store, sets, &mut used) else { continue };
            rule.rule_id = chain.next(&rule, &stored, store);
            out.push(rule);
        }
        out
    };
    let (inbound, outbound) = (direction(list.inbound(), seeds[0]), direction(list.outbound(), seeds[1]));
    Scanned { inbound, outbound, sets: used }
}

/// The rules of a profile that does not exist: deny, both ways.
pub(crate) fn deny_all(seeds: [&str; 2], store: &RuleStore) -> Scanned {
    let stored = StoredRule {
        action: Action::Deny,
        ip_version: None,
        protocol: crate::rules::StoredProtocol::Any,
        not_protocol: crate::rules::StoredProtocol::Any,
        icmp: None,
        not_icmp: None,
        src: None,
        dst: None,
        extra: None,
    };
    let [inbound, outbound] = seeds.map(|seed| {
        let mut rule = bare(&stored);
        rule.rule_id = Chain::new(seed).next(&rule, &stored, store);
        vec![rule]
    });
    Scanned { inbound, outbound, sets: Vec::new() }
}

fn bare(stored: &StoredRule) -> dp::Rule {
    dp::Rule {
        action: match stored.action {
            Action::Allow => dp::Action::Allow,
            Action::Deny => dp::Action::Deny,
            Action::Pass => dp::Action::Pass,
            Action::Log => dp::Action::Log,
        },
        ip_version: stored.ip_version,
        protocol: None,
        not_protocol: None,
        icmp: icmp(stored.icmp),
        not_icmp: icmp(stored.not_icmp),
        src: RuleSide::default(),
        dst: RuleSide::default(),
        metadata: None,
        rule_id: SmolStr::default(),
    }
}

fn icmp(icmp: Option<IcmpMatch>) -> Option<dp::IcmpMatch> {
    let IcmpMatch { icmp_type, code } = icmp?;
    Some(dp::IcmpMatch { icmp_type: icmp_type?, code })
}

/// `None` if the rule must be left out.
fn convert(
    stored: &StoredRule,
    store: &mut RuleStore,
    sets: &mut Sets,
    used: &mut Vec<SetId>,
) -> Option<dp::Rule> {
    let sides = [&stored.src, &stored.dst].map(|side| side.as_deref().map(|s| Criteria::of(s, store)));
    if stored.action != Action::Deny && sides.iter().flatten().any(|c| c.unusable) {
        return None;
    }
    let mut rule = bare(stored);
    rule.protocol = store.protocol(stored.protocol);
    rule.not_protocol = store.protocol(stored.not_protocol);
    if rule.ip_version.is_none() {
        rule.ip_version = match &rule.protocol {
            Some(Protocol::Name(name)) if name == "icmp" => Some(IpVersion::V4),
            Some(Protocol::Name(name)) if name == "icmpv6" => Some(IpVersion::V6),
            Some(Protocol::Num(1)) => Some(IpVersion::V4),
            Some(Protocol::Num(58)) => Some(IpVersion::V6),
            _ => None,
        };
    }
    let metadata = stored.extra.as_ref().and_then(|e| e.metadata.as_ref());
    rule.metadata = metadata.map(|m| Arc::new(m.iter().map(|(k, v)| (k.clone(), v.clone())).collect()));
    let protocol = rule.protocol.clone();
    let mut take = |(set, id): (SetId, dp::IpSetId)| {
        used.push(set);
        id
    };
    for (side, criteria, out) in
        [(&stored.src, &sides[0], &mut rule.src), (&stored.dst, &sides[1], &mut rule.dst)]
    {
        let (Some(side), Some(criteria)) = (side, criteria) else { continue };
        out.nets = side.nets.to_vec();
        out.not_nets = side.not_nets.to_vec();
        let named =
            |ports: &[Port], sets: &mut Sets, take: &mut dyn FnMut((SetId, dp::IpSetId)) -> dp::IpSetId| {
                let (mut numbers, mut ids) = (Vec::new(), Vec::new());
                for port in ports {
                    match port {
                        Port::Range(range) => numbers.push(*range),
                        Port::Named(name) => {
                            let all = Selector::all();
                            let over = criteria.positive.as_ref().unwrap_or(&all);
                            ids.push(take(sets.acquire_ports(over, protocol.as_ref(), name)));
                        }
                    }
                }
                (numbers, ids)
            };
        (out.ports, out.named_port_sets) = named(&side.ports, sets, &mut take);
        (out.not_ports, out.not_named_port_sets) = named(&side.not_ports, sets, &mut take);
        // Members of a named port's set are selected already; ports by number still need the selector's set.
        let implied = !out.named_port_sets.is_empty() && out.ports == Vec::<PortRange>::new();
        if let Some(selector) = criteria.positive.as_ref().filter(|_| !implied) {
            out.sets.push(take(sets.acquire_nets(selector)));
        }
        if let Some(selector) = &criteria.negative {
            out.not_sets.push(take(sets.acquire_nets(selector)));
        }
        if let Some(original) = &side.original {
            let text = |id: Option<Id>| id.map(|id| store.text(id)).unwrap_or_default();
            out.original_selector = text(original.selector);
            out.original_not_selector = text(original.not_selector);
            out.original_namespace_selector = text(original.namespace_selector);
        }
    }
    Some(rule)
}

/// What the selectors of a side come to.
struct Criteria {
    positive: Option<Selector>,
    negative: Option<Selector>,
    /// Something in it cannot be told.
    unusable: bool,
}

impl Criteria {
    fn of(side: &Side, store: &mut RuleStore) -> Self {
        let mut unusable = side.service.is_some();
        let mut parse = |id: Option<Id>| {
            let selector = store.selector(id?);
            unusable |= selector.is_none();
            selector
        };
        let (positive, negative) = (parse(side.selector), parse(side.not_selector));
        match (positive, negative) {
            // One set for both, since the negation may only range over what the selector can select.
            (Some(p), Some(n)) => {
                let both = Selector::parse(&format!("({p}) && (!({n}))"));
                unusable |= both.is_err();
                Self { positive: both.ok(), negative: None, unusable }
            }
            (positive, negative) => Self { positive, negative, unusable },
        }
    }
}
