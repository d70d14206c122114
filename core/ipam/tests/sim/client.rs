//! One client: carries out one operation in units of one store request each.

use std::collections::VecDeque;

use calico_ipam::machine::{Fault, ReadSet};
use calico_ipam::{Answers, Atomic, AtomicReply, AtomicStep, Failure, Operation, Reply, Step};
use calico_model::{Key, KvPair, ListOptions};

use crate::choose::Chooser;
use crate::store::Store;

#[derive(Debug, thiserror::Error)]
#[error("the answer was lost")]
struct Lost;

/// What one unit did.
#[derive(Debug, PartialEq, Eq)]
pub enum Unit {
    /// Nothing that others could notice, or that depends on them.
    Private,
    Read,
    Wrote,
    Done,
}

/// A client's operation, whatever its result.
pub trait Run {
    fn unit(&mut self, store: &mut Store, now: jiff::Timestamp, chooser: &mut dyn Chooser) -> Unit;
    /// Whether the next unit neither depends on others nor shows.
    fn next_is_private(&self) -> bool;
}

enum Machine<T> {
    Steps(Operation<T>),
    Atomic(Box<Atomic<T>>),
}

enum Pending {
    Start,
    /// Reads of the step form happen one by one.
    Read {
        set: ReadSet,
        left: VecDeque<Item>,
        answers: Vec<(Item, Answer)>,
    },
    ReadAll(ReadSet),
    Create(KvPair),
    Update(KvPair),
    Delete(KvPair),
    Plan(calico_ipam::Plan),
    Nothing,
    Pause,
}

#[derive(Clone, PartialEq)]
enum Item {
    Key(Key),
    List(ListOptions),
}

enum Answer {
    Key(Option<KvPair>),
    List(Vec<KvPair>),
}

pub struct Client<T> {
    machine: Machine<T>,
    pending: Pending,
    pub done: Box<dyn FnMut(T)>,
}

impl<T> Client<T> {
    pub fn new(
        operation: Operation<T>,
        prefetch: ReadSet,
        atomic: bool,
        done: impl FnMut(T) + 'static,
    ) -> Self {
        let machine = if atomic {
            Machine::Atomic(Box::new(Atomic::new(operation, prefetch)))
        } else {
            Machine::Steps(operation)
        };
        Self { machine, pending: Pending::Start, done: Box::new(done) }
    }

    fn resume(&mut self, reply: Reply, now: jiff::Timestamp, chooser: &mut dyn Chooser) -> bool {
        let Machine::Steps(operation) = &mut self.machine else { unreachable!() };
        self.pending = match operation.resume(reply, now) {
            Step::Read(set) => {
                let mut left: Vec<Item> = set.lists.iter().cloned().map(Item::List).collect();
                left.extend(set.keys.iter().cloned().map(Item::Key));
                if !set.ordered {
                    chooser.shuffle(&mut left, |a, b| a.swap(b.0, b.1));
                }
                Pending::Read { set, left: left.into(), answers: Vec::new() }
            }
            Step::Create(kv) => Pending::Create(kv),
            Step::Update(kv) => Pending::Update(kv),
            Step::Delete(kv) => Pending::Delete(kv),
            Step::Commit => Pending::Nothing,
            Step::Pause { .. } => Pending::Pause,
            Step::Done(result) => {
                (self.done)(result);
                return true;
            }
        };
        false
    }

    fn resume_atomic(&mut self, reply: AtomicReply, now: jiff::Timestamp) -> bool {
        let Machine::Atomic(atomic) = &mut self.machine else { unreachable!() };
        self.pending = match atomic.resume(reply, now) {
            AtomicStep::Read(set) => Pending::ReadAll(set),
            AtomicStep::Commit(plan) => Pending::Plan(plan),
            AtomicStep::Pause { .. } => Pending::Pause,
            AtomicStep::Done(result) => {
                (self.done)(result);
                return true;
            }
        };
        false
    }
}

