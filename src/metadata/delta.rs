//! From one image to the next. Pure.
//!
//! A topic is seen as a whole or not at all: its partitions are written before the topic is, and
//! wait here until it comes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Broker, Endpoint, Image, Partition, Resolver, Topic};
use crate::registry::value::{
    BrokerMetaValue, BrokerValue, ControllerValue, PartitionValue, TopicValue, decode,
};
use crate::registry::{Key, KeyValue, SeenChange, WatchEvent};
use crate::types::{BrokerId, PartitionId, TopicId, TopicName};

/// Partitions of topics that are not there: not yet, or what an interrupted creation left.
pub type Unattached = BTreeMap<TopicId, BTreeMap<PartitionId, WaitingPartition>>;

/// A partition's state with its mod revision.
type WaitingPartition = (PartitionValue, i64);

/// Applies changes to an image; what cannot be read is left out and named in `problems`.
#[derive(Debug)]
pub struct Delta {
    image: Image,
    unattached: Unattached,
    /// New values of topics; built when all changes are known.
    topics: BTreeMap<TopicName, Option<TopicValue>>,
    pub problems: Vec<String>,
}

impl Delta {
    pub fn new(image: &Image, unattached: Unattached) -> Self {
        Self {
            image: image.clone(),
            unattached,
            topics: BTreeMap::new(),
            problems: Vec::new(),
        }
    }

    /// Takes one change.
    pub fn apply(&mut self, event: &WatchEvent) {
        match event {
            WatchEvent::Put(entry) => self.put(entry),
            WatchEvent::Delete { key, revision } => {
                self.saw(*revision);
                self.delete(key);
            }
        }
    }

    /// The new image, and the partitions that wait for their topic.
    pub fn finish(mut self, old: &Image, resolver: &Resolver) -> (Image, Unattached, Vec<String>) {
        // Most changes are of partitions alone, and need no config resolved.
        let differs = resolver.differs(old, &self.image);
        let concerns = differs || !self.topics.is_empty();
        let at = concerns.then(|| resolver.at(&self.image));
        self.image.own_id = Some(resolver.broker());
        let Some(at) = at else {
            self.image.problems = old.problems + self.problems.len();
            return (self.image, self.unattached, self.problems);
        };
        for (name, value) in std::mem::take(&mut self.topics) {
            let before = self.image.topics.remove(&name);
            if let Some(before) = &before {
                self.image.topic_names.remove(&before.id);
            }
            let Some(value) = value else { continue };
            let before = before.filter(|topic| topic.id == value.id);
            let partitions = self.attach(&value, before.as_deref());
            let topic = Topic {
                id: value.id,
                partitions,
                config: at.resolve(&value.configs),
                overrides: value.configs,
                name: Arc::clone(&name),
            };
            self.image.topic_names.insert(topic.id, Arc::clone(&name));
            self.image.topics.insert(name, Arc::new(topic));
        }
        if differs {
            for topic in self.image.topics.values_mut() {
                let config = at.resolve(&topic.overrides);
                if topic.config != config {
                    Arc::make_mut(topic).config = config;
                }
            }
        }
        self.image.problems = old.problems + self.problems.len();
        (self.image, self.unattached, self.problems)
    }

    /// The partitions of a topic with this value: those it had, those that waited, and for want of
    /// either (somebody removed the key) a partition as it is when it is made.
    fn attach(&mut self, value: &TopicValue, before: Option<&Topic>) -> Vec<Arc<Partition>> {
        let mut waiting = self.unattached.remove(&value.id).unwrap_or_default();
        let mut partitions = Vec::with_capacity(value.replicas.len());
        for (index, replicas) in (0..).zip(&value.replicas) {
            let position = partitions.len();
            let known = before.and_then(|topic| topic.partitions.get(position));
            partitions.push(match (waiting.remove(&index), known) {
                (None, Some(known)) if known.replicas == *replicas => Arc::clone(known),
                (None, Some(known)) => Arc::new(Partition {
                    replicas: replicas.clone(),
                    ..(**known).clone()
                }),
                (Some((state, revision)), _) => Arc::new(partition(replicas, &state, revision)),
                (None, None) => {
                    self.problems
                        .push(format!("{} is missing", Key::Partition(value.id, index)));
                    Arc::new(Partition::made(replicas))
                }
            });
        }
        if !waiting.is_empty() {
            // More partitions of this topic are on their way; `create_partitions` writes them first.
            self.unattached.insert(value.id, waiting);
        }
        partitions
    }

