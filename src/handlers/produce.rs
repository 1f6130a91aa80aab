//! Produce: appends one batch to each of many partitions.
//!
//! Dispatching enqueues the appends, so that a connection's requests keep their order; the answer
//! follows when the acks are there, while the next request is already under way.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use kafka_protocol::messages::ApiKey;

use super::current_leader::Leaders;
use super::{Context, RequestInfo, error_counts};
use crate::protocol::produce::{
    ProducePartition, ProducePartitionResponse, ProduceRequest, ProduceResponse,
    ProduceTopicResponse,
};
use crate::protocol::{Chunk, Completion, Response, TopicKey};
use crate::replication::{Acks, AppendFailure, AppendOptions, Appended, Partition, PendingAppend};
use crate::types::{ErrorCode, PartitionId, TopicName};

/// One partition of the request.
enum Outcome {
    Refused(ProducePartitionResponse),
    Appending {
        index: PartitionId,
        pending: PendingAppend,
    },
}

/// The partitions of one topic of the request.
struct Topic {
    key: TopicKey,
    /// Where it is known; for naming the leader.
    name: Option<TopicName>,
    partitions: Vec<Outcome>,
}

pub(crate) fn dispatch(
    context: Arc<Context>,
    request: Arc<RequestInfo>,
    body: Bytes,
) -> BoxFuture<'static, Completion> {
    // All of the work is done at the call: nothing here waits.
    let completion = begin(context, request, &body);
    Box::pin(std::future::ready(completion))
}

fn begin(context: Arc<Context>, request: Arc<RequestInfo>, body: &Bytes) -> Completion {
    let produce = match ProduceRequest::decode(body, request.api_version) {
        Ok(produce) => produce,
        Err(error) => return Completion::Close(format!("malformed Produce: {error}")),
    };
    let acks = match produce.acks {
        0 => Ok(Acks::None),
        1 => Ok(Acks::Leader),
        -1 => Ok(Acks::All),
        _ => Err(ErrorCode::InvalidRequiredAcks),
    };
    let timeout_ms = u64::try_from(produce.timeout_ms).unwrap_or(0);
    let deadline = request.received + Duration::from_millis(timeout_ms);
    let topics = append_all(&context, &request, produce, acks);
    let appending = topics
        .iter()
        .flat_map(|topic| &topic.partitions)
        .any(|outcome| matches!(outcome, Outcome::Appending { .. }));
    match acks {
        Ok(Acks::None) => Completion::Later(Box::pin(close_on_error(topics))),
        _ if appending => {
            Completion::Later(Box::pin(answer_later(context, request, topics, deadline)))
        }
        _ => {
            let topics = topics.into_iter().map(|topic| {
                let outcomes = topic.partitions.into_iter();
                let answers = outcomes.filter_map(|outcome| match outcome {
                    Outcome::Refused(response) => Some(response),
                    Outcome::Appending { .. } => None,
                });
                (topic.key, topic.name, answers.collect())
            });
            respond(&context, &request, topics.collect()).map_or_else(
                || Completion::Close("the answer to Produce is too large".into()),
                Completion::Ready,
            )
        }
    }
}

fn append_all(
    context: &Context,
    request: &RequestInfo,
    produce: ProduceRequest,
    acks: Result<Acks, ErrorCode>,
) -> Vec<Topic> {
    // Without transactions nobody is allowed a transactional id; Kafka refuses the request as a whole.
    let transactional = produce
        .topics
        .iter()
        .flat_map(|topic| &topic.partitions)
        .any(|partition| partition.records.as_ref().is_some_and(is_transactional));
    let internal_allowed = request.client_id.as_deref() == Some(ADMIN_CLIENT_ID);
    let topics = produce.topics.into_iter().map(|topic| {
        let append = |partition: ProducePartition| {
            let index = partition.index;
            let begun = if transactional {
                Err(ErrorCode::TransactionalIdAuthorizationFailed)
            } else {
                find(context, &topic.topic, index).and_then(|found| {
                    let options = AppendOptions {
                        acks: acks?,
                        produce_version: request.api_version,
                        internal: false,
                        leader_epoch: -1,
                    };
                    begin_append(&found, partition.records, options, internal_allowed)
                })
            };
            match begun {
                Ok(pending) => Outcome::Appending { index, pending },
                Err(error) => Outcome::Refused(ProducePartitionResponse::failed(index, error)),
            }
        };
        let partitions = topic.partitions.into_iter().map(append).collect();
        let name = match &topic.topic {
            TopicKey::Name(name) => Some(Arc::clone(name)),
            TopicKey::Id(id) => context.replicas.topic_name(*id),
        };
        Topic {
            key: topic.topic,
            name,
            partitions,
        }
    });
    topics.collect()
}

/// The client id of Kafka's own tools, which may write to internal topics (`AdminUtils`).
const ADMIN_CLIENT_ID: &str = "__admin_client";

