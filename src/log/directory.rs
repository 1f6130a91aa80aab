//! One log directory: its lock, what is in it, whether it works.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};

use super::checkpoint::{self, Offsets};
use super::claim::{ClaimedDirectory, is_dead_disk, refused};
use super::disk::{DirectoryEntry, Disk, DiskLock, read_small_file};
use super::executor::ThreadPool;
use super::files::FilePool;
use super::flush::{FlushQueue, FlushRounds};
use super::life::{LastLife, LifeSign};
use super::log::{Log, LogError};
use super::manager::FlushListener;
use super::manifest::Manifest;
use super::names;
use super::owner::{Owner, check_owner};
use super::room::Room;
use super::tail_cache::TailCache;
use super::tasks::{Task, TaskQueue};
use crate::time::Clock;
use crate::types::{Offset, TopicId, TopicPartition};

mod checkpoints;

use checkpoints::read_offsets;

/// Longest small file that is read: 100,000 partitions with long names.
pub(super) const SMALL_FILE_BYTES_MAX: u64 = 256 << 20;
/// Jobs that may wait for a directory's threads.
const QUEUED_JOBS_MAX: usize = 1 << 16;
/// Threads of a directory: one may be stuck in a slow read while others append.
const IO_THREADS: usize = 4;

/// What all directories share.
#[derive(Debug, Clone)]
pub(super) struct Shared {
    pub disk: Arc<dyn Disk>,
    pub pool: Arc<FilePool>,
    pub cache: Arc<TailCache>,
    pub clock: Arc<dyn Clock>,
    /// May change.
    pub producer_id_expiration_ms: Arc<AtomicI64>,
    pub flush_rounds: FlushRounds,
    pub reserved_bytes: u64,
}

/// One of `log.dirs`.
#[derive(Debug)]
pub(super) struct Directory {
    pub number: usize,
    pub path: PathBuf,
    pub disk: Arc<dyn Disk>,
    pub cache: Arc<TailCache>,
    pub clock: Arc<dyn Clock>,
    pub tasks: TaskQueue,
    producer_id_expiration_ms: Arc<AtomicI64>,
    pub flush_rounds: FlushRounds,
    pub flush_queue: FlushQueue,
    /// A high watermark may have moved since they were last noted.
    high_watermarks_moved: AtomicBool,
    room: Room,
    pub life_sign: LifeSign,
    /// What is known of the run before this one.
    pub last_life: LastLife,
    pub executor: Arc<ThreadPool>,
    /// The last stop was clean.
    pub clean: bool,
    /// What the last clean stop knew of partitions that were not opened since.
    pub manifest: Mutex<Manifest>,
    pub recovery_points: Mutex<Offsets>,
    /// They are to be written.
    points_due: AtomicBool,
    pub high_watermarks: Mutex<Offsets>,
    slots: Mutex<HashMap<TopicPartition, Arc<Slot>>>,
    log_starts: Mutex<Offsets>,
    /// Partitions that are gone, and of which the checkpoints on disk may still say something.
    stale: Mutex<BTreeSet<TopicPartition>>,
    listener: RwLock<Option<Arc<dyn FlushListener>>>,
    offline: AtomicBool,
    /// Offline since the start: what is in it is not known.
    dead: bool,
    /// Given back when the manager closes.
    lock: Mutex<Option<Box<dyn DiskLock>>>,
}

/// The place of a partition in its directory.
#[derive(Debug, Default)]
pub(super) struct Slot {
    /// Held while the log is opened: who comes second waits.
    pub log: Mutex<Option<Arc<Log>>>,
}

/// What is in a directory at the start.
#[derive(Debug, Default)]
struct Found {
    clean: bool,
    manifest: Manifest,
    slots: HashMap<TopicPartition, Arc<Slot>>,
    recovery_points: Offsets,
    high_watermarks: Offsets,
    log_starts: Offsets,
    stale: BTreeSet<TopicPartition>,
    life_sign: LifeSign,
    last_life: LastLife,
}

impl Directory {
    /// One whose disk does not answer is offline from the start.
    pub(super) fn open(
        number: usize,
        claimed: ClaimedDirectory,
        owner: Owner<'_>,
        shared: &Shared,
        is_only: bool,
    ) -> Result<Arc<Self>, LogError> {
        let ClaimedDirectory { path, lock } = claimed;
        let opened = lock
            .map_err(LogError::Io)
            .and_then(|lock| Self::read(number, &path, owner, shared, lock));
        match opened {
            Err(LogError::Io(error)) if is_dead_disk(&error) && !is_only => {
                tracing::error!(
                    directory = %path.display(), %error,
                    "the log directory does not answer: its partitions are offline"
                );
                Ok(Arc::new(Self::new(
                    number,
                    &path,
                    shared,
                    Found::default(),
                    None,
                )))
            }
            Err(LogError::Io(error)) => Err(refused(&path, &error)),
            opened => opened,
        }
    }

