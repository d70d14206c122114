//! Links: list, create, change, delete.

use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd};

use calico_net::Mac;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{
    InfoData, InfoKind, InfoVeth, InfoVxlan, LinkAttribute, LinkExtentMask, LinkFlags, LinkHeader, LinkInfo,
    LinkMessage,
};
use nix::errno::Errno;

use crate::Netlink;
use crate::error::{NetlinkError, Object};
use crate::socket::Request;
use crate::wire::{attributes, ip_of, mac_of, text_of, u32_of};

/// Length of a link message's header (`struct ifinfomsg`).
const HEADER: usize = 16;
/// Attribute with the list of further attributes by kind (`IFLA_INFO_DATA`).
const INFO_DATA: u16 = 2;
/// Attribute with the kind's name (`IFLA_INFO_KIND`).
const INFO_KIND: u16 = 1;

/// Operational state (RFC 2863).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OperState {
    /// The driver does not say; loopback and some tunnels stay here.
    Unknown,
    /// Hardware or peer is missing.
    NotPresent,
    /// No carrier or set down.
    Down,
    /// A lower link is down.
    LowerLayerDown,
    /// In a test mode.
    Testing,
    /// Waits for an event, for example authentication.
    Dormant,
    /// Passes packets.
    Up,
}

/// Settings of a VXLAN link.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VxlanInfo {
    /// Network identifier.
    pub vni: u32,
    /// UDP port.
    pub port: u16,
    /// Link that carries the tunnel's packets.
    pub parent: Option<u32>,
    /// Source address of the tunnel's packets.
    pub local: Option<IpAddr>,
    /// Multicast group or default remote.
    pub group: Option<IpAddr>,
    /// Whether it learns remote hardware addresses from packets.
    pub learning: bool,
    /// Whether misses of hardware addresses are reported to user space.
    pub l2_miss: bool,
    /// Whether the group-policy extension is on.
    pub group_policy: bool,
    /// Whether metadata of each packet decides where it goes (flow based).
    pub external: bool,
}

/// A link as the kernel has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Index, unique in the namespace, never used again soon.
    pub index: u32,
    /// Name.
    pub name: String,
    /// Kind, for example `veth`, `vxlan`, `bridge`; empty for hardware and loopback.
    pub kind: String,
    /// Hardware address; `None` where there is none of six bytes.
    pub mac: Option<Mac>,
    /// Largest packet in bytes.
    pub mtu: u32,
    /// The kernel's `IFF_*` flags.
    pub flags: u32,
    /// Operational state.
    pub oper_state: OperState,
    /// Bridge or other master.
    pub master: Option<u32>,
    /// The other end of a veth, or the lower link; an index in the namespace that `peer_netns_id` names.
    pub parent: Option<u32>,
    /// Set if `parent` is an index of another namespace.
    pub peer_netns_id: Option<i32>,
    /// Transmit queues.
    pub tx_queues: u32,
    /// Receive queues.
    pub rx_queues: u32,
    /// Settings, if this is a VXLAN link.
    pub vxlan: Option<VxlanInfo>,
}

// === impl Link ===

impl Link {
    /// True if an administrator set it up.
    pub fn is_up(&self) -> bool {
        self.flags & libc::IFF_UP as u32 != 0
    }

    /// True if it can pass packets: set up, with a carrier.
    pub fn is_running(&self) -> bool {
        self.flags & libc::IFF_RUNNING as u32 != 0
    }

    /// True for the loopback link.
    pub fn is_loopback(&self) -> bool {
        self.flags & libc::IFF_LOOPBACK as u32 != 0
    }

    pub(crate) fn decode(payload: &[u8]) -> Result<Self, String> {
        let header = LinkHeader::parse(payload).map_err(|e| e.to_string())?;
        let mut link = Self {
            index: header.index,
            name: String::new(),
            kind: String::new(),
            mac: None,
            mtu: 0,
            flags: header.flags.bits(),
            oper_state: OperState::Unknown,
            master: None,
            parent: None,
            peer_netns_id: None,
            tx_queues: 0,
            rx_queues: 0,
            vxlan: None,
        };
        attributes(payload, HEADER, |kind, value| {
            match kind {
                libc::IFLA_IFNAME => link.name = text_of(value)?,
                libc::IFLA_ADDRESS => link.mac = mac_of(value),
                libc::IFLA_MTU => link.mtu = u32_of(value)?,
                libc::IFLA_LINK => link.parent = Some(u32_of(value)?),
                libc::IFLA_LINK_NETNSID => link.peer_netns_id = Some(u32_of(value)?.cast_signed()),
                libc::IFLA_MASTER => link.master = Some(u32_of(value)?),
                libc::IFLA_OPERSTATE => link.oper_state = oper_state(value.first().copied()),
                libc::IFLA_NUM_TX_QUEUES => link.tx_queues = u32_of(value)?,
                libc::IFLA_NUM_RX_QUEUES => link.rx_queues = u32_of(value)?,
                libc::IFLA_LINKINFO => link.decode_info(value)?,
                _ => {}
            }
            Ok::<(), String>(())
        })?;
        Ok(link)
    }

