//! What the tests share: a manager in a temporary directory, batches, and how to read them back.

use std::path::Path;
use std::sync::Arc;

use crate::config::TopicConfig;
use crate::log::{AppendError, Appended, Log, LogManager, LogManagerConfig, LogRead, LogSlice};
use crate::record::{BATCH_HEADER_BYTES, BatchBuilder, BatchHeader, ValidBatch};
use crate::time::{Clock, SystemClock};
use crate::types::{Compression, Offset, TimestampMs, TopicId, TopicPartition};

pub(super) const TOPIC_ID: TopicId = TopicId(*b"0123456789abcdef");

pub(super) fn partition() -> TopicPartition {
    TopicPartition::new("topic", 0)
}

pub(super) fn manager_config(path: &Path) -> LogManagerConfig {
    LogManagerConfig {
        cluster_id: "cluster".to_owned(),
        initial_task_delay_ms: 60_000,
        ..LogManagerConfig::for_tests(path.to_owned())
    }
}

pub(super) fn open(path: &Path) -> Arc<LogManager> {
    LogManager::open(manager_config(path), Arc::new(SystemClock)).unwrap()
}

/// A manager without a tail cache, so that every read comes from the file.
pub(super) fn open_uncached(path: &Path) -> Arc<LogManager> {
    let config = LogManagerConfig {
        tail_cache_bytes: 0,
        ..manager_config(path)
    };
    LogManager::open(config, Arc::new(SystemClock)).unwrap()
}

pub(super) fn now() -> TimestampMs {
    SystemClock.wall_ms()
}

/// A topic whose segments and index gaps are small, so that little data has many of both.
pub(super) fn small_segments() -> Arc<TopicConfig> {
    Arc::new(TopicConfig {
        segment_bytes: 2_000,
        index_interval_bytes: 200,
        ..TopicConfig::default()
    })
}

pub(super) fn valid(built: bytes::Bytes) -> ValidBatch {
    let header = BatchHeader::parse(&built).unwrap();
    ValidBatch {
        header,
        payload: built.slice(BATCH_HEADER_BYTES..),
        max_timestamp_delta: header.last_offset_delta,
    }
}

/// A batch of `count` records with these values, one millisecond apart.
pub(super) fn batch(timestamp: TimestampMs, values: &[&[u8]]) -> ValidBatch {
    compressed(timestamp, values, Compression::None)
}

pub(super) fn compressed(
    timestamp: TimestampMs,
    values: &[&[u8]],
    compression: Compression,
) -> ValidBatch {
    let mut builder = BatchBuilder::new().compression(compression);
    for (number, value) in values.iter().enumerate() {
        builder.push(timestamp + number as i64, None, Some(value));
    }
    valid(builder.build())
}

pub(super) fn idempotent(
    id: i64,
    epoch: i16,
    sequence: i32,
    timestamp: TimestampMs,
    values: &[&[u8]],
) -> ValidBatch {
    let mut builder = BatchBuilder::new().producer(id, epoch, sequence);
    for value in values {
        builder.push(timestamp, None, Some(value));
    }
    valid(builder.build())
}

pub(super) fn append(log: &Log, batch: ValidBatch) -> Result<Appended, AppendError> {
    log.append(batch, 0, now())
}

pub(super) fn bytes_of(read: &LogRead) -> Vec<u8> {
    let bytes = match &read.slice {
        LogSlice::Memory(pieces) => pieces.concat(),
        LogSlice::File(range) => {
            use std::os::unix::fs::FileExt;
            let mut bytes = vec![0; usize::try_from(range.bytes).unwrap()];
            range
                .file
                .read_exact_at(&mut bytes, range.position)
                .unwrap();
            bytes
        }
    };
    assert_eq!(bytes.len(), read.bytes);
    bytes
}

/// Headers and payloads of the batches in `bytes`, which must be whole and have the right CRC.
pub(super) fn batches_of(mut bytes: &[u8]) -> Vec<(BatchHeader, Vec<u8>)> {
    let mut batches = Vec::new();
    while !bytes.is_empty() {
        let header = BatchHeader::parse(bytes).unwrap();
        let (batch, rest) = bytes.split_at(header.total_bytes());
        let payload = batch[BATCH_HEADER_BYTES..].to_vec();
        assert_eq!(header.compute_crc(&payload), header.crc);
        batches.push((header, payload));
        bytes = rest;
    }
    batches
}

/// Everything from `offset` to the log's end.
pub(super) fn read_all(log: &Log, mut offset: Offset) -> Vec<(BatchHeader, Vec<u8>)> {
    let mut batches = Vec::new();
    while offset < log.log_end_offset() {
        let read = log.read(offset, 1_000, Offset::MAX, true).unwrap();
        let found = batches_of(&bytes_of(&read));
        offset = found.last().unwrap().0.last_offset() + 1;
        batches.extend(found);
    }
    batches
}

/// Ten seconds, looked at again and again.
pub(super) fn wait_until(what: &str, holds: impl Fn() -> bool) {
    for _ in 0..1_000 {
        if holds() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("{what} did not happen");
}
