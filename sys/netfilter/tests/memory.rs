//! The driver against nf_tables in memory: what is written, when, and what happens if it is refused.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::{BTreeMap, BTreeSet};

use calico_dpmsg::Member;
use calico_net::{Cidr, IpVersion};
use calico_netfilter::{Family, MemoryNft, NftDataplane, Op, PendingReason, Report};
use calico_rules::nft::{self, SetKey};
use calico_rules::{Action, Chain, Hook, KernelChain, Layer, Match, Rule, Side};
use proptest::prelude::*;
use smol_str::SmolStr;

const V4: Family = Family::Ip(IpVersion::V4);
type Dataplane = NftDataplane<MemoryNft>;

fn net(text: &str) -> Member {
    Member::Net(Cidr::parse(text).unwrap())
}

fn chain(name: &str, rules: Vec<Rule>) -> nft::NftChain {
    nft::chain(IpVersion::V4, &Chain { layer: Layer::Filter, name: name.into(), rules })
}

fn jump(to: &str) -> Rule {
    Rule::new([], Action::Jump(to.into()))
}

fn from_set(set: &str) -> Rule {
    Rule::new([Match::Set { side: Side::Src, set: set.into(), negate: false }], Action::Drop)
}

fn log(text: &str) -> Rule {
    Rule::new([], Action::Log { prefix: text.into(), limit: None })
}

/// A forward hook that jumps to chain `root`.
fn bases() -> Vec<nft::NftBaseChain> {
    let hook = Hook {
        layer: Layer::Filter,
        chain: KernelChain::Forward,
        inserted: vec![jump("root")],
        appended: vec![],
    };
    nft::base_chains(&[hook])
}

fn dataplane(kernel: MemoryNft) -> Dataplane {
    let mut d = NftDataplane::new(kernel, V4, "calico");
    d.set_base_chains(bases());
    d
}

fn with_root(rules: Vec<Rule>) -> Dataplane {
    let mut d = dataplane(MemoryNft::default());
    d.update_chains("static", vec![chain("root", rules)]);
    d
}

fn apply(d: &mut Dataplane) -> Report {
    d.apply().unwrap()
}

fn table(d: &mut Dataplane) -> calico_netfilter::MemoryTable {
    d.kernel_mut().tables[&(V4, "calico".into())].clone()
}

fn members(d: &mut Dataplane, set: &str) -> Vec<String> {
    table(d).sets[set].1.iter().map(ToString::to_string).collect()
}

#[test]
fn a_restart_writes_nothing() {
    let build = |kernel: MemoryNft| {
        let mut d = dataplane(kernel);
        d.update_chains("static", vec![chain("root", vec![from_set("s"), jump("p")])]);
        d.update_chains("policy", vec![chain("p", vec![log("x")]), chain("unused", vec![log("y")])]);
        d.set_members(&"s".into(), SetKey::Net, [net("10.0.0.0/8"), net("10.1.0.0/16")]);
        d.set_verdict(&"m".into(), &"cali1".into(), Some("filter-p".into()));
        d
    };
    let mut first = build(MemoryNft::default());
    assert!(apply(&mut first).is_complete());
    let t = table(&mut first);
    assert!(t.chains.contains_key("filter-p") && !t.chains.contains_key("filter-unused"));
    assert_eq!(members(&mut first, "s"), ["10.0.0.0/8"]);
    let mut kernel = first.kernel_mut().clone();
    kernel.log.clear();
    let mut second = build(kernel);
    let report = apply(&mut second);
    assert_eq!((report.transactions, report.repaired, report.read), (0, 0, true));
    assert_eq!(table(&mut second), t);
    assert_eq!(second.sizes(), first.sizes());
}

