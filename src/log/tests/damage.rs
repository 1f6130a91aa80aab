//! Damage of every kind, done to logs that were closed and to such as were not: what is served is
//! true, what was not touched is served, and the log goes on.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::support::*;
use crate::config::TopicConfig;
use crate::log::{Log, LogError, LogManager};
use crate::record::{BATCH_HEADER_BYTES, BatchHeader};
use crate::types::{LeaderEpoch, Offset};

#[derive(Debug, Clone)]
enum Harm {
    /// A bit of a segment file.
    Flip { at: f64, bit: u8 },
    /// Zeros over a part of a segment file.
    Zero { at: f64, bytes: usize },
    /// The end of a segment file.
    Cut { segment: f64, bytes: usize },
    /// A whole segment file.
    Remove { segment: f64 },
    /// Any of the files that can be made anew.
    Small { which: usize, how: u8 },
    /// A file or directory that nobody asked for.
    Stray { which: usize, how: u8 },
}

fn harm() -> impl Strategy<Value = Harm> {
    prop_oneof![
        6 => (0.0..1.0, 0..8_u8).prop_map(|(at, bit)| Harm::Flip { at, bit }),
        2 => (0.0..1.0, 1..400_usize).prop_map(|(at, bytes)| Harm::Zero { at, bytes }),
        1 => (0.0..1.0, 1..400_usize).prop_map(|(segment, bytes)| Harm::Cut { segment, bytes }),
        1 => (0.0..1.0).prop_map(|segment| Harm::Remove { segment }),
        4 => (0..32_usize, any::<u8>()).prop_map(|(which, how)| Harm::Small { which, how }),
        2 => (0..8_usize, any::<u8>()).prop_map(|(which, how)| Harm::Stray { which, how }),
    ]
}

#[derive(Debug, Clone)]
struct Batch {
    base_offset: Offset,
    last_offset: Offset,
    epoch: LeaderEpoch,
    payload: Vec<u8>,
    file: PathBuf,
    start: usize,
    end: usize,
    /// Bytes of it that were changed, from its start.
    hurt: BTreeSet<usize>,
    /// It is not there any more, or only in part.
    lost: bool,
}

impl Batch {
    /// What the headers of its neighbours or its own CRC do not tell is its client's to find out.
    fn header_hurt(&self) -> bool {
        self.lost || self.hurt.iter().any(|&at| at < 17)
    }

    fn is_hurt(&self) -> bool {
        self.lost || !self.hurt.is_empty()
    }
}

fn config() -> Arc<TopicConfig> {
    small_segments()
}

fn log_of(manager: &LogManager) -> Arc<Log> {
    manager.log(&partition(), TOPIC_ID, config()).unwrap()
}

struct Tested {
    directory: tempfile::TempDir,
    batches: Vec<Batch>,
    /// What may be cut off behind a bad batch: nobody says that it was on disk.
    may_cut: bool,
}

