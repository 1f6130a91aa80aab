//! Deleting topics. The logs follow when the image shows it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::{ATTEMPTS, Admin, TopicReference, contended, unavailable};
use crate::metadata::Image;
use crate::registry::value::{TopicValue, decode};
use crate::registry::{Compare, Key, Op, Revision};
use crate::types::{ApiError, ErrorCode, TopicId, TopicName};

/// Topics per transaction: two ops each.
const BATCH_TOPICS: usize = 64;

type Deleted = Result<(TopicName, TopicId), ApiError>;

impl Admin {
    /// One result per topic, in order: its name and id. TOPIC_DELETION_DISABLED,
    /// UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID.
    pub async fn delete_topics(
        &self,
        topics: Vec<TopicReference>,
        timeout: Duration,
    ) -> Vec<Deleted> {
        if !self.config.delete_topic_enable {
            let disabled = || {
                ApiError::new(
                    ErrorCode::TopicDeletionDisabled,
                    "Topic deletion is disabled.",
                )
            };
            return topics.iter().map(|_| Err(disabled())).collect();
        }
        if timeout.is_zero() {
            return topics
                .iter()
                .map(|_| Err(ErrorCode::RequestTimedOut.into()))
                .collect();
        }
        if let Err(error) = self.may_write() {
            return topics.iter().map(|_| Err(error.clone())).collect();
        }
        let image = self.cache.current();
        let mut results: Vec<Deleted> = topics
            .iter()
            .map(|topic| found(&image, topic).map_err(ApiError::from))
            .collect();
        let wanted: BTreeMap<TopicName, TopicId> = results.iter().flatten().cloned().collect();
        let wanted: Vec<_> = wanted.into_iter().collect();
        let mut failures: BTreeMap<TopicName, ApiError> = BTreeMap::new();
        let mut newest = 0;
        for batch in wanted.chunks(BATCH_TOPICS.min(self.registry.txn_ops_max() / 2)) {
            match self.delete_batch(batch).await {
                Ok(Some(revision)) => newest = newest.max(revision),
                Ok(None) => {
                    for topic in batch {
                        match self.delete_one(topic).await {
                            Ok(revision) => newest = newest.max(revision),
                            Err(error) => {
                                failures.insert(Arc::clone(&topic.0), error);
                            }
                        }
                    }
                }
                Err(error) => {
                    let each = batch
                        .iter()
                        .map(|(name, _)| (Arc::clone(name), error.clone()));
                    failures.extend(each);
                }
            }
        }
        let visible = match newest {
            0 => Ok(()),
            newest => self.visible(newest, timeout).await,
        };
        for result in &mut results {
            let Ok((name, _)) = result else { continue };
            if let Some(error) = failures.get(name) {
                *result = Err(error.clone());
            } else if let Err(error) = &visible {
                *result = Err(error.clone());
            }
        }
        results
    }

    /// Deletes all of `batch` as one transaction; `None` if one of them has changed meanwhile.
    async fn delete_batch(
        &self,
        batch: &[(TopicName, TopicId)],
    ) -> Result<Option<Revision>, ApiError> {
        let mut compares = Vec::with_capacity(batch.len());
        let mut ops = Vec::with_capacity(2 * batch.len());
        for topic in batch {
            let Some(compare) = self.unchanged(topic).await? else {
                return Ok(None);
            };
            compares.push(compare);
            ops.extend(delete_ops(topic));
        }
        let outcome = self.registry.txn(compares, ops).await;
        let outcome = outcome.map_err(unavailable)?;
        Ok(outcome.succeeded.then_some(outcome.revision))
    }

    async fn delete_one(&self, topic: &(TopicName, TopicId)) -> Result<Revision, ApiError> {
        for _ in 0..ATTEMPTS {
            let Some(compare) = self.unchanged(topic).await? else {
                return Err(ErrorCode::UnknownTopicOrPartition.into());
            };
            let outcome = self.registry.txn(vec![compare], delete_ops(topic)).await;
            let outcome = outcome.map_err(unavailable)?;
            if outcome.succeeded {
                return Ok(outcome.revision);
            }
        }
        Err(contended())
    }

    /// What holds as long as the topic is the one that it is now; `None` if it is gone or another.
    async fn unchanged(
        &self,
        (name, id): &(TopicName, TopicId),
    ) -> Result<Option<Compare>, ApiError> {
        let key = String::from(Key::Topic(Arc::clone(name)));
        let Some(entry) = self.registry.get(&key).await.map_err(unavailable)? else {
            return Ok(None);
        };
        // One that cannot be read must be deletable.
        let same = decode::<TopicValue>(&entry.value).map_or(true, |value| value.id == *id);
        Ok(same.then_some(Compare::ModRevision {
            key,
            revision: entry.mod_revision,
        }))
    }
}

fn found(image: &Image, topic: &TopicReference) -> Result<(TopicName, TopicId), ErrorCode> {
    let (topic, unknown) = match topic {
        TopicReference::Name(name) => (image.topics.get(name), ErrorCode::UnknownTopicOrPartition),
        TopicReference::Id(id) => (image.topic_by_id(*id), ErrorCode::UnknownTopicId),
    };
    topic
        .map(|topic| (Arc::clone(&topic.name), topic.id))
        .ok_or(unknown)
}

fn delete_ops((name, id): &(TopicName, TopicId)) -> Vec<Op> {
    vec![
        Op::Delete {
            key: Key::Topic(Arc::clone(name)).into(),
        },
        Op::DeletePrefix {
            prefix: Key::partitions_of(*id),
        },
    ]
}
