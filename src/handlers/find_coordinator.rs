//! FindCoordinator: who coordinates a group. Makes `__consumer_offsets` where it does not exist.

use kafka_protocol::messages::find_coordinator_response::Coordinator;
use kafka_protocol::messages::{BrokerId, FindCoordinatorRequest, FindCoordinatorResponse};
use kafka_protocol::protocol::StrBytes;

use super::{Context, RequestInfo};
use crate::coordinator::GROUP_METADATA_TOPIC;
use crate::metadata::Endpoint;
use crate::types::{ApiError, ErrorCode};

const KEY_TYPE_GROUP: i8 = 0;
const KEY_TYPE_TRANSACTION: i8 = 1;
const KEY_TYPE_SHARE: i8 = 2;

/// Kafka's sentences for these codes.
const INVALID_REQUEST: &str = "This most likely occurs because of a request being malformed by the \
    client library or the message was sent to an incompatible broker. See the broker logs for more \
    details.";
const NOT_AVAILABLE: &str = "The coordinator is not available.";

pub(crate) async fn handle(
    context: &Context,
    request: &RequestInfo,
    body: FindCoordinatorRequest,
) -> FindCoordinatorResponse {
    let version = request.api_version;
    if version >= 4 {
        let mut coordinators = Vec::with_capacity(body.coordinator_keys.len());
        for key in body.coordinator_keys {
            let found = find(context, request, body.key_type, &key).await;
            coordinators.push(coordinator(key, found));
        }
        return FindCoordinatorResponse::default().with_coordinators(coordinators);
    }
    match find(context, request, body.key_type, &body.key).await {
        Ok((node, endpoint)) => FindCoordinatorResponse::default()
            .with_error_message(message(version, "NONE"))
            .with_node_id(BrokerId(node))
            .with_host(StrBytes::from_string(endpoint.host))
            .with_port(i32::from(endpoint.port)),
        Err(error) => FindCoordinatorResponse::default()
            .with_error_code(error.code.code())
            .with_error_message(message(version, &text(&error)))
            .with_node_id(BrokerId(-1))
            .with_port(-1),
    }
}

fn message(version: i16, text: &str) -> Option<StrBytes> {
    (version >= 1).then(|| StrBytes::from_string(text.to_owned()))
}

fn text(error: &ApiError) -> String {
    let message = error.message.clone();
    message.unwrap_or_else(|| NOT_AVAILABLE.to_owned())
}

fn coordinator(key: StrBytes, found: Result<(i32, Endpoint), ApiError>) -> Coordinator {
    let coordinator = Coordinator::default().with_key(key);
    match found {
        Ok((node, endpoint)) => coordinator
            .with_node_id(BrokerId(node))
            .with_host(StrBytes::from_string(endpoint.host))
            .with_port(i32::from(endpoint.port))
            .with_error_message(Some(StrBytes::from_static_str(""))),
        Err(error) => coordinator
            .with_node_id(BrokerId(-1))
            .with_port(-1)
            .with_error_code(error.code.code())
            .with_error_message(Some(StrBytes::from_string(
                error.message.unwrap_or_default(),
            ))),
    }
}

async fn find(
    context: &Context,
    request: &RequestInfo,
    key_type: i8,
    key: &str,
) -> Result<(i32, Endpoint), ApiError> {
    match key_type {
        KEY_TYPE_GROUP => {}
        // Of the codes that no client tries again this is the one that all of them know.
        KEY_TYPE_TRANSACTION => {
            return Err(ApiError::new(
                ErrorCode::TransactionalIdAuthorizationFailed,
                "this broker does not serve transactions yet",
            ));
        }
        // There are no share groups to coordinate.
        KEY_TYPE_SHARE if request.api_version >= 4 => {
            return Err(ErrorCode::InvalidRequest.into());
        }
        _ => return Err(ApiError::new(ErrorCode::InvalidRequest, INVALID_REQUEST)),
    }
    let exists = context
        .metadata
        .current()
        .topics
        .contains_key(GROUP_METADATA_TOPIC);
    if !exists && let Err(error) = context.admin.auto_create_topic(GROUP_METADATA_TOPIC).await {
        tracing::warn!(%error, "create the topic {GROUP_METADATA_TOPIC}");
        return Err(ErrorCode::CoordinatorNotAvailable.into());
    }
    let image = context.metadata.current();
    let partition = context.groups.partition_for(key);
    let is_offline = context.replicas.is_offline(GROUP_METADATA_TOPIC, partition);
    let leader = image
        .partition(GROUP_METADATA_TOPIC, partition)
        .and_then(|partition| partition.leader)
        .filter(|leader| !(is_offline && *leader == context.config.node_id));
    let broker = leader.and_then(|leader| image.reach(leader));
    broker
        .and_then(|broker| Some((broker.id.0, broker.endpoint(&request.listener)?.clone())))
        .ok_or_else(|| ErrorCode::CoordinatorNotAvailable.into())
}
