//! What operations give to a caller that is alone, in both forms.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "sim/store.rs"]
#[allow(dead_code, reason = "shared with the simulation, which uses all of it")]
mod store;

use std::net::IpAddr;

use calico_api::{AllowedUse, IPPool, IPReservation, Kind, Node};
use calico_ipam::ops::{self, AssignArgs, AutoAssignArgs, AutoAssigned, ReleaseOptions};
use calico_ipam::{
    Atomic, AtomicReply, AtomicStep, Block, IpamError, Mismatch, Operation, Owner, ReadSet, Reply, Step,
};
use calico_model::ipam::{AffinityState, AllocationBlock, BlockAffinity, IpamConfig, IpamHandle};
use calico_model::{Key, KvPair, Value};
use calico_net::Cidr;
use smol_str::{SmolStr, ToSmolStr};

use store::Store;

/// One cluster, and how many requests were made of its store.
struct Cluster {
    store: Store,
    now: jiff::Timestamp,
    atomic: bool,
    reads: usize,
    writes: usize,
}

impl Cluster {
    fn new(atomic: bool, pools: &[(&str, i64)]) -> Self {
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        let mut cluster = Self { store: Store::default(), now, atomic, reads: 0, writes: 0 };
        for host in ["ash", "birch", "cedar"] {
            cluster.node(host, "east");
        }
        for (i, (cidr, block)) in pools.iter().enumerate() {
            cluster.pool(&format!("pool{i}"), cidr, *block, |_| {});
        }
        cluster
    }

    fn node(&mut self, name: &str, zone: &str) {
        let mut node = Node::default();
        node.metadata.name = name.to_owned();
        node.metadata.labels.insert("zone".to_owned(), zone.to_owned());
        self.put(Key::resource(Kind::Node, "", name), Value::resource(node));
    }

    fn pool(&mut self, name: &str, cidr: &str, block: i64, change: impl FnOnce(&mut IPPool)) {
        let mut pool = IPPool::default();
        pool.metadata.name = name.to_owned();
        pool.spec.cidr = cidr.to_owned();
        pool.spec.block_size = block;
        change(&mut pool);
        self.put(Key::resource(Kind::IPPool, "", name), Value::resource(pool));
    }

    fn put(&mut self, key: Key, value: Value) {
        let kv = KvPair::new(key, value);
        match self.store.get(&kv.key) {
            Some(old) => self.store.update(kv.at(old.revision)).unwrap(),
            None => self.store.create(kv).unwrap(),
        };
    }

    fn run<T>(&mut self, operation: Operation<T>, reads: ReadSet) -> T {
        (self.reads, self.writes) = (0, 0);
        if self.atomic { self.run_atomic(operation, reads) } else { self.run_steps(operation) }
    }

    fn run_steps<T>(&mut self, mut operation: Operation<T>) -> T {
        let mut reply = Reply::Start;
        loop {
            reply = match operation.resume(reply, self.now) {
                Step::Done(result) => return result,
                Step::Read(set) => {
                    self.reads += 1;
                    Reply::Read(self.store.read(&set))
                }
                Step::Commit => Reply::Committed(Ok(())),
                Step::Pause { .. } => Reply::Paused,
                write => {
                    self.writes += 1;
                    Reply::Written(match write {
                        Step::Create(kv) => self.store.create(kv),
                        Step::Update(kv) => self.store.update(kv),
                        Step::Delete(kv) => self.store.delete(&kv),
                        _ => unreachable!(),
                    })
                }
            };
        }
    }

    fn run_atomic<T>(&mut self, operation: Operation<T>, reads: ReadSet) -> T {
        let mut atomic = Atomic::new(operation, reads);
        let mut reply = AtomicReply::Start;
        loop {
            reply = match atomic.resume(reply, self.now) {
                AtomicStep::Done(result) => return result,
                AtomicStep::Read(set) => {
                    self.reads += 1;
                    AtomicReply::Read(self.store.read(&set))
                }
                AtomicStep::Commit(plan) => {
                    self.writes += 1;
                    AtomicReply::Committed(self.store.commit(plan))
                }
                AtomicStep::Pause { .. } => AtomicReply::Paused,
            };
        }
    }

    fn auto(&mut self, args: AutoAssignArgs) -> AutoAssigned {
        let reads = ops::auto_assign_reads(&args);
        self.run(ops::auto_assign(args), reads)
    }

