//! Several directories, each on a disk that can be made to fail, to fill up and to stall alone.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use super::support::*;
use crate::config::TopicConfig;
use crate::log::{
    AppendError, DirectoryEntry, Disk, DiskFile, DiskLock, Log, LogDirState, LogError, LogManager,
    LogManagerConfig, OpenMode, PartitionOnDisk, RealDisk,
};
use crate::time::ManualClock;
use crate::types::{TopicId, TopicPartition};

/// What the disk of one directory does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mood {
    Good,
    /// Syncs fail.
    Unsynced,
    /// Everything fails.
    Dead,
    /// So many bytes are free of a gigabyte; writes do not fail.
    Free(u64),
    /// No write fits.
    Full,
    /// Writes and syncs wait until it is better.
    Stalled,
}

type Moods = Arc<Mutex<BTreeMap<PathBuf, Mood>>>;

#[derive(Debug)]
struct Disks(Moods);

#[derive(Debug)]
struct FileOfDisks(Arc<dyn DiskFile>, Moods, PathBuf);

fn mood(moods: &Moods, path: &Path) -> Mood {
    let moods = moods.lock();
    let found = moods.iter().find(|(prefix, _)| path.starts_with(prefix));
    found.map_or(Mood::Good, |(_, mood)| *mood)
}

fn answer(moods: &Moods, path: &Path) -> io::Result<()> {
    while mood(moods, path) == Mood::Stalled {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    match mood(moods, path) {
        Mood::Dead => Err(io::Error::from_raw_os_error(libc::EIO)),
        _ => Ok(()),
    }
}

impl Disk for Disks {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        answer(&self.0, path)?;
        let file = RealDisk.open(path, mode)?;
        Ok(Arc::new(FileOfDisks(
            file,
            Arc::clone(&self.0),
            path.to_owned(),
        )))
    }
    fn create_directory(&self, path: &Path) -> io::Result<()> {
        answer(&self.0, path)?;
        RealDisk.create_directory(path)
    }
    fn list(&self, path: &Path) -> io::Result<Vec<DirectoryEntry>> {
        answer(&self.0, path)?;
        RealDisk.list(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        answer(&self.0, from)?;
        if mood(&self.0, from) == Mood::Full {
            // The directory has no room for a longer name.
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        RealDisk.rename(from, to)
    }
    fn remove_file(&self, path: &Path) -> io::Result<()> {
        answer(&self.0, path)?;
        RealDisk.remove_file(path)
    }
    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        answer(&self.0, path)?;
        RealDisk.remove_directory(path)
    }
    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        answer(&self.0, path)?;
        RealDisk.sync_directory(path)
    }
    fn lock(&self, path: &Path) -> io::Result<Box<dyn DiskLock>> {
        answer(&self.0, path)?;
        RealDisk.lock(path)
    }
    fn space(&self, path: &Path) -> io::Result<(u64, u64)> {
        answer(&self.0, path)?;
        match mood(&self.0, path) {
            Mood::Free(bytes) => Ok((1 << 30, bytes)),
            Mood::Full => Ok((1 << 30, 0)),
            _ => Ok((1 << 30, 1 << 29)),
        }
    }
}

impl DiskFile for FileOfDisks {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        answer(&self.1, &self.2)?;
        self.0.read_at(buffer, position)
    }
    fn write_at(&self, head: &[u8], tail: &[u8], position: u64) -> io::Result<()> {
        answer(&self.1, &self.2)?;
        if mood(&self.1, &self.2) == Mood::Full {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        self.0.write_at(head, tail, position)
    }
    fn bytes(&self) -> io::Result<u64> {
        answer(&self.1, &self.2)?;
        self.0.bytes()
    }
    fn truncate(&self, bytes: u64) -> io::Result<()> {
        answer(&self.1, &self.2)?;
        self.0.truncate(bytes)
    }
    fn sync(&self) -> io::Result<()> {
        answer(&self.1, &self.2)?;
        match mood(&self.1, &self.2) {
            Mood::Unsynced => Err(io::Error::from_raw_os_error(libc::EIO)),
            _ => self.0.sync(),
        }
    }
    fn as_file(&self) -> Option<&Arc<File>> {
        None
    }
}

