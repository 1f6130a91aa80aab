//! What is done from time to time: checkpoints, producer expiry, removal of deleted directories.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::directory::Directory;
use super::log::Log;
use super::manager::LogManagerConfig;
use super::names;
use crate::time::{Clock, Deadlines};

/// A recovery point moves only past so many new bytes: moving it costs syncs, and so much is checked
/// in a moment.
const RECOVERY_POINT_BYTES: u64 = 16 << 20;

/// What falls due.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Task {
    RecoveryPoints,
    LogStarts,
    ProducerExpiry,
    RemoveDirectory(PathBuf),
}

/// The tasks of all directories, and the thread that runs them.
#[derive(Debug)]
pub(super) struct Housekeeping {
    state: Mutex<State>,
    wake: Condvar,
    directories: Vec<Arc<Directory>>,
    clock: Arc<dyn Clock>,
    recovery_points_every: Duration,
    log_starts_every: Duration,
    producer_expiry_every: Duration,
}

#[derive(Debug)]
struct State {
    due: Deadlines<Task>,
    stopped: bool,
}

fn interval(ms: i64) -> Duration {
    // An interval of zero would never rest; one of centuries is no Instant.
    Duration::from_millis(ms.clamp(1, 86_400_000 * 365).unsigned_abs())
}

impl Housekeeping {
    pub(super) fn new(
        config: &LogManagerConfig,
        directories: Vec<Arc<Directory>>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let first = clock.now() + interval(config.initial_task_delay_ms);
        let mut due = Deadlines::new();
        for task in [Task::RecoveryPoints, Task::LogStarts, Task::ProducerExpiry] {
            due.set(task, first);
        }
        for directory in &directories {
            let entries = directory.disk.list(&directory.path).unwrap_or_default();
            for entry in entries {
                if entry.is_directory && names::is_deleted_directory(&entry.name) {
                    let path = directory.path.join(entry.name);
                    due.set(Task::RemoveDirectory(path), clock.now());
                }
            }
        }
        Self {
            state: Mutex::new(State {
                due,
                stopped: false,
            }),
            wake: Condvar::new(),
            directories,
            clock,
            recovery_points_every: interval(config.flush_offset_checkpoint_interval_ms),
            log_starts_every: interval(config.flush_start_offset_checkpoint_interval_ms),
            producer_expiry_every: interval(config.producer_id_expiration_check_interval_ms),
        }
    }

    /// Removes a directory after a time.
    pub(super) fn remove_later(&self, path: PathBuf, delay_ms: i64) {
        let due = self.clock.now() + interval(delay_ms);
        self.state.lock().due.set(Task::RemoveDirectory(path), due);
        self.wake.notify_one();
    }

    pub(super) fn stop(&self) {
        self.state.lock().stopped = true;
        self.wake.notify_all();
    }

    /// The thread's body.
    pub(super) fn run(&self) {
        while let Some(task) = self.next() {
            self.run_task(&task);
        }
    }

    fn next(&self) -> Option<Task> {
        let mut state = self.state.lock();
        loop {
            if state.stopped {
                return None;
            }
            let now = self.clock.now();
            if let Some(task) = state.due.pop_due(now) {
                if let Some(every) = self.every(&task) {
                    state.due.set(task.clone(), now + every);
                }
                return Some(task);
            }
            match state.due.next_due() {
                Some(due) => {
                    self.wake
                        .wait_for(&mut state, due.saturating_duration_since(now));
                }
                None => self.wake.wait(&mut state),
            }
        }
    }

    fn every(&self, task: &Task) -> Option<Duration> {
        match task {
            Task::RecoveryPoints => Some(self.recovery_points_every),
            Task::LogStarts => Some(self.log_starts_every),
            Task::ProducerExpiry => Some(self.producer_expiry_every),
            Task::RemoveDirectory(_) => None,
        }
    }

    fn run_task(&self, task: &Task) {
        match task {
            Task::RecoveryPoints => {
                for directory in self.directories.iter().filter(|d| d.is_online()) {
                    move_recovery_points(directory, RECOVERY_POINT_BYTES);
                }
            }
            Task::LogStarts => {
                for directory in self.directories.iter().filter(|d| d.is_online()) {
                    directory.write_log_starts();
                }
            }
            Task::ProducerExpiry => {
                for log in self.directories.iter().flat_map(|d| d.logs()) {
                    log.expire_producers();
                }
            }
            Task::RemoveDirectory(path) => self.remove(path),
        }
    }

    fn remove(&self, path: &Path) {
        let directory = self.directories.iter().find(|d| path.starts_with(&d.path));
        let Some(directory) = directory else {
            return;
        };
        match directory.disk.remove_directory(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                tracing::warn!(path = %path.display(), %error, "remove a deleted log");
            }
            _ => {}
        }
    }
}

/// Notes how far each log is on disk with its indexes, where that moved far enough to be worth it.
pub(super) fn move_recovery_points(directory: &Directory, bytes_min: u64) {
    let mut moved = false;
    for log in directory.logs() {
        match log.move_recovery_point(bytes_min) {
            Ok(Some(point)) => {
                let partition = log.topic_partition().clone();
                directory.recovery_points.lock().insert(partition, point);
                moved = true;
            }
            Ok(None) => {}
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
    /// Makes the indexes of the active segment durable and returns the new recovery point, if at least
    /// `bytes_min` were appended since the last. Also lets go of memory that a log at rest needs not.
    fn move_recovery_point(
        &self,
        bytes_min: u64,
    ) -> Result<Option<crate::types::Offset>, super::LogError> {
        let Some(mut writer) = self.writer.try_lock() else {
            return Ok(None); // busy: the next round will do
        };
        let Some(active) = self.view.lock().segments.last().map(Arc::clone) else {
            return Ok(None);
        };
        let idle = !std::mem::take(&mut writer.appended_since_tick);
        if idle {
            active.write_index(&self.files, 0)?;
        }
        // Not before the indexes of the segments before are on disk: they are believed below the point.
        if writer.bytes_since_recovery_point < bytes_min || self.sync.lock().has_finished() {
            return Ok(None);
        }
        let point = self.flushed_offset();
        active.write_index(&self.files, 0)?;
        writer.bytes_since_recovery_point = 0;
        drop(writer);
        self.sync_indexes(active.base_offset)?;
        self.recovery_point
            .fetch_max(point, std::sync::atomic::Ordering::AcqRel);
        Ok(Some(point))
    }

    fn sync_indexes(&self, base_offset: crate::types::Offset) -> Result<(), super::LogError> {
        for kind in [names::FileKind::OffsetIndex, names::FileKind::TimeIndex] {
            self.sync_file(base_offset, kind)
                .inspect_err(|error| self.directory.fail("sync an index", error))?;
        }
        Ok(())
    }
}