    /// Addresses, messages and error of an IPv4 assignment.
    fn auto4(&mut self, host: &str, n: u32, handle: &str) -> (Vec<String>, Vec<String>, Option<String>) {
        let got = self.auto(wish(host, n, handle));
        let (ips, messages) = got.v4.map_or_else(Default::default, |v4| (v4.ips, v4.messages));
        (ips.iter().map(Cidr::to_string).collect(), messages, got.error.map(|e| e.to_string()))
    }

    fn alone<T>(&mut self, operation: Operation<T>) -> T {
        self.run(operation, ReadSet::default())
    }

    fn assign(&mut self, ip: &str, host: &str, handle: &str) -> Result<(), String> {
        let args = AssignArgs { handle: Some(handle.into()), ..AssignArgs::new(ip.parse().unwrap(), host) };
        self.alone(ops::assign(args)).map_err(|e| e.to_string())
    }

    fn block(&self, cidr: &str) -> Option<AllocationBlock> {
        match self.store.get(&Key::Block(cidr.parse().unwrap()))?.value {
            Some(Value::Block(block)) => Some(AllocationBlock::clone(&block)),
            _ => None,
        }
    }

    fn row(&self, host: &str, cidr: &str) -> Option<AffinityState> {
        match self.store.get(&Owner::host(host).affinity_key(cidr.parse().unwrap()))?.value {
            Some(Value::BlockAffinity(row)) => row.state,
            _ => None,
        }
    }

    fn set_row(&mut self, host: &str, cidr: &str, state: Option<AffinityState>) {
        let key = Owner::host(host).affinity_key(cidr.parse().unwrap());
        self.put(key, Value::BlockAffinity(BlockAffinity { state, deleted: false }));
    }

    fn handle(&self, handle: &str) -> Option<IpamHandle> {
        match self.store.get(&Key::IpamHandle(handle.into()))?.value {
            Some(Value::IpamHandle(value)) => Some(IpamHandle::clone(&value)),
            _ => None,
        }
    }

    fn config(&mut self, change: impl FnOnce(&mut IpamConfig)) {
        let mut config = IpamConfig::default();
        change(&mut config);
        self.alone(ops::set_config(config)).unwrap();
    }

    fn claim(&mut self, cidr: &str, host: &str) {
        let got = self.alone(ops::claim_affinity(cidr.parse().unwrap(), Owner::host(host))).unwrap();
        assert!(got.failed.is_empty());
    }

    fn pass(&mut self, seconds: i64) {
        self.now = self.now.checked_add(jiff::SignedDuration::from_secs(seconds)).unwrap();
    }

    fn release(&mut self, ips: &[&str]) -> Result<Vec<IpAddr>, IpamError> {
        let requests = ips.iter().map(|ip| ReleaseOptions::address(ip.parse().unwrap())).collect();
        self.alone(ops::release_ips(requests)).into_result()
    }
}

fn wish(host: &str, n: u32, handle: &str) -> AutoAssignArgs {
    AutoAssignArgs {
        num4: n,
        handle: Some(handle.into()),
        host: host.into(),
        intended_use: "Workload".into(),
        ..AutoAssignArgs::default()
    }
}

fn both(pools: &[(&str, i64)], scenario: impl Fn(&mut Cluster)) {
    for atomic in [false, true] {
        scenario(&mut Cluster::new(atomic, pools));
    }
}

const FOUR: &[(&str, i64)] = &[("10.0.0.0/28", 30)];

#[test]
fn a_pool_that_is_too_small_gives_what_it_has() {
    both(&[("10.0.0.0/24", 26)], |c| {
        let (ips, messages, error) = c.auto4("ash", 257, "h");
        assert_eq!((ips.len(), error), (256, None));
        assert_eq!(messages, ["No IPs available in pools: [10.0.0.0/24]"]);
        assert_eq!(c.handle("h").unwrap().block.values().sum::<u64>(), 256);
        let got = c.auto(wish("ash", 1, "i")).v4.unwrap();
        assert_eq!(
            got.partial_fulfillment().unwrap(),
            "Assigned 0 out of 1 requested IPv4 addresses; No IPs available in pools: [10.0.0.0/24]"
        );
    });
}

#[test]
fn strict_affinity_takes_nothing_from_others() {
    both(&[("10.0.0.0/26", 26)], |c| {
        c.config(|config| config.strict_affinity = true);
        let (ips, messages, error) = c.auto4("ash", 256, "h");
        assert_eq!((ips.len(), error), (64, None));
        assert_eq!(messages, ["No more free affine blocks and strict affinity enabled"]);
        c.release(&["10.0.0.5"]).unwrap();
        assert_eq!(c.auto4("birch", 1, "i").0.len(), 0);
        assert_eq!(c.assign("10.0.0.5", "birch", "i"), Err("Block host affinity does not match".to_owned()));
    });
}

