//! Produce (versions 3–13), decoded without copying the records and encoded by hand.

use bytes::{BufMut, Bytes};

use super::topic::{CurrentLeader, NodeEndpoint, TopicKey, write_endpoints};
use super::wire::{Cursor, MalformedBody, Writer};
use crate::types::{ErrorCode, NO_OFFSET, NO_TIMESTAMP, Offset, PartitionId, TimestampMs};

const FLEXIBLE_VERSION: i16 = 9;

/// A Produce request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProduceRequest {
    pub transactional_id: Option<String>,
    pub acks: i16,
    pub timeout_ms: i32,
    pub topics: Vec<ProduceTopic>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProduceTopic {
    pub topic: TopicKey,
    pub partitions: Vec<ProducePartition>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProducePartition {
    pub index: PartitionId,
    /// A slice of the frame; null if the client sent null.
    pub records: Option<Bytes>,
}

impl ProduceRequest {
    /// Reads a body. Bytes behind it are ignored, as Kafka does.
    pub fn decode(body: &Bytes, version: i16) -> Result<Self, MalformedBody> {
        let mut cursor = Cursor::new(body, version >= FLEXIBLE_VERSION);
        let transactional_id = cursor.nullable_string()?.map(str::to_owned);
        let acks = cursor.i16()?;
        let timeout_ms = cursor.i32()?;
        let count = cursor.count(2)?;
        let mut topics = Vec::with_capacity(count);
        for _ in 0..count {
            topics.push(read_topic(&mut cursor, body, version)?);
        }
        cursor.skip_tags()?;
        Ok(Self {
            transactional_id,
            acks,
            timeout_ms,
            topics,
        })
    }
}

fn read_topic(
    cursor: &mut Cursor<'_>,
    body: &Bytes,
    version: i16,
) -> Result<ProduceTopic, MalformedBody> {
    let topic = TopicKey::read(cursor, version)?;
    let count = cursor.count(5)?;
    let mut partitions = Vec::with_capacity(count);
    for _ in 0..count {
        let index = cursor.i32()?;
        let records = cursor.nullable_bytes()?.map(|bytes| body.slice_ref(bytes));
        cursor.skip_tags()?;
        partitions.push(ProducePartition { index, records });
    }
    cursor.skip_tags()?;
    Ok(ProduceTopic { topic, partitions })
}

/// The answer to a Produce request.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProduceResponse {
    pub topics: Vec<ProduceTopicResponse>,
    pub throttle_time_ms: i32,
    /// Of the leaders that partitions name (v10+).
    pub node_endpoints: Vec<NodeEndpoint>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProduceTopicResponse {
    pub topic: TopicKey,
    pub partitions: Vec<ProducePartitionResponse>,
}

/// What a version cannot say is left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProducePartitionResponse {
    pub index: PartitionId,
    pub error: ErrorCode,
    pub base_offset: Offset,
    /// Only where the topic stamps LogAppendTime, else −1.
    pub log_append_time_ms: TimestampMs,
    pub log_start_offset: Offset,
    /// Index and message of each faulty record.
    pub record_errors: Vec<(i32, Option<String>)>,
    pub error_message: Option<String>,
    /// Who leads instead, with NOT_LEADER_OR_FOLLOWER.
    pub current_leader: Option<CurrentLeader>,
}

impl ProducePartitionResponse {
    /// The answer for a partition to which nothing was appended.
    pub fn failed(index: PartitionId, error: ErrorCode) -> Self {
        Self {
            index,
            error,
            base_offset: NO_OFFSET,
            log_append_time_ms: NO_TIMESTAMP,
            log_start_offset: NO_OFFSET,
            record_errors: Vec::new(),
            error_message: None,
            current_leader: None,
        }
    }
}

impl ProduceResponse {
    /// Writes the body.
    pub fn encode(&self, version: i16) -> Bytes {
        let partitions: usize = self.topics.iter().map(|topic| topic.partitions.len()).sum();
        let capacity = 16 + 48 * self.topics.len() + 48 * partitions;
        let mut writer = Writer::new(capacity, version >= FLEXIBLE_VERSION);
        writer.count(self.topics.len());
        for topic in &self.topics {
            topic.topic.write(&mut writer, version);
            writer.count(topic.partitions.len());
            for partition in &topic.partitions {
                write_partition(&mut writer, partition, version);
            }
            writer.no_tags();
        }
        writer.buffer.put_i32(self.throttle_time_ms);
        write_endpoints(&mut writer, &self.node_endpoints, version >= 10);
        writer.buffer.freeze()
    }
}

fn write_partition(writer: &mut Writer, partition: &ProducePartitionResponse, version: i16) {
    writer.buffer.put_i32(partition.index);
    writer.buffer.put_i16(partition.error.code());
    writer.buffer.put_i64(partition.base_offset);
    writer.buffer.put_i64(partition.log_append_time_ms);
    if version >= 5 {
        writer.buffer.put_i64(partition.log_start_offset);
    }
    if version >= 8 {
        writer.count(partition.record_errors.len());
        for (index, message) in &partition.record_errors {
            writer.buffer.put_i32(*index);
            writer.nullable_string(message.as_deref());
            writer.no_tags();
        }
        writer.nullable_string(partition.error_message.as_deref());
    }
    match partition.current_leader {
        Some(leader) if version >= 10 => {
            writer.varint(1);
            writer.tag(0, &leader.encode());
        }
        _ => writer.no_tags(),
    }
}

#[cfg(test)]
mod tests;
