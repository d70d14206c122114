//! Operations as state machines that never touch a store themselves.
//!
//! An [`Operation`] says what it needs next ([`Step`]) and is told what came of it ([`Reply`]). Whoever drives it
//! owns the store, the clock and the waiting. Inside, an operation is an `async` block whose only await points
//! are these steps; the driver polls it by [`Operation::resume`], so no runtime is involved and the same replies
//! at the same times give the same steps.
//!
//! Invariants:
//! - exactly one step is outstanding; nothing happens between two calls of `resume`;
//! - dropping an operation between two steps is what a crash at that point is, and leaves a state that later
//!   operations bring in order.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use calico_model::{Key, KvPair, ListOptions};

use crate::error::{Failure, IpamError};

/// Reads that belong together.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReadSet {
    /// Single entries.
    pub keys: Vec<Key>,
    /// Whole lists.
    pub lists: Vec<ListOptions>,
    /// The lists must be read first, then each key after the answer for the one before it has come, unless all
    /// is read at one revision. Otherwise the order is free and the reads may run side by side.
    pub ordered: bool,
}

/// Answers to a [`ReadSet`], in its order.
#[derive(Debug, Clone, Default)]
pub struct Answers {
    /// Per key the entry, or `None` if it is not there.
    pub keys: Vec<Result<Option<KvPair>, Failure>>,
    /// Per list its entries.
    pub lists: Vec<Result<Vec<KvPair>, Failure>>,
}

/// What an operation wants next.
#[derive(Debug)]
pub enum Step<T> {
    /// Read entries and lists. Answered by [`Reply::Read`].
    Read(ReadSet),
    /// Store a new entry. Answered by [`Reply::Written`].
    Create(KvPair),
    /// Replace an entry that still has this revision. Answered by [`Reply::Written`].
    Update(KvPair),
    /// Remove an entry that still has this revision. Answered by [`Reply::Written`].
    Delete(KvPair),
    /// The writes since the last commit form a whole. A driver that carried each out at once has nothing to do.
    /// Answered by [`Reply::Committed`].
    Commit,
    /// Others were faster `attempt` times in a row: wait a little, longer with each attempt, by a random time.
    /// What was read before must be read anew. Answered by [`Reply::Paused`].
    Pause {
        /// From 1.
        attempt: u32,
    },
    /// The operation has ended.
    Done(T),
}

/// Why a write did not take place.
#[derive(Debug, Clone)]
pub enum Fault {
    /// A create found the key in use; nothing was written.
    Exists,
    /// The entry is not there; nothing was written.
    Missing,
    /// The entry has another revision; nothing was written.
    Conflict,
    /// The store failed; whether something was written is unknown.
    Failed(Failure),
}

/// What came of a [`Step`].
#[derive(Debug)]
pub enum Reply {
    /// Nothing yet: the first call.
    Start,
    /// Answers of a read.
    Read(Answers),
    /// What a create or update stored, or the entry that a delete removed.
    Written(Result<KvPair, Fault>),
    /// Whether the writes since the last commit hold.
    Committed(Result<(), Fault>),
    /// The wait is over.
    Paused,
}

/// A driver answered a step with a reply that does not belong to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the driver of an IPAM operation answered another question than was asked")]
pub struct WrongReply;

/// One operation under way. `T` is what it ends with.
pub struct Operation<T> {
    port: Arc<Mutex<Port>>,
    body: Pin<Box<dyn Future<Output = T> + Send>>,
}

/// An operation's side of the exchange.
#[derive(Clone)]
pub(crate) struct Cx {
    port: Arc<Mutex<Port>>,
}

struct Port {
    now: jiff::Timestamp,
    question: Option<Question>,
    answer: Option<Reply>,
}

enum Question {
    Read(ReadSet),
    Create(KvPair),
    Update(KvPair),
    Delete(KvPair),
    Commit,
    Pause(u32),
}

struct Call {
    port: Arc<Mutex<Port>>,
    question: Option<Question>,
}

// === impl Operation ===

impl<T> Operation<T> {
    pub(crate) fn new<F>(body: impl FnOnce(Cx) -> F) -> Self
    where
        F: Future<Output = T> + Send + 'static,
    {
        let port = Port { now: jiff::Timestamp::UNIX_EPOCH, question: None, answer: None };
        let port = Arc::new(Mutex::new(port));
        let body = Box::pin(body(Cx { port: port.clone() }));
        Self { port, body }
    }

