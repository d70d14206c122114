//! `datastore init`.

use std::path::Path;

use calico_client::Client;
use calico_datastore::StoreError;
use calico_datastore::config::{Fallback, Surroundings};

use super::CommandError;
use crate::cli::Args;
use crate::connect::{self, ConnectError};
use crate::output::Out;

/// Makes the embedded datastore, or tells that it is there.
pub(super) async fn init(args: &Args, out: &mut Out) -> Result<(), CommandError> {
    let mut config = connect::configuration(args)?;
    if !matches!(config.datastore_type.as_str(), "" | "sqlite") {
        let reason =
            format!("datastoreType is {}; only sqlite is made by this command", config.datastore_type);
        return Err(ConnectError::Client(StoreError::Config(reason).into()).into());
    }
    "sqlite".clone_into(&mut config.datastore_type);
    let path = config.sqlite_file();
    let existed = path.exists();
    if let Some(directory) = path.parent().filter(|d| !d.as_os_str().is_empty()) {
        make_directory(directory)?;
    }
    let client = Client::from_config(&config, Fallback::Never, &Surroundings::of_process())
        .map_err(ConnectError::Client)?;
    client.ensure_initialized("", "").await?;
    let word = if existed { "is ready" } else { "was made" };
    Ok(out.print(&format!("The datastore {} {word}\n", path.display()))?)
}

fn make_directory(directory: &Path) -> Result<(), CommandError> {
    std::fs::create_dir_all(directory).map_err(|error| {
        let reason = format!("cannot make {}: {}", directory.display(), crate::input::system_words(&error));
        ConnectError::Client(StoreError::Config(reason).into()).into()
    })
}
