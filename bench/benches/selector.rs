//! Selectors: parsing, ids and evaluation.
//!
//! `cargo bench -p calico-bench --bench selector`. The typical selector is the one that figures in
//! `docs/performance.md` are about.

use std::collections::BTreeMap;
use std::hint::black_box;

use calico_selector::{Selector, normalise, validate};
use criterion::{Criterion, criterion_group, criterion_main};

const TYPICAL: &str = "app == 'web' && tier in {'frontend', 'edge'} && !has(quarantine)";
const NAMESPACED: &str =
    "(projectcalico.org/orchestrator == 'k8s' && app == 'db') && projectcalico.org/namespace == 'shop'";

/// A set of 1,000 values.
fn large_set() -> String {
    let values: Vec<_> = (0..1000).map(|n| format!("'value-{n}'")).collect();
    format!("name in {{{}}}", values.join(", "))
}

/// Ten labels, as a pod of a larger cluster has them.
fn labels() -> BTreeMap<String, String> {
    let mut labels: BTreeMap<String, String> =
        (0..7).map(|n| (format!("example.com/label-{n}"), format!("value-{n}"))).collect();
    for (name, value) in [("app", "web"), ("tier", "edge"), ("projectcalico.org/namespace", "shop")] {
        labels.insert(name.into(), value.into());
    }
    labels
}

fn parse(c: &mut Criterion) {
    let mut group = c.benchmark_group("selector/parse");
    let large = large_set();
    for (name, text) in
        [("typical", TYPICAL), ("all", "all()"), ("namespaced", NAMESPACED), ("set of 1000", large.as_str())]
    {
        group.bench_function(name, |b| b.iter(|| Selector::parse(black_box(text))));
    }
    group.bench_function("typical, validate only", |b| b.iter(|| validate(black_box(TYPICAL))));
    group.bench_function("typical, normalise", |b| b.iter(|| normalise(black_box(TYPICAL))));
    group.bench_function("typical, with id", |b| {
        b.iter(|| Selector::parse(black_box(TYPICAL)).map(|s| s.unique_id().len()));
    });
    group.bench_function("typical, with restrictions", |b| {
        b.iter(|| Selector::parse(black_box(TYPICAL)).map(|s| s.restrictions().len()));
    });
    group.finish();
}

fn matches(c: &mut Criterion) {
    let mut group = c.benchmark_group("selector/match");
    let labels = labels();
    let pairs: Vec<(String, String)> = labels.clone().into_iter().collect();
    let large = large_set();
    for (name, text) in [("typical", TYPICAL), ("all", "all()"), ("set of 1000", large.as_str())] {
        let Ok(selector) = Selector::parse(text) else { continue };
        group.bench_function(format!("{name}, map of 10"), |b| {
            b.iter(|| selector.matches(black_box(&labels)))
        });
        group.bench_function(format!("{name}, slice of 10"), |b| {
            b.iter(|| selector.matches(black_box(&pairs)))
        });
    }
    group.finish();
}

criterion_group!(benches, parse, matches);
criterion_main!(benches);
