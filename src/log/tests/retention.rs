use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;

use super::support::*;
use crate::config::{CleanupPolicy, TopicConfig};
use crate::log::{FlushListener, Log, LogError, LogManager};
use crate::time::ManualClock;
use crate::types::{NO_TIMESTAMP, Offset, TimestampMs, TopicId, TopicPartition};

/// The time of these tests.
const NOW: TimestampMs = 1_700_000_000_000;

/// A broker's disk, and the time on its clock.
struct Bench {
    directory: tempfile::TempDir,
    clock: Arc<ManualClock>,
}

impl Bench {
    fn new() -> Self {
        Self {
            directory: tempfile::tempdir().unwrap(),
            clock: Arc::new(ManualClock::new(NOW)),
        }
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn open(&self) -> Arc<LogManager> {
        let config = crate::log::LogManagerConfig {
            tail_cache_bytes: 0,
            ..manager_config(self.path())
        };
        LogManager::open(config, Arc::clone(&self.clock) as _).unwrap()
    }

    fn log(&self, manager: &LogManager, config: &TopicConfig) -> Arc<Log> {
        let config = Arc::new(config.clone());
        manager.log(&partition(), TOPIC_ID, config).unwrap()
    }

    /// Names of the partition's files with this ending.
    fn files(&self, ending: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path().join("topic-0")).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.filter(|name| name.ends_with(ending)).collect();
        names.sort();
        names
    }

