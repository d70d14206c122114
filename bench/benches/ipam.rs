//! Addresses for hosts that all want them at once.
//!
//! `cargo bench -p calico-bench --bench ipam` runs it on SQLite and on etcd, which both wait for the disk; `-- STORE`
//! on one. 16 hosts, each a client with a connection of its own, assign 250 addresses each, one by one, each under
//! its own handle, from one pool; then they release them by handle. The rate counts all hosts together.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use calico_bench::cluster::{Stand, furnish};
use calico_bench::isolate;
use calico_bench::measure::{Samples, accounted_for, arguments};
use calico_bench::table::{head, larger, row, slashed};
use calico_client::ipam::{AutoAssignArgs, IpamClient};

const HOSTS: usize = 16;
const ADDRESSES: usize = 250;
const ROUNDS: usize = 3;
/// Upstream's medians on etcd, per second.
const UPSTREAM: [f64; 2] = [357.0, 554.0];

fn main() -> anyhow::Result<()> {
    if accounted_for()? {
        return Ok(());
    }
    isolate::machine()?;
    let wanted = arguments();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    head("addresses: 16 hosts, 250 each, one by one, one pool");
    for kind in Stand::KINDS {
        if wanted.is_empty() || wanted.iter().any(|w| w == kind) {
            runtime.block_on(on(kind))?;
        }
    }
    Ok(())
}

async fn on(kind: &str) -> anyhow::Result<()> {
    let (mut rates, mut release_rates) = (Samples::default(), Samples::default());
    let mut times = Samples::default();
    for _ in 0..ROUNDS {
        let stand = Stand::start(kind).await?;
        let hosts: Vec<String> = (0..HOSTS).map(|n| format!("host-{n}")).collect();
        furnish(&stand.connect()?, &hosts, "10.0.0.0/16").await?;
        let mut clients = Vec::new();
        for host in &hosts {
            let client = IpamClient::new(stand.connect()?).with_host(host.as_str());
            // A node does not connect anew for each address.
            client.get_config().await?;
            clients.push(client);
        }
        let start = Instant::now();
        let tasks: Vec<_> = clients
            .iter()
            .zip(&hosts)
            .map(|(client, host)| tokio::spawn(assign(client.clone(), host.clone())))
            .collect();
        let mut given = BTreeSet::new();
        for task in tasks {
            for (address, time) in task.await?? {
                anyhow::ensure!(given.insert(address), "{address} was given out twice");
                times.add(time);
            }
        }
        anyhow::ensure!(given.len() == HOSTS * ADDRESSES, "{} addresses were given out", given.len());
        rates.add_value(given.len() as f64 / start.elapsed().as_secs_f64());

        let start = Instant::now();
        let tasks: Vec<_> = clients
            .iter()
            .zip(&hosts)
            .map(|(client, host)| tokio::spawn(release(client.clone(), host.clone())))
            .collect();
        for task in tasks {
            task.await??;
        }
        release_rates.add_value(given.len() as f64 / start.elapsed().as_secs_f64());
    }
    let [assigned, released] = UPSTREAM;
    row(
        &format!("{kind}: assigned (no failure, no duplicate)"),
        &format!("{} /s", rates.range(0)),
        "upstream on etcd 309/357/366 /s, p50 42 ms",
        &larger(rates.p50(), assigned),
    );
    row(
        &format!("{kind}: time of one assignment"),
        &format!("p50/p95 {} ms", slashed([times.p50(), times.p95()], 1)),
        "",
        "",
    );
    row(
        &format!("{kind}: released by handle"),
        &format!("{} /s", release_rates.range(0)),
        "upstream on etcd 508/554/557 /s",
        &larger(release_rates.p50(), released),
    );
    Ok(())
}

async fn assign(client: IpamClient, host: String) -> anyhow::Result<Vec<(IpAddr, Duration)>> {
    let mut out = Vec::with_capacity(ADDRESSES);
    for n in 0..ADDRESSES {
        let start = Instant::now();
        let args = AutoAssignArgs {
            num4: 1,
            handle: Some(handle(&host, n).into()),
            host: host.as_str().into(),
            intended_use: "Workload".into(),
            ..AutoAssignArgs::default()
        };
        let got = client.auto_assign(args).await;
        if let Some(error) = got.error {
            return Err(error.into());
        }
        let ip = got.v4.and_then(|got| got.ips.first().copied());
        let ip = ip.ok_or_else(|| anyhow::anyhow!("{host} got no address"))?;
        out.push((ip.addr(), start.elapsed()));
    }
    Ok(out)
}

async fn release(client: IpamClient, host: String) -> anyhow::Result<()> {
    for n in 0..ADDRESSES {
        client.release_by_handle(&handle(&host, n)).await?;
    }
    Ok(())
}

fn handle(host: &str, n: usize) -> String {
    format!("k8s-pod-network.{host}-{n}")
}
