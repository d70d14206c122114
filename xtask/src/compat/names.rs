//! Names and paths: workload endpoints, keys, stored values, profiles, UIDs.

use std::str::FromStr as _;

use calico_api::{Kind, gojson};
use calico_model::names::{self, WorkloadEndpointIds, convert_uid, split_name};
use calico_model::{Key, PolicyKey, Value as Stored, decode_value, kubernetes, path};
use calico_net::Cidr;
use serde_json::{Map, Value, json};

use super::Context;
use super::case::Case;
use super::text::{field, pretty, read_lines};

/// Runs every name.
pub(crate) fn run(context: &Context) -> anyhow::Result<Vec<Case>> {
    let rows = read_lines(&context.path("ctl/names.jsonl"))?;
    Ok(rows.iter().map(case).collect())
}

fn case(row: &Value) -> Case {
    let id = format!("ctl/names/{}", field(row, "id"));
    let name = field(row, "name");
    let ours = match field(row, "op") {
        "wep_name" => {
            let ids = ids(&row["ids"]);
            outcome(if row["allowPrefix"] == true { ids.name_prefix() } else { ids.name() })
        }
        "wep_matches" => json!({"result": ids(&row["ids"]).matches(name)}),
        "wep_parse" => outcome(WorkloadEndpointIds::parse(name).map(|ids| {
            json!({
                "ContainerID": ids.container_id, "Endpoint": ids.endpoint, "Node": ids.node,
                "Orchestrator": ids.orchestrator, "Pod": ids.pod, "Workload": ids.workload,
            })
        })),
        "wep_v1key" => match names::workload_endpoint_key(field(row, "namespace"), name) {
            Ok(key) => {
                let file = names::status_file_name(&key);
                json!({"result": describe(&Key::WorkloadEndpoint(key)), "statusFile": file})
            }
            Err(error) => json!({"error": error.to_string()}),
        },
        "split" => {
            let parts = split_name(name);
            let fits = row["n"].as_u64() == u64::try_from(parts.len()).ok();
            json!({"result": fits.then_some(parts)})
        }
        "tier_or_default" => json!({
            "result": names::tier_or_default(name), "protected": names::is_built_in_tier(name),
        }),
        "cidr_to_name" => outcome(Cidr::from_str(name).map(|cidr| names::cidr_name(&cidr))),
        "veth" => json!({"result": names::pod_interface("cali", field(row, "namespace"), name)}),
        "resource_path" if field(row, "kind") == "IPAMConfig" => {
            return Case::not_yet(id, "a kind that only the Kubernetes datastore has");
        }
        "resource_path" => match Kind::from_name(field(row, "kind")) {
            Some(kind) => json!({"result": describe(&Key::resource(kind, field(row, "namespace"), name))}),
            None => json!({"error": "unknown kind"}),
        },
        "policy_path" => match Kind::from_name(field(row, "kind")) {
            Some(kind) => {
                let namespace = field(row, "namespace").into();
                let key = Key::Policy(PolicyKey { kind, namespace, name: name.into() });
                json!({"result": describe(&key)})
            }
            None => json!({"error": "unknown kind"}),
        },
        "parse_path" => {
            let path = field(row, "path");
            let mut ours = json!({"result": Key::parse_path(path).map(|key| describe(&key))});
            if let Some((_, tier)) = path::parse_legacy_policy(path) {
                ours["legacy"] = true.into();
                ours["tier"] = tier.as_str().into();
            }
            ours
        }
        "stored_value" => match stored(row) {
            Some(ours) => ours,
            None => return Case::not_yet(id, "a kind without types"),
        },
        "profile_to_ns" => match names::profile_namespace(name) {
            Some(namespace) => json!({"result": namespace}),
            None => json!({"error": format!("Profile {name} not backed by a Namespace")}),
        },
        "profile_to_sa" => match names::profile_service_account(name) {
            Some((namespace, account)) => {
                json!({"result": {"namespace": namespace, "serviceaccount": account}})
            }
            None => json!({"error": format!("Profile {name} not backed by a ServiceAccount")}),
        },
        "profile_rev_split" => {
            outcome(kubernetes::split_profile_revision(name).map(|(ns, sa)| json!({"ns": ns, "sa": sa})))
        }
        "uid" => outcome(convert_uid(name)),
        "kdd_write" | "kdd_read" => return Case::not_yet(id, "the Kubernetes datastore"),
        other => json!({"error": format!("unknown operation {other}")}),
    };
    Case::json(id, pretty(row), &row["out"], &ours)
}

/// The result of an operation or the text of its error, as the files write them.
fn outcome<T: serde::Serialize, E: std::fmt::Display>(result: Result<T, E>) -> Value {
    match result {
        Ok(result) => json!({"result": result}),
        Err(error) => json!({"error": error.to_string()}),
    }
}

fn ids(row: &Value) -> WorkloadEndpointIds {
    let text = |name| field(row, name).into();
    WorkloadEndpointIds {
        node: text("Node"),
        orchestrator: text("Orchestrator"),
        pod: text("Pod"),
        container_id: text("ContainerID"),
        workload: text("Workload"),
        endpoint: text("Endpoint"),
    }
}

