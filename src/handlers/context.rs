//! What a handler may reach.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;

use crate::config::BrokerConfig;
use crate::controller::Admin;
use crate::coordinator::GroupCoordinator;
use crate::metadata::MetadataCache;
use crate::replication::Replicas;
use crate::telemetry::{Metrics, SoftwareGuard};
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
    /// The client software of connections that have told it (KIP-511).
    pub software: Mutex<BTreeMap<SocketAddr, SoftwareGuard>>,
}

/// What is known of a request besides its body.
#[derive(Debug, Clone)]
pub struct RequestInfo {
    pub api_key: i16,
    pub api_version: i16,
    pub correlation_id: i32,
    pub client_id: Option<Arc<str>>,
    pub listener: ListenerName,
    pub peer: SocketAddr,
    pub received: Instant,
}