/// Two directories on disks of their own.
struct Two {
    root: tempfile::TempDir,
    moods: Moods,
    clock: Arc<ManualClock>,
}

impl Two {
    fn new() -> Self {
        Self {
            root: tempfile::tempdir().unwrap(),
            moods: Moods::default(),
            clock: Arc::new(ManualClock::new(1_000_000)),
        }
    }

    fn path(&self, number: usize) -> PathBuf {
        self.root.path().join(["a", "b"][number])
    }

    fn set(&self, number: usize, mood: Mood) {
        self.moods.lock().insert(self.path(number), mood);
    }

    fn open(&self) -> Result<Arc<LogManager>, LogError> {
        let config = LogManagerConfig {
            directories: vec![self.path(0), self.path(1)],
            tail_cache_bytes: 0,
            reserved_bytes: 10 << 20,
            ..manager_config(self.root.path())
        };
        let disk = Arc::new(Disks(Arc::clone(&self.moods)));
        LogManager::open_on(config, Arc::<ManualClock>::clone(&self.clock) as _, disk)
    }

    fn has(&self, number: usize, name: &str) -> bool {
        self.path(number).join(name).exists()
    }
}

fn log(manager: &LogManager, topic: &str, number: i32) -> Result<Arc<Log>, LogError> {
    let partition = TopicPartition::new(topic, number);
    manager.log(&partition, TOPIC_ID, small_segments())
}

fn write(log: &Log, value: &[u8]) -> Result<(), AppendError> {
    append(log, batch(1_000, &[value])).map(|_| ())
}

fn is_full(result: Result<(), AppendError>) -> bool {
    matches!(result, Err(AppendError::Log(LogError::Full(_))))
}

#[test]
fn new_partitions_go_where_the_fewest_are() {
    let two = Two::new();
    let manager = two.open().unwrap();
    for number in 0..4 {
        write(&log(&manager, "t", number).unwrap(), b"v").unwrap();
    }
    assert!(two.has(0, "t-0") && two.has(1, "t-1") && two.has(0, "t-2") && two.has(1, "t-3"));
    manager
        .delete(&TopicPartition::new("t", 1), TOPIC_ID, 0)
        .unwrap();
    manager
        .delete(&TopicPartition::new("t", 3), TOPIC_ID, 0)
        .unwrap();
    for number in 4..7 {
        write(&log(&manager, "t", number).unwrap(), b"v").unwrap();
    }
    assert!(two.has(1, "t-4") && two.has(1, "t-5") && two.has(0, "t-6"));
    manager.close();
    // And they are found where they are.
    let manager = two.open().unwrap();
    assert_eq!(log(&manager, "t", 5).unwrap().log_end_offset(), 1);
}

#[test]
fn a_directory_that_fails_takes_no_other_with_it() {
    for how in [Mood::Unsynced, Mood::Dead] {
        let two = Two::new();
        let manager = two.open().unwrap();
        let (bad, good) = (
            log(&manager, "t", 0).unwrap(),
            log(&manager, "t", 1).unwrap(),
        );
        for log in [&bad, &good] {
            write(log, b"before").unwrap();
            log.flush().unwrap();
        }
        two.set(0, how);
        let _ = write(&bad, b"lost");
        assert!(bad.flush().is_err());
        two.set(0, Mood::Good);
        // For good: what the kernel lost it may call clean.
        assert!(matches!(
            write(&bad, b"refused"),
            Err(AppendError::Log(LogError::Offline(_)))
        ));
        assert!(matches!(log(&manager, "t", 0), Err(LogError::Offline(_))));
        assert_eq!(bad.flushed_offset(), 1);
        write(&good, b"after").unwrap();
        assert_eq!(good.flush().unwrap(), 2);
        // What is new goes elsewhere.
        write(&log(&manager, "new", 0).unwrap(), b"v").unwrap();
        assert!(two.has(1, "new-0"));
        let states: Vec<_> = manager
            .states()
            .into_iter()
            .map(|(_, state)| state)
            .collect();
        assert_eq!(states, [LogDirState::Offline, LogDirState::Online]);
        let online: Vec<_> = manager.describe().iter().map(|d| d.online).collect();
        assert_eq!(online, [false, true]);
        drop((bad, good));
        manager.close();
        assert!(two.has(1, ".kafka_cleanshutdown"));
        assert!(!two.has(0, ".kafka_cleanshutdown"));
        // With the disk mended all that was flushed is there.
        let manager = two.open().unwrap();
        assert!(log(&manager, "t", 0).unwrap().log_end_offset() >= 1);
        assert_eq!(log(&manager, "t", 1).unwrap().log_end_offset(), 2);
    }
}

