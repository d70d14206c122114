//! Stored form of values: the bytes under each key in etcd and SQLite.
//!
//! Writes exactly what upstream's encoder writes (see [`calico_api::gojson`]); reads any JSON of the same
//! meaning, ignoring fields it does not know.
//! Invariants: reading never panics; what was written reads back to the same value, except for metadata that
//! lives outside the value (`resourceVersion`, `selfLink`) and for fractions of seconds in times.
//!
//! Policies of a tier keep their name a second time, in an annotation that no reader outside this module sees.

use calico_api::{AnyResource, Kind, ObjectMeta, StoredBlockAffinity, gojson};
use serde::{Deserialize, Serialize};

use crate::key::Key;
use crate::names::shown_policy_name;
use crate::value::Value;

mod ipam;

#[cfg(test)]
mod tests;

/// Annotation in which stored objects keep metadata that the store's own keys cannot hold.
pub const METADATA_ANNOTATION: &str = "projectcalico.org/metadata";

/// Longest piece of a faulty value that an error carries, in bytes.
const SHOWN_VALUE: usize = 1024;

/// Why a value has no bytes, or bytes no value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// The stored bytes are not a value of the key's type.
    #[error("failed to parse value under key={key}; value={value}: {reason}")]
    ParsingDatastoreEntry {
        /// Path of the entry.
        key: String,
        /// The stored bytes as text, cut if very long.
        value: String,
        /// What is wrong with them.
        reason: String,
    },
    /// The value is not of the type that belongs to the key, or the key is never stored.
    #[error("{key} does not hold a value of this type")]
    WrongType {
        /// The key.
        key: String,
    },
    /// The value cannot be written.
    #[error("cannot write value under key={key}: {reason}")]
    Encode {
        /// Path of the entry.
        key: String,
        /// What the encoder says.
        reason: String,
    },
}

/// The bytes to be stored for `value` under `key`.
///
/// Errors: the value's type does not belong to the key, or the key is one that is never stored.
pub fn encode_value(key: &Key, value: &Value) -> Result<Vec<u8>, CodecError> {
    match (key, value) {
        (Key::Resource(k), Value::Resource(object)) if object.kind() == k.kind => {
            let mut object = (**object).clone();
            let policy = keeps_name_in_annotation(k.kind);
            prepare_metadata(object.metadata_mut(), policy).map_err(|error| unwritable(key, &error))?;
            match &object {
                AnyResource::BlockAffinity(object) => write(key, &StoredBlockAffinity(object)),
                object => write(key, object),
            }
        }
        (Key::Block(_), Value::Block(block)) => write(key, &ipam::Block(block)),
        (Key::BlockAffinity { .. }, Value::BlockAffinity(affinity)) => {
            write(key, &ipam::AffinityWire::from(affinity))
        }
        (Key::IpamHandle(_), Value::IpamHandle(handle)) => write(key, &ipam::HandleWire::from(&**handle)),
        (Key::IpamConfig, Value::IpamConfig(config)) => write(key, &ipam::ConfigWire::from(config)),
        (Key::ReadyFlag, Value::Bool(ready)) => write(key, ready),
        (key, Value::Text(text)) if holds_text(key) => Ok(text.as_bytes().to_vec()),
        (key, Value::Json(json)) if holds_json(key) => write(key, &**json),
        _ => Err(CodecError::WrongType { key: key.to_string() }),
    }
}

