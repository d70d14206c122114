//! Requests and replies on one netlink socket.
//!
//! A batch asks for an acknowledgement of its last request only: the kernel works through a datagram in order,
//! reports each failure, and the last answer says that all are done. So the receive buffer never overflows and
//! a success costs no reply.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_ACK_TLVS, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR,
    NetlinkBuffer, NetlinkSerializable,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::{Socket, SocketAddr};
use nix::errno::Errno;
use nix::sched::{CloneFlags, setns};
use nix::sys::socket::{setsockopt, sockopt};

use crate::error::{NetlinkError, Object};
use crate::wire::{Message, attributes, messages, text_of};

/// Most requests in one datagram. Their error replies fit in the default receive buffer.
const BATCH_REQUESTS: usize = 128;
/// Most bytes in one datagram, well below the default send buffer.
const BATCH_BYTES: usize = 64 * 1024;
/// Wanted size of the receive buffer in bytes.
const RECEIVE_BUFFER: usize = 4 * 1024 * 1024;
/// Attempts to read a table that changes meanwhile.
const DUMP_ATTEMPTS: usize = 5;
/// Length of a message header (`struct nlmsghdr`).
const HEADER: usize = 16;
/// Attribute of an error reply: the kernel's explanation (`NLMSGERR_ATTR_MSG`).
const ERROR_TEXT: u16 = 1;

/// One change to be made in the kernel. Made by the types that describe objects, for example
/// [`crate::Route::replace`]; carried out by [`crate::Netlink::execute`] or [`crate::Netlink::batch`].
#[derive(Debug, Clone)]
pub struct Request {
    pub(crate) call: &'static str,
    pub(crate) object: Object,
    pub(crate) kind: u16,
    pub(crate) flags: u16,
    pub(crate) payload: Vec<u8>,
}

// === impl Request ===

impl Request {
    pub(crate) fn new(call: &'static str, object: Object, flags: u16, message: &RouteNetlinkMessage) -> Self {
        let mut payload = vec![0; message.buffer_len()];
        message.serialize(&mut payload);
        Self { call, object, kind: message.message_type(), flags, payload }
    }

    /// What the request is about.
    pub fn object(&self) -> &Object {
        &self.object
    }

    fn append(&self, datagram: &mut Vec<u8>, sequence: u32, flags: u16) {
        let start = datagram.len();
        let length = HEADER + self.payload.len();
        datagram.resize(start + length.next_multiple_of(4), 0);
        let mut buffer = NetlinkBuffer::new(&mut datagram[start..start + length]);
        buffer.set_length(length as u32);
        buffer.set_message_type(self.kind);
        buffer.set_flags(self.flags | flags | NLM_F_REQUEST);
        buffer.set_sequence_number(sequence);
        buffer.payload_mut().copy_from_slice(&self.payload);
    }

    fn refused(&self, errno: i32, detail: Option<String>) -> NetlinkError {
        NetlinkError::Kernel {
            call: self.call,
            object: self.object.clone(),
            errno: Errno::from_raw(errno.saturating_neg()),
            detail,
        }
    }

    pub(crate) fn undecodable(&self, reason: String) -> NetlinkError {
        NetlinkError::Decode { call: self.call, object: self.object.clone(), reason }
    }
}

/// How reading replies went.
enum Received {
    /// All were seen.
    Complete,
    /// The kernel says that the table changed meanwhile.
    Again,
}

/// A netlink socket of one protocol in one network namespace.
#[derive(Debug)]
pub(crate) struct Channel {
    socket: Socket,
    sequence: u32,
    buffer: Vec<u8>,
}

// === impl Channel ===

impl Channel {
    /// Opens a socket in the calling thread's namespace.
    pub(crate) fn open(protocol: isize) -> Result<Self, NetlinkError> {
        let socket = open_socket(protocol, 0)?;
        // Strict checking makes the kernel honour the filters of a dump.
        let _ = socket.set_netlink_get_strict_chk(true);
        Ok(Self { socket, sequence: 0, buffer: Vec::with_capacity(64 * 1024) })
    }

    /// Opens a socket in another namespace.
    pub(crate) fn open_in(ns: BorrowedFd<'_>, protocol: isize) -> Result<Self, NetlinkError> {
        in_namespace(ns, || Self::open(protocol))
    }

