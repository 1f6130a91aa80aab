//! Reading from a log: whole batches from the cache or the file, and offsets by time.

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;

use super::disk::DiskFile;
use super::log::{FileRange, Log, LogError, LogRead, LogSlice, TimestampOffset};
use super::names::FileKind;
use super::segment::{Run, RunLimits, Segment};
use super::tail_cache::CachedRun;
use super::walk::{Located, WalkError, read_payload};
use crate::record::{decompressed_bytes_max, scan};
use crate::types::{NO_TIMESTAMP, Offset, TimestampMs};

/// So much is sent from the file even where it is in memory: from here on the kernel's own copy of it costs less
/// than one more of ours, twice.
pub(super) const SENT_FROM_FILE_BYTES_MIN: usize = 32 << 10;
/// A segment is looked at as a whole once; a file that somebody else writes to may be looked at again.
const RUN_ATTEMPTS: usize = 4;

impl LogRead {
    fn empty() -> Self {
        Self {
            slice: LogSlice::Memory(Vec::new()),
            bytes: 0,
            more: false,
        }
    }
}

/// A segment and what of it was published when it was looked up.
struct Found {
    segment: Arc<Segment>,
    /// Base offset of the next segment, or the log's end.
    end: Offset,
    bytes: u64,
    /// Nothing is written to it any more.
    closed: bool,
}

impl Log {
    /// Reads whole batches from the one that holds `offset` on, all below `bound`. Never empty when a
    /// batch is there: the first is returned even if larger than `bytes_max` (KIP-74) when
    /// `at_least_one`. One read stays in one segment.
    pub fn read(
        &self,
        offset: Offset,
        bytes_max: usize,
        bound: Offset,
        at_least_one: bool,
    ) -> Result<LogRead, LogError> {
        loop {
            let truncations = self.truncations.load(Ordering::Acquire);
            match self.read_once(offset, bytes_max, bound, at_least_one) {
                // What it looked at was cut off meanwhile.
                Err(_) if self.truncations.load(Ordering::Acquire) != truncations => {}
                read => return read,
            }
        }
    }

    fn read_once(
        &self,
        offset: Offset,
        bytes_max: usize,
        bound: Offset,
        at_least_one: bool,
    ) -> Result<LogRead, LogError> {
        self.check_usable()?;
        let end = self.log_end_offset();
        self.check_range(offset, end)?;
        let bound = bound.min(end);
        if offset >= bound {
            self.reader_is_at_the_end();
            return Ok(LogRead::empty());
        }
        if let Some(read) = self.read_cached(offset, bytes_max, bound, at_least_one) {
            return Ok(read);
        }
        let mut at = offset;
        loop {
            match self.read_segment(at, bytes_max, bound, at_least_one) {
                Ok(Ok(read)) => {
                    if !read.more {
                        self.reader_is_at_the_end();
                    }
                    return Ok(read);
                }
                Ok(Err(next)) => {
                    // Deleted while we looked: then the offset is out of range now.
                    self.check_usable()?;
                    self.check_range(offset, end)?;
                    if next < bound && next > at {
                        // Compaction left nothing at the end of that segment.
                        at = next;
                    } else if next >= end {
                        // Whatever is taken out of a log, its last batch stays: what was here was lost.
                        return Err(LogError::Damaged {
                            first_offset: at,
                            next_offset: end,
                        });
                    } else {
                        return Ok(LogRead::empty());
                    }
                }
                Err(error) => {
                    self.check_usable()?;
                    self.check_range(offset, end)?;
                    return Err(error);
                }
            }
        }
    }

