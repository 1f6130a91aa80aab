//! From a frame to a completion: header, table, guard, codec.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use kafka_protocol::messages::ApiKey;
use kafka_protocol::protocol::{Decodable, Encodable};

use super::error_counts::{self, ErrorCodes};
use super::{Context, RequestInfo, api, api_versions};
use crate::protocol::request::{RequestHeader, parse_client_id};
use crate::protocol::{Completion, Response, Timing, guard};
use crate::telemetry::ClientUse;
use crate::types::{ErrorCode, ListenerName};

/// Who sent a frame.
#[derive(Debug, Clone)]
pub struct Peer {
    pub listener: ListenerName,
    pub address: std::net::SocketAddr,
    pub client: Arc<ClientUse>,
}

/// Reads one frame, which has waited for its turn so long, and runs its handler. Finishes before the
/// connection's next request is dispatched.
pub async fn dispatch(
    context: Arc<Context>,
    peer: Peer,
    mut frame: Bytes,
    queued: Duration,
) -> Completion {
    let header = match RequestHeader::parse(&mut frame) {
        Ok(header) => header,
        Err(error) => return Completion::Close(error.to_string()),
    };
    let Some(api) = api(header.api_key) else {
        return Completion::Close(format!("unknown api key {}", header.api_key));
    };
    let version = header.api_version;
    if version < api.min_version || version > api.max_version {
        if api.key == ApiKey::ApiVersions {
            return match parse_client_id(&mut frame, unknown_header_version(version)) {
                Ok(_) => {
                    let metrics = context.metrics.request(header.api_key);
                    metrics.request(version);
                    metrics.error(ErrorCode::UnsupportedVersion);
                    api_versions::unsupported(header.correlation_id)
                }
                Err(error) => Completion::Close(error.to_string()),
            };
        }
        refused(&context, &peer, &header, &mut frame);
        return Completion::Close(format!("{:?} version {version} is not served", api.key));
    }
    let client_id = match parse_client_id(&mut frame, api.key.request_header_version(version)) {
        Ok(client_id) => client_id,
        Err(error) => return Completion::Close(error.to_string()),
    };
    let begun = context.clock.now();
    let request = Arc::new(RequestInfo {
        api_key: header.api_key,
        api_version: version,
        correlation_id: header.correlation_id,
        client_id: client_id.map(Arc::from),
        listener: peer.listener,
        peer: peer.address,
        client: peer.client,
        is_follower: AtomicBool::new(false),
        received: begun.checked_sub(queued).unwrap_or(begun),
    });
    // ApiVersions tells whose connection it is first.
    if api.key != ApiKey::ApiVersions || version < 3 {
        let radar = &context.metrics.radar;
        radar.used(&request.client, header.api_key, version);
    }
    let metrics = Arc::clone(&context.metrics);
    let clock = Arc::clone(&context.clock);
    let completion = (api.handler)(context, Arc::clone(&request), frame).await;
    let api_key = request.metrics_key();
    metrics.request(api_key).request(version);
    let done = clock.now();
    let timing = move |remote, done: Instant| {
        Some(Timing {
            api_key,
            queued,
            local: done.saturating_duration_since(begun).saturating_sub(remote),
            remote,
            done,
        })
    };
    match completion {
        Completion::Ready(mut response) => {
            response.timing = timing(Duration::ZERO, done);
            Completion::Ready(response)
        }
        Completion::Later(later) => Completion::Later(Box::pin(async move {
            let mut response = later.await?;
            let answered = clock.now();
            response.timing = timing(answered.saturating_duration_since(done), answered);
            Some(response)
        })),
        other => other,
    }
}

/// A request in a version that is not served: an operator should know of clients that Kafka 4 sends away.
fn refused(context: &Context, peer: &Peer, header: &RequestHeader, frame: &mut Bytes) {
    // No version that Kafka 4 has removed is flexible.
    let client_id = parse_client_id(frame, 1).ok().flatten();
    let id = client_id.as_deref();
    let (key, version) = (header.api_key, header.api_version);
    if context
        .metrics
        .radar
        .refused(&peer.client, id, key, version)
    {
        tracing::warn!(
            client_id = id.unwrap_or_default(), peer = %peer.address, api_key = key, version,
            "a client is refused that is too old for Kafka 4 (KIP-896): update it"
        );
    }
}

/// The request header of a version of ApiVersions that we do not know: like Kafka, we take one that
/// is newer than ours to be flexible, and one below zero not to be.
fn unknown_header_version(version: i16) -> i16 {
    if version < 0 { 1 } else { 2 }
}

/// Decodes the body of a request that the table names. The error is the reason to close.
pub(super) fn decode<B: Decodable>(request: &RequestInfo, mut body: Bytes) -> Result<B, String> {
    guard::check(request.api_key, request.api_version, &body)
        .map_err(|error| format!("malformed {}: {error}", describe(request)))?;
    B::decode(&mut body, request.api_version)
        .map_err(|error| format!("malformed {}: {error}", describe(request)))
}

/// Encodes the answer of a handler and counts its errors.
pub(super) fn encode<B: Encodable + ErrorCodes>(
    context: &Context,
    request: &RequestInfo,
    body: &B,
) -> Completion {
    error_counts::count(context, request, body);
    let header_version = match ApiKey::try_from(request.api_key) {
        Ok(api) => api.response_header_version(request.api_version),
        Err(()) => return Completion::Close(format!("unknown api key {}", request.api_key)),
    };
    match Response::encode(
        request.correlation_id,
        header_version,
        body,
        request.api_version,
    ) {
        Ok(response) => Completion::Ready(response),
        Err(error) => {
            tracing::error!(request = describe(request), %error, "an answer cannot be encoded");
            Completion::Close(format!(
                "the answer to {} cannot be encoded",
                describe(request)
            ))
        }
    }
}

/// Lets a handler run up to where it first waits. By then it has asked whom it has to ask, so that the
/// requests of a connection keep their order; the rest of it comes later.
pub(super) fn begun(mut answer: BoxFuture<'static, Completion>) -> Completion {
    match (&mut answer).now_or_never() {
        Some(completion) => completion,
        None => Completion::Later(Box::pin(async move {
            match answer.await {
                Completion::Ready(response) => Some(response),
                _ => None,
            }
        })),
    }
}

fn describe(request: &RequestInfo) -> String {
    match ApiKey::try_from(request.api_key) {
        Ok(api) => format!("{api:?} v{}", request.api_version),
        Err(()) => format!("api {} v{}", request.api_key, request.api_version),
    }
}
