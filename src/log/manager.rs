//! All logs of this broker, their directories, flushers and housekeeping.

use std::path::PathBuf;
use std::sync::Arc;

use super::{Executor, Log, LogError};
use crate::config::TopicConfig;
use crate::time::Clock;
use crate::types::{Offset, TopicId, TopicPartition};

/// Hears of every flush, on the flusher's thread; must not block.
pub trait FlushListener: std::fmt::Debug + Send + Sync {
    /// All below `flushed_offset` of this partition is on disk.
    fn flushed(&self, partition: &TopicPartition, flushed_offset: Offset);
    /// The directory is gone: its partitions answer KAFKA_STORAGE_ERROR from now on.
    fn directory_failed(&self, partitions: &[TopicPartition]);
}

/// What the manager takes from the broker's configuration. Times in milliseconds.
#[derive(Debug, Clone)]
pub struct LogManagerConfig {
    pub directories: Vec<PathBuf>,
    pub cluster_id: String,
    pub node_id: i32,
    pub tail_cache_bytes: usize,
    pub initial_task_delay_ms: i64,
    pub flush_offset_checkpoint_interval_ms: i64,
    pub flush_start_offset_checkpoint_interval_ms: i64,
    pub producer_id_expiration_ms: i64,
    pub producer_id_expiration_check_interval_ms: i64,
    pub recovery_threads: usize,
}

/// One log directory, as DescribeLogDirs answers.
#[derive(Debug, Clone)]
pub struct LogDirDescription {
    pub path: PathBuf,
    pub online: bool,
    pub total_bytes: u64,
    pub usable_bytes: u64,
    /// Partition and its bytes.
    pub partitions: Vec<(TopicPartition, u64)>,
}

/// All logs.
#[derive(Debug)]
pub struct LogManager {}

#[allow(unused_variables)]
impl LogManager {
    /// Locks and checks the directories, writes `meta.properties` where new, starts the flushers.
    /// Reads no partition: they open on demand.
    pub fn open(config: LogManagerConfig, clock: Arc<dyn Clock>) -> Result<Arc<Self>, LogError> {
        unimplemented!()
    }
    pub fn set_flush_listener(&self, listener: Arc<dyn FlushListener>) {
        unimplemented!()
    }
    /// The log of a partition: opened (and recovered) if it has files, else empty and without files
    /// until its first record. May block: call it on the partition's executor lane.
    pub fn log(
        &self,
        partition: &TopicPartition,
        topic_id: TopicId,
        config: Arc<TopicConfig>,
    ) -> Result<Arc<Log>, LogError> {
        unimplemented!()
    }
    /// Renames the partition's directory to `…-delete` and removes it after `file.delete.delay.ms`.
    pub fn delete(&self, partition: &TopicPartition) -> Result<(), LogError> {
        unimplemented!()
    }
    /// Partitions that have files on disk, with the topic id in their `partition.metadata`.
    pub fn on_disk(&self) -> Vec<(TopicPartition, Option<TopicId>)> {
        unimplemented!()
    }
    /// The executor of the directory where the partition lives or would be made.
    pub fn executor(&self, partition: &TopicPartition) -> Arc<dyn Executor> {
        unimplemented!()
    }
    pub fn describe(&self) -> Vec<LogDirDescription> {
        unimplemented!()
    }
    /// Flushes everything, writes checkpoints, snapshots and the clean-shutdown marks.
    pub fn close(&self) {
        unimplemented!()
    }
}
