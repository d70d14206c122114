//! The chains that every node has, whatever its endpoints.

use calico_net::{Cidr, IpVersion, Protocol};

use crate::config::{AllowAction, EndpointToHostAction, FailsafePort, ServiceLoopPrevention};
use crate::endpoint::failsafe_chain;
use crate::ir::{Action, Chain, Direction, Hook, KernelChain, Layer, Match, ProtoPorts, Rule, Side};
use crate::nat::{one_port, protocol};
use crate::{Renderer, names};

/// ICMPv6 types that workloads may always send to their host: multicast listener and neighbour discovery,
/// without which IPv6 does not work.
const ICMPV6_TO_HOST: [u8; 6] = [130, 131, 132, 133, 135, 136];

const HEP_ACCEPTED: &str = "Host endpoint policy accepted packet.";

fn jump(chain: &str) -> Action {
    Action::Jump(chain.into())
}

impl Renderer {
    /// Ids of the sets that the fixed chains name. They must exist before the chains do.
    pub fn static_set_ids(&self) -> Vec<&'static str> {
        let mut ids = vec!["dscp-src-net", "network-ip-pools", "this-host", "masq-ipam-pools"];
        if self.needs_all_hosts() {
            ids.push("all-hosts-net");
        }
        if self.config.vxlan(self.version).enabled {
            ids.push("all-vxlan-net");
        }
        ids
    }

    /// The rules that call our chains from the kernel's. Equal in both families.
    pub fn hooks(&self) -> Vec<Hook> {
        use KernelChain::{Forward, Input, Output, Postrouting, Prerouting};
        let hook = |layer, chain: KernelChain| Hook {
            layer,
            chain,
            inserted: vec![Rule::new([], Action::Jump(format!("cali-{}", chain.name()).into()))],
            appended: Vec::new(),
        };
        let mut forward = hook(Layer::Filter, Forward);
        forward.appended = vec![
            Rule::new([Match::MarkSet(self.marks.accept)], self.allow(Layer::Filter))
                .comment("Policy explicitly accepted packet."),
            // Tells the mangle layer, after routing, that the packet was forwarded.
            Rule::new([], Action::SetMark(self.marks.accept)),
        ];
        let mut nat_post = hook(Layer::Nat, Postrouting);
        // Always last: kube-proxy's chain must clear its mark before a packet is encapsulated.
        nat_post.appended = std::mem::take(&mut nat_post.inserted);
        vec![
            hook(Layer::Raw, Prerouting),
            hook(Layer::Raw, Output),
            hook(Layer::Mangle, Prerouting),
            hook(Layer::Mangle, Postrouting),
            hook(Layer::Nat, Prerouting),
            hook(Layer::Nat, Output),
            nat_post,
            hook(Layer::Filter, Input),
            forward,
            hook(Layer::Filter, Output),
        ]
    }

    /// All chains that depend on the configuration alone. Chains that nothing calls on this node (failsafe
    /// ports without host endpoints) are among them; a driver leaves out what is not reachable.
    pub fn static_chains(&self) -> Vec<Chain> {
        let mut out = vec![
            self.raw_prerouting(),
            self.raw_output(),
            self.mangle_prerouting(),
            self.mangle_postrouting(),
            Chain::new(Layer::Mangle, "cali-egress-dscp"),
            self.filter_forward(),
            self.filter_input(),
            self.filter_wl_to_host(),
            self.filter_output(),
        ];
        out.extend(self.workload_dispatch_chains());
        out.extend(self.nat_static_chains());
        for layer in [Layer::Raw, Layer::Mangle, Layer::Filter] {
            out.push(self.failsafes(layer, Direction::Ingress));
            out.push(self.failsafes(layer, Direction::Egress));
        }
        out
    }

    /// Chain that stops packets to service addresses that no service took; `cidrs` of the other family are
    /// left out.
    pub fn service_loop_chain(&self, cidrs: &[Cidr]) -> Chain {
        let mut chain = Chain::new(Layer::Filter, "cali-cidr-block");
        let action = match self.config.service_loop_prevention {
            ServiceLoopPrevention::Drop => Action::Drop,
            ServiceLoopPrevention::Reject => Action::Reject,
            ServiceLoopPrevention::Disabled => return chain,
        };
        let mut cidrs: Vec<Cidr> = cidrs.iter().filter(|c| c.version() == self.version).copied().collect();
        cidrs.sort();
        cidrs.dedup();
        for net in cidrs {
            let dst = Match::Net { side: Side::Dst, net, negate: false };
            chain.rules.push(Rule::new([dst], action.clone()));
        }
        chain
    }

    pub(crate) fn allow(&self, layer: Layer) -> Action {
        let allow = match layer {
            Layer::Mangle => self.config.mangle_allow,
            _ => self.config.filter_allow,
        };
        match allow {
            AllowAction::Accept => Action::Accept,
            AllowAction::Return => Action::Return,
        }
    }

    pub(crate) fn set(&self, side: Side, id: &str, negate: bool) -> Match {
        Match::Set { side, set: names::set(self.version, id), negate }
    }

    fn accepted(&self) -> Match {
        Match::MarkSet(self.marks.accept)
    }

    fn clear_all(&self) -> Rule {
        Rule::new([], Action::ClearMark(self.marks.all()))
    }

    fn to_vxlan_port(&self) -> [Match; 2] {
        let udp = Match::Protocol { protocol: Protocol::Num(17), negate: false };
        [udp, one_port(Side::Dst, ProtoPorts::Udp, self.config.vxlan_port)]
    }

    /// VXLAN is not tracked: its two directions use different source ports.
    fn vxlan_notrack(&self) -> Option<Rule> {
        self.config.vxlan(self.version).enabled.then(|| {
            let port = Match::DstPort { protocol: ProtoPorts::Udp, port: self.config.vxlan_port };
            Rule::new([protocol("udp"), port], Action::NoTrack)
        })
    }

    fn raw_prerouting(&self) -> Chain {
        let from_workload = self.marks.scratch0;
        let mut rules = vec![self.clear_all()];
        rules.extend(self.vxlan_notrack());
        for prefix in &self.config.workload_prefixes {
            rules.push(Rule::new([Match::in_prefix(prefix)], Action::SetMark(from_workload)));
        }
        rules.push(Rule::new([Match::MarkSet(from_workload)], jump("cali-rpf-skip")));
        if self.config.openstack.is_some() && self.version == IpVersion::V4 {
            let unset = std::net::Ipv4Addr::UNSPECIFIED.into();
            rules.push(Rule::new(
                [
                    protocol("udp"),
                    Match::Addr { side: Side::Src, addr: unset },
                    one_port(Side::Src, ProtoPorts::Udp, 68),
                    one_port(Side::Dst, ProtoPorts::Udp, 67),
                ],
                Action::Accept,
            ));
        }
        rules.push(Rule::new([Match::MarkSet(from_workload), Match::RpfFailed], self.deny(Layer::Raw)));
        rules.push(Rule::new([Match::MarkClear(from_workload)], jump("cali-from-host-endpoint")));
        rules.push(Rule::new([self.accepted()], Action::Accept));
        Chain::with(Layer::Raw, "cali-PREROUTING", rules)
    }

    fn raw_output(&self) -> Chain {
        let mut rules = vec![self.clear_all(), Rule::new([], jump("cali-to-host-endpoint"))];
        rules.extend(self.vxlan_notrack());
        rules.push(Rule::new([self.accepted()], Action::Accept));
        Chain::with(Layer::Raw, "cali-OUTPUT", rules)
    }

    fn mangle_prerouting(&self) -> Chain {
        let rules = vec![
            Rule::new([Match::CtEstablished], self.allow(Layer::Mangle)),
            Rule::new([self.accepted()], self.allow(Layer::Mangle)),
            Rule::new([], jump("cali-from-host-endpoint")),
            Rule::new([self.accepted()], self.allow(Layer::Mangle)).comment(HEP_ACCEPTED),
        ];
        Chain::with(Layer::Mangle, "cali-PREROUTING", rules)
    }

    fn mangle_postrouting(&self) -> Chain {
        let rules = vec![
            Rule::new(
                [
                    self.set(Side::Src, "dscp-src-net", false),
                    self.set(Side::Dst, "network-ip-pools", true),
                    self.set(Side::Dst, "this-host", true),
                ],
                jump("cali-egress-dscp"),
            )
            .comment("set dscp for traffic leaving cluster."),
            Rule::new([self.accepted()], Action::Return),
            self.clear_all(),
            Rule::new([Match::CtDnat { negate: false }], jump("cali-to-host-endpoint")),
            Rule::new([self.accepted()], Action::Return).comment(HEP_ACCEPTED),
        ];
        Chain::with(Layer::Mangle, "cali-POSTROUTING", rules)
    }

    fn filter_forward(&self) -> Chain {
        let m = self.marks;
        let mut rules = vec![
            Rule::new([], Action::ClearMark(m.all() & !m.accept)),
            Rule::new([Match::MarkClear(m.accept)], jump("cali-from-hep-forward")),
        ];
        for prefix in &self.config.workload_prefixes {
            rules.push(Rule::new([Match::in_prefix(prefix)], jump("cali-from-wl-dispatch")));
            rules.push(Rule::new([Match::out_prefix(prefix)], jump("cali-to-wl-dispatch")));
        }
        rules.push(Rule::new([], jump("cali-to-hep-forward")));
        rules.push(Rule::new([], jump("cali-cidr-block")));
        Chain::with(Layer::Filter, "cali-FORWARD", rules)
    }

    fn filter_input(&self) -> Chain {
        let mut rules = Vec::new();
        let local = Match::Local(Side::Dst);
        if self.config.ipip(self.version).is_some() {
            let ipip = Match::Protocol { protocol: Protocol::Num(4), negate: false };
            let hosts = self.set(Side::Src, "all-hosts-net", false);
            rules.push(
                Rule::new([ipip.clone(), hosts, local.clone()], self.allow(Layer::Filter))
                    .comment("Allow IPIP packets from Calico hosts"),
            );
            let word = self.drop_word();
            rules.push(
                Rule::new([ipip], self.deny(Layer::Filter))
                    .comment(format!("{word} IPIP packets from non-Calico hosts")),
            );
        }
        if self.config.vxlan(self.version).enabled {
            let n = self.version.number();
            let peers = self.set(Side::Src, "all-vxlan-net", false);
            let to_port = self.to_vxlan_port();
            rules.push(
                Rule::new(
                    to_port.clone().into_iter().chain([peers, local.clone()]),
                    self.allow(Layer::Filter),
                )
                .comment(format!("Allow IPv{n} VXLAN packets from allowed hosts")),
            );
            // As upstream has it, IPv4 is never answered with an error.
            let (deny, word) = match self.version {
                IpVersion::V4 => (Action::Drop, "Drop"),
                IpVersion::V6 => (self.deny(Layer::Filter), self.drop_word()),
            };
            rules.push(
                Rule::new(to_port.into_iter().chain([local]), deny)
                    .comment(format!("{word} IPv{n} VXLAN packets from non-allowed hosts")),
            );
        }
        for prefix in &self.config.workload_prefixes {
            rules.push(Rule::new([Match::in_prefix(prefix)], Action::Goto("cali-wl-to-host".into())));
        }
        rules.push(Rule::new([self.accepted()], self.allow(Layer::Filter)));
        rules.push(self.clear_all());
        rules.push(Rule::new([], jump("cali-from-host-endpoint")));
        rules.push(Rule::new([self.accepted()], self.allow(Layer::Filter)).comment(HEP_ACCEPTED));
        Chain::with(Layer::Filter, "cali-INPUT", rules)
    }

    fn filter_wl_to_host(&self) -> Chain {
        let mut rules = Vec::new();
        if self.version == IpVersion::V6 {
            for icmp_type in ICMPV6_TO_HOST {
                let protocol = Match::Protocol { protocol: Protocol::Num(58), negate: false };
                let kind = Match::Icmp { icmp_type, code: None, negate: false };
                rules.push(Rule::new([protocol, kind], self.allow(Layer::Filter)));
            }
        }
        self.openstack_to_host(&mut rules);
        rules.push(Rule::new([], jump("cali-from-wl-dispatch")));
        let action = match self.config.endpoint_to_host {
            EndpointToHostAction::Drop => Action::Drop,
            EndpointToHostAction::Return => Action::Return,
            EndpointToHostAction::Accept => self.allow(Layer::Filter),
            EndpointToHostAction::Reject => Action::Reject,
        };
        rules.push(Rule::new([], action).comment("Configured DefaultEndpointToHostAction"));
        Chain::with(Layer::Filter, "cali-wl-to-host", rules)
    }

    fn openstack_to_host(&self, rules: &mut Vec<Rule>) {
        let Some(openstack) = self.config.openstack else { return };
        let allow = || self.allow(Layer::Filter);
        let port = |side, port| one_port(side, ProtoPorts::Udp, port);
        if let (IpVersion::V4, Some(addr)) = (self.version, openstack.metadata_addr) {
            rules.push(Rule::new(
                [
                    protocol("tcp"),
                    Match::Addr { side: Side::Dst, addr },
                    one_port(Side::Dst, ProtoPorts::Tcp, openstack.metadata_port),
                ],
                allow(),
            ));
        }
        let (client, server) = match self.version {
            IpVersion::V4 => (68, 67),
            IpVersion::V6 => (546, 547),
        };
        rules.push(Rule::new([protocol("udp"), port(Side::Src, client), port(Side::Dst, server)], allow()));
        rules.push(Rule::new([protocol("udp"), port(Side::Dst, 53)], allow()));
    }

    fn filter_output(&self) -> Chain {
        let mut rules = vec![Rule::new([self.accepted()], self.allow(Layer::Filter))];
        for prefix in &self.config.workload_prefixes {
            rules.push(Rule::new([Match::out_prefix(prefix)], Action::Return));
        }
        let local = Match::Local(Side::Src);
        if self.config.ipip(self.version).is_some() {
            let ipip = Match::Protocol { protocol: Protocol::Num(4), negate: false };
            let hosts = self.set(Side::Dst, "all-hosts-net", false);
            rules.push(
                Rule::new([ipip, hosts, local.clone()], self.allow(Layer::Filter))
                    .comment("Allow IPIP packets to other Calico hosts"),
            );
        }
        if self.config.vxlan(self.version).enabled {
            let peers = self.set(Side::Dst, "all-vxlan-net", false);
            rules.push(
                Rule::new(self.to_vxlan_port().into_iter().chain([local, peers]), self.allow(Layer::Filter))
                    .comment(format!(
                        "Allow IPv{} VXLAN packets to other allowed hosts",
                        self.version.number()
                    )),
            );
        }
        rules.push(self.clear_all());
        rules.push(Rule::new([Match::CtDnat { negate: true }], jump("cali-to-host-endpoint")));
        rules.push(Rule::new([self.accepted()], self.allow(Layer::Filter)).comment(HEP_ACCEPTED));
        Chain::with(Layer::Filter, "cali-OUTPUT", rules)
    }

    /// Ports that policy never closes. Before connection tracking the answers need rules of their own.
    fn failsafes(&self, layer: Layer, direction: Direction) -> Chain {
        let (own, opposite, peer) = match direction {
            Direction::Ingress => (&self.config.failsafe_inbound, &self.config.failsafe_outbound, Side::Src),
            Direction::Egress => (&self.config.failsafe_outbound, &self.config.failsafe_inbound, Side::Dst),
        };
        let rule = |entry: &FailsafePort, side: Side| {
            if entry.net.is_some_and(|n| n.version() != self.version) {
                return None;
            }
            let mut matches =
                vec![protocol(entry.protocol.name()), one_port(side, entry.protocol, entry.port)];
            matches.extend(entry.net.map(|net| Match::Net { side: peer, net, negate: false }));
            Some(Rule::new(matches, Action::Accept))
        };
        let mut rules: Vec<Rule> = own.iter().filter_map(|e| rule(e, Side::Dst)).collect();
        if layer == Layer::Raw {
            rules.extend(opposite.iter().filter_map(|e| rule(e, Side::Src)));
        }
        Chain::with(layer, failsafe_chain(direction), rules)
    }

    pub(crate) fn needs_all_hosts(&self) -> bool {
        self.config.ipip(self.version).is_some()
            || self.config.nat_exclusions == crate::config::NatExclusions::IpPoolsAndHosts
    }
}
