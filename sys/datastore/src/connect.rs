//! From settings to a backend.

use std::path::Path;
use std::sync::Arc;

use crate::config::{CalicoApiConfig, StoreChoice, StoreKind};
use crate::etcd::{EtcdOptions, EtcdRaw};
use crate::sqlite::{SqliteOptions, SqliteRaw};
use crate::{Backend, Store, StoreError};

/// Makes the backend that `choice` names, with the settings of `config`.
///
/// Files that the settings name (certificates and keys) are read here. Nothing else is touched: the first
/// operation opens the database or connects, and its error says which store was chosen and why.
pub fn connect(config: &CalicoApiConfig, choice: &StoreChoice) -> Result<Arc<dyn Backend>, StoreError> {
    match &choice.kind {
        StoreKind::Sqlite(path) => Ok(sqlite(path, &choice.why)),
        StoreKind::Etcd => Ok(Arc::new(Store::new(EtcdRaw::new(EtcdOptions::from_config(config)?, &choice.why)?))),
        StoreKind::Kubernetes => Err(StoreError::Unreachable {
            store: format!("kubernetes ({})", choice.why),
            reason: "this version has no Kubernetes datastore; set datastoreType to etcdv3 with etcdEndpoints, or to \
                     sqlite"
                .into(),
        }),
    }
}

fn sqlite(path: &Path, why: &str) -> Arc<dyn Backend> {
    Arc::new(Store::new(SqliteRaw::new(path, why, SqliteOptions::default())))
}
