//! Changes as netlink batches.

use std::net::IpAddr;

use calico_dpmsg::Member;
use calico_net::{Cidr, IpVersion};
use calico_rules::nft::SetKey;
use smol_str::SmolStr;

use super::wire::{self, Batch, Body};
use crate::op::{Op, Transaction};

/// Bytes of elements in one message; an attribute's length has 16 bits.
const PER_MESSAGE: usize = 60_000;
/// Bytes of an interface name as a key.
const INTERFACE: usize = 16;

/// The transaction as a batch, or none if it holds a change that only `nft` can make.
pub(crate) fn batch(transaction: &Transaction) -> Option<Batch> {
    let simple = |op: &Op| {
        matches!(
            op,
            Op::FlushChain { .. }
                | Op::DeleteChain { .. }
                | Op::DeleteSet { .. }
                | Op::FlushSet { .. }
                | Op::AddMembers { .. }
                | Op::DeleteMembers { .. }
                | Op::DeleteMap { .. }
                | Op::FlushMap { .. }
                | Op::AddVerdicts { .. }
                | Op::DeleteVerdicts { .. }
        )
    };
    if transaction.ops.is_empty() || !transaction.ops.iter().all(simple) {
        return None;
    }
    let mut writer = Writer {
        batch: Batch::new(),
        family: wire::family(transaction.family),
        version: transaction.family.version(),
        table: &transaction.table,
    };
    transaction.ops.iter().for_each(|op| writer.op(op));
    Some(writer.batch.finish())
}

struct Writer<'a> {
    batch: Batch,
    family: u8,
    version: IpVersion,
    table: &'a str,
}

impl Writer<'_> {
    fn op(&mut self, op: &Op) {
        match op {
            Op::FlushChain { chain } => self.named(wire::DELETE_RULE, wire::RULE_CHAIN, chain),
            Op::DeleteChain { chain } => self.named(wire::DELETE_CHAIN, wire::CHAIN_NAME, chain),
            Op::DeleteSet { set: name } | Op::DeleteMap { map: name } => {
                self.named(wire::DELETE_SET, wire::SET_NAME, name);
            }
            Op::FlushSet { set: name } | Op::FlushMap { map: name } => {
                self.named(wire::DELETE_ELEMENT, wire::ELEMENTS_SET, name);
            }
            Op::AddMembers { set, key, members } => self.members(wire::NEW_ELEMENT, set, *key, members),
            Op::DeleteMembers { set, key, members } => {
                self.members(wire::DELETE_ELEMENT, set, *key, members);
            }
            Op::AddVerdicts { map, entries } => self.verdicts(wire::NEW_ELEMENT, map, entries),
            Op::DeleteVerdicts { map, entries } => self.verdicts(wire::DELETE_ELEMENT, map, entries),
            // Ruled out by the caller.
            Op::AddTable
            | Op::DeleteTable
            | Op::AddBaseChain { .. }
            | Op::AddChain { .. }
            | Op::AddRule { .. }
            | Op::AddSet { .. }
            | Op::AddMap { .. } => {}
        }
    }

    /// A message that names the table (always attribute 1) and one thing in it.
    fn named(&mut self, kind: u16, attribute: u16, name: &str) {
        let table = self.table;
        self.batch.add(kind, 0, self.family, |b| {
            b.text(wire::TABLE_NAME, table);
            b.text(attribute, name);
        });
    }

    fn members(&mut self, kind: u16, set: &str, key: SetKey, members: &[Member]) {
        let version = self.version;
        self.elements(kind, set, members, |m, b| match (key, m) {
            (SetKey::Net, Member::Net(net)) => interval(net, b),
            (_, Member::Net(net)) => item(&octets(net.addr()), 0, b, |_| {}),
            (_, Member::IpPort { addr, protocol, port }) => {
                let mut bytes = octets(*addr);
                debug_assert_eq!(IpVersion::of(*addr), version);
                // Each part is padded to four bytes.
                bytes.extend_from_slice(&[*protocol, 0, 0, 0]);
                bytes.extend_from_slice(&port.to_be_bytes());
                bytes.extend_from_slice(&[0, 0]);
                item(&bytes, 0, b, |_| {});
            }
        });
    }

    fn verdicts(&mut self, kind: u16, map: &str, entries: &[(SmolStr, SmolStr)]) {
        self.elements(kind, map, entries, |(iface, chain), b| {
            let mut name = [0; INTERFACE];
            let len = iface.len().min(INTERFACE);
            name[..len].copy_from_slice(&iface.as_bytes()[..len]);
            item(&name, 0, b, |b| {
                b.nest(wire::ELEMENT_DATA, |b| {
                    b.nest(wire::DATA_VERDICT, |b| {
                        b.bytes(wire::VERDICT_CODE, &wire::GOTO.to_be_bytes());
                        b.text(wire::VERDICT_CHAIN, chain);
                    });
                });
            });
        });
    }

    /// As many messages as the elements need.
    fn elements<T>(
        &mut self,
        kind: u16,
        set: &str,
        elements: &[T],
        mut write: impl FnMut(&T, &mut Body<'_>),
    ) {
        let flags = if kind == wire::NEW_ELEMENT { wire::FLAG_CREATE } else { 0 };
        let table = self.table;
        let mut rest = elements.iter().peekable();
        while rest.peek().is_some() {
            self.batch.add(kind, flags, self.family, |b| {
                b.text(wire::ELEMENTS_TABLE, table);
                b.text(wire::ELEMENTS_SET, set);
                b.nest(wire::ELEMENTS, |b| {
                    let start = b.len();
                    while b.len() - start < PER_MESSAGE
                        && let Some(e) = rest.next()
                    {
                        write(e, b);
                    }
                });
            });
        }
    }
}

fn item(key: &[u8], flags: u32, b: &mut Body<'_>, data: impl FnOnce(&mut Body<'_>)) {
    b.nest(wire::LIST_ITEM, |b| {
        if flags != 0 {
            b.number(wire::ELEMENT_FLAGS, flags);
        }
        b.nest(wire::ELEMENT_KEY, |b| b.bytes(wire::DATA_VALUE, key));
        data(b);
    });
}

/// A range is its first address and, unless it reaches the last one, the first address after it.
fn interval(net: &Cidr, b: &mut Body<'_>) {
    let net = net.masked();
    item(&octets(net.addr()), 0, b, |_| {});
    if let Some(after) = after(&net) {
        item(&octets(after), wire::INTERVAL_END, b, |_| {});
    }
}

/// The first address after a network.
pub(crate) fn after(net: &Cidr) -> Option<IpAddr> {
    net.nth(net.size()?)
}

pub(crate) fn octets(addr: IpAddr) -> Vec<u8> {
    match addr {
        IpAddr::V4(a) => a.octets().to_vec(),
        IpAddr::V6(a) => a.octets().to_vec(),
    }
}
