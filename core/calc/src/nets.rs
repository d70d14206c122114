//! The networks of an item, stored tightly: most items have one IPv4 address.

use std::cmp::Ordering;
use std::net::{IpAddr, Ipv4Addr};

use calico_net::Cidr;

/// Sorted, unique networks.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) enum Nets {
    #[default]
    None,
    /// One IPv4 address.
    One4(u32),
    /// A box around the slice's fat pointer keeps the enum at 16 bytes.
    Many(Box<Box<[Cidr]>>),
}

// === impl Nets ===

impl Nets {
    /// Sorts, removes duplicates and stores.
    pub(crate) fn new(mut nets: Vec<Cidr>) -> Self {
        nets.sort_unstable();
        nets.dedup();
        match nets[..] {
            [] => Self::None,
            [one]
                if one.is_host()
                    && let IpAddr::V4(a) = one.addr() =>
            {
                Self::One4(a.to_bits())
            }
            _ => Self::Many(Box::new(nets.into_boxed_slice())),
        }
    }

    /// The networks, ascending.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Cidr> + '_ {
        let (one, many): (Option<Cidr>, &[Cidr]) = match self {
            Self::None => (None, &[]),
            Self::One4(bits) => (Some(Cidr::host(Ipv4Addr::from_bits(*bits).into())), &[]),
            Self::Many(nets) => (None, nets),
        };
        one.into_iter().chain(many.iter().copied())
    }
}

/// Walks two ascending sequences and calls `f` with each value that is in one of them only: true for the new one.
pub(crate) fn diff<T: Ord>(
    old: impl IntoIterator<Item = T>,
    new: impl IntoIterator<Item = T>,
    mut f: impl FnMut(T, bool),
) {
    let (mut old, mut new) = (old.into_iter().peekable(), new.into_iter().peekable());
    loop {
        let order = match (old.peek(), new.peek()) {
            (Some(o), Some(n)) => o.cmp(n),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => return,
        };
        match order {
            Ordering::Less => old.next().into_iter().for_each(|o| f(o, false)),
            Ordering::Greater => new.next().into_iter().for_each(|n| f(n, true)),
            Ordering::Equal => {
                old.next();
                new.next();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_networks_sorted_and_once() {
        assert_eq!(size_of::<Nets>(), 16);
        let c = |s: &str| s.parse::<Cidr>().unwrap();
        for list in
            [vec![], vec!["10.0.0.1/32"], vec!["fd00::1/128"], vec!["10.0.0.0/8", "10.0.0.1/32", "::/1"]]
        {
            let want: Vec<Cidr> = list.iter().map(|s| c(s)).collect();
            let twice = want.iter().rev().chain(&want).copied().collect();
            assert_eq!(Nets::new(twice).iter().collect::<Vec<_>>(), want);
        }
    }

    #[test]
    fn diff_tells_old_from_new() {
        let mut seen = vec![];
        diff([1, 3, 5, 9], [2, 3, 9, 10], |n, new| seen.push((n, new)));
        assert_eq!(seen, [(1, false), (2, true), (5, false), (10, true)]);
    }
}
