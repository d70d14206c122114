//! The list of all kinds. A new kind is one file under `kinds/` and one line here.

use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;

use crate::decode::{self, DecodeError};
use crate::kind::{KindInfo, Scope};
use crate::kinds;
use crate::meta::ObjectMeta;
use crate::resource::Resource;

macro_rules! registry {
    (
        typed { $($name:ident $plural:literal $scope:ident short $short:tt alias $alias:tt $($flag:ident)*;)* }
        untyped { $($uname:ident $uplural:literal $uscope:ident short $ushort:tt alias $ualias:tt $($uflag:ident)*;)* }
    ) => {
        /// A resource kind.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[allow(missing_docs, reason = "the variants are the names of the kinds")]
        #[non_exhaustive]
        pub enum Kind { $($name,)* $($uname,)* }

        impl Kind {
            pub(crate) const TABLE: &'static [KindInfo] = &[
                $(registry!(@info $name $plural $scope $short $alias true $($flag)*),)*
                $(registry!(@info $uname $uplural $uscope $ushort $ualias false $($uflag)*),)*
            ];
        }

        /// An object of any kind that this version has types for.
        #[derive(Debug, Clone, PartialEq)]
        #[allow(missing_docs, reason = "the variants are the names of the kinds")]
        #[non_exhaustive]
        pub enum AnyResource { $($name(Box<kinds::$name>),)* }

        impl AnyResource {
            /// The kind of the object.
            pub fn kind(&self) -> Kind {
                match self { $(Self::$name(_) => Kind::$name,)* }
            }

            /// Metadata of the object.
            pub fn metadata(&self) -> &ObjectMeta {
                match self { $(Self::$name(object) => object.metadata(),)* }
            }

            /// Metadata of the object, to change.
            pub fn metadata_mut(&mut self) -> &mut ObjectMeta {
                match self { $(Self::$name(object) => object.metadata_mut(),)* }
            }

            /// An empty object of `kind`.
            pub fn empty(kind: Kind) -> Result<Self, DecodeError> {
                match kind {
                    $(Kind::$name => Ok(Self::$name(Box::default())),)*
                    other => Err(DecodeError::Unserved(other)),
                }
            }

            /// Decodes an object of `kind` from any JSON source.
            pub(crate) fn decode<'de, D>(kind: Kind, deserializer: D) -> Result<Result<Self, D::Error>, DecodeError>
            where
                D: serde::Deserializer<'de>,
            {
                match kind {
                    $(Kind::$name => Ok(kinds::$name::deserialize(deserializer).map(|o| Self::$name(Box::new(o)))),)*
                    other => Err(DecodeError::Unserved(other)),
                }
            }
        }

        impl Serialize for AnyResource {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                match self { $(Self::$name(object) => object.serialize(serializer),)* }
            }
        }
    };
    (@info $name:ident $plural:literal $scope:ident [$($short:literal)*] [$($alias:literal)*] $served:literal
        $($flag:ident)*) => {
        KindInfo {
            kind: Kind::$name,
            name: stringify!($name),
            plural: $plural,
            scope: Scope::$scope,
            short_names: &[$($short),*],
            ctl_aliases: &[$($alias),*],
            status_subresource: registry!(@has_status $($flag)*),
            public: registry!(@is_public $($flag)*),
            served: $served,
        }
    };
    (@has_status status) => { true };
    (@has_status $($flag:ident)*) => { false };
    (@is_public hidden) => { false };
    (@is_public $($flag:ident)*) => { true };
}

