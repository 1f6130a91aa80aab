//! Appending to a log: producer state, rolling, one write per batch.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::MutexGuard;

use super::checkpoint;
use super::directory::{has_no_room, is_out_of_descriptors};
use super::disk::{DiskFile, OpenMode};
use super::index;
use super::log::{AppendError, Appended, Log, LogError, Writer, is_full};
use super::names::{self, FileKind};
use super::producer_state::SequenceCheck;
use super::read::SENT_FROM_FILE_BYTES_MIN;
use super::retention::{roll_jitter, segment_age_max};
use super::segment::Segment;
use super::segment_index::PENDING_MAX;
use super::tail_cache::{Place, WrittenBatch};
use super::walk::Located;
use crate::config::TopicConfig;
use crate::record::{BATCH_HEADER_BYTES, BatchHeader, ValidBatch};
use crate::types::{
    ApiError, ErrorCode, LeaderEpoch, NO_TIMESTAMP, Offset, TimestampMs, TimestampType,
};

/// A consumer that has not asked for so long has gone, or found what it asked for in the file.
const READERS_STAY_MS: TimestampMs = 60_000;

impl Log {
    /// Assigns offsets and writes. Checks producer state first. Who waits for the disk says so with
    /// [`Log::flush_soon`].
    pub fn append(
        &self,
        batch: ValidBatch,
        leader_epoch: LeaderEpoch,
        now_ms: TimestampMs,
    ) -> Result<Appended, AppendError> {
        let config = self.config();
        let bytes = BATCH_HEADER_BYTES + batch.payload.len();
        if bytes > usize::try_from(config.segment_bytes).unwrap_or(usize::MAX) {
            return Err(AppendError::Refused(ApiError::new(
                ErrorCode::RecordListTooLarge,
                format!(
                    "Message batch size is {bytes} bytes in append to partition {}, which exceeds the \
                     maximum configured segment size of {}.",
                    self.partition, config.segment_bytes
                ),
            )));
        }
        let mut writer = self.writer.lock();
        self.check_usable()?;
        let base_offset = self.log_end.load(Ordering::Relaxed);
        match self.check_sequence(&batch.header, base_offset) {
            Ok(Some(duplicate)) => return Ok(duplicate),
            Ok(None) => {}
            // A batch before it found no room: that is why it is out of order, and both come again.
            Err(AppendError::Refused(_)) if !self.is_internal && self.directory.is_full() => {
                return Err(LogError::Full(self.directory.path.clone()).into());
            }
            Err(error) => return Err(error),
        }
        let header = BatchHeader {
            base_offset,
            partition_leader_epoch: leader_epoch,
            ..batch.header
        };
        let last_offset = base_offset
            .checked_add(i64::from(header.last_offset_delta))
            .filter(|&last| last < Offset::MAX && last >= base_offset)
            .ok_or_else(|| ApiError::from(ErrorCode::InvalidRecord))?;
        let tries_room = !self.is_internal && self.directory.take_room(bytes as u64)?;
        let segment = self
            .segment_for(&mut writer, &header, bytes, &config, now_ms)
            .map_err(|error| match error {
                LogError::Io(error) => self.failed_write(error),
                other => other,
            })?;
        let position = segment.bytes();
        let encoded = header.encode();
        let file = self.write(&segment, position, &encoded, &batch.payload)?;
        let with_copy = bytes < SENT_FROM_FILE_BYTES_MIN || file.as_file().is_none();
        self.publish(
            &mut writer,
            &segment,
            &Located { header, position },
            file,
            &config,
        );
        if self.has_readers(now_ms) {
            writer.cached = true;
            let written = WrittenBatch {
                base_offset,
                last_offset,
                place: Place {
                    segment: segment.base_offset,
                    position,
                },
                head: &encoded,
                payload: &batch.payload,
            };
            let cache = &self.directory.cache;
            cache.add(self.files.id, &written, with_copy);
        } else {
            self.forget_cached(&mut writer);
        }
        drop(writer);
        if tries_room {
            self.directory.has_room();
        }
        self.after_append(&config);
        Ok(Appended {
            base_offset,
            last_offset,
            log_append_time_ms: append_time(header.max_timestamp, &config),
            log_start_offset: self.log_start_offset(),
            duplicate: false,
        })
    }

