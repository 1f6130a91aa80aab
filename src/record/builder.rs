//! Makes batches of the broker's own records.

use bytes::Bytes;

use super::batch::{BATCH_HEADER_BYTES, LOG_OVERHEAD_BYTES};
use super::varint::{put_i32, put_i64};
use super::{BatchHeader, compression};
use crate::types::{
    Compression, NO_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP, ProducerEpoch, ProducerId, TimestampMs,
    TimestampType,
};

/// Collects records and makes one batch of them, at base offset 0 and without a leader epoch, as a
/// producer sends it.
#[derive(Debug, Clone)]
pub struct BatchBuilder {
    header: BatchHeader,
    compression: Compression,
    payload: Vec<u8>,
    /// Reused: a record's length is known once its fields are written.
    record: Vec<u8>,
}

/// A record's headers: keys and nullable values.
pub type Headers<'a> = &'a [(&'a [u8], Option<&'a [u8]>)];

impl Default for BatchBuilder {
    fn default() -> Self {
        Self::new()
    }
}

impl BatchBuilder {
    /// Starts an uncompressed batch without a producer id.
    pub fn new() -> Self {
        Self {
            header: BatchHeader {
                base_offset: 0,
                batch_length: 0,
                partition_leader_epoch: NO_EPOCH,
                crc: 0,
                attributes: 0,
                last_offset_delta: -1,
                base_timestamp: NO_TIMESTAMP,
                max_timestamp: NO_TIMESTAMP,
                producer_id: NO_PRODUCER_ID,
                producer_epoch: -1,
                base_sequence: -1,
                record_count: 0,
            },
            compression: Compression::None,
            payload: Vec::new(),
            record: Vec::new(),
        }
    }

    #[must_use]
    pub fn compression(mut self, compression: Compression) -> Self {
        self.compression = compression;
        self
    }

    #[must_use]
    pub fn producer(mut self, id: ProducerId, epoch: ProducerEpoch, base_sequence: i32) -> Self {
        self.header.producer_id = id;
        self.header.producer_epoch = epoch;
        self.header.base_sequence = base_sequence;
        self
    }

    #[must_use]
    pub fn transactional(mut self) -> Self {
        self.header.set_transactional(true);
        self
    }

    /// Makes it a batch of control records, which consumers never see.
    #[must_use]
    pub fn control(mut self) -> Self {
        self.header.set_control(true);
        self
    }

    /// Adds a record without headers.
    pub fn push(&mut self, timestamp: TimestampMs, key: Option<&[u8]>, value: Option<&[u8]>) {
        self.push_with_headers(timestamp, key, value, &[]);
    }

    /// Adds a record.
    pub fn push_with_headers(
        &mut self,
        timestamp: TimestampMs,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: Headers<'_>,
    ) {
        if self.is_empty() {
            self.header.base_timestamp = timestamp;
            self.header.max_timestamp = timestamp;
        }
        self.header.max_timestamp = self.header.max_timestamp.max(timestamp);
        self.header.last_offset_delta += 1;
        self.header.record_count += 1;
        let timestamp_delta = timestamp.wrapping_sub(self.header.base_timestamp);
        let body = &mut self.record;
        body.clear();
        put_fixed_fields(body, timestamp_delta, self.header.last_offset_delta);
        put_field(body, key);
        put_field(body, value);
        put_i64(body, headers.len() as i64);
        for (key, value) in headers {
            put_field(body, Some(key));
            put_field(body, *value);
        }
        put_i64(&mut self.payload, body.len() as i64);
        self.payload.extend_from_slice(body);
    }

    pub fn is_empty(&self) -> bool {
        self.header.record_count == 0
    }

    /// Records so far.
    pub fn record_count(&self) -> usize {
        usize::try_from(self.header.record_count).unwrap_or(0)
    }

    /// Size of the batch so far, before compression.
    pub fn bytes(&self) -> usize {
        BATCH_HEADER_BYTES + self.payload.len()
    }

    /// The finished batch. Where the codec fails the batch stays uncompressed.
    pub fn build(mut self) -> Bytes {
        let mut compression = self.compression;
        if compression != Compression::None {
            match compression::compress(compression, &self.payload) {
                Ok(compressed) => self.payload = compressed,
                Err(_) => compression = Compression::None,
            }
        }
        self.header
            .rewrite_attributes(compression, TimestampType::CreateTime);
        self.header.seal(&self.payload);
        let mut batch = Vec::with_capacity(BATCH_HEADER_BYTES + self.payload.len());
        batch.extend_from_slice(&self.header.encode());
        batch.extend_from_slice(&self.payload);
        batch.into()
    }
}

impl BatchHeader {
    /// Sets length and checksum to those of a batch with this payload.
    pub(crate) fn seal(&mut self, payload: &[u8]) {
        let bytes = BATCH_HEADER_BYTES - LOG_OVERHEAD_BYTES + payload.len();
        self.batch_length = i32::try_from(bytes).unwrap_or(i32::MAX);
        self.crc = self.compute_crc(payload);
    }
}

/// Attributes (none are defined), timestamp and offset.
fn put_fixed_fields(body: &mut Vec<u8>, timestamp_delta: i64, offset_delta: i32) {
    body.push(0);
    put_i64(body, timestamp_delta);
    put_i32(body, offset_delta);
}

fn put_field(body: &mut Vec<u8>, field: Option<&[u8]>) {
    match field {
        None => put_i32(body, -1),
        Some(bytes) => {
            put_i64(body, bytes.len() as i64);
            body.extend_from_slice(bytes);
        }
    }
}

/// Writes the records again with offset deltas 0, 1, 2 …, everything else as it is.
pub(crate) fn renumber(payload: &[u8], count: i32) -> Result<Vec<u8>, super::RecordError> {
    let mut output = Vec::with_capacity(payload.len());
    let mut body = Vec::new();
    for (offset_delta, record) in (0..).zip(super::Records::new(payload, count)) {
        let record = record?;
        body.clear();
        put_fixed_fields(&mut body, record.timestamp_delta, offset_delta);
        put_field(&mut body, record.key);
        put_field(&mut body, record.value);
        put_i64(&mut body, record.headers.count() as i64);
        body.extend_from_slice(record.headers.bytes());
        put_i64(&mut output, body.len() as i64);
        output.extend_from_slice(&body);
    }
    Ok(output)
}