#[test]
fn a_full_owner_is_told_so_and_borrows_nothing() {
    both(&[("10.0.0.0/24", 26)], |c| {
        c.auto4("birch", 1, "b");
        let got = c.auto(AutoAssignArgs { max_blocks_per_host: 1, ..wish("ash", 100, "h") });
        assert_eq!(got.v4.as_ref().unwrap().ips.len(), 64);
        assert_eq!(got.v4.unwrap().messages.len(), 1);
        assert!(matches!(got.error, Some(IpamError::BlockLimit)));
    });
}

#[test]
fn own_blocks_first_then_those_of_others() {
    both(&[("10.0.0.0/25", 26)], |c| {
        c.claim("10.0.0.0/26", "ash");
        c.claim("10.0.0.64/26", "birch");
        c.auto4("ash", 1, "one");
        let (ips, messages, error) = c.auto4("ash", 64, "more");
        assert_eq!((ips.len(), messages.len(), error), (64, 0, None));
        assert_eq!(ips[63], "10.0.0.64/26");
        assert_eq!(c.block("10.0.0.64/26").unwrap().affinity.as_deref(), Some("host:birch"));
    });
}

#[test]
fn an_empty_block_is_taken_from_its_owner_after_a_minute() {
    both(&[("10.0.0.0/30", 30)], |c| {
        c.claim("10.0.0.0/30", "ash");
        c.config(|config| config.strict_affinity = true);
        c.pass(59);
        assert_eq!(c.auto4("birch", 1, "h").0.len(), 0);
        assert_eq!(c.row("ash", "10.0.0.0/30"), Some(AffinityState::Confirmed));
        c.pass(1);
        assert_eq!(c.auto4("birch", 1, "h").0, ["10.0.0.0/30"]);
        assert_eq!(c.row("ash", "10.0.0.0/30"), None);
        assert_eq!(c.row("birch", "10.0.0.0/30"), Some(AffinityState::Confirmed));
        c.pass(100);
        assert_eq!(c.auto4("ash", 1, "i").0.len(), 0, "a block in use is not taken");
    });
}

#[test]
fn blocks_that_releases_left_behind_are_used_again() {
    both(&[("10.0.0.0/30", 30)], |c| {
        // Nobody's block that nobody uses.
        let mut block = Block::new("10.0.0.0/30".parse().unwrap(), &Owner::host("ash"), None, c.now).unwrap();
        block.disown();
        c.put(Key::Block(block.cidr()), Value::Block(block.into_raw().into()));
        c.config(|config| config.strict_affinity = true);
        assert_eq!(c.auto4("birch", 1, "h").0, ["10.0.0.0/30"]);
        // An owner whose affinity is gone.
        c.alone(ops::release_by_handle("h".into())).unwrap();
        let row = c.store.get(&Owner::host("birch").affinity_key("10.0.0.0/30".parse().unwrap())).unwrap();
        c.store.delete(&row).unwrap();
        c.pass(100);
        assert_eq!(c.auto4("ash", 1, "i").0, ["10.0.0.0/30"]);
    });
}

#[test]
fn an_affinity_in_doubt_is_settled_by_its_block() {
    for state in [Some(AffinityState::Pending), Some(AffinityState::PendingDeletion), None] {
        both(&[("10.0.0.0/29", 30)], |c| {
            // With its block: confirmed again, and the block stored anew unless the state was no doubt.
            c.claim("10.0.0.0/30", "ash");
            c.set_row("ash", "10.0.0.0/30", state);
            let before = c.block("10.0.0.0/30").unwrap().sequence_number;
            assert_eq!(c.auto4("ash", 1, "h").0, ["10.0.0.0/30"]);
            let writes = c.block("10.0.0.0/30").unwrap().sequence_number - before;
            assert_eq!(writes, if state.is_some() { 2 } else { 1 });
            if state.is_some() {
                assert_eq!(c.row("ash", "10.0.0.0/30"), Some(AffinityState::Confirmed));
            }
            // Without a block: made.
            c.set_row("birch", "10.0.0.4/30", state);
            assert_eq!(c.auto4("birch", 1, "i").0, ["10.0.0.4/30"]);
            assert_eq!(c.row("birch", "10.0.0.4/30"), Some(AffinityState::Confirmed));
            // With somebody else's block: dropped.
            c.set_row("cedar", "10.0.0.4/30", state);
            c.config(|config| config.strict_affinity = true);
            assert_eq!(c.auto4("cedar", 1, "j").0.len(), 0);
            assert_eq!(c.row("cedar", "10.0.0.4/30"), None);
        });
    }
}

