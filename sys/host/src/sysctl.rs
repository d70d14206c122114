//! Kernel parameters under `/proc/sys`.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::{Component, Path, PathBuf};

/// Why a kernel parameter could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum SysctlError {
    /// The name would lead elsewhere than to a parameter.
    #[error("{name:?} is not the name of a kernel parameter")]
    Name {
        /// Name.
        name: String,
    },
    /// The operating system refused.
    #[error("cannot {call} kernel parameter {name}: {source}")]
    System {
        /// `read` or `write`.
        call: &'static str,
        /// Name.
        name: String,
        /// Why.
        source: io::Error,
    },
}

// === impl SysctlError ===

impl SysctlError {
    /// True if there is no such parameter, for example because its link is gone or the kernel lacks the feature.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::System { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}

/// Access to kernel parameters. Those of the network (`net/...`) are of the calling thread's network namespace.
///
/// Names are paths with `/`, since names of links may contain dots: `net/ipv4/conf/eth0.5/forwarding`.
#[derive(Debug, Clone)]
pub struct Sysctl {
    root: PathBuf,
}

impl Default for Sysctl {
    fn default() -> Self {
        Self { root: PathBuf::from("/proc/sys") }
    }
}

// === impl Sysctl ===

impl Sysctl {
    /// Parameters under another directory, for tests.
    pub fn under(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The value, without the line's end.
    pub fn read(&self, name: &str) -> Result<String, SysctlError> {
        let path = self.path(name)?;
        let mut text = String::new();
        File::open(path)
            .and_then(|mut file| file.read_to_string(&mut text))
            .map_err(|source| SysctlError::System { call: "read", name: name.to_owned(), source })?;
        text.truncate(text.trim_end().len());
        Ok(text)
    }

    /// Sets the value. A parameter that does not exist is an error, never a new file.
    pub fn write(&self, name: &str, value: &str) -> Result<(), SysctlError> {
        let path = self.path(name)?;
        // One system call: the kernel takes each write as a whole value.
        OpenOptions::new()
            .write(true)
            .open(path)
            .and_then(|mut file| file.write_all(value.as_bytes()))
            .map_err(|source| SysctlError::System { call: "write", name: name.to_owned(), source })
    }

    fn path(&self, name: &str) -> Result<PathBuf, SysctlError> {
        let relative = Path::new(name);
        let sound = !name.is_empty()
            && !name.contains('\0')
            && !name.ends_with('/')
            && relative.components().all(|c| matches!(c, Component::Normal(_)));
        if sound { Ok(self.root.join(relative)) } else { Err(SysctlError::Name { name: name.to_owned() }) }
    }
}
