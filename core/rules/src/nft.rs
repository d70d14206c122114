//! The text of rules for nftables, and the digests by which a driver knows its own rules again.
//!
//! Everything of a family stands in one table; a chain's name begins with its layer (`filter-cali-INPUT`), a
//! set's does not. A rule's digest covers the chain's name, the rule and all rules before it, in upstream's
//! spelling and without comments; it stands in the rule's comment (`cali:<digest>; <comments>`). So equal
//! digests mean equal chains, also across a change from upstream to us and back.
//!
//! The text that goes to `nft` may differ from the digested one where upstream's spelling depends on the host
//! (names of protocols need a file that a small system lacks) or on luck (interface names that are also
//! keywords): there protocols are numbers and interfaces are quoted.

mod text;

use std::net::Ipv4Addr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use calico_dpmsg::IpSetType;
use calico_net::IpVersion;
use sha2::{Digest, Sha224};
use smol_str::{SmolStr, format_smolstr};

use crate::ir::{Chain, Hook, KernelChain, Layer, References, Rule};
use crate::names;
use crate::{DispatchEntry, Renderer};

/// Name of the table in the `ip` and `ip6` families.
pub const TABLE: &str = "calico";
/// Name of the table in the `arp` family.
pub const ARP_TABLE: &str = "calico-arp";
/// Beginning of the comment of each of our rules.
pub const HASH_PREFIX: &str = "cali:";
/// Characters of a digest.
pub const HASH_LEN: usize = 16;
/// Longest comment.
const COMMENT_MAX: usize = 128;

/// A rule as nftables takes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NftRule {
    /// Digest of this rule and its predecessors.
    pub hash: SmolStr,
    /// Conditions, counter and action.
    pub text: String,
    /// Digest and comments; holds no quotes.
    pub comment: String,
}

/// A chain as nftables takes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NftChain {
    /// Name with its layer.
    pub name: SmolStr,
    /// Rules in order.
    pub rules: Vec<NftRule>,
    /// Chains and maps (with layer) and sets that the rules name.
    pub refs: References,
}

/// A chain that the kernel calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NftBaseChain {
    /// Type, hook and priority.
    pub hook: BaseHook,
    /// Name and rules.
    pub chain: NftChain,
}

/// Where the kernel calls a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BaseHook {
    /// `filter`, `nat` or `route`.
    pub kind: &'static str,
    /// Name of the hook.
    pub hook: &'static str,
    /// Priority; lower is earlier.
    pub priority: i32,
}

/// Type of a set's elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SetKey {
    /// An address.
    Addr,
    /// A network.
    Net,
    /// Address, protocol and port.
    AddrProtoPort,
}

impl SetKey {
    /// The key for members of `kind`.
    pub fn of(kind: IpSetType) -> Self {
        match kind {
            IpSetType::Ip => Self::Addr,
            IpSetType::Net => Self::Net,
            IpSetType::IpPort => Self::AddrProtoPort,
        }
    }

    /// The key of a set that the fixed chains name.
    pub fn of_static(id: &str) -> Self {
        match id {
            "this-host" => Self::Addr,
            _ => Self::Net,
        }
    }
}

/// Digests of a chain of rules.
struct Digests(sha2::digest::Output<Sha224>);

impl Digests {
    fn new(seed: &str) -> Self {
        Self(Sha224::digest(seed.as_bytes()))
    }

    fn next(&mut self, text: &str) -> SmolStr {
        let mut hash = Sha224::new();
        hash.update(self.0);
        hash.update(text.as_bytes());
        self.0 = hash.finalize();
        // Twelve bytes are sixteen characters.
        SmolStr::new(URL_SAFE_NO_PAD.encode(&self.0[..12]))
    }
}

/// Renders `chain` for the table of `version`.
pub fn chain(version: IpVersion, chain: &Chain) -> NftChain {
    let name = names::layered(chain.layer, &chain.name);
    let mut digests = Digests::new(&name);
    let rules = chain.rules.iter().map(|r| rule(version, chain.layer, r, &mut digests)).collect();
    NftChain { rules, refs: layered_refs(chain.layer, chain.references()), name }
}

/// Base chains of a table of `version`, in a fixed order; those without rules included.
pub fn base_chains(hooks: &[Hook]) -> Vec<NftBaseChain> {
    use KernelChain::{Forward, Input, Output, Postrouting, Prerouting};
    let mut out = Vec::new();
    for layer in Layer::ALL {
        let chains: &[KernelChain] = match layer {
            Layer::Raw => &[Prerouting, Output],
            Layer::Mangle => &KernelChain::ALL,
            Layer::Nat => &[Prerouting, Input, Output, Postrouting],
            Layer::Filter => &[Input, Forward, Output],
        };
        for &kernel in chains {
            let empty = Hook { layer, chain: kernel, inserted: Vec::new(), appended: Vec::new() };
            let hook = hooks.iter().find(|h| h.layer == layer && h.chain == kernel).unwrap_or(&empty);
            out.push(base_chain(hook));
        }
    }
    out
}

fn base_chain(hook: &Hook) -> NftBaseChain {
    let name = names::layered(hook.layer, hook.chain.name());
    let mut refs = References::default();
    let mut rules = Vec::new();
    for (part, seed) in [(&hook.inserted, name.clone()), (&hook.appended, format_smolstr!("{name}*appends*"))]
    {
        let mut digests = Digests::new(&seed);
        // The rules name no address, so that one family's spelling serves both.
        rules.extend(part.iter().map(|r| rule(IpVersion::V4, hook.layer, r, &mut digests)));
        refs.collect(part);
    }
    let chain = NftChain { name, rules, refs: layered_refs(hook.layer, refs) };
    NftBaseChain { hook: base_hook(hook.layer, hook.chain), chain }
}

