//! Group commit: one flusher per log directory. While it syncs, the next group gathers; no timer for
//! those who wait. Where nobody waits the flush is put off: see [`Log::flush_soon`].

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::directory::Directory;
use super::directory::is_out_of_descriptors;
use super::disk::OpenMode;
use super::executor::{Executor, ThreadPool};
use super::files::HeldFile;
use super::log::{Log, LogError};
use super::manager::LogManagerConfig;
use super::names::FileKind;
use super::tasks::interval;
use crate::record::BatchHeader;
use crate::types::Offset;

/// Up to so many logs are synced one after the other: handing them to threads costs more.
const INLINE_MAX: usize = 2;
/// Threads that sync at the same time: a file system commits what waits together.
const SYNC_THREADS: usize = 16;
const SYNC_QUEUE_MAX: usize = 4096;
/// Records that nobody waits for are synced after so long, or with so many bytes of their log. A
/// thousand partitions written to at `acks=1` would cost a thousand syncs a moment otherwise.
const UNASKED_FLUSH_AFTER: Duration = Duration::from_secs(5);
const UNASKED_FLUSH_BYTES: u64 = 4 << 20;
/// The same while others of the directory wait for the disk: they wait for this as well.
const UNASKED_FLUSH_BYTES_BESIDE: u64 = 1 << 20;
/// Others wait if somebody has asked for a flush within so long.
const BESIDE: Duration = Duration::from_secs(1);
/// So many bytes on disk are worth a note of how far a log is there: recovery reads no record below.
const POINT_BYTES: u64 = 256 << 10;
/// How soon a sync is tried again for which there was no file descriptor.
const RETRY: Duration = Duration::from_millis(100);
/// A `flush.ms` from here on is none.
const NEVER: Duration = Duration::from_secs(86_400 * 365);

/// What of a log is not on disk yet.
#[derive(Debug, Default)]
pub(super) struct SyncState {
    /// Segments written to, with the open file where the topic waits for the disk: an error of the
    /// write-back is reported to whoever had the file open.
    segments: Vec<(Offset, Option<HeldFile>)>,
    /// Segments that are complete, with their indexes.
    finished: Vec<Offset>,
    /// Somebody is syncing indexes of finished segments.
    finishing: bool,
    /// A file was made in the partition's directory.
    pub partition_directory: bool,
    /// Somebody is syncing that directory.
    naming: bool,
    /// The partition's directory was made.
    pub parent_directory: bool,
    /// Offset behind the last write.
    end: Offset,
    /// Written and not taken yet.
    bytes: u64,
    /// On disk, past what recovery knows of.
    unnoted: u64,
}

impl SyncState {
    pub(super) fn written(
        &mut self,
        base_offset: Offset,
        batch: &BatchHeader,
        hold: impl FnOnce() -> Option<HeldFile>,
    ) {
        self.end = batch.last_offset() + 1;
        self.bytes += batch.total_bytes() as u64;
        if self
            .segments
            .last()
            .is_none_or(|(last, _)| *last != base_offset)
        {
            self.segments.push((base_offset, hold()));
        }
    }
}

impl SyncState {
    pub(super) fn finished(&mut self, base_offset: Offset) {
        self.finished.push(base_offset);
    }

    /// Segments from `first_gone` on are gone, and the log ends at `end`.
    pub(super) fn truncated(&mut self, first_gone: Offset, end: Offset) {
        self.segments.retain(|(base, _)| *base < first_gone);
        self.finished.retain(|base| *base < first_gone);
        self.end = end;
    }

    /// True if a finished segment's indexes may not be on disk yet.
    pub(super) fn has_finished(&self) -> bool {
        self.finishing || !self.finished.is_empty()
    }

    /// All up to `end` was on disk when the log was opened, what follows of these segments may not be.
    pub(super) fn unsynced(segments: &[Offset], end: Offset) -> Self {
        let segments = segments.iter().map(|base| (*base, None));
        Self {
            segments: segments.collect(),
            partition_directory: true,
            parent_directory: true,
            end,
            ..Self::default()
        }
    }

    /// What was taken is still to be synced, before what has come meanwhile.
    fn put_back(&mut self, mut work: Self) {
        let newer = std::mem::take(&mut self.segments);
        work.segments.retain(|(base_offset, _)| {
            newer
                .first()
                .is_none_or(|(newest, _)| base_offset != newest)
        });
        work.segments.extend(newer);
        self.segments = work.segments;
        work.finished.append(&mut self.finished);
        self.finished = work.finished;
        self.finishing = false;
        self.naming = false;
        self.partition_directory |= work.partition_directory;
        self.parent_directory |= work.parent_directory;
        self.bytes += work.bytes;
    }

