//! Verdicts on objects: `create` on a store, what it stores, and the offline `validate`.

use std::collections::BTreeMap;

use calico_api::Kind;
use serde_json::{Value, json};

use super::super::Context;
use super::super::case::Case;
use super::super::text::{field, read_json, read_lines};
use super::Sides;
use super::scripts::start_state;
use super::store::{Server, State};
use super::tool::{Bench, Tool};

/// Runs every object.
pub(crate) fn run(context: &Context) -> anyhow::Result<Vec<Case>> {
    let base = start_state(&read_json(&context.path("ctl/cli/states.json"))?, "base")?;
    let mut lab = None;
    let mut cases = Vec::new();
    for row in read_lines(&context.path("ctl/validate.jsonl"))? {
        let name = field(&row, "id");
        if !context.wants_any("ctl/validate", name) {
            continue;
        }
        if Kind::from_name(field(&row, "kind")).is_some_and(|kind| !kind.info().served) {
            cases.push(Case::not_yet(format!("ctl/validate/{name}"), "a kind without types"));
            continue;
        }
        if lab.is_none() {
            lab = Some((Tool::find(context)?, Server::new()?));
        }
        if let Some((tool, server)) = &mut lab {
            cases.extend(case(name, &row, &base, tool, server, context.etcd)?);
        }
    }
    Ok(cases)
}

fn case(
    name: &str,
    row: &Value,
    base: &State,
    tool: &Tool,
    server: &mut Server,
    etcd: bool,
) -> anyhow::Result<Vec<Case>> {
    let mut bench = Bench::new(tool, server, base, etcd)?;
    let call = |bench: &mut Bench<'_>, verb: &str, text: &str| {
        let args = [verb, "-f", "-"].map(str::to_owned);
        bench.run(&args, Some(text), None, &BTreeMap::new())
    };
    if let Some(pre) = row.get("pre").and_then(Value::as_str) {
        call(&mut bench, "apply", pre)?;
    }
    let before = bench.everything(server)?;
    let text = field(row, "yaml");
    let mut sides = Sides::default();
    let create = call(&mut bench, "create", text)?;
    // What a success says is the same for all.
    let says = |stderr: &Value, exit: &Value, stdout: &str| json!({"exit": exit, "stdout": stdout, "stderr": stderr});
    let theirs = says(&row["stderr"], &row["exit"], &create.stdout);
    sides.call("create -f -", &theirs, &Value::Null, &create);
    // Long values are not recorded.
    if row["accept"] == false || row.get("stored").is_some() {
        let stored: State =
            bench.everything(server)?.into_iter().filter(|(path, v)| before.get(path) != Some(v)).collect();
        sides.part("stored", &marked(&row["stored"]), &json!(stored));
    }
    let check = call(&mut bench, "validate", text)?;
    let exit = json!(if row["validate"]["accept"] == true { 0 } else { 1 });
    let theirs = says(&row["validate"]["stderr"], &exit, &check.stdout);
    sides.call("validate -f -", &theirs, &Value::Null, &check);
    bench.close(server);
    Ok(sides.cases("ctl/validate", name, &json!(text.lines().collect::<Vec<_>>())))
}

/// Stored values with the marks that ours get.
fn marked(stored: &Value) -> Value {
    let entries = stored.as_object().into_iter().flatten();
    entries
        .map(|(path, value)| {
            let text =
                value.as_str().unwrap_or_default().replace("<UID>", "<uid>").replace("<TIME>", "<time>");
            (path.clone(), text.into())
        })
        .collect::<serde_json::Map<_, _>>()
        .into()
}
