//! All logs of this broker, their directories, flushers and housekeeping.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use parking_lot::Mutex;

use super::callers::Callers;
use super::claim::{self, ClaimedDirectory};
use super::closing::close_directory;
use super::directory::{Directory, Shared, Slot};
use super::disk::{Disk, RealDisk};
use super::files::{self, FilePool};
use super::flush::{self, FlushRounds};
use super::housekeeping::Housekeeping;
use super::inventory::PartitionOnDisk;
use super::names;
use super::owner::Owner;
use super::recovery::Opening;
use super::scrub::{self, ScrubStop};
use super::segment::{Findings, LogFiles};
use super::tail_cache::TailCache;
use super::tasks::{Task, interval};
use super::{Executor, Log, LogError};
use crate::config::TopicConfig;
use crate::time::Clock;
use crate::types::{Offset, TopicId, TopicPartition};

/// Files that stay open: half of what the process may have, the rest is for sockets.
const OPEN_FILES_MAX: u64 = 8192;

/// Hears of what happens in the logs, on threads of theirs, and answers for the partitions; must not
/// block.
pub trait FlushListener: std::fmt::Debug + Send + Sync {
    /// All below `flushed_offset` of this partition is on disk.
    fn flushed(&self, partition: &TopicPartition, flushed_offset: Offset);
    /// The end of what consumers may see of a partition: retention goes no further. `None` for one that
    /// nobody answers for.
    fn high_watermark(&self, _partition: &TopicPartition) -> Option<Offset> {
        None
    }
    /// The log begins later than before.
    fn log_start_moved(&self, _partition: &TopicPartition, _log_start: Offset) {}
    /// The configuration of a partition whose log may not be open.
    fn topic_config(&self, _partition: &TopicPartition) -> Option<Arc<TopicConfig>> {
        None
    }
    /// Retention has something to remove in a log that is not open: have it opened. False if nobody
    /// will.
    fn open(&self, _partition: &TopicPartition) -> bool {
        false
    }
    /// A flush of one partition took so long, by the clock.
    fn flush_took(&self, _time: std::time::Duration) {}
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
    pub high_watermark_checkpoint_interval_ms: i64,
    /// How often logs are looked over for `flush.ms`; the largest value: each at its own time.
    pub flush_scheduler_interval_ms: i64,
    pub retention_check_interval_ms: i64,
    pub producer_id_expiration_ms: i64,
    pub producer_id_expiration_check_interval_ms: i64,
    pub recovery_threads: usize,
    /// Room on each disk that users' records leave free (at most a 20th of it).
    pub reserved_bytes: u64,
}

#[cfg(test)]
impl LogManagerConfig {
    /// One directory, and Kafka's times.
    pub(crate) fn for_tests(directory: PathBuf) -> Self {
        Self {
            directories: vec![directory],
            cluster_id: "test".into(),
            node_id: 1,
            tail_cache_bytes: 1 << 20,
            initial_task_delay_ms: 30_000,
            flush_offset_checkpoint_interval_ms: 60_000,
            flush_start_offset_checkpoint_interval_ms: 60_000,
            retention_check_interval_ms: 300_000,
            high_watermark_checkpoint_interval_ms: 5_000,
            flush_scheduler_interval_ms: i64::MAX,
            producer_id_expiration_ms: 86_400_000,
            producer_id_expiration_check_interval_ms: 600_000,
            reserved_bytes: 0,
            recovery_threads: 1,
        }
    }
}

/// What becomes of a directory that is no partition's any more.
#[derive(Debug, Clone, Copy)]
enum Fate {
    /// Its topic was deleted: it is removed after a while.
    Deleted { delay_ms: i64 },
    /// Nobody knows why it is here: it is kept for an operator.
    Stray,
}

/// All logs.
#[derive(Debug)]
pub struct LogManager {
    pub(super) directories: Vec<Arc<Directory>>,
    pub(super) shared: Shared,
    /// Of each directory: a disk that stalls holds up no other.
    housekeeping: Vec<Arc<Housekeeping>>,
    log_ids: AtomicU64,
    damage_found: Arc<AtomicU64>,
    scrub_stop: Arc<ScrubStop>,
    /// Held while a new partition is given to a directory.
    placing: Mutex<()>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    closed: AtomicBool,
    /// Whose clean stop the marks of one speak of.
    incarnation: OnceLock<String>,
}

impl LogManager {
    /// Makes and locks the directories: first of all, since what is in them may be another process's.
    pub fn claim(directories: &[PathBuf]) -> Result<Vec<ClaimedDirectory>, LogError> {
        claim::claim(&RealDisk, directories)
    }

