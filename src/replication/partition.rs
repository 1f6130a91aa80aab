//! One partition on this broker: leader state, its log, who waits for it.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use futures_util::future::BoxFuture;

use crate::log::{Appended, LogSlice};
use crate::types::{ErrorCode, LeaderEpoch, Offset, TopicId, TopicPartition};

/// What a producer waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acks {
    None,
    Leader,
    All,
}

/// How records are appended.
#[derive(Debug, Clone, Copy)]
pub struct AppendOptions {
    pub acks: Acks,
    /// Version of the Produce request; `i16::MAX` for appends of the broker itself.
    pub produce_version: i16,
    /// The broker's own records: the internal topics may be written, control batches are allowed.
    pub internal: bool,
}

/// Why nothing was appended, as Produce answers it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppendFailure {
    pub error: ErrorCode,
    pub message: Option<String>,
    pub record_errors: Vec<(i32, Option<String>)>,
    pub log_start_offset: Offset,
}

/// Up to where a reader may see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FetchBound {
    LogEnd,
    HighWatermark,
    LastStable,
}

/// What a fetch of one partition found.
#[derive(Debug, Clone)]
pub struct PartitionRead {
    pub slice: LogSlice,
    pub bytes: usize,
    pub high_watermark: Offset,
    pub last_stable_offset: Offset,
    pub log_start_offset: Offset,
}

/// One partition on this broker.
#[derive(Debug)]
pub struct Partition {}

#[allow(unused_variables)]
impl Partition {
    pub fn topic_partition(&self) -> &TopicPartition {
        unimplemented!()
    }
    pub fn topic_id(&self) -> TopicId {
        unimplemented!()
    }
    pub fn leader_epoch(&self) -> LeaderEpoch {
        unimplemented!()
    }
    /// NOT_LEADER_OR_FOLLOWER, or FENCED_ / UNKNOWN_LEADER_EPOCH if `current` (−1: do not check) differs.
    pub fn check_leader(&self, current: LeaderEpoch) -> Result<(), ErrorCode> {
        unimplemented!()
    }
    pub fn high_watermark(&self) -> Offset {
        unimplemented!()
    }
    pub fn last_stable_offset(&self) -> Offset {
        unimplemented!()
    }
    /// Validates and appends one batch. The order of appends is the order of calls, not of polls.
    /// Resolves when the batch is in the log (not yet acknowledged).
    pub fn append(
        self: &Arc<Self>,
        records: Bytes,
        options: AppendOptions,
    ) -> BoxFuture<'static, Result<Appended, AppendFailure>> {
        unimplemented!()
    }
    /// Resolves when the high watermark has reached `offset` (exclusive end); REQUEST_TIMED_OUT at
    /// `deadline`, NOT_LEADER_OR_FOLLOWER / KAFKA_STORAGE_ERROR if it never will.
    pub fn committed(
        self: &Arc<Self>,
        offset: Offset,
        deadline: Instant,
    ) -> BoxFuture<'static, Result<(), ErrorCode>> {
        unimplemented!()
    }
    /// Reads whole batches from the one that holds `offset`.
    pub fn read(
        self: &Arc<Self>,
        offset: Offset,
        bytes_max: usize,
        bound: FetchBound,
        at_least_one: bool,
    ) -> BoxFuture<'static, Result<PartitionRead, ErrorCode>> {
        unimplemented!()
    }
}
