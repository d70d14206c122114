//! The plugin against the running kernel and a datastore of its own, each test on a host of its own.

mod common;

use std::net::IpAddr;
use std::path::Path;

use calico_cni::{GATEWAY_V4, GATEWAY_V6, HOST_MAC, PluginKind};
use calico_host::{NetNs, Sysctl};
use calico_net::{Cidr, IpVersion};
use calico_netlink::{LinkChange, RouteFilter, RouteScope};
use common::{Host, NETWORK, within};
use serde_json::{Value, json};

fn ip(text: &str) -> IpAddr {
    text.parse().expect("address")
}

fn dual(host: &Host) -> Value {
    host.conf_with(json!({ "ipam": { "type": "calico-ipam", "assign_ipv6": "true" } }))
}

fn addresses(result: &Value) -> Vec<IpAddr> {
    let ips = result["ips"].as_array().expect("ips");
    ips.iter().map(|ip| Cidr::parse(ip["address"].as_str().expect("text")).expect("cidr").addr()).collect()
}

#[test]
fn add_makes_what_upstream_makes() {
    let Some(host) = Host::dual() else { return };
    let pod = host.container("boxa");
    let result = host.add(&pod, &dual(&host));
    let ips = addresses(&result);
    assert_eq!(ips.len(), 2);
    let (mac, sandbox) = (result["interfaces"][1]["mac"].clone(), pod.path.display().to_string());
    assert_eq!(
        result,
        json!({
            "cniVersion": "1.0.0",
            "interfaces": [{ "name": "caliboxa" }, { "mac": mac, "name": "eth0", "sandbox": sandbox }],
            "ips": [
                { "address": format!("{}/32", ips[0]), "interface": 1 },
                { "address": format!("{}/128", ips[1]), "interface": 1 },
            ],
            "routes": [{ "dst": format!("{}/28", ips[0]) }, { "dst": format!("{}/122", ips[1]) }],
        })
    );

    let endpoint = &host.endpoints()[0];
    assert_eq!(endpoint.metadata.name, "larch-cni-boxa-eth0");
    assert_eq!(endpoint.metadata.namespace, "default");
    let spec = &endpoint.spec;
    assert_eq!(
        (spec.node.as_str(), spec.orchestrator.as_str(), spec.endpoint.as_str()),
        ("larch", "cni", "eth0")
    );
    assert_eq!((spec.container_id.as_str(), spec.interface_name.as_str()), ("boxa", "caliboxa"));
    assert_eq!(spec.profiles, ["orchard"]);
    assert_eq!(spec.ip_networks, [format!("{}/32", ips[0]), format!("{}/128", ips[1])]);
    assert_eq!(mac, spec.mac);
    let assigned = host.assigned();
    assert_eq!(assigned.len(), 2);
    assert!(assigned.iter().all(|(_, handle)| handle == "orchard.boxa"), "{assigned:?}");

    // The host's side.
    let host_link = host.links(|nl| {
        let link = nl.link_by_name("caliboxa").expect("read").expect("there");
        for ip in &ips {
            let routes = nl.routes(&RouteFilter::main(IpVersion::of(*ip)).via(link.index)).expect("routes");
            let route = routes.iter().find(|r| r.dst == Cidr::host(*ip)).expect("route to the pod");
            assert!(route.gateway.is_none());
            if ip.is_ipv4() {
                assert_eq!((route.scope, route.priority), (RouteScope::LINK, 0));
            }
        }
        let own = nl.addresses(Some(link.index), Some(IpVersion::V6)).expect("addresses");
        assert!(own.iter().any(|a| a.addr.addr() == IpAddr::V6(GATEWAY_V6)));
        link
    });
    assert_eq!(host_link.mac, Some(HOST_MAC));
    assert!(host_link.is_up() && host_link.is_running());
    host.ns
        .run(|| {
            let sysctl = Sysctl::default();
            for (name, want) in [
                ("net/ipv4/conf/caliboxa/route_localnet", "1"),
                ("net/ipv4/conf/caliboxa/proxy_arp", "1"),
                ("net/ipv4/conf/caliboxa/forwarding", "1"),
                ("net/ipv4/neigh/caliboxa/proxy_delay", "0"),
                ("net/ipv6/conf/caliboxa/accept_ra", "0"),
                ("net/ipv6/conf/caliboxa/accept_dad", "0"),
                ("net/ipv6/conf/caliboxa/proxy_ndp", "1"),
                ("net/ipv6/conf/caliboxa/forwarding", "1"),
            ] {
                assert_eq!(sysctl.read(name).expect(name), want, "{name}");
            }
        })
        .expect("host namespace");

    // The container's side.
    within(&pod.ns(), |nl| {
        let link = nl.link_by_name("eth0").expect("read").expect("there");
        assert_eq!(link.parent, Some(host_link.index));
        assert_eq!(link.mac.map(|m| m.to_string()).as_deref(), mac.as_str());
        let held = nl.addresses(Some(link.index), None).expect("addresses");
        for ip in &ips {
            let address = held.iter().find(|a| a.addr == Cidr::host(*ip)).expect("address");
            assert_eq!(address.flags & calico_netlink::Address::TENTATIVE, 0);
        }
        for (version, gateway) in
            [(IpVersion::V4, IpAddr::V4(GATEWAY_V4)), (IpVersion::V6, IpAddr::V6(GATEWAY_V6))]
        {
            let routes = nl.routes(&RouteFilter::main(version)).expect("routes");
            let default = routes.iter().find(|r| r.dst.is_default()).expect("default route");
            assert_eq!((default.gateway, default.oif), (Some(gateway), Some(link.index)));
        }
    });
    assert_eq!(host.plugin("CHECK", &pod, &host.conf_with(json!({ "prevResult": result }))).stdout, "OK\n");

    // Packets pass: the host reaches the container and back.
    for ip in &ips {
        let listener =
            pod.ns().run(|| std::net::TcpListener::bind((*ip, 0))).expect("namespace").expect("listen");
        let port = listener.local_addr().expect("address").port();
        host.ns
            .run(|| {
                let limit = std::time::Duration::from_secs(10);
                // An address to answer to, and a way out: without one no proxy ARP answers for the gateway.
                let own = if ip.is_ipv4() { "10.93.255.1/24" } else { "fd93:255::1/64" };
                let mut nl = calico_netlink::Netlink::new().expect("socket");
                if ip.is_ipv4() {
                    nl.create_bridge("out").expect("bridge");
                }
                let out = nl.link_by_name("out").expect("read").expect("bridge").index;
                nl.set_link_up(out, true).expect("up");
                let own = calico_netlink::Address {
                    flags: if ip.is_ipv6() { calico_netlink::Address::NO_DAD } else { 0 },
                    ..calico_netlink::Address::new(out, own.parse().expect("cidr"))
                };
                nl.add_address(&own).expect("own address");
                if ip.is_ipv4() {
                    let default = calico_netlink::Route {
                        gateway: Some("10.93.255.254".parse().expect("address")),
                        oif: Some(out),
                        ..calico_netlink::Route::new("0.0.0.0/0".parse().expect("cidr"))
                    };
                    nl.add_route(&default).expect("default route");
                }
                std::net::TcpStream::connect_timeout(&(*ip, port).into(), limit).expect("connect");
            })
            .expect("host namespace");
    }

    host.links(|nl| nl.delete_link_by_name("out").expect("delete"));
    host.del(&pod, &dual(&host));
    host.assert_clean();
    within(&pod.ns(), |nl| assert!(nl.link_by_name("eth0").expect("read").is_none()));
    host.del(&pod, &dual(&host));
    let profile = host.runtime.block_on(host.client.profiles().get("", NETWORK)).expect("profile stays");
    assert_eq!(profile.spec.ingress[0].source.selector, "has(orchard)");
}

