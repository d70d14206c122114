//! Who reached whom, against who should.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::IpAddr;

use calico_net::IpVersion;
use serde::Serialize;

use crate::expect::Expectation;
use crate::probe::{Outcome, Probe};

/// One connection that is tried.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Pair {
    /// Who tries.
    pub from: String,
    /// Whom.
    pub to: String,
    /// How.
    pub probe: Probe,
    /// Family, 4 or 6.
    pub version: u8,
}

/// Results and expectations of one round of probes.
#[derive(Debug, Clone, Default)]
pub struct Matrix {
    cells: BTreeMap<Pair, Cell>,
}

/// Cells by who sends and who receives.
type Cells<'a> = BTreeMap<(&'a str, &'a str), &'a Cell>;

#[derive(Debug, Clone)]
struct Cell {
    outcome: Outcome,
    expected: Option<bool>,
}

/// A connection that behaved otherwise than expected.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Surprise {
    /// The connection.
    #[serde(flatten)]
    pub pair: Pair,
    /// Whether it should work.
    pub expected: bool,
    /// What came of it.
    pub outcome: String,
}

/// How to write a matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Paint {
    /// Letters only.
    Plain,
    /// With terminal colours.
    Colour,
}

// === impl Matrix ===

impl Matrix {
    /// Adds a result; the last expectation that speaks of the pair decides.
    pub fn add(&mut self, pair: Pair, outcome: Outcome, expectations: &[Expectation]) {
        let version = if pair.version == 4 { IpVersion::V4 } else { IpVersion::V6 };
        let says = |e: &Expectation| e.says(&pair.from, &pair.to, pair.probe, version);
        let expected = expectations.iter().rev().find_map(says);
        self.cells.insert(pair, Cell { outcome, expected });
    }

    /// Number of connections tried.
    pub fn len(&self) -> usize {
        self.cells.len()
    }

    /// True if nothing was tried.
    pub fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }

    /// Connections that behaved otherwise than expected, sorted.
    pub fn surprises(&self) -> Vec<Surprise> {
        let cells = self.cells.iter();
        cells
            .filter_map(|(pair, cell)| {
                let expected = cell.expected?;
                (expected != cell.outcome.reached()).then(|| Surprise {
                    pair: pair.clone(),
                    expected,
                    outcome: cell.outcome.to_string(),
                })
            })
            .collect()
    }

    /// Every connection with what came of it, for JSON.
    pub fn report(&self) -> Vec<serde_json::Value> {
        let row = |(pair, cell): (&Pair, &Cell)| {
            serde_json::json!({
                "from": pair.from, "to": pair.to, "probe": pair.probe, "version": pair.version,
                "reached": cell.outcome.reached(), "expected": cell.expected, "outcome": cell.outcome.to_string(),
                "seenAs": match &cell.outcome { Outcome::Reached(Some(ip)) => Some(*ip), _ => None::<IpAddr> },
            })
        };
        self.cells.iter().map(row).collect()
    }

    /// A table per probe and family: rows send, columns receive. `yes` and `no` say what happened, `YES!` and `NO!`
    /// the same where something else was expected.
    pub fn render(&self, paint: Paint) -> String {
        let mut tables: BTreeMap<(Probe, u8), Cells<'_>> = BTreeMap::new();
        for (pair, cell) in &self.cells {
            let table = tables.entry((pair.probe, pair.version)).or_default();
            table.insert((&pair.from, &pair.to), cell);
        }
        let mut out = String::new();
        let several = tables.keys().any(|k| k.1 == 6);
        for ((probe, version), cells) in tables {
            let family = if several { format!(" IPv{version}") } else { String::new() };
            render_table(&mut out, &format!("{probe}{family}"), &cells, paint);
        }
        out
    }
}

fn render_table(out: &mut String, title: &str, cells: &Cells<'_>, paint: Paint) {
    let sorted = |pick: fn(&(&str, &str)) -> String| {
        let mut names: Vec<String> = cells.keys().map(pick).collect();
        names.sort();
        names.dedup();
        names
    };
    let rows = sorted(|k| k.0.to_owned());
    let columns = sorted(|k| k.1.to_owned());
    let first = rows.iter().map(String::len).chain([title.len()]).max().unwrap_or(0);
    // Writing to a String does not fail.
    let _ = write!(out, "    {title:<first$}");
    for column in &columns {
        let _ = write!(out, "  {column:<4}");
    }
    out.truncate(out.trim_end_matches(' ').len());
    out.push('\n');
    for row in &rows {
        let _ = write!(out, "    {row:<first$}");
        for column in &columns {
            let width = column.len().max(4);
            let (text, colour) = match cells.get(&(row.as_str(), column.as_str())) {
                None => (".", ""),
                Some(cell) => match (cell.outcome.reached(), cell.expected) {
                    (true, Some(false)) => ("YES!", "\x1b[1;97;41m"),
                    (false, Some(true)) => ("NO!", "\x1b[1;97;41m"),
                    (true, _) => ("yes", "\x1b[32m"),
                    (false, _) => ("no", "\x1b[31m"),
                },
            };
            let padded = format!("{text:<width$}");
            let _ = match paint {
                Paint::Colour if !colour.is_empty() => write!(out, "  {colour}{padded}\x1b[0m"),
                _ => write!(out, "  {padded}"),
            };
        }
        out.truncate(out.trim_end_matches(' ').len());
        out.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(from: &str, to: &str) -> Pair {
        Pair { from: from.into(), to: to.into(), probe: Probe::Tcp(80), version: 4 }
    }

    #[test]
    fn surprises_are_found_and_marked() {
        let expect: Vec<Expectation> =
            ["allow * -> *", "deny * -> b"].iter().map(|l| l.parse().expect(l)).collect();
        let mut m = Matrix::default();
        m.add(pair("a", "b"), Outcome::Silence, &expect);
        m.add(pair("c", "b"), Outcome::Reached(None), &expect);
        m.add(pair("a", "c"), Outcome::Reached(None), &expect);
        m.add(pair("b", "a"), Outcome::Refused("x".into()), &expect);
        let surprises = m.surprises();
        assert_eq!(surprises.len(), 2);
        assert_eq!((surprises[0].pair.from.as_str(), surprises[0].expected), ("b", true));
        assert_eq!((surprises[1].pair.from.as_str(), surprises[1].expected), ("c", false));
        let want = "    tcp:80  a     b     c
    a       .     no    yes
    b       NO!   .     .
    c       .     YES!  .
";
        assert_eq!(m.render(Paint::Plain), want);
        assert!(m.render(Paint::Colour).contains("\x1b[31mno"));
    }
}