fn begin_append(
    partition: &Arc<Partition>,
    records: Option<Bytes>,
    options: AppendOptions,
    internal_allowed: bool,
) -> Result<PendingAppend, ErrorCode> {
    let topic = &partition.topic_partition().topic;
    if crate::types::is_internal_topic(topic) && !internal_allowed {
        return Err(ErrorCode::InvalidTopicException);
    }
    // Kafka never answers null records.
    let records = records.ok_or(ErrorCode::InvalidRecord)?;
    Ok(partition.produce(records, options))
}

fn find(
    context: &Context,
    topic: &TopicKey,
    index: PartitionId,
) -> Result<Arc<Partition>, ErrorCode> {
    match topic {
        TopicKey::Name(name) => context.replicas.partition(name, index),
        TopicKey::Id(id) => context.replicas.partition_by_id(*id, index),
    }
}

/// Bit 4 of the attributes, whose low byte is a batch's 23rd.
fn is_transactional(records: &Bytes) -> bool {
    records.get(22).is_some_and(|low| low & 0x10 != 0)
}

/// acks=0: there is no answer, but an error closes the connection.
async fn close_on_error(topics: Vec<Topic>) -> Option<Response> {
    for topic in topics {
        for outcome in topic.partitions {
            match outcome {
                Outcome::Refused(_) => return None,
                Outcome::Appending { pending, .. } => {
                    pending.await.ok()?;
                }
            }
        }
    }
    Some(Vec::new().into())
}

/// Counts a request that waits, until it is dropped.
struct Waiting(Arc<Context>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.metrics.waiting_produce.add(-1);
    }
}

async fn answer_later(
    context: Arc<Context>,
    request: Arc<RequestInfo>,
    topics: Vec<Topic>,
    deadline: Instant,
) -> Option<Response> {
    context.metrics.waiting_produce.add(1);
    let _waiting = Waiting(Arc::clone(&context));
    let mut timeout = std::pin::pin!(tokio::time::sleep_until(deadline.into()));
    let mut timed_out = false;
    let mut answered = Vec::with_capacity(topics.len());
    for topic in topics {
        let mut answers = Vec::with_capacity(topic.partitions.len());
        for outcome in topic.partitions {
            let (index, mut pending) = match outcome {
                Outcome::Refused(response) => {
                    answers.push(response);
                    continue;
                }
                Outcome::Appending { index, pending } => (index, pending),
            };
            let appended = if timed_out {
                (&mut pending).now_or_never()
            } else {
                tokio::select! {
                    biased;
                    appended = &mut pending => Some(appended),
                    () = &mut timeout => None,
                }
            };
            timed_out |= appended.is_none();
            answers.push(match appended {
                Some(appended) => answer(index, appended),
                None => timed_out_answer(index, pending),
            });
        }
        answered.push((topic.key, topic.name, answers));
    }
    respond(&context, &request, answered)
}

/// A batch that is in the log, but not yet as safe as was asked for, has its offset told.
fn timed_out_answer(index: PartitionId, pending: PendingAppend) -> ProducePartitionResponse {
    let error = ErrorCode::RequestTimedOut;
    match pending.give_up() {
        Some(appended) => ProducePartitionResponse {
            error,
            ..answer(index, Ok(appended))
        },
        None => ProducePartitionResponse::failed(index, error),
    }
}

fn answer(
    index: PartitionId,
    outcome: Result<Appended, AppendFailure>,
) -> ProducePartitionResponse {
    match outcome {
        Ok(appended) => ProducePartitionResponse {
            base_offset: appended.base_offset,
            log_append_time_ms: appended.log_append_time_ms,
            log_start_offset: appended.log_start_offset,
            ..ProducePartitionResponse::failed(index, ErrorCode::None)
        },
        Err(failure) => ProducePartitionResponse {
            log_start_offset: failure.log_start_offset,
            record_errors: failure.record_errors,
            error_message: failure.message,
            ..ProducePartitionResponse::failed(index, failure.error)
        },
    }
}

type Answered = (TopicKey, Option<TopicName>, Vec<ProducePartitionResponse>);

fn respond(context: &Context, request: &RequestInfo, topics: Vec<Answered>) -> Option<Response> {
    let version = request.api_version;
    let mut leaders = Leaders::default();
    let topics = topics.into_iter().map(|(topic, name, mut partitions)| {
        for partition in &mut partitions {
            if partition.error == ErrorCode::NotLeaderOrFollower
                && version >= 10
                && let Some(name) = &name
            {
                let image = context.metadata.current();
                partition.current_leader = leaders.of(&image, request, name, partition.index);
            }
        }
        ProduceTopicResponse { topic, partitions }
    });
    let topics: Vec<ProduceTopicResponse> = topics.collect();
    error_counts::count(context, request, topics.as_slice());
    let response = ProduceResponse {
        topics,
        throttle_time_ms: 0,
        node_endpoints: Vec::new(),
    };
    let response = ProduceResponse {
        node_endpoints: leaders.into_endpoints(),
        ..response
    };
    let header_version = ApiKey::Produce.response_header_version(version);
    let body = vec![Chunk::Bytes(response.encode(version))];
    Response::frame(request.correlation_id, header_version, body).ok()
}