    /// True if an append finds all that it needs in memory and opened, and its turn free: it takes a millisecond
    /// at most while the disk answers at once.
    pub fn appends_briefly(&self) -> bool {
        self.writer.try_lock().is_some_and(|writer| writer.appended)
    }

    /// Whether somebody was at the log's end not long ago: without, a copy in memory serves nobody.
    fn has_readers(&self, now_ms: TimestampMs) -> bool {
        let since = now_ms.saturating_sub(self.read_at_end_ms.load(Ordering::Relaxed));
        since < READERS_STAY_MS
    }

    /// What is cached would be continued with a gap.
    pub(super) fn forget_cached(&self, writer: &mut Writer) {
        if std::mem::take(&mut writer.cached) {
            self.directory.cache.forget(self.files.id);
        }
    }

    /// `Some` if the batch is there already. Appends nothing.
    pub fn duplicate_of(&self, header: &BatchHeader) -> Option<Appended> {
        let _writer = self.writer.lock();
        let end = self.log_end.load(Ordering::Relaxed);
        self.check_sequence(header, end).ok().flatten()
    }

    /// `Some` if the batch is there already.
    fn check_sequence(
        &self,
        header: &BatchHeader,
        offset: Offset,
    ) -> Result<Option<Appended>, AppendError> {
        if header.producer_id < 0 {
            return Ok(None);
        }
        let check = self
            .with_producers(|producers| producers.check(header, offset, &self.partition))?
            .map_err(AppendError::Refused)?;
        Ok(match check {
            SequenceCheck::Append => None,
            SequenceCheck::Duplicate {
                base_offset,
                last_offset,
                timestamp,
            } => Some(Appended {
                base_offset,
                last_offset,
                // As Kafka does, whatever the topic stamps.
                log_append_time_ms: timestamp,
                log_start_offset: self.log_start_offset(),
                duplicate: true,
            }),
        })
    }

    /// The segment that takes the batch: the active one, or a new one.
    pub(super) fn segment_for(
        &self,
        writer: &mut MutexGuard<'_, Writer>,
        header: &BatchHeader,
        bytes: usize,
        config: &TopicConfig,
        now_ms: TimestampMs,
    ) -> Result<Arc<Segment>, LogError> {
        let active = self.view.lock().segments.last().map(Arc::clone);
        let Some(active) = active else {
            self.make_directory(writer)?;
            return Ok(self.add_segment(header.base_offset, now_ms));
        };
        active.ensure_loaded(&self.files, self.index_interval())?;
        let rolling = Rolling::of(self.files.id, &active, config, now_ms);
        if rolling.is_due(header, bytes as u64) {
            self.finish_segment(writer, &active, header.base_offset)?;
            return Ok(self.add_segment(header.base_offset, now_ms));
        }
        Ok(active)
    }

    pub(super) fn add_segment(&self, base_offset: Offset, now_ms: TimestampMs) -> Arc<Segment> {
        let segment = Arc::new(Segment::new(base_offset, now_ms, &self.files.findings));
        self.view.lock().segments.push(Arc::clone(&segment));
        segment
    }

    pub(super) fn make_directory(&self, writer: &mut Writer) -> Result<(), LogError> {
        if writer.on_disk {
            return Ok(());
        }
        self.directory.settle(&self.partition)?;
        self.files.disk.create_directory(&self.files.path)?;
        self.write_partition_metadata()?;
        self.sync.lock().parent_directory = true;
        writer.on_disk = true;
        Ok(())
    }

