//! calicoctl as a citizen of a shell: pipes, exit codes, the choice of a datastore, unreachable servers.

mod ctl_support;

use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::process::Stdio;
use std::sync::mpsc;
use std::time::Duration;

use ctl_support::{Ctl, SET, talk};

/// Longest that a call may take which cannot reach its server: the dial timeout and some air for a busy machine.
const PATIENCE: Duration = Duration::from_secs(25);

#[test]
fn a_closed_pipe_is_no_failure() {
    let ctl = Ctl::new();
    let many: String =
        (0..400).map(|i| SET.replace("name: nets", &format!("name: nets-{i:03}")) + "---\n").collect();
    ctl.ok(&["apply", "-f", "-"], &many, "Successfully applied 400 'GlobalNetworkSet' resource(s)\n");
    let mut child = ctl
        .command(&["get", "gnetsets", "-o", "yaml"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::with_capacity(64, child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "apiVersion: projectcalico.org/v3\n");
    let out = child.wait_with_output().unwrap();
    assert_eq!((out.status.code(), String::from_utf8(out.stderr).unwrap().as_str()), (Some(0), ""));
}

#[test]
fn help_and_versions_need_no_datastore() {
    let ctl = Ctl::bare();
    for args in [&["--help"][..], &["help", "get"], &["get", "-h"], &["ipam"]] {
        let said = ctl.run(args, "");
        assert_eq!((said.code, said.stderr.as_str()), (0, ""), "{args:?}");
        assert!(said.stdout.contains("Usage:\n  calico ctl "), "{}", said.stdout);
    }
    let said = ctl.run(&["version", "--client"], "");
    let version = format!("Client Version:    v{}\n", env!("CARGO_PKG_VERSION"));
    assert!(said.code == 0 && said.stdout.starts_with(&version), "{}", said.stdout);
    ctl.fails(&["frobnicate"], "", "unknown command \"frobnicate\" for \"calico ctl\"\n");
    ctl.fails(&["get", "nodes", "--unknown"], "", "unknown flag: --unknown\n");
    ctl.ok(&["validate", "-f", "-"], SET, "Successfully validated 1 'GlobalNetworkSet' resource(s)\n");
}

#[test]
fn the_binary_answers_to_its_names() {
    let ctl = Ctl::bare();
    for name in ["calicoctl", "kubectl-calico"] {
        let path = ctl.database().with_file_name(name);
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_calico"), &path).unwrap();
        let mut command = std::process::Command::new(&path);
        command.env_clear().args(["frobnicate"]);
        let said = talk(command, "");
        assert_eq!((said.code, said.stderr), (1, format!("unknown command \"frobnicate\" for \"{name}\"\n")));
    }
}

#[test]
fn the_choice_of_a_datastore_is_told() {
    let ctl = Ctl::bare();
    // The embedded database is not there.
    let said = ctl.run(&["get", "nodes"], "");
    assert_eq!(said.code, 1);
    for word in ["sqlite", "calico.db", "datastoreType is sqlite"] {
        assert!(said.stderr.contains(word), "{word}: {}", said.stderr);
    }
    let said = ctl.run(&["datastore", "init"], "");
    assert_eq!(said.stdout, format!("The datastore {} was made\n", ctl.database().display()));
    let said = ctl.run(&["datastore", "init"], "");
    assert_eq!(said.stdout, format!("The datastore {} is ready\n", ctl.database().display()));
    // It is used unasked once it is there, and only then.
    let mut command = ctl.command(&["get", "nodes"]);
    command.env_remove("DATASTORE_TYPE");
    assert_eq!(talk(command, "").stdout, "NAME   \n\n");
    let mut command = ctl.command(&["get", "nodes"]);
    command.env_remove("DATASTORE_TYPE").env_remove("CALICO_SQLITE_PATH").env("KUBECONFIG", "/none");
    let said = talk(command, "");
    assert_eq!(said.code, 1);
    assert!(said.stderr.contains("kubernetes") && said.stderr.contains("sqlite"), "{}", said.stderr);
    let mut command = ctl.command(&["get", "nodes"]);
    command.env("DATASTORE_TYPE", "consul");
    let said = talk(command, "");
    assert_eq!(said.stderr, "Failed to create Calico API client: unknown datastore type: consul\n");
    ctl.fails(&["get", "nodes", "-c", "none.cfg"], "", "Error reading config file: none.cfg\n");
    ctl.write("c.cfg", "apiVersion: projectcalico.org/v3\nkind: Node\n");
    let said = ctl.run(&["create", "-c", "c.cfg", "-f", "-"], SET);
    assert_eq!(
        said.stderr,
        "Failed to create Calico API client: syntax error in c.cfg: invalid config file: expected kind \
         'CalicoAPIConfig', got 'Node'\n"
    );
}

#[test]
fn an_unreachable_server_is_named_in_time() {
    let ctl = Ctl::bare();
    // A port where nobody listens, and one where nobody answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for address in [closed, silent.local_addr().unwrap()] {
        let endpoint = format!("http://{address}");
        let mut command = ctl.command(&["get", "nodes"]);
        command.env("DATASTORE_TYPE", "etcdv3").env("ETCD_ENDPOINTS", &endpoint);
        let (done, end) = mpsc::channel();
        std::thread::spawn(move || done.send(talk(command, "")));
        let said = end.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("{endpoint}: still trying"));
        assert_eq!((said.code, said.stdout.as_str()), (1, ""));
        for word in ["etcd", &endpoint, "datastoreType is etcdv3"] {
            assert!(said.stderr.contains(word), "{word}: {}", said.stderr);
        }
    }
}
