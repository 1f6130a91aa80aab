//! Creating topics.
//!
//! A topic's key is written after its partitions' keys or in one transaction with them, and a topic
//! shows itself with its key (`metadata/delta.rs`). A creation that is interrupted leaves partition
//! keys of an id that no topic has: nobody sees them, nothing else ever uses that random id, and the
//! next broker that starts removes them (`Session`).

use std::time::Duration;

use bytes::Bytes;

use super::plan::{
    Defaults, PARTITIONS_MAX, PlannedTopic, TakenNames, check_configs, partitions_asked,
    plan_topic, too_many,
};
use super::{Admin, CreatedTopic, NewTopic, unavailable};
use crate::controller::placement::{internal_replication_factor, least_loaded_first};
use crate::metadata::{Image, ResolverAt};
use crate::registry::value::{PartitionValue, TopicValue, encode};
use crate::registry::{Compare, Key, Op, Revision};
use crate::types::{ApiError, ErrorCode, PartitionId, TopicId};

/// How long a client that asked for metadata waits for the topic that it thereby made.
const AUTO_CREATE_TIMEOUT: Duration = Duration::from_secs(10);

impl Admin {
    /// One result per topic, in order. No two may have one name. `timeout`: for the image to follow;
    /// without any, nothing is done (REQUEST_TIMED_OUT), as in Kafka.
    pub async fn create_topics(
        &self,
        topics: Vec<NewTopic>,
        validate_only: bool,
        timeout: Duration,
    ) -> Vec<Result<CreatedTopic, ApiError>> {
        if timeout.is_zero() {
            return topics
                .iter()
                .map(|_| Err(ErrorCode::RequestTimedOut.into()))
                .collect();
        }
        if let Err(error) = self.may_write() {
            return topics.iter().map(|_| Err(error.clone())).collect();
        }
        let defaults = self.defaults();
        let asked = topics.iter().map(|topic| partitions_asked(defaults, topic));
        if asked.sum::<usize>() > PARTITIONS_MAX {
            return topics.iter().map(|_| Err(too_many("partitions"))).collect();
        }
        let _one_at_a_time = self.creating.lock().await;
        let image = self.cache.current();
        let resolver = self.resolver.at(&image);
        let plans: Vec<_> = {
            let taken = TakenNames::new(&image);
            let topics = topics.into_iter();
            topics
                .map(|topic| self.plan(&image, &taken, &resolver, topic))
                .collect()
        };
        self.write_planned(&resolver, plans, validate_only, timeout)
            .await
    }

    /// Creates `name` with the broker's defaults (internal topics with theirs); that it exists by
    /// then is no error. INVALID_TOPIC_EXCEPTION, INVALID_REPLICATION_FACTOR, and where it did not
    /// work this time LEADER_NOT_AVAILABLE, on which clients ask again.
    pub async fn auto_create_topic(&self, name: &str) -> Result<(), ApiError> {
        let one_at_a_time = self.creating.lock().await;
        let image = self.cache.current();
        if image.topics.contains_key(name) {
            return Ok(());
        }
        if self.may_write().is_err() {
            return Err(ErrorCode::LeaderNotAvailable.into());
        }
        let topic = self.automatic(&image, name);
        let resolver = self.resolver.at(&image);
        let taken = TakenNames::new(&image);
        let plans = vec![self.plan(&image, &taken, &resolver, topic)];
        drop(taken);
        let created = self
            .write_planned(&resolver, plans, false, AUTO_CREATE_TIMEOUT)
            .await;
        drop(one_at_a_time);
        match created.into_iter().next() {
            Some(Err(error)) if error.code == ErrorCode::TopicAlreadyExists => {
                self.seen(name).await // by another broker, and its news is on the way
            }
            Some(Err(error)) => Err(match error.code {
                ErrorCode::RequestTimedOut | ErrorCode::KafkaStorageError => {
                    ErrorCode::LeaderNotAvailable.into()
                }
                _ => error,
            }),
            None | Some(Ok(_)) => Ok(()),
        }
    }

    async fn seen(&self, name: &str) -> Result<(), ApiError> {
        let seen = async {
            loop {
                let image = self.cache.current();
                if image.topics.contains_key(name) {
                    return;
                }
                self.cache.changed_since(image.revision).await;
            }
        };
        tokio::time::timeout(AUTO_CREATE_TIMEOUT, seen)
            .await
            .map_err(|_| ErrorCode::LeaderNotAvailable.into())
    }

