//! What a broker does with what it is asked: the handlers' part.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::post::{Mail, Post, Record};
use crate::protocol::fetch::{
    FetchPartitionResponse, FetchRequest, FetchResponse, FetchTopicResponse,
};
use crate::protocol::{Chunk, TopicKey};
use crate::record::{BATCH_HEADER_BYTES, BatchHeader, Records};
use crate::replication::{
    AppendOptions, FetchBound, FetchLimits, FetchSource, FetchTarget, FetchingReplica, LogSlice,
    OffsetQuery, Partition, Replicas, fetch,
};
use crate::types::{BrokerId, ErrorCode, LeaderEpoch, Offset};

const FETCH: i16 = 1;
/// How long a producer's request may take.
const PRODUCE_TIMEOUT: Duration = Duration::from_millis(1_200);

/// Answers a follower's frame.
pub(super) async fn frame(replicas: Arc<Replicas>, frame: Bytes, received: Instant) -> Bytes {
    let mut body = frame;
    let (api_key, api_version) = (body.get_i16(), body.get_i16());
    let correlation_id = body.get_i32();
    let client_id = usize::try_from(body.get_i16()).unwrap();
    body.advance(client_id + 1);
    let mut answer = BytesMut::new();
    answer.put_i32(0);
    answer.put_i32(correlation_id);
    answer.put_u8(0);
    if api_key == FETCH {
        let request = FetchRequest::decode(&body, api_version).unwrap();
        let response = fetched(&replicas, request, received).await;
        for chunk in response.encode(api_version) {
            match chunk {
                Chunk::Bytes(bytes) => answer.extend_from_slice(&bytes),
                other => panic!("{other:?}"),
            }
        }
    } else {
        list_offsets(&replicas, body, &mut answer).await;
    }
    let bytes = u32::try_from(answer.len() - 4).unwrap();
    answer[..4].copy_from_slice(&bytes.to_be_bytes());
    answer.freeze()
}

/// As the handler of Fetch does without a session.
async fn fetched(replicas: &Replicas, body: FetchRequest, received: Instant) -> FetchResponse {
    let mut asked = Vec::new();
    let mut targets = Vec::new();
    for topic in &body.topics {
        let TopicKey::Id(id) = &topic.topic else {
            panic!("{:?}", topic.topic);
        };
        for partition in &topic.partitions {
            let source = match replicas.partition_by_id(*id, partition.partition) {
                Ok(partition) => FetchSource::Here(partition),
                Err(error @ ErrorCode::NotLeaderOrFollower) => FetchSource::Refused(error),
                Err(error) => FetchSource::Unknown(error),
            };
            targets.push(FetchTarget {
                source,
                offset: partition.fetch_offset,
                bytes_max: usize::try_from(partition.max_bytes).unwrap(),
                current_leader_epoch: partition.current_leader_epoch,
                last_fetched_epoch: partition.last_fetched_epoch,
                replica_log_start: partition.log_start_offset,
            });
            asked.push((*id, partition.partition));
        }
    }
    let limits = FetchLimits {
        deadline: received + Duration::from_millis(u64::try_from(body.max_wait_ms).unwrap()),
        may_wait: body.max_wait_ms > 0,
        bytes_min: usize::try_from(body.min_bytes).unwrap(),
        bytes_max: usize::try_from(body.max_bytes).unwrap(),
        bound: FetchBound::LogEnd,
        replica: Some(FetchingReplica {
            id: BrokerId(body.replica_id),
            broker_epoch: body.replica_epoch,
            at: received,
        }),
    };
    let mut response = FetchResponse::default();
    let outcomes = fetch(&targets, limits).await;
    for ((id, index), outcome) in asked.into_iter().zip(outcomes) {
        let partition = match outcome {
            Err(error) => FetchPartitionResponse::failed(index, error),
            Ok(read) => FetchPartitionResponse {
                high_watermark: read.high_watermark,
                last_stable_offset: read.last_stable_offset,
                log_start_offset: read.log_start_offset,
                diverging_epoch: read.diverging_epoch,
                records: chunks(read.slice).into_iter().map(Chunk::Bytes).collect(),
                ..FetchPartitionResponse::failed(index, ErrorCode::None)
            },
        };
        let topic = TopicKey::Id(id);
        match response.topics.last_mut() {
            Some(last) if last.topic == topic => last.partitions.push(partition),
            _ => response.topics.push(FetchTopicResponse {
                topic,
                partitions: vec![partition],
            }),
        }
    }
    response
}

