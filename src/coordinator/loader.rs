//! From the log of a partition of `__consumer_offsets` to its shard. Pure.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::group::Shard;
use super::record::GroupRecord;
use crate::record::{BATCH_HEADER_BYTES, BatchHeader, Record, Records, decompress};
use crate::types::{Compression, Offset, ProducerId};

/// What the records of one batch may decompress to: far more than any batch that a coordinator wrote.
const DECOMPRESSED_BYTES_MAX: usize = 64 << 20;

/// Applies batches to a shard, in order.
#[derive(Debug)]
pub(super) struct Loader {
    shard: Shard,
    /// The next offset to read.
    next_offset: Offset,
    /// Offsets committed in transactions that have not ended yet.
    undecided: BTreeMap<ProducerId, Vec<GroupRecord>>,
    /// Records that could not be read, and are passed over.
    pub(super) malformed: usize,
    pub(super) records: usize,
}

impl Loader {
    pub(super) fn new(shard: Shard, start: Offset) -> Self {
        Self {
            shard,
            next_offset: start,
            undecided: BTreeMap::new(),
            malformed: 0,
            records: 0,
        }
    }

    pub(super) fn next_offset(&self) -> Offset {
        self.next_offset
    }

    /// Whoever is done with the log takes the shard.
    pub(super) fn finish(self) -> Shard {
        self.shard
    }

    /// Applies whole batches; returns whether there were any.
    pub(super) fn apply(&mut self, mut batches: Bytes) -> bool {
        let mut any = false;
        while let Ok(header) = BatchHeader::parse(&batches) {
            let total = header.total_bytes();
            if total > batches.len() || total < BATCH_HEADER_BYTES {
                break;
            }
            let batch = batches.split_to(total);
            if header.last_offset() >= self.next_offset {
                self.apply_batch(&header, &batch.slice(BATCH_HEADER_BYTES..));
                self.next_offset = header.last_offset() + 1;
            }
            any = true;
        }
        any
    }

    fn apply_batch(&mut self, header: &BatchHeader, payload: &Bytes) {
        let compression = header.compression().unwrap_or(Compression::None);
        let Ok(payload) = decompress(compression, payload, DECOMPRESSED_BYTES_MAX) else {
            self.malformed += usize::try_from(header.record_count).unwrap_or(0);
            return;
        };
        for record in Records::new(&payload, header.record_count) {
            let Ok(record) = record else {
                self.malformed += 1;
                return;
            };
            let offset = header.base_offset + i64::from(record.offset_delta);
            if offset < self.next_offset {
                continue;
            }
            if header.is_control() {
                self.end_transaction(header.producer_id, &record);
            } else {
                self.apply_record(header, &record);
            }
        }
    }

    fn apply_record(&mut self, header: &BatchHeader, record: &Record<'_>) {
        self.records += 1;
        match GroupRecord::decode(record.key.unwrap_or(&[]), record.value) {
            Ok(Some(decoded)) if header.is_transactional() => {
                let pending = self.undecided.entry(header.producer_id).or_default();
                pending.push(decoded);
            }
            Ok(Some(decoded)) => self.shard.apply(&decoded),
            Ok(None) => {}
            Err(_) => self.malformed += 1,
        }
    }

    /// The marker's key is a version and a type: 0 aborts, 1 commits.
    fn end_transaction(&mut self, producer: ProducerId, marker: &Record<'_>) {
        let Some(pending) = self.undecided.remove(&producer) else {
            return;
        };
        if marker.key.and_then(|key| key.get(2..4)) == Some(&[0, 1]) {
            for record in &pending {
                self.shard.apply(record);
            }
        }
    }
}