    fn decode_info(&mut self, info: &[u8]) -> Result<(), String> {
        let mut data = None;
        attributes(info, 0, |kind, value| {
            match kind {
                INFO_KIND => self.kind = text_of(value)?,
                INFO_DATA => data = Some(value.to_vec()),
                _ => {}
            }
            Ok::<(), String>(())
        })?;
        if self.kind == "vxlan" {
            self.vxlan = Some(VxlanInfo::decode(data.as_deref().unwrap_or_default())?);
        }
        Ok(())
    }
}

// === impl VxlanInfo ===

impl VxlanInfo {
    fn decode(data: &[u8]) -> Result<Self, String> {
        // Numbers of `IFLA_VXLAN_*` in the kernel's `uapi/linux/if_link.h`.
        const ID: u16 = 1;
        const GROUP: u16 = 2;
        const LINK: u16 = 3;
        const LOCAL: u16 = 4;
        const LEARNING: u16 = 7;
        const L2MISS: u16 = 13;
        const PORT: u16 = 15;
        const GROUP6: u16 = 16;
        const LOCAL6: u16 = 17;
        const GBP: u16 = 23;
        const COLLECT_METADATA: u16 = 25;
        let flag = |value: &[u8]| value.first().is_some_and(|v| *v != 0);
        let specified = |value: &[u8]| ip_of(value).map(|a| (!a.is_unspecified()).then_some(a));
        let mut info = Self::default();
        attributes(data, 0, |kind, value| {
            match kind {
                ID => info.vni = u32_of(value)?,
                GROUP | GROUP6 => info.group = specified(value)?,
                LINK => info.parent = Some(u32_of(value)?).filter(|index| *index != 0),
                LOCAL | LOCAL6 => info.local = specified(value)?,
                LEARNING => info.learning = flag(value),
                L2MISS => info.l2_miss = flag(value),
                PORT => info.port = value.first_chunk::<2>().map_or(0, |b| u16::from_be_bytes(*b)),
                GBP => info.group_policy = true,
                COLLECT_METADATA => info.external = flag(value),
                _ => {}
            }
            Ok::<(), String>(())
        })?;
        Ok(info)
    }
}

fn oper_state(number: Option<u8>) -> OperState {
    match number {
        Some(1) => OperState::NotPresent,
        Some(2) => OperState::Down,
        Some(3) => OperState::LowerLayerDown,
        Some(4) => OperState::Testing,
        Some(5) => OperState::Dormant,
        Some(6) => OperState::Up,
        _ => OperState::Unknown,
    }
}

/// One end of a veth pair to be made.
#[derive(Debug, Clone, Copy, Default)]
pub struct PeerSpec<'a> {
    /// Name.
    pub name: &'a str,
    /// Hardware address; the kernel chooses a random one if not set.
    pub mac: Option<Mac>,
    /// Namespace to make this end in; the socket's own if not set.
    pub netns: Option<BorrowedFd<'a>>,
}

/// A veth pair to be made. Both ends come into being in one step, down, each in its own namespace.
#[derive(Debug, Clone, Copy, Default)]
pub struct VethSpec<'a> {
    /// One end.
    pub end: PeerSpec<'a>,
    /// The other.
    pub peer: PeerSpec<'a>,
    /// Largest packet in bytes, of both ends; the kernel's default if not set.
    pub mtu: Option<u32>,
    /// Transmit and receive queues of both ends; the kernel's default if not set.
    pub queues: Option<u32>,
}

// === impl VethSpec ===

impl VethSpec<'_> {
    fn end_message(&self, end: &PeerSpec<'_>) -> LinkMessage {
        let mut message = LinkMessage::default();
        let list = &mut message.attributes;
        list.push(LinkAttribute::IfName(end.name.to_owned()));
        if let Some(mtu) = self.mtu {
            list.push(LinkAttribute::Mtu(mtu));
        }
        if let Some(queues) = self.queues {
            list.push(LinkAttribute::NumTxQueues(queues));
            list.push(LinkAttribute::NumRxQueues(queues));
        }
        if let Some(mac) = end.mac {
            list.push(LinkAttribute::Address(mac.0.to_vec()));
        }
        if let Some(ns) = end.netns {
            list.push(LinkAttribute::NetNsFd(ns.as_raw_fd()));
        }
        message
    }

    fn create(&self) -> Request {
        let mut message = self.end_message(&self.end);
        message.attributes.push(LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(InfoKind::Veth),
            LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(self.end_message(&self.peer)))),
        ]));
        create_request(self.end.name, message)
    }
}

