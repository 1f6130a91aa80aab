//! What of a segment is whole, batch by batch, and where it goes on behind damage.
//!
//! Reading believes headers as long as each agrees with the next. Where two contradict one another this
//! looks at the whole segment, CRCs included, and says which bytes and offsets are lost. Base offset
//! and leader epoch lie outside the CRC: of batches that contradict one another the one is believed
//! that its other neighbour agrees with.

use std::collections::VecDeque;
use std::io;

use super::disk::DiskFile;
use super::walk::{Located, crc_matches};
use crate::record::{BATCH_HEADER_BYTES, BatchHeader, LOG_OVERHEAD_BYTES};
use crate::types::{LeaderEpoch, NO_EPOCH, Offset};

/// Bytes looked at when a batch is searched for.
const SEARCH_BYTES: usize = 256 * 1024;
/// Batches seen before one is judged: its successor and that one's.
const AHEAD: usize = 3;
/// So many zeros at the end of a batch are what a write leaves that never came to its end.
const LOST_ZEROS: usize = 16;

/// A part of a segment that is not served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Damage {
    pub start: u64,
    pub end: u64,
    /// The offsets that are lost with it: `first_offset..next_offset`.
    pub first_offset: Offset,
    pub next_offset: Offset,
    pub reason: String,
    /// Looks like a write that did not come to its end.
    pub unwritten: bool,
}

/// What is looked at.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SurveyPlan {
    pub base_offset: Offset,
    pub bytes: u64,
    /// Where the next segment begins, or the log ends; [`Offset::MAX`] where that is not known.
    pub end_offset: Offset,
    /// The last batch follows the one before it without a gap: where nothing behind it says that its
    /// offset is right.
    pub dense_end: bool,
}

/// What was found.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    /// In the order of the file, none touching the next.
    pub damage: Vec<Damage>,
    pub batches: u64,
    pub records: u64,
    /// The last batch that is whole.
    pub last: Option<Located>,
}

/// A batch with the right CRC, or bytes that are none.
#[derive(Debug)]
enum Piece {
    Sound(Located),
    Bad {
        start: u64,
        end: u64,
        reason: String,
        unwritten: bool,
    },
}

/// Looks at every byte of a segment. `visit` sees each batch that is believed.
pub(crate) fn survey(
    file: &dyn DiskFile,
    plan: SurveyPlan,
    visit: &mut dyn FnMut(&Located) -> io::Result<()>,
) -> io::Result<Survey> {
    let mut pieces = Pieces::new(file, plan);
    let mut ahead: VecDeque<Piece> = VecDeque::new();
    let mut judge = Judge::new(plan);
    loop {
        while ahead.len() < AHEAD {
            match pieces.next()? {
                Some(piece) => ahead.push_back(piece),
                None => break,
            }
        }
        let Some(piece) = ahead.pop_front() else {
            break;
        };
        match piece {
            Piece::Bad {
                start,
                end,
                reason,
                unwritten,
            } => judge.lose(start, end, reason, unwritten),
            Piece::Sound(batch) => match judge.contradiction(&batch, &ahead) {
                Some(reason) => judge.lose(batch.position, batch.end(), reason, false),
                None => {
                    judge.believe(&batch);
                    visit(&batch)?;
                }
            },
        }
    }
    Ok(judge.finish())
}

/// Cuts a file into batches and what is none.
struct Pieces<'a> {
    file: &'a dyn DiskFile,
    plan: SurveyPlan,
    position: u64,
    /// CRCs of so many bytes may be computed in search of a batch: what lies in a payload may look like
    /// any number of headers.
    search_bytes_left: u64,
    buffer: Vec<u8>,
    window: Vec<u8>,
}

impl<'a> Pieces<'a> {
    fn new(file: &'a dyn DiskFile, plan: SurveyPlan) -> Self {
        Self {
            file,
            plan,
            position: 0,
            search_bytes_left: (64 << 20) + 4 * plan.bytes,
            buffer: Vec::new(),
            window: Vec::new(),
        }
    }

