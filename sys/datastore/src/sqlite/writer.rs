//! The thread that writes.
//!
//! Requests queue on a channel. The thread takes all that wait, waits for its turn among the processes, and
//! commits them in one SQLite transaction: one `fsync` serves them all. Each request still has its own revision
//! and its own result, as if it had been alone.

use std::fs::File;
use std::sync::{Arc, mpsc};
use std::thread;

use calico_model::path::KeyRange;
use parking_lot::Mutex;
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};
use tokio::sync::oneshot;

use super::file::{self, DbError, Files, Result};
use super::{CHANGES_PER_REVISION, SqliteOptions, change_id, get, now_ms, range_now, store_row};
use crate::raw::{RawCondition, RawEntry, RawOutcome, RawTxn, RawWrite};

/// Most requests of one commit.
const GROUP: usize = 256;

/// Compaction is considered each time the revision passes a multiple of this.
const COMPACT_EVERY: u64 = 256;

/// Changes that compaction looks at in one step; two steps at a time, so that it outruns the writers.
const COMPACT_STEP: u64 = 512;

/// A request and where its answer goes.
pub(super) enum Job {
    Commit {
        txn: RawTxn,
        reply: oneshot::Sender<Result<RawOutcome>>,
    },
    DeleteRange {
        range: KeyRange,
        reply: oneshot::Sender<Result<()>>,
    },
    Compact {
        revision: u64,
        reply: oneshot::Sender<Result<()>>,
    },
    /// Remove what has outlived its time.
    Expire,
}

/// Handle of the thread; it ends when all handles are gone or one of them says stop.
#[derive(Debug, Clone)]
pub(super) struct Writer {
    jobs: Arc<Mutex<Option<mpsc::Sender<Job>>>>,
}

// === impl Writer ===

impl Writer {
    pub(super) fn start(files: Arc<Files>, options: SqliteOptions) -> Self {
        let (sender, jobs) = mpsc::channel();
        let work = move || Work { files, options, open: None }.run(&jobs);
        // Without the thread the channel is closed, and every request is answered so.
        if let Err(error) = thread::Builder::new().name("calico-db-write".into()).spawn(work) {
            tracing::error!(%error, "cannot start the database's writer thread");
        }
        Self { jobs: Arc::new(Mutex::new(Some(sender))) }
    }

    /// Queues a request; false if the thread is gone.
    pub(super) fn send(&self, job: Job) -> bool {
        self.jobs.lock().as_ref().is_some_and(|jobs| jobs.send(job).is_ok())
    }

    pub(super) fn stop(&self) {
        self.jobs.lock().take();
    }
}

struct Open {
    db: Connection,
    notify: File,
}

struct Work {
    files: Arc<Files>,
    options: SqliteOptions,
    open: Option<Open>,
}

// === impl Work ===

impl Work {
    fn run(mut self, jobs: &mpsc::Receiver<Job>) {
        while let Ok(first) = jobs.recv() {
            let mut group = vec![first];
            group.extend(jobs.try_iter().take(GROUP - 1));
            self.answer(group);
        }
    }

    /// Commits `group`; if that fails, each request alone, so that a bad one does not spoil the others.
    fn answer(&mut self, mut group: Vec<Job>) {
        match self.commit(&group) {
            Ok(results) => {
                for (job, result) in group.into_iter().zip(results) {
                    job.answer(Ok(result));
                }
            }
            Err(error) => {
                // The next request starts with fresh connections.
                self.open = None;
                if group.len() > 1 {
                    for job in group {
                        self.answer(vec![job]);
                    }
                } else if let Some(job) = group.pop() {
                    job.fail(error);
                }
            }
        }
    }

    fn commit(&mut self, group: &[Job]) -> Result<Vec<Done>> {
        let _turn = self.files.lock_writers()?;
        let open = match &mut self.open {
            Some(open) => open,
            closed => {
                let db = self.files.open_writer()?;
                closed.insert(Open { db, notify: self.files.open_notify()? })
            }
        };
        let tx = open.db.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let (before, compacted) = store_row(&tx)?;
        let mut state = State { tx, revision: before, compacted, now: now_ms() };
        state.expire()?;
        let results = group.iter().map(|job| state.apply(job)).collect::<Result<Vec<_>>>()?;
        if state.revision / COMPACT_EVERY != before / COMPACT_EVERY {
            state.compact_old(&self.options)?;
        }
        let changed = (state.revision, state.compacted) != (before, compacted);
        if changed {
            state
                .tx
                .prepare_cached("UPDATE store SET revision = ?1, compacted = ?2")?
                .execute(params![state.revision, state.compacted])?;
            state.tx.commit()?;
            file::touch(&open.notify);
        } else {
            state.tx.finish()?;
        }
        Ok(results)
    }
}

