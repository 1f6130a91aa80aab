//! This broker's place in the cluster: its registration under a lease, the controller's seat, the
//! cluster's id.

mod found;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

pub(super) use self::found::own_key;
use self::found::{Found, Plan, random_id};
use super::machine::forget;
use super::writer::write_changes;
use crate::metadata::{Resolver, read_image};
use crate::registry::value::{BrokerMetaValue, BrokerValue, EndpointValue, decode, encode};
use crate::registry::{
    BrokerLease, Key, KeyValue, LeaseId, Op, Registry, RegistryError, Revision, Seen,
};
use crate::time::Clock;
use crate::types::rules::{Rule, holds};
use crate::types::{BrokerId, ProducerId, TopicId};

/// How often the place of a predecessor is looked at while its lease runs out.
const POLL: Duration = Duration::from_millis(250);
/// How soon a lease is kept alive again after it did not work: the lease may be about to run out.
const RETRY: Duration = Duration::from_millis(500);
/// How often an outage of the registry is told.
const TELL_EVERY: Duration = Duration::from_secs(30);

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
    /// There are partitions in the data directories: a registry that is new does not know them.
    pub has_data: bool,
    /// `directory.id` of the data directories.
    pub directories: Vec<String>,
    /// A lease's time. In the embedded registry no lease outlives the process, and it can be long.
    pub ttl: Duration,
    /// How often the lease is kept alive; well below its time.
    pub heartbeat: Duration,
    /// The registry is outside of this process, and other brokers use it too. Then it must know what
    /// counts for topics.
    pub shared: Option<Resolver>,
    /// The incarnation that stopped cleanly last, as the log directories have it (R10).
    pub stopped_incarnation: Option<String>,
    /// What this broker has seen of registries in earlier lives.
    pub seen: Vec<Seen>,
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
    #[error(
        "the registry has the key layout {found}, and this version of Ottla knows up to {known}; start \
         the version that wrote it, or a later one"
    )]
    NewerLayout { found: String, known: i32 },
    #[error(
        "the registry is empty, but the log directories hold partitions of the cluster {0}: etcd was \
         wiped, or etcd.endpoints or etcd.prefix are not those of the cluster. Mend that; or bring the \
         metadata back with `ottla registry import`"
    )]
    NoCluster(String),
    #[error(
        "the registry does not know the cluster {0} any more: etcd was wiped, or is another one. This \
         broker goes on with what it knows, and stays out of it"
    )]
    Wiped(String),
    #[error(
        "{0}. Bring the newer state back. Or, to go on from the older one and without what came since, \
         remove .ottla_registry from the log directories of all brokers and start them again"
    )]
    Older(RegistryError),
}

/// A registered broker.
#[derive(Debug)]
pub struct Session {
    shared: Arc<Shared>,
    cluster_id: String,
    imported: Option<String>,
    producer_ids: Range<ProducerId>,
}

/// The part of a session that others use while it runs.
#[derive(Debug, Clone)]
pub struct SessionHandle(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    registry: Arc<dyn Registry>,
    config: SessionConfig,
    clock: Arc<dyn Clock>,
    incarnation: String,
    lease: Arc<BrokerLease>,
    lease_id: AtomicI64,
    /// Revision of the last registration; 0: none yet.
    registered_at: AtomicI64,
    shutting_down: AtomicBool,
    stopped_cleanly: AtomicBool,
}

/// What a registration comes to.
struct Registered {
    cluster_id: String,
    imported: Option<String>,
    producer_ids: Range<ProducerId>,
}