    fn defaults(&self) -> Defaults {
        Defaults {
            num_partitions: self.config.num_partitions,
            replication_factor: self.config.default_replication_factor,
        }
    }

    /// A topic that nobody described: as Kafka's `AutoTopicCreationManager` makes it.
    fn automatic(&self, image: &Image, name: &str) -> NewTopic {
        let topic = NewTopic {
            name: name.to_owned(),
            num_partitions: -1,
            replication_factor: -1,
            ..NewTopic::default()
        };
        let config = &self.config;
        let (num_partitions, factor, mut configs) = match name {
            "__consumer_offsets" => (
                config.offsets_topic_num_partitions,
                config.offsets_topic_replication_factor,
                vec![
                    ("compression.type", "producer".to_owned()),
                    (
                        "segment.bytes",
                        config.offsets_topic_segment_bytes.to_string(),
                    ),
                ],
            ),
            "__transaction_state" => (
                config.transaction_state_log_num_partitions,
                config.transaction_state_log_replication_factor,
                vec![
                    ("compression.type", "uncompressed".to_owned()),
                    (
                        "segment.bytes",
                        config.transaction_state_log_segment_bytes.to_string(),
                    ),
                    ("unclean.leader.election.enable", "false".to_owned()),
                ],
            ),
            _ => return topic,
        };
        configs.push(("cleanup.policy", "compact".to_owned()));
        let key = match name {
            "__consumer_offsets" => "offsets.topic.replication.factor",
            _ => "transaction.state.log.replication.factor",
        };
        let factor = match config.values.explicit(key) {
            Some(_) if !config.etcd_endpoints.is_empty() => factor,
            _ => internal_replication_factor(factor, least_loaded_first(image).len()),
        };
        NewTopic {
            num_partitions,
            replication_factor: factor,
            configs: configs
                .into_iter()
                .map(|(key, value)| (key.to_owned(), Some(value)))
                .collect(),
            ..topic
        }
    }

    fn plan(
        &self,
        image: &Image,
        taken: &TakenNames<'_>,
        resolver: &ResolverAt,
        topic: NewTopic,
    ) -> Result<PlannedTopic, ApiError> {
        taken.check(&topic.name)?;
        let configs = check_configs(resolver.values(), &topic.configs)?;
        let placed = plan_topic(image, self.defaults(), &topic)?;
        Ok(PlannedTopic {
            name: topic.name,
            replicas: placed.replicas,
            states: placed.states,
            configs,
        })
    }

    async fn write_planned(
        &self,
        resolver: &ResolverAt,
        plans: Vec<Result<PlannedTopic, ApiError>>,
        validate_only: bool,
        timeout: Duration,
    ) -> Vec<Result<CreatedTopic, ApiError>> {
        let mut results = Vec::with_capacity(plans.len());
        let mut writes = Vec::new();
        for plan in plans {
            results.push(plan.map(|plan| {
                let created = CreatedTopic {
                    id: new_topic_id(),
                    num_partitions: i32::try_from(plan.replicas.len()).unwrap_or(i32::MAX),
                    replication_factor: plan
                        .replicas
                        .first()
                        .and_then(|replicas| i16::try_from(replicas.len()).ok())
                        .unwrap_or(i16::MAX),
                    config: resolver.resolve(&plan.configs),
                    overrides: plan.configs.clone(),
                };
                writes.push((results.len(), created.id, plan));
                created
            }));
        }
        if validate_only || writes.is_empty() {
            return results;
        }
        let mut newest = 0;
        for (index, written) in self.write_topics(writes).await {
            match written {
                Ok(revision) => newest = newest.max(revision),
                Err(error) => results[index] = Err(error),
            }
        }
        if newest > 0
            && let Err(error) = self.visible(newest, timeout).await
        {
            for result in &mut results {
                if result.is_ok() {
                    *result = Err(error.clone());
                }
            }
        }
        results
    }

    /// Writes topics, as many in one transaction as fit.
    async fn write_topics(
        &self,
        topics: Vec<(usize, TopicId, PlannedTopic)>,
    ) -> Vec<(usize, Result<Revision, ApiError>)> {
        let ops_max = self.registry.txn_ops_max();
        let mut results = Vec::with_capacity(topics.len());
        let mut batch = Vec::new();
        let mut batch_ops = 0;
        for topic in topics {
            let ops = topic.2.replicas.len() + 1;
            if batch_ops + ops > ops_max && !batch.is_empty() {
                self.write_batch(std::mem::take(&mut batch), &mut results)
                    .await;
                batch_ops = 0;
            }
            batch_ops += ops;
            batch.push(topic);
        }
        self.write_batch(batch, &mut results).await;
        results
    }

