//! Hosts, pools and pods in miniature: what was promised to whom, and what must hold at every moment.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::rc::Rc;

use calico_api::{IPPool, IPPoolSpec, IPReservation, Kind, Node, ObjectMeta};
use calico_ipam::block::{Holding, handle_name};
use calico_ipam::ops::{self, AssignArgs, AutoAssignArgs, AutoAssigned, ReleaseOptions, ReleaseOutcome};
use calico_ipam::{Block, IpamError, Operation, Owner, ReadSet};
use calico_model::ipam::{AffinityState, AllocationBlock, IpamConfig};
use calico_model::{AffinityType, Key, KvPair, Value};
use calico_net::Cidr;
use smol_str::{SmolStr, ToSmolStr, format_smolstr};

use crate::choose::Chooser;
use crate::client::{Client, Run, Unit};
use crate::store::Store;

/// An address that somebody was told to have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Promise {
    pub handle: SmolStr,
}

/// What happened outside the store.
#[derive(Default)]
pub struct Ledger {
    pub live: BTreeMap<IpAddr, Promise>,
    /// Handles under which addresses may be held that nobody was told about: of operations that stopped.
    pub loose: BTreeSet<SmolStr>,
    pub violations: Vec<String>,
}

pub struct World {
    pub store: Store,
    pub ledger: Rc<RefCell<Ledger>>,
    pub now: jiff::Timestamp,
    pub slots: Vec<Option<Box<dyn Run>>>,
    /// Handles that the operation in each slot works on.
    pub working_on: Vec<Vec<SmolStr>>,
    pub reserved: Vec<Cidr>,
    pub clean: bool,
    next_handle: u32,
}

pub const HOSTS: [&str; 3] = ["anna", "bert", "cleo"];

fn node(name: &str, zone: &str) -> KvPair {
    let mut node = Node::default();
    node.metadata.name = name.to_owned();
    node.metadata.labels.insert("zone".to_owned(), zone.to_owned());
    KvPair::new(Key::resource(Kind::Node, "", name), Value::resource(node))
}

fn pool(name: &str, cidr: &str, block: i64) -> KvPair {
    let metadata = ObjectMeta { name: name.to_owned(), ..ObjectMeta::default() };
    let spec = IPPoolSpec { cidr: cidr.to_owned(), block_size: block, ..IPPoolSpec::default() };
    let mut pool = IPPool::default();
    (pool.metadata, pool.spec) = (metadata, spec);
    KvPair::new(Key::resource(Kind::IPPool, "", name), Value::resource(pool))
}

impl World {
    pub fn new(clients: usize, pools: &[(&str, i64)]) -> Self {
        let mut store = Store::default();
        for host in HOSTS {
            store.create(node(host, "east")).unwrap();
        }
        for (i, (cidr, block)) in pools.iter().enumerate() {
            store.create(pool(&format!("pool{i}"), cidr, *block)).unwrap();
        }
        Self {
            store,
            ledger: Rc::default(),
            now: "2026-01-01T00:00:00Z".parse().unwrap(),
            slots: (0..clients).map(|_| None).collect(),
            working_on: vec![Vec::new(); clients],
            reserved: Vec::new(),
            clean: true,
            next_handle: 0,
        }
    }

    pub fn reserve(&mut self, cidr: &str) {
        let mut reservation = IPReservation::default();
        reservation.metadata.name = "kept".to_owned();
        reservation.spec.reserved_cidrs.push(cidr.to_owned());
        let key = Key::resource(Kind::IPReservation, "", "kept");
        self.store.create(KvPair::new(key, Value::resource(reservation))).unwrap();
        self.reserved.push(cidr.parse().unwrap());
    }

    pub fn fresh_handle(&mut self) -> SmolStr {
        self.next_handle += 1;
        format_smolstr!("h{}", self.next_handle)
    }

    pub fn tick(&mut self, nanos: i64) {
        self.now = self.now.checked_add(jiff::SignedDuration::from_nanos(nanos)).unwrap();
    }

