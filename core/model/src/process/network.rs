//! IP pools and network sets.

use std::sync::Arc;

use calico_api as api;
use calico_net::Cidr;
use smol_str::{SmolStr, format_smolstr};

use super::{Converted, ProcessError, object, unreadable};
use crate::key::{Key, ResourceKey};
use crate::names::{LABEL_NAMESPACE, namespace_profile};
use crate::policy::{EncapMode, IpPool, Labels, NetworkSet};
use crate::value::Value;

pub(super) fn pool(source: &ResourceKey, value: &Value) -> Result<(Key, Value), ProcessError> {
    let spec = &object::<api::IPPool>(source, value)?.spec;
    let cidr =
        Cidr::parse_strict(&spec.cidr).map_err(|_| unreadable(source, "spec.cidr", &spec.cidr))?.masked();
    let pool = IpPool {
        cidr,
        ipip: encap(&spec.ipip_mode),
        vxlan: encap(&spec.vxlan_mode),
        masquerade: spec.nat_outgoing,
        disabled: spec.disabled,
        disable_bgp_export: spec.disable_bgp_export,
        automatic: spec.assignment_mode != Some(api::AssignmentMode::Manual),
        allowed_uses: spec.allowed_uses.iter().map(|used| used.as_str().into()).collect(),
    };
    Ok((Key::IpPool(cidr), Value::IpPool(Arc::new(pool))))
}

pub(super) fn set_key(source: &ResourceKey) -> Result<Key, ProcessError> {
    Ok(Key::NetworkSet(format_smolstr!("{}/{}", source.namespace, source.name)))
}

pub(super) fn namespaced_set(source: &ResourceKey, value: &Value) -> Converted {
    let set = object::<api::NetworkSet>(source, value)?;
    let mut labels = labels(&set.metadata);
    labels.insert(LABEL_NAMESPACE.into(), source.namespace.clone());
    let profile_ids = vec![namespace_profile(&source.namespace).into()];
    let set = NetworkSet { nets: nets(&set.spec.nets), labels, profile_ids };
    Ok((Some(Value::NetworkSet(Arc::new(set))), None))
}

pub(super) fn global_set(source: &ResourceKey, value: &Value) -> Result<(Key, Value), ProcessError> {
    let set = object::<api::GlobalNetworkSet>(source, value)?;
    let labels = labels(&set.metadata);
    let set = NetworkSet { nets: nets(&set.spec.nets), labels, profile_ids: Vec::new() };
    Ok((Key::NetworkSet(source.name.clone()), Value::NetworkSet(Arc::new(set))))
}

pub(super) fn labels(metadata: &api::ObjectMeta) -> Labels {
    metadata.labels.iter().map(|(name, value)| (SmolStr::from(name), SmolStr::from(value))).collect()
}

/// Entries that are no CIDR are left out: an entry less never lets anything match that was not written.
fn nets(texts: &[String]) -> Vec<Cidr> {
    texts.iter().filter_map(|text| Cidr::parse(text).ok()).map(|cidr| cidr.masked()).collect()
}

fn encap(mode: &api::EncapMode) -> EncapMode {
    match mode {
        api::EncapMode::Always => EncapMode::Always,
        api::EncapMode::CrossSubnet => EncapMode::CrossSubnet,
        _ => EncapMode::Never,
    }
}
