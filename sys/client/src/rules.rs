//! The rules of kinds that need the store, or that change an object before it is written or after it is read.

pub(crate) mod node;
pub(crate) mod pool;

use calico_api::{AnyResource, Kind};
use calico_datastore::StoreError;
use calico_model::names::{self, WorkloadEndpointIds};

use crate::objects::{DeleteOptions, Select};
use crate::{Client, ClientError};

/// Kinds whose policies belong to a tier and have types in this version.
const TIERED: [Kind; 2] = [Kind::NetworkPolicy, Kind::GlobalNetworkPolicy];

/// True for kinds whose name follows from the rest of the object.
pub(crate) fn names_itself(kind: Kind) -> bool {
    kind == Kind::WorkloadEndpoint
}

/// Runs before defaults and validation of a new object.
pub(crate) async fn before_create(client: &Client, object: &mut AnyResource) -> Result<(), ClientError> {
    match object {
        AnyResource::ClusterInformation(info) if info.metadata.name != "default" => {
            let reason = "Cannot create a Cluster Information resource with a name other than \"default\"";
            return Err(ClientError::field("Metadata.Name", Some(&info.metadata.name.clone()), reason));
        }
        AnyResource::IPAMConfiguration(config) => ipam_config_name(&config.metadata.name)?,
        AnyResource::Profile(profile) if profile.metadata.name == names::DEFAULT_ALLOW_PROFILE => {
            let id = default_allow();
            return Err(StoreError::AlreadyExists { id, existing: None }.into());
        }
        AnyResource::IPPool(pool) => pool::prepare(client, pool).await?,
        AnyResource::WorkloadEndpoint(endpoint) => names_endpoint(endpoint)?,
        AnyResource::NetworkPolicy(policy) => tier_exists(client, &policy.spec.tier).await?,
        AnyResource::GlobalNetworkPolicy(policy) => tier_exists(client, &policy.spec.tier).await?,
        _ => {}
    }
    Ok(())
}

/// Runs after validation of a new object, with all defaults filled in.
pub(crate) async fn check_create(client: &Client, object: &AnyResource) -> Result<(), ClientError> {
    match object {
        AnyResource::IPPool(pool) => pool::check_blocks(client, pool).await,
        AnyResource::Node(_) => client.ensure_initialized("", "").await,
        _ => Ok(()),
    }
}

/// Runs before defaults and validation of a replacement.
pub(crate) async fn before_update(client: &Client, object: &mut AnyResource) -> Result<(), ClientError> {
    match object {
        AnyResource::IPAMConfiguration(config) => ipam_config_name(&config.metadata.name),
        AnyResource::Profile(profile) if profile.metadata.name == names::DEFAULT_ALLOW_PROFILE => {
            Err(not_supported("Update", default_allow(), ""))
        }
        AnyResource::IPPool(pool) => pool::check_update(client, pool).await,
        AnyResource::WorkloadEndpoint(endpoint) => names_endpoint(endpoint),
        _ => Ok(()),
    }
}

/// Runs before an object is removed; the options may change.
pub(crate) async fn before_delete(
    client: &Client,
    kind: Kind,
    _namespace: &str,
    name: &str,
    options: &DeleteOptions,
) -> Result<DeleteOptions, ClientError> {
    match kind {
        Kind::Profile if name == names::DEFAULT_ALLOW_PROFILE => {
            Err(not_supported("Delete", default_allow(), ""))
        }
        Kind::Tier => {
            if names::is_built_in_tier(name) {
                let reason = format!("Cannot delete {name} tier");
                return Err(not_supported("delete", format!("Tier({name})"), &reason));
            }
            if !options.recursive && tier_in_use(client, name).await? {
                return Err(not_supported(
                    "delete",
                    format!("Tier({name})"),
                    "Cannot delete a non-empty tier",
                ));
            }
            Ok(options.clone())
        }
        Kind::IPPool => pool::before_delete(client, name, options).await,
        Kind::Node => {
            node::before_delete(client, name).await?;
            Ok(options.clone())
        }
        _ => Ok(options.clone()),
    }
}

pub(crate) fn not_supported(operation: &str, id: String, reason: &str) -> ClientError {
    StoreError::NotSupported { operation: operation.into(), id, reason: reason.into() }.into()
}

async fn tier_exists(client: &Client, tier: &str) -> Result<(), ClientError> {
    client.tiers().get("", names::tier_or_default(tier)).await.map(|_| ())
}

async fn tier_in_use(client: &Client, tier: &str) -> Result<bool, ClientError> {
    for kind in TIERED {
        let list = client.objects(kind).list(&Select::default()).await?;
        let used = |object: &AnyResource| match object {
            AnyResource::NetworkPolicy(p) => p.spec.tier == tier,
            AnyResource::GlobalNetworkPolicy(p) => p.spec.tier == tier,
            _ => false,
        };
        if list.items.iter().any(used) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn ipam_config_name(name: &str) -> Result<(), ClientError> {
    if name == "default" {
        return Ok(());
    }
    let reason = "Cannot create an IPAM Configuration resource with a name other than \"default\"";
    Err(ClientError::field("Metadata.Name", Some(name), reason))
}

/// How messages name the profile that exists without being stored.
fn default_allow() -> String {
    format!("Profile({})", names::DEFAULT_ALLOW_PROFILE)
}

/// Gives an endpoint the name that its spec spells.
fn names_endpoint(endpoint: &mut calico_api::WorkloadEndpoint) -> Result<(), ClientError> {
    let spec = &endpoint.spec;
    let ids = WorkloadEndpointIds {
        node: spec.node.as_str().into(),
        orchestrator: spec.orchestrator.as_str().into(),
        pod: spec.pod.as_str().into(),
        container_id: spec.container_id.as_str().into(),
        workload: spec.workload.as_str().into(),
        endpoint: spec.endpoint.as_str().into(),
    };
    let name = ids.name().map_err(|e| ClientError::field("Spec", None, &e.to_string()))?;
    if endpoint.metadata.name.is_empty() {
        endpoint.metadata.name = name;
    } else if endpoint.metadata.name != name {
        let reason = format!(
            "the WorkloadEndpoint name does not match the primary identifiers assigned in the Spec: expected name {name}"
        );
        return Err(ClientError::field("Name", Some(&endpoint.metadata.name), &reason));
    }
    Ok(())
}
