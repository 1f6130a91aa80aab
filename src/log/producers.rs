//! Producer state of a log: loaded when it is needed, snapshotted when a segment ends.

use std::sync::atomic::Ordering;

use super::disk::{read_small_file, replace_file};
use super::log::{Log, LogError, ProducerView, Writer};
use super::names::{self, FileKind};
use super::producer_state::ProducerState;
use super::walk::{Located, WalkError};
use crate::types::Offset;

/// A snapshot of so many bytes holds some millions of producers.
const SNAPSHOT_BYTES_MAX: u64 = 256 << 20;
/// How far before a snapshot the other batches of its producers are looked for.
const EARLIER_BYTES_MAX: u64 = 8 << 20;

impl Log {
    pub fn producers(&self) -> Vec<ProducerView> {
        let views = self.with_producers(|producers| {
            producers
                .iter()
                .map(|(producer_id, entry)| ProducerView {
                    producer_id,
                    producer_epoch: entry.epoch,
                    last_sequence: entry.last_sequence(),
                    last_timestamp: entry.last_timestamp,
                    coordinator_epoch: entry.coordinator_epoch,
                    current_txn_start_offset: entry.transaction_start.unwrap_or(-1),
                })
                .collect()
        });
        views.unwrap_or_else(|error| {
            tracing::warn!(partition = %self.partition, %error, "load the producer state");
            Vec::new()
        })
    }

    pub(super) fn with_producers<R>(
        &self,
        f: impl FnOnce(&mut ProducerState) -> R,
    ) -> Result<R, LogError> {
        let mut producers = self.producers.lock();
        if let Some(producers) = producers.as_mut() {
            return Ok(f(producers));
        }
        let end = self.log_end.load(Ordering::Acquire);
        let loaded = self.despite_removals(|| self.load_producers(end))?;
        Ok(f(producers.insert(loaded)))
    }

    /// Forgets producers that wrote nothing for long. Those never loaded expire when they are.
    pub(super) fn expire_producers(&self) {
        let now = self.directory.clock.wall_ms();
        if let Some(producers) = self.producers.lock().as_mut() {
            producers.expire(now, self.directory.producer_id_expiration_ms());
        }
    }

    /// The newest snapshot and the batches behind it; without a snapshot all batches.
    pub(super) fn load_producers(&self, end: Offset) -> Result<ProducerState, LogError> {
        let segments = self.view.lock().segments.clone();
        let Some(first) = segments.first() else {
            return Ok(ProducerState::default());
        };
        let (from, mut producers) = self
            .newest_snapshot(first.base_offset, end)?
            .unwrap_or((first.base_offset, ProducerState::default()));
        if !producers.is_empty() {
            self.walk_back(from, |batch| producers.apply_earlier(&batch.header))?;
        }
        for (number, segment) in segments.iter().enumerate() {
            let ended = segments
                .get(number + 1)
                .is_some_and(|next| next.base_offset <= from);
            if ended || segment.bytes() == 0 || from >= end {
                continue;
            }
            let Some(file) = segment.existing_file(&self.files)? else {
                continue;
            };
            let interval = self.index_interval();
            let bytes = segment.bytes();
            let mut walker = segment.walk_from(&self.files, &*file, from, bytes, interval)?;
            while let Some(batch) = walker.next()? {
                if batch.header.base_offset >= from && batch.header.last_offset() < end {
                    producers.apply(&batch.header);
                }
            }
        }
        producers.expire(
            self.directory.clock.wall_ms(),
            self.directory.producer_id_expiration_ms(),
        );
        Ok(producers)
    }

    /// The newest snapshot in `start..=end` that can be read; damaged ones are removed. One from before
    /// the first segment would be continued with a gap.
    fn newest_snapshot(
        &self,
        start: Offset,
        end: Offset,
    ) -> Result<Option<(Offset, ProducerState)>, LogError> {
        let mut offsets = self.snapshots()?;
        offsets.retain(|&offset| offset >= start && offset <= end);
        while let Some(offset) = offsets.pop() {
            let path = self.files.path_of(offset, FileKind::ProducerSnapshot);
            let content = read_small_file(&*self.files.disk, &path, SNAPSHOT_BYTES_MAX);
            let state = content
                .ok()
                .and_then(|content| ProducerState::from_snapshot(&content));
            match state {
                Some(state) => return Ok(Some((offset, state))),
                None => {
                    tracing::warn!(partition = %self.partition, offset, "a producer snapshot is damaged");
                    let _ = self.files.disk.remove_file(&path); // the batches tell the same
                }
            }
        }
        Ok(None)
    }

