//! The rule language: what a packet must match, what happens to it, and where rules stand.
//!
//! It says what netfilter can do, not how nftables or iptables spell it.

use std::collections::BTreeSet;
use std::net::IpAddr;

use calico_net::{Cidr, PortRange, Protocol};
use smol_str::SmolStr;

/// The netfilter table (in iptables' sense) that a chain belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Layer {
    /// Before connection tracking.
    Raw,
    /// Before destination NAT, and after routing.
    Mangle,
    /// Address translation.
    Nat,
    /// Forwarding and local delivery.
    Filter,
}

impl Layer {
    /// All layers, in the order in which packets meet them.
    pub const ALL: [Self; 4] = [Self::Raw, Self::Mangle, Self::Nat, Self::Filter];

    /// Lower-case name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Mangle => "mangle",
            Self::Nat => "nat",
            Self::Filter => "filter",
        }
    }
}

/// Direction of policy, seen from the endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Direction {
    /// To the endpoint.
    Ingress,
    /// From the endpoint.
    Egress,
}

impl Direction {
    /// Lower-case name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ingress => "ingress",
            Self::Egress => "egress",
        }
    }
}

/// Side of a packet that a match looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Side {
    /// Source.
    Src,
    /// Destination.
    Dst,
}

/// Protocols that have ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ProtoPorts {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

impl ProtoPorts {
    /// Lower-case name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Sctp => "sctp",
        }
    }

    /// The protocol if it has ports that packet filters can match.
    pub fn of(protocol: &Protocol) -> Option<Self> {
        match protocol.to_number()? {
            6 => Some(Self::Tcp),
            17 => Some(Self::Udp),
            132 => Some(Self::Sctp),
            _ => None,
        }
    }
}

/// One condition on a packet. A rule's conditions are all needed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Match {
    /// All bits of the single-bit mask are set.
    MarkSet(u32),
    /// None of the bits is set.
    MarkClear(u32),
    /// At least one of the bits is set.
    MarkNotClear(u32),
    /// Came in on the interface of this name; a trailing [`Match::WILDCARD`] stands for any rest.
    InInterface(SmolStr),
    /// Goes out of the interface; same wildcard.
    OutInterface(SmolStr),
    /// Protocol, by name or number.
    Protocol {
        /// Protocol; the name in lower case.
        protocol: Protocol,
        /// Must differ.
        negate: bool,
    },
    /// Address lies in the network.
    Net {
        /// Which address.
        side: Side,
        /// Network.
        net: Cidr,
        /// Must lie outside.
        negate: bool,
    },
    /// Address is exactly this one.
    Addr {
        /// Which address.
        side: Side,
        /// Address.
        addr: IpAddr,
    },
    /// Address is in the set.
    Set {
        /// Which address.
        side: Side,
        /// Name of the set within the packet filter.
        set: SmolStr,
        /// Must not be in it.
        negate: bool,
    },
    /// Address, protocol and port are in the set.
    IpPortSet {
        /// Which address and port.
        side: Side,
        /// Name of the set.
        set: SmolStr,
        /// Must not be in it.
        negate: bool,
    },
    /// Port is in one of at most [`Match::PORT_SLOTS`] slots (a range takes two).
    Ports {
        /// Which port.
        side: Side,
        /// Protocol of the port.
        protocol: ProtoPorts,
        /// Ranges, not empty.
        ports: Vec<PortRange>,
        /// Must be in none.
        negate: bool,
    },
    /// Exactly this destination port.
    DstPort {
        /// Protocol of the port.
        protocol: ProtoPorts,
        /// Port.
        port: u16,
    },
    /// ICMP (or ICMPv6, by the family of the table) type and possibly code.
    Icmp {
        /// Type.
        icmp_type: u8,
        /// Code.
        code: Option<u8>,
        /// The pair as a whole must differ.
        negate: bool,
    },
    /// Connection is established or related to one that is.
    CtEstablished,
    /// Connection tracking could make nothing of the packet.
    CtInvalid,
    /// Destination NAT happened (or, negated, did not).
    CtDnat {
        /// Must not have happened.
        negate: bool,
    },
    /// Address is one of this host's.
    Local(Side),
    /// Source is not an address of the outgoing interface.
    SrcNotLocalToOut,
    /// The route back to the source, under the packet's mark, does not leave by the incoming interface.
    RpfFailed,
}

impl Match {
    /// Ends an interface name that stands for all names with that beginning.
    pub const WILDCARD: char = '*';
    /// Slots that one port match has.
    pub const PORT_SLOTS: usize = 15;

    /// Interfaces whose names begin with `prefix`.
    pub fn in_prefix(prefix: &str) -> Self {
        Self::InInterface(SmolStr::from_iter(prefix.chars().chain([Self::WILDCARD])))
    }

    /// Outgoing interfaces whose names begin with `prefix`.
    pub fn out_prefix(prefix: &str) -> Self {
        Self::OutInterface(SmolStr::from_iter(prefix.chars().chain([Self::WILDCARD])))
    }
}

/// What address translation writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NatTo {
    /// Address; the outgoing interface's if absent.
    pub addr: Option<IpAddr>,
    /// Ports to choose from.
    pub ports: Option<PortRange>,
    /// Choose them fully at random.
    pub random: bool,
}

