use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::support::*;
use crate::config::TopicConfig;
use crate::log::{LogError, LogSlice};
use crate::types::{ErrorCode, Offset, TopicPartition};

#[test]
fn what_is_appended_is_read_from_cache_and_file_alike() {
    let directory = tempfile::tempdir().unwrap();
    let manager = open(directory.path());
    let log = manager
        .log(&partition(), TOPIC_ID, small_segments())
        .unwrap();
    assert!(!directory.path().join("topic-0").exists());
    log.reader_is_at_the_end();
    for number in 0..50_u8 {
        let appended = append(&log, batch(1_000, &[&[number; 100], &[number; 50]])).unwrap();
        assert_eq!(appended.base_offset, Offset::from(number) * 2);
        assert_eq!(appended.last_offset, Offset::from(number) * 2 + 1);
    }
    assert!(log.segment_count() > 3);
    assert!(log.read_cached(0, 1, Offset::MAX, true).is_some());
    let cached = read_all(&log, 0);
    assert_eq!(cached.len(), 50);
    manager.close();
    let manager = open_uncached(directory.path());
    let log = manager
        .log(&partition(), TOPIC_ID, small_segments())
        .unwrap();
    assert_eq!((log.log_start_offset(), log.log_end_offset()), (0, 100));
    assert_eq!(log.flushed_offset(), 100);
    assert_eq!(read_all(&log, 0), cached);
    for offset in 0..100 {
        let read = log.read(offset, 1, Offset::MAX, true).unwrap();
        let found = batches_of(&bytes_of(&read));
        assert_eq!(found, cached[offset as usize / 2..=offset as usize / 2]);
        assert_eq!(read.more, offset < 98);
    }
    append(&log, batch(2_000, &[b"after"])).unwrap();
    assert_eq!(read_all(&log, 0).len(), 51);
}

#[test]
fn batches_are_kept_in_memory_for_readers_and_never_with_a_gap() {
    let directory = tempfile::tempdir().unwrap();
    let manager = open(directory.path());
    let log = manager.log(&partition(), TOPIC_ID, Arc::default()).unwrap();
    let append_at = |now_ms| log.append(batch(1_000, &[b"one"]), 0, now_ms).unwrap();
    let in_memory = || -> Vec<Offset> {
        let end = log.log_end_offset();
        let found = |offset: &Offset| log.read_cached(*offset, 1, end, true).is_some();
        (0..end).filter(found).collect()
    };
    append_at(now());
    assert!(in_memory().is_empty(), "nobody reads");
    // A reader that comes to the end, by the file.
    assert!(!log.read(0, 1_000, Offset::MAX, true).unwrap().more);
    append_at(now());
    append_at(now());
    assert_eq!(in_memory(), [1, 2]);
    // That was a reader, too. It goes, and another comes.
    append_at(now() + 60_001);
    assert!(in_memory().is_empty());
    log.reader_is_at_the_end();
    append_at(now());
    assert_eq!(in_memory(), [4]);
    assert_eq!(read_all(&log, 0).len(), 5);
}

