//! `ipam show`, `ipam release`, `ipam configure`.

use std::net::IpAddr;
use std::sync::Arc;

use calico_client::Client;
use calico_client::ipam::{IpamClient, IpamError, ReleaseOptions};

use super::CommandError;
use crate::cli::Args;
use crate::connect;
use crate::output::Out;

pub(super) mod configure;
pub(super) mod show;

/// Takes an address from whoever has it.
pub(super) async fn release(args: &Args, out: &mut Out) -> Result<(), CommandError> {
    let Some(ip) = address(args)? else { return Ok(()) };
    let client = connect::checked_client(args).await?;
    let outcome = ipam(&client).release_ips(vec![ReleaseOptions::address(ip)]).await;
    if let Some(error) = outcome.error.filter(|error| !is_unassigned(error)) {
        return Err(error.into());
    }
    if outcome.released.is_empty() || outcome.unallocated.contains(&ip) {
        return Err(CommandError::Report(format!("IP address {ip} is not assigned")));
    }
    Ok(out.print(&format!("Successfully released IP address {ip}\n"))?)
}

/// Address management on the store of a client.
fn ipam(client: &Client) -> IpamClient {
    IpamClient::new(Arc::clone(client.backend()))
}

/// True if an error only says that nobody has the address.
fn is_unassigned(error: &IpamError) -> bool {
    error.is_not_found() || matches!(error, IpamError::NotInPool { .. } | IpamError::InCooldown { .. })
}

/// The address that `--ip` names; an empty text is none.
fn address(args: &Args) -> Result<Option<IpAddr>, CommandError> {
    match args.text("ip") {
        None | Some("") => Ok(None),
        Some(text) => text.parse().map(Some).map_err(|_| CommandError::BadAddress(text.to_owned())),
    }
}
