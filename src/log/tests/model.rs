//! A log against a plain list, through random operations, clean stops and crashes.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;

use super::support::{
    TOPIC_ID, batches_of, bytes_of, compressed, idempotent, manager_config, partition, read_all,
    small_segments,
};
use crate::config::TopicConfig;
use crate::log::{Log, LogManager, TimestampOffset};
use crate::time::ManualClock;
use crate::types::{Compression, LeaderEpoch, Offset, TimestampMs};

#[derive(Debug, Clone)]
enum Operation {
    Append {
        count: usize,
        bytes: usize,
        timestamp: TimestampMs,
        compression: Compression,
    },
    Produce,
    Repeat(usize),
    NewEpoch,
    Read {
        at: f64,
        bytes_max: usize,
    },
    FindTime(TimestampMs),
    DeleteRecords(f64),
    /// Retention that keeps this part of the bytes, and records from this time on.
    Retain {
        bytes: Option<f64>,
        since: Option<TimestampMs>,
    },
    Flush,
    MoveRecoveryPoint,
    Reopen,
    Crash {
        cut: f64,
        damage: u8,
    },
}

fn operation() -> impl Strategy<Value = Operation> {
    use Operation::*;
    let compression = prop_oneof![
        4 => Just(Compression::None),
        1 => Just(Compression::Lz4),
        1 => Just(Compression::Zstd),
    ];
    prop_oneof![
        8 => (1..6_usize, 0..300_usize, 0..5_000_i64, compression).prop_map(
            |(count, bytes, timestamp, compression)| Append { count, bytes, timestamp, compression }
        ),
        4 => Just(Produce),
        2 => (0..5_usize).prop_map(Repeat),
        1 => Just(NewEpoch),
        4 => (0.0..1.0, 0..2_000_usize).prop_map(|(at, bytes_max)| Read { at, bytes_max }),
        2 => (0..6_000_i64).prop_map(FindTime),
        1 => (0.0..1.0).prop_map(DeleteRecords),
        2 => (prop::option::of(0.0..1.2), prop::option::of(0..5_000_i64))
            .prop_map(|(bytes, since)| Retain { bytes, since }),
        1 => Just(Flush),
        1 => Just(MoveRecoveryPoint),
        1 => Just(Reopen),
        2 => (0.0..1.0, any::<u8>()).prop_map(|(cut, damage)| Crash { cut, damage }),
    ]
}

#[derive(Debug, Clone, PartialEq)]
struct ModelBatch {
    base_offset: Offset,
    last_offset: Offset,
    epoch: LeaderEpoch,
    timestamps: Vec<TimestampMs>,
    payload: Vec<u8>,
    bytes: usize,
    sequence: i32,
}

struct Tested {
    directory: tempfile::TempDir,
    manager: Arc<LogManager>,
    log: Arc<Log>,
    batches: Vec<ModelBatch>,
    log_start: Offset,
    epoch: LeaderEpoch,
    sequence: i32,
}

/// The time, which stands still.
const NOW: TimestampMs = 10_000;

fn open(path: &Path) -> Arc<LogManager> {
    let config = crate::log::LogManagerConfig {
        tail_cache_bytes: 0,
        ..manager_config(path)
    };
    LogManager::open(config, Arc::new(ManualClock::new(NOW))).unwrap()
}

fn config() -> Arc<TopicConfig> {
    Arc::new(TopicConfig {
        // So that only the test decides what is on disk (but for rolls).
        flush_messages: i64::MAX,
        ..(*small_segments()).clone()
    })
}

