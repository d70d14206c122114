//! A node in a network namespace: its dataplane, its pods, and packets between them.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use calico_dpmsg::Message;
use calico_host::{NetNs, Sysctl};
use calico_net::{Cidr, Mac};
use calico_netlink::{
    Address, LinkChange, Monitor, MonitorGroups, Neighbour, Netlink, PeerSpec, Route, RouteScope, VethSpec,
};

use super::objects::{INSIDE, cidr, ip};
use crate::config::Params;
use crate::dataplane::report::ApplyReport;
use crate::dataplane::{Dataplane, Failure};

/// MAC of the nodes' ends of pods' links.
const OUTSIDE: Mac = Mac([0xee; 6]);
/// Longest wait for what must happen.
const SOON: Duration = Duration::from_secs(20);
/// Wait for what must not happen.
const NEVER: Duration = Duration::from_millis(400);

/// A namespace, or nothing (with a reason printed) where this is not allowed.
pub(super) fn namespace() -> Option<NetNs> {
    match NetNs::new() {
        Ok(ns) => {
            let mut nl = Netlink::in_ns(&ns).expect("socket");
            up(&mut nl, "lo");
            Some(ns)
        }
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "skipped: {error}");
            None
        }
    }
}

pub(super) fn up(nl: &mut Netlink, name: &str) -> u32 {
    let index = nl.link_by_name(name).expect("read").expect("link").index;
    nl.set_link_up(index, true).expect("up");
    index
}

pub(super) fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + SOON;
    while !condition() {
        assert!(Instant::now() < deadline, "{what} did not happen");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A machine that can send and receive: a pod, or something outside.
pub(super) struct Machine {
    pub(super) ns: NetNs,
    pub(super) addrs: Vec<IpAddr>,
}

impl Machine {
    pub(super) fn new(ns: NetNs, addrs: Vec<IpAddr>) -> Self {
        let machine = Self { ns, addrs };
        [80, 81].into_iter().for_each(|port| machine.serve_tcp(port));
        machine.serve_udp(53);
        machine
    }

    /// Takes connections, sends the peer's address back, and closes them.
    fn serve_tcp(&self, port: u16) {
        let listener = self.ns.run(|| TcpListener::bind(("::", port))).expect("namespace").expect("listen");
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                let peer = stream.peer_addr().map(|a| a.ip().to_canonical().to_string());
                let _ = stream.write_all(peer.unwrap_or_default().as_bytes());
            }
        });
    }

    /// Sends every datagram back.
    fn serve_udp(&self, port: u16) {
        let socket = self.ns.run(|| UdpSocket::bind(("::", port))).expect("namespace").expect("bind");
        std::thread::spawn(move || {
            let mut buffer = [0; 64];
            while let Ok((length, peer)) = socket.recv_from(&mut buffer) {
                let _ = socket.send_to(&buffer[..length], peer);
            }
        });
    }

    /// Connects; `None` if that does not succeed in time, else the address that the other side saw.
    fn connect(&self, to: IpAddr, port: u16, from: Option<IpAddr>, wait: Duration) -> Option<String> {
        let connect = move || {
            let target = SocketAddr::new(to, port);
            let mut stream = match from {
                None => TcpStream::connect_timeout(&target, wait).ok()?,
                Some(source) => return udp_exchange(source, SocketAddr::new(to, 53), wait),
            };
            stream.set_read_timeout(Some(SOON)).expect("timeout");
            let mut text = String::new();
            stream.read_to_string(&mut text).ok()?;
            Some(text)
        };
        self.ns.run(connect).expect("namespace")
    }

    pub(super) fn opens(&self, to: &str, port: u16) {
        let deadline = Instant::now() + SOON;
        while self.connect(ip(to), port, None, Duration::from_secs(2)).is_none() {
            assert!(Instant::now() < deadline, "{to}:{port} cannot be reached from {:?}", self.addrs);
        }
    }

    /// Address that the other side sees.
    pub(super) fn seen_as(&self, to: &str, port: u16) -> String {
        self.connect(ip(to), port, None, SOON).expect("reached")
    }

    pub(super) fn is_denied(&self, to: &str, port: u16) {
        assert_eq!(self.connect(ip(to), port, None, NEVER), None, "{to}:{port} from {:?}", self.addrs);
    }

    /// Whether a datagram from `source` gets an answer.
    pub(super) fn asks(&self, source: &str, to: &str, answered: bool) {
        let wait = if answered { SOON } else { NEVER };
        let answer = self.connect(ip(to), 53, Some(ip(source)), wait);
        assert_eq!(answer.is_some(), answered, "{to} from {source}");
    }

    /// A socket that talks to `to`, port 53.
    pub(super) fn talker(&self, to: &str) -> UdpSocket {
        let target = SocketAddr::new(ip(to), 53);
        let any: IpAddr = Ipv4Addr::UNSPECIFIED.into();
        let socket = self.ns.run(|| UdpSocket::bind((any, 0))).expect("namespace").expect("bind");
        socket.connect(target).expect("connect");
        socket.set_read_timeout(Some(Duration::from_secs(5))).expect("timeout");
        socket
    }
}

