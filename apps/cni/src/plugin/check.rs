//! CHECK: whether everything that ADD made is still there.

use std::net::IpAddr;

use calico_net::Cidr;

use super::Call;
use super::add::default_routes;
use crate::error::PluginError;
use crate::network::Wiring;

impl Call<'_> {
    /// CHECK of `calico`: endpoint, addresses, interface, routes; against the endpoint and, if the runtime hands it
    /// over, the result of ADD.
    pub(super) fn check(&self) -> Result<(), PluginError> {
        let workload = self.identify()?;
        let container = self.container()?;
        let store = self.open_store()?;
        let name = workload.ids.name()?;
        let found = self.endpoints(&store, &workload)?.into_iter().find(|e| e.metadata.name == name);
        let Some(endpoint) = found else {
            return Err(PluginError::Check(format!("workload endpoint {name} is not there")));
        };
        if workload.is_foreign(&endpoint) {
            let other = &endpoint.spec.container_id;
            return Err(PluginError::Check(format!("workload endpoint {name} belongs to container {other}")));
        }
        let ips: Vec<IpAddr> = endpoint
            .spec
            .ip_networks
            .iter()
            .filter_map(|net| Cidr::parse(net).ok())
            .map(|c| c.addr())
            .collect();
        for ip in self.previous()?.ips {
            let ip = ip.address.addr();
            if !ips.contains(&ip) {
                return Err(PluginError::Check(format!("workload endpoint {name} has no address {ip}")));
            }
        }
        let routes = default_routes(&ips);
        let wiring = Wiring {
            host_name: &endpoint.spec.interface_name,
            container_name: &self.request.ifname,
            ips: &ips,
            routes: &routes,
            mtu: 0,
            queues: 1,
            allow_forwarding: false,
        };
        wiring.check(&container, endpoint.spec.mac.parse().ok())?;
        if self.uses_own_ipam() {
            self.ipam(&store, &workload).check(&ips)
        } else {
            self.delegate()?.check(&self.conf.raw)
        }
    }
}
