//! Fetch from the follower's side: a request is written, an answer read without copying its records.

use bytes::{BufMut, Bytes, BytesMut};

use super::{FLEXIBLE_VERSION, FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, read_all};
use crate::protocol::topic::{CurrentLeader, TopicKey};
use crate::protocol::wire::{Cursor, MalformedBody, Writer};
use crate::types::{ErrorCode, LeaderEpoch, NO_EPOCH, NO_OFFSET, Offset, PartitionId, TopicId};

/// An answer, as far as a follower wants to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchAnswer {
    /// FETCH_SESSION_ID_NOT_FOUND and the like.
    pub error: i16,
    /// 0: there is none.
    pub session_id: i32,
    pub partitions: Vec<FetchedPartition>,
}

/// One partition of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchedPartition {
    pub topic: TopicKey,
    pub partition: PartitionId,
    /// A code of [`ErrorCode`], or one that is not known here.
    pub error: i16,
    pub high_watermark: Offset,
    pub log_start_offset: Offset,
    /// The logs part: epoch and where it ends at the leader.
    pub diverging_epoch: Option<(LeaderEpoch, Offset)>,
    pub current_leader: Option<CurrentLeader>,
    /// Whole batches; a part of the frame.
    pub records: Bytes,
}

impl FetchedPartition {
    /// `None` for a code that has no name here.
    pub fn error_code(&self) -> Option<ErrorCode> {
        ErrorCode::from_code(self.error)
    }
}

impl FetchRequest {
    /// Writes the body of a follower's request.
    pub fn encode(&self, version: i16) -> BytesMut {
        let partitions: usize = self.topics.iter().map(|topic| topic.partitions.len()).sum();
        let capacity = 64 + 24 * self.topics.len() + 48 * partitions;
        let mut writer = Writer::new(capacity, version >= FLEXIBLE_VERSION);
        if version <= 14 {
            writer.buffer.put_i32(self.replica_id);
        }
        writer.buffer.put_i32(self.max_wait_ms);
        writer.buffer.put_i32(self.min_bytes);
        writer.buffer.put_i32(self.max_bytes);
        writer.buffer.put_i8(self.isolation_level);
        if version >= 7 {
            writer.buffer.put_i32(self.session_id);
            writer.buffer.put_i32(self.session_epoch);
        }
        writer.count(self.topics.len());
        for topic in &self.topics {
            write_topic(&mut writer, topic, version);
        }
        if version >= 7 {
            writer.count(self.forgotten_topics.len());
            for topic in &self.forgotten_topics {
                write_forgotten(&mut writer, topic, version);
            }
        }
        if version >= 11 {
            writer.string(&self.rack_id);
        }
        if version >= FLEXIBLE_VERSION {
            self.write_tags(&mut writer, version);
        }
        writer.buffer
    }

    fn write_tags(&self, writer: &mut Writer, version: i16) {
        let mut cluster_id = Writer::new(0, true);
        if self.cluster_id.is_some() {
            cluster_id.nullable_string(self.cluster_id.as_deref());
        }
        let says_who = version >= 15 && self.replica_id >= 0;
        writer.varint(u32::from(self.cluster_id.is_some()) + u32::from(says_who));
        if self.cluster_id.is_some() {
            writer.tag(0, &cluster_id.buffer);
        }
        if says_who {
            let mut state = [0; 13];
            state[..4].copy_from_slice(&self.replica_id.to_be_bytes());
            state[4..12].copy_from_slice(&self.replica_epoch.to_be_bytes());
            writer.tag(1, &state);
        }
    }
}

fn write_topic(writer: &mut Writer, topic: &FetchTopic, version: i16) {
    topic.topic.write(writer, version);
    writer.count(topic.partitions.len());
    for partition in &topic.partitions {
        write_partition(writer, partition, version);
    }
    writer.no_tags();
}

fn write_partition(writer: &mut Writer, asked: &FetchPartition, version: i16) {
    writer.buffer.put_i32(asked.partition);
    if version >= 9 {
        writer.buffer.put_i32(asked.current_leader_epoch);
    }
    writer.buffer.put_i64(asked.fetch_offset);
    if version >= 12 {
        writer.buffer.put_i32(asked.last_fetched_epoch);
    }
    if version >= 5 {
        writer.buffer.put_i64(asked.log_start_offset);
    }
    writer.buffer.put_i32(asked.max_bytes);
    if version < FLEXIBLE_VERSION {
        return;
    }
    let directory = version >= 17 && asked.replica_directory_id != TopicId::ZERO;
    let watermark = version >= 18 && asked.high_watermark != i64::MAX;
    writer.varint(u32::from(directory) + u32::from(watermark));
    if directory {
        writer.tag(0, &asked.replica_directory_id.0);
    }
    if watermark {
        writer.tag(1, &asked.high_watermark.to_be_bytes());
    }
}

fn write_forgotten(writer: &mut Writer, topic: &ForgottenTopic, version: i16) {
    topic.topic.write(writer, version);
    writer.count(topic.partitions.len());
    for partition in &topic.partitions {
        writer.buffer.put_i32(*partition);
    }
    writer.no_tags();
}

impl FetchAnswer {
    /// Reads an answer (v7+); the records are slices of `body`.
    pub fn decode(body: &Bytes, version: i16) -> Result<Self, MalformedBody> {
        let cursor = &mut Cursor::new(body, version >= FLEXIBLE_VERSION);
        cursor.i32()?; // throttle time
        let error = cursor.i16()?;
        let session_id = cursor.i32()?;
        let mut partitions = Vec::new();
        let topics = cursor.count(2)?;
        for _ in 0..topics {
            let topic = TopicKey::read(cursor, version)?;
            let some = read_all(cursor, 16, |cursor| {
                read_answer(cursor, body, &topic, version)
            })?;
            partitions.extend(some);
            cursor.skip_tags()?;
        }
        cursor.skip_tags()?;
        Ok(Self {
            error,
            session_id,
            partitions,
        })
    }
}

