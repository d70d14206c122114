//! What one address family has of its own: its rules, its sets and its routes.

use std::sync::Arc;

use calico_net::IpVersion;
use calico_netfilter::{Family, NftDataplane, NftKernel};
use calico_rules::nft::{self, NftChain};
use calico_rules::{Chain, ConfigError, Problem, Renderer, RuleConfig};
use smol_str::SmolStr;

use super::routes::RouteTable;

/// One family.
pub(crate) struct Plane<N> {
    pub(crate) version: IpVersion,
    pub(crate) renderer: Renderer,
    pub(crate) filter: NftDataplane<N>,
    pub(crate) routes: RouteTable,
    /// Rules were in the kernel once since the start, so that routes may lead to workloads.
    pub(crate) guarded: bool,
}

// === impl Plane ===

impl<N: NftKernel> Plane<N> {
    pub(crate) fn new(
        kernel: N,
        config: &Arc<RuleConfig>,
        routes: RouteTable,
        version: IpVersion,
    ) -> Result<Self, ConfigError> {
        let renderer = Renderer::new(Arc::clone(config), version)?;
        let mut filter = NftDataplane::new(kernel, Family::Ip(version), nft::TABLE);
        for map in nft::workload_maps() {
            filter.add_map(&map);
        }
        Ok(Self { version, renderer, filter, routes, guarded: false })
    }

    /// Takes other settings; chains rendered before stay as they are.
    pub(crate) fn reconfigure(&mut self, config: &Arc<RuleConfig>) -> Result<(), ConfigError> {
        self.renderer = Renderer::new(Arc::clone(config), self.version)?;
        Ok(())
    }

    /// Makes the chains that `owner` gives exactly these, and says in the log what could not be rendered.
    pub(crate) fn give(&mut self, owner: &SmolStr, chains: &[Chain], problems: &[Problem]) {
        // Each family has the same problems; one report is enough.
        if self.version == IpVersion::V4 {
            for problem in problems {
                tracing::warn!(%problem, "An object cannot be rendered and fails closed");
            }
        }
        let chains: Vec<NftChain> = chains.iter().map(|c| nft::chain(self.version, c)).collect();
        self.filter.update_chains(owner.clone(), chains);
    }

    /// Sends packets of a workload's interface to its chains, or nowhere.
    pub(crate) fn dispatch(&mut self, iface: &SmolStr, on: bool) {
        for entry in self.renderer.workload_entries(iface) {
            let (map, iface, chain) = nft::map_entry(&entry);
            self.filter.set_verdict(&map, &iface, on.then_some(chain));
        }
    }
}
