//! Chains of endpoints: what a packet to or from one meets, in order.

use calico_dpmsg as dp;
use calico_net::Protocol;
use smol_str::{SmolStr, format_smolstr};

use crate::config::AllowAction;
use crate::group::groups;
use crate::ir::{Action, Chain, Direction, Layer, Match, ProtoPorts, Rule, Side};
use crate::nat::one_port;
use crate::policy::{Problem, ProblemKind};
use crate::{Rendered, Renderer, names, nflog};

/// What kind of traffic a chain decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Of a workload.
    Workload,
    /// Between a host endpoint and the host.
    Host,
    /// Through a host endpoint.
    Forward,
    /// Before connection tracking.
    Untracked,
    /// Before destination NAT.
    PreDnat,
}

struct Shape<'a> {
    layer: Layer,
    kind: Kind,
    direction: Direction,
    name: SmolStr,
    tiers: &'a [dp::TierInfo],
    profiles: &'a [dp::ProfileId],
    allow: AllowAction,
}

impl Renderer {
    /// Chains of a workload endpoint, and of the policy groups that they call.
    ///
    /// `selector` gives the selector of a policy (empty if it is not known), by which policies are grouped. An
    /// interface name that cannot be written in a rule gives a problem and no chain. An endpoint that is
    /// administratively down gets chains that deny. The chain of a policy group may come with several endpoints; it is the same then.
    pub fn workload_chains(
        &self,
        endpoint: &dp::WorkloadEndpoint,
        selector: &dyn Fn(&dp::PolicyId) -> SmolStr,
    ) -> Rendered {
        let iface = &endpoint.interface_name;
        let mut out = Rendered::default();
        if !names::is_interface(iface) {
            out.problems.push(Problem {
                object: format!("WorkloadEndpoint({iface})"),
                rule: None,
                kind: ProblemKind::Interface(iface.clone()),
            });
            return out;
        }
        for (direction, prefix) in
            [(Direction::Ingress, names::TO_WORKLOAD), (Direction::Egress, names::FROM_WORKLOAD)]
        {
            let name = names::chain(prefix, iface);
            if !endpoint.active {
                let deny = Rule::new([], self.deny(Layer::Filter)).comment("Endpoint admin disabled");
                out.chains.push(Chain::with(Layer::Filter, name, vec![deny]));
                continue;
            }
            let shape = Shape {
                layer: Layer::Filter,
                kind: Kind::Workload,
                direction,
                name,
                tiers: &endpoint.tiers,
                profiles: &endpoint.profile_ids,
                allow: self.config.filter_allow,
            };
            self.endpoint_chain(&shape, selector, &mut out);
        }
        out
    }

    /// Chains of a host endpoint as it applies to the interface `iface`, or to all interfaces if `iface` is
    /// [`names::ANY_INTERFACE`], and of the policy groups that they call.
    ///
    /// The raw and pre-DNAT chains are there only if the endpoint has such policy; untracked policy does not
    /// apply to the endpoint of all interfaces.
    pub fn host_endpoint_chains(
        &self,
        iface: &str,
        endpoint: &dp::HostEndpoint,
        selector: &dyn Fn(&dp::PolicyId) -> SmolStr,
    ) -> Rendered {
        use Direction::{Egress, Ingress};
        let mut out = Rendered::default();
        let any = iface == names::ANY_INTERFACE;
        if !any && !names::is_interface(iface) {
            out.problems.push(Problem {
                object: format!("HostEndpoint({iface})"),
                rule: None,
                kind: ProblemKind::Interface(iface.into()),
            });
            return out;
        }
        let e = endpoint;
        let (to, from) = (names::TO_HOST_ENDPOINT, names::FROM_HOST_ENDPOINT);
        let mut wanted = vec![
            (Layer::Filter, Kind::Host, Egress, to),
            (Layer::Filter, Kind::Host, Ingress, from),
            (Layer::Filter, Kind::Forward, Egress, names::TO_HOST_FORWARD),
            (Layer::Filter, Kind::Forward, Ingress, names::FROM_HOST_FORWARD),
            (Layer::Mangle, Kind::Host, Egress, to),
        ];
        if !e.untracked_tiers.is_empty() && !any {
            wanted.push((Layer::Raw, Kind::Untracked, Egress, to));
            wanted.push((Layer::Raw, Kind::Untracked, Ingress, from));
        }
        if !e.pre_dnat_tiers.is_empty() {
            wanted.push((Layer::Mangle, Kind::PreDnat, Ingress, from));
        }
        for (layer, kind, direction, prefix) in wanted {
            let (tiers, profiles): (_, &[dp::ProfileId]) = match kind {
                Kind::Workload | Kind::Host => (&e.tiers, &e.profile_ids),
                Kind::Forward => (&e.forward_tiers, &[]),
                Kind::Untracked => (&e.untracked_tiers, &[]),
                Kind::PreDnat => (&e.pre_dnat_tiers, &[]),
            };
            let allow = match (layer, kind) {
                (Layer::Filter, _) => self.config.filter_allow,
                (Layer::Mangle, Kind::PreDnat) => self.config.mangle_allow,
                _ => AllowAction::Return,
            };
            let name = names::chain(prefix, iface);
            let shape = Shape { layer, kind, direction, name, tiers, profiles, allow };
            self.endpoint_chain(&shape, selector, &mut out);
        }
        out
    }

