//! CIDR blocks of either family, always kept with the address they were written with.

use std::cmp::Ordering;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Address family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum IpVersion {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl IpVersion {
    /// Both families, v4 first.
    pub const BOTH: [Self; 2] = [Self::V4, Self::V6];

    /// `4` or `6`.
    pub fn number(self) -> u8 {
        match self {
            Self::V4 => 4,
            Self::V6 => 6,
        }
    }

    /// Number of bits of an address: 32 or 128.
    pub fn bits(self) -> u8 {
        match self {
            Self::V4 => 32,
            Self::V6 => 128,
        }
    }

    /// Family of `addr`.
    pub fn of(addr: IpAddr) -> Self {
        match addr {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }
}

/// Why a text is not a CIDR.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid CIDR address: {text}")]
pub struct CidrError {
    /// The text as given.
    pub text: String,
}

/// An address with a prefix length of 0 to 32 (IPv4) or 0 to 128 (IPv6).
///
/// Host bits are kept as parsed; [`Cidr::masked`] clears them. An IPv4-mapped IPv6 address is unmapped
/// at parsing, as Go does, so `::ffff:10.1.0.0/120` equals `10.1.0.0/24`.
/// Ordering: family, then address, then length.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Cidr {
    addr: IpAddr,
    len: u8,
}

impl Cidr {
    /// Makes a CIDR; `None` if `len` exceeds the family's bits. An IPv4-mapped address is not unmapped here.
    pub fn new(addr: IpAddr, len: u8) -> Option<Self> {
        (len <= IpVersion::of(addr).bits()).then_some(Self { addr, len })
    }

    /// The single-address CIDR (`/32` or `/128`) of `addr`.
    pub fn host(addr: IpAddr) -> Self {
        Self { addr, len: IpVersion::of(addr).bits() }
    }

    /// Parses `address/length` as Go's `net.ParseCIDR` does; a bare address is an error.
    pub fn parse_strict(text: &str) -> Result<Self, CidrError> {
        let fail = || CidrError { text: text.to_owned() };
        let (addr, len) = text.split_once('/').ok_or_else(fail)?;
        if !len.bytes().all(|b| b.is_ascii_digit()) {
            return Err(fail());
        }
        // Leading zeros are fine, as in Go.
        let len: u32 = len.parse().map_err(|_| fail())?;
        match parse_ip_keep(addr).ok_or_else(fail)? {
            IpAddr::V4(a) if len <= 32 => Ok(Self { addr: a.into(), len: len as u8 }),
            IpAddr::V6(a) if len <= 128 => match a.to_ipv4_mapped() {
                Some(v4) if len >= 96 => Ok(Self { addr: v4.into(), len: (len - 96) as u8 }),
                _ => Ok(Self { addr: a.into(), len: len as u8 }),
            },
            _ => Err(fail()),
        }
    }

    /// Parses `address/length`, or a bare address as a host CIDR.
    pub fn parse(text: &str) -> Result<Self, CidrError> {
        if text.contains('/') {
            Self::parse_strict(text)
        } else {
            parse_ip(text).map(Self::host).ok_or_else(|| CidrError { text: text.to_owned() })
        }
    }

    /// The address as written.
    pub fn addr(&self) -> IpAddr {
        self.addr
    }

    /// Prefix length in bits.
    pub fn prefix_len(&self) -> u8 {
        self.len
    }

    /// True for `/0`.
    pub fn is_default(&self) -> bool {
        self.len == 0
    }

    /// Address family.
    pub fn version(&self) -> IpVersion {
        IpVersion::of(self.addr)
    }

    /// True for a single address (`/32`, `/128`).
    pub fn is_host(&self) -> bool {
        self.len == self.version().bits()
    }

    /// True if no host bit is set.
    pub fn is_masked(&self) -> bool {
        *self == self.masked()
    }

    /// The same block with host bits cleared.
    pub fn masked(&self) -> Self {
        let addr = match self.addr {
            IpAddr::V4(a) => IpAddr::V4(Ipv4Addr::from_bits(a.to_bits() & mask4(self.len))),
            IpAddr::V6(a) => IpAddr::V6(Ipv6Addr::from_bits(a.to_bits() & mask6(self.len))),
        };
        Self { addr, len: self.len }
    }

    /// True if `addr` is of this family and inside the block.
    pub fn contains(&self, addr: IpAddr) -> bool {
        match (self.addr, addr) {
            (IpAddr::V4(n), IpAddr::V4(a)) => (n.to_bits() ^ a.to_bits()) & mask4(self.len) == 0,
            (IpAddr::V6(n), IpAddr::V6(a)) => (n.to_bits() ^ a.to_bits()) & mask6(self.len) == 0,
            _ => false,
        }
    }

    /// True if every address of `other` is inside this block.
    pub fn covers(&self, other: &Cidr) -> bool {
        self.len <= other.len && self.contains(other.addr)
    }

    /// True if the blocks share an address.
    pub fn overlaps(&self, other: &Cidr) -> bool {
        self.covers(other) || other.covers(self)
    }

    /// The address `n` places after the block's first one; `None` beyond the family's last address.
    /// The result may lie outside the block.
    pub fn nth(&self, n: u128) -> Option<IpAddr> {
        match self.masked().addr {
            IpAddr::V4(a) => {
                let n = u32::try_from(n).ok()?;
                Some(Ipv4Addr::from_bits(a.to_bits().checked_add(n)?).into())
            }
            IpAddr::V6(a) => Some(Ipv6Addr::from_bits(a.to_bits().checked_add(n)?).into()),
        }
    }

    /// Place of `addr` in the block, from 0; `None` if it is outside.
    pub fn ordinal(&self, addr: IpAddr) -> Option<u128> {
        if !self.contains(addr) {
            return None;
        }
        match (self.masked().addr, addr) {
            (IpAddr::V4(n), IpAddr::V4(a)) => Some(u128::from(a.to_bits() - n.to_bits())),
            (IpAddr::V6(n), IpAddr::V6(a)) => Some(a.to_bits() - n.to_bits()),
            _ => None,
        }
    }

    /// The block's last address, the broadcast address of an IPv4 subnet.
    pub fn last(&self) -> IpAddr {
        match self.addr {
            IpAddr::V4(a) => Ipv4Addr::from_bits(a.to_bits() | !mask4(self.len)).into(),
            IpAddr::V6(a) => Ipv6Addr::from_bits(a.to_bits() | !mask6(self.len)).into(),
        }
    }

    /// The two blocks of one more bit that make up this one, lower half first; `None` for a single address.
    pub fn halves(&self) -> Option<[Self; 2]> {
        if self.is_host() {
            return None;
        }
        let len = self.len + 1;
        let upper = Self { addr: self.last(), len };
        Some([Self { addr: self.masked().addr, len }, upper.masked()])
    }

    /// Number of addresses; `None` for `::/0`, whose count does not fit.
    pub fn size(&self) -> Option<u128> {
        1u128.checked_shl(u32::from(self.version().bits() - self.len))
    }
}

fn mask4(len: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0)
}

fn mask6(len: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0)
}

fn parse_ip_keep(text: &str) -> Option<IpAddr> {
    // Rust's parser refuses leading zeros and zones, as Go's does.
    text.parse().ok()
}

/// Parses an address as Go's `net.ParseIP` does: no zone, no leading zeros, IPv4-mapped IPv6 unmapped.
pub fn parse_ip(text: &str) -> Option<IpAddr> {
    parse_ip_keep(text).map(|a| a.to_canonical())
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.addr, self.len)
    }
}

impl fmt::Debug for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Cidr {
    type Err = CidrError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

impl From<IpAddr> for Cidr {
    fn from(addr: IpAddr) -> Self {
        Self::host(addr)
    }
}

impl Ord for Cidr {
    fn cmp(&self, other: &Self) -> Ordering {
        self.addr.cmp(&other.addr).then(self.len.cmp(&other.len))
    }
}

impl PartialOrd for Cidr {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Serialize for Cidr {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Cidr {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(d)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests;
