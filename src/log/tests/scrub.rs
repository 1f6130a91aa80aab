//! A round over closed segments, with and without something to find.

use std::fs;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use super::support::*;
use crate::types::Offset;

#[test]
fn a_scrub_finds_what_nobody_reads() {
    let directory = tempfile::tempdir().unwrap();
    let manager = open_uncached(directory.path());
    let log = manager
        .log(&partition(), TOPIC_ID, small_segments())
        .unwrap();
    for number in 0..40_u8 {
        append(&log, batch(1_000, &[&[number + 1; 90], &[number + 1; 90]])).unwrap();
    }
    log.flush().unwrap();
    assert!(log.segment_count() > 3);
    manager.start_scrub(Duration::from_millis(20)).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!((manager.damage_found(), log.damaged_places()), (0, 0));
    // A payload: no reader's look at the headers would find it.
    let path = directory.path().join("topic-0/00000000000000000000.log");
    let content = fs::read(&path).unwrap();
    let damaged = batches_of(&content)[0].0.total_bytes() + 100;
    let file = fs::File::options().write(true).open(&path).unwrap();
    // That byte and no more: a scrub may read the file at any moment.
    file.write_all_at(&[content[damaged] ^ 1], damaged as u64)
        .unwrap();
    wait_until("the scrub", || log.damaged_places() == 1);
    assert!(log.read(2, 100, Offset::MAX, true).is_err());
    assert!(log.read(4, 100, Offset::MAX, true).is_ok());
    assert!(log.read(0, 100, Offset::MAX, true).is_ok());
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(manager.damage_found(), 1, "it is told of once");
    manager.close();
}
