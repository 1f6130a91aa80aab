//! Walks the batches of a segment file by their headers, and checks their CRC where asked to.

use std::io;

use super::disk::DiskFile;
use crate::record::{BATCH_HEADER_BYTES, BatchHeader};
use crate::types::Offset;

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
}

/// Batch by batch from `position` up to `end`. Offsets must ascend.
#[derive(Debug)]
pub(crate) struct Walker<'a> {
    file: &'a dyn DiskFile,
    position: u64,
    end: u64,
    /// The next batch must not begin below.
    offset_min: Offset,
    window: Vec<u8>,
    window_start: u64,
}

impl<'a> Walker<'a> {
    pub(crate) fn new(file: &'a dyn DiskFile, position: u64, end: u64, offset_min: Offset) -> Self {
        Self {
            file,
            position,
            end,
            offset_min,
            window: Vec::new(),
            window_start: 0,
        }
    }

    /// The next batch, `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<Located>, WalkError> {
        let position = self.position;
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
            || header.base_offset < self.offset_min
            || last.is_none_or(|last| last == Offset::MAX)
        {
            return Err(bad(format!(
                "offset {} follows {}",
                header.base_offset,
                self.offset_min.saturating_sub(1)
            )));
        }
        self.position += total;
        self.offset_min = header.last_offset() + 1;
        Ok(Some(Located { header, position }))
    }

    fn header_bytes(&mut self) -> io::Result<&[u8]> {
        let inside = self
            .position
            .checked_sub(self.window_start)
            .and_then(|start| usize::try_from(start).ok())
            .filter(|start| self.window.len() >= start + BATCH_HEADER_BYTES);
        let start = match inside {
            Some(start) => start,
            None => {
                let left = usize::try_from(self.end - self.position).unwrap_or(usize::MAX);
                self.window.resize(WINDOW_BYTES.min(left), 0);
                let read = self.file.read_at(&mut self.window, self.position)?;
                self.window.truncate(read);
                self.window_start = self.position;
                0
            }
        };
        Ok(self.window.get(start..).unwrap_or(&[]))
    }
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
