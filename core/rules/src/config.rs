//! Settings that shape rules, with upstream's defaults.

use std::net::IpAddr;

use calico_net::{Cidr, IpVersion, PortRange};
use smol_str::SmolStr;

use crate::ir::ProtoPorts;
use crate::marks::MarkError;
use crate::names;

/// Why settings cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The mark mask is too small.
    #[error(transparent)]
    Marks(#[from] MarkError),
    /// Without a prefix no interface is a workload's.
    #[error("no prefix of workload interfaces is configured")]
    NoPrefix,
    /// A prefix of workload interfaces that no interface can have, or that cannot be written in a rule.
    #[error("prefix of workload interfaces {0:?} cannot be written in a rule")]
    Prefix(SmolStr),
    /// The interface for source NAT cannot be written in a rule.
    #[error("interface for source NAT {0:?} cannot be written in a rule")]
    NatInterface(SmolStr),
}

/// What ends the evaluation of an accepted packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AllowAction {
    /// The packet leaves the kernel chain accepted.
    #[default]
    Accept,
    /// The kernel chain goes on, so that other rules of the host still see the packet.
    Return,
}

/// What a denied packet meets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DenyAction {
    /// Silence.
    #[default]
    Drop,
    /// An error to the sender.
    Reject,
}

/// What happens to a workload's packet to its own host that egress policy let through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EndpointToHostAction {
    /// Silence.
    #[default]
    Drop,
    /// The host's own rules decide.
    Return,
    /// Accepted.
    Accept,
    /// An error to the sender.
    Reject,
}

/// What happens to packets to service addresses that nothing translated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ServiceLoopPrevention {
    /// Silence.
    #[default]
    Drop,
    /// An error to the sender.
    Reject,
    /// They are routed on.
    Disabled,
}

/// Which destinations source NAT leaves alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NatExclusions {
    /// Addresses of pools.
    #[default]
    IpPools,
    /// Addresses of pools and of nodes.
    IpPoolsAndHosts,
}

/// A port of the host that policy never closes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailsafePort {
    /// Protocol.
    pub protocol: ProtoPorts,
    /// Port.
    pub port: u16,
    /// Peers that may use it; all if absent.
    pub net: Option<Cidr>,
}

impl FailsafePort {
    /// The port, for every peer.
    pub fn new(protocol: ProtoPorts, port: u16) -> Self {
        Self { protocol, port, net: None }
    }
}

/// OpenStack's needs: the address and port of its metadata service on this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenStack {
    /// Address that 169.254.169.254:80 is translated to; no translation if absent.
    pub metadata_addr: Option<IpAddr>,
    /// Port.
    pub metadata_port: u16,
}

/// A tunnel of one family.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tunnel {
    /// Whether some pool uses it.
    pub enabled: bool,
    /// Address of this node's tunnel device, once known.
    pub address: Option<IpAddr>,
}

/// All settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleConfig {
    /// Beginnings of workload interfaces' names.
    pub workload_prefixes: Vec<SmolStr>,
    /// Bits of the packet mark that are ours.
    pub mark_mask: u32,
    /// Our jumps come first in kernel chains (else last). Without effect in nftables, where the chains are ours.
    pub insert_hooks: bool,
    /// Accepted in the filter layer.
    pub filter_allow: AllowAction,
    /// Accepted in the mangle layer.
    pub mangle_allow: AllowAction,
    /// Denied.
    pub filter_deny: DenyAction,
    /// From workloads to their own host.
    pub endpoint_to_host: EndpointToHostAction,
    /// Packets that connection tracking finds invalid are not denied.
    pub disable_conntrack_invalid_check: bool,
    /// Workloads may send VXLAN.
    pub allow_vxlan_from_workloads: bool,
    /// Workloads may send IP in IP.
    pub allow_ipip_from_workloads: bool,
    /// Ports of host endpoints that are always reachable.
    pub failsafe_inbound: Vec<FailsafePort>,
    /// Ports that host endpoints may always reach.
    pub failsafe_outbound: Vec<FailsafePort>,
    /// IP in IP (IPv4 only).
    pub ipip: Tunnel,
    /// VXLAN over IPv4.
    pub vxlan_v4: Tunnel,
    /// VXLAN over IPv6.
    pub vxlan_v6: Tunnel,
    /// UDP port of VXLAN.
    pub vxlan_port: u16,
    /// Text of logged packets; `%t`, `%k`, `%n`, `%p` stand for tier, short kind, name, namespace/name.
    pub log_prefix: String,
    /// Rate such as `5/minute`, and burst, of rules that log.
    pub log_limit: Option<(SmolStr, u32)>,
    /// Packets that policy decides are reported to a flow log.
    pub flow_logs: bool,
    /// Service addresses without a service.
    pub service_loop_prevention: ServiceLoopPrevention,
    /// Ports for source NAT.
    pub nat_port_range: Option<PortRange>,
    /// Source address for NAT; the interface's if absent.
    pub nat_outgoing_address: Option<IpAddr>,
    /// Outgoing interface that source NAT is limited to; a trailing `+` or `*` stands for any rest.
    pub nat_interface_filter: Option<SmolStr>,
    /// Destinations without source NAT.
    pub nat_exclusions: NatExclusions,
    /// NAT chooses ports fully at random.
    pub nat_fully_random: bool,
    /// OpenStack is the orchestrator.
    pub openstack: Option<OpenStack>,
}