#[test]
fn a_topic_made_anew_while_its_directory_was_away_is_not_the_stray() {
    let two = Two::new();
    let manager = two.open().unwrap();
    let old = log(&manager, "t", 0).unwrap();
    write(&old, b"old").unwrap();
    two.set(0, Mood::Dead);
    assert!(old.flush().is_err());
    drop(old);
    let partition = TopicPartition::new("t", 0);
    manager.delete(&partition, TOPIC_ID, 0).unwrap();
    let id = TopicId(*b"another topic id");
    let new = manager.log(&partition, id, small_segments()).unwrap();
    write(&new, b"new").unwrap();
    drop(new);
    manager.close();
    two.set(0, Mood::Good);
    let manager = two.open().unwrap();
    let stray = PartitionOnDisk {
        directory: 0,
        partition: partition.clone(),
        topic_id: Some(TOPIC_ID),
    };
    assert!(manager.on_disk().contains(&stray));
    manager.set_aside(&stray).unwrap();
    assert!(!two.has(0, "t-0") && two.has(1, "t-0"));
    let new = manager.log(&partition, id, small_segments()).unwrap();
    assert_eq!(read_all(&new, 0).len(), 1);
}

#[test]
fn what_may_be_in_a_dead_directory_is_not_made_anew() {
    let two = Two::new();
    let manager = two.open().unwrap();
    for number in 0..2 {
        write(&log(&manager, "t", number).unwrap(), b"v").unwrap();
    }
    manager.close();
    two.set(0, Mood::Dead);
    let manager = two.open().unwrap();
    assert_eq!(manager.states()[0], (two.path(0), LogDirState::Offline));
    let of = |number| TopicPartition::new("t", number);
    assert!(manager.may_be_lost(&of(0)));
    assert!(!manager.may_be_lost(&of(1)));
    assert!(matches!(log(&manager, "t", 0), Err(LogError::Offline(_))));
    assert_eq!(log(&manager, "t", 1).unwrap().log_end_offset(), 1);
    assert!(manager.may_be_lost(&of(0)), "it still is");
    // A partition that came later cannot be there.
    write(&log(&manager, "later", 0).unwrap(), b"v").unwrap();
    assert!(two.has(1, "later-0"));
    manager.close();
    two.set(0, Mood::Good);
    let manager = two.open().unwrap();
    assert!(!manager.may_be_lost(&of(0)));
    assert_eq!(log(&manager, "t", 0).unwrap().log_end_offset(), 1);
    manager.close();
    two.set(0, Mood::Dead);
    two.set(1, Mood::Dead);
    let error = two.open().unwrap_err().to_string();
    assert!(error.starts_with("log.dirs="), "{error}");
}

