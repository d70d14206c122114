//! Felix: messages of the calculation graph, and the rules made from them.
//!
//! Both start from the objects of a data set, run through defaults, update processors, settings and the calculation
//! graph of the product. Devices, routes and sets in the kernel are the agent's and tested with it.

mod chains;
mod messages;
mod world;

use std::path::Path;

use serde_json::{Value, json};

use super::Context;
use super::case::Case;
use super::text::{field, names, read, read_json};
use world::World;

/// The node that every data set is for.
const NODE: &str = "larch";

/// Compares the messages of the calculation graph. They were recorded under the built-in settings.
pub(crate) fn calc(context: &Context) -> anyhow::Result<Vec<Case>> {
    each(context, "felix/calc", |id, dir, meta| {
        let expected = read_json(&dir.join("calcgraph.json"))?;
        let mut world = World::start(dir, meta, false)?;
        let (mut theirs, mut ours) = (Vec::new(), Vec::new());
        for (step, expected) in expected["steps"].as_array().into_iter().flatten().enumerate() {
            if step > 0 {
                world.step(&meta["steps"][step - 1])?;
            }
            ours.push(messages::comparable(world.flush().iter().filter_map(messages::to_json)));
            let messages = expected["messages"].as_array().into_iter().flatten().cloned();
            theirs.push(messages::comparable(messages));
        }
        Ok(Case::json(id, read(&dir.join("state.yaml"))?, &json!(theirs), &json!(ours)))
    })
}

/// Compares rules and verdict maps of the nftables mode. A rule's comment holds a digest of its text and of all
/// rules before it, so equal comments mean equal rules.
pub(crate) fn rules(context: &Context) -> anyhow::Result<Vec<Case>> {
    each(context, "felix/rules", |id, dir, meta| {
        let mut world = World::start(dir, meta, true)?;
        let (mut theirs, mut ours) = (Vec::new(), Vec::new());
        let steps = meta["steps"].as_array().map_or(0, Vec::len);
        for step in 0..=steps {
            if step > 0 {
                world.step(&meta["steps"][step - 1])?;
            }
            world.flush();
            let folder = if step == 0 { "nft".to_owned() } else { format!("nft-step{step}") };
            let expected = chains::seen(&read_json(&dir.join(folder).join("ruleset.json"))?);
            ours.push(chains::made(&world, meta, &expected)?);
            theirs.push(expected);
        }
        Ok(Case::json(id, read(&dir.join("state.yaml"))?, &json!(theirs), &json!(ours)))
    })
}

fn each(
    context: &Context,
    area: &str,
    run: impl Fn(String, &Path, &Value) -> anyhow::Result<Case>,
) -> anyhow::Result<Vec<Case>> {
    let folders = names(&context.path("felix"), |name| (!name.contains('.')).then_some(name))?;
    let mut cases = Vec::new();
    for name in folders {
        let id = format!("{area}/{name}");
        if !context.wants(&id) {
            continue;
        }
        let dir = context.path("felix").join(&name);
        let meta = read_json(&dir.join("meta.json"))?;
        cases.push(match world::missing_part(&dir, &meta)? {
            Some(why) => Case::not_yet(id, why),
            None => run(id, &dir, &meta)?,
        });
    }
    Ok(cases)
}

/// Documents of a step, with whether they are to be deleted.
fn step_documents(step: &Value) -> anyhow::Result<(Vec<Value>, bool)> {
    Ok((super::text::yaml(field(step, "yaml"))?, field(step, "verb") == "delete"))
}
