use proptest::prelude::*;

use super::*;

fn at(seconds: i64) -> jiff::Timestamp {
    jiff::Timestamp::from_second(1_700_000_000 + seconds).unwrap()
}

fn block(cidr: &str) -> Block {
    Block::new(cidr.parse().unwrap(), &Owner::host("node"), None, at(0)).unwrap()
}

fn handle(name: &str) -> SmolStr {
    name.into()
}

fn take(block: &mut Block, n: usize, name: &str) -> Vec<u32> {
    let name = handle(name);
    let ips = block.auto_assign(n, Some(&name), &BTreeMap::new(), &Reservations::default());
    block.bump();
    ips.into_iter().map(|ip| block.ordinal(ip).unwrap()).collect()
}

fn free(block: &mut Block, ordinals: &[u32], cooldown: u32, now: jiff::Timestamp) -> Released {
    let requests: Vec<ReleaseRequest> =
        ordinals.iter().map(|o| ReleaseRequest { ordinal: *o, handle: None, sequence: None }).collect();
    let released = block.release(&requests, cooldown, now).unwrap();
    block.bump();
    released
}

#[test]
fn a_new_block_starts_at_the_clock_and_hands_out_in_order() {
    let mut b = block("10.0.0.0/29");
    assert_eq!(b.sequence(), 1_700_000_000_000_000_000);
    assert_eq!(b.raw().affinity.as_deref(), Some("host:node"));
    assert_eq!(b.raw().affinity_claim_time.as_deref(), Some("2023-11-14T22:13:20Z"));
    assert_eq!(take(&mut b, 3, "a"), [0, 1, 2]);
    assert_eq!(b.allocation_sequence(0), 1_700_000_000_000_000_000);
    assert_eq!(b.sequence(), 1_700_000_000_000_000_001);
    assert_eq!(take(&mut b, 9, "b"), [3, 4, 5, 6, 7]);
    assert_eq!(take(&mut b, 1, "c"), [0; 0]);
    assert!(b.check(at(1)).is_empty());
}

#[test]
fn freed_addresses_come_last_and_in_ascending_order_of_one_release() {
    let mut b = block("10.0.0.0/29");
    take(&mut b, 6, "a");
    free(&mut b, &[5, 1], 0, at(1));
    free(&mut b, &[0], 0, at(1));
    assert_eq!(b.raw().unallocated, [6, 7, 1, 5, 0]);
    assert_eq!(take(&mut b, 9, "b"), [6, 7, 1, 5, 0]);
}

#[test]
fn equal_attributes_are_stored_once_and_dropped_when_unused() {
    let mut b = block("10.0.0.0/29");
    take(&mut b, 1, "a");
    take(&mut b, 1, "b");
    take(&mut b, 1, "a");
    assert_eq!(b.raw().allocations[..3], [Some(0), Some(1), Some(0)]);
    free(&mut b, &[0, 2], 0, at(1));
    assert_eq!(b.raw().allocations[..3], [None, Some(0), None]);
    assert_eq!(b.raw().attributes.len(), 1);
    assert_eq!(b.raw().sequence_number_for_allocation.len(), 1);
}

#[test]
fn a_cooling_address_is_in_use_until_its_time_is_over() {
    let mut b = block("10.0.0.0/30");
    take(&mut b, 2, "a");
    let released = free(&mut b, &[0], 30, at(10));
    assert_eq!(released.handles, BTreeMap::from([(handle("a"), 1)]));
    assert!(matches!(b.holding(0), Holding::Cooling(_)));
    assert!(!b.is_empty());
    assert_eq!(b.held_by("a"), [1]);
    assert_eq!(free(&mut b, &[0], 30, at(11)).unallocated, [0]);
    assert!(!b.assign("10.0.0.0".parse().unwrap(), None, &BTreeMap::new()));
    assert_eq!(take(&mut b, 9, "b"), [2, 3]);
    let b = Block::load(b.into_raw(), 30, at(40)).unwrap();
    assert!(matches!(b.holding(0), Holding::Cooling(_)), "30 seconds have not passed before the 31st");
    let b = Block::load(b.into_raw(), 30, at(41)).unwrap();
    assert_eq!(b.holding(0), Holding::Free);
    assert_eq!(b.raw().unallocated, [0]);
    assert!(b.check(at(41)).is_empty());
}

