//! How a log is opened: from the manifest of a clean stop, from its files, or cut back to what is whole.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

use super::checkpoint::Offsets;
use super::directory::{Directory, warn_of_strangers};
use super::disk::{DirectoryEntry, DiskFile, OpenMode};
use super::leader_epochs::LeaderEpochs;
use super::log::{LogError, Opened};
use super::manifest::{ManifestEntry, SegmentEntry};
use super::names::{self, FileKind};
use super::segment::{LogFiles, Segment};
use super::segment_index::{Loaded, PENDING_MAX, SegmentIndex, WalkPlan};
use super::survey::{Damage, SurveyPlan, survey};
use super::walk::{Located, crc_matches, header_at};
use crate::types::{Offset, TimestampMs, TopicPartition, is_internal_topic};

/// What opening a log takes.
pub(super) struct Opening<'a> {
    pub directory: &'a Directory,
    pub partition: &'a TopicPartition,
    pub files: &'a LogFiles,
    pub index_interval_bytes: u64,
    /// The high watermark counts only what is on disk.
    pub waits_for_disk: bool,
    pub compacted: bool,
}

/// A segment file as it was found.
#[derive(Debug, Clone, Copy)]
struct Extent {
    base: Offset,
    bytes: u64,
    /// Where the next segment begins.
    end: Offset,
}

/// What is kept of a segment.
#[derive(Debug)]
struct Whole {
    /// Offset behind its last record; `None` if it has none.
    end: Option<Offset>,
    bytes: u64,
    index: SegmentIndex,
    damage: Option<Arc<[Damage]>>,
    /// Why the rest is cut off, with all that follows.
    cut: Option<String>,
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
        warn_of_strangers(&self.files.path, &entries);
        let found = self.without_strays(self.segments(&entries)?)?;
        if found.is_empty() {
            if !self.directory.clean {
                // Its maker may not have come to that, and the first record will not do it again.
                self.written(self.sync_beginnings())?;
            }
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
        self.recovering(&found, &entries, now_ms)
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
        let mut segments = Vec::with_capacity(entry.segments.len());
        for (number, found) in entry.segments.iter().enumerate() {
            let next = entry.segments.get(number + 1);
            let end = next.map_or(entry.log_end, |next| next.base_offset);
            let segment = self.unloaded(found.base_offset, now_ms, found.bytes, end);
            if let Some(largest) = found.largest_timestamp {
                segment.note_timestamp(largest);
            }
            segments.push(segment);
        }
        Some(Opened {
            on_disk: true,
            log_start: entry.log_start,
            log_end: entry.log_end,
            segments,
            epochs: entry.epochs,
            looked_at: false,
            epochs_to_write: false,
            unsynced: None,
        })
    }

    /// Makes a log without a segment durable: its directory, and whose it is.
    fn sync_beginnings(&self) -> io::Result<()> {
        let disk = &*self.directory.disk;
        let metadata = self.files.path.join(names::PARTITION_METADATA);
        match disk.open(&metadata, OpenMode::Write) {
            Ok(file) => file.sync()?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        disk.sync_directory(&self.files.path)?;
        disk.sync_directory(&self.directory.path)
    }

    /// Base offsets and bytes of the segment files. What is left of deletions goes.
    fn segments(&self, entries: &[DirectoryEntry]) -> Result<Vec<(Offset, u64)>, LogError> {
        let parsed = |entry: &DirectoryEntry| match entry.is_directory {
            true => None,
            false => names::parse_segment_file(&entry.name),
        };
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
            if let Some(&(next, _)) = found.get(number + 1) {
                segments.push(self.unloaded(base, now_ms, bytes, next));
                continue;
            }
            log_end = base;
            if bytes == 0 {
                segments.push(self.unloaded(base, now_ms, bytes, base));
                continue;
            }
            let loaded = self.load(&self.plan(base, bytes, Offset::MAX, false))?;
            if loaded.damage.is_some() {
                return Ok(None);
            }
            log_end = loaded.last.map_or(base, |last| last.last_offset() + 1);
            let findings = &self.files.findings;
            let segment = Segment::found(base, now_ms, (bytes, log_end), findings);
            segments.push(Arc::new(segment.with(loaded.index)));
        }
        let epochs = self.epochs(&segments, log_end)?;
        Ok(Some(self.opened(segments, log_end, epochs)))
    }

