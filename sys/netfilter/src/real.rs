//! nf_tables of the machine: rules through the program `nft`, all else over netlink.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::fd::AsFd as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::memfd::{MFdFlags, memfd_create};

use crate::kernel::{KernelError, NftKernel, SeenTable};
use crate::netlink::{self, Socket};
use crate::op::{Family, Transaction};

/// Longest time that one run of `nft` may take.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes of `nft`'s complaint that are kept.
const COMPLAINT: usize = 600;

/// nf_tables of the network namespace of the thread that made this value.
///
/// Use it on that thread only, or `nft` runs in another namespace than the socket speaks to.
#[derive(Debug)]
pub struct RealNft {
    socket: Socket,
    program: String,
}

impl RealNft {
    /// Opens a socket; runs `nft` from the search path.
    ///
    /// # Errors
    /// If the kernel has no such socket.
    pub fn new() -> Result<Self, KernelError> {
        Ok(Self { socket: Socket::open()?, program: "nft".into() })
    }

    fn run(&self, script: &str) -> Result<(), KernelError> {
        let fail = |source| KernelError::Run { program: self.program.clone(), source };
        let input = script_file(script).map_err(fail)?;
        let mut child = Command::new(&self.program)
            .args(["-f", "-"])
            .env("LC_ALL", "C")
            .stdin(Stdio::from(input))
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(fail)?;
        let complaint = match self.listen(&mut child) {
            Ok(text) => text,
            Err(error) => {
                // It may have ended by itself; then there is nothing to kill.
                let _ = child.kill();
                let _ = child.wait();
                return Err(error);
            }
        };
        if child.wait().map_err(fail)?.success() {
            return Ok(());
        }
        let reason: String = complaint.trim().chars().take(COMPLAINT).collect();
        Err(KernelError::Refused { reason })
    }

    /// Reads what the program complains about until it ends.
    fn listen(&self, child: &mut Child) -> Result<String, KernelError> {
        let fail = |source| KernelError::Run { program: self.program.clone(), source };
        let Some(mut stderr) = child.stderr.take() else { return Ok(String::new()) };
        let deadline = Instant::now() + TIMEOUT;
        let mut out = Vec::new();
        let mut buffer = [0; 4096];
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
            let mut fds = [PollFd::new(stderr.as_fd(), PollFlags::POLLIN)];
            match poll(&mut fds, timeout) {
                Ok(0) => {
                    let program = self.program.clone();
                    return Err(KernelError::Timeout { program, seconds: TIMEOUT.as_secs() });
                }
                Ok(_) => {}
                Err(nix::errno::Errno::EINTR) => continue,
                Err(e) => return Err(fail(e.into())),
            }
            match stderr.read(&mut buffer).map_err(fail)? {
                0 => return Ok(String::from_utf8_lossy(&out).into_owned()),
                n => out.extend_from_slice(&buffer[..n]),
            }
        }
    }
}

/// A nameless file, so that neither side waits for the other as with a pipe.
fn script_file(script: &str) -> io::Result<File> {
    let mut file = File::from(memfd_create(c"nft-script", MFdFlags::MFD_CLOEXEC)?);
    file.write_all(script.as_bytes())?;
    file.rewind()?;
    Ok(file)
}

impl NftKernel for RealNft {
    fn read(&mut self, family: Family, table: &str) -> Result<Option<SeenTable>, KernelError> {
        self.socket.read(family, table)
    }

    fn commit(&mut self, transaction: &Transaction) -> Result<(), KernelError> {
        if transaction.ops.is_empty() {
            return Ok(());
        }
        match netlink::batch(transaction) {
            Some(batch) => self.socket.commit(&batch),
            None => self.run(&transaction.script()),
        }
    }

    fn generation(&mut self) -> Option<u32> {
        self.socket.generation().ok()
    }
}
