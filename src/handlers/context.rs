//! What a handler may reach.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::config::BrokerConfig;
use crate::controller::Admin;
use crate::coordinator::GroupCoordinator;
use crate::metadata::MetadataCache;
use crate::replication::Replicas;
use crate::telemetry::{ClientUse, FETCH_FOLLOWER_KEY, Metrics};
use crate::time::Clock;
use crate::types::ListenerName;

/// The handles a handler works with.
#[derive(Debug)]
pub struct Context {
    pub config: Arc<BrokerConfig>,
    pub metadata: Arc<MetadataCache>,
    pub replicas: Arc<Replicas>,
    pub groups: Arc<GroupCoordinator>,
    pub admin: Arc<Admin>,
    pub metrics: Arc<Metrics>,
    pub clock: Arc<dyn Clock>,
}

/// What is known of a request besides its body.
#[derive(Debug)]
pub struct RequestInfo {
    pub api_key: i16,
    pub api_version: i16,
    pub correlation_id: i32,
    pub client_id: Option<Arc<str>>,
    pub listener: ListenerName,
    pub peer: SocketAddr,
    /// What is remembered of the connection.
    pub client: Arc<ClientUse>,
    /// A Fetch of another broker; known once its body is.
    pub is_follower: AtomicBool,
    pub received: Instant,
}

impl RequestInfo {
    /// The key under which metrics count the request.
    pub(super) fn metrics_key(&self) -> i16 {
        match self.is_follower.load(Ordering::Relaxed) {
            true => FETCH_FOLLOWER_KEY,
            false => self.api_key,
        }
    }
}
