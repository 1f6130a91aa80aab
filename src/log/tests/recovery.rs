use std::fs;
use std::path::Path;

use super::support::*;
use crate::log::{LogError, LogManager, PartitionOnDisk};
use crate::types::{Offset, TopicId, TopicPartition};

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// A directory with a log of ten batches that no clean stop has marked.
fn crashed() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let manager = open(directory.path());
    let log = manager
        .log(&partition(), TOPIC_ID, small_segments())
        .unwrap();
    for number in 0..10_u8 {
        log.append(
            batch(1_000, &[&[number; 90], &[number; 90]]),
            i32::from(number / 4),
            now(),
        )
        .unwrap();
    }
    directory
}

fn log_of(manager: &LogManager) -> std::sync::Arc<crate::log::Log> {
    manager
        .log(&partition(), TOPIC_ID, small_segments())
        .unwrap()
}

#[test]
fn a_tail_torn_at_any_byte_costs_only_its_batch() {
    let source = crashed();
    let topic = source.path().join("topic-0");
    let last = last_segment(&topic);
    let bytes = fs::read(&last).unwrap();
    let batches = batches_of(&bytes);
    let last_batch = batches.last().unwrap().0;
    let kept = bytes.len() - last_batch.total_bytes();
    for cut in kept..bytes.len() {
        let directory = tempfile::tempdir().unwrap();
        copy(source.path(), directory.path());
        let torn = directory
            .path()
            .join("topic-0")
            .join(last.file_name().unwrap());
        fs::write(&torn, &bytes[..cut]).unwrap();
        let manager = open(directory.path());
        let log = log_of(&manager);
        assert_eq!(log.log_end_offset(), 18, "cut at {cut}");
        assert_eq!(log.flushed_offset(), 18);
        assert_eq!(fs::metadata(&torn).unwrap().len(), kept as u64);
        assert_eq!(read_all(&log, 0).len(), 9);
        assert_eq!(log.latest_epoch(), Some(2));
        let appended = append(&log, batch(1_000, &[b"next"])).unwrap();
        assert_eq!(appended.base_offset, 18);
    }
}

fn last_segment(topic: &Path) -> std::path::PathBuf {
    let mut logs: Vec<_> = fs::read_dir(topic)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "log"))
        .collect();
    logs.sort();
    logs.pop().unwrap()
}

#[test]
fn a_flipped_byte_costs_its_batch_and_no_other() {
    let source = crashed();
    let last = last_segment(&source.path().join("topic-0"));
    let bytes = fs::read(&last).unwrap();
    let batches = batches_of(&bytes);
    let batch_bytes = bytes.len() / batches.len();
    for position in 0..bytes.len() {
        let in_batch = position % batch_bytes;
        if (12..16).contains(&in_batch) {
            continue; // an epoch at the log's end may be any
        }
        let hit = batches[position / batch_bytes].0.base_offset;
        let directory = tempfile::tempdir().unwrap();
        copy(source.path(), directory.path());
        let mut damaged = bytes.clone();
        damaged[position] ^= 0x10;
        let path = directory
            .path()
            .join("topic-0")
            .join(last.file_name().unwrap());
        fs::write(path, damaged).unwrap();
        let manager = open_uncached(directory.path());
        let log = log_of(&manager);
        // Nothing says that the last one was ever whole.
        let end = if hit == 18 { 18 } else { 20 };
        assert_eq!(log.log_end_offset(), end, "byte {position}");
        for offset in 0..end {
            let read = log.read(offset, 1, Offset::MAX, true);
            if (hit..hit + 2).contains(&offset) {
                let error = read.unwrap_err();
                assert!(
                    matches!(error, LogError::Damaged { first_offset, next_offset }
                        if (first_offset, next_offset) == (hit, hit + 2)),
                    "byte {position}: {error}"
                );
            } else {
                let found = batches_of(&bytes_of(&read.unwrap()));
                assert_eq!(found[0].0.base_offset, offset / 2 * 2);
            }
        }
        let appended = append(&log, batch(1_000, &[b"next"])).unwrap();
        assert_eq!(appended.base_offset, end);
    }
}