impl Tested {
    fn new(sizes: &[(usize, usize)], clean: bool, noted: bool) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let manager = open_uncached(directory.path());
        let log = log_of(&manager);
        let mut sequence = 0;
        for (number, &(count, bytes)) in sizes.iter().enumerate() {
            // No zeros: they look like what a crash leaves.
            let value = vec![u8::try_from(number % 250 + 1).unwrap(); bytes.max(1)];
            let values = vec![&value[..]; count];
            let epoch = i32::try_from(number / 12).unwrap();
            let batch = match number % 5 {
                0 => {
                    sequence += i32::try_from(count).unwrap();
                    let first = sequence - i32::try_from(count).unwrap();
                    idempotent(7, 0, first, now(), &values)
                }
                _ => batch(1_000 + 10 * number as i64, &values),
            };
            log.append(batch, epoch, now()).unwrap();
        }
        log.flush().unwrap();
        if noted {
            manager.checkpoint_high_watermarks(&[(partition(), log.log_end_offset())]);
        }
        if clean {
            manager.close();
        }
        drop((log, manager));
        let batches = batches_on_disk(directory.path());
        Self {
            directory,
            batches,
            may_cut: !clean && !noted,
        }
    }

    fn end(&self) -> Offset {
        self.batches.last().unwrap().last_offset + 1
    }

    fn segments(&self) -> Vec<PathBuf> {
        let files: BTreeSet<_> = self.batches.iter().map(|batch| &batch.file).collect();
        files.into_iter().cloned().collect()
    }

    fn harm(&mut self, harm: &Harm) {
        let total: usize = self.batches.iter().map(|b| b.end - b.start).sum();
        let place = |at: f64| {
            let mut left = (total as f64 * at) as usize;
            let mut found = None;
            for batch in &self.batches {
                if left < batch.end - batch.start {
                    found = Some((batch.file.clone(), batch.start + left));
                    break;
                }
                left -= batch.end - batch.start;
            }
            found.unwrap()
        };
        match *harm {
            Harm::Flip { at, bit } => {
                let (file, position) = place(at);
                self.change(&file, position..position + 1, |byte| byte ^ (1 << bit));
            }
            Harm::Zero { at, bytes } => {
                let (file, position) = place(at);
                self.change(&file, position..position + bytes, |_| 0);
            }
            Harm::Cut { segment, bytes } => {
                let segments = self.segments();
                let file = &segments[(segments.len() as f64 * segment) as usize];
                let Ok(content) = fs::read(file) else { return };
                let kept = content.len().saturating_sub(bytes);
                fs::write(file, &content[..kept]).unwrap();
                for batch in self.batches.iter_mut().filter(|b| b.file == *file) {
                    batch.lost |= batch.end > kept;
                }
            }
            Harm::Remove { segment } => {
                let segments = self.segments();
                let file = &segments[(segments.len() as f64 * segment) as usize];
                let _ = fs::remove_file(file);
                for batch in self.batches.iter_mut().filter(|b| b.file == *file) {
                    batch.lost = true;
                }
            }
            Harm::Small { which, how } => self.harm_small(which, how),
            Harm::Stray { which, how } => self.stray(which, how),
        }
    }

    fn change(&mut self, file: &Path, range: std::ops::Range<usize>, to: impl Fn(u8) -> u8) {
        let Ok(mut content) = fs::read(file) else {
            return;
        };
        for position in range {
            let Some(byte) = content.get_mut(position) else {
                break;
            };
            let changed = to(*byte);
            let batch = self
                .batches
                .iter_mut()
                .find(|b| b.file == *file && (b.start..b.end).contains(&position));
            if changed != *byte {
                let batch = batch.unwrap();
                // The same bit flipped twice is none.
                let at = position - batch.start;
                if !batch.hurt.insert(at) {
                    batch.lost = true;
                }
            }
            *byte = changed;
        }
        fs::write(file, content).unwrap();
    }

    fn harm_small(&mut self, which: usize, how: u8) {
        let mut files: Vec<PathBuf> = Vec::new();
        for root in [
            self.directory.path().to_owned(),
            self.directory.path().join("topic-0"),
        ] {
            let entries = fs::read_dir(root)
                .unwrap()
                .map(|entry| entry.unwrap().path());
            files.extend(entries.filter(|path| {
                path.is_file()
                    && path.extension().is_none_or(|e| e != "log" && e != "stray")
                    && !path.ends_with(".lock")
            }));
        }
        files.sort();
        let file = files[which % files.len()].clone();
        // Without them nobody knows what was on disk.
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        if name.ends_with("checkpoint") || name.starts_with('.') {
            self.may_cut = true;
        }
        let content = fs::read(&file).unwrap();
        match how % 6 {
            0 => fs::remove_file(&file).unwrap(),
            1 => fs::write(&file, b"").unwrap(),
            2 => fs::write(&file, vec![how; 100]).unwrap(),
            3 => fs::write(&file, vec![0; content.len()]).unwrap(),
            4 => fs::write(&file, &content[..content.len() / 2]).unwrap(),
            _ => {
                let mut content = content;
                let at = usize::from(how) * content.len() / 256;
                if let Some(byte) = content.get_mut(at) {
                    *byte ^= 1 << (how % 8);
                }
                // A digit that became another is a checkpoint like any other, and another cluster's
                // directory is refused.
                if !name.ends_with("checkpoint") && name != "meta.properties" {
                    fs::write(&file, content).unwrap();
                }
            }
        }
    }

    fn stray(&mut self, which: usize, how: u8) {
        let topic = self.directory.path().join("topic-0");
        let garbage = [how; 300];
        let content = [&b""[..], b"x", &garbage, &[0; 300]][usize::from(how % 4)];
        match which {
            0 => fs::write(topic.join("stray"), content).unwrap(),
            1 => drop(fs::create_dir(topic.join("stray-directory"))),
            2 => fs::write(self.directory.path().join("stray"), content).unwrap(),
            3 => drop(fs::create_dir(
                self.directory.path().join("stray-directory"),
            )),
            4 => drop(fs::create_dir(self.directory.path().join("stray-0"))),
            5 => fs::write(topic.join("not-a-number.log"), content).unwrap(),
            _ => {
                let base = self.end() * i64::from(how) / 256;
                if self.batches.iter().all(|b| b.base_offset != base) {
                    return; // only where no segment begins
                }
                let path = topic.join(format!("{base:020}.log"));
                let inside = self.batches.iter().filter(|b| b.base_offset >= base);
                let covered = inside.clone().next().is_some_and(|b| !b.is_hurt());
                if !path.exists() && covered {
                    fs::write(path, content).unwrap();
                }
            }
        }
    }

    fn check(&self, log: &Log) -> Vec<Offset> {
        let end = log.log_end_offset();
        let mut served = Vec::new();
        for offset in log.log_start_offset()..end {
            let holder = self
                .batches
                .iter()
                .find(|b| (b.base_offset..=b.last_offset).contains(&offset));
            let read = match log.read(offset, 1_500, Offset::MAX, true) {
                Ok(read) => read,
                Err(LogError::Damaged {
                    first_offset,
                    next_offset,
                }) => {
                    // Before it there may be a gap: a file that is gone.
                    assert!(first_offset < next_offset && offset < next_offset);
                    if let Some(holder) = holder {
                        assert!(holder.is_hurt(), "offset {offset} is well and not served");
                    }
                    continue;
                }
                Err(error) => panic!("offset {offset} of {end}: {error}"),
            };
            assert!(read.bytes > 0, "nothing at {offset} below {end}");
            let bytes = bytes_of(&read);
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let header = BatchHeader::parse(rest).unwrap();
                let (found, behind) = rest.split_at(header.total_bytes());
                rest = behind;
                let payload = &found[BATCH_HEADER_BYTES..];
                let whole = header.compute_crc(payload) == header.crc;
                let Some(true_one) = self
                    .batches
                    .iter()
                    .find(|b| b.base_offset == header.base_offset)
                else {
                    panic!("offset {} is nobody's", header.base_offset);
                };
                if whole {
                    assert_eq!(payload, true_one.payload, "at {}", header.base_offset);
                    assert!(!true_one.header_hurt() || true_one.epoch_hurt_only());
                } else {
                    assert!(true_one.is_hurt(), "offset {} was well", header.base_offset);
                }
                served.push(header.base_offset);
            }
            if let Some(holder) = holder.filter(|holder| !holder.is_hurt()) {
                let first = BatchHeader::parse(&bytes).unwrap();
                assert_eq!(first.base_offset, holder.base_offset, "read at {offset}");
                assert_eq!(first.partition_leader_epoch, holder.epoch);
            }
        }
        served
    }

    /// The offset up to which everything that was not touched must be there.
    fn safe_end(&self, recovered_end: Offset) -> Offset {
        let cut_from = self.batches.iter().find(|b| {
            // Only behind a batch that nobody vouches for and that looks unwritten, or at the end.
            b.is_hurt() && self.may_cut
        });
        match cut_from {
            Some(batch) => batch.base_offset.max(recovered_end),
            None => self.end(),
        }
    }
}

