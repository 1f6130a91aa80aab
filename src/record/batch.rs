//! The 61-byte header of a record batch.
//!
//! ```text
//! base_offset i64 | batch_length i32 | partition_leader_epoch i32 | magic i8 | crc u32 |
//! attributes i16 | last_offset_delta i32 | base_timestamp i64 | max_timestamp i64 |
//! producer_id i64 | producer_epoch i16 | base_sequence i32 | record_count i32
//! ```
//!
//! The CRC (CRC-32C) covers everything from the attributes to the end of the batch, so base offset,
//! length and leader epoch can be patched without touching it.

use super::{HeaderError, crc};
use crate::types::{
    Compression, LeaderEpoch, NO_PRODUCER_ID, Offset, ProducerEpoch, ProducerId, TimestampMs,
    TimestampType,
};

/// Size of a batch's header; the records follow.
pub const BATCH_HEADER_BYTES: usize = 61;
/// Size of base offset and batch length, which the batch length does not count.
pub const LOG_OVERHEAD_BYTES: usize = 12;
/// Bytes up to and with the magic.
pub(crate) const HEADER_BYTES_UP_TO_MAGIC: usize = 17;
/// Where the bytes that the CRC covers begin.
pub(crate) const ATTRIBUTES_POSITION: usize = 21;
/// Where the magic stands.
pub(crate) const MAGIC_POSITION: usize = 16;
/// The only batch format since Kafka 4.0.
pub const MAGIC: i8 = 2;

const COMPRESSION_MASK: i16 = 0x07;
const LOG_APPEND_TIME: i16 = 0x08;
const TRANSACTIONAL: i16 = 0x10;
const CONTROL: i16 = 0x20;
const DELETE_HORIZON: i16 = 0x40;

/// The fields of a batch header, in wire order (magic is always 2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchHeader {
    pub base_offset: Offset,
    /// Bytes behind this field: the whole batch is 12 bytes longer.
    pub batch_length: i32,
    pub partition_leader_epoch: LeaderEpoch,
    pub crc: u32,
    pub attributes: i16,
    pub last_offset_delta: i32,
    pub base_timestamp: TimestampMs,
    pub max_timestamp: TimestampMs,
    pub producer_id: ProducerId,
    pub producer_epoch: ProducerEpoch,
    pub base_sequence: i32,
    pub record_count: i32,
}

impl BatchHeader {
    /// Reads the header at the start of `bytes`. The batch may be longer than `bytes`; its length is
    /// at least that of a header. The CRC is not checked.
    pub fn parse(bytes: &[u8]) -> Result<Self, HeaderError> {
        let header: &[u8; BATCH_HEADER_BYTES] =
            bytes.first_chunk().ok_or(HeaderError::Truncated)?;
        let magic = i8::from_be_bytes([header[MAGIC_POSITION]]);
        if magic != MAGIC {
            return Err(HeaderError::Magic(magic));
        }
        let parsed = Self {
            base_offset: i64::from_be_bytes(field(header, 0)),
            batch_length: i32::from_be_bytes(field(header, 8)),
            partition_leader_epoch: i32::from_be_bytes(field(header, 12)),
            crc: u32::from_be_bytes(field(header, 17)),
            attributes: i16::from_be_bytes(field(header, ATTRIBUTES_POSITION)),
            last_offset_delta: i32::from_be_bytes(field(header, 23)),
            base_timestamp: i64::from_be_bytes(field(header, 27)),
            max_timestamp: i64::from_be_bytes(field(header, 35)),
            producer_id: i64::from_be_bytes(field(header, 43)),
            producer_epoch: i16::from_be_bytes(field(header, 51)),
            base_sequence: i32::from_be_bytes(field(header, 53)),
            record_count: i32::from_be_bytes(field(header, 57)),
        };
        let minimum = BATCH_HEADER_BYTES - LOG_OVERHEAD_BYTES;
        if usize::try_from(parsed.batch_length).is_ok_and(|length| length >= minimum) {
            Ok(parsed)
        } else {
            Err(HeaderError::Length(parsed.batch_length))
        }
    }

