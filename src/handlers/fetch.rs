//! Fetch: reads from many partitions, waits for more if there is not enough.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use kafka_protocol::messages::ApiKey;

use super::current_leader::Leaders;
use super::{Context, RequestInfo, error_counts};
use crate::metadata::Image;
use crate::protocol::fetch::{
    FetchPartitionResponse, FetchRequest, FetchResponse, FetchTopicResponse,
};
use crate::protocol::{Chunk, Completion, Response, TopicKey};
use crate::replication::{
    FetchBound, FetchLimits, FetchSource, FetchTarget, Fetched, FetchingReplica, LogSlice,
    PartitionRead, SessionPartition, SessionPartitions, SessionRequest, SharedSession, Told, fetch,
};
use crate::types::{BrokerId, ErrorCode, PartitionId, TopicName};

/// Whether a session stands behind the request.
enum Session {
    None,
    New,
    Incremental(SharedSession, i32),
}

/// One partition that is asked for.
struct Asked {
    /// Its place in the session.
    place: u64,
    topic: TopicKey,
    name: Option<TopicName>,
    partition: PartitionId,
}

pub(crate) fn dispatch(
    context: Arc<Context>,
    request: Arc<RequestInfo>,
    body: Bytes,
) -> BoxFuture<'static, Completion> {
    let decoded = FetchRequest::decode(&body, request.api_version);
    drop(body); // a long poll holds no frame
    Box::pin(async move {
        let asked = match decoded {
            Ok(asked) => asked,
            Err(error) => return Completion::Close(format!("malformed Fetch: {error}")),
        };
        let response = handle(&context, &request, asked).await;
        error_counts::count(&context, &request, &response);
        let version = request.api_version;
        let header_version = ApiKey::Fetch.response_header_version(version);
        match Response::frame(
            request.correlation_id,
            header_version,
            response.encode(version),
        ) {
            Ok(response) => Completion::Ready(response),
            Err(error) => Completion::Close(format!("the answer to Fetch: {error}")),
        }
    })
}

async fn handle(context: &Context, request: &RequestInfo, body: FetchRequest) -> FetchResponse {
    request
        .is_follower
        .store(body.replica_id >= 0, Ordering::Relaxed);
    if body.replica_id >= 0 && !may_replicate(context, request, body.replica_id) {
        return refuse(body, ErrorCode::ClusterAuthorizationFailed);
    }
    if !matches!(body.isolation_level, 0 | 1) {
        return refuse(body, ErrorCode::UnknownServerError);
    }
    let sessions = context.replicas.fetch_sessions();
    let uses_topic_ids = request.api_version >= 13;
    let kind = SessionRequest::of(body.session_id, body.session_epoch);
    let mut partitions = SessionPartitions::default();
    let session = match kind {
        SessionRequest::Sessionless { close } | SessionRequest::New { close } => {
            if let Some(id) = close {
                sessions.close(id);
            }
            partitions = SessionPartitions::of(&body.topics);
            if matches!(kind, SessionRequest::New { .. }) {
                Session::New
            } else {
                Session::None
            }
        }
        SessionRequest::Incremental { id, epoch } => {
            let (topics, forgotten) = (&body.topics, &body.forgotten_topics);
            let begun = sessions.begin(
                (id, epoch),
                uses_topic_ids,
                topics,
                forgotten,
                request.received,
            );
            match begun {
                Ok(Some(session)) => Session::Incremental(session, epoch),
                Ok(None) => Session::None,
                Err(error) => {
                    return FetchResponse {
                        error: Some(error),
                        ..FetchResponse::default()
                    };
                }
            }
        }
    };
    let limits = limits(context, request, &body);
    drop(body); // nor the request that was in it
    let image = context.metadata.current();
    let (asked, targets) = match &session {
        Session::Incremental(session, _) => {
            resolve_all(context, &image, &mut session.lock().partitions)
        }
        _ => resolve_all(context, &image, &mut partitions),
    };
    drop(image);
    let fetched = fetch(&targets, limits).await;
    drop(targets);
    answer(
        context,
        request,
        session,
        partitions,
        asked,
        fetched,
        limits.bound,
    )
}

