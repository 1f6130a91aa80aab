//! Walks the batches of a segment file by their headers, and checks their CRC where asked to.

use std::io;
use std::sync::Arc;

use super::disk::DiskFile;
use super::segment::Segment;
use super::survey::Damage;
use crate::record::{BATCH_HEADER_BYTES, BatchHeader};
use crate::types::{LeaderEpoch, Offset};

/// Read at a time: many small batches, or the header of a large one.
const WINDOW_BYTES: usize = 4096;
/// Read at a time when a CRC is checked.
const CHECK_BYTES: usize = 64 * 1024;
/// What the CRC does not cover.
const CRC_START: usize = 21;

/// A batch and where it lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Located {
    pub header: BatchHeader,
    pub position: u64,
}

impl Located {
    /// Position behind the batch.
    pub(crate) fn end(&self) -> u64 {
        self.position + self.header.total_bytes() as u64
    }
}

/// Why the walk cannot go on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WalkError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("at position {position}: {reason}")]
    Bad { position: u64, reason: String },
    /// What was asked for is lost; around it all is well.
    #[error("offsets {first_offset} to {} are damaged", next_offset - 1)]
    Damaged {
        first_offset: Offset,
        next_offset: Offset,
    },
}

/// Batch by batch from `position` up to `end`. Offsets must ascend, epochs must not go down. A batch is
/// shown when the one behind it agrees with it.
///
/// A walker of a [`Segment`] goes around damage: the segment is surveyed where it meets some.
#[derive(Debug)]
pub(crate) struct Walker<'a> {
    file: &'a dyn DiskFile,
    /// Behind what was read last.
    at: Place,
    /// Behind what was shown last.
    shown: Place,
    end: u64,
    window: Vec<u8>,
    window_start: u64,
    segment: Option<&'a Segment>,
    damage: Option<Arc<[Damage]>>,
    /// Read already, and not shown yet.
    peeked: Option<Located>,
    /// Found behind what was shown last.
    failed: Option<WalkError>,
}

/// Where a walk stands.
#[derive(Debug, Clone, Copy)]
struct Place {
    position: u64,
    /// The next batch must not begin below.
    offset_min: Offset,
    epoch_min: LeaderEpoch,
}

impl<'a> Walker<'a> {
    /// Ends at damage.
    pub(crate) fn new(file: &'a dyn DiskFile, position: u64, end: u64, offset_min: Offset) -> Self {
        let at = Place {
            position,
            offset_min,
            epoch_min: LeaderEpoch::MIN,
        };
        Self {
            file,
            at,
            shown: at,
            end,
            window: Vec::new(),
            window_start: 0,
            segment: None,
            damage: None,
            peeked: None,
            failed: None,
        }
    }

    /// Goes around damage that is known.
    pub(crate) fn around(mut self, damage: Option<Arc<[Damage]>>) -> Self {
        self.damage = damage;
        self
    }

    /// Goes around damage, also such as is not known yet.
    pub(crate) fn of_segment(
        segment: &'a Segment,
        file: &'a dyn DiskFile,
        position: u64,
        end: u64,
    ) -> Self {
        let mut walker = Self::new(file, position, end, segment.base_offset);
        walker.damage = segment.damage();
        walker.segment = Some(segment);
        walker
    }