    /// True if the newest segment's name may not be on disk yet.
    pub(super) fn is_nameless(&self) -> bool {
        self.naming || self.partition_directory
    }

    /// What is to be synced now; nothing of it is in here any more.
    fn take(&mut self) -> Self {
        let (end, unnoted) = (self.end, self.unnoted);
        let work = std::mem::take(self);
        self.end = end;
        self.unnoted = unnoted;
        self.finishing = !work.finished.is_empty();
        self.naming = work.partition_directory;
        work
    }
}

impl Log {
    /// Syncs all that was appended, by the caller's own hand (shutdown, tests).
    pub fn flush(&self) -> Result<Offset, LogError> {
        let _flushing = self.flushing.lock();
        self.directory.check_online()?;
        // Before the work is taken: who appends from now on asks again.
        self.dirty.store(false, Ordering::Release);
        let work = self.sync.lock().take();
        let start = self.directory.clock.now();
        if let Err(error) = self.sync(&work) {
            if self.deleted.load(Ordering::Acquire) {
                return Ok(self.flushed_offset());
            }
            if is_out_of_descriptors(&error) {
                // Nothing was tried that cannot be tried again.
                tracing::warn!(partition = %self.partition, %error, "a sync has to wait");
                self.sync.lock().put_back(work);
                let due = self.directory.clock.now() + RETRY;
                let queue = &self.directory.flush_queue;
                queue.mark_later(due, self.files.id, self.me.clone());
            } else {
                self.directory.fail("sync", &error);
            }
            return Err(error.into());
        }
        let point = {
            let mut sync = self.sync.lock();
            sync.finishing = false;
            sync.naming = false;
            sync.unnoted += work.bytes;
            // The indexes of finished segments are believed below the point.
            let point = sync.unnoted >= POINT_BYTES && !sync.has_finished();
            point.then(|| sync.unnoted = 0)
        };
        if !work.segments.is_empty() {
            let time = self.directory.clock.now().saturating_duration_since(start);
            self.directory.flush_took(time);
        }
        // Nothing is reported of a directory that went offline meanwhile.
        self.directory.check_online()?;
        let before = self.flushed.fetch_max(work.end, Ordering::AcqRel);
        let flushed = before.max(work.end);
        if point.is_some() {
            self.recovery_point.fetch_max(flushed, Ordering::AcqRel);
            self.directory.note_recovery_point(self, flushed);
        }
        if flushed > before {
            self.directory.flushed(&self.partition, flushed);
        }
        Ok(flushed)
    }

    fn sync(&self, work: &SyncState) -> io::Result<()> {
        for (base_offset, file) in &work.segments {
            match file {
                Some(held) => held.file.sync()?,
                None => self.sync_file(*base_offset, FileKind::Log)?,
            }
        }
        for base_offset in &work.finished {
            self.sync_file(*base_offset, FileKind::OffsetIndex)?;
            self.sync_file(*base_offset, FileKind::TimeIndex)?;
        }
        if work.partition_directory {
            self.files.disk.sync_directory(&self.files.path)?;
        }
        if work.parent_directory {
            self.files.disk.sync_directory(&self.directory.path)?;
        }
        Ok(())
    }

