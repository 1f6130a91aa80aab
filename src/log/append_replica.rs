//! Appending to a follower's log: batches as the leader has them, as many as one segment takes with one
//! write. They do not go into the tail cache: a follower is rarely read, and a large frame is free again
//! as soon as it is written.

use std::sync::Arc;

use parking_lot::MutexGuard;

use super::append::Rolling;
use super::log::{AppendError, Log, LogError, Writer};
use super::segment::Segment;
use super::walk::Located;
use crate::config::TopicConfig;
use crate::record::{ReplicaBatch, ReplicaBatches};
use crate::types::{Offset, TimestampMs};

impl Log {
    /// Appends batches that were checked against this log's end; returns the new one. Asks for no flush:
    /// who waits for the disk says so with [`Log::flush_soon`]. What was written before an error stays.
    pub fn append_as_follower(
        &self,
        batches: &ReplicaBatches,
        now_ms: TimestampMs,
    ) -> Result<Offset, AppendError> {
        let config = self.config();
        let mut writer = self.writer.lock();
        self.check_usable()?;
        let tries_room = !self.is_internal
            && self
                .directory
                .take_room(batches.bytes_total() as u64)
                .map_err(AppendError::Log)?;
        self.forget_cached(&mut writer); // of the time as leader
        let mut rest = &batches.batches[..];
        while let Some(first) = rest.first() {
            let bytes = first.range.len();
            let segment = self
                .segment_for(&mut writer, &first.header, bytes, &config, now_ms)
                .map_err(|error| match error {
                    LogError::Io(error) => self.failed_write(error),
                    other => other,
                })?;
            let count = self.fitting(&segment, rest, &config, now_ms);
            let (group, behind) = rest.split_at(count);
            self.write_group(&mut writer, &segment, batches, group, &config)?;
            rest = behind;
        }
        drop(writer);
        if tries_room {
            self.directory.has_room();
        }
        self.after_append(&config);
        Ok(self.log_end_offset())
    }

    /// How many batches go into this segment; the first one does.
    fn fitting(
        &self,
        segment: &Segment,
        batches: &[ReplicaBatch],
        config: &TopicConfig,
        now_ms: TimestampMs,
    ) -> usize {
        let mut rolling = Rolling::of(self.files.id, segment, config, now_ms);
        let mut count = 0;
        for batch in batches {
            let bytes = batch.range.len() as u64;
            if count > 0 && rolling.is_due(&batch.header, bytes) {
                break;
            }
            rolling.add(&batch.header, bytes);
            count += 1;
        }
        count
    }

    fn write_group(
        &self,
        writer: &mut MutexGuard<'_, Writer>,
        segment: &Arc<Segment>,
        batches: &ReplicaBatches,
        group: &[ReplicaBatch],
        config: &TopicConfig,
    ) -> Result<(), LogError> {
        let (Some(first), Some(last)) = (group.first(), group.last()) else {
            return Ok(());
        };
        let start = segment.bytes();
        let bytes = &batches.bytes[first.range.start..last.range.end];
        let file = self.write(segment, start, bytes, &[])?;
        for batch in group {
            let batch = Located {
                header: batch.header,
                position: start + (batch.range.start - first.range.start) as u64,
            };
            self.publish(writer, segment, &batch, Arc::clone(&file), config);
        }
        Ok(())
    }
}