    fn endpoint_chain(
        &self,
        shape: &Shape<'_>,
        selector: &dyn Fn(&dp::PolicyId) -> SmolStr,
        out: &mut Rendered,
    ) {
        let m = self.marks;
        let mut rules = Vec::new();
        if shape.kind != Kind::Untracked {
            self.conntrack_rules(shape, &mut rules);
        }
        if matches!(shape.kind, Kind::Host | Kind::Untracked | Kind::PreDnat) {
            rules.push(Rule::new([], Action::Jump(failsafe_chain(shape.direction).into())));
        }
        rules.push(Rule::new([], Action::ClearMark(m.accept | m.pass)));
        if shape.kind == Kind::Workload && shape.direction == Direction::Egress {
            self.encap_rules(shape.layer, &mut rules);
        }
        for tier in shape.tiers {
            self.tier_rules(shape, tier, selector, &mut rules, &mut out.chains);
        }
        if shape.kind == Kind::Forward && shape.tiers.is_empty() {
            rules
                .push(Rule::new([], Action::SetMark(m.accept)).comment("Allow forwarded traffic by default"));
            rules.push(Rule::new([], Action::Return).comment("Return for accepted forward traffic"));
        }
        if matches!(shape.kind, Kind::Workload | Kind::Host) {
            for profile in shape.profiles {
                let chain = names::profile_chain(profile, shape.direction);
                rules.push(Rule::new([], Action::Jump(chain)));
                rules.push(
                    Rule::new([Match::MarkSet(m.accept)], Action::Return)
                        .comment("Return if profile accepted"),
                );
            }
            if self.config.flow_logs {
                rules.push(Rule::new([], nflog::no_profile(shape.direction)));
            }
            rules.push(
                Rule::new([], self.deny(shape.layer))
                    .comment(format!("{} if no profiles matched", self.drop_word())),
            );
        }
        out.chains.push(Chain::with(shape.layer, shape.name.clone(), rules));
    }

    fn conntrack_rules(&self, shape: &Shape<'_>, rules: &mut Vec<Rule>) {
        match shape.allow {
            AllowAction::Accept => rules.push(Rule::new([Match::CtEstablished], Action::Accept)),
            AllowAction::Return => {
                rules.push(Rule::new([Match::CtEstablished], Action::SetMark(self.marks.accept)));
                rules.push(Rule::new([Match::CtEstablished], Action::Return));
            }
        }
        if !self.config.disable_conntrack_invalid_check {
            rules.push(Rule::new([Match::CtInvalid], self.deny(shape.layer)));
        }
    }

