//! Reading of netlink messages and attributes without fear of what is unknown.

use std::net::IpAddr;

use calico_net::{IpVersion, Mac};
use netlink_packet_core::{NetlinkBuffer, NlaBuffer, NlasIterator, parse_ip, parse_mac, parse_string};
use netlink_packet_route::AddressFamily;

/// One message of a datagram.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Message<'a> {
    pub kind: u16,
    pub flags: u16,
    pub sequence: u32,
    pub payload: &'a [u8],
}

/// The messages of a datagram; ends at the first one that is not whole.
pub(crate) fn messages(mut datagram: &[u8]) -> impl Iterator<Item = Message<'_>> {
    std::iter::from_fn(move || {
        let buffer = NetlinkBuffer::new_checked(datagram).ok()?;
        let message = Message {
            kind: buffer.message_type(),
            flags: buffer.flags(),
            sequence: buffer.sequence_number(),
            payload: NetlinkBuffer::new(datagram).payload(),
        };
        let aligned = (buffer.length() as usize).next_multiple_of(4);
        datagram = datagram.get(aligned..).unwrap_or_default();
        Some(message)
    })
}

/// Calls `each` with the number and the value of every attribute in `payload` after its fixed header of
/// `header_len` bytes.
pub(crate) fn attributes<E>(
    payload: &[u8],
    header_len: usize,
    mut each: impl FnMut(u16, &[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let rest = payload.get(header_len..).unwrap_or_default();
    for attribute in NlasIterator::new(rest) {
        let Ok(attribute): Result<NlaBuffer<&[u8]>, _> = attribute else { break };
        each(attribute.kind(), attribute.value())?;
    }
    Ok(())
}

/// A native-endian 32-bit number.
pub(crate) fn u32_of(value: &[u8]) -> Result<u32, String> {
    netlink_packet_core::parse_u32(value).map_err(|e| e.to_string())
}

/// An address of either family.
pub(crate) fn ip_of(value: &[u8]) -> Result<IpAddr, String> {
    parse_ip(value).map_err(|e| e.to_string())
}

/// A text that ends at its first NUL.
pub(crate) fn text_of(value: &[u8]) -> Result<String, String> {
    parse_string(value).map_err(|e| e.to_string())
}

/// A hardware address; `None` if it has not six bytes (tunnels).
pub(crate) fn mac_of(value: &[u8]) -> Option<Mac> {
    if value.len() == 6 { parse_mac(value).ok().map(Mac) } else { None }
}

/// The kernel's number of a family.
pub(crate) fn family_of(version: IpVersion) -> AddressFamily {
    match version {
        IpVersion::V4 => AddressFamily::Inet,
        IpVersion::V6 => AddressFamily::Inet6,
    }
}

/// The family of a message's header; `None` for others than IP.
pub(crate) fn version_of(family: AddressFamily) -> Option<IpVersion> {
    match family {
        AddressFamily::Inet => Some(IpVersion::V4),
        AddressFamily::Inet6 => Some(IpVersion::V6),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::{Address, Link, Route};

    proptest! {
        /// Whatever the kernel sends, reading it ends in a value or an error.
        #[test]
        fn any_bytes_are_survived(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), fit: bool) {
            if fit && bytes.len() >= 4 {
                let length = bytes.len() as u32;
                bytes[..4].copy_from_slice(&length.to_ne_bytes());
            }
            let total: usize = messages(&bytes).map(|m| m.payload.len()).sum();
            prop_assert!(total <= bytes.len());
            for payload in messages(&bytes).map(|m| m.payload).chain([bytes.as_slice()]) {
                let _ = Link::decode(payload);
                let _ = Address::decode(payload);
                let _ = Route::decode(payload);
                let _ = crate::neighbour::decode_either(payload);
                let _ = crate::conntrack::takes_part(payload, &BTreeSet::new());
            }
        }

        /// Attributes of any content after a sound header.
        #[test]
        fn any_attributes_are_survived(family in prop::sample::select(vec![2u8, 7, 10]),
                                       list in proptest::collection::vec((0u16..64, proptest::collection::vec(any::<u8>(), 0..40)), 0..8)) {
            for header in [8usize, 12, 16] {
                let mut payload = vec![0; header];
                payload[0] = family;
                for (kind, value) in &list {
                    payload.extend(((value.len() + 4) as u16).to_ne_bytes());
                    payload.extend(kind.to_ne_bytes());
                    payload.extend(value);
                    payload.resize(payload.len().next_multiple_of(4), 0);
                }
                let _ = Link::decode(&payload);
                let _ = Address::decode(&payload);
                let _ = Route::decode(&payload);
                let _ = crate::neighbour::decode_either(&payload);
            }
        }
    }

    #[test]
    fn messages_are_separated_at_their_alignment() {
        let mut datagram = Vec::new();
        for (kind, payload) in [(24u16, &b"abcde"[..]), (25, b"f")] {
            datagram.extend(((16 + payload.len()) as u32).to_ne_bytes());
            datagram.extend(kind.to_ne_bytes());
            datagram.extend([0; 10]);
            datagram.extend(payload);
            datagram.resize(datagram.len().next_multiple_of(4), 0);
        }
        datagram.extend([1, 2, 3]);
        let seen: Vec<_> = messages(&datagram).map(|m| (m.kind, m.payload.to_vec())).collect();
        assert_eq!(seen, vec![(24, b"abcde".to_vec()), (25, b"f".to_vec())]);
    }
}
