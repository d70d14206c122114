//! The files of the embedded store: their names, opening, the tables and their version, errors in words.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension};

use crate::StoreError;
use crate::raw;

/// Marks the file as ours (`Cali`).
const APPLICATION_ID: i32 = 0x4361_6c69;

/// Version of the tables below.
const FORMAT: i32 = 1;

/// How long to wait for locks that our own lock file does not order: recovery after a crash, the clean-up of
/// the last connection, and other programs that write the file.
const FOREIGN_LOCK_WAIT: Duration = Duration::from_secs(10);

/// `changes.id` numbers changes in order, see `change_id`. A change with `new_created` wrote an entry (whose value
/// is the old value of the path's next change, or the entry's), one without removed it.
const TABLES: &str = "
    CREATE TABLE store (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        revision INTEGER NOT NULL,
        compacted INTEGER NOT NULL
    );
    INSERT INTO store VALUES (1, 1, 1);
    CREATE TABLE entries (
        path TEXT NOT NULL PRIMARY KEY,
        value BLOB NOT NULL,
        created INTEGER NOT NULL,
        modified INTEGER NOT NULL,
        expires INTEGER
    );
    CREATE INDEX entries_expires ON entries (expires) WHERE expires IS NOT NULL;
    CREATE TABLE changes (
        id INTEGER PRIMARY KEY,
        path TEXT NOT NULL,
        at INTEGER NOT NULL,
        new_created INTEGER,
        old_created INTEGER,
        old_modified INTEGER,
        old_value BLOB
    );
    CREATE INDEX changes_path ON changes (path);
";

/// What went wrong below the contract.
#[derive(Debug, thiserror::Error)]
pub(super) enum DbError {
    /// SQLite's report.
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    /// The system's report about one of the files.
    #[error("{}: {source}", .path.display())]
    File {
        /// File.
        path: PathBuf,
        /// Report.
        source: io::Error,
    },
    /// There is no file, or it has no tables yet.
    #[error("not initialised")]
    Missing,
    /// The file belongs to another program.
    #[error("foreign file")]
    Foreign,
    /// A newer version of this program made the file.
    #[error("format {0}")]
    Newer(i32),
    /// The revision is not kept.
    #[error("revision {0} is not kept")]
    Compacted(u64),
    /// The revision does not exist yet.
    #[error("revision {asked} is beyond {current}")]
    Future {
        /// Revision asked for.
        asked: u64,
        /// Newest revision.
        current: u64,
    },
    /// The store was closed.
    #[error("closed")]
    Closed,
}

pub(super) type Result<T, E = DbError> = std::result::Result<T, E>;

/// Names of the files.
#[derive(Debug)]
pub(super) struct Files {
    /// How messages name the store.
    pub(super) description: String,
    /// Database.
    pub(super) database: PathBuf,
    /// Writers queue on it.
    lock: PathBuf,
    /// Touched after each commit.
    pub(super) notify: PathBuf,
}

// === impl Files ===

impl Files {
    pub(super) fn new(path: &Path, why: &str) -> Self {
        let beside = |suffix: &str| {
            let mut name = path.as_os_str().to_owned();
            name.push(suffix);
            PathBuf::from(name)
        };
        let description = match why {
            "" => format!("sqlite ({})", path.display()),
            why => format!("sqlite ({}; {why})", path.display()),
        };
        Self { description, database: path.to_owned(), lock: beside(".lock"), notify: beside(".notify") }
    }

    /// Makes the directory, the files and the tables where they are missing.
    pub(super) fn create(&self) -> Result<()> {
        if let Some(directory) = self.database.parent().filter(|d| !d.as_os_str().is_empty()) {
            std::fs::create_dir_all(directory).map_err(|e| self.file_error(directory, e))?;
        }
        let _guard = self.lock_writers()?;
        self.open_notify()?;
        // Made here for its mode; SQLite gives the same to its own files.
        self.open_file(&self.database)?;
        let db = self.connect()?;
        match self.check(&db) {
            Err(DbError::Missing) => {}
            other => return other,
        }
        let _mode: String = db.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
        db.pragma_update(None, "synchronous", "FULL")?;
        db.execute_batch(&format!(
            "BEGIN IMMEDIATE; {TABLES}
             PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {FORMAT}; COMMIT;"
        ))?;
        Ok(())
    }