/// One offset of one partition, as `protocol::list_offsets` asks for it.
async fn list_offsets(replicas: &Replicas, mut body: Bytes, answer: &mut BytesMut) {
    body.advance(6);
    let length = usize::from(body.get_u8()) - 1;
    let topic = String::from_utf8(body.split_to(length).to_vec()).unwrap();
    body.advance(1);
    let (index, epoch, time) = (body.get_i32(), body.get_i32(), body.get_i64());
    let query = match time {
        -2 => OffsetQuery::Earliest,
        _ => OffsetQuery::Latest(FetchBound::LogEnd),
    };
    let found = match replicas.partition(&topic, index) {
        Ok(partition) => {
            let bound = FetchBound::LogEnd;
            partition.offset_for(query, bound, epoch).await
        }
        Err(error) => Err(error),
    };
    answer.put_i32(0);
    answer.put_u8(2);
    answer.put_u8(u8::try_from(topic.len() + 1).unwrap());
    answer.put_slice(topic.as_bytes());
    answer.put_u8(2);
    answer.put_i32(index);
    answer.put_i16(found.as_ref().err().map_or(0, |error| error.code()));
    answer.put_i64(-1);
    answer.put_i64(found.map_or(-1, |found| found.offset));
    answer.put_i32(-1);
    answer.put_slice(&[0, 0, 0]);
}

/// A producer's batch.
pub(super) async fn produce(
    partition: Arc<Partition>,
    batch: Bytes,
    options: AppendOptions,
    post: Arc<Post>,
    (number, node): (u64, usize),
) {
    let pending = partition.produce(batch, options);
    let outcome = match tokio::time::timeout(PRODUCE_TIMEOUT, pending).await {
        Ok(Ok(appended)) => Ok(appended.base_offset),
        Ok(Err(failure)) => Err(failure.error),
        Err(_) => Err(ErrorCode::RequestTimedOut),
    };
    post.send(Mail::Produced {
        number,
        node,
        outcome,
    });
}

/// A consumer's questions: where the partition ends, and what is at `position`.
pub(super) async fn consume(
    partition: Arc<Partition>,
    epoch: LeaderEpoch,
    position: Offset,
    post: Arc<Post>,
    number: u64,
) {
    let bound = FetchBound::HighWatermark;
    let query = OffsetQuery::Latest(bound);
    let latest = partition.offset_for(query, bound, epoch).await;
    let mut records = Vec::new();
    if let Ok(read) = partition.read(position, 1 << 16, bound, true).await {
        for chunk in chunks(read.slice) {
            records_of(&chunk, |offset, record| {
                if offset >= position {
                    records.push(record);
                }
            });
        }
    }
    post.send(Mail::Consumed {
        number,
        latest: latest.map(|found| found.offset),
        records,
    });
}

pub(super) fn chunks(slice: LogSlice) -> Vec<Bytes> {
    match slice {
        LogSlice::Memory(chunks) => chunks,
        LogSlice::File(range) => panic!("{range:?}"),
    }
}

/// Each record of the batches in `bytes`.
pub(super) fn records_of(mut bytes: &[u8], mut each: impl FnMut(Offset, Record)) {
    while !bytes.is_empty() {
        let header = BatchHeader::parse(bytes).unwrap();
        let (batch, rest) = bytes.split_at(header.total_bytes());
        let records = Records::new(&batch[BATCH_HEADER_BYTES..], header.record_count);
        for record in records {
            let record = record.unwrap();
            let value = record.value.unwrap().try_into().unwrap();
            let offset = header.base_offset + i64::from(record.offset_delta);
            let epoch = header.partition_leader_epoch;
            each(offset, (epoch, u64::from_be_bytes(value)));
        }
        bytes = rest;
    }
}
