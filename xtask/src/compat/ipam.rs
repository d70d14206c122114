//! Address management: scenarios of calls with the stored state after each.
//!
//! Every scenario runs twice on a store in memory: in whole transactions (`ipam/atomic`) and by upstream's
//! protocol step by step (`ipam/steps`). What depends on the clock is compared relative to the block's first
//! number; how many addresses a handle says it has in each block is an aspect of its own (`-counts`); which blocks of a pool a node takes first is the product's own choice, so blocks are named by the
//! order in which they appear (see [`blocks`]).

mod blocks;
mod calls;
mod state;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use calico_client::Client;
use calico_client::ipam::{Form, IpamClient};
use calico_datastore::{MemoryRaw, MemoryStore, RawStore as _, RawTxn, RawWrite};
use calico_model::path::KeyRange;
use serde_json::{Value, json};

use super::Context;
use super::case::Case;
use super::text::{field, names, pretty, read_json};
pub(crate) use blocks::Blocks;
pub(crate) use state::Sequences;

/// Start of the scenarios' clock, in seconds since 1970.
const START: i64 = 1_796_054_400;

/// Runs scenarios in whole transactions.
pub(crate) fn atomic(context: &Context) -> anyhow::Result<Vec<Case>> {
    run(context, "ipam/atomic", Form::Best)
}

/// Runs scenarios step by step.
pub(crate) fn steps(context: &Context) -> anyhow::Result<Vec<Case>> {
    run(context, "ipam/steps", Form::Steps)
}

fn run(context: &Context, area: &str, form: Form) -> anyhow::Result<Vec<Case>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut cases = Vec::new();
    for name in names(&context.path("ipam"), |file| file.strip_suffix(".json"))? {
        if context.wants_any(area, &name) {
            let scenario = read_json(&context.path("ipam").join(format!("{name}.json")))?;
            cases.extend(runtime.block_on(case(area, &name, &scenario, form))?);
        }
    }
    Ok(cases)
}

/// A scenario in progress.
struct Run {
    raw: MemoryRaw,
    client: Client,
    ipam: IpamClient,
    /// Milliseconds since the start of the scenario.
    clock: Arc<AtomicI64>,
    blocks: Blocks,
}

impl Run {
    fn new(form: Form) -> Self {
        let raw = MemoryRaw::new();
        let store = Arc::new(MemoryStore::new(raw.clone()));
        let clock = Arc::new(AtomicI64::new(0));
        let time = clock.clone();
        let now = move || {
            let millis = START * 1000 + time.fetch_add(1, Ordering::Relaxed);
            jiff::Timestamp::from_millisecond(millis).unwrap_or_default()
        };
        let ipam = IpamClient::new(store.clone()).with_clock(now).with_form(form);
        Self { raw, client: Client::from_backend(store), ipam, clock, blocks: Blocks::default() }
    }

    /// Everything that address management has stored.
    async fn stored(&self) -> anyhow::Result<BTreeMap<String, String>> {
        let (entries, _) = self.raw.range(&KeyRange::Prefix("/calico/ipam/".into()), None).await?;
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ok(entries.into_iter().map(|entry| (entry.path, text(entry.value))).collect())
    }

    /// The stored text under a path.
    async fn read(&self, path: &str) -> anyhow::Result<Option<String>> {
        let (entries, _) = self.raw.get(&[path.to_owned()], None).await?;
        Ok(entries
            .into_iter()
            .flatten()
            .next()
            .map(|entry| String::from_utf8_lossy(&entry.value).into_owned()))
    }

    /// Writes or removes the text under a path, past every rule.
    async fn write(&self, path: &str, value: Option<&str>) -> anyhow::Result<()> {
        let write = match value {
            Some(value) => RawWrite::Put { path: path.into(), value: value.as_bytes().to_vec(), ttl: None },
            None => RawWrite::Delete(path.into()),
        };
        self.raw.commit(RawTxn { writes: vec![write], ..RawTxn::default() }).await?;
        Ok(())
    }
}

async fn case(area: &str, name: &str, scenario: &Value, form: Form) -> anyhow::Result<Vec<Case>> {
    let mut run = Run::new(form);
    calls::apply(&run, field(&scenario["state"], "yaml")).await?;
    run.blocks.pools_of(field(&scenario["state"], "yaml"))?;
    for raw in scenario["state"]["raw"].as_array().into_iter().flatten() {
        let (path, value) = match raw {
            Value::Array(pair) => (pair.first(), pair.get(1)),
            pair => (pair.get("Key"), pair.get("Value")),
        };
        let path = path.and_then(Value::as_str).unwrap_or_default();
        run.write(path, value.and_then(Value::as_str)).await?;
    }
    let initial = run.stored().await?;
    run.blocks.known(initial.keys());
    let (mut theirs, mut ours) = (Sequences::default(), Sequences::default());
    let (mut expected, mut made) = (Vec::new(), Vec::new());
    let (mut their_counts, mut our_counts) = (Vec::new(), Vec::new());
    for step in scenario["steps"].as_array().into_iter().flatten() {
        let (result, error) = calls::call(&mut run, &step["op"]).await?;
        let stored = run.stored().await?;
        let result = calls::ordered(result);
        run.blocks.pair(step, &result, &stored);
        let wanted = calls::ordered(step["result"].clone());
        let varies = varying(scenario, &step["index"]);
        let mut left = json!({
            "op": step["op"],
            "result": calls::sorted_addresses(wanted),
            "error": step["error"],
            "state": theirs.comparable(&state::texts(&step["etcd"])),
        });
        let mut right = json!({
            "op": step["op"],
            "result": calls::sorted_addresses(run.blocks.named(&result)),
            "error": run.blocks.named(&json!(error)),
            "state": ours.comparable(&run.blocks.named_state(&stored)),
        });
        their_counts.push(state::take_counts(&mut left["state"]));
        our_counts.push(state::take_counts(&mut right["state"]));
        for field in varies {
            let field = if field == "etcd" { "state" } else { field };
            left[field] = "varies".into();
            right[field] = "varies".into();
        }
        expected.push(left);
        made.push(right);
    }
    let input = format!("{}\n{}", field(scenario, "title"), pretty(&scenario["state"]));
    let mut cases = vec![Case::json(format!("{area}/{name}"), input.clone(), &json!(expected), &json!(made))];
    if their_counts.iter().any(|counts| *counts != json!({})) {
        let id = format!("{area}-counts/{name}");
        cases.push(Case::json(id, input, &json!(their_counts), &json!(our_counts)));
    }
    Ok(cases)
}

/// Fields of a step that differed between runs of upstream.
fn varying<'s>(scenario: &'s Value, index: &Value) -> Vec<&'s str> {
    let steps = scenario["nondeterministic"].as_array().into_iter().flatten();
    steps
        .filter(|entry| entry["step"] == *index)
        .flat_map(|entry| entry["fields"].as_array().into_iter().flatten())
        .filter_map(Value::as_str)
        .collect()
}
