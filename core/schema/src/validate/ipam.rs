//! IPAM's own kinds.

use calico_api::{
    AffinityState, BlockAffinitySpec, IPAMBlockSpec, IPAMConfigurationSpec, VmAddressPersistence,
};
use calico_net::Cidr;

use super::Checker;

const MAX_BLOCKS: i64 = 1_000_000;
const MAX_COOLDOWN_SECONDS: i64 = 1_200;

pub(super) fn configuration(c: &mut Checker, spec: &IPAMConfigurationSpec) {
    c.range("spec.maxBlocksPerHost", spec.max_blocks_per_host, 0, MAX_BLOCKS);
    c.range("spec.ipCooldownSeconds", spec.ip_cooldown_seconds, 0, MAX_COOLDOWN_SECONDS);
    if let Some(mode) = &spec.kubevirt_vm_address_persistence {
        c.word("spec.kubeVirtVMAddressPersistence", mode.as_str(), VmAddressPersistence::WORDS);
    }
}

pub(super) fn affinity(c: &mut Checker, spec: &BlockAffinitySpec) {
    if !spec.state.is_unset() {
        c.word("spec.state", spec.state.as_str(), AffinityState::WORDS);
    }
    cidr(c, &spec.cidr);
    if spec.deleted.0 {
        c.fail("spec.deleted", true, "is set by IPAM alone");
    }
}

pub(super) fn block(c: &mut Checker, spec: &IPAMBlockSpec) {
    cidr(c, &spec.cidr);
    if let Some(affinity) = &spec.affinity {
        let owner = affinity.strip_prefix("host:").or_else(|| affinity.strip_prefix("virtual:"));
        let ok = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
        if !owner.is_some_and(|name| !name.is_empty() && name.bytes().all(ok)) {
            c.fail("spec.affinity", affinity, "must be host:NAME or virtual:NAME");
        }
    }
}

fn cidr(c: &mut Checker, cidr: &str) {
    if Cidr::parse_strict(cidr).is_err() {
        c.fail("spec.cidr", cidr, "must be a CIDR with prefix length");
    }
}
