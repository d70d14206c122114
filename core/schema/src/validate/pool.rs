//! IPPool and IPReservation.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use calico_api::{AllowedUse, AssignmentMode, EncapMode, IPPoolSpec, IPReservationSpec};
use calico_net::{Cidr, IpVersion};

use super::Checker;

const MAX_CIDR: usize = 48;
const MAX_USES: usize = 10;

/// Blocks of addresses that never leave their link (RFC 3927, RFC 4291).
fn link_local() -> [Option<Cidr>; 2] {
    [
        Cidr::new(IpAddr::V4(Ipv4Addr::new(169, 254, 0, 0)), 16),
        Cidr::new(IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0)), 10),
    ]
}

pub(super) fn pool(c: &mut Checker, spec: &IPPoolSpec) {
    let cidr = cidr(c, spec);
    for (field, mode) in [("vxlanMode", &spec.vxlan_mode), ("ipipMode", &spec.ipip_mode)] {
        if !mode.is_unset() {
            c.word(format_args!("spec.{field}"), mode.as_str(), EncapMode::WORDS);
        }
    }
    let on = |mode: &EncapMode| !matches!(mode, EncapMode::Unset | EncapMode::Never);
    if on(&spec.vxlan_mode) && on(&spec.ipip_mode) {
        c.fail_field("spec.ipipMode", "a pool cannot use both IPIP and VXLAN");
    }
    if let Some(cidr) = cidr {
        if on(&spec.ipip_mode) && cidr.version() == IpVersion::V6 {
            c.fail("spec.ipipMode", &spec.ipip_mode, "IPIP is for IPv4 pools only");
        }
        block_size(c, spec, cidr);
    }
    c.selector_without_global("spec.nodeSelector", &spec.node_selector);
    c.selector_without_global("spec.namespaceSelector", &spec.namespace_selector);
    uses(c, spec, on(&spec.vxlan_mode) || on(&spec.ipip_mode));
    if let Some(mode) = &spec.assignment_mode {
        c.word("spec.assignmentMode", mode.as_str(), AssignmentMode::WORDS);
    }
}

fn cidr(c: &mut Checker, spec: &IPPoolSpec) -> Option<Cidr> {
    const FIELD: &str = "spec.cidr";
    if spec.cidr.is_empty() {
        c.fail_field(FIELD, "IPPool CIDR must be specified");
        return None;
    }
    c.max_chars(FIELD, &spec.cidr, MAX_CIDR);
    let Ok(cidr) = Cidr::parse_strict(&spec.cidr) else {
        c.fail(FIELD, &spec.cidr, "IPPool CIDR must be a valid subnet");
        return None;
    };
    if !cidr.is_masked() {
        c.fail(FIELD, &spec.cidr, format!("has host bits set; did you mean {}?", cidr.masked()));
    }
    for reserved in link_local().iter().flatten() {
        if cidr.overlaps(reserved) {
            c.fail(FIELD, &spec.cidr, format!("overlaps the link-local range {reserved}"));
        }
    }
    Some(cidr)
}

fn block_size(c: &mut Checker, spec: &IPPoolSpec, cidr: Cidr) {
    const FIELD: &str = "spec.blockSize";
    let (min, max) = match cidr.version() {
        IpVersion::V4 => (20, 32),
        IpVersion::V6 => (116, 128),
    };
    c.range(FIELD, spec.block_size, min, max);
    if i64::from(cidr.prefix_len()) > spec.block_size && !spec.disabled {
        c.fail(
            "spec.cidr",
            &spec.cidr,
            format!("the pool is smaller than one block of /{}", spec.block_size),
        );
    }
}

fn uses(c: &mut Checker, spec: &IPPoolSpec, encapsulated: bool) {
    const FIELD: &str = "spec.allowedUses";
    c.max_items(FIELD, spec.allowed_uses.len(), MAX_USES);
    for (i, allowed) in spec.allowed_uses.iter().enumerate() {
        c.word(format_args!("{FIELD}[{i}]"), allowed.as_str(), AllowedUse::WORDS);
    }
    let has = |wanted: AllowedUse| spec.allowed_uses.contains(&wanted);
    if has(AllowedUse::Tunnel) && !spec.namespace_selector.is_empty() {
        c.fail_field("spec.namespaceSelector", "a pool for tunnels cannot be limited to namespaces");
    }
    if !has(AllowedUse::LoadBalancer) {
        return;
    }
    if has(AllowedUse::Workload) || has(AllowedUse::Tunnel) {
        c.fail_field(FIELD, "LoadBalancer cannot be combined with other uses");
    }
    if spec.disable_bgp_export {
        c.fail_field("spec.disableBGPExport", "a pool for load balancers must be exported by BGP");
    }
    if spec.node_selector != "all()" {
        c.fail("spec.nodeSelector", &spec.node_selector, "must be all() for a pool for load balancers");
    }
    if encapsulated {
        c.fail_field(FIELD, "a pool for load balancers cannot use IPIP or VXLAN");
    }
}

/// What may change in a pool: not its block of addresses (only its spelling), not its block size, and a pool for
/// load balancers stays one.
pub(super) fn transition(c: &mut Checker, old: &IPPoolSpec, new: &IPPoolSpec) {
    let same = match (Cidr::parse_strict(&old.cidr), Cidr::parse_strict(&new.cidr)) {
        (Ok(a), Ok(b)) => a == b,
        _ => old.cidr == new.cidr,
    };
    if !same {
        c.fail("IPPool.Spec.CIDR", &new.cidr, "IPPool CIDR cannot be modified");
    }
    if old.block_size != new.block_size {
        c.fail("IPPool.Spec.BlockSize", new.block_size, "IPPool BlockSize cannot be modified");
    }
    let balances = |spec: &IPPoolSpec| spec.allowed_uses.contains(&AllowedUse::LoadBalancer);
    if balances(old) && !balances(new) {
        c.fail_field("IPPool.Spec.AllowedUses", "a pool for load balancers cannot get other uses");
    }
}

pub(super) fn reservation(c: &mut Checker, spec: &IPReservationSpec) {
    for (i, cidr) in spec.reserved_cidrs.iter().enumerate() {
        if Cidr::parse_strict(cidr).is_err() {
            c.fail(format_args!("spec.reservedCIDRs[{i}]"), cidr, "must be a CIDR with prefix length");
        }
    }
}
