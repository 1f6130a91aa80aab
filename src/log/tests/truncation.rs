//! Logs that are cut, on a real disk.

use std::sync::Arc;

use super::support::{
    TOPIC_ID, append, batch, batches_of, bytes_of, idempotent, now, open, open_uncached, partition,
    read_all, small_segments,
};
use crate::config::TopicConfig;
use crate::log::{Log, LogError, LogSlice};
use crate::types::{LeaderEpoch, Offset};

/// Batches of two records in some epochs, with the offsets at which they begin.
fn fill(log: &Log, epochs: &[LeaderEpoch]) {
    for &epoch in epochs {
        let records = batch(now(), &[&[7; 100], &[8; 100]]);
        log.append(records, epoch, now()).unwrap();
    }
}

fn offsets(log: &Log) -> Vec<Offset> {
    let batches = read_all(log, log.log_start_offset());
    batches
        .iter()
        .map(|(header, _)| header.base_offset)
        .collect()
}

#[test]
fn a_cut_never_splits_a_batch() {
    let directory = tempfile::tempdir().unwrap();
    let manager = open(directory.path());
    let log = manager.log(&partition(), TOPIC_ID, Arc::default()).unwrap();
    fill(&log, &[0, 0, 1, 1, 3]);
    assert_eq!(log.truncate_to(10).unwrap(), 10);
    assert_eq!(log.truncate_to(12).unwrap(), 10);
    assert_eq!(log.truncate_to(7).unwrap(), 6);
    assert_eq!(log.log_end_offset(), 6);
    assert_eq!(log.flushed_offset(), 6);
    assert_eq!(offsets(&log), [0, 2, 4]);
    assert_eq!(log.latest_epoch(), Some(1));
    assert_eq!(log.end_offset_for_epoch(1), Some((1, 6)));
    assert!(matches!(
        log.read(7, 100, Offset::MAX, true),
        Err(LogError::OffsetOutOfRange { .. })
    ));
    // And it goes on, in a segment of its own.
    fill(&log, &[4]);
    assert_eq!(offsets(&log), [0, 2, 4, 6]);
    assert_eq!(log.segment_bases(), [0, 6]);
    assert_eq!(log.latest_epoch(), Some(4));
}

#[test]
fn a_cut_takes_whole_segments_and_survives_a_start() {
    let directory = tempfile::tempdir().unwrap();
    for clean in [true, false] {
        let manager = open_uncached(directory.path());
        let topic = match clean {
            true => partition(),
            false => crate::types::TopicPartition::new("other", 1),
        };
        let log = manager.log(&topic, TOPIC_ID, small_segments()).unwrap();
        fill(&log, &[0; 60]);
        assert!(log.segment_count() > 5);
        manager.move_recovery_points(0);
        assert_eq!(log.truncate_to(31).unwrap(), 30);
        assert_eq!(offsets(&log), (0..30).step_by(2).collect::<Vec<_>>());
        fill(&log, &[2; 3]);
        log.flush().unwrap();
        if clean {
            manager.close();
        }
        drop((log, manager));
        let manager = open(directory.path());
        let log = manager.log(&topic, TOPIC_ID, small_segments()).unwrap();
        assert_eq!(offsets(&log), (0..36).step_by(2).collect::<Vec<_>>());
        assert_eq!(log.end_offset_for_epoch(0), Some((0, 30)));
        assert_eq!(log.damaged_places(), 0);
    }
}

#[test]
fn producers_are_those_of_what_is_left() {
    let directory = tempfile::tempdir().unwrap();
    let manager = open(directory.path());
    let log = manager.log(&partition(), TOPIC_ID, Arc::default()).unwrap();
    for sequence in 0..4 {
        append(&log, idempotent(7, 0, sequence, now(), &[b"a"])).unwrap();
    }
    append(&log, idempotent(8, 0, 0, now(), &[b"b"])).unwrap();
    assert_eq!(log.producers().len(), 2);
    log.truncate_to(2).unwrap();
    let producers = log.producers();
    assert_eq!(producers.len(), 1);
    assert_eq!(producers[0].last_sequence, 1);
    assert!(
        !append(&log, idempotent(7, 0, 2, now(), &[b"c"]))
            .unwrap()
            .duplicate
    );
    log.truncate_fully_and_start_at(20).unwrap();
    assert!(log.producers().is_empty());
}

#[test]
fn a_log_begins_anew_where_its_leader_does() {
    let directory = tempfile::tempdir().unwrap();
    let manager = open(directory.path());
    let log = manager.log(&partition(), TOPIC_ID, Arc::default()).unwrap();
    fill(&log, &[0, 1, 2]);
    for start in [100, 40] {
        log.truncate_fully_and_start_at(start).unwrap();
        assert_eq!(log.log_start_offset(), start);
        assert_eq!(log.flushed_offset(), start);
        assert_eq!(log.log_end_offset(), start);
        assert_eq!(log.latest_epoch(), None);
    }
    fill(&log, &[5]);
    assert_eq!(offsets(&log), [40]);
    // Below its start nothing is left.
    log.truncate_to(10).unwrap();
    assert_eq!((log.log_start_offset(), log.log_end_offset()), (10, 10));
    drop((log, manager));
    let manager = open(directory.path());
    let log = manager.log(&partition(), TOPIC_ID, Arc::default()).unwrap();
    assert_eq!((log.log_start_offset(), log.log_end_offset()), (10, 10));
}

#[test]
fn an_empty_log_without_files_begins_where_it_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let manager = open(directory.path());
    let log = manager.log(&partition(), TOPIC_ID, Arc::default()).unwrap();
    log.truncate_fully_and_start_at(0).unwrap();
    assert!(!directory.path().join("topic-0").exists());
    log.truncate_fully_and_start_at(12).unwrap();
    fill(&log, &[5]);
    assert_eq!(offsets(&log), [12]);
}

#[test]
fn a_file_that_is_being_sent_ends_and_has_no_other_records() {
    let directory = tempfile::tempdir().unwrap();
    let manager = open_uncached(directory.path());
    let config = Arc::new(TopicConfig::default());
    let log = manager.log(&partition(), TOPIC_ID, config).unwrap();
    fill(&log, &[0; 4]);
    let read = log.read(0, 10_000, Offset::MAX, true).unwrap();
    let before = bytes_of(&read);
    let LogSlice::File(range) = &read.slice else {
        panic!("not from the file");
    };
    log.truncate_to(4).unwrap();
    fill(&log, &[1; 4]);
    assert_eq!(
        range.file.metadata().unwrap().len(),
        before.len() as u64 / 2
    );
    let kept = log.read(0, 10_000, Offset::MAX, true).unwrap();
    assert_eq!(batches_of(&bytes_of(&kept)).len(), 2);
    assert_eq!(offsets(&log), [0, 2, 4, 6, 8, 10]);
}

#[test]
fn checkpoints_promise_no_more_than_what_is_left() {
    let directory = tempfile::tempdir().unwrap();
    let manager = open(directory.path());
    let log = manager.log(&partition(), TOPIC_ID, Arc::default()).unwrap();
    fill(&log, &[0; 4]);
    log.flush().unwrap();
    manager.move_recovery_points(0);
    manager.checkpoint_high_watermarks(&[(partition(), 8)]);
    log.truncate_to(4).unwrap();
    for name in [
        "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint",
    ] {
        let text = std::fs::read_to_string(directory.path().join(name)).unwrap();
        let offset: Offset = text.trim().rsplit(' ').next().unwrap().parse().unwrap();
        assert!(offset <= 4, "{name}: {text}");
    }
}
