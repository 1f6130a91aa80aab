//! What the broker counts as it goes. Whoever counts holds its handle; nothing is looked up twice.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};

use super::instruments::{Counter, Gauge, Histogram, Rate};
use super::names::{API_NAMES, FETCH_FOLLOWER};
use super::radar::Radar;
use crate::types::{ErrorCode, ListenerName, TopicName};

/// In place of an API's key: Fetch of a follower.
pub const FETCH_FOLLOWER_KEY: i16 = i16::MIN;

/// What is counted of one topic. A partition holds that of its topic.
#[derive(Debug, Default)]
pub struct TopicMetrics {
    pub messages_in: Counter,
    pub bytes_in: Counter,
    pub bytes_out: Counter,
    pub bytes_rejected: Counter,
    pub failed_produce_requests: Counter,
    pub failed_fetch_requests: Counter,
    pub total_produce_requests: Counter,
    pub total_fetch_requests: Counter,
    pub replication_bytes_in: Counter,
    pub replication_bytes_out: Counter,
    pub produce_message_conversions: Counter,
    pub fetch_message_conversions: Counter,
}

impl TopicMetrics {
    /// In the order of [`super::names::TOPIC_COUNTERS`].
    pub(super) fn counters(&self) -> [&Counter; 12] {
        [
            &self.messages_in,
            &self.bytes_in,
            &self.bytes_out,
            &self.bytes_rejected,
            &self.failed_produce_requests,
            &self.failed_fetch_requests,
            &self.total_produce_requests,
            &self.total_fetch_requests,
            &self.replication_bytes_in,
            &self.replication_bytes_out,
            &self.produce_message_conversions,
            &self.fetch_message_conversions,
        ]
    }
}

/// Versions that are counted apart; later ones count as the last.
const VERSIONS: usize = 24;

/// What is counted of one API.
#[derive(Debug)]
pub struct RequestMetrics {
    pub(super) name: &'static str,
    pub(super) by_version: [Counter; VERSIONS],
    /// From the last byte of the request to the last byte of the response.
    pub total_time: Histogram,
    /// Waiting for its turn.
    pub request_queue_time: Histogram,
    /// In the handler.
    pub local_time: Histogram,
    /// Waiting for other brokers, the flush, or bytes.
    pub remote_time: Histogram,
    /// Waiting for the answers before it on the connection.
    pub response_queue_time: Histogram,
    pub response_send_time: Histogram,
    pub(super) no_errors: Counter,
    pub(super) errors: Mutex<BTreeMap<ErrorCode, u64>>,
}

impl RequestMetrics {
    fn new(name: &'static str) -> Self {
        Self {
            name,
            by_version: [const { Counter(AtomicU64::new(0)) }; VERSIONS],
            total_time: Histogram::default(),
            request_queue_time: Histogram::default(),
            local_time: Histogram::default(),
            remote_time: Histogram::default(),
            response_queue_time: Histogram::default(),
            response_send_time: Histogram::default(),
            no_errors: Counter::default(),
            errors: Mutex::default(),
        }
    }

    /// Counts a request of this version.
    pub fn request(&self, version: i16) {
        let index = usize::try_from(version).unwrap_or_default();
        if let Some(counter) = self.by_version.get(index.min(VERSIONS - 1)) {
            counter.inc();
        }
    }

    /// Counts parts of answers without an error.
    pub fn no_error(&self, count: u64) {
        self.no_errors.add(count);
    }

    /// Counts a part of an answer with this error, or without one.
    pub fn error(&self, error: ErrorCode) {
        if error.is_none() {
            self.no_errors.inc();
        } else {
            *self.errors.lock().entry(error).or_default() += 1;
        }
    }

    /// Counts one request's time.
    pub fn times(&self, times: RequestTimes) {
        self.total_time.record(times.total());
        self.request_queue_time.record(times.request_queue);
        self.local_time.record(times.local);
        self.remote_time.record(times.remote);
        self.response_queue_time.record(times.response_queue);
        self.response_send_time.record(times.response_send);
    }
}

/// Where the time of one request went.
#[derive(Debug, Clone, Copy, Default)]
pub struct RequestTimes {
    pub request_queue: Duration,
    pub local: Duration,
    pub remote: Duration,
    pub response_queue: Duration,
    pub response_send: Duration,
}

