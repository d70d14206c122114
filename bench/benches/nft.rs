//! Programming nf_tables, each shape in a process and a network namespace of its own.
//!
//! `cargo bench -p calico-bench --bench nft` runs every shape; `-- SHAPE...` runs some, `-- list` names them. Bulk is
//! compared with what `nft -f` alone takes for the same text in the same namespace; the rest with upstream's figures.

use std::process::Command;
use std::time::Instant;

use calico_bench::isolate;
use calico_bench::measure::{Samples, accounted_for, arguments, feed};
use calico_bench::table::{faster, head, line, row};
use calico_dpmsg::Member;
use calico_net::{Cidr, IpVersion, PortRange, Protocol};
use calico_netfilter::{
    Family, KernelError, MemoryNft, NftDataplane, NftKernel, RealNft, SeenTable, Transaction, delete_table,
};
use calico_rules::nft::{self, NftChain, SetKey};
use calico_rules::{Action, Chain, Hook, KernelChain, Layer, Match, ProtoPorts, Rule, Side};
use smol_str::{SmolStr, format_smolstr};

const FAMILY: Family = Family::Ip(IpVersion::V4);
const TABLE: &str = "calico";
/// Runs of each bulk measurement.
const ROUNDS: usize = 5;
/// Small changes that are timed.
const CHANGES: usize = 200;

fn main() -> anyhow::Result<()> {
    if accounted_for()? {
        return Ok(());
    }
    let wanted = arguments();
    match wanted.as_slice() {
        [one] if one == "list" => SHAPES.iter().for_each(|(name, _)| line(name)),
        [one] if SHAPES.iter().any(|(name, _)| name == one) => {
            isolate::machine()?;
            let (_, run) = SHAPES.iter().find(|(name, _)| name == one).unwrap_or(&SHAPES[0]);
            run()?;
        }
        _ => {
            head("nftables");
            for (name, _) in SHAPES {
                if wanted.is_empty() || wanted.iter().any(|w| w == name) {
                    Command::new(std::env::current_exe()?).arg(name).status()?;
                }
            }
        }
    }
    Ok(())
}

