//! The way to the datastore: configuration, client, comparison of versions.

use std::path::Path;

use calico_client::{Client, ClientError};
use calico_datastore::StoreError;
use calico_datastore::config::{CalicoApiConfig, Fallback, Surroundings};

use crate::cli::Args;

/// Where the configuration is looked for if nothing is said; not being there is no error.
const DEFAULT_CONFIG: &str = "/etc/calico/calicoctl.cfg";

/// Version of this tool.
pub(crate) const VERSION: &str = concat!("v", env!("CARGO_PKG_VERSION"));

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    /// A configuration file was named that is not there.
    #[error("Error reading config file: {0}")]
    NoFile(String),
    /// The configuration is wrong, or leads to no datastore.
    #[error("Failed to create Calico API client: {0}")]
    Client(ClientError),
    /// Client and cluster have different versions.
    #[error(
        "version mismatch.\nClient Version:   {VERSION}\nCluster Version:  {cluster}\nUse --allow-version-mismatch to \
         override"
    )]
    Mismatch {
        /// Version of the cluster, without what does not count.
        cluster: String,
    },
    /// The version of the cluster cannot be read.
    #[error("unable to get Cluster Information to verify version mismatch: {0}")]
    Unverified(ClientError),
    /// The datastore cannot be reached.
    #[error(transparent)]
    Unreachable(ClientError),
}

/// The configuration that a call means.
pub(crate) fn configuration(args: &Args) -> Result<CalicoApiConfig, ConnectError> {
    let file = match args.text("config") {
        Some(path) if path != DEFAULT_CONFIG => {
            if !Path::new(path).exists() {
                return Err(ConnectError::NoFile(path.to_owned()));
            }
            Some(Path::new(path))
        }
        _ => Some(Path::new(DEFAULT_CONFIG)).filter(|path| path.exists()),
    };
    let config = CalicoApiConfig::load(file, &Surroundings::of_process());
    let mut config = config.map_err(|error| ConnectError::Client(StoreError::from(error).into()))?;
    if let Some(context) = args.text("context") {
        context.clone_into(&mut config.k8s_current_context);
    }
    Ok(config)
}

/// A client; nothing is connected before its first use.
pub(crate) fn client(args: &Args) -> Result<Client, ConnectError> {
    let config = configuration(args)?;
    Client::from_config(&config, Fallback::ExistingSqlite, &Surroundings::of_process())
        .map_err(ConnectError::Client)
}

/// A client for a cluster of this version.
pub(crate) async fn checked_client(args: &Args) -> Result<Client, ConnectError> {
    let client = client(args)?;
    if !args.is_set("allow-version-mismatch") {
        check_version(&client).await?;
    }
    Ok(client)
}

/// Compares versions. A cluster that tells none fits.
pub(crate) async fn check_version(client: &Client) -> Result<(), ConnectError> {
    match client.cluster_information().get("", "default").await {
        Ok(info) => {
            let cluster = comparable(&info.spec.calico_version);
            if cluster.is_empty() || cluster == comparable(VERSION) {
                return Ok(());
            }
            Err(ConnectError::Mismatch { cluster: cluster.to_owned() })
        }
        Err(error) if error.is_not_found() => Ok(()),
        Err(error @ ClientError::Store(StoreError::Unreachable { .. })) => {
            Err(ConnectError::Unreachable(error))
        }
        Err(error) => Err(ConnectError::Unverified(error)),
    }
}

/// The part of a version that has to be equal.
fn comparable(version: &str) -> &str {
    let version = version.strip_prefix('v').unwrap_or(version);
    version.split('-').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::comparable;

    #[test]
    fn what_counts_of_a_version() {
        for (version, want) in [
            ("v3.34.0-0.dev-67-g87c", "3.34.0"),
            ("3.34.0", "3.34.0"),
            ("v3.28.1", "3.28.1"),
            ("", ""),
            ("v-x", ""),
        ] {
            assert_eq!(comparable(version), want);
        }
    }
}