    fn saw(&mut self, revision: i64) {
        self.image.revision = self.image.revision.max(revision);
    }

    fn put(&mut self, entry: &KeyValue) {
        self.saw(entry.mod_revision);
        if self.image.newest.revision < entry.mod_revision {
            self.image.newest = SeenChange {
                key: entry.key.clone(),
                revision: entry.mod_revision,
            };
        }
        if let Err(reason) = self.try_put(entry) {
            self.problems.push(format!("{}: {reason}", entry.key));
        }
    }

    fn try_put(&mut self, entry: &KeyValue) -> Result<(), String> {
        let value = &entry.value[..];
        let Some(key) = Key::parse(&entry.key) else {
            return Err("not a key of this version".to_owned());
        };
        match key {
            Key::ClusterId => {
                let id = std::str::from_utf8(value).map_err(|error| error.to_string())?;
                self.image.cluster_id = id.into();
            }
            Key::Controller => {
                let controller: ControllerValue = decode(value)?;
                self.image.controller = Some(BrokerId(controller.broker));
                self.image.controller_registration = entry.create_revision;
            }
            Key::Broker(id) => {
                let broker = broker(id, entry.create_revision, decode(value)?);
                self.image.brokers.insert(id, Arc::new(broker));
            }
            Key::BrokerMeta(id) => {
                let meta: BrokerMetaValue = decode(value)?;
                let last = BrokerValue {
                    endpoints: meta.endpoints,
                    rack: meta.rack,
                    incarnation: meta.incarnation,
                    shutting_down: false,
                };
                let broker = Arc::new(broker(id, 0, last));
                self.image.known_brokers.insert(id, broker);
            }
            Key::Topic(name) => {
                self.topics.insert(name, Some(decode(value)?));
            }
            Key::Partition(topic, index) => {
                let state = (decode(value)?, entry.mod_revision);
                self.put_partition(topic, index, state);
            }
            Key::BrokerConfig(id) => {
                self.image.broker_configs.insert(id, decode(value)?);
            }
            Key::BrokerDefaults => self.image.broker_defaults = decode(value)?,
            Key::GroupConfig(group) => {
                self.image.group_configs.insert(group, decode(value)?);
            }
            Key::ClientMetrics(name) => {
                self.image
                    .client_metrics_configs
                    .insert(name, decode(value)?);
            }
            Key::Layout | Key::Imported | Key::ControllerEpoch | Key::ProducerIdsNext => {}
        }
        Ok(())
    }

    fn put_partition(&mut self, topic: TopicId, index: PartitionId, state: WaitingPartition) {
        if let Some(name) = self.image.topic_names.get(&topic)
            && let Some(topic) = self.image.topics.get_mut(name)
            && let Ok(position) = usize::try_from(index)
            && position < topic.partitions.len()
        {
            let old = &mut Arc::make_mut(topic).partitions[position];
            *old = Arc::new(partition(&old.replicas, &state.0, state.1));
            return;
        }
        self.unattached
            .entry(topic)
            .or_default()
            .insert(index, state);
    }

    fn delete(&mut self, key: &str) {
        match Key::parse(key) {
            Some(Key::Controller) => {
                self.image.controller = None;
                self.image.controller_registration = 0;
            }
            Some(Key::Broker(id)) => {
                self.image.brokers.remove(&id);
            }
            Some(Key::BrokerMeta(id)) => {
                self.image.known_brokers.remove(&id);
            }
            Some(Key::Topic(name)) => {
                self.topics.insert(name, None);
            }
            Some(Key::Partition(topic, index)) => {
                // Of a topic that is there this is the beginning of the topic's own end.
                if let Some(waiting) = self.unattached.get_mut(&topic) {
                    waiting.remove(&index);
                    if waiting.is_empty() {
                        self.unattached.remove(&topic);
                    }
                }
            }
            Some(Key::BrokerConfig(id)) => {
                self.image.broker_configs.remove(&id);
            }
            Some(Key::BrokerDefaults) => self.image.broker_defaults.clear(),
            Some(Key::GroupConfig(group)) => {
                self.image.group_configs.remove(&group);
            }
            Some(Key::ClientMetrics(name)) => {
                self.image.client_metrics_configs.remove(&name);
            }
            Some(
                Key::Layout
                | Key::Imported
                | Key::ClusterId
                | Key::ControllerEpoch
                | Key::ProducerIdsNext,
            )
            | None => {}
        }
    }
}

