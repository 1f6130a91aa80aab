//! Topics and their partitions.

use std::collections::BTreeMap;

use kafka_protocol::messages::create_partitions_request::{
    CreatePartitionsAssignment, CreatePartitionsTopic,
};
use kafka_protocol::messages::create_topics_request::{
    CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig,
};
use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::describe_topic_partitions_request::{Cursor, TopicRequest};
use kafka_protocol::messages::describe_topic_partitions_response::DescribeTopicPartitionsResponsePartition;
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::metadata_response::{
    MetadataResponsePartition, MetadataResponseTopic,
};
use kafka_protocol::messages::{
    BrokerId, CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest,
    DescribeTopicPartitionsRequest, ListPartitionReassignmentsRequest, MetadataRequest, TopicName,
};
use kafka_protocol::protocol::StrBytes;

use super::admin::brokers_of;
use super::cluster::{Client, Node};
use super::errors::{checked, checked_code};
use super::{ClientError, Result};
use crate::types::{ErrorCode, TopicId};

const ADMIN_TIMEOUT_MS: i32 = 30_000;

/// A topic in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicListing {
    pub name: String,
    pub id: TopicId,
    pub internal: bool,
}

/// A topic with its partitions, in their order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicDescription {
    pub name: String,
    pub id: TopicId,
    pub internal: bool,
    pub partitions: Vec<PartitionDescription>,
}

/// Where a partition is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionDescription {
    pub partition: i32,
    pub leader: Option<i32>,
    pub leader_epoch: i32,
    pub replicas: Vec<i32>,
    pub isr: Vec<i32>,
    /// `None`: the broker keeps none.
    pub elr: Option<Vec<i32>>,
    pub last_known_elr: Option<Vec<i32>>,
}

/// A topic to be made.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NewTopic {
    pub name: String,
    /// `None`: the cluster's default.
    pub partitions: Option<i32>,
    pub replication_factor: Option<i16>,
    /// Replicas of each partition, instead of the numbers above.
    pub assignment: Vec<Vec<i32>>,
    pub configs: Vec<(String, String)>,
}

/// Replicas that come and go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OngoingReassignment {
    pub replicas: Vec<i32>,
    pub adding: Vec<i32>,
    pub removing: Vec<i32>,
}

fn topic_name(name: &str) -> TopicName {
    TopicName(text(name))
}

pub(super) fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

fn ids(brokers: &[BrokerId]) -> Vec<i32> {
    brokers.iter().map(|id| id.0).collect()
}

fn broker_ids(brokers: &[i32]) -> Vec<BrokerId> {
    brokers.iter().map(|id| BrokerId(*id)).collect()
}

fn leader(id: BrokerId) -> Option<i32> {
    (id.0 >= 0).then_some(id.0)
}

impl Client {
    /// All topics that there are, by name.
    pub async fn list_topics(&mut self) -> Result<Vec<TopicListing>> {
        let topics = self.metadata("listTopics", None).await?;
        let listing = |topic: MetadataResponseTopic| {
            Some(TopicListing {
                name: topic.name?.to_string(),
                id: TopicId(*topic.topic_id.as_bytes()),
                internal: topic.is_internal,
            })
        };
        let mut listings: Vec<TopicListing> = topics.into_iter().filter_map(listing).collect();
        listings.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        Ok(listings)
    }

    /// Metadata of some topics, or of all. Topics are never made by asking.
    async fn metadata(
        &mut self,
        call: &str,
        topics: Option<Vec<MetadataRequestTopic>>,
    ) -> Result<Vec<MetadataResponseTopic>> {
        let build = |_| {
            MetadataRequest::default()
                .with_topics(topics.clone())
                .with_allow_auto_topic_creation(false)
        };
        let answer = self.send(Node::Any, call, build).await?;
        self.learn(&brokers_of(&answer));
        Ok(answer.topics)
    }

