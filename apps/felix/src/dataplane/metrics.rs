//! Counters of the dataplane, under upstream's names.

use std::time::Duration;

use calico_daemon::summary::Summary;
use calico_dpmsg::Message;
use calico_net::IpVersion;
use calico_netfilter::Sizes;
use prometheus::core::Collector;
use prometheus::{Gauge, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry};

use super::report::ApplyReport;

/// Name of the main routing table in labels.
const MAIN_TABLE: &str = "254";

/// Counters of the dataplane.
#[derive(Debug, Clone)]
pub(crate) struct DataplaneMetrics {
    failures: IntCounter,
    messages: IntCounterVec,
    apply_time: Summary,
    initial_resync: Gauge,
    batch_size: Summary,
    iface_batch_size: Summary,
    addr_batch_size: Summary,
    nft_calls: IntCounter,
    nft_errors: IntCounter,
    nft_chains: IntGaugeVec,
    nft_rules: IntGaugeVec,
    nft_sets: IntGaugeVec,
    nft_maps: IntGaugeVec,
    ipsets: IntGaugeVec,
    ipsets_total: IntGauge,
    routes: IntGaugeVec,
    route_ifaces: IntGaugeVec,
    route_resync: Summary,
    route_partial_resync: Summary,
    conntrack_wait: Summary,
}

// === impl DataplaneMetrics ===

impl DataplaneMetrics {
    /// Makes the counters and registers them.
    pub(crate) fn new(registry: &Registry) -> prometheus::Result<Self> {
        let add = |metric: Box<dyn Collector>| registry.register(metric);
        let counter = |name: &str, help: &str| -> prometheus::Result<IntCounter> {
            let metric = IntCounter::new(name, help)?;
            add(Box::new(metric.clone()))?;
            Ok(metric)
        };
        let summary = |name: &str, help: &str| -> prometheus::Result<Summary> {
            let metric = Summary::new(name, help)?;
            add(Box::new(metric.clone()))?;
            Ok(metric)
        };
        let gauges = |name: &str, help: &str, label: &str| -> prometheus::Result<IntGaugeVec> {
            let metric = IntGaugeVec::new(Opts::new(name, help), &[label])?;
            add(Box::new(metric.clone()))?;
            Ok(metric)
        };
        let messages = IntCounterVec::new(
            Opts::new("felix_int_dataplane_messages", "Messages from the calculation graph, by type."),
            &["type"],
        )?;
        add(Box::new(messages.clone()))?;
        let initial_resync = Gauge::new(
            "felix_int_dataplane_initial_resync_time_seconds",
            "Seconds from the start to the first complete programming.",
        )?;
        add(Box::new(initial_resync.clone()))?;
        let ipsets_total = IntGauge::new("felix_ipsets_total", "Sets of addresses in the kernel.")?;
        add(Box::new(ipsets_total.clone()))?;
        Ok(Self {
            failures: counter("felix_int_dataplane_failures", "Applies that failed in part.")?,
            messages,
            apply_time: summary("felix_int_dataplane_apply_time_seconds", "Seconds per apply.")?,
            initial_resync,
            batch_size: summary("felix_int_dataplane_msg_batch_size", "Messages taken in at once.")?,
            iface_batch_size: summary(
                "felix_int_dataplane_iface_msg_batch_size",
                "Events about links taken in at once.",
            )?,
            addr_batch_size: summary(
                "felix_int_dataplane_addr_msg_batch_size",
                "Events about addresses taken in at once.",
            )?,
            nft_calls: counter("felix_nft_calls", "Transactions of nftables.")?,
            nft_errors: counter("felix_nft_errors", "Transactions of nftables that failed.")?,
            nft_chains: gauges("felix_nft_chains", "Chains in the kernel.", "ip_version")?,
            nft_rules: gauges("felix_nft_rules", "Rules in the kernel.", "ip_version")?,
            nft_sets: gauges("felix_nft_sets", "Sets in the kernel.", "ip_version")?,
            nft_maps: gauges("felix_nft_maps", "Verdict maps in the kernel.", "ip_version")?,
            ipsets: gauges("felix_ipsets_calico", "Sets of addresses in the kernel.", "ip_version")?,
            ipsets_total,
            routes: gauges("felix_route_table_num_routes", "Routes in the kernel that are ours.", "table")?,
            route_ifaces: gauges("felix_route_table_num_ifaces", "Links that may carry routes.", "table")?,
            route_resync: summary(
                "felix_route_table_resync_seconds",
                "Seconds to read the whole routing table.",
            )?,
            route_partial_resync: summary(
                "felix_route_table_partial_resync_seconds",
                "Seconds to read the routes of some links.",
            )?,
            conntrack_wait: summary(
                "felix_route_table_conntrack_wait_seconds",
                "Seconds to make connection tracking forget addresses.",
            )?,
        })
    }

    /// Counts messages that are taken in at once.
    pub(crate) fn took_messages(&self, count: usize) {
        self.batch_size.observe(count as f64);
    }

    pub(crate) fn took_message(&self, message: &Message) {
        self.messages.with_label_values(&[kind(message)]).inc();
    }

    /// Counts events that are taken in at once.
    pub(crate) fn took_events(&self, links: usize, addresses: usize) {
        for (count, summary) in [(links, &self.iface_batch_size), (addresses, &self.addr_batch_size)] {
            if count > 0 {
                summary.observe(count as f64);
            }
        }
    }

    /// Notes how long the node took to be programmed first.
    pub(crate) fn programmed_first(&self, after: Duration) {
        self.initial_resync.set(after.as_secs_f64());
    }

