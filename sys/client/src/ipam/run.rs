//! Drivers: carrying out the steps of an operation on a backend.

use std::time::Duration;

use calico_datastore::{Backend, Condition, StoreError, Transactions, Txn, TxnOutcome, Write};
use calico_ipam::{
    Answers, Atomic, AtomicReply, AtomicStep, Failure, Fault, Operation, Plan, ReadSet, Reply, Step,
};
use calico_model::{Key, KvPair, ListOptions, Revision};
use futures::future::{join, join_all};
use rand::RngExt as _;

use super::Clock;

/// Longest wait after the first lost attempt; doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_micros(500);

/// Longest wait at all.
const LONGEST_PAUSE: Duration = Duration::from_millis(40);

/// Carries out an operation step by step.
pub(super) async fn steps<T>(mut operation: Operation<T>, backend: &dyn Backend, clock: &Clock) -> T {
    let mut reply = Reply::Start;
    loop {
        reply = match operation.resume(reply, clock()) {
            Step::Done(result) => return result,
            Step::Read(set) => Reply::Read(read_one_by_one(backend, &set).await),
            Step::Create(kv) => Reply::Written(backend.create(kv).await.map_err(fault)),
            Step::Update(kv) => Reply::Written(backend.update(kv).await.map_err(fault)),
            Step::Delete(kv) => {
                Reply::Written(backend.delete(&kv.key, Some(&kv.revision)).await.map_err(fault))
            }
            Step::Commit => Reply::Committed(Ok(())),
            Step::Pause { attempt } => {
                pause(attempt).await;
                Reply::Paused
            }
        };
    }
}

/// Carries out an operation in whole transactions.
pub(super) async fn atomic<T>(
    mut operation: Atomic<T>,
    backend: &dyn Backend,
    transactions: &dyn Transactions,
    clock: &Clock,
) -> T {
    let mut reply = AtomicReply::Start;
    loop {
        reply = match operation.resume(reply, clock()) {
            AtomicStep::Done(result) => return result,
            AtomicStep::Read(set) => AtomicReply::Read(read_together(backend, transactions, &set).await),
            AtomicStep::Commit(plan) => AtomicReply::Committed(commit(transactions, plan).await),
            AtomicStep::Pause { attempt } => {
                pause(attempt).await;
                AtomicReply::Paused
            }
        };
    }
}

async fn read_one_by_one(backend: &dyn Backend, set: &ReadSet) -> Answers {
    if set.ordered {
        let lists = read_lists(backend, &set.lists).await;
        let mut keys = Vec::with_capacity(set.keys.len());
        for key in &set.keys {
            keys.push(get(backend, key).await);
        }
        Answers { keys, lists }
    } else {
        let keys = join_all(set.keys.iter().map(|key| get(backend, key)));
        let (keys, lists) = join(keys, read_lists(backend, &set.lists)).await;
        Answers { keys, lists }
    }
}

/// Reads everything side by side, the keys at one revision.
///
/// What an operation may conclude from a block depends on having seen its affinity no later. An affinity that is
/// younger than the keys' revision may have been read too late, so then the keys are read again.
async fn read_together(backend: &dyn Backend, transactions: &dyn Transactions, set: &ReadSet) -> Answers {
    let (lists, (mut keys, revision)) =
        join(read_lists(backend, &set.lists), read_keys(backend, transactions, &set.keys)).await;
    let younger = |kv: &KvPair| {
        matches!(kv.key, Key::BlockAffinity { .. })
            && kv.revision.as_u64() > revision.as_ref().and_then(Revision::as_u64)
    };
    if !set.keys.is_empty() && lists.iter().flatten().flatten().any(younger) {
        keys = read_keys(backend, transactions, &set.keys).await.0;
    }
    Answers { keys, lists }
}

/// Entries and the revision they were read at, if it was one.
async fn read_keys(
    backend: &dyn Backend,
    transactions: &dyn Transactions,
    keys: &[Key],
) -> (Vec<Result<Option<KvPair>, Failure>>, Option<Revision>) {
    if keys.is_empty() {
        return (Vec::new(), None);
    }
    match transactions.get_many(keys).await {
        Ok((found, revision)) => (found.into_iter().map(Ok).collect(), Some(revision)),
        // One entry that cannot be read spoils them all; alone each has its own answer.
        Err(StoreError::Parse { .. }) => {
            let mut found = Vec::with_capacity(keys.len());
            for key in keys {
                found.push(get(backend, key).await);
            }
            (found, None)
        }
        Err(error) => (vec![Err(Failure::new(error)); keys.len()], None),
    }
}

async fn get(backend: &dyn Backend, key: &Key) -> Result<Option<KvPair>, Failure> {
    match backend.get(key, None).await {
        Ok(kv) => Ok(Some(kv)),
        Err(StoreError::DoesNotExist { .. }) => Ok(None),
        Err(error) => Err(Failure::new(error)),
    }
}

async fn read_lists(backend: &dyn Backend, lists: &[ListOptions]) -> Vec<Result<Vec<KvPair>, Failure>> {
    let list = |options| async move {
        backend.list(options, None).await.map(|list| list.items).map_err(Failure::new)
    };
    join_all(lists.iter().map(list)).await
}

async fn commit(transactions: &dyn Transactions, plan: Plan) -> Result<Revision, Fault> {
    let conditions = plan.conditions.into_iter().map(|(key, revision)| match revision {
        Some(revision) => Condition::Revision(key, revision),
        None => Condition::Absent(key),
    });
    let writes = plan.writes.into_iter().map(|(key, value)| match value {
        Some(kv) => Write::Put(kv),
        None => Write::Delete(key),
    });
    let txn = Txn { conditions: conditions.collect(), writes: writes.collect() };
    match transactions.commit(txn).await {
        Ok(TxnOutcome::Committed(revision)) => Ok(revision),
        Ok(TxnOutcome::Conflict) => Err(Fault::Conflict),
        Err(error) => Err(fault(error)),
    }
}

fn fault(error: StoreError) -> Fault {
    match error {
        StoreError::AlreadyExists { .. } => Fault::Exists,
        StoreError::DoesNotExist { .. } => Fault::Missing,
        StoreError::UpdateConflict { .. } => Fault::Conflict,
        error => Fault::Failed(Failure::new(error)),
    }
}

/// Waits for a random part of a time that grows with each lost attempt, so that clients which met once do not meet
/// again and again.
async fn pause(attempt: u32) {
    let longest = FIRST_PAUSE.saturating_mul(1 << attempt.min(8)).min(LONGEST_PAUSE);
    let part: f64 = rand::rng().random();
    tokio::time::sleep(longest.mul_f64(part)).await;
}
