//! Network namespaces.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::statfs::{FsType, fstatfs};

/// Where named namespaces are kept, as `ip netns` does.
pub const NETNS_DIR: &str = "/run/netns";

/// File system that namespace files belong to (`NSFS_MAGIC`).
const NSFS: FsType = FsType(0x6e73_6673);

/// The calling thread's namespace.
const OWN: &str = "/proc/thread-self/ns/net";

/// Why something could not be done with a network namespace.
#[derive(Debug, thiserror::Error)]
pub enum NetNsError {
    /// Nothing is at the path.
    #[error("network namespace {path} does not exist")]
    Missing {
        /// Path.
        path: PathBuf,
    },
    /// Something else is at the path, for example the file that is left when a mount is gone.
    #[error("{path} is not a network namespace")]
    NotANamespace {
        /// Path.
        path: PathBuf,
    },
    /// A namespace or a file of this name is there already.
    #[error("network namespace {path} exists already")]
    Exists {
        /// Path.
        path: PathBuf,
    },
    /// The name cannot be that of a file.
    #[error("{name:?} is not a name for a network namespace")]
    Name {
        /// Name.
        name: String,
    },
    /// The operating system refused.
    #[error("cannot {call} network namespace {path}: {source}")]
    System {
        /// What was tried, a verb.
        call: &'static str,
        /// Which namespace; empty for a new one without a name.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

// === impl NetNsError ===

impl NetNsError {
    /// True if there is no namespace at the path (any more).
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::Missing { .. } | Self::NotANamespace { .. })
    }
}

/// A network namespace. It lives at least as long as this value.
#[derive(Debug)]
pub struct NetNs {
    file: File,
    path: PathBuf,
}

// === impl NetNs ===

impl NetNs {
    /// The calling thread's namespace.
    pub fn current() -> Result<Self, NetNsError> {
        Self::open(OWN)
    }

    /// The namespace at `path`: a bind mount or a file under `/proc/<pid>/ns`.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, NetNsError> {
        let path = path.as_ref().to_owned();
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Err(NetNsError::Missing { path });
            }
            Err(source) => return Err(NetNsError::System { call: "open", path, source }),
        };
        match fstatfs(&file) {
            Ok(stat) if stat.filesystem_type() == NSFS => Ok(Self { file, path }),
            Ok(_) => Err(NetNsError::NotANamespace { path }),
            Err(e) => Err(NetNsError::System { call: "examine", path, source: e.into() }),
        }
    }

    /// The namespace of a process.
    pub fn of_process(pid: u32) -> Result<Self, NetNsError> {
        Self::open(format!("/proc/{pid}/ns/net"))
    }

    /// Makes a namespace without a name. It ends when nothing refers to it any more: no value of this type, no
    /// process, no mount.
    pub fn new() -> Result<Self, NetNsError> {
        on_new_thread(|| {
            enter_new()?;
            Self::current()
        })
    }

    /// Makes a namespace that is mounted at `<dir>/<name>` and lives until [`NetNs::delete_named`]. The directory is
    /// made if need be.
    pub fn create_named(dir: impl AsRef<Path>, name: &str) -> Result<Self, NetNsError> {
        let path = named_path(dir.as_ref(), name)?;
        let failed = |call, source| NetNsError::System { call, path: path.clone(), source };
        fs::create_dir_all(dir.as_ref()).map_err(|e| failed("make the directory of", e))?;
        match OpenOptions::new().write(true).create_new(true).mode(0o444).open(&path) {
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => return Err(NetNsError::Exists { path }),
            Err(e) => return Err(failed("make the file of", e)),
        }
        let mounted = on_new_thread(|| {
            enter_new()?;
            mount(Some(OWN), &path, None::<&str>, MsFlags::MS_BIND, None::<&str>)
                .map_err(|e| failed("mount", e.into()))
        });
        match mounted.and_then(|()| Self::open(&path)) {
            Ok(ns) => Ok(ns),
            Err(e) => {
                // Nothing half done stays behind; the first failure is what counts.
                let _ = Self::delete_named(dir, name);
                Err(e)
            }
        }
    }

    /// Removes the mount and the file at `<dir>/<name>`. The namespace ends once nothing else refers to it. False if
    /// nothing was there.
    pub fn delete_named(dir: impl AsRef<Path>, name: &str) -> Result<bool, NetNsError> {
        let path = named_path(dir.as_ref(), name)?;
        let failed = |call, source| NetNsError::System { call, path: path.clone(), source };
        // A file without a mount is what a crash or a reboot leaves.
        match umount2(&path, MntFlags::MNT_DETACH) {
            Ok(()) | Err(Errno::EINVAL) => {}
            Err(Errno::ENOENT) => return Ok(false),
            Err(e) => return Err(failed("unmount", e.into())),
        }
        match fs::remove_file(&path) {
            Ok(()) => Ok(true),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(true),
            Err(e) => Err(failed("remove the file of", e)),
        }
    }

    /// Where it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// True if both are the same namespace.
    pub fn is_same(&self, other: &Self) -> Result<bool, NetNsError> {
        let identity = |ns: &Self| {
            let meta = ns.file.metadata().map_err(|source| NetNsError::System {
                call: "examine",
                path: ns.path.clone(),
                source,
            })?;
            Ok::<_, NetNsError>((meta.dev(), meta.ino()))
        };
        Ok(identity(self)? == identity(other)?)
    }

    /// Runs `f` on a new thread inside the namespace and waits for it. Threads that `f` starts, and processes, are in the
    /// namespace too. A panic of `f` goes on in the caller.
    pub fn run<T: Send>(&self, f: impl FnOnce() -> T + Send) -> Result<T, NetNsError> {
        on_new_thread(|| {
            setns(&self.file, CloneFlags::CLONE_NEWNET).map_err(|e| NetNsError::System {
                call: "enter",
                path: self.path.clone(),
                source: e.into(),
            })?;
            Ok(f())
        })
    }
}

impl AsFd for NetNs {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

fn named_path(dir: &Path, name: &str) -> Result<PathBuf, NetNsError> {
    if name.is_empty() || name == "." || name == ".." || name.contains(['/', '\0']) {
        return Err(NetNsError::Name { name: name.to_owned() });
    }
    Ok(dir.join(name))
}

fn enter_new() -> Result<(), NetNsError> {
    unshare(CloneFlags::CLONE_NEWNET).map_err(|e| NetNsError::System {
        call: "make",
        path: PathBuf::new(),
        source: e.into(),
    })
}

fn on_new_thread<T: Send>(f: impl FnOnce() -> Result<T, NetNsError> + Send) -> Result<T, NetNsError> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("netns".to_owned()).spawn_scoped(scope, f);
        let thread = thread.map_err(|source| NetNsError::System {
            call: "start a thread for",
            path: PathBuf::new(),
            source,
        })?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
