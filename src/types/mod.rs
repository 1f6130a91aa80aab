//! The vocabulary: ids, offsets, epochs, error codes. Pure, and below everything else.

mod error_code;
mod id;
pub(crate) mod rules;

pub use error_code::{ApiError, ErrorCode};
pub use id::{
    BrokerId, ListenerName, TopicId, TopicName, TopicPartition, is_internal_topic,
    is_valid_topic_name,
};

/// Index of a partition in its topic.
pub type PartitionId = i32;
/// Position of a record in its partition.
pub type Offset = i64;
/// Number of a leader's term in a partition; −1 where it is not known.
pub type LeaderEpoch = i32;
/// Identifies an idempotent producer; −1 where there is none.
pub type ProducerId = i64;
/// Fences earlier instances of a producer id; −1 where there is none.
pub type ProducerEpoch = i16;
/// Milliseconds since 1970; −1 where there is none.
pub type TimestampMs = i64;

/// "No producer id", "no epoch", "no sequence" on the wire and on disk.
pub const NO_PRODUCER_ID: ProducerId = -1;
/// The offset a client gets where there is none to give.
pub const NO_OFFSET: Offset = -1;
/// The timestamp a client gets where there is none to give.
pub const NO_TIMESTAMP: TimestampMs = -1;
/// The leader epoch of a request that does not check it.
pub const NO_EPOCH: LeaderEpoch = -1;

/// How the records of a batch are compressed: bits 0–2 of its attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Compression {
    None = 0,
    Gzip = 1,
    Snappy = 2,
    Lz4 = 3,
    Zstd = 4,
}

impl Compression {
    /// Returns the codec with this number in a batch's attributes.
    pub fn from_attributes(attributes: i16) -> Option<Self> {
        Some(match attributes & 0x07 {
            0 => Self::None,
            1 => Self::Gzip,
            2 => Self::Snappy,
            3 => Self::Lz4,
            4 => Self::Zstd,
            _ => return None,
        })
    }
}

/// What the timestamps of a topic mean: bit 3 of a batch's attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TimestampType {
    CreateTime,
    LogAppendTime,
}
