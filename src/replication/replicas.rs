//! All partitions on this broker; follows the metadata image.

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;

use parking_lot::{Mutex, RwLock};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::FetchSessions;
use super::partition::{Partition, lane};
use super::shared::{ReplicasConfig, Shared};
use crate::config::TopicConfig;
use crate::log::{FlushListener, LogDirDescription, LogDirState, LogManager};
use crate::metadata::{Image, ImageListener, Partition as Role, Topic};
use crate::telemetry::Metrics;
use crate::time::{Clock, LeaseDeadline};
use crate::types::{ErrorCode, Offset, PartitionId, TopicId, TopicName, TopicPartition};

/// While one of these opens a log the next is on its way: a thread that had to be woken for each would
/// rest most of the time. The threads of a log directory bound what happens at once.
const CHAINS_PER_THREAD: usize = 4;

/// Logs that are opened side by side to be described.
const OPENED_AT_ONCE: usize = 100;

/// All partitions on this broker.
#[derive(Debug)]
pub struct Replicas {
    pub(super) shared: Arc<Shared>,
    topics: RwLock<Topics>,
    fetch_sessions: FetchSessions,
    /// A log directory is offline.
    degraded: AtomicBool,
    /// All of them are.
    all_offline: CancellationToken,
}

#[derive(Debug, Default)]
struct Topics {
    by_name: HashMap<TopicName, Arc<HostedTopic>>,
    by_id: HashMap<TopicId, Arc<HostedTopic>>,
}

/// A partition and what it is to be here.
type Told = (Arc<Partition>, Arc<Role>);

/// A topic with its partitions by index; `None` where this broker has no replica.
#[derive(Debug)]
struct HostedTopic {
    id: TopicId,
    partitions: Vec<Option<Arc<Partition>>>,
}

impl HostedTopic {
    /// UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER.
    fn partition(&self, index: PartitionId) -> Result<&Arc<Partition>, ErrorCode> {
        usize::try_from(index)
            .ok()
            .and_then(|index| self.partitions.get(index))
            .ok_or(ErrorCode::UnknownTopicOrPartition)?
            .as_ref()
            .ok_or(ErrorCode::NotLeaderOrFollower)
    }
}

impl Replicas {
    /// Knows no partition until it hears of an image: add it to the metadata cache as a listener, and
    /// [`Self::flush_listener`] to the log manager.
    pub fn new(
        config: ReplicasConfig,
        logs: Arc<LogManager>,
        metrics: Arc<Metrics>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self::over(Shared::new(config, logs, metrics, clock, None))
    }

    /// Everything happens on the caller's thread.
    #[cfg(test)]
    pub(crate) fn inline(
        config: ReplicasConfig,
        logs: Arc<LogManager>,
        metrics: Arc<Metrics>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let executor = Arc::new(crate::log::InlineExecutor);
        Self::over(Shared::new(config, logs, metrics, clock, Some(executor)))
    }

    pub(super) fn over(shared: Shared) -> Self {
        let metrics = Arc::clone(&shared.metrics);
        let fetch_session_slots = shared.config.fetch_session_slots;
        Self {
            shared: Arc::new(shared),
            topics: RwLock::default(),
            fetch_sessions: FetchSessions::new(fetch_session_slots, metrics),
            degraded: AtomicBool::new(false),
            all_offline: CancellationToken::new(),
        }
    }