impl RequestTimes {
    fn total(&self) -> Duration {
        self.request_queue + self.local + self.remote + self.response_queue + self.response_send
    }
}

/// What is counted of one listener.
#[derive(Debug, Default)]
pub struct ListenerMetrics {
    pub connections: Gauge,
    pub accepted: Counter,
    pub closed: Counter,
    /// Closed by a limit: max.connections and its relatives.
    pub refused: Counter,
    pub(super) creation_rate: Rate,
    pub(super) close_rate: Rate,
}

impl ListenerMetrics {
    /// A connection was accepted.
    pub fn opened(&self) {
        self.accepted.inc();
        self.connections.add(1);
    }

    /// A connection that [`ListenerMetrics::opened`] counted is gone.
    pub fn closed(&self) {
        self.closed.inc();
        self.connections.add(-1);
    }
}

/// What goes to the registry and comes back.
#[derive(Debug, Default)]
pub struct RegistryTraffic {
    pub requests: Counter,
    /// Answers, and changes that a watch told of.
    pub answers: Counter,
    /// Of keys and values.
    pub bytes_out: Counter,
    pub bytes_in: Counter,
    /// In transactions that took place.
    pub keys_written: Counter,
    /// Changes that a watch told of.
    pub keys_heard: Counter,
    /// Of transactions that took place.
    pub commit_time: Histogram,
    pub(super) write_rate: Rate,
    pub(super) hear_rate: Rate,
    commit_rate: Rate,
    commit_us_rate: Rate,
}

impl RegistryTraffic {
    /// Of what was written lately, in milliseconds.
    pub(super) fn commit_ms_average(&self, now: Instant) -> f64 {
        let summary = self.commit_time.summary(now);
        let us = u64::try_from(summary.sum.as_micros()).unwrap_or(u64::MAX);
        let us = self.commit_us_rate.per_second(now, us);
        match self.commit_rate.per_second(now, summary.count) {
            0.0 => 0.0,
            count => us / count / 1_000.0,
        }
    }
}

/// What the broker as a whole is doing, by Kafka's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BrokerState {
    NotRunning = 0,
    Starting = 1,
    Recovery = 2,
    Running = 3,
    PendingControlledShutdown = 6,
    ShuttingDown = 7,
}

/// Handles of every metric that is counted as it happens. What is known anyway (the partitions, the
/// groups) is read when somebody looks: [`super::ScrapeSource`].
#[derive(Debug)]
pub struct Metrics {
    topics: RwLock<BTreeMap<TopicName, Arc<TopicMetrics>>>,
    /// What deleted topics have counted, so that sums never fall.
    pub(super) deleted_topics: TopicMetrics,
    requests: Box<[OnceLock<RequestMetrics>]>,
    listeners: RwLock<BTreeMap<ListenerName, Arc<ListenerMetrics>>>,
    /// Who the clients are.
    pub radar: Arc<Radar>,
    state: AtomicI64,
    /// Time of one sync of one partition.
    pub log_flush_time: Histogram,
    pub isr_shrinks: Counter,
    pub isr_expands: Counter,
    pub failed_isr_updates: Counter,
    pub unclean_leader_elections: Counter,
    /// Time of writing an election down.
    pub leader_elections: Histogram,
    /// Requests of this broker's fetchers.
    pub replica_fetches: Counter,
    pub(super) replica_fetch_rate: Rate,
    pub(super) cpu_rate: Rate,
    pub registry: Arc<RegistryTraffic>,
    pub incremental_fetch_sessions: Gauge,
    pub incremental_fetch_partitions: Gauge,
    pub incremental_fetch_session_evictions: Counter,
    /// Requests that wait for something, by what they wait for.
    pub waiting_produce: Gauge,
    pub waiting_fetch: Gauge,
    pub request_queue_size: Gauge,
    pub response_queue_size: Gauge,
    pub cleaner_max_dirty_percent: Gauge,
    /// Partitions that cleaning had to give up.
    pub cleaner_uncleanable_partitions: Gauge,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    pub fn new() -> Self {
        Self {
            topics: RwLock::default(),
            deleted_topics: TopicMetrics::default(),
            requests: (0..API_NAMES.len() + 2).map(|_| OnceLock::new()).collect(),
            listeners: RwLock::default(),
            radar: Arc::default(),
            state: AtomicI64::new(BrokerState::NotRunning as i64),
            log_flush_time: Histogram::default(),
            isr_shrinks: Counter::default(),
            isr_expands: Counter::default(),
            failed_isr_updates: Counter::default(),
            unclean_leader_elections: Counter::default(),
            leader_elections: Histogram::default(),
            replica_fetches: Counter::default(),
            replica_fetch_rate: Rate::default(),
            cpu_rate: Rate::default(),
            registry: Arc::default(),
            incremental_fetch_sessions: Gauge::default(),
            incremental_fetch_partitions: Gauge::default(),
            incremental_fetch_session_evictions: Counter::default(),
            waiting_produce: Gauge::default(),
            waiting_fetch: Gauge::default(),
            request_queue_size: Gauge::default(),
            response_queue_size: Gauge::default(),
            cleaner_max_dirty_percent: Gauge::default(),
            cleaner_uncleanable_partitions: Gauge::default(),
        }
    }

