//! Fetch (versions 4–18), encoded by hand so that record bytes are placed by reference.

mod client;

use bytes::{BufMut, Bytes};

use super::Chunk;
use super::topic::{CurrentLeader, NodeEndpoint, TopicKey, write_endpoints};
use super::wire::{Cursor, MalformedBody, Writer};
use crate::types::{
    ErrorCode, LeaderEpoch, NO_EPOCH, NO_OFFSET, Offset, PartitionId, ProducerId, TopicId,
};

pub use client::{FetchAnswer, FetchedPartition};

const FLEXIBLE_VERSION: i16 = 12;
/// Records up to this size are copied into the chunk of headers: cheaper than a chunk of their own.
const COPIED_BYTES_MAX: usize = 256;

/// A Fetch request. What its version does not have is the schema's default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchRequest {
    /// −1 for a consumer.
    pub replica_id: i32,
    /// −1 if not known (v15+).
    pub replica_epoch: i64,
    pub cluster_id: Option<String>,
    pub max_wait_ms: i32,
    pub min_bytes: i32,
    pub max_bytes: i32,
    /// 1 for read_committed.
    pub isolation_level: i8,
    /// 0 for none, or for a new one.
    pub session_id: i32,
    /// −1 for none, 0 for a new one (KIP-227).
    pub session_epoch: i32,
    pub topics: Vec<FetchTopic>,
    /// What an incremental request takes out of its session.
    pub forgotten_topics: Vec<ForgottenTopic>,
    pub rack_id: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchTopic {
    pub topic: TopicKey,
    pub partitions: Vec<FetchPartition>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FetchPartition {
    pub partition: PartitionId,
    /// −1: do not check (v9+).
    pub current_leader_epoch: LeaderEpoch,
    pub fetch_offset: Offset,
    /// −1 from consumers (v12+).
    pub last_fetched_epoch: LeaderEpoch,
    /// Of a follower's log; −1 from consumers (v5+).
    pub log_start_offset: Offset,
    pub max_bytes: i32,
    /// Where a follower keeps the partition (v17+).
    pub replica_directory_id: TopicId,
    /// What a follower knows of it (v18+, KIP-1166); `i64::MAX` if it does not say.
    pub high_watermark: Offset,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForgottenTopic {
    pub topic: TopicKey,
    pub partitions: Vec<PartitionId>,
}

impl FetchRequest {
    /// Reads a body. Bytes behind it are ignored, as Kafka does.
    pub fn decode(body: &[u8], version: i16) -> Result<Self, MalformedBody> {
        let cursor = &mut Cursor::new(body, version >= FLEXIBLE_VERSION);
        let mut request = Self {
            replica_id: if version <= 14 { cursor.i32()? } else { -1 },
            replica_epoch: -1,
            cluster_id: None,
            max_wait_ms: cursor.i32()?,
            min_bytes: cursor.i32()?,
            max_bytes: cursor.i32()?,
            isolation_level: cursor.i8()?,
            session_id: if version >= 7 { cursor.i32()? } else { 0 },
            session_epoch: if version >= 7 { cursor.i32()? } else { -1 },
            topics: read_all(cursor, 2, |cursor| read_topic(cursor, version))?,
            forgotten_topics: Vec::new(),
            rack_id: String::new(),
        };
        if version >= 7 {
            request.forgotten_topics =
                read_all(cursor, 2, |cursor| read_forgotten(cursor, version))?;
        }
        if version >= 11 {
            cursor.string()?.clone_into(&mut request.rack_id);
        }
        cursor.tags(|tag, field| {
            match tag {
                0 => request.cluster_id = field.nullable_string()?.map(str::to_owned),
                1 if version >= 15 => {
                    request.replica_id = field.i32()?;
                    request.replica_epoch = field.i64()?;
                    field.skip_tags()?;
                }
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        Ok(request)
    }
}

/// Reads an array of elements that have at least `bytes_min` bytes each.
fn read_all<'a, T>(
    cursor: &mut Cursor<'a>,
    bytes_min: usize,
    mut read: impl FnMut(&mut Cursor<'a>) -> Result<T, MalformedBody>,
) -> Result<Vec<T>, MalformedBody> {
    let count = cursor.count(bytes_min)?;
    let mut elements = Vec::with_capacity(count);
    for _ in 0..count {
        elements.push(read(cursor)?);
    }
    Ok(elements)
}

fn read_topic(cursor: &mut Cursor<'_>, version: i16) -> Result<FetchTopic, MalformedBody> {
    let topic = TopicKey::read(cursor, version)?;
    let partitions = read_all(cursor, 16, |cursor| read_partition(cursor, version))?;
    cursor.skip_tags()?;
    Ok(FetchTopic { topic, partitions })
}

fn read_partition(cursor: &mut Cursor<'_>, version: i16) -> Result<FetchPartition, MalformedBody> {
    let mut partition = FetchPartition {
        partition: cursor.i32()?,
        current_leader_epoch: if version >= 9 {
            cursor.i32()?
        } else {
            NO_EPOCH
        },
        fetch_offset: cursor.i64()?,
        last_fetched_epoch: if version >= 12 {
            cursor.i32()?
        } else {
            NO_EPOCH
        },
        log_start_offset: if version >= 5 {
            cursor.i64()?
        } else {
            NO_OFFSET
        },
        max_bytes: cursor.i32()?,
        replica_directory_id: TopicId::ZERO,
        high_watermark: i64::MAX,
    };
    cursor.tags(|tag, field| {
        match tag {
            0 if version >= 17 => partition.replica_directory_id = TopicId(field.uuid()?),
            1 if version >= 18 => partition.high_watermark = field.i64()?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(partition)
}

fn read_forgotten(cursor: &mut Cursor<'_>, version: i16) -> Result<ForgottenTopic, MalformedBody> {
    let topic = TopicKey::read(cursor, version)?;
    let partitions = read_all(cursor, 4, Cursor::i32)?;
    cursor.skip_tags()?;
    Ok(ForgottenTopic { topic, partitions })
}

/// The answer to a Fetch request.
#[derive(Debug, Clone, Default)]
pub struct FetchResponse {
    pub throttle_time_ms: i32,
    /// FETCH_SESSION_ID_NOT_FOUND and the like (v7+).
    pub error: Option<ErrorCode>,
    pub session_id: i32,
    pub topics: Vec<FetchTopicResponse>,
    /// Of the leaders that partitions name (v16+).
    pub node_endpoints: Vec<NodeEndpoint>,
}

#[derive(Debug, Clone)]
pub struct FetchTopicResponse {
    pub topic: TopicKey,
    pub partitions: Vec<FetchPartitionResponse>,
}

/// What a version cannot say is left out.
#[derive(Debug, Clone)]
pub struct FetchPartitionResponse {
    pub partition: PartitionId,
    pub error: ErrorCode,
    pub high_watermark: Offset,
    pub last_stable_offset: Offset,
    pub log_start_offset: Offset,
    /// Where a follower must truncate to: epoch and its end offset (v12+).
    pub diverging_epoch: Option<(LeaderEpoch, Offset)>,
    /// Who leads instead, with NOT_LEADER_OR_FOLLOWER and FENCED_LEADER_EPOCH (v12+).
    pub current_leader: Option<CurrentLeader>,
    /// `None` is null, which read_uncommitted gets.
    pub aborted_transactions: Option<Vec<AbortedTransaction>>,
    /// −1 for none (v11+, KIP-392).
    pub preferred_read_replica: i32,
    /// Whole batches; none is zero bytes on the wire, never null.
    pub records: Vec<Chunk>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AbortedTransaction {
    pub producer_id: ProducerId,
    pub first_offset: Offset,
}

impl FetchPartitionResponse {
    /// The answer for a partition that was not read.
    pub fn failed(partition: PartitionId, error: ErrorCode) -> Self {
        Self {
            partition,
            error,
            high_watermark: NO_OFFSET,
            last_stable_offset: NO_OFFSET,
            log_start_offset: NO_OFFSET,
            diverging_epoch: None,
            current_leader: None,
            aborted_transactions: None,
            preferred_read_replica: -1,
            records: Vec::new(),
        }
    }
}

impl FetchResponse {
    /// Writes the body: chunks of headers, and between them the records.
    pub fn encode(self, version: i16) -> Vec<Chunk> {
        let partitions: usize = self.topics.iter().map(|topic| topic.partitions.len()).sum();
        let capacity = 32 + 48 * self.topics.len() + 64 * partitions;
        let mut writer = Writer::new(capacity, version >= FLEXIBLE_VERSION);
        let mut chunks = Vec::with_capacity(1 + 2 * partitions);
        writer.buffer.put_i32(self.throttle_time_ms);
        if version >= 7 {
            let error = self.error.unwrap_or(ErrorCode::None);
            writer.buffer.put_i16(error.code());
            writer.buffer.put_i32(self.session_id);
        }
        writer.count(self.topics.len());
        for topic in self.topics {
            topic.topic.write(&mut writer, version);
            writer.count(topic.partitions.len());
            for partition in topic.partitions {
                write_partition(&mut writer, &mut chunks, partition, version);
            }
            writer.no_tags();
        }
        write_endpoints(&mut writer, &self.node_endpoints, version >= 16);
        push_headers(&mut writer, &mut chunks);
        chunks
    }
}

fn write_partition(
    writer: &mut Writer,
    chunks: &mut Vec<Chunk>,
    partition: FetchPartitionResponse,
    version: i16,
) {
    writer.buffer.put_i32(partition.partition);
    writer.buffer.put_i16(partition.error.code());
    writer.buffer.put_i64(partition.high_watermark);
    writer.buffer.put_i64(partition.last_stable_offset);
    if version >= 5 {
        writer.buffer.put_i64(partition.log_start_offset);
    }
    match &partition.aborted_transactions {
        None => writer.null_array(),
        Some(transactions) => {
            writer.count(transactions.len());
            for transaction in transactions {
                writer.buffer.put_i64(transaction.producer_id);
                writer.buffer.put_i64(transaction.first_offset);
                writer.no_tags();
            }
        }
    }
    if version >= 11 {
        writer.buffer.put_i32(partition.preferred_read_replica);
    }
    let bytes: u64 = partition.records.iter().map(Chunk::len).sum();
    writer.count(usize::try_from(bytes).unwrap_or(usize::MAX));
    for chunk in partition.records {
        match chunk {
            Chunk::Bytes(bytes) if bytes.len() <= COPIED_BYTES_MAX => {
                writer.buffer.put_slice(&bytes);
            }
            chunk if chunk.is_empty() => {}
            chunk => {
                push_headers(writer, chunks);
                chunks.push(chunk);
            }
        }
    }
    if version >= FLEXIBLE_VERSION {
        write_partition_tags(writer, partition.diverging_epoch, partition.current_leader);
    }
}

fn write_partition_tags(
    writer: &mut Writer,
    diverging_epoch: Option<(LeaderEpoch, Offset)>,
    current_leader: Option<CurrentLeader>,
) {
    let count = u32::from(diverging_epoch.is_some()) + u32::from(current_leader.is_some());
    writer.varint(count);
    if let Some((epoch, end_offset)) = diverging_epoch {
        let mut content = [0; 13];
        content[..4].copy_from_slice(&epoch.to_be_bytes());
        content[4..12].copy_from_slice(&end_offset.to_be_bytes());
        writer.tag(0, &content);
    }
    if let Some(leader) = current_leader {
        writer.tag(1, &leader.encode());
    }
}

/// Ends the chunk of headers written so far.
fn push_headers(writer: &mut Writer, chunks: &mut Vec<Chunk>) {
    if !writer.buffer.is_empty() {
        let headers: Bytes = writer.buffer.split().freeze();
        chunks.push(Chunk::Bytes(headers));
    }
}

#[cfg(test)]
mod tests;
