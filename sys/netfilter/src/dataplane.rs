//! The driver of one table: takes wishes, makes the kernel equal to them.

use calico_dpmsg::Member;
use calico_rules::nft::{NftBaseChain, NftChain, SetKey};
use smol_str::{SmolStr, format_smolstr};

use crate::chains::{Chains, Item, Lack, Owner};
use crate::kernel::{KernelError, NftKernel};
use crate::op::{Family, Op, Transaction};
use crate::sets::{SetWork, Sets};

/// Elements that go in one transaction, unless one set alone has more.
const ELEMENTS_AT_ONCE: usize = 100_000;

/// What is not as wanted after an apply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pending {
    /// What, with its name: `chain filter-cali-tw-cali1`, `set cali40s…`, `element 10.0.0.0/8 of …`.
    pub what: String,
    /// Why.
    pub reason: PendingReason,
}

/// Why something is not as wanted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PendingReason {
    /// The kernel, or `nft`, refused it.
    #[error("refused: {0}")]
    Refused(String),
    /// It leads to a chain that is not there.
    #[error("chain {0} is missing")]
    MissingChain(SmolStr),
    /// It names a set that is not there.
    #[error("set {0} is missing")]
    MissingSet(SmolStr),
    /// It names a map that was not declared.
    #[error("map {0} is missing")]
    MissingMap(SmolStr),
}

/// What an apply did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// What is not as wanted; it is tried again when its content changes, and after each resync.
    pub pending: Vec<Pending>,
    /// Transactions that were carried out.
    pub transactions: usize,
    /// The table was read.
    pub read: bool,
    /// Differences that a read found where none was expected: somebody else's changes, now undone.
    pub repaired: usize,
    /// The table was made anew.
    pub recreated: bool,
}

impl Report {
    /// True if all is as wanted.
    pub fn is_complete(&self) -> bool {
        self.pending.is_empty()
    }
}

/// What is in the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sizes {
    /// Chains.
    pub chains: usize,
    /// Rules.
    pub rules: usize,
    /// Sets.
    pub sets: usize,
    /// Members of all sets.
    pub members: usize,
    /// Verdict maps.
    pub maps: usize,
}

/// Why a pass over the table ended early.
enum Stop {
    /// Something was refused, and what is there was not read just before.
    Stale,
    Error(KernelError),
}

/// One nf_tables table, desired and actual.
///
/// Wishes only change memory. [`NftDataplane::apply`] makes the kernel equal to them: sets and their members
/// first, then chains and verdicts in one transaction, then deletions. The first apply, each one after
/// [`NftDataplane::resync`], and one that met a refusal read the table first; others rely on what earlier ones
/// did, and touch nothing but what changed. What is refused even then is found by halving, reported, and set
/// aside until its content changes or the next resync, so that it holds up nothing else.
///
/// The table belongs to the driver: whatever else is in it goes. Other tables are never touched. Nothing is
/// undone when the value is dropped.
pub struct NftDataplane<K> {
    kernel: K,
    family: Family,
    table: SmolStr,
    sets: Sets,
    chains: Chains,
    table_exists: bool,
    /// Read before the next apply, whatever the generation.
    must_read: bool,
    /// Read before the next apply if somebody else changed something.
    may_read: bool,
    recreate: bool,
    /// Why making the table anew was refused; it is tried again after a resync.
    anew_refused: Option<String>,
    /// The first read has happened.
    known: bool,
    /// Generation at which what is believed to be there was true.
    generation: Option<u32>,
}

impl<K: NftKernel> NftDataplane<K> {
    /// A driver for a table; touches nothing yet.
    pub fn new(kernel: K, family: Family, table: impl Into<SmolStr>) -> Self {
        Self {
            kernel,
            family,
            table: table.into(),
            sets: Sets::new(family.version()),
            chains: Chains::new(family),
            table_exists: false,
            must_read: true,
            may_read: false,
            recreate: false,
            anew_refused: None,
            known: false,
            generation: None,
        }
    }

    /// Family of the table.
    pub fn family(&self) -> Family {
        self.family
    }

    /// The kernel that the driver speaks to.
    pub fn kernel_mut(&mut self) -> &mut K {
        &mut self.kernel
    }

    /// Sets the chains that the kernel calls.
    pub fn set_base_chains(&mut self, chains: Vec<NftBaseChain>) {
        self.chains.set_bases(chains);
    }