#[test]
fn a_block_that_cannot_be_used_is_passed_over() {
    both(&[("10.0.0.0/29", 30)], |c| {
        c.claim("10.0.0.0/30", "ash");
        let mut broken = c.block("10.0.0.0/30").unwrap();
        broken.allocations.pop();
        c.put(Key::Block(broken.cidr), Value::Block(broken.into()));
        assert_eq!(c.auto4("ash", 1, "h").0, ["10.0.0.4/30"]);
        let error = c.assign("10.0.0.1", "ash", "i").unwrap_err();
        assert_eq!(error, "stored block 10.0.0.0/30 cannot be used: 3 allocations for 4 addresses");
    });
}

#[test]
fn wishes_that_cannot_be_met_say_why() {
    both(FOUR, |c| {
        c.pool("six", "fd00::/120", 124, |_| {});
        c.pool("lb", "10.9.0.0/28", 30, |p| p.spec.allowed_uses = vec![AllowedUse::LoadBalancer]);
        let text = |c: &mut Cluster, args| c.auto(args).error.unwrap().to_string();
        let args = wish("ash", 1, "h");
        assert_eq!(
            text(c, AutoAssignArgs { intended_use: "".into(), ..args.clone() }),
            "must specify the intended use when assigning an IP"
        );
        assert_eq!(
            text(c, AutoAssignArgs { intended_use: "Parking".into(), ..args.clone() }),
            "cannot find a qualified ippool, no pools match the required use (Parking)"
        );
        assert_eq!(
            text(c, AutoAssignArgs { host: "ghost".into(), ..args.clone() }),
            "resource does not exist: Node(ghost) with error: <nil>"
        );
        assert_eq!(
            text(c, AutoAssignArgs { pools4: vec!["fd00::/120".parse().unwrap()], ..args.clone() }),
            "provided IPv4 IPPools list contains one or more IPv6 IPPools"
        );
        let six = AutoAssignArgs { num6: 1, pools6: vec!["10.0.0.0/28".parse().unwrap()], ..args.clone() };
        let got = c.auto(six);
        assert_eq!(got.v4.unwrap().ips.len(), 1, "what was assigned before the error counts");
        assert!(got.v6.is_none());
        assert!(matches!(got.error, Some(IpamError::PoolOfOtherFamily { .. })));
        let got = c.auto(AutoAssignArgs { intended_use: "LoadBalancer".into(), host: "lb".into(), ..args });
        assert_eq!(got.v4.unwrap().ips[0].prefix_len(), 30);
        let lb = c.store.entries.keys().any(|k| {
            matches!(k, Key::BlockAffinity { affinity: calico_model::AffinityType::Virtual, owner, .. } if owner == "lb")
        });
        assert!(lb, "a load balancer's blocks belong to no node");
    });
}

#[test]
fn nodes_without_leave_to_claim_use_what_they_have() {
    both(FOUR, |c| {
        c.config(|config| {
            config.strict_affinity = true;
            config.auto_allocate_blocks = false;
        });
        assert_eq!(c.auto4("ash", 1, "h").2.as_deref(), Some("failed to find or claim a block"));
        c.claim("10.0.0.4/30", "ash");
        let (ips, _, error) = c.auto4("ash", 6, "h");
        assert_eq!((ips.len(), error.as_deref()), (4, Some("failed to find or claim a block")));
    });
}

#[test]
fn one_given_address() {
    both(FOUR, |c| {
        assert_eq!(c.assign("10.0.0.9", "ash", "h"), Ok(()));
        assert_eq!(c.row("ash", "10.0.0.8/30"), Some(AffinityState::Confirmed));
        assert_eq!(
            c.assign("10.0.0.9", "ash", "h"),
            Err("resource already exists: 10.0.0.9 with error: Address already assigned in block".to_owned())
        );
        assert_eq!(c.handle("h").unwrap().block.values().sum::<u64>(), 1);
        assert_eq!(
            c.assign("192.0.2.1", "ash", "h"),
            Err("The provided IP address is not in a configured pool\n".to_owned())
        );
        assert_eq!(
            c.assign("10.0.0.10", "birch", "i"),
            Ok(()),
            "another host may, if affinity is not strict"
        );
        assert_eq!(c.block("10.0.0.8/30").unwrap().affinity.as_deref(), Some("host:ash"));
        let again = AssignArgs {
            handle: Some("h".into()),
            max_per_handle: 1,
            ..AssignArgs::new("10.0.0.9".parse().unwrap(), "ash")
        };
        assert!(c.alone(ops::assign(again.clone())).is_ok());
        let second = AssignArgs { ip: "10.0.0.11".parse().unwrap(), ..again.clone() };
        assert!(matches!(c.alone(ops::assign(second)), Err(IpamError::HandleLimit { limit: 1, .. })));
        let tunnel = AssignArgs { intended_use: "LoadBalancer".into(), ..again };
        assert_eq!(
            c.alone(ops::assign(tunnel)).unwrap_err().to_string(),
            "IP address 10.0.0.9 is in IP pool \"pool0\", which is not allowed for use \"LoadBalancer\" \
             (allowedUses: [Workload Tunnel])"
        );
    });
}