#[test]
fn sets_come_before_rules_and_go_after_them() {
    let mut d = with_root(vec![from_set("s")]);
    d.set_members(&"s".into(), SetKey::Net, [net("10.0.0.0/8")]);
    apply(&mut d);
    let first_rule = |d: &mut Dataplane| {
        d.kernel_mut().log.iter().position(|t| t.ops.iter().any(|o| matches!(o, Op::AddRule { .. }))).unwrap()
    };
    let filled = d
        .kernel_mut()
        .log
        .iter()
        .position(|t| t.ops.iter().any(|o| matches!(o, Op::AddMembers { .. })))
        .unwrap();
    assert!(filled < first_rule(&mut d));
    d.kernel_mut().log.clear();
    d.remove_set(&"s".into());
    d.update_chains("static", vec![chain("root", vec![])]);
    assert!(apply(&mut d).is_complete());
    let log = &d.kernel_mut().log;
    assert!(matches!(log[0].ops[0], Op::FlushChain { .. }));
    assert!(matches!(log[1].ops[..], [Op::DeleteSet { .. }]));
}

#[test]
fn one_member_is_one_message_and_reads_nothing() {
    let mut d = with_root(vec![from_set("s")]);
    d.set_members(&"s".into(), SetKey::Net, (0..200).map(|n| net(&format!("10.0.{n}.0/24"))));
    apply(&mut d);
    let reads = d.kernel_mut().reads;
    d.kernel_mut().log.clear();
    d.delta_members(&"s".into(), &[net("192.0.2.1/32")], &[net("10.0.7.0/24")]);
    assert_eq!(apply(&mut d).transactions, 1);
    assert_eq!(d.kernel_mut().reads, reads);
    let ops = &d.kernel_mut().log[0].ops;
    assert_eq!(
        ops[..],
        [
            Op::DeleteMembers { set: "s".into(), key: SetKey::Net, members: vec![net("10.0.7.0/24")] },
            Op::AddMembers { set: "s".into(), key: SetKey::Net, members: vec![net("192.0.2.1/32")] },
        ]
    );
    d.delta_members(&"s".into(), &[net("10.0.7.0/24")], &[]);
    d.delta_members(&"s".into(), &[], &[net("10.0.7.0/24")]);
    assert_eq!(apply(&mut d).transactions, 0, "nothing changed in sum");
}

#[test]
fn members_that_do_not_fit() {
    let mut d = dataplane(MemoryNft::default());
    let ports = Member::IpPort { addr: "10.0.0.1".parse().unwrap(), protocol: 6, port: 80 };
    let bad = d.set_members(
        &"a".into(),
        SetKey::Addr,
        [net("10.0.0.0/8"), ports, net("10.0.0.1/32"), net("fd00::1/128")],
    );
    assert_eq!(bad, [net("10.0.0.0/8"), ports]);
    assert_eq!(d.delta_members(&"nobody".into(), &[ports], &[]), [ports]);
    assert_eq!(d.delta_members(&"a".into(), &[ports], &[]), [ports]);
}

#[test]
fn outside_changes_are_found_and_undone() {
    let mut d = with_root(vec![from_set("s"), jump("p")]);
    d.update_chains("policy", vec![chain("p", vec![log("x"), log("y")])]);
    d.set_members(&"s".into(), SetKey::Net, [net("10.0.0.0/8")]);
    d.set_verdict(&"m".into(), &"cali1".into(), Some("filter-p".into()));
    apply(&mut d);
    let good = table(&mut d);
    type Tamper = fn(&mut calico_netfilter::MemoryTable);
    let tampers: [(&str, Tamper); 9] = [
        ("rules flushed", |t| t.chains.get_mut("filter-FORWARD").unwrap().rules.clear()),
        ("rule added", |t| {
            t.chains.get_mut("filter-p").unwrap().rules.insert(0, ("counter accept".into(), "hi".into()));
        }),
        ("rule deleted", |t| {
            t.chains.get_mut("filter-p").unwrap().rules.remove(0);
        }),
        ("rules swapped", |t| t.chains.get_mut("filter-p").unwrap().rules.swap(0, 1)),
        ("foreign chain", |t| {
            t.chains.insert("stranger".into(), Default::default());
        }),
        ("member added", |t| {
            t.sets.get_mut("s").unwrap().1.insert(net("192.0.2.0/24"));
        }),
        ("member gone", |t| t.sets.get_mut("s").unwrap().1.clear()),
        ("verdict gone", |t| t.maps.get_mut("m").unwrap().clear()),
        ("foreign set", |t| {
            t.sets.insert("stranger".into(), (SetKey::Addr, BTreeSet::new()));
        }),
    ];
    for (what, tamper) in tampers {
        d.kernel_mut().tamper(V4, "calico", tamper);
        assert_ne!(table(&mut d), good, "{what}");
        d.resync();
        let report = apply(&mut d);
        assert!(report.repaired > 0, "{what}");
        assert_eq!(table(&mut d), good, "{what}");
    }
    // The whole table.
    d.kernel_mut().tables.clear();
    d.resync_fully();
    apply(&mut d);
    assert_eq!(table(&mut d), good);
}