    /// The same, answered only if it cannot block (tail cache); `None` sends the caller to an executor.
    pub fn read_cached(
        &self,
        offset: Offset,
        bytes_max: usize,
        bound: Offset,
        at_least_one: bool,
    ) -> Option<LogRead> {
        let truncations = self.truncations.load(Ordering::Acquire);
        let end = self.log_end_offset();
        if offset < self.log_start_offset() || offset > end || self.check_usable().is_err() {
            return None; // the blocking read says why
        }
        let bound = bound.min(end);
        if offset >= bound {
            self.reader_is_at_the_end();
            return Some(LogRead::empty());
        }
        let cache = &self.directory.cache;
        let run = cache.read(self.files.id, offset, bytes_max, bound, at_least_one)?;
        let (bytes, next_offset) = (run.bytes, run.next_offset);
        let slice = self.slice_of_cached(offset, run)?;
        if self.truncations.load(Ordering::Acquire) != truncations {
            return None; // the place may be one in a file that is no more, and the file the next one
        }
        self.reader_is_at_the_end();
        Some(LogRead {
            bytes,
            more: next_offset < bound,
            slice,
        })
    }

    /// `None` if the way by the disk must look at it: where the file is not open, did not read what was to be
    /// sent, or is not believed any more.
    fn slice_of_cached(&self, offset: Offset, run: CachedRun) -> Option<LogSlice> {
        if run.bytes >= SENT_FROM_FILE_BYTES_MIN || run.pieces.is_none() {
            let file = self.files.opened(run.place.segment, FileKind::Log);
            let real = file.as_ref().and_then(|file| file.as_file());
            let sent = real
                .filter(|_| self.is_believed(offset))
                .and_then(|file| self.range(file, run.place.position, run.bytes as u64));
            if let Some(range) = sent {
                return Some(LogSlice::File(range));
            }
        }
        run.pieces.map(LogSlice::Memory)
    }

    /// Whether what this process wrote there goes out unseen: the segment is still written to, and nobody found
    /// damage in it.
    fn is_believed(&self, offset: Offset) -> bool {
        let undamaged = |segment: &Segment| segment.damage().is_none_or(|found| found.is_empty());
        self.find(offset)
            .is_some_and(|found| !found.closed && undamaged(&found.segment))
    }

    /// A piece of the real file, as long as it reads.
    fn range(&self, file: &Arc<File>, position: u64, bytes: u64) -> Option<FileRange> {
        let unreadable = &self.files.findings.unreadable;
        (!unreadable.load(Ordering::Acquire)).then(|| FileRange {
            file: Arc::clone(file),
            position,
            bytes,
            unreadable: Arc::clone(unreadable),
        })
    }

    /// A reader keeps up: what is appended from now on is kept in memory for it.
    pub fn reader_is_at_the_end(&self) {
        let now_ms = self.directory.clock.wall_ms();
        self.read_at_end_ms.store(now_ms, Ordering::Relaxed);
    }

    fn check_range(&self, offset: Offset, log_end_offset: Offset) -> Result<(), LogError> {
        let log_start_offset = self.log_start_offset();
        if (log_start_offset..=log_end_offset).contains(&offset) {
            return Ok(());
        }
        Err(LogError::OffsetOutOfRange {
            offset,
            log_start_offset,
            log_end_offset,
        })
    }

    /// About when the record at `offset`, or the first behind it, was written; `None` where nothing is.
    /// Reads no more than headers.
    pub fn about_time_of(&self, offset: Offset) -> Result<Option<TimestampMs>, LogError> {
        self.check_usable()?;
        let mut at = offset.max(self.log_start_offset());
        while at < self.log_end_offset() {
            let Some(found) = self.find(at) else {
                return Ok(None);
            };
            let segment = &found.segment;
            let interval = self.index_interval();
            let batch = match segment.existing_file(&self.files)? {
                Some(file) if found.bytes > 0 => {
                    segment.locate(&self.files, &*file, at, found.bytes, interval)?
                }
                _ => None,
            };
            match batch {
                Some(batch) => return Ok(batch.header.about_time_of(at)),
                None if found.end > at => at = found.end,
                None => return Ok(None),
            }
        }
        Ok(None)
    }

