//! What idempotent producers wrote last (Kafka's `ProducerStateManager`, `ProducerAppendInfo` and
//! `ProducerStateEntry`). Pure.

use std::collections::{BTreeMap, VecDeque};

use crate::record::BatchHeader;
use crate::types::{ApiError, ErrorCode, Offset, ProducerEpoch, ProducerId, TimestampMs};

/// Batches a producer may have in flight, and so the window in which a repetition is found.
const BATCHES_RETAINED: usize = 5;
const NO_SEQUENCE: i32 = -1;
/// Version and CRC stand in front of what the CRC covers.
const SNAPSHOT_ENTRIES_POSITION: usize = 6;
const SNAPSHOT_ENTRY_BYTES: usize = 46;
const SNAPSHOT_VERSION: i16 = 1;

/// What is kept of one batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct BatchMetadata {
    last_sequence: i32,
    last_offset: Offset,
    offset_delta: i32,
    timestamp: TimestampMs,
}

impl BatchMetadata {
    fn of(header: &BatchHeader) -> Self {
        Self {
            last_sequence: header.last_sequence(),
            last_offset: header.last_offset(),
            offset_delta: header.last_offset_delta,
            timestamp: header.max_timestamp,
        }
    }

    fn first_sequence(&self) -> i32 {
        let first = i64::from(self.last_sequence) - i64::from(self.offset_delta);
        // Sequences go on with 0 after 2³¹−1.
        i32::try_from(if first < 0 { first + (1 << 31) } else { first }).unwrap_or(NO_SEQUENCE)
    }

    fn first_offset(&self) -> Offset {
        self.last_offset - Offset::from(self.offset_delta)
    }
}

/// The state of one producer id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProducerEntry {
    pub epoch: ProducerEpoch,
    pub last_timestamp: TimestampMs,
    pub coordinator_epoch: i32,
    pub transaction_start: Option<Offset>,
    batches: VecDeque<BatchMetadata>,
}

impl ProducerEntry {
    pub(crate) fn last_sequence(&self) -> i32 {
        self.batches
            .back()
            .map_or(NO_SEQUENCE, |batch| batch.last_sequence)
    }
}

/// What is to be done with a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SequenceCheck {
    Append,
    /// It is there already, at these offsets.
    Duplicate {
        base_offset: Offset,
        last_offset: Offset,
        /// The largest timestamp of the batch that is there.
        timestamp: TimestampMs,
    },
}

/// All producers of one log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ProducerState {
    producers: BTreeMap<ProducerId, ProducerEntry>,
}

impl ProducerState {
    /// Decides about a batch before it is written. Batches without sequence (of coordinators) are
    /// checked for their epoch only. `offset` and `partition` are for the message.
    pub(crate) fn check(
        &self,
        header: &BatchHeader,
        offset: Offset,
        partition: &dyn std::fmt::Display,
    ) -> Result<SequenceCheck, ApiError> {
        if header.producer_id < 0 {
            return Ok(SequenceCheck::Append);
        }
        // No state: the producer's records may be gone, so any sequence will do.
        let Some(entry) = self.producers.get(&header.producer_id) else {
            return Ok(SequenceCheck::Append);
        };
        let id = header.producer_id;
        let epoch = header.producer_epoch;
        if epoch == entry.epoch
            && let Some(batch) = entry.batches.iter().find(|batch| {
                header.base_sequence >= 0
                    && batch.first_sequence() == header.base_sequence
                    && batch.last_sequence == header.last_sequence()
            })
        {
            return Ok(SequenceCheck::Duplicate {
                base_offset: batch.first_offset(),
                last_offset: batch.last_offset,
                timestamp: batch.timestamp,
            });
        }
        if epoch < entry.epoch {
            return Err(ApiError::new(
                ErrorCode::InvalidProducerEpoch,
                format!(
                    "Epoch of producer {id} at offset {offset} in {partition} is {epoch}, which is \
                     smaller than the last seen epoch {}",
                    entry.epoch
                ),
            ));
        }
        if header.base_sequence < 0 || header.is_control() {
            return Ok(SequenceCheck::Append);
        }
        let sequence = header.base_sequence;
        let in_order = if epoch == entry.epoch {
            follows(entry.last_sequence(), sequence)
        } else {
            sequence == 0
        };
        if !in_order {
            return Err(ApiError::new(
                ErrorCode::OutOfOrderSequenceNumber,
                format!(
                    "Out of order sequence number for producer {id} at offset {offset} in partition \
                     {partition}: {sequence} (incoming seq. number), {} (current end sequence number)",
                    entry.last_sequence()
                ),
            ));
        }
        if entry.transaction_start.is_some() && !header.is_transactional() {
            return Err(ApiError::new(
                ErrorCode::InvalidTxnState,
                format!(
                    "Expected transactional write from producer {id} at offset {offset} in partition \
                     {partition}"
                ),
            ));
        }
        Ok(SequenceCheck::Append)
    }

