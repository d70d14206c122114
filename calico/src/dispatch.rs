//! Which component a command line means. A pure function, so that every case is a test.

use std::ffi::{OsStr, OsString};
use std::path::Path;

/// What `calico` without arguments prints.
pub(crate) const USAGE: &str = "\
calico: networking and network policy for containers, virtual machines and hosts

usage: calico COMMAND [ARGUMENTS]

  ctl ...                  the operator's tool, also as calicoctl (calico ctl --help)
  lab ...                  a cluster on this machine, without Kubernetes (calico lab --help)
  component felix          the agent of a node
  component cni plugin     the CNI plugin, also as `calico` with CNI_COMMAND set
  component cni ipam       the IPAM plugin, also as calico-ipam
  version                  the version
";

/// The component that is meant, with its own arguments.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Call {
    /// The CNI plugin.
    CniPlugin(Vec<OsString>),
    /// The IPAM plugin.
    CniIpam(Vec<OsString>),
    /// calicoctl; `name` is how it was called, for its help texts.
    Ctl { name: String, args: Vec<OsString> },
    /// Felix.
    Felix(Vec<OsString>),
    /// The lab.
    Lab(Vec<OsString>),
    /// Print the version.
    Version,
    /// Print the usage and exit with this code.
    Help(u8),
    /// No such command.
    Unknown(String),
}

/// Decides by the name of the binary, `CNI_COMMAND` and the first arguments, as upstream's combined binary does.
pub(crate) fn dispatch(args: &[OsString], cni_command: bool) -> Call {
    let name = args.first().map(|a| base(a)).unwrap_or_default();
    let rest = args.get(1..).unwrap_or_default();
    match name.as_str() {
        "calico-ipam" => return Call::CniIpam(rest.to_vec()),
        "calicoctl" | "kubectl-calico" => return Call::Ctl { name, args: rest.to_vec() },
        _ => {}
    }
    let first = rest.first().and_then(|a| a.to_str()).unwrap_or_default();
    let known = ["component", "ctl", "lab", "health", "version", "help"].contains(&first);
    if cni_command && !known {
        return Call::CniPlugin(rest.to_vec());
    }
    let tail = || rest.get(1..).unwrap_or_default().to_vec();
    match first {
        // The plugin's own flags work without CNI_COMMAND too.
        "-v" | "-t" => Call::CniPlugin(rest.to_vec()),
        "ctl" => Call::Ctl { name: "calico ctl".into(), args: tail() },
        "lab" => Call::Lab(tail()),
        "version" | "--version" => Call::Version,
        "help" | "--help" | "-h" => Call::Help(0),
        "" => Call::Help(1),
        "component" => component(&tail()),
        other => Call::Unknown(other.to_owned()),
    }
}

fn component(args: &[OsString]) -> Call {
    let words: Vec<&str> = args.iter().take(2).map(|a| a.to_str().unwrap_or_default()).collect();
    match words.as_slice() {
        ["felix", ..] => Call::Felix(args[1..].to_vec()),
        ["cni", "plugin"] => Call::CniPlugin(args[2..].to_vec()),
        ["cni", "ipam"] => Call::CniIpam(args[2..].to_vec()),
        [] => Call::Help(1),
        words => Call::Unknown(format!("component {}", words.join(" "))),
    }
}

fn base(arg: &OsStr) -> String {
    Path::new(arg).file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(words: &str, cni: bool) -> Call {
        dispatch(&words.split(' ').map(OsString::from).collect::<Vec<_>>(), cni)
    }

    fn os(words: &[&str]) -> Vec<OsString> {
        words.iter().map(OsString::from).collect()
    }

    #[test]
    fn the_name_of_the_binary_decides_first() {
        assert_eq!(call("/opt/cni/bin/calico-ipam", true), Call::CniIpam(os(&[])));
        let ctl = Call::Ctl { name: "calicoctl".into(), args: os(&["get", "nodes"]) };
        assert_eq!(call("/usr/bin/calicoctl get nodes", true), ctl);
    }

    #[test]
    fn cni_command_makes_a_plugin_unless_a_command_is_named() {
        assert_eq!(call("/opt/cni/bin/calico", true), Call::CniPlugin(os(&[])));
        assert_eq!(call("calico -v", false), Call::CniPlugin(os(&["-v"])));
        assert_eq!(call("calico component felix -x", true), Call::Felix(os(&["-x"])));
        assert_eq!(call("calico version", true), Call::Version);
        assert_eq!(call("calico", false), Call::Help(1));
    }

    #[test]
    fn commands_get_their_own_arguments() {
        assert_eq!(call("calico lab run x.yaml", false), Call::Lab(os(&["run", "x.yaml"])));
        assert_eq!(call("calico component cni ipam -v", false), Call::CniIpam(os(&["-v"])));
        assert_eq!(call("calico component typo", false), Call::Unknown("component typo".into()));
        assert_eq!(call("calico typo", false), Call::Unknown("typo".into()));
        assert_eq!(call("calico help", false), Call::Help(0));
    }
}