    fn next(&mut self) -> io::Result<Option<Piece>> {
        let start = self.position;
        let left = self.plan.bytes.saturating_sub(start);
        if left == 0 {
            return Ok(None);
        }
        let (reason, claimed_end) = match self.header(start)? {
            Ok(header) => {
                let batch = Located {
                    header,
                    position: start,
                };
                if crc_matches(self.file, &batch, &mut self.buffer)? {
                    self.position = batch.end();
                    return Ok(Some(Piece::Sound(batch)));
                }
                let reason = format!(
                    "the CRC of the batch at offset {} is wrong",
                    header.base_offset
                );
                (reason, Some(batch.end()))
            }
            Err(reason) => (reason, None),
        };
        // Its length may be what is damaged: a batch inside counts for more than what it claims.
        let inside = self.search(start + 1, claimed_end.unwrap_or(self.plan.bytes))?;
        let end = match (inside, claimed_end) {
            (Some(found), _) => found,
            (None, Some(end)) if end == self.plan.bytes || self.header(end)?.is_ok() => end,
            (None, Some(end)) => self
                .search(end, self.plan.bytes)?
                .unwrap_or(self.plan.bytes),
            (None, None) => self.plan.bytes,
        };
        self.position = end;
        Ok(Some(Piece::Bad {
            start,
            end,
            reason,
            unwritten: self.is_unwritten(start, end)?
                || (end == self.plan.bytes && self.is_torn(start)?),
        }))
    }

    /// The header at `position` if it can be one, or why not.
    fn header(&self, position: u64) -> io::Result<Result<BatchHeader, String>> {
        let left = self.plan.bytes.saturating_sub(position);
        if left < BATCH_HEADER_BYTES as u64 {
            return Ok(Err(format!("{left} bytes are less than a batch header")));
        }
        let mut bytes = [0; BATCH_HEADER_BYTES];
        let read = self.file.read_at(&mut bytes, position)?;
        Ok(match BatchHeader::parse(&bytes[..read]) {
            Err(error) => Err(error.to_string()),
            Ok(header) if header.total_bytes() as u64 > left => Err(format!(
                "a batch of {} bytes ends past the file",
                header.total_bytes()
            )),
            Ok(header) if header.last_offset_delta < 0 => Err("a negative offset delta".to_owned()),
            Ok(header) => Ok(header),
        })
    }

    /// The first whole batch that begins in `from..to` with an offset that this segment may have.
    fn search(&mut self, from: u64, to: u64) -> io::Result<Option<u64>> {
        let mut at = from;
        while at < to && self.plan.bytes - at >= BATCH_HEADER_BYTES as u64 {
            let want =
                SEARCH_BYTES.min(usize::try_from(self.plan.bytes - at).unwrap_or(usize::MAX));
            let mut window = std::mem::take(&mut self.window);
            window.resize(want, 0);
            let read = self.file.read_at(&mut window, at)?;
            let starts = read.saturating_sub(BATCH_HEADER_BYTES - 1);
            for start in 0..starts {
                let position = at + start as u64;
                if position >= to {
                    break;
                }
                if self.may_begin(&window[start..], position)
                    && let Ok(header) = BatchHeader::parse(&window[start..])
                    && self.affordable(&header, position)?
                    && crc_matches(self.file, &Located { header, position }, &mut self.buffer)?
                {
                    self.window = window;
                    return Ok(Some(position));
                }
            }
            self.window = window;
            if starts == 0 {
                break;
            }
            at += starts as u64;
        }
        Ok(None)
    }

    /// A cheap look: magic, length, offsets.
    fn may_begin(&self, bytes: &[u8], position: u64) -> bool {
        if bytes.get(16) != Some(&2) {
            return false;
        }
        let Ok(header) = BatchHeader::parse(bytes) else {
            return false;
        };
        header.total_bytes() as u64 <= self.plan.bytes - position
            && header.last_offset_delta >= 0
            && header.base_offset >= self.plan.base_offset
            && header
                .base_offset
                .checked_add(i64::from(header.last_offset_delta))
                .is_some_and(|last| last < self.plan.end_offset)
    }

