//! The embedded store: one SQLite file that all processes of a host share.
//!
//! Owns: the file (`file`), reading it (this module), the thread that writes (`writer`) and the thread that
//! notices changes and tells the streams of this process (`wake`).
//!
//! Next to the database `x.db` stand SQLite's own `x.db-wal` and `x.db-shm`, the lock file `x.db.lock` on which
//! writers of all processes queue, and `x.db.notify`, which a writer touches after each commit. All of them
//! have to be on a local file system; a container mounts the directory, not the file.
//!
//! Invariants: a write is answered after its commit is on disk; readers never wait for writers; every change
//! since the last compaction is in the change log, so that a stream can start at any kept revision and a value
//! can be read as it was. Making a [`SqliteRaw`] does no work; the file is opened by the first use.

use std::collections::{BTreeMap, btree_map};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use calico_model::path::KeyRange;
use parking_lot::Mutex;
use rusqlite::types::Value as SqlValue;
use rusqlite::{CachedStatement, Connection, OptionalExtension, Row, params, params_from_iter};
use tokio::sync::oneshot;

use crate::StoreError;
use crate::raw::{self, RawEntry, RawEvents, RawOutcome, RawStore, RawTxn};

mod file;
mod wake;
mod writer;

#[cfg(test)]
mod tests;

use file::{DbError, Files, Result};
use wake::Wake;
use writer::{Job, Writer};

/// How much history is kept, and how fast a change is seen without help from the notify file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SqliteOptions {
    /// Most revisions in the change log.
    pub keep_revisions: u64,
    /// Changes older than this may go.
    pub keep_age: Duration,
    /// How often to look for changes of a writer that died between commit and notification.
    pub poll: Duration,
}

impl Default for SqliteOptions {
    fn default() -> Self {
        Self { keep_revisions: 20_000, keep_age: Duration::from_secs(3600), poll: Duration::from_secs(1) }
    }
}

/// The store. Clones share their connections.
#[derive(Debug, Clone)]
pub struct SqliteRaw {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    files: Arc<Files>,
    options: SqliteOptions,
    /// Connections for reading that are not in use.
    idle: Mutex<Vec<Connection>>,
    writer: OnceLock<Writer>,
    wake: OnceLock<Wake>,
    closed: AtomicBool,
}

// === impl SqliteRaw ===

impl SqliteRaw {
    /// Most conditions or writes in one transaction.
    pub const MAX_OPERATIONS: usize = 4096;

    /// The store in the file at `path`, which need not exist before [`RawStore::initialize`]. `why` says for
    /// error messages why this store was chosen; it may be empty.
    pub fn new(path: &Path, why: &str, options: SqliteOptions) -> Self {
        Self {
            inner: Arc::new(Inner {
                files: Arc::new(Files::new(path, why)),
                options,
                idle: Mutex::new(Vec::new()),
                writer: OnceLock::new(),
                wake: OnceLock::new(),
                closed: AtomicBool::new(false),
            }),
        }
    }

    /// The database file.
    pub fn path(&self) -> PathBuf {
        self.inner.files.database.clone()
    }

    /// Runs `f` with a connection for reading on a thread where it may block.
    async fn read<T, F>(&self, f: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T> + Send + 'static,
    {
        let inner = Arc::clone(&self.inner);
        let work = move || inner.read(f);
        match tokio::task::spawn_blocking(work).await {
            Ok(result) => result.map_err(|error| self.inner.files.explain(error)),
            Err(_) => Err(raw::closed(&self.inner.files.description)),
        }
    }

    /// Has the writer do `job`.
    async fn write<T>(&self, job: impl FnOnce(oneshot::Sender<Result<T>>) -> Job) -> Result<T, StoreError> {
        let (reply, result) = oneshot::channel();
        if !self.inner.closed.load(Ordering::Acquire) {
            // If the thread is gone the request is dropped, and with it the way to answer.
            self.inner.writer().send(job(reply));
            if let Ok(result) = result.await {
                return result.map_err(|error| self.inner.files.explain(error));
            }
        }
        Err(raw::closed(&self.inner.files.description))
    }
}

// === impl Inner ===

impl Inner {
    fn read<T>(&self, f: impl FnOnce(&Connection) -> Result<T>) -> Result<T> {
        if self.closed.load(Ordering::Acquire) {
            return Err(DbError::Closed);
        }
        let idle = self.idle.lock().pop();
        let connection = match idle {
            Some(connection) => connection,
            None => self.files.open_reader()?,
        };
        let result = f(&connection);
        if result.is_ok() && !self.closed.load(Ordering::Acquire) {
            self.idle.lock().push(connection);
        }
        result
    }

