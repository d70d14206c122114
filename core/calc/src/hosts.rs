//! Nodes: their addresses, and the tunnel endpoints that follow from them.
//!
//! In: Node objects, the settings that are made from them, addresses of very old components. Out, at a flush:
//! host metadata and VXLAN tunnel endpoints. Invariant after a flush: the dataplane has one metadata message per
//! node with an address object, and one tunnel endpoint per node that has both addresses of some family.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use calico_api::{Node, NodeAddressType, NodeBgpSpec};
use calico_dpmsg::{HostMetadata, Message, Vtep, VtepAddrs};
use calico_net::{Cidr, IpVersion, Mac};
use sha1::{Digest, Sha1};
use smol_str::SmolStr;

use crate::routes::NodeAddresses;

/// What matters of a Node object.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct NodeFacts {
    /// Address of each family, with the length of its subnet where that is known.
    pub(crate) addresses: NodeAddresses,
    /// All addresses.
    pub(crate) all: BTreeSet<IpAddr>,
    /// It has BGP settings, even if empty.
    has_bgp: bool,
    /// Its BGP settings are there and empty, which old components took for "no node yet".
    blank_bgp: bool,
    as_number: SmolStr,
    labels: BTreeMap<SmolStr, SmolStr>,
}

/// Settings of a node that concern its VXLAN devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Tunnel {
    addr: Option<IpAddr>,
    mac: Option<Mac>,
}

#[derive(Debug, Default)]
struct Host {
    node: Option<NodeFacts>,
    /// Address by the legacy key.
    legacy: Option<IpAddr>,
    tunnels: [Tunnel; 2],
    sent_metadata: Option<Arc<HostMetadata>>,
    sent_vtep: Option<Arc<Vtep>>,
}

/// All nodes.
#[derive(Debug)]
pub(crate) struct Hosts {
    hosts: BTreeMap<SmolStr, Host>,
    dirty: BTreeSet<SmolStr>,
    vxlan: bool,
}

/// Messages about nodes, each list in order of names.
#[derive(Debug, Default)]
pub(crate) struct HostMessages {
    pub(crate) vtep_removes: Vec<Message>,
    pub(crate) vtep_updates: Vec<Message>,
    pub(crate) metadata_removes: Vec<Message>,
    pub(crate) metadata_updates: Vec<Message>,
}

// === impl NodeFacts ===

impl NodeFacts {
    /// Takes what matters out of a Node. Texts that are no addresses are told to `bad` with their field.
    pub(crate) fn of(node: &Node, mut bad: impl FnMut(&str, &str)) -> Self {
        let mut parse = |field: &str, text: &str| match Cidr::parse(text) {
            Ok(cidr) => Some(cidr),
            Err(_) => {
                if !text.is_empty() {
                    bad(field, text);
                }
                None
            }
        };
        let bgp = node.spec.bgp.as_ref();
        let bgp4 = bgp.and_then(|b| parse("spec.bgp.ipv4Address", &b.ipv4_address));
        let bgp6 = bgp.and_then(|b| parse("spec.bgp.ipv6Address", &b.ipv6_address));
        let bgp4 = bgp4.filter(|c| c.version() == IpVersion::V4);
        let bgp6 = bgp6.filter(|c| c.version() == IpVersion::V6);
        let mut typed = Vec::new();
        for address in &node.spec.addresses {
            if let Some(cidr) = parse("spec.addresses", &address.address) {
                typed.push((&address.address_type, Cidr::host(cidr.addr())));
            }
        }
        let fallback = |version: IpVersion| {
            let first = |wanted: NodeAddressType| {
                let mut of_type = typed.iter().filter(|(t, c)| **t == wanted && c.version() == version);
                of_type.next().map(|(_, cidr)| *cidr)
            };
            first(NodeAddressType::InternalIP).or_else(|| first(NodeAddressType::ExternalIP))
        };
        let addresses = NodeAddresses {
            v4: bgp4.or_else(|| fallback(IpVersion::V4)),
            v6: bgp6.or_else(|| fallback(IpVersion::V6)),
        };
        let known = [bgp4, bgp6].into_iter().flatten().chain(typed.iter().map(|(_, cidr)| *cidr));
        Self {
            addresses,
            all: known.map(|c| c.addr()).collect(),
            has_bgp: bgp.is_some(),
            blank_bgp: bgp == Some(&NodeBgpSpec::default()),
            as_number: bgp.and_then(|b| b.as_number).map(|n| n.to_string().into()).unwrap_or_default(),
            labels: node.metadata.labels.iter().map(|(k, v)| (k.into(), v.into())).collect(),
        }
    }
}

// === impl Hosts ===

impl Hosts {
    /// No nodes. Tunnel endpoints are told only with `vxlan`.
    pub(crate) fn new(vxlan: bool) -> Self {
        Self { hosts: BTreeMap::new(), dirty: BTreeSet::new(), vxlan }
    }