    /// While there is budget every candidate is checked, then only those that another one follows.
    fn affordable(&mut self, header: &BatchHeader, position: u64) -> io::Result<bool> {
        let bytes = header.total_bytes() as u64;
        if let Some(left) = self.search_bytes_left.checked_sub(bytes) {
            self.search_bytes_left = left;
            return Ok(true);
        }
        let end = position + bytes;
        Ok(end == self.plan.bytes || self.header(end)?.is_ok())
    }

    /// Nothing but zeros at its end (or at all): what a write leaves that was never finished. Other
    /// damage has other bytes there.
    fn is_unwritten(&self, start: u64, end: u64) -> io::Result<bool> {
        let bytes = usize::try_from(end - start).unwrap_or(usize::MAX);
        let mut tail = vec![0; bytes.min(LOST_ZEROS)];
        let tail_start = end - tail.len() as u64;
        let read = self.file.read_at(&mut tail, tail_start)?;
        let mut head = vec![0; bytes.min(BATCH_HEADER_BYTES)];
        let read_head = self.file.read_at(&mut head, start)?;
        Ok(tail[..read].iter().all(|&byte| byte == 0)
            || head[..read_head].iter().all(|&byte| byte == 0))
    }

    /// A batch that the file ends in the middle of. With a damaged length only it would be whole.
    fn is_torn(&mut self, start: u64) -> io::Result<bool> {
        let left = self.plan.bytes.saturating_sub(start);
        let mut bytes = [0; BATCH_HEADER_BYTES];
        let read = self.file.read_at(&mut bytes, start)?;
        let Ok(mut header) = BatchHeader::parse(&bytes[..read]) else {
            return Ok(left < BATCH_HEADER_BYTES as u64);
        };
        if header.total_bytes() as u64 <= left {
            return Ok(false);
        }
        let length = left.saturating_sub(LOG_OVERHEAD_BYTES as u64);
        header.batch_length = i32::try_from(length).unwrap_or(i32::MAX);
        let whole = Located {
            header,
            position: start,
        };
        Ok(!crc_matches(self.file, &whole, &mut self.buffer)?)
    }
}

/// Decides which of the sound batches have the right offset and epoch.
struct Judge {
    plan: SurveyPlan,
    found: Survey,
    /// Offset behind the last believed batch.
    next_offset: Offset,
    /// Nothing was lost since.
    adjacent: bool,
    epoch: Option<LeaderEpoch>,
    /// More than one batch has that epoch.
    epoch_confirmed: bool,
}

impl Judge {
    fn new(plan: SurveyPlan) -> Self {
        Self {
            plan,
            found: Survey::default(),
            next_offset: plan.base_offset,
            adjacent: true,
            epoch: None,
            epoch_confirmed: false,
        }
    }

    /// Why `batch` is not believed, given what comes behind.
    fn contradiction(&self, batch: &Located, ahead: &VecDeque<Piece>) -> Option<String> {
        let header = &batch.header;
        let base = header.base_offset;
        let last = base.checked_add(i64::from(header.last_offset_delta));
        if base < self.next_offset {
            return Some(format!(
                "offset {base} follows {}",
                self.next_offset.saturating_sub(1)
            ));
        }
        let Some(last) = last.filter(|&last| last < self.plan.end_offset) else {
            return Some(format!(
                "offset {base} is not below the segment's end {}",
                self.plan.end_offset
            ));
        };
        if self.plan.dense_end && ahead.is_empty() && self.adjacent && base != self.next_offset {
            return Some(format!(
                "offset {base} follows {}, and nothing follows it",
                self.next_offset.saturating_sub(1)
            ));
        }
        let mut sound = ahead.iter().filter_map(|piece| match piece {
            Piece::Sound(batch) => Some(batch.header),
            Piece::Bad { .. } => None,
        });
        let next = sound.next();
        let after = sound.next();
        if !self.adjacent && self.next_is_sure(ahead, next.as_ref(), after.as_ref(), last) {
            return Some(format!("offset {last} behind damage does not lead on"));
        }
        if let Some(next) = next
            && last >= next.base_offset
            && !self.wins_offset(base, last, &next, after.as_ref())
        {
            return Some(format!("offset {last} comes before {}", next.base_offset));
        }
        self.contradicts_epoch(header, next.as_ref(), after.as_ref())
    }