    /// Wants a set of exactly `members`. Members of the other family are left out; returned are those that are
    /// of no use in a set of this type.
    pub fn set_members(
        &mut self,
        set: &SmolStr,
        key: SetKey,
        members: impl IntoIterator<Item = Member>,
    ) -> Vec<Member> {
        self.sets.replace(set, key, members)
    }

    /// Changes the members of a set; a network inside another one is kept in mind, and programmed when the
    /// wider one goes. Returned are members that are of no use in the set; all, if there is no such set.
    pub fn delta_members(&mut self, set: &SmolStr, added: &[Member], removed: &[Member]) -> Vec<Member> {
        self.sets.delta(set, added, removed).unwrap_or_else(|| added.to_vec())
    }

    /// Wants no such set. It goes once no rule names it.
    pub fn remove_set(&mut self, set: &SmolStr) {
        self.sets.remove(set);
    }

    /// Makes the chains that `owner` gives exactly these. A chain is programmed while something leads to it.
    /// If several owners give a chain of one name, the first owner's is used.
    pub fn update_chains(&mut self, owner: impl Into<Owner>, chains: Vec<NftChain>) {
        self.chains.give(owner.into(), chains);
    }

    /// Takes back all chains of `owner`. A chain that something still leads to stays as it is in the kernel.
    pub fn remove_chains(&mut self, owner: impl Into<Owner>) {
        self.chains.give(owner.into(), Vec::new());
    }

    /// Wants a map from interfaces to chains, with the elements that it is given.
    pub fn add_map(&mut self, map: &SmolStr) {
        self.chains.add_map(map);
    }

    /// Wants no such map.
    pub fn remove_map(&mut self, map: &SmolStr) {
        self.chains.remove_map(map);
    }

    /// Sends packets of `interface` to `chain`, or nowhere.
    pub fn set_verdict(&mut self, map: &SmolStr, interface: &SmolStr, chain: Option<SmolStr>) {
        self.chains.set_verdict(map, interface, chain);
    }

    /// Looks at the next apply whether somebody else changed the table, and repairs it; what was refused is
    /// tried again. Costs nothing but a question if nothing in the namespace's nf_tables changed.
    pub fn resync(&mut self) {
        self.may_read = true;
        self.anew_refused = None;
    }

    /// Reads the table at the next apply in any case.
    pub fn resync_fully(&mut self) {
        self.must_read = true;
        self.anew_refused = None;
    }

    /// Makes the table anew at the next apply, in one transaction.
    pub fn recreate(&mut self) {
        self.recreate = true;
        self.anew_refused = None;
    }

    /// What is in the kernel, as far as known.
    pub fn sizes(&self) -> Sizes {
        let (chains, rules) = self.chains.len();
        let (sets, members) = (self.sets.len(), self.sets.members());
        Sizes { chains, rules, sets, members, maps: self.chains.maps_len() }
    }

    /// Chains that something leads to and nobody gives, for diagnosis.
    pub fn dangling_chains(&self) -> Vec<SmolStr> {
        self.chains.dangling()
    }

    /// Makes the kernel equal to the wishes.
    ///
    /// # Errors
    /// If the kernel cannot be asked or told at all. What was not done stays to be done; the next apply reads
    /// the table first.
    pub fn apply(&mut self) -> Result<Report, KernelError> {
        let mut report = Report::default();
        let result = self.try_apply(&mut report);
        if result.is_err() {
            self.must_read = true;
        }
        result.map(|()| report)
    }

    fn try_apply(&mut self, report: &mut Report) -> Result<(), KernelError> {
        if self.must_read || (self.may_read && self.changed_elsewhere()) {
            self.read(report)?;
        }
        self.may_read = false;
        let fresh = report.read;
        match self.pass(fresh, report) {
            Ok(()) => Ok(()),
            Err(Stop::Error(e)) => Err(e),
            Err(Stop::Stale) => {
                self.read(report)?;
                report.pending.clear();
                match self.pass(true, report) {
                    Ok(()) => Ok(()),
                    Err(Stop::Error(e)) => Err(e),
                    Err(Stop::Stale) => Err(KernelError::Unstable),
                }
            }
        }
    }

