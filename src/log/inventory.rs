//! What is in the log directories, and what they are good for.

use std::path::PathBuf;
use std::sync::Arc;

use super::LogManager;
use super::directory::Directory;
use crate::types::{Offset, TopicId, TopicPartition};

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

/// Whether a log directory can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogDirState {
    Online,
    /// Users' records are refused until there is room.
    Full,
    /// Until a restart.
    Offline,
}

/// A partition's files in one of the directories.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionOnDisk {
    /// Which of `log.dirs`, from 0.
    pub directory: usize,
    pub partition: TopicPartition,
    /// As `partition.metadata` has it.
    pub topic_id: Option<TopicId>,
}

/// A log that is not open, as the last clean stop left it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogAtRest {
    pub log_start_offset: Offset,
    pub log_end_offset: Offset,
    pub size_bytes: u64,
    pub segment_count: usize,
}

impl LogManager {
    /// Partitions that have files on disk, directory by directory.
    pub fn on_disk(&self) -> Vec<PartitionOnDisk> {
        let mut found = self.names_on_disk();
        for found in &mut found {
            self.look_at(found);
        }
        found
    }

    /// Reads the topic id of a partition that was found.
    pub fn look_at(&self, found: &mut PartitionOnDisk) {
        if let Some(directory) = self.directories.get(found.directory) {
            let topic_id = self.topic_id_of(directory, &found.partition);
            found.topic_id = topic_id.filter(|id| *id != TopicId::ZERO);
        }
    }

    /// The same as [`Self::on_disk`] without a look at the disk: what was found at the start, without
    /// the topic ids.
    pub fn names_on_disk(&self) -> Vec<PartitionOnDisk> {
        let online = self.directories.iter().filter(|d| d.is_online());
        let found = online.flat_map(|directory| {
            let partitions = directory.found_partitions().into_iter();
            partitions.map(|partition| PartitionOnDisk {
                directory: directory.number,
                partition,
                topic_id: None,
            })
        });
        found.collect()
    }

    /// Bytes of the files that were found.
    pub fn bytes_on_disk(&self, found: &PartitionOnDisk) -> u64 {
        let Some(directory) = self.directories.get(found.directory) else {
            return 0;
        };
        let path = directory.path.join(found.partition.to_string());
        let entries = self.shared.disk.list(&path).unwrap_or_default();
        entries.iter().map(|entry| entry.bytes).sum()
    }

    /// A directory does not answer since the start, and the partition, which is not a new one, has no
    /// files elsewhere: they may be there, so it is offline too. An empty log in their place would
    /// give out their offsets again.
    pub fn may_be_lost(&self, partition: &TopicPartition) -> bool {
        let dead = self
            .directories
            .iter()
            .find(|directory| directory.is_dead());
        let Some(dead) = dead else {
            return false;
        };
        let elsewhere = |directory: &&Arc<Directory>| directory.slot(partition).is_some();
        if let Some(directory) = self.directories.iter().find(elsewhere) {
            return directory.number == dead.number;
        }
        dead.place(partition);
        true
    }

    /// What each directory is good for. Does not block.
    pub fn states(&self) -> Vec<(PathBuf, LogDirState)> {
        let state = |directory: &Arc<Directory>| {
            let state = match directory.is_online() {
                false => LogDirState::Offline,
                true if directory.is_full() => LogDirState::Full,
                true => LogDirState::Online,
            };
            (directory.path.clone(), state)
        };
        self.directories.iter().map(state).collect()
    }

    /// Partitions whose files no clean stop vouches for, and that were not opened since: opening them
    /// recovers them.
    pub fn unrecovered(&self) -> Vec<TopicPartition> {
        let unclean = self.directories.iter();
        let unclean = unclean.filter(|directory| !directory.clean && directory.is_online());
        unclean.flat_map(|directory| directory.unopened()).collect()
    }

    /// Nothing was ever written to the partition here, so it has no files; not known while a directory does
    /// not answer. Does not block.
    pub fn has_nothing(&self, partition: &TopicPartition) -> bool {
        let mut directories = self.directories.iter();
        directories.all(|directory| !directory.is_dead() && directory.slot(partition).is_none())
    }

    /// What a clean stop knew of a partition that was not opened since. Does not block.
    pub fn at_rest(&self, partition: &TopicPartition) -> Option<LogAtRest> {
        self.directories.iter().find_map(|directory| {
            let manifest = directory.manifest.lock();
            let entry = manifest.get(partition)?;
            Some(LogAtRest {
                log_start_offset: entry.log_start,
                log_end_offset: entry.log_end,
                size_bytes: entry.segments.iter().map(|segment| segment.bytes).sum(),
                segment_count: entry.segments.len(),
            })
        })
    }

    pub fn describe(&self) -> Vec<LogDirDescription> {
        let describe = |directory: &Arc<Directory>| {
            let (total_bytes, usable_bytes) =
                self.shared.disk.space(&directory.path).unwrap_or((0, 0));
            let logs = directory.logs();
            let mut partitions: Vec<_> = logs
                .iter()
                .map(|log| (log.topic_partition().clone(), log.size_bytes()))
                .collect();
            partitions.sort();
            LogDirDescription {
                path: directory.path.clone(),
                online: directory.is_online(),
                total_bytes,
                usable_bytes,
                partitions,
            }
        };
        self.directories.iter().map(describe).collect()
    }
}