impl Session {
    /// Registers the broker, as one transaction: with it go the cluster's id if it has none yet, the
    /// controller's seat if it is free, and a first block of producer ids. Waits for the lease of a
    /// predecessor with the same id to run out, but not longer than that takes.
    pub async fn start(
        registry: Arc<dyn Registry>,
        config: SessionConfig,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, SessionError> {
        let shared = Arc::new(Shared {
            registry,
            config,
            lease: Arc::new(BrokerLease::new(Arc::clone(&clock))),
            clock,
            incarnation: random_id(),
            lease_id: AtomicI64::new(0),
            registered_at: AtomicI64::new(0),
            shutting_down: AtomicBool::new(false),
            stopped_cleanly: AtomicBool::new(false),
        });
        let registered = shared.register(None).await?;
        Ok(Self {
            shared,
            cluster_id: registered.cluster_id,
            imported: registered.imported,
            producer_ids: registered.producer_ids,
        })
    }

    /// 22 characters of base64url.
    pub fn cluster_id(&self) -> &str {
        &self.cluster_id
    }

    /// The import that made the registry, if one did.
    pub fn imported(&self) -> Option<&str> {
        self.imported.as_deref()
    }

    /// The create revision of the registration.
    pub fn broker_epoch(&self) -> Revision {
        self.shared.lease.broker_epoch()
    }

    /// For [`super::Admin::new`].
    pub fn producer_ids(&self) -> Range<ProducerId> {
        self.producer_ids.clone()
    }

    pub fn handle(&self) -> SessionHandle {
        SessionHandle(Arc::clone(&self.shared))
    }

    /// Removes what interrupted creations of topics left: partitions whose topic is not there. To be
    /// called before this broker takes requests, where it is the only one that could be creating.
    pub async fn remove_orphans(&self, topics: &[TopicId]) -> Result<(), RegistryError> {
        for topic in topics {
            tracing::info!(%topic, "removing the partitions of a topic that was never finished");
            let prefix = Key::partitions_of(*topic);
            self.shared
                .registry
                .txn(vec![], vec![Op::DeletePrefix { prefix }])
                .await?;
        }
        Ok(())
    }

    /// Keeps the registration alive until `stop`; registers anew should it be lost.
    pub async fn run(self, stop: CancellationToken) {
        let shared = &self.shared;
        let interval = shared.config.heartbeat;
        let mut wait = interval;
        let mut told = None;
        loop {
            tokio::select! {
                biased; // a simulation repeats itself
                () = stop.cancelled() => break,
                () = tokio::time::sleep(wait) => {}
            }
            let Err(error) = self.beat(told.is_some()).await else {
                if told.take().is_some() {
                    tracing::info!("the registry answers again, and this broker is registered");
                }
                wait = interval;
                continue;
            };
            wait = interval.min(RETRY);
            let now = shared.clock.now();
            if told.is_none_or(|at| now >= at + TELL_EVERY) {
                told = Some(now);
                tracing::warn!(%error, "cannot keep this broker's registration alive; trying again");
            }
        }
        shared.leave().await;
    }

    /// One renewal, and a look at whether the registration is still there (R12). `told`: an operator knows
    /// that something is wrong.
    async fn beat(&self, told: bool) -> Result<(), SessionError> {
        let shared = &self.shared;
        match shared.renew().await {
            Ok(()) if shared.is_registered().await? => return Ok(()),
            Ok(()) => {
                tracing::warn!("somebody removed this broker's registration; it registers anew");
                shared.lease.lost();
                let id = shared.lease_id.load(Ordering::Acquire);
                shared.revoke(id).await?; // the controller's seat may hang on it too
            }
            Err(RegistryError::LeaseNotFound) => {
                if !told {
                    tracing::warn!("this broker's lease has run out; it registers anew");
                }
                shared.lease.lost();
            }
            Err(error) => return Err(error.into()),
        }
        shared.register(Some(&self.cluster_id)).await?;
        Ok(())
    }
}

impl SessionHandle {
    /// The revision at which this broker registered last.
    pub fn registered_at(&self) -> Revision {
        self.0.registered_at.load(Ordering::Acquire)
    }

    pub(super) fn lease_id(&self) -> LeaseId {
        self.0.lease_id.load(Ordering::Acquire)
    }

    /// What the broker may believe of its lease.
    pub fn lease(&self) -> Arc<BrokerLease> {
        Arc::clone(&self.0.lease)
    }

