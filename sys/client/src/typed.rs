//! Typed access: [`Resources`] of one Rust type over [`Objects`](crate::Objects) of its kind.

use std::marker::PhantomData;

use calico_api::{AnyResource, Resource};
use calico_model::Revision;

use crate::objects::{DeleteOptions, ObjectEvent, ObjectWatch, Objects, Select};
use crate::{Client, ClientError};

/// Operations on the objects of one type.
#[derive(Debug, Clone, Copy)]
pub struct Resources<'a, R> {
    objects: Objects<'a>,
    _type: PhantomData<fn() -> R>,
}

/// Objects of one type and the revision that they were read at.
#[derive(Debug, Clone, PartialEq)]
pub struct List<R> {
    /// Objects, sorted by namespace and name.
    pub items: Vec<R>,
    /// Where a watch goes on from.
    pub revision: Revision,
}

/// A change of an object of one type.
#[derive(Debug, Clone, PartialEq)]
pub enum Event<R> {
    /// New.
    Added(R),
    /// Changed: the object now and, where known, before.
    Modified(R, Option<R>),
    /// Gone: the last content.
    Deleted(R),
    /// One entry could not be read, or the watch broke and ends.
    Error(ClientError),
}

/// A running watch of objects of one type.
#[derive(Debug)]
pub struct TypedWatch<R>(ObjectWatch, PhantomData<fn() -> R>);

impl<R: Resource> TypedWatch<R> {
    /// The next change; `None` once the watch has ended.
    pub async fn next(&mut self) -> Option<Event<R>> {
        let event = match self.0.next().await? {
            ObjectEvent::Added(object) => typed(object).map(Event::Added),
            ObjectEvent::Modified(new, old) => {
                typed(new).map(|new| Event::Modified(new, old.and_then(R::from_any)))
            }
            ObjectEvent::Deleted(object) => typed(object).map(Event::Deleted),
            ObjectEvent::Error(error) => Err(error),
        };
        Some(event.unwrap_or_else(Event::Error))
    }
}

impl<'a, R: Resource> Resources<'a, R> {
    pub(crate) fn new(client: &'a Client) -> Self {
        Self { objects: Objects::new(client, R::KIND), _type: PhantomData }
    }

    /// Stores a new object; see [`Objects::create`].
    pub async fn create(&self, object: R) -> Result<R, ClientError> {
        typed(self.objects.create(object.into_any()).await?)
    }

    /// Replaces an object; see [`Objects::update`].
    pub async fn update(&self, object: R) -> Result<R, ClientError> {
        typed(self.objects.update(object.into_any()).await?)
    }

    /// Replaces an object's status; see [`Objects::update_status`].
    pub async fn update_status(&self, object: R) -> Result<R, ClientError> {
        typed(self.objects.update_status(object.into_any()).await?)
    }

    /// Reads one object; the namespace is ignored for cluster-scoped kinds.
    pub async fn get(&self, namespace: &str, name: &str) -> Result<R, ClientError> {
        typed(self.objects.get(namespace, name).await?)
    }

    /// Reads the objects that `select` names.
    pub async fn list(&self, select: &Select<'_>) -> Result<List<R>, ClientError> {
        let list = self.objects.list(select).await?;
        let items = list.items.into_iter().map(typed).collect::<Result<_, _>>()?;
        Ok(List { items, revision: list.revision })
    }

    /// Watches the objects that `select` names.
    pub async fn watch(&self, select: &Select<'_>) -> Result<TypedWatch<R>, ClientError> {
        Ok(TypedWatch(self.objects.watch(select).await?, PhantomData))
    }

    /// Removes an object and returns what it was.
    pub async fn delete(
        &self,
        namespace: &str,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<R, ClientError> {
        typed(self.objects.delete(namespace, name, options).await?)
    }

    /// Creates the object, or changes the stored one with `change` and replaces it; conflicts are retried.
    /// `change` gets the stored object, or `object` if there was none.
    pub async fn modify(
        &self,
        namespace: &str,
        name: &str,
        mut change: impl FnMut(&mut R),
    ) -> Result<R, ClientError> {
        const TRIES: usize = 20;
        let mut tries = 0;
        loop {
            tries += 1;
            let outcome = match self.get(namespace, name).await {
                Ok(mut stored) => {
                    let before = stored.clone();
                    change(&mut stored);
                    if stored == before {
                        return Ok(stored);
                    }
                    self.update(stored).await
                }
                Err(error) if error.is_not_found() => {
                    let mut object = R::default();
                    object.metadata_mut().name = name.to_owned();
                    object.metadata_mut().namespace = namespace.to_owned();
                    change(&mut object);
                    self.create(object).await
                }
                Err(error) => return Err(error),
            };
            match outcome {
                Err(e) if tries < TRIES && (e.is_conflict() || e.is_already_exists() || e.is_not_found()) => {
                }
                outcome => return outcome,
            }
        }
    }
}

fn typed<R: Resource>(object: AnyResource) -> Result<R, ClientError> {
    let id = format!("{}({})", object.kind().name(), object.name());
    R::from_any(object).ok_or(ClientError::WrongKind { id })
}
