//! The group coordinator as handlers see it: which shard a group is in, and one method per API.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};
use tokio_util::task::TaskTracker;

use super::group::{
    CommitRequest, DeleteOffsetsRequest, DescribedGroup, FetchReply, FetchRequest, GroupConfig,
    GroupSnapshot, HeartbeatRequest, JoinReply, JoinRequest, LeaveReply, LeaveRequest, ListFilter,
    ListedGroup, PartitionErrors, Reply, Request, SyncReply, SyncRequest,
};
use super::record::STRING_BYTES_MAX;
use super::runtime::{self, Command, Environment, QUEUE_MAX};
use crate::config::BrokerConfig;
use crate::metadata::{Image, ImageListener, MetadataCache, Topic};
use crate::replication::{Partition, Replicas};
use crate::time::Clock;
use crate::types::{BrokerId, ErrorCode, LeaderEpoch, TopicName};

/// Where groups and their offsets are stored.
pub const GROUP_METADATA_TOPIC: &str = "__consumer_offsets";

/// A shard that loads, or that has as many appends on their way as it may have, takes no requests for a
/// while; Prometheus gives up on a page after ten seconds, or after one.
const SNAPSHOT_PATIENCE: Duration = Duration::from_millis(250);

/// How often, a second apart, a loading shard is asked to forget a topic.
const DELETE_ATTEMPTS: usize = 30;

/// The group coordinator. Cheap to clone; all clones are one.
///
/// Add it to the metadata cache as a listener, after the replicas.
#[derive(Debug, Clone)]
pub struct GroupCoordinator {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    node_id: BrokerId,
    /// `offsets.topic.num.partitions`, until the topic exists.
    partition_count: i32,
    session_timeout_ms: std::ops::RangeInclusive<i32>,
    environment: Arc<Environment>,
    metadata: Arc<MetadataCache>,
    replicas: Arc<Replicas>,
    tasks: TaskTracker,
    shards: Mutex<Shards>,
}

/// The shards that have a task.
#[derive(Debug, Default)]
struct Shards {
    running: BTreeMap<i32, Running>,
    is_shut_down: bool,
}

/// A task ends when its last sender is gone.
#[derive(Debug)]
struct Running {
    partition: Arc<Partition>,
    commands: mpsc::Sender<Command>,
}

impl GroupCoordinator {
    pub fn new(
        config: &BrokerConfig,
        metadata: Arc<MetadataCache>,
        replicas: Arc<Replicas>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let size = |value: i32| usize::try_from(value).unwrap_or(0);
        let group_config = GroupConfig {
            initial_rebalance_delay_ms: config.group_initial_rebalance_delay_ms,
            size_max: size(config.group_max_size),
            offset_metadata_max: size(config.offset_metadata_max_bytes),
            offsets_retention_ms: i64::from(config.offsets_retention_minutes) * 60_000,
            offsets_retention_check_interval_ms: config.offsets_retention_check_interval_ms,
            batch_bytes_max: usize::MAX,
        };
        let commit_timeout = u64::try_from(config.offsets_commit_timeout_ms).unwrap_or(0);
        let environment = Environment {
            config: group_config,
            commit_timeout: Duration::from_millis(commit_timeout),
            clock,
        };
        Self {
            inner: Arc::new(Inner {
                node_id: config.node_id,
                partition_count: config.offsets_topic_num_partitions,
                session_timeout_ms: config.group_min_session_timeout_ms
                    ..=config.group_max_session_timeout_ms,
                environment: Arc::new(environment),
                metadata,
                replicas,
                tasks: TaskTracker::new(),
                shards: Mutex::default(),
            }),
        }
    }

    /// The partition of `__consumer_offsets` that a group's records are in.
    pub fn partition_for(&self, group: &str) -> i32 {
        let image = self.inner.metadata.current();
        let topic = image.topics.get(GROUP_METADATA_TOPIC);
        let count = topic.and_then(|topic| i32::try_from(topic.partitions.len()).ok());
        partition_of(group, count.unwrap_or(self.inner.partition_count))
    }

    pub async fn join(&self, request: JoinRequest) -> JoinReply {
        if let Err(error) = self.admit_join(&request) {
            return JoinReply::failed(request.member_id, error);
        }
        let group = request.group.clone();
        match self.inner.ask(&group, Request::Join(request)).await {
            Ok(Reply::Join(reply)) => reply,
            other => JoinReply::failed(Arc::from(""), unexpected(other)),
        }
    }

