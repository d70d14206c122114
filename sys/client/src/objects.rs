//! Objects of any kind: the operations behind every typed accessor.
//!
//! The rules of each kind (defaults, validation, what must exist) are in [`crate::rules`]; this module keeps
//! the order in which they run and the rules on metadata that hold for all.

use std::sync::Arc;

use calico_api::{AnyResource, Kind};
use calico_datastore::{StoreError, WatchEvent};
use calico_model::{Key, KvPair, ListOptions, Revision, Value};
use calico_schema::Op;
use calico_schema::validate::prepare;

use crate::{Client, ClientError, rules};

/// A list of objects and the revision that it was read at.
#[derive(Debug, Clone, PartialEq)]
pub struct ObjectList {
    /// Objects, sorted by namespace and name.
    pub items: Vec<AnyResource>,
    /// Where a watch goes on from.
    pub revision: Revision,
}

/// What a list or watch is about. An empty name or namespace means all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Select<'a> {
    /// Only this namespace.
    pub namespace: &'a str,
    /// Only this name, or with `prefix` names that start so.
    pub name: &'a str,
    /// Whether `name` is a prefix.
    pub prefix: bool,
    /// As of this revision.
    pub revision: Option<Revision>,
}

/// How to delete an object.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DeleteOptions {
    /// Only at this revision.
    pub resource_version: Option<Revision>,
    /// Only with this UID.
    pub uid: Option<String>,
    /// Take what belongs to the object along (a tier's policies).
    pub recursive: bool,
}

/// A change of an object.
#[derive(Debug, Clone, PartialEq)]
pub enum ObjectEvent {
    /// New.
    Added(AnyResource),
    /// Changed: the object now and, where known, before.
    Modified(AnyResource, Option<AnyResource>),
    /// Gone: the last content.
    Deleted(AnyResource),
    /// One entry could not be read, or the watch broke and ends.
    Error(ClientError),
}

/// A running watch of objects.
#[derive(Debug)]
pub struct ObjectWatch(calico_datastore::Watch);

/// Operations on the objects of one kind.
#[derive(Debug, Clone, Copy)]
pub struct Objects<'a> {
    client: &'a Client,
    kind: Kind,
}

// === impl ObjectWatch ===

impl ObjectWatch {
    /// The next change; `None` once the watch has ended.
    pub async fn next(&mut self) -> Option<ObjectEvent> {
        loop {
            let event = match self.0.next().await? {
                WatchEvent::Added(kv) => shown(kv).map(ObjectEvent::Added),
                WatchEvent::Modified { new, old } => {
                    shown(new).map(|new| ObjectEvent::Modified(new, old.and_then(|kv| shown(kv).ok())))
                }
                WatchEvent::Deleted(kv) => shown(kv).map(ObjectEvent::Deleted),
                WatchEvent::Bookmark(_) => continue,
                WatchEvent::Error(error) => Err(error.into()),
            };
            return Some(event.unwrap_or_else(ObjectEvent::Error));
        }
    }
}

// === impl Objects ===

impl<'a> Objects<'a> {
    pub(crate) fn new(client: &'a Client, kind: Kind) -> Self {
        Self { client, kind }
    }

    /// Stores a new object. It needs a name and no resource version; UID and creation time are filled in.
    /// Returns what was stored.
    pub async fn create(&self, mut object: AnyResource) -> Result<AnyResource, ClientError> {
        self.own_kind(&object)?;
        let meta = object.metadata();
        if meta.name.is_empty() && !rules::names_itself(self.kind) {
            let reason = if meta.generate_name.is_empty() {
                "field must be set for a Create request"
            } else {
                "field must be set for a Create request (GenerateName is not supported)"
            };
            return Err(ClientError::field("Metadata.Name", Some(""), reason));
        }
        if !meta.resource_version.is_empty() {
            let value = meta.resource_version.clone();
            return Err(ClientError::field(
                "Metadata.ResourceVersion",
                Some(&value),
                "field must not be set for a Create request",
            ));
        }
        self.need_namespace(&meta.namespace)?;
        let meta = object.metadata_mut();
        if meta.creation_timestamp.is_none() {
            meta.creation_timestamp = Some(self.client.now());
        }
        if meta.uid.is_empty() {
            meta.uid = uuid::Uuid::new_v4().to_string();
        }
        rules::before_create(self.client, &mut object).await?;
        prepare(&mut object, Op::Create)?;
        rules::check_create(self.client, &object).await?;
        let stored = self.client.backend().create(to_kv(object)?).await?;
        shown(stored)
    }

    /// Replaces an object. It needs the resource version, UID and creation time of the stored one.
    pub async fn update(&self, mut object: AnyResource) -> Result<AnyResource, ClientError> {
        self.own_kind(&object)?;
        self.need_identity(&object)?;
        rules::before_update(self.client, &mut object).await?;
        prepare(&mut object, Op::Update)?;
        let stored = self.client.backend().update(to_kv(object)?).await?;
        shown(stored)
    }

    /// Replaces an object's status. Stores without a status of its own replace the object whole.
    pub async fn update_status(&self, object: AnyResource) -> Result<AnyResource, ClientError> {
        self.own_kind(&object)?;
        self.need_identity(&object)?;
        let stored = self.client.backend().update(to_kv(object)?).await?;
        shown(stored)
    }

