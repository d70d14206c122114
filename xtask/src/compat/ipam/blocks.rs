//! Which block of ours stands for which block of upstream's.
//!
//! A node begins at a block of a pool that follows from its name; upstream draws it with Go's random numbers, the
//! product in its own way. So the blocks that appear in the same step on both sides are paired, first those whose
//! addresses were handed out first; our results are read in upstream's names, and upstream's calls in ours.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use calico_net::{Cidr, cidr::parse_ip};
use serde_json::Value;

use super::super::text::{field, yaml};

/// Pairs of blocks.
#[derive(Default)]
pub(crate) struct Blocks {
    /// From upstream's block to ours.
    ours: BTreeMap<Cidr, Cidr>,
    /// From our block to upstream's.
    theirs: BTreeMap<Cidr, Cidr>,
    /// Pools and the prefix length of their blocks.
    pools: Vec<(Cidr, u8)>,
}

impl Blocks {
    /// Notes the pools among YAML documents.
    pub(crate) fn pools_of(&mut self, documents: &str) -> anyhow::Result<()> {
        for document in yaml(documents)? {
            let spec = &document["spec"];
            if field(&document, "kind") == "IPPool"
                && let Ok(cidr) = Cidr::parse(field(spec, "cidr"))
            {
                let default = if cidr.version().number() == 4 { 26 } else { 122 };
                let len = spec["blockSize"].as_u64().and_then(|len| u8::try_from(len).ok());
                self.pools.push((cidr, len.unwrap_or(default)));
            }
        }
        Ok(())
    }

    /// Blocks that both sides begin with.
    pub(crate) fn known<'p>(&mut self, paths: impl Iterator<Item = &'p String>) {
        for block in paths.filter_map(|path| block_of(path)) {
            self.join(block, block);
        }
    }

    fn join(&mut self, theirs: Cidr, ours: Cidr) {
        self.ours.insert(theirs, ours);
        self.theirs.insert(ours, theirs);
    }

    /// Pairs the blocks that are new after a step.
    pub(crate) fn pair(&mut self, step: &Value, result: &Value, stored: &BTreeMap<String, String>) {
        let new = |paths: Vec<&String>, known: &BTreeMap<Cidr, Cidr>| -> BTreeSet<Cidr> {
            paths.into_iter().filter_map(|p| block_of(p)).filter(|b| !known.contains_key(b)).collect()
        };
        let their_state = super::state::texts(&step["etcd"]);
        let theirs = new(their_state.keys().collect(), &self.ours);
        let ours = new(stored.keys().collect(), &self.theirs);
        let theirs = in_order(theirs, &step["result"], &their_state);
        let ours = in_order(ours, result, stored);
        for (theirs, ours) in theirs.into_iter().zip(ours) {
            self.join(theirs, ours);
        }
    }

    /// One of our values in upstream's names.
    pub(crate) fn named(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => self.to_theirs(text).into(),
            Value::Array(items) => items.iter().map(|item| self.named(item)).collect(),
            Value::Object(fields) => fields
                .iter()
                .map(|(name, value)| (self.to_theirs(name), self.named(value)))
                .collect::<serde_json::Map<_, _>>()
                .into(),
            other => other.clone(),
        }
    }

    /// Our state in upstream's names.
    pub(crate) fn named_state(&self, state: &BTreeMap<String, String>) -> BTreeMap<String, String> {
        state.iter().map(|(path, text)| (self.to_theirs(path), self.to_theirs(text))).collect()
    }

    fn to_theirs(&self, text: &str) -> String {
        translate(text, |word| renamed(word, &self.theirs))
    }

    /// A text of upstream's, such as a path or a stored value, in our names.
    pub(crate) fn to_ours(&self, text: &str) -> String {
        translate(text, |word| renamed(word, &self.ours))
    }

    /// An address of upstream's as ours. In a block that neither side has, it stays as it is, unless that block is
    /// ours for another one of theirs: then a free block of the pool takes its place.
    pub(crate) fn address(&mut self, text: &str) -> String {
        if let Ok(address) = text.parse::<IpAddr>()
            && let Some((pool, len)) = self.pools.iter().find(|(pool, _)| pool.contains(address)).copied()
            && let Some(block) = Cidr::new(address, len).map(|cidr| cidr.masked())
            && !self.ours.contains_key(&block)
            && self.theirs.contains_key(&block)
            && let Some(free) = self.free_block(pool, len)
        {
            self.join(block, free);
        }
        self.to_ours(text)
    }

    fn free_block(&self, pool: Cidr, len: u8) -> Option<Cidr> {
        let size = 1u128 << (pool.version().bits() - len);
        (0..1u128 << (len - pool.prefix_len()).min(20))
            .filter_map(|i| Cidr::new(pool.nth(i * size)?, len))
            .find(|block| !self.theirs.contains_key(block))
    }
}