    /// Where the partitions of topics are; a topic that does not exist has its error. With `create` topics are
    /// made that the broker makes by itself (`auto.create.topics.enable`).
    pub async fn locate(
        &mut self,
        topics: &[String],
        create: bool,
    ) -> Result<BTreeMap<String, Result<TopicDescription>>> {
        let asked =
            |name: &String| MetadataRequestTopic::default().with_name(Some(topic_name(name)));
        let asked: Vec<_> = topics.iter().map(asked).collect();
        let build = |_| {
            MetadataRequest::default()
                .with_topics(Some(asked.clone()))
                .with_allow_auto_topic_creation(create)
        };
        let answer = self.send(Node::Any, "metadata", build).await?;
        self.learn(&brokers_of(&answer));
        let located = answer.topics.into_iter().filter_map(|topic| {
            let name = topic.name.clone()?.to_string();
            let outcome = checked_code(topic.error_code);
            Some((name, outcome.map(|()| description_of(topic))))
        });
        Ok(located.collect())
    }

    /// Describes topics by name, in that order. A topic that does not exist fails all.
    pub async fn describe_topics(
        &mut self,
        names: &[String],
        partitions_max: i32,
    ) -> Result<Vec<TopicDescription>> {
        let mut described: Vec<TopicDescription> = Vec::new();
        let mut cursor: Option<Cursor> = None;
        let mut sorted = names.to_vec();
        sorted.sort_unstable();
        loop {
            let from = cursor.as_ref().map(|cursor| cursor.topic_name.to_string());
            let rest = sorted
                .iter()
                .filter(|name| from.as_ref().is_none_or(|from| *name >= from));
            let asked = rest.map(|name| TopicRequest::default().with_name(topic_name(name)));
            let asked: Vec<TopicRequest> = asked.collect();
            let build = |_| {
                DescribeTopicPartitionsRequest::default()
                    .with_topics(asked.clone())
                    .with_response_partition_limit(partitions_max)
                    .with_cursor(cursor.clone())
            };
            let answer = self
                .send(Node::Any, "describeTopicPartitions", build)
                .await?;
            for topic in answer.topics {
                checked_code(topic.error_code)?;
                let partitions = topic.partitions.iter().map(partition_of).collect();
                let topic = TopicDescription {
                    name: topic.name.unwrap_or_default().to_string(),
                    id: TopicId(*topic.topic_id.as_bytes()),
                    internal: topic.is_internal,
                    partitions,
                };
                match described.last_mut().filter(|last| last.name == topic.name) {
                    Some(last) => last.partitions.extend(topic.partitions),
                    None => described.push(topic),
                }
            }
            cursor = answer.next_cursor.map(|next| {
                Cursor::default()
                    .with_topic_name(next.topic_name)
                    .with_partition_index(next.partition_index)
            });
            if cursor.is_none() {
                return Ok(described);
            }
        }
    }

    /// Describes a topic by its id.
    pub async fn describe_topic_id(&mut self, id: TopicId) -> Result<TopicDescription> {
        let asked = MetadataRequestTopic::default().with_topic_id(uuid::Uuid::from_bytes(id.0));
        let topics = self
            .metadata("describeTopicsWithIds", Some(vec![asked]))
            .await?;
        let topic = topics.into_iter().next();
        let topic = topic.ok_or_else(|| ClientError::code(ErrorCode::UnknownTopicId.code()))?;
        checked_code(topic.error_code)?;
        Ok(description_of(topic))
    }

    pub async fn create_topic(&mut self, topic: &NewTopic, validate_only: bool) -> Result<()> {
        let assignment = |(index, replicas): (i32, &Vec<i32>)| {
            CreatableReplicaAssignment::default()
                .with_partition_index(index)
                .with_broker_ids(broker_ids(replicas))
        };
        let config = |(name, value): &(String, String)| {
            CreatableTopicConfig::default()
                .with_name(text(name))
                .with_value(Some(text(value)))
        };
        let creatable = CreatableTopic::default()
            .with_name(topic_name(&topic.name))
            .with_num_partitions(topic.partitions.unwrap_or(-1))
            .with_replication_factor(topic.replication_factor.unwrap_or(-1))
            .with_assignments((0..).zip(&topic.assignment).map(assignment).collect())
            .with_configs(topic.configs.iter().map(config).collect());
        let build = |_| {
            CreateTopicsRequest::default()
                .with_topics(vec![creatable.clone()])
                .with_timeout_ms(ADMIN_TIMEOUT_MS)
                .with_validate_only(validate_only)
        };
        let answer = self.send(Node::Any, "createTopics", build).await?;
        for result in answer.topics {
            checked(result.error_code, result.error_message)?;
        }
        Ok(())
    }

