//! Areas of which the product has no part yet: only counted.

use super::Context;
use super::case::Case;
use super::text::names;

/// BIRD configuration.
pub(crate) fn bird(context: &Context) -> anyhow::Result<Vec<Case>> {
    folders(context, "bird", "bird", "BGP")
}

/// Typha's protocol.
pub(crate) fn typha(context: &Context) -> anyhow::Result<Vec<Case>> {
    folders(context, "typha", "typha", "Typha")
}

/// Rules of the iptables modes.
pub(crate) fn iptables(context: &Context) -> anyhow::Result<Vec<Case>> {
    folders(context, "felix", "felix/iptables", "the iptables back ends")
}

/// The Kubernetes datastore.
pub(crate) fn kdd(context: &Context) -> anyhow::Result<Vec<Case>> {
    let mut cases = Vec::new();
    for part in ["stored", "refused", "cni"] {
        for group in ["v1", "v3"] {
            let folder = format!("kdd/{part}/{group}");
            let files = names(&context.path(&folder), |file| file.strip_suffix(".json"))?;
            cases.extend(
                files
                    .into_iter()
                    .map(|name| Case::not_yet(format!("{folder}/{name}"), "the Kubernetes datastore")),
            );
        }
    }
    Ok(cases)
}

fn folders(context: &Context, folder: &str, area: &str, why: &'static str) -> anyhow::Result<Vec<Case>> {
    let names = names(&context.path(folder), |name| (!name.contains('.')).then_some(name))?;
    Ok(names.into_iter().map(|name| Case::not_yet(format!("{area}/{name}"), why)).collect())
}
