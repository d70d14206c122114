use proptest::prelude::*;
use serde::de::IntoDeserializer;
use serde::de::value::{Error as ValueError, StrDeserializer};

use super::*;

fn c(text: &str) -> Cidr {
    text.parse().unwrap()
}

#[test]
fn texts() {
    let accepted = [
        ("10.0.0.0/8", "10.0.0.0/8"),
        ("10.1.2.3/8", "10.1.2.3/8"),
        ("10.0.0.0/08", "10.0.0.0/8"),
        ("10.0.0.0/00008", "10.0.0.0/8"),
        ("0.0.0.0/0", "0.0.0.0/0"),
        ("255.255.255.255/32", "255.255.255.255/32"),
        ("::/0", "::/0"),
        ("FD01:0::/64", "fd01::/64"),
        ("1:2:3:4:5:6:7::/112", "1:2:3:4:5:6:7:0/112"),
        ("::1.2.3.4/128", "::102:304/128"),
        ("::ffff:10.1.0.0/120", "10.1.0.0/24"),
        ("::ffff:a01:0/96", "10.1.0.0/0"),
    ];
    for (text, expect) in accepted {
        assert_eq!(Cidr::parse_strict(text).map(|c| c.to_string()), Ok(expect.into()), "{text}");
    }
    let refused = [
        "",
        "/",
        "/8",
        "10.0.0.0",
        "10.0.0.0/",
        "10.0.0.0/33",
        "10.0.0.0/-1",
        "10.0.0.0/+8",
        "10.0.0.0/8/8",
        "10.0.0.0/99999999999999999999",
        "10/8",
        "10.1/16",
        "010.0.0.0/8",
        "10.0.0.256/8",
        "10.0.0.0 /8",
        " 10.0.0.0/8",
        "::/129",
        "fe80::1%eth0/64",
        "1:2:3:4:5:6:7:8::/128",
        "::1::/128",
        "12345::/16",
        "x",
    ];
    for text in refused {
        assert_eq!(Cidr::parse_strict(text), Err(CidrError { text: text.into() }));
    }
    assert_eq!(CidrError { text: "x".into() }.to_string(), "invalid CIDR address: x");
}

#[test]
fn bare_addresses() {
    assert_eq!(c("10.0.0.1"), c("10.0.0.1/32"));
    assert_eq!(c("fd00::1"), c("fd00::1/128"));
    assert_eq!(c("::ffff:10.0.0.1"), c("10.0.0.1/32"));
    assert_eq!(parse_ip("::ffff:10.0.0.1"), Some(IpAddr::from([10, 0, 0, 1])));
    for text in ["01.2.3.4", "1.2.3", "fe80::1%1", "1.2.3.4 ", ""] {
        assert_eq!(parse_ip(text), None, "{text}");
        assert!(text.parse::<Cidr>().is_err(), "{text}");
    }
}

#[test]
fn a_mapped_block_wider_than_the_mapping_stays_v6() {
    let wide = c("::ffff:10.1.0.0/90");
    assert_eq!(wide.version(), IpVersion::V6);
    assert_eq!(wide.masked().to_string(), "::ffc0:0:0/90");
}

#[test]
fn places_and_sizes() {
    let block = c("10.0.0.64/26");
    assert_eq!((block.size(), c("::/0").size(), c("::/1").size()), (Some(64), None, Some(1 << 127)));
    assert_eq!(c("10.0.0.70/26").nth(63), Some(block.last()));
    assert_eq!(block.ordinal(IpAddr::from([10, 0, 0, 127])), Some(63));
    assert_eq!(block.ordinal(IpAddr::from([10, 0, 0, 128])), None);
    assert_eq!(c("255.255.255.0/24").nth(256), None);
    assert_eq!(c("0.0.0.0/0").nth(1 << 32), None);
    assert_eq!(c("fd00::/64").nth(u128::from(u64::MAX)), Some(c("fd00::/64").last()));
    assert_eq!(c("0.0.0.0/0").halves(), Some([c("0.0.0.0/1"), c("128.0.0.0/1")]));
    assert_eq!(c("::/0").halves(), Some([c("::/1"), c("8000::/1")]));
    assert_eq!(c("10.1.2.3/31").halves(), Some([c("10.1.2.2/32"), c("10.1.2.3/32")]));
    assert_eq!(c("10.1.2.3/32").halves(), None);
    assert!(c("::/0").is_default() && !c("::/1").is_default());
    assert_eq!((IpVersion::V4.number(), IpVersion::V6.bits()), (4, 128));
}

#[test]
fn order_is_family_address_length() {
    let mut all = ["::/0", "10.1.0.0/16", "10.0.0.0/16", "fd00::/8", "10.0.0.0/8", "0.0.0.0/0"].map(c);
    all.sort();
    assert_eq!(
        all.map(|c| c.to_string()),
        ["0.0.0.0/0", "10.0.0.0/8", "10.0.0.0/16", "10.1.0.0/16", "::/0", "fd00::/8"]
    );
}

#[test]
fn reads_from_serde() {
    let read = |text: &'static str| -> Result<Cidr, ValueError> {
        let text: StrDeserializer<'_, ValueError> = text.into_deserializer();
        Cidr::deserialize(text)
    };
    assert_eq!(read("10.0.0.0/8"), Ok(c("10.0.0.0/8")));
    assert_eq!(read("10/8").unwrap_err().to_string(), "invalid CIDR address: 10/8");
}

fn any_cidr() -> impl Strategy<Value = Cidr> {
    let v4 =
        (any::<u32>(), 0u8..=32).prop_map(|(a, len)| Cidr::new(Ipv4Addr::from_bits(a).into(), len).unwrap());
    // Close to one another and not IPv4-mapped.
    let v6 = (any::<u8>(), any::<u128>(), 0u8..=128).prop_map(|(shift, a, len)| {
        let addr = Ipv6Addr::from_bits(a >> (shift % 128) | 0xfd << 120);
        Cidr::new(addr.into(), len).unwrap()
    });
    prop_oneof![v4, v6]
}

proptest! {
    #[test]
    fn display_reads_back(cidr in any_cidr()) {
        prop_assert_eq!(Cidr::parse_strict(&cidr.to_string()), Ok(cidr));
        prop_assert!(cidr.masked().is_masked());
    }

    #[test]
    fn relations_agree(a in any_cidr(), b in any_cidr(), n in any::<u64>()) {
        prop_assert_eq!(a.overlaps(&b), b.overlaps(&a));
        prop_assert_eq!(a.covers(&b), b.version() == a.version() && a.contains(b.masked().addr()) && a.contains(b.last()));
        let (first, last) = (a.masked().addr(), a.last());
        prop_assert_eq!(a.contains(b.addr()), b.version() == a.version() && (first..=last).contains(&b.addr()));
        prop_assert_eq!(a.ordinal(last).map(|n| n.wrapping_add(1)), a.size().or(Some(0)));
        if let Some(addr) = a.nth(n.into()) {
            prop_assert_eq!(a.ordinal(addr), a.contains(addr).then_some(n.into()));
        }
        if let Some([low, high]) = a.halves() {
            prop_assert!(a.covers(&low) && a.covers(&high) && !low.overlaps(&high));
            prop_assert_eq!((low.masked().addr(), high.last()), (first, last));
        }
    }

    #[test]
    fn any_text_is_judged_without_panic(text in "[0-9a-f:./%é]{0,24}") {
        if let Ok(cidr) = text.parse::<Cidr>() {
            prop_assert_eq!(cidr.to_string().parse(), Ok(cidr));
        }
    }
}
