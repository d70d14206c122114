//! A buffer between a syncer and a receiver that is slow.
//!
//! However long the receiver takes, there waits at most one change per key: the newest, at the place of the first.
//! What came and went in between is never seen. The kinds of changes (new, updated) are those from the receiver's
//! point of view.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use calico_model::{Key, SyncStatus, Update, UpdateType};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::SyncerCallbacks;

/// Most changes that are handed over at once.
const BATCH: usize = 100;

/// What the receiver gets.
#[derive(Debug, Clone, PartialEq)]
pub enum Batch {
    /// The status changed.
    Status(SyncStatus),
    /// Entries changed.
    Updates(Vec<Update>),
}

/// The buffer. Clones are the same buffer: one goes to the syncer as its [`SyncerCallbacks`], the other to the
/// receiver.
#[derive(Debug, Clone, Default)]
pub struct DedupeBuffer {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    notify: Notify,
}

#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "nearly all items are updates")]
enum Item {
    Status(SyncStatus),
    Update(Update),
}

#[derive(Debug, Default)]
struct State {
    /// What waits, by place.
    queue: BTreeMap<u64, Item>,
    /// Place of each key that waits.
    places: HashMap<Key, u64>,
    next_place: u64,
    /// Keys that the receiver has.
    delivered: HashSet<Key>,
    /// After a new start of the producer: keys that the receiver has and the producer has not named again.
    unconfirmed: Option<HashSet<Key>>,
    closed: bool,
}

// === impl DedupeBuffer ===

impl DedupeBuffer {
    /// An empty buffer.
    pub fn new() -> Self {
        Self::default()
    }

    /// Waits for something new; `None` once the buffer is closed and empty. Dropping the future loses nothing.
    pub async fn next(&self) -> Option<Batch> {
        loop {
            let notified = self.shared.notify.notified();
            {
                let mut state = self.shared.state.lock();
                if let Some(batch) = state.pop() {
                    return Some(batch);
                }
                if state.closed {
                    return None;
                }
            }
            notified.await;
        }
    }

    /// What is new, without waiting.
    pub fn try_next(&self) -> Option<Batch> {
        self.shared.state.lock().pop()
    }

    /// Number of things that wait.
    pub fn len(&self) -> usize {
        self.shared.state.lock().queue.len()
    }

    /// True if nothing waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The producer starts from the beginning, for example after it lost its connection. What waits is dropped; what
    /// the receiver has and the producer does not name again before it is in sync is deleted then.
    pub fn restart(&self) {
        let mut state = self.shared.state.lock();
        state.queue.clear();
        state.places.clear();
        state.unconfirmed = Some(state.delivered.clone());
    }

    /// Nothing more will come.
    pub fn close(&self) {
        self.shared.state.lock().closed = true;
        self.shared.notify.notify_one();
    }

    fn push(&self, f: impl FnOnce(&mut State)) {
        f(&mut self.shared.state.lock());
        self.shared.notify.notify_one();
    }
}

impl SyncerCallbacks for DedupeBuffer {
    fn on_status(&mut self, status: SyncStatus) {
        self.push(|state| state.push_status(status));
    }

    fn on_updates(&mut self, updates: Vec<Update>) {
        self.push(|state| updates.into_iter().for_each(|update| state.push_update(update)));
    }
}

// === impl State ===

impl State {
    fn push_status(&mut self, status: SyncStatus) {
        if status == SyncStatus::InSync {
            let mut gone: Vec<Key> = self.unconfirmed.take().unwrap_or_default().into_iter().collect();
            gone.sort_unstable();
            for key in gone {
                let kv = calico_model::KvPair::tombstone(key);
                self.push_update(Update { kv, kind: UpdateType::Deleted });
            }
        }
        match self.queue.last_entry() {
            // Nothing happened in between.
            Some(mut last) if matches!(last.get(), Item::Status(_)) => {
                last.insert(Item::Status(status));
            }
            _ => {
                self.append(Item::Status(status));
            }
        }
    }

    fn push_update(&mut self, update: Update) {
        let key = &update.kv.key;
        if let Some(unconfirmed) = &mut self.unconfirmed {
            unconfirmed.remove(key);
        }
        let useless = update.kv.value.is_none() && !self.delivered.contains(key);
        match (self.places.get(key).copied(), useless) {
            (Some(place), true) => {
                self.queue.remove(&place);
                self.places.remove(key);
            }
            (None, true) => {}
            (Some(place), false) => {
                self.queue.insert(place, Item::Update(update));
            }
            (None, false) => {
                let key = key.clone();
                let place = self.append(Item::Update(update));
                self.places.insert(key, place);
            }
        }
    }

    fn append(&mut self, item: Item) -> u64 {
        let place = self.next_place;
        self.next_place += 1;
        self.queue.insert(place, item);
        place
    }

    fn pop(&mut self) -> Option<Batch> {
        let mut updates = Vec::new();
        while let Some(first) = self.queue.first_entry() {
            match first.get() {
                Item::Status(status) if updates.is_empty() => {
                    let status = *status;
                    first.remove();
                    return Some(Batch::Status(status));
                }
                Item::Status(_) => break,
                Item::Update(_) if updates.len() == BATCH => break,
                Item::Update(_) => {
                    if let Item::Update(update) = first.remove() {
                        updates.push(self.deliver(update));
                    }
                }
            }
        }
        (!updates.is_empty()).then_some(Batch::Updates(updates))
    }

    fn deliver(&mut self, mut update: Update) -> Update {
        let key = &update.kv.key;
        self.places.remove(key);
        update.kind = if update.kv.value.is_none() {
            self.delivered.remove(key);
            UpdateType::Deleted
        } else if self.delivered.insert(key.clone()) {
            UpdateType::New
        } else {
            UpdateType::Updated
        };
        update
    }
}