    /// A connection that only reads.
    pub(super) fn open_reader(&self) -> Result<Connection> {
        let db = self.open()?;
        db.pragma_update(None, "query_only", true)?;
        Ok(db)
    }

    /// A connection that writes.
    pub(super) fn open_writer(&self) -> Result<Connection> {
        let db = self.open()?;
        db.pragma_update(None, "synchronous", "FULL")?;
        Ok(db)
    }

    fn open(&self) -> Result<Connection> {
        if !self.database.try_exists().map_err(|e| self.file_error(&self.database, e))? {
            return Err(DbError::Missing);
        }
        let db = self.connect()?;
        self.check(&db)?;
        Ok(db)
    }

    fn connect(&self) -> Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let db = Connection::open_with_flags(&self.database, flags)?;
        db.busy_timeout(FOREIGN_LOCK_WAIT)?;
        db.set_prepared_statement_cache_capacity(64);
        Ok(db)
    }

    fn check(&self, db: &Connection) -> Result<()> {
        let number = |pragma: &str| db.query_row(&format!("PRAGMA {pragma}"), [], |row| row.get::<_, i32>(0));
        match (number("application_id")?, number("user_version")?) {
            (APPLICATION_ID, FORMAT) => Ok(()),
            (APPLICATION_ID, newer) if newer > FORMAT => Err(DbError::Newer(newer)),
            (0, 0) => {
                let tables =
                    db.query_row("SELECT 1 FROM sqlite_schema LIMIT 1", [], |_| Ok(())).optional()?;
                Err(if tables.is_some() { DbError::Foreign } else { DbError::Missing })
            }
            _ => Err(DbError::Foreign),
        }
    }

    /// Waits for the turn of this process to write. Dropping the file ends the turn, as does the death of the
    /// process.
    pub(super) fn lock_writers(&self) -> Result<File> {
        let file = self.open_file(&self.lock)?;
        loop {
            match file.lock() {
                Ok(()) => return Ok(file),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(self.file_error(&self.lock, e)),
            }
        }
    }

    /// The file that [`touch`] writes.
    pub(super) fn open_notify(&self) -> Result<File> {
        self.open_file(&self.notify)
    }

    fn open_file(&self, path: &Path) -> Result<File> {
        let open =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path);
        open.map_err(|e| self.file_error(path, e))
    }

    fn file_error(&self, path: &Path, source: io::Error) -> DbError {
        DbError::File { path: path.to_owned(), source }
    }

    /// The error in words that say which file it is about and what to do.
    pub(super) fn explain(&self, error: DbError) -> StoreError {
        let path = self.database.display();
        let unreachable =
            |reason: String| StoreError::Unreachable { store: self.description.clone(), reason };
        match error {
            DbError::Compacted(revision) => raw::compacted(revision),
            DbError::Future { asked, current } => raw::future_revision(asked, current),
            DbError::Closed => raw::closed(&self.description),
            DbError::Missing => unreachable(format!(
                "the database {path} does not exist; `calicoctl datastore init` makes it"
            )),
            DbError::Foreign => unreachable(format!("{path} is a database of another program")),
            DbError::Newer(format) => unreachable(format!(
                "{path} was made by a newer version of this program (format {format}, this one knows {FORMAT})"
            )),
            DbError::File { path, source } => unreachable(format!("{}: {source}", path.display())),
            DbError::Sqlite(error) => self.explain_sqlite(&error),
        }
    }

    fn explain_sqlite(&self, error: &rusqlite::Error) -> StoreError {
        let path = self.database.display();
        let reason = match error.sqlite_error_code() {
            Some(ErrorCode::NotADatabase) => format!("{path} is not a database"),
            Some(ErrorCode::DatabaseCorrupt) => format!("the database {path} is damaged: {error}"),
            Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => {
                format!("the database {path} or its directory cannot be written: {error}")
            }
            Some(ErrorCode::CannotOpen) => format!("the database {path} cannot be opened: {error}"),
            Some(ErrorCode::DiskFull) => format!("no space left for the database {path}"),
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                format!("another program keeps the database {path} locked")
            }
            _ => format!("database {path}: {error}"),
        };
        StoreError::Unreachable { store: self.description.clone(), reason }
    }
}

/// Wakes the streams of all processes. A failure costs only time: they also look by themselves.
pub(super) fn touch(notify: &File) {
    if let Err(error) = notify.write_at(b"\n", 0) {
        tracing::debug!(%error, "cannot touch the notify file");
    }
}
