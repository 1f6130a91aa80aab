//! What is done from time to time: checkpoints, producer expiry, retention, removal of what was deleted.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::cleanup;
use super::directory::Directory;
use super::log::Log;
use super::manager::LogManagerConfig;
use super::names;
use super::tasks::{Task, interval};

/// A recovery point moves only past so many new bytes: moving it costs syncs, and so much is checked
/// in a moment.
const RECOVERY_POINT_BYTES: u64 = 16 << 20;

/// How soon retention looks again at logs that were opened for it.
const OPENED_AFTER: Duration = Duration::from_secs(2);

/// Runs the tasks of a directory on its thread.
#[derive(Debug)]
pub(super) struct Housekeeping {
    directory: Arc<Directory>,
    recovery_points_every: Duration,
    log_starts_every: Duration,
    high_watermarks_every: Duration,
    producer_expiry_every: Duration,
    retention_every: Duration,
}

impl Housekeeping {
    pub(super) fn new(config: &LogManagerConfig, directory: Arc<Directory>) -> Self {
        let tasks = &directory.tasks;
        let first = interval(config.initial_task_delay_ms);
        for task in [
            Task::RecoveryPoints,
            Task::LogStarts,
            Task::ProducerExpiry,
            Task::Retention,
        ] {
            tasks.set(task, first);
        }
        let high_watermarks_every = interval(config.high_watermark_checkpoint_interval_ms);
        tasks.set(Task::HighWatermarks, high_watermarks_every);
        Self {
            directory,
            recovery_points_every: interval(config.flush_offset_checkpoint_interval_ms),
            log_starts_every: interval(config.flush_start_offset_checkpoint_interval_ms),
            high_watermarks_every,
            producer_expiry_every: interval(config.producer_id_expiration_check_interval_ms),
            retention_every: interval(config.retention_check_interval_ms),
        }
    }

    /// The thread's body.
    pub(super) fn run(&self) {
        while let Some(task) = self.directory.tasks.next(|task| self.every(task)) {
            if self.directory.is_online() {
                self.run_task(task);
            }
        }
    }

    /// Does what is due, for a simulation that has no thread for it.
    #[cfg(test)]
    pub(super) fn run_due(&self) {
        while let Some(task) = self.directory.tasks.take_due(|task| self.every(task)) {
            self.run_task(task);
        }
    }

    fn every(&self, task: &Task) -> Option<Duration> {
        match task {
            Task::RecoveryPoints => Some(self.recovery_points_every),
            Task::LogStarts => Some(self.log_starts_every),
            Task::HighWatermarks => Some(self.high_watermarks_every),
            Task::ProducerExpiry => Some(self.producer_expiry_every),
            Task::Retention => Some(self.retention_every),
            Task::NotedRecoveryPoints | Task::RemoveFiles(_) | Task::RemoveDirectory(_) => None,
        }
    }

    fn run_task(&self, task: Task) {
        let directory = &*self.directory;
        match task {
            Task::RecoveryPoints => move_recovery_points(directory, RECOVERY_POINT_BYTES),
            Task::NotedRecoveryPoints => directory.write_noted_recovery_points(),
            Task::LogStarts => directory.write_log_starts(),
            Task::HighWatermarks => directory.checkpoint_high_watermarks(),
            Task::ProducerExpiry => {
                for log in directory.logs() {
                    log.expire_producers();
                }
            }
            Task::Retention => {
                if cleanup::clean_up(directory) {
                    let soon = OPENED_AFTER.min(self.retention_every);
                    directory.tasks.set(Task::Retention, soon);
                }
            }
            Task::RemoveFiles(files) => self.remove_files(&files),
            Task::RemoveDirectory(path) => report(directory.disk.remove_directory(&path), &path),
        }
    }

    /// Removes what waits for its time: nobody reads any more.
    pub(super) fn remove_waiting_files(&self) {
        if self.directory.is_online() {
            self.remove_files(&self.directory.tasks.take_files());
        }
    }

    /// Removes files that are no longer any log's.
    fn remove_files(&self, files: &[PathBuf]) {
        for path in files {
            report(self.directory.disk.remove_file(path), path);
        }
    }
}

fn report(removed: std::io::Result<()>, path: &Path) {
    match removed {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            tracing::warn!(path = %path.display(), %error, "remove what was deleted");
        }
        _ => {}
    }
}

/// Notes how far each log is on disk with its indexes, where that moved far enough to be worth it.
pub(super) fn move_recovery_points(directory: &Directory, bytes_min: u64) {
    let mut moved = false;
    for log in directory.logs() {
        match log.move_recovery_point(bytes_min) {
            Ok(true) => moved = true,
            Ok(false) => {}
            Err(error) => {
                tracing::warn!(partition = %log.topic_partition(), %error, "move the recovery point");
            }
        }
    }
    if moved {
        directory.write_recovery_points(true);
    }
}

impl Log {
    /// Makes the indexes of the active segment durable and notes the new recovery point, if at least
    /// `bytes_min` were appended since the last. Also lets go of memory that a log at rest needs not.
    fn move_recovery_point(&self, bytes_min: u64) -> Result<bool, super::LogError> {
        // Who cuts the log takes back what is noted here.
        let Some(_truncating) = self.truncating.try_lock() else {
            return Ok(false);
        };
        let Some(mut writer) = self.writer.try_lock() else {
            return Ok(false); // busy: the next round will do
        };
        let Some(active) = self.view.lock().segments.last().map(Arc::clone) else {
            return Ok(false);
        };
        let idle = !std::mem::take(&mut writer.appended_since_tick);
        if idle {
            active.write_index(&self.files, 0)?;
            self.write_first_epoch(&mut writer);
        }
        // Not before the indexes of the segments before are on disk: they are believed below the point.
        if writer.bytes_since_recovery_point < bytes_min || self.sync.lock().has_finished() {
            return Ok(false);
        }
        let point = self.flushed_offset();
        active.write_index(&self.files, 0)?;
        writer.bytes_since_recovery_point = 0;
        drop(writer);
        self.sync_indexes(active.base_offset)?;
        self.recovery_point
            .fetch_max(point, std::sync::atomic::Ordering::AcqRel);
        let partition = self.topic_partition().clone();
        let mut points = self.directory.recovery_points.lock();
        points.insert(partition, point);
        Ok(true)
    }

    fn sync_indexes(&self, base_offset: crate::types::Offset) -> Result<(), super::LogError> {
        for kind in [names::FileKind::OffsetIndex, names::FileKind::TimeIndex] {
            self.sync_file(base_offset, kind)
                .inspect_err(|error| self.directory.fail("sync an index", error))?;
        }
        Ok(())
    }
}