#[test]
fn one_family_leaves_the_other_alone() {
    let Some(host) = Host::dual() else { return };
    for (v4, v6) in [("true", "false"), ("false", "true")] {
        let pod = host.container(&format!("box{v4}"));
        let conf = host
            .conf_with(json!({ "ipam": { "type": "calico-ipam", "assign_ipv4": v4, "assign_ipv6": v6 } }));
        let result = host.add(&pod, &conf);
        let ips = addresses(&result);
        assert_eq!(ips.len(), 1);
        assert_eq!(ips[0].is_ipv4(), v4 == "true");
        within(&pod.ns(), |nl| {
            let default = |nl: &mut calico_netlink::Netlink, v| {
                nl.routes(&RouteFilter::main(v)).expect("routes").iter().any(|r| r.dst.is_default())
            };
            assert_eq!(default(nl, IpVersion::V4), v4 == "true");
            assert_eq!(default(nl, IpVersion::V6), v6 == "true");
        });
        assert_eq!(host.plugin("CHECK", &pod, &conf).stdout, "OK\n");
        host.del(&pod, &conf);
        host.assert_clean();
    }
}

#[test]
fn ipv6_is_turned_on_where_it_was_off() {
    let Some(host) = Host::dual() else { return };
    let pod = host.container("boxa");
    pod.ns()
        .run(|| {
            for place in ["all", "default", "lo"] {
                Sysctl::default().write(&format!("net/ipv6/conf/{place}/disable_ipv6"), "1").expect("off");
            }
        })
        .expect("namespace");
    host.add(&pod, &dual(&host));
    host.del(&pod, &dual(&host));
    host.assert_clean();
}