    fn read(
        number: usize,
        path: &Path,
        owner: Owner<'_>,
        shared: &Shared,
        lock: Box<dyn DiskLock>,
    ) -> Result<Arc<Self>, LogError> {
        let disk = &shared.disk;
        check_owner(&**disk, path, owner)?;
        let entries = disk.list(path)?;
        let has = |name: &str| entries.iter().any(|entry| entry.name == name);
        let clean = has(names::CLEAN_SHUTDOWN);
        let manifest = match clean && has(names::MANIFEST) {
            true => read_manifest(&**disk, path),
            false => Manifest::default(),
        };
        let marks: Vec<&str> = [names::CLEAN_SHUTDOWN, names::MANIFEST]
            .into_iter()
            .filter(|name| has(name))
            .collect();
        for name in &marks {
            disk.remove_file(&path.join(name))?;
        }
        if !marks.is_empty() {
            // A mark that came back after a power cut would call this run's end clean.
            disk.sync_directory(path)?;
        }
        warn_of_strangers(path, &entries);
        let slots: HashMap<TopicPartition, Arc<Slot>> = entries
            .iter()
            .filter(|entry| entry.is_directory)
            .filter_map(|entry| names::parse_partition_directory(&entry.name))
            .map(|partition| (partition, Arc::default()))
            .collect();
        let mut stale = BTreeSet::new();
        let mut offsets = |name| {
            let mut offsets = read_offsets(&**disk, path, name);
            offsets.retain(|partition, offset| {
                let known = slots.contains_key(partition);
                if !known && *offset > 0 {
                    stale.insert(partition.clone());
                }
                known
            });
            offsets
        };
        let recovery_points = offsets(names::RECOVERY_POINT_CHECKPOINT);
        let high_watermarks = offsets(names::REPLICATION_CHECKPOINT);
        let log_starts = offsets(names::LOG_START_CHECKPOINT);
        let (life_sign, last_life) = LifeSign::begin(&**disk, path);
        let found = Found {
            clean,
            manifest,
            slots,
            recovery_points,
            high_watermarks,
            log_starts,
            stale,
            life_sign,
            last_life,
        };
        let directory = Self::new(number, path, shared, found, Some(lock));
        let is_deleted = |entry: &&DirectoryEntry| {
            entry.is_directory && names::is_deleted_directory(&entry.name)
        };
        for entry in entries.iter().filter(is_deleted) {
            let path = path.join(&entry.name);
            let tasks = &directory.tasks;
            tasks.set(Task::RemoveDirectory(path), Duration::ZERO);
        }
        Ok(Arc::new(directory))
    }

    fn new(
        number: usize,
        path: &Path,
        shared: &Shared,
        found: Found,
        lock: Option<Box<dyn DiskLock>>,
    ) -> Self {
        Self {
            number,
            path: path.to_owned(),
            disk: Arc::clone(&shared.disk),
            cache: Arc::clone(&shared.cache),
            clock: Arc::clone(&shared.clock),
            tasks: TaskQueue::new(Arc::clone(&shared.clock)),
            producer_id_expiration_ms: Arc::clone(&shared.producer_id_expiration_ms),
            flush_rounds: shared.flush_rounds,
            high_watermarks_moved: AtomicBool::new(false),
            flush_queue: FlushQueue::new(),
            room: Room::new(shared.reserved_bytes),
            life_sign: found.life_sign,
            last_life: found.last_life,
            executor: Arc::new(ThreadPool::new(
                format!("log-io-{number}"),
                IO_THREADS,
                QUEUED_JOBS_MAX,
            )),
            clean: found.clean,
            manifest: Mutex::new(found.manifest),
            recovery_points: Mutex::new(found.recovery_points),
            points_due: AtomicBool::new(false),
            high_watermarks: Mutex::new(found.high_watermarks),
            slots: Mutex::new(found.slots),
            log_starts: Mutex::new(found.log_starts),
            stale: Mutex::new(found.stale),
            listener: RwLock::new(None),
            offline: AtomicBool::new(lock.is_none()),
            dead: lock.is_none(),
            lock: Mutex::new(lock),
        }
    }

    pub(super) fn is_dead(&self) -> bool {
        self.dead
    }

    pub(super) fn is_online(&self) -> bool {
        !self.offline.load(Ordering::Acquire)
    }

    pub(super) fn check_online(&self) -> Result<(), LogError> {
        if self.is_online() {
            return Ok(());
        }
        Err(LogError::Offline(self.path.clone()))
    }

