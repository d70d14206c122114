use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn labels(list: &[(&str, &str)]) -> Labels {
    list.iter().map(|&(k, v)| (k.into(), v.into())).collect()
}

fn put(items: &mut Items, name: &str, own: &[(&str, &str)], profiles: &[&str]) -> ItemId {
    let profiles: Vec<SmolStr> = profiles.iter().map(|&p| p.into()).collect();
    let input = ItemInput {
        labels: &labels(own),
        profiles: &profiles,
        nets: vec!["10.0.0.1/32".parse().unwrap()],
        ports: &[],
    };
    items.put(ItemName::Set(&name.into()), input);
    items.find(ItemName::Set(&name.into())).unwrap()
}

fn drop_item(items: &mut Items, name: &str) {
    let (id, before) = items.clear(ItemName::Set(&name.into())).unwrap();
    items.release_ports(before.ports);
    items.drop_item(id);
}

fn sel(text: &str) -> Selector {
    Selector::parse(text).unwrap()
}

#[test]
fn an_item_is_small() {
    assert!(size_of::<Item>() <= 96, "{}", size_of::<Item>());
}

#[test]
fn labels_of_the_item_come_before_those_of_profiles_in_order() {
    let mut items = Items::default();
    let a = put(&mut items, "a", &[("x", "own")], &["p", "q"]);
    let b = put(&mut items, "b", &[], &["p", "q"]);
    let c = put(&mut items, "c", &[], &["q", "p"]);
    assert_eq!(items.set_profile_labels(&"p".into(), Some(&labels(&[("x", "p"), ("y", "p")]))), [a, b, c]);
    items.set_profile_labels(&"q".into(), Some(&labels(&[("x", "q"), ("z", "q")])));
    for (text, want) in [
        ("x == 'own'", vec![a]),
        ("x == 'p'", vec![b]),
        ("x == 'q'", vec![c]),
        ("y == 'p' && z == 'q'", vec![a, b, c]),
        ("!has(x)", vec![]),
        ("all()", vec![a, b, c]),
        ("x in {'own', 'q'}", vec![a, c]),
        ("x in {}", vec![]),
        ("x == 'p' && x == 'q'", vec![]),
        ("unheard == 'p'", vec![]),
    ] {
        assert_eq!(items.search(&sel(text)), want, "{text}");
    }
    assert!(items.set_profile_labels(&"p".into(), Some(&labels(&[("x", "p"), ("y", "p")]))).is_empty());
    assert_eq!(items.set_profile_labels(&"p".into(), None), [a, b, c]);
    assert_eq!(items.search(&sel("x == 'q'")), vec![b, c]);
}

#[test]
fn nothing_stays_behind() {
    let mut items = Items::default();
    put(&mut items, "a", &[("x", "1")], &["p"]);
    put(&mut items, "a", &[("x", "2")], &["q"]);
    items.set_profile_labels(&"q".into(), Some(&labels(&[("y", "1")])));
    drop_item(&mut items, "a");
    items.set_profile_labels(&"q".into(), None);
    assert_eq!((items.len(), items.labels.len(), items.lists.len(), items.profiles.len()), (0, 0, 0, 0));
    assert!(items.list_ids.is_empty() && items.profile_ids.is_empty() && items.profile_postings.is_empty());
    assert!(items.postings.iter().all(IdSet::is_empty) && items.texts.is_empty());
}

type Own = BTreeMap<&'static str, &'static str>;

fn any_labels() -> impl Strategy<Value = Own> {
    let name = prop::sample::select(vec!["a", "b", "c", "d"]);
    let value = prop::sample::select(vec!["1", "2", "3"]);
    prop::collection::btree_map(name, value, 0..4)
}

#[derive(Debug, Clone)]
enum Op {
    Put(u8, Own, Vec<&'static str>),
    Drop(u8),
    Profile(&'static str, Own),
}

fn any_op() -> impl Strategy<Value = Op> {
    let profile = || prop::sample::select(vec!["p", "q", "r"]);
    prop_oneof![
        4 => (0u8..6, any_labels(), prop::collection::vec(profile(), 0..3)).prop_map(|(n, l, p)| Op::Put(n, l, p)),
        1 => (0u8..6).prop_map(Op::Drop),
        2 => (profile(), any_labels()).prop_map(|(p, l)| Op::Profile(p, l)),
    ]
}

proptest! {
    /// A search by index finds what evaluating every item finds.
    #[test]
    fn search_agrees_with_evaluation(ops in prop::collection::vec(any_op(), 0..40)) {
        let mut items = Items::default();
        let mut model: BTreeMap<u8, (Own, Vec<&str>)> = BTreeMap::new();
        let mut profiles: BTreeMap<&str, Own> = BTreeMap::new();
        for op in ops {
            match op {
                Op::Put(n, own, list) => {
                    let pairs: Vec<_> = own.iter().map(|(&k, &v)| (k, v)).collect();
                    put(&mut items, &n.to_string(), &pairs, &list);
                    model.insert(n, (own, list));
                }
                Op::Drop(n) => {
                    if model.remove(&n).is_some() {
                        drop_item(&mut items, &n.to_string());
                    }
                }
                Op::Profile(name, own) => {
                    let pairs: Vec<_> = own.iter().map(|(&k, &v)| (k, v)).collect();
                    items.set_profile_labels(&name.into(), Some(&labels(&pairs)));
                    profiles.insert(name, own);
                }
            }
        }
        for text in [
            "a == '1'", "has(b)", "!has(b)", "a == '1' && b in {'2', '3'}", "has(a) || has(c)", "all()",
            "a != '1'", "(a == '1' || a == '2') && has(d)", "c contains '1'", "a not in {'1'} && has(c)",
        ] {
            let selector = sel(text);
            let want: Vec<u32> = {
                let mut ids: Vec<u32> = model
                    .iter()
                    .filter(|(_, (own, list))| {
                        let mut all: Own = Own::new();
                        for profile in list.iter().rev() {
                            all.extend(profiles.get(profile).into_iter().flatten());
                        }
                        all.extend(own);
                        selector.matches(&all)
                    })
                    .map(|(n, _)| items.find(ItemName::Set(&n.to_string().into())).unwrap())
                    .collect();
                ids.sort_unstable();
                ids
            };
            prop_assert_eq!(items.search(&selector), want, "{}", text);
        }
    }
}
