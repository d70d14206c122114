//! calicoctl as a process, on the embedded datastore.

mod ctl_support;

use ctl_support::{Ctl, NETWORK_POLICY, SET, TIER};

#[test]
fn objects_go_in_and_come_out() {
    let ctl = Ctl::new();
    ctl.ok(&["create", "-f", "-"], SET, "Successfully created 1 'GlobalNetworkSet' resource(s)\n");
    ctl.ok(&["get", "gnetsets"], "", "NAME   \nnets   \n\n");
    ctl.ok(&["get", "gnetsets", "-o", "wide"], "", "NAME   NETS           \nnets   10.31.0.0/16   \n\n");
    ctl.ok(&["get", "gnetsets", "-o", "name"], "", "globalnetworkset/nets\n");
    let exported = ctl.run(&["get", "gnetsets", "nets", "-o", "yaml", "--export"], "").stdout;
    assert_eq!(
        exported,
        "apiVersion: projectcalico.org/v3\nkind: GlobalNetworkSet\nmetadata:\n  name: nets\nspec:\n  nets:\n  - \
         10.31.0.0/16\n"
    );
    let list = ctl.run(&["get", "gnetsets", "-o", "json"], "").stdout;
    assert!(list.starts_with("{\n  \"kind\": \"GlobalNetworkSetList\"") && list.ends_with('}'), "{list}");
    // What was shown can be applied, and changes nothing.
    let shown = ctl.run(&["get", "gnetsets", "nets", "-o", "yaml"], "").stdout;
    ctl.ok(
        &["apply", "-f", "-"],
        &shown,
        "Successfully applied 1 'GlobalNetworkSet' resource(s) (unchanged)\n",
    );
    ctl.ok(
        &["apply", "-f", "-"],
        &list,
        "Successfully applied 1 'GlobalNetworkSet' resource(s) (unchanged)\n",
    );
    assert_eq!(ctl.run(&["get", "gnetsets", "nets", "-o", "yaml"], "").stdout, shown);
    ctl.fails(
        &["patch", "gnetset", "nets", "-p", r#"{"spec":{"nets":["10.1.0.0/16"]}}"#],
        "",
        "resource type 'gnetset' is not supported\n",
    );
    ctl.ok(
        &["patch", "gnetsets", "nets", "-p", r#"{"spec":{"nets":["10.1.0.0/16"]}}"#],
        "",
        "Successfully patched 1 'GlobalNetworkSet' resource\n",
    );
    ctl.ok(&["label", "gnetsets", "nets", "a=b"], "", "Successfully set label a on gnetsets nets\n");
    ctl.ok(
        &["label", "gnetsets", "nets", "a", "--remove"],
        "",
        "Successfully removed label a from gnetsets nets\n",
    );
    ctl.ok(&["delete", "gnetsets", "nets"], "", "Successfully deleted 1 'GlobalNetworkSet' resource(s)\n");
    ctl.fails(
        &["get", "gnetsets", "nets", "-o", "yaml"],
        "",
        "resource does not exist: GlobalNetworkSet(nets) with error: <nil>\n",
    );
}

#[test]
fn found_objects_are_shown_beside_missing_ones() {
    let ctl = Ctl::new();
    ctl.ok(
        &["apply", "-f", "-"],
        &format!("{TIER}---\n{}", TIER.replace("name: t", "name: u")),
        "Successfully applied 2 'Tier' resource(s)\n",
    );
    let said = ctl.run(&["get", "tier", "t", "gone", "u"], "");
    assert_eq!(said.code, 1);
    assert_eq!(said.stdout, "NAME   ORDER   \nt      5       \n\nNAME   ORDER   \nu      5       \n\n");
    assert_eq!(said.stderr, "resource does not exist: Tier(gone) with error: <nil>\n");
    // Tiers stand in the order in which they are asked.
    ctl.ok(
        &["get", "tiers"],
        "",
        "NAME            ORDER   \nt               5       \nu               5       \nkube-admin      1000    \n\
         default         1e+06   \nkube-baseline   1e+07   \n\n",
    );
}

#[test]
fn namespaces_follow_options_and_objects() {
    let ctl = Ctl::new();
    let set = "apiVersion: projectcalico.org/v3\nkind: NetworkSet\nmetadata: {name: s}\nspec: {}\n";
    ctl.ok(&["create", "-n", "a", "-f", "-"], set, "Successfully created 1 'NetworkSet' resource(s)\n");
    ctl.ok(&["create", "-f", "-"], set, "Successfully created 1 'NetworkSet' resource(s)\n");
    ctl.ok(&["get", "netsets"], "", "NAME   \ns      \n\n");
    ctl.ok(
        &["get", "netsets", "-A"],
        "",
        "NAMESPACE   NAME   \na           s      \ndefault     s      \n\n",
    );
    ctl.ok(&["get", "netsets", "-n", "a"], "", "NAMESPACE   NAME   \na           s      \n\n");
    for (args, text) in [
        (
            &["get", "netsets", "-n", "a", "-A"][..],
            "cannot use both --namespace and --all-namespaces flags at the same time\n",
        ),
        (&["get", "netsets", "s", "-A"], "cannot use --all-namespace flag for getting a single resource\n"),
        (&["get", "tiers", "-n", "a"], "Tier is not namespaced\n"),
        (&["get", "widgets"], "failed to get resources: resource type 'widgets' is not supported\n"),
        (&["get", "tiers", "-o", "xml"], "unrecognized output format 'xml'\n"),
        (&["get"], "name a kind of objects, or files with -f\n"),
    ] {
        ctl.fails(args, "", text);
    }
}

#[test]
fn directories_are_read_whole_or_not_at_all() {
    let ctl = Ctl::new();
    ctl.write("d/1.yaml", SET);
    ctl.write("d/sub/2.yaml", TIER);
    ctl.ok(&["create", "-f", "d"], "", "Successfully created 1 'GlobalNetworkSet' resource(s)\n");
    ctl.ok(&["apply", "-R", "-f", "d"], "", "Successfully applied 2 resource(s) (1 unchanged)\n");
    ctl.write("e/1.yaml", &SET.replace("name: nets", "name: fresh"));
    ctl.write("e/2.yaml", "a: [");
    let said = ctl.run(&["apply", "-f", "e"], "");
    assert_eq!((said.code, said.stdout.as_str()), (1, ""));
    assert!(said.stderr.starts_with("failed to execute command: e/2.yaml:1:"), "{}", said.stderr);
    ctl.ok(&["get", "gnetsets", "-o", "name"], "", "globalnetworkset/nets\n");
    ctl.fails(
        &["create", "-f", "none.yaml"],
        "",
        "failed to execute command: open none.yaml: no such file or directory\n",
    );
    ctl.write("f/readme.txt", "");
    ctl.fails(&["create", "-f", "f"], "", "no resources specified in directory f\n");
    ctl.ok(&["create", "-f", "f", "--skip-empty"], "", "No resources specified\n");
    ctl.fails(&["create", "-f", "-"], "# nothing\n", "no resources specified in file -\n");
}

#[test]
fn a_kubernetes_policy_is_its_own_handle() {
    let ctl = Ctl::new();
    ctl.ok(&["apply", "-f", "-"], NETWORK_POLICY, "Successfully applied 1 'NetworkPolicy' resource(s)\n");
    ctl.ok(
        &["apply", "-f", "-"],
        NETWORK_POLICY,
        "Successfully applied 1 'NetworkPolicy' resource(s) (unchanged)\n",
    );
    ctl.ok(
        &["get", "np", "-A"],
        "",
        "NAMESPACE   NAME      TIER      \nshop        k8s-web   default   \n\n",
    );
    let shown = ctl.run(&["get", "-f", "-", "-o", "yaml"], NETWORK_POLICY).stdout;
    assert!(shown.contains("projectcalico.org/converted-from: networking.k8s.io/v1"), "{shown}");
    assert!(shown.contains("selector: projectcalico.org/orchestrator == 'k8s' && app == 'web'"), "{shown}");
    ctl.ok(&["delete", "-f", "-"], NETWORK_POLICY, "Successfully deleted 1 'NetworkPolicy' resource(s)\n");
    ctl.fails(
        &["delete", "-f", "-"],
        NETWORK_POLICY,
        "Failed to delete 'NetworkPolicy' resource: resource does not exist: NetworkPolicy(shop/k8s-web) with error: \
         <nil>\n\n",
    );
}

#[test]
fn bad_input_is_refused_with_place_object_and_field() {
    let ctl = Ctl::new();
    let set = |spec: &str| {
        format!(
            "apiVersion: projectcalico.org/v3\nkind: GlobalNetworkSet\nmetadata: {{name: w}}\nspec: {spec}\n"
        )
    };
    let policy = |spec: &str| {
        format!(
            "apiVersion: projectcalico.org/v3\nkind: NetworkPolicy\nmetadata: {{name: p, namespace: shop}}\nspec: {spec}\n"
        )
    };
    let pool =
        "apiVersion: projectcalico.org/v3\nkind: IPPool\nmetadata: {name: pool}\nspec: {cidr: 10.1.2.3/16}\n";
    let cases: [(&str, String, &[&str]); 10] = [
        (
            "unknown kind",
            set("{}").replace("GlobalNetworkSet", "Widget"),
            &[
                "x.yaml:2:1",
                "Widget w",
                "unknown resource type (Widget) and/or version (projectcalico.org/v3)",
            ],
        ),
        (
            "unknown field",
            set("{nts: []}"),
            &[
                "x.yaml:4:8",
                "GlobalNetworkSet w",
                "not recognized or is in the wrong location: spec.nts",
                "\"nets\"",
            ],
        ),
        ("wrong type", set("{nets: 5}"), &["x.yaml:4:8", "GlobalNetworkSet w", "spec.nets", "invalid type"]),
        ("broken YAML", format!("{SET}---\na: b: c\n"), &["x.yaml:6:", "document 2", "broken YAML"]),
        (
            "duplicate key",
            format!("{SET}spec: {{}}\n"),
            &["x.yaml:5:1", "\"spec\" is set twice (first in line 4)"],
        ),
        (
            "selector",
            policy("{selector: 'a == \"b\" c'}"),
            &["NetworkPolicy(shop/p)", "selector", "a == \"b\" c", "9"],
        ),
        ("unmasked CIDR", pool.to_owned(), &["IPPool(pool)", "10.1.0.0/16"]),
        (
            "missing tier",
            policy("{tier: gone}"),
            &["NetworkPolicy(shop/p)", "spec.tier = 'gone'", "Tier(gone)"],
        ),
        ("bad network", set("{nets: [10.0.0.0/8, 10.0.0.0/33]}"), &["GlobalNetworkSet(w)", "10.0.0.0/33"]),
        ("bad name", set("{}").replace("name: w", "name: W_"), &["GlobalNetworkSet(W_)", "Metadata.Name"]),
    ];
    for (what, text, words) in cases {
        ctl.write("x.yaml", &text);
        let said = ctl.run(&["apply", "-f", "x.yaml"], "");
        assert_eq!((said.code, said.stdout.as_str()), (1, ""), "{what}: {}", said.stderr);
        for word in words {
            assert!(said.stderr.contains(word), "{what}: {word:?} in {}", said.stderr);
        }
    }
    for kind in ["gnetsets", "np", "pools"] {
        let said = ctl.run(&["get", kind, "-o", "name"], "");
        assert_eq!((said.code, said.stdout.as_str()), (0, ""), "{kind}");
    }
}

#[test]
fn a_corrupt_value_is_named_and_harms_no_other() {
    let ctl = Ctl::new();
    ctl.run(&["apply", "-f", "-"], &format!("{SET}---\n{}", SET.replace("name: nets", "name: broken")));
    ctl.corrupt("/calico/resources/v3/projectcalico.org/globalnetworksets/broken", "{\"kind\":");
    let said = ctl.run(&["get", "gnetsets", "broken"], "");
    assert_eq!(said.code, 1);
    for word in [
        "failed to parse datastore entry key=/calico/resources/v3/projectcalico.org/globalnetworksets/broken",
        "{\"kind\":",
    ] {
        assert!(said.stderr.contains(word), "{}", said.stderr);
    }
    let said = ctl.run(&["get", "gnetsets"], "");
    assert_eq!((said.code, said.stdout.as_str()), (0, "NAME   \nnets   \n\n"));
    assert!(
        said.stderr.contains("globalnetworksets/broken"),
        "a list tells what it leaves out: {}",
        said.stderr
    );
    let said = ctl.run(&["get", "gnetsets", "-l", "panic"], "");
    assert_eq!(said.stderr, "");
    ctl.ok(&["delete", "gnetsets", "broken"], "", "Successfully deleted 1 'GlobalNetworkSet' resource(s)\n");
}

#[test]
fn tiers_are_deleted_with_their_policies_only_by_name_and_word() {
    let ctl = Ctl::new();
    let policy =
        "apiVersion: projectcalico.org/v3\nkind: GlobalNetworkPolicy\nmetadata: {name: p}\nspec: {tier: t}\n";
    ctl.ok(&["apply", "-f", "-"], &format!("{TIER}---\n{policy}"), "Successfully applied 2 resource(s)\n");
    for args in [&["delete", "tier", "t"][..], &["delete", "-R", "-f", "-"]] {
        let said = ctl.run(args, TIER);
        assert_eq!(said.code, 1);
        assert!(said.stderr.contains("Cannot delete a non-empty tier"), "{}", said.stderr);
    }
    ctl.ok(
        &["delete", "tier", "t", "--recursive"],
        "",
        "Deleted GlobalNetworkPolicy(p) with its tier\nSuccessfully deleted 1 'Tier' resource(s)\n",
    );
    ctl.ok(&["get", "gnp", "-o", "name"], "", "");
}

#[test]
fn versions_have_to_fit() {
    let ctl = Ctl::new();
    let said = ctl.run(&["version"], "");
    assert_eq!(said.code, 0);
    assert!(
        said.stdout.ends_with("Cluster Version:   unknown\nCluster Type:      unknown\n"),
        "{}",
        said.stdout
    );
    let info = "/calico/resources/v3/projectcalico.org/clusterinformations/default";
    ctl.edit(info, |text| text.replace("\"spec\":{", "\"spec\":{\"calicoVersion\":\"v9.9.9-dev\","));
    let said = ctl.run(&["get", "nodes"], "");
    let own = format!("v{}", env!("CARGO_PKG_VERSION"));
    let mismatch = format!(
        "version mismatch.\nClient Version:   {own}\nCluster Version:  9.9.9\nUse --allow-version-mismatch to override\n"
    );
    assert_eq!((said.code, said.stderr), (1, format!("failed to get resources: {mismatch}")));
    ctl.fails(&["create", "-f", "-"], SET, &mismatch);
    ctl.ok(&["validate", "-f", "-"], SET, "Successfully validated 1 'GlobalNetworkSet' resource(s)\n");
    ctl.ok(&["get", "nodes", "--allow-version-mismatch"], "", "NAME   \n\n");
    let own = format!("v{}-x", env!("CARGO_PKG_VERSION"));
    ctl.edit(info, |text| text.replace("v9.9.9-dev", &own));
    ctl.ok(&["get", "nodes"], "", "NAME   \n\n");
}

#[test]
fn addresses_are_shown_and_released() {
    let ctl = Ctl::new();
    let pool =
        "apiVersion: projectcalico.org/v3\nkind: IPPool\nmetadata: {name: p}\nspec: {cidr: 10.7.0.0/24}\n";
    ctl.ok(&["apply", "-f", "-"], pool, "Successfully applied 1 'IPPool' resource(s)\n");
    ctl.ok(
        &["ipam", "show"],
        "",
        "+----------+-------------+-----------+------------+--------------+------------+\n\
         | GROUPING | CIDR        | IPS TOTAL | IPS IN USE | IPS RESERVED | IPS FREE   |\n\
         +----------+-------------+-----------+------------+--------------+------------+\n\
         | IP Pool  | 10.7.0.0/24 |       256 |     0 (0%) |       0 (0%) | 256 (100%) |\n\
         +----------+-------------+-----------+------------+--------------+------------+\n",
    );
    ctl.ok(&["ipam", "show", "--ip=10.7.0.5"], "", "10.7.0.5 is not assigned\n");
    ctl.fails(&["ipam", "release", "--ip=10.7.0.5"], "", "IP address 10.7.0.5 is not assigned\n");
    ctl.fails(
        &["ipam", "show", "--ip=zz"],
        "",
        "Error executing command: invalid IP address specified: zz\n",
    );
    ctl.fails(
        &["ipam", "configure", "--max-blocks-per-host=9"],
        "",
        "error: MaxBlocksPerHost requires StrictAffinity to be enabled\n",
    );
    ctl.ok(&["ipam", "configure", "--strictaffinity=true"], "", "Successfully set StrictAffinity to: true\n");
    let said = ctl.run(&["ipam", "show", "--show-configuration"], "");
    assert!(said.stdout.contains("| StrictAffinity               | true    |\n"), "{}", said.stdout);
}
