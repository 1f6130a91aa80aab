//! A disk that fails, fills up, and stalls.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::support::*;
use crate::config::TopicConfig;
use crate::log::{
    AppendError, DirectoryEntry, Disk, DiskFile, DiskLock, FlushListener, LogError, LogManager,
    OpenMode, RealDisk,
};
use crate::time::SystemClock;
use crate::types::{Offset, TopicPartition};

#[derive(Debug, Default)]
struct Faults {
    sync_fails: AtomicBool,
    no_descriptor: AtomicBool,
    synced_together: AtomicBool,
    /// Bytes that may still be written; below zero: any number.
    space: AtomicI64,
    sync_stalls: Mutex<()>,
    /// Files with this in their path are not read.
    unreadable: Mutex<Option<String>>,
}

#[derive(Debug)]
struct FaultyDisk(Arc<Faults>);

#[derive(Debug)]
struct FaultyFile(Arc<dyn DiskFile>, Arc<Faults>, String);

impl Disk for FaultyDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let file = RealDisk.open(path, mode)?;
        let path = path.display().to_string();
        Ok(Arc::new(FaultyFile(file, Arc::clone(&self.0), path)))
    }
    fn create_directory(&self, path: &Path) -> io::Result<()> {
        RealDisk.create_directory(path)
    }
    fn list(&self, path: &Path) -> io::Result<Vec<DirectoryEntry>> {
        RealDisk.list(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealDisk.rename(from, to)
    }
    fn remove_file(&self, path: &Path) -> io::Result<()> {
        RealDisk.remove_file(path)
    }
    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        RealDisk.remove_directory(path)
    }
    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        RealDisk.sync_directory(path)
    }
    fn lock(&self, path: &Path) -> io::Result<Box<dyn DiskLock>> {
        RealDisk.lock(path)
    }
    fn space(&self, path: &Path) -> io::Result<(u64, u64)> {
        RealDisk.space(path)
    }
    fn sync_all(&self, path: &Path) -> io::Result<()> {
        if self.0.sync_fails.load(Ordering::SeqCst) {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        self.0.synced_together.store(true, Ordering::SeqCst);
        RealDisk.sync_all(path)
    }
    fn syncs_all(&self) -> bool {
        true
    }
}

