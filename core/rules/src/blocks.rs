//! One policy rule to packet-filter rules: families, conditions, and the blocks that stand for lists.
//!
//! A rule of a packet filter holds one network and one list of ports. Where a policy rule has more, each list
//! becomes a block of rules that leaves its verdict in a scratch mark bit: the first bit says that all blocks so
//! far matched, the second that the block at hand did. The rule proper then needs the first bit.
//!
//! Differs from upstream, which leaves the second bit of one block standing for the next, so that a rule with
//! three or more positive blocks matches too much: here each later block begins by clearing it. Rules with at
//! most two positive blocks are equal to upstream's.

use calico_dpmsg as dp;
use calico_net::{Cidr, IpVersion, PortRange, Protocol};
use smol_str::SmolStr;

use crate::Renderer;
use crate::ir::{Action, Match, ProtoPorts, Rule, Side};
use crate::names;
use crate::policy::ProblemKind;

/// Splits ports into lists that one match can hold: a port takes one slot, a range two.
pub(crate) fn split_ports(ports: &[PortRange]) -> Vec<Vec<PortRange>> {
    let mut splits: Vec<Vec<PortRange>> = Vec::new();
    let mut left = 0;
    for &port in ports {
        let slots = if port.first == port.last { 1 } else { 2 };
        match splits.last_mut() {
            Some(split) if slots <= left => {
                split.push(port);
                left -= slots;
            }
            _ => {
                splits.push(vec![port]);
                left = Match::PORT_SLOTS - slots;
            }
        }
    }
    splits
}

/// The conditions of one side, for one family, with lists already taken over by blocks emptied.
struct SideMatch {
    side: Side,
    nets: Vec<Cidr>,
    not_nets: Vec<Cidr>,
    ports: Vec<Vec<PortRange>>,
    not_ports: Vec<Vec<PortRange>>,
    sets: Vec<SmolStr>,
    not_sets: Vec<SmolStr>,
    named: Vec<SmolStr>,
    not_named: Vec<SmolStr>,
    ip_port: Vec<SmolStr>,
}

/// A policy rule's conditions as blocks and one final list.
pub(crate) struct Conditions {
    /// Rules that compute the scratch bits.
    pub blocks: Vec<Rule>,
    /// Conditions of the rule proper.
    pub matches: Vec<Match>,
}

impl Renderer {
    /// Conditions of `rule` in this family; `None` if it cannot match any packet of the family.
    ///
    /// As upstream has it, a rule is of no concern to a family if one of its lists of networks, negated ones
    /// included, holds only networks of the other, or if a negated list holds all addresses.
    pub(crate) fn conditions(&self, rule: &dp::Rule) -> Result<Option<Conditions>, ProblemKind> {
        if rule.ip_version.is_some_and(|v| v != self.version) {
            return Ok(None);
        }
        let (Some(mut src), Some(mut dst)) =
            (self.side(Side::Src, &rule.src)?, self.side(Side::Dst, &rule.dst)?)
        else {
            return Ok(None);
        };
        let protocol = rule.protocol.as_ref().map(known).transpose()?;
        let not_protocol = rule.not_protocol.as_ref().map(known).transpose()?;
        if !self.icmp_fits(rule)? {
            return Ok(None);
        }
        let with_ports = rule.protocol.as_ref().and_then(ProtoPorts::of);
        let needs_ports =
            [&rule.src, &rule.dst].iter().any(|s| !s.ports.is_empty() || !s.not_ports.is_empty());
        let port_protocol = match (needs_ports, with_ports) {
            (true, None) => return Err(ProblemKind::PortsWithoutProtocol),
            (_, Some(p)) => p,
            // No numeric port is matched, so that the value is never used.
            (false, None) => ProtoPorts::Tcp,
        };

        let mut blocks = Blocks { renderer: self, rules: Vec::new(), positive: 0, any: false };
        blocks.ports(&mut src, protocol.as_ref(), port_protocol);
        blocks.ports(&mut dst, protocol.as_ref(), port_protocol);
        blocks.nets(&mut src);
        blocks.nets(&mut dst);
        blocks.not_nets(&mut src);
        blocks.not_nets(&mut dst);
        let used = blocks.any;
        let blocks = blocks.rules;

        let mut matches = Vec::new();
        if let Some(protocol) = protocol {
            matches.push(Match::Protocol { protocol, negate: false });
        }
        for side in [&src, &dst] {
            side.positive(port_protocol, &mut matches);
        }
        if let Some(icmp) = rule.icmp {
            matches.push(Match::Icmp { icmp_type: icmp.icmp_type, code: icmp.code, negate: false });
        }
        if let Some(protocol) = not_protocol {
            matches.push(Match::Protocol { protocol, negate: true });
        }
        for side in [&src, &dst] {
            side.negative(port_protocol, &mut matches);
        }
        if let Some(icmp) = rule.not_icmp {
            matches.push(Match::Icmp { icmp_type: icmp.icmp_type, code: icmp.code, negate: true });
        }
        if used {
            matches.push(Match::MarkSet(self.marks.scratch0));
        }
        Ok(Some(Conditions { blocks, matches }))
    }

