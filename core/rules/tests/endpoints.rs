//! Chains of endpoints: order of rules, groups, and what happens to bad input.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Arc;

use calico_dpmsg as dp;
use calico_net::{IpVersion, PortRange, Protocol};
use calico_rules::config::{AllowAction, DenyAction};
use calico_rules::{
    Action, Chain, HostDispatch, Layer, Match, ProblemKind, Renderer, RuleConfig, names, nft,
};
use smol_str::SmolStr;

fn renderer(change: impl FnOnce(&mut RuleConfig)) -> Renderer {
    let mut config = RuleConfig::default();
    change(&mut config);
    Renderer::new(Arc::new(config), IpVersion::V4).unwrap()
}

fn id(kind: &str, name: &str) -> dp::PolicyId {
    dp::PolicyId { kind: kind.into(), namespace: "".into(), name: name.into() }
}

fn gnp(name: &str) -> dp::PolicyId {
    id("GlobalNetworkPolicy", name)
}

fn tier(name: &str, ingress: &[dp::PolicyId]) -> dp::TierInfo {
    dp::TierInfo { name: name.into(), ingress: ingress.into(), egress: vec![], default_pass: false }
}

fn workload(tiers: Vec<dp::TierInfo>) -> dp::WorkloadEndpoint {
    dp::WorkloadEndpoint {
        active: true,
        interface_name: "calibox01".into(),
        profile_ids: vec!["flat".into()],
        tiers,
        ..Default::default()
    }
}

fn same_selector(_: &dp::PolicyId) -> SmolStr {
    "all()".into()
}

fn find<'a>(chains: &'a [Chain], name: &str) -> &'a Chain {
    chains.iter().find(|c| c.name == name).unwrap_or_else(|| panic!("no chain {name}"))
}

fn hashes(chain: &Chain) -> Vec<String> {
    nft::chain(IpVersion::V4, chain).rules.iter().map(|r| r.hash.to_string()).collect()
}

fn rule(action: dp::Action) -> dp::Rule {
    dp::Rule {
        action,
        ip_version: None,
        protocol: None,
        not_protocol: None,
        icmp: None,
        not_icmp: None,
        src: dp::RuleSide::default(),
        dst: dp::RuleSide::default(),
        metadata: None,
        rule_id: "".into(),
    }
}

#[test]
fn workload_with_a_profile_has_upstream_digests() {
    let chains = renderer(|_| {}).workload_chains(&workload(vec![]), &same_selector).chains;
    assert_eq!(
        hashes(find(&chains, "cali-tw-calibox01")),
        [
            "RCsGb1yECRTr5hA4",
            "t8f1Rxi4OjI6E0Cy",
            "TxYoKQ9F--mi-VlG",
            "OMwVRRXbAo78tVlC",
            "XFs6hm842iE0XGQ3",
            "_ZE2wXomxHguHPWy"
        ]
    );
    assert_eq!(hashes(find(&chains, "cali-fw-calibox01")).last().unwrap(), "XLC_Wf1oK-6y-Mn1");
}

#[test]
fn down_endpoint_denies_all() {
    let mut ep = workload(vec![tier("default", &[gnp("p")])]);
    ep.active = false;
    let out = renderer(|_| {}).workload_chains(&ep, &same_selector);
    assert_eq!(out.chains.len(), 2);
    for chain in out.chains {
        assert_eq!(chain.rules.len(), 1);
        assert_eq!(chain.rules[0].action, Some(Action::Drop));
        assert_eq!(chain.rules[0].comments, ["Endpoint admin disabled"]);
    }
}

#[test]
fn unwritable_interface_has_no_chain_and_no_way_to_one() {
    let mut ep = workload(vec![]);
    for bad in ["", "cali*", "a\"b", "this-name-is-too-long"] {
        ep.interface_name = bad.into();
        let r = renderer(|_| {});
        let out = r.workload_chains(&ep, &same_selector);
        assert!(out.chains.is_empty());
        assert!(matches!(out.problems[0].kind, ProblemKind::Interface(_)));
        assert!(r.workload_entries(bad).is_empty());
    }
}