impl DiskFile for FaultyFile {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        let unreadable = self.1.unreadable.lock();
        if unreadable
            .as_ref()
            .is_some_and(|name| self.2.contains(name))
        {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        self.0.read_at(buffer, position)
    }
    fn write_at(&self, head: &[u8], tail: &[u8], position: u64) -> io::Result<()> {
        let space = self.1.space.load(Ordering::SeqCst);
        let Ok(space) = usize::try_from(space) else {
            return self.0.write_at(head, tail, position);
        };
        if head.len() + tail.len() <= space {
            return self.0.write_at(head, tail, position);
        }
        // As a full disk does it: what fits is written.
        let whole = [head, tail].concat();
        self.0.write_at(&whole[..space], &[], position)?;
        Err(io::ErrorKind::StorageFull.into())
    }
    fn bytes(&self) -> io::Result<u64> {
        self.0.bytes()
    }
    fn truncate(&self, bytes: u64) -> io::Result<()> {
        self.0.truncate(bytes)
    }
    fn sync(&self) -> io::Result<()> {
        drop(self.1.sync_stalls.lock());
        if self.1.no_descriptor.load(Ordering::SeqCst) {
            return Err(io::Error::from_raw_os_error(libc::EMFILE));
        }
        if self.1.sync_fails.load(Ordering::SeqCst) {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        self.0.sync()
    }
    fn as_file(&self) -> Option<&Arc<File>> {
        None // reads come as memory, as from a simulated disk
    }
}

fn open_faulty(path: &Path) -> (Arc<Faults>, Arc<LogManager>) {
    let faults = Arc::new(Faults::default());
    faults.space.store(-1, Ordering::SeqCst);
    let disk = Arc::new(FaultyDisk(Arc::clone(&faults)));
    let config = crate::log::LogManagerConfig {
        tail_cache_bytes: 0,
        ..manager_config(path)
    };
    let manager = LogManager::open_on(config, Arc::new(SystemClock), disk).unwrap();
    (faults, manager)
}

#[derive(Debug, Default)]
struct Failed(Mutex<Vec<TopicPartition>>);

impl FlushListener for Failed {
    fn flushed(&self, _partition: &TopicPartition, _flushed_offset: Offset) {}
    fn directory_failed(&self, partitions: &[TopicPartition]) {
        self.0.lock().extend_from_slice(partitions);
    }
}

#[test]
fn a_failed_sync_takes_the_directory_offline_for_good() {
    let directory = tempfile::tempdir().unwrap();
    let (faults, manager) = open_faulty(directory.path());
    let failed = Arc::new(Failed::default());
    manager.set_flush_listener(Arc::<Failed>::clone(&failed));
    let log = manager
        .log(&partition(), TOPIC_ID, small_segments())
        .unwrap();
    append(&log, batch(1_000, &[b"kept"])).unwrap();
    wait_until("the flush", || log.flushed_offset() == 1);
    faults.sync_fails.store(true, Ordering::SeqCst);
    append(&log, batch(1_000, &[b"lost"])).unwrap();
    wait_until("the failure", || !failed.0.lock().is_empty());
    faults.sync_fails.store(false, Ordering::SeqCst);
    assert_eq!(*failed.0.lock(), [partition()]);
    assert_eq!(log.flushed_offset(), 1);
    assert!(log.flush().is_err());
    assert!(append(&log, batch(1_000, &[b"refused"])).is_err());
    assert!(log.read(0, 100, 1, true).is_err());
    assert!(
        manager
            .log(&partition(), TOPIC_ID, small_segments())
            .is_err()
    );
    assert!(!manager.describe()[0].online);
    manager.close();
    let marks = [".kafka_cleanshutdown", ".ottla_manifest"];
    assert!(
        marks
            .iter()
            .all(|mark| !directory.path().join(mark).exists())
    );
}

#[test]
fn a_full_disk_refuses_appends_and_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let (faults, manager) = open_faulty(directory.path());
    let log = manager
        .log(&partition(), TOPIC_ID, small_segments())
        .unwrap();
    append(&log, batch(1_000, &[b"first"])).unwrap();
    for space in [0, 10, 61, 100] {
        faults.space.store(space, Ordering::SeqCst);
        let refused = append(&log, batch(1_000, &[&[7; 200]]));
        assert!(matches!(refused, Err(AppendError::Log(LogError::Full(_)))));
        assert_eq!(log.log_end_offset(), 1);
        assert_eq!(read_all(&log, 0).len(), 1);
        faults.space.store(-1, Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(110)); // a full disk is not tried all the time
        let segment = directory.path().join("topic-0/00000000000000000000.log");
        assert_eq!(std::fs::metadata(segment).unwrap().len(), log.size_bytes());
    }
    assert_eq!(
        append(&log, batch(1_000, &[b"second"]))
            .unwrap()
            .base_offset,
        1
    );
    assert_eq!(read_all(&log, 0).len(), 2);
}

#[test]
fn a_stalled_sync_holds_up_neither_appends_nor_reads() {
    let directory = tempfile::tempdir().unwrap();
    let (faults, manager) = open_faulty(directory.path());
    let log = manager
        .log(&partition(), TOPIC_ID, small_segments())
        .unwrap();
    // The first record waits for the disk: whose records these are is written before there are any.
    append(&log, batch(1_000, &[&[7; 200]])).unwrap();
    wait_until("the first flush", || log.flushed_offset() == 1);
    let stalled = faults.sync_stalls.lock();
    for _ in 1..50 {
        append(&log, batch(1_000, &[&[7; 200]])).unwrap();
    }
    assert_eq!(read_all(&log, 0).len(), 50);
    assert_eq!(log.flushed_offset(), 1);
    drop(stalled);
    wait_until("the flush", || log.flushed_offset() == 50);
}

