//! What a group coordinator is asked, and what it answers. Versions of the wire protocol end in the handlers.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

use super::offsets::CommittedOffset;
use crate::coordinator::record::GroupRecord;
use crate::types::{ErrorCode, TimestampMs, TopicId, TopicName};

/// The time of a step: for deadlines, and for what is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    pub instant: Instant,
    pub wall_ms: TimestampMs,
}

/// Names the caller who waits for a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

/// One thing asked of a shard.
#[derive(Debug, Clone)]
pub enum Request {
    Join(JoinRequest),
    Sync(SyncRequest),
    Heartbeat(HeartbeatRequest),
    Leave(LeaveRequest),
    CommitOffsets(CommitRequest),
    FetchOffsets(FetchRequest),
    DeleteOffsets(DeleteOffsetsRequest),
    DeleteGroups(Vec<Arc<str>>),
    DescribeGroups(Vec<Arc<str>>),
    ListGroups(ListFilter),
    /// For metrics.
    Snapshot,
    /// These topics are gone: so are their offsets.
    TopicsDeleted(Vec<TopicName>),
}

/// What [`Request`] of the same name is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    Join(JoinReply),
    Sync(SyncReply),
    Heartbeat(ErrorCode),
    Leave(LeaveReply),
    CommitOffsets(Result<PartitionErrors, ErrorCode>),
    FetchOffsets(FetchReply),
    DeleteOffsets(Result<PartitionErrors, ErrorCode>),
    DeleteGroups(Vec<(Arc<str>, ErrorCode)>),
    DescribeGroups(Vec<(Arc<str>, Option<DescribedGroup>)>),
    ListGroups(Vec<ListedGroup>),
    Snapshot(Vec<GroupSnapshot>),
    TopicsDeleted,
}

/// An error for each partition of each topic, in the order of the request.
pub type PartitionErrors = Vec<(TopicName, Vec<(i32, ErrorCode)>)>;

/// What a step decided. The caller appends `records`, applies them at once, logs `notes`, and releases
/// `replies` once everything applied so far is committed.
#[derive(Debug, Default)]
pub struct Outcome {
    pub records: Vec<GroupRecord>,
    pub replies: Vec<(Token, Reply)>,
    pub notes: Vec<Note>,
}

/// What an operator wants to read in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    pub group: Arc<str>,
    pub text: String,
}

/// One protocol (assignor) that a member offers, with its opaque metadata.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Protocol {
    pub name: Arc<str>,
    pub metadata: Bytes,
}

/// JoinGroup.
#[derive(Debug, Clone)]
pub struct JoinRequest {
    pub group: Arc<str>,
    /// Empty: not known yet.
    pub member_id: Arc<str>,
    pub instance_id: Option<Arc<str>>,
    pub client_id: Arc<str>,
    pub client_host: Arc<str>,
    pub session_timeout_ms: i32,
    pub rebalance_timeout_ms: i32,
    pub protocol_type: Arc<str>,
    /// In order of preference; names are distinct.
    pub protocols: Vec<Protocol>,
    pub reason: Option<String>,
    /// v4+: a dynamic member has to come back with the id that it is given (KIP-394).
    pub requires_known_member_id: bool,
    /// v9+: a static leader that comes back may be told not to assign again (KIP-814).
    pub supports_skip_assignment: bool,
    /// What makes a new member's id unique; brought along since the machine has no randomness.
    pub fresh_id: String,
}