fn udp_exchange(source: IpAddr, target: SocketAddr, wait: Duration) -> Option<String> {
    let socket = UdpSocket::bind((source, 0)).ok()?;
    socket.set_read_timeout(Some(wait)).ok()?;
    socket.send_to(b"hello", target).ok()?;
    let mut buffer = [0; 16];
    socket.recv_from(&mut buffer).ok().map(|(_, peer)| peer.ip().to_string())
}

/// Links `name` in the calling thread's namespace with a new machine that has `addrs`, as a CNI plugin would.
pub(super) fn make_pod(nl: &mut Netlink, name: &str, addrs: &[&str]) -> Machine {
    let ns = namespace().expect("namespace");
    let inside = PeerSpec { name: "eth0", mac: Some(INSIDE), netns: Some(ns.as_fd()) };
    let end = PeerSpec { name, mac: Some(OUTSIDE), netns: None };
    nl.create_veth(&VethSpec { end, peer: inside, ..Default::default() }).expect("veth");
    up(nl, name);
    let mut pod = Netlink::in_ns(&ns).expect("socket");
    let eth0 = up(&mut pod, "eth0");
    for addr in addrs.iter().map(|a| ip(a)) {
        let mut address = Address::new(eth0, Cidr::host(addr));
        address.flags = Address::NO_DAD;
        pod.add_address(&address).expect("address");
        let (gateway, any) = match addr {
            IpAddr::V4(_) => (ip("169.254.1.1"), cidr("0.0.0.0/0")),
            IpAddr::V6(_) => (ip("fe80::1"), cidr("::/0")),
        };
        pod.replace_neighbour(&Neighbour::permanent(eth0, gateway, OUTSIDE)).expect("neighbour");
        let mut default = Route::new(any);
        (default.oif, default.gateway, default.onlink) = (Some(eth0), Some(gateway), true);
        pod.replace_route(&default).expect("route");
    }
    Machine::new(ns, addrs.iter().map(|a| ip(a)).collect())
}

/// The node of the calling thread's namespace.
pub(super) struct Node {
    pub(super) dataplane: Dataplane,
    pub(super) nl: Netlink,
    monitor: Monitor,
    params: Arc<Params>,
    pub(super) pods: BTreeMap<String, Machine>,
}

impl Node {
    pub(super) fn new(params: Arc<Params>) -> Self {
        let groups = MonitorGroups { links: true, addresses: true, routes: false };
        Self {
            monitor: Monitor::new(groups).expect("monitor"),
            dataplane: Dataplane::new(Arc::clone(&params)).expect("dataplane"),
            nl: Netlink::new().expect("socket"),
            params,
            pods: BTreeMap::new(),
        }
    }

    pub(super) fn add_pod(&mut self, name: &str, iface: &str, addrs: &[&str]) {
        let pod = make_pod(&mut self.nl, iface, addrs);
        self.pods.insert(name.to_owned(), pod);
    }

    pub(super) fn send(&mut self, messages: &[Message]) {
        messages.iter().for_each(|m| self.dataplane.on_message(m));
    }

    /// A new process: nothing is known, the kernel is as it was left.
    pub(super) fn restart(&mut self) {
        self.dataplane = Dataplane::new(Arc::clone(&self.params)).expect("dataplane");
        // Their links changed before; the first listing tells.
        while self.monitor.try_next().expect("monitor").is_some() {}
    }