#[test]
fn a_background_flush_does_not_hold_up_those_who_wait() {
    let directory = tempfile::tempdir().unwrap();
    let (_faults, manager) = open_faulty(directory.path());
    let lazy = Arc::new(TopicConfig {
        flush_messages: 2,
        ..TopicConfig::default()
    });
    let other = TopicPartition::new("lazy", 0);
    let lazy = manager.log(&other, TOPIC_ID, lazy).unwrap();
    let log = manager
        .log(&partition(), TOPIC_ID, small_segments())
        .unwrap();
    let stalled = lazy.flushing.lock(); // as a long sync of its own would hold it
    append(&lazy, batch(1_000, &[b"a", b"b"])).unwrap();
    append(&log, batch(1_000, &[b"urgent"])).unwrap();
    wait_until("the flush", || log.flushed_offset() == 1);
    assert_eq!(lazy.flushed_offset(), 0);
    drop(stalled);
    wait_until("the other flush", || lazy.flushed_offset() == 2);
}

#[test]
fn what_was_not_opened_since_a_crash_is_not_called_clean() {
    let directory = tempfile::tempdir().unwrap();
    let other = TopicPartition::new("other", 0);
    let (_, manager) = open_faulty(directory.path());
    for partition in [&partition(), &other] {
        let log = manager.log(partition, TOPIC_ID, small_segments()).unwrap();
        append(&log, batch(1_000, &[b"value"])).unwrap();
        log.flush().unwrap();
    }
    drop(manager);
    let mark = directory.path().join(".kafka_cleanshutdown");
    let (_, manager) = open_faulty(directory.path());
    assert_eq!(manager.unrecovered().len(), 2);
    manager
        .log(&partition(), TOPIC_ID, small_segments())
        .unwrap();
    assert_eq!(manager.unrecovered(), std::slice::from_ref(&other));
    manager.close();
    assert!(!mark.exists());
    let (_, manager) = open_faulty(directory.path());
    for partition in [&partition(), &other] {
        manager.log(partition, TOPIC_ID, small_segments()).unwrap();
    }
    assert!(manager.unrecovered().is_empty());
    manager.close();
    assert!(mark.exists());
    let (_, manager) = open_faulty(directory.path());
    assert!(manager.unrecovered().is_empty());
}

#[test]
fn retention_makes_room_on_a_full_disk() {
    let directory = tempfile::tempdir().unwrap();
    let (faults, manager) = open_faulty(directory.path());
    let config = Arc::new(TopicConfig {
        retention_bytes: 2_000,
        ..(*small_segments()).clone()
    });
    let log = manager.log(&partition(), TOPIC_ID, config).unwrap();
    for _ in 0..14 {
        append(&log, batch(now(), &[&[7; 400]])).unwrap();
    }
    log.flush().unwrap();
    faults.space.store(0, Ordering::SeqCst);
    append(&log, batch(now(), &[&[7; 400]])).unwrap_err();
    manager.clean_up();
    assert_eq!(log.log_start_offset(), 8);
    drop((log, manager));
    // What the checkpoint could not hold the names of the files say.
    faults.space.store(-1, Ordering::SeqCst);
    let manager = open(directory.path());
    let log = manager
        .log(&partition(), TOPIC_ID, small_segments())
        .unwrap();
    assert_eq!((log.log_start_offset(), log.log_end_offset()), (8, 14));
    assert_eq!(read_all(&log, 8).len(), 6);
}