    /// The next batch, `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<Located>, WalkError> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        loop {
            match self.advance() {
                Err(error @ WalkError::Bad { .. }) => {
                    if !self.survey()? {
                        return Err(error);
                    }
                }
                other => return other,
            }
        }
    }

    fn advance(&mut self) -> Result<Option<Located>, WalkError> {
        let current = match self.peeked.take() {
            Some(batch) => batch,
            None => match self.step()? {
                Some(batch) => batch,
                None => return Ok(None),
            },
        };
        let behind = self.at;
        match self.step() {
            Ok(None) => {
                self.check_end(&current)?;
            }
            Ok(next) => self.peeked = next,
            // Whichever of the two is wrong.
            Err(error @ WalkError::Bad { .. }) if self.segment.is_some() => return Err(error),
            Err(error) => self.failed = Some(error),
        }
        self.shown = behind;
        Ok(Some(current))
    }

    /// Has the segment looked at as a whole and goes back to what was shown last. False if that tells
    /// nothing new.
    fn survey(&mut self) -> io::Result<bool> {
        let Some(segment) = self.segment else {
            return Ok(false);
        };
        let damage = segment.survey(self.file)?;
        let known = match (&self.damage, &damage) {
            (Some(before), Some(now)) => Arc::ptr_eq(before, now),
            (None, None) => true,
            _ => false,
        };
        self.damage = damage;
        self.at = self.shown;
        self.peeked = None;
        Ok(!known)
    }

    /// The last batch of a segment ends before the next segment begins.
    fn check_end(&self, last: &Located) -> Result<(), WalkError> {
        let Some(segment) = self.segment.filter(|segment| segment.bytes() == self.end) else {
            return Ok(());
        };
        let (offset, end) = (last.header.last_offset(), segment.end_offset());
        if offset < end {
            return Ok(());
        }
        Err(WalkError::Bad {
            position: last.position,
            reason: format!("offset {offset} is not below the segment's end {end}"),
        })
    }

    /// Reads a header.
    fn step(&mut self) -> Result<Option<Located>, WalkError> {
        self.pass_damage();
        let position = self.at.position;
        let left = self.end.saturating_sub(position);
        if left == 0 {
            return Ok(None);
        }
        let bad = |reason: String| WalkError::Bad { position, reason };
        if left < BATCH_HEADER_BYTES as u64 {
            return Err(bad(format!("{left} bytes are less than a batch header")));
        }
        let header =
            BatchHeader::parse(self.header_bytes()?).map_err(|error| bad(error.to_string()))?;
        let total = header.total_bytes() as u64;
        if total > left {
            return Err(bad(format!("a batch of {total} bytes ends past the file")));
        }
        let last = header
            .base_offset
            .checked_add(i64::from(header.last_offset_delta));
        if header.last_offset_delta < 0
            || header.base_offset < self.at.offset_min
            || last.is_none_or(|last| last == Offset::MAX)
        {
            return Err(bad(format!(
                "offset {} follows {}",
                header.base_offset,
                self.at.offset_min.saturating_sub(1)
            )));
        }
        let epoch = header.partition_leader_epoch;
        // A survey has judged the epochs of a segment in which there is damage.
        if epoch < self.at.epoch_min && self.damage.is_none() {
            let before = self.at.epoch_min;
            return Err(bad(format!("leader epoch {epoch} follows {before}")));
        }
        self.at = Place {
            position: position + total,
            offset_min: header.last_offset() + 1,
            epoch_min: epoch,
        };
        Ok(Some(Located { header, position }))
    }

    fn pass_damage(&mut self) {
        if let Some(damage) = &self.damage {
            let position = self.at.position;
            let after = damage.partition_point(|damage| damage.start <= position);
            if let Some(damage) = after.checked_sub(1).and_then(|at| damage.get(at))
                && position < damage.end
            {
                self.at.position = damage.end;
            }
        }
    }

    fn header_bytes(&mut self) -> io::Result<&[u8]> {
        let position = self.at.position;
        let inside = position
            .checked_sub(self.window_start)
            .and_then(|start| usize::try_from(start).ok())
            .filter(|start| self.window.len() >= start + BATCH_HEADER_BYTES);
        let start = match inside {
            Some(start) => start,
            None => {
                let left = usize::try_from(self.end - position).unwrap_or(usize::MAX);
                // Large batches have one header in many windows.
                let far = position.saturating_sub(self.window_start) > WINDOW_BYTES as u64;
                let want = match far && !self.window.is_empty() {
                    true => BATCH_HEADER_BYTES,
                    false => WINDOW_BYTES,
                };
                self.window.resize(want.min(left), 0);
                let read = self.file.read_at(&mut self.window, position)?;
                self.window.truncate(read);
                self.window_start = position;
                0
            }
        };
        Ok(self.window.get(start..).unwrap_or(&[]))
    }
}

/// The header that stands at `position`, if one can.
pub(crate) fn header_at(
    file: &dyn DiskFile,
    position: u64,
    end: u64,
) -> io::Result<Option<BatchHeader>> {
    if end.saturating_sub(position) < BATCH_HEADER_BYTES as u64 {
        return Ok(None);
    }
    let mut bytes = [0; BATCH_HEADER_BYTES];
    let read = file.read_at(&mut bytes, position)?;
    let header = BatchHeader::parse(&bytes[..read]).ok();
    Ok(header.filter(|header| {
        header.last_offset_delta >= 0
            && position + header.total_bytes() as u64 <= end
            && header
                .base_offset
                .checked_add(i64::from(header.last_offset_delta))
                .is_some()
    }))
}

/// Reads a whole batch piece by piece and compares its CRC; no memory by the batch's own claim.
pub(crate) fn crc_matches(
    file: &dyn DiskFile,
    batch: &Located,
    buffer: &mut Vec<u8>,
) -> io::Result<bool> {
    buffer.resize(CHECK_BYTES, 0);
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    let mut position = batch.position + CRC_START as u64;
    while position < batch.end() {
        let want = usize::try_from(batch.end() - position)
            .unwrap_or(usize::MAX)
            .min(CHECK_BYTES);
        let read = file.read_at(&mut buffer[..want], position)?;
        if read == 0 {
            return Ok(false);
        }
        digest.update(&buffer[..read]);
        position += read as u64;
    }
    Ok(digest.finalize() == u64::from(batch.header.crc))
}

/// Reads the payload of a batch that the walker found (so that it lies inside the file).
pub(crate) fn read_payload(file: &dyn DiskFile, batch: &Located) -> io::Result<Vec<u8>> {
    let mut payload = vec![0; batch.header.payload_bytes()];
    let read = file.read_at(&mut payload, batch.position + BATCH_HEADER_BYTES as u64)?;
    payload.truncate(read);
    Ok(payload)
}
