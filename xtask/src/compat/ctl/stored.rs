//! Objects that are applied, read in every form, applied again and deleted.

use std::collections::BTreeMap;

use anyhow::Context as _;
use serde_json::{Value, json};

use super::super::Context;
use super::super::case::Case;
use super::super::text::{field, names, read, read_json};
use super::Sides;
use super::scripts::{masked, names_later_kind, sorted_list, start_state, texts};
use super::store::{Server, State};
use super::tool::{Bench, Tool};

/// Runs every object.
pub(crate) fn run(context: &Context) -> anyhow::Result<Vec<Case>> {
    let folder = context.path("ctl/stored");
    let base = start_state(&read_json(&context.path("ctl/cli/states.json"))?, "base")?;
    let mut lab = None;
    let mut cases = Vec::new();
    for name in names(&folder, |file| file.strip_suffix(".json"))? {
        if !context.wants_any("ctl/stored", &name) {
            continue;
        }
        let record = read_json(&folder.join(format!("{name}.json")))?;
        let input = read(&folder.join(format!("{name}.in.yaml")))?;
        if names_later_kind(&input) || names_later_kind(field(&record, "pre")) {
            cases.push(Case::not_yet(format!("ctl/stored/{name}"), "a kind without types"));
            continue;
        }
        if lab.is_none() {
            lab = Some((Tool::find(context)?, Server::new()?));
        }
        if let Some((tool, server)) = &mut lab {
            let made = case(&name, &record, &input, &base, tool, server, context.etcd);
            cases.extend(made.with_context(|| name.clone())?);
        }
    }
    Ok(cases)
}

fn case(
    name: &str,
    record: &Value,
    input: &str,
    base: &State,
    tool: &Tool,
    server: &mut Server,
    etcd: bool,
) -> anyhow::Result<Vec<Case>> {
    let volatile = &record["volatile"];
    let mut bench = Bench::new(tool, server, base, etcd)?;
    bench.file("in.yaml", input)?;
    if let Some(pre) = record.get("pre").and_then(Value::as_str) {
        bench.file("pre.yaml", pre)?;
        bench.run(&["apply", "-f", "pre.yaml"].map(str::to_owned), None, None, &BTreeMap::new())?;
    }
    let before = bench.everything(server)?;
    let mut sides = Sides::default();
    call(&mut bench, &mut sides, &record["apply"], volatile)?;
    let after = bench.everything(server)?;
    let (stored, removed) = differences(&before, &after);
    sides.part("stored", &masked(&record["stored"], volatile), &json!(stored));
    sides.part("removed", &sorted_list(&record["removed"]), &json!(removed));
    for get in record["get"].as_array().into_iter().flatten() {
        call(&mut bench, &mut sides, get, volatile)?;
    }
    if let Some(second) = record.get("apply_again") {
        call(&mut bench, &mut sides, second, volatile)?;
        let now = bench.everything(server)?;
        let changed = differences(&after, &now).0;
        sides.part("stored", &masked(&second["stored_changed"], volatile), &json!(changed));
    }
    if let Some(delete) = record.get("delete") {
        call(&mut bench, &mut sides, delete, volatile)?;
        let now = bench.everything(server)?;
        let left: Vec<&String> = now.keys().filter(|path| !before.contains_key(*path)).collect();
        sides.part("left", &sorted_list(&delete["left"]), &json!(left));
        sides.part("removed", &sorted_list(&delete["removed"]), &json!(differences(&after, &now).1));
    }
    if let Some(delete) = record.get("delete_again") {
        call(&mut bench, &mut sides, delete, volatile)?;
    }
    bench.close(server);
    let input = json!({"input": input.lines().collect::<Vec<_>>(), "pre": record["pre"]});
    Ok(sides.cases("ctl/stored", name, &input))
}

fn call(bench: &mut Bench<'_>, sides: &mut Sides, record: &Value, volatile: &Value) -> anyhow::Result<()> {
    let args = texts(&record["args"]);
    let out = bench.run(&args, None, None, &BTreeMap::new())?;
    sides.call(&args.join(" "), record, volatile, &out);
    Ok(())
}

/// Entries that are new or changed, and paths that are gone.
fn differences(before: &State, after: &State) -> (State, Vec<String>) {
    let changed = after.iter().filter(|(path, value)| before.get(*path) != Some(*value));
    let removed = before.keys().filter(|path| !after.contains_key(*path));
    (changed.map(|(path, value)| (path.clone(), value.clone())).collect(), removed.cloned().collect())
}
