//! Retention at work: segments that a log lets go of, the log start that moves before them, and their
//! files, which are renamed at once and removed after `file.delete.delay.ms`.
//!
//! The new log start is durable before anything goes, so that a crash never brings back what a consumer
//! was told is gone; one checkpoint carries those of many logs.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::MutexGuard;

use super::directory::Directory;
use super::disk::OpenMode;
use super::log::{Log, LogError, Writer, is_full};
use super::manifest::ManifestEntry;
use super::names::FileKind;
use super::retention::{Expired, LogState, expired};
use super::segment::Segment;
use super::tasks::{Task, interval};
use crate::config::TopicConfig;
use crate::types::{Offset, TimestampMs, TopicPartition};

/// Logs whose new starts go into one checkpoint.
const LOGS_AT_ONCE: usize = 1000;
/// Logs that are opened in one round because something of them may have to go.
const OPENED_AT_ONCE: usize = 1000;
/// Segments renamed while appends wait.
const SEGMENTS_AT_ONCE: usize = 32;
/// Entries of the manifest looked at while nobody can open a log.
const ENTRIES_AT_ONCE: usize = 256;

/// Cleans up the open logs of a directory, and has those opened of which something must go. True if
/// another round should follow soon.
pub(super) fn clean_up(directory: &Directory) -> bool {
    let now_ms = directory.clock.wall_ms();
    let mut going = Vec::new();
    let mut from_the_future = None;
    for log in directory.logs() {
        if directory.tasks.is_stopped() || !directory.is_online() {
            return false;
        }
        match log.prepare_cleanup(now_ms) {
            Ok(prepared) => {
                if prepared.future_timestamp {
                    from_the_future.get_or_insert_with(|| log.topic_partition().clone());
                }
                going.extend(prepared.log_start.map(|to| (log, to)));
            }
            Err(error) => {
                tracing::warn!(partition = %log.topic_partition(), %error, "look for what retention removes");
            }
        }
        if going.len() >= LOGS_AT_ONCE {
            remove(directory, &going);
            going.clear();
        }
    }
    remove(directory, &going);
    if let Some(partition) = from_the_future {
        tracing::warn!(%partition, "a segment has records with timestamps from the future: retention.ms keeps it until then");
    }
    open_expired(directory, now_ms)
}

/// Moves the starts of some logs, durably, and removes what is below.
fn remove(directory: &Directory, going: &[(Arc<Log>, Offset)]) {
    if going.is_empty() {
        return;
    }
    let durable = match directory.store_log_starts(going) {
        Ok(()) => true,
        // The renamed files say the same, once their names are durable, and need no room.
        Err(LogError::Io(error)) if is_full(&error) => false,
        Err(error) => {
            tracing::error!(directory = %directory.path.display(), %error, "store the log starts");
            return;
        }
    };
    for (log, to) in going {
        if let Err(error) = log.drop_below(*to, !durable) {
            tracing::warn!(partition = %log.topic_partition(), %error, "remove segments");
        }
    }
}

/// Has logs opened that a clean stop left with something to remove; true if there are any.
fn open_expired(directory: &Directory, now_ms: TimestampMs) -> bool {
    let Some(listener) = directory.listener() else {
        return false;
    };
    let mut opened = 0;
    let mut after: Option<TopicPartition> = None;
    loop {
        let some = directory
            .manifest
            .lock()
            .some_after(after.as_ref(), ENTRIES_AT_ONCE);
        let Some((last, _)) = some.last() else {
            return opened > 0;
        };
        after = Some(last.clone());
        for (partition, entry) in &some {
            let config = listener.topic_config(partition);
            if config.is_some_and(|config| may_expire(entry, &config, now_ms))
                && listener.open(partition)
            {
                opened += 1;
            }
            if opened >= OPENED_AT_ONCE {
                return true;
            }
        }
    }
}

/// Whether something of a log at rest has to go, as far as the manifest can tell.
fn may_expire(entry: &ManifestEntry, config: &TopicConfig, now_ms: TimestampMs) -> bool {
    let segments: Vec<_> = entry
        .segments
        .iter()
        .map(|segment| (segment.base_offset, segment.bytes))
        .collect();
    let state = LogState {
        segments: &segments,
        log_start: entry.log_start,
        log_end: entry.log_end,
        high_watermark: entry.log_end,
    };
    let timestamp = |number: usize| entry.segments[number].largest_timestamp.ok_or(());
    expired(config, state, now_ms, timestamp).map_or(true, |expired| expired.count() > 0)
}

/// What a log has to let go of.
#[derive(Debug, Default)]
struct Prepared {
    /// Everything wholly below goes.
    log_start: Option<Offset>,
    future_timestamp: bool,
}

impl Log {
    #[cfg(test)]
    pub(super) fn segment_bases(&self) -> Vec<Offset> {
        let segments = self.segments();
        segments.iter().map(|segment| segment.base_offset).collect()
    }

