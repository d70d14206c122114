//! Development tasks: `cargo xtask <task>`.

mod deps;

use std::io::Write as _;
use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask TASK

  check-deps     check that no crate points up: calico -> apps -> sys -> core
  check-tree     check file sizes and leftovers in the tree
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["check-deps"] => deps::check(),
        ["check-tree"] => tree::check(),
        _ => Err(anyhow::anyhow!("{USAGE}")),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "{error:#}");
            ExitCode::FAILURE
        }
    }
}

mod tree;