    /// Takes room for users' records: they stop while there is still some for the broker's own.
    /// True: the disk was full; tell [`Self::has_room`] if the append succeeds.
    pub(super) fn take_room(&self, bytes: u64) -> Result<bool, LogError> {
        let space = || self.disk.space(&self.path);
        let taken = self.room.take(bytes, || self.clock.now(), space);
        taken.map_err(|full| {
            if full.news {
                self.report_full("the reserve is all that is left");
            }
            LogError::Full(self.path.clone())
        })
    }

    /// The same for what is not needed yet: false where there is not plenty.
    pub(super) fn take_spare_room(&self, bytes: u64) -> bool {
        self.room.take_spare(bytes)
    }

    pub(super) fn has_room(&self) {
        self.room.reopen();
        tracing::info!(directory = %self.path.display(), "the log directory has room again: produce goes on");
    }

    pub(super) fn is_full(&self) -> bool {
        self.room.is_full()
    }

    fn report_full(&self, reason: &str) {
        tracing::error!(
            directory = %self.path.display(), reason,
            "the log directory is full: produce to it is refused until there is room; everything else goes on"
        );
    }

    /// What a failed write means. A full disk refuses and goes on; a fault of the disk takes the
    /// directory offline; anything else is the caller's to report.
    pub(super) fn failed_write(&self, what: &str, error: io::Error) -> LogError {
        if has_no_room(&error) {
            if self.room.found_full(self.clock.now()) {
                self.report_full(&error.to_string());
            }
            return LogError::Full(self.path.clone());
        }
        if is_disk_fault(&error) {
            self.fail(what, &error);
        }
        error.into()
    }

    /// Takes the directory offline for good: after a failed sync the kernel calls lost pages clean, so
    /// that a second try would succeed and lie.
    pub(super) fn fail(&self, what: &str, error: &io::Error) {
        if self.offline.swap(true, Ordering::AcqRel) {
            return;
        }
        tracing::error!(directory = %self.path.display(), %error, what, "the log directory goes offline");
        let listener = self.listener.read().clone();
        if let Some(listener) = listener {
            listener.directory_failed(&self.partitions());
        }
        self.life_sign.end(&*self.disk);
    }

    /// Ends the use of the directory: logs that somebody still holds answer errors from now on.
    pub(super) fn retire(&self) {
        self.offline.store(true, Ordering::Release);
        // Logs know their directory: the circle ends here.
        self.flush_queue.clear();
        let slots = std::mem::take(&mut *self.slots.lock());
        for slot in slots.values() {
            slot.log.lock().take();
        }
        self.lock.lock().take();
    }

    pub(super) fn set_listener(&self, listener: Arc<dyn FlushListener>) {
        *self.listener.write() = Some(listener);
    }

    pub(super) fn listener(&self) -> Option<Arc<dyn FlushListener>> {
        self.listener.read().clone()
    }

    /// How far retention may go in a log; `None` where nobody answers for the partition any more.
    /// Has a log opened that is not; false if nobody does.
    pub(super) fn open_partition(&self, partition: &TopicPartition) -> bool {
        let listener = self.listener.read().clone();
        listener.is_some_and(|listener| listener.open(partition))
    }

    pub(super) fn high_watermark(&self, log: &Log) -> Option<Offset> {
        match self.listener() {
            Some(listener) => listener.high_watermark(log.topic_partition()),
            None => Some(log.flushed_offset()),
        }
    }

    pub(super) fn log_start_moved(&self, partition: &TopicPartition, log_start: Offset) {
        if let Some(listener) = self.listener() {
            listener.log_start_moved(partition, log_start);
        }
    }

    pub(super) fn producer_id_expiration_ms(&self) -> i64 {
        self.producer_id_expiration_ms.load(Ordering::Relaxed)
    }

    pub(super) fn flushed(&self, partition: &TopicPartition, offset: Offset) {
        self.high_watermarks_move();
        if let Some(listener) = self.listener.read().as_ref() {
            listener.flushed(partition, offset);
        }
    }

    pub(super) fn flush_took(&self, time: std::time::Duration) {
        if let Some(listener) = self.listener.read().as_ref() {
            listener.flush_took(time);
        }
    }

    pub(super) fn slot(&self, partition: &TopicPartition) -> Option<Arc<Slot>> {
        self.slots.lock().get(partition).map(Arc::clone)
    }

    /// Gives the partition a place here.
    pub(super) fn place(&self, partition: &TopicPartition) -> Arc<Slot> {
        Arc::clone(self.slots.lock().entry(partition.clone()).or_default())
    }

    /// Puts a slot back that was forgotten while its log was opened.
    pub(super) fn keep(&self, partition: &TopicPartition, slot: &Arc<Slot>) {
        self.slots
            .lock()
            .insert(partition.clone(), Arc::clone(slot));
    }