/// Result of one request.
enum Done {
    Outcome(RawOutcome),
    Unit,
    /// The request itself was wrong.
    Refused(DbError),
}

// === impl Job ===

impl Job {
    fn answer(self, result: Result<Done>) {
        // Nobody may wait for the answer any more; that is fine.
        match (self, result) {
            (Self::Commit { reply, .. }, Ok(Done::Outcome(outcome))) => drop(reply.send(Ok(outcome))),
            (Self::DeleteRange { reply, .. } | Self::Compact { reply, .. }, Ok(Done::Unit)) => {
                drop(reply.send(Ok(())));
            }
            (job, Ok(Done::Refused(error)) | Err(error)) => job.fail(error),
            (job, Ok(Done::Outcome(_) | Done::Unit)) => drop(job),
        }
    }

    fn fail(self, error: DbError) {
        match self {
            Self::Commit { reply, .. } => drop(reply.send(Err(error))),
            Self::DeleteRange { reply, .. } | Self::Compact { reply, .. } => drop(reply.send(Err(error))),
            Self::Expire => tracing::debug!(%error, "cannot remove expired entries"),
        }
    }
}

/// The state of a commit in the making.
struct State<'a> {
    tx: Transaction<'a>,
    revision: u64,
    compacted: u64,
    now: i64,
}

// === impl State ===

