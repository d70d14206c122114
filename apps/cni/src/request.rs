//! The call: environment variables and their checks, before anything is done.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::PathBuf;

use calico_host::check_interface_name;
use calico_net::cidr::parse_ip;

use crate::error::{ArgsError, CniError, interface_name};

/// What the runtime asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verb {
    /// Wire a container.
    Add,
    /// Look whether a container is still wired.
    Check,
    /// Undo ADD.
    Del,
    /// Say whether ADD could be served.
    Status,
    /// Remove what no container uses any more.
    Gc,
    /// List the versions served.
    Version,
}

// === impl Verb ===

impl Verb {
    fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "ADD" => Self::Add,
            "CHECK" => Self::Check,
            "DEL" => Self::Del,
            "STATUS" => Self::Status,
            "GC" => Self::Gc,
            "VERSION" => Self::Version,
            _ => return None,
        })
    }

    /// True for the verbs about one container.
    pub fn is_about_container(self) -> bool {
        matches!(self, Self::Add | Self::Check | Self::Del)
    }

    /// The variables that must be set, in the order in which a message lists them.
    fn needs(self, variable: &str) -> bool {
        match variable {
            "CNI_CONTAINERID" | "CNI_IFNAME" => self.is_about_container(),
            "CNI_NETNS" => matches!(self, Self::Add | Self::Check),
            "CNI_PATH" => self != Self::Version,
            _ => false,
        }
    }
}

/// The environment of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// What is asked.
    pub verb: Verb,
    /// `CNI_CONTAINERID`.
    pub container_id: String,
    /// `CNI_NETNS`; empty if there is none (any more).
    pub netns: String,
    /// `CNI_IFNAME`.
    pub ifname: String,
    /// `CNI_ARGS` as it is.
    pub args: String,
    /// Directories of `CNI_PATH`.
    pub path: Vec<PathBuf>,
    /// `CNI_PATH` as it is.
    pub path_text: String,
    /// Whether the plugin's own namespace may be wired (`CNI_NETNS_OVERRIDE`).
    pub allow_own_netns: bool,
}

// === impl Request ===

impl Request {
    /// Reads the environment. `None` if no verb is set: a person runs the program.
    pub fn from_env(env: &dyn Fn(&str) -> Option<String>) -> Result<Option<Self>, CniError> {
        let var = |name: &str| env(name).unwrap_or_default();
        let word = var("CNI_COMMAND");
        if word.is_empty() {
            return Ok(None);
        }
        let Some(verb) = Verb::parse(&word) else {
            return Err(CniError::new(CniError::INVALID_ENVIRONMENT, format!("unknown CNI_COMMAND: {word}")));
        };
        let missing: Vec<&str> = ["CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_PATH"]
            .into_iter()
            .filter(|name| verb.needs(name) && var(name).is_empty())
            .collect();
        if !missing.is_empty() {
            let text = format!("required env variables [{}] missing", missing.join(","));
            return Err(CniError::new(CniError::INVALID_ENVIRONMENT, text));
        }
        let path_text = var("CNI_PATH");
        Ok(Some(Self {
            verb,
            container_id: var("CNI_CONTAINERID"),
            netns: var("CNI_NETNS"),
            ifname: var("CNI_IFNAME"),
            args: var("CNI_ARGS"),
            path: std::env::split_paths(&path_text).collect(),
            path_text,
            allow_own_netns: matches!(var("CNI_NETNS_OVERRIDE").to_ascii_lowercase().as_str(), "true" | "1"),
        }))
    }

    /// Checks the texts that become names.
    pub fn check_names(&self) -> Result<(), CniError> {
        if !self.verb.is_about_container() {
            return Ok(());
        }
        if !is_identifier(&self.container_id) {
            return Err(CniError::new(CniError::INVALID_ENVIRONMENT, "invalid characters in containerID")
                .with_details(&self.container_id));
        }
        check_interface_name(&self.ifname).map_err(interface_name)
    }
}

/// Letters, digits, `_`, `.` and `-`, the first one a letter or digit: names of networks and containers.
pub fn is_identifier(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes.next().is_some_and(|b| b.is_ascii_alphanumeric())
        && bytes.all(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b))
}

/// `CNI_ARGS`: pairs that a runtime adds to a call.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Args {
    /// Address that the container must get.
    pub ip: Option<IpAddr>,
    /// Pod.
    pub pod: String,
    /// Namespace of the pod.
    pub namespace: String,
    /// Namespace of containers outside Kubernetes.
    pub test_namespace: String,
}

// === impl Args ===