#[test]
fn what_is_large_is_sent_from_the_file_though_its_place_is_in_memory() {
    let directory = tempfile::tempdir().unwrap();
    let manager = open(directory.path());
    let segments = TopicConfig {
        segment_bytes: 150_000,
        ..TopicConfig::default()
    };
    let log = manager
        .log(&partition(), TOPIC_ID, Arc::new(segments))
        .unwrap();
    log.reader_is_at_the_end();
    // A large one behind two small ones, and the same in the next segment.
    for bytes in [1_000, 1_000, 90_000, 100_000, 1_000, 20_000, 20_000] {
        let value: Vec<u8> = (0..bytes).map(|at| (at / 3) as u8).collect();
        append(&log, batch(1_000, &[&value])).unwrap();
    }
    assert_eq!(log.segment_count(), 2);
    let cached = |offset, bytes_max| {
        let read = log.read_cached(offset, bytes_max, Offset::MAX, true);
        let read = read.expect("nothing was looked up on the disk");
        let offsets = batches_of(&bytes_of(&read)).into_iter();
        let offsets: Vec<Offset> = offsets.map(|(header, _)| header.base_offset).collect();
        (matches!(read.slice, LogSlice::File(_)), offsets)
    };
    assert_eq!(cached(0, 3_000), (false, vec![0, 1]));
    let closed = log.read_cached(0, 1 << 20, Offset::MAX, true);
    assert!(closed.is_none(), "a closed segment is looked at again");
    assert_eq!(cached(3, 1), (true, vec![3]));
    assert_eq!(cached(3, 110_000), (true, vec![3, 4]));
    assert_eq!(cached(4, 23_000), (false, vec![4, 5]));
    assert_eq!(
        cached(4, 1 << 20),
        (true, vec![4, 5, 6]),
        "much is large, too"
    );
    // A file that could not be sent is read, what was copied is not.
    let unreadable = {
        let read = log.read(2, 1, Offset::MAX, true).unwrap();
        let LogSlice::File(range) = read.slice else {
            panic!("a large batch comes from the file")
        };
        range.unreadable
    };
    unreadable.store(true, Ordering::Release);
    assert!(log.read_cached(2, 1, Offset::MAX, true).is_none());
    assert_eq!(cached(4, 1 << 20), (false, vec![4, 5, 6]));
    assert_eq!(read_all(&log, 0).len(), 7);
}

#[test]
fn the_age_of_a_record_is_that_of_its_batch() {
    let directory = tempfile::tempdir().unwrap();
    let manager = open(directory.path());
    assert!(manager.has_nothing(&partition()));
    let log = manager
        .log(&partition(), TOPIC_ID, small_segments())
        .unwrap();
    for number in 1..=50_i64 {
        append(&log, batch(number * 1_000, &[&[7; 100], &[7; 50]])).unwrap();
    }
    assert!(log.segment_count() > 3 && !manager.has_nothing(&partition()));
    let times = |log: &crate::log::Log| -> Vec<_> {
        let offsets = [0, 1, 2, 51, 98, 99, 100, 500];
        offsets
            .map(|offset| log.about_time_of(offset).unwrap())
            .to_vec()
    };
    // A record is a millisecond younger than the one before it in its batch, at most.
    let expected = times(&log);
    for (found, number) in expected.iter().zip([1, 1, 2, 26, 50, 50]) {
        let found = found.unwrap();
        assert!(
            (number * 1_000..=number * 1_000 + 10).contains(&found),
            "{found}"
        );
    }
    assert_eq!(expected[6..], [None, None]);
    manager.close();
    let manager = open_uncached(directory.path());
    assert!(!manager.has_nothing(&partition()));
    let log = manager
        .log(&partition(), TOPIC_ID, small_segments())
        .unwrap();
    assert_eq!(times(&log), expected);
    log.advance_log_start_offset(51).unwrap();
    assert_eq!(log.about_time_of(0).unwrap(), expected[3]);
}