#[test]
fn a_resync_without_changes_reads_nothing() {
    let mut d = with_root(vec![log("x")]);
    apply(&mut d);
    let reads = d.kernel_mut().reads;
    for n in 0..3 {
        d.update_chains("static", vec![chain("root", vec![log(&format!("x{n}"))])]);
        apply(&mut d);
        d.resync();
        assert!(!apply(&mut d).read);
    }
    assert_eq!(d.kernel_mut().reads, reads);
    d.kernel_mut().tamper(V4, "calico", |_| {});
    d.resync();
    assert!(apply(&mut d).read);
}

#[test]
fn set_of_another_type_is_replaced() {
    let mut d = with_root(vec![from_set("s")]);
    d.set_members(&"s".into(), SetKey::Net, [net("10.0.0.0/8")]);
    apply(&mut d);
    d.set_members(&"s".into(), SetKey::Addr, [net("10.0.0.1/32")]);
    let report = apply(&mut d);
    assert!(report.recreated && report.is_complete(), "{report:?}");
    assert_eq!(table(&mut d).sets["s"].0, SetKey::Addr);
    assert_eq!(table(&mut d).chains["filter-root"].rules.len(), 1);
    assert_eq!(apply(&mut d).transactions, 0);
    // Found at a start.
    d.kernel_mut().tamper(V4, "calico", |t| {
        t.sets.insert("s".into(), (SetKey::AddrProtoPort, BTreeSet::new()));
    });
    d.resync();
    assert!(apply(&mut d).recreated);
    assert_eq!(members(&mut d, "s"), ["10.0.0.1/32"]);
}

#[test]
fn removed_and_returned_set_loses_old_members() {
    let mut d = with_root(vec![from_set("s")]);
    d.set_members(&"s".into(), SetKey::Net, [net("10.0.0.0/8")]);
    apply(&mut d);
    d.remove_set(&"s".into());
    d.set_members(&"s".into(), SetKey::Net, [net("10.0.0.0/9")]);
    assert!(apply(&mut d).is_complete());
    assert_eq!(members(&mut d, "s"), ["10.0.0.0/9"]);
}

#[test]
fn a_refused_chain_holds_up_no_other() {
    let mut d = with_root((0..20).map(|n| jump(&format!("p{n}"))).collect());
    for n in 0..20 {
        d.update_chains(format!("p{n}"), vec![chain(&format!("p{n}"), vec![log("old")])]);
    }
    assert!(apply(&mut d).is_complete());
    d.kernel_mut().poison = vec!["bad".into()];
    for n in 0..20 {
        let text = if n == 7 { "bad" } else { "new" };
        d.update_chains(format!("p{n}"), vec![chain(&format!("p{n}"), vec![log(text)])]);
    }
    let report = apply(&mut d);
    assert_eq!(report.pending.len(), 1);
    assert_eq!(report.pending[0].what, "chain filter-p7");
    assert!(matches!(&report.pending[0].reason, PendingReason::Refused(r) if r.contains("poison")));
    let t = table(&mut d);
    assert!(t.chains["filter-p7"].rules[0].0.contains("old"), "keeps what it had");
    assert!(t.chains["filter-p19"].rules[0].0.contains("new"));
    // It is not tried again until it changes.
    let report = apply(&mut d);
    assert_eq!((report.transactions, report.pending.len(), report.read), (0, 1, false));
    d.update_chains("p7", vec![chain("p7", vec![log("good")])]);
    assert!(apply(&mut d).is_complete());
}

