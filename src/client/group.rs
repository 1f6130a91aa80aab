//! A member of a group of the classic protocol: joins, gets partitions, stays alive, commits, leaves.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::messages::consumer_protocol_assignment::{
    ConsumerProtocolAssignment, TopicPartition as AssignedTopic,
};
use kafka_protocol::messages::consumer_protocol_subscription::ConsumerProtocolSubscription;
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::leave_group_request::MemberIdentity;
use kafka_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use kafka_protocol::messages::{
    GroupId, HeartbeatRequest, JoinGroupRequest, JoinGroupResponse, LeaveGroupRequest,
    SyncGroupRequest, TopicName,
};
use kafka_protocol::protocol::{Decodable, Encodable, StrBytes};

use super::assignor::assign;
use super::cluster::{Client, Node};
use super::connection::CallError;
use super::errors::checked_code;
use super::groups::assigned;
use super::topics::text;
use super::{ClientError, Result};
use crate::time::{Clock, SystemClock};
use crate::types::{ErrorCode, TopicPartition};

const JOIN_MAX: i16 = 9;
const SYNC_MAX: i16 = 5;
const HEARTBEAT_MAX: i16 = 4;
const LEAVE_MAX: i16 = 5;
const PROTOCOL_TYPE: &str = "consumer";
const ASSIGNOR: &str = "range";
/// Of the bytes that members give one another; 1 knows all that is used here.
const CONSUMER_PROTOCOL: i16 = 1;

/// How a member behaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupMemberConfig {
    pub group: String,
    /// `group.instance.id`: its place is kept while it is away.
    pub instance_id: Option<String>,
    pub session_timeout: Duration,
    pub rebalance_timeout: Duration,
    pub heartbeat_interval: Duration,
}

/// What a member has to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupTurn {
    /// Go on.
    Steady,
    /// Commit, give up what is assigned, and join again.
    Rejoin,
}

/// A member.
#[derive(Debug)]
pub struct GroupMember {
    config: GroupMemberConfig,
    member_id: String,
    generation: i32,
    heartbeat_at: Instant,
}

impl GroupMember {
    pub fn new(config: GroupMemberConfig) -> Self {
        Self {
            config,
            member_id: String::new(),
            generation: -1,
            heartbeat_at: SystemClock.now(),
        }
    }

    pub fn group(&self) -> &str {
        &self.config.group
    }

    /// Its id and generation, for commits.
    pub fn identity(&self) -> (&str, i32) {
        (&self.member_id, self.generation)
    }

    /// Joins with these topics and returns the partitions that are this member's.
    pub async fn join(
        &mut self,
        client: &mut Client,
        topics: &[String],
    ) -> Result<Vec<TopicPartition>> {
        let mut attempts = client.attempts();
        loop {
            let error = match self.join_once(client, topics).await {
                Ok(assigned) => {
                    self.heartbeat_at = SystemClock.now() + self.config.heartbeat_interval;
                    return Ok(assigned);
                }
                Err(error) => error,
            };
            let begin_anew = [
                ErrorCode::UnknownMemberId,
                ErrorCode::IllegalGeneration,
                ErrorCode::RebalanceInProgress,
                ErrorCode::MemberIdRequired,
            ];
            let begins = begin_anew.iter().any(|code| error.is(*code));
            if error.is(ErrorCode::UnknownMemberId) {
                self.member_id.clear();
            }
            if error.is_retriable() {
                client.coordinators.remove(&self.config.group);
            } else if !begins {
                return Err(error);
            }
            if !error.is(ErrorCode::MemberIdRequired) && !attempts.again().await {
                return Err(error);
            }
        }
    }

