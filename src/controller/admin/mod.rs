//! The registry transactions that handlers call.
//!
//! Each returns only when this broker's own image has reached the transaction's revision: a client
//! that creates a topic and then produces to it never hears UNKNOWN_TOPIC_OR_PARTITION.

mod config;
mod create;
mod delete;
mod elect;
mod partitions;
mod plan;
mod producer_ids;

pub use elect::ElectionKind;
pub(super) use producer_ids::block_after;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;

use crate::config::{BrokerConfig, TopicConfig};
use crate::metadata::{MetadataCache, Resolver};
use crate::registry::{BrokerLease, Registry, RegistryError, Revision};
use crate::types::{ApiError, BrokerId, ErrorCode, PartitionId, ProducerId, TopicId, TopicName};

/// How often a compare-and-swap is tried before the others are left to it.
const ATTEMPTS: usize = 16;
/// What a request gets at least: with less it would report a timeout of something that is done.
const TIMEOUT_MIN: Duration = Duration::from_secs(1);

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
pub struct Admin {
    registry: Arc<dyn Registry>,
    cache: Arc<MetadataCache>,
    config: Arc<BrokerConfig>,
    resolver: Resolver,
    /// One creation at a time: each checks against the topics that the one before made.
    creating: Mutex<()>,
    /// Of this broker's block, those not given out.
    producer_ids: Mutex<Range<ProducerId>>,
    /// `None`: nobody else can take this broker for dead.
    lease: Option<Arc<BrokerLease>>,
}

impl Admin {
    /// `producer_ids`: the block that came with the broker's registration; may be empty.
    pub fn new(
        registry: Arc<dyn Registry>,
        cache: Arc<MetadataCache>,
        config: Arc<BrokerConfig>,
        producer_ids: Range<ProducerId>,
    ) -> Self {
        Self {
            registry,
            cache,
            resolver: Resolver::new(&config),
            config,
            creating: Mutex::new(()),
            producer_ids: Mutex::new(producer_ids),
            lease: None,
        }
    }

    /// Changes nothing while `lease` is not held.
    pub fn under(mut self, lease: Arc<BrokerLease>) -> Self {
        self.lease = Some(lease);
        self
    }

    /// R12: a broker that may have been taken for dead changes nothing. The error is that of a Kafka broker
    /// that does not reach its controller.
    fn may_write(&self) -> Result<(), ApiError> {
        match &self.lease {
            Some(lease) if !lease.is_held() => Err(ApiError::new(
                ErrorCode::RequestTimedOut,
                "This broker is cut off from the cluster's registry.",
            )),
            _ => Ok(()),
        }
    }

    /// Returns once the image shows `revision`; REQUEST_TIMED_OUT after `timeout`, though it is done.
    async fn visible(&self, revision: Revision, timeout: Duration) -> Result<(), ApiError> {
        tokio::time::timeout(timeout.max(TIMEOUT_MIN), self.cache.wait_for(revision))
            .await
            .map_err(|_| {
                ApiError::new(
                    ErrorCode::RequestTimedOut,
                    "The change is stored, but this broker has not seen it in time.",
                )
            })
    }
}

/// What a client hears of a registry that fails: both errors are retriable.
fn unavailable(error: RegistryError) -> ApiError {
    tracing::warn!(%error, "an admin request could not reach the registry");
    match error {
        RegistryError::Unavailable(_) => ApiError::new(
            ErrorCode::RequestTimedOut,
            "The cluster's registry does not answer; whether the change was made is not known.",
        ),
        _ => ApiError::new(
            ErrorCode::KafkaStorageError,
            "The cluster's registry could not store the change.",
        ),
    }
}

/// Others changed it at every attempt.
fn contended() -> ApiError {
    ApiError::new(
        ErrorCode::RequestTimedOut,
        "Others kept changing it at the same time.",
    )
}

#[cfg(test)]
mod tests;