    /// Takes up a batch that is in the log; never fails, so that it replays any log.
    pub(crate) fn apply(&mut self, header: &BatchHeader) {
        if header.producer_id < 0 {
            return;
        }
        let entry = self
            .producers
            .entry(header.producer_id)
            .or_insert_with(|| ProducerEntry {
                epoch: header.producer_epoch,
                last_timestamp: header.max_timestamp,
                coordinator_epoch: -1,
                transaction_start: None,
                batches: VecDeque::new(),
            });
        if entry.epoch != header.producer_epoch {
            entry.batches.clear();
            entry.epoch = header.producer_epoch;
        }
        entry.last_timestamp = header.max_timestamp;
        if header.is_control() {
            entry.transaction_start = None;
            return;
        }
        if entry.batches.len() == BATCHES_RETAINED {
            entry.batches.pop_front();
        }
        entry.batches.push_back(BatchMetadata::of(header));
        if header.is_transactional() && entry.transaction_start.is_none() {
            entry.transaction_start = Some(header.base_offset);
        }
    }

    /// Puts an older batch in front of what is known of its producer, where there is room: a snapshot
    /// holds only the last batch of each, the log holds the others. Called from the newest to the oldest.
    pub(crate) fn apply_earlier(&mut self, header: &BatchHeader) {
        let Some(entry) = self.producers.get_mut(&header.producer_id) else {
            return;
        };
        let earlier = entry
            .batches
            .front()
            .is_some_and(|first| header.last_offset() < first.first_offset());
        if earlier
            && entry.epoch == header.producer_epoch
            && entry.batches.len() < BATCHES_RETAINED
            && !header.is_control()
        {
            entry.batches.push_front(BatchMetadata::of(header));
        }
    }