    async fn join_once(
        &mut self,
        client: &mut Client,
        topics: &[String],
    ) -> Result<Vec<TopicPartition>> {
        let coordinator = client.coordinator(&self.config.group, "joinGroup").await?;
        let joined = self.send_join(client, coordinator, topics).await?;
        if !joined.member_id.is_empty() {
            self.member_id = joined.member_id.to_string();
        }
        checked_code(joined.error_code)?;
        self.generation = joined.generation_id;
        let leads = joined.leader == joined.member_id;
        let assignments = match leads && !joined.skip_assignment {
            true => assignments(client, &joined).await?,
            false => Vec::new(),
        };
        let request = SyncGroupRequest::default()
            .with_group_id(self.group_id())
            .with_generation_id(self.generation)
            .with_member_id(text(&self.member_id))
            .with_group_instance_id(self.instance_id());
        let build = |version| {
            let request = request.clone().with_assignments(assignments.clone());
            match version {
                5.. => request
                    .with_protocol_type(Some(StrBytes::from_static_str(PROTOCOL_TYPE)))
                    .with_protocol_name(Some(StrBytes::from_static_str(ASSIGNOR))),
                _ => request,
            }
        };
        let node = Node::Broker(coordinator);
        let patience = self.config.rebalance_timeout;
        let synced = client.try_once(node, SYNC_MAX, build, patience).await;
        let synced = synced.map_err(network)?;
        checked_code(synced.error_code)?;
        Ok(assigned(synced.assignment).unwrap_or_default())
    }

    async fn send_join(
        &self,
        client: &mut Client,
        coordinator: i32,
        topics: &[String],
    ) -> Result<JoinGroupResponse> {
        let subscription = ConsumerProtocolSubscription::default()
            .with_topics(topics.iter().map(|topic| text(topic)).collect());
        let protocol = JoinGroupRequestProtocol::default()
            .with_name(StrBytes::from_static_str(ASSIGNOR))
            .with_metadata(with_version(&subscription)?);
        let millis = |duration: Duration| i32::try_from(duration.as_millis()).unwrap_or(i32::MAX);
        let request = JoinGroupRequest::default()
            .with_group_id(self.group_id())
            .with_session_timeout_ms(millis(self.config.session_timeout))
            .with_rebalance_timeout_ms(millis(self.config.rebalance_timeout))
            .with_member_id(text(&self.member_id))
            .with_group_instance_id(self.instance_id())
            .with_protocol_type(StrBytes::from_static_str(PROTOCOL_TYPE))
            .with_protocols(vec![protocol]);
        let node = Node::Broker(coordinator);
        let patience = self.config.rebalance_timeout;
        let build = |_| request.clone();
        let joined = client.try_once(node, JOIN_MAX, build, patience).await;
        joined.map_err(network)
    }

    /// Says that it is alive, if it is time to. A group that it is not in any more is joined again.
    pub async fn heartbeat(&mut self, client: &mut Client) -> Result<GroupTurn> {
        let now = SystemClock.now();
        if now < self.heartbeat_at {
            return Ok(GroupTurn::Steady);
        }
        self.heartbeat_at = now + self.config.heartbeat_interval;
        let coordinator = client.coordinator(&self.config.group, "heartbeat").await?;
        let request = HeartbeatRequest::default()
            .with_group_id(self.group_id())
            .with_generation_id(self.generation)
            .with_member_id(text(&self.member_id))
            .with_group_instance_id(self.instance_id());
        let node = Node::Broker(coordinator);
        let build = |_| request.clone();
        let sent = client.try_once(node, HEARTBEAT_MAX, build, Duration::ZERO);
        let outcome = match sent.await {
            Ok(answer) => checked_code(answer.error_code),
            Err(error) => Err(network(error)),
        };
        match outcome {
            Ok(()) => Ok(GroupTurn::Steady),
            Err(error) if error.is_retriable() => {
                client.coordinators.remove(&self.config.group);
                self.heartbeat_at = now + Duration::from_millis(100);
                Ok(GroupTurn::Steady)
            }
            Err(error) => {
                let again = [
                    ErrorCode::RebalanceInProgress,
                    ErrorCode::UnknownMemberId,
                    ErrorCode::IllegalGeneration,
                ];
                match again.iter().any(|code| error.is(*code)) {
                    true => Ok(GroupTurn::Rejoin),
                    false => Err(error),
                }
            }
        }
    }

