//! IPPool and IPReservation: where workload addresses come from.

use crate::meta::Condition;

open_enum! {
    /// When packets between workloads of different nodes are encapsulated.
    pub enum EncapMode {
        /// Never.
        Never = "Never",
        /// Always.
        Always = "Always",
        /// Only between nodes of different subnets.
        CrossSubnet = "CrossSubnet",
    }
}

open_enum! {
    /// What addresses of a pool may be used for.
    pub enum AllowedUse {
        /// Addresses of workloads.
        Workload = "Workload",
        /// Tunnel addresses of nodes.
        Tunnel = "Tunnel",
        /// Addresses of services of type LoadBalancer.
        LoadBalancer = "LoadBalancer",
    }
}

open_enum! {
    /// Whether addresses are given out of the pool without being asked for by pool.
    pub enum AssignmentMode {
        /// Yes.
        Automatic = "Automatic",
        /// Only when a request names the pool or address.
        Manual = "Manual",
    }
}

resource! {
    /// A block of addresses for workloads.
    IPPool { spec: IPPoolSpec, status: IPPoolStatus, optional }
}

go_struct! {
    /// What an [`IPPool`] says.
    pub struct IPPoolSpec {
        /// The block, without host bits. Required; cannot change.
        pub cidr: String = "cidr";
        /// VXLAN between nodes; excludes IPIP. Default: `Never`.
        pub vxlan_mode: EncapMode = "vxlanMode", "crate::is_default";
        /// IPIP between nodes; IPv4 only, excludes VXLAN. Default: `Never`.
        pub ipip_mode: EncapMode = "ipipMode", "crate::is_default";
        /// Masquerade traffic from the pool to addresses outside all pools. Default: false.
        pub nat_outgoing: bool = "natOutgoing", "crate::is_default";
        /// Give out no addresses. Default: false.
        pub disabled: bool = "disabled", "crate::is_default";
        /// Do not advertise the pool by BGP. Default: false.
        pub disable_bgp_export: bool = "disableBGPExport", "crate::is_default";
        /// Prefix length of the blocks that nodes claim: 20 to 32 for IPv4 (default 26), 116 to 128 for IPv6
        /// (default 122). Cannot change.
        pub block_size: i64 = "blockSize", "crate::is_default";
        /// Selector over nodes that may use the pool. Default: `all()`.
        pub node_selector: String = "nodeSelector", "crate::is_default";
        /// Selector over namespaces whose workloads may use the pool. Default: all.
        pub namespace_selector: String = "namespaceSelector", "crate::is_default";
        /// Allowed uses. Default: workloads and tunnels.
        pub allowed_uses: Vec<AllowedUse> = "allowedUses", "crate::is_default";
        /// Automatic or manual assignment. Default: `Automatic`.
        pub assignment_mode: Option<AssignmentMode> = "assignmentMode", "Option::is_none";
    }
}

go_struct! {
    /// What was observed of an [`IPPool`].
    pub struct IPPoolStatus {
        /// Conditions; `Allocatable` is the one in use.
        pub conditions: Vec<Condition> = "conditions", "crate::is_default";
    }
}

resource! {
    /// Addresses that automatic assignment must not give out.
    IPReservation { spec: IPReservationSpec }
}

go_struct! {
    /// What an [`IPReservation`] says.
    pub struct IPReservationSpec {
        /// Reserved CIDRs.
        pub reserved_cidrs: Vec<String> = "reservedCIDRs", "crate::is_default";
    }
}