/// A VXLAN link to be made. It does not learn addresses from packets.
#[derive(Debug, Clone, Default)]
pub struct VxlanSpec<'a> {
    /// Name.
    pub name: &'a str,
    /// Network identifier.
    pub vni: u32,
    /// UDP port.
    pub port: u16,
    /// Source address of the tunnel's packets.
    pub local: Option<IpAddr>,
    /// Link that carries the tunnel's packets.
    pub parent: Option<u32>,
    /// Hardware address; the kernel chooses a random one if not set.
    pub mac: Option<Mac>,
    /// Largest packet in bytes; the kernel's default if not set.
    pub mtu: Option<u32>,
}

// === impl VxlanSpec ===

impl VxlanSpec<'_> {
    fn create(&self) -> Request {
        let mut data = vec![InfoVxlan::Id(self.vni), InfoVxlan::Port(self.port), InfoVxlan::Learning(false)];
        if let Some(parent) = self.parent {
            data.push(InfoVxlan::Link(parent));
        }
        match self.local {
            Some(IpAddr::V4(local)) => data.push(InfoVxlan::Local(local)),
            Some(IpAddr::V6(local)) => data.push(InfoVxlan::Local6(local)),
            None => {}
        }
        let mut message = LinkMessage::default();
        let list = &mut message.attributes;
        list.push(LinkAttribute::IfName(self.name.to_owned()));
        if let Some(mac) = self.mac {
            list.push(LinkAttribute::Address(mac.0.to_vec()));
        }
        if let Some(mtu) = self.mtu {
            list.push(LinkAttribute::Mtu(mtu));
        }
        list.push(LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(InfoKind::Vxlan),
            LinkInfo::Data(InfoData::Vxlan(data)),
        ]));
        create_request(self.name, message)
    }
}

/// Changes to a link, made together; what is not set stays.
#[derive(Debug, Clone, Copy, Default)]
pub struct LinkChange<'a> {
    /// Set up or down.
    pub up: Option<bool>,
    /// Largest packet in bytes.
    pub mtu: Option<u32>,
    /// Hardware address.
    pub mac: Option<Mac>,
    /// New name. The kernel renames links that are down, since 6.x also those that are up.
    pub name: Option<&'a str>,
    /// Bridge or other master; 0 takes it out.
    pub master: Option<u32>,
    /// Namespace to move it to.
    pub netns: Option<BorrowedFd<'a>>,
}

// === impl LinkChange ===

impl LinkChange<'_> {
    /// The request that makes these changes to the link with `index`.
    pub fn request(&self, index: u32) -> Request {
        let mut message = LinkMessage::default();
        message.header.index = index;
        if let Some(up) = self.up {
            message.header.change_mask = LinkFlags::Up;
            message.header.flags = if up { LinkFlags::Up } else { LinkFlags::empty() };
        }
        let list = &mut message.attributes;
        if let Some(mtu) = self.mtu {
            list.push(LinkAttribute::Mtu(mtu));
        }
        if let Some(mac) = self.mac {
            list.push(LinkAttribute::Address(mac.0.to_vec()));
        }
        if let Some(name) = self.name {
            list.push(LinkAttribute::IfName(name.to_owned()));
        }
        if let Some(master) = self.master {
            list.push(LinkAttribute::Controller(master));
        }
        if let Some(ns) = self.netns {
            list.push(LinkAttribute::NetNsFd(ns.as_raw_fd()));
        }
        Request::new("change", Object::LinkIndex(index), 0, &RouteNetlinkMessage::SetLink(message))
    }
}

fn create_request(name: &str, message: LinkMessage) -> Request {
    let flags = NLM_F_CREATE | NLM_F_EXCL;
    Request::new("create", Object::Link(name.to_owned()), flags, &RouteNetlinkMessage::NewLink(message))
}

fn simple_link(name: &str, kind: InfoKind) -> Request {
    let mut message = LinkMessage::default();
    message.attributes.push(LinkAttribute::IfName(name.to_owned()));
    message.attributes.push(LinkAttribute::LinkInfo(vec![LinkInfo::Kind(kind)]));
    create_request(name, message)
}

