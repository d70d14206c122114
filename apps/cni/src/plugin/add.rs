//! ADD: address, interface, endpoint.

use std::net::IpAddr;

use calico_api::WorkloadEndpoint;
use calico_host::NetNs;
use calico_net::{Cidr, IpVersion, Mac};

use super::{Call, ipam_result};
use crate::error::PluginError;
use crate::network::Wiring;
use crate::node;
use crate::result::{AddResult, Interface, IpConfig};
use crate::store::Store;
use crate::workload::Workload;

/// An ADD under way.
struct Adding<'a> {
    call: &'a Call<'a>,
    store: &'a Store,
    workload: &'a Workload,
    container: NetNs,
    mtu: u32,
}

impl Call<'_> {
    /// ADD of `calico`.
    pub(super) fn add(&self) -> Result<String, PluginError> {
        let workload = self.identify()?;
        let mtu = node::mtu(self.conf, self.paths)?;
        self.refuse_unsupported(&workload)?;
        let container = self.container()?;
        let store = self.open_store()?;
        let existing = self.endpoints(&store, &workload)?.into_iter().next();
        let adding = Adding { call: self, store: &store, workload: &workload, container, mtu };
        let result = match existing {
            Some(endpoint) if !workload.is_foreign(&endpoint) => adding.again(endpoint)?,
            existing => adding.fresh(existing)?,
        };
        let written = if self.conf.cni_version.is_empty() { "0.2.0" } else { &self.conf.cni_version };
        let version =
            if self.conf.cni_version.is_empty() { crate::version::SpecVersion::V0_2_0 } else { self.version };
        Ok(result.render(version, written))
    }
}

// === impl Adding ===

