//! Operations on a store that writes many keys at once.
//!
//! [`Atomic`] drives an [`Operation`] on a snapshot. Reads are answered from what was read before; writes gather
//! in an overlay; at the end of each group of writes the overlay becomes one [`Plan`]: every entry written must
//! still have the revision at which it was read, then all writes happen together. Intermediate states, such as
//! an affinity that is pending for a moment, are never seen by others. If the plan meets a conflict, snapshot
//! and overlay are dropped and the operation goes on as after a lost write.
//!
//! Entries that were read and not written carry no condition. The step-by-step protocol is safe when they are
//! stale, and so is this form, which is the same protocol with fewer interleavings.

use std::collections::{BTreeMap, HashMap};

use calico_model::{Key, KvPair, ListOptions, Revision};

use crate::error::Failure;
use crate::machine::{Answers, Fault, Operation, ReadSet, Reply, Step};

/// Writes that must happen all or not at all.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Plan {
    /// Per key the revision it must have, or `None` if it must be absent.
    pub conditions: Vec<(Key, Option<Revision>)>,
    /// Per key what to store, or `None` to remove it. No key stands twice.
    pub writes: Vec<(Key, Option<KvPair>)>,
}

/// What an atomic operation wants next.
#[derive(Debug)]
pub enum AtomicStep<T> {
    /// Read these, if possible at one revision.
    Read(ReadSet),
    /// Carry out the plan.
    Commit(Plan),
    /// As [`Step::Pause`].
    Pause {
        /// From 1.
        attempt: u32,
    },
    /// The operation has ended.
    Done(T),
}

/// What came of an [`AtomicStep`].
#[derive(Debug)]
pub enum AtomicReply {
    /// The first call.
    Start,
    /// Answers of a read.
    Read(Answers),
    /// The revision at which a plan was carried out; [`Fault::Conflict`] if a condition did not hold.
    Committed(Result<Revision, Fault>),
    /// The wait is over.
    Paused,
}

/// An operation whose writes happen in whole groups.
pub struct Atomic<T> {
    operation: Operation<T>,
    prefetch: ReadSet,
    known: HashMap<Key, Known>,
    lists: HashMap<ListOptions, Result<Vec<KvPair>, Failure>>,
    overlay: BTreeMap<Key, Change>,
    waiting: Waiting,
    round: u64,
}

/// What was read of a key, and in which read; later reads show later states.
struct Known {
    entry: Result<Option<KvPair>, Failure>,
    round: u64,
}

/// What an entry was when the group began, and what it is to become.
struct Change {
    base: Option<Revision>,
    value: Option<KvPair>,
}

enum Waiting {
    Nothing,
    /// The operation's own question, and what is being fetched for it.
    Read {
        asked: ReadSet,
        fetching: ReadSet,
    },
    /// A create whose key has not been looked at yet.
    Create {
        kv: KvPair,
        fetching: ReadSet,
    },
    Commit,
}

/// What to tell the operation; `None` while something has to be fetched for it.
type Outcome = Option<Reply>;

// === impl Atomic ===

impl<T> Atomic<T> {
    /// Wraps `operation`. `prefetch` is read together with the first thing that is not known, and again after
    /// each conflict: what the operation will most likely want.
    pub fn new(operation: Operation<T>, prefetch: ReadSet) -> Self {
        Self {
            operation,
            prefetch,
            known: HashMap::new(),
            lists: HashMap::new(),
            overlay: BTreeMap::new(),
            waiting: Waiting::Nothing,
            round: 0,
        }
    }

