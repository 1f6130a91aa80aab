//! One segment of a log: a file of batches and its index.

use std::io;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use parking_lot::Mutex;

use super::checked::Ranges;
use super::directory::has_no_room;
use super::disk::{Disk, DiskFile, OpenMode, with_suffix};
use super::files::{FileKey, FilePool};
use super::index::{self, IndexEntry, OffsetEntry, TimeEntry};
use super::names::{self, FileKind};
use super::segment_index::{PENDING_MAX, SegmentIndex, WalkPlan, last_in_file};
use super::survey::Damage;
use super::walk::WalkError;
use crate::types::{Offset, TimestampMs, TopicPartition};

/// Where the files of one log are.
#[derive(Debug)]
pub(crate) struct LogFiles {
    pub id: u64,
    pub path: PathBuf,
    pub disk: Arc<dyn Disk>,
    pub pool: Arc<FilePool>,
    pub findings: Arc<Findings>,
}

/// Who hears of damage.
#[derive(Debug)]
pub(crate) struct Findings {
    pub partition: TopicPartition,
    /// Damaged places found since the start, in all logs.
    pub total: Arc<AtomicU64>,
    /// The disk did not read what was to be sent.
    pub unreadable: Arc<AtomicBool>,
}

impl Findings {
    /// Counts and tells what was not known before.
    pub(crate) fn tell(&self, segment: Offset, damage: &Damage) {
        self.total.fetch_add(1, Ordering::Relaxed);
        tracing::error!(
            partition = %self.partition, segment, position = damage.start,
            bytes = damage.end - damage.start, first_offset = damage.first_offset,
            next_offset = damage.next_offset, reason = damage.reason,
            "a log is damaged; what lies around it is served"
        );
    }
}

impl LogFiles {
    pub(crate) fn path_of(&self, offset: Offset, kind: FileKind) -> PathBuf {
        self.path.join(names::segment_file(offset, kind))
    }

    /// Opens a file of the segment at `base_offset` through the pool.
    pub(crate) fn open(
        &self,
        base_offset: Offset,
        kind: FileKind,
        mode: OpenMode,
    ) -> io::Result<Arc<dyn DiskFile>> {
        let key = self.key(base_offset, kind);
        self.pool
            .open(key, mode, || self.path_of(base_offset, kind))
    }

    /// The file, if it is open: does not block.
    pub(crate) fn opened(&self, base_offset: Offset, kind: FileKind) -> Option<Arc<dyn DiskFile>> {
        self.pool.opened(&self.key(base_offset, kind))
    }

    fn key(&self, base_offset: Offset, kind: FileKind) -> FileKey {
        FileKey {
            log: self.id,
            base_offset,
            kind,
        }
    }

    /// Closes a file that has another name now, or none.
    pub(crate) fn forget(&self, base_offset: Offset, kind: FileKind) {
        self.pool.forget(&self.key(base_offset, kind));
    }

    /// Removes a segment's files. Those who read one go on reading.
    pub(crate) fn remove_segment(&self, base_offset: Offset) -> io::Result<()> {
        for kind in FileKind::ALL {
            match self.disk.remove_file(&self.path_of(base_offset, kind)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            self.pool.forget(&self.key(base_offset, kind));
        }
        Ok(())
    }

    /// Renames a segment's files to `….deleted` and returns their new names. Those who read one go on
    /// reading.
    pub(crate) fn put_segment_aside(&self, base_offset: Offset) -> io::Result<Vec<PathBuf>> {
        self.put_aside(base_offset, |_| true)
    }

    /// The same with some of the files.
    pub(crate) fn put_aside(
        &self,
        base_offset: Offset,
        goes: impl Fn(FileKind) -> bool,
    ) -> io::Result<Vec<PathBuf>> {
        let mut put_aside = Vec::new();
        // The records last: what is there without them is of no segment.
        for kind in FileKind::ALL.into_iter().rev().filter(|kind| goes(*kind)) {
            let from = self.path_of(base_offset, kind);
            let to = with_suffix(&from, names::DELETED_FILE_SUFFIX);
            match self.disk.rename(&from, &to) {
                Ok(()) => put_aside.push(to),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                // Even a longer name may need room that a full disk has not: the file goes at once.
                Err(error) if has_no_room(&error) => match self.disk.remove_file(&from) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => {}
                },
                Err(error) => return Err(error),
            }
            // Only now: nobody opens it again by its old name.
            self.pool.forget(&self.key(base_offset, kind));
        }
        Ok(put_aside)
    }
}

