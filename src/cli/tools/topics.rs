//! Topics.

use std::collections::{BTreeMap, BTreeSet};

use super::pattern::TopicPattern;
use crate::client::{
    Client, ClientError, ConfigEntry, ConfigSource, OngoingReassignment, PartitionDescription,
    Resource, ResourceKind, TopicDescription,
};

/// Partitions in one answer of the broker, as Kafka's tool asks for them.
pub(crate) const PARTITIONS_MAX: i32 = 2000;

/// A topic with all that is told of it.
#[derive(Debug, Clone)]
pub(crate) struct Described {
    pub(crate) topic: TopicDescription,
    pub(crate) configs: Vec<ConfigEntry>,
    /// By partition.
    pub(crate) reassignments: BTreeMap<i32, OngoingReassignment>,
}

/// All topics, and the brokers that serve.
#[derive(Debug, Clone)]
pub(crate) struct Topics {
    pub(crate) described: Vec<Described>,
    pub(crate) live: BTreeSet<i32>,
}

impl Described {
    /// Keys that are not at Kafka's default.
    pub(crate) fn overrides(&self) -> impl Iterator<Item = &ConfigEntry> {
        let set = |entry: &&ConfigEntry| entry.source != ConfigSource::Default;
        self.configs.iter().filter(set)
    }

    fn min_isr(&self) -> usize {
        let entry = self
            .configs
            .iter()
            .find(|entry| entry.name == "min.insync.replicas");
        let value = entry.and_then(|entry| entry.value.as_deref()?.parse().ok());
        value.unwrap_or(1)
    }

    /// Replicas of a partition, without those that come while it is reassigned.
    pub(crate) fn replication_factor(&self, partition: &PartitionDescription) -> usize {
        let replicas = partition.replicas.len();
        let Some(ongoing) = self.reassignments.get(&partition.partition) else {
            return replicas;
        };
        let changing = |id: &i32| ongoing.adding.contains(id) || ongoing.removing.contains(id);
        match partition.replicas.iter().any(changing) {
            true => ongoing.replicas.len().saturating_sub(ongoing.adding.len()),
            false => replicas,
        }
    }

    pub(crate) fn is_under_replicated(&self, partition: &PartitionDescription) -> bool {
        self.replication_factor(partition) > partition.isr.len()
    }

    pub(crate) fn is_under_min_isr(&self, partition: &PartitionDescription) -> bool {
        partition.leader.is_none() || partition.isr.len() < self.min_isr()
    }

    pub(crate) fn is_at_min_isr(&self, partition: &PartitionDescription) -> bool {
        partition.isr.len() == self.min_isr()
    }
}

/// The names of topics that fit; all of them without a pattern.
pub(crate) async fn names(
    client: &mut Client,
    pattern: Option<&TopicPattern>,
    exclude_internal: bool,
) -> Result<Vec<String>, ClientError> {
    let listings = client.list_topics().await?;
    let fits = |name: &str, internal: bool| match pattern {
        Some(pattern) => pattern.allows(name, exclude_internal),
        None => !(exclude_internal && internal),
    };
    let fitting = listings
        .into_iter()
        .filter(|topic| fits(&topic.name, topic.internal));
    Ok(fitting.map(|topic| topic.name).collect())
}

/// Describes these topics, their configurations, and what is being moved.
pub(crate) async fn describe(
    client: &mut Client,
    topics: Vec<TopicDescription>,
) -> Result<Topics, ClientError> {
    let cluster = client.describe_cluster(false).await?;
    let mut moving = client.reassignments().await?;
    let resources = topics.iter().map(|topic| Resource {
        kind: ResourceKind::Topic,
        name: topic.name.clone(),
    });
    let resources: Vec<Resource> = resources.collect();
    let configs = client.describe_configs(&resources, false).await?;
    let described = topics.into_iter().zip(configs).map(|(topic, configs)| {
        let of_topic = topic.partitions.iter().filter_map(|partition| {
            let key = (topic.name.clone(), partition.partition);
            Some((partition.partition, moving.remove(&key)?))
        });
        Described {
            reassignments: of_topic.collect(),
            configs,
            topic,
        }
    });
    let described = described.collect();
    Ok(Topics {
        described,
        live: cluster.brokers.iter().map(|broker| broker.id).collect(),
    })
}
