//! DescribeProducers: the idempotent producers that a partition knows (KIP-664).

use futures_util::TryFutureExt;
use futures_util::future::BoxFuture;
use kafka_protocol::messages::describe_producers_response::{
    PartitionResponse, ProducerState, TopicResponse,
};
use kafka_protocol::messages::{DescribeProducersRequest, DescribeProducersResponse, ProducerId};
use kafka_protocol::protocol::StrBytes;

use super::{Context, RequestInfo, topic_names};
use crate::replication::ProducerView;
use crate::types::{ApiError, ErrorCode, PartitionId};

pub(crate) async fn handle(
    context: &Context,
    _request: &RequestInfo,
    body: DescribeProducersRequest,
) -> DescribeProducersResponse {
    let begun: Vec<Vec<_>> = body
        .topics
        .iter()
        .map(|topic| {
            let name = topic.name.as_str();
            let partitions = topic.partition_indexes.iter();
            partitions
                .map(|index| begin(context, name, *index))
                .collect()
        })
        .collect();
    let mut topics = Vec::with_capacity(begun.len());
    for (topic, answers) in body.topics.iter().zip(begun) {
        let mut partitions = Vec::with_capacity(answers.len());
        for (index, answer) in topic.partition_indexes.iter().zip(answers) {
            let (error, message, producers) = match answer.await {
                Ok(producers) => (ErrorCode::None, None, producers),
                Err(error) => (error.code, error.message, Vec::new()),
            };
            partitions.push(
                PartitionResponse::default()
                    .with_partition_index(*index)
                    .with_error_code(error.code())
                    .with_error_message(message.map(StrBytes::from_string))
                    .with_active_producers(producers.into_iter().map(state).collect()),
            );
        }
        topics.push(
            TopicResponse::default()
                .with_name(topic.name.clone())
                .with_partitions(partitions),
        );
    }
    DescribeProducersResponse::default().with_topics(topics)
}

fn begin(
    context: &Context,
    topic: &str,
    index: PartitionId,
) -> BoxFuture<'static, Result<Vec<ProducerView>, ApiError>> {
    let found = topic_names::check(topic).and_then(|()| {
        if !context.metadata.current().topics.contains_key(topic) {
            return Err(ApiError::new(
                ErrorCode::UnknownTopicOrPartition,
                "This server does not host this topic-partition.",
            ));
        }
        Ok(context.replicas.partition(topic, index)?)
    });
    match found {
        Ok(partition) => Box::pin(partition.producers().map_err(ApiError::from)),
        Err(error) => Box::pin(std::future::ready(Err(error))),
    }
}

fn state(producer: ProducerView) -> ProducerState {
    ProducerState::default()
        .with_producer_id(ProducerId(producer.producer_id))
        .with_producer_epoch(i32::from(producer.producer_epoch))
        .with_last_sequence(producer.last_sequence)
        .with_last_timestamp(producer.last_timestamp)
        .with_coordinator_epoch(producer.coordinator_epoch)
        .with_current_txn_start_offset(producer.current_txn_start_offset)
}