    /// Carries out `requests`; one result for each.
    pub(crate) fn execute(
        &mut self,
        requests: &[Request],
    ) -> Result<Vec<Result<(), NetlinkError>>, NetlinkError> {
        let mut results: Vec<Result<(), NetlinkError>> = Vec::with_capacity(requests.len());
        while results.len() < requests.len() {
            let rest = &requests[results.len()..];
            let mut bytes = 0;
            let fitting = rest
                .iter()
                .take(BATCH_REQUESTS)
                .take_while(|r| {
                    bytes += HEADER + r.payload.len() + 4;
                    bytes <= BATCH_BYTES
                })
                .count();
            self.execute_datagram(&rest[..fitting.max(1)], &mut results)?;
        }
        Ok(results)
    }

    fn execute_datagram(
        &mut self,
        requests: &[Request],
        results: &mut Vec<Result<(), NetlinkError>>,
    ) -> Result<(), NetlinkError> {
        let Some(last) = requests.len().checked_sub(1) else { return Ok(()) };
        let first_sequence = self.sequence.wrapping_add(1);
        let first_result = results.len();
        let mut datagram = Vec::new();
        for (i, request) in requests.iter().enumerate() {
            let flags = if i == last { NLM_F_ACK } else { 0 };
            request.append(&mut datagram, first_sequence.wrapping_add(i as u32), flags);
            results.push(Ok(()));
        }
        self.sequence = first_sequence.wrapping_add(last as u32);
        self.send(&datagram)?;
        loop {
            self.receive()?;
            let mut done = false;
            for message in messages(&self.buffer) {
                let place = message.sequence.wrapping_sub(first_sequence) as usize;
                let Some(request) = requests.get(place) else { continue };
                let Some((code, detail)) = error_reply(&message) else { continue };
                if code != 0 {
                    results[first_result + place] = Err(request.refused(code, detail));
                }
                done |= place == last;
            }
            if done {
                return Ok(());
            }
        }
    }

    /// Reads everything that `request` asks for. `decode` returns `None` for what the caller does not want; its
    /// error is a text.
    pub(crate) fn dump<T>(
        &mut self,
        request: &Request,
        mut decode: impl FnMut(&[u8]) -> Result<Option<T>, String>,
    ) -> Result<Vec<T>, NetlinkError> {
        for _ in 0..DUMP_ATTEMPTS {
            let mut items = Vec::new();
            let mut failure = None;
            let received = self.ask(request, NLM_F_DUMP, |payload| match decode(payload) {
                Ok(Some(item)) => items.push(item),
                Ok(None) => {}
                Err(reason) => failure = Some(reason),
            })?;
            match (received, failure) {
                (Received::Again, _) => {}
                (Received::Complete, Some(reason)) => return Err(request.undecodable(reason)),
                (Received::Complete, None) => return Ok(items),
            }
        }
        Err(NetlinkError::Interrupted { call: request.call, object: request.object.clone() })
    }

    /// Reads one object.
    pub(crate) fn get<T>(
        &mut self,
        request: &Request,
        mut decode: impl FnMut(&[u8]) -> Result<T, String>,
    ) -> Result<T, NetlinkError> {
        for _ in 0..DUMP_ATTEMPTS {
            let mut found = None;
            match self.ask(request, NLM_F_ACK, |payload| found = Some(decode(payload)))? {
                Received::Again => {}
                Received::Complete => {
                    return found
                        .unwrap_or_else(|| Err("no object in the answer".to_owned()))
                        .map_err(|reason| request.undecodable(reason));
                }
            }
        }
        Err(NetlinkError::Interrupted { call: request.call, object: request.object.clone() })
    }