    fn wait_until_gone(&self, ending: &str) {
        for _ in 0..500 {
            if self.files(ending).is_empty() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("{:?} are still there", self.files(ending));
    }
}

fn config() -> TopicConfig {
    TopicConfig {
        retention_ms: 1_000,
        segment_ms: i64::MAX,
        ..(*small_segments()).clone()
    }
}

/// One record of 400 bytes: four to a segment.
fn record(timestamp: TimestampMs) -> crate::record::ValidBatch {
    batch(timestamp, &[&[7; 400]])
}

fn fill(log: &Log, timestamps: impl IntoIterator<Item = TimestampMs>) {
    for timestamp in timestamps {
        append(log, record(timestamp)).unwrap();
    }
    log.flush().unwrap();
}

fn names(offsets: &[Offset], extension: &str) -> Vec<String> {
    let name = |offset: &Offset| format!("{offset:020}.{extension}");
    offsets.iter().map(name).collect()
}

#[test]
fn old_segments_go_and_a_crash_does_not_bring_them_back() {
    let bench = Bench::new();
    let manager = bench.open();
    let log = bench.log(&manager, &config());
    // Segments 0, 4 and 8 are old, but 4 has one young record: it stays, and with it 8.
    fill(
        &log,
        (0..12).map(|n| NOW - 5_000 + i64::from(n == 5) * 4_500),
    );
    fill(&log, [NOW; 2]);
    assert_eq!(bench.files(".log"), names(&[0, 4, 8, 12], "log"));
    let reading = log.read(1, 10, Offset::MAX, true).unwrap();
    manager.clean_up();
    assert_eq!((log.log_start_offset(), log.log_end_offset()), (4, 14));
    let gone = log.read(3, 10, Offset::MAX, true).unwrap_err();
    assert!(matches!(
        gone,
        LogError::OffsetOutOfRange {
            log_start_offset: 4,
            ..
        }
    ));
    assert_eq!(read_all(&log, 4).len(), 10);
    // Whoever reads one goes on; its files have other names by now, and no index is left behind.
    assert_eq!(batches_of(&bytes_of(&reading))[0].0.base_offset, 1);
    assert_eq!(bench.files(".log"), names(&[4, 8, 12], "log"));
    assert_eq!(bench.files(".snapshot"), names(&[4, 8, 12], "snapshot"));
    assert_eq!(
        bench.files(".deleted"),
        [
            "00000000000000000000.index.deleted",
            "00000000000000000000.log.deleted",
            "00000000000000000000.timeindex.deleted"
        ]
    );
    // The start is on disk before anything else.
    let checkpoint = bench.path().join("log-start-offset-checkpoint");
    assert_eq!(fs::read_to_string(checkpoint).unwrap(), "0\n1\ntopic 0 4\n");
    assert_eq!(
        (log.epoch_for_offset(3), log.epoch_for_offset(4)),
        (None, Some(0))
    );
    // Nothing more goes until it is old.
    manager.clean_up();
    assert_eq!(log.log_start_offset(), 4);
    drop((log, manager));
    let manager = bench.open();
    let log = bench.log(&manager, &config());
    assert_eq!((log.log_start_offset(), log.log_end_offset()), (4, 14));
    assert_eq!(bench.files(".deleted"), [""; 0]);
    bench.clock.advance(Duration::from_millis(501));
    manager.clean_up();
    assert_eq!(log.log_start_offset(), 12);
    assert_eq!(log.epoch_for_offset(12), Some(0));
}

#[test]
fn a_log_that_is_all_old_goes_on_empty_at_its_end() {
    let bench = Bench::new();
    let manager = bench.open();
    let log = bench.log(&manager, &config());
    let produce =
        |log: &Log, sequence| log.append(idempotent(7, 0, sequence, NOW - 5_000, &[b"x"]), 3, NOW);
    fill(&log, (0..6).map(|_| NOW - 5_000));
    produce(&log, 0).unwrap();
    produce(&log, 1).unwrap();
    log.flush().unwrap();
    manager.clean_up();
    assert_eq!((log.log_start_offset(), log.log_end_offset()), (8, 8));
    assert_eq!((log.segment_count(), log.size_bytes()), (1, 0));
    assert_eq!(bench.files(".log"), names(&[8], "log"));
    // An empty segment never goes.
    manager.clean_up();
    assert_eq!(bench.files(".log"), names(&[8], "log"));
    drop((log, manager));
    for clean in [false, true] {
        let manager = bench.open();
        let log = bench.log(&manager, &config());
        assert_eq!(
            (log.log_start_offset(), log.log_end_offset()),
            (8, 8),
            "{clean}"
        );
        // The producer is known although none of its records is left.
        assert!(produce(&log, 1).unwrap().duplicate);
        assert!(produce(&log, 3).is_err());
        if clean {
            manager.close();
        }
    }
    let manager = bench.open();
    let log = bench.log(&manager, &config());
    let appended = produce(&log, 2).unwrap();
    assert_eq!((appended.base_offset, appended.log_start_offset), (8, 8));
    assert_eq!(read_all(&log, 8).len(), 1);
}

#[test]
fn size_takes_no_more_than_it_must() {
    let bench = Bench::new();
    let manager = bench.open();
    let mut config = TopicConfig {
        retention_ms: -1,
        ..config()
    };
    let log = bench.log(&manager, &config);
    fill(&log, (0..14).map(|_| 0));
    let bytes = log.size_bytes();
    let segment = bytes * 4 / 14;
    for (retained, start) in [
        (bytes + 1, 0),
        (bytes - segment + 1, 0),
        (bytes - segment, 4),
        (1, 12),
        (0, 14),
    ] {
        config.retention_bytes = i64::try_from(retained).unwrap();
        log.set_config(Arc::new(config.clone()));
        manager.clean_up();
        assert_eq!(log.log_start_offset(), start, "{retained}");
    }
    assert_eq!(log.size_bytes(), 0);
}

#[test]
fn a_compacted_topic_keeps_everything_and_one_without_limits_too() {
    let bench = Bench::new();
    let manager = bench.open();
    let mut config = TopicConfig {
        retention_bytes: 0,
        cleanup_policy: CleanupPolicy {
            delete: false,
            compact: true,
        },
        ..config()
    };
    let log = bench.log(&manager, &config);
    fill(&log, (0..10).map(|_| 0));
    manager.clean_up();
    assert_eq!(log.segment_count(), 3);
    config.cleanup_policy.delete = true;
    (config.retention_bytes, config.retention_ms) = (-1, -1);
    log.set_config(Arc::new(config.clone()));
    manager.clean_up();
    assert_eq!(log.segment_count(), 3);
    config.retention_ms = 0;
    log.set_config(Arc::new(config));
    manager.clean_up();
    assert_eq!((log.log_start_offset(), log.segment_count()), (10, 1));
}

/// Answers for partitions as the replicas do.
#[derive(Debug, Default)]
struct Replica {
    high_watermark: Mutex<Option<Offset>>,
    config: Mutex<Option<Arc<TopicConfig>>>,
    moved: Mutex<Vec<Offset>>,
    opened: Mutex<BTreeSet<TopicPartition>>,
}

impl FlushListener for Replica {
    fn flushed(&self, _partition: &TopicPartition, _flushed_offset: Offset) {}
    fn directory_failed(&self, _partitions: &[TopicPartition]) {}
    fn high_watermark(&self, _partition: &TopicPartition) -> Option<Offset> {
        *self.high_watermark.lock()
    }
    fn log_start_moved(&self, _partition: &TopicPartition, log_start: Offset) {
        self.moved.lock().push(log_start);
    }
    fn topic_config(&self, _partition: &TopicPartition) -> Option<Arc<TopicConfig>> {
        self.config.lock().clone()
    }
    fn open(&self, partition: &TopicPartition) -> bool {
        self.opened.lock().insert(partition.clone())
    }
}

#[test]
fn what_the_high_watermark_has_not_passed_stays() {
    let bench = Bench::new();
    let manager = bench.open();
    let replica = Arc::new(Replica::default());
    manager.set_flush_listener(Arc::<Replica>::clone(&replica));
    let log = bench.log(&manager, &config());
    fill(&log, (0..10).map(|_| 0));
    for (high_watermark, start) in [
        (None, 0),
        (Some(0), 0),
        (Some(7), 4),
        (Some(9), 8),
        (Some(10), 10),
    ] {
        *replica.high_watermark.lock() = high_watermark;
        manager.clean_up();
        assert_eq!(log.log_start_offset(), start, "{high_watermark:?}");
    }
    assert_eq!(*replica.moved.lock(), [4, 8, 10]);
}

#[test]
fn records_without_timestamps_are_as_old_as_their_file() {
    let bench = Bench::new();
    let manager = bench.open();
    let log = bench.log(&manager, &config());
    fill(&log, (0..6).map(|_| NO_TIMESTAMP));
    let age = |base: Offset, at: TimestampMs| {
        let path = bench.path().join("topic-0").join(format!("{base:020}.log"));
        let at = SystemTime::UNIX_EPOCH + Duration::from_millis(at.unsigned_abs());
        fs::File::options()
            .write(true)
            .open(path)
            .unwrap()
            .set_modified(at)
            .unwrap();
    };
    age(0, NOW - 1_000);
    age(4, NOW - 9_000);
    manager.clean_up();
    assert_eq!(log.log_start_offset(), 0);
    bench.clock.advance(Duration::from_millis(1));
    manager.clean_up();
    assert_eq!(log.log_start_offset(), 6);
}

#[test]
fn an_index_that_lies_about_time_costs_no_records() {
    for entry in [0_i64, i64::MAX, NOW] {
        let bench = Bench::new();
        let manager = bench.open();
        let log = bench.log(&manager, &config());
        // The first goes; the second must not, whatever its index says.
        fill(
            &log,
            (0..12).map(|n| NOW - 5_000 + i64::from(n >= 4) * 5_000),
        );
        manager.close();
        drop((log, manager));
        // Without a manifest the files are believed.
        fs::remove_file(bench.path().join(".ottla_manifest")).unwrap();
        let lie = [&entry.to_be_bytes()[..], &3_u32.to_be_bytes()].concat();
        let index = "topic-0/00000000000000000004.timeindex";
        fs::write(bench.path().join(index), lie).unwrap();
        let manager = bench.open();
        let log = bench.log(&manager, &config());
        manager.clean_up();
        assert_eq!(log.log_start_offset(), 4, "{entry}");
        bench.clock.advance(Duration::from_millis(2_000));
        manager.clean_up();
        assert_eq!(log.log_start_offset(), 12, "{entry}");
    }
}

#[test]
fn removed_files_go_after_their_time_and_at_a_clean_stop() {
    let bench = Bench::new();
    let manager = bench.open();
    let mut config = TopicConfig {
        file_delete_delay_ms: 3_600_000,
        ..config()
    };
    let log = bench.log(&manager, &config);
    fill(&log, (0..10).map(|n| i64::from(n >= 4) * NOW));
    manager.clean_up();
    assert_eq!(log.log_start_offset(), 4);
    assert_eq!(bench.files(".deleted").len(), 3);
    config.file_delete_delay_ms = 0;
    log.set_config(Arc::new(config.clone()));
    // DeleteRecords goes the same way.
    log.advance_log_start_offset(9).unwrap();
    bench.clock.advance(Duration::from_millis(1));
    for _ in 0..500 {
        if bench.files(".deleted").len() == 3 {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(bench.files(".deleted").len(), 3);
    manager.close();
    assert_eq!(bench.files(".deleted"), [""; 0]);
    assert_eq!(bench.files(".log"), names(&[8], "log"));
    drop((log, manager));
    // The delay is that of the time when they went: an hour has passed by now.
    let manager = bench.open();
    config.file_delete_delay_ms = 1;
    let log = bench.log(&manager, &config);
    fill(&log, (0..4).map(|_| NOW));
    log.advance_log_start_offset(13).unwrap();
    bench.clock.advance(Duration::from_millis(10));
    log.advance_log_start_offset(14).unwrap(); // wakes who waits by the clock that stood still
    bench.wait_until_gone(".deleted");
}

#[test]
fn what_a_crash_left_of_a_removal_is_cleared_away() {
    let bench = Bench::new();
    let manager = bench.open();
    let log = bench.log(&manager, &config());
    fill(&log, (0..10).map(|_| NOW));
    log.advance_log_start_offset(9).unwrap();
    drop((log, manager));
    let topic = bench.path().join("topic-0");
    let put = |name: &str, bytes: &[u8]| fs::write(topic.join(name), bytes).unwrap();
    // Renamed halfway: records whose index is gone, an index whose records are.
    put("00000000000000000000.log", &[9; 300]);
    put("00000000000000000004.index", &[9; 80]);
    put("00000000000000000004.timeindex.deleted", &[9; 80]);
    let manager = bench.open();
    let log = bench.log(&manager, &config());
    assert_eq!((log.log_start_offset(), log.log_end_offset()), (9, 10));
    assert_eq!(read_all(&log, 9).len(), 1);
    assert_eq!(bench.files("index"), [""; 0]);
    assert_eq!(bench.files(".deleted"), [""; 0]);
    manager.clean_up();
    assert_eq!(log.log_start_offset(), 9);
    assert_eq!(bench.files(".log"), names(&[8], "log"));
}

#[test]
fn logs_that_nobody_opened_are_judged_by_what_the_stop_knew() {
    let bench = Bench::new();
    let manager = bench.open();
    let put = |number, timestamp| {
        let partition = TopicPartition::new("topic", number);
        let log = manager
            .log(&partition, TOPIC_ID, Arc::new(config()))
            .unwrap();
        fill(&log, (0..6).map(|_| timestamp));
    };
    put(0, NOW - 900);
    put(1, NOW);
    put(2, NO_TIMESTAMP);
    manager.close();
    let manager = bench.open();
    let replica = Arc::new(Replica::default());
    *replica.config.lock() = Some(Arc::new(config()));
    manager.set_flush_listener(Arc::<Replica>::clone(&replica));
    assert!(manager.clean_up());
    let opened = |numbers: &[i32]| -> BTreeSet<_> {
        numbers
            .iter()
            .map(|&number| TopicPartition::new("topic", number))
            .collect()
    };
    // Of one nobody noted how old it is.
    assert_eq!(*replica.opened.lock(), opened(&[2]));
    bench.clock.advance(Duration::from_millis(101));
    manager.clean_up();
    assert_eq!(*replica.opened.lock(), opened(&[0, 2]));
    *replica.config.lock() = None;
    replica.opened.lock().clear();
    assert!(!manager.clean_up());
    assert!(replica.opened.lock().is_empty());
}

#[test]
fn a_topic_made_anew_survives_the_removal_of_the_old_one() {
    let bench = Bench::new();
    let manager = bench.open();
    let old = bench.log(&manager, &config());
    fill(&old, [NOW; 5]);
    // The first request for the new one comes before the old one is deleted.
    let id = TopicId(*b"fedcba9876543210");
    let log = manager.log(&partition(), id, Arc::new(config())).unwrap();
    assert_eq!(log.log_end_offset(), 0);
    fill(&log, [NOW; 2]);
    manager.delete(&partition(), TOPIC_ID, 60_000).unwrap();
    assert!(append(&old, record(NOW)).is_err());
    append(&log, record(NOW)).unwrap();
    assert!(old.advance_log_start_offset(5).is_err());
    drop((old, log, manager));
    let manager = bench.open();
    let log = manager.log(&partition(), id, Arc::new(config())).unwrap();
    assert_eq!((log.log_start_offset(), log.log_end_offset()), (0, 3));
    manager.delete(&partition(), id, 60_000).unwrap();
    assert!(!bench.path().join("topic-0").exists());
}

#[test]
fn a_tiny_index_rolls_and_recovers() {
    for segment_index_bytes in [0, 4, 8, 11, 12, 24, 36, 40] {
        let bench = Bench::new();
        let config = TopicConfig {
            segment_index_bytes,
            index_interval_bytes: 0,
            segment_bytes: 1 << 20,
            ..config()
        };
        let manager = bench.open();
        let log = bench.log(&manager, &config);
        fill(&log, (0..40).map(|n| NOW + n));
        let segments = bench.files(".log");
        // An entry for each batch but the first, as many as fit, and one of time is kept free.
        let entries = (segment_index_bytes / 8).min((segment_index_bytes / 12 - 1).max(0));
        let per_segment = usize::try_from(entries).unwrap() + 1;
        assert_eq!(
            segments.len(),
            40_usize.div_ceil(per_segment),
            "{segment_index_bytes}"
        );
        drop((log, manager));
        for name in bench.files("index") {
            fs::remove_file(bench.path().join("topic-0").join(name)).unwrap();
        }
        let _ = fs::remove_file(bench.path().join("recovery-point-offset-checkpoint"));
        let manager = bench.open();
        let log = bench.log(&manager, &config);
        assert_eq!(log.log_end_offset(), 40);
        assert_eq!(read_all(&log, 0).len(), 40);
        fill(&log, [NOW]);
        bench.clock.advance(Duration::from_millis(2_000));
        manager.clean_up();
        assert_eq!((log.log_start_offset(), log.log_end_offset()), (41, 41));
    }
}

#[test]
fn segments_are_closed_by_age() {
    let bench = Bench::new();
    let manager = bench.open();
    let mut config = TopicConfig {
        segment_ms: 100,
        retention_ms: -1,
        ..config()
    };
    let log = bench.log(&manager, &config);
    let bases = || -> Vec<Offset> {
        let digits = |name: String| name[..20].parse().unwrap();
        bench.files(".log").into_iter().map(digits).collect()
    };
    let append = |timestamp, now| log.append(record(timestamp), 0, now).unwrap();
    // By the timestamps of the records, from the first of the segment on, whatever the clock says.
    append(5_000, NOW);
    append(5_100, NOW + 999);
    assert_eq!(bases(), [0]);
    append(5_101, NOW);
    append(5_000, NOW + 999);
    assert_eq!(bases(), [0, 2]);
    // By the clock where the first has none.
    append(5_202, NOW + 1_000);
    append(NO_TIMESTAMP, NOW + 1_000);
    assert_eq!(bases(), [0, 2, 4]);
    append(5_303, NOW + 2_000);
    append(5_404, NOW + 2_000);
    assert_eq!(bases(), [0, 2, 4, 6, 7]);
    // LogAppendTime from now on: the time never goes back in the index.
    append(NOW, NOW);
    append(NOW + 100, NOW + 100);
    assert_eq!(bases(), [0, 2, 4, 6, 7, 8]);
    append(NO_TIMESTAMP, NOW + 100);
    assert_eq!(bases(), [0, 2, 4, 6, 7, 8]);
    config.segment_jitter_ms = 100;
    log.set_config(Arc::new(config));
    append(NOW + 101, NOW);
    assert_eq!(bases(), [0, 2, 4, 6, 7, 8, 11]);
    append(NO_TIMESTAMP, NOW);
    // The segments' time indexes end with what retention goes by.
    let path = |base: Offset| {
        bench
            .path()
            .join("topic-0")
            .join(format!("{base:020}.timeindex"))
    };
    let entries = |base| {
        let bytes = fs::read(path(base)).unwrap();
        let entry = |entry: &[u8]| i64::from_be_bytes(entry[..8].try_into().unwrap());
        bytes.chunks(12).map(entry).collect::<Vec<_>>()
    };
    assert_eq!(entries(0), [5_100]);
    assert_eq!(entries(2), [5_101]);
    assert_eq!(entries(8), [NOW + 100]);
}

#[test]
fn a_segment_ends_where_its_offsets_no_longer_fit() {
    let bench = Bench::new();
    let manager = bench.open();
    let log = bench.log(&manager, &config());
    let wide = |last_offset_delta| {
        let mut wide = record(NOW);
        wide.header.last_offset_delta = last_offset_delta;
        wide.header.crc = wide.header.compute_crc(&wide.payload);
        wide
    };
    append(&log, wide(i32::MAX - 1)).unwrap();
    append(&log, wide(0)).unwrap();
    assert_eq!(bench.files(".log"), names(&[0], "log"));
    append(&log, record(NOW)).unwrap();
    append(&log, wide(i32::MAX)).unwrap();
    let span = i64::from(i32::MAX);
    assert_eq!(bench.files(".log"), names(&[0, span + 1, span + 2], "log"));
    let end = 2 * span + 3;
    assert_eq!(log.log_end_offset(), end);
    append(&log, record(NOW)).unwrap();
    log.flush().unwrap();
    drop((log, manager));
    let manager = bench.open();
    let log = bench.log(&manager, &config());
    assert_eq!(log.log_end_offset(), end + 1);
    bench.clock.advance(Duration::from_millis(2_000));
    manager.clean_up();
    assert_eq!(log.log_start_offset(), end + 1);
}

#[test]
fn whoever_looks_at_a_log_whose_segments_go_sees_a_log() {
    let bench = Bench::new();
    let manager = bench.open();
    let config = TopicConfig {
        retention_bytes: 3_000,
        file_delete_delay_ms: 0,
        ..config()
    };
    let log = bench.log(&manager, &config);
    let done = std::sync::atomic::AtomicBool::new(false);
    let stopped = || done.load(std::sync::atomic::Ordering::SeqCst);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stopped() {
                manager.clean_up();
            }
        });
        scope.spawn(|| {
            while !stopped() {
                let start = log.log_start_offset();
                match log.read(start, 10_000, Offset::MAX, true) {
                    Ok(read) => drop(batches_of(&bytes_of(&read))),
                    Err(LogError::OffsetOutOfRange { .. }) => {
                        assert!(log.log_start_offset() > start);
                    }
                    Err(error) => panic!("{error}"),
                }
            }
        });
        scope.spawn(|| {
            while !stopped() {
                let found = log.offset_for_timestamp(NOW, Offset::MAX).unwrap();
                assert!(found.is_none_or(|found| found.timestamp >= NOW));
                log.offset_of_max_timestamp().unwrap();
            }
        });
        for number in 0..2_000 {
            append(&log, record(NOW + number)).unwrap();
        }
        done.store(true, std::sync::atomic::Ordering::SeqCst);
    });
    log.flush().unwrap();
    manager.clean_up();
    let start = log.log_start_offset();
    assert!(start > 1_900, "{start}");
    assert_eq!(read_all(&log, start).len() as i64, 2_000 - start);
}
