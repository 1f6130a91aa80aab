//! What the steps of a history are made of: configs, batches, faults.

use std::sync::Arc;

use super::disk::Fault;
use super::model::{Batch, Topic};
use super::random::Random;
use crate::config::TopicConfig;
use crate::log::tests::support::valid;
use crate::record::{BatchBuilder, BatchHeader, ValidBatch};
use crate::types::ProducerId;

pub(super) const PRODUCERS: usize = 3;

pub(super) fn random_config(random: &mut Random) -> Arc<TopicConfig> {
    let mut config = TopicConfig {
        segment_bytes: 300 + random.below(1_500) as i32,
        index_interval_bytes: random.below(3) as i32 * 150,
        file_delete_delay_ms: 100,
        retention_ms: -1,
        ..TopicConfig::default()
    };
    if random.one_in(3) {
        config.flush_messages = [2, 4, i64::MAX][random.below(3)];
        config.flush_ms = [50, i64::MAX][random.below(2)];
    }
    if random.one_in(3) {
        config.segment_ms = 300;
    }
    if random.one_in(3) {
        config.retention_bytes = random.below(2_000) as i64;
    }
    if random.one_in(3) {
        config.retention_ms = random.below(2_000) as i64;
    }
    Arc::new(config)
}

/// The next batch of a topic, as it is sent and as it must be stored.
pub(super) fn new_batch(topic: &Topic, now_ms: i64, random: &mut Random) -> (Batch, ValidBatch) {
    let mut builder = BatchBuilder::new();
    if !random.one_in(3) {
        let id = random.below(PRODUCERS) as ProducerId;
        let (epoch, sequence) = topic.next_sequence(id);
        builder = match sequence > 0 && random.one_in(8) {
            true => builder.producer(id, epoch + 1, 0),
            false => builder.producer(id, epoch, sequence),
        };
    }
    let mut timestamps = Vec::new();
    let count = 1 + random.below(3);
    for _ in 0..count {
        let timestamp = now_ms - 500 + random.below(1_000) as i64;
        let value: Vec<u8> = (0..random.below(70)).map(|_| random.next() as u8).collect();
        builder.push(timestamp, None, Some(&value));
        timestamps.push(timestamp);
    }
    let valid = valid(builder.build());
    let header = BatchHeader {
        base_offset: topic.end(),
        partition_leader_epoch: topic.epoch,
        ..valid.header
    };
    let mut stored = header.encode().to_vec();
    stored.extend_from_slice(&valid.payload);
    let batch = Batch {
        header,
        stored: stored.into(),
        timestamps,
    };
    (batch, valid)
}

/// Faults that a step may meet.
pub(super) fn random_fault(random: &mut Random) -> Fault {
    match random.one_in(2) {
        true => Fault::Io,
        false => Fault::Full,
    }
}