#[test]
fn who_has_an_address() {
    both(FOUR, |c| {
        c.config(|config| config.ip_cooldown_seconds = 60);
        let mut args = wish("ash", 1, "h");
        args.attributes.insert("pod".into(), "p".into());
        let ip = c.auto(args).v4.unwrap().ips[0].addr();
        let found = c.alone(ops::assignment(ip)).unwrap();
        assert_eq!(found.attribute.handle_id.as_deref(), Some("h"));
        assert_eq!(found.attribute.active_owner_attrs["pod"], "p");
        assert_eq!(c.alone(ops::ips_by_handle("h".into())).unwrap(), [ip]);
        c.alone(ops::release_by_handle("h".into())).unwrap();
        assert!(matches!(c.alone(ops::assignment(ip)), Err(IpamError::InCooldown { .. })));
        assert_eq!(
            c.alone(ops::ips_by_handle("h".into())).unwrap_err().to_string(),
            "resource does not exist: IPAMHandleKey(id=h) with error: <nil>"
        );
        c.pass(61);
        assert_eq!(
            c.alone(ops::assignment(ip)).unwrap_err().to_string(),
            format!("resource does not exist: {ip} with error: IP is unassigned")
        );
        let block = Cidr::new(ip, 30).unwrap().masked();
        assert!(c.alone(ops::collect_cold(block)).unwrap());
        assert!(!c.alone(ops::collect_cold(block)).unwrap());
        assert!(c.alone(ops::assignment("10.0.1.1".parse().unwrap())).is_err());
    });
}

#[test]
fn releases_are_whole_per_block() {
    both(FOUR, |c| {
        c.claim("10.0.0.0/30", "ash");
        c.claim("10.0.0.4/30", "birch");
        for ip in ["10.0.0.1", "10.0.0.2", "10.0.0.5"] {
            c.assign(ip, "ash", "h").unwrap();
        }
        let request = |ip: &str, handle: &str, sequence| ReleaseOptions {
            address: ip.into(),
            handle: handle.into(),
            sequence,
        };
        let requests = vec![
            request("10.0.0.1", "h", None),
            request("10.0.0.2", "other", None),
            request("10.0.0.5", "h", None),
            request("203.0.113.9", "", None),
        ];
        let outcome = c.alone(ops::release_ips(requests));
        let error = outcome.error.unwrap();
        assert_eq!(error.to_string(), "update conflict: 10.0.0.2");
        assert!(matches!(error, IpamError::ReleaseMismatch { reason: Mismatch::Handle { .. }, .. }));
        let released: Vec<SmolStr> = outcome.released.into_iter().map(|r| r.address).collect();
        assert_eq!(released, ["10.0.0.5"]);
        assert_eq!(outcome.unallocated, ["203.0.113.9".parse::<IpAddr>().unwrap()]);
        assert_eq!(c.handle("h").unwrap().block["10.0.0.0/30"], 2);
        let sequence = c.alone(ops::assignment("10.0.0.1".parse().unwrap())).unwrap().sequence;
        let wrong = c.alone(ops::release_ips(vec![request("10.0.0.1", "h", Some(sequence + 1))]));
        assert!(matches!(
            wrong.error,
            Some(IpamError::ReleaseMismatch { reason: Mismatch::Sequence { .. }, .. })
        ));
        let right = c.alone(ops::release_ips(vec![request("10.0.0.1", "h", Some(sequence))]));
        assert!(right.error.is_none() && right.unallocated.is_empty());
        assert_eq!(c.release(&["10.0.0.1"]).unwrap(), ["10.0.0.1".parse::<IpAddr>().unwrap()]);
        let text = |c: &mut Cluster, address: &str| {
            c.alone(ops::release_ips(vec![request(address, "", None)])).error.unwrap().to_string()
        };
        assert_eq!(
            text(c, ""),
            "No IP address specified in options: {Address: Handle: SequenceNumber:<nil>}"
        );
        assert_eq!(text(c, "house"), "failed to parse IP: house");
    });
}