    /// Writes a batch as one transaction; where somebody else made one of its topics meanwhile,
    /// each topic by itself.
    async fn write_batch(
        &self,
        batch: Vec<(usize, TopicId, PlannedTopic)>,
        results: &mut Vec<(usize, Result<Revision, ApiError>)>,
    ) {
        if let [(index, id, topic)] = &batch[..] {
            results.push((*index, self.write_topic(*id, topic).await));
            return;
        }
        let compares = batch.iter().map(|(_, _, topic)| absent(topic)).collect();
        let ops = batch
            .iter()
            .flat_map(|(_, id, topic)| {
                let mut ops = partition_ops(*id, 0, &topic.states);
                ops.push(topic_op(*id, topic));
                ops
            })
            .collect();
        match self.registry.txn(compares, ops).await {
            Ok(outcome) if outcome.succeeded => {
                let each = batch
                    .iter()
                    .map(|(index, ..)| (*index, Ok(outcome.revision)));
                results.extend(each);
            }
            Ok(_) => {
                for (index, id, topic) in &batch {
                    results.push((*index, self.write_topic(*id, topic).await));
                }
            }
            Err(error) => {
                let error = unavailable(error);
                results.extend(batch.iter().map(|(index, ..)| (*index, Err(error.clone()))));
            }
        }
    }

    async fn write_topic(&self, id: TopicId, topic: &PlannedTopic) -> Result<Revision, ApiError> {
        let mut ops = partition_ops(id, 0, &topic.states);
        let rest = self.write_ahead(&mut ops).await?;
        let ops = [rest, vec![topic_op(id, topic)]].concat();
        let outcome = self.registry.txn(vec![absent(topic)], ops).await;
        let outcome = outcome.map_err(unavailable)?;
        if outcome.succeeded {
            return Ok(outcome.revision);
        }
        if topic.replicas.len() >= self.registry.txn_ops_max() {
            let prefix = Key::partitions_of(id);
            let cleaned = self.registry.txn(vec![], vec![Op::DeletePrefix { prefix }]);
            cleaned.await.map_err(unavailable)?;
        }
        Err(ApiError::new(
            ErrorCode::TopicAlreadyExists,
            format!("Topic '{}' already exists.", topic.name),
        ))
    }

    /// Writes so many of `ops` that the rest and one more fit into one transaction; returns the rest.
    pub(super) async fn write_ahead(&self, ops: &mut Vec<Op>) -> Result<Vec<Op>, ApiError> {
        let ops_max = self.registry.txn_ops_max();
        let mut rest = std::mem::take(ops);
        while rest.len() >= ops_max {
            let later = rest.split_off(ops_max);
            let written = self.registry.txn(vec![], rest).await;
            written.map_err(unavailable)?;
            rest = later;
        }
        Ok(rest)
    }
}

fn absent(topic: &PlannedTopic) -> Compare {
    Compare::CreateRevision {
        key: Key::Topic(topic.name.as_str().into()).into(),
        revision: 0,
    }
}

fn topic_op(id: TopicId, topic: &PlannedTopic) -> Op {
    let value = TopicValue {
        id,
        replicas: topic.replicas.clone(),
        configs: topic.configs.clone(),
    };
    Op::Put {
        key: Key::Topic(topic.name.as_str().into()).into(),
        value: encode(&value),
        lease: 0,
    }
}

/// New partitions from `first` on.
pub(super) fn partition_ops(id: TopicId, first: PartitionId, states: &[PartitionValue]) -> Vec<Op> {
    let mut same: Option<(&PartitionValue, Bytes)> = None;
    (first..)
        .zip(states)
        .map(|(index, state)| {
            let value = match &same {
                Some((before, value)) if *before == state => value.clone(),
                _ => encode(state),
            };
            same = Some((state, value.clone()));
            Op::Put {
                key: Key::Partition(id, index).into(),
                value,
                lease: 0,
            }
        })
        .collect()
}

/// Random, and none of those that Kafka reserves (`Uuid.RESERVED`) or prints with a leading dash.
fn new_topic_id() -> TopicId {
    loop {
        let id = TopicId(*uuid::Uuid::new_v4().as_bytes());
        if !id.to_string().starts_with('-') {
            return id;
        }
    }
}
