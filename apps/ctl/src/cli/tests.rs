use super::*;

fn call(line: &[&str]) -> Result<Call, UsageError> {
    parse(&tree::ROOT, "calicoctl", &line.iter().map(OsString::from).collect::<Vec<_>>())
}

fn run(line: &[&str]) -> (Verb, Args) {
    match call(line) {
        Ok(Call::Run(verb, args)) => (verb, args),
        other => panic!("{line:?}: {other:?}"),
    }
}

#[test]
fn options_come_in_every_form_and_place() {
    for line in [
        &["get", "nodes", "-o", "yaml", "-n", "a"][..],
        &["get", "nodes", "-oyaml", "-na"],
        &["get", "-o=yaml", "--namespace=a", "nodes"],
        &["-n", "a", "get", "--output", "yaml", "nodes"],
        &["--log-level=info", "get", "-n", "b", "nodes", "-oyaml", "--namespace", "a"],
    ] {
        let (verb, args) = run(line);
        assert_eq!((verb, args.words.as_slice()), (Verb::Get, &["nodes".to_owned()][..]), "{line:?}");
        assert_eq!((args.text("output"), args.text("namespace")), (Some("yaml"), Some("a")), "{line:?}");
    }
    let (_, args) = run(&["create", "-Rf", "d", "--skip-empty=false", "-f", "e", "--", "-x"]);
    assert!(args.is_set("recursive") && !args.is_set("skip-empty") && !args.is_set("skip-exists"));
    assert_eq!(args.texts("filename"), ["d", "e"]);
    assert_eq!(args.words, ["-x"]);
    let (_, args) = run(&["ipam", "configure", "--ip-cooldown-seconds=-5", "-c", "x"]);
    assert_eq!(args.number("ip-cooldown-seconds"), Some(-5));
    let (_, args) = run(&["create", "-f", "-"]);
    assert_eq!(args.text("filename"), Some("-"));
}

#[test]
fn refusals_have_the_known_texts() {
    for (line, want) in [
        (&["frobnicate"][..], "unknown command \"frobnicate\" for \"calicoctl\""),
        (&["getx", "nodes"], "unknown command \"getx\" for \"calicoctl\"\n\nDid you mean this?\n\tget\n"),
        (&["node", "status"], "unknown command \"node\" for \"calicoctl\""),
        (&["ipam", "bogus"], "unknown command \"bogus\" for \"calicoctl ipam\""),
        (&["get", "nodes", "--unknown"], "unknown flag: --unknown"),
        (&["get", "nodes", "-z"], "unknown shorthand flag: 'z' in -z"),
        (&["delete", "-Rzf"], "unknown shorthand flag: 'z' in -zf"),
        (&["get", "nodes", "-n"], "flag needs an argument: 'n' in -n"),
        (&["get", "nodes", "--output"], "flag needs an argument: --output"),
        (&["get", "---x"], "bad flag syntax: ---x"),
        (&["get", "--=x"], "bad flag syntax: --=x"),
        (
            &["delete", "node", "x", "--recursive=maybe"],
            "invalid argument \"maybe\" for \"-R, --recursive\" flag: strconv.ParseBool: parsing \"maybe\": \
             invalid syntax",
        ),
        (
            &["ipam", "configure", "--ip-cooldown-seconds=x"],
            "invalid argument \"x\" for \"--ip-cooldown-seconds\" flag: strconv.ParseInt: parsing \"x\": \
             invalid syntax",
        ),
        (&["patch"], "accepts 2 arg(s), received 0"),
        (&["label", "node", "a"], "requires at least 3 arg(s), only received 2"),
        (&["replace", "--skip-exists"], "unknown flag: --skip-exists"),
        (&["delete", "np", "-A"], "unknown shorthand flag: 'A' in -A"),
    ] {
        assert_eq!(call(line).unwrap_err().to_string(), want, "{line:?}");
    }
    use std::os::unix::ffi::OsStringExt as _;
    let bytes = OsString::from_vec(vec![b'g', 0xff]);
    assert!(matches!(parse(&tree::ROOT, "c", &[bytes]).unwrap_err(), UsageError::NotText(_)));
}

#[test]
fn help_is_everywhere() {
    for line in [
        &[][..],
        &["-h"],
        &["--help"],
        &["get", "--help"],
        &["get", "nodes", "-Ah"],
        &["ipam"],
        &["ipam", "-h"],
        &["help"],
        &["help", "get"],
        &["help", "ipam", "show"],
        &["--allow-version-mismatch"],
    ] {
        let Ok(Call::Help(text)) = call(line) else { panic!("{line:?}") };
        assert!(text.contains("Usage:\n  calicoctl "), "{text}");
        assert!(text.contains("--log-level"), "{text}");
        assert!(text.lines().all(|line| line.len() <= 130), "{text}");
    }
    assert!(call(&["help", "nothing"]).is_err());
}

#[test]
fn the_tree_is_sound() {
    fn check(command: &Command, path: &str) {
        let mut seen = std::collections::BTreeSet::new();
        for flag in
            tree::ROOT.flags.iter().chain(command.flags.iter().filter(|_| command.name != "calicoctl"))
        {
            assert!(seen.insert(flag.long.to_owned()), "{path}: --{}", flag.long);
            if let Some(letter) = flag.short {
                assert!(seen.insert(format!("-{letter}")), "{path}: -{letter}");
            }
        }
        assert_eq!(command.verb.is_none(), !command.commands.is_empty(), "{path}");
        for sub in command.commands {
            check(sub, &format!("{path} {}", sub.name));
        }
    }
    check(&tree::ROOT, "calicoctl");
}
