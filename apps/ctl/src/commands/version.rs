//! `version`.

use std::time::Duration;

use calico_api::GoDuration;
use calico_client::Client;

use super::CommandError;
use crate::cli::{Args, UsageError};
use crate::connect::{self, VERSION};
use crate::output::Out;

/// Commit that this tool was built from, if the build told.
const COMMIT: Option<&str> = option_env!("CALICO_GIT_COMMIT");

/// Prints this tool's version.
pub(super) fn client(out: &mut Out) -> Result<(), CommandError> {
    let commit = COMMIT.unwrap_or("unknown");
    Ok(out.print(&format!("Client Version:    {VERSION}\nGit commit:        {commit}\n"))?)
}

/// Prints the versions of this tool and of the cluster, again and again if asked.
pub(super) async fn run(args: &Args, out: &mut Out) -> Result<(), CommandError> {
    let poll = match args.text("poll") {
        None | Some("") => None,
        Some(text) => Some(duration(text)?),
    };
    client(out)?;
    let store = match connect::client(args) {
        Ok(store) => store,
        Err(error) => {
            out.tell(&error.to_string());
            return Ok(out.print("Unable to detect installed Calico version\n")?);
        }
    };
    let mut last = String::new();
    loop {
        let text = cluster(&store).await?;
        if text != last {
            out.print(&text)?;
            last = text;
        }
        match poll {
            Some(interval) if !out.is_closed() => tokio::time::sleep(interval).await,
            _ => return Ok(()),
        }
    }
}

async fn cluster(store: &Client) -> Result<String, CommandError> {
    let info = match store.cluster_information().get("", "default").await {
        Ok(info) => info.spec,
        Err(error) => {
            return Err(CommandError::Report(format!("unable to retrieve Cluster Version or Type: {error}")));
        }
    };
    let told = |text: String| if text.is_empty() { "unknown".to_owned() } else { text };
    let (version, kind) = (told(info.calico_version), told(info.cluster_type));
    Ok(format!("Cluster Version:   {version}\nCluster Type:      {kind}\n"))
}

fn duration(text: &str) -> Result<Duration, UsageError> {
    let refused = || UsageError::Refused(format!("invalid poll duration specified: {text}"));
    let parsed: GoDuration = text.parse().map_err(|_| refused())?;
    parsed.to_std().ok_or_else(refused)
}
