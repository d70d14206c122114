//! Kubernetes objects as Calico's.

use calico_api::gojson;
use calico_api::k8s;
use calico_model::kubernetes::{self, PolicyFault};
use calico_model::names::{ORCHESTRATOR_KUBERNETES, UidError};
use calico_model::{KvPair, Value as Stored};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::Context;
use super::case::Case;
use super::names::describe;
use super::text::{field, pretty, read_lines};

/// Runs every object of the kinds that are converted.
pub(crate) fn run(context: &Context) -> anyhow::Result<Vec<Case>> {
    let rows = read_lines(&context.path("ctl/convert.jsonl"))?;
    Ok(rows.iter().map(case).collect())
}

fn case(row: &Value) -> Case {
    let id = format!("ctl/convert/{}", field(row, "id"));
    let (expected, ours) = match field(row, "op") {
        "namespace" => (entries(row), profile(row, kubernetes::namespace)),
        "serviceaccount" => (entries(row), profile(row, kubernetes::service_account)),
        "networkpolicy" => (entries(row), policy(row)),
        // Of pods the parts are converted that the CNI plugin needs; the rest comes with the Kubernetes
        // datastore, as do the objects that only it has.
        "pod" if row["out"].get("error").is_none() => (pod_expected(row), pod(row)),
        "pod" => return Case::not_yet(id, "annotations of pods: the Kubernetes datastore"),
        "clusternetworkpolicy" => return Case::not_yet(id, "ClusterNetworkPolicy: the Kubernetes datastore"),
        "endpointslice" | "service" => return Case::not_yet(id, "services: the Kubernetes datastore"),
        "node" | "node_update" => return Case::not_yet(id, "nodes: the Kubernetes datastore"),
        other => (row["out"].clone(), json!({"error": format!("unknown operation {other}")})),
    };
    Case::json(id, pretty(row), &expected, &ours)
}

/// What upstream made; of an error only that there is one, and the text where it names no Go structure.
fn entries(row: &Value) -> Value {
    let mut out = json!({"kvpairs": row["out"]["kvpairs"]});
    let error = field(&row["out"], "error");
    if error.contains("error with rule") {
        out["error"] = "a rule cannot be converted".into();
    } else if !error.is_empty() {
        out["error"] = error.into();
    }
    if let Some(error) = row["out"].get("decodeError") {
        out["decodeError"] = error.clone();
    }
    out
}

fn decode<T: DeserializeOwned>(row: &Value) -> Result<T, Value> {
    serde_json::from_value(row["object"].clone()).map_err(|error| json!({"decodeError": error.to_string()}))
}

fn profile<T: DeserializeOwned>(row: &Value, convert: impl Fn(&T) -> Result<KvPair, UidError>) -> Value {
    match decode(row).map(|object| convert(&object)) {
        Ok(Ok(entry)) => json!({"kvpairs": [pair(&entry)]}),
        Ok(Err(error)) => json!({"kvpairs": [], "error": error.to_string()}),
        Err(error) => error,
    }
}

fn policy(row: &Value) -> Value {
    let source: k8s::NetworkPolicy = match decode(row) {
        Ok(source) => source,
        Err(error) => return error,
    };
    match kubernetes::network_policy(&source) {
        Ok((entry, faults)) => {
            let mut out = json!({"kvpairs": [pair(&entry)]});
            if let [PolicyFault { .. }, ..] = faults.as_slice() {
                out["error"] = "a rule cannot be converted".into();
            }
            out
        }
        Err(error) => json!({"kvpairs": [], "error": error.to_string()}),
    }
}

fn pair(entry: &KvPair) -> Value {
    let value = match &entry.value {
        Some(Stored::Resource(object)) => {
            let text = gojson::to_string(&**object).unwrap_or_default();
            serde_json::from_str(&text).unwrap_or_default()
        }
        Some(other) => json!(format!("{other:?}")),
        None => Value::Null,
    };
    json!({"key": describe(&entry.key), "revision": entry.revision.to_string(), "value": value})
}

fn pod_expected(row: &Value) -> Value {
    let endpoint = &row["out"]["kvpairs"][0]["value"];
    json!({
        "labels": endpoint["metadata"]["labels"],
        "profiles": endpoint["spec"]["profiles"],
        "ports": endpoint["spec"].get("ports").cloned().unwrap_or_else(|| json!([])),
    })
}

fn pod(row: &Value) -> Value {
    let source: k8s::Pod = match decode(row) {
        Ok(source) => source,
        Err(error) => return error,
    };
    let (metadata, spec) = (&source.metadata, &source.spec);
    let account = &spec.service_account_name;
    json!({
        "labels": kubernetes::pod_labels(&metadata.labels, ORCHESTRATOR_KUBERNETES, &metadata.namespace, account),
        "profiles": kubernetes::pod_profiles(&metadata.namespace, account),
        "ports": kubernetes::pod_ports(spec),
    })
}