/// What happens to a packet that matched.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Action {
    /// Ends the layer's kernel chain in the packet's favour.
    Accept,
    /// Discards.
    Drop,
    /// Discards and tells the sender.
    Reject,
    /// Goes back to the calling chain.
    Return,
    /// Calls a chain of the same layer.
    Jump(SmolStr),
    /// Goes to a chain of the same layer; its end is this chain's end.
    Goto(SmolStr),
    /// Looks the incoming interface up in a verdict map of the same layer; goes on if it is not there.
    InInterfaceMap(SmolStr),
    /// Looks the outgoing interface up.
    OutInterfaceMap(SmolStr),
    /// Sets mark bits.
    SetMark(u32),
    /// Clears mark bits.
    ClearMark(u32),
    /// Replaces the mark bits under a mask.
    SetMaskedMark {
        /// New value of the bits.
        value: u32,
        /// Bits.
        mask: u32,
    },
    /// Translates the source to the outgoing interface's address, or to the one given.
    SourceNat(NatTo),
    /// Translates the destination.
    DestNat {
        /// New address.
        addr: IpAddr,
        /// New port, if it changes.
        port: Option<u16>,
    },
    /// Takes the packet out of connection tracking.
    NoTrack,
    /// Writes a line to the kernel log.
    Log {
        /// Text before the packet's description, without the colon that follows it.
        prefix: String,
        /// At most that often; then a number of packets that may come at once.
        limit: Option<(SmolStr, u32)>,
    },
    /// Hands a copy to a listener.
    Nflog {
        /// Group that the listener joined.
        group: u16,
        /// Text that goes along.
        prefix: String,
        /// Bytes of the packet that go along.
        size: u16,
    },
}

/// A rule: conditions, an action, and what a reader should know.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Rule {
    /// Conditions.
    pub matches: Vec<Match>,
    /// Action; none means that the rule only carries its comment.
    pub action: Option<Action>,
    /// Comments.
    pub comments: Vec<String>,
}

impl Rule {
    /// A rule without comment.
    pub fn new(matches: impl IntoIterator<Item = Match>, action: Action) -> Self {
        Self { matches: matches.into_iter().collect(), action: Some(action), comments: Vec::new() }
    }

    /// The same with one more comment.
    #[must_use]
    pub fn comment(mut self, text: impl Into<String>) -> Self {
        self.comments.push(text.into());
        self
    }
}

/// A named list of rules.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Chain {
    /// Where it stands.
    pub layer: Layer,
    /// Name within the layer.
    pub name: SmolStr,
    /// Rules in order.
    pub rules: Vec<Rule>,
}

impl Chain {
    /// An empty chain.
    pub fn new(layer: Layer, name: impl Into<SmolStr>) -> Self {
        Self { layer, name: name.into(), rules: Vec::new() }
    }

    pub(crate) fn with(layer: Layer, name: impl Into<SmolStr>, rules: Vec<Rule>) -> Self {
        Self { layer, name: name.into(), rules }
    }

    /// Everything that the rules name.
    pub fn references(&self) -> References {
        let mut out = References::default();
        out.collect(&self.rules);
        out
    }
}

/// What rules name: it must exist before them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct References {
    /// Chains of the same layer.
    pub chains: BTreeSet<SmolStr>,
    /// Sets.
    pub sets: BTreeSet<SmolStr>,
    /// Verdict maps of the same layer.
    pub maps: BTreeSet<SmolStr>,
}

impl References {
    pub(crate) fn collect(&mut self, rules: &[Rule]) {
        for rule in rules {
            for m in &rule.matches {
                if let Match::Set { set, .. } | Match::IpPortSet { set, .. } = m {
                    self.sets.insert(set.clone());
                }
            }
            match &rule.action {
                Some(Action::Jump(c) | Action::Goto(c)) => {
                    self.chains.insert(c.clone());
                }
                Some(Action::InInterfaceMap(m) | Action::OutInterfaceMap(m)) => {
                    self.maps.insert(m.clone());
                }
                _ => {}
            }
        }
    }
}

/// A chain that the kernel itself calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum KernelChain {
    /// Every arriving packet.
    Prerouting,
    /// Packets for this host.
    Input,
    /// Packets that pass through.
    Forward,
    /// Packets of this host.
    Output,
    /// Every leaving packet.
    Postrouting,
}

impl KernelChain {
    /// All, in the order in which packets meet them.
    pub const ALL: [Self; 5] =
        [Self::Prerouting, Self::Input, Self::Forward, Self::Output, Self::Postrouting];

    /// Upper-case name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Prerouting => "PREROUTING",
            Self::Input => "INPUT",
            Self::Forward => "FORWARD",
            Self::Output => "OUTPUT",
            Self::Postrouting => "POSTROUTING",
        }
    }
}

/// Rules in a chain that the kernel calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hook {
    /// Layer.
    pub layer: Layer,
    /// Chain.
    pub chain: KernelChain,
    /// Rules that come first (or, by configuration, last).
    pub inserted: Vec<Rule>,
    /// Rules that always come last.
    pub appended: Vec<Rule>,
}
