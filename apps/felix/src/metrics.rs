//! Counters of the calculation graph, under upstream's names.

use std::time::Duration;

use calico_calc::Counts;
use calico_daemon::summary::Summary;
use calico_dpmsg::Message;
use calico_model::{Key, SyncStatus, Update};
use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry};

/// Counters of the calculation graph.
#[derive(Debug, Clone)]
pub struct CalcMetrics {
    resync_state: IntGauge,
    resyncs_started: IntCounter,
    updates: IntCounterVec,
    update_time: Summary,
    output_events: IntCounter,
    active_endpoints: IntGauge,
    active_policies: IntGauge,
    active_selectors: IntGauge,
    hosts: IntGauge,
    policies: IntGauge,
    tiers: IntGauge,
    items: IntGauge,
}

// === impl CalcMetrics ===

impl CalcMetrics {
    /// Makes the counters and registers them; `hostname` labels `felix_host`.
    pub fn new(registry: &Registry, hostname: &str) -> prometheus::Result<Self> {
        let gauge = |name: &str, help: &str| -> prometheus::Result<IntGauge> {
            let gauge = IntGauge::new(name, help)?;
            registry.register(Box::new(gauge.clone()))?;
            Ok(gauge)
        };
        let counter = |name: &str, help: &str| -> prometheus::Result<IntCounter> {
            let counter = IntCounter::new(name, help)?;
            registry.register(Box::new(counter.clone()))?;
            Ok(counter)
        };
        let host = IntGaugeVec::new(Opts::new("felix_host", "This node, as a label."), &["host"])?;
        registry.register(Box::new(host.clone()))?;
        host.with_label_values(&[hostname]).set(1);
        let updates = IntCounterVec::new(
            Opts::new(
                "felix_calc_graph_updates_processed",
                "Changes taken from the datastore, by kind of key.",
            ),
            &["type"],
        )?;
        registry.register(Box::new(updates.clone()))?;
        let update_time =
            Summary::new("felix_calc_graph_update_time_seconds", "Seconds to take in one change.")?;
        registry.register(Box::new(update_time.clone()))?;
        Ok(Self {
            resync_state: gauge(
                "felix_resync_state",
                "1: waiting for the datastore, 2: resync, 3: in sync.",
            )?,
            resyncs_started: counter("felix_resyncs_started", "Times that the datastore was read anew.")?,
            updates,
            update_time,
            output_events: counter("felix_calc_graph_output_events", "Messages to the dataplane.")?,
            active_endpoints: gauge("felix_active_local_endpoints", "Endpoints of this node.")?,
            active_policies: gauge("felix_active_local_policies", "Policies that apply on this node.")?,
            active_selectors: gauge("felix_active_local_selectors", "Sets that rules on this node name.")?,
            hosts: gauge("felix_cluster_num_hosts", "Nodes of the cluster.")?,
            policies: gauge("felix_cluster_num_policies", "Policies of the cluster.")?,
            tiers: gauge("felix_cluster_num_tiers", "Tiers of the cluster.")?,
            items: gauge("felix_label_index_num_endpoints", "Endpoints and network sets of the cluster.")?,
        })
    }

    pub(crate) fn status(&self, status: SyncStatus) {
        self.resync_state.set(match status {
            SyncStatus::WaitForDatastore => 1,
            SyncStatus::ResyncInProgress => 2,
            SyncStatus::InSync => 3,
        });
        if status == SyncStatus::ResyncInProgress {
            self.resyncs_started.inc();
        }
    }

    pub(crate) fn update(&self, update: &Update) {
        let kind = match &update.kv.key {
            Key::Resource(key) => key.kind.name(),
            Key::Block(_) => "block",
            Key::GlobalConfig(_) | Key::HostConfig { .. } | Key::ReadyFlag => "config",
            Key::HostEndpoint { .. } => "hostendpoint",
            Key::WorkloadEndpoint(_) => "workloadendpoint",
            Key::IpPool(_) => "ippool",
            Key::NetworkSet(_) => "networkset",
            Key::Tier(_) => "tier",
            Key::ProfileRules(_) | Key::ProfileLabels(_) => "profile",
            Key::Policy(_) => "policy",
            _ => "other",
        };
        self.updates.with_label_values(&[kind]).inc();
    }

    pub(crate) fn took(&self, time: Duration) {
        self.update_time.observe(time.as_secs_f64());
    }

    pub(crate) fn flushed(&self, messages: &[Message], counts: &Counts) {
        let number = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        self.output_events.inc_by(messages.len() as u64);
        self.active_endpoints.set(number(counts.local_endpoints));
        self.active_policies.set(number(counts.active_policies));
        self.active_selectors.set(number(counts.ip_sets));
        self.hosts.set(number(counts.nodes));
        self.policies.set(number(counts.policies));
        self.tiers.set(number(counts.tiers));
        self.items.set(number(counts.items));
    }
}
