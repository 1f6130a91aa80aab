//! The effective configuration of one topic.

use std::collections::BTreeMap;

use super::ConfigError;
use super::keys::{self, elements};
use super::values::BrokerValues;
use crate::types::{Compression, TimestampType};

/// Every topic setting that the broker acts on, resolved: topic override, else the dynamic and static
/// broker values, else Kafka's default. Times in milliseconds, sizes in bytes; −1 means no limit.
#[derive(Debug, Clone, PartialEq)]
pub struct TopicConfig {
    pub cleanup_policy: CleanupPolicy,
    pub compression: CompressionPolicy,
    /// −1: the library's default.
    pub compression_gzip_level: i32,
    pub compression_lz4_level: i32,
    pub compression_zstd_level: i32,
    pub timestamp_type: TimestampType,
    pub timestamp_before_max_ms: i64,
    pub timestamp_after_max_ms: i64,
    pub max_message_bytes: i32,
    /// Of a batch, decompressed.
    pub max_decompressed_message_bytes: i32,
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
    /// Kafka's defaults, and `flush.messages=1` (acknowledged at acks=all means on disk).
    fn default() -> Self {
        Self {
            cleanup_policy: CleanupPolicy {
                delete: true,
                compact: false,
            },
            compression: CompressionPolicy::Producer,
            compression_gzip_level: -1,
            compression_lz4_level: 9,
            compression_zstd_level: 3,
            timestamp_type: TimestampType::CreateTime,
            timestamp_before_max_ms: i64::MAX,
            timestamp_after_max_ms: 3_600_000,
            max_message_bytes: 1_048_588,
            max_decompressed_message_bytes: i32::MAX - 8,
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

/// Kafka's way around the lower bound of `segment.bytes`, for tests.
const INTERNAL_SEGMENT_BYTES: &str = "internal.segment.bytes";

/// The values of a topic as text: its own, else the broker's.
struct Texts<'a> {
    broker: &'a BrokerValues,
    overrides: &'a BTreeMap<String, String>,
}

impl Texts<'_> {
    /// The checked value; the error names the topic key, whichever source the value is from.
    fn value(&self, name: &'static str) -> Result<String, ConfigError> {
        let Some(key) = keys::topic_key(name) else {
            return Ok(String::new());
        };
        let text = match self.overrides.get(name) {
            Some(text) => text.clone(),
            None => match self.broker.for_topic(name) {
                Some(text) => text,
                None => key.default.unwrap_or_default().to_string(),
            },
        };
        key.parse(&text)
            .map_err(|violation| ConfigError::new(name, text, violation.fix))
    }

    fn number<T: std::str::FromStr + Default>(&self, name: &'static str) -> Result<T, ConfigError> {
        Ok(self.value(name)?.parse().unwrap_or_default())
    }
}

impl TopicConfig {
    /// Resolves what is set on a topic against the broker's values. Overrides of unknown keys are
    /// left alone: whoever sets them answers for them.
    pub fn resolve(
        broker: &BrokerValues,
        overrides: &BTreeMap<String, String>,
    ) -> Result<Self, ConfigError> {
        let texts = Texts { broker, overrides };
        let config = Self {
            cleanup_policy: cleanup_policy(&texts.value("cleanup.policy")?),
            compression: compression(&texts.value("compression.type")?),
            compression_gzip_level: texts.number("compression.gzip.level")?,
            compression_lz4_level: texts.number("compression.lz4.level")?,
            compression_zstd_level: texts.number("compression.zstd.level")?,
            timestamp_type: match texts.value("message.timestamp.type")?.as_str() {
                "LogAppendTime" => TimestampType::LogAppendTime,
                _ => TimestampType::CreateTime,
            },
            timestamp_before_max_ms: texts.number("message.timestamp.before.max.ms")?,
            timestamp_after_max_ms: texts.number("message.timestamp.after.max.ms")?,
            max_message_bytes: texts.number("max.message.bytes")?,
            max_decompressed_message_bytes: texts.number("max.decompressed.message.bytes")?,
            min_insync_replicas: texts.number("min.insync.replicas")?,
            segment_bytes: match overrides.contains_key(INTERNAL_SEGMENT_BYTES) {
                true => texts.number(INTERNAL_SEGMENT_BYTES)?,
                false => texts.number("segment.bytes")?,
            },
            segment_ms: texts.number("segment.ms")?,
            segment_jitter_ms: texts.number("segment.jitter.ms")?,
            segment_index_bytes: texts.number("segment.index.bytes")?,
            index_interval_bytes: texts.number("index.interval.bytes")?,
            flush_messages: texts.number("flush.messages")?,
            flush_ms: texts.number("flush.ms")?,
            retention_ms: texts.number("retention.ms")?,
            retention_bytes: texts.number("retention.bytes")?,
            delete_retention_ms: texts.number("delete.retention.ms")?,
            file_delete_delay_ms: texts.number("file.delete.delay.ms")?,
            min_compaction_lag_ms: texts.number("min.compaction.lag.ms")?,
            max_compaction_lag_ms: texts.number("max.compaction.lag.ms")?,
            min_cleanable_dirty_ratio: texts.number("min.cleanable.dirty.ratio")?,
            preallocate: texts.number("preallocate")?,
            unclean_leader_election: texts.number("unclean.leader.election.enable")?,
        };
        if config.min_compaction_lag_ms > config.max_compaction_lag_ms {
            return Err(ConfigError::new(
                "min.compaction.lag.ms",
                config.min_compaction_lag_ms.to_string(),
                format!(
                    "give at most max.compaction.lag.ms ({})",
                    config.max_compaction_lag_ms
                ),
            ));
        }
        Ok(config)
    }

    /// As [`TopicConfig::resolve`], for overrides that were accepted once: those that do not fit
    /// (any more) are left out instead of failing the rest.
    pub fn resolve_stored(broker: &BrokerValues, overrides: &BTreeMap<String, String>) -> Self {
        if let Ok(config) = Self::resolve(broker, overrides) {
            return config;
        }
        let fitting = overrides
            .iter()
            .filter(|(name, value)| {
                keys::topic_key(name).is_some_and(|key| key.parse(value).is_ok())
            })
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        Self::resolve(broker, &fitting)
            .or_else(|_| Self::resolve(broker, &BTreeMap::new()))
            .unwrap_or_default()
    }
}

fn cleanup_policy(text: &str) -> CleanupPolicy {
    CleanupPolicy {
        delete: elements(text).any(|policy| policy == "delete"),
        compact: elements(text).any(|policy| policy == "compact"),
    }
}

fn compression(text: &str) -> CompressionPolicy {
    CompressionPolicy::Always(match text {
        "uncompressed" => Compression::None,
        "gzip" => Compression::Gzip,
        "snappy" => Compression::Snappy,
        "lz4" => Compression::Lz4,
        "zstd" => Compression::Zstd,
        _ => return CompressionPolicy::Producer,
    })
}