impl Args {
    /// Reads `key=value` pairs separated by `;`. Keys that are not known are ignored if a pair `IgnoreUnknown` (true or
    /// 1, false or 0) says so, or `ignore_unknown` if there is no such pair.
    pub fn parse(text: &str, mut ignore_unknown: bool) -> Result<Self, ArgsError> {
        let mut args = Self::default();
        if text.is_empty() {
            return Ok(args);
        }
        let mut unknown = BTreeSet::new();
        for pair in text.split(';') {
            let parts: Vec<&str> = pair.split('=').collect();
            let [key, value] = parts[..] else { return Err(ArgsError::Pair(pair.to_owned())) };
            let bad = |reason: String| ArgsError::Value { pair: pair.to_owned(), reason };
            match key {
                "IgnoreUnknown" => match value.to_ascii_lowercase().as_str() {
                    "1" | "true" => ignore_unknown = true,
                    "0" | "false" => ignore_unknown = false,
                    _ => return Err(bad(format!("boolean unmarshal error: invalid input {value}"))),
                },
                "IP" => {
                    args.ip =
                        Some(parse_ip(value).ok_or_else(|| bad(format!("invalid IP address: {value}")))?);
                }
                "K8S_POD_NAME" => args.pod = value.to_owned(),
                "K8S_POD_NAMESPACE" => args.namespace = value.to_owned(),
                "CNI_TEST_NAMESPACE" => args.test_namespace = value.to_owned(),
                "K8S_POD_INFRA_CONTAINER_ID" => {}
                _ => {
                    unknown.insert(pair.to_owned());
                }
            }
        }
        if !ignore_unknown && !unknown.is_empty() {
            return Err(ArgsError::Unknown(unknown.into_iter().collect()));
        }
        Ok(args)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<Option<Request>, CniError> {
        Request::from_env(&|name| pairs.iter().find(|(k, _)| *k == name).map(|(_, v)| (*v).to_owned()))
    }

    #[test]
    fn missing_variables_are_all_named() {
        let all = [
            ("CNI_CONTAINERID", "box"),
            ("CNI_NETNS", "/run/netns/box"),
            ("CNI_IFNAME", "eth0"),
            ("CNI_PATH", "/opt/cni/bin"),
        ];
        for (verb, needed) in [
            ("ADD", vec!["CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_PATH"]),
            ("CHECK", vec!["CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_PATH"]),
            ("DEL", vec!["CNI_CONTAINERID", "CNI_IFNAME", "CNI_PATH"]),
            ("STATUS", vec!["CNI_PATH"]),
            ("GC", vec!["CNI_PATH"]),
        ] {
            let error = read(&[("CNI_COMMAND", verb)]).expect_err(verb);
            assert_eq!(
                (error.code, error.msg),
                (4, format!("required env variables [{}] missing", needed.join(",")))
            );
            for name in needed {
                let mut env: Vec<_> = all.iter().copied().filter(|(k, _)| *k != name).collect();
                env.push(("CNI_COMMAND", verb));
                env.push((name, ""));
                let error = read(&env).expect_err(name);
                assert_eq!(error.msg, format!("required env variables [{name}] missing"));
            }
            let env: Vec<_> = all.iter().copied().chain([("CNI_COMMAND", verb)]).collect();
            let request = read(&env).expect("complete").expect("a verb");
            assert_eq!((request.container_id.as_str(), request.ifname.as_str()), ("box", "eth0"));
            request.check_names().expect("names");
        }
        assert_eq!(
            read(&[("CNI_COMMAND", "VERSION")]).expect("no needs").map(|r| r.verb),
            Some(Verb::Version)
        );
        assert_eq!(read(&[]), Ok(None));
        assert_eq!(read(&[("CNI_COMMAND", "")]), Ok(None));
        for word in ["add", "WAVE"] {
            let error = read(&[("CNI_COMMAND", word)]).expect_err(word);
            assert_eq!((error.code, error.msg), (4, format!("unknown CNI_COMMAND: {word}")));
        }
    }

    #[test]
    fn names_of_containers_and_interfaces() {
        for (container, ifname, msg, details) in [
            ("-lead", "eth0", "invalid characters in containerID", "-lead"),
            ("has space", "eth0", "invalid characters in containerID", "has space"),
            ("sl/ash", "eth0", "invalid characters in containerID", "sl/ash"),
            ("_under", "eth0", "invalid characters in containerID", "_under"),
            (
                "box",
                "a234567890123456",
                "interface name is too long",
                "interface name should be less than 16 characters",
            ),
            ("box", "a/b", "interface name contains / or : or whitespace characters", ""),
            ("box", "..", "interface name is . or ..", ""),
        ] {
            let request = read(&[
                ("CNI_COMMAND", "ADD"),
                ("CNI_CONTAINERID", container),
                ("CNI_NETNS", "x"),
                ("CNI_IFNAME", ifname),
                ("CNI_PATH", "p"),
            ]);
            let error = request.expect("complete").expect("a verb").check_names().expect_err(container);
            assert_eq!((error.code, error.msg.as_str(), error.details.as_str()), (4, msg, details));
        }
        for good in ["a", "A.b-c_d", "0123456789abcdef"] {
            assert!(is_identifier(good), "{good}");
        }
        assert!(!is_identifier(""));
    }

    #[test]
    fn args_of_a_call() {
        let parsed =
            Args::parse("IP=10.0.0.5;K8S_POD_NAME=web;K8S_POD_NAMESPACE=shop", false).expect("sound");
        assert_eq!(parsed.ip, Some("10.0.0.5".parse().expect("address")));
        assert_eq!((parsed.pod.as_str(), parsed.namespace.as_str()), ("web", "shop"));
        assert_eq!(Args::parse("", false), Ok(Args::default()));
        // Keys count as they are written.
        assert_eq!(Args::parse("ip=10.0.0.5", true), Ok(Args::default()));
        for (text, ignore, want) in [
            ("COLOUR", true, "invalid pair \"COLOUR\""),
            ("IP=10.0.0.9=x", true, "invalid pair \"IP=10.0.0.9=x\""),
            ("IP=1.2.3.4;", true, "invalid pair \"\""),
            ("COLOUR=red", false, "unknown args [\"COLOUR=red\"]"),
            ("IgnoreUnknown=0;COLOUR=red", true, "unknown args [\"COLOUR=red\"]"),
            ("IP=bad", true, "error parsing value of pair \"IP=bad\": invalid IP address: bad"),
        ] {
            assert_eq!(Args::parse(text, ignore).expect_err(text).to_string(), want);
        }
        assert!(Args::parse("COLOUR=red;IgnoreUnknown=true", false).is_ok());
    }
}
