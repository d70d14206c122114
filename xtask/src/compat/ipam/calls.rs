//! The calls of a scenario, made on the product.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::Ordering;

use anyhow::{Context as _, bail};
use calico_api::{AnyResource, decode};
use calico_client::DeleteOptions;
use calico_client::ipam::{
    AssignArgs, Assignments, AutoAssignArgs, HostReserved, Owner, PoolUtilization, ReleaseOptions,
};
use calico_datastore::RawStore as _;
use calico_model::ipam::IpamConfig;
use calico_model::path::KeyRange;
use calico_net::Cidr;
use serde_json::{Value, json};
use smol_str::SmolStr;

use super::super::text::{field, yaml};
use super::Run;

/// Creates or replaces the objects of YAML documents.
pub(super) async fn apply(run: &Run, documents: &str) -> anyhow::Result<()> {
    for document in yaml(documents)? {
        let kind = decode::kind_of(&document)?;
        let mut object = AnyResource::from_value_strict(kind, &document)?;
        let objects = run.client.objects(kind);
        match objects.get(object.namespace(), object.name()).await {
            Ok(stored) => {
                let (new, old) = (object.metadata_mut(), stored.metadata());
                new.resource_version.clone_from(&old.resource_version);
                new.uid.clone_from(&old.uid);
                new.creation_timestamp = old.creation_timestamp;
                objects.update(object).await?;
            }
            Err(error) if error.is_not_found() => drop(objects.create(object).await?),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Makes one call: its result and the text of its error.
pub(super) async fn call(run: &mut Run, op: &Value) -> anyhow::Result<(Value, Option<String>)> {
    let name = field(op, "op");
    let handle = field(op, "handle");
    let must_be_empty = op["mustBeEmpty"] == true;
    let ipam = run.ipam.clone();
    let done = |result: Result<(), _>| -> (Value, Option<String>) { (Value::Null, failure(result)) };
    Ok(match name {
        "autoAssign" => {
            let got = ipam.auto_assign(auto_args(op)?).await;
            let families = json!({"v4": family(got.v4.as_ref()), "v6": family(got.v6.as_ref())});
            (families, got.error.map(|error| error.to_string()))
        }
        "ensureBlock" => match ipam.ensure_blocks(auto_args(op)?).await {
            Ok(blocks) => (json!({"v4": text(blocks.v4), "v6": text(blocks.v6)}), None),
            Err(error) => (json!({"v4": null, "v6": null}), Some(error.to_string())),
        },
        "assignIP" => {
            let address = run.blocks.address(field(op, "ip")).parse()?;
            let args = AssignArgs {
                handle: some(handle),
                attributes: attributes(op),
                reserved: reserved(&op["rsvd4"]),
                intended_use: field(op, "use").into(),
                max_per_handle: count(op, "maxAlloc"),
                ..AssignArgs::new(address, field(op, "host"))
            };
            done(ipam.assign_ip(args).await)
        }
        "releaseIPs" => release(run, op).await?,
        "releaseByHandle" => done(ipam.release_by_handle(handle).await),
        "ipsByHandle" => match ipam.ips_by_handle(handle).await {
            Ok(addresses) => (json!(addresses), None),
            Err(error) => (json!([]), Some(error.to_string())),
        },
        "getAssignmentAttributes" => {
            let address = run.blocks.address(field(op, "ip")).parse()?;
            match ipam.get_assignment(address).await {
                Ok(found) => {
                    let mut out = json!({"handle_id": found.attribute.handle_id});
                    if !found.attribute.active_owner_attrs.is_empty() {
                        out["secondary"] = json!(found.attribute.active_owner_attrs);
                    }
                    (out, None)
                }
                Err(error) => (Value::Null, Some(error.to_string())),
            }
        }
        "getUtilization" => {
            let pools = op["pools"].as_array().into_iter().flatten();
            let pools = pools.filter_map(Value::as_str).map(str::to_owned).collect();
            match ipam.utilization(pools).await {
                Ok(pools) => (pools.iter().map(utilization).collect(), None),
                Err(error) => (Value::Null, Some(error.to_string())),
            }
        }
        "claimAffinity" => {
            let cidr = cidr(run, op)?;
            match ipam.claim_affinity(cidr, owner(op)).await {
                Ok(outcome) => {
                    (json!({"claimed": texts(&outcome.claimed), "failed": texts(&outcome.failed)}), None)
                }
                Err(error) => (json!({"claimed": [], "failed": []}), Some(error.to_string())),
            }
        }
        "releaseAffinity" => {
            let cidr = cidr(run, op)?;
            done(ipam.release_affinity(cidr, owner(op), must_be_empty).await)
        }
        "releaseBlockAffinity" => {
            let cidr = cidr(run, op)?;
            done(ipam.release_block_affinity(cidr, must_be_empty).await)
        }
        "releaseHostAffinities" => done(ipam.release_host_affinities(owner(op), must_be_empty).await),
        "releasePoolAffinities" => {
            let cidr = cidr(run, op)?;
            done(ipam.release_pool_affinities(cidr).await)
        }
        "removeIPAMHost" => done(ipam.remove_host(owner(op)).await),
        "gcColdIPs" => {
            let cidr = cidr(run, op)?;
            done(ipam.collect_cold(cidr).await.map(drop))
        }
        "getIPAMConfig" => match ipam.get_config().await {
            Ok(config) => (config_json(&config), None),
            Err(error) => (Value::Null, Some(error.to_string())),
        },
        "setIPAMConfig" => done(ipam.set_config(config(&op["config"])).await),
        // Releases before 3.0 had another layout; there is nothing to do, here as there.
        "upgradeHost" => (Value::Null, None),
        "sleep" => {
            run.clock.fetch_add(op["ms"].as_i64().unwrap_or_default(), Ordering::Relaxed);
            (Value::Null, None)
        }
        "applyYAML" => {
            apply(run, field(op, "yaml")).await?;
            (Value::Null, None)
        }
        "deleteNode" => {
            let result = run.client.nodes().delete("", field(op, "name"), &DeleteOptions::default()).await;
            (Value::Null, result.err().map(|error| error.to_string()))
        }
        "deletePool" => {
            let result = run.client.ip_pools().delete("", field(op, "name"), &DeleteOptions::default()).await;
            (Value::Null, result.err().map(|error| error.to_string()))
        }
        "rawPut" | "rawDelete" | "rawReplace" | "setClaimTime" => {
            raw(run, name, op).await?;
            (Value::Null, None)
        }
        other => bail!("unknown call {other}"),
    })
}

/// The same result with lists sorted where their order means nothing, and one spelling for what Go has two for.
pub(super) fn ordered(mut result: Value) -> Value {
    if let Some(object) = result.as_object_mut() {
        for family in ["v4", "v6"] {
            for list in ["ips", "msgs"] {
                if let Some(list) =
                    object.get_mut(family).and_then(|got| got.get_mut(list)).filter(|l| l.is_null())
                {
                    *list = json!([]);
                }
            }
        }
        // Not set means enabled.
        if let Some(persistence) = object.get_mut("KubeVirtVMAddressPersistence").filter(|v| v.is_null()) {
            *persistence = "Enabled".into();
        }
        for name in ["releasedOptions", "unallocated"] {
            if let Some(list) = object.get_mut(name).and_then(Value::as_array_mut) {
                list.sort_by_key(Value::to_string);
            }
        }
        if object.get("releasedAt").is_some() {
            object.insert("releasedAt".into(), "a time".into());
        }
    }
    for pool in result.as_array_mut().into_iter().flatten() {
        if let Some(blocks) = pool.get_mut("blocks").and_then(Value::as_array_mut) {
            // By how full they are, since their names differ until they are paired.
            blocks.sort_by_key(|block| (block["inUse"].as_u64(), block["reserved"].as_u64()));
            for block in blocks {
                block["cidr"] = "a block".into();
            }
        }
    }
    result
}

/// A result that is a list of addresses, sorted: it comes in the order of blocks, which depends on their names.
pub(super) fn sorted_addresses(mut result: Value) -> Value {
    if let Some(list) = result.as_array_mut().filter(|list| list.iter().all(Value::is_string)) {
        list.sort_by_key(Value::to_string);
    }
    result
}

async fn release(run: &mut Run, op: &Value) -> anyhow::Result<(Value, Option<String>)> {
    let mut requests = Vec::new();
    for request in op["ips"].as_array().into_iter().flatten() {
        let address = run.blocks.address(field(request, "address"));
        let sequence = match &request["seq"] {
            Value::Number(number) => number.as_u64(),
            Value::String(text) => Some(stored_sequence(run, &address, text).await?),
            _ => None,
        };
        requests.push(ReleaseOptions {
            address: address.into(),
            handle: field(request, "handle").into(),
            sequence,
        });
    }
    let outcome = run.ipam.release_ips(requests).await;
    let released: Vec<&str> = outcome.released.iter().map(|r| r.address.as_str()).collect();
    let result = json!({"releasedOptions": released, "unallocated": outcome.unallocated});
    Ok((result, outcome.error.map(|error| error.to_string())))
}

/// The number stored for an address, plus what stands behind `stored`.
async fn stored_sequence(run: &Run, address: &str, text: &str) -> anyhow::Result<u64> {
    let more: u64 = text.trim_start_matches("stored").trim_start_matches('+').parse().unwrap_or_default();
    let address: IpAddr = address.parse()?;
    let (entries, _) = run.raw.range(&KeyRange::Prefix("/calico/ipam/v2/assignment/".into()), None).await?;
    for entry in entries {
        let block: Value = serde_json::from_slice(&entry.value)?;
        let cidr = Cidr::parse(field(&block, "cidr")).context("a block without CIDR")?;
        if let Some(ordinal) = cidr.ordinal(address) {
            let stored = block["sequenceNumberForAllocation"][ordinal.to_string()].as_u64();
            return Ok(stored.unwrap_or_default() + more);
        }
    }
    bail!("no block of {address} is stored")
}

async fn raw(run: &mut Run, name: &str, op: &Value) -> anyhow::Result<()> {
    let path = run.blocks.to_ours(field(op, "key"));
    let value = run.blocks.to_ours(field(op, "value"));
    if name == "rawPut" {
        return run.write(&path, Some(&value)).await;
    }
    if name == "rawDelete" {
        return run.write(&path, None).await;
    }
    let stored = run.read(&path).await?.with_context(|| format!("nothing under {path}"))?;
    if name == "rawReplace" {
        let (old, new) = value.split_once("=>").context("no => in the replacement")?;
        return run.write(&path, Some(&stored.replacen(old, new, 1))).await;
    }
    let mut block: Value = serde_json::from_str(&stored)?;
    match block.as_object_mut() {
        Some(fields) if value.is_empty() => drop(fields.remove("affinity_claim_time")),
        Some(fields) => drop(fields.insert("affinity_claim_time".into(), value.into())),
        None => bail!("no block under {path}"),
    }
    run.write(&path, Some(&block.to_string())).await
}

fn failure<E: std::fmt::Display>(result: Result<(), E>) -> Option<String> {
    result.err().map(|error| error.to_string())
}

fn some(text: &str) -> Option<SmolStr> {
    (!text.is_empty()).then(|| text.into())
}

fn count(op: &Value, name: &str) -> u32 {
    op[name].as_u64().and_then(|n| u32::try_from(n).ok()).unwrap_or_default()
}

fn attributes(op: &Value) -> BTreeMap<SmolStr, SmolStr> {
    labels(&op["attrs"]).into_iter().map(|(name, value)| (name.into(), value.into())).collect()
}

fn labels(value: &Value) -> Vec<(&str, &str)> {
    let fields = value.as_object().into_iter().flatten();
    fields.map(|(name, value)| (name.as_str(), value.as_str().unwrap_or_default())).collect()
}

fn reserved(value: &Value) -> Option<HostReserved> {
    value.as_object()?;
    Some(HostReserved {
        start_of_block: count(value, "start"),
        end_of_block: count(value, "end"),
        handle: field(value, "handle").into(),
        note: field(value, "note").into(),
    })
}

fn owner(op: &Value) -> Owner {
    match field(op, "affType") {
        "virtual" => Owner::virtual_(field(op, "host")),
        _ => Owner::host(field(op, "host")),
    }
}

fn cidr(run: &Run, op: &Value) -> anyhow::Result<Cidr> {
    let text = field(op, "cidr");
    Cidr::parse(&run.blocks.to_ours(text)).with_context(|| format!("CIDR {text}"))
}

fn auto_args(op: &Value) -> anyhow::Result<AutoAssignArgs> {
    let pools = |name: &str| -> anyhow::Result<Vec<Cidr>> {
        let texts = op[name].as_array().into_iter().flatten().filter_map(Value::as_str);
        texts.map(|text| Cidr::parse(text).with_context(|| format!("pool {text}"))).collect()
    };
    Ok(AutoAssignArgs {
        num4: count(op, "num4"),
        num6: count(op, "num6"),
        handle: some(field(op, "handle")),
        attributes: attributes(op),
        host: field(op, "host").into(),
        pools4: pools("v4Pools")?,
        pools6: pools("v6Pools")?,
        max_blocks_per_host: count(op, "maxBlocks"),
        reserved4: reserved(&op["rsvd4"]),
        reserved6: reserved(&op["rsvd6"]),
        intended_use: field(op, "use").into(),
        max_per_handle: count(op, "maxAlloc"),
        namespace_labels: labels(&op["namespaceLabels"])
            .into_iter()
            .map(|(name, value)| (name.into(), value.into()))
            .collect(),
        hints: Vec::new(),
    })
}

fn family(got: Option<&Assignments>) -> Value {
    let Some(got) = got else { return Value::Null };
    let mut out = json!({
        "ipVersion": got.version.number(),
        "ips": texts(&got.ips),
        "msgs": got.messages,
        "numRequested": got.requested,
    });
    if let Some(text) = got.partial_fulfillment() {
        out["partialFulfillmentError"] = text.into();
    }
    out
}

fn text(cidr: Option<Cidr>) -> Value {
    cidr.map_or(Value::Null, |cidr| cidr.to_string().into())
}

fn texts(cidrs: &[Cidr]) -> Vec<String> {
    cidrs.iter().map(ToString::to_string).collect()
}

fn utilization(pool: &PoolUtilization) -> Value {
    let block = |block: &calico_client::ipam::BlockUtilization| {
        json!({
            "cidr": block.cidr.to_string(), "capacity": figure(block.capacity), "inUse": figure(block.in_use),
            "reserved": figure(block.reserved), "available": figure(block.available),
        })
    };
    json!({
        "name": pool.name, "cidr": pool.cidr.to_string(), "capacity": figure(pool.capacity),
        "inUse": figure(pool.in_use), "reserved": figure(pool.reserved), "available": figure(pool.available),
        "blocks": pool.blocks.iter().map(block).collect::<Vec<_>>(),
    })
}

/// JSON numbers are at most of 64 bits here; larger ones as text.
fn figure(number: u128) -> Value {
    u64::try_from(number).map_or_else(|_| json!(number.to_string()), |small| json!(small))
}

fn config(value: &Value) -> IpamConfig {
    IpamConfig {
        strict_affinity: value["StrictAffinity"] == true,
        auto_allocate_blocks: value["AutoAllocateBlocks"] == true,
        max_blocks_per_host: count(value, "MaxBlocksPerHost"),
        kubevirt_vm_address_persistence: some(field(value, "KubeVirtVMAddressPersistence")),
        ip_cooldown_seconds: count(value, "ipCooldownSeconds"),
    }
}

fn config_json(config: &IpamConfig) -> Value {
    let mut out = json!({
        "StrictAffinity": config.strict_affinity,
        "AutoAllocateBlocks": config.auto_allocate_blocks,
        "MaxBlocksPerHost": config.max_blocks_per_host,
        "KubeVirtVMAddressPersistence": config.kubevirt_vm_address_persistence,
    });
    if config.ip_cooldown_seconds > 0 {
        out["ipCooldownSeconds"] = config.ip_cooldown_seconds.into();
    }
    out
}
