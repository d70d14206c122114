//! Outcomes of actions over a store in memory.

use std::sync::Arc;

use calico_datastore::{MemoryRaw, Store};

use super::*;
use crate::input::decode_text;
use crate::report::report;

struct World {
    runtime: tokio::runtime::Runtime,
    client: Client,
}

impl World {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let client = Client::from_backend(Arc::new(Store::new(MemoryRaw::default())));
        runtime.block_on(client.ensure_initialized("", "")).unwrap();
        Self { runtime, client }
    }

    /// Does `action` with the objects of `text`; standard output and standard error.
    fn act(&self, action: Action, text: &str) -> (String, String) {
        self.act_on(action, decode_text("f", text).unwrap())
    }

    fn act_on(&self, action: Action, items: Vec<Item>) -> (String, String) {
        let (scope, mut progress) = (Scope::default(), Progress::none());
        let run = run(Some(&self.client), action, items, &scope, &mut progress);
        let report = report(action, &self.runtime.block_on(run));
        (report.stdout, report.stderr.unwrap_or_default())
    }

    fn get(&self, kind: Kind, namespace: &str, name: &str) -> Option<AnyResource> {
        self.runtime.block_on(self.client.objects(kind).get(namespace, name)).ok()
    }

    fn revision(&self) -> String {
        let list = self.client.objects(Kind::Tier);
        self.runtime.block_on(list.list(&Select::default())).unwrap().revision.to_string()
    }
}

const CREATE: Action = Action::Create { skip_exists: false };
const DELETE: Action = Action::Delete { skip_missing: false, recursive: false };

fn set(name: &str, nets: &str) -> String {
    format!(
        "apiVersion: projectcalico.org/v3\nkind: GlobalNetworkSet\nmetadata: {{name: {name}}}\nspec: {{nets: [{nets}]}}\n---\n"
    )
}

fn policy(name: &str, tier: &str, extra: &str) -> String {
    format!(
        "apiVersion: projectcalico.org/v3\nkind: NetworkPolicy\nmetadata: {{name: {name}, namespace: shop}}\n\
         spec: {{tier: {tier}{extra}}}\n---\n"
    )
}

fn named(kind: Kind, name: &str) -> Vec<Item> {
    let mut object = AnyResource::empty(kind).unwrap();
    object.metadata_mut().name = name.to_owned();
    vec![Item { object, origin: Origin::Words }]
}

fn step(action: Action, text: String, stdout: &str, stderr: &str) -> Step {
    (action, text, stdout.to_owned(), stderr.to_owned())
}

/// One step: what is done, with what, what is said.
type Step = (Action, String, String, String);