/// A stored value as it is read; `None` if this version has no types for the kind.
fn stored(row: &Value) -> Option<Value> {
    let key = Key::parse_path(field(row, "path"))?;
    if let Key::Resource(key) = &key
        && !key.kind.info().served
    {
        return None;
    }
    let bytes = serde_json::to_vec(&row["value"]).ok()?;
    Some(match decode_value(&key, &bytes) {
        Ok(Stored::Resource(object)) => {
            let text = gojson::to_string(&*object).unwrap_or_default();
            json!({"result": serde_json::from_str::<Value>(&text).unwrap_or_default()})
        }
        Ok(other) => json!({"error": format!("not an object: {other:?}")}),
        Err(error) => json!({"error": error.to_string()}),
    })
}

/// A key in the words of the files: type, path, text and identifiers.
pub(crate) fn describe(key: &Key) -> Value {
    let (kind, fields) = parts(key);
    let fields: Map<String, Value> =
        fields.into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect();
    let mut out = json!({"type": kind, "string": key.to_string(), "fields": fields});
    match key.missing_identifier().filter(|_| matches!(key, Key::Policy(_))) {
        Some(missing) => out["pathError"] = format!("insufficient identifiers, missing '{missing}'").into(),
        None => out["path"] = key.to_path().into(),
    }
    out
}

fn parts(key: &Key) -> (&'static str, Vec<(&'static str, String)>) {
    let text = |text: &dyn std::fmt::Display| text.to_string();
    match key {
        Key::Resource(k) => (
            "ResourceKey",
            vec![("Kind", text(&k.kind)), ("Namespace", text(&k.namespace)), ("Name", text(&k.name))],
        ),
        Key::Policy(k) => (
            "PolicyKey",
            vec![("Kind", text(&k.kind)), ("Namespace", text(&k.namespace)), ("Name", text(&k.name))],
        ),
        Key::WorkloadEndpoint(k) | Key::WorkloadEndpointStatus { endpoint: k, .. } => {
            let mut fields = vec![
                ("Hostname", text(&k.host)),
                ("OrchestratorID", text(&k.orchestrator)),
                ("WorkloadID", text(&k.workload)),
                ("EndpointID", text(&k.endpoint)),
            ];
            if let Key::WorkloadEndpointStatus { region, .. } = key {
                fields.push(("RegionString", text(region)));
                return ("WorkloadEndpointStatusKey", fields);
            }
            ("WorkloadEndpointKey", fields)
        }
        Key::Tier(name) => ("TierKey", vec![("Name", text(name))]),
        Key::ProfileRules(name) => ("ProfileRulesKey", vec![("ProfileKey", format!("Profile(name={name})"))]),
        Key::ProfileLabels(name) => {
            ("ProfileLabelsKey", vec![("ProfileKey", format!("Profile(name={name})"))])
        }
        Key::IpamHandle(id) => ("IPAMHandleKey", vec![("HandleID", text(id))]),
        Key::IpamConfig => ("IPAMConfigKey", vec![]),
        Key::IpamHost(host) => ("IPAMHostKey", vec![("Host", text(host))]),
        Key::Block(cidr) => ("BlockKey", vec![("CIDR", text(cidr))]),
        Key::BlockAffinity { affinity, owner, cidr } => (
            "BlockAffinityKey",
            vec![("AffinityType", affinity.as_str().into()), ("CIDR", text(cidr)), ("Host", text(owner))],
        ),
        Key::HostEndpoint { host, endpoint } => {
            ("HostEndpointKey", vec![("Hostname", text(host)), ("EndpointID", text(endpoint))])
        }
        Key::HostEndpointStatus { host, endpoint } => {
            ("HostEndpointStatusKey", vec![("Hostname", text(host)), ("EndpointID", text(endpoint))])
        }
        Key::HostConfig { host, name } => {
            ("HostConfigKey", vec![("Hostname", text(host)), ("Name", text(name))])
        }
        Key::GlobalConfig(name) => ("GlobalConfigKey", vec![("Name", text(name))]),
        Key::ReadyFlag => ("ReadyFlagKey", vec![]),
        Key::IpPool(cidr) => ("IPPoolKey", vec![("CIDR", text(cidr))]),
        Key::NetworkSet(name) => ("NetworkSetKey", vec![("Name", text(name))]),
        Key::GlobalBgpConfig(name) => ("GlobalBGPConfigKey", vec![("Name", text(name))]),
        Key::NodeBgpConfig { host, name } => {
            ("NodeBGPConfigKey", vec![("Nodename", text(host)), ("Name", text(name))])
        }
        Key::ActiveStatusReport { region, host } => {
            ("ActiveStatusReportKey", vec![("Hostname", text(host)), ("RegionString", text(region))])
        }
        Key::LastStatusReport { region, host } => {
            ("LastStatusReportKey", vec![("Hostname", text(host)), ("RegionString", text(region))])
        }
        Key::HostIp(host) => ("HostIPKey", vec![("Hostname", text(host))]),
        Key::OrchRefs(host) => ("OrchRefKey", vec![("Hostname", text(host))]),
        Key::Wireguard(host) => ("WireguardKey", vec![("NodeName", text(host))]),
        Key::GlobalBgpPeer { ip, port } => {
            ("GlobalBGPPeerKey", vec![("PeerIP", text(ip)), ("Port", text(port))])
        }
        Key::NodeBgpPeer { host, ip, port } => {
            ("NodeBGPPeerKey", vec![("Nodename", text(host)), ("PeerIP", text(ip)), ("Port", text(port))])
        }
    }
}