const NOTHING_NOTED: TimestampMs = TimestampMs::MIN;

/// One segment. Only the log's writer changes it; anyone reads what `bytes` covers.
#[derive(Debug)]
pub(crate) struct Segment {
    pub base_offset: Offset,
    /// When it was made (or found), for rolling an untimed segment.
    pub created_ms: TimestampMs,
    bytes: AtomicU64,
    /// Up to here there is room for it on the disk (see `ahead`); 0 if none was taken.
    pub(super) room_end: AtomicU64,
    /// What the time index's end, the manifest or the file's time said, while the index is not loaded.
    noted_timestamp: AtomicI64,
    /// Offset behind the last batch, or where the next segment begins; [`Offset::MAX`] if not known.
    end_offset: AtomicI64,
    pub index: Mutex<SegmentIndex>,
    pub(super) checked: Mutex<Checked>,
    pub(super) findings: Arc<Findings>,
    /// Held by the one who writes index entries.
    writing_index: Mutex<()>,
    /// Held by the one who looks at the whole segment.
    pub(super) surveying: Mutex<()>,
    /// Its file is being cut or has another name: what is missing in it is no damage.
    pub(super) abandoned: AtomicBool,
}

/// What is known of the batches on disk. What this process wrote it believes.
#[derive(Debug, Default)]
pub(super) struct Checked {
    /// Where each header agrees with the next. Damage is in none of them.
    pub ranges: Ranges,
    /// `None` until somebody looked at the whole segment.
    pub damage: Option<Arc<[Damage]>>,
    /// When the file was written to last, once it is not written to any more.
    modified_ms: Option<TimestampMs>,
}

/// A run of whole batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run {
    pub position: u64,
    pub bytes: u64,
    /// Offset behind the last batch.
    pub next_offset: Offset,
}

/// What limits a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RunLimits {
    pub bytes_max: u64,
    /// Batches that reach this offset stay out.
    pub bound: Offset,
    pub at_least_one: bool,
    /// Offset behind the segment's published batches.
    pub segment_end: Offset,
    /// Bytes published with `segment_end`.
    pub segment_bytes: u64,
}

impl Segment {
    /// A segment without a file yet.
    pub(crate) fn new(
        base_offset: Offset,
        created_ms: TimestampMs,
        findings: &Arc<Findings>,
    ) -> Self {
        let (bytes, end) = (0, base_offset);
        Self::found(base_offset, created_ms, (bytes, end), findings).with(SegmentIndex::empty())
    }

    /// A segment on disk whose index is looked at when it is needed; `extent` is its bytes and the
    /// offset at which it ends.
    pub(crate) fn found(
        base_offset: Offset,
        created_ms: TimestampMs,
        extent: (u64, Offset),
        findings: &Arc<Findings>,
    ) -> Self {
        let (bytes, end_offset) = extent;
        Self {
            base_offset,
            created_ms,
            bytes: AtomicU64::new(bytes),
            room_end: AtomicU64::new(0),
            noted_timestamp: AtomicI64::new(NOTHING_NOTED),
            end_offset: AtomicI64::new(end_offset),
            index: Mutex::new(SegmentIndex::default()),
            checked: Mutex::new(Checked {
                ranges: Ranges::from(bytes),
                ..Checked::default()
            }),
            findings: Arc::clone(findings),
            writing_index: Mutex::new(()),
            surveying: Mutex::new(()),
            abandoned: AtomicBool::new(false),
        }
    }

    /// What whoever still reads it finds in the file means nothing from now on.
    pub(crate) fn abandon(&self) {
        self.abandoned.store(true, Ordering::SeqCst);
    }

    /// An error once the segment was cut off or deleted.
    pub(super) fn check_abandoned(&self) -> io::Result<()> {
        match self.abandoned.load(Ordering::SeqCst) {
            true => Err(io::Error::new(
                io::ErrorKind::NotFound,
                "the segment is no longer part of the log",
            )),
            false => Ok(()),
        }
    }

    pub(crate) fn with(self, index: SegmentIndex) -> Self {
        *self.index.lock() = index;
        self
    }

