//! The VXLAN device of one family.
//!
//! In: whether it should be there, this node's own tunnel endpoint, the links. Out: the device with its settings and
//! its one address. A device that differs in what cannot be changed is made anew; its MTU, state and address are
//! corrected in place.

use std::time::Instant;

use calico_dpmsg::VtepAddrs;
use calico_net::{Cidr, IpVersion};
use calico_netlink::{Address, Link, NetlinkError};

use super::links::Links;
use super::net::{Change, NetKernel, VxlanDevice, tunnel_address};

/// Why a tunnel device cannot be made yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TunnelWait {
    /// This node has no tunnel address yet.
    #[error("this node has no tunnel address of IPv{0} yet")]
    NoAddress(u8),
    /// No interface has the node's address.
    #[error("no interface has the node's address of IPv{0}")]
    NoParent(u8),
}

/// What an apply did.
#[derive(Debug, Default)]
pub(crate) struct TunnelReport {
    /// Changes that the kernel carried out.
    pub(crate) written: usize,
    /// What is awaited.
    pub(crate) waits: Option<TunnelWait>,
}

/// The device.
#[derive(Debug)]
pub(crate) struct Tunnel {
    version: IpVersion,
    name: &'static str,
    vni: u32,
    port: u16,
    enabled: bool,
    own: Option<VtepAddrs>,
    mtu: u32,
    dirty: bool,
}

// === impl Tunnel ===

impl Tunnel {
    pub(crate) fn new(version: IpVersion, name: &'static str, vni: u32, port: u16) -> Self {
        Self { version, name, vni, port, enabled: false, own: None, mtu: 0, dirty: true }
    }

    /// Name of the device.
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// True if the device should be there.
    pub(crate) fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// Takes in what the device should be.
    pub(crate) fn set(&mut self, enabled: bool, own: Option<VtepAddrs>, mtu: u32) {
        self.dirty |= (self.enabled, self.own, self.mtu) != (enabled, own, mtu);
        (self.enabled, self.own, self.mtu) = (enabled, own, mtu);
    }

    /// Looks at the device at the next apply.
    pub(crate) fn resync(&mut self) {
        self.dirty = true;
    }

    /// Makes the device what it should be. `links` learns at once of what changed.
    ///
    /// # Errors
    /// If the kernel refuses; the next apply goes on.
    pub(crate) fn apply(
        &mut self,
        net: &mut impl NetKernel,
        links: &mut Links,
        now: Instant,
    ) -> Result<TunnelReport, NetlinkError> {
        let mut report = TunnelReport::default();
        if !self.dirty {
            return Ok(report);
        }
        if !self.enabled {
            self.take_away(net, links, &mut report)?;
            self.dirty = false;
            return Ok(report);
        }
        let Some(own) = self.own else {
            report.waits = Some(TunnelWait::NoAddress(self.version.number()));
            return Ok(report);
        };
        let Some((_, parent)) = links.with_address(own.parent) else {
            report.waits = Some(TunnelWait::NoParent(self.version.number()));
            return Ok(report);
        };
        let wanted = VxlanDevice {
            name: self.name,
            vni: self.vni,
            port: self.port,
            local: own.parent,
            parent: parent.link.index,
            mac: own.mac,
            mtu: self.mtu,
        };
        let index = self.make(net, &wanted, links, now, &mut report)?;
        self.address(net, index, own, &mut report)?;
        self.tune(net, &wanted, index, &mut report)?;
        self.refresh(net, links, now)?;
        self.dirty = false;
        Ok(report)
    }

    fn take_away(
        &self,
        net: &mut impl NetKernel,
        links: &mut Links,
        report: &mut TunnelReport,
    ) -> Result<(), NetlinkError> {
        let Some(link) = links.get(self.name).map(|l| l.link.clone()) else { return Ok(()) };
        tracing::info!(device = self.name, "Removing a tunnel device that no pool needs");
        report.written += usize::from(net.delete_link(link.index)?);
        links.remove(link.index);
        Ok(())
    }

    /// Makes the device unless there is one that will do; returns its index.
    fn make(
        &self,
        net: &mut impl NetKernel,
        wanted: &VxlanDevice,
        links: &mut Links,
        now: Instant,
        report: &mut TunnelReport,
    ) -> Result<u32, NetlinkError> {
        if let Some(link) = net.link(self.name)? {
            if fits(&link, wanted) {
                return Ok(link.index);
            }
            tracing::info!(device = self.name, "Making a tunnel device anew, its settings differ");
            report.written += usize::from(net.delete_link(link.index)?);
            links.remove(link.index);
        }
        net.create_vxlan(wanted)?;
        report.written += 1;
        self.refresh(net, links, now)
    }

    /// Reads the device anew; returns its index.
    fn refresh(
        &self,
        net: &mut impl NetKernel,
        links: &mut Links,
        now: Instant,
    ) -> Result<u32, NetlinkError> {
        let Some(link) = net.link(self.name)? else { return Ok(0) };
        let index = link.index;
        let addrs = net.addresses(Some(index))?.into_iter().map(|a| a.addr).collect();
        links.observe(link, now);
        links.observe_addresses(index, addrs);
        Ok(index)
    }

    /// The device has the tunnel address and no other of this family.
    fn address(
        &self,
        net: &mut impl NetKernel,
        index: u32,
        own: VtepAddrs,
        report: &mut TunnelReport,
    ) -> Result<(), NetlinkError> {
        let wanted = Cidr::host(own.tunnel);
        let there: Vec<Address> = net
            .addresses(Some(index))?
            .into_iter()
            .filter(|a| a.addr.version() == self.version && !is_link_local(a))
            .collect();
        let mut changes: Vec<Change> =
            there.iter().filter(|a| a.addr != wanted).map(|a| Change::DeleteAddress(*a)).collect();
        if !there.iter().any(|a| a.addr == wanted) {
            changes.push(Change::ReplaceAddress(tunnel_address(index, own.tunnel)));
        }
        write_all(net, &changes, report)
    }

    fn tune(
        &self,
        net: &mut impl NetKernel,
        wanted: &VxlanDevice,
        index: u32,
        report: &mut TunnelReport,
    ) -> Result<(), NetlinkError> {
        let Some(link) = net.link(self.name)? else { return Ok(()) };
        let mtu = (link.mtu != wanted.mtu).then_some(wanted.mtu);
        let up = (!link.is_up()).then_some(true);
        if mtu.is_none() && up.is_none() {
            return Ok(());
        }
        write_all(net, &[Change::SetLink { index, up, mtu }], report)
    }
}

/// True if the device need not be made anew.
fn fits(device: &Link, wanted: &VxlanDevice) -> bool {
    device.kind == "vxlan"
        && device.mac == Some(wanted.mac)
        && device.vxlan.as_ref().is_some_and(|v| {
            v.vni == wanted.vni
                && v.port == wanted.port
                && v.parent == Some(wanted.parent)
                && v.local == Some(wanted.local)
                && v.group.is_none()
                && !v.l2_miss
                && !v.group_policy
                && !v.external
        })
}

fn is_link_local(address: &Address) -> bool {
    matches!(address.addr.addr(), std::net::IpAddr::V6(a) if a.is_unicast_link_local())
}

fn write_all(
    net: &mut impl NetKernel,
    changes: &[Change],
    report: &mut TunnelReport,
) -> Result<(), NetlinkError> {
    if changes.is_empty() {
        return Ok(());
    }
    for result in net.write(changes)? {
        match result {
            Ok(()) => report.written += 1,
            Err(e) if e.is_not_found() => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}