    /// The segment that holds `offset`.
    fn find(&self, offset: Offset) -> Option<Found> {
        let log_end = self.log_end_offset();
        let view = self.view.lock();
        let after = view
            .segments
            .partition_point(|segment| segment.base_offset <= offset);
        let segment = view.segments.get(after.checked_sub(1)?)?;
        Some(Found {
            segment: Arc::clone(segment),
            end: view
                .segments
                .get(after)
                .map_or(log_end, |next| next.base_offset.min(log_end)),
            bytes: segment.bytes(),
            closed: after < view.segments.len(),
        })
    }

    /// `Err(next)` if the segment has no batch at or past `offset`: go on with the next segment.
    fn read_segment(
        &self,
        offset: Offset,
        bytes_max: usize,
        bound: Offset,
        at_least_one: bool,
    ) -> Result<Result<LogRead, Offset>, LogError> {
        let Some(found) = self.find(offset) else {
            // Below the first segment: compaction or a lost file; the next record is there.
            let view = self.view.lock();
            let first = view
                .segments
                .first()
                .map_or(bound, |first| first.base_offset);
            return Ok(Err(first));
        };
        if found.bytes == 0 {
            return Ok(Err(found.end));
        }
        let segment = &found.segment;
        let Some(file) = segment.existing_file(&self.files)? else {
            return Err(LogError::Damaged {
                first_offset: segment.base_offset,
                next_offset: found.end,
            });
        };
        if found.closed {
            segment.notice_change(&*file);
        }
        let interval = self.index_interval();
        let limits = RunLimits {
            bytes_max: bytes_max as u64,
            bound,
            at_least_one,
            segment_end: found.end,
            segment_bytes: found.bytes,
        };
        for _ in 0..RUN_ATTEMPTS {
            let first = segment.locate(&self.files, &*file, offset, found.bytes, interval)?;
            let Some(first) = first else {
                return Ok(Err(found.end));
            };
            let Some(run) = segment.run(&self.files, &*file, &first, &limits)? else {
                continue; // damage was found: what is around it is to be looked up again
            };
            let (slice, run) = self.slice_of(&*file, &first, run)?;
            let below_bound = first.header.last_offset() < bound;
            return Ok(Ok(LogRead {
                bytes: usize::try_from(run.bytes).unwrap_or(usize::MAX),
                more: below_bound && run.next_offset < bound,
                slice,
            }));
        }
        Err(LogError::Corrupt(format!(
            "segment {} changes under its readers",
            segment.base_offset
        )))
    }

    /// The run as a range of the real file, or read into memory where the disk is a simulated one or
    /// did not read what was to be sent: what it does not read is an error here, not of a connection.
    fn slice_of(
        &self,
        file: &dyn DiskFile,
        first: &Located,
        run: Run,
    ) -> Result<(LogSlice, Run), LogError> {
        if run.bytes == 0 {
            return Ok((LogSlice::Memory(Vec::new()), run));
        }
        let real = file.as_file();
        if let Some(range) = real.and_then(|file| self.range(file, run.position, run.bytes)) {
            return Ok((LogSlice::File(range), run));
        }
        let one = Run {
            bytes: first.header.total_bytes() as u64,
            next_offset: first.header.last_offset() + 1,
            ..run
        };
        match in_memory(file, &run) {
            Ok(slice) => Ok((slice, run)),
            // As far as it can be read, batch by batch.
            Err(_) if one.bytes < run.bytes => Ok((in_memory(file, &one)?, one)),
            Err(error) => Err(error.into()),
        }
    }

    /// Bytes in `[from, to)` as far as known without I/O (for `min_bytes`); an estimate where the tail
    /// cache does not hold the range. Does not block.
    pub fn bytes_between(&self, from: Offset, to: Offset) -> u64 {
        let to = to.min(self.log_end_offset());
        if from >= to {
            return 0;
        }
        if let Some(bytes) = self.directory.cache.bytes_between(self.files.id, from, to) {
            return bytes;
        }
        let log_end = self.log_end_offset();
        let view = self.view.lock();
        let mut bytes = 0;
        for (number, segment) in view.segments.iter().enumerate() {
            let next = view.segments.get(number + 1);
            let end = next.map_or(log_end, |next| next.base_offset);
            let overlap = to.min(end).saturating_sub(from.max(segment.base_offset));
            let span = end.saturating_sub(segment.base_offset);
            if overlap > 0 && span > 0 {
                let part = u128::from(segment.bytes()) * u128::from(overlap.unsigned_abs())
                    / u128::from(span.unsigned_abs());
                bytes += u64::try_from(part).unwrap_or(u64::MAX);
            }
        }
        bytes.max(1)
    }

