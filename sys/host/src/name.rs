//! Names of links and of the host.

use std::io;

/// Why a text cannot be the name of a link.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InterfaceNameError {
    /// Empty.
    #[error("interface name is empty")]
    Empty,
    /// Longer than 15 bytes, the kernel's limit.
    #[error("interface name is too long; interface name should be less than 16 characters")]
    TooLong,
    /// `.` or `..`.
    #[error("interface name is . or ..")]
    Dots,
    /// Contains `/`, `:` or white space.
    #[error("interface name contains / or : or whitespace characters")]
    Character,
}

/// Checks that the kernel would take `name` for a link: 1 to 15 bytes, not `.` or `..`, without `/`, `:` and white space.
pub fn check_interface_name(name: &str) -> Result<(), InterfaceNameError> {
    if name.is_empty() {
        return Err(InterfaceNameError::Empty);
    }
    if name.len() > 15 {
        return Err(InterfaceNameError::TooLong);
    }
    if name == "." || name == ".." {
        return Err(InterfaceNameError::Dots);
    }
    if name.chars().any(|c| c == '/' || c == ':' || c.is_whitespace()) {
        return Err(InterfaceNameError::Character);
    }
    Ok(())
}

/// The host's name, as the kernel has it. Bytes that are no UTF-8 are an error.
pub fn hostname() -> io::Result<String> {
    nix::unistd::gethostname()?
        .into_string()
        .map_err(|name| io::Error::new(io::ErrorKind::InvalidData, format!("host name {name:?} is no UTF-8")))
}