    /// Goes on to the next step; see [`Operation::resume`].
    pub fn resume(&mut self, reply: AtomicReply, now: jiff::Timestamp) -> AtomicStep<T> {
        let waiting = std::mem::replace(&mut self.waiting, Waiting::Nothing);
        let mut outcome = match (waiting, reply) {
            (_, AtomicReply::Start) => Some(Reply::Start),
            (Waiting::Read { asked, fetching }, AtomicReply::Read(answers)) => {
                self.learn(fetching, answers);
                self.answer(asked)
            }
            (Waiting::Create { kv, fetching }, AtomicReply::Read(answers)) => {
                self.learn(fetching, answers);
                self.create(kv)
            }
            (Waiting::Commit, AtomicReply::Committed(Ok(revision))) => {
                self.settle(&revision);
                Some(Reply::Committed(Ok(())))
            }
            (Waiting::Commit, AtomicReply::Committed(Err(fault))) => {
                self.forget();
                // A plan never creates what it knows to exist, so every definite refusal is a conflict.
                Some(Reply::Committed(Err(match fault {
                    Fault::Failed(failure) => Fault::Failed(failure),
                    _ => Fault::Conflict,
                })))
            }
            _ => Some(Reply::Paused),
        };
        loop {
            let reply = match outcome {
                Some(reply) => reply,
                None => {
                    return match &self.waiting {
                        Waiting::Read { fetching, .. } | Waiting::Create { fetching, .. } => {
                            AtomicStep::Read(fetching.clone())
                        }
                        _ => AtomicStep::Read(ReadSet::default()),
                    };
                }
            };
            outcome = match self.operation.resume(reply, now) {
                Step::Done(result) => return AtomicStep::Done(result),
                Step::Read(asked) => self.answer(asked),
                Step::Create(kv) => self.create(kv),
                Step::Update(kv) => Some(Reply::Written(self.replace(kv))),
                Step::Delete(kv) => Some(Reply::Written(self.remove(kv))),
                Step::Pause { attempt } => {
                    self.forget();
                    return AtomicStep::Pause { attempt };
                }
                Step::Commit => {
                    let plan = self.plan();
                    if plan.writes.is_empty() {
                        self.overlay.clear();
                        Some(Reply::Committed(Ok(())))
                    } else {
                        self.waiting = Waiting::Commit;
                        return AtomicStep::Commit(plan);
                    }
                }
            };
        }
    }

    /// Answers a read, or notes what has to be fetched for it.
    fn answer(&mut self, asked: ReadSet) -> Outcome {
        let again = asked.ordered && !self.known_in_order(&asked.keys);
        let lacks_key = |k: &&Key| !self.overlay.contains_key(*k) && (again || !self.known.contains_key(*k));
        let keys: Vec<Key> = asked.keys.iter().filter(lacks_key).cloned().collect();
        let lists: Vec<ListOptions> =
            asked.lists.iter().filter(|l| !self.lists.contains_key(*l)).cloned().collect();
        if keys.is_empty() && lists.is_empty() {
            let answers = Answers {
                keys: asked.keys.iter().map(|key| self.view(key)).collect(),
                lists: asked.lists.iter().map(|list| self.view_list(list)).collect(),
            };
            return Some(Reply::Read(answers));
        }
        let fetching = self.with_prefetch(ReadSet { keys, lists, ordered: true });
        self.waiting = Waiting::Read { asked, fetching };
        None
    }

    fn create(&mut self, kv: KvPair) -> Outcome {
        if !self.overlay.contains_key(&kv.key) && !self.known.contains_key(&kv.key) {
            let missing = ReadSet { keys: vec![kv.key.clone()], lists: Vec::new(), ordered: true };
            let fetching = self.with_prefetch(missing);
            self.waiting = Waiting::Create { kv, fetching };
            return None;
        }
        let result = match self.view(&kv.key) {
            Err(failure) => Err(Fault::Failed(failure)),
            Ok(Some(_)) => Err(Fault::Exists),
            Ok(None) => Ok(self.put(kv)),
        };
        Some(Reply::Written(result))
    }

    fn replace(&mut self, kv: KvPair) -> Result<KvPair, Fault> {
        self.must_match(&kv)?;
        Ok(self.put(kv))
    }

    fn remove(&mut self, kv: KvPair) -> Result<KvPair, Fault> {
        self.must_match(&kv)?;
        let base = self.base(&kv);
        self.overlay.insert(kv.key.clone(), Change { base, value: None });
        Ok(kv)
    }

    /// Fails unless the entry is, as far as known, at the revision that the caller holds.
    fn must_match(&self, kv: &KvPair) -> Result<(), Fault> {
        if !self.overlay.contains_key(&kv.key) && !self.known.contains_key(&kv.key) {
            return Ok(());
        }
        match self.view(&kv.key) {
            Err(failure) => Err(Fault::Failed(failure)),
            Ok(None) => Err(Fault::Missing),
            Ok(Some(seen)) if seen.revision != kv.revision => Err(Fault::Conflict),
            Ok(Some(_)) => Ok(()),
        }
    }

    fn put(&mut self, kv: KvPair) -> KvPair {
        let base = self.base(&kv);
        // The revision stays that of the stored entry: it is what the next change of the group must name.
        let kv = KvPair { revision: base.clone().unwrap_or_default(), ..kv };
        self.overlay.insert(kv.key.clone(), Change { base, value: Some(kv.clone()) });
        kv
    }

