//! DeleteRecords: moves the log start of partitions up, durably.

use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use kafka_protocol::messages::delete_records_request::DeleteRecordsPartition;
use kafka_protocol::messages::delete_records_response::{
    DeleteRecordsPartitionResult, DeleteRecordsTopicResult,
};
use kafka_protocol::messages::{DeleteRecordsRequest, DeleteRecordsResponse};

use super::{Context, RequestInfo};
use crate::types::{ErrorCode, NO_OFFSET, Offset, is_internal_topic};

pub(crate) async fn handle(
    context: &Context,
    request: &RequestInfo,
    body: DeleteRecordsRequest,
) -> DeleteRecordsResponse {
    let timeout_ms = u64::try_from(body.timeout_ms).unwrap_or(0);
    let deadline = request.received + Duration::from_millis(timeout_ms);
    let begun: Vec<Vec<_>> = body
        .topics
        .iter()
        .map(|topic| {
            let name = topic.name.as_str();
            let partitions = topic.partitions.iter();
            partitions
                .map(|asked| begin(context, name, asked, deadline))
                .collect()
        })
        .collect();
    let mut topics = Vec::with_capacity(begun.len());
    for (topic, answers) in body.topics.iter().zip(begun) {
        let mut partitions = Vec::with_capacity(answers.len());
        for (asked, answer) in topic.partitions.iter().zip(answers) {
            let (error, low_watermark) = match answer.await {
                Ok(low_watermark) => (ErrorCode::None, low_watermark),
                Err(error) => (error, NO_OFFSET),
            };
            partitions.push(
                DeleteRecordsPartitionResult::default()
                    .with_partition_index(asked.partition_index)
                    .with_low_watermark(low_watermark)
                    .with_error_code(error.code()),
            );
        }
        topics.push(
            DeleteRecordsTopicResult::default()
                .with_name(topic.name.clone())
                .with_partitions(partitions),
        );
    }
    DeleteRecordsResponse::default().with_topics(topics)
}

/// Starts at the call; partitions proceed side by side.
fn begin(
    context: &Context,
    topic: &str,
    asked: &DeleteRecordsPartition,
    deadline: Instant,
) -> BoxFuture<'static, Result<Offset, ErrorCode>> {
    let failed = |error| Box::pin(std::future::ready(Err(error)));
    match context.replicas.partition(topic, asked.partition_index) {
        Ok(_) if is_internal_topic(topic) => failed(ErrorCode::InvalidTopicException),
        Ok(partition) => partition.delete_records(asked.offset, deadline),
        Err(error) => failed(error),
    }
}