impl Netlink {
    /// All links of the namespace, by index.
    pub fn links(&mut self) -> Result<Vec<Link>, NetlinkError> {
        let mut message = LinkMessage::default();
        message.attributes.push(LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats]));
        let request = Request::new("list", Object::Links, 0, &RouteNetlinkMessage::GetLink(message));
        let mut links = self.channel.dump(&request, |payload| Link::decode(payload).map(Some))?;
        links.sort_by_key(|link| link.index);
        Ok(links)
    }

    /// The link with this index; `None` if there is none.
    pub fn link_by_index(&mut self, index: u32) -> Result<Option<Link>, NetlinkError> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        self.get_link(Object::LinkIndex(index), message)
    }

    /// The link with this name; `None` if there is none.
    pub fn link_by_name(&mut self, name: &str) -> Result<Option<Link>, NetlinkError> {
        let mut message = LinkMessage::default();
        message.attributes.push(LinkAttribute::IfName(name.to_owned()));
        self.get_link(Object::Link(name.to_owned()), message)
    }

    fn get_link(&mut self, object: Object, mut message: LinkMessage) -> Result<Option<Link>, NetlinkError> {
        message.attributes.push(LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats]));
        let request = Request::new("read", object, 0, &RouteNetlinkMessage::GetLink(message));
        match self.channel.get(&request, Link::decode) {
            Ok(link) => Ok(Some(link)),
            Err(e) if matches!(e.errno(), Some(Errno::ENODEV)) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Makes a veth pair. A name in use is an error for which [`NetlinkError::is_exists`] holds.
    pub fn create_veth(&mut self, spec: &VethSpec<'_>) -> Result<(), NetlinkError> {
        self.execute(spec.create())
    }

    /// Makes a VXLAN link, down.
    pub fn create_vxlan(&mut self, spec: &VxlanSpec<'_>) -> Result<(), NetlinkError> {
        self.execute(spec.create())
    }

    /// Makes a bridge, down.
    pub fn create_bridge(&mut self, name: &str) -> Result<(), NetlinkError> {
        self.execute(simple_link(name, InfoKind::Bridge))
    }

    /// Makes a dummy link, down. Not every kernel has them.
    pub fn create_dummy(&mut self, name: &str) -> Result<(), NetlinkError> {
        self.execute(simple_link(name, InfoKind::Dummy))
    }

    /// Deletes a link; of a veth pair both ends go. False if there was no such link.
    pub fn delete_link(&mut self, index: u32) -> Result<bool, NetlinkError> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        let object = Object::LinkIndex(index);
        found(self.execute(Request::new("delete", object, 0, &RouteNetlinkMessage::DelLink(message))))
    }

    /// Deletes the link with this name. False if there was no such link.
    pub fn delete_link_by_name(&mut self, name: &str) -> Result<bool, NetlinkError> {
        let mut message = LinkMessage::default();
        message.attributes.push(LinkAttribute::IfName(name.to_owned()));
        let object = Object::Link(name.to_owned());
        found(self.execute(Request::new("delete", object, 0, &RouteNetlinkMessage::DelLink(message))))
    }

    /// Changes the link with `index`.
    pub fn change_link(&mut self, index: u32, change: &LinkChange<'_>) -> Result<(), NetlinkError> {
        self.execute(change.request(index))
    }

    /// Sets a link up or down.
    pub fn set_link_up(&mut self, index: u32, up: bool) -> Result<(), NetlinkError> {
        self.change_link(index, &LinkChange { up: Some(up), ..Default::default() })
    }

    /// Sets a link's largest packet.
    pub fn set_link_mtu(&mut self, index: u32, mtu: u32) -> Result<(), NetlinkError> {
        self.change_link(index, &LinkChange { mtu: Some(mtu), ..Default::default() })
    }

    /// Sets a link's hardware address.
    pub fn set_link_mac(&mut self, index: u32, mac: Mac) -> Result<(), NetlinkError> {
        self.change_link(index, &LinkChange { mac: Some(mac), ..Default::default() })
    }

    /// Renames a link.
    pub fn rename_link(&mut self, index: u32, name: &str) -> Result<(), NetlinkError> {
        self.change_link(index, &LinkChange { name: Some(name), ..Default::default() })
    }

    /// Moves a link to another namespace, where it is down and may have another index.
    pub fn move_link(&mut self, index: u32, ns: BorrowedFd<'_>) -> Result<(), NetlinkError> {
        self.change_link(index, &LinkChange { netns: Some(ns), ..Default::default() })
    }

    /// Puts a link into a bridge, or with 0 takes it out.
    pub fn set_link_master(&mut self, index: u32, master: u32) -> Result<(), NetlinkError> {
        self.change_link(index, &LinkChange { master: Some(master), ..Default::default() })
    }
}

/// Turns "not there" into `false`.
pub(crate) fn found(result: Result<(), NetlinkError>) -> Result<bool, NetlinkError> {
    match result {
        Ok(()) => Ok(true),
        Err(e) if e.is_not_found() => Ok(false),
        Err(e) => Err(e),
    }
}
