//! FelixConfiguration: one object becomes one entry per parameter, as text.
//!
//! The parameters come from the table of the type ([`FelixConfigurationSpec::PARAMS`]). Objects that are for
//! the nodes that a selector selects reach Felix whole; [`felix_parameters`] takes them apart there.

use std::collections::{BTreeMap, BTreeSet};

use calico_api::{FelixConfiguration, FelixConfigurationSpec, Kind, ParamValue, ProtoPort, RouteTableRange};
use smol_str::SmolStr;

use super::node::{GLOBAL_NAME, PER_NODE_PREFIX};
use super::{Parts, ProcessError, Processor, entries, expect_kind, object};
use crate::key::Key;
use crate::kv::KvPair;
use crate::value::Value;

/// Prefix of annotations that set a parameter, whatever the fields say.
const OVERRIDE_PREFIX: &str = "config.projectcalico.org/";

/// The field that says which nodes the object is for; no parameter.
const NODE_SELECTOR: &str = "NodeSelector";

/// Processor of FelixConfiguration objects.
#[derive(Default)]
pub(super) struct FelixConfigProcessor {
    /// Parameters that only annotations named: they must be deleted once the annotation is gone.
    extra: BTreeSet<SmolStr>,
}

impl Processor for FelixConfigProcessor {
    fn process(&mut self, kv: KvPair) -> (Vec<KvPair>, Option<ProcessError>) {
        let source = match expect_kind(&kv.key, Kind::FelixConfiguration) {
            Ok(source) => source,
            Err(error) => return (Vec::new(), Some(error)),
        };
        let key: Box<dyn Fn(SmolStr) -> Key> = if source.name == GLOBAL_NAME {
            Box::new(Key::GlobalConfig)
        } else if let Some(host) = source.name.strip_prefix(PER_NODE_PREFIX) {
            let host = SmolStr::from(host);
            Box::new(move |name| Key::HostConfig { host: host.clone(), name })
        } else {
            return (vec![kv], None);
        };
        let (mut values, error) = match kv.value.as_ref().map(|v| object::<FelixConfiguration>(source, v)) {
            None => (BTreeMap::new(), None),
            Some(Ok(config)) => (felix_parameters(config), None),
            Some(Err(error)) => (BTreeMap::new(), Some(error)),
        };
        let mut parts: Parts = parameter_names()
            .map(|name| (key(SmolStr::new_static(name)), values.remove(name).map(Value::Text)))
            .collect();
        self.extra.extend(values.keys().cloned());
        for name in &self.extra {
            parts.push((key(name.clone()), values.remove(name).map(Value::Text)));
        }
        (entries(parts, &kv), error)
    }

    fn on_syncer_starting(&mut self) {
        self.extra.clear();
    }
}

/// The parameters that an object sets, by their names in Felix's configuration, as texts.
///
/// Durations are in seconds (one is in milliseconds); lists are joined by commas. Annotations of the object
/// win over its fields and may name parameters that have no field.
pub fn felix_parameters(config: &FelixConfiguration) -> BTreeMap<SmolStr, SmolStr> {
    let mut out: BTreeMap<SmolStr, SmolStr> = config
        .spec
        .values()
        .filter(|(param, _)| param.param != NODE_SELECTOR)
        .filter_map(|(param, value)| {
            let text = parameter_text(param.param, value?);
            (!text.is_empty()).then(|| (SmolStr::new_static(param.param), text.into()))
        })
        .collect();
    for (name, value) in &config.metadata.annotations {
        let Some(name) = name.strip_prefix(OVERRIDE_PREFIX) else { continue };
        // Names of parameters are matched in any case; the table's spelling is the one that is sent.
        let name = parameter_names()
            .find(|known| known.eq_ignore_ascii_case(name))
            .map_or_else(|| SmolStr::from(name), SmolStr::new_static);
        out.insert(name, value.into());
    }
    out
}

fn parameter_names() -> impl Iterator<Item = &'static str> {
    FelixConfigurationSpec::PARAMS.iter().map(|param| param.param).filter(|name| *name != NODE_SELECTOR)
}

fn parameter_text(name: &str, value: ParamValue<'_>) -> String {
    match value {
        ParamValue::Bool(on) => on.to_string(),
        ParamValue::Int(number) => number.to_string(),
        ParamValue::Duration(d) if name.ends_with("Millis") => float_text(d.as_millis_f64()),
        ParamValue::Duration(d) => float_text(d.as_secs_f64()),
        ParamValue::Text(text) => text.to_owned(),
        ParamValue::TextList(texts) => texts.join(","),
        ParamValue::TextMap(map) => map.iter().map(|(key, value)| format!("{key}={value},")).collect(),
        ParamValue::Port(port) => port.to_string(),
        ParamValue::PortList(ports) => joined(ports.iter().map(ToString::to_string)),
        ParamValue::ProtoPortList([]) => "none".to_owned(),
        ParamValue::ProtoPortList(ports) => joined(ports.iter().map(proto_port)),
        ParamValue::Dscp(dscp) => dscp.to_string(),
        ParamValue::HealthTimeouts(timeouts) => {
            joined(timeouts.iter().map(|t| format!("{}={}", t.name, t.timeout)))
        }
        ParamValue::ConntrackTimeouts(timeouts) => {
            joined(timeouts.entries().into_iter().map(|(name, value)| format!("{name}={value}")))
        }
        ParamValue::RouteTableRange(range) => table_range(range),
        ParamValue::RouteTableRangeList(ranges) => joined(ranges.iter().map(table_range)),
    }
}

fn joined(texts: impl Iterator<Item = String>) -> String {
    texts.collect::<Vec<_>>().join(",")
}

fn proto_port(port: &ProtoPort) -> String {
    let protocol = if port.protocol.is_empty() { "tcp".to_owned() } else { port.protocol.to_lowercase() };
    match port.net.as_str() {
        "" => format!("{protocol}:{}", port.port),
        net if net.contains(':') => format!("{protocol}:[{net}]:{}", port.port),
        net => format!("{protocol}:{net}:{}", port.port),
    }
}

fn table_range(range: &RouteTableRange) -> String {
    format!("{}-{}", range.min, range.max)
}

/// Shortest digits that read back to the same number; with an exponent of at least two digits from a million
/// on and below a ten-thousandth, as Go prints numbers.
fn float_text(value: f64) -> String {
    let scientific = format!("{value:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else { return scientific };
    match exponent.parse::<i32>() {
        Ok(exponent) if value != 0.0 && !(-4..6).contains(&exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.unsigned_abs())
        }
        _ => value.to_string(),
    }
}
