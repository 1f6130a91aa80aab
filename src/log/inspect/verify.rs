//! Whether the files of logs are whole, and what of them is not.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use super::{name_of, open, read_file};
use crate::log::checkpoint::{self, MetaProperties};
use crate::log::disk::{Disk, DiskFile, RealDisk};
use crate::log::index::{self, IndexEntry, OffsetEntry, TimeEntry};
use crate::log::leader_epochs::LeaderEpochs;
use crate::log::manifest::Manifest;
use crate::log::names::{self, FileKind};
use crate::log::producer_state::SnapshotEntry;
use crate::log::survey::{Damage, SurveyPlan, survey};
use crate::log::walk::Located;
use crate::types::Offset;

/// One thing that is wrong with a file, or worth a look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub path: PathBuf,
    /// Byte at which it begins, where there is one.
    pub position: Option<u64>,
    /// First offset that it concerns, and the one behind the last.
    pub offsets: Option<(Offset, Offset)>,
    pub what: String,
    /// False for what is only worth a look: a gap, a stranger's file.
    pub damage: bool,
}

/// What was looked at and found.
#[derive(Debug, Clone, Default)]
pub struct Report {
    pub findings: Vec<Finding>,
    pub partitions: u64,
    pub segments: u64,
    pub batches: u64,
    pub records: u64,
    pub bytes: u64,
}

impl Report {
    pub fn is_damaged(&self) -> bool {
        self.findings.iter().any(|finding| finding.damage)
    }

    fn add(&mut self, path: &Path, what: impl Into<String>) {
        self.push(path, None, None, what.into(), true);
    }

    fn note(&mut self, path: &Path, what: impl Into<String>) {
        self.push(path, None, None, what.into(), false);
    }

    fn push(
        &mut self,
        path: &Path,
        position: Option<u64>,
        offsets: Option<(Offset, Offset)>,
        what: String,
        damage: bool,
    ) {
        self.findings.push(Finding {
            path: path.to_owned(),
            position,
            offsets,
            what,
            damage,
        });
    }
}

/// Looks at everything under a log directory, a partition's directory, or at a segment file.
pub fn verify(path: &Path) -> io::Result<Report> {
    let mut report = Report::default();
    if !std::fs::metadata(path)?.is_dir() {
        verify_file(path, &mut report)?;
        return Ok(report);
    }
    let mut entries = RealDisk.list(path)?;
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    let is_partition = entries
        .iter()
        .any(|entry| !entry.is_directory && names::parse_segment_file(&entry.name).is_some());
    if is_partition {
        verify_partition(path, &mut report)?;
        return Ok(report);
    }
    for entry in entries {
        let path = path.join(&entry.name);
        if entry.is_directory {
            if names::parse_partition_directory(&entry.name).is_some() {
                verify_partition(&path, &mut report)?;
            } else if !names::is_known(&entry.name, true) {
                report.note(&path, "no directory of a partition");
            }
        } else {
            verify_small(&path, &mut report)?;
        }
    }
    Ok(report)
}

/// One segment with its indexes, or one small file.
fn verify_file(path: &Path, report: &mut Report) -> io::Result<()> {
    let Some((base, _)) = names::parse_segment_file(name_of(path)) else {
        return verify_small(path, report);
    };
    if path
        .extension()
        .is_some_and(|extension| extension == "snapshot")
    {
        return verify_snapshot(path, Offset::MAX, report);
    }
    let log = path.with_extension("log");
    let found = verify_segment(&log, base, Offset::MAX, true, &mut Vec::new(), report)?;
    report.segments += u64::from(found.is_some());
    Ok(())
}

fn verify_small(path: &Path, report: &mut Report) -> io::Result<()> {
    let name = name_of(path);
    let whole = |read: fn(&str) -> bool| -> io::Result<bool> {
        Ok(std::str::from_utf8(&read_file(path)?).is_ok_and(read))
    };
    let good = match name {
        names::META_PROPERTIES => whole(|text| {
            let meta = MetaProperties::from_text(text);
            meta.cluster_id.is_some() && meta.node_id.is_some()
        })?,
        names::RECOVERY_POINT_CHECKPOINT
        | names::LOG_START_CHECKPOINT
        | names::REPLICATION_CHECKPOINT
        | "cleaner-offset-checkpoint" => whole(|text| checkpoint::offsets_from_text(text).1)?,
        names::MANIFEST => whole(|text| Manifest::from_text(text).is_some())?,
        names::PARTITION_METADATA => {
            whole(|text| checkpoint::partition_metadata_from_text(text).is_some())?
        }
        names::LEADER_EPOCH_CHECKPOINT => whole(|text| LeaderEpochs::from_text(text).is_some())?,
        _ => {
            if !names::is_known(name, false) {
                report.note(path, "no file of a log");
            }
            true
        }
    };
    if !good {
        report.add(
            path,
            "not what Kafka writes: it is made anew, or its content is gone",
        );
    }
    Ok(())
}

