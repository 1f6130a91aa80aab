//! ListOffsets from the follower's side: where a leader's log starts and ends.

use bytes::{BufMut, BytesMut};

use super::wire::{Cursor, MalformedBody, Writer};
use crate::types::{LeaderEpoch, Offset, PartitionId};

pub const API_KEY: i16 = 2;
/// Flexible, and by name.
pub const VERSION: i16 = 7;

/// What is asked for in place of a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    Earliest,
    /// A replica is told where the log ends, not where the high watermark stands.
    Latest,
}

/// The body of a replica's request for one offset of one partition.
pub fn encode(
    replica_id: i32,
    (topic, partition): (&str, PartitionId),
    leader_epoch: LeaderEpoch,
    asked: Asked,
) -> BytesMut {
    let mut writer = Writer::new(48 + topic.len(), true);
    writer.buffer.put_i32(replica_id);
    writer.buffer.put_i8(0); // isolation level
    writer.count(1);
    writer.string(topic);
    writer.count(1);
    writer.buffer.put_i32(partition);
    writer.buffer.put_i32(leader_epoch);
    writer.buffer.put_i64(match asked {
        Asked::Earliest => -2,
        Asked::Latest => -1,
    });
    writer.no_tags();
    writer.no_tags();
    writer.no_tags();
    writer.buffer
}

/// The body of a consumer's request for the high watermarks of many partitions.
pub fn encode_latest(topics: &[(&str, Vec<PartitionId>)]) -> BytesMut {
    let bytes = topics
        .iter()
        .map(|(name, asked)| 16 + name.len() + 17 * asked.len());
    let mut writer = Writer::new(16 + bytes.sum::<usize>(), true);
    writer.buffer.put_i32(-1); // no replica
    writer.buffer.put_i8(0); // isolation level
    writer.count(topics.len());
    for (name, partitions) in topics {
        writer.string(name);
        writer.count(partitions.len());
        for partition in partitions {
            writer.buffer.put_i32(*partition);
            writer.buffer.put_i32(-1); // leader epoch
            writer.buffer.put_i64(-1);
            writer.no_tags();
        }
        writer.no_tags();
    }
    writer.no_tags();
    writer.buffer
}

/// The offsets that were found.
pub fn decode_latest(body: &[u8]) -> Result<Vec<(String, PartitionId, Offset)>, MalformedBody> {
    let cursor = &mut Cursor::new(body, true);
    cursor.i32()?; // throttle time
    let mut found = Vec::new();
    for _ in 0..cursor.count(3)? {
        let topic = cursor.string()?;
        for _ in 0..cursor.count(27)? {
            let partition = cursor.i32()?;
            let error = cursor.i16()?;
            cursor.i64()?; // timestamp
            let offset = cursor.i64()?;
            cursor.i32()?; // leader epoch
            cursor.skip_tags()?;
            if error == 0 {
                found.push((topic.to_owned(), partition, offset));
            }
        }
        cursor.skip_tags()?;
    }
    cursor.skip_tags()?;
    Ok(found)
}

/// The offset of the one partition that was asked for, or its error code.
pub fn decode(body: &[u8]) -> Result<Result<Offset, i16>, MalformedBody> {
    let cursor = &mut Cursor::new(body, true);
    cursor.i32()?; // throttle time
    if cursor.count(2)? != 1 {
        return Err(MalformedBody::Count);
    }
    cursor.string()?;
    if cursor.count(26)? != 1 {
        return Err(MalformedBody::Count);
    }
    cursor.i32()?; // partition
    let error = cursor.i16()?;
    cursor.i64()?; // timestamp
    let offset = cursor.i64()?;
    cursor.i32()?; // leader epoch
    for _ in 0..3 {
        cursor.skip_tags()?;
    }
    Ok(match error {
        0 => Ok(offset),
        error => Err(error),
    })
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use kafka_protocol::messages::list_offsets_response::{
        ListOffsetsPartitionResponse, ListOffsetsTopicResponse,
    };
    use kafka_protocol::messages::{ListOffsetsRequest, ListOffsetsResponse};
    use kafka_protocol::protocol::{Decodable, Encodable};

    use super::*;

    #[test]
    fn the_codec_reads_what_is_asked() {
        let mut body = encode(3, ("topic", 4), 5, Asked::Earliest).freeze();
        let request = ListOffsetsRequest::decode(&mut body, VERSION).unwrap();
        assert!(body.is_empty());
        assert_eq!(request.replica_id.0, 3);
        let asked = &request.topics[0].partitions[0];
        assert_eq!(request.topics[0].name.as_str(), "topic");
        assert_eq!(asked.partition_index, 4);
        assert_eq!((asked.current_leader_epoch, asked.timestamp), (5, -2));
    }

    #[test]
    fn many_high_watermarks_at_once() {
        let mut body = encode_latest(&[("a", vec![0, 2]), ("b", vec![1])]).freeze();
        let request = ListOffsetsRequest::decode(&mut body, VERSION).unwrap();
        assert!(body.is_empty());
        assert_eq!(request.replica_id.0, -1);
        let asked = request.topics.iter().flat_map(|topic| {
            let asked = topic.partitions.iter();
            asked.map(|one| (topic.name.as_str(), one.partition_index, one.timestamp))
        });
        assert_eq!(
            asked.collect::<Vec<_>>(),
            [("a", 0, -1), ("a", 2, -1), ("b", 1, -1)]
        );
        let answered = |index, error, offset| {
            ListOffsetsPartitionResponse::default()
                .with_partition_index(index)
                .with_error_code(error)
                .with_offset(offset)
        };
        let topic = ListOffsetsTopicResponse::default()
            .with_name(kafka_protocol::messages::TopicName("a".to_owned().into()))
            .with_partitions(vec![
                answered(0, 0, 42),
                answered(1, 6, -1),
                answered(2, 0, 7),
            ]);
        let response = ListOffsetsResponse::default().with_topics(vec![topic]);
        let mut body = BytesMut::new();
        response.encode(&mut body, VERSION).unwrap();
        let expected = [("a".to_owned(), 0, 42), ("a".to_owned(), 2, 7)];
        assert_eq!(decode_latest(&body).unwrap(), expected);
        for cut in 0..body.len() {
            assert!(decode_latest(&body[..cut]).is_err());
        }
    }

    #[test]
    fn what_the_codec_answers_is_read() {
        for (error, expected) in [(0, Ok(42)), (6, Err(6))] {
            let partition = ListOffsetsPartitionResponse::default()
                .with_partition_index(4)
                .with_error_code(error)
                .with_offset(42);
            let topic = ListOffsetsTopicResponse::default().with_partitions(vec![partition]);
            let response = ListOffsetsResponse::default().with_topics(vec![topic]);
            let mut body = BytesMut::new();
            response.encode(&mut body, VERSION).unwrap();
            let body: Bytes = body.freeze();
            assert_eq!(decode(&body), Ok(expected));
            for cut in 0..body.len() {
                assert!(decode(&body[..cut]).is_err());
            }
        }
    }
}
