//! OffsetCommit, by topic names (v10 brings topic ids).

use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::offset_commit_response::{
    OffsetCommitResponsePartition, OffsetCommitResponseTopic,
};
use kafka_protocol::messages::{self, OffsetCommitRequest, OffsetCommitResponse};
use kafka_protocol::protocol::StrBytes;

use super::group_names::{PartitionAnswers, arc, str_bytes};
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
    let mut answer = PartitionAnswers::default();
    for topic in &body.topics {
        let indexes = topic.partitions.iter().map(|p| p.partition_index);
        let unknown = indexes.filter(|index| image.partition(&topic.name, *index).is_none());
        let errors = unknown.map(|index| (index, ErrorCode::UnknownTopicOrPartition));
        answer.add(&arc(&topic.name), errors.collect());
    }
    if !topics.is_empty() {
        let asked = topics.clone();
        let commit = to_request(request.api_version, &body, topics);
        match context.groups.commit_offsets(commit).await {
            Ok(committed) => committed.into_iter().for_each(|(topic, errors)| {
                answer.add(&topic, errors);
            }),
            Err(error) => asked.iter().for_each(|topic| {
                let partitions = topic.partitions.iter();
                let errors = partitions.map(|partition| (partition.partition, error));
                answer.add(&topic.name, errors.collect());
            }),
        }
    }
    let topics = answer.topics.into_iter().map(answered);
    OffsetCommitResponse::default().with_topics(topics.collect())
}

fn to_request(version: i16, body: &OffsetCommitRequest, topics: Vec<CommitTopic>) -> CommitRequest {
    CommitRequest {
        group: arc(&body.group_id),
        generation: body.generation_id_or_member_epoch,
        member_id: arc(&body.member_id),
        instance_id: body.group_instance_id.as_ref().map(arc),
        retention_ms: (version <= 4 && body.retention_time_ms != -1)
            .then_some(body.retention_time_ms),
        missing_group_error: match version >= 9 {
            true => ErrorCode::GroupIdNotFound,
            false => ErrorCode::IllegalGeneration,
        },
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

fn answered((name, errors): (TopicName, Vec<(i32, ErrorCode)>)) -> OffsetCommitResponseTopic {
    let partitions = errors.into_iter().map(|(index, error)| {
        OffsetCommitResponsePartition::default()
            .with_partition_index(index)
            .with_error_code(error.code())
    });
    OffsetCommitResponseTopic::default()
        .with_name(messages::TopicName(str_bytes(&name)))
        .with_partitions(partitions.collect())
}