#[test]
fn outcomes_of_actions() {
    let a = || set("a", "10.0.0.0/8");
    let exists = "resource already exists: GlobalNetworkSet(a) with error: <nil>";
    let missing = "resource does not exist: GlobalNetworkSet(a) with error: <nil>";
    let tables: Vec<Vec<Step>> = vec![
        vec![
            step(CREATE, a(), "Successfully created 1 'GlobalNetworkSet' resource(s)\n", ""),
            step(CREATE, a(), "", &format!("failed to create 'GlobalNetworkSet' resource: [{exists}]")),
            step(
                Action::Create { skip_exists: true },
                a(),
                "Successfully created 1 'GlobalNetworkSet' resource(s)\n",
                "",
            ),
            step(CREATE, a() + &set("b", ""), "", &format!("hit error: [{exists}]")),
            step(
                CREATE,
                a() + &set("c", "") + &set("d", ""),
                "Partial success: created the first 2 out of 3 'GlobalNetworkSet' resources:\n",
                &format!("hit error: [{exists}]"),
            ),
        ],
        vec![
            step(
                Action::Replace,
                a(),
                "",
                &format!("failed to replace 'GlobalNetworkSet' resource: [{missing}]"),
            ),
            step(Action::Apply, a(), "Successfully applied 1 'GlobalNetworkSet' resource(s)\n", ""),
            step(
                Action::Apply,
                a(),
                "Successfully applied 1 'GlobalNetworkSet' resource(s) (unchanged)\n",
                "",
            ),
            step(Action::Replace, a(), "Successfully replaced 1 'GlobalNetworkSet' resource(s)\n", ""),
            step(
                Action::Apply,
                set("a", "10.0.0.0/9"),
                "Successfully applied 1 'GlobalNetworkSet' resource(s)\n",
                "",
            ),
            step(
                Action::Apply,
                set("a", "10.0.0.0/9") + &set("b", ""),
                "Successfully applied 2 'GlobalNetworkSet' resource(s) (1 unchanged)\n",
                "",
            ),
        ],
        vec![
            step(DELETE, a(), "", &format!("Failed to delete 'GlobalNetworkSet' resource: {missing}\n")),
            step(
                Action::Delete { skip_missing: true, recursive: false },
                a(),
                "Successfully deleted 1 'GlobalNetworkSet' resource(s)\n",
                "",
            ),
        ],
        vec![
            step(
                CREATE,
                "apiVersion: projectcalico.org/v3\nkind: ClusterInformation\nmetadata: {name: default}\n"
                    .into(),
                "",
                "failed to create 'ClusterInformation' resource: [operation create or apply is not supported on \
                 ClusterInformation]",
            ),
            step(
                Action::Apply,
                "apiVersion: projectcalico.org/v3\nkind: ClusterInformation\nmetadata: {name: default}\n"
                    .into(),
                "",
                "failed to apply 'ClusterInformation' resource: [operation apply is not supported on \
                 ClusterInformation: resource is readonly]",
            ),
            step(
                CREATE,
                policy("knp.default.x", "default", ""),
                "",
                "failed to create 'NetworkPolicy' resource: [operation create or apply is not supported on \
                 NetworkPolicy(shop/knp.default.x): kubernetes network policies must be managed through the \
                 kubernetes API]",
            ),
        ],
        vec![
            step(
                Action::Apply,
                policy("p", "gone", ""),
                "",
                "failed to apply 'NetworkPolicy' resource: [NetworkPolicy(shop/p): error with field spec.tier = 'gone' \
                 (resource does not exist: Tier(gone) with error: <nil>)]",
            ),
            step(
                Action::Apply,
                policy("p", "default", ""),
                "Successfully applied 1 'NetworkPolicy' resource(s)\n",
                "",
            ),
            step(
                Action::Apply,
                policy("p", "default", ""),
                "Successfully applied 1 'NetworkPolicy' resource(s) (unchanged)\n",
                "",
            ),
        ],
        vec![step(
            Action::Validate,
            a() + &set("b", ""),
            "Successfully validated 2 'GlobalNetworkSet' resource(s)\n",
            "",
        )],
    ];
    for table in tables {
        let world = World::new();
        for (action, text, stdout, stderr) in table {
            assert_eq!(world.act(action, &text), (stdout, stderr), "{action:?}\n{text}");
        }
    }
}

#[test]
fn an_unchanged_apply_writes_nothing() {
    let world = World::new();
    let all = set("a", "10.0.0.0/8")
        + &policy("p", "default", ", ingress: [{action: Allow}]")
        + "apiVersion: projectcalico.org/v3\nkind: IPPool\nmetadata: {name: p}\nspec: {cidr: 10.7.0.0/16}\n---\n\
           apiVersion: projectcalico.org/v3\nkind: Tier\nmetadata: {name: t}\nspec: {order: 5}\n---\n\
           apiVersion: projectcalico.org/v3\nkind: FelixConfiguration\nmetadata: {name: default}\nspec: {}\n---\n\
           apiVersion: projectcalico.org/v3\nkind: Node\nmetadata: {name: n, labels: {a: b}}\nspec: {}\n---\n\
           apiVersion: projectcalico.org/v3\nkind: WorkloadEndpoint\nmetadata: {namespace: shop}\n\
           spec: {node: n, orchestrator: k8s, pod: web-1, endpoint: eth0, interfaceName: cali1, ipNetworks: [10.7.0.5/32]}\n";
    assert_eq!(world.act(Action::Apply, &all).1, "");
    let before = world.revision();
    assert_eq!(
        world.act(Action::Apply, &all),
        ("Successfully applied 7 resource(s) (unchanged)\n".into(), String::new())
    );
    assert_eq!(world.revision(), before);
}

