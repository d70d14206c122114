//! Digests that name rules, equal to upstream's so that both kinds of agent name a rule alike.
//!
//! A chain of SHA-224: the first link hashes a seed that names the policy or profile and the direction, each
//! next one the link before and the rule in protobuf form (`felix.Rule`, without its id). The name of a rule is
//! the first 16 characters of its link in URL-safe base64.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use calico_dpmsg::{IcmpMatch, Rule, RuleId};
use calico_net::{Cidr, IpVersion, PortRange, Protocol};
use sha2::{Digest, Sha224};

use crate::rules::{RuleStore, StoredRule};

/// Characters of a rule's name.
const NAME_LEN: usize = 16;

/// The chain of one direction of a policy or profile.
pub(crate) struct Chain {
    link: [u8; 28],
    buffer: Vec<u8>,
}

// === impl Chain ===

impl Chain {
    /// Starts a chain.
    pub(crate) fn new(seed: &str) -> Self {
        Self { link: Sha224::digest(seed).into(), buffer: Vec::with_capacity(256) }
    }

    /// The name of the next rule. `stored` supplies what the dataplane's form does not hold.
    pub(crate) fn next(&mut self, rule: &Rule, stored: &StoredRule, store: &RuleStore) -> RuleId {
        self.buffer.clear();
        self.buffer.extend_from_slice(&self.link);
        encode(&mut Writer(&mut self.buffer), rule, stored, store);
        self.link = Sha224::digest(&self.buffer).into();
        let mut text = [0u8; 40];
        let len = URL_SAFE_NO_PAD.encode_slice(self.link, &mut text).unwrap_or(0).min(NAME_LEN);
        std::str::from_utf8(&text[..len]).unwrap_or_default().into()
    }
}

/// Writes protobuf fields that are not empty.
struct Writer<'a>(&'a mut Vec<u8>);

impl Writer<'_> {
    fn varint(&mut self, mut n: u64) {
        while n >= 0x80 {
            self.0.push(n as u8 | 0x80);
            n >>= 7;
        }
        self.0.push(n as u8);
    }

    fn number(&mut self, field: u32, n: u64) {
        self.varint(u64::from(field) << 3);
        self.varint(n);
    }

    fn bytes(&mut self, field: u32, bytes: &[u8]) {
        self.varint(u64::from(field) << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn text(&mut self, field: u32, text: &str) {
        if !text.is_empty() {
            self.bytes(field, text.as_bytes());
        }
    }

    fn texts<T: AsRef<str>>(&mut self, field: u32, texts: &[T]) {
        texts.iter().for_each(|t| self.bytes(field, t.as_ref().as_bytes()));
    }

    fn nets(&mut self, field: u32, nets: &[Cidr]) {
        nets.iter().for_each(|n| self.bytes(field, n.to_string().as_bytes()));
    }

    fn message(&mut self, field: u32, write: impl FnOnce(&mut Writer<'_>)) {
        let mut body = Vec::new();
        write(&mut Writer(&mut body));
        self.bytes(field, &body);
    }

    fn ports(&mut self, field: u32, ports: &[PortRange]) {
        for range in ports {
            self.message(field, |w| {
                for (field, port) in [(1, range.first), (2, range.last)] {
                    if port != 0 {
                        w.number(field, port.into());
                    }
                }
            });
        }
    }

    fn protocol(&mut self, field: u32, protocol: Option<&Protocol>) {
        match protocol {
            None => {}
            Some(Protocol::Num(n)) => self.message(field, |w| w.number(1, (*n).into())),
            Some(Protocol::Name(name)) => self.message(field, |w| w.bytes(2, name.as_bytes())),
        }
    }

    /// `field` for a type alone, the next one for a type with a code.
    fn icmp(&mut self, field: u32, icmp: Option<&IcmpMatch>) {
        match icmp {
            None => {}
            Some(IcmpMatch { icmp_type, code: None }) => self.number(field, (*icmp_type).into()),
            Some(IcmpMatch { icmp_type, code: Some(code) }) => self.message(field + 1, |w| {
                for (field, n) in [(1, *icmp_type), (2, *code)] {
                    if n != 0 {
                        w.number(field, n.into());
                    }
                }
            }),
        }
    }
}

/// Writes the rule in ascending order of field numbers.
fn encode(w: &mut Writer<'_>, rule: &Rule, stored: &StoredRule, store: &RuleStore) {
    let (src, dst) = (&rule.src, &rule.dst);
    w.text(1, action(rule));
    match rule.ip_version {
        None => {}
        Some(IpVersion::V4) => w.number(2, 4),
        Some(IpVersion::V6) => w.number(2, 6),
    }
    w.protocol(3, rule.protocol.as_ref());
    w.nets(4, &src.nets);
    w.ports(5, &src.ports);
    w.nets(6, &dst.nets);
    w.ports(7, &dst.ports);
    w.icmp(8, rule.icmp.as_ref());
    w.texts(10, &src.sets);
    w.texts(11, &dst.sets);
    w.texts(12, &src.named_port_sets);
    w.texts(13, &dst.named_port_sets);
    w.texts(15, &dst.ip_port_sets);
    w.protocol(102, rule.not_protocol.as_ref());
    w.nets(103, &src.not_nets);
    w.ports(104, &src.not_ports);
    w.nets(105, &dst.not_nets);
    w.ports(106, &dst.not_ports);
    w.icmp(107, rule.not_icmp.as_ref());
    w.texts(109, &src.not_sets);
    w.texts(110, &dst.not_sets);
    w.texts(112, &src.not_named_port_sets);
    w.texts(113, &dst.not_named_port_sets);
    w.text(114, &src.original_selector);
    w.text(115, &dst.original_selector);
    w.text(116, &src.original_namespace_selector);
    w.text(117, &dst.original_namespace_selector);
    w.text(118, &src.original_not_selector);
    w.text(119, &dst.original_not_selector);
    for (field, side) in [(120, &stored.src), (121, &stored.dst)] {
        let Some(original) = side.as_ref().and_then(|s| s.original.as_ref()) else { continue };
        if original.account_selector.is_some() || !original.account_names.is_empty() {
            w.message(field, |w| {
                if let Some(selector) = original.account_selector {
                    w.text(1, &store.text(selector));
                }
                w.texts(2, &original.account_names);
            });
        }
    }
    if let Some(extra) = &stored.extra {
        if let Some(http) = &extra.http {
            w.message(122, |w| {
                w.texts(1, &http.methods);
                for (exact, path) in &http.paths {
                    w.message(2, |w| w.bytes(if *exact { 1 } else { 2 }, path.as_bytes()));
                }
            });
        }
        if let Some(metadata) = &extra.metadata {
            w.message(123, |w| {
                for (key, value) in metadata.iter() {
                    w.message(1, |w| {
                        w.bytes(1, key.as_bytes());
                        w.bytes(2, value.as_bytes());
                    });
                }
            });
        }
    }
    // Destination first, as numbered.
    for (field, side) in [(130, &stored.dst), (132, &stored.src)] {
        if let Some((namespace, name)) = side.as_ref().and_then(|s| s.service.as_deref()) {
            w.text(field, name);
            w.text(field + 1, namespace);
        }
    }
}

fn action(rule: &Rule) -> &'static str {
    match rule.action {
        calico_dpmsg::Action::Allow => "allow",
        calico_dpmsg::Action::Deny => "deny",
        calico_dpmsg::Action::Pass => "next-tier",
        calico_dpmsg::Action::Log => "log",
    }
}
