//! OffsetDelete: committed offsets of topics that the group does not read (KIP-496).

use kafka_protocol::messages::offset_delete_request::OffsetDeleteRequestTopic;
use kafka_protocol::messages::offset_delete_response::{
    OffsetDeleteResponsePartition, OffsetDeleteResponseTopic,
};
use kafka_protocol::messages::{self, OffsetDeleteRequest, OffsetDeleteResponse};

use super::group_names::{PartitionAnswers, arc, str_bytes};
use super::{Context, RequestInfo};
use crate::coordinator::DeleteOffsetsRequest;
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
            let mut answer = PartitionAnswers::default();
            for topic in &body.topics {
                let indexes = topic.partitions.iter().map(|p| p.partition_index);
                let unknown =
                    indexes.filter(|index| image.partition(&topic.name, *index).is_none());
                let errors = unknown.map(|index| (index, ErrorCode::UnknownTopicOrPartition));
                answer.add(&arc(&topic.name), errors.collect());
            }
            for (topic, errors) in deleted {
                answer.add(&topic, errors);
            }
            let topics = answer.topics.into_iter().map(answered);
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

fn answered((name, errors): (TopicName, Vec<(i32, ErrorCode)>)) -> OffsetDeleteResponseTopic {
    let partitions = errors.into_iter().map(|(index, error)| {
        OffsetDeleteResponsePartition::default()
            .with_partition_index(index)
            .with_error_code(error.code())
    });
    OffsetDeleteResponseTopic::default()
        .with_name(messages::TopicName(str_bytes(&name)))
        .with_partitions(partitions.collect())
}
