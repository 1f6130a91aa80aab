//! The offsets that a directory writes down beside its logs: where they start, what of them is on disk, what
//! is committed.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{Directory, is_disk_fault, read_text};
use crate::log::checkpoint::{self, Offsets};
use crate::log::disk::{Disk, replace_file};
use crate::log::log::{Log, LogError};
use crate::log::names;
use crate::log::tasks::Task;
use crate::types::{Offset, TopicPartition};

/// How soon recovery points that flushes noted are written down: many in one file.
const NOTED_POINTS_AFTER: Duration = Duration::from_secs(2);

impl Directory {
    pub(in crate::log) fn log_start(&self, partition: &TopicPartition) -> Option<Offset> {
        self.log_starts.lock().get(partition).copied()
    }

    /// Stores where some logs start from now on; durable on return.
    pub(in crate::log) fn store_log_starts(
        &self,
        moved: &[(Arc<Log>, Offset)],
    ) -> Result<(), LogError> {
        let mut starts = self.log_starts.lock();
        let mut changed = starts.clone();
        for (log, offset) in moved {
            // Asked under the lock under which a deleted log's start is forgotten: that of its
            // successor is none of its.
            if !log.is_deleted() {
                let stored = changed.entry(log.topic_partition().clone()).or_insert(0);
                *stored = (*offset).max(*stored);
            }
        }
        if changed == *starts {
            return Ok(());
        }
        self.replace_offsets(names::LOG_START_CHECKPOINT, &changed, true)
            .inspect_err(|error| {
                if is_disk_fault(error) {
                    self.fail("store the log starts", error);
                }
            })?;
        *starts = changed;
        Ok(())
    }

    pub(in crate::log) fn write_log_starts(&self) {
        let starts = self.log_starts.lock();
        self.write_offsets(names::LOG_START_CHECKPOINT, &starts, true);
    }

    /// What is below is on disk, and need not be checked after a crash. Written down in a while.
    pub(in crate::log) fn note_recovery_point(&self, log: &Log, point: Offset) {
        {
            let mut points = self.recovery_points.lock();
            // Asked under the lock under which a deleted log's point is forgotten: that of its successor
            // is none of its.
            if log.is_deleted() {
                return;
            }
            points.insert(log.topic_partition().clone(), point);
        }
        if !self.points_due.swap(true, Ordering::AcqRel) {
            self.tasks
                .set(Task::NotedRecoveryPoints, NOTED_POINTS_AFTER);
        }
    }

    pub(in crate::log) fn write_noted_recovery_points(&self) {
        self.points_due.store(false, Ordering::Release);
        self.write_recovery_points(true);
    }

    pub(in crate::log) fn write_recovery_points(&self, durable: bool) {
        // Under the lock: what is lowered stays lowered on disk.
        let points = self.recovery_points.lock();
        self.write_offsets(names::RECOVERY_POINT_CHECKPOINT, &points, durable);
    }

    pub(in crate::log) fn write_high_watermarks(&self, durable: bool) {
        let offsets = self.high_watermarks.lock();
        self.write_offsets(names::REPLICATION_CHECKPOINT, &offsets, durable);
    }

    /// Sees to it, durably, that the checkpoints promise no more of a log that is about to be cut.
    pub(in crate::log) fn lower_promises(
        &self,
        partition: &TopicPartition,
        recovery_point_max: Offset,
        high_watermark_max: Offset,
    ) -> Result<(), LogError> {
        for (name, offsets, max) in [
            (
                names::RECOVERY_POINT_CHECKPOINT,
                &self.recovery_points,
                recovery_point_max,
            ),
            (
                names::REPLICATION_CHECKPOINT,
                &self.high_watermarks,
                high_watermark_max,
            ),
        ] {
            let mut offsets = offsets.lock();
            let Some(offset) = offsets.get_mut(partition).filter(|offset| **offset > max) else {
                continue;
            };
            *offset = max;
            self.store_offsets(name, &offsets)?;
        }
        Ok(())
    }

    /// Stores where a log begins that begins anew: earlier or later than before.
    pub(in crate::log) fn store_new_log_start(
        &self,
        partition: &TopicPartition,
        log_start: Offset,
    ) -> Result<(), LogError> {
        let mut starts = self.log_starts.lock();
        if starts.insert(partition.clone(), log_start) == Some(log_start) {
            return Ok(());
        }
        self.store_offsets(names::LOG_START_CHECKPOINT, &starts)
    }

    /// Something was appended or flushed: high watermarks move.
    pub(in crate::log) fn high_watermarks_move(&self) {
        if !self.high_watermarks_moved.load(Ordering::Relaxed) {
            self.high_watermarks_moved.store(true, Ordering::Relaxed);
        }
    }

    /// Notes the high watermarks of the open logs in `replication-offset-checkpoint`, if any moved.
    pub(in crate::log) fn checkpoint_high_watermarks(&self) {
        if !self.high_watermarks_moved.swap(false, Ordering::Relaxed) {
            return;
        }
        let mut changed = false;
        for log in self.logs() {
            let partition = log.topic_partition();
            let Some(_truncating) = log.truncating.try_lock() else {
                self.high_watermarks_move(); // next time
                continue;
            };
            if let Some(offset) = self.high_watermark(&log) {
                let mut known = self.high_watermarks.lock();
                changed |= known.insert(partition.clone(), offset) != Some(offset);
            }
        }
        if changed {
            self.write_high_watermarks(false);
        }
    }

    /// Sees to it, before a partition gets files, that no checkpoint on disk says of it what was true
    /// of another topic of that name: after a power cut it would be believed.
    pub(in crate::log) fn settle(&self, partition: &TopicPartition) -> io::Result<()> {
        let mut stale = self.stale.lock();
        if !stale.contains(partition) {
            return Ok(());
        }
        for (name, offsets) in [
            (names::RECOVERY_POINT_CHECKPOINT, &self.recovery_points),
            (names::REPLICATION_CHECKPOINT, &self.high_watermarks),
            (names::LOG_START_CHECKPOINT, &self.log_starts),
        ] {
            self.replace_offsets(name, &offsets.lock(), true)?;
        }
        stale.clear();
        Ok(())
    }

    fn store_offsets(&self, name: &str, offsets: &Offsets) -> Result<(), LogError> {
        self.replace_offsets(name, offsets, true)
            .map_err(|error| self.failed_write("store a checkpoint", error))
    }

    fn replace_offsets(&self, name: &str, offsets: &Offsets, durable: bool) -> io::Result<()> {
        let text = checkpoint::offsets_to_text(offsets);
        replace_file(&*self.disk, &self.path.join(name), text.as_bytes(), durable)
    }

    fn write_offsets(&self, name: &str, offsets: &Offsets, durable: bool) {
        if !self.is_online() {
            return;
        }
        if let Err(error) = self.replace_offsets(name, offsets, durable) {
            let error = self.failed_write("write a checkpoint", error);
            tracing::warn!(directory = %self.path.display(), name, %error, "write a checkpoint");
        }
    }
}

pub(super) fn read_offsets(disk: &dyn Disk, path: &Path, name: &str) -> Offsets {
    let Some(text) = read_text(disk, path, name) else {
        return Offsets::new();
    };
    let (offsets, whole) = checkpoint::offsets_from_text(&text);
    if !whole {
        tracing::warn!(directory = %path.display(), name, read = offsets.len(), "a checkpoint is damaged");
    }
    offsets
}