fn verify_partition(directory: &Path, report: &mut Report) -> io::Result<()> {
    report.partitions += 1;
    let mut segments: BTreeMap<Offset, PathBuf> = BTreeMap::new();
    let mut snapshots = Vec::new();
    let mut entries = RealDisk.list(directory)?;
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    for entry in entries {
        let path = directory.join(&entry.name);
        match names::parse_segment_file(&entry.name).filter(|_| !entry.is_directory) {
            Some((base, FileKind::Log)) => drop(segments.insert(base, path)),
            Some((_, FileKind::ProducerSnapshot)) => snapshots.push(path),
            Some(_) => {}
            None if entry.is_directory => report.note(&path, "a directory among a log's files"),
            None => verify_small(&path, report)?,
        }
    }
    let bases: Vec<Offset> = segments.keys().copied().collect();
    let mut epochs = Vec::new();
    let mut log_end = None;
    for (number, (&base, path)) in segments.iter().enumerate() {
        let next = bases.get(number + 1).copied();
        let end = next.unwrap_or(Offset::MAX);
        let Some(found) = verify_segment(path, base, end, next.is_none(), &mut epochs, report)?
        else {
            continue; // deleted meanwhile
        };
        report.segments += 1;
        if let Some(next) = next.filter(|&next| found.end < next && !found.damaged_end) {
            report.push(
                path,
                None,
                Some((found.end, next)),
                "offsets that no segment has: compaction, or a lost end of the file".to_owned(),
                false,
            );
        }
        log_end = Some(found.end);
    }
    for path in snapshots {
        verify_snapshot(&path, log_end.unwrap_or(Offset::MAX), report)?;
    }
    verify_epochs(
        &directory.join(names::LEADER_EPOCH_CHECKPOINT),
        &epochs,
        report,
    )
}

/// What a segment turned out to be.
struct Found {
    /// Offset behind its last batch.
    end: Offset,
    damaged_end: bool,
}

/// `None` if the file is not there.
fn verify_segment(
    path: &Path,
    base_offset: Offset,
    end_offset: Offset,
    last: bool,
    epochs: &mut Vec<(i32, Offset)>,
    report: &mut Report,
) -> io::Result<Option<Found>> {
    let file = match open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut indexes = Indexes::read(path, base_offset)?;
    let bytes = file.bytes()?;
    let plan = SurveyPlan {
        base_offset,
        bytes,
        end_offset,
        dense_end: false,
    };
    let mut visit = |batch: &Located| {
        indexes.visit(batch);
        let epoch = batch.header.partition_leader_epoch;
        if epochs.last().is_none_or(|&(latest, _)| epoch > latest) {
            epochs.push((epoch, batch.header.base_offset));
        }
        Ok(())
    };
    let mut found = survey(&*file, plan, &mut visit)?;
    if last
        && found
            .damage
            .last()
            .is_some_and(|damage| damage.end == bytes)
        && grew(&*file, bytes)?
    {
        found.damage.pop(); // a broker is writing it
    }
    for damage in &found.damage {
        report.push(
            path,
            Some(damage.start),
            Some((damage.first_offset, damage.next_offset)),
            damage.reason.clone(),
            true,
        );
    }
    indexes.finish(&found.damage, last, report);
    report.batches += found.batches;
    report.records += found.records;
    report.bytes += bytes;
    let end = found
        .last
        .map_or(base_offset, |last| last.header.last_offset() + 1);
    Ok(Some(Found {
        end,
        damaged_end: found
            .damage
            .last()
            .is_some_and(|damage| damage.end == bytes),
    }))
}

fn grew(file: &dyn DiskFile, bytes: u64) -> io::Result<bool> {
    std::thread::sleep(std::time::Duration::from_millis(20));
    Ok(file.bytes()? > bytes)
}

/// The two indexes of a segment, held against its batches as they go by.
struct Indexes {
    offsets: Index<OffsetEntry>,
    times: Index<TimeEntry>,
    base_offset: Offset,
}

struct Index<E> {
    path: PathBuf,
    /// `None` where there is no file.
    entries: Option<Vec<E>>,
    next: usize,
    /// Which entries are wrong, the offset that each is about, and why.
    wrong: Vec<(usize, Offset, String)>,
}