    /// Says whose records these are; durably, before there are any: without it, after a power cut, they
    /// would be those of the next topic of this name. Written in place: what a crash leaves of it is
    /// no worse than none, and a rename would cost the file system a second commit.
    pub(super) fn write_partition_metadata(&self) -> io::Result<()> {
        let disk = &*self.files.disk;
        let path = self.files.path.join(names::PARTITION_METADATA);
        let text = checkpoint::partition_metadata_to_text(self.topic_id);
        let file = disk.open(&path, OpenMode::Create)?;
        file.write_at(text.as_bytes(), &[], 0)?;
        if file.bytes()? > text.len() as u64 {
            file.truncate(text.len() as u64)?;
        }
        file.sync()?;
        disk.sync_directory(&self.files.path)
    }

    /// What a segment needs when the next one begins: whole indexes and a producer snapshot.
    pub(super) fn finish_segment(
        &self,
        writer: &mut Writer,
        segment: &Segment,
        end: Offset,
    ) -> Result<(), LogError> {
        if self.sync.lock().is_nameless() {
            // A power cut that left the next segment and not this one would leave a log with a hole.
            self.files.disk.sync_directory(&self.files.path)?;
        }
        segment.give_room_back(|| segment.log_file(&self.files)); // before anything else needs some
        segment.finish_index(&self.files)?;
        segment.notice_change(&*segment.log_file(&self.files)?);
        self.write_snapshot(writer, end, false)?;
        self.write_first_epoch(writer);
        self.sync.lock().finished(segment.base_offset);
        self.request_background_flush();
        Ok(())
    }

    pub(super) fn write(
        &self,
        segment: &Segment,
        position: u64,
        head: &[u8],
        payload: &[u8],
    ) -> Result<Arc<dyn DiskFile>, LogError> {
        let mode = match position {
            0 => OpenMode::Create,
            _ => OpenMode::Write,
        };
        let file = self
            .files
            .open(segment.base_offset, FileKind::Log, mode)
            .map_err(|error| self.failed_write(error))?;
        if position == 0 {
            // Once the file is there: a flush that is under way syncs the directory now or never.
            self.sync.lock().partition_directory = true;
        }
        let end = position + (head.len() + payload.len()) as u64;
        let spare = |bytes| self.directory.take_spare_room(bytes);
        segment.take_room_ahead(&*file, (position, end), spare);
        if let Err(error) = file.write_at(head, payload, position) {
            // A torn batch must not stand in front of the next one, nor whole ones of a torn write come back
            // with a power cut, behind others that were not synced.
            let cut = file.truncate(position).and_then(|()| file.sync());
            if let Err(error) = cut {
                self.directory.fail("cut off a torn batch", &error);
            }
            return Err(self.failed_write(error));
        }
        Ok(file)
    }

    /// A full disk refuses the append and goes on; anything else takes the directory offline.
    pub(super) fn failed_write(&self, error: io::Error) -> LogError {
        if has_no_room(&error) {
            return self.directory.failed_write("append", error);
        }
        let full = is_full(&error);
        // Nothing is wrong with the disk.
        let no_descriptor = is_out_of_descriptors(&error);
        let deleted =
            error.kind() == io::ErrorKind::NotFound && self.deleted.load(Ordering::Acquire);
        if full || no_descriptor || deleted {
            tracing::warn!(partition = %self.partition, %error, "an append was refused");
        } else {
            self.directory.fail("append", &error);
        }
        error.into()
    }

