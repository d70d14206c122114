//! Scripts of calls.

use std::collections::BTreeMap;

use anyhow::Context as _;
use calico_api::Kind;
use calico_model::path::RESOURCES_ROOT;
use serde_json::{Value, json};

use super::super::Context;
use super::super::case::Case;
use super::super::text::{field, names, read_json, yaml};
use super::store::{Server, State};
use super::tool::{Bench, Tool};
use super::{Sides, normal};

/// Commands that later work brings: first words of the arguments.
const LATER: [(&[&str], &str); 7] = [
    (&["node"], "calicoctl node"),
    (&["cluster"], "calicoctl cluster"),
    (&["datastore"], "calicoctl datastore migrate"),
    (&["ipam", "check"], "calicoctl ipam check"),
    (&["ipam", "split"], "calicoctl ipam split"),
    (&["ipam", "release", "--from-report"], "calicoctl ipam release --from-report"),
    (&["ipam", "release", "--force"], "calicoctl ipam release --from-report"),
];

/// Runs every script.
pub(crate) fn run(context: &Context) -> anyhow::Result<Vec<Case>> {
    let folder = context.path("ctl/cli");
    let states = read_json(&folder.join("states.json"))?;
    let mut lab = None;
    let mut cases = Vec::new();
    for name in names(&folder, |file| file.strip_suffix(".json").filter(|name| *name != "states"))? {
        if !context.wants_any("ctl/cli", &name) {
            continue;
        }
        let script = read_json(&folder.join(format!("{name}.json")))?;
        let state = start_state(&states, field(&script, "state"))?;
        if let Some(why) = missing_part(&script, &state) {
            cases.push(Case::not_yet(format!("ctl/cli/{name}"), why));
            continue;
        }
        if lab.is_none() {
            lab = Some((Tool::find(context)?, Server::new()?));
        }
        if let Some((tool, server)) = &mut lab {
            let etcd = context.etcd || script.to_string().contains("ETCD");
            cases.extend(case(&name, &script, &state, tool, server, etcd).with_context(|| name.clone())?);
        }
    }
    Ok(cases)
}

/// A named start state.
pub(super) fn start_state(states: &Value, name: &str) -> anyhow::Result<State> {
    let name = if name == "none" { "base" } else { name };
    let state = states[name].as_object().with_context(|| format!("no start state {name}"))?;
    Ok(state
        .iter()
        .map(|(path, value)| (path.clone(), value.as_str().unwrap_or_default().to_owned()))
        .collect())
}

/// The command or kind that a script needs and the product lacks.
fn missing_part(script: &Value, state: &State) -> Option<&'static str> {
    let as_numbers = state.keys().any(|path| path.ends_with("/bgpconfigurations/default"));
    for step in script["steps"].as_array().into_iter().flatten() {
        let args = texts(&step["args"]);
        let words: Vec<&str> = args.iter().map(String::as_str).collect();
        for (lead, why) in LATER {
            let (flags, verbs): (Vec<&str>, Vec<&str>) = lead.iter().partition(|word| word.starts_with('-'));
            let has = |flag: &&str| words.iter().any(|word| word.starts_with(*flag));
            if words.starts_with(&verbs) && flags.iter().all(has) {
                return Some(why);
            }
        }
        if words.iter().any(|word| word.contains("go-template")) {
            return Some("go-template output");
        }
        let kinds: Vec<Kind> = words.iter().skip(1).filter_map(|word| Kind::lookup(word)).collect();
        if kinds.iter().any(|kind| !kind.info().served && kind.info().public) {
            return Some("a kind without types");
        }
        let shows_numbers = words.iter().any(|word| *word == "wide" || word.contains("ASN"));
        if as_numbers && shows_numbers && kinds.contains(&Kind::Node) {
            return Some("the AS number of BGPConfiguration");
        }
        if names_later_kind(field(step, "stdin")) {
            return Some("a kind without types");
        }
    }
    let files = script["files"].as_object().into_iter().flatten();
    let mut inputs = files.map(|(_, text)| text.as_str().unwrap_or_default());
    if inputs.any(names_later_kind) || texts(&script["store_removed"]).iter().any(|path| of_later_kind(path))
    {
        return Some("a kind without types");
    }
    None
}

/// True for the path of an object of a kind without types.
fn of_later_kind(path: &str) -> bool {
    let plural = path.strip_prefix(RESOURCES_ROOT).and_then(|rest| rest.split('/').next());
    plural.and_then(Kind::from_plural).is_some_and(|kind| !kind.info().served)
}

/// True if documents hold an object of a kind without types.
pub(super) fn names_later_kind(text: &str) -> bool {
    let documents = yaml(text).unwrap_or_default();
    let objects = documents.iter().flat_map(|document| match document {
        Value::Array(items) => items.iter().collect::<Vec<_>>(),
        document => match document.get("items").and_then(Value::as_array) {
            Some(items) => items.iter().collect(),
            None => vec![document],
        },
    });
    objects.filter_map(|object| Kind::from_name(field(object, "kind"))).any(|kind| !kind.info().served)
}

fn case(
    name: &str,
    script: &Value,
    state: &State,
    tool: &Tool,
    server: &mut Server,
    etcd: bool,
) -> anyhow::Result<Vec<Case>> {
    let mut bench = Bench::new(tool, server, state, etcd)?;
    for (file, text) in script["files"].as_object().into_iter().flatten() {
        bench.file(file, text.as_str().unwrap_or_default())?;
    }
    let volatile = &script["volatile"];
    let mut sides = Sides::default();
    for step in script["steps"].as_array().into_iter().flatten() {
        let args: Vec<String> = texts(&step["args"]);
        let only = step.get("fullenv").map(variables);
        let more = step.get("env").map(variables).unwrap_or_default();
        let out = bench.run(&args, step.get("stdin").and_then(Value::as_str), only.as_ref(), &more)?;
        sides.call(&args.join(" "), step, volatile, &out);
    }
    let (changed, removed) = bench.changes(server)?;
    sides.part("store changed", &masked(&script["store_changed"], volatile), &json!(changed));
    sides.part("store removed", &sorted_list(&script["store_removed"]), &json!(removed));
    for (file, text) in script["files_after"].as_object().into_iter().flatten() {
        let ours = std::fs::read_to_string(bench.work().join(file)).unwrap_or_default();
        sides.text(file, &normal::theirs(text.as_str().unwrap_or_default(), volatile), &ours);
    }
    bench.close(server);
    let input = json!({"state": script["state"], "files": script["files"], "note": script["note"]});
    Ok(sides.cases("ctl/cli", name, &input))
}

/// Stored values with what was marked as volatile replaced.
pub(super) fn masked(entries: &Value, volatile: &Value) -> Value {
    let entries = entries.as_object().into_iter().flatten();
    entries
        .map(|(path, value)| {
            (path.clone(), normal::theirs(value.as_str().unwrap_or_default(), volatile).into())
        })
        .collect::<serde_json::Map<_, _>>()
        .into()
}

/// A list of texts in order.
pub(super) fn sorted_list(list: &Value) -> Value {
    let mut texts = texts(list);
    texts.sort();
    json!(texts)
}

/// A list of texts.
pub(super) fn texts(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn variables(object: &Value) -> BTreeMap<String, String> {
    let fields = object.as_object().into_iter().flatten();
    fields.map(|(name, value)| (name.clone(), value.as_str().unwrap_or_default().to_owned())).collect()
}
