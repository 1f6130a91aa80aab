//! Groups as an admin sees them.

use std::time::Duration;

use bytes::{Buf, Bytes};
use kafka_protocol::messages::consumer_protocol_assignment::ConsumerProtocolAssignment;
use kafka_protocol::messages::describe_groups_response::{DescribedGroup, DescribedGroupMember};
use kafka_protocol::messages::{
    ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse, DeleteGroupsRequest,
    DescribeGroupsRequest, GroupId, ListGroupsRequest,
};
use kafka_protocol::protocol::Decodable;

use super::cluster::Client;
use super::connection::CallError;
use super::errors::{checked, checked_code};
use super::topics::text;
use super::{BrokerInfo, ClientError, Result};
use crate::types::{ErrorCode, TopicPartition};

const LIST_GROUPS_MAX: i16 = 5;
const DESCRIBE_GROUPS_MAX: i16 = 6;

/// A group in a list.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct GroupListing {
    pub group: String,
    /// `consumer`, `connect`, … or empty.
    pub protocol_type: String,
    /// `Stable`, `Empty`, …
    pub state: String,
    /// `classic`, `consumer`, …
    pub kind: String,
}

/// A group and its members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupDescription {
    pub group: String,
    /// `Dead` if there is no such group.
    pub state: String,
    pub protocol_type: String,
    /// `range`, …
    pub assignor: String,
    pub coordinator: BrokerInfo,
    pub members: Vec<GroupMemberDescription>,
    /// Of the consumer protocol (KIP-848); a classic group has none.
    pub epoch: Option<i32>,
    pub target_epoch: Option<i32>,
    /// What the broker said of a group that is not there.
    pub missing: Option<String>,
}

/// A member of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupMemberDescription {
    pub member_id: String,
    pub instance_id: Option<String>,
    pub client_id: String,
    pub host: String,
    pub epoch: Option<i32>,
    pub assignment: Vec<TopicPartition>,
}

impl Client {
    /// The groups of all brokers, sorted by name; of some states or kinds if they are named.
    pub async fn list_groups(
        &mut self,
        states: &[String],
        kinds: &[String],
    ) -> Result<Vec<GroupListing>> {
        let mut attempts = self.attempts();
        loop {
            match self.list_groups_once(states, kinds).await {
                Err(error) if error.is_retriable() => {
                    if !attempts.again().await {
                        return Err(error);
                    }
                }
                other => return other,
            }
        }
    }

    async fn list_groups_once(
        &mut self,
        states: &[String],
        kinds: &[String],
    ) -> Result<Vec<GroupListing>> {
        let brokers = self.brokers("findAllBrokers").await?;
        let request = ListGroupsRequest::default()
            .with_states_filter(states.iter().map(|state| text(state)).collect())
            .with_types_filter(kinds.iter().map(|kind| text(kind)).collect());
        let requests = brokers.iter().map(|broker| (broker.id, request.clone()));
        let answers = self.send_each(requests.collect(), LIST_GROUPS_MAX, Duration::ZERO);
        let mut groups = Vec::new();
        for (_, outcome) in answers.await {
            let answer = match outcome {
                Ok(answer) => answer,
                Err(CallError::Final(error)) => return Err(error),
                Err(CallError::Io(error)) => {
                    let code = ErrorCode::NetworkException.code();
                    return Err(ClientError::api(code, Some(error)));
                }
            };
            checked_code(answer.error_code)?;
            groups.extend(answer.groups.into_iter().map(|group| GroupListing {
                group: group.group_id.to_string(),
                protocol_type: group.protocol_type.to_string(),
                state: group.group_state.to_string(),
                kind: group.group_type.to_string(),
            }));
        }
        groups.sort_unstable();
        groups.dedup();
        Ok(groups)
    }

    /// Describes a group of either protocol. One that does not exist is `Dead`.
    pub async fn describe_group(&mut self, group: &str) -> Result<GroupDescription> {
        let described = match self.describe_consumer_group(group).await {
            Ok(answer) => answer,
            Err(ClientError::UnsupportedVersion(_)) => None,
            Err(error) => return Err(error),
        };
        let mut described = match described {
            Some(described) => described,
            None => self.describe_classic_group(group).await?,
        };
        let id = self.coordinator(group, "describeGroups").await?;
        if let Some((host, port)) = self.brokers.get(&id) {
            described.coordinator.host.clone_from(host);
            described.coordinator.port = i32::from(*port);
        }
        described.coordinator.id = id;
        Ok(described)
    }

    /// `None` for a group of the classic protocol, or of none.
    async fn describe_consumer_group(&mut self, group: &str) -> Result<Option<GroupDescription>> {
        let request =
            ConsumerGroupDescribeRequest::default().with_group_ids(vec![GroupId(text(group))]);
        let call = "describeConsumerGroups";
        self.send_to_coordinator(group, call, 1, |_| request.clone(), read_consumer_group)
            .await
    }

