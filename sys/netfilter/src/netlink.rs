//! The part of nf_tables' netlink protocol that the driver speaks: dumps, and changes that need no compiling of
//! rules.
//!
//! Layout: RFC 3549 for the frame; `linux/netfilter/nf_tables.h` for messages and attributes. Integers in
//! attributes are big-endian, headers are in host order.

mod decode;
mod encode;
mod wire;

pub(crate) use encode::batch;

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, sendto, setsockopt,
    socket, sockopt,
};

use crate::kernel::{KernelError, SeenTable};
use crate::op::Family;
use wire::Reply;

/// Bytes for replies: the kernel's dumps come in pieces of at most 32 KiB.
const RECEIVE: usize = 64 * 1024;
/// Tries before a table that changes all the time is given up.
const TRIES: usize = 5;

/// A socket to nf_tables of the network namespace of the thread that opened it.
#[derive(Debug)]
pub(crate) struct Socket {
    fd: OwnedFd,
    seq: u32,
    send_buffer: usize,
}

/// Why a dump must be repeated or given up.
enum DumpError {
    Changed,
    NotFound,
    Other(KernelError),
}

fn fail(doing: &'static str) -> impl FnOnce(Errno) -> KernelError {
    move |e| KernelError::Netlink { doing, source: io::Error::from(e) }
}

impl Socket {
    pub(crate) fn open() -> Result<Self, KernelError> {
        let fd = socket(
            AddressFamily::Netlink,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC,
            SockProtocol::NetlinkNetFilter,
        )
        .map_err(fail("opening the socket"))?;
        bind(fd.as_raw_fd(), &NetlinkAddr::new(0, 0)).map_err(fail("binding the socket"))?;
        Ok(Self { fd, seq: 0, send_buffer: 0 })
    }

    /// Sends a batch; the kernel has carried it out, or refused it, when this returns.
    pub(crate) fn commit(&mut self, batch: &wire::Batch) -> Result<(), KernelError> {
        // The whole batch is one message to the kernel.
        if batch.bytes().len() > self.send_buffer {
            let size = batch.bytes().len() * 2;
            // Without the privilege the send below fails with a clear error.
            let _ = setsockopt(&self.fd, sockopt::SndBufForce, &size);
            self.send_buffer = size;
        }
        self.send(batch.bytes())?;
        let mut acknowledged = false;
        let mut error = None;
        let mut buffer = vec![0; RECEIVE];
        // The kernel answers while it is sent to, so that all answers are there.
        loop {
            let n = match recv(self.fd.as_raw_fd(), &mut buffer, MsgFlags::MSG_DONTWAIT) {
                Ok(n) => n,
                Err(Errno::EAGAIN) => break,
                Err(Errno::EINTR) => continue,
                Err(Errno::ENOBUFS) => {
                    // More errors than the socket holds.
                    error.get_or_insert(Errno::ENOBUFS);
                    continue;
                }
                Err(e) => return Err(fail("receiving the answer")(e)),
            };
            for reply in wire::replies(&buffer[..n]) {
                match reply {
                    Some(Reply::Error(e)) => {
                        error.get_or_insert(Errno::from_raw(e));
                    }
                    Some(Reply::Done) => acknowledged = true,
                    Some(Reply::Data { .. }) => {}
                    None => return Err(KernelError::Malformed { what: "the answer" }),
                }
            }
        }
        match error {
            Some(e) => Err(KernelError::Refused { reason: e.desc().to_owned() }),
            None if acknowledged => Ok(()),
            None => Err(KernelError::Netlink {
                doing: "waiting for the answer",
                source: io::ErrorKind::UnexpectedEof.into(),
            }),
        }
    }

    pub(crate) fn generation(&mut self) -> Result<u32, KernelError> {
        let seq = self.next_seq();
        self.send(&wire::request(seq, wire::GET_GENERATION, 0, 0, |_| {}))?;
        let mut found = None;
        self.receive(seq, false, &mut |body| {
            found = decode::generation(body);
            Ok(())
        })
        .map_err(|e| e.into_kernel("the generation"))?;
        found.ok_or(KernelError::Malformed { what: "the generation" })
    }

    /// Reads a whole table.
    pub(crate) fn read(&mut self, family: Family, table: &str) -> Result<Option<SeenTable>, KernelError> {
        for _ in 0..TRIES {
            let before = self.generation()?;
            match self.read_once(family, table) {
                Ok(seen) => {
                    if self.generation()? == before {
                        return Ok(seen);
                    }
                }
                Err(DumpError::Changed | DumpError::NotFound) => {}
                Err(DumpError::Other(e)) => return Err(e),
            }
        }
        Err(KernelError::Unstable)
    }

