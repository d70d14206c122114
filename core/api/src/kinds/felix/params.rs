//! The table of Felix's settings.
//!
//! One entry per setting: documentation, field and type; then the field's JSON name, the setting's name in the
//! environment and in the configuration file, and Felix's default as text. Order is the order of encoding.

use std::collections::BTreeMap;

use calico_net::Port;

use super::value::{FelixParam, Field, ParamValue};
use super::{BpfConntrackTimeouts, HealthTimeoutOverride, ProtoPort, RouteTableRange};
use crate::is_default as omit;
use crate::numorstring::Dscp;
use crate::time::GoDuration;

macro_rules! felix_params {
    ($($(#[$meta:meta])* pub $field:ident : $ty:ty = $key:literal, $param:literal, $default:literal
        $(, $omit:literal)?;)*) => {
        go_struct! {
            /// What a [`super::FelixConfiguration`] says. Unset settings come from the next wider object, or from
            /// the default.
            pub struct FelixConfigurationSpec {
                $($(#[$meta])* pub $field: $ty = $key $(, $omit)?;)*
            }
        }

        impl FelixConfigurationSpec {
            /// Every setting, in order of encoding.
            pub const PARAMS: &'static [FelixParam] = &[
                $(FelixParam {
                    field: $key,
                    param: $param,
                    param_type: <$ty as Field>::TYPE,
                    default: $default,
                },)*
            ];

            /// The values of all settings, in the order of [`Self::PARAMS`]; `None` for those that are not set.
            pub fn values(&self) -> impl Iterator<Item = (&'static FelixParam, Option<ParamValue<'_>>)> {
                Self::PARAMS.iter().zip([$(self.$field.value()),*])
            }
        }
    };
}

felix_params! {
    /// Selector over the labels of nodes that this object is for. Not allowed on `default` and `node.*`.
    pub node_selector: String = "nodeSelector", "NodeSelector", "", "omit";
    /// Program the kernel itself; false starts `dataplaneDriver` and speaks to it over pipes. Default:
    /// `true`.
    pub use_internal_dataplane_driver: Option<bool> = "useInternalDataplaneDriver", "UseInternalDataplaneDriver", "true", "omit";
    /// Path or name of the external dataplane driver. Default: `calico-iptables-plugin`.
    pub dataplane_driver: String = "dataplaneDriver", "DataplaneDriver", "calico-iptables-plugin", "omit";
    /// Deprecated: time after which a silent dataplane counts as dead; use `healthTimeoutOverrides`.
    /// Default: `90s`.
    pub dataplane_watchdog_timeout: Option<GoDuration> = "dataplaneWatchdogTimeout", "DataplaneWatchdogTimeout", "90s", "omit";
    /// Handle IPv6 at all. Default: `true`.
    pub ipv6_support: Option<bool> = "ipv6Support", "IPv6Support", "true", "omit";
    /// Time between full checks of the routing tables; 0 turns them off. Default: `90s`.
    pub route_refresh_interval: Option<GoDuration> = "routeRefreshInterval", "RouteRefreshInterval", "90s", "omit";
    /// Time between full checks of the interfaces; 0 turns them off. Default: `90s`.
    pub interface_refresh_interval: Option<GoDuration> = "interfaceRefreshInterval", "InterfaceRefreshInterval", "90s", "omit";
    /// Time between full checks of iptables; 0 turns them off. Default: `180s`.
    pub iptables_refresh_interval: Option<GoDuration> = "iptablesRefreshInterval", "IptablesRefreshInterval", "180s", "omit";
    /// Delay after a write to iptables until it is read back. Default: `5s`.
    pub iptables_post_write_check_interval: Option<GoDuration> = "iptablesPostWriteCheckInterval", "IptablesPostWriteCheckIntervalSecs", "5s", "omit";
    /// Time between attempts to take the lock of iptables. Default: `50ms`.
    pub iptables_lock_probe_interval: Option<GoDuration> = "iptablesLockProbeInterval", "IptablesLockProbeIntervalMillis", "50ms", "omit";
    /// Overrides of detected kernel features: `Feature=true`, `Feature=false` or `Feature=` (detect),
    /// separated by commas.
    pub feature_detect_override: String = "featureDetectOverride", "FeatureDetectOverride", "", "omit";
    /// Gates of previewed features: `Name=value`, separated by commas.
    pub feature_gates: String = "featureGates", "FeatureGates", "", "omit";
    /// Time between full checks of the IP sets; 0 turns them off. Default: `90s`.
    pub ipsets_refresh_interval: Option<GoDuration> = "ipsetsRefreshInterval", "IpsetsRefreshInterval", "90s", "omit";
    /// Largest number of members of an IP set. Default: `1048576`.
    pub max_ipset_size: Option<i64> = "maxIpsetSize", "MaxIpsetSize", "1048576", "omit";
    /// Which iptables programs to use: `Legacy`, `NFT` or `Auto`. Default: `auto`.
    pub iptables_backend: String = "iptablesBackend", "IptablesBackend", "auto", "omit";
    /// Time between full checks of XDP programs; 0 turns them off. Default: `90s`.
    pub xdp_refresh_interval: Option<GoDuration> = "xdpRefreshInterval", "XDPRefreshInterval", "90s", "omit";
    /// Longest wait for an answer of the kernel over netlink. Default: `10s`.
    pub netlink_timeout: Option<GoDuration> = "netlinkTimeout", "NetlinkTimeoutSecs", "10s", "omit";
    /// Host of OpenStack's metadata service; `none` turns access to it off. Default: `127.0.0.1`.
    pub metadata_addr: String = "metadataAddr", "MetadataAddr", "127.0.0.1", "omit";
    /// TCP port of OpenStack's metadata service. Default: `8775`.
    pub metadata_port: Option<i64> = "metadataPort", "MetadataPort", "8775", "omit";
    /// Name of the OpenStack region: a DNS label of at most 46 letters.
    pub openstack_region: String = "openstackRegion", "OpenstackRegion", "", "omit";
    /// Prefixes of the names of workload interfaces, separated by commas. Default: `cali`.
    pub interface_prefix: String = "interfacePrefix", "InterfacePrefix", "cali", "omit";
    /// Interfaces to leave alone, separated by commas; `/re/` is a regular expression. Default:
    /// `kube-ipvs0`.
    pub interface_exclude: String = "interfaceExclude", "InterfaceExclude", "kube-ipvs0", "omit";
    /// Where the jump into our chains goes: `Insert` (first) or `Append` (last). Default: `insert`.
    pub chain_insert_mode: String = "chainInsertMode", "ChainInsertMode", "insert", "omit";
    /// What happens to traffic from a workload to its host that no policy decided: `Drop`, `Accept` or
    /// `Return`. Default: `DROP`.
    pub default_endpoint_to_host_action: String = "defaultEndpointToHostAction", "DefaultEndpointToHostAction", "DROP", "omit";
    /// What allowed packets do in the filter table: `Accept` or `Return`. Default: `ACCEPT`.
    pub iptables_filter_allow_action: String = "iptablesFilterAllowAction", "IptablesFilterAllowAction", "ACCEPT", "omit";
    /// What allowed packets do in the mangle table: `Accept` or `Return`. Default: `ACCEPT`.
    pub iptables_mangle_allow_action: String = "iptablesMangleAllowAction", "IptablesMangleAllowAction", "ACCEPT", "omit";
    /// What denied packets meet in the filter table: `Drop` or `Reject`. Default: `DROP`.
    pub iptables_filter_deny_action: String = "iptablesFilterDenyAction", "IptablesFilterDenyAction", "DROP", "omit";
    /// Prefix of lines that rules with action Log write; `%t` is the tier, `%k` the kind, `%n` the name,
    /// `%p` namespace and name. Default: `calico-packet`.
    pub log_prefix: String = "logPrefix", "LogPrefix", "calico-packet", "omit";
    /// Rate limit of rules with action Log: a number and `/second`, `/minute`, `/hour` or `/day`.
    pub log_action_rate_limit: String = "logActionRateLimit", "LogActionRateLimit", "", "omit";
    /// Burst that `logActionRateLimit` lets through, 0 to 9999. Default: `5`.
    pub log_action_rate_limit_burst: Option<i64> = "logActionRateLimitBurst", "LogActionRateLimitBurst", "5", "omit";
    /// Log file; `none` for no file. Default: `/var/log/calico/felix.log`.
    pub log_file_path: String = "logFilePath", "LogFilePath", "/var/log/calico/felix.log", "omit";
    /// Least severity that goes to the log file. Default: `INFO`.
    pub log_severity_file: String = "logSeverityFile", "LogSeverityFile", "INFO", "omit";
    /// Least severity that goes to standard output. Default: `INFO`.
    pub log_severity_screen: String = "logSeverityScreen", "LogSeverityScreen", "INFO", "omit";
    /// Least severity that goes to syslog; `none` for nothing. Default: `INFO`.
    pub log_severity_sys: String = "logSeveritySys", "LogSeveritySys", "INFO", "omit";
    /// Regular expression over source file names that limits debug messages.
    pub log_debug_filename_regex: String = "logDebugFilenameRegex", "LogDebugFilenameRegex", "", "omit";
    /// Set up the IPIP device. Unset: if an IP pool asks for it.
    pub ipip_enabled: Option<bool> = "ipipEnabled", "IpInIpEnabled", "", "omit";
    /// MTU of the IPIP device in bytes; 0 finds it. Default: `0`.
    pub ipip_mtu: Option<i64> = "ipipMTU", "IpInIpMtu", "0", "omit";
    /// Set up VXLAN devices. Unset: if an IP pool asks for it.
    pub vxlan_enabled: Option<bool> = "vxlanEnabled", "VXLANEnabled", "", "omit";
    /// MTU of the IPv4 VXLAN device in bytes; 0 finds it. Default: `0`.
    pub vxlan_mtu: Option<i64> = "vxlanMTU", "VXLANMTU", "0", "omit";
    /// MTU of the IPv6 VXLAN device in bytes; 0 finds it. Default: `0`.
    pub vxlan_mtu_v6: Option<i64> = "vxlanMTUV6", "VXLANMTUV6", "0", "omit";
    /// UDP port of VXLAN. Default: `4789`.
    pub vxlan_port: Option<i64> = "vxlanPort", "VXLANPort", "4789", "omit";
    /// VXLAN network identifier. Default: `4096`.
    pub vxlan_vni: Option<i64> = "vxlanVNI", "VXLANVNI", "4096", "omit";
    /// Let workloads send VXLAN packets. Default: `false`.
    pub allow_vxlan_packets_from_workloads: Option<bool> = "allowVXLANPacketsFromWorkloads", "AllowVXLANPacketsFromWorkloads", "false", "omit";
    /// Let workloads send IPIP packets. Default: `false`.
    pub allow_ipip_packets_from_workloads: Option<bool> = "allowIPIPPacketsFromWorkloads", "AllowIPIPPacketsFromWorkloads", "false", "omit";
    /// Time between reports of this Felix's status; 0 turns them off. Default: `30s`.
    pub reporting_interval: Option<GoDuration> = "reportingInterval", "ReportingIntervalSecs", "30s", "omit";
    /// Life of a status report. Default: `90s`.
    pub reporting_ttl: Option<GoDuration> = "reportingTTL", "ReportingTTLSecs", "90s", "omit";
    /// Report the state of endpoints to the datastore (for OpenStack). Default: `false`.
    pub endpoint_reporting_enabled: Option<bool> = "endpointReportingEnabled", "EndpointReportingEnabled", "false", "omit";
    /// Delay between reports of endpoints. Default: `1s`.
    pub endpoint_reporting_delay: Option<GoDuration> = "endpointReportingDelay", "EndpointReportingDelaySecs", "1s", "omit";
    /// Directory for files with the status of endpoints; empty for none. Default: `/var/run/calico`.
    pub endpoint_status_path_prefix: String = "endpointStatusPathPrefix", "EndpointStatusPathPrefix", "/var/run/calico", "omit";
    /// Bits of the packet mark that iptables rules may use; at least 8 bits. Default: `0xffff0000`.
    pub iptables_mark_mask: Option<i64> = "iptablesMarkMask", "IptablesMarkMask", "0xffff0000", "omit";
    /// Do not drop packets that connection tracking calls invalid. Default: `false`.
    pub disable_conntrack_invalid_check: Option<bool> = "disableConntrackInvalidCheck", "DisableConntrackInvalidCheck", "false", "omit";
    /// Serve health over HTTP. Default: `false`.
    pub health_enabled: Option<bool> = "healthEnabled", "HealthEnabled", "false", "omit";
    /// Address that health is served on. Default: `localhost`.
    pub health_host: String = "healthHost", "HealthHost", "localhost", "omit";
    /// TCP port that health is served on. Default: `9099`.
    pub health_port: Option<i64> = "healthPort", "HealthPort", "9099", "omit";
    /// Timeouts of single health reporters.
    pub health_timeout_overrides: Vec<HealthTimeoutOverride> = "healthTimeoutOverrides", "HealthTimeoutOverrides", "", "omit";
    /// Serve metrics. Default: `false`.
    pub prometheus_metrics_enabled: Option<bool> = "prometheusMetricsEnabled", "PrometheusMetricsEnabled", "false", "omit";
    /// Address that metrics are served on; empty for all.
    pub prometheus_metrics_host: String = "prometheusMetricsHost", "PrometheusMetricsHost", "", "omit";
    /// TCP port that metrics are served on. Default: `9091`.
    pub prometheus_metrics_port: Option<i64> = "prometheusMetricsPort", "PrometheusMetricsPort", "9091", "omit";
    /// Serve metrics of the language's runtime. Default: `true`.
    pub prometheus_go_metrics_enabled: Option<bool> = "prometheusGoMetricsEnabled", "PrometheusGoMetricsEnabled", "true", "omit";
    /// Serve metrics of the process. Default: `true`.
    pub prometheus_process_metrics_enabled: Option<bool> = "prometheusProcessMetricsEnabled", "PrometheusProcessMetricsEnabled", "true", "omit";
    /// Serve metrics of WireGuard. Default: `true`.
    pub prometheus_wireguard_metrics_enabled: Option<bool> = "prometheusWireGuardMetricsEnabled", "PrometheusWireGuardMetricsEnabled", "true", "omit";
    /// CA file that client certificates of metrics readers are checked with.
    pub prometheus_metrics_ca_file: String = "prometheusMetricsCAFile", "PrometheusMetricsCAFile", "", "omit";
    /// Certificate file of the metrics server; with the key file it turns TLS on.
    pub prometheus_metrics_cert_file: String = "prometheusMetricsCertFile", "PrometheusMetricsCertFile", "", "omit";
    /// Key file of the metrics server.
    pub prometheus_metrics_key_file: String = "prometheusMetricsKeyFile", "PrometheusMetricsKeyFile", "", "omit";
    /// How metrics readers must identify themselves by TLS. Default: `NoClientCert`.
    pub prometheus_metrics_client_auth: String = "prometheusMetricsClientAuth", "PrometheusMetricsClientAuth", "NoClientCert", "omit";
    /// Ports of the host that stay reachable whatever host policies say. Default:
    /// `tcp:22,udp:68,tcp:179,tcp:2379,tcp:2380,tcp:5473,tcp:6443,tcp:6666,tcp:6667`.
    pub failsafe_inbound_host_ports: Option<Vec<ProtoPort>> = "failsafeInboundHostPorts", "FailsafeInboundHostPorts", "tcp:22,udp:68,tcp:179,tcp:2379,tcp:2380,tcp:5473,tcp:6443,tcp:6666,tcp:6667", "omit";
    /// Ports that the host can always reach whatever host policies say. Default:
    /// `udp:53,udp:67,tcp:179,tcp:2379,tcp:2380,tcp:5473,tcp:6443,tcp:6666,tcp:6667`.
    pub failsafe_outbound_host_ports: Option<Vec<ProtoPort>> = "failsafeOutboundHostPorts", "FailsafeOutboundHostPorts", "udp:53,udp:67,tcp:179,tcp:2379,tcp:2380,tcp:5473,tcp:6443,tcp:6666,tcp:6667", "omit";
    /// Ports that Kubernetes uses for services of type NodePort; up to 7. Default: `30000:32767`.
    pub kube_node_port_ranges: Option<Vec<Port>> = "kubeNodePortRanges", "KubeNodePortRanges", "30000:32767", "omit";
    /// Directory for sockets that serve policy to other processes; empty for none.
    pub policy_sync_path_prefix: String = "policySyncPathPrefix", "PolicySyncPathPrefix", "", "omit";
    /// Report anonymous usage data. Default: `true`.
    pub usage_reporting_enabled: Option<bool> = "usageReportingEnabled", "UsageReportingEnabled", "true", "omit";
    /// Delay from the start to the first usage report. Default: `300s`.
    pub usage_reporting_initial_delay: Option<GoDuration> = "usageReportingInitialDelay", "UsageReportingInitialDelaySecs", "300s", "omit";
    /// Time between usage reports. Default: `86400s`.
    pub usage_reporting_interval: Option<GoDuration> = "usageReportingInterval", "UsageReportingIntervalSecs", "86400s", "omit";
    /// Source ports for masqueraded connections. Unset: the kernel's choice.
    pub nat_port_range: Option<Port> = "natPortRange", "NATPortRange", "", "omit";
    /// Source address of masqueraded connections. Unset: that of the outgoing interface.
    pub nat_outgoing_address: String = "natOutgoingAddress", "NATOutgoingAddress", "", "omit";
    /// Destinations that are not masqueraded: `IPPoolsOnly` or `IPPoolsAndHostIPs`. Default:
    /// `IPPoolsOnly`.
    pub nat_outgoing_exclusions: String = "natOutgoingExclusions", "NATOutgoingExclusions", "IPPoolsOnly", "omit";
    /// IPv4 source address hint of routes to workloads.
    pub device_route_source_address: String = "deviceRouteSourceAddress", "DeviceRouteSourceAddress", "", "omit";
    /// IPv6 source address hint of routes to workloads.
    pub device_route_source_address_ipv6: String = "deviceRouteSourceAddressIPv6", "DeviceRouteSourceAddressIPv6", "", "omit";
    /// Protocol number of routes to workloads; 3 is `boot`. Default: `3`.
    pub device_route_protocol: Option<i64> = "deviceRouteProtocol", "DeviceRouteProtocol", "3", "omit";
    /// Remove routes to workload interfaces that others made. Default: `true`.
    pub remove_external_routes: Option<bool> = "removeExternalRoutes", "RemoveExternalRoutes", "true", "omit";
    /// Which routes of pools without VXLAN Felix programs; BGPConfiguration has the counterpart. Default:
    /// `EnabledIPIPOnly`.
    pub program_cluster_routes: String = "programClusterRoutes", "ProgramClusterRoutes", "EnabledIPIPOnly", "omit";
    /// Whether Felix turns on IP forwarding: `Enabled` or `Disabled`. Default: `Enabled`.
    pub ip_forwarding: String = "ipForwarding", "IPForwarding", "Enabled", "omit";
    /// Addresses or CIDRs of tunnel ends that are not nodes of the cluster.
    pub external_nodes_list: Option<Vec<String>> = "externalNodesList", "ExternalNodesCIDRList", "", "omit";
    /// File that a memory profile is written to on request.
    pub debug_memory_profile_path: String = "debugMemoryProfilePath", "DebugMemoryProfilePath", "", "omit";
    /// Wait for slow log outputs rather than drop messages. Default: `false`.
    pub debug_disable_log_dropping: Option<bool> = "debugDisableLogDropping", "DebugDisableLogDropping", "false", "omit";
    /// For tests: time after which calculation hangs. Default: `0`.
    pub debug_simulate_calc_graph_hang_after: Option<GoDuration> = "debugSimulateCalcGraphHangAfter", "DebugSimulateCalcGraphHangAfter", "0", "omit";
    /// For tests: time after which the dataplane hangs. Default: `0`.
    pub debug_simulate_dataplane_hang_after: Option<GoDuration> = "debugSimulateDataplaneHangAfter", "DebugSimulateDataplaneHangAfter", "0", "omit";
    /// For tests: delay of every dataplane update. Default: `0`.
    pub debug_simulate_dataplane_apply_delay: Option<GoDuration> = "debugSimulateDataplaneApplyDelay", "DebugSimulateDataplaneApplyDelay", "0", "omit";
    /// Address of the debug server. Default: `localhost`.
    pub debug_host: String = "debugHost", "DebugHost", "localhost", "omit";
    /// TCP port of the debug server. Unset: none.
    pub debug_port: Option<i64> = "debugPort", "DebugPort", "", "omit";
    /// Masquerade only on interfaces of this name; `+` at the end matches any rest.
    pub iptables_nat_outgoing_interface_filter: String = "iptablesNATOutgoingInterfaceFilter", "IptablesNATOutgoingInterfaceFilter", "", "omit";
    /// Speed up the traffic between workloads and their sidecar proxies. Default: `false`.
    pub sidecar_acceleration_enabled: Option<bool> = "sidecarAccelerationEnabled", "SidecarAccelerationEnabled", "false", "omit";
    /// Use XDP for untracked deny rules where possible. Default: `true`.
    pub xdp_enabled: Option<bool> = "xdpEnabled", "XDPEnabled", "true", "omit";
    /// Use XDP also where the driver has no support for it. Default: `false`.
    pub generic_xdp_enabled: Option<bool> = "genericXDPEnabled", "GenericXDPEnabled", "false", "omit";
    /// Use nftables rather than iptables: `Enabled`, `Disabled` or `Auto` (as kube-proxy does). Default:
    /// `Auto`.
    pub nftables_mode: String = "nftablesMode", "NftablesMode", "Auto", "omit";
    /// Forward established flows through a flowtable: `All` or `Disabled`. Default: `Disabled`.
    pub nftables_flow_table_offload: String = "nftablesFlowTableOffload", "NftablesFlowTableOffload", "Disabled", "omit";
    /// Regular expression over names of host interfaces that join the flowtable.
    pub nftables_flow_table_data_iface_pattern: String = "nftablesFlowTableDataIfacePattern", "NftablesFlowTableDataIfacePattern", "", "omit";
    /// Time between full checks of nftables; 0 turns them off. Default: `180s`.
    pub nftables_refresh_interval: Option<GoDuration> = "nftablesRefreshInterval", "NftablesRefreshInterval", "180s", "omit";
    /// What allowed packets do in the filter chains: `Accept` or `Return`. Default: `ACCEPT`.
    pub nftables_filter_allow_action: String = "nftablesFilterAllowAction", "NftablesFilterAllowAction", "ACCEPT", "omit";
    /// What allowed packets do in the mangle chains: `Accept` or `Return`. Default: `ACCEPT`.
    pub nftables_mangle_allow_action: String = "nftablesMangleAllowAction", "NftablesMangleAllowAction", "ACCEPT", "omit";
    /// What denied packets meet in the filter chains: `Drop` or `Reject`. Default: `DROP`.
    pub nftables_filter_deny_action: String = "nftablesFilterDenyAction", "NftablesFilterDenyAction", "DROP", "omit";
    /// Bits of the packet mark that nftables rules may use; at least 8 bits. Default: `0xffff0000`.
    pub nftables_mark_mask: Option<i64> = "nftablesMarkMask", "NftablesMarkMask", "0xffff0000", "omit";
    /// Use the eBPF dataplane. Default: `false`.
    pub bpf_enabled: Option<bool> = "bpfEnabled", "BPFEnabled", "false", "omit";
    /// Source address of the host's own traffic into the overlay: `TunnelAddress` or `HostAddress`.
    /// Default: `TunnelAddress`.
    pub bpf_overlay_host_source_ip: String = "bpfOverlayHostSourceIP", "BPFOverlayHostSourceIP", "TunnelAddress", "omit";
    /// Forbid bpf(2) to unprivileged users. Default: `true`.
    pub bpf_disable_unprivileged: Option<bool> = "bpfDisableUnprivileged", "BPFDisableUnprivileged", "true", "omit";
    /// Hardening of the BPF compiler: `Auto` or `Strict`. Default: `Auto`.
    pub bpf_jit_hardening: String = "bpfJITHardening", "BPFJITHardening", "Auto", "omit";
    /// Log level of BPF programs: `Off`, `Info` or `Debug`. Always written, even if empty. Default:
    /// `off`.
    pub bpf_log_level: String = "bpfLogLevel", "BPFLogLevel", "off";
    /// Log level of the BPF conntrack cleaner: `Off` or `Debug`. Default: `off`.
    pub bpf_conntrack_log_level: String = "bpfConntrackLogLevel", "BPFConntrackLogLevel", "off", "omit";
    /// Who cleans up BPF conntrack entries: `Auto`, `Userspace` or `BPFProgram`. Default: `Auto`.
    pub bpf_conntrack_mode: String = "bpfConntrackMode", "BPFConntrackCleanupMode", "Auto", "omit";
    /// Life of BPF conntrack entries by protocol and state.
    pub bpf_conntrack_timeouts: Option<BpfConntrackTimeouts> = "bpfConntrackTimeouts", "BPFConntrackTimeouts", "", "omit";
    /// Life of IP fragments in BPF; 0 takes the kernel's setting. Default: `0`.
    pub bpf_ip_frag_timeout: Option<GoDuration> = "bpfIPFragTimeout", "BPFIPFragTimeout", "0", "omit";
    /// Filters of BPF debug logs: interface name, `all`, `weps` or `heps` to a pcap expression.
    pub bpf_log_filters: Option<BTreeMap<String, String>> = "bpfLogFilters", "BPFLogFilters", "", "omit";
    /// Which connect-time load balancing is logged; only `all`.
    pub bpf_ctlb_log_filter: String = "bpfCTLBLogFilter", "BPFCTLBLogFilter", "", "omit";
    /// Regular expression over names of interfaces that carry traffic of the cluster. Default:
    /// `^((en|wl|ww|sl|ib)[Popsx].*|(eth|wlan|wwan|bond).*)`.
    pub bpf_data_iface_pattern: String = "bpfDataIfacePattern", "BPFDataIfacePattern", "^((en|wl|ww|sl|ib)[Popsx].*|(eth|wlan|wwan|bond).*)", "omit";
    /// Regular expression over names of layer 3 interfaces such as tunnels.
    pub bpf_l3_iface_pattern: String = "bpfL3IfacePattern", "BPFL3IfacePattern", "", "omit";
    /// Deprecated: use `bpfConnectTimeLoadBalancing`.
    pub bpf_connect_time_load_balancing_enabled: Option<bool> = "bpfConnectTimeLoadBalancingEnabled", "BPFConnectTimeLoadBalancingEnabled", "", "omit";
    /// Which sockets resolve services at connect: `TCP`, `Enabled` (all) or `Disabled`. Default: `TCP`.
    pub bpf_connect_time_load_balancing: String = "bpfConnectTimeLoadBalancing", "BPFConnectTimeLoadBalancing", "TCP", "omit";
    /// Translate services for the host's own traffic that is not resolved at connect: `Enabled` or
    /// `Disabled`. Default: `Enabled`.
    pub bpf_host_networked_nat_without_ctlb: String = "bpfHostNetworkedNATWithoutCTLB", "BPFHostNetworkedNATWithoutCTLB", "Enabled", "omit";
    /// How external traffic to a service reaches another node: `Tunnel` or `DSR` (the answer goes
    /// directly). Default: `tunnel`.
    pub bpf_external_service_mode: String = "bpfExternalServiceMode", "BPFExternalServiceMode", "tunnel", "omit";
    /// Client CIDRs to which answers do not go directly.
    pub bpf_dsr_optout_cidrs: Option<Vec<String>> = "bpfDSROptoutCIDRs", "BPFDSROptoutCIDRs", "", "omit";
    /// Mark of connections from outside to services; 0 for none. Default: `0`.
    pub bpf_ext_to_service_connmark: Option<i64> = "bpfExtToServiceConnmark", "BPFExtToServiceConnmark", "0", "omit";
    /// Remove the rules that kube-proxy left behind. Default: `true`.
    pub bpf_kube_proxy_iptables_cleanup_enabled: Option<bool> = "bpfKubeProxyIptablesCleanupEnabled", "BPFKubeProxyIptablesCleanupEnabled", "true", "omit";
    /// Least time between updates of the service tables. Default: `1s`.
    pub bpf_kube_proxy_min_sync_period: Option<GoDuration> = "bpfKubeProxyMinSyncPeriod", "BPFKubeProxyMinSyncPeriod", "1s", "omit";
    /// TCP port that the health of the built-in kube-proxy is served on; 0 for none. Default: `10256`.
    pub bpf_kube_proxy_healthz_port: Option<i64> = "bpfKubeProxyHealthzPort", "BPFKubeProxyHealthzPort", "10256", "omit";
    /// Source ports that resolve conflicts of ports. Default: `20000:29999`.
    pub bpf_psnat_ports: Option<Port> = "bpfPSNATPorts", "BPFPSNATPorts", "20000:29999", "omit";
    /// Entries of the BPF map of services. Default: `65536`.
    pub bpf_map_size_nat_frontend: Option<i64> = "bpfMapSizeNATFrontend", "BPFMapSizeNATFrontend", "65536", "omit";
    /// Entries of the BPF map of service endpoints. Default: `262144`.
    pub bpf_map_size_nat_backend: Option<i64> = "bpfMapSizeNATBackend", "BPFMapSizeNATBackend", "262144", "omit";
    /// Entries of the BPF map of session affinity. Default: `65536`.
    pub bpf_map_size_nat_affinity: Option<i64> = "bpfMapSizeNATAffinity", "BPFMapSizeNATAffinity", "65536", "omit";
    /// Entries of the BPF map of routes. Default: `262144`.
    pub bpf_map_size_route: Option<i64> = "bpfMapSizeRoute", "BPFMapSizeRoute", "262144", "omit";
    /// Entries of the BPF map of connections. Default: `512000`.
    pub bpf_map_size_conntrack: Option<i64> = "bpfMapSizeConntrack", "BPFMapSizeConntrack", "512000", "omit";
    /// Entries of the BPF map of connections per CPU; if not 0 it replaces `bpfMapSizeConntrack`.
    /// Default: `0`.
    pub bpf_map_size_per_cpu_conntrack: Option<i64> = "bpfMapSizePerCpuConntrack", "BPFMapSizePerCpuConntrack", "0", "omit";
    /// Growth of the BPF map of connections: `Disabled` or `DoubleIfFull`. Default: `DoubleIfFull`.
    pub bpf_map_size_conntrack_scaling: String = "bpfMapSizeConntrackScaling", "BPFMapSizeConntrackScaling", "DoubleIfFull", "omit";
    /// Entries of the queue of the BPF conntrack cleaner, at least 1. Default: `100000`.
    pub bpf_map_size_conntrack_cleanup_queue: Option<i64> = "bpfMapSizeConntrackCleanupQueue", "BPFMapSizeConntrackCleanupQueue", "100000", "omit";
    /// Entries of the BPF map of IP sets. Default: `1048576`.
    pub bpf_map_size_ip_sets: Option<i64> = "bpfMapSizeIPSets", "BPFMapSizeIPSets", "1048576", "omit";
    /// Entries of the BPF map of interfaces. Default: `1000`.
    pub bpf_map_size_if_state: Option<i64> = "bpfMapSizeIfState", "BPFMapSizeIfState", "1000", "omit";
    /// Skip the host's connection tracking for forwarded traffic. Default: `false`.
    pub bpf_host_conntrack_bypass: Option<bool> = "bpfHostConntrackBypass", "BPFHostConntrackBypass", "false", "omit";
    /// Track IP fragments in BPF. Default: `true`.
    pub bpf_ip_fragment_reassembly_enabled: Option<bool> = "bpfIPFragmentReassemblyEnabled", "BPFIPFragmentReassemblyEnabled", "true", "omit";
    /// Reverse path check: `Disabled`, `Strict` or `Loose`. Default: `Loose`.
    pub bpf_enforce_rpf: String = "bpfEnforceRPF", "BPFEnforceRPF", "Loose", "omit";
    /// Keep data that lets tools show BPF policy programs. Default: `true`.
    pub bpf_policy_debug_enabled: Option<bool> = "bpfPolicyDebugEnabled", "BPFPolicyDebugEnabled", "true", "omit";
    /// Interfaces whose packets always go through the host's connection tracking; `+` at the end matches
    /// any rest. Default: `docker+`.
    pub bpf_force_track_packets_from_ifaces: Option<Vec<String>> = "bpfForceTrackPacketsFromIfaces", "BPFForceTrackPacketsFromIfaces", "docker+", "omit";
    /// Regular expression over names of interfaces on which GRO is turned off.
    pub bpf_disable_gro_for_ifaces: String = "bpfDisableGROForIfaces", "BPFDisableGROForIfaces", "", "omit";
    /// Service addresses that BPF leaves to others.
    pub bpf_exclude_cidrs_from_nat: Option<Vec<String>> = "bpfExcludeCIDRsFromNAT", "BPFExcludeCIDRsFromNAT", "", "omit";
    /// Size in MiB of the buffer through which BPF exports events. Default: `1`.
    pub bpf_export_buffer_size_mb: Option<i64> = "bpfExportBufferSizeMB", "BPFExportBufferSizeMB", "1", "omit";
    /// Work with Istio's ambient mode: `Enabled` or `Disabled`. Default: `Disabled`.
    pub istio_ambient_mode: String = "istioAmbientMode", "IstioAmbientMode", "Disabled", "omit";
    /// DSCP value by which Istio's traffic is known: 0 to 63 or a name. Default: `23`.
    pub istio_dscp_mark: Option<Dscp> = "istioDSCPMark", "IstioDSCPMark", "23", "omit";
    /// Mount point of cgroup v2. Empty: found by itself.
    pub cgroup_v2_path: String = "cgroupV2Path", "CgroupV2Path", "", "omit";
    /// When pending policies are evaluated for flow logs: `None` or `Continuous`. Default: `Continuous`.
    pub flow_logs_policy_evaluation_mode: String = "flowLogsPolicyEvaluationMode", "FlowLogsPolicyEvaluationMode", "Continuous", "omit";
    /// Pass packets directly into the workload's namespace: `Enabled` or `Disabled`. Default: `Enabled`.
    pub bpf_redirect_to_peer: String = "bpfRedirectToPeer", "BPFRedirectToPeer", "Enabled", "omit";
    /// How BPF programs attach: `TC`, `TCX` or `Netkit`. Default: `Netkit`.
    pub bpf_attach_type: String = "bpfAttachType", "BPFAttachType", "Netkit", "omit";
    /// Time between exports of flow logs. Default: `300s`.
    pub flow_logs_flush_interval: Option<GoDuration> = "flowLogsFlushInterval", "FlowLogsFlushInterval", "300s", "omit";
    /// Trace the collection of flow logs. Default: `false`.
    pub flow_logs_collector_debug_trace: Option<bool> = "flowLogsCollectorDebugTrace", "FlowLogsCollectorDebugTrace", "false", "omit";
    /// `host:port` of the flow aggregator; if set, flow logs are on.
    pub flow_logs_goldmane_server: String = "flowLogsGoldmaneServer", "FlowLogsGoldmaneServer", "", "omit";
    /// Serve flows on a local socket: `Enabled` or `Disabled`. Default: `Disabled`.
    pub flow_logs_local_reporter: String = "flowLogsLocalReporter", "FlowLogsLocalReporter", "Disabled", "omit";
    /// Measure the run time of BPF programs: `Enabled` or `Disabled`. Default: `Disabled`.
    pub bpf_profiling: String = "bpfProfiling", "BPFProfiling", "Disabled", "omit";
    /// Where routes to workloads come from: `WorkloadIPs` or `CalicoIPAM`. Default: `CalicoIPAM`.
    pub route_source: String = "routeSource", "RouteSource", "CalicoIPAM", "omit";
    /// Routing tables that Felix may use; 1 to 4294967295, together at most 65535.
    pub route_table_ranges: Option<Vec<RouteTableRange>> = "routeTableRanges", "RouteTableRanges", "", "omit";
    /// Deprecated: routing tables that Felix may use; use `routeTableRanges`.
    pub route_table_range: Option<RouteTableRange> = "routeTableRange", "RouteTableRange", "", "omit";
    /// Leave routes to others: policy only. Default: `false`.
    pub route_sync_disabled: Option<bool> = "routeSyncDisabled", "RouteSyncDisabled", "false", "omit";
    /// Metric of IPv4 routes to workloads. Default: `1024`.
    pub ipv4_normal_route_priority: Option<i64> = "ipv4NormalRoutePriority", "IPv4NormalRoutePriority", "1024", "omit";
    /// Metric of IPv4 routes to workloads that are being migrated. Default: `512`.
    pub ipv4_elevated_route_priority: Option<i64> = "ipv4ElevatedRoutePriority", "IPv4ElevatedRoutePriority", "512", "omit";
    /// Metric of IPv6 routes to workloads. Default: `1024`.
    pub ipv6_normal_route_priority: Option<i64> = "ipv6NormalRoutePriority", "IPv6NormalRoutePriority", "1024", "omit";
    /// Metric of IPv6 routes to workloads that are being migrated. Default: `512`.
    pub ipv6_elevated_route_priority: Option<i64> = "ipv6ElevatedRoutePriority", "IPv6ElevatedRoutePriority", "512", "omit";
    /// How long routes keep the elevated metric after a migration. Default: `30s`.
    pub live_migration_route_convergence_time: Option<GoDuration> = "liveMigrationRouteConvergenceTime", "LiveMigrationRouteConvergenceTime", "30s", "omit";
    /// Encrypt IPv4 traffic between nodes by WireGuard. Default: `false`.
    pub wireguard_enabled: Option<bool> = "wireguardEnabled", "WireguardEnabled", "false", "omit";
    /// Encrypt IPv6 traffic between nodes by WireGuard. Default: `false`.
    pub wireguard_enabled_v6: Option<bool> = "wireguardEnabledV6", "WireguardEnabledV6", "false", "omit";
    /// Let the kernel use threads for WireGuard. Default: `false`.
    pub wireguard_threading_enabled: Option<bool> = "wireguardThreadingEnabled", "WireguardThreadingEnabled", "false", "omit";
    /// UDP port of WireGuard over IPv4. Default: `51820`.
    pub wireguard_listening_port: Option<i64> = "wireguardListeningPort", "WireguardListeningPort", "51820", "omit";
    /// UDP port of WireGuard over IPv6. Default: `51821`.
    pub wireguard_listening_port_v6: Option<i64> = "wireguardListeningPortV6", "WireguardListeningPortV6", "51821", "omit";
    /// Priority of the routing rule of WireGuard, 1 to 32765. Default: `99`.
    pub wireguard_routing_rule_priority: Option<i64> = "wireguardRoutingRulePriority", "WireguardRoutingRulePriority", "99", "omit";
    /// Name of the IPv4 WireGuard interface. Default: `wireguard.cali`.
    pub wireguard_interface_name: String = "wireguardInterfaceName", "WireguardInterfaceName", "wireguard.cali", "omit";
    /// Name of the IPv6 WireGuard interface. Default: `wg-v6.cali`.
    pub wireguard_interface_name_v6: String = "wireguardInterfaceNameV6", "WireguardInterfaceNameV6", "wg-v6.cali", "omit";
    /// MTU of the IPv4 WireGuard interface in bytes; 0 finds it. Default: `0`.
    pub wireguard_mtu: Option<i64> = "wireguardMTU", "WireguardMTU", "0", "omit";
    /// MTU of the IPv6 WireGuard interface in bytes; 0 finds it. Default: `0`.
    pub wireguard_mtu_v6: Option<i64> = "wireguardMTUV6", "WireguardMTUV6", "0", "omit";
    /// Encrypt also the traffic of the hosts themselves. Default: `false`.
    pub wireguard_host_encryption_enabled: Option<bool> = "wireguardHostEncryptionEnabled", "WireguardHostEncryptionEnabled", "false", "omit";
    /// Time between keep-alive packets of WireGuard; 0 for none. Default: `0`.
    pub wireguard_keep_alive: Option<GoDuration> = "wireguardKeepAlive", "WireguardPersistentKeepAlive", "0", "omit";
    /// What to do about the source check of AWS instances: `DoNothing`, `Enable` or `Disable`. Default:
    /// `DoNothing`.
    pub aws_src_dst_check: String = "awsSrcDstCheck", "AWSSrcDstCheck", "DoNothing", "omit";
    /// What packets to unused service addresses meet: `Drop`, `Reject` or `Disabled`. Default: `Drop`.
    pub service_loop_prevention: String = "serviceLoopPrevention", "ServiceLoopPrevention", "Drop", "omit";
    /// Whether workloads may ask to send from foreign addresses: `Disabled` or `Any`. Default:
    /// `Disabled`.
    pub workload_source_spoofing: String = "workloadSourceSpoofing", "WorkloadSourceSpoofing", "Disabled", "omit";
    /// Regular expression over names of interfaces whose MTU counts. Default:
    /// `^((en|wl|ww|sl|ib)[Pcopsvx].*|(eth|wlan|wwan).*)`.
    pub mtu_iface_pattern: String = "mtuIfacePattern", "MTUIfacePattern", "^((en|wl|ww|sl|ib)[Pcopsvx].*|(eth|wlan|wwan).*)", "omit";
    /// Handle floating addresses of workloads: `Enabled` or `Disabled`. Default: `Disabled`.
    pub floating_ips: String = "floatingIPs", "FloatingIPs", "Disabled", "omit";
    /// Answer ARP and NDP for local addresses: `Disabled` or `PodsAndLoadBalancers`. Default: `Disabled`.
    pub local_subnet_l2_reachability: String = "localSubnetL2Reachability", "LocalSubnetL2Reachability", "Disabled", "omit";
    /// Time between repeated announcements of local addresses; 0 announces only once. Default: `120s`.
    pub local_subnet_l2_reachability_refresh_interval: Option<GoDuration> = "localSubnetL2ReachabilityRefreshInterval", "LocalSubnetL2ReachabilityRefreshInterval", "120s", "omit";
    /// Let Felix manage the firewall of Windows nodes: `Enabled` or `Disabled`. Default: `Disabled`.
    pub windows_manage_firewall_rules: String = "windowsManageFirewallRules", "WindowsManageFirewallRules", "Disabled", "omit";
    /// Growth of memory in percent that starts garbage collection in upstream's Felix; -1 for never.
    /// Default: `40`.
    pub go_gc_threshold: Option<i64> = "goGCThreshold", "GoGCThreshold", "40", "omit";
    /// Memory limit of upstream's Felix in MiB; -1 for none. Default: `-1`.
    pub go_memory_limit_mb: Option<i64> = "goMemoryLimitMB", "GoMemoryLimitMB", "-1", "omit";
    /// Number of threads that run at once; -1 for one per CPU. Default: `-1`.
    pub go_max_procs: Option<i64> = "goMaxProcs", "GoMaxProcs", "-1", "omit";
    /// Fail a pod's set-up while the MTU file is missing. Default: `false`.
    pub require_mtu_file: Option<bool> = "requireMTUFile", "RequireMTUFile", "false", "omit";
    /// Most endpoints of a service that uses Maglev, 1 to 3000. Default: `100`.
    pub bpf_maglev_max_endpoints_per_service: Option<i64> = "bpfMaglevMaxEndpointsPerService", "BPFMaglevMaxEndpointsPerService", "100", "omit";
    /// Most services that use Maglev, 1 to 3000. Default: `100`.
    pub bpf_maglev_max_services: Option<i64> = "bpfMaglevMaxServices", "BPFMaglevMaxServices", "100", "omit";
}
