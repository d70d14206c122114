//! Long random runs. A failure names the seed; `IPAM_SIM_SEED=<seed>` repeats that run alone, and
//! `IPAM_SIM_RUNS=<n>` makes more runs.

use std::net::IpAddr;

use calico_ipam::Owner;
use calico_ipam::ops::{self, AutoAssignArgs};
use calico_model::ipam::IpamConfig;
use calico_net::Cidr;
use smol_str::SmolStr;

use crate::choose::{Chooser, Seeded};
use crate::world::{HOSTS, World};

/// What a family of runs looks like.
#[derive(Clone, Copy)]
struct Style {
    clients: usize,
    operations: usize,
    /// One in so many units a client stops; 0 is never.
    crash: usize,
    /// Lost answers per 1,000 writes.
    lost: usize,
    atomic: Form,
    pools: &'static [(&'static str, i64)],
    total: usize,
}

#[derive(Clone, Copy, PartialEq)]
enum Form {
    Steps,
    Atomic,
    Mixed,
}

const SMALL: &[(&str, i64)] = &[("10.0.0.0/28", 30)];
const TWO: &[(&str, i64)] = &[("10.0.0.0/29", 30), ("10.1.0.0/29", 31)];
const SINGLES: &[(&str, i64)] = &[("10.0.0.0/29", 32)];

#[expect(clippy::disallowed_methods, reason = "whoever repeats a run says so in the environment")]
fn runs() -> (u64, u64) {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    match number("IPAM_SIM_SEED") {
        Some(seed) => (seed, seed + 1),
        None => (0, number("IPAM_SIM_RUNS").unwrap_or(300)),
    }
}

fn explore(name: &str, style: Style) {
    let (from, to) = runs();
    for seed in from..to {
        let violations = run(seed, style);
        assert!(violations.is_empty(), "{name}, seed {seed}: {violations:#?}");
    }
}

fn run(seed: u64, style: Style) -> Vec<String> {
    let mut chooser = Seeded::new(seed);
    chooser.lost = style.lost;
    let mut world = World::new(style.clients, style.pools);
    world.clean = style.lost == 0;
    if style.total > 8 && chooser.one_in(4) {
        world.reserve("10.0.0.2/31");
    }
    let mut started = 0;
    loop {
        let idle: Vec<usize> = (0..style.clients).filter(|slot| world.slots[*slot].is_none()).collect();
        if started == style.operations && idle.len() == style.clients {
            break;
        }
        let slot = chooser.below(style.clients);
        if world.slots[slot].is_none() {
            if started < style.operations {
                started += 1;
                start(&mut world, slot, style, &mut chooser);
            }
            continue;
        }
        world.unit(slot, &mut chooser);
        if style.crash > 0 && chooser.one_in(style.crash) && world.slots[slot].is_some() {
            world.crash(slot);
        }
        let nanos = if chooser.one_in(60) { 61_000_000_000 } else { 1_000 + chooser.below(3_000_000) as i64 };
        world.tick(nanos);
        if !world.ledger.borrow().violations.is_empty() {
            return world.ledger.borrow().violations.clone();
        }
    }
    chooser.lost = 0;
    let reserved: usize = world.reserved.iter().filter_map(|r| r.size()).map(|n| n as usize).sum();
    let held_reserved = world
        .ledger
        .borrow()
        .live
        .keys()
        .filter(|ip| world.reserved.iter().any(|r| r.contains(**ip)))
        .count();
    world.settle(seed.is_multiple_of(2), style.total - reserved + held_reserved, &mut chooser);
    world.ledger.borrow().violations.clone()
}

