//! Address translation: workloads that leave the pools, floating addresses, and wrong sources in tunnels.

use std::collections::BTreeMap;
use std::net::IpAddr;

use calico_net::{Cidr, IpVersion, PortRange, Protocol};
use smol_str::SmolStr;

use crate::Renderer;
use crate::config::{NatExclusions, RuleConfig};
use crate::ir::{Action, Chain, Layer, Match, NatTo, ProtoPorts, Rule, Side};

/// An address outside that stands for a workload's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FloatingIp {
    /// Address that others use.
    pub external: IpAddr,
    /// Address of the workload.
    pub internal: IpAddr,
}

/// Lowest port that source NAT may choose.
const LOWEST_PORT: u16 = 1024;

impl Renderer {
    pub(crate) fn nat_static_chains(&self) -> Vec<Chain> {
        let to_dnat = || Rule::new([], Action::Jump("cali-fip-dnat".into()));
        let mut pre = vec![to_dnat()];
        if let Some(openstack) = self.config.openstack
            && let Some(addr) = openstack.metadata_addr
            && self.version == IpVersion::V4
        {
            let service = Cidr::host(IpAddr::from([169, 254, 169, 254]));
            pre.push(Rule::new(
                [
                    protocol("tcp"),
                    one_port(Side::Dst, ProtoPorts::Tcp, 80),
                    Match::Net { side: Side::Dst, net: service, negate: false },
                ],
                Action::DestNat { addr, port: Some(openstack.metadata_port) },
            ));
        }
        let mut post = vec![
            Rule::new([], Action::Jump("cali-fip-snat".into())),
            Rule::new([], Action::Jump("cali-nat-outgoing".into())),
        ];
        self.tunnel_masquerade(&mut post);
        vec![
            Chain::with(Layer::Nat, "cali-PREROUTING", pre),
            Chain::with(Layer::Nat, "cali-OUTPUT", vec![to_dnat()]),
            Chain::with(Layer::Nat, "cali-POSTROUTING", post),
        ]
    }

    /// Packets that enter a tunnel with a source of this host's that is not the tunnel's would be answered
    /// outside it.
    fn tunnel_masquerade(&self, rules: &mut Vec<Rule>) {
        let mut devices: Vec<SmolStr> = Vec::new();
        if self.config.ipip(self.version).is_some_and(|t| t.address.is_some()) {
            devices.push(RuleConfig::IPIP_DEVICE.into());
        }
        let vxlan = self.config.vxlan(self.version);
        if vxlan.enabled && vxlan.address.is_some() {
            let own = RuleConfig::VXLAN_DEVICES.iter().find(|(_, v)| *v == self.version);
            devices.extend(own.map(|(name, _)| SmolStr::from(*name)));
        }
        for device in devices {
            let wrong_source =
                [Match::OutInterface(device), Match::SrcNotLocalToOut, Match::Local(Side::Src)];
            if vxlan.enabled {
                // Answers to a flow from the VXLAN port would meet the rule that drops foreign VXLAN.
                let udp = Match::Protocol { protocol: Protocol::Num(17), negate: false };
                let ports = Some(ports_beside(self.config.vxlan_port));
                let matches = [udp].into_iter().chain(wrong_source.clone());
                rules.push(Rule::new(matches, self.source_nat(None, ports)));
            }
            rules.push(Rule::new(wrong_source, self.source_nat(None, None)));
        }
    }

    fn source_nat(&self, addr: Option<IpAddr>, ports: Option<PortRange>) -> Action {
        Action::SourceNat(NatTo { addr, ports, random: self.config.nat_fully_random })
    }