    fn admit_join(&self, request: &JoinRequest) -> Result<(), ErrorCode> {
        check_group_id(&request.group)?;
        if !self
            .inner
            .session_timeout_ms
            .contains(&request.session_timeout_ms)
        {
            return Err(ErrorCode::InvalidSessionTimeout);
        }
        let mut texts = vec![
            &request.member_id,
            &request.client_id,
            &request.client_host,
            &request.protocol_type,
        ];
        texts.extend(&request.instance_id);
        texts.extend(request.protocols.iter().map(|protocol| &protocol.name));
        // A new member's id is the client's (or the instance's) and a UUID.
        let longest = texts.into_iter().map(|text| text.len()).max().unwrap_or(0);
        if longest + request.fresh_id.len() < STRING_BYTES_MAX {
            Ok(())
        } else {
            Err(ErrorCode::InvalidRequest)
        }
    }

    pub async fn sync(&self, request: SyncRequest) -> SyncReply {
        if let Err(error) = check_group_id(&request.group) {
            return SyncReply::failed(error);
        }
        let group = request.group.clone();
        match self.inner.ask(&group, Request::Sync(request)).await {
            Ok(Reply::Sync(reply)) => reply,
            other => SyncReply::failed(unexpected(other)),
        }
    }

    pub async fn heartbeat(&self, request: HeartbeatRequest) -> ErrorCode {
        if let Err(error) = check_group_id(&request.group) {
            return error;
        }
        let group = request.group.clone();
        match self.inner.ask(&group, Request::Heartbeat(request)).await {
            Ok(Reply::Heartbeat(error)) => error,
            other => unexpected(other),
        }
    }

    pub async fn leave(&self, request: LeaveRequest) -> LeaveReply {
        let failed = |error| LeaveReply {
            error,
            members: Vec::new(),
        };
        if let Err(error) = check_group_id(&request.group) {
            return failed(error);
        }
        let group = request.group.clone();
        match self.inner.ask(&group, Request::Leave(request)).await {
            Ok(Reply::Leave(reply)) => reply,
            other => failed(unexpected(other)),
        }
    }

    /// Commits offsets of topics that exist. The group id may be empty, as it was once allowed.
    pub async fn commit_offsets(
        &self,
        request: CommitRequest,
    ) -> Result<PartitionErrors, ErrorCode> {
        check_length(&request.group)?;
        let group = request.group.clone();
        let reply = self
            .inner
            .ask(&group, Request::CommitOffsets(request))
            .await;
        match reply {
            Ok(Reply::CommitOffsets(reply)) => reply,
            other => Err(unexpected(other)),
        }
    }

    pub async fn fetch_offsets(&self, request: FetchRequest) -> Result<FetchReply, ErrorCode> {
        check_length(&request.group)?;
        let group = request.group.clone();
        self.inner.check_undisputed(&group)?;
        match self.inner.ask(&group, Request::FetchOffsets(request)).await {
            Ok(Reply::FetchOffsets(reply)) => Ok(reply),
            // Old consumers know how to go on only from this one.
            Err(ErrorCode::RequestTimedOut | ErrorCode::CoordinatorNotAvailable) => {
                Err(ErrorCode::NotCoordinator)
            }
            other => Err(unexpected(other)),
        }
    }

    pub async fn delete_offsets(
        &self,
        request: DeleteOffsetsRequest,
    ) -> Result<PartitionErrors, ErrorCode> {
        check_group_id(&request.group)?;
        let group = request.group.clone();
        let reply = self
            .inner
            .ask(&group, Request::DeleteOffsets(request))
            .await;
        match reply {
            Ok(Reply::DeleteOffsets(reply)) => reply,
            other => Err(unexpected(other)),
        }
    }

    /// Deletes groups, each on its own.
    pub async fn delete_groups(&self, groups: Vec<Arc<str>>) -> Vec<(Arc<str>, ErrorCode)> {
        let failed = |group, error| (group, error);
        let deleted = |reply| match reply {
            Reply::DeleteGroups(groups) => Ok(groups),
            other => Err(unexpected(Ok(other))),
        };
        self.inner
            .ask_each(groups, Request::DeleteGroups, deleted, failed)
            .await
    }

