use super::support::*;
use crate::log::{AppendError, Log};
use crate::types::ErrorCode;

fn refused(log: &Log, batch: crate::record::ValidBatch) -> ErrorCode {
    match append(log, batch).unwrap_err() {
        AppendError::Refused(error) => error.code,
        other => panic!("{other}"),
    }
}

/// Appends until there are several segments, ten batches of one producer among others.
fn fill(log: &Log) {
    for number in 0..10 {
        append(log, batch(now(), &[&[1; 300]])).unwrap();
        let appended = append(log, idempotent(7, 0, number, now(), &[&[2; 300]])).unwrap();
        assert_eq!(appended.base_offset, i64::from(number) * 2 + 1);
    }
    assert!(log.segment_count() > 2);
}

fn check(log: &Log) {
    for number in 5..10 {
        let again = append(log, idempotent(7, 0, number, now(), &[&[2; 300]])).unwrap();
        assert!(again.duplicate);
        assert_eq!(again.base_offset, i64::from(number) * 2 + 1);
        assert_eq!(again.last_offset, i64::from(number) * 2 + 1);
    }
    assert_eq!(log.log_end_offset(), 20);
    let value: &[&[u8]] = &[b"x"];
    assert_eq!(
        refused(log, idempotent(7, 0, 11, now(), value)),
        ErrorCode::OutOfOrderSequenceNumber
    );
    let producers = log.producers();
    assert_eq!(producers.len(), 1);
    assert_eq!(
        (producers[0].producer_id, producers[0].last_sequence),
        (7, 9)
    );
}

#[test]
fn repeated_batches_are_known_by_their_first_offsets() {
    let directory = tempfile::tempdir().unwrap();
    let manager = open(directory.path());
    let log = manager
        .log(&partition(), TOPIC_ID, small_segments())
        .unwrap();
    fill(&log);
    check(&log);
    append(&log, idempotent(7, 1, 0, now(), &[b"x"])).unwrap();
    assert_eq!(
        refused(&log, idempotent(7, 0, 10, now(), &[b"x"])),
        ErrorCode::InvalidProducerEpoch
    );
}

#[test]
fn the_whole_window_is_known_after_a_clean_stop_and_after_a_crash() {
    for clean in [true, false] {
        let directory = tempfile::tempdir().unwrap();
        let manager = open(directory.path());
        let log = manager
            .log(&partition(), TOPIC_ID, small_segments())
            .unwrap();
        fill(&log);
        if clean {
            manager.close();
        }
        drop((log, manager));
        let manager = open(directory.path());
        let log = manager
            .log(&partition(), TOPIC_ID, small_segments())
            .unwrap();
        check(&log);
    }
}

#[test]
fn old_producers_are_forgotten_when_they_are_loaded() {
    let directory = tempfile::tempdir().unwrap();
    let manager = open(directory.path());
    let log = manager
        .log(&partition(), TOPIC_ID, small_segments())
        .unwrap();
    append(&log, idempotent(7, 0, 0, now() - 90_000_000, &[b"old"])).unwrap();
    append(&log, idempotent(8, 0, 0, now(), &[b"new"])).unwrap();
    assert_eq!(log.producers().len(), 2);
    log.expire_producers();
    assert_eq!(log.producers().len(), 1);
    manager.close();
    let manager = open(directory.path());
    let log = manager
        .log(&partition(), TOPIC_ID, small_segments())
        .unwrap();
    assert_eq!(log.producers().len(), 1);
}
