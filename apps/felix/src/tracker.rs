//! Keeps the settings that come from the store, and notices when the resolved settings change.

use std::collections::BTreeMap;

use calico_api::{AnyResource, FelixConfiguration, Timestamp};
use calico_model::process::felix_parameters;
use calico_model::{Key, Update, Value};
use calico_selector::Selector;
use smol_str::SmolStr;

use crate::config::{Params, RawSettings, Source};

/// Parameters of the store's model that describe the cluster or the node and change nothing that Felix does.
const NOT_SETTINGS: [&str; 9] = [
    "ClusterGUID",
    "ClusterType",
    "CalicoVersion",
    "Variant",
    "IpInIpTunnelAddr",
    "IPv4VXLANTunnelAddr",
    "VXLANTunnelMACAddr",
    "IPv6VXLANTunnelAddr",
    "VXLANTunnelMACAddrV6",
];

/// Settings of this node as the store has them now.
#[derive(Debug)]
pub struct ConfigTracker {
    raw: RawSettings,
    machine_name: String,
    hostname: SmolStr,
    /// FelixConfigurations that select nodes by label.
    selecting: BTreeMap<SmolStr, FelixConfiguration>,
    node_labels: BTreeMap<String, String>,
    dirty: bool,
}

// === impl ConfigTracker ===

impl ConfigTracker {
    /// Starts from the settings of the environment and the file; `machine_name` names the node unless they do.
    pub fn new(raw: RawSettings, machine_name: &str) -> Self {
        let hostname = Params::read(&raw, machine_name).0.hostname;
        Self {
            raw,
            machine_name: machine_name.to_owned(),
            hostname,
            selecting: BTreeMap::new(),
            node_labels: BTreeMap::new(),
            dirty: true,
        }
    }

    /// Takes a change from the store; those that are no settings are left alone.
    pub fn on_update(&mut self, update: &Update) {
        let text = match &update.kv.value {
            Some(Value::Text(text)) => Some(text.clone()),
            _ => None,
        };
        match &update.kv.key {
            Key::GlobalConfig(name) if !NOT_SETTINGS.contains(&name.as_str()) => {
                self.raw.set(Source::Global, name, text);
                self.dirty = true;
            }
            Key::HostConfig { host, name }
                if *host == self.hostname && !NOT_SETTINGS.contains(&name.as_str()) =>
            {
                self.raw.set(Source::Host, name, text);
                self.dirty = true;
            }
            Key::Resource(key) => match &update.kv.value {
                Some(Value::Resource(object)) => self.put(&key.name, object),
                None => self.remove(key.kind, &key.name),
                Some(_) => {}
            },
            _ => {}
        }
    }

    fn put(&mut self, name: &SmolStr, object: &AnyResource) {
        match object {
            AnyResource::FelixConfiguration(config) => {
                self.selecting.insert(name.clone(), (**config).clone());
                self.select();
            }
            AnyResource::Node(node) if *name == self.hostname && self.node_labels != node.metadata.labels => {
                self.node_labels.clone_from(&node.metadata.labels);
                self.select();
            }
            _ => {}
        }
    }

    fn remove(&mut self, kind: calico_api::Kind, name: &SmolStr) {
        match kind {
            calico_api::Kind::FelixConfiguration if self.selecting.remove(name).is_some() => self.select(),
            calico_api::Kind::Node if *name == self.hostname && !self.node_labels.is_empty() => {
                self.node_labels.clear();
                self.select();
            }
            _ => {}
        }
    }

    /// The oldest FelixConfiguration whose selector selects this node counts; names decide between equals.
    fn select(&mut self) {
        let selects = |config: &FelixConfiguration| {
            let selector = Selector::parse(&config.spec.node_selector);
            selector.is_ok_and(|s| !config.spec.node_selector.is_empty() && s.matches(&self.node_labels))
        };
        let age = |config: &FelixConfiguration| {
            config.metadata.creation_timestamp.as_ref().map(Timestamp::as_second)
        };
        let winner = self
            .selecting
            .iter()
            .filter(|(_, config)| selects(config))
            .min_by_key(|(name, config)| (age(config).unwrap_or(i64::MAX), (*name).clone()));
        let settings = winner.map(|(_, config)| felix_parameters(config)).unwrap_or_default();
        self.raw.clear(Source::Selector);
        for (name, value) in settings {
            self.raw.set(Source::Selector, &name, Some(value));
        }
        self.dirty = true;
    }