    /// Sends one request and gives the payloads of its replies to `each` until the kernel says that it is done.
    fn ask(
        &mut self,
        request: &Request,
        flags: u16,
        mut each: impl FnMut(&[u8]),
    ) -> Result<Received, NetlinkError> {
        self.sequence = self.sequence.wrapping_add(1);
        let sequence = self.sequence;
        let mut datagram = Vec::with_capacity(HEADER + request.payload.len());
        request.append(&mut datagram, sequence, flags);
        self.send(&datagram)?;
        let mut outcome = Received::Complete;
        loop {
            self.receive()?;
            for message in messages(&self.buffer) {
                if message.sequence != sequence {
                    continue;
                }
                if message.flags & NLM_F_DUMP_INTR != 0 {
                    outcome = Received::Again;
                }
                match error_reply(&message) {
                    Some((0, _)) => return Ok(outcome),
                    Some((code, _)) if Errno::from_raw(code.saturating_neg()) == Errno::EINTR => {
                        return Ok(Received::Again);
                    }
                    Some((code, detail)) => return Err(request.refused(code, detail)),
                    None => each(message.payload),
                }
            }
        }
    }

    fn send(&self, datagram: &[u8]) -> Result<(), NetlinkError> {
        loop {
            match self.socket.send(datagram, 0) {
                Ok(_) => return Ok(()),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(NetlinkError::Socket { call: "send on", source }),
            }
        }
    }

    /// Receives one datagram into the buffer.
    fn receive(&mut self) -> Result<(), NetlinkError> {
        receive(&self.socket, &mut self.buffer, 0)
    }
}

/// Runs `f` on a new thread that is in namespace `ns`.
pub(crate) fn in_namespace<T: Send>(
    ns: BorrowedFd<'_>,
    f: impl FnOnce() -> Result<T, NetlinkError> + Send,
) -> Result<T, NetlinkError> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .name("netlink-open".to_owned())
            .spawn_scoped(scope, move || {
                setns(ns, CloneFlags::CLONE_NEWNET).map_err(NetlinkError::Namespace)?;
                f()
            })
            .map_err(|source| NetlinkError::Socket { call: "start a thread to open", source })?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Opens and connects a socket that is a member of the multicast groups in `groups` (a bit mask).
pub(crate) fn open_socket(protocol: isize, groups: u32) -> Result<Socket, NetlinkError> {
    let failed = |call| move |source| NetlinkError::Socket { call, source };
    let mut socket = Socket::new(protocol).map_err(failed("open"))?;
    socket.bind(&SocketAddr::new(0, groups)).map_err(failed("bind"))?;
    socket.connect(&SocketAddr::new(0, 0)).map_err(failed("connect"))?;
    // Explanations, short error replies and room for bursts: of use, but old kernels and containers without
    // rights work without.
    let _ = socket.set_ext_ack(true);
    let _ = socket.set_cap_ack(true);
    let wanted = RECEIVE_BUFFER;
    if setsockopt(&socket.as_fd(), sockopt::RcvBufForce, &wanted).is_err() {
        let _ = setsockopt(&socket.as_fd(), sockopt::RcvBuf, &wanted);
    }
    Ok(socket)
}

/// Receives one whole datagram, whatever its length.
pub(crate) fn receive(socket: &Socket, buffer: &mut Vec<u8>, flags: i32) -> Result<(), NetlinkError> {
    let mut attempt = || {
        let length = socket.recv(&mut [0u8; 0].as_mut_slice(), flags | libc::MSG_PEEK | libc::MSG_TRUNC)?;
        buffer.clear();
        buffer.reserve(length);
        socket.recv(buffer, flags)
    };
    loop {
        match attempt() {
            Ok(_) => return Ok(()),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(source) => return Err(NetlinkError::Socket { call: "receive on", source }),
        }
    }
}

/// The error code (zero or negative) and explanation of a message that ends a reply; `None` for other messages.
fn error_reply(message: &Message<'_>) -> Option<(i32, Option<String>)> {
    if message.kind != NLMSG_ERROR && message.kind != NLMSG_DONE {
        return None;
    }
    let code = message.payload.first_chunk::<4>().map_or(0, |bytes| i32::from_ne_bytes(*bytes));
    let mut detail = None;
    if code != 0 && message.flags & NLM_F_ACK_TLVS != 0 {
        // After the code: for an error the header of the request, for the end of a dump nothing.
        let skip = if message.kind == NLMSG_ERROR { 4 + HEADER } else { 4 };
        let _ = attributes(message.payload, skip, |kind, value| {
            if kind == ERROR_TEXT {
                detail = text_of(value).ok();
            }
            Ok::<(), ()>(())
        });
    }
    Some((code, detail))
}