    /// Checks all that is past the recovery point. A crash leaves a tail that is cut at its first bad
    /// batch; damage to what was on disk before is gone around.
    fn recovering(
        &self,
        found: &[(Offset, u64)],
        entries: &[DirectoryEntry],
        now_ms: TimestampMs,
    ) -> Result<Opened, LogError> {
        let known = |offsets: &Mutex<Offsets>| offsets.lock().get(self.partition).copied();
        let recovery_point = known(&self.directory.recovery_points).unwrap_or(0);
        // Where consumers see only what is on disk, all that they could see is.
        let seen = known(&self.directory.high_watermarks).filter(|_| self.waits_for_disk);
        let on_disk_below = recovery_point.max(seen.unwrap_or(0));
        let log_start = self.directory.log_start(self.partition).unwrap_or(0);
        let mut segments: Vec<Arc<Segment>> = Vec::new();
        let mut checked = Vec::new();
        let mut log_end = found.first().map_or(0, |&(base, _)| base);
        let mut is_whole = true;
        for (number, &(base, bytes)) in found.iter().enumerate() {
            let next = found.get(number + 1).map(|&(next, _)| next);
            // What is below the log's start is on its way out.
            if let Some(next) = next.filter(|&next| next <= recovery_point.max(log_start)) {
                segments.push(self.unloaded(base, now_ms, bytes, next));
                log_end = next;
                continue;
            }
            let rest = found.get(number + 1..).unwrap_or(&[]);
            let extent = Extent {
                base,
                bytes,
                end: next.unwrap_or(Offset::MAX),
            };
            let whole = match self.as_it_was_left(extent, entries)? {
                Some(whole) => whole,
                None => self.check_segment(extent, rest, recovery_point, on_disk_below)?,
            };
            log_end = whole.end.unwrap_or(base);
            let extent = (whole.bytes, next.unwrap_or(log_end).max(log_end));
            let findings = &self.files.findings;
            let segment = Segment::found(base, now_ms, extent, findings).with(whole.index);
            is_whole &= whole.damage.is_none();
            segments.push(Arc::new(segment.surveyed(whole.damage)));
            checked.push(base);
            // Appended offsets have no gaps: what lay in between was not on disk yet, or was deleted.
            let hole = next.filter(|&next| {
                log_end < next && log_end >= on_disk_below && next > log_start && !self.compacted
            });
            let hole = hole.map(|next| format!("nothing lies between {log_end} and {next}"));
            if let Some(reason) = whole.cut.or(hole) {
                let rest = found.get(number..).unwrap_or(&[]);
                self.cut(rest, segments.last(), &reason, log_end)?;
                is_whole = false;
                break;
            }
        }
        if log_end < on_disk_below {
            tracing::error!(
                partition = %self.partition, log_end, on_disk_below,
                "the end of a log is lost: records that were on disk are not there"
            );
        }
        if let Err(error) = self.finish_indexes(&segments, &checked) {
            self.not_written("write the indexes", error)?;
        }
        // Before the names are synced: one that came back would be believed once the log is as long again.
        is_whole &= !self.remove_snapshots_past(log_end, entries)?;
        let epochs = self.epochs(&segments, log_end.min(recovery_point))?;
        let mut opened = self.opened(segments, log_end, epochs);
        // Nothing was changed but the end of the newest segment, and what is on disk of it is known: the
        // rest waits for whoever asks, as an append does. Thousands of logs are back in a moment.
        let can_wait = is_whole
            && checked.len() == 1
            && (opened.log_start..=log_end).contains(&on_disk_below)
            && !is_internal_topic(&self.partition.topic);
        if can_wait {
            opened.unsynced = Some((on_disk_below, checked));
        } else {
            self.sync(&checked)?;
        }
        tracing::debug!(partition = %self.partition, recovery_point, log_end, "recovered a log");
        Ok(opened)
    }

    fn unloaded(
        &self,
        base_offset: Offset,
        now_ms: TimestampMs,
        bytes: u64,
        end: Offset,
    ) -> Arc<Segment> {
        let findings = &self.files.findings;
        Arc::new(Segment::found(base_offset, now_ms, (bytes, end), findings))
    }

