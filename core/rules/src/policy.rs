//! Chains of policies and profiles.

use std::fmt;

use calico_dpmsg as dp;
use calico_net::{PortRange, Protocol};
use smol_str::SmolStr;

use crate::ir::{Action, Chain, Direction, Layer, Match, Rule};
use crate::nflog::{self, Owner};
use crate::{Rendered, Renderer, names};

/// Input that could not be rendered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// What it belongs to, as a reader would name it.
    pub object: String,
    /// Direction and position of the rule, if one is at fault.
    pub rule: Option<(Direction, usize)>,
    /// What is wrong.
    pub kind: ProblemKind,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.rule {
            Some((dir, n)) => write!(f, "{}: {} rule {n}: {}", self.object, dir.name(), self.kind),
            None => write!(f, "{}: {}", self.object, self.kind),
        }
    }
}

/// What is wrong with input.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProblemKind {
    /// No such protocol.
    #[error("unknown protocol {0}")]
    Protocol(Protocol),
    /// Port numbers need TCP, UDP or SCTP.
    #[error("ports without a protocol that has ports")]
    PortsWithoutProtocol,
    /// The first port is above the last.
    #[error("port range {0} is reversed")]
    PortRange(PortRange),
    /// An ICMP type with a protocol that is not ICMP.
    #[error("ICMP type with a protocol that is not ICMP")]
    IcmpWithOtherProtocol,
    /// The name of a set cannot be written in a rule.
    #[error("set name {0:?} cannot be written in a rule")]
    SetName(SmolStr),
    /// The name of an interface cannot be written in a rule.
    #[error("interface name {0:?} cannot be written in a rule")]
    Interface(SmolStr),
}

/// What a chain of rules belongs to.
struct Context<'a> {
    layer: Layer,
    direction: Direction,
    owner: Owner<'a>,
    tier: &'a str,
    log: bool,
}

impl Context<'_> {
    fn object(&self) -> String {
        match &self.owner {
            Owner::Policy(id) => id.to_string(),
            Owner::Profile(name) => format!("Profile({name})"),
        }
    }

    fn describe(&self) -> String {
        let dir = self.direction.name();
        match &self.owner {
            Owner::Policy(id) if id.namespace.is_empty() => format!("{} {} {dir}", id.kind, id.name),
            Owner::Policy(id) => format!("{} {}/{} {dir}", id.kind, id.namespace, id.name),
            Owner::Profile(name) => format!("Profile {name} {dir}"),
        }
    }

    fn chain_name(&self) -> SmolStr {
        match &self.owner {
            Owner::Policy(id) => names::policy_chain(id, self.direction),
            Owner::Profile(name) => names::profile_chain(name, self.direction),
        }
    }
}

impl Renderer {
    /// Chains of a policy: both directions, in each layer where an endpoint may call them.
    ///
    /// An untracked policy has them in the raw layer and one before destination NAT in the mangle layer. All
    /// others have them in the filter layer, and the egress chain in the mangle layer too, for traffic of the
    /// host itself that was translated. A staged policy has none.
    pub fn policy_chains(&self, id: &dp::PolicyId, policy: &dp::Policy) -> Rendered {
        use Direction::{Egress, Ingress};
        let places: &[(Layer, Direction)] = match (policy.untracked, policy.pre_dnat) {
            _ if names::is_staged(id) => &[],
            (true, _) => &[(Layer::Raw, Ingress), (Layer::Raw, Egress)],
            (false, true) => &[(Layer::Mangle, Ingress), (Layer::Mangle, Egress)],
            (false, false) => &[(Layer::Filter, Ingress), (Layer::Filter, Egress), (Layer::Mangle, Egress)],
        };
        let mut out = Rendered::default();
        for &(layer, direction) in places {
            let rules = match direction {
                Ingress => &policy.inbound,
                Egress => &policy.outbound,
            };
            let log = self.config.flow_logs && !policy.untracked;
            let owner = Owner::Policy(id);
            self.rules_chain(&Context { layer, direction, owner, tier: &policy.tier, log }, rules, &mut out);
        }
        out
    }