    /// Claims the directories and opens them.
    pub fn open(config: LogManagerConfig, clock: Arc<dyn Clock>) -> Result<Arc<Self>, LogError> {
        Self::open_on(config, clock, Arc::new(RealDisk))
    }

    /// Checks directories that were claimed, writes `meta.properties` where new, starts the flushers.
    /// Reads no partition: they open on demand. A directory that belongs to somebody else is an error.
    pub fn open_claimed(
        config: LogManagerConfig,
        claimed: Vec<ClaimedDirectory>,
        clock: Arc<dyn Clock>,
    ) -> Result<Arc<Self>, LogError> {
        Self::open_all(config, claimed, clock, Arc::new(RealDisk))
    }

    /// The same on another disk: tests and simulations.
    pub fn open_on(
        config: LogManagerConfig,
        clock: Arc<dyn Clock>,
        disk: Arc<dyn Disk>,
    ) -> Result<Arc<Self>, LogError> {
        let claimed = claim::claim(&*disk, &config.directories)?;
        Self::open_all(config, claimed, clock, disk)
    }

    /// Without a thread: a simulation calls [`Self::due_flushes`] and [`Self::run_due_tasks`].
    #[cfg(test)]
    pub(crate) fn open_still(
        config: LogManagerConfig,
        clock: Arc<dyn Clock>,
        disk: Arc<dyn Disk>,
    ) -> Result<Arc<Self>, LogError> {
        let claimed = claim::claim(&*disk, &config.directories)?;
        Self::without_threads(config, claimed, clock, disk)
    }

    fn open_all(
        config: LogManagerConfig,
        claimed: Vec<ClaimedDirectory>,
        clock: Arc<dyn Clock>,
        disk: Arc<dyn Disk>,
    ) -> Result<Arc<Self>, LogError> {
        let manager = Self::without_threads(config, claimed, clock, disk)?;
        manager.start_threads()?;
        Ok(manager)
    }

    fn without_threads(
        config: LogManagerConfig,
        claimed: Vec<ClaimedDirectory>,
        clock: Arc<dyn Clock>,
        disk: Arc<dyn Disk>,
    ) -> Result<Arc<Self>, LogError> {
        let shared = Shared {
            pool: Arc::new(FilePool::new(Arc::clone(&disk), open_files_max())),
            cache: Arc::new(TailCache::new(config.tail_cache_bytes)),
            producer_id_expiration_ms: Arc::new(AtomicI64::new(config.producer_id_expiration_ms)),
            flush_rounds: FlushRounds::new(&config, clock.now()),
            reserved_bytes: config.reserved_bytes,
            clock,
            disk,
        };
        let owner = Owner {
            cluster_id: &config.cluster_id,
            node_id: config.node_id,
        };
        let is_only = claimed.len() <= 1;
        let mut directories = Vec::with_capacity(claimed.len());
        for claimed in claimed {
            let number = directories.len();
            directories.push(Directory::open(number, claimed, owner, &shared, is_only)?);
        }
        if !directories.iter().any(|directory| directory.is_online()) {
            return Err(io::Error::new(io::ErrorKind::NotFound, "no log directory works").into());
        }
        let housekeeping = directories.iter().map(|directory| {
            let directory = Arc::clone(directory);
            Arc::new(Housekeeping::new(&config, directory))
        });
        let housekeeping = housekeeping.collect();
        Ok(Arc::new(Self {
            directories,
            shared,
            housekeeping,
            log_ids: AtomicU64::new(0),
            damage_found: Arc::default(),
            scrub_stop: Arc::default(),
            placing: Mutex::new(()),
            threads: Mutex::new(Vec::new()),
            closed: AtomicBool::new(false),
            incarnation: OnceLock::new(),
        }))
    }

    fn start_threads(&self) -> io::Result<()> {
        let mut threads = self.threads.lock();
        for directory in &self.directories {
            let directory = Arc::clone(directory);
            let name = format!("log-flush-{}", directory.number);
            threads.push(
                std::thread::Builder::new()
                    .name(name)
                    .spawn(move || flush::run(&directory))?,
            );
        }
        for (number, housekeeping) in self.housekeeping.iter().enumerate() {
            let housekeeping = Arc::clone(housekeeping);
            let name = format!("log-tasks-{number}");
            threads.push(
                std::thread::Builder::new()
                    .name(name)
                    .spawn(move || housekeeping.run())?,
            );
        }
        Ok(())
    }

    fn stop_threads(&self) {
        self.scrub_stop.stop();
        for directory in &self.directories {
            directory.tasks.stop();
            directory.flush_queue.stop();
        }
        for thread in std::mem::take(&mut *self.threads.lock()) {
            if thread.thread().id() != std::thread::current().id() {
                let _ = thread.join();
            }
        }
    }