    /// A segment of which the page cache holds all that was written to it: no record needs to be read.
    /// `None` where that is not known, or not the whole truth.
    fn as_it_was_left(
        &self,
        extent: Extent,
        entries: &[DirectoryEntry],
    ) -> Result<Option<Whole>, LogError> {
        let name = names::segment_file(extent.base, FileKind::Log);
        let entry = entries.iter().find(|entry| entry.name == name);
        if !entry.is_some_and(|entry| self.directory.last_life.covers(entry.modified_ms)) {
            return Ok(None);
        }
        let loaded = self.load(&self.plan(extent.base, extent.bytes, Offset::MAX, false))?;
        Ok(self.whole(loaded, extent))
    }

    /// Appended offsets have no gaps. Only compaction makes some, and not at the end.
    fn ends_densely(&self, extent: Extent) -> bool {
        extent.end == Offset::MAX && !self.compacted
    }

    /// What a walk found, if nothing is wrong with it.
    fn whole(&self, loaded: Loaded, extent: Extent) -> Option<Whole> {
        let end = extent.end;
        let overruns = loaded.last.is_some_and(|last| last.last_offset() >= end);
        let gap = self.ends_densely(extent) && loaded.gap_before_last;
        if loaded.damage.is_some() || overruns || gap {
            return None;
        }
        Some(Whole {
            end: loaded.last.map(|last| last.last_offset() + 1),
            bytes: extent.bytes,
            index: loaded.index,
            damage: None,
            cut: None,
        })
    }

    /// Walks a segment that a crash may have left unfinished, and decides what of it is kept.
    fn check_segment(
        &self,
        extent: Extent,
        rest: &[(Offset, u64)],
        recovery_point: Offset,
        on_disk_below: Offset,
    ) -> Result<Whole, LogError> {
        let Extent { base, bytes, end } = extent;
        let mut plan = self.plan(base, bytes, recovery_point, true);
        if let Some(whole) = self.whole(self.load(&plan)?, extent) {
            return Ok(whole);
        }
        let file = self.log_file(base)?;
        let survey_plan = SurveyPlan {
            base_offset: base,
            bytes,
            end_offset: end,
            dense_end: self.ends_densely(extent),
        };
        let found = survey(&*file, survey_plan, &mut |_| Ok(()))?;
        let last = found.last.map(|last| last.position);
        let mut damage = found.damage;
        let mut cut = None;
        for (number, place) in damage.iter_mut().enumerate() {
            let behind = last.is_some_and(|last| last > place.start) || self.any_batch(rest)?;
            if place.first_offset >= on_disk_below && (!behind || place.unwritten) {
                cut = Some((number, place.reason.clone()));
                break;
            }
            if place.end == bytes && end == Offset::MAX {
                place.next_offset = on_disk_below.max(place.next_offset);
            }
        }
        if let Some((number, _)) = &cut {
            plan.bytes = damage[*number].start;
            damage.truncate(*number);
        }
        for place in &damage {
            self.files.findings.tell(base, place);
        }
        let lost_end = damage.last().filter(|place| place.end == plan.bytes);
        let lost_end = lost_end.map(|place| place.next_offset);
        let damage: Arc<[Damage]> = damage.into();
        plan.damage = Some(Arc::clone(&damage));
        let loaded = self.load(&plan)?;
        let whole_end = loaded.last.map(|last| last.last_offset() + 1);
        Ok(Whole {
            end: lost_end.max(whole_end),
            bytes: plan.bytes,
            index: loaded.index,
            damage: Some(damage),
            cut: cut.map(|(_, reason)| reason),
        })
    }

