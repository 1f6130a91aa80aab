//! DeleteTopics: by name, and since v6 by id.

use std::collections::BTreeMap;

use kafka_protocol::messages::delete_topics_response::DeletableTopicResult;
use kafka_protocol::messages::{DeleteTopicsRequest, DeleteTopicsResponse, TopicName};
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use super::{Context, RequestInfo, admin_timeout};
use crate::controller::TopicReference;
use crate::types::{ApiError, ErrorCode, TopicId};

pub(crate) async fn handle(
    context: &Context,
    request: &RequestInfo,
    body: DeleteTopicsRequest,
) -> DeleteTopicsResponse {
    let version = request.api_version;
    let mut answers = Vec::new();
    // How often each topic is named; a topic that is named twice is not deleted.
    let mut names: BTreeMap<TopicName, usize> = BTreeMap::new();
    let mut ids: BTreeMap<Uuid, usize> = BTreeMap::new();
    for name in body.topic_names {
        *names.entry(name).or_default() += 1;
    }
    for topic in body.topics {
        match (topic.name, topic.topic_id) {
            (None, id) if id.is_nil() => {
                let message = "Neither topic name nor id were specified.";
                answers.push(refusal(version, None, id, message));
            }
            (None, id) => *ids.entry(id).or_default() += 1,
            (Some(name), id) if id.is_nil() => *names.entry(name).or_default() += 1,
            (Some(name), id) => {
                let message = "You may not specify both topic name and topic id.";
                answers.push(refusal(version, Some(name), id, message));
            }
        }
    }
    if !context.config.delete_topic_enable {
        let disabled = disabled(version);
        answers.clear();
        answers.extend(
            names
                .into_keys()
                .map(|name| failure(version, Some(name), Uuid::nil(), disabled.clone())),
        );
        answers.extend(
            ids.into_keys()
                .map(|id| failure(version, None, id, disabled.clone())),
        );
        return DeleteTopicsResponse::default().with_responses(answers);
    }
    let mut wanted = Vec::new();
    for (name, times) in names {
        let id = topic_id(context, &name);
        if times > 1 {
            let message = "Duplicate topic name.";
            answers.push(refusal(version, Some(name), Uuid::nil(), message));
        } else if let Some(id) = id.filter(|id| ids.contains_key(id)) {
            ids.insert(id, 0); // answered here
            let message = "The provided topic name maps to an ID that was already supplied.";
            answers.push(refusal(version, Some(name), id, message));
        } else {
            wanted.push((Some(name), Uuid::nil()));
        }
    }
    for (id, times) in ids {
        match times {
            0 => {}
            1 => wanted.push((None, id)),
            _ => answers.push(refusal(version, None, id, "Duplicate topic id.")),
        }
    }
    let topics = wanted.iter().map(|(name, id)| match name {
        Some(name) => TopicReference::Name(name.as_str().into()),
        None => TopicReference::Id(TopicId(*id.as_bytes())),
    });
    let timeout = admin_timeout(body.timeout_ms);
    let results = context.admin.delete_topics(topics.collect(), timeout).await;
    answers.extend(
        wanted
            .into_iter()
            .zip(results)
            .map(|((name, id), result)| match result {
                Ok((name, id)) => success(version, &name, id),
                Err(error) => failure(version, name, id, error),
            }),
    );
    DeleteTopicsResponse::default().with_responses(answers)
}

fn topic_id(context: &Context, name: &str) -> Option<Uuid> {
    let image = context.metadata.current();
    Some(Uuid::from_bytes(image.topics.get(name)?.id.0))
}

/// Before v3 there was no code for it.
fn disabled(version: i16) -> ApiError {
    let code = if version < 3 {
        ErrorCode::InvalidRequest
    } else {
        ErrorCode::TopicDeletionDisabled
    };
    ApiError::new(code, "Topic deletion is disabled.")
}

fn success(version: i16, name: &str, id: TopicId) -> DeletableTopicResult {
    let name = StrBytes::from_string(name.to_owned());
    let answer = DeletableTopicResult::default().with_name(Some(name.into()));
    if version < 6 {
        return answer;
    }
    answer.with_topic_id(Uuid::from_bytes(id.0))
}

fn refusal(
    version: i16,
    name: Option<TopicName>,
    id: Uuid,
    message: &'static str,
) -> DeletableTopicResult {
    let error = ApiError::new(ErrorCode::InvalidRequest, message);
    failure(version, name, id, error)
}

fn failure(
    version: i16,
    name: Option<TopicName>,
    id: Uuid,
    error: ApiError,
) -> DeletableTopicResult {
    let message = error.message.or_else(|| {
        let text = match error.code {
            ErrorCode::UnknownTopicOrPartition => "This server does not host this topic-partition.",
            ErrorCode::UnknownTopicId => "This server does not host this topic ID.",
            _ => return None,
        };
        Some(text.to_owned())
    });
    let mut answer = DeletableTopicResult::default()
        .with_name(name)
        .with_error_code(error.code.code());
    if version >= 5 {
        answer = answer.with_error_message(message.map(StrBytes::from_string));
    }
    if version >= 6 {
        answer = answer.with_topic_id(id);
    }
    answer
}