    /// Syncs a file unless its segment was deleted meanwhile, or it is an index that has no entry yet.
    pub(super) fn sync_file(&self, base_offset: Offset, kind: FileKind) -> io::Result<()> {
        match self.files.open(base_offset, kind, OpenMode::Write) {
            Ok(file) => file.sync(),
            Err(error)
                if error.kind() == io::ErrorKind::NotFound
                    && (kind != FileKind::Log || !self.has_segment(base_offset)) =>
            {
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn has_segment(&self, base_offset: Offset) -> bool {
        let view = self.view.lock();
        view.segments
            .binary_search_by_key(&base_offset, |segment| segment.base_offset)
            .is_ok()
    }

    /// Asks for a flush later, or not at all, as the topic's `flush.messages` and `flush.ms` say.
    pub(super) fn after_append(&self, config: &crate::config::TopicConfig) {
        self.directory.high_watermarks_move();
        self.directory.life_sign.give(self.directory.clock.now());
        let waits_for_disk = config.flush_messages <= 1;
        let much = if waits_for_disk {
            let bytes = self.sync.lock().bytes;
            bytes >= UNASKED_FLUSH_BYTES
                || bytes >= UNASKED_FLUSH_BYTES_BESIDE
                    && (self.directory.flush_queue).was_asked(self.directory.clock.now(), BESIDE)
        } else {
            self.log_end_offset() - self.flushed_offset() >= config.flush_messages
        };
        if much {
            self.request_background_flush();
            return;
        }
        let flush_ms = Duration::from_millis(config.flush_ms.max(0).unsigned_abs());
        if (waits_for_disk || flush_ms < NEVER) && !self.timed.swap(true, Ordering::AcqRel) {
            let now = self.directory.clock.now();
            let mut due = match flush_ms < NEVER {
                true => self.directory.flush_rounds.at_or_after(now + flush_ms),
                false => now + UNASKED_FLUSH_AFTER,
            };
            if waits_for_disk {
                due = due.min(now + UNASKED_FLUSH_AFTER);
            }
            self.directory
                .flush_queue
                .mark_later(due, self.files.id, self.me.clone());
        }
    }

    /// Has what a crash may have left unsynced on disk, though nobody asks for it.
    pub(super) fn flush_in_a_while(&self) {
        if !self.timed.swap(true, Ordering::AcqRel) {
            let due = self.directory.clock.now() + UNASKED_FLUSH_AFTER;
            let queue = &self.directory.flush_queue;
            queue.mark_later(due, self.files.id, self.me.clone());
        }
    }

    /// Has what was appended synced with the flusher's next group: somebody waits for it. For a topic
    /// whose acknowledgements do not wait for the disk this is nothing. Does not block.
    pub fn flush_soon(&self) {
        if self.flushed_offset() < self.log_end_offset() && self.config.read().flush_messages <= 1 {
            self.request_flush();
        }
    }

    /// Puts the log into the flusher's next group.
    pub(super) fn request_flush(&self) {
        if !self.dirty.swap(true, Ordering::AcqRel)
            && let Some(log) = self.me.upgrade()
        {
            let now = self.directory.clock.now();
            self.directory.flush_queue.mark(log, now);
        }
    }

    /// Has the log flushed where nobody waits for it.
    pub(super) fn request_background_flush(&self) {
        if let Some(log) = self.me.upgrade() {
            self.directory.flush_queue.mark_background(log);
        }
    }
}

/// When logs are looked over for `flush.ms` (`log.flush.scheduler.interval.ms`): Kafka's scheduler has
/// a first round after `log.initial.task.delay.ms`. Without an interval each log has its own time.
#[derive(Debug, Clone, Copy)]
pub(super) struct FlushRounds {
    first: Instant,
    every: Option<Duration>,
}

impl FlushRounds {
    pub(super) fn new(config: &LogManagerConfig, start: Instant) -> Self {
        let every = Duration::from_millis(config.flush_scheduler_interval_ms.max(1).unsigned_abs());
        Self {
            first: start + interval(config.initial_task_delay_ms),
            every: (every < NEVER).then_some(every),
        }
    }

    /// The first round that is not before `due`.
    pub(super) fn at_or_after(self, due: Instant) -> Instant {
        let Some(every) = self.every else {
            return due;
        };
        let past_first = due.saturating_duration_since(self.first);
        let rounds = past_first.as_nanos().div_ceil(every.as_nanos());
        self.first + every * u32::try_from(rounds).unwrap_or(u32::MAX)
    }
}

/// What the flusher of a directory has to do.
#[derive(Debug)]
pub(super) struct FlushQueue {
    state: Mutex<QueueState>,
    wake: Condvar,
}

#[derive(Debug, Default)]
struct QueueState {
    /// Logs that somebody waits for.
    dirty: Vec<Arc<Log>>,
    /// When the last of them came.
    asked: Option<Instant>,
    background: Vec<Arc<Log>>,
    /// Logs with `flush.ms`, by the time at which they are due; each once.
    later: BTreeMap<(Instant, u64), Weak<Log>>,
    waiting: bool,
    stopped: bool,
}

/// What the flusher takes at once.
struct Work {
    dirty: Vec<Arc<Log>>,
    background: Vec<Arc<Log>>,
}

impl FlushQueue {
    pub(super) fn new() -> Self {
        Self {
            state: Mutex::new(QueueState::default()),
            wake: Condvar::new(),
        }
    }

    fn mark(&self, log: Arc<Log>, now: Instant) {
        let mut state = self.state.lock();
        state.dirty.push(log);
        state.asked = Some(now);
        self.wake(state.waiting);
    }

    /// True if somebody has waited for a flush within `period`.
    fn was_asked(&self, now: Instant, period: Duration) -> bool {
        let asked = self.state.lock().asked;
        asked.is_some_and(|asked| now.saturating_duration_since(asked) < period)
    }

    fn mark_background(&self, log: Arc<Log>) {
        let mut state = self.state.lock();
        if !state
            .background
            .iter()
            .any(|other| Arc::ptr_eq(other, &log))
        {
            state.background.push(log);
        }
        self.wake(state.waiting);
    }

    fn mark_later(&self, due: Instant, id: u64, log: Weak<Log>) {
        let mut state = self.state.lock();
        let sooner = state
            .later
            .keys()
            .next()
            .is_none_or(|(first, _)| due < *first);
        state.later.insert((due, id), log);
        self.wake(state.waiting && sooner);
    }

    fn wake(&self, waiting: bool) {
        if waiting {
            self.wake.notify_one();
        }
    }

    pub(super) fn stop(&self) {
        self.state.lock().stopped = true;
        self.wake.notify_all();
    }

    /// Lets go of the logs in it.
    pub(super) fn clear(&self) {
        let mut state = self.state.lock();
        let dropped = (
            std::mem::take(&mut state.dirty),
            std::mem::take(&mut state.background),
        );
        state.later.clear();
        drop(state);
        drop(dropped);
    }

    /// Waits for work; `None` when stopped. Those that somebody waits for come first.
    fn next(&self, directory: &Directory) -> Option<Work> {
        let mut state = self.state.lock();
        loop {
            if state.stopped {
                return None;
            }
            let now = directory.clock.now();
            if let Some(work) = state.take(now) {
                return Some(work);
            }
            state.waiting = true;
            match state.later.first_key_value() {
                Some((&(due, _), _)) => {
                    self.wake
                        .wait_for(&mut state, due.saturating_duration_since(now));
                }
                None => self.wake.wait(&mut state),
            }
            state.waiting = false;
        }
    }

    /// What the flusher would flush now, for a simulation that has no such thread.
    #[cfg(test)]
    pub(super) fn due(&self, now: Instant) -> Vec<Arc<Log>> {
        let work = self.state.lock().take(now);
        work.map_or_else(Vec::new, |mut work| {
            work.dirty.append(&mut work.background);
            work.dirty
        })
    }
}

impl QueueState {
    fn take(&mut self, now: Instant) -> Option<Work> {
        while let Some((&(due, id), _)) = self.later.first_key_value()
            && due <= now
        {
            if let Some(log) = self.later.remove(&(due, id)).and_then(|log| log.upgrade()) {
                log.timed.store(false, Ordering::Release);
                self.background.push(log);
            }
        }
        if self.dirty.is_empty() && self.background.is_empty() {
            return None;
        }
        Some(Work {
            dirty: std::mem::take(&mut self.dirty),
            background: std::mem::take(&mut self.background),
        })
    }
}

/// The flusher's thread: runs until its queue is stopped.
pub(super) fn run(directory: &Arc<Directory>) {
    let name = format!("log-sync-{}", directory.number);
    let pool = ThreadPool::new(name, SYNC_THREADS, SYNC_QUEUE_MAX);
    while let Some(Work { dirty, background }) = directory.flush_queue.next(directory) {
        // A background flush may carry much: it must not stand in front of those who wait.
        for log in background {
            let lane = log.files.id;
            pool.submit(
                lane,
                Box::new(move || {
                    let _ = log.flush(); // a failure took the directory offline
                }),
            );
        }
        flush_group(&pool, dirty);
    }
    pool.stop();
}

fn flush_group(pool: &ThreadPool, group: Vec<Arc<Log>>) {
    if group.len() <= INLINE_MAX {
        for log in group {
            let _ = log.flush(); // a failure took the directory offline
        }
        return;
    }
    let latch = Arc::new(Latch::new(group.len()));
    for log in group {
        let latch = Arc::clone(&latch);
        let lane = log.files.id;
        pool.submit(
            lane,
            Box::new(move || {
                let _guard = LatchGuard(latch);
                let _ = log.flush(); // a failure took the directory offline
            }),
        );
    }
    latch.wait();
}

/// Waits until a number of jobs are done.
#[derive(Debug)]
struct Latch {
    left: AtomicUsize,
    lock: Mutex<()>,
    done: Condvar,
}

impl Latch {
    fn new(count: usize) -> Self {
        Self {
            left: AtomicUsize::new(count),
            lock: Mutex::new(()),
            done: Condvar::new(),
        }
    }

    fn wait(&self) {
        let mut guard = self.lock.lock();
        while self.left.load(Ordering::Acquire) > 0 {
            self.done.wait(&mut guard);
        }
    }
}

/// Counts down also when a job panics.
struct LatchGuard(Arc<Latch>);

impl Drop for LatchGuard {
    fn drop(&mut self) {
        if self.0.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            let _guard = self.0.lock.lock();
            self.0.done.notify_one();
        }
    }
}