    /// Leaves the group, unless its place shall be kept. What fails is left to the session's time-out.
    pub async fn leave(&mut self, client: &mut Client) {
        if self.member_id.is_empty() || self.config.instance_id.is_some() {
            return;
        }
        let Ok(coordinator) = client.coordinator(&self.config.group, "leaveGroup").await else {
            return;
        };
        let identity = MemberIdentity::default().with_member_id(text(&self.member_id));
        let build = |version| {
            let request = LeaveGroupRequest::default().with_group_id(self.group_id());
            match version {
                ..3 => request.with_member_id(text(&self.member_id)),
                _ => request.with_members(vec![identity.clone()]),
            }
        };
        let node = Node::Broker(coordinator);
        let _ = client
            .try_once(node, LEAVE_MAX, build, Duration::ZERO)
            .await;
    }

    fn group_id(&self) -> GroupId {
        GroupId(text(&self.config.group))
    }

    fn instance_id(&self) -> Option<StrBytes> {
        self.config.instance_id.as_deref().map(text)
    }
}

fn network(error: CallError) -> ClientError {
    match error {
        CallError::Final(error) => error,
        CallError::Io(error) => ClientError::api(ErrorCode::NetworkException.code(), Some(error)),
    }
}

/// The bytes that members exchange begin with their version.
fn with_version(message: &impl Encodable) -> Result<Bytes> {
    let mut bytes = BytesMut::new();
    bytes.put_i16(CONSUMER_PROTOCOL);
    message
        .encode(&mut bytes, CONSUMER_PROTOCOL)
        .map_err(|error| ClientError::Malformed(error.to_string()))?;
    Ok(bytes.freeze())
}

/// The leader's part: who gets what.
async fn assignments(
    client: &mut Client,
    joined: &JoinGroupResponse,
) -> Result<Vec<SyncGroupRequestAssignment>> {
    let mut subscriptions = BTreeMap::new();
    let mut all_topics = Vec::new();
    for member in &joined.members {
        let topics = subscribed(member.metadata.clone());
        all_topics.extend(topics.iter().cloned());
        subscriptions.insert(member.member_id.to_string(), topics);
    }
    all_topics.sort_unstable();
    all_topics.dedup();
    let located = client.locate(&all_topics, true).await?;
    let counts = located.iter().filter_map(|(topic, found)| {
        let count = found.as_ref().ok()?.partitions.len();
        Some((topic.clone(), i32::try_from(count).unwrap_or(i32::MAX)))
    });
    let assigned = assign(&subscriptions, &counts.collect());
    let mut assignments = Vec::new();
    for (member, topics) in assigned {
        let topic = |(topic, partitions): (String, Vec<i32>)| {
            AssignedTopic::default()
                .with_topic(TopicName(text(&topic)))
                .with_partitions(partitions)
        };
        let assignment = ConsumerProtocolAssignment::default()
            .with_assigned_partitions(topics.into_iter().map(topic).collect());
        assignments.push(
            SyncGroupRequestAssignment::default()
                .with_member_id(text(&member))
                .with_assignment(with_version(&assignment)?),
        );
    }
    Ok(assignments)
}

fn subscribed(mut metadata: Bytes) -> Vec<String> {
    use bytes::Buf as _;
    let Some(version @ 0..) = metadata.try_get_i16().ok() else {
        return Vec::new();
    };
    let subscription = ConsumerProtocolSubscription::decode(&mut metadata, version.min(3));
    let topics = subscription.map(|subscription| subscription.topics);
    let topics = topics.unwrap_or_default();
    topics.iter().map(ToString::to_string).collect()
}
