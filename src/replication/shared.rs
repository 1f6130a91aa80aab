//! What all partitions of a broker have in common.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;

use super::isr::{LiveBrokers, Proposal};
use super::partition::Partition;
use super::waiters::Ticket;
use crate::config::BrokerConfig;
use crate::log::{Executor, LogManager};
use crate::metadata::Image;
use crate::telemetry::Metrics;
use crate::time::{Clock, LeaseDeadline};
use crate::types::{BrokerId, TopicPartition};

/// What the partitions need to know of the broker's configuration.
#[derive(Debug, Clone, Copy)]
pub struct ReplicasConfig {
    pub node_id: BrokerId,
    /// `max.incremental.fetch.session.cache.slots`
    pub fetch_session_slots: usize,
    /// `replica.lag.time.max.ms`
    pub lag_time_max: Duration,
    /// `replica.fetch.wait.max.ms`: how long a follower is silent at most where all is well.
    pub fetch_wait_max: Duration,
}

impl ReplicasConfig {
    /// With Kafka's defaults.
    pub fn new(node_id: BrokerId) -> Self {
        Self {
            node_id,
            fetch_session_slots: 1000,
            lag_time_max: Duration::from_secs(30),
            fetch_wait_max: Duration::from_millis(500),
        }
    }
}

impl From<&BrokerConfig> for ReplicasConfig {
    fn from(config: &BrokerConfig) -> Self {
        let wait_ms = config.replica_fetch_wait_max_ms.unsigned_abs();
        Self {
            node_id: config.node_id,
            fetch_session_slots: config.fetch_session_slots,
            lag_time_max: Duration::from_millis(config.replica_lag_time_max_ms.unsigned_abs()),
            fetch_wait_max: Duration::from_millis(u64::from(wait_ms)),
        }
    }
}

/// What all partitions of a broker have in common.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) config: ReplicasConfig,
    pub(super) logs: Arc<LogManager>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) clock: Arc<dyn Clock>,
    /// Counts partitions whose log directory failed: a fetcher looks again which of its own did.
    pub(super) failures: Arc<AtomicU64>,
    /// Until when this broker may count on its registration.
    pub(super) lease: Arc<LeaseDeadline>,
    pub(super) outbox: Outbox,
    /// Instead of the log directories' own: tests and simulations.
    executor: Option<Arc<dyn Executor>>,
    tickets: AtomicU64,
    /// Create revision of this broker's registration, as the image last had it.
    broker_epoch: AtomicI64,
    live: RwLock<Arc<LiveBrokers>>,
}

impl Shared {
    pub(super) fn new(
        config: ReplicasConfig,
        logs: Arc<LogManager>,
        metrics: Arc<Metrics>,
        clock: Arc<dyn Clock>,
        executor: Option<Arc<dyn Executor>>,
    ) -> Self {
        Self {
            config,
            logs,
            metrics,
            clock,
            failures: Arc::default(),
            lease: Arc::default(),
            outbox: Outbox::default(),
            executor,
            tickets: AtomicU64::new(0),
            broker_epoch: AtomicI64::new(0),
            live: RwLock::default(),
        }
    }

    pub(super) fn node_id(&self) -> BrokerId {
        self.config.node_id
    }

    pub(super) fn ticket(&self) -> Ticket {
        self.tickets.fetch_add(1, Ordering::Relaxed)
    }

    /// Where the disk work of a partition runs.
    pub(super) fn executor(&self, partition: &TopicPartition) -> Arc<dyn Executor> {
        let own = self.executor.as_ref().map(Arc::clone);
        own.unwrap_or_else(|| self.logs.executor(partition))
    }

    pub(super) fn broker_epoch(&self) -> i64 {
        self.broker_epoch.load(Ordering::Acquire)
    }

    pub(super) fn live(&self) -> Arc<LiveBrokers> {
        Arc::clone(&self.live.read())
    }

    /// Takes over who is registered. True if this broker is under another registration than before: what
    /// it was given to lead before is no longer its own. A registration that is gone leaves everything as
    /// it was: what the ISR commits goes on until somebody else was elected.
    pub(super) fn see_brokers(&self, image: &Image) -> bool {
        let brokers = image.brokers.values();
        let live = brokers.filter(|broker| !broker.shutting_down);
        let live: LiveBrokers = live.map(|broker| (broker.id, broker.epoch)).collect();
        if **self.live.read() != live {
            *self.live.write() = Arc::new(live);
        }
        let Some(own) = image.brokers.get(&self.node_id()) else {
            return false;
        };
        self.broker_epoch.swap(own.epoch, Ordering::AcqRel) != own.epoch
    }
}

/// What the publisher of in-sync replicas has to look at.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    proposals: Mutex<Vec<(Weak<Partition>, Proposal)>>,
    /// Partitions that want to be looked at before long: not all of their replicas are in sync, a change
    /// is under way, or the disk has failed.
    unsettled: Mutex<BTreeSet<TopicPartition>>,
    pub(super) added: Notify,
}

impl Outbox {
    /// At most one of each partition is under way at a time.
    pub(super) fn put(&self, partition: &Arc<Partition>, proposal: Proposal) {
        let entry = (Arc::downgrade(partition), proposal);
        self.proposals.lock().push(entry);
        self.added.notify_one();
    }

    pub(super) fn take(&self) -> Vec<(Arc<Partition>, Proposal)> {
        let taken = std::mem::take(&mut *self.proposals.lock());
        let there = taken.into_iter();
        there
            .filter_map(|(partition, proposal)| Some((partition.upgrade()?, proposal)))
            .collect()
    }

    pub(super) fn watch(&self, partition: &TopicPartition) {
        let mut unsettled = self.unsettled.lock();
        if !unsettled.contains(partition) {
            unsettled.insert(partition.clone());
            self.added.notify_one();
        }
    }

    /// Nobody wants to be looked at.
    pub(super) fn is_quiet(&self) -> bool {
        self.unsettled.lock().is_empty()
    }

    /// Takes those that are watched; who is to be watched on says so again.
    pub(super) fn take_unsettled(&self) -> BTreeSet<TopicPartition> {
        std::mem::take(&mut *self.unsettled.lock())
    }
}
