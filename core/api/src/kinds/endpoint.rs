//! WorkloadEndpoint and HostEndpoint: interfaces that policy applies to.

use calico_net::Protocol;

use crate::numorstring::Dscp;

resource! {
    /// The network interface of a workload.
    WorkloadEndpoint { spec: WorkloadEndpointSpec }
}

go_struct! {
    /// What a [`WorkloadEndpoint`] says.
    pub struct WorkloadEndpointSpec {
        /// Orchestrator: `k8s`, `cni`, `libnetwork`, `openstack` or another word.
        pub orchestrator: String = "orchestrator", "crate::is_default";
        /// Workload, for orchestrators other than `k8s`, `cni` and `libnetwork`.
        pub workload: String = "workload", "crate::is_default";
        /// Node that the workload runs on.
        pub node: String = "node", "crate::is_default";
        /// Container that owns the interface.
        pub container_id: String = "containerID", "crate::is_default";
        /// Pod, for orchestrator `k8s`.
        pub pod: String = "pod", "crate::is_default";
        /// Name of the interface inside the workload.
        pub endpoint: String = "endpoint", "crate::is_default";
        /// Service account that the workload runs under.
        pub service_account_name: String = "serviceAccountName", "crate::is_default";
        /// Addresses, as CIDRs of one address each.
        pub ip_networks: Vec<String> = "ipNetworks", "crate::is_default";
        /// Floating addresses that are translated to one of `ipNetworks`.
        pub ip_nats: Vec<IpNat> = "ipNATs", "crate::is_default";
        /// IPv4 gateway of the workload.
        pub ipv4_gateway: String = "ipv4Gateway", "crate::is_default";
        /// IPv6 gateway of the workload.
        pub ipv6_gateway: String = "ipv6Gateway", "crate::is_default";
        /// Profiles whose rules and labels the endpoint takes, in order.
        pub profiles: Vec<String> = "profiles", "crate::is_default";
        /// Name of the interface on the host. Required.
        pub interface_name: String = "interfaceName", "crate::is_default";
        /// MAC address of the interface inside the workload.
        pub mac: String = "mac", "crate::is_default";
        /// Named ports and ports of the host.
        pub ports: Vec<WorkloadEndpointPort> = "ports", "crate::is_default";
        /// CIDRs that the workload may use as source beyond its own addresses.
        pub allow_spoofed_source_prefixes: Vec<String> = "allowSpoofedSourcePrefixes", "crate::is_default";
        /// Limits of rate and number.
        pub qos_controls: Option<QosControls> = "qosControls", "Option::is_none";
    }
}

go_struct! {
    /// A floating address.
    pub struct IpNat {
        /// Address of the workload.
        pub internal_ip: String = "internalIP";
        /// Floating address, of the same family.
        pub external_ip: String = "externalIP";
    }
}

go_struct! {
    /// A port of a workload.
    pub struct WorkloadEndpointPort {
        /// Name by which rules may refer to the port.
        pub name: String = "name";
        /// Protocol: TCP, UDP or SCTP.
        pub protocol: Option<Protocol> = "protocol";
        /// Port number, 1 to 65535.
        pub port: u16 = "port";
        /// Port of the host that is forwarded here; 0 for none.
        pub host_port: u16 = "hostPort";
        /// Address of the host that `hostPort` is limited to; empty for all.
        pub host_ip: String = "hostIP";
    }
}

go_struct! {
    /// Limits of rate and number of a workload; 0 means no limit. Ingress is towards the workload.
    pub struct QosControls {
        /// Bits per second towards the workload.
        pub ingress_bandwidth: i64 = "ingressBandwidth", "crate::is_default";
        /// Bits per second from the workload.
        pub egress_bandwidth: i64 = "egressBandwidth", "crate::is_default";
        /// Burst towards the workload in bits.
        pub ingress_burst: i64 = "ingressBurst", "crate::is_default";
        /// Burst from the workload in bits.
        pub egress_burst: i64 = "egressBurst", "crate::is_default";
        /// Bits per second of a burst towards the workload.
        pub ingress_peakrate: i64 = "ingressPeakrate", "crate::is_default";
        /// Bits per second of a burst from the workload.
        pub egress_peakrate: i64 = "egressPeakrate", "crate::is_default";
        /// Bytes that may pass at peak rate towards the workload.
        pub ingress_minburst: i64 = "ingressMinburst", "crate::is_default";
        /// Bytes that may pass at peak rate from the workload.
        pub egress_minburst: i64 = "egressMinburst", "crate::is_default";
        /// Packets per second towards the workload.
        pub ingress_packet_rate: i64 = "ingressPacketRate", "crate::is_default";
        /// Packets per second from the workload.
        pub egress_packet_rate: i64 = "egressPacketRate", "crate::is_default";
        /// Burst towards the workload in packets.
        pub ingress_packet_burst: i64 = "ingressPacketBurst", "crate::is_default";
        /// Burst from the workload in packets.
        pub egress_packet_burst: i64 = "egressPacketBurst", "crate::is_default";
        /// Connections at once towards the workload.
        pub ingress_max_connections: i64 = "ingressMaxConnections", "crate::is_default";
        /// Connections at once from the workload.
        pub egress_max_connections: i64 = "egressMaxConnections", "crate::is_default";
        /// DSCP value that packets from the workload are marked with.
        pub dscp: Option<Dscp> = "dscp", "Option::is_none";
    }
}

resource! {
    /// An interface of a host, or all of them.
    HostEndpoint { spec: HostEndpointSpec }
}

go_struct! {
    /// What a [`HostEndpoint`] says.
    pub struct HostEndpointSpec {
        /// Node of the interface. Required.
        pub node: String = "node", "crate::is_default";
        /// Name of the interface; `*` for all of the host. Needed unless `expectedIPs` is set.
        pub interface_name: String = "interfaceName", "crate::is_default";
        /// Addresses of the interface; they find it if it is not named, and serve as its addresses in selectors.
        pub expected_ips: Vec<String> = "expectedIPs", "crate::is_default";
        /// Profiles whose rules and labels the endpoint takes, in order.
        pub profiles: Vec<String> = "profiles", "crate::is_default";
        /// Named ports.
        pub ports: Vec<EndpointPort> = "ports", "crate::is_default";
    }
}

go_struct! {
    /// A named port.
    pub struct EndpointPort {
        /// Name by which rules may refer to the port.
        pub name: String = "name";
        /// Protocol: TCP, UDP or SCTP.
        pub protocol: Option<Protocol> = "protocol";
        /// Port number, 1 to 65535.
        pub port: u16 = "port";
    }
}