    /// Describes groups, each on its own; `None` for one that does not exist.
    pub async fn describe_groups(
        &self,
        groups: Vec<Arc<str>>,
    ) -> Vec<(Arc<str>, Result<Option<DescribedGroup>, ErrorCode>)> {
        let failed = |group, error| (group, Err(error));
        let described = |reply| match reply {
            Reply::DescribeGroups(groups) => {
                let each = groups.into_iter().map(|(group, found)| (group, Ok(found)));
                Ok(each.collect())
            }
            other => Err(unexpected(Ok(other))),
        };
        self.inner
            .ask_each(groups, Request::DescribeGroups, described, failed)
            .await
    }

    /// All groups that this broker coordinates.
    pub async fn list_groups(&self, filter: ListFilter) -> Result<Vec<ListedGroup>, ErrorCode> {
        let partitions = self.inner.used_partitions().await;
        let asked = partitions.into_iter().map(|index| {
            let request = Request::ListGroups(filter.clone());
            self.inner.ask_partition(index, request)
        });
        let mut all = Vec::new();
        for reply in join_all(asked).await {
            match reply {
                Ok(Reply::ListGroups(groups)) => all.extend(groups),
                Err(ErrorCode::NotCoordinator) => {}
                other => return Err(unexpected(other)),
            }
        }
        Ok(all)
    }

    /// The groups that are loaded, for metrics, as decided: what they show may not be committed yet. Loads
    /// nothing, and leaves out the groups of a shard that does not answer soon.
    pub async fn groups_snapshot(&self) -> Vec<GroupSnapshot> {
        let running: Vec<_> = {
            let shards = self.inner.shards.lock();
            let senders = shards.running.values().map(|shard| shard.commands.clone());
            senders.collect()
        };
        let asked = running.into_iter().map(|commands| {
            tokio::time::timeout(SNAPSHOT_PATIENCE, send(commands, Request::Snapshot))
        });
        let mut all = Vec::new();
        for reply in join_all(asked).await {
            if let Ok(Ok(Ok(Reply::Snapshot(groups)))) = reply {
                all.extend(groups);
            }
        }
        all
    }

    /// Lets everybody go who waits for a join or a sync, and returns once what is on its way is committed.
    pub async fn shutdown(&self) {
        {
            let mut shards = self.inner.shards.lock();
            shards.is_shut_down = true;
            shards.running.clear();
        }
        self.inner.tasks.close();
        self.inner.tasks.wait().await;
    }

    /// This broker leads a partition of `__consumer_offsets` now: its groups are loaded, if it has any.
    pub fn elected(&self, partitions: Vec<i32>) {
        let inner = Arc::clone(&self.inner);
        self.inner.tasks.spawn(async move {
            for index in partitions {
                if inner.is_used(index).await {
                    // A failure is met again by the first who asks.
                    let _ = inner.shard(index);
                }
            }
        });
    }

    /// This broker leads a partition no longer, or the partition is gone.
    pub fn resigned(&self, partition: i32) {
        let running = self.inner.shards.lock().running.remove(&partition);
        drop(running); // not under the lock
    }

    fn topics_deleted(&self, topics: Vec<TopicName>) {
        let inner = Arc::clone(&self.inner);
        self.inner.tasks.spawn(async move {
            for index in inner.used_partitions().await {
                if let Err(error) = inner.delete_topics(index, &topics).await {
                    tracing::warn!(
                        partition = index,
                        ?topics,
                        %error,
                        "delete the offsets of deleted topics"
                    );
                }
            }
        });
    }
}

impl Inner {
    async fn ask(self: &Arc<Self>, group: &str, request: Request) -> Result<Reply, ErrorCode> {
        let count = self.topic_partition_count()?;
        self.ask_partition(partition_of(group, count), request)
            .await
    }

    async fn ask_partition(
        self: &Arc<Self>,
        index: i32,
        request: Request,
    ) -> Result<Reply, ErrorCode> {
        let mut request = request;
        // A task that is just ending leaves its channel closed; the next one takes the request.
        for _ in 0..2 {
            match send(self.shard(index)?, request).await {
                Ok(reply) => return reply,
                Err(unsent) => request = unsent,
            }
        }
        Err(ErrorCode::NotCoordinator)
    }