    pub(super) fn apply(&mut self) -> ApplyReport {
        let now = Instant::now();
        while let Some(event) = self.monitor.try_next().expect("monitor") {
            self.dataplane.on_link_event(event, now);
        }
        self.dataplane.apply(now)
    }

    /// Applies until there is nothing to do.
    pub(super) fn settle(&mut self) {
        let mut last = Vec::new();
        let deadline = Instant::now() + SOON;
        loop {
            assert!(Instant::now() < deadline, "the node does not settle: {last:?}");
            let report = self.apply();
            let due = report.due.is_some_and(|d| d <= Instant::now());
            if report.is_complete() && report.refused.is_empty() && report.writes.total() == 0 && !due {
                return;
            }
            last = report.failures.iter().map(Failure::to_string).chain(report.refused).collect();
        }
    }

    pub(super) fn pod(&self, name: &str) -> &Machine {
        &self.pods[name]
    }

    /// Destinations and links of the routes of our making, and whether they drop.
    pub(super) fn routes(&mut self) -> Vec<String> {
        let mut out = Vec::new();
        for version in calico_net::IpVersion::BOTH {
            for route in self.nl.routes(&calico_netlink::RouteFilter::main(version)).expect("routes") {
                let link = route.oif.and_then(|i| self.nl.link_by_index(i).expect("link"));
                let link = link.map_or(String::new(), |l| l.name);
                let ours = link.starts_with("cali") || link.starts_with("vxlan") || route.protocol.0 == 80;
                if ours && !route.dst.to_string().starts_with("fe80") {
                    out.push(format!("{} {} {}", route.dst, route.kind, link));
                }
            }
        }
        out.sort();
        out
    }

    /// Reads or writes a kernel parameter of the node.
    pub(super) fn parameter(&self, name: &str) -> String {
        Sysctl::default().read(name).expect("parameter")
    }
}

/// Links `name` here with `peer` in a bridge's namespace, with an address.
pub(super) fn plug(nl: &mut Netlink, fabric: &NetNs, bridge: &str, name: &str, peer: &str, addrs: &[&str]) {
    let end = PeerSpec { name, ..Default::default() };
    let other = PeerSpec { name: peer, netns: Some(fabric.as_fd()), ..Default::default() };
    nl.create_veth(&VethSpec { end, peer: other, ..Default::default() }).expect("veth");
    let index = up(nl, name);
    for addr in addrs {
        let mut address = Address::new(index, cidr(addr));
        address.flags = Address::NO_DAD;
        nl.add_address(&address).expect("address");
    }
    let mut inside = Netlink::in_ns(fabric).expect("socket");
    let master = inside.link_by_name(bridge).expect("read").expect("bridge").index;
    let port = up(&mut inside, peer);
    inside.change_link(port, &LinkChange { master: Some(master), ..Default::default() }).expect("master");
}

/// A bridge with addresses.
pub(super) fn make_bridge(nl: &mut Netlink, name: &str, addrs: &[&str]) {
    nl.create_bridge(name).expect("bridge");
    let index = up(nl, name);
    for addr in addrs {
        let mut address = Address::new(index, cidr(addr));
        address.flags = Address::NO_DAD;
        nl.add_address(&address).expect("address");
    }
}

pub(super) fn route_via(nl: &mut Netlink, dst: &str, via: &str, link: &str) {
    let mut route = Route::new(cidr(dst));
    route.oif = nl.link_by_name(link).expect("read").map(|l| l.index);
    route.gateway = Some(ip(via));
    route.scope = RouteScope::UNIVERSE;
    nl.replace_route(&route).expect("route");
}

/// Runs a test in a node's namespace, with a folder for files; skips it where namespaces are not allowed.
pub(super) fn on_node(test: impl FnOnce(&Path) + Send) {
    let Some(ns) = namespace() else { return };
    let dir = tempfile::tempdir().expect("directory");
    ns.run(|| test(dir.path())).expect("namespace");
}

/// Runs a program in the calling thread's namespace.
pub(super) fn shell(program: &str, args: &[&str]) -> String {
    let out = std::process::Command::new(program).args(args).output().expect("program");
    assert!(out.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).into_owned()
}