impl Tested {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let manager = open(directory.path());
        let log = manager.log(&partition(), TOPIC_ID, config()).unwrap();
        Self {
            directory,
            manager,
            log,
            batches: Vec::new(),
            log_start: 0,
            epoch: 0,
            sequence: 0,
        }
    }

    fn end(&self) -> Offset {
        self.batches.last().map_or(0, |batch| batch.last_offset + 1)
    }

    fn offset(&self, at: f64) -> Offset {
        let span = (self.end() - self.log_start) as f64;
        self.log_start + (span * at) as Offset
    }

    fn append(&mut self, batch: crate::record::ValidBatch, timestamps: Vec<TimestampMs>) {
        let header = batch.header;
        let payload = batch.payload.to_vec();
        let appended = self.log.append(batch, self.epoch, NOW).unwrap();
        assert!(!appended.duplicate);
        assert_eq!(appended.base_offset, self.end());
        self.batches.push(ModelBatch {
            base_offset: appended.base_offset,
            last_offset: appended.last_offset,
            epoch: self.epoch,
            timestamps,
            bytes: header.total_bytes(),
            payload,
            sequence: header.base_sequence,
        });
    }

    fn run(&mut self, operation: &Operation) {
        match *operation {
            Operation::Append {
                count,
                bytes,
                timestamp,
                compression,
            } => {
                let value = vec![u8::try_from(count).unwrap(); bytes];
                let values = vec![&value[..]; count];
                let batch = compressed(timestamp, &values, compression);
                let timestamps = (0..count as i64).map(|n| timestamp + n).collect();
                self.append(batch, timestamps);
            }
            Operation::Produce => {
                let time = NOW;
                let batch = idempotent(7, 0, self.sequence, time, &[b"first", b"second"]);
                self.append(batch, vec![time; 2]);
                self.sequence += 2;
            }
            Operation::Repeat(back) => self.repeat(back),
            Operation::NewEpoch => self.epoch += 1,
            Operation::Read { at, bytes_max } => self.read(self.offset(at), bytes_max),
            Operation::FindTime(timestamp) => self.find_time(timestamp),
            Operation::DeleteRecords(at) => {
                let to = self.offset(at);
                assert_eq!(self.log.advance_log_start_offset(to).unwrap(), to);
                self.log_start = to;
            }
            Operation::Retain { bytes, since } => self.retain(bytes, since),
            Operation::Flush => assert_eq!(self.log.flush().unwrap(), self.end()),
            Operation::MoveRecoveryPoint => self.manager.move_recovery_points(0),
            Operation::Reopen => {
                self.manager.close();
                self.reopen();
            }
            Operation::Crash { cut, damage } => self.crash(cut, damage),
        }
        self.check();
    }

    /// The rules of retention once more, the plain way: batch by batch over the segments that there are.
    fn retain(&mut self, bytes: Option<f64>, since: Option<TimestampMs>) {
        // All of it may go only where a power cut takes nothing back.
        self.log.flush().unwrap();
        let bases = self.log.segment_bases();
        let mut sizes = vec![0; bases.len()];
        let mut largest = vec![TimestampMs::MIN; bases.len()];
        for batch in &self.batches {
            let number = bases.partition_point(|&base| base <= batch.base_offset);
            if let Some(number) = number.checked_sub(1) {
                sizes[number] += batch.bytes as u64;
                let time = *batch.timestamps.iter().max().unwrap();
                largest[number] = largest[number].max(time);
            }
        }
        let mut left: u64 = sizes.iter().sum();
        let retained = bytes.map(|part| (left as f64 * part) as u64);
        let mut gone = 0;
        while bases
            .get(gone + 1)
            .is_some_and(|&next| next <= self.log_start)
        {
            left -= sizes[gone];
            gone += 1;
        }
        while let Some(retained) = retained
            && gone < bases.len()
            && sizes[gone] > 0
            && left >= retained + sizes[gone]
        {
            left -= sizes[gone];
            gone += 1;
        }
        while let Some(since) = since
            && gone < bases.len()
            && sizes[gone] > 0
            && largest[gone] < since
        {
            gone += 1;
        }
        if gone > 0 {
            let start = bases.get(gone).copied().unwrap_or(self.end());
            self.log_start = self.log_start.max(start);
        }
        self.log.set_config(Arc::new(TopicConfig {
            retention_ms: since.map_or(-1, |since| NOW - since),
            retention_bytes: retained.map_or(-1, |bytes| i64::try_from(bytes).unwrap()),
            ..(*config()).clone()
        }));
        self.manager.clean_up();
        self.log.set_config(config());
        let mut expected = bases[gone..].to_vec();
        if gone > 0 && gone == bases.len() {
            expected.push(self.end());
        }
        assert_eq!(self.log.segment_bases(), expected);
        let topic = self.directory.path().join("topic-0");
        let files = fs::read_dir(topic).into_iter().flatten();
        let mut on_disk: Vec<Offset> = files
            .filter_map(|file| {
                let name = file.unwrap().file_name().into_string().unwrap();
                name.strip_suffix(".log")?.parse().ok()
            })
            .collect();
        on_disk.sort_unstable();
        assert_eq!(on_disk, expected);
    }

    fn repeat(&mut self, back: usize) {
        let produced = self
            .batches
            .iter()
            .rev()
            .filter(|batch| batch.sequence >= 0);
        let Some(batch) = produced.clone().nth(back) else {
            return;
        };
        if batch.base_offset < self.log_start {
            return;
        }
        let time = batch.timestamps[0];
        let again = idempotent(7, 0, batch.sequence, time, &[b"first", b"second"]);
        let appended = self.log.append(again, self.epoch, NOW).unwrap();
        assert!(appended.duplicate);
        assert_eq!(appended.base_offset, batch.base_offset);
        assert_eq!(appended.last_offset, batch.last_offset);
    }

    fn read(&self, offset: Offset, bytes_max: usize) {
        if offset >= self.end() {
            return;
        }
        let read = self.log.read(offset, bytes_max, Offset::MAX, true).unwrap();
        let found = batches_of(&bytes_of(&read));
        let from = self
            .batches
            .partition_point(|batch| batch.last_offset < offset);
        let expected = &self.batches[from..];
        assert!(!found.is_empty());
        assert!(found.len() == 1 || read.bytes <= bytes_max);
        for ((header, payload), expected) in found.iter().zip(expected) {
            assert_eq!(header.base_offset, expected.base_offset);
            assert_eq!(header.partition_leader_epoch, expected.epoch);
            assert_eq!(*payload, expected.payload);
        }
        let next = found.last().unwrap().0.last_offset() + 1;
        assert_eq!(read.more, next < self.end());
    }

    fn find_time(&self, timestamp: TimestampMs) {
        let records = || {
            self.batches.iter().flat_map(|batch| {
                let times = batch.timestamps.iter().enumerate();
                times.map(|(number, &time)| TimestampOffset {
                    timestamp: time,
                    offset: batch.base_offset + number as i64,
                    leader_epoch: batch.epoch,
                })
            })
        };
        let start = self.log_start;
        let expected = records().find(|r| r.offset >= start && r.timestamp >= timestamp);
        let found = self
            .log
            .offset_for_timestamp(timestamp, Offset::MAX)
            .unwrap();
        assert_eq!(found, expected);
        let kept = || records().filter(|r| r.offset >= start);
        let largest = kept().map(|r| r.timestamp).max();
        let expected = kept().find(|r| Some(r.timestamp) == largest);
        assert_eq!(self.log.offset_of_max_timestamp().unwrap(), expected);
    }

    fn reopen(&mut self) {
        self.manager = open(self.directory.path());
        self.log = self.manager.log(&partition(), TOPIC_ID, config()).unwrap();
    }

    /// Takes the files as they are, but for what was not flushed: some of that is lost.
    fn crash(&mut self, cut: f64, damage: u8) {
        let flushed = self.log.flushed_offset();
        let copied = tempfile::tempdir().unwrap();
        copy(self.directory.path(), copied.path());
        let topic = copied.path().join("topic-0");
        if let Some(last) = last_segment(&topic) {
            let unflushed = self.batches.iter().rev();
            let unflushed = unflushed.take_while(|batch| batch.base_offset >= flushed);
            let bytes = fs::metadata(&last).unwrap().len();
            let lost: usize = unflushed.map(|batch| batch.bytes).sum();
            let lost = (lost as f64 * cut) as u64;
            if damage & 0x80 != 0 {
                let file = fs::OpenOptions::new().write(true).open(&last).unwrap();
                file.set_len(bytes.saturating_sub(lost)).unwrap();
            }
            damage_files(&topic, &last, damage);
        }
        self.directory = copied;
        self.reopen();
        let end = self.log.log_end_offset();
        assert!(end >= flushed, "flushed to {flushed}, recovered to {end}");
        self.batches.retain(|batch| batch.last_offset < end);
        let produced = self.batches.iter().rev().find(|batch| batch.sequence >= 0);
        // A new producer may begin anywhere; one whose records are known goes on behind them.
        if let Some(batch) = produced {
            self.sequence = batch.sequence + 2;
        }
        self.epoch += 1;
    }

    fn check(&self) {
        assert_eq!(self.log.log_end_offset(), self.end());
        assert_eq!(self.log.log_start_offset(), self.log_start);
        assert!(self.log.flushed_offset() <= self.end());
        let start = self.log_start;
        let kept = self
            .batches
            .iter()
            .filter(|batch| batch.last_offset >= start);
        let latest = kept.clone().next_back().map(|batch| batch.epoch);
        if latest.is_some() {
            assert_eq!(self.log.latest_epoch(), latest);
        }
        for batch in kept {
            let offset = batch.base_offset.max(start);
            assert_eq!(self.log.epoch_for_offset(offset), Some(batch.epoch));
        }
    }

    fn check_all(&self) {
        if self.log_start >= self.end() {
            return;
        }
        let found = read_all(&self.log, self.log_start);
        let start = self.log_start;
        let expected = self
            .batches
            .iter()
            .filter(|batch| batch.last_offset >= start);
        let expected: Vec<_> = expected.map(|batch| batch.base_offset).collect();
        let offsets: Vec<_> = found.iter().map(|(header, _)| header.base_offset).collect();
        assert_eq!(offsets, expected);
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy(&path, &target);
        } else {
            fs::copy(path, target).unwrap();
        }
    }
}