#[test]
fn a_block_without_owner_goes_with_its_last_address() {
    both(FOUR, |c| {
        c.claim("10.0.0.0/30", "ash");
        c.assign("10.0.0.1", "ash", "h").unwrap();
        c.assign("10.0.0.2", "ash", "i").unwrap();
        c.alone(ops::release_host_affinities(Owner::host("ash"), false)).unwrap();
        let block = c.block("10.0.0.0/30").unwrap();
        assert_eq!((block.affinity, block.affinity_claim_time), (None, None));
        assert_eq!(c.row("ash", "10.0.0.0/30"), None);
        c.release(&["10.0.0.1"]).unwrap();
        assert!(c.block("10.0.0.0/30").is_some());
        c.alone(ops::release_by_handle("i".into())).unwrap();
        assert!(c.block("10.0.0.0/30").is_none() && c.handle("h").is_none() && c.handle("i").is_none());
    });
}

#[test]
fn many_handles_of_one_block_are_released_together() {
    both(&[("10.0.0.0/24", 24)], |c| {
        let ips: Vec<String> =
            (0..100).map(|i| c.auto4("ash", 1, &format!("h{i}")).0[0].replace("/24", "")).collect();
        let ips: Vec<&str> = ips.iter().map(String::as_str).collect();
        assert_eq!(c.release(&ips).unwrap(), [] as [IpAddr; 0]);
        if c.atomic {
            assert!(c.writes <= 5, "{} transactions", c.writes);
        }
        assert!(!c.store.entries.keys().any(|k| matches!(k, Key::IpamHandle(_))));
        assert_eq!(c.block("10.0.0.0/24").unwrap().unallocated.len(), 256);
    });
}

#[test]
fn a_stale_handle_stays_and_does_no_harm() {
    both(FOUR, |c| {
        let stale = IpamHandle { block: [("10.0.0.0/30".to_smolstr(), 1)].into(), deleted: false };
        c.put(Key::IpamHandle("s".into()), Value::IpamHandle(stale.clone().into()));
        assert!(c.alone(ops::release_by_handle("s".into())).is_ok());
        assert_eq!(c.handle("s"), Some(stale));
        assert_eq!(c.alone(ops::ips_by_handle("s".into())).unwrap(), [] as [IpAddr; 0]);
        assert!(c.alone(ops::release_by_handle("nobody".into())).unwrap_err().is_not_found());
    });
}

#[test]
fn a_handle_with_a_limit_gets_its_addresses_again() {
    both(FOUR, |c| {
        let limited = |host: &str, n| AutoAssignArgs { max_per_handle: 1, ..wish(host, n, "vm") };
        let first = c.auto(limited("ash", 1)).v4.unwrap().ips;
        let entries = c.store.entries.len();
        let second = c.auto(limited("birch", 1)).v4.unwrap().ips;
        assert_eq!(second, [Cidr::host(first[0].addr())]);
        assert_eq!(c.store.entries.len(), entries, "no block is claimed for nothing");
        assert!(matches!(c.auto(limited("ash", 2)).error, Some(IpamError::HandleLimit { limit: 1, .. })));
    });
}

#[test]
fn reserved_addresses_are_left_alone() {
    both(FOUR, |c| {
        let mut reservation = IPReservation::default();
        reservation.spec.reserved_cidrs =
            ["10.0.0.0/30", "10.0.0.4/31", " 10.0.0.8 ", "what"].map(str::to_owned).into();
        c.put(Key::resource(Kind::IPReservation, "", "r"), Value::resource(reservation));
        let (ips, messages, _) = c.auto4("ash", 16, "h");
        assert_eq!((ips.len(), messages.len()), (9, 1));
        assert!(c.block("10.0.0.0/30").is_none());
        assert_eq!(c.assign("10.0.0.4", "ash", "i"), Ok(()));
    });
}

#[test]
fn blocks_follow_their_pools_selector() {
    both(&[], |c| {
        for (name, cidr, zone) in [("e", "10.0.0.0/28", "east"), ("w", "10.1.0.0/28", "west")] {
            c.pool(name, cidr, 30, |p| p.spec.node_selector = format!("zone == '{zone}'"));
        }
        let (ips, ..) = c.auto4("ash", 1, "h");
        assert!(ips[0].starts_with("10.0."));
        c.node("ash", "west");
        // In use: kept. Empty: given up, by the release or by the next assignment.
        assert!(c.auto4("ash", 1, "i").0[0].starts_with("10.1."));
        let east = |c: &Cluster| {
            c.store.entries.keys().any(|k| matches!(k, Key::Block(b) if b.to_string().starts_with("10.0.")))
        };
        assert!(east(c));
        c.alone(ops::release_by_handle("h".into())).unwrap();
        assert!(!east(c));
        c.claim("10.0.0.0/30", "ash");
        c.auto4("ash", 1, "j");
        assert!(!east(c));
    });
}