    fn segments(&self) -> Vec<Arc<Segment>> {
        self.view.lock().segments.clone()
    }

    fn expired(
        &self,
        segments: &[Arc<Segment>],
        high_watermark: Offset,
        now_ms: TimestampMs,
    ) -> Result<Expired, LogError> {
        let config = self.config();
        let sizes: Vec<_> = segments
            .iter()
            .map(|segment| (segment.base_offset, segment.bytes()))
            .collect();
        let state = LogState {
            segments: &sizes,
            log_start: self.log_start_offset(),
            log_end: self.log_end_offset(),
            high_watermark,
        };
        let believed = now_ms.saturating_sub(config.retention_ms)..=now_ms;
        let interval = self.index_interval();
        expired(&config, state, now_ms, |number| {
            Ok(segments[number].largest_timestamp(&self.files, interval, &believed)?)
        })
    }

    /// Decides, and makes ready what must be there before segments go: an empty segment where all go,
    /// and the producers' state, which only they could tell.
    fn prepare_cleanup(&self, now_ms: TimestampMs) -> Result<Prepared, LogError> {
        let Some(high_watermark) = self.directory.high_watermark(self) else {
            return Ok(Prepared::default());
        };
        let mut segments = self.segments();
        let mut expired = self.expired(&segments, high_watermark, now_ms)?;
        if expired.count() > 0 && expired.count() == segments.len() {
            let mut writer = self.writer.lock();
            self.check_usable()?;
            // An append may have come meanwhile.
            segments = self.segments();
            expired = self.expired(&segments, high_watermark, now_ms)?;
            if expired.count() == segments.len() {
                segments.push(self.begin_empty_segment(&mut writer, now_ms)?);
            }
        }
        let Some(first) = segments
            .get(expired.count())
            .filter(|_| expired.count() > 0)
        else {
            return Ok(Prepared {
                log_start: None,
                future_timestamp: expired.future_timestamp,
            });
        };
        let to = first.base_offset.max(self.log_start_offset());
        if to > self.flushed_offset() {
            self.flush()?;
        }
        self.keep_producers(first.base_offset)?;
        tracing::info!(
            partition = %self.partition, log_start = to, by_time = expired.by_time, by_size = expired.by_size,
            by_log_start = expired.by_log_start, "segments go"
        );
        Ok(Prepared {
            log_start: Some(to),
            future_timestamp: expired.future_timestamp,
        })
    }

    /// An empty segment at the log's end, with its file: the log's end outlives its records.
    pub(super) fn begin_empty_segment(
        &self,
        writer: &mut MutexGuard<'_, Writer>,
        now_ms: TimestampMs,
    ) -> Result<Arc<Segment>, LogError> {
        let end = self.log_end_offset();
        self.write_snapshot(writer, end, true)?;
        for kind in [FileKind::Log, FileKind::OffsetIndex, FileKind::TimeIndex] {
            self.files
                .open(end, kind, OpenMode::Create)
                .map_err(|error| self.failed_write(error))?;
        }
        Ok(self.add_segment(end, now_ms))
    }

    /// Moves the log start up (what is stored of it is not this function's) and lets go of all segments
    /// wholly below. With `durable_names` the files' new names are durable on return.
    pub(super) fn drop_below(&self, to: Offset, durable_names: bool) -> Result<(), LogError> {
        let mut dropped = {
            let _writer = self.writer.lock();
            self.check_usable()?;
            // The log may have been cut since that was decided.
            let to = to.min(self.log_end_offset());
            self.log_start.fetch_max(to, Ordering::AcqRel);
            let (dropped, epochs) = {
                let mut view = self.view.lock();
                let kept = view
                    .segments
                    .partition_point(|segment| segment.base_offset <= to)
                    .saturating_sub(1);
                let dropped: Vec<_> = view.segments.drain(..kept).collect();
                let changed = view.epochs.truncate_from_start(to);
                (dropped, changed.then(|| view.epochs.to_text()))
            };
            if let Some(text) = epochs {
                self.write_epochs(&text);
            }
            dropped
        };
        // Before the files go: whoever still looks for them must not take that for damage.
        dropped.iter().for_each(|segment| segment.abandon());
        self.directory.log_start_moved(&self.partition, to);
        let delay = interval(self.config().file_delete_delay_ms);
        while !dropped.is_empty() {
            // Under the lock: a log that was deleted has no files of this name, its successor has.
            let _writer = self.writer.lock();
            self.check_usable()?;
            let mut files = Vec::new();
            for segment in dropped.drain(..dropped.len().min(SEGMENTS_AT_ONCE)) {
                files.extend(self.files.put_segment_aside(segment.base_offset)?);
            }
            self.directory.tasks.set(Task::RemoveFiles(files), delay);
        }
        if durable_names {
            self.files.disk.sync_directory(&self.files.path)?;
        }
        Ok(())
    }
}
