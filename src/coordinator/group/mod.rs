//! The groups of one partition of `__consumer_offsets`. Pure.
//!
//! [`Shard::decide`] looks at a request and says what to append and what to answer; [`Shard::apply`] takes in
//! what was appended, now or when the partition is loaded. State that is not in the log (who waits, who is
//! pending, timers) changes in `decide`. Nothing is ever taken back: where an append fails the shard is
//! dropped and made anew from the log.

mod classic;
mod join;
mod machine;
mod messages;
mod offsets;
mod rebalance;
mod subscription;
#[cfg(test)]
mod tests;

pub use machine::Shard;
pub use messages::{
    CommitPartition, CommitRequest, CommitTopic, DeleteOffsetsRequest, DescribedGroup,
    DescribedMember, FetchReply, FetchRequest, FetchTopic, GroupSnapshot, HeartbeatRequest,
    JoinReply, JoinRequest, JoinedMember, LeaveReply, LeaveRequest, LeavingMember, ListFilter,
    ListedGroup, Now, Outcome, PartitionErrors, Protocol, Reply, Request, SyncReply, SyncRequest,
    Token,
};
pub use offsets::CommittedOffset;

/// What the machine needs to know of the broker's configuration. Times in milliseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupConfig {
    /// `group.initial.rebalance.delay.ms`
    pub initial_rebalance_delay_ms: i32,
    /// `group.max.size`
    pub size_max: usize,
    /// `offset.metadata.max.bytes`
    pub offset_metadata_max: usize,
    /// `offsets.retention.minutes`
    pub offsets_retention_ms: i64,
    /// `offsets.retention.check.interval.ms`
    pub offsets_retention_check_interval_ms: i64,
    /// A larger batch could not be appended to `__consumer_offsets`.
    pub batch_bytes_max: usize,
}