#[test]
fn only_a_release_by_address_renumbers_what_cools() {
    let mut b = block("10.0.0.0/30");
    take(&mut b, 2, "a");
    let number = b.allocation_sequence(0);
    free(&mut b, &[0], 60, at(1));
    assert_eq!(b.allocation_sequence(0), number + 1);
    b.release_handle("a", 60, at(1));
    assert_eq!(b.allocation_sequence(1), number);
}

#[test]
fn a_release_that_does_not_fit_changes_nothing() {
    let mut b = block("10.0.0.0/30");
    take(&mut b, 2, "a");
    let before = b.clone();
    let request = |ordinal, name: Option<&str>, sequence| ReleaseRequest {
        ordinal,
        handle: name.map(handle),
        sequence,
    };
    let number = b.allocation_sequence(1);
    let good = request(0, Some("a"), None);
    // The number is looked at before the address is, so also for an address that nobody holds.
    let cases = [
        (request(1, None, Some(7)), Mismatch::Sequence { given: 7, stored: number }),
        (request(3, None, Some(7)), Mismatch::Sequence { given: 7, stored: 0 }),
        (request(1, Some("b"), Some(number)), Mismatch::Handle { given: "b".into(), stored: "a".into() }),
        (request(1, Some("A"), None), Mismatch::Handle { given: "A".into(), stored: "a".into() }),
    ];
    for (bad, mismatch) in cases {
        let ordinal = bad.ordinal;
        let result = b.release(&[good.clone(), bad], 0, at(1));
        assert_eq!(result, Err((ordinal, mismatch)));
        assert_eq!(b, before);
    }
    let fine = b.release(&[good, request(1, Some("a"), Some(number)), request(2, None, Some(0))], 0, at(1));
    assert_eq!(fine.unwrap().unallocated, [2]);
    assert!(b.is_empty());
}

#[test]
fn the_same_address_twice_in_one_release_counts_once() {
    let mut b = block("10.0.0.0/30");
    take(&mut b, 1, "a");
    let released = free(&mut b, &[0, 0, 0], 0, at(1));
    assert_eq!(released.handles, BTreeMap::from([(handle("a"), 1)]));
    assert!(released.unallocated.is_empty());
}

#[test]
fn reserved_addresses_keep_their_place() {
    let mut b = block("10.0.0.0/30");
    let reserved = Reservations::new(["10.0.0.0/31".parse().unwrap()]);
    assert_eq!(b.free(&reserved), 2);
    let got = b.auto_assign(4, None, &BTreeMap::new(), &reserved);
    assert_eq!(got, ["10.0.0.2".parse::<IpAddr>().unwrap(), "10.0.0.3".parse().unwrap()]);
    assert_eq!(b.raw().unallocated, [0, 1]);
    assert_eq!(b.free(&reserved), 0);
    assert!(b.assign("10.0.0.1".parse().unwrap(), None, &BTreeMap::new()), "an address asked for is given");
}

#[test]
fn ends_of_a_block_can_be_set_aside() {
    let reserved = HostReserved {
        start_of_block: 3,
        end_of_block: 1,
        handle: WINDOWS_RESERVED_HANDLE.into(),
        note: "kept".into(),
    };
    let cidr = "10.0.0.0/29".parse().unwrap();
    let mut b = Block::new(cidr, &Owner::host("w"), Some(&reserved), at(0)).unwrap();
    assert_eq!(b.raw().unallocated, [3, 4, 5, 6]);
    assert!(b.is_empty() && b.check(at(0)).is_empty());
    assert_eq!(take(&mut b, 9, "a"), [3, 4, 5, 6]);
    assert!(!b.is_empty());
    assert!(b.raw().sequence_number_for_allocation.keys().eq([3u32, 4, 5, 6].iter()));
    // More than there is: nothing left to give, and no overlap.
    let all = HostReserved { start_of_block: 7, end_of_block: 7, ..reserved };
    assert_eq!(Block::new(cidr, &Owner::host("w"), Some(&all), at(0)).unwrap().raw().unallocated, [0; 0]);
}

