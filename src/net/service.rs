//! What a connection hands its frames to.

use std::fmt::Debug;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::sync::OwnedSemaphorePermit;

use crate::protocol::{Completion, Timing};
use crate::telemetry::ClientUse;
use crate::types::ListenerName;

/// Who is at the other end.
#[derive(Debug, Clone)]
pub struct PeerInfo {
    pub listener: ListenerName,
    pub address: SocketAddr,
    /// What it has told of itself and asked for.
    pub client: Arc<ClientUse>,
}

/// A frame's turn among those of all connections (`queued.max.requests`); others get their turn when it
/// is dropped.
#[derive(Debug, Default)]
pub struct Turn {
    /// How long the frame has waited for it.
    pub waited: Duration,
    pub(super) _slot: Option<OwnedSemaphorePermit>,
}

impl Turn {
    /// Without waiting, if there is a place.
    pub(super) fn at_once(slot: Option<OwnedSemaphorePermit>) -> Option<Self> {
        slot.map(|slot| Self {
            waited: Duration::ZERO,
            _slot: Some(slot),
        })
    }
}

/// Serves frames. The future finishes before the connection's next frame is dispatched.
pub trait Service: Debug + Send + Sync {
    fn dispatch(&self, peer: &PeerInfo, frame: Bytes, turn: Turn)
    -> BoxFuture<'static, Completion>;
    /// An answer that waited for its socket has been sent in the time given.
    fn sent(&self, _timing: &Timing, _waited: Duration, _sending: Duration) {}
    /// More or fewer requests wait for their turn.
    fn queued(&self, _change: i64) {}
    /// More or fewer answers are being sent.
    fn sending(&self, _change: i64) {}
    /// A connection came or went.
    fn connected(&self, peer: &PeerInfo);
    fn disconnected(&self, peer: &PeerInfo);
    /// A limit kept a connection out.
    fn refused(&self, listener: &ListenerName);
}

/// Limits of one connection.
#[derive(Debug, Clone, Copy)]
pub struct NetConfig {
    /// `socket.request.max.bytes`
    pub request_bytes_max: usize,
    /// `connections.max.idle.ms`
    pub idle_max: Duration,
    /// Requests whose answers may be outstanding on one connection.
    pub in_flight_max: usize,
}
