//! Cutting the end off a log: a follower whose records are not its leader's (KIP-101, KIP-595), or whose
//! leader begins later than it ends.
//!
//! In this order, for the power: the checkpoints stop promising what goes; the producers' state at the new
//! end is kept; nobody finds what goes any more; whole segments get another name, the last one first; the
//! one that holds the cut becomes shorter. All of it is durable on return. A power cut on the way leaves
//! the old log up to some batch not before the cut.
//!
//! What comes next goes into a segment of its own: no response that is being sent from the shortened file
//! ever finds other records in the place of those that it promised. It finds the file's end, and its
//! connection is closed.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::MutexGuard;

use super::disk::replace_file;
use super::log::{Log, LogError, Writer};
use super::names::FileKind;
use super::producer_state::ProducerState;
use super::segment::Segment;
use super::segment_index::{SegmentIndex, WalkPlan};
use super::tasks::{Task, interval};
use super::walk::WalkError;
use crate::types::Offset;

/// Where a log is cut.
struct Cut {
    /// The segment that holds the cut; those behind it go.
    number: usize,
    segment: Arc<Segment>,
    /// Bytes of it that stay.
    position: u64,
    /// Where the log ends then.
    end: Offset,
}

impl Log {
    /// Removes the batch that holds `offset` and all behind it, durably; returns where the log ends now.
    /// Nothing happens where it ends there or before. Below the log's start nothing is left, and it
    /// begins anew at `offset`. The caller sees to it that what goes was promised to nobody.
    pub fn truncate_to(&self, offset: Offset) -> Result<Offset, LogError> {
        {
            let _truncating = self.truncating.lock();
            let _flushing = self.flushing.lock();
            let mut writer = self.writer.lock();
            self.check_usable()?;
            let end = self.log_end_offset();
            if offset >= end {
                return Ok(end);
            }
            let start = self.log_start_offset();
            match self.cut_at(offset)?.filter(|cut| cut.end >= start) {
                Some(cut) if offset >= start => self.cut(&mut writer, &cut)?,
                _ => self.begin_anew(&mut writer, offset)?,
            }
        }
        // What was appended before the cut and not synced yet.
        self.flush()?;
        Ok(self.log_end_offset())
    }

    /// Removes all that there is, durably; the log goes on at `offset`.
    pub fn truncate_fully_and_start_at(&self, offset: Offset) -> Result<(), LogError> {
        {
            let _truncating = self.truncating.lock();
            let _flushing = self.flushing.lock();
            let mut writer = self.writer.lock();
            self.check_usable()?;
            self.begin_anew(&mut writer, offset)?;
        }
        self.flush()?;
        Ok(())
    }

    /// `None` if `offset` is before the first segment.
    fn cut_at(&self, offset: Offset) -> Result<Option<Cut>, LogError> {
        let (number, segment) = {
            let view = self.view.lock();
            let after = view
                .segments
                .partition_point(|segment| segment.base_offset <= offset);
            let Some(number) = after.checked_sub(1) else {
                return Ok(None);
            };
            (number, Arc::clone(&view.segments[number]))
        };
        let mut cut = Cut {
            number,
            position: 0,
            end: offset,
            segment,
        };
        let segment = &cut.segment;
        let bytes = segment.bytes();
        if bytes == 0 {
            return Ok(Some(cut));
        }
        let Some(file) = segment.existing_file(&self.files)? else {
            cut.end = segment.base_offset;
            return Ok(Some(cut));
        };
        let interval = self.index_interval();
        match segment.locate(&self.files, &*file, offset, bytes, interval) {
            Ok(Some(batch)) => {
                cut.position = batch.position;
                cut.end = offset.min(batch.header.base_offset);
            }
            Ok(None) => cut.position = bytes,
            Err(WalkError::Damaged { first_offset, .. }) => {
                let damage = segment.damage().unwrap_or_default();
                let place = damage.iter().find(|p| p.first_offset == first_offset);
                cut.position = place.map_or(0, |place| place.start);
                cut.end = offset.min(first_offset);
            }
            Err(error) => return Err(error.into()),
        }
        Ok(Some(cut))
    }