impl Batch {
    fn epoch_hurt_only(&self) -> bool {
        !self.lost
            && self
                .hurt
                .iter()
                .all(|&at| (12..16).contains(&at) || at >= 17)
    }
}

fn batches_on_disk(root: &Path) -> Vec<Batch> {
    let entries = fs::read_dir(root.join("topic-0")).unwrap();
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|e| e == "log"));
    files.sort();
    let mut batches = Vec::new();
    for file in files {
        let content = fs::read(&file).unwrap();
        let mut start = 0;
        for (header, payload) in batches_of(&content) {
            let end = start + header.total_bytes();
            batches.push(Batch {
                base_offset: header.base_offset,
                last_offset: header.last_offset(),
                epoch: header.partition_leader_epoch,
                payload,
                file: file.clone(),
                start,
                end,
                hurt: BTreeSet::new(),
                lost: false,
            });
            start = end;
        }
    }
    batches
}

/// Sixteen segments, read once from end to end.
fn running() -> (tempfile::TempDir, Arc<LogManager>, Arc<Log>) {
    let directory = tempfile::tempdir().unwrap();
    let manager = open_uncached(directory.path());
    let log = log_of(&manager);
    for number in 0..60_u8 {
        append(&log, batch(1_000, &[&[number + 1; 90], &[number + 1; 90]])).unwrap();
    }
    assert_eq!(read_all(&log, 0).len(), 60);
    (directory, manager, log)
}