    /// With what a look at the whole segment has found (and told of).
    pub(crate) fn surveyed(self, damage: Option<Arc<[Damage]>>) -> Self {
        self.checked.lock().damage = damage;
        self
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Acquire)
    }

    /// A closed segment that somebody else has written to is checked anew.
    pub(crate) fn notice_change(&self, file: &dyn DiskFile) {
        let Ok(modified_ms) = file.modified_ms() else {
            return;
        };
        let mut checked = self.checked.lock();
        let known = checked.modified_ms.replace(modified_ms);
        if known.is_some_and(|known| known != modified_ms) {
            checked.ranges = Ranges::default();
            checked.damage = None;
        }
    }

    /// Publishes bytes that are written, and the offset behind them.
    pub(crate) fn set_bytes(&self, bytes: u64, end_offset: Offset) {
        self.end_offset.store(end_offset, Ordering::Release);
        self.bytes.store(bytes, Ordering::Release);
    }

    pub(crate) fn end_offset(&self) -> Offset {
        self.end_offset.load(Ordering::Acquire)
    }

    /// `None` until somebody looked at the whole segment.
    pub(crate) fn damage(&self) -> Option<Arc<[Damage]>> {
        self.checked.lock().damage.clone()
    }

    pub(crate) fn log_file(&self, files: &LogFiles) -> io::Result<Arc<dyn DiskFile>> {
        files.open(self.base_offset, FileKind::Log, OpenMode::Write)
    }

    /// Remembers what is known of the timestamps without loading the index.
    pub(crate) fn note_timestamp(&self, largest: TimestampMs) {
        self.noted_timestamp.store(largest, Ordering::Relaxed);
    }

    /// The largest timestamp as far as it is known without I/O, for the manifest.
    pub(crate) fn known_timestamp(&self) -> Option<TimestampMs> {
        let index = self.index.lock();
        let largest = index.max_timestamp.map(|(timestamp, _)| timestamp);
        let noted = self.noted_timestamp.load(Ordering::Relaxed);
        match index.loaded {
            true => largest.filter(|largest| *largest >= 0),
            false => Some(noted).filter(|noted| *noted != NOTHING_NOTED),
        }
    }

    /// The largest timestamp of its records; where they have none, the time at which they were written.
    ///
    /// Of a segment whose index is not loaded the end of the time index is believed if it is in
    /// `believed`: neither so old that the segment would go, nor from the future. Anything else is
    /// checked against the batches.
    pub(crate) fn largest_timestamp(
        &self,
        files: &LogFiles,
        interval: u64,
        believed: &RangeInclusive<TimestampMs>,
    ) -> Result<TimestampMs, WalkError> {
        let loaded = self.index.lock().loaded;
        let mut known = self.known_timestamp();
        if known.is_none() && !loaded {
            known = self.timestamp_at_end(files)?;
        }
        if let Some(known) = known {
            self.note_timestamp(known);
            // The usual case: no file is touched.
            if believed.contains(&known) {
                return Ok(known);
            }
        }
        if self.existing_file(files)?.is_none() {
            // Nothing is kept by keeping it.
            return Ok(known.unwrap_or(0));
        }
        match self.ensure_loaded(files, interval) {
            // Damaged, and so not appended to any more: by what is known, the younger of both.
            Err(WalkError::Bad { .. }) => {
                let written = self.log_file(files)?.modified_ms()?;
                return Ok(known.map_or(written, |known| known.max(written)));
            }
            loaded => loaded?,
        }
        let largest = self.index.lock().max_timestamp;
        match largest {
            Some((timestamp, _)) if timestamp >= 0 => Ok(timestamp),
            _ => Ok(self.log_file(files)?.modified_ms()?),
        }
    }

    /// What the last entry of the time index says.
    fn timestamp_at_end(&self, files: &LogFiles) -> io::Result<Option<TimestampMs>> {
        let file = match files.open(self.base_offset, FileKind::TimeIndex, OpenMode::Write) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let whole = file.bytes()? / TimeEntry::BYTES as u64;
        let Some(last) = whole.checked_sub(1) else {
            return Ok(None);
        };
        let position = last * TimeEntry::BYTES as u64;
        let mut entry = [0; TimeEntry::BYTES];
        let read = file.read_at(&mut entry, position)?;
        Ok(TimeEntry::read(&entry[..read]).map(|entry| entry.timestamp))
    }

    /// Looks at the index files once.
    pub(crate) fn ensure_loaded(&self, files: &LogFiles, interval: u64) -> Result<(), WalkError> {
        if self.index.lock().loaded {
            return Ok(());
        }
        self.load(files, interval)
    }

    fn load(&self, files: &LogFiles, index_interval_bytes: u64) -> Result<(), WalkError> {
        let file = self.log_file(files)?;
        let mut plan = WalkPlan {
            base_offset: self.base_offset,
            bytes: self.bytes(),
            index_interval_bytes,
            trusted_below: Offset::MAX,
            check_crc: false,
            damage: self.damage(),
        };
        let mut loaded = SegmentIndex::load(files, &*file, &plan)?;
        if loaded.damage.is_some() {
            plan.damage = self.survey(&*file)?;
            loaded = SegmentIndex::load(files, &*file, &plan)?;
        }
        if let Some(reason) = loaded.damage {
            return Err(WalkError::Bad {
                position: loaded.bytes,
                reason,
            });
        }
        {
            let mut index = self.index.lock();
            if !index.loaded {
                *index = loaded.index;
            }
        }
        if let Err(error) = self.write_index(files, PENDING_MAX) {
            tracing::warn!(directory = %files.path.display(), %error, "write index entries");
        }
        Ok(())
    }

    /// Forgets the index and makes it anew from the batches.
    pub(super) fn rebuild(&self, files: &LogFiles, interval: u64) -> Result<(), WalkError> {
        tracing::warn!(
            directory = %files.path.display(), base_offset = self.base_offset,
            "the index of a segment contradicts its batches and is made anew"
        );
        for kind in [FileKind::OffsetIndex, FileKind::TimeIndex] {
            match files.open(self.base_offset, kind, OpenMode::Write) {
                Ok(file) => file.truncate(0)?,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error.into()),
            }
        }
        {
            let _writing = self.writing_index.lock();
            *self.index.lock() = SegmentIndex::default();
        }
        self.load(files, interval)
    }

    /// Writes index entries that are only in memory, if there are more than `pending_max`.
    pub(crate) fn write_index(&self, files: &LogFiles, pending_max: usize) -> io::Result<()> {
        let _writing = self.writing_index.lock();
        let (offsets, offsets_at, times, times_at) = {
            let index = self.index.lock();
            if !index.loaded || index.offsets.len().max(index.times.len()) <= pending_max {
                return Ok(());
            }
            (
                index::encode(&index.offsets),
                u64::from(index.offsets_on_disk) * OffsetEntry::BYTES as u64,
                index::encode(&index.times),
                u64::from(index.times_on_disk) * TimeEntry::BYTES as u64,
            )
        };
        for (kind, bytes, position) in [
            (FileKind::OffsetIndex, &offsets, offsets_at),
            (FileKind::TimeIndex, &times, times_at),
        ] {
            let file = files.open(self.base_offset, kind, OpenMode::Create)?;
            if !bytes.is_empty() {
                file.write_at(bytes, &[], position)?;
            }
        }
        let mut index = self.index.lock();
        let offset_count = offsets.len() / OffsetEntry::BYTES;
        let time_count = times.len() / TimeEntry::BYTES;
        index.offsets.drain(..offset_count);
        index.times.drain(..time_count);
        index.offsets_on_disk += u32::try_from(offset_count).unwrap_or(0);
        index.times_on_disk += u32::try_from(time_count).unwrap_or(0);
        if pending_max == 0 {
            index.offsets.shrink_to_fit();
            index.times.shrink_to_fit();
        }
        Ok(())
    }

    /// Ends both indexes: nothing more will be appended (or the log is closed).
    pub(crate) fn finish_index(&self, files: &LogFiles) -> io::Result<()> {
        self.index.lock().add_time_entry(self.base_offset);
        // "More than −1": also an empty index gets its file, as Kafka's has.
        self.write_index_always(files)
    }

    fn write_index_always(&self, files: &LogFiles) -> io::Result<()> {
        for kind in [FileKind::OffsetIndex, FileKind::TimeIndex] {
            files.open(self.base_offset, kind, OpenMode::Create)?;
        }
        self.write_index(files, 0)
    }

    /// The last offset entry for which `holds`.
    pub(super) fn last_offset_entry(
        &self,
        files: &LogFiles,
        holds: &dyn Fn(&OffsetEntry) -> bool,
    ) -> io::Result<Option<OffsetEntry>> {
        let count = {
            let index = self.index.lock();
            let after = index.offsets.partition_point(holds);
            if let Some(found) = after.checked_sub(1).and_then(|at| index.offsets.get(at)) {
                return Ok(Some(*found));
            }
            index.offsets_on_disk
        };
        if count == 0 {
            return Ok(None);
        }
        let file = files.open(self.base_offset, FileKind::OffsetIndex, OpenMode::Write)?;
        last_in_file(&*file, count, holds)
    }
}
