//! Rules as they are kept: interned, so that equal rules of any number of policies are stored once.
//!
//! Owns: texts (selectors and what users wrote), parsed selectors while they are in use, and rules. In: rules of
//! the model. Out: numbers. Invariant: every text that a stored rule names is held by a reference.

use std::collections::BTreeMap;

use calico_model::policy::{Action, EntityMatch, HttpMatch, IcmpMatch, OriginalMatch, Rule};
use calico_net::intern::{Id, Interner, StrInterner};
use calico_net::{Cidr, IpVersion, Port, Protocol};
use calico_selector::{ParseError, Selector};
use rustc_hash::FxHashMap;
use smol_str::SmolStr;

use crate::problem::{Findings, Reason};

/// A rule with everything optional behind one pointer each.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct StoredRule {
    pub(crate) action: Action,
    pub(crate) ip_version: Option<IpVersion>,
    pub(crate) protocol: StoredProtocol,
    pub(crate) not_protocol: StoredProtocol,
    pub(crate) icmp: Option<IcmpMatch>,
    pub(crate) not_icmp: Option<IcmpMatch>,
    pub(crate) src: Option<Box<Side>>,
    pub(crate) dst: Option<Box<Side>>,
    pub(crate) extra: Option<Box<Extra>>,
}

/// A protocol in eight bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum StoredProtocol {
    Any,
    Num(u8),
    Name(Id),
}

/// One side of a rule.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Side {
    pub(crate) nets: Box<[Cidr]>,
    pub(crate) not_nets: Box<[Cidr]>,
    pub(crate) ports: Box<[Port]>,
    pub(crate) not_ports: Box<[Port]>,
    pub(crate) selector: Option<Id>,
    pub(crate) not_selector: Option<Id>,
    pub(crate) service: Option<Box<(SmolStr, SmolStr)>>,
    pub(crate) original: Option<Box<Original>>,
}

/// What the user wrote.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Original {
    pub(crate) selector: Option<Id>,
    pub(crate) namespace_selector: Option<Id>,
    pub(crate) not_selector: Option<Id>,
    pub(crate) account_selector: Option<Id>,
    pub(crate) account_names: Box<[SmolStr]>,
}

/// Rare parts.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Extra {
    pub(crate) http: Option<Box<HttpMatch>>,
    pub(crate) metadata: Option<BTreeMap<String, String>>,
}

/// The rules of a policy or profile: inbound ones, then outbound ones.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct RuleList {
    all: Box<[Id]>,
    inbound: u32,
}

impl RuleList {
    /// Inbound rules.
    pub(crate) fn inbound(&self) -> &[Id] {
        &self.all[..self.inbound as usize]
    }

    /// Outbound rules.
    pub(crate) fn outbound(&self) -> &[Id] {
        &self.all[self.inbound as usize..]
    }
}

/// All texts and rules.
#[derive(Debug, Default)]
pub(crate) struct RuleStore {
    texts: StrInterner,
    rules: Interner<StoredRule>,
    /// Selectors that someone asked for, until their text goes.
    parsed: FxHashMap<Id, Selector>,
    bad: FxHashMap<Id, ParseError>,
    /// Texts that were checked as selectors, by index.
    checked: Vec<bool>,
}

// === impl RuleStore: texts ===

impl RuleStore {
    /// The number of a text; `None` for the empty one.
    fn text_id(&mut self, text: &SmolStr) -> Option<Id> {
        (!text.is_empty()).then(|| self.texts.acquire_with(text.as_str(), |_| text.clone()))
    }

    /// The number of a selector's text, checked when it is new. The empty text counts as well.
    pub(crate) fn acquire_selector(&mut self, text: &SmolStr) -> (Id, Option<&ParseError>) {
        let id = self.texts.acquire_with(text.as_str(), |_| text.clone());
        let at = id.index();
        if at >= self.checked.len() {
            self.checked.resize(at + 1, false);
        }
        if !self.checked[at] {
            self.checked[at] = true;
            if let Err(error) = calico_selector::validate(text) {
                self.bad.insert(id, error);
            }
        }
        (id, self.bad.get(&id))
    }

    /// Takes one more reference to a text.
    pub(crate) fn retain_text(&mut self, id: Id) {
        self.texts.retain(id);
    }

    /// Gives a reference to a text back.
    pub(crate) fn release_text(&mut self, id: Id) {
        if self.texts.release(id).is_some() {
            self.parsed.remove(&id);
            self.bad.remove(&id);
            if let Some(checked) = self.checked.get_mut(id.index()) {
                *checked = false;
            }
        }
    }

    /// A text by its number.
    pub(crate) fn text(&self, id: Id) -> SmolStr {
        self.texts.get(id).cloned().unwrap_or_default()
    }

    /// The selector of a text that was acquired as one; `None` if it does not parse.
    pub(crate) fn selector(&mut self, id: Id) -> Option<Selector> {
        if let Some(selector) = self.parsed.get(&id) {
            return Some(selector.clone());
        }
        if self.bad.contains_key(&id) {
            return None;
        }
        let selector = Selector::parse(self.texts.get(id)?).ok()?;
        self.parsed.insert(id, selector.clone());
        Some(selector)
    }

    /// As [`RuleStore::selector`], without keeping it for the next question.
    pub(crate) fn selector_once(&self, id: Id) -> Option<Selector> {
        match self.parsed.get(&id) {
            Some(selector) => Some(selector.clone()),
            None if self.bad.contains_key(&id) => None,
            None => Selector::parse(self.texts.get(id)?).ok(),
        }
    }
}

// === impl RuleStore: rules ===

