//! Transactions: lists of changes to one table that happen together or not at all, and their text for `nft`.

use std::fmt::Write as _;

use calico_dpmsg::Member;
use calico_net::IpVersion;
use calico_rules::nft::{BaseHook, NftRule, SetKey};
use smol_str::SmolStr;

/// Family of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Family {
    /// IPv4 or IPv6.
    Ip(IpVersion),
    /// ARP.
    Arp,
}

impl Family {
    /// The name that `nft` knows it by.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ip(IpVersion::V4) => "ip",
            Self::Ip(IpVersion::V6) => "ip6",
            Self::Arp => "arp",
        }
    }

    /// The address family that its sets are of.
    pub fn version(self) -> IpVersion {
        match self {
            Self::Ip(v) => v,
            Self::Arp => IpVersion::V4,
        }
    }
}

/// One change to a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// Makes the table, if it is not there.
    AddTable,
    /// Deletes the table with all that is in it.
    DeleteTable,
    /// Makes a chain that the kernel calls.
    AddBaseChain {
        /// Name.
        chain: SmolStr,
        /// Where it is called.
        hook: BaseHook,
    },
    /// Makes a chain.
    AddChain {
        /// Name.
        chain: SmolStr,
    },
    /// Deletes the rules of a chain.
    FlushChain {
        /// Name.
        chain: SmolStr,
    },
    /// Deletes a chain without rules that nothing calls.
    DeleteChain {
        /// Name.
        chain: SmolStr,
    },
    /// Adds a rule at the end.
    AddRule {
        /// Chain.
        chain: SmolStr,
        /// Rule.
        rule: NftRule,
    },
    /// Makes a set.
    AddSet {
        /// Name.
        set: SmolStr,
        /// Type of its elements.
        key: SetKey,
    },
    /// Deletes a set that no rule names.
    DeleteSet {
        /// Name.
        set: SmolStr,
    },
    /// Deletes all elements of a set.
    FlushSet {
        /// Name.
        set: SmolStr,
    },
    /// Adds elements; none may overlap another.
    AddMembers {
        /// Set.
        set: SmolStr,
        /// Type of its elements.
        key: SetKey,
        /// Elements.
        members: Vec<Member>,
    },
    /// Deletes elements, all of which must be there.
    DeleteMembers {
        /// Set.
        set: SmolStr,
        /// Type of its elements.
        key: SetKey,
        /// Elements.
        members: Vec<Member>,
    },
    /// Makes a map from interface names to verdicts.
    AddMap {
        /// Name.
        map: SmolStr,
    },
    /// Deletes a map that no rule names.
    DeleteMap {
        /// Name.
        map: SmolStr,
    },
    /// Deletes all elements of a map.
    FlushMap {
        /// Name.
        map: SmolStr,
    },
    /// Adds elements: interface, and chain to go to.
    AddVerdicts {
        /// Map.
        map: SmolStr,
        /// Elements.
        entries: Vec<(SmolStr, SmolStr)>,
    },
    /// Deletes elements, with the chains that they lead to.
    DeleteVerdicts {
        /// Map.
        map: SmolStr,
        /// Elements.
        entries: Vec<(SmolStr, SmolStr)>,
    },
}

/// Changes to one table that happen together or not at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transaction {
    /// Family of the table.
    pub family: Family,
    /// Name of the table.
    pub table: SmolStr,
    /// Changes in order.
    pub ops: Vec<Op>,
}

impl Transaction {
    /// An empty transaction.
    pub fn new(family: Family, table: SmolStr) -> Self {
        Self { family, table, ops: Vec::new() }
    }

    /// The text for `nft -f`.
    pub fn script(&self) -> String {
        let mut out = String::new();
        for op in &self.ops {
            self.write(op, &mut out);
        }
        out
    }

    fn write(&self, op: &Op, out: &mut String) {
        let at = format_args!("{} {}", self.family.name(), self.table);
        let mut line = |text: std::fmt::Arguments<'_>| {
            // Writing to a string does not fail.
            let _ = writeln!(out, "{text}");
        };
        match op {
            Op::AddTable => line(format_args!("add table {at}")),
            Op::DeleteTable => line(format_args!("delete table {at}")),
            Op::AddBaseChain { chain, hook } => line(format_args!(
                "add chain {at} {chain} {{ type {} hook {} priority {}; }}",
                hook.kind, hook.hook, hook.priority
            )),
            Op::AddChain { chain } => line(format_args!("add chain {at} {chain}")),
            Op::FlushChain { chain } => line(format_args!("flush chain {at} {chain}")),
            Op::DeleteChain { chain } => line(format_args!("delete chain {at} {chain}")),
            Op::AddRule { chain, rule } => {
                line(format_args!("add rule {at} {chain} {} comment \"{}\"", rule.text, rule.comment));
            }
            Op::AddSet { set, key } => {
                line(format_args!("add set {at} {set} {{ {} }}", set_type(self.family, *key)));
            }
            Op::DeleteSet { set } => line(format_args!("delete set {at} {set}")),
            Op::FlushSet { set } => line(format_args!("flush set {at} {set}")),
            Op::AddMembers { set, members, .. } => members_text(at, "add", set, members, out),
            Op::DeleteMembers { set, members, .. } => members_text(at, "delete", set, members, out),
            Op::AddMap { map } => line(format_args!("add map {at} {map} {{ type ifname : verdict; }}")),
            Op::DeleteMap { map } => line(format_args!("delete map {at} {map}")),
            Op::FlushMap { map } => line(format_args!("flush map {at} {map}")),
            Op::AddVerdicts { map, entries } => verdicts_text(at, "add", map, entries, out),
            Op::DeleteVerdicts { map, entries } => verdicts_text(at, "delete", map, entries, out),
        }
    }
}

fn set_type(family: Family, key: SetKey) -> String {
    let addr = match family.version() {
        IpVersion::V4 => "ipv4_addr",
        IpVersion::V6 => "ipv6_addr",
    };
    match key {
        SetKey::Addr => format!("type {addr};"),
        SetKey::Net => format!("type {addr}; flags interval;"),
        SetKey::AddrProtoPort => format!("type {addr} . inet_proto . inet_service;"),
    }
}

/// Elements of one line; longer lines are slower to read for `nft`.
const PER_LINE: usize = 512;

fn members_text(at: std::fmt::Arguments<'_>, verb: &str, set: &str, members: &[Member], out: &mut String) {
    for chunk in members.chunks(PER_LINE) {
        let _ = write!(out, "{verb} element {at} {set} {{ ");
        for (n, m) in chunk.iter().enumerate() {
            if n > 0 {
                out.push_str(", ");
            }
            let _ = match m {
                Member::Net(c) if c.is_host() => write!(out, "{}", c.addr()),
                Member::Net(c) => write!(out, "{c}"),
                Member::IpPort { addr, protocol, port } => write!(out, "{addr} . {protocol} . {port}"),
            };
        }
        out.push_str(" }\n");
    }
}

fn verdicts_text(
    at: std::fmt::Arguments<'_>,
    verb: &str,
    map: &str,
    entries: &[(SmolStr, SmolStr)],
    out: &mut String,
) {
    for chunk in entries.chunks(PER_LINE) {
        let _ = write!(out, "{verb} element {at} {map} {{ ");
        for (n, (iface, chain)) in chunk.iter().enumerate() {
            if n > 0 {
                out.push_str(", ");
            }
            let _ = write!(out, "\"{iface}\" : goto {chain}");
        }
        out.push_str(" }\n");
    }
}
