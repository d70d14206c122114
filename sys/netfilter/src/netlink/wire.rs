//! Frames and attributes.

use crate::op::Family;

/// nf_tables' number among netfilter's subsystems.
const SUBSYSTEM: u16 = 10;
const fn message(n: u16) -> u16 {
    (SUBSYSTEM << 8) | n
}

pub(crate) const GET_TABLE: u16 = message(1);
pub(crate) const GET_CHAIN: u16 = message(4);
pub(crate) const DELETE_CHAIN: u16 = message(5);
pub(crate) const GET_RULE: u16 = message(7);
pub(crate) const DELETE_RULE: u16 = message(8);
pub(crate) const GET_SET: u16 = message(10);
pub(crate) const DELETE_SET: u16 = message(11);
pub(crate) const NEW_ELEMENT: u16 = message(12);
pub(crate) const GET_ELEMENT: u16 = message(13);
pub(crate) const DELETE_ELEMENT: u16 = message(14);
pub(crate) const GET_GENERATION: u16 = message(16);

const BATCH_BEGIN: u16 = 16;
const BATCH_END: u16 = 17;
const ERROR: u16 = 2;
const DONE: u16 = 3;

const FLAG_REQUEST: u16 = 0x1;
const FLAG_ACK: u16 = 0x4;
const FLAG_INTERRUPTED: u16 = 0x10;
pub(crate) const FLAG_DUMP: u16 = 0x300;
pub(crate) const FLAG_CREATE: u16 = 0x400;

pub(crate) const TABLE_NAME: u16 = 1;
pub(crate) const CHAIN_TABLE: u16 = 1;
pub(crate) const CHAIN_NAME: u16 = 3;
pub(crate) const CHAIN_HOOK: u16 = 4;
pub(crate) const CHAIN_TYPE: u16 = 7;
pub(crate) const HOOK_NUMBER: u16 = 1;
pub(crate) const HOOK_PRIORITY: u16 = 2;
pub(crate) const RULE_TABLE: u16 = 1;
pub(crate) const RULE_CHAIN: u16 = 2;
pub(crate) const RULE_USERDATA: u16 = 7;
pub(crate) const SET_TABLE: u16 = 1;
pub(crate) const SET_NAME: u16 = 2;
pub(crate) const SET_FLAGS: u16 = 3;
pub(crate) const SET_KEY_TYPE: u16 = 4;
pub(crate) const SET_DATA_TYPE: u16 = 6;
pub(crate) const ELEMENTS_TABLE: u16 = 1;
pub(crate) const ELEMENTS_SET: u16 = 2;
pub(crate) const ELEMENTS: u16 = 3;
pub(crate) const LIST_ITEM: u16 = 1;
pub(crate) const ELEMENT_KEY: u16 = 1;
pub(crate) const ELEMENT_DATA: u16 = 2;
pub(crate) const ELEMENT_FLAGS: u16 = 3;
pub(crate) const DATA_VALUE: u16 = 1;
pub(crate) const DATA_VERDICT: u16 = 2;
pub(crate) const VERDICT_CODE: u16 = 1;
pub(crate) const VERDICT_CHAIN: u16 = 2;
pub(crate) const GENERATION_ID: u16 = 1;

/// The set is nameless, part of a rule.
pub(crate) const SET_ANONYMOUS: u32 = 1;
pub(crate) const SET_INTERVAL: u32 = 4;
pub(crate) const SET_MAP: u32 = 8;
/// The element is the first address after a range.
pub(crate) const INTERVAL_END: u32 = 1;
/// Verdict code of `goto`.
pub(crate) const GOTO: i32 = -4;

const NESTED: u16 = 0x8000;
const TYPE_MASK: u16 = 0x3fff;
const HEADER: usize = 16;
/// After the header: family, version, resource.
const NETFILTER_HEADER: usize = 4;

/// The kernel's number for a family.
pub(crate) fn family(family: Family) -> u8 {
    match family {
        Family::Ip(calico_net::IpVersion::V4) => 2,
        Family::Ip(calico_net::IpVersion::V6) => 10,
        Family::Arp => 3,
    }
}

/// Attributes of a message being written.
pub(crate) struct Body<'a>(&'a mut Vec<u8>);