#[test]
fn claims_and_releases_of_blocks() {
    both(FOUR, |c| {
        c.claim("10.0.0.0/30", "birch");
        let cidr: Cidr = "10.0.0.0/28".parse().unwrap();
        let got = c.alone(ops::claim_affinity(cidr, Owner::host("ash"))).unwrap();
        assert_eq!((got.claimed.len(), got.failed), (3, vec!["10.0.0.0/30".parse().unwrap()]));
        assert_eq!(c.row("ash", "10.0.0.0/30"), None);
        c.assign("10.0.0.5", "ash", "h").unwrap();
        let release = |c: &mut Cluster, cidr: &str, empty| {
            let operation = ops::release_affinity(cidr.parse().unwrap(), Owner::host("ash"), empty);
            c.alone(operation).map_err(|e| e.to_string())
        };
        assert_eq!(release(c, "10.0.0.4/30", true), Err("block '10.0.0.4/30' is not empty".to_owned()));
        assert_eq!(c.block("10.0.0.4/30").unwrap().affinity.as_deref(), Some("host:ash"));
        assert_eq!(c.row("ash", "10.0.0.4/30"), Some(AffinityState::Confirmed));
        assert_eq!(release(c, "10.0.0.0/30", false), Ok(()), "somebody else's block is passed over");
        assert_eq!(c.row("birch", "10.0.0.0/30"), Some(AffinityState::Confirmed));
        assert_eq!(
            release(c, "10.9.0.0/24", false),
            Err("The requested CIDR (10.9.0.0/24) is not within any configured pools.".to_owned())
        );
        assert_eq!(
            release(c, "10.0.0.0/31", false),
            Err("The requested CIDR (10.0.0.0/31) is smaller than the minimum.".to_owned())
        );
        let host = ops::release_host_affinities(Owner::host("ash"), true);
        assert_eq!(c.alone(host).unwrap_err().to_string(), "block '10.0.0.4/30' is not empty");
        assert!(c.block("10.0.0.8/30").is_none() && c.block("10.0.0.4/30").is_some());
        let one = c.alone(ops::release_block_affinity("10.0.0.4/30".parse().unwrap(), true));
        assert_eq!(one.unwrap_err().to_string(), "block '10.0.0.4/30' is not empty");
        c.alone(ops::release_pool_affinities(cidr)).unwrap();
        assert!(!c.store.entries.keys().any(|k| matches!(k, Key::BlockAffinity { .. })));
        assert!(c.block("10.0.0.0/30").is_none());
        assert_eq!(c.block("10.0.0.4/30").unwrap().affinity, None);
        c.alone(ops::release_block_affinity("10.0.0.4/30".parse().unwrap(), false)).unwrap();
        assert!(c.block("10.0.0.4/30").is_some(), "a block that nobody owns is left alone");
    });
    both(&[("fd00::/64", 122)], |c| {
        let whole = c.alone(ops::claim_affinity("fd00::/64".parse().unwrap(), Owner::host("ash")));
        assert!(matches!(whole, Err(IpamError::TooManyBlocks { .. })));
        let operation = ops::release_affinity("fd00::/64".parse().unwrap(), Owner::host("ash"), false);
        assert!(c.alone(operation).is_ok());
    });
}

#[test]
fn settings_that_make_no_sense_are_refused() {
    both(FOUR, |c| {
        assert_eq!(c.alone(ops::get_config()).unwrap(), IpamConfig::default());
        assert_eq!(c.writes, 0);
        let mut config = IpamConfig { auto_allocate_blocks: false, ..IpamConfig::default() };
        let text = |c: &mut Cluster, config: &IpamConfig| {
            c.alone(ops::set_config(config.clone())).unwrap_err().to_string()
        };
        assert_eq!(
            text(c, &config),
            "Cannot disable 'StrictAffinity' and 'AutoAllocateBlocks' at the same time"
        );
        (config.auto_allocate_blocks, config.max_blocks_per_host) = (true, 4);
        assert_eq!(text(c, &config), "MaxBlocksPerHost requires StrictAffinity to be enabled");
        config.strict_affinity = true;
        c.alone(ops::set_config(config.clone())).unwrap();
        assert_eq!(c.writes, 1);
        c.alone(ops::set_config(config.clone())).unwrap();
        assert_eq!(c.writes, 0, "what is so already is not written");
        assert_eq!(c.alone(ops::get_config()).unwrap(), config);
    });
}

