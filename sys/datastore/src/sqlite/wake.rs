//! Streams of changes, and the thread that tells them to look.
//!
//! One thread per opened store sleeps on the notify file. When it was touched, or after a while in any case,
//! the thread reads the paths that changed and marks the streams whose range holds one of them. A marked stream
//! reads its changes from the log by itself, at its receiver's pace.
//!
//! Invariants: a stream remembers the position up to which it has delivered, so that no change comes twice; it is
//! marked with the first change that it has not read, so that none is missed. A stream which owes changes that
//! are not in the log any more ends with an error.

use std::fs::File;
use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::AsFd;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use async_trait::async_trait;
use calico_model::path::KeyRange;
use inotify::{Inotify, WatchMask};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use parking_lot::Mutex;
use rusqlite::{Connection, OptionalExtension, params_from_iter};
use tokio::sync::Notify;

use super::file::{DbError, Files, Result};
use super::writer::{Job, Writer};
use super::{
    CHANGES_PER_REVISION, SqliteOptions, SqliteRaw, change_id, now_ms, old_entry, snapshot, store_row,
    with_range,
};
use crate::raw::{RawEntry, RawEvent, RawEvents};
use crate::{StoreError, raw};

/// Most changes that a stream reads at once; the limit in the query of [`read_changes`].
const CHUNK: usize = 500;

/// How often to look where the kernel cannot tell of the notify file.
const POLL_WITHOUT_INOTIFY: Duration = Duration::from_millis(50);

/// Handle of the thread; it ends when the handle is dropped.
#[derive(Debug)]
pub(super) struct Wake {
    subscribers: Arc<Mutex<Subscribers>>,
    /// Closing it wakes the thread for the last time.
    control: Mutex<Option<PipeWriter>>,
}

#[derive(Debug, Default)]
struct Subscribers {
    list: Vec<Weak<Subscriber>>,
    stopped: bool,
}

/// What the thread and one stream share.
#[derive(Debug)]
pub(super) struct Subscriber {
    range: KeyRange,
    mark: Mutex<Mark>,
    notify: Notify,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Mark {
    /// Nothing new.
    #[default]
    None,
    /// There are changes at and after this revision; there is none between the stream's position and it.
    From(u64),
    /// Look from the stream's own position.
    All,
    /// The store was closed.
    Stopped,
}

// === impl Wake ===

impl Wake {
    pub(super) fn start(files: Arc<Files>, writer: Writer, options: SqliteOptions) -> Self {
        let subscribers = Arc::new(Mutex::new(Subscribers::default()));
        let shared = Arc::clone(&subscribers);
        let started = io::pipe().and_then(|(stopped, control)| {
            let notify = Source::open(&files, stopped);
            let work = move || {
                Work { files, writer, options, subscribers: shared, seen: None, db: None }.run(notify);
            };
            thread::Builder::new().name("calico-db-wake".into()).spawn(work).map(|_| control)
        });
        match started {
            Ok(control) => Self { subscribers, control: Mutex::new(Some(control)) },
            Err(error) => {
                tracing::error!(%error, "cannot start the thread that watches the database");
                subscribers.lock().stop();
                Self { subscribers, control: Mutex::new(None) }
            }
        }
    }

    /// A new subscriber, marked, so that its stream looks at once.
    pub(super) fn subscribe(&self, range: &KeyRange) -> Arc<Subscriber> {
        let mut subscribers = self.subscribers.lock();
        let mark = if subscribers.stopped { Mark::Stopped } else { Mark::All };
        let new =
            Arc::new(Subscriber { range: range.clone(), mark: Mutex::new(mark), notify: Notify::new() });
        subscribers.list.push(Arc::downgrade(&new));
        new
    }

    pub(super) fn stop(&self) {
        self.control.lock().take();
        self.subscribers.lock().stop();
    }
}

// === impl Subscribers ===

impl Subscribers {
    fn stop(&mut self) {
        self.stopped = true;
        for subscriber in self.list.drain(..).filter_map(|s| s.upgrade()) {
            subscriber.set(Mark::Stopped);
        }
    }

    /// Marks those for whom `mark` says so, and forgets those whose streams are gone.
    fn mark(&mut self, mark: impl Fn(&KeyRange) -> Mark) {
        self.list.retain(|subscriber| match subscriber.upgrade() {
            Some(subscriber) => {
                subscriber.set(mark(&subscriber.range));
                true
            }
            None => false,
        });
    }
}

// === impl Subscriber ===

impl Subscriber {
    fn set(&self, new: Mark) {
        let mut mark = self.mark.lock();
        *mark = match (*mark, new) {
            (Mark::Stopped, _) | (_, Mark::Stopped) => Mark::Stopped,
            (old, Mark::None) => old,
            (Mark::All, _) | (_, Mark::All) => Mark::All,
            // The first unread change stays the first.
            (Mark::From(first), Mark::From(_)) => Mark::From(first),
            (Mark::None, Mark::From(first)) => Mark::From(first),
        };
        if *mark != Mark::None {
            self.notify.notify_one();
        }
    }