#[test]
fn settings_of_the_device_and_forwarding() {
    let Some(host) = Host::dual() else { return };
    let pod = host.container("boxa");
    std::fs::write(&host.paths.mtu, "1412").expect("write");
    let conf = host.conf_with(json!({
        "num_queues": 3,
        "container_settings": { "allow_ip_forwarding": true },
        "ipam": { "type": "calico-ipam", "assign_ipv6": "true" },
    }));
    let result = host.add(&pod, &conf);
    assert_eq!(result["interfaces"][1]["mtu"], 1412);
    let link = within(&pod.ns(), |nl| nl.link_by_name("eth0").expect("read").expect("there"));
    assert_eq!((link.mtu, link.tx_queues, link.rx_queues), (1412, 3, 3));
    let forwarding = || {
        let sysctl = Sysctl::default();
        ["net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"].map(|n| sysctl.read(n).expect(n))
    };
    assert_eq!(pod.ns().run(forwarding).expect("namespace"), ["1", "1"]);
    host.del(&pod, &conf);
    // Off is set as well, whatever was there.
    let result = host.add(&pod, &host.conf_with(json!({ "mtu": 1333, "ipam": conf["ipam"] })));
    assert_eq!(result["interfaces"][1]["mtu"], 1333);
    assert_eq!(pod.ns().run(forwarding).expect("namespace"), ["0", "0"]);
    host.del(&pod, &conf);
    host.assert_clean();
}

#[test]
fn pods_told_by_arguments() {
    let Some(host) = Host::dual() else { return };
    let conf = |pod: &str| {
        host.conf_with(json!({ "args": { "projectcalico.org": {
            "orchestrator": "k8s", "namespace": "shop", "pod": pod, "labels": { "app": "web" },
            "ports": [{ "name": "http", "protocol": "TCP", "port": 80 }],
        }}}))
    };
    let pod = host.container("first");
    let result = host.add(&pod, &conf("web-1"));
    let name = result["interfaces"][0]["name"].as_str().expect("name").to_owned();
    assert_eq!(name, calico_model::names::pod_interface("", "shop", "web-1"));
    let endpoint = host.endpoints().remove(0);
    assert_eq!(endpoint.metadata.name, "larch-k8s-web--1-eth0");
    assert_eq!(endpoint.metadata.namespace, "shop");
    assert_eq!(endpoint.metadata.labels.get("app").map(String::as_str), Some("web"));
    assert_eq!(endpoint.spec.profiles, ["kns.shop"]);
    assert_eq!(endpoint.spec.ports[0].name, "http");
    // No profile of the network is made for pods.
    assert!(host.runtime.block_on(host.client.profiles().get("", NETWORK)).is_err());

    // The pod starts again in a new container before the old one is gone.
    let second = host.container("second");
    let again = host.add(&second, &conf("web-1"));
    assert_ne!(addresses(&again), addresses(&result));
    assert_eq!(host.endpoints().len(), 1);
    assert_eq!(host.endpoints()[0].spec.container_id, "second");
    assert_eq!(host.assigned().len(), 2);
    // The old container's DEL takes only what is its own.
    host.del(&pod, &conf("web-1"));
    assert_eq!(host.endpoints()[0].spec.container_id, "second");
    assert_eq!(host.assigned(), vec![(addresses(&again)[0].to_string(), "orchard.second".into())]);
    assert_eq!(host.link_names(), vec![name]);
    assert_eq!(host.plugin("CHECK", &second, &conf("web-1")).stdout, "OK\n");
    let (_, message) = host.refused("CHECK", &pod, &conf("web-1"));
    assert!(message.contains("belongs to container second"), "{message}");
    host.del(&second, &conf("web-1"));
    host.assert_clean();
}