#[test]
fn a_new_endpoint_with_a_refused_chain_gets_no_verdict() {
    let mut d = with_root(vec![]);
    d.kernel_mut().poison = vec!["bad".into()];
    for (iface, text) in [("cali1", "good"), ("cali2", "bad")] {
        d.update_chains(iface, vec![chain(iface, vec![jump(&format!("p-{iface}"))])]);
        d.update_chains(format!("p-{iface}"), vec![chain(&format!("p-{iface}"), vec![log(text)])]);
        d.set_verdict(&"m".into(), &iface.into(), Some(format!("filter-{iface}").into()));
    }
    let report = apply(&mut d);
    let what: BTreeSet<_> = report.pending.iter().map(|p| p.what.as_str()).collect();
    assert_eq!(
        what,
        BTreeSet::from(["chain filter-cali2", "chain filter-p-cali2", "element cali2 of map m"])
    );
    assert_eq!(table(&mut d).maps["m"].keys().collect::<Vec<_>>(), ["cali1"]);
    d.kernel_mut().poison.clear();
    d.resync();
    assert!(apply(&mut d).is_complete());
    assert_eq!(table(&mut d).maps["m"].len(), 2);
}

#[test]
fn a_verdict_whose_chain_cannot_come_is_taken_away() {
    let mut d = with_root(vec![]);
    d.update_chains("e", vec![chain("old", vec![log("x")])]);
    d.set_verdict(&"m".into(), &"cali1".into(), Some("filter-old".into()));
    apply(&mut d);
    d.set_verdict(&"m".into(), &"cali1".into(), Some("filter-new".into()));
    let report = apply(&mut d);
    assert_eq!(report.pending[0].reason, PendingReason::MissingChain("filter-new".into()));
    assert!(table(&mut d).maps["m"].is_empty(), "no verdict means denied");
    assert_eq!(d.dangling_chains(), ["filter-new"]);
}

#[test]
fn refused_members_and_sets() {
    let mut d = with_root(vec![from_set("s")]);
    d.kernel_mut().poison = vec!["10.0.3.0/24".into(), "add set ip calico broken".into()];
    for set in ["s", "t", "broken"] {
        d.set_members(&set.into(), SetKey::Net, (0..8).map(|n| net(&format!("10.0.{n}.0/24"))));
    }
    let report = apply(&mut d);
    let what: Vec<_> = report.pending.iter().map(|p| p.what.clone()).collect();
    assert_eq!(what, ["set broken", "element 10.0.3.0/24 of set s", "element 10.0.3.0/24 of set t"]);
    assert_eq!(members(&mut d, "s").len(), 7);
    assert_eq!(apply(&mut d).transactions, 0);
    // The refused member goes; the report with it.
    d.delta_members(&"s".into(), &[net("10.9.0.0/16")], &[net("10.0.3.0/24")]);
    let report = apply(&mut d);
    assert_eq!(report.pending.len(), 2);
    assert_eq!(members(&mut d, "s").len(), 8);
}

#[test]
fn a_stale_picture_is_corrected_by_itself() {
    let mut d = with_root(vec![from_set("s")]);
    d.set_members(&"s".into(), SetKey::Net, [net("10.0.0.0/24")]);
    apply(&mut d);
    // Somebody puts a wider network in, so that the next change overlaps.
    d.kernel_mut().tamper(V4, "calico", |t| {
        let s = &mut t.sets.get_mut("s").unwrap().1;
        s.clear();
        s.insert(net("10.0.0.0/8"));
    });
    d.delta_members(&"s".into(), &[net("10.0.9.0/24")], &[]);
    let report = apply(&mut d);
    assert!(report.is_complete() && report.read);
    assert_eq!(members(&mut d, "s"), ["10.0.0.0/24", "10.0.9.0/24"]);
}

#[test]
fn a_chain_that_is_still_called_outlives_its_owner() {
    let mut d = with_root(vec![jump("p")]);
    d.update_chains("policy", vec![chain("p", vec![log("x")])]);
    apply(&mut d);
    d.remove_chains("policy");
    assert!(apply(&mut d).is_complete());
    assert!(table(&mut d).chains.contains_key("filter-p"));
    d.update_chains("static", vec![chain("root", vec![])]);
    apply(&mut d);
    assert!(!table(&mut d).chains.contains_key("filter-p"));
}

