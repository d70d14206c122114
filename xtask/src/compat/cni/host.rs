//! A host for the plugin: a network and a mount namespace, kept by a process that sleeps.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use serde_json::{Value, json};

use super::super::text::field;

/// Longest wait for a call of the plugin.
const LIMIT: Duration = Duration::from_secs(120);

/// Folders of the real host that the plugin and `ip` write to.
const OWN_FOLDERS: &str = "/run/netns /var/lib/calico /var/lib/cni /var/run/calico /var/log/calico";

/// The namespaces; they are gone when this is dropped.
pub(super) struct Host {
    keeper: Child,
}

impl Host {
    /// Fresh namespaces with `lo` up and empty folders of state.
    pub(super) fn new() -> anyhow::Result<Self> {
        let keeper = Command::new("unshare")
            .args(["--net", "--mount", "--propagation", "private", "sleep", "infinity"])
            .stdin(Stdio::null())
            .spawn()
            .context("unshare")?;
        let host = Self { keeper };
        let start = Instant::now();
        while !host.is_apart()? {
            if start.elapsed() > Duration::from_secs(10) {
                bail!("no namespaces: this needs root");
            }
            std::thread::yield_now();
        }
        host.shell(&format!(
            "for d in {OWN_FOLDERS}; do mkdir -p $d; mount -t tmpfs tmpfs $d; done; ip link set lo up"
        ))?;
        Ok(host)
    }

    /// True once the keeper runs `sleep` in namespaces of its own.
    fn is_apart(&self) -> anyhow::Result<bool> {
        let link = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/net"));
        let name = std::fs::read_to_string(format!("/proc/{}/comm", self.keeper.id()))?;
        Ok(name.trim() == "sleep" && link(&self.keeper.id().to_string())? != link("self")?)
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("nsenter");
        command
            .args(["--net", "--mount", "--target"])
            .arg(self.keeper.id().to_string())
            .arg("--")
            .arg(program);
        command
    }

    /// Runs a line of shell; its standard output.
    pub(super) fn shell(&self, line: &str) -> anyhow::Result<String> {
        let out = self.command(Path::new("/bin/sh")).args(["-c", line]).stdin(Stdio::null()).output()?;
        Ok(String::from_utf8_lossy(&out.stdout).into_owned())
    }

    /// Writes a file as the host sees it.
    pub(super) fn file(&self, path: &str, text: &str) -> anyhow::Result<()> {
        let mut command = self.command(Path::new("/bin/sh"));
        command.args(["-c", "mkdir -p \"$(dirname \"$1\")\" && cat > \"$1\"", "sh", path]);
        let mut child = command.stdin(Stdio::piped()).spawn()?;
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(text.as_bytes())?;
        }
        child.wait()?;
        Ok(())
    }

    /// Calls a plugin: exit code and standard output.
    pub(super) fn run(
        &self,
        plugin: &Path,
        args: &[&str],
        env: &BTreeMap<String, String>,
        stdin: &str,
    ) -> anyhow::Result<(Option<i32>, String)> {
        let mut command = self.command(Path::new("timeout"));
        command.arg(LIMIT.as_secs().to_string()).arg(plugin).args(args).env_clear().envs(env);
        command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn()?;
        if let Some(mut pipe) = child.stdin.take() {
            // A plugin that does not read its input closes the pipe.
            let _ = pipe.write_all(stdin.as_bytes());
        }
        let out: Output = child.wait_with_output()?;
        Ok((out.status.code().filter(|code| *code != 124), String::from_utf8_lossy(&out.stdout).into_owned()))
    }

    /// Links, routes, neighbours and the kernel parameters of `record` in a container or on the host.
    pub(super) fn look(&self, container: Option<&str>, record: &Value) -> anyhow::Result<Value> {
        let enter = container.map(|name| format!("ip netns exec {name} ")).unwrap_or_default();
        let read = |what: &str| -> anyhow::Result<Value> {
            let text = self.shell(&format!("{enter}ip -j {what}"))?;
            Ok(serde_json::from_str(text.trim()).unwrap_or_else(|_| json!([])))
        };
        let names: Vec<&str> =
            record["sysctls"].as_object().into_iter().flatten().map(|(name, _)| name.as_str()).collect();
        let mut sysctls = serde_json::Map::new();
        if !names.is_empty() {
            let line = format!(
                "{enter}sh -c 'for f in {}; do cat /proc/sys/$f 2>/dev/null || echo; done'",
                names.join(" ")
            );
            let values = self.shell(&line)?;
            sysctls.extend(
                names.iter().zip(values.lines()).map(|(name, value)| ((*name).to_owned(), value.into())),
            );
        }
        Ok(json!({
            "links": links(&read("-d addr")?),
            "routes4": keep(&read("-4 route show table main")?, &ROUTE),
            "routes6": keep(&read("-6 route show table main")?, &ROUTE),
            "neigh": keep(&read("neigh show nud permanent")?, &["dst", "dev", "lladdr", "state"]),
            "sysctls": sysctls,
        }))
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // It is our own child; if it is gone already there is nothing to do.
        let _ = self.keeper.kill();
        let _ = self.keeper.wait();
    }
}

/// Fields of routes.
const ROUTE: [&str; 9] = ["dst", "gateway", "dev", "scope", "protocol", "metric", "prefsrc", "flags", "pref"];

/// Fields of links.
const LINK: [&str; 8] =
    ["ifname", "flags", "mtu", "operstate", "link_type", "address", "num_tx_queues", "num_rx_queues"];

fn links(seen: &Value) -> Value {
    seen.as_array()
        .into_iter()
        .flatten()
        .filter(|link| field(link, "ifname") != "lo")
        .map(|link| {
            let mut out = pick(link, &LINK);
            out["kind"] = link["linkinfo"]["info_kind"].clone();
            out["addr_info"] = keep(&link["addr_info"], &["family", "local", "prefixlen", "scope"]);
            out
        })
        .collect()
}

fn keep(seen: &Value, fields: &[&str]) -> Value {
    seen.as_array().into_iter().flatten().map(|item| pick(item, fields)).collect()
}

fn pick(item: &Value, fields: &[&str]) -> Value {
    let has = |name: &&&str| item.get(**name).is_some();
    fields
        .iter()
        .filter(has)
        .map(|name| ((*name).to_owned(), item[*name].clone()))
        .collect::<serde_json::Map<_, _>>()
        .into()
}