#[test]
fn add_repeated_keeps_the_address_and_repairs() {
    let Some(host) = Host::dual() else { return };
    let pod = host.container("boxa");
    let conf = dual(&host);
    let first = host.add(&pod, &conf);
    let before = host.endpoints();
    let again = host.add(&pod, &conf);
    assert_eq!((&again["ips"], &again["interfaces"]), (&first["ips"], &first["interfaces"]));
    assert_eq!(again.get("routes"), None);
    assert_eq!(host.endpoints(), before, "nothing was written");
    // Somebody broke it: the route, the interface, the namespace.
    host.links(|nl| {
        let link = nl.link_by_name("caliboxa").expect("read").expect("there");
        nl.change_link(link.index, &LinkChange { up: Some(false), ..LinkChange::default() }).expect("down");
    });
    assert_eq!(host.refused("CHECK", &pod, &conf).1, "check failed: host interface caliboxa is down");
    assert_eq!(host.add(&pod, &conf)["ips"], first["ips"]);
    assert_eq!(host.plugin("CHECK", &pod, &conf).stdout, "OK\n");
    host.links(|nl| nl.delete_link_by_name("caliboxa").expect("delete"));
    assert_eq!(host.refused("CHECK", &pod, &conf).1, "check failed: host interface caliboxa is not there");
    assert_eq!(host.add(&pod, &conf)["ips"], first["ips"]);
    let mac = host.endpoints()[0].spec.mac.clone();
    assert_ne!(mac, before[0].spec.mac);
    assert_eq!(host.plugin("CHECK", &pod, &conf).stdout, "OK\n");
    assert_eq!(host.assigned().len(), 2);
    // An endpoint of another interface answers.
    let other = host.call(PluginKind::Calico, "ADD", "boxa", &pod.path, "net1", &conf);
    assert_eq!(other.code, 0);
    assert_eq!(host.endpoints().len(), 1);
    host.del(&pod, &conf);
    host.assert_clean();
}

#[test]
fn check_names_what_is_missing() {
    let Some(host) = Host::dual() else { return };
    let pod = host.container("boxa");
    let conf = host.conf();
    assert_eq!(
        host.refused("CHECK", &pod, &conf),
        (999, "check failed: workload endpoint larch-cni-boxa-eth0 is not there".into())
    );
    let result = host.add(&pod, &conf);
    let address = addresses(&result)[0];
    let check =
        |want: String| assert_eq!(host.refused("CHECK", &pod, &conf), (999, format!("check failed: {want}")));
    let repair = || {
        host.links(|nl| nl.delete_link_by_name("caliboxa").expect("delete"));
        host.add(&pod, &conf);
    };
    host.links(|nl| {
        let routes = nl.routes(&RouteFilter::main(IpVersion::V4)).expect("routes");
        let route = routes.iter().find(|r| r.dst == Cidr::host(address)).expect("route");
        nl.delete_route(route).expect("delete");
    });
    check(format!("the host has no route to {address} on interface caliboxa"));
    repair();
    within(&pod.ns(), |nl| {
        let link = nl.link_by_name("eth0").expect("read").expect("there");
        nl.set_link_mac(link.index, calico_net::Mac([2, 0, 0, 0, 0, 9])).expect("mac");
    });
    check("interface eth0 has another hardware address".into());
    repair();
    within(&pod.ns(), |nl| {
        let routes = nl.routes(&RouteFilter::main(IpVersion::V4)).expect("routes");
        nl.delete_route(routes.iter().find(|r| r.dst.is_default()).expect("default")).expect("delete");
    });
    check("the container has no route to 0.0.0.0/0 on interface eth0".into());
    repair();
    let foreign = json!({ "cniVersion": "1.0.0", "ips": [{ "address": "192.0.2.1/32" }] });
    let (_, message) = host.refused("CHECK", &pod, &host.conf_with(json!({ "prevResult": foreign })));
    assert_eq!(message, "check failed: workload endpoint larch-cni-boxa-eth0 has no address 192.0.2.1");
    let freed = host.call(PluginKind::CalicoIpam, "DEL", "boxa", &pod.path, "eth0", &conf);
    assert_eq!(freed.code, 0);
    check(format!("address {address} is not assigned"));
    host.del(&pod, &conf);
    host.assert_clean();
}

