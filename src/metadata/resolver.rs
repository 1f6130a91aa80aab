//! From what is set on a topic to what counts for it, on this broker. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Image;
use crate::config::{BrokerConfig, BrokerValues, TopicConfig};
use crate::types::BrokerId;

/// Resolves topic configs against the values of this broker.
#[derive(Debug, Clone)]
pub struct Resolver {
    broker: BrokerId,
    values: BrokerValues,
}

impl Resolver {
    pub fn new(config: &BrokerConfig) -> Self {
        Self {
            broker: config.node_id,
            values: config.values.clone(),
        }
    }

    /// The broker that it resolves for.
    pub fn broker(&self) -> BrokerId {
        self.broker
    }

    /// Whether topics must be resolved anew from `old` to `new`.
    pub(super) fn differs(&self, old: &Image, new: &Image) -> bool {
        old.broker_defaults != new.broker_defaults
            || old.broker_configs.get(&self.broker) != new.broker_configs.get(&self.broker)
    }

    /// What counts with the dynamic broker configs of `image`.
    pub fn at(&self, image: &Image) -> ResolverAt {
        let none = BTreeMap::new();
        let own = image.broker_configs.get(&self.broker).unwrap_or(&none);
        let values = self.values.with_dynamic(&image.broker_defaults, own);
        let without_overrides = TopicConfig::resolve_stored(&values, &none);
        ResolverAt {
            without_overrides: Arc::new(without_overrides),
            values,
        }
    }
}

/// A [`Resolver`] at one image.
#[derive(Debug)]
pub struct ResolverAt {
    values: BrokerValues,
    /// Shared by the many topics on which nothing is set.
    without_overrides: Arc<TopicConfig>,
}

impl ResolverAt {
    /// The broker's values, dynamic ones included.
    pub fn values(&self) -> &BrokerValues {
        &self.values
    }

    pub fn resolve(&self, overrides: &BTreeMap<String, String>) -> Arc<TopicConfig> {
        if overrides.is_empty() {
            return Arc::clone(&self.without_overrides);
        }
        Arc::new(TopicConfig::resolve_stored(&self.values, overrides))
    }
}