/// Followers speak to brokers through their own door; a client that says it is one at another is not
/// believed (CVE-2018-1288).
fn may_replicate(context: &Context, request: &RequestInfo, replica_id: i32) -> bool {
    replica_id != context.config.node_id.0
        && request.listener == context.config.inter_broker_listener
}

/// The same error for all that is asked for.
fn refuse(body: FetchRequest, error: ErrorCode) -> FetchResponse {
    let topics = body.topics.into_iter().map(|topic| FetchTopicResponse {
        topic: topic.topic,
        partitions: topic
            .partitions
            .iter()
            .map(|asked| failed(asked.partition, error))
            .collect(),
    });
    FetchResponse {
        error: Some(error),
        session_id: body.session_id,
        topics: topics.collect(),
        ..FetchResponse::default()
    }
}

fn limits(context: &Context, request: &RequestInfo, body: &FetchRequest) -> FetchLimits {
    let is_follower = body.replica_id >= 0;
    let bytes_max = match is_follower {
        true => body.max_bytes,
        false => body.max_bytes.min(context.config.fetch_max_bytes),
    };
    let bytes_max = bytes_max.max(0);
    let wait_ms = u64::try_from(body.max_wait_ms).unwrap_or(0);
    FetchLimits {
        deadline: request.received + Duration::from_millis(wait_ms),
        may_wait: wait_ms > 0,
        bytes_min: usize::try_from(body.min_bytes.min(bytes_max)).unwrap_or(0),
        bytes_max: usize::try_from(bytes_max).unwrap_or(0),
        bound: match body.isolation_level {
            _ if is_follower => FetchBound::LogEnd,
            1 => FetchBound::LastStable,
            _ => FetchBound::HighWatermark,
        },
        replica: is_follower.then_some(FetchingReplica {
            id: BrokerId(body.replica_id),
            broker_epoch: body.replica_epoch,
            at: request.received,
        }),
    }
}

fn resolve_all(
    context: &Context,
    image: &Image,
    partitions: &mut SessionPartitions,
) -> (Vec<Asked>, Vec<FetchTarget>) {
    let mut asked = Vec::with_capacity(partitions.len());
    let mut targets = Vec::with_capacity(partitions.len());
    let mut learned = Vec::new();
    for (place, partition) in partitions.iter() {
        let (name, source) = resolve(context, image, partition);
        if let (Some(name), None) = (&name, &partition.name) {
            learned.push((place, Arc::clone(name)));
        }
        targets.push(FetchTarget {
            source,
            offset: partition.fetch_offset,
            bytes_max: usize::try_from(partition.max_bytes).unwrap_or(0),
            current_leader_epoch: partition.current_leader_epoch,
            last_fetched_epoch: partition.last_fetched_epoch,
            replica_log_start: partition.replica_log_start,
        });
        asked.push(Asked {
            place,
            topic: partition.topic.clone(),
            name,
            partition: partition.partition,
        });
    }
    for (place, name) in learned {
        partitions.set_name(place, name);
    }
    (asked, targets)
}

/// Finds a partition. One that no topic has does not cut a long poll short, as in Kafka: the client
/// that asks in a loop would spin.
fn resolve(
    context: &Context,
    image: &Image,
    asked: &SessionPartition,
) -> (Option<TopicName>, FetchSource) {
    let (name, found) = match &asked.topic {
        TopicKey::Name(name) => (
            Some(Arc::clone(name)),
            context.replicas.partition(name, asked.partition),
        ),
        TopicKey::Id(id) => (
            image.topic_names.get(id).or(asked.name.as_ref()).cloned(),
            context.replicas.partition_by_id(*id, asked.partition),
        ),
    };
    let source = match found {
        Ok(partition) => FetchSource::Here(partition),
        Err(ErrorCode::UnknownTopicId) => match &name {
            // The session knows the topic under its name: it is gone, or was made anew.
            Some(name) if image.partition(name, asked.partition).is_some() => {
                FetchSource::Refused(ErrorCode::InconsistentTopicId)
            }
            Some(_) => FetchSource::Unknown(ErrorCode::UnknownTopicOrPartition),
            None => FetchSource::Unknown(ErrorCode::UnknownTopicId),
        },
        Err(ErrorCode::UnknownTopicOrPartition) => {
            FetchSource::Unknown(ErrorCode::UnknownTopicOrPartition)
        }
        Err(error) => FetchSource::Refused(error),
    };
    (name, source)
}

