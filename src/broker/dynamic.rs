//! Dynamic broker configs that act outside the topics: the image brings them, this applies them.

use std::sync::Arc;

use crate::config::{BrokerConfig, Listener};
use crate::log::{LogManager, open_files_most};
use crate::metadata::{Image, ImageListener};
use crate::net::{ConnectionLimitValues, ConnectionLimits};

/// Applies dynamic broker configs.
#[derive(Debug)]
pub(super) struct DynamicConfig {
    config: Arc<BrokerConfig>,
    limits: Arc<ConnectionLimits>,
    logs: Arc<LogManager>,
}

impl DynamicConfig {
    pub(super) fn new(
        config: Arc<BrokerConfig>,
        limits: Arc<ConnectionLimits>,
        logs: Arc<LogManager>,
    ) -> Self {
        Self {
            config,
            limits,
            logs,
        }
    }
}

impl ImageListener for DynamicConfig {
    fn image_changed(&self, old: &Image, new: &Arc<Image>) {
        let own = |image: &Image| image.broker_configs.get(&self.config.node_id).cloned();
        if old.broker_defaults == new.broker_defaults && own(old) == own(new) {
            return;
        }
        let own = own(new).unwrap_or_default();
        let config = self.config.with_dynamic(&new.broker_defaults, &own);
        self.limits.set(limits(&config));
        let expiration = i64::from(config.producer_id_expiration_ms);
        self.logs.set_producer_id_expiration(expiration);
    }
}

/// Descriptors for what is neither a log's file nor a client: listeners, the registry, the runtime.
const OTHER_DESCRIPTORS: u64 = 64;
/// However low the limit is, an operator gets in.
const SOCKETS_MIN: u64 = 16;

/// Clients may not take the descriptors that the logs need: without them nothing can be written.
fn descriptors_for_sockets() -> i64 {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let files = u64::try_from(open_files_most()).unwrap_or(u64::MAX);
    let all = limit.current.unwrap_or(u64::MAX);
    let sockets = all.saturating_sub(files.saturating_add(OTHER_DESCRIPTORS));
    i64::try_from(sockets.max(SOCKETS_MIN)).unwrap_or(i64::MAX)
}

/// The connection limits of a configuration.
pub(super) fn limits(config: &BrokerConfig) -> ConnectionLimitValues {
    let overrides = config.max_connections_per_ip_overrides.iter();
    let of_listener = |value: fn(&Listener) -> Option<i32>| {
        let listeners = config.listeners.iter();
        let limits = listeners.filter_map(move |listener| {
            Some((Arc::clone(&listener.name), i64::from(value(listener)?)))
        });
        limits.collect()
    };
    ConnectionLimitValues {
        total: i64::from(config.max_connections),
        descriptors: descriptors_for_sockets(),
        per_ip: i64::from(config.max_connections_per_ip),
        per_ip_overrides: overrides
            .filter_map(|(ip, count)| Some((ip.parse().ok()?, i64::from(*count))))
            .collect(),
        per_listener: of_listener(|listener| listener.max_connections),
        creation_rate: i64::from(config.max_connection_creation_rate),
        creation_rate_per_listener: of_listener(|listener| listener.max_connection_creation_rate),
    }
}
