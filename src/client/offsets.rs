//! Offsets: where logs begin and end, what was written when, what groups have committed.

use std::collections::BTreeMap;
use std::time::Duration;

use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::offset_delete_request::{
    OffsetDeleteRequestPartition, OffsetDeleteRequestTopic,
};
use kafka_protocol::messages::offset_fetch_request::OffsetFetchRequestGroup;
use kafka_protocol::messages::{
    BrokerId, GroupId, ListOffsetsRequest, OffsetCommitRequest, OffsetDeleteRequest,
    OffsetFetchRequest, TopicName,
};

use super::cluster::Client;
use super::connection::CallError;
use super::errors::{checked_code, exception_name};
use super::topics::text;
use super::{ClientError, Result};
use crate::types::{ErrorCode, NO_OFFSET, Offset, TimestampMs, TopicPartition};

/// Versions that know topics by name.
const OFFSET_FETCH_MAX: i16 = 9;
const OFFSET_COMMIT_MAX: i16 = 9;
const LIST_OFFSETS_MAX: i16 = 10;

/// Which offset is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OffsetSpec {
    Latest,
    Earliest,
    /// That of the largest timestamp.
    MaxTimestamp,
    EarliestLocal,
    LatestTiered,
    EarliestPendingUpload,
    /// The first at or after a time.
    At(TimestampMs),
}

impl OffsetSpec {
    /// Kafka's number for it.
    fn timestamp(self) -> TimestampMs {
        match self {
            Self::Latest => -1,
            Self::Earliest => -2,
            Self::MaxTimestamp => -3,
            Self::EarliestLocal => -4,
            Self::LatestTiered => -5,
            Self::EarliestPendingUpload => -6,
            Self::At(timestamp) => timestamp,
        }
    }
}

/// An offset that a leader gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListedOffset {
    /// −1: there is none.
    pub offset: Offset,
    pub timestamp: TimestampMs,
}

/// What a group has committed for a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommittedOffset {
    pub offset: Offset,
    pub leader_epoch: i32,
    pub metadata: String,
}

type Listed = BTreeMap<TopicPartition, Result<ListedOffset>>;

impl Client {
    /// One offset of each partition; a partition's own error if it stays.
    pub async fn list_offsets(
        &mut self,
        wanted: &BTreeMap<TopicPartition, OffsetSpec>,
        read_committed: bool,
    ) -> Result<Listed> {
        let mut listed = Listed::new();
        let mut attempts = self.attempts();
        loop {
            let left: BTreeMap<_, _> = wanted
                .iter()
                .filter(|(partition, _)| !matches!(listed.get(*partition), Some(Ok(_))))
                .map(|(partition, spec)| (partition.clone(), *spec))
                .collect();
            if left.is_empty() {
                return Ok(listed);
            }
            self.list_once(&left, read_committed, &mut listed).await?;
            let retriable = |outcome: &Result<ListedOffset>| matches!(outcome, Err(error) if error.is_retriable());
            if !listed.values().any(retriable) || !attempts.again().await {
                return Ok(listed);
            }
        }
    }

