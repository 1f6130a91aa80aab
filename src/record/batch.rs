//! The 61-byte header of a record batch.

use crate::types::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, TimestampMs};

/// Size of a batch's header; the records follow.
pub const BATCH_HEADER_BYTES: usize = 61;

/// The fields of a batch header, in wire order (magic is always 2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchHeader {
    pub base_offset: Offset,
    /// Bytes behind this field: the whole batch is 12 bytes longer.
    pub batch_length: i32,
    pub partition_leader_epoch: LeaderEpoch,
    pub crc: u32,
    pub attributes: i16,
    pub last_offset_delta: i32,
    pub base_timestamp: TimestampMs,
    pub max_timestamp: TimestampMs,
    pub producer_id: ProducerId,
    pub producer_epoch: ProducerEpoch,
    pub base_sequence: i32,
    pub record_count: i32,
}

impl BatchHeader {
    /// The offset of the batch's last record.
    pub fn last_offset(&self) -> Offset {
        self.base_offset + i64::from(self.last_offset_delta)
    }
}