    /// Tells the controller that this broker wants to stop; it stays registered.
    pub async fn announce_shutdown(&self) -> Result<(), RegistryError> {
        let shared = &self.0;
        shared.shutting_down.store(true, Ordering::Release);
        let registration = shared.registration();
        let op = Op::Put {
            key: shared.key(),
            value: encode(&registration),
            lease: shared.lease_id.load(Ordering::Acquire),
        };
        let mine = vec![own_key(shared.config.broker, shared.lease.broker_epoch())];
        shared.registry.txn(mine, vec![op]).await?;
        Ok(())
    }

    /// How this life of the broker is called.
    pub fn incarnation(&self) -> &str {
        &self.0.incarnation
    }

    /// What the broker has written is on disk and it will write no more: the next start takes its
    /// replicas for whole (R10). To be called before the session is stopped.
    pub fn stopped_cleanly(&self) {
        self.0.stopped_cleanly.store(true, Ordering::Release);
    }
}

impl Shared {
    fn key(&self) -> String {
        Key::Broker(self.config.broker).into()
    }

    fn registration(&self) -> BrokerValue {
        BrokerValue {
            endpoints: self.config.endpoints.clone(),
            rack: self.config.rack.clone(),
            incarnation: self.incarnation.clone(),
            shutting_down: self.shutting_down.load(Ordering::Acquire),
        }
    }

    fn meta(&self) -> BrokerMetaValue {
        BrokerMetaValue {
            endpoints: self.config.endpoints.clone(),
            rack: self.config.rack.clone(),
            incarnation: self.incarnation.clone(),
            stopped_cleanly: self.stopped_cleanly.load(Ordering::Acquire),
            directories: self.config.directories.clone(),
        }
    }

    /// `again`: the cluster that this broker was registered in before.
    async fn register(&self, again: Option<&str>) -> Result<Registered, SessionError> {
        let config = &self.config;
        // Twice: etcd may round a lease up, and lengthens all of them when its leader changes.
        let give_up = self.clock.now() + config.ttl * 2;
        let mut sent = self.lease.sending();
        let lease = self.granted(self.registry.lease_grant(config.ttl).await)?;
        let mut remembered = again.is_some();
        loop {
            let found = Found::read(self.registry.as_ref(), config.broker).await?;
            let cluster_id = found.check(config, again)?;
            self.check_seen(&found, &cluster_id).await?;
            if let Some(there) = &found.broker {
                if self.is_mine(there) {
                    if there.lease == lease {
                        // The transaction of before was done, though nobody said so.
                        let epoch = there.create_revision;
                        let registered = found.registered(cluster_id, 0..0);
                        return Ok(self.registered(lease, sent, epoch, registered));
                    }
                    self.revoke(there.lease).await?;
                } else if self.clock.now() >= give_up {
                    let _ = self.revoke(lease).await; // it would run out by itself
                    return Err(SessionError::Taken(config.broker));
                }
                tokio::time::sleep(POLL).await;
                sent = self.lease.sending();
                self.registry.lease_keep_alive(lease).await?;
                continue;
            }
            if !remembered {
                remembered = self.forget(&found).await?;
                if !remembered {
                    continue; // it registers once there is nothing left to leave
                }
            }
            let plan = Plan {
                config,
                lease,
                registration: self.registration(),
                meta: self.meta(),
                takes_ids: again.is_none(),
            };
            let (ids, compares, ops) = found.register(&plan, &cluster_id)?;
            let outcome = self.registry.txn(compares, ops).await?;
            if outcome.succeeded {
                let registered = found.registered(cluster_id, ids);
                return Ok(self.registered(lease, sent, outcome.revision, registered));
            }
        }
    }

    fn registered(
        &self,
        lease: LeaseId,
        sent: Duration,
        epoch: Revision,
        registered: Registered,
    ) -> Registered {
        self.lease_id.store(lease, Ordering::Release);
        self.registered_at.store(epoch, Ordering::Release);
        self.lease.registered(epoch);
        self.lease.renewed(sent, self.config.ttl);
        if self.config.shared.is_none() {
            self.lease.never_ends();
        }
        registered
    }