    fn writer(&self) -> &Writer {
        self.writer.get_or_init(|| Writer::start(Arc::clone(&self.files), self.options))
    }
}

#[async_trait]
impl RawStore for SqliteRaw {
    fn description(&self) -> String {
        self.inner.files.description.clone()
    }

    fn max_operations(&self) -> usize {
        Self::MAX_OPERATIONS
    }

    async fn commit(&self, txn: RawTxn) -> Result<RawOutcome, StoreError> {
        raw::check_txn(&txn, Self::MAX_OPERATIONS)?;
        self.write(|reply| Job::Commit { txn, reply }).await
    }

    async fn get(
        &self,
        paths: &[String],
        at: Option<u64>,
    ) -> Result<(Vec<Option<RawEntry>>, u64), StoreError> {
        let paths = paths.to_vec();
        self.read(move |db| {
            snapshot(db, |db| {
                let (revision, past) = read_revision(db, at)?;
                let now = now_ms();
                let get =
                    |path: &String| if past { get_past(db, path, revision) } else { get(db, path, now) };
                Ok((paths.iter().map(get).collect::<Result<_>>()?, revision))
            })
        })
        .await
    }

    async fn range(&self, range: &KeyRange, at: Option<u64>) -> Result<(Vec<RawEntry>, u64), StoreError> {
        let range = range.clone();
        self.read(move |db| {
            snapshot(db, |db| {
                let (revision, past) = read_revision(db, at)?;
                let entries =
                    if past { range_past(db, &range, revision)? } else { range_now(db, &range, now_ms())? };
                Ok((entries, revision))
            })
        })
        .await
    }

    async fn watch(&self, range: &KeyRange, after: u64) -> Result<Box<dyn RawEvents>, StoreError> {
        // A file that cannot be read is an error here, not an event.
        self.read(|db| store_row(db).map(drop)).await?;
        let writer = self.inner.writer().clone();
        let wake = self
            .inner
            .wake
            .get_or_init(|| Wake::start(Arc::clone(&self.inner.files), writer, self.inner.options));
        Ok(Box::new(wake::Changes::new(self.clone(), wake.subscribe(range), range.clone(), after)))
    }

    async fn delete_range(&self, range: &KeyRange) -> Result<(), StoreError> {
        let range = range.clone();
        self.write(|reply| Job::DeleteRange { range, reply }).await
    }

    async fn compact(&self, revision: u64) -> Result<(), StoreError> {
        self.write(|reply| Job::Compact { revision, reply }).await
    }

    async fn initialize(&self) -> Result<(), StoreError> {
        let files = Arc::clone(&self.inner.files);
        match tokio::task::spawn_blocking(move || files.create()).await {
            Ok(result) => result.map_err(|error| self.inner.files.explain(error)),
            Err(_) => Err(raw::closed(&self.inner.files.description)),
        }
    }

    async fn close(&self) {
        self.inner.closed.store(true, Ordering::Release);
        self.inner.idle.lock().clear();
        if let Some(writer) = self.inner.writer.get() {
            writer.stop();
        }
        if let Some(wake) = self.inner.wake.get() {
            wake.stop();
        }
    }
}

// === reading ===

/// Position in the change log: the changes of one revision are numbered.
fn change_id(revision: u64, number: u64) -> i64 {
    // Revisions stay far below 2^47: a thousand changes a second for four thousand years.
    i64::try_from(revision.saturating_mul(CHANGES_PER_REVISION).saturating_add(number)).unwrap_or(i64::MAX)
}

/// Room for changes of one revision in the numbering of changes.
const CHANGES_PER_REVISION: u64 = 1 << 16;

/// Milliseconds since 1970.
fn now_ms() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_millis()).unwrap_or(i64::MAX)
}

/// Runs `f` on one unchanging state of the file.
fn snapshot<T>(db: &Connection, f: impl FnOnce(&Connection) -> Result<T>) -> Result<T> {
    let transaction = db.unchecked_transaction()?;
    let result = f(&transaction)?;
    transaction.finish()?;
    Ok(result)
}