    /// Sets or removes a node.
    pub(crate) fn put_node(&mut self, name: &SmolStr, node: Option<NodeFacts>) {
        self.change(name, |host| host.node = node);
    }

    /// Sets or removes the address that a very old component wrote.
    pub(crate) fn put_legacy(&mut self, name: &SmolStr, addr: Option<IpAddr>) {
        self.change(name, |host| host.legacy = addr);
    }

    /// Sets or removes the address of a node's VXLAN device.
    pub(crate) fn put_vxlan_addr(&mut self, name: &SmolStr, version: IpVersion, addr: Option<IpAddr>) {
        let addr = addr.filter(|a| IpVersion::of(*a) == version);
        self.change(name, |host| host.tunnels[version as usize].addr = addr);
    }

    /// Sets or removes the hardware address of a node's VXLAN device.
    pub(crate) fn put_vxlan_mac(&mut self, name: &SmolStr, version: IpVersion, mac: Option<Mac>) {
        self.change(name, |host| host.tunnels[version as usize].mac = mac);
    }

    fn change(&mut self, name: &SmolStr, f: impl FnOnce(&mut Host)) {
        f(self.hosts.entry(name.clone()).or_default());
        self.dirty.insert(name.clone());
    }

    /// Number of nodes.
    pub(crate) fn len(&self) -> usize {
        self.hosts.values().filter(|h| h.node.is_some()).count()
    }

    /// What changed.
    pub(crate) fn flush(&mut self) -> HostMessages {
        let mut out = HostMessages::default();
        for name in std::mem::take(&mut self.dirty) {
            let Some(host) = self.hosts.get_mut(&name) else { continue };
            let vtep = if self.vxlan { host.vtep(&name) } else { None };
            if host.sent_vtep.as_deref() != vtep.as_ref() {
                host.sent_vtep = vtep.map(Arc::new);
                match &host.sent_vtep {
                    Some(vtep) => out.vtep_updates.push(Message::VtepUpdate(vtep.clone())),
                    None => out.vtep_removes.push(Message::VtepRemove(name.clone())),
                }
            }
            let metadata = host.metadata(&name);
            if host.sent_metadata.as_deref() != metadata.as_ref() {
                host.sent_metadata = metadata.map(Arc::new);
                match &host.sent_metadata {
                    Some(m) => out.metadata_updates.push(Message::HostMetadataUpdate(m.clone())),
                    None => out.metadata_removes.push(Message::HostMetadataRemove(name.clone())),
                }
            }
            if host.node.is_none() && host.legacy.is_none() && host.tunnels == <[Tunnel; 2]>::default() {
                self.hosts.remove(&name);
            }
        }
        out
    }
}

// === impl Host ===

impl Host {
    fn metadata(&self, name: &SmolStr) -> Option<HostMetadata> {
        match (&self.node, self.legacy) {
            (Some(node), _) if !node.blank_bgp => Some(HostMetadata {
                hostname: name.clone(),
                ipv4: node.addresses.v4,
                ipv6: node.addresses.v6,
                as_number: node.as_number.clone(),
                labels: node.labels.clone(),
            }),
            (_, Some(addr)) => {
                let of = |version| (IpVersion::of(addr) == version).then(|| Cidr::host(addr));
                Some(HostMetadata {
                    hostname: name.clone(),
                    ipv4: of(IpVersion::V4),
                    ipv6: of(IpVersion::V6),
                    as_number: SmolStr::default(),
                    labels: BTreeMap::new(),
                })
            }
            _ => None,
        }
    }

    fn vtep(&self, name: &SmolStr) -> Option<Vtep> {
        let node = self.node.as_ref().filter(|n| n.has_bgp)?;
        let family = |version: IpVersion, parent: Option<Cidr>| {
            let tunnel = self.tunnels[version as usize];
            let mac = tunnel.mac.unwrap_or_else(|| derived_mac(name, version));
            Some(VtepAddrs { tunnel: tunnel.addr?, parent: parent?.addr(), mac })
        };
        let v4 = family(IpVersion::V4, node.addresses.v4);
        let v6 = family(IpVersion::V6, node.addresses.v6);
        (v4.is_some() || v6.is_some()).then(|| Vtep { node: name.clone(), v4, v6 })
    }
}

/// The hardware address of a node's VXLAN device: `66`, then the first five bytes of SHA-1 of the node's name
/// (with `-v6` appended for IPv6).
pub fn derived_mac(node: &str, version: IpVersion) -> Mac {
    let digest = match version {
        IpVersion::V4 => Sha1::digest(node),
        IpVersion::V6 => Sha1::digest(format!("{node}-v6")),
    };
    let mut mac = [0x66; 6];
    mac[1..].copy_from_slice(&digest[..5]);
    Mac(mac)
}