#[test]
fn groups_are_shared_and_staged_policies_left_out() {
    let r = renderer(|_| {});
    let policies: Vec<_> = (0..7).map(|n| gnp(&format!("g{n}"))).collect();
    let out = r.workload_chains(&workload(vec![tier("default", &policies)]), &same_selector);
    let group = out.chains.iter().find(|c| c.name.starts_with("cali-gi-")).unwrap();
    assert_eq!(group.rules.len(), 8, "seven calls and one early return");
    assert_eq!(group.rules[5].action, Some(Action::Return));
    assert!(group.rules[6].matches.is_empty());
    let tw = find(&out.chains, "cali-tw-calibox01");
    assert!(tw.rules.iter().any(|r| r.action == Some(Action::Jump(group.name.clone()))));

    // One enforced policy among staged ones is called directly.
    let mixed = [id("StagedGlobalNetworkPolicy", "s"), gnp("p"), id("StagedNetworkPolicy", "t")];
    let out = r.workload_chains(&workload(vec![tier("default", &mixed)]), &same_selector);
    assert_eq!(out.chains.len(), 2);
    let tw = find(&out.chains, "cali-tw-calibox01");
    let calls: Vec<_> =
        tw.rules.iter().filter_map(|r| r.action.clone()).filter(|a| matches!(a, Action::Jump(_))).collect();
    assert_eq!(calls, [Action::Jump("cali-pi-gnp/p".into()), Action::Jump("cali-pri-flat".into())]);

    // Other selectors, no group.
    let each = |id: &dp::PolicyId| id.name.clone();
    let out = r.workload_chains(&workload(vec![tier("default", &policies)]), &each);
    assert_eq!(out.chains.len(), 2);
}

fn ends_tier(chains: &[Chain]) -> bool {
    find(chains, "cali-tw-calibox01")
        .rules
        .iter()
        .any(|r| r.comments.iter().any(|c| c.starts_with("End of tier")) && r.action == Some(Action::Drop))
}

#[test]
fn end_of_tier_denies_only_with_enforced_policy_and_without_default_pass() {
    let r = renderer(|_| {});
    let render = |t: dp::TierInfo| r.workload_chains(&workload(vec![t]), &same_selector).chains;
    assert!(ends_tier(&render(tier("t", &[gnp("p")]))));
    assert!(!ends_tier(&render(tier("t", &[id("StagedGlobalNetworkPolicy", "p")]))));
    let mut pass = tier("t", &[gnp("p")]);
    pass.default_pass = true;
    assert!(!ends_tier(&render(pass)));
    let egress_only =
        dp::TierInfo { name: "t".into(), ingress: vec![], egress: vec![gnp("p")], default_pass: false };
    assert!(!ends_tier(&render(egress_only)));
}

#[test]
fn host_endpoint_layers() {
    let r = renderer(|_| {});
    let mut ep = dp::HostEndpoint { tiers: vec![tier("default", &[gnp("p")])], ..Default::default() };
    let place = |c: &Chain| format!("{}/{}", c.layer.name(), c.name);
    let names: Vec<_> =
        r.host_endpoint_chains("eth0", &ep, &same_selector).chains.iter().map(place).collect();
    assert_eq!(
        names,
        [
            "filter/cali-th-eth0",
            "filter/cali-fh-eth0",
            "filter/cali-thfw-eth0",
            "filter/cali-fhfw-eth0",
            "mangle/cali-th-eth0"
        ]
    );
    ep.untracked_tiers = vec![tier("default", &[gnp("u")])];
    ep.pre_dnat_tiers = vec![tier("default", &[gnp("d")])];
    let out = r.host_endpoint_chains("eth0", &ep, &same_selector).chains;
    let raw = out.iter().find(|c| c.layer == Layer::Raw && c.name == "cali-fh-eth0").unwrap();
    assert!(raw.rules.iter().any(|r| r.action == Some(Action::NoTrack)));
    assert!(raw.rules.iter().all(|r| r.action != Some(Action::Drop)), "untracked policy ends open");
    let pre = out.iter().find(|c| c.layer == Layer::Mangle && c.name == "cali-fh-eth0").unwrap();
    assert!(pre.rules.iter().all(|r| !r.comments.iter().any(|c| c.contains("profile"))));
    // Untracked policy does not apply to the endpoint of all interfaces.
    let any = r.host_endpoint_chains(names::ANY_INTERFACE, &ep, &same_selector).chains;
    assert!(any.iter().all(|c| c.layer != Layer::Raw));
}