    /// What the log manager tells of flushes and failed directories.
    pub fn flush_listener(self: &Arc<Self>) -> Arc<dyn FlushListener> {
        Arc::new(Flushes(Arc::downgrade(self)))
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// To be kept by whoever keeps this broker's lease alive.
    pub fn lease(&self) -> &Arc<LeaseDeadline> {
        &self.shared.lease
    }

    pub fn fetch_sessions(&self) -> &FetchSessions {
        &self.fetch_sessions
    }

    /// UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER where this broker has no replica.
    pub fn partition(
        &self,
        topic: &str,
        partition: PartitionId,
    ) -> Result<Arc<Partition>, ErrorCode> {
        let topics = self.topics.read();
        let topic = topics
            .by_name
            .get(topic)
            .ok_or(ErrorCode::UnknownTopicOrPartition)?;
        topic.partition(partition).map(Arc::clone)
    }

    /// UNKNOWN_TOPIC_ID; UNKNOWN_TOPIC_OR_PARTITION for an index that the topic does not have;
    /// NOT_LEADER_OR_FOLLOWER where this broker has no replica.
    pub fn partition_by_id(
        &self,
        topic: TopicId,
        partition: PartitionId,
    ) -> Result<Arc<Partition>, ErrorCode> {
        let topics = self.topics.read();
        let topic = topics.by_id.get(&topic).ok_or(ErrorCode::UnknownTopicId)?;
        topic.partition(partition).map(Arc::clone)
    }

    /// The name of a topic that has replicas here.
    pub fn topic_name(&self, id: TopicId) -> Option<TopicName> {
        let topics = self.topics.read();
        let partition = topics.by_id.get(&id)?.partitions.iter().flatten().next()?;
        Some(Arc::clone(&partition.topic_partition().topic))
    }

    /// Every partition, in no order.
    pub fn partitions(&self) -> Vec<Arc<Partition>> {
        let topics = self.topics.read();
        let all = topics.by_name.values().flat_map(|topic| &topic.partitions);
        #[allow(unused_mut)]
        let mut all: Vec<_> = all.flatten().cloned().collect();
        #[cfg(test)] // a simulation repeats itself
        all.sort_by(|one, other| one.topic_partition().cmp(other.topic_partition()));
        all
    }

    /// Recovers what an unclean stop left, so many partitions at a time, behind those that are asked
    /// for meanwhile.
    pub fn recover_in_background(&self, at_a_time: usize) {
        let mut unrecovered = self.shared.logs.unrecovered();
        unrecovered.retain(|partition| {
            self.partition(&partition.topic, partition.partition)
                .is_ok()
        });
        if unrecovered.is_empty() {
            return;
        }
        tracing::info!(
            partitions = unrecovered.len(),
            "recovering after an unclean stop"
        );
        let partitions = unrecovered
            .iter()
            .filter_map(|tp| self.partition(&tp.topic, tp.partition).ok());
        let waiting: Vec<_> = partitions.collect();
        let recovery = Arc::new(Recovery {
            start: self.shared.clock.now(),
            total: waiting.len(),
            left: AtomicUsize::new(waiting.len()),
            waiting: Mutex::new(waiting),
        });
        for _ in 0..at_a_time.max(1) * CHAINS_PER_THREAD {
            recover_next(&self.shared, &recovery);
        }
    }

    /// Lets every fetch go that waits for records: the broker stops.
    pub fn release_waiting_fetches(&self) {
        for partition in self.partitions() {
            partition.release_fetches();
        }
    }

    /// Damaged places that were found in logs since the start.
    pub fn damage_found(&self) -> u64 {
        self.shared.logs.damage_found()
    }

    /// What each log directory is good for. Does not block.
    pub fn log_dir_states(&self) -> Vec<(PathBuf, LogDirState)> {
        self.shared.logs.states()
    }

    /// Whether the partition is here but its log directory is offline. Cheap while none is.
    pub fn is_offline(&self, topic: &str, partition: PartitionId) -> bool {
        self.degraded.load(Ordering::Acquire)
            && self
                .partition(topic, partition)
                .is_ok_and(|partition| partition.is_offline())
    }

    /// Resolves when no log directory is left.
    pub async fn all_offline(&self) {
        self.all_offline.cancelled().await;
    }

    /// Looks which log directories are left; true if none is.
    fn count_directories(&self) -> bool {
        let states = self.log_dir_states();
        let offline = states.iter().filter(|(_, s)| *s == LogDirState::Offline);
        let offline = offline.count();
        self.degraded.store(offline > 0, Ordering::Release);
        offline == states.len()
    }

    /// Takes the partitions offline whose files may be in a directory that does not answer since the
    /// start. Called once, when the first image is complete and strays are gone.
    pub fn miss_dead_directories(&self) {
        self.count_directories();
        let partitions = self.partitions().into_iter();
        let missed: Vec<_> = partitions
            .filter(|partition| self.shared.logs.may_be_lost(partition.topic_partition()))
            .collect();
        for partition in &missed {
            partition.take_offline();
        }
        if !missed.is_empty() {
            tracing::error!(
                partitions = missed.len(),
                "partitions without files are offline: they may be in a log directory that does not answer"
            );
        }
    }

    /// The log directories with their partitions and bytes. Opens the logs that `wanted` says; a
    /// partition without files counts to the first directory.
    pub async fn describe_log_dirs(
        &self,
        wanted: impl Fn(&TopicPartition) -> bool,
    ) -> Vec<LogDirDescription> {
        let all = self.partitions();
        let any = all.first().cloned();
        let partitions: Vec<_> = all
            .into_iter()
            .filter(|partition| wanted(partition.topic_partition()))
            .collect();
        for some in partitions.chunks(OPENED_AT_ONCE) {
            // One that cannot be opened is described as it is known.
            let opening = some.iter().map(Partition::open);
            futures_util::future::join_all(opening).await;
        }
        let (reply, described) = oneshot::channel();
        let logs = Arc::clone(&self.shared.logs);
        // Nobody listens any more: the connection is gone.
        let describe = move || drop(reply.send(logs.describe()));
        match any {
            Some(partition) => partition.on_lane(|_| describe()),
            // There is nothing to look at.
            None => describe(),
        }
        let mut described: Vec<LogDirDescription> = described.await.unwrap_or_default();
        let with_files: BTreeSet<TopicPartition> = described
            .iter()
            .flat_map(|directory| &directory.partitions)
            .map(|(partition, _)| partition.clone())
            .collect();
        for directory in &mut described {
            directory
                .partitions
                .retain(|(partition, _)| wanted(partition));
        }
        let without_files = partitions.iter().filter_map(|partition| {
            let partition = partition.topic_partition();
            (!with_files.contains(partition)).then(|| (partition.clone(), 0))
        });
        if let Some(first) = described.iter_mut().find(|directory| directory.online) {
            first.partitions.extend(without_files);
            first.partitions.sort_unstable();
        }
        described
    }

    /// Notes the high watermarks of the logs that are open, for whoever opens the directory next. Blocks
    /// on the disk.
    pub fn checkpoint_high_watermarks(&self) {
        let partitions = self.partitions().into_iter();
        let offsets: Vec<_> = partitions
            .filter(|partition| partition.opened_log().is_some())
            .map(|partition| {
                let high_watermark = partition.high_watermark();
                (partition.topic_partition().clone(), high_watermark)
            })
            .collect();
        self.shared.logs.checkpoint_high_watermarks(&offsets);
    }

    /// The topic's partitions here, and the roles that they are to be told of.
    fn host(&self, topic: &Topic, before: Option<&HostedTopic>) -> (HostedTopic, Vec<Told>) {
        let mut roles = Vec::new();
        let node_id = self.shared.node_id();
        let metrics = self.shared.metrics.topic(&topic.name);
        let partitions = topic.partitions.iter().enumerate().map(|(index, role)| {
            if !role.replicas.contains(&node_id) {
                return None;
            }
            let known = before
                .and_then(|before| before.partitions.get(index))
                .and_then(Option::as_ref);
            if let Some(partition) = known {
                roles.push((Arc::clone(partition), Arc::clone(role)));
                return Some(Arc::clone(partition));
            }
            let index = PartitionId::try_from(index).ok()?;
            let partition = Arc::new(Partition::new(
                TopicPartition::new(Arc::clone(&topic.name), index),
                topic.id,
                Arc::clone(&self.shared),
                Arc::clone(&metrics),
                Arc::clone(&topic.config),
                Arc::clone(role),
            ));
            roles.push((Arc::clone(&partition), Arc::clone(role)));
            Some(partition)
        });
        let hosted = HostedTopic {
            id: topic.id,
            partitions: partitions.collect(),
        };
        (hosted, roles)
    }

    /// Those who wait hear of it, and the log is deleted behind whatever is on its lane.
    fn remove(&self, partition: &Arc<Partition>) {
        partition.remove();
        let logs = Arc::clone(&self.shared.logs);
        let topic_partition = partition.topic_partition().clone();
        let topic_id = partition.topic_id();
        let delay_ms = partition.config().file_delete_delay_ms;
        let executor = self.shared.executor(&topic_partition);
        let job = move || {
            if let Err(error) = logs.delete(&topic_partition, topic_id, delay_ms) {
                tracing::error!(partition = %topic_partition, %error, "delete the log");
            }
        };
        executor.submit(lane(partition.topic_partition()), Box::new(job));
    }
}

impl ImageListener for Replicas {
    fn image_changed(&self, old: &Image, new: &Arc<Image>) {
        let registered_anew = self.shared.see_brokers(new);
        // Partitions of the old topics that no longer are; the map is changed first, so that nobody
        // finds a partition that is on its way out.
        let mut removed = Vec::new();
        let mut told = Vec::new();
        {
            let mut topics = self.topics.write();
            for (name, topic) in &old.topics {
                let gone = new.topics.get(name).is_none_or(|now| now.id != topic.id);
                if gone && let Some(hosted) = topics.by_name.remove(name) {
                    topics.by_id.remove(&hosted.id);
                    self.shared.metrics.remove_topic(name);
                    removed.extend(hosted.partitions.iter().flatten().cloned());
                }
            }
            for (name, topic) in &new.topics {
                if old
                    .topics
                    .get(name)
                    .is_some_and(|before| Arc::ptr_eq(before, topic))
                {
                    continue;
                }
                let before = topics.by_name.remove(name);
                let (hosted, roles) = self.host(topic, before.as_deref());
                let hosted = Arc::new(hosted);
                told.push((Arc::clone(&topic.config), roles));
                if let Some(before) = before {
                    let kept = |index| matches!(hosted.partitions.get(index), Some(Some(_)));
                    let gone = before.partitions.iter().enumerate();
                    removed.extend(gone.filter_map(|(index, partition)| {
                        partition.clone().filter(|_| !kept(index))
                    }));
                }
                topics.by_id.insert(topic.id, Arc::clone(&hosted));
                topics.by_name.insert(Arc::clone(name), hosted);
            }
        }
        for (config, roles) in told {
            for (partition, role) in roles {
                partition.set_role(role, Arc::clone(&config));
            }
        }
        if registered_anew {
            for partition in self.partitions() {
                partition.reconsider_role();
            }
        }
        for partition in &removed {
            self.remove(partition);
        }
    }
}

/// What an unclean stop left to do.
#[derive(Debug)]
struct Recovery {
    start: Instant,
    total: usize,
    left: AtomicUsize,
    waiting: Mutex<Vec<Arc<Partition>>>,
}

/// Recovers one partition on its lane, then the next.
fn recover_next(shared: &Arc<Shared>, recovery: &Arc<Recovery>) {
    if shared.logs.is_closed() {
        return;
    }
    let Some(partition) = recovery.waiting.lock().pop() else {
        return;
    };
    let (shared, recovery) = (Arc::clone(shared), Arc::clone(recovery));
    partition.surely_on_lane(move |partition| {
        // A failure is logged where it happens, and met again by whoever asks for the partition.
        let _ = partition.recover_here();
        if recovery.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            let time = shared.clock.now().saturating_duration_since(recovery.start);
            tracing::info!(
                partitions = recovery.total,
                ms = time.as_millis(),
                "recovered all partitions"
            );
        }
        recover_next(&shared, &recovery);
    });
}