/// Many logs are closed with one sync; where it fails nothing says that the stop was clean.
#[test]
fn many_logs_are_closed_together() {
    for fails in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let (faults, manager) = open_faulty(directory.path());
        let page_cache = Arc::new(TopicConfig {
            flush_messages: i64::MAX,
            ..TopicConfig::default()
        });
        let log = |manager: &LogManager, number| {
            let partition = TopicPartition::new("topic", number);
            manager
                .log(&partition, TOPIC_ID, Arc::clone(&page_cache))
                .unwrap()
        };
        for number in 0..300 {
            append(
                &log(&manager, number),
                idempotent(7, 0, 0, now(), &[b"value"]),
            )
            .unwrap();
        }
        faults.sync_fails.store(fails, Ordering::SeqCst);
        manager.close();
        assert_eq!(faults.synced_together.load(Ordering::SeqCst), !fails);
        drop(manager);
        assert_eq!(
            directory.path().join(".kafka_cleanshutdown").exists(),
            !fails
        );
        let manager = open(directory.path());
        assert_eq!(manager.unrecovered().len(), if fails { 300 } else { 0 });
        for number in 0..300 {
            let log = log(&manager, number);
            assert_eq!(log.log_end_offset(), 1);
            assert_eq!(log.producers().len(), 1);
        }
    }
}

#[test]
fn a_sync_without_a_descriptor_is_tried_again() {
    let directory = tempfile::tempdir().unwrap();
    let (faults, manager) = open_faulty(directory.path());
    let log = manager
        .log(&partition(), TOPIC_ID, small_segments())
        .unwrap();
    append(&log, batch(now(), &[b"a"])).unwrap();
    faults.no_descriptor.store(true, Ordering::SeqCst);
    log.flush_soon();
    std::thread::sleep(Duration::from_millis(250));
    assert_eq!(log.flushed_offset(), 0);
    // Rolls: what comes meanwhile is synced with it.
    for _ in 0..5 {
        append(&log, batch(now(), &[&[7; 900]])).unwrap();
    }
    faults.no_descriptor.store(false, Ordering::SeqCst);
    wait_until("the sync", || log.flushed_offset() == 6);
    append(&log, batch(now(), &[b"b"])).unwrap();
    assert_eq!(log.flush().unwrap(), 7);
}

#[test]
fn what_a_disk_does_not_read_costs_only_itself() {
    let directory = tempfile::tempdir().unwrap();
    let (faults, manager) = open_faulty(directory.path());
    let other = TopicPartition::new("other", 0);
    for partition in [&partition(), &other] {
        let log = manager.log(partition, TOPIC_ID, small_segments()).unwrap();
        for _ in 0..30 {
            append(&log, batch(1_000, &[&[7; 200]])).unwrap();
        }
        log.flush().unwrap();
    }
    let log = manager
        .log(&partition(), TOPIC_ID, small_segments())
        .unwrap();
    let second = log.read(0, 100_000, Offset::MAX, true).unwrap();
    let second = batches_of(&bytes_of(&second)).len() as Offset;
    let set = |name: &str| *faults.unreadable.lock() = Some(name.to_owned());
    set("topic-0/00000000000000000000.log");
    assert!(matches!(
        log.read(0, 1_000, Offset::MAX, true),
        Err(LogError::Io(_))
    ));
    assert_eq!(read_all(&log, second).len() as Offset, 30 - second);
    assert!(append(&log, batch(1_000, &[b"more"])).is_ok());
    log.flush().unwrap();
    assert!(manager.describe()[0].online);
    drop((log, manager));
    // Neither does it stop the start: the log that needs it waits, the others open.
    let (faults, manager) = open_faulty(directory.path());
    *faults.unreadable.lock() = Some("topic-0/00000000000000000000.log".to_owned());
    assert!(
        manager
            .log(&partition(), TOPIC_ID, small_segments())
            .is_err()
    );
    let log = manager.log(&other, TOPIC_ID, small_segments()).unwrap();
    assert_eq!(read_all(&log, 0).len(), 30);
    assert!(manager.describe()[0].online);
    *faults.unreadable.lock() = None;
    let log = manager
        .log(&partition(), TOPIC_ID, small_segments())
        .unwrap();
    assert_eq!(read_all(&log, 0).len(), 31);
}