/// Newest revision, and the newest one whose history is gone.
fn store_row(db: &Connection) -> Result<(u64, u64)> {
    let row = db
        .prepare_cached("SELECT revision, compacted FROM store")?
        .query_row([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(row)
}

/// The revision to read at, and whether it is in the past.
fn read_revision(db: &Connection, at: Option<u64>) -> Result<(u64, bool)> {
    let (revision, compacted) = store_row(db)?;
    match at {
        Some(at) if at < compacted => Err(DbError::Compacted(at)),
        Some(at) if at > revision => Err(DbError::Future { asked: at, current: revision }),
        Some(at) => Ok((at, at < revision)),
        None => Ok((revision, false)),
    }
}

fn entry(row: &Row<'_>) -> rusqlite::Result<RawEntry> {
    Ok(RawEntry { path: row.get(0)?, value: row.get(1)?, created: row.get(2)?, modified: row.get(3)? })
}

/// As [`entry`], from a change; `None` if the change found nothing.
fn old_entry(row: &Row<'_>) -> rusqlite::Result<Option<RawEntry>> {
    let modified: Option<u64> = row.get(3)?;
    modified.map(|_| entry(row)).transpose()
}

fn get(db: &Connection, path: &str, now: i64) -> Result<Option<RawEntry>> {
    let mut query = db.prepare_cached(
        "SELECT path, value, created, modified FROM entries
         WHERE path = ?1 AND (expires IS NULL OR expires > ?2)",
    )?;
    Ok(query.query_row(params![path, now], entry).optional()?)
}

fn get_past(db: &Connection, path: &str, revision: u64) -> Result<Option<RawEntry>> {
    let mut query = db.prepare_cached(
        "SELECT path, old_value, old_created, old_modified FROM changes
         WHERE path = ?1 AND id >= ?2 ORDER BY id LIMIT 1",
    )?;
    let first_later = query.query_row(params![path, change_id(revision + 1, 0)], old_entry).optional()?;
    match first_later {
        Some(old) => Ok(old),
        None => get(db, path, i64::MIN),
    }
}

/// Prepares `sql`, in which `{range}` stands for the condition on `column`, and its parameters: `first` as `?1`,
/// then the bounds of the range.
fn with_range<'db>(
    db: &'db Connection,
    sql: &str,
    column: &str,
    range: &KeyRange,
    first: i64,
) -> Result<(CachedStatement<'db>, Vec<SqlValue>)> {
    // Behind a name of exotic letters the end may be no text; then the rows are filtered by the caller alone.
    let end = range.end().and_then(|end| String::from_utf8(end).ok());
    let mut parameters = vec![SqlValue::from(first), SqlValue::from(range.start().to_owned())];
    let condition = match (range, end) {
        (KeyRange::Exact(_), _) => format!("{column} = ?2"),
        (KeyRange::Prefix(_), Some(end)) => {
            parameters.push(SqlValue::from(end));
            format!("{column} >= ?2 AND {column} < ?3")
        }
        (KeyRange::Prefix(_), None) => format!("{column} >= ?2"),
    };
    Ok((db.prepare_cached(&sql.replace("{range}", &condition))?, parameters))
}

fn range_now(db: &Connection, range: &KeyRange, now: i64) -> Result<Vec<RawEntry>> {
    let sql = "SELECT path, value, created, modified FROM entries
               WHERE {range} AND (expires IS NULL OR expires > ?1) ORDER BY path";
    let (mut query, parameters) = with_range(db, sql, "path", range, now)?;
    let mut rows = query.query(params_from_iter(parameters))?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let entry = entry(row)?;
        if range.contains(&entry.path) {
            found.push(entry);
        }
    }
    Ok(found)
}

fn range_past(db: &Connection, range: &KeyRange, revision: u64) -> Result<Vec<RawEntry>> {
    // What the first later change of each path replaced, and the entries of today that did not change since.
    let sql = "SELECT path, old_value, old_created, old_modified FROM changes
               WHERE {range} AND id >= ?1 ORDER BY path, id";
    let (mut query, parameters) = with_range(db, sql, "path", range, change_id(revision + 1, 0))?;
    let mut rows = query.query(params_from_iter(parameters))?;
    let mut changed = BTreeMap::new();
    while let Some(row) = rows.next()? {
        if let btree_map::Entry::Vacant(first) = changed.entry(row.get::<_, String>(0)?) {
            first.insert(old_entry(row)?);
        }
    }
    let mut found = range_now(db, range, i64::MIN)?;
    found.retain(|entry| !changed.contains_key(&entry.path));
    found.extend(changed.into_values().flatten().filter(|entry| range.contains(&entry.path)));
    found.sort_unstable_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}