#[test]
fn damaged_small_files_never_stop_the_log() {
    let source = crashed();
    let names = [
        "recovery-point-offset-checkpoint",
        "log-start-offset-checkpoint",
        "replication-offset-checkpoint",
        "meta.properties",
        ".kafka_cleanshutdown",
        ".ottla_manifest",
        "topic-0/leader-epoch-checkpoint",
        "topic-0/partition.metadata",
        "topic-0/00000000000000000000.index",
        "topic-0/00000000000000000000.timeindex",
        "topic-0/00000000000000000008.index",
        "topic-0/00000000000000000008.timeindex",
        "topic-0/00000000000000000008.snapshot",
        "topic-0/00000000000000000099.snapshot",
        "topic-0/stray",
        "topic-0/00000000000000000000.log.deleted",
        "stray-file",
        "stray-0/not-a-log",
    ];
    for clean in [true, false] {
        for name in names {
            for garbage in [&b""[..], &[0; 100], &[0xff; 1_000], b"0\n1\n1 x\n"] {
                let directory = tempfile::tempdir().unwrap();
                copy(source.path(), directory.path());
                if clean {
                    let manager = open(directory.path());
                    log_of(&manager);
                    manager.close();
                }
                fs::create_dir_all(directory.path().join("stray-0")).unwrap();
                fs::write(directory.path().join(name), garbage).unwrap();
                let manager = open_uncached(directory.path());
                let log = log_of(&manager);
                assert_eq!(log.log_end_offset(), 20, "{name} {clean}");
                assert_eq!(log.log_start_offset(), 0, "{name} {clean}");
                assert_eq!(read_all(&log, 0).len(), 10, "{name} {clean}");
                for offset in 0..20 {
                    let read = log.read(offset, 1, Offset::MAX, true).unwrap();
                    let found = batches_of(&bytes_of(&read));
                    assert_eq!(found[0].0.base_offset, offset / 2 * 2);
                }
                assert_eq!(log.end_offset_for_epoch(0), Some((0, 8)), "{name} {clean}");
                assert_eq!(log.end_offset_for_epoch(1), Some((1, 16)), "{name} {clean}");
                assert_eq!(log.latest_epoch(), Some(2));
                let found = log
                    .offset_for_timestamp(1_001, Offset::MAX)
                    .unwrap()
                    .unwrap();
                assert_eq!(found.offset, 1, "{name} {clean}");
                assert_eq!(
                    append(&log, batch(1_000, &[b"next"])).unwrap().base_offset,
                    20
                );
                manager.close();
                let manager = open(directory.path());
                assert_eq!(log_of(&manager).log_end_offset(), 21);
            }
        }
    }
}

#[test]
fn any_bytes_as_a_segment_open_without_a_panic() {
    let good = {
        let source = crashed();
        fs::read(source.path().join("topic-0/00000000000000000000.log")).unwrap()
    };
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    for round in 0..200 {
        let directory = tempfile::tempdir().unwrap();
        let topic = directory.path().join("topic-0");
        fs::create_dir_all(&topic).unwrap();
        let mut bytes = good.clone();
        if round % 4 == 0 {
            bytes.iter_mut().for_each(|byte| *byte = random() as u8);
        } else {
            for _ in 0..=round % 7 {
                let at = random() as usize % bytes.len();
                bytes[at] = random() as u8;
            }
            bytes.truncate(bytes.len() - random() as usize % bytes.len());
        }
        fs::write(topic.join("00000000000000000000.log"), &bytes).unwrap();
        if round % 3 == 0 {
            fs::write(directory.path().join(".kafka_cleanshutdown"), "{}").unwrap();
        }
        let manager = open_uncached(directory.path());
        let Ok(log) = manager.log(&partition(), TOPIC_ID, small_segments()) else {
            continue;
        };
        let end = log.log_end_offset();
        let mut offset = log.log_start_offset();
        while offset < end {
            let Ok(read) = log.read(offset, 1_000, end, true) else {
                break;
            };
            assert!(
                read.bytes > 0,
                "round {round}: nothing at {offset} below {end}"
            );
            offset = {
                let bytes = bytes_of(&read);
                let mut rest = &bytes[..];
                let mut next = offset;
                while !rest.is_empty() {
                    let header = crate::record::BatchHeader::parse(rest).unwrap();
                    next = header.last_offset() + 1;
                    rest = &rest[header.total_bytes()..];
                }
                next
            };
        }
        let _ = log.offset_for_timestamp(0, end);
        let _ = log.offset_of_max_timestamp();
        let _ = log.producers();
        append(&log, batch(1_000, &[b"next"])).unwrap();
    }
}

#[test]
fn files_of_a_deleted_topic_are_put_aside() {
    let directory = crashed();
    let manager = open(directory.path());
    let other = TopicId(*b"fedcba9876543210");
    let found = |topic_id| {
        [PartitionOnDisk {
            directory: 0,
            partition: partition(),
            topic_id: Some(topic_id),
        }]
    };
    assert_eq!(manager.on_disk(), found(TOPIC_ID));
    let log = manager.log(&partition(), other, small_segments()).unwrap();
    assert_eq!(log.log_end_offset(), 0);
    append(&log, batch(1_000, &[b"new"])).unwrap();
    assert_eq!(manager.on_disk(), found(other));
    let names: Vec<_> = fs::read_dir(directory.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with("-stray"))
        .collect();
    assert_eq!(names.len(), 1, "{names:?}");
}