    // Operations.

    pub fn put<T: 'static>(
        &mut self,
        slot: usize,
        operation: Operation<T>,
        reads: ReadSet,
        atomic: bool,
        done: impl FnMut(T) + 'static,
    ) {
        self.slots[slot] = Some(Box::new(Client::new(operation, reads, atomic, done)));
    }

    pub fn auto_assign(&mut self, slot: usize, args: AutoAssignArgs, atomic: bool) {
        let ledger = self.ledger.clone();
        let handle = args.handle.clone().unwrap();
        self.working_on[slot] = vec![handle.clone()];
        let (asked4, reserved) = (args.num4 + args.num6, self.reserved.clone());
        let reads = ops::auto_assign_reads(&args);
        self.put(slot, ops::auto_assign(args), reads, atomic, move |result: AutoAssigned| {
            let mut ledger = ledger.borrow_mut();
            if let Some(error) = &result.error {
                ledger.loose.insert(handle.clone());
                if !matches!(error, IpamError::Store(_) | IpamError::BlockLimit | IpamError::NoBlock) {
                    ledger.violations.push(format!("auto-assign failed: {error}"));
                }
            }
            let got = [result.v4, result.v6].into_iter().flatten().flat_map(|a| a.ips);
            let got: Vec<IpAddr> = got.map(|ip| ip.addr()).collect();
            if got.len() > asked4 as usize {
                ledger.violations.push(format!("asked for {asked4}, got {got:?}"));
            }
            for ip in got {
                if reserved.iter().any(|r| r.contains(ip)) {
                    ledger.violations.push(format!("{ip} is reserved and was assigned"));
                }
                ledger.promise(ip, &handle);
            }
        });
    }

    pub fn assign(&mut self, slot: usize, ip: IpAddr, host: &str, handle: SmolStr, atomic: bool) {
        let ledger = self.ledger.clone();
        self.working_on[slot] = vec![handle.clone()];
        let args = AssignArgs { handle: Some(handle.clone()), ..AssignArgs::new(ip, host) };
        self.put(slot, ops::assign(args), ReadSet::default(), atomic, move |result| {
            let mut ledger = ledger.borrow_mut();
            match result {
                Ok(()) => ledger.promise(ip, &handle),
                Err(IpamError::AlreadyAssigned { .. } | IpamError::OtherOwner { .. }) => {}
                Err(IpamError::Store(_)) => drop(ledger.loose.insert(handle.clone())),
                Err(error) => ledger.violations.push(format!("assign {ip} failed: {error}")),
            }
        });
    }

    /// Releases promised addresses by address.
    pub fn release(&mut self, slot: usize, ips: Vec<IpAddr>, exact: bool, atomic: bool) {
        let mut requests = Vec::new();
        let mut handles = Vec::new();
        for ip in &ips {
            let promise = self.ledger.borrow_mut().live.remove(ip).unwrap();
            let mut request = ReleaseOptions::address(*ip);
            if exact {
                request.handle = promise.handle.clone();
                request.sequence = self.holding(*ip).map(|(_, sequence)| sequence);
            }
            handles.push(promise.handle);
            requests.push(request);
        }
        self.working_on[slot] = handles.clone();
        let ledger = self.ledger.clone();
        self.put(
            slot,
            ops::release_ips(requests),
            ReadSet::default(),
            atomic,
            move |result: ReleaseOutcome| {
                let mut ledger = ledger.borrow_mut();
                match result.error {
                    None if result.unallocated.is_empty() => {}
                    None => {
                        let lost = format!("released {ips:?}, but nobody held {:?}", result.unallocated);
                        ledger.violations.push(lost);
                    }
                    Some(IpamError::Store(_)) => ledger.loose.extend(handles.iter().cloned()),
                    Some(error) => ledger.violations.push(format!("release of {ips:?} failed: {error}")),
                }
            },
        );
    }

    /// Releases all addresses of a handle.
    pub fn release_handle(&mut self, slot: usize, handle: SmolStr, atomic: bool) {
        self.ledger.borrow_mut().live.retain(|_, promise| promise.handle != handle);
        self.working_on[slot] = vec![handle.clone()];
        let ledger = self.ledger.clone();
        let reads = ops::release_by_handle_reads(&handle, &HOSTS[0].to_smolstr());
        self.put(slot, ops::release_by_handle(handle.clone()), reads, atomic, move |result| {
            let mut ledger = ledger.borrow_mut();
            match result {
                Ok(()) => {}
                Err(IpamError::Store(_)) => drop(ledger.loose.insert(handle.clone())),
                Err(error) => ledger.violations.push(format!("release of {handle} failed: {error}")),
            }
        });
    }

    /// An operation on blocks; what it returns does not matter, unless it gave up.
    pub fn blocks<T: 'static>(
        &mut self,
        slot: usize,
        operation: Operation<Result<T, IpamError>>,
        atomic: bool,
    ) {
        let ledger = self.ledger.clone();
        self.working_on[slot].clear();
        self.put(slot, operation, ReadSet::default(), atomic, move |result: Result<T, IpamError>| {
            if let Err(IpamError::Contention) = result {
                ledger.borrow_mut().violations.push("gave up an operation on blocks".to_owned());
            }
        });
    }

    /// One unit of the operation in `slot`; then everything that must hold is checked.
    pub fn unit(&mut self, slot: usize, chooser: &mut dyn Chooser) {
        let Some(run) = &mut self.slots[slot] else { return };
        let unit = run.unit(&mut self.store, self.now, chooser);
        if unit == Unit::Done {
            self.slots[slot] = None;
            self.working_on[slot].clear();
        }
        if matches!(unit, Unit::Done | Unit::Wrote) {
            self.check();
        }
    }

    pub fn next_is_private(&self, slot: usize) -> bool {
        self.slots[slot].as_ref().is_some_and(|run| run.next_is_private())
    }

    /// The client in `slot` stops for ever.
    pub fn crash(&mut self, slot: usize) {
        self.slots[slot] = None;
        let handles = std::mem::take(&mut self.working_on[slot]);
        self.ledger.borrow_mut().loose.extend(handles);
        self.clean = false;
    }

    pub fn run_alone(&mut self, slot: usize, chooser: &mut dyn Chooser) {
        let mut units = 0;
        while self.slots[slot].is_some() {
            self.unit(slot, chooser);
            self.tick(1_000_000);
            units += 1;
            if units > 100_000 {
                self.ledger.borrow_mut().violations.push("an operation does not end".to_owned());
                return;
            }
        }
    }

    // Looking.

    pub fn stored_blocks(&self) -> Vec<&AllocationBlock> {
        let blocks = self.store.entries.values().filter_map(|kv| match &kv.value {
            Some(Value::Block(block)) => Some(&**block),
            _ => None,
        });
        blocks.collect()
    }

    pub fn cooldown(&self) -> u32 {
        self.config().ip_cooldown_seconds
    }

    pub fn config(&self) -> IpamConfig {
        match self.store.get(&Key::IpamConfig).and_then(|kv| kv.value) {
            Some(Value::IpamConfig(config)) => config,
            _ => IpamConfig::default(),
        }
    }

    fn affinities(&self) -> Vec<(&Key, Option<AffinityState>)> {
        let rows = self.store.entries.values().filter_map(|kv| match &kv.value {
            Some(Value::BlockAffinity(affinity)) => Some((&kv.key, affinity.state)),
            _ => None,
        });
        rows.collect()
    }

    /// Where nobody stopped half way, every owner has an affinity for its blocks and for nothing else.
    fn check_owners(&mut self) {
        let mut rows: BTreeSet<(SmolStr, Cidr)> = BTreeSet::new();
        for (key, state) in self.affinities() {
            if let Key::BlockAffinity { affinity, owner, cidr } = key
                && state == Some(AffinityState::Confirmed)
            {
                rows.insert((Owner { affinity: *affinity, name: owner.clone() }.text(), *cidr));
            }
        }
        let owned = self.stored_blocks().into_iter().filter_map(|b| Some((b.affinity.clone()?, b.cidr)));
        let owned: BTreeSet<(SmolStr, Cidr)> = owned.collect();
        if rows != owned {
            let differ: Vec<_> = rows.symmetric_difference(&owned).collect();
            self.ledger.borrow_mut().violations.push(format!("affinities and owners differ in {differ:?}"));
        }
    }

    /// Handle and sequence number of an address in use.
    pub fn holding(&self, ip: IpAddr) -> Option<(SmolStr, u64)> {
        let raw = self.stored_blocks().into_iter().find(|b| b.cidr.contains(ip))?;
        let block = Block::load(raw.clone(), self.cooldown(), self.now).unwrap();
        let ordinal = block.ordinal(ip)?;
        match block.holding(ordinal) {
            Holding::Held(attribute) => {
                Some((attribute.handle_id.clone().unwrap_or_default(), block.allocation_sequence(ordinal)))
            }
            _ => None,
        }
    }

    /// Every address in use, with its handle.
    pub fn in_use(&self) -> BTreeMap<IpAddr, SmolStr> {
        let mut all = BTreeMap::new();
        for raw in self.stored_blocks() {
            let block = Block::load(raw.clone(), self.cooldown(), self.now).unwrap();
            for ordinal in 0..raw.allocations.len() as u32 {
                if let Holding::Held(attribute) = block.holding(ordinal) {
                    let handle = handle_name(attribute.handle_id.as_deref().unwrap_or_default()).into();
                    all.insert(block.address(ordinal).unwrap(), handle);
                }
            }
        }
        all
    }

    // What must hold.

    pub fn check(&mut self) {
        let mut found = Vec::new();
        let mut counts: BTreeMap<(SmolStr, SmolStr), u64> = BTreeMap::new();
        for raw in self.stored_blocks() {
            for defect in calico_ipam::block::check(raw, self.now) {
                found.push(format!("block {}: {defect}", raw.cidr));
            }
            for attribute in raw.allocations.iter().flatten().map(|i| &raw.attributes[*i as usize]) {
                if let Some(handle) = &attribute.handle_id {
                    *counts.entry((handle.clone(), raw.cidr.to_smolstr())).or_insert(0) += 1;
                }
            }
        }
        for ((handle, block), count) in counts {
            let counted = match self.store.get(&Key::IpamHandle(handle.clone())).and_then(|kv| kv.value) {
                Some(Value::IpamHandle(value)) => value.block.get(&block).copied().unwrap_or(0),
                _ => 0,
            };
            if counted < count {
                found.push(format!(
                    "handle {handle} counts {counted} addresses in {block}, which has {count}"
                ));
            }
        }
        for (key, state) in self.affinities() {
            let Key::BlockAffinity { affinity, owner, cidr } = key else { continue };
            let wanted = Owner { affinity: *affinity, name: owner.clone() }.text();
            let stored = self.stored_blocks().into_iter().find(|b| b.cidr == *cidr);
            let owned = stored.is_some_and(|b| b.affinity.as_ref() == Some(&wanted));
            if state == Some(AffinityState::Confirmed) && !owned {
                found.push(format!("{owner} has a confirmed affinity for {cidr}, which it does not own"));
            }
        }
        let in_use = self.in_use();
        let mut ledger = self.ledger.borrow_mut();
        for (ip, promise) in &ledger.live {
            if in_use.get(ip) != Some(&promise.handle) {
                found.push(format!(
                    "{ip} was promised to {}, but {:?} has it",
                    promise.handle,
                    in_use.get(ip)
                ));
            }
        }
        ledger.violations.extend(found);
    }

    /// Nothing is under way: what stopped clients left is found by its handle and released; then the store must
    /// agree with what was promised, every free address must be there to be had, and in the end nothing be left.
    pub fn settle(&mut self, atomic: bool, total: usize, chooser: &mut dyn Chooser) {
        for slot in 0..self.slots.len() {
            self.run_alone(slot, chooser);
        }
        if self.clean {
            self.check_owners();
        }
        let loose: Vec<SmolStr> = self.ledger.borrow().loose.iter().cloned().collect();
        for handle in loose {
            let live: Vec<IpAddr> = self.ledger.borrow().live.keys().copied().collect();
            let seen: Rc<RefCell<Vec<IpAddr>>> = Rc::default();
            let sink = seen.clone();
            self.put(0, ops::ips_by_handle(handle.clone()), ReadSet::default(), atomic, move |result| {
                *sink.borrow_mut() = result.unwrap_or_default();
            });
            self.run_alone(0, chooser);
            let strays: Vec<IpAddr> = seen.borrow().iter().copied().filter(|ip| !live.contains(ip)).collect();
            for ip in strays {
                self.ledger.borrow_mut().live.insert(ip, Promise { handle: handle.clone() });
                self.release(0, vec![ip], true, atomic);
                self.run_alone(0, chooser);
            }
        }
        let promised: BTreeSet<IpAddr> = self.ledger.borrow().live.keys().copied().collect();
        let in_use: BTreeSet<IpAddr> = self.in_use().into_keys().collect();
        if promised != in_use {
            let lost: Vec<_> = in_use.symmetric_difference(&promised).collect();
            self.ledger.borrow_mut().violations.push(format!("promised and stored differ in {lost:?}"));
        }
        self.owners_run_again(atomic, total, chooser);
        self.tear_down(atomic, chooser);
    }

    fn owners_run_again(&mut self, atomic: bool, total: usize, chooser: &mut dyn Chooser) {
        let config = IpamConfig { auto_allocate_blocks: true, ..IpamConfig::default() };
        self.blocks(0, ops::set_config(config), atomic);
        self.run_alone(0, chooser);
        self.tick(2_000_000_000_000);
        let free = total - self.ledger.borrow().live.len();
        let handle = self.fresh_handle();
        let args = AutoAssignArgs {
            num4: free as u32,
            handle: Some(handle.clone()),
            host: HOSTS[0].into(),
            intended_use: "Workload".into(),
            max_blocks_per_host: 1000,
            ..AutoAssignArgs::default()
        };
        self.auto_assign(0, args, atomic);
        self.run_alone(0, chooser);
        let got = self.ledger.borrow().live.values().filter(|p| p.handle == handle).count();
        if got != free {
            self.ledger
                .borrow_mut()
                .violations
                .push(format!("{free} addresses are free, {got} could be had"));
        }
    }

    fn tear_down(&mut self, atomic: bool, chooser: &mut dyn Chooser) {
        let handles: BTreeSet<SmolStr> =
            self.ledger.borrow().live.values().map(|p| p.handle.clone()).collect();
        for (i, handle) in handles.into_iter().enumerate() {
            self.release_handle(0, handle, (i % 2 == 0) ^ atomic);
            self.run_alone(0, chooser);
        }
        for host in HOSTS {
            self.blocks(
                0,
                ops::remove_host(Owner { affinity: AffinityType::Host, name: host.into() }),
                atomic,
            );
            self.run_alone(0, chooser);
        }
        let left: Vec<String> = self
            .store
            .entries
            .values()
            .filter(|kv| match kv.key {
                Key::Block(_) | Key::BlockAffinity { .. } => true,
                Key::IpamHandle(_) => self.clean,
                _ => false,
            })
            .map(|kv| format!("{:?}", kv.key))
            .collect();
        if !left.is_empty() {
            self.ledger.borrow_mut().violations.push(format!("left over: {left:?}"));
        }
    }
}

impl Ledger {
    fn promise(&mut self, ip: IpAddr, handle: &SmolStr) {
        let promise = Promise { handle: handle.clone() };
        if let Some(before) = self.live.insert(ip, promise) {
            self.violations.push(format!("{ip} was handed out to {handle} while {} has it", before.handle));
        }
    }
}
