//! What all resource types have in common.

use std::fmt::Debug;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::kind::Kind;
use crate::meta::ObjectMeta;
use crate::registry::AnyResource;

/// API group of every kind.
pub const API_GROUP: &str = "projectcalico.org";

/// API group and version of every kind, as in `apiVersion:` of an object.
pub const API_VERSION: &str = "projectcalico.org/v3";

/// A resource type of the API.
///
/// Encoding writes `kind`, `apiVersion`, `metadata`, `spec` and, where the kind has one, `status`, in this order;
/// decoding ignores what `kind` and `apiVersion` say.
pub trait Resource:
    Clone + PartialEq + Debug + Default + Serialize + DeserializeOwned + Send + Sync + 'static
{
    /// The kind.
    const KIND: Kind;

    /// Metadata.
    fn metadata(&self) -> &ObjectMeta;

    /// Metadata, to change.
    fn metadata_mut(&mut self) -> &mut ObjectMeta;

    /// The object as one of any kind.
    fn into_any(self) -> AnyResource;

    /// Takes the object out if it is of this kind.
    fn from_any(any: AnyResource) -> Option<Self>;

    /// Looks at the object if it is of this kind.
    fn from_any_ref(any: &AnyResource) -> Option<&Self>;

    /// Name of the object.
    fn name(&self) -> &str {
        &self.metadata().name
    }

    /// Namespace of the object; empty for cluster-wide kinds.
    fn namespace(&self) -> &str {
        &self.metadata().namespace
    }
}

/// Declares the type of a kind: metadata, `spec` and perhaps `status`.
///
/// `status: T` is always written; `status: T, optional` only if set.
macro_rules! resource {
    ($(#[$meta:meta])* $name:ident { spec: $spec:ty }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Default)]
        pub struct $name {
            /// Name, labels and other metadata.
            pub metadata: crate::meta::ObjectMeta,
            /// What the user asks for.
            pub spec: $spec,
        }
        resource!(@impl $name, $spec, 4, (), (|_this, _s| Ok(())));
    };
    ($(#[$meta:meta])* $name:ident { spec: $spec:ty, status: $status:ty }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Default)]
        pub struct $name {
            /// Name, labels and other metadata.
            pub metadata: crate::meta::ObjectMeta,
            /// What the user asks for.
            pub spec: $spec,
            /// What the system observed.
            pub status: $status,
        }
        resource!(@impl $name, $spec, 5, (status: $status), (|this: &Self, s: &mut S::SerializeStruct| {
            s.serialize_field("status", &this.status)
        }));
    };
    ($(#[$meta:meta])* $name:ident { spec: $spec:ty, status: $status:ty, optional }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Default)]
        pub struct $name {
            /// Name, labels and other metadata.
            pub metadata: crate::meta::ObjectMeta,
            /// What the user asks for.
            pub spec: $spec,
            /// What the system observed.
            pub status: Option<$status>,
        }
        resource!(@impl $name, $spec, 5, (status: Option<$status>), (|this: &Self, s: &mut S::SerializeStruct| {
            match &this.status {
                Some(status) => s.serialize_field("status", status),
                None => s.skip_field("status"),
            }
        }));
    };
    (@impl $name:ident, $spec:ty, $len:literal, ($($status:ident : $status_ty:ty)?), ($write_status:expr)) => {
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                use serde::ser::SerializeStruct as _;
                let mut s = serializer.serialize_struct(stringify!($name), $len)?;
                s.serialize_field("kind", stringify!($name))?;
                s.serialize_field("apiVersion", crate::resource::API_VERSION)?;
                s.serialize_field("metadata", &self.metadata)?;
                s.serialize_field("spec", &self.spec)?;
                let write_status: fn(&Self, &mut S::SerializeStruct) -> Result<(), S::Error> = $write_status;
                write_status(self, &mut s)?;
                s.end()
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                #[derive(Default, serde::Deserialize)]
                #[serde(default)]
                struct Wire {
                    #[serde(rename = "kind")]
                    _kind: Option<String>,
                    #[serde(rename = "apiVersion")]
                    _api_version: Option<String>,
                    #[serde(deserialize_with = "crate::go::nullable")]
                    metadata: crate::meta::ObjectMeta,
                    #[serde(deserialize_with = "crate::go::nullable")]
                    spec: $spec,
                    $(
                        #[serde(deserialize_with = "crate::go::nullable")]
                        $status: $status_ty,
                    )?
                }
                let wire = Wire::deserialize(deserializer)?;
                Ok(Self { metadata: wire.metadata, spec: wire.spec, $($status: wire.$status)? })
            }
        }

        impl crate::resource::Resource for $name {
            const KIND: crate::kind::Kind = crate::kind::Kind::$name;

            fn metadata(&self) -> &crate::meta::ObjectMeta {
                &self.metadata
            }

            fn metadata_mut(&mut self) -> &mut crate::meta::ObjectMeta {
                &mut self.metadata
            }

            fn into_any(self) -> crate::registry::AnyResource {
                crate::registry::AnyResource::$name(Box::new(self))
            }

            fn from_any(any: crate::registry::AnyResource) -> Option<Self> {
                match any {
                    crate::registry::AnyResource::$name(object) => Some(*object),
                    _ => None,
                }
            }

            fn from_any_ref(any: &crate::registry::AnyResource) -> Option<&Self> {
                match any {
                    crate::registry::AnyResource::$name(object) => Some(object),
                    _ => None,
                }
            }
        }
    };
}
