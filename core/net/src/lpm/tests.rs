use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn c(text: &str) -> Cidr {
    text.parse().unwrap()
}

fn texts<'a, T: 'a>(iter: impl Iterator<Item = (Cidr, &'a T)>) -> Vec<String> {
    iter.map(|(cidr, _)| cidr.to_string()).collect()
}

fn sample() -> LpmMap<u32> {
    [
        "10.0.0.0/8",
        "10.1.0.0/16",
        "10.1.2.0/24",
        "10.1.2.3/32",
        "10.2.0.0/16",
        "192.168.0.0/16",
        "fd00::/8",
        "fd00::1/128",
    ]
    .iter()
    .zip(0..)
    .map(|(text, n)| (c(text), n))
    .collect()
}

#[test]
fn longest_match_and_exact() {
    let m = sample();
    let hit = |addr: &str| m.longest_match(addr.parse().unwrap()).map(|(c, v)| (c.to_string(), *v));
    assert_eq!(hit("10.1.2.3"), Some(("10.1.2.3/32".into(), 3)));
    assert_eq!(hit("10.1.2.4"), Some(("10.1.2.0/24".into(), 2)));
    assert_eq!(hit("10.255.0.1"), Some(("10.0.0.0/8".into(), 0)));
    assert_eq!(hit("11.0.0.1"), None);
    assert_eq!(hit("fd00::1"), Some(("fd00::1/128".into(), 7)));
    assert_eq!(hit("::a01:203"), None, "families never mix");
    assert_eq!(m.get(&c("10.1.2.9/24")), Some(&2), "keys are masked");
    assert_eq!(m.get(&c("10.0.0.0/9")), None);
    assert_eq!(m.longest_cover(&c("10.1.2.0/25")).map(|(c, _)| c), Some(c("10.1.2.0/24")));
}

#[test]
fn paths_and_subtrees() {
    let m = sample();
    assert_eq!(texts(m.covering(&c("10.1.2.0/24"))), ["10.0.0.0/8", "10.1.0.0/16", "10.1.2.0/24"]);
    assert_eq!(texts(m.covering(&c("0.0.0.0/0"))), [""; 0]);
    assert_eq!(texts(m.within(&c("10.1.0.0/16"))), ["10.1.0.0/16", "10.1.2.0/24", "10.1.2.3/32"]);
    assert_eq!(texts(m.within(&c("10.0.0.0/7"))).len(), 5);
    assert_eq!(texts(m.within(&c("10.3.0.0/16"))), [""; 0]);
    assert_eq!(texts(m.closest_descendants(&c("10.0.0.0/8"))), ["10.1.0.0/16", "10.2.0.0/16"]);
    assert_eq!(texts(m.closest_descendants(&c("0.0.0.0/0"))), ["10.0.0.0/8", "192.168.0.0/16"]);
    assert_eq!(texts(m.closest_descendants(&c("10.1.2.3/32"))), [""; 0]);
    assert!(
        m.overlaps(&c("0.0.0.0/0")) && m.overlaps(&c("192.168.7.0/24")) && !m.overlaps(&c("172.16.0.0/12"))
    );
    assert_eq!(m.iter().map(|(_, v)| *v).collect::<Vec<_>>(), (0..8).collect::<Vec<_>>());
}

#[test]
fn default_routes_and_whole_addresses() {
    let mut m = LpmMap::new();
    for text in [
        "0.0.0.0/0",
        "::/0",
        "255.255.255.255/32",
        "0.0.0.0/32",
        "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128",
    ] {
        assert_eq!(m.insert(c(text), text), None);
    }
    assert_eq!(
        m.longest_match("255.255.255.255".parse().unwrap()).map(|(_, v)| *v),
        Some("255.255.255.255/32")
    );
    assert_eq!(m.longest_match("8.8.8.8".parse().unwrap()).map(|(_, v)| *v), Some("0.0.0.0/0"));
    assert_eq!(m.remove(&c("0.0.0.0/0")), Some("0.0.0.0/0"));
    assert_eq!(m.longest_match("8.8.8.8".parse().unwrap()), None);
    assert_eq!(m.len(), 4);
    m.clear();
    assert!(m.is_empty() && m.keys().next().is_none());
}

#[test]
fn nodes_are_compact_and_reused() {
    assert_eq!(LpmMap::<()>::new().v4.audit(), (0, 0));
    let mut m = LpmMap::new();
    for round in 0..3u32 {
        for n in 0..1000u32 {
            let addr = IpAddr::from(Ipv4Addr::from_bits(n.wrapping_mul(2_654_435_761)));
            m.insert(Cidr::host(addr), round);
        }
        let (used, bad) = m.v4.audit();
        assert_eq!((used, bad), (1999, 0), "n entries and n - 1 branches");
        let keys: Vec<_> = m.keys().collect();
        for key in keys {
            assert_eq!(m.remove(&key), Some(round));
        }
        assert_eq!(m.v4.audit(), (0, 0));
    }
}

/// Addresses from a small space, so that prefixes nest and collide, spread over all bit positions.
fn cidr() -> impl Strategy<Value = Cidr> {
    let v4 = (any::<u8>(), any::<u8>(), 0u8..=32).prop_map(|(a, b, len)| {
        let bits =
            u32::from(a & 7) << 29 | u32::from(a >> 6) << 20 | u32::from(b & 3) << 8 | u32::from(b >> 5);
        Cidr::new(Ipv4Addr::from_bits(bits).into(), len).unwrap()
    });
    let v6 = (any::<u8>(), any::<u8>(), 0u8..=128).prop_map(|(a, b, len)| {
        let bits = u128::from(a & 7) << 125
            | u128::from(a >> 6) << 70
            | u128::from(b & 3) << 62
            | u128::from(b >> 5);
        Cidr::new(Ipv6Addr::from_bits(bits).into(), len).unwrap()
    });
    prop_oneof![v4, v6]
}

#[derive(Debug, Clone)]
enum Step {
    Insert(Cidr, u16),
    Remove(Cidr, prop::sample::Index),
    Entry(Cidr, u16),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (cidr(), any::<u16>()).prop_map(|(c, v)| Step::Insert(c, v)),
        2 => (cidr(), any::<prop::sample::Index>()).prop_map(|(c, i)| Step::Remove(c, i)),
        1 => (cidr(), any::<u16>()).prop_map(|(c, v)| Step::Entry(c, v)),
    ]
}

