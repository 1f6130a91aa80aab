use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::support::*;
use crate::config::TopicConfig;
use crate::log::flush::FlushRounds;
use crate::log::{FlushListener, Log, LogManager, LogManagerConfig};
use crate::time::{Clock, ManualClock, SystemClock};
use crate::types::{Offset, TopicPartition};

/// Hears of flushes and lets a test wait for them.
#[derive(Debug, Default)]
struct Heard {
    flushed: Mutex<Vec<(TopicPartition, Offset)>>,
    failed: Mutex<Vec<TopicPartition>>,
    more: Condvar,
}

impl FlushListener for Heard {
    fn flushed(&self, partition: &TopicPartition, flushed_offset: Offset) {
        self.flushed
            .lock()
            .push((partition.clone(), flushed_offset));
        self.more.notify_all();
    }

    fn directory_failed(&self, partitions: &[TopicPartition]) {
        self.failed.lock().extend_from_slice(partitions);
        self.more.notify_all();
    }
}

impl Heard {
    fn wait_for(&self, partition: &TopicPartition, offset: Offset) {
        let mut flushed = self.flushed.lock();
        while !flushed.iter().any(|(p, o)| p == partition && *o >= offset) {
            let late = self.more.wait_for(&mut flushed, Duration::from_secs(30));
            assert!(!late.timed_out(), "{partition} is not flushed to {offset}");
        }
    }
}

fn logs(
    count: i32,
    directory: &std::path::Path,
    config: TopicConfig,
) -> (Arc<Heard>, Vec<Arc<Log>>) {
    logs_at(count, directory, config, Arc::new(SystemClock))
}

fn logs_at(
    count: i32,
    directory: &std::path::Path,
    config: TopicConfig,
    clock: Arc<dyn Clock>,
) -> (Arc<Heard>, Vec<Arc<Log>>) {
    let manager = LogManager::open(manager_config(directory), clock).unwrap();
    let heard = Arc::new(Heard::default());
    manager.set_flush_listener(Arc::<Heard>::clone(&heard));
    let config = Arc::new(config);
    let logs = (0..count)
        .map(|number| {
            let partition = TopicPartition::new("topic", number);
            manager
                .log(&partition, TOPIC_ID, Arc::clone(&config))
                .unwrap()
        })
        .collect();
    // The threads end with the process: the logs outlive this function.
    std::mem::forget(manager);
    (heard, logs)
}

#[test]
fn appends_are_flushed_and_heard_of_for_few_and_many_logs() {
    let directory = tempfile::tempdir().unwrap();
    let (heard, logs) = logs(40, directory.path(), TopicConfig::default());
    for round in 1..4 {
        for log in &logs {
            append(log, batch(1_000, &[b"value"])).unwrap();
            log.flush_soon();
        }
        for log in &logs {
            heard.wait_for(log.topic_partition(), round);
            assert_eq!(log.flushed_offset(), round);
        }
    }
    append(&logs[0], batch(1_000, &[b"value"])).unwrap();
    logs[0].flush_soon();
    heard.wait_for(logs[0].topic_partition(), 4);
}

#[test]
fn what_nobody_waits_for_is_flushed_when_it_is_much_or_in_small_pieces_beside_those_who_wait() {
    let directory = tempfile::tempdir().unwrap();
    // It stands: nothing is flushed for its age.
    let clock = Arc::new(ManualClock::new(1_000_000));
    let (heard, logs) = logs_at(
        2,
        directory.path(),
        TopicConfig::default(),
        Arc::<ManualClock>::clone(&clock),
    );
    let [unasked, asked] = &logs[..] else {
        panic!("two logs");
    };
    let value = vec![7; 512 << 10];
    let append_half_mebibytes = |count| {
        for _ in 0..count {
            append(unasked, batch(1_000, &[&value])).unwrap();
        }
    };
    let expect_no_flush_past = |offset| {
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(unasked.flushed_offset(), offset);
    };

    append_half_mebibytes(7);
    expect_no_flush_past(0);
    append_half_mebibytes(1);
    heard.wait_for(unasked.topic_partition(), 8);

    append(asked, batch(1_000, &[b"value"])).unwrap();
    asked.flush_soon();
    heard.wait_for(asked.topic_partition(), 1);
    append_half_mebibytes(1);
    expect_no_flush_past(8);
    append_half_mebibytes(1);
    heard.wait_for(unasked.topic_partition(), 10);

    clock.advance(Duration::from_secs(1));
    append_half_mebibytes(7);
    expect_no_flush_past(10);
}