    /// A shard that is loading is asked again; what is missed is no harm, since a new topic of the same
    /// name has another id.
    async fn delete_topics(
        self: &Arc<Self>,
        index: i32,
        topics: &[TopicName],
    ) -> Result<(), ErrorCode> {
        for _ in 0..DELETE_ATTEMPTS {
            let request = Request::TopicsDeleted(topics.to_vec());
            match self.ask_partition(index, request).await {
                Err(ErrorCode::CoordinatorLoadInProgress) => {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
                reply => return reply.map(|_| ()),
            }
        }
        Err(ErrorCode::CoordinatorLoadInProgress)
    }

    /// Asks each group's shard, shards side by side.
    async fn ask_each<T>(
        self: &Arc<Self>,
        groups: Vec<Arc<str>>,
        request: impl Fn(Vec<Arc<str>>) -> Request,
        found: impl Fn(Reply) -> Result<Vec<T>, ErrorCode>,
        failed: impl Fn(Arc<str>, ErrorCode) -> T,
    ) -> Vec<T> {
        let count = match self.topic_partition_count() {
            Ok(count) => count,
            Err(error) => return groups.into_iter().map(|g| failed(g, error)).collect(),
        };
        let mut by_partition: BTreeMap<i32, Vec<Arc<str>>> = BTreeMap::new();
        let mut answers = Vec::with_capacity(groups.len());
        for group in groups {
            match check_length(&group) {
                Ok(()) => by_partition
                    .entry(partition_of(&group, count))
                    .or_default()
                    .push(group),
                Err(error) => answers.push(failed(group, error)),
            }
        }
        let asked = by_partition.into_iter().map(|(index, groups)| {
            let request = request(groups.clone());
            async move { (groups, self.ask_partition(index, request).await) }
        });
        for (groups, reply) in join_all(asked).await {
            match reply.and_then(&found) {
                Ok(some) => answers.extend(some),
                Err(error) => answers.extend(groups.into_iter().map(|g| failed(g, error))),
            }
        }
        answers
    }

    fn topic_partition_count(&self) -> Result<i32, ErrorCode> {
        let image = self.metadata.current();
        let topic = image.topics.get(GROUP_METADATA_TOPIC);
        // Kafka says so too where there is no such topic: it loads no partition, so it coordinates none.
        let topic = topic.ok_or(ErrorCode::NotCoordinator)?;
        i32::try_from(topic.partitions.len()).map_err(|_| ErrorCode::NotCoordinator)
    }

    /// R15: what is only read waits for no commit. Where this broker's lease is over and somebody else may
    /// have been elected, newer offsets may be committed there: NOT_COORDINATOR.
    fn check_undisputed(&self, group: &str) -> Result<(), ErrorCode> {
        let index = partition_of(group, self.topic_partition_count()?);
        match self.replicas.partition(GROUP_METADATA_TOPIC, index) {
            Ok(partition) if partition.is_undisputed() => Ok(()),
            _ => Err(ErrorCode::NotCoordinator),
        }
    }

    /// The channel to a shard, whose task is started if need be.
    fn shard(self: &Arc<Self>, index: i32) -> Result<mpsc::Sender<Command>, ErrorCode> {
        let partition = self.replicas.partition(GROUP_METADATA_TOPIC, index);
        let partition = partition.map_err(|_| ErrorCode::NotCoordinator)?;
        partition
            .check_leader(-1)
            .map_err(|_| ErrorCode::NotCoordinator)?;
        let mut shards = self.shards.lock();
        if shards.is_shut_down {
            return Err(ErrorCode::CoordinatorNotAvailable);
        }
        if let Some(running) = shards.running.get(&index)
            && Arc::ptr_eq(&running.partition, &partition)
            && !running.commands.is_closed()
        {
            return Ok(running.commands.clone());
        }
        let (commands, receiver) = mpsc::channel(QUEUE_MAX);
        let running = Running {
            partition: Arc::clone(&partition),
            commands: commands.clone(),
        };
        shards.running.insert(index, running);
        let environment = Arc::clone(&self.environment);
        self.tasks
            .spawn(runtime::run(environment, partition, receiver));
        Ok(commands)
    }

    /// The partitions that hold anything.
    async fn used_partitions(self: &Arc<Self>) -> Vec<i32> {
        let Ok(count) = self.topic_partition_count() else {
            return Vec::new();
        };
        let mut used = Vec::new();
        for index in 0..count {
            if self.is_used(index).await {
                used.push(index);
            }
        }
        used
    }

    /// Whether a partition that is led here holds anything, or has a task that may be about to write.
    async fn is_used(&self, index: i32) -> bool {
        if self.shards.lock().running.contains_key(&index) {
            return true;
        }
        let Ok(partition) = self.replicas.partition(GROUP_METADATA_TOPIC, index) else {
            return false;
        };
        if partition.check_leader(-1).is_err() {
            return false;
        }
        // Where the log cannot be opened the question goes on to the shard, which says so.
        partition.open().await.is_err()
            || partition
                .log_offsets()
                .is_some_and(|(start, end)| end > start)
    }
}

/// Asks a shard; the request comes back if its task has ended.
async fn send(
    commands: mpsc::Sender<Command>,
    request: Request,
) -> Result<Result<Reply, ErrorCode>, Request> {
    let (reply, answer) = oneshot::channel();
    let command = Command {
        request: Box::new(request),
        reply,
    };
    if let Err(unsent) = commands.send(command).await {
        return Err(*unsent.0.request);
    }
    // The task ends only when all senders are gone: this one must not keep it.
    drop(commands);
    Ok(answer.await.unwrap_or(Err(ErrorCode::NotCoordinator)))
}

impl ImageListener for GroupCoordinator {
    fn image_changed(&self, old: &Image, new: &Arc<Image>) {
        self.follow_leadership(old, new);
        let is_gone = |topic: &Topic| new.topics.get(&topic.name).is_none_or(|t| t.id != topic.id);
        let gone = old.topics.values().filter(|topic| is_gone(topic));
        let gone: Vec<TopicName> = gone.map(|topic| topic.name.clone()).collect();
        if !gone.is_empty() {
            self.topics_deleted(gone);
        }
    }
}

impl GroupCoordinator {
    fn follow_leadership(&self, old: &Image, new: &Image) {
        let before = old.topics.get(GROUP_METADATA_TOPIC);
        let after = new.topics.get(GROUP_METADATA_TOPIC);
        if let (Some(before), Some(after)) = (before, after)
            && Arc::ptr_eq(before, after)
        {
            return;
        }
        let is_same_topic = before.map(|topic| topic.id) == after.map(|topic| topic.id);
        let led_before = before.map(|topic| self.led(topic)).unwrap_or_default();
        let led_after = after.map(|topic| self.led(topic)).unwrap_or_default();
        // R15: a shard is that of one leader epoch. In between, unseen, another broker may have led.
        let goes_on = |index: &i32| {
            let (before, after) = (led_before.get(index), led_after.get(index));
            is_same_topic && before.is_some() && before == after
        };
        for index in led_before.keys().filter(|index| !goes_on(index)) {
            self.resigned(*index);
        }
        // A topic that was just made has nothing to load.
        let was_just_made = old.revision > 0 && before.is_none();
        if !was_just_made {
            let elected = led_after.keys().copied();
            let elected: Vec<i32> = elected.filter(|index| !goes_on(index)).collect();
            if !elected.is_empty() {
                self.elected(elected);
            }
        }
    }