    /// Whether any of these segments begins with a whole batch.
    fn any_batch(&self, segments: &[(Offset, u64)]) -> Result<bool, LogError> {
        let mut buffer = Vec::new();
        for &(base, bytes) in segments.iter().filter(|(_, bytes)| *bytes > 0) {
            let file = self.log_file(base)?;
            if let Some(header) = header_at(&*file, 0, bytes)? {
                let batch = Located {
                    header,
                    position: 0,
                };
                if header.base_offset >= base && crc_matches(&*file, &batch, &mut buffer)? {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Leaves out segment files that the one before makes impossible: somebody put them there. They
    /// get another name and stay.
    fn without_strays(&self, found: Vec<(Offset, u64)>) -> Result<Vec<(Offset, u64)>, LogError> {
        let mut kept: Vec<(Offset, u64)> = Vec::new();
        for (base, bytes) in found {
            if let Some(&(before, before_bytes)) = kept.last()
                && self.is_stray(base, bytes, before, before_bytes)?
            {
                tracing::warn!(partition = %self.partition, base, bytes, "a stray segment file is put aside");
                let from = self.files.path_of(base, FileKind::Log);
                let mut to = from.clone().into_os_string();
                to.push(names::STRAY_FILE_SUFFIX);
                self.written(self.directory.disk.rename(&from, to.as_ref()))?;
                // It was looked into: a later segment of this name must not find it open.
                self.files.forget(base, FileKind::Log);
                continue;
            }
            kept.push((base, bytes));
        }
        Ok(kept)
    }

    fn is_stray(
        &self,
        base: Offset,
        bytes: u64,
        before: Offset,
        before_bytes: u64,
    ) -> Result<bool, LogError> {
        let first = header_at(&*self.log_file(base)?, 0, bytes)?;
        if first.is_some_and(|first| first.base_offset >= base) {
            return Ok(false);
        }
        // It may be damaged, or never have been a part of this log.
        let plan = SurveyPlan {
            base_offset: before,
            bytes: before_bytes,
            end_offset: Offset::MAX,
            dense_end: false,
        };
        let before = survey(&*self.log_file(before)?, plan, &mut |_| Ok(()))?;
        Ok(before
            .last
            .is_some_and(|last| last.header.last_offset() >= base))
    }

    fn log_file(&self, base_offset: Offset) -> io::Result<Arc<dyn DiskFile>> {
        self.files.open(base_offset, FileKind::Log, OpenMode::Write)
    }

    fn plan(
        &self,
        base_offset: Offset,
        bytes: u64,
        trusted_below: Offset,
        check_crc: bool,
    ) -> WalkPlan {
        WalkPlan {
            base_offset,
            bytes,
            index_interval_bytes: self.index_interval_bytes,
            trusted_below,
            check_crc,
            damage: None,
        }
    }

    fn load(&self, plan: &WalkPlan) -> Result<Loaded, LogError> {
        let file = self.log_file(plan.base_offset)?;
        Ok(SegmentIndex::load(self.files, &*file, plan)?)
    }

    /// A write that the disk fails takes the directory offline; a read that it fails costs only this log.
    fn written<T>(&self, result: io::Result<T>) -> Result<T, LogError> {
        result.map_err(|error| self.directory.failed_write("recover a log", error))
    }

    /// What the batches tell again need not be on disk: a full one is no reason not to serve the log.
    pub(super) fn not_written(&self, what: &str, error: io::Error) -> Result<(), LogError> {
        match self.directory.failed_write(what, error) {
            LogError::Full(_) => Ok(()),
            error => Err(error),
        }
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
                    let file = segment.log_file(self.files)?;
                    self.written(file.truncate(segment.bytes()))?;
                }
                None => {
                    bytes_lost += bytes;
                    segments_lost += 1;
                    self.written(self.files.remove_segment(base))?;
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
                self.finish_index(segment)?;
            }
        }
        Ok(())
    }

    fn finish_index(&self, segment: &Segment) -> io::Result<()> {
        segment.finish_index(self.files)?;
        for kind in [FileKind::OffsetIndex, FileKind::TimeIndex] {
            self.files
                .open(segment.base_offset, kind, OpenMode::Write)?
                .sync()?;
        }
        Ok(())
    }

    /// What was found is made durable before anyone counts on it.
    fn sync(&self, checked: &[Offset]) -> Result<(), LogError> {
        for &base_offset in checked {
            self.written(self.log_file(base_offset)?.sync())?;
        }
        let disk = &*self.directory.disk;
        self.written(disk.sync_directory(&self.files.path))?;
        self.written(disk.sync_directory(&self.directory.path))
    }

    /// True if there were any.
    fn remove_snapshots_past(
        &self,
        log_end: Offset,
        entries: &[DirectoryEntry],
    ) -> Result<bool, LogError> {
        let mut removed = false;
        for entry in entries {
            if let Some((offset, FileKind::ProducerSnapshot)) =
                names::parse_segment_file(&entry.name)
                && offset > log_end
            {
                let path = self.files.path_of(offset, FileKind::ProducerSnapshot);
                match self.directory.disk.remove_file(&path) {
                    // It went with its segment.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    result => self.written(result)?,
                }
                removed = true;
            }
        }
        Ok(removed)
    }

    fn opened(
        &self,
        segments: Vec<Arc<Segment>>,
        log_end: Offset,
        (mut epochs, epochs_to_write): (LeaderEpochs, bool),
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
            epochs_to_write,
            unsynced: None,
        }
    }
}