fn read_answer(
    cursor: &mut Cursor<'_>,
    body: &Bytes,
    topic: &TopicKey,
    version: i16,
) -> Result<FetchedPartition, MalformedBody> {
    let mut read = FetchedPartition {
        topic: topic.clone(),
        partition: cursor.i32()?,
        error: cursor.i16()?,
        high_watermark: cursor.i64()?,
        log_start_offset: NO_OFFSET,
        diverging_epoch: None,
        current_leader: None,
        records: Bytes::new(),
    };
    cursor.i64()?; // last stable offset
    read.log_start_offset = cursor.i64()?;
    let aborted = cursor.nullable_count(16)?;
    for _ in 0..aborted.unwrap_or(0) {
        cursor.i64()?;
        cursor.i64()?;
        cursor.skip_tags()?;
    }
    if version >= 11 {
        cursor.i32()?; // preferred read replica
    }
    if let Some(records) = cursor.nullable_bytes()? {
        read.records = body.slice_ref(records);
    }
    cursor.tags(|tag, field| {
        match tag {
            0 => {
                let (epoch, end) = (field.i32()?, field.i64()?);
                field.skip_tags()?;
                read.diverging_epoch = Some((epoch, end)).filter(|(epoch, _)| *epoch != NO_EPOCH);
            }
            1 => {
                let (leader_id, leader_epoch) = (field.i32()?, field.i32()?);
                field.skip_tags()?;
                read.current_leader = Some(CurrentLeader {
                    leader_id,
                    leader_epoch,
                });
            }
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(read)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Chunk;
    use crate::protocol::fetch::{FetchPartitionResponse, FetchResponse, FetchTopicResponse};

    fn request() -> FetchRequest {
        FetchRequest {
            replica_id: 2,
            replica_epoch: 77,
            cluster_id: None,
            max_wait_ms: 500,
            min_bytes: 1,
            max_bytes: 10 << 20,
            isolation_level: 0,
            session_id: 9,
            session_epoch: 3,
            topics: vec![FetchTopic {
                topic: TopicKey::Id(TopicId([7; 16])),
                partitions: vec![FetchPartition {
                    partition: 4,
                    current_leader_epoch: 5,
                    fetch_offset: 1_000,
                    last_fetched_epoch: 4,
                    log_start_offset: 10,
                    max_bytes: 1 << 20,
                    replica_directory_id: TopicId::ZERO,
                    high_watermark: i64::MAX,
                }],
            }],
            forgotten_topics: vec![ForgottenTopic {
                topic: TopicKey::Id(TopicId([8; 16])),
                partitions: vec![1, 2],
            }],
            rack_id: String::new(),
        }
    }

    #[test]
    fn a_request_is_read_as_it_was_written() {
        for version in 15..=18 {
            let body = request().encode(version);
            assert_eq!(FetchRequest::decode(&body, version), Ok(request()));
        }
        let mut named = request();
        named.topics[0].topic = TopicKey::Name("t".into());
        named.forgotten_topics[0].topic = TopicKey::Name("u".into());
        named.replica_epoch = -1;
        let body = named.encode(12);
        assert_eq!(FetchRequest::decode(&body, 12), Ok(named));
    }

    #[test]
    fn an_answer_is_read_without_copying_its_records() {
        let partition = FetchPartitionResponse {
            high_watermark: 12,
            last_stable_offset: 12,
            log_start_offset: 3,
            diverging_epoch: Some((4, 8)),
            current_leader: Some(CurrentLeader {
                leader_id: 3,
                leader_epoch: 9,
            }),
            aborted_transactions: Some(Vec::new()),
            records: vec![Chunk::Bytes(Bytes::from(vec![5; 1_000]))],
            ..FetchPartitionResponse::failed(6, ErrorCode::None)
        };
        let response = FetchResponse {
            session_id: 21,
            topics: vec![FetchTopicResponse {
                topic: TopicKey::Id(TopicId([7; 16])),
                partitions: vec![
                    partition,
                    FetchPartitionResponse::failed(7, ErrorCode::FencedLeaderEpoch),
                ],
            }],
            ..FetchResponse::default()
        };
        let chunks = response.encode(17);
        let mut body = Vec::new();
        for chunk in chunks {
            match chunk {
                Chunk::Bytes(bytes) => body.extend(bytes),
                Chunk::File { .. } => panic!("no file was given"),
            }
        }
        let body = Bytes::from(body);
        let answer = FetchAnswer::decode(&body, 17).unwrap();
        assert_eq!((answer.error, answer.session_id), (0, 21));
        let [first, second] = &answer.partitions[..] else {
            panic!("{answer:?}");
        };
        assert_eq!(first.records, vec![5; 1_000]);
        let inside = body.as_ptr_range().contains(&first.records.as_ptr());
        assert!(inside, "a copy");
        assert_eq!((first.high_watermark, first.log_start_offset), (12, 3));
        assert_eq!(first.diverging_epoch, Some((4, 8)));
        assert_eq!(first.current_leader.unwrap().leader_epoch, 9);
        assert_eq!(second.error_code(), Some(ErrorCode::FencedLeaderEpoch));
        for cut in 0..body.len() {
            assert!(FetchAnswer::decode(&body.slice(..cut), 17).is_err());
        }
    }
}