    /// First record at or after `timestamp`, below `bound`.
    pub fn offset_for_timestamp(
        &self,
        timestamp: TimestampMs,
        bound: Offset,
    ) -> Result<Option<TimestampOffset>, LogError> {
        self.despite_removals(|| self.search_by_time(timestamp, bound))
    }

    fn search_by_time(
        &self,
        timestamp: TimestampMs,
        bound: Offset,
    ) -> Result<Option<TimestampOffset>, LogError> {
        self.check_usable()?;
        let start = self.log_start_offset();
        for segment in self.segments_with_bytes()? {
            segment.ensure_loaded(&self.files, self.index_interval())?;
            let largest = segment.index.lock().max_timestamp;
            if largest.is_none_or(|(largest, _)| largest < timestamp) {
                continue;
            }
            let file = segment.log_file(&self.files)?;
            let interval = self.index_interval();
            let from = segment.time_floor(&self.files, &*file, timestamp, interval)?;
            let from = from.unwrap_or(segment.base_offset).max(start);
            let found = self.search(&segment, from, |record, offset| {
                record >= timestamp && offset >= start
            })?;
            if let Some(found) = found {
                return Ok(Some(found).filter(|found| found.offset < bound));
            }
        }
        Ok(None)
    }

    /// The (first) record with the largest timestamp.
    pub fn offset_of_max_timestamp(&self) -> Result<Option<TimestampOffset>, LogError> {
        self.despite_removals(|| self.search_max_timestamp())
    }

    /// Runs `f` anew where it met a segment that retention removed meanwhile.
    pub(super) fn despite_removals<T>(
        &self,
        f: impl Fn() -> Result<T, LogError>,
    ) -> Result<T, LogError> {
        // Segments go after the log start has moved, so that tells nothing of them.
        let first = || {
            let view = self.view.lock();
            view.segments.first().map(|first| first.base_offset)
        };
        loop {
            let first_before = first();
            let truncations = self.truncations.load(Ordering::Acquire);
            match f() {
                Err(LogError::Io(error))
                    if error.kind() == io::ErrorKind::NotFound
                        && (first() != first_before
                            || self.truncations.load(Ordering::Acquire) > truncations) => {}
                result => return result,
            }
        }
    }

    fn search_max_timestamp(&self) -> Result<Option<TimestampOffset>, LogError> {
        self.check_usable()?;
        let start = self.log_start_offset();
        let mut best: Option<(TimestampMs, Offset, Arc<Segment>)> = None;
        for segment in self.segments_with_bytes()? {
            segment.ensure_loaded(&self.files, self.index_interval())?;
            let mut largest = segment.index.lock().max_timestamp;
            if segment.base_offset < start {
                largest = self.largest_from(&segment, start)?;
            }
            let Some((timestamp, offset)) = largest.filter(|(largest, _)| *largest != NO_TIMESTAMP)
            else {
                continue;
            };
            if best.as_ref().is_none_or(|(best, ..)| timestamp > *best) {
                best = Some((timestamp, offset, segment));
            }
        }
        let Some((timestamp, offset, segment)) = best else {
            return Ok(None);
        };
        self.search(&segment, offset, |record, offset| {
            record >= timestamp && offset >= start
        })
    }

