//! The product's path from stored objects to messages, and what a dataplane knows after them.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use calico_api::{AnyResource, Kind};
use calico_calc::{CalcConfig, CalcGraph, EncapSettings, RouteSource};
use calico_dpmsg as dp;
use calico_felix::config::{Params, RawSettings, Source};
use calico_model::names::DEFAULT_ALLOW_PROFILE;
use calico_model::process::Processor;
use calico_model::{
    Key, KvPair, Revision, SyncStatus, Update, UpdateType, Value as Stored, decode_value, processor_for,
};
use calico_net::Cidr;
use calico_schema::{Op, validate};
use serde_json::{Value, json};

use super::super::text::{field, read, yaml};
use super::NODE;

/// Built-in tiers: name, order, action at the end.
const TIERS: [(&str, f64, &str); 3] =
    [("default", 1e6, "Deny"), ("kube-admin", 1e3, "Pass"), ("kube-baseline", 1e7, "Pass")];

/// A running graph with what it said so far.
pub(super) struct World {
    processors: BTreeMap<Kind, Box<dyn Processor>>,
    graph: CalcGraph,
    /// Settings in force.
    pub(super) params: Params,
    /// Policies told.
    pub(super) policies: BTreeMap<dp::PolicyId, Arc<dp::Policy>>,
    /// Profiles told.
    pub(super) profiles: BTreeMap<dp::ProfileId, Arc<dp::Profile>>,
    /// Workload endpoints told.
    pub(super) workloads: BTreeMap<dp::WorkloadEndpointId, Arc<dp::WorkloadEndpoint>>,
    /// Host endpoints told.
    pub(super) hosts: BTreeMap<dp::HostEndpointId, Arc<dp::HostEndpoint>>,
    /// Pools told.
    pub(super) pools: BTreeMap<Cidr, Arc<dp::IpPool>>,
    /// Tunnels needed.
    pub(super) encapsulation: dp::Encapsulation,
    /// Tunnel endpoint of this node.
    pub(super) vtep: Option<Arc<dp::Vtep>>,
}

/// The part that a data set needs and the product lacks.
pub(super) fn missing_part(dir: &Path, meta: &Value) -> anyhow::Result<Option<&'static str>> {
    let mut documents = yaml(&read(&dir.join("state.yaml"))?)?;
    for step in meta["steps"].as_array().into_iter().flatten() {
        documents.extend(super::step_documents(step)?.0);
    }
    for document in &documents {
        let kind = Kind::from_name(field(document, "kind"));
        if kind.is_some_and(|kind| !kind.info().served) {
            return Ok(Some("a kind without types"));
        }
        if document["spec"].get("qosControls").is_some() {
            return Ok(Some("limits of rate and number"));
        }
        if field(&document["spec"], "interfacePrefix").split(',').any(|prefix| prefix == "tap") {
            return Ok(Some("OpenStack"));
        }
    }
    Ok(None)
}

impl World {
    /// Reads the data set and everything that stands before its first step. Without `configured` Felix's settings
    /// are the built-in ones.
    pub(super) fn start(dir: &Path, meta: &Value, configured: bool) -> anyhow::Result<Self> {
        let documents = yaml(&read(&dir.join("state.yaml"))?)?;
        let params = settings(if configured { &documents } else { &[] }, meta)?;
        let uses_vxlan = |document: &Value| {
            field(document, "kind") == "IPPool"
                && !matches!(field(&document["spec"], "vxlanMode"), "" | "Never")
        };
        let vxlan = documents.iter().any(uses_vxlan);
        let graph = CalcGraph::new(CalcConfig {
            hostname: NODE.into(),
            overlapping_members: false,
            source_spoofing: params.source_spoofing,
            routes: vxlan.then_some(RouteSource::CalicoIpam),
            vxlan,
            encap: EncapSettings {
                ipip: None,
                vxlan: params.vxlan_enabled,
                programs_no_encap: params.program_routes.no_encap,
            },
        });
        let mut world = Self {
            processors: BTreeMap::new(),
            graph,
            params,
            policies: BTreeMap::new(),
            profiles: BTreeMap::new(),
            workloads: BTreeMap::new(),
            hosts: BTreeMap::new(),
            pools: BTreeMap::new(),
            encapsulation: dp::Encapsulation::default(),
            vtep: None,
        };
        for (name, order, action) in TIERS {
            let tier = json!({
                "kind": "Tier", "apiVersion": "projectcalico.org/v3", "metadata": {"name": name},
                "spec": {"order": order, "defaultAction": action},
            });
            world.object(&tier, false)?;
        }
        // Stores have it without storing it.
        let allow = json!({
            "kind": "Profile", "apiVersion": "projectcalico.org/v3", "metadata": {"name": DEFAULT_ALLOW_PROFILE},
            "spec": {"ingress": [{"action": "Allow"}], "egress": [{"action": "Allow"}]},
        });
        world.object(&allow, false)?;
        for document in &documents {
            world.object(document, false)?;
        }
        for raw in meta["raw"].as_array().into_iter().flatten() {
            let path = field(raw, "key");
            let key = Key::parse_path(path).with_context(|| format!("path {path}"))?;
            let value = decode_value(&key, field(raw, "value").as_bytes())?;
            world.update(KvPair::new(key, value));
        }
        world.graph.on_status(SyncStatus::InSync);
        Ok(world)
    }

