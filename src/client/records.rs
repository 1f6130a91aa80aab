//! Records: produced in batches, fetched and unpacked.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::fetch_response::PartitionData;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{BrokerId, FetchRequest, ProduceRequest, TopicName};

use super::cluster::{Client, Node};
use super::connection::CallError;
use super::errors::{checked, checked_code};
use super::topics::text;
use super::{ClientError, Result};
use crate::record::{
    BATCH_HEADER_BYTES, BatchBuilder, BatchHeader, Records, decompress, decompressed_bytes_max,
};
use crate::types::{
    Compression, ErrorCode, NO_EPOCH, NO_OFFSET, Offset, TimestampMs, TimestampType, TopicPartition,
};

/// Versions that know topics by name.
const PRODUCE_MAX: i16 = 12;
const FETCH_MAX: i16 = 12;
const FETCH_BYTES: i32 = 50 << 20;
const PARTITION_BYTES: i32 = 1 << 20;

/// Whose acknowledgement a producer waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acks {
    None,
    Leader,
    All,
}

impl Acks {
    fn number(self) -> i16 {
        match self {
            Self::None => 0,
            Self::Leader => 1,
            Self::All => -1,
        }
    }
}

/// A record to be written.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OutgoingRecord {
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    pub headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    pub timestamp: TimestampMs,
}

/// Where a batch went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProducedBatch {
    pub partition: TopicPartition,
    pub records: usize,
    /// The first record's offset, −1 where nobody acknowledges.
    pub outcome: Result<Offset>,
}

/// A record as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchedRecord {
    pub offset: Offset,
    pub timestamp: TimestampMs,
    pub timestamp_type: TimestampType,
    pub leader_epoch: i32,
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    pub headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

/// What a fetch brought of one partition.
#[derive(Debug)]
pub struct PartitionFetch {
    pub partition: TopicPartition,
    /// Where to go on, and the records up to there.
    pub outcome: Result<(Offset, Vec<FetchedRecord>)>,
    pub high_watermark: Offset,
    pub last_stable_offset: Offset,
}

/// How records are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProduceOptions {
    pub acks: Acks,
    pub compression: Compression,
    /// How long a leader may wait for its followers.
    pub timeout: Duration,
    /// With `Acks::All`: batches that are sent again are there once.
    pub idempotent: bool,
}

impl Client {
    /// Writes batches, one to a partition, again where that helps.
    pub(super) async fn produce(
        &mut self,
        mut left: BTreeMap<TopicPartition, (usize, Bytes)>,
        options: ProduceOptions,
        retries: u32,
    ) -> Result<Vec<ProducedBatch>> {
        let mut done = Vec::new();
        let mut attempts = self.attempts();
        let mut tries = 0;
        loop {
            let outcomes = self.produce_once(&left, options).await?;
            tries += 1;
            let may_retry = tries <= retries && attempts.again().await;
            for (partition, outcome) in outcomes {
                let retriable = matches!(&outcome, Err(error) if error.is_retriable());
                if retriable && may_retry {
                    continue;
                }
                if let Some((records, _)) = left.remove(&partition) {
                    done.push(ProducedBatch {
                        partition,
                        records,
                        outcome,
                    });
                }
            }
            if left.is_empty() {
                return Ok(done);
            }
        }
    }

