//! Every scenario under `tests/scenarios`, run by the real binary on real namespaces; a few on etcd too.

use std::path::{Path, PathBuf};
use std::process::Command;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/scenarios")
}

/// True if the kernel's namespaces can be used; says why not otherwise.
fn possible(datastore: &str) -> bool {
    let mut out = std::io::stderr();
    let mut skip = |why: &str| {
        use std::io::Write as _;
        let _ = writeln!(out, "skipped: {why}");
        false
    };
    if !nix::unistd::geteuid().is_root() {
        return skip("network namespaces need root");
    }
    let there = |program: &str| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path)
            .chain(["/usr/sbin".into(), "/sbin".into()])
            .any(|d| d.join(program).exists())
    };
    if !there("nft") {
        return skip("nft is not installed");
    }
    if datastore == "etcd" && !there("etcd") {
        return skip("etcd is not installed");
    }
    true
}

fn run(file: &str, datastore: &str) {
    if !possible(datastore) {
        return;
    }
    let stem = file.trim_end_matches(".yaml");
    // Several runs of the suite may share the machine.
    let name = format!("{}-{}{}", &stem[..stem.len().min(9)], &datastore[..1], std::process::id());
    let out = Command::new(env!("CARGO_BIN_EXE_calico"))
        .args(["lab", "run", "--quiet", "--datastore", datastore, "--name", &name])
        .arg(folder().join(file))
        .output()
        .expect("start the lab");
    assert!(
        out.status.success(),
        "{file} on {datastore} went otherwise than expected:\n{}{}",
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr)
    );
}

macro_rules! scenarios {
    ($($test:ident: $file:literal on $datastore:literal;)*) => {
        $(#[test] fn $test() { run($file, $datastore); })*

        #[test]
        fn every_scenario_is_run() {
            let listed = [$($file),*];
            let there = std::fs::read_dir(folder()).expect("folder").map(|e| e.expect("entry").file_name());
            for file in there.map(|f| f.to_string_lossy().into_owned()) {
                let is_scenario = file.ends_with(".yaml") && file != "demo-policy.yaml";
                assert!(!is_scenario || listed.contains(&file.as_str()), "{file} is run by no test");
            }
        }
    };
}

scenarios! {
    demo: "demo.yaml" on "sqlite";
    dual_stack: "dual-stack.yaml" on "sqlite";
    egress: "egress.yaml" on "sqlite";
    felix_restart: "felix-restart.yaml" on "sqlite";
    felix_restart_etcd: "felix-restart.yaml" on "etcd";
    host_endpoint: "host-endpoint.yaml" on "sqlite";
    ipblock: "ipblock.yaml" on "sqlite";
    labels: "labels.yaml" on "sqlite";
    labels_etcd: "labels.yaml" on "etcd";
    named_ports: "named-ports.yaml" on "sqlite";
    namespaces: "namespaces.yaml" on "sqlite";
    nat_outgoing: "nat-outgoing.yaml" on "sqlite";
    networkset: "networkset.yaml" on "sqlite";
    no_encap: "no-encap.yaml" on "sqlite";
    order: "order.yaml" on "sqlite";
    ports: "ports.yaml" on "sqlite";
    store_restart: "store-restart.yaml" on "sqlite";
    store_restart_etcd: "store-restart.yaml" on "etcd";
    tiers: "tiers.yaml" on "sqlite";
    tiers_etcd: "tiers.yaml" on "etcd";
    two_pools: "two-pools.yaml" on "sqlite";
}