#[test]
fn a_read_keeps_its_limits() {
    let directory = tempfile::tempdir().unwrap();
    let manager = open_uncached(directory.path());
    let config = Arc::new(TopicConfig::default());
    let log = manager.log(&partition(), TOPIC_ID, config).unwrap();
    let mut size = 0;
    for _ in 0..10 {
        let batch = batch(1_000, &[&[7; 400]]);
        size = 61 + batch.payload.len();
        append(&log, batch).unwrap();
    }
    let read = |offset, bytes_max, bound, at_least_one| {
        let read = log.read(offset, bytes_max, bound, at_least_one).unwrap();
        (batches_of(&bytes_of(&read)).len(), read.more)
    };
    assert_eq!(read(0, usize::MAX, 10, true), (10, false));
    assert_eq!(read(0, usize::MAX, 7, true), (7, false));
    assert_eq!(read(3, usize::MAX, 7, false), (4, false));
    assert_eq!(read(3, size * 2, 10, false), (2, true));
    assert_eq!(read(3, size * 2 - 1, 10, false), (1, true));
    assert_eq!(read(3, size - 1, 10, false), (0, true));
    assert_eq!(read(3, size - 1, 10, true), (1, true));
    assert_eq!(read(9, 0, 10, true), (1, false));
    assert_eq!(read(10, 100, 10, true), (0, false));
    assert_eq!(read(7, 100, 5, true), (0, false));
    let error = log.read(11, 100, 99, true).unwrap_err();
    assert!(matches!(
        error,
        LogError::OffsetOutOfRange { offset: 11, .. }
    ));
}

#[test]
fn a_batch_larger_than_a_segment_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let manager = open(directory.path());
    let log = manager
        .log(&partition(), TOPIC_ID, small_segments())
        .unwrap();
    match append(&log, batch(1_000, &[&[7; 2_000]])).unwrap_err() {
        crate::log::AppendError::Refused(error) => {
            assert_eq!(error.code, ErrorCode::RecordListTooLarge);
        }
        other => panic!("{other}"),
    }
    assert_eq!(log.log_end_offset(), 0);
}

/// Rolled segments, a clean stop, a crash. With `KEEP_LOG_IN` the files stay there, for Kafka's own tools
/// to read: `.ci/run` has `compat-tests/dump-log` look at them.
#[test]
fn a_directory_for_kafkas_tools() {
    let temporary = tempfile::tempdir().unwrap();
    let kept = std::env::var_os("KEEP_LOG_IN").map(std::path::PathBuf::from);
    let path = kept.unwrap_or_else(|| temporary.path().to_owned());
    for run in 0..2 {
        let manager = open(&path);
        let log = manager
            .log(&partition(), TOPIC_ID, small_segments())
            .unwrap();
        for number in 0..40_i32 {
            // Any bytes, also such as are no text.
            let value: Vec<u8> = (0..10 + number * 8)
                .map(|at| ((at * at * 7 + at * 191 + number * 37) >> 2) as u8)
                .collect();
            let time = 1_700_000_000_000 + i64::from(number * 1_000);
            let codec = match number % 5 {
                1 => crate::types::Compression::Gzip,
                2 => crate::types::Compression::Snappy,
                3 => crate::types::Compression::Lz4,
                4 => crate::types::Compression::Zstd,
                _ => crate::types::Compression::None,
            };
            log.append(compressed(time, &[&value, &value], codec), run, now())
                .unwrap();
            let produced = idempotent(9, 0, number + run * 40, time, &[&value]);
            log.append(produced, run, now()).unwrap();
        }
        if run == 0 {
            manager.close();
        } else {
            let crashed = manager.log(
                &TopicPartition::new("crashed", 0),
                TOPIC_ID,
                small_segments(),
            );
            let crashed = crashed.unwrap();
            for number in 0..60 {
                append(&crashed, batch(1_700_000_000_000 + number, &[&[1; 150]])).unwrap();
            }
            drop(crashed);
        }
    }
    let manager = open(&path);
    for topic in ["topic", "crashed"] {
        let partition = TopicPartition::new(topic, 0);
        let log = manager.log(&partition, TOPIC_ID, small_segments()).unwrap();
        log.append(batch(1_700_000_100_000, &[b"after recovery"]), 1, now())
            .unwrap();
    }
    manager.close();
}

/// 100,000 partitions at rest: what each costs beside its name, its files' path and map entries.
#[test]
fn a_log_at_rest_is_small() {
    let log = std::mem::size_of::<crate::log::Log>();
    let segment = std::mem::size_of::<crate::log::segment::Segment>();
    assert!(log + segment <= 800, "{log} + {segment} bytes");
}
