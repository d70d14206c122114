//! Every interleaving of a few operations, up to a number of switches between clients, with and without one
//! client that stops for ever at every possible point.

use std::net::IpAddr;

use calico_ipam::ops::{self, AutoAssignArgs};
use calico_ipam::{Owner, ReadSet};
use smol_str::SmolStr;

use crate::choose::{Chooser, Every};
use crate::world::{HOSTS, World};

const POOL: &[(&str, i64)] = &[("10.0.0.0/30", 31)];
const TOTAL: usize = 4;

/// Most runs of one scenario.
const LIMIT: usize = 60_000;

#[derive(Clone, Copy)]
enum Act {
    Auto(&'static str, u32),
    Assign(&'static str, &'static str),
    ReleaseFirst,
    ReleaseByHandle,
    ReleaseHost(&'static str, bool),
    Claim(&'static str),
    RemovePool,
}

fn auto(host: &str, num4: u32, handle: SmolStr) -> AutoAssignArgs {
    AutoAssignArgs {
        num4,
        handle: Some(handle),
        host: host.into(),
        intended_use: "Workload".into(),
        ..AutoAssignArgs::default()
    }
}

fn begin(world: &mut World, slot: usize, act: Act, atomic: bool) {
    let first: Option<(IpAddr, SmolStr)> =
        world.ledger.borrow().live.iter().next().map(|(ip, p)| (*ip, p.handle.clone()));
    match (act, first) {
        (Act::Auto(host, n), _) => {
            let handle = world.fresh_handle();
            world.auto_assign(slot, auto(host, n, handle), atomic);
        }
        (Act::Assign(host, ip), _) => {
            let handle = world.fresh_handle();
            world.assign(slot, ip.parse().unwrap(), host, handle, atomic);
        }
        (Act::ReleaseFirst, Some((ip, _))) => world.release(slot, vec![ip], true, atomic),
        (Act::ReleaseByHandle, Some((_, handle))) => world.release_handle(slot, handle, atomic),
        (Act::ReleaseHost(host, empty), _) => {
            world.blocks(slot, ops::release_host_affinities(Owner::host(host), empty), atomic);
        }
        (Act::Claim(host), _) => {
            let operation = ops::claim_affinity("10.0.0.0/30".parse().unwrap(), Owner::host(host));
            world.blocks(slot, operation, atomic);
        }
        (Act::RemovePool, _) => {
            world.blocks(slot, ops::release_pool_affinities("10.0.0.0/30".parse().unwrap()), atomic);
        }
        (Act::ReleaseFirst | Act::ReleaseByHandle, None) => {
            world.put(slot, ops::get_config(), ReadSet::default(), atomic, |_| {});
        }
    }
}

/// Runs `acts` side by side after `before` ran alone, in every way.
fn explore(name: &str, before: &[Act], acts: &[(Act, bool)], switches: usize, crash: bool) {
    let mut every = Every::default();
    let mut count = 0;
    loop {
        let violations = run(before, acts, switches, crash, &mut every);
        assert!(violations.is_empty(), "{name}, choices {:?}: {violations:#?}", every.path());
        count += 1;
        if !every.next_run() {
            break;
        }
        assert!(count < LIMIT, "{name}: more than {LIMIT} runs");
    }
}

fn run(before: &[Act], acts: &[(Act, bool)], switches: usize, crash: bool, every: &mut Every) -> Vec<String> {
    let mut world = World::new(acts.len().max(1), POOL);
    for act in before {
        begin(&mut world, 0, *act, false);
        world.run_alone(0, every);
    }
    world.tick(100_000_000_000);
    for (slot, (act, atomic)) in acts.iter().enumerate() {
        begin(&mut world, slot, *act, *atomic);
    }
    let (mut switches, mut crashes, mut current) = (switches, usize::from(crash), 0);
    let mut units = 0;
    loop {
        units += 1;
        if units > 5_000 {
            return vec!["the operations do not end".to_owned()];
        }
        let others: Vec<usize> =
            (0..acts.len()).filter(|slot| *slot != current && world.slots[*slot].is_some()).collect();
        if world.slots[current].is_none() {
            match others.as_slice() {
                [] => break,
                // A switch that the end of an operation forces costs nothing.
                others => current = others[every.below(others.len())],
            }
            continue;
        }
        if !world.next_is_private(current) {
            let switch = if switches > 0 { others.len() } else { 0 };
            let choice = every.below(1 + switch + crashes);
            if choice > switch {
                crashes -= 1;
                world.crash(current);
                continue;
            }
            if choice > 0 {
                switches -= 1;
                current = others[choice - 1];
            }
        }
        world.unit(current, every);
        world.tick(1_000_000);
        if !world.ledger.borrow().violations.is_empty() {
            break;
        }
    }
    if world.ledger.borrow().violations.is_empty() {
        world.settle(false, TOTAL, every);
    }
    world.ledger.borrow().violations.clone()
}

/// Both step by step, one of each form, both atomic.
fn forms(name: &str, before: &[Act], acts: [Act; 2]) {
    for forms in [[false, false], [false, true], [true, false], [true, true]] {
        let pairs = [(acts[0], forms[0]), (acts[1], forms[1])];
        explore(&format!("{name} {forms:?}"), before, &pairs, 3, false);
        explore(&format!("{name} {forms:?}, crash"), before, &pairs, 1, true);
    }
}

#[test]
fn two_assignments_of_one_host() {
    forms("same host", &[], [Act::Auto(HOSTS[0], 1), Act::Auto(HOSTS[0], 1)]);
}

#[test]
fn two_assignments_of_two_hosts() {
    forms("two hosts", &[], [Act::Auto(HOSTS[0], 3), Act::Auto(HOSTS[1], 1)]);
}

#[test]
fn assignment_against_release() {
    let before = [Act::Auto(HOSTS[0], 1)];
    forms("release", &before, [Act::Auto(HOSTS[0], 1), Act::ReleaseFirst]);
    forms("release by handle", &before, [Act::Auto(HOSTS[1], 4), Act::ReleaseByHandle]);
}

#[test]
fn assignment_against_release_of_the_host() {
    forms("empty block", &[Act::Claim(HOSTS[0])], [Act::Auto(HOSTS[0], 1), Act::ReleaseHost(HOSTS[0], true)]);
    forms(
        "used block",
        &[Act::Auto(HOSTS[0], 1)],
        [Act::Auto(HOSTS[0], 1), Act::ReleaseHost(HOSTS[0], false)],
    );
}

#[test]
fn one_address_for_two() {
    forms("one address", &[], [Act::Assign(HOSTS[0], "10.0.0.1"), Act::Assign(HOSTS[1], "10.0.0.1")]);
}

#[test]
fn last_release_against_loss_of_the_owner() {
    forms("last release", &[Act::Auto(HOSTS[0], 1)], [Act::ReleaseFirst, Act::ReleaseHost(HOSTS[0], false)]);
}

#[test]
fn empty_block_is_taken_while_its_owner_uses_it() {
    let before = [Act::Claim(HOSTS[0])];
    forms("take away", &before, [Act::Auto(HOSTS[1], 1), Act::Auto(HOSTS[0], 1)]);
}

#[test]
fn pool_goes_while_blocks_are_claimed() {
    forms("pool", &[Act::Auto(HOSTS[0], 1)], [Act::RemovePool, Act::Claim(HOSTS[1])]);
}
