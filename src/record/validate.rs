//! What a produced batch must be before it is appended (Kafka's `LogValidator` and `ProduceRequest`).

use bytes::Bytes;

use super::BatchHeader;
use crate::types::{ErrorCode, Offset, TimestampMs};

/// What the topic and the request demand of a batch.
#[derive(Debug, Clone)]
pub struct ValidationRules<'a> {
    pub topic: &'a crate::config::TopicConfig,
    pub now_ms: TimestampMs,
    /// Version of the Produce request (zstd needs 7), or the newest for internal appends.
    pub produce_version: i16,
}

/// A batch that may be appended: header as it will be stored but for base offset and leader epoch.
#[derive(Debug, Clone)]
pub struct ValidBatch {
    pub header: BatchHeader,
    /// The bytes behind the header; a slice of the request's frame unless recompressed.
    pub payload: Bytes,
    /// Offset delta of (the first record with) the largest timestamp.
    pub max_timestamp_delta: i32,
}

/// Why a batch was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidBatch {
    pub error: ErrorCode,
    pub message: Option<String>,
    /// Index and message of each faulty record (Produce v8+).
    pub record_errors: Vec<(i32, Option<String>)>,
}

/// Checks the one batch of a Produce partition.
pub fn validate(
    _records: &Bytes,
    _rules: &ValidationRules<'_>,
) -> Result<ValidBatch, InvalidBatch> {
    unimplemented!("record helper")
}

/// Where an offset stands in a batch.
pub type OffsetDelta = Offset;
