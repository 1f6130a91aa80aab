//! Committed offsets: who may commit, what is stored, when it expires (KIP-211). Pure.
//! Kafka's `OffsetMetadataManager`.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::GroupConfig;
use super::classic::{ClassicGroup, State};
use super::messages::{
    CommitPartition, CommitRequest, CommitTopic, DeleteOffsetsRequest, FetchReply, FetchRequest,
    FetchTopic, PartitionErrors,
};
use crate::coordinator::record::{GroupRecord, OffsetValue};
use crate::types::{ErrorCode, TimestampMs, TopicId, TopicName};

/// A committed offset is what its record says.
pub type CommittedOffset = OffsetValue;

type ByPartition = BTreeMap<i32, CommittedOffset>;
type ByTopic = BTreeMap<TopicName, ByPartition>;

/// The offsets of every group of a shard. No empty maps are kept.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Offsets {
    by_group: BTreeMap<Arc<str>, ByTopic>,
}

impl Offsets {
    pub(super) fn is_empty(&self) -> bool {
        self.by_group.is_empty()
    }

    pub(super) fn put(
        &mut self,
        group: &Arc<str>,
        topic: &TopicName,
        partition: i32,
        value: CommittedOffset,
    ) {
        let topics = self.by_group.entry(group.clone()).or_default();
        topics
            .entry(topic.clone())
            .or_default()
            .insert(partition, value);
    }

    pub(super) fn remove(&mut self, group: &str, topic: &str, partition: i32) {
        let Some(topics) = self.by_group.get_mut(group) else {
            return;
        };
        if let Some(partitions) = topics.get_mut(topic) {
            partitions.remove(&partition);
            if partitions.is_empty() {
                topics.remove(topic);
            }
        }
        if topics.is_empty() {
            self.by_group.remove(group);
        }
    }

    fn get(&self, group: &str, topic: &str, partition: i32) -> Option<&CommittedOffset> {
        self.by_group.get(group)?.get(topic)?.get(&partition)
    }

    pub(super) fn of(
        &self,
        group: &str,
    ) -> impl Iterator<Item = (&TopicName, i32, &CommittedOffset)> {
        let topics = self.by_group.get(group).into_iter().flatten();
        topics.flat_map(|(topic, partitions)| {
            partitions
                .iter()
                .map(move |(partition, value)| (topic, *partition, value))
        })
    }

    /// OffsetFetch. An offset of an earlier topic of the same name is none.
    pub(super) fn fetch(&self, request: &FetchRequest) -> FetchReply {
        let Some(topics) = &request.topics else {
            return self.fetch_all(&request.group);
        };
        let fetch_topic = |topic: &FetchTopic| {
            let found = |partition: &i32| {
                let value = self.get(&request.group, &topic.name, *partition);
                let value = value.filter(|value| is_same_topic(value.topic_id, topic.id));
                (*partition, value.cloned())
            };
            let partitions = topic.partitions.iter().map(found).collect();
            (topic.name.clone(), partitions)
        };
        topics.iter().map(fetch_topic).collect()
    }

    fn fetch_all(&self, group: &str) -> FetchReply {
        let topics = self.by_group.get(group).into_iter().flatten();
        let all = |partitions: &ByPartition| {
            let each = partitions.iter();
            each.map(|(partition, value)| (*partition, Some(value.clone())))
                .collect()
        };
        topics
            .map(|(topic, partitions)| (topic.clone(), all(partitions)))
            .collect()
    }

    /// Tombstones for all of a group's offsets.
    pub(super) fn tombstones(&self, group: &Arc<str>) -> Vec<GroupRecord> {
        self.of(group)
            .map(|(topic, partition, _)| tombstone(group, topic, partition))
            .collect()
    }

    /// Tombstones for every group's offsets of topics that are gone.
    pub(super) fn topic_tombstones(&self, deleted: &[TopicName]) -> Vec<GroupRecord> {
        let mut records = Vec::new();
        for (group, topics) in &self.by_group {
            for topic in deleted {
                let partitions = topics.get(topic).into_iter().flat_map(BTreeMap::keys);
                records.extend(partitions.map(|partition| tombstone(group, topic, *partition)));
            }
        }
        records
    }

    /// OffsetDelete: a partition without an offset needs no tombstone but is answered all the same.
    pub(super) fn delete(
        &self,
        group: &ClassicGroup,
        request: &DeleteOffsetsRequest,
        records: &mut Vec<GroupRecord>,
    ) -> PartitionErrors {
        let mut reply = Vec::with_capacity(request.topics.len());
        for (topic, partitions) in &request.topics {
            let subscribed = group.is_subscribed_to(topic);
            let mut errors = Vec::with_capacity(partitions.len());
            for &partition in partitions {
                if subscribed {
                    errors.push((partition, ErrorCode::GroupSubscribedToTopic));
                    continue;
                }
                errors.push((partition, ErrorCode::None));
                if self.get(&group.id, topic, partition).is_some() {
                    records.push(tombstone(&group.id, topic, partition));
                }
            }
            reply.push((topic.clone(), errors));
        }
        reply
    }

