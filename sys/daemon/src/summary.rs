//! Prometheus summaries without quantiles: a sum and a count, as upstream's components expose them.

use std::sync::Arc;

use parking_lot::Mutex;
use prometheus::core::{Collector, Desc};
use prometheus::proto::{Metric, MetricFamily, MetricType, Summary as Proto};

/// A summary; clones share it.
#[derive(Debug, Clone)]
pub struct Summary {
    desc: Desc,
    state: Arc<Mutex<(f64, u64)>>,
}

impl Summary {
    /// A summary under `name`.
    pub fn new(name: &str, help: &str) -> prometheus::Result<Self> {
        let desc = Desc::new(name.into(), help.into(), Vec::new(), std::collections::HashMap::new())?;
        Ok(Self { desc, state: Arc::default() })
    }

    /// Adds one observation.
    pub fn observe(&self, value: f64) {
        let mut state = self.state.lock();
        state.0 += value;
        state.1 += 1;
    }
}

impl Collector for Summary {
    fn desc(&self) -> Vec<&Desc> {
        vec![&self.desc]
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let (sum, count) = *self.state.lock();
        let mut summary = Proto::default();
        summary.set_sample_sum(sum);
        summary.set_sample_count(count);
        let mut metric = Metric::default();
        metric.set_summary(summary);
        let mut family = MetricFamily::default();
        family.set_name(self.desc.fq_name.clone());
        family.set_help(self.desc.help.clone());
        family.set_field_type(MetricType::SUMMARY);
        family.set_metric(vec![metric]);
        vec![family]
    }
}

#[cfg(test)]
mod tests {
    use prometheus::{Encoder as _, Registry, TextEncoder};

    use super::*;

    #[test]
    fn sum_and_count_are_exposed() {
        let summary = Summary::new("felix_calc_graph_update_time_seconds", "Time per update.").expect("name");
        let registry = Registry::new();
        registry.register(Box::new(summary.clone())).expect("register");
        summary.observe(0.5);
        summary.observe(0.25);
        let mut text = Vec::new();
        TextEncoder::new().encode(&registry.gather(), &mut text).expect("encode");
        let text = String::from_utf8(text).expect("text");
        assert!(text.contains("# TYPE felix_calc_graph_update_time_seconds summary\n"), "{text}");
        assert!(text.contains("felix_calc_graph_update_time_seconds_sum 0.75\n"), "{text}");
        assert!(text.contains("felix_calc_graph_update_time_seconds_count 2\n"), "{text}");
    }
}