#[test]
fn shared_chains_stay_while_one_owner_gives_them() {
    let mut d = with_root(vec![jump("g")]);
    for owner in ["a", "b"] {
        d.update_chains(owner, vec![chain("g", vec![log("x")])]);
    }
    apply(&mut d);
    d.remove_chains("a");
    apply(&mut d);
    assert!(d.dangling_chains().is_empty());
    d.remove_chains("b");
    assert_eq!(d.dangling_chains(), ["filter-g"]);
}

#[test]
fn a_refused_new_table_leaves_the_old_one() {
    let mut d = with_root(vec![log("x")]);
    apply(&mut d);
    let before = table(&mut d);
    d.kernel_mut().poison = vec!["delete table".into()];
    d.recreate();
    let report = apply(&mut d);
    assert_eq!(report.pending.len(), 1);
    assert_eq!(table(&mut d), before);
    d.kernel_mut().poison.clear();
    d.resync();
    assert!(apply(&mut d).recreated);
    assert_eq!(table(&mut d), before);
}

// === any order ===

#[derive(Debug, Clone)]
enum Step {
    Set(u8, Vec<Member>),
    Delta(u8, Vec<Member>, Vec<Member>),
    RemoveSet(u8),
    Policy(u8, Option<(u8, Option<u8>)>),
    Endpoint(u8, Option<Vec<u8>>),
    Tamper(u8),
    Apply,
    Restart,
}

fn member() -> impl Strategy<Value = Member> {
    (0u8..4, 0u8..4, prop::sample::select(vec![16u8, 24, 32]))
        .prop_map(|(a, b, len)| Member::Net(Cidr::new([10, a, b, 0].into(), len).unwrap().masked()))
}

fn step() -> impl Strategy<Value = Step> {
    let ms = || prop::collection::vec(member(), 0..6);
    prop_oneof![
        2 => (0u8..3, ms()).prop_map(|(s, m)| Step::Set(s, m)),
        3 => (0u8..3, ms(), ms()).prop_map(|(s, a, r)| Step::Delta(s, a, r)),
        1 => (0u8..3).prop_map(Step::RemoveSet),
        3 => (0u8..4, prop::option::of((0u8..3, prop::option::of(0u8..3)))).prop_map(|(p, c)| Step::Policy(p, c)),
        3 => (0u8..3, prop::option::of(prop::collection::vec(0u8..4, 0..3))).prop_map(|(e, c)| Step::Endpoint(e, c)),
        1 => (0u8..5).prop_map(Step::Tamper),
        3 => Just(Step::Apply),
        1 => Just(Step::Restart),
    ]
}

#[derive(Debug, Clone, Default)]
struct Model {
    sets: BTreeMap<u8, BTreeSet<Member>>,
    policies: BTreeMap<u8, (u8, Option<u8>)>,
    endpoints: BTreeMap<u8, Vec<u8>>,
}

impl Model {
    fn tell(&self, d: &mut Dataplane) {
        d.set_base_chains(bases());
        d.update_chains("static", vec![chain("root", vec![log("root")])]);
        d.add_map(&"m".into());
        for s in self.sets.keys() {
            self.tell_set(*s, d);
        }
        for p in self.policies.keys() {
            self.tell_policy(*p, d);
        }
        for e in self.endpoints.keys() {
            self.tell_endpoint(*e, d);
        }
    }

    fn tell_set(&self, s: u8, d: &mut Dataplane) {
        d.set_members(&format!("s{s}").into(), SetKey::Net, self.sets[&s].iter().copied());
    }

    fn tell_policy(&self, p: u8, d: &mut Dataplane) {
        match self.policies.get(&p) {
            Some((content, set)) => {
                let mut rules = vec![log(&format!("c{content}"))];
                rules.extend(set.map(|s| from_set(&format!("s{s}"))));
                d.update_chains(format!("policy{p}"), vec![chain(&format!("p{p}"), rules)]);
            }
            None => d.remove_chains(format!("policy{p}")),
        }
    }

