//! From interface to endpoint chain.
//!
//! Workloads are found by verdict maps, one look-up however many they are; host endpoints, which are few, by
//! rules in a tree over the next character of the name.

use std::collections::{BTreeMap, BTreeSet};

use smol_str::{SmolStr, format_smolstr};

use crate::endpoint::unknown_interface;
use crate::ir::{Action, Chain, Direction, Layer, Match, Rule};
use crate::{Renderer, names};

/// An element of a verdict map: packets of the interface go to the chain.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DispatchEntry {
    /// Map, within the filter layer.
    pub map: SmolStr,
    /// Interface.
    pub interface: SmolStr,
    /// Chain of the same layer.
    pub chain: SmolStr,
}

/// Host interfaces that have chains.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HostDispatch {
    /// Interfaces with a host endpoint.
    pub normal: BTreeSet<SmolStr>,
    /// Those of them with untracked policy.
    pub untracked: BTreeSet<SmolStr>,
    /// Those of them with policy before destination NAT.
    pub pre_dnat: BTreeSet<SmolStr>,
    /// There is a host endpoint for all interfaces.
    pub any: bool,
    /// It has policy before destination NAT.
    pub any_pre_dnat: bool,
}

impl Renderer {
    /// Names of the verdict maps, within the filter layer: from workloads, and to workloads.
    pub const WORKLOAD_MAPS: [&'static str; 2] = ["cali-from-wl-dispatch", "cali-to-wl-dispatch"];

    /// Elements of the verdict maps for the workload interface `iface`; none if its name cannot be written.
    pub fn workload_entries(&self, iface: &str) -> Vec<DispatchEntry> {
        if !names::is_interface(iface) {
            return Vec::new();
        }
        let [from, to] = Self::WORKLOAD_MAPS;
        [(from, names::FROM_WORKLOAD), (to, names::TO_WORKLOAD)]
            .map(|(map, prefix)| DispatchEntry {
                map: map.into(),
                interface: iface.into(),
                chain: names::chain(prefix, iface),
            })
            .into()
    }

    /// The chains that look the maps up and deny what is not in them.
    pub(crate) fn workload_dispatch_chains(&self) -> Vec<Chain> {
        let [from, to] = Self::WORKLOAD_MAPS;
        [(from, Action::InInterfaceMap(from.into())), (to, Action::OutInterfaceMap(to.into()))]
            .into_iter()
            .map(|(name, lookup)| {
                let deny = Rule::new([], self.deny(Layer::Filter)).comment(unknown_interface());
                Chain::with(Layer::Filter, name, vec![Rule::new([], lookup), deny])
            })
            .collect()
    }

    /// The chains that find host endpoints, in all layers; they exist even if there are none.
    pub fn host_dispatch_chains(&self, hosts: &HostDispatch) -> Vec<Chain> {
        use Direction::{Egress, Ingress};
        let none = BTreeSet::new();
        let (to, from) = (names::TO_HOST_ENDPOINT, names::FROM_HOST_ENDPOINT);
        let (fwd_to, fwd_from) = (names::TO_HOST_FORWARD, names::FROM_HOST_FORWARD);
        let any = |on: bool, prefix: &str| {
            if on {
                let chain = names::chain(prefix, names::ANY_INTERFACE);
                vec![Rule::new([], Action::Goto(chain))]
            } else {
                Vec::new()
            }
        };
        let mut to_local = Vec::new();
        if hosts.any {
            to_local.extend(self.config.workload_prefixes.iter().map(|p| {
                Rule::new([Match::out_prefix(p)], Action::Return)
                    .comment("Skip egress WHEP policy for traffic to local workload")
            }));
        }
        to_local.extend(any(hosts.any, to));
        let mut out = Vec::new();
        for (layer, name, direction, prefix, ifaces, end) in [
            (Layer::Raw, "cali-from-host-endpoint", Ingress, from, &hosts.untracked, Vec::new()),
            (Layer::Raw, "cali-to-host-endpoint", Egress, to, &hosts.untracked, Vec::new()),
            (
                Layer::Mangle,
                "cali-from-host-endpoint",
                Ingress,
                from,
                &hosts.pre_dnat,
                any(hosts.any_pre_dnat, from),
            ),
            (Layer::Mangle, "cali-to-host-endpoint", Egress, to, &hosts.normal, to_local),
            (Layer::Filter, "cali-from-host-endpoint", Ingress, from, &hosts.normal, any(hosts.any, from)),
            (Layer::Filter, "cali-to-host-endpoint", Egress, to, &hosts.normal, any(hosts.any, to)),
            (
                Layer::Filter,
                "cali-from-hep-forward",
                Ingress,
                fwd_from,
                &hosts.normal,
                any(hosts.any, fwd_from),
            ),
            (Layer::Filter, "cali-to-hep-forward", Egress, fwd_to, &hosts.normal, any(hosts.any, fwd_to)),
        ] {
            let ifaces = if ifaces.is_empty() { &none } else { ifaces };
            tree(layer, name, direction, prefix, ifaces, &end, &mut out);
        }
        out
    }
}

/// A root chain, and one child for each next character that several names share. A child ends like the root,
/// since `goto` does not come back.
fn tree(
    layer: Layer,
    name: &str,
    direction: Direction,
    prefix: &str,
    ifaces: &BTreeSet<SmolStr>,
    end: &[Rule],
    out: &mut Vec<Chain>,
) {
    let on = |iface: SmolStr| match direction {
        Direction::Ingress => Match::InInterface(iface),
        Direction::Egress => Match::OutInterface(iface),
    };
    let ifaces: Vec<&str> = ifaces.iter().map(SmolStr::as_str).filter(|i| names::is_interface(i)).collect();
    let common = common_prefix(&ifaces);
    let mut bins: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for &iface in &ifaces {
        let end = (common.len() + 1).min(iface.len());
        bins.entry(&iface[..end]).or_default().push(iface);
    }
    let leaf = |iface: &str| Rule::new([on(iface.into())], Action::Goto(names::chain(prefix, iface)));
    let mut root = Chain::new(layer, name);
    for (bin, members) in bins {
        if let [only] = members.as_slice() {
            root.rules.push(leaf(only));
            continue;
        }
        let child = names::chain(name, &format!("-{}", &bin[common.len()..]));
        root.rules
            .push(Rule::new([on(format_smolstr!("{bin}{}", Match::WILDCARD))], Action::Goto(child.clone())));
        let mut rules: Vec<Rule> = members.iter().map(|i| leaf(i)).collect();
        rules.extend_from_slice(end);
        out.push(Chain::with(layer, child, rules));
    }
    root.rules.extend_from_slice(end);
    out.push(root);
}

fn common_prefix<'a>(names: &[&'a str]) -> &'a str {
    let Some((first, rest)) = names.split_first() else { return "" };
    let mut len = first.len();
    for name in rest {
        len = first.bytes().zip(name.bytes()).take(len).take_while(|(a, b)| a == b).count();
    }
    &first[..len]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes() {
        assert_eq!(common_prefix(&["eth0", "eth1"]), "eth");
        assert_eq!(common_prefix(&["eth0"]), "eth0");
        assert_eq!(common_prefix(&["a", "b"]), "");
        assert_eq!(common_prefix(&[]), "");
    }

    #[test]
    fn tree_shape() {
        let ifaces: BTreeSet<SmolStr> = ["eth1", "eth10", "ens3", "e"].map(SmolStr::from).into();
        let end = [Rule::new([], Action::Drop)];
        let mut out = Vec::new();
        tree(Layer::Filter, "cali-from-x", Direction::Ingress, "cali-fh-", &ifaces, &end, &mut out);
        let names: Vec<_> = out.iter().map(|c| (c.name.as_str(), c.rules.len())).collect();
        assert_eq!(names, [("cali-from-x-t", 3), ("cali-from-x", 4)]);
        let root = &out[1];
        assert_eq!(
            root.rules[0],
            Rule::new([Match::InInterface("e".into())], Action::Goto("cali-fh-e".into()))
        );
        assert_eq!(root.rules[2].matches, [Match::InInterface("et*".into())]);
        assert_eq!(root.rules[3].action, Some(Action::Drop));
    }
}