impl<E: IndexEntry> Index<E> {
    fn read(log: &Path, extension: &str, sane: fn(&[E]) -> usize) -> io::Result<Self> {
        let path = log.with_extension(extension);
        let content = match read_file(&path) {
            Ok(content) => Some(content),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let mut wrong = Vec::new();
        let entries = content.map(|content| {
            let mut entries = index::decode::<E>(&content);
            let whole = content.len() % E::BYTES == 0;
            let count = sane(&entries);
            // A file that is preallocated ends with zeros.
            let rest = content.get(count * E::BYTES..).unwrap_or(&[]);
            if rest.iter().any(|&byte| byte != 0) || (!whole && rest.is_empty()) {
                wrong.push((count, Offset::MAX, "entries do not ascend".to_owned()));
            }
            entries.truncate(count);
            entries
        });
        Ok(Self {
            path,
            entries,
            next: 0,
            wrong,
        })
    }

    fn entry(&self) -> Option<&E> {
        self.entries.as_ref()?.get(self.next)
    }

    fn fail(&mut self, offset: Offset, what: String) {
        self.wrong.push((self.next, offset, what));
    }

    /// Tells of the first wrong entry that is not about a damaged batch.
    fn finish(mut self, damage: &[Damage], may_be_missing: bool, report: &mut Report) {
        self.wrong.sort_by_key(|wrong| wrong.0);
        let lost = |offset: Offset| {
            let mut places = damage.iter();
            places.any(|place| (place.first_offset..place.next_offset).contains(&offset))
        };
        let wrong = self.wrong.iter().find(|(_, offset, _)| !lost(*offset));
        if let Some((number, _, what)) = wrong {
            let position = (number * E::BYTES) as u64;
            report.push(&self.path, Some(position), None, what.clone(), true);
        } else if self.entries.is_none() && !may_be_missing {
            report.add(&self.path, "not there");
        }
    }
}

impl Indexes {
    fn read(log: &Path, base_offset: Offset) -> io::Result<Self> {
        let sane_offsets = |entries: &[OffsetEntry]| index::sane_offsets(entries, u64::MAX);
        Ok(Self {
            offsets: Index::read(log, "index", sane_offsets)?,
            times: Index::read(log, "timeindex", index::sane_times)?,
            base_offset,
        })
    }

    fn visit(&mut self, batch: &Located) {
        let header = &batch.header;
        while let Some(&entry) = self.offsets.entry()
            && u64::from(entry.position) <= batch.position
        {
            let offset = self.base_offset + Offset::from(entry.relative_offset);
            if u64::from(entry.position) != batch.position || header.last_offset() != offset {
                let what = format!("offset {offset} is not at position {}", entry.position);
                self.offsets.fail(offset, what);
            }
            self.offsets.next += 1;
        }
        while let Some(&entry) = self.times.entry()
            && self.base_offset + Offset::from(entry.relative_offset) <= header.last_offset()
        {
            let offset = self.base_offset + Offset::from(entry.relative_offset);
            if offset < header.base_offset || entry.timestamp != header.max_timestamp {
                let what = format!(
                    "timestamp {} is not that of offset {offset}",
                    entry.timestamp
                );
                self.times.fail(offset, what);
            }
            self.times.next += 1;
        }
    }

    fn finish(mut self, damage: &[Damage], last: bool, report: &mut Report) {
        const NOT_THERE: &str = "an entry for a batch that is not there";
        while let Some(&entry) = self.offsets.entry() {
            let offset = self.base_offset + Offset::from(entry.relative_offset);
            self.offsets.fail(offset, NOT_THERE.to_owned());
            self.offsets.next += 1;
        }
        while let Some(&entry) = self.times.entry() {
            let offset = self.base_offset + Offset::from(entry.relative_offset);
            self.times.fail(offset, NOT_THERE.to_owned());
            self.times.next += 1;
        }
        self.offsets.finish(damage, last, report);
        self.times.finish(damage, last, report);
    }
}

fn verify_snapshot(path: &Path, log_end: Offset, report: &mut Report) -> io::Result<()> {
    let content = match read_file(path) {
        Ok(content) => content,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    match SnapshotEntry::read_all(&content) {
        None => report.add(path, "its CRC or version is wrong"),
        Some(entries) => {
            let beyond = entries.iter().find(|entry| entry.last_offset >= log_end);
            if let Some(entry) = beyond {
                report.add(
                    path,
                    format!(
                        "producer {} has offset {}, the log ends at {log_end}",
                        entry.producer_id, entry.last_offset
                    ),
                );
            }
        }
    }
    Ok(())
}

/// Each entry is one of the batches', but for the first (records before it may be deleted).
fn verify_epochs(path: &Path, found: &[(i32, Offset)], report: &mut Report) -> io::Result<()> {
    let content = match read_file(path) {
        Ok(content) => content,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let text = std::str::from_utf8(&content).ok();
    let Some(epochs) = text.and_then(LeaderEpochs::from_text) else {
        return Ok(()); // told of already
    };
    let Some(&(_, first)) = found.first() else {
        return Ok(());
    };
    for &(epoch, start) in epochs.entries().iter().skip(1) {
        if start > first
            && found
                .iter()
                .any(|&(known, at)| known == epoch && at != start)
        {
            report.push(
                path,
                None,
                Some((start, start + 1)),
                format!("epoch {epoch} does not begin at offset {start}"),
                true,
            );
        }
    }
    Ok(())
}