    fn side(&self, side: Side, from: &dp::RuleSide) -> Result<Option<SideMatch>, ProblemKind> {
        let family = |nets: &[Cidr]| -> Option<Vec<Cidr>> {
            let kept: Vec<Cidr> = nets.iter().filter(|n| n.version() == self.version).copied().collect();
            (nets.is_empty() || !kept.is_empty()).then_some(kept)
        };
        let (Some(nets), Some(not_nets)) = (family(&from.nets), family(&from.not_nets)) else {
            return Ok(None);
        };
        if not_nets.iter().any(Cidr::is_default) {
            return Ok(None);
        }
        if let Some(bad) = from.ports.iter().chain(&from.not_ports).find(|p| p.first > p.last) {
            return Err(ProblemKind::PortRange(*bad));
        }
        let sets = |ids: &[dp::IpSetId]| -> Result<Vec<SmolStr>, ProblemKind> {
            ids.iter()
                .map(|id| {
                    names::is_set_id(id)
                        .then(|| names::set(self.version, id))
                        .ok_or_else(|| ProblemKind::SetName(id.clone()))
                })
                .collect()
        };
        Ok(Some(SideMatch {
            side,
            nets,
            not_nets,
            ports: split_ports(&from.ports),
            not_ports: split_ports(&from.not_ports),
            sets: sets(&from.sets)?,
            not_sets: sets(&from.not_sets)?,
            named: sets(&from.named_port_sets)?,
            not_named: sets(&from.not_named_port_sets)?,
            ip_port: sets(&from.ip_port_sets)?,
        }))
    }

    /// Whether the rule's ICMP conditions can be met in this family.
    fn icmp_fits(&self, rule: &dp::Rule) -> Result<bool, ProblemKind> {
        if rule.icmp.is_none() && rule.not_icmp.is_none() {
            return Ok(true);
        }
        let (own, other) = match self.version {
            IpVersion::V4 => (1, 58),
            IpVersion::V6 => (58, 1),
        };
        let number = |p: &Option<Protocol>| p.as_ref().and_then(Protocol::to_number);
        if number(&rule.not_protocol) == Some(own) {
            return Ok(false);
        }
        match number(&rule.protocol) {
            None => Ok(true),
            Some(n) if n == own => Ok(true),
            Some(n) if n == other => Ok(false),
            Some(_) => Err(ProblemKind::IcmpWithOtherProtocol),
        }
    }
}

/// The protocol in the internal model's spelling, if there is such a protocol.
fn known(protocol: &Protocol) -> Result<Protocol, ProblemKind> {
    match protocol.to_number() {
        Some(_) => Ok(protocol.to_lower()),
        None => Err(ProblemKind::Protocol(protocol.clone())),
    }
}

impl SideMatch {
    fn positive(&self, protocol: ProtoPorts, out: &mut Vec<Match>) {
        let side = self.side;
        out.extend(self.nets.iter().map(|&net| Match::Net { side, net, negate: false }));
        out.extend(self.sets.iter().map(|set| Match::Set { side, set: set.clone(), negate: false }));
        let ip_port = |set: &SmolStr| Match::IpPortSet { side, set: set.clone(), negate: false };
        out.extend(self.ip_port.iter().map(ip_port));
        out.extend(self.ports.iter().map(|p| Match::Ports {
            side,
            protocol,
            ports: p.clone(),
            negate: false,
        }));
        out.extend(self.named.iter().map(ip_port));
    }

