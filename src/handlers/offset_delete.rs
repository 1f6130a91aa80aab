//! OffsetDelete: committed offsets of topics that the group does not read (KIP-496).

use kafka_protocol::messages::offset_delete_request::OffsetDeleteRequestTopic;
use kafka_protocol::messages::offset_delete_response::{
    OffsetDeleteResponsePartition, OffsetDeleteResponseTopic,
};
use kafka_protocol::messages::{OffsetDeleteRequest, OffsetDeleteResponse};

use super::group_names::arc;
use super::{Context, RequestInfo};
use crate::coordinator::{DeleteOffsetsRequest, PartitionErrors};
use crate::metadata::Image;
use crate::types::{ErrorCode, TopicName};

pub(crate) async fn handle(
    context: &Context,
    _request: &RequestInfo,
    body: OffsetDeleteRequest,
) -> OffsetDeleteResponse {
    let image = context.metadata.current();
    let topics = body.topics.iter();
    let delete = DeleteOffsetsRequest {
        group: arc(&body.group_id),
        topics: topics.filter_map(|topic| known(&image, topic)).collect(),
    };
    match context.groups.delete_offsets(delete).await {
        Err(error) => OffsetDeleteResponse::default().with_error_code(error.code()),
        Ok(deleted) => {
            let topics = body.topics.iter();
            let topics = topics.map(|topic| answered(topic, &deleted));
            OffsetDeleteResponse::default().with_topics(topics.collect())
        }
    }
}

/// The partitions of a topic that exist.
fn known(image: &Image, topic: &OffsetDeleteRequestTopic) -> Option<(TopicName, Vec<i32>)> {
    let found = image.topics.get(topic.name.as_str())?;
    let partitions = topic.partitions.iter().map(|p| p.partition_index);
    let exists = |index: &i32| image.partition(&topic.name, *index).is_some();
    Some((found.name.clone(), partitions.filter(exists).collect()))
}

fn answered(
    topic: &OffsetDeleteRequestTopic,
    deleted: &PartitionErrors,
) -> OffsetDeleteResponseTopic {
    let errors = deleted
        .iter()
        .find(|(name, _)| **name == *topic.name.as_str());
    let error = |index: i32| {
        let found = errors.and_then(|(_, partitions)| partitions.iter().find(|(i, _)| *i == index));
        found.map_or(ErrorCode::UnknownTopicOrPartition, |(_, error)| *error)
    };
    let partitions = topic.partitions.iter().map(|partition| {
        OffsetDeleteResponsePartition::default()
            .with_partition_index(partition.partition_index)
            .with_error_code(error(partition.partition_index).code())
    });
    OffsetDeleteResponseTopic::default()
        .with_name(topic.name.clone())
        .with_partitions(partitions.collect())
}
