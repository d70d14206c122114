//! The loop as a thread of a process: what wakes it, what it reports, how it ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::Instant;

use calico_daemon::Health;
use calico_dpmsg::{Action, Message};
use calico_netlink::{Netlink, RouteFilter};
use prometheus::{Encoder as _, Registry, TextEncoder};

use super::node::*;
use super::objects::*;
use crate::dataplane::run;

const A: &str = "10.0.0.1";
const B: &str = "10.0.0.2";

fn metric(registry: &Registry, line: &str) -> f64 {
    let mut text = Vec::new();
    TextEncoder::new().encode(&registry.gather(), &mut text).expect("encode");
    let text = String::from_utf8(text).expect("text");
    let value = text.lines().find_map(|l| l.strip_prefix(line)?.trim().parse().ok());
    value.unwrap_or(0.0)
}

#[test]
fn the_loop_programs_follows_links_reports_and_ends() {
    on_node(|dir| {
        let params = params("here", dir, &[]);
        let mut nl = Netlink::new().expect("socket");
        let a = make_pod(&mut nl, "calia", &[A]);
        let b = make_pod(&mut nl, "calib", &[B]);
        let (health, registry) = (Health::default(), Registry::new());
        let stop = Arc::new(AtomicBool::new(false));
        let (out, messages) = sync_channel(4);
        // A new thread is in the namespace of the one that starts it.
        let thread = {
            let (health, registry, stop) = (health.clone(), registry.clone(), Arc::clone(&stop));
            std::thread::spawn(move || run(params, messages, &health, &registry, &stop))
        };
        let two = |deny: bool| {
            let tiers = if deny { vec![tier("default", &["web"], &[], false)] } else { vec![] };
            vec![
                policy("web", "default", vec![to_port(Action::Allow, 80)], vec![]),
                profile("open", Action::Allow),
                workload("a", endpoint("calia", &["10.0.0.1/32"], vec![])),
                workload("b", endpoint("calib", &["10.0.0.2/32"], tiers)),
            ]
        };
        out.send(two(true)).expect("send");
        eventually("taking messages in", || {
            metric(&registry, "felix_int_dataplane_messages{type=\"WorkloadEndpointUpdate\"}") >= 2.0
        });
        assert!(!health.ready(Instant::now()).ok);
        assert_eq!(shell("nft", &["list", "tables"]), "", "nothing before all is known");
        out.send(vec![Message::InSync]).expect("send");
        eventually("readiness", || health.ready(Instant::now()).ok);
        a.opens(B, 80);
        a.is_denied(B, 81);
        out.send(two(false)).expect("send");
        a.opens(B, 81);
        assert!(metric(&registry, "felix_int_dataplane_apply_time_seconds_count") >= 1.0);
        assert!(metric(&registry, "felix_int_dataplane_initial_resync_time_seconds") > 0.0);
        assert!(metric(&registry, "felix_nft_rules{ip_version=\"4\"}") > 10.0);
        assert_eq!(metric(&registry, "felix_route_table_num_routes{table=\"254\"}"), 2.0);
        assert_eq!(metric(&registry, "felix_int_dataplane_failures"), 0.0);
        // A link goes and comes: nobody sends a message about it.
        let routes = |nl: &mut Netlink| {
            let all = nl.routes(&RouteFilter::main(calico_net::IpVersion::V4)).expect("routes");
            all.iter().filter(|r| r.dst.is_host()).count()
        };
        drop(b);
        nl.delete_link_by_name("calib").expect("delete");
        eventually("the end of the route", || routes(&mut nl) == 1);
        let _b = make_pod(&mut nl, "calib", &[B]);
        a.opens(B, 81);
        stop.store(true, Ordering::Release);
        eventually("the end", || thread.is_finished());
        thread.join().expect("thread").expect("run");
        a.opens(B, 81);
        assert_eq!(routes(&mut nl), 2, "what was programmed stays");
    });
}

#[test]
fn the_loop_ends_with_the_graph() {
    on_node(|dir| {
        let params = params("here", dir, &[]);
        let (health, registry) = (Health::default(), Registry::new());
        let (out, messages) = sync_channel(4);
        out.send(vec![Message::InSync]).expect("send");
        drop(out);
        let stop = Arc::new(AtomicBool::new(false));
        run(params, messages, &health, &registry, &stop).expect("run");
    });
}