    /// Chains of a profile: both directions in the filter layer, egress in the mangle layer too.
    pub fn profile_chains(&self, name: &str, profile: &dp::Profile) -> Rendered {
        let mut out = Rendered::default();
        for (layer, direction, rules) in [
            (Layer::Filter, Direction::Ingress, &profile.inbound),
            (Layer::Filter, Direction::Egress, &profile.outbound),
            (Layer::Mangle, Direction::Egress, &profile.outbound),
        ] {
            let owner = Owner::Profile(name);
            let log = self.config.flow_logs;
            self.rules_chain(&Context { layer, direction, owner, tier: "", log }, rules, &mut out);
        }
        out
    }

    fn rules_chain(&self, cx: &Context<'_>, rules: &[dp::Rule], out: &mut Rendered) {
        let mut chain = Chain::new(cx.layer, cx.chain_name());
        for (index, rule) in rules.iter().enumerate() {
            match self.conditions(rule) {
                Ok(Some(c)) => {
                    let from = chain.rules.len();
                    chain.rules.extend(c.blocks);
                    self.act(cx, rule.action, c.matches, index, &mut chain.rules);
                    annotate(rule, &mut chain.rules[from..]);
                }
                Ok(None) => {}
                Err(kind) => {
                    if matches!(rule.action, dp::Action::Deny | dp::Action::Pass) {
                        let from = chain.rules.len();
                        self.act(cx, dp::Action::Deny, Vec::new(), index, &mut chain.rules);
                        for r in &mut chain.rules[from..] {
                            r.comments.push("Rule cannot be rendered, all is denied".into());
                        }
                    }
                    // Each rule is reported once, not once per layer.
                    let problem = Problem { object: cx.object(), rule: Some((cx.direction, index)), kind };
                    if !out.problems.contains(&problem) {
                        out.problems.push(problem);
                    }
                }
            }
        }
        while chain.rules.last().is_some_and(|r| r.action == Some(Action::Return)) {
            chain.rules.pop();
        }
        if chain.rules.is_empty() {
            chain.rules.push(Rule::default());
        }
        chain.rules[0].comments.push(cx.describe());
        out.chains.push(chain);
    }

    /// The action of a policy rule: a mark first, then what the mark means.
    fn act(
        &self,
        cx: &Context<'_>,
        action: dp::Action,
        matches: Vec<Match>,
        index: usize,
        out: &mut Vec<Rule>,
    ) {
        let m = self.marks;
        let (bit, verdict, end) = match action {
            dp::Action::Allow => (m.accept, 'A', Action::Return),
            dp::Action::Pass => (m.pass, 'P', Action::Return),
            dp::Action::Deny => (m.drop, 'D', self.deny(cx.layer)),
            dp::Action::Log => {
                let (prefix, limit) = (self.log_prefix(cx), self.config.log_limit.clone());
                out.push(Rule::new(matches, Action::Log { prefix, limit }));
                return;
            }
        };
        out.push(Rule::new(matches, Action::SetMark(bit)));
        if cx.log {
            out.push(Rule::new([Match::MarkSet(bit)], nflog::rule(verdict, &cx.owner, cx.direction, index)));
        }
        out.push(Rule::new([Match::MarkSet(bit)], end));
    }

    fn log_prefix(&self, cx: &Context<'_>) -> String {
        let (kind, namespace, name) = match &cx.owner {
            Owner::Policy(id) => (names::short_kind(&id.kind), id.namespace.as_str(), id.name.as_str()),
            Owner::Profile(name) => ("pro", "", *name),
        };
        let mut out = String::new();
        let mut chars = self.config.log_prefix.chars();
        while let Some(c) = chars.next() {
            if c != '%' {
                out.push(c);
                continue;
            }
            match chars.next() {
                Some('t') => out.push_str(cx.tier),
                Some('k') => out.push_str(kind),
                Some('n') => out.push_str(name),
                Some('p') => {
                    if !namespace.is_empty() {
                        out.push_str(namespace);
                        out.push('/');
                    }
                    out.push_str(name);
                }
                Some(other) => out.extend(['%', other]),
                None => out.push('%'),
            }
        }
        out
    }
}

fn annotate(rule: &dp::Rule, rules: &mut [Rule]) {
    let Some(metadata) = &rule.metadata else { return };
    let mut pairs: Vec<_> = metadata.iter().collect();
    pairs.sort();
    for r in rules {
        r.comments.extend(pairs.iter().map(|(k, v)| format!("{k}={v}")));
    }
}