#[test]
fn a_deleted_log_goes_away_and_its_name_is_free_at_once() {
    let directory = crashed();
    let manager = open(directory.path());
    let mut config = (*small_segments()).clone();
    config.file_delete_delay_ms = 1;
    let old = manager
        .log(&partition(), TOPIC_ID, std::sync::Arc::new(config))
        .unwrap();
    old.advance_log_start_offset(5).unwrap();
    let read = old.read(6, 10, Offset::MAX, true).unwrap();
    manager.delete(&partition(), TOPIC_ID, 1).unwrap();
    assert!(append(&old, batch(1_000, &[b"late"])).is_err());
    assert!(old.read(6, 10, Offset::MAX, true).is_err());
    assert!(!bytes_of(&read).is_empty());
    let log = manager
        .log(
            &partition(),
            TopicId(*b"fedcba9876543210"),
            small_segments(),
        )
        .unwrap();
    assert_eq!((log.log_start_offset(), log.log_end_offset()), (0, 0));
    append(&log, batch(1_000, &[b"new"])).unwrap();
    for _ in 0..200 {
        let left = fs::read_dir(directory.path()).unwrap().any(|entry| {
            entry
                .unwrap()
                .file_name()
                .to_string_lossy()
                .ends_with("-delete")
        });
        if !left {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    panic!("the deleted directory is still there");
}

#[test]
fn leftovers_of_a_deletion_are_removed_at_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let leftover = directory
        .path()
        .join("t-0.00000000000000000000000000000007-delete");
    fs::create_dir_all(&leftover).unwrap();
    fs::write(leftover.join("file"), "x").unwrap();
    let _manager = open(directory.path());
    for _ in 0..200 {
        if !leftover.exists() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    panic!("the leftover is still there");
}

#[test]
fn deleted_records_stay_deleted_after_a_crash() {
    let directory = crashed();
    let manager = open(directory.path());
    let log = log_of(&manager);
    assert_eq!(log.advance_log_start_offset(9).unwrap(), 9);
    assert_eq!(log.advance_log_start_offset(3).unwrap(), 9);
    assert!(log.advance_log_start_offset(21).is_err());
    assert!(log.read(8, 10, Offset::MAX, true).is_err());
    drop((log, manager));
    let manager = open(directory.path());
    let log = log_of(&manager);
    assert_eq!(log.log_start_offset(), 9);
    let first = log.read(9, 10, Offset::MAX, true).unwrap();
    assert_eq!(batches_of(&bytes_of(&first))[0].0.base_offset, 8);
    assert_eq!(log.advance_log_start_offset(20).unwrap(), 20);
    assert_eq!(log.segment_count(), 1);
    drop((log, manager));
    let manager = open(directory.path());
    let log = log_of(&manager);
    assert_eq!((log.log_start_offset(), log.log_end_offset()), (20, 20));
    assert_eq!(
        append(&log, batch(1_000, &[b"next"])).unwrap().base_offset,
        20
    );
}

#[test]
fn a_directory_of_another_cluster_or_node_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    drop(open(directory.path()));
    for (cluster_id, node_id) in [("other", 1), ("cluster", 2)] {
        let config = crate::log::LogManagerConfig {
            cluster_id: cluster_id.to_owned(),
            node_id,
            ..manager_config(directory.path())
        };
        let clock = std::sync::Arc::new(crate::time::SystemClock);
        let error = LogManager::open(config, clock).unwrap_err();
        assert!(error.to_string().contains("belongs to"), "{error}");
    }
}

#[test]
fn new_partitions_go_to_the_directory_with_the_fewest() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut config = manager_config(one.path());
    config.directories.push(two.path().to_owned());
    let clock = std::sync::Arc::new(crate::time::SystemClock);
    let manager = LogManager::open(config, clock).unwrap();
    for number in 0..6 {
        let partition = TopicPartition::new("topic", number);
        let log = manager.log(&partition, TOPIC_ID, small_segments()).unwrap();
        append(&log, batch(1_000, &[b"x"])).unwrap();
    }
    let counts = manager.describe();
    assert_eq!(counts[0].partitions.len(), 3);
    assert_eq!(counts[1].partitions.len(), 3);
    assert!(
        counts
            .iter()
            .all(|directory| directory.online && directory.usable_bytes > 0)
    );
}
