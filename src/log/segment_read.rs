//! Looking into a segment: from an offset to a batch, and to as many as are asked for, around damage.

use std::io;
use std::sync::Arc;

use super::checked::Ranges;
use super::disk::{DiskFile, OpenMode};
use super::index::{self, OffsetEntry, TimeEntry};
use super::names::FileKind;
use super::segment::{LogFiles, Run, RunLimits, Segment};
use super::segment_index::last_in_file;
use super::survey::{self, Damage, SurveyPlan};
use super::walk::{Located, WalkError, Walker, header_at};
use crate::types::{Offset, TimestampMs};

impl Segment {
    pub(crate) fn survey_plan(&self) -> SurveyPlan {
        SurveyPlan {
            base_offset: self.base_offset,
            bytes: self.bytes(),
            end_offset: self.end_offset(),
            dense_end: false,
        }
    }

    /// Looks at the whole segment: what is damaged is not served from now on.
    pub(crate) fn survey(&self, file: &dyn DiskFile) -> io::Result<Option<Arc<[Damage]>>> {
        let _surveying = self.surveying.lock();
        let plan = self.survey_plan();
        let bytes = plan.bytes;
        let found = survey::survey(file, plan, &mut |_| Ok(()))?.damage;
        self.check_abandoned()?;
        let mut checked = self.checked.lock();
        let known = checked.damage.clone().unwrap_or_default();
        if checked.damage.is_some() && *known == *found {
            return Ok(checked.damage.clone());
        }
        let mut ranges = Ranges::from(bytes);
        let mut from = 0;
        for damage in &found {
            ranges.add(from, damage.start);
            from = damage.end;
            if !known.iter().any(|known| known.start == damage.start) {
                self.findings.tell(self.base_offset, damage);
            }
        }
        ranges.add(from, bytes);
        checked.ranges = ranges;
        checked.damage = Some(found.into());
        Ok(checked.damage.clone())
    }

