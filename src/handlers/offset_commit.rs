//! OffsetCommit, by topic names (v10 brings topic ids).

use std::collections::BTreeMap;

use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::offset_commit_response::{
    OffsetCommitResponsePartition, OffsetCommitResponseTopic,
};
use kafka_protocol::messages::{OffsetCommitRequest, OffsetCommitResponse};
use kafka_protocol::protocol::StrBytes;

use super::group_names::arc;
use super::{Context, RequestInfo};
use crate::coordinator::{CommitPartition, CommitRequest, CommitTopic};
use crate::metadata::Image;
use crate::types::{ErrorCode, TopicName};

pub(crate) async fn handle(
    context: &Context,
    request: &RequestInfo,
    body: OffsetCommitRequest,
) -> OffsetCommitResponse {
    let image = context.metadata.current();
    let topics = body.topics.iter();
    let topics: Vec<_> = topics.filter_map(|topic| known(&image, topic)).collect();
    let mut outcome = Ok(BTreeMap::new());
    if !topics.is_empty() {
        let commit = to_request(request.api_version, &body, topics);
        let committed = context.groups.commit_offsets(commit).await;
        outcome = committed.map(|topics| by_partition(topics.into_iter()));
    }
    let topics = body.topics.iter();
    let topics = topics.map(|topic| answered(&image, topic, &outcome));
    OffsetCommitResponse::default().with_topics(topics.collect())
}

/// What was committed, to be looked up.
type Outcome = Result<BTreeMap<(TopicName, i32), ErrorCode>, ErrorCode>;

fn by_partition(
    topics: impl Iterator<Item = (TopicName, Vec<(i32, ErrorCode)>)>,
) -> BTreeMap<(TopicName, i32), ErrorCode> {
    let partitions = topics.flat_map(|(topic, partitions)| {
        partitions
            .into_iter()
            .map(move |(partition, error)| ((topic.clone(), partition), error))
    });
    partitions.collect()
}

fn to_request(version: i16, body: &OffsetCommitRequest, topics: Vec<CommitTopic>) -> CommitRequest {
    CommitRequest {
        group: arc(&body.group_id),
        generation: body.generation_id_or_member_epoch,
        member_id: arc(&body.member_id),
        instance_id: body.group_instance_id.as_ref().map(arc),
        retention_ms: (version <= 4 && body.retention_time_ms != -1)
            .then_some(body.retention_time_ms),
        missing_group_error: ErrorCode::IllegalGeneration,
        topics,
    }
}

/// The partitions of a topic that exist.
fn known(image: &Image, topic: &OffsetCommitRequestTopic) -> Option<CommitTopic> {
    let found = image.topics.get(topic.name.as_str())?;
    let exists = |partition: &&OffsetCommitRequestPartition| {
        usize::try_from(partition.partition_index).is_ok_and(|index| index < found.partitions.len())
    };
    let commit = |partition: &OffsetCommitRequestPartition| CommitPartition {
        partition: partition.partition_index,
        offset: partition.committed_offset,
        leader_epoch: partition.committed_leader_epoch,
        metadata: arc(partition
            .committed_metadata
            .as_ref()
            .unwrap_or(&StrBytes::default())),
    };
    let partitions = topic.partitions.iter().filter(exists);
    let partitions: Vec<_> = partitions.map(commit).collect();
    (!partitions.is_empty()).then(|| CommitTopic {
        name: found.name.clone(),
        id: found.id,
        partitions,
    })
}

fn answered(
    image: &Image,
    topic: &OffsetCommitRequestTopic,
    outcome: &Outcome,
) -> OffsetCommitResponseTopic {
    let name = image
        .topics
        .get(topic.name.as_str())
        .map(|t| t.name.clone());
    let error = |partition: i32| {
        let exists = image.partition(&topic.name, partition).is_some();
        match (&name, outcome) {
            (Some(name), Ok(committed)) if exists => {
                let error = committed.get(&(name.clone(), partition)).copied();
                error.unwrap_or(ErrorCode::UnknownServerError)
            }
            (Some(_), Err(error)) if exists => *error,
            _ => ErrorCode::UnknownTopicOrPartition,
        }
    };
    let partitions = topic.partitions.iter().map(|partition| {
        OffsetCommitResponsePartition::default()
            .with_partition_index(partition.partition_index)
            .with_error_code(error(partition.partition_index).code())
    });
    OffsetCommitResponseTopic::default()
        .with_name(topic.name.clone())
        .with_partitions(partitions.collect())
}
