//! One segment of a log: a file of batches and its index.

use std::io;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use parking_lot::Mutex;

use super::disk::{Disk, DiskFile, OpenMode, with_suffix};
use super::files::{FileKey, FilePool};
use super::index::{self, IndexEntry, OffsetEntry, TimeEntry};
use super::names::{self, FileKind};
use super::segment_index::{PENDING_MAX, SegmentIndex, WalkPlan, last_in_file};
use super::walk::{Located, WalkError, Walker};
use crate::types::{Offset, TimestampMs};

/// Where the files of one log are.
#[derive(Debug)]
pub(crate) struct LogFiles {
    pub id: u64,
    pub path: PathBuf,
    pub disk: Arc<dyn Disk>,
    pub pool: Arc<FilePool>,
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

    fn key(&self, base_offset: Offset, kind: FileKind) -> FileKey {
        FileKey {
            log: self.id,
            base_offset,
            kind,
        }
    }

    /// Removes a segment's files. Those who read one go on reading.
    pub(crate) fn remove_segment(&self, base_offset: Offset) -> io::Result<()> {
        for kind in FileKind::ALL {
            self.pool.forget(&self.key(base_offset, kind));
            match self.disk.remove_file(&self.path_of(base_offset, kind)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Renames a segment's files to `….deleted` and returns their new names. Those who read one go on
    /// reading.
    pub(crate) fn put_segment_aside(&self, base_offset: Offset) -> io::Result<Vec<PathBuf>> {
        let mut put_aside = Vec::new();
        // The records last: what is there without them is of no segment.
        for kind in FileKind::ALL.into_iter().rev() {
            let from = self.path_of(base_offset, kind);
            let to = with_suffix(&from, names::DELETED_FILE_SUFFIX);
            match self.disk.rename(&from, &to) {
                Ok(()) => put_aside.push(to),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
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
    /// What the time index's end, the manifest or the file's time said, while the index is not loaded.
    noted_timestamp: AtomicI64,
    pub index: Mutex<SegmentIndex>,
    /// Held by the one who writes index entries.
    writing_index: Mutex<()>,
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
    pub(crate) fn new(base_offset: Offset, created_ms: TimestampMs) -> Self {
        Self::with_index(base_offset, created_ms, 0, SegmentIndex::empty())
    }

    /// A segment on disk whose index is looked at when it is needed.
    pub(crate) fn unloaded(base_offset: Offset, created_ms: TimestampMs, bytes: u64) -> Self {
        Self::with_index(base_offset, created_ms, bytes, SegmentIndex::default())
    }

    pub(crate) fn with_index(
        base_offset: Offset,
        created_ms: TimestampMs,
        bytes: u64,
        index: SegmentIndex,
    ) -> Self {
        Self {
            base_offset,
            created_ms,
            bytes: AtomicU64::new(bytes),
            noted_timestamp: AtomicI64::new(NOTHING_NOTED),
            index: Mutex::new(index),
            writing_index: Mutex::new(()),
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Acquire)
    }

    /// Publishes bytes that are written.
    pub(crate) fn set_bytes(&self, bytes: u64) {
        self.bytes.store(bytes, Ordering::Release);
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
        if !self.index.lock().loaded {
            let noted = match self.noted_timestamp.load(Ordering::Relaxed) {
                NOTHING_NOTED => self.timestamp_at_end(files)?,
                noted => Some(noted),
            };
            if let Some(noted) = noted {
                self.note_timestamp(noted);
                if believed.contains(&noted) {
                    return Ok(noted);
                }
            }
            match self.ensure_loaded(files, interval) {
                // Damaged, and so not appended to any more: by what is known, the younger of both.
                Err(WalkError::Bad { .. }) => {
                    let written = self.log_file(files)?.modified_ms()?;
                    return Ok(noted.map_or(written, |noted| noted.max(written)));
                }
                loaded => loaded?,
            }
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
        let plan = WalkPlan {
            base_offset: self.base_offset,
            bytes: self.bytes(),
            index_interval_bytes,
            trusted_below: Offset::MAX,
            check_crc: false,
        };
        let loaded = SegmentIndex::load(files, &*file, &plan)?;
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
    fn rebuild(&self, files: &LogFiles, interval: u64) -> Result<(), WalkError> {
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
        if pending_max < PENDING_MAX {
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
    fn last_offset_entry(
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

    /// The last time entry at or before `timestamp`, as an offset.
    pub(crate) fn time_floor(
        &self,
        files: &LogFiles,
        timestamp: TimestampMs,
    ) -> io::Result<Option<Offset>> {
        let holds = |entry: &TimeEntry| entry.timestamp <= timestamp;
        let absolute = |entry: TimeEntry| index::absolute(self.base_offset, entry.relative_offset);
        let count = {
            let index = self.index.lock();
            let after = index.times.partition_point(holds);
            if let Some(found) = after.checked_sub(1).and_then(|at| index.times.get(at)) {
                return Ok(absolute(*found));
            }
            index.times_on_disk
        };
        if count == 0 {
            return Ok(None);
        }
        let file = files.open(self.base_offset, FileKind::TimeIndex, OpenMode::Write)?;
        Ok(last_in_file(&*file, count, &holds)?.and_then(absolute))
    }

    /// A walker that stands on a batch at or before the one that holds `offset`.
    pub(crate) fn walk_from<'a>(
        &self,
        files: &LogFiles,
        file: &'a dyn DiskFile,
        offset: Offset,
        bytes: u64,
        interval: u64,
    ) -> Result<Walker<'a>, WalkError> {
        self.ensure_loaded(files, interval)?;
        let relative = offset.saturating_sub(self.base_offset).max(0);
        let holds = |entry: &OffsetEntry| i64::from(entry.relative_offset) <= relative;
        for attempt in 0..2 {
            let entry = self.last_offset_entry(files, &holds)?;
            let Some(entry) = entry.filter(|entry| u64::from(entry.position) < bytes) else {
                break;
            };
            let position = u64::from(entry.position);
            let mut walker = Walker::new(file, position, bytes, self.base_offset);
            let first = walker.next();
            let agrees = matches!(
                &first,
                Ok(Some(batch)) if index::relative(self.base_offset, batch.header.last_offset())
                    == Some(entry.relative_offset)
            );
            if agrees {
                return Ok(Walker::new(file, position, bytes, self.base_offset));
            }
            if attempt == 0 {
                self.rebuild(files, interval)?;
            }
        }
        Ok(Walker::new(file, 0, bytes, self.base_offset))
    }

    /// A walker up to `end` that stands on the first batch at or before `position` that an entry names.
    pub(crate) fn walk_from_position<'a>(
        &self,
        files: &LogFiles,
        file: &'a dyn DiskFile,
        position: u64,
        end: u64,
    ) -> Result<Walker<'a>, WalkError> {
        let entry =
            self.last_offset_entry(files, &|entry| u64::from(entry.position) <= position)?;
        let start = entry.map_or(0, |entry| u64::from(entry.position));
        Ok(Walker::new(file, start, end, self.base_offset))
    }

    /// The batch that holds `offset`, or the first behind it. `None` past the last.
    pub(crate) fn locate(
        &self,
        files: &LogFiles,
        file: &dyn DiskFile,
        offset: Offset,
        bytes: u64,
        interval: u64,
    ) -> Result<Option<Located>, WalkError> {
        let mut walker = self.walk_from(files, file, offset, bytes, interval)?;
        while let Some(batch) = walker.next()? {
            if batch.header.last_offset() >= offset {
                return Ok(Some(batch));
            }
        }
        Ok(None)
    }

    /// Whole batches from `first` on, within the limits. Zero bytes if not even the first fits.
    pub(crate) fn run(
        &self,
        files: &LogFiles,
        file: &dyn DiskFile,
        first: &Located,
        limits: &RunLimits,
    ) -> Result<Run, WalkError> {
        let position = first.position;
        let mut run = Run {
            position,
            bytes: 0,
            next_offset: first.header.base_offset,
        };
        if first.header.last_offset() >= limits.bound {
            return Ok(run);
        }
        let rest = limits.segment_bytes.saturating_sub(position);
        if limits.bound >= limits.segment_end && rest <= limits.bytes_max {
            run.bytes = rest;
            run.next_offset = limits.segment_end;
            return Ok(run);
        }
        if first.header.total_bytes() as u64 > limits.bytes_max {
            if limits.at_least_one {
                run.bytes = first.header.total_bytes() as u64;
                run.next_offset = first.header.last_offset() + 1;
            }
            return Ok(run);
        }
        let end_max = position.saturating_add(limits.bytes_max);
        let bound = limits.bound.saturating_sub(self.base_offset);
        let entry = self.last_offset_entry(files, &|entry| {
            u64::from(entry.position) <= end_max && i64::from(entry.relative_offset) < bound
        })?;
        let start = entry
            .map(|entry| u64::from(entry.position))
            .filter(|&start| start > position && start < limits.segment_bytes)
            .unwrap_or(position);
        let mut walker = Walker::new(file, start, limits.segment_bytes, self.base_offset);
        run.bytes = start - position;
        loop {
            let batch = match walker.next() {
                Ok(Some(batch)) => batch,
                Ok(None) => break,
                // A jump by a wrong index entry: walk from where the batches are known.
                Err(WalkError::Bad { .. }) if start > position && run.bytes == start - position => {
                    walker = Walker::new(file, position, limits.segment_bytes, self.base_offset);
                    run.bytes = 0;
                    continue;
                }
                Err(error) => return Err(error),
            };
            run.next_offset = run.next_offset.max(batch.header.base_offset);
            if batch.end() > end_max || batch.header.last_offset() >= limits.bound {
                break;
            }
            run.bytes = batch.end() - position;
            run.next_offset = batch.header.last_offset() + 1;
        }
        Ok(run)
    }
}