proptest! {
    #[test]
    fn behaves_like_a_sorted_map(
        steps in proptest::collection::vec(step(), 0..120),
        probes in proptest::collection::vec(cidr(), 1..20),
        pick in any::<proptest::sample::Index>(),
    ) {
        let mut map = LpmMap::new();
        let mut model: BTreeMap<Cidr, u16> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Insert(cidr, v) => prop_assert_eq!(map.insert(cidr, v), model.insert(cidr.masked(), v)),
                Step::Remove(cidr, index) => {
                    // Some removals hit: take a stored key where there is one.
                    let hit = cidr.prefix_len() % 2 == 0 && !model.is_empty();
                    let key = if hit { *model.keys().nth(index.index(model.len())).unwrap() } else { cidr.masked() };
                    prop_assert_eq!(map.remove(&key), model.remove(&key));
                }
                Step::Entry(cidr, v) => {
                    prop_assert_eq!(*map.get_or_insert_with(cidr, || v), *model.entry(cidr.masked()).or_insert(v));
                    *map.get_mut(&cidr).unwrap() += 0;
                }
            }
            let (used4, bad4) = map.v4.audit();
            let (used6, bad6) = map.v6.audit();
            prop_assert_eq!(bad4 + bad6, 0);
            prop_assert!(used4 + used6 <= 2 * model.len());
        }
        prop_assert_eq!(map.len(), model.len());
        prop_assert!(map.iter().map(|(c, v)| (c, *v)).eq(model.iter().map(|(c, v)| (*c, *v))));
        prop_assert_eq!(&map, &model.iter().map(|(c, v)| (*c, *v)).collect());

        let stored = (!model.is_empty()).then(|| *model.keys().nth(pick.index(model.len())).unwrap());
        for probe in probes.into_iter().chain(stored) {
            let masked = probe.masked();
            prop_assert_eq!(map.get(&probe), model.get(&masked));
            prop_assert_eq!(map.contains(&probe), model.contains_key(&masked));
            let covering: Vec<_> = model.iter().filter(|(c, _)| c.covers(&probe)).map(|(c, v)| (*c, v)).collect();
            let mut by_length = covering.clone();
            by_length.sort_by_key(|(c, _)| c.prefix_len());
            prop_assert_eq!(map.covering(&probe).collect::<Vec<_>>(), by_length.clone());
            prop_assert_eq!(map.longest_cover(&probe), by_length.last().copied());
            let within: Vec<_> = model.iter().filter(|(c, _)| probe.covers(c)).map(|(c, v)| (*c, v)).collect();
            prop_assert_eq!(map.within(&probe).collect::<Vec<_>>(), within.clone());
            let strict: Vec<_> = within.iter().copied().filter(|(c, _)| *c != masked).collect();
            let closest: Vec<_> = strict
                .iter()
                .copied()
                .filter(|(c, _)| !strict.iter().any(|(o, _)| o != c && o.covers(c)))
                .collect();
            prop_assert_eq!(map.closest_descendants(&probe).collect::<Vec<_>>(), closest);
            prop_assert_eq!(map.overlaps(&probe), model.keys().any(|c| c.overlaps(&probe)));
            let addr = probe.addr();
            let best = model.iter().filter(|(c, _)| c.contains(addr)).max_by_key(|(c, _)| c.prefix_len());
            prop_assert_eq!(map.longest_match(addr), best.map(|(c, v)| (*c, v)));
        }
    }
}