fn start(world: &mut World, slot: usize, style: Style, chooser: &mut Seeded) {
    let atomic = match style.atomic {
        Form::Steps => false,
        Form::Atomic => true,
        Form::Mixed => chooser.one_in(2),
    };
    let host = HOSTS[chooser.below(HOSTS.len())];
    let live: Vec<(IpAddr, SmolStr)> =
        world.ledger.borrow().live.iter().map(|(ip, p)| (*ip, p.handle.clone())).collect();
    let address = |chooser: &mut Seeded| -> IpAddr {
        let pool: Cidr = style.pools[chooser.below(style.pools.len())].0.parse().unwrap();
        pool.nth(chooser.below(pool.size().unwrap() as usize) as u128).unwrap()
    };
    match chooser.below(20) {
        0..=6 => {
            // A few handles are shared by many assignments, as those of virtual machines are.
            let handle = if chooser.one_in(4) { SmolStr::new_static("shared") } else { world.fresh_handle() };
            let args = AutoAssignArgs {
                num4: 1 + chooser.below(3) as u32,
                handle: Some(handle),
                host: host.into(),
                intended_use: "Workload".into(),
                max_blocks_per_host: chooser.below(3) as u32,
                hints: if chooser.one_in(2) { vec!["10.0.0.4/30".parse().unwrap()] } else { Vec::new() },
                ..AutoAssignArgs::default()
            };
            world.auto_assign(slot, args, atomic);
        }
        7 => {
            let (ip, handle) = (address(chooser), world.fresh_handle());
            world.assign(slot, ip, host, handle, atomic);
        }
        8..=11 if !live.is_empty() => {
            let mut ips: Vec<IpAddr> =
                (0..1 + chooser.below(3)).map(|_| live[chooser.below(live.len())].0).collect();
            ips.sort();
            ips.dedup();
            let exact = chooser.one_in(2);
            world.release(slot, ips, exact, atomic);
        }
        12..=13 if !live.is_empty() => {
            let handle = live[chooser.below(live.len())].1.clone();
            // Of two releases of one address, one comes too late; callers do not do that.
            let busy = world.working_on.iter().any(|handles| handles.contains(&handle));
            if handle != "shared" && !busy {
                world.release_handle(slot, handle, atomic);
            }
        }
        14 => {
            let must_be_empty = chooser.one_in(2);
            world.blocks(slot, ops::release_host_affinities(Owner::host(host), must_be_empty), atomic);
        }
        15 => {
            let ip = address(chooser);
            let block = Cidr::new(ip, style.pools[0].1 as u8).unwrap().masked();
            match chooser.below(4) {
                0 => world.blocks(slot, ops::claim_affinity(block, Owner::host(host)), atomic),
                1 => world.blocks(slot, ops::release_affinity(block, Owner::host(host), false), atomic),
                2 => world.blocks(slot, ops::release_block_affinity(block, chooser.one_in(2)), atomic),
                _ => world.blocks(slot, ops::collect_cold(block), atomic),
            }
        }
        16 => world.blocks(slot, ops::remove_host(Owner::host(host)), atomic),
        17 => {
            let strict = chooser.one_in(2);
            let config = IpamConfig {
                strict_affinity: strict,
                auto_allocate_blocks: !strict || !chooser.one_in(3),
                ip_cooldown_seconds: if chooser.one_in(3) { 30 } else { 0 },
                ..IpamConfig::default()
            };
            world.blocks(slot, ops::set_config(config), atomic);
        }
        18 => {
            let pool: Cidr = style.pools[chooser.below(style.pools.len())].0.parse().unwrap();
            world.blocks(slot, ops::release_pool_affinities(pool), atomic);
        }
        _ => {
            let handle = live.first().map_or_else(|| SmolStr::new_static("nobody"), |(_, h)| h.clone());
            world.blocks(slot, ops::ips_by_handle(handle), atomic);
        }
    }
}

const BASE: Style =
    Style { clients: 3, operations: 40, crash: 0, lost: 0, atomic: Form::Mixed, pools: SMALL, total: 16 };

#[test]
fn step_by_step() {
    explore("step by step", Style { atomic: Form::Steps, ..BASE });
}

#[test]
fn step_by_step_with_crashes() {
    explore("step by step with crashes", Style { atomic: Form::Steps, crash: 25, ..BASE });
}

#[test]
fn step_by_step_with_lost_answers() {
    explore("step by step with lost answers", Style { atomic: Form::Steps, crash: 60, lost: 30, ..BASE });
}

#[test]
fn atomic() {
    explore("atomic", Style { atomic: Form::Atomic, ..BASE });
}

#[test]
fn atomic_with_crashes_and_lost_answers() {
    explore("atomic with crashes", Style { atomic: Form::Atomic, crash: 12, lost: 60, ..BASE });
}

#[test]
fn both_forms_with_crashes_and_lost_answers() {
    explore("both forms", Style { clients: 4, crash: 40, lost: 20, ..BASE });
}

#[test]
fn both_forms_with_crashes_on_two_pools() {
    explore("two pools", Style { crash: 40, pools: TWO, ..BASE });
}

#[test]
fn single_address_blocks() {
    explore("single addresses", Style { crash: 40, pools: SINGLES, total: 8, ..BASE });
}