#[test]
fn users_stop_at_the_reserve_and_the_brokers_own_records_do_not() {
    let two = Two::new();
    let manager = two.open().unwrap();
    let (user, other) = (
        log(&manager, "t", 0).unwrap(),
        log(&manager, "t", 1).unwrap(),
    );
    user.set_config(Arc::new(TopicConfig::default()));
    let groups = log(&manager, "__consumer_offsets", 0).unwrap();
    write(&user, b"fits").unwrap();
    append(&user, idempotent(7, 0, 0, now(), &[b"fits"])).unwrap();
    two.set(0, Mood::Free((10 << 20) + 10));
    // The answer of before is good for a while; then the disk is asked.
    let mut refused = false;
    for _ in 0..300 {
        refused = is_full(append(&user, batch(1_000, &[&[7; 100_000]])).map(|_| ()));
        if refused {
            break;
        }
    }
    assert!(refused);
    assert_eq!(manager.states()[0].1, LogDirState::Full);
    // The batch before it found no room either: it is not for its order that it is refused.
    let behind = append(&user, idempotent(7, 0, 5, now(), &[b"behind"]));
    assert!(is_full(behind.map(|_| ())));
    let end = user.log_end_offset();
    write(&groups, b"goes on").unwrap();
    write(&other, b"another disk").unwrap();
    user.advance_log_start_offset(end - 5).unwrap();
    assert_eq!(read_all(&user, end - 5).len(), 5);
    two.set(0, Mood::Free(100 << 20));
    assert!(is_full(write(&user, b"not tried yet")));
    two.clock.advance(std::time::Duration::from_millis(100));
    write(&user, b"goes on").unwrap();
    assert_eq!(user.log_end_offset(), end + 1);
    assert_eq!(manager.states()[0].1, LogDirState::Online);
    // The broker's own records meet the end of the disk itself.
    two.set(0, Mood::Full);
    assert!(is_full(write(&groups, b"no room at all")));
    assert_eq!(manager.states()[0].1, LogDirState::Full);
    two.set(0, Mood::Good);
    write(&groups, b"at once").unwrap();
    assert_eq!(groups.log_end_offset(), 2);
}

#[test]
fn a_stalled_disk_holds_up_no_other_and_no_reader_of_the_cache() {
    let two = Two::new();
    let config = LogManagerConfig {
        directories: vec![two.path(0), two.path(1)],
        // As often as can be: a task that hangs in one directory must not hang those of the other.
        initial_task_delay_ms: 1,
        flush_offset_checkpoint_interval_ms: 1,
        flush_start_offset_checkpoint_interval_ms: 1,
        retention_check_interval_ms: 1,
        ..manager_config(two.root.path())
    };
    let disk = Arc::new(Disks(Arc::clone(&two.moods)));
    let manager = LogManager::open_on(config, Arc::new(crate::time::SystemClock), disk).unwrap();
    let slow = log(&manager, "t", 0).unwrap();
    let fast = log(&manager, "t", 1).unwrap();
    slow.reader_is_at_the_end();
    write(&slow, b"cached").unwrap();
    write(&fast, b"first").unwrap();
    slow.flush().unwrap();
    two.set(0, Mood::Stalled);
    let (done, finished) = std::sync::mpsc::channel();
    let executor = manager.executor(slow.topic_partition());
    let waiting = Arc::clone(&slow);
    executor.submit(
        0,
        Box::new(move || {
            write(&waiting, b"waits").unwrap();
            done.send(waiting.flush().unwrap()).unwrap();
        }),
    );
    // What does not touch the stalled disk is done at once: else this hangs.
    for round in 0..20 {
        write(&fast, b"goes on").unwrap();
        assert_eq!(fast.flush().unwrap(), round + 2);
        assert!(slow.read_cached(0, 1_000, 1, true).is_some());
        assert_eq!(slow.log_end_offset(), 1);
        assert_eq!(manager.states().len(), 2);
        assert!(manager.at_rest(slow.topic_partition()).is_none());
    }
    // Housekeeping of the other directory goes on as well.
    let checkpoint = two.path(1).join("recovery-point-offset-checkpoint");
    let _ = std::fs::remove_file(&checkpoint);
    fast.set_config(Arc::new(TopicConfig::default()));
    for _ in 0..(17 << 20) / 100_000 {
        append(&fast, batch(1_000, &[&[7; 100_000]])).unwrap();
    }
    fast.flush().unwrap();
    let patience = std::time::Duration::from_millis(10);
    assert!((0..2_000).any(|_| {
        std::thread::sleep(patience);
        checkpoint.exists()
    }));
    assert!(finished.try_recv().is_err(), "it was no stall");
    two.set(0, Mood::Good);
    assert_eq!(finished.recv().unwrap(), 2);
}

