//! IP pools, and which encapsulations they need.
//!
//! In: pools by CIDR. Out, at a flush: pool messages and the encapsulation. Explicit settings of the node win over
//! what the pools ask for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use calico_dpmsg::{self as dp, Encapsulation, Message, PoolType};
use calico_model::policy::{EncapMode, IpPool};
use calico_net::{Cidr, IpVersion};
use smol_str::SmolStr;

use crate::routes::PoolFacts;

/// What this node's settings say about encapsulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EncapSettings {
    /// `IpInIpEnabled`, if set.
    pub ipip: Option<bool>,
    /// `VXLANEnabled`, if set; concerns IPv4.
    pub vxlan: Option<bool>,
    /// This agent programs routes to pods of other nodes where no encapsulation is used.
    pub programs_no_encap: bool,
}

/// All pools.
#[derive(Debug, Default)]
pub(crate) struct Pools {
    pools: BTreeMap<Cidr, Arc<dp::IpPool>>,
    sent: BTreeMap<Cidr, Arc<dp::IpPool>>,
    dirty: BTreeSet<Cidr>,
    sent_encap: Option<Encapsulation>,
    settings: EncapSettings,
}

/// How traffic to addresses of a pool travels.
fn pool_type(pool: &dp::IpPool) -> PoolType {
    if pool.load_balancer_only {
        PoolType::None
    } else if !pool.vxlan_mode.is_empty() {
        PoolType::Vxlan
    } else if !pool.ipip_mode.is_empty() {
        PoolType::Ipip
    } else {
        PoolType::NoEncap
    }
}

/// What routes need to know of a pool.
pub(crate) fn facts(pool: &IpPool) -> PoolFacts {
    let vxlan = pool.vxlan != EncapMode::Never;
    let mode = if vxlan { pool.vxlan } else { pool.ipip };
    PoolFacts {
        kind: pool_type(&message(pool)),
        nat_outgoing: pool.masquerade,
        cross_subnet: mode == EncapMode::CrossSubnet,
    }
}

fn message(pool: &IpPool) -> dp::IpPool {
    let mode = |mode: EncapMode| {
        SmolStr::new_static(match mode {
            EncapMode::Never => "",
            EncapMode::Always => "always",
            EncapMode::CrossSubnet => "cross-subnet",
        })
    };
    dp::IpPool {
        cidr: pool.cidr,
        masquerade: pool.masquerade,
        ipip_mode: mode(pool.ipip),
        vxlan_mode: mode(pool.vxlan),
        load_balancer_only: matches!(&pool.allowed_uses[..], [only] if only == "LoadBalancer"),
    }
}

// === impl Pools ===

impl Pools {
    /// No pools.
    pub(crate) fn new(settings: EncapSettings) -> Self {
        Self { settings, ..Self::default() }
    }

    /// Sets or removes a pool.
    pub(crate) fn put(&mut self, cidr: Cidr, pool: Option<&IpPool>) {
        match pool {
            Some(pool) => drop(self.pools.insert(cidr, Arc::new(message(pool)))),
            None => drop(self.pools.remove(&cidr)),
        }
        self.dirty.insert(cidr);
    }

    /// What changed: removals, updates (each in order of CIDRs), and the encapsulation if that changed.
    pub(crate) fn flush(&mut self) -> (Vec<Message>, Vec<Message>, Option<Message>) {
        let (mut removes, mut updates) = (Vec::new(), Vec::new());
        for cidr in std::mem::take(&mut self.dirty) {
            match self.pools.get(&cidr) {
                None => {
                    if self.sent.remove(&cidr).is_some() {
                        removes.push(Message::IpPoolRemove(cidr));
                    }
                }
                Some(pool) => {
                    if self.sent.get(&cidr) != Some(pool) {
                        self.sent.insert(cidr, pool.clone());
                        updates.push(Message::IpPoolUpdate(pool.clone()));
                    }
                }
            }
        }
        let encap = self.encapsulation();
        let changed = self.sent_encap.replace(encap) != Some(encap);
        (removes, updates, changed.then_some(Message::Encapsulation(encap)))
    }

    fn encapsulation(&self) -> Encapsulation {
        let any = |wanted: &dyn Fn(&Cidr, &dp::IpPool) -> bool| self.pools.iter().any(|(c, p)| wanted(c, p));
        let vxlan_of = |version| any(&move |c, p| c.version() == version && !p.vxlan_mode.is_empty());
        Encapsulation {
            ipip: self.settings.ipip.unwrap_or_else(|| any(&|_, p| !p.ipip_mode.is_empty())),
            vxlan: self.settings.vxlan.unwrap_or_else(|| vxlan_of(IpVersion::V4)),
            vxlan_v6: vxlan_of(IpVersion::V6),
            no_encap: self.settings.programs_no_encap && any(&|_, p| pool_type(p) == PoolType::NoEncap),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(cidr: &str, ipip: EncapMode, vxlan: EncapMode) -> IpPool {
        IpPool {
            cidr: cidr.parse().unwrap(),
            ipip,
            vxlan,
            masquerade: false,
            disabled: false,
            disable_bgp_export: false,
            automatic: true,
            allowed_uses: vec!["Workload".into(), "Tunnel".into()],
        }
    }

    fn encap(settings: EncapSettings, list: &[IpPool]) -> Encapsulation {
        let mut pools = Pools::new(settings);
        list.iter().for_each(|p| pools.put(p.cidr, Some(p)));
        let (removes, updates, encap) = pools.flush();
        assert_eq!((removes.len(), updates.len()), (0, list.len()));
        assert_eq!(pools.flush(), (vec![], vec![], None));
        match encap {
            Some(Message::Encapsulation(e)) => e,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn pools_decide_unless_settings_do() {
        use EncapMode::{Always, CrossSubnet, Never};
        let off = Encapsulation::default();
        let unset = EncapSettings::default();
        let (v4, v6) = ("10.0.0.0/16", "fd00::/64");
        assert_eq!(encap(unset, &[]), off);
        assert_eq!(encap(unset, &[pool(v4, CrossSubnet, Never)]), Encapsulation { ipip: true, ..off });
        assert_eq!(encap(unset, &[pool(v4, Never, Always)]), Encapsulation { vxlan: true, ..off });
        assert_eq!(encap(unset, &[pool(v6, Never, Always)]), Encapsulation { vxlan_v6: true, ..off });
        assert_eq!(encap(unset, &[pool(v4, Never, Never)]), off);
        let own = EncapSettings { programs_no_encap: true, ..unset };
        assert_eq!(encap(own, &[pool(v4, Never, Never)]), Encapsulation { no_encap: true, ..off });
        assert_eq!(encap(own, &[pool(v4, Always, Never)]), Encapsulation { ipip: true, ..off });
        let forced = EncapSettings { ipip: Some(true), vxlan: Some(false), ..unset };
        let list = [pool(v4, Never, Always), pool(v6, Never, Always)];
        assert_eq!(encap(forced, &list), Encapsulation { ipip: true, vxlan_v6: true, ..off });
    }

    #[test]
    fn load_balancer_pools_have_no_type() {
        let mut p = pool("10.0.0.0/16", EncapMode::Never, EncapMode::Never);
        assert_eq!(facts(&p).kind, PoolType::NoEncap);
        p.allowed_uses = vec!["LoadBalancer".into()];
        assert_eq!(facts(&p).kind, PoolType::None);
        assert!(message(&p).load_balancer_only);
    }
}