impl RuleStore {
    /// Stores the rules of a policy or profile.
    pub(crate) fn acquire_rules(
        &mut self,
        inbound: &[Rule],
        outbound: &[Rule],
        findings: &mut Findings,
    ) -> RuleList {
        let mut all = Vec::with_capacity(inbound.len() + outbound.len());
        for (direction, rules) in [("ingress", inbound), ("egress", outbound)] {
            for (i, rule) in rules.iter().enumerate() {
                all.push(self.acquire_rule(rule, &mut |side, what, reason| {
                    findings.add(smol_str::format_smolstr!("{direction}[{i}].{side}.{what}"), reason);
                }));
            }
        }
        RuleList { all: all.into_boxed_slice(), inbound: inbound.len() as u32 }
    }

    /// Takes one more reference to each rule.
    pub(crate) fn retain_rules(&mut self, list: &RuleList) {
        for &id in &list.all {
            self.rules.retain(id);
        }
    }

    /// Gives rules back.
    pub(crate) fn release_rules(&mut self, list: &RuleList) {
        for &id in &list.all {
            if let Some(rule) = self.rules.release(id) {
                self.release_parts(&rule);
            }
        }
    }

    /// A rule by its number.
    pub(crate) fn rule(&self, id: Id) -> Option<&StoredRule> {
        self.rules.get(id)
    }

    /// The text of a stored protocol.
    pub(crate) fn protocol(&self, stored: StoredProtocol) -> Option<Protocol> {
        match stored {
            StoredProtocol::Any => None,
            StoredProtocol::Num(n) => Some(Protocol::Num(n)),
            StoredProtocol::Name(id) => Some(Protocol::Name(self.text(id))),
        }
    }

    fn acquire_rule(&mut self, rule: &Rule, report: &mut dyn FnMut(&str, &str, Reason)) -> Id {
        let stored = StoredRule {
            action: rule.action,
            ip_version: rule.ip_version,
            protocol: self.store_protocol(rule.protocol.as_ref()),
            not_protocol: self.store_protocol(rule.not_protocol.as_ref()),
            icmp: rule.icmp,
            not_icmp: rule.not_icmp,
            src: self.store_side(&rule.src, &mut |what, reason| report("source", what, reason)),
            dst: self.store_side(&rule.dst, &mut |what, reason| report("destination", what, reason)),
            extra: (rule.http.is_some() || rule.metadata.is_some()).then(|| {
                Box::new(Extra { http: rule.http.clone(), metadata: rule.metadata.as_deref().cloned() })
            }),
        };
        if let Some(id) = self.rules.find(&stored) {
            self.rules.retain(id);
            self.release_parts(&stored);
            return id;
        }
        self.rules.acquire_with(&stored, StoredRule::clone)
    }

    fn store_protocol(&mut self, protocol: Option<&Protocol>) -> StoredProtocol {
        match protocol {
            None => StoredProtocol::Any,
            Some(Protocol::Num(n)) => StoredProtocol::Num(*n),
            Some(Protocol::Name(name)) => StoredProtocol::Name(self.texts.acquire(name.as_str())),
        }
    }

    fn store_side(&mut self, side: &EntityMatch, report: &mut dyn FnMut(&str, Reason)) -> Option<Box<Side>> {
        // Taken apart field by field, so that a new field cannot be forgotten here.
        let EntityMatch { nets, not_nets, ports, not_ports, selector, not_selector, service, original } =
            side;
        if nets.is_empty()
            && not_nets.is_empty()
            && ports.is_empty()
            && not_ports.is_empty()
            && selector.is_empty()
            && not_selector.is_empty()
            && service.is_none()
            && original.is_none()
        {
            return None;
        }
        let mut checked = |this: &mut Self, text: &SmolStr, field: &str| {
            if text.is_empty() {
                return None;
            }
            let (id, error) = this.acquire_selector(text);
            if let Some(error) = error {
                report(field, Reason::RuleSelector(error.clone()));
            }
            Some(id)
        };
        let (selector, not_selector) =
            (checked(self, selector, "selector"), checked(self, not_selector, "notSelector"));
        if service.is_some() {
            report("services", Reason::Service);
        }
        Some(Box::new(Side {
            nets: nets.as_slice().into(),
            not_nets: not_nets.as_slice().into(),
            ports: ports.as_slice().into(),
            not_ports: not_ports.as_slice().into(),
            selector,
            not_selector,
            service: service.clone().map(Box::new),
            original: original.as_deref().map(|o| Box::new(self.store_original(o))),
        }))
    }

    fn store_original(&mut self, original: &OriginalMatch) -> Original {
        Original {
            selector: self.text_id(&original.selector),
            namespace_selector: self.text_id(&original.namespace_selector),
            not_selector: self.text_id(&original.not_selector),
            account_selector: self.text_id(&original.service_account_selector),
            account_names: original.service_account_names.as_slice().into(),
        }
    }

    fn release_parts(&mut self, rule: &StoredRule) {
        for protocol in [rule.protocol, rule.not_protocol] {
            if let StoredProtocol::Name(id) = protocol {
                self.release_text(id);
            }
        }
        for side in [&rule.src, &rule.dst].into_iter().flatten() {
            let original = side
                .original
                .iter()
                .flat_map(|o| [o.selector, o.namespace_selector, o.not_selector, o.account_selector]);
            for id in [side.selector, side.not_selector].into_iter().chain(original).flatten() {
                self.release_text(id);
            }
        }
    }

    /// Number of distinct rules and texts alive.
    #[cfg(test)]
    pub(crate) fn sizes(&self) -> (usize, usize) {
        (self.rules.len(), self.texts.len())
    }
}
