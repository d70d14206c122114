//! Forms of names, addresses and other texts.

use std::net::IpAddr;

use calico_net::cidr::parse_ip;
use calico_net::{Cidr, IpVersion};

/// Lower case letters, digits and `-`, with a letter or digit at both ends; any length from 1.
pub fn is_dns_label(text: &str) -> bool {
    let b = text.as_bytes();
    let edge = |c: &u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    b.first().is_some_and(edge) && b.last().is_some_and(edge) && b.iter().all(|c| edge(c) || *c == b'-')
}

/// One or more DNS labels joined by dots; any length.
pub fn is_name(text: &str) -> bool {
    text.split('.').all(is_dns_label)
}

/// A name of a NetworkPolicy: up to two labels, or any name behind `knp.default.` or `ossg.default.`.
pub(super) fn is_policy_name(text: &str) -> bool {
    is_global_policy_name(text)
        || ["knp.default.", "ossg.default."].iter().any(|p| text.strip_prefix(p).is_some_and(is_name))
}

/// A name of a GlobalNetworkPolicy: up to two labels.
pub(super) fn is_global_policy_name(text: &str) -> bool {
    is_name(text) && text.bytes().filter(|b| *b == b'.').count() <= 1
}

/// Letters, digits and the bytes of `extra`; 1 to `max` of them.
fn is_word(text: &str, extra: &[u8], max: usize) -> bool {
    (1..=max).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric() || extra.contains(&b))
}

/// A name of a network interface, or `*` for all of them.
pub fn is_interface_name(text: &str) -> bool {
    text == "*" || is_word(text, b"_.-", 15)
}

/// A name of an interface, perhaps with a `+` that stands for any rest.
pub(super) fn is_interface_filter(text: &str) -> bool {
    is_word(text, b":._+-", 15)
}

/// A host that metrics are served on.
pub(super) fn is_metrics_host(text: &str) -> bool {
    is_word(text, b":._+-", 64)
}

/// An identifier of a container.
pub(super) fn is_container_id(text: &str) -> bool {
    is_word(text, b"-", usize::MAX) && !text.starts_with('-') && !text.ends_with('-')
}

/// A name of a port, as Kubernetes wants it (RFC 6335).
pub(super) fn is_port_name(text: &str) -> bool {
    text.len() <= 15
        && is_dns_label(text)
        && text.bytes().any(|b| b.is_ascii_lowercase())
        && !text.contains("--")
}

/// The part of a label behind the `/`, and the value of a label: letters, digits, `-`, `_` and `.`, with a letter
/// or digit at both ends; at most 63.
fn is_qualified(text: &str) -> bool {
    let b = text.as_bytes();
    is_word(text, b"-_.", 63)
        && b.first().is_some_and(u8::is_ascii_alphanumeric)
        && b.last().is_some_and(u8::is_ascii_alphanumeric)
}

/// A key of a label: `name` or `prefix/name`, where the prefix is a DNS name of at most 253 letters.
pub fn is_label_key(text: &str) -> bool {
    match text.split_once('/') {
        None => is_qualified(text),
        Some((prefix, name)) => prefix.len() <= 253 && is_name(prefix) && is_qualified(name),
    }
}

/// A value of a label; may be empty.
pub fn is_label_value(text: &str) -> bool {
    text.is_empty() || is_qualified(text)
}

/// Six octets: joined by `:` or `-`, or three groups of four digits joined by dots.
pub(super) fn is_mac(text: &str) -> bool {
    let hex = |group: &str, len: usize| group.len() == len && group.bytes().all(|b| b.is_ascii_hexdigit());
    let groups = |separator: char, count: usize, len: usize| {
        text.split(separator).count() == count && text.split(separator).all(|g| hex(g, len))
    };
    groups(':', 6, 2) || groups('-', 6, 2) || groups('.', 3, 4)
}

/// 32 bytes in base64 with padding.
pub(super) fn is_wireguard_key(text: &str) -> bool {
    text.strip_suffix('=').is_some_and(|body| is_word(body, b"+/", 43) && body.len() == 43)
}

/// An address of the family, or of any.
pub(super) fn is_ip(text: &str, version: Option<IpVersion>) -> bool {
    parse_ip(text).is_some_and(|ip: IpAddr| version.is_none_or(|v| v == IpVersion::of(ip)))
}

/// A CIDR or address of the family, or of any; host bits may be set.
pub(super) fn is_cidr(text: &str, version: Option<IpVersion>) -> bool {
    Cidr::parse(text).is_ok_and(|cidr| version.is_none_or(|v| v == cidr.version()))
}

/// Items `key=value` separated by commas; empty items are allowed.
pub(super) fn is_key_value_list(text: &str) -> bool {
    text.split(',').all(|item| {
        let key = item.trim_start().split_once('=').map(|(key, _)| key);
        item.is_empty() || key.is_some_and(|k| is_word(k, b"_", usize::MAX))
    })
}