    /// `producer.id.expiration.ms` has changed; counts from the next look at the producers on.
    pub fn set_producer_id_expiration(&self, ms: i64) {
        let expiration = &self.shared.producer_id_expiration_ms;
        expiration.store(ms, Ordering::Relaxed);
    }

    /// Has closed segments read from time to time and their CRCs checked.
    pub fn start_scrub(&self, interval: std::time::Duration) -> io::Result<()> {
        let mut threads = self.threads.lock();
        for directory in &self.directories {
            let (directory, stop) = (Arc::clone(directory), Arc::clone(&self.scrub_stop));
            let name = format!("log-scrub-{}", directory.number);
            threads.push(
                std::thread::Builder::new()
                    .name(name)
                    .spawn(move || scrub::run(&directory, interval, &stop))?,
            );
        }
        Ok(())
    }

    /// Damaged places that were found in logs since the start.
    pub fn damage_found(&self) -> u64 {
        self.damage_found.load(Ordering::Relaxed)
    }

    pub fn set_flush_listener(&self, listener: Arc<dyn FlushListener>) {
        for directory in &self.directories {
            directory.set_listener(Arc::clone(&listener));
        }
    }

    /// The log of a partition: opened (and recovered) if it has files, else empty and without files
    /// until its first record. May block: call it on the partition's executor lane.
    ///
    /// Files of another topic id under this name are of a topic that was deleted: those of a log that was
    /// open are removed as [`Self::delete`] does, those that an earlier run left are put aside as `…-stray`.
    pub fn log(
        &self,
        partition: &TopicPartition,
        topic_id: TopicId,
        config: Arc<TopicConfig>,
    ) -> Result<Arc<Log>, LogError> {
        let (directory, slot) = self.place(partition)?;
        directory.check_online()?;
        let mut open = slot.log.lock();
        let mut topic_id = topic_id;
        if let Some(log) = open.as_ref() {
            if log.topic_id() == topic_id || topic_id == TopicId::ZERO {
                log.set_config(config);
                return Ok(Arc::clone(log));
            }
            // The registry said so to somebody who is on his way here to delete it.
            let delay_ms = log.config().file_delete_delay_ms;
            let old = open.take();
            let fate = Fate::Deleted { delay_ms };
            self.put_aside(directory, partition, old.as_ref(), fate)?;
        }
        let found = self.topic_id_of(directory, partition);
        let differs = |id: &TopicId| *id != topic_id && *id != TopicId::ZERO;
        if topic_id == TopicId::ZERO {
            topic_id = found.unwrap_or(TopicId::ZERO);
        } else if let Some(other) = found.filter(|id| differs(id) && !id.is_damaged(topic_id)) {
            tracing::warn!(%partition, found = %other, wanted = %topic_id, "files of a deleted topic are put aside");
            self.put_aside(directory, partition, None, Fate::Stray)?;
        }
        let files = LogFiles {
            id: self.log_ids.fetch_add(1, Ordering::Relaxed),
            path: directory.path.join(partition.to_string()),
            disk: Arc::clone(&self.shared.disk),
            pool: Arc::clone(&self.shared.pool),
            findings: Arc::new(Findings {
                partition: partition.clone(),
                total: Arc::clone(&self.damage_found),
                unreadable: Arc::default(),
            }),
        };
        let opening = Opening {
            directory,
            partition,
            files: &files,
            index_interval_bytes: u64::try_from(config.index_interval_bytes).unwrap_or(0),
            waits_for_disk: config.flush_messages == 1,
            compacted: config.cleanup_policy.compact,
        };
        let opened = opening.open()?;
        let is_new = !opened.on_disk;
        let log = Log::new(
            directory,
            partition.clone(),
            topic_id,
            config,
            files,
            opened,
        );
        if !is_new && found != Some(topic_id) && topic_id != TopicId::ZERO {
            tracing::warn!(%partition, "partition.metadata is damaged and made anew");
            if let Err(error) = log.write_partition_metadata() {
                tracing::warn!(%partition, %error, "write partition.metadata");
            }
        }
        *open = Some(Arc::clone(&log));
        drop(open);
        // Put aside and forgotten above, or deleted meanwhile: its place is this one again.
        directory.keep(partition, &slot);
        Ok(log)
    }

    pub(super) fn topic_id_of(
        &self,
        directory: &Directory,
        partition: &TopicPartition,
    ) -> Option<TopicId> {
        let remembered = directory
            .manifest
            .lock()
            .get(partition)
            .map(|entry| entry.topic_id);
        remembered.or_else(|| directory.topic_id_on_disk(partition))
    }