    /// Revision of the entry when the group began.
    fn base(&self, kv: &KvPair) -> Option<Revision> {
        match (self.overlay.get(&kv.key), self.known.get(&kv.key)) {
            (Some(change), _) => change.base.clone(),
            (None, Some(Known { entry: Ok(stored), .. })) => stored.as_ref().map(|s| s.revision.clone()),
            (None, _) => Some(kv.revision.clone()),
        }
    }

    fn view(&self, key: &Key) -> Result<Option<KvPair>, Failure> {
        match self.overlay.get(key) {
            Some(change) => Ok(change.value.clone()),
            None => self.known.get(key).map_or(Ok(None), |known| known.entry.clone()),
        }
    }

    fn view_list(&self, list: &ListOptions) -> Result<Vec<KvPair>, Failure> {
        let stored = match self.lists.get(list) {
            Some(Ok(items)) => items.as_slice(),
            Some(Err(failure)) => return Err(failure.clone()),
            None => &[],
        };
        if !self.overlay.keys().any(|key| list_has(list, key)) {
            return Ok(stored.to_vec());
        }
        let mut items: Vec<KvPair> =
            stored.iter().filter(|kv| !self.overlay.contains_key(&kv.key)).cloned().collect();
        let changed = self.overlay.iter().filter(|(key, _)| list_has(list, key));
        items.extend(changed.filter_map(|(_, change)| change.value.clone()));
        items.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(items)
    }

    /// Whether no key was read before the one in front of it.
    fn known_in_order(&self, keys: &[Key]) -> bool {
        let rounds: Vec<u64> = keys.iter().filter_map(|k| self.known.get(k)).map(|k| k.round).collect();
        rounds.len() == keys.len() && rounds.is_sorted()
    }

    fn with_prefetch(&self, mut wanted: ReadSet) -> ReadSet {
        if self.known.is_empty() && self.lists.is_empty() {
            let keys = self.prefetch.keys.iter().filter(|k| !wanted.keys.contains(k));
            let keys: Vec<Key> = keys.cloned().collect();
            let lists = self.prefetch.lists.iter().filter(|l| !wanted.lists.contains(l));
            let lists: Vec<ListOptions> = lists.cloned().collect();
            wanted.keys.extend(keys);
            wanted.lists.extend(lists);
        }
        wanted
    }

    fn learn(&mut self, asked: ReadSet, answers: Answers) {
        self.round += 1;
        let round = self.round;
        for (list, answer) in asked.lists.into_iter().zip(answers.lists) {
            for kv in answer.iter().flatten() {
                self.known.insert(kv.key.clone(), Known { entry: Ok(Some(kv.clone())), round });
            }
            self.lists.insert(list, answer);
        }
        for (key, entry) in asked.keys.into_iter().zip(answers.keys) {
            self.known.insert(key, Known { entry, round });
        }
    }

    /// The revisions that a carried out plan gave.
    fn settle(&mut self, revision: &Revision) {
        self.round += 1;
        for (key, change) in std::mem::take(&mut self.overlay) {
            let now = change.value.map(|kv| kv.at(revision.clone()));
            for (list, items) in &mut self.lists {
                let Ok(items) = items else { continue };
                if list_has(list, &key) {
                    items.retain(|kv| kv.key != key);
                    if let Some(kv) = &now {
                        let place = items.partition_point(|other| other.key < key);
                        items.insert(place, kv.clone());
                    }
                }
            }
            self.known.insert(key, Known { entry: Ok(now), round: self.round });
        }
    }

    fn forget(&mut self) {
        self.known.clear();
        self.lists.clear();
        self.overlay.clear();
    }

    fn plan(&self) -> Plan {
        let mut plan = Plan::default();
        for (key, change) in &self.overlay {
            plan.conditions.push((key.clone(), change.base.clone()));
            // What was made and removed within the group must only have been absent all the time.
            if change.base.is_some() || change.value.is_some() {
                plan.writes.push((key.clone(), change.value.clone()));
            }
        }
        plan
    }
}

/// Whether an IPAM entry belongs to a list. Objects are never written by operations, so they belong to none.
fn list_has(list: &ListOptions, key: &Key) -> bool {
    match (list, key) {
        (ListOptions::Blocks { version }, Key::Block(cidr)) => version.is_none_or(|v| v == cidr.version()),
        (
            ListOptions::BlockAffinities { affinity, owner, version },
            Key::BlockAffinity { affinity: of, owner: name, cidr },
        ) => {
            affinity == of
                && owner.as_ref().is_none_or(|o| o == name)
                && version.is_none_or(|v| v == cidr.version())
        }
        (ListOptions::Handles, Key::IpamHandle(_)) | (ListOptions::IpamConfig, Key::IpamConfig) => true,
        _ => false,
    }
}