    fn cut(&self, writer: &mut MutexGuard<'_, Writer>, cut: &Cut) -> Result<(), LogError> {
        let Cut { segment, end, .. } = cut;
        // Recovery looks at the shortened segment, whatever its indexes on disk still say.
        self.lower_promises(segment.base_offset, *end)?;
        let producers = self.load_producers(*end)?;
        self.keep_snapshot(writer, *end, &producers)?;
        let keeps_some = cut.position > 0;
        let shorter = match keeps_some {
            true => Some((self.shortened(cut)?, segment.log_file(&self.files)?)),
            false => None,
        };
        let kept = shorter.as_ref().map(|(segment, _)| Arc::clone(segment));
        let gone = self.publish_cut(cut, kept, producers);
        // From here on the log on disk must become what readers are told.
        self.sync_state_of(cut, keeps_some);
        let gone = match keeps_some {
            true => &gone[1..],
            false => &gone[..],
        };
        self.put_aside(gone, *end)?;
        if let Some((shorter, file)) = &shorter {
            let shortened = file.truncate(cut.position).and_then(|()| file.sync());
            shortened.map_err(|error| self.failed_cut(error))?;
            self.finish_segment(writer, shorter, *end)?;
        }
        self.begin_next_segment(writer)
    }

    /// Nothing stays, and the log begins at `start`.
    fn begin_anew(
        &self,
        writer: &mut MutexGuard<'_, Writer>,
        start: Offset,
    ) -> Result<(), LogError> {
        if !writer.on_disk && start == 0 && self.log_end_offset() == 0 {
            return Ok(());
        }
        tracing::info!(
            partition = %self.partition, log_start = self.log_start_offset(),
            log_end = self.log_end_offset(), start, "a log begins anew"
        );
        let first = self.view.lock().segments.first().map(|s| s.base_offset);
        let lowest = first.unwrap_or(start).min(start);
        self.lower_promises(lowest, lowest)?;
        self.make_directory(writer)?;
        let gone = {
            let mut producers = self.producers.lock();
            let mut view = self.view.lock();
            *producers = Some(ProducerState::default());
            view.epochs.truncate_from_end(0);
            // In the order in which start <= flushed <= end holds all the while.
            if start < self.log_start_offset() {
                self.log_start.store(start, Ordering::Release);
                self.flushed.store(start, Ordering::Release);
                self.log_end.store(start, Ordering::Release);
            } else {
                self.log_end.store(start, Ordering::Release);
                self.flushed.store(start, Ordering::Release);
                self.log_start.store(start, Ordering::Release);
            }
            self.recovery_point.store(start, Ordering::Release);
            self.truncations.fetch_add(1, Ordering::AcqRel);
            std::mem::take(&mut view.segments)
        };
        gone.iter().for_each(|segment| segment.abandon());
        self.directory.cache.forget(self.files.id);
        self.sync.lock().truncated(Offset::MIN, start);
        writer.snapshot = -1;
        self.put_aside(&gone, Offset::MIN)?;
        self.begin_next_segment(writer)?;
        self.write_epochs(&self.view.lock().epochs.to_text());
        self.directory.store_new_log_start(&self.partition, start)
    }

    fn lower_promises(
        &self,
        recovery_point: Offset,
        high_watermark: Offset,
    ) -> Result<(), LogError> {
        self.directory
            .lower_promises(&self.partition, recovery_point, high_watermark)?;
        self.recovery_point
            .fetch_min(recovery_point, Ordering::AcqRel);
        Ok(())
    }

    /// The producers at `end`, durably: the snapshots behind it go, and segments that told of them may.
    fn keep_snapshot(
        &self,
        writer: &mut Writer,
        end: Offset,
        producers: &ProducerState,
    ) -> Result<(), LogError> {
        let path = self.files.path_of(end, FileKind::ProducerSnapshot);
        replace_file(&*self.files.disk, &path, &producers.to_snapshot(), true)
            .map_err(|error| self.failed_write(error))?;
        writer.snapshot = end;
        Ok(())
    }