    /// Does a step.
    pub(super) fn step(&mut self, step: &Value) -> anyhow::Result<()> {
        let (documents, delete) = super::step_documents(step)?;
        documents.iter().try_for_each(|document| self.object(document, delete))
    }

    /// Takes the next messages and remembers what they say.
    pub(super) fn flush(&mut self) -> Vec<dp::Message> {
        let messages = self.graph.flush();
        for message in &messages {
            self.learn(message);
        }
        messages
    }

    fn learn(&mut self, message: &dp::Message) {
        use dp::Message as M;
        match message {
            M::PolicyUpdate(id, policy) => drop(self.policies.insert(id.clone(), policy.clone())),
            M::PolicyRemove(id) => drop(self.policies.remove(id)),
            M::ProfileUpdate(id, profile) => drop(self.profiles.insert(id.clone(), profile.clone())),
            M::ProfileRemove(id) => drop(self.profiles.remove(id)),
            M::WorkloadEndpointUpdate(id, e) => drop(self.workloads.insert(id.clone(), e.clone())),
            M::WorkloadEndpointRemove(id) => drop(self.workloads.remove(id)),
            M::HostEndpointUpdate(id, e) => drop(self.hosts.insert(id.clone(), e.clone())),
            M::HostEndpointRemove(id) => drop(self.hosts.remove(id)),
            M::IpPoolUpdate(pool) => drop(self.pools.insert(pool.cidr, pool.clone())),
            M::IpPoolRemove(cidr) => drop(self.pools.remove(cidr)),
            M::Encapsulation(encapsulation) => self.encapsulation = *encapsulation,
            M::VtepUpdate(vtep) if vtep.node == NODE => self.vtep = Some(vtep.clone()),
            M::VtepRemove(node) if node == NODE => self.vtep = None,
            _ => {}
        }
    }

    /// Sends an object through its processor into the graph.
    fn object(&mut self, document: &Value, delete: bool) -> anyhow::Result<()> {
        let object = prepared(document)?;
        let kind = object.kind();
        let key = Key::resource(kind, object.namespace(), object.name());
        let value = (!delete).then(|| Stored::Resource(Arc::new(object)));
        let kv = KvPair { key, value, revision: Revision::default(), uid: None, ttl: None };
        let processor = match self.processors.entry(kind) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                entry.insert(processor_for(kind).with_context(|| format!("no processor for {kind}"))?)
            }
        };
        let (outputs, _) = processor.process(kv);
        for kv in outputs {
            self.update(kv);
        }
        Ok(())
    }

    fn update(&mut self, kv: KvPair) {
        self.graph.on_update(&Update { kv, kind: UpdateType::New });
    }
}

/// The object with its defaults, as it would be stored.
fn prepared(document: &Value) -> anyhow::Result<AnyResource> {
    let kind = field(document, "kind");
    let kind = Kind::from_name(kind).with_context(|| format!("kind {kind}"))?;
    let mut object = AnyResource::from_value_strict(kind, document)?;
    validate::prepare(&mut object, Op::Create).with_context(|| format!("{kind} {}", object.name()))?;
    Ok(object)
}

/// The settings that the data set makes.
fn settings(documents: &[Value], meta: &Value) -> anyhow::Result<Params> {
    let mut raw = RawSettings::default();
    if let Some(mut processor) = processor_for(Kind::FelixConfiguration) {
        for document in documents.iter().filter(|d| field(d, "kind") == "FelixConfiguration") {
            let object = prepared(document)?;
            let key = Key::resource(object.kind(), "", object.name());
            let kv = KvPair::new(key, Stored::Resource(Arc::new(object)));
            for kv in processor.process(kv).0 {
                let text = match kv.value {
                    Some(Stored::Text(text)) => Some(text),
                    _ => None,
                };
                match kv.key {
                    Key::GlobalConfig(name) => raw.set(Source::Global, &name, text),
                    Key::HostConfig { host, name } if host == NODE => raw.set(Source::Host, &name, text),
                    _ => {}
                }
            }
        }
    }
    for (name, value) in meta["felixEnvironment"].as_object().into_iter().flatten() {
        raw.set(Source::Environment, name, value.as_str().map(Into::into));
    }
    Ok(Params::read(&raw, NODE).0)
}
