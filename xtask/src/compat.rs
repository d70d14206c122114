//! `cargo xtask compat DIR`: runs the product over a directory of seen behaviour and says where it differs.
//!
//! Owns: the command line, the list of areas, the sum per area, the report of one case.
//! In: the directory (its path is an argument; nothing here knows where it lies), the list of wanted differences in
//! `docs/differences.md`, and for some areas the built `calico` binary. Out: one line per area and an exit code
//! that is not zero if any case differs without being listed.
//! Always holds: a case counts as equal only if the texts made of both sides are the same; a case counts as
//! not-yet only by a predicate that names the missing part, never because it failed.

mod case;
mod cni;
mod convert;
mod ctl;
mod diff;
mod felix;
mod ipam;
mod later;
mod listed;
mod names;
mod selectors;
mod text;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use case::{Case, Seen};
use listed::{Differences, Glob};

/// How to call it.
pub(crate) const USAGE: &str = "\
usage: cargo xtask compat DIR [OPTIONS]

  --only GLOB             only areas or cases whose name matches, for example ctl/names or ctl/cli/get-*
  --show ID               one case, expected and ours side by side
  --list VERDICT          every case with that verdict: equal, listed, different or not-yet
  --binary FILE           the calico binary (default: built from this tree)
  --datastore NAME        run the tool on sqlite (default) or etcd
  --differences FILE      the list of wanted differences (default: docs/differences.md)
";

/// An area: what the folders of its cases begin with, and what runs them.
type Area = (&'static str, fn(&Context) -> anyhow::Result<Vec<Case>>);

/// Every area, in the order of the report.
const AREAS: &[Area] = &[
    ("bird", later::bird),
    ("cni", cni::run),
    ("ctl/cli", ctl::scripts),
    ("ctl/convert", convert::run),
    ("ctl/names", names::run),
    ("ctl/selectors", selectors::run),
    ("ctl/stored", ctl::stored),
    ("ctl/validate", ctl::verdicts),
    ("felix/calc", felix::calc),
    ("felix/rules", felix::rules),
    ("felix/iptables", later::iptables),
    ("ipam/atomic", ipam::atomic),
    ("ipam/steps", ipam::steps),
    ("kdd", later::kdd),
    ("typha", later::typha),
];

/// What areas need to know.
pub(crate) struct Context {
    /// The directory of seen behaviour.
    pub(crate) dir: PathBuf,
    /// Cases that are wanted; areas may skip the work for others.
    pub(crate) only: Option<Glob>,
    /// The product's binary; built if not named.
    pub(crate) binary: Option<PathBuf>,
    /// Run the tool on etcd instead of SQLite.
    pub(crate) etcd: bool,
}

impl Context {
    /// True if the case `id` is wanted.
    pub(crate) fn wants(&self, id: &str) -> bool {
        self.only.as_ref().is_none_or(|only| only.covers(id))
    }

    /// True if the case `name` of `area`, or an aspect of it, is wanted.
    pub(crate) fn wants_any(&self, area: &str, name: &str) -> bool {
        let aspects = case::ASPECTS.iter().map(|aspect| format!("{area}-{aspect}/{name}"));
        self.wants(&format!("{area}/{name}")) || aspects.into_iter().any(|id| self.wants(&id))
    }

    /// A path below the directory.
    pub(crate) fn path(&self, below: &str) -> PathBuf {
        self.dir.join(below)
    }
}

struct Options {
    dir: PathBuf,
    only: Option<Glob>,
    show: Option<String>,
    list: Option<Verdict>,
    differences: PathBuf,
    binary: Option<PathBuf>,
    etcd: bool,
}

/// What became of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    Equal,
    Listed,
    Different,
    NotYet,
}

impl Verdict {
    const ALL: [Self; 4] = [Self::Equal, Self::Listed, Self::Different, Self::NotYet];

    fn name(self) -> &'static str {
        match self {
            Self::Equal => "equal",
            Self::Listed => "listed",
            Self::Different => "different",
            Self::NotYet => "not-yet",
        }
    }
}