#[test]
fn del_of_what_is_not_there_succeeds_and_touches_nothing() {
    let Some(host) = Host::dual() else { return };
    let pod = host.container("boxa");
    let conf = host.conf();
    host.del(&pod, &conf);
    let result = host.add(&pod, &conf);
    let untouched = |what: &str| {
        assert_eq!(host.endpoints().len(), 1, "{what}");
        assert_eq!(host.assigned().len(), 1, "{what}");
        assert_eq!(host.plugin("CHECK", &pod, &conf).stdout, "OK\n", "{what}");
    };
    let call = |id: &str, ifname: &str, conf: &Value| {
        let outcome = host.call(PluginKind::Calico, "DEL", id, &pod.path, ifname, conf);
        assert_eq!((outcome.code, outcome.stdout.as_str()), (0, ""));
    };
    call("boxa", "eth7", &conf);
    untouched("another interface");
    call("boxa", "eth0", &host.conf_with(json!({ "name": "meadow" })));
    untouched("another network");
    call("other", "eth0", &conf);
    untouched("another container");
    // The same start of the ID gives the same interface on the host.
    let long = host.container("0123456789abcdef");
    host.add(&long, &conf);
    call("0123456789axyz", "eth0", &conf);
    let outcome = host.call(PluginKind::Calico, "DEL", "0123456789axyz", Path::new(""), "eth0", &conf);
    assert_eq!(outcome.code, 0);
    assert_eq!(host.plugin("CHECK", &long, &conf).stdout, "OK\n");
    // A later container took the name; the DEL of the earlier one must not take the interface.
    let later = host.container("0123456789aa-later");
    let taken = host.add(&later, &conf);
    assert_eq!(taken["interfaces"][0]["name"], "cali0123456789a");
    host.del(&long, &conf);
    assert_eq!(host.plugin("CHECK", &later, &conf).stdout, "OK\n");
    let earlier = host.container("0123456789aa-earlier");
    host.add(&earlier, &conf);
    let gone = host.call(PluginKind::Calico, "DEL", "0123456789aa-later", Path::new(""), "eth0", &conf);
    assert_eq!(gone.code, 0);
    assert_eq!(host.plugin("CHECK", &earlier, &conf).stdout, "OK\n");
    host.del(&earlier, &conf);
    assert_eq!(addresses(&result).len(), 1);
    host.del(&pod, &conf);
    host.assert_clean();
}