    /// Workloads must not send packets that look as if they came through a tunnel.
    fn encap_rules(&self, layer: Layer, rules: &mut Vec<Rule>) {
        let word = self.drop_word();
        if !self.config.allow_vxlan_from_workloads {
            let udp = Match::Protocol { protocol: Protocol::Num(17), negate: false };
            let port = one_port(Side::Dst, ProtoPorts::Udp, self.config.vxlan_port);
            rules.push(
                Rule::new([udp, port], self.deny(layer))
                    .comment(format!("{word} VXLAN encapped packets originating in workloads")),
            );
        }
        if !self.config.allow_ipip_from_workloads {
            let ipip = Match::Protocol { protocol: Protocol::Num(4), negate: false };
            rules.push(
                Rule::new([ipip], self.deny(layer))
                    .comment(format!("{word} IPinIP encapped packets originating in workloads")),
            );
        }
    }

    fn tier_rules(
        &self,
        shape: &Shape<'_>,
        tier: &dp::TierInfo,
        selector: &dyn Fn(&dp::PolicyId) -> SmolStr,
        rules: &mut Vec<Rule>,
        chains: &mut Vec<Chain>,
    ) {
        let policies = match shape.direction {
            Direction::Ingress => &tier.ingress,
            Direction::Egress => &tier.egress,
        };
        if policies.is_empty() {
            return;
        }
        let m = self.marks;
        rules.push(Rule::new([], Action::ClearMark(m.pass)).comment(format!("Start of tier {}", tier.name)));
        let mut call = |chain: SmolStr| {
            rules.push(Rule::new([Match::MarkClear(m.pass)], Action::Jump(chain)));
            if shape.kind == Kind::Untracked {
                rules.push(Rule::new([Match::MarkSet(m.accept)], Action::NoTrack));
            }
            rules.push(
                Rule::new([Match::MarkSet(m.accept)], Action::Return).comment("Return if policy accepted"),
            );
        };
        for group in groups(policies, shape.direction, selector) {
            if group.is_inlined() {
                group.enforced().for_each(|id| call(names::policy_chain(id, shape.direction)));
                continue;
            }
            call(group.chain_name());
            let chain = self.group_chain(shape.layer, &group);
            if !chains.contains(&chain) {
                chains.push(chain);
            }
        }
        if !matches!(shape.kind, Kind::Workload | Kind::Host | Kind::Forward) {
            return;
        }
        let pass_clear = || [Match::MarkClear(m.pass)];
        let ends = policies.iter().any(|id| !names::is_staged(id)) && !tier.default_pass;
        if self.config.flow_logs {
            let verdict = if ends { 'D' } else { 'P' };
            rules.push(Rule::new(pass_clear(), nflog::end_of_tier(verdict, &tier.name, shape.direction)));
        }
        if ends {
            rules.push(Rule::new(pass_clear(), self.deny(shape.layer)).comment(format!(
                "End of tier {}. {} if no policies passed packet",
                tier.name,
                self.drop_word()
            )));
        }
    }

    /// Chain by which workloads may use addresses that are not theirs: it runs before the check of the reverse
    /// path. `allowed` are interfaces with the networks that they may use; other families' are left out.
    pub fn rpf_skip_chain<'a>(
        &self,
        allowed: impl IntoIterator<Item = (&'a str, &'a [calico_net::Cidr])>,
    ) -> Chain {
        let mut entries: Vec<_> = allowed.into_iter().filter(|(i, _)| names::is_interface(i)).collect();
        entries.sort();
        let mut chain = Chain::new(Layer::Raw, "cali-rpf-skip");
        for (iface, nets) in entries {
            for &net in nets.iter().filter(|n| n.version() == self.version) {
                let matches =
                    [Match::InInterface(iface.into()), Match::Net { side: Side::Src, net, negate: false }];
                chain.rules.push(Rule::new(matches, Action::Accept));
            }
        }
        chain
    }
}

/// Chain of the failsafe ports of a direction.
pub(crate) fn failsafe_chain(direction: Direction) -> &'static str {
    match direction {
        Direction::Ingress => "cali-failsafe-in",
        Direction::Egress => "cali-failsafe-out",
    }
}

/// Comment of the rule that denies what no endpoint of ours sent or receives.
pub(crate) fn unknown_interface() -> SmolStr {
    format_smolstr!("Unknown interface")
}