/// Runs the command with the arguments behind `compat`.
pub(crate) fn run(args: &[String]) -> anyhow::Result<()> {
    if args.iter().any(|arg| matches!(arg.as_str(), "--help" | "-h")) {
        write!(std::io::stdout(), "{USAGE}")?;
        return Ok(());
    }
    let options = parse(args)?;
    let differences = Differences::read(&options.differences)?;
    let only = options.show.as_deref().map(Glob::new).or(options.only);
    let context = Context { dir: options.dir, only, binary: options.binary, etcd: options.etcd };
    let mut out = std::io::stdout().lock();
    let mut total: BTreeMap<Verdict, usize> = BTreeMap::new();
    let mut used = differences.unused();
    for (name, area) in AREAS {
        if context.only.as_ref().is_some_and(|only| !only.may_cover_below(name)) {
            continue;
        }
        let cases = area(&context).with_context(|| format!("area {name}"))?;
        let mut counts: BTreeMap<&str, BTreeMap<Verdict, usize>> = BTreeMap::new();
        for case in cases.iter().filter(|case| context.wants(&case.id)) {
            let verdict = judge(case, &differences, &mut used);
            let folder = case.id.rsplit_once('/').map_or("", |(folder, _)| folder);
            *counts.entry(folder).or_default().entry(verdict).or_default() += 1;
            *total.entry(verdict).or_default() += 1;
            if options.show.is_some() {
                show(&mut out, case, verdict, &differences)?;
            } else if options.list == Some(verdict) {
                writeln!(out, "{}{}", case.id, note(case))?;
            }
        }
        for (folder, counts) in counts.iter().filter(|_| options.show.is_none()) {
            let count = |v: &Verdict| counts.get(v).copied().unwrap_or_default();
            let figures: Vec<String> =
                Verdict::ALL.iter().map(|v| format!("{} {}", v.name(), count(v))).collect();
            writeln!(out, "{folder} {}", figures.join(" "))?;
        }
    }
    if context.only.is_none() {
        for (slug, glob) in used.iter() {
            writeln!(out, "stale: {slug} lists {glob}, which matches no case that differs")?;
        }
    }
    match total.get(&Verdict::Different) {
        Some(n) => bail!("{n} cases differ without being listed; `--list different` names them"),
        None => Ok(()),
    }
}

fn judge(case: &Case, differences: &Differences, unused: &mut listed::Unused) -> Verdict {
    match &case.seen {
        Seen::NotYet(_) => Verdict::NotYet,
        Seen::Compared { expected, ours } if expected == ours => Verdict::Equal,
        Seen::Compared { .. } => match differences.lists(&case.id) {
            Some((slug, glob)) => {
                unused.used(slug, glob);
                Verdict::Listed
            }
            None => Verdict::Different,
        },
    }
}

/// What the missing part is, for cases of later work.
fn note(case: &Case) -> String {
    match &case.seen {
        Seen::NotYet(why) => format!(": {why}"),
        Seen::Compared { .. } => String::new(),
    }
}

fn show(
    out: &mut impl std::io::Write,
    case: &Case,
    verdict: Verdict,
    differences: &Differences,
) -> anyhow::Result<()> {
    writeln!(out, "{} {}{}", case.id, verdict.name(), note(case))?;
    if let (Verdict::Listed, Some((slug, _))) = (verdict, differences.lists(&case.id)) {
        writeln!(out, "listed as {slug}")?;
    }
    if !case.input.is_empty() {
        writeln!(out, "\n{}\n", case.input.trim_end())?;
    }
    if let Seen::Compared { expected, ours } = &case.seen {
        diff::side_by_side(out, expected, ours)?;
    }
    Ok(())
}

fn parse(args: &[String]) -> anyhow::Result<Options> {
    let mut options = Options {
        dir: PathBuf::new(),
        only: None,
        show: None,
        list: None,
        differences: Path::new("docs/differences.md").to_owned(),
        binary: None,
        etcd: false,
    };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut value = || args.next().with_context(|| format!("{arg} needs a value\n{USAGE}"));
        match arg.as_str() {
            "--only" => options.only = Some(Glob::new(value()?)),
            "--show" => options.show = Some(value()?.clone()),
            "--list" => {
                let word = value()?;
                let known = Verdict::ALL.into_iter().find(|v| v.name() == word);
                options.list = Some(known.with_context(|| format!("unknown verdict {word:?}\n{USAGE}"))?);
            }
            "--differences" => options.differences = value()?.into(),
            "--binary" => options.binary = Some(value()?.into()),
            "--datastore" => match value()?.as_str() {
                "sqlite" => options.etcd = false,
                "etcd" => options.etcd = true,
                other => bail!("unknown datastore {other:?}\n{USAGE}"),
            },
            flag if flag.starts_with('-') => bail!("unknown option {flag}\n{USAGE}"),
            dir if options.dir.as_os_str().is_empty() => options.dir = dir.into(),
            _ => bail!("{USAGE}"),
        }
    }
    if options.dir.as_os_str().is_empty() {
        bail!("{USAGE}");
    }
    Ok(options)
}