    /// Adds tombstones for what has expired; returns whether nothing of the group is left.
    pub(super) fn expire(
        &self,
        group: &ClassicGroup,
        now_ms: TimestampMs,
        retention_ms: i64,
        records: &mut Vec<GroupRecord>,
    ) -> bool {
        let mut nothing_left = true;
        for (topic, partition, value) in self.of(&group.id) {
            let expired = !group.is_subscribed_to(topic)
                && expiry_base(group, value).is_some_and(|base| match value.expire_timestamp {
                    Some(expire_timestamp) => now_ms >= expire_timestamp,
                    None => now_ms.saturating_sub(base) >= retention_ms,
                });
            if expired {
                records.push(tombstone(&group.id, topic, partition));
            } else {
                nothing_left = false;
            }
        }
        nothing_left
    }
}

/// From when an offset's retention counts; `None`: it does not expire now.
fn expiry_base(group: &ClassicGroup, value: &CommittedOffset) -> Option<TimestampMs> {
    let committed = value.commit_timestamp;
    match (&group.protocol_type, group.state) {
        // Offsets without members: each on its own.
        (None, _) => Some(committed),
        (Some(_), State::Empty) => Some(group.state_timestamp.unwrap_or(committed)),
        // Members who no longer read the topic.
        (Some(_), State::Stable) if group.is_consumer() && group.subscribed_topics.is_some() => {
            Some(committed)
        }
        _ => None,
    }
}

fn is_same_topic(stored: TopicId, wanted: TopicId) -> bool {
    stored == wanted || stored == TopicId::ZERO || wanted == TopicId::ZERO
}

pub(super) fn tombstone(group: &Arc<str>, topic: &TopicName, partition: i32) -> GroupRecord {
    GroupRecord::Offset {
        group: group.clone(),
        topic: topic.clone(),
        partition,
        value: None,
    }
}

/// Whether an OffsetCommit may go on (`ClassicGroup.validateOffsetCommit`).
pub(super) fn validate_commit(
    group: Option<&ClassicGroup>,
    request: &CommitRequest,
) -> Result<(), ErrorCode> {
    let Some(group) = group else {
        // A consumer that only stores its offsets makes its group by doing so.
        return if request.generation < 0 {
            Ok(())
        } else {
            Err(request.missing_group_error)
        };
    };
    if request.generation < 0 && group.state == State::Empty {
        return Ok(());
    }
    if request.generation >= 0 || !request.member_id.is_empty() || request.instance_id.is_some() {
        group.validate_member(&request.member_id, request.instance_id.as_deref())?;
        if request.generation != group.generation {
            return Err(ErrorCode::IllegalGeneration);
        }
    } else if group.state != State::Empty {
        return Err(ErrorCode::UnknownMemberId);
    }
    if group.state == State::CompletingRebalance {
        return Err(ErrorCode::RebalanceInProgress);
    }
    Ok(())
}

/// The records of a commit that may go on, and each partition's answer.
pub(super) fn commit(
    request: &CommitRequest,
    config: &GroupConfig,
    now_ms: TimestampMs,
    records: &mut Vec<GroupRecord>,
) -> PartitionErrors {
    let expire_timestamp = request.retention_ms.map(|ms| now_ms.saturating_add(ms));
    let mut reply = Vec::with_capacity(request.topics.len());
    for topic in &request.topics {
        let mut errors = Vec::with_capacity(topic.partitions.len());
        for partition in &topic.partitions {
            let record = GroupRecord::Offset {
                group: request.group.clone(),
                topic: topic.name.clone(),
                partition: partition.partition,
                value: Some(committed(topic, partition, now_ms, expire_timestamp)),
            };
            if is_too_long(&partition.metadata, config.offset_metadata_max)
                || record.bytes_max() > config.batch_bytes_max
            {
                errors.push((partition.partition, ErrorCode::OffsetMetadataTooLarge));
                continue;
            }
            errors.push((partition.partition, ErrorCode::None));
            records.push(record);
        }
        reply.push((topic.name.clone(), errors));
    }
    reply
}

fn committed(
    topic: &CommitTopic,
    partition: &CommitPartition,
    now_ms: TimestampMs,
    expire_timestamp: Option<TimestampMs>,
) -> CommittedOffset {
    CommittedOffset {
        offset: partition.offset,
        leader_epoch: partition.leader_epoch,
        metadata: partition.metadata.clone(),
        commit_timestamp: now_ms,
        expire_timestamp,
        topic_id: topic.id,
    }
}

/// `String.length()` of Java counts UTF-16 units.
fn is_too_long(metadata: &str, max: usize) -> bool {
    metadata.len() > max && metadata.encode_utf16().count() > max
}
