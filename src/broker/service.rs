//! Frames from the sockets to the handlers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;

use crate::handlers::{Context, Peer, dispatch};
use crate::net::{PeerInfo, Service, Turn};
use crate::protocol::{Completion, Timing};
use crate::telemetry::{ListenerMetrics, RequestTimes};
use crate::types::ListenerName;

/// How a frame of Fetch begins.
const FETCH_KEY: [u8; 2] = 1i16.to_be_bytes();

/// Serves Kafka's protocol.
#[derive(Debug)]
pub(super) struct KafkaService {
    context: Arc<Context>,
    listeners: BTreeMap<ListenerName, Arc<ListenerMetrics>>,
}

impl KafkaService {
    pub(super) fn new<'a>(
        context: Arc<Context>,
        listeners: impl Iterator<Item = &'a ListenerName>,
    ) -> Self {
        let handle = |name: &ListenerName| (Arc::clone(name), context.metrics.listener(name));
        let listeners = listeners.map(handle).collect();
        Self { context, listeners }
    }
}

impl Service for KafkaService {
    fn dispatch(
        &self,
        peer: &PeerInfo,
        frame: Bytes,
        turn: Turn,
    ) -> BoxFuture<'static, Completion> {
        let peer = Peer {
            listener: Arc::clone(&peer.listener),
            address: peer.address,
            client: Arc::clone(&peer.client),
        };
        let waited = turn.waited;
        // A fetch that waits for records is in nobody's way.
        let turn = (!frame.starts_with(&FETCH_KEY)).then_some(turn);
        let dispatching = dispatch(Arc::clone(&self.context), peer, frame, waited);
        Box::pin(async move {
            let _turn = turn;
            dispatching.await
        })
    }

    fn sent(&self, timing: &Timing, waited: Duration, sending: Duration) {
        let metrics = self.context.metrics.request(timing.api_key);
        metrics.times(RequestTimes {
            request_queue: timing.queued,
            local: timing.local,
            remote: timing.remote,
            response_queue: waited,
            response_send: sending,
        });
    }

    fn queued(&self, change: i64) {
        self.context.metrics.request_queue_size.add(change);
    }

    fn sending(&self, change: i64) {
        self.context.metrics.response_queue_size.add(change);
    }

    fn connected(&self, peer: &PeerInfo) {
        if let Some(metrics) = self.listeners.get(&peer.listener) {
            metrics.opened();
        }
    }

    fn refused(&self, listener: &ListenerName) {
        if let Some(metrics) = self.listeners.get(listener) {
            metrics.refused.inc();
        }
    }

    fn disconnected(&self, peer: &PeerInfo) {
        if let Some(metrics) = self.listeners.get(&peer.listener) {
            metrics.closed();
        }
    }
}
