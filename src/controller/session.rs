//! This broker's place in the cluster: its registration under a lease, the controller's seat, the
//! cluster's id.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio_util::sync::CancellationToken;

use super::admin::block_after;
use crate::registry::value::{BrokerValue, ControllerValue, EndpointValue, encode};
use crate::registry::{Compare, Key, KeyValue, LeaseId, Op, Registry, RegistryError, Revision};
use crate::time::Clock;
use crate::types::{BrokerId, ProducerId, TopicId};

/// How often the place of a predecessor is looked at while its lease runs out.
const POLL: Duration = Duration::from_millis(250);
/// How soon a lease is kept alive again after it did not work: the lease may be about to run out.
const RETRY: Duration = Duration::from_millis(500);

/// What a broker registers, and for how long it may be silent.
#[derive(Debug, Clone)]
pub struct SessionConfig {
    pub broker: BrokerId,
    /// As clients of each listener are told.
    pub endpoints: Vec<EndpointValue>,
    pub rack: Option<String>,
    /// `cluster.id`; `None`: whatever the registry says.
    pub cluster_id: Option<String>,
    /// The id of a cluster whose registry is new, where none is configured: what the data directories
    /// say. `None`: a random one.
    pub new_cluster_id: Option<String>,
    /// A lease's time. In the embedded registry no lease outlives the process, and it can be long.
    pub ttl: Duration,
    /// How often the lease is kept alive; well below its time.
    pub heartbeat: Duration,
    /// Ends the lease at a clean stop, for others to see; of no use in the embedded registry.
    pub revoke_at_stop: bool,
}

/// Why a broker has no place in the cluster.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    #[error(transparent)]
    Registry(#[from] RegistryError),
    #[error("node.id={0}: another broker with this id is running; give each broker its own")]
    Taken(BrokerId),
    #[error(
        "cluster.id={configured}: the registry belongs to the cluster {stored}; use its data \
         directory or its etcd.prefix, not another's"
    )]
    OtherCluster { configured: String, stored: String },
}

/// A registered broker.
#[derive(Debug)]
pub struct Session {
    registry: Arc<dyn Registry>,
    config: SessionConfig,
    cluster_id: String,
    lease: LeaseId,
    epoch: Revision,
    producer_ids: Range<ProducerId>,
}

/// What is there before a registration.
struct Found {
    cluster_id: Option<KeyValue>,
    broker: Option<KeyValue>,
    controller: Option<KeyValue>,
    controller_epoch: Option<KeyValue>,
    producer_ids: Option<KeyValue>,
}

impl Session {
    /// Registers the broker, as one transaction: with it go the cluster's id if it has none yet, the
    /// controller's seat if it is free, and a first block of producer ids. Waits for the lease of a
    /// predecessor with the same id to run out, but not longer than that takes.
    pub async fn start(
        registry: Arc<dyn Registry>,
        config: SessionConfig,
        clock: &dyn Clock,
    ) -> Result<Self, SessionError> {
        // Twice: etcd may round a lease up, and lengthens all of them when its leader changes.
        let give_up = clock.now() + config.ttl * 2;
        let lease = registry.lease_grant(config.ttl).await?;
        loop {
            let found = Found::read(registry.as_ref(), config.broker).await?;
            if found.broker.is_some() {
                if clock.now() >= give_up {
                    return Err(SessionError::Taken(config.broker));
                }
                tokio::time::sleep(POLL).await;
                registry.lease_keep_alive(lease).await?;
                continue;
            }
            let cluster_id = found.cluster_id(&config)?;
            let (producer_ids, compares, ops) = found.register(&config, &cluster_id, lease)?;
            let outcome = registry.txn(compares, ops).await?;
            if outcome.succeeded {
                return Ok(Self {
                    registry,
                    config,
                    cluster_id,
                    lease,
                    epoch: outcome.revision,
                    producer_ids,
                });
            }
        }
    }

    /// 22 characters of base64url.
    pub fn cluster_id(&self) -> &str {
        &self.cluster_id
    }

    /// The create revision of the registration.
    pub fn broker_epoch(&self) -> Revision {
        self.epoch
    }

    /// For [`super::Admin::new`].
    pub fn producer_ids(&self) -> Range<ProducerId> {
        self.producer_ids.clone()
    }

    /// Removes what interrupted creations of topics left: partitions whose topic is not there. To be
    /// called before this broker takes requests, where it is the only one that could be creating.
    pub async fn remove_orphans(&self, topics: &[TopicId]) -> Result<(), RegistryError> {
        for topic in topics {
            tracing::info!(%topic, "removing the partitions of a topic that was never finished");
            let prefix = Key::partitions_of(*topic);
            self.registry
                .txn(vec![], vec![Op::DeletePrefix { prefix }])
                .await?;
        }
        Ok(())
    }