#[test]
fn forwarding_is_open_only_without_any_forward_tier() {
    let r = renderer(|_| {});
    let opens = |ep: &dp::HostEndpoint| {
        let out = r.host_endpoint_chains("eth0", ep, &same_selector).chains;
        find(&out, "cali-fhfw-eth0").rules.iter().any(|r| r.comments.iter().any(|c| c.contains("by default")))
    };
    let mut ep = dp::HostEndpoint::default();
    assert!(opens(&ep));
    ep.forward_tiers =
        vec![dp::TierInfo { name: "t".into(), ingress: vec![], egress: vec![gnp("p")], default_pass: false }];
    assert!(!opens(&ep));
}

#[test]
fn reject_is_never_used_where_filters_refuse_it() {
    let r = renderer(|c| c.filter_deny = DenyAction::Reject);
    let ep = dp::HostEndpoint {
        tiers: vec![tier("default", &[gnp("p")])],
        pre_dnat_tiers: vec![tier("default", &[gnp("d")])],
        ..Default::default()
    };
    let mut chains = r.host_endpoint_chains("eth0", &ep, &same_selector).chains;
    let mut policy = dp::Policy { outbound: vec![rule(dp::Action::Deny)], ..Default::default() };
    chains.extend(r.policy_chains(&gnp("p"), &policy).chains);
    policy.pre_dnat = true;
    policy.inbound = policy.outbound.clone();
    chains.extend(r.policy_chains(&gnp("d"), &policy).chains);
    let rejects = |layer: Layer| {
        chains
            .iter()
            .filter(|c| c.layer == layer)
            .flat_map(|c| &c.rules)
            .filter(|r| r.action == Some(Action::Reject))
            .count()
    };
    assert_eq!(rejects(Layer::Mangle), 0);
    assert!(rejects(Layer::Filter) > 0);
}

#[test]
fn return_as_allow_action_marks_first() {
    let r = renderer(|c| c.filter_allow = AllowAction::Return);
    let chains = r.workload_chains(&workload(vec![]), &same_selector).chains;
    let tw = find(&chains, "cali-tw-calibox01");
    assert_eq!(tw.rules[0].action, Some(Action::SetMark(0x10000)));
    assert_eq!(tw.rules[1].action, Some(Action::Return));
}

#[test]
fn rules_that_cannot_be_rendered_fail_closed() {
    let r = renderer(|_| {});
    let bad_port = |action| {
        let mut bad = rule(action);
        bad.dst.ports = vec![PortRange::single(80)];
        bad
    };
    for (action, denies) in [
        (dp::Action::Allow, false),
        (dp::Action::Log, false),
        (dp::Action::Deny, true),
        (dp::Action::Pass, true),
    ] {
        let policy = dp::Policy { inbound: vec![bad_port(action)], ..Default::default() };
        let out = r.policy_chains(&gnp("p"), &policy);
        assert_eq!(out.problems.len(), 1, "reported once");
        assert_eq!(out.problems[0].kind, ProblemKind::PortsWithoutProtocol);
        assert!(out.problems[0].to_string().contains("GlobalNetworkPolicy(p): ingress rule 0"));
        let chain = find(&out.chains, "cali-pi-gnp/p");
        let drops = chain.rules.iter().filter(|r| r.action == Some(Action::Drop)).count();
        assert_eq!(drops, usize::from(denies), "{action:?}");
        assert!(chain.rules.iter().all(|x| x.action != Some(Action::SetMark(r.marks().accept))));
    }
}