impl Body<'_> {
    pub(crate) fn bytes(&mut self, kind: u16, value: &[u8]) {
        let at = self.0.len();
        self.0.extend_from_slice(&[0; 4]);
        self.0.extend_from_slice(value);
        self.close(at, kind);
    }

    pub(crate) fn text(&mut self, kind: u16, value: &str) {
        let at = self.0.len();
        self.0.extend_from_slice(&[0; 4]);
        self.0.extend_from_slice(value.as_bytes());
        self.0.push(0);
        self.close(at, kind);
    }

    pub(crate) fn number(&mut self, kind: u16, value: u32) {
        self.bytes(kind, &value.to_be_bytes());
    }

    pub(crate) fn nest(&mut self, kind: u16, write: impl FnOnce(&mut Body<'_>)) {
        let at = self.0.len();
        self.0.extend_from_slice(&[0; 4]);
        write(&mut Body(self.0));
        self.close(at, kind | NESTED);
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Writes length and type of the attribute that began at `at`, and pads it. Callers keep attributes below
    /// 64 KiB.
    fn close(&mut self, at: usize, kind: u16) {
        let len = u16::try_from(self.0.len() - at).unwrap_or(u16::MAX);
        self.0[at..at + 2].copy_from_slice(&len.to_ne_bytes());
        self.0[at + 2..at + 4].copy_from_slice(&kind.to_ne_bytes());
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }
}

fn frame(
    out: &mut Vec<u8>,
    seq: u32,
    kind: u16,
    flags: u16,
    family: u8,
    resource: u16,
    write: impl FnOnce(&mut Body<'_>),
) -> usize {
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&kind.to_ne_bytes());
    out.extend_from_slice(&flags.to_ne_bytes());
    out.extend_from_slice(&seq.to_ne_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&[family, 0]);
    out.extend_from_slice(&resource.to_be_bytes());
    write(&mut Body(out));
    let len = u32::try_from(out.len() - at).unwrap_or(u32::MAX);
    out[at..at + 4].copy_from_slice(&len.to_ne_bytes());
    at
}

/// A single request.
pub(crate) fn request(
    seq: u32,
    kind: u16,
    flags: u16,
    family: u8,
    write: impl FnOnce(&mut Body<'_>),
) -> Vec<u8> {
    let mut out = Vec::with_capacity(128);
    frame(&mut out, seq, kind, flags | FLAG_REQUEST, family, 0, write);
    out
}

/// Messages that happen together.
pub(crate) struct Batch {
    out: Vec<u8>,
    seq: u32,
    last: Option<usize>,
}

impl Batch {
    pub(crate) fn new() -> Self {
        let mut out = Vec::with_capacity(4096);
        frame(&mut out, 0, BATCH_BEGIN, FLAG_REQUEST, 0, SUBSYSTEM, |_| {});
        Self { out, seq: 0, last: None }
    }

    pub(crate) fn add(&mut self, kind: u16, flags: u16, family: u8, write: impl FnOnce(&mut Body<'_>)) {
        self.seq = self.seq.wrapping_add(1);
        self.last = Some(frame(&mut self.out, self.seq, kind, flags | FLAG_REQUEST, family, 0, write));
    }

    /// Closes the batch. The last message asks for an answer, which comes after the commit.
    pub(crate) fn finish(mut self) -> Self {
        if let Some(at) = self.last {
            let flags = u16::from_ne_bytes([self.out[at + 6], self.out[at + 7]]) | FLAG_ACK;
            self.out[at + 6..at + 8].copy_from_slice(&flags.to_ne_bytes());
        }
        let seq = self.seq.wrapping_add(1);
        frame(&mut self.out, seq, BATCH_END, FLAG_REQUEST, 0, SUBSYSTEM, |_| {});
        self
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.out
    }
}

/// What the kernel said.
pub(crate) enum Reply<'a> {
    /// Attributes of an object.
    Data { body: &'a [u8], interrupted: bool },
    /// The request is done.
    Done,
    /// The request failed; a positive error number.
    Error(i32),
}

fn u16_at(b: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(b.get(at..at + 2)?.try_into().ok()?))
}

fn i32_at(b: &[u8], at: usize) -> Option<i32> {
    Some(i32::from_ne_bytes(b.get(at..at + 4)?.try_into().ok()?))
}

/// All messages in a buffer; `None` for one that cannot be read, which is the last.
pub(crate) fn replies(bytes: &[u8]) -> impl Iterator<Item = Option<Reply<'_>>> {
    frames(bytes).map(|f| f.map(|(_, reply)| reply))
}

/// Messages that answer `seq`.
pub(crate) fn replies_to(bytes: &[u8], seq: u32) -> impl Iterator<Item = Option<Reply<'_>>> {
    frames(bytes).filter_map(move |f| match f {
        Some((s, reply)) => (s == seq).then_some(Some(reply)),
        None => Some(None),
    })
}

fn frames(mut bytes: &[u8]) -> impl Iterator<Item = Option<(u32, Reply<'_>)>> {
    std::iter::from_fn(move || {
        if bytes.is_empty() {
            return None;
        }
        let read = || -> Option<(u32, Reply<'_>, usize)> {
            let len = usize::try_from(i32_at(bytes, 0)?).ok()?;
            let message = bytes.get(..len).filter(|m| m.len() >= HEADER)?;
            let (kind, flags) = (u16_at(message, 4)?, u16_at(message, 6)?);
            let seq = u32::from_ne_bytes(message[8..12].try_into().ok()?);
            let reply = match kind {
                DONE => match i32_at(message, HEADER) {
                    Some(e) if e < 0 => Reply::Error(-e),
                    _ => Reply::Done,
                },
                ERROR => match i32_at(message, HEADER)? {
                    0 => Reply::Done,
                    e => Reply::Error(-e),
                },
                _ => Reply::Data {
                    body: message.get(HEADER + NETFILTER_HEADER..)?,
                    interrupted: flags & FLAG_INTERRUPTED != 0,
                },
            };
            Some((seq, reply, len))
        };
        match read() {
            Some((seq, reply, len)) => {
                bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
                Some(Some((seq, reply)))
            }
            None => {
                bytes = &[];
                Some(None)
            }
        }
    })
}

/// Attributes of a message or of another attribute: type and value. Reading stops at what is malformed.
pub(crate) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let len = usize::from(u16_at(bytes, 0)?);
        let kind = u16_at(bytes, 2)? & TYPE_MASK;
        let value = bytes.get(4..len)?;
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

/// The first attribute of a type.
pub(crate) fn find(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    attributes(bytes).find(|(k, _)| *k == kind).map(|(_, v)| v)
}

/// A text attribute.
pub(crate) fn text(bytes: &[u8], kind: u16) -> Option<&str> {
    let value = find(bytes, kind)?;
    std::str::from_utf8(value.split(|b| *b == 0).next()?).ok()
}

/// A number attribute.
pub(crate) fn number(bytes: &[u8], kind: u16) -> Option<u32> {
    Some(u32::from_be_bytes(find(bytes, kind)?.try_into().ok()?))
}
