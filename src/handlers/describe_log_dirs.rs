//! DescribeLogDirs: the log directories, what is in them and how much room they have.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use kafka_protocol::messages::describe_log_dirs_response::{
    DescribeLogDirsPartition, DescribeLogDirsResult, DescribeLogDirsTopic,
};
use kafka_protocol::messages::{self, ApiKey, DescribeLogDirsRequest, DescribeLogDirsResponse};
use kafka_protocol::protocol::{Decodable, StrBytes};

use super::dispatch::encode;
use super::{Context, RequestInfo, error_counts};
use crate::protocol::log_dirs::{DESCRIBE_LOG_DIRS_VERSION, encode_describe_log_dirs};
use crate::protocol::{Chunk, Completion, Response, guard};
use crate::replication::LogDirDescription;
use crate::types::{ErrorCode, PartitionId, TopicName, TopicPartition};

/// The newest version that the codec has; the requests of version 5 are like those of it.
const CODEC_VERSION: i16 = DESCRIBE_LOG_DIRS_VERSION - 1;

pub(crate) fn dispatch(
    context: Arc<Context>,
    request: Arc<RequestInfo>,
    mut body: Bytes,
) -> BoxFuture<'static, Completion> {
    Box::pin(async move {
        let version = request.api_version;
        if let Err(error) = guard::check(request.api_key, version, &body) {
            return Completion::Close(format!("malformed DescribeLogDirs v{version}: {error}"));
        }
        let body = match DescribeLogDirsRequest::decode(&mut body, version.min(CODEC_VERSION)) {
            Ok(body) => body,
            Err(error) => {
                return Completion::Close(format!("malformed DescribeLogDirs v{version}: {error}"));
            }
        };
        let response = handle(&context, &request, body).await;
        if version <= CODEC_VERSION {
            return encode(&context, &request, &response);
        }
        error_counts::count(&context, &request, &response);
        let header_version = ApiKey::DescribeLogDirs.response_header_version(version);
        let body = vec![Chunk::Bytes(encode_describe_log_dirs(&response))];
        match Response::frame(request.correlation_id, header_version, body) {
            Ok(response) => Completion::Ready(response),
            Err(error) => Completion::Close(error.to_string()),
        }
    })
}

async fn handle(
    context: &Context,
    request: &RequestInfo,
    body: DescribeLogDirsRequest,
) -> DescribeLogDirsResponse {
    // Null asks for all.
    let asked: Option<BTreeSet<(&str, PartitionId)>> = body.topics.as_ref().map(|topics| {
        let pairs = topics.iter().flat_map(|topic| {
            let partitions = topic.partitions.iter();
            partitions.map(|index| (topic.topic.as_str(), *index))
        });
        pairs.collect()
    });
    let wanted = |partition: &TopicPartition| {
        let key = (&*partition.topic, partition.partition);
        asked.as_ref().is_none_or(|asked| asked.contains(&key))
    };
    let directories = context.replicas.describe_log_dirs(wanted).await;
    let version = request.api_version;
    let results = directories
        .into_iter()
        .map(|directory| respond(directory, version));
    DescribeLogDirsResponse::default().with_results(results.collect())
}

fn respond(directory: LogDirDescription, version: i16) -> DescribeLogDirsResult {
    let path = StrBytes::from_string(directory.path.to_string_lossy().into_owned());
    let mut result = DescribeLogDirsResult::default().with_log_dir(path);
    if !directory.online {
        return result.with_error_code(ErrorCode::KafkaStorageError.code());
    }
    let mut topics: BTreeMap<TopicName, Vec<DescribeLogDirsPartition>> = BTreeMap::new();
    for (partition, bytes) in directory.partitions {
        topics.entry(partition.topic).or_default().push(
            DescribeLogDirsPartition::default()
                .with_partition_index(partition.partition)
                .with_partition_size(i64::try_from(bytes).unwrap_or(i64::MAX)),
        );
    }
    let topics = topics.into_iter().map(|(name, partitions)| {
        DescribeLogDirsTopic::default()
            .with_name(messages::TopicName(StrBytes::from_string(name.to_string())))
            .with_partitions(partitions)
    });
    result = result.with_topics(topics.collect());
    if version >= 4 {
        let bytes = |bytes| i64::try_from(bytes).unwrap_or(i64::MAX);
        result = result
            .with_total_bytes(bytes(directory.total_bytes))
            .with_usable_bytes(bytes(directory.usable_bytes));
    }
    result
}
