//! Adding partitions to topics.

use std::sync::Arc;
use std::time::Duration;

use super::create::partition_ops;
use super::plan::{PARTITIONS_MAX, plan_partitions, too_many};
use super::{ATTEMPTS, Admin, NewPartitions, contended, unavailable};
use crate::registry::value::{TopicValue, decode, encode};
use crate::registry::{Compare, Key, Op, RegistryError, Revision};
use crate::types::{ApiError, ErrorCode, PartitionId};

impl Admin {
    /// One result per topic, in order. UNKNOWN_TOPIC_OR_PARTITION, INVALID_PARTITIONS,
    /// INVALID_REPLICA_ASSIGNMENT, INVALID_REPLICATION_FACTOR.
    pub async fn create_partitions(
        &self,
        topics: Vec<NewPartitions>,
        validate_only: bool,
        timeout: Duration,
    ) -> Vec<Result<(), ApiError>> {
        if timeout.is_zero() {
            return topics
                .iter()
                .map(|_| Err(ErrorCode::RequestTimedOut.into()))
                .collect();
        }
        if let Err(error) = self.may_write() {
            return topics.iter().map(|_| Err(error.clone())).collect();
        }
        if self.additional(&topics) > PARTITIONS_MAX {
            let error = || too_many("additional partitions");
            return topics.iter().map(|_| Err(error())).collect();
        }
        let _one_at_a_time = self.creating.lock().await;
        let mut results = Vec::with_capacity(topics.len());
        for topic in &topics {
            let written = self.add_partitions(topic, validate_only).await;
            results.push(match written {
                Ok(Some(revision)) => self.visible(revision, timeout).await,
                Ok(None) => Ok(()),
                Err(error) => Err(error),
            });
        }
        results
    }

    /// How many partitions a request adds in all.
    fn additional(&self, topics: &[NewPartitions]) -> usize {
        let image = self.cache.current();
        let additional = topics.iter().filter_map(|topic| {
            let has = image.topics.get(&topic.name)?.partitions.len();
            usize::try_from(topic.count).ok()?.checked_sub(has)
        });
        additional.sum()
    }

    /// The new partitions' keys first, the topic's with the last of them: they show themselves
    /// together. What an interrupted call left is written over by the next one, since the topic's key
    /// says how many there are.
    async fn add_partitions(
        &self,
        topic: &NewPartitions,
        validate_only: bool,
    ) -> Result<Option<Revision>, ApiError> {
        // One request may name very many topics that do not exist.
        if !self.cache.current().topics.contains_key(&topic.name) {
            return Err(ErrorCode::UnknownTopicOrPartition.into());
        }
        let key = String::from(Key::Topic(Arc::clone(&topic.name)));
        for _ in 0..ATTEMPTS {
            let found = self.registry.get(&key).await.map_err(unavailable)?;
            let Some(found) = found else {
                return Err(ErrorCode::UnknownTopicOrPartition.into());
            };
            let mut value: TopicValue = decode(&found.value)
                .map_err(|reason| unavailable(RegistryError::Storage(reason)))?;
            let image = self.cache.current();
            let added = plan_partitions(&image, topic, &value.replicas)?;
            if validate_only {
                return Ok(None);
            }
            let first = PartitionId::try_from(value.replicas.len())
                .map_err(|_| ApiError::from(ErrorCode::InvalidPartitions))?;
            let mut ops = partition_ops(value.id, first, &added.states);
            value.replicas.extend(added.replicas);
            let mut last = self.write_ahead(&mut ops).await?;
            last.push(Op::Put {
                key: key.clone(),
                value: encode(&value),
                lease: 0,
            });
            let unchanged = Compare::ModRevision {
                key: key.clone(),
                revision: found.mod_revision,
            };
            let outcome = self.registry.txn(vec![unchanged], last).await;
            let outcome = outcome.map_err(unavailable)?;
            if outcome.succeeded {
                return Ok(Some(outcome.revision));
            }
        }
        Err(contended())
    }
}
