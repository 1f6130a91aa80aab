//! Kafka's configuration: keys, defaults, validation, precedence.
//!
//! A broker value has up to four sources: this broker's dynamic value, the cluster's dynamic default,
//! what was set at the start (arguments over environment over file), Kafka's default. A topic's value
//! stands before them all.

mod broker;
mod change;
pub mod container;
mod effective;
mod environment;
mod explain;
pub mod keys;
mod listeners;
mod load;
mod properties;
mod providers;
mod refusals;
#[cfg(test)]
mod tests;
mod topic;
mod values;

pub use broker::{BrokerConfig, ConfigError, HostPort, Listener};
pub use change::{Change, Operation, Target};
pub use effective::{Effective, effective, is_secret};
pub use explain::{Finding, Severity, explain, is_of_the_quorum, nearest};
pub use load::LoadedConfig;
pub use properties::parse as properties_of;
pub use topic::{CleanupPolicy, CompressionPolicy, TopicConfig};
pub use values::{BrokerValues, Origin, Source};