    /// Waits for a mark and removes it.
    async fn marked(&self) -> Mark {
        loop {
            {
                let mut mark = self.mark.lock();
                match *mark {
                    Mark::None => {}
                    Mark::Stopped => return Mark::Stopped,
                    found => {
                        *mark = Mark::None;
                        return found;
                    }
                }
            }
            self.notify.notified().await;
        }
    }
}

/// What the thread sleeps on.
struct Source {
    stopped: PipeReader,
    inotify: Option<Inotify>,
}

// === impl Source ===

impl Source {
    fn open(files: &Files, stopped: PipeReader) -> Self {
        let open = || -> Result<Inotify> {
            // The file may be missing if the database was copied without it.
            let _: File = files.open_notify()?;
            let error = |source| DbError::File { path: files.notify.clone(), source };
            let inotify = Inotify::init().map_err(error)?;
            inotify.watches().add(&files.notify, WatchMask::MODIFY).map_err(error)?;
            Ok(inotify)
        };
        let inotify = match open() {
            Ok(inotify) => Some(inotify),
            Err(error) => {
                tracing::warn!(%error, "cannot watch the database's notify file; looking often instead");
                None
            }
        };
        Self { stopped, inotify }
    }

    /// Sleeps until the notify file was touched or `longest` has passed; false when it is time to end.
    fn sleep(&mut self, longest: Duration) -> bool {
        let longest = if self.inotify.is_some() { longest } else { longest.min(POLL_WITHOUT_INOTIFY) };
        // Rounded up, or the thread would turn a few times for nothing before an entry expires.
        let longest = i32::try_from(longest.as_millis()).unwrap_or(i32::MAX).saturating_add(1);
        let timeout = PollTimeout::try_from(longest).unwrap_or(PollTimeout::MAX);
        let mut fds = vec![PollFd::new(self.stopped.as_fd(), PollFlags::POLLIN)];
        fds.extend(self.inotify.as_ref().map(|inotify| PollFd::new(inotify.as_fd(), PollFlags::POLLIN)));
        // An interrupted sleep is a short one.
        let _ = poll(&mut fds, timeout);
        let stop = fds.first().and_then(PollFd::revents).is_some_and(|events| !events.is_empty());
        drop(fds);
        if let Some(inotify) = &mut self.inotify {
            // Non-blocking; which events there were does not matter.
            let mut buffer = [0; 1024];
            while inotify.read_events(&mut buffer).is_ok_and(|mut events| events.next().is_some()) {}
        }
        !stop
    }
}

struct Work {
    files: Arc<Files>,
    writer: Writer,
    options: SqliteOptions,
    subscribers: Arc<Mutex<Subscribers>>,
    /// Revision up to which streams were marked.
    seen: Option<u64>,
    db: Option<Connection>,
}

// === impl Work ===

impl Work {
    fn run(mut self, mut source: Source) {
        loop {
            let sleep = match self.look() {
                Ok(next_expiry) => next_expiry.map_or(self.options.poll, |at| at.min(self.options.poll)),
                Err(error) => {
                    tracing::warn!(%error, "cannot read the database's change log");
                    self.db = None;
                    self.subscribers.lock().mark(|_| Mark::All);
                    self.options.poll
                }
            };
            if !source.sleep(sleep) {
                return;
            }
        }
    }