#[test]
fn resource_versions_must_fit() {
    let world = World::new();
    let text = |version: &str| {
        format!(
            "apiVersion: projectcalico.org/v3\nkind: GlobalNetworkSet\nmetadata: {{name: a, resourceVersion: \"{version}\"}}\nspec: {{nets: [10.0.0.0/8]}}\n"
        )
    };
    // A new object does not mind.
    assert_eq!(world.act(Action::Apply, &text("77")).1, "");
    let stale = "update conflict: GlobalNetworkSet(a)";
    assert_eq!(
        world.act(Action::Apply, &text("abc")).1,
        format!("failed to apply 'GlobalNetworkSet' resource: [{stale}]")
    );
    assert_eq!(
        world.act(Action::Replace, &text("1")).1,
        format!("failed to replace 'GlobalNetworkSet' resource: [{stale}]")
    );
    assert_eq!(
        world.act(DELETE, &text("1")).1,
        format!("Failed to delete 'GlobalNetworkSet' resource: {stale}\n")
    );
    let version = world.get(Kind::GlobalNetworkSet, "", "a").unwrap().metadata().resource_version.clone();
    assert_eq!(world.act(Action::Replace, &text(&version)).1, "");
}

#[test]
fn replacing_keeps_identity_and_drops_what_the_input_lacks() {
    let world = World::new();
    let labelled = "apiVersion: projectcalico.org/v3\nkind: GlobalNetworkSet\n\
                    metadata: {name: a, labels: {x: y}, uid: other, finalizers: [f]}\nspec: {nets: [10.0.0.0/8]}\n";
    world.act(CREATE, labelled);
    let first = world.get(Kind::GlobalNetworkSet, "", "a").unwrap();
    assert!(first.metadata().uid != "other" && first.metadata().finalizers.is_empty());
    world.act(Action::Apply, &set("a", "10.0.0.0/8"));
    let second = world.get(Kind::GlobalNetworkSet, "", "a").unwrap();
    assert_eq!(second.metadata().uid, first.metadata().uid);
    assert_eq!(second.metadata().creation_timestamp, first.metadata().creation_timestamp);
    assert!(second.metadata().labels.is_empty());
}

#[test]
fn tiers_take_their_policies_along_only_when_told() {
    let world = World::new();
    let tier = "apiVersion: projectcalico.org/v3\nkind: Tier\nmetadata: {name: t}\nspec: {order: 5}\n---\n";
    world.act(Action::Apply, &(tier.to_owned() + &policy("p", "t", "")));
    let (stdout, stderr) = world.act(DELETE, tier);
    assert_eq!(stdout, "");
    assert!(stderr.contains("Cannot delete a non-empty tier"), "{stderr}");
    assert!(stderr.contains("delete tier t --recursive"), "{stderr}");
    // A directory read recursively is no order to take policies along.
    let recursive = Action::Delete { skip_missing: false, recursive: true };
    assert!(world.act(recursive, tier).1.contains("non-empty"));
    assert!(world.get(Kind::NetworkPolicy, "shop", "p").is_some());
    let (stdout, stderr) = world.act_on(recursive, named(Kind::Tier, "t"));
    assert_eq!(
        (stdout.as_str(), stderr.as_str()),
        ("Deleted NetworkPolicy(shop/p) with its tier\nSuccessfully deleted 1 'Tier' resource(s)\n", "")
    );
    assert!(
        world.get(Kind::NetworkPolicy, "shop", "p").is_none() && world.get(Kind::Tier, "", "t").is_none()
    );
    let (_, stderr) = world.act_on(recursive, named(Kind::Tier, "default"));
    assert!(stderr.contains("Cannot delete default tier"), "{stderr}");
}