    /// The outcome for each topic.
    pub async fn delete_topics(&mut self, names: &[String]) -> Result<Vec<(String, Result<()>)>> {
        let names: Vec<TopicName> = names.iter().map(|name| topic_name(name)).collect();
        let build = |version| {
            let request = DeleteTopicsRequest::default().with_timeout_ms(ADMIN_TIMEOUT_MS);
            match version {
                ..6 => request.with_topic_names(names.clone()),
                _ => {
                    let state = |name: &TopicName| {
                        DeleteTopicState::default().with_name(Some(name.clone()))
                    };
                    request.with_topics(names.iter().map(state).collect())
                }
            }
        };
        let answer = self.send(Node::Any, "deleteTopics", build).await?;
        let outcomes = answer.responses.into_iter().map(|result| {
            let name = result.name.unwrap_or_default().to_string();
            (name, checked(result.error_code, result.error_message))
        });
        Ok(outcomes.collect())
    }

    /// Raises the number of partitions to `count`. Each of the new ones may have its replicas named.
    pub async fn create_partitions(
        &mut self,
        topic: &str,
        count: i32,
        assignments: Option<&[Vec<i32>]>,
    ) -> Result<()> {
        let assignment = |replicas: &Vec<i32>| {
            CreatePartitionsAssignment::default().with_broker_ids(broker_ids(replicas))
        };
        let wanted = CreatePartitionsTopic::default()
            .with_name(topic_name(topic))
            .with_count(count)
            .with_assignments(assignments.map(|all| all.iter().map(assignment).collect()));
        let build = |_| {
            CreatePartitionsRequest::default()
                .with_topics(vec![wanted.clone()])
                .with_timeout_ms(ADMIN_TIMEOUT_MS)
        };
        let answer = self.send(Node::Any, "createPartitions", build).await?;
        for result in answer.results {
            checked(result.error_code, result.error_message)?;
        }
        Ok(())
    }

    /// Partitions whose replicas are being moved. A broker that does not know of such has none.
    pub async fn reassignments(&mut self) -> Result<BTreeMap<(String, i32), OngoingReassignment>> {
        let build = |_| {
            ListPartitionReassignmentsRequest::default()
                .with_topics(None)
                .with_timeout_ms(ADMIN_TIMEOUT_MS)
        };
        let call = "listPartitionReassignments";
        let answer = match self.send(Node::Any, call, build).await {
            Ok(answer) => answer,
            Err(ClientError::UnsupportedVersion(_)) => return Ok(BTreeMap::new()),
            Err(error) => return Err(error),
        };
        checked(answer.error_code, answer.error_message)?;
        let mut all = BTreeMap::new();
        for topic in answer.topics {
            for partition in topic.partitions {
                let ongoing = OngoingReassignment {
                    replicas: ids(&partition.replicas),
                    adding: ids(&partition.adding_replicas),
                    removing: ids(&partition.removing_replicas),
                };
                all.insert((topic.name.to_string(), partition.partition_index), ongoing);
            }
        }
        Ok(all)
    }
}

fn description_of(topic: MetadataResponseTopic) -> TopicDescription {
    let mut partitions: Vec<_> = topic.partitions.iter().map(located_partition).collect();
    partitions.sort_unstable_by_key(|partition| partition.partition);
    TopicDescription {
        name: topic.name.unwrap_or_default().to_string(),
        id: TopicId(*topic.topic_id.as_bytes()),
        internal: topic.is_internal,
        partitions,
    }
}

fn located_partition(partition: &MetadataResponsePartition) -> PartitionDescription {
    PartitionDescription {
        partition: partition.partition_index,
        leader: leader(partition.leader_id),
        leader_epoch: partition.leader_epoch,
        replicas: ids(&partition.replica_nodes),
        isr: ids(&partition.isr_nodes),
        elr: None,
        last_known_elr: None,
    }
}

fn partition_of(partition: &DescribeTopicPartitionsResponsePartition) -> PartitionDescription {
    PartitionDescription {
        partition: partition.partition_index,
        leader: leader(partition.leader_id),
        leader_epoch: partition.leader_epoch,
        replicas: ids(&partition.replica_nodes),
        isr: ids(&partition.isr_nodes),
        elr: partition.eligible_leader_replicas.as_deref().map(ids),
        last_known_elr: partition.last_known_elr.as_deref().map(ids),
    }
}