    /// The header as it stands on the wire and on disk.
    pub fn encode(&self) -> [u8; BATCH_HEADER_BYTES] {
        let mut bytes = [0; BATCH_HEADER_BYTES];
        bytes[0..8].copy_from_slice(&self.base_offset.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.batch_length.to_be_bytes());
        bytes[12..16].copy_from_slice(&self.partition_leader_epoch.to_be_bytes());
        bytes[16..17].copy_from_slice(&MAGIC.to_be_bytes());
        bytes[17..21].copy_from_slice(&self.crc.to_be_bytes());
        bytes[21..23].copy_from_slice(&self.attributes.to_be_bytes());
        bytes[23..27].copy_from_slice(&self.last_offset_delta.to_be_bytes());
        bytes[27..35].copy_from_slice(&self.base_timestamp.to_be_bytes());
        bytes[35..43].copy_from_slice(&self.max_timestamp.to_be_bytes());
        bytes[43..51].copy_from_slice(&self.producer_id.to_be_bytes());
        bytes[51..53].copy_from_slice(&self.producer_epoch.to_be_bytes());
        bytes[53..57].copy_from_slice(&self.base_sequence.to_be_bytes());
        bytes[57..61].copy_from_slice(&self.record_count.to_be_bytes());
        bytes
    }

    /// Bytes of the whole batch, this header included.
    pub fn total_bytes(&self) -> usize {
        LOG_OVERHEAD_BYTES + usize::try_from(self.batch_length).unwrap_or(0)
    }

    /// Bytes behind the header.
    pub fn payload_bytes(&self) -> usize {
        self.total_bytes().saturating_sub(BATCH_HEADER_BYTES)
    }

    /// The offset of the batch's last record.
    pub fn last_offset(&self) -> Offset {
        self.base_offset
            .wrapping_add(i64::from(self.last_offset_delta))
    }

    /// The sequence number of the batch's last record, −1 where there are none. Sequences go on with
    /// 0 after 2³¹−1.
    pub fn last_sequence(&self) -> i32 {
        if self.base_sequence < 0 {
            return -1;
        }
        let sum = i64::from(self.base_sequence) + i64::from(self.last_offset_delta.max(0));
        i32::try_from(sum & i64::from(i32::MAX)).unwrap_or(-1)
    }

    /// The codec, or `None` if the attributes name one that does not exist.
    pub fn compression(&self) -> Option<Compression> {
        Compression::from_attributes(self.attributes)
    }

    pub fn timestamp_type(&self) -> TimestampType {
        if self.attributes & LOG_APPEND_TIME == 0 {
            TimestampType::CreateTime
        } else {
            TimestampType::LogAppendTime
        }
    }

    pub fn is_transactional(&self) -> bool {
        self.attributes & TRANSACTIONAL != 0
    }

    /// A batch of transaction markers and the like, which consumers never see.
    pub fn is_control(&self) -> bool {
        self.attributes & CONTROL != 0
    }

    /// The time until which compaction keeps tombstones and markers (KIP-534); the batch's base
    /// timestamp carries it.
    pub fn delete_horizon_ms(&self) -> Option<TimestampMs> {
        (self.attributes & DELETE_HORIZON != 0).then_some(self.base_timestamp)
    }

    /// About when the record at `offset` was written: between the batch's first and its newest time as the
    /// offset is between its first and its last. `None`: the batch does not tell.
    pub fn about_time_of(&self, offset: Offset) -> Option<TimestampMs> {
        if self.base_timestamp < 0 || self.max_timestamp < self.base_timestamp {
            return None;
        }
        if self.timestamp_type() == TimestampType::LogAppendTime {
            return Some(self.max_timestamp);
        }
        let records = i128::from((self.last_offset() - self.base_offset).max(1));
        let before =
            i128::from(offset.clamp(self.base_offset, self.last_offset()) - self.base_offset);
        let span = i128::from(self.max_timestamp - self.base_timestamp);
        let after = i64::try_from(span * before / records).unwrap_or(0);
        Some(self.base_timestamp + after)
    }

    pub fn has_producer_id(&self) -> bool {
        self.producer_id > NO_PRODUCER_ID
    }

    /// The timestamp of a record: the batch's own if the broker stamped it.
    pub fn record_timestamp(&self, timestamp_delta: i64) -> TimestampMs {
        match self.timestamp_type() {
            TimestampType::CreateTime => self.base_timestamp.wrapping_add(timestamp_delta),
            TimestampType::LogAppendTime => self.max_timestamp,
        }
    }

    /// The checksum that this header must carry over `payload`.
    pub fn compute_crc(&self, payload: &[u8]) -> u32 {
        crc::of_parts(&self.encode()[ATTRIBUTES_POSITION..], payload)
    }