    /// Forgets a partition and what the checkpoints say of it.
    pub(super) fn forget(&self, partition: &TopicPartition) {
        self.slots.lock().remove(partition);
        self.manifest.lock().remove(partition);
        let of = |offsets: &Mutex<Offsets>| offsets.lock().remove(partition).is_some();
        let noted = [
            &self.recovery_points,
            &self.high_watermarks,
            &self.log_starts,
        ]
        .map(of);
        if noted.contains(&true) {
            self.stale.lock().insert(partition.clone());
        }
    }

    pub(super) fn partition_count(&self) -> usize {
        self.slots.lock().len()
    }

    pub(super) fn partitions(&self) -> Vec<TopicPartition> {
        let mut partitions = self.found_partitions();
        partitions.sort();
        partitions
    }

    /// The same in no order.
    pub(super) fn found_partitions(&self) -> Vec<TopicPartition> {
        self.slots.lock().keys().cloned().collect()
    }

    /// Partitions with a place but without an open log.
    pub(super) fn unopened(&self) -> Vec<TopicPartition> {
        let slots = self.slots.lock();
        let unopened = slots
            .iter()
            .filter(|(_, slot)| slot.log.try_lock().is_some_and(|log| log.is_none()));
        unopened.map(|(partition, _)| partition.clone()).collect()
    }

    /// Logs that are open, in order; does not wait for those that are being opened.
    pub(super) fn logs(&self) -> Vec<Arc<Log>> {
        let slots: Vec<Arc<Slot>> = self.slots.lock().values().map(Arc::clone).collect();
        let mut logs: Vec<Arc<Log>> = slots
            .iter()
            .filter_map(|slot| slot.log.try_lock()?.as_ref().map(Arc::clone))
            .collect();
        logs.sort_unstable_by(|a, b| a.topic_partition().cmp(b.topic_partition()));
        logs
    }

    /// True if no files of a partition are here that this run has neither opened nor found clean.
    pub(super) fn knows_all(&self) -> Result<bool, LogError> {
        if self.clean {
            return Ok(true);
        }
        let opened: BTreeSet<TopicPartition> = self
            .logs()
            .iter()
            .map(|log| log.topic_partition().clone())
            .collect();
        let entries = self.disk.list(&self.path)?;
        Ok(entries
            .iter()
            .filter(|entry| entry.is_directory)
            .filter_map(|entry| names::parse_partition_directory(&entry.name))
            .all(|partition| opened.contains(&partition)))
    }

    /// The topic id in a partition's `partition.metadata`, if it can be read.
    pub(super) fn topic_id_on_disk(&self, partition: &TopicPartition) -> Option<TopicId> {
        let path = self.path.join(partition.to_string());
        let path = path.join(names::PARTITION_METADATA);
        let content = read_small_file(&*self.disk, &path, 4096).ok()?;
        checkpoint::partition_metadata_from_text(std::str::from_utf8(&content).ok()?)
    }
}

/// One line for all that nobody here has made; it is left alone.
pub(super) fn warn_of_strangers(path: &Path, entries: &[DirectoryEntry]) {
    const NAMED_MAX: usize = 20;
    let strange = |entry: &&DirectoryEntry| !names::is_known(&entry.name, entry.is_directory);
    let strangers = entries.iter().filter(strange);
    let count = strangers.clone().count();
    if count > 0 {
        let names: Vec<&str> = strangers.take(NAMED_MAX).map(|e| e.name.as_str()).collect();
        tracing::warn!(directory = %path.display(), count, ?names, "files that are no part of a log");
    }
}

/// No room on the disk, or none left for this user.
pub(super) fn has_no_room(error: &io::Error) -> bool {
    use io::ErrorKind::{QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded)
}

/// No file descriptor was free: it says nothing about the disk.
pub(super) fn is_out_of_descriptors(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

/// A fault of the disk, not of what is asked of it.
pub(super) fn is_disk_fault(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EIO | libc::EROFS | libc::ENODEV | libc::ENXIO | libc::EUCLEAN)
    )
}

pub(super) fn read_text(disk: &dyn Disk, path: &Path, name: &str) -> Option<String> {
    match read_small_file(disk, &path.join(name), SMALL_FILE_BYTES_MAX) {
        Ok(content) => Some(String::from_utf8_lossy(&content).into_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => {
            tracing::warn!(directory = %path.display(), name, %error, "read a small file");
            None
        }
    }
}

fn read_manifest(disk: &dyn Disk, path: &Path) -> Manifest {
    let manifest =
        read_text(disk, path, names::MANIFEST).and_then(|text| Manifest::from_text(&text));
    manifest.unwrap_or_else(|| {
        tracing::warn!(directory = %path.display(), "the manifest is damaged: partitions are looked at one by one");
        Manifest::default()
    })
}