#[test]
fn del_goes_on_where_pieces_are_missing() {
    let Some(host) = Host::dual() else { return };
    let conf = host.conf();
    // The namespace is gone.
    let pod = host.container("boxa");
    host.add(&pod, &conf);
    pod.destroy();
    host.del(&pod, &conf);
    host.assert_clean();
    // The runtime does not name a namespace.
    let pod = host.container("boxb");
    host.add(&pod, &conf);
    let outcome = host.call(PluginKind::Calico, "DEL", "boxb", Path::new(""), "eth0", &conf);
    assert_eq!(outcome.code, 0, "{}", outcome.stdout);
    host.assert_clean();
    // A file is left where the namespace was.
    let pod = host.container("boxc");
    host.add(&pod, &conf);
    pod.destroy();
    std::fs::write(&pod.path, "").expect("write");
    host.del(&pod, &conf);
    host.assert_clean();
    // The endpoint is gone, as after a crash between the steps.
    let pod = host.container("boxd");
    host.add(&pod, &conf);
    let gone = host.client.workload_endpoints();
    let options = calico_client::DeleteOptions::default();
    host.runtime.block_on(gone.delete("default", "larch-cni-boxd-eth0", &options)).expect("delete");
    host.del(&pod, &conf);
    host.assert_clean();
    // The interface is gone.
    let pod = host.container("boxe");
    host.add(&pod, &conf);
    within(&pod.ns(), |nl| nl.delete_link_by_name("eth0").expect("delete"));
    host.del(&pod, &conf);
    host.assert_clean();
    // The interface is in another namespace than the runtime says.
    let pod = host.container("boxh");
    let other = host.container("other");
    host.add(&pod, &conf);
    let moved = host.call(PluginKind::Calico, "ADD", "boxh", &other.path, "eth0", &conf);
    assert_eq!(moved.code, 0, "{}", moved.stdout);
    within(&pod.ns(), |nl| assert!(nl.link_by_name("eth0").expect("read").is_none()));
    within(&other.ns(), |nl| assert!(nl.link_by_name("eth0").expect("read").is_some()));
    host.del(&pod, &conf);
    host.assert_clean();
    // The interface has another name inside.
    let pod = host.container("boxg");
    host.add(&pod, &conf);
    within(&pod.ns(), |nl| {
        let index = nl.link_by_name("eth0").expect("read").expect("there").index;
        nl.set_link_up(index, false).expect("down");
        nl.rename_link(index, "wan0").expect("rename");
    });
    host.del(&pod, &conf);
    host.assert_clean();
    // The address is gone.
    let pod = host.container("boxf");
    host.add(&pod, &conf);
    assert_eq!(host.call(PluginKind::CalicoIpam, "DEL", "boxf", &pod.path, "eth0", &conf).code, 0);
    host.del(&pod, &conf);
    host.assert_clean();
}

#[test]
fn del_without_store_deletes_the_interface_and_says_so() {
    let Some(host) = Host::dual() else { return };
    let pod = host.container("boxa");
    let conf = host.conf();
    host.add(&pod, &conf);
    let mut broken = conf.clone();
    broken["sqlite_path"] = json!("/proc/no/such/datastore.db");
    let (code, message) = host.refused("DEL", &pod, &broken);
    assert_eq!(code, 999);
    assert!(message.contains("/proc/no/such/datastore.db"), "{message}");
    assert_eq!(host.link_names(), Vec::<String>::new());
    assert_eq!((host.endpoints().len(), host.assigned().len()), (1, 1), "kept for the next try");
    host.del(&pod, &conf);
    host.assert_clean();
}

