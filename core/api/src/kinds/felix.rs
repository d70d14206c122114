//! FelixConfiguration: settings of Felix.
//!
//! The fields are declared once, in [`params`]; that table also gives every setting its name in the environment
//! and in the configuration file, its type and its default.

mod params;
mod value;

use std::collections::BTreeMap;

pub use params::FelixConfigurationSpec;
pub use value::{FelixParam, ParamType, ParamValue};

use crate::time::GoDuration;

resource! {
    /// Settings of Felix: `default` for all nodes, `node.<name>` for one node, any other name for the nodes that
    /// its selector selects.
    FelixConfiguration { spec: FelixConfigurationSpec }
}

go_struct! {
    /// A port with its protocol, perhaps limited to some peers.
    pub struct ProtoPort {
        /// `tcp` (default) or `udp`, in any case.
        pub protocol: String = "protocol", "crate::is_default";
        /// Port number.
        pub port: u16 = "port";
        /// CIDR of the peers. Default: all.
        pub net: String = "net", "crate::is_default";
    }
}

go_struct! {
    /// A timeout of one health reporter.
    pub struct HealthTimeoutOverride {
        /// Name of the reporter.
        pub name: String = "name";
        /// Time without report after which it counts as dead.
        pub timeout: GoDuration = "timeout";
    }
}

go_struct! {
    /// A range of routing table numbers, ends included.
    pub struct RouteTableRange {
        /// First table.
        pub min: i64 = "min";
        /// Last table.
        pub max: i64 = "max";
    }
}

go_struct! {
    /// Life of BPF conntrack entries; each is a duration or `Auto` (the kernel's setting).
    pub struct BpfConntrackTimeouts {
        /// Least life of any entry. Default: 10s.
        pub creation_grace_period: Option<String> = "creationGracePeriod", "Option::is_none";
        /// TCP connection that is being opened. Default: 20s.
        pub tcp_syn_sent: Option<String> = "tcpSynSent", "Option::is_none";
        /// Idle TCP connection. Default: 1h.
        pub tcp_established: Option<String> = "tcpEstablished", "Option::is_none";
        /// TCP connection after both ends closed it. Default: Auto.
        pub tcp_fins_seen: Option<String> = "tcpFinsSeen", "Option::is_none";
        /// TCP connection after a reset. Default: 40s.
        pub tcp_reset_seen: Option<String> = "tcpResetSeen", "Option::is_none";
        /// Idle UDP flow. Default: 60s.
        pub udp_timeout: Option<String> = "udpTimeout", "Option::is_none";
        /// Idle flow of another protocol. Default: 10m.
        pub generic_timeout: Option<String> = "genericTimeout", "Option::is_none";
        /// Idle ICMP flow. Default: 5s.
        pub icmp_timeout: Option<String> = "icmpTimeout", "Option::is_none";
    }
}

// === impl BpfConntrackTimeouts ===

impl BpfConntrackTimeouts {
    /// The timeouts that are set, under the names that Felix's settings use.
    pub fn entries(&self) -> BTreeMap<&'static str, &str> {
        [
            ("CreationGracePeriod", &self.creation_grace_period),
            ("TCPSynSent", &self.tcp_syn_sent),
            ("TCPEstablished", &self.tcp_established),
            ("TCPFinsSeen", &self.tcp_fins_seen),
            ("TCPResetSeen", &self.tcp_reset_seen),
            ("UDPTimeout", &self.udp_timeout),
            ("GenericTimeout", &self.generic_timeout),
            ("ICMPTimeout", &self.icmp_timeout),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name, value.as_deref()?)))
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::gojson;

    #[test]
    fn every_setting_has_one_name_and_a_default_of_its_type() {
        let params = FelixConfigurationSpec::PARAMS;
        assert_eq!(params.len(), 188);
        let names: BTreeSet<String> = params.iter().map(|p| p.param.to_lowercase()).collect();
        assert_eq!(names.len(), params.len());
        for param in params.iter().filter(|p| !p.default.is_empty()) {
            let text = param.default;
            let hex = text.strip_prefix("0x").is_some_and(|digits| u32::from_str_radix(digits, 16).is_ok());
            let ok = match param.param_type {
                ParamType::Bool => text.parse::<bool>().is_ok(),
                ParamType::Int => hex || text.parse::<i64>().is_ok(),
                ParamType::Duration => text.parse::<GoDuration>().is_ok(),
                ParamType::Port | ParamType::PortList => text.parse::<calico_net::Port>().is_ok(),
                _ => true,
            };
            assert!(ok, "{}: {text}", param.field);
        }
    }

    #[test]
    fn values_follow_the_table() {
        let json = r#"{"ipv6Support":false,"reportingInterval":"1m30s","logSeverityScreen":"Info",
            "kubeNodePortRanges":["1:2"],"bpfConntrackTimeouts":{"udpTimeout":"9s"},"bpfLogFilters":{"all":"udp"}}"#;
        let spec: FelixConfigurationSpec = serde_json::from_str(json).unwrap();
        let set: Vec<(&str, ParamType)> =
            spec.values().filter(|(_, v)| v.is_some()).map(|(p, _)| (p.param, p.param_type)).collect();
        assert_eq!(
            set,
            [
                ("IPv6Support", ParamType::Bool),
                ("LogSeverityScreen", ParamType::Text),
                ("ReportingIntervalSecs", ParamType::Duration),
                ("KubeNodePortRanges", ParamType::PortList),
                ("BPFConntrackTimeouts", ParamType::ConntrackTimeouts),
                ("BPFLogFilters", ParamType::TextMap),
            ]
        );
        let timeouts = spec.bpf_conntrack_timeouts.unwrap_or_default();
        assert_eq!(timeouts.entries().into_iter().collect::<Vec<_>>(), [("UDPTimeout", "9s")]);
    }

    #[test]
    fn the_bpf_log_level_is_always_written() {
        let text = gojson::to_string(&FelixConfiguration::default().spec).unwrap();
        assert_eq!(text, r#"{"bpfLogLevel":""}"#);
    }
}
