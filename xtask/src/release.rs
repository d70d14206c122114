//! `cargo xtask release`: the static release binary.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, bail, ensure};

/// What the binary is built for. It is named although the machine may be of that kind itself: with a target named,
/// the flags below do not reach build scripts and procedural macros, which cannot be static.
const TARGET: &str = "x86_64-unknown-linux-gnu";
/// Largest size in bytes, exclusive.
const SIZE_LIMIT: u64 = 30_000_000;

/// Builds the binary, checks that it needs no library and is small enough, and prints where it is and its size; with
/// `--quiet` only where it is.
pub(crate) fn run(args: &[String]) -> anyhow::Result<()> {
    let quiet = match args {
        [] => false,
        [flag] if flag == "--quiet" => true,
        _ => bail!("usage: cargo xtask release [--quiet]"),
    };
    let start = Instant::now();
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--locked", "--release", "--package", "calico", "--target", TARGET]);
    if quiet {
        command.arg("--quiet");
    }
    // What a caller set for other builds holds no longer; the rest of the environment does.
    command.env("RUSTFLAGS", "-C target-feature=+crt-static").env_remove("CARGO_ENCODED_RUSTFLAGS");
    let status = command.status().context("running cargo")?;
    ensure!(status.success(), "cargo build: {status}");

    let binary = target_directory().join(TARGET).join("release").join("calico");
    let bytes = std::fs::read(&binary).with_context(|| format!("reading {}", binary.display()))?;
    ensure!(!needs_interpreter(&bytes)?, "{} is not static", binary.display());
    let size = bytes.len() as u64;
    let mut out = std::io::stdout();
    if quiet {
        writeln!(out, "{}", binary.display())?;
    } else {
        let seconds = start.elapsed().as_secs();
        writeln!(out, "{}: static, {:.1} MB, built in {seconds} s", binary.display(), size as f64 / 1e6)?;
    }
    ensure!(size < SIZE_LIMIT, "the binary has {size} bytes; the limit is {SIZE_LIMIT}");
    Ok(())
}

fn target_directory() -> PathBuf {
    let directory = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    std::path::absolute(&directory).unwrap_or(directory)
}

/// Whether the kernel must start a dynamic linker for the program: a program header of the ELF file says so.
fn needs_interpreter(elf: &[u8]) -> anyhow::Result<bool> {
    /// Type of the header that names the linker.
    const INTERPRETER: u32 = 3;
    let number = |at: usize, len: usize| -> anyhow::Result<u64> {
        let bytes = elf.get(at..at + len).context("the binary is cut off")?;
        // 64 bits, little-endian, as the target has it.
        Ok(bytes.iter().rev().fold(0, |all, byte| (all << 8) | u64::from(*byte)))
    };
    ensure!(elf.starts_with(b"\x7fELF\x02\x01"), "the binary is no ELF file of 64 bits");
    let (table, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
    for n in 0..count {
        let at = usize::try_from(table + n * size)?;
        if number(at, 4)? == u64::from(INTERPRETER) {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::needs_interpreter;

    #[test]
    fn programs_that_need_a_linker_are_told_from_others() {
        let mut elf = b"\x7fELF\x02\x01".to_vec();
        elf.resize(64 + 2 * 56, 0);
        elf[32] = 64;
        elf[54] = 56;
        elf[56] = 2;
        elf[64] = 1;
        elf[64 + 56] = 6;
        assert!(!needs_interpreter(&elf).unwrap());
        elf[64 + 56] = 3;
        assert!(needs_interpreter(&elf).unwrap());
        assert!(needs_interpreter(&elf[..100]).is_err());
        assert!(needs_interpreter(b"#!/bin/sh").is_err());
    }
}