/// The block that a path is about.
fn block_of(path: &str) -> Option<Cidr> {
    let (folder, block) = path.rsplit_once('/')?;
    let (address, len) = block.rsplit_once('-')?;
    folder.contains("/assignment/").then(|| Cidr::parse(&format!("{address}/{len}")).ok())?
}

/// Blocks by the place of their first address in the result, then by owner and use.
fn in_order(blocks: BTreeSet<Cidr>, result: &Value, state: &BTreeMap<String, String>) -> Vec<Cidr> {
    let mut texts = Vec::new();
    collect(result, &mut texts);
    let addresses: Vec<IpAddr> =
        texts.iter().filter_map(|text| parse_ip(text.split('/').next().unwrap_or_default())).collect();
    let mut out: Vec<Cidr> = blocks.into_iter().collect();
    out.sort_by_key(|block| {
        let place = addresses.iter().position(|address| block.contains(*address));
        let stored = state.iter().find(|(path, _)| block_of(path) == Some(*block));
        let stored: Value = stored.and_then(|(_, text)| serde_json::from_str(text).ok()).unwrap_or_default();
        let free = stored["unallocated"].as_array().map_or(0, Vec::len);
        (place.unwrap_or(usize::MAX), field(&stored, "affinity").to_owned(), free)
    });
    out
}

fn collect<'v>(value: &'v Value, out: &mut Vec<&'v str>) {
    match value {
        Value::String(text) => out.push(text),
        Value::Array(items) => items.iter().for_each(|item| collect(item, out)),
        Value::Object(fields) => fields.values().for_each(|value| collect(value, out)),
        _ => {}
    }
}

/// Replaces every word that looks like an address.
fn translate(text: &str, rename: impl Fn(&str) -> Option<String>) -> String {
    let in_word = |c: char| c.is_ascii_hexdigit() || matches!(c, '.' | ':' | '/' | '-');
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find(in_word) {
        out.push_str(&rest[..start]);
        let end = rest[start..].find(|c| !in_word(c)).map_or(rest.len(), |len| start + len);
        let word = &rest[start..end];
        match rename(word) {
            Some(new) => out.push_str(&new),
            // A larger network keeps its name.
            None if Cidr::parse(word).is_ok() => out.push_str(word),
            // A path is taken segment by segment.
            None => {
                let parts: Vec<String> =
                    word.split('/').map(|part| rename(part).unwrap_or_else(|| part.to_owned())).collect();
                out.push_str(&parts.join("/"));
            }
        }
        rest = &rest[end..];
    }
    out.push_str(rest);
    out
}

/// The word with its block replaced; `None` if it is no address of a known block.
fn renamed(word: &str, names: &BTreeMap<Cidr, Cidr>) -> Option<String> {
    let (address, mark, len) = match word.rsplit_once('/').map(|(a, l)| (a, "/", l)) {
        Some(parts) => parts,
        None => word.rsplit_once('-').map_or((word, "", ""), |(a, l)| (a, "-", l)),
    };
    let address = parse_ip(address)?;
    let (from, to) = names.iter().find(|(from, _)| from.contains(address))?;
    if !len.is_empty() && len.parse::<u8>().ok()? < from.prefix_len() {
        return None;
    }
    Some(format!("{}{mark}{len}", moved(address, from, to)?))
}

fn moved(address: IpAddr, from: &Cidr, to: &Cidr) -> Option<IpAddr> {
    to.nth(from.ordinal(address)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_renamed_where_they_are_addresses_of_a_pair() {
        let mut blocks = Blocks::default();
        let cidr = |text| Cidr::parse(text).unwrap();
        blocks.join(cidr("10.0.0.0/30"), cidr("10.0.0.8/30"));
        blocks.join(cidr("fd00::/126"), cidr("fd00::4/126"));
        for (theirs, ours) in [
            ("update conflict: 10.0.0.1", "update conflict: 10.0.0.9"),
            ("/x/ipv4/block/10.0.0.0-30", "/x/ipv4/block/10.0.0.8-30"),
            ("block '10.0.0.0/30' is not empty", "block '10.0.0.8/30' is not empty"),
            ("pools: [10.0.0.0/28]", "pools: [10.0.0.0/28]"),
            ("cidr=10.0.0.8/29", "cidr=10.0.0.8/29"),
            ("fd00::2/126", "fd00::6/126"),
            ("ab.1", "ab.1"),
        ] {
            assert_eq!(blocks.to_ours(theirs), ours);
            assert_eq!(blocks.to_theirs(ours), theirs);
        }
    }
}
