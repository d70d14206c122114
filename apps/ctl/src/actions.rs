//! What is done with objects: create, apply, replace, delete, validate.
//!
//! In: objects in order, the client. Out: [`Outcome`]: which were dealt with and which were refused, and why.
//! Always holds: one object's refusal stops no other; an apply writes only what differs from the store.

use std::time::Duration;

use calico_api::{AnyResource, Kind, ObjectMeta};
use calico_client::{Client, ClientError, DeleteOptions, Select};
use calico_datastore::StoreError;
use calico_model::kubernetes;
use calico_model::names::WorkloadEndpointIds;
use calico_schema::{Op, ValidationErrors, defaults, validate};

use crate::input::{Item, Origin};
use crate::kinds;
use crate::progress::Progress;
use crate::scope::{Scope, ScopeError};

#[cfg(test)]
mod tests;

/// Tries against other writers of the same object.
pub(crate) const TRIES: u32 = 5;

/// What to do with objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// Store as new.
    Create {
        /// Leave alone what exists.
        skip_exists: bool,
    },
    /// Store, new or not.
    Apply,
    /// Replace what exists.
    Replace,
    /// Remove.
    Delete {
        /// What is not there is no error.
        skip_missing: bool,
        /// Take the policies of a tier along.
        recursive: bool,
    },
    /// Only check.
    Validate,
}

/// What became of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Done {
    /// As asked.
    Changed,
    /// It was so already; nothing was written.
    Unchanged,
}

/// What became of all objects.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// The kind, if all are of one.
    pub(crate) kind: Option<Kind>,
    /// How many there were.
    pub(crate) total: usize,
    /// How many were dealt with.
    pub(crate) done: usize,
    /// How many of those were left alone.
    pub(crate) unchanged: usize,
    /// What went along with tiers: `Kind(name)`.
    pub(crate) taken_along: Vec<String>,
    /// Refusals in order.
    pub(crate) errors: Vec<Refusal>,
}

/// Why an object was refused, with the object where it is not obvious.
#[derive(Debug, thiserror::Error)]
#[error("{}{error}", prefix(.id, .error))]
pub(crate) struct Refusal {
    /// `Kind(namespace/name)` of an object that came from a document; else empty.
    pub(crate) id: String,
    /// Why.
    pub(crate) error: ActionError,
}

