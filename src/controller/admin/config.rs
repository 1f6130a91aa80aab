//! Changes of what is set on topics, brokers, groups and client metrics.

use std::time::Duration;

use bytes::Bytes;

use super::{ATTEMPTS, Admin, ConfigMap, ConfigResource, contended, unavailable};
use crate::registry::value::{TopicValue, decode, encode};
use crate::registry::{Compare, Key, KeyValue, Op, RegistryError};
use crate::types::{ApiError, ErrorCode};

/// AlterConfigs has no timeout of its own in the protocol.
const TIMEOUT: Duration = Duration::from_secs(30);

impl Admin {
    /// Replaces what is set on `resource` by `change(what is set)`, by compare-and-swap: `change` may
    /// run more than once. UNKNOWN_TOPIC_OR_PARTITION for a topic that does not exist.
    pub async fn alter_config(
        &self,
        resource: &ConfigResource,
        validate_only: bool,
        change: &(dyn Fn(&ConfigMap) -> Result<ConfigMap, ApiError> + Send + Sync),
    ) -> Result<(), ApiError> {
        if let ConfigResource::Topic(name) = resource
            && !self.cache.current().topics.contains_key(name)
        {
            return Err(ErrorCode::UnknownTopicOrPartition.into());
        }
        self.may_write()?;
        let key = String::from(key_of(resource));
        for _ in 0..ATTEMPTS {
            let found = self.registry.get(&key).await.map_err(unavailable)?;
            let (old, topic) = stored(resource, found.as_ref())?;
            let new = change(&old)?;
            if validate_only || new == old {
                return Ok(());
            }
            let compare = Compare::ModRevision {
                key: key.clone(),
                revision: found.map_or(0, |entry| entry.mod_revision),
            };
            let op = match written(topic, new) {
                Some(value) => Op::Put {
                    key: key.clone(),
                    value,
                    lease: 0,
                },
                None => Op::Delete { key: key.clone() },
            };
            let outcome = self.registry.txn(vec![compare], vec![op]).await;
            let outcome = outcome.map_err(unavailable)?;
            if outcome.succeeded {
                return self.visible(outcome.revision, TIMEOUT).await;
            }
        }
        Err(contended())
    }
}

fn key_of(resource: &ConfigResource) -> Key {
    match resource {
        ConfigResource::Topic(name) => Key::Topic(name.clone()),
        ConfigResource::Broker(id) => Key::BrokerConfig(*id),
        ConfigResource::BrokerDefaults => Key::BrokerDefaults,
        ConfigResource::Group(group) => Key::GroupConfig(group.clone()),
        ConfigResource::ClientMetrics(name) => Key::ClientMetrics(name.clone()),
    }
}

/// What is set, and for a topic the value that it is part of.
fn stored(
    resource: &ConfigResource,
    found: Option<&KeyValue>,
) -> Result<(ConfigMap, Option<TopicValue>), ApiError> {
    let unreadable = |reason| unavailable(RegistryError::Storage(reason));
    match (resource, found) {
        (ConfigResource::Topic(_), None) => Err(ErrorCode::UnknownTopicOrPartition.into()),
        (ConfigResource::Topic(_), Some(entry)) => {
            let topic: TopicValue = decode(&entry.value).map_err(unreadable)?;
            Ok((topic.configs.clone(), Some(topic)))
        }
        (_, None) => Ok((ConfigMap::new(), None)),
        (_, Some(entry)) => Ok((decode(&entry.value).map_err(unreadable)?, None)),
    }
}

/// `None`: nothing is set any more, and the key goes.
fn written(topic: Option<TopicValue>, new: ConfigMap) -> Option<Bytes> {
    match topic {
        Some(topic) => Some(encode(&TopicValue {
            configs: new,
            ..topic
        })),
        None if new.is_empty() => None,
        None => Some(encode(&new)),
    }
}
