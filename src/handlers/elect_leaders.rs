//! ElectLeaders: preferred and unclean elections (KIP-460).

use kafka_protocol::messages::elect_leaders_response::{PartitionResult, ReplicaElectionResult};
use kafka_protocol::messages::{ElectLeadersRequest, ElectLeadersResponse, TopicName};
use kafka_protocol::protocol::StrBytes;

use super::{Context, RequestInfo, admin_timeout};
use crate::controller::ElectionKind;
use crate::types::{ApiError, ErrorCode, PartitionId};

const PREFERRED: i8 = 0;
const UNCLEAN: i8 = 1;

pub(crate) async fn handle(
    context: &Context,
    request: &RequestInfo,
    body: ElectLeadersRequest,
) -> ElectLeadersResponse {
    let version = request.api_version;
    let is_of_all = body.topic_partitions.is_none();
    let asked = match &body.topic_partitions {
        Some(topics) => topics
            .iter()
            .map(|topic| (topic.topic.clone(), topic.partitions.clone()))
            .collect(),
        None => all(context),
    };
    if asked.is_empty() {
        return ElectLeadersResponse::default();
    }
    let kind = match body.election_type {
        PREFERRED => ElectionKind::Preferred,
        UNCLEAN => ElectionKind::Unclean,
        other => {
            let message = format!("Unknown election type {other}");
            let error = ApiError::new(ErrorCode::InvalidRequest, message);
            return refuse(version, asked, is_of_all, error);
        }
    };
    let partitions = asked.iter().flat_map(|(topic, partitions)| {
        let name: crate::types::TopicName = topic.as_str().into();
        partitions.iter().map(move |index| (name.clone(), *index))
    });
    let timeout = admin_timeout(body.timeout_ms);
    let elected = context
        .admin
        .elect_leaders(partitions.collect(), kind, timeout)
        .await;
    let elected = match elected {
        Ok(elected) => elected,
        Err(error) => return refuse(version, asked, is_of_all, error),
    };
    let mut elected = elected.into_iter();
    let results = asked.into_iter().map(|(topic, partitions)| {
        let results = elected.by_ref().take(partitions.len());
        // Whoever asks about all hears only of those where something had to be done.
        let results = results.filter(|(_, _, result)| {
            let code = result.as_ref().err().map(|error| error.code);
            !(is_of_all && code == Some(ErrorCode::ElectionNotNeeded))
        });
        let results = results.map(|(_, index, result)| answer(index, result));
        ReplicaElectionResult::default()
            .with_topic(topic)
            .with_partition_result(results.collect())
    });
    ElectLeadersResponse::default().with_replica_election_results(results.collect())
}

fn all(context: &Context) -> Vec<(TopicName, Vec<PartitionId>)> {
    let image = context.metadata.current();
    let of = |topic: &std::sync::Arc<crate::metadata::Topic>| {
        let name = TopicName(StrBytes::from_string(topic.name.to_string()));
        let count = PartitionId::try_from(topic.partitions.len()).unwrap_or(PartitionId::MAX);
        (name, (0..count).collect())
    };
    image.topics.values().map(of).collect()
}

fn answer(index: PartitionId, result: Result<(), ApiError>) -> PartitionResult {
    let answer = PartitionResult::default().with_partition_id(index);
    match result {
        Ok(()) => answer.with_error_message(None),
        Err(error) => answer
            .with_error_code(error.code.code())
            .with_error_message(error.message.map(StrBytes::from_string)),
    }
}

/// The error for the request, and for each partition that it named.
fn refuse(
    version: i16,
    asked: Vec<(TopicName, Vec<PartitionId>)>,
    is_of_all: bool,
    error: ApiError,
) -> ElectLeadersResponse {
    let code = error.code.code();
    let named = asked.into_iter().filter(|_| !is_of_all);
    let results = named.map(|(topic, partitions)| {
        let partitions = partitions.into_iter();
        let results = partitions.map(|index| answer(index, Err(error.clone())));
        ReplicaElectionResult::default()
            .with_topic(topic)
            .with_partition_result(results.collect())
    });
    ElectLeadersResponse::default()
        .with_error_code(if version >= 1 { code } else { 0 })
        .with_replica_election_results(results.collect())
}