    /// Whether the batch that comes right behind leaves a gap to `last`, and is itself led on from. What
    /// damaged the bytes before a batch may have reached its offset, which no CRC covers.
    fn next_is_sure(
        &self,
        ahead: &VecDeque<Piece>,
        next: Option<&BatchHeader>,
        after: Option<&BatchHeader>,
        last: Offset,
    ) -> bool {
        let right_behind = matches!(ahead.front(), Some(Piece::Sound(_)));
        let Some(next) = next.filter(|next| right_behind && last + 1 < next.base_offset) else {
            return false;
        };
        let after_base = after.map_or(self.plan.end_offset, |after| after.base_offset);
        next.last_offset().checked_add(1) == Some(after_base)
    }

    /// Whether of two batches that contradict one another the first is right.
    fn wins_offset(
        &self,
        base: Offset,
        last: Offset,
        next: &BatchHeader,
        after: Option<&BatchHeader>,
    ) -> bool {
        let follows = self.adjacent && base == self.next_offset;
        if follows {
            return true;
        }
        let after_base = after.map_or(self.plan.end_offset, |after| after.base_offset);
        let next_leads_on = next.last_offset().checked_add(1) == Some(after_base);
        if next_leads_on {
            return false;
        }
        let next_fits = next.base_offset >= self.next_offset && next.last_offset() < after_base;
        last < after_base && !next_fits
    }

    /// Epochs never go down. One that does while its neighbours agree is not believed.
    fn contradicts_epoch(
        &self,
        header: &BatchHeader,
        next: Option<&BatchHeader>,
        after: Option<&BatchHeader>,
    ) -> Option<String> {
        let epoch = header.partition_leader_epoch;
        let next = next.map(|next| next.partition_leader_epoch);
        let after = after.map(|after| after.partition_leader_epoch);
        let alone = match (self.epoch, next) {
            (Some(before), Some(next)) => before <= next && !(before..=next).contains(&epoch),
            (Some(before), None) => epoch < before && self.epoch_confirmed,
            (None, Some(next)) => epoch > next && after.is_some_and(|after| after >= next),
            (None, None) => false,
        };
        (alone || epoch < NO_EPOCH).then(|| {
            let around = self.epoch.or(next).unwrap_or(0);
            format!("leader epoch {epoch} among batches of epoch {around}")
        })
    }

    fn believe(&mut self, batch: &Located) {
        let header = &batch.header;
        self.close(header.base_offset);
        self.next_offset = header.last_offset() + 1;
        self.epoch_confirmed = self.epoch == Some(header.partition_leader_epoch);
        self.epoch = Some(header.partition_leader_epoch);
        self.adjacent = true;
        self.found.batches += 1;
        self.found.records += u64::try_from(header.record_count).unwrap_or(0);
        self.found.last = Some(*batch);
    }

    fn lose(&mut self, start: u64, end: u64, reason: String, unwritten: bool) {
        if let Some(open) = self
            .found
            .damage
            .last_mut()
            .filter(|open| open.end == start)
        {
            open.end = end;
            open.unwritten |= unwritten;
        } else {
            self.found.damage.push(Damage {
                start,
                end,
                first_offset: self.next_offset,
                next_offset: self.next_offset,
                reason,
                unwritten,
            });
        }
        self.adjacent = false;
    }

    /// What was lost before `offset` ends there.
    fn close(&mut self, offset: Offset) {
        if !self.adjacent
            && let Some(open) = self.found.damage.last_mut()
        {
            open.next_offset = offset;
        }
    }

    fn finish(mut self) -> Survey {
        if self.plan.end_offset != Offset::MAX {
            self.close(self.plan.end_offset);
        }
        self.found
    }
}