    async fn list_once(
        &mut self,
        wanted: &BTreeMap<TopicPartition, OffsetSpec>,
        read_committed: bool,
        listed: &mut Listed,
    ) -> Result<()> {
        let mut by_leader: BTreeMap<i32, Vec<_>> = BTreeMap::new();
        for (partition, leader) in self.leaders(wanted.keys()).await? {
            let leader = match leader {
                Ok(leader) => leader,
                Err(error) => {
                    listed.insert(partition, Err(error));
                    continue;
                }
            };
            let Some(spec) = wanted.get(&partition) else {
                continue;
            };
            let asked = ListOffsetsPartition::default()
                .with_partition_index(partition.partition)
                .with_current_leader_epoch(-1)
                .with_timestamp(spec.timestamp());
            by_leader
                .entry(leader)
                .or_default()
                .push((partition, asked));
        }
        let requests = by_leader.into_iter().map(|(leader, asked)| {
            let topics = by_topic(asked.iter().map(|(partition, asked)| (partition, asked)));
            let topics = topics.into_iter().map(|(name, partitions)| {
                ListOffsetsTopic::default()
                    .with_name(name)
                    .with_partitions(partitions.into_iter().cloned().collect())
            });
            let request = ListOffsetsRequest::default()
                .with_replica_id(BrokerId(-1))
                .with_isolation_level(i8::from(read_committed))
                .with_topics(topics.collect());
            (leader, request)
        });
        let answers = self.send_each(requests.collect(), LIST_OFFSETS_MAX, Duration::ZERO);
        for (_, outcome) in answers.await {
            match outcome {
                Ok(answer) => {
                    for topic in answer.topics {
                        for partition in topic.partitions {
                            let key =
                                TopicPartition::new(topic.name.as_str(), partition.partition_index);
                            let found = ListedOffset {
                                offset: partition.offset,
                                timestamp: partition.timestamp,
                            };
                            let outcome = checked_code(partition.error_code).map(|()| found);
                            listed.insert(key, outcome);
                        }
                    }
                }
                Err(CallError::Final(error)) => return Err(error),
                Err(CallError::Io(_)) => {} // tried again, as long as there is time
            }
        }
        for partition in wanted.keys() {
            listed
                .entry(partition.clone())
                .or_insert_with(|| Err(ClientError::code(ErrorCode::NetworkException.code())));
        }
        Ok(())
    }

    /// The leader of each partition.
    pub(super) async fn leaders<'a>(
        &mut self,
        partitions: impl Iterator<Item = &'a TopicPartition>,
    ) -> Result<BTreeMap<TopicPartition, Result<i32>>> {
        let partitions: Vec<TopicPartition> = partitions.cloned().collect();
        let mut topics: Vec<String> = partitions.iter().map(|p| p.topic.to_string()).collect();
        topics.sort_unstable();
        topics.dedup();
        let located = self.locate(&topics, false).await?;
        let leader = |partition: &TopicPartition| match located.get(&*partition.topic) {
            Some(Ok(topic)) => {
                let found = topic
                    .partitions
                    .iter()
                    .find(|p| p.partition == partition.partition);
                match found.map(|found| found.leader) {
                    Some(Some(leader)) => Ok(leader),
                    Some(None) => Err(ClientError::code(ErrorCode::LeaderNotAvailable.code())),
                    None => Err(ClientError::code(ErrorCode::UnknownTopicOrPartition.code())),
                }
            }
            Some(Err(error)) => Err(error.clone()),
            None => Err(ClientError::code(ErrorCode::UnknownTopicOrPartition.code())),
        };
        let leaders = partitions
            .iter()
            .map(|partition| (partition.clone(), leader(partition)));
        Ok(leaders.collect())
    }

    /// All that a group has committed.
    pub async fn committed_offsets(
        &mut self,
        group: &str,
    ) -> Result<BTreeMap<TopicPartition, CommittedOffset>> {
        let id = GroupId(text(group));
        let build = |version| {
            let request = OffsetFetchRequest::default();
            match version {
                8.. => {
                    let group = OffsetFetchRequestGroup::default()
                        .with_group_id(id.clone())
                        .with_member_epoch(-1)
                        .with_topics(None);
                    request.with_groups(vec![group])
                }
                _ => request.with_group_id(id.clone()).with_topics(None),
            }
        };
        let call = "offsetFetch(api=OFFSET_FETCH)";
        let max = OFFSET_FETCH_MAX;
        self.send_to_coordinator(group, call, max, build, read_committed_offsets)
            .await
    }

    /// Commits offsets for a group; as a member of it if there is a generation.
    pub async fn commit_offsets(
        &mut self,
        group: &str,
        member: Option<(&str, i32)>,
        offsets: &BTreeMap<TopicPartition, Offset>,
    ) -> Result<()> {
        let (member_id, generation) = member.unwrap_or(("", -1));
        let committed = offsets.iter().map(|(partition, offset)| {
            let committed = OffsetCommitRequestPartition::default()
                .with_partition_index(partition.partition)
                .with_committed_offset(*offset)
                .with_committed_metadata(Some(text("")));
            (partition, committed)
        });
        let topics = by_topic(committed).into_iter().map(|(name, partitions)| {
            OffsetCommitRequestTopic::default()
                .with_name(name)
                .with_partitions(partitions)
        });
        let request = OffsetCommitRequest::default()
            .with_group_id(GroupId(text(group)))
            .with_generation_id_or_member_epoch(generation)
            .with_member_id(text(member_id))
            .with_topics(topics.collect());
        let build = |_| request.clone();
        let read = |answer: kafka_protocol::messages::OffsetCommitResponse| {
            let mut partitions = answer.topics.iter().flat_map(|topic| &topic.partitions);
            partitions.try_for_each(|partition| checked_code(partition.error_code))
        };
        let call = "offsetCommit(api=OFFSET_COMMIT)";
        self.send_to_coordinator(group, call, OFFSET_COMMIT_MAX, build, read)
            .await
    }

    /// Forgets what a group has committed for partitions; the outcome for each.
    pub async fn delete_offsets(
        &mut self,
        group: &str,
        partitions: &[TopicPartition],
    ) -> Result<BTreeMap<TopicPartition, Result<()>>> {
        let mut sorted = partitions.to_vec();
        sorted.sort_unstable();
        let deleted = sorted.iter().map(|partition| {
            let index = partition.partition;
            let deleted = OffsetDeleteRequestPartition::default().with_partition_index(index);
            (partition, deleted)
        });
        let topics = by_topic(deleted).into_iter().map(|(name, partitions)| {
            OffsetDeleteRequestTopic::default()
                .with_name(name)
                .with_partitions(partitions)
        });
        let request = OffsetDeleteRequest::default()
            .with_group_id(GroupId(text(group)))
            .with_topics(topics.collect());
        let read = |answer: kafka_protocol::messages::OffsetDeleteResponse| {
            checked_code(answer.error_code)?;
            let mut outcomes = BTreeMap::new();
            for topic in answer.topics {
                for partition in topic.partitions {
                    let key = TopicPartition::new(topic.name.as_str(), partition.partition_index);
                    outcomes.insert(key, checked_code(partition.error_code));
                }
            }
            Ok(outcomes)
        };
        let call = "offsetDelete(api=OFFSET_DELETE)";
        self.send_to_coordinator(group, call, 0, |_| request.clone(), read)
            .await
    }
}