    /// Goes on to the next step. `now` is the present time, which must not run backwards by much between calls
    /// on any machine of the cluster: sequence numbers of new blocks come from it.
    ///
    /// Not to be called again after [`Step::Done`].
    pub fn resume(&mut self, reply: Reply, now: jiff::Timestamp) -> Step<T> {
        {
            let mut port = lock(&self.port);
            port.now = now;
            port.answer = match reply {
                Reply::Start => None,
                other => Some(other),
            };
        }
        let mut context = Context::from_waker(Waker::noop());
        match self.body.as_mut().poll(&mut context) {
            Poll::Ready(result) => Step::Done(result),
            Poll::Pending => match lock(&self.port).question.take() {
                Some(Question::Read(set)) => Step::Read(set),
                Some(Question::Create(kv)) => Step::Create(kv),
                Some(Question::Update(kv)) => Step::Update(kv),
                Some(Question::Delete(kv)) => Step::Delete(kv),
                Some(Question::Pause(attempt)) => Step::Pause { attempt },
                // A body awaits nothing but calls, and a call leaves its question before it waits.
                Some(Question::Commit) | None => Step::Commit,
            },
        }
    }
}

// === impl Cx ===

impl Cx {
    /// The time of the last reply.
    pub(crate) fn now(&self) -> jiff::Timestamp {
        lock(&self.port).now
    }

    /// Reads; the answers have the shape of the question.
    pub(crate) async fn read(&self, set: ReadSet) -> Answers {
        let (keys, lists) = (set.keys.len(), set.lists.len());
        if keys + lists == 0 {
            return Answers::default();
        }
        match self.call(Question::Read(set)).await {
            Reply::Read(answers) if answers.keys.len() == keys && answers.lists.len() == lists => answers,
            _ => Answers {
                keys: vec![Err(Failure::new(WrongReply)); keys],
                lists: vec![Err(Failure::new(WrongReply)); lists],
            },
        }
    }

    /// Reads one entry.
    pub(crate) async fn get(&self, key: Key) -> Result<Option<KvPair>, IpamError> {
        let set = ReadSet { keys: vec![key], ..ReadSet::default() };
        match self.read(set).await.keys.pop() {
            Some(answer) => answer.map_err(IpamError::Store),
            None => Err(IpamError::Store(Failure::new(WrongReply))),
        }
    }

    /// Reads entries in any order.
    pub(crate) async fn get_all(&self, keys: Vec<Key>) -> Vec<Result<Option<KvPair>, Failure>> {
        self.read(ReadSet { keys, ..ReadSet::default() }).await.keys
    }

    /// Reads two entries, the second not before the first.
    pub(crate) async fn get_in_order(
        &self,
        first: Key,
        second: Key,
    ) -> Result<(Option<KvPair>, Option<KvPair>), IpamError> {
        let set = ReadSet { keys: vec![first, second], lists: Vec::new(), ordered: true };
        let mut answers = self.read(set).await.keys.into_iter();
        let mut next = || answers.next().unwrap_or(Err(Failure::new(WrongReply))).map_err(IpamError::Store);
        Ok((next()?, next()?))
    }

    /// Reads one list.
    pub(crate) async fn list(&self, list: ListOptions) -> Result<Vec<KvPair>, IpamError> {
        let set = ReadSet { lists: vec![list], ..ReadSet::default() };
        match self.read(set).await.lists.pop() {
            Some(answer) => answer.map_err(IpamError::Store),
            None => Err(IpamError::Store(Failure::new(WrongReply))),
        }
    }

    pub(crate) async fn create(&self, kv: KvPair) -> Result<KvPair, Fault> {
        written(self.call(Question::Create(kv)).await)
    }

    pub(crate) async fn update(&self, kv: KvPair) -> Result<KvPair, Fault> {
        written(self.call(Question::Update(kv)).await)
    }

    pub(crate) async fn delete(&self, kv: KvPair) -> Result<KvPair, Fault> {
        written(self.call(Question::Delete(kv)).await)
    }

    /// Ends a group of writes. After an error none of them may be taken for done, and entries held from before
    /// are stale.
    pub(crate) async fn commit(&self) -> Result<(), Fault> {
        match self.call(Question::Commit).await {
            Reply::Committed(result) => result,
            _ => Err(Fault::Failed(Failure::new(WrongReply))),
        }
    }

    pub(crate) async fn pause(&self, attempt: u32) {
        self.call(Question::Pause(attempt)).await;
    }

    fn call(&self, question: Question) -> Call {
        Call { port: self.port.clone(), question: Some(question) }
    }
}

impl Future for Call {
    type Output = Reply;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Reply> {
        if let Some(question) = self.question.take() {
            lock(&self.port).question = Some(question);
            return Poll::Pending;
        }
        match lock(&self.port).answer.take() {
            Some(reply) => Poll::Ready(reply),
            None => Poll::Ready(Reply::Start),
        }
    }
}

fn written(reply: Reply) -> Result<KvPair, Fault> {
    match reply {
        Reply::Written(result) => result,
        _ => Err(Fault::Failed(Failure::new(WrongReply))),
    }
}

/// No code panics while it holds the lock, and the data stays whole if it did.
fn lock(port: &Mutex<Port>) -> MutexGuard<'_, Port> {
    port.lock().unwrap_or_else(PoisonError::into_inner)
}
