//! DescribeTopicPartitions: partitions page by page, topics in order of their names (KIP-966).

use std::collections::BTreeSet;

use kafka_protocol::messages::describe_topic_partitions_response::{
    Cursor, DescribeTopicPartitionsResponsePartition, DescribeTopicPartitionsResponseTopic,
};
use kafka_protocol::messages::{
    self, DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse, TopicName,
};
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use super::metadata::ids;
use super::seen::seen;
use super::{Context, RequestInfo};
use crate::metadata::{Image, Topic};
use crate::security::{NOT_ASKED, TOPIC_OPERATIONS};
use crate::types::{ErrorCode, is_valid_topic_name};

pub(crate) async fn handle(
    context: &Context,
    _request: &RequestInfo,
    body: DescribeTopicPartitionsRequest,
) -> DescribeTopicPartitionsResponse {
    let image = context.metadata.current();
    let (from_topic, from_partition) = match &body.cursor {
        Some(cursor) => (cursor.topic_name.as_str(), cursor.partition_index),
        None => ("", 0),
    };
    let names: BTreeSet<&str> = match &body.topics[..] {
        [] => image.topics.keys().map(|name| &**name).collect(),
        topics => topics.iter().map(|topic| topic.name.as_str()).collect(),
    };
    let names: BTreeSet<&str> = names.range(from_topic..).copied().collect();
    let cursor_is_asked = body.topics.is_empty() || names.contains(from_topic);
    if body.cursor.is_some() && (!cursor_is_asked || from_partition < 0) {
        let error = ErrorCode::InvalidRequest;
        let refused = |topic: &_| failed(error, topic, NOT_ASKED);
        let topics = body
            .topics
            .iter()
            .map(|topic| refused(topic.name.as_str()))
            .collect();
        return DescribeTopicPartitionsResponse::default().with_topics(topics);
    }

    let limit = context.config.max_request_partition_size_limit;
    let mut room = usize::try_from(body.response_partition_limit.min(limit))
        .unwrap_or(0)
        .max(1);
    let mut response = DescribeTopicPartitionsResponse::default();
    for name in names {
        let Some(topic) = image.topics.get(name) else {
            let error = match is_valid_topic_name(name) {
                true => ErrorCode::UnknownTopicOrPartition,
                false => ErrorCode::InvalidTopicException,
            };
            response.topics.push(failed(error, name, TOPIC_OPERATIONS));
            continue;
        };
        let first = if name == from_topic {
            usize::try_from(from_partition).unwrap_or(0)
        } else {
            0
        };
        if room == 0 {
            response.next_cursor = Some(cursor(name, first));
            break;
        }
        let end = topic.partitions.len().min(first.saturating_add(room));
        response
            .topics
            .push(page(context, &image, topic, first, end));
        room -= end.saturating_sub(first);
        if end < topic.partitions.len() {
            response.next_cursor = Some(cursor(name, end));
            break;
        }
    }
    response
}

fn cursor(topic: &str, partition: usize) -> Cursor {
    Cursor::default()
        .with_topic_name(TopicName(StrBytes::from_string(topic.to_owned())))
        .with_partition_index(i32::try_from(partition).unwrap_or(i32::MAX))
}

fn failed(error: ErrorCode, name: &str, operations: i32) -> DescribeTopicPartitionsResponseTopic {
    DescribeTopicPartitionsResponseTopic::default()
        .with_error_code(error.code())
        .with_name(Some(TopicName(StrBytes::from_string(name.to_owned()))))
        .with_topic_authorized_operations(operations)
}

fn page(
    context: &Context,
    image: &Image,
    topic: &Topic,
    first: usize,
    end: usize,
) -> DescribeTopicPartitionsResponseTopic {
    let partitions = (first..end).map(|index| {
        let seen = seen(context, image, topic, index);
        let partition = &*seen.partition;
        let online = partition.leader.filter(|id| image.reach(*id).is_some());
        let error = match (online, partition.leader) {
            (None, Some(_)) => ErrorCode::LeaderNotAvailable,
            // No leader at all is no error here, unlike in Metadata.
            _ => ErrorCode::None,
        };
        DescribeTopicPartitionsResponsePartition::default()
            .with_error_code(error.code())
            .with_partition_index(i32::try_from(index).unwrap_or(i32::MAX))
            .with_leader_id(messages::BrokerId(online.map_or(-1, |id| id.0)))
            .with_leader_epoch(partition.leader_epoch)
            .with_replica_nodes(ids(&partition.replicas))
            .with_isr_nodes(ids(&partition.isr))
            .with_eligible_leader_replicas(Some(ids(&seen.eligible)))
            .with_last_known_elr(Some(ids(&seen.eligible)))
            .with_offline_replicas(ids(&seen.offline))
    });
    DescribeTopicPartitionsResponseTopic::default()
        .with_name(Some(TopicName(StrBytes::from_string(
            topic.name.to_string(),
        ))))
        .with_topic_id(Uuid::from_bytes(topic.id.0))
        .with_is_internal(topic.is_internal())
        .with_partitions(partitions.collect())
        .with_topic_authorized_operations(TOPIC_OPERATIONS)
}