#[test]
fn each_kind_of_bad_rule_is_named() {
    let r = renderer(|_| {});
    let kinds = |change: fn(&mut dp::Rule)| {
        let mut bad = rule(dp::Action::Deny);
        change(&mut bad);
        let policy = dp::Policy { inbound: vec![bad], ..Default::default() };
        r.policy_chains(&gnp("p"), &policy).problems.remove(0).kind
    };
    assert_eq!(
        kinds(|r| r.protocol = Some(Protocol::Name("carrier-pigeon".into()))),
        ProblemKind::Protocol(Protocol::Name("carrier-pigeon".into()))
    );
    assert_eq!(
        kinds(|r| {
            r.protocol = Some(Protocol::Num(6));
            r.dst.ports = vec![PortRange { first: 9, last: 8 }];
        }),
        ProblemKind::PortRange(PortRange { first: 9, last: 8 })
    );
    assert_eq!(kinds(|r| r.src.sets = vec!["a } drop".into()]), ProblemKind::SetName("a } drop".into()));
    assert_eq!(
        kinds(|r| {
            r.protocol = Some(Protocol::Num(6));
            r.icmp = Some(dp::IcmpMatch { icmp_type: 8, code: None });
        }),
        ProblemKind::IcmpWithOtherProtocol
    );
}

#[test]
fn host_dispatch_of_all_interfaces() {
    let hosts = HostDispatch { any: true, ..Default::default() };
    let chains = renderer(|_| {}).host_dispatch_chains(&hosts);
    let get = |layer, name: &str| chains.iter().find(|c| c.layer == layer && c.name == name).unwrap();
    let to = get(Layer::Mangle, "cali-to-host-endpoint");
    assert_eq!(to.rules[0].matches, [Match::out_prefix("cali")]);
    assert_eq!(hashes(to), ["n0VL2U7cRGEbGvwV", "EUoDy81SV2HWP9Ci"]);
    assert_eq!(hashes(get(Layer::Filter, "cali-from-hep-forward")), ["oiAJ2UbEpnIEx42c"]);
    assert!(get(Layer::Raw, "cali-from-host-endpoint").rules.is_empty());
}

#[test]
fn flow_log_rules_follow_their_marks() {
    let r = renderer(|c| c.flow_logs = true);
    let policy = dp::Policy { inbound: vec![rule(dp::Action::Deny)], ..Default::default() };
    let out = r.policy_chains(&gnp("p"), &policy);
    let chain = find(&out.chains, "cali-pi-gnp/p");
    assert!(
        matches!(&chain.rules[1].action, Some(Action::Nflog { group: 1, prefix, .. }) if prefix == "DPI0|gnp/p")
    );
    let untracked = dp::Policy { untracked: true, ..policy };
    let out = r.policy_chains(&gnp("p"), &untracked);
    assert!(out.chains[0].rules.iter().all(|r| !matches!(r.action, Some(Action::Nflog { .. }))));
}

#[test]
fn annotations_are_sorted_comments_of_every_rule() {
    let mut annotated = rule(dp::Action::Deny);
    annotated.metadata = Some(Arc::new(vec![("z".into(), "1".into()), ("a".into(), "2".into())]));
    let policy = dp::Policy { inbound: vec![annotated], ..Default::default() };
    let out = renderer(|_| {}).policy_chains(&gnp("p"), &policy);
    let chain = find(&out.chains, "cali-pi-gnp/p");
    assert_eq!(chain.rules[0].comments, ["a=2", "z=1", "GlobalNetworkPolicy p ingress"]);
    assert_eq!(chain.rules[1].comments, ["a=2", "z=1"]);
}