type Shape = (&'static str, fn() -> anyhow::Result<()>);

const SHAPES: &[Shape] = &[
    ("addresses-100k", || bulk("100,000 addresses in a set", &Size::sets(1, 100_000, SetKey::Addr))),
    ("networks-100k", || bulk("100,000 networks in a set", &Size::sets(1, 100_000, SetKey::Net))),
    ("rules-10k", || bulk("10,000 rules in 1,000 chains", &Size::chains(1_000, 10))),
    ("small", || steady("100 sets x 20, 100 chains x 10", &Size::both(100, 20, 100), [510.0, 10.8, 17.8])),
    ("middle", || steady("500 sets x 50, 500 chains x 10", &Size::both(500, 50, 500), [2480.0, 12.5, 20.4])),
    ("large", || {
        steady("2,000 sets x 100, 2,000 chains x 10", &Size::both(2000, 100, 2000), [10900.0, 19.8, 33.3])
    }),
];

/// How much is in a table.
struct Size {
    sets: usize,
    members: usize,
    key: SetKey,
    chains: usize,
    rules: usize,
}

impl Size {
    const fn sets(sets: usize, members: usize, key: SetKey) -> Self {
        Self { sets, members, key, chains: 0, rules: 0 }
    }

    const fn chains(chains: usize, rules: usize) -> Self {
        Self { sets: 1, members: 1, key: SetKey::Net, chains, rules }
    }

    const fn both(sets: usize, members: usize, chains: usize) -> Self {
        Self { sets, members, key: SetKey::Net, chains, rules: 10 }
    }

    fn set(&self, n: usize) -> SmolStr {
        format_smolstr!("cali40s-{}", n % self.sets)
    }

    /// A policy's rules: those of a port from members of a set are accepted.
    fn chain(&self, n: usize, port: u16) -> NftChain {
        let tcp = || Match::Protocol { protocol: Protocol::Num(6), negate: false };
        let rules = (0..self.rules).map(|r| match r % 2 {
            0 => {
                let set = Match::Set { side: Side::Src, set: self.set(n + r), negate: false };
                let ports = vec![PortRange::single(port + r as u16), PortRange { first: 8000, last: 8080 }];
                let ports = Match::Ports { side: Side::Dst, protocol: ProtoPorts::Tcp, ports, negate: false };
                Rule::new([tcp(), set, ports], Action::SetMark(0x10000)).comment("Policy shop/web ingress")
            }
            _ => Rule::new([Match::MarkSet(0x10000)], Action::Return),
        });
        let name = format_smolstr!("cali-pi-{n}");
        nft::chain(IpVersion::V4, &Chain { layer: Layer::Filter, name, rules: rules.collect() })
    }

    fn wish<K: NftKernel>(&self, kernel: K) -> NftDataplane<K> {
        let mut plane = NftDataplane::new(kernel, FAMILY, TABLE);
        for n in 0..self.sets {
            let members = (0..self.members).map(|m| member(n * self.members + m));
            plane.set_members(&self.set(n), self.key, members);
        }
        let jumps = (0..self.chains).map(|n| Rule::new([], Action::Jump(format_smolstr!("cali-pi-{n}"))));
        let hook = Hook {
            layer: Layer::Filter,
            chain: KernelChain::Forward,
            inserted: jumps.collect(),
            appended: Vec::new(),
        };
        plane.set_base_chains(nft::base_chains(&[hook]));
        for n in 0..self.chains {
            plane.update_chains(owner(n), vec![self.chain(n, 80)]);
        }
        plane
    }
}

fn owner(n: usize) -> SmolStr {
    format_smolstr!("policy {n}")
}

/// Every second address, so that no two are neighbours.
fn member(n: usize) -> Member {
    let bits = 0x0a00_0000_u32.wrapping_add(u32::try_from(2 * n).unwrap_or(u32::MAX));
    Member::Net(Cidr::host(std::net::Ipv4Addr::from(bits).into()))
}

/// Applies to an empty namespace what is wanted, and has `nft` alone do the same from the text.
fn bulk(what: &str, size: &Size) -> anyhow::Result<()> {
    let text = text_of(size)?;
    let (mut ours, mut raw) = (Samples::default(), Samples::default());
    for _ in 0..ROUNDS {
        let mut plane = size.wish(RealNft::new()?);
        ours.time(|| complete(&mut plane))?;
        delete_table(plane.kernel_mut(), FAMILY, TABLE)?;
        let out = raw.time(|| feed(Command::new("nft").args(["-f", "-"]), &text))?;
        anyhow::ensure!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        delete_table(plane.kernel_mut(), FAMILY, TABLE)?;
    }
    row(
        what,
        &format!("{} ms", ours.range(0)),
        &format!("nft -f {} ms", raw.range(0)),
        &faster(ours.p50(), raw.p50()),
    );
    Ok(())
}

/// A right table: how long it takes to see that it is, and to change one thing of it.
fn steady(what: &str, size: &Size, [resync, member_time, chain_time]: [f64; 3]) -> anyhow::Result<()> {
    let mut plane = size.wish(RealNft::new()?);
    complete(&mut plane)?;
    let mut reads = Samples::default();
    for _ in 0..ROUNDS {
        // As after a start: nothing is known of the kernel.
        let mut again = size.wish(RealNft::new()?);
        let report = reads.time(|| again.apply())?;
        anyhow::ensure!(report.transactions == 0 && report.is_complete(), "{report:?}");
    }
    let upstream = |t: f64| format!("upstream {t} ms");
    row(
        &format!("{what}: resync of a right table"),
        &format!("{} ms", reads.range(1)),
        &upstream(resync),
        &faster(reads.p50(), resync),
    );
    let mut members = Samples::default();
    for n in 0..CHANGES {
        let start = Instant::now();
        let one = [member(1_000_000 + n / 2)];
        let (added, removed) = if n % 2 == 0 { (&one[..], &[][..]) } else { (&[][..], &one[..]) };
        plane.delta_members(&size.set(n / 2), added, removed);
        complete(&mut plane)?;
        members.add(start.elapsed());
    }
    let figures = |s: &Samples| format!("p50 {:.2} p95 {:.2} ms", s.p50(), s.p95());
    row(
        &format!("{what}: one member in or out"),
        &figures(&members),
        &upstream(member_time),
        &faster(members.p50(), member_time),
    );
    let mut chains = Samples::default();
    for n in 0..CHANGES {
        let start = Instant::now();
        let chain = n % size.chains;
        plane.update_chains(owner(chain), vec![size.chain(chain, 100 + n as u16)]);
        complete(&mut plane)?;
        chains.add(start.elapsed());
    }
    row(
        &format!("{what}: one chain changed"),
        &figures(&chains),
        &upstream(chain_time),
        &faster(chains.p50(), chain_time),
    );
    Ok(())
}

fn complete<K: NftKernel>(plane: &mut NftDataplane<K>) -> anyhow::Result<()> {
    let report = plane.apply()?;
    anyhow::ensure!(report.is_complete(), "not programmed: {:?}", report.pending);
    Ok(())
}

/// The text that makes the same table in one run of `nft`.
fn text_of(size: &Size) -> anyhow::Result<String> {
    let mut plane = size.wish(Recorder { inner: MemoryNft::default(), text: String::new() });
    complete(&mut plane)?;
    Ok(std::mem::take(&mut plane.kernel_mut().text))
}

/// Nf_tables in memory that keeps the text of what it is told.
struct Recorder {
    inner: MemoryNft,
    text: String,
}

impl NftKernel for Recorder {
    fn read(&mut self, family: Family, table: &str) -> Result<Option<SeenTable>, KernelError> {
        self.inner.read(family, table)
    }

    fn commit(&mut self, transaction: &Transaction) -> Result<(), KernelError> {
        self.inner.commit(transaction)?;
        self.text.push_str(&transaction.script());
        Ok(())
    }

    fn generation(&mut self) -> Option<u32> {
        self.inner.generation()
    }
}
