//! Policies, tiers, profiles and network sets.

use std::fmt;

use calico_api::{
    GlobalNetworkPolicySpec, NetworkPolicySpec, ObjectMeta, PerformanceHint, PolicyType, ProfileSpec, Rule,
    TierSpec,
};

use super::rule::{self, Direction, Owner};
use super::{Checker, MAX_RULES, format, meta};
use crate::defaults::NAMESPACE_LABEL;

pub(super) fn namespaced(c: &mut Checker, spec: &NetworkPolicySpec) {
    tier_name(c, &spec.tier);
    rules(c, Owner::Namespaced, &spec.ingress, &spec.egress);
    c.selector_without_global("spec.selector", &spec.selector);
    types(c, &spec.types);
    c.selector_without_global("spec.serviceAccountSelector", &spec.service_account_selector);
    hints(c, &spec.performance_hints);
}

pub(super) fn global(c: &mut Checker, spec: &GlobalNetworkPolicySpec) {
    tier_name(c, &spec.tier);
    rules(c, Owner::Global, &spec.ingress, &spec.egress);
    c.selector_without_global("spec.selector", &spec.selector);
    types(c, &spec.types);
    let special = [("doNotTrack", spec.do_not_track), ("preDNAT", spec.pre_dnat)];
    for (field, _) in special.iter().filter(|(_, set)| *set && !spec.apply_on_forward) {
        c.fail_field(format_args!("spec.{field}"), "needs applyOnForward to be true");
    }
    if spec.pre_dnat {
        if spec.do_not_track {
            c.fail_field("spec.preDNAT", "cannot be combined with doNotTrack");
        }
        if !spec.egress.is_empty() {
            c.fail_field("spec.egress", "a policy with preDNAT cannot have egress rules");
        }
        if spec.types.contains(&PolicyType::Egress) {
            c.fail_field("spec.types", "a policy with preDNAT cannot have the type Egress");
        }
    }
    c.selector_without_global("spec.serviceAccountSelector", &spec.service_account_selector);
    c.selector_without_global("spec.namespaceSelector", &spec.namespace_selector);
    hints(c, &spec.performance_hints);
}

pub(super) fn profile(c: &mut Checker, spec: &ProfileSpec) {
    rules(c, Owner::Profile, &spec.ingress, &spec.egress);
    for (key, value) in &spec.labels_to_apply {
        if !format::is_label_key(key) {
            c.fail("spec.labelsToApply", key, meta::LABEL_KEY);
        }
        if !format::is_label_value(value) {
            c.fail(format_args!("spec.labelsToApply[{key}]"), value, meta::LABEL_VALUE);
        }
    }
}

pub(super) fn tier(c: &mut Checker, name: &str, spec: &TierSpec) {
    let action = spec.default_action.as_ref().map_or("Deny", |action| action.as_str());
    c.word("spec.defaultAction", action, &["Pass", "Deny"]);
    let fixed = match name {
        "default" => (1_000_000.0, "Deny"),
        "kube-admin" => (1_000.0, "Pass"),
        "kube-baseline" => (10_000_000.0, "Pass"),
        _ => return,
    };
    if spec.order.unwrap_or(crate::defaults::DEFAULT_TIER_ORDER) != fixed.0 {
        c.fail_field("spec.order", format!("the order of tier {name} is always {}", fixed.0));
    }
    if action != fixed.1 {
        c.fail(
            "spec.defaultAction",
            action,
            format!("the default action of tier {name} is always {}", fixed.1),
        );
    }
}

pub(super) fn network_set(c: &mut Checker, metadata: &ObjectMeta, nets: &[String]) {
    if metadata.labels.contains_key(NAMESPACE_LABEL) {
        c.fail("Metadata.Labels (label)", NAMESPACE_LABEL, "this label is reserved");
    }
    for (i, net) in nets.iter().enumerate() {
        if !net.is_empty() && !format::is_cidr(net, None) {
            c.fail(format_args!("spec.nets[{i}]"), net, "must be a CIDR or an IP address");
        }
    }
}

fn tier_name(c: &mut Checker, tier: &str) {
    if !tier.is_empty() && !format::is_name(tier) {
        c.fail("spec.tier", tier, "is not a valid name of a tier");
    }
}

fn rules(c: &mut Checker, owner: Owner, ingress: &[Rule], egress: &[Rule]) {
    for (direction, rules) in [(Direction::Ingress, ingress), (Direction::Egress, egress)] {
        let list = format!("spec.{direction}");
        c.max_items(&list, rules.len(), MAX_RULES);
        for (i, rule) in rules.iter().enumerate().take(MAX_RULES) {
            rule::check(c, &format!("{list}[{i}]"), rule, direction, owner);
        }
    }
}

fn types(c: &mut Checker, types: &[PolicyType]) {
    for (i, kind) in types.iter().enumerate() {
        c.word(format_args!("spec.types[{i}]"), kind.as_str(), PolicyType::WORDS);
    }
    unique(c, "spec.types", types);
}

fn hints(c: &mut Checker, hints: &[PerformanceHint]) {
    for (i, hint) in hints.iter().enumerate() {
        c.word(format_args!("spec.performanceHints[{i}]"), hint.as_str(), PerformanceHint::WORDS);
    }
    unique(c, "spec.performanceHints", hints);
}

fn unique<T: PartialEq + fmt::Display>(c: &mut Checker, field: &str, items: &[T]) {
    for (i, item) in items.iter().enumerate() {
        if items[..i].contains(item) {
            c.fail(format_args!("{field}[{i}]"), item, "is given more than once");
        }
    }
}