    /// The partitions that are led here, with the leader epoch.
    fn led(&self, topic: &Topic) -> BTreeMap<i32, LeaderEpoch> {
        let partitions = (0..).zip(&topic.partitions);
        let led = partitions.filter(|(_, role)| role.leader == Some(self.inner.node_id));
        led.map(|(index, role)| (index, role.leader_epoch))
            .collect()
    }
}

/// The code in a reply that is none.
fn unexpected(reply: Result<Reply, ErrorCode>) -> ErrorCode {
    match reply {
        Ok(_) => ErrorCode::UnknownServerError,
        Err(ErrorCode::RequestTimedOut) => ErrorCode::CoordinatorNotAvailable,
        Err(error) => error,
    }
}

fn check_group_id(group: &str) -> Result<(), ErrorCode> {
    if group.is_empty() {
        return Err(ErrorCode::InvalidGroupId);
    }
    check_length(group)
}

/// Longer ones cannot be stored.
fn check_length(group: &str) -> Result<(), ErrorCode> {
    if group.len() > STRING_BYTES_MAX {
        return Err(ErrorCode::InvalidGroupId);
    }
    Ok(())
}

/// `Utils.abs(groupId.hashCode()) % count`.
fn partition_of(group: &str, count: i32) -> i32 {
    let hash = group.encode_utf16().fold(0i32, |hash, unit| {
        hash.wrapping_mul(31).wrapping_add(i32::from(unit))
    });
    hash.checked_abs().unwrap_or(0) % count.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_spread_as_java_does() {
        // "polygenelubricants".hashCode() is Integer.MIN_VALUE.
        assert_eq!(partition_of("polygenelubricants", 50), 0);
        assert_eq!(partition_of("", 50), 0);
        assert_eq!(partition_of("a", 50), 97 % 50);
        assert_eq!(partition_of("group", 50), 47);
        assert_eq!(partition_of("connect-cluster", 50), 13);
        assert_eq!(partition_of("console-consumer-1", 50), 24);
    }
}
