//! Conditions and actions in nftables' language, twice: as digested and as sent.

use std::net::IpAddr;

use calico_net::{Cidr, IpVersion, PortRange, Protocol};

use crate::ir::{Action, Layer, Match, NatTo, Rule, Side};

/// Longest prefix of a log line that the kernel takes.
const LOG_PREFIX_MAX: usize = 127;

/// The two spellings of a rule.
#[derive(Default)]
pub(super) struct Text {
    /// Upstream's, for digests.
    pub digested: String,
    /// Ours, for `nft`.
    pub script: String,
}

impl Text {
    fn word(&mut self, word: &str) {
        self.two(word, word);
    }

    fn two(&mut self, digested: &str, script: &str) {
        for (out, word) in [(&mut self.digested, digested), (&mut self.script, script)] {
            if !out.is_empty() {
                out.push(' ');
            }
            out.push_str(word);
        }
    }
}

pub(super) fn rule(version: IpVersion, layer: Layer, rule: &Rule) -> Text {
    let mut out = Text::default();
    for m in &rule.matches {
        condition(version, m, &mut out);
    }
    match &rule.action {
        // Look-ups have no counter, and neither have rules that only carry a comment.
        Some(Action::InInterfaceMap(map)) => out.word(&format!("iifname vmap @{}-{map}", layer.name())),
        Some(Action::OutInterfaceMap(map)) => out.word(&format!("oifname vmap @{}-{map}", layer.name())),
        None => out.word("continue"),
        Some(a) => {
            if let Action::Log { limit: Some((rate, burst)), .. } = a {
                out.word(&format!("limit rate {} burst {burst} packets", plain_rate(rate)));
            }
            out.word("counter");
            action(layer, a, &mut out);
        }
    }
    out
}

fn family(version: IpVersion) -> &'static str {
    match version {
        IpVersion::V4 => "ip",
        IpVersion::V6 => "ip6",
    }
}

fn addr(side: Side) -> &'static str {
    match side {
        Side::Src => "saddr",
        Side::Dst => "daddr",
    }
}

fn port(side: Side) -> &'static str {
    match side {
        Side::Src => "sport",
        Side::Dst => "dport",
    }
}

fn not(negate: bool) -> &'static str {
    if negate { "!= " } else { "" }
}

fn condition(version: IpVersion, m: &Match, out: &mut Text) {
    let ip = family(version);
    let icmp = match version {
        IpVersion::V4 => "icmp",
        IpVersion::V6 => "icmpv6",
    };
    match m {
        Match::MarkSet(bit) => out.word(&format!("meta mark & {bit:#x} == {bit:#x}")),
        Match::MarkClear(bits) => out.word(&format!("meta mark & {bits:#x} == 0")),
        Match::MarkNotClear(bits) => out.word(&format!("meta mark & {bits:#x} != 0")),
        Match::InInterface(name) => {
            out.two(&format!("iifname {name}"), &format!("iifname \"{name}\""));
        }
        Match::OutInterface(name) => {
            out.two(&format!("oifname {name}"), &format!("oifname \"{name}\""));
        }
        Match::Protocol { protocol, negate } => {
            let not = not(*negate);
            let number = match protocol.to_number() {
                Some(n) => n.to_string(),
                // The renderer refuses unknown names; zero is no protocol that policy speaks of.
                None => "0".into(),
            };
            let digested = match protocol {
                Protocol::Num(n) => n.to_string(),
                Protocol::Name(n) => n.to_string(),
            };
            out.two(&format!("meta l4proto {not}{digested}"), &format!("meta l4proto {not}{number}"));
        }
        Match::Net { side, net, negate } => {
            out.word(&format!("{ip} {} {}{}", addr(*side), not(*negate), cidr(net)));
        }
        Match::Addr { side, addr: a } => out.word(&format!("{ip} {} {a}", addr(*side))),
        Match::Set { side, set, negate } => {
            out.word(&format!("{ip} {} {}@{set}", addr(*side), not(*negate)));
        }
        Match::IpPortSet { side, set, negate } => out.word(&format!(
            "{ip} {} . meta l4proto . th {} {}@{set}",
            addr(*side),
            port(*side),
            not(*negate)
        )),
        Match::Ports { side, protocol, ports, negate } => out.word(&format!(
            "{} {} {}{{ {} }}",
            protocol.name(),
            port(*side),
            not(*negate),
            ports.iter().map(range).collect::<Vec<_>>().join(", ")
        )),
        Match::DstPort { protocol, port } => out.word(&format!("{} dport {port}", protocol.name())),
        Match::Icmp { icmp_type, code: None, negate } => {
            out.word(&format!("{icmp} type {}{icmp_type}", not(*negate)));
        }
        // Upstream's spelling of a code is refused by nft, so that nothing needs to be equal to it. Its
        // negation asks for both to differ; ours is met if either does.
        Match::Icmp { icmp_type, code: Some(code), negate: false } => {
            out.word(&format!("{icmp} type {icmp_type} {icmp} code {code}"));
        }
        Match::Icmp { icmp_type, code: Some(code), negate: true } => {
            out.word(&format!("{icmp} type . {icmp} code != {{ {icmp_type} . {code} }}"));
        }
        Match::CtEstablished => out.word("ct state related,established"),
        Match::CtInvalid => out.word("ct state invalid"),
        Match::CtDnat { negate } => out.word(&format!("ct status {}dnat", not(*negate))),
        Match::Local(side) => out.word(&format!("fib {} type local", addr(*side))),
        Match::SrcNotLocalToOut => out.word("fib saddr . oif type != local"),
        Match::RpfFailed => out.word("fib saddr . mark . iif oif 0"),
    }
}