#[test]
fn a_failed_add_leaves_nothing() {
    let Some(host) = Host::new(&[("amber", "10.93.0.0/30", 30), ("azure", "fd93::/112", 122)]) else {
        return;
    };
    let conf = host.conf();
    // The interface name is taken in the container.
    let pod = host.container("boxa");
    within(&pod.ns(), |nl| nl.create_bridge("eth0").expect("bridge"));
    let (_, message) = host.refused("ADD", &pod, &conf);
    assert_eq!(message, "the container has an interface eth0 already");
    host.assert_clean();
    within(&pod.ns(), |nl| nl.delete_link_by_name("eth0").expect("delete"));
    // A route to the address leads elsewhere.
    host.links(|nl| {
        nl.create_bridge("br0").expect("bridge");
        let index = nl.link_by_name("br0").expect("read").expect("there").index;
        nl.set_link_up(index, true).expect("up");
        for n in 0..4 {
            let dst = Cidr::host(ip(&format!("10.93.0.{n}")));
            let route = calico_netlink::Route {
                oif: Some(index),
                scope: RouteScope::LINK,
                ..calico_netlink::Route::new(dst)
            };
            nl.add_route(&route).expect("route");
        }
    });
    let (_, message) = host.refused("ADD", &pod, &conf);
    assert!(message.contains("is on interface br0 already, not on caliboxa"), "{message}");
    host.links(|nl| nl.delete_link_by_name("br0").expect("delete"));
    host.assert_clean();
    // The endpoint's name is none that the store takes.
    let odd = host.container("a.b-c_d");
    let (_, message) = host.refused("ADD", &odd, &conf);
    assert!(message.contains("larch-cni-a.b--c_d-eth0"), "{message}");
    host.assert_clean();
    // One family has no address left: the other's is given back at once.
    for n in 0..4 {
        host.add(&host.container(&format!("full{n}")), &conf);
    }
    let (_, message) = host.refused("ADD", &pod, &dual(&host));
    assert!(message.starts_with("failed to request IPv4 addresses: Assigned 0 out of 1"), "{message}");
    assert!(host.assigned().iter().all(|(_, handle)| handle != "orchard.boxa"), "{:?}", host.assigned());
    // A pool of one family is missing: the same.
    let unknown =
        json!({ "type": "calico-ipam", "assign_ipv4": "false", "assign_ipv6": "true", "ipv6_pools": ["x"] });
    let (_, message) = host.refused("ADD", &pod, &host.conf_with(json!({ "ipam": unknown })));
    assert_eq!(message, "error parsing pool \"x\": invalid CIDR address: x");
}

#[test]
fn sixteen_at_once() {
    let Some(host) = Host::dual() else { return };
    let conf = dual(&host);
    let pods: Vec<_> = (0..16).map(|n| host.container(&format!("box{n}"))).collect();
    let all = |verb: &'static str| -> Vec<String> {
        let (paths, conf, dir) = (&host.paths, &conf, &host.ns);
        std::thread::scope(|scope| {
            let calls: Vec<_> = pods
                .iter()
                .map(|pod| {
                    scope.spawn(move || {
                        let env = [
                            ("CNI_COMMAND", verb.to_owned()),
                            ("CNI_CONTAINERID", pod.id.clone()),
                            ("CNI_NETNS", pod.path.display().to_string()),
                            ("CNI_IFNAME", "eth0".into()),
                            ("CNI_PATH", "/x".into()),
                        ];
                        let stdin = conf.to_string();
                        let outcome = dir.run(|| {
                            let env = |n: &str| env.iter().find(|(k, _)| *k == n).map(|(_, v)| v.clone());
                            let kind = PluginKind::Calico;
                            calico_cni::Invocation { kind, args: &[], env: &env, stdin: &stdin, paths }
                                .execute()
                        });
                        let outcome = outcome.expect("host namespace");
                        assert_eq!(outcome.code, 0, "{}", outcome.stdout);
                        outcome.stdout
                    })
                })
                .collect();
            calls.into_iter().map(|call| call.join().expect("call")).collect()
        })
    };
    let results = all("ADD");
    let mut ips: Vec<IpAddr> =
        results.iter().flat_map(|r| addresses(&serde_json::from_str(r).expect("JSON"))).collect();
    ips.sort();
    ips.dedup();
    assert_eq!(ips.len(), 32, "every container has its own addresses");
    assert_eq!((host.endpoints().len(), host.assigned().len(), host.link_names().len()), (16, 32, 16));
    all("CHECK");
    all("DEL");
    host.assert_clean();
}

#[test]
fn the_plugins_own_namespace_is_refused_before_anything_is_done() {
    let Some(host) = Host::dual() else { return };
    let pod = host.container("boxa");
    for verb in ["ADD", "CHECK", "DEL"] {
        let own = host.ns.path().to_owned();
        let outcome = host.call(PluginKind::Calico, verb, &pod.id, &own, "eth0", &host.conf());
        assert!(outcome.stdout.contains("\"code\": 8"), "{verb}: {}", outcome.stdout);
    }
    host.assert_clean();
    let missing = host.dir.path().join("nowhere");
    let outcome = host.call(PluginKind::Calico, "ADD", &pod.id, &missing, "eth0", &host.conf());
    assert!(outcome.stdout.contains("does not exist"), "{}", outcome.stdout);
    host.assert_clean();
    assert!(NetNs::open(&pod.path).is_ok());
}
