//! The effective configuration of one topic.

use crate::types::{Compression, TimestampType};

/// Every topic setting that the broker acts on, resolved: topic override, else the dynamic and static
/// broker values, else Kafka's default. Times in milliseconds, sizes in bytes; −1 means no limit.
#[derive(Debug, Clone, PartialEq)]
pub struct TopicConfig {
    pub cleanup_policy: CleanupPolicy,
    pub compression: CompressionPolicy,
    pub timestamp_type: TimestampType,
    pub timestamp_before_max_ms: i64,
    pub timestamp_after_max_ms: i64,
    pub max_message_bytes: i32,
    pub min_insync_replicas: i32,
    pub segment_bytes: i32,
    pub segment_ms: i64,
    pub segment_jitter_ms: i64,
    pub segment_index_bytes: i32,
    pub index_interval_bytes: i32,
    pub flush_messages: i64,
    pub flush_ms: i64,
    pub retention_ms: i64,
    pub retention_bytes: i64,
    pub delete_retention_ms: i64,
    pub file_delete_delay_ms: i64,
    pub min_compaction_lag_ms: i64,
    pub max_compaction_lag_ms: i64,
    pub min_cleanable_dirty_ratio: f64,
    pub preallocate: bool,
    pub unclean_leader_election: bool,
}

/// `cleanup.policy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CleanupPolicy {
    pub delete: bool,
    pub compact: bool,
}

/// `compression.type`: keep what the producer chose, or bring every batch into one codec.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompressionPolicy {
    Producer,
    Always(Compression),
}

impl Default for TopicConfig {
    /// Kafka's defaults, and `flush.messages=1` (design: acknowledged at acks=all means on disk).
    fn default() -> Self {
        Self {
            cleanup_policy: CleanupPolicy {
                delete: true,
                compact: false,
            },
            compression: CompressionPolicy::Producer,
            timestamp_type: TimestampType::CreateTime,
            timestamp_before_max_ms: i64::MAX,
            timestamp_after_max_ms: 3_600_000,
            max_message_bytes: 1_048_588,
            min_insync_replicas: 1,
            segment_bytes: 1 << 30,
            segment_ms: 604_800_000,
            segment_jitter_ms: 0,
            segment_index_bytes: 10 << 20,
            index_interval_bytes: 4096,
            flush_messages: 1,
            flush_ms: i64::MAX,
            retention_ms: 604_800_000,
            retention_bytes: -1,
            delete_retention_ms: 86_400_000,
            file_delete_delay_ms: 60_000,
            min_compaction_lag_ms: 0,
            max_compaction_lag_ms: i64::MAX,
            min_cleanable_dirty_ratio: 0.5,
            preallocate: false,
            unclean_leader_election: false,
        }
    }
}
