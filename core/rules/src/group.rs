//! Neighbouring policies of a tier with the same selector share one chain.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use calico_dpmsg::PolicyId;
use sha3::{Digest, Sha3_224};
use smol_str::{SmolStr, format_smolstr};

use crate::Renderer;
use crate::ir::{Action, Chain, Direction, Layer, Match, Rule};
use crate::names;

/// Policies after which a packet that has its verdict leaves the chain.
const STRIDE: usize = 5;

/// Consecutive policies with one selector.
pub(crate) struct Group<'a> {
    selector: SmolStr,
    direction: Direction,
    policies: Vec<&'a PolicyId>,
}

/// Groups of `policies`; `selector` gives a policy's selector, empty if it is not known.
pub(crate) fn groups<'a>(
    policies: &'a [PolicyId],
    direction: Direction,
    selector: &dyn Fn(&PolicyId) -> SmolStr,
) -> Vec<Group<'a>> {
    let mut out: Vec<Group<'a>> = Vec::new();
    for id in policies {
        let selector = selector(id);
        match out.last_mut() {
            Some(g) if g.selector == selector => g.policies.push(id),
            _ => out.push(Group { selector, direction, policies: vec![id] }),
        }
    }
    out
}

impl Group<'_> {
    /// Policies that are enforced.
    pub(crate) fn enforced(&self) -> impl Iterator<Item = &PolicyId> {
        self.policies.iter().copied().filter(|id| !names::is_staged(id))
    }

    /// True if the policies are called one by one.
    pub(crate) fn is_inlined(&self) -> bool {
        self.enforced().nth(1).is_none()
    }

    /// Name of the group's chain: a digest of all that the chain depends on.
    pub(crate) fn chain_name(&self) -> SmolStr {
        let (prefix, word) = match self.direction {
            Direction::Ingress => ("cali-gi-", "inbound"),
            Direction::Egress => ("cali-go-", "outbound"),
        };
        let mut hash = Sha3_224::new();
        hash.update(format!("{}\n{word}\n{}\n", self.selector, self.policies.len()));
        for id in &self.policies {
            hash.update(format!("{{Name: {}, Namespace: {}, Kind: {}}}\n", id.name, id.namespace, id.kind));
        }
        let text = URL_SAFE_NO_PAD.encode(hash.finalize());
        format_smolstr!("{prefix}{}", &text[..20])
    }
}

impl Renderer {
    pub(crate) fn group_chain(&self, layer: Layer, group: &Group<'_>) -> Chain {
        let verdict = self.marks.accept | self.marks.pass;
        let mut chain = Chain::new(layer, group.chain_name());
        for (n, id) in group.enforced().enumerate() {
            let jump = Action::Jump(names::policy_chain(id, group.direction));
            if n % STRIDE != 0 {
                chain.rules.push(Rule::new([Match::MarkClear(verdict)], jump));
                continue;
            }
            if n > 0 {
                chain.rules.push(
                    Rule::new([Match::MarkNotClear(verdict)], Action::Return).comment("Return on verdict"),
                );
            }
            chain.rules.push(Rule::new([], jump));
        }
        chain
    }
}