fn action(layer: Layer, a: &Action, out: &mut Text) {
    match a {
        Action::Accept => out.word("accept"),
        Action::Drop => out.word("drop"),
        Action::Reject => out.word("reject"),
        Action::Return => out.word("return"),
        Action::Jump(chain) => out.word(&format!("jump {}-{chain}", layer.name())),
        Action::Goto(chain) => out.word(&format!("goto {}-{chain}", layer.name())),
        Action::SetMark(bits) => out.word(&format!("meta mark set mark or {bits:#x}")),
        Action::ClearMark(bits) => out.word(&format!("meta mark set mark & {:#x}", !bits)),
        Action::SetMaskedMark { value, mask } => {
            out.word(&format!("meta mark set mark & {:#x} ^ {value:#x}", !mask));
        }
        Action::SourceNat(nat) => source_nat(nat, out),
        Action::DestNat { addr, port } => {
            out.word(&format!("dnat to {}", with_port(addr, port.map(|p| p.to_string()))));
        }
        Action::NoTrack => out.word("notrack"),
        Action::Log { prefix, .. } => {
            out.word(&format!("log prefix \"{}: \" level info", log_text(prefix, LOG_PREFIX_MAX - 2)));
        }
        Action::Nflog { group, prefix, size } => {
            let prefix = log_text(prefix, LOG_PREFIX_MAX);
            out.word(&format!("log prefix \"{prefix}\" snaplen {size} group {group}"));
        }
        // Written by the caller.
        Action::InInterfaceMap(_) | Action::OutInterfaceMap(_) => {}
    }
}

fn source_nat(nat: &NatTo, out: &mut Text) {
    let ports = nat.ports.as_ref().map(range);
    match (nat.addr, ports) {
        (None, None) => out.word("masquerade"),
        (None, Some(ports)) => out.word(&format!("masquerade to :{ports}")),
        (Some(addr), ports) => out.word(&format!("snat to {}", with_port(&addr, ports))),
    }
    if nat.random {
        out.word("fully-random");
    }
}

/// `192.0.2.1:80`, `[2001:db8::1]:80`, or the bare address.
fn with_port(addr: &IpAddr, port: Option<String>) -> String {
    match (addr, port) {
        (_, None) => addr.to_string(),
        (IpAddr::V4(_), Some(port)) => format!("{addr}:{port}"),
        (IpAddr::V6(_), Some(port)) => format!("[{addr}]:{port}"),
    }
}

fn range(r: &PortRange) -> String {
    if r.first == r.last { r.first.to_string() } else { format!("{}-{}", r.first, r.last) }
}

fn cidr(net: &Cidr) -> String {
    net.masked().to_string()
}

/// What may stand between quotes, at most `max` bytes.
fn log_text(text: &str, max: usize) -> String {
    text.chars()
        .map(|c| if c.is_ascii_graphic() && !matches!(c, '"' | '\\' | '$') || c == ' ' { c } else { '_' })
        .take(max)
        .collect()
}

/// A rate such as `5/minute`, with anything that is not part of one left out.
fn plain_rate(rate: &str) -> String {
    rate.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '/').collect()
}
