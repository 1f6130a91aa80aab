//! What is in the registry before a registration, and what the registration writes.

use std::ops::Range;

use bytes::Bytes;

use super::{Registered, SessionConfig, SessionError};
use crate::controller::admin::block_after;
use crate::controller::seat::seat_ops;
use crate::registry::key::LAYOUT;
use crate::registry::value::{BrokerMetaValue, BrokerValue, decode, encode};
use crate::registry::{
    Compare, Key, KeyValue, LeaseId, Op, Registry, RegistryError, Revision, Seen,
};
use crate::types::{BrokerId, ProducerId, TopicId};

/// More than there are under `/cluster/`.
const CLUSTER_KEYS: usize = 100;

/// What is there before a registration.
pub(super) struct Found {
    /// The registry's.
    revision: Revision,
    layout: Option<KeyValue>,
    cluster_id: Option<KeyValue>,
    imported: Option<KeyValue>,
    pub(super) broker: Option<KeyValue>,
    meta: Option<KeyValue>,
    controller: Option<KeyValue>,
    controller_epoch: Option<KeyValue>,
    producer_ids: Option<KeyValue>,
}

/// What a registration is to write.
pub(super) struct Plan<'a> {
    pub(super) config: &'a SessionConfig,
    pub(super) lease: LeaseId,
    pub(super) registration: BrokerValue,
    pub(super) meta: BrokerMetaValue,
    /// A block of producer ids goes with it.
    pub(super) takes_ids: bool,
}

impl Found {
    pub(super) async fn read(
        registry: &dyn Registry,
        broker: BrokerId,
    ) -> Result<Self, RegistryError> {
        let get = |key: Key| async move { registry.get(&key.to_string()).await };
        let cluster = registry.range("/cluster/", "", CLUSTER_KEYS, 0).await?;
        let of_cluster = |key: Key| {
            let key = key.to_string();
            cluster
                .entries
                .iter()
                .find(|entry| entry.key == key)
                .cloned()
        };
        Ok(Self {
            revision: cluster.revision,
            layout: get(Key::Layout).await?,
            cluster_id: of_cluster(Key::ClusterId),
            imported: of_cluster(Key::Imported),
            broker: get(Key::Broker(broker)).await?,
            meta: get(Key::BrokerMeta(broker)).await?,
            controller: get(Key::Controller).await?,
            controller_epoch: get(Key::ControllerEpoch).await?,
            producer_ids: get(Key::ProducerIdsNext).await?,
        })
    }

    /// The cluster's id; an error if this broker must not register here. `again`: the cluster that it
    /// was registered in before.
    pub(super) fn check(
        &self,
        config: &SessionConfig,
        again: Option<&str>,
    ) -> Result<String, SessionError> {
        if let Some(entry) = &self.layout {
            let found = text(entry);
            if !found.parse::<i32>().is_ok_and(|layout| layout <= LAYOUT) {
                return Err(SessionError::NewerLayout {
                    found,
                    known: LAYOUT,
                });
            }
        }
        let stored = self.cluster_id.as_ref().map(text);
        if let Some(before) = again {
            return match stored {
                Some(stored) if stored == before => Ok(stored),
                _ => Err(SessionError::Wiped(before.to_owned())),
            };
        }
        let configured = config.cluster_id.as_deref();
        let of_data = config.new_cluster_id.as_deref();
        match (stored, configured) {
            (Some(stored), Some(configured)) if stored != configured => {
                Err(SessionError::OtherCluster {
                    configured: configured.to_owned(),
                    stored,
                })
            }
            (Some(stored), _) => Ok(stored),
            (None, _) if config.shared.is_some() && config.has_data => {
                let id = of_data.or(configured).unwrap_or("?");
                Err(SessionError::NoCluster(id.to_owned()))
            }
            (None, configured) => Ok(configured.or(of_data).map_or_else(random_id, str::to_owned)),
        }
    }

