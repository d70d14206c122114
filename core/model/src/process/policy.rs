//! Policies of all kinds, tiers and profiles.

use std::sync::Arc;

use calico_api as api;
use calico_api::{AnyResource, Kind};
use calico_selector::replace_all;
use smol_str::SmolStr;

use super::rule::{self, Unreadable};
use super::{Converted, Parts, ProcessError, object, unreadable};
use crate::key::{Key, PolicyKey, ResourceKey};
use crate::names::{DEFAULT_TIER, LABEL_NAMESPACE, LABEL_SERVICE_ACCOUNT, tier_or_default};
use crate::policy::{Labels, Policy, ProfileRules, Tier};
use crate::value::Value;

pub(super) fn key(source: &ResourceKey) -> Result<Key, ProcessError> {
    let ResourceKey { kind, namespace, name } = source.clone();
    Ok(Key::Policy(PolicyKey { kind, namespace, name }))
}

pub(super) fn tier_key(source: &ResourceKey) -> Result<Key, ProcessError> {
    Ok(Key::Tier(source.name.clone()))
}

pub(super) fn tier(source: &ResourceKey, value: &Value) -> Converted {
    let spec = &object::<api::Tier>(source, value)?.spec;
    let default_pass = spec.default_action == Some(api::DefaultAction::Pass);
    Ok((Some(Value::Tier(Tier { order: spec.order, default_pass })), None))
}

pub(super) fn policy(source: &ResourceKey, value: &Value) -> Converted {
    let Value::Resource(any) = value else {
        return Err(ProcessError::WrongValue { key: source.clone() });
    };
    match (source.kind, &**any) {
        (Kind::NetworkPolicy | Kind::KubernetesNetworkPolicy, AnyResource::NetworkPolicy(p)) => {
            let s = &p.spec;
            finish(
                source,
                Common {
                    tier: &s.tier,
                    order: s.order,
                    selector: namespaced_selector(source, &s.selector, &s.service_account_selector)?,
                    types: &s.types,
                    ingress: &s.ingress,
                    egress: &s.egress,
                    hints: &s.performance_hints,
                    staged: None,
                    host: HostFlags::default(),
                },
            )
        }
        (
            Kind::GlobalNetworkPolicy | Kind::KubernetesClusterNetworkPolicy,
            AnyResource::GlobalNetworkPolicy(p),
        ) => {
            let s = &p.spec;
            finish(
                source,
                Common {
                    tier: &s.tier,
                    order: s.order,
                    selector: global_selector(
                        source,
                        &s.selector,
                        &s.namespace_selector,
                        &s.service_account_selector,
                    )?,
                    types: &s.types,
                    ingress: &s.ingress,
                    egress: &s.egress,
                    hints: &s.performance_hints,
                    staged: None,
                    host: HostFlags {
                        untracked: s.do_not_track,
                        pre_dnat: s.pre_dnat,
                        apply_on_forward: s.apply_on_forward,
                    },
                },
            )
        }
        _ => Err(ProcessError::WrongValue { key: source.clone() }),
    }
}

pub(super) fn profile(source: &ResourceKey, value: Option<&Value>) -> (Parts, Option<ProcessError>) {
    let name = &source.name;
    let keys = |labels, rules, raw| {
        vec![
            (Key::ProfileLabels(name.clone()), labels),
            (Key::ProfileRules(name.clone()), rules),
            (Key::Resource(source.clone()), raw),
        ]
    };
    let spec = match value.map(|value| object::<api::Profile>(source, value)) {
        None => return (keys(None, None, None), None),
        Some(Err(error)) => return (keys(None, None, None), Some(error)),
        Some(Ok(profile)) => &profile.spec,
    };
    let labels: Labels =
        spec.labels_to_apply.iter().map(|(k, v)| (SmolStr::from(k), SmolStr::from(v))).collect();
    let labels = (!labels.is_empty()).then(|| Value::ProfileLabels(Arc::new(labels)));
    let (inbound_rules, bad_in) = rule::rules(&spec.ingress, "");
    let (outbound_rules, bad_out) = rule::rules(&spec.egress, "");
    let rules = Value::ProfileRules(Arc::new(ProfileRules { inbound_rules, outbound_rules }));
    (keys(labels, Some(rules), value.cloned()), rule_fault(source, bad_in, bad_out))
}

