//! Development tasks: `cargo xtask <task>`.

mod compat;
mod deps;
mod generate;
mod release;

use std::io::Write as _;
use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask TASK

  check-deps     check that no crate points up: calico -> apps -> sys -> core
  check-tree     check file sizes and leftovers in the tree
  gen            write the files that are made from the code
  check-gen      check that they are fresh
  release        build the static release binary and check its size
  compat DIR     run the product over seen behaviour (cargo xtask compat --help)
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["check-deps"] => deps::check(),
        ["check-tree"] => tree::check(),
        ["check-gen"] => generate::check(),
        ["gen"] => generate::write(),
        ["release", ..] => release::run(&args[1..]),
        ["compat", ..] => compat::run(&args[1..]),
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