impl Adding<'_> {
    /// A container without an endpoint, or a pod whose endpoint belongs to an earlier container (`earlier`, whose
    /// addresses that container's DEL gives back).
    fn fresh(&self, earlier: Option<WorkloadEndpoint>) -> Result<AddResult, PluginError> {
        let obtained = self.obtain()?;
        let ips: Vec<IpAddr> = obtained.ips.iter().map(|ip| ip.address.addr()).collect();
        match self.wire_and_store(earlier, &ips) {
            Ok(mac) => Ok(self.result(obtained, mac, &self.workload.host_interface)),
            Err(error) => {
                self.undo(&obtained);
                Err(error)
            }
        }
    }

    /// ADD repeated for a container that has an endpoint: repairs what is missing, keeps the addresses.
    fn again(&self, mut endpoint: WorkloadEndpoint) -> Result<AddResult, PluginError> {
        let workload = self.workload;
        let ips: Vec<IpAddr> = endpoint
            .spec
            .ip_networks
            .iter()
            .filter_map(|net| Cidr::parse(net).ok())
            .map(|c| c.addr())
            .collect();
        let host_interface = endpoint.spec.interface_name.clone();
        let mut mac = endpoint.spec.mac.parse::<Mac>().ok();
        let before = endpoint.clone();
        // An endpoint of another interface of the same container answers for this one too.
        if endpoint.spec.endpoint == workload.ids.endpoint.as_str() {
            let routes = default_routes(&ips);
            let wiring = self.wiring(&host_interface, &ips, &routes);
            match wiring.check(&self.container, mac) {
                Ok(()) => {}
                Err(PluginError::Check(reason)) => {
                    tracing::info!(reason, "Interface of a known container is made anew");
                    let made = wiring.set_up(&self.container)?;
                    endpoint.spec.mac = made.to_string();
                    mac = Some(made);
                }
                Err(error) => return Err(error),
            }
        }
        let wanted = workload.endpoint(self.call.conf, Some(endpoint.clone()), &ips, Mac([0; 6]))?;
        for profile in wanted.spec.profiles {
            if !endpoint.spec.profiles.contains(&profile) {
                endpoint.spec.profiles.push(profile);
            }
        }
        self.ensure_network_profile(&endpoint)?;
        if endpoint != before {
            let name = endpoint.metadata.name.clone();
            let client = self.store.client().workload_endpoints();
            self.store.run("update", format!("WorkloadEndpoint({name})"), client.update(endpoint))?;
        }
        let known =
            ips.iter().map(|ip| IpConfig { address: Cidr::host(*ip), gateway: None, interface: None });
        let known = AddResult { ips: known.collect(), ..AddResult::default() };
        Ok(self.result(known, mac.unwrap_or(Mac([0; 6])), &host_interface))
    }

    /// Addresses from the configured address manager.
    fn obtain(&self) -> Result<AddResult, PluginError> {
        let call = self.call;
        let obtained = if call.uses_own_ipam() {
            ipam_result(&call.ipam(self.store, self.workload).assign(call.args()?.ip)?)
        } else {
            call.delegate()?.add(&call.conf.raw)?
        };
        if obtained.ips.is_empty() {
            return Err(PluginError::NoAddresses);
        }
        Ok(obtained)
    }

    /// Gives back what [`Self::obtain`] got. The first failure is what the runtime hears of, so this one is logged.
    fn undo(&self, obtained: &AddResult) {
        let call = self.call;
        if call.uses_own_ipam() {
            let ips: Vec<Cidr> = obtained.ips.iter().map(|ip| ip.address).collect();
            call.ipam(self.store, self.workload).give_back(&ips);
        } else if let Err(error) = call.delegate().and_then(|d| d.del(&call.conf.raw)) {
            tracing::error!(%error, "Addresses could not be given back");
        }
    }

    fn wire_and_store(&self, earlier: Option<WorkloadEndpoint>, ips: &[IpAddr]) -> Result<Mac, PluginError> {
        let workload = self.workload;
        // The object is made first, so that bad arguments change nothing in the kernel.
        let mut endpoint = workload.endpoint(self.call.conf, earlier, ips, Mac([0; 6]))?;
        let routes = default_routes(ips);
        let wiring = self.wiring(&workload.host_interface, ips, &routes);
        let mac = wiring.set_up(&self.container)?;
        endpoint.spec.mac = mac.to_string();
        if let Err(error) = self.write_endpoint(&endpoint) {
            if let Err(error) = wiring.remove() {
                tracing::error!(%error, "Interface without endpoint could not be deleted");
            }
            return Err(error);
        }
        self.call.await_policy(&endpoint);
        Ok(mac)
    }

    fn write_endpoint(&self, endpoint: &WorkloadEndpoint) -> Result<(), PluginError> {
        let client = self.store.client().workload_endpoints();
        let object = format!("WorkloadEndpoint({}/{})", endpoint.metadata.namespace, endpoint.metadata.name);
        if endpoint.metadata.resource_version.is_empty() {
            self.store.run("create", object, client.create(endpoint.clone()))?;
        } else {
            self.store.run("update", object, client.update(endpoint.clone()))?;
        }
        self.ensure_network_profile(endpoint)
    }

    /// Makes the profile of the network's name if the endpoint takes it, nothing else makes policy, and it is not there.
    /// It is never changed: whoever runs the network may have.
    fn ensure_network_profile(&self, endpoint: &WorkloadEndpoint) -> Result<(), PluginError> {
        if !self.call.conf.policy_type.is_empty() || !self.workload.needs_network_profile(endpoint) {
            return Ok(());
        }
        let name = self.workload.network();
        let profiles = self.store.client().profiles();
        let object = format!("Profile({name})");
        let found = self.store.run("read", object.clone(), async {
            match profiles.get("", name).await {
                Ok(_) => Ok(true),
                Err(error) if error.is_not_found() => Ok(false),
                Err(error) => Err(error),
            }
        })?;
        if found {
            return Ok(());
        }
        self.store.run("create", object, async {
            match profiles.create(self.workload.network_profile()).await {
                Err(error) if !error.is_already_exists() => Err(error),
                _ => Ok(()),
            }
        })
    }

    fn wiring<'w>(&'w self, host_name: &'w str, ips: &'w [IpAddr], routes: &'w [Cidr]) -> Wiring<'w> {
        Wiring {
            host_name,
            container_name: &self.call.request.ifname,
            ips,
            routes,
            mtu: self.mtu,
            queues: self.call.conf.num_queues,
            allow_forwarding: self.call.conf.allow_ip_forwarding,
        }
    }

    /// The result for the runtime: addresses narrowed to single ones, routes as the address manager told them.
    fn result(&self, obtained: AddResult, mac: Mac, host_interface: &str) -> AddResult {
        let request = self.call.request;
        AddResult {
            interfaces: vec![
                Interface { name: host_interface.to_owned(), ..Interface::default() },
                Interface {
                    name: request.ifname.clone(),
                    mac: mac.to_string(),
                    mtu: self.mtu,
                    sandbox: request.netns.clone(),
                },
            ],
            ips: obtained
                .ips
                .iter()
                .map(|ip| IpConfig {
                    address: Cidr::host(ip.address.addr()),
                    gateway: None,
                    interface: Some(1),
                })
                .collect(),
            routes: obtained.routes,
        }
    }
}

/// Everything, through the gateway, per family that the container has.
pub(super) fn default_routes(ips: &[IpAddr]) -> Vec<Cidr> {
    let everything = [
        Cidr::new(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 0),
        Cidr::new(IpAddr::V6(std::net::Ipv6Addr::UNSPECIFIED), 0),
    ];
    everything
        .into_iter()
        .flatten()
        .filter(|all| ips.iter().any(|ip| IpVersion::of(*ip) == all.version()))
        .collect()
}