/// What the kinds of policies have in common.
struct Common<'a> {
    tier: &'a str,
    order: Option<f64>,
    selector: String,
    types: &'a [api::PolicyType],
    ingress: &'a [api::Rule],
    egress: &'a [api::Rule],
    hints: &'a [api::PerformanceHint],
    staged: Option<SmolStr>,
    host: HostFlags,
}

/// Settings that only matter on hosts.
#[derive(Default)]
struct HostFlags {
    untracked: bool,
    pre_dnat: bool,
    apply_on_forward: bool,
}

fn finish(source: &ResourceKey, parts: Common<'_>) -> Converted {
    let (inbound_rules, bad_in) = rule::rules(parts.ingress, &source.namespace);
    let (outbound_rules, bad_out) = rule::rules(parts.egress, &source.namespace);
    // A policy of old releases without types governs both directions.
    let governs = |wanted: &str| {
        parts.types.is_empty() || parts.types.iter().any(|t| t.as_str().eq_ignore_ascii_case(wanted))
    };
    let tier = match tier_or_default(parts.tier) {
        DEFAULT_TIER => SmolStr::new_static(DEFAULT_TIER),
        other => other.into(),
    };
    let policy = Policy {
        tier,
        order: parts.order,
        namespace: source.namespace.clone(),
        selector: parts.selector.into(),
        ingress: governs("ingress"),
        egress: governs("egress"),
        inbound_rules,
        outbound_rules,
        untracked: parts.host.untracked,
        pre_dnat: parts.host.pre_dnat,
        apply_on_forward: parts.host.apply_on_forward,
        staged_action: parts.staged,
        performance_hints: parts.hints.iter().map(|hint| hint.as_str().into()).collect(),
    };
    Ok((Some(Value::Policy(Arc::new(policy))), rule_fault(source, bad_in, bad_out)))
}

fn rule_fault(
    source: &ResourceKey,
    ingress: Vec<(usize, Unreadable)>,
    egress: Vec<(usize, Unreadable)>,
) -> Option<ProcessError> {
    let first = |direction, faults: Vec<(usize, Unreadable)>| {
        faults.into_iter().next().map(|(number, reason)| ProcessError::UnreadableRule {
            key: source.clone(),
            direction,
            number,
            reason: reason.to_string(),
        })
    };
    first("ingress", ingress).or_else(|| first("egress", egress))
}

fn namespaced_selector(source: &ResourceKey, selector: &str, accounts: &str) -> Result<String, ProcessError> {
    let within = rule::and(selector, &rule::in_namespace(&source.namespace));
    if accounts.is_empty() {
        return Ok(within);
    }
    let accounts = rule::over_accounts(accounts)
        .ok_or_else(|| unreadable(source, "spec.serviceAccountSelector", accounts))?;
    Ok(rule::and(&within, &accounts))
}

fn global_selector(
    source: &ResourceKey,
    selector: &str,
    namespaces: &str,
    accounts: &str,
) -> Result<String, ProcessError> {
    let mut out = selector.to_owned();
    if !namespaces.is_empty() {
        let by_namespace = rule::over_namespaces(namespaces)
            .ok_or_else(|| unreadable(source, "spec.namespaceSelector", namespaces))?;
        out = replace_all(&rule::and(&out, &by_namespace), LABEL_NAMESPACE);
    }
    if !accounts.is_empty() {
        let by_account = rule::over_accounts(accounts)
            .ok_or_else(|| unreadable(source, "spec.serviceAccountSelector", accounts))?;
        out = replace_all(&rule::and(&out, &by_account), LABEL_SERVICE_ACCOUNT);
    }
    Ok(out)
}
