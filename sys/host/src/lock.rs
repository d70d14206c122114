//! Locks between processes of one host.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Why a lock could not be taken.
#[derive(Debug, thiserror::Error)]
#[error("cannot {call} lock file {path}: {source}")]
pub struct LockError {
    /// What was tried, a verb.
    pub call: &'static str,
    /// Path of the lock file.
    pub path: PathBuf,
    /// Why.
    pub source: io::Error,
}

/// An exclusive advisory lock on a file (flock(2)); released when dropped, and by the kernel when the process ends.
///
/// The file stays: removing it would let two processes lock different files of one name.
#[derive(Debug)]
pub struct FileLock {
    _file: File,
}

// === impl FileLock ===

impl FileLock {
    /// Takes the lock; waits for others that hold it. The file and its directory are made if need be.
    pub fn acquire(path: impl AsRef<Path>) -> Result<Self, LockError> {
        let path = path.as_ref();
        let file = open(path)?;
        loop {
            match file.lock() {
                Ok(()) => return Ok(Self { _file: file }),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(LockError { call: "lock", path: path.to_owned(), source }),
            }
        }
    }

    /// Takes the lock if nobody holds it.
    pub fn try_acquire(path: impl AsRef<Path>) -> Result<Option<Self>, LockError> {
        let path = path.as_ref();
        let file = open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Self { _file: file })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(source)) => {
                Err(LockError { call: "lock", path: path.to_owned(), source })
            }
        }
    }
}

fn open(path: &Path) -> Result<File, LockError> {
    let failed = |call| move |source| LockError { call, path: path.to_owned(), source };
    if let Some(dir) = path.parent().filter(|dir| !dir.as_os_str().is_empty()) {
        DirBuilder::new().recursive(true).mode(0o777).create(dir).map_err(failed("make the directory of"))?;
    }
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
        .map_err(failed("open"))
}