#[test]
fn a_closed_segment_that_somebody_writes_to_is_checked_anew() {
    let (directory, _manager, log) = running();
    let path = directory.path().join("topic-0/00000000000000000000.log");
    let mut content = fs::read(&path).unwrap();
    let batch_bytes = batches_of(&content)[0].0.total_bytes();
    std::thread::sleep(std::time::Duration::from_millis(20)); // another time of change
    content[2 * batch_bytes + 7] ^= 0x40;
    fs::write(&path, &content).unwrap();
    // One read over the place, which was found well before.
    let read = log.read(0, 100_000, Offset::MAX, true).unwrap();
    assert_eq!(read.bytes, 2 * batch_bytes);
    assert!(matches!(
        log.read(4, 1_000, Offset::MAX, true),
        Err(LogError::Damaged {
            first_offset: 4,
            next_offset: 6
        })
    ));
    content[2 * batch_bytes + 7] ^= 0x40;
    std::thread::sleep(std::time::Duration::from_millis(20));
    fs::write(&path, &content).unwrap();
    assert_eq!(read_all(&log, 0).len(), 60, "mended");
}

/// A range that could not be sent is read into memory from then on: who asks hears of it.
#[test]
fn what_cannot_be_sent_is_read_into_memory() {
    let (_directory, _manager, log) = running();
    let read = log.read(0, 1_000, Offset::MAX, true).unwrap();
    let crate::log::LogSlice::File(range) = &read.slice else {
        panic!("{read:?}");
    };
    let before = bytes_of(&read);
    range
        .unreadable
        .store(true, std::sync::atomic::Ordering::Release);
    let read = log.read(0, 1_000, Offset::MAX, true).unwrap();
    assert!(matches!(read.slice, crate::log::LogSlice::Memory(_)));
    assert_eq!(bytes_of(&read), before);
}

proptest! {
    #![proptest_config(ProptestConfig {
        // The same cases each time; others, and more, by hand: LOG_DAMAGE_CASES=5000 TMPDIR=/dev/shm.
        cases: std::env::var("LOG_DAMAGE_CASES").map_or(100, |cases| cases.parse().unwrap()),
        rng_seed: match std::env::var("LOG_DAMAGE_CASES") {
            Ok(_) => RngSeed::Random,
            Err(_) => RngSeed::Fixed(20_261_129),
        },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn what_is_served_is_true_and_what_was_not_hurt_is_served(
        sizes in prop::collection::vec((1..5_usize, 1..250_usize), 2..60),
        clean in any::<bool>(),
        noted in any::<bool>(),
        harms in prop::collection::vec(harm(), 1..5),
    ) {
        let mut tested = Tested::new(&sizes, clean, noted);
        for harm in &harms {
            tested.harm(harm);
        }
        let manager = open_uncached(tested.directory.path());
        let log = log_of(&manager);
        tested.check(&log);
        let end = log.log_end_offset();
        let safe_end = tested.safe_end(end);
        let well = tested.batches.iter().filter(|b| !b.is_hurt() && b.last_offset < safe_end);
        for batch in well {
            assert!(batch.last_offset < end, "the log ends at {end}, {} was well", batch.last_offset);
        }
        let again = log
            .append(batch(5_000_000, &[b"again"]), 100, now())
            .unwrap();
        assert_eq!(again.base_offset, end);
        manager.close();
        drop((log, manager));
        let manager = open_uncached(tested.directory.path());
        let log = log_of(&manager);
        assert_eq!(log.log_end_offset(), end + 1);
        let last = log.read(end, 100, Offset::MAX, true).unwrap();
        assert_eq!(batches_of(&bytes_of(&last))[0].0.base_offset, end);
        let _ = log.offset_for_timestamp(1_100, Offset::MAX).unwrap();
        let _ = log.offset_of_max_timestamp().unwrap();
        let _ = log.producers();
    }
}

#[test]
fn what_is_written_behind_a_lost_end_is_read_after_the_next_start() {
    let sizes = [
        (3, 185),
        (3, 17),
        (1, 206),
        (2, 61),
        (1, 195),
        (2, 203),
        (1, 1),
        (2, 160),
        (3, 85),
        (3, 206),
    ];
    let mut tested = Tested::new(&sizes, false, true);
    tested.harm(&Harm::Cut {
        segment: 0.8688175772379295,
        bytes: 73,
    });
    let manager = open_uncached(tested.directory.path());
    let log = log_of(&manager);
    let end = log.log_end_offset();
    append(&log, batch(5_000, &[b"again"])).unwrap();
    manager.close();
    drop((log, manager));
    let manager = open_uncached(tested.directory.path());
    let log = log_of(&manager);
    let read = log.read(end, 100, Offset::MAX, true).unwrap();
    assert_eq!(batches_of(&bytes_of(&read))[0].0.base_offset, end);
}
