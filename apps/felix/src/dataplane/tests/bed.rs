//! A dataplane over a kernel in memory.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use calico_dpmsg::Message;
use calico_host::Sysctl;
use calico_net::IpVersion;
use calico_netfilter::{Family, MemoryNft, MemoryTable};

use super::objects::params;
use crate::config::Params;
use crate::dataplane::engine::Core;
use crate::dataplane::net::Change;
use crate::dataplane::net::memory::MemoryNet;
use crate::dataplane::report::ApplyReport;

/// A dataplane over memory, with kernel parameters as files.
pub(super) struct Bed {
    pub(super) core: Core<MemoryNft, MemoryNet>,
    params: Arc<Params>,
    pub(super) dir: tempfile::TempDir,
    pub(super) now: Instant,
}

impl Bed {
    /// Links: `eth0` with 172.16.5.1/24, and the workload links named.
    pub(super) fn new(links: &[&str], settings: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().expect("directory");
        let params = params("here", dir.path(), settings);
        let mut net = MemoryNet::default();
        net.add_link("lo");
        net.add_link("eth0");
        net.add_address("eth0", "172.16.5.1/24");
        for name in links {
            net.add_link(name);
        }
        let mut bed = Self {
            core: core(&params, net, dir.path(), MemoryNft::default),
            params,
            dir,
            now: Instant::now(),
        };
        bed.make_parameters();
        // What IPv6 needs is there before the start.
        let net = bed.core.net_mut().clone();
        bed.core = core(&bed.params, net, bed.dir.path(), MemoryNft::default);
        bed
    }

    pub(super) fn make_parameters(&mut self) {
        let put = |name: String| {
            let path = self.dir.path().join("sys").join(name);
            std::fs::create_dir_all(path.parent().expect("folder")).expect("folder");
            if !path.exists() {
                std::fs::write(path, "0").expect("parameter");
            }
        };
        for name in ["net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding", "net/ipv4/conf/default/rp_filter"]
        {
            put(name.to_owned());
        }
        let names: Vec<String> = self.core.net_mut().links.values().map(|l| l.name.clone()).collect();
        for link in names {
            for name in ["route_localnet", "proxy_arp", "forwarding", "rp_filter"] {
                put(format!("net/ipv4/conf/{link}/{name}"));
            }
            for name in ["proxy_ndp", "forwarding", "accept_ra"] {
                put(format!("net/ipv6/conf/{link}/{name}"));
            }
        }
    }

    pub(super) fn send(&mut self, messages: &[Message]) {
        messages.iter().for_each(|m| self.core.on_message(m));
    }

    pub(super) fn apply(&mut self) -> ApplyReport {
        let mut report = self.core.apply(self.now);
        // What the work brought along is done too.
        if report.due.is_some_and(|d| d <= self.now) {
            let more = self.core.apply(self.now);
            report.writes.transactions += more.writes.transactions;
            report.writes.routes += more.writes.routes;
            report.writes.neighbours += more.writes.neighbours;
            report.failures.extend(more.failures);
        }
        assert!(report.failures.is_empty(), "{:?}", report.failures);
        assert_eq!(report.refused, [""; 0]);
        report
    }

    /// A new process over the same kernel.
    pub(super) fn restart(&mut self) {
        let net = self.core.net_mut().clone();
        let kernels: Vec<MemoryNft> = self.core.filters_mut().map(|f| f.kernel_mut().clone()).collect();
        let left = std::cell::RefCell::new(kernels.into_iter());
        let next = || left.borrow_mut().next().expect("kernel");
        self.core = core(&self.params, net, self.dir.path(), next);
    }

    pub(super) fn tables(&mut self) -> BTreeMap<(Family, String), MemoryTable> {
        let mut out = BTreeMap::new();
        for filter in self.core.filters_mut() {
            let tables = filter.kernel_mut().tables.clone();
            out.extend(tables.into_iter().map(|((f, name), t)| ((f, name.to_string()), t)));
        }
        out
    }

    pub(super) fn table(&mut self, family: Family) -> MemoryTable {
        self.tables().remove(&(family, "calico".to_owned())).expect("table")
    }

    pub(super) fn verdict(&mut self, iface: &str) -> Option<String> {
        let table = self.table(V4);
        table.maps["filter-cali-to-wl-dispatch"].get(iface).map(ToString::to_string)
    }

    pub(super) fn moved(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.core.net_mut().log)
    }

    /// Everything that is programmed. Neighbours on links that no endpoint has are without effect, and left out.
    pub(super) fn world(&mut self) -> World {
        let tables = self.tables();
        let net = self.core.net_mut();
        let name = |i: u32| net.links.get(&i).map(|l| l.name.clone()).unwrap_or_default();
        let counts = |i: u32| name(i).starts_with("vxlan") || net.routes.iter().any(|r| r.oif == Some(i));
        let mut neighbours: Vec<String> = net
            .neighbours
            .iter()
            .filter(|n| counts(n.index))
            .map(|n| format!("{} {:?} {}", n.addr, n.mac, name(n.index)))
            .chain(net.fdb.iter().map(|f| format!("{} {:?} {}", f.mac, f.dst, name(f.index))))
            .collect();
        neighbours.sort();
        let mut links: Vec<String> =
            net.links.values().map(|l| format!("{} {} {}", l.name, l.mtu, l.flags)).collect();
        links.sort();
        World { tables, routes: net.table(), neighbours, links }
    }

    pub(super) fn status(&self) -> Vec<String> {
        let Ok(list) = std::fs::read_dir(self.dir.path().join("endpoint-status")) else { return Vec::new() };
        let mut names: Vec<_> =
            list.map(|e| e.expect("entry").file_name().into_string().expect("name")).collect();
        names.sort();
        names
    }
}

/// Everything that is programmed, as texts where indexes may differ.
#[derive(Debug, PartialEq)]
pub(super) struct World {
    tables: BTreeMap<(Family, String), MemoryTable>,
    routes: Vec<String>,
    neighbours: Vec<String>,
    links: Vec<String>,
}

pub(super) const V4: Family = Family::Ip(IpVersion::V4);

fn core(
    params: &Arc<Params>,
    net: MemoryNet,
    dir: &std::path::Path,
    kernel: impl Fn() -> MemoryNft,
) -> Core<MemoryNft, MemoryNet> {
    let sysctl = Sysctl::under(dir.join("sys"));
    Core::new(Arc::clone(params), || Ok(kernel()), net, sysctl).expect("core")
}