    async fn describe_classic_group(&mut self, group: &str) -> Result<GroupDescription> {
        let request = DescribeGroupsRequest::default().with_groups(vec![GroupId(text(group))]);
        let read = |answer: kafka_protocol::messages::DescribeGroupsResponse| {
            let first = answer.groups.into_iter().next();
            let first = first.ok_or_else(|| ClientError::Malformed("no group".to_owned()))?;
            classic_group(first)
        };
        let call = "describeClassicGroups";
        let max = DESCRIBE_GROUPS_MAX;
        self.send_to_coordinator(group, call, max, |_| request.clone(), read)
            .await
    }

    pub async fn delete_group(&mut self, group: &str) -> Result<()> {
        let request = DeleteGroupsRequest::default().with_groups_names(vec![GroupId(text(group))]);
        let read = |answer: kafka_protocol::messages::DeleteGroupsResponse| {
            let mut results = answer.results.iter();
            results.try_for_each(|result| checked_code(result.error_code))
        };
        let call = "deleteConsumerGroups";
        self.send_to_coordinator(group, call, 2, |_| request.clone(), read)
            .await
    }
}

fn nobody() -> BrokerInfo {
    BrokerInfo {
        id: -1,
        host: String::new(),
        port: -1,
        rack: None,
        fenced: false,
    }
}

fn read_consumer_group(answer: ConsumerGroupDescribeResponse) -> Result<Option<GroupDescription>> {
    let Some(group) = answer.groups.into_iter().next() else {
        return Ok(None);
    };
    let code = ErrorCode::from_code(group.error_code);
    if matches!(
        code,
        Some(ErrorCode::GroupIdNotFound | ErrorCode::UnsupportedVersion)
    ) {
        return Ok(None);
    }
    checked(group.error_code, group.error_message)?;
    let members = group.members.into_iter().map(|member| {
        let topics = member.assignment.topic_partitions.iter();
        let assignment = topics.flat_map(|topic| {
            let of = |partition: &i32| TopicPartition::new(topic.topic_name.as_str(), *partition);
            topic.partitions.iter().map(of)
        });
        GroupMemberDescription {
            assignment: assignment.collect(),
            member_id: member.member_id.to_string(),
            instance_id: member.instance_id.map(|id| id.to_string()),
            client_id: member.client_id.to_string(),
            host: member.client_host.to_string(),
            epoch: Some(member.member_epoch),
        }
    });
    Ok(Some(GroupDescription {
        group: group.group_id.to_string(),
        state: group.group_state.to_string(),
        protocol_type: "consumer".to_owned(),
        assignor: group.assignor_name.to_string(),
        coordinator: nobody(),
        members: members.collect(),
        epoch: Some(group.group_epoch),
        target_epoch: Some(group.assignment_epoch),
        missing: None,
    }))
}

fn classic_group(group: DescribedGroup) -> Result<GroupDescription> {
    let is_missing = group.error_code == ErrorCode::GroupIdNotFound.code();
    let missing = is_missing.then(|| {
        let message = group.error_message.as_ref().map(ToString::to_string);
        message.unwrap_or_else(|| format!("Group {} not found.", group.group_id.as_str()))
    });
    if !is_missing {
        checked(group.error_code, group.error_message)?;
    }
    let consumers = matches!(group.protocol_type.as_str(), "consumer" | "");
    let member = |member: DescribedGroupMember| GroupMemberDescription {
        assignment: match consumers {
            true => assigned(member.member_assignment).unwrap_or_default(),
            false => Vec::new(),
        },
        member_id: member.member_id.to_string(),
        instance_id: member.group_instance_id.map(|id| id.to_string()),
        client_id: member.client_id.to_string(),
        host: member.client_host.to_string(),
        epoch: None,
    };
    Ok(GroupDescription {
        group: group.group_id.to_string(),
        state: match is_missing {
            true => "Dead".to_owned(),
            false => group.group_state.to_string(),
        },
        protocol_type: group.protocol_type.to_string(),
        assignor: group.protocol_data.to_string(),
        coordinator: nobody(),
        members: group.members.into_iter().map(member).collect(),
        epoch: None,
        target_epoch: None,
        missing,
    })
}

/// The partitions of an assignment of the consumer protocol; `None` for other bytes.
pub(super) fn assigned(mut bytes: Bytes) -> Option<Vec<TopicPartition>> {
    let version = bytes.try_get_i16().ok().filter(|version| *version >= 0)?;
    let version = version.min(3);
    let assignment = ConsumerProtocolAssignment::decode(&mut bytes, version).ok()?;
    let mut partitions = Vec::new();
    for topic in assignment.assigned_partitions {
        for partition in topic.partitions {
            partitions.push(TopicPartition::new(topic.topic.as_str(), partition));
        }
    }
    Some(partitions)
}
