//! The registry transactions that handlers call.
//!
//! Each returns only when this broker's own image has reached the transaction's revision: a client
//! that creates a topic and then produces to it never hears UNKNOWN_TOPIC_OR_PARTITION.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::config::TopicConfig;
use crate::types::{ApiError, BrokerId, PartitionId, ProducerId, TopicId, TopicName};

/// A topic to be made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NewTopic {
    pub name: String,
    /// −1: the broker's `num.partitions`.
    pub num_partitions: i32,
    /// −1: the broker's `default.replication.factor`.
    pub replication_factor: i16,
    /// Replicas by partition; where it is not empty the two counts must be −1.
    pub assignments: Vec<(PartitionId, Vec<BrokerId>)>,
    /// `None` values are left out.
    pub configs: Vec<(String, Option<String>)>,
}

/// A topic that was made, or would have been.
#[derive(Debug, Clone, PartialEq)]
pub struct CreatedTopic {
    pub id: TopicId,
    pub num_partitions: i32,
    pub replication_factor: i16,
    /// What was set on the topic.
    pub overrides: BTreeMap<String, String>,
    pub config: Arc<TopicConfig>,
}

/// How a request names a topic.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum TopicReference {
    Name(TopicName),
    Id(TopicId),
}

/// More partitions for a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewPartitions {
    pub name: TopicName,
    /// The new total.
    pub count: i32,
    /// Replicas of each new partition.
    pub assignments: Option<Vec<Vec<BrokerId>>>,
}

/// What dynamic configs are set on.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConfigResource {
    Topic(TopicName),
    Broker(BrokerId),
    /// The broker resource with the empty name: every broker.
    BrokerDefaults,
    Group(String),
    ClientMetrics(String),
}

/// What is set on one resource.
pub type ConfigMap = BTreeMap<String, String>;

/// Creates, changes and deletes topics and configs.
#[derive(Debug)]
pub struct Admin {}

#[allow(unused_variables, clippy::unimplemented)]
impl Admin {
    /// One result per topic, in order. `timeout` counts for all of them together.
    pub async fn create_topics(
        &self,
        topics: Vec<NewTopic>,
        validate_only: bool,
        timeout: Duration,
    ) -> Vec<Result<CreatedTopic, ApiError>> {
        unimplemented!()
    }

    /// Creates `name` with the broker's defaults (internal topics with theirs); that it exists by
    /// then is no error. INVALID_TOPIC_EXCEPTION, INVALID_REPLICATION_FACTOR, REQUEST_TIMED_OUT.
    pub async fn auto_create_topic(&self, name: &str) -> Result<(), ApiError> {
        unimplemented!()
    }

    /// One result per topic, in order: its name and id.
    pub async fn delete_topics(
        &self,
        topics: Vec<TopicReference>,
        timeout: Duration,
    ) -> Vec<Result<(TopicName, TopicId), ApiError>> {
        unimplemented!()
    }

    /// One result per topic, in order.
    pub async fn create_partitions(
        &self,
        topics: Vec<NewPartitions>,
        validate_only: bool,
        timeout: Duration,
    ) -> Vec<Result<(), ApiError>> {
        unimplemented!()
    }

    /// Replaces what is set on `resource` by `change(what is set)`, by compare-and-swap: `change` may
    /// run more than once. UNKNOWN_TOPIC_OR_PARTITION for a topic that does not exist.
    pub async fn alter_config(
        &self,
        resource: &ConfigResource,
        validate_only: bool,
        change: &(dyn Fn(&ConfigMap) -> Result<ConfigMap, ApiError> + Send + Sync),
    ) -> Result<(), ApiError> {
        unimplemented!()
    }

    /// A producer id that was never given out, by this broker or another.
    pub async fn allocate_producer_id(&self) -> Result<ProducerId, ApiError> {
        unimplemented!()
    }
}
