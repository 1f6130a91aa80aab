//! Metadata: brokers, topics, partitions and their leaders; creates topics that are asked for.

use std::collections::BTreeSet;
use std::sync::Arc;

use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use kafka_protocol::messages::{self, MetadataRequest, MetadataResponse};
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use super::seen::{Seen, seen};
use super::{Context, RequestInfo};
use crate::metadata::{Image, Topic};
use crate::security::{CLUSTER_OPERATIONS, NOT_ASKED, TOPIC_OPERATIONS};
use crate::types::{ApiError, BrokerId, ErrorCode, TopicId, is_valid_topic_name};

pub(crate) async fn handle(
    context: &Context,
    request: &RequestInfo,
    body: MetadataRequest,
) -> MetadataResponse {
    let version = request.api_version;
    if let Some(error) = malformed(version, &body) {
        return refuse(version, &body, error);
    }
    let topics = match body.topics.as_deref() {
        None => None,
        Some([]) if version == 0 => None,
        Some(topics) => Some(topics),
    };
    let may_create =
        context.config.auto_create_topics_enable && (version < 4 || body.allow_auto_topic_creation);
    let asked_operations = body.include_topic_authorized_operations;
    let topics = match topics {
        None => {
            let image = context.metadata.current();
            let answer = |topic: &Arc<Topic>| {
                answer_topic(context, &image, request, topic, asked_operations)
            };
            image.topics.values().map(answer).collect()
        }
        Some(topics) => asked(context, request, topics, may_create, asked_operations).await,
    };
    let image = context.metadata.current();
    let cluster_operations = match body.include_cluster_authorized_operations {
        true => CLUSTER_OPERATIONS,
        false => NOT_ASKED,
    };
    MetadataResponse::default()
        .with_brokers(brokers(&image, request))
        .with_cluster_id(Some(StrBytes::from_string(image.cluster_id.to_string())))
        .with_controller_id(messages::BrokerId(image.controller.map_or(-1, |id| id.0)))
        .with_topics(topics)
        .with_cluster_authorized_operations(cluster_operations)
}

/// Topic ids came with v10, but names may be null only from v12 on.
fn malformed(version: i16, body: &MetadataRequest) -> Option<ErrorCode> {
    let topics = body.topics.as_deref().unwrap_or_default();
    let any = |check: fn(&MetadataRequestTopic) -> bool| topics.iter().any(check);
    if version < 12 && any(|topic| topic.name.is_none() || !topic.topic_id.is_nil()) {
        return Some(ErrorCode::InvalidRequest);
    }
    any(|topic| topic.name.is_none() && topic.topic_id.is_nil())
        .then_some(ErrorCode::UnknownServerError)
}

fn refuse(version: i16, body: &MetadataRequest, error: ErrorCode) -> MetadataResponse {
    let topics = body.topics.iter().flatten().map(|topic| {
        MetadataResponseTopic::default()
            .with_error_code(error.code())
            .with_name(Some(topic.name.clone().unwrap_or_default()))
            .with_topic_id(topic.topic_id)
    });
    MetadataResponse::default()
        .with_controller_id(messages::BrokerId(-1))
        .with_cluster_id(None)
        .with_topics(topics.collect())
        .with_error_code(if version >= 13 { error.code() } else { 0 })
}

