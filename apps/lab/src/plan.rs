//! Addresses and names of a cluster's machines, worked out from its scenario alone.

use std::net::IpAddr;

use calico_net::Cidr;

use crate::scenario::{Scenario, Segment};

/// First host part that outside hosts get on their segment.
const HOSTS_FROM: u128 = 10;
/// First host part that nodes get on their segment.
const NODES_FROM: u128 = 100;

/// A machine on a segment: a node or an outside host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// Name.
    pub name: String,
    /// True for a node of the cluster.
    pub is_node: bool,
    /// Place of its segment in the scenario.
    pub segment: usize,
    /// Its addresses with their segment's prefix length.
    pub addresses: Vec<Cidr>,
    /// The router's addresses on the segment.
    pub gateways: Vec<IpAddr>,
}

/// The router's addresses on a segment, with the segment's prefix length.
pub fn router_addresses(segment: &Segment) -> Vec<Cidr> {
    segment.cidrs.iter().filter_map(|c| Cidr::new(c.nth(1)?, c.prefix_len())).collect()
}

/// All machines, hosts first. Each address is the same in every run.
pub fn machines(scenario: &Scenario) -> Vec<Machine> {
    let hosts = scenario.hosts.iter().map(|h| (&h.name, &h.segment, false));
    let nodes = scenario.nodes.iter().map(|n| (&n.name, &n.segment, true));
    let mut machines: Vec<Machine> = Vec::new();
    for (name, segment_name, is_node) in hosts.chain(nodes) {
        let Some(segment) = scenario.segments.iter().position(|s| s.name == *segment_name) else { continue };
        let before = machines.iter().filter(|m| m.segment == segment && m.is_node == is_node).count();
        let part = before as u128 + if is_node { NODES_FROM } else { HOSTS_FROM };
        let cidrs = &scenario.segments[segment].cidrs;
        machines.push(Machine {
            name: name.clone(),
            is_node,
            segment,
            addresses: cidrs.iter().filter_map(|c| Cidr::new(c.nth(part)?, c.prefix_len())).collect(),
            gateways: cidrs.iter().filter_map(|c| c.nth(1)).collect(),
        });
    }
    machines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_follow_the_order_of_the_file() {
        let text = "
name: x
segments: [{name: a, cidrs: [10.0.1.0/24, 'fd00:1::/64']}, {name: b, cidrs: [10.0.2.0/24]}]
nodes: [{name: n1, segment: a}, {name: n2, segment: b}, {name: n3, segment: a}]
hosts: [{name: h, segment: a}]
pools: []
";
        let s = Scenario::parse(text, "x").expect("valid");
        let got: Vec<String> = machines(&s)
            .iter()
            .map(|m| {
                format!(
                    "{} {}",
                    m.name,
                    m.addresses.iter().map(Cidr::to_string).collect::<Vec<_>>().join(" ")
                )
            })
            .collect();
        let want = [
            "h 10.0.1.10/24 fd00:1::a/64",
            "n1 10.0.1.100/24 fd00:1::64/64",
            "n2 10.0.2.100/24",
            "n3 10.0.1.101/24 fd00:1::65/64",
        ];
        assert_eq!(got, want);
        assert_eq!(router_addresses(&s.segments[1]), ["10.0.2.1/24".parse::<Cidr>().expect("cidr")]);
    }
}
