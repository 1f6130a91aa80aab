//! `ottla log verify` and `dump` over directories that are whole, and over such as are not.

use std::fs;
use std::path::Path;

use super::support::*;
use crate::log::inspect::{DumpOptions, Report, dump, verify};

/// Three segments of a log that was closed.
fn closed() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let manager = open(directory.path());
    let log = manager
        .log(&partition(), TOPIC_ID, small_segments())
        .unwrap();
    for number in 0..20_u8 {
        let batch = match number % 4 {
            3 => idempotent(7, 0, i32::from(number / 4), now(), &[&[number; 90]]),
            _ => batch(now(), &[&[number; 90], &[number; 90]]),
        };
        log.append(batch, i32::from(number / 12), now()).unwrap();
    }
    manager.close();
    directory
}

fn damaged(report: &Report) -> Vec<(String, Option<u64>)> {
    let damaged = report.findings.iter().filter(|finding| finding.damage);
    damaged
        .map(|finding| {
            let name = finding.path.file_name().unwrap();
            (name.to_string_lossy().into_owned(), finding.position)
        })
        .collect()
}

#[test]
fn a_whole_directory_is_well_also_while_it_is_used() {
    let directory = closed();
    let report = verify(directory.path()).unwrap();
    assert_eq!(report.findings, []);
    assert_eq!(
        (report.partitions, report.batches, report.records),
        (1, 20, 35)
    );
    assert!(report.segments >= 2 && report.bytes > 0);
    let one = verify(&directory.path().join("topic-0")).unwrap();
    assert_eq!(one.batches, 20);
    let manager = open(directory.path());
    let log = manager
        .log(&partition(), TOPIC_ID, small_segments())
        .unwrap();
    log.append(batch(now(), &[b"more"]), 1, now()).unwrap();
    let report = verify(directory.path()).unwrap();
    assert_eq!(report.findings, []);
    assert_eq!(report.batches, 21);
}

#[test]
fn damage_is_named_with_its_place() {
    let source = closed();
    let topic = source.path().join("topic-0");
    let first = topic.join("00000000000000000000.log");
    let whole = fs::read(&first).unwrap();
    let second_batch = batches_of(&whole)[0].0.total_bytes() as u64;
    let flip = |path: &Path, at: usize| {
        let mut content = fs::read(path).unwrap();
        content[at] ^= 1;
        fs::write(path, content).unwrap();
    };
    for at in [3, 10, 16, 18, 25, 100] {
        flip(&first, usize::try_from(second_batch).unwrap() + at);
        let report = verify(source.path()).unwrap();
        let expected = ("00000000000000000000.log".to_owned(), Some(second_batch));
        assert_eq!(damaged(&report), [expected], "byte {at}");
        assert_eq!(report.findings[0].offsets, Some((2, 4)), "byte {at}");
        assert_eq!(report.batches, 19);
        fs::write(&first, &whole).unwrap();
    }
    assert!(!verify(source.path()).unwrap().is_damaged());
    for (name, at, position) in [
        ("topic-0/00000000000000000000.index", 3, Some(0)),
        ("topic-0/00000000000000000000.timeindex", 7, Some(0)),
        ("meta.properties", 15, None),
        ("topic-0/partition.metadata", 3, None),
        ("topic-0/leader-epoch-checkpoint", 0, None),
        ("recovery-point-offset-checkpoint", 0, None),
        (".ottla_manifest", 20, None),
    ] {
        let path = source.path().join(name);
        let before = fs::read(&path).unwrap();
        flip(&path, at);
        if name == "meta.properties" {
            fs::write(&path, b"garbage").unwrap();
        }
        let report = verify(source.path()).unwrap();
        let file = Path::new(name).file_name().unwrap();
        let expected = (file.to_string_lossy().into_owned(), position);
        assert_eq!(damaged(&report), [expected], "{name}");
        fs::write(&path, before).unwrap();
    }
    let snapshot = fs::read_dir(&topic).unwrap();
    let mut snapshot = snapshot.map(|entry| entry.unwrap().path());
    let snapshot = snapshot.find(|path| path.extension().is_some_and(|e| e == "snapshot"));
    flip(&snapshot.unwrap(), 12);
    fs::write(source.path().join("notes.txt"), "mine").unwrap();
    let report = verify(source.path()).unwrap();
    assert_eq!(damaged(&report).len(), 1);
    assert_eq!(report.findings.len(), 2);
}

#[test]
fn a_dump_tells_of_damage_and_goes_on() {
    let source = closed();
    let first = source.path().join("topic-0/00000000000000000000.log");
    let mut content = fs::read(&first).unwrap();
    let batch_bytes = batches_of(&content)[0].0.total_bytes();
    content[batch_bytes + 16] = 7;
    fs::write(&first, &content).unwrap();
    let options = DumpOptions {
        deep_iteration: true,
        print_data_log: true,
        skip_record_metadata: false,
        verify_index_only: false,
        index_sanity_check: false,
        max_bytes: u64::MAX,
    };
    let (mut out, mut errors) = (Vec::new(), Vec::new());
    let paths = [source.path().to_owned()];
    assert!(dump(&paths, options, &mut out, &mut errors).unwrap());
    let out = String::from_utf8(out).unwrap();
    let left = content.len() - batch_bytes;
    assert!(out.contains(&format!(
        "Found {left} invalid bytes at the end of 00000000000000000000.log\n\
         Whole batches go on at position {} with offset 4\n",
        2 * batch_bytes
    )));
    assert!(out.contains("leaderEpoch: 1 startOffset: "));
    assert!(out.contains("currentTxnFirstOffset: OptionalLong.empty"));
}