async fn asked(
    context: &Context,
    request: &RequestInfo,
    topics: &[MetadataRequestTopic],
    may_create: bool,
    asked_operations: bool,
) -> Vec<MetadataResponseTopic> {
    let mut answers = Vec::with_capacity(topics.len());
    let mut seen = BTreeSet::new();
    for topic in topics {
        let by_id = !topic.topic_id.is_nil();
        let name = topic
            .name
            .as_ref()
            .map(|name| name.as_str())
            .filter(|_| !by_id);
        if !seen.insert((topic.topic_id, name)) {
            continue;
        }
        let image = context.metadata.current();
        let Some(name) = name else {
            let id = TopicId(*topic.topic_id.as_bytes());
            answers.push(match image.topic_by_id(id) {
                Some(topic) => answer_topic(context, &image, request, topic, asked_operations),
                None => unknown(ErrorCode::UnknownTopicId, None, NOT_ASKED)
                    .with_topic_id(topic.topic_id),
            });
            continue;
        };
        let mut error = ErrorCode::UnknownTopicOrPartition;
        if !is_valid_topic_name(name) {
            error = ErrorCode::InvalidTopicException;
        } else if may_create && !image.topics.contains_key(name) {
            // As in Kafka the request that creates a topic is answered as if there were none: the client
            // asks again, and clients' own tests count on the detour.
            if let Err(ApiError { code, message }) = context.admin.auto_create_topic(name).await {
                tracing::info!(topic = name, %code, message, "topic not created");
                error = code;
            }
        }
        answers.push(match image.topics.get(name) {
            Some(topic) => answer_topic(context, &image, request, topic, asked_operations),
            None => unknown(error, Some(name), operations(asked_operations)),
        });
    }
    answers
}

fn operations(asked: bool) -> i32 {
    if asked { TOPIC_OPERATIONS } else { NOT_ASKED }
}

fn unknown(error: ErrorCode, name: Option<&str>, operations: i32) -> MetadataResponseTopic {
    MetadataResponseTopic::default()
        .with_error_code(error.code())
        .with_name(name.map(|name| StrBytes::from_string(name.to_owned()).into()))
        .with_topic_authorized_operations(operations)
}

/// Brokers that have an endpoint on the listener that the request came in on.
fn brokers(image: &Image, request: &RequestInfo) -> Vec<MetadataResponseBroker> {
    let reachable = image.reachable().filter_map(|broker| {
        let endpoint = broker.endpoint(&request.listener)?;
        let answer = MetadataResponseBroker::default()
            .with_node_id(messages::BrokerId(broker.id.0))
            .with_host(StrBytes::from_string(endpoint.host.clone()))
            .with_port(i32::from(endpoint.port))
            .with_rack(broker.rack.clone().map(StrBytes::from_string));
        Some(answer)
    });
    reachable.collect()
}

fn answer_topic(
    context: &Context,
    image: &Image,
    request: &RequestInfo,
    topic: &Topic,
    asked_operations: bool,
) -> MetadataResponseTopic {
    let partitions = (0..topic.partitions.len()).map(|index| {
        let seen = seen(context, image, topic, index);
        answer_partition(image, request, index, &seen)
    });
    MetadataResponseTopic::default()
        .with_name(Some(StrBytes::from_string(topic.name.to_string()).into()))
        .with_topic_id(Uuid::from_bytes(topic.id.0))
        .with_is_internal(topic.is_internal())
        .with_partitions(partitions.collect())
        .with_topic_authorized_operations(operations(asked_operations))
}

fn answer_partition(
    image: &Image,
    request: &RequestInfo,
    index: usize,
    seen: &Seen<'_>,
) -> MetadataResponsePartition {
    let partition = &*seen.partition;
    let leader = partition.leader.and_then(|id| image.reach(id));
    let error = match leader {
        None => ErrorCode::LeaderNotAvailable,
        Some(broker) if broker.endpoint(&request.listener).is_some() => ErrorCode::None,
        Some(_) if request.api_version >= 6 => ErrorCode::ListenerNotFound,
        Some(_) => ErrorCode::LeaderNotAvailable,
    };
    let leader_id = match error {
        ErrorCode::None => partition.leader.map_or(-1, |id| id.0),
        _ => -1,
    };
    MetadataResponsePartition::default()
        .with_error_code(error.code())
        .with_partition_index(i32::try_from(index).unwrap_or(i32::MAX))
        .with_leader_id(messages::BrokerId(leader_id))
        .with_leader_epoch(partition.leader_epoch)
        .with_replica_nodes(ids(&partition.replicas))
        .with_isr_nodes(ids(&partition.isr))
        .with_offline_replicas(ids(&seen.offline))
}

/// Ids as the codec wants them.
pub(super) fn ids(brokers: &[BrokerId]) -> Vec<messages::BrokerId> {
    brokers.iter().map(|id| messages::BrokerId(id.0)).collect()
}
