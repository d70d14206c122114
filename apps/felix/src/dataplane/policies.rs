//! Policies and profiles as chains.
//!
//! In: policies and profiles that local endpoints need. Out: their chains in each family, and which policies'
//! selectors changed (endpoints group neighbouring policies by selector, so their chains depend on it).

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use calico_dpmsg::{Policy, PolicyId, Profile, ProfileId};
use calico_netfilter::NftKernel;
use smol_str::{SmolStr, format_smolstr};

use super::plane::Plane;

/// The manager.
#[derive(Debug, Default)]
pub(crate) struct Policies {
    policies: HashMap<PolicyId, Arc<Policy>>,
    profiles: HashMap<ProfileId, Arc<Profile>>,
    dirty_policies: BTreeSet<PolicyId>,
    dirty_profiles: BTreeSet<ProfileId>,
    new_selectors: HashSet<PolicyId>,
}

// === impl Policies ===

impl Policies {
    /// Takes in a policy, or that there is none.
    pub(crate) fn set_policy(&mut self, id: &PolicyId, policy: Option<&Arc<Policy>>) {
        let before = match policy {
            Some(policy) => self.policies.insert(id.clone(), Arc::clone(policy)),
            None => self.policies.remove(id),
        };
        let selector = |p: Option<&Arc<Policy>>| p.map(|p| p.original_selector.clone());
        if selector(before.as_ref()) != selector(policy) {
            self.new_selectors.insert(id.clone());
        }
        self.dirty_policies.insert(id.clone());
    }

    /// Takes in a profile, or that there is none.
    pub(crate) fn set_profile(&mut self, id: &ProfileId, profile: Option<&Arc<Profile>>) {
        match profile {
            Some(profile) => self.profiles.insert(id.clone(), Arc::clone(profile)),
            None => self.profiles.remove(id),
        };
        self.dirty_profiles.insert(id.clone());
    }

    /// The selector that a policy was written with; empty if the policy is not known.
    pub(crate) fn selector(&self, id: &PolicyId) -> SmolStr {
        self.policies.get(id).map(|p| p.original_selector.clone()).unwrap_or_default()
    }

    /// Policies whose selectors changed since the last call.
    pub(crate) fn take_new_selectors(&mut self) -> HashSet<PolicyId> {
        std::mem::take(&mut self.new_selectors)
    }

    /// Renders what changed.
    pub(crate) fn resolve<N: NftKernel>(&mut self, planes: &mut [Plane<N>]) {
        for id in std::mem::take(&mut self.dirty_policies) {
            let owner = format_smolstr!("policy/{}/{}/{}", id.kind, id.namespace, id.name);
            let policy = self.policies.get(&id);
            for plane in planes.iter_mut() {
                let rendered = policy.map(|p| plane.renderer.policy_chains(&id, p)).unwrap_or_default();
                plane.give(&owner, &rendered.chains, &rendered.problems);
            }
        }
        for id in std::mem::take(&mut self.dirty_profiles) {
            let owner = format_smolstr!("profile/{id}");
            let profile = self.profiles.get(&id);
            for plane in planes.iter_mut() {
                let rendered = profile.map(|p| plane.renderer.profile_chains(&id, p)).unwrap_or_default();
                plane.give(&owner, &rendered.chains, &rendered.problems);
            }
        }
    }
}