    /// Sets codec and timestamp type, keeps the flags that mean something, clears the rest, as
    /// Kafka does whenever it writes attributes.
    pub(crate) fn rewrite_attributes(
        &mut self,
        compression: Compression,
        timestamp_type: TimestampType,
    ) {
        let mut attributes = self.attributes & (TRANSACTIONAL | CONTROL | DELETE_HORIZON);
        attributes |= compression as i16 & COMPRESSION_MASK;
        if timestamp_type == TimestampType::LogAppendTime {
            attributes |= LOG_APPEND_TIME;
        }
        self.attributes = attributes;
    }

    pub(crate) fn set_transactional(&mut self, transactional: bool) {
        set_flag(&mut self.attributes, TRANSACTIONAL, transactional);
    }

    pub(crate) fn set_control(&mut self, control: bool) {
        set_flag(&mut self.attributes, CONTROL, control);
    }
}

fn set_flag(attributes: &mut i16, flag: i16, on: bool) {
    if on {
        *attributes |= flag;
    } else {
        *attributes &= !flag;
    }
}

/// The `N` bytes at `position`.
fn field<const N: usize>(header: &[u8; BATCH_HEADER_BYTES], position: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&header[position..position + N]);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_record_lies_between_those_of_its_batch() {
        let header = header();
        let at = |offset: i64| header.about_time_of(header.base_offset + offset);
        assert_eq!(
            [at(0), at(1), at(2)],
            [Some(1_000), Some(1_500), Some(2_000)]
        );
        assert_eq!([at(-5), at(9)], [Some(1_000), Some(2_000)]);
        let without = BatchHeader {
            base_timestamp: -1,
            ..header
        };
        assert_eq!(without.about_time_of(header.base_offset), None);
        let extreme = BatchHeader {
            base_timestamp: 0,
            max_timestamp: i64::MAX,
            ..header
        };
        assert!(
            extreme
                .about_time_of(header.base_offset + 1)
                .is_some_and(|time| time > 0)
        );
    }

    pub(crate) fn header() -> BatchHeader {
        BatchHeader {
            base_offset: 0x0102_0304_0506_0708,
            batch_length: 49,
            partition_leader_epoch: 7,
            crc: 0xdead_beef,
            attributes: 0,
            last_offset_delta: 2,
            base_timestamp: 1000,
            max_timestamp: 2000,
            producer_id: 5,
            producer_epoch: 1,
            base_sequence: 10,
            record_count: 3,
        }
    }

    #[test]
    fn the_header_stands_in_wire_order() {
        let bytes = header().encode();
        assert_eq!(bytes[..8], [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(bytes[8..12], [0, 0, 0, 49]);
        assert_eq!(bytes[12..17], [0, 0, 0, 7, 2]);
        assert_eq!(bytes[17..21], [0xde, 0xad, 0xbe, 0xef]);
        assert_eq!(bytes[57..], [0, 0, 0, 3]);
        assert_eq!(BatchHeader::parse(&bytes), Ok(header()));
    }

    #[test]
    fn a_header_that_cannot_be_one_is_refused() {
        let mut bytes = header().encode();
        assert_eq!(
            BatchHeader::parse(&bytes[..60]),
            Err(HeaderError::Truncated)
        );
        bytes[11] = 48;
        assert_eq!(BatchHeader::parse(&bytes), Err(HeaderError::Length(48)));
        bytes[8] = 0x80;
        assert_eq!(
            BatchHeader::parse(&bytes),
            Err(HeaderError::Length(-0x7fff_ffd0))
        );
        bytes[16] = 1;
        assert_eq!(BatchHeader::parse(&bytes), Err(HeaderError::Magic(1)));
    }

    #[test]
    fn a_sequence_goes_on_with_zero_after_the_largest() {
        let mut header = header();
        assert_eq!(header.last_sequence(), 12);
        header.base_sequence = i32::MAX - 1;
        assert_eq!(header.last_sequence(), 0);
        header.base_sequence = i32::MAX;
        assert_eq!(header.last_sequence(), 1);
        header.base_sequence = -1;
        assert_eq!(header.last_sequence(), -1);
    }

    #[test]
    fn attributes_are_bits() {
        let mut header = header();
        header.attributes = 0x74;
        assert_eq!(header.compression(), Some(Compression::Zstd));
        assert!(header.is_transactional() && header.is_control());
        assert_eq!(header.timestamp_type(), TimestampType::CreateTime);
        assert_eq!(header.delete_horizon_ms(), Some(1000));
        header.attributes = 0x7f80 | 0x10 | 0x0d;
        assert_eq!(header.compression(), None);
        header.rewrite_attributes(Compression::Gzip, TimestampType::LogAppendTime);
        assert_eq!(header.attributes, 0x19);
        assert_eq!(header.record_timestamp(5), 2000);
    }
}