impl JoinRequest {
    pub(super) fn reason(&self) -> &str {
        self.reason
            .as_deref()
            .filter(|reason| !reason.is_empty())
            .unwrap_or("not provided")
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JoinReply {
    pub error: ErrorCode,
    pub generation: i32,
    pub protocol_type: Option<Arc<str>>,
    pub protocol_name: Option<Arc<str>>,
    pub leader: Arc<str>,
    pub skip_assignment: bool,
    pub member_id: Arc<str>,
    /// Only for the leader.
    pub members: Vec<JoinedMember>,
}

impl JoinReply {
    pub fn failed(member_id: Arc<str>, error: ErrorCode) -> Self {
        Self {
            error,
            generation: -1,
            protocol_type: None,
            protocol_name: None,
            leader: Arc::from(""),
            skip_assignment: false,
            member_id,
            members: Vec::new(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JoinedMember {
    pub member_id: Arc<str>,
    pub instance_id: Option<Arc<str>>,
    pub metadata: Bytes,
}

/// SyncGroup.
#[derive(Debug, Clone)]
pub struct SyncRequest {
    pub group: Arc<str>,
    pub generation: i32,
    pub member_id: Arc<str>,
    pub instance_id: Option<Arc<str>>,
    pub protocol_type: Option<Arc<str>>,
    pub protocol_name: Option<Arc<str>>,
    pub assignments: Vec<(Arc<str>, Bytes)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyncReply {
    pub error: ErrorCode,
    pub protocol_type: Option<Arc<str>>,
    pub protocol_name: Option<Arc<str>>,
    pub assignment: Bytes,
}

impl SyncReply {
    pub fn failed(error: ErrorCode) -> Self {
        Self {
            error,
            protocol_type: None,
            protocol_name: None,
            assignment: Bytes::new(),
        }
    }
}

/// Heartbeat.
#[derive(Debug, Clone)]
pub struct HeartbeatRequest {
    pub group: Arc<str>,
    pub generation: i32,
    pub member_id: Arc<str>,
    pub instance_id: Option<Arc<str>>,
}

/// LeaveGroup.
#[derive(Debug, Clone)]
pub struct LeaveRequest {
    pub group: Arc<str>,
    pub members: Vec<LeavingMember>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeavingMember {
    /// Empty: an administrator removes a static member by its instance id.
    pub member_id: Arc<str>,
    pub instance_id: Option<Arc<str>>,
    pub reason: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaveReply {
    pub error: ErrorCode,
    pub members: Vec<(LeavingMember, ErrorCode)>,
}

/// OffsetCommit.
#[derive(Debug, Clone)]
pub struct CommitRequest {
    pub group: Arc<str>,
    pub generation: i32,
    pub member_id: Arc<str>,
    pub instance_id: Option<Arc<str>>,
    /// v2–4: how long to keep the offsets.
    pub retention_ms: Option<i64>,
    /// v9+: a group that does not exist is GROUP_ID_NOT_FOUND rather than ILLEGAL_GENERATION.
    pub missing_group_error: ErrorCode,
    pub topics: Vec<CommitTopic>,
}

#[derive(Debug, Clone)]
pub struct CommitTopic {
    pub name: TopicName,
    pub id: TopicId,
    pub partitions: Vec<CommitPartition>,
}

#[derive(Debug, Clone)]
pub struct CommitPartition {
    pub partition: i32,
    pub offset: i64,
    pub leader_epoch: i32,
    pub metadata: Arc<str>,
}

/// OffsetFetch of one group.
#[derive(Debug, Clone)]
pub struct FetchRequest {
    pub group: Arc<str>,
    /// `None`: everything the group has committed.
    pub topics: Option<Vec<FetchTopic>>,
}

#[derive(Debug, Clone)]
pub struct FetchTopic {
    pub name: TopicName,
    pub id: TopicId,
    pub partitions: Vec<i32>,
}

/// Committed offsets of one group; `None` where there is none.
pub type FetchReply = Vec<(TopicName, Vec<(i32, Option<CommittedOffset>)>)>;

/// OffsetDelete.
#[derive(Debug, Clone)]
pub struct DeleteOffsetsRequest {
    pub group: Arc<str>,
    pub topics: Vec<(TopicName, Vec<i32>)>,
}

/// Which groups ListGroups is asked for; empty lists ask for all.
#[derive(Debug, Clone, Default)]
pub struct ListFilter {
    pub states: Vec<String>,
    pub types: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedGroup {
    pub group: Arc<str>,
    pub protocol_type: Arc<str>,
    pub state: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DescribedGroup {
    pub state: &'static str,
    pub protocol_type: Arc<str>,
    /// The chosen protocol; empty unless stable.
    pub protocol: Arc<str>,
    pub members: Vec<DescribedMember>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DescribedMember {
    pub member_id: Arc<str>,
    pub instance_id: Option<Arc<str>>,
    pub client_id: Arc<str>,
    pub client_host: Arc<str>,
    /// Empty unless the group is stable.
    pub metadata: Bytes,
    pub assignment: Bytes,
}

/// One group as metrics show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupSnapshot {
    pub group: Arc<str>,
    pub state: &'static str,
    pub members: usize,
    /// (topic, partition, committed offset)
    pub offsets: Vec<(TopicName, i32, i64)>,
}