    /// Where the partition is, or will be: of the directories that work, the one with the fewest
    /// partitions, the first of several (Kafka's `LogManager.nextLogDirs`).
    fn place(&self, partition: &TopicPartition) -> Result<(&Arc<Directory>, Arc<Slot>), LogError> {
        let existing = || {
            self.directories
                .iter()
                .find_map(|directory| Some((directory, directory.slot(partition)?)))
        };
        if let Some(found) = existing() {
            return Ok(found);
        }
        let _placing = self.placing.lock();
        if let Some(found) = existing() {
            return Ok(found);
        }
        let online = self
            .directories
            .iter()
            .filter(|directory| directory.is_online());
        let directory = online
            .min_by_key(|directory| directory.partition_count())
            .ok_or_else(|| LogError::Offline(self.directories[0].path.clone()))?;
        Ok((directory, directory.place(partition)))
    }

    /// Renames the directory of a deleted topic's partition to `…-delete` and removes it after
    /// `delay_ms`. Files of another topic id are left alone: they are of a topic made anew, whose first
    /// request was faster than this.
    pub fn delete(
        &self,
        partition: &TopicPartition,
        topic_id: TopicId,
        delay_ms: i64,
    ) -> Result<(), LogError> {
        for directory in &self.directories {
            let Some(slot) = directory.slot(partition) else {
                continue;
            };
            let mut open = slot.log.lock();
            let found = match open.as_ref() {
                Some(log) => Some(log.topic_id()),
                None => self.topic_id_of(directory, partition),
            };
            let unknown = |id: &TopicId| *id == TopicId::ZERO;
            if found.is_some_and(|found| found != topic_id && !unknown(&found)) {
                continue;
            }
            let log = open.take();
            let fate = Fate::Deleted { delay_ms };
            self.put_aside(directory, partition, log.as_ref(), fate)?;
        }
        Ok(())
    }

    /// Renames a partition's directory to `…-stray`, for an operator to look at. Nothing is removed.
    pub fn set_aside(&self, found: &PartitionOnDisk) -> Result<(), LogError> {
        let Some(directory) = self.directories.get(found.directory) else {
            return Ok(());
        };
        let slot = directory.slot(&found.partition);
        let mut open = slot.as_ref().map(|slot| slot.log.lock());
        let log = open.as_mut().and_then(|open| open.take());
        self.put_aside(directory, &found.partition, log.as_ref(), Fate::Stray)
    }

    /// The same for one that nobody has opened, if `is_stray` says so of what is in it. True if it did.
    pub fn set_aside_if(
        &self,
        mut found: PartitionOnDisk,
        is_stray: impl FnOnce(&PartitionOnDisk) -> bool,
    ) -> Result<bool, LogError> {
        let Some(directory) = self.directories.get(found.directory) else {
            return Ok(false);
        };
        let slot = directory.slot(&found.partition);
        let open = slot.as_ref().map(|slot| slot.log.lock());
        if open.as_ref().is_some_and(|open| open.is_some()) {
            return Ok(false); // whoever opened it looked
        }
        self.look_at(&mut found);
        if !is_stray(&found) {
            return Ok(false);
        }
        self.put_aside(directory, &found.partition, None, Fate::Stray)?;
        Ok(true)
    }

