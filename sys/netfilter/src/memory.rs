//! nf_tables in memory, for tests: same checks as the kernel's where the driver could get them wrong.

use std::collections::{BTreeMap, BTreeSet};

use calico_dpmsg::Member;
use calico_rules::nft::{NftRule, SetKey, hash_of_comment};
use smol_str::SmolStr;

use crate::kernel::{KernelError, NftKernel, SeenChain, SeenHook, SeenMap, SeenSet, SeenTable};
use crate::op::{Family, Op, Transaction};

/// A chain.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MemoryChain {
    /// Hook, if it has one.
    pub hook: Option<SeenHook>,
    /// Rules: text and comment.
    pub rules: Vec<(String, String)>,
}

/// A table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MemoryTable {
    /// Chains.
    pub chains: BTreeMap<SmolStr, MemoryChain>,
    /// Sets: type and members.
    pub sets: BTreeMap<SmolStr, (SetKey, BTreeSet<Member>)>,
    /// Verdict maps: chain by interface.
    pub maps: BTreeMap<SmolStr, BTreeMap<SmolStr, SmolStr>>,
}

/// The tables of a namespace, a record of what was asked, and faults to order.
#[derive(Debug, Clone, Default)]
pub struct MemoryNft {
    /// Tables.
    pub tables: BTreeMap<(Family, SmolStr), MemoryTable>,
    /// Transactions that were carried out.
    pub log: Vec<Transaction>,
    /// Times that a table was read.
    pub reads: usize,
    /// Any change whose text holds one of these is refused.
    pub poison: Vec<String>,
    generation: u32,
}

impl MemoryNft {
    /// Changes a table as another program would.
    pub fn tamper(&mut self, family: Family, table: &str, change: impl FnOnce(&mut MemoryTable)) {
        if let Some(t) = self.tables.get_mut(&(family, table.into())) {
            change(t);
        }
        self.generation = self.generation.wrapping_add(1);
    }

    fn carry_out(&self, tx: &Transaction) -> Result<Option<MemoryTable>, String> {
        let mut table = self.tables.get(&(tx.family, tx.table.clone())).cloned();
        for op in &tx.ops {
            let single = Transaction { family: tx.family, table: tx.table.clone(), ops: vec![op.clone()] };
            let text = single.script();
            if let Some(p) = self.poison.iter().find(|p| text.contains(p.as_str())) {
                return Err(format!("poisoned by {p}: {text}"));
            }
            match op {
                Op::AddTable => {
                    table.get_or_insert_default();
                }
                Op::DeleteTable => table = table.take().map(|_| None).ok_or("no such table")?,
                op => step(table.as_mut().ok_or("no such table")?, op, tx.family)?,
            }
        }
        if let Some(t) = &table {
            t.check()?;
        }
        Ok(table)
    }
}

fn no(what: &str, name: &str) -> String {
    format!("no such {what}: {name}")
}

