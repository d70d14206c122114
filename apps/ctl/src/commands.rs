//! What each command does with its arguments.

use std::io;

use calico_client::ClientError;

use crate::actions::ActionError;
use crate::cli::{Args, UsageError, Verb};
use crate::connect::ConnectError;
use crate::format::FormError;
use crate::input::InputError;
use crate::kinds::UnknownKind;
use crate::output::Out;
use crate::patch::PatchError;
use crate::scope::ScopeError;

mod crud;
mod datastore;
mod get;
mod ipam;
mod label;
mod log;
mod patch;
mod version;

/// Why a command failed. The text is what is printed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CommandError {
    /// Arguments that mean nothing.
    #[error(transparent)]
    Usage(#[from] UsageError),
    /// Input that does not parse.
    #[error("failed to execute command: {0}")]
    Input(InputError),
    /// Input without objects.
    #[error(transparent)]
    NoInput(InputError),
    /// A name without letters.
    #[error("resource name may not be empty")]
    EmptyName,
    /// Not a kind.
    #[error(transparent)]
    Kind(#[from] UnknownKind),
    /// Namespaces that do not fit.
    #[error(transparent)]
    Scope(#[from] ScopeError),
    /// Not a form of output.
    #[error(transparent)]
    Form(#[from] FormError),
    /// No client.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The client's refusal.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// Address management's refusal.
    #[error(transparent)]
    Ipam(#[from] calico_client::ipam::IpamError),
    /// An action's refusal.
    #[error(transparent)]
    Action(#[from] ActionError),
    /// What went wrong with some of many objects, or before the first one.
    #[error("{0}")]
    Report(String),
    /// A patch that was not applied.
    #[error("hit error: {0}")]
    Patch(PatchError),
    /// An address that is none.
    #[error("Error executing command: invalid IP address specified: {0}")]
    BadAddress(String),
    /// Output that cannot be written.
    #[error("cannot write the output: {0}")]
    Output(#[from] io::Error),
    /// The process lacks something to run at all.
    #[error("cannot start: {0}")]
    Start(io::Error),
}

impl From<InputError> for CommandError {
    fn from(error: InputError) -> Self {
        match error {
            InputError::Empty { .. } => Self::NoInput(error),
            other => Self::Input(other),
        }
    }
}

/// Runs a command.
pub(crate) fn run(verb: Verb, args: &Args, out: &mut Out) -> Result<(), CommandError> {
    log::start(args)?;
    if verb == Verb::Version && args.is_set("client") {
        return version::client(out);
    }
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(CommandError::Start)?;
    let result = runtime.block_on(async {
        match verb {
            Verb::Create | Verb::Replace | Verb::Apply | Verb::Delete | Verb::Validate => {
                crud::run(verb, args, out).await
            }
            Verb::Get => get::run(args, out).await,
            Verb::Patch => patch::run(args, out).await,
            Verb::Label => label::run(args, out).await,
            Verb::Version => version::run(args, out).await,
            Verb::IpamShow => ipam::show::run(args, out).await,
            Verb::IpamRelease => ipam::release(args, out).await,
            Verb::IpamConfigure => ipam::configure::run(args, out).await,
            Verb::DatastoreInit => datastore::init(args, out).await,
        }
    });
    // What still runs in the background has nothing to tell any more.
    runtime.shutdown_background();
    result
}