    /// The largest timestamp from `from` on, and the last offset of its batch: the batch that holds
    /// `from` may have a larger one before it.
    fn largest_from(
        &self,
        segment: &Segment,
        from: Offset,
    ) -> Result<Option<(TimestampMs, Offset)>, LogError> {
        let file = segment.log_file(&self.files)?;
        let interval = self.index_interval();
        let mut walker = segment.walk_from(&self.files, &*file, from, segment.bytes(), interval)?;
        let mut largest: Option<(TimestampMs, Offset)> = None;
        while let Some(batch) = walker.next()? {
            let header = &batch.header;
            if header.last_offset() < from {
                continue;
            }
            let timestamp = match header.base_offset < from {
                true => largest_in_batch(&*file, &batch, from)?,
                false => header.max_timestamp,
            };
            if largest.is_none_or(|(largest, _)| timestamp > largest) {
                largest = Some((timestamp, header.last_offset()));
            }
        }
        Ok(largest)
    }

    /// Those whose files are there.
    fn segments_with_bytes(&self) -> io::Result<Vec<Arc<Segment>>> {
        let segments = self.view.lock().segments.clone();
        let mut found = Vec::with_capacity(segments.len());
        for segment in segments {
            if segment.bytes() > 0 && segment.existing_file(&self.files)?.is_some() {
                found.push(segment);
            }
        }
        Ok(found)
    }

    /// The first record for which `wanted(timestamp, offset)`, in batches from the one that holds `from`.
    fn search(
        &self,
        segment: &Segment,
        from: Offset,
        wanted: impl Fn(TimestampMs, Offset) -> bool,
    ) -> Result<Option<TimestampOffset>, LogError> {
        let file = segment.log_file(&self.files)?;
        let bytes = segment.bytes();
        let interval = self.index_interval();
        let mut walker = segment.walk_from(&self.files, &*file, from, bytes, interval)?;
        while let Some(batch) = walker.next()? {
            if batch.header.last_offset() < from
                || !wanted(batch.header.max_timestamp, batch.header.last_offset())
            {
                continue;
            }
            match search_batch(&*file, &batch, &wanted) {
                Ok(Some(found)) => return Ok(Some(found)),
                Ok(None) => {}
                // A damaged payload: its consumer will hear of it, here the next batch will do.
                Err(error @ LogError::Corrupt(_)) => {
                    tracing::warn!(partition = %self.partition, %error, "search a batch by time");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }
}

fn search_batch(
    file: &dyn DiskFile,
    batch: &Located,
    wanted: &impl Fn(TimestampMs, Offset) -> bool,
) -> Result<Option<TimestampOffset>, LogError> {
    let header = &batch.header;
    let payload = read_payload(file, batch)?;
    let mut found = None;
    scan(
        header,
        &payload,
        decompressed_bytes_max(i32::MAX),
        |stamp| {
            let offset = header.base_offset + i64::from(stamp.offset_delta);
            let timestamp = header.record_timestamp(stamp.timestamp_delta);
            if !wanted(timestamp, offset) {
                return ControlFlow::Continue(());
            }
            found = Some(TimestampOffset {
                timestamp,
                offset,
                leader_epoch: header.partition_leader_epoch,
            });
            ControlFlow::Break(())
        },
    )
    .map_err(|error| {
        LogError::from(WalkError::Bad {
            position: batch.position,
            reason: error.to_string(),
        })
    })?;
    Ok(found)
}

fn largest_in_batch(
    file: &dyn DiskFile,
    batch: &Located,
    from: Offset,
) -> Result<TimestampMs, LogError> {
    let largest = Cell::new(NO_TIMESTAMP);
    search_batch(file, batch, &|timestamp, offset| {
        if offset >= from {
            largest.set(timestamp.max(largest.get()));
        }
        false
    })?;
    Ok(largest.get())
}

fn in_memory(file: &dyn DiskFile, run: &Run) -> io::Result<LogSlice> {
    let mut bytes = vec![0; usize::try_from(run.bytes).unwrap_or(0)];
    let read = file.read_at(&mut bytes, run.position)?;
    if read as u64 != run.bytes {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(LogSlice::Memory(vec![Bytes::from(bytes)]))
}