    fn read_once(&mut self, family: Family, table: &str) -> Result<Option<SeenTable>, DumpError> {
        if !self.has_table(family, table)? {
            return Ok(None);
        }
        let mut seen = SeenTable::default();
        self.dump(
            family,
            wire::GET_CHAIN,
            |b| b.text(wire::CHAIN_TABLE, table),
            |body| decode::chain(body, table, &mut seen).ok_or(KernelError::Malformed { what: "chains" }),
        )?;
        self.dump(
            family,
            wire::GET_RULE,
            |b| b.text(wire::RULE_TABLE, table),
            |body| decode::rule(body, table, &mut seen).ok_or(KernelError::Malformed { what: "rules" }),
        )?;
        let mut sets = Vec::new();
        self.dump(
            family,
            wire::GET_SET,
            |b| b.text(wire::SET_TABLE, table),
            |body| {
                sets.extend(decode::set(body, table, family).ok_or(KernelError::Malformed { what: "sets" })?);
                Ok(())
            },
        )?;
        for set in sets {
            let mut elements = decode::Elements::new(family, &set);
            self.dump(
                family,
                wire::GET_ELEMENT,
                |b| {
                    b.text(wire::ELEMENTS_TABLE, table);
                    b.text(wire::ELEMENTS_SET, &set.name);
                },
                |body| elements.read(body).ok_or(KernelError::Malformed { what: "elements" }),
            )?;
            elements.finish(set, &mut seen);
        }
        Ok(Some(seen))
    }

    fn has_table(&mut self, family: Family, table: &str) -> Result<bool, DumpError> {
        let seq = self.next_seq();
        let request =
            wire::request(seq, wire::GET_TABLE, 0, wire::family(family), |b| b.text(wire::TABLE_NAME, table));
        self.send(&request).map_err(DumpError::Other)?;
        match self.receive(seq, false, &mut |_| Ok(())) {
            Ok(()) => Ok(true),
            Err(DumpError::NotFound) => Ok(false),
            Err(e) => Err(e),
        }
    }

    fn dump(
        &mut self,
        family: Family,
        kind: u16,
        filter: impl FnOnce(&mut wire::Body<'_>),
        mut each: impl FnMut(&[u8]) -> Result<(), KernelError>,
    ) -> Result<(), DumpError> {
        let seq = self.next_seq();
        let request = wire::request(seq, kind, wire::FLAG_DUMP, wire::family(family), filter);
        self.send(&request).map_err(DumpError::Other)?;
        self.receive(seq, true, &mut each)
    }

    /// Receives the answer to `seq`: one message, or all of a dump.
    fn receive(
        &mut self,
        seq: u32,
        dump: bool,
        each: &mut dyn FnMut(&[u8]) -> Result<(), KernelError>,
    ) -> Result<(), DumpError> {
        let mut buffer = vec![0; RECEIVE];
        let mut changed = false;
        loop {
            let n = match recv(self.fd.as_raw_fd(), &mut buffer, MsgFlags::empty()) {
                Ok(n) => n,
                Err(Errno::EINTR) => continue,
                Err(e) => return Err(DumpError::Other(fail("receiving")(e))),
            };
            for reply in wire::replies_to(&buffer[..n], seq) {
                match reply.ok_or(DumpError::Other(KernelError::Malformed { what: "a reply" }))? {
                    Reply::Data { body, interrupted } => {
                        changed |= interrupted;
                        each(body).map_err(DumpError::Other)?;
                        if !dump {
                            return Ok(());
                        }
                    }
                    Reply::Done => return if changed { Err(DumpError::Changed) } else { Ok(()) },
                    Reply::Error(e) if e == Errno::ENOENT as i32 => return Err(DumpError::NotFound),
                    Reply::Error(e) => {
                        return Err(DumpError::Other(fail("reading")(Errno::from_raw(e))));
                    }
                }
            }
        }
    }

    fn send(&self, bytes: &[u8]) -> Result<(), KernelError> {
        loop {
            match sendto(self.fd.as_raw_fd(), bytes, &NetlinkAddr::new(0, 0), MsgFlags::empty()) {
                Ok(_) => return Ok(()),
                Err(Errno::EINTR) => {}
                Err(e) => return Err(fail("sending")(e)),
            }
        }
    }

    fn next_seq(&mut self) -> u32 {
        self.seq = self.seq.wrapping_add(1);
        self.seq
    }
}

impl DumpError {
    fn into_kernel(self, what: &'static str) -> KernelError {
        match self {
            Self::Changed => KernelError::Unstable,
            Self::NotFound => KernelError::Malformed { what },
            Self::Other(e) => e,
        }
    }
}