fn answer(
    context: &Context,
    request: &RequestInfo,
    session: Session,
    partitions: SessionPartitions,
    asked: Vec<Asked>,
    fetched: Fetched,
    bound: FetchBound,
) -> FetchResponse {
    let told = asked
        .iter()
        .zip(&fetched)
        .map(|(asked, outcome)| (asked.place, told(outcome)));
    let mut news = None;
    let session_id = match session {
        Session::None => 0,
        Session::New => {
            let uses_topic_ids = request.api_version >= 13;
            let sessions = context.replicas.fetch_sessions();
            let kind = (uses_topic_ids, bound == FetchBound::LogEnd);
            sessions.create(kind, partitions, told, request.received)
        }
        Session::Incremental(session, epoch) => {
            let mut session = session.lock();
            match session.finish(epoch, told) {
                Ok(told) => news = Some(told),
                Err(error) => {
                    return FetchResponse {
                        error: Some(error),
                        session_id: session.id(),
                        ..FetchResponse::default()
                    };
                }
            }
            session.id()
        }
    };
    let mut response = FetchResponse {
        session_id,
        ..FetchResponse::default()
    };
    let mut leaders = Leaders::default();
    for (position, (asked, outcome)) in asked.into_iter().zip(fetched).enumerate() {
        if news.as_ref().is_some_and(|news| !news[position]) {
            continue;
        }
        let mut partition = match outcome {
            Ok(read) => found(asked.partition, read, bound),
            Err(error) => failed(asked.partition, error),
        };
        let elsewhere = matches!(
            partition.error,
            ErrorCode::NotLeaderOrFollower | ErrorCode::FencedLeaderEpoch
        );
        if elsewhere
            && request.api_version >= 16
            && let Some(name) = &asked.name
        {
            let image = context.metadata.current();
            partition.current_leader = leaders.of(&image, request, name, asked.partition);
        }
        match response.topics.last_mut() {
            Some(topic) if topic.topic == asked.topic => topic.partitions.push(partition),
            _ => response.topics.push(FetchTopicResponse {
                topic: asked.topic,
                partitions: vec![partition],
            }),
        }
    }
    response.node_endpoints = leaders.into_endpoints();
    response
}

/// An error that Kafka finds before it reads comes with an empty list of aborted transactions, one that
/// it finds in the partition with none.
fn failed(partition: PartitionId, error: ErrorCode) -> FetchPartitionResponse {
    let early = matches!(
        error,
        ErrorCode::UnknownTopicOrPartition
            | ErrorCode::UnknownTopicId
            | ErrorCode::UnknownServerError
            | ErrorCode::ClusterAuthorizationFailed
    );
    FetchPartitionResponse {
        aborted_transactions: early.then(Vec::new),
        ..FetchPartitionResponse::failed(partition, error)
    }
}

fn told(outcome: &Result<PartitionRead, ErrorCode>) -> Told {
    match outcome {
        Ok(read) => Told {
            error: false,
            diverged: read.diverging_epoch.is_some(),
            bytes: read.bytes,
            high_watermark: read.high_watermark,
            log_start_offset: read.log_start_offset,
        },
        Err(_) => Told {
            error: true,
            diverged: false,
            bytes: 0,
            high_watermark: -1,
            log_start_offset: -1,
        },
    }
}

fn found(partition: PartitionId, read: PartitionRead, bound: FetchBound) -> FetchPartitionResponse {
    FetchPartitionResponse {
        high_watermark: read.high_watermark,
        last_stable_offset: read.last_stable_offset,
        log_start_offset: read.log_start_offset,
        diverging_epoch: read.diverging_epoch,
        // read_committed gets the aborted ones among what it reads, of which there are none yet.
        aborted_transactions: (bound == FetchBound::LastStable).then(Vec::new),
        records: match read.slice {
            LogSlice::Memory(batches) => batches.into_iter().map(Chunk::Bytes).collect(),
            LogSlice::File(range) => vec![Chunk::File {
                file: range.file,
                position: range.position,
                bytes: range.bytes,
                unreadable: range.unreadable,
            }],
        },
        ..FetchPartitionResponse::failed(partition, ErrorCode::None)
    }
}