    /// Chain that gives workloads of pools with source NAT an address of the node when they leave the pools;
    /// empty unless `needed` (some pool asks for it).
    ///
    /// A configured NAT address of the other family is not used for this one.
    pub fn nat_outgoing_chain(&self, needed: bool) -> Chain {
        let mut chain = Chain::new(Layer::Nat, "cali-nat-outgoing");
        if !needed {
            return chain;
        }
        let addr = self.config.nat_outgoing_address.filter(|a| IpVersion::of(*a) == self.version);
        let ports = self.config.nat_port_range.filter(|r| r.last > 0);
        let mut rule = |proto: Option<&str>, action: Action| {
            let mut matches = vec![
                self.set(Side::Src, "masq-ipam-pools", false),
                self.set(Side::Dst, "network-ip-pools", true),
            ];
            if self.config.nat_exclusions == NatExclusions::IpPoolsAndHosts {
                matches.push(self.set(Side::Dst, "all-hosts-net", true));
            }
            matches.extend(proto.map(protocol));
            matches.extend(self.nat_interface());
            chain.rules.push(Rule::new(matches, action));
        };
        if ports.is_some() {
            for proto in ["tcp", "udp"] {
                rule(Some(proto), self.source_nat(addr, ports));
                rule(Some(proto), Action::Return);
            }
        }
        rule(None, self.source_nat(addr, None));
        chain
    }

    fn nat_interface(&self) -> Option<Match> {
        let filter = self.config.nat_interface_filter.as_ref().filter(|f| !f.is_empty())?;
        Some(Match::OutInterface(match filter.strip_suffix(['+', '*']) {
            Some(prefix) => SmolStr::from_iter(prefix.chars().chain([Match::WILDCARD])),
            None => filter.clone(),
        }))
    }

    /// Chains for floating addresses, `cali-fip-dnat` and `cali-fip-snat`; other families' are left out.
    ///
    /// Where two claim the same address, the one that sorts first as text wins, so that all orders of arrival
    /// give the same rules. The source is translated only for a workload that reaches itself.
    pub fn floating_ip_chains(&self, ips: &[FloatingIp]) -> [Chain; 2] {
        let lowest = |map: &mut BTreeMap<IpAddr, IpAddr>, key, value: IpAddr| {
            map.entry(key)
                .and_modify(|old| {
                    if value.to_string() < old.to_string() {
                        *old = value;
                    }
                })
                .or_insert(value);
        };
        let (mut dnat, mut snat) = (BTreeMap::new(), BTreeMap::new());
        for ip in ips {
            if [ip.external, ip.internal].iter().all(|a| IpVersion::of(*a) == self.version) {
                lowest(&mut dnat, ip.external, ip.internal);
            }
        }
        for (&external, &internal) in &dnat {
            lowest(&mut snat, internal, external);
        }
        let sorted = |map: BTreeMap<IpAddr, IpAddr>| {
            let mut list: Vec<_> = map.into_iter().collect();
            list.sort_by_cached_key(|(k, _)| k.to_string());
            list
        };
        let is = |side, addr| Match::Addr { side, addr };
        let dnat = sorted(dnat).into_iter().map(|(external, internal)| {
            Rule::new([is(Side::Dst, external)], Action::DestNat { addr: internal, port: None })
        });
        let snat = sorted(snat).into_iter().map(|(internal, external)| {
            let matches = [is(Side::Dst, internal), is(Side::Src, internal)];
            Rule::new(matches, self.source_nat(Some(external), None))
        });
        [
            Chain::with(Layer::Nat, "cali-fip-dnat", dnat.collect()),
            Chain::with(Layer::Nat, "cali-fip-snat", snat.collect()),
        ]
    }
}

/// The port alone, in the form of a list.
pub(crate) fn one_port(side: Side, protocol: ProtoPorts, port: u16) -> Match {
    Match::Ports { side, protocol, ports: vec![PortRange::single(port)], negate: false }
}

pub(crate) fn protocol(name: &str) -> Match {
    Match::Protocol { protocol: Protocol::Name(name.into()), negate: false }
}

/// The wider range of ports on one side of `port`; the lower one if they are equal.
fn ports_beside(port: u16) -> PortRange {
    let below = PortRange { first: LOWEST_PORT, last: port.saturating_sub(1).max(LOWEST_PORT) };
    let above = PortRange { first: port.saturating_add(1).max(LOWEST_PORT), last: u16::MAX };
    let width = |r: PortRange| u32::from(r.last.saturating_sub(r.first));
    if width(below) >= width(above) { below } else { above }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_beside_a_port() {
        let range = |p| {
            let r = ports_beside(p);
            (r.first, r.last)
        };
        assert_eq!(range(4789), (4790, 65535));
        assert_eq!(range(60000), (1024, 59999));
        assert_eq!(range(80), (1024, 65535));
        assert_eq!(range(65535), (1024, 65534));
    }
}