registry! {
    typed {
        BlockAffinity "blockaffinities" Cluster short ["affinity" "affinities"] alias [];
        ClusterInformation "clusterinformations" Cluster short ["clusterinfo" "clusterinfos"] alias [];
        FelixConfiguration "felixconfigurations" Cluster short ["felixconfig" "felixconfigs"] alias [];
        GlobalNetworkPolicy "globalnetworkpolicies" Cluster short ["gnp" "cgnp"] alias ["gnps"];
        GlobalNetworkSet "globalnetworksets" Cluster short ["gns"] alias ["gnetsets"];
        HostEndpoint "hostendpoints" Cluster short ["hep" "heps"] alias [];
        IPAMBlock "ipamblocks" Cluster short [] alias [];
        IPAMConfiguration "ipamconfigurations" Cluster short ["ipamconfig" "ipamconfigs"] alias [];
        IPAMHandle "ipamhandles" Cluster short [] alias [];
        IPPool "ippools" Cluster short [] alias ["ipp" "ipps" "pool" "pools"] status;
        IPReservation "ipreservations" Cluster short [] alias ["reservation" "reservations"];
        NetworkPolicy "networkpolicies" Namespaced short ["cnp" "caliconetworkpolicy"]
            alias ["np" "policy" "policies" "pol" "pols"];
        NetworkSet "networksets" Namespaced short [] alias ["netsets"];
        Node "nodes" Cluster short [] alias ["no" "nos"];
        Profile "profiles" Cluster short [] alias ["pro" "pros"];
        Tier "tiers" Cluster short [] alias [] status;
        WorkloadEndpoint "workloadendpoints" Namespaced short [] alias ["wep" "weps"];
    }
    untyped {
        BGPConfiguration "bgpconfigurations" Cluster short ["bgpconfig" "bgpconfigs"] alias [];
        BGPFilter "bgpfilters" Cluster short [] alias ["bgpf" "bgpfs" "bf" "bfs"];
        BGPPeer "bgppeers" Cluster short [] alias ["bgpp" "bgpps" "bp" "bps"];
        CalicoNodeStatus "caliconodestatuses" Cluster short [] alias ["nodestatus" "nodestatuses"] status;
        KubeControllersConfiguration "kubecontrollersconfigurations" Cluster short ["kcc" "kccs"]
            alias ["kubecontrollersconfig" "kubecontrollersconfigs"] status;
        LiveMigration "livemigrations" Namespaced short [] alias [];
        StagedGlobalNetworkPolicy "stagedglobalnetworkpolicies" Cluster short ["sgnp"] alias ["sgnps"];
        StagedKubernetesNetworkPolicy "stagedkubernetesnetworkpolicies" Namespaced short ["sknp"]
            alias ["skpol" "skpols" "stagedkubernetespolicy" "stagedkubernetespolicies"];
        StagedNetworkPolicy "stagednetworkpolicies" Namespaced short ["scnp" "snp"]
            alias ["stagedpolicy" "stagedpolicies" "spol" "spols"];
        KubernetesNetworkPolicy "kubernetesnetworkpolicies" Namespaced short [] alias [] hidden;
        KubernetesClusterNetworkPolicy "kubernetesclusternetworkpolicies" Cluster short [] alias [] hidden;
        KubernetesEndpointSlice "kubernetesendpointslices" Namespaced short [] alias [] hidden;
        KubernetesService "kubernetesservice" Namespaced short [] alias [] hidden;
    }
}

// === impl AnyResource ===

impl AnyResource {
    /// Name of the object.
    pub fn name(&self) -> &str {
        &self.metadata().name
    }

    /// Namespace of the object; empty for cluster-wide kinds.
    pub fn namespace(&self) -> &str {
        &self.metadata().namespace
    }

    /// Decodes a stored object; unknown fields are ignored.
    ///
    /// Errors: not JSON; a field of the wrong type, with its path; a kind without types.
    pub fn from_json(kind: Kind, json: &[u8]) -> Result<Self, DecodeError> {
        decode::from_slice(kind, json)
    }

    /// Decodes an object from a JSON value; unknown fields are ignored.
    ///
    /// Errors: as [`AnyResource::from_json`].
    pub fn from_value(kind: Kind, value: &Value) -> Result<Self, DecodeError> {
        decode::from_value(kind, value)
    }

    /// Decodes an object that a person wrote; unknown fields are errors.
    ///
    /// Errors: as [`AnyResource::from_json`], and a list of the unknown fields.
    pub fn from_value_strict(kind: Kind, value: &Value) -> Result<Self, DecodeError> {
        decode::from_value_strict(kind, value)
    }
}

impl<R: Resource> From<R> for AnyResource {
    fn from(object: R) -> Self {
        object.into_any()
    }
}