    fn negative(&self, protocol: ProtoPorts, out: &mut Vec<Match>) {
        let side = self.side;
        out.extend(self.not_nets.iter().map(|&net| Match::Net { side, net, negate: true }));
        out.extend(self.not_sets.iter().map(|set| Match::Set { side, set: set.clone(), negate: true }));
        out.extend(self.not_ports.iter().map(|p| Match::Ports {
            side,
            protocol,
            ports: p.clone(),
            negate: true,
        }));
        out.extend(self.not_named.iter().map(|set| Match::IpPortSet {
            side,
            set: set.clone(),
            negate: true,
        }));
    }
}

struct Blocks<'a> {
    renderer: &'a Renderer,
    rules: Vec<Rule>,
    positive: usize,
    any: bool,
}

impl Blocks<'_> {
    /// Begins a block; says which bit its rules set.
    fn begin(&mut self, positive: bool) -> u32 {
        let m = self.renderer.marks;
        if !self.any {
            self.any = true;
            let value = if positive { 0 } else { m.scratch0 };
            let mask = m.scratch0 | m.scratch1;
            self.rules.push(Rule::new([], Action::SetMaskedMark { value, mask }));
        }
        if !positive {
            return m.scratch0;
        }
        self.positive += 1;
        if self.positive > 2 {
            self.rules.push(Rule::new([], Action::ClearMark(m.scratch1)));
        }
        if self.positive == 1 { m.scratch0 } else { m.scratch1 }
    }

    fn end(&mut self) {
        if self.positive > 1 {
            let m = self.renderer.marks;
            self.rules.push(Rule::new([Match::MarkClear(m.scratch1)], Action::ClearMark(m.scratch0)));
        }
    }

    fn ports(&mut self, side: &mut SideMatch, protocol: Option<&Protocol>, with_ports: ProtoPorts) {
        if side.ports.len() + side.named.len() <= 1 {
            return;
        }
        let bit = self.begin(true);
        for ports in side.ports.drain(..) {
            let proto = protocol.map(|p| Match::Protocol { protocol: p.clone(), negate: false });
            let ports = Match::Ports { side: side.side, protocol: with_ports, ports, negate: false };
            self.rules.push(Rule::new(proto.into_iter().chain([ports]), Action::SetMark(bit)));
        }
        for set in side.named.drain(..) {
            let named = Match::IpPortSet { side: side.side, set, negate: false };
            self.rules.push(Rule::new([named], Action::SetMark(bit)));
        }
        self.end();
    }

    fn nets(&mut self, side: &mut SideMatch) {
        if side.nets.len() <= 1 {
            return;
        }
        let bit = self.begin(true);
        for net in side.nets.drain(..) {
            let net = Match::Net { side: side.side, net, negate: false };
            self.rules.push(Rule::new([net], Action::SetMark(bit)));
        }
        self.end();
    }

    fn not_nets(&mut self, side: &mut SideMatch) {
        if side.nets.len() + side.not_nets.len() <= 1 || side.not_nets.is_empty() {
            return;
        }
        let bit = self.begin(false);
        for net in side.not_nets.drain(..) {
            let net = Match::Net { side: side.side, net, negate: false };
            self.rules.push(Rule::new([net], Action::ClearMark(bit)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_split_at_fifteen_slots() {
        let one = |p| PortRange::single(p);
        let sizes = |ports: &[PortRange]| split_ports(ports).iter().map(Vec::len).collect::<Vec<_>>();
        assert_eq!(sizes(&[]), Vec::<usize>::new());
        assert_eq!(sizes(&(0..15).map(one).collect::<Vec<_>>()), [15]);
        assert_eq!(sizes(&(0..16).map(one).collect::<Vec<_>>()), [15, 1]);
        let mut mixed: Vec<_> = (0..14).map(one).collect();
        mixed.push(PortRange { first: 100, last: 200 });
        mixed.push(one(7));
        assert_eq!(sizes(&mixed), [14, 2]);
    }
}
