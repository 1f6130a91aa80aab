//! OffsetForLeaderEpoch: where a leader's term ends in the log (KIP-101, KIP-320).

use futures_util::future::BoxFuture;
use kafka_protocol::messages::offset_for_leader_epoch_request::OffsetForLeaderPartition;
use kafka_protocol::messages::offset_for_leader_epoch_response::{
    EpochEndOffset, OffsetForLeaderTopicResult,
};
use kafka_protocol::messages::{OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse};

use super::{Context, RequestInfo};
use crate::replication::FetchBound;
use crate::types::{ErrorCode, LeaderEpoch, NO_EPOCH, NO_OFFSET, Offset};

pub(crate) async fn handle(
    context: &Context,
    _request: &RequestInfo,
    body: OffsetForLeaderEpochRequest,
) -> OffsetForLeaderEpochResponse {
    // Followers see all that there is.
    let bound = match body.replica_id.0 {
        0.. => FetchBound::LogEnd,
        _ => FetchBound::HighWatermark,
    };
    let begun: Vec<Vec<_>> = body
        .topics
        .iter()
        .map(|topic| {
            let name = topic.topic.as_str();
            let partitions = topic.partitions.iter();
            partitions
                .map(|asked| begin(context, name, asked, bound))
                .collect()
        })
        .collect();
    let mut topics = Vec::with_capacity(begun.len());
    for (topic, answers) in body.topics.iter().zip(begun) {
        let mut partitions = Vec::with_capacity(answers.len());
        for (asked, answer) in topic.partitions.iter().zip(answers) {
            let (error, (epoch, end_offset)) = match answer.await {
                Ok(found) => (ErrorCode::None, found),
                Err(error) => (error, (NO_EPOCH, NO_OFFSET)),
            };
            partitions.push(
                EpochEndOffset::default()
                    .with_error_code(error.code())
                    .with_partition(asked.partition)
                    .with_leader_epoch(epoch)
                    .with_end_offset(end_offset),
            );
        }
        topics.push(
            OffsetForLeaderTopicResult::default()
                .with_topic(topic.topic.clone())
                .with_partitions(partitions),
        );
    }
    OffsetForLeaderEpochResponse::default().with_topics(topics)
}

fn begin(
    context: &Context,
    topic: &str,
    asked: &OffsetForLeaderPartition,
    bound: FetchBound,
) -> BoxFuture<'static, Result<(LeaderEpoch, Offset), ErrorCode>> {
    match context.replicas.partition(topic, asked.partition) {
        Ok(partition) => {
            partition.end_offset_for_epoch(asked.leader_epoch, asked.current_leader_epoch, bound)
        }
        Err(error) => Box::pin(std::future::ready(Err(error))),
    }
}
