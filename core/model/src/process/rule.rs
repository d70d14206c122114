//! Rules: the v3 form to the form that Felix works on.
//!
//! Namespaces and service accounts become conditions on labels that endpoints inherit from their profiles
//! (prefixes `pcns.` and `pcsa.`), so that one selector says who matches.
//!
//! Invariant: a rule never matches fewer packets for a deny, or more packets for an allow, than what was
//! written. A part that cannot be read would widen the rule, so a rule with such a part is dropped, unless it
//! denies: then it is kept, wider than written.

use calico_api as api;
use calico_net::{Cidr, IpVersion};
use calico_selector::{Selector, replace_all, replace_global};
use smol_str::{SmolStr, format_smolstr};

use crate::names::{
    LABEL_NAMESPACE, LABEL_SERVICE_ACCOUNT, NAMESPACE_LABEL_PREFIX, SERVICE_ACCOUNT_LABEL_PREFIX,
};
use crate::policy::{Action, EntityMatch, HttpMatch, IcmpMatch, OriginalMatch, Rule};

/// A part of a rule that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: cannot read {value:?}")]
pub(super) struct Unreadable {
    field: &'static str,
    value: String,
}

impl Unreadable {
    fn new(field: &'static str, value: impl ToString) -> Self {
        Self { field, value: value.to_string() }
    }
}

/// Rules of one direction. `namespace` is that of the policy, empty for global ones. Also tells which rules
/// held unreadable parts, by number.
pub(super) fn rules(rules: &[api::Rule], namespace: &str) -> (Vec<Rule>, Vec<(usize, Unreadable)>) {
    let mut faults = Vec::new();
    let converted = rules
        .iter()
        .enumerate()
        .filter_map(|(number, source)| {
            let (rule, fault) = rule(source, namespace);
            let keep = fault.is_none() || rule.action == Action::Deny;
            faults.extend(fault.map(|fault| (number, fault)));
            keep.then_some(rule)
        })
        .collect();
    (converted, faults)
}

/// The selector that holds on its own for endpoints of `namespace`.
pub(super) fn in_namespace(namespace: &str) -> String {
    format!("{LABEL_NAMESPACE} == '{namespace}'")
}

/// `selector` over namespaces as one over endpoints.
pub(super) fn over_namespaces(selector: &str) -> Option<String> {
    Selector::parse(selector).ok().map(|s| s.prefixed(NAMESPACE_LABEL_PREFIX))
}

/// `selector` over service accounts as one over endpoints.
pub(super) fn over_accounts(selector: &str) -> Option<String> {
    Selector::parse(selector).ok().map(|s| s.prefixed(SERVICE_ACCOUNT_LABEL_PREFIX))
}

/// `(a) && b`, or just `b` if `a` is empty.
pub(super) fn and(a: &str, b: &str) -> String {
    if a.is_empty() { b.to_owned() } else { format!("({a}) && {b}") }
}

fn rule(source: &api::Rule, namespace: &str) -> (Rule, Option<Unreadable>) {
    let mut fault = None;
    let mut note = |found: Unreadable| fault = fault.take().or(Some(found));
    let action = match &source.action {
        api::Action::Allow => Action::Allow,
        api::Action::Pass => Action::Pass,
        api::Action::Log => Action::Log,
        api::Action::Deny => Action::Deny,
        other => {
            note(Unreadable::new("action", other));
            Action::Deny
        }
    };
    let ip_version = source.ip_version.and_then(|version| match version {
        4 => Some(IpVersion::V4),
        6 => Some(IpVersion::V6),
        other => {
            note(Unreadable::new("ipVersion", other));
            None
        }
    });
    let (src, src_fault) = entity(&source.source, namespace);
    let (dst, dst_fault) = entity(&source.destination, namespace);
    let (icmp, icmp_fault) = icmp_match(source.icmp.as_ref());
    let (not_icmp, not_icmp_fault) = icmp_match(source.not_icmp.as_ref());
    [src_fault, dst_fault, icmp_fault, not_icmp_fault].into_iter().flatten().for_each(&mut note);
    let rule = Rule {
        action,
        ip_version,
        protocol: source.protocol.as_ref().map(|p| p.to_lower()),
        not_protocol: source.not_protocol.as_ref().map(|p| p.to_lower()),
        icmp,
        not_icmp,
        src,
        dst,
        http: source.http.as_ref().map(|http| Box::new(http_match(http))),
        metadata: source
            .metadata
            .as_ref()
            .filter(|m| !m.annotations.is_empty())
            .map(|m| Box::new(m.annotations.clone())),
    };
    (rule, fault)
}

fn icmp_match(fields: Option<&api::IcmpFields>) -> (Option<IcmpMatch>, Option<Unreadable>) {
    let Some(fields) = fields else { return (None, None) };
    let mut fault = None;
    let mut byte = |field, value: Option<i64>| {
        let value = value?;
        match u8::try_from(value) {
            Ok(byte) => Some(byte),
            Err(_) => {
                fault = Some(Unreadable::new(field, value));
                None
            }
        }
    };
    let found =
        IcmpMatch { icmp_type: byte("icmp.type", fields.icmp_type), code: byte("icmp.code", fields.code) };
    (Some(found), fault)
}