    async fn produce_once(
        &mut self,
        batches: &BTreeMap<TopicPartition, (usize, Bytes)>,
        options: ProduceOptions,
    ) -> Result<BTreeMap<TopicPartition, Result<Offset>>> {
        let mut outcomes = BTreeMap::new();
        let mut by_leader: BTreeMap<i32, Vec<TopicProduceData>> = BTreeMap::new();
        for (partition, leader) in self.leaders(batches.keys()).await? {
            let leader = match leader {
                Ok(leader) => leader,
                Err(error) => {
                    outcomes.insert(partition, Err(error));
                    continue;
                }
            };
            let records = batches.get(&partition).map(|(_, batch)| batch.clone());
            let data = PartitionProduceData::default()
                .with_index(partition.partition)
                .with_records(records);
            let topic = TopicProduceData::default()
                .with_name(TopicName(text(&partition.topic)))
                .with_partition_data(vec![data]);
            by_leader.entry(leader).or_default().push(topic);
        }
        let timeout_ms = i32::try_from(options.timeout.as_millis()).unwrap_or(i32::MAX);
        let requests: Vec<(i32, ProduceRequest)> = by_leader
            .into_iter()
            .map(|(leader, topics)| {
                let request = ProduceRequest::default()
                    .with_acks(options.acks.number())
                    .with_timeout_ms(timeout_ms)
                    .with_topic_data(merged(topics));
                (leader, request)
            })
            .collect();
        if options.acks == Acks::None {
            for (leader, request) in requests {
                let topics = request.topic_data.clone();
                let sent = self.tell(Node::Broker(leader), PRODUCE_MAX, request).await;
                if let Err(CallError::Final(error)) = sent {
                    return Err(error);
                }
                for topic in topics.iter().filter(|_| sent.is_ok()) {
                    for data in &topic.partition_data {
                        let key = TopicPartition::new(topic.name.as_str(), data.index);
                        outcomes.insert(key, Ok(NO_OFFSET));
                    }
                }
            }
            return Ok(with_lost(outcomes, batches.keys()));
        }
        let answers = self.send_each(requests, PRODUCE_MAX, options.timeout).await;
        for (_, outcome) in answers {
            match outcome {
                Ok(answer) => {
                    for topic in answer.responses {
                        for partition in topic.partition_responses {
                            let key = TopicPartition::new(topic.name.as_str(), partition.index);
                            let checked = checked(partition.error_code, partition.error_message);
                            outcomes.insert(key, checked.map(|()| partition.base_offset));
                        }
                    }
                }
                Err(CallError::Final(error)) => return Err(error),
                Err(CallError::Io(_)) => {}
            }
        }
        Ok(with_lost(outcomes, batches.keys()))
    }

    /// One round: what the leaders of these partitions have from these offsets on, after a wait of at most `wait`.
    pub async fn fetch(
        &mut self,
        positions: &BTreeMap<TopicPartition, Offset>,
        leaders: &BTreeMap<TopicPartition, i32>,
        read_committed: bool,
        wait: Duration,
    ) -> Result<Vec<PartitionFetch>> {
        let mut by_leader: BTreeMap<i32, Vec<FetchTopic>> = BTreeMap::new();
        for (partition, offset) in positions {
            let Some(leader) = leaders.get(partition) else {
                continue;
            };
            let asked = FetchPartition::default()
                .with_partition(partition.partition)
                .with_current_leader_epoch(NO_EPOCH)
                .with_last_fetched_epoch(NO_EPOCH)
                .with_log_start_offset(-1)
                .with_fetch_offset(*offset)
                .with_partition_max_bytes(PARTITION_BYTES);
            let name = TopicName(text(&partition.topic));
            let topics = by_leader.entry(*leader).or_default();
            match topics.last_mut().filter(|topic| topic.topic == name) {
                Some(topic) => topic.partitions.push(asked),
                None => topics.push(
                    FetchTopic::default()
                        .with_topic(name)
                        .with_partitions(vec![asked]),
                ),
            }
        }
        let max_wait_ms = i32::try_from(wait.as_millis()).unwrap_or(i32::MAX);
        let requests = by_leader.into_iter().map(|(leader, topics)| {
            let request = FetchRequest::default()
                .with_replica_id(BrokerId(-1))
                .with_max_wait_ms(max_wait_ms)
                .with_min_bytes(1)
                .with_max_bytes(FETCH_BYTES)
                .with_isolation_level(i8::from(read_committed))
                .with_session_epoch(-1)
                .with_topics(topics);
            (leader, request)
        });
        let answers = self.send_each(requests.collect(), FETCH_MAX, wait).await;
        let mut fetched = Vec::new();
        for (_, outcome) in answers {
            let answer = match outcome {
                Ok(answer) => answer,
                Err(CallError::Final(error)) => return Err(error),
                Err(CallError::Io(_)) => continue,
            };
            checked_code(answer.error_code)?;
            for topic in answer.responses {
                for data in topic.partitions {
                    let partition = TopicPartition::new(topic.topic.as_str(), data.partition_index);
                    let from = positions.get(&partition).copied().unwrap_or(0);
                    fetched.push(PartitionFetch {
                        partition,
                        high_watermark: data.high_watermark,
                        last_stable_offset: data.last_stable_offset,
                        outcome: unpack(&data, from, read_committed),
                    });
                }
            }
        }
        Ok(fetched)
    }
}

