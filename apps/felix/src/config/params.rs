//! The settings that Felix acts on, typed.

use std::net::IpAddr;
use std::time::Duration;

use calico_calc::RouteSource;
use calico_net::Cidr;
use calico_rules::config::{
    AllowAction, DenyAction, EndpointToHostAction, NatExclusions, RuleConfig, ServiceLoopPrevention,
};
use smol_str::SmolStr;

use super::parse::Reader;
use super::{BadValue, RawSettings};

/// Which routes between nodes Felix programs (the rest is the BGP agent's).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProgramRoutes {
    /// Those of pools with IP-in-IP.
    pub ipip: bool,
    /// Those of pools without encapsulation.
    pub no_encap: bool,
}

/// Settings of one node's Felix.
#[derive(Debug, Clone, PartialEq)]
pub struct Params {
    /// This node's name.
    pub hostname: SmolStr,
    /// Level of log lines on standard error.
    pub log_level: String,
    /// Serve `/liveness` and `/readiness`.
    pub health: Option<(String, u16)>,
    /// Time after which a silent main loop counts as dead.
    pub watchdog: Duration,
    /// Serve `/metrics`.
    pub metrics: Option<(String, u16)>,
    /// Handle IPv6.
    pub ipv6: bool,
    /// How rules are made. Tunnels are filled in as pools come and go.
    pub rules: RuleConfig,
    /// VXLAN regardless of pools.
    pub vxlan_enabled: Option<bool>,
    /// VXLAN network identifier.
    pub vxlan_vni: u32,
    /// MTU of the VXLAN devices; worked out from the host's interfaces if 0.
    pub vxlan_mtu: (u32, u32),
    /// Which host interfaces count for the MTU.
    pub mtu_iface_pattern: String,
    /// Time between full checks of nftables.
    pub table_refresh: Duration,
    /// Time between full checks of routes, neighbours and devices.
    pub route_refresh: Duration,
    /// Time between full checks of interfaces.
    pub interface_refresh: Duration,
    /// Which routes between nodes Felix programs.
    pub program_routes: ProgramRoutes,
    /// What remote routes are worked out from.
    pub route_source: RouteSource,
    /// Protocol number of routes.
    pub route_protocol: u8,
    /// Preferred source address of routes to workloads, per family.
    pub route_source_address: (Option<IpAddr>, Option<IpAddr>),
    /// Remove foreign routes on workload interfaces.
    pub remove_external_routes: bool,
    /// Metric of routes to workloads, per family.
    pub route_priority: (u32, u32),
    /// Touch no routes at all.
    pub route_sync_disabled: bool,
    /// Turn on forwarding.
    pub ip_forwarding: bool,
    /// Addresses outside the cluster that may send tunnel packets.
    pub external_nodes: Vec<Cidr>,
    /// Workloads may name source prefixes that they spoof.
    pub source_spoofing: bool,
    /// Workloads may have floating addresses (those of OpenStack always do).
    pub floating_ips: bool,
    /// Folder of the endpoint status files.
    pub status_prefix: String,
    /// File that tells the CNI plugin the MTU for workloads; empty for none.
    pub mtu_file: String,
}

// === impl Params ===

