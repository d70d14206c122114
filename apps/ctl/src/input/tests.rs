use super::*;

fn items(text: &str) -> Vec<String> {
    let items = decode_text("f", text).unwrap();
    items
        .iter()
        .map(|i| format!("{} {}/{} {:?}", i.object.kind(), i.object.namespace(), i.object.name(), i.origin))
        .collect()
}

fn refusal(text: &str) -> String {
    decode_text("f", text).unwrap_err().to_string()
}

const SET: &str = "apiVersion: projectcalico.org/v3\nkind: GlobalNetworkSet\nmetadata: {name: s}\n";

#[test]
fn documents_lists_and_arrays_hold_objects() {
    let tier = "apiVersion: projectcalico.org/v3\nkind: Tier\nmetadata: {name: t}\n";
    let both = ["GlobalNetworkSet /s Document", "Tier /t Document"];
    assert_eq!(items(&format!("---\n{SET}---\n# nothing\n---\n{tier}---\n")), both);
    let indent = |text: &str| text.replace('\n', "\n  ").trim_end().to_owned();
    assert_eq!(items(&format!("- {}\n- {}\n", indent(SET), indent(tier))), both);
    for (kind, version) in [("List", "v1"), ("List", "projectcalico.org/v3")] {
        let text =
            format!("kind: {kind}\napiVersion: {version}\nitems:\n- {}\n- {}\n", indent(SET), indent(tier));
        assert_eq!(items(&text), both, "{text}");
    }
    let typed = "kind: TierList\napiVersion: projectcalico.org/v3\nmetadata: {resourceVersion: \"7\"}\n\
                 items:\n- metadata: {name: a}\n- kind: Tier\n  apiVersion: projectcalico.org/v3\n  metadata: {name: b}\n";
    assert_eq!(items(typed), ["Tier /a Document", "Tier /b Document"]);
    assert_eq!(
        items(r#"[{"apiVersion":"projectcalico.org/v3","kind":"Tier","metadata":{"name":"j"}}]"#),
        ["Tier /j Document"]
    );
    assert_eq!(items("kind: TierList\napiVersion: projectcalico.org/v3\nitems: []\n"), Vec::<String>::new());
}

#[test]
fn kubernetes_policies_are_translated() {
    let text = "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: web, namespace: shop}\n\
                spec:\n  podSelector: {}\n  policyTypes: [Ingress]\n";
    assert_eq!(items(text), ["NetworkPolicy shop/k8s-web Kubernetes"]);
    let text = "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicyList\nitems:\n- metadata: {name: web}\n  \
                spec: {podSelector: {}}\n";
    assert_eq!(items(text), ["NetworkPolicy /k8s-web Kubernetes"]);
    assert_eq!(
        refusal(
            "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: web}\nspec:\n  podSelector: {}\n  \
             ingres: []\n"
        ),
        "f:6:3 (document 1, NetworkPolicy web): field in document is not recognized or is in the wrong location: \
         spec.ingres (did you mean \"ingress\"?)"
    );
    let text = refusal(
        "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: web}\nspec:\n  podSelector: {}\n  \
         egress: [{to: [{ipBlock: {cidr: 10.0.0.0/33}}]}]\n",
    );
    assert!(
        text.starts_with("f:1:1 (document 1, NetworkPolicy web): ") && text.contains("spec.egress[0].to[0]"),
        "{text}"
    );
}

#[test]
fn refusals_name_place_object_and_field() {
    for (text, want) in [
        (
            format!("{SET}spec: {{networks: []}}\n"),
            "f:4:8 (document 1, GlobalNetworkSet s): field in document is not recognized or is in the wrong location: \
             spec.networks",
        ),
        (
            format!("{SET}---\n{SET}spec:\n  nts: []\n"),
            "f:9:3 (document 2, GlobalNetworkSet s): field in document is not recognized or is in the wrong location: \
             spec.nts (did you mean \"nets\"?)",
        ),
        (
            format!("{SET}spec:\n  nets: {{a: b}}\n"),
            "f:5:3 (document 1, GlobalNetworkSet s): spec.nets: invalid type: object, expected a list",
        ),
        (
            "apiVersion: projectcalico.org/v3\nkind: Widget\nmetadata: {name: w}\n".to_owned(),
            "f:2:1 (document 1, Widget w): unknown resource type (Widget) and/or version (projectcalico.org/v3)",
        ),
        (
            "apiVersion: projectcalico.org/v3\nkind: IPAMBlock\n".to_owned(),
            "f:2:1 (document 1, IPAMBlock): unknown resource type (IPAMBlock) and/or version (projectcalico.org/v3)",
        ),
        (
            "kind: Tier\napiVersion: v1\n".to_owned(),
            "f:1:1 (document 1, Tier): unknown resource type (Tier) and/or version (v1)",
        ),
        ("a: b\n".to_owned(), "f:1:1 (document 1): unknown resource type () and/or version ()"),
        ("just text\n".to_owned(), "f:1:1 (document 1): not an object with kind, apiVersion and metadata"),
        (
            format!("kind: List\napiVersion: v1\nitems:\n- {}\n- 5\n", SET.trim_end().replace('\n', "\n  ")),
            "f:7:3 (document 1): not an object with kind, apiVersion and metadata",
        ),
        (
            "kind: TierList\napiVersion: projectcalico.org/v3\n".to_owned(),
            "f:1:1 (document 1, TierList): a list has its objects under \"items\"",
        ),
        (
            format!("{SET}spec:\n  nets: []\n  nets: []\n"),
            "f:6:3 (document 1): key \"nets\" is set twice (first in line 5)",
        ),
    ] {
        assert_eq!(refusal(&text), want, "{text}");
    }
    assert!(refusal("a: [").starts_with("f:1:4 (document 1): broken YAML: "), "{}", refusal("a: ["));
}

#[test]
fn words_become_texts_where_texts_are_wanted() {
    let text = format!(
        "{}spec: {{nets: [x, y, 1.10]}}\n",
        SET.replace("{name: s}", "{name: s, labels: {a: yes, b: 1}}")
    );
    let items = decode_text("f", &text).unwrap();
    let AnyResource::GlobalNetworkSet(set) = &items[0].object else { panic!("{items:?}") };
    assert_eq!(set.spec.nets, ["x", "true", "1.1"]);
    assert_eq!(set.metadata.labels.get("a").map(String::as_str), Some("true"));
    assert_eq!(set.metadata.labels.get("b").map(String::as_str), Some("1"));
}

#[test]
fn directories_are_read_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let put = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    put("2.yml", &SET.replace("name: s", "name: b"));
    put("1.yaml", &SET.replace("name: s", "name: a"));
    put("readme.txt", "x");
    put("sub/3.json", r#"{"apiVersion":"projectcalico.org/v3","kind":"Tier","metadata":{"name":"c"}}"#);
    let name = dir.path().to_string_lossy().into_owned();
    let names = [name.clone()];
    let read = |recursive, skip_empty| {
        let items = Sources { names: &names, recursive, skip_empty }.read()?;
        Ok::<_, InputError>(items.iter().map(|i| i.object.name().to_owned()).collect::<Vec<_>>())
    };
    assert_eq!(read(false, false).unwrap(), ["a", "b"]);
    assert_eq!(read(true, false).unwrap(), ["a", "b", "c"]);
    put("4.yaml", "# empty\n");
    assert_eq!(
        read(false, false).unwrap_err().to_string(),
        format!("no resources specified in file {name}/4.yaml")
    );
    assert_eq!(read(false, true).unwrap(), ["a", "b"]);
    std::fs::write(dir.path().join("5.yaml"), b"a: b\nc: \xff\n").unwrap();
    assert_eq!(read(false, true).unwrap_err().to_string(), format!("{name}/5.yaml: not UTF-8 text (line 2)"));
    let gone = [format!("{name}/gone.yaml")];
    let error = Sources { names: &gone, ..Sources::default() }.read().unwrap_err();
    assert_eq!(error.to_string(), format!("open {name}/gone.yaml: no such file or directory"));
    let empty = tempfile::tempdir().unwrap();
    let names = [empty.path().to_string_lossy().into_owned()];
    let error = Sources { names: &names, ..Sources::default() }.read().unwrap_err();
    assert_eq!(error.to_string(), format!("no resources specified in directory {}", names[0]));
}
