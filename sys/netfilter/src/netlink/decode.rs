//! Objects from netlink dumps.

use std::net::IpAddr;

use calico_dpmsg::Member;
use calico_net::{Cidr, IpVersion};
use calico_rules::nft::{self, SetKey};
use smol_str::SmolStr;

use super::encode::{after, octets};
use super::wire::{self, attributes, find, number, text};
use crate::kernel::{SeenHook, SeenMap, SeenSet, SeenTable};
use crate::op::Family;

/// `nft`'s numbers for types of keys; those of concatenated keys have six bits for each part.
const TYPE_IPV4: u32 = 7;
const TYPE_IPV6: u32 = 8;
const TYPE_PROTOCOL: u32 = 12;
const TYPE_SERVICE: u32 = 13;
const TYPE_INTERFACE: u32 = 41;
const TYPE_VERDICT: u32 = 0xffff_ff00;
/// Type of the comment in a rule's user data.
const USERDATA_COMMENT: u8 = 0;

pub(super) fn generation(body: &[u8]) -> Option<u32> {
    number(body, wire::GENERATION_ID)
}

pub(super) fn chain(body: &[u8], table: &str, seen: &mut SeenTable) -> Option<()> {
    if text(body, wire::CHAIN_TABLE)? != table {
        return Some(());
    }
    let name = text(body, wire::CHAIN_NAME)?;
    let hook = match find(body, wire::CHAIN_HOOK) {
        None => None,
        Some(hook) => Some(SeenHook {
            kind: text(body, wire::CHAIN_TYPE)?.into(),
            number: number(hook, wire::HOOK_NUMBER)?,
            priority: number(hook, wire::HOOK_PRIORITY)?.cast_signed(),
        }),
    };
    seen.chains.entry(name.into()).or_default().hook = hook;
    Some(())
}

pub(super) fn rule(body: &[u8], table: &str, seen: &mut SeenTable) -> Option<()> {
    if text(body, wire::RULE_TABLE)? != table {
        return Some(());
    }
    let chain = text(body, wire::RULE_CHAIN)?;
    let hash = find(body, wire::RULE_USERDATA).and_then(comment).and_then(nft::hash_of_comment);
    seen.chains.entry(chain.into()).or_default().hashes.push(hash.map(SmolStr::from));
    Some(())
}

/// The comment in a rule's user data, which is a list of type, length and value.
fn comment(mut data: &[u8]) -> Option<&str> {
    while let [kind, len, rest @ ..] = data {
        let value = rest.get(..usize::from(*len))?;
        if *kind == USERDATA_COMMENT {
            return std::str::from_utf8(value.split(|b| *b == 0).next()?).ok();
        }
        data = &rest[usize::from(*len)..];
    }
    None
}

/// What a set or map is.
pub(super) struct SetInfo {
    pub name: SmolStr,
    kind: Kind,
}

enum Kind {
    Set(Option<SetKey>),
    Map { right: bool },
}

/// Name and type of a set; none if it is nameless or of another table.
pub(super) fn set(body: &[u8], table: &str, family: Family) -> Option<Option<SetInfo>> {
    if text(body, wire::SET_TABLE)? != table {
        return Some(None);
    }
    let name = text(body, wire::SET_NAME)?;
    let flags = number(body, wire::SET_FLAGS).unwrap_or(0);
    let key = number(body, wire::SET_KEY_TYPE)?;
    if flags & wire::SET_ANONYMOUS != 0 {
        return Some(None);
    }
    let addr = match family.version() {
        IpVersion::V4 => TYPE_IPV4,
        IpVersion::V6 => TYPE_IPV6,
    };
    let kind = if flags & wire::SET_MAP != 0 {
        let data = number(body, wire::SET_DATA_TYPE).unwrap_or(0);
        Kind::Map { right: key == TYPE_INTERFACE && data == TYPE_VERDICT && flags == wire::SET_MAP }
    } else {
        let port_key = (addr << 12) | (TYPE_PROTOCOL << 6) | TYPE_SERVICE;
        Kind::Set(match flags {
            0 if key == addr => Some(SetKey::Addr),
            wire::SET_INTERVAL if key == addr => Some(SetKey::Net),
            // Newer versions mark concatenated keys.
            0 | 0x80 if key == port_key => Some(SetKey::AddrProtoPort),
            _ => None,
        })
    };
    Some(Some(SetInfo { name: name.into(), kind }))
}

/// Elements of one set as they come in.
pub(super) struct Elements {
    version: IpVersion,
    set: SeenSet,
    map: SeenMap,
    /// Begin (false) or end (true) of ranges.
    edges: Vec<(IpAddr, bool)>,
    verdicts: bool,
}

impl Elements {
    pub(super) fn new(family: Family, info: &SetInfo) -> Self {
        let (key, verdicts) = match &info.kind {
            Kind::Set(key) => (*key, false),
            Kind::Map { .. } => (None, true),
        };
        let set = SeenSet { key, members: Default::default(), odd: false };
        Self { version: family.version(), set, map: SeenMap::default(), edges: Vec::new(), verdicts }
    }

    pub(super) fn read(&mut self, body: &[u8]) -> Option<()> {
        let Some(list) = find(body, wire::ELEMENTS) else { return Some(()) };
        for (_, item) in attributes(list) {
            let key = find(find(item, wire::ELEMENT_KEY)?, wire::DATA_VALUE);
            let flags = number(item, wire::ELEMENT_FLAGS).unwrap_or(0);
            match key {
                _ if self.verdicts => self.verdict(key, item),
                Some(key) => self.member(key, flags),
                None => self.set.odd = true,
            }
        }
        Some(())
    }