    /// The file, or `None` where it is gone: then all of the segment is damage.
    pub(crate) fn existing_file(&self, files: &LogFiles) -> io::Result<Option<Arc<dyn DiskFile>>> {
        match self.log_file(files) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.check_abandoned()?;
                let mut checked = self.checked.lock();
                let damage = Damage {
                    start: 0,
                    end: self.bytes(),
                    first_offset: self.base_offset,
                    next_offset: self.end_offset(),
                    reason: "the file is not there".to_owned(),
                    unwritten: false,
                };
                if checked.damage.as_deref() != Some(std::slice::from_ref(&damage)) {
                    self.findings.tell(self.base_offset, &damage);
                    checked.damage = Some([damage].into());
                    checked.ranges = Ranges::from(self.bytes());
                }
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// The damage that holds `offset`, as far as it is known.
    fn damage_at(&self, offset: Offset) -> Option<Damage> {
        let damage = self.damage()?;
        let mut at = damage.iter();
        at.find(|damage| (damage.first_offset..damage.next_offset).contains(&offset))
            .cloned()
    }

    /// The offset of the last time entry at or before `timestamp`. An entry that its batch contradicts
    /// has the indexes made anew.
    pub(crate) fn time_floor(
        &self,
        files: &LogFiles,
        file: &dyn DiskFile,
        timestamp: TimestampMs,
        interval: u64,
    ) -> Result<Option<Offset>, WalkError> {
        for attempt in 0..2 {
            let Some(entry) = self.last_time_entry(files, timestamp)? else {
                return Ok(None);
            };
            let Some(offset) = index::absolute(self.base_offset, entry.relative_offset) else {
                return Ok(None);
            };
            let batch = match self.locate(files, file, offset, self.bytes(), interval) {
                Err(WalkError::Damaged { .. }) => None,
                other => other?,
            };
            let agrees = batch.is_some_and(|batch| {
                batch.header.base_offset <= offset && batch.header.max_timestamp == entry.timestamp
            });
            if agrees {
                return Ok(Some(offset));
            }
            if attempt == 0 {
                self.rebuild(files, interval)?;
            }
        }
        Ok(None)
    }

    fn last_time_entry(
        &self,
        files: &LogFiles,
        timestamp: TimestampMs,
    ) -> io::Result<Option<TimeEntry>> {
        let holds = |entry: &TimeEntry| entry.timestamp <= timestamp;
        let count = {
            let index = self.index.lock();
            let after = index.times.partition_point(holds);
            if let Some(found) = after.checked_sub(1).and_then(|at| index.times.get(at)) {
                return Ok(Some(*found));
            }
            index.times_on_disk
        };
        if count == 0 {
            return Ok(None);
        }
        let file = files.open(self.base_offset, FileKind::TimeIndex, OpenMode::Write)?;
        last_in_file(&*file, count, &holds)
    }

    /// A walker that stands on a batch at or before the one that holds `offset`.
    pub(crate) fn walk_from<'a>(
        &'a self,
        files: &LogFiles,
        file: &'a dyn DiskFile,
        offset: Offset,
        bytes: u64,
        interval: u64,
    ) -> Result<Walker<'a>, WalkError> {
        self.ensure_loaded(files, interval)?;
        let relative = offset.saturating_sub(self.base_offset).max(0);
        let mut position_max = bytes;
        for attempt in 0..2 {
            let holds = |entry: &OffsetEntry| {
                i64::from(entry.relative_offset) <= relative
                    && u64::from(entry.position) < position_max
            };
            let Some(entry) = self.last_offset_entry(files, &holds)? else {
                break;
            };
            let position = u64::from(entry.position);
            if self.agrees(file, &entry, bytes)? {
                return Ok(Walker::of_segment(self, file, position, bytes));
            }
            if attempt == 0 {
                match self.damage_over(position) {
                    // The batch is what is wrong: begin before it.
                    Some(damage) => position_max = damage.start,
                    None => self.rebuild(files, interval)?,
                }
            }
        }
        Ok(Walker::of_segment(self, file, 0, bytes))
    }

    /// Whether the batch that an entry points to is the one that it means.
    fn agrees(&self, file: &dyn DiskFile, entry: &OffsetEntry, bytes: u64) -> io::Result<bool> {
        let position = u64::from(entry.position);
        if self.damage_over(position).is_some() {
            return Ok(false);
        }
        Ok(header_at(file, position, bytes)?.is_some_and(|header| {
            index::relative(self.base_offset, header.last_offset()) == Some(entry.relative_offset)
        }))
    }

    fn damage_over(&self, position: u64) -> Option<Damage> {
        let damage = self.damage()?;
        let mut over = damage.iter();
        over.find(|damage| (damage.start..damage.end).contains(&position))
            .cloned()
    }

    /// A walker up to `end` that stands on the first batch at or before `position` that an entry names.
    pub(crate) fn walk_from_position<'a>(
        &'a self,
        files: &LogFiles,
        file: &'a dyn DiskFile,
        position: u64,
        end: u64,
    ) -> Result<Walker<'a>, WalkError> {
        let entry =
            self.last_offset_entry(files, &|entry| u64::from(entry.position) <= position)?;
        let start = match entry {
            Some(entry) if self.agrees(file, &entry, self.bytes())? => u64::from(entry.position),
            _ => 0,
        };
        Ok(Walker::of_segment(self, file, start, end))
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
        let mut found = self.first_from(files, file, offset, bytes, interval)?;
        if found.is_none() && self.damage().is_none() {
            // A header whose batch lost its end may cover the next one.
            self.survey(file)?;
            found = self.first_from(files, file, offset, bytes, interval)?;
        }
        if found.is_none_or(|batch: Located| batch.header.base_offset > offset)
            && let Some(damage) = self.damage_at(offset)
        {
            return Err(WalkError::Damaged {
                first_offset: damage.first_offset,
                next_offset: damage.next_offset,
            });
        }
        Ok(found)
    }

    /// The first batch that ends at or past `offset`, as the headers tell it.
    fn first_from(
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

    /// Whole batches from `first` on, within the limits. Zero bytes if not even the first fits, `None`
    /// if damage was found on the way: then `first` may not be what it was.
    pub(crate) fn run(
        &self,
        files: &LogFiles,
        file: &dyn DiskFile,
        first: &Located,
        limits: &RunLimits,
    ) -> Result<Option<Run>, WalkError> {
        let empty = Run {
            position: first.position,
            bytes: 0,
            next_offset: first.header.base_offset,
        };
        let bytes = first.header.total_bytes() as u64;
        let too_large = bytes > limits.bytes_max;
        if first.header.last_offset() >= limits.bound || too_large && !limits.at_least_one {
            return Ok(Some(empty));
        }
        let rest = limits.segment_bytes.saturating_sub(first.position);
        let bytes_max = limits.bytes_max.max(bytes).min(rest);
        let checked = {
            let checked = self.checked.lock();
            checked
                .ranges
                .cover(first.position, first.position + bytes_max)
        };
        if !checked {
            return self.checked_run(file, first.position, bytes_max, limits);
        }
        if too_large {
            return Ok(Some(Run {
                bytes,
                next_offset: first.header.last_offset() + 1,
                ..empty
            }));
        }
        if limits.bound >= limits.segment_end && rest <= limits.bytes_max {
            return Ok(Some(Run {
                bytes: rest,
                next_offset: limits.segment_end,
                ..empty
            }));
        }
        let end_max = first.position + bytes_max;
        let bound = limits.bound.saturating_sub(self.base_offset);
        let entry = self.last_offset_entry(files, &|entry| {
            u64::from(entry.position) <= end_max && i64::from(entry.relative_offset) < bound
        })?;
        let mut start = first.position;
        if let Some(entry) = entry {
            let position = u64::from(entry.position);
            if position > start && self.agrees(file, &entry, limits.segment_bytes)? {
                start = position;
            }
        }
        let mut run = Run {
            bytes: start - first.position,
            ..empty
        };
        let mut walker = Walker::of_segment(self, file, start, limits.segment_bytes);
        while let Some(batch) = walker.next()? {
            run.next_offset = run.next_offset.max(batch.header.base_offset);
            if batch.end() > end_max || batch.header.last_offset() >= limits.bound {
                break;
            }
            run.bytes = batch.end() - first.position;
            run.next_offset = batch.header.last_offset() + 1;
        }
        Ok(Some(run))
    }

    /// The same, looking at each header: done once for each part of a segment.
    fn checked_run(
        &self,
        file: &dyn DiskFile,
        position: u64,
        bytes_max: u64,
        limits: &RunLimits,
    ) -> Result<Option<Run>, WalkError> {
        let known = self.damage();
        if known.is_none() && file.bytes()? < limits.segment_bytes {
            self.survey(file)?;
            return Ok(None);
        }
        let mut run = Run {
            position,
            bytes: 0,
            next_offset: self.base_offset,
        };
        let mut walker = Walker::of_segment(self, file, position, limits.segment_bytes);
        while let Some(batch) = walker.next()? {
            let news = match (&known, &self.damage()) {
                (None, None) => false,
                (Some(known), Some(now)) => !Arc::ptr_eq(known, now),
                _ => true,
            };
            if news {
                return Ok(None);
            }
            run.next_offset = run.next_offset.max(batch.header.base_offset);
            let ends = batch.position != position + run.bytes // behind damage
                || batch.end() > position + bytes_max
                || batch.header.last_offset() >= limits.bound;
            if ends {
                break;
            }
            run.bytes = batch.end() - position;
            run.next_offset = batch.header.last_offset() + 1;
        }
        let mut checked = self.checked.lock();
        checked.ranges.add(position, position + run.bytes);
        Ok(Some(run))
    }
}
