//! What a start believes after a crash: files that a broker left on this page cache, and no others.

use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, SystemTime};

use super::support::*;
use crate::log::{Disk, LogError, RealDisk};
use crate::types::Offset;

const SECOND: Duration = Duration::from_secs(1);
const SEGMENT: &str = "topic-0/00000000000000000000.log";
const SIGN: &str = ".ottla_alive";

fn modified(path: &Path) -> SystemTime {
    fs::metadata(path).unwrap().modified().unwrap()
}

fn set_modified(path: &Path, time: SystemTime) {
    let file = File::options().write(true).open(path).unwrap();
    file.set_modified(time).unwrap();
}

/// Five batches of two records, and a death that no sign foretold: it came a second after the last one,
/// and long after the batches were written.
fn died() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let manager = open(directory.path());
    let config = std::sync::Arc::default();
    let log = manager.log(&partition(), TOPIC_ID, config).unwrap();
    for number in 0..5_u8 {
        append(&log, batch(1_000, &[&[number; 90], &[number; 90]])).unwrap();
    }
    let sign = directory.path().join(SIGN);
    if sign.exists() {
        let first = modified(&sign);
        set_modified(&directory.path().join(SEGMENT), first + SECOND);
        set_modified(&sign, first + 2 * SECOND);
    }
    directory
}

/// Changes the third batch's payload, and leaves the file's time as it was.
fn flip_in_secret(directory: &Path) {
    let path = directory.join(SEGMENT);
    let time = modified(&path);
    let mut bytes = fs::read(&path).unwrap();
    let middle = bytes.len() / 2 + 20;
    bytes[middle] ^= 0x10;
    fs::write(&path, bytes).unwrap();
    set_modified(&path, time);
}

/// Where the log ends after a start, and whether recovery looked into the third batch.
fn start(directory: &Path) -> (Offset, bool) {
    let manager = open_uncached(directory);
    let config = std::sync::Arc::default();
    let log = manager.log(&partition(), TOPIC_ID, config).unwrap();
    let read = log.read(4, 1, Offset::MAX, true);
    let looked = match read {
        Ok(_) => false,
        Err(LogError::Damaged { first_offset, .. }) => first_offset == 4,
        Err(error) => panic!("{error}"),
    };
    (log.log_end_offset(), looked)
}

/// Whether this kernel and file system tell one page cache from another.
fn can_tell(directory: &Path) -> bool {
    RealDisk.page_cache(directory).is_some()
}

#[test]
fn what_a_broker_wrote_before_its_last_sign_is_not_read_again() {
    let directory = died();
    flip_in_secret(directory.path());
    assert_eq!(start(directory.path()), (10, !can_tell(directory.path())));
}

#[test]
fn what_was_written_after_the_last_sign_is_checked() {
    for late in [Duration::ZERO, SECOND] {
        let directory = died();
        flip_in_secret(directory.path());
        let sign = directory.path().join(SIGN);
        if sign.exists() {
            set_modified(&directory.path().join(SEGMENT), modified(&sign) + late);
        }
        assert_eq!(start(directory.path()), (10, true), "{late:?}");
    }
}

#[test]
fn what_was_written_before_the_first_sign_is_checked() {
    let directory = died();
    flip_in_secret(directory.path());
    let sign = directory.path().join(SIGN);
    if sign.exists() {
        let before = modified(&sign) - 3_600 * SECOND;
        set_modified(&directory.path().join(SEGMENT), before);
    }
    assert_eq!(start(directory.path()), (10, true));
}

#[test]
fn after_a_death_of_the_machine_everything_is_checked() {
    for content in [None, Some("0\nanother boot 7 8:1 2\n5\n"), Some("")] {
        let directory = died();
        flip_in_secret(directory.path());
        let sign = directory.path().join(SIGN);
        if sign.exists() {
            let time = modified(&sign);
            match content {
                Some(content) => {
                    fs::write(&sign, content).unwrap();
                    set_modified(&sign, time);
                }
                None => fs::remove_file(&sign).unwrap(),
            }
        }
        assert_eq!(start(directory.path()), (10, true), "{content:?}");
    }
}

#[test]
fn a_copy_is_checked() {
    let (directory, other) = (died(), tempfile::tempdir().unwrap());
    flip_in_secret(directory.path());
    let copied = std::process::Command::new("cp")
        .arg("-a")
        .arg(directory.path().join("."))
        .arg(other.path())
        .status();
    assert!(copied.unwrap().success());
    assert_eq!(start(other.path()), (10, true));
}

#[test]
fn a_write_that_the_death_cut_short_is_cut_off() {
    let directory = died();
    let path = directory.path().join(SEGMENT);
    let (time, bytes) = (modified(&path), fs::metadata(&path).unwrap().len());
    let file = File::options().write(true).open(&path).unwrap();
    file.set_len(bytes - 3).unwrap();
    set_modified(&path, time);
    assert_eq!(start(directory.path()), (8, false));
}

#[test]
fn a_directory_that_failed_leaves_no_sign() {
    let directory = died();
    let manager = open(directory.path());
    assert_eq!(
        directory.path().join(SIGN).exists(),
        can_tell(directory.path())
    );
    let failure = std::io::Error::from_raw_os_error(libc::EIO);
    manager.directories[0].fail("test", &failure);
    assert!(!directory.path().join(SIGN).exists());
}