impl State<'_> {
    fn apply(&mut self, job: &Job) -> Result<Done> {
        match job {
            Job::Commit { txn, .. } => Ok(Done::Outcome(self.commit(txn)?)),
            Job::DeleteRange { range, .. } => {
                let paths = range_now(&self.tx, range, i64::MIN)?.into_iter().map(|e| e.path).collect();
                self.remove_all(paths)?;
                Ok(Done::Unit)
            }
            Job::Compact { revision, .. } if *revision < self.compacted => {
                Ok(Done::Refused(DbError::Compacted(*revision)))
            }
            Job::Compact { revision, .. } if *revision > self.revision => {
                Ok(Done::Refused(DbError::Future { asked: *revision, current: self.revision }))
            }
            Job::Compact { revision, .. } => {
                self.compact(*revision)?;
                Ok(Done::Unit)
            }
            // Every commit begins with this.
            Job::Expire => Ok(Done::Unit),
        }
    }

    fn modified(&self, path: &str) -> Result<Option<u64>> {
        let mut query = self.tx.prepare_cached("SELECT modified FROM entries WHERE path = ?1")?;
        Ok(query.query_row([path], |row| row.get(0)).optional()?)
    }

    fn commit(&mut self, txn: &RawTxn) -> Result<RawOutcome> {
        for condition in &txn.conditions {
            let holds = match (condition, self.modified(condition.path())?) {
                (RawCondition::Absent(_), stored) => stored.is_none(),
                (RawCondition::Revision(_, wanted), stored) => stored == Some(*wanted),
            };
            if !holds {
                let reported = txn.conditions.iter().filter(|_| txn.report_conflict);
                let current = reported.map(|c| get(&self.tx, c.path(), i64::MIN)).collect::<Result<_>>()?;
                return Ok(RawOutcome::Conflict { current });
            }
        }
        let mut change = Change { revision: self.revision + 1, number: 0 };
        let mut removed = Vec::with_capacity(txn.writes.len());
        for write in &txn.writes {
            removed.push(match write {
                RawWrite::Put { path, value, ttl } => {
                    self.put(&mut change, path, value, *ttl)?;
                    None
                }
                RawWrite::Delete(path) => self.remove(&mut change, path)?,
            });
        }
        if change.number > 0 {
            self.revision = change.revision;
        }
        Ok(RawOutcome::Committed { revision: self.revision, removed })
    }

    fn put(&self, change: &mut Change, path: &str, value: &[u8], ttl: Option<u64>) -> Result<()> {
        let mut query = self.tx.prepare_cached("SELECT created FROM entries WHERE path = ?1")?;
        let old: Option<u64> = query.query_row([path], |row| row.get(0)).optional()?;
        let created = old.unwrap_or(change.revision);
        self.log(change, path, Some(created), old.is_some())?;
        let expires = ttl.map(|s| self.now.saturating_add_unsigned(s.saturating_mul(1000)));
        self.tx
            .prepare_cached(
                "INSERT INTO entries (path, value, created, modified, expires) VALUES (?1, ?2, ?3, ?4, ?5)
                 ON CONFLICT (path) DO UPDATE SET value = ?2, modified = ?4, expires = ?5",
            )?
            .execute(params![path, value, created, change.revision, expires])?;
        change.number += 1;
        Ok(())
    }

    fn remove(&self, change: &mut Change, path: &str) -> Result<Option<RawEntry>> {
        let old = get(&self.tx, path, i64::MIN)?;
        if old.is_some() {
            self.log(change, path, None, true)?;
            self.tx.prepare_cached("DELETE FROM entries WHERE path = ?1")?.execute([path])?;
            change.number += 1;
        }
        Ok(old)
    }

    /// Notes a change, with what is stored now as the old value.
    fn log(&self, change: &Change, path: &str, new_created: Option<u64>, old: bool) -> Result<()> {
        let sql = if old {
            "INSERT INTO changes (id, path, at, new_created, old_created, old_modified, old_value)
             SELECT ?1, ?2, ?3, ?4, created, modified, value FROM entries WHERE path = ?2"
        } else {
            "INSERT INTO changes (id, path, at, new_created) VALUES (?1, ?2, ?3, ?4)"
        };
        let id = change_id(change.revision, change.number);
        self.tx.prepare_cached(sql)?.execute(params![id, path, self.now, new_created])?;
        Ok(())
    }

    /// Removes `paths`, at as few revisions as the numbering of changes allows.
    fn remove_all(&mut self, paths: Vec<String>) -> Result<()> {
        let chunk = usize::try_from(CHANGES_PER_REVISION).unwrap_or(usize::MAX);
        for paths in paths.chunks(chunk) {
            let mut change = Change { revision: self.revision + 1, number: 0 };
            for path in paths {
                self.remove(&mut change, path)?;
            }
            if change.number > 0 {
                self.revision = change.revision;
            }
        }
        Ok(())
    }

    fn expire(&mut self) -> Result<()> {
        let mut query = self.tx.prepare_cached("SELECT path FROM entries WHERE expires <= ?1")?;
        let paths =
            query.query_map([self.now], |row| row.get(0))?.collect::<rusqlite::Result<Vec<String>>>()?;
        drop(query);
        self.remove_all(paths)
    }

    fn compact(&mut self, revision: u64) -> Result<()> {
        let end = change_id(revision + 1, 0);
        self.tx.prepare_cached("DELETE FROM changes WHERE id < ?1")?.execute([end])?;
        self.compacted = revision;
        Ok(())
    }

    /// Forgets changes that are too old or too many, a few at a time.
    fn compact_old(&mut self, options: &SqliteOptions) -> Result<()> {
        let age = i64::try_from(options.keep_age.as_millis()).unwrap_or(i64::MAX);
        for _ in 0..2 {
            let mut query =
                self.tx.prepare_cached("SELECT id, at FROM changes ORDER BY id LIMIT 1 OFFSET ?1")?;
            let row = |row: &rusqlite::Row<'_>| Ok((row.get::<_, u64>(0)?, row.get::<_, i64>(1)?));
            let Some((id, at)) = query.query_row([COMPACT_STEP - 1], row).optional()? else { break };
            drop(query);
            let revision = id / CHANGES_PER_REVISION;
            let old = at <= self.now.saturating_sub(age);
            let many = revision.saturating_add(options.keep_revisions) <= self.revision;
            if !(old || many) || revision >= self.revision {
                break;
            }
            self.compact(revision)?;
        }
        Ok(())
    }
}

/// Where the next change of a transaction goes.
struct Change {
    revision: u64,
    number: u64,
}
