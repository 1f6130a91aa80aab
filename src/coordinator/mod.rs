//! Groups: state machines whose records live in `__consumer_offsets`.

mod group;
mod loader;
mod record;
mod runtime;
mod service;
#[cfg(test)]
mod tests;

pub use group::{
    CommitPartition, CommitRequest, CommitTopic, CommittedOffset, DeleteOffsetsRequest,
    DescribedGroup, DescribedMember, FetchReply, FetchRequest, FetchTopic, GroupSnapshot,
    HeartbeatRequest, JoinReply, JoinRequest, JoinedMember, LeaveReply, LeaveRequest,
    LeavingMember, ListFilter, ListedGroup, PartitionErrors, Protocol, SyncReply, SyncRequest,
};
pub use service::{GROUP_METADATA_TOPIC, GroupCoordinator};