    /// The handle of a topic that exists: for a partition to keep, not to be looked up by request.
    pub fn topic(&self, name: &TopicName) -> Arc<TopicMetrics> {
        if let Some(topic) = self.topics.read().get(name) {
            return Arc::clone(topic);
        }
        Arc::clone(
            self.topics
                .write()
                .entry(TopicName::clone(name))
                .or_default(),
        )
    }

    /// Forgets a deleted topic; its counts stay in the sums over all topics.
    pub fn remove_topic(&self, name: &str) {
        let Some(topic) = self.topics.write().remove(name) else {
            return;
        };
        for (sum, counter) in self.deleted_topics.counters().iter().zip(topic.counters()) {
            sum.add(counter.get());
        }
    }

    pub(super) fn topics(&self) -> Vec<(TopicName, Arc<TopicMetrics>)> {
        let topics = self.topics.read();
        topics
            .iter()
            .map(|(name, topic)| (TopicName::clone(name), Arc::clone(topic)))
            .collect()
    }

    /// The handle of an API, by its key; Fetch means that of consumers.
    pub fn request(&self, api_key: i16) -> &RequestMetrics {
        if api_key == FETCH_FOLLOWER_KEY {
            return self.fetch_follower();
        }
        let known = usize::try_from(api_key)
            .ok()
            .filter(|&index| index < API_NAMES.len());
        match known {
            Some(index) => self.request_slot(index, API_NAMES[index]),
            // An API that nobody serves, or with a key of a later Kafka.
            None => self.request_slot(API_NAMES.len() + 1, "Unknown"),
        }
    }

    /// The handle of Fetch by followers.
    pub fn fetch_follower(&self) -> &RequestMetrics {
        self.request_slot(API_NAMES.len(), FETCH_FOLLOWER)
    }

    fn request_slot(&self, index: usize, name: &'static str) -> &RequestMetrics {
        self.requests[index].get_or_init(|| RequestMetrics::new(name))
    }

    /// Those APIs that were asked for at least once.
    pub(super) fn requests(&self) -> impl Iterator<Item = &RequestMetrics> {
        self.requests.iter().filter_map(OnceLock::get)
    }

    /// The handle of a listener, to keep.
    pub fn listener(&self, name: &ListenerName) -> Arc<ListenerMetrics> {
        let mut listeners = self.listeners.write();
        Arc::clone(listeners.entry(ListenerName::clone(name)).or_default())
    }

    pub(super) fn listeners(&self) -> Vec<(ListenerName, Arc<ListenerMetrics>)> {
        let listeners = self.listeners.read();
        listeners
            .iter()
            .map(|(name, listener)| (ListenerName::clone(name), Arc::clone(listener)))
            .collect()
    }

    /// What the broker is doing: `/readyz` says yes only while it is [`BrokerState::Running`].
    pub fn set_state(&self, state: BrokerState) {
        self.state.store(state as i64, Relaxed);
    }

    /// Kafka's number of the state.
    pub fn state(&self) -> i64 {
        self.state.load(Relaxed)
    }

    pub fn is_running(&self) -> bool {
        self.state() == BrokerState::Running as i64
    }
}
