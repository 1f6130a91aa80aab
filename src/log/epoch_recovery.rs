//! The leader epochs of a log that is opened: what its file says, as far as the batches agree.

use std::io;
use std::sync::Arc;

use super::disk::{read_small_file, replace_file};
use super::leader_epochs::LeaderEpochs;
use super::log::LogError;
use super::names;
use super::recovery::Opening;
use super::segment::Segment;
use super::walk::{WalkError, Walker};
use crate::types::{LeaderEpoch, Offset};

const EPOCHS_BYTES_MAX: u64 = 16 << 20;

impl Opening<'_> {
    /// The checkpoint file if the batches agree with it; what it lacks is read from them. True with a
    /// first epoch that has no file yet: as after the first append, it can wait.
    pub(super) fn epochs(
        &self,
        segments: &[Arc<Segment>],
        believed_below: Offset,
    ) -> Result<(LeaderEpochs, bool), LogError> {
        let path = self.files.path.join(names::LEADER_EPOCH_CHECKPOINT);
        let content = read_small_file(&*self.directory.disk, &path, EPOCHS_BYTES_MAX);
        let missing = matches!(&content, Err(error) if error.kind() == io::ErrorKind::NotFound);
        let read = content
            .ok()
            .and_then(|bytes| LeaderEpochs::from_text(std::str::from_utf8(&bytes).ok()?));
        let whole = read.is_some();
        let mut epochs = read.unwrap_or_default();
        // Past that the file may tell of records that a crash took, and others took their place.
        epochs.truncate_from_end(believed_below);
        let before = epochs.clone();
        let mut segments = segments.to_vec();
        segments.retain(|segment| segment.bytes() > 0);
        let agrees = self.agree(&epochs, &segments)?;
        if !agrees {
            epochs = LeaderEpochs::default();
        }
        if !(missing || whole && agrees) {
            tracing::warn!(partition = %self.partition, "the leader epoch checkpoint is damaged and made anew");
        }
        self.add_missing(&mut epochs, &segments)?;
        let can_wait = missing && epochs.entries().len() == 1;
        if !can_wait && (!whole || epochs != before) {
            let text = epochs.to_text();
            if let Err(error) = replace_file(&*self.directory.disk, &path, text.as_bytes(), false) {
                self.not_written("write the leader epochs", error)?;
            }
        }
        Ok((epochs, can_wait))
    }

    /// Whether each entry is that of the batch at its start, and the last one that of the last batch or
    /// of one before it.
    fn agree(&self, epochs: &LeaderEpochs, segments: &[Arc<Segment>]) -> Result<bool, LogError> {
        let entries = epochs.entries();
        for (number, &(epoch, start)) in entries.iter().enumerate() {
            let after = segments.partition_point(|segment| segment.base_offset <= start);
            let Some(segment) = after.checked_sub(1).and_then(|at| segments.get(at)) else {
                continue; // from before the first segment
            };
            let file = segment.log_file(self.files)?;
            let bytes = segment.bytes();
            let interval = self.index_interval_bytes;
            let found = segment.locate(self.files, &*file, start, bytes, interval);
            let batch = match found {
                Ok(Some(batch)) => batch.header,
                Ok(None) | Err(WalkError::Damaged { .. } | WalkError::Bad { .. }) => continue,
                Err(WalkError::Io(error)) => return Err(error.into()),
            };
            let begins = number == 0 || batch.base_offset >= start;
            if batch.partition_leader_epoch != epoch || !begins {
                return Ok(false);
            }
        }
        let (Some(latest), Some(segment)) = (epochs.latest(), segments.last()) else {
            return Ok(true);
        };
        Ok(self.last_epoch(segment)?.is_none_or(|last| latest <= last))
    }

    fn add_missing(
        &self,
        epochs: &mut LeaderEpochs,
        segments: &[Arc<Segment>],
    ) -> Result<(), LogError> {
        // The epoch of the newest entry and of all batches behind it are known; look there.
        let from = epochs.entries().last().map_or(0, |&(_, start)| start);
        for (number, segment) in segments.iter().enumerate() {
            let next = segments.get(number + 1);
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
            let mut walker = Walker::of_segment(segment, &*file, 0, segment.bytes());
            while let Some(header) = walk_on(&mut walker)? {
                let (epoch, base_offset) = header;
                if epochs.latest().is_none_or(|latest| epoch > latest) {
                    epochs.assign(epoch, base_offset);
                }
            }
        }
        Ok(())
    }

    fn first_epoch(&self, segment: &Segment) -> Result<Option<LeaderEpoch>, LogError> {
        let file = segment.log_file(self.files)?;
        let mut walker = Walker::of_segment(segment, &*file, 0, segment.bytes());
        Ok(walk_on(&mut walker)?.map(|(epoch, _)| epoch))
    }

    fn last_epoch(&self, segment: &Segment) -> Result<Option<LeaderEpoch>, LogError> {
        let file = segment.log_file(self.files)?;
        let bytes = segment.bytes();
        segment.ensure_loaded(self.files, self.index_interval_bytes)?;
        let mut walker = segment.walk_from_position(self.files, &*file, bytes, bytes)?;
        let mut last = None;
        while let Some((epoch, _)) = walk_on(&mut walker)? {
            last = Some(epoch);
        }
        Ok(last)
    }
}

/// Epoch and base offset of the next batch.
fn walk_on(walker: &mut Walker<'_>) -> Result<Option<(LeaderEpoch, Offset)>, LogError> {
    match walker.next() {
        Ok(batch) => Ok(batch.map(|batch| {
            let header = batch.header;
            (header.partition_leader_epoch, header.base_offset)
        })),
        Err(WalkError::Io(error)) => Err(error.into()),
        Err(_) => Ok(None),
    }
}