    /// Forgets producers that wrote nothing for `expiration_ms`, by their records' own time as Kafka
    /// does. A producer with an open transaction stays.
    pub(crate) fn expire(&mut self, now_ms: TimestampMs, expiration_ms: i64) -> usize {
        let before = self.producers.len();
        self.producers.retain(|_, entry| {
            entry.transaction_start.is_some()
                || now_ms.saturating_sub(entry.last_timestamp) < expiration_ms
        });
        before - self.producers.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.producers.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (ProducerId, &ProducerEntry)> {
        self.producers.iter().map(|(&id, entry)| (id, entry))
    }

    /// Kafka's snapshot: the last batch of each producer.
    pub(crate) fn to_snapshot(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(10 + self.producers.len() * SNAPSHOT_ENTRY_BYTES);
        bytes.extend(SNAPSHOT_VERSION.to_be_bytes());
        bytes.extend([0; 4]);
        bytes.extend(
            i32::try_from(self.producers.len())
                .unwrap_or(i32::MAX)
                .to_be_bytes(),
        );
        for (id, entry) in &self.producers {
            let last = entry.batches.back();
            bytes.extend(id.to_be_bytes());
            bytes.extend(entry.epoch.to_be_bytes());
            bytes.extend(entry.last_sequence().to_be_bytes());
            bytes.extend(last.map_or(-1, |batch| batch.last_offset).to_be_bytes());
            bytes.extend(last.map_or(0, |batch| batch.offset_delta).to_be_bytes());
            bytes.extend(entry.last_timestamp.to_be_bytes());
            bytes.extend(entry.coordinator_epoch.to_be_bytes());
            bytes.extend(entry.transaction_start.unwrap_or(-1).to_be_bytes());
        }
        let crc = crc32c(&bytes[SNAPSHOT_ENTRIES_POSITION..]);
        bytes[2..SNAPSHOT_ENTRIES_POSITION].copy_from_slice(&crc.to_be_bytes());
        bytes
    }

    /// Reads a snapshot; `None` if it is damaged.
    pub(crate) fn from_snapshot(bytes: &[u8]) -> Option<Self> {
        let mut producers = BTreeMap::new();
        for entry in SnapshotEntry::read_all(bytes)? {
            let mut batches = VecDeque::new();
            if entry.last_offset >= 0 {
                batches.push_back(entry.last_batch());
            }
            let state = ProducerEntry {
                epoch: entry.producer_epoch,
                last_timestamp: entry.last_timestamp,
                coordinator_epoch: entry.coordinator_epoch,
                transaction_start: entry.transaction_start(),
                batches,
            };
            producers.insert(entry.producer_id, state);
        }
        Some(Self { producers })
    }
}

/// One producer as it stands in a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SnapshotEntry {
    pub producer_id: ProducerId,
    pub producer_epoch: ProducerEpoch,
    pub last_sequence: i32,
    /// −1 if nothing is known of its last batch.
    pub last_offset: Offset,
    pub offset_delta: i32,
    pub last_timestamp: TimestampMs,
    pub coordinator_epoch: i32,
    /// −1: no open transaction.
    transaction_start: Offset,
}

impl SnapshotEntry {
    /// In the order of the file; `None` if it is damaged.
    pub(crate) fn read_all(bytes: &[u8]) -> Option<Vec<Self>> {
        let mut reader = Reader(bytes);
        let version = i16::from_be_bytes(reader.take()?);
        let crc = u32::from_be_bytes(reader.take()?);
        if version != SNAPSHOT_VERSION || crc != crc32c(reader.0) {
            return None;
        }
        let count = usize::try_from(i32::from_be_bytes(reader.take()?)).ok()?;
        if reader.0.len() / SNAPSHOT_ENTRY_BYTES < count {
            return None;
        }
        (0..count).map(|_| Self::read(&mut reader)).collect()
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        Some(Self {
            producer_id: i64::from_be_bytes(reader.take()?),
            producer_epoch: i16::from_be_bytes(reader.take()?),
            last_sequence: i32::from_be_bytes(reader.take()?),
            last_offset: i64::from_be_bytes(reader.take()?),
            offset_delta: i32::from_be_bytes(reader.take()?),
            last_timestamp: i64::from_be_bytes(reader.take()?),
            coordinator_epoch: i32::from_be_bytes(reader.take()?),
            transaction_start: i64::from_be_bytes(reader.take()?),
        })
    }

    pub(crate) fn transaction_start(&self) -> Option<Offset> {
        (self.transaction_start >= 0).then_some(self.transaction_start)
    }

    pub(crate) fn first_sequence(&self) -> i32 {
        self.last_batch().first_sequence()
    }

    fn last_batch(&self) -> BatchMetadata {
        BatchMetadata {
            last_sequence: self.last_sequence,
            last_offset: self.last_offset,
            offset_delta: self.offset_delta,
            timestamp: self.last_timestamp,
        }
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, tail) = self.0.split_first_chunk::<N>()?;
        self.0 = tail;
        Some(*head)
    }
}

fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

fn follows(last: i32, next: i32) -> bool {
    i64::from(next) == i64::from(last) + 1 || (next == 0 && last == i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const P: &str = "t-0";

    fn batch(id: ProducerId, epoch: ProducerEpoch, sequence: i32, count: i32) -> BatchHeader {
        BatchHeader {
            base_offset: 0,
            batch_length: 49,
            partition_leader_epoch: 0,
            crc: 0,
            attributes: 0,
            last_offset_delta: count - 1,
            base_timestamp: 1_000,
            max_timestamp: 1_000,
            producer_id: id,
            producer_epoch: epoch,
            base_sequence: sequence,
            record_count: count,
        }
    }

    fn append(state: &mut ProducerState, header: BatchHeader, offset: Offset) {
        assert_eq!(state.check(&header, offset, &P), Ok(SequenceCheck::Append));
        state.apply(&BatchHeader {
            base_offset: offset,
            ..header
        });
    }

    fn refused(state: &ProducerState, header: BatchHeader) -> ErrorCode {
        state.check(&header, 99, &P).unwrap_err().code
    }

    #[test]
    fn a_producer_goes_on_in_order_and_its_last_five_batches_are_known() {
        let mut state = ProducerState::default();
        for number in 0..6 {
            append(
                &mut state,
                batch(7, 0, number * 10, 10),
                i64::from(number) * 10,
            );
        }
        for number in 1..6 {
            assert_eq!(
                state.check(&batch(7, 0, number * 10, 10), 99, &P),
                Ok(SequenceCheck::Duplicate {
                    base_offset: i64::from(number) * 10,
                    last_offset: i64::from(number) * 10 + 9,
                    timestamp: 1_000,
                })
            );
        }
        let out_of_order = ErrorCode::OutOfOrderSequenceNumber;
        assert_eq!(refused(&state, batch(7, 0, 0, 10)), out_of_order);
        assert_eq!(refused(&state, batch(7, 0, 50, 9)), out_of_order);
        assert_eq!(refused(&state, batch(7, 0, 61, 1)), out_of_order);
        append(&mut state, batch(7, 0, 60, 1), 60);
    }

    #[test]
    fn an_unknown_producer_may_begin_anywhere() {
        let mut state = ProducerState::default();
        append(&mut state, batch(7, 3, 1_234, 1), 0);
        append(&mut state, batch(7, 3, 1_235, 1), 1);
    }

    #[test]
    fn sequences_go_on_with_zero_after_the_largest() {
        let mut state = ProducerState::default();
        append(&mut state, batch(7, 0, i32::MAX - 2, 2), 0);
        append(&mut state, batch(7, 0, i32::MAX, 3), 2);
        assert_eq!(
            state.check(&batch(7, 0, i32::MAX, 3), 99, &P),
            Ok(SequenceCheck::Duplicate {
                base_offset: 2,
                last_offset: 4,
                timestamp: 1_000,
            })
        );
        append(&mut state, batch(7, 0, 2, 1), 5);
        let mut state = ProducerState::default();
        append(&mut state, batch(7, 0, i32::MAX, 1), 0);
        append(&mut state, batch(7, 0, 0, 1), 1);
    }

    #[test]
    fn a_new_epoch_begins_at_zero_and_fences_the_old() {
        let mut state = ProducerState::default();
        append(&mut state, batch(7, 1, 0, 5), 0);
        assert_eq!(
            refused(&state, batch(7, 0, 5, 1)),
            ErrorCode::InvalidProducerEpoch
        );
        assert_eq!(
            refused(&state, batch(7, 2, 5, 1)),
            ErrorCode::OutOfOrderSequenceNumber
        );
        append(&mut state, batch(7, 2, 0, 1), 5);
        assert_eq!(
            refused(&state, batch(7, 1, 0, 5)),
            ErrorCode::InvalidProducerEpoch
        );
    }

    #[test]
    fn batches_without_a_producer_or_a_sequence_pass() {
        let mut state = ProducerState::default();
        append(&mut state, batch(-1, -1, -1, 1), 0);
        assert!(state.is_empty());
        append(&mut state, batch(7, 1, -1, 1), 1);
        append(&mut state, batch(7, 1, -1, 1), 2);
        assert_eq!(
            refused(&state, batch(7, 0, -1, 1)),
            ErrorCode::InvalidProducerEpoch
        );
    }

    #[test]
    fn a_transaction_begins_with_its_first_batch_and_ends_with_its_marker() {
        let mut state = ProducerState::default();
        let transactional = BatchHeader {
            attributes: 0x10,
            ..batch(7, 0, 0, 1)
        };
        append(&mut state, transactional, 5);
        assert_eq!(
            refused(&state, batch(7, 0, 1, 1)),
            ErrorCode::InvalidTxnState
        );
        assert_eq!(state.expire(i64::MAX, 1), 0);
        let marker = BatchHeader {
            attributes: 0x30,
            ..batch(7, 0, -1, 1)
        };
        append(&mut state, marker, 6);
        append(&mut state, batch(7, 0, 1, 1), 7);
    }

    #[test]
    fn producers_expire_by_the_time_of_their_records() {
        let mut state = ProducerState::default();
        append(&mut state, batch(7, 0, 0, 1), 0);
        assert_eq!(state.expire(1_999, 1_000), 0);
        assert_eq!(state.expire(2_000, 1_000), 1);
        assert!(state.is_empty());
    }

    #[test]
    fn a_snapshot_is_kafkas_bytes() {
        let mut state = ProducerState::default();
        append(&mut state, batch(1, 2, 3, 4), 5);
        let bytes = state.to_snapshot();
        let expected: &[u8] = &[
            0, 0, 0, 1, // entries
            0, 0, 0, 0, 0, 0, 0, 1, // producer id
            0, 2, // epoch
            0, 0, 0, 6, // last sequence
            0, 0, 0, 0, 0, 0, 0, 8, // last offset
            0, 0, 0, 3, // offset delta
            0, 0, 0, 0, 0, 0, 3, 232, // timestamp
            255, 255, 255, 255, // coordinator epoch
            255, 255, 255, 255, 255, 255, 255, 255, // transaction start
        ];
        assert_eq!(bytes[..2], [0, 1]);
        assert_eq!(&bytes[6..], expected);
    }

    #[test]
    fn a_snapshot_keeps_the_last_batch_and_the_log_gives_back_the_others() {
        let mut state = ProducerState::default();
        let headers: Vec<BatchHeader> = (0..7)
            .map(|number| BatchHeader {
                base_offset: i64::from(number) * 2,
                ..batch(7, 0, number * 2, 2)
            })
            .collect();
        for header in &headers {
            state.apply(header);
        }
        let mut loaded = ProducerState::from_snapshot(&state.to_snapshot()).unwrap();
        assert_ne!(loaded, state);
        for header in headers.iter().rev() {
            loaded.apply_earlier(header);
        }
        assert_eq!(loaded, state);
    }

    #[test]
    fn a_damaged_snapshot_is_refused() {
        let mut state = ProducerState::default();
        append(&mut state, batch(1, 2, 3, 4), 5);
        let bytes = state.to_snapshot();
        for index in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[index] ^= 1;
            assert_eq!(ProducerState::from_snapshot(&damaged), None, "byte {index}");
            assert_eq!(ProducerState::from_snapshot(&bytes[..index]), None);
        }
        // A count that its bytes cannot hold, with the right CRC.
        let mut lying = vec![0, 1, 0, 0, 0, 0, 0x7f, 255, 255, 255];
        let crc = crc32c(&lying[6..]);
        lying[2..6].copy_from_slice(&crc.to_be_bytes());
        assert_eq!(ProducerState::from_snapshot(&lying), None);
    }
}