    /// Marks streams with what is new. Returns how long it takes until an entry expires.
    fn look(&mut self) -> Result<Option<Duration>> {
        let db = match &mut self.db {
            Some(db) => db,
            none => none.insert(self.files.open_reader()?),
        };
        let seen = self.seen;
        let (revision, new, expiry) = snapshot(db, |db| {
            let (revision, compacted) = store_row(db)?;
            let expiry: Option<i64> = db
                .prepare_cached("SELECT min(expires) FROM entries WHERE expires IS NOT NULL")?
                .query_row([], |row| row.get(0))?;
            let new = match seen {
                Some(seen) if seen == revision => Some(Vec::new()),
                Some(seen) if seen >= compacted => Some(changed_paths(db, seen)?),
                // Just started, or asleep for so long that changes are gone: everybody looks.
                _ => None,
            };
            Ok((revision, new, expiry))
        })?;
        self.seen = Some(revision);
        match new {
            Some(new) if new.is_empty() => {}
            Some(new) => self.subscribers.lock().mark(|range| {
                let first = new.iter().find(|(_, path)| range.contains(path));
                first.map_or(Mark::None, |(revision, _)| Mark::From(*revision))
            }),
            None => self.subscribers.lock().mark(|_| Mark::All),
        }
        let Some(expiry) = expiry else { return Ok(None) };
        let left = expiry.saturating_sub(now_ms());
        if left <= 0 {
            // Whoever is first removes it; its commit wakes everybody.
            self.writer.send(Job::Expire);
            return Ok(None);
        }
        Ok(Some(Duration::from_millis(left.unsigned_abs())))
    }
}

fn changed_paths(db: &Connection, after: u64) -> Result<Vec<(u64, String)>> {
    let mut query = db.prepare_cached("SELECT id, path FROM changes WHERE id >= ?1 ORDER BY id")?;
    let rows = query.query_map([change_id(after + 1, 0)], |row| {
        Ok((row.get::<_, u64>(0)? / CHANGES_PER_REVISION, row.get(1)?))
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// A stream of changes.
pub(super) struct Changes {
    store: SqliteRaw,
    subscriber: Arc<Subscriber>,
    range: KeyRange,
    /// Id before the first change that is still to be looked at.
    position: i64,
    /// Whether the last read left changes behind.
    more: bool,
}

// === impl Changes ===

impl Changes {
    pub(super) fn new(store: SqliteRaw, subscriber: Arc<Subscriber>, range: KeyRange, after: u64) -> Self {
        Self { store, subscriber, range, position: change_id(after.saturating_add(1), 0), more: false }
    }
}

#[async_trait]
impl RawEvents for Changes {
    async fn next(&mut self) -> Result<Vec<RawEvent>, StoreError> {
        loop {
            if !self.more {
                match self.subscriber.marked().await {
                    Mark::Stopped => return Err(raw::closed(&self.store.inner.files.description)),
                    Mark::From(revision) => self.position = self.position.max(change_id(revision, 0)),
                    Mark::All | Mark::None => {}
                }
                // From here on the mark is in this flag: a dropped future is picked up again.
                self.more = true;
            }
            let (range, position) = (self.range.clone(), self.position);
            let chunk =
                self.store.read(move |db| snapshot(db, |db| read_changes(db, &range, position))).await?;
            self.position = chunk.position;
            self.more = chunk.more;
            if !chunk.events.is_empty() {
                return Ok(chunk.events);
            }
        }
    }
}

struct Chunk {
    events: Vec<RawEvent>,
    position: i64,
    more: bool,
}

/// Reads changes in `range` from `position` on.
fn read_changes(db: &Connection, range: &KeyRange, position: i64) -> Result<Chunk> {
    let (revision, compacted) = store_row(db)?;
    if position < change_id(compacted + 1, 0) {
        let next = u64::try_from(position).unwrap_or(0) / CHANGES_PER_REVISION;
        return Err(DbError::Compacted(next.saturating_sub(1)));
    }
    // The plus keeps SQLite from walking the index of paths instead of the few new changes.
    let sql = "SELECT path, old_value, old_created, old_modified, new_created, id FROM changes
               WHERE {range} AND id >= ?1 ORDER BY id LIMIT 500";
    let (mut query, parameters) = with_range(db, sql, "+path", range, position)?;
    let mut rows = query.query(params_from_iter(parameters))?;
    let mut chunk = Chunk { events: Vec::new(), position, more: false };
    let mut count = 0;
    while let Some(row) = rows.next()? {
        let path: String = row.get(0)?;
        let id: i64 = row.get(5)?;
        count += 1;
        chunk.position = id + 1;
        if !range.contains(&path) {
            continue;
        }
        let revision = u64::try_from(id).unwrap_or(0) / CHANGES_PER_REVISION;
        let old = old_entry(row)?;
        let created: Option<u64> = row.get(4)?;
        let new = match created {
            Some(created) => {
                let value = value_after(db, &path, id)?;
                Some(RawEntry { path: path.clone(), value, created, modified: revision })
            }
            None => None,
        };
        chunk.events.push(RawEvent { path, revision, new, old });
    }
    chunk.more = count == CHUNK;
    if !chunk.more {
        chunk.position = change_id(revision + 1, 0).max(position);
    }
    Ok(chunk)
}

/// What the change `id` wrote: what the next change of the path replaced, or what is there now.
fn value_after(db: &Connection, path: &str, id: i64) -> Result<Vec<u8>> {
    let next = db
        .prepare_cached("SELECT old_value FROM changes WHERE path = ?1 AND id > ?2 ORDER BY id LIMIT 1")?
        .query_row(rusqlite::params![path, id], |row| row.get(0))
        .optional()?;
    match next {
        Some(value) => Ok(value),
        None => {
            let mut query = db.prepare_cached("SELECT value FROM entries WHERE path = ?1")?;
            Ok(query.query_row([path], |row| row.get(0))?)
        }
    }
}
