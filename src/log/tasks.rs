//! What falls due in the background of a directory, and when.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::time::{Clock, Deadlines};

/// What falls due.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Task {
    RecoveryPoints,
    /// Those that flushes noted.
    NotedRecoveryPoints,
    LogStarts,
    HighWatermarks,
    ProducerExpiry,
    Retention,
    /// Files of segments that are no longer any log's.
    RemoveFiles(Vec<PathBuf>),
    RemoveDirectory(PathBuf),
}

/// The tasks of a directory. Anyone may add one; one thread takes them as they fall due.
#[derive(Debug)]
pub(super) struct TaskQueue {
    state: Mutex<State>,
    wake: Condvar,
    clock: Arc<dyn Clock>,
}

#[derive(Debug)]
struct State {
    due: Deadlines<Task>,
    stopped: bool,
}

/// A configured time as a duration: zero would never rest, and one of centuries is no `Instant`.
pub(super) fn interval(ms: i64) -> Duration {
    Duration::from_millis(ms.clamp(1, 86_400_000 * 365).unsigned_abs())
}

impl TaskQueue {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            state: Mutex::new(State {
                due: Deadlines::new(),
                stopped: false,
            }),
            wake: Condvar::new(),
            clock,
        }
    }

    /// Sets when a task is due, from now on.
    pub(super) fn set(&self, task: Task, after: Duration) {
        let due = self.clock.now() + after;
        self.state.lock().due.set(task, due);
        self.wake.notify_one();
    }

    pub(super) fn stop(&self) {
        self.state.lock().stopped = true;
        self.wake.notify_all();
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.state.lock().stopped
    }

    /// Waits for a task that is due; one that comes again is set anew. `None` when stopped.
    pub(super) fn next(&self, every: impl Fn(&Task) -> Option<Duration>) -> Option<Task> {
        let mut state = self.state.lock();
        loop {
            if state.stopped {
                return None;
            }
            let now = self.clock.now();
            if let Some(task) = state.take(now, &every) {
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

    /// A task that is due now, for a simulation that does not wait.
    #[cfg(test)]
    pub(super) fn take_due(&self, every: impl Fn(&Task) -> Option<Duration>) -> Option<Task> {
        self.state.lock().take(self.clock.now(), every)
    }

    /// Takes the files that wait for their removal.
    pub(super) fn take_files(&self) -> Vec<PathBuf> {
        let due = std::mem::take(&mut self.state.lock().due);
        let files = due.into_keys().filter_map(|task| match task {
            Task::RemoveFiles(files) => Some(files),
            _ => None,
        });
        files.flatten().collect()
    }
}

impl State {
    fn take(&mut self, now: Instant, every: impl Fn(&Task) -> Option<Duration>) -> Option<Task> {
        let task = self.due.pop_due(now)?;
        if let Some(every) = every(&task) {
            self.due.set(task.clone(), now + every);
        }
        Some(task)
    }
}
