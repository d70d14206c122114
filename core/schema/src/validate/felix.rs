//! FelixConfiguration.
//!
//! What every setting may hold is one table, [`rule_of`]; rules between settings follow below.

use std::collections::BTreeMap;

use calico_api::{
    BpfConntrackTimeouts, FelixConfigurationSpec, GoDuration, HealthTimeoutOverride, ParamValue,
    RouteTableRange,
};
use calico_net::{IpVersion, Port};
use regex::Regex;

use super::{Checker, MAX_SELECTOR, format};

/// Most ranges of ports of services of type NodePort.
const MAX_NODE_PORT_RANGES: usize = 7;
/// Most routing tables that Felix may use together.
const MAX_ROUTE_TABLES: i64 = 65_535;
/// Highest routing table.
const LAST_ROUTE_TABLE: i64 = 0xffff_ffff;
/// Highest metric of a route.
const MAX_PRIORITY: i64 = 0x7fff_fffe;

/// What a setting may hold.
#[derive(Clone, Copy)]
enum Rule {
    /// One of these words.
    Words(&'static [&'static str]),
    /// One of these words in any case.
    AnyCase(&'static [&'static str]),
    /// A number between two bounds.
    Range(i64, i64),
    /// A length of time whose canonical text has units only, no sign and no fraction.
    PlainDuration,
    /// A length of time whose canonical text has no sign.
    Duration,
    /// A regular expression.
    Regex,
    /// A text that matches this regular expression.
    Matches(&'static str),
    /// A text that this function accepts, with a description.
    Text(fn(&str) -> bool, &'static str),
    /// A list of texts that this function accepts, with a description.
    Items(fn(&str) -> bool, &'static str),
}

const ON_OFF: Rule = Rule::Words(&["Enabled", "Disabled"]);
const ALLOW_ACTION: Rule = Rule::AnyCase(&["Accept", "Return"]);
const DENY_ACTION: Rule = Rule::AnyCase(&["Drop", "Reject"]);
const SEVERITY: Rule = Rule::AnyCase(&["Trace", "Debug", "Info", "Warning", "Error", "Fatal"]);
const PRIORITY: Rule = Rule::Range(1, MAX_PRIORITY);
const MARK: Rule = Rule::Range(0, 0xffff_ffff);
const INTERFACE: Rule =
    Rule::Text(format::is_interface_name, "must be '*' or 1 to 15 letters, digits, '_', '.' and '-'");
const INTERFACE_FILTER: &str = "must be 1 to 15 letters, digits and ':._+-'";
const CIDRS: Rule = Rule::Items(|text| format::is_cidr(text, None), "must be a CIDR or an IP address");
const IPV4: Rule = Rule::Text(|text| format::is_ip(text, Some(IpVersion::V4)), "must be an IPv4 address");

/// The rule of the setting in `field`; `None` if anything of its type is fine.
fn rule_of(field: &str) -> Option<Rule> {
    use Rule::{AnyCase, Duration, Items, Matches, PlainDuration, Range, Regex, Text, Words};
    let rule = match field {
        "featureDetectOverride" => {
            Matches(r"^([a-zA-Z0-9_-]+=(true|false|),)*([a-zA-Z0-9_-]+=(true|false|))?$")
        }
        "featureGates" => Matches(r"^([a-zA-Z0-9_-]+=[^=]+,)*([a-zA-Z0-9_-]+=[^=]+)?$"),
        "logPrefix" => Matches(r"^[a-zA-Z0-9%: /_-]*$"),
        "logActionRateLimit" => Matches(r"^[1-9][0-9]{0,3}/(second|minute|hour|day)$"),

        "chainInsertMode" => AnyCase(&["Insert", "Append"]),
        "defaultEndpointToHostAction" => AnyCase(&["Drop", "Accept", "Return"]),
        "iptablesFilterAllowAction" | "iptablesMangleAllowAction" => ALLOW_ACTION,
        "nftablesFilterAllowAction" | "nftablesMangleAllowAction" => ALLOW_ACTION,
        "iptablesFilterDenyAction" | "nftablesFilterDenyAction" => DENY_ACTION,
        "logSeverityFile" | "logSeverityScreen" | "logSeveritySys" => SEVERITY,
        "bpfLogLevel" => AnyCase(&["Off", "Info", "Debug"]),
        "bpfExternalServiceMode" => AnyCase(&["Tunnel", "DSR"]),
        "bpfMapSizeConntrackScaling" => AnyCase(&["Disabled", "DoubleIfFull"]),
        "bpfEnforceRPF" => AnyCase(&["Disabled", "Strict", "Loose"]),
        "routeSource" => AnyCase(&["WorkloadIPs", "CalicoIPAM"]),

        "iptablesBackend" => Words(&["Legacy", "NFT", "Auto"]),
        "prometheusMetricsClientAuth" => Words(&[
            "RequireAndVerifyClientCert",
            "RequireAnyClientCert",
            "VerifyClientCertIfGiven",
            "NoClientCert",
        ]),
        "natOutgoingExclusions" => Words(&["IPPoolsOnly", "IPPoolsAndHostIPs"]),
        "programClusterRoutes" => Words(&["Enabled", "Disabled", "EnabledIPIPOnly", "EnabledNoEncapOnly"]),
        "nftablesMode" => Words(&["Disabled", "Enabled", "Auto"]),
        "nftablesFlowTableOffload" => Words(&["All", "Disabled"]),
        "bpfOverlayHostSourceIP" => Words(&["TunnelAddress", "HostAddress"]),
        "bpfJITHardening" => Words(&["Auto", "Strict"]),
        "bpfConntrackLogLevel" => Words(&["Off", "Debug"]),
        "bpfConntrackMode" => Words(&["Auto", "Userspace", "BPFProgram"]),
        "bpfConnectTimeLoadBalancing" => Words(&["TCP", "Enabled", "Disabled"]),
        "flowLogsPolicyEvaluationMode" => Words(&["None", "Continuous"]),
        "bpfAttachType" => Words(&["TC", "TCX", "Netkit"]),
        "awsSrcDstCheck" => Words(&["DoNothing", "Enable", "Disable"]),
        "serviceLoopPrevention" => Words(&["Drop", "Reject", "Disabled"]),
        "workloadSourceSpoofing" => Words(&["Disabled", "Any"]),
        "localSubnetL2Reachability" => Words(&["Disabled", "PodsAndLoadBalancers"]),
        "ipForwarding" | "bpfHostNetworkedNATWithoutCTLB" | "istioAmbientMode" | "bpfRedirectToPeer" => {
            ON_OFF
        }
        "flowLogsLocalReporter" | "bpfProfiling" | "floatingIPs" | "windowsManageFirewallRules" => ON_OFF,

        "logActionRateLimitBurst" => Range(0, 9_999),
        "iptablesMarkMask" | "nftablesMarkMask" | "bpfExtToServiceConnmark" => MARK,
        "debugPort" | "bpfKubeProxyHealthzPort" => Range(0, 65_535),
        "bpfMapSizeConntrackCleanupQueue" => Range(1, i64::MAX),
        "ipv4NormalRoutePriority" | "ipv4ElevatedRoutePriority" => PRIORITY,
        "ipv6NormalRoutePriority" | "ipv6ElevatedRoutePriority" => PRIORITY,
        "wireguardListeningPort" | "wireguardListeningPortV6" => Range(1, 65_535),
        "wireguardRoutingRulePriority" => Range(1, 32_765),
        "goGCThreshold" | "goMemoryLimitMB" | "goMaxProcs" => Range(-1, i64::MAX),
        "bpfMaglevMaxEndpointsPerService" | "bpfMaglevMaxServices" => Range(1, 3_000),

        "logDebugFilenameRegex" | "nftablesFlowTableDataIfacePattern" | "bpfDataIfacePattern" => Regex,
        "bpfL3IfacePattern" | "bpfDisableGROForIfaces" | "mtuIfacePattern" => Regex,

        "openstackRegion" => Text(
            |text| text.len() <= 46 && format::is_dns_label(text),
            "must be a DNS label of at most 46 letters",
        ),
        "prometheusMetricsHost" => Text(format::is_metrics_host, "must be a host name or an IP address"),
        "natOutgoingAddress" | "deviceRouteSourceAddress" => IPV4,
        "deviceRouteSourceAddressIPv6" => {
            Text(|text| format::is_ip(text, Some(IpVersion::V6)), "must be an IPv6 address")
        }
        "iptablesNATOutgoingInterfaceFilter" => Text(format::is_interface_filter, INTERFACE_FILTER),
        "wireguardInterfaceName" | "wireguardInterfaceNameV6" => INTERFACE,

        "externalNodesList" => {
            Items(|text| format::is_cidr(text, Some(IpVersion::V4)), "must be an IPv4 CIDR or address")
        }
        "bpfDSROptoutCIDRs" | "bpfExcludeCIDRsFromNAT" => CIDRS,
        "bpfForceTrackPacketsFromIfaces" => Items(format::is_interface_filter, INTERFACE_FILTER),

        "dataplaneWatchdogTimeout" | "nftablesRefreshInterval" => return None,
        "localSubnetL2ReachabilityRefreshInterval" => return None,
        "liveMigrationRouteConvergenceTime" => Duration,
        "routeRefreshInterval" | "interfaceRefreshInterval" | "iptablesRefreshInterval" => PlainDuration,
        "iptablesPostWriteCheckInterval" | "iptablesLockProbeInterval" | "ipsetsRefreshInterval" => {
            PlainDuration
        }
        "xdpRefreshInterval" | "netlinkTimeout" | "reportingInterval" | "reportingTTL" => PlainDuration,
        "endpointReportingDelay" | "usageReportingInitialDelay" | "usageReportingInterval" => PlainDuration,
        "debugSimulateCalcGraphHangAfter" | "debugSimulateDataplaneHangAfter" => PlainDuration,
        "debugSimulateDataplaneApplyDelay" | "bpfIPFragTimeout" | "bpfKubeProxyMinSyncPeriod" => {
            PlainDuration
        }
        "flowLogsFlushInterval" | "wireguardKeepAlive" => PlainDuration,
        _ => return None,
    };
    Some(rule)
}

pub(super) fn check(c: &mut Checker, name: &str, spec: &FelixConfigurationSpec) {
    if !spec.node_selector.is_empty() && (name == "default" || name.starts_with("node.")) {
        let reason = "is only for configurations that are named neither \"default\" nor \"node.NAME\"";
        c.fail("spec.nodeSelector", &spec.node_selector, reason);
    }
    c.max_chars("spec.nodeSelector", &spec.node_selector, MAX_SELECTOR);
    for (param, value) in spec.values() {
        let Some(value) = value else { continue };
        let path = format!("spec.{}", param.field);
        if let Some(rule) = rule_of(param.field) {
            apply(c, &path, rule, value);
        }
        structure(c, &path, value);
    }
    for (field, text) in
        [("featureDetectOverride", &spec.feature_detect_override), ("featureGates", &spec.feature_gates)]
    {
        if !format::is_key_value_list(text) {
            c.fail(format_args!("spec.{field}"), text, "must be KEY=VALUE items separated by commas");
        }
    }
    if spec.route_table_range.is_some() && spec.route_table_ranges.is_some() {
        c.fail_field("spec.routeTableRange", "cannot be combined with routeTableRanges");
    }
}

fn apply(c: &mut Checker, path: &str, rule: Rule, value: ParamValue<'_>) {
    match (rule, value) {
        (Rule::Words(words), ParamValue::Text(text)) => c.word(path, text, words),
        (Rule::AnyCase(words), ParamValue::Text(text))
            if !words.iter().any(|word| word.eq_ignore_ascii_case(text)) =>
        {
            c.fail(path, text, format!("must be one of {} (in any case)", words.join(", ")));
        }
        (Rule::Range(min, max), ParamValue::Int(number)) => c.range(path, number, min, max),
        (Rule::PlainDuration, ParamValue::Duration(duration)) => plain_duration(c, path, duration),
        (Rule::Duration, ParamValue::Duration(duration)) if duration.0 < 0 => {
            c.fail(path, duration, "must not be negative");
        }
        (Rule::Regex, ParamValue::Text(text)) => {
            if let Err(error) = Regex::new(text) {
                c.fail(path, text, format!("is not a regular expression: {}", last_line(&error.to_string())));
            }
        }
        (Rule::Matches(pattern), ParamValue::Text(text))
            if !Regex::new(pattern).is_ok_and(|regex| regex.is_match(text)) =>
        {
            c.fail(path, text, format!("must match {pattern}"));
        }
        (Rule::Text(accepts, reason), ParamValue::Text(text)) if !accepts(text) => {
            c.fail(path, text, reason);
        }
        (Rule::Items(accepts, reason), ParamValue::TextList(items)) => {
            for (i, item) in items.iter().enumerate().filter(|(_, item)| !accepts(item)) {
                c.fail(format_args!("{path}[{i}]"), item, reason);
            }
        }
        _ => {}
    }
}

/// The parser's verdict without the picture above it.
fn last_line(text: &str) -> &str {
    text.lines().last().unwrap_or_default().trim_start_matches("error: ")
}

/// Kubernetes' schema takes whole numbers of hours, minutes, seconds and milliseconds only.
fn plain_duration(c: &mut Checker, path: &str, duration: GoDuration) {
    let text = duration.to_string();
    if text.contains(['.', '-']) || text.ends_with("ns") || text.ends_with("\u{b5}s") {
        c.fail(path, text, "must be whole hours, minutes, seconds, or milliseconds below one second");
    }
}

/// Rules of types that hold for every setting of the type.
fn structure(c: &mut Checker, path: &str, value: ParamValue<'_>) {
    match value {
        ParamValue::Port(port) => port_from_one(c, path, port),
        ParamValue::PortList(ports) => {
            c.max_items(path, ports.len(), MAX_NODE_PORT_RANGES);
            for (i, port) in ports.iter().enumerate() {
                let item = format!("{path}[{i}]");
                port_from_one(c, &item, port);
                if let Port::Named(name) = port {
                    c.fail(item, name, "must be a number or a range");
                }
            }
        }
        ParamValue::HealthTimeouts(timeouts) => health_timeouts(c, path, timeouts),
        ParamValue::ConntrackTimeouts(timeouts) => conntrack_timeouts(c, path, timeouts),
        ParamValue::TextMap(filters) => log_filters(c, path, filters),
        ParamValue::RouteTableRange(range)
            if !(1 <= range.min && range.min <= range.max && range.max <= 250) =>
        {
            c.fail_field(path, "must be a range of routing tables from 1 to 250");
        }
        ParamValue::RouteTableRangeList(ranges) => route_tables(c, path, ranges),
        _ => {}
    }
}

fn port_from_one(c: &mut Checker, path: &str, port: &Port) {
    if matches!(port, Port::Range(range) if range.first == 0) {
        c.fail(path, port, "ports must be from 1 to 65535");
    }
}

fn health_timeouts(c: &mut Checker, path: &str, timeouts: &[HealthTimeoutOverride]) {
    let ok = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b' ' | b'-');
    for (i, timeout) in timeouts.iter().enumerate() {
        if timeout.name.is_empty() || !timeout.name.bytes().all(ok) {
            let reason = "must consist of letters, digits, '_', '-' and blanks";
            c.fail(format_args!("{path}[{i}].name"), &timeout.name, reason);
        }
        if timeout.timeout.0 < 0 {
            c.fail(format_args!("{path}[{i}].timeout"), timeout.timeout, "must not be negative");
        }
    }
}

fn conntrack_timeouts(c: &mut Checker, path: &str, timeouts: &BpfConntrackTimeouts) {
    const PATTERN: &str = r"^(([0-9]*(\.[0-9]*)?(ms|s|h|m|us)+)+|Auto)$";
    let fields = [
        ("creationGracePeriod", &timeouts.creation_grace_period),
        ("tcpSynSent", &timeouts.tcp_syn_sent),
        ("tcpEstablished", &timeouts.tcp_established),
        ("tcpFinsSeen", &timeouts.tcp_fins_seen),
        ("tcpResetSeen", &timeouts.tcp_reset_seen),
        ("udpTimeout", &timeouts.udp_timeout),
        ("genericTimeout", &timeouts.generic_timeout),
        ("icmpTimeout", &timeouts.icmp_timeout),
    ];
    let pattern = Regex::new(PATTERN);
    for (field, value) in fields {
        if let Some(value) = value
            && !pattern.as_ref().is_ok_and(|regex| regex.is_match(value))
        {
            c.fail(format_args!("{path}.{field}"), value, "must be a duration or Auto");
        }
    }
}

fn log_filters(c: &mut Checker, path: &str, filters: &BTreeMap<String, String>) {
    for key in filters.keys() {
        if !format::is_interface_name(key) {
            c.fail(path, key, "keys must be interface names or all, weps or heps");
        }
    }
}

fn route_tables(c: &mut Checker, path: &str, ranges: &[RouteTableRange]) {
    let mut total: i64 = 0;
    for (i, range) in ranges.iter().enumerate() {
        let field = format!("{path}[{i}]");
        if range.min < 1 {
            c.fail(field, range.min, "min must be at least 1");
        } else if range.min > range.max {
            c.fail(field, range.min, "min must not be above max");
        } else if range.max > LAST_ROUTE_TABLE {
            c.fail(field, range.max, format!("max must be at most {LAST_ROUTE_TABLE}"));
        } else {
            total = total.saturating_add(range.max - range.min + 1);
        }
    }
    if total > MAX_ROUTE_TABLES {
        c.fail_field(path, format!("holds {total} tables, at most {MAX_ROUTE_TABLES} are allowed"));
    }
}