    /// `Foreign` where the registry does not go on from what this broker has seen, or from how it registered
    /// in this life (at `registered_at`).
    pub(super) async fn check_seen(
        &self,
        registry: &dyn Registry,
        seen: &[Seen],
        cluster_id: &str,
        registered_at: Revision,
    ) -> Result<(), RegistryError> {
        let own = self.meta.as_ref().map_or(0, |entry| entry.mod_revision);
        if own < registered_at {
            return Err(RegistryError::Foreign(format!(
                "its record of this broker is of revision {own}, and this broker registered at {registered_at}: \
                 etcd was restored from an older snapshot"
            )));
        }
        let imported = self.imported.as_ref().map(text);
        for seen in seen {
            if seen.cluster_id == cluster_id && seen.imported == imported {
                seen.check(registry, self.revision, own).await?;
            }
        }
        Ok(())
    }

    pub(super) fn registered(
        &self,
        cluster_id: String,
        producer_ids: Range<ProducerId>,
    ) -> Registered {
        Registered {
            cluster_id,
            imported: self.imported.as_ref().map(text),
            producer_ids,
        }
    }

    /// The last registration of this broker.
    pub(super) fn last(&self) -> Option<BrokerMetaValue> {
        decode(&self.meta.as_ref()?.value).ok()
    }

    #[allow(clippy::type_complexity)]
    pub(super) fn register(
        &self,
        plan: &Plan<'_>,
        cluster_id: &str,
    ) -> Result<(Range<ProducerId>, Vec<Compare>, Vec<Op>), RegistryError> {
        let broker = plan.config.broker;
        let mut compares = vec![
            as_found(Key::ClusterId, self.cluster_id.as_ref()),
            as_found(Key::Broker(broker), self.broker.as_ref()),
            as_found(Key::BrokerMeta(broker), self.meta.as_ref()),
        ];
        let registration = encode(&plan.registration);
        let mut ops = vec![
            put(Key::Broker(broker), registration, plan.lease),
            put(Key::BrokerMeta(broker), encode(&plan.meta), 0),
        ];
        let mut producer_ids = 0..0;
        if plan.takes_ids {
            let (ids, compare, op) = block_after(self.producer_ids.as_ref())?;
            producer_ids = ids;
            compares.push(compare);
            ops.push(op);
        }
        if self.layout.is_none() {
            compares.push(as_found(Key::Layout, None));
            ops.push(put(Key::Layout, Bytes::from(LAYOUT.to_string()), 0));
        }
        if self.cluster_id.is_none() {
            let id = Bytes::copy_from_slice(cluster_id.as_bytes());
            ops.push(put(Key::ClusterId, id, 0));
        }
        if self.controller.is_none() && !plan.registration.shutting_down {
            let (seat, taken) = seat_ops(broker, plan.lease, self.controller_epoch.as_ref());
            compares.extend(seat);
            ops.extend(taken);
        }
        Ok((producer_ids, compares, ops))
    }
}

fn as_found(key: Key, entry: Option<&KeyValue>) -> Compare {
    Compare::ModRevision {
        key: key.into(),
        revision: entry.map_or(0, |entry| entry.mod_revision),
    }
}

fn put(key: Key, value: Bytes, lease: LeaseId) -> Op {
    Op::Put {
        key: key.into(),
        value,
        lease,
    }
}

fn text(entry: &KeyValue) -> String {
    String::from_utf8_lossy(&entry.value).into_owned()
}

/// R2: holds while the registration of `epoch` does; 0: while there is none.
pub(in crate::controller) fn own_key(broker: BrokerId, epoch: Revision) -> Compare {
    Compare::CreateRevision {
        key: Key::Broker(broker).into(),
        revision: epoch,
    }
}

/// As Kafka writes random ids.
pub(super) fn random_id() -> String {
    TopicId(*uuid::Uuid::new_v4().as_bytes()).to_string()
}