/// Passes flushes on to the replicas. The logs do not keep the replicas alive, which keep the logs.
#[derive(Debug)]
struct Flushes(Weak<Replicas>);

impl Flushes {
    fn find(&self, partition: &TopicPartition) -> Option<Arc<Partition>> {
        let replicas = self.0.upgrade()?;
        replicas
            .partition(&partition.topic, partition.partition)
            .ok()
    }
}

impl FlushListener for Flushes {
    fn flushed(&self, partition: &TopicPartition, _flushed_offset: Offset) {
        if let Some(partition) = self.find(partition) {
            partition.advance();
        }
    }

    fn high_watermark(&self, partition: &TopicPartition) -> Option<Offset> {
        Some(self.find(partition)?.high_watermark())
    }

    fn log_start_moved(&self, partition: &TopicPartition, log_start: Offset) {
        if let Some(partition) = self.find(partition) {
            partition.release_fetches_below(log_start);
        }
    }

    fn topic_config(&self, partition: &TopicPartition) -> Option<Arc<TopicConfig>> {
        Some(self.find(partition)?.config())
    }

    fn open(&self, partition: &TopicPartition) -> bool {
        let Some(partition) = self.find(partition) else {
            return false;
        };
        // A failure is logged where it happens, and met again by whoever asks for the partition.
        partition.on_lane(|partition| {
            let _ = partition.open_here();
        });
        true
    }

    fn flush_took(&self, time: std::time::Duration) {
        if let Some(replicas) = self.0.upgrade() {
            replicas.shared.metrics.log_flush_time.record(time);
        }
    }

    fn directory_failed(&self, partitions: &[TopicPartition]) {
        let Some(replicas) = self.0.upgrade() else {
            return;
        };
        let none_is_left = replicas.count_directories();
        for partition in partitions {
            if let Some(partition) = self.find(partition) {
                partition.take_offline();
            }
        }
        if none_is_left {
            replicas.all_offline.cancel();
        }
    }
}