    fn verdict(&mut self, key: Option<&[u8]>, item: &[u8]) {
        let read = || -> Option<(SmolStr, SmolStr)> {
            let name = std::str::from_utf8(key?.split(|b| *b == 0).next()?).ok()?;
            let verdict = find(find(item, wire::ELEMENT_DATA)?, wire::DATA_VERDICT)?;
            let goto = number(verdict, wire::VERDICT_CODE)? == wire::GOTO.cast_unsigned();
            let chain = text(verdict, wire::VERDICT_CHAIN)?;
            goto.then(|| (name.into(), chain.into()))
        };
        match read() {
            Some((name, chain)) => {
                self.map.entries.insert(name, chain);
            }
            None => self.map.odd = true,
        }
    }

    fn member(&mut self, key: &[u8], flags: u32) {
        match self.set.key {
            Some(SetKey::Net) => match addr(self.version, key) {
                Some(addr) => self.edges.push((addr, flags & wire::INTERVAL_END != 0)),
                None => self.set.odd = true,
            },
            Some(SetKey::Addr) => match addr(self.version, key) {
                Some(addr) => {
                    self.set.members.insert(Member::Net(Cidr::host(addr)));
                }
                None => self.set.odd = true,
            },
            Some(SetKey::AddrProtoPort) => match addr_proto_port(self.version, key) {
                Some(member) => {
                    self.set.members.insert(member);
                }
                None => self.set.odd = true,
            },
            None => self.set.odd = true,
        }
    }

    pub(super) fn finish(mut self, info: SetInfo, seen: &mut SeenTable) {
        match info.kind {
            Kind::Map { right } => {
                self.map.wrong_type = !right;
                seen.maps.insert(info.name, self.map);
            }
            Kind::Set(_) => {
                self.ranges();
                seen.sets.insert(info.name, self.set);
            }
        }
    }

    /// Ranges from their edges. An end sorts before a beginning at the same address.
    fn ranges(&mut self) {
        self.edges.sort_unstable_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
        let mut begin: Option<IpAddr> = None;
        for &(addr, end) in &self.edges {
            match (begin, end) {
                (Some(b), true) => {
                    begin = None;
                    match network(b, Some(addr)) {
                        Some(net) => {
                            self.set.members.insert(Member::Net(net));
                        }
                        None => self.set.odd = true,
                    }
                }
                // `nft` closes the space before the first range.
                (None, true) => {}
                (None, false) => begin = Some(addr),
                (Some(_), false) => self.set.odd = true,
            }
        }
        if let Some(b) = begin {
            match network(b, None) {
                Some(net) => {
                    self.set.members.insert(Member::Net(net));
                }
                None => self.set.odd = true,
            }
        }
    }
}

/// The network from `begin` up to, without, `end`; up to the last address if there is no end. None if that is
/// not one network.
fn network(begin: IpAddr, end: Option<IpAddr>) -> Option<Cidr> {
    let bits = IpVersion::of(begin).bits();
    (0..=bits).filter_map(|len| Cidr::new(begin, len)).find(|net| net.is_masked() && after(net) == end)
}

fn addr(version: IpVersion, key: &[u8]) -> Option<IpAddr> {
    match version {
        IpVersion::V4 => Some(IpAddr::from(<[u8; 4]>::try_from(key).ok()?)),
        IpVersion::V6 => Some(IpAddr::from(<[u8; 16]>::try_from(key).ok()?)),
    }
}

fn addr_proto_port(version: IpVersion, key: &[u8]) -> Option<Member> {
    let len = usize::from(version.bits() / 8);
    let addr = addr(version, key.get(..len)?)?;
    let [protocol, _, _, _, high, low, _, _] = key.get(len..)? else { return None };
    debug_assert_eq!(octets(addr).len(), len);
    Some(Member::IpPort { addr, protocol: *protocol, port: u16::from_be_bytes([*high, *low]) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_from_ranges() {
        let ip = |t: &str| t.parse::<IpAddr>().unwrap();
        let net = |a: &str, b: Option<&str>| network(ip(a), b.map(ip)).map(|n| n.to_string());
        assert_eq!(net("10.0.0.0", Some("10.0.1.0")).as_deref(), Some("10.0.0.0/24"));
        assert_eq!(net("10.0.0.1", Some("10.0.0.2")).as_deref(), Some("10.0.0.1/32"));
        assert_eq!(net("10.0.0.0", Some("10.0.3.0")), None);
        assert_eq!(net("0.0.0.0", None).as_deref(), Some("0.0.0.0/0"));
        assert_eq!(net("255.255.255.255", None).as_deref(), Some("255.255.255.255/32"));
        assert_eq!(net("128.0.0.0", None).as_deref(), Some("128.0.0.0/1"));
        assert_eq!(net("::", None).as_deref(), Some("::/0"));
        assert_eq!(net("ff00::", None).as_deref(), Some("ff00::/8"));
        assert_eq!(net("fd00::", Some("fd01::")).as_deref(), Some("fd00::/16"));
    }

    #[test]
    fn comments() {
        assert_eq!(comment(b"\x00\x03hi\x00"), Some("hi"));
        assert_eq!(comment(b"\x07\x01x\x00\x03hi\x00"), Some("hi"));
        assert_eq!(comment(b"\x07\x09x"), None);
        assert_eq!(comment(b""), None);
    }
}