const KUBERNETES: &str = "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: web, namespace: shop}\n\
                          spec:\n  podSelector: {matchLabels: {app: web}}\n  ingress: [{ports: [{port: 80}]}]\n";

#[test]
fn kubernetes_policies_find_their_objects() {
    let world = World::new();
    assert_eq!(
        world.act(Action::Apply, KUBERNETES).0,
        "Successfully applied 1 'NetworkPolicy' resource(s)\n"
    );
    let stored = world.get(Kind::NetworkPolicy, "shop", "k8s-web").unwrap();
    assert!(kubernetes::is_converted(stored.metadata()));
    assert_eq!(
        world.act(Action::Apply, KUBERNETES).0,
        "Successfully applied 1 'NetworkPolicy' resource(s) (unchanged)\n"
    );
    let wider = KUBERNETES.replace("port: 80", "port: 81");
    assert_eq!(world.act(Action::Replace, &wider).1, "");
    assert_eq!(world.act(DELETE, KUBERNETES).1, "");
    assert!(world.get(Kind::NetworkPolicy, "shop", "k8s-web").is_none());

    // Somebody else's policy of that name is not touched.
    world.act(CREATE, &policy("k8s-web", "default", ""));
    for action in [Action::Apply, Action::Replace, DELETE] {
        let (stdout, stderr) = world.act(action, KUBERNETES);
        assert_eq!(stdout, "");
        assert!(
            stderr.contains(
                "NetworkPolicy(shop/k8s-web) was not made from a NetworkPolicy of networking.k8s.io/v1"
            ),
            "{stderr}"
        );
    }
    let kept = world.get(Kind::NetworkPolicy, "shop", "k8s-web").unwrap();
    assert!(!kubernetes::is_converted(kept.metadata()));
}

#[test]
fn a_refused_object_is_named() {
    let world = World::new();
    let text = set("a", "10.0.0.0/8") + &set("b", "nonsense") + &policy("p", "default", ", selector: 'a b'");
    let (stdout, stderr) = world.act(Action::Apply, &text);
    assert_eq!(stdout, "");
    assert!(
        stderr.contains("GlobalNetworkSet(b): error with field") && stderr.contains("nonsense"),
        "{stderr}"
    );
    assert!(
        stderr.contains("NetworkPolicy(shop/p): error with field") && stderr.contains("selector"),
        "{stderr}"
    );
    assert!(world.get(Kind::GlobalNetworkSet, "", "a").is_some());
    let missing = world.act(DELETE, &(set("x", "") + &set("a", "")));
    assert_eq!(missing.0, "Successfully deleted 1 'GlobalNetworkSet' resource(s)\n");
}

#[test]
fn pools_are_checked_against_each_other() {
    let world = World::new();
    let pool = |name: &str, cidr: &str| {
        format!(
            "apiVersion: projectcalico.org/v3\nkind: IPPool\nmetadata: {{name: {name}}}\nspec: {{cidr: {cidr}}}\n---\n"
        )
    };
    assert_eq!(world.act(CREATE, &pool("a", "10.7.0.0/16")).1, "");
    assert_eq!(
        world.act(CREATE, &pool("b", "10.7.1.0/24")).1,
        "failed to create 'IPPool' resource: [error with field IPPool.Spec.CIDR = '10.7.1.0/24' (IPPool(b) CIDR overlaps \
         with IPPool(a) CIDR 10.7.0.0/16)]"
    );
    assert!(world.act(Action::Apply, &pool("a", "10.8.0.0/16")).1.contains("IPPool CIDR cannot be modified"));
}