#[test]
fn how_full_pools_are() {
    both(&[("10.0.0.0/28", 30), ("fd00::/48", 122)], |c| {
        let mut reservation = IPReservation::default();
        reservation.spec.reserved_cidrs = vec!["10.0.0.12/31".to_owned(), "10.0.0.0/31".to_owned()];
        c.put(Key::resource(Kind::IPReservation, "", "r"), Value::resource(reservation));
        c.assign("10.0.0.1", "ash", "h").unwrap();
        c.assign("10.0.0.2", "ash", "h").unwrap();
        let orphan = Block::new("10.7.0.0/30".parse().unwrap(), &Owner::host("x"), None, c.now).unwrap();
        c.put(Key::Block(orphan.cidr()), Value::Block(orphan.into_raw().into()));
        let all = c.alone(ops::utilization(Vec::new())).unwrap();
        let names: Vec<&str> = all.iter().map(|p| p.name.as_str()).collect();
        assert_eq!(names, ["pool0", "pool1", ops::ORPHANS]);
        let (four, six, orphans) = (&all[0], &all[1], &all[2]);
        assert_eq!((four.capacity, four.in_use, four.reserved, four.available), (16, 2, 4, 11));
        assert_eq!(four.blocks.len(), 1);
        assert_eq!((four.blocks[0].in_use, four.blocks[0].reserved, four.blocks[0].available), (2, 2, 1));
        assert_eq!((six.capacity, six.available), (1 << 80, 1 << 80));
        assert_eq!((orphans.capacity, orphans.blocks.len()), (0, 1));
        let named = c.alone(ops::utilization(vec!["pool1".to_owned(), "10.0.0.0/28".to_owned()])).unwrap();
        assert_eq!(named.len(), 2);
        assert_eq!(c.alone(ops::utilization(vec!["nope".to_owned()])).unwrap().len(), 0);
    });
}

#[test]
fn a_block_can_be_had_without_an_address() {
    both(&[("10.0.0.0/26", 28)], |c| {
        let reserved = calico_ipam::HostReserved {
            start_of_block: 3,
            end_of_block: 1,
            handle: calico_ipam::block::WINDOWS_RESERVED_HANDLE.into(),
            note: "kept".into(),
        };
        let args =
            AutoAssignArgs { host: "ash".into(), reserved4: Some(reserved), ..AutoAssignArgs::default() };
        let got = c.alone(ops::ensure_blocks(args.clone())).unwrap();
        let block = got.v4.unwrap();
        assert_eq!(c.block(&block.to_string()).unwrap().unallocated.len(), 12);
        assert_eq!(c.alone(ops::ensure_blocks(args.clone())).unwrap().v4, Some(block));
        let none = AutoAssignArgs { reserved4: Some(Default::default()), ..args };
        assert!(matches!(c.alone(ops::ensure_blocks(none)), Err(IpamError::BadHostReserved)));
        assert_eq!(c.alone(ops::ensure_blocks(AutoAssignArgs::default())).unwrap(), Default::default());
    });
}

#[test]
fn the_next_address_of_a_host_costs_one_read_and_one_write() {
    let mut c = Cluster::new(true, &[("10.0.0.0/16", 26)]);
    let first = c.auto4("ash", 1, "a").0;
    assert_eq!((c.reads, c.writes), (2, 1), "a claim: what is there, where to claim, all at once");
    let block: Cidr = first[0].parse::<Cidr>().unwrap().masked();
    c.auto(AutoAssignArgs { hints: vec![block], ..wish("ash", 1, "b") });
    assert_eq!((c.reads, c.writes), (1, 1));
    c.auto4("ash", 1, "c");
    assert_eq!((c.reads, c.writes), (2, 1), "without a hint the block is read apart");
    let reads = ops::release_by_handle_reads(&"b".into(), &"ash".into());
    c.run(ops::release_by_handle("b".into()), reads).unwrap();
    assert_eq!((c.reads, c.writes), (2, 1));

    let mut c = Cluster::new(false, &[("10.0.0.0/16", 26)]);
    c.auto4("ash", 1, "a");
    c.auto4("ash", 1, "b");
    assert_eq!((c.reads, c.writes), (3, 2), "surroundings, block, handle; handle, block");
}
