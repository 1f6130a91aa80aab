//! CreateTopics.

use std::collections::BTreeMap;

use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::create_topics_response::{
    CreatableTopicConfigs, CreatableTopicResult,
};
use kafka_protocol::messages::{CreateTopicsRequest, CreateTopicsResponse};
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use super::{Context, RequestInfo, admin_timeout};
use crate::config::{BrokerValues, Source, keys};
use crate::controller::{CreatedTopic, NewTopic};
use crate::types::{ApiError, BrokerId, ErrorCode};

const CLUSTER_METADATA: &str = "__cluster_metadata";

pub(crate) async fn handle(
    context: &Context,
    request: &RequestInfo,
    body: CreateTopicsRequest,
) -> CreateTopicsResponse {
    let version = request.api_version;
    let mut count = BTreeMap::new();
    for topic in &body.topics {
        *count.entry(topic.name.clone()).or_insert(0) += 1;
    }
    let mut wanted = Vec::new();
    let mut refused = Vec::new();
    for topic in body.topics {
        let name = topic.name.clone();
        match count.get_mut(&name) {
            Some(1) if name.as_str() == CLUSTER_METADATA => refused.push((
                name,
                format!("Creation of internal topic {CLUSTER_METADATA} is prohibited."),
            )),
            Some(1) => wanted.push(topic),
            // The first of several answers for all of them.
            Some(several @ 2..) => {
                *several = 0;
                refused.push((name, "Duplicate topic name.".to_owned()));
            }
            _ => {}
        }
    }
    let topics = wanted.iter().map(new_topic).collect();
    let timeout = admin_timeout(body.timeout_ms);
    let results = context
        .admin
        .create_topics(topics, body.validate_only, timeout)
        .await;
    let image = context.metadata.current();
    let none = BTreeMap::new();
    let own = image.broker_configs.get(&context.config.node_id);
    let values = context
        .config
        .values
        .with_dynamic(&image.broker_defaults, own.unwrap_or(&none));
    let mut answers: Vec<_> = wanted
        .into_iter()
        .zip(results)
        .map(|(topic, result)| {
            let answer = CreatableTopicResult::default().with_name(topic.name);
            match result {
                Ok(created) => success(answer, version, &values, &created),
                Err(error) => failure(answer, version, error),
            }
        })
        .collect();
    answers.extend(refused.into_iter().map(|(name, message)| {
        let error = ApiError::new(ErrorCode::InvalidRequest, message);
        failure(
            CreatableTopicResult::default().with_name(name),
            version,
            error,
        )
    }));
    CreateTopicsResponse::default().with_topics(answers)
}

fn new_topic(topic: &CreatableTopic) -> NewTopic {
    let assignments = topic.assignments.iter().map(|assignment| {
        let replicas = assignment.broker_ids.iter().map(|id| BrokerId(id.0));
        (assignment.partition_index, replicas.collect())
    });
    let configs = topic.configs.iter().map(|config| {
        let value = config.value.as_ref().map(|value| value.to_string());
        (config.name.to_string(), value)
    });
    NewTopic {
        name: topic.name.to_string(),
        num_partitions: topic.num_partitions,
        replication_factor: topic.replication_factor,
        assignments: assignments.collect(),
        configs: configs.collect(),
    }
}

fn success(
    answer: CreatableTopicResult,
    version: i16,
    values: &BrokerValues,
    created: &CreatedTopic,
) -> CreatableTopicResult {
    let mut answer = answer.with_error_message(None);
    if version >= 5 {
        answer = answer
            .with_num_partitions(created.num_partitions)
            .with_replication_factor(created.replication_factor)
            .with_configs(Some(effective(values, created)));
    }
    if version >= 7 {
        answer = answer.with_topic_id(Uuid::from_bytes(created.id.0));
    }
    answer
}

fn failure(answer: CreatableTopicResult, version: i16, error: ApiError) -> CreatableTopicResult {
    let answer = answer
        .with_error_code(error.code.code())
        .with_error_message(error.message.map(StrBytes::from_string));
    if version < 5 {
        return answer;
    }
    answer
        .with_num_partitions(-1)
        .with_replication_factor(-1)
        .with_configs(Some(Vec::new()))
}

/// Every config of the topic, by name.
fn effective(values: &BrokerValues, created: &CreatedTopic) -> Vec<CreatableTopicConfigs> {
    let shown = keys::topic_keys()
        .iter()
        .filter(|key| !key.is_internal() || created.overrides.contains_key(key.name));
    shown
        .map(|key| {
            let (value, source) = match created.overrides.get(key.name) {
                Some(value) => (Some(value.clone()), Source::Topic),
                None => (
                    values
                        .for_topic(key.name)
                        .or_else(|| key.default.map(str::to_owned)),
                    source_of(values, key.name),
                ),
            };
            CreatableTopicConfigs::default()
                .with_name(StrBytes::from_static_str(key.name))
                .with_value(
                    value
                        .filter(|_| !key.is_sensitive())
                        .map(StrBytes::from_string),
                )
                .with_read_only(false)
                .with_config_source(source.code())
                .with_is_sensitive(key.is_sensitive())
        })
        .collect()
}

/// Which of the broker's sources gives a topic key its value.
fn source_of(values: &BrokerValues, topic_key: &str) -> Source {
    let layers = [
        (values.dynamic_broker(), Source::DynamicBroker),
        (values.dynamic_defaults(), Source::DynamicDefault),
        (values.statics(), Source::Static),
    ];
    keys::topic_sources(topic_key)
        .iter()
        .find_map(|key| {
            let set = layers
                .iter()
                .find(|(layer, _)| layer.contains_key(key.name));
            set.map(|(_, source)| *source)
        })
        .unwrap_or(Source::Default)
}