/// What is asked of partitions (sorted), under the name of each topic, as requests have it.
fn by_topic<'a, P>(
    asked: impl Iterator<Item = (&'a TopicPartition, P)>,
) -> Vec<(TopicName, Vec<P>)> {
    let mut topics: Vec<(TopicName, Vec<P>)> = Vec::new();
    for (partition, asked) in asked {
        let name = TopicName(text(&partition.topic));
        match topics.last_mut().filter(|(topic, _)| *topic == name) {
            Some((_, partitions)) => partitions.push(asked),
            None => topics.push((name, vec![asked])),
        }
    }
    topics
}

fn read_committed_offsets(
    answer: kafka_protocol::messages::OffsetFetchResponse,
) -> Result<BTreeMap<TopicPartition, CommittedOffset>> {
    checked_code(answer.error_code)?;
    let mut committed = BTreeMap::new();
    let mut keep = |topic: &str, partition: i32, offset, epoch, metadata: Option<String>, code| {
        if code == 0 && offset != NO_OFFSET {
            let value = CommittedOffset {
                offset,
                leader_epoch: epoch,
                metadata: metadata.unwrap_or_default(),
            };
            committed.insert(TopicPartition::new(topic, partition), value);
        }
        match code {
            0 => Ok(()),
            code if exception_name(code) == "UnknownTopicOrPartitionException" => Ok(()),
            code => checked_code(code),
        }
    };
    for group in &answer.groups {
        checked_code(group.error_code)?;
        for topic in &group.topics {
            for partition in &topic.partitions {
                keep(
                    topic.name.as_str(),
                    partition.partition_index,
                    partition.committed_offset,
                    partition.committed_leader_epoch,
                    partition.metadata.as_ref().map(ToString::to_string),
                    partition.error_code,
                )?;
            }
        }
    }
    for topic in &answer.topics {
        for partition in &topic.partitions {
            keep(
                topic.name.as_str(),
                partition.partition_index,
                partition.committed_offset,
                partition.committed_leader_epoch,
                partition.metadata.as_ref().map(ToString::to_string),
                partition.error_code,
            )?;
        }
    }
    Ok(committed)
}
