//! The two sparse indexes of a segment, as Kafka writes them. Pure.
//!
//! ```text
//! .index      relative_offset i32 | position i32      one entry per index.interval.bytes
//! .timeindex  timestamp i64 | relative_offset i32     largest timestamp so far and whose it is
//! ```
//!
//! The offset of an entry is that of a batch's *last* record; its position is where that batch begins.

use crate::types::{Offset, TimestampMs};

pub(crate) const OFFSET_ENTRY_BYTES: usize = 8;
pub(crate) const TIME_ENTRY_BYTES: usize = 12;

/// One entry of an offset index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OffsetEntry {
    pub relative_offset: u32,
    pub position: u32,
}

/// One entry of a time index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TimeEntry {
    pub timestamp: TimestampMs,
    pub relative_offset: u32,
}

/// What both files are made of: entries of a fixed size.
pub(crate) trait IndexEntry: Copy {
    const BYTES: usize;
    fn write(self, bytes: &mut Vec<u8>);
    /// `None` unless `bytes` holds exactly an entry.
    fn read(bytes: &[u8]) -> Option<Self>;
}

impl IndexEntry for OffsetEntry {
    const BYTES: usize = OFFSET_ENTRY_BYTES;

    fn write(self, bytes: &mut Vec<u8>) {
        bytes.extend(self.relative_offset.to_be_bytes());
        bytes.extend(self.position.to_be_bytes());
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let (offset, position) = bytes.split_first_chunk::<4>()?;
        Some(Self {
            relative_offset: u32::from_be_bytes(*offset),
            position: u32::from_be_bytes(position.try_into().ok()?),
        })
    }
}

impl IndexEntry for TimeEntry {
    const BYTES: usize = TIME_ENTRY_BYTES;

    fn write(self, bytes: &mut Vec<u8>) {
        bytes.extend(self.timestamp.to_be_bytes());
        bytes.extend(self.relative_offset.to_be_bytes());
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let (timestamp, offset) = bytes.split_first_chunk::<8>()?;
        Some(Self {
            timestamp: i64::from_be_bytes(*timestamp),
            relative_offset: u32::from_be_bytes(offset.try_into().ok()?),
        })
    }
}

/// All entries as bytes.
pub(crate) fn encode<E: IndexEntry>(entries: &[E]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(entries.len() * E::BYTES);
    for entry in entries {
        entry.write(&mut bytes);
    }
    bytes
}

/// All whole entries in `bytes`.
pub(crate) fn decode<E: IndexEntry>(bytes: &[u8]) -> Vec<E> {
    bytes.chunks_exact(E::BYTES).filter_map(E::read).collect()
}

/// Offset of `relative` in a segment, `None` past what an offset can be.
pub(crate) fn absolute(base_offset: Offset, relative: u32) -> Option<Offset> {
    base_offset.checked_add(Offset::from(relative))
}

/// `offset` as an index entry holds it. `None` where the segment must end: Kafka's is a signed number.
pub(crate) fn relative(base_offset: Offset, offset: Offset) -> Option<u32> {
    let relative = offset.checked_sub(base_offset)?;
    i32::try_from(relative)
        .ok()
        .and_then(|relative| u32::try_from(relative).ok())
}

/// How many entries at the start of an offset index can be true: ascending and inside the segment.
pub(crate) fn sane_offsets(entries: &[OffsetEntry], segment_bytes: u64) -> usize {
    let mut last: Option<OffsetEntry> = None;
    for (count, entry) in entries.iter().enumerate() {
        let ascending = last.is_none_or(|last| {
            entry.relative_offset > last.relative_offset && entry.position > last.position
        });
        if !ascending
            || u64::from(entry.position) >= segment_bytes
            || entry.relative_offset > i32::MAX.unsigned_abs()
        {
            return count;
        }
        last = Some(*entry);
    }
    entries.len()
}

/// How many entries at the start of a time index can be true.
pub(crate) fn sane_times(entries: &[TimeEntry]) -> usize {
    let mut last: Option<TimeEntry> = None;
    for (count, entry) in entries.iter().enumerate() {
        let ascending = last.is_none_or(|last| {
            entry.relative_offset > last.relative_offset && entry.timestamp > last.timestamp
        });
        if !ascending || entry.relative_offset > i32::MAX.unsigned_abs() {
            return count;
        }
        last = Some(*entry);
    }
    entries.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_kafkas_bytes() {
        let offsets = [OffsetEntry {
            relative_offset: 0x0102,
            position: 0x0304,
        }];
        assert_eq!(encode(&offsets), [0, 0, 1, 2, 0, 0, 3, 4]);
        let times = [TimeEntry {
            timestamp: 0x0102,
            relative_offset: 3,
        }];
        assert_eq!(encode(&times), [0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 3]);
        assert_eq!(decode::<OffsetEntry>(&[0, 0, 1, 2, 0, 0, 3, 4, 9]), offsets);
        assert_eq!(decode::<TimeEntry>(&encode(&times)), times);
    }

    #[test]
    fn a_segment_spans_what_a_signed_number_holds() {
        assert_eq!(relative(10, 10), Some(0));
        assert_eq!(relative(10, 9), None);
        assert_eq!(relative(10, 10 + i64::from(i32::MAX)), Some(0x7fff_ffff));
        assert_eq!(relative(10, 11 + i64::from(i32::MAX)), None);
        assert_eq!(absolute(i64::MAX, 1), None);
    }

    #[test]
    fn entries_count_up_to_the_first_that_cannot_be() {
        let entry = |relative_offset, position| OffsetEntry {
            relative_offset,
            position,
        };
        let good = [entry(1, 0), entry(5, 100), entry(9, 200)];
        assert_eq!(sane_offsets(&good, 300), 3);
        assert_eq!(sane_offsets(&good, 200), 2);
        assert_eq!(sane_offsets(&[entry(1, 0), entry(1, 100)], 300), 1);
        assert_eq!(sane_offsets(&[entry(u32::MAX, 0)], 300), 0);
        let time = |timestamp, relative_offset| TimeEntry {
            timestamp,
            relative_offset,
        };
        assert_eq!(sane_times(&[time(5, 1), time(6, 2), time(0, 0)]), 2);
        assert_eq!(sane_times(&[time(5, 1), time(5, 2)]), 1);
    }
}
