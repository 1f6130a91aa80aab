//! Dynamic broker configs that act outside the topics: the image brings them, this applies them.

use std::sync::Arc;

use crate::config::{BrokerConfig, Listener};
use crate::log::LogManager;
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
        per_ip: i64::from(config.max_connections_per_ip),
        per_ip_overrides: overrides
            .filter_map(|(ip, count)| Some((ip.parse().ok()?, i64::from(*count))))
            .collect(),
        per_listener: of_listener(|listener| listener.max_connections),
        creation_rate: i64::from(config.max_connection_creation_rate),
        creation_rate_per_listener: of_listener(|listener| listener.max_connection_creation_rate),
    }
}
