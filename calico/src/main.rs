//! The `calico` binary: looks at argv and the environment, and calls one component.

mod dispatch;

use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;

use calico_cni::PluginKind;
use dispatch::{Call, dispatch};

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().collect();
    let cni = std::env::var_os("CNI_COMMAND").is_some();
    match dispatch(&args, cni) {
        Call::CniPlugin(args) => calico_cni::run(PluginKind::Calico, &text(args)),
        Call::CniIpam(args) => calico_cni::run(PluginKind::CalicoIpam, &text(args)),
        Call::Ctl { name, args } => calico_ctl::run(&name, &args),
        Call::Felix(args) => calico_felix::run(&args),
        Call::Lab(args) => calico_lab::run(&args),
        Call::Version => {
            // A closed pipe is the reader's choice.
            let _ = writeln!(std::io::stdout(), "{}", env!("CARGO_PKG_VERSION"));
            ExitCode::SUCCESS
        }
        Call::Help(code) => {
            let _ = match code {
                0 => std::io::stdout().write_all(dispatch::USAGE.as_bytes()),
                _ => std::io::stderr().write_all(dispatch::USAGE.as_bytes()),
            };
            ExitCode::from(code)
        }
        Call::Unknown(what) => {
            let _ = writeln!(
                std::io::stderr(),
                "Error: unknown command {what:?} for \"calico\"\n{}",
                dispatch::USAGE
            );
            ExitCode::FAILURE
        }
    }
}

/// Arguments as text; what is no Unicode is shown as well as it can be.
fn text(args: Vec<OsString>) -> Vec<String> {
    args.into_iter().map(|a| a.to_string_lossy().into_owned()).collect()
}