fn base_hook(layer: Layer, chain: KernelChain) -> BaseHook {
    use KernelChain::{Forward, Input, Output, Postrouting, Prerouting};
    let hook = match chain {
        Prerouting => "prerouting",
        Input => "input",
        Forward => "forward",
        Output => "output",
        Postrouting => "postrouting",
    };
    let (kind, priority) = match (layer, chain) {
        (Layer::Raw, _) => ("filter", -300),
        (Layer::Mangle, Output) => ("route", -150),
        (Layer::Mangle, _) => ("filter", -150),
        (Layer::Nat, Prerouting | Input) => ("nat", -100),
        // After kube-proxy's chains.
        (Layer::Nat, _) => ("nat", 110),
        (Layer::Filter, _) => ("filter", 0),
    };
    BaseHook { kind, hook, priority }
}

/// Name and element of a verdict map as nftables has them: map, interface, chain.
pub fn map_entry(entry: &DispatchEntry) -> (SmolStr, SmolStr, SmolStr) {
    let layered = |name: &str| names::layered(Layer::Filter, name);
    (layered(&entry.map), entry.interface.clone(), layered(&entry.chain))
}

/// Names of the verdict maps of workloads, as nftables has them.
pub fn workload_maps() -> [SmolStr; 2] {
    Renderer::WORKLOAD_MAPS.map(|m| names::layered(Layer::Filter, m))
}

/// The base chain of the ARP table, which looks the outgoing interface up in the map of [`arp_map`].
pub fn arp_base_chains() -> (NftBaseChain, NftChain) {
    let hook = Hook {
        layer: Layer::Filter,
        chain: KernelChain::Output,
        inserted: vec![Rule::new([], crate::Action::Jump(ARP_DISPATCH.into()))],
        appended: Vec::new(),
    };
    let dispatch = Chain::with(
        Layer::Filter,
        ARP_DISPATCH,
        vec![Rule::new([], crate::Action::OutInterfaceMap(ARP_DISPATCH.into()))],
    );
    (base_chain(&hook), chain(IpVersion::V4, &dispatch))
}

const ARP_DISPATCH: &str = "cali-arp-dispatch";

/// Name of the ARP table's verdict map.
pub fn arp_map() -> SmolStr {
    names::layered(Layer::Filter, ARP_DISPATCH)
}

/// Chain of a workload in the ARP table: the host must not answer, on the workload's interface, for the
/// workload's own addresses, or the workload would take them for taken. None if the name cannot be written.
pub fn arp_chain(iface: &str, addrs: &[Ipv4Addr]) -> Option<NftChain> {
    if !names::is_interface(iface) {
        return None;
    }
    let name = names::layered(Layer::Filter, &names::chain("cali-arp-", iface));
    let mut digests = Digests::new(&name);
    let rules = addrs
        .iter()
        .map(|addr| {
            let rest = format!("arp operation reply arp saddr ip {addr} counter drop");
            let hash = digests.next(&format!("oifname {iface} {rest}"));
            let comment = comment(&hash, &[]);
            NftRule { hash, text: format!("oifname \"{iface}\" {rest}"), comment }
        })
        .collect();
    Some(NftChain { name, rules, refs: References::default() })
}

fn rule(version: IpVersion, layer: Layer, rule: &Rule, digests: &mut Digests) -> NftRule {
    let text = text::rule(version, layer, rule);
    let hash = digests.next(&text.digested);
    let comment = comment(&hash, &rule.comments);
    NftRule { hash, text: text.script, comment }
}

fn layered_refs(layer: Layer, refs: References) -> References {
    let layered = |names: std::collections::BTreeSet<SmolStr>| {
        names.into_iter().map(|n| names::layered(layer, &n)).collect()
    };
    References { chains: layered(refs.chains), sets: refs.sets, maps: layered(refs.maps) }
}

/// Digest and comments, at most [`COMMENT_MAX`] bytes; the space is shared evenly.
fn comment(hash: &str, comments: &[String]) -> String {
    let mut out = format!("{HASH_PREFIX}{hash};");
    if comments.is_empty() {
        return out;
    }
    // Each comment costs a separator too.
    let room = (COMMENT_MAX - out.len()) / comments.len();
    for (n, text) in comments.iter().enumerate() {
        out.push_str(if n == 0 { " " } else { "; " });
        // All characters are ASCII afterwards, so that bytes are characters.
        out.extend(text.chars().map(plain).take(room.saturating_sub(2)));
    }
    out
}

/// The character, or `_` if it could end the comment or confuse a reader.
fn plain(c: char) -> char {
    match c {
        'a'..='z'
        | 'A'..='Z'
        | '0'..='9'
        | '_'
        | ' '
        | '@'
        | '%'
        | '+'
        | '='
        | ':'
        | ','
        | '.'
        | '/'
        | '-' => c,
        _ => '_',
    }
}

/// The digest in a rule's comment, if the rule is ours.
pub fn hash_of_comment(comment: &str) -> Option<&str> {
    let hash = comment.strip_prefix(HASH_PREFIX)?.split(';').next()?;
    (hash.len() == HASH_LEN).then_some(hash)
}

#[cfg(test)]
mod tests;
