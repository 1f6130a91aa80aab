//! Kafka's configuration: keys, defaults, validation, precedence.

mod broker;
mod topic;

pub use broker::{BrokerConfig, ConfigError, Listener};
pub use topic::{CleanupPolicy, CompressionPolicy, TopicConfig};