impl RuleConfig {
    /// Device names of the VXLAN tunnels.
    pub const VXLAN_DEVICES: [(&'static str, IpVersion); 2] =
        [("vxlan.calico", IpVersion::V4), ("vxlan-v6.calico", IpVersion::V6)];
    /// Device name of the IP-in-IP tunnel.
    pub const IPIP_DEVICE: &'static str = "tunl0";

    /// Refuses what would make rules mean something else than was asked for.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        if self.workload_prefixes.is_empty() {
            return Err(ConfigError::NoPrefix);
        }
        if let Some(bad) = self.workload_prefixes.iter().find(|p| !names::is_interface(p)) {
            return Err(ConfigError::Prefix(bad.clone()));
        }
        match &self.nat_interface_filter {
            Some(f) if !f.is_empty() && !names::is_interface(f.strip_suffix(['+', '*']).unwrap_or(f)) => {
                Err(ConfigError::NatInterface(f.clone()))
            }
            _ => Ok(()),
        }
    }

    /// VXLAN of `version`.
    pub fn vxlan(&self, version: IpVersion) -> &Tunnel {
        match version {
            IpVersion::V4 => &self.vxlan_v4,
            IpVersion::V6 => &self.vxlan_v6,
        }
    }

    /// IP in IP of `version`; none for IPv6.
    pub fn ipip(&self, version: IpVersion) -> Option<&Tunnel> {
        (version == IpVersion::V4 && self.ipip.enabled).then_some(&self.ipip)
    }
}

impl Default for RuleConfig {
    fn default() -> Self {
        use ProtoPorts::{Tcp, Udp};
        let control = [179, 2379, 2380, 5473, 6443, 6666, 6667].map(|p| FailsafePort::new(Tcp, p));
        let with = |first: &[(ProtoPorts, u16)]| {
            let mut ports: Vec<_> = first.iter().map(|&(p, n)| FailsafePort::new(p, n)).collect();
            ports.extend(control.iter().cloned());
            ports
        };
        Self {
            workload_prefixes: vec!["cali".into()],
            mark_mask: 0xffff_0000,
            insert_hooks: true,
            filter_allow: AllowAction::Accept,
            mangle_allow: AllowAction::Accept,
            filter_deny: DenyAction::Drop,
            endpoint_to_host: EndpointToHostAction::Drop,
            disable_conntrack_invalid_check: false,
            allow_vxlan_from_workloads: false,
            allow_ipip_from_workloads: false,
            failsafe_inbound: with(&[(Tcp, 22), (Udp, 68)]),
            failsafe_outbound: with(&[(Udp, 53), (Udp, 67)]),
            ipip: Tunnel::default(),
            vxlan_v4: Tunnel::default(),
            vxlan_v6: Tunnel::default(),
            vxlan_port: 4789,
            log_prefix: "calico-packet".into(),
            log_limit: None,
            flow_logs: false,
            service_loop_prevention: ServiceLoopPrevention::Drop,
            nat_port_range: None,
            nat_outgoing_address: None,
            nat_interface_filter: None,
            nat_exclusions: NatExclusions::IpPools,
            nat_fully_random: true,
            openstack: None,
        }
    }
}