    fn changed_elsewhere(&mut self) -> bool {
        // What was refused is worth another try after a resync, and only a read forgets refusals.
        let refused = !self.sets.refusals().is_empty() || !self.chains.refusals().is_empty();
        refused || self.generation.is_none() || self.kernel.generation() != self.generation
    }

    fn read(&mut self, report: &mut Report) -> Result<(), KernelError> {
        let before = self.kernel.generation();
        let expected = self.known.then(|| self.sets.differences() + self.chains.differences());
        let seen = self.kernel.read(self.family, &self.table)?;
        self.generation = before.filter(|b| self.kernel.generation() == Some(*b));
        self.table_exists = seen.is_some();
        let seen = seen.unwrap_or_default();
        self.sets.saw(seen.sets);
        self.recreate |= self.chains.saw(seen.chains, seen.maps);
        if let Some(expected) = expected {
            let found = self.sets.differences() + self.chains.differences();
            report.repaired += found.saturating_sub(expected);
            if found > expected {
                tracing::warn!(
                    family = self.family.name(),
                    table = %self.table,
                    differences = found - expected,
                    "another program changed our table, repairing it"
                );
            }
        }
        self.known = true;
        self.must_read = false;
        report.read = true;
        Ok(())
    }

    fn pass(&mut self, fresh: bool, report: &mut Report) -> Result<(), Stop> {
        if self.anew_refused.is_none() && (self.recreate || self.sets.is_retyped()) {
            self.make_anew(report)?;
        }
        if let Some(reason) = &self.anew_refused {
            let what = format!("table {}, made anew", self.table);
            report.pending.push(Pending { what, reason: PendingReason::Refused(reason.clone()) });
        }
        self.make_sets(fresh, report)?;
        self.fill_sets(fresh, report)?;
        self.write_chains(fresh, report)?;
        self.delete(report)?;
        for (set, member, reason) in self.sets.refusals() {
            let what = match member {
                Some(m) => format!("element {m} of set {set}"),
                None => format!("set {set}"),
            };
            report.pending.push(Pending { what, reason: PendingReason::Refused(reason) });
        }
        for (item, reason) in self.chains.refusals() {
            report.pending.push(Pending { what: name(&item), reason: PendingReason::Refused(reason) });
        }
        Ok(())
    }

    /// Carries a transaction out. The inner error is the kernel's reason for refusing it.
    fn commit(&mut self, ops: Vec<Op>, report: &mut Report) -> Result<Result<(), String>, Stop> {
        if ops.is_empty() {
            return Ok(Ok(()));
        }
        let mut tx = Transaction::new(self.family, self.table.clone());
        tx.ops = ops;
        match self.kernel.commit(&tx) {
            Ok(()) => {
                report.transactions += 1;
                // If the number grew by one, the change was ours.
                let now = self.kernel.generation();
                let expected = self.generation.map(|g| g.wrapping_add(1));
                self.generation = expected.filter(|e| now == Some(*e));
                Ok(Ok(()))
            }
            Err(KernelError::Refused { reason }) => Ok(Err(reason)),
            Err(e) => Err(Stop::Error(e)),
        }
    }

    /// The same, for a transaction that may be split: a refusal ends the pass unless what is there was read
    /// just before.
    fn commit_or_split(
        &mut self,
        ops: Vec<Op>,
        fresh: bool,
        report: &mut Report,
    ) -> Result<Result<(), String>, Stop> {
        match self.commit(ops, report)? {
            Err(_) if !fresh => Err(Stop::Stale),
            result => Ok(result),
        }
    }

    fn make_anew(&mut self, report: &mut Report) -> Result<(), Stop> {
        self.chains.saw_nothing();
        let mut ops = vec![Op::AddTable, Op::DeleteTable, Op::AddTable];
        ops.extend(self.sets.whole());
        let items = self.chains.items();
        // All sets come with the table.
        let (more, fine, lacking) = self.chains.ops(&items, &|_| true);
        ops.extend(more);
        match self.commit(ops, report)? {
            Ok(()) => {
                self.recreate = false;
                self.table_exists = true;
                self.sets.whole_done();
                self.chains.done(&fine, &lacking);
                report.recreated = true;
            }
            Err(reason) => {
                // What is there stays in force, and is mended part by part.
                self.anew_refused = Some(reason);
                self.read(report).map_err(Stop::Error)?;
            }
        }
        Ok(())
    }