    /// Takes a partition's directory away under another name, and everything that is known of it.
    fn put_aside(
        &self,
        directory: &Directory,
        partition: &TopicPartition,
        log: Option<&Arc<Log>>,
        fate: Fate,
    ) -> Result<(), LogError> {
        if let Some(log) = log {
            log.mark_deleted();
            self.shared.pool.forget_log(log.files.id);
            self.shared.cache.forget(log.files.id);
        }
        directory.forget(partition);
        if !directory.is_online() {
            return Ok(()); // the files are told to be strays once the directory is back
        }
        let from = directory.path.join(partition.to_string());
        let suffix = match fate {
            Fate::Deleted { .. } => names::DELETED_DIRECTORY_SUFFIX,
            Fate::Stray => names::STRAY_DIRECTORY_SUFFIX,
        };
        let name = names::removed_directory(partition, uuid::Uuid::new_v4(), suffix);
        let to = directory.path.join(name);
        match self.shared.disk.rename(&from, &to) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(directory.failed_write("put a partition aside", error)),
        }
        self.shared.disk.sync_directory(&directory.path)?;
        if let Fate::Deleted { delay_ms } = fate {
            let task = Task::RemoveDirectory(to);
            directory.tasks.set(task, interval(delay_ms));
        }
        Ok(())
    }

    /// Short jobs may run on the threads of their callers from now on.
    pub fn use_callers(&self, callers: &Arc<Callers>) {
        for directory in &self.directories {
            directory.executor.use_callers(Arc::clone(callers));
        }
    }

    /// The executor of the directory where the partition lives or would be made.
    pub fn executor(&self, partition: &TopicPartition) -> Arc<dyn Executor> {
        let directory = match self.place(partition) {
            Ok((directory, _)) => directory,
            Err(_) => &self.directories[0], // all are offline: whatever runs there says so
        };
        Arc::clone(&directory.executor) as Arc<dyn Executor>
    }

    /// The high watermark that was noted for a partition before the last stop.
    pub fn high_watermark(&self, partition: &TopicPartition) -> Option<Offset> {
        let noted = |directory: &Arc<Directory>| {
            let offsets = directory.high_watermarks.lock();
            offsets.get(partition).copied()
        };
        self.directories.iter().find_map(noted)
    }

    /// Notes high watermarks in `replication-offset-checkpoint`. Those not named keep what they had.
    pub fn checkpoint_high_watermarks(&self, offsets: &[(TopicPartition, Offset)]) {
        for directory in self.directories.iter().filter(|d| d.is_online()) {
            let here = offsets
                .iter()
                .filter(|(partition, _)| directory.slot(partition).is_some());
            let mut changed = false;
            for (partition, offset) in here {
                let mut known = directory.high_watermarks.lock();
                changed |= known.insert(partition.clone(), *offset) != Some(*offset);
            }
            if changed {
                directory.write_high_watermarks(false);
            }
        }
    }

    /// What housekeeping does from time to time, done now.
    #[cfg(test)]
    pub(super) fn move_recovery_points(&self, bytes_min: u64) {
        for directory in &self.directories {
            super::housekeeping::move_recovery_points(directory, bytes_min);
        }
    }

    /// Retention, now; true if it had logs opened.
    #[cfg(test)]
    pub(super) fn clean_up(&self) -> bool {
        let clean = |directory: &Arc<Directory>| super::cleanup::clean_up(directory);
        self.directories.iter().map(clean).fold(false, |a, b| a | b)
    }

    /// What the flushers would flush now, directory by directory.
    #[cfg(test)]
    pub(crate) fn due_flushes(&self) -> Vec<Arc<Log>> {
        let due = |directory: &Arc<Directory>| directory.flush_queue.due(directory.clock.now());
        self.directories.iter().flat_map(due).collect()
    }

    /// What the housekeeping thread would do now.
    #[cfg(test)]
    pub(crate) fn run_due_tasks(&self) {
        self.housekeeping.iter().for_each(|h| h.run_due());
    }

    /// True once [`Self::close`] has begun.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// How this life of the broker is called: a clean stop leaves the name on disk.
    pub fn name_incarnation(&self, incarnation: &str) {
        self.incarnation.get_or_init(|| incarnation.to_owned());
    }

    /// Flushes everything, writes checkpoints, snapshots and the clean-shutdown marks.
    pub fn close(&self) {
        if self.closed.swap(true, Ordering::AcqRel) {
            return;
        }
        for directory in &self.directories {
            directory.executor.stop();
        }
        self.stop_threads();
        // Nobody reads any more, and the next start does not look for them.
        for housekeeping in &self.housekeeping {
            housekeeping.remove_waiting_files();
        }
        for directory in self.directories.iter().filter(|d| d.is_online()) {
            let incarnation = self.incarnation.get().map_or("", String::as_str);
            if let Err(error) = close_directory(directory, incarnation) {
                tracing::error!(directory = %directory.path.display(), %error, "close a log directory");
            }
        }
        for directory in &self.directories {
            directory.retire();
        }
    }
}

impl Drop for LogManager {
    /// Without [`LogManager::close`] this is a crash: nothing is written.
    fn drop(&mut self) {
        for directory in &self.directories {
            directory.executor.stop();
        }
        self.stop_threads();
        for directory in &self.directories {
            directory.retire();
        }
    }
}

impl Log {
    /// Refuses further use.
    fn mark_deleted(&self) {
        self.deleted.store(true, Ordering::Release);
        // An append that runs ends first.
        drop(self.writer.lock());
    }
}

/// Files that the logs have open at most: so many descriptors are not for sockets.
pub fn open_files_most() -> usize {
    files::open_files_most(open_files_max())
}

fn open_files_max() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let files = limit.current.unwrap_or(OPEN_FILES_MAX) / 2;
    usize::try_from(files.clamp(64, OPEN_FILES_MAX)).unwrap_or(64)
}
