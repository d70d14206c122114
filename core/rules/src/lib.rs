//! From policy to packet-filter rules, as data.
//!
//! Owns: the rule language ([`Match`], [`Action`], [`Rule`], [`Chain`]) that no packet filter is special in, the
//! rendering of policies, profiles, endpoints and the fixed chains into it ([`Renderer`]), the names of chains
//! and sets ([`names`]), and the text of rules for nftables ([`nft`]).
//! In: messages of the calculation graph (`calico-dpmsg`) and settings ([`RuleConfig`]).
//! Out: chains, per layer, with the sets, maps and chains that they name; nothing is written anywhere.
//!
//! Invariants:
//! - The same input gives the same output, byte for byte; names, rule texts and hashes equal upstream's, so that
//!   a node can be taken over without rewriting its rules. Deliberate differences are named where they are made.
//! - Nothing fails open. A rule that cannot be expressed is reported ([`Problem`]) and becomes a denial of
//!   everything if it would have denied or passed, and nothing if it would have allowed or logged. An endpoint
//!   that cannot be rendered gets no chain, and the dispatch chain drops what has none.

mod blocks;
pub mod config;
mod dispatch;
mod endpoint;
mod group;
mod ir;
mod marks;
pub mod names;
mod nat;
mod nflog;
pub mod nft;
mod policy;
mod statics;

pub use config::{ConfigError, RuleConfig};
pub use dispatch::{DispatchEntry, HostDispatch};
pub use ir::{
    Action, Chain, Direction, Hook, KernelChain, Layer, Match, NatTo, ProtoPorts, References, Rule, Side,
};
pub use marks::{MarkBits, MarkError};
pub use nat::FloatingIp;
pub use policy::{Problem, ProblemKind};

use std::sync::Arc;

use calico_net::IpVersion;

/// Chains that were asked for, with what could not be rendered.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rendered {
    /// Chains, in a fixed order.
    pub chains: Vec<Chain>,
    /// Input that had to be refused; each already fails closed in `chains`.
    pub problems: Vec<Problem>,
}

/// Renders everything for one address family under one configuration.
#[derive(Debug, Clone)]
pub struct Renderer {
    config: Arc<RuleConfig>,
    marks: MarkBits,
    version: IpVersion,
}

impl Renderer {
    /// A renderer for `version`.
    ///
    /// # Errors
    /// If the configured mark mask has too few bits, or a part of an interface name cannot be written in a rule.
    pub fn new(config: Arc<RuleConfig>, version: IpVersion) -> Result<Self, ConfigError> {
        let marks = MarkBits::allocate(config.mark_mask)?;
        config.check()?;
        Ok(Self { config, marks, version })
    }

    /// The family that is rendered.
    pub fn version(&self) -> IpVersion {
        self.version
    }

    /// Settings in use.
    pub fn config(&self) -> &RuleConfig {
        &self.config
    }

    /// Mark bits in use.
    pub fn marks(&self) -> MarkBits {
        self.marks
    }

    /// What a denied packet meets in `layer`.
    ///
    /// Differs from upstream: in the mangle layer it is always a drop, for packet filters refuse to reject
    /// after routing, where host endpoints' egress policy for translated traffic stands.
    pub(crate) fn deny(&self, layer: Layer) -> Action {
        match (layer, self.config.filter_deny) {
            (Layer::Mangle, _) | (_, config::DenyAction::Drop) => Action::Drop,
            (_, config::DenyAction::Reject) => Action::Reject,
        }
    }

    pub(crate) fn drop_word(&self) -> &'static str {
        match self.config.filter_deny {
            config::DenyAction::Drop => "Drop",
            config::DenyAction::Reject => "Reject",
        }
    }
}