    fn tell_endpoint(&self, e: u8, d: &mut Dataplane) {
        let name = format!("e{e}");
        let iface = SmolStr::from(&name);
        match self.endpoints.get(&e) {
            Some(policies) => {
                let rules = policies.iter().map(|p| jump(&format!("p{p}"))).collect();
                d.update_chains(name.clone(), vec![chain(&name, rules)]);
                d.set_verdict(&"m".into(), &iface, Some(format!("filter-{name}").into()));
            }
            None => {
                d.set_verdict(&"m".into(), &iface, None);
                d.remove_chains(name);
            }
        }
    }

    /// True if nothing that is wanted names what is not given.
    fn is_closed(&self) -> bool {
        self.endpoints.values().flatten().all(|p| {
            self.policies.get(p).is_some_and(|(_, set)| set.is_none_or(|s| self.sets.contains_key(&s)))
        })
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// Whatever happens in between, a closed state ends in the table that a fresh driver would make.
    #[test]
    fn any_order_same_house(steps in prop::collection::vec(step(), 0..40)) {
        let mut model = Model::default();
        let mut d = dataplane(MemoryNft::default());
        model.tell(&mut d);
        for s in steps {
            match s {
                Step::Set(s, m) => {
                    model.sets.insert(s, m.into_iter().collect());
                    model.tell_set(s, &mut d);
                }
                Step::Delta(s, added, removed) => {
                    if let Some(have) = model.sets.get_mut(&s) {
                        removed.iter().for_each(|m| { have.remove(m); });
                        have.extend(added.iter().copied());
                        d.delta_members(&format!("s{s}").into(), &added, &removed);
                    }
                }
                Step::RemoveSet(s) => {
                    model.sets.remove(&s);
                    d.remove_set(&format!("s{s}").into());
                }
                Step::Policy(p, content) => {
                    match content {
                        Some(c) => model.policies.insert(p, c),
                        None => model.policies.remove(&p),
                    };
                    model.tell_policy(p, &mut d);
                }
                Step::Endpoint(e, policies) => {
                    match policies {
                        Some(p) => model.endpoints.insert(e, p),
                        None => model.endpoints.remove(&e),
                    };
                    model.tell_endpoint(e, &mut d);
                }
                Step::Tamper(kind) => {
                    d.kernel_mut().tamper(V4, "calico", |t| match kind {
                        0 => t.chains.values_mut().for_each(|c| c.rules.clear()),
                        1 => t.sets.values_mut().for_each(|s| s.1.clear()),
                        2 => t.maps.values_mut().for_each(|m| m.clear()),
                        3 => { t.chains.insert("stranger".into(), Default::default()); }
                        _ => { t.sets.values_mut().for_each(|s| { s.1.insert(net("10.0.0.0/8")); }); }
                    });
                    d.resync();
                }
                Step::Apply => {
                    let report = apply(&mut d);
                    if model.is_closed() {
                        prop_assert_eq!(report.pending, vec![]);
                    }
                }
                Step::Restart => {
                    let kernel = d.kernel_mut().clone();
                    d = dataplane(kernel);
                    model.tell(&mut d);
                }
            }
        }
        // Give what is missing, so that the end is defined.
        for s in 0..3 {
            if let std::collections::btree_map::Entry::Vacant(v) = model.sets.entry(s) {
                v.insert(BTreeSet::new());
                model.tell_set(s, &mut d);
            }
        }
        for p in 0..4 {
            if let std::collections::btree_map::Entry::Vacant(v) = model.policies.entry(p) {
                v.insert((0, None));
                model.tell_policy(p, &mut d);
            }
        }
        d.resync();
        let report = apply(&mut d);
        prop_assert_eq!(report.pending, vec![]);
        let mut fresh = dataplane(MemoryNft::default());
        model.tell(&mut fresh);
        apply(&mut fresh);
        prop_assert_eq!(table(&mut d), table(&mut fresh));
        prop_assert_eq!(apply(&mut d).transactions, 0);
    }
}
