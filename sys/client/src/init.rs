//! Making a store ready: cluster information and the built-in tiers.

use calico_api::{ClusterInformation, DefaultAction, Tier};
use calico_datastore::StoreError;

use crate::{Client, ClientError};

/// Built-in tiers: name, order, whether the end of the tier passes.
const TIERS: [(&str, f64, bool); 3] =
    [("default", 1_000_000.0, false), ("kube-admin", 1_000.0, true), ("kube-baseline", 10_000_000.0, true)];

/// Most rounds against other writers that initialise the same store.
const TRIES: usize = 100;

impl Client {
    /// Makes the store ready for use; safe to call by many at once and again and again, and writes nothing when
    /// nothing is missing.
    ///
    /// `version` (if not empty) becomes the cluster's Calico version; each word of the comma-separated
    /// `cluster_type` that is missing is added. All steps run; the first error is returned.
    pub async fn ensure_initialized(&self, version: &str, cluster_type: &str) -> Result<(), ClientError> {
        let mut first = self.backend().ensure_initialized().await.map_err(ClientError::from).err();
        let information = self.ensure_information(version, cluster_type).await;
        first = first.or(information.err());
        for (name, order, pass) in TIERS {
            first = first.or(self.ensure_tier(name, order, pass).await.err());
        }
        first.map_or(Ok(()), Err)
    }

    async fn ensure_information(&self, version: &str, cluster_type: &str) -> Result<(), ClientError> {
        for _ in 0..TRIES {
            let outcome = match self.cluster_information().get("", "default").await {
                Err(error) if error.is_not_found() => {
                    let mut info = ClusterInformation::default();
                    info.metadata.name = "default".into();
                    info.spec.cluster_guid = new_guid();
                    info.spec.calico_version = version.into();
                    info.spec.cluster_type = cluster_type.into();
                    info.spec.datastore_ready = Some(true);
                    Box::pin(self.cluster_information().create(info)).await
                }
                Err(error) => return Err(error),
                Ok(mut info) => {
                    let before = info.spec.clone();
                    if !version.is_empty() {
                        info.spec.calico_version = version.into();
                    }
                    if info.spec.cluster_guid.is_empty() {
                        info.spec.cluster_guid = new_guid();
                    }
                    info.spec.datastore_ready.get_or_insert(true);
                    add_words(&mut info.spec.cluster_type, cluster_type);
                    if info.spec == before {
                        return Ok(());
                    }
                    Box::pin(self.cluster_information().update(info)).await
                }
            };
            match outcome {
                Ok(_) => return Ok(()),
                // Another caller was faster: look again at what it made.
                Err(e) if e.is_already_exists() || e.is_conflict() => {}
                Err(e) => return Err(e),
            }
        }
        Err(StoreError::UpdateConflict { id: "ClusterInformation(default)".into(), existing: None }.into())
    }

    async fn ensure_tier(&self, name: &str, order: f64, pass: bool) -> Result<(), ClientError> {
        match self.tiers().get("", name).await {
            Err(error) if error.is_not_found() => {}
            other => return other.map(|_| ()),
        }
        let mut tier = Tier::default();
        tier.metadata.name = name.into();
        tier.spec.order = Some(order);
        tier.spec.default_action = Some(if pass { DefaultAction::Pass } else { DefaultAction::Deny });
        match Box::pin(self.tiers().create(tier)).await {
            Ok(_) => Ok(()),
            Err(e) if e.is_already_exists() => Ok(()),
            Err(ClientError::Store(StoreError::Unauthorized(reason))) => {
                tracing::warn!(tier = name, error = %reason, "no permission to create a built-in tier");
                Ok(())
            }
            Err(e) => Err(e),
        }
    }
}

/// 32 hex digits of a random UUID.
fn new_guid() -> String {
    uuid::Uuid::new_v4().simple().to_string()
}

/// Appends each comma-separated word that `list` lacks.
fn add_words(list: &mut String, words: &str) {
    for word in words.split(',').filter(|w| !w.is_empty()) {
        if !list.split(',').any(|w| w == word) {
            if !list.is_empty() && !list.ends_with(',') {
                list.push(',');
            }
            list.push_str(word);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::add_words;

    #[test]
    fn words_are_added_once_and_in_order() {
        let cases = [
            ("", "k8s", "k8s"),
            ("k8s", "bgp,k8s", "k8s,bgp"),
            ("a,", "kdd", "a,kdd"),
            ("a", "", "a"),
            ("a", ",b,,c", "a,b,c"),
        ];
        for (list, words, want) in cases {
            let mut got = list.to_owned();
            add_words(&mut got, words);
            assert_eq!(got, want, "{list:?} + {words:?}");
        }
    }
}
