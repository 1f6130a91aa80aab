//! CreatePartitions.

use std::collections::BTreeMap;

use kafka_protocol::messages::create_partitions_request::CreatePartitionsTopic;
use kafka_protocol::messages::create_partitions_response::CreatePartitionsTopicResult;
use kafka_protocol::messages::{CreatePartitionsRequest, CreatePartitionsResponse, TopicName};
use kafka_protocol::protocol::StrBytes;

use super::{Context, RequestInfo, admin_timeout};
use crate::controller::NewPartitions;
use crate::types::{ApiError, BrokerId, ErrorCode};

pub(crate) async fn handle(
    context: &Context,
    _request: &RequestInfo,
    body: CreatePartitionsRequest,
) -> CreatePartitionsResponse {
    let mut count: BTreeMap<TopicName, usize> = BTreeMap::new();
    for topic in &body.topics {
        *count.entry(topic.name.clone()).or_default() += 1;
    }
    let (wanted, _): (Vec<_>, Vec<_>) = body
        .topics
        .into_iter()
        .partition(|topic| count.get(&topic.name) == Some(&1));
    let twice = count.into_iter().filter(|(_, times)| *times > 1);
    let mut answers: Vec<_> = twice
        .map(|(name, _)| {
            let error = ApiError::new(ErrorCode::InvalidRequest, "Duplicate topic name.");
            answer(name, Err(error))
        })
        .collect();
    let topics = wanted.iter().map(new_partitions).collect();
    let timeout = admin_timeout(body.timeout_ms);
    let results = context
        .admin
        .create_partitions(topics, body.validate_only, timeout)
        .await;
    let rest = wanted.into_iter().zip(results);
    answers.extend(rest.map(|(topic, result)| answer(topic.name, result)));
    CreatePartitionsResponse::default().with_results(answers)
}

fn new_partitions(topic: &CreatePartitionsTopic) -> NewPartitions {
    let replicas =
        |ids: &[kafka_protocol::messages::BrokerId]| ids.iter().map(|id| BrokerId(id.0)).collect();
    NewPartitions {
        name: topic.name.as_str().into(),
        count: topic.count,
        assignments: topic.assignments.as_ref().map(|assignments| {
            let lists = assignments.iter();
            lists.map(|list| replicas(&list.broker_ids)).collect()
        }),
    }
}

fn answer(name: TopicName, result: Result<(), ApiError>) -> CreatePartitionsTopicResult {
    let answer = CreatePartitionsTopicResult::default().with_name(name);
    match result {
        Ok(()) => answer.with_error_message(None),
        Err(error) => answer
            .with_error_code(error.code.code())
            .with_error_message(error.message.map(StrBytes::from_string)),
    }
}