/// What nobody answered for was lost with a connection.
fn with_lost<'a>(
    mut outcomes: BTreeMap<TopicPartition, Result<Offset>>,
    asked: impl Iterator<Item = &'a TopicPartition>,
) -> BTreeMap<TopicPartition, Result<Offset>> {
    for partition in asked {
        let lost = || Err(ClientError::code(ErrorCode::NetworkException.code()));
        outcomes.entry(partition.clone()).or_insert_with(lost);
    }
    outcomes
}

/// One entry for each topic: Kafka takes no topic twice.
fn merged(topics: Vec<TopicProduceData>) -> Vec<TopicProduceData> {
    let mut merged: Vec<TopicProduceData> = Vec::new();
    for topic in topics {
        match merged.last_mut().filter(|last| last.name == topic.name) {
            Some(last) => last.partition_data.extend(topic.partition_data),
            None => merged.push(topic),
        }
    }
    merged
}

pub(super) fn batch_of(mut builder: BatchBuilder, records: &[OutgoingRecord]) -> Bytes {
    for record in records {
        let headers: Vec<(&[u8], Option<&[u8]>)> = record
            .headers
            .iter()
            .map(|(key, value)| (key.as_slice(), value.as_deref()))
            .collect();
        builder.push_with_headers(
            record.timestamp,
            record.key.as_deref(),
            record.value.as_deref(),
            &headers,
        );
    }
    builder.build()
}

/// The records of whole batches from `from` on. Control batches and, at read_committed, those of aborted
/// transactions are passed over.
fn unpack(
    data: &PartitionData,
    from: Offset,
    read_committed: bool,
) -> Result<(Offset, Vec<FetchedRecord>)> {
    checked_code(data.error_code)?;
    let mut bytes = data.records.clone().unwrap_or_default();
    let mut aborted: Vec<(Offset, i64)> = Vec::new();
    if read_committed {
        let all = data.aborted_transactions.iter().flatten();
        aborted = all
            .map(|one| (one.first_offset, one.producer_id.0))
            .collect();
        aborted.sort_unstable();
    }
    let mut aborting: Vec<i64> = Vec::new();
    let (mut next, mut records) = (from, Vec::new());
    while bytes.len() >= BATCH_HEADER_BYTES {
        let header = BatchHeader::parse(&bytes)
            .map_err(|error| ClientError::Malformed(error.to_string()))?;
        let length = header.total_bytes();
        if length > bytes.len() {
            break; // the rest comes with the next fetch
        }
        let batch = bytes.split_to(length);
        let last = header.last_offset();
        aborted.retain(|&(first, producer)| {
            let begins = first <= last;
            if begins {
                aborting.push(producer);
            }
            !begins
        });
        let transactional = header.is_transactional() && aborting.contains(&header.producer_id);
        if header.is_control() {
            aborting.retain(|producer| *producer != header.producer_id);
        } else if !transactional {
            unpack_batch(
                &header,
                &batch.slice(BATCH_HEADER_BYTES..),
                from,
                &mut records,
            )?;
        }
        next = next.max(last + 1);
    }
    Ok((next, records))
}

fn unpack_batch(
    header: &BatchHeader,
    payload: &Bytes,
    from: Offset,
    records: &mut Vec<FetchedRecord>,
) -> Result<()> {
    let malformed = |what: &dyn std::fmt::Display| ClientError::Malformed(what.to_string());
    let compression = Compression::from_attributes(header.attributes)
        .ok_or_else(|| malformed(&"an unknown compression"))?;
    let payload = decompress(compression, payload, decompressed_bytes_max(i32::MAX / 8))
        .map_err(|error| malformed(&error))?;
    let timestamp_type = header.timestamp_type();
    for record in Records::new(&payload, header.record_count) {
        let record = record.map_err(|error| malformed(&error))?;
        let offset = header.base_offset + i64::from(record.offset_delta);
        if offset < from {
            continue;
        }
        let headers = record
            .headers
            .map(|(key, value)| (key.to_vec(), value.map(<[u8]>::to_vec)));
        records.push(FetchedRecord {
            offset,
            timestamp: header.record_timestamp(record.timestamp_delta),
            timestamp_type,
            leader_epoch: header.partition_leader_epoch,
            key: record.key.map(<[u8]>::to_vec),
            value: record.value.map(<[u8]>::to_vec),
            headers: headers.collect(),
        });
    }
    Ok(())
}