    /// Reads one object.
    pub async fn get(&self, namespace: &str, name: &str) -> Result<AnyResource, ClientError> {
        self.get_at(namespace, name, None).await
    }

    /// Reads one object as of a revision.
    pub async fn get_at(
        &self,
        namespace: &str,
        name: &str,
        revision: Option<&Revision>,
    ) -> Result<AnyResource, ClientError> {
        self.need_namespace(namespace)?;
        shown(self.client.backend().get(&self.key(namespace, name), revision).await?)
    }

    /// Reads the objects that `select` names.
    pub async fn list(&self, select: &Select<'_>) -> Result<ObjectList, ClientError> {
        let list = self.client.backend().list(&self.options(select, true), select.revision.as_ref()).await?;
        let items = list.items.into_iter().map(shown).collect::<Result<_, _>>()?;
        Ok(ObjectList { items, revision: list.revision })
    }

    /// Watches the objects that `select` names; without a revision everything there is comes first.
    pub async fn watch(&self, select: &Select<'_>) -> Result<ObjectWatch, ClientError> {
        let options = self.options(select, false);
        Ok(ObjectWatch(self.client.backend().watch(&options, select.revision.as_ref()).await?))
    }

    /// Removes an object and returns what it was.
    pub async fn delete(
        &self,
        namespace: &str,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<AnyResource, ClientError> {
        self.need_namespace(namespace)?;
        if let Some(uid) = &options.uid {
            let stored = self.get(namespace, name).await?;
            if stored.metadata().uid != *uid {
                return Err(
                    StoreError::UpdateConflict { id: self.id(namespace, name), existing: None }.into()
                );
            }
        }
        let options = rules::before_delete(self.client, self.kind, namespace, name, options).await?;
        let key = self.key(namespace, name);
        if options.recursive {
            let mut removed = self.client.backend().delete_recursive(&key).await?;
            return match removed.pop() {
                Some(kv) => shown(kv),
                None => Err(StoreError::DoesNotExist { id: self.id(namespace, name) }.into()),
            };
        }
        shown(self.client.backend().delete(&key, options.resource_version.as_ref()).await?)
    }

    /// Key of an object of this kind.
    pub fn key(&self, namespace: &str, name: &str) -> Key {
        let namespace = if self.kind.info().namespaced() { namespace } else { "" };
        Key::resource(self.kind, namespace, name)
    }

    fn id(&self, namespace: &str, name: &str) -> String {
        match self.key(namespace, name) {
            Key::Resource(key) => key.to_string(),
            key => key.to_path(),
        }
    }

    fn options(&self, select: &Select<'_>, with_prefix: bool) -> ListOptions {
        let some = |text: &str| (!text.is_empty()).then(|| text.into());
        let prefix = select.prefix && with_prefix && !select.name.is_empty();
        ListOptions::Resource {
            kind: self.kind,
            namespace: if self.kind.info().namespaced() { some(select.namespace) } else { None },
            name: if select.prefix && !with_prefix { None } else { some(select.name) },
            prefix,
        }
    }

    fn own_kind(&self, object: &AnyResource) -> Result<(), ClientError> {
        if object.kind() == self.kind {
            return Ok(());
        }
        let reason = format!("must be {}", self.kind.name());
        Err(ClientError::field("Kind", Some(object.kind().name()), &reason))
    }

    fn need_namespace(&self, namespace: &str) -> Result<(), ClientError> {
        if self.kind.info().namespaced() && namespace.is_empty() {
            return Err(ClientError::field(
                "Metadata.Namespace",
                None,
                "namespace is not specified on namespaced resource",
            ));
        }
        Ok(())
    }

    fn need_identity(&self, object: &AnyResource) -> Result<(), ClientError> {
        const REASON: &str = "field must be set for an Update request";
        let meta = object.metadata();
        if meta.resource_version.is_empty() {
            return Err(ClientError::field("Metadata.ResourceVersion", Some(""), REASON));
        }
        if meta.creation_timestamp.is_none() {
            let zero = "0001-01-01 00:00:00 +0000 UTC";
            return Err(ClientError::field("Metadata.CreationTimestamp", Some(zero), REASON));
        }
        if meta.uid.is_empty() {
            return Err(ClientError::field("Metadata.UID", Some(""), REASON));
        }
        self.need_namespace(&meta.namespace)
    }
}

/// The entry that stores `object`; its resource version becomes the entry's revision.
pub(crate) fn to_kv(mut object: AnyResource) -> Result<KvPair, ClientError> {
    let namespaced = object.kind().info().namespaced();
    let meta = object.metadata_mut();
    let revision = Revision::from(std::mem::take(&mut meta.resource_version).as_str());
    meta.self_link.clear();
    if !namespaced {
        meta.namespace.clear();
    }
    let key = Key::resource(object.kind(), object.namespace(), object.name());
    Ok(KvPair::new(key, Value::Resource(Arc::new(object))).at(revision))
}

/// The object of an entry as users see it: with its resource version and what readers may rely on.
pub(crate) fn shown(kv: KvPair) -> Result<AnyResource, ClientError> {
    let path = kv.key.to_path();
    let Some(Value::Resource(object)) = kv.value else {
        return Err(ClientError::WrongKind { id: path });
    };
    let mut object = Arc::unwrap_or_clone(object);
    object.metadata_mut().resource_version = kv.revision.to_string();
    calico_schema::defaults::apply_on_read(&mut object);
    Ok(object)
}