/// Deleting is what makes room, so it must not need any.
#[test]
fn records_are_deleted_from_a_disk_without_a_free_byte() {
    let two = Two::new();
    let manager = two.open().unwrap();
    let full = log(&manager, "t", 0).unwrap();
    for _ in 0..20 {
        append(&full, batch(1_000, &[&[7; 500]])).unwrap();
    }
    full.flush().unwrap();
    let base = |number: usize| full.view.lock().segments[number].base_offset;
    let (second, third) = (base(2), base(3));
    two.set(0, Mood::Full);
    // To a segment's beginning: all that was asked for. Into one: as far as it goes, and an error.
    assert_eq!(full.advance_log_start_offset(second).unwrap(), second);
    let inside = full.advance_log_start_offset(third + 1);
    assert!(matches!(inside, Err(LogError::Full(_))), "{inside:?}");
    assert_eq!(full.log_start_offset(), third);
    assert!(!two.has(0, &format!("t-0/{second:020}.log")));
    assert!(two.has(0, &format!("t-0/{third:020}.log")));
    assert_ne!(manager.states()[0].1, LogDirState::Offline);
    drop((full, manager)); // a crash
    let manager = two.open().unwrap();
    let full = log(&manager, "t", 0).unwrap();
    assert_eq!(full.log_start_offset(), third);
    two.set(0, Mood::Good);
    assert_eq!(full.advance_log_start_offset(third + 1).unwrap(), third + 1);
}

/// Everything that a roll, a checkpoint and a stop write meets a full disk, and nothing is lost.
#[test]
fn nothing_that_is_written_beside_records_fails_a_directory_that_is_full() {
    let two = Two::new();
    let manager = two.open().unwrap();
    let full = log(&manager, "t", 0).unwrap();
    let config = TopicConfig {
        segment_bytes: 500,
        index_interval_bytes: 1,
        ..TopicConfig::default()
    };
    full.set_config(Arc::new(config));
    let mut written = 0;
    for round in 0..40 {
        // Full at another byte of the segment each time, so that rolls meet it too.
        append(&full, batch(1_000, &[&vec![7; 1 + round * 7 % 100]])).unwrap();
        written += 1;
        two.set(0, Mood::Full);
        assert!(is_full(
            append(&full, batch(1_000, &[&vec![7; 300]])).map(|_| ())
        ));
        manager.move_recovery_points(0);
        assert_ne!(manager.states()[0].1, LogDirState::Offline);
        assert_eq!(full.flush().unwrap(), written);
        two.set(0, Mood::Good);
        two.clock.advance(std::time::Duration::from_millis(100));
    }
    assert_eq!(read_all(&full, 0).len(), 40);
    assert!(full.segment_count() > 5);
    two.set(0, Mood::Full);
    drop(full);
    manager.close();
    // It starts again while the disk is full, and what is there is served.
    let manager = two.open().unwrap();
    let full = log(&manager, "t", 0).unwrap();
    assert_eq!(read_all(&full, 0).len(), 40);
    assert_ne!(manager.states()[0].1, LogDirState::Offline);
    two.set(0, Mood::Good);
    two.clock.advance(std::time::Duration::from_millis(100));
    write(&full, b"goes on").unwrap();
    assert_eq!(full.log_end_offset(), 41);
    full.flush().unwrap();
    drop(full);
    manager.close();
    assert!(two.has(0, ".kafka_cleanshutdown"));
}