#[test]
fn what_nobody_waits_for_is_flushed_after_flush_ms_at_the_latest() {
    let directory = tempfile::tempdir().unwrap();
    let config = TopicConfig {
        flush_ms: 50,
        ..TopicConfig::default()
    };
    let (heard, logs) = logs(1, directory.path(), config);
    append(&logs[0], batch(1_000, &[b"value"])).unwrap();
    heard.wait_for(&partition(), 1);
}

#[test]
fn a_topic_with_a_larger_interval_is_flushed_after_so_many_messages() {
    let directory = tempfile::tempdir().unwrap();
    let config = TopicConfig {
        flush_messages: 5,
        ..TopicConfig::default()
    };
    let (heard, logs) = logs(1, directory.path(), config);
    for _ in 0..4 {
        append(&logs[0], batch(1_000, &[b"value"])).unwrap();
    }
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(logs[0].flushed_offset(), 0);
    append(&logs[0], batch(1_000, &[b"value"])).unwrap();
    heard.wait_for(&partition(), 5);
}

#[test]
fn a_topic_with_a_flush_time_is_flushed_after_it() {
    let directory = tempfile::tempdir().unwrap();
    let config = TopicConfig {
        flush_messages: i64::MAX,
        flush_ms: 50,
        ..TopicConfig::default()
    };
    let (heard, logs) = logs(2, directory.path(), config);
    append(&logs[0], batch(1_000, &[b"value"])).unwrap();
    append(&logs[1], batch(1_000, &[b"value"])).unwrap();
    heard.wait_for(logs[0].topic_partition(), 1);
    heard.wait_for(logs[1].topic_partition(), 1);
    append(&logs[0], batch(1_000, &[b"value"])).unwrap();
    heard.wait_for(logs[0].topic_partition(), 2);
}

#[test]
fn a_topic_that_begins_to_wait_for_the_disk_is_flushed_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let config = TopicConfig {
        flush_messages: i64::MAX,
        ..TopicConfig::default()
    };
    let (heard, logs) = logs(1, directory.path(), config);
    append(&logs[0], batch(1_000, &[b"value"])).unwrap();
    assert_eq!(logs[0].flushed_offset(), 0);
    logs[0].set_config(Arc::new(TopicConfig::default()));
    heard.wait_for(&partition(), 1);
}

#[test]
fn a_flush_time_is_kept_at_the_rounds_of_the_scheduler() {
    let clock = ManualClock::new(0);
    let start = clock.now();
    let rounds = |initial_task_delay_ms, flush_scheduler_interval_ms| {
        let config = LogManagerConfig {
            initial_task_delay_ms,
            flush_scheduler_interval_ms,
            ..manager_config(std::path::Path::new("/"))
        };
        let rounds = FlushRounds::new(&config, start);
        move |due_ms| {
            let due = start + Duration::from_millis(due_ms);
            (rounds.at_or_after(due) - start).as_millis()
        }
    };
    let at = rounds(30_000, 1_000);
    assert_eq!([at(5), at(30_000), at(30_001)], [30_000, 30_000, 31_000]);
    assert_eq!(at(86_400_000_000), 86_400_000_000);
    let each_at_its_own = rounds(30_000, i64::MAX);
    assert_eq!(each_at_its_own(5), 5);
}

#[test]
fn high_watermarks_are_noted_from_time_to_time() {
    let directory = tempfile::tempdir().unwrap();
    let config = LogManagerConfig {
        high_watermark_checkpoint_interval_ms: 20,
        ..manager_config(directory.path())
    };
    let manager = LogManager::open(config, Arc::new(SystemClock)).unwrap();
    let log = manager
        .log(&partition(), TOPIC_ID, small_segments())
        .unwrap();
    append(&log, batch(1_000, &[b"a", b"b"])).unwrap();
    log.flush().unwrap();
    let path = directory.path().join("replication-offset-checkpoint");
    let start = SystemClock.now();
    while !std::fs::read_to_string(&path).is_ok_and(|text| text.ends_with("topic 0 2\n")) {
        assert!(start.elapsed() < Duration::from_secs(10));
        std::thread::sleep(Duration::from_millis(5));
    }
    // Nothing moved: nothing is written.
    std::fs::remove_file(&path).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    assert!(!path.exists());
}