    /// Counts an apply and what there is after it.
    pub(crate) fn applied(
        &self,
        report: &ApplyReport,
        took: Duration,
        sizes: impl Iterator<Item = (IpVersion, Sizes, usize, usize)>,
    ) {
        self.apply_time.observe(took.as_secs_f64());
        self.failures.inc_by(u64::from(!report.failures.is_empty()));
        self.nft_calls.inc_by(report.writes.transactions as u64);
        self.nft_errors.inc_by(report.nft_failures() as u64);
        for (times, summary) in [
            (&report.times.full_reads, &self.route_resync),
            (&report.times.partial_reads, &self.route_partial_resync),
            (&report.times.conntrack, &self.conntrack_wait),
        ] {
            times.iter().for_each(|t| summary.observe(t.as_secs_f64()));
        }
        let (mut all_sets, mut all_routes, mut all_ifaces) = (0, 0, 0);
        for (version, sizes, routes, ifaces) in sizes {
            let number = version.number().to_string();
            let family = match version {
                IpVersion::V4 => "inet",
                IpVersion::V6 => "inet6",
            };
            for (gauge, label, value) in [
                (&self.nft_chains, number.as_str(), sizes.chains),
                (&self.nft_rules, number.as_str(), sizes.rules),
                (&self.nft_sets, number.as_str(), sizes.sets),
                (&self.nft_maps, number.as_str(), sizes.maps),
                (&self.ipsets, family, sizes.sets),
            ] {
                gauge.with_label_values(&[label]).set(gauge_value(value));
            }
            all_sets += sizes.sets;
            all_routes += routes;
            all_ifaces = ifaces.max(all_ifaces);
        }
        self.ipsets_total.set(gauge_value(all_sets));
        self.routes.with_label_values(&[MAIN_TABLE]).set(gauge_value(all_routes));
        self.route_ifaces.with_label_values(&[MAIN_TABLE]).set(gauge_value(all_ifaces));
    }
}

fn gauge_value(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

fn kind(message: &Message) -> &'static str {
    match message {
        Message::DatastoreNotReady => "DatastoreNotReady",
        Message::ConfigUpdate(_) => "ConfigUpdate",
        Message::IpSetUpdate { .. } => "IPSetUpdate",
        Message::IpSetDelta { .. } => "IPSetDeltaUpdate",
        Message::IpSetRemove(_) => "IPSetRemove",
        Message::PolicyUpdate(..) => "ActivePolicyUpdate",
        Message::PolicyRemove(_) => "ActivePolicyRemove",
        Message::ProfileUpdate(..) => "ActiveProfileUpdate",
        Message::ProfileRemove(_) => "ActiveProfileRemove",
        Message::WorkloadEndpointUpdate(..) => "WorkloadEndpointUpdate",
        Message::WorkloadEndpointRemove(_) => "WorkloadEndpointRemove",
        Message::HostEndpointUpdate(..) => "HostEndpointUpdate",
        Message::HostEndpointRemove(_) => "HostEndpointRemove",
        Message::RouteUpdate(_) => "RouteUpdate",
        Message::RouteRemove(_) => "RouteRemove",
        Message::VtepUpdate(_) => "VXLANTunnelEndpointUpdate",
        Message::VtepRemove(_) => "VXLANTunnelEndpointRemove",
        Message::HostMetadataUpdate(_) => "HostMetadataUpdate",
        Message::HostMetadataRemove(_) => "HostMetadataRemove",
        Message::IpPoolUpdate(_) => "IPAMPoolUpdate",
        Message::IpPoolRemove(_) => "IPAMPoolRemove",
        Message::Encapsulation(_) => "Encapsulation",
        Message::InSync => "InSync",
    }
}

#[cfg(test)]
mod tests {
    use prometheus::{Encoder as _, TextEncoder};

    use super::*;
    use crate::dataplane::report::Failure;

    #[test]
    fn an_apply_shows_under_the_known_names() {
        let registry = Registry::new();
        let metrics = DataplaneMetrics::new(&registry).expect("names");
        let mut report = ApplyReport { ran: true, ..Default::default() };
        report.writes.transactions = 3;
        report.times.full_reads.push(Duration::from_millis(250));
        report.failures.push(Failure::Nft { table: "ip", source: calico_netfilter::KernelError::Unstable });
        let sizes = Sizes { chains: 7, rules: 9, sets: 4, members: 0, maps: 2 };
        metrics.took_message(&Message::InSync);
        metrics.took_messages(1);
        metrics.applied(&report, Duration::from_millis(500), [(IpVersion::V4, sizes, 5, 2)].into_iter());
        let mut text = Vec::new();
        TextEncoder::new().encode(&registry.gather(), &mut text).expect("encode");
        let text = String::from_utf8(text).expect("text");
        for line in [
            "felix_int_dataplane_failures 1",
            "felix_int_dataplane_messages{type=\"InSync\"} 1",
            "felix_int_dataplane_apply_time_seconds_sum 0.5",
            "felix_int_dataplane_msg_batch_size_count 1",
            "felix_nft_calls 3",
            "felix_nft_errors 1",
            "felix_nft_chains{ip_version=\"4\"} 7",
            "felix_ipsets_calico{ip_version=\"inet\"} 4",
            "felix_ipsets_total 4",
            "felix_route_table_num_routes{table=\"254\"} 5",
            "felix_route_table_resync_seconds_sum 0.25",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
        }
    }
}