    fn make_sets(&mut self, fresh: bool, report: &mut Report) -> Result<(), Stop> {
        let missing = self.sets.missing();
        if !self.table_exists {
            match self.commit_or_split(vec![Op::AddTable], fresh, report)? {
                Ok(()) => self.table_exists = true,
                Err(reason) => return Err(Stop::Error(KernelError::Refused { reason })),
            }
        }
        let mut todo = vec![missing];
        while let Some(part) = todo.pop() {
            let ops = part.iter().map(|(set, key)| Op::AddSet { set: set.clone(), key: *key }).collect();
            match self.commit_or_split(ops, fresh, report)? {
                Ok(()) => part.iter().for_each(|(set, _)| self.sets.made(set)),
                Err(reason) => match part.as_slice() {
                    [(set, _)] => self.sets.refuse_set(set, &reason),
                    _ => halve(part, &mut todo),
                },
            }
        }
        Ok(())
    }

    fn fill_sets(&mut self, fresh: bool, report: &mut Report) -> Result<(), Stop> {
        let mut todo: Vec<Vec<SetWork>> = Vec::new();
        let mut elements = 0;
        for work in self.sets.work() {
            if elements > 0 && elements + work.elements > ELEMENTS_AT_ONCE {
                elements = 0;
            }
            if elements == 0 {
                todo.push(Vec::new());
            }
            elements += work.elements.max(1);
            if let Some(part) = todo.last_mut() {
                part.push(work);
            }
        }
        todo.reverse();
        while let Some(part) = todo.pop() {
            let ops = part.iter().flat_map(|w| w.ops.iter().cloned()).collect();
            match self.commit_or_split(ops, fresh, report)? {
                Ok(()) => part.iter().for_each(|w| self.sets.done(&w.set)),
                Err(_) => match part.as_slice() {
                    [work] => self.fill_with_care(work, report)?,
                    _ => halve(part, &mut todo),
                },
            }
        }
        Ok(())
    }