    /// Makes the producers' state at `base_offset` durable: with the segments before it goes all else
    /// that tells of some of them.
    pub(super) fn keep_producers(&self, base_offset: Offset) -> Result<(), LogError> {
        let kind = FileKind::ProducerSnapshot;
        let path = self.files.path_of(base_offset, kind);
        let content = read_small_file(&*self.files.disk, &path, SNAPSHOT_BYTES_MAX).ok();
        let whole = content.is_some_and(|c| ProducerState::from_snapshot(&c).is_some());
        let written = match whole {
            true => self
                .sync_file(base_offset, kind)
                .and_then(|()| self.files.disk.sync_directory(&self.files.path)),
            false => {
                let state = self.load_producers(base_offset)?;
                replace_file(&*self.files.disk, &path, &state.to_snapshot(), true)
            }
        };
        written.map_err(|error| self.failed_write(error))
    }

    /// Offsets of the snapshots on disk, ascending.
    pub(super) fn snapshots(&self) -> Result<Vec<Offset>, LogError> {
        let mut offsets: Vec<Offset> = self
            .files
            .disk
            .list(&self.files.path)?
            .iter()
            .filter_map(|entry| names::parse_segment_file(&entry.name))
            .filter(|(_, kind)| *kind == FileKind::ProducerSnapshot)
            .map(|(offset, _)| offset)
            .collect();
        offsets.sort_unstable();
        Ok(offsets)
    }

    /// Shows the batches before `end` from the newest to the oldest, some megabytes of them.
    fn walk_back(&self, end: Offset, mut visit: impl FnMut(&Located)) -> Result<(), LogError> {
        let segments = self.view.lock().segments.clone();
        let interval = self.index_interval();
        let mut left = EARLIER_BYTES_MAX;
        for segment in segments.iter().rev() {
            if segment.base_offset >= end || segment.bytes() == 0 || left == 0 {
                continue;
            }
            let Some(file) = segment.existing_file(&self.files)? else {
                continue;
            };
            segment.ensure_loaded(&self.files, interval)?;
            let bytes = segment.bytes();
            let until = match segment.locate(&self.files, &*file, end, bytes, interval) {
                Ok(Some(batch)) => batch.position,
                Ok(None) | Err(WalkError::Damaged { .. }) => bytes,
                Err(error) => return Err(error.into()),
            };
            let from = until.saturating_sub(left);
            left -= until - from;
            let mut walker = segment.walk_from_position(&self.files, &*file, from, until)?;
            let mut batches = Vec::new();
            while let Some(batch) = walker.next()? {
                if batch.header.producer_id >= 0 {
                    batches.push(batch);
                }
            }
            batches.iter().rev().for_each(&mut visit);
        }
        Ok(())
    }

    /// Writes a snapshot at the log's end unless there is one.
    pub(super) fn write_snapshot(
        &self,
        writer: &mut Writer,
        end: Offset,
        durable: bool,
    ) -> Result<(), LogError> {
        if writer.snapshot == end || !writer.on_disk {
            return Ok(());
        }
        let content = self.with_producers(|producers| producers.to_snapshot())?;
        let path = self.files.path_of(end, FileKind::ProducerSnapshot);
        replace_file(&*self.files.disk, &path, &content, durable)?;
        writer.snapshot = end;
        Ok(())
    }

    /// Removes snapshots that no segment begins with, but for the one at `end`.
    pub(super) fn remove_stray_snapshots(&self, end: Offset) -> Result<(), LogError> {
        let bases: Vec<Offset> = {
            let view = self.view.lock();
            view.segments
                .iter()
                .map(|segment| segment.base_offset)
                .collect()
        };
        for offset in self.snapshots()? {
            if offset != end && bases.binary_search(&offset).is_err() {
                let path = self.files.path_of(offset, FileKind::ProducerSnapshot);
                self.files.disk.remove_file(&path)?;
            }
        }
        Ok(())
    }
}
