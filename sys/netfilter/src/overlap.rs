//! Networks of a set without overlaps.
//!
//! The kernel's interval sets refuse a network inside another. Here the members that no other covers are
//! *exposed*, the rest is hidden until what covers it goes. Networks are nested or apart, never askew, so that
//! the exposed ones are apart and the nearest one before a network decides whether it is covered.

use std::collections::BTreeSet;

use calico_net::Cidr;

/// Members of a set of networks.
#[derive(Debug, Clone, Default)]
pub(crate) struct Nets {
    exposed: BTreeSet<Cidr>,
    hidden: BTreeSet<Cidr>,
}

/// A change of what is exposed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    Expose(Cidr),
    Hide(Cidr),
}

impl Nets {
    /// Adds a network; reports changes to `each`. Adding one twice changes nothing.
    pub(crate) fn insert(&mut self, net: Cidr, mut each: impl FnMut(Change)) {
        let net = net.masked();
        if self.exposed.contains(&net) || self.hidden.contains(&net) {
            return;
        }
        if self.covered(&net) {
            self.hidden.insert(net);
            return;
        }
        let inside: Vec<Cidr> = self.exposed.range(net..).take_while(|x| net.covers(x)).copied().collect();
        for x in inside {
            self.exposed.remove(&x);
            self.hidden.insert(x);
            each(Change::Hide(x));
        }
        self.exposed.insert(net);
        each(Change::Expose(net));
    }

    /// Takes a network out.
    pub(crate) fn remove(&mut self, net: Cidr, mut each: impl FnMut(Change)) {
        let net = net.masked();
        if self.hidden.remove(&net) || !self.exposed.remove(&net) {
            return;
        }
        each(Change::Hide(net));
        // Wider networks sort before what they cover, so that one pass finds the widest ones.
        let mut last: Option<Cidr> = None;
        let mut free = Vec::new();
        for &x in self.hidden.range(net..).take_while(|x| net.covers(x)) {
            if !last.is_some_and(|l| l.covers(&x)) {
                free.push(x);
                last = Some(x);
            }
        }
        for x in free {
            self.hidden.remove(&x);
            self.exposed.insert(x);
            each(Change::Expose(x));
        }
    }

    /// All members.
    pub(crate) fn all(&self) -> impl Iterator<Item = Cidr> {
        self.exposed.iter().chain(&self.hidden).copied()
    }

    fn covered(&self, net: &Cidr) -> bool {
        self.exposed.range(..net).next_back().is_some_and(|x| x.covers(net))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn net() -> impl Strategy<Value = Cidr> {
        (any::<bool>(), 0u32..32, 0u8..6).prop_map(|(six, bits, up)| {
            if six {
                let addr = std::net::Ipv6Addr::from_bits((0xfd00 << 112) + u128::from(bits));
                Cidr::new(addr.into(), 128 - up).unwrap()
            } else {
                Cidr::new(std::net::Ipv4Addr::from_bits(0x0a00_0000 + bits).into(), 32 - up).unwrap()
            }
        })
    }

    proptest! {
        #[test]
        fn exposed_are_the_widest(steps in prop::collection::vec((any::<bool>(), net()), 0..80)) {
            let mut nets = Nets::default();
            let mut all = BTreeSet::new();
            let mut shown = BTreeSet::new();
            for (add, n) in steps {
                let mut changes = Vec::new();
                if add {
                    nets.insert(n, |c| changes.push(c));
                    all.insert(n.masked());
                } else {
                    nets.remove(n, |c| changes.push(c));
                    all.remove(&n.masked());
                }
                for c in changes {
                    // Each change is one: nothing is hidden that was not shown, nor shown twice.
                    match c {
                        Change::Expose(x) => prop_assert!(shown.insert(x)),
                        Change::Hide(x) => prop_assert!(shown.remove(&x)),
                    }
                }
                let widest: BTreeSet<Cidr> =
                    all.iter().filter(|n| !all.iter().any(|m| m != *n && m.covers(n))).copied().collect();
                prop_assert_eq!(&shown, &widest);
                prop_assert_eq!(nets.all().collect::<BTreeSet<_>>(), all.clone());
            }
        }
    }

    #[test]
    fn three_levels() {
        let [a, b, c] = ["10.0.0.0/16", "10.0.1.0/24", "10.0.1.5/32"].map(|t| Cidr::parse(t).unwrap());
        let mut nets = Nets::default();
        for n in [c, b, a] {
            nets.insert(n, |_| {});
        }
        let mut changes = Vec::new();
        nets.remove(b, |x| changes.push(x));
        assert_eq!(changes, [], "it was never shown");
        nets.remove(a, |x| changes.push(x));
        assert_eq!(changes, [Change::Hide(a), Change::Expose(c)]);
    }
}