impl<T> Run for Client<T> {
    fn next_is_private(&self) -> bool {
        match &self.pending {
            Pending::Start | Pending::Nothing | Pending::Pause => true,
            Pending::Read { left, .. } => left.front().is_none_or(is_constant),
            _ => false,
        }
    }

    fn unit(&mut self, store: &mut Store, now: jiff::Timestamp, chooser: &mut dyn Chooser) -> Unit {
        let steps = matches!(self.machine, Machine::Steps(_));
        let pending = std::mem::replace(&mut self.pending, Pending::Nothing);
        let (reply, unit) = match pending {
            Pending::Start if steps => (Reply::Start, Unit::Private),
            Pending::Nothing => (Reply::Committed(Ok(())), Unit::Private),
            Pending::Pause if steps => (Reply::Paused, Unit::Private),
            Pending::Read { set, mut left, mut answers } => {
                let mut unit = Unit::Private;
                if let Some(item) = left.pop_front() {
                    if !is_constant(&item) {
                        unit = Unit::Read;
                    }
                    let answer = match &item {
                        Item::Key(key) => Answer::Key(store.get(key)),
                        Item::List(list) => Answer::List(store.list(list)),
                    };
                    answers.push((item, answer));
                }
                if !left.is_empty() {
                    self.pending = Pending::Read { set, left, answers };
                    return unit;
                }
                let mut out = Answers::default();
                for key in &set.keys {
                    let place = answers.iter().position(|(i, _)| *i == Item::Key(key.clone())).unwrap();
                    let Answer::Key(kv) = &answers[place].1 else { unreachable!() };
                    out.keys.push(Ok(kv.clone()));
                }
                for list in &set.lists {
                    let place = answers.iter().position(|(i, _)| *i == Item::List(list.clone())).unwrap();
                    let Answer::List(items) = &answers[place].1 else { unreachable!() };
                    out.lists.push(Ok(items.clone()));
                }
                (Reply::Read(out), unit)
            }
            Pending::Create(kv) => {
                (Reply::Written(unsure(store, chooser, |store| store.create(kv))), Unit::Wrote)
            }
            Pending::Update(kv) => {
                (Reply::Written(unsure(store, chooser, |store| store.update(kv))), Unit::Wrote)
            }
            Pending::Delete(kv) => {
                (Reply::Written(unsure(store, chooser, |store| store.delete(&kv))), Unit::Wrote)
            }
            pending => {
                let (reply, unit) = match pending {
                    Pending::Start => (AtomicReply::Start, Unit::Private),
                    Pending::Pause => (AtomicReply::Paused, Unit::Private),
                    Pending::ReadAll(set) => (AtomicReply::Read(store.read(&set)), Unit::Read),
                    Pending::Plan(plan) => {
                        let result = unsure(store, chooser, |store| store.commit(plan));
                        (AtomicReply::Committed(result), Unit::Wrote)
                    }
                    _ => unreachable!(),
                };
                let done = self.resume_atomic(reply, now);
                return if done && unit == Unit::Private { Unit::Done } else { finish(done, unit) };
            }
        };
        let done = self.resume(reply, now, chooser);
        finish(done, unit)
    }
}

fn finish(done: bool, unit: Unit) -> Unit {
    if done { Unit::Done } else { unit }
}

fn is_constant(item: &Item) -> bool {
    matches!(item, Item::Key(Key::Resource(_)) | Item::List(ListOptions::Resource { .. }))
}

/// A write whose answer may be lost, with or without effect.
fn unsure<T>(
    store: &mut Store,
    chooser: &mut dyn Chooser,
    write: impl FnOnce(&mut Store) -> Result<T, Fault>,
) -> Result<T, Fault> {
    match chooser.lose_answer() {
        Some(false) => Err(Fault::Failed(Failure::new(Lost))),
        Some(true) => {
            let _done = write(store);
            Err(Fault::Failed(Failure::new(Lost)))
        }
        None => write(store),
    }
}
