//! The commands and their options.

use super::{Arity, Command, Flag, Takes, Verb};

const fn switch(long: &'static str, short: Option<char>, help: &'static str) -> Flag {
    Flag { long, short, takes: Takes::Switch, help }
}

const fn text(long: &'static str, short: Option<char>, word: &'static str, help: &'static str) -> Flag {
    Flag { long, short, takes: Takes::Text(word), help }
}

const fn number(long: &'static str, word: &'static str, help: &'static str) -> Flag {
    Flag { long, short: None, takes: Takes::Number(word), help }
}

const FILENAME: Flag = text(
    "filename",
    Some('f'),
    "FILE",
    "file or directory to read, or - for standard input; can be repeated",
);
const RECURSIVE: Flag = switch("recursive", Some('R'), "read directories with everything below them");
const SKIP_EMPTY: Flag = switch("skip-empty", None, "it is no error if files hold no objects");
const CONFIG: Flag = text(
    "config",
    Some('c'),
    "FILE",
    "file that says how to reach the datastore (default /etc/calico/calicoctl.cfg, else the environment)",
);
const NAMESPACE: Flag =
    text("namespace", Some('n'), "NAME", "namespace of objects that do not say one (default \"default\")");

/// Everything.
pub(crate) static ROOT: Command = Command {
    name: "calicoctl",
    usage: "COMMAND",
    about: "Reads and writes Calico's objects and addresses.",
    details: "",
    flags: &[
        text("log-level", Some('l'), "LEVEL", "what to log: panic, fatal, error, warn, info or debug"),
        text("context", None, "NAME", "context of the kubeconfig to use"),
        switch("allow-version-mismatch", None, "go on though client and cluster differ in version"),
    ],
    arity: Arity::Any,
    verb: None,
    commands: &[
        Command {
            name: "create",
            usage: "[KIND NAME...] | -f FILE",
            about: "Stores new objects.",
            details: "",
            flags: &[
                FILENAME,
                RECURSIVE,
                SKIP_EMPTY,
                switch("skip-exists", None, "leave objects alone that exist already"),
                CONFIG,
                NAMESPACE,
            ],
            arity: Arity::Any,
            verb: Some(Verb::Create),
            commands: &[],
        },
        Command {
            name: "replace",
            usage: "[KIND NAME...] | -f FILE",
            about: "Replaces objects that exist.",
            details: "",
            flags: &[FILENAME, RECURSIVE, SKIP_EMPTY, CONFIG, NAMESPACE],
            arity: Arity::Any,
            verb: Some(Verb::Replace),
            commands: &[],
        },
        Command {
            name: "apply",
            usage: "[KIND NAME...] | -f FILE",
            about: "Stores objects, new or not.",
            details: "An object that is stored already as it is given is left alone.\n\
                      Where there is no Kubernetes, a NetworkPolicy of networking.k8s.io/v1 is taken too: it is stored\n\
                      as an equal NetworkPolicy of projectcalico.org/v3 named k8s-NAME.",
            flags: &[FILENAME, RECURSIVE, SKIP_EMPTY, CONFIG, NAMESPACE],
            arity: Arity::Any,
            verb: Some(Verb::Apply),
            commands: &[],
        },
        Command {
            name: "patch",
            usage: "KIND NAME -p PATCH",
            about: "Changes a part of an object.",
            details: "",
            flags: &[
                text("patch", Some('p'), "PATCH", "the change, as JSON"),
                text("type", Some('t'), "TYPE", "form of the change: strategic (default), merge or json"),
                CONFIG,
                NAMESPACE,
            ],
            arity: Arity::Exactly(2),
            verb: Some(Verb::Patch),
            commands: &[],
        },
        Command {
            name: "delete",
            usage: "[KIND NAME...] | -f FILE",
            about: "Removes objects.",
            details: "A tier that holds policies is removed, with all of them, only by \"delete tier NAME --recursive\".",
            flags: &[
                FILENAME,
                switch(
                    "recursive",
                    Some('R'),
                    "with -f: read directories with everything below them; with tier names: remove their policies too",
                ),
                SKIP_EMPTY,
                switch("skip-not-exists", Some('s'), "it is no error if an object is not there"),
                CONFIG,
                NAMESPACE,
            ],
            arity: Arity::Any,
            verb: Some(Verb::Delete),
            commands: &[],
        },
        Command {
            name: "get",
            usage: "[KIND [NAME...]] | -f FILE",
            about: "Shows objects.",
            details: "",
            flags: &[
                FILENAME,
                RECURSIVE,
                SKIP_EMPTY,
                text(
                    "output",
                    Some('o'),
                    "FORM",
                    "ps (default), wide, yaml, json, name or custom-columns=HEADING,HEADING",
                ),
                switch("all-namespaces", Some('A'), "objects of all namespaces"),
                switch("all-namespaces-old", Some('a'), ""),
                switch("export", None, "leave out what the datastore filled in (objects given by name)"),
                CONFIG,
                NAMESPACE,
            ],
            arity: Arity::Any,
            verb: Some(Verb::Get),
            commands: &[],
        },
        Command {
            name: "label",
            usage: "KIND NAME KEY=VALUE | KIND NAME KEY --remove",
            about: "Sets or removes a label of an object.",
            details: "",
            flags: &[
                switch("overwrite", None, "replace the value of a label that is set"),
                switch("remove", None, "remove the label"),
                CONFIG,
                NAMESPACE,
            ],
            arity: Arity::AtLeast(3),
            verb: Some(Verb::Label),
            commands: &[],
        },
        Command {
            name: "validate",
            usage: "[KIND NAME...] | -f FILE",
            about: "Checks objects without a datastore.",
            details: "",
            flags: &[FILENAME, RECURSIVE, SKIP_EMPTY, CONFIG, NAMESPACE],
            arity: Arity::Any,
            verb: Some(Verb::Validate),
            commands: &[],
        },
        Command {
            name: "ipam",
            usage: "COMMAND",
            about: "Looks after addresses.",
            details: "",
            flags: &[],
            arity: Arity::Any,
            verb: None,
            commands: &[
                Command {
                    name: "show",
                    usage: "",
                    about: "Shows how addresses are used.",
                    details: "",
                    flags: &[
                        text("ip", None, "ADDRESS", "show who has this address"),
                        switch("show-blocks", None, "show the blocks of each pool too"),
                        switch(
                            "show-borrowed",
                            None,
                            "show addresses that are used away from their block's node",
                        ),
                        switch("show-configuration", None, "show the settings of address management"),
                        CONFIG,
                    ],
                    arity: Arity::Any,
                    verb: Some(Verb::IpamShow),
                    commands: &[],
                },
                Command {
                    name: "release",
                    usage: "--ip ADDRESS",
                    about: "Takes an address from whoever has it.",
                    details: "",
                    flags: &[text("ip", None, "ADDRESS", "the address"), CONFIG],
                    arity: Arity::Any,
                    verb: Some(Verb::IpamRelease),
                    commands: &[],
                },
                Command {
                    name: "configure",
                    usage: "",
                    about: "Changes the settings of address management.",
                    details: "",
                    flags: &[
                        text(
                            "strictaffinity",
                            None,
                            "true|false",
                            "nodes take addresses from their own blocks only",
                        ),
                        text(
                            "max-blocks-per-host",
                            None,
                            "COUNT",
                            "most blocks of a node; needs strict affinity",
                        ),
                        text(
                            "kubevirt-ip-persistence",
                            None,
                            "Enabled|Disabled",
                            "virtual machines keep their addresses",
                        ),
                        number(
                            "ip-cooldown-seconds",
                            "SECONDS",
                            "time until a released address is used again",
                        ),
                        CONFIG,
                    ],
                    arity: Arity::Any,
                    verb: Some(Verb::IpamConfigure),
                    commands: &[],
                },
            ],
        },
        Command {
            name: "datastore",
            usage: "COMMAND",
            about: "Looks after the datastore.",
            details: "",
            flags: &[],
            arity: Arity::Any,
            verb: None,
            commands: &[Command {
                name: "init",
                usage: "",
                about: "Makes the embedded datastore (SQLite) on this host.",
                details: "The file is /var/lib/calico/datastore.db, or what CALICO_SQLITE_PATH or the configuration's\n\
                          sqlitePath names. Once it exists, calicoctl uses it where no other datastore is configured.",
                flags: &[CONFIG],
                arity: Arity::Any,
                verb: Some(Verb::DatastoreInit),
                commands: &[],
            }],
        },
        Command {
            name: "version",
            usage: "",
            about: "Shows the version of this tool and of the cluster.",
            details: "",
            flags: &[
                switch("client", None, "only the version of this tool"),
                text(
                    "poll",
                    None,
                    "DURATION",
                    "look again after this time, such as 5s, and print what changed",
                ),
                CONFIG,
            ],
            arity: Arity::Any,
            verb: Some(Verb::Version),
            commands: &[],
        },
    ],
};
