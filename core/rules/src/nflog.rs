//! Texts that tell a flow log which rule decided.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use calico_dpmsg::PolicyId;
use sha2::{Digest, Sha256};

use crate::ir::{Action, Direction};
use crate::names;

/// Longest text.
const MAX: usize = 63;
/// Bytes of each packet that are copied.
const SIZE: u16 = 80;

/// What decided.
pub(crate) enum Owner<'a> {
    Policy(&'a PolicyId),
    Profile(&'a str),
}

fn action(direction: Direction, prefix: String) -> Action {
    let group = match direction {
        Direction::Ingress => 1,
        Direction::Egress => 2,
    };
    Action::Nflog { group, prefix: fit(prefix), size: SIZE }
}

fn letter(direction: Direction) -> char {
    match direction {
        Direction::Ingress => 'I',
        Direction::Egress => 'E',
    }
}

/// A rule of a policy or profile decided; `verdict` is `A`, `D` or `P`.
pub(crate) fn rule(verdict: char, owner: &Owner<'_>, direction: Direction, index: usize) -> Action {
    let dir = letter(direction);
    let text = match owner {
        Owner::Policy(id) => format!("{verdict}P{dir}{index}|{}", names::policy_part(id)),
        Owner::Profile(name) => format!("{verdict}R{dir}{index}|{name}"),
    };
    action(direction, text)
}

/// The end of a tier decided: denied, or passed on.
pub(crate) fn end_of_tier(verdict: char, tier: &str, direction: Direction) -> Action {
    action(direction, format!("{verdict}P{}|{tier}", letter(direction)))
}

/// No profile matched.
pub(crate) fn no_profile(direction: Direction) -> Action {
    action(direction, format!("DR{}", letter(direction)))
}

/// The text, its middle replaced by a digest if it is too long.
fn fit(text: String) -> String {
    if text.len() < MAX {
        return text;
    }
    let digest = URL_SAFE_NO_PAD.encode(Sha256::digest(text.as_bytes()));
    let head: String = text.chars().take(10).collect();
    let mut tail: Vec<char> = text.chars().rev().take(10).collect();
    tail.reverse();
    format!("{head}_{}_{}", &digest[..41], tail.into_iter().collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts() {
        let name: String = ('a'..='z').chain('A'..='Z').chain(['0']).collect();
        assert_eq!(
            fit(format!("DPI88|gnp/{name}")),
            "DPI88|gnp/_12IXaBPahNM7a7dZhI8zg6PStmHsgneYaax8LVSIq_RSTUVWXYZ0"
        );
    }

    #[test]
    fn shapes() {
        let id = PolicyId {
            kind: "KubernetesNetworkPolicy".into(),
            namespace: "shop".into(),
            name: "allow-web".into(),
        };
        let Action::Nflog { group, prefix, size } = rule('A', &Owner::Policy(&id), Direction::Ingress, 0)
        else {
            panic!("not a log action");
        };
        assert_eq!((group, prefix.as_str(), size), (1, "API0|knp/shop/allow-web", 80));
    }
}