/// The value that `bytes` stored under `key` stand for.
///
/// Errors: the bytes are not of the key's type, or the key is one that is never stored.
pub fn decode_value(key: &Key, bytes: &[u8]) -> Result<Value, CodecError> {
    let result = match key {
        Key::Resource(k) => decode_resource(k.kind, bytes),
        Key::Block(_) => ipam::read_block(bytes).map(|block| Value::Block(block.into())),
        Key::BlockAffinity { .. } => ipam::read_affinity(bytes).map(Value::BlockAffinity),
        Key::IpamHandle(_) => ipam::read_handle(bytes).map(|handle| Value::IpamHandle(handle.into())),
        Key::IpamConfig => ipam::read_config(bytes).map(Value::IpamConfig),
        Key::ReadyFlag => read(bytes).map(Value::Bool),
        key if holds_text(key) => match std::str::from_utf8(bytes) {
            Ok(text) => Ok(Value::Text(text.into())),
            Err(error) => Err(error.to_string()),
        },
        key if holds_json(key) => read::<serde_json::Value>(bytes).map(|json| Value::Json(json.into())),
        _ => return Err(CodecError::WrongType { key: key.to_string() }),
    };
    result.map_err(|reason| {
        let text = String::from_utf8_lossy(bytes);
        let end = text.floor_char_boundary(SHOWN_VALUE);
        CodecError::ParsingDatastoreEntry { key: key.to_path(), value: text[..end].to_owned(), reason }
    })
}

/// True for the kinds whose stored form keeps the name in [`METADATA_ANNOTATION`].
pub fn keeps_name_in_annotation(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::NetworkPolicy
            | Kind::GlobalNetworkPolicy
            | Kind::StagedNetworkPolicy
            | Kind::StagedGlobalNetworkPolicy
    )
}

/// What the annotation of a policy says.
#[derive(Serialize, Deserialize, Default)]
#[serde(default)]
struct NameAnnotation {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
}

fn prepare_metadata(metadata: &mut ObjectMeta, policy: bool) -> Result<(), serde_json::Error> {
    metadata.resource_version.clear();
    metadata.self_link.clear();
    if policy {
        let name = NameAnnotation { name: Some(metadata.name.clone()) };
        metadata.annotations.insert(METADATA_ANNOTATION.to_owned(), gojson::to_string(&name)?);
    }
    Ok(())
}

fn decode_resource(kind: Kind, bytes: &[u8]) -> Result<Value, String> {
    let mut object = AnyResource::from_json(kind, bytes).map_err(|error| error.to_string())?;
    if keeps_name_in_annotation(kind) {
        let tier = tier_of(&object).to_owned();
        let metadata = object.metadata_mut();
        let noted = match metadata.annotations.remove(METADATA_ANNOTATION) {
            Some(text) => {
                let note: NameAnnotation = serde_json::from_str(&text).map_err(|error| {
                    format!("CRD annotation {METADATA_ANNOTATION:?} contained invalid JSON: {error}")
                })?;
                note.name.filter(|name| !name.is_empty())
            }
            None => None,
        };
        metadata.name = match noted {
            Some(name) => name,
            None => shown_policy_name(&metadata.name, &tier).to_owned(),
        };
    }
    Ok(Value::Resource(object.into()))
}

fn tier_of(object: &AnyResource) -> &str {
    match object {
        AnyResource::NetworkPolicy(p) => &p.spec.tier,
        AnyResource::GlobalNetworkPolicy(p) => &p.spec.tier,
        _ => "",
    }
}

fn holds_text(key: &Key) -> bool {
    matches!(
        key,
        Key::GlobalConfig(_)
            | Key::HostConfig { .. }
            | Key::HostIp(_)
            | Key::GlobalBgpConfig(_)
            | Key::NodeBgpConfig { .. }
    )
}

fn holds_json(key: &Key) -> bool {
    matches!(
        key,
        Key::IpamHost(_)
            | Key::HostEndpointStatus { .. }
            | Key::WorkloadEndpointStatus { .. }
            | Key::ActiveStatusReport { .. }
            | Key::LastStatusReport { .. }
    )
}

fn write<T: Serialize + ?Sized>(key: &Key, value: &T) -> Result<Vec<u8>, CodecError> {
    gojson::to_vec(value).map_err(|error| unwritable(key, &error))
}

fn unwritable(key: &Key, error: &serde_json::Error) -> CodecError {
    CodecError::Encode { key: key.to_path(), reason: error.to_string() }
}

fn read<'de, T: Deserialize<'de>>(bytes: &'de [u8]) -> Result<T, String> {
    serde_json::from_slice(bytes).map_err(|error| error.to_string())
}