fn http_match(http: &api::HttpMatch) -> HttpMatch {
    HttpMatch {
        methods: http.methods.iter().map(Into::into).collect(),
        paths: http
            .paths
            .iter()
            .map(|path| {
                if path.exact.is_empty() {
                    (false, (&path.prefix).into())
                } else {
                    (true, (&path.exact).into())
                }
            })
            .collect(),
    }
}

fn entity(source: &api::EntityRule, namespace: &str) -> (EntityMatch, Option<Unreadable>) {
    let (selector, selector_fault) = match effective_selector(source, namespace) {
        Ok(selector) => (selector.into(), None),
        Err(fault) => (SmolStr::default(), Some(fault)),
    };
    let (nets, bad_nets) = cidrs("nets", &source.nets);
    let (not_nets, bad_not_nets) = cidrs("notNets", &source.not_nets);
    // An entry less among alternatives narrows the rule; only none at all would widen it.
    let nets_fault = bad_nets.filter(|_| nets.is_empty());
    let service = source.services.as_ref().map(|service| {
        let of = if service.namespace.is_empty() { namespace } else { &service.namespace };
        (of.into(), (&service.name).into())
    });
    let found = EntityMatch {
        nets,
        not_nets,
        ports: source.ports.clone(),
        not_ports: source.not_ports.clone(),
        selector,
        not_selector: (&source.not_selector).into(),
        service,
        original: original(source).map(Box::new),
    };
    (found, selector_fault.or(nets_fault).or(bad_not_nets))
}

fn cidrs(field: &'static str, texts: &[String]) -> (Vec<Cidr>, Option<Unreadable>) {
    let mut fault = None;
    let nets = texts
        .iter()
        .filter_map(|text| match Cidr::parse(text) {
            Ok(cidr) => Some(cidr.masked()),
            Err(_) => {
                fault = Some(Unreadable::new(field, text));
                None
            }
        })
        .collect();
    (nets, fault)
}

fn original(source: &api::EntityRule) -> Option<OriginalMatch> {
    let accounts = source.service_accounts.as_ref();
    let found = OriginalMatch {
        selector: (&source.selector).into(),
        namespace_selector: (&source.namespace_selector).into(),
        not_selector: (&source.not_selector).into(),
        service_account_names: accounts.map(|a| a.names.iter().map(Into::into).collect()).unwrap_or_default(),
        service_account_selector: accounts.map(|a| (&a.selector).into()).unwrap_or_default(),
    };
    (found != OriginalMatch::default()).then_some(found)
}

/// The one selector that stands for selector, namespace selector and service accounts of one side of a rule.
///
/// In a namespaced policy it stays within the namespace as soon as anything is selected by label.
fn effective_selector(source: &api::EntityRule, namespace: &str) -> Result<String, Unreadable> {
    let by_namespace = if !source.namespace_selector.is_empty() {
        let selector = over_namespaces(&source.namespace_selector)
            .ok_or_else(|| Unreadable::new("namespaceSelector", &source.namespace_selector))?;
        Some(replace_global(&replace_all(&selector, LABEL_NAMESPACE), LABEL_NAMESPACE))
    } else if !namespace.is_empty() {
        Some(in_namespace(namespace))
    } else {
        None
    };
    let by_account = match &source.service_accounts {
        Some(accounts) => account_selector(accounts)?,
        None => String::new(),
    };
    let by_label = match (by_account.is_empty(), source.selector.is_empty()) {
        (true, _) => source.selector.clone(),
        (false, true) => by_account,
        (false, false) => format!("({by_account}) && ({})", source.selector),
    };
    let selects =
        !by_label.is_empty() || !source.not_selector.is_empty() || !source.namespace_selector.is_empty();
    Ok(match by_namespace {
        Some(by_namespace) if selects && by_label.is_empty() => by_namespace,
        Some(by_namespace) if selects => format!("({by_namespace}) && ({by_label})"),
        _ => by_label,
    })
}

fn account_selector(accounts: &api::ServiceAccountMatch) -> Result<String, Unreadable> {
    let by_label = if accounts.selector.is_empty() {
        String::new()
    } else {
        over_accounts(&accounts.selector)
            .ok_or_else(|| Unreadable::new("serviceAccounts.selector", &accounts.selector))?
    };
    if accounts.names.is_empty() {
        return Ok(by_label);
    }
    let names: Vec<SmolStr> = accounts.names.iter().map(|name| format_smolstr!("'{name}'")).collect();
    let text = format!("{LABEL_SERVICE_ACCOUNT} in {{ {} }}", names.join(", "));
    let by_name = Selector::parse(&text)
        .map_err(|_| Unreadable::new("serviceAccounts.names", accounts.names.join(", ")))?;
    let by_name = by_name.canonical();
    Ok(if by_label.is_empty() { by_name.to_owned() } else { format!("({by_label}) && ({by_name})") })
}