/// Why an object was refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ActionError {
    /// A namespace that does not fit.
    #[error(transparent)]
    Scope(#[from] ScopeError),
    /// Not to be done with this tool.
    #[error("operation {operation} is not supported on {id}{}", suffix(.reason))]
    NotSupported {
        /// Operation.
        operation: &'static str,
        /// Object or kind.
        id: String,
        /// Why; may be empty.
        reason: &'static str,
    },
    /// The tier that a policy names is not there.
    #[error("error with field spec.tier = '{tier}' ({error})")]
    TierMissing {
        /// Tier.
        tier: String,
        /// The store's answer.
        error: ClientError,
    },
    /// A translated policy meets one that somebody else made.
    #[error(
        "update conflict: {id} was not made from a NetworkPolicy of networking.k8s.io/v1 and is left alone; \
         use another name or manage it as projectcalico.org/v3"
    )]
    NotConverted {
        /// The stored policy.
        id: String,
    },
    /// A tier that holds policies.
    #[error("{error}; \"delete tier {tier} --recursive\" removes the tier and its policies")]
    TierInUse {
        /// Tier.
        tier: String,
        /// The client's answer.
        error: ClientError,
    },
    /// Other writers were faster each time.
    #[error("failed to update the resource: {0}")]
    Exhausted(ClientError),
    /// The object breaks a rule.
    #[error(transparent)]
    Invalid(#[from] ValidationErrors),
    /// Anything else.
    #[error(transparent)]
    Client(#[from] ClientError),
}

fn prefix(id: &str, error: &ActionError) -> String {
    if matches!(error, ActionError::NotSupported { .. }) || id.is_empty() || error.to_string().contains(id) {
        String::new()
    } else {
        format!("{id}: ")
    }
}

fn suffix(reason: &str) -> String {
    if reason.is_empty() { String::new() } else { format!(": {reason}") }
}

impl ActionError {
    /// True if the store cannot be reached, so that going on is of no use.
    fn is_final(&self) -> bool {
        matches!(
            self,
            Self::Client(ClientError::Store(
                StoreError::Unreachable { .. } | StoreError::Unauthorized(_) | StoreError::Config(_)
            ))
        )
    }
}

/// `Kind(name)` or `Kind(namespace/name)`.
pub(crate) fn id(object: &AnyResource) -> String {
    match (object.kind(), object.namespace(), object.name()) {
        (kind, "", name) => format!("{kind}({name})"),
        (kind, namespace, name) => format!("{kind}({namespace}/{name})"),
    }
}

/// Does `action` with every item. The client is only needed by actions other than [`Action::Validate`].
pub(crate) async fn run(
    client: Option<&Client>,
    action: Action,
    items: Vec<Item>,
    scope: &Scope,
    progress: &mut Progress,
) -> Outcome {
    let mut kinds = items.iter().map(|item| item.object.kind());
    let kind = kinds.next().filter(|first| kinds.all(|kind| kind == *first));
    let mut outcome = Outcome { kind, total: items.len(), ..Outcome::default() };
    for mut item in items {
        progress.step(&id(&item.object));
        spell_name(&mut item.object);
        let result = match scope.settle(&mut item) {
            Ok(()) => one(client, action, &item, &mut outcome.taken_along).await,
            Err(error) => Err(error.into()),
        };
        match result {
            Ok(done) => {
                outcome.done += 1;
                outcome.unchanged += usize::from(done == Done::Unchanged);
            }
            Err(error) => {
                let last = error.is_final();
                let id = if item.origin == Origin::Words { String::new() } else { id(&item.object) };
                outcome.errors.push(Refusal { id, error });
                if last {
                    break;
                }
            }
        }
    }
    outcome
}

async fn one(
    client: Option<&Client>,
    action: Action,
    item: &Item,
    taken_along: &mut Vec<String>,
) -> Result<Done, ActionError> {
    let Some(client) = client else {
        validate::prepare(&mut item.object.clone(), Op::Check)?;
        return Ok(Done::Changed);
    };
    match action {
        Action::Validate => {
            Ok(validate::prepare(&mut item.object.clone(), Op::Check).map(|()| Done::Changed)?)
        }
        Action::Create { skip_exists } => match create(client, item, false).await {
            Err(ActionError::Client(error)) if skip_exists && error.is_already_exists() => Ok(Done::Changed),
            result => result,
        },
        Action::Apply if item.object.kind() == Kind::ClusterInformation => {
            let id = item.object.kind().to_string();
            Err(ActionError::NotSupported { operation: "apply", id, reason: "resource is readonly" })
        }
        Action::Apply => match create(client, item, true).await {
            Err(ActionError::Client(error)) if error.is_already_exists() || error.is_not_supported() => {
                update(client, item, true).await
            }
            Err(ActionError::NotSupported { .. }) => update(client, item, true).await,
            result => result,
        },
        Action::Replace => update(client, item, false).await,
        Action::Delete { skip_missing, recursive } => {
            let recursive = recursive && item.origin == Origin::Words;
            match delete(client, item, recursive, taken_along).await {
                Err(ActionError::Client(error)) if skip_missing && error.is_not_found() => Ok(Done::Changed),
                result => result,
            }
        }
    }
}

/// Gives an endpoint without a name the one that its spec spells.
fn spell_name(object: &mut AnyResource) {
    if let AnyResource::WorkloadEndpoint(endpoint) = object
        && endpoint.metadata.name.is_empty()
    {
        let spec = &endpoint.spec;
        let ids = WorkloadEndpointIds {
            node: spec.node.as_str().into(),
            orchestrator: spec.orchestrator.as_str().into(),
            workload: spec.workload.as_str().into(),
            pod: spec.pod.as_str().into(),
            container_id: spec.container_id.as_str().into(),
            endpoint: spec.endpoint.as_str().into(),
        };
        // Without all its parts there is no name; the client says which is missing.
        endpoint.metadata.name = ids.name().unwrap_or_default();
    }
}

/// Refuses objects that this tool does not write.
fn may_write(object: &AnyResource, operation: &'static str) -> Result<(), ActionError> {
    let kind = object.kind();
    if kind == Kind::ClusterInformation {
        return Err(ActionError::NotSupported { operation, id: kind.to_string(), reason: "" });
    }
    if kinds::is_kubernetes_policy(kind, object.name()) {
        let reason = "kubernetes network policies must be managed through the kubernetes API";
        return Err(ActionError::NotSupported { operation, id: id(object), reason });
    }
    Ok(())
}

/// Stores a new object. What only a store knows is left out of it; for an apply the resource version too.
async fn create(client: &Client, item: &Item, apply: bool) -> Result<Done, ActionError> {
    may_write(&item.object, "create or apply")?;
    let mut object = item.object.clone();
    let meta = object.metadata_mut();
    let given = std::mem::take(meta);
    *meta = ObjectMeta {
        name: given.name,
        generate_name: given.generate_name,
        namespace: given.namespace,
        resource_version: if apply { String::new() } else { given.resource_version },
        labels: given.labels,
        annotations: given.annotations,
        ..ObjectMeta::default()
    };
    let kind = object.kind();
    match client.objects(kind).create(object).await {
        Ok(_) => Ok(Done::Changed),
        Err(error) => Err(explained(&item.object, error)),
    }
}

/// Replaces a stored object. With `lazy`, one that would stay as it is is left alone.
async fn update(client: &Client, item: &Item, lazy: bool) -> Result<Done, ActionError> {
    may_write(&item.object, "apply or replace")?;
    let objects = client.objects(item.object.kind());
    let given = item.object.metadata();
    let mut tries = 0;
    loop {
        tries += 1;
        let stored = objects.get(&given.namespace, &given.name).await?;
        if item.origin == Origin::Kubernetes && !kubernetes::is_converted(stored.metadata()) {
            return Err(ActionError::NotConverted { id: id(&stored) });
        }
        let current = &stored.metadata().resource_version;
        if !given.resource_version.is_empty() && given.resource_version != *current {
            return Err(
                ClientError::from(StoreError::UpdateConflict { id: id(&stored), existing: None }).into()
            );
        }
        let mut object = item.object.clone();
        let kept = stored.metadata().clone();
        *object.metadata_mut() =
            ObjectMeta { labels: given.labels.clone(), annotations: given.annotations.clone(), ..kept };
        if lazy && would_stay(&object, &stored) {
            return Ok(Done::Unchanged);
        }
        match objects.update(object).await {
            Ok(_) => return Ok(Done::Changed),
            Err(error) if error.is_conflict() && given.resource_version.is_empty() => {
                if tries == TRIES {
                    return Err(ActionError::Exhausted(error));
                }
                pause(tries).await;
            }
            Err(error) => return Err(explained(&item.object, error)),
        }
    }
}

/// True if an update with `object` would store what is stored.
pub(crate) fn would_stay(object: &AnyResource, stored: &AnyResource) -> bool {
    let mut object = object.clone();
    defaults::apply(&mut object, Op::Update);
    if let AnyResource::WorkloadEndpoint(endpoint) = &mut object {
        let labels = &mut endpoint.metadata.labels;
        labels.insert("projectcalico.org/namespace".into(), endpoint.metadata.namespace.clone());
        labels.insert("projectcalico.org/orchestrator".into(), endpoint.spec.orchestrator.clone());
    }
    object == *stored
}

/// Waits a little, longer with each try.
pub(crate) async fn pause(tries: u32) {
    tokio::time::sleep(Duration::from_millis(50) * tries).await;
}

async fn delete(
    client: &Client,
    item: &Item,
    recursive: bool,
    taken_along: &mut Vec<String>,
) -> Result<Done, ActionError> {
    may_write(&item.object, "delete")?;
    let kind = item.object.kind();
    let objects = client.objects(kind);
    let given = item.object.metadata();
    if item.origin == Origin::Kubernetes {
        let stored = objects.get(&given.namespace, &given.name).await?;
        if !kubernetes::is_converted(stored.metadata()) {
            return Err(ActionError::NotConverted { id: id(&stored) });
        }
    }
    let mut options = DeleteOptions::default();
    if !given.resource_version.is_empty() {
        options.resource_version = Some(given.resource_version.as_str().into());
    }
    let mut doomed = Vec::new();
    if recursive && kind == Kind::Tier {
        options.recursive = true;
        doomed = policies_of(client, &given.name).await?;
    }
    match objects.delete(&given.namespace, &given.name, &options).await {
        Ok(_) => {
            taken_along.extend(doomed);
            Ok(Done::Changed)
        }
        // It is gone; only its last content could not be read.
        Err(ClientError::WrongKind { .. }) => Ok(Done::Changed),
        Err(error) if kind == Kind::Tier && is_in_use(&error) => {
            Err(ActionError::TierInUse { tier: given.name.clone(), error })
        }
        Err(error) => Err(error.into()),
    }
}

/// True if a tier was not deleted because of its policies.
fn is_in_use(error: &ClientError) -> bool {
    matches!(error, ClientError::Store(StoreError::NotSupported { reason, .. }) if reason.contains("non-empty"))
}

/// The policies that belong to a tier.
async fn policies_of(client: &Client, tier: &str) -> Result<Vec<String>, ClientError> {
    let mut found = Vec::new();
    for kind in kinds::TIERED.into_iter().filter(|kind| kind.info().served) {
        let list = client.objects(kind).list(&Select::default()).await?;
        found.extend(list.items.iter().filter(|object| tier_of(object).is_some_and(|t| t == tier)).map(id));
    }
    Ok(found)
}

/// The tier that a policy belongs to; `None` for other kinds.
fn tier_of(object: &AnyResource) -> Option<&str> {
    let tier = match object {
        AnyResource::NetworkPolicy(policy) => &policy.spec.tier,
        AnyResource::GlobalNetworkPolicy(policy) => &policy.spec.tier,
        _ => return None,
    };
    Some(if tier.is_empty() { defaults::DEFAULT_TIER } else { tier })
}

/// An error of the client with what it means for this object.
fn explained(object: &AnyResource, error: ClientError) -> ActionError {
    if let (Some(tier), ClientError::Store(StoreError::DoesNotExist { id })) = (tier_of(object), &error)
        && *id == format!("{}({tier})", Kind::Tier)
    {
        return ActionError::TierMissing { tier: tier.to_owned(), error };
    }
    error.into()
}

/// Replaces a stored object with one made from it. Identical content should not come here.
pub(crate) async fn replace_as_is(client: &Client, object: AnyResource) -> Result<(), ActionError> {
    may_write(&object, "apply or replace")?;
    match client.objects(object.kind()).update(object.clone()).await {
        Ok(_) => Ok(()),
        Err(error) => Err(explained(&object, error)),
    }
}
