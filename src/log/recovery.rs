//! How a log is opened: from the manifest of a clean stop, from its files, or cut back to what is whole.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use super::directory::Directory;
use super::disk::{DirectoryEntry, OpenMode, read_small_file, replace_file};
use super::leader_epochs::LeaderEpochs;
use super::log::{LogError, Opened};
use super::manifest::{ManifestEntry, SegmentEntry};
use super::names::{self, FileKind};
use super::segment::{LogFiles, Segment};
use super::segment_index::{Loaded, PENDING_MAX, SegmentIndex, WalkPlan};
use super::walk::{Located, WalkError, Walker};
use crate::types::{Offset, TimestampMs, TopicPartition};

const EPOCHS_BYTES_MAX: u64 = 16 << 20;

/// What opening a log takes.
pub(super) struct Opening<'a> {
    pub directory: &'a Directory,
    pub partition: &'a TopicPartition,
    pub files: &'a LogFiles,
    pub index_interval_bytes: u64,
}

impl Opening<'_> {
    /// Opens what is on disk; an empty log where there is nothing.
    pub(super) fn open(&self) -> Result<Opened, LogError> {
        let remembered = self.directory.manifest.lock().remove(self.partition);
        if let Some(entry) = remembered
            && let Some(opened) = self.remembered(entry)
        {
            return Ok(opened);
        }
        let entries = match self.directory.disk.list(&self.files.path) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Opened::default()),
            Err(error) => return Err(error.into()),
        };
        let now_ms = self.directory.clock.wall_ms();
        let found = self.segments(&entries)?;
        if found.is_empty() {
            let log_start = self.directory.log_start(self.partition).unwrap_or(0);
            return Ok(Opened {
                on_disk: true,
                log_start,
                log_end: log_start,
                ..Opened::default()
            });
        }
        if self.directory.clean
            && let Some(opened) = self.trusting(&found, now_ms)?
        {
            return Ok(opened);
        }
        self.recovering(&found, now_ms)
    }

    /// `None` if the files are not as they were left.
    fn remembered(&self, entry: ManifestEntry) -> Option<Opened> {
        let now_ms = self.directory.clock.wall_ms();
        if let Some(&SegmentEntry {
            base_offset, bytes, ..
        }) = entry.segments.last()
        {
            let path = self.files.path_of(base_offset, FileKind::Log);
            let file = self.directory.disk.open(&path, OpenMode::Read);
            let unchanged = match file.and_then(|file| file.bytes()) {
                Ok(found) => found == bytes,
                Err(_) => bytes == 0,
            };
            if !unchanged {
                return None;
            }
        }
        let segments = entry.segments.iter();
        Some(Opened {
            on_disk: true,
            log_start: entry.log_start,
            log_end: entry.log_end,
            segments: segments
                .map(|entry| {
                    let segment = Segment::unloaded(entry.base_offset, now_ms, entry.bytes);
                    if let Some(largest) = entry.largest_timestamp {
                        segment.note_timestamp(largest);
                    }
                    Arc::new(segment)
                })
                .collect(),
            epochs: entry.epochs,
            looked_at: false,
        })
    }

    /// Base offsets and bytes of the segment files. What is left of deletions goes.
    fn segments(&self, entries: &[DirectoryEntry]) -> Result<Vec<(Offset, u64)>, LogError> {
        let parsed = |entry: &DirectoryEntry| names::parse_segment_file(&entry.name);
        let segments: BTreeMap<Offset, u64> = entries
            .iter()
            .filter_map(|entry| match parsed(entry)? {
                (base_offset, FileKind::Log) => Some((base_offset, entry.bytes)),
                _ => None,
            })
            .collect();
        for entry in entries {
            let left = match parsed(entry) {
                // A snapshot is of the log, not of a segment.
                Some((_, FileKind::Log | FileKind::ProducerSnapshot)) => false,
                Some((base_offset, _)) => !segments.contains_key(&base_offset),
                None => {
                    entry.name.ends_with(names::DELETED_FILE_SUFFIX) || entry.name.ends_with(".tmp")
                }
            };
            if left {
                let path = self.files.path.join(&entry.name);
                let _ = self.directory.disk.remove_file(&path);
            }
        }
        Ok(segments.into_iter().collect())
    }

    /// Believes the files: only the end of the last segment is looked at. `None` if that is damaged.
    fn trusting(
        &self,
        found: &[(Offset, u64)],
        now_ms: TimestampMs,
    ) -> Result<Option<Opened>, LogError> {
        let mut segments = Vec::new();
        let mut log_end = 0;
        for (number, &(base, bytes)) in found.iter().enumerate() {
            if number + 1 < found.len() || bytes == 0 {
                segments.push(Arc::new(Segment::unloaded(base, now_ms, bytes)));
                log_end = base;
                continue;
            }
            let loaded = self.walk(base, bytes, Offset::MAX, false)?;
            if loaded.damage.is_some() {
                return Ok(None);
            }
            log_end = loaded.last.map_or(base, |last| last.last_offset() + 1);
            segments.push(Arc::new(Segment::with_index(
                base,
                now_ms,
                bytes,
                loaded.index,
            )));
        }
        let epochs = self.epochs(&segments, log_end)?;
        Ok(Some(self.opened(segments, log_end, epochs)))
    }

    /// Checks all that is past the recovery point, and cuts at the first bad batch.
    fn recovering(&self, found: &[(Offset, u64)], now_ms: TimestampMs) -> Result<Opened, LogError> {
        let recovery_point = self
            .directory
            .recovery_points
            .lock()
            .get(self.partition)
            .copied()
            .unwrap_or(0);
        let log_start = self.directory.log_start(self.partition).unwrap_or(0);
        let mut segments: Vec<Arc<Segment>> = Vec::new();
        let mut checked = Vec::new();
        let mut log_end = found.first().map_or(0, |&(base, _)| base);
        for (number, &(base, bytes)) in found.iter().enumerate() {
            let next = found.get(number + 1).map(|&(next, _)| next);
            // What is below the log's start is on its way out.
            if next.is_some_and(|next| next <= recovery_point.max(log_start)) {
                segments.push(Arc::new(Segment::unloaded(base, now_ms, bytes)));
                log_end = next.unwrap_or(base);
                continue;
            }
            let loaded = self.walk(base, bytes, recovery_point, true)?;
            let damage = loaded.damage.clone().or_else(|| {
                // A segment that begins inside the one before is not the log's.
                (base < log_end).then(|| format!("segment {base} begins before offset {log_end}"))
            });
            if base >= log_end {
                log_end = loaded.last.map_or(base, |last| last.last_offset() + 1);
                let kept = loaded.bytes;
                segments.push(Arc::new(Segment::with_index(
                    base,
                    now_ms,
                    kept,
                    loaded.index,
                )));
                checked.push(base);
            }
            if let Some(reason) = damage {
                let rest = found.get(number..).unwrap_or(&[]);
                self.cut(rest, segments.last(), &reason, log_end)?;
                break;
            }
        }
        if let Err(error) = self.finish_indexes(&segments, &checked) {
            self.not_written("write the indexes", error)?;
        }
        self.sync(&checked)?;
        let epochs = self.epochs(&segments, log_end)?;
        let opened = self.opened(segments, log_end, epochs);
        self.remove_snapshots_past(log_end)?;
        tracing::info!(partition = %self.partition, recovery_point, log_end, "recovered a log");
        Ok(opened)
    }

    fn walk(
        &self,
        base_offset: Offset,
        bytes: u64,
        trusted_below: Offset,
        check_crc: bool,
    ) -> Result<Loaded, LogError> {
        let file = self
            .files
            .open(base_offset, FileKind::Log, OpenMode::Write)?;
        let plan = WalkPlan {
            base_offset,
            bytes,
            index_interval_bytes: self.index_interval_bytes,
            trusted_below,
            check_crc,
        };
        Ok(SegmentIndex::load(self.files, &*file, &plan)?)
    }

    /// Removes everything behind the last whole batch: the rest of its segment and all later ones.
    fn cut(
        &self,
        rest: &[(Offset, u64)],
        kept: Option<&Arc<Segment>>,
        reason: &str,
        log_end: Offset,
    ) -> Result<(), LogError> {
        let mut bytes_lost = 0;
        let mut segments_lost = 0;
        for &(base, bytes) in rest {
            match kept.filter(|segment| segment.base_offset == base) {
                Some(segment) => {
                    bytes_lost += bytes - segment.bytes();
                    segment.log_file(self.files)?.truncate(segment.bytes())?;
                }
                None => {
                    bytes_lost += bytes;
                    segments_lost += 1;
                    self.files.remove_segment(base)?;
                }
            }
        }
        tracing::warn!(
            partition = %self.partition, log_end, bytes_lost, segments_lost, reason,
            "recovery cut a log at its first bad batch"
        );
        Ok(())
    }

    /// Writes the indexes that were made anew; those of closed segments are complete now.
    fn finish_indexes(&self, segments: &[Arc<Segment>], checked: &[Offset]) -> io::Result<()> {
        let Some((active, closed)) = segments.split_last() else {
            return Ok(());
        };
        active.write_index(self.files, PENDING_MAX)?;
        for segment in closed {
            if checked.contains(&segment.base_offset) {
                segment.finish_index(self.files)?;
                for kind in [FileKind::OffsetIndex, FileKind::TimeIndex] {
                    let file = self
                        .files
                        .open(segment.base_offset, kind, OpenMode::Write)?;
                    file.sync()?;
                }
            }
        }
        Ok(())
    }

    /// What was found is made durable before anyone counts on it.
    fn sync(&self, checked: &[Offset]) -> Result<(), LogError> {
        for &base_offset in checked {
            self.files
                .open(base_offset, FileKind::Log, OpenMode::Write)?
                .sync()?;
        }
        self.directory.disk.sync_directory(&self.files.path)?;
        self.directory.disk.sync_directory(&self.directory.path)?;
        Ok(())
    }

    fn remove_snapshots_past(&self, log_end: Offset) -> Result<(), LogError> {
        for entry in self.directory.disk.list(&self.files.path)? {
            if let Some((offset, FileKind::ProducerSnapshot)) =
                names::parse_segment_file(&entry.name)
                && offset > log_end
            {
                let path = self.files.path_of(offset, FileKind::ProducerSnapshot);
                self.directory.disk.remove_file(&path)?;
            }
        }
        Ok(())
    }

    fn opened(
        &self,
        segments: Vec<Arc<Segment>>,
        log_end: Offset,
        mut epochs: LeaderEpochs,
    ) -> Opened {
        let first = segments.first().map_or(log_end, |first| first.base_offset);
        let stored = self.directory.log_start(self.partition).unwrap_or(0);
        if stored > log_end {
            tracing::warn!(partition = %self.partition, stored, log_end, "the log ends before its start");
        }
        let log_start = stored.min(log_end).max(first);
        epochs.truncate_from_start(log_start);
        Opened {
            on_disk: true,
            log_start,
            log_end,
            segments,
            epochs,
            looked_at: true,
        }
    }

    /// The checkpoint file as far as it goes; what it lacks is read from the batches.
    fn epochs(&self, segments: &[Arc<Segment>], log_end: Offset) -> Result<LeaderEpochs, LogError> {
        let path = self.files.path.join(names::LEADER_EPOCH_CHECKPOINT);
        let content = read_small_file(&*self.directory.disk, &path, EPOCHS_BYTES_MAX).ok();
        let read =
            content.and_then(|bytes| LeaderEpochs::from_text(std::str::from_utf8(&bytes).ok()?));
        let whole = read.is_some();
        let mut epochs = read.unwrap_or_default();
        epochs.truncate_from_end(log_end);
        let before = epochs.clone();
        // The epoch of the newest entry and of all batches behind it are known; look there.
        let from = epochs.entries().last().map_or(0, |&(_, start)| start);
        let with_bytes: Vec<_> = segments
            .iter()
            .filter(|segment| segment.bytes() > 0)
            .collect();
        for (number, segment) in with_bytes.iter().enumerate() {
            let next = with_bytes.get(number + 1);
            if next.is_some_and(|next| next.base_offset <= from) {
                continue;
            }
            let first = self.first_epoch(segment)?;
            if let Some(first) = first
                && epochs.latest().is_none_or(|latest| first > latest)
            {
                epochs.assign(first, segment.base_offset);
            }
            let last = match next {
                Some(next) => self.first_epoch(next)?,
                None => self.last_epoch(segment)?,
            };
            if first == epochs.latest() && first == last && first.is_some() {
                continue; // epochs never go down: none begins in here
            }
            let file = segment.log_file(self.files)?;
            let mut walker = Walker::new(&*file, 0, segment.bytes(), segment.base_offset);
            while let Some(batch) = walk_on(&mut walker)? {
                let header = batch.header;
                if epochs
                    .latest()
                    .is_none_or(|latest| header.partition_leader_epoch > latest)
                {
                    epochs.assign(header.partition_leader_epoch, header.base_offset);
                }
            }
        }
        if !whole || epochs != before {
            let text = epochs.to_text();
            if let Err(error) = replace_file(&*self.directory.disk, &path, text.as_bytes(), false) {
                self.not_written("write the leader epochs", error)?;
            }
        }
        Ok(epochs)
    }

    /// What the batches tell again need not be on disk: a full one is no reason not to serve the log.
    fn not_written(&self, what: &str, error: io::Error) -> Result<(), LogError> {
        match self.directory.failed_write(what, error) {
            LogError::Full(_) => Ok(()),
            error => Err(error),
        }
    }

    fn first_epoch(&self, segment: &Segment) -> Result<Option<i32>, LogError> {
        let file = segment.log_file(self.files)?;
        let mut walker = Walker::new(&*file, 0, segment.bytes(), segment.base_offset);
        Ok(walk_on(&mut walker)?.map(|batch| batch.header.partition_leader_epoch))
    }

    fn last_epoch(&self, segment: &Segment) -> Result<Option<i32>, LogError> {
        let file = segment.log_file(self.files)?;
        let bytes = segment.bytes();
        segment.ensure_loaded(self.files, self.index_interval_bytes)?;
        let mut walker = segment.walk_from_position(self.files, &*file, bytes, bytes)?;
        let mut epoch = None;
        while let Some(batch) = walk_on(&mut walker)? {
            epoch = Some(batch.header.partition_leader_epoch);
        }
        Ok(epoch)
    }
}

/// Damage below the recovery point ends the walk: what is behind it is not known, and not cut.
fn walk_on(walker: &mut Walker<'_>) -> Result<Option<Located>, LogError> {
    match walker.next() {
        Ok(batch) => Ok(batch),
        Err(WalkError::Bad { .. }) => Ok(None),
        Err(WalkError::Io(error)) => Err(error.into()),
    }
}