fn last_segment(topic: &Path) -> Option<std::path::PathBuf> {
    let entries = fs::read_dir(topic).ok()?;
    let paths = entries.map(|entry| entry.unwrap().path());
    paths
        .filter(|path| path.extension().is_some_and(|extension| extension == "log"))
        .max()
}

/// Hurts what may be made anew.
fn damage_files(topic: &Path, last: &Path, damage: u8) {
    let hurt = |path: &Path| {
        if !path.exists() {
            return;
        }
        match damage & 3 {
            0 => fs::remove_file(path).unwrap(),
            1 => fs::write(path, vec![damage; 97]).unwrap(),
            2 => fs::write(path, b"").unwrap(),
            _ => {
                let mut bytes = fs::read(path).unwrap();
                bytes.truncate(bytes.len() / 2);
                fs::write(path, bytes).unwrap();
            }
        }
    };
    for (bit, extension) in [(4, "index"), (8, "timeindex"), (16, "snapshot")] {
        if damage & bit != 0 {
            hurt(&last.with_extension(extension));
        }
    }
    if damage & 32 != 0 {
        hurt(&topic.join("leader-epoch-checkpoint"));
    }
    if damage & 64 != 0 {
        hurt(&topic.join("partition.metadata"));
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        // More by hand: LOG_MODEL_CASES=2000 TMPDIR=/dev/shm.
        cases: std::env::var("LOG_MODEL_CASES").map_or(20, |cases| cases.parse().unwrap()),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_log_is_a_list_that_survives(operations in prop::collection::vec(operation(), 1..60)) {
        let mut tested = Tested::new();
        for operation in &operations {
            tested.run(operation);
        }
        tested.check_all();
    }
}
