//! OffsetFetch: one group below v8, several from then on.

use kafka_protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
};
use kafka_protocol::messages::offset_fetch_response::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartition, OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic, OffsetFetchResponseTopics,
};
use kafka_protocol::messages::{OffsetFetchRequest, OffsetFetchResponse, TopicName};
use kafka_protocol::protocol::StrBytes;

use super::group_names::{ResponseBudget, arc, str_bytes};
use super::{Context, RequestInfo};
use crate::coordinator::{CommittedOffset, FetchReply, FetchRequest, FetchTopic};
use crate::metadata::Image;
use crate::types::{ErrorCode, TopicId};

pub(crate) async fn handle(
    context: &Context,
    request: &RequestInfo,
    body: OffsetFetchRequest,
) -> OffsetFetchResponse {
    let image = context.metadata.current();
    if request.api_version < 8 {
        return handle_one(context, request.api_version, &image, body).await;
    }
    let mut budget = ResponseBudget::new();
    let mut groups = Vec::with_capacity(body.groups.len());
    for group in &body.groups {
        let fetch = FetchRequest {
            group: arc(&group.group_id),
            topics: group
                .topics
                .as_ref()
                .map(|topics| wanted_v8(&image, topics)),
        };
        let mut fetched = Err(ErrorCode::UnknownServerError);
        if !budget.is_spent() {
            fetched = context.groups.fetch_offsets(fetch).await;
            fetched = within(&mut budget, fetched);
        }
        groups.push(answered_group(group, fetched));
    }
    OffsetFetchResponse::default().with_groups(groups)
}

/// What fits into the response, or an error instead.
fn within(
    budget: &mut ResponseBudget,
    fetched: Result<FetchReply, ErrorCode>,
) -> Result<FetchReply, ErrorCode> {
    const FIXED: usize = 64;
    let topics = fetched?;
    let partition = |(_, found): &(i32, Option<CommittedOffset>)| {
        FIXED + found.as_ref().map_or(0, |found| found.metadata.len())
    };
    let bytes = topics.iter().map(|(name, partitions)| {
        FIXED + name.len() + partitions.iter().map(partition).sum::<usize>()
    });
    if budget.take(bytes.sum()) {
        Ok(topics)
    } else {
        Err(ErrorCode::UnknownServerError)
    }
}

async fn handle_one(
    context: &Context,
    version: i16,
    image: &Image,
    body: OffsetFetchRequest,
) -> OffsetFetchResponse {
    // Only v2 and later can ask for everything; an empty list asks for nothing.
    let topics = body.topics.as_deref();
    let fetch = FetchRequest {
        group: arc(&body.group_id),
        topics: topics.map(|topics| wanted(image, topics)),
    };
    let fetched = context.groups.fetch_offsets(fetch).await;
    match within(&mut ResponseBudget::new(), fetched) {
        Ok(topics) => OffsetFetchResponse::default().with_topics(answered(version, topics)),
        Err(error) if version >= 2 => OffsetFetchResponse::default().with_error_code(error.code()),
        // The first version has no place for an error but the partitions.
        Err(error) => {
            let topics = topics.unwrap_or_default().iter();
            let topics = topics.map(|topic| refused(topic, error));
            OffsetFetchResponse::default().with_topics(topics.collect())
        }
    }
}

fn id_of(image: &Image, topic: &str) -> TopicId {
    image
        .topics
        .get(topic)
        .map_or(TopicId::ZERO, |topic| topic.id)
}

fn wanted(image: &Image, topics: &[OffsetFetchRequestTopic]) -> Vec<FetchTopic> {
    let topic = |topic: &OffsetFetchRequestTopic| FetchTopic {
        name: arc(&topic.name),
        id: id_of(image, &topic.name),
        partitions: topic.partition_indexes.clone(),
    };
    topics.iter().map(topic).collect()
}

fn wanted_v8(image: &Image, topics: &[OffsetFetchRequestTopics]) -> Vec<FetchTopic> {
    let topic = |topic: &OffsetFetchRequestTopics| FetchTopic {
        name: arc(&topic.name),
        id: id_of(image, &topic.name),
        partitions: topic.partition_indexes.clone(),
    };
    topics.iter().map(topic).collect()
}

fn answered(version: i16, topics: FetchReply) -> Vec<OffsetFetchResponseTopic> {
    let partition = |(index, found): (i32, Option<CommittedOffset>)| {
        let (offset, epoch, metadata) = values(found);
        OffsetFetchResponsePartition::default()
            .with_partition_index(index)
            .with_committed_offset(offset)
            .with_committed_leader_epoch(if version >= 5 { epoch } else { -1 })
            .with_metadata(Some(metadata))
    };
    let topic = |(name, partitions): (_, Vec<_>)| {
        OffsetFetchResponseTopic::default()
            .with_name(TopicName(str_bytes(&name)))
            .with_partitions(partitions.into_iter().map(partition).collect())
    };
    topics.into_iter().map(topic).collect()
}

fn answered_group(
    group: &OffsetFetchRequestGroup,
    fetched: Result<FetchReply, ErrorCode>,
) -> OffsetFetchResponseGroup {
    let answer = OffsetFetchResponseGroup::default().with_group_id(group.group_id.clone());
    let topics = match fetched {
        Ok(topics) => topics,
        Err(error) => return answer.with_error_code(error.code()),
    };
    let partition = |(index, found): (i32, Option<CommittedOffset>)| {
        let (offset, epoch, metadata) = values(found);
        OffsetFetchResponsePartitions::default()
            .with_partition_index(index)
            .with_committed_offset(offset)
            .with_committed_leader_epoch(epoch)
            .with_metadata(Some(metadata))
    };
    let topic = |(name, partitions): (_, Vec<_>)| {
        OffsetFetchResponseTopics::default()
            .with_name(TopicName(str_bytes(&name)))
            .with_partitions(partitions.into_iter().map(partition).collect())
    };
    answer.with_topics(topics.into_iter().map(topic).collect())
}

fn values(found: Option<CommittedOffset>) -> (i64, i32, StrBytes) {
    match found {
        Some(found) => (found.offset, found.leader_epoch, str_bytes(&found.metadata)),
        None => (-1, -1, StrBytes::default()),
    }
}

fn refused(topic: &OffsetFetchRequestTopic, error: ErrorCode) -> OffsetFetchResponseTopic {
    let partitions = topic.partition_indexes.iter().map(|index| {
        OffsetFetchResponsePartition::default()
            .with_partition_index(*index)
            .with_committed_offset(-1)
            .with_metadata(Some(StrBytes::default()))
            .with_error_code(error.code())
    });
    OffsetFetchResponseTopic::default()
        .with_name(topic.name.clone())
        .with_partitions(partitions.collect())
}
