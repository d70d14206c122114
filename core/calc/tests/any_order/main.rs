//! The standing property: any order, same house.
//!
//! Random worlds are turned into sequences of changes. However these are permuted (keeping the order of one key's
//! values), split by flushes, repeated or reverted, the dataplane ends in one state: that of the last values told
//! at once, and that which a naive evaluation of the last values gives. Every flush keeps the contract of messages.

#![expect(clippy::unwrap_used, reason = "a test ends at the first surprise")]

mod dataplane;
mod oracle;
mod world;

use calico_calc::{CalcConfig, CalcGraph, RouteSource};
use calico_model::SyncStatus;
use proptest::collection::vec;
use proptest::prelude::*;

use dataplane::State;
use world::{Step, last, step, update};

/// A small generator of numbers: which change comes next, where a flush falls, what is repeated.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }
}

/// Another order of the same changes: those of one key keep theirs; some are told twice, and some keys take a
/// detour over a value of another time.
fn shuffled(steps: &[Step], dice: &mut Dice) -> Vec<Step> {
    let mut left: Vec<Step> = steps.to_vec();
    let mut out = Vec::new();
    while !left.is_empty() {
        let key = left[dice.below(left.len())].0.clone();
        if let Some(at) = left.iter().position(|(k, _)| *k == key) {
            let step = left.remove(at);
            if dice.below(4) == 0 {
                let other = &steps[dice.below(steps.len())];
                if other.0 == key {
                    out.push(other.clone());
                }
                out.push((key, None));
            }
            out.push(step.clone());
            if dice.below(3) == 0 {
                out.push(step);
            }
        }
    }
    out
}

fn config(overlaps: bool, source: RouteSource) -> CalcConfig {
    CalcConfig { overlapping_members: overlaps, routes: Some(source), ..CalcConfig::new(world::ME) }
}

/// Runs changes with flushes in between (one in `flushes` places; 0: none) and returns where the dataplane ends.
fn run(config: &CalcConfig, steps: &[Step], dice: &mut Dice, flushes: usize) -> (State, CalcGraph) {
    let mut graph = CalcGraph::new(config.clone());
    let mut state = State::default();
    let sync_at = if steps.is_empty() { 0 } else { dice.below(steps.len()) };
    for (i, step) in steps.iter().enumerate() {
        graph.on_update(&update(step));
        if flushes > 0 && i == sync_at {
            graph.on_status(SyncStatus::InSync);
        }
        if flushes > 0 && dice.below(flushes) == 0 {
            state.fold(graph.flush(), config.overlapping_members);
        }
    }
    graph.on_status(SyncStatus::InSync);
    state.fold(graph.flush(), config.overlapping_members);
    assert!(graph.flush().is_empty(), "a flush without a change tells something");
    (state, graph)
}

fn check(steps: Vec<Step>, seed: u64, overlaps: bool, source: RouteSource) {
    let config = config(overlaps, source);
    let mut dice = Dice(seed);
    let world = last(&steps);
    let at_once: Vec<Step> = world.iter().map(|(k, v)| (k.clone(), Some(v.clone()))).collect();
    let (want, fresh) = run(&config, &at_once, &mut dice, 0);
    oracle::check(&world, &config, &want);
    for flushes in [0, 1, 3, 9] {
        for order in [steps.clone(), shuffled(&steps, &mut dice)] {
            let (state, graph) = run(&config, &order, &mut dice, flushes);
            assert_eq!(state, want, "flush in one of {flushes} places");
            assert_eq!(graph.counts(), fresh.counts());
            assert_eq!(graph.problems(), fresh.problems());
        }
    }
    // Everything goes again, and nothing stays behind.
    let (mut state, mut graph) = run(&config, &steps, &mut dice, 5);
    for (i, key) in world.keys().enumerate() {
        graph.on_update(&update(&(key.clone(), None)));
        if i % 3 == 0 {
            state.fold(graph.flush(), overlaps);
        }
    }
    state.fold(graph.flush(), overlaps);
    assert_eq!(state, State { encap: Some(Default::default()), in_sync: true, ..State::default() });
    assert_eq!(graph.counts(), calico_calc::Counts::default());
    assert!(graph.problems().is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn any_order_same_house(
        steps in vec(step(), 1..50), seed in any::<u64>(), overlaps in any::<bool>(), by_workload in any::<bool>(),
    ) {
        let source = if by_workload { RouteSource::WorkloadIps } else { RouteSource::CalicoIpam };
        check(steps, seed, overlaps, source);
    }
}
