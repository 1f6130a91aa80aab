//! ListOffsets: earliest, latest, by time.

use std::collections::BTreeSet;

use futures_util::future::BoxFuture;
use kafka_protocol::messages::list_offsets_request::ListOffsetsPartition;
use kafka_protocol::messages::list_offsets_response::{
    ListOffsetsPartitionResponse, ListOffsetsTopicResponse,
};
use kafka_protocol::messages::{ListOffsetsRequest, ListOffsetsResponse};

use super::{Context, RequestInfo};
use crate::replication::{FetchBound, OffsetQuery, TimestampOffset};
use crate::types::{ErrorCode, NO_EPOCH, NO_OFFSET, NO_TIMESTAMP};

/// `replicaId` of whoever is no broker.
const CONSUMER: i32 = -1;

type Found = Result<TimestampOffset, ErrorCode>;

pub(crate) async fn handle(
    context: &Context,
    request: &RequestInfo,
    body: ListOffsetsRequest,
) -> ListOffsetsResponse {
    let version = request.api_version;
    let bound = match (body.replica_id.0, body.isolation_level) {
        (CONSUMER, 1) => FetchBound::LastStable,
        (CONSUMER, _) => FetchBound::HighWatermark,
        // Followers and debugging tools see all that there is.
        _ => FetchBound::LogEnd,
    };
    let duplicates = duplicates(&body);
    // All are asked first, then answered: the disk works on them side by side.
    let asked: Vec<Vec<BoxFuture<'static, Found>>> = body
        .topics
        .iter()
        .map(|topic| {
            let ask = |asked: &ListOffsetsPartition| {
                let key = (topic.name.as_str(), asked.partition_index);
                if duplicates.contains(&key) {
                    return failed(ErrorCode::InvalidRequest);
                }
                find(context, topic.name.as_str(), asked, bound, version)
            };
            topic.partitions.iter().map(ask).collect()
        })
        .collect();
    let mut topics = Vec::with_capacity(asked.len());
    for (topic, answers) in body.topics.iter().zip(asked) {
        let mut partitions = Vec::with_capacity(answers.len());
        for (asked, answer) in topic.partitions.iter().zip(answers) {
            partitions.push(respond(asked.partition_index, answer.await, version));
        }
        topics.push(
            ListOffsetsTopicResponse::default()
                .with_name(topic.name.clone())
                .with_partitions(partitions),
        );
    }
    ListOffsetsResponse::default().with_topics(topics)
}

/// Partitions that are named more than once.
fn duplicates(body: &ListOffsetsRequest) -> BTreeSet<(&str, i32)> {
    let mut seen = BTreeSet::new();
    let all = body.topics.iter().flat_map(|topic| {
        let partitions = topic.partitions.iter();
        partitions.map(|partition| (topic.name.as_str(), partition.partition_index))
    });
    all.filter(|key| !seen.insert(*key)).collect()
}

fn failed(error: ErrorCode) -> BoxFuture<'static, Found> {
    Box::pin(std::future::ready(Err(error)))
}

fn find(
    context: &Context,
    topic: &str,
    asked: &ListOffsetsPartition,
    bound: FetchBound,
    version: i16,
) -> BoxFuture<'static, Found> {
    // The special timestamps came one by one.
    let query = match asked.timestamp {
        -1 => OffsetQuery::Latest(bound),
        -2 => OffsetQuery::Earliest,
        -3 if version >= 7 => OffsetQuery::MaxTimestamp,
        // All data is local.
        -4 if version >= 8 => OffsetQuery::Earliest,
        -5 if version >= 9 => OffsetQuery::LatestTiered,
        timestamp if timestamp >= 0 => OffsetQuery::Timestamp(timestamp),
        _ => return failed(ErrorCode::UnsupportedVersion),
    };
    match context.replicas.partition(topic, asked.partition_index) {
        Ok(partition) => partition.offset_for(query, bound, asked.current_leader_epoch),
        Err(error) => failed(error),
    }
}

fn respond(index: i32, found: Found, version: i16) -> ListOffsetsPartitionResponse {
    let (error, found) = match found {
        Ok(found) => (ErrorCode::None, found),
        Err(error) => {
            let nothing = TimestampOffset {
                timestamp: NO_TIMESTAMP,
                offset: NO_OFFSET,
                leader_epoch: NO_EPOCH,
            };
            match error {
                // Of old clients, who do not know the code (KIP-207).
                ErrorCode::OffsetNotAvailable if version < 5 => {
                    (ErrorCode::LeaderNotAvailable, nothing)
                }
                error => (error, nothing),
            }
        }
    };
    let response = ListOffsetsPartitionResponse::default()
        .with_partition_index(index)
        .with_error_code(error.code())
        .with_timestamp(found.timestamp)
        .with_offset(found.offset);
    if version >= 4 {
        response.with_leader_epoch(found.leader_epoch)
    } else {
        response
    }
}
