use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

fn net(text: &str) -> Member {
    Member::Net(text.parse().unwrap())
}

fn step(m: &mut Members, text: &str, add: bool, overlaps: bool) -> Vec<String> {
    let mut out = Vec::new();
    m.change(net(text), add, overlaps, &mut |member, on| {
        out.push(format!("{}{member}", if on { '+' } else { '-' }));
    });
    out.sort();
    out
}

#[test]
fn a_covered_member_is_neither_added_nor_removed() {
    let mut m = Members::nets();
    assert_eq!(step(&mut m, "10.0.0.0/16", true, false), ["+10.0.0.0/16"]);
    assert!(step(&mut m, "10.0.1.0/24", true, false).is_empty());
    assert!(step(&mut m, "10.0.1.0/24", false, false).is_empty());
    assert!(step(&mut m, "10.0.1.5/32", true, false).is_empty());
    assert!(step(&mut m, "10.0.1.0/24", true, false).is_empty());
    assert_eq!(step(&mut m, "10.0.0.0/16", false, false), ["+10.0.1.0/24", "-10.0.0.0/16"]);
    assert_eq!(step(&mut m, "10.0.1.0/24", false, false), ["+10.0.1.5/32", "-10.0.1.0/24"]);
}

#[test]
fn a_covering_member_replaces_its_closest_descendants() {
    let mut m = Members::nets();
    for text in ["10.0.0.0/32", "10.0.0.1/32", "10.0.0.0/30", "10.0.1.0/24", "11.0.0.0/8", "10.0.1.7/32"] {
        step(&mut m, text, true, false);
    }
    assert_eq!(step(&mut m, "10.0.0.0/8", true, false), ["+10.0.0.0/8", "-10.0.0.0/30", "-10.0.1.0/24"]);
    assert_eq!(step(&mut m, "::/1", true, false), ["+::/1"]);
    assert_eq!(step(&mut m, "8000::/1", true, false), ["+8000::/1"]);
    assert_eq!(m.programmed(false), ["10.0.0.0/8", "11.0.0.0/8", "::/1", "8000::/1"].map(net));
    assert_eq!(m.programmed(true).len(), 9);
}

#[test]
fn counts_decide() {
    let mut m = Members::nets();
    assert_eq!(step(&mut m, "10.0.0.1/32", true, true), ["+10.0.0.1/32"]);
    assert!(step(&mut m, "10.0.0.1/32", true, true).is_empty());
    assert!(step(&mut m, "10.0.0.1/32", false, true).is_empty());
    assert_eq!(step(&mut m, "10.0.0.1/32", false, true), ["-10.0.0.1/32"]);
    assert!(step(&mut m, "10.0.0.1/32", false, true).is_empty());
}

fn any_net() -> impl Strategy<Value = Cidr> {
    let v4 = (prop::sample::select(vec![0u32, 1, 2, 4, 7, u32::MAX, u32::MAX - 1]), 0u8..=32);
    let v6 = (
        prop::sample::select(vec![0u128, 1, 5, u128::MAX]),
        prop::sample::select(vec![0u8, 1, 64, 126, 127, 128]),
    );
    prop_oneof![
        v4.prop_map(|(a, l)| Cidr::new(Ipv4Addr::from_bits(a).into(), l).unwrap().masked()),
        (0u32..16, 26u8..=32)
            .prop_map(|(a, l)| Cidr::new(Ipv4Addr::from_bits(a).into(), l).unwrap().masked()),
        v6.prop_map(|(a, l)| Cidr::new(Ipv6Addr::from_bits(a).into(), l).unwrap().masked()),
    ]
}

proptest! {
    /// Following the changes gives, after each step, what a fresh look at the counts gives.
    #[test]
    fn changes_add_up_to_the_uncovered_members(
        ops in prop::collection::vec((any_net(), any::<bool>()), 0..60), overlaps in any::<bool>(),
    ) {
        let mut m = Members::nets();
        let mut counts: BTreeMap<Cidr, u32> = BTreeMap::new();
        let mut shown: BTreeSet<Member> = BTreeSet::new();
        for (cidr, add) in ops {
            let count = counts.entry(cidr).or_default();
            if !add && *count == 0 {
                continue;
            }
            *count = if add { *count + 1 } else { *count - 1 };
            m.change(Member::Net(cidr), add, overlaps, &mut |member, on| {
                assert!(if on { shown.insert(member) } else { shown.remove(&member) }, "{member} twice");
            });
            counts.retain(|_, c| *c > 0);
            let want: BTreeSet<Member> = counts
                .keys()
                .filter(|c| overlaps || !counts.keys().any(|o| o != *c && o.covers(c)))
                .map(|c| Member::Net(*c))
                .collect();
            prop_assert_eq!(&shown, &want);
            prop_assert_eq!(m.programmed(overlaps), want.into_iter().collect::<Vec<_>>());
            let mut at_once = Members::nets();
            at_once.fill(counts.iter().flat_map(|(c, n)| (0..*n).map(|_| Member::Net(*c))));
            prop_assert_eq!(format!("{at_once:?}"), format!("{m:?}"));
        }
    }
}