    /// The segment that holds the cut, as it will be.
    fn shortened(&self, cut: &Cut) -> Result<Arc<Segment>, LogError> {
        let old = &cut.segment;
        let damage = old.damage().map(|places| {
            let kept = places.iter().filter(|place| place.start < cut.position);
            kept.cloned().collect::<Arc<[_]>>()
        });
        let plan = WalkPlan {
            base_offset: old.base_offset,
            bytes: cut.position,
            index_interval_bytes: self.index_interval(),
            trusted_below: cut.end,
            check_crc: false,
            damage: damage.clone(),
        };
        // What is only in memory is found again in the batches.
        let loaded = SegmentIndex::load(&self.files, &*old.log_file(&self.files)?, &plan)?;
        let extent = (cut.position, cut.end);
        let findings = &self.files.findings;
        let segment = Segment::found(old.base_offset, old.created_ms, extent, findings);
        let segment = segment.surveyed(damage);
        Ok(Arc::new(match loaded.damage {
            None => segment.with(loaded.index),
            Some(_) => segment,
        }))
    }

    /// From now on nobody finds what goes. Returns the segments that readers may still hold.
    fn publish_cut(
        &self,
        cut: &Cut,
        kept: Option<Arc<Segment>>,
        state: ProducerState,
    ) -> Vec<Arc<Segment>> {
        let (gone, epochs) = {
            let mut producers = self.producers.lock();
            let mut view = self.view.lock();
            *producers = Some(state);
            let gone: Vec<_> = view.segments.drain(cut.number..).collect();
            view.segments.extend(kept);
            let changed = view.epochs.truncate_from_end(cut.end);
            self.flushed.fetch_min(cut.end, Ordering::AcqRel);
            self.log_end.store(cut.end, Ordering::Release);
            self.truncations.fetch_add(1, Ordering::AcqRel);
            (gone, changed.then(|| view.epochs.to_text()))
        };
        gone.iter().for_each(|segment| segment.abandon());
        self.directory.cache.forget(self.files.id);
        if let Some(text) = epochs {
            self.write_epochs(&text);
        }
        tracing::info!(
            partition = %self.partition, log_end = cut.end, segments = gone.len(), "cut the end off a log"
        );
        gone
    }

    fn sync_state_of(&self, cut: &Cut, keeps_some: bool) {
        let first_gone = match keeps_some {
            true => cut.segment.base_offset + 1,
            false => cut.segment.base_offset,
        };
        self.sync.lock().truncated(first_gone, cut.end);
    }

    /// Gives whole segments other names, the last one first, and removes the snapshots past `end`.
    fn put_aside(&self, gone: &[Arc<Segment>], end: Offset) -> Result<(), LogError> {
        let disk = &self.files.disk;
        let mut files = Vec::new();
        let mut put_aside = || {
            for segment in gone.iter().rev() {
                // Not the snapshots: what is left after a power cut has its producers.
                let renamed = self.files.put_aside(segment.base_offset, |kind| {
                    kind != FileKind::ProducerSnapshot
                });
                files.extend(renamed?);
                // One by one: what is left after a power cut is a beginning of the log.
                disk.sync_directory(&self.files.path)?;
            }
            for offset in self.snapshots()? {
                if offset > end {
                    disk.remove_file(&self.files.path_of(offset, FileKind::ProducerSnapshot))?;
                }
            }
            disk.sync_directory(&self.files.path)
                .map_err(LogError::from)
        };
        let done = put_aside();
        let delay = interval(self.config().file_delete_delay_ms);
        self.directory.tasks.set(Task::RemoveFiles(files), delay);
        done.map_err(|error| match error {
            LogError::Io(error) => self.failed_cut(error),
            error => error,
        })
    }

    /// A segment of its own for what comes, with its file: the end of a log outlives its records.
    fn begin_next_segment(&self, writer: &mut MutexGuard<'_, Writer>) -> Result<(), LogError> {
        let now_ms = self.directory.clock.wall_ms();
        self.begin_empty_segment(writer, now_ms)?;
        writer.appended = true; // its indexes and snapshot are written at a clean stop
        let synced = self.files.disk.sync_directory(&self.files.path);
        synced.map_err(|error| self.failed_cut(error))
    }

    /// Half a cut: what is on disk is not what was told.
    fn failed_cut(&self, error: io::Error) -> LogError {
        self.directory.fail("cut a log", &error);
        error.into()
    }
}
