//! What a broker has seen of its registry: by it one is recognised that was restored from the past, however
//! far others have written on in it since.

use serde::{Deserialize, Serialize};

use super::{Registry, RegistryError, Revision, Scan};

/// Behind all that was seen before it: this key was written then.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeenChange {
    /// Empty: nothing was seen.
    pub key: String,
    /// The key's mod revision.
    pub revision: Revision,
}

/// What is kept of it on the broker's disks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    pub cluster_id: String,
    /// Behind `/cluster/imported`: a registry that an export was read into counts its own revisions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub imported: Option<String>,
    /// The newest.
    pub revision: Revision,
    pub change: SeenChange,
    /// The revision of this broker's last registration.
    pub registration: Revision,
}

impl SeenChange {
    /// `Foreign` where the registry's history has something else in this place. A registry that has
    /// compacted its history so far is believed.
    pub async fn check(&self, registry: &dyn Registry) -> Result<(), RegistryError> {
        if self.key.is_empty() {
            return Ok(());
        }
        let scan = Scan {
            prefix: &self.key,
            from: "",
            limit: 1,
            revision: self.revision,
            changed_since: 0,
            keys_only: true,
        };
        let page = match registry.scan(scan).await {
            Ok(page) => page,
            Err(RegistryError::Compacted { .. }) => return Ok(()),
            Err(error) => return Err(error),
        };
        let found = page.entries.first().filter(|entry| entry.key == self.key);
        if found.is_some_and(|entry| entry.mod_revision == self.revision) {
            return Ok(());
        }
        Err(RegistryError::Foreign(format!(
            "it has another history than this broker knows, in which {} was written at revision {}: etcd \
             was restored from an older snapshot, and others have written to it since",
            self.key, self.revision
        )))
    }
}

impl Seen {
    /// `Foreign` where a registry of this cluster, now at `revision`, does not go on from what was seen.
    /// `own`: the mod revision of `/brokers-meta/<id>` of this broker.
    pub async fn check(
        &self,
        registry: &dyn Registry,
        revision: Revision,
        own: Revision,
    ) -> Result<(), RegistryError> {
        let foreign = |what: &str, found: Revision, seen: Revision| {
            Err(RegistryError::Foreign(format!(
                "{what} {found}, and this broker has seen {seen}: etcd was restored from an older snapshot"
            )))
        };
        if revision < self.revision {
            return foreign("it is at revision", revision, self.revision);
        }
        if own < self.registration {
            return foreign(
                "its record of this broker is of revision",
                own,
                self.registration,
            );
        }
        self.change.check(registry).await
    }
}