    /// A registry that was restored from the past is not believed: what it does not know would be lost.
    async fn check_seen(&self, found: &Found, cluster_id: &str) -> Result<(), SessionError> {
        let registry = self.registry.as_ref();
        let registered_at = self.registered_at.load(Ordering::Acquire);
        found
            .check_seen(registry, &self.config.seen, cluster_id, registered_at)
            .await
            .map_err(|error| match error {
                error @ RegistryError::Foreign(_) => SessionError::Older(error),
                error => error.into(),
            })
    }

    /// R10: leaves the ISRs and ELRs of what may not have outlived the last stop, while nobody can add
    /// this broker to any. Returns whether that is done.
    async fn forget(&self, found: &Found) -> Result<bool, SessionError> {
        let (Some(resolver), Some(last)) = (&self.config.shared, found.last()) else {
            return Ok(true);
        };
        let has = |id: &String| self.config.directories.contains(id);
        let everything = !last.directories.iter().all(has);
        // The disk says so too where the registry could not be told.
        let stopped = self.config.stopped_incarnation.as_ref();
        let cleanly = last.stopped_cleanly || stopped == Some(&last.incarnation);
        if cleanly && !everything || !holds(Rule::R10) {
            return Ok(true);
        }
        let image = read_image(self.registry.as_ref(), resolver).await?;
        let changes = forget(&image, self.config.broker, everything);
        if changes.is_empty() {
            return Ok(true);
        }
        tracing::warn!(
            partitions = changes.len(),
            directory_is_missing = everything,
            "the last stop was not clean: this broker leaves the in-sync replicas of these partitions"
        );
        let unregistered = vec![own_key(self.config.broker, 0)];
        write_changes(self.registry.as_ref(), &unregistered, &changes).await?;
        Ok(false) // look again: some may have changed meanwhile
    }

    fn is_mine(&self, there: &KeyValue) -> bool {
        decode::<BrokerValue>(&there.value).is_ok_and(|value| value.incarnation == self.incarnation)
    }

    async fn renew(&self) -> Result<(), RegistryError> {
        let sent = self.lease.sending();
        let id = self.lease_id.load(Ordering::Acquire);
        self.granted(self.registry.lease_keep_alive(id).await)?;
        self.lease.renewed(sent, self.config.ttl);
        Ok(())
    }

    /// Notes where the registry did not answer.
    fn granted<T>(&self, answer: Result<T, RegistryError>) -> Result<T, RegistryError> {
        if let Err(RegistryError::Unavailable(_)) = &answer {
            self.lease.unanswered();
        }
        answer
    }

    async fn is_registered(&self) -> Result<bool, RegistryError> {
        let found = self.registry.get(&self.key()).await?;
        let epoch = self.lease.broker_epoch();
        Ok(found.is_some_and(|entry| entry.create_revision == epoch))
    }

    /// That it is gone already is fine.
    async fn revoke(&self, lease: LeaseId) -> Result<(), RegistryError> {
        match self.registry.lease_revoke(lease).await {
            Err(RegistryError::LeaseNotFound) => Ok(()),
            outcome => outcome,
        }
    }

    async fn leave(&self) {
        if self.config.shared.is_none() {
            return; // the lease ends with the process
        }
        let last = async {
            if self.stopped_cleanly.load(Ordering::Acquire) {
                let op = Op::Put {
                    key: Key::BrokerMeta(self.config.broker).into(),
                    value: encode(&self.meta()),
                    lease: 0,
                };
                let mine = vec![own_key(self.config.broker, self.lease.broker_epoch())];
                self.registry.txn(mine, vec![op]).await?;
            }
            self.lease.lost();
            self.revoke(self.lease_id.load(Ordering::Acquire)).await
        };
        if let Err(error) = last.await {
            tracing::warn!(%error, "cannot end this broker's lease; it will run out");
        }
    }
}

#[cfg(test)]
mod tests;