impl Params {
    /// Reads the settings; `hostname` is the machine's own name. Bad texts are listed beside the result.
    pub fn read(raw: &RawSettings, hostname: &str) -> (Self, Vec<BadValue>) {
        let mut r = Reader::new(raw);
        let defaults = RuleConfig::default();
        let deny = [("DROP", DenyAction::Drop), ("REJECT", DenyAction::Reject)];
        let allow = [("ACCEPT", AllowAction::Accept), ("RETURN", AllowAction::Return)];
        let rules = RuleConfig {
            workload_prefixes: r.list("InterfacePrefix", &["cali"]),
            mark_mask: r.mask("NftablesMarkMask", defaults.mark_mask),
            filter_allow: r.word("NftablesFilterAllowAction", AllowAction::Accept, &allow),
            mangle_allow: r.word("NftablesMangleAllowAction", AllowAction::Accept, &allow),
            filter_deny: r.word("NftablesFilterDenyAction", DenyAction::Drop, &deny),
            endpoint_to_host: r.word(
                "DefaultEndpointToHostAction",
                EndpointToHostAction::Drop,
                &[
                    ("DROP", EndpointToHostAction::Drop),
                    ("RETURN", EndpointToHostAction::Return),
                    ("ACCEPT", EndpointToHostAction::Accept),
                    ("REJECT", EndpointToHostAction::Reject),
                ],
            ),
            disable_conntrack_invalid_check: r.flag("DisableConntrackInvalidCheck", false),
            allow_vxlan_from_workloads: r.flag("AllowVXLANPacketsFromWorkloads", false),
            allow_ipip_from_workloads: r.flag("AllowIPIPPacketsFromWorkloads", false),
            failsafe_inbound: r.failsafes("FailsafeInboundHostPorts", defaults.failsafe_inbound.clone()),
            failsafe_outbound: r.failsafes("FailsafeOutboundHostPorts", defaults.failsafe_outbound.clone()),
            vxlan_port: r.number("VXLANPort", 4789, 1..=65535),
            log_prefix: r.text("LogPrefix", "calico-packet"),
            service_loop_prevention: r.word(
                "ServiceLoopPrevention",
                ServiceLoopPrevention::Drop,
                &[
                    ("Drop", ServiceLoopPrevention::Drop),
                    ("Reject", ServiceLoopPrevention::Reject),
                    ("Disabled", ServiceLoopPrevention::Disabled),
                ],
            ),
            nat_port_range: r.port_range("NATPortRange"),
            nat_outgoing_address: r.address("NATOutgoingAddress"),
            nat_interface_filter: Some(r.text("IptablesNATOutgoingInterfaceFilter", ""))
                .filter(|t| !t.is_empty())
                .map(SmolStr::from),
            nat_exclusions: r.word(
                "NATOutgoingExclusions",
                NatExclusions::IpPools,
                &[
                    ("IPPoolsOnly", NatExclusions::IpPools),
                    ("IPPoolsAndHostIPs", NatExclusions::IpPoolsAndHosts),
                ],
            ),
            ..defaults
        };
        let all = ProgramRoutes { ipip: true, no_encap: true };
        let ipip = ProgramRoutes { ipip: true, no_encap: false };
        let server = |on: bool, host: String, port: u16| on.then_some((host, port));
        let health = (r.flag("HealthEnabled", false), r.text("HealthHost", "localhost"));
        let metrics = (r.flag("PrometheusMetricsEnabled", false), r.text("PrometheusMetricsHost", ""));
        let params = Self {
            hostname: r.text("FelixHostname", hostname).into(),
            log_level: r.text("LogSeverityScreen", "INFO"),
            health: server(health.0, health.1, r.number("HealthPort", 9099, 1..=65535)),
            watchdog: r.seconds("DataplaneWatchdogTimeout", 90).max(Duration::from_secs(20)),
            metrics: server(metrics.0, metrics.1, r.number("PrometheusMetricsPort", 9091, 1..=65535)),
            ipv6: r.flag("IPv6Support", true),
            rules,
            vxlan_enabled: r.maybe_flag("VXLANEnabled"),
            vxlan_vni: r.number("VXLANVNI", 4096, 1..=16_777_215),
            vxlan_mtu: (r.number("VXLANMTU", 0, 0..=65535), r.number("VXLANMTUV6", 0, 0..=65535)),
            mtu_iface_pattern: r.text("MTUIfacePattern", "^((en|wl|ww|sl|ib)[Pcopsvx].*|(eth|wlan|wwan).*)"),
            table_refresh: r.seconds("NftablesRefreshInterval", 180),
            route_refresh: r.seconds("RouteRefreshInterval", 90),
            interface_refresh: r.seconds("InterfaceRefreshInterval", 90),
            program_routes: r.word(
                "ProgramClusterRoutes",
                ipip,
                &[
                    ("Enabled", all),
                    ("EnabledIPIPOnly", ipip),
                    ("EnabledNoEncapOnly", ProgramRoutes { ipip: false, no_encap: true }),
                    ("Disabled", ProgramRoutes { ipip: false, no_encap: false }),
                ],
            ),
            route_source: r.word(
                "RouteSource",
                RouteSource::CalicoIpam,
                &[("CalicoIPAM", RouteSource::CalicoIpam), ("WorkloadIPs", RouteSource::WorkloadIps)],
            ),
            route_protocol: r.number("DeviceRouteProtocol", 3, 1..=255),
            route_source_address: (
                r.address("DeviceRouteSourceAddress"),
                r.address("DeviceRouteSourceAddressIPv6"),
            ),
            remove_external_routes: r.flag("RemoveExternalRoutes", true),
            route_priority: (
                r.number("IPv4NormalRoutePriority", 1024, 1..=2_147_483_646),
                r.number("IPv6NormalRoutePriority", 1024, 1..=2_147_483_646),
            ),
            route_sync_disabled: r.flag("RouteSyncDisabled", false),
            ip_forwarding: r.word("IPForwarding", true, &[("Enabled", true), ("Disabled", false)]),
            external_nodes: r.cidrs("ExternalNodesCIDRList"),
            source_spoofing: r.word("WorkloadSourceSpoofing", false, &[("Any", true), ("Disabled", false)]),
            floating_ips: r.word("FloatingIPs", false, &[("Enabled", true), ("Disabled", false)]),
            status_prefix: r.text("EndpointStatusPathPrefix", "/var/run/calico"),
            mtu_file: r.text("MTUFile", "/var/lib/calico/mtu"),
        };
        (params, r.bad)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Source;

    #[test]
    fn defaults_are_upstreams() {
        let (params, bad) = Params::read(&RawSettings::default(), "node-1");
        assert!(bad.is_empty());
        assert_eq!(params.hostname, "node-1");
        assert_eq!(params.rules, RuleConfig::default());
        assert_eq!(params.program_routes, ProgramRoutes { ipip: true, no_encap: false });
        assert_eq!((params.health, params.metrics), (None, None));
        assert_eq!(params.table_refresh, Duration::from_secs(180));
    }

    #[test]
    fn settings_reach_their_place() {
        let mut raw = RawSettings::default();
        for (name, value) in [
            ("ProgramClusterRoutes", "Enabled"),
            ("HealthEnabled", "true"),
            ("NftablesFilterDenyAction", "reject"),
            ("InterfacePrefix", "cali,tap"),
            ("RouteSource", "WorkloadIPs"),
            ("VXLANEnabled", "false"),
        ] {
            raw.set(Source::Global, name, Some(value.into()));
        }
        let (params, bad) = Params::read(&raw, "n");
        assert_eq!(bad, []);
        assert!(params.program_routes.no_encap);
        assert_eq!(params.health, Some(("localhost".into(), 9099)));
        assert_eq!(params.rules.filter_deny, DenyAction::Reject);
        assert_eq!(params.rules.workload_prefixes, ["cali", "tap"]);
        assert_eq!(params.route_source, RouteSource::WorkloadIps);
        assert_eq!(params.vxlan_enabled, Some(false));
    }
}
