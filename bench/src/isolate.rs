//! A machine of its own for a bench: network and mounts that end with the process, however it ends.

use std::process::Command;

use anyhow::{Context as _, bail};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

/// Directories whose content a bench must neither see nor change.
const OWN: [&str; 6] =
    ["/run/netns", "/var/lib/cni", "/var/lib/calico", "/var/run/calico", "/var/log/calico", "/etc/calico"];

/// Gives the process a network namespace with `lo` up, and empty directories of its own where namespaces,
/// plugins and agents keep their files. To be called before the first thread is started.
///
/// # Errors
/// If the process is not root's.
pub fn machine() -> anyhow::Result<()> {
    if !nix::unistd::geteuid().is_root() {
        bail!("needs root, to make a network namespace");
    }
    unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS).context("making namespaces")?;
    let private = MsFlags::MS_PRIVATE | MsFlags::MS_REC;
    mount(None::<&str>, "/", None::<&str>, private, None::<&str>).context("keeping mounts private")?;
    for directory in OWN {
        own(directory)?;
    }
    run("ip", &["link", "set", "lo", "up"])
}

/// An empty file system over a directory, which is made if it is not there.
fn own(directory: &str) -> anyhow::Result<()> {
    std::fs::create_dir_all(directory).with_context(|| format!("making {directory}"))?;
    mount(Some("bench"), directory, Some("tmpfs"), MsFlags::empty(), None::<&str>)
        .with_context(|| format!("mounting over {directory}"))
}

/// Runs a program that is no part of what is measured.
///
/// # Errors
/// If it fails; with what it said.
pub fn run(program: &str, args: &[&str]) -> anyhow::Result<()> {
    let out = Command::new(program).args(args).output().with_context(|| format!("running {program}"))?;
    if !out.status.success() {
        bail!("{program} {}: {}", args.join(" "), String::from_utf8_lossy(&out.stderr).trim());
    }
    Ok(())
}

/// Makes a named network namespace, which is seen by this process and its children alone.
///
/// # Errors
/// If it cannot be made.
pub fn namespace(name: &str) -> anyhow::Result<()> {
    run("ip", &["netns", "add", name])
}

/// Deletes what [`namespace`] made.
///
/// # Errors
/// If it cannot be deleted.
pub fn delete_namespace(name: &str) -> anyhow::Result<()> {
    run("ip", &["netns", "delete", name])
}