#[test]
fn a_handle_ends_at_a_carriage_return() {
    let mut b = block("10.0.0.0/30");
    take(&mut b, 2, "k8s.abc\rtail");
    assert_eq!(b.held_by("k8s.abc"), [0, 1]);
    let requests = [ReleaseRequest { ordinal: 0, handle: Some("k8s.abc".into()), sequence: None }];
    assert_eq!(b.release(&requests, 0, at(0)).unwrap().handles, BTreeMap::from([(handle("k8s.abc"), 1)]));
}

#[test]
fn stored_blocks_that_cannot_be_used_are_refused() {
    let mut raw = block("10.0.0.0/30").into_raw();
    raw.allocations.pop();
    assert_eq!(Block::load(raw, 0, at(0)), Err(BlockDefect::Size { expected: 4, found: 3 }));
    let mut raw = block("10.0.0.0/30").into_raw();
    raw.allocations[2] = Some(0);
    assert_eq!(Block::load(raw, 0, at(0)), Err(BlockDefect::NoAttribute { ordinal: 2, index: 0 }));
    assert_eq!(Block::new("10.0.0.0/8".parse().unwrap(), &Owner::host("a"), None, at(0)), None);
}

#[test]
fn a_free_list_that_lies_is_set_right() {
    let mut b = block("10.0.0.0/29");
    take(&mut b, 2, "a");
    let mut raw = b.into_raw();
    raw.unallocated = vec![9, 3, 0, 3, 2];
    let defects = check(&raw, at(0));
    for defect in [
        BlockDefect::FreeOutside { ordinal: 9 },
        BlockDefect::FreeTwice { ordinal: 3 },
        BlockDefect::FreeAndAllocated { ordinal: 0 },
        BlockDefect::Lost { ordinal: 7 },
    ] {
        assert!(defects.contains(&defect), "{defect}");
    }
    let b = Block::load(raw, 0, at(0)).unwrap();
    assert_eq!(b.raw().unallocated, [3, 2, 4, 5, 6, 7]);
    assert!(b.check(at(0)).is_empty());
}

#[test]
fn an_unreadable_release_time_frees_the_address() {
    let mut b = block("10.0.0.0/30");
    take(&mut b, 1, "a");
    free(&mut b, &[0], 600, at(1));
    let mut raw = b.into_raw();
    raw.attributes[0].released_at = Some("yesterday".into());
    assert_eq!(Block::load(raw, 600, at(2)).unwrap().holding(0), Holding::Free);
}

#[derive(Debug, Clone)]
enum Act {
    Take(usize, u8),
    Assign(u32, u8),
    Free(Vec<u32>, u32),
    FreeHandle(u8, u32),
    Pass(i64),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        (0usize..5, 0u8..4).prop_map(|(n, h)| Act::Take(n, h)),
        (0u32..16, 0u8..4).prop_map(|(o, h)| Act::Assign(o, h)),
        (proptest::collection::vec(0u32..16, 0..5), 0u32..40).prop_map(|(o, c)| Act::Free(o, c)),
        (0u8..4, 0u32..40).prop_map(|(h, c)| Act::FreeHandle(h, c)),
        (0i64..50).prop_map(Act::Pass),
    ];
    proptest::collection::vec(act, 0..60)
}

