//! The direction of dependencies, as a table that the build must match.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::process::Command;

use anyhow::{Context as _, bail};
use serde::Deserialize;

/// Edges between core crates: a crate may use what its row names.
const CORE: &[(&str, &[&str])] = &[
    ("calico-net", &[]),
    ("calico-selector", &["calico-net"]),
    ("calico-api", &["calico-net", "calico-selector"]),
    ("calico-schema", &["calico-net", "calico-selector", "calico-api"]),
    ("calico-model", &["calico-net", "calico-selector", "calico-api", "calico-schema"]),
    ("calico-dpmsg", &["calico-net", "calico-selector"]),
    ("calico-ipam", &["calico-net", "calico-selector", "calico-api", "calico-schema", "calico-model"]),
    (
        "calico-calc",
        &["calico-net", "calico-selector", "calico-api", "calico-schema", "calico-model", "calico-dpmsg"],
    ),
    ("calico-rules", &["calico-net", "calico-selector", "calico-dpmsg"]),
];

/// Edges among `sys` crates. Each may use any core crate as well, except where `SYS_NO_CORE` says otherwise.
const SYS: &[(&str, &[&str])] = &[
    ("calico-netlink", &[]),
    ("calico-netfilter", &[]),
    ("calico-host", &[]),
    ("calico-datastore", &[]),
    ("calico-client", &["calico-datastore"]),
    ("calico-daemon", &[]),
];

/// `sys` crates that use nothing of ours.
const SYS_NO_CORE: &[&str] = &["calico-daemon"];

/// What must not stand anywhere below a core crate.
const NOT_IN_CORE: &[&str] =
    &["tokio", "nix", "netlink-sys", "rtnetlink", "tonic", "etcd-client", "rusqlite", "aya", "kube", "rand"];

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
    workspace_members: Vec<String>,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
    manifest_path: String,
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    kind: Option<String>,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<NodeDep>,
}

#[derive(Deserialize)]
struct NodeDep {
    pkg: String,
    dep_kinds: Vec<DepKind>,
}

#[derive(Deserialize)]
struct DepKind {
    kind: Option<String>,
}

/// Checks the workspace; the error lists every arrow that points the wrong way.
pub(crate) fn check() -> anyhow::Result<()> {
    let out = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["metadata", "--format-version", "1", "--filter-platform", "x86_64-unknown-linux-gnu"])
        .output()
        .context("cargo metadata")?;
    if !out.status.success() {
        bail!("cargo metadata: {}", String::from_utf8_lossy(&out.stderr));
    }
    let meta: Metadata = serde_json::from_slice(&out.stdout).context("output of cargo metadata")?;
    let members: BTreeSet<&str> = meta.workspace_members.iter().map(String::as_str).collect();
    let ours: Vec<&Package> = meta.packages.iter().filter(|p| members.contains(p.id.as_str())).collect();
    let mut faults = direct_faults(&ours);
    faults.extend(purity_faults(&meta, &ours));
    if faults.is_empty() {
        writeln!(std::io::stdout(), "dependency directions: {} crates, all arrows point down", ours.len())?;
        Ok(())
    } else {
        bail!("dependency directions:\n  {}", faults.join("\n  "))
    }
}

/// Floor of a crate, from the folder that it stands in.
fn floor(p: &Package) -> &'static str {
    let path = p.manifest_path.replace('\\', "/");
    ["core", "sys", "apps"].into_iter().find(|f| path.contains(&format!("/{f}/"))).unwrap_or("top")
}

fn direct_faults(ours: &[&Package]) -> Vec<String> {
    let floors: BTreeMap<&str, &str> = ours.iter().map(|p| (p.name.as_str(), floor(p))).collect();
    let core: BTreeMap<&str, &[&str]> = CORE.iter().copied().collect();
    let sys: BTreeMap<&str, &[&str]> = SYS.iter().copied().collect();
    let mut faults = Vec::new();
    for p in ours {
        for d in p.dependencies.iter().filter(|d| d.kind.is_none()) {
            let Some(&to) = floors.get(d.name.as_str()) else {
                if floor(p) == "core" && d.name == "libc" {
                    faults.push(format!("{} (core) uses libc", p.name));
                }
                continue;
            };
            let allowed = match (floor(p), to) {
                ("core", "core") => match core.get(p.name.as_str()) {
                    Some(row) => row.contains(&d.name.as_str()),
                    None => false,
                },
                ("sys", "core") => !SYS_NO_CORE.contains(&p.name.as_str()),
                ("sys", "sys") => sys.get(p.name.as_str()).is_some_and(|row| row.contains(&d.name.as_str())),
                ("apps", "core" | "sys") => true,
                ("top", "top") => p.name != "calico",
                ("top", _) => true,
                _ => false,
            };
            if !allowed {
                faults.push(format!("{} ({}) uses {} ({to})", p.name, floor(p), d.name));
            }
        }
    }
    faults
}

/// Finds what a core crate reaches that it must not, through normal and build dependencies.
fn purity_faults(meta: &Metadata, ours: &[&Package]) -> Vec<String> {
    let names: BTreeMap<&str, &str> =
        meta.packages.iter().map(|p| (p.id.as_str(), p.name.as_str())).collect();
    let nodes: BTreeMap<&str, &Node> = meta.resolve.nodes.iter().map(|n| (n.id.as_str(), n)).collect();
    let mut faults = Vec::new();
    for p in ours.iter().filter(|p| floor(p) == "core") {
        let mut seen = BTreeSet::new();
        let mut todo = vec![p.id.as_str()];
        while let Some(id) = todo.pop() {
            if !seen.insert(id) {
                continue;
            }
            if let Some(name) = names.get(id)
                && NOT_IN_CORE.contains(name)
            {
                faults.push(format!("{} (core) reaches {name}", p.name));
            }
            for d in nodes.get(id).map(|n| n.deps.as_slice()).unwrap_or_default() {
                if d.dep_kinds.iter().any(|k| k.kind.as_deref() != Some("dev")) {
                    todo.push(&d.pkg);
                }
            }
        }
    }
    faults
}