    /// Makes a written batch visible.
    pub(super) fn publish(
        &self,
        writer: &mut Writer,
        segment: &Segment,
        batch: &Located,
        file: Arc<dyn DiskFile>,
        config: &TopicConfig,
    ) {
        let header = &batch.header;
        let interval = u64::try_from(config.index_interval_bytes).unwrap_or(0);
        let full = {
            let mut index = segment.index.lock();
            index.add(segment.base_offset, batch, interval);
            index.offsets.len().max(index.times.len()) >= PENDING_MAX
        };
        let end = header.last_offset() + 1;
        segment.set_bytes(batch.end(), end);
        let epochs = {
            let mut view = self.view.lock();
            let epoch = header.partition_leader_epoch;
            // The first one stands in the first batch: its file can wait.
            let first = view.epochs.entries().is_empty();
            let changed = view.epochs.assign(epoch, header.base_offset);
            writer.epochs_to_write |= first && changed;
            (changed && !first).then(|| view.epochs.to_text())
        };
        {
            // The end moves with the producers, so that whoever loads them reads all or none of this.
            let mut producers = self.producers.lock();
            if let Some(producers) = producers.as_mut() {
                producers.apply(header);
            }
            self.log_end.store(end, Ordering::Release);
        }
        self.sync.lock().written(segment.base_offset, header, || {
            match config.flush_messages {
                1 => self.files.pool.hold(file),
                _ => None,
            }
        });
        writer.bytes_since_recovery_point += header.total_bytes() as u64;
        writer.appended_since_tick = true;
        writer.appended = true;
        if let Some(text) = epochs {
            writer.epochs_to_write = false;
            self.write_epochs(&text);
        }
        if full && let Err(error) = segment.write_index(&self.files, PENDING_MAX - 1) {
            // They stay in memory and are tried again with the next ones.
            tracing::warn!(partition = %self.partition, %error, "write index entries");
        }
    }
}

fn append_time(max_timestamp: TimestampMs, config: &TopicConfig) -> TimestampMs {
    match config.timestamp_type {
        TimestampType::LogAppendTime => max_timestamp,
        TimestampType::CreateTime => NO_TIMESTAMP,
    }
}

/// Kafka's `LogSegment.shouldRoll`: what of a segment decides whether it takes another batch.
#[derive(Debug)]
pub(super) struct Rolling<'a> {
    /// Number of the log, for the jitter.
    log: u64,
    base_offset: Offset,
    bytes: u64,
    offset_entries: usize,
    time_entries: usize,
    first_timestamp: Option<TimestampMs>,
    created_ms: TimestampMs,
    config: &'a TopicConfig,
    now_ms: TimestampMs,
}

impl<'a> Rolling<'a> {
    pub(super) fn of(
        log: u64,
        segment: &Segment,
        config: &'a TopicConfig,
        now_ms: TimestampMs,
    ) -> Self {
        let index = segment.index.lock();
        Self {
            log,
            base_offset: segment.base_offset,
            bytes: segment.bytes(),
            offset_entries: index.offset_count() as usize,
            time_entries: index.time_count() as usize,
            first_timestamp: index.first_timestamp,
            created_ms: segment.created_ms,
            config,
            now_ms,
        }
    }

    /// A batch that is about to be appended, with as many index entries as it can need.
    pub(super) fn add(&mut self, header: &BatchHeader, bytes: u64) {
        self.bytes += bytes;
        self.offset_entries += 1;
        self.time_entries += 1;
        self.first_timestamp.get_or_insert(header.max_timestamp);
    }

    pub(super) fn is_due(&self, header: &BatchHeader, bytes: u64) -> bool {
        if self.bytes == 0 {
            return false;
        }
        let config = self.config;
        let total = self.bytes + bytes;
        let segment_bytes = u64::try_from(config.segment_bytes).unwrap_or(0);
        if total > segment_bytes || total > i32::MAX.unsigned_abs().into() {
            return true;
        }
        if index::relative(self.base_offset, header.last_offset()).is_none() {
            return true;
        }
        let index_bytes = usize::try_from(config.segment_index_bytes).unwrap_or(0);
        if self.offset_entries >= index_bytes / index::OFFSET_ENTRY_BYTES
            || self.time_entries >= (index_bytes / index::TIME_ENTRY_BYTES).saturating_sub(1)
        {
            return true;
        }
        let waited = match self.first_timestamp {
            Some(first) if first >= 0 => header.max_timestamp.saturating_sub(first),
            _ => self.now_ms.saturating_sub(self.created_ms),
        };
        let jitter = roll_jitter(self.log, self.base_offset, config);
        waited > segment_age_max(config).saturating_sub(jitter)
    }
}