/// The keys from which an image was made, as far as they can come and go.
pub fn keys_of(image: &Image, unattached: &Unattached) -> BTreeSet<String> {
    let mut keys = BTreeSet::new();
    if !image.cluster_id.is_empty() {
        keys.insert(Key::ClusterId.to_string());
    }
    if image.controller.is_some() {
        keys.insert(Key::Controller.to_string());
    }
    let brokers = image.brokers.keys().map(|id| Key::Broker(*id));
    let known = image.known_brokers.keys().map(|id| Key::BrokerMeta(*id));
    let configs = image.broker_configs.keys().map(|id| Key::BrokerConfig(*id));
    keys.extend(brokers.chain(known).chain(configs).map(String::from));
    if !image.broker_defaults.is_empty() {
        keys.insert(Key::BrokerDefaults.to_string());
    }
    let groups = image.group_configs.keys().cloned().map(Key::GroupConfig);
    let metrics = image.client_metrics_configs.keys().cloned();
    keys.extend(
        groups
            .chain(metrics.map(Key::ClientMetrics))
            .map(String::from),
    );
    for topic in image.topics.values() {
        keys.insert(Key::Topic(Arc::clone(&topic.name)).into());
        let indexes = (0..).zip(&topic.partitions);
        let there = indexes.filter(|(_, partition)| partition.revision > 0);
        keys.extend(there.map(|(index, _)| String::from(Key::Partition(topic.id, index))));
    }
    for (topic, partitions) in unattached {
        keys.extend(
            partitions
                .keys()
                .map(|index| String::from(Key::Partition(*topic, *index))),
        );
    }
    keys
}

/// A partition as it is made: those of `replicas` that are there are in sync and the first of them
/// leads; `None` where none is there, as Kafka refuses that.
pub fn initial(image: &Image, replicas: &[BrokerId]) -> Option<PartitionValue> {
    let is_active = |id: &BrokerId| image.is_active(*id);
    let isr: Vec<BrokerId> = replicas.iter().copied().filter(is_active).collect();
    let leader = *isr.first()?;
    let registration = image.brokers.get(&leader).map_or(0, |broker| broker.epoch);
    Some(PartitionValue {
        leader: leader.0,
        leader_epoch: 0,
        leader_registration: if replicas.len() > 1 { registration } else { 0 },
        isr: isr.iter().map(|id| id.0).collect(),
        elr: Vec::new(),
        last_known_leader: None,
        partition_epoch: 0,
    })
}

/// What the registry is to hold of a partition.
pub fn value_of(partition: &Partition) -> PartitionValue {
    let ids = |ids: &[BrokerId]| ids.iter().map(|id| id.0).collect();
    PartitionValue {
        leader: partition.leader.map_or(-1, |id| id.0),
        leader_epoch: partition.leader_epoch,
        leader_registration: partition.leader_registration,
        isr: ids(&partition.isr),
        elr: ids(&partition.elr),
        last_known_leader: partition.last_known_leader.map(|id| id.0),
        partition_epoch: partition.partition_epoch,
    }
}

/// A partition with these replicas, as the registry holds it.
pub fn partition(replicas: &[BrokerId], state: &PartitionValue, revision: i64) -> Partition {
    Partition {
        leader: (state.leader >= 0).then_some(BrokerId(state.leader)),
        leader_epoch: state.leader_epoch,
        replicas: replicas.to_vec(),
        isr: state.isr.iter().copied().map(BrokerId).collect(),
        elr: state.elr.iter().copied().map(BrokerId).collect(),
        last_known_leader: state.last_known_leader.map(BrokerId),
        partition_epoch: state.partition_epoch,
        leader_registration: state.leader_registration,
        revision,
    }
}

fn broker(id: BrokerId, epoch: i64, value: BrokerValue) -> Broker {
    let endpoints = value.endpoints.into_iter().map(|endpoint| Endpoint {
        listener: endpoint.listener.into(),
        host: endpoint.host,
        port: endpoint.port,
    });
    Broker {
        id,
        endpoints: endpoints.collect(),
        rack: value.rack,
        epoch,
        incarnation: value.incarnation,
        shutting_down: value.shutting_down,
    }
}

#[cfg(test)]
mod tests;