proptest! {
    /// Against a model that knows only who holds what.
    #[test]
    fn holders_are_as_promised(acts in acts()) {
        let mut b = block("10.0.0.0/28");
        let mut held: BTreeMap<u32, SmolStr> = BTreeMap::new();
        let mut cooling: BTreeMap<u32, i64> = BTreeMap::new();
        let mut seconds = 0;
        for act in acts {
            match act {
                Act::Take(n, h) => {
                    let name = handle(&format!("h{h}"));
                    let unused = 16 - held.len() - cooling.len();
                    let got = take(&mut b, n, &name);
                    prop_assert_eq!(got.len(), n.min(unused));
                    for o in got {
                        prop_assert!(!cooling.contains_key(&o));
                        prop_assert_eq!(held.insert(o, name.clone()), None);
                    }
                }
                Act::Assign(o, h) => {
                    let name = handle(&format!("h{h}"));
                    let done = b.assign(b.address(o).unwrap(), Some(&name), &BTreeMap::new());
                    b.bump();
                    prop_assert_eq!(done, !held.contains_key(&o) && !cooling.contains_key(&o));
                    if done {
                        held.insert(o, name);
                    }
                }
                Act::Free(ordinals, cooldown) => {
                    let released = free(&mut b, &ordinals, cooldown, at(seconds));
                    for o in &released.ordinals {
                        prop_assert!(held.remove(o).is_some());
                        cooling.insert(*o, seconds);
                    }
                    if !released.ordinals.is_empty() {
                        cooling.retain(|_, since| cooldown > 0 && seconds - *since <= i64::from(cooldown));
                    }
                }
                Act::FreeHandle(h, cooldown) => {
                    let name = format!("h{h}");
                    let released = b.release_handle(&name, cooldown, at(seconds));
                    b.bump();
                    let expected: Vec<u32> =
                        held.iter().filter(|(_, n)| **n == name).map(|(o, _)| *o).collect();
                    prop_assert_eq!(&released, &expected);
                    for o in &released {
                        held.remove(o);
                        cooling.insert(*o, seconds);
                    }
                    if !released.is_empty() {
                        cooling.retain(|_, since| cooldown > 0 && seconds - *since <= i64::from(cooldown));
                    }
                }
                Act::Pass(n) => {
                    seconds += n;
                    b = Block::load(b.into_raw(), 20, at(seconds)).unwrap();
                    cooling.retain(|_, since| seconds - *since <= 20);
                }
            }
            prop_assert_eq!(b.check(at(seconds)), vec![]);
            for o in 0..16 {
                match b.holding(o) {
                    Holding::Held(a) => prop_assert_eq!(a.handle_id.as_ref(), held.get(&o)),
                    Holding::Cooling(_) => prop_assert!(cooling.contains_key(&o)),
                    Holding::Free => prop_assert!(!held.contains_key(&o) && !cooling.contains_key(&o)),
                }
            }
        }
    }

    /// Whatever was stored, loading gives a sound block and takes no address from its holder.
    #[test]
    fn any_stored_block_loads_sound(
        allocations in proptest::collection::vec(proptest::option::of(0u32..3), 8),
        unallocated in proptest::collection::vec(0u32..10, 0..12),
        released in proptest::collection::vec(any::<bool>(), 3),
    ) {
        let mut raw = block("10.0.0.0/29").into_raw();
        raw.attributes = released
            .iter()
            .map(|r| AllocationAttribute {
                handle_id: Some("h".into()),
                released_at: r.then(|| "2023-11-14T22:13:20Z".into()),
                ..AllocationAttribute::default()
            })
            .collect();
        raw.allocations = allocations.clone();
        raw.unallocated = unallocated;
        let mut b = Block::load(raw, 60, at(10)).unwrap();
        let only_unused = |d: &BlockDefect| matches!(d, BlockDefect::UnusedAttribute { .. });
        prop_assert!(b.check(at(10)).iter().all(only_unused));
        let got = take(&mut b, 8, "new");
        prop_assert!(got.iter().all(|o| allocations[*o as usize].is_none()));
        prop_assert_eq!(got.len(), allocations.iter().filter(|a| a.is_none()).count());
    }
}
