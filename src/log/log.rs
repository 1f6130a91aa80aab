//! The log of one partition.

use std::fs::File;
use std::sync::Arc;

use bytes::Bytes;

use crate::config::TopicConfig;
use crate::record::ValidBatch;
use crate::types::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, TimestampMs, TopicPartition};

/// What the broker must do about a failed log operation.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The directory is offline or went offline with this operation.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    #[error("offset {offset} is not in {log_start_offset}..={log_end_offset}")]
    OffsetOutOfRange {
        offset: Offset,
        log_start_offset: Offset,
        log_end_offset: Offset,
    },
    #[error("{0}")]
    Corrupt(String),
}

/// Why a batch was not appended.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    #[error("{0}")]
    Log(#[from] LogError),
    /// OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH, RECORD_LIST_TOO_LARGE ...
    #[error("{0}")]
    Refused(#[from] crate::types::ApiError),
}

/// Where a batch went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    pub base_offset: Offset,
    pub last_offset: Offset,
    /// Only where the topic stamps LogAppendTime, else −1.
    pub log_append_time_ms: TimestampMs,
    pub log_start_offset: Offset,
    /// The batch was there already (idempotence): the offsets are those of its first write.
    pub duplicate: bool,
}

/// A piece of a segment file, to be sent as it is. Holding the file keeps it readable after deletion.
#[derive(Debug, Clone)]
pub struct FileRange {
    pub file: Arc<File>,
    pub position: u64,
    pub bytes: u64,
}

/// Bytes of whole batches.
#[derive(Debug, Clone)]
pub enum LogSlice {
    Memory(Vec<Bytes>),
    File(FileRange),
}

/// What a read found.
#[derive(Debug, Clone)]
pub struct LogRead {
    pub slice: LogSlice,
    pub bytes: usize,
    /// True if more batches below the bound follow the ones returned.
    pub more: bool,
}

/// An offset with its timestamp and leader epoch, as ListOffsets answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimestampOffset {
    pub timestamp: TimestampMs,
    pub offset: Offset,
    pub leader_epoch: LeaderEpoch,
}

/// One producer's state, as DescribeProducers answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProducerView {
    pub producer_id: ProducerId,
    pub producer_epoch: ProducerEpoch,
    pub last_sequence: i32,
    pub last_timestamp: TimestampMs,
    pub coordinator_epoch: i32,
    pub current_txn_start_offset: Offset,
}

/// One partition's log. All methods are synchronous and may block on the disk unless said otherwise;
/// `log_start_offset <= flushed_offset <= log_end_offset` always.
#[derive(Debug)]
pub struct Log {}

#[allow(unused_variables)]
impl Log {
    pub fn topic_partition(&self) -> &TopicPartition {
        unimplemented!()
    }
    /// Takes effect at the next append, roll or flush.
    pub fn set_config(&self, config: Arc<TopicConfig>) {
        unimplemented!()
    }
    /// Assigns offsets and writes. Checks producer state first. Marks the directory's flusher.
    pub fn append(
        &self,
        batch: ValidBatch,
        leader_epoch: LeaderEpoch,
        now_ms: TimestampMs,
    ) -> Result<Appended, AppendError> {
        unimplemented!()
    }
    /// Reads whole batches from the one that holds `offset` on, all below `bound`. Never empty when a
    /// batch is there: the first is returned even if larger than `bytes_max` (KIP-74) when
    /// `at_least_one`. One read stays in one segment.
    pub fn read(
        &self,
        offset: Offset,
        bytes_max: usize,
        bound: Offset,
        at_least_one: bool,
    ) -> Result<LogRead, LogError> {
        unimplemented!()
    }
    /// The same, answered only if it cannot block (tail cache); `None` sends the caller to an executor.
    pub fn read_cached(
        &self,
        offset: Offset,
        bytes_max: usize,
        bound: Offset,
        at_least_one: bool,
    ) -> Option<LogRead> {
        unimplemented!()
    }
    /// Does not block.
    pub fn log_start_offset(&self) -> Offset {
        unimplemented!()
    }
    /// Does not block.
    pub fn log_end_offset(&self) -> Offset {
        unimplemented!()
    }
    /// All below is on disk. Does not block.
    pub fn flushed_offset(&self) -> Offset {
        unimplemented!()
    }
    /// Bytes in `[from, to)` as far as known without I/O (for `min_bytes`); an estimate is fine when
    /// the range spans segments. Does not block.
    pub fn bytes_between(&self, from: Offset, to: Offset) -> u64 {
        unimplemented!()
    }
    /// Moves the log start up (DeleteRecords), durably, and drops segments wholly below.
    pub fn advance_log_start_offset(&self, to: Offset) -> Result<Offset, LogError> {
        unimplemented!()
    }
    /// First record at or after `timestamp`, below `bound`.
    pub fn offset_for_timestamp(
        &self,
        timestamp: TimestampMs,
        bound: Offset,
    ) -> Result<Option<TimestampOffset>, LogError> {
        unimplemented!()
    }
    /// The (first) record with the largest timestamp.
    pub fn offset_of_max_timestamp(&self) -> Result<Option<TimestampOffset>, LogError> {
        unimplemented!()
    }
    /// Epoch of the record at `offset`, or of the last before it.
    pub fn epoch_for_offset(&self, offset: Offset) -> Option<LeaderEpoch> {
        unimplemented!()
    }
    /// Largest epoch `<= epoch` that has records, with the offset at which it ends.
    pub fn end_offset_for_epoch(&self, epoch: LeaderEpoch) -> Option<(LeaderEpoch, Offset)> {
        unimplemented!()
    }
    pub fn latest_epoch(&self) -> Option<LeaderEpoch> {
        unimplemented!()
    }
    pub fn producers(&self) -> Vec<ProducerView> {
        unimplemented!()
    }
    /// Syncs all that was appended, by the caller's own hand (shutdown, tests).
    pub fn flush(&self) -> Result<Offset, LogError> {
        unimplemented!()
    }
    /// Bytes of all segments. Does not block.
    pub fn size_bytes(&self) -> u64 {
        unimplemented!()
    }
    pub fn segment_count(&self) -> usize {
        unimplemented!()
    }
}