fn step(t: &mut MemoryTable, op: &Op, family: Family) -> Result<(), String> {
    match op {
        Op::AddTable | Op::DeleteTable => {}
        Op::AddBaseChain { chain, hook } => {
            let hook = crate::seen_hook(family, hook);
            let old = t
                .chains
                .entry(chain.clone())
                .or_insert_with(|| MemoryChain { hook: Some(hook.clone()), rules: vec![] });
            if old.hook.as_ref() != Some(&hook) {
                return Err(format!("chain exists otherwise: {chain}"));
            }
        }
        Op::AddChain { chain } => {
            t.chains.entry(chain.clone()).or_default();
        }
        Op::FlushChain { chain } => {
            t.chains.get_mut(chain).ok_or_else(|| no("chain", chain))?.rules.clear();
        }
        Op::DeleteChain { chain } => {
            let old = t.chains.remove(chain).ok_or_else(|| no("chain", chain))?;
            if !old.rules.is_empty() {
                return Err(format!("chain has rules: {chain}"));
            }
        }
        Op::AddRule { chain, rule: NftRule { text, comment, .. } } => {
            let c = t.chains.get_mut(chain).ok_or_else(|| no("chain", chain))?;
            c.rules.push((text.clone(), comment.clone()));
            for name in named_by(text) {
                if !t.chains.contains_key(name) && !t.sets.contains_key(name) && !t.maps.contains_key(name) {
                    return Err(no("object", name));
                }
            }
        }
        Op::AddSet { set, key } => {
            if t.sets.entry(set.clone()).or_insert((*key, BTreeSet::new())).0 != *key {
                return Err(format!("set exists otherwise: {set}"));
            }
        }
        Op::DeleteSet { set } => {
            t.sets.remove(set).ok_or_else(|| no("set", set))?;
        }
        Op::FlushSet { set } => t.sets.get_mut(set).ok_or_else(|| no("set", set))?.1.clear(),
        Op::AddMembers { set, members, .. } => {
            let (key, have) = t.sets.get_mut(set).ok_or_else(|| no("set", set))?;
            for m in members {
                let clash = |x: &Member| matches!((x, m), (Member::Net(a), Member::Net(b)) if a != b && a.overlaps(b));
                if *key == SetKey::Net && have.iter().any(clash) {
                    return Err(format!("interval overlaps: {m}"));
                }
                have.insert(*m);
            }
        }
        Op::DeleteMembers { set, members, .. } => {
            let (_, have) = t.sets.get_mut(set).ok_or_else(|| no("set", set))?;
            for m in members {
                if !have.remove(m) {
                    return Err(no("element", &m.to_string()));
                }
            }
        }
        Op::AddMap { map } => {
            t.maps.entry(map.clone()).or_default();
        }
        Op::DeleteMap { map } => {
            t.maps.remove(map).ok_or_else(|| no("map", map))?;
        }
        Op::FlushMap { map } => t.maps.get_mut(map).ok_or_else(|| no("map", map))?.clear(),
        Op::AddVerdicts { map, entries } => {
            let m = t.maps.get_mut(map).ok_or_else(|| no("map", map))?;
            for (iface, chain) in entries {
                if m.get(iface).is_some_and(|c| c != chain) {
                    return Err(format!("element exists otherwise: {iface}"));
                }
                m.insert(iface.clone(), chain.clone());
                if !t.chains.contains_key(chain) {
                    return Err(no("chain", chain));
                }
            }
        }
        Op::DeleteVerdicts { map, entries } => {
            let m = t.maps.get_mut(map).ok_or_else(|| no("map", map))?;
            for (iface, _) in entries {
                m.remove(iface).ok_or_else(|| no("element", iface))?;
            }
        }
    }
    Ok(())
}

impl MemoryTable {
    /// Nothing names what is not there.
    fn check(&self) -> Result<(), String> {
        let exists =
            |n: &str| self.chains.contains_key(n) || self.sets.contains_key(n) || self.maps.contains_key(n);
        let texts = self.chains.values().flat_map(|c| &c.rules).flat_map(|(text, _)| named_by(text));
        let chains = self.maps.values().flat_map(|m| m.values().map(SmolStr::as_str));
        match texts.chain(chains).find(|n| !exists(n)) {
            Some(name) => Err(format!("busy: {name}")),
            None => Ok(()),
        }
    }
}

/// Chains, sets and maps that a rule's text names.
fn named_by(text: &str) -> impl Iterator<Item = &str> {
    let words: Vec<&str> = text.split(' ').collect();
    let mut out: Vec<&str> = words.iter().filter_map(|w| w.strip_prefix('@')).collect();
    out.extend(words.windows(2).filter(|w| matches!(w[0], "jump" | "goto")).map(|w| w[1]));
    out.into_iter()
}

impl NftKernel for MemoryNft {
    fn read(&mut self, family: Family, table: &str) -> Result<Option<SeenTable>, KernelError> {
        self.reads += 1;
        let Some(t) = self.tables.get(&(family, table.into())) else { return Ok(None) };
        let hash = |(_, comment): &(String, String)| hash_of_comment(comment).map(SmolStr::from);
        Ok(Some(SeenTable {
            chains: t
                .chains
                .iter()
                .map(|(n, c)| {
                    let hashes = c.rules.iter().map(hash).collect();
                    (n.clone(), SeenChain { hook: c.hook.clone(), hashes })
                })
                .collect(),
            sets: t
                .sets
                .iter()
                .map(|(n, (key, m))| {
                    let members = m.iter().copied().collect();
                    (n.clone(), SeenSet { key: Some(*key), members, odd: false })
                })
                .collect(),
            maps: t
                .maps
                .iter()
                .map(|(n, m)| {
                    let entries = m.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
                    (n.clone(), SeenMap { entries, ..SeenMap::default() })
                })
                .collect(),
        }))
    }

    fn commit(&mut self, transaction: &Transaction) -> Result<(), KernelError> {
        let result = self.carry_out(transaction).map_err(|reason| KernelError::Refused { reason })?;
        let at = (transaction.family, transaction.table.clone());
        match result {
            Some(t) => self.tables.insert(at, t),
            None => self.tables.remove(&at),
        };
        self.log.push(transaction.clone());
        self.generation = self.generation.wrapping_add(1);
        Ok(())
    }

    fn generation(&mut self) -> Option<u32> {
        Some(self.generation)
    }
}