    /// Keeps the registration alive until `stop`; registers anew should it be lost.
    pub async fn run(mut self, clock: Arc<dyn Clock>, stop: CancellationToken) {
        let interval = self.config.heartbeat;
        let mut wait = interval;
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                () = tokio::time::sleep(wait) => {}
            }
            wait = interval;
            match self.registry.lease_keep_alive(self.lease).await {
                Ok(()) => {}
                Err(RegistryError::LeaseNotFound) => {
                    tracing::warn!("this broker's lease has run out; it registers anew");
                    let registry = Arc::clone(&self.registry);
                    match Self::start(registry, self.config.clone(), clock.as_ref()).await {
                        Ok(session) => self = session,
                        Err(error) => {
                            tracing::error!(%error, "cannot register");
                            wait = interval.min(RETRY);
                        }
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot keep this broker's lease alive");
                    wait = interval.min(RETRY);
                }
            }
        }
        if self.config.revoke_at_stop
            && let Err(error) = self.registry.lease_revoke(self.lease).await
        {
            tracing::warn!(%error, "cannot end this broker's lease; it will run out");
        }
    }
}

impl Found {
    async fn read(registry: &dyn Registry, broker: BrokerId) -> Result<Self, RegistryError> {
        let get = |key: Key| async move { registry.get(&key.to_string()).await };
        Ok(Self {
            cluster_id: get(Key::ClusterId).await?,
            broker: get(Key::Broker(broker)).await?,
            controller: get(Key::Controller).await?,
            controller_epoch: get(Key::ControllerEpoch).await?,
            producer_ids: get(Key::ProducerIdsNext).await?,
        })
    }

    fn cluster_id(&self, config: &SessionConfig) -> Result<String, SessionError> {
        let configured = config.cluster_id.as_deref();
        let stored = match &self.cluster_id {
            Some(entry) => String::from_utf8_lossy(&entry.value).into_owned(),
            None => {
                let id = configured.or(config.new_cluster_id.as_deref());
                return Ok(id.map_or_else(new_cluster_id, str::to_owned));
            }
        };
        match configured {
            Some(configured) if configured != stored => Err(SessionError::OtherCluster {
                configured: configured.to_owned(),
                stored,
            }),
            _ => Ok(stored),
        }
    }

    #[allow(clippy::type_complexity)]
    fn register(
        &self,
        config: &SessionConfig,
        cluster_id: &str,
        lease: LeaseId,
    ) -> Result<(Range<ProducerId>, Vec<Compare>, Vec<Op>), RegistryError> {
        let as_found = |key: Key, entry: &Option<KeyValue>| Compare::ModRevision {
            key: key.into(),
            revision: entry.as_ref().map_or(0, |entry| entry.mod_revision),
        };
        let put = |key: Key, value: Bytes, lease: LeaseId| Op::Put {
            key: key.into(),
            value,
            lease,
        };
        let (producer_ids, ids_compare, ids_op) = block_after(self.producer_ids.as_ref())?;
        let mut compares = vec![
            as_found(Key::ClusterId, &self.cluster_id),
            as_found(Key::Broker(config.broker), &self.broker),
            ids_compare,
        ];
        let registration = BrokerValue {
            endpoints: config.endpoints.clone(),
            rack: config.rack.clone(),
            incarnation: new_cluster_id(),
            shutting_down: false,
        };
        let mut ops = vec![
            put(Key::Broker(config.broker), encode(&registration), lease),
            ids_op,
        ];
        if self.cluster_id.is_none() {
            let id = Bytes::copy_from_slice(cluster_id.as_bytes());
            ops.push(put(Key::ClusterId, id, 0));
        }
        if self.controller.is_none() {
            let controller = ControllerValue {
                broker: config.broker.0,
            };
            compares.push(as_found(Key::Controller, &self.controller));
            compares.push(as_found(Key::ControllerEpoch, &self.controller_epoch));
            ops.push(put(Key::Controller, encode(&controller), lease));
            let before = self.controller_epoch.as_ref().and_then(|entry| {
                let text = std::str::from_utf8(&entry.value).ok()?;
                text.parse::<i64>().ok()
            });
            let epoch = before.unwrap_or_default().saturating_add(1);
            ops.push(put(Key::ControllerEpoch, Bytes::from(epoch.to_string()), 0));
        }
        Ok((producer_ids, compares, ops))
    }
}

/// A random id as Kafka writes it.
fn new_cluster_id() -> String {
    TopicId(*uuid::Uuid::new_v4().as_bytes()).to_string()
}

#[cfg(test)]
mod tests;