    /// The settings as they are now.
    pub fn params(&self) -> Params {
        let (params, bad) = Params::read(&self.raw, &self.machine_name);
        for problem in bad {
            tracing::warn!(error = %problem, "setting cannot be read, its default holds");
        }
        params
    }

    /// The settings, if something changed since the last call.
    pub fn changed(&mut self) -> Option<Params> {
        std::mem::take(&mut self.dirty).then(|| self.params())
    }
}

#[cfg(test)]
mod tests {
    use calico_api::{Kind, Node};
    use calico_model::{KvPair, UpdateType};

    use super::*;

    fn set(key: Key, value: Option<Value>) -> Update {
        Update { kv: KvPair { value, ..KvPair::tombstone(key) }, kind: UpdateType::Unknown }
    }

    fn text(text: &str) -> Option<Value> {
        Some(Value::Text(text.into()))
    }

    fn selecting(name: &str, selector: &str, created: i64, port: i64) -> Update {
        let mut config = FelixConfiguration::default();
        config.metadata.name = name.into();
        config.metadata.creation_timestamp = Timestamp::from_second(created);
        config.spec.node_selector = selector.into();
        config.spec.vxlan_port = Some(port);
        set(Key::resource(Kind::FelixConfiguration, "", name), Some(Value::resource(config)))
    }

    #[test]
    fn the_nodes_own_settings_beat_the_clusters() {
        let mut tracker = ConfigTracker::new(RawSettings::default(), "node-1");
        assert!(tracker.changed().is_some());
        assert!(tracker.changed().is_none());
        tracker.on_update(&set(Key::GlobalConfig("VXLANPort".into()), text("1")));
        assert_eq!(tracker.changed().map(|p| p.rules.vxlan_port), Some(1));
        let host = |host: &str| Key::HostConfig { host: host.into(), name: "VXLANPort".into() };
        tracker.on_update(&set(host("node-2"), text("2")));
        assert!(tracker.changed().is_none(), "another node's");
        tracker.on_update(&set(host("node-1"), text("3")));
        assert_eq!(tracker.changed().map(|p| p.rules.vxlan_port), Some(3));
        tracker.on_update(&set(host("node-1"), None));
        assert_eq!(tracker.changed().map(|p| p.rules.vxlan_port), Some(1));
        tracker.on_update(&set(Key::GlobalConfig("ClusterGUID".into()), text("x")));
        assert!(tracker.changed().is_none());
    }

    #[test]
    fn the_oldest_configuration_that_selects_the_node_counts() {
        let mut tracker = ConfigTracker::new(RawSettings::default(), "node-1");
        tracker.on_update(&selecting("young", "zone == 'a'", 200, 20));
        tracker.on_update(&selecting("old", "zone == 'a'", 100, 10));
        tracker.on_update(&selecting("elsewhere", "zone == 'b'", 1, 30));
        assert_eq!(tracker.params().rules.vxlan_port, 4789);
        let mut node = Node::default();
        node.metadata.name = "node-1".into();
        node.metadata.labels.insert("zone".into(), "a".into());
        tracker.on_update(&set(Key::resource(Kind::Node, "", "node-1"), Some(Value::resource(node))));
        assert_eq!(tracker.params().rules.vxlan_port, 10);
        tracker.on_update(&set(Key::resource(Kind::FelixConfiguration, "", "old"), None));
        assert_eq!(tracker.params().rules.vxlan_port, 20);
        tracker.on_update(&set(Key::resource(Kind::Node, "", "node-1"), None));
        assert_eq!(tracker.params().rules.vxlan_port, 4789);
    }
}