    /// Fills a set whose change was refused: all of it anew, and if that is refused too, as much as goes.
    fn fill_with_care(&mut self, work: &SetWork, report: &mut Report) -> Result<(), Stop> {
        let set = &work.set;
        let rewrite = self.sets.rewrite(set);
        if self.commit(rewrite, report)?.is_ok() {
            self.sets.done(set);
            return Ok(());
        }
        // Part by part, deletions first. Members that are there and wanted stay all the time.
        for op in &work.ops {
            match op {
                Op::FlushSet { .. } => match self.commit(vec![op.clone()], report)? {
                    Ok(()) => self.sets.emptied(set),
                    Err(reason) => {
                        self.sets.refuse_set(set, &reason);
                        return Ok(());
                    }
                },
                Op::DeleteMembers { key, members, .. } => {
                    let op = |members| Op::DeleteMembers { set: set.clone(), key: *key, members };
                    self.member_parts(set, members.clone(), &op, report)?;
                }
                Op::AddMembers { key, members, .. } => {
                    let op = |members| Op::AddMembers { set: set.clone(), key: *key, members };
                    self.member_parts(set, members.clone(), &op, report)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn member_parts(
        &mut self,
        set: &SmolStr,
        members: Vec<Member>,
        op: &dyn Fn(Vec<Member>) -> Op,
        report: &mut Report,
    ) -> Result<(), Stop> {
        let mut todo = vec![members];
        while let Some(part) = todo.pop() {
            match self.commit(vec![op(part.clone())], report)? {
                Ok(()) => part.iter().for_each(|m| self.sets.done_member(set, m)),
                Err(reason) => match part.as_slice() {
                    [member] => self.sets.refuse_member(set, *member, &reason),
                    _ => halve(part, &mut todo),
                },
            }
        }
        Ok(())
    }

    fn write_chains(&mut self, fresh: bool, report: &mut Report) -> Result<(), Stop> {
        let mut items = self.chains.items();
        // Verdicts go by netlink in a transaction of their own: `nft` would first read every set's elements.
        // Where the kernel does not call our chains yet, all goes at once, so that no packet is denied for want
        // of its verdict.
        let verdicts = if self.chains.hooks_stand() {
            let first = items.iter().position(|i| matches!(i, Item::Verdict(..))).unwrap_or(items.len());
            items.split_off(first)
        } else {
            Vec::new()
        };
        let mut todo = vec![verdicts, items];
        while let Some(part) = todo.pop() {
            let sets = &self.sets;
            let (ops, fine, lacking) = self.chains.ops(&part, &|s| sets.exists(s));
            match self.commit_or_split(ops, fresh, report)? {
                Ok(()) => {
                    self.chains.done(&fine, &lacking);
                    report.pending.extend(lacking.into_iter().map(|(item, lack)| Pending {
                        what: name(&item),
                        reason: match lack {
                            Lack::Chain(c) => PendingReason::MissingChain(c),
                            Lack::Set(s) => PendingReason::MissingSet(s),
                            Lack::Map(m) => PendingReason::MissingMap(m),
                        },
                    }));
                }
                Err(reason) => match part.as_slice() {
                    [item] => self.chains.refuse(item, &reason),
                    // The first half has what the second needs.
                    _ => halve(part, &mut todo),
                },
            }
        }
        Ok(())
    }

    /// Deletes what nobody wants. What cannot go yet, because something refused still names it, is tried again
    /// by the next apply and is no error.
    fn delete(&mut self, report: &mut Report) -> Result<(), Stop> {
        let chains = self.chains.doomed_chains();
        let maps = self.chains.doomed_maps();
        let flush = chains.iter().map(|c| Op::FlushChain { chain: c.clone() });
        let drop_maps = maps.iter().map(|m| Op::DeleteMap { map: m.clone() });
        let drop = chains.iter().map(|c| Op::DeleteChain { chain: c.clone() });
        if self.commit(flush.chain(drop_maps).chain(drop).collect(), report)?.is_ok() {
            chains.iter().for_each(|c| self.chains.deleted_chain(c));
            maps.iter().for_each(|m| self.chains.deleted_map(m));
        } else {
            self.delete_one_by_one(chains, maps, report)?;
        }
        let sets = self.sets.doomed();
        let ops = sets.iter().map(|s| Op::DeleteSet { set: s.clone() }).collect();
        if self.commit(ops, report)?.is_ok() {
            sets.iter().for_each(|s| self.sets.deleted(s));
            return Ok(());
        }
        for set in sets {
            if self.commit(vec![Op::DeleteSet { set: set.clone() }], report)?.is_ok() {
                self.sets.deleted(&set);
            }
        }
        Ok(())
    }

    fn delete_one_by_one(
        &mut self,
        mut chains: Vec<SmolStr>,
        maps: Vec<SmolStr>,
        report: &mut Report,
    ) -> Result<(), Stop> {
        for map in maps {
            if self.commit(vec![Op::DeleteMap { map: map.clone() }], report)?.is_ok() {
                self.chains.deleted_map(&map);
            }
        }
        // Callers before callees, which are not known here: as long as one goes, another may.
        loop {
            let before = chains.len();
            let mut left = Vec::new();
            for chain in chains {
                let ops =
                    vec![Op::FlushChain { chain: chain.clone() }, Op::DeleteChain { chain: chain.clone() }];
                if self.commit(ops, report)?.is_ok() {
                    self.chains.deleted_chain(&chain);
                } else {
                    left.push(chain);
                }
            }
            if left.is_empty() || left.len() == before {
                return Ok(());
            }
            chains = left;
        }
    }
}

/// Puts the halves back, the first on top.
fn halve<T>(mut part: Vec<T>, todo: &mut Vec<Vec<T>>) {
    let second = part.split_off(part.len() / 2);
    todo.push(second);
    todo.push(part);
}

fn name(item: &Item) -> String {
    match item {
        Item::Map(m) => format!("map {m}"),
        Item::Chain(c) => format!("chain {c}"),
        Item::Verdict(map, iface) => format!("element {iface} of map {map}"),
    }
}

/// Deletes a table, whoever made it; true if there was one.
///
/// # Errors
/// If the kernel cannot be asked or refuses.
pub fn delete_table<K: NftKernel>(kernel: &mut K, family: Family, table: &str) -> Result<bool, KernelError> {
    if kernel.read(family, table)?.is_none() {
        return Ok(false);
    }
    let mut tx = Transaction::new(family, format_smolstr!("{table}"));
    tx.ops.push(Op::DeleteTable);
    kernel.commit(&tx).map(|()| true)
}
