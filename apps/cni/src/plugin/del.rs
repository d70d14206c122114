//! DEL: everything that ADD made, as far as it is there.
//!
//! A step that fails does not keep the others from being tried; all failures are reported together, and the runtime
//! tries again. One exception: addresses stay assigned while their interface may still be there, since the next
//! container to get one would clash with it.

use calico_api::WorkloadEndpoint;
use calico_client::{ClientError, DeleteOptions, Select};
use calico_host::NetNs;
use calico_model::names::WorkloadEndpointIds;
use calico_net::Cidr;

use super::Call;
use crate::error::PluginError;
use crate::network::{Removal, tear_down};
use crate::store::Store;
use crate::workload::Workload;

/// Attempts to delete an endpoint that others change.
const ATTEMPTS: usize = 5;

/// What DEL found in the store.
enum Found {
    /// The endpoint of this container and interface.
    Ours(Box<WorkloadEndpoint>),
    /// None of this interface; a pod's belongs to a later container, or there is none at all.
    Nothing,
    /// The container is wired under another interface or network, which its own DEL undoes.
    Other,
}

impl Call<'_> {
    /// DEL of `calico`.
    pub(super) fn del(&self) -> Result<(), PluginError> {
        let workload = self.identify()?;
        let container = self.container_if_there()?;
        let mut troubles = Vec::new();
        let store = self.open_store().map_err(|error| troubles.push(error)).ok();
        let found = match &store {
            None => None,
            Some(store) => self.find(store, &workload).map_err(|error| troubles.push(error)).ok(),
        };
        if matches!(found, Some(Found::Other)) {
            tracing::info!("Container is not wired under this interface and network, nothing to do");
            return Ok(());
        }
        let found_answer = found.is_some();
        let endpoint = match found {
            Some(Found::Ours(endpoint)) => Some(endpoint),
            _ => None,
        };
        // Without the store's answer only an address manager outside of it can be told.
        let may_release = found_answer || !self.uses_own_ipam();
        let gone = self.delete_interface(store.as_ref(), &workload, endpoint.as_deref(), container.as_ref());
        let interface_gone = gone.map_err(|error| troubles.push(error)).is_ok();
        if let (Some(store), Some(endpoint)) = (&store, endpoint)
            && let Err(error) = delete_endpoint(store, *endpoint)
        {
            troubles.push(error);
        }
        if interface_gone
            && may_release
            && let Err(error) = self.release(store.as_ref(), &workload)
        {
            troubles.push(error);
        }
        match troubles.len() {
            0 => Ok(()),
            1 => Err(troubles.remove(0)),
            _ => Err(PluginError::Several(troubles)),
        }
    }

    /// The container's namespace; `None` if it is gone, which is no failure.
    fn container_if_there(&self) -> Result<Option<NetNs>, PluginError> {
        if self.request.netns.is_empty() {
            return Ok(None);
        }
        match NetNs::open(&self.request.netns) {
            Ok(ns) => {
                self.refuse_own(&ns)?;
                Ok(Some(ns))
            }
            Err(error) if error.is_gone() => {
                tracing::info!(netns = self.request.netns, "Network namespace is gone");
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn find(&self, store: &Store, workload: &Workload) -> Result<Found, PluginError> {
        let (ours, others): (Vec<_>, Vec<_>) = self
            .endpoints(store, workload)?
            .into_iter()
            .filter(|endpoint| !workload.is_foreign(endpoint))
            .partition(|endpoint| endpoint.spec.endpoint == workload.ids.endpoint.as_str());
        match ours.into_iter().next() {
            Some(endpoint) if self.is_of_other_network(store, workload, &endpoint)? => Ok(Found::Other),
            Some(endpoint) => Ok(Found::Ours(Box::new(endpoint))),
            None if !others.is_empty() => Ok(Found::Other),
            None => Ok(Found::Nothing),
        }
    }

    /// True if the endpoint's addresses are held for this container by another network.
    fn is_of_other_network(
        &self,
        store: &Store,
        workload: &Workload,
        endpoint: &WorkloadEndpoint,
    ) -> Result<bool, PluginError> {
        if !self.uses_own_ipam() || endpoint.spec.profiles.first().is_some_and(|p| p == workload.network()) {
            return Ok(false);
        }
        let ipam = self.ipam(store, workload);
        let own = [workload.handle(), workload.legacy_handle()];
        let suffix = format!(".{}", self.request.container_id);
        for net in &endpoint.spec.ip_networks {
            let Ok(cidr) = Cidr::parse(net) else { continue };
            match ipam.holder(cidr.addr())? {
                Some(handle) if own.iter().any(|h| *h == handle) => return Ok(false),
                Some(handle) if handle.ends_with(&suffix) => return Ok(true),
                _ => {}
            }
        }
        Ok(false)
    }

    fn delete_interface(
        &self,
        store: Option<&Store>,
        workload: &Workload,
        endpoint: Option<&WorkloadEndpoint>,
        container: Option<&NetNs>,
    ) -> Result<(), PluginError> {
        let name = endpoint.map_or(workload.host_interface.as_str(), |e| e.spec.interface_name.as_str());
        let removal = match container {
            Some(container) => tear_down(name, Some(container))?,
            // The runtime does not say where the other end is.
            None => Removal::Elsewhere,
        };
        let removal = match (removal, endpoint, store) {
            // The endpoint names the host end, which is enough unless another endpoint does too.
            (Removal::Elsewhere, Some(_), Some(store)) if !self.is_shared(store, workload, name)? => {
                tear_down(name, None)?
            }
            (removal, ..) => removal,
        };
        tracing::info!(interface = name, ?removal, "Host interface looked after");
        Ok(())
    }

    /// True if an endpoint of another container on this node has the same host end.
    fn is_shared(&self, store: &Store, workload: &Workload, interface: &str) -> Result<bool, PluginError> {
        let node = WorkloadEndpointIds { node: workload.ids.node.clone(), ..WorkloadEndpointIds::default() };
        let prefix = node.name_prefix()?;
        let select = Select { name: &prefix, prefix: true, ..Select::default() };
        let client = store.client().workload_endpoints();
        let list = store.run("list", "WorkloadEndpoints", client.list(&select))?;
        Ok(list.items.iter().any(|e| {
            e.spec.node == workload.ids.node.as_str()
                && e.spec.interface_name == interface
                && workload.is_foreign(e)
        }))
    }

    fn release(&self, store: Option<&Store>, workload: &Workload) -> Result<(), PluginError> {
        if !self.uses_own_ipam() {
            return self.delegate()?.del(&self.conf.raw);
        }
        match store {
            Some(store) => self.ipam(store, workload).release(),
            None => Ok(()),
        }
    }
}

/// Deletes the endpoint, as long as it stays this container's.
fn delete_endpoint(store: &Store, endpoint: WorkloadEndpoint) -> Result<(), PluginError> {
    let client = store.client().workload_endpoints();
    let (namespace, name) = (endpoint.metadata.namespace.clone(), endpoint.metadata.name.clone());
    let container = endpoint.spec.container_id.clone();
    let object = format!("WorkloadEndpoint({namespace}/{name})");
    let deleted = store.run("delete", object.clone(), async {
        let mut current = endpoint;
        for _ in 0..ATTEMPTS {
            let options = DeleteOptions {
                resource_version: Some(current.metadata.resource_version.as_str().into()),
                uid: Some(current.metadata.uid.clone()),
                recursive: false,
            };
            match client.delete(&namespace, &name, &options).await {
                Ok(_) => return Ok(true),
                Err(error) if error.is_not_found() => return Ok(true),
                Err(error) if error.is_conflict() => {}
                Err(error) => return Err(error),
            }
            current = match client.get(&namespace, &name).await {
                Ok(endpoint) if endpoint.spec.container_id == container => endpoint,
                // A later container's now.
                Ok(_) => return Ok(true),
                Err(error) if error.is_not_found() => return Ok(true),
                Err(error) => return Err(error),
            };
        }
        Ok::<bool, ClientError>(false)
    })?;
    if deleted { Ok(()) } else { Err(PluginError::EndpointContention(object)) }
}
