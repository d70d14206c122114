//! Felix's settings: where each may come from, which source wins, and the typed result.
//!
//! Sources from strongest to weakest: environment (`FELIX_<NAME>`, any case), configuration file, the node's own
//! FelixConfiguration and Node, a FelixConfiguration that selects the node, the cluster's `default`, built-in
//! defaults. An empty text is unset, `none` is the type's zero value. A text that cannot be read is reported and the
//! default holds.

mod params;
mod parse;

use std::collections::BTreeMap;

use smol_str::SmolStr;

pub use params::{Params, ProgramRoutes};
pub use parse::BadValue;

/// Where settings come from, weakest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Source {
    /// FelixConfiguration `default` and ClusterInformation.
    Global,
    /// A FelixConfiguration whose selector selects this node.
    Selector,
    /// FelixConfiguration `node.<name>` and the Node.
    Host,
    /// The configuration file.
    File,
    /// The environment.
    Environment,
}

/// Settings as texts, by source and by name in lower case.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RawSettings {
    by_source: BTreeMap<Source, BTreeMap<String, SmolStr>>,
}

/// Settings that only this machine decides; the same from the store are ignored.
const LOCAL_ONLY: [&str; 8] = [
    "felixhostname",
    "datastoretype",
    "etcdaddr",
    "etcdscheme",
    "etcdendpoints",
    "etcdkeyfile",
    "etcdcertfile",
    "etcdcafile",
];

// === impl RawSettings ===

impl RawSettings {
    /// Sets or, with `None`, unsets one setting of a source.
    pub fn set(&mut self, source: Source, name: &str, value: Option<SmolStr>) {
        let name = name.to_ascii_lowercase();
        if source < Source::File && LOCAL_ONLY.contains(&name.as_str()) {
            return;
        }
        let settings = self.by_source.entry(source).or_default();
        match value {
            Some(value) if !value.is_empty() => {
                settings.insert(name, value);
            }
            _ => {
                settings.remove(&name);
            }
        }
    }

    /// Forgets all settings of a source.
    pub fn clear(&mut self, source: Source) {
        self.by_source.remove(&source);
    }

    /// Takes the `FELIX_*` variables.
    pub fn read_environment(&mut self, variables: impl IntoIterator<Item = (String, String)>) {
        for (name, value) in variables {
            if let Some(name) = name.to_ascii_lowercase().strip_prefix("felix_") {
                self.set(Source::Environment, name, Some(value.into()));
            }
        }
    }

    /// Takes the text of a configuration file: `Name = value` lines; sections and comments are skipped.
    ///
    /// Returns the numbers of lines that are neither, counted from 1.
    pub fn read_file(&mut self, text: &str) -> Vec<usize> {
        let mut bad = Vec::new();
        for (i, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with(['#', ';', '[']) {
                continue;
            }
            match line.split_once('=') {
                Some((name, value)) => self.set(Source::File, name.trim(), Some(value.trim().into())),
                None => bad.push(i + 1),
            }
        }
        bad
    }

    /// The text of a setting from the strongest source that has it.
    pub fn get(&self, name: &str) -> Option<&SmolStr> {
        let name = name.to_ascii_lowercase();
        self.by_source.values().rev().find_map(|settings| settings.get(&name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_strongest_source_wins_and_empty_is_unset() {
        let mut raw = RawSettings::default();
        raw.set(Source::Global, "HealthPort", Some("1".into()));
        raw.set(Source::Host, "healthport", Some("2".into()));
        assert_eq!(raw.get("HealthPort").map(SmolStr::as_str), Some("2"));
        assert_eq!(raw.read_file("[global]\n# x\nHealthPort = 3\nnonsense\n"), [4]);
        raw.read_environment([("FELIX_HEALTHPORT".into(), "4".into()), ("OTHER".into(), "9".into())]);
        assert_eq!(raw.get("healthPort").map(SmolStr::as_str), Some("4"));
        raw.read_environment([("felix_healthport".into(), String::new())]);
        assert_eq!(raw.get("HealthPort").map(SmolStr::as_str), Some("3"));
        raw.clear(Source::File);
        raw.set(Source::Host, "HealthPort", None);
        assert_eq!(raw.get("HealthPort").map(SmolStr::as_str), Some("1"));
    }

    #[test]
    fn the_store_cannot_say_who_we_are() {
        let mut raw = RawSettings::default();
        raw.set(Source::Global, "FelixHostname", Some("other".into()));
        assert_eq!(raw.get("FelixHostname"), None);
        raw.set(Source::Environment, "FelixHostname", Some("me".into()));
        assert_eq!(raw.get("FelixHostname").map(SmolStr::as_str), Some("me"));
    }
}
